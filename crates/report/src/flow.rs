//! What came of the messages of a flow.

use crate::RoundTripTimes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What came of the messages of a flow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct FlowReport {
    /// Its name in the scenario.
    pub name: String,
    /// Messages a second that were asked for, over the whole run; absent where clients think.
    pub rate_per_s: Option<f64>,
    /// How long each client thinks between an answer and its next message; absent where there is a rate.
    pub think: Option<String>,
    /// Messages written.
    pub sent: u64,
    /// Messages that fell due and were not written.
    pub unsent: u64,
    /// Of those that were sent, the ones that all of their audience got.
    pub complete: u64,
    /// Deliveries that were to come: the open members of the audience of each message when it was sent, without `away`.
    pub expected: u64,
    /// Deliveries that came, each member once.
    pub received: u64,
    /// Of `expected`, those that did not come in the settle time.
    pub missing: u64,
    /// Deliveries that were to come and did not, because a client left on purpose before that (it dropped its connection, stalled or
    /// vanished): the member, or the sender of a message that nobody got. They are not in `expected`.
    pub away: u64,
    /// Deliveries to members that were not there when the message was sent, or left before they had it: what the server kept for them.
    /// They are not in `received`.
    pub replayed: u64,
    /// Deliveries to a member that had the message already.
    pub duplicated: u64,
    /// Deliveries behind that of a later message of the same sender.
    pub out_of_order: u64,
    /// Deliveries to somebody outside of the audience.
    pub unexpected: u64,
    /// Deliveries that came when the message was over.
    pub late: u64,
    /// Requests of a flow of callers that were answered otherwise than they should be. Their messages are not in `expected`.
    pub refused: u64,
    /// Requests that were not answered. What they were to bring may have come all the same.
    pub unanswered: u64,
    /// Deliveries a second, from the first message to the end of the schedule, or to the last delivery if that is later; over one second at least.
    pub received_per_s: f64,
    /// Milliseconds from the time a message was due to each of its deliveries.
    pub since_due_ms: RoundTripTimes,
    /// The same from when it was written. The difference is what the crowd was late.
    pub since_sent_ms: RoundTripTimes,
    /// Milliseconds from the time a message was due to its last delivery, of the complete ones.
    pub to_last_ms: RoundTripTimes,
    /// Milliseconds from the time a request was due to its answer; all empty where messages are no requests.
    pub answered_ms: RoundTripTimes,
    /// Largest lateness of the schedule.
    pub behind_ms: f64,
}

impl FlowReport {
    /// Requests without the answer that they should have.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.refused + self.unanswered
    }

    /// Whether the server took no message of it.
    #[must_use]
    pub fn is_untaken(&self) -> bool {
        let failed = self.failed();
        failed > 0 && failed >= self.sent
    }
}
