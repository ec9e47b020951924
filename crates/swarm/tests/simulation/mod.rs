//! The crowd against a simulated server, on a simulated network: odd pieces, short sends, resets, clock jumps.
//!
//! Half the crowds send echoes too; what becomes of those is in `echoes`.
//!
//! A failing seed is printed with the command that replays it alone.

mod api;
mod echoes;
mod ends;
mod http;
mod made;
mod run;
mod sessions;
mod tcp;
mod wakes;
mod window;

use crate::clock::{Clock, Nanos};
use crate::config::{
    Arrival, ArrivalStage, Config, CrowdSize, Endpoint, Incident, Publish, PublishBody, What,
};
use crate::engine::plan::{Answer, AnsweredPlan, Plan};
use crate::engine::shared::{Ending, Order, Shared, Stage, Totals};
use crate::measure::push::PushKey;
use crate::stamp::Stamp;
use crate::target::Target;
use myriad_reactor::Driver;
use myriad_reactor::sim::{Faults, PeerId, Prng, SimNet};
use myriad_wire::deflate::{Deflater, Window};
use myriad_wire::handshake::check_upgrade;
use myriad_wire::http::{HeadLimits, parse_request};
use myriad_wire::ws::{
    CloseCode, Decoder, Event, Extension, Kind, Limits, Opcode, Role, encode_close,
    encode_compressed_frame, encode_frame,
};
use run::Run;
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

const SEEDS: u64 = 300;
/// What `cargo test` is told to replay a seed.
const REPLAY: &str =
    "-p myriad-swarm --lib simulation::a_crowd_survives_any_network_and_counts_right";
const STEPS: u32 = 250;

/// A clock that moves when told to.
#[derive(Default)]
struct Manual(Cell<u64>);

impl Clock for Manual {
    fn now(&self) -> Nanos {
        Nanos(self.0.get())
    }
}

/// What the server does to connections beside serving them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Temper {
    /// Nothing: every figure is known exactly.
    Kind,
    /// Refuses, closes, resets: figures have bounds.
    Unkind,
}

/// How the server answers echoes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manners {
    /// As it likes: sooner or later, and when it is unkind twice, wrong, to somebody else or never.
    Any,
    AtOnce,
    /// Not now.
    Stalled,
    Twice,
    Wrong,
    /// All to the first connection.
    ToOne,
}

/// The server's end of one connection.
struct Peer {
    id: PeerId,
    head: Vec<u8>,
    decoder: Decoder,
    state: State,
    /// It agreed to take compressed messages with this window.
    window: Option<Window>,
    pings: VecDeque<Vec<u8>>,
    published: u32,
    /// Text of the message under way, and answers that are still to be given.
    text: Vec<u8>,
    answers: VecDeque<Vec<u8>>,
    echoes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Upgrading,
    Open,
    /// A close frame was sent or answered.
    Closing,
    Ended,
}

struct World {
    run: Run,
    prng: Prng,
    temper: Temper,
    ending: Ending,
    peers: Vec<Peer>,
    sequence: u32,
    /// By sequence: connections it was written to, and terminals that the roll call counted once all were connected.
    sent: HashMap<u32, u64>,
    expected: HashMap<u32, u64>,
    close_frames: u64,
    manners: Manners,
    /// Answers beside the right ones.
    wrong_answers: u64,
    /// Upgrades that the server makes between two turns; none: all that are asked for.
    upgrades_per_step: Option<u32>,
    upgrades_left: Option<u32>,
}

#[test]
fn a_crowd_survives_any_network_and_counts_right() {
    run::for_seeds(SEEDS, REPLAY, simulate);
}

fn simulate(seed: u64) {
    let mut world = World::new(seed);
    for _ in 0..STEPS {
        world.step();
    }
    world.settle();
    world.check_counts();
    world.close();
}

