//! `single_connection`: a user's newest connection ends the older ones.

use crate::mesh::Message;
use crate::shard::Shard;
use myriad_hub::{CloseReason, Now, Phase, SessionState};
use myriad_reactor::Reactor;
use myriad_wheel::{Key, Tick};
use std::sync::Arc;

/// A connection of a user who is to have one only.
#[derive(Clone, Debug)]
pub(crate) struct OnlyConnection {
    user: Arc<str>,
    connection: Key,
    age: Age,
}

/// Orders the connections of a user: the newest is the greatest. Of two that were accepted in one tick, the shard decides. On one
/// shard, the later in the list of the user's connections is the newer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Age {
    opened: Tick,
    shard: usize,
}

impl<R: Reactor> Shard<R> {
    /// A client has connected: tells all shards, if its user is to have one connection only.
    pub(super) fn end_older_connections(&mut self, key: Key) {
        let personal = self.settings.client.personal_channel.as_ref();
        if !personal.is_some_and(|personal| personal.single_connection) {
            return;
        }
        let Some(user) = self.hub.session(key.index).user.clone() else {
            return;
        };
        let newcomer = OnlyConnection {
            user,
            connection: key,
            age: self.age_of(key.index),
        };
        for shard in 0..self.mesh.shard_count() {
            self.send_message(shard, Message::OnlyConnection(Box::new(newcomer.clone())));
        }
    }

    /// A user has a connection on some shard. Older ones here end. If there is a newer one here, that shard is told of it again:
    /// when it was told first, the other connection may not have been known.
    pub(crate) fn handle_only_connection(&mut self, other: &OnlyConnection, now: Now) {
        let connected: Vec<Key> = self
            .hub
            .connections_of_user(&other.user)
            .filter(|&index| self.is_connected(index))
            .filter_map(|index| self.hub.key_of(index))
            .collect();
        // Among those of its shard and its tick, the newer ones come before it.
        let mut is_listed_later = false;
        for key in connected {
            let age = self.age_of(key.index);
            if age == other.age && key == other.connection {
                is_listed_later = true;
            } else if age < other.age || age == other.age && is_listed_later {
                self.close_stream(key, CloseReason::ConnectionLimit, now);
            } else {
                let newer = OnlyConnection {
                    user: Arc::clone(&other.user),
                    connection: key,
                    age,
                };
                self.send_message(other.age.shard, Message::OnlyConnection(Box::new(newer)));
            }
        }
    }

    /// Whether a connection is open and its connect command answered.
    pub(super) fn is_connected(&self, index: u32) -> bool {
        self.hub.connection(index).phase == Phase::Open
            && self.hub.session(index).state == SessionState::Connected
    }

    fn age_of(&self, index: u32) -> Age {
        Age {
            opened: self.hub.connection(index).opened,
            shard: self.index,
        }
    }
}
