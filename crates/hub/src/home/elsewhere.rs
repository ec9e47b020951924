//! Users who have clients on other nodes of a cluster.
//!
//! Where users are announced instead of clients, a user joins a channel with the first client on any node, and leaves with the last.
//! Each node says which users come and go among its own clients ([`Told`]); each home knows the users of the others, also in channels
//! that nobody watches here yet.
//!
//! What nodes say may be lost. So a node says all of it again in a *round*, with a higher number, whenever another one asks. When the
//! last home of that node has ended its part, users of it from earlier rounds are no longer there.

use super::Home;
use crate::{ClientId, ClientInfo, PresenceChange, PresenceEvent};
use std::collections::HashMap;
use std::sync::Arc;

/// What other nodes are to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// A client joined or left.
    Client(PresenceEvent),
    /// A user's first client here joined, or the last one left; said in this round.
    User(PresenceEvent, u64),
    /// This home has said all of a round.
    RoundEnd(u64),
}

/// What another node says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FromNode {
    /// Its name.
    pub node: Arc<str>,
    /// What it says.
    pub says: NodeSays,
}

/// What a node says, or what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeSays {
    /// Its subscribers were told of a client.
    Client(PresenceEvent),
    /// A user's first client there has joined, or the last one has left; said in this round.
    User(PresenceEvent, u64),
    /// One of its homes has said all of a round.
    RoundEnd {
        /// The round.
        round: u64,
        /// How many homes it has.
        homes: u32,
    },
    /// It has gone, and its clients with it.
    Gone,
}

/// The nodes that have a user, and the rounds in which they said so.
type Nodes = Vec<(Arc<str>, u64)>;

/// Users on other nodes, and what those are to be told.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    /// By channel and user.
    users: HashMap<Arc<str>, HashMap<Arc<str>, Nodes>>,
    /// Of each node: the round whose end is awaited, and how many of its homes have ended it.
    ended: HashMap<Arc<str>, (u64, u32)>,
    /// The round in which this home says what happens.
    round: u64,
    /// The next record whose users are to be said in this round; none once all are.
    said_to: Option<u32>,
}

impl Elsewhere {
    fn has(&self, channel: &str, user: &str) -> bool {
        let users = self.users.get(channel);
        users.is_some_and(|users| users.contains_key(user))
    }

    /// Notes that a node has a user. Whether no other one had.
    fn note(&mut self, node: Arc<str>, round: u64, event: &PresenceEvent) -> bool {
        let users = self.users.entry(Arc::clone(&event.channel)).or_default();
        let nodes = users.entry(Arc::clone(&event.info.user)).or_default();
        let is_first = nodes.is_empty();
        match nodes.iter_mut().find(|(known, _)| *known == node) {
            Some((_, at)) => *at = round.max(*at),
            None => nodes.push((node, round)),
        }
        is_first
    }

    /// Forgets what `is_over` says of a node and its round. Returns the users whom nobody has any more, and their channels.
    fn forget(&mut self, is_over: impl Fn(&str, u64) -> bool) -> Vec<(Arc<str>, Arc<str>)> {
        let mut gone = Vec::new();
        self.users.retain(|channel, users| {
            users.retain(|user, nodes| {
                nodes.retain(|(node, round)| !is_over(node, *round));
                if nodes.is_empty() {
                    gone.push((Arc::clone(channel), Arc::clone(user)));
                }
                !nodes.is_empty()
            });
            !users.is_empty()
        });
        gone
    }

    /// Forgets that a node has a user. Whether nobody has any more.
    fn forget_user(&mut self, node: &str, event: &PresenceEvent) -> bool {
        let Some(users) = self.users.get_mut(&event.channel) else {
            return false;
        };
        let Some(nodes) = users.get_mut(&event.info.user) else {
            return false;
        };
        nodes.retain(|(known, _)| **known != *node);
        if !nodes.is_empty() {
            return false;
        }
        users.remove(&event.info.user);
        if users.is_empty() {
            self.users.remove(&event.channel);
        }
        true
    }
}

impl Home {
    /// Says what other nodes are to be told, if this node is one of several.
    #[must_use]
    pub fn with_nodes(mut self, has_nodes: bool) -> Self {
        self.elsewhere = has_nodes.then(Box::default);
        self
    }

    /// The next thing that other nodes are to be told.
    pub fn poll_told(&mut self) -> Option<Told> {
        self.told.pop_front()
    }

    pub(super) fn tell_of_client(&mut self, event: &PresenceEvent) {
        if self.elsewhere.is_some() {
            self.told.push_back(Told::Client(event.clone()));
        }
    }

