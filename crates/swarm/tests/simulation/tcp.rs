//! Terminals of plain TCP on a simulated network: a server that sends every message to all, in frames of any form and in
//! pieces of any size.
//!
//! Whatever the network does, each terminal that is there hears each message once and in order. A server that is unkind ends
//! connections too, also in the middle of a message; then figures have bounds.

use super::run::{self, Run};
use crate::clock::Clock as _;
use crate::engine::flows::figures::FlowFigures;
use crate::engine::framing::{FrameMark, Framing, Front, LengthCounts, LengthField, LengthForm};
use crate::engine::plan::Plan;
use crate::engine::shared::{Ending, Shared, Stage, Totals};
use crate::failure::Failure;
use crate::scenario::Scenario;
use myriad_reactor::Driver;
use myriad_reactor::sim::{Faults, PeerId, Prng, SimNet};
use std::path::Path;
use std::time::Duration;

const SEEDS: u64 = 200;
/// What `cargo test` is told to replay a seed.
const REPLAY: &str =
    "-p myriad-swarm --lib simulation::tcp::whoever_is_there_hears_every_message_once";
const STEPS: u32 = 250;

/// What terminals say. Their framing is the seed's.
const SAID: &str = r#"
[terminals]
count = 1
protocol = "tcp"
targets = ["tcp://127.0.0.1:8000"]
[arrival]
retries = 100
connect-timeout = "1000s"
handshake-timeout = "1000s"
[hold]
duration = "1000s"
warmup = "0s"
settle = "1000s"
[opening]
send = ["hello ${terminal}"]
answers = ["^welcome"]
[heartbeat]
every = "1s"
send = "beat"
answer = "^alive"
[[replies]]
to = "^ping"
send = "pong"
[[flows]]
name = "chat"
rate = 30
send = "say ${stamp}"
expect = "all"
"#;

/// The server's end of one connection.
struct Peer {
    id: PeerId,
    input: Vec<u8>,
    is_welcome: bool,
    is_over: bool,
    pings: u64,
}

struct World {
    run: Run,
    prng: Prng,
    framing: Framing,
    peers: Vec<Peer>,
    is_unkind: bool,
    /// What came: of the flow, and replies to pings of connections that have not ended.
    said: u64,
    pongs: u64,
}

#[test]
fn whoever_is_there_hears_every_message_once() {
    let Some(all) = run::for_seeds(SEEDS, REPLAY, simulate) else {
        return;
    };
    let sum = |figure: fn(&(Totals, u64)) -> u64| all.iter().map(figure).sum::<u64>();
    let (received, comebacks) = (sum(|it| it.1), sum(|it| it.0.comeback.back));
    let beats = sum(|it| it.0.heartbeats_answered);
    // Without them nothing was shown.
    assert!(
        received > 20_000 && comebacks > 200 && beats > 1000,
        "{received} {comebacks} {beats}"
    );
}

/// The totals, and what was received of the flow.
fn simulate(seed: u64) -> (Totals, u64) {
    let mut world = World::new(seed);
    (0..STEPS).for_each(|_| world.step());
    world.settle();
    world.check();
    world.close();
    (world.run.totals(), world.figures().received)
}

fn framing(prng: &mut Prng) -> Framing {
    let delimiters: [&[u8]; 3] = [b"\n", b"\r\n", b"<end>"];
    let forms = [
        LengthForm::BigEndian(4),
        LengthForm::LittleEndian(2),
        LengthForm::BigEndian(1),
        LengthForm::LittleEndian(8),
        LengthForm::Varint,
    ];
    let counts = [LengthCounts::Rest, LengthCounts::Itself, LengthCounts::All];
    let mark = match prng.below(3) {
        0 => FrameMark::Delimiter(delimiters[prng.below(3)].to_vec()),
        1 => FrameMark::Size(32),
        _ => FrameMark::Length(LengthField {
            at: prng.below(4),
            form: forms[prng.below(5)],
            counts: counts[prng.below(3)],
        }),
    };
    Framing {
        mark,
        message_bytes_max: 100,
    }
}

fn plan(seed: u64, framing: Framing, is_unkind: bool, prng: &mut Prng) -> Plan {
    let scenario = Scenario::parse(Path::new("tcp.toml"), SAID, &[]).unwrap();
    let mut config = scenario.config;
    config.connections = prng.between(1, 30) as u64;
    config.driver = Some(Driver::Epoll);
    config.threads = Some(u32::try_from(prng.between(1, 3)).unwrap());
    config.connecting_max = u32::try_from(prng.between(1, 40)).unwrap();
    config.arrival = super::arrival(prng);
    config.framing = Some(framing);
    config.comeback.when_lost = is_unkind;
    config.comeback.backoff = (Duration::from_millis(50), Duration::from_secs(2));
    let mut plan = config.prepare().unwrap().plan;
    plan.seed = seed;
    plan
}

impl World {
    fn new(seed: u64) -> Self {
        let mut prng = Prng::new(seed);
        let faults = Faults::mixed(&mut prng);
        let (framing, is_unkind) = (framing(&mut prng), prng.one_in(2));
        let plan = plan(seed, framing.clone(), is_unkind, &mut prng);
        let shared = Shared::of_plan(&plan);
        let net = SimNet::new(seed, faults);
        Self {
            run: Run::new(plan, shared, net),
            prng,
            framing,
            peers: Vec::new(),
            is_unkind,
            said: 0,
            pongs: 0,
        }
    }

