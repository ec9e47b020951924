//! What was written, in flags or in the file: one list of names for both.

use super::api::HttpApiTable;
use super::log::{LogFilter, LogFormat};
use super::proxy_tables::{ProxyTable, RpcTable};
use super::tables::{ChannelTable, ClientTable, TransportTable, parsed_option_list};
use super::tls::TlsTable;
use super::webhooks::WebhooksTable;
use super::written::Written;
use super::{ConfigError, address, refuse};
use myriad_shard::{AddressHeader, AddressHeaderError, Compression, Mesh, Network, OriginPattern};
use myriad_units::option::{Count, Size, Span, SpanRange};
use myriad_units::parse::QuantityError;
use serde::{Deserialize, Deserializer};
use std::net::SocketAddr;
#[cfg(test)]
use std::path::Path;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// Every option of the server, as written; nothing has its default yet.
///
/// The flags of the command line and the keys of the config file are the same fields, so that they cannot differ. What people
/// read about them, with their defaults, is in `catalogue/server.rs`.
#[derive(Clone, Debug, Default, Deserialize, clap::Args)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Options {
    /// Where clients connect: 127.0.0.1:8000, 8000 (loopback), :8000 (every address); port 0: any
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address::parse)]
    #[serde(deserialize_with = "address::deserialize")]
    pub listen: Option<SocketAddr>,

    /// A second address for the API, health and metrics, instead of the first one
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address::parse)]
    #[serde(deserialize_with = "address::deserialize")]
    pub internal_listen: Option<SocketAddr>,

    /// An address at which clients speak TLS, beside listen; needs tls-certificate and tls-key, or tls-acme
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address::parse)]
    #[serde(deserialize_with = "address::deserialize")]
    pub tls_listen: Option<SocketAddr>,

    /// A file with our certificate and those that sign it (PEM); read again when it changes
    #[arg(long, value_name = "FILE")]
    pub tls_certificate: Option<PathBuf>,

    /// A file with the private key of tls-certificate (PEM)
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,

    /// A file with the certificates (PEM) that sign those of clients
    #[arg(long, value_name = "FILE")]
    pub tls_client_ca: Option<PathBuf>,

    /// Whether clients have to show a certificate of tls-client-ca: none, optional or required
    #[arg(long, value_name = "WORD")]
    pub tls_client_auth: Option<String>,

    /// The name in a client's certificate that is its user: none, common-name, dns, email or uri
    #[arg(long, value_name = "WORD")]
    pub tls_client_user: Option<String>,

    /// The oldest version of TLS that clients may speak: 1.2 or 1.3
    #[arg(long, value_name = "VERSION")]
    pub tls_min_version: Option<String>,

    /// A file with keys of session tickets, which several nodes share; read again when it changes
    #[arg(long, value_name = "FILE")]
    pub tls_ticket_keys: Option<PathBuf>,

    /// A name to get a certificate for from an authority, such as push.example.com; may be repeated
    #[arg(long, value_name = "NAME")]
    pub tls_acme: Option<Vec<String>>,

    /// Accept the terms of the authority of tls-acme
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "true|false")]
    pub tls_acme_accept_terms: Option<bool>,

    /// Where the authority may write to
    #[arg(long, value_name = "ADDRESS")]
    pub tls_acme_email: Option<String>,

    /// The authority: letsencrypt, letsencrypt-staging, or the address of its directory
    #[arg(long, value_name = "URL")]
    pub tls_acme_directory: Option<String>,

    /// A file with the only CAs (PEM) that may sign for the directory
    #[arg(long, value_name = "FILE")]
    pub tls_acme_ca: Option<PathBuf>,

    /// A folder for the account and the certificate
    #[arg(long, value_name = "FOLDER")]
    pub tls_acme_cache: Option<PathBuf>,

    /// An address for requests of the authority without TLS: port 80 of the names, as the authority sees it
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address::parse)]
    #[serde(deserialize_with = "address::deserialize")]
    pub tls_acme_http: Option<SocketAddr>,

    /// Client connections to hold at most; more are answered 503
    #[arg(long, value_name = "COUNT")]
    pub max_connections: Option<Count>,

    /// How to drive sockets
    #[arg(long, value_enum, value_name = "DRIVER")]
    pub driver: Option<DriverChoice>,

    /// Shards (threads) to run
    #[arg(long, value_name = "COUNT")]
    pub shards: Option<usize>,

    /// For development: open API, anonymous clients, and /echo
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "true|false")]
    pub dev: Option<bool>,

    /// Accept clients without proof of who they are
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "true|false")]
    pub anonymous: Option<bool>,

    /// Web pages of other hosts that may connect, such as https://*.example.com; may be repeated
    #[arg(long, value_name = "ORIGIN")]
    #[serde(deserialize_with = "parsed_option_list")]
    pub allowed_origins: Option<Vec<OriginPattern>>,

    /// Show /metrics to everybody at the clients' address
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "true|false")]
    pub public_metrics: Option<bool>,

    /// Networks of proxies that say who their clients are, such as 10.0.0.0/8; may be repeated
    #[arg(long, value_name = "NETWORK")]
    #[serde(deserialize_with = "parsed_option_list")]
    pub trusted_proxies: Option<Vec<Network>>,

    /// Expect the PROXY protocol, version 1 or 2, from the trusted proxies
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "true|false")]
    pub proxy_protocol: Option<bool>,

    /// The header in which the trusted proxies name the client: x-forwarded-for, x-real-ip or forwarded
    #[arg(long, value_name = "HEADER")]
    #[serde(deserialize_with = "address_header")]
    pub client_address_header: Option<AddressHeader>,

    /// The key that API callers must present
    #[arg(long, value_name = "KEY")]
    pub api_key: Option<String>,

    /// Publish the server's time to a channel at an interval, such as time=1m; may be repeated
    #[arg(long, value_name = "CHANNEL=INTERVAL")]
    pub announce: Option<Vec<Announcement>>,

    /// NATS servers whose JetStream orders channels for all nodes of a cluster: nats://HOST:PORT, several with commas
    #[arg(long, value_name = "URL")]
    pub broker: Option<String>,

    /// The cluster's name in NATS: subjects and streams begin with it
    #[arg(long, value_name = "NAME")]
    pub broker_prefix: Option<String>,

    /// NATS servers that keep each publication
    #[arg(long, value_name = "COUNT")]
    pub broker_replicas: Option<Count>,

    /// Streams of each namespace with history
    #[arg(long, value_name = "COUNT")]
    pub broker_partitions: Option<Count>,

    /// What this node hears of the broker: stream (all), channel (what its clients want), auto (it chooses)
    #[arg(long, value_name = "WHAT")]
    pub broker_interest: Option<String>,

    /// Publications a second from which on a node may choose to hear single channels, with --broker-interest auto
    #[arg(long, value_name = "COUNT")]
    pub broker_auto_rate: Option<Count>,

    /// Where streams of the broker are kept: file
    #[arg(long, value_name = "STORAGE")]
    pub broker_storage: Option<String>,

    /// A file of credentials for NATS
    #[arg(long, value_name = "FILE")]
    pub broker_credentials: Option<PathBuf>,

    /// A file of certificates (PEM) that NATS servers may be signed by, beside those the machine trusts
    #[arg(long, value_name = "FILE")]
    pub broker_ca: Option<PathBuf>,

    /// A file with our certificate for NATS (PEM); its key is broker-key
    #[arg(long, value_name = "FILE")]
    pub broker_certificate: Option<PathBuf>,

    /// A file with the key (PEM) of broker-certificate
    #[arg(long, value_name = "FILE")]
    pub broker_key: Option<PathBuf>,

    /// A directory in which histories are kept, so that they outlive the server
    #[arg(long, value_name = "DIR")]
    pub history_dir: Option<PathBuf>,

    /// When a publication counts as kept: always (it is on the disk), a time (it will be by then), never (the system decides)
    #[arg(long, value_name = "WHEN")]
    pub history_sync: Option<String>,

    /// Bytes of histories in history-dir; past it the oldest publications go
    #[arg(long, value_name = "SIZE")]
    pub history_disk_max: Option<Size>,

    /// Time between pings to a connection; 0 for none
    #[arg(long, value_name = "TIME")]
    pub ping_interval: Option<Span>,

    /// Close a connection that sends nothing for this long after a ping
    #[arg(long, value_name = "TIME")]
    pub pong_timeout: Option<Span>,

    /// Close a connection that sends nothing for this long; 0 for never
    #[arg(long, value_name = "TIME")]
    pub idle_timeout: Option<Span>,

    /// Reset a connection whose client takes nothing of what is queued for it for this long; 0 for never
    #[arg(long, value_name = "TIME")]
    pub stall_timeout: Option<Span>,

    /// Answer a held request for a stream after this time if nothing comes, or after a time in a range such as 30s..90s
    #[arg(long, value_name = "TIME")]
    pub poll_timeout: Option<SpanRange>,

    /// Close a connection that sends no other request for a stream for this long
    #[arg(long, value_name = "TIME")]
    pub keep_alive_timeout: Option<Span>,

    /// End a stream of events after this time, so that its client comes back; 0 for never
    #[arg(long, value_name = "TIME")]
    pub events_timeout: Option<Span>,

    /// Time a client has for its request head
    #[arg(long, value_name = "TIME")]
    pub handshake_timeout: Option<Span>,

    /// Time over which connections are closed when the server stops
    #[arg(long, value_name = "TIME")]
    pub drain: Option<Span>,

    /// Bytes of a request head; past it: 431
    #[arg(long, value_name = "SIZE")]
    pub head_bytes_max: Option<Size>,

    /// Lines of headers in a request head; past it: 431
    #[arg(long, value_name = "COUNT")]
    pub head_lines_max: Option<Count>,

    /// Elements of an array that one request appends to a stream; past it: 413
    #[arg(long, value_name = "COUNT")]
    pub append_elements_max: Option<Count>,

    /// Bytes queued for one connection; past it the connection is closed as a slow consumer
    #[arg(long, value_name = "SIZE")]
    pub outbound_bytes_max: Option<Size>,

    /// Bytes buffered for all connections together
    #[arg(long, value_name = "SIZE")]
    pub buffered_bytes_max: Option<Size>,

    /// Those of them that clients may hold who have not connected
    #[arg(long, value_name = "SIZE")]
    pub unconnected_bytes_max: Option<Size>,

    /// Bytes of one message from a client
    #[arg(long, value_name = "SIZE")]
    pub message_bytes_max: Option<Size>,

    /// Fragments (frames) of one message from a client
    #[arg(long, value_name = "COUNT")]
    pub message_fragments_max: Option<Count>,

    /// Compress messages for clients that offer it (permessage-deflate)
    #[arg(long, value_enum, value_name = "HOW")]
    pub compression: Option<CompressionChoice>,

    /// Kernel send buffer (SO_SNDBUF) of each connection
    #[arg(long, value_name = "SIZE")]
    pub send_buffer_bytes: Option<Size>,

    /// What to log
    #[arg(long, value_name = "LEVEL")]
    pub log: Option<LogFilter>,

    /// How to write the log
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,

    /// Certificates for several names; only in the file.
    #[arg(skip)]
    pub tls: Option<TlsTable>,

    /// What channels may do; only in the file.
    #[arg(skip)]
    pub channel: Option<ChannelTable>,

    /// Who may call the API; only in the file.
    #[arg(skip)]
    #[serde(rename = "http_api")]
    pub http_api: Option<HttpApiTable>,

    /// What clients may do; only in the file.
    #[arg(skip)]
    pub client: Option<ClientTable>,

    /// The Centrifuge protocol in responses that go on; only in the file.
    #[arg(skip)]
    #[serde(rename = "http_stream")]
    pub http_stream: Option<TransportTable>,

    /// The Centrifuge protocol as an event stream; only in the file.
    #[arg(skip)]
    pub sse: Option<TransportTable>,

    /// Pushes over WebSocket; only in the file.
    #[arg(skip)]
    #[serde(rename = "uni_websocket")]
    pub uni_websocket: Option<TransportTable>,

    /// Pushes as an event stream; only in the file.
    #[arg(skip)]
    #[serde(rename = "uni_sse")]
    pub uni_sse: Option<TransportTable>,

    /// Pushes in responses that go on; only in the file.
    #[arg(skip)]
    #[serde(rename = "uni_http_stream")]
    pub uni_http_stream: Option<TransportTable>,

    /// Methods that clients may call; only in the file.
    #[arg(skip)]
    pub rpc: Option<RpcTable>,

    /// Addresses of the application that others of these tables name; only in the file.
    #[arg(skip)]
    pub proxies: Option<Vec<ProxyTable>>,

    /// What the file and the environment say, and where.
    #[arg(skip)]
    #[serde(skip)]
    pub written: Arc<Written>,
    /// Who is told what happens; only in the file.
    #[arg(skip)]
    pub webhooks: Option<WebhooksTable>,
}

