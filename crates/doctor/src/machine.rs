//! A machine as plain data: everything the budget needs, nothing else.

use crate::limits::Role;
use serde::{Deserialize, Serialize};

/// What the probes found. Byte figures are bytes, not kilobytes, whatever file they came from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The running kernel.
    pub kernel: Kernel,
    /// Processors this process may use.
    pub cores: Cores,
    /// The machine's memory.
    pub memory: Memory,
    /// The tightest memory limit among this process's control groups; none when nothing limits it.
    pub cgroup: Option<Cgroup>,
    /// The tightest limit on TCP's buffers among them (version 1: `memory.kmem.tcp.limit_in_bytes`).
    #[serde(default)]
    pub cgroup_tcp: Option<Cgroup>,
    /// Descriptors, per table and machine-wide.
    pub descriptors: Descriptors,
    /// What this process may do beyond an ordinary one.
    pub rights: Rights,
    /// Local ports for outgoing connections.
    pub ports: Ports,
    /// `net.ipv4.ip_local_reserved_ports`, as it is written.
    pub reserved_ports: String,
    /// The port a server would listen on, against those ports.
    pub listening: Listening,
    /// Addresses of this machine that outgoing connections can start from.
    pub addresses: Addresses,
    /// TCP's own limits.
    pub tcp: Tcp,
    /// Connection tracking, when the module is loaded.
    pub conntrack: Option<Conntrack>,
    /// Epoll watches one user may hold (`fs.epoll.max_user_watches`); none on kernels without the limit.
    pub epoll_watches_max: Option<u64>,
    /// Whether io_uring may be used.
    pub io_uring: IoUring,
    /// What surrounds this process and the network's cards.
    pub surroundings: Surroundings,
    /// What one loopback connection costs the kernel.
    pub connection_cost: ConnectionCost,
    /// What could not be read, and why, each in a sentence: nothing is known of it.
    #[serde(default)]
    pub unread: Vec<String>,
}

impl Machine {
    /// Whether Myriad takes io_uring by itself: it works, and locked memory suffices for the ring that each shard needs.
    #[must_use]
    pub fn takes_io_uring(&self) -> bool {
        let cores = self.cores.usable as u64;
        self.io_uring.is_usable()
            && self
                .descriptors
                .rings_max()
                .is_none_or(|rings| rings >= cores)
    }

    /// The same machine for a server on another port.
    pub fn listen_on(&mut self, port: u16) {
        self.listening = Listening::of(port, self.ports, &self.reserved_ports);
    }
}

/// The running kernel, from `kernel.osrelease`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// As the kernel says it, for instance `6.8.0-45-generic`.
    pub release: String,
    /// First number of the release.
    pub major: u32,
    /// Second number of the release.
    pub minor: u32,
}

impl Kernel {
    /// A kernel that does not tell its version: it counts as an old one.
    #[must_use]
    pub fn unknown() -> Self {
        Self {
            release: "of unknown version".into(),
            major: 0,
            minor: 0,
        }
    }

    /// True from that version on.
    #[must_use]
    pub fn at_least(&self, major: u32, minor: u32) -> bool {
        (self.major, self.minor) >= (major, minor)
    }
}

/// Processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cores {
    /// Processors the kernel has online.
    pub online: usize,
    /// Those this process may run on, after affinity and control group quota.
    pub usable: usize,
}

/// `/proc/meminfo`, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// `MemTotal`.
    pub total_bytes: u64,
    /// `MemAvailable`: what can be had without swapping.
    pub available_bytes: u64,
    /// `SReclaimable` + `SUnreclaim`: the kernel's small objects, sockets among them.
    pub slab_bytes: u64,
    /// Bytes of a page; TCP counts its buffers in pages.
    pub page_bytes: u64,
}

/// A limit of a control group on memory, or on a part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroup {
    /// Which hierarchy set it.
    pub version: CgroupVersion,
    /// The group's path inside its hierarchy.
    pub path: String,
    /// The file with the limit, such as `memory.max`.
    pub file: String,
    /// The limit.
    pub limit_bytes: u64,
    /// Used now of what it bounds, page cache that can be dropped not counted.
    pub used_bytes: u64,
}

