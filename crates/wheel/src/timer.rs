//! The wheel's unit of time and the links it keeps in each record.

use crate::NONE;

/// Milliseconds in a [`Tick`]. All deadlines are seconds away, so 50 ms are precise enough; `u32` ticks last 6.8 years.
pub const TICK_MS: u32 = 50;

/// A point in time: the number of ticks of [`TICK_MS`] since the process's epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tick(pub u32);

impl Tick {
    /// The tick that contains this time after the epoch. Saturates at the last tick.
    #[must_use]
    pub fn at_ms(ms_since_epoch: u64) -> Self {
        Self(u32::try_from(ms_since_epoch / u64::from(TICK_MS)).unwrap_or(u32::MAX))
    }

    /// The tick at least this many milliseconds later, rounded up so that nothing expires early. Saturates at the last
    /// tick.
    #[must_use]
    pub fn plus_ms(self, ms: u64) -> Self {
        let ticks = u32::try_from(ms.div_ceil(u64::from(TICK_MS))).unwrap_or(u32::MAX);
        Self(self.0.saturating_add(ticks))
    }

    /// Milliseconds from the epoch to the start of this tick.
    #[must_use]
    pub fn to_ms(self) -> u64 {
        u64::from(self.0) * u64::from(TICK_MS)
    }
}

/// A record's timer in a [`crate::Wheel`]: armed with one deadline, or unlinked.
#[derive(Clone, Debug)]
pub struct Timer {
    /// Links in the list of a wheel's slot: the index of the next or previous record, or the slot itself at the ends.
    /// `prev` is [`NONE`] while unlinked.
    pub(crate) next: u32,
    pub(crate) prev: u32,
    pub(crate) deadline: Tick,
}

/// Every connection carries one.
const _: () = assert!(size_of::<Timer>() == 12);

impl Timer {
    /// Whether a deadline is pending.
    #[must_use]
    pub fn is_armed(&self) -> bool {
        self.prev != NONE
    }

    /// The pending deadline, or the last one if the timer is not armed.
    #[must_use]
    pub fn deadline(&self) -> Tick {
        self.deadline
    }
}

impl Default for Timer {
    /// Unlinked.
    fn default() -> Self {
        Self {
            next: NONE,
            prev: NONE,
            deadline: Tick(0),
        }
    }
}

/// A record with a timer.
pub trait Timed {
    /// The record's timer.
    fn timer(&self) -> &Timer;
    /// The record's timer, which the wheel links and unlinks.
    fn timer_mut(&mut self) -> &mut Timer;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_round_so_that_nothing_expires_early() {
        assert_eq!(Tick::at_ms(99), Tick(1));
        assert_eq!(Tick(1).plus_ms(1), Tick(2));
        assert_eq!(Tick(1).plus_ms(50), Tick(2));
        assert_eq!(Tick(1).plus_ms(51), Tick(3));
        assert_eq!(Tick(3).to_ms(), 150);
        assert_eq!(Tick(u32::MAX - 1).plus_ms(u64::MAX), Tick(u32::MAX));
        assert_eq!(Tick::at_ms(u64::MAX), Tick(u32::MAX));
    }
}
