//! What a machine's settings mean that are no number of connections.

mod network;
mod obsolete;
mod process;

use crate::limits::Load;
use crate::machine::Machine;
use crate::names::remark;
use serde::Serialize;

/// Something worth knowing about a machine that is not a number of connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remark {
    /// A few words, what it is about.
    pub name: &'static str,
    /// Whether something should be done.
    pub weight: Weight,
    /// What was found.
    pub finding: String,
    /// What it means here and what to do.
    pub consequence: String,
    /// The file read, or the trial made.
    pub read_from: &'static str,
}

/// How much a remark matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// Nothing needs to be done.
    Note,
    /// Something is worse than it could be.
    Warning,
}

/// Everything there is to say, warnings first.
pub(crate) fn all(machine: &Machine, load: Load) -> Vec<Remark> {
    let mut remarks = vec![process::io_uring(machine)];
    remarks.extend(unread(machine));
    remarks.extend(network::listening_port(machine, load));
    remarks.extend(process::cores(machine));
    remarks.extend(obsolete::old_advice_in_files(machine));
    remarks.extend(network::cards(machine));
    remarks.extend(process::out_of_memory(machine));
    remarks.extend(process::threads(machine, load));
    remarks.extend(process::group_memory(machine));
    remarks.extend(process::container(machine));
    remarks.extend(network::untracked(machine, load));
    remarks.extend(network::tracking_timeouts(machine, load));
    remarks.extend(network::addresses(machine));
    remarks.extend(process::epoll_watches(machine, load));
    remarks.extend(network::keepalive(machine));
    remarks.extend(network::socket_buffers(machine));
    remarks.extend(network::of_the_first_namespace(machine));
    remarks.extend(network::syn_cookies(machine, load));
    remarks.extend(process::huge_pages(machine));
    remarks.push(process::rights(machine));
    remarks.push(obsolete::old_advice());
    // Stable: within a weight the order above stays.
    remarks.sort_by_key(|remark| remark.weight == Weight::Note);
    remarks
}

fn note(
    name: &'static str,
    read_from: &'static str,
    finding: impl Into<String>,
    consequence: impl Into<String>,
) -> Remark {
    Remark {
        name,
        weight: Weight::Note,
        finding: finding.into(),
        consequence: consequence.into(),
        read_from,
    }
}

impl Remark {
    fn warning_if(mut self, condition: bool) -> Self {
        if condition {
            self.weight = Weight::Warning;
        }
        self
    }
}

fn unread(machine: &Machine) -> Option<Remark> {
    (!machine.unread.is_empty()).then(|| {
        note(
            remark::UNREAD,
            "the errors themselves",
            format!(
                "what follows could not be read: {}",
                machine.unread.join("; ")
            ),
            "What they bound is not judged here; run doctor where they can be read.",
        )
        .warning_if(true)
    })
}
