//! Clients that speak the Centrifuge protocol, in a node of their own.
//!
//! They subscribe, publish, leave at any byte and recover, in channels of namespaces with and without history. What they are
//! told is checked as it comes (`visitor`), and against what all others were told (`rooms`).

use crate::desk::Desk;
use crate::node::Node;
use crate::plan::Plan;
use crate::rooms::{ROOMS, Rooms, kind_of};
use crate::visitor::{SHUTDOWN, Visitor};
use crate::world::World;
use myriad_reactor::sim::Prng;
use myriad_shard::{
    ChannelOptions, Namespaces, Payload, PersonalChannel, PublishRefused, Right, SlowConsumer,
};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Time after which no record of a channel is kept.
const META_TTL: Duration = Duration::from_secs(60);
const BATCH_DELAY: Duration = Duration::from_millis(200);
/// Time for an answer of the control plane, where it answers late or never.
const SHORT_TIMEOUT: Duration = Duration::from_millis(200);
/// Of the kinds of steps, those that take no time: the first ones.
const STEPS_WITHOUT_TIME: usize = 191;

/// A node and its visitors.
struct Hall {
    world: World,
    visitors: Vec<Visitor>,
    rooms: Rooms,
    desk: Desk,
    /// No history is too small, and nobody reads too slowly: whoever comes back recovers.
    is_roomy: bool,
}

/// One node from beginning to end.
pub(crate) fn run(prng: &mut Prng, is_printed: bool) -> World {
    let mut hall = Hall::new(prng, is_printed);
    for _ in 0..prng.between(100, 300) {
        hall.step();
    }
    if hall.world.prng.one_in(4) {
        hall.drain();
    } else {
        hall.check_quiet();
        hall.leave();
    }
    hall.world
}

fn namespaces(is_roomy: bool, prng: &mut Prng) -> Namespaces {
    let plain = ChannelOptions {
        presence: true,
        join_leave: true,
        force_push_join_leave: true,
        subscribe: Right::ALL,
        publish: Right::ALL,
        presence_read: Right::ALL,
        history_read: Right::ALL,
        ..ChannelOptions::default()
    };
    let size = if is_roomy {
        100_000
    } else {
        *prng.pick(&[2, 10, 100])
    };
    let ttl = if is_roomy {
        60_000
    } else {
        *prng.pick(&[300, 5_000, 60_000])
    };
    let history = ChannelOptions {
        join_leave: false,
        force_push_join_leave: false,
        history_size: size,
        history_ttl: Duration::from_millis(ttl),
        history_meta_ttl: META_TTL,
        force_recovery: true,
        ..plain.clone()
    };
    let batched = ChannelOptions {
        batch_delay: BATCH_DELAY,
        ..history.clone()
    };
    let excluding = ChannelOptions {
        exclude_sender: true,
        ..history.clone()
    };
    let gapped = ChannelOptions {
        slow_consumer: SlowConsumer::GapThenRecover,
        ..history.clone()
    };
    let oldest = ChannelOptions {
        slow_consumer: SlowConsumer::DropOldest,
        join_leave: false,
        force_push_join_leave: false,
        ..plain.clone()
    };
    let named = [
        ("h", history),
        ("b", batched),
        ("x", excluding),
        ("g", gapped),
        ("o", oldest),
    ];
    Namespaces::new(plain, named.map(|(name, options)| (name.into(), options)))
}