impl Options {
    /// Reads what the config file and the environment say.
    ///
    /// # Errors
    /// A value cannot be read, or something is written twice; the error says where.
    pub(super) fn from_written(written: Arc<Written>) -> Result<Self, ConfigError> {
        let read: Result<Self, _> = written.values.clone().try_into();
        // Every value was tried alone before, so this does not happen.
        let options = read.map_err(|error| refuse("config", "", error.message()))?;
        let options = Self {
            written: Arc::clone(&written),
            ..options
        };
        options
            .with_times_of_pings()
            .and_then(Self::with_other_names)
            .map_err(|error| written.place(error))
    }

    /// Reads the text of the file at `path`.
    #[cfg(test)]
    pub(crate) fn from_text(text: &str, path: &Path) -> Result<Self, ConfigError> {
        Self::from_written(Arc::new(Written::from_text(text, path)?))
    }

    /// The times of pings have two names in the file, ours and Centrifugo's. Both at once would leave open which one is
    /// meant, even if they are equal today. A flag stands over either, as over the rest of the file.
    fn with_times_of_pings(mut self) -> Result<Self, ConfigError> {
        let Some(client) = &self.client else {
            return Ok(self);
        };
        for (ours, name, theirs) in [
            (
                &mut self.ping_interval,
                "ping-interval",
                client.ping_interval,
            ),
            (&mut self.pong_timeout, "pong-timeout", client.pong_timeout),
        ] {
            match (&ours, theirs) {
                (Some(_), Some(theirs)) => {
                    let field = format!("client.{}", name.replace('-', "_"));
                    let advice = format!("is the same as {name}, which the file has too; keep one");
                    return Err(refuse(field, theirs, advice));
                }
                (None, Some(theirs)) => *ours = Some(theirs),
                (_, None) => {}
            }
        }
        Ok(self)
    }

