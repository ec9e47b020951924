//! What is planned: traffic, and the hops it passes.

use super::costs;
use super::traffic::Traffic;
use std::fmt;

/// Connections, what they carry, and the machines between them and their server.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    /// Connections wanted; each passes every hop.
    pub connections: u64,
    /// Connections each client opens.
    pub connections_per_client: u64,
    /// What the connections carry.
    pub traffic: Traffic,
    /// In the order clients meet them. A last hop other than Myriad proxies to something nobody described.
    pub hops: Vec<Hop>,
    /// Connections of one region when the chain is scaled out: what fails together.
    pub region_connections: u64,
    /// NATS servers that keep each publication (`broker-replicas`).
    pub broker_replicas: u64,
}

/// Machines of one kind that share the connections evenly.
#[derive(Clone, Debug, PartialEq)]
pub struct Hop {
    /// What runs on them.
    pub kind: Kind,
    /// Machines, or pods with an address of their own.
    pub nodes: u64,
    /// Of which this many may be down; the others carry everything.
    pub spare: u64,
    /// Cores of a node, if known.
    pub cores: Option<u64>,
    /// Memory of a node, if known.
    pub memory_bytes: Option<u64>,
    /// Network of a node in each direction, in bits a second, if known.
    pub bandwidth_bits_per_s: Option<u64>,
    /// Connections a node may hold by contract or configuration, if there is such a limit.
    pub connections_max: Option<u64>,
    /// Addresses a node connects from.
    pub addresses: u64,
    /// Ports it may connect from, of each address.
    pub ports: u64,
    /// Pairs of address and port at which the hop before reaches this one, all nodes together; one a node if not set.
    pub endpoints: Option<u64>,
    /// RLIMIT_NOFILE of a process, if known.
    pub descriptors: Option<u64>,
    /// Buckets of the kernel's hash of established connections.
    pub hash_buckets: u64,
}

/// What a hop runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// A load balancer that forwards packets and ends no connection.
    Slb(SlbMode),
    /// nginx as a proxy of WebSockets.
    Nginx(Nginx),
    /// ingress-nginx in Kubernetes.
    Ingress(Nginx),
    /// Myriad.
    Myriad(Myriad),
}

/// How a packet balancer passes packets on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlbMode {
    /// Direct return: replies bypass it, and it takes no ports.
    Dr,
    /// It rewrites the destination; replies come back through it, and it takes no ports.
    Nat,
    /// It rewrites the source too, and so needs a port for each connection.
    FullNat,
}

/// Settings of nginx that bound it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nginx {
    /// `worker_processes`; none: one for each core.
    pub workers: Option<u64>,
    /// `worker_connections` of each.
    pub worker_connections: u64,
    /// `sndbuf` of its listener, if set; otherwise the kernel tunes buffers as it likes.
    pub send_buffer_bytes: Option<u64>,
}

/// Settings of Myriad that bound it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Myriad {
    /// `outbound-bytes-max`.
    pub outbound_bytes: u64,
    /// `buffered-bytes-max`; none: an eighth of memory, at most 2 GiB.
    pub buffered_bytes: Option<u64>,
    /// Its connections have TLS there, and not in a hop before.
    pub tls: bool,
}

/// A hop behind Myriad, where no connection arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BehindMyriad {
    /// Which, from 1.
    pub hop: usize,
    /// Its kind.
    pub kind: &'static str,
}

impl fmt::Display for BehindMyriad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "hop {} ({}) is behind myriad, where every connection ends; put myriad last, or leave the hop out",
            self.hop, self.kind
        )
    }
}

impl std::error::Error for BehindMyriad {}

impl Chain {
    /// Whether the hops can stand in this order.
    ///
    /// # Errors
    /// The first hop behind Myriad, if there is one.
    pub fn check(&self) -> Result<(), BehindMyriad> {
        let is_myriad = |hop: &Hop| matches!(hop.kind, Kind::Myriad(_));
        let end = self.hops.iter().position(is_myriad);
        let behind = end.and_then(|end| Some((end + 2, self.hops.get(end + 1)?)));
        behind.map_or(Ok(()), |(hop, found)| {
            let kind = found.kind.name();
            Err(BehindMyriad { hop, kind })
        })
    }

