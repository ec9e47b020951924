//! What came back of messages and requests.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What came back of messages or requests that the crowd sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RoundTripReport {
    /// Messages or requests a second that were asked for, over the whole run.
    pub rate_per_s: f64,
    /// Messages or requests written, without those whose connection was left on purpose before the answer came.
    pub sent: u64,
    /// Answers that carried what was sent. When the run ended as planned, `sent` is `received` and `lost` together.
    pub received: u64,
    /// Messages or requests without an answer within the settle time or before their connection ended.
    pub lost: u64,
    /// Answers that were wrong, repeated, or to nothing that was asked. They do not count as `received`.
    pub errors: u64,
    /// Messages or requests that fell due and were not written, because too many were unanswered or nobody was connected.
    pub unsent: u64,
    /// `received`, divided by the seconds from the first that was due to the end or to the last answer, whichever is later; by one second at least.
    pub received_per_s: f64,
    /// Milliseconds from the time each was due to its answer.
    pub round_trip_ms: RoundTripTimes,
}

/// Times in milliseconds; all absent when nothing came back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RoundTripTimes {
    /// The arithmetic mean.
    pub mean: Option<f64>,
    /// Half of the answers took at most that.
    pub p50: Option<f64>,
    /// The same for 90% of the answers.
    pub p90: Option<f64>,
    /// The same for 99%.
    pub p99: Option<f64>,
    /// The same for 99.9%.
    pub p999: Option<f64>,
    /// The slowest answer.
    pub max: Option<f64>,
}

/// What clients published over their own connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ClientPublishReport {
    /// The server's replies: `received` are publications that it accepted.
    #[serde(flatten)]
    pub replies: RoundTripReport,
    /// What came to the subscribers.
    pub delivery: DeliveryReport,
}

/// Deliveries of what clients published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DeliveryReport {
    /// Subscribers of the channels of all publications that the server accepted; absent if clients were missing, left or were
    /// lost, or if a publication had no reply.
    pub expected: Option<u64>,
    /// Deliveries that came, each subscriber once.
    pub received: u64,
    /// Of `expected`, those that did not come.
    pub missed: Option<u64>,
    /// `received`, divided by the seconds from the first publication that was due to the end or to the last delivery, whichever
    /// is later; by one second at least.
    pub received_per_s: f64,
    /// Milliseconds from the time a publication was due to its delivery.
    pub delivery_ms: RoundTripTimes,
}
