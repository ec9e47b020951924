//! The tables of the config file for channels and clients, as written.
//!
//! Names are those of Centrifugo, so that its users know them, in their snake case. There are no flags for them.

use super::proxy_tables::{ChannelProxyTable, ClientProxyTable};
use super::tokens::TokenTable;
use myriad_shard::{DataFormat, JoinLeaveBy, RecoveryMode, SlowConsumer};
use myriad_shard::{Network, OriginPattern};
use myriad_units::option::{AllowedRate, Count, Size, Span};
use serde::{Deserialize, Deserializer};
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

/// `[channel]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChannelTable {
    /// Bytes of a channel's name.
    pub max_length: Option<Count>,
    /// How long positions are kept, where a namespace does not say.
    pub history_meta_ttl: Option<Span>,
    /// Bytes of history of the process.
    pub history_bytes_max: Option<Size>,
    /// What publications must be, where a namespace does not say.
    #[serde(deserialize_with = "data_format")]
    pub publication_data_format: Option<DataFormat>,
    /// A reload may remove histories, or all namespaces.
    pub reload_may_remove: bool,
    /// What the application is asked about channels.
    pub proxy: ChannelProxyTable,
    /// Options of channels without a namespace.
    pub without_namespace: NamespaceTable,
    /// The namespaces.
    pub namespaces: Vec<NamespaceTable>,
}

/// Where a namespace keeps its histories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// In memory alone.
    Memory,
    /// On the disk, too.
    Disk,
}

/// `[channel.without_namespace]`, or one of `[[channel.namespaces]]`. [`myriad_shard::ChannelOptions`] says what each key
/// means.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_docs, reason = "the keys mean what ChannelOptions says")]
pub struct NamespaceTable {
    /// Only among the namespaces.
    pub name: Option<String>,
    pub presence: bool,
    pub join_leave: bool,
    pub force_push_join_leave: bool,
    #[serde(deserialize_with = "join_leave_by")]
    pub join_leave_by: JoinLeaveBy,
    pub history_size: Count,
    pub history_ttl: Span,
    pub history_meta_ttl: Option<Span>,
    #[serde(deserialize_with = "durability")]
    pub history_durability: Option<Durability>,
    pub force_positioning: bool,
    pub allow_positioning: bool,
    pub force_recovery: bool,
    pub allow_recovery: bool,
    #[serde(deserialize_with = "recovery_mode")]
    pub force_recovery_mode: RecoveryMode,
    pub auto_cache_recover: bool,
    pub allowed_delta_types: Vec<String>,
    pub delta_publish: bool,
    pub allow_tags_filter: bool,
    pub allow_subscribe_for_client: bool,
    pub allow_subscribe_for_anonymous: bool,
    pub allow_publish_for_client: bool,
    pub allow_publish_for_subscriber: bool,
    pub allow_publish_for_anonymous: bool,
    pub allow_presence_for_client: bool,
    pub allow_presence_for_subscriber: bool,
    pub allow_presence_for_anonymous: bool,
    pub allow_history_for_client: bool,
    pub allow_history_for_subscriber: bool,
    pub allow_history_for_anonymous: bool,
    pub allow_stream_end_for_client: bool,
    pub allow_stream_end_for_anonymous: bool,
    pub allow_user_limited_channels: bool,
    pub channel_regex: String,
    #[serde(deserialize_with = "data_format")]
    pub publication_data_format: Option<DataFormat>,
    #[serde(deserialize_with = "slow_consumer")]
    pub slow_consumer: SlowConsumer,
    pub batch_delay: Span,
    pub exclude_sender: bool,
    pub subscribe_proxy_enabled: bool,
    pub subscribe_proxy_name: Option<String>,
    pub publish_proxy_enabled: bool,
    pub publish_proxy_name: Option<String>,
    pub sub_refresh_proxy_enabled: bool,
    pub sub_refresh_proxy_name: Option<String>,
}

