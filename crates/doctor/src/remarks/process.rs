//! What surrounds the program: its driver, cores, threads, memory, rights, container.

use super::{Remark, note};
use crate::limits::{Load, needed};
use crate::machine::{IoUring, Machine};
use crate::names::remark;
use myriad_units::{bytes, count, counted};

pub(super) fn io_uring(machine: &Machine) -> Remark {
    const FALLBACK: &str =
        "The epoll driver is used; io_uring needs about a third less CPU per message";
    let (finding, consequence) = match &machine.io_uring {
        IoUring::Allowed if !machine.takes_io_uring() => (
            format!(
                "locked memory (hard RLIMIT_MEMLOCK, {}) holds {}, and each of {} needs one",
                bytes(machine.descriptors.locked_bytes_max.unwrap_or(0)),
                counted(machine.descriptors.rings_max().unwrap_or(0), "ring"),
                counted(machine.cores.usable as u64, "core")
            ),
            format!(
                "{FALLBACK}. LimitMEMLOCK= in a systemd unit, --ulimit memlock= of a container."
            ),
        ),
        IoUring::Allowed => (
            "io_uring may be used".to_owned(),
            "Myriad uses it.".to_owned(),
        ),
        IoUring::KernelTooOld => (
            format!("Linux {} is older than 6.13", machine.kernel.release),
            format!("{FALLBACK}."),
        ),
        IoUring::Disabled => (
            "kernel.io_uring_disabled forbids io_uring to this process".into(),
            format!("{FALLBACK}; sysctl -w kernel.io_uring_disabled=0 allows it."),
        ),
        IoUring::Refused { reason } => (
            format!("io_uring does not work here: {reason}"),
            format!("{FALLBACK}."),
        ),
    };
    note(
        remark::IO_URING,
        "a small ring, every operation tried; /proc/sys/kernel/io_uring_disabled",
        finding,
        consequence,
    )
    .warning_if(!machine.takes_io_uring())
}

pub(super) fn cores(machine: &Machine) -> Option<Remark> {
    let cores = machine.cores;
    (cores.usable < cores.online).then(|| {
        note(
            remark::CORES,
            "/proc/self/status, cpu.max or cpu.cfs_quota_us",
            format!("{} of {} cores may be used", cores.usable, cores.online),
            "Affinity or a control group's CPU quota holds the others back.",
        )
        .warning_if(true)
    })
}

pub(super) fn threads(machine: &Machine, load: Load) -> Option<Remark> {
    let [most, now] = machine.surroundings.threads?;
    let free = most.saturating_sub(now);
    let wanted = needed::threads(machine, load);
    let finding = format!(
        "the control group allows {}; it has {}",
        counted(most, "thread"),
        count(now)
    );
    let short = free < wanted;
    let consequence = if short {
        format!(
            "Up to {} may be needed; raise pids.max (--pids-limit, TasksMax=).",
            count(wanted)
        )
    } else {
        "Enough.".to_owned()
    };
    Some(
        note(
            remark::THREADS,
            "pids.max, pids.current",
            finding,
            consequence,
        )
        .warning_if(short),
    )
}

pub(super) fn out_of_memory(machine: &Machine) -> Option<Remark> {
    let adjustment = machine.surroundings.oom_score_adjustment?;
    let consequence = match adjustment {
        1.. => {
            "The kernel kills this process before others when memory runs out. OOMScoreAdjust= in a systemd unit."
        }
        0 => "The kernel kills the largest process when memory runs out: the server.",
        _ => "The kernel spares this process when memory runs out.",
    };
    let finding = format!("oom_score_adj is {adjustment}");
    Some(
        note(
            remark::OUT_OF_MEMORY,
            "/proc/self/oom_score_adj",
            finding,
            consequence,
        )
        .warning_if(adjustment > 0),
    )
}

/// Where a group bounds memory, that is a limit.
pub(super) fn group_memory(machine: &Machine) -> Option<Remark> {
    let is_unbound = machine.cgroup.is_none() && machine.unread.is_empty();
    is_unbound.then(|| {
        note(
            remark::GROUP_MEMORY,
            "/proc/self/cgroup, /sys/fs/cgroup",
            "no control group that this process is in bounds its memory",
            "Nothing to do; a unit's MemoryMax= or a container's memory limit would.",
        )
    })
}

pub(super) fn container(machine: &Machine) -> Option<Remark> {
    let name = machine.surroundings.container.as_ref()?;
    Some(note(
        remark::CONTAINER,
        "marks of container runtimes, /proc/self/cgroup",
        format!("this process is contained: {name}"),
        "Settings under net.* are those of the container; fs.*, memory and modules belong to the host.",
    ))
}

pub(super) fn rights(machine: &Machine) -> Remark {
    let rights = machine.rights;
    let may = |allowed| if allowed { "may" } else { "may not" };
    note(
        remark::RIGHTS,
        "/proc/self/status",
        format!(
            "this process {} raise hard limits (CAP_SYS_RESOURCE) and {} change the network's settings (CAP_NET_ADMIN)",
            may(rights.raises_hard_limits),
            may(rights.administers_network)
        ),
        "Myriad needs neither.",
    )
}

/// A limit of the epoll driver alone.
pub(super) fn epoll_watches(machine: &Machine, load: Load) -> Option<Remark> {
    let watches = machine
        .epoll_watches_max
        .filter(|_| !load.uses_epoll(machine))?;
    Some(note(
        remark::EPOLL_WATCHES,
        "/proc/sys/fs/epoll/max_user_watches",
        format!("one user may have {} epoll watches", count(watches)),
        "io_uring needs none; serve --driver epoll takes one a connection.",
    ))
}

pub(super) fn huge_pages(machine: &Machine) -> Option<Remark> {
    let mode = machine.surroundings.huge_pages.as_ref()?;
    let consequence = if mode == "always" {
        "Heaps with gaps take more memory than they use; Myriad's records lie close together."
    } else {
        "Programs get them when they ask."
    };
    let from = "/sys/kernel/mm/transparent_hugepage/enabled";
    let finding = format!("transparent huge pages: {mode}");
    Some(note(remark::HUGE_PAGES, from, finding, consequence))
}
