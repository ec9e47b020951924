//! What follows from finished publications: times, the worst of them, and all of one origin together.

use crate::measure::figures::{add, as_millis, float, micros_as_millis, microseconds, share};
use crate::measure::process::{MACHINE_SATURATED_SHARE, SATURATED_SHARE};
use crate::measure::push::Tally;
use hdrhistogram::Histogram;
use myriad_report::{FanoutTimes, Origin, PublishAnswer, PushReport};
use std::time::Duration;

/// How far the product of two floats may miss its whole number, which must not cost a rank.
const HAIR: f64 = 1e-6;

/// All publications of one origin together.
pub(crate) struct FanoutFigures {
    pub worst: Worst,
    /// Clients that were to get those that were published, over all of them; and of them, those that did.
    pub expected: u64,
    pub received: u64,
    /// Expected and not received, where it is known who was expected.
    pub missed: u64,
    /// Own publications whose request was not answered with success.
    pub failed: u64,
    /// Every arrival, in microseconds.
    pub times: Histogram<u64>,
    /// The fastest and the slowest arrival, exactly.
    pub first: Duration,
    pub last: Duration,
    /// The one that reached all it was to reach soonest, and the one whose last arrival came latest.
    pub fastest: Option<Single>,
    pub slowest: Option<Single>,
    /// Publications during which a thread of the crowd, or the machine, had no rest.
    pub crowd_saturated: u64,
    pub machine_saturated: u64,
}

impl FanoutFigures {
    pub(super) fn new() -> Self {
        Self {
            worst: Worst::default(),
            expected: 0,
            received: 0,
            missed: 0,
            failed: 0,
            times: microseconds(),
            first: Duration::MAX,
            last: Duration::ZERO,
            fastest: None,
            slowest: None,
            crowd_saturated: 0,
            machine_saturated: 0,
        }
    }

    pub(super) fn add(&mut self, whole: &Tally, report: &PushReport) {
        self.worst.add(whole, report);
        if !report.ended.is_unpublished() {
            self.expected += report.expected;
            self.received += report.received;
        }
        self.missed += report.missed;
        let failed = |answer| answer != PublishAnswer::Accepted;
        self.failed += u64::from(report.answer.is_some_and(failed));
        let above = |share: Option<f64>, limit| u64::from(share.is_some_and(|share| share > limit));
        self.crowd_saturated += above(report.crowd_cpu_share, SATURATED_SHARE);
        self.machine_saturated += above(report.machine_cpu_share, MACHINE_SATURATED_SHARE);
        self.compare(whole, report);
        self.first = self.first.min(whole.first);
        self.last = self.last.max(whole.last);
        add(&mut self.times, &whole.times);
    }

    fn compare(&mut self, whole: &Tally, report: &PushReport) {
        let single = || {
            Some(Single {
                sequence: report.sequence,
                expected: report.expected,
                last: whole.last,
                times: whole.times.clone(),
            })
        };
        let is_slowest = |one: &Single| whole.last > one.last;
        if whole.received > 0 && self.slowest.as_ref().is_none_or(is_slowest) {
            self.slowest = single();
        }
        let is_fastest = |one: &Single| whole.last < one.last;
        let is_whole = whole.received > 0 && whole.received >= report.expected;
        if is_whole && self.fastest.as_ref().is_none_or(is_fastest) {
            self.fastest = single();
        }
    }

    /// Received / expected, over all publications.
    pub(crate) fn reach(&self) -> Option<f64> {
        share(self.received, self.expected)
    }
}

/// The worst of several publications: what thresholds are held against.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Worst {
    pub count: u64,
    pub times: FanoutTimes,
    pub reach: Option<f64>,
    pub accepted_ms: Option<f64>,
}