fn plan(is_roomy: bool, prng: &mut Prng) -> Plan {
    let mut plan = Plan::plain();
    plan.draw_node(prng);
    let settings = &mut plan.settings;
    settings.namespaces = Arc::new(namespaces(is_roomy, prng));
    settings.slice_max = *prng.pick(&[1, 2, 3, 7, 1024]);
    settings.ping_interval = Duration::from_millis(*prng.pick(&[0, 1_000, 5_000]));
    settings.pong_timeout = Duration::from_millis(600);
    settings.ask_timeout = *prng.pick(&[SHORT_TIMEOUT, Duration::from_secs(5)]);
    plan.limits.asks_max = *prng.pick(&[4_096, 1]);
    settings.client.user_id_http_header = Some("x-user".into());
    settings.client.stale_close_delay = Duration::from_secs(2);
    settings.client.personal_channel = (!is_roomy).then(|| PersonalChannel {
        namespace: Some((*prng.pick(&["h", "g"])).into()),
        single_connection: prng.one_in(3),
    });
    if !is_roomy {
        settings.outbound_bytes_max = *prng.pick(&[1 << 20, 16_384, 4_096]);
        settings.client.recovery_max_publication_limit = *prng.pick(&[300, 5]);
        plan.limits.history_bytes_max = *prng.pick(&[1 << 30, 20_000, 3_000]);
    } else {
        settings.client.recovery_max_publication_limit = 100_000;
    }
    plan
}

impl Node for Hall {
    fn world(&mut self) -> &mut World {
        &mut self.world
    }

    fn exchange(&mut self, writes: bool) -> bool {
        let world = &mut self.world;
        let now = world.now();
        let mut is_moving = self.desk.attend(&world.mesh, &mut world.prng);
        for visitor in &mut self.visitors {
            is_moving |= visitor.receive(&world.net, &mut self.rooms, now, &mut world.prng);
            is_moving |= writes && visitor.write(&world.net, usize::MAX);
            if visitor.is_gone() {
                visitor.check_close(&world.scene);
                if visitor.close == Some(SHUTDOWN) {
                    world.reach.note("session: told that the server shuts down");
                }
                visitor.end_visits(&mut self.rooms);
                world.former_peers.deliveries += visitor.deliveries;
            }
        }
        self.visitors.retain(|visitor| !visitor.is_gone());
        is_moving
    }
}

impl Hall {
    fn new(prng: &mut Prng, is_printed: bool) -> Self {
        let is_roomy = prng.one_in(3);
        let plan = plan(is_roomy, prng);
        let world = World::new(plan, prng.fork(), is_printed);
        Self {
            desk: Desk::new(
                world.ledger.replies.clone(),
                world.scene.plan.settings.ask_timeout == SHORT_TIMEOUT,
            ),
            world,
            visitors: Vec::new(),
            rooms: Rooms::default(),
            is_roomy,
        }
    }

    fn step(&mut self) {
        match self.world.prng.below(203) {
            kind @ 0..STEPS_WITHOUT_TIME => return self.happen(kind),
            191..193 => self.rush(),
            193..202 => {
                let ms = *self.world.prng.pick(&[1, 1, 10, 60, 250]);
                self.world.advance(Duration::from_millis(ms));
            }
            _ if self.world.prng.one_in(3) => self.check_quiet(),
            _ => self.walk_in_steps(3_000),
        }
        self.world.work.steps += 1;
    }

    /// A step that takes no time.
    fn happen(&mut self, kind: usize) {
        self.world.work.steps += 1;
        match kind {
            0..100 => {
                let shard = self.world.prng.below(self.world.seats.len());
                self.world.turn(shard);
                self.exchange(false);
            }
            100..160 => self.act(),
            160..176 => self.publish(),
            176..188 => self.come(),
            _ => self.desk.decide(&self.world.mesh, &mut self.world.prng),
        }
    }

    fn publish(&mut self) {
        let prng = &mut self.world.prng;
        let room = prng.below(ROOMS.len());
        let is_json = self.is_roomy || !prng.one_in(60);
        let count = *prng.pick(&[1, 1, 3, 12]);
        for _ in 0..count {
            let size = *prng.pick(&[0, 10, 100, 700]);
            self.rooms.publish(&self.world.mesh, room, size, is_json);
        }
        if !self.is_roomy && prng.one_in(4) {
            let namespace = *prng.pick(&["h", "g"]);
            for _ in 0..40 {
                let data = Payload::Json(format!("\"{:.>700}\"", "").into());
                let name = format!("{namespace}:#1");
                let taken = self.world.mesh.publish(&name, data, None);
                if self.world.is_unheard() {
                    assert_eq!(taken, Err(PublishRefused::Draining));
                } else {
                    // What is for a shard that has ended stays where it is.
                    assert!(taken.is_ok() || self.world.scene.is_draining, "{taken:?}");
                }
            }
        }
        self.world
            .log(format_args!("publish {count} to {}", ROOMS[room]));
        if self.world.prng.one_in(3) {
            self.meet(room);
        }
    }

