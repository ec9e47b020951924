//! A stage over simulated sockets, with clients of rustls: sends are taken in part, and input comes in pieces of any size.

mod buffered;
mod signing;
mod wiping;

use crate::{CHALLENGE, Carried, Failure, Figures, Offer, Setup, TlsStage, Workers};
use arc_swap::ArcSwap;
use myriad_reactor::sim::{Chance, Faults, PeerEnd, PeerId, Prng, Sim, SimNet};
use myriad_reactor::{
    Close, Completion, Completions, Parts, Reactor, SendOp, Sent, Socket, Token, Waker,
};
use myriad_tls::Secrets;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivateKeyDer;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, SupportedProtocolVersion, version,
};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{IoSlice, Read, Write};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// One certificate for all tests, and both ends' configurations.
static CONFIGS: LazyLock<(Arc<ServerConfig>, RootCertStore)> = LazyLock::new(|| configs(b"echo"));

/// The same for an authority that asks whether a name is ours.
static CHALLENGES: LazyLock<(Arc<ServerConfig>, RootCertStore)> =
    LazyLock::new(|| configs(CHALLENGE));

fn configs(protocol: &[u8]) -> (Arc<ServerConfig>, RootCertStore) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["push.example".to_owned()]).expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).expect("a root");
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).expect("a key");
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .expect("a pair");
    config.key_log = Arc::new(Secrets);
    config.enable_secret_extraction = true;
    config.ticketer = aws_lc_rs::Ticketer::new().expect("keys of tickets");
    config.send_tls13_tickets = 1;
    config.alpn_protocols = vec![protocol.to_vec()];
    (Arc::new(config), roots)
}

