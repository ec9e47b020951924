//! The adapter over the simulated network, against a rustls server that the test drives by hand.

mod authority;
mod ends;
mod streams;

use super::{ABRUPT_END, TlsFailure, TlsPlan, TlsReactor};
use crate::config::{Ca, Config, Tls};
use crate::engine::plan::Plan;
use crate::engine::shared::Shared;
use crate::failure::Failure;
use crate::target::Target;
use authority::Authority;
use myriad_reactor::sim::{Faults, PeerEnd, PeerId, Sim, SimNet};
use myriad_reactor::{
    Close, Completion, Completions, Driver, Reactor as _, SendOp, Sent, Socket, Token,
};
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion};

const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

/// Waits after which an exchange that makes no progress has failed.
const PATIENCE: usize = 200_000;

/// A crowd of one terminal that trusts this authority, connecting to `host`.
fn plan_of(host: &str, tls: Tls) -> Arc<Plan> {
    let target = Target::parse(&format!("wss://{host}:1/")).unwrap();
    let mut config = Config::new(vec![target], 1);
    config.driver = Some(Driver::Epoll);
    config.threads = Some(1);
    config.tls = tls;
    Arc::new(config.prepare().unwrap().plan)
}

fn trusting(authority: &Authority) -> Tls {
    Tls {
        ca: Some(Ca::parse("ca.pem", authority.pem().as_bytes()).unwrap()),
        ..Tls::default()
    }
}

/// A terminal's end of a connection, and the server's.
struct Pair {
    net: SimNet,
    reactor: TlsReactor<Sim>,
    shared: Arc<Shared>,
    completions: Completions,
    token: Token,
    socket: Option<Socket>,
    is_connected: bool,
    /// Plaintext that the terminal received.
    received: Vec<u8>,
    /// Its ends.
    ends: Vec<Completion>,
    /// Plaintext that the socket did not take.
    unsent: Vec<u8>,
    server: Server,
}

/// The server's end.
struct Server {
    config: Arc<ServerConfig>,
    peer: Option<PeerId>,
    tls: Option<ServerConnection>,
    received: Vec<u8>,
    /// It answers what it gets with the same.
    is_echoing: bool,
    /// Its bytes leave one after the other, a turn between them.
    is_slow: bool,
    waiting: Vec<u8>,
}

impl Pair {
    fn new(seed: u64, faults: Faults, plan: Arc<Plan>, server: Arc<ServerConfig>) -> Self {
        let net = SimNet::new(seed, faults);
        let shared = Arc::new(Shared::of_plan(&plan));
        let part = plan.part(0);
        let sockets = Box::new(net.reactor(8));
        let mut pair = Self {
            reactor: TlsReactor::new(sockets, plan, part, Arc::clone(&shared)),
            net,
            shared,
            completions: Completions::new(),
            token: Token {
                index: 0,
                generation: 0,
            },
            socket: None,
            is_connected: false,
            received: Vec::new(),
            ends: Vec::new(),
            unsent: Vec::new(),
            server: Server {
                config: server,
                peer: None,
                tls: None,
                received: Vec::new(),
                is_echoing: false,
                is_slow: false,
                waiting: Vec::new(),
            },
        };
        pair.connect();
        pair
    }

    /// With the authority's own server for this address.
    fn trusted(seed: u64, faults: Faults, version: &'static SupportedProtocolVersion) -> Self {
        let authority = Authority::ours();
        let server = authority.server("127.0.0.1", &[version]);
        Self::new(
            seed,
            faults,
            plan_of("127.0.0.1", trusting(authority)),
            server,
        )
    }

    fn connect(&mut self) {
        self.token.generation += 1;
        self.is_connected = false;
        let target = "127.0.0.1:1".parse().unwrap();
        self.socket = Some(self.reactor.connect(self.token, None, target).unwrap());
        self.server.tls = Some(ServerConnection::new(Arc::clone(&self.server.config)).unwrap());
    }

    fn socket(&self) -> Socket {
        self.socket.expect("it is connected")
    }

    fn peer(&self) -> PeerId {
        self.server.peer.expect("it is connected")
    }

    fn tls(&mut self) -> &mut ServerConnection {
        self.server.tls.as_mut().expect("it has begun")
    }

