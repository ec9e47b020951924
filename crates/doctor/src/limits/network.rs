//! Ports, the kernel's tables and queues.

use super::needed::{self, beyond};
use super::{Load, Program, Role};
use crate::budget::{Effect, Limit};
use crate::machine::Machine;
use crate::names::limit;
use myriad_units::{count, counted};

/// 127.0.0.0/8 without its network and broadcast addresses.
const LOOPBACK_SOURCES: u64 = (1 << 24) - 2;
/// Sockets a hash bucket may hold before finding one costs visibly: at 2 there is no loss, at 8 a
/// broadcast took a quarter longer (Linux 6.18, 262,144 buckets, 1M loopback pairs).
pub const BUCKET_SOCKETS: u64 = 4;
/// Connections that Myriad's crowd opens from one source address to one destination, at most: the kernel's search for a
/// free port slows down as they run out.
pub const PER_SOURCE_MAX: u64 = 25_000;
/// The backlog Myriad asks for.
pub(crate) const BACKLOG_WANTED: u64 = 4_096;

/// An accepted connection takes no port of its own, so that this is nothing to a server.
pub(super) fn ports(machine: &Machine, load: Load) -> Option<Limit> {
    let ports = machine.ports.per_source();
    let (per_source, spared) = match (load.role, load.program) {
        // A crowd that is given addresses leaves some ports of each; the kernel's choice goes to the last one.
        (Role::Crowd(paths), Program::Myriad) if paths.sources > 1 && ports > PER_SOURCE_MAX => {
            let spared = format!(
                "; of the {} of a source Myriad's crowd takes {} where it has several, because the search for a free one slows down towards the last",
                counted(ports, "port"),
                count(PER_SOURCE_MAX)
            );
            (PER_SOURCE_MAX, spared)
        }
        _ => (ports, String::new()),
    };
    let range = format!(
        "ip_local_port_range is {}-{}, {} of them reserved",
        machine.ports.first, machine.ports.last, machine.ports.reserved
    );
    let (ways, evidence) = match (load.role, load.program) {
        (Role::Server, _) => return None,
        (Role::BothEnds, Program::Myriad) => (
            LOOPBACK_SOURCES,
            format!("{range}; on loopback every address of 127.0.0.0/8 is a source"),
        ),
        (Role::BothEnds, Program::Ordinary { .. }) => (
            1,
            format!(
                "{range}; an ordinary client starts all from 127.0.0.1, although loopback has 16 million addresses"
            ),
        ),
        (Role::Crowd(paths) | Role::Proxy(paths), _) => (
            paths.sources.saturating_mul(paths.destinations),
            format!(
                "{range}{spared}; for each of {} to {}{}",
                counted(paths.sources, "source address"),
                counted(paths.destinations, "destination"),
                spare_addresses(machine, paths.sources),
            ),
        ),
    };
    Some(Limit {
        name: limit::PORTS,
        value: format!("{} a source", count(per_source)),
        connections: per_source.saturating_mul(ways),
        effect: Effect::Stops,
        binds_us: true,
        evidence,
        read_from: "/proc/sys/net/ipv4/ip_local_port_range, ip_local_reserved_ports",
        remedy: match needed::wide_ports(machine.ports) {
            Some((first, last)) => format!(
                "More source addresses or destinations, or sysctl -w net.ipv4.ip_local_port_range='{first} {last}'."
            ),
            None => "More source addresses or destinations.".into(),
        },
    })
}

fn spare_addresses(machine: &Machine, sources: u64) -> String {
    match machine.addresses.outside {
        Some(addresses) if addresses > sources => {
            format!("; this machine has {} addresses", count(addresses))
        }
        _ => String::new(),
    }
}

pub(super) fn hash_buckets(machine: &Machine, load: Load, wanted: u64) -> Option<Limit> {
    let buckets = machine.tcp.hash_buckets?;
    let child = match machine.tcp.child_hash_buckets {
        Some(0) | None => "new network namespaces share it".to_owned(),
        Some(child) => format!("new network namespaces get {} of their own", count(child)),
    };
    let connections = buckets.saturating_mul(BUCKET_SOCKETS) / load.role.ends();
    let needed = needed::hash_buckets(load, beyond(connections, wanted)).max(buckets);
    Some(Limit {
        name: limit::HASH,
        value: format!("{} buckets", count(buckets)),
        connections,
        effect: Effect::Degrades,
        binds_us: true,
        evidence: format!(
            "tcp_ehash_entries is {}; beyond {BUCKET_SOCKETS} sockets a bucket every packet searches longer; {child}",
            count(buckets)
        ),
        read_from: "/proc/sys/net/ipv4/tcp_ehash_entries, tcp_child_ehash_entries",
        remedy: format!(
            "Boot with thash_entries={needed}, or run in a network namespace made after \
             sysctl -w net.ipv4.tcp_child_ehash_entries={needed}."
        ),
    })
}