fn client(versions: &[&'static SupportedProtocolVersion]) -> ClientConnection {
    client_of(versions, &CONFIGS.1, &[])
}

/// A client that trusts these roots, and offers these protocols.
fn client_of(
    versions: &[&'static SupportedProtocolVersion],
    roots: &RootCertStore,
    protocols: &[&[u8]],
) -> ClientConnection {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .expect("versions")
        .with_root_certificates(roots.clone())
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    let name = "push.example".try_into().expect("a name");
    ClientConnection::new(Arc::new(config), name).expect("a client")
}

thread_local! {
    /// The clock of a test's stages: its own, because tests run beside each other.
    static CLOCK_MS: Cell<u64> = const { Cell::new(0) };
}

fn clock() -> Duration {
    Duration::from_millis(CLOCK_MS.get())
}

fn stage(net: &SimNet, handshakes_max: usize) -> (TlsStage<Sim>, Arc<Figures>) {
    stage_with(net, handshakes_max, None)
}

fn stage_with(
    net: &SimNet,
    handshakes_max: usize,
    workers: Option<Workers>,
) -> (TlsStage<Sim>, Arc<Figures>) {
    let figures = Arc::new(Figures::default());
    let setup = Setup {
        listener: 0,
        offer: Arc::new(ArcSwap::from_pointee(Offer {
            config: Arc::clone(&CONFIGS.0),
            challenge: Some(Arc::clone(&CHALLENGES.0)),
            read_user: None,
            signs_slowly: workers.is_some(),
        })),
        workers: workers.map(|workers| (workers, Waker::silent())),
        figures: Arc::clone(&figures),
        handshakes_max,
        clock,
    };
    let mut stage = TlsStage::new(net.reactor(10_000), setup);
    stage.accept(true);
    (stage, figures)
}

/// One connection of a server that answers with what it gets.
#[derive(Debug)]
struct Echo {
    socket: Socket,
    token: Token,
    owed: Vec<u8>,
    got: Vec<u8>,
    is_waiting: bool,
    is_finished: bool,
    is_refused: bool,
    has_failed: bool,
    said_fin: bool,
    /// What the stage says that it keeps.
    buffered: usize,
}

/// A server as a shard is one: it sends what it can, waits for room, and ends its side before it closes.
#[derive(Default)]
struct Server {
    open: BTreeMap<u32, Echo>,
    /// The labels of those that were refused, in their order.
    refusals: Vec<Option<&'static str>>,
    next: u32,
    accepted: usize,
    completions: Completions,
}

impl Server {
    fn turn(&mut self, stage: &mut TlsStage<Sim>) {
        let mut completions = std::mem::take(&mut self.completions);
        stage
            .wait(Some(Duration::ZERO), &mut completions)
            .expect("a wait");
        for completion in &completions.list {
            self.handle(stage, completion, &completions.buffer);
        }
        self.completions = completions;
        let known: usize = self.open.values().map(|echo| echo.buffered).sum();
        assert_eq!(known, stage.buffered_bytes());
        self.send(stage);
        self.end(stage);
    }

    fn enter(&mut self, stage: &mut TlsStage<Sim>, socket: Socket, owed: Vec<u8>) {
        let token = Token {
            index: self.next,
            generation: 1,
        };
        self.next += 1;
        stage.register(socket, token);
        self.open.insert(
            token.index,
            Echo {
                socket,
                token,
                owed,
                got: Vec::new(),
                is_waiting: false,
                is_finished: false,
                is_refused: false,
                has_failed: false,
                said_fin: false,
                buffered: 0,
            },
        );
    }

    fn handle(&mut self, stage: &mut TlsStage<Sim>, completion: &Completion, buffer: &[u8]) {
        let token = match *completion {
            Completion::Accepted { socket, .. } => {
                self.accepted += 1;
                return self.enter(stage, socket, Vec::new());
            }
            Completion::Received { token, .. }
            | Completion::Finished { token }
            | Completion::Failed { token, .. }
            | Completion::Refused { token, .. }
            | Completion::Buffered { token, .. }
            | Completion::Writable { token } => token,
            _ => return,
        };
        let Some(echo) = self.open.get_mut(&token.index) else {
            return;
        };
        match completion {
            Completion::Received { range, .. } => {
                assert!(!range.is_empty() && range.len() <= Completions::RECEIVE_BYTES_MAX);
                assert!(
                    !echo.is_finished && !echo.has_failed,
                    "nothing after the end"
                );
                echo.got.extend(&buffer[range.clone()]);
                echo.owed.extend(&buffer[range.clone()]);
            }
            Completion::Finished { .. } => {
                assert!(!echo.is_finished && !echo.has_failed, "one end");
                echo.is_finished = true;
            }
            Completion::Failed { .. } => {
                assert!(!echo.is_finished && !echo.has_failed, "one end");
                echo.has_failed = true;
            }
            Completion::Buffered { bytes, .. } => {
                assert!(*bytes > 0 || echo.buffered > 0, "nothing is news once");
                echo.buffered = *bytes;
            }
            Completion::Refused { why, .. } => {
                self.refusals.push(why.as_ref().map(|why| why.label));
                assert!(!echo.is_refused, "refused once");
                echo.is_refused = true;
                echo.owed.clear();
            }
            _ => {
                assert!(echo.is_waiting, "only when asked");
                echo.is_waiting = false;
            }
        }
    }

    fn send(&mut self, stage: &mut TlsStage<Sim>) {
        let ready = self.open.values_mut();
        let mut ready: Vec<&mut Echo> = ready
            .filter(|echo| !echo.is_waiting && !echo.owed.is_empty())
            .collect();
        let ops = ready
            .iter()
            .map(|echo| SendOp::new(echo.socket, &echo.owed));
        let mut ops: Vec<SendOp<'_>> = ops.collect();
        stage.send_batch(&mut ops);
        let sent: Vec<Sent> = ops.iter().map(|op| op.sent).collect();
        for (echo, sent) in ready.iter_mut().zip(sent) {
            match sent {
                Sent::All => echo.owed.clear(),
                Sent::Partly(count) => {
                    echo.owed.drain(..count);
                    echo.is_waiting = true;
                    stage.notify_writable(echo.socket, echo.token);
                }
                Sent::Failed(_) => echo.owed.clear(),
            }
        }
    }

    fn end(&mut self, stage: &mut TlsStage<Sim>) {
        let mut over = Vec::new();
        for echo in self.open.values_mut() {
            if echo.has_failed {
                over.push((echo.token, echo.socket, Close::Reset));
                continue;
            }
            if (echo.is_finished || echo.is_refused) && echo.owed.is_empty() && !echo.said_fin {
                echo.said_fin = true;
                stage.shutdown(echo.socket);
            }
            if echo.said_fin && echo.is_finished {
                over.push((echo.token, echo.socket, Close::Orderly));
            }
        }
        for (token, socket, how) in over {
            self.open.remove(&token.index);
            stage.close(socket, token, how);
        }
    }
}

/// A client, what it sent and what came back.
struct Client {
    peer: PeerId,
    tls: ClientConnection,
    sent: Vec<u8>,
    got: Vec<u8>,
    error: Option<rustls::Error>,
    has_read_close_notify: bool,
}

impl Client {
    fn new(net: &SimNet, tls: ClientConnection) -> Self {
        Self {
            peer: net.connect(),
            tls,
            sent: Vec::new(),
            got: Vec::new(),
            error: None,
            has_read_close_notify: false,
        }
    }

    /// Writes what there is to write, and reads what has come.
    fn turn(&mut self, net: &SimNet) {
        let mut out = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut out).expect("memory");
        }
        if !out.is_empty() {
            net.write(self.peer, &out);
        }
        let bytes = net.read(self.peer);
        let mut bytes = &bytes[..];
        while !bytes.is_empty() && self.error.is_none() {
            self.tls.read_tls(&mut bytes).expect("memory");
            match self.tls.process_new_packets() {
                Ok(state) => self.has_read_close_notify |= state.peer_has_closed(),
                Err(error) => self.error = Some(error),
            }
            let mut plain = Vec::new();
            // The end of what is there is "would block".
            let _ = self.tls.reader().read_to_end(&mut plain);
            self.got.extend(plain);
        }
    }

    fn say(&mut self, bytes: &[u8]) {
        self.tls.set_buffer_limit(None);
        self.tls.writer().write_all(bytes).expect("memory");
        self.sent.extend(bytes);
    }
}