    /// One wait of the terminal, and one look of the server.
    fn turn(&mut self) {
        self.reactor
            .wait(Some(Duration::ZERO), &mut self.completions)
            .unwrap();
        let list: Vec<Completion> = self.completions.list.drain(..).collect();
        for completion in list {
            match completion {
                Completion::Connected { token } => {
                    assert_eq!(token, self.token);
                    self.is_connected = true;
                    self.reactor.register(self.socket(), token);
                }
                Completion::Received { token, range } => {
                    assert!(token == self.token && self.is_connected && self.ends.is_empty());
                    assert!(range.len() <= Completions::RECEIVE_BYTES_MAX && !range.is_empty());
                    self.received
                        .extend_from_slice(&self.completions.buffer[range]);
                }
                Completion::Writable { .. } => self.resume(),
                Completion::ConnectFailed { .. } => {
                    self.socket = None;
                    self.ends.push(completion);
                }
                Completion::Finished { .. } | Completion::Failed { .. } => {
                    self.ends.push(completion);
                }
                _ => {}
            }
        }
        if let Some(dialed) = self.net.dialed().pop() {
            self.server.peer = Some(dialed.peer);
        }
        self.server.turn(&self.net);
    }

    fn turn_until(&mut self, mut is_done: impl FnMut(&Self) -> bool) {
        for _ in 0..PATIENCE {
            if is_done(self) {
                return;
            }
            self.turn();
        }
        panic!(
            "no progress: {:?}, {} bytes",
            self.ends,
            self.received.len()
        );
    }

    /// Until the terminal is connected. The end of its handshake is held back then.
    fn connect_terminal(&mut self) {
        self.turn_until(|pair| pair.is_connected || !pair.ends.is_empty());
        assert_eq!(self.ends, []);
    }

    /// The same, and further until both ends have the handshake behind them. Tickets have come then.
    fn establish(&mut self) {
        self.connect_terminal();
        self.turn_until(|pair| {
            let tls = pair.server.tls.as_ref();
            tls.is_none_or(|tls| !tls.is_handshaking())
        });
        self.turn();
    }

    /// Sends as terminals do: what is not taken waits for the socket.
    fn send(&mut self, bytes: &[u8]) {
        let was_waiting = !self.unsent.is_empty();
        self.unsent.extend_from_slice(bytes);
        if !was_waiting {
            self.resume();
        }
    }

    fn resume(&mut self) {
        if self.unsent.is_empty() {
            return;
        }
        let mut ops = [SendOp::new(self.socket(), &self.unsent)];
        self.reactor.send_batch(&mut ops);
        match ops[0].sent {
            Sent::All => self.unsent.clear(),
            Sent::Partly(count) => {
                self.unsent.drain(..count);
                self.reactor.notify_writable(self.socket(), self.token);
            }
            Sent::Failed(errno) => panic!("errno {errno}"),
        }
    }

    /// What the account says of a failure.
    fn example(&self, failure: TlsFailure) -> String {
        let account = self.shared.account(0);
        let said = account.answers.get(&Failure::Tls(failure));
        String::from_utf8(said.cloned().unwrap_or_default()).unwrap()
    }

    /// Turns until the connection has failed, and says how.
    fn failure(&mut self) -> TlsFailure {
        self.turn_until(|pair| !pair.ends.is_empty());
        let errno = match self.ends[..] {
            [Completion::ConnectFailed { errno, .. } | Completion::Failed { errno, .. }] => errno,
            _ => panic!("{:?}", self.ends),
        };
        TlsFailure::of_errno(errno).expect("an errno of TLS")
    }
}

impl Server {
    fn turn(&mut self, net: &SimNet) {
        let (Some(peer), Some(tls)) = (self.peer, &mut self.tls) else {
            return;
        };
        let bytes = net.read(peer);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            tls.read_tls(&mut rest).unwrap();
            // After an error it says so in an alert.
            let Ok(state) = tls.process_new_packets() else {
                break;
            };
            let mut plain = vec![0; state.plaintext_bytes_to_read()];
            std::io::Read::read_exact(&mut tls.reader(), &mut plain).unwrap();
            if self.is_echoing {
                std::io::Write::write_all(&mut tls.writer(), &plain).unwrap();
            }
            self.received.append(&mut plain);
        }
        while tls.wants_write() {
            tls.write_tls(&mut self.waiting).unwrap();
        }
        let count = match self.is_slow {
            true => self.waiting.len().min(1),
            false => self.waiting.len(),
        };
        if count > 0 {
            let leaving: Vec<u8> = self.waiting.drain(..count).collect();
            net.write(peer, &leaving);
        }
    }
}
