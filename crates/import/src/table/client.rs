//! `client`: who may connect, and how much each may take.

use super::{COUNT, DAYS_30_MS, Form, How, Row, SIZE, TIME, Zero};

const ONE_PLACE: &str = "one place gives out the positions of a channel, so nothing has to be compared from time to time";

const LIMIT: Form = Form::Count {
    least: 1,
    most: u32::MAX as u64,
    zero: Zero::NoLimit,
};

const QUEUE: Form = Form::Size {
    most: 2 << 30,
    zero: Zero::Default,
};

const DELAY: Form = Form::Time {
    most_ms: DAYS_30_MS,
    zero: Zero::Default,
};

pub(super) const CLIENT: &[Row] = &[
    Row::ruled(
        "allowed_origins",
        "client.allowed_origins",
        Form::List,
        "[]",
        "with an empty list no page may connect there; here those of the server's own host may",
    ),
    Row::same(
        "allow_anonymous_connect_without_token",
        "client.allow_anonymous_connect_without_token",
        Form::Flag,
        "false",
    ),
    Row::same(
        "disallow_anonymous_connection_tokens",
        "client.disallow_anonymous_connection_tokens",
        Form::Flag,
        "false",
    ),
    Row::same("client_insecure", "client.insecure", Form::Flag, "false"),
    Row::same(
        "client_insecure_skip_token_signature_verify",
        "client.insecure_skip_token_signature_verify",
        Form::Flag,
        "false",
    ),
    Row::same(
        "client_user_id_http_header",
        "client.user_id_http_header",
        Form::Text,
        "",
    ),
    Row::ruled(
        "ping_interval",
        "client.ping_interval",
        TIME,
        "\"25s\"",
        "less than zero becomes 0: no pings",
    ),
    Row::ruled(
        "pong_timeout",
        "client.pong_timeout",
        TIME,
        "\"8s\"",
        "8s is the default there, and 10s here; so it is written",
    ),
    Row::same(
        "client_stale_close_delay",
        "client.stale_close_delay",
        DELAY,
        "\"10s\"",
    ),
    Row::same(
        "client_expired_close_delay",
        "client.expired_close_delay",
        DELAY,
        "\"25s\"",
    ),
    Row::same(
        "client_expired_sub_close_delay",
        "client.expired_sub_close_delay",
        DELAY,
        "\"25s\"",
    ),
    Row::same(
        "client_channel_limit",
        "client.channel_limit",
        Form::Count {
            least: 1,
            most: 255,
            zero: Zero::Default,
        },
        "128",
    ),
    Row::new(
        "client_queue_max_size",
        "client.queue_max_size",
        "outbound-bytes-max",
        QUEUE,
        "1048576",
        How::Same,
    ),
    Row::same(
        "client_history_max_publication_limit",
        "client.history_max_publication_limit",
        LIMIT,
        "300",
    ),
    Row::same(
        "client_recovery_max_publication_limit",
        "client.recovery_max_publication_limit",
        LIMIT,
        "300",
    ),
    Row::ruled(
        "client_connection_limit",
        "client.connection_limit",
        COUNT,
        "0",
        "0 is no limit there, and here what memory allows; past it clients get 503",
    ),
    Row::same(
        "client_connection_rate_limit",
        "client.connection_rate_limit",
        COUNT,
        "0",
    ),
    Row::same(
        "client_user_connection_limit",
        "client.user_connection_limit",
        COUNT,
        "0",
    ),
    Row::same(
        "user_subscribe_to_personal",
        "client.subscribe_to_user_personal_channel.enabled",
        Form::Flag,
        "false",
    ),
    Row::same(
        "user_personal_channel_namespace",
        "client.subscribe_to_user_personal_channel.personal_channel_namespace",
        Form::Text,
        "",
    ),
    Row::new(
        "user_personal_single_connection",
        "client.subscribe_to_user_personal_channel.single_connection",
        "client.subscribe_to_user_personal_channel.single_connection",
        Form::Flag,
        "false",
        How::Differs(
            "the older connection ends at once, by itself; the namespace needs no presence for it",
        ),
    ),
    Row::gone(
        "client_presence_update_interval",
        "client.presence_update_interval",
        TIME,
        "\"27s\"",
        "members are asked for and stored nowhere: nothing is updated",
    ),
    Row::gone(
        "client_concurrency",
        "client.concurrency",
        COUNT,
        "0",
        "commands of a client always take effect in their order",
    ),
    Row::gone(
        "client_channel_position_check_delay",
        "client.channel_position_check_delay",
        TIME,
        "\"40s\"",
        ONE_PLACE,
    ),
    Row::gone(
        "client_channel_position_max_time_lag",
        "client.channel_position_max_time_lag",
        TIME,
        "\"0s\"",
        ONE_PLACE,
    ),
    Row::gone(
        "client_connect_include_server_time",
        "client.connect_include_server_time",
        Form::Flag,
        "false",
        "clients are not told the time",
    ),
    Row::gone(
        "client_connect_code_to_unidirectional_disconnect",
        "client.connect_code_to_unidirectional_disconnect.enabled",
        Form::Flag,
        "false",
        "docs/protocol.md says with which codes such a connection ends",
    ),
    Row::part("", "client.connect_code_to_unidirectional_disconnect"),
    Row::same(
        "separate_subscription_token_config",
        "client.subscription_token.enabled",
        Form::Flag,
        "false",
    ),
    Row::gone(
        "",
        "client.rate_limit",
        Form::Any,
        "",
        "an option of Centrifugo PRO: write [client.rate_limits] (docs/limits.md)",
    ),
    Row::gone(
        "client_write_delay",
        "client.write_delay",
        TIME,
        "\"0s\"",
        "an option of Centrifugo PRO: batch_delay of a namespace sends publications together",
    ),
    Row::gone(
        "client_reply_without_queue",
        "client.reply_without_queue",
        Form::Flag,
        "false",
        "an option of Centrifugo PRO, for which there is nothing to set",
    ),
    Row::gone(
        "client_max_messages_in_frame",
        "client.max_messages_in_frame",
        Form::Text,
        "\"0\"",
        "an option of Centrifugo PRO, for which there is nothing to set",
    ),
    Row::gone(
        "client_queue_initial_cap",
        "client.queue_initial_cap",
        SIZE,
        "0",
        "an option of Centrifugo PRO, for which there is nothing to set",
    ),
];

