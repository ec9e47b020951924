//! Rates: how much somebody may do in a time.

use crate::Now;
use std::num::NonZeroU64;
use std::time::Duration;

/// So many in a time: all of them at once, or spread over it, and as many again when that time has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Nanoseconds until one more is allowed.
    interval_ns: NonZeroU64,
    /// Nanoseconds until as many as may be at once are allowed again.
    span_ns: NonZeroU64,
}

/// The longest time of a limit, so that no sum of times overflows: a year.
const PERIOD_NS_MAX: u64 = 365 * 24 * 3600 * 1_000_000_000;

impl RateLimit {
    /// At most `count` in each `period`. None if either is zero.
    ///
    /// The time for one is rounded up to nanoseconds: it is never more than `count`, and less by one in a billion. More
    /// than a billion in a second is a billion. A period of more than a year is a year.
    #[must_use]
    pub fn new(count: u64, period: Duration) -> Option<Self> {
        let period_ns = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        let period_ns = NonZeroU64::new(period_ns.min(PERIOD_NS_MAX))?;
        // Not more than there are nanoseconds, so that the span below is at most twice the period.
        let count = NonZeroU64::new(count)?.min(period_ns);
        let interval_ns = period_ns.div_ceil(count);
        Some(Self {
            interval_ns,
            span_ns: interval_ns.saturating_mul(count),
        })
    }

    /// How many may be taken at once.
    #[must_use]
    pub fn count(self) -> u64 {
        self.span_ns.get() / self.interval_ns.get()
    }
}

/// Why so many cannot be taken now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooMany {
    /// There will be as many after this time.
    For(Duration),
    /// There are never so many at once.
    Ever,
}

/// What somebody has left of a [`RateLimit`]. It begins full.
///
/// It stores one time: when it will be full again. So it counts exactly, without fractions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenBucket {
    /// Nanoseconds of the clock of [`Now`].
    full_at: u64,
}

const _: () = assert!(size_of::<TokenBucket>() == 8);

/// What [`TokenBucket::charge`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charge {
    /// There was one left.
    Taken,
    /// There was none left.
    Refused,
    /// There was none left, and as many as may be taken at once have been refused before.
    Exhausted,
}

impl TokenBucket {
    /// Takes one, if there is one. An attempt that fails costs nothing.
    #[must_use]
    pub fn take(&mut self, limit: RateLimit, now: Now) -> bool {
        self.take_many(1, limit, now).is_ok()
    }

    /// Takes so many at once, or none of them. An attempt that fails costs nothing.
    ///
    /// # Errors
    /// There are fewer: now, or ever.
    pub fn take_many(&mut self, count: u64, limit: RateLimit, now: Now) -> Result<(), TooMany> {
        if count > limit.count() {
            return Err(TooMany::Ever);
        }
        let after = self.after_more(count, limit, now);
        let missing_ns = (after - now.0).saturating_sub(limit.span_ns.get());
        if missing_ns > 0 {
            return Err(TooMany::For(Duration::from_nanos(missing_ns)));
        }
        self.full_at = after;
        Ok(())
    }

    /// Takes one, also if there is none left, until as many have been refused as may be taken at once. So whoever goes on at
    /// more than the rate is exhausted in the end.
    pub fn charge(&mut self, limit: RateLimit, now: Now) -> Charge {
        let after = self.after_more(1, limit, now);
        let missing = after - now.0;
        let span = limit.span_ns.get();
        if missing > 2 * span {
            return Charge::Exhausted;
        }
        self.full_at = after;
        if missing > span {
            Charge::Refused
        } else {
            Charge::Taken
        }
    }

    /// How long it takes until one can be taken; nothing if one can be taken now.
    #[must_use]
    pub fn wait(self, limit: RateLimit, now: Now) -> Duration {
        let missing = self.after_more(1, limit, now) - now.0;
        Duration::from_nanos(missing.saturating_sub(limit.span_ns.get()))
    }

