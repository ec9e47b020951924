//! What was counted and timed of a flow.

use crate::measure::figures::{add, microseconds, record};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The figures of one flow in one thread.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FlowFigures {
    pub due: u64,
    pub sent: u64,
    pub expected: u64,
    pub received: u64,
    pub missing: u64,
    /// Of those expected, the ones whose receiver or whose sender left on purpose before they came.
    pub away: u64,
    /// To somebody who was not there when the message was sent.
    pub replayed: u64,
    pub duplicated: u64,
    pub out_of_order: u64,
    /// To somebody outside the audience.
    pub unexpected: u64,
    /// Of messages that the ledger has no more.
    pub late: u64,
    /// Messages that all of their audience got, and those of which something is missing.
    pub complete: u64,
    pub incomplete: u64,
    /// Requests that were answered otherwise than they should be, and those that were not answered.
    pub refused: u64,
    pub unanswered: u64,
    /// Largest lateness of the schedule that is this side's fault.
    pub behind: Duration,
    /// From the time a message was due, and from when it was written, to each delivery, in microseconds.
    #[serde(with = "crate::measure::buckets")]
    pub since_due: Histogram<u64>,
    #[serde(with = "crate::measure::buckets")]
    pub since_sent: Histogram<u64>,
    /// From the time a message was due to its last delivery.
    #[serde(with = "crate::measure::buckets")]
    pub to_last: Histogram<u64>,
    /// From the time a request was due to its answer.
    #[serde(with = "crate::measure::buckets")]
    pub answered: Histogram<u64>,
}

impl Default for FlowFigures {
    fn default() -> Self {
        Self {
            due: 0,
            sent: 0,
            expected: 0,
            received: 0,
            missing: 0,
            away: 0,
            replayed: 0,
            duplicated: 0,
            out_of_order: 0,
            unexpected: 0,
            late: 0,
            complete: 0,
            incomplete: 0,
            refused: 0,
            unanswered: 0,
            behind: Duration::ZERO,
            since_due: microseconds(),
            since_sent: microseconds(),
            to_last: microseconds(),
            answered: microseconds(),
        }
    }
}

impl FlowFigures {
    /// Counts something of which only the answer is expected, before it leaves.
    pub(crate) fn note_asked(&mut self) {
        self.sent += 1;
        self.expected += 1;
    }

    /// Counts an answer as it should be, this long after it was due and since it was asked for. `is_all`: nothing else is expected.
    pub(crate) fn note_answered(
        &mut self,
        since_due: Duration,
        since_sent: Duration,
        is_all: bool,
    ) {
        record(&mut self.answered, since_due);
        if is_all {
            self.received += 1;
            self.complete += 1;
            record(&mut self.since_due, since_due);
            record(&mut self.since_sent, since_sent);
            record(&mut self.to_last, since_due);
        }
    }

    /// Counts an answer that is none of success, or not what it should be.
    pub(crate) fn note_refused(&mut self, is_all: bool) {
        self.refused += 1;
        self.note_missing(u64::from(is_all));
    }

    /// Counts an answer that does not come.
    pub(crate) fn note_unanswered(&mut self, is_all: bool) {
        self.unanswered += 1;
        self.note_missing(u64::from(is_all));
    }

    /// Counts what did not come of a message.
    pub(super) fn note_missing(&mut self, deliveries: u64) {
        self.missing += deliveries;
        self.incomplete += u64::from(deliveries > 0);
    }

    /// Counts a command or a request whose sender left on purpose before it was answered.
    pub(in crate::engine) fn note_left(&mut self, is_all: bool) {
        self.away += u64::from(is_all);
    }

    /// Messages of the flow that came to anybody, wanted or not.
    pub(crate) fn recognised(&self) -> u64 {
        let odd = self.unexpected + self.late + self.out_of_order;
        self.received + self.replayed + self.duplicated + odd
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.due += other.due;
        self.sent += other.sent;
        self.expected += other.expected;
        self.received += other.received;
        self.missing += other.missing;
        self.away += other.away;
        self.replayed += other.replayed;
        self.duplicated += other.duplicated;
        self.out_of_order += other.out_of_order;
        self.unexpected += other.unexpected;
        self.late += other.late;
        self.complete += other.complete;
        self.incomplete += other.incomplete;
        self.refused += other.refused;
        self.unanswered += other.unanswered;
        self.behind = self.behind.max(other.behind);
        for (times, more) in [
            (&mut self.since_due, &other.since_due),
            (&mut self.since_sent, &other.since_sent),
            (&mut self.to_last, &other.to_last),
            (&mut self.answered, &other.answered),
        ] {
            add(times, more);
        }
    }
}