impl Cgroup {
    /// What the group may still take.
    #[must_use]
    pub fn available_bytes(&self) -> u64 {
        self.limit_bytes.saturating_sub(self.used_bytes)
    }
}

/// The two control group hierarchies a Linux machine can have, even at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CgroupVersion {
    /// One hierarchy per controller.
    V1,
    /// One hierarchy for all.
    V2,
}

/// Descriptor limits. RLIMIT_NOFILE bounds one descriptor *table*, not a process's sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Descriptors {
    /// Soft RLIMIT_NOFILE; a process may raise it to the hard one by itself.
    pub table_soft: u64,
    /// Hard RLIMIT_NOFILE.
    pub table_hard: u64,
    /// `fs.nr_open`: the highest hard limit root can set.
    pub table_ceiling: u64,
    /// `fs.file-max`: open files on the whole machine, io_uring's direct descriptors included.
    pub files_max: u64,
    /// Of those, open now (`fs.file-nr`).
    pub files_open: u64,
    /// True with CAP_SYS_ADMIN in the first user namespace: the kernel does not apply `fs.file-max` to this process then.
    pub files_max_exempt: bool,
    /// Hard RLIMIT_MEMLOCK where the kernel counts io_uring's queues by it (Linux 6.14); none where nothing bounds them:
    /// unlimited, or an older kernel.
    pub locked_bytes_max: Option<u64>,
    /// True with CAP_IPC_LOCK in the first user namespace: the kernel does not apply it to this process then.
    #[serde(default)]
    pub locked_exempt: bool,
}

impl Descriptors {
    /// Rings that locked memory allows this user's processes together; none where nothing bounds them.
    #[must_use]
    pub fn rings_max(&self) -> Option<u64> {
        let bytes = self.locked_bytes_max.filter(|_| !self.locked_exempt)?;
        Some(crate::tables::rings_max(bytes))
    }
}

/// Ports the kernel gives to outgoing connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    /// First of `net.ipv4.ip_local_port_range`.
    pub first: u16,
    /// Last of it, inclusive.
    pub last: u16,
    /// Ports of that range taken out by `net.ipv4.ip_local_reserved_ports`.
    pub reserved: u32,
}

impl Ports {
    /// Ports one source address has towards one destination.
    #[must_use]
    pub fn per_source(&self) -> u64 {
        let range = u64::from(self.last.saturating_sub(self.first)) + 1;
        range.saturating_sub(u64::from(self.reserved))
    }
}

/// Where a server would listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// The port.
    pub port: u16,
    /// `ip_local_reserved_ports` keeps outgoing connections away from it.
    pub is_reserved: bool,
    /// It lies in the range for outgoing connections and is not reserved: one of them can take it.
    pub can_be_taken: bool,
}

impl Listening {
    /// A port against the range of outgoing connections and the list of reserved ones (`8000,9000-9010`).
    #[must_use]
    pub fn of(port: u16, ports: Ports, reserved: &str) -> Self {
        let is_reserved = reserved.split(',').any(|item| {
            let (first, last) = item.split_once('-').unwrap_or((item, item));
            let ends = (first.parse::<u16>(), last.parse::<u16>());
            matches!(ends, (Ok(first), Ok(last)) if (first..=last).contains(&port))
        });
        let in_range = (ports.first..=ports.last).contains(&port);
        Self {
            port,
            is_reserved,
            can_be_taken: in_range && !is_reserved,
        }
    }
}

/// IPv4 addresses of this machine, as the routing table has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addresses {
    /// Outside 127.0.0.0/8; none where the table cannot be read.
    pub outside: Option<u64>,
}

/// Capabilities that matter here, effective ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rights {
    /// CAP_SYS_RESOURCE: may raise its own hard limits, up to `fs.nr_open`.
    pub raises_hard_limits: bool,
    /// CAP_NET_ADMIN: may change the network's settings.
    pub administers_network: bool,
}

