//! When the next connection or message is due: an open-loop schedule, so that a slow server shows as lateness and not
//! as a slower test.

use crate::clock::Nanos;
use crate::engine::plan::{Part, Plan};
use myriad_units::truncate;
use std::time::Duration;

/// Rounding error of a product of floats, in intervals. It must not delay a connection.
const HAIR: f64 = 1e-6;

/// Time after the end of a schedule of messages in which due ones may still be sent: enough for a thread that woke a moment
/// late, and too short to make the run longer.
pub(crate) const SEND_GRACE: Duration = Duration::from_millis(100);

/// Time after which a message that was held back is tried again.
pub(crate) const HELD_STEP: Duration = Duration::from_millis(1);

/// How long so many intervals of a rate take. What does not fit a `Duration` is never due.
fn intervals(count: f64, rate_per_s: f64) -> Duration {
    Duration::try_from_secs_f64(count / rate_per_s).unwrap_or(Duration::MAX)
}

/// A thread's share of a schedule over the whole crowd.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    rate_per_s: f64,
    /// How much later than the first thread's its first one is due.
    offset: Duration,
}

impl Share {
    /// Of a schedule with this rate over the whole crowd. The threads' shares interleave: each begins one interval of the whole
    /// after its predecessor.
    pub(crate) fn of(rate_per_s: f64, plan: &Plan, part: Part) -> Self {
        Self {
            rate_per_s: rate_per_s * f64::from(part.count) / f64::from(plan.connections),
            offset: intervals(f64::from(part.thread), rate_per_s),
        }
    }

    /// Where the schedule of the whole crowd begins at `from`.
    pub(crate) fn pacing(self, from: Nanos) -> Pacing {
        Pacing::new(Some(self.rate_per_s), from.plus(self.offset))
    }
}

/// The schedule of one thread's connections, or of its messages.
#[derive(Debug)]
pub(crate) struct Pacing {
    /// How many a second; none when only the window bounds them.
    rate_per_s: Option<f64>,
    started: Nanos,
    issued: u64,
}

impl Pacing {
    pub(crate) fn new(rate_per_s: Option<f64>, started: Nanos) -> Self {
        Self {
            rate_per_s,
            started,
            issued: 0,
        }
    }

    /// Whether there is a rate, and not the window alone.
    pub(crate) fn is_paced(&self) -> bool {
        self.rate_per_s.is_some()
    }

    /// How many may be opened now. The first is due at once, the n-th after n intervals, however late its predecessors
    /// were.
    pub(crate) fn due(&self, now: Nanos) -> u64 {
        let Some(rate) = self.rate_per_s else {
            return u64::MAX;
        };
        if now < self.started {
            return 0;
        }
        let intervals = now.since(self.started).as_secs_f64() * rate + HAIR;
        let scheduled = truncate(intervals) + 1;
        scheduled.saturating_sub(self.issued)
    }

    /// How many more are due before `until`, of an open-loop schedule that ends there.
    pub(crate) fn due_before(&self, until: Nanos, now: Nanos) -> u64 {
        self.due(now).min(self.left_before(until))
    }

    /// How many more there are, due or not, of a schedule that ends at `until`.
    fn left_before(&self, until: Nanos) -> u64 {
        let Some(rate) = self.rate_per_s else {
            return u64::MAX;
        };
        let intervals = until.since(self.started).as_secs_f64() * rate - HAIR;
        truncate(intervals.ceil().max(0.0)).saturating_sub(self.issued)
    }

    /// Notes that `count` were opened.
    pub(crate) fn issue(&mut self, count: u64) {
        self.issued += count;
    }

    /// How many were opened.
    pub(crate) fn issued(&self) -> u64 {
        self.issued
    }

