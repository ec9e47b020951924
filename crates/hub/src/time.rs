//! Time as the hub sees it: an argument.

use myriad_wheel::{TICK_MS, Tick};
use std::time::Duration;

/// Nanoseconds of the kernel's CLOCK_MONOTONIC. Every process reads the same clock, so one that takes over connections can use
/// their ticks as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Now(pub u64);

const TICK_NS: u64 = TICK_MS as u64 * 1_000_000;

impl Now {
    /// The tick this moment lies in.
    #[must_use]
    pub fn tick(self) -> Tick {
        Tick(u32::try_from(self.0 / TICK_NS).unwrap_or(u32::MAX))
    }

    /// The start of `tick`.
    #[must_use]
    pub fn at(tick: Tick) -> Self {
        Self(u64::from(tick.0) * TICK_NS)
    }

    /// The tick this long after the one this moment lies in, rounded up.
    #[must_use]
    pub fn tick_after(self, duration: Duration) -> Tick {
        Tick(self.tick().0.saturating_add(ticks(duration)))
    }

    /// Time from this moment to the start of `tick`; zero when that has begun.
    #[must_use]
    pub fn until(self, tick: Tick) -> Duration {
        Duration::from_nanos((u64::from(tick.0) * TICK_NS).saturating_sub(self.0))
    }
}

/// Whole ticks in `duration`, rounded up, so that a timeout never comes early.
#[must_use]
pub(crate) fn ticks(duration: Duration) -> u32 {
    u32::try_from(duration.as_nanos().div_ceil(u128::from(TICK_NS))).unwrap_or(u32::MAX / 2)
}
