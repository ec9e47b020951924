//! The folder of an account and a certificate.
//!
//! Their names have a digest in them: of the authority and the address of mail for an account, and of the authority and all names for a
//! certificate. So other options find other files, and a certificate that is read has the names that are asked for.
//!
//! Only the server's user may read the files. A folder that the server makes is closed to others too. A file is written beside its place
//! and then moved there, so nobody reads half of one.

use super::AcmeSettings;
use super::order::Issued;
use crate::hex::hex;
use crate::tls::PairFiles;
use crate::tls::pair::{Pair, read_file};
use crate::tls::provider;
use aws_lc_rs::digest::{Context, SHA256};
use instant_acme::AccountCredentials;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Where things are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::tls) struct Cache {
    pub(super) folder: PathBuf,
    account: PathBuf,
    /// The chain and its key, as one file: a pair of files could be read while only one of them is new.
    pub(in crate::tls) certificate: PathBuf,
    lock: PathBuf,
}

impl Cache {
    pub(in crate::tls) fn of(settings: &AcmeSettings) -> Self {
        let folder = settings.folder.clone();
        let (directory, email) = (&settings.directory, settings.email.as_deref());
        let account = digest([directory, email.unwrap_or_default()]);
        let mut names: Vec<&str> = settings.names.iter().map(String::as_str).collect();
        names.sort_unstable();
        let first = settings.names.first().map_or("", |name| name);
        let certificate = digest(std::iter::once(directory.as_str()).chain(names));
        Self {
            account: folder.join(format!("account-{account}.json")),
            certificate: folder.join(format!("{first}-{certificate}.pem")),
            lock: folder.join(format!("{first}-{certificate}.lock")),
            folder,
        }
    }

    /// Makes the folder, and finds out whether it can be written to.
    pub(super) fn prepare(&self) -> io::Result<()> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder)?;
        Lock::open(self).map(drop)
    }

    /// Whether every user of this machine may replace files in the folder.
    pub(super) fn is_open_to_everybody(&self) -> io::Result<bool> {
        let mode = std::fs::metadata(&self.folder)?.permissions().mode();
        // A sticky folder lets nobody replace another user's files. A group may be meant: a program that copies certificates.
        Ok(mode & 0o002 != 0 && mode & 0o1000 == 0)
    }

    /// The account in the folder. A file that cannot be read counts as no account, because a new one costs nothing.
    pub(super) fn account(&self) -> Option<AccountCredentials> {
        serde_json::from_slice(&read_file(&self.account).ok()?).ok()
    }

    pub(super) fn keep_account(&self, credentials: &AccountCredentials) -> io::Result<()> {
        let text = serde_json::to_vec(credentials)?;
        replace(&self.account, &text, |_| Ok(()))
    }

    pub(super) fn forget_account(&self) -> io::Result<()> {
        match std::fs::remove_file(&self.account) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Keeps a certificate, if it can be used.
    ///
    /// # Errors
    /// Why not, or why it could not be written. The one before stays.
    pub(super) fn keep_certificate(&self, issued: &Issued) -> Result<(), String> {
        let text = format!("{}\n{}", issued.chain.trim_end(), issued.key);
        let written = replace(&self.certificate, text.as_bytes(), |path| {
            let files = PairFiles {
                certificate: path.to_owned(),
                key: path.to_owned(),
                fields: ("the new certificate".into(), "its key".into()),
            };
            let read = Pair::read(&files, &provider());
            read.map(drop)
                .map_err(|fault| io::Error::other(fault.advice))
        });
        written.map_err(|error| format!("{:?}: {error}", self.certificate))
    }
}

/// A word for these texts. Other texts get another word.
fn digest<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut context = Context::new(&SHA256);
    for text in texts {
        context.update(text.as_bytes());
        context.update(&[0]);
    }
    hex(&context.finish().as_ref()[..8])
}

/// Writes a file that nobody else may read, lets `check` look at it, and moves it to its place.
fn replace(
    path: &Path,
    text: &[u8],
    check: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let beside = path.with_extension(format!("new-{}", std::process::id()));
    // A file that was left behind may belong to somebody else.
    let _ = std::fs::remove_file(&beside);
    let write = || {
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&beside)?;
        file.write_all(text)?;
        // Without it a machine that loses power may keep the name and lose the text.
        file.sync_all()?;
        check(&beside)?;
        std::fs::rename(&beside, path)
    };
    write().inspect_err(|_| {
        let _ = std::fs::remove_file(&beside);
    })
}