impl Default for NamespaceTable {
    fn default() -> Self {
        Self {
            name: None,
            presence: false,
            join_leave: false,
            force_push_join_leave: false,
            join_leave_by: JoinLeaveBy::default(),
            history_size: Count(0),
            history_ttl: Span(Duration::ZERO),
            history_meta_ttl: None,
            history_durability: None,
            force_positioning: false,
            allow_positioning: false,
            force_recovery: false,
            allow_recovery: false,
            force_recovery_mode: RecoveryMode::default(),
            auto_cache_recover: false,
            allowed_delta_types: Vec::new(),
            delta_publish: false,
            allow_tags_filter: false,
            allow_subscribe_for_client: false,
            allow_subscribe_for_anonymous: false,
            allow_publish_for_client: false,
            allow_publish_for_subscriber: false,
            allow_publish_for_anonymous: false,
            allow_presence_for_client: false,
            allow_presence_for_subscriber: false,
            allow_presence_for_anonymous: false,
            allow_history_for_client: false,
            allow_history_for_subscriber: false,
            allow_history_for_anonymous: false,
            allow_stream_end_for_client: false,
            allow_stream_end_for_anonymous: false,
            allow_user_limited_channels: false,
            channel_regex: String::new(),
            publication_data_format: None,
            slow_consumer: SlowConsumer::default(),
            batch_delay: Span(Duration::ZERO),
            exclude_sender: false,
            subscribe_proxy_enabled: false,
            subscribe_proxy_name: None,
            publish_proxy_enabled: false,
            publish_proxy_name: None,
            sub_refresh_proxy_enabled: false,
            sub_refresh_proxy_name: None,
        }
    }
}

/// `[sse]` and the other transports of the Centrifuge protocol.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TransportTable {
    /// Whether it is served.
    pub enabled: Option<bool>,
}

/// `[client]`. [`myriad_shard::ClientOptions`] says what each key means.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientTable {
    /// Channels of one connection.
    pub channel_limit: Option<Count>,
    /// `ping-interval` by its other name.
    pub ping_interval: Option<Span>,
    /// `pong-timeout` by its other name.
    pub pong_timeout: Option<Span>,
    /// Time for the connect command.
    pub stale_close_delay: Option<Span>,
    /// Time to refresh a connection after the end of its token.
    pub expired_close_delay: Option<Span>,
    /// Time to refresh a subscription after the end of its token.
    pub expired_sub_close_delay: Option<Span>,
    /// Publications of one reading of history.
    pub history_max_publication_limit: Option<Count>,
    /// What comparing a publication with one filter of tags may cost.
    pub tags_filter_work_limit: Option<Count>,
    /// Bytes of the names and values of a publication's tags.
    pub tags_bytes_limit: Option<Count>,
    /// Publications of one recovery.
    pub recovery_max_publication_limit: Option<Count>,
    /// No proof, all rights.
    pub insecure: bool,
    /// As `anonymous`, for clients of the Centrifuge protocol.
    pub allow_anonymous_connect_without_token: Option<bool>,
    /// Keys for tokens.
    pub token: TokenTable,
    /// Keys for subscription tokens, if they are others.
    pub subscription_token: TokenTable,
    /// Claims count without a signature: development.
    pub insecure_skip_token_signature_verify: bool,
    /// A connection token must name a user.
    pub disallow_anonymous_connection_tokens: bool,
    /// A trusted proxy's header with the user's id.
    pub user_id_http_header: String,
    /// `max-connections` by its other name.
    pub connection_limit: Option<Count>,
    /// Connections that all clients together may begin.
    pub connection_rate_limit: Option<AllowedRate>,
    /// Connections of one address.
    pub connection_limit_per_address: Option<Count>,
    /// Connections that one address may begin.
    pub connection_rate_limit_per_address: Option<AllowedRate>,
    /// Addresses without these two limits.
    #[serde(deserialize_with = "parsed_list")]
    pub unlimited_addresses: Vec<Network>,
    /// Connections of one user.
    pub user_connection_limit: Option<Count>,
    /// `allowed-origins` by its other name.
    #[serde(deserialize_with = "parsed_option_list")]
    pub allowed_origins: Option<Vec<OriginPattern>>,
    /// How much one client may do.
    pub rate_limits: RateLimitTable,
    /// What the application is asked about clients.
    pub proxy: ClientProxyTable,
    /// A channel for each user.
    pub subscribe_to_user_personal_channel: PersonalChannelTable,
    /// Responses that refuse clients without commands.
    pub connect_code_to_http_response: Vec<HttpRefusalTable>,
}