    /// Tells other nodes of a user's first or last client here. Whether the user has none on other nodes.
    pub(super) fn tell_of_user(&mut self, event: &PresenceEvent) -> bool {
        let Some(elsewhere) = &self.elsewhere else {
            return true;
        };
        self.told
            .push_back(Told::User(event.clone(), elsewhere.round));
        !elsewhere.has(&event.channel, &event.info.user)
    }

    /// Tells other nodes that a record has no users any more.
    pub(super) fn tell_of_nobody(&mut self, index: u32) {
        let record = &self.channels[index];
        let Some(elsewhere) = &self.elsewhere else {
            return;
        };
        for user in record.users.users() {
            let left = event_of(&record.name, user, PresenceChange::Left);
            self.told.push_back(Told::User(left, elsewhere.round));
        }
    }

    /// Another node says something, or has gone.
    pub fn handle_node(&mut self, FromNode { node, says }: FromNode) {
        match says {
            NodeSays::Client(event) => self.announce(event),
            NodeSays::User(event, round) => self.handle_user(node, round, event),
            NodeSays::RoundEnd { round, homes } => self.handle_round_end(node, round, homes),
            NodeSays::Gone => self.handle_gone(&node),
        }
    }

    fn handle_user(&mut self, node: Arc<str>, round: u64, event: PresenceEvent) {
        let Some(elsewhere) = &mut self.elsewhere else {
            return;
        };
        let is_news = match event.change {
            PresenceChange::Joined => elsewhere.note(node, round, &event),
            PresenceChange::Left => elsewhere.forget_user(&node, &event),
        };
        if is_news && !self.has_user(&event.channel, &event.info.user) {
            self.announce(event);
        }
    }

    fn handle_round_end(&mut self, node: Arc<str>, round: u64, homes: u32) {
        let Some(elsewhere) = &mut self.elsewhere else {
            return;
        };
        let (awaited, ended) = elsewhere.ended.entry(Arc::clone(&node)).or_default();
        if *awaited < round {
            (*awaited, *ended) = (round, 0);
        }
        if *awaited > round {
            return;
        }
        *ended += 1;
        if *ended == homes {
            let gone = elsewhere.forget(|known, said| *known == *node && said < round);
            self.announce_gone(gone);
        }
    }

    fn handle_gone(&mut self, node: &str) {
        let Some(elsewhere) = &mut self.elsewhere else {
            return;
        };
        elsewhere.ended.remove(node);
        let gone = elsewhere.forget(|known, _| known == node);
        self.announce_gone(gone);
    }

    fn announce_gone(&mut self, gone: Vec<(Arc<str>, Arc<str>)>) {
        for (channel, user) in gone {
            if !self.has_user(&channel, &user) {
                self.announce(event_of(&channel, &user, PresenceChange::Left));
            }
        }
    }

    fn has_user(&self, channel: &str, user: &str) -> bool {
        let index = self.names.get(channel);
        index.is_some_and(|&index| self.channels[index].users.has(user))
    }

    /// Begins a round: [`Home::say_round`] says who is here.
    pub fn begin_round(&mut self, round: u64) {
        if let Some(elsewhere) = &mut self.elsewhere {
            elsewhere.round = round;
            elsewhere.said_to = Some(0);
        }
    }

    /// Whether [`Home::say_round`] has something to do.
    #[must_use]
    pub fn is_in_round(&self) -> bool {
        let elsewhere = self.elsewhere.as_ref();
        elsewhere.is_some_and(|elsewhere| elsewhere.said_to.is_some())
    }

    /// Says which users the next `max` records have: a home with a million channels must not stop for that.
    pub fn say_round(&mut self, max: u32) {
        let Some(elsewhere) = &mut self.elsewhere else {
            return;
        };
        let (Some(begin), round) = (elsewhere.said_to, elsewhere.round) else {
            return;
        };
        let slots_end = self.channels.slots_end();
        let end = begin.saturating_add(max).min(slots_end);
        elsewhere.said_to = (end < slots_end).then_some(end);
        for index in begin..end {
            if self.channels.key_of(index).is_none() {
                continue;
            }
            let record = &self.channels[index];
            for user in record.users.users() {
                let joined = event_of(&record.name, user, PresenceChange::Joined);
                self.told.push_back(Told::User(joined, round));
            }
        }
        if end == slots_end {
            self.told.push_back(Told::RoundEnd(round));
        }
    }
}

/// What a user does of whose clients no one is meant: the client's id is the nil UUID (RFC 9562, section 5.9).
fn event_of(channel: &Arc<str>, user: &Arc<str>, change: PresenceChange) -> PresenceEvent {
    PresenceEvent {
        channel: Arc::clone(channel),
        change,
        info: Arc::new(ClientInfo {
            user: Arc::clone(user),
            client: ClientId([0; 16]),
            connection_info: None,
            channel_info: None,
        }),
    }
}