/// A different mix for each seed. What only those meet who connect, or transfer, is left out.
fn rough(seed: u64) -> Faults {
    let mut prng = Prng::new(seed);
    Faults {
        transfer_failure: Chance::NEVER,
        ..Faults::mixed(&mut prng)
    }
}

/// Turns until `is_done`, at most so often.
fn run(
    net: &SimNet,
    stage: &mut TlsStage<Sim>,
    server: &mut Server,
    clients: &mut [Client],
    is_done: impl Fn(&[Client], &Server) -> bool,
) {
    for _ in 0..20_000 {
        for client in clients.iter_mut() {
            client.turn(net);
        }
        server.turn(stage);
        if is_done(clients, server) {
            return;
        }
    }
    let state: Vec<_> = clients
        .iter()
        .map(|client| (client.sent.len(), client.got.len(), client.error.clone()))
        .collect();
    panic!(
        "not done: {state:?} {server:?}",
        server = server
            .open
            .values()
            .map(|echo| (echo.got.len(), echo.owed.len(), echo.is_waiting))
            .collect::<Vec<_>>()
    );
}

#[test]
fn what_clients_say_comes_back_whole_under_every_fault() {
    for seed in 0..40 {
        let net = SimNet::new(seed, rough(seed));
        let (mut stage, figures) = stage(&net, 3);
        let mut server = Server::default();
        let mut prng = Prng::new(seed);
        let versions: [&[&SupportedProtocolVersion]; 2] = [&[&version::TLS13], &[&version::TLS12]];
        let mut clients: Vec<Client> = (0..8)
            .map(|nth| Client::new(&net, client(versions[usize::from(nth % 4 == 3)])))
            .collect();
        for round in 0..6 {
            for client in &mut clients {
                let length = match prng.below(4) {
                    0 => 1,
                    1 => prng.between(1, 100),
                    2 => prng.between(100, 9_000),
                    _ => prng.between(9_000, 50_000),
                };
                client.say(&vec![prng.bits().to_le_bytes()[0]; length]);
                if round > 0 && prng.below(3) == 0 && !client.tls.is_handshaking() {
                    // TLS 1.2 has no such message.
                    let _ = client.tls.refresh_traffic_keys();
                }
            }
            run(&net, &mut stage, &mut server, &mut clients, |clients, _| {
                clients
                    .iter()
                    .all(|client| client.got.len() == client.sent.len())
            });
        }
        for client in &mut clients {
            assert_eq!(client.got, client.sent, "seed {seed}");
            assert_eq!(client.error, None, "seed {seed}");
        }
        assert_eq!(figures.open.load(Relaxed), 6, "seed {seed}");
        assert_eq!(figures.open_legacy.load(Relaxed), 2, "seed {seed}");
        // Clients send a `close_notify` with their last words, and are answered before the end.
        for client in &mut clients {
            client.say(b"last words");
            client.tls.send_close_notify();
        }
        run(
            &net,
            &mut stage,
            &mut server,
            &mut clients,
            |clients, server| {
                clients.iter().all(|client| client.has_read_close_notify) && server.open.is_empty()
            },
        );
        for client in &clients {
            assert_eq!(client.got, client.sent, "seed {seed}");
        }
        assert_eq!(figures.open.load(Relaxed), 0);
        assert_eq!(figures.open_legacy.load(Relaxed), 0);
        assert_eq!(net.leaked(), []);
    }
}