/// The right to order the certificate of this folder. Processes share it, on this machine and where the file system knows `flock`.
#[derive(Debug)]
pub(super) struct Lock(#[expect(dead_code, reason = "its end is what counts")] File);

impl Lock {
    /// None if another process has it.
    pub(super) fn take(cache: &Cache) -> io::Result<Option<Self>> {
        let file = Self::open(cache)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn open(cache: &Cache) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            // A pipe is an error, and not waited for.
            .custom_flags(myriad_files::NONBLOCK)
            .open(&cache.lock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};
    use std::fs;

    /// A folder that goes with its test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("myriad-acme-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }

        fn settings(&self, names: &[&str]) -> AcmeSettings {
            AcmeSettings {
                names: names.iter().map(|name| (*name).to_owned()).collect(),
                email: None,
                directory: "https://authority.example/directory".into(),
                ca: None,
                folder: self.0.join("cache"),
                http: None,
            }
        }

        fn cache(&self) -> Cache {
            let cache = Cache::of(&self.settings(&["a.example"]));
            cache.prepare().unwrap();
            cache
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn issued(names: &[&str]) -> Issued {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(names)
            .unwrap()
            .self_signed(&key)
            .unwrap();
        Issued {
            chain: certificate.pem(),
            key: key.serialize_pem(),
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn files(folder: &Path) -> Vec<String> {
        let all = fs::read_dir(folder).unwrap();
        let names = all.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn a_folder_to_which_everybody_may_write_is_noticed() {
        let folder = Folder::new("wide");
        let cache = folder.cache();
        assert_eq!(mode(&cache.folder), 0o700);
        for (mode, is_open) in [
            (0o700, false),
            (0o775, false),
            (0o777, true),
            (0o1777, false),
        ] {
            let permissions = fs::Permissions::from_mode(mode);
            fs::set_permissions(&cache.folder, permissions).unwrap();
            assert_eq!(cache.is_open_to_everybody().unwrap(), is_open, "{mode:o}");
        }
    }

    #[test]
    fn other_names_or_another_authority_have_other_files() {
        let folder = Folder::new("names");
        let of = |names: &[&str]| Cache::of(&folder.settings(names));
        let ours = of(&["a.example", "b.example"]);
        assert_ne!(ours, of(&["a.example"]));
        assert_ne!(ours.certificate, of(&["a.exampleb.example"]).certificate);
        let other_order = of(&["b.example", "a.example"]);
        assert_eq!(ours.account, other_order.account);
        let staging = AcmeSettings {
            directory: "https://staging.example/directory".into(),
            ..folder.settings(&["a.example", "b.example"])
        };
        assert_ne!(ours.certificate, Cache::of(&staging).certificate);
        assert_ne!(ours.account, Cache::of(&staging).account);
        let with_mail = AcmeSettings {
            email: Some("a@b.example".into()),
            ..folder.settings(&["a.example", "b.example"])
        };
        assert_ne!(ours.account, Cache::of(&with_mail).account);
        assert_eq!(ours.certificate, Cache::of(&with_mail).certificate);
    }

    #[test]
    fn nobody_else_may_read_what_is_kept() {
        let folder = Folder::new("modes");
        let cache = folder.cache();
        assert_eq!(mode(&cache.folder), 0o700);
        cache.keep_certificate(&issued(&["a.example"])).unwrap();
        assert_eq!(mode(&cache.certificate), 0o600);
        let credentials = r#"{"id": "1", "key_pkcs8": "MAA", "directory": "https://a"}"#;
        let credentials: AccountCredentials = serde_json::from_str(credentials).unwrap();
        cache.keep_account(&credentials).unwrap();
        assert_eq!(mode(&cache.account), 0o600);
        assert!(cache.account().is_some());
        assert!(
            files(&cache.folder)
                .iter()
                .all(|name| !name.contains("new-"))
        );
    }

    #[test]
    fn a_certificate_that_cannot_be_used_leaves_the_one_before() {
        let folder = Folder::new("bad");
        let cache = folder.cache();
        let good = issued(&["a.example"]);
        cache.keep_certificate(&good).unwrap();
        let before = fs::read(&cache.certificate).unwrap();
        let other_key = Issued {
            key: issued(&["a.example"]).key,
            ..good
        };
        let why = cache.keep_certificate(&other_key).unwrap_err();
        assert!(
            why.contains("is not the key of the first certificate"),
            "{why}"
        );
        let empty = Issued {
            chain: String::new(),
            key: String::new(),
        };
        cache.keep_certificate(&empty).unwrap_err();
        assert_eq!(fs::read(&cache.certificate).unwrap(), before);
        assert_eq!(
            files(&cache.folder).len(),
            2,
            "the certificate and its lock"
        );
    }

    #[test]
    fn an_account_that_cannot_be_read_counts_as_none() {
        let folder = Folder::new("account");
        let cache = folder.cache();
        assert!(cache.account().is_none());
        cache.forget_account().unwrap();
        fs::write(&cache.account, "{\"id\": \"1").unwrap();
        assert!(cache.account().is_none());
        cache.forget_account().unwrap();
        assert!(!cache.account.exists());
    }

    #[test]
    fn one_process_orders_at_a_time() {
        let folder = Folder::new("lock");
        let cache = folder.cache();
        let first = Lock::take(&cache).unwrap();
        assert!(first.is_some());
        assert!(Lock::take(&cache).unwrap().is_none());
        let others = Cache::of(&folder.settings(&["b.example"]));
        assert!(
            Lock::take(&others).unwrap().is_some(),
            "another certificate"
        );
        drop(first);
        assert!(Lock::take(&cache).unwrap().is_some());
    }
}
