//! Each limit of a machine as a function of its own, from measurement to the connections it allows.

use crate::budget::{Effect, Limit};
use crate::machine::{CgroupVersion, ConnectionCost, CostSource, IoUring, Machine};
use crate::units::{bytes, count};

/// Which ends of the connections live on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Server and crowd, over loopback: every connection costs twice here, but has 16 million source addresses.
    BothEnds,
    /// The server's ends.
    Server,
    /// The crowd's ends, towards one address and port of a server elsewhere.
    Crowd {
        /// Source addresses this machine can use.
        sources: u64,
    },
}

impl Role {
    /// Sockets on this machine for one connection.
    #[must_use]
    pub fn ends(self) -> u64 {
        match self {
            Self::BothEnds => 2,
            Self::Server | Self::Crowd { .. } => 1,
        }
    }
}

/// What a connection brings along besides its kernel sockets, as the budget plans it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Which ends are here.
    pub role: Role,
    /// User space per end.
    pub user_bytes: u64,
    /// Kernel memory per connection while a broadcast is under way: its packet, on its way to a reader.
    pub in_flight_bytes: u64,
}

impl Load {
    /// Plain connections with one subscription that all get one small publication at the same time.
    ///
    /// 200 B of user space is the most a `raw` connection may cost; 1,300 B is the `sk_buff` pair and head
    /// of one small packet on Linux 6.18.
    #[must_use]
    pub fn broadcast(role: Role) -> Self {
        Self {
            role,
            user_bytes: 200,
            in_flight_bytes: 1_300,
        }
    }

    /// Memory of one connection on this machine, all told.
    #[must_use]
    pub fn connection_bytes(self, cost: &ConnectionCost) -> u64 {
        let ends = self.role.ends();
        let sockets = cost.sockets_bytes * ends / 2;
        sockets + ends * (ConnectionCost::WATCH_BYTES + self.user_bytes) + self.in_flight_bytes
    }
}

/// Memory nobody should plan with: a sixteenth of the machine, at least half a gibibyte.
fn memory_kept(total_bytes: u64) -> u64 {
    (total_bytes / 16).max(512 << 20)
}

/// Files other programs need room for under `fs.file-max`.
const FILES_KEPT: u64 = 4_096;
/// Slots of a descriptor table that are not connections: listeners, rings, logs, and four standard
/// deviations of what `SO_REUSEPORT` spreads unevenly.
const TABLE_SLOTS_KEPT: u64 = 600;
/// Tables a server can have: a socket's name has 12 bits for its table.
const TABLES_MAX: u64 = 4_096;
/// 127.0.0.0/8 without its network and broadcast addresses.
const LOOPBACK_SOURCES: u64 = (1 << 24) - 2;
/// Sockets a hash bucket may hold before finding one costs visibly: at 2 there is no loss, at 8 a
/// broadcast took a quarter longer (Linux 6.18, 262,144 buckets, 1M loopback pairs).
const BUCKET_SOCKETS: u64 = 4;