    /// As [`Options::with_times_of_pings`], for the other keys that Centrifugo has elsewhere.
    fn with_other_names(mut self) -> Result<Self, ConfigError> {
        let Some(client) = &self.client else {
            return Ok(self);
        };
        let twice = |field: &'static str, value: &dyn std::fmt::Display, ours: &str| {
            let advice = format!("is the same as {ours}, which the file has too; keep one");
            refuse(field, value, advice)
        };
        // Centrifugo's zero is no limit; the process has one always.
        let limit = client.connection_limit.filter(|limit| limit.0 > 0);
        match (self.max_connections, limit) {
            (Some(_), Some(limit)) => {
                return Err(twice("client.connection_limit", &limit, "max-connections"));
            }
            (None, limit) => self.max_connections = limit,
            (Some(_), None) => {}
        }
        match (&self.allowed_origins, &client.allowed_origins) {
            (Some(_), Some(_)) => {
                let field = "client.allowed_origins";
                return Err(twice(field, &"[..]", "allowed-origins"));
            }
            (None, listed) => self.allowed_origins.clone_from(listed),
            (Some(_), None) => {}
        }
        Ok(self)
    }

    /// These options, and `other`'s where these say nothing. A list replaces the other list.
    #[must_use]
    #[expect(clippy::too_many_lines, reason = "a line for each option")]
    pub fn over(self, other: Self) -> Self {
        Self {
            listen: self.listen.or(other.listen),
            internal_listen: self.internal_listen.or(other.internal_listen),
            tls_listen: self.tls_listen.or(other.tls_listen),
            tls_certificate: self.tls_certificate.or(other.tls_certificate),
            tls_key: self.tls_key.or(other.tls_key),
            tls_client_ca: self.tls_client_ca.or(other.tls_client_ca),
            tls_client_auth: self.tls_client_auth.or(other.tls_client_auth),
            tls_client_user: self.tls_client_user.or(other.tls_client_user),
            tls_min_version: self.tls_min_version.or(other.tls_min_version),
            tls_ticket_keys: self.tls_ticket_keys.or(other.tls_ticket_keys),
            tls_acme: self.tls_acme.or(other.tls_acme),
            tls_acme_accept_terms: self.tls_acme_accept_terms.or(other.tls_acme_accept_terms),
            tls_acme_email: self.tls_acme_email.or(other.tls_acme_email),
            tls_acme_directory: self.tls_acme_directory.or(other.tls_acme_directory),
            tls_acme_ca: self.tls_acme_ca.or(other.tls_acme_ca),
            tls_acme_cache: self.tls_acme_cache.or(other.tls_acme_cache),
            tls_acme_http: self.tls_acme_http.or(other.tls_acme_http),
            tls: self.tls.or(other.tls),
            max_connections: self.max_connections.or(other.max_connections),
            driver: self.driver.or(other.driver),
            shards: self.shards.or(other.shards),
            dev: self.dev.or(other.dev),
            anonymous: self.anonymous.or(other.anonymous),
            allowed_origins: self.allowed_origins.or(other.allowed_origins),
            public_metrics: self.public_metrics.or(other.public_metrics),
            trusted_proxies: self.trusted_proxies.or(other.trusted_proxies),
            proxy_protocol: self.proxy_protocol.or(other.proxy_protocol),
            client_address_header: self.client_address_header.or(other.client_address_header),
            api_key: self.api_key.or(other.api_key),
            announce: self.announce.or(other.announce),
            broker: self.broker.or(other.broker),
            broker_prefix: self.broker_prefix.or(other.broker_prefix),
            broker_replicas: self.broker_replicas.or(other.broker_replicas),
            broker_partitions: self.broker_partitions.or(other.broker_partitions),
            broker_interest: self.broker_interest.or(other.broker_interest),
            broker_auto_rate: self.broker_auto_rate.or(other.broker_auto_rate),
            broker_storage: self.broker_storage.or(other.broker_storage),
            broker_credentials: self.broker_credentials.or(other.broker_credentials),
            broker_ca: self.broker_ca.or(other.broker_ca),
            broker_certificate: self.broker_certificate.or(other.broker_certificate),
            broker_key: self.broker_key.or(other.broker_key),
            history_dir: self.history_dir.or(other.history_dir),
            history_sync: self.history_sync.or(other.history_sync),
            history_disk_max: self.history_disk_max.or(other.history_disk_max),
            ping_interval: self.ping_interval.or(other.ping_interval),
            pong_timeout: self.pong_timeout.or(other.pong_timeout),
            idle_timeout: self.idle_timeout.or(other.idle_timeout),
            stall_timeout: self.stall_timeout.or(other.stall_timeout),
            poll_timeout: self.poll_timeout.or(other.poll_timeout),
            keep_alive_timeout: self.keep_alive_timeout.or(other.keep_alive_timeout),
            events_timeout: self.events_timeout.or(other.events_timeout),
            handshake_timeout: self.handshake_timeout.or(other.handshake_timeout),
            drain: self.drain.or(other.drain),
            head_bytes_max: self.head_bytes_max.or(other.head_bytes_max),
            head_lines_max: self.head_lines_max.or(other.head_lines_max),
            append_elements_max: self.append_elements_max.or(other.append_elements_max),
            outbound_bytes_max: self.outbound_bytes_max.or(other.outbound_bytes_max),
            buffered_bytes_max: self.buffered_bytes_max.or(other.buffered_bytes_max),
            unconnected_bytes_max: self.unconnected_bytes_max.or(other.unconnected_bytes_max),
            message_bytes_max: self.message_bytes_max.or(other.message_bytes_max),
            message_fragments_max: self.message_fragments_max.or(other.message_fragments_max),
            compression: self.compression.or(other.compression),
            send_buffer_bytes: self.send_buffer_bytes.or(other.send_buffer_bytes),
            log: self.log.or(other.log),
            log_format: self.log_format.or(other.log_format),
            http_api: self.http_api.or(other.http_api),
            channel: self.channel.or(other.channel),
            client: self.client.or(other.client),
            http_stream: self.http_stream.or(other.http_stream),
            sse: self.sse.or(other.sse),
            uni_websocket: self.uni_websocket.or(other.uni_websocket),
            uni_sse: self.uni_sse.or(other.uni_sse),
            uni_http_stream: self.uni_http_stream.or(other.uni_http_stream),
            rpc: self.rpc.or(other.rpc),
            proxies: self.proxies.or(other.proxies),
            written: other.written,
            webhooks: self.webhooks.or(other.webhooks),
        }
    }
}

