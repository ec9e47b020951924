//! TLS of clients and of requests: whom they trust, and whether they resume.

mod verifiers;

use super::{Config, Endpoint};
use crate::config_error::ConfigError;
use crate::engine::flows::plan::{FlowsPlan, Route};
use crate::engine::tls::{Tickets, TlsPlan};
use crate::files::read_bounded;
use crate::protocol::{Protocol, Scheme};
use myriad_tls::Secrets;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::rustls::CipherSuite::TLS13_AES_128_GCM_SHA256;
use tokio_rustls::rustls::client::{Resumption, WebPkiServerVerifier};
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, SupportedCipherSuite};
use verifiers::{CheckedOnce, Unverified};

/// Largest file of CAs: those of a whole system have some 200 KiB.
const CA_BYTES_MAX: u64 = 4 << 20;

/// How connections to `wss://` and `https://` are protected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// The only CAs that may sign for a server; none for those that this machine trusts.
    pub ca: Option<Ca>,
    /// Servers' certificates are not looked at.
    pub is_insecure: bool,
    /// A client that has been connected resumes its session when it connects again.
    pub is_resuming: bool,
}

/// Certificates of CAs.
#[derive(Clone, PartialEq, Eq)]
pub struct Ca {
    /// Where they come from, as given.
    name: String,
    certificates: Vec<CertificateDer<'static>>,
}

impl fmt::Debug for Ca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({} certificates)",
            self.name,
            self.certificates.len()
        )
    }
}

/// A file that cannot be used as one of CAs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaError {
    /// As given.
    pub path: String,
    /// What is wrong with it.
    pub problem: CaProblem,
}

/// What is wrong with a file of CAs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaProblem {
    /// It cannot be read, and why.
    Read(String),
    /// It is larger than such a file is.
    Large,
    /// It is no PEM, and why.
    Pem(String),
    /// It has no certificate.
    Empty,
    /// One of its certificates cannot be read: its number from 1, and why.
    Certificate(usize, String),
}

impl fmt::Display for CaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path)?;
        match &self.problem {
            CaProblem::Read(why) => write!(f, "it cannot be read ({why}); check the path"),
            CaProblem::Large => write!(
                f,
                "it has more than {} MiB, which no file of CAs needs; check the path",
                CA_BYTES_MAX >> 20
            ),
            CaProblem::Pem(why) => write!(
                f,
                "it is no PEM ({why}); give certificates as text that begins with -----BEGIN CERTIFICATE-----"
            ),
            CaProblem::Empty => write!(
                f,
                "it has no certificate; give the CA's certificate in PEM, which begins with -----BEGIN CERTIFICATE-----"
            ),
            CaProblem::Certificate(number, why) => write!(
                f,
                "certificate {number} of it cannot be read ({why}); check that it is the CA's, and whole"
            ),
        }
    }
}

impl std::error::Error for CaError {}

impl Ca {
    /// Reads a file in PEM.
    ///
    /// # Errors
    /// It cannot be read, or holds something else than certificates.
    pub fn read(path: &Path) -> Result<Self, CaError> {
        let name = path.display().to_string();
        let error = |problem| CaError {
            path: name.clone(),
            problem,
        };
        let unreadable = |why: std::io::Error| error(CaProblem::Read(why.to_string()));
        let pem = read_bounded(path, CA_BYTES_MAX).map_err(unreadable)?;
        let pem = pem.ok_or_else(|| error(CaProblem::Large))?;
        Self::parse(&name, &pem)
    }

    /// The same of a text, with a name for it.
    ///
    /// # Errors
    /// It holds something else than certificates.
    pub fn parse(name: &str, pem: &[u8]) -> Result<Self, CaError> {
        let error = |problem| CaError {
            path: name.to_owned(),
            problem,
        };
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let certificates = certificates.map_err(|why| error(CaProblem::Pem(why.to_string())))?;
        if certificates.is_empty() {
            return Err(error(CaProblem::Empty));
        }
        let mut roots = RootCertStore::empty();
        for (certificate, number) in certificates.iter().zip(1..) {
            let added = roots.add(certificate.clone());
            added.map_err(|why| error(CaProblem::Certificate(number, why.to_string())))?;
        }
        Ok(Self {
            name: name.to_owned(),
            certificates,
        })
    }

    /// Where it comes from, as given.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Tls {
    /// What connections need. `clients` is how many sessions are worth remembering.
    pub(crate) fn plan(&self, clients: usize, protocol: Protocol) -> Result<TlsPlan, ConfigError> {
        let mut first = self.client_config()?;
        if protocol.scheme() != Scheme::Tcp {
            first.alpn_protocols = vec![b"http/1.1".to_vec()];
        }
        first.resumption = Resumption::disabled();
        // Behind its handshake a connection is served by a record stage, which takes over its keys.
        first.key_log = Arc::new(Secrets);
        first.enable_secret_extraction = true;
        if !self.is_resuming {
            let config = Arc::new(first);
            return Ok(TlsPlan {
                again: Arc::clone(&config),
                first: config,
                is_resuming: false,
            });
        }
        let (new, known) = Tickets::both(clients);
        let mut again = first.clone();
        first.resumption = Resumption::store(Arc::new(new));
        again.resumption = Resumption::store(Arc::new(known));
        Ok(TlsPlan {
            first: Arc::new(first),
            again: Arc::new(again),
            is_resuming: true,
        })
    }

