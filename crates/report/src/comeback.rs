//! Clients whose connection was dropped or lost, and that came back.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Clients that came back, or were to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ComebackReport {
    /// Connections that ended and whose client was to come back: dropped by a storm, or lost.
    pub gone: u64,
    /// Of them, those that were replaced.
    pub back: u64,
    /// Of them, those whose client gave up after all its attempts. The others were still on their way.
    pub given_up: u64,
    /// Connections that were begun for that.
    pub attempts: u64,
    /// Why attempts failed, by kind. They are among the errors of the report, too.
    pub errors: BTreeMap<String, u64>,
    /// Publications of this run that clients did not get because they were away. What they recovered is none of these.
    /// Each client finds out with the first publication that it gets afterwards.
    pub missed: u64,
    /// Milliseconds from the end of a connection to the next that is upgraded, and has its session if there is one: half
    /// of those that are back took at most that.
    pub p50_ms: Option<f64>,
    /// The same for 99% of them.
    pub p99_ms: Option<f64>,
    /// The same for the slowest.
    pub slowest_ms: Option<f64>,
    /// Each storm, in the order in which they were given.
    pub storms: Vec<StormReport>,
}

/// A storm: a share of the crowd that dropped its connections at once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct StormReport {
    /// Seconds after the end of connecting.
    pub at_s: f64,
    /// The share that was to drop, between 0 and 1.
    pub share: f64,
    /// Clients that dropped their connections.
    pub dropped: u64,
    /// Of them, those that came back.
    pub back: u64,
    /// Milliseconds from the first that dropped to the last that was back; `null` in JSON also when some never were.
    pub all_back_ms: Option<f64>,
}