impl World {
    fn new(seed: u64) -> Self {
        let mut prng = Prng::new(seed);
        let faults = Faults::mixed(&mut prng);
        let temper = if prng.one_in(2) {
            Temper::Kind
        } else {
            Temper::Unkind
        };
        let ending = if prng.one_in(2) {
            Ending::Orderly
        } else {
            Ending::Reset
        };
        let plan = plan(seed, temper, &mut prng);
        Self::of(plan, SimNet::new(seed, faults), prng, temper, ending)
    }

    fn of(plan: Plan, net: SimNet, prng: Prng, temper: Temper, ending: Ending) -> Self {
        let shared = Shared::new(plan.threads as usize, 1);
        Self {
            run: Run::new(plan, shared, net),
            prng,
            temper,
            ending,
            peers: Vec::new(),
            sequence: 0,
            sent: HashMap::new(),
            expected: HashMap::new(),
            close_frames: 0,
            manners: Manners::Any,
            wrong_answers: 0,
            upgrades_per_step: None,
            upgrades_left: None,
        }
    }

    fn step(&mut self) {
        self.serve_all();
        if self.prng.one_in(12) && self.may_publish() {
            self.publish();
        }
        if !self.peers.is_empty() {
            for _ in 0..self.prng.below(4) {
                let index = self.prng.below(self.peers.len());
                self.disturb(index);
            }
        }
        self.run.turn();
        self.begin_churn();
        let jump = if self.prng.one_in(100) {
            12_000
        } else {
            self.prng.below(40)
        };
        self.run.pass(jump as u64);
    }

    /// A run publishes nothing while its crowd is still connecting. The simulation does, where nobody stalls: a stall counts
    /// every publication that is on its way for the whole crowd.
    fn may_publish(&self) -> bool {
        self.run.holds() || !self.has_incident(What::is_unwell)
    }

    /// Takes turns for so many milliseconds, one a millisecond.
    fn pass(&mut self, millis: u64) {
        for _ in 0..millis {
            self.serve_all();
            self.run.turn();
            self.run.pass(1);
        }
    }

    /// Takes turns for so many milliseconds, one in ten of them.
    fn step_slowly(&mut self, millis: u64) {
        for _ in 0..millis / 10 {
            self.accept();
            self.upgrades_left = self.upgrades_per_step;
            for index in 0..self.peers.len() {
                self.serve(index);
            }
            self.run.turn();
            self.run.pass(10);
        }
    }

    /// As a run does: once every thread holds its terminals.
    fn begin_churn(&mut self) {
        if self.run.holds() && self.run.shared.order() == Order::Run {
            self.run.shared.set_order(Order::Churn(self.ending));
            self.run.note_connected();
        }
    }

    fn serve_all(&mut self) {
        self.accept();
        (0..self.peers.len()).for_each(|index| self.serve(index));
    }

    fn accept(&mut self) {
        for dialed in self.run.net.dialed() {
            assert_eq!(dialed.target, self.run.plan.targets[0].address);
            assert!(dialed.source.unwrap().ip().is_loopback());
            self.peers.push(Peer {
                id: dialed.peer,
                head: Vec::new(),
                decoder: Decoder::new(Role::Server),
                state: State::Upgrading,
                window: None,
                pings: VecDeque::new(),
                published: 0,
                text: Vec::new(),
                answers: VecDeque::new(),
                echoes: 0,
            });
        }
    }