/// A server and a client that has the server's part of the handshake, and has answered it. `said` comes with that answer.
fn answered(said: &[u8]) -> (SimNet, TlsStage<Sim>, Server, Client) {
    let net = SimNet::new(1, Faults::NONE);
    let (mut stage, _) = stage(&net, 1);
    let mut server = Server::default();
    let mut client = Client::new(&net, client(&[&version::TLS13]));
    client.say(said);
    while client.tls.is_handshaking() {
        client.turn(&net);
        server.turn(&mut stage);
    }
    client.turn(&net);
    (net, stage, server, client)
}

#[test]
fn tickets_leave_with_the_answer_to_what_came_with_the_handshakes_end() {
    let (net, mut stage, mut server, client) = answered(b"hello");
    let mut completions = Completions::new();
    stage
        .wait(Some(Duration::ZERO), &mut completions)
        .expect("a wait");
    for completion in &completions.list {
        server.handle(&mut stage, completion, &completions.buffer);
    }
    assert!(
        net.read(client.peer).is_empty(),
        "tickets wait for the answer"
    );
    server.send(&mut stage);
    let flight = net.read(client.peer);
    let first = 5 + usize::from(u16::from_be_bytes([flight[3], flight[4]]));
    let second = 5 + usize::from(u16::from_be_bytes([flight[first + 3], flight[first + 4]]));
    // Its type, padded by nothing, and the tag (RFC 8446, section 5.2).
    assert_eq!(second, 5 + b"hello".len() + 1 + 16);
    assert_eq!(flight.len(), first + second, "a ticket, then the answer");
}

#[test]
fn tickets_leave_alone_where_nothing_is_answered() {
    let (net, mut stage, mut server, mut client) = answered(b"");
    server.turn(&mut stage);
    assert!(net.read(client.peer).is_empty());
    server.turn(&mut stage);
    let received = client.tls.tls13_tickets_received();
    client.turn(&net);
    assert_eq!(client.tls.tls13_tickets_received(), received + 1);
}

#[test]
fn tickets_and_a_close_notify_leave_when_a_connection_is_closed_at_once() {
    let (net, mut stage, mut server, mut client) = answered(b"");
    server.turn(&mut stage);
    let (_, echo) = server.open.pop_first().expect("a connection");
    stage.shutdown(echo.socket);
    stage.close(echo.socket, echo.token, Close::Orderly);
    client.turn(&net);
    assert_eq!(client.tls.tls13_tickets_received(), 1);
    assert!(client.has_read_close_notify);
}

#[test]
fn connections_wait_in_line_until_a_place_is_free() {
    let net = SimNet::new(1, Faults::NONE);
    let (mut stage, figures) = stage(&net, 2);
    let mut server = Server::default();
    let silent: Vec<PeerId> = (0..2).map(|_| net.connect()).collect();
    for _ in 0..20 {
        server.turn(&mut stage);
    }
    let mut clients = vec![Client::new(&net, client(&[&version::TLS13]))];
    clients[0].say(b"hello");
    for _ in 0..50 {
        clients[0].turn(&net);
        server.turn(&mut stage);
    }
    assert_eq!(server.accepted, 2, "both places are taken");
    assert_eq!(figures.waiting.load(Relaxed), 1);
    CLOCK_MS.set(CLOCK_MS.get() + 3_000);
    run(&net, &mut stage, &mut server, &mut clients, |clients, _| {
        clients[0].got == b"hello"
    });
    assert!(figures.failed[Failure::Slow as usize].load(Relaxed) >= 1);
    drop(silent);
}

/// A stage whose only connection's owner has closed it while the client read nothing.
fn closed_while_full() -> (SimNet, TlsStage<Sim>, Client) {
    let faults = Faults {
        kernel_bytes: (64, 64),
        ..Faults::NONE
    };
    let net = SimNet::new(1, faults);
    let (mut stage, _) = stage(&net, 2);
    let mut server = Server::default();
    let mut clients = vec![Client::new(&net, client(&[&version::TLS13]))];
    clients[0].say(b"hello");
    run(&net, &mut stage, &mut server, &mut clients, |clients, _| {
        clients[0].got == b"hello"
    });
    let (_, mut echo) = server.open.pop_first().expect("a connection");
    echo.owed = vec![7; 1_000];
    let mut ops = [SendOp::new(echo.socket, &echo.owed)];
    stage.send_batch(&mut ops);
    assert_eq!(ops[0].sent, Sent::Partly(999));
    assert!(!stage.has_others());
    stage.close(echo.socket, echo.token, Close::Orderly);
    (net, stage, clients.remove(0))
}