/// In version 5 their names begin with `token_` and `subscription_token_`.
pub(super) const TOKEN: &[Row] = &[
    Row::same("hmac_secret_key", "hmac_secret_key", Form::Secret, ""),
    Row::same("", "hmac_previous_secret_key", Form::Secret, ""),
    Row::same(
        "",
        "hmac_previous_secret_key_valid_until",
        Form::Count {
            least: 0,
            most: i64::MAX as u64,
            zero: Zero::Zero,
        },
        "0",
    ),
    Row::same("rsa_public_key", "rsa_public_key", Form::Text, ""),
    Row::same("ecdsa_public_key", "ecdsa_public_key", Form::Text, ""),
    Row::same(
        "jwks_public_endpoint",
        "jwks_public_endpoint",
        Form::Secret,
        "",
    ),
    Row::same("audience", "audience", Form::Text, ""),
    Row::same("audience_regex", "audience_regex", Form::Text, ""),
    Row::same("issuer", "issuer", Form::Text, ""),
    Row::same("issuer_regex", "issuer_regex", Form::Text, ""),
    Row::same("user_id_claim", "user_id_claim", Form::Text, ""),
    Row::gone(
        "",
        "insecure_skip_jwks_endpoint_safety_check",
        Form::Flag,
        "false",
        "there is no such check to skip: docs/tokens.md says which endpoints are asked",
    ),
];
