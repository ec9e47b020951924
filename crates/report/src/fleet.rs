//! The machines of a fleet.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A crowd on several machines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct FleetReport {
    /// Its agents, in the order of their terminals.
    pub agents: Vec<AgentReport>,
}

/// What an agent of a fleet had, and what it used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AgentReport {
    /// What people call it.
    pub name: String,
    /// The number of its first terminal; the others follow.
    pub first_terminal: u64,
    /// Its terminals.
    pub terminals: u64,
    /// Its threads.
    pub threads: u32,
    /// How far its clock is behind the controller's, in milliseconds; less than zero if it is ahead. Times are corrected by what was
    /// measured between the clocks that runs are timed with.
    pub clock_offset_ms: f64,
    /// The most by which that can be wrong, in milliseconds: half of the quickest exchange.
    pub clock_error_ms: f64,
    /// By how much the clocks have drifted apart since the run began, in milliseconds, beyond that error.
    pub clock_drift_ms: f64,
    /// Share of the processors that its threads can use, in the busiest second.
    pub cpu_share_max: f64,
    /// Share of all processors of its machine that anybody used, in the busiest second.
    pub machine_cpu_share_max: f64,
    /// Anonymous memory of its process.
    pub rss_anon_bytes: u64,
    /// When it was heard last before it was given up, in seconds since the beginning; absent if it was there to the end. What its
    /// terminals saw after that is unknown.
    pub lost_s: Option<f64>,
}
