//! A node, the members of its channels and its writers, from beginning to end.

use super::facts::{FEW, Facts, STREAMS};
use super::guest::Guest;
use super::limited::Rate;
use super::reader::Reader;
use super::reload::Change;
use super::tokens::{Desk, Verifier};
use super::writers::Writers;
use crate::members::{Client, Listener};
use crate::node::Node;
use crate::plan::{Plan, ROOMY};
use crate::world::World;
use myriad_hub::RecoveryMode;
use myriad_reactor::sim::Prng;
use myriad_shard::{
    ChannelOptions, Namespaces, NoticeSettings, ReaderSettings, Right, SlowConsumer, Transports,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Connections at once.
const READERS_MAX: usize = 8;
const GUESTS_MAX: usize = 2;
const LISTENERS_MAX: usize = 4;
/// Turns within which a writer may hear that its stream is there again.
const MEETING_TURNS_MAX: usize = 8;
/// Turns of newcomers before something happens to a stream.
const ARRIVAL_TURNS_MAX: usize = 24;
/// A record that nobody uses is kept for longer than any run takes.
pub(super) const META_TTL: Duration = Duration::from_secs(3_600);

/// Who is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Readers of streams and their writers, and nobody with a subscription.
    Readers,
    /// Clients with sessions, and nobody who knows of streams.
    Sessions,
    /// Every kind of member on the same channels.
    Together,
}

impl Profile {
    fn has_readers(self) -> bool {
        self != Self::Sessions
    }

    fn has_sessions(self) -> bool {
        self != Self::Readers
    }
}

pub(super) struct Scenario {
    pub(super) world: World,
    pub(super) readers: Vec<Reader>,
    pub(super) guests: Vec<Guest>,
    pub(super) clients: Vec<Client>,
    pub(super) listeners: Vec<Listener>,
    pub(super) writers: Writers,
    pub(super) desk: Desk,
    pub(super) facts: Facts,
    /// The control plane answers at once.
    pub(super) is_quiet: bool,
    /// Namespaces change while the node runs.
    reloads: bool,
    /// What has become of them.
    pub(super) changes: BTreeMap<&'static str, Change>,
}

/// One node from beginning to end.
pub(crate) fn run(profile: Profile, prng: &mut Prng, is_printed: bool) -> World {
    let mut scenario = Scenario::new(profile, prng, is_printed);
    for _ in 0..scenario.world.prng.between(150, 400) {
        scenario.step();
    }
    if scenario.world.prng.one_in(4) {
        scenario.drain();
    } else {
        scenario.check_quiet();
        scenario.leave();
    }
    scenario.world
}

/// What namespaces with sessions allow, and what the seed draws for them.
fn drawn(prng: &mut Prng) -> ChannelOptions {
    let ms = Duration::from_millis;
    ChannelOptions {
        presence: true,
        join_leave: true,
        force_push_join_leave: true,
        subscribe: Right::ALL,
        publish: Right::ALL,
        presence_read: Right::ALL,
        history_read: Right::ALL,
        allow_tags_filter: true,
        exclude_sender: prng.one_in(3),
        batch_delay: *prng.pick(&[Duration::ZERO, Duration::ZERO, ms(100), ms(400)]),
        ..ChannelOptions::default()
    }
}

fn policy(prng: &mut Prng) -> SlowConsumer {
    *prng.pick(&[
        SlowConsumer::Disconnect,
        SlowConsumer::Disconnect,
        SlowConsumer::GapThenRecover,
        SlowConsumer::DropOldest,
        SlowConsumer::KeepLatest,
    ])
}