    /// Reads what a terminal said, and answers as a server must.
    fn serve(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        if peer.state == State::Upgrading && self.upgrades_left == Some(0) {
            return;
        }
        let mut bytes = self.run.net.read(peer.id);
        if peer.state == State::Upgrading {
            peer.head.append(&mut bytes);
            let head = parse_request(&peer.head, HeadLimits::default()).unwrap();
            let Some(head) = head else {
                return self.notice_end(index);
            };
            assert_eq!(head.path(), "/raw");
            let upgrade = check_upgrade(&head).unwrap();
            // A server may decline.
            let deflate = upgrade.deflate().filter(|_| self.prng.one_in(2));
            assert!(upgrade.deflate().is_some() == (self.run.plan.extension == Extension::Deflate));
            peer.window = deflate.map(|deflate| deflate.window());
            let mut answer = Vec::new();
            upgrade.write_response(None, deflate.as_ref(), &mut answer);
            assert_eq!(
                peer.head.len(),
                head.head_bytes(),
                "nothing is said before the answer"
            );
            if self.temper == Temper::Unkind && self.prng.one_in(8) {
                peer.state = State::Ended;
                self.run
                    .net
                    .write(peer.id, b"HTTP/1.1 503 Full\r\ncontent-length: 0\r\n\r\n");
                return self.run.net.close(peer.id);
            }
            peer.state = State::Open;
            self.upgrades_left = self.upgrades_left.map(|left| left - 1);
            self.run.net.write(peer.id, &answer);
            return;
        }
        self.hear(index, &mut bytes);
        self.notice_end(index);
    }

    fn hear(&mut self, index: usize, bytes: &mut [u8]) {
        let peer = &mut self.peers[index];
        let mut input = bytes;
        while let Some(event) = peer
            .decoder
            .next_event(&Limits::default(), &mut input)
            .unwrap()
        {
            match event {
                Event::Pong(payload) => {
                    let asked = peer.pings.pop_front().expect("nobody asked");
                    assert_eq!(payload[..], asked[..], "pongs come in order");
                }
                Event::Ping(payload) => {
                    let mut pong = Vec::new();
                    encode_frame(&mut pong, Opcode::Pong, true, None, &payload);
                    self.run.net.write(peer.id, &pong);
                }
                Event::Close(_) => {
                    if peer.state == State::Open {
                        let mut answer = Vec::new();
                        encode_close(&mut answer, CloseCode::NORMAL, "", None);
                        self.run.net.write(peer.id, &answer);
                    }
                    peer.state = State::Ended;
                    self.run.net.close(peer.id);
                }
                Event::Data {
                    kind, bytes, last, ..
                } => {
                    assert_eq!(kind, Kind::Text);
                    peer.text.extend_from_slice(bytes);
                    if last {
                        let text = std::mem::take(&mut peer.text);
                        peer.echoes += 1;
                        peer.answers.push_back(text);
                    }
                }
            }
        }
        self.answer_echoes(index);
    }

    fn notice_end(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        if peer.state != State::Ended && self.run.net.end(peer.id).is_some() {
            peer.state = State::Ended;
            self.run.net.close(peer.id);
        }
    }

    /// Gives every open connection the next publication, in frames of any form.
    fn publish(&mut self) {
        self.sequence += 1;
        let key = PushKey::Own {
            stream: 0,
            sequence: self.sequence,
        };
        let number = u64::from(self.sequence);
        let roll = self.run.shared.call_roll(number, |_| true);
        if self.run.holds() {
            self.expected.insert(self.sequence, roll.expected);
        }
        let now = self.run.clock.now();
        self.run.shared.ledger.publish(key, number, roll, now, now);
        let stamp = Stamp {
            run: self.run.plan.run,
            stream: 0,
            sequence: self.sequence,
        };
        let payload = stamp.payload(26 + self.prng.below(200));
        for peer in &mut self.peers {
            if peer.state != State::Open {
                continue;
            }
            let mut frames = Vec::new();
            let window = peer.window.filter(|_| self.prng.one_in(2));
            let mut compressed = Vec::new();
            if let Some(window) = window
                && Deflater::default().deflate(window, payload.as_bytes(), &mut compressed)
            {
                encode_compressed_frame(&mut frames, Kind::Text, None, &compressed);
                if self.prng.one_in(2) {
                    // As two fragments.
                    let cut = self.prng.below(compressed.len());
                    frames.clear();
                    encode_frame(&mut frames, Opcode::Text, false, None, &compressed[..cut]);
                    frames[0] |= 0x40;
                    let last = &compressed[cut..];
                    encode_frame(&mut frames, Opcode::Continuation, true, None, last);
                }
            } else if self.prng.one_in(3) {
                let cut = self.prng.below(payload.len());
                let (first, last) = payload.as_bytes().split_at(cut);
                encode_frame(&mut frames, Opcode::Text, false, None, first);
                encode_frame(&mut frames, Opcode::Continuation, true, None, last);
            } else {
                encode_frame(&mut frames, Opcode::Text, true, None, payload.as_bytes());
            }
            self.run.net.write(peer.id, &frames);
            peer.published += 1;
            *self.sent.entry(self.sequence).or_default() += 1;
        }
    }

