//! Terminals with sessions on a simulated network, against a server that keeps the protocol and remembers everything.
//!
//! Terminals leave and come back. Whatever the network does, each of them must have heard every publication since it first
//! subscribed, once and in order. In half of the seeds terminals publish too; `publications` has what goes wrong with that.

mod publications;

use super::run::{self, Run};
use crate::clock::Clock as _;
use crate::config::{Config, Endpoint, Publish, PublishBody};
use crate::engine::plan::{Answer, AnsweredPlan, Plan};
use crate::engine::shared::{Ending, Order, Shared, Totals};
use crate::failure::Failure;
use crate::measure::deliveries::Counts as DeliveryCounts;
use crate::measure::push::PushKey;
use crate::measure::round_trip::Counts as RoundTripCounts;
use crate::protocol::Protocol;
use crate::stamp::Stamp;
use crate::target::Target;
use myriad_reactor::Driver;
use myriad_reactor::sim::{Faults, PeerId, Prng, SimNet};
use myriad_wire::centrifuge::{
    ConnectResult, Decoder as Commands, Encoding, ErrorCode, FrameWriter, PublicationFields, Push,
    Request, SubscribeRequest, SubscribeResult,
};
use myriad_wire::handshake::check_upgrade;
use myriad_wire::http::{HeadLimits, parse_request};
use myriad_wire::ws::{Decoder, Event, Limits, Opcode, Role, encode_frame};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

const SEEDS: u64 = 150;
/// What `cargo test` is told to replay a seed.
const REPLAY: &str =
    "-p myriad-swarm --lib simulation::sessions::whoever_comes_back_has_heard_everything";
const STEPS: u32 = 250;
const EPOCH: &str = "epoch";

/// The server's end of one connection.
struct Peer {
    id: PeerId,
    head: Option<Vec<u8>>,
    decoder: Decoder,
    message: Vec<u8>,
    is_subscribed: bool,
    is_over: bool,
    pings: u64,
    pongs: u64,
    /// Messages of the protocol that wait to leave together.
    waiting: Vec<u8>,
}

/// What the server does with what terminals publish.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manners {
    /// Accepts most of it, and refuses some.
    Any,
    Accepting,
    Refusing,
    /// Delivers it without a reply.
    Silent,
    /// Replies, and delivers nothing.
    Forgetful,
    /// Replies, and delivers it twice to every other subscriber and not to the rest.
    Unfair,
    /// Carries out one each tenth of a second.
    Slow,
}

struct World {
    run: Run,
    prng: Prng,
    peers: Vec<Peer>,
    /// The channel's publications; their offsets count from 1.
    history: Vec<Vec<u8>>,
    /// Publications of the run, and those of terminals that the server accepted and refused.
    pushes: u32,
    accepted: u64,
    refused: u64,
    manners: Manners,
    /// What a slow server has not carried out: the peer's index, the command's id, the data.
    backlog: VecDeque<(usize, u32, Vec<u8>)>,
    encoding: Encoding,
    recoveries: u64,
    /// By number of a publication: the terminals that its roll call counted, once all were connected.
    expected: HashMap<u64, u64>,
}

#[test]
fn whoever_comes_back_has_heard_everything() {
    let Some(all) = run::for_seeds(SEEDS, REPLAY, simulate) else {
        return;
    };
    let sum = |figure: fn(&(Totals, u64, u64)) -> u64| all.iter().map(figure).sum::<u64>();
    let (recoveries, publications) = (sum(|it| it.0.recoveries), sum(|it| it.0.recovered));
    let (accepted, refused) = (sum(|it| it.1), sum(|it| it.2));
    // Without them nothing was shown.
    assert!(
        recoveries > 100 && publications > 100 && accepted > 1000 && refused > 100,
        "{recoveries} {publications} {accepted} {refused}"
    );
    let comebacks = sum(|it| it.0.comeback.back);
    assert!(comebacks > 300, "{comebacks}");
}

/// The totals, and what terminals published that the server accepted and refused.
fn simulate(seed: u64) -> (Totals, u64, u64) {
    let mut world = World::new(seed);
    (0..STEPS).for_each(|_| world.step());
    world.settle();
    world.check();
    world.close();
    (world.run.totals(), world.accepted, world.refused)
}

