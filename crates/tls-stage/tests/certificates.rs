//! Certificates of clients: the users they name, and what they are worth when a session resumes.

use myriad_tls::Secrets;
use myriad_tls_stage::{Connection, ConnectionFailed, Offer, Step};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{
    AlertDescription, ClientConfig, ClientConnection, Error, RootCertStore, ServerConfig,
    SupportedProtocolVersion, version,
};
use std::sync::Arc;

/// Who signs certificates.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    roots: Arc<RootCertStore>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let own = params.self_signed(&key).expect("a certificate");
        let mut roots = RootCertStore::empty();
        roots.add(own.der().clone()).expect("a root");
        Self {
            issuer: Issuer::new(params, key),
            roots: Arc::new(roots),
        }
    }

    fn issue(&self, host: &str) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new([host.to_owned()]).expect("a host");
        let own = params.signed_by(&key, &self.issuer).expect("a certificate");
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        (own.der().clone(), key)
    }

    fn verifier(&self, is_mandatory: bool) -> Arc<dyn ClientCertVerifier> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let roots = Arc::clone(&self.roots);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
        let verifier = if is_mandatory {
            verifier
        } else {
            verifier.allow_unauthenticated()
        };
        verifier.build().expect("roots")
    }
}

/// A server, and what its clients trust.
struct World {
    hosts: Authority,
    pair: (CertificateDer<'static>, PrivateKeyDer<'static>),
    ticketer: Arc<dyn rustls::server::ProducesTickets>,
}

impl World {
    fn new() -> Self {
        let hosts = Authority::new("hosts");
        let pair = hosts.issue("push.example");
        let ticketer = aws_lc_rs::Ticketer::new().expect("keys of tickets");
        Self {
            hosts,
            pair,
            ticketer,
        }
    }

    /// Its tickets are those of the offers before.
    fn offer(&self, verifier: Arc<dyn ClientCertVerifier>) -> Offer {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let (certificate, key) = &self.pair;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_client_cert_verifier(Arc::clone(&verifier))
            .with_single_cert(vec![certificate.clone()], key.clone_key())
            .expect("a pair");
        config.key_log = Arc::new(Secrets);
        config.enable_secret_extraction = true;
        config.ticketer = Arc::clone(&self.ticketer);
        config.send_tls13_tickets = 1;
        Offer {
            config: Arc::new(config),
            challenge: None,
            verifier: Some(verifier),
            user_of: Some(|der| Some(format!("{} bytes", der.len()).into())),
            signs_slowly: false,
        }
    }

    /// A client whose connections share their tickets.
    fn client(
        &self,
        version: &'static SupportedProtocolVersion,
        own: Option<&(CertificateDer<'static>, PrivateKeyDer<'static>)>,
    ) -> Arc<ClientConfig> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_root_certificates(Arc::clone(&self.hosts.roots));
        Arc::new(match own {
            Some((certificate, key)) => builder
                .with_client_auth_cert(vec![certificate.clone()], key.clone_key())
                .expect("a pair"),
            None => builder.with_no_client_auth(),
        })
    }
}

/// How a connection ended up: of the server, and what the client was told.
struct Met {
    result: Result<Step, ConnectionFailed>,
    connection: Connection,
    told: Result<(), Error>,
}

impl Met {
    fn is_resumed(&self) -> bool {
        matches!(self.result, Ok(Step::Established { is_resumed: true }))
    }

    fn is_full(&self) -> bool {
        matches!(self.result, Ok(Step::Established { is_resumed: false }))
    }
}

/// Both ends' handshake, whole.
fn meet(client: &Arc<ClientConfig>, offer: &Offer) -> Met {
    let name = "push.example".try_into().expect("a name");
    let mut client = ClientConnection::new(Arc::clone(client), name).expect("a client");
    let mut connection = Connection::default();
    let mut told = Ok(());
    let result = loop {
        let mut sent = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut sent).expect("memory");
        }
        connection.add_input(&sent);
        let result = loop {
            match connection.step(offer) {
                Ok(Step::Taken) => {}
                result => break result,
            }
        };
        let output = connection.output().to_vec();
        connection.note_sent(output.len());
        let mut rest = &output[..];
        while !rest.is_empty() && told.is_ok() {
            client.read_tls(&mut rest).expect("memory");
            told = client.process_new_packets().map(|_| ());
        }
        if !matches!(result, Ok(Step::Starved)) {
            break result;
        }
    };
    Met {
        result,
        connection,
        told,
    }
}

const VERSIONS: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];

#[test]
fn a_session_that_resumes_has_its_first_user() {
    let (world, devices) = (World::new(), Authority::new("devices"));
    let offer = world.offer(devices.verifier(false));
    for version in VERSIONS {
        let own = devices.issue("device.example");
        let user = format!("{} bytes", own.0.len());
        let client = world.client(version, Some(&own));
        let first = meet(&client, &offer);
        assert!(first.is_full());
        assert_eq!(first.connection.user().map(|user| &**user), Some(&*user));
        let second = meet(&client, &offer);
        assert!(second.is_resumed());
        assert_eq!(second.connection.user().map(|user| &**user), Some(&*user));
        assert!(second.told.is_ok());
        let nobody = meet(&world.client(version, None), &offer);
        assert!(nobody.is_full() && nobody.connection.user().is_none());
    }
}

/// What a refused client is told. TLS 1.2 has a `close_notify`, which is no error.
fn is_told(met: &Met, version: &SupportedProtocolVersion, alert: AlertDescription) -> bool {
    match &met.told {
        Ok(()) => version == &version::TLS12,
        Err(error) => *error == Error::AlertReceived(alert),
    }
}

#[test]
fn a_certificate_that_no_longer_counts_resumes_nothing() {
    let (world, devices, others) = (
        World::new(),
        Authority::new("devices"),
        Authority::new("others"),
    );
    let before = world.offer(devices.verifier(true));
    let after = world.offer(others.verifier(true));
    for version in VERSIONS {
        let own = devices.issue("device.example");
        let client = world.client(version, Some(&own));
        assert!(meet(&client, &before).is_full());
        assert!(meet(&client, &before).is_resumed());
        let refused = meet(&client, &after);
        let failed = refused.result.as_ref().expect_err("another authority");
        assert!(
            failed.to_string().contains("UnknownIssuer"),
            "{version:?}: {failed}"
        );
        assert!(is_told(&refused, version, AlertDescription::UnknownCA));
        assert!(refused.connection.is_over());
    }
}

#[test]
fn a_session_without_a_certificate_does_not_resume_where_one_is_required() {
    let (world, devices) = (World::new(), Authority::new("devices"));
    let optional = world.offer(devices.verifier(false));
    let required = world.offer(devices.verifier(true));
    for version in VERSIONS {
        let client = world.client(version, None);
        assert!(meet(&client, &optional).is_full());
        assert!(meet(&client, &optional).is_resumed());
        let refused = meet(&client, &required);
        let failed = refused.result.as_ref().expect_err("no certificate");
        assert!(
            failed.to_string().contains("no certificates"),
            "{version:?}: {failed}"
        );
        assert!(is_told(
            &refused,
            version,
            AlertDescription::CertificateRequired
        ));
    }
}
