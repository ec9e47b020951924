//! Deliveries of what clients published themselves: how many came, and how long they took from the time they were due.
//!
//! A reply to a publishing client promises a delivery to each subscriber of its channel. So what is missing is known as long as
//! nobody leaves.

use crate::clock::Nanos;
use crate::measure::push::{as_micros, microseconds};
use crate::measure::rates::per_second;
use crate::measure::round_trip::times_of;
use hdrhistogram::Histogram;
use myriad_report::DeliveryReport;
use std::time::Duration;

/// Counts of one thread, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Subscribers of the channels of all publications that the server accepted.
    pub expected: u64,
    pub received: u64,
    /// When the last one came. Merged by maximum.
    pub last: Option<Nanos>,
}

impl Counts {
    /// Adds another thread's.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.expected += other.expected;
        self.received += other.received;
        self.last = self.last.max(other.last);
    }

    /// Whether everything came that was promised.
    pub(crate) fn are_complete(&self) -> bool {
        self.received >= self.expected
    }
}

/// Counts and times.
#[derive(Clone, Debug)]
pub(crate) struct Deliveries {
    pub counts: Counts,
    /// From the time a publication was due to its delivery, in microseconds.
    pub times: Histogram<u64>,
}

impl Default for Deliveries {
    fn default() -> Self {
        Self {
            counts: Counts::default(),
            times: microseconds(),
        }
    }
}

impl Deliveries {
    /// Records so many that came at `now`, so long after their publication was due.
    pub(crate) fn record(&mut self, time: Duration, count: u64, now: Nanos) {
        self.counts.received += count;
        self.counts.last = self.counts.last.max(Some(now));
        self.times
            .record_n(as_micros(time), count)
            .expect("a histogram that grows takes any value");
    }

    /// Adds another thread's.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.counts.merge(&other.counts);
        self.times
            .add(&other.times)
            .expect("a histogram that grows takes any other of its precision");
    }

    /// The figures of a schedule that lasted from `from` to `until`. `are_all_there`: every client was connected all the time,
    /// so that it is known what had to come.
    pub(crate) fn report(&self, from: Nanos, until: Nanos, are_all_there: bool) -> DeliveryReport {
        let Counts {
            expected,
            received,
            last,
        } = self.counts;
        // What comes after the end took longer, and must not make the server look faster.
        let elapsed = until.max(last.unwrap_or(until)).since(from);
        DeliveryReport {
            expected: are_all_there.then_some(expected),
            received,
            missed: are_all_there.then(|| expected.saturating_sub(received)),
            received_per_s: per_second(received, elapsed),
            delivery_ms: times_of(&self.times),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Nanos {
        Nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn what_is_missing_is_known_as_long_as_nobody_leaves() {
        let mut one = Deliveries::default();
        one.counts.expected = 300;
        one.record(Duration::from_millis(2), 100, seconds(11));
        let mut two = Deliveries::default();
        two.record(Duration::from_millis(4), 100, seconds(14));
        two.record(Duration::from_millis(4), 50, seconds(13));
        one.merge(&two);
        assert!(!one.counts.are_complete());
        let report = one.report(seconds(10), seconds(12), true);
        assert_eq!((report.expected, report.missed), (Some(300), Some(50)));
        assert_eq!((report.received, report.received_per_s), (250, 62.5));
        assert!((report.delivery_ms.max.unwrap() - 4.0).abs() < 0.01);
        let report = one.report(seconds(10), seconds(12), false);
        assert_eq!((report.expected, report.missed), (None, None));
        one.record(Duration::ZERO, 50, seconds(20));
        assert!(one.counts.are_complete());
    }
}