    fn step(&mut self) {
        self.serve_all();
        if !self.peers.is_empty() {
            let index = self.prng.below(self.peers.len());
            match self.prng.below(12) {
                0 => self.ping(index),
                1 if self.is_unkind => self.disturb(index),
                _ => {}
            }
        }
        self.run.turn();
        if self.run.shared.connected_at().is_none() && self.run.holds() {
            self.run.note_connected();
        }
        self.run.pass(self.prng.below(40) as u64);
    }

    fn serve_all(&mut self) {
        for dialed in self.run.net.dialed() {
            self.peers.push(Peer {
                id: dialed.peer,
                input: Vec::new(),
                is_welcome: false,
                is_over: false,
                pings: 0,
            });
        }
        (0..self.peers.len()).for_each(|index| self.serve(index));
    }

    fn serve(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        if peer.is_over {
            return;
        }
        peer.input.append(&mut self.run.net.read(peer.id));
        let framing = self.framing.clone();
        loop {
            let input = &self.peers[index].input;
            let (message, frame_bytes) = match framing.front(input, 0) {
                Front::Message {
                    message,
                    frame_bytes,
                } => (message.into_owned(), frame_bytes),
                Front::Incomplete { .. } => break,
                wrong => panic!("{wrong:?}"),
            };
            self.peers[index].input.drain(..frame_bytes);
            self.answer(index, message.trim_ascii_end());
        }
        let peer = &mut self.peers[index];
        if self.run.net.end(peer.id).is_some() {
            peer.is_over = true;
            self.run.net.close(peer.id);
        }
    }

    fn answer(&mut self, index: usize, message: &[u8]) {
        let message = message.strip_suffix(b"\0").unwrap_or(message);
        let trimmed = message.iter().rposition(|byte| *byte != 0);
        let message = &message[..trimmed.map_or(0, |last| last + 1)];
        match message {
            b"beat" => self.write(index, b"alive"),
            b"pong" => self.pongs += 1,
            _ if message.starts_with(b"hello ") => {
                assert!(!self.peers[index].is_welcome);
                self.peers[index].is_welcome = true;
                self.write(index, b"welcome");
            }
            _ => {
                assert!(message.starts_with(b"say mf"), "{}", message.escape_ascii());
                self.said += 1;
                for other in 0..self.peers.len() {
                    self.write(other, message);
                }
            }
        }
    }

    fn write(&mut self, index: usize, message: &[u8]) {
        let peer = &self.peers[index];
        if peer.is_over || !peer.is_welcome {
            return;
        }
        let mut frame = Vec::new();
        self.framing.write(&mut frame, message).unwrap();
        self.run.net.write(peer.id, &frame);
    }

    fn ping(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        if peer.is_welcome && !peer.is_over {
            peer.pings += 1;
            self.write(index, b"ping");
        }
    }

    /// Ends a connection, at times in the middle of a message.
    fn disturb(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        if peer.is_over {
            return;
        }
        peer.is_over = true;
        let mut frame = Vec::new();
        self.framing.write(&mut frame, b"say nothing").unwrap();
        frame.truncate(self.prng.below(frame.len()));
        self.run.net.write(peer.id, &frame);
        self.run.net.close(peer.id);
    }

    /// Lets everything that is under way arrive, on a quiet network.
    fn settle(&mut self) {
        self.run.net.set_faults(Faults::NONE);
        self.run.shared.end_schedule(self.run.clock.now());
        for _ in 0..1000 {
            self.serve_all();
            self.run.turn();
            self.run.pass(25);
        }
    }

    fn figures(&self) -> FlowFigures {
        self.run.shared.flow_ledger().sum().remove(0)
    }

    fn check(&self) {
        let (totals, figures) = (self.run.totals(), self.figures());
        let terminals = u64::from(self.run.plan.connections);
        for account in self.run.shared.accounts() {
            assert_eq!(account.stage, Stage::Holding);
            let mut failures = account.failures.keys();
            let is_expected = |failure: &Failure| match failure {
                Failure::Refused | Failure::ConnectTimeout => true,
                // What lay unread when it ended makes a reset of the end.
                Failure::LostEnd | Failure::LostReset => self.is_unkind,
                Failure::SessionEnded | Failure::Reset => self.is_unkind,
                // The clock may jump over an interval.
                Failure::HeartbeatUnanswered => true,
                _ => false,
            };
            assert!(failures.all(is_expected), "{:?}", account.failures);
        }
        assert_eq!((totals.open, totals.connecting), (terminals, 0));
        assert!(self.said <= figures.sent);
        let faults = (figures.duplicated, figures.out_of_order, figures.unexpected);
        assert_eq!(faults, (0, 0, 0));
        assert!(figures.received <= figures.expected);
        if !self.is_unkind {
            assert_eq!(totals.lost, 0);
            assert_eq!((figures.sent, figures.complete), (self.said, self.said));
            assert_eq!(figures.received, figures.sent * terminals);
            let pings = self.peers.iter().map(|peer| peer.pings);
            assert_eq!(pings.sum::<u64>(), self.pongs);
        }
        assert_eq!(totals.comeback.gone, totals.comeback.back);
        let alive = self.peers.iter().filter(|peer| !peer.is_over);
        assert_eq!(alive.count() as u64, terminals);
    }

    fn close(&mut self) {
        let ending = match self.prng.one_in(2) {
            true => Ending::Orderly,
            false => Ending::Reset,
        };
        run::close(self, |world| &mut world.run, Self::serve_all, ending);
    }
}
