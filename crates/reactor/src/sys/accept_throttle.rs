//! Decides when to accept: while the caller wants it and no shortage of descriptors or memory pauses it.

use crate::Completion;
use std::time::{Duration, Instant};

/// Pause after a shortage of descriptors or memory before the next attempt.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Whether an errno of `accept` means that another attempt would fail at once.
///
/// All other errors concern only the one connection (`ECONNABORTED`, `EPROTO` and network errors: accept(2), "Error
/// handling"), and the next accept may succeed.
pub(super) fn is_shortage(errno: i32) -> bool {
    matches!(
        errno,
        libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM
    )
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    /// The process or the machine is short of descriptors or memory. Try again at this time.
    Retry(Instant),
    /// Our own tables are full. Try again after a close.
    Full,
}

/// Decides whether to accept now, and reports pauses.
#[derive(Debug)]
pub(super) struct AcceptThrottle {
    wanted: bool,
    state: State,
    /// The current pause was reported: failed retries do not report it again.
    reported: bool,
}

impl AcceptThrottle {
    pub(super) fn new() -> Self {
        Self {
            wanted: false,
            state: State::Ready,
            reported: false,
        }
    }

    pub(super) fn set_wanted(&mut self, wanted: bool) {
        self.wanted = wanted;
    }

    pub(super) fn may_accept(&self) -> bool {
        self.wanted && self.state == State::Ready
    }

    /// A connection was accepted: the shortage is over.
    pub(super) fn accepted(&mut self) {
        self.reported = false;
    }

    /// Pauses until a slot is freed, or for `RETRY_AFTER`.
    pub(super) fn pause(&mut self, errno: i32, now: Instant) -> Option<Completion> {
        self.state = State::Retry(now + RETRY_AFTER);
        self.report(errno)
    }

    /// Pauses until a slot is freed.
    pub(super) fn pause_full(&mut self) -> Option<Completion> {
        self.state = State::Full;
        self.report(libc::EMFILE)
    }

    fn report(&mut self, errno: i32) -> Option<Completion> {
        let first = !std::mem::replace(&mut self.reported, true);
        first.then_some(Completion::AcceptPaused { errno })
    }

    /// A socket was closed: there is room for one more.
    pub(super) fn slot_freed(&mut self) {
        self.state = State::Ready;
    }

    /// Ends a pause whose time is over.
    pub(super) fn refresh(&mut self, now: Instant) {
        if let State::Retry(at) = self.state
            && at <= now
        {
            self.state = State::Ready;
        }
    }

    /// When to call [`AcceptThrottle::refresh`].
    pub(super) fn retry_at(&self) -> Option<Instant> {
        match self.state {
            State::Retry(at) if self.wanted => Some(at),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_is_reported_once_and_retried_after_a_while() {
        let now = Instant::now();
        let mut throttle = AcceptThrottle::new();
        assert!(!throttle.may_accept());
        throttle.set_wanted(true);
        assert!(throttle.may_accept());
        assert_eq!(
            throttle.pause(libc::ENFILE, now),
            Some(Completion::AcceptPaused {
                errno: libc::ENFILE
            })
        );
        throttle.refresh(now);
        assert!(!throttle.may_accept());
        throttle.refresh(now + RETRY_AFTER);
        assert!(throttle.may_accept());
        assert_eq!(
            throttle.pause(libc::ENFILE, now),
            None,
            "the same pause goes on"
        );
        throttle.slot_freed();
        throttle.accepted();
        assert!(throttle.pause(libc::ENFILE, now).is_some(), "a new pause");
    }

    #[test]
    fn full_tables_wait_for_a_close() {
        let mut throttle = AcceptThrottle::new();
        throttle.set_wanted(true);
        assert!(throttle.pause_full().is_some());
        throttle.refresh(Instant::now() + RETRY_AFTER * 2);
        assert!(!throttle.may_accept());
        assert_eq!(throttle.retry_at(), None);
        throttle.slot_freed();
        assert!(throttle.may_accept());
    }
}