/// TCP's limits. None is what could not be read: a kernel tells some only in its first network namespace, although they
/// bind in others, and containers hide some.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tcp {
    /// `net.ipv4.tcp_mem`: buffer pages where TCP is content, starts to save, and refuses.
    pub memory_pages: Option<[u64; 3]>,
    /// `net.core.somaxconn`: the longest accept queue.
    pub backlog_max: Option<u64>,
    /// `net.ipv4.tcp_max_syn_backlog`: handshakes begun and not finished, where there are no cookies.
    pub handshakes_max: Option<u64>,
    /// `net.ipv4.tcp_syncookies` is not 0: handshakes beyond any queue go on without a record.
    pub syn_cookies: Option<bool>,
    /// `net.ipv4.tcp_max_orphans`: closed sockets that still have something to send.
    pub orphans_max: Option<u64>,
    /// `net.ipv4.tcp_max_tw_buckets`: closed connections that wait for stragglers.
    pub time_wait_max: Option<u64>,
    /// Buckets of the established table (`net.ipv4.tcp_ehash_entries`); none before Linux 6.1.
    pub hash_buckets: Option<u64>,
    /// `net.ipv4.tcp_child_ehash_entries`: buckets that new network namespaces get; 0 if they share the first one's.
    pub child_hash_buckets: Option<u64>,
    /// `net.ipv4.tcp_rmem`: smallest, first and largest receive buffer, in bytes.
    pub receive_buffer_bytes: Option<[u64; 3]>,
    /// `net.ipv4.tcp_wmem`: smallest, first and largest send buffer, in bytes.
    pub send_buffer_bytes: Option<[u64; 3]>,
    /// `tcp_keepalive_time`, `tcp_keepalive_intvl` and `tcp_keepalive_probes`: seconds, seconds, count.
    pub keepalive: Option<[u64; 3]>,
}

/// `nf_conntrack`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conntrack {
    /// `net.netfilter.nf_conntrack_max`.
    pub entries_max: u64,
    /// `net.netfilter.nf_conntrack_count`. Zero on a machine that has the module but no rule that uses it.
    pub entries: u64,
    /// `net.netfilter.nf_conntrack_buckets`.
    pub buckets: Option<u64>,
    /// `nf_conntrack_tcp_timeout_established`: how long a silent connection is remembered.
    pub established_timeout_s: Option<u64>,
    /// How long entries stay in other cases.
    #[serde(default)]
    pub timeouts: TrackingTimeouts,
    /// Whether connections opened here were tracked; none where nothing was tried.
    pub tracks: Option<bool>,
}

/// How long `nf_conntrack` keeps an entry of a TCP connection after its last packet, by its state: each is
/// `nf_conntrack_tcp_timeout_` and the name here. None where it cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrackingTimeouts {
    /// A SYN was seen, and no answer.
    pub syn_sent_s: Option<u64>,
    /// The answer was seen, and no acknowledgement.
    pub syn_recv_s: Option<u64>,
    /// It is open, and what was sent last is not acknowledged.
    pub unacknowledged_s: Option<u64>,
    /// It is open, and the same was sent more often than `nf_conntrack_tcp_max_retrans`.
    pub max_retrans_s: Option<u64>,
    /// One side has ended.
    pub fin_wait_s: Option<u64>,
    /// One side has ended, and the other has acknowledged that.
    pub close_wait_s: Option<u64>,
    /// Both sides have ended, and the last acknowledgement is missing.
    pub last_ack_s: Option<u64>,
    /// Both sides have ended.
    pub time_wait_s: Option<u64>,
    /// It was reset.
    pub close_s: Option<u64>,
}