impl Options {
    /// These options for a server that runs with `running`: those that need a restart are as they were.
    ///
    /// Sockets, threads, budgets and what connections rely on are made once. The times of pings are among them because clients
    /// were told them.
    #[must_use]
    pub fn with_fixed_of(self, running: &Self) -> Self {
        Self {
            listen: running.listen,
            internal_listen: running.internal_listen,
            tls_listen: running.tls_listen,
            tls_acme: running.tls_acme.clone(),
            tls_acme_accept_terms: running.tls_acme_accept_terms,
            tls_acme_email: running.tls_acme_email.clone(),
            tls_acme_directory: running.tls_acme_directory.clone(),
            tls_acme_ca: running.tls_acme_ca.clone(),
            tls_acme_cache: running.tls_acme_cache.clone(),
            tls_acme_http: running.tls_acme_http,
            max_connections: running.max_connections,
            driver: running.driver,
            shards: running.shards,
            dev: running.dev,
            announce: running.announce.clone(),
            ping_interval: running.ping_interval,
            pong_timeout: running.pong_timeout,
            idle_timeout: running.idle_timeout,
            drain: running.drain,
            head_bytes_max: running.head_bytes_max,
            head_lines_max: running.head_lines_max,
            outbound_bytes_max: running.outbound_bytes_max,
            buffered_bytes_max: running.buffered_bytes_max,
            unconnected_bytes_max: running.unconnected_bytes_max,
            compression: running.compression,
            send_buffer_bytes: running.send_buffer_bytes,
            webhooks: WebhooksTable::with_fixed_of(self.webhooks, running.webhooks.as_ref()),
            log_format: running.log_format,
            broker: running.broker.clone(),
            broker_prefix: running.broker_prefix.clone(),
            broker_replicas: running.broker_replicas,
            broker_partitions: running.broker_partitions,
            broker_interest: running.broker_interest.clone(),
            broker_auto_rate: running.broker_auto_rate,
            broker_storage: running.broker_storage.clone(),
            broker_credentials: running.broker_credentials.clone(),
            broker_ca: running.broker_ca.clone(),
            broker_certificate: running.broker_certificate.clone(),
            broker_key: running.broker_key.clone(),
            history_dir: running.history_dir.clone(),
            history_sync: running.history_sync.clone(),
            history_disk_max: running.history_disk_max,
            // The logs of a broker are those of the namespaces at the start.
            channel: match running.broker {
                Some(_) => running.channel.clone(),
                None => self.channel,
            },
            http_stream: running.http_stream,
            sse: running.sse,
            uni_websocket: running.uni_websocket,
            uni_sse: running.uni_sse,
            uni_http_stream: running.uni_http_stream,
            http_api: HttpApiTable::with_fixed_of(self.http_api, running.http_api.as_ref()),
            ..self
        }
    }
}