    /// When the one with so many before it is due; without a schedule, at once.
    pub(crate) fn at(&self, index: u64) -> Nanos {
        #[expect(
            clippy::cast_precision_loss,
            reason = "connections and messages of a run are far fewer than 2^52"
        )]
        let after = |rate| intervals(index as f64, rate);
        self.started
            .plus(self.rate_per_s.map_or(Duration::ZERO, after))
    }

    /// How long until the next one is due; zero when one already is.
    pub(crate) fn wait(&self, now: Nanos) -> Duration {
        self.next_at().map_or(Duration::ZERO, |at| at.since(now))
    }

    /// The same of a schedule that ends at `until`. When no more come, nothing is waited for.
    pub(crate) fn wait_before(&self, until: Nanos, now: Nanos) -> Duration {
        if self.left_before(until) == 0 {
            return Duration::MAX;
        }
        self.wait(now)
    }

    /// How long the next one has been due: the schedule's lateness. Zero without a schedule.
    pub(crate) fn lateness(&self, now: Nanos) -> Duration {
        self.next_at().map_or(Duration::ZERO, |at| now.since(at))
    }

    fn next_at(&self) -> Option<Nanos> {
        self.rate_per_s.map(|_| self.at(self.issued))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Nanos {
        Nanos(millis * 1_000_000)
    }

    #[test]
    fn the_schedule_is_open_loop() {
        let mut pacing = Pacing::new(Some(100.0), at(1000));
        assert_eq!(pacing.due(at(999)), 0);
        assert_eq!(pacing.wait(at(999)), Duration::from_millis(1));
        assert_eq!(pacing.due(at(1000)), 1);
        pacing.issue(1);
        assert_eq!(pacing.due(at(1009)), 0);
        assert_eq!(pacing.wait(at(1004)), Duration::from_millis(6));
        assert_eq!(pacing.due(at(1010)), 1);
        // Half a second during which nothing could be opened is made up for, not forgotten.
        assert_eq!(pacing.due(at(1510)), 51);
        assert_eq!(pacing.lateness(at(1510)), Duration::from_millis(500));
        pacing.issue(51);
        assert_eq!(pacing.due(at(1510)), 0);
        assert_eq!(pacing.lateness(at(1510)), Duration::ZERO);
    }

    #[test]
    fn a_schedule_that_ends_has_as_many_as_its_rate_says() {
        for (rate, seconds) in [(1.0, 1), (3.0, 10), (100.0, 7), (33_333.0, 60)] {
            let mut pacing = Pacing::new(Some(rate), at(500));
            let until = at(500 + seconds * 1000);
            let whole = truncate(rate) * seconds;
            assert_eq!(pacing.due_before(until, until), whole);
            assert!(pacing.at(whole - 1) < until && pacing.at(whole) >= until);
            assert_eq!(pacing.due_before(until, at(500)), 1);
            assert_eq!(pacing.wait_before(until, at(900_000)), Duration::ZERO);
            pacing.issue(whole);
            assert_eq!(pacing.wait_before(until, at(900_000)), Duration::MAX);
            assert_eq!(pacing.due_before(until, at(900_000)), 0);
            assert_eq!(pacing.due_before(at(500), at(900_000)), 0);
        }
    }

    #[test]
    fn what_is_due_after_the_end_of_time_is_never_due() {
        let mut pacing = Pacing::new(Some(1e-12), at(1000));
        assert_eq!(pacing.at(0), at(1000));
        assert_eq!(pacing.at((1 << 48) - 1), Nanos(u64::MAX));
        pacing.issue(1);
        assert_eq!(pacing.due(at(9_000_000)), 0);
        assert!(pacing.wait(at(2000)) > Duration::from_secs(1 << 33));
        assert_eq!(pacing.lateness(at(9_000_000)), Duration::ZERO);
    }

    #[test]
    fn without_a_rate_everything_is_due_and_nothing_is_late() {
        let pacing = Pacing::new(None, at(0));
        assert_eq!(pacing.due(at(0)), u64::MAX);
        assert_eq!(pacing.lateness(at(9000)), Duration::ZERO);
        assert_eq!(pacing.wait(at(9000)), Duration::ZERO);
    }

    #[test]
    fn a_million_connections_keep_the_average_exact() {
        let mut pacing = Pacing::new(Some(50_000.0), at(0));
        let mut opened = 0;
        for step in 0..20_000 {
            let due = pacing.due(at(step));
            pacing.issue(due);
            opened += due;
        }
        assert_eq!(opened, 50 * 19_999 + 1);
    }
}
