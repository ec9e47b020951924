//! The settings that a shard gets at its start, and again when they change: plain data.

use crate::access::Access;
use crate::limits::{Limits, TrustedProxies};
use crate::notices::NoticeSettings;
use myriad_hub::{ClientOptions, Compression, Namespaces, ReaderSettings};
use myriad_wire::http::{OriginPattern, OwnHosts};
use std::sync::Arc;
use std::time::Duration;

/// Limits of the whole process, owned by the [`crate::Mesh`] and leased to shards in portions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessLimits {
    /// Client connections, all shards together. Past it, a client gets 503 with Retry-After.
    pub connections_max: u64,
    /// Bytes buffered for connections: outbound queues, partial input and questions to the control plane, all shards together.
    pub buffered_bytes_max: u64,
    /// Those of them that clients may hold that have not connected. Past it, the oldest of those are ended.
    pub unconnected_bytes_max: u64,
    /// Bytes of publications accepted and not yet submitted to every subscriber.
    pub publication_bytes_max: u64,
    /// Bytes of history that channels keep, all homes together. Past it, the oldest publications are dropped.
    pub history_bytes_max: u64,
    /// Commands of connected clients that may wait for the control plane, all shards together. Past it, a client gets error 100.
    pub asks_max: u64,
    /// Connect commands that may wait for the control plane, all shards together. They have places of their own: strangers who
    /// come in a crowd take none of the places of clients that are connected. Past it, a client gets error 100.
    pub connect_asks_max: u64,
    /// As in [`Settings`]. With compression, a publication may hold several frames of the same data.
    pub compression: Compression,
    /// Messages may also travel over HTTP, and to clients without commands. Then a publication may hold more frames.
    pub http_streams: bool,
}

impl Default for ProcessLimits {
    fn default() -> Self {
        Self {
            connections_max: 1_000_000,
            buffered_bytes_max: 2 << 30,
            unconnected_bytes_max: 512 << 20,
            publication_bytes_max: 256 << 20,
            history_bytes_max: 256 << 20,
            asks_max: 4096,
            // What an application that answers 4,000 a second can take within the time that connects wait.
            connect_asks_max: 16_384,
            compression: Compression::default(),
            http_streams: false,
        }
    }
}

/// Which transports of the Centrifuge protocol are served beside `/connection/websocket`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transports {
    /// `/connection/http_stream`, with commands by `/emulation`.
    pub http_stream: bool,
    /// `/connection/sse`, with commands by `/emulation`.
    pub sse: bool,
    /// `/connection/uni_websocket`.
    pub uni_websocket: bool,
    /// `/connection/uni_sse`.
    pub uni_sse: bool,
    /// `/connection/uni_http_stream`.
    pub uni_http_stream: bool,
}

impl Transports {
    /// All of them.
    pub const ALL: Self = Self {
        http_stream: true,
        sse: true,
        uni_websocket: true,
        uni_sse: true,
        uni_http_stream: true,
    };

    /// Whether any is served.
    #[must_use]
    pub fn any(self) -> bool {
        self != Self::default()
    }

    /// Whether commands may come by `/emulation`.
    #[must_use]
    pub fn emulates(self) -> bool {
        self.http_stream || self.sse
    }
}

