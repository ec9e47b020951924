//! Messages and requests that are to come back: how many did, and how long they took from the time they were due.
//!
//! A schedule says when each falls due, however late its predecessors were. What could not be written in time is
//! written late and still counts from when it was due, so that a server that stalls is charged for everything that
//! waited meanwhile and not only for the one message that found it stalled.

use crate::clock::Nanos;
use crate::measure::figures::{add, micros_as_millis, microseconds, record};
use crate::measure::rates::per_scheduled_second;
use hdrhistogram::Histogram;
use myriad_report::{RoundTripReport, RoundTripTimes};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Counts of one thread, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// Fell due so far.
    pub due: u64,
    /// Written.
    pub sent: u64,
    /// Of those, the ones whose connection was left on purpose (churn) before they came back.
    pub departed: u64,
    /// Came back as they were.
    pub received: u64,
    /// Did not come back within the settle time, or before their connection ended.
    pub lost: u64,
    /// Answers that were wrong, or to nothing that was asked.
    pub errors: u64,
    /// Largest lateness of the schedule that is this side's fault, and the server's. Merged by maximum.
    pub late: Duration,
    pub held: Duration,
    /// When the last one came back. Merged by maximum.
    pub last: Option<Nanos>,
}

impl Counts {
    /// Adds another thread's.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.due += other.due;
        self.sent += other.sent;
        self.departed += other.departed;
        self.received += other.received;
        self.lost += other.lost;
        self.errors += other.errors;
        self.late = self.late.max(other.late);
        self.held = self.held.max(other.held);
        self.last = self.last.max(other.last);
    }

    /// Written, and neither answered nor given up yet.
    pub(crate) fn outstanding(&self) -> u64 {
        self.sent - self.received - self.lost - self.departed
    }

    /// Whether no more messages ended than were sent, and no count is above `most`, which is more than one machine can reach.
    pub(crate) fn are_sound(&self, most: u64) -> bool {
        let ended = self.received.checked_add(self.lost);
        let ended = ended.and_then(|ended| ended.checked_add(self.departed));
        let is_within = self.due <= most && self.sent <= most && self.errors <= most;
        is_within && ended.is_some_and(|ended| ended <= self.sent)
    }

    /// Fell due and were never written.
    pub(crate) fn unsent(&self) -> u64 {
        self.due.saturating_sub(self.sent)
    }
}

/// Counts and times.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RoundTrips {
    pub counts: Counts,
    /// From the time a message was due to its answer, in microseconds.
    #[serde(with = "crate::measure::buckets")]
    pub times: Histogram<u64>,
}

impl Default for RoundTrips {
    fn default() -> Self {
        Self {
            counts: Counts::default(),
            times: microseconds(),
        }
    }
}

impl RoundTrips {
    /// Records one that came back so long after it was due.
    pub(crate) fn record(&mut self, time: Duration) {
        record(&mut self.times, time);
    }

    /// Adds another thread's.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.counts.merge(&other.counts);
        add(&mut self.times, &other.times);
    }

    /// The figures of a schedule of `rate_per_s` that lasted from `from` to `until`.
    pub(crate) fn report(&self, rate_per_s: f64, from: Nanos, until: Nanos) -> RoundTripReport {
        let counts = &self.counts;
        // What comes back after the end took longer, and must not make the server look faster.
        let elapsed = until.max(counts.last.unwrap_or(until)).since(from);
        RoundTripReport {
            rate_per_s,
            sent: counts.sent - counts.departed,
            received: counts.received,
            lost: counts.lost,
            errors: counts.errors,
            unsent: counts.unsent(),
            received_per_s: per_scheduled_second(counts.received, elapsed),
            round_trip_ms: times_of(&self.times),
        }
    }
}

pub(crate) fn times_of(times: &Histogram<u64>) -> RoundTripTimes {
    if times.is_empty() {
        return RoundTripTimes::default();
    }
    let quantile = |q| {
        let micros = times.value_at_quantile(q).min(times.max());
        Some(micros_as_millis(micros))
    };
    RoundTripTimes {
        mean: Some(times.mean() / 1000.0),
        p50: quantile(0.5),
        p90: quantile(0.9),
        p99: quantile(0.99),
        p999: quantile(0.999),
        max: Some(micros_as_millis(times.max())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Nanos {
        Nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn threads_add_up_and_who_left_was_never_sent() {
        let counts = Counts {
            due: 60,
            sent: 50,
            departed: 2,
            received: 40,
            lost: 8,
            errors: 1,
            late: Duration::from_millis(3),
            held: Duration::ZERO,
            last: Some(seconds(19)),
        };
        let mut one = RoundTrips {
            counts,
            ..RoundTrips::default()
        };
        let mut two = one.clone();
        two.counts.late = Duration::from_millis(1);
        two.counts.held = Duration::from_millis(9);
        two.counts.last = None;
        (0..40).for_each(|_| one.record(Duration::from_millis(2)));
        (0..40).for_each(|_| two.record(Duration::from_millis(4)));
        one.merge(&two);
        assert_eq!(one.counts.outstanding(), 0);
        assert_eq!(one.counts.late, Duration::from_millis(3));
        assert_eq!(one.counts.held, Duration::from_millis(9));
        let report = one.report(12.0, seconds(10), seconds(20));
        assert_eq!((report.sent, report.received, report.lost), (96, 80, 16));
        assert_eq!((report.errors, report.unsent), (2, 20));
        assert_eq!(report.received_per_s, 8.0);
        let times = report.round_trip_ms;
        assert!((times.mean.unwrap() - 3.0).abs() < 0.01);
        assert!((times.p50.unwrap() - 2.0).abs() < 0.01);
        assert!((times.max.unwrap() - 4.0).abs() < 0.01);
    }

    #[test]
    fn answers_after_the_end_do_not_raise_the_rate() {
        let mut trips = RoundTrips::default();
        trips.counts.received = 100;
        trips.counts.last = Some(seconds(30));
        let report = trips.report(50.0, seconds(10), seconds(12));
        assert_eq!(report.received_per_s, 5.0);
    }

    #[test]
    fn a_schedule_that_ended_at_once_has_no_more_a_second_than_came() {
        let mut trips = RoundTrips::default();
        trips.counts.received = 1;
        let until = Nanos(10_006_500_000);
        trips.counts.last = Some(until);
        let report = trips.report(50.0, seconds(10), until);
        assert_eq!(report.received_per_s, 1.0);
    }

    #[test]
    fn nothing_received_has_no_times() {
        let report = RoundTrips::default().report(1.0, seconds(0), seconds(0));
        assert_eq!(report.round_trip_ms, RoundTripTimes::default());
        assert_eq!(report.received_per_s, 0.0);
    }
}
