//! Configuration: what was written ([`Options`], from flags and a TOML file), and what it means ([`Config`]).

mod acme;
mod address;
mod api;
mod broker;
mod catalogue;
mod centrifugo;
mod changes;
mod default_file;
mod disk;
mod environment;
mod flags;
mod keys;
mod limits;
mod log;
mod memory;
mod misplaced;
mod namespaces;
mod options;
mod proxies;
mod proxy_tables;
mod proxy_tls;
mod reached;
mod remarks;
mod secrets;
mod sources;
mod tables;
mod tls;
mod tokens;
mod webhooks;
mod written;

pub use api::{ApiAccess, ApiKeyTable, HttpApiTable};
pub(crate) use api::{NamedKey, digest_of};
pub use changes::Change;
pub(crate) use changes::StartedWith;
pub use default_file::default_file;
pub(crate) use disk::DiskSettings;
pub use flags::Flags;
pub use log::{LogFilter, LogFilterError, LogFormat, LogLevel, SetLog};
pub use memory::MemoryShares;
pub use options::{Announcement, AnnouncementError, DriverChoice, Options};
pub use proxy_tables::{
    ChannelProxyTable, ClientProxyTable, ProxyHttpTable, ProxyTable, RpcNamespaceTable,
    RpcPingTable, RpcTable, TransformDisconnectTable, TransformErrorTable, TransformTable,
};
pub use secrets::{SecretText, UrlText};
pub use sources::{Sources, check_text};
pub use tables::{
    ChannelTable, ClientTable, Durability, NamespaceTable, PersonalChannelTable, RateLimitTable,
    TransportTable,
};
pub use tokens::{TokenTable, secret_remark};
pub(crate) use webhooks::event_name;
pub use webhooks::{ChannelFilter, WebhookEndpoint, WebhookEndpointTable, Webhooks, WebhooksTable};
pub use written::Written;

use crate::auth::TokenRules;
use crate::broker::BrokerSettings;
use crate::machine::Machine;
use crate::proxy::ApplicationSettings;
use crate::tls::{TlsSettings, near_ends};
use myriad_doctor::{Budget, LISTENING_PORT, startup};
use myriad_shard::{
    Mesh, Namespaces, OriginPattern, OwnHosts, ProcessLimits, ReaderSettings, Settings, Transports,
};
use myriad_units::count;
use myriad_units::option::{Count, Size, Span};
use myriad_wire::http::{HEADERS_MAX, HeadLimits};
use std::borrow::Cow;
use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use thiserror::Error;
use tls::TlsCheck;

/// A configuration that cannot be used. Whoever wrote it erred; nothing was started.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("config file {}: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file has a key that does not exist, or one whose value has another form.
    #[error("config file {}: line {line}: {key}: {advice}", path.display())]
    Key {
        /// Which file.
        path: PathBuf,
        /// Where in it; the first is 1.
        line: usize,
        /// The key's path, such as `channel.namespaces[0].presense`. Namespaces are counted from 0.
        key: String,
        /// What to do.
        advice: String,
    },
    /// The file is not TOML.
    #[error("config file {}: {source}", path.display())]
    Syntax {
        /// Which file.
        path: PathBuf,
        /// Where in it, and what was expected.
        source: Box<toml::de::Error>,
    },
    /// The file is written in another language.
    #[error(
        "config file {}: it is {language}, and TOML is wanted: write key = value, a table as [client], and [[channel.namespaces]] \
         before each namespace; for one of Centrifugo, myriad config import FILE makes it", path.display()
    )]
    Language {
        /// Which file.
        path: PathBuf,
        /// What it looks like.
        language: &'static str,
    },
    /// A value in the file that cannot be meant.
    #[error("config file {}: line {line}: {field} = {value}: {advice}", path.display())]
    Line {
        /// Which file.
        path: PathBuf,
        /// Where in it; the first is 1. Of the table, if the value was not written.
        line: usize,
        /// The key's path in the file.
        field: String,
        /// What it was.
        value: String,
        /// What to do.
        advice: String,
    },
    /// A variable of the environment that cannot be read, or whose value cannot be meant.
    #[error("variable {name} = {value}: {advice}")]
    Variable {
        /// Its name, with the place in its value if that is a table: `MYRIAD_TLS: certificates[1].key`.
        name: String,
        /// The path of its key.
        field: String,
        /// What it was.
        value: String,
        /// What to do.
        advice: String,
    },
    /// A reload found an empty file in the place of one with options.
    #[error(
        "config file {}: it is empty, and the server runs with options of it. A reload may have come while it is written: write \
         another file beside it, and rename that one", path.display()
    )]
    Emptied {
        /// Which file.
        path: PathBuf,
    },
    /// A reload would take away what nobody said may go.
    #[error("{what}: write reload_may_remove = true under [channel] if that is meant")]
    Removed {
        /// What it would do.
        what: String,
    },
    /// Several of these, at least one.
    #[error("{}", lines(.0))]
    Several(Vec<ConfigError>),
    /// A value that cannot be meant.
    #[error("{field} = {value}: {advice}")]
    Value {
        /// The flag and key, or the key's path in the file.
        field: Cow<'static, str>,
        /// What it was.
        value: String,
        /// What to do.
        advice: String,
    },
}