impl Conntrack {
    /// Whether connections of that role take entries.
    ///
    /// The trial opens them over loopback, which firewalls often exempt: where it was tracked, all are; where it was not,
    /// others are if there are entries at all. Only for connections that stay on loopback is it the last word.
    #[must_use]
    pub fn is_in_use(&self, role: Role) -> bool {
        match (self.tracks, role) {
            (Some(tracks), Role::BothEnds) => tracks,
            (tracks, _) => tracks == Some(true) || self.entries > 0,
        }
    }
}

/// Whether io_uring may be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IoUring {
    /// Nothing speaks against it, or it was tried and works.
    Allowed,
    /// Not tried; the kernel is older than 6.13, from which on closed sockets leave a ring at once.
    KernelTooOld,
    /// Not tried; `kernel.io_uring_disabled` is 1 and this process has no CAP_SYS_ADMIN (or its group is not let in), or 2.
    Disabled,
    /// It was tried and does not work.
    Refused {
        /// What the trial met: a seccomp filter, the sysctl, an old kernel.
        reason: String,
    },
}

impl IoUring {
    /// Whether the driver works, as far as is known.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        *self == Self::Allowed
    }
}

/// What is around the process and its sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Surroundings {
    /// What contains this process: `docker`, `podman`, `kubernetes`, `lxc`, or what `container=` says.
    pub container: Option<String>,
    /// Threads the control group may have, and has (`pids.max`, `pids.current`).
    pub threads: Option<[u64; 2]>,
    /// `/proc/self/oom_score_adj`: -1000 is never killed, 1000 first.
    pub oom_score_adjustment: Option<i64>,
    /// The mode of transparent huge pages: `always`, `madvise` or `never`.
    pub huge_pages: Option<String>,
    /// Cards, loopback and other purely virtual ones left out.
    pub interfaces: Vec<Interface>,
    /// Settings in sysctl's files that no longer do anything, or never did.
    pub old_advice: Vec<OldAdvice>,
}

/// A network card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Receive queues, each with an interrupt of its own.
    pub receive_queues: usize,
    /// Transmit queues.
    pub transmit_queues: usize,
    /// Some queue spreads its packets over cores (`rps_cpus` is not 0).
    pub spreads_packets: bool,
}

/// A line somebody wrote into sysctl's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OldAdvice {
    /// The file.
    pub file: String,
    /// Its line, from 1.
    pub line: usize,
    /// The setting, with dots.
    pub key: String,
}

/// Kernel memory of one loopback connection, both ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConnectionCost {
    /// Sockets, files, inodes, ports: everything in the slab caches for the two ends.
    pub sockets_bytes: u64,
    /// What of it is charged to the control group that limits this process; none where there is no such group or
    /// it was not measured.
    #[serde(default)]
    pub charged: Option<Charged>,
    /// How that is known.
    pub source: CostSource,
}

/// What the two ends of a loopback connection cost a control group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charged {
    /// The connecting end.
    pub connecting_bytes: u64,
    /// The accepted end.
    pub accepted_bytes: u64,
}

/// Where a cost comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CostSource {
    /// Opened that many pairs here and watched the kernel's slab caches grow.
    Measured {
        /// Pairs behind the figure.
        pairs: u64,
    },
    /// Taken from measurements on Linux 6.18, because measuring here did not work.
    Assumed {
        /// Why not.
        reason: String,
    },
}

impl ConnectionCost {
    /// Kernel memory of one end where it cannot be measured: `TCP` 2368 + `sock_inode_cache` 832 +
    /// `dentry` 192 + `filp` 192 bytes, less what whole slabs round away. Linux 6.18, x86-64.
    pub const SOCKET_BYTES: u64 = 3_400;
    /// What watching one socket adds: an io_uring multishot poll 250, an epoll entry 200.
    pub const WATCH_BYTES: u64 = 250;

    /// The constants, and why they were taken.
    #[must_use]
    pub fn assumed(reason: impl Into<String>) -> Self {
        Self {
            sockets_bytes: 2 * Self::SOCKET_BYTES,
            charged: None,
            source: CostSource::Assumed {
                reason: reason.into(),
            },
        }
    }
}