fn namespaces(prng: &mut Prng) -> Namespaces {
    let ms = Duration::from_millis;
    let drawn = drawn(prng);
    let all = ChannelOptions {
        history_size: 100_000,
        history_ttl: META_TTL,
        history_meta_ttl: META_TTL,
        force_recovery: true,
        allow_fossil_delta: true,
        delta_publish: prng.one_in(2),
        batch_delay: Duration::ZERO,
        slow_consumer: policy(prng),
        ..drawn.clone()
    };
    let few = ChannelOptions {
        history_size: FEW,
        ..all.clone()
    };
    let batched = ChannelOptions {
        batch_delay: ms(200),
        ..all.clone()
    };
    let aging = ChannelOptions {
        history_ttl: ms(*prng.pick(&[300, 2_000])),
        ..all.clone()
    };
    let history_ttl = *prng.pick(&[META_TTL, META_TTL, ms(500), ms(5_000), ms(60_000)]);
    let kept = ChannelOptions {
        history_size: *prng.pick(&[2, 10, 1_000]),
        history_ttl,
        history_meta_ttl: (history_ttl * 2).min(META_TTL),
        batch_delay: drawn.batch_delay,
        slow_consumer: policy(prng),
        ..all.clone()
    };
    let cached = ChannelOptions {
        recovery_mode: RecoveryMode::Cache,
        auto_cache_recover: prng.one_in(2),
        slow_consumer: policy(prng),
        ..kept.clone()
    };
    let loose = ChannelOptions {
        slow_consumer: policy(prng),
        ..drawn
    };
    let named = [
        ("h", all.clone()),
        ("t", few),
        ("b", batched),
        ("e", aging),
        ("kept", kept),
        ("cached", cached),
        ("loose", loose),
    ];
    Namespaces::new(all, named.map(|(name, options)| (name.into(), options)))
}

/// One shard without faults, and with much room.
pub(super) fn plain(prng: &mut Prng) -> Plan {
    let mut plan = Plan::plain();
    let settings = &mut plan.settings;
    settings.hands_over = false;
    settings.transports = Transports::ALL;
    settings.access.tokens = Some(Arc::new(Verifier));
    settings.namespaces = Arc::new(namespaces(prng));
    settings.readers.unix_offset_s = 1_800_000_000;
    plan.limits.http_streams = true;
    plan
}

fn plan(prng: &mut Prng) -> Plan {
    let ms = Duration::from_millis;
    let mut plan = plain(prng);
    plan.draw_node(prng);
    plan.limits.buffered_bytes_max = *prng.pick(&[ROOMY, ROOMY, ROOMY, ROOMY, 20_000, 3_000]);
    plan.limits.unconnected_bytes_max = *prng.pick(&[ROOMY, ROOMY, ROOMY, ROOMY, 2_000, 400]);
    plan.limits.history_bytes_max = *prng.pick(&[ROOMY, ROOMY, ROOMY, ROOMY, ROOMY, 4_000]);
    let settings = &mut plan.settings;
    // So that a flood is more than may wait behind a request: two heads.
    settings.head_bytes_max = 8192;
    settings.ask_timeout = ms(*prng.pick(&[400, 4_000]));
    settings.slice_max = *prng.pick(&[1, 2, 3, 7, 1024]);
    settings.ping_interval = ms(*prng.pick(&[0, 1_000, 5_000]));
    settings.pong_timeout = ms(*prng.pick(&[600, 10_000]));
    settings.client.recovery_max_publication_limit = *prng.pick(&[300, 5]);
    settings.notices = NoticeSettings {
        clients: true,
        vacated_delay: Some(ms(*prng.pick(&[0, 300, 3_000]))),
    };
    settings.linger_timeout = ms(*prng.pick(&[5_000, 1_000]));
    settings.stall_timeout = 4 * settings.linger_timeout;
    settings.drain_linger = settings.linger_timeout / 5;
    settings.outbound_bytes_max = *prng.pick(&[1 << 20, 1 << 20, 1 << 20, 16_384, 4_096, 1_200]);
    let poll_min = ms(*prng.pick(&[200, 1_000, 5_000]));
    settings.readers = ReaderSettings {
        poll_min,
        poll_max: poll_min + ms(*prng.pick(&[0, 0, 1_000])),
        keep_alive: ms(*prng.pick(&[75_000, 2_000])),
        events_max: ms(*prng.pick(&[0, 0, 4_000])),
        is_public: prng.one_in(2),
        ..settings.readers
    };
    plan
}

impl Scenario {
    fn new(profile: Profile, prng: &mut Prng, is_printed: bool) -> Self {
        let plan = plan(prng);
        let reads = prng.one_in(4).then(|| Rate {
            count: *prng.pick(&[1, 2, 5]),
            period: Duration::from_millis(*prng.pick(&[100, 1_000, 10_000])),
        });
        let mut scenario = Self::with_reads(reads, plan, prng, is_printed);
        scenario.facts.profile = profile;
        scenario.reloads = profile == Profile::Together && prng.one_in(3);
        if profile.has_sessions() {
            let count = prng.between(2, 8);
            scenario.clients = (0..count).map(|id| Client::new(id, prng)).collect();
        }
        scenario
    }