fn lines(errors: &[ConfigError]) -> String {
    let lines: Vec<_> = errors.iter().map(ConfigError::to_string).collect();
    lines.join("\n")
}

impl ConfigError {
    /// Each of several mistakes, or the only one.
    #[must_use]
    pub fn each(&self) -> &[Self] {
        match self {
            Self::Several(errors) => errors,
            error => std::slice::from_ref(error),
        }
    }

    /// The same, each by itself.
    fn into_each(self) -> Vec<Self> {
        match self {
            Self::Several(errors) => errors,
            error => vec![error],
        }
    }

    /// All mistakes as one error.
    ///
    /// # Errors
    /// There are some.
    fn several(mut mistakes: Vec<Self>) -> Result<(), Self> {
        match mistakes.len() {
            0 => Ok(()),
            1 => Err(mistakes.remove(0)),
            _ => Err(Self::Several(mistakes)),
        }
    }

    /// The path of the key whose value is at fault.
    fn path(&self) -> Option<&str> {
        match self {
            Self::Value { field, .. } => Some(field),
            Self::Line { field, .. } | Self::Variable { field, .. } => Some(field),
            Self::File { .. }
            | Self::Key { .. }
            | Self::Syntax { .. }
            | Self::Language { .. }
            | Self::Emptied { .. }
            | Self::Removed { .. }
            | Self::Several(_) => None,
        }
    }

    /// Adds the name of a namespace where a value below its path is at fault: people know it better than its number.
    fn in_namespace(mut self, path: &str, name: &str) -> Self {
        if let Self::Value { field, .. } = &mut self
            && field.starts_with(path)
        {
            *field = format!("namespace {name:?}: {field}").into();
        }
        self
    }
}

fn refuse(
    field: impl Into<Cow<'static, str>>,
    value: impl Display,
    advice: impl Into<String>,
) -> ConfigError {
    ConfigError::Value {
        field: field.into(),
        value: value.to_string(),
        advice: advice.into(),
    }
}

/// A configuration in which every value can be used.
#[derive(Clone, Debug)]
pub struct Config {
    /// What it was resolved from.
    pub options: Box<Options>,
    /// The machine whose facts gave the defaults.
    pub machine: Machine,
    /// Where clients connect. Port 0 lets the kernel choose.
    pub listen: SocketAddr,
    /// Where the control plane listens, when it is not reached through `listen`.
    pub internal_listen: Option<SocketAddr>,
    /// TLS of the server's own port, if there is some.
    pub tls: Option<TlsSettings>,
    /// Client connections, all shards together.
    pub max_connections: u64,
    /// Which driver.
    pub driver: DriverChoice,
    /// Rings of io_uring that the user's locked memory allows; none where nothing is known to bound them.
    pub rings_max: Option<u64>,
    /// Shards asked for; none for one per core, or as many as descriptor tables need.
    pub shards: Option<usize>,
    /// Who may call the API.
    pub api: ApiAccess,
    /// What to publish by the clock.
    pub announce: Vec<Announcement>,
    /// Over how long closes are paced when the server drains.
    pub drain: Duration,
    /// SO_SNDBUF of the listeners, inherited by connections: what a stalled client can park in the kernel, halved
    /// because the kernel doubles it.
    pub send_buffer_bytes: u32,
    /// What is demanded of tokens.
    pub(crate) tokens: TokenRules,
    /// Who is told what happens.
    pub webhooks: Webhooks,
    /// What every shard is told.
    pub settings: Settings,
    /// What orders channels for all nodes of a cluster; none for a node alone.
    pub(crate) broker: Option<BrokerSettings>,
    /// Where histories are kept; none: in memory alone.
    pub(crate) disk: Option<DiskSettings>,
    /// What the application is asked, and where.
    pub(crate) application: ApplicationSettings,
    /// Everybody is shown the metrics at the clients' address.
    pub public_metrics: bool,
    /// What it may keep in memory beside its connections.
    pub memory: MemoryShares,
    /// Limits of the process.
    pub limits: ProcessLimits,
    /// What somebody reading the log should know about these values.
    pub remarks: Vec<String>,
    /// The commit that the program was built from, as its metrics show it: the program knows it, and this crate does not.
    pub commit: &'static str,
}

