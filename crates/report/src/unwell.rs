//! Clients that stopped reading, and clients that were gone without a word.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Clients that neither read nor sent for a time. No other figure of the report counts them meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct StallReport {
    /// Clients that stalled.
    pub stalled: u64,
    /// Of them, those that read again.
    pub resumed: u64,
    /// Connections that ended while their client stalled, or later: they are neither among `lost` nor among `closes`.
    pub ended: u64,
    /// How: `close_CODE` by a close frame of the server (`close_none` without a code), `reset`, `end` without a close frame,
    /// `timeout` of the kernel, or another kind of error.
    pub ends: BTreeMap<String, u64>,
    /// Milliseconds from when a client stalled to the end of its connection: half of those that ended took at most that.
    pub ended_p50_ms: Option<f64>,
    /// The same for the slowest.
    pub ended_slowest_ms: Option<f64>,
    /// Clients that still stalled, with their connection, when the crowd was counted for this report.
    pub stalling: u64,
    /// Deliveries of this run's pushes that were made while clients stalled, or were on their way to them then. The reach of a push
    /// does not count them.
    pub expected: u64,
    /// Of them, those that came when the clients read again, or with the end of their connection.
    pub received: u64,
    /// Of them, those that did not come.
    pub missing: u64,
}

/// Clients that were gone without a word: nothing of their server came through, and nobody answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct VanishReport {
    /// Clients that vanished.
    pub vanished: u64,
    /// Of them, those whose connection the server has ended in a way that can be seen from here: by a reset, or by a FIN without
    /// anything unread before it. It may have ended others.
    pub ends_seen: u64,
    /// Milliseconds from when a client vanished to that end: half of them took at most that.
    pub ends_p50_ms: Option<f64>,
    /// The same for the slowest.
    pub ends_slowest_ms: Option<f64>,
    /// Vanished clients that the server still took for connected at the end, by its own count of connections; absent without
    /// `--server-metrics`.
    pub held_by_server: Option<u64>,
    /// Milliseconds from when the first client vanished until the server counted none of them any more, to a second; `null` in JSON
    /// also when it still counted some at the end.
    pub all_noticed_ms: Option<f64>,
}
