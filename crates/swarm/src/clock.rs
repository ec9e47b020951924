//! The run's one clock: nanoseconds since the run began, the same for every thread.

use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// A point in time, in nanoseconds since the run began. Plain data, so that a simulation can make its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Nanos(pub u64);

impl Nanos {
    /// How long ago `earlier` was; zero if it lies ahead.
    #[must_use]
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This point and `duration` more.
    #[must_use]
    pub(crate) fn plus(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)),
        )
    }

    /// The same point in the coarse unit that terminals keep.
    pub(crate) fn ticks(self) -> Ticks {
        // Wraps after 119 hours; only differences are ever taken, and those are below a minute or two.
        #[expect(
            clippy::cast_possible_truncation,
            reason = "wrapping is the point: only differences are used"
        )]
        let low = (self.0 / Ticks::NANOS) as u32;
        Ticks(low)
    }
}

/// A point in time in 100 microseconds, in the four bytes a terminal can afford.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ticks(pub u32);

impl Ticks {
    const NANOS: u64 = 100_000;

    /// As the payload of a ping, by which its pong is told from that of an earlier one.
    pub(crate) fn stamp(self) -> [u8; 4] {
        self.0.to_be_bytes()
    }

    /// How long ago `earlier` was, across a wrap.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(u64::from(self.0.wrapping_sub(earlier.0)) * Self::NANOS)
    }
}

/// Where the time comes from: the machine, or a simulation.
pub(crate) trait Clock {
    /// Now.
    fn now(&self) -> Nanos;
}

/// The machine's monotonic clock, counted from one instant that all threads share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunClock {
    zero: Instant,
    /// What it reads at that instant.
    ahead_nanos: i64,
}

impl RunClock {
    /// A clock that reads zero now.
    #[must_use]
    pub(crate) fn start() -> Self {
        Self {
            zero: Instant::now(),
            ahead_nanos: 0,
        }
    }

    /// The same clock, ahead by so many nanoseconds, or behind: another machine's. It never reads less than zero.
    #[must_use]
    pub(crate) fn shifted(self, nanos: i64) -> Self {
        Self {
            ahead_nanos: self.ahead_nanos.saturating_add(nanos),
            ..self
        }
    }
}

impl Clock for RunClock {
    fn now(&self) -> Nanos {
        let elapsed = u64::try_from(self.zero.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Nanos(elapsed.saturating_add_signed(self.ahead_nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_count_across_their_wrap() {
        let before = Nanos(u64::from(u32::MAX) * Ticks::NANOS);
        let after = before.plus(Duration::from_millis(7));
        assert!(after.ticks().0 < before.ticks().0);
        assert_eq!(
            after.ticks().since(before.ticks()),
            Duration::from_millis(7)
        );
    }

    #[test]
    fn a_clock_reads_another_machines_time() {
        let here = RunClock::start();
        let there = here.shifted(5_000_000_000);
        let ahead = Duration::from_secs(5);
        let (before, read, after) = (here.now(), there.now(), here.now());
        assert!(before.plus(ahead) <= read && read <= after.plus(ahead));
        assert_eq!(here.shifted(i64::MIN).now(), Nanos(0));
    }

    #[test]
    fn a_point_ahead_is_zero_ago() {
        assert_eq!(Nanos(5).since(Nanos(9)), Duration::ZERO);
        assert_eq!(Nanos(9).since(Nanos(5)), Duration::from_nanos(4));
    }
}
