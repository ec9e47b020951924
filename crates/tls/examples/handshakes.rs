//! How many handshakes a second this machine makes, both ends in memory, with rustls alone. No sockets, no servers, no records behind the
//! handshake but the server's one ticket. `make bench` holds the rate of `wss://` clients against it.
//!
//! Both ends do as the server and the crowd do: TLS 1.3, X25519, AES-128-GCM, a certificate of ECDSA P-256, no resumption. Here the client
//! verifies the certificate each time, and the crowd each distinct one once.
//!
//! ```sh
//! cargo run --release -p myriad-tls --example handshakes -- --seconds 5        # prints one JSON object
//! ```

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection,
    version,
};
use std::error::Error;
use std::sync::Arc;
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

/// The configurations of both ends.
#[derive(Clone)]
struct Ends {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Ends {
    fn new() -> Result<Self, Box<dyn Error>> {
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
        let mut client = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&version::TLS13])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        client.resumption = Resumption::disabled();
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

fn seconds() -> Result<u64, Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match &words[..] {
        [] => Ok(5),
        [flag, seconds] if flag == "--seconds" => Ok(seconds.parse()?),
        _ => Err("handshakes [--seconds COUNT]".into()),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let time = Duration::from_secs(seconds()?);
    let ends = Ends::new()?;
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