/// How the API knows its callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiKey {
    /// It does not: development.
    Open,
    /// By this key.
    Configured(Box<str>),
    /// By a key that is made at the start and shown once.
    Generated,
    /// By keys with names only.
    None,
}

/// Connections a server is made for unless it is told otherwise.
const MAX_CONNECTIONS_DEFAULT: u64 = 1_000_000;
/// More than anybody waits; far below where ticks overflow.
const SPAN_MAX: Duration = Duration::from_hours(30 * 24);
/// Below this a connection could not be told a sentence about why it is closed.
const OUTBOUND_BYTES_MIN: u64 = 1 << 10;
const ADVICE_SPAN_MAX: &str = "choose 720h or less";

impl Config {
    /// The names of the certificates and how long they last, in one line; none without TLS.
    #[must_use]
    pub fn certificates(&self) -> Option<String> {
        let tls = self.tls.as_ref()?;
        Some(crate::tls::sentence(&tls.loaded))
    }

    /// Which certificates of files end soon, and what to do. A running server says this in its log, once a day. One of an authority is
    /// the running server's to renew.
    #[must_use]
    pub fn certificates_near_end(&self) -> Vec<String> {
        let ends = self.tls.iter().flat_map(|tls| near_ends(&tls.loaded));
        let ends = ends.filter(|end| !end.is_renewed);
        ends.map(|end| end.words).collect()
    }

    /// A mark of the keys that verify tokens: nodes of a cluster need the same ones.
    pub(crate) fn keys_mark(&self) -> crate::nodes::KeysMark {
        let client = self.options.client.as_ref();
        client.map_or_else(
            || ClientTable::default().keys_mark(),
            ClientTable::keys_mark,
        )
    }

    /// The configuration that a server with this one has after a reload: what needs a restart stays as it is.
    ///
    /// # Errors
    /// The first value that cannot be used, or what would be lost although nobody has said that it may go.
    pub fn reloaded(&self, options: Options) -> Result<Self, ConfigError> {
        options.written.check_file(&self.options.written)?;
        let config = options
            .with_fixed_of(&self.options)
            .resolve(&self.machine)?;
        config.check_removals(&self.settings.namespaces)?;
        Ok(config)
    }

    /// Whether namespaces and histories stay that a server has. A file that is read while it is written may be cut anywhere, and
    /// is often good TOML all the same.
    fn check_removals(&self, running: &Namespaces) -> Result<(), ConfigError> {
        let channel = self.options.channel.as_ref();
        if channel.is_some_and(|channel| channel.reload_may_remove) {
            return Ok(());
        }
        let namespaces = &self.settings.namespaces;
        let missing = running.histories_missing_in(namespaces);
        if !missing.is_empty() {
            let shown = missing.iter().map(|name| match name {
                Some(name) => format!("of namespace {name:?}"),
                None => "of channels without a namespace".to_owned(),
            });
            let shown: Vec<_> = shown.collect();
            let what = format!("it would delete the history {}", shown.join(", "));
            return Err(ConfigError::Removed { what });
        }
        if running.namespace_names().next().is_some()
            && namespaces.namespace_names().next().is_none()
        {
            let what = "it would remove all namespaces".to_owned();
            return Err(ConfigError::Removed { what });
        }
        Ok(())
    }
}

impl Options {
    /// Gives every value that was not written its default, and checks all of them.
    ///
    /// # Errors
    /// The first value that cannot be used; of the options of TLS, all of them.
    pub fn resolve(self, machine: &Machine) -> Result<Config, ConfigError> {
        self.resolve_with(machine, TlsCheck::Whole)
    }

