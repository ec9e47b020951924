//! The shards, their clients and the application, from beginning to end.

use crate::Counts;
use crate::client::Client;
use crate::ledger::Ledger;
use crate::notices::Application;
use crate::plan::{CHANNELS, KINDS, Plan, TAG, has_history};
use myriad_reactor::Waker;
use myriad_reactor::sim::{Faults, Prng, Sim, SimHandle, SimNet};
use myriad_shard::{
    ClientIds, Content, Epoch, HandOver, HandedBack, Mesh, Now, Origin, Payload, ProcessLimits,
    PublishOptions, RequestId, Shard, TurnedAway,
};
use std::collections::BTreeSet;
use std::io;

/// What the schedules of CI's seeds must come through.
pub(crate) const MUST_HAPPEN: [&str; 23] = [
    "a batch comes as one frame",
    "a channel is occupied or vacated",
    "a client cannot recover",
    "a client connects or disconnects",
    "a client recovers",
    "a connection ends without a close frame",
    "a client comes from elsewhere",
    "a client has the newest publication",
    "a client recovers the newest publication",
    "a client publishes and unsubscribes",
    "a delta is applied",
    "a join is told",
    "a leave is told",
    "a ping is answered",
    "a publication without a place comes",
    "a silent client ends with 3012",
    "a slow client ends with 3008",
    "a subscription ends in a gap",
    "publications are left out",
    "no publication is kept to recover",
    "nonsense ends with 1007 or 3501",
    "publications are dropped for a slow client",
    "a quiet moment with nothing missing",
];

/// Rounds in which nothing may happen before the world counts as quiet.
const QUIET_ROUNDS: usize = 6;
const ROUNDS_MAX: usize = 100_000;
const MS: u64 = 1_000_000;

/// No request but upgrades is sent.
struct NoDoor;

impl HandOver<SimHandle> for NoDoor {
    fn hand_over(&mut self, _: SimHandle, _: &[u8], _: Origin) -> io::Result<()> {
        Err(io::Error::other("nobody is there"))
    }

    fn take_back(&mut self) -> Option<HandedBack<SimHandle>> {
        None
    }

    fn turn_away(&mut self, handle: SimHandle, _: TurnedAway) {
        drop(handle);
    }
}

pub(crate) struct World {
    plan: Plan,
    prng: Prng,
    net: SimNet,
    mesh: Mesh,
    shards: Vec<Shard<Sim>>,
    clients: Vec<Client>,
    ledger: Ledger,
    /// What the application knows by notices.
    application: Application,
    now: u64,
    counts: Counts,
}

impl World {
    /// Runs a seed; how often what happened.
    pub(crate) fn run(seed: u64) -> Counts {
        let mut world = Self::new(seed);
        for step in 0..world.plan.steps {
            world.step();
            if step % 100 == 99 {
                world.check_quiet();
            }
        }
        world.check_quiet();
        world.end()
    }

    fn new(seed: u64) -> Self {
        let mut prng = Prng::new(seed).fork();
        let plan = Plan::new(&mut prng);
        let net = SimNet::new(prng.bits(), plan.faults);
        let ledger = Ledger::default();
        let mesh = Mesh::new(
            (0..plan.shards).map(|_| Waker::silent()).collect(),
            ProcessLimits {
                compression: plan.settings.compression,
                http_streams: true,
                ..ProcessLimits::default()
            },
            Epoch::new(seed),
            ClientIds::new(7),
            Box::new(ledger.replies.clone()),
        );
        let shard = |index| {
            let reactor = net.reactor(100);
            let settings = plan.settings.clone();
            Shard::new(
                index,
                reactor,
                mesh.clone(),
                settings,
                Box::new(NoDoor),
                7,
                Now(0),
            )
        };
        Self {
            shards: (0..plan.shards).map(shard).collect(),
            clients: (0..plan.clients)
                .map(|id| Client::new(id, &mut prng))
                .collect(),
            plan,
            prng,
            net,
            mesh,
            ledger,
            application: Application::default(),
            now: 0,
            counts: Counts::new(),
        }
    }

    fn step(&mut self) {
        match self.prng.below(300 + self.plan.publish_weight) {
            0..=149 => {
                let index = self.prng.below(self.shards.len());
                self.turn(index);
                self.exchange();
            }
            150..=279 => {
                let index = self.prng.below(self.clients.len());
                let client = &mut self.clients[index];
                client.act(&self.net, &self.plan, &mut self.ledger, &mut self.prng);
                client.send_apart(&self.mesh, &mut self.counts);
            }
            280..=299 => {
                let ms = *self.prng.pick(&[1, 30, 60, 300, 2_000]);
                self.now += ms * MS;
            }
            _ => self.publish(),
        }
    }

    /// The application publishes, mostly with a tag, and sometimes what history does not keep.
    fn publish(&mut self) {
        let channel = self.prng.below(CHANNELS.len());
        let filler = self.prng.below(self.plan.payload_bytes_max / 3);
        let (number, data) = self.ledger.attempt(channel, None, filler);
        let kind = (!self.prng.one_in(4)).then(|| *self.prng.pick(&KINDS));
        let skip_history = self.prng.one_in(12);
        let attempt = &mut self.ledger.attempts[number];
        attempt.kind = kind;
        attempt.has_place = has_history(channel) && !skip_history;
        let payload = Payload::Json(String::from_utf8(data).expect("text").into());
        let content = Content {
            tags: kind
                .map(|kind| (TAG.into(), kind.into()))
                .into_iter()
                .collect(),
            ..Content::new(payload)
        };
        let options = PublishOptions {
            skip_history,
            ..PublishOptions::default()
        };
        let id = Some(RequestId(number as u64));
        let name = CHANNELS[channel];
        let published = self.mesh.publish_content(name, content, options, id);
        published.expect("there is room");
    }

