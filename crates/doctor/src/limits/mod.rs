//! Each limit of a machine as a function of its own, from measurement to the connections it allows.

mod descriptors;
mod memory;
pub(crate) mod needed;
mod network;
mod tracking;

pub(crate) use memory::PROGRAM_BYTES;
pub use network::{BUCKET_SOCKETS, PER_SOURCE_MAX};

use crate::budget::Limit;
use crate::machine::{ConnectionCost, Machine};
use serde::{Deserialize, Serialize};

/// Which ends of the connections live on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Server and crowd, over loopback: every connection costs twice here, but has 16 million source addresses.
    BothEnds,
    /// The server's ends.
    Server,
    /// The crowd's ends, towards servers elsewhere.
    Crowd(Paths),
    /// Connections come in and each is passed on over one of its own.
    Proxy(Paths),
}

/// What outgoing connections can differ in besides their port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paths {
    /// Source addresses used.
    pub sources: u64,
    /// Addresses and ports connected to.
    pub destinations: u64,
}

impl Paths {
    /// From one address to one.
    pub const SINGLE: Self = Self {
        sources: 1,
        destinations: 1,
    };
}

impl Role {
    /// Sockets on this machine for one connection.
    #[must_use]
    pub fn ends(self) -> u64 {
        match self {
            Self::BothEnds | Self::Proxy(_) => 2,
            Self::Server | Self::Crowd(_) => 1,
        }
    }

    /// Whether connections are accepted here.
    #[must_use]
    pub fn accepts(self) -> bool {
        !matches!(self, Self::Crowd(_))
    }
}

/// Whose connections they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Program {
    /// Myriad's, which uses as many descriptor tables as it needs, and io_uring where it can.
    Myriad,
    /// Those of an ordinary program: epoll, and one descriptor table a process.
    Ordinary {
        /// Processes (workers) that share the connections evenly.
        processes: u64,
    },
}

/// What a connection brings along besides its kernel sockets, as the budget plans it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Which ends are here.
    pub role: Role,
    /// Whose they are.
    pub program: Program,
    /// User space per end.
    pub user_bytes: u64,
    /// Kernel memory per connection while a broadcast is under way: its packet, on its way to a reader.
    pub in_flight_bytes: u64,
    /// Whether `user_bytes` has what TLS takes.
    #[serde(skip)]
    tls: bool,
}

impl Load {
    /// User space of an idle `raw` connection with one subscription; 85 were measured with a million.
    pub const USER_BYTES: u64 = 100;
    /// What TLS 1.3 adds to it. 311 bytes at the server and 400 at the crowd were measured with 100,000 clients
    /// (docs/benchmarks.md, tls-100k).
    pub const TLS_USER_BYTES: u64 = 400;
    /// User space of one end of a WebSocket that nginx 1.22.1 proxies: half of what docs/plan.md measured for both.
    pub const PROXY_USER_BYTES: u64 = 18_142 / 2;
    /// The `sk_buff` pair and head of one small packet, Linux 6.18.
    pub const IN_FLIGHT_BYTES: u64 = 1_300;

    /// Plain connections with one subscription that all get one small publication at the same time.
    #[must_use]
    pub fn broadcast(role: Role) -> Self {
        Self {
            in_flight_bytes: Self::IN_FLIGHT_BYTES,
            ..Self::idle(role)
        }
    }

    /// Connections that are there and nothing more.
    #[must_use]
    pub fn idle(role: Role) -> Self {
        Self {
            role,
            program: Program::Myriad,
            user_bytes: Self::user_bytes_of(role),
            in_flight_bytes: 0,
            tls: false,
        }
    }

    /// The same, with TLS if `tls` says so. Both ends count with the bytes of the one that keeps more.
    #[must_use]
    pub fn with_tls(self, tls: bool) -> Self {
        let more = if tls { Self::TLS_USER_BYTES } else { 0 };
        Self {
            user_bytes: self.user_bytes + more,
            tls,
            ..self
        }
    }

    /// User space per end unless somebody says otherwise.
    fn user_bytes_of(role: Role) -> u64 {
        match role {
            Role::Proxy(_) => Self::PROXY_USER_BYTES,
            Role::BothEnds | Role::Server | Role::Crowd(_) => Self::USER_BYTES,
        }
    }

    /// Where the figure for user space comes from.
    fn user_source(self) -> &'static str {
        match (self.role, self.program) {
            _ if self.tls => "with TLS, measured",
            _ if self.user_bytes != Self::user_bytes_of(self.role) => "as given",
            (Role::Proxy(_), _) => "nginx's, measured",
            (_, Program::Myriad) => "Myriad's, measured",
            (_, Program::Ordinary { .. }) => {
                "Myriad's; give another program's with --memory-per-connection"
            }
        }
    }

    /// The same load on that program.
    #[must_use]
    pub fn on(self, program: Program) -> Self {
        Self { program, ..self }
    }

    /// Memory of one connection on this machine, all told.
    #[must_use]
    pub fn connection_bytes(self, cost: &ConnectionCost) -> u64 {
        self.bytes_with(cost.sockets_bytes * self.role.ends() / 2)
    }

    /// The part of it that is charged to the control group.
    #[must_use]
    pub fn charged_bytes(self, cost: &ConnectionCost) -> u64 {
        self.bytes_with(self.charged_sockets_bytes(cost))
    }

    /// Of that, the kernel's sockets.
    pub(crate) fn charged_sockets_bytes(self, cost: &ConnectionCost) -> u64 {
        let Some(charged) = cost.charged else {
            return cost.sockets_bytes * self.role.ends() / 2;
        };
        match self.role {
            Role::Server => charged.accepted_bytes,
            Role::Crowd(_) => charged.connecting_bytes,
            Role::BothEnds | Role::Proxy(_) => charged.accepted_bytes + charged.connecting_bytes,
        }
    }

    fn bytes_with(self, sockets_bytes: u64) -> u64 {
        let ends = self.role.ends();
        sockets_bytes
            + ends * (ConnectionCost::WATCH_BYTES + self.user_bytes)
            + self.in_flight_bytes
    }

    /// True where epoll watches the sockets.
    pub(crate) fn uses_epoll(self, machine: &Machine) -> bool {
        self.program != Program::Myriad || !machine.takes_io_uring()
    }
}

/// All limits that apply, in no order. What they advise is made for the connections wanted.
pub(crate) fn all(machine: &Machine, load: Load, wanted: u64) -> Vec<Limit> {
    [
        Some(memory::machine(machine, load)),
        memory::cgroup(machine, load),
        Some(descriptors::open_files(machine, load, wanted)),
        Some(descriptors::tables(machine, load)),
        descriptors::locked_memory(machine, load),
        descriptors::epoll_watches(machine, load, wanted),
        network::ports(machine, load),
        tracking::entries(machine, load, wanted),
        memory::tcp(machine, load, wanted),
        memory::cgroup_tcp(machine, load, wanted),
        network::hash_buckets(machine, load, wanted),
        network::accept_queue(machine, load),
        network::handshakes(machine, load),
        network::orphans(machine),
        network::time_wait(machine, load),
        tracking::ends(machine, load),
    ]
    .into_iter()
    .flatten()
    .collect()
}
