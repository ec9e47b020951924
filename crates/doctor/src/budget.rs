//! From limits to a decision.

use crate::limits::{self, Load};
use crate::machine::Machine;
use crate::remarks::{self, Remark};
use myriad_units::count;
use serde::Serialize;

/// What a limit does to the connections beyond it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// They cannot be opened.
    Stops,
    /// They can be opened; something gets slower or less polite.
    Degrades,
    /// That many that come in the same moment: further ones wait for a retry.
    DelaysBursts,
    /// That many that end in the same moment: further ones end less politely.
    CutsMassCloses,
}

/// One limit of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Limit {
    /// A few words, unique in a budget.
    pub name: &'static str,
    /// The machine's setting, with its unit.
    pub value: String,
    /// Connections at which it becomes the limit, headroom already taken off.
    pub connections: u64,
    /// What happens then.
    pub effect: Effect,
    /// False where this process is exempt from it by its rights: another user's program stops there all the same.
    pub binds_us: bool,
    /// The figures behind [`Limit::connections`], in a sentence.
    pub evidence: String,
    /// The file it was read from, or the trial made.
    pub read_from: &'static str,
    /// What to do about it.
    pub remedy: String,
}

/// What a limit means for a number of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Concern {
    /// Nothing.
    None,
    /// Something gets worse.
    Worse,
    /// They cannot all be opened.
    Stops,
}

/// An accept queue shorter than this overflows when tens of thousands connect in a second.
const BURST_MIN: u64 = 1_024;

impl Limit {
    /// That it ends below `wanted`, in the words of all commands.
    #[must_use]
    pub fn refusal(&self, wanted: u64) -> String {
        refusal(
            self.name,
            self.connections,
            wanted,
            &self.evidence,
            &self.remedy,
        )
    }

    /// What it means for `wanted` connections.
    #[must_use]
    pub fn concern(&self, wanted: u64) -> Concern {
        match self.effect {
            Effect::Stops if self.connections < wanted && !self.binds_us => Concern::Worse,
            Effect::Stops if self.connections < wanted => Concern::Stops,
            Effect::Degrades if self.connections < wanted => Concern::Worse,
            Effect::DelaysBursts if self.connections < wanted.min(BURST_MIN) => Concern::Worse,
            _ => Concern::None,
        }
    }
}

/// The limits of a machine, and what they come to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Budget {
    /// The nearest first.
    pub limits: Vec<Limit>,
    /// Findings that are not limits, those to act on first.
    pub remarks: Vec<Remark>,
}

/// How many connections to open, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// At most what was wanted, at most what the machine allows.
    pub connections: u64,
    /// One or two sentences for a person.
    pub why: String,
}

impl Budget {
    /// What the machine allows for that load; what it advises is made for the connections wanted.
    #[must_use]
    pub fn new(machine: &Machine, load: Load, wanted: u64) -> Self {
        let mut limits = limits::all(machine, load, wanted);
        limits.sort_by_key(|limit| limit.connections);
        Self {
            limits,
            remarks: remarks::all(machine, load),
        }
    }

    /// The first limit that stops further connections of this process.
    ///
    /// There always is one: memory is never without end.
    #[must_use]
    pub fn first_stop(&self) -> &Limit {
        self.limits
            .iter()
            .find(|limit| limit.effect == Effect::Stops && limit.binds_us)
            .expect("the memory limit is always present")
    }

    /// How many connections to open when `wanted` are wanted.
    #[must_use]
    pub fn connections(&self, wanted: u64) -> Decision {
        let stop = self.first_stop();
        if wanted <= stop.connections {
            let why = format!(
                "This machine allows {}; the first thing to stop more is {} ({}).",
                count(stop.connections),
                stop.name,
                stop.value
            );
            return Decision {
                connections: wanted,
                why,
            };
        }
        Decision {
            connections: stop.connections,
            why: stop.refusal(wanted),
        }
    }

    /// Limits that `connections` pass and that make something worse, the nearest first.
    pub fn degrading(&self, connections: u64) -> impl Iterator<Item = &Limit> {
        self.limits.iter().filter(move |limit| {
            limit.effect == Effect::Degrades && limit.connections < connections
        })
    }
}

/// That something ends below what is wanted, why, and what to do: the same words wherever it is said.
#[must_use]
pub fn refusal(name: &str, allowed: u64, wanted: u64, evidence: &str, remedy: &str) -> String {
    format!(
        "{} {} of the {} wanted: {evidence}. To get further: {remedy}",
        allows(name),
        count(allowed),
        count(wanted),
    )
}

/// `Memory allows`, `Source ports allow`.
pub(crate) fn allows(name: &str) -> String {
    let (noun, _) = name.split_once(" of ").unwrap_or((name, ""));
    let verb = if noun.ends_with('s') {
        "allow"
    } else {
        "allows"
    };
    format!("{} {verb}", capitalised(name))
}

pub(crate) fn capitalised(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(characters).collect()
    })
}

#[cfg(test)]
mod tests;
