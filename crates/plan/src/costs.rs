//! Every constant a plan rests on, with where it comes from.
//!
//! Ours are measured on the machine of docs/benchmarks.md; how those of nginx were measured is in docs/plan.md.

/// A constant and its source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// In the unit the constant's name says.
    pub value: f64,
    /// Who says so.
    pub source: &'static str,
}

impl Cost {
    const fn new(value: f64, source: &'static str) -> Self {
        Self { value, source }
    }

    /// A cost that is a whole number.
    #[must_use]
    pub fn value_u64(&self) -> u64 {
        myriad_units::truncate(self.value)
    }
}

const NGINX_MEASURED: &str = "measured: nginx 1.22.1, docs/plan.md";
const BROKER_MEASURED: &str =
    "measured: make bench-cluster CLUSTER='--only traffic', nats-server 2.15.2, file storage";
const TLS_MEASURED: &str = "measured: docs/benchmarks.md, tls-100k, io_uring, ECDSA P-256, the crowd on the same two cores";
const SERVE: &str = "default: docs/serve.md";

/// User space of an idle connection with one subscription, at 100k, where rings weigh most.
pub const CONNECTION_BYTES: Cost = Cost::new(
    99.0,
    "measured: docs/benchmarks.md, broadcast-100k, user space, io_uring",
);
/// Kernel memory of one end of a connection: half of what a loopback pair takes.
pub const SOCKET_BYTES: Cost = Cost::new(
    4_240.0,
    "measured: docs/benchmarks.md, broadcast-1m, kernel, io_uring: half of both ends",
);
/// A small packet on its way, while a push goes to everybody: its `sk_buff` pair and head.
pub const IN_FLIGHT_BYTES: Cost = Cost::new(1_300.0, "measured: Linux 6.18, one small packet");
/// What a client that does not read parks in the kernel with SO_SNDBUF at 32 KiB, which the kernel doubles.
pub const PARKED_BYTES: Cost = Cost::new(65_536.0, "default: docs/serve.md, send-buffer-bytes");
/// Server CPU of one delivery, seconds.
pub const DELIVERY_S: Cost = Cost::new(
    4.06e-6,
    "measured: as docs/benchmarks.md, broadcast-100k, CPU per delivery, io_uring: small frames, the crowd on the same two \
     cores; rounds lie between 4 and 6 µs",
);
/// Server CPU of one ping and its pong, seconds: 31.1% of a core for a million connections every 25 s.
pub const PING_S: Cost = Cost::new(
    0.311 * 25.0 / 1e6,
    "measured: docs/benchmarks.md, idle-1m, server CPU, io_uring",
);
/// Connections opened a second, both ends on two cores.
pub const CONNECTS_PER_S: Cost = Cost::new(
    64_101.0,
    "measured: as docs/benchmarks.md, broadcast-100k, setup rate, io_uring: the crowd on the same two cores; rounds lie \
     between 49,000 and 65,000",
);

/// User space that TLS 1.3 adds to an idle connection.
pub const TLS_BYTES: Cost = Cost::new(311.0, TLS_MEASURED);
/// Server CPU of one delivery over TLS, seconds: 1.11 times that of a plain one.
pub const TLS_DELIVERY_S: Cost = Cost::new(1.11 * DELIVERY_S.value, TLS_MEASURED);
/// Server CPU of one ping over TLS and its pong, seconds.
pub const TLS_PING_S: Cost = Cost::new(
    1.11 * PING_S.value,
    "not measured: as much more than a plain one as a delivery over TLS",
);
/// Connections with a new TLS session opened a second, both ends on two cores. Handshakes are nearly all of it.
pub const TLS_CONNECTS_PER_S: Cost = Cost::new(3_277.0, TLS_MEASURED);

/// `outbound-bytes-max`.
pub const OUTBOUND_BYTES: Cost = Cost::new(1_048_576.0, SERVE);
/// The most that `buffered-bytes-max` is by default: an eighth of memory, up to this.
pub const BUFFERED_BYTES: Cost = Cost::new(2_147_483_648.0, SERVE);
/// `max-connections`.
pub const MYRIAD_CONNECTIONS_MAX: Cost = Cost::new(1e6, SERVE);
/// Descriptor tables a server can have.
pub const TABLES_MAX: Cost = Cost::new(4_096.0, "docs/adr/0003-tables.md");