    fn disturb(&mut self, index: usize) {
        let kind = self
            .prng
            .below(if self.temper == Temper::Kind { 3 } else { 6 });
        let peer = &mut self.peers[index];
        if peer.state != State::Open {
            return;
        }
        let mut frame = Vec::new();
        match kind {
            0 => {
                let payload = self.prng.bits().to_le_bytes()[..self.prng.below(8)].to_vec();
                encode_frame(&mut frame, Opcode::Ping, true, None, &payload);
                peer.pings.push_back(payload);
                self.run.net.write(peer.id, &frame);
            }
            1 => self.run.net.stall(peer.id),
            2 => self.run.net.resume(peer.id),
            3 => {
                encode_close(&mut frame, CloseCode::GOING_AWAY, "", None);
                peer.state = State::Closing;
                self.close_frames += 1;
                self.run.net.write(peer.id, &frame);
            }
            4 => {
                peer.state = State::Ended;
                self.run.net.reset(peer.id);
            }
            _ => {
                peer.state = State::Ended;
                self.run.net.close(peer.id);
            }
        }
    }

    /// Lets everything that is under way arrive, on a quiet network.
    fn settle(&mut self) {
        self.run.net.set_faults(Faults::NONE);
        self.run.shared.set_order(Order::Run);
        self.run.shared.end_schedule(self.run.clock.now());
        for peer in &self.peers {
            self.run.net.resume(peer.id);
        }
        // Longer than every timeout and backoff together.
        for _ in 0..2000 {
            self.serve_all();
            self.run.turn();
            self.run.pass(25);
        }
    }

    fn check_counts(&self) {
        let totals = self.run.totals();
        assert!(
            self.run
                .shared
                .accounts()
                .all(|account| account.stage == Stage::Holding)
        );
        assert_eq!(totals.connecting, 0);
        let open = self
            .peers
            .iter()
            .filter(|peer| peer.state == State::Open)
            .count() as u64;
        let unwell = &totals.unwell;
        // To the server those that stall or vanished are open, unless it has ended them by itself.
        let is_silent = unwell.stalling + unwell.vanished - unwell.noticed;
        assert!((totals.open..=totals.open + is_silent).contains(&open));
        assert!(self.temper == Temper::Unkind || totals.open + is_silent == open);
        assert_eq!(self.run.shared.open_terminals(|_| true), totals.open);
        self.check_unwell(&totals);
        assert_eq!(
            (totals.gaps, totals.duplicates, totals.overtaken),
            (0, 0, 0)
        );
        assert_eq!((totals.unexpected, totals.unmeasured), (0, 0));
        let publications = totals.messages - self.check_echoes();
        // All that survivors were given arrived; of what the others were given, some.
        let alive = self.peers.iter().filter(|peer| peer.state == State::Open);
        let is_unwell = self.has_incident(What::is_unwell);
        let alive = alive.filter(|_| !is_unwell);
        let least: u64 = alive.clone().map(|peer| u64::from(peer.published)).sum();
        let most: u64 = self.sent.values().sum();
        assert!(
            (least..=most).contains(&publications),
            "{least} <= {publications} <= {most}"
        );
        for peer in alive {
            assert!(peer.pings.is_empty(), "every ping is answered");
        }
        let mut received: HashMap<PushKey, u64> = HashMap::new();
        for account in self.run.shared.accounts() {
            for (key, tally) in &account.tallies {
                *received.entry(*key).or_default() += tally.received;
            }
        }
        assert_eq!(
            received.values().sum::<u64>() + totals.replayed + totals.unwell.received,
            publications
        );
        self.check_churn(&totals);
        self.check_pushes(&received, is_unwell);
        let closes: u64 = self
            .run
            .shared
            .accounts()
            .map(|a| a.closes.values().map(|closes| closes.count).sum::<u64>())
            .sum();
        assert!(closes <= self.close_frames);
    }

