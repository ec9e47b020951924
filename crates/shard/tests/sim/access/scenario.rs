//! A node, its clients and its application, from beginning to end.

use super::client::Client;
use super::desk::Desk;
use super::facts::Facts;
use super::orders::draw;
use super::rules::{Fixed, ROOMS, Rules};
use super::tokens::Revoked;
use crate::node::Node;
use crate::request;
use crate::world::World;
use myriad_reactor::sim::Prng;
use myriad_shard::Payload;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Clients at once.
const CLIENTS_MAX: usize = 10;
/// Last bytes of clients' addresses.
const HOSTS: [u8; 3] = [1, 2, 3];

pub(super) struct Scenario {
    pub(super) world: World,
    pub(super) clients: Vec<Client>,
    pub(super) desk: Desk,
    pub(super) facts: Facts,
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
            desk: Desk::new(world.ledger.replies.clone(), revoked, drops),
            world,
            clients: Vec::new(),
            facts,
        }
    }

    /// Some clients are there before anything else happens.
    pub(super) fn begin(&mut self) {
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

    pub(super) fn step(&mut self) {
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
    pub(super) fn happen(&mut self, kind: usize) {
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

    pub(super) fn publish(&mut self) {
        let room = self.world.prng.below(ROOMS.len());
        let id = self.facts.issue(room, None);
        let data = Payload::Json(format!("{{\"n\":{id}}}").into());
        let is_taken = self.world.mesh.publish(ROOMS[room], data, None).is_ok();
        self.facts.issues[id].is_accepted = is_taken;
        assert!(is_taken || self.facts.is_draining, "there is room");
    }

    /// Other rules, from now on: each shard takes them when it comes to it.
    pub(super) fn reload(&mut self) {
        let world = &mut self.world;
        let rules = Rules::draw(&mut world.prng);
        let base = &world.scene.plan.settings;
        let settings = rules.settings(&self.facts.fixed, &self.facts.revoked, base);
        world.mesh.reload(&Arc::new(settings));
        self.facts.versions.push(rules);
        self.facts.note("access: other rules");
        world.log(format_args!("{rules:?}"));
    }

    pub(super) fn order(&mut self) {
        let (whose, wanted) = draw(&self.clients, &self.facts, &mut self.world.prng);
        self.world
            .log(format_args!("order {wanted:?} for {whose:?}"));
        self.facts
            .order(&self.world.mesh, &self.clients, whose, wanted);
    }

    /// The head of a client's request, behind the header of a proxy if there is one.
    pub(super) fn head(&mut self) -> Vec<u8> {
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

    pub(super) fn come(&mut self) {
        if self.clients.len() < CLIENTS_MAX {
            self.add_client();
        }
    }

    pub(super) fn add_client(&mut self) -> usize {
        let head = self.head();
        let world = &mut self.world;
        let host = *world.prng.pick(&HOSTS);
        let source = SocketAddr::from(([10, 0, 0, host], 1_000));
        let (id, number) = (world.net.connect_from(source), world.connected);
        world.connected += 1;
        let mut client = Client::new(id, number, host, head);
        client.write(&world.net, usize::MAX, &mut world.prng);
        world.log(format_args!("client {number} comes"));
        self.clients.push(client);
        number
    }

    /// Some client does something.
    pub(super) fn act(&mut self) {
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
}

impl Node for Scenario {
    fn world(&mut self) -> &mut World {
        &mut self.world
    }

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

    fn note_settled(&mut self) {
        self.facts.note_settled();
    }

    fn advance(&mut self, duration: Duration) {
        self.world.advance(duration);
        self.facts.now = self.world.scene.now;
    }
}
