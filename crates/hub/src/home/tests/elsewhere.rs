//! Users of several nodes: random joins and leaves, messages that are lost, and nodes that end. Each home announces a user's joins and
//! leaves in turn, and in the end it has announced who is there.

use super::super::elsewhere::{FromNode, NodeSays, Told};
use super::{Home, HomeEffect, drain, home, join};
use crate::{ClientId, ClientInfo, Delivery, PresenceChange, PresenceEvent};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

const CHANNELS: [&str; 2] = ["loose:a", "loose:b"];
const USERS: [&str; 3] = ["u", "v", "w"];
/// Homes of each node.
const NODES: [usize; 3] = [1, 2, 2];

struct Node {
    name: Arc<str>,
    homes: Vec<Home>,
    /// Clients of a user in a channel.
    clients: BTreeMap<(usize, usize), u32>,
    rounds: u64,
    /// Who was announced as joined and not as left.
    announced: BTreeSet<(usize, usize)>,
    /// What it has told each node, until that hears it.
    told: [VecDeque<FromNode>; NODES.len()],
}

impl Node {
    fn new(name: String, homes: usize) -> Self {
        let mut homes: Vec<Home> = (0..homes).map(|_| home().with_nodes(true)).collect();
        for (number, channel) in CHANNELS.iter().enumerate() {
            let index = number % homes.len();
            join(&mut homes[index], channel, 0);
        }
        Self {
            name: name.into(),
            homes,
            clients: BTreeMap::new(),
            rounds: 0,
            announced: BTreeSet::new(),
            told: Default::default(),
        }
    }

    fn home_of(&mut self, channel: usize) -> &mut Home {
        let index = channel % self.homes.len();
        &mut self.homes[index]
    }

    fn hear(&mut self, from: &FromNode) {
        match &from.says {
            NodeSays::Client(event) | NodeSays::User(event, _) => {
                let channel = number_of(&CHANNELS, &event.channel);
                self.home_of(channel).handle_node(from.clone());
            }
            NodeSays::RoundEnd { .. } | NodeSays::Gone => {
                for home in &mut self.homes {
                    home.handle_node(from.clone());
                }
            }
        }
    }

    fn begin_round(&mut self) {
        self.rounds += 1;
        for home in &mut self.homes {
            home.begin_round(self.rounds);
        }
    }

    /// Carries out what homes want.
    fn run(&mut self) {
        let homes = u32::try_from(self.homes.len()).unwrap();
        for home in &mut self.homes {
            if home.is_in_round() {
                home.say_round(1);
            }
            for effect in drain(home) {
                let HomeEffect::Deliver {
                    delivery: Delivery::Presence(announcement),
                    ..
                } = effect
                else {
                    continue;
                };
                let event = announcement.event();
                let who = (
                    number_of(&CHANNELS, &event.channel),
                    number_of(&USERS, &event.info.user),
                );
                let is_change = match event.change {
                    PresenceChange::Joined => self.announced.insert(who),
                    PresenceChange::Left => self.announced.remove(&who),
                };
                assert!(is_change, "{} announces {event:?} twice", self.name);
            }
            while let Some(told) = home.poll_told() {
                let says = match told {
                    Told::Client(event) => NodeSays::Client(event),
                    Told::User(event, round) => NodeSays::User(event, round),
                    Told::RoundEnd(round) => NodeSays::RoundEnd { round, homes },
                };
                let node = Arc::clone(&self.name);
                let from = FromNode { node, says };
                for queue in &mut self.told {
                    queue.push_back(from.clone());
                }
            }
        }
    }
}

fn number_of(names: &[&str], name: &str) -> usize {
    names.iter().position(|known| *known == name).unwrap()
}

fn event(channel: usize, user: usize, change: PresenceChange) -> PresenceEvent {
    PresenceEvent {
        channel: CHANNELS[channel].into(),
        change,
        info: Arc::new(ClientInfo {
            user: USERS[user].into(),
            client: ClientId([1; 16]),
            connection_info: None,
            channel_info: None,
        }),
    }
}

struct Cluster {
    nodes: Vec<Node>,
    names: usize,
    random: u64,
}