    /// Each push, and who was counted for it.
    fn check_pushes(&self, received: &HashMap<PushKey, u64>, is_unwell: bool) {
        for (&sequence, &sent) in &self.sent {
            let received = received
                .get(&PushKey::Own {
                    stream: 0,
                    sequence,
                })
                .copied()
                .unwrap_or(0);
            assert!(received <= sent);
            let left: u64 = self
                .run
                .shared
                .accounts()
                .filter_map(|account| account.departed.get(&u64::from(sequence)).copied())
                .sum();
            // Whoever was counted got it or left before it came; nobody else is in the figures. A run publishes
            // nothing while its crowd is still connecting.
            if let Some(&expected) = self.expected.get(&sequence) {
                assert!(received + left <= expected, "push {sequence}");
                assert!(self.temper == Temper::Unkind || received + left == expected);
            }
            // A connection that was given up while its answer was under way was never a terminal's.
            let is_whole = self.temper == Temper::Kind && !is_unwell;
            assert!(!is_whole || received == sent || self.any_ended());
        }
    }

    fn check_churn(&self, totals: &Totals) {
        assert_eq!(
            totals.churned,
            totals.reconnected + totals.replacements_given_up
        );
        assert!(self.run.plan.is_changing() || totals.replayed == 0);
        assert!(self.run.plan.churn_per_s.is_some() || totals.churned == 0);
        let comeback = &totals.comeback;
        assert_eq!(comeback.gone, comeback.back + comeback.given_up);
        assert_eq!(comeback.given_up, 0, "nobody gives up");
        assert!(comeback.attempts >= comeback.back);
        assert!(self.run.plan.is_changing() || comeback.gone == 0);
        if self.temper == Temper::Kind {
            assert_eq!(totals.lost, 0);
        }
    }

    fn has_incident(&self, is_kind: fn(What) -> bool) -> bool {
        let mut incidents = self.run.plan.incidents.iter();
        incidents.any(|incident| is_kind(incident.what))
    }

    fn check_unwell(&self, totals: &Totals) {
        let unwell = &totals.unwell;
        let expected = self
            .run
            .shared
            .accounts()
            .map(|account| account.stall_expected);
        let expected: u64 = expected.sum();
        assert!(unwell.received <= expected);
        assert!(unwell.stalling + unwell.resumed <= unwell.stalled);
        assert!(unwell.noticed <= unwell.vanished);
        let ends = self.run.shared.accounts().map(|account| {
            let ends: u64 = account.unwell.ends.values().sum();
            assert_eq!(account.unwell.ended_after.len(), ends);
            ends
        });
        assert_eq!(ends.sum::<u64>(), unwell.ended);
        let leaves = self.run.plan.churn_per_s.is_some()
            || self.has_incident(|what| what.is_storm() || what == What::Vanish);
        if self.temper == Temper::Kind {
            assert_eq!(unwell.ended, 0);
            // Nobody resumes whose stall has no end; all others get all that was kept for them, unless they leave before.
            if !leaves && unwell.stalling == 0 {
                assert_eq!(unwell.resumed, unwell.stalled);
                assert_eq!(unwell.received, expected);
            }
        }
    }

    fn any_ended(&self) -> bool {
        self.peers.iter().any(|peer| peer.state == State::Ended)
    }