/// One of `[[client.connect_code_to_http_response]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpRefusalTable {
    /// The code of the close.
    pub code: u16,
    /// The status.
    pub status_code: u16,
    /// The body.
    pub body: Option<String>,
}

/// `[client.rate_limits]`. [`myriad_shard::Limits`] says what each key means.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RateLimitTable {
    /// Commands of one client.
    pub commands: Option<AllowedRate>,
    /// Publish commands of one client.
    pub publishes: Option<AllowedRate>,
    /// Publish commands of all clients to one channel.
    pub publishes_per_channel: Option<AllowedRate>,
    /// Subscribe commands of one client.
    pub subscribes: Option<AllowedRate>,
    /// Requests on one connection that read streams.
    pub reads: Option<AllowedRate>,
    /// Channels that are new to its shard, which one client names.
    pub new_channels: Option<AllowedRate>,
}

/// `[client.subscribe_to_user_personal_channel]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PersonalChannelTable {
    /// Whether users have one.
    pub enabled: bool,
    /// The namespace it is in.
    pub personal_channel_namespace: String,
    /// One connection for each user.
    pub single_connection: bool,
}

/// A list of strings that each stand for a value.
pub(super) fn parsed_list<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    let parse = |text: &String| {
        text.parse()
            .map_err(|error| serde::de::Error::custom(format_args!("`{text}`: {error}")))
    };
    texts.iter().map(parse).collect()
}

/// As [`parsed_list`], where an empty list means something else than none.
pub(super) fn parsed_option_list<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(
    deserializer: D,
) -> Result<Option<Vec<T>>, D::Error> {
    parsed_list(deserializer).map(Some)
}

/// A word that stands for a value.
fn word<'de, D: Deserializer<'de>, T: Copy>(
    deserializer: D,
    words: &[(&'static str, T)],
) -> Result<T, D::Error> {
    let text = String::deserialize(deserializer)?;
    let found = words.iter().find(|(word, _)| *word == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<_> = words
            .iter()
            .map(|(word, _)| format!("\"{word}\""))
            .collect();
        serde::de::Error::custom(format_args!("`{text}`: choose {}", words.join(", ")))
    })
}

fn join_leave_by<'de, D: Deserializer<'de>>(deserializer: D) -> Result<JoinLeaveBy, D::Error> {
    let words = [("client", JoinLeaveBy::Client), ("user", JoinLeaveBy::User)];
    word(deserializer, &words)
}

fn durability<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Durability>, D::Error> {
    let words = [
        ("memory", Some(Durability::Memory)),
        ("disk", Some(Durability::Disk)),
    ];
    word(deserializer, &words)
}

fn recovery_mode<'de, D: Deserializer<'de>>(deserializer: D) -> Result<RecoveryMode, D::Error> {
    let words = [
        ("stream", RecoveryMode::Stream),
        ("cache", RecoveryMode::Cache),
    ];
    word(deserializer, &words)
}

fn data_format<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<DataFormat>, D::Error> {
    let words = [
        ("", None),
        ("json", Some(DataFormat::Json)),
        ("json_object", Some(DataFormat::JsonObject)),
        ("binary", Some(DataFormat::Binary)),
    ];
    word(deserializer, &words)
}

fn slow_consumer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SlowConsumer, D::Error> {
    let words = [
        ("disconnect", SlowConsumer::Disconnect),
        ("drop_oldest", SlowConsumer::DropOldest),
        ("keep_latest", SlowConsumer::KeepLatest),
        ("gap_then_recover", SlowConsumer::GapThenRecover),
    ];
    word(deserializer, &words)
}
