//! An echo server under every fault: what it gets is what its peers sent, and nothing is left over.

use crate::sim::*;
use crate::{Close, Completion, Completions, Reactor, SendOp, Sent, Socket, Token};
use std::collections::BTreeMap;

/// One echoing connection.
#[derive(Debug)]
struct Echo {
    socket: Socket,
    token: Token,
    /// Received and not yet taken by the kernel.
    owed: Vec<u8>,
    is_waiting: bool,
    is_finished: bool,
}

/// An echo server as a shard would write it: sends at once, waits for room when it is behind, closes at the end.
#[derive(Default)]
struct EchoServer {
    open: BTreeMap<u32, Echo>,
    next: u32,
    late: usize,
}

impl EchoServer {
    fn turn(&mut self, sim: &mut Sim, completions: &mut Completions) {
        sim.wait(None, completions).unwrap();
        for completion in &completions.list {
            self.handle(sim, completion, &completions.buffer);
        }
        let mut ops: Vec<SendOp<'_>> = self
            .open
            .values()
            .filter(|echo| !echo.is_waiting && !echo.owed.is_empty())
            .map(|echo| SendOp::new(echo.socket, &echo.owed))
            .collect();
        sim.send_batch(&mut ops);
        let outcomes: BTreeMap<Socket, Sent> = ops.iter().map(|op| (op.socket, op.sent)).collect();
        let mut broken = Vec::new();
        for echo in self.open.values_mut() {
            match outcomes.get(&echo.socket) {
                Some(Sent::All) => echo.owed.clear(),
                Some(&Sent::Partly(count)) => {
                    echo.owed.drain(..count);
                    echo.is_waiting = true;
                    sim.notify_writable(echo.socket, echo.token);
                }
                Some(Sent::Failed(_)) => broken.push(echo.token.index),
                None => {}
            }
            if echo.is_finished && echo.owed.is_empty() {
                broken.push(echo.token.index);
            }
        }
        for index in broken {
            if let Some(echo) = self.open.remove(&index) {
                sim.close(echo.socket, echo.token, Close::Orderly);
            }
        }
    }

    fn handle(&mut self, sim: &mut Sim, completion: &Completion, buffer: &[u8]) {
        let token = match *completion {
            Completion::Accepted { socket, .. } => {
                let token = Token {
                    index: self.next,
                    generation: 1,
                };
                self.next += 1;
                sim.register(socket, token);
                let echo = Echo {
                    socket,
                    token,
                    owed: Vec::new(),
                    is_waiting: false,
                    is_finished: false,
                };
                self.open.insert(token.index, echo);
                return;
            }
            Completion::Received { token, .. }
            | Completion::Finished { token }
            | Completion::Failed { token, .. }
            | Completion::Writable { token } => token,
            Completion::AcceptPaused { .. } | Completion::Refused { .. } | Completion::Woken => {
                return;
            }
            _ => panic!("{completion:?}"),
        };
        let Some(echo) = self.open.get_mut(&token.index) else {
            self.late += 1;
            return;
        };
        match completion {
            Completion::Received { range, .. } => {
                assert!(!range.is_empty() && range.len() <= Completions::RECEIVE_BYTES_MAX);
                assert!(!echo.is_finished, "nothing after the end");
                echo.owed.extend(&buffer[range.clone()]);
            }
            Completion::Finished { .. } => echo.is_finished = true,
            Completion::Failed { .. } => {
                assert!(!echo.is_finished, "one end only");
                sim.close(echo.socket, echo.token, Close::Orderly);
                self.open.remove(&token.index);
            }
            _ => {
                assert!(echo.is_waiting, "only when asked");
                echo.is_waiting = false;
            }
        }
    }
}

/// A peer, what it sent, and what came back.
struct Client {
    peer: PeerId,
    sent: Vec<u8>,
    got: Vec<u8>,
    /// It was reset, closed or lost: bytes may be missing.
    is_broken: bool,
}