    /// Ends the crowd: nothing may stay open.
    fn close(&mut self) {
        let ending = self.ending;
        run::close(self, |world| &mut world.run, Self::serve_all, ending);
        assert!(
            self.run
                .shared
                .accounts()
                .all(|account| account.stage == Stage::Gone)
        );
    }
}

/// Any way to arrive. None takes longer than two seconds.
fn arrival(prng: &mut Prng) -> Arrival {
    let stage = |millis, share| ArrivalStage {
        duration: Duration::from_millis(millis),
        target: CrowdSize::Share(share),
    };
    match prng.below(8) {
        0 => Arrival::Ramp(Duration::from_secs(1)),
        1 => Arrival::Stages(vec![stage(800, 0.3), stage(0, 0.8), stage(500, 1.0)]),
        2 => Arrival::AtOnce,
        3..=5 => Arrival::Rate(50.0),
        _ => Arrival::Unpaced,
    }
}

/// Storms, in half of all runs.
fn storms(prng: &mut Prng) -> Vec<Incident> {
    let count = prng.below(5).saturating_sub(2);
    let mut storm = || Incident {
        at: Duration::from_millis(prng.below(3000) as u64),
        size: CrowdSize::Share(prng.between(1, 100) as f64 / 100.0),
        what: What::Storm(prng.one_in(2).then_some(Ending::Orderly)),
    };
    (0..count).map(|_| storm()).collect()
}

/// Terminals that stall or vanish, in half of all runs.
fn stalls(prng: &mut Prng) -> Vec<Incident> {
    let count = prng.below(5).saturating_sub(2);
    let mut stall = || {
        let lasts = Duration::from_millis(prng.below(20_000) as u64);
        Incident {
            at: Duration::from_millis(prng.below(3000) as u64),
            size: CrowdSize::Share(prng.between(1, 100) as f64 / 100.0),
            what: match prng.below(4) {
                0 => What::Vanish,
                1 => What::Stall(None),
                _ => What::Stall(Some(lasts)),
            },
        }
    };
    (0..count).map(|_| stall()).collect()
}

fn plan(seed: u64, temper: Temper, prng: &mut Prng) -> Plan {
    let target = Target::parse("ws://127.0.0.1:8000/raw?channel=x").unwrap();
    let mut config = Config::new(vec![target], prng.between(1, 60) as u64);
    config.driver = Some(Driver::Epoll);
    config.threads = Some(u32::try_from(prng.between(1, 3)).unwrap());
    config.connecting_max = u32::try_from(prng.between(1, 40)).unwrap();
    config.arrival = arrival(prng);
    config.retries = u8::try_from(prng.below(3)).unwrap();
    config.compression = prng.one_in(2);
    config.churn_per_s = prng.one_in(2).then_some(0.2);
    config.incidents = [storms(prng), stalls(prng)].concat();
    config.comeback.when_lost = prng.one_in(4);
    config.comeback.backoff = (Duration::from_millis(50), Duration::from_secs(2));
    config.duration = Some(Duration::from_mins(1));
    config.heartbeat = prng.one_in(2).then_some(Duration::from_secs(1));
    let endpoint = Endpoint::parse("http://127.0.0.1:8000/publish").unwrap();
    let mut publish = Publish::new(endpoint, Duration::from_secs(1));
    publish.body = PublishBody::Plain;
    config.publish = Some(publish);
    let mut plan = config.prepare().unwrap().plan;
    plan.seed = seed;
    plan.answered = prng.one_in(2).then(|| AnsweredPlan {
        answer: Answer::Echo,
        rate_per_s: prng.between(5, 200) as f64,
        payload_bytes: prng.between(30, 300),
        // A kind server answers everything, a jump of the clock later at times.
        settle: Duration::from_secs(if temper == Temper::Kind { 1000 } else { 20 }),
        outstanding_max: prng.between(1, 200),
    });
    plan
}
