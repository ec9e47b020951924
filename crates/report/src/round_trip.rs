//! What came back of messages and requests.

use serde::{Deserialize, Serialize};

/// What came back of what was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RoundTripReport {
    /// Asked for, over the whole run.
    pub rate_per_s: f64,
    /// Written, without those whose connection was left on purpose before they could come back.
    pub sent: u64,
    /// Came back as they were. When the run ended as planned, `sent` is `received` and `lost` together.
    pub received: u64,
    /// Did not come back within the settle time, or before their connection ended.
    pub lost: u64,
    /// Answers that were wrong, repeated, or to nothing that was asked: no part of `received`.
    pub errors: u64,
    /// Fell due and were not written before the end, because too much was unanswered or nobody was connected.
    pub unsent: u64,
    /// `received` over the time from the first that was due to the end, or to the last that came back if that is later.
    pub received_per_s: f64,
    /// From the time each was due to its answer, in milliseconds.
    pub round_trip_ms: RoundTripTimes,
}

/// Times in milliseconds; all absent when nothing came back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RoundTripTimes {
    /// The arithmetic mean.
    pub mean: Option<f64>,
    /// Of half of those that came back.
    pub p50: Option<f64>,
    /// Of 90%.
    pub p90: Option<f64>,
    /// Of 99%.
    pub p99: Option<f64>,
    /// Of 99.9%.
    pub p999: Option<f64>,
    /// Of the slowest.
    pub max: Option<f64>,
}