/// Settings of one shard, the same for all shards of a process.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Serves `/echo`.
    pub echo: bool,
    /// Accepts clients without authentication; otherwise `/raw` answers 401.
    pub anonymous: bool,
    /// Web pages of other hosts that may connect. Pages of the server's own host and clients that are not browsers may always
    /// connect.
    pub allowed_origins: Arc<[OriginPattern]>,
    /// Names that this server answers to; none: it answers to every name.
    pub own_hosts: Option<Arc<OwnHosts>>,
    /// The compression to agree on when a client offers it.
    pub compression: Compression,
    /// Transports of the Centrifuge protocol beside WebSocket.
    pub transports: Transports,
    /// Hands requests other than streams over to the control plane; otherwise they get 404. Requests with clients' commands, and
    /// questions of browsers before they send any, are handed over in any case.
    pub hands_over: bool,
    /// Time for a request head. After it, the connection gets 408.
    pub handshake_timeout: Duration,
    /// Time between two pings to a connection. Zero: no pings.
    pub ping_interval: Duration,
    /// Time after a ping within which some input must arrive. After it, the connection is closed.
    pub pong_timeout: Duration,
    /// Time without input after which a connection is closed. Zero: never.
    pub idle_timeout: Duration,
    /// Time in which the kernel must take something of what is queued for a client. After it, the connection is reset. Zero: for
    /// ever.
    pub stall_timeout: Duration,
    /// Time for a peer to end its side after we have ended ours. Before that, time in which it must take something of what is
    /// queued.
    pub linger_timeout: Duration,
    /// The same for everybody who is left when the window of a drain is over. Then they are reset.
    pub drain_linger: Duration,
    /// Bytes of a request head.
    pub head_bytes_max: usize,
    /// Header lines of a request head.
    pub headers_max: usize,
    /// Bytes of one message from a client.
    pub message_bytes_max: u64,
    /// Fragments of one message from a client.
    pub fragments_max: u32,
    /// Elements of a JSON array that one request appends to a stream.
    pub append_elements_max: u32,
    /// Bytes queued for one connection that the kernel has not taken. Past it, the connection is a slow consumer.
    pub outbound_bytes_max: u32,
    /// Channels one connection may subscribe to; more than 255 has no effect.
    pub subscriptions_max: u32,
    /// Connections in one slice of work: deliveries, timers, closes of a drain, and queues flushed in one batch. It bounds
    /// how long reads wait: 1024 sends take 5 to 10 ms.
    pub slice_max: usize,
    /// Options of channels, by namespace.
    pub namespaces: Arc<Namespaces>,
    /// How long readers of streams are held, and how they are answered.
    pub readers: ReaderSettings,
    /// Options of clients of the Centrifuge protocol.
    pub client: ClientOptions,
    /// How clients prove who they are, and what the application is asked.
    pub access: Access,
    /// Time for the control plane to answer a client's command. After it, the client gets error 100. SDKs wait 5 s.
    pub ask_timeout: Duration,
    /// How long something goes on that has expired and that the application could not be asked about. Then it is asked again.
    pub refresh_grace: Duration,
    /// What strangers may have and do.
    pub limits: Arc<Limits>,
    /// Proxies that say who their clients are.
    pub proxies: Arc<TrustedProxies>,
    /// Notes events of single connections, for [`crate::Mesh::take_events`].
    pub events: bool,
    /// Notes what an application may be told, for [`crate::Mesh::take_notices`].
    pub notices: NoticeSettings,
}

impl Settings {
    /// These settings as a shard can take them that runs with `running`: some are as they were, because connections rely on
    /// them. Clients were told how often the server pings, a queue may hold what its budget allowed, and the mesh counts
    /// publications by how they may be compressed.
    #[must_use]
    pub fn over(self, running: &Self) -> Self {
        Self {
            echo: running.echo,
            compression: running.compression,
            transports: running.transports,
            hands_over: running.hands_over,
            ping_interval: running.ping_interval,
            pong_timeout: running.pong_timeout,
            idle_timeout: running.idle_timeout,
            linger_timeout: running.linger_timeout,
            drain_linger: running.drain_linger,
            head_bytes_max: running.head_bytes_max,
            headers_max: running.headers_max,
            outbound_bytes_max: running.outbound_bytes_max,
            slice_max: running.slice_max,
            notices: running.notices,
            ..self
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            echo: false,
            anonymous: false,
            allowed_origins: Arc::default(),
            own_hosts: None,
            compression: Compression::default(),
            transports: Transports::default(),
            hands_over: true,
            handshake_timeout: Duration::from_secs(10),
            ping_interval: Duration::from_secs(25),
            pong_timeout: Duration::from_secs(10),
            idle_timeout: Duration::ZERO,
            stall_timeout: Duration::from_secs(30),
            linger_timeout: Duration::from_secs(5),
            drain_linger: Duration::from_secs(1),
            head_bytes_max: 32 << 10,
            headers_max: 128,
            message_bytes_max: 64 * 1024,
            fragments_max: 1024,
            append_elements_max: 10_000,
            outbound_bytes_max: 1 << 20,
            subscriptions_max: 128,
            slice_max: 1024,
            namespaces: Arc::default(),
            readers: ReaderSettings::default(),
            client: ClientOptions::default(),
            access: Access::default(),
            ask_timeout: Duration::from_secs(4),
            refresh_grace: Duration::from_secs(60),
            limits: Arc::default(),
            proxies: Arc::default(),
            events: false,
            notices: NoticeSettings::default(),
        }
    }
}
