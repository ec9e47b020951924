//! A machine as plain data: everything the budget needs, nothing else.

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
    /// Descriptors, per table and machine-wide.
    pub descriptors: Descriptors,
    /// Local ports for outgoing connections.
    pub ports: Ports,
    /// TCP's own limits.
    pub tcp: Tcp,
    /// Connection tracking, when the module is loaded.
    pub conntrack: Option<Conntrack>,
    /// Epoll watches one user may hold (`fs.epoll.max_user_watches`); none on kernels without the limit.
    pub epoll_watches_max: Option<u64>,
    /// Whether io_uring may be used.
    pub io_uring: IoUring,
    /// What one loopback connection costs the kernel.
    pub connection_cost: ConnectionCost,
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

/// A memory limit of a control group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroup {
    /// Which hierarchy set it.
    pub version: CgroupVersion,
    /// The group's path inside its hierarchy.
    pub path: String,
    /// The limit.
    pub limit_bytes: u64,
    /// Used now, page cache that can be dropped not counted.
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
    /// True with CAP_SYS_ADMIN in the first user namespace: the kernel does not apply `fs.file-max` then.
    pub files_max_exempt: bool,
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

/// TCP's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tcp {
    /// `net.ipv4.tcp_mem`: buffer pages where TCP is content, starts to save, and refuses.
    pub memory_pages: [u64; 3],
    /// `net.core.somaxconn`: the longest accept queue.
    pub backlog_max: u64,
    /// `net.ipv4.tcp_max_orphans`: closed sockets that still have something to send.
    pub orphans_max: u64,
    /// Buckets of the established table (`net.ipv4.tcp_ehash_entries`); none before Linux 6.1.
    pub hash_buckets: Option<u64>,
}

/// `nf_conntrack`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conntrack {
    /// `net.netfilter.nf_conntrack_max`.
    pub entries_max: u64,
    /// `net.netfilter.nf_conntrack_count`. Zero on a machine that has the module but no rule that uses it.
    pub entries: u64,
}

/// Whether io_uring may be used, as far as the kernel's version and `kernel.io_uring_disabled` tell.
/// A seccomp filter can still forbid it; only trying shows that, and the server tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IoUring {
    /// Nothing speaks against it.
    Allowed,
    /// The kernel is older than 6.8, from which on the driver's operations are complete.
    KernelTooOld,
    /// `kernel.io_uring_disabled` is 1 and this process has no CAP_SYS_ADMIN (or its group is not let in), or 2.
    Disabled,
}

/// Kernel memory of one loopback connection, both ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConnectionCost {
    /// Sockets, files, inodes, ports: everything in the slab caches for the two ends.
    pub sockets_bytes: u64,
    /// How that is known.
    pub source: CostSource,
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
            source: CostSource::Assumed {
                reason: reason.into(),
            },
        }
    }
}
