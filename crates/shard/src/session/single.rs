//! `single_connection`: a user's newest connection ends the older ones.

use crate::mesh::Message;
use crate::shard::Shard;
use myriad_hub::{CloseReason, Now};
use myriad_reactor::Reactor;
use myriad_wheel::{Key, Tick};
use std::sync::Arc;

/// A connection of a user who is to have one only.
#[derive(Clone, Debug)]
pub(crate) struct OnlyConnection {
    /// The user's personal channel: all connections of the user are subscribed to it.
    channel: Arc<str>,
    user: Arc<str>,
    /// When it was accepted; of two in one tick, the shard and the record decide.
    age: Age,
}

/// Orders the connections of a node: the newest is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Age {
    opened: Tick,
    shard: usize,
    index: u32,
}

impl<R: Reactor> Shard<R> {
    /// A client has connected: tells all shards, if its user is to have one connection only.
    pub(super) fn end_older_connections(&mut self, key: Key) {
        let personal = self.settings.client.personal_channel.as_ref();
        if !personal.is_some_and(|personal| personal.single_connection) {
            return;
        }
        let Some(channel) = self.personal_channel(key) else {
            return;
        };
        let Some(user) = self.hub.session(key.index).user.clone() else {
            return;
        };
        let newcomer = OnlyConnection {
            channel: channel.into(),
            user,
            age: self.age_of(key.index),
        };
        for shard in 0..self.mesh.shard_count() {
            self.send_message(shard, Message::OnlyConnection(Box::new(newcomer.clone())));
        }
    }

    /// A user has a connection on some shard. Older ones here end. If there is a newer one here, that shard is told of it again:
    /// when it was told first, the other connection may not have been subscribed.
    pub(crate) fn handle_only_connection(&mut self, other: &OnlyConnection, now: Now) {
        let members: Vec<u32> = self
            .hub
            .members_of(&other.channel)
            .map(|(connection, ..)| connection)
            .filter(|&connection| self.hub.connection(connection).has_session())
            .filter(|&connection| self.hub.session(connection).user.as_ref() == Some(&other.user))
            .collect();
        for index in members {
            let age = self.age_of(index);
            let Some(key) = self.hub.key_of(index) else {
                continue;
            };
            if age < other.age {
                self.close_stream(key, CloseReason::ConnectionLimit, now);
            } else if age > other.age {
                let newer = OnlyConnection {
                    channel: Arc::clone(&other.channel),
                    user: Arc::clone(&other.user),
                    age,
                };
                self.send_message(other.age.shard, Message::OnlyConnection(Box::new(newer)));
            }
        }
    }

    fn age_of(&self, index: u32) -> Age {
        Age {
            opened: self.hub.connection(index).opened,
            shard: self.index,
            index,
        }
    }
}