/// The kernel lets one more wait than it was told.
pub(super) fn accept_queue(machine: &Machine, load: Load) -> Option<Limit> {
    if !load.role.accepts() {
        return None;
    }
    let most = machine.tcp.backlog_max?;
    let (queue, whose) = match load.program {
        Program::Myriad => (
            most.min(BACKLOG_WANTED),
            "each shard of Myriad has such a queue",
        ),
        Program::Ordinary { .. } => (most, "a program may ask for less when it listens"),
    };
    Some(Limit {
        name: limit::ACCEPT_QUEUE,
        value: count(most),
        connections: queue.saturating_add(1),
        effect: Effect::DelaysBursts,
        binds_us: true,
        evidence: format!(
            "somaxconn is {}; {whose}. What comes while it is full waits a second or more for its next SYN",
            count(most)
        ),
        read_from: "/proc/sys/net/core/somaxconn",
        remedy: format!(
            "sysctl -w net.core.somaxconn={}, before the server starts.",
            needed::backlog(most)
        ),
    })
}

/// With cookies, handshakes beyond the queue go on without a record, and nothing is lost.
pub(super) fn handshakes(machine: &Machine, load: Load) -> Option<Limit> {
    if !load.role.accepts() || machine.tcp.syn_cookies != Some(false) {
        return None;
    }
    let most = machine.tcp.handshakes_max?;
    let queue = machine.tcp.backlog_max.unwrap_or(u64::MAX);
    let queue = match load.program {
        Program::Myriad => queue.min(BACKLOG_WANTED),
        Program::Ordinary { .. } => queue,
    };
    Some(Limit {
        name: limit::SYN_BACKLOG,
        value: count(most),
        // The kernel keeps the last quarter for peers it knows.
        connections: (most - most / 4).min(queue),
        effect: Effect::DelaysBursts,
        binds_us: true,
        evidence: format!(
            "tcp_max_syn_backlog is {} and tcp_syncookies is 0: more handshakes at once are dropped",
            count(most)
        ),
        read_from: "/proc/sys/net/ipv4/tcp_max_syn_backlog, tcp_syncookies",
        remedy: "sysctl -w net.ipv4.tcp_syncookies=1".into(),
    })
}

pub(super) fn orphans(machine: &Machine) -> Option<Limit> {
    let most = machine.tcp.orphans_max?;
    Some(Limit {
        name: limit::ORPHANS,
        value: count(most),
        connections: most,
        effect: Effect::CutsMassCloses,
        binds_us: true,
        evidence: format!(
            "tcp_max_orphans is {}; closing more than this at once, with bytes still unsent, resets the rest",
            count(most)
        ),
        read_from: "/proc/sys/net/ipv4/tcp_max_orphans",
        remedy: "Close at a pace (Myriad does when it drains).".into(),
    })
}

/// Only the side that closes first keeps such a record.
pub(super) fn time_wait(machine: &Machine, load: Load) -> Option<Limit> {
    let most = machine.tcp.time_wait_max?;
    let consequence = match load.role {
        Role::Crowd(_) | Role::Proxy(_) => "each keeps its port for a minute",
        Role::Server | Role::BothEnds => "it takes neither port nor descriptor of a server",
    };
    Some(Limit {
        name: limit::TIME_WAIT,
        value: count(most),
        connections: most,
        effect: Effect::CutsMassCloses,
        binds_us: true,
        evidence: format!(
            "tcp_max_tw_buckets is {}; the side that closes first keeps one for a minute, {consequence}; \
             beyond it connections end without one, which is logged and otherwise harmless",
            count(most)
        ),
        read_from: "/proc/sys/net/ipv4/tcp_max_tw_buckets",
        remedy: "Nothing to change.".into(),
    })
}
