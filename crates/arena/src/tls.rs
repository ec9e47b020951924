//! TLS of a run: the certificate that servers show, and who trusts it.

use myriad_demo::certificate::{Certificate, CertificateError};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;

/// A certificate and its key as files for servers and the crowd, and what the arena's own requests need.
#[derive(Debug)]
pub(crate) struct Tls {
    pair: Certificate,
    client: Arc<ClientConfig>,
}

/// No run with TLS is possible.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificate could not be made.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// It was made, and cannot be read back.
    #[error(
        "the certificate of this run cannot be read back: {why}; set TMPDIR to a folder that nothing else changes"
    )]
    Unreadable {
        /// What is wrong with it.
        why: String,
    },
}

impl Tls {
    /// Makes the certificate of a run. It is removed with it.
    pub(crate) fn new() -> Result<Self, TlsError> {
        let pair = Certificate::make("arena")?;
        let client = trusting(&pair).map_err(|why| TlsError::Unreadable { why })?;
        Ok(Self {
            pair,
            client: Arc::new(client),
        })
    }

    /// What servers show, and the only certificate that the crowd and the arena trust.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.pair.path()
    }

    /// Its private key.
    pub(crate) fn key(&self) -> PathBuf {
        self.pair.key()
    }

    /// Speaks TLS on a connection. The handshake is made with the first bytes.
    pub(crate) fn wrap(
        &self,
        stream: TcpStream,
        address: SocketAddr,
    ) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let client = ClientConnection::new(Arc::clone(&self.client), address.ip().into());
        let client = client.map_err(io::Error::other)?;
        Ok(StreamOwned::new(client, stream))
    }
}

/// A client that trusts this certificate alone. TLS 1.3 only: a server that has no more than 1.2 never becomes ready.
fn trusting(pair: &Certificate) -> Result<ClientConfig, String> {
    let certificate =
        CertificateDer::from_pem_file(pair.path()).map_err(|error| error.to_string())?;
    let mut roots = RootCertStore::empty();
    roots.add(certificate).map_err(|error| error.to_string())?;
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| error.to_string())?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
