//! Certificates of clients: the users they name.

use myriad_tls::Secrets;
use myriad_tls_stage::{Connection, Offer, Step};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, SupportedProtocolVersion, version,
};
use std::sync::Arc;

/// A certificate that signs itself, and its key.
struct Pair {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Pair {
    fn new(name: &str) -> Self {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed([name.to_owned()]).expect("a certificate");
        Self {
            certificate: cert.der().clone(),
            key: PrivateKeyDer::try_from(signing_key.serialize_der()).expect("a key"),
        }
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).expect("a root");
        Arc::new(roots)
    }

    fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![self.certificate.clone()]
    }
}

/// A server whose clients may show this certificate.
fn offer(server: &Pair, device: &Pair) -> Offer {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(device.roots(), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()
            .expect("roots");
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_client_cert_verifier(verifier)
        .with_single_cert(server.chain(), server.key.clone_key())
        .expect("a pair");
    config.key_log = Arc::new(Secrets);
    config.enable_secret_extraction = true;
    Offer {
        config: Arc::new(config),
        challenge: None,
        read_user: Some(|der| Some(format!("{} bytes", der.len()).into())),
        signs_slowly: false,
    }
}

/// The server's end of a whole handshake.
fn connect(
    offer: &Offer,
    server: &Pair,
    device: Option<&Pair>,
    version: &'static SupportedProtocolVersion,
) -> Connection {
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[version])
        .expect("a version")
        .with_root_certificates(server.roots());
    let config = match device {
        Some(device) => builder
            .with_client_auth_cert(device.chain(), device.key.clone_key())
            .expect("a pair"),
        None => builder.with_no_client_auth(),
    };
    let name = "push.example".try_into().expect("a name");
    let mut client = ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut connection = Connection::default();
    loop {
        let mut sent = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut sent).expect("memory");
        }
        assert!(!sent.is_empty(), "nobody has anything to say");
        connection.add_input(&sent);
        while connection.has_step() {
            let step = connection.step(offer).expect("no fault");
            assert!(!matches!(step, Step::Starved | Step::Answered));
        }
        if !connection.is_handshaking() {
            return connection;
        }
        let output = connection.output().to_vec();
        connection.note_sent(output.len());
        let mut rest = &output[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).expect("memory");
            client.process_new_packets().expect("no fault");
        }
    }
}

#[test]
fn a_connection_knows_the_user_of_its_certificate_for_as_long_as_it_lives() {
    let (server, device) = (Pair::new("push.example"), Pair::new("device.example"));
    let offer = offer(&server, &device);
    let user = format!("{} bytes", device.certificate.len());
    for version in [&version::TLS13, &version::TLS12] {
        let mut connection = connect(&offer, &server, Some(&device), version);
        assert_eq!(connection.user().map(|user| &**user), Some(&*user));
        // Its buffers are taken and put back meanwhile.
        let waiting = connection.output().len();
        connection.note_sent(waiting);
        assert!(connection.queue(b"hello"));
        let waiting = connection.output().len();
        connection.note_sent(waiting);
        assert_eq!(connection.user().map(|user| &**user), Some(&*user));
        let connection = connect(&offer, &server, None, version);
        assert_eq!(connection.user(), None);
    }
}
