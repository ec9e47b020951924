//! What clients asked and were told that speak HTTP.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What clients asked and were told that speak HTTP.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HttpReport {
    /// Requests that were written, repeated ones included.
    pub requests: u64,
    /// Polls that were answered, with a delivery or without, and other requests of clients; 0 for streams.
    pub answers: u64,
    /// `answers`, divided by the seconds since the first client connected.
    pub answers_per_s: f64,
    /// Answers in the best second; absent in a run that is shorter.
    pub peak_answers_per_s: Option<f64>,
    /// Of `answers`, those without a delivery: 204, 304, 408, or an empty 200.
    pub timeouts: u64,
    /// Comments, blank lines and empty messages of streams.
    pub heartbeats: u64,
    /// Connections that were replaced, because they ended behind an answer or between two, or with their stream. Their clients count as
    /// open all the while.
    pub reopened: u64,
    /// Clients of polls and streams that were between two such connections at the end. They are not in `open_at_end`.
    pub reopening: u64,
    /// Requests of clients that were sent again, because the server said 408 or ended a kept connection without an answer.
    pub repeated: u64,
    /// How long polls without a delivery were held; absent for streams.
    pub held: Option<HeldReport>,
}

/// How long polls were held that ended without a delivery, from the request to the answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HeldReport {
    /// Milliseconds of the shortest; absent, as all others, when no poll ended without a delivery.
    pub shortest_ms: Option<f64>,
    /// The arithmetic mean.
    pub mean_ms: Option<f64>,
    /// Half of them were held for at most that.
    pub p50_ms: Option<f64>,
    /// The same for 99%.
    pub p99_ms: Option<f64>,
    /// The longest.
    pub longest_ms: Option<f64>,
    /// The shortest and the longest time that was expected; absent without `--expect-held`.
    pub expected_ms: Option<(f64, f64)>,
    /// Polls that were held for less than the shortest expected time.
    pub early: Option<u64>,
    /// Polls that were held for more than the longest expected time and 100 ms.
    pub late: Option<u64>,
}