/// What nginx allocates and touches at start for each of `worker_connections`: an `ngx_connection_t` and two `ngx_event_t`.
pub const NGINX_SLOT_BYTES: Cost = Cost::new(
    432.0,
    "measured: nginx 1.22.1, docs/plan.md (an ngx_connection_t and two ngx_event_t: ngx_event.c)",
);
/// Its user space for a proxied WebSocket beside the slots: pools, request, headers, two proxy buffers.
pub const NGINX_CONNECTION_BYTES: Cost = Cost::new(18_142.0, NGINX_MEASURED);
/// Its CPU to pass one small frame on, seconds.
pub const NGINX_DELIVERY_S: Cost = Cost::new(10.7e-6, NGINX_MEASURED);
/// Its CPU to pass a ping on and its pong back, seconds.
pub const NGINX_PING_S: Cost = Cost::new(26.4e-6, NGINX_MEASURED);
/// Slots of a worker that hold no client and no upstream: its listening socket and its channel to the master.
pub const NGINX_SLOTS_KEPT: Cost = Cost::new(2.0, "measured: nginx 1.22.1, docs/plan.md");
/// Slots of a proxied connection: the client's side and the upstream's.
pub const NGINX_SLOTS: Cost = Cost::new(
    2.0,
    "nginx.org: worker_connections counts proxied servers too",
);
/// Descriptors of a worker that are no connections: listener, channels, epoll, eventfd, logs.
pub const NGINX_DESCRIPTORS_KEPT: Cost = Cost::new(
    32.0,
    "measured: 8 in an idle worker, room for logs and reloads",
);
/// `worker_connections` without a configuration.
pub const NGINX_WORKER_CONNECTIONS: Cost = Cost::new(512.0, "nginx.org: worker_connections");
/// The same of ingress-nginx.
pub const INGRESS_WORKER_CONNECTIONS: Cost =
    Cost::new(16_384.0, "ingress-nginx: max-worker-connections");
/// Workers of an ingress whose cores nobody said.
pub const CORES_ASSUMED: u64 = 4;

/// Bytes the kernel queues for one slow client when nobody bounds the socket: the end of `tcp_wmem`.
pub const SEND_BUFFER_MAX: Cost = Cost::new(4_194_304.0, "Linux: tcp_wmem[2]");
/// Bytes it keeps of an upstream that the proxy has stopped reading: the receive buffer before it is tuned.
pub const RECEIVE_BUFFER: Cost = Cost::new(131_072.0, "Linux: tcp_rmem[1]");
/// Ports of `ip_local_port_range` 32768-60999.
pub const PORTS: Cost = Cost::new(
    28_232.0,
    "Linux: ip_local_port_range, one connection for each (source, port, destination, port)",
);
/// Soft RLIMIT_NOFILE of a process that nobody gave another one.
pub const DESCRIPTORS_SOFT: Cost = Cost::new(1_024.0, "Linux: INR_OPEN_CUR");
/// `fs.nr_open`: what RLIMIT_NOFILE can be raised to, and a table of io_uring at the most.
pub const DESCRIPTORS_MAX: Cost = Cost::new(1_048_576.0, "Linux: fs.nr_open");
/// Buckets of the connection hash on the machine of our benchmarks.
pub const HASH_BUCKETS: Cost = Cost::new(
    262_144.0,
    "measured: tcp_ehash_entries of a machine with 24 GiB",
);
/// Sockets of a bucket beyond which every packet searches noticeably longer.
pub const BUCKET_SOCKETS: Cost = Cost::new(
    4.0,
    "measured: at 2 a bucket no loss, at 8 a broadcast took a quarter longer",
);
/// Memory not to be planned with: a sixteenth, at least 512 MiB.
pub const MEMORY_KEPT_SHARE: Cost = Cost::new(1.0 / 16.0, "as `myriad doctor` keeps it");
/// The least of that.
pub const MEMORY_KEPT_MIN: Cost = Cost::new(536_870_912.0, "as `myriad doctor` keeps it");
/// Standard deviations by which the fullest of several workers is over the mean.
pub const DEVIATIONS: Cost = Cost::new(4.0, "binomial: SO_REUSEPORT deals connections by a hash");

/// An entry of the IPVS connection table, with its place in the hash.
pub const IPVS_BYTES: Cost = Cost::new(136.0, "Linux: Kconfig of IP_VS_TAB_BITS, 128 B and 8 B");

/// Beside the payload of a packet: IP 20, TCP with timestamps 32, Ethernet with preamble and gap 38.
pub const PACKET_BYTES: Cost = Cost::new(90.0, "RFC 791, RFC 9293, RFC 7323, IEEE 802.3");
/// Payload of a full packet: 1,500 less IP and TCP with timestamps.
pub const SEGMENT_BYTES: Cost = Cost::new(1_448.0, "MTU 1,500");
/// What NATS adds to a publication on its way to a node: subject, headers, framing of the consumer.
pub const BROKER_BYTES: Cost = Cost::new(141.0, BROKER_MEASURED);
/// CPU of a NATS server to take a publication and store it, seconds.
pub const BROKER_STORE_S: Cost = Cost::new(30e-6, BROKER_MEASURED);
/// CPU of a NATS server to send it to one node, seconds.
pub const BROKER_COPY_S: Cost = Cost::new(5.2e-6, BROKER_MEASURED);

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_doctor::tables;
    use myriad_doctor::{BUCKET_SOCKETS as DOCTORS_BUCKET_SOCKETS, Load};

    #[test]
    fn what_doctor_counts_with_too_is_the_same_there() {
        for (cost, doctors) in [
            (IN_FLIGHT_BYTES, Load::IN_FLIGHT_BYTES),
            (BUCKET_SOCKETS, DOCTORS_BUCKET_SOCKETS),
            (TABLES_MAX, tables::RING_TABLES_MAX),
            (DESCRIPTORS_MAX, tables::RING_SLOTS_MAX),
            (NGINX_CONNECTION_BYTES, 2 * Load::PROXY_USER_BYTES),
        ] {
            assert_eq!(cost.value_u64(), doctors, "{cost:?}");
        }
    }
}