    /// One whose readers may send so many requests.
    pub(super) fn with_reads(
        reads: Option<Rate>,
        mut plan: Plan,
        prng: &mut Prng,
        is_printed: bool,
    ) -> Self {
        let limits = Arc::make_mut(&mut plan.settings.limits);
        limits.reads = reads.map(Rate::limit);
        let mut scenario = Self::with(plan, prng, is_printed);
        scenario.facts.reads = reads;
        scenario
    }

    pub(super) fn with(plan: Plan, prng: &mut Prng, is_printed: bool) -> Self {
        let data_bytes_max = *prng.pick(&[10, 200, 1_500]);
        let facts = Facts::new(Profile::Readers, data_bytes_max, &plan);
        let world = World::new(plan, prng.fork(), is_printed);
        Self {
            writers: Writers::new(world.ledger.replies.clone()),
            desk: Desk::new(world.ledger.replies.clone()),
            world,
            readers: Vec::new(),
            guests: Vec::new(),
            clients: Vec::new(),
            listeners: Vec::new(),
            facts,
            is_quiet: false,
            reloads: false,
            changes: BTreeMap::new(),
        }
    }

    fn step(&mut self) {
        self.world.work.steps += 1;
        match self.world.prng.below(200) {
            kind @ 0..188 => self.happen(kind),
            188..198 => {
                let ms = *self.world.prng.pick(&[1, 10, 60, 250, 1_000, 3_000]);
                self.advance(Duration::from_millis(ms));
            }
            198 => self.walk(Duration::from_secs(2)),
            _ => self.check_quiet(),
        }
    }

    /// A step that takes no time.
    pub(super) fn happen(&mut self, kind: usize) {
        match kind {
            0..80 => {
                let shard = self.world.prng.below(self.world.seats.len());
                self.world.turn(shard);
                self.exchange(false);
            }
            80..84 if self.facts.profile.has_sessions() => self.listen(),
            80..96 if self.facts.profile.has_readers() => self.come(),
            96..100 if self.facts.profile.has_readers() => self.welcome(),
            100..104 => self.desk.decide(&self.world.mesh, &mut self.world.prng),
            104 if self.facts.profile.has_readers() => self.meet(),
            105..108 if self.reloads => self.reload(),
            105..130 => {
                let Self {
                    world,
                    writers,
                    facts,
                    ..
                } = self;
                writers.act(&world.mesh, facts, &mut world.prng);
            }
            _ => self.act(),
        }
    }

    /// A listener comes, or does something.
    fn listen(&mut self) {
        let at = self.world.prng.below(LISTENERS_MAX);
        let Self {
            world,
            listeners,
            facts,
            ..
        } = self;
        if let Some(listener) = listeners.get_mut(at) {
            listener.act(&world.net, facts, &mut world.prng);
        } else {
            let number = world.connected;
            let (net, prng) = (&world.net, &mut world.prng);
            listeners.push(Listener::come(net, number, None, facts, prng));
            world.connected += 1;
        }
        world.log(format_args!("listener {at}"));
        self.retain();
    }

    /// Some client with a session does something.
    fn act_as_client(&mut self) {
        let Self {
            world,
            clients,
            facts,
            ..
        } = self;
        let at = world.prng.below(clients.len());
        let client = &mut clients[at];
        world.connected += usize::from(client.act(&world.net, facts, &mut world.prng));
        client.send_apart(&world.mesh, facts);
        world.log(format_args!("client {at}"));
    }

    fn come(&mut self) {
        let others = self.readers.len();
        if others < READERS_MAX {
            let number = self.add_reader();
            // It may know what others have read.
            if others > 0 {
                let other = self.world.prng.below(others);
                self.readers[others].found = self.readers[other].found.clone();
            }
            self.world.log(format_args!("reader {number} comes"));
        }
    }

    /// A reader connects. Returns its number.
    pub(super) fn add_reader(&mut self) -> usize {
        let (id, number) = (self.world.net.connect(), self.world.connected);
        self.world.connected += 1;
        self.readers.push(Reader::new(id, number, self.facts.now));
        number
    }

    /// A guest comes, or does something.
    fn welcome(&mut self) {
        let now = self.facts.now;
        let world = &mut self.world;
        let at = world.prng.below(GUESTS_MAX);
        if let Some(guest) = self.guests.get_mut(at) {
            guest.act(&world.net, &mut world.prng);
        } else {
            self.guests
                .push(Guest::come(&world.net, &mut world.prng, now));
            world.connected += 1;
        }
        self.world.log(format_args!("guest {at}"));
        self.retain();
    }