    /// Whether nothing of it is used: it is as good as a new one.
    #[must_use]
    pub fn is_full(self, now: Now) -> bool {
        self.full_at <= now.0
    }

    /// Its content, for an atomic.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        self.full_at
    }

    /// What [`TokenBucket::to_bits`] was called on.
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self { full_at: bits }
    }

    /// When it is full again after so many more, at most as many as may be taken at once.
    fn after_more(self, count: u64, limit: RateLimit, now: Now) -> u64 {
        // After a reload to a shorter time, the old limit's debt would take too long.
        let full_at = self.full_at.min(now.0 + 2 * limit.span_ns.get());
        full_at.max(now.0) + limit.interval_ns.get() * count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    fn limit(count: u64, period: Duration) -> RateLimit {
        RateLimit::new(count, period).expect("not zero")
    }

    #[test]
    fn as_many_at_once_then_one_at_a_time() {
        let limit = limit(5, Duration::from_secs(1));
        let mut bucket = TokenBucket::default();
        let at = |ms: u64| Now(100 * SECOND + ms * 1_000_000);
        assert!((0..5).all(|_| bucket.take(limit, at(0))));
        assert!(
            (0..1000).all(|_| !bucket.take(limit, at(0))),
            "a refusal costs nothing"
        );
        assert!(!bucket.take(limit, at(199)) && bucket.take(limit, at(200)));
        assert!(!bucket.take(limit, at(399)) && bucket.take(limit, at(400)));
        assert!(!bucket.is_full(at(1399)) && bucket.is_full(at(1400)));
        assert!((0..5).all(|_| bucket.take(limit, at(2000))) && !bucket.take(limit, at(2000)));
    }

    #[test]
    fn many_are_taken_at_once_or_not_at_all() {
        let limit = limit(5, Duration::from_secs(1));
        assert_eq!(limit.count(), 5);
        let mut bucket = TokenBucket::default();
        let at = |ms: u64| Now(100 * SECOND + ms * 1_000_000);
        assert_eq!(bucket.take_many(6, limit, at(0)), Err(TooMany::Ever));
        assert_eq!(bucket.take_many(3, limit, at(0)), Ok(()));
        let wait = TooMany::For(Duration::from_millis(200));
        assert_eq!(bucket.take_many(3, limit, at(0)), Err(wait));
        assert_eq!(
            bucket.take_many(2, limit, at(0)),
            Ok(()),
            "the refusal took none"
        );
        assert_eq!(bucket.take_many(5, limit, at(1000)), Ok(()));
        let longest = RateLimit::new(u64::MAX, Duration::MAX).expect("not zero");
        assert_eq!(
            bucket.take_many(u64::MAX, longest, at(0)),
            Err(TooMany::Ever)
        );
        assert_eq!(
            TokenBucket::default().take_many(longest.count(), longest, at(0)),
            Ok(())
        );
    }

    #[test]
    fn who_goes_on_is_exhausted() {
        let limit = limit(3, Duration::from_secs(3));
        let mut bucket = TokenBucket::default();
        let mut charge = |now: u64| bucket.charge(limit, Now(SECOND + now));
        let at_once: Vec<_> = (0..8).map(|_| charge(0)).collect();
        use Charge::{Exhausted, Refused, Taken};
        assert_eq!(
            at_once,
            [
                Taken, Taken, Taken, Refused, Refused, Refused, Exhausted, Exhausted
            ]
        );
        assert_eq!(charge(SECOND), Refused, "a second later");
        assert_eq!(charge(5 * SECOND), Taken, "who pauses is forgiven");
    }

    #[test]
    fn who_waits_as_long_as_it_is_told_is_served() {
        let limit = limit(3, Duration::from_secs(3));
        let mut bucket = TokenBucket::default();
        assert_eq!(bucket.wait(limit, Now(SECOND)), Duration::ZERO);
        for refused in 0..4 {
            let charges = (0..3 + refused).map(|_| bucket.charge(limit, Now(SECOND)));
            assert_eq!(charges.filter(|charge| *charge == Charge::Taken).count(), 3);
            let wait = bucket.wait(limit, Now(SECOND));
            assert_eq!(wait, Duration::from_secs(1 + refused));
            let then = Now(SECOND + u64::try_from(wait.as_nanos()).expect("short"));
            assert!(!bucket.take(limit, Now(then.0 - 1)) && bucket.take(limit, then));
            bucket = TokenBucket::default();
        }
    }

    #[test]
    fn a_limit_is_something() {
        assert_eq!(RateLimit::new(0, Duration::from_secs(1)), None);
        assert_eq!(RateLimit::new(1, Duration::ZERO), None);
        let most = limit(u64::MAX, Duration::from_secs(1));
        assert_eq!(most, limit(SECOND, Duration::from_secs(1)));
        let longest = limit(1, Duration::MAX);
        let mut bucket = TokenBucket::default();
        assert!(
            bucket.take(longest, Now(u64::MAX >> 2)) && !bucket.take(longest, Now(u64::MAX >> 2))
        );
    }

    #[test]
    fn a_shorter_time_forgives_the_debt_of_a_longer_one() {
        let (slow, fast) = (
            limit(1, Duration::from_hours(1)),
            limit(1, Duration::from_secs(1)),
        );
        let mut bucket = TokenBucket::default();
        assert_eq!(bucket.charge(slow, Now(0)), Charge::Taken);
        assert_eq!(bucket.charge(fast, Now(0)), Charge::Exhausted);
        assert!(bucket.take(slow, Now(3600 * SECOND)));
        assert!(!bucket.take(fast, Now(3601 * SECOND)));
        let mut bucket = TokenBucket {
            full_at: 3600 * SECOND,
        };
        assert!(!bucket.take(fast, Now(0)));
    }

    proptest! {
        /// Whoever asks for more than the rate all the time gets the rate, to 2%, also where time goes in the steps of a wheel.
        #[test]
        fn who_asks_for_more_gets_the_rate(count in 1_u64..20_000, steps in prop::collection::vec(1_u64..4, 400..800), surplus in 1_u64..4) {
            const STEP_NS: u64 = 50_000_000;
            let limit = limit(count, Duration::from_secs(1));
            let mut bucket = TokenBucket::default();
            let mut now = 11 * SECOND;
            while bucket.take(limit, Now(now)) {}
            let (begun, mut taken) = (now, 0);
            for step in steps {
                now += step * STEP_NS;
                let attempts = (count * step).div_ceil(20) + surplus;
                taken += (0..attempts).filter(|_| bucket.take(limit, Now(now))).count() as u64;
            }
            let due = u128::from(now - begun) * u128::from(count) / u128::from(SECOND);
            let (due, taken) = (i128::try_from(due).unwrap(), i128::from(taken));
            prop_assert!((taken - due).abs() <= due / 50 + 1, "{taken} of {due}");
        }

        /// Against a list of all times: no window of a period has more than twice the count, and what is refused would have
        /// been too much for a bucket that is counted in whole tokens.
        #[test]
        fn it_counts_as_a_bucket_of_whole_tokens_does(count in 1_u64..50, period_ms in 1_u64..5000, steps in prop::collection::vec(0_u64..400_000_000, 1..300)) {
            let limit = limit(count, Duration::from_millis(period_ms));
            let interval = limit.interval_ns.get();
            let mut bucket = TokenBucket::default();
            let mut now = 7 * SECOND;
            // Tokens times the interval, which is exact.
            let full = count * interval;
            let mut level = full;
            for step in steps {
                now += step;
                level = (level + step).min(full);
                let expected = level >= interval;
                prop_assert_eq!(bucket.take(limit, Now(now)), expected);
                if expected {
                    level -= interval;
                }
                prop_assert_eq!(bucket.is_full(Now(now)), level == full);
            }
        }
    }
}
