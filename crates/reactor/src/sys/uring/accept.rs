//! Accepting. A poll reports that connections wait at a listener, the kernel says how many, and the driver queues
//! as many single accepts, never more than there are free slots.
//!
//! A multishot accept would take all waiting connections at once, even without a free slot.

use super::super::accept_throttle::AcceptThrottle;
use super::super::backlog;
use super::super::tag::{EventKind, Tag};
use super::Uring;
use super::state::State;
use crate::Token;
use std::io;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::time::Instant;

/// Maximum number of accepts in one wait, so that a burst of new connections does not delay the open ones.
const ACCEPTS_MAX: u32 = 256;

/// The listeners and their throttle.
#[derive(Debug)]
pub(super) struct Acceptor {
    listeners: Vec<TcpListener>,
    throttle: AcceptThrottle,
}

impl Acceptor {
    pub(super) fn new(listeners: Vec<TcpListener>) -> Self {
        Self {
            listeners,
            throttle: AcceptThrottle::new(),
        }
    }

    pub(super) fn set_wanted(&mut self, wanted: bool) {
        self.throttle.set_wanted(wanted);
    }

    /// Whether accepted sockets may have IPv6 addresses. IPv4 clients of such a listener have mapped ones.
    pub(super) fn is_ipv6(&self) -> bool {
        let mut locals = self.listeners.iter().map(TcpListener::local_addr);
        locals.any(|local| local.is_ok_and(|address| address.is_ipv6()))
    }

    pub(super) fn slot_freed(&mut self) {
        self.throttle.slot_freed();
    }

    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.throttle.retry_at()
    }

    /// Whether a connection is known to wait and may be accepted.
    pub(super) fn has_work(&self, state: &State) -> bool {
        self.throttle.may_accept() && state.listeners.iter().any(|listener| listener.has_pending)
    }
}

/// The tag of a listener's poll: its number where other tags have a slot, and the number of the poll.
fn poll_tag(listener: u32, poll_id: u32) -> Tag {
    let token = Token {
        index: poll_id,
        generation: 0,
    };
    Tag::new(EventKind::Listener, listener, token)
}

impl Uring {
    /// Arms or cancels the polls on the listeners, as the throttle decides.
    pub(super) fn update_listening(&mut self) {
        if self.acceptor.retry_at().is_some() {
            self.acceptor.throttle.refresh(Instant::now());
        }
        if self.acceptor.throttle.may_accept() && !self.has_room() {
            self.state.ready.extend(self.acceptor.throttle.pause_full());
        }
        let open = self.acceptor.throttle.may_accept();
        let states = self.state.listeners.iter_mut();
        for ((number, state), listener) in (0..).zip(states).zip(&self.acceptor.listeners) {
            let ring = &mut self.rings[0];
            if open && !state.poll_armed {
                state.poll_id = state.poll_id.wrapping_add(1);
                state.poll_armed = true;
                ring.watch_listener(listener.as_raw_fd(), poll_tag(number, state.poll_id));
            } else if !open && state.poll_armed {
                state.poll_armed = false;
                state.has_pending = false;
                ring.cancel(poll_tag(number, state.poll_id));
                // A late completion of the cancelled poll is stale.
                state.poll_id = state.poll_id.wrapping_add(1);
            }
        }
    }

    /// Queues an accept for each waiting connection, and returns their table. The caller submits.
    ///
    /// A listener whose connections find no slot in this table is served by the next wait, from another one.
    pub(super) fn queue_accepts(&mut self) -> Option<usize> {
        if !self.acceptor.has_work(&self.state) {
            return None;
        }
        let table = match self.table_with_room() {
            Ok(table) => table,
            Err(error) => {
                self.pause_accepting(&error);
                return None;
            }
        };
        let ring = &mut self.rings[table];
        let states = self.state.listeners.iter_mut();
        let mut has_asked = false;
        for ((number, state), listener) in (0..).zip(states).zip(&self.acceptor.listeners) {
            if !state.has_pending {
                continue;
            }
            let found_none = std::mem::take(&mut state.found_none);
            let waiting = match backlog::pending_connections(listener) {
                Some(count) => count,
                None if found_none => 0,
                None => u32::MAX,
            };
            let mut asked = 0;
            while asked < waiting.min(ACCEPTS_MAX)
                && let Some(slot) = ring.reserve()
            {
                ring.accept_one(listener.as_raw_fd(), number, slot);
                asked += 1;
            }
            // A connection that came after the count triggers the poll again.
            state.has_pending = waiting > asked;
            has_asked |= asked > 0;
        }
        has_asked.then_some(table)
    }

    /// Accepts waiting connections.
    pub(super) fn accept_some(&mut self) {
        if let Some(table) = self.queue_accepts() {
            // If the kernel refuses, the accepts stay queued, and complete in a later wait.
            let _ = self.rings[table].submit(&mut self.state);
        }
    }

    fn pause_accepting(&mut self, error: &io::Error) {
        let pause = if self.has_room() {
            // A new ring could not be made: descriptors or memory are short.
            let errno = error.raw_os_error().unwrap_or(libc::ENOMEM);
            self.acceptor.throttle.pause(errno, Instant::now())
        } else {
            self.acceptor.throttle.pause_full()
        };
        self.state.ready.extend(pause);
    }

    /// Passes the outcome of the accepts on to the throttle.
    pub(super) fn finish_accepts(&mut self) {
        if std::mem::take(&mut self.state.accepted) {
            self.acceptor.throttle.accepted();
        }
        if let Some(errno) = self.state.shortage.take() {
            self.state
                .ready
                .extend(self.acceptor.throttle.pause(errno, Instant::now()));
        }
    }
}
