//! Which settings to change for a number of connections, and to what.
//!
//! Only settings that bind: each one here is the limit of some connections asked for, or takes a listening
//! port out of harm's way. What only tends to be copied along is not here.

use crate::budget::{Concern, Limit};
use crate::limits::needed::{self, roomy};
use crate::limits::{Load, Program};
use crate::machine::Machine;
use crate::names::limit;
use myriad_units::{count, counted};
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
    /// RLIMIT_MEMLOCK, soft and hard, of the same program, in bytes.
    LockedMemory,
    /// `pids.max` of its control group.
    Threads,
    /// `oom_score_adj` of the program.
    OutOfMemoryScore,
}

impl Setting {
    /// What people know it by.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Sysctl(key) => key,
            Self::DescriptorLimit => "RLIMIT_NOFILE",
            Self::LockedMemory => "RLIMIT_MEMLOCK",
            Self::Threads => "pids.max",
            Self::OutOfMemoryScore => "oom_score_adj",
        }
    }

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
        locked_memory(machine, load, wanted),
        threads(machine, load),
        out_of_memory(machine),
        file_max(machine, load, wanted),
        epoll_watches(machine, load, wanted),
        // First the port is out of reach, then the range reaches it.
        reserved_port(machine, load, wanted),
        port_range(machine, load, wanted),
        accept_queue(machine, load, wanted),
        syn_cookies(machine, load, wanted),
        conntrack(machine, load, wanted),
    ]
    .into_iter()
    .flatten()
    .collect()
}

