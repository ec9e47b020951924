//! Which settings to change for a number of connections, and to what.
//!
//! Only settings that bind: each one here is the limit of some connections asked for, or takes a listening
//! port out of harm's way. What only tends to be copied along is not here.

use crate::budget::{Concern, Limit};
use crate::limits::needed::{self, roomy};
use crate::limits::{Load, Program};
use crate::machine::Machine;
use crate::units::count;
use serde::Serialize;

/// A setting to change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Which.
    pub setting: Setting,
    /// What it is.
    pub from: String,
    /// What it should be.
    pub to: String,
    /// What that gives.
    pub why: String,
}

/// What can be changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    /// A sysctl, by its name with dots.
    Sysctl(&'static str),
    /// RLIMIT_NOFILE, soft and hard, of whatever program holds the connections.
    DescriptorLimit,
}

impl Setting {
    /// True for what a network namespace, and so a container, has to itself.
    #[must_use]
    pub fn belongs_to_namespace(&self) -> bool {
        matches!(self, Self::Sysctl(key) if key.starts_with("net.ipv4.") || key.starts_with("net.core."))
    }
}

/// Everything worth changing for `wanted` connections, in the order in which it has to be done.
#[must_use]
pub fn changes(machine: &Machine, load: Load, wanted: u64) -> Vec<Change> {
    [
        nr_open(machine, load, wanted),
        descriptor_limit(machine, load, wanted),
        file_max(machine, load, wanted),
        epoll_watches(machine, load, wanted),
        // First the port is out of reach, then the range reaches it.
        reserved_port(machine, load, wanted),
        port_range(machine, load, wanted),
        accept_queue(machine, load, wanted),
        conntrack(machine, load, wanted),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The limit `name`, if it ends below `wanted`.
fn binding(machine: &Machine, load: Load, wanted: u64, name: &str) -> Option<u64> {
    let limits = crate::limits::all(machine, load, wanted);
    let limit = limits.into_iter().find(|limit| limit.name == name)?;
    (limit.connections < wanted).then_some(limit.connections)
}

/// The limit `name`, if it means anything for `wanted`.
fn troubling(machine: &Machine, load: Load, wanted: u64, name: &str) -> Option<Limit> {
    let limits = crate::limits::all(machine, load, wanted);
    let limit = limits.into_iter().find(|limit| limit.name == name)?;
    (limit.concern(wanted) != Concern::None).then_some(limit)
}

/// Descriptors that each process of an ordinary program needs.
fn descriptors_of_a_process(machine: &Machine, load: Load, wanted: u64) -> Option<u64> {
    let Program::Ordinary { processes } = load.program else {
        return None;
    };
    binding(machine, load, wanted, "descriptors of a process")?;
    let each = load.role.connections_each();
    Some(roomy(
        (wanted.saturating_mul(each)).div_ceil(processes.max(1)),
    ))
}

fn nr_open(machine: &Machine, load: Load, wanted: u64) -> Option<Change> {
    let needed = descriptors_of_a_process(machine, load, wanted)?;
    let ceiling = machine.descriptors.table_ceiling;
    (needed > ceiling).then(|| Change {
        setting: Setting::Sysctl("fs.nr_open"),
        from: ceiling.to_string(),
        to: needed.to_string(),
        why: "no limit on descriptors can be set above it".into(),
    })
}

fn descriptor_limit(machine: &Machine, load: Load, wanted: u64) -> Option<Change> {
    let needed = descriptors_of_a_process(machine, load, wanted)?;
    Some(Change {
        setting: Setting::DescriptorLimit,
        from: machine.descriptors.table_soft.to_string(),
        to: needed.to_string(),
        why: format!(
            "a process needs that many descriptors for its share of {}",
            count(wanted)
        ),
    })
}

fn file_max(machine: &Machine, load: Load, wanted: u64) -> Option<Change> {
    let now = binding(machine, load, wanted, "open files of the machine")?;
    Some(Change {
        setting: Setting::Sysctl("fs.file-max"),
        from: machine.descriptors.files_max.to_string(),
        to: needed::files(machine, load, wanted).to_string(),
        why: format!("it ends at {} connections", count(now)),
    })
}

fn epoll_watches(machine: &Machine, load: Load, wanted: u64) -> Option<Change> {
    let now = binding(machine, load, wanted, "epoll watches of one user")?;
    Some(Change {
        setting: Setting::Sysctl("fs.epoll.max_user_watches"),
        from: machine.epoll_watches_max?.to_string(),
        to: needed::epoll_watches(load, wanted).to_string(),
        why: format!("it ends at {} connections", count(now)),
    })
}

/// The range to take ports from, and where they end now, if that is too few.
fn widens_ports(machine: &Machine, load: Load, wanted: u64) -> Option<((u16, u16), u64)> {
    let now = binding(machine, load, wanted, "source ports")?;
    Some((needed::wide_ports(machine.ports)?, now))
}

fn port_range(machine: &Machine, load: Load, wanted: u64) -> Option<Change> {
    let ((first, last), now) = widens_ports(machine, load, wanted)?;
    let ports = machine.ports;
    Some(Change {
        setting: Setting::Sysctl("net.ipv4.ip_local_port_range"),
        from: format!("{} {}", ports.first, ports.last),
        to: format!("{first} {last}"),
        why: format!("source ports end at {} connections", count(now)),
    })
}

/// A listening port inside the range, as it is or as it will be, can be taken by an outgoing connection.
fn reserved_port(machine: &Machine, load: Load, wanted: u64) -> Option<Change> {
    let listening = machine.listening;
    let wide = widens_ports(machine, load, wanted);
    let will_be = wide.is_some_and(|((first, last), _)| (first..=last).contains(&listening.port))
        && !listening.is_reserved;
    if !load.role.accepts() || !(listening.can_be_taken || will_be) {
        return None;
    }
    Some(Change {
        setting: Setting::Sysctl("net.ipv4.ip_local_reserved_ports"),
        from: machine.reserved_ports.clone(),
        to: needed::reserved_ports(machine, listening.port),
        why: format!(
            "no outgoing connection may take the listening port {}",
            listening.port
        ),
    })
}

fn accept_queue(machine: &Machine, load: Load, wanted: u64) -> Option<Change> {
    troubling(machine, load, wanted, "accept queue")?;
    let now = machine.tcp.backlog_max?;
    Some(Change {
        setting: Setting::Sysctl("net.core.somaxconn"),
        from: now.to_string(),
        to: needed::backlog(now).to_string(),
        why: format!(
            "more than {} clients at once wait a second for their next SYN",
            count(now + 1)
        ),
    })
}

fn conntrack(machine: &Machine, load: Load, wanted: u64) -> Option<Change> {
    let now = binding(machine, load, wanted, "connection tracking")?;
    let tracking = machine.conntrack?;
    Some(Change {
        setting: Setting::Sysctl("net.netfilter.nf_conntrack_max"),
        from: tracking.entries_max.to_string(),
        to: needed::conntrack(machine, load, wanted).to_string(),
        why: format!("its table is full at {} connections", count(now)),
    })
}

#[cfg(test)]
mod tests;
