//! One publication, as the crowd saw it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who made a publication.
#[derive(Default, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// This run: times count from when it was due by the schedule; of a round's channels after the first, from the moment
    /// before the request was written.
    #[default]
    Own,
    /// Somebody else, or an origin of a later version: times count from its first arrival anywhere in the crowd.
    #[serde(other)]
    Foreign,
}

/// Why the measurement of a publication ended.
#[derive(Default, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// Everyone expected has it.
    #[default]
    Complete,
    /// Nothing more came for a while.
    Settled,
    /// The server did not take it.
    Refused,
    /// No connection to the publish URL: the server was not asked.
    Unreached,
    /// The run ended first.
    CutShort,
}

impl Ended {
    /// Whether it was never published, so that nobody could get it.
    #[must_use]
    pub fn is_unpublished(self) -> bool {
        matches!(self, Self::Refused | Self::Unreached)
    }
}

/// What became of the request that made a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PublishAnswer {
    /// The server took it; of several, at least one.
    Accepted,
    /// The server did not take it.
    Refused,
    /// The server could not be asked: there was no connection to the publish URL.
    Unreached,
    /// The server was asked and did not answer. It may have taken it: what arrives counts as always.
    Unanswered,
}

/// Times of one publication, in milliseconds; all absent when it reached nobody.
///
/// Where they are held against thresholds they are over everyone expected: infinite, and `null` in JSON, past those
/// that it reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct FanoutTimes {
    /// Time to the first client.
    pub first_ms: Option<f64>,
    /// Time to half of the clients that it reached.
    pub p50_ms: Option<f64>,
    /// Time to 90% of them.
    pub p90_ms: Option<f64>,
    /// Time to 99% of them.
    pub p99_ms: Option<f64>,
    /// Time to 99.9% of them.
    pub p999_ms: Option<f64>,
    /// Time to the last client.
    pub last_ms: Option<f64>,
}

/// The figures of one publication.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PushReport {
    /// Who made it.
    pub origin: Origin,
    /// Its channel; absent if it is not known.
    pub channel: Option<String>,
    /// Own: its number in its channel, from 1. Foreign: its number in the run, from 1.
    pub sequence: u32,
    /// When its clock began (own: due; foreign: first seen), in seconds since the run began.
    pub published_s: f64,
    /// Clients that were up and subscribed then, without the churned ones.
    pub expected: u64,
    /// Clients that left on purpose before it came.
    pub churned: u64,
    /// Clients that it reached, of those expected.
    pub received: u64,
    /// Clients expected and not reached. Zero of a publication that was not made, that the end of the run cut short, or that
    /// somebody else made: its audience is not known.
    pub missed: u64,
    /// Arrivals beyond those expected: a server that keeps history replays it to clients that connect later.
    pub replayed: u64,
    /// Received / expected, at most 1; zero when every connection had been lost before, absent when everyone had left on purpose
    /// or the server refused it.
    pub reach: Option<f64>,
    /// Times from its beginning to its arrivals.
    #[serde(flatten)]
    pub times: FanoutTimes,
    /// Milliseconds from the same beginning to the answer of the publish request.
    pub accepted_ms: Option<f64>,
    /// The answer; absent for publications of others, and if the run ended before it came.
    pub answer: Option<PublishAnswer>,
    /// Share of one processor that the busiest thread of the crowd used between first and last arrival; absent if that took
    /// less than 20 ms.
    pub crowd_cpu_share: Option<f64>,
    /// Share of all processors of the machine that anybody used until the last arrival; absent if it came too soon to say.
    pub machine_cpu_share: Option<f64>,
    /// Why the measurement ended.
    pub ended: Ended,
}
