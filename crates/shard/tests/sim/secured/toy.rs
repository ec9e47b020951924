//! Cryptography for handshakes that protects nothing, costs little, and is the same for equal seeds.
//!
//! rustls makes the handshake with it at both ends, message by message, as it does in what ships. Only the key exchange, the signature, the
//! certificate and the random numbers are toys. A handshake of real ones takes some ten times as long. The key schedule, the transcript's
//! hash and the ciphers are real, because the record stage goes on with them.

use myriad_reactor::sim::Prng;
use myriad_tls::Secrets;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::cipher_suite;
use rustls::crypto::{
    ActiveKeyExchange, CryptoProvider, GetRandomFailed, KeyProvider, SecureRandom, SharedSecret,
    SupportedKxGroup, WebPkiSupportedAlgorithms,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ProducesTickets;
use rustls::sign::{CertifiedKey, Signer, SigningKey, SingleCertAndKey};
use rustls::time_provider::TimeProvider;
use rustls::version::TLS13;
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, KeyLog, NamedGroup, ServerConfig,
    SignatureAlgorithm, SignatureScheme, SupportedCipherSuite,
};
use std::cell::RefCell;
use std::sync::{Arc, LazyLock};

/// What signs every handshake.
const SIGNATURE: &[u8] = b"signed";

thread_local! {
    /// Where both ends' random numbers come from.
    static RANDOM: RefCell<Prng> = RefCell::new(Prng::new(0));
    /// The traffic secrets that a client of this thread was told last: the client's and the server's.
    static TOLD: RefCell<[Vec<u8>; 2]> = RefCell::default();
}

/// The server's configuration.
pub(crate) static SERVER: LazyLock<Arc<ServerConfig>> = LazyLock::new(|| {
    let provider = provider(vec![
        cipher_suite::TLS13_AES_128_GCM_SHA256,
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ]);
    let certified = CertifiedKey::new(vec![CertificateDer::from(vec![0; 300])], Arc::new(Toy));
    let mut config = ServerConfig::builder_with_details(provider, Arc::new(Toy))
        .with_protocol_versions(&[&TLS13])
        .expect("suites of TLS 1.3")
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    config.key_log = Arc::new(Secrets);
    config.enable_secret_extraction = true;
    config.ticketer = Arc::new(Toy);
    config.send_tls13_tickets = 1;
    Arc::new(config)
});

/// Clients' configurations, one for each cipher suite.
pub(crate) static CLIENTS: LazyLock<[Arc<ClientConfig>; 3]> = LazyLock::new(|| {
    [
        cipher_suite::TLS13_AES_128_GCM_SHA256,
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ]
    .map(|suite| {
        let mut config = ClientConfig::builder_with_details(provider(vec![suite]), Arc::new(Toy))
            .with_protocol_versions(&[&TLS13])
            .expect("suites of TLS 1.3")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Toy))
            .with_no_client_auth();
        config.key_log = Arc::new(Told);
        config.resumption = Resumption::disabled();
        Arc::new(config)
    })
});

/// The random numbers of this thread's handshakes from now on.
pub(crate) fn seed(prng: Prng) {
    RANDOM.set(prng);
}

/// The traffic secrets that the last client whose handshake has ended on this thread was told: the client's and the server's.
pub(crate) fn take_secrets() -> [Vec<u8>; 2] {
    TOLD.take()
}

fn provider(cipher_suites: Vec<SupportedCipherSuite>) -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        cipher_suites,
        kx_groups: vec![&Toy],
        signature_verification_algorithms: WebPkiSupportedAlgorithms {
            all: &[],
            mapping: &[],
        },
        secure_random: &Toy,
        key_provider: &Toy,
    })
}

/// All of it that needs no state.
#[derive(Debug)]
struct Toy;

impl SecureRandom for Toy {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
        RANDOM.with_borrow_mut(|prng| {
            for part in bytes.chunks_mut(8) {
                part.copy_from_slice(&prng.bits().to_le_bytes()[..part.len()]);
            }
        });
        Ok(())
    }
}

impl SupportedKxGroup for Toy {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let mut public = [0; 32];
        self.fill(&mut public)?;
        Ok(Box::new(Share(public)))
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

/// One end's part of a key exchange. The secret is the sum of both.
struct Share([u8; 32]);

impl ActiveKeyExchange for Share {
    fn complete(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, Error> {
        let both = self.0.iter().zip(peer);
        let sum: Vec<u8> = both.map(|(one, other)| one ^ other).collect();
        Ok(sum.into())
    }

    fn pub_key(&self) -> &[u8] {
        &self.0
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

impl KeyProvider for Toy {
    fn load_private_key(&self, _: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, Error> {
        Ok(Arc::new(Self))
    }
}

impl SigningKey for Toy {
    fn choose_scheme(&self, _: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        Some(Box::new(Self))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ED25519
    }
}

impl Signer for Toy {
    fn sign(&self, _: &[u8]) -> Result<Vec<u8>, Error> {
        Ok(SIGNATURE.to_vec())
    }

    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::ED25519
    }
}

impl ServerCertVerifier for Toy {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("nobody speaks TLS 1.2 here".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        assert_eq!(signed.signature(), SIGNATURE);
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}

impl TimeProvider for Toy {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(std::time::Duration::ZERO))
    }
}

/// Nobody resumes, but all get a ticket to read.
impl ProducesTickets for Toy {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        100
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        Some(plain.to_vec())
    }

    fn decrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

/// Keeps the secrets of clients, which rustls tells nobody else.
#[derive(Debug)]
struct Told;

impl KeyLog for Told {
    fn log(&self, label: &str, _: &[u8], secret: &[u8]) {
        let place = match label {
            "CLIENT_TRAFFIC_SECRET_0" => 0,
            "SERVER_TRAFFIC_SECRET_0" => 1,
            _ => return,
        };
        TOLD.with_borrow_mut(|told| told[place] = secret.to_vec());
    }
}