    /// Clients with that many connections.
    #[must_use]
    pub fn clients(&self, connections: u64) -> u64 {
        connections / self.connections_per_client.max(1)
    }
}

impl Hop {
    /// A hop of that kind with everything else as it comes.
    #[must_use]
    pub fn new(kind: Kind, nodes: u64) -> Self {
        let connections_max =
            matches!(kind, Kind::Myriad(_)).then_some(costs::MYRIAD_CONNECTIONS_MAX.value_u64());
        Self {
            kind,
            nodes,
            spare: 0,
            cores: None,
            memory_bytes: None,
            bandwidth_bits_per_s: None,
            connections_max,
            addresses: 1,
            ports: costs::PORTS.value_u64(),
            endpoints: None,
            descriptors: None,
            hash_buckets: costs::HASH_BUCKETS.value_u64(),
        }
    }

    /// Packet balancers with direct return.
    #[must_use]
    pub fn slb(nodes: u64) -> Self {
        Self::new(Kind::Slb(SlbMode::Dr), nodes)
    }

    /// nginx as it is without a configuration: one worker with 512 connections.
    #[must_use]
    pub fn nginx(nodes: u64) -> Self {
        let nginx = Nginx {
            workers: Some(1),
            worker_connections: costs::NGINX_WORKER_CONNECTIONS.value_u64(),
            send_buffer_bytes: None,
        };
        Self::new(Kind::Nginx(nginx), nodes)
    }

    /// ingress-nginx as it is without a configuration: a worker for each core with 16,384 connections.
    #[must_use]
    pub fn ingress(nodes: u64) -> Self {
        let nginx = Nginx {
            workers: None,
            worker_connections: costs::INGRESS_WORKER_CONNECTIONS.value_u64(),
            send_buffer_bytes: None,
        };
        Self::new(Kind::Ingress(nginx), nodes)
    }

    /// Myriad as it is without a configuration.
    #[must_use]
    pub fn myriad(nodes: u64) -> Self {
        let myriad = Myriad {
            outbound_bytes: costs::OUTBOUND_BYTES.value_u64(),
            buffered_bytes: None,
            tls: false,
        };
        Self::new(Kind::Myriad(myriad), nodes)
    }

    /// Nodes that are up on the day that counts.
    #[must_use]
    pub fn active(&self) -> u64 {
        self.nodes.saturating_sub(self.spare).max(1)
    }

    /// Pairs of address and port at which the hop before reaches this one.
    #[must_use]
    pub fn endpoints(&self) -> u64 {
        self.endpoints.unwrap_or_else(|| self.active())
    }
}

impl Kind {
    /// As in `--hop`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Slb(_) => "slb",
            Self::Nginx(_) => "nginx",
            Self::Ingress(_) => "ingress",
            Self::Myriad(_) => "myriad",
        }
    }
}

impl Myriad {
    /// What it keeps for all clients that are behind, as the server chooses it where nobody does. Of a memory that is not
    /// known, the most.
    #[must_use]
    pub fn buffered(&self, hop: &Hop) -> u64 {
        let most = costs::BUFFERED_BYTES.value_u64();
        let default = || {
            hop.memory_bytes
                .map_or(most, |bytes| (bytes / 8).clamp(4 << 20, most))
        };
        self.buffered_bytes.unwrap_or_else(default)
    }
}

impl Nginx {
    /// Worker processes of a node, and how that number came about where nobody said it.
    #[must_use]
    pub fn workers(&self, hop: &Hop) -> (u64, Option<&'static str>) {
        match (self.workers, hop.cores) {
            (Some(workers), _) => (workers.max(1), None),
            (None, Some(cores)) => (cores.max(1), None),
            (None, None) => (
                costs::CORES_ASSUMED,
                Some(
                    "Workers are one for each core, and nobody said how many cores: 4 are assumed; give cores= or workers=.",
                ),
            ),
        }
    }
}