    fn resolve_with(self, machine: &Machine, tls: TlsCheck) -> Result<Config, ConfigError> {
        let written = Arc::clone(&self.written);
        let checked = self.checked(machine, tls);
        checked.map_err(|error| written.place(error))
    }

    fn checked(self, machine: &Machine, tls: TlsCheck) -> Result<Config, ConfigError> {
        let mut remarks = self.written.remarks.clone();
        let listen = self
            .listen
            .unwrap_or(SocketAddr::from(([127, 0, 0, 1], LISTENING_PORT)));
        let driver = self.driver.unwrap_or_default();
        let wanted = self.max_connections_wanted()?;
        let budget = machine.budget(listen.port(), driver, wanted);
        let max_connections = self.max_connections(wanted, budget.as_ref(), &mut remarks);
        if let Some(internal) = self.internal_listen
            && internal == listen
            && internal.port() != 0
        {
            return Err(refuse(
                "internal-listen",
                internal,
                "is the same as listen; choose another port",
            ));
        }
        let limits = self.limits(machine, max_connections)?;
        let application = self.application()?;
        let client = self.client.clone().unwrap_or_default();
        let tokens = client.token_rules()?;
        let webhooks = self.webhooks.clone().unwrap_or_default().resolve()?;
        let settings = Settings {
            notices: webhooks.notices(),
            ..self.settings(&limits, &application)?
        };
        let api = self.api_access(&settings.namespaces)?;
        let announce = self.announce.clone().unwrap_or_default();
        for Announcement { channel, .. } in &announce {
            if settings.namespaces.options_of(channel).is_none() {
                let advice = "its namespace is not configured; add it to [[channel.namespaces]]";
                return Err(refuse("announce", channel, advice));
            }
        }
        remarks.extend(self.access_remarks(listen, &settings, &tokens));
        remarks.extend(client.token_remarks(&tokens));
        remarks.extend(self.channel.iter().flat_map(ChannelTable::remarks));
        remarks.extend(self.webhooks.iter().flat_map(WebhooksTable::remarks));
        remarks.extend(self.proxy_remarks());
        remarks.extend(self.broker_remarks());
        let tls = self.tls(listen, tls)?;
        remarks.extend(self.tls_remarks(tls.as_ref()));
        remarks.extend(self.acme_remarks());
        Ok(Config {
            tls,
            machine: machine.clone(),
            listen,
            internal_listen: self.internal_listen,
            max_connections,
            driver,
            rings_max: machine.rings_max(),
            shards: self.shard_count()?,
            api,
            drain: span("drain", self.drain, Span(Duration::from_secs(10)))?,
            send_buffer_bytes: self.send_buffer_bytes()?,
            tokens,
            webhooks,
            settings,
            application,
            announce,
            public_metrics: self.public_metrics.unwrap_or(false),
            memory: MemoryShares::of(&self, machine.memory_available_bytes)?,
            limits,
            remarks,
            commit: "unknown",
            broker: self.broker()?,
            disk: self.disk()?,
            options: Box::new(self),
        })
    }

    fn max_connections_wanted(&self) -> Result<u64, ConfigError> {
        match self.max_connections {
            Some(Count(0)) => Err(refuse("max-connections", 0, "choose at least 1")),
            Some(Count(wanted)) => Ok(wanted),
            None => Ok(MAX_CONNECTIONS_DEFAULT),
        }
    }

    /// A value that was written is kept, with a remark when the machine will not do; the default shrinks to what will.
    fn max_connections(
        &self,
        wanted: u64,
        budget: Option<&Budget>,
        remarks: &mut Vec<String>,
    ) -> u64 {
        let Some(budget) = budget else {
            return wanted;
        };
        let fits = budget.connections(wanted).connections.max(1);
        let taken = if self.max_connections.is_none() {
            fits
        } else {
            wanted
        };
        if taken < wanted {
            remarks.push(format!(
                "max-connections is {} instead of {}; set it to have another bound",
                count(taken),
                count(wanted),
            ));
        }
        remarks.extend(startup::warnings(budget, wanted));
        taken
    }

    fn limits(
        &self,
        machine: &Machine,
        connections_max: u64,
    ) -> Result<ProcessLimits, ConfigError> {
        let shares = MemoryShares::of(self, machine.memory_available_bytes)?;
        Ok(ProcessLimits {
            connections_max,
            buffered_bytes_max: shares.buffered,
            unconnected_bytes_max: shares.unconnected,
            publication_bytes_max: shares.publications,
            history_bytes_max: shares.history,
            compression: self.compression.unwrap_or_default().into(),
            http_streams: self.transports().any(),
            ..ProcessLimits::default()
        })
    }

