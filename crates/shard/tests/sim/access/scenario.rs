//! A node, its clients and its application, from beginning to end.

use super::client::Client;
use super::desk::Desk;
use super::facts::Facts;
use super::orders::{Wanted, draw};
use super::rules::{Fixed, ROOMS, Rules, USERS};
use super::tokens::{Revoked, Token, user_name};
use crate::ending::DRAIN_SLACK_NS;
use crate::request;
use crate::verdict::{TICK_NS, ns};
use crate::world::World;
use myriad_reactor::sim::{Faults, Prng};
use myriad_shard::{Payload, Users, Whose};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Clients at once.
const CLIENTS_MAX: usize = 10;
/// Rounds without anything new after which it is quiet.
const QUIET_ROUNDS: usize = 6;
/// A shard of small slices has to be turned so often for what is left.
const TURNS_AFTER_THE_END: usize = 50;
/// What may come late: some ticks.
const SLACK_NS: u64 = 4 * TICK_NS;

struct Scenario {
    world: World,
    clients: Vec<Client>,
    desk: Desk,
    facts: Facts,
}

/// One node from beginning to end.
pub(crate) fn run(prng: &mut Prng, is_printed: bool) -> World {
    let mut scenario = Scenario::new(prng, is_printed);
    scenario.begin();
    for _ in 0..prng.between(80, 240) {
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

impl Scenario {
    fn new(prng: &mut Prng, is_printed: bool) -> Self {
        let (fixed, rules, revoked) = (Fixed::draw(prng), Rules::draw(prng), Revoked::default());
        let mut plan = fixed.plan(prng);
        plan.settings = rules.settings(&fixed, &revoked, &plan.settings);
        let is_tight = plan.limits.asks_max < 100;
        let world = World::new(plan, prng.fork(), is_printed);
        let mut facts = Facts::new(fixed, rules, revoked.clone(), world.scene.now);
        facts.is_tight = is_tight;
        let drops = prng.one_in(2);
        Self {
            desk: Desk::new(world.ledger.replies.clone(), revoked, fixed.subs_max, drops),
            world,
            clients: Vec::new(),
            facts,
        }
    }

    /// Some clients are there before anything else happens.
    fn begin(&mut self) {
        for _ in 0..self.world.prng.between(1, 5) {
            self.add_client();
        }
        self.settle();
        for client in &mut self.clients {
            if client.may_speak() {
                client.connect(&mut self.facts, &mut self.world.prng);
            }
        }
        self.settle();
    }

    fn step(&mut self) {
        self.world.work.steps += 1;
        match self.world.prng.below(204) {
            kind @ 0..192 => self.happen(kind),
            192..202 => {
                let ms = *self.world.prng.pick(&[1, 10, 60, 250, 1_000]);
                self.advance(Duration::from_millis(ms));
            }
            202 => self.walk(Duration::from_secs(2)),
            _ => self.check_quiet(),
        }
    }

    /// A step that takes no time.
    fn happen(&mut self, kind: usize) {
        match kind {
            0..70 => {
                let shard = self.world.prng.below(self.world.seats.len());
                self.world.turn(shard);
                self.exchange(false);
            }
            70..140 => self.act(),
            140..156 => self.publish(),
            156..166 => self.come(),
            166..180 => self
                .desk
                .decide(&self.world.mesh, self.world.now(), &mut self.world.prng),
            180..190 => self.order(),
            _ => self.reload(),
        }
    }

    fn advance(&mut self, duration: Duration) {
        self.world.advance(duration);
        self.facts.now = self.world.scene.now;
    }

    fn publish(&mut self) {
        let room = self.world.prng.below(ROOMS.len());
        let id = self.facts.issue(room, None);
        let data = Payload::Json(format!("{{\"n\":{id}}}").into());
        let is_taken = self.world.mesh.publish(ROOMS[room], data, None).is_ok();
        self.facts.issues[id].is_accepted = is_taken;
        assert!(is_taken || self.facts.is_draining, "there is room");
    }

    /// Other rules, from now on: each shard takes them when it comes to it.
    fn reload(&mut self) {
        let world = &mut self.world;
        let rules = Rules::draw(&mut world.prng);
        let base = &world.scene.plan.settings;
        let settings = rules.settings(&self.facts.fixed, &self.facts.revoked, base);
        world.mesh.reload(&Arc::new(settings));
        self.facts.versions.push(rules);
        self.facts.note("access: other rules");
        world.log(format_args!("{rules:?}"));
    }

    fn order(&mut self) {
        let (whose, wanted) = draw(&self.clients, &self.facts, &mut self.world.prng);
        self.world
            .log(format_args!("order {wanted:?} for {whose:?}"));
        self.facts
            .order(&self.world.mesh, &self.clients, whose, wanted);
    }

    /// The head of a client's request, behind the header of a proxy if there is one.
    fn head(&mut self) -> Vec<u8> {
        let mut head = Vec::new();
        if self.facts.fixed.proxy_protocol {
            head.extend_from_slice(if self.world.prng.one_in(6) {
                b"PROXY nonsense\r\n"
            } else {
                b"PROXY TCP4 192.0.2.1 10.0.0.9 1000 80\r\n"
            });
        }
        head.extend(request::handshake("/connection/websocket"));
        head
    }

    fn come(&mut self) {
        if self.clients.len() < CLIENTS_MAX {
            self.add_client();
        }
    }

    fn add_client(&mut self) -> usize {
        let head = self.head();
        let world = &mut self.world;
        let source = SocketAddr::from(([10, 0, 0, *world.prng.pick(&[1, 2, 3])], 1_000));
        let (id, number) = (world.net.connect_from(source), world.connected);
        world.connected += 1;
        let mut client = Client::new(id, number, head);
        client.write(&world.net, usize::MAX, &mut world.prng);
        world.log(format_args!("client {number} comes"));
        self.clients.push(client);
        number
    }

    /// Some client does something.
    fn act(&mut self) {
        if self.clients.is_empty() {
            return;
        }
        let Self {
            world,
            clients,
            facts,
            ..
        } = self;
        let at = world.prng.below(clients.len());
        let (net, prng, client) = (&world.net, &mut world.prng, &mut clients[at]);
        let room = prng.below(ROOMS.len());
        let kind = prng.below(100);
        match kind {
            0..3 => client.leave(net, prng),
            3..6 => {
                net.stall(client.id);
                client.is_stalled = true;
            }
            6..10 => {
                net.resume(client.id);
                client.is_stalled = false;
            }
            10..24 => drop(client.write(net, prng.between(1, 300), prng)),
            _ if client.may_speak() && client.is_new() => client.connect(facts, prng),
            _ if !client.may_speak() || client.name.is_none() => {}
            24..50 => client.subscribe(room, facts, prng),
            50..56 => client.unsubscribe(room, facts),
            56..68 => client.publish(room, facts),
            68..70 => (0..9).for_each(|_| client.publish(room, facts)),
            70 => (0..16).for_each(|_| client.rpc(facts)),
            71..76 => client.rpc(facts),
            76..86 => client.refresh(facts, prng),
            _ => {
                let rooms: Vec<usize> = client.visits.keys().copied().collect();
                if !rooms.is_empty() {
                    client.sub_refresh(*prng.pick(&rooms), facts, prng);
                }
            }
        }
        if prng.one_in(2) {
            client.write(net, usize::MAX, prng);
        }
        let number = client.number;
        world.log(format_args!("client {number}: {kind} {}", ROOMS[room]));
    }

    /// Clients read, and write if `writes`. True when anything came or went.
    fn exchange(&mut self, writes: bool) -> bool {
        let Self {
            world,
            clients,
            desk,
            facts,
        } = self;
        facts.now = world.scene.now;
        let mut is_moving = desk.attend(&world.mesh, world.now(), &mut world.prng);
        facts.take_own(std::mem::take(&mut desk.events));
        facts.take_ordered(&world.ledger.replies);
        for client in clients.iter_mut() {
            is_moving |= client.receive(&world.net, facts, desk);
            is_moving |= writes && client.write(&world.net, usize::MAX, &mut world.prng);
            client.check_rates(facts);
            if client.is_gone() {
                client.check_end(facts, desk);
            }
        }
        clients.retain(|client| !client.is_gone());
        is_moving
    }

    /// Lets everything arrive, without time passing.
    fn settle(&mut self) {
        let faults = self.world.scene.plan.faults;
        self.world.net.set_faults(Faults {
            kernel_bytes: faults.kernel_bytes,
            ..Faults::NONE
        });
        let mut quiet = 0;
        for round in 0.. {
            assert!(round < 100_000, "it never gets quiet");
            let mut is_moving = false;
            for index in 0..self.world.seats.len() {
                is_moving |= self.world.turn(index);
            }
            is_moving |= self.exchange(true);
            quiet = if is_moving { 0 } else { quiet + 1 };
            if quiet == QUIET_ROUNDS {
                break;
            }
        }
        self.world.net.set_faults(faults);
        self.facts.note_settled();
    }

    /// Moves time on from one deadline to the next, and lets each of them have its effect.
    fn walk(&mut self, duration: Duration) {
        let end = self.world.scene.now + ns(duration);
        loop {
            self.settle();
            let seats = self.world.seats.iter().filter(|seat| !seat.is_finished);
            let next = seats.filter_map(|seat| seat.wakes_at).min();
            match next {
                Some(next) if next < end => self.world.scene.now = next,
                _ => break,
            }
        }
        self.world.scene.now = end;
        self.settle();
    }

    // Quiet.

    /// Everybody reads all there is, and nothing waits; then all agree.
    fn check_quiet(&mut self) {
        for client in &mut self.clients {
            self.world.net.resume(client.id);
            client.is_stalled = false;
        }
        self.settle();
        self.desk.holds = false;
        self.desk
            .clear(&self.world.mesh, self.world.now(), &mut self.world.prng);
        // Longer than the deadline of what it has dropped, also of some that wait for each other.
        let timeout = self.facts.fixed.ask_timeout;
        self.walk(2 * timeout);
        let is_waiting = |client: &Client| client.is_connected() && !client.asked.is_empty();
        for _ in 0..40 {
            if self.clients.iter().any(is_waiting) {
                self.walk(timeout);
            }
        }
        assert_eq!(self.world.mesh.publication_bytes(), 0, "all is delivered");
        for client in &self.clients {
            self.check_client(client);
        }
        self.check_users();
        self.facts.check_orders(&self.clients);
        self.check_described();
        self.check_room_for_one_more();
        self.desk.holds = true;
        self.world.work.quiets += 1;
        self.facts.note("access: a quiet moment");
        self.world.log(format_args!("quiet"));
    }

    /// It has got everything, and nothing of it is overdue.
    fn check_client(&self, client: &Client) {
        if !client.is_connected() {
            return;
        }
        let (number, now) = (client.number, self.facts.now);
        assert!(
            client.asked.is_empty(),
            "client {number} waits: {:?}",
            client.asked
        );
        let is_over = |due: &super::facts::Due| due.to.is_some_and(|to| to + SLACK_NS < now);
        let is_overdue = client.due.as_ref().is_some_and(is_over);
        assert!(
            !is_overdue,
            "client {number} has not expired: {:?}",
            client.due
        );
        assert!(
            !self.facts.revoked.contains(client.token_id),
            "client {number} is revoked"
        );
        let name = client.name.clone().unwrap_or_default();
        let renewal = |room| self.facts.renewals.get(&(name.clone(), room));
        let is_forgotten = |room| {
            let due = renewal(room).and_then(|renewal| renewal.due);
            due.as_ref().is_some_and(is_over) && !self.facts.is_tight
        };
        assert!(
            !is_forgotten(None),
            "client {number}: nobody is asked about it"
        );
        for (&room, visit) in &client.visits {
            let is_overdue = visit.due.as_ref().is_some_and(is_over);
            assert!(!is_overdue, "client {number} {}: {visit:?}", ROOMS[room]);
            assert!(
                !is_forgotten(Some(room)),
                "client {number}: nobody is asked about {room}"
            );
            for (id, issue) in self.facts.issues.iter().enumerate().skip(visit.since) {
                let is_missing =
                    issue.room == room && issue.is_accepted && !visit.received.contains(&id);
                assert!(
                    !is_missing,
                    "client {number} has not got {id} of {}",
                    ROOMS[room]
                );
            }
        }
    }

    fn connected_of(&self, user: usize) -> usize {
        let of_user = |client: &&Client| client.is_connected() && client.user == user;
        self.clients.iter().filter(of_user).count()
    }

    /// No user has more connections than it may.
    fn check_users(&self) {
        let fixed = self.facts.fixed;
        let most = match fixed.users_max {
            _ if fixed.single_connection => 1,
            0 => usize::MAX,
            limit => limit as usize,
        };
        let users: Vec<usize> = (1..=USERS).map(|user| self.connected_of(user)).collect();
        assert!(users.iter().all(|count| *count <= most), "{users:?}");
    }

    /// The application finds who is there, each user by himself, and all.
    fn check_described(&mut self) {
        let users = (0..=USERS).map(|user| user_name(user).map_or(Users::Anonymous, Users::One));
        let whose = users.chain([Users::All]).map(|users| Whose {
            users,
            ..Whose::default()
        });
        let orders: Vec<usize> = whose
            .filter_map(|whose| {
                self.facts
                    .order(&self.world.mesh, &self.clients, whose, Wanted::Describe)
            })
            .collect();
        self.settle();
        for number in orders {
            self.facts.check_described(number, &self.clients);
        }
    }

    /// A user who has fewer connections than the limit gets one more, and a user with as many gets none.
    fn check_room_for_one_more(&mut self) {
        let rules = *self.facts.rules();
        let fixed = self.facts.fixed;
        if fixed.users_max == 0
            || fixed.single_connection
            || !rules.tokens
            || fixed.limits_connections()
        {
            return;
        }
        let user = self.world.prng.between(1, USERS);
        let before = self.connected_of(user);
        let number = self.add_client();
        self.settle();
        let serial = self.facts.serial();
        let token = Token {
            serial,
            user,
            ..Token::default()
        };
        let client = self
            .clients
            .iter_mut()
            .find(|client| client.number == number);
        let Some(client) = client.filter(|client| client.is_upgraded) else {
            return;
        };
        client.connect_with(Some(token), &mut self.facts);
        self.settle();
        let client = self.clients.iter().find(|client| client.number == number);
        let has_connected = client.is_some_and(Client::is_connected);
        assert_eq!(
            has_connected,
            before < fixed.users_max as usize,
            "one more than {before}"
        );
        self.facts
            .note("access: a user has as many connections as it may, and no more");
    }

    // The end.

    /// The node drains while clients go on. It comes to an end in time.
    fn drain(&mut self) {
        let over = Duration::from_millis(*self.world.prng.pick(&[0, 300, 3_000]));
        self.world.log(format_args!("drains over {over:?}"));
        self.world.mesh.drain(over);
        self.world.scene.is_draining = true;
        self.facts.is_draining = true;
        self.facts.note("access: the node drains");
        let linger = self.world.scene.plan.settings.linger_timeout;
        let deadline = self.world.scene.now + ns(over) + ns(linger) + DRAIN_SLACK_NS;
        while self.world.seats.iter().any(|seat| !seat.is_finished) {
            assert!(self.world.scene.now <= deadline, "the drain does not end");
            for _ in 0..self.world.prng.below(10) {
                let kind = self.world.prng.below(190);
                self.happen(kind);
            }
            for _ in 0..1_000 {
                let mut is_awake = false;
                for index in 0..self.world.seats.len() {
                    is_awake |= self.world.turn(index);
                }
                self.exchange(false);
                if !is_awake {
                    break;
                }
            }
            let pause = 20 + self.world.prng.below(30) as u64;
            self.advance(Duration::from_millis(pause));
        }
        for client in &mut self.clients {
            self.world.net.resume(client.id);
        }
        self.settle();
        let is_accepted = self.world.net.backlog() == 0;
        for client in &mut self.clients {
            assert!(!is_accepted, "client {}: no end", client.number);
            client.leave(&self.world.net, &mut self.world.prng);
        }
        self.exchange(false);
        self.desk
            .clear(&self.world.mesh, self.world.now(), &mut self.world.prng);
        // Some was asked that nobody will answer.
        self.advance(2 * self.facts.fixed.ask_timeout);
        let now = self.world.now();
        for _ in 0..TURNS_AFTER_THE_END {
            for seat in &mut self.world.seats {
                seat.shard.turn(now);
            }
        }
        self.exchange(false);
        self.check_end();
    }

    /// All leave; then nothing is left.
    fn leave(&mut self) {
        for client in &mut self.clients {
            client.leave(&self.world.net, &mut self.world.prng);
        }
        let patience = Rc::clone(&self.world.scene.plan).settings.linger_timeout;
        self.walk(patience + Duration::from_secs(1));
        self.desk
            .clear(&self.world.mesh, self.world.now(), &mut self.world.prng);
        self.walk(2 * self.facts.fixed.ask_timeout);
        assert!(self.clients.is_empty(), "somebody has seen no end");
        self.check_end();
    }

    fn check_end(&mut self) {
        let missing = self.facts.orders.iter().find(|order| !order.is_answered());
        assert!(missing.is_none(), "nobody has answered {missing:?}");
        for (what, count) in std::mem::take(&mut self.facts.reached) {
            self.world.reach.add(what, count);
        }
        self.world.replies = self.world.sum(|metrics| &metrics.publications);
        self.world.check_end();
    }
}
