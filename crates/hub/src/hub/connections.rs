//! Records of connections, from accept to release.

use super::Hub;
use crate::Now;
use crate::connection::{Connection, Phase};
use crate::defects::DefectScope;
use myriad_wheel::Key;
use std::sync::Arc;

impl Hub {
    /// A record for an accepted socket, waiting for its request head.
    pub fn open(&mut self, socket: u32, now: Now) -> Key {
        let key = self.connections.insert(Connection::new(socket, now.tick()));
        self.arm_handshake(key.index);
        key
    }

    /// Connections with a record.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.connections.len()
    }

    /// The key of a live record whose generation ends in these eight bits; `None` for a late completion.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a token carries the low eight bits"
    )]
    pub fn find(&self, index: u32, generation: u8) -> Option<Key> {
        self.connections
            .key_of(index)
            .filter(|key| key.generation as u8 == generation)
    }

    /// The key of a live record.
    #[must_use]
    pub fn key_of(&self, index: u32) -> Option<Key> {
        self.connections.key_of(index)
    }

    /// Whether the record is still that connection's.
    #[must_use]
    pub fn contains(&self, key: Key) -> bool {
        self.connections.contains(key)
    }

    /// A live record.
    #[must_use]
    pub fn connection(&self, index: u32) -> &Connection {
        &self.connections[index]
    }

    /// A live record, to change.
    pub fn connection_mut(&mut self, index: u32) -> &mut Connection {
        &mut self.connections[index]
    }

    /// The indices of all live records, ascending.
    pub fn connection_indices(&self) -> impl Iterator<Item = u32> + '_ {
        self.connections.indices()
    }

    /// Notes that bytes came.
    pub fn note_input(&mut self, index: u32, now: Now) {
        self.connections[index].last_input = now.tick();
    }

    /// The request is answered with 101: deliveries may begin, and so do pings.
    pub fn admit(&mut self, index: u32, now: Now) {
        let connection = &mut self.connections[index];
        let is_new = matches!(connection.phase, Phase::Handshake | Phase::Joining);
        if !is_new || connection.joins_pending != 0 {
            self.defects.note(
                DefectScope::Connection(index),
                "a connection opens once, when all its channels have joined",
            );
            return;
        }
        connection.phase = Phase::Open;
        self.arm_open(index, now);
    }

    /// Begins the end of a connection: no more deliveries. What is queued may still be sent until the linger deadline.
    /// Appends the names of channels that lost their last member here to `emptied_channels`.
    pub fn begin_closing(&mut self, index: u32, now: Now, emptied_channels: &mut Vec<Arc<str>>) {
        self.forget_reader(index);
        self.connections[index].phase = Phase::Closing;
        self.drop_held(index);
        self.unsubscribe_all(index, emptied_channels);
        self.arm_linger(index, now);
    }

    /// Frees the record and everything it holds. The next connection may get its index.
    pub fn release(&mut self, index: u32, emptied_channels: &mut Vec<Arc<str>>) {
        self.unsubscribe_all(index, emptied_channels);
        self.forget_reader(index);
        self.drop_outbound(index);
        self.drop_held(index);
        self.release_session(index);
        self.wheel.disarm(&mut self.connections, index);
        self.connections.remove(index);
    }
}
