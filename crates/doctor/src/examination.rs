//! The whole answer: what was asked, what was found, what it comes to, what to change.

use crate::budget::{Budget, Concern, Limit};
use crate::changes::{Change, changes};
use crate::limits::Load;
use crate::machine::Machine;
use crate::remarks::Remark;
use myriad_units::counted;
use serde::Serialize;

/// Version of the JSON form, `docs/doctor.schema.json`. It grows when a field changes its meaning or goes.
const SCHEMA: u32 = 1;

/// What `myriad doctor` has to say about a machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Examination {
    /// Version of this form.
    pub schema: u32,
    /// Connections asked for.
    pub wanted: u64,
    /// What they are.
    pub load: Load,
    /// Whether the machine allows as many.
    pub enough: bool,
    /// Connections it allows.
    pub connections: u64,
    /// The name of the limit that stops further ones.
    pub first_stop: &'static str,
    /// Both in a sentence.
    pub headline: String,
    /// Every limit, the nearest first.
    pub limits: Vec<JudgedLimit>,
    /// What is no number of connections.
    pub remarks: Vec<Remark>,
    /// What to change for the connections asked for.
    pub changes: Vec<Change>,
    /// What it was read from.
    pub machine: Machine,
}

/// A limit, and what it means for the connections asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JudgedLimit {
    /// The limit.
    #[serde(flatten)]
    pub limit: Limit,
    /// Whether it matters for them.
    pub concern: Concern,
}

impl Examination {
    /// Judges a machine for that many connections.
    #[must_use]
    pub fn new(machine: Machine, load: Load, wanted: u64) -> Self {
        let budget = Budget::new(&machine, load, wanted);
        let stop = budget.first_stop();
        let (connections, first_stop) = (stop.connections, stop.name);
        let headline = format!(
            "With this machine as it is: {}; the next thing to stop you is {} ({}).",
            counted(connections, "connection"),
            stop.name,
            stop.value
        );
        Self {
            schema: SCHEMA,
            wanted,
            load,
            enough: connections >= wanted,
            connections,
            first_stop,
            headline,
            changes: changes(&machine, load, wanted),
            limits: budget
                .limits
                .into_iter()
                .map(|limit| JudgedLimit {
                    concern: limit.concern(wanted),
                    limit,
                })
                .collect(),
            remarks: budget.remarks,
            machine,
        }
    }

    /// As `docs/doctor.schema.json` has it.
    ///
    /// # Panics
    /// Never: every field has a JSON form.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("no map with other keys than text")
    }
}
