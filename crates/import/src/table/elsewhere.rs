//! What has no place here, and names that are not options of version 6.

use super::{Form, Row, TIME};

pub(super) const ELSEWHERE: &[Row] = &[
    Row::gone(
        "usage_stats_disable",
        "usage_stats.disabled",
        Form::Flag,
        "false",
        "nothing is ever sent to anybody",
    ),
    Row::gone(
        "enable_unreleased_features",
        "enable_unreleased_features",
        Form::Flag,
        "false",
        "there are none",
    ),
    Row::gone(
        "gomaxprocs",
        "",
        Form::Text,
        "\"0\"",
        "write shards: one for each core is the default",
    ),
    Row::part("", "usage_stats"),
    Row::gone(
        "",
        "state.vacated_event_delay",
        TIME,
        "\"0s\"",
        "an option of Centrifugo PRO: webhooks.vacated_delay says how long a channel must be empty",
    ),
];

/// What version 5 says for all proxies at once, and `convert` says for each.
pub(crate) const V5_ALONE: [&str; 19] = [
    "granular_proxy_mode",
    "connect_proxy_name",
    "refresh_proxy_name",
    "rpc_proxy_name",
    "proxy_connect_endpoint",
    "proxy_connect_timeout",
    "proxy_refresh_endpoint",
    "proxy_refresh_timeout",
    "proxy_subscribe_endpoint",
    "proxy_subscribe_timeout",
    "proxy_publish_endpoint",
    "proxy_publish_timeout",
    "proxy_sub_refresh_endpoint",
    "proxy_sub_refresh_timeout",
    "proxy_rpc_endpoint",
    "proxy_rpc_timeout",
    "namespaces",
    "rpc_namespaces",
    "proxies",
];

/// What only Centrifugo PRO has, at the top of a file of either version.
pub(crate) const PRO_KEYS: [&str; 25] = [
    "license",
    "database",
    "use_singleflight",
    "singleflight",
    "brokers",
    "presence_managers",
    "channel_namespace_for_transport_messages_sent",
    "channel_namespace_for_transport_messages_received",
    "cache",
    "clickhouse_analytics",
    "user_tokens_invalidate",
    "user_block",
    "token_revoke",
    "push_notifications",
    "client_command_rate_limit",
    "user_command_rate_limit",
    "redis_user_command_rate_limit",
    "distributed_rate_limit",
    "client_error_limits",
    "user_status",
    "state",
    "state_vacated_event_delay",
    "partitioned_presence",
    "admin_oidc",
    "websocket_compression_prepared_message_cache_size",
];
