//! What a setting has to be for a number of connections: the same figures for what limits advise and what is changed.

use super::network::{BACKLOG_WANTED, BUCKET_SOCKETS};
use super::{Load, Program, Role};
use crate::machine::{Machine, Ports};
use crate::tables;

/// The widest range an ordinary user's programs may take ports from.
const WIDE: (u16, u16) = (1_024, 65_535);

/// Threads that Myriad has beside its shards.
const THREADS_KEPT: u64 = 16;

/// A fifth more than needed, in round figures.
pub(crate) fn roomy(needed: u64) -> u64 {
    let step = match needed {
        0..=9_999 => 1_000,
        10_000..=99_999 => 10_000,
        _ => 100_000,
    };
    needed
        .saturating_add(needed / 5)
        .div_ceil(step)
        .saturating_mul(step)
}

/// What a limit that ends at `limit` connections should be made for, when `wanted` are asked for: at least for more.
pub(super) fn beyond(limit: u64, wanted: u64) -> u64 {
    wanted.max(limit.saturating_add(1))
}

/// `fs.file-max`, with room for other programs.
pub(crate) fn files(machine: &Machine, load: Load, connections: u64) -> u64 {
    let ours = connections.saturating_mul(load.role.ends());
    let others = machine
        .descriptors
        .files_open
        .saturating_add(super::descriptors::FILES_KEPT);
    roomy(ours.saturating_add(others)).max(machine.descriptors.files_max)
}

/// RLIMIT_NOFILE of a process: an ordinary one's descriptors, or a table of Myriad's; none where no limit is enough.
pub(crate) fn descriptors(machine: &Machine, load: Load, connections: u64) -> Option<u64> {
    let Program::Ordinary { processes } = load.program else {
        let holds = if machine.takes_io_uring() {
            tables::ring_connections_max
        } else {
            tables::epoll_connections_max
        };
        return tables::table_needed(connections, holds).map(roomy);
    };
    let all = connections.saturating_mul(load.role.connections_each());
    Some(roomy(all.div_ceil(processes.max(1))))
}

/// RLIMIT_MEMLOCK, in whole mebibytes: for the rings that fill, and the one that each shard of each program starts with.
pub(crate) fn locked_bytes(machine: &Machine, load: Load, connections: u64) -> u64 {
    let descriptors = machine.descriptors;
    let table = descriptors.table_hard.min(descriptors.table_ceiling);
    let table = table.clamp(1, tables::RING_SLOTS_MAX);
    let ends = load.role.ends();
    let rings = connections.saturating_mul(ends).div_ceil(table);
    let rings = rings.saturating_add(machine.cores.usable as u64 * ends);
    let bytes = rings.saturating_mul(tables::RING_BYTES_MIN);
    bytes.saturating_add(bytes / 5).div_ceil(1 << 20) << 20
}

/// Threads that the program may have at the most.
pub(crate) fn threads(machine: &Machine, load: Load) -> u64 {
    // Under epoll every descriptor table is a thread.
    let program = match (load.program, machine.takes_io_uring()) {
        (Program::Ordinary { processes }, _) => processes,
        (Program::Myriad, true) => machine.cores.usable as u64,
        (Program::Myriad, false) => tables::EPOLL_TABLES_MAX as u64,
    };
    program.saturating_add(THREADS_KEPT)
}

/// `fs.epoll.max_user_watches`.
pub(crate) fn epoll_watches(load: Load, connections: u64) -> u64 {
    roomy(connections.saturating_mul(load.role.ends()))
}

/// `nf_conntrack_max`. Over loopback both ends see the same entry; a proxy has two connections.
pub(crate) fn conntrack(machine: &Machine, load: Load, connections: u64) -> u64 {
    let entries = machine.conntrack.map_or(0, |tracking| tracking.entries);
    let ours = connections.saturating_mul(load.role.connections_each());
    roomy(ours.saturating_add(entries))
}

/// `net.ipv4.tcp_mem` in the proportions in which the kernel sets it, 3 to 4 to 6.
pub(super) fn tcp_pages(load: Load, connections: u64, now: [u64; 3]) -> [u64; 3] {
    let most = roomy(connections.saturating_mul(load.role.ends()));
    let [low, pressure, high] = now;
    [
        low.max(most / 2),
        pressure.max(most / 3 * 2),
        high.max(most),
    ]
}

/// A control group's limit on TCP's buffers, in bytes.
pub(super) fn group_tcp_bytes(machine: &Machine, load: Load, connections: u64) -> u64 {
    let used = machine.cgroup_tcp.as_ref().map_or(0, |it| it.used_bytes);
    let pages = roomy(connections.saturating_mul(load.role.ends()));
    used.saturating_add(pages.saturating_mul(machine.memory.page_bytes))
}

/// Buckets of the connection hash, of which the kernel takes powers of two.
pub(super) fn hash_buckets(load: Load, connections: u64) -> u64 {
    let sockets = connections.saturating_mul(load.role.ends());
    let buckets = sockets.div_ceil(BUCKET_SOCKETS);
    buckets.checked_next_power_of_two().unwrap_or(buckets)
}

/// `net.core.somaxconn`.
pub(crate) fn backlog(now: u64) -> u64 {
    now.max(BACKLOG_WANTED)
}

/// `ip_local_port_range` at its widest; none where it is that already.
pub(crate) fn wide_ports(ports: Ports) -> Option<(u16, u16)> {
    let wide = (ports.first.min(WIDE.0), ports.last.max(WIDE.1));
    (wide != (ports.first, ports.last)).then_some(wide)
}

/// `ip_local_reserved_ports` with one port more: writing it replaces the whole list.
pub(crate) fn reserved_ports(machine: &Machine, port: u16) -> String {
    match machine.reserved_ports.as_str() {
        "" => port.to_string(),
        list => format!("{list},{port}"),
    }
}

impl Role {
    /// Connections on this machine for one that is wanted: a proxy passes it on over another.
    pub(crate) fn connections_each(self) -> u64 {
        match self {
            Self::Proxy(_) => 2,
            Self::BothEnds | Self::Server | Self::Crowd(_) => 1,
        }
    }
}
