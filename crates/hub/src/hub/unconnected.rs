//! Bytes that the process buffers for clients that have not connected: heads, bodies and first messages that are not whole, and what
//! waits for the answer to a connect command.
//!
//! Anybody may send those, without a token. So they have a limit of their own within the limit of all buffered bytes, and who has held
//! some for the longest time makes room for others. A client that connects keeps its entry until what it had sent before is handled.

use super::Hub;
use crate::connection::Phase;
use crate::limits::Lease;
use crate::marks::hit;
use myriad_wheel::Tick;
use std::collections::{BTreeSet, HashMap};

/// What is buffered for the clients of a shard that have not connected.
#[derive(Debug)]
pub(super) struct Unconnected {
    lease: Lease,
    /// What each connection has that has some.
    held: HashMap<u32, Held>,
    /// Those that may be ended to make room, by when they were accepted.
    oldest: BTreeSet<(Tick, u32)>,
    bytes: u64,
}

/// What one connection has.
#[derive(Clone, Copy, Debug)]
struct Held {
    bytes: u64,
    /// When the connection was accepted: its place among the oldest.
    opened: Tick,
}

impl Unconnected {
    pub(super) fn new(lease: Lease) -> Self {
        Self {
            lease,
            held: HashMap::new(),
            oldest: BTreeSet::new(),
            bytes: 0,
        }
    }
}

impl Hub {
    /// Says how many bytes may be buffered for clients that have not connected.
    #[must_use]
    pub fn with_unconnected(mut self, lease: Lease) -> Self {
        self.unconnected = Unconnected::new(lease);
        self
    }

    /// Whether the input of a connection counts as that of a client that has not connected.
    #[must_use]
    pub fn has_strange_input(&self, index: u32) -> bool {
        let connection = &self.connections[index];
        match connection.phase {
            Phase::Handshake => true,
            // What joins without a token has its answer within milliseconds: only readers may wait for somebody else.
            Phase::Joining => connection.transport().reads_streams(),
            Phase::Open => self.is_stranger(index),
            Phase::Closing => false,
        }
    }

    /// Reserves bytes of the process's budget for the input of a connection.
    #[must_use]
    pub fn reserve_input(&mut self, index: u32, bytes: usize) -> bool {
        if self.has_strange_input(index) {
            self.reserve_unconnected(index, bytes)
        } else {
            self.reserve_buffered(bytes)
        }
    }

    /// Reserves bytes of both budgets.
    pub(super) fn reserve_unconnected(&mut self, index: u32, bytes: usize) -> bool {
        let credits = bytes as u64;
        if !self.unconnected.lease.spend(credits) {
            hit!(OverUnconnectedBudget);
            return false;
        }
        if !self.reserve_buffered(bytes) {
            self.unconnected.lease.refund(credits);
            return false;
        }
        if credits > 0 {
            let opened = self.connections[index].opened;
            let none = Held { bytes: 0, opened };
            let held = self.unconnected.held.entry(index).or_insert(none);
            held.bytes += credits;
            self.unconnected.oldest.insert((held.opened, index));
            self.unconnected.bytes += credits;
        }
        true
    }

    /// Gives back what [`Hub::reserve_input`] took, or an outbound queue of the connection.
    pub fn release_buffered_of(&mut self, index: u32, bytes: usize) {
        self.release_buffered(bytes);
        if self.unconnected.held.is_empty() {
            return;
        }
        let Some(held) = self.unconnected.held.get_mut(&index) else {
            return;
        };
        let credits = held.bytes.min(bytes as u64);
        held.bytes -= credits;
        let Held { bytes, opened } = *held;
        if bytes == 0 {
            self.unconnected.held.remove(&index);
            self.unconnected.oldest.remove(&(opened, index));
        }
        self.unconnected.bytes -= credits;
        self.unconnected.lease.refund(credits);
    }

    /// The connection that has waited longest among those that have not connected and hold some bytes, but not `besides`. Each is
    /// named once: the caller ends it.
    pub fn poll_oldest_unconnected(&mut self, besides: Option<u32>) -> Option<u32> {
        loop {
            let mut oldest = self.unconnected.oldest.iter();
            let &(opened, index) = oldest.find(|(_, index)| Some(*index) != besides)?;
            self.unconnected.oldest.remove(&(opened, index));
            // One that has connected since holds what it sent before. It is a stranger no more.
            if self.has_strange_input(index) {
                return Some(index);
            }
        }
    }

    /// Bytes buffered for clients of this shard that have not connected.
    #[must_use]
    pub fn unconnected_bytes(&self) -> u64 {
        self.unconnected.bytes
    }

    /// Asserts that what is noted adds up, and is of live connections.
    pub(crate) fn check_unconnected(&self) {
        let held = &self.unconnected.held;
        let bytes: u64 = held.values().map(|held| held.bytes).sum();
        assert_eq!(bytes, self.unconnected.bytes);
        assert!(self.unconnected.bytes <= self.buffered_bytes);
        for (&index, held) in held {
            assert!(held.bytes > 0 && self.connections.key_of(index).is_some());
        }
        for (opened, index) in &self.unconnected.oldest {
            assert!(held.get(index).is_some_and(|held| held.opened == *opened));
        }
    }
}