    /// Some subscribe while publications are under way.
    fn meet(&mut self, room: usize) {
        let (net, prng) = (&self.world.net, &mut self.world.prng);
        for visitor in &mut self.visitors {
            if visitor.is_connected() && prng.one_in(2) {
                visitor.subscribe(room, &self.rooms, prng);
                visitor.write(net, usize::MAX);
            }
        }
    }

    /// Much for each room. Whoever reads nothing meanwhile is too slow, however long his channels wait for him.
    fn rush(&mut self) {
        for visitor in &mut self.visitors {
            if self.world.prng.one_in(3) {
                self.world.net.stall(visitor.id);
                visitor.is_stalled = true;
            }
        }
        let count = *self.world.prng.pick(&[10, 40]);
        for room in 0..ROOMS.len() {
            for _ in 0..count {
                self.rooms.publish(&self.world.mesh, room, 700, true);
            }
        }
        self.world.log(format_args!("rush of {count} to each room"));
        self.walk_in_steps(2_000);
        for visitor in &mut self.visitors {
            self.world.net.resume(visitor.id);
            visitor.is_stalled = false;
        }
    }

    fn come(&mut self) {
        if self.visitors.len() >= 12 {
            return;
        }
        let world = &mut self.world;
        let user = world.prng.one_in(2).then(|| world.prng.between(1, 2));
        let (id, number) = (world.net.connect(), world.connected);
        world.connected += 1;
        let expects = self.is_roomy;
        let timeout = world.scene.plan.settings.ask_timeout;
        let mut visitor = Visitor::new(id, number, user, expects, timeout, &mut world.prng);
        visitor.write(&world.net, usize::MAX);
        world.log(format_args!("visitor {number} comes, user {user:?}"));
        self.visitors.push(visitor);
    }

    /// Some visitor does something.
    fn act(&mut self) {
        if self.visitors.is_empty() {
            return;
        }
        let world = &mut self.world;
        let at = world.prng.below(self.visitors.len());
        let now = world.now();
        let (net, prng) = (&world.net, &mut world.prng);
        let visitor = &mut self.visitors[at];
        let room = prng.below(ROOMS.len());
        let kind = prng.below(100);
        match kind {
            0..4 => visitor.leave(net, prng),
            4..8 => {
                net.stall(visitor.id);
                visitor.is_stalled = true;
            }
            8..12 => {
                net.resume(visitor.id);
                visitor.is_stalled = false;
            }
            12 if visitor.may_speak() => visitor.err(prng),
            13..35 => {
                let most = prng.between(1, 300);
                visitor.write(net, most);
            }
            _ if visitor.may_speak() && visitor.is_new() => visitor.connect("", prng),
            _ if !visitor.is_connected() => {}
            35..65 => visitor.subscribe(room, &self.rooms, prng),
            65..72 => visitor.unsubscribe(room, prng),
            72..88 => {
                let size = *prng.pick(&[0, 10, 100]);
                visitor.publish(room, size, &mut self.rooms, prng);
            }
            88..92 => visitor.ask_members(room, prng),
            92..95 => visitor.rpc(now, prng),
            _ => visitor.ask_history(room, prng),
        }
        let number = visitor.number;
        world.log(format_args!("visitor {number}: {kind} {}", ROOMS[room]));
    }

    /// Moves time on in steps that are no shard's own.
    fn walk_in_steps(&mut self, ms: u64) {
        for _ in 0..ms.div_ceil(100) {
            self.settle();
            self.world.advance(Duration::from_millis(100));
        }
        self.settle();
    }