/// Ten terminals get 500 bytes each of a message that never ends, and the thread keeps 3,000.
#[test]
fn messages_that_never_end_are_bounded() {
    let mut prng = Prng::new(1);
    let mut plan = plan(1, &mut prng);
    (plan.connections, plan.threads, plan.churn_per_s) = (10, 1, None);
    plan.deal = crate::engine::deal::Deal::alone(1, 10);
    plan.incidents.clear();
    plan.partial_bytes_max = 3000;
    let mut world = World::of(plan, SimNet::new(1, Faults::NONE), prng);
    world.settle();
    assert_eq!(world.run.totals().open, 10);
    for peer in &world.peers {
        let mut frame = Vec::new();
        encode_frame(&mut frame, Opcode::Binary, false, None, &[b'x'; 500]);
        world.run.net.write(peer.id, &frame);
    }
    world.settle();
    let totals = world.run.totals();
    assert_eq!((totals.open, totals.lost), (6, 4));
    for account in world.run.shared.accounts() {
        assert_eq!(account.failures[&Failure::Unfinished], 4);
    }
    // The six have all there is: a byte more is too many.
    let peer = world.peers.iter().find(|peer| !peer.is_over).unwrap();
    let mut frame = Vec::new();
    encode_frame(&mut frame, Opcode::Continuation, false, None, b"y");
    world.run.net.write(peer.id, &frame);
    world.settle();
    assert_eq!(world.run.totals().open, 5);
    world.close();
}

fn plan(seed: u64, prng: &mut Prng) -> Plan {
    let target = Target::parse("ws://127.0.0.1:8000/connection/websocket").unwrap();
    let mut config = Config::new(vec![target], prng.between(1, 40) as u64);
    config.driver = Some(Driver::Epoll);
    config.threads = Some(u32::try_from(prng.between(1, 3)).unwrap());
    config.connecting_max = u32::try_from(prng.between(1, 40)).unwrap();
    config.protocol = if prng.one_in(2) {
        Protocol::CentrifugeJson
    } else {
        Protocol::CentrifugeProtobuf
    };
    config.channels = vec!["x".to_owned()];
    config.churn_per_s = Some(0.3);
    config.incidents = super::storms(prng);
    config.comeback.backoff = (Duration::from_millis(50), Duration::from_secs(2));
    config.duration = Some(Duration::from_mins(1));
    config.retries = 100;
    // A clock that jumps must not make a kind server a slow one.
    config.handshake_timeout = Duration::from_secs(1000);
    config.connect_timeout = Duration::from_secs(1000);
    let endpoint = Endpoint::parse("http://127.0.0.1:8000/publish").unwrap();
    let mut publish = Publish::new(endpoint, Duration::from_secs(1));
    publish.body = PublishBody::Api;
    config.publish = Some(publish);
    let mut plan = config.prepare().unwrap().plan;
    plan.seed = seed;
    plan.answered = prng.one_in(2).then(|| AnsweredPlan {
        answer: Answer::Reply,
        rate_per_s: prng.between(5, 100) as f64,
        payload_bytes: prng.between(39, 300),
        // A kind server answers everything, a jump of the clock later at times.
        settle: Duration::from_secs(1000),
        outstanding_max: prng.between(1, 200),
    });
    if prng.one_in(3) {
        plan.churn_per_s = None;
    }
    plan
}

impl World {
    fn new(seed: u64) -> Self {
        let mut prng = Prng::new(seed);
        let net = SimNet::new(seed, Faults::mixed(&mut prng));
        let plan = plan(seed, &mut prng);
        Self::of(plan, net, prng)
    }

    fn of(plan: Plan, net: SimNet, prng: Prng) -> Self {
        let shared = Shared::new(plan.threads as usize, 1);
        Self {
            encoding: plan.session.as_ref().unwrap().encoding,
            run: Run::new(plan, shared, net),
            prng,
            peers: Vec::new(),
            history: Vec::new(),
            pushes: 0,
            accepted: 0,
            refused: 0,
            manners: Manners::Any,
            backlog: VecDeque::new(),
            recoveries: 0,
            expected: HashMap::new(),
        }
    }

