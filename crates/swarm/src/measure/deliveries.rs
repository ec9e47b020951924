//! Deliveries of what clients published themselves: how many came, and how long they took from the time they were due.
//!
//! A reply to a publishing client promises a delivery to each subscriber of its channel. An error promises that there is none. A
//! publication without a reply may come or not. So what is missing is known as long as nobody leaves and every publication is
//! answered.

use crate::clock::Nanos;
use crate::engine::shared::Span;
use crate::measure::figures::{add, microseconds, record_count};
use crate::measure::rates::per_scheduled_second;
use crate::measure::round_trip::{self, times_of};
use hdrhistogram::Histogram;
use myriad_report::DeliveryReport;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Counts of one thread, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// Subscribers of the channels of all publications that the server accepted.
    pub expected: u64,
    /// Subscribers of those that were given up without a reply: the server may have accepted them.
    pub possible: u64,
    pub received: u64,
    /// When the last one came. Merged by maximum.
    pub last: Option<Nanos>,
}

impl Counts {
    /// Adds another thread's.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.expected += other.expected;
        self.possible += other.possible;
        self.received += other.received;
        self.last = self.last.max(other.last);
    }

    /// Whether everything came that can come.
    pub(crate) fn are_complete(&self) -> bool {
        self.received >= self.expected + self.possible
    }

    /// Whether more are awaited `now` of what was published by this schedule. The last reply came at `replied`.
    ///
    /// Nothing is awaited once nothing has come for the settle time. A server that is slower than the schedule may go on for
    /// long. So the limit is the schedule's own length and the settle time.
    pub(crate) fn are_awaited(
        &self,
        schedule: Span,
        replied: Option<Nanos>,
        settle: Duration,
        now: Nanos,
    ) -> bool {
        let Span { from, until } = schedule;
        let quiet_since = until.max(replied.max(self.last).unwrap_or(until));
        let longest = until.since(from) + settle;
        !self.are_complete() && now.since(quiet_since) < settle && now.since(until) < longest
    }
}

/// Counts and times.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Deliveries {
    pub counts: Counts,
    /// From the time a publication was due to its delivery, in microseconds.
    #[serde(with = "crate::measure::buckets")]
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
        record_count(&mut self.times, time, count);
    }

    /// Adds another thread's.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.counts.merge(&other.counts);
        add(&mut self.times, &other.times);
    }

    /// The figures of a schedule that lasted from `from` to `until`, with its replies.
    ///
    /// It is known what had to come if every client was connected all the time (`are_all_there`) and every publication was
    /// answered. One without a reply that came would make up for one that is missing elsewhere.
    pub(crate) fn report(
        &self,
        from: Nanos,
        until: Nanos,
        replies: &round_trip::Counts,
        are_all_there: bool,
    ) -> DeliveryReport {
        let Counts {
            expected,
            possible,
            received,
            last,
        } = self.counts;
        let are_answered = possible == 0 && replies.outstanding() == 0;
        let expected = (are_all_there && are_answered).then_some(expected);
        // What comes after the end took longer, and must not make the server look faster.
        let elapsed = until.max(last.unwrap_or(until)).since(from);
        DeliveryReport {
            expected,
            received,
            missed: expected.map(|expected| expected.saturating_sub(received)),
            received_per_s: per_scheduled_second(received, elapsed),
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
        let replies = round_trip::Counts::default();
        let mut one = Deliveries::default();
        one.counts.expected = 300;
        one.record(Duration::from_millis(2), 100, seconds(11));
        let mut two = Deliveries::default();
        two.record(Duration::from_millis(4), 100, seconds(14));
        two.record(Duration::from_millis(4), 50, seconds(13));
        one.merge(&two);
        assert!(!one.counts.are_complete());
        let report = one.report(seconds(10), seconds(12), &replies, true);
        assert_eq!((report.expected, report.missed), (Some(300), Some(50)));
        assert_eq!((report.received, report.received_per_s), (250, 62.5));
        assert!((report.delivery_ms.max.unwrap() - 4.0).abs() < 0.01);
        let report = one.report(seconds(10), seconds(12), &replies, false);
        assert_eq!((report.expected, report.missed), (None, None));
        one.record(Duration::ZERO, 50, seconds(20));
        assert!(one.counts.are_complete());
    }

    #[test]
    fn what_came_without_a_reply_makes_up_for_nothing() {
        let replies = round_trip::Counts::default();
        let mut deliveries = Deliveries::default();
        (deliveries.counts.expected, deliveries.counts.possible) = (300, 100);
        // Of the first three one is missing, and the fourth came.
        deliveries.record(Duration::ZERO, 300, seconds(12));
        assert!(!deliveries.counts.are_complete());
        let report = deliveries.report(seconds(10), seconds(12), &replies, true);
        assert_eq!((report.expected, report.missed), (None, None));
        assert_eq!(report.received, 300);
        deliveries.record(Duration::ZERO, 100, seconds(13));
        assert!(deliveries.counts.are_complete(), "nothing else can come");
    }

    #[test]
    fn more_is_awaited_for_the_settle_time_and_not_much_longer_than_the_schedule_took() {
        let schedule = Span {
            from: seconds(10),
            until: seconds(40),
        };
        let settle = Duration::from_secs(5);
        let mut counts = Counts {
            expected: 100,
            received: 99,
            ..Counts::default()
        };
        let last_awaited = |counts: &Counts, replied: Option<u64>| {
            let replied = replied.map(seconds);
            let mut times = (40..200).map(seconds);
            times.find(|&now| !counts.are_awaited(schedule, replied, settle, now))
        };
        assert_eq!(last_awaited(&counts, None), Some(seconds(45)));
        assert_eq!(last_awaited(&counts, Some(44)), Some(seconds(49)));
        counts.last = Some(seconds(39));
        assert_eq!(last_awaited(&counts, Some(38)), Some(seconds(45)));
        counts.last = Some(seconds(47));
        assert_eq!(last_awaited(&counts, Some(44)), Some(seconds(52)));
        // One comes again and again.
        counts.last = Some(seconds(199));
        assert_eq!(last_awaited(&counts, Some(44)), Some(seconds(75)));
        counts.received = 100;
        assert_eq!(last_awaited(&counts, Some(44)), Some(seconds(40)));
    }
}
