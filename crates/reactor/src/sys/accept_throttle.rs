//! When to accept: wanted by the caller, not paused by a shortage.

use crate::Completion;
use std::time::{Duration, Instant};

/// How long a shortage of descriptors or memory is given to pass before the next try.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Whether an errno of `accept` means that trying again at once would fail again.
///
/// Everything else is the one connection's own misfortune (`ECONNABORTED`, `EPROTO`, and whatever network
/// error waited on it: accept(2), "Error handling"), and the next one may be fine.
pub(super) fn is_shortage(errno: i32) -> bool {
    matches!(
        errno,
        libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM
    )
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    /// A shortage elsewhere may end without our knowing, so the next try has a time.
    Retry(Instant),
    /// Our own tables are full: only a close helps.
    Full,
}

/// Decides whether to accept now.
#[derive(Debug)]
pub(super) struct AcceptThrottle {
    wanted: bool,
    state: State,
    /// A pause is told once, not once per failed retry.
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

    /// A connection was accepted, so whatever shortage there was is over.
    pub(super) fn accepted(&mut self) {
        self.reported = false;
    }

    /// Pauses until a slot is freed or some time has passed.
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

    /// A socket was closed, so that one more can be held.
    pub(super) fn slot_freed(&mut self) {
        self.state = State::Ready;
    }

    /// Opens again when the pause is over.
    pub(super) fn refresh(&mut self, now: Instant) {
        if let State::Retry(at) = self.state
            && at <= now
        {
            self.state = State::Ready;
        }
    }

    /// When [`AcceptThrottle::refresh`] is due.
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