    /// Clients and a listener come, and are on their way when something happens to a stream.
    fn let_some_come(&mut self, room: usize, slow: usize) {
        let (world, facts) = (&mut self.world, &self.facts);
        for client in &mut self.clients {
            if client.is_gone() && client.reads(room, facts) && world.prng.one_in(2) {
                client.open(&world.net, Some(room), facts, &mut world.prng);
                world.connected += 1;
            }
        }
        let number = world.connected;
        let (net, prng) = (&world.net, &mut world.prng);
        self.listeners
            .push(Listener::come(net, number, Some(room), facts, prng));
        world.connected += 1;
        for _ in 0..self.world.prng.below(ARRIVAL_TURNS_MAX) {
            self.turn_unless(slow);
        }
    }

    /// Some shard does something, unless it is that one.
    fn turn_unless(&mut self, slow: usize) {
        let shards = self.world.seats.len();
        let shard = self.world.prng.below(shards);
        if shard != slow || shards == 1 {
            self.world.turn(shard);
        }
        self.exchange(false);
    }

    /// A stream is created again, and readers ask for it as soon as its writer knows.
    fn meet(&mut self) {
        let room = self.facts.focus;
        // One shard is slow: what its homes are asked waits.
        let slow = self.world.prng.below(self.world.seats.len());
        if self.facts.profile.has_sessions() {
            self.let_some_come(room, slow);
        }
        let Self {
            world,
            writers,
            facts,
            ..
        } = self;
        writers.renew(room, &world.mesh, facts, &mut world.prng);
        world.log(format_args!("stream {room} is renewed"));
        for _ in 0..MEETING_TURNS_MAX {
            if self.writers.is_answered() {
                break;
            }
            self.turn_unless(slow);
        }
        for reader in &mut self.readers {
            reader.ask_about(room, &self.world.net, &mut self.facts);
        }
        if self.world.prng.one_in(4) {
            self.facts.focus = self.world.prng.below(STREAMS);
        }
    }

    fn act(&mut self) {
        let profile = self.facts.profile;
        if profile.has_sessions() && (!profile.has_readers() || self.world.prng.one_in(2)) {
            return self.act_as_client();
        }
        if self.readers.is_empty() {
            return;
        }
        let at = self.world.prng.below(self.readers.len());
        let reader = &mut self.readers[at];
        let before = reader.asked.len();
        reader.act(&self.world.net, &mut self.facts, &mut self.world.prng);
        let number = reader.number;
        if let Some(asked) = reader.asked.back().filter(|_| reader.asked.len() > before) {
            let asked = (asked.room, asked.from, asked.live);
            self.world
                .log(format_args!("reader {number} asks for {asked:?}"));
        }
        self.retain();
    }

    fn retain(&mut self) {
        let world = &mut self.world;
        for reader in self.readers.iter().filter(|reader| reader.is_gone()) {
            world.former_peers.received_bytes += reader.received_bytes;
        }
        self.readers.retain(|reader| !reader.is_gone());
        self.guests.retain(|guest| !guest.is_gone());
        self.listeners.retain(|listener| !listener.is_gone());
    }
}

impl Node for Scenario {
    fn world(&mut self) -> &mut World {
        &mut self.world
    }

    fn exchange(&mut self, writes: bool) -> bool {
        self.facts.now = self.world.scene.now;
        let mut is_moving = self.writers.take_answers(&mut self.facts);
        is_moving |= self.facts.take_replies(&self.world.ledger.replies);
        is_moving |= self.desk.attend();
        is_moving |= self.is_quiet && self.desk.clear(&self.world.mesh);
        for guest in &mut self.guests {
            is_moving |= guest.receive(&self.world.net, &mut self.facts);
        }
        for client in &mut self.clients {
            is_moving |= client.receive(&self.world.net, &mut self.facts);
            client.send_apart(&self.world.mesh, &mut self.facts);
        }
        for listener in &mut self.listeners {
            is_moving |= listener.receive(&self.world.net, &mut self.facts);
        }
        for reader in &mut self.readers {
            is_moving |= reader.receive(&self.world.net, &mut self.facts);
            if writes && reader.has_outbox() && !reader.is_gone() && !reader.has_ended {
                reader.write(&self.world.net, usize::MAX);
                is_moving = true;
            }
        }
        self.retain();
        is_moving
    }

    fn note_settled(&mut self) {
        self.note_settled_requests();
    }

    fn advance(&mut self, duration: Duration) {
        self.world.advance(duration);
        self.facts.now = self.world.scene.now;
    }
}