    /// Everybody reads all there is; then all agree.
    fn check_quiet(&mut self) {
        for visitor in &mut self.visitors {
            self.world.net.resume(visitor.id);
            visitor.is_stalled = false;
        }
        let (now, prng) = (self.world.now(), &mut self.world.prng);
        let speakers = self.visitors.iter_mut().filter(|one| one.is_connected());
        speakers.for_each(|visitor| visitor.rpc(now, prng));
        self.settle();
        self.desk.holds = false;
        self.settle();
        self.desk.clear(&self.world.mesh, &mut self.world.prng);
        // Longer than the deadline of what it has dropped.
        self.walk_in_steps(400);
        self.desk.holds = true;
        // Channels that waited for congested members go on.
        for _ in 0..40 {
            if self.world.mesh.publication_bytes() > 0 {
                self.walk_in_steps(400);
            }
        }
        assert_eq!(self.world.mesh.publication_bytes(), 0, "all is delivered");
        for visitor in &self.visitors {
            visitor.check_quiet(&self.rooms);
        }
        self.check_members();
        self.world.work.quiets += 1;
        self.world.log(format_args!("quiet"));
    }

    /// The member lists are who is subscribed.
    fn check_members(&mut self) {
        let prng = &mut self.world.prng;
        let asker = self.visitors.iter().position(Visitor::is_connected);
        let Some(asker) = asker else { return };
        let number = self.visitors[asker].number;
        self.visitors[asker].members.clear();
        (0..ROOMS.len()).for_each(|room| self.visitors[asker].ask_members(room, prng));
        self.settle();
        let Some(asker) = self
            .visitors
            .iter()
            .find(|visitor| visitor.number == number)
        else {
            return;
        };
        for (&room, members) in &asker.members {
            let inside = |visitor: &&Visitor| visitor.visits.contains_key(&room);
            let inside = self.visitors.iter().filter(inside);
            let expected: BTreeSet<_> = inside.filter_map(|one| one.client.clone()).collect();
            assert_eq!(*members, expected, "members of {}", ROOMS[room]);
            if kind_of(room).announces {
                self.visitors
                    .iter()
                    .for_each(|visitor| visitor.check_joined(room, members));
            }
        }
    }

    /// The node drains while visitors go on. It comes to an end in time, and all are told.
    fn drain(&mut self) {
        self.drain_while(|hall| {
            let kind = hall.world.prng.below(STEPS_WITHOUT_TIME);
            hall.happen(kind);
        });
        for visitor in &mut self.visitors {
            self.world.net.resume(visitor.id);
        }
        self.settle();
        let is_accepted = self.world.net.backlog() == 0;
        for visitor in &mut self.visitors {
            assert!(!is_accepted, "visitor {}: no end", visitor.number);
            visitor.leave(&self.world.net, &mut self.world.prng);
        }
        self.exchange(false);
        self.desk.clear(&self.world.mesh, &mut self.world.prng);
        // What shards sent to homes that had ended already; and histories are kept after their clients have gone.
        self.world.turn_after_the_end();
        self.world.advance(2 * META_TTL);
        self.world.turn_after_the_end();
        self.check_end();
    }

    /// All leave; when everything is forgotten, nothing is left.
    fn leave(&mut self) {
        for visitor in &mut self.visitors {
            visitor.leave(&self.world.net, &mut self.world.prng);
        }
        self.walk_in_steps(1_000);
        let patience = Rc::clone(&self.world.scene.plan).settings.linger_timeout;
        self.world.advance(patience);
        self.settle();
        self.world.advance(2 * META_TTL);
        self.walk_in_steps(1_000);
        // Whoever asked has gone, and was not waited for any more.
        self.desk.clear(&self.world.mesh, &mut self.world.prng);
        self.settle();
        assert!(self.visitors.is_empty(), "somebody has seen no end");
        self.check_end();
    }

    fn check_end(&mut self) {
        for what in std::mem::take(&mut self.rooms.reached) {
            self.world.reach.note(what);
        }
        self.world.replies = self.world.sum(|metrics| &metrics.publications);
        self.world.check_end();
    }
}