impl Client {
    fn act(&mut self, net: &SimNet, prng: &mut Prng) {
        self.got.extend(net.read(self.peer));
        match prng.below(100) {
            0..10 => {
                let bytes = vec![prng.bits().to_le_bytes()[0]; prng.between(1, 6000)];
                if net.write(self.peer, &bytes) {
                    self.sent.extend(bytes);
                }
            }
            10 => net.stall(self.peer),
            11..14 => net.resume(self.peer),
            14 => net.fin(self.peer),
            15 => {
                self.is_broken = true;
                [SimNet::reset, SimNet::close, SimNet::time_out][prng.below(3)](net, self.peer);
            }
            _ => {}
        }
    }

    fn check(&self, net: &SimNet, seed: u64) {
        let peer = self.peer;
        let is_prefix = self.sent.starts_with(&self.got);
        assert!(is_prefix, "seed {seed}: {peer:?} got what it did not send");
        if !self.is_broken {
            assert_eq!(
                self.got.len(),
                self.sent.len(),
                "seed {seed}: {peer:?} lost bytes"
            );
            assert_eq!(net.end(peer), Some(PeerEnd::Fin), "seed {seed}: {peer:?}");
        }
    }
}

/// Two shards and their crowd.
struct Run {
    net: SimNet,
    shards: [(Sim, EchoServer); 2],
    completions: Completions,
    clients: Vec<Client>,
}

impl Run {
    fn new(net: SimNet) -> Self {
        let shard = |net: &SimNet| {
            let mut sim = net.reactor(10);
            sim.accept(true);
            (sim, EchoServer::default())
        };
        Self {
            shards: [shard(&net), shard(&net)],
            net,
            completions: Completions::new(),
            clients: Vec::new(),
        }
    }

    fn connect(&mut self) {
        let peer = self.net.connect();
        self.clients.push(Client {
            peer,
            sent: Vec::new(),
            got: Vec::new(),
            is_broken: false,
        });
    }

    fn turn(&mut self, shard: usize) {
        let (sim, server) = &mut self.shards[shard];
        server.turn(sim, &mut self.completions);
    }

    /// Ends every client and lets the rest arrive.
    fn settle(&mut self, seed: u64) {
        self.net.set_faults(Faults::NONE);
        for client in &self.clients {
            self.net.resume(client.peer);
            self.net.fin(client.peer);
        }
        let mut turns = 0;
        while self.net.open_sockets() > 0 || self.net.backlog() > 0 {
            self.turn(turns % 2);
            for client in &mut self.clients {
                client.got.extend(self.net.read(client.peer));
            }
            turns += 1;
            assert!(turns < 10_000, "seed {seed}: does not settle");
        }
        for client in &mut self.clients {
            client.got.extend(self.net.read(client.peer));
        }
    }
}

/// Runs that seed's faults and schedule; returns the digest and the late completions seen.
fn run(seed: u64) -> (u64, usize) {
    let mut prng = Prng::new(seed);
    let mut run = Run::new(SimNet::new(prng.bits(), Faults::mixed(&mut prng)));
    for _ in 0..400 {
        if run.clients.len() < 40 && prng.one_in(4) {
            run.connect();
        }
        for client in &mut run.clients {
            client.act(&run.net, &mut prng);
        }
        run.turn(prng.below(2));
    }
    run.settle(seed);
    for client in &run.clients {
        client.check(&run.net, seed);
    }
    assert_eq!(run.net.leaked(), []);
    let late = run.shards.iter().map(|(_, server)| server.late).sum();
    (run.net.fingerprint(), late)
}

#[test]
fn an_honest_echo_server_passes_with_all_faults() {
    let late: usize = (0..200).map(|seed| run(seed).1).sum();
    assert!(late > 0, "late completions occur");
}

#[test]
fn a_seed_replays_exactly() {
    let first: Vec<_> = (0..20).map(run).collect();
    let second: Vec<_> = (0..20).map(run).collect();
    assert_eq!(first, second);
    assert_ne!(first[0], first[1]);
}