fn address_header<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<AddressHeader>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let header = text.parse();
    header.map(Some).map_err(|error: AddressHeaderError| {
        serde::de::Error::custom(format_args!("`{text}`: {error}"))
    })
}

/// Which driver to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
pub enum DriverChoice {
    /// io_uring where the kernel allows it, epoll otherwise
    #[default]
    #[serde(rename = "auto")]
    Auto,
    /// io_uring; an error where it does not work
    #[serde(rename = "io_uring")]
    #[value(name = "io_uring")]
    IoUring,
    /// epoll
    #[serde(rename = "epoll")]
    Epoll,
}

/// Whether to compress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum CompressionChoice {
    /// Never
    Off,
    /// Each message by itself, once for all its subscribers: no memory per connection
    #[default]
    Shared,
}

impl From<CompressionChoice> for Compression {
    fn from(choice: CompressionChoice) -> Self {
        match choice {
            CompressionChoice::Off => Self::Off,
            CompressionChoice::Shared => Self::Shared,
        }
    }
}

/// A channel to which the server publishes its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Where to.
    pub channel: Box<str>,
    /// How often.
    pub every: Duration,
}

/// Text that is not `CHANNEL=INTERVAL`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AnnouncementError {
    /// There is no `=`.
    #[error("write CHANNEL=INTERVAL, such as time=1m")]
    Form,
    /// The channel's name is empty or too long.
    #[error("the channel's name must have 1 to {} bytes", Mesh::CHANNEL_BYTES_MAX)]
    Channel,
    /// The interval is no time.
    #[error("interval: {0}")]
    Interval(#[from] QuantityError),
    /// The interval would be a busy loop, or never come.
    #[error("the interval must be 10ms to 720h")]
    Bounds,
}

