//! Notices that this process stood still, as by SIGSTOP, in a debugger, or on a machine that was suspended.
//!
//! Requests wait in its sockets meanwhile, and nobody knows how old they are. Whoever sent one has given up, and has sent it again to another
//! node, with the same idempotency key. JetStream remembers a key for two minutes. If this node stores the old request after that, the
//! publication is there twice. So after a long pause, publications with a key are refused until the sockets have been read.

use super::stream::DUPLICATE_WINDOW;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// A pause after which JetStream may have forgotten a key, or several pauses together: a quarter of the time for which it remembers one.
const PAUSE_MIN: Duration = DUPLICATE_WINDOW.checked_div(4).expect("it is no zero");
/// So long after a pause, what is given to the broker may have waited through it.
const OLD_FOR: Duration = Duration::from_secs(5);

/// When this process was seen to run last.
#[derive(Debug)]
pub(super) struct Pause {
    seen: Instant,
    /// The same by the machine's clock: the other one stands still while the machine is suspended.
    seen_by_machine: SystemTime,
    old_until: Option<Instant>,
}

impl Pause {
    pub(super) fn new() -> Self {
        Self {
            seen: Instant::now(),
            seen_by_machine: SystemTime::now(),
            old_until: None,
        }
    }

    /// The process runs. To be called ten times a second.
    pub(super) fn note(&mut self, now: Instant) {
        let by_machine = SystemTime::now();
        let passed = by_machine.duration_since(self.seen_by_machine);
        let pause = (now - self.seen).max(passed.unwrap_or_default());
        (self.seen, self.seen_by_machine) = (now, by_machine);
        if pause >= PAUSE_MIN {
            self.old_until = Some(now + OLD_FOR);
            tracing::warn!(
                "this process stood still for {} s: publications with an idempotency key are refused for {} s, because they may have waited in its sockets for longer than NATS remembers their keys",
                pause.as_secs(),
                OLD_FOR.as_secs()
            );
        }
    }

    /// Whether what comes now may have waited through a pause.
    pub(super) fn may_be_old(&mut self, now: Instant) -> bool {
        // Nothing may have looked since the process goes on.
        self.note(now);
        self.old_until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_comes_right_behind_a_pause_may_be_old() {
        let mut pause = Pause::new();
        for seconds in [1, 29, 1] {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            assert!(!pause.may_be_old(Instant::now()));
        }
        tokio::time::advance(PAUSE_MIN).await;
        assert!(pause.may_be_old(Instant::now()), "nobody has looked before");
        tokio::time::advance(OLD_FOR - Duration::from_millis(1)).await;
        assert!(pause.may_be_old(Instant::now()));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!pause.may_be_old(Instant::now()));
    }
}
