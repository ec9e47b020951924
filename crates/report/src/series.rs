//! What a run looked like over time: bounded samples, distributions and arrival curves.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A run over time.
///
/// It has at most 240 samples: when there are more, neighbours become one, and each spans twice the time. So the report of a
/// run of ten hours is as large as that of four minutes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Series {
    /// Seconds that each sample but the last spans.
    pub interval_s: f64,
    /// From the beginning of the run to its end.
    pub samples: Vec<Sample>,
    /// How long things took, by when: one for each kind of time that was measured.
    pub heat: Vec<HeatMap>,
    /// How the arrivals of pushes spread over time.
    pub arrivals: Vec<ArrivalCurve>,
}

/// A part of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Sample {
    /// When it begins, in seconds since the run began.
    pub from_s: f64,
    /// When it ends.
    pub to_s: f64,
    /// Clients open at its end.
    pub connected: u64,
    /// The fewest clients that were open in it; absent in reports of earlier versions.
    pub connected_least: Option<u64>,
    /// Connections under way at its end.
    pub connecting: u64,
    /// Clients that connected, a second.
    pub opened_per_s: f64,
    /// Data messages received, a second.
    pub messages_per_s: f64,
    /// Echoes, requests, publications of clients and messages of flows that were sent, a second.
    pub sent_per_s: f64,
    /// Their answers, a second; of flows the answers to requests and commands, and what came back to who had sent it.
    pub answered_per_s: f64,
    /// Failures of any kind.
    pub errors: u64,
    /// Open connections that the server or the network ended.
    pub lost: u64,
    /// Share of the processors that the crowd's threads can use, in the busiest second.
    pub cpu_share: f64,
    /// Share of all processors of the machine, whoever used them, in the busiest second.
    pub machine_cpu_share: f64,
    /// Anonymous memory of the crowd's process, at most.
    pub rss_anon_bytes: u64,
    /// The server's process; absent without `--server-pid` and `--server-metrics`, and where it could not be read.
    pub server: Option<ServerSample>,
    /// Times by what was timed: `push`, `delivery`, `echo`, `client_publish`, `request`, `flow` (of all flows), `ping`. A push's times belong to when it
    /// was published, all others to when the answer came.
    pub times: BTreeMap<String, SampleTimes>,
}

/// What the server's process used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ServerSample {
    /// Processors it kept busy, such as 1.5, in the busiest second; absent where its processor time is not known, and where it fell.
    pub cpus: Option<f64>,
    /// Resident memory, at most.
    pub rss_bytes: Option<u64>,
    /// Connections that it says are open (`myriad_connections`).
    pub connections: Option<u64>,
}

/// Times of one kind in one sample. To 1%.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SampleTimes {
    /// How many were measured.
    pub count: u64,
    /// Half of them took at most that.
    pub p50_ms: f64,
    /// The same for 99%.
    pub p99_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

/// How many took how long, by when.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HeatMap {
    /// What was timed, as in [`Sample::times`].
    pub of: String,
    /// Upper bounds of the rows, ascending; ten for each power of ten. Values up to a tenth of the first are in the first row.
    pub bounds_ms: Vec<f64>,
    /// For each sample, its counts by row.
    pub counts: Vec<Vec<u64>>,
}

/// The share of arrivals by the time since a push was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ArrivalCurve {
    /// `all` pushes, the `fastest` or the `slowest`.
    pub of: String,
    /// The number of that one push.
    pub sequence: Option<u32>,
    /// Time in milliseconds and the share of the clients expected that had it by then. The last share is below 1 where
    /// deliveries are missing.
    pub points: Vec<(f64, f64)>,
}
