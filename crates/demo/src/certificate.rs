//! The certificate of a run over TLS, of a demonstration or of the arena. It is made for one run, and removed at the end.

use rcgen::{CertifiedKey, generate_simple_self_signed};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

/// Folders tried before giving up: somebody else may have made those with our names.
const TRIES: u32 = 100;

/// The certificate could not be made. Says why, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("no certificate can be made for this run: {why}")]
pub struct CertificateError {
    why: String,
}

/// A certificate for 127.0.0.1 that signs itself, and its key (ECDSA P-256), as files. They are removed with it.
#[derive(Debug)]
pub struct Certificate {
    folder: PathBuf,
}

impl Certificate {
    /// Makes a pair, in a folder of its own that only this user can read. `owner` is in the folder's name.
    ///
    /// # Errors
    /// The pair could not be made, or the folder of temporary files cannot be written.
    pub fn make(owner: &str) -> Result<Self, CertificateError> {
        let pair = generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]);
        let CertifiedKey { cert, signing_key } = pair.map_err(|error| CertificateError {
            why: error.to_string(),
        })?;
        let made = make_folder(owner).and_then(|folder| {
            let made = Self { folder };
            let written = made.write(&cert.pem(), &signing_key.serialize_pem());
            written.map(|()| made)
        });
        made.map_err(|error| {
            let folder = std::env::temp_dir();
            CertificateError {
                why: format!(
                    "{}: {error}; set TMPDIR to a folder that can be written",
                    folder.display()
                ),
            }
        })
    }

    fn write(&self, certificate: &str, key: &str) -> io::Result<()> {
        for (path, text) in [(self.path(), certificate), (self.key(), key)] {
            let mut options = OpenOptions::new();
            let mut file = options
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(path)?;
            file.write_all(text.as_bytes())?;
        }
        Ok(())
    }

    /// The certificate, which the crowd trusts.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.folder.join("certificate.pem")
    }

    /// Its private key.
    #[must_use]
    pub fn key(&self) -> PathBuf {
        self.folder.join("key.pem")
    }
}

impl Drop for Certificate {
    fn drop(&mut self) {
        // Nobody trusts the key, so a folder that stays does no harm.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A new folder that is this user's alone.
fn make_folder(owner: &str) -> io::Result<PathBuf> {
    let mut attempts = (0..TRIES).map(|attempt| {
        let name = format!("myriad-{owner}-tls-{}-{attempt}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let made = DirBuilder::new().mode(0o700).create(&folder);
        made.map(|()| folder)
    });
    let is_taken = |made: &io::Result<PathBuf>| {
        made.as_ref()
            .is_err_and(|error| error.kind() == ErrorKind::AlreadyExists)
    };
    attempts
        .find(|made| !is_taken(made))
        .unwrap_or_else(|| Err(ErrorKind::AlreadyExists.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    #[test]
    fn a_pair_is_its_users_alone_and_goes_with_its_run() {
        let certificate = Certificate::make("test").unwrap();
        let folder = certificate.folder.clone();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&certificate.key())), (0o700, 0o600));
        let text = fs::read_to_string(certificate.path()).unwrap();
        assert!(text.starts_with("-----BEGIN CERTIFICATE-----"));
        // A folder that is there already may be somebody else's.
        let second = Certificate::make("test").unwrap();
        assert_ne!(second.folder, folder);
        drop((certificate, second));
        assert!(!folder.exists());
    }
}