    /// Without tables of one's own everything is allowed in channels in development. Where clients may be anonymous, all may
    /// listen, and otherwise nothing is allowed.
    fn namespaces(&self, anonymous: bool) -> Result<Namespaces, ConfigError> {
        let namespaces = match &self.channel {
            Some(channel) => channel.resolve()?,
            None if self.dev.unwrap_or(false) => Namespaces::development(),
            None => ChannelTable::open_to_listeners(anonymous).resolve()?,
        };
        Ok(match self.broker {
            Some(_) => {
                let partitions = self.partitions(&namespaces)?;
                namespaces.with_logs(partitions)
            }
            None => namespaces,
        })
    }

    fn shard_count(&self) -> Result<Option<usize>, ConfigError> {
        match self.shards {
            Some(shards) if shards == 0 || shards > Mesh::SHARDS_MAX => Err(refuse(
                "shards",
                shards,
                format!("choose 1 to {}", Mesh::SHARDS_MAX),
            )),
            shards => Ok(shards),
        }
    }

    /// Which transports are served beside WebSocket: what is written, and otherwise all in development.
    fn transports(&self) -> Transports {
        let dev = self.dev.unwrap_or(false);
        let is_served = |table: Option<TransportTable>| {
            let written = table.and_then(|table| table.enabled);
            written.unwrap_or(dev)
        };
        Transports {
            http_stream: is_served(self.http_stream),
            sse: is_served(self.sse),
            uni_websocket: is_served(self.uni_websocket),
            uni_sse: is_served(self.uni_sse),
            uni_http_stream: is_served(self.uni_http_stream),
        }
    }

    /// Pages of other hosts are kept out unless they are listed. Their visitors' cookies would speak for them, and a server in
    /// an intranet would answer whoever can show a page to somebody inside.
    fn allowed_origins(&self) -> Arc<[OriginPattern]> {
        self.allowed_origins.clone().unwrap_or_default().into()
    }

    /// In development the API is open, so the names of other machines are kept out.
    fn own_hosts(&self) -> Option<Arc<OwnHosts>> {
        if !self.dev.unwrap_or(false) {
            return None;
        }
        let uname = rustix::system::uname();
        let name = uname.nodename().to_string_lossy();
        // Multicast DNS calls it that (RFC 6762).
        let names = [name.to_string(), format!("{name}.local")];
        Some(Arc::new(OwnHosts::new(names, self.allowed_origins())))
    }

    fn send_buffer_bytes(&self) -> Result<u32, ConfigError> {
        let size = self.send_buffer_bytes.unwrap_or(Size(32 << 10));
        match u32::try_from(size.0) {
            // The kernel's own minimum is 4,608 bytes for both halves of the doubled value.
            Ok(bytes) if (2_304..=1 << 30).contains(&bytes) => Ok(bytes),
            _ => Err(refuse("send-buffer-bytes", size, "choose 4KiB to 1GiB")),
        }
    }

    fn fragments_max(&self, default: u32) -> Result<u32, ConfigError> {
        let count = self
            .message_fragments_max
            .unwrap_or(Count(u64::from(default)));
        match u32::try_from(count.0) {
            Ok(fragments) if (1..=100_000_000).contains(&fragments) => Ok(fragments),
            _ => Err(refuse("message-fragments-max", count, "choose 1 to 100m")),
        }
    }

    fn head_limits(&self, defaults: &Settings) -> Result<HeadLimits, ConfigError> {
        let bytes = Size(u64::try_from(defaults.head_bytes_max).unwrap_or(u64::MAX));
        let bytes = self.head_bytes_max.unwrap_or(bytes);
        let lines = Count(u64::try_from(defaults.headers_max).unwrap_or(u64::MAX));
        let lines = self.head_lines_max.unwrap_or(lines);
        match (usize::try_from(bytes.0), usize::try_from(lines.0)) {
            (Ok(bytes_max), _) if !(4 << 10..=1 << 20).contains(&bytes_max) => {
                Err(refuse("head-bytes-max", bytes, "choose 4KiB to 1MiB"))
            }
            (Ok(bytes_max), Ok(headers_max)) if (16..=HEADERS_MAX).contains(&headers_max) => {
                Ok(HeadLimits {
                    bytes_max,
                    headers_max,
                })
            }
            _ => Err(refuse("head-lines-max", lines, "choose 16 to 1024")),
        }
    }