impl FromStr for Announcement {
    type Err = AnnouncementError;

    /// The last `=` separates, so that a channel's name may contain one.
    fn from_str(text: &str) -> Result<Self, AnnouncementError> {
        let (channel, interval) = text.rsplit_once('=').ok_or(AnnouncementError::Form)?;
        if channel.is_empty() || channel.len() > Mesh::CHANNEL_BYTES_MAX {
            return Err(AnnouncementError::Channel);
        }
        let Span(every) = interval.parse()?;
        if every < Duration::from_millis(10) || every > super::SPAN_MAX {
            return Err(AnnouncementError::Bounds);
        }
        Ok(Self {
            channel: channel.into(),
            every,
        })
    }
}

impl<'de> Deserialize<'de> for Announcement {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse()
            .map_err(|error| serde::de::Error::custom(format_args!("`{text}`: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::super::catalogue::{self, Form, Standard};
    use super::super::keys::Table;
    use super::super::{Flags, Sources};
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn flags(words: &[&str]) -> Options {
        Line::try_parse_from(std::iter::once(&"serve").chain(words))
            .unwrap()
            .options
    }

    #[test]
    fn flags_and_keys_have_the_same_names() {
        let command = <Options as clap::Args>::augment_args(clap::Command::new("serve"));
        for flag in command.get_arguments() {
            let name = flag.get_long().expect("every option has a long flag");
            // An unknown key fails by naming it; a known one fails, if at all, by its value.
            if let Err(error) = toml::from_str::<Options>(&format!("{name} = {{}}")) {
                assert!(!error.to_string().contains("unknown field"), "{error}");
            }
        }
    }

    #[test]
    fn help_shows_every_default_under_its_heading() {
        let command = <Flags as clap::Args>::augment_args(clap::Command::new("serve"));
        for flag in command.get_arguments() {
            let help = flag.get_help().expect("a sentence").to_string();
            assert!(help.contains("[default: "), "{:?}: {help}", flag.get_long());
            assert!(flag.get_help_heading().is_some(), "{:?}", flag.get_long());
        }
        let after = command.get_after_help().expect("the tables").to_string();
        assert!(
            after.contains("[client]") && after.contains("[[channel.namespaces]]"),
            "{after}"
        );
    }

    #[test]
    fn what_needs_a_restart_stays_and_the_rest_changes() {
        for option in catalogue::options(Table::Top).filter(|option| option.form != Form::Table) {
            let name = format!("MYRIAD_{}", option.key.to_uppercase().replace('-', "_"));
            let value = match option.standard {
                Standard::Value(value) => value,
                Standard::Depends { example, .. } => example,
            };
            let sources = Sources {
                variables: vec![(name, value.into())],
                ..Sources::default()
            };
            let shown = |options: Options| format!("{options:?}");
            let written = Options {
                written: Arc::default(),
                ..sources.read().unwrap()
            };
            assert_ne!(
                shown(written.clone()),
                shown(Options::default()),
                "{}",
                option.key
            );
            let taken = written.clone().with_fixed_of(&Options::default());
            let changes = shown(taken) == shown(written);
            assert_eq!(changes, option.reloads, "{}", option.key);
        }
    }

    #[test]
    fn addresses_are_read_alike_in_flags_and_in_the_file() {
        for (flag, key) in [
            (":8000", "\":8000\""),
            ("8000", "8000"),
            ("localhost:8000", "\"localhost:8000\""),
        ] {
            for name in ["listen", "internal-listen"] {
                let written = flags(&[&format!("--{name}"), flag]);
                let file: Options = toml::from_str(&format!("{name} = {key}")).unwrap();
                assert_eq!(written.listen, file.listen);
                assert_eq!(written.internal_listen, file.internal_listen);
            }
        }
        let error = toml::from_str::<Options>("listen = \"localhost\"").unwrap_err();
        assert!(error.to_string().contains("the port is missing"), "{error}");
        let error = Line::try_parse_from(["serve", "--listen", "myhost:1"]).unwrap_err();
        assert!(
            error.to_string().contains("the host must be an IP address"),
            "{error}"
        );
    }

    #[test]
    fn flags_stand_over_the_file() {
        let file: Options = toml::from_str(
            "listen = \"127.0.0.1:9000\"\nmax-connections = \"50k\"\ndev = true\nannounce = [\"a=1s\", \"b=2s\"]\n\
             driver = \"io_uring\"\nlog = \"warn\"",
        )
        .unwrap();
        let options = flags(&[
            "--max-connections",
            "1m",
            "--announce",
            "time=1m",
            "--dev=false",
        ])
        .over(file);
        assert_eq!(options.listen.unwrap().port(), 9000);
        assert_eq!(options.max_connections, Some(Count(1_000_000)));
        assert_eq!(options.dev, Some(false));
        assert_eq!(options.driver, Some(DriverChoice::IoUring));
        assert_eq!(options.log, "warn".parse().ok());
        let announce = options.announce.unwrap();
        assert_eq!(
            announce,
            [Announcement {
                channel: "time".into(),
                every: Duration::from_secs(60)
            }]
        );
    }

    #[test]
    fn a_flag_alone_means_true() {
        assert_eq!(flags(&["--dev", "--driver", "epoll"]).dev, Some(true));
        assert_eq!(flags(&[]).dev, None);
    }

    #[test]
    fn an_unknown_key_is_named_with_its_place() {
        let error = toml::from_str::<Options>("listen = \"127.0.0.1:1\"\nmax-conections = 5")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("max-conections") && error.contains("line 2"),
            "{error}"
        );
    }

    #[test]
    fn announcements_split_at_the_last_sign() {
        let parsed: Announcement = "a=b=250ms".parse().unwrap();
        assert_eq!(
            (&*parsed.channel, parsed.every),
            ("a=b", Duration::from_millis(250))
        );
        assert_eq!("time".parse::<Announcement>(), Err(AnnouncementError::Form));
        assert_eq!(
            "=1s".parse::<Announcement>(),
            Err(AnnouncementError::Channel)
        );
        assert_eq!(
            "time=0".parse::<Announcement>(),
            Err(AnnouncementError::Bounds)
        );
        assert!(matches!(
            "time=often".parse::<Announcement>(),
            Err(AnnouncementError::Interval(_))
        ));
    }
}