    fn step(&mut self) {
        self.serve();
        if self.prng.one_in(6) {
            self.publish();
        }
        if !self.peers.is_empty() {
            let index = self.prng.below(self.peers.len());
            self.disturb(index);
        }
        self.run.turn();
        if self.run.holds() && self.run.shared.order() == Order::Run {
            self.run.shared.set_order(Order::Churn(Ending::Reset));
            self.run.note_connected();
        }
        self.run.pass(self.prng.below(40) as u64);
    }

    /// Accepts connections, and answers what terminals say.
    fn serve(&mut self) {
        for dialed in self.run.net.dialed() {
            self.peers.push(Peer {
                id: dialed.peer,
                head: Some(Vec::new()),
                decoder: Decoder::new(Role::Server),
                message: Vec::new(),
                is_subscribed: false,
                is_over: false,
                pings: 0,
                pongs: 0,
                waiting: Vec::new(),
            });
        }
        for index in 0..self.peers.len() {
            let mut bytes = self.run.net.read(self.peers[index].id);
            if self.peers[index].head.is_some() {
                self.upgrade(index, &bytes);
            } else {
                self.hear(index, &mut bytes);
            }
            let peer = &mut self.peers[index];
            if !peer.is_over && self.run.net.end(peer.id).is_some() {
                peer.is_over = true;
                self.run.net.close(peer.id);
            }
            if self.prng.one_in(2) {
                self.flush(index);
            }
        }
    }

    fn upgrade(&mut self, index: usize, bytes: &[u8]) {
        let peer = &mut self.peers[index];
        let mut received = peer.head.take().unwrap();
        received.extend_from_slice(bytes);
        let Some(head) = parse_request(&received, HeadLimits::default()).unwrap() else {
            peer.head = Some(received);
            return;
        };
        let upgrade = check_upgrade(&head).unwrap();
        let offered = head.header("sec-websocket-protocol");
        assert_eq!(offered.is_some(), self.encoding == Encoding::Protobuf);
        let protocol = offered.map(|_| "centrifuge-protobuf");
        let mut answer = Vec::new();
        upgrade.write_response(protocol, None, &mut answer);
        assert_eq!(received.len(), head.head_bytes());
        self.run.net.write(peer.id, &answer);
    }

    fn hear(&mut self, index: usize, bytes: &mut [u8]) {
        let mut input = bytes;
        loop {
            let peer = &mut self.peers[index];
            let event = peer.decoder.next_event(&Limits::default(), &mut input);
            match event.unwrap() {
                None => break,
                Some(Event::Data { bytes, last, .. }) => {
                    peer.message.extend_from_slice(bytes);
                    if last {
                        let message = std::mem::take(&mut peer.message);
                        self.answer(index, &message);
                    }
                }
                Some(event) => panic!("{event:?}"),
            }
        }
    }

