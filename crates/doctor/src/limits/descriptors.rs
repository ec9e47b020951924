//! Descriptors: of the machine, of a table, watched by epoll.

use super::needed::{self, beyond};
use super::{Load, Program};
use crate::budget::{Effect, Limit};
use crate::machine::Machine;
use crate::names::limit;
use crate::tables::{self, EPOLL_TABLES_MAX, RING_TABLES_MAX};
use myriad_units::{bytes, count, counted};

/// Files other programs need room for under `fs.file-max`.
pub(super) const FILES_KEPT: u64 = 4_096;
/// Descriptors of an ordinary process that are no connections: stdio, listener, epoll, timers, a log.
const ORDINARY_KEPT: u64 = 12;

/// What follows the figures of a limit from which this process is exempt.
fn exemption(is_exempt: bool) -> &'static str {
    if is_exempt {
        ". This process's rights exempt it; another user's program stops here"
    } else {
        ""
    }
}

pub(super) fn open_files(machine: &Machine, load: Load, wanted: u64) -> Limit {
    let descriptors = machine.descriptors;
    let free = descriptors
        .files_max
        .saturating_sub(descriptors.files_open.saturating_add(FILES_KEPT));
    let connections = free / load.role.ends();
    Limit {
        name: limit::OPEN_FILES,
        value: files(descriptors.files_max),
        connections,
        effect: Effect::Stops,
        binds_us: !descriptors.files_max_exempt,
        evidence: format!(
            "fs.file-max is {}, {} are open, {} a connection{}",
            files(descriptors.files_max),
            count(descriptors.files_open),
            load.role.ends(),
            exemption(descriptors.files_max_exempt)
        ),
        read_from: "/proc/sys/fs/file-nr, /proc/self/status",
        remedy: format!(
            "sysctl -w fs.file-max={}",
            needed::files(machine, load, beyond(connections, wanted))
        ),
    }
}

/// Some systems set the largest number there is.
fn files(most: u64) -> String {
    if most >= 1 << 60 {
        "unlimited".into()
    } else {
        count(most)
    }
}

/// For Myriad this is hardly a limit, but the first thing everybody asks about; an ordinary program ends here.
pub(super) fn tables(machine: &Machine, load: Load) -> Limit {
    match load.program {
        Program::Ordinary { processes } => process_descriptors(machine, load, processes),
        Program::Myriad => myriad_tables(machine),
    }
}

fn myriad_tables(machine: &Machine) -> Limit {
    let descriptors = machine.descriptors;
    let table = descriptors.table_hard.min(descriptors.table_ceiling);
    let (connections, how) = if machine.takes_io_uring() {
        let how = format!(
            "Myriad adds io_uring tables of that size as they fill, up to {}",
            count(RING_TABLES_MAX)
        );
        (tables::ring_connections_max(table), how)
    } else {
        let how = format!("Myriad's epoll threads take a table each, up to {EPOLL_TABLES_MAX}");
        (tables::epoll_connections_max(table), how)
    };
    Limit {
        name: limit::TABLES,
        value: format!("{} a table", count(table)),
        connections,
        effect: Effect::Stops,
        binds_us: true,
        evidence: format!(
            "RLIMIT_NOFILE is {} soft and {} hard (fs.nr_open {}), and bounds one table, not a program; {how}. \
             An ordinary process would stop at {}",
            files(descriptors.table_soft),
            files(descriptors.table_hard),
            count(descriptors.table_ceiling),
            count(descriptors.table_soft.saturating_sub(ORDINARY_KEPT)),
        ),
        read_from: "/proc/self/limits, /proc/sys/fs/nr_open",
        remedy: raise(machine),
    }
}

/// The account is the user's, so that both ends on one machine share it.
pub(super) fn locked_memory(machine: &Machine, load: Load) -> Option<Limit> {
    if load.program != Program::Myriad || !machine.takes_io_uring() {
        return None;
    }
    let descriptors = machine.descriptors;
    let locked_bytes = descriptors.locked_bytes_max?;
    let table = descriptors.table_hard.min(descriptors.table_ceiling);
    Some(Limit {
        name: limit::LOCKED_MEMORY,
        value: bytes(locked_bytes),
        connections: tables::locked_ring_sockets_max(table, locked_bytes) / load.role.ends(),
        effect: Effect::Stops,
        binds_us: !descriptors.locked_exempt,
        evidence: format!(
            "hard RLIMIT_MEMLOCK bounds the queues of io_uring, at least {} a table of {}, in all processes of a user \
             without CAP_IPC_LOCK{}",
            bytes(tables::RING_BYTES_MIN),
            count(table),
            exemption(descriptors.locked_exempt),
        ),
        read_from: "/proc/self/limits, /proc/self/status",
        remedy: "Raise it (LimitMEMLOCK= in a systemd unit, --ulimit memlock= of a container), or raise the descriptor \
                 limit, which makes tables larger and rings fewer; or use --driver epoll."
            .into(),
    })
}

fn process_descriptors(machine: &Machine, load: Load, processes: u64) -> Limit {
    let descriptors = machine.descriptors;
    // Server and crowd are programs of their own, each with one end; a proxy's process has both.
    let each = load.role.connections_each();
    let slots = |limit: u64| (limit.saturating_sub(ORDINARY_KEPT) / each).saturating_mul(processes);
    let several = counted(processes, "process");
    Limit {
        name: limit::DESCRIPTORS,
        value: format!("{} soft", count(descriptors.table_soft)),
        connections: slots(descriptors.table_soft),
        effect: Effect::Stops,
        binds_us: true,
        evidence: format!(
            "RLIMIT_NOFILE is {} soft and {} hard; {several}, {each} a connection. One that raises its soft limit \
             itself gets to {}",
            count(descriptors.table_soft),
            count(descriptors.table_hard),
            count(slots(descriptors.table_hard)),
        ),
        read_from: "/proc/self/limits",
        remedy: raise(machine),
    }
}

/// How this process's children would get a higher limit, by who may raise it how far.
fn raise(machine: &Machine) -> String {
    let descriptors = machine.descriptors;
    let who = if machine.rights.raises_hard_limits {
        "ulimit -Hn works here (CAP_SYS_RESOURCE)"
    } else {
        "this process may not (no CAP_SYS_RESOURCE): have whoever starts it do it"
    };
    format!(
        "Raise the limit up to fs.nr_open, {}: {who}, LimitNOFILE= in a systemd unit, --ulimit nofile= of a container.",
        count(descriptors.table_ceiling)
    )
}

pub(super) fn epoll_watches(machine: &Machine, load: Load, wanted: u64) -> Option<Limit> {
    if !load.uses_epoll(machine) {
        return None;
    }
    let watches = machine.epoll_watches_max?;
    let connections = watches / load.role.ends();
    Some(Limit {
        name: limit::EPOLL_WATCHES,
        value: count(watches),
        connections,
        effect: Effect::Stops,
        binds_us: true,
        evidence: format!(
            "fs.epoll.max_user_watches is {}, {} a connection",
            count(watches),
            load.role.ends()
        ),
        read_from: "/proc/sys/fs/epoll/max_user_watches",
        remedy: format!(
            "sysctl -w fs.epoll.max_user_watches={}",
            needed::epoll_watches(load, beyond(connections, wanted))
        ),
    })
}
