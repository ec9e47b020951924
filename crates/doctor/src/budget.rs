//! From limits to a decision.

use crate::limits::{self, Load};
use crate::machine::{IoUring, Machine};
use crate::units::count;
use serde::Serialize;

/// What a limit does to the connections beyond it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// They cannot be opened.
    Stops,
    /// They can be opened; something gets slower or less polite.
    Degrades,
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
    /// The figures behind [`Limit::connections`], in a sentence.
    pub evidence: String,
    /// What to do about it.
    pub remedy: String,
}

/// Something worth knowing about a machine that is not a number of connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remark {
    /// What was found.
    pub finding: String,
    /// What it means here and what to do.
    pub consequence: String,
}

/// The limits of a machine, and what they come to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Budget {
    /// The nearest first.
    pub limits: Vec<Limit>,
    /// Findings that are not limits.
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
    /// What the machine allows for that load.
    #[must_use]
    pub fn new(machine: &Machine, load: Load) -> Self {
        let mut limits = limits::all(machine, load);
        limits.sort_by_key(|limit| limit.connections);
        Self {
            limits,
            remarks: remarks(machine),
        }
    }

    /// The first limit that stops further connections.
    ///
    /// There always is one: memory is never without end.
    #[must_use]
    pub fn first_stop(&self) -> &Limit {
        self.limits
            .iter()
            .find(|limit| limit.effect == Effect::Stops)
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
        let why = format!(
            "{} allows {} of the {} wanted: {}. To get further: {}",
            capitalised(stop.name),
            count(stop.connections),
            count(wanted),
            stop.evidence,
            stop.remedy
        );
        Decision {
            connections: stop.connections,
            why,
        }
    }

    /// Limits that `connections` pass and that make something worse, the nearest first.
    pub fn degrading(&self, connections: u64) -> impl Iterator<Item = &Limit> {
        self.limits.iter().filter(move |limit| {
            limit.effect == Effect::Degrades && limit.connections < connections
        })
    }
}

/// An accept queue shorter than this overflows when tens of thousands connect in a second; each overflow
/// costs a client the second until it repeats its SYN.
const BACKLOG_MIN: u64 = 1_024;

fn remarks(machine: &Machine) -> Vec<Remark> {
    let mut remarks = Vec::new();
    match machine.io_uring {
        IoUring::Allowed => {}
        IoUring::KernelTooOld => remarks.push(Remark {
            finding: format!("Linux {} is older than 6.8", machine.kernel.release),
            consequence: "The epoll driver is used; io_uring needs about a third less CPU per message.".into(),
        }),
        IoUring::Disabled => remarks.push(Remark {
            finding: "kernel.io_uring_disabled forbids io_uring to this process".into(),
            consequence: "The epoll driver is used; sysctl -w kernel.io_uring_disabled=0 allows the faster one.".into(),
        }),
    }
    if machine.tcp.backlog_max < BACKLOG_MIN {
        remarks.push(Remark {
            finding: format!("net.core.somaxconn is {}", machine.tcp.backlog_max),
            consequence: "Clients that connect all at once wait a second or more; sysctl -w net.core.somaxconn=4096."
                .into(),
        });
    }
    if machine.cores.usable < machine.cores.online {
        remarks.push(Remark {
            finding: format!(
                "{} of {} cores may be used",
                machine.cores.usable, machine.cores.online
            ),
            consequence: "Affinity or a control group's CPU quota holds the others back.".into(),
        });
    }
    remarks
}

fn capitalised(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(characters).collect()
    })
}

#[cfg(test)]
mod tests;