impl Cluster {
    fn new(seed: u64) -> Self {
        let mut cluster = Self {
            nodes: Vec::new(),
            names: 0,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        };
        for homes in NODES {
            let name = cluster.name();
            cluster.nodes.push(Node::new(name, homes));
        }
        cluster
    }

    fn name(&mut self) -> String {
        self.names += 1;
        format!("n{}", self.names)
    }

    /// Xorshift (Marsaglia 2003).
    fn below(&mut self, end: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from(self.random % end as u64).unwrap()
    }

    fn step(&mut self) {
        let (at, other) = (self.below(NODES.len()), self.below(NODES.len()));
        match self.below(40) {
            0 => self.crash(at),
            1 => {
                // What is on its way to a node is lost; when it is back, both sides begin anew.
                for node in &mut self.nodes {
                    node.told[at].clear();
                }
                self.nodes[at].told.iter_mut().for_each(VecDeque::clear);
                self.nodes.iter_mut().for_each(Node::begin_round);
            }
            2 => self.nodes[at].begin_round(),
            3..20 => self.change(at),
            _ => {
                self.hear_one(at, other);
            }
        }
        self.nodes[at].run();
        self.nodes[other].run();
    }

    /// A client of a user comes or goes.
    fn change(&mut self, at: usize) {
        let who = (self.below(CHANNELS.len()), self.below(USERS.len()));
        let is_join = self.below(2) == 0;
        let node = &mut self.nodes[at];
        let clients = node.clients.entry(who).or_default();
        let change = match (is_join, *clients) {
            (true, _) => PresenceChange::Joined,
            (false, 0) => return,
            (false, _) => PresenceChange::Left,
        };
        *clients = match change {
            PresenceChange::Joined => *clients + 1,
            PresenceChange::Left => *clients - 1,
        };
        node.home_of(who.0)
            .handle_presence_event(event(who.0, who.1, change));
    }

    /// A node ends without a word, and another one comes in its place.
    fn crash(&mut self, at: usize) {
        let name = self.name();
        let gone = std::mem::replace(&mut self.nodes[at], Node::new(name, NODES[at]));
        for (index, node) in self.nodes.iter_mut().enumerate() {
            // What it has said comes, as far as it comes, before others notice that it is gone.
            if index != at {
                node.told[at].clear();
                node.hear(&FromNode {
                    node: Arc::clone(&gone.name),
                    says: NodeSays::Gone,
                });
            }
            node.begin_round();
        }
    }

    fn hear_one(&mut self, at: usize, from: usize) -> bool {
        if at == from {
            self.nodes[at].told[at].clear();
            return false;
        }
        let Some(heard) = self.nodes[from].told[at].pop_front() else {
            return false;
        };
        self.nodes[at].hear(&heard);
        true
    }

    /// Everything that is on its way arrives.
    fn settle(&mut self) {
        loop {
            self.nodes.iter_mut().for_each(Node::run);
            let mut is_over = self
                .nodes
                .iter()
                .all(|node| !node.homes.iter().any(Home::is_in_round));
            for at in 0..NODES.len() {
                for from in 0..NODES.len() {
                    is_over &= !self.hear_one(at, from);
                }
            }
            if is_over {
                return;
            }
        }
    }

    fn check(&self) {
        let there: BTreeSet<_> = self
            .nodes
            .iter()
            .flat_map(|node| &node.clients)
            .filter(|(_, clients)| **clients > 0)
            .map(|(who, _)| *who)
            .collect();
        for node in &self.nodes {
            assert_eq!(node.announced, there, "{}", node.name);
        }
    }
}

#[test]
fn every_node_announces_the_users_of_all() {
    for seed in 0..300 {
        let mut cluster = Cluster::new(seed);
        for _ in 0..20 {
            for _ in 0..30 {
                cluster.step();
            }
            cluster.settle();
            cluster.check();
        }
    }
}

#[test]
fn a_home_alone_tells_nobody() {
    let mut home = home();
    join(&mut home, CHANNELS[0], 0);
    home.handle_presence_event(event(0, 0, PresenceChange::Joined));
    home.begin_round(1);
    assert!(!home.is_in_round());
    assert_eq!(home.poll_told(), None);
}