    fn append_elements_max(&self, default: u32) -> Result<u32, ConfigError> {
        let count = self.append_elements_max.unwrap_or(Count(default.into()));
        match u32::try_from(count.0) {
            Ok(elements) if (1..=100_000).contains(&elements) => Ok(elements),
            _ => Err(refuse("append-elements-max", count, "choose 1 to 100k")),
        }
    }

    fn outbound_bytes_max(
        &self,
        limits: &ProcessLimits,
        defaults: &Settings,
    ) -> Result<u32, ConfigError> {
        let outbound = self
            .outbound_bytes_max
            .unwrap_or(Size(u64::from(defaults.outbound_bytes_max)));
        match u32::try_from(outbound.0) {
            Ok(bytes)
                if outbound.0 >= OUTBOUND_BYTES_MIN && outbound.0 <= limits.buffered_bytes_max =>
            {
                Ok(bytes)
            }
            _ => {
                let most = Size(limits.buffered_bytes_max.min(u64::from(u32::MAX)));
                let advice = format!(
                    "choose 1KiB to {most} (buffered-bytes-max bounds all connections together)"
                );
                Err(refuse("outbound-bytes-max", outbound, advice))
            }
        }
    }

    fn settings(
        &self,
        limits: &ProcessLimits,
        application: &ApplicationSettings,
    ) -> Result<Settings, ConfigError> {
        let defaults = Settings::default();
        let outbound_bytes_max = self.outbound_bytes_max(limits, &defaults)?;
        let message = self
            .message_bytes_max
            .unwrap_or(Size(defaults.message_bytes_max));
        if !(1..=1 << 30).contains(&message.0) {
            return Err(refuse("message-bytes-max", message, "choose 1B to 1GiB"));
        }
        // A default that is too long for a shorter interval is shortened; what is written must hold.
        let ping = self.ping_interval.unwrap_or(Span(defaults.ping_interval));
        if let Some(pong) = self
            .pong_timeout
            .filter(|pong| *pong > ping && ping.0 > Duration::ZERO)
        {
            let advice = format!(
                "choose at most {ping}, the ping-interval: a pong is awaited until the next ping"
            );
            return Err(refuse("pong-timeout", pong, advice));
        }
        let anonymous = self.anonymous.or(self.dev).unwrap_or(false);
        let namespaces = self.namespaces(anonymous)?;
        let client = self.client.clone().unwrap_or_default();
        let client_options = client.resolve(&namespaces, anonymous)?;
        let head = self.head_limits(&defaults)?;
        let lets_strangers_in = anonymous || client_options.allow_anonymous_connect_without_token;
        Ok(Settings {
            echo: self.dev.unwrap_or(false),
            anonymous,
            client: client_options,
            access: application.access(client.access()),
            subscriptions_max: client.channel_limit(defaults.subscriptions_max)?,
            namespaces: Arc::new(namespaces),
            allowed_origins: self.allowed_origins(),
            own_hosts: self.own_hosts(),
            limits: Arc::new(client.limits()?),
            proxies: Arc::new(self.proxies()?),
            hands_over: self.internal_listen.is_none(),
            compression: limits.compression,
            transports: self.transports(),
            handshake_timeout: positive(
                "handshake-timeout",
                self.handshake_timeout,
                defaults.handshake_timeout,
            )?,
            ping_interval: span(
                "ping-interval",
                self.ping_interval,
                Span(defaults.ping_interval),
            )?,
            pong_timeout: positive("pong-timeout", self.pong_timeout, defaults.pong_timeout)?,
            idle_timeout: self.idle(defaults.idle_timeout)?,
            stall_timeout: span(
                "stall-timeout",
                self.stall_timeout,
                Span(defaults.stall_timeout),
            )?,
            readers: self.readers(lets_strangers_in)?,
            head_bytes_max: head.bytes_max,
            headers_max: head.headers_max,
            message_bytes_max: message.0,
            fragments_max: self.fragments_max(defaults.fragments_max)?,
            append_elements_max: self.append_elements_max(defaults.append_elements_max)?,
            outbound_bytes_max,
            ..defaults
        })
    }
}