impl Machine {
    /// The same machine for a program that was given these changes, which it would inherit from whoever starts it.
    pub fn give(&mut self, changes: &[Change]) {
        for change in changes {
            let Ok(to) = change.to.parse::<u64>() else {
                continue;
            };
            match change.setting {
                Setting::DescriptorLimit => {
                    self.descriptors.table_soft = to;
                    self.descriptors.table_hard = to;
                }
                Setting::LockedMemory => self.descriptors.locked_bytes_max = Some(to),
                Setting::Threads => {
                    if let Some([most, _]) = &mut self.surroundings.threads {
                        *most = to;
                    }
                }
                Setting::OutOfMemoryScore => self.surroundings.oom_score_adjustment = Some(0),
                Setting::Sysctl(_) => {}
            }
        }
    }
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

/// What RLIMIT_NOFILE has to be where it binds.
fn descriptors(machine: &Machine, load: Load, wanted: u64) -> Option<u64> {
    binding(machine, load, wanted, limit::DESCRIPTORS)
        .or_else(|| binding(machine, load, wanted, limit::TABLES))?;
    needed::descriptors(machine, load, wanted)
}

fn nr_open(machine: &Machine, load: Load, wanted: u64) -> Option<Change> {
    let needed = descriptors(machine, load, wanted)?;
    let ceiling = machine.descriptors.table_ceiling;
    (needed > ceiling).then(|| Change {
        setting: Setting::Sysctl("fs.nr_open"),
        from: ceiling.to_string(),
        to: needed.to_string(),
        why: "no limit on descriptors can be set above it".into(),
    })
}

fn descriptor_limit(machine: &Machine, load: Load, wanted: u64) -> Option<Change> {
    let needed = descriptors(machine, load, wanted)?;
    let (from, why) = match load.program {
        Program::Ordinary { .. } => (
            machine.descriptors.table_soft,
            "a process needs that many descriptors for its share of",
        ),
        // It raises the soft limit itself.
        Program::Myriad => (
            machine.descriptors.table_hard,
            "as many tables as Myriad can have must be that large for",
        ),
    };
    Some(Change {
        setting: Setting::DescriptorLimit,
        from: from.to_string(),
        to: needed.to_string(),
        why: format!("{why} {}", count(wanted)),
    })
}

fn locked_memory(machine: &Machine, load: Load, wanted: u64) -> Option<Change> {
    let now = binding(machine, load, wanted, limit::LOCKED_MEMORY)?;
    Some(Change {
        setting: Setting::LockedMemory,
        from: machine.descriptors.locked_bytes_max?.to_string(),
        to: needed::locked_bytes(machine, load, wanted).to_string(),
        why: format!(
            "the rings that it has room for end at {}",
            counted(now, "connection")
        ),
    })
}

fn threads(machine: &Machine, load: Load) -> Option<Change> {
    let [most, now] = machine.surroundings.threads?;
    let needed = needed::threads(machine, load);
    (most.saturating_sub(now) < needed).then(|| Change {
        setting: Setting::Threads,
        from: most.to_string(),
        to: roomy(now.saturating_add(needed)).to_string(),
        why: format!(
            "{} of them exist, and up to {} more are needed",
            count(now),
            count(needed)
        ),
    })
}

fn out_of_memory(machine: &Machine) -> Option<Change> {
    let adjustment = machine.surroundings.oom_score_adjustment?;
    (adjustment > 0).then(|| Change {
        setting: Setting::OutOfMemoryScore,
        from: adjustment.to_string(),
        to: "0".into(),
        why: "the kernel ends it before other programs when memory runs out".into(),
    })
}

/// Without cookies a full SYN backlog drops handshakes.
fn syn_cookies(machine: &Machine, load: Load, wanted: u64) -> Option<Change> {
    let backlog = troubling(machine, load, wanted, limit::SYN_BACKLOG)?;
    Some(Change {
        setting: Setting::Sysctl("net.ipv4.tcp_syncookies"),
        from: "0".into(),
        to: "1".into(),
        why: format!(
            "more than {} at once are dropped",
            counted(backlog.connections, "handshake")
        ),
    })
}

fn file_max(machine: &Machine, load: Load, wanted: u64) -> Option<Change> {
    let now = binding(machine, load, wanted, limit::OPEN_FILES)?;
    Some(Change {
        setting: Setting::Sysctl("fs.file-max"),
        from: machine.descriptors.files_max.to_string(),
        to: needed::files(machine, load, wanted).to_string(),
        why: format!("it ends at {}", counted(now, "connection")),
    })
}

fn epoll_watches(machine: &Machine, load: Load, wanted: u64) -> Option<Change> {
    let now = binding(machine, load, wanted, limit::EPOLL_WATCHES)?;
    Some(Change {
        setting: Setting::Sysctl("fs.epoll.max_user_watches"),
        from: machine.epoll_watches_max?.to_string(),
        to: needed::epoll_watches(load, wanted).to_string(),
        why: format!("it ends at {}", counted(now, "connection")),
    })
}

/// The range to take ports from, and where they end now, if that is too few.
fn widens_ports(machine: &Machine, load: Load, wanted: u64) -> Option<((u16, u16), u64)> {
    let now = binding(machine, load, wanted, limit::PORTS)?;
    Some((needed::wide_ports(machine.ports)?, now))
}

fn port_range(machine: &Machine, load: Load, wanted: u64) -> Option<Change> {
    let ((first, last), now) = widens_ports(machine, load, wanted)?;
    let ports = machine.ports;
    Some(Change {
        setting: Setting::Sysctl("net.ipv4.ip_local_port_range"),
        from: format!("{} {}", ports.first, ports.last),
        to: format!("{first} {last}"),
        why: format!("source ports end at {}", counted(now, "connection")),
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
    troubling(machine, load, wanted, limit::ACCEPT_QUEUE)?;
    let now = machine.tcp.backlog_max?;
    Some(Change {
        setting: Setting::Sysctl("net.core.somaxconn"),
        from: now.to_string(),
        to: needed::backlog(now).to_string(),
        why: format!(
            "more than {} at once wait a second for their next SYN",
            counted(now.saturating_add(1), "client")
        ),
    })
}

fn conntrack(machine: &Machine, load: Load, wanted: u64) -> Option<Change> {
    let now = binding(machine, load, wanted, limit::TRACKING)?;
    let tracking = machine.conntrack?;
    Some(Change {
        setting: Setting::Sysctl("net.netfilter.nf_conntrack_max"),
        from: tracking.entries_max.to_string(),
        to: needed::conntrack(machine, load, wanted).to_string(),
        why: format!(
            "its table is full at {}; raise nf_conntrack_buckets with it, or entries are searched for in \
             long lists",
            counted(now, "connection")
        ),
    })
}

#[cfg(test)]
mod tests;