impl Worst {
    /// Adds one that reached whom it reached: what is missing of an own one counts as the worst there is.
    fn add(&mut self, whole: &Tally, report: &PushReport) {
        self.count += 1;
        let (times, reach, accepted_ms) = if report.origin == Origin::Own {
            let reach = if report.ended.is_unpublished() {
                Some(0.0)
            } else {
                report.reach
            };
            // Without a reach everyone was away on purpose. With one, somebody is missing even where nobody was up.
            let expected = reach.map_or(0, |_| report.expected.max(1));
            (
                times_of_expected(whole, expected),
                reach,
                report.accepted_ms.or(Some(f64::INFINITY)),
            )
        } else {
            // Whom somebody else meant to reach is unknown.
            (report.times, report.reach, None)
        };
        self.times = slower(self.times, times);
        self.reach = extreme(self.reach, reach, f64::min);
        self.accepted_ms = extreme(self.accepted_ms, accepted_ms, f64::max);
    }
}

/// The arrivals of one publication.
pub(crate) struct Single {
    pub sequence: u32,
    pub expected: u64,
    last: Duration,
    /// In microseconds.
    pub times: Histogram<u64>,
}

/// A quantile in milliseconds. A bucket reaches up to 0.1% past its values, which must not put a quantile past the last.
fn within(micros: u64, first: Duration, last: Duration) -> f64 {
    // Ends that agents tell may cross: `clamp` would panic then.
    let time = micros_as_millis(micros);
    time.max(as_millis(first)).min(as_millis(last))
}

/// Quantiles of a histogram of microseconds, between ends that are known exactly.
pub(crate) fn times_of(times: &Histogram<u64>, first: Duration, last: Duration) -> FanoutTimes {
    if times.is_empty() {
        return FanoutTimes::default();
    }
    let quantile = |q| Some(within(times.value_at_quantile(q), first, last));
    let (first, last) = (as_millis(first), as_millis(last));
    FanoutTimes {
        first_ms: Some(first),
        p50_ms: quantile(0.5),
        p90_ms: quantile(0.9),
        p99_ms: quantile(0.99),
        p999_ms: quantile(0.999),
        last_ms: Some(last),
    }
}

/// The times of `expected` clients, of which a publication may have reached fewer: what the others never saw took
/// forever. Absent when nobody was expected.
fn times_of_expected(whole: &Tally, expected: u64) -> FanoutTimes {
    let reached = times_of(&whole.times, whole.first, whole.last);
    if whole.received >= expected {
        return reached;
    }
    let never = Some(f64::INFINITY);
    let quantile = |q: f64| {
        let rank = (q * float(expected) - HAIR).ceil();
        let share = rank / float(whole.received);
        if share > 1.0 {
            return never;
        }
        let micros = whole.times.value_at_quantile(share);
        Some(within(micros, whole.first, whole.last))
    };
    FanoutTimes {
        first_ms: reached.first_ms.or(never),
        p50_ms: quantile(0.5),
        p90_ms: quantile(0.9),
        p99_ms: quantile(0.99),
        p999_ms: quantile(0.999),
        last_ms: never,
    }
}

/// Each time of the slower one.
fn slower(one: FanoutTimes, other: FanoutTimes) -> FanoutTimes {
    FanoutTimes {
        first_ms: extreme(one.first_ms, other.first_ms, f64::max),
        p50_ms: extreme(one.p50_ms, other.p50_ms, f64::max),
        p90_ms: extreme(one.p90_ms, other.p90_ms, f64::max),
        p99_ms: extreme(one.p99_ms, other.p99_ms, f64::max),
        p999_ms: extreme(one.p999_ms, other.p999_ms, f64::max),
        last_ms: extreme(one.last_ms, other.last_ms, f64::max),
    }
}

/// The larger or the smaller of two, as `choose` says; the one that is there if the other is not.
pub(super) fn extreme(a: Option<f64>, b: Option<f64>, choose: fn(f64, f64) -> f64) -> Option<f64> {
    [a, b].into_iter().flatten().reduce(choose)
}
