//! Applications with certificates of a CA of our own.

use super::app::{Act, App};
use super::faults::{call, proxy};
use super::*;
use crate::proxy::caller::{CallFault, Called};
use crate::proxy::{Tls, TlsFault};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use std::sync::LazyLock;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

struct Authority(CertifiedIssuer<'static, KeyPair>);

static OURS: LazyLock<Authority> = LazyLock::new(|| Authority::new("ours"));
static OTHER: LazyLock<Authority> = LazyLock::new(|| Authority::new("other"));

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for a name, and its key.
    fn issue(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.0).unwrap(), key)
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        roots
    }
}

/// A server with a certificate of ours for `name`. It wants a certificate of its clients from `clients`.
fn server(name: &str, clients: Option<&Authority>) -> ServerConfig {
    let (certificate, key) = OURS.issue(name);
    let builder = ServerConfig::builder();
    let builder = match clients {
        Some(authority) => {
            let verifier = WebPkiClientVerifier::builder(Arc::new(authority.roots()));
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
        None => builder.with_no_client_auth(),
    };
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let made = builder.with_single_cert(vec![certificate.der().clone()], key);
    made.unwrap()
}

/// What a call with this TLS brings from this server.
fn called(server: ServerConfig, tls: Tls) -> Result<Called, CallFault> {
    run(async {
        let app = App::with_tls(server, Act::Answer("{}".into())).await;
        let mut settings = settings(app.address);
        settings.endpoint = format!("https://{}/", app.address).parse().unwrap();
        settings.tls = Some(tls);
        let called = call(&proxy(settings)).await;
        assert_eq!(app.seen().len(), usize::from(called.is_ok()));
        called
    })
}

fn trusting(authority: &Authority) -> Tls {
    Tls::new(Some(&authority.pem()), None).unwrap()
}

fn cause(called: Result<Called, CallFault>) -> String {
    match called {
        Err(fault @ CallFault::Unreachable(_)) => fault.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_application_with_a_certificate_of_our_own_ca_is_called() {
    let called = called(server("127.0.0.1", None), trusting(&OURS));
    assert_eq!(called, Ok(Called::Body(b"{}".to_vec())));
}

#[test]
fn a_certificate_for_another_host_is_refused() {
    let cause = cause(called(server("other.example", None), trusting(&OURS)));
    assert!(cause.starts_with("cannot connect: "), "{cause}");
    assert!(
        cause.contains("not valid for name") && cause.contains("127.0.0.1"),
        "{cause}"
    );
}

#[test]
fn a_certificate_of_an_unknown_ca_is_refused_and_the_log_says_what_to_do() {
    let cause = cause(called(server("127.0.0.1", None), trusting(&OTHER)));
    assert!(cause.contains("UnknownIssuer"), "{cause}");
    assert!(cause.contains("http.tls.server_ca_pem_file"), "{cause}");
}

#[test]
fn an_application_may_want_our_certificate() {
    let (certificate, key) = OTHER.issue("myriad");
    let identity = (&*certificate.pem(), &*key.serialize_pem());
    let known = Tls::new(Some(&OURS.pem()), Some(identity)).unwrap();
    let server = || server("127.0.0.1", Some(&OTHER));
    assert!(called(server(), known).is_ok());
    assert!(called(server(), trusting(&OURS)).is_err());
}

#[test]
fn what_is_no_certificate_is_refused_when_it_is_read() {
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(matches!(Tls::new(Some(broken), None), Err(TlsFault::Ca(_))));
    let (certificate, _) = OURS.issue("a");
    let (_, other_key) = OURS.issue("b");
    let pem = certificate.pem();
    for key in [&*pem, &other_key.serialize_pem()] {
        let made = Tls::new(None, Some((&pem, key)));
        assert!(matches!(made, Err(TlsFault::Identity(_))), "{made:?}");
    }
    let shown = format!("{:?}", trusting(&OURS));
    assert!(!shown.contains("BEGIN"), "{shown}");
}
