//! What limits and remarks are called, in reports and in JSON: each name once, because other code looks them up.

/// Of limits; unique in a budget.
pub mod limit {
    /// `MemAvailable`.
    pub const MEMORY: &str = "memory";
    /// `memory.max` and its like.
    pub const GROUP_MEMORY: &str = "memory of the control group";
    /// `fs.file-max`.
    pub const OPEN_FILES: &str = "open files of the machine";
    /// Hard RLIMIT_NOFILE, for Myriad.
    pub const TABLES: &str = "descriptor tables";
    /// Hard RLIMIT_MEMLOCK.
    pub const LOCKED_MEMORY: &str = "locked memory of one user";
    /// Soft RLIMIT_NOFILE, for an ordinary program.
    pub const DESCRIPTORS: &str = "descriptors of a process";
    /// `fs.epoll.max_user_watches`.
    pub const EPOLL_WATCHES: &str = "epoll watches of one user";
    /// `ip_local_port_range`.
    pub const PORTS: &str = "source ports";
    /// `nf_conntrack_max`.
    pub const TRACKING: &str = "connection tracking";
    /// `nf_conntrack_tcp_timeout_time_wait` and its like.
    pub const TRACKED_ENDS: &str = "ended connections, tracked";
    /// `tcp_mem`.
    pub const TCP_BUFFERS: &str = "TCP buffers";
    /// `memory.kmem.tcp.limit_in_bytes`.
    pub const GROUP_TCP_BUFFERS: &str = "TCP buffers of the control group";
    /// `tcp_ehash_entries`.
    pub const HASH: &str = "connection hash";
    /// `somaxconn`.
    pub const ACCEPT_QUEUE: &str = "accept queue";
    /// `tcp_max_syn_backlog`.
    pub const SYN_BACKLOG: &str = "SYN backlog";
    /// `tcp_max_orphans`.
    pub const ORPHANS: &str = "orphaned sockets";
    /// `tcp_max_tw_buckets`.
    pub const TIME_WAIT: &str = "TIME_WAIT records";
}

/// Of remarks.
pub(crate) mod remark {
    pub(crate) const IO_URING: &str = "io_uring";
    pub(crate) const UNREAD: &str = "unread";
    pub(crate) const LISTENING_PORT: &str = "listening port";
    pub(crate) const CORES: &str = "cores";
    pub(crate) const CARDS: &str = "network cards";
    pub(crate) const OUT_OF_MEMORY: &str = "out of memory";
    pub(crate) const THREADS: &str = "threads";
    pub(crate) const GROUP_MEMORY: &str = "memory of control groups";
    pub(crate) const CONTAINER: &str = "container";
    pub(crate) const TRACKING: &str = "connection tracking";
    pub(crate) const TRACKING_TIMEOUTS: &str = "tracking timeouts";
    pub(crate) const ADDRESSES: &str = "source addresses";
    pub(crate) const EPOLL_WATCHES: &str = "epoll watches";
    pub(crate) const KEEPALIVE: &str = "keepalive";
    pub(crate) const SOCKET_BUFFERS: &str = "socket buffers";
    pub(crate) const NAMESPACE: &str = "network namespace";
    pub(crate) const SYN_BACKLOG: &str = "SYN backlog";
    pub(crate) const HUGE_PAGES: &str = "huge pages";
    pub(crate) const RIGHTS: &str = "rights";
    pub(crate) const OLD_SETTINGS: &str = "obsolete settings";
    pub(crate) const OLD_ADVICE: &str = "advice to ignore";
}