    /// Answers the commands of one message.
    fn answer(&mut self, index: usize, message: &[u8]) {
        for command in Commands::new(self.encoding, message) {
            let command = command.unwrap();
            let peer = &mut self.peers[index];
            let mut writer = FrameWriter::new(self.encoding, &mut peer.waiting);
            match command.request {
                Request::Pong => peer.pongs += 1,
                Request::Connect(_) => {
                    let result = ConnectResult {
                        client: "c",
                        version: "test",
                        ping: 25,
                        pong: true,
                        ..ConnectResult::default()
                    };
                    let none: [(&str, (SubscribeResult<'_>, std::iter::Empty<_>)); 0] = [];
                    writer.connect(command.id, &result, none.into_iter());
                }
                Request::Subscribe(request) => self.subscribe(index, command.id, &request),
                Request::Publish(request) => {
                    assert_eq!(request.channel, "x");
                    self.answer_publish(index, command.id, request.data.as_bytes());
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn answer_publish(&mut self, index: usize, id: u32, data: &[u8]) {
        let manners = match self.manners {
            Manners::Any if self.prng.one_in(8) => Manners::Refusing,
            Manners::Any => Manners::Accepting,
            manners => manners,
        };
        let peer = &mut self.peers[index];
        let mut writer = FrameWriter::new(self.encoding, &mut peer.waiting);
        match manners {
            Manners::Slow => return self.backlog.push_back((index, id, data.to_vec())),
            Manners::Refusing => {
                writer.error(id, ErrorCode::TooManyRequests);
                self.refused += 1;
                return;
            }
            Manners::Silent => {}
            _ => {
                writer.publish(id);
                self.accepted += 1;
            }
        }
        match manners {
            Manners::Forgetful => {}
            Manners::Unfair => self.deliver_twice_to_half(data),
            _ => self.deliver(data),
        }
    }

    fn subscribe(&mut self, index: usize, id: u32, request: &SubscribeRequest<'_>) {
        assert_eq!(request.channel, "x");
        assert_eq!(request.epoch, if request.recover { EPOCH } else { "" });
        let top = self.history.len();
        let since = if request.recover {
            self.recoveries += 1;
            usize::try_from(request.offset).unwrap()
        } else {
            top
        };
        let missed = self.history.iter().zip(1..).skip(since);
        let missed = missed.map(|(data, offset)| PublicationFields {
            data,
            offset,
            ..PublicationFields::default()
        });
        let result = SubscribeResult {
            recoverable: true,
            positioned: true,
            epoch: EPOCH,
            offset: since as u64,
            recovered: request.recover,
            was_recovering: request.recover,
            ..SubscribeResult::default()
        };
        let peer = &mut self.peers[index];
        assert!(!std::mem::replace(&mut peer.is_subscribed, true));
        FrameWriter::new(self.encoding, &mut peer.waiting).subscribe(id, &result, missed);
    }

    /// Makes a publication, which leaves with others or alone.
    fn publish(&mut self) {
        self.pushes += 1;
        let (sequence, number) = (self.pushes, u64::from(self.pushes));
        let key = PushKey::Own {
            stream: 0,
            sequence,
        };
        let roll = self.run.shared.call_roll(number, |_| true);
        if matches!(self.run.shared.order(), Order::Churn(_)) {
            self.expected.insert(number, roll.expected);
        }
        let now = self.run.clock.now();
        self.run.shared.ledger.publish(key, number, roll, now, now);
        let (run, stream) = (self.run.plan.run, 0);
        let stamp = Stamp {
            run,
            stream,
            sequence,
        };
        let data = format!("\"{}\"", stamp.payload(26 + self.prng.below(200)));
        self.deliver(data.as_bytes());
    }

    /// Sends a publication to all subscribers, and keeps it.
    fn deliver(&mut self, data: &[u8]) {
        let push = Push::Publication(PublicationFields {
            data,
            offset: self.history.len() as u64 + 1,
            ..PublicationFields::default()
        });
        for peer in self.peers.iter_mut().filter(|peer| peer.is_subscribed) {
            FrameWriter::new(self.encoding, &mut peer.waiting).push("x", &push);
        }
        self.history.push(data.to_vec());
    }

    /// As in a channel without history, in which publications have no offsets.
    fn deliver_twice_to_half(&mut self, data: &[u8]) {
        let push = Push::Publication(PublicationFields {
            data,
            ..PublicationFields::default()
        });
        let subscribed = self.peers.iter_mut().filter(|peer| peer.is_subscribed);
        for peer in subscribed.step_by(2) {
            for _ in 0..2 {
                FrameWriter::new(self.encoding, &mut peer.waiting).push("x", &push);
            }
        }
    }

    fn disturb(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        match self.prng.below(3) {
            0 if peer.is_subscribed && !peer.is_over => {
                // Never two in one message.
                self.flush(index);
                let peer = &mut self.peers[index];
                peer.pings += 1;
                FrameWriter::new(self.encoding, &mut peer.waiting).ping();
                self.flush(index);
            }
            1 => self.run.net.stall(peer.id),
            _ => self.run.net.resume(peer.id),
        }
    }

    /// Sends what waits, as one message in one frame or two.
    fn flush(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        let message = std::mem::take(&mut peer.waiting);
        if message.is_empty() || peer.is_over {
            return;
        }
        let opcode = match self.encoding {
            Encoding::Json => Opcode::Text,
            Encoding::Protobuf => Opcode::Binary,
        };
        let mut frames = Vec::new();
        if self.prng.one_in(3) {
            let (first, last) = message.split_at(self.prng.below(message.len()));
            encode_frame(&mut frames, opcode, false, None, first);
            encode_frame(&mut frames, Opcode::Continuation, true, None, last);
        } else {
            encode_frame(&mut frames, opcode, true, None, &message);
        }
        self.run.net.write(peer.id, &frames);
    }

    /// Lets everything that is under way arrive, on a quiet network.
    fn settle(&mut self) {
        self.run.net.set_faults(Faults::NONE);
        self.run.shared.set_order(Order::Run);
        self.run.shared.end_schedule(self.run.clock.now());
        self.peers
            .iter()
            .for_each(|peer| self.run.net.resume(peer.id));
        // Longer than the waits before a retry.
        for _ in 0..2000 {
            self.serve();
            self.run.turn();
            self.run.pass(25);
        }
    }

    fn check(&self) {
        let totals = self.run.totals();
        assert_eq!(
            totals.open,
            u64::from(self.run.plan.connections),
            "{totals:?}"
        );
        assert_eq!((totals.lost, totals.recoveries_failed), (0, 0));
        assert_eq!(totals.comeback.gone, totals.comeback.back);
        assert_eq!(totals.comeback.missed, 0, "all of it is recovered");
        // A connection that ends while the answer is under way recovers again.
        assert!(totals.recoveries <= self.recoveries);
        assert_eq!((totals.offset_gaps, totals.offset_duplicates), (0, 0));
        assert_eq!((totals.gaps, totals.duplicates), (0, 0), "{totals:?}");
        assert_eq!((totals.overtaken, totals.offset_overtaken), (0, 0));
        assert_eq!((totals.unexpected, totals.unmeasured), (0, 0));
        self.check_publishers();
        let present = || self.peers.iter().filter(|peer| !peer.is_over);
        assert_eq!(present().count() as u64, totals.open);
        assert!(present().all(|peer| peer.pings == peer.pongs));
        let mut received: HashMap<u64, u64> = HashMap::new();
        for account in self.run.shared.accounts() {
            // The network may refuse a connection for a while.
            let mut failures = account.failures.keys();
            let is_of_network = |failure: &Failure| {
                matches!(
                    failure,
                    Failure::ConnectTimeout | Failure::Refused | Failure::ClientPublish(111)
                )
            };
            assert!(failures.all(is_of_network), "{:?}", account.failures);
            for (key, tally) in &account.tallies {
                let PushKey::Own { sequence, .. } = key else {
                    panic!("a foreign publication");
                };
                *received.entry(u64::from(*sequence)).or_default() += tally.received;
            }
            for (number, departed) in &account.departed {
                *received.entry(*number).or_default() += departed;
            }
        }
        for (number, expected) in &self.expected {
            let received = received.get(number).copied().unwrap_or(0);
            assert_eq!(received, *expected, "publication {number}: {totals:?}");
        }
    }

    /// What terminals published is accounted for, and came to everybody where nobody left.
    fn check_publishers(&self) {
        let (mut counts, mut deliveries) = (RoundTripCounts::default(), DeliveryCounts::default());
        for account in self.run.shared.accounts() {
            assert_eq!(
                account.answered_ended,
                self.run.plan.answered.is_some() && self.began()
            );
            counts.merge(&account.answered.counts);
            deliveries.merge(&account.deliveries.counts);
        }
        let left = counts.departed;
        assert_eq!(
            counts.sent,
            counts.received + counts.lost + left,
            "{counts:?}"
        );
        assert_eq!(counts.lost, counts.errors, "only those that were refused");
        assert!(counts.received <= self.accepted && counts.lost <= self.refused);
        assert!(self.accepted + self.refused <= counts.received + counts.lost + left);
        if !self.run.plan.is_changing() {
            let all = self.accepted * u64::from(self.run.plan.connections);
            assert_eq!(
                (counts.received, counts.lost),
                (self.accepted, self.refused)
            );
            assert_eq!((deliveries.expected, deliveries.received), (all, all));
        }
    }

    /// Whether the schedule of publications has begun.
    fn began(&self) -> bool {
        self.run.shared.schedule().is_some()
    }

    fn close(&mut self) {
        run::close(self, |world| &mut world.run, Self::serve, Ending::Reset);
    }
}
