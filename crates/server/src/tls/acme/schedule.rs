//! When a certificate is ordered, and when again after a failure. No clock: times are arguments.

use super::order::Fault;
use std::time::Duration;

/// The time in which a certificate counts, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) begins_at: i64,
    pub(super) expires_at: i64,
}

/// Time until a certificate is to be replaced; none if that is now.
///
/// A third of its time is left then, or up to a twentieth of its time more: servers that got theirs together do not come back together.
pub(super) fn time_left(validity: Validity, now: i64, seed: u64) -> Option<Duration> {
    let lifetime = (validity.expires_at - validity.begins_at).max(0);
    let earlier = i128::from(lifetime) * i128::from(seed % 1_000) / (20 * 1_000);
    let due_at = i128::from(validity.expires_at - lifetime / 3) - earlier;
    let left = u64::try_from(due_at - i128::from(now)).ok()?;
    (left > 0).then(|| Duration::from_secs(left))
}

/// The first wait and the longest one after a failure to reach the authority. That costs nobody anything.
const UNREACHABLE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(5 * 60));

/// The same after a refusal. Let's Encrypt allows five failed validations of a name in an hour, and gives one back each 12 minutes.
const REFUSED: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(6 * 60 * 60));

/// What an authority may ask for at most: it may be mistaken.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Waits that double with each failure of their kind.
#[derive(Debug, Default)]
pub(super) struct BackOff {
    failures: u32,
    was_reached: bool,
}

impl BackOff {
    /// It worked.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// Time until the next try: at least what the authority asks for. `random` is any 64 bits.
    pub(super) fn next(
        &mut self,
        fault: &Fault,
        retry_after: Option<Duration>,
        random: u64,
    ) -> Duration {
        let was_reached = !matches!(fault, Fault::Unreachable(_));
        if was_reached != self.was_reached {
            self.failures = 0;
        }
        self.was_reached = was_reached;
        let (first, longest) = if was_reached { REFUSED } else { UNREACHABLE };
        let doubled = first.saturating_mul(1 << self.failures.min(16));
        self.failures += 1;
        // Between 3/4 and 5/4 of it: servers that failed together come back apart.
        let part = 0.75 + f64::from((random >> u32::BITS) as u32) / f64::from(u32::MAX) / 2.0;
        let spread = doubled.min(longest).mul_f64(part);
        let asked = retry_after.unwrap_or_default().min(RETRY_AFTER_MAX);
        spread.max(asked)
    }
}

/// A wait as people read it.
pub(super) fn words(wait: Duration) -> String {
    match wait.as_secs() {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ ..7_200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 24 * 60 * 60;

    fn days_left(lifetime_days: i64, age_days: i64, seed: u64) -> Option<i64> {
        let begins_at = 1_700_000_000;
        let validity = Validity {
            begins_at,
            expires_at: begins_at + lifetime_days * DAY,
        };
        let left = time_left(validity, begins_at + age_days * DAY, seed)?;
        Some(i64::try_from(left.as_secs()).unwrap() / DAY)
    }

    #[test]
    fn a_certificate_is_replaced_when_a_third_of_its_time_is_left() {
        assert_eq!(days_left(90, 0, 0), Some(60));
        assert_eq!(days_left(90, 59, 0), Some(1));
        assert_eq!(days_left(90, 60, 0), None);
        assert_eq!(days_left(90, 200, 0), None, "expired");
        assert_eq!(days_left(6, 0, 0), Some(4));
        assert_eq!(days_left(0, 0, 0), None, "no time at all");
    }

    #[test]
    fn servers_come_up_to_a_twentieth_of_that_time_earlier() {
        let all = (0..1_000).map(|seed| days_left(90, 0, seed).unwrap());
        let all: Vec<_> = all.collect();
        assert_eq!(all.iter().max(), Some(&60));
        assert_eq!(all.iter().min(), Some(&55));
    }

    /// The ends, and what lies between them.
    const SOME: [u64; 5] = [0, u64::MAX, u64::MAX / 2, u64::MAX / 3, u64::MAX / 5];

    fn waits(fault: &Fault, count: usize) -> Vec<Duration> {
        let mut back_off = BackOff::default();
        let next = |n: usize| back_off.next(fault, None, SOME[n % SOME.len()]);
        (0..count).map(next).collect()
    }

    #[test]
    fn waits_double_until_the_longest() {
        let refused = Fault::Refused(String::new());
        let unreachable = Fault::Unreachable(String::new());
        for (fault, (first, longest)) in [(refused, REFUSED), (unreachable, UNREACHABLE)] {
            let mut middle = first;
            for wait in waits(&fault, 40) {
                assert!(wait >= middle.mul_f64(0.75), "{wait:?} of {middle:?}");
                assert!(wait <= middle.mul_f64(1.25), "{wait:?} of {middle:?}");
                middle = (middle * 2).min(longest);
            }
        }
    }

    #[test]
    fn five_refusals_take_more_than_twenty_minutes() {
        let waits = waits(&Fault::Refused(String::new()), 5);
        let all: Duration = waits.iter().sum();
        assert!(all > Duration::from_secs(20 * 60), "{all:?}");
    }

    #[test]
    fn another_kind_of_failure_or_a_success_begins_anew() {
        let mut back_off = BackOff::default();
        let unreachable = Fault::Unreachable(String::new());
        for _ in 0..10 {
            back_off.next(&unreachable, None, 1);
        }
        let first = back_off.next(&Fault::Refused(String::new()), None, u64::MAX);
        assert!(first <= REFUSED.0.mul_f64(1.25), "{first:?}");
        assert!(back_off.next(&unreachable, None, u64::MAX) <= UNREACHABLE.0.mul_f64(1.25));
        back_off.next(&unreachable, None, 1);
        back_off.reset();
        assert!(back_off.next(&unreachable, None, u64::MAX) <= UNREACHABLE.0.mul_f64(1.25));
    }

    #[test]
    fn what_the_authority_asks_for_counts_up_to_a_day() {
        let fault = Fault::Refused(String::new());
        let hours = |hours: u64| Some(Duration::from_secs(hours * 60 * 60));
        let next = |asked| BackOff::default().next(&fault, asked, 0);
        assert_eq!(next(hours(2)), hours(2).unwrap());
        assert_eq!(next(hours(1_000)), RETRY_AFTER_MAX);
        assert!(next(Some(Duration::ZERO)) >= REFUSED.0.mul_f64(0.75));
    }
}
