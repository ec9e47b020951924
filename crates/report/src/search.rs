//! The report of a capacity search, as `myriad swarm find-max --json` writes it.

use crate::report::{Report, Unit, Verdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How a search ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SearchOutcome {
    /// The largest value is known at which every threshold holds.
    #[default]
    Found,
    /// Every threshold holds at the largest value that was allowed.
    Limit,
    /// A threshold fails at the smallest value too.
    NeverHeld,
    /// The crowd was the limit, not the server.
    GeneratorSaturated,
    /// No client could connect.
    NobodyConnected,
    /// The same values held and failed by turns until the last trial that was allowed.
    Unsettled,
    /// By a signal, with the trials so far.
    Interrupted,
}

/// The report of a search for the largest load that a server carries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SearchReport {
    /// `myriad swarm find-max`.
    pub program: String,
    /// The version of `myriad`.
    pub version: String,
    /// Seconds since 1970.
    pub started_unix_s: u64,
    /// Seconds that the whole search took.
    pub elapsed_s: f64,
    /// The file of the scenario.
    pub scenario: String,
    /// What the scenario shows, in its own words.
    pub description: Option<String>,
    /// The command line, without what is secret.
    pub command: Option<String>,
    /// The targets of the trials.
    pub targets: Vec<String>,
    /// Processors that the crowd's process may use.
    pub processors: usize,
    /// The kernel's release on the crowd's machine.
    pub kernel: String,
    /// The key of the scenario whose value was searched.
    pub key: String,
    /// What the value is: `count` or `per_s`.
    pub unit: Unit,
    /// Largest distance between the knee and the smallest value that failed, as a share of the knee.
    pub precision: f64,
    /// Times that the knee was to be repeated.
    pub repeats: u32,
    /// The thresholds, as given.
    pub thresholds: Vec<String>,
    /// How the search ended.
    pub outcome: SearchOutcome,
    /// The same as a sentence.
    pub summary: String,
    /// The largest value at which every threshold held; absent if there is none.
    pub knee: Option<Knee>,
    /// Each trial, in the order they were made.
    pub trials: Vec<Trial>,
}

/// The largest value at which every threshold held.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Knee {
    /// The value, in the search's unit.
    pub value: f64,
    /// The smallest larger value at which a threshold failed; absent if none did.
    pub failed_at: Option<f64>,
    /// Trials at this value, repeats and the one that found it.
    pub trials: u32,
    /// Of them, those in which every threshold held.
    pub held: u32,
    /// The full report of the last trial at this value.
    pub report: Box<Report>,
}

/// Why a trial was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// To find a value that is too large.
    #[default]
    Grow,
    /// To find a value that is small enough.
    Shrink,
    /// To come nearer, between one that holds and one that fails.
    Bisect,
    /// To see whether the knee holds again.
    Repeat,
}

/// One run of a search.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Trial {
    /// The value of the key, in the search's unit.
    pub value: f64,
    /// Why it was made.
    pub purpose: Purpose,
    /// Whether every threshold held.
    pub held: bool,
    /// What of the generator was at its limit: names of its checks, such as `cpu`.
    pub saturated: Vec<String>,
    /// Seconds from the beginning of the search to that of the trial.
    pub began_s: f64,
    /// Seconds that it took.
    pub elapsed_s: f64,
    /// Clients that connected.
    pub connected: u64,
    /// The verdict on each threshold.
    pub thresholds: Vec<Verdict>,
    /// Failures by kind.
    pub errors: BTreeMap<String, u64>,
    /// One sentence on what went wrong; absent when nothing did.
    pub went_wrong: Option<String>,
    /// Connections of earlier trials that were still there when it began.
    pub left_over: u64,
}