impl Options {
    fn idle(&self, default: Duration) -> Result<Duration, ConfigError> {
        span("idle-timeout", self.idle_timeout, Span(default))
    }

    /// How readers of streams are held and answered.
    fn readers(&self, is_public: bool) -> Result<ReaderSettings, ConfigError> {
        let defaults = ReaderSettings::default();
        let poll = self.poll_timeout;
        let (min, max) = (poll.map(|poll| poll.min), poll.map(|poll| poll.max));
        Ok(ReaderSettings {
            poll_min: positive("poll-timeout", min, defaults.poll_min)?,
            poll_max: positive("poll-timeout", max, defaults.poll_max)?,
            keep_alive: positive(
                "keep-alive-timeout",
                self.keep_alive_timeout,
                defaults.keep_alive,
            )?,
            events_max: span(
                "events-timeout",
                self.events_timeout,
                Span(defaults.events_max),
            )?,
            is_public,
            unix_offset_s: unix_offset_s(),
        })
    }
}

/// The Unix time at which the monotonic clock was zero, s.
fn unix_offset_s() -> u64 {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH);
    let unix_s = unix.map_or(0, |unix| unix.as_secs());
    unix_s.saturating_sub(crate::shards::monotonic_now().0 / 1_000_000_000)
}

/// A time that may be zero.
fn span(
    field: &'static str,
    written: Option<Span>,
    default: Span,
) -> Result<Duration, ConfigError> {
    let span = written.unwrap_or(default);
    if span.0 > SPAN_MAX {
        Err(refuse(field, span, ADVICE_SPAN_MAX))
    } else {
        Ok(span.0)
    }
}