#[test]
fn a_closed_connection_is_the_stages_until_its_last_bytes_have_left() {
    let (net, mut stage, mut client) = closed_while_full();
    let mut completions = Completions::new();
    let mut turns = 0;
    while stage.has_others() {
        assert_eq!(net.end(client.peer), None);
        client.turn(&net);
        let wait = stage.wait(Some(Duration::ZERO), &mut completions);
        wait.expect("a wait");
        assert!(completions.list.is_empty(), "it is nobody's");
        turns += 1;
    }
    assert!(turns > 10, "the socket takes 64 bytes");
    client.turn(&net);
    assert_eq!(client.got.len(), b"hello".len() + 1_000);
    assert!(client.has_read_close_notify);
    assert_eq!((net.open_sockets(), net.leaked()), (0, vec![]));
}

#[test]
fn an_owner_that_ends_resets_what_the_stage_has_left() {
    let (net, mut stage, client) = closed_while_full();
    assert!(stage.has_others());
    stage.reset_others();
    assert!(!stage.has_others());
    assert_eq!(net.end(client.peer), Some(PeerEnd::Reset));
    assert_eq!(net.open_sockets(), 0);
}

#[test]
fn a_stage_that_accepts_nobody_has_no_line() {
    let net = SimNet::new(1, Faults::NONE);
    let (mut stage, figures) = stage(&net, 1);
    let mut server = Server::default();
    let peers: Vec<PeerId> = (0..3).map(|_| net.connect()).collect();
    for _ in 0..20 {
        server.turn(&mut stage);
    }
    assert_eq!(figures.waiting.load(Relaxed), 2);
    assert!(stage.has_others());
    stage.accept(false);
    assert!(!stage.has_others());
    assert_eq!(figures.waiting.load(Relaxed), 0);
    assert_eq!(net.open_sockets(), 1);
    let ends: Vec<_> = peers.iter().map(|peer| net.end(*peer)).collect();
    let reset = Some(PeerEnd::Reset);
    assert_eq!(ends.iter().filter(|end| **end == reset).count(), 2);
}

/// A shard drops messages of which it has all bytes, to end a connection or to send newer ones.
#[test]
fn what_is_dropped_unsent_takes_no_byte_of_what_follows() {
    let record = 1 << 14;
    // Of the second message a record takes none, one or two bytes; or it is one byte long, alone or behind another.
    for (first, second) in [
        (record, 100),
        (record - 1, 100),
        (record - 2, 100),
        (9, 1),
        (1, 0),
    ] {
        let faults = Faults {
            kernel_bytes: (8, 8),
            ..Faults::NONE
        };
        let net = SimNet::new(1, faults);
        let (mut stage, _) = stage(&net, 2);
        let mut server = Server::default();
        let mut clients = vec![Client::new(&net, client(&[&version::TLS13]))];
        clients[0].say(b"hello");
        run(&net, &mut stage, &mut server, &mut clients, |clients, _| {
            clients[0].got == b"hello"
        });
        let messages = [vec![b'1'; first], vec![b'2'; second]];
        let slices = messages.each_ref().map(|message| IoSlice::new(message));
        let echo = server.open.get_mut(&0).expect("a connection");
        let mut ops = [SendOp {
            socket: echo.socket,
            parts: Parts::Many(&slices),
            sent: Sent::All,
        }];
        stage.send_batch(&mut ops);
        let count = match ops[0].sent {
            Sent::Partly(count) => count,
            Sent::All => first + second,
            Sent::Failed(errno) => panic!("failed with {errno}"),
        };
        let mut rest = Vec::new();
        let mut expected = b"hello".to_vec();
        let mut start = 0;
        for message in &messages {
            let sent = count.saturating_sub(start).min(message.len());
            // One that has begun goes on.
            if sent > 0 {
                rest.extend_from_slice(&message[sent..]);
                expected.extend_from_slice(message);
            }
            start += message.len();
        }
        rest.extend_from_slice(b"newer");
        expected.extend_from_slice(b"newer");
        echo.owed = rest;
        run(&net, &mut stage, &mut server, &mut clients, |clients, _| {
            clients[0].got.len() >= expected.len()
        });
        assert!(clients[0].got == expected, "{first} and {second} bytes");
    }
}

