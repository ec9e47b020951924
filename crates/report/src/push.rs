//! One publication, as the crowd saw it.

use serde::{Deserialize, Serialize};

/// Who made a publication.
#[derive(Default, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Default, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FanoutTimes {
    /// To the first client.
    pub first_ms: Option<f64>,
    /// To half of those reached.
    pub p50_ms: Option<f64>,
    /// To 90% of those reached.
    pub p90_ms: Option<f64>,
    /// To 99% of those reached.
    pub p99_ms: Option<f64>,
    /// To 99.9% of those reached.
    pub p999_ms: Option<f64>,
    /// To the last client.
    pub last_ms: Option<f64>,
}

/// The figures of one publication.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PushReport {
    /// Who made it.
    pub origin: Origin,
    /// Its channel, where known.
    pub channel: Option<String>,
    /// Own: its number in its channel, from 1. Foreign: its number in the run, from 1.
    pub sequence: u32,
    /// When its clock began (own: due; foreign: first seen), in seconds since the run began.
    pub published_s: f64,
    /// Clients that were up and subscribed then, without the churned ones.
    pub expected: u64,
    /// Clients that left on purpose before it came.
    pub churned: u64,
    /// Clients it reached, of those expected.
    pub received: u64,
    /// Expected and not received. Zero of one that was not published, that the end of the run cut short, or that somebody
    /// else made: nobody knows whom that was meant for.
    pub missed: u64,
    /// Arrivals beyond those expected: a server that keeps history replays it to clients that connect later.
    pub replayed: u64,
    /// Received / expected, at most 1; zero when every connection had been lost before, absent when everyone had left on purpose
    /// or the server refused it.
    pub reach: Option<f64>,
    /// From publication to arrival.
    #[serde(flatten)]
    pub times: FanoutTimes,
    /// From the same time to the request's answer.
    pub accepted_ms: Option<f64>,
    /// What that answer was; absent of foreign ones, and when the run ended before it came.
    pub answer: Option<PublishAnswer>,
    /// Of the time from its first arrival to its last, what the busiest thread of the crowd was running; absent when that
    /// was below 20 ms.
    pub crowd_cpu_share: Option<f64>,
    /// Of all processors of the machine, whoever used them, until its last arrival; absent when that came too soon to say.
    pub machine_cpu_share: Option<f64>,
    /// Why the measurement ended.
    pub ended: Ended,
}