/// A time that must pass.
fn positive(
    field: &'static str,
    written: Option<Span>,
    default: Duration,
) -> Result<Duration, ConfigError> {
    match span(field, written, Span(default))? {
        Duration::ZERO => Err(refuse(field, "0", "choose more than zero, such as 10s")),
        time => Ok(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOMY: Machine = Machine::OF_TESTS;

    #[test]
    fn nothing_written_gives_the_documented_defaults() {
        let config = Options::default().resolve(&ROOMY).unwrap();
        assert_eq!(config.listen.to_string(), "127.0.0.1:8000");
        assert_eq!(config.max_connections, 1_000_000);
        assert_eq!(config.api.lone, ApiKey::Generated);
        assert_eq!(config.settings.ping_interval, Duration::from_secs(25));
        assert_eq!(config.settings.outbound_bytes_max, 1 << 20);
        assert_eq!(config.limits.buffered_bytes_max, 2 << 30);
        assert_eq!(config.send_buffer_bytes, 32 << 10);
        assert!(config.settings.hands_over && !config.settings.echo && !config.settings.anonymous);
        assert!(config.settings.allowed_origins.is_empty());
        let [nobody] = &config.remarks[..] else {
            panic!("{:?}", config.remarks)
        };
        assert!(nobody.starts_with("nobody can connect: "), "{nobody}");
    }

    #[test]
    fn pages_of_other_hosts_are_kept_out_unless_they_are_listed() {
        let listed = |dev, origins: &[&str]| {
            let origins: Vec<_> = origins.iter().map(|text| text.parse().unwrap()).collect();
            let options = Options {
                dev: Some(dev),
                allowed_origins: Some(origins).filter(|origins| !origins.is_empty()),
                ..Options::default()
            };
            let settings = options.resolve(&ROOMY).unwrap().settings;
            (settings.allowed_origins.len(), settings.own_hosts.is_some())
        };
        assert_eq!(listed(false, &[]), (0, false));
        assert_eq!(listed(true, &[]), (0, true));
        assert_eq!(listed(true, &["https://a.example"]), (1, true));
        assert_eq!(listed(false, &["https://a.example"]), (1, false));
    }

    #[test]
    fn the_default_shrinks_to_memory_and_a_written_value_does_not() {
        let mut small = Machine::here();
        let probed = small.probed.as_mut().expect("a /proc");
        probed.cgroup = None;
        probed.memory.total_bytes = 1 << 30;
        // Half a gibibyte is kept, and an idle connection is taken to cost 3,400 + 250 + 100 bytes.
        probed.memory.available_bytes = (512 << 20) + 5_000 * 3_750;
        let config = Options::default().resolve(&small).unwrap();
        assert_eq!(config.max_connections, 5_000);
        let [taken, why, ..] = &config.remarks[..] else {
            panic!("{:?}", config.remarks)
        };
        assert!(taken.contains("5,000 instead of 1,000,000"), "{taken}");
        assert!(
            why.starts_with("Memory allows 5,000 of the 1,000,000 wanted: "),
            "{why}"
        );

        let written = Options {
            max_connections: Some(Count(6_000)),
            ..Options::default()
        };
        let config = written.resolve(&small).unwrap();
        assert_eq!(config.max_connections, 6_000);
        let why = &config.remarks[0];
        assert!(
            why.starts_with("Memory allows 5,000 of the 6,000 wanted: "),
            "{why}"
        );
    }

    #[test]
    fn a_key_opens_the_api_only_when_none_is_written_in_development() {
        let key = |dev, api_key: Option<&str>| {
            let options = Options {
                dev: Some(dev),
                api_key: api_key.map(Into::into),
                ..Options::default()
            };
            options.resolve(&ROOMY).map(|config| config.api.lone)
        };
        assert_eq!(key(true, None).unwrap(), ApiKey::Open);
        assert_eq!(
            key(true, Some("k")).unwrap(),
            ApiKey::Configured("k".into())
        );
        assert_eq!(key(false, None).unwrap(), ApiKey::Generated);
        let error = key(false, Some("two words")).unwrap_err().to_string();
        assert!(
            !error.contains("two words") && error.contains("api-key"),
            "{error}"
        );
    }

    #[test]
    fn development_lets_anybody_in_and_so_can_production() {
        let settings = |dev, anonymous| {
            let options = Options {
                dev,
                anonymous,
                ..Options::default()
            };
            let settings = options.resolve(&ROOMY).unwrap().settings;
            (settings.echo, settings.anonymous)
        };
        assert_eq!(settings(Some(true), None), (true, true));
        assert_eq!(settings(Some(true), Some(false)), (true, false));
        assert_eq!(settings(None, Some(true)), (false, true));
    }

    #[test]
    fn a_value_that_cannot_be_meant_is_named_with_advice() {
        for (written, error) in [
            (
                "max-connections = 0",
                "max-connections = 0: choose at least 1",
            ),
            ("shards = 0", "shards = 0: choose 1 to 256"),
            ("shards = 257", "shards = 257: choose 1 to 256"),
            ("pong-timeout = 0", "pong-timeout = 0: choose more"),
            (
                "ping-interval = \"10s\"\npong-timeout = \"30s\"",
                "pong-timeout = 30s: choose at most 10s",
            ),
            (
                "pong-timeout = \"26s\"",
                "pong-timeout = 26s: choose at most 25s",
            ),
            (
                "handshake-timeout = \"0s\"",
                "handshake-timeout = 0: choose more",
            ),
            ("drain = \"721h\"", "drain = 721h: choose 720h or less"),
            (
                "outbound-bytes-max = 1",
                "outbound-bytes-max = 1B: choose 1KiB to 2GiB",
            ),
            (
                "outbound-bytes-max = \"4GiB\"",
                "outbound-bytes-max = 4GiB: choose",
            ),
            (
                "buffered-bytes-max = \"1KiB\"",
                "buffered-bytes-max = 1KiB: choose",
            ),
            ("message-bytes-max = 0", "message-bytes-max = 0B: choose"),
            (
                "message-fragments-max = 0",
                "message-fragments-max = 0: choose 1 to 100m",
            ),
            ("send-buffer-bytes = 1", "send-buffer-bytes = 1B: choose"),
            (
                "internal-listen = \"127.0.0.1:8000\"",
                "internal-listen = 127.0.0.1:8000: is the same as listen",
            ),
            (
                "announce = [\"time=1m\", \"clock:utc=1m\"]",
                "announce = clock:utc: its namespace is not configured; add it to [[channel.namespaces]]",
            ),
        ] {
            let options: Options = toml::from_str(written).unwrap();
            let refused = options.resolve(&ROOMY).expect_err(written).to_string();
            assert!(refused.starts_with(error), "{refused}");
        }
    }

    #[test]
    fn a_second_address_ends_handing_over() {
        let options = Options {
            internal_listen: "127.0.0.1:8001".parse().ok(),
            ..Options::default()
        };
        assert!(!options.resolve(&ROOMY).unwrap().settings.hands_over);
    }
}
