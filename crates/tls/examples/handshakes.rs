//! How many handshakes a second this machine makes, both ends in memory, with rustls alone. No sockets, no servers, no records behind the
//! handshake but the server's one ticket. `make bench` holds the rate of `wss://` clients against it.
//!
//! Both ends do as the server and the crowd do: TLS 1.3, X25519, AES-128-GCM, a certificate of ECDSA P-256, no resumption. The client
//! checks the server's chain each time, as rustls does by itself. With `--chain once` it does so once, as the crowd does: that is 1.4 times as
//! fast on an AMD EPYC.
//!
//! ```sh
//! cargo run --release -p myriad-tls --example handshakes -- --seconds 5        # prints one JSON object
//! cargo run --release -p myriad-tls --example handshakes -- --seconds 5 --chain once
//! ```

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, Connection, DigitallySignedStruct, RootCertStore, ServerConfig,
    ServerConnection, SignatureScheme, version,
};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

const NAME: &str = "push.example";

/// Handshakes before the first look at the clock: code and caches are warm then.
const WARM_UP: u32 = 200;

fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        cipher_suites: vec![aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256],
        kx_groups: vec![aws_lc_rs::kx_group::X25519],
        ..aws_lc_rs::default_provider()
    })
}

/// Carries everything that one end has to say to the other.
fn carry(
    from: &mut Connection,
    to: &mut Connection,
    wire: &mut Vec<u8>,
) -> Result<(), Box<dyn Error>> {
    wire.clear();
    while from.wants_write() {
        from.write_tls(wire)?;
    }
    let mut rest = &wire[..];
    while !rest.is_empty() {
        to.read_tls(&mut rest)?;
        to.process_new_packets()?;
    }
    Ok(())
}

/// Checks the only chain that there is once. The crowd has more chains, names and an end of each (`swarm/config/tls/verifiers`).
#[derive(Debug)]
struct CheckedOnce {
    verifier: Arc<WebPkiServerVerifier>,
    is_accepted: AtomicBool,
}

impl ServerCertVerifier for CheckedOnce {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.is_accepted.load(Relaxed) {
            return Ok(ServerCertVerified::assertion());
        }
        let verified =
            self.verifier
                .verify_server_cert(end_entity, intermediates, name, ocsp, now)?;
        self.is_accepted.store(true, Relaxed);
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// The configurations of both ends.
#[derive(Clone)]
struct Ends {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Ends {
    fn new(chain: Chain) -> Result<Self, Box<dyn Error>> {
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed([NAME.to_owned()])?;
        let key = PrivateKeyDer::try_from(signing_key.serialize_der())?;
        let mut server = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)?;
        server.ticketer = aws_lc_rs::Ticketer::new()?;
        server.send_tls13_tickets = 1;
        let mut roots = RootCertStore::empty();
        roots.add(cert.der().clone())?;
        let roots = Arc::new(roots);
        let mut client = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&version::TLS13])?
            .with_root_certificates(Arc::clone(&roots))
            .with_no_client_auth();
        client.resumption = Resumption::disabled();
        if chain == Chain::Once {
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider());
            client
                .dangerous()
                .set_certificate_verifier(Arc::new(CheckedOnce {
                    verifier: verifier.build()?,
                    is_accepted: AtomicBool::new(false),
                }));
        }
        Ok(Self {
            server: Arc::new(server),
            client: Arc::new(client),
            name: NAME.try_into()?,
        })
    }

    /// One handshake of both ends, with the server's ticket.
    fn handshake(&self, wire: &mut Vec<u8>) -> Result<(), Box<dyn Error>> {
        let client = ClientConnection::new(Arc::clone(&self.client), self.name.clone())?;
        let mut client = Connection::Client(client);
        let mut server = Connection::Server(ServerConnection::new(Arc::clone(&self.server))?);
        while client.wants_write() || server.wants_write() {
            carry(&mut client, &mut server, wire)?;
            carry(&mut server, &mut client, wire)?;
        }
        if client.is_handshaking() || server.is_handshaking() {
            return Err("a handshake has not ended".into());
        }
        Ok(())
    }

    /// The rate of one thread.
    fn rate_per_s(&self, time: Duration) -> Result<f64, Box<dyn Error>> {
        let mut wire = Vec::new();
        for _ in 0..WARM_UP {
            self.handshake(&mut wire)?;
        }
        let begun = Instant::now();
        let mut count = 0.0;
        while begun.elapsed() < time {
            self.handshake(&mut wire)?;
            count += 1.0;
        }
        Ok(count / begun.elapsed().as_secs_f64())
    }
}

/// How often the client checks the server's chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chain {
    Once,
    Each,
}

fn arguments() -> Result<(u64, Chain), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (mut seconds, mut chain) = (5, Chain::Each);
    for pair in words.chunks(2) {
        match pair {
            [flag, count] if flag == "--seconds" => seconds = count.parse()?,
            [flag, word] if flag == "--chain" && word == "each" => chain = Chain::Each,
            [flag, word] if flag == "--chain" && word == "once" => chain = Chain::Once,
            _ => return Err("handshakes [--seconds COUNT] [--chain once|each]".into()),
        }
    }
    Ok((seconds, chain))
}

fn main() -> Result<(), Box<dyn Error>> {
    let (seconds, chain) = arguments()?;
    let time = Duration::from_secs(seconds);
    let ends = Ends::new(chain)?;
    let threads = thread::available_parallelism()?.get();
    let running: Vec<_> = (0..threads)
        .map(|_| {
            let ends = ends.clone();
            thread::spawn(move || ends.rate_per_s(time).map_err(|error| error.to_string()))
        })
        .collect();
    let mut rate_per_s = 0.0;
    for thread in running {
        rate_per_s += thread.join().map_err(|_| "a thread panicked")??;
    }
    println!("{{\"rate_per_s\": {rate_per_s:.1}, \"threads\": {threads}}}");
    Ok(())
}
