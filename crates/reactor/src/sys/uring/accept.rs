//! Accepting. A poll reports that connections wait at the listener, the kernel says how many, and the driver queues
//! as many single accepts, never more than there are free slots.
//!
//! A multishot accept would take all waiting connections at once, even without a free slot.

use super::super::accept_throttle::AcceptThrottle;
use super::super::backlog;
use super::super::tag::{EventKind, Tag};
use super::Uring;
use super::state::State;
use std::io;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::time::Instant;

/// Maximum number of accepts in one wait, so that a burst of new connections does not delay the open ones.
const ACCEPTS_MAX: u32 = 256;

/// The listener and its throttle.
#[derive(Debug)]
pub(super) struct Acceptor {
    listener: Option<TcpListener>,
    throttle: AcceptThrottle,
}

impl Acceptor {
    pub(super) fn new(listener: Option<TcpListener>) -> Self {
        Self {
            listener,
            throttle: AcceptThrottle::new(),
        }
    }

    pub(super) fn set_wanted(&mut self, wanted: bool) {
        self.throttle.set_wanted(wanted);
    }

    /// Whether accepted sockets have IPv6 addresses. IPv4 clients of such a listener have mapped ones.
    pub(super) fn is_ipv6(&self) -> bool {
        let local = self.listener.as_ref().map(TcpListener::local_addr);
        local.is_some_and(|local| local.is_ok_and(|address| address.is_ipv6()))
    }

    pub(super) fn slot_freed(&mut self) {
        self.throttle.slot_freed();
    }

    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.throttle.retry_at()
    }

    /// Whether a connection is known to wait and may be accepted.
    pub(super) fn has_work(&self, state: &State) -> bool {
        self.throttle.may_accept() && state.listener.has_pending
    }
}

impl Uring {
    /// Arms or cancels the poll on the listener, as the throttle decides.
    pub(super) fn update_listening(&mut self) {
        if self.acceptor.retry_at().is_some() {
            self.acceptor.throttle.refresh(Instant::now());
        }
        if self.acceptor.throttle.may_accept() && !self.has_room() {
            self.state.ready.extend(self.acceptor.throttle.pause_full());
        }
        let Some(listener) = &self.acceptor.listener else {
            return;
        };
        let (state, ring) = (&mut self.state.listener, &mut self.rings[0]);
        let open = self.acceptor.throttle.may_accept();
        if open && !state.poll_armed {
            state.poll_id = state.poll_id.wrapping_add(1);
            state.poll_armed = true;
            ring.watch_listener(
                listener.as_raw_fd(),
                Tag::plain(EventKind::Listener, state.poll_id),
            );
        } else if !open && state.poll_armed {
            state.poll_armed = false;
            state.has_pending = false;
            ring.cancel(Tag::plain(EventKind::Listener, state.poll_id));
            // A late completion of the cancelled poll is stale.
            state.poll_id = state.poll_id.wrapping_add(1);
        }
    }

    /// Queues an accept for each waiting connection, and returns their table. The caller submits.
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
        let listener = self.acceptor.listener.as_ref()?;
        let found_none = std::mem::take(&mut self.state.listener.found_none);
        let waiting = match backlog::pending_connections(listener) {
            Some(count) => count,
            None if found_none => 0,
            None => u32::MAX,
        };
        let ring = &mut self.rings[table];
        let mut asked = 0;
        while asked < waiting.min(ACCEPTS_MAX)
            && let Some(slot) = ring.reserve()
        {
            ring.accept_one(listener.as_raw_fd(), slot);
            asked += 1;
        }
        // A connection that came after the count triggers the poll again.
        self.state.listener.has_pending = waiting > asked;
        (asked > 0).then_some(table)
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
        if std::mem::take(&mut self.state.listener.accepted) {
            self.acceptor.throttle.accepted();
        }
        if let Some(errno) = self.state.listener.shortage.take() {
            self.state
                .ready
                .extend(self.acceptor.throttle.pause(errno, Instant::now()));
        }
    }
}