    fn turn(&mut self, index: usize) {
        let now = Now(self.now);
        let shard = &mut self.shards[index];
        shard.wait(now).expect("the simulated reactor always works");
        shard.turn(now);
        shard.check();
        self.application.read(&self.mesh, index);
        self.ledger.take_replies();
    }

    /// Clients read; true if anything came.
    fn exchange(&mut self) -> bool {
        let mut is_moving = false;
        for client in &mut self.clients {
            is_moving |= client.receive(&self.net, &self.plan, &mut self.ledger, &mut self.counts);
            client.send_apart(&self.mesh, &mut self.counts);
        }
        is_moving
    }

    /// Lets everything that is under way arrive.
    fn settle(&mut self) {
        self.net.set_faults(Faults {
            kernel_bytes: self.plan.faults.kernel_bytes,
            ..Faults::NONE
        });
        let mut quiet = 0;
        for round in 0.. {
            assert!(round < ROUNDS_MAX, "it never gets quiet");
            let before = self.net.fingerprint();
            for index in 0..self.shards.len() {
                self.turn(index);
            }
            let has_messages = (0..self.shards.len()).any(|shard| self.mesh.has_messages(shard));
            let is_moving = self.exchange() || has_messages || self.net.fingerprint() != before;
            quiet = if is_moving { 0 } else { quiet + 1 };
            if quiet == QUIET_ROUNDS {
                break;
            }
        }
        self.net.set_faults(self.plan.faults);
    }

    /// Moves time on in small steps, and lets each have its effect.
    fn walk(&mut self, ms: u64) {
        for _ in 0..ms.div_ceil(50) {
            self.now += 50 * MS;
            self.settle();
        }
    }

    fn check_quiet(&mut self) {
        for client in &mut self.clients {
            if let Some(socket) = &mut client.socket {
                socket.resume(&self.net);
            }
        }
        self.settle();
        // Batches leave, and channels that waited for congested members go on.
        for _ in 0..40 {
            self.walk(500);
            if self.mesh.publication_bytes() == 0 {
                break;
            }
        }
        assert_eq!(self.mesh.publication_bytes(), 0, "all is delivered");
        for client in &self.clients {
            client.check_quiet(&self.plan, &self.ledger);
        }
        self.check_notices();
        let channel = self.prng.below(CHANNELS.len());
        let subscribed = self
            .clients
            .iter()
            .filter(|client| client.is_subscribed(channel));
        let expected: BTreeSet<String> = subscribed.map(|client| client.name.clone()).collect();
        let asker = self.clients.iter().position(|client| client.is_connected);
        if let Some(asker) = asker {
            self.clients[asker].ask_presence(&self.net, channel);
            self.clients[asker].publish_in_quiet(&self.net, channel, &mut self.ledger);
            self.clients[asker].send_apart(&self.mesh, &mut self.counts);
            self.settle();
            self.clients[asker].end_quiet();
            if self.clients[asker].is_connected {
                self.clients[asker].check_presence(channel, &expected);
            }
        }
        *self
            .counts
            .entry("a quiet moment with nothing missing")
            .or_default() += 1;
    }

    /// The application knows who is connected, and where somebody is subscribed.
    fn check_notices(&self) {
        let connected = self.clients.iter().filter(|client| client.is_connected);
        assert_eq!(self.application.connected.len(), connected.count());
        for (channel, name) in CHANNELS.into_iter().enumerate() {
            let mut clients = self.clients.iter();
            let is_occupied = clients.any(|client| client.is_subscribed(channel));
            assert!(!is_occupied || self.application.occupied.contains(name));
        }
    }

    /// Everybody leaves: nothing may be left.
    fn end(mut self) -> Counts {
        for client in &self.clients {
            client.check_left_out(&self.ledger);
        }
        self.ledger.check_glimpses();
        for client in &mut self.clients {
            client.leave(&self.net, false);
        }
        self.settle();
        for _ in 0..10 {
            self.now += 10_000 * MS;
            self.settle();
        }
        self.application.check_end();
        let [channels, clients] = self.application.told;
        for (what, told) in [
            ("a channel is occupied or vacated", channels),
            ("a client connects or disconnects", clients),
        ] {
            if told > 0 {
                self.counts.insert(what, told);
            }
        }
        let dropped = self.mesh.metrics().iter();
        let dropped: u64 = dropped
            .map(|shard| shard.dropped_publications.value())
            .sum();
        if dropped > 0 {
            self.counts
                .insert("publications are dropped for a slow client", dropped);
        }
        for shard in self.shards.drain(..) {
            assert_eq!(shard.connection_count(), 0, "everybody has gone");
            shard.check();
        }
        assert!(self.net.leaked().is_empty());
        let limits = ProcessLimits {
            compression: self.plan.settings.compression,
            http_streams: true,
            ..ProcessLimits::default()
        };
        assert_eq!(self.mesh.available(), limits, "all was given back");
        self.counts
    }
}