    fn client_config(&self) -> Result<ClientConfig, ConfigError> {
        let provider = Arc::new(provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("the provider has suites for both versions");
        let builder = builder.dangerous();
        if self.is_insecure {
            let verifier = Arc::new(Unverified(provider));
            let builder = builder.with_custom_certificate_verifier(verifier);
            return Ok(builder.with_no_client_auth());
        }
        let mut roots = RootCertStore::empty();
        match &self.ca {
            Some(ca) => {
                roots.add_parsable_certificates(ca.certificates.iter().cloned());
            }
            None => {
                let native = rustls_native_certs::load_native_certs();
                roots.add_parsable_certificates(native.certs);
            }
        }
        if roots.is_empty() {
            return Err(ConfigError::NoCa);
        }
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .expect("there are roots, and no lists of revoked certificates");
        let verifier = Arc::new(CheckedOnce::new(verifier));
        let builder = builder.with_custom_certificate_verifier(verifier);
        Ok(builder.with_no_client_auth())
    }
}

/// What clients offer, in the order of browsers: AES-128-GCM first. rustls alone would begin with AES-256-GCM, and a
/// server that lets the client choose would then pay for that.
fn provider() -> CryptoProvider {
    let mut provider = default_provider();
    let is_later = |suite: &SupportedCipherSuite| suite.suite() != TLS13_AES_128_GCM_SHA256;
    // Stable: the others stay in the order of rustls.
    provider.cipher_suites.sort_by_key(is_later);
    provider
}

impl Config {
    /// What connections with TLS need; none where none has it.
    pub(super) fn plan_tls(
        &self,
        flows: Option<&FlowsPlan>,
        clients: usize,
    ) -> Result<Option<TlsPlan>, ConfigError> {
        let mut targets = self.targets.iter();
        let is_used = targets.any(|target| target.server_name.is_some())
            || self.endpoints(flows).any(|it| it.server_name.is_some());
        is_used
            .then(|| self.tls.plan(clients, self.protocol))
            .transpose()
    }

    /// What reads the server's own figures, where they have TLS.
    pub(crate) fn metrics_tls(&self) -> Option<Arc<ClientConfig>> {
        let endpoint = self.reporting.server_metrics.as_ref()?;
        endpoint.server_name.as_ref()?;
        Some(self.tls.plan(0, self.protocol).ok()?.first)
    }

    /// All that requests go to beside the crowd.
    fn endpoints<'a>(&'a self, flows: Option<&'a FlowsPlan>) -> impl Iterator<Item = &'a Endpoint> {
        let publish = self.publish.iter().flat_map(|it| &it.endpoints);
        let requests = self.requests.iter().flat_map(|it| &it.endpoints);
        let flows = flows.into_iter().flat_map(|flows| &flows.flows);
        let calls = flows.filter_map(|flow| match &flow.route {
            Route::Http(call) => Some(&call.endpoint),
            _ => None,
        });
        publish
            .chain(requests)
            .chain(calls)
            .chain(&self.reporting.server_metrics)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(pem: &[u8]) -> CaProblem {
        Ca::parse("ca.pem", pem).unwrap_err().problem
    }

    #[test]
    fn a_file_that_is_no_ca_says_what_it_is() {
        assert_eq!(problem(b""), CaProblem::Empty);
        assert_eq!(problem(b"hello"), CaProblem::Empty);
        let cut = b"-----BEGIN CERTIFICATE-----\nAAAA\n";
        assert!(matches!(problem(cut), CaProblem::Pem(_)));
        let noise = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(matches!(problem(noise), CaProblem::Certificate(1, _)));
        let missing = Ca::read(Path::new("/nowhere/ca.pem")).unwrap_err();
        let said = missing.to_string();
        assert!(
            said.starts_with("/nowhere/ca.pem: it cannot be read"),
            "{said}"
        );
    }

    #[test]
    fn aes_with_128_bits_is_offered_first_and_nothing_is_left_out() {
        let offered: Vec<_> = provider().cipher_suites;
        assert_eq!(offered[0].suite(), TLS13_AES_128_GCM_SHA256);
        let all = default_provider().cipher_suites;
        assert_eq!(offered.len(), all.len());
        assert!(all.iter().all(|suite| offered.contains(suite)));
    }

    #[test]
    fn a_key_beside_the_certificate_is_passed_over() {
        let key = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
        let pem = format!("{}{}", key.signing_key.serialize_pem(), key.cert.pem());
        let ca = Ca::parse("ca.pem", pem.as_bytes()).unwrap();
        assert_eq!(format!("{ca:?}"), "ca.pem (1 certificates)");
        let alone = key.signing_key.serialize_pem();
        assert_eq!(problem(alone.as_bytes()), CaProblem::Empty);
    }
}
