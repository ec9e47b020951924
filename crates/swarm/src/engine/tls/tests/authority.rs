//! CAs of the tests, and servers with certificates of theirs.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use std::sync::{Arc, LazyLock};
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ServerConfig, SupportedProtocolVersion};

static OURS: LazyLock<Authority> = LazyLock::new(|| Authority::new("ours"));
static OTHER: LazyLock<Authority> = LazyLock::new(|| Authority::new("other"));

pub(super) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    pub(super) fn ours() -> &'static Self {
        &OURS
    }

    pub(super) fn other() -> &'static Self {
        &OTHER
    }

    pub(super) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A server with a certificate for a name.
    pub(super) fn server(
        &self,
        name: &str,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Arc<ServerConfig> {
        self.server_until(name, versions, (2100, |_| {}))
    }

    /// The same with a certificate that is valid until the year, and with changes of its settings.
    pub(super) fn server_until(
        &self,
        name: &str,
        versions: &[&'static SupportedProtocolVersion],
        (year, change): (i32, fn(&mut ServerConfig)),
    ) -> Arc<ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_no_client_auth();
        let made = builder.with_single_cert(vec![certificate.der().clone()], key);
        let mut config = made.unwrap();
        change(&mut config);
        Arc::new(config)
    }
}
