//! `single_connection`: a user's newest connection ends the older ones.
//!
//! Connections are ordered by their connect commands, which the process counts. Times would not do: a client that comes back at once
//! may come within the same tick of the clock.

use crate::mesh::Message;
use crate::shard::Shard;
use myriad_hub::{CloseReason, Now, Phase, SessionState};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use std::collections::HashMap;
use std::sync::Arc;

/// A connection of a user who is to have one only.
#[derive(Clone, Debug)]
pub(crate) struct OnlyConnection {
    user: Arc<str>,
    shard: usize,
    /// The number of its connect command: the newest connection has the greatest.
    serial: u64,
}

/// The numbers of connect commands of clients whose users are to have one connection only, by connection.
#[derive(Debug, Default)]
pub(super) struct Connects(HashMap<u32, u64>);

impl Connects {
    /// One that connected before `single_connection` came with a reload is older than those with a number.
    fn serial_of(&self, index: u32) -> u64 {
        self.0.get(&index).copied().unwrap_or(0)
    }

    /// The connection ends.
    pub(super) fn forget(&mut self, index: u32) {
        if !self.0.is_empty() {
            self.0.remove(&index);
        }
    }
}

impl<R: Reactor> Shard<R> {
    fn keeps_one(&self) -> bool {
        let personal = self.settings.client.personal_channel.as_ref();
        personal.is_some_and(|personal| personal.single_connection)
    }

    /// The number of a connect command that has just come; 0 if users may have several connections.
    pub(super) fn next_connect(&self) -> u64 {
        if self.keeps_one() {
            self.mesh.next_connect()
        } else {
            0
        }
    }

    /// A client has connected: tells all shards, if its user is to have one connection only. `serial` is the number of its connect
    /// command, if it has one.
    pub(super) fn end_older_connections(&mut self, key: Key, serial: u64) {
        if !self.keeps_one() {
            return;
        }
        let Some(user) = self.hub.session(key.index).user.clone() else {
            return;
        };
        // A reload may have come behind the command.
        let serial = if serial == 0 {
            self.next_connect()
        } else {
            serial
        };
        self.sessions.connects.0.insert(key.index, serial);
        let newcomer = OnlyConnection {
            user,
            shard: self.index,
            serial,
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
        for key in connected {
            let serial = self.sessions.connects.serial_of(key.index);
            if serial < other.serial {
                self.close_stream(key, CloseReason::ConnectionLimit, now);
            } else if serial > other.serial {
                let newer = OnlyConnection {
                    user: Arc::clone(&other.user),
                    shard: self.index,
                    serial,
                };
                self.send_message(other.shard, Message::OnlyConnection(Box::new(newer)));
            }
        }
    }

    /// Whether a connection is open and its connect command answered.
    pub(super) fn is_connected(&self, index: u32) -> bool {
        self.hub.connection(index).phase == Phase::Open
            && self.hub.session(index).state == SessionState::Connected
    }
}
