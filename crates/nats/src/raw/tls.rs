//! TLS to a NATS server.

use super::credentials::FILE_MEBIBYTES_MAX;
use crate::Nats;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;
use tokio::task::spawn_blocking;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

/// Why there can be no TLS with what is configured.
#[derive(Debug, Error)]
pub(super) enum TlsError {
    #[error("cannot read {path}: {why}")]
    Unreadable { path: PathBuf, why: io::Error },
    #[error("{path} is no PEM with certificates and keys: {why}")]
    Pem { path: PathBuf, why: pem::Error },
    #[error("{path} has no certificate; it should begin with -----BEGIN CERTIFICATE-----")]
    Empty { path: PathBuf },
    #[error("a certificate of {path} cannot be used: {why}")]
    Certificate { path: PathBuf, why: rustls::Error },
    #[error("this machine trusts no CA; give a file with the one of the NATS servers")]
    NoRoots,
    #[error("our certificate cannot be used with its key: {0}")]
    Identity(rustls::Error),
    #[error("reading certificates was broken off: {0}")]
    BrokenOff(io::Error),
}

/// What makes TLS of connections. Files are read each time, because they may have been renewed.
pub(super) async fn connector(nats: &Nats) -> Result<TlsConnector, TlsError> {
    let (ca, identity) = (nats.ca.clone(), nats.identity.clone());
    // The machine's certificates are hundreds of files.
    let config = spawn_blocking(move || config(ca.as_deref(), identity.as_ref())).await;
    let config = config.map_err(|error| TlsError::BrokenOff(error.into()))?;
    Ok(TlsConnector::from(Arc::new(config?)))
}

fn config(
    ca: Option<&Path>,
    identity: Option<&(PathBuf, PathBuf)>,
) -> Result<ClientConfig, TlsError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has suites for both versions")
        .with_root_certificates(roots(ca)?);
    let Some((certificate, key)) = identity else {
        return Ok(builder.with_no_client_auth());
    };
    builder
        .with_client_auth_cert(read_certificates(certificate)?, read_key(key)?)
        .map_err(TlsError::Identity)
}

/// Whom we trust: the authorities of our file, or the machine's where there is no file, as async-nats does.
fn roots(ca: Option<&Path>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    let Some(path) = ca else {
        let native = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(native.certs);
        if roots.is_empty() {
            return Err(TlsError::NoRoots);
        }
        return Ok(roots);
    };
    for certificate in read_certificates(path)? {
        let added = roots.add(certificate);
        added.map_err(|why| TlsError::Certificate {
            path: path.to_owned(),
            why,
        })?;
    }
    Ok(roots)
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read(path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let certificates = certificates.map_err(|why| no_pem(path, why))?;
    if certificates.is_empty() {
        let path = path.to_owned();
        return Err(TlsError::Empty { path });
    }
    Ok(certificates)
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|why| no_pem(path, why))
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    myriad_files::read(path, FILE_MEBIBYTES_MAX).map_err(|why| TlsError::Unreadable {
        path: path.to_owned(),
        why,
    })
}

fn no_pem(path: &Path, why: pem::Error) -> TlsError {
    let path = path.to_owned();
    TlsError::Pem { path, why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::generate_simple_self_signed;
    use std::fs;

    /// Writes a file with this content, reads it as one of authorities, and removes it.
    fn trust(name: &str, content: &str) -> Result<RootCertStore, TlsError> {
        let name = format!("myriad-nats-tls-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, content).unwrap();
        let trusted = roots(Some(&path));
        fs::remove_file(path).unwrap();
        trusted
    }

    #[test]
    fn our_authorities_replace_the_machines() {
        let made = generate_simple_self_signed(["a.example".to_owned()]).unwrap();
        let pem = made.cert.pem();
        assert_eq!(trust("one", &pem).unwrap().len(), 1);
        let key = made.signing_key.serialize_pem();
        assert_eq!(trust("both", &format!("{key}{pem}{pem}")).unwrap().len(), 2);
    }

    #[test]
    fn what_is_no_certificate_is_named() {
        let refused = trust("empty", "hello").unwrap_err();
        assert!(matches!(refused, TlsError::Empty { .. }), "{refused}");
        let refused = trust("cut", "-----BEGIN CERTIFICATE-----\nAAAA\n").unwrap_err();
        assert!(matches!(refused, TlsError::Pem { .. }), "{refused}");
        let noise = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let refused = trust("noise", noise).unwrap_err();
        assert!(matches!(refused, TlsError::Certificate { .. }), "{refused}");
        let refused = roots(Some(Path::new("/nowhere/ca.pem"))).unwrap_err();
        assert!(refused.to_string().contains("/nowhere/ca.pem"), "{refused}");
    }
}