/// All limits that apply, in no order.
pub(crate) fn all(machine: &Machine, load: Load) -> Vec<Limit> {
    [
        Some(memory(machine, load)),
        cgroup_memory(machine, load),
        open_files(machine, load),
        Some(tables(machine)),
        epoll_watches(machine, load),
        Some(ports(machine, load)),
        conntrack(machine),
        Some(tcp_memory(machine, load)),
        hash_buckets(machine, load),
        Some(orphans(machine)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// One sentence on a connection's cost, for every limit that divides memory by it.
fn cost_evidence(machine: &Machine, load: Load) -> String {
    let cost = &machine.connection_cost;
    let sockets = cost.sockets_bytes * load.role.ends() / 2;
    let source = match &cost.source {
        CostSource::Measured { pairs } => format!("measured here with {} pairs", count(*pairs)),
        CostSource::Assumed { reason } => format!("assumed, because {reason}"),
    };
    format!(
        "{} a connection: {} in kernel sockets ({source}), the rest to watch, remember and push to it",
        bytes(load.connection_bytes(cost)),
        bytes(sockets),
    )
}

fn memory(machine: &Machine, load: Load) -> Limit {
    let memory = machine.memory;
    let kept = memory_kept(memory.total_bytes);
    let usable = memory.available_bytes.saturating_sub(kept);
    Limit {
        name: "memory",
        value: bytes(memory.available_bytes),
        connections: usable / load.connection_bytes(&machine.connection_cost),
        effect: Effect::Stops,
        evidence: format!(
            "{} available, {} of it kept for everything else; {}",
            bytes(memory.available_bytes),
            bytes(kept),
            cost_evidence(machine, load)
        ),
        remedy: "Use a machine with more memory, or end what else uses it.".into(),
    }
}

fn cgroup_memory(machine: &Machine, load: Load) -> Option<Limit> {
    let group = machine.cgroup.as_ref()?;
    let kept = memory_kept(group.limit_bytes);
    let usable = group.available_bytes().saturating_sub(kept);
    let file = match group.version {
        CgroupVersion::V1 => "memory.limit_in_bytes",
        CgroupVersion::V2 => "memory.max",
    };
    Some(Limit {
        name: "memory of the control group",
        value: bytes(group.limit_bytes),
        connections: usable / load.connection_bytes(&machine.connection_cost),
        effect: Effect::Stops,
        evidence: format!(
            "{file} of {} is {}, {} of it in use, {} kept; {}",
            group.path,
            bytes(group.limit_bytes),
            bytes(group.used_bytes),
            bytes(kept),
            cost_evidence(machine, load)
        ),
        remedy: "Give the container or service a higher memory limit.".into(),
    })
}

fn open_files(machine: &Machine, load: Load) -> Option<Limit> {
    let descriptors = machine.descriptors;
    if descriptors.files_max_exempt {
        return None;
    }
    let free = descriptors
        .files_max
        .saturating_sub(descriptors.files_open + FILES_KEPT);
    Some(Limit {
        name: "open files of the machine",
        value: count(descriptors.files_max),
        connections: free / load.role.ends(),
        effect: Effect::Stops,
        evidence: format!(
            "fs.file-max is {}, {} are open, {} a connection",
            count(descriptors.files_max),
            count(descriptors.files_open),
            load.role.ends()
        ),
        remedy: "sysctl -w fs.file-max=20000000".into(),
    })
}

/// Descriptor tables are not a limit for Myriad, which takes as many as it needs; they are reported
/// because they are the first thing everybody asks about.
fn tables(machine: &Machine) -> Limit {
    let limit = machine
        .descriptors
        .table_hard
        .min(machine.descriptors.table_ceiling);
    let slots = limit.saturating_sub(TABLE_SLOTS_KEPT);
    Limit {
        name: "descriptor tables",
        value: format!("{} a table", count(limit)),
        connections: slots.saturating_mul(TABLES_MAX),
        effect: Effect::Stops,
        evidence: format!(
            "the hard RLIMIT_NOFILE is {} a table, and Myriad uses up to {} tables; \
             one table would end at {} connections",
            count(limit),
            count(TABLES_MAX),
            count(slots)
        ),
        remedy: "Raise the hard limit: ulimit -Hn 1048576, LimitNOFILE= in a unit.".into(),
    }
}

fn epoll_watches(machine: &Machine, load: Load) -> Option<Limit> {
    if machine.io_uring == IoUring::Allowed {
        return None;
    }
    let watches = machine.epoll_watches_max?;
    Some(Limit {
        name: "epoll watches of one user",
        value: count(watches),
        connections: watches / load.role.ends(),
        effect: Effect::Stops,
        evidence: format!(
            "fs.epoll.max_user_watches is {}, {} a connection",
            count(watches),
            load.role.ends()
        ),
        remedy: format!(
            "sysctl -w fs.epoll.max_user_watches={}",
            watches.saturating_mul(4)
        ),
    })
}

fn ports(machine: &Machine, load: Load) -> Limit {
    let per_source = machine.ports.per_source();
    let range = format!(
        "ip_local_port_range is {}-{}, {} reserved",
        machine.ports.first, machine.ports.last, machine.ports.reserved
    );
    let (sources, evidence) = match load.role {
        Role::BothEnds => (
            LOOPBACK_SOURCES,
            format!("{range}; on loopback every address of 127.0.0.0/8 is a source"),
        ),
        Role::Crowd { sources } => (
            sources,
            format!("{range}; {} source addresses", count(sources)),
        ),
        // An accepted connection takes no port of its own.
        Role::Server => (u64::MAX, format!("{range}; accepted connections use none")),
    };
    Limit {
        name: "source ports",
        value: format!("{} a source", count(per_source)),
        connections: per_source.saturating_mul(sources),
        effect: Effect::Stops,
        evidence,
        remedy: "More source addresses, or sysctl -w net.ipv4.ip_local_port_range='1024 65535'."
            .into(),
    }
}

fn conntrack(machine: &Machine) -> Option<Limit> {
    let tracking = machine.conntrack?;
    // The module may be loaded without any rule that makes it look at packets; then it counts nothing.
    if tracking.entries == 0 {
        return None;
    }
    Some(Limit {
        name: "connection tracking",
        value: count(tracking.entries_max),
        connections: tracking.entries_max.saturating_sub(tracking.entries),
        effect: Effect::Stops,
        evidence: format!(
            "nf_conntrack_max is {}, {} in use; each connection takes one, over loopback too, and a full table drops packets",
            count(tracking.entries_max),
            count(tracking.entries)
        ),
        remedy: "Exempt the port (iptables -t raw -j CT --notrack), or \
                 sysctl -w net.netfilter.nf_conntrack_max=4000000"
            .into(),
    })
}

fn tcp_memory(machine: &Machine, load: Load) -> Limit {
    let [_, _, refused] = machine.tcp.memory_pages;
    Limit {
        name: "TCP buffers",
        value: bytes(refused.saturating_mul(machine.memory.page_bytes)),
        connections: refused / load.role.ends(),
        effect: Effect::Degrades,
        evidence: format!(
            "net.ipv4.tcp_mem ends at {} pages, and a socket with unread bytes takes at least one; \
             idle connections take none, a broadcast to more than this waits for readers",
            count(refused)
        ),
        remedy: "sysctl -w net.ipv4.tcp_mem='2000000 4000000 8000000'".into(),
    }
}

fn hash_buckets(machine: &Machine, load: Load) -> Option<Limit> {
    let buckets = machine.tcp.hash_buckets?;
    Some(Limit {
        name: "connection hash",
        value: format!("{} buckets", count(buckets)),
        connections: buckets.saturating_mul(BUCKET_SOCKETS) / load.role.ends(),
        effect: Effect::Degrades,
        evidence: format!(
            "tcp_ehash_entries is {}; beyond {BUCKET_SOCKETS} sockets a bucket every packet searches longer",
            count(buckets)
        ),
        remedy: "Boot with thash_entries=4194304, or run in a network namespace made after \
                 sysctl net.ipv4.tcp_child_ehash_entries=4194304."
            .into(),
    })
}

fn orphans(machine: &Machine) -> Limit {
    Limit {
        name: "orphaned sockets",
        value: count(machine.tcp.orphans_max),
        connections: machine.tcp.orphans_max,
        effect: Effect::Degrades,
        evidence: format!(
            "tcp_max_orphans is {}; closing more than this at once, with bytes still unsent, resets the rest",
            count(machine.tcp.orphans_max)
        ),
        remedy: "Drain at a pace (Myriad does), or sysctl -w net.ipv4.tcp_max_orphans=1000000."
            .into(),
    }
}
