//! Connections that the caller has closed while their socket was full. Their last record leaves first.
//!
//! That record is the `close_notify`. A client that does not get it cannot tell an end from a cut (RFC 8446, section 6.1).

use crate::{IS_COUNTED, IS_LEAVING, IS_LEGACY, Tls, token_below};
use myriad_reactor::{Close, Reactor};
use myriad_wheel::Key;
use std::time::Duration;

/// How long a client has for its last bytes, as the control plane gives it.
const PATIENCE: Duration = Duration::from_secs(2);

impl Tls {
    /// Closes a connection in order: at once, or when its last record has left.
    pub(crate) fn leave<R: Reactor>(&mut self, key: Key, sockets: &mut R) {
        self.say_last(key, sockets);
        self.leave_place(key);
        let Some(secured) = self.secured.get_mut(key) else {
            return;
        };
        if secured.connection.output().is_empty() {
            return self.close(key, Close::Orderly, sockets);
        }
        secured.set(IS_LEAVING);
        secured.await_writable(key, sockets);
        if secured.take(IS_COUNTED) {
            self.setup.figures.count_closed(secured.has(IS_LEGACY));
        }
        self.leaving.push_back((key, (self.setup.clock)()));
    }

    /// Closes those that have had their time.
    pub(crate) fn end_leaving<R: Reactor>(&mut self, sockets: &mut R) {
        if self.leaving.is_empty() {
            return;
        }
        let now = (self.setup.clock)();
        while let Some(&(key, since)) = self.leaving.front() {
            if self.secured.contains(key) && now.saturating_sub(since) < PATIENCE {
                return;
            }
            self.leaving.pop_front();
            self.close(key, Close::Reset, sockets);
        }
    }

    /// Whether there are connections that the caller does not have.
    pub(crate) fn has_others(&self) -> bool {
        let is_there = |(key, _): &(Key, Duration)| self.secured.contains(*key);
        !self.line.is_empty() || self.leaving.iter().any(is_there)
    }

    /// Closes those that are leaving now, whatever has left of them.
    pub(crate) fn reset_leaving<R: Reactor>(&mut self, sockets: &mut R) {
        while let Some((key, _)) = self.leaving.pop_front() {
            self.close(key, Close::Reset, sockets);
        }
    }

    /// Closes a connection, if it is still there.
    pub(crate) fn close<R: Reactor>(&mut self, key: Key, how: Close, sockets: &mut R) {
        let Some(secured) = self.secured.get_mut(key) else {
            return;
        };
        // Its keys are wiped in their place: nobody needs a copy.
        secured.connection.end();
        let secured = self.remove(key);
        sockets.close(secured.below(), token_below(key), how);
    }
}