/// What a client without TLS reads, and whether it was refused.
fn answer_to(bytes: &[u8]) -> (Vec<u8>, Arc<Figures>) {
    let net = SimNet::new(1, Faults::NONE);
    let (mut stage, figures) = stage(&net, 2);
    let mut server = Server::default();
    let peer = net.connect();
    net.write(peer, bytes);
    let mut got = Vec::new();
    for _ in 0..50 {
        server.turn(&mut stage);
        got.extend(net.read(peer));
    }
    assert!(server.open.values().all(|echo| echo.is_refused), "refused");
    let counted = Failure::ALL.map(|failure| figures.failed[failure as usize].load(Relaxed));
    let failure = Failure::ALL[counted
        .iter()
        .position(|&count| count == 1)
        .expect("a failure")];
    assert_eq!(server.refusals, [Some(failure.label())]);
    (got, figures)
}

#[test]
fn who_speaks_something_else_is_told_in_the_language_that_it_speaks() {
    let (got, figures) = answer_to(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n");
    let got = String::from_utf8(got).expect("text");
    assert!(got.starts_with("HTTP/1.1 400 "), "{got}");
    assert!(got.contains("https://"), "{got}");
    assert_eq!(figures.failed[Failure::NotTls as usize].load(Relaxed), 1);
    // SSLv2's hello, and a byte that begins nothing: a fatal alert.
    for bytes in [&[0x80, 0x2e, 1, 0, 2][..], &[0, 0, 0, 0, 0]] {
        let (got, figures) = answer_to(bytes);
        assert_eq!(got.get(..5), Some(&[21, 3, 3, 0, 2][..]), "{got:?}");
        assert_eq!(figures.failed[Failure::NotTls as usize].load(Relaxed), 1);
    }
    // A record that is too long, and a hello that is none.
    let (got, _) = answer_to(&[22, 3, 1, 0xff, 0xff]);
    assert_eq!(got, [21, 3, 3, 0, 2, 2, 22]);
    let (got, figures) = answer_to(&[22, 3, 1, 0, 4, 1, 0, 0, 0]);
    assert_eq!(got.first(), Some(&21), "{got:?}");
    assert_eq!(figures.failed[Failure::Protocol as usize].load(Relaxed), 1);
}

#[test]
fn a_header_of_the_proxy_protocol_comes_before_the_handshake_as_it_is() {
    let line = b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n";
    for seed in 0..20 {
        let net = SimNet::new(seed, rough(seed));
        let (mut stage, _) = stage(&net, 2);
        let mut server = Server::default();
        let mut clients = vec![Client::new(&net, client(&[&version::TLS13]))];
        net.write(clients[0].peer, line);
        clients[0].say(b"hello");
        run(&net, &mut stage, &mut server, &mut clients, |clients, _| {
            clients[0].got.ends_with(b"hello")
        });
        let got = &server.open.values().next().expect("a connection").got;
        assert_eq!(*got, [&line[..], b"hello"].concat(), "seed {seed}");
    }
}

#[test]
fn a_record_that_does_not_open_is_answered_with_an_alert_and_the_end() {
    let net = SimNet::new(1, Faults::NONE);
    let (mut stage, figures) = stage(&net, 2);
    let mut server = Server::default();
    let mut clients = vec![Client::new(&net, client(&[&version::TLS13]))];
    clients[0].say(b"hello");
    run(&net, &mut stage, &mut server, &mut clients, |clients, _| {
        clients[0].got == b"hello"
    });
    net.write(
        clients[0].peer,
        &[
            23, 3, 3, 0, 20, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20,
        ],
    );
    run(&net, &mut stage, &mut server, &mut clients, |clients, _| {
        clients[0].error.is_some()
    });
    let error = clients[0].error.clone().expect("just seen");
    let expected = rustls::Error::AlertReceived(rustls::AlertDescription::BadRecordMac);
    assert_eq!(error, expected);
    assert_eq!(figures.broken.load(Relaxed), 1);
    assert_eq!(server.refusals, [Some("broken")]);
}

/// The simulated reactor refuses a send behind the end of our side.
#[test]
fn nothing_follows_our_close_notify() {
    for is_broken in [false, true] {
        let net = SimNet::new(1, Faults::NONE);
        let (mut stage, _) = stage(&net, 2);
        let mut server = Server::default();
        let mut clients = vec![Client::new(&net, client(&[&version::TLS13]))];
        clients[0].say(b"hello");
        run(&net, &mut stage, &mut server, &mut clients, |clients, _| {
            clients[0].got == b"hello"
        });
        let echo = server.open.get_mut(&0).expect("a connection");
        echo.said_fin = true;
        stage.shutdown(echo.socket);
        run(&net, &mut stage, &mut server, &mut clients, |clients, _| {
            clients[0].has_read_close_notify
        });
        // A KeyUpdate that asks for one, or a record that no key opens.
        if is_broken {
            net.write(
                clients[0].peer,
                &[[23, 3, 3, 0, 20], [1; 5], [2; 5], [3; 5], [4; 5]].concat(),
            );
        } else {
            let asked = clients[0].tls.refresh_traffic_keys();
            asked.expect("a client that is connected");
        }
        for _ in 0..20 {
            clients[0].turn(&net);
            server.turn(&mut stage);
        }
        assert_eq!(server.open[&0].is_refused, is_broken);
        assert_eq!(clients[0].error, None);
        assert_eq!(net.end(clients[0].peer), Some(PeerEnd::Fin));
    }
}

/// The handshake may be at any record, and its next one come at any time: nothing answers it.
#[test]
fn a_handshake_ends_with_our_side() {
    for turns in 0..2 {
        let net = SimNet::new(1, Faults::NONE);
        let (mut stage, figures) = stage(&net, 2);
        let mut server = Server::default();
        let mut clients = [Client::new(&net, client(&[&version::TLS13]))];
        while server.accepted == 0 {
            server.turn(&mut stage);
        }
        for _ in 0..turns {
            clients[0].turn(&net);
            server.turn(&mut stage);
        }
        let echo = server.open.get_mut(&0).expect("a connection");
        echo.said_fin = true;
        stage.shutdown(echo.socket);
        for _ in 0..20 {
            server.turn(&mut stage);
            clients[0].turn(&net);
        }
        assert!(!clients[0].has_read_close_notify);
        assert_eq!(net.end(clients[0].peer), Some(PeerEnd::Fin));
        assert_eq!(figures.failed[Failure::Slow as usize].load(Relaxed), 1);
        assert_eq!(figures.under_way.load(Relaxed), 0);
    }
}

#[test]
fn a_connection_changes_its_owner_between_any_two_bytes() {
    for seed in 0..30 {
        let net = SimNet::new(seed, rough(seed));
        let (mut first, _) = stage(&net, 2);
        let mut server = Server::default();
        let mut clients = vec![Client::new(&net, client(&[&version::TLS13]))];
        clients[0].say(b"hello");
        let greeted = |clients: &[Client], server: &Server| {
            clients[0].got == b"hello" && server.open.values().all(|echo| echo.owed.is_empty())
        };
        run(&net, &mut first, &mut server, &mut clients, greeted);
        let more = vec![7; 3_000];
        clients[0].say(&more);
        clients[0].turn(&net);
        // The first owner reads some of it, and answers nothing.
        let mut completions = Completions::new();
        let mut read = Vec::new();
        for _ in 0..seed % 7 {
            first
                .wait(Some(Duration::ZERO), &mut completions)
                .expect("a wait");
            for completion in &completions.list {
                if let Completion::Received { range, .. } = completion {
                    read.extend_from_slice(&completions.buffer[range.clone()]);
                }
            }
        }
        let (_, echo) = server.open.pop_first().expect("a connection");
        let carried = first.transfer(echo.socket, echo.token).expect("no fault");
        assert!(carried.tls.is_some());
        let (mut second, figures) = stage(&net, 2);
        second.accept(false);
        let socket = second.adopt(carried).expect("room");
        let mut other = Server::default();
        other.enter(&mut second, socket, read);
        run(&net, &mut second, &mut other, &mut clients, |clients, _| {
            clients[0].got.len() == clients[0].sent.len()
        });
        assert_eq!(clients[0].got, clients[0].sent, "seed {seed}");
        assert_eq!(figures.open.load(Relaxed), 1);
    }
}

/// The client sends a `close_notify` without FIN, and its first owner reads that.
#[test]
fn a_new_owner_hears_of_a_close_notify_that_came_before() {
    for version in [&version::TLS13, &version::TLS12] {
        let net = SimNet::new(1, Faults::NONE);
        let (mut first, _) = stage(&net, 2);
        let mut server = Server::default();
        let mut clients = vec![Client::new(&net, client(&[version]))];
        clients[0].say(b"hello");
        run(&net, &mut first, &mut server, &mut clients, |clients, _| {
            clients[0].got == b"hello"
        });
        clients[0].tls.send_close_notify();
        clients[0].turn(&net);
        first
            .wait(Some(Duration::ZERO), &mut Completions::new())
            .expect("a wait");
        let (_, echo) = server.open.pop_first().expect("a connection");
        let carried = first.transfer(echo.socket, echo.token).expect("no fault");
        let (mut second, _) = stage(&net, 2);
        second.accept(false);
        let socket = second.adopt(carried).expect("room");
        let mut other = Server::default();
        other.enter(&mut second, socket, Vec::new());
        run(&net, &mut second, &mut other, &mut clients, |clients, _| {
            clients[0].has_read_close_notify
        });
    }
}

#[test]
fn connections_without_tls_pass_as_they_are() {
    let net = SimNet::new(1, Faults::NONE);
    let mut plain = TlsStage::plain(net.reactor(100));
    plain.accept(true);
    let mut server = Server::default();
    let peer = net.connect();
    net.write(peer, b"hello");
    let mut got = Vec::new();
    for _ in 0..20 {
        server.turn(&mut plain);
        got.extend(net.read(peer));
    }
    assert_eq!(got, b"hello");
    let (_, echo) = server.open.pop_first().expect("a connection");
    let Carried { handle, tls } = plain.transfer(echo.socket, echo.token).expect("no fault");
    assert!(tls.is_none());
    // Now, because a second listener could have got the client.
    let (mut other, _) = stage(&net, 2);
    let socket = other.adopt(Carried::plain(handle)).expect("room");
    let mut later = Server::default();
    later.enter(&mut other, socket, b" again".to_vec());
    later.turn(&mut other);
    assert_eq!(net.read(peer), b" again");
}

#[test]
fn slow_signatures_are_made_on_other_threads_and_nothing_is_lost() {
    let workers = Workers::start(2).expect("threads");
    for seed in 0..20 {
        let net = SimNet::new(seed, rough(seed));
        let (mut stage, figures) = stage_with(&net, 4, Some(workers.clone()));
        let mut server = Server::default();
        let mut clients: Vec<Client> = (0..6)
            .map(|_| Client::new(&net, client(&[&version::TLS13])))
            .collect();
        // What follows the handshake at once, and one who goes while a thread works for him.
        for client in &mut clients {
            client.say(&[1; 30_000]);
        }
        let gone = net.connect();
        net.write(gone, &[22, 3, 1, 0, 1, 1]);
        net.reset(gone);
        let is_whole = |client: &Client| client.got.len() == client.sent.len();
        let begun = Instant::now();
        while !clients.iter().all(is_whole) {
            let is_late = begun.elapsed() > Duration::from_secs(120);
            assert!(!is_late, "seed {seed}: something is lost");
            for client in &mut clients {
                client.turn(&net);
            }
            server.turn(&mut stage);
            std::thread::yield_now();
        }
        assert!(clients.iter().all(|client| client.got == client.sent));
        assert_eq!(figures.full.load(Relaxed), 6, "seed {seed}");
    }
}

/// An authority gets the certificate of its challenge, our `close_notify`, and nothing else, whatever it says (RFC 8737).
#[test]
fn an_authority_is_answered_and_its_connection_ends() {
    let versions: [&[&SupportedProtocolVersion]; 2] = [&[&version::TLS13], &[&version::TLS12]];
    for (seed, signs_slowly) in [(1, false), (2, true), (3, false), (4, false)] {
        for versions in versions {
            let net = SimNet::new(seed, rough(seed));
            let workers = signs_slowly.then(|| Workers::start(1).expect("threads"));
            let (mut stage, figures) = stage_with(&net, 3, workers);
            let mut server = Server::default();
            let asking = client_of(versions, &CHALLENGES.1, &[CHALLENGE]);
            let mut clients = vec![
                Client::new(&net, asking),
                // It offers another protocol too, so it is no authority.
                Client::new(&net, client_of(versions, &CONFIGS.1, &[CHALLENGE, b"echo"])),
            ];
            for client in &mut clients {
                client.say(b"hello");
            }
            run(&net, &mut stage, &mut server, &mut clients, |clients, _| {
                clients[0].has_read_close_notify && clients[1].got == b"hello"
            });
            assert_eq!(clients[0].got, b"");
            assert_eq!(clients[0].error, None);
            assert_eq!(clients[0].tls.alpn_protocol(), Some(CHALLENGE));
            let heard: Vec<_> = server.open.values().map(|echo| echo.got.clone()).collect();
            assert!(heard.contains(&b"hello".to_vec()), "{heard:?}");
            assert!(heard.iter().all(|got| got.is_empty() || got == b"hello"));
            assert_eq!(
                server
                    .open
                    .values()
                    .filter(|echo| echo.got == b"hello")
                    .count(),
                1
            );
            assert_eq!(server.refusals, [None], "it has its answer");
            assert_eq!(figures.challenges.load(Relaxed), 1);
            assert_eq!(figures.full.load(Relaxed), 1);
            let failed: u64 = figures.failed.iter().map(|count| count.load(Relaxed)).sum();
            assert_eq!(failed, 0);
        }
    }
}
