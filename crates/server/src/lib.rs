//! Puts shards on threads and gives them a control plane.
//!
//! * [`Options`] is what was written, [`Config`] what it means; every value is checked before anything starts.
//! * [`Server::start`] plans the threads and their descriptor tables, starts the shards, and returns when all accept.
//! * The control plane is one more thread, with an ordinary async runtime and an ordinary HTTP server: API, health,
//!   metrics. Its connections come from the shards, by descriptor, or from an address of its own.
//! * [`run`] is all of it with signals, for a process that does nothing else.
//!
//! Shard threads may have descriptor tables of their own. Nothing they touch may belong to the runtime; they answer
//! through a mailbox (see `mailbox.rs`).
#![forbid(unsafe_code)]

mod announce;
mod answers;
mod auth;
mod broker;
mod config;
mod control;
mod debug_log;
mod error;
mod following;
mod handover;
mod hex;
mod history;
mod machine;
mod mailbox;
mod nats;
mod nodes;
mod proxy;
mod reload;
mod said;
mod server;
mod shards;
mod signals;
mod tls;
mod webhooks;

#[doc(hidden)]
pub use control::fuzzing;

pub use auth::{TokenDraft, TokenDraftError};
pub use broker::{BrokerError, NoStreamCause};
pub use config::{
    Announcement, AnnouncementError, ApiAccess, ApiKey, ApiKeyTable, Change, ChannelFilter,
    ChannelProxyTable, ChannelTable, ClientProxyTable, ClientTable, Config, ConfigError,
    DriverChoice, Durability, Flags, HttpApiTable, LogFilter, LogFilterError, LogFormat, LogLevel,
    MemoryShares, NamespaceTable, Options, PersonalChannelTable, ProxyHttpTable, ProxyTable,
    RateLimitTable, RpcNamespaceTable, RpcPingTable, RpcTable, SecretText, SetLog, Sources,
    TokenTable, TransformDisconnectTable, TransformErrorTable, TransformTable, TransportTable,
    UrlText, WebhookEndpoint, WebhookEndpointTable, Webhooks, WebhooksTable, Written, check_text,
    default_file, secret_remark,
};
pub use error::ServerError;
pub use machine::Machine;
pub use myriad_units::option::{Count, Size, Span};
pub use reload::Reloader;
pub use server::{Server, Stop};

use config::ApiKey as Key;
use following::Following;

/// Serves until SIGTERM or SIGINT, then drains. SIGHUP reads `sources` again, from which `config` was resolved, and
/// gives `log` its new filter. Says on stderr when it is ready, and the API's key if it made one.
///
/// # Errors
/// The server could not start, or a shard failed; the process should end.
pub fn run(config: Config, sources: Sources, log: SetLog) -> Result<(), ServerError> {
    let signals = signals::Blocked::block()?;
    let generated = config.api.lone == Key::Generated;
    let format = config.options.log_format.unwrap_or_default();
    if format == LogFormat::Json {
        said::panics_as_json();
    }
    let server = Server::start(config)?;
    signals.obey(
        server.stopper(),
        Following {
            reloader: server.reloader(),
            sources,
            log,
        },
    )?;
    // Said whatever the log level is: people and scripts wait for it.
    if let Some(key) = server.api_key().filter(|_| generated) {
        let words = format!("API key for this run: {key} (set api-key to choose one)");
        said::say(format, &words);
    }
    said::say(format, &server.ready_line());
    if let Some(line) = server.tls_line() {
        said::say(format, &line);
    }
    if let Some(line) = server.page_line() {
        said::say(format, &line);
    }
    server.wait()
}
