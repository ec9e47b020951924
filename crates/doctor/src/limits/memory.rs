//! Memory: the machine's, the control group's, and what TCP may take for buffers.

use super::Load;
use super::needed::{self, beyond};
use crate::budget::{Effect, Limit};
use crate::machine::{CostSource, Machine};
use crate::names::limit;
use myriad_units::{bytes, count, counted};

/// Memory nobody should plan with: a sixteenth of the machine, at least half a gibibyte.
fn memory_kept(total_bytes: u64) -> u64 {
    (total_bytes / 16).max(512 << 20)
}

/// What a program takes of its control group before its first connection: code, rings, buffers, threads.
pub(crate) const PROGRAM_BYTES: u64 = 3 << 20;

/// One sentence on a connection's cost, for every limit that divides memory by it.
fn cost_evidence(load: Load, all: u64, sockets: u64, source: &str) -> String {
    let rest = if load.in_flight_bytes == 0 {
        "to watch it"
    } else {
        "to watch and push to it"
    };
    format!(
        "{} a connection: {} in kernel sockets ({source}), {} of user space an end ({}), the rest {rest}",
        bytes(all),
        bytes(sockets),
        bytes(load.user_bytes),
        load.user_source(),
    )
}

fn source(source: &CostSource) -> String {
    match source {
        CostSource::Measured { pairs } => format!("measured here with {}", counted(*pairs, "pair")),
        CostSource::Assumed { reason } => format!("assumed, because {reason}"),
    }
}

pub(super) fn machine(machine: &Machine, load: Load) -> Limit {
    let memory = machine.memory;
    let kept = memory_kept(memory.total_bytes);
    let usable = memory.available_bytes.saturating_sub(kept);
    let cost = &machine.connection_cost;
    let each = load.connection_bytes(cost);
    Limit {
        name: limit::MEMORY,
        value: bytes(memory.available_bytes),
        connections: usable / each,
        effect: Effect::Stops,
        binds_us: true,
        evidence: format!(
            "{} available, {} of it kept for everything else; {}",
            bytes(memory.available_bytes),
            bytes(kept),
            cost_evidence(
                load,
                each,
                cost.sockets_bytes * load.role.ends() / 2,
                &source(&cost.source)
            )
        ),
        read_from: "/proc/meminfo; opening loopback connections",
        remedy: "Use a machine with more memory, or end what else uses it.".into(),
    }
}

/// Nearly all of it can be planned with: a group has no other tenants than those of [`PROGRAM_BYTES`].
pub(super) fn cgroup(machine: &Machine, load: Load) -> Option<Limit> {
    let group = machine.cgroup.as_ref()?;
    let usable = group.available_bytes().saturating_sub(PROGRAM_BYTES);
    let file = &group.file;
    let cost = &machine.connection_cost;
    let each = load.charged_bytes(cost);
    let how = match cost.charged {
        Some(_) => "as charged to the group for connections opened here".to_owned(),
        None => source(&cost.source),
    };
    Some(Limit {
        name: limit::GROUP_MEMORY,
        value: bytes(group.limit_bytes),
        connections: usable / each,
        effect: Effect::Stops,
        binds_us: true,
        evidence: format!(
            "{file} of {} is {}, {} of it in use, {} for the program; {}",
            group.path,
            bytes(group.limit_bytes),
            bytes(group.used_bytes),
            bytes(PROGRAM_BYTES),
            cost_evidence(load, each, load.charged_sockets_bytes(cost), &how)
        ),
        read_from: "/proc/self/cgroup, /sys/fs/cgroup; opening loopback connections",
        remedy: "Give the container or service a higher memory limit.".into(),
    })
}

pub(super) fn tcp(machine: &Machine, load: Load, wanted: u64) -> Option<Limit> {
    let now = machine.tcp.memory_pages?;
    let [_, _, refused] = now;
    let connections = refused / load.role.ends();
    let [low, pressure, high] = needed::tcp_pages(load, beyond(connections, wanted), now);
    Some(Limit {
        name: limit::TCP_BUFFERS,
        value: bytes(refused.saturating_mul(machine.memory.page_bytes)),
        connections,
        effect: Effect::Degrades,
        binds_us: true,
        evidence: format!(
            "tcp_mem ends at {} pages, and a socket with unread bytes takes at least one; \
             idle connections take none, a broadcast to more than this waits for readers",
            count(refused)
        ),
        read_from: "/proc/sys/net/ipv4/tcp_mem",
        remedy: format!(
            "If readers are slow: sysctl -w net.ipv4.tcp_mem='{low} {pressure} {high}', as far as there is memory for it."
        ),
    })
}

/// Only version 1 has it. What comes for a socket with nothing unread is taken beyond the limit, too (with one of 400
/// pages 800 sockets got a message each); what comes after it is dropped.
pub(super) fn cgroup_tcp(machine: &Machine, load: Load, wanted: u64) -> Option<Limit> {
    let group = machine.cgroup_tcp.as_ref()?;
    let page_bytes = machine.memory.page_bytes.max(1);
    let connections = group.available_bytes() / page_bytes / load.role.ends();
    Some(Limit {
        name: limit::GROUP_TCP_BUFFERS,
        value: bytes(group.limit_bytes),
        connections,
        effect: Effect::Degrades,
        binds_us: true,
        evidence: format!(
            "{} of {} is {}, {} of it in use, and a socket with bytes unread or unsent takes a page ({} B) of it at least; \
             idle ones take none. With more such sockets the kernel drops what comes for them, and it is sent again",
            group.file,
            group.path,
            bytes(group.limit_bytes),
            bytes(group.used_bytes),
            count(page_bytes),
        ),
        read_from: "/proc/self/cgroup, /sys/fs/cgroup/memory",
        remedy: format!(
            "If readers are slow: set it to {} (kernelTCP in the memory resources of an OCI container), or to -1, which takes \
             the limit away.",
            needed::group_tcp_bytes(machine, load, beyond(connections, wanted))
        ),
    })
}
