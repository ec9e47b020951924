//! Keys that Centrifugo has and this server has not: what to write instead, or why there is nothing. In a file each of them is a
//! mistake, as every unknown key. Among the variables of `--centrifugo-env` one that would change who gets in or what clients see
//! ends the start, and the others are only remarked on.

use super::keys::Table;

/// A key of Centrifugo's, or a table of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Foreign {
    pub(super) key: &'static str,
    /// What to do.
    pub(super) advice: &'static str,
    /// What may not be left out: the keys below this one, empty for itself, and the values that mean the same as leaving it out.
    pub(super) vital: &'static [Vital],
}

type Vital = (&'static str, &'static [&'static str]);

impl Foreign {
    /// A key that may be left out.
    const fn new(key: &'static str, advice: &'static str) -> Self {
        Self {
            key,
            advice,
            vital: &[],
        }
    }

    const fn vital(self, vital: &'static [Vital]) -> Self {
        Self { vital, ..self }
    }
}

/// A switch that is off by default.
const OFF: &[&str] = &["false", "0", "f", "F", "FALSE", "False"];
const NONE: &[&str] = &[];
const IN_MEMORY: &[&str] = &["memory"];
/// Where each transport is, there and here.
const PATHS: &[&str] = &[
    "/connection/websocket",
    "/connection/http_stream",
    "/connection/sse",
    "/connection/uni_websocket",
    "/connection/uni_sse",
    "/connection/uni_http_stream",
];

const NO_REDIS: &str = "there is no Redis here: write broker = \"nats://...\" at the top for a cluster (docs/cluster.md), or leave it out for a node alone, which keeps all in memory";
const NO_MAPS: &str = "there are no map and shared-poll subscriptions here (docs/protocol.md)";
const NO_GRPC: &str = "there is no gRPC here: use the HTTP API or HTTP proxies";
const NO_STREAM_PROXY: &str =
    "there are no subscription streams here: let the application publish by the API";
const SIGNS: &str = "the signs $ : # and , in channel names cannot be changed";
const FIXED_PATH: &str = "paths cannot be changed: let the proxy in front rewrite them";
const BUFFERS: &str =
    "there is nothing to set: buffers are shared by all connections (docs/limits.md)";
const COMPRESSION: &str = "write compression at the top";
const MESSAGE_SIZE: &str = "write message-bytes-max at the top";
const BODY_SIZE: &str = "there is nothing to set: a request to connect is small";
const STATUSES: &str = "write [[client.connect_code_to_http_response]] with code, status_code and body, for both transports";

const TOP: &[Foreign] = &[
    Foreign::new("namespaces", "there is no such key; did you mean [[channel.namespaces]]?"),
    Foreign::new("namespace", "there is no such key; did you mean [[channel.namespaces]]?"),
    Foreign::new(
        "without_namespace",
        "there is no such key; did you mean [channel.without_namespace]?",
    ),
    Foreign::new(
        "proxy",
        "there is no such key; did you mean [client.proxy.connect], [channel.proxy.subscribe], [rpc.proxy] or [[proxies]]?",
    ),
    Foreign::new(
        "http_server",
        "write listen for address and port, and internal-listen for internal_address and internal_port; for TLS write tls-listen, tls-certificate and tls-key (docs/tls.md); HTTP/3 ends at a proxy in front (docs/proxies.md)",
    )
    .vital(&[
        ("tls_enabled", OFF),
        ("tls_autocert_enabled", OFF),
        ("tls_external", OFF),
        ("internal_tls_enabled", OFF),
        ("internal_address", NONE),
        ("internal_port", NONE),
    ]),
    Foreign::new("engine", NO_REDIS).vital(&[("type", IN_MEMORY)]),
    Foreign::new("broker", NO_REDIS).vital(&[("enabled", OFF)]),
    Foreign::new("presence_manager", "members are asked of all nodes, and stored nowhere")
        .vital(&[("enabled", OFF)]),
    Foreign::new("map_broker", NO_MAPS).vital(&[("type", IN_MEMORY)]),
    Foreign::new("controller", "nodes of a cluster talk over NATS (docs/cluster.md)")
        .vital(&[("enabled", OFF)]),
    Foreign::new("shared_poll", NO_MAPS).vital(&[("hmac_secret_key", NONE)]),
    Foreign::new("grpc_api", NO_GRPC).vital(&[("enabled", OFF)]),
    Foreign::new("uni_grpc", NO_GRPC).vital(&[("enabled", OFF)]),
    Foreign::new(
        "consumers",
        "there are no consumers here: let the application call the API (docs/api.md)",
    )
    .vital(&[("", &["[]"])]),
    Foreign::new("webtransport", "there is no WebTransport here").vital(&[("enabled", OFF)]),
    Foreign::new(
        "websocket",
        "/connection/websocket is always there; write compression and message-bytes-max at the top instead of its options",
    )
    .vital(&[("disabled", OFF), ("handler_prefix", PATHS)]),
    Foreign::new("emulation", "POST /emulation is there wherever http_stream or sse is")
        .vital(&[("handler_prefix", &["/emulation"])]),
    Foreign::new("admin", "there is no web interface: docs/api.md and docs/metrics.md have what it shows"),
    Foreign::new("health", "GET /healthz is always there"),
    Foreign::new("prometheus", "GET /metrics is always there (docs/metrics.md)"),
    Foreign::new("graphite", "read GET /metrics (docs/metrics.md)"),
    Foreign::new("opentelemetry", "there are no traces here: read GET /metrics, and POST /api/trace for one client"),
    Foreign::new("swagger", "docs/openapi.json describes the API"),
    Foreign::new("debug", "there are no profiles here: log = \"debug\" says what happens"),
    Foreign::new("init", "there is nothing like it here"),
    Foreign::new("usage_stats", "nothing is ever sent to anybody"),
    Foreign::new("node", "a node chooses its name itself"),
    Foreign::new("shutdown", "write drain at the top instead of its timeout"),
    Foreign::new("pid_file", "there is none: let systemd or the container follow the process"),
    Foreign::new("enable_unreleased_features", "there are none here").vital(&[("", OFF)]),
    // Ours is one text, and Centrifugo's a table.
    Foreign::new("log", "write log = \"info\", a text; the log goes to stderr"),
];

const CLIENT: &[Foreign] = &[
    Foreign::new(
        "queue_max_size",
        "write outbound-bytes-max at the top of the file instead",
    ),
    Foreign::new(
        "presence_update_interval",
        "members are asked for, and stored nowhere: nothing is updated",
    ),
    Foreign::new(
        "concurrency",
        "there is nothing to set: commands of a client take effect in their order",
    ),
    Foreign::new(
        "channel_position_check_delay",
        "one place gives out the positions of a channel, so nothing has to be checked",
    ),
    Foreign::new(
        "channel_position_max_time_lag",
        "one place gives out the positions of a channel, so nothing has to be checked",
    ),
    Foreign::new(
        "connect_include_server_time",
        "clients are not told the time here",
    ),
    Foreign::new(
        "connect_code_to_unidirectional_disconnect",
        "there is nothing to set: docs/protocol.md says with which codes such a connection ends",
    ),
];

const CHANNEL: &[Foreign] = &[
    Foreign::new("private_prefix", SIGNS).vital(&[("", &["$"])]),
    Foreign::new("namespace_boundary", SIGNS).vital(&[("", &[":"])]),
    Foreign::new("user_boundary", SIGNS).vital(&[("", &["#"])]),
    Foreign::new("user_separator", SIGNS).vital(&[("", &[","])]),
];

const CHANNEL_PROXY: &[Foreign] = &[
    Foreign::new("subscribe_stream", NO_STREAM_PROXY).vital(&[("endpoint", NONE)]),
    Foreign::new("map_publish", NO_MAPS).vital(&[("endpoint", NONE)]),
    Foreign::new("map_remove", NO_MAPS).vital(&[("endpoint", NONE)]),
    Foreign::new("shared_poll_refresh", NO_MAPS).vital(&[("endpoint", NONE)]),
];

const NAMESPACE: &[Foreign] = &[
    Foreign::new("subscription_type", NO_MAPS).vital(&[("", &["stream"])]),
    Foreign::new("map_clients_presence_channel_prefix", NO_MAPS).vital(&[("", NONE)]),
    Foreign::new("map_users_presence_channel_prefix", NO_MAPS).vital(&[("", NONE)]),
    Foreign::new("subscribe_stream_proxy_enabled", NO_STREAM_PROXY).vital(&[("", OFF)]),
    Foreign::new("subscribe_stream_proxy_name", NO_STREAM_PROXY),
    Foreign::new("subscribe_stream_proxy_bidirectional", NO_STREAM_PROXY),
    // Behind those whose names begin alike: the first one takes a variable.
    Foreign::new("map", NO_MAPS).vital(&[
        ("publish_proxy_enabled", OFF),
        ("remove_proxy_enabled", OFF),
    ]),
    Foreign::new("shared_poll", NO_MAPS).vital(&[("publish_enabled", OFF)]),
];

const TOKEN: &[Foreign] = &[Foreign::new(
    "insecure_skip_jwks_endpoint_safety_check",
    "there is no such check to skip: docs/tokens.md says which endpoints are asked",
)];

const GRPC_OF_PROXY: [Foreign; 2] = [
    Foreign::new("grpc", "only HTTP is spoken").vital(&[("tls_enabled", OFF)]),
    Foreign::new("grpc_metadata", "only HTTP is spoken: write http_headers"),
];
const SWITCHED_PROXY: &[Foreign] = &[
    GRPC_OF_PROXY[0],
    GRPC_OF_PROXY[1],
    Foreign::new("name", "only [[proxies]] have names"),
];
const PROXY: &[Foreign] = &[
    GRPC_OF_PROXY[0],
    GRPC_OF_PROXY[1],
    Foreign::new("name", "only [[proxies]] have names"),
    OF_NAMESPACES,
];
const NAMED_PROXY: &[Foreign] = &[GRPC_OF_PROXY[0], GRPC_OF_PROXY[1], OF_NAMESPACES];
const OF_NAMESPACES: Foreign = Foreign::new(
    "enabled",
    "namespaces say whether they use this proxy: subscribe_proxy_enabled and so on, or proxy_enabled for rpc",
);

const RPC: &[Foreign] = &[Foreign::new("namespace_boundary", SIGNS).vital(&[("", &[":"])])];

const HTTP_API: &[Foreign] = &[
    Foreign::new(
        "disabled",
        "the API is always there: it needs a key, and internal-listen takes it from the clients' address",
    )
    .vital(&[("", OFF)]),
    Foreign::new("external", "write internal-listen to have the API at an address of its own"),
];

const TRANSPORT: &[Foreign] = &[
    Foreign::new("handler_prefix", FIXED_PATH).vital(&[("", PATHS)]),
    Foreign::new("max_request_body_size", BODY_SIZE),
    Foreign::new("connect_code_to_http_response", STATUSES),
    Foreign::new("compression", COMPRESSION),
    Foreign::new("compression_min_size", COMPRESSION),
    Foreign::new("compression_level", COMPRESSION),
    Foreign::new("read_buffer_size", BUFFERS),
    Foreign::new("use_write_buffer_pool", BUFFERS),
    Foreign::new("write_buffer_size", BUFFERS),
    Foreign::new("write_timeout", "write stall-timeout at the top"),
    Foreign::new("message_size_limit", MESSAGE_SIZE),
    Foreign::new("decompressed_message_size_limit", MESSAGE_SIZE),
    Foreign::new("disable_closing_handshake", "a close frame is always sent"),
    Foreign::new(
        "disable_disconnect_push",
        "the last push always says why the connection ends",
    ),
    Foreign::new("join_push_messages", "each push is a message of its own"),
];

/// The keys of Centrifugo's that a table here has not.
pub(super) fn foreign(table: Table) -> &'static [Foreign] {
    match table {
        Table::Top => TOP,
        Table::Client => CLIENT,
        Table::Channel => CHANNEL,
        Table::ChannelProxy => CHANNEL_PROXY,
        Table::Namespace => NAMESPACE,
        Table::Token => TOKEN,
        Table::SwitchedProxy => SWITCHED_PROXY,
        Table::Proxy => PROXY,
        Table::NamedProxy => NAMED_PROXY,
        Table::Rpc => RPC,
        Table::HttpApi => HTTP_API,
        Table::Transport => TRANSPORT,
        _ => &[],
    }
}

/// What to say about a key of Centrifugo's.
pub(super) fn advice(table: Table, key: &str) -> Option<&'static str> {
    let mut known = foreign(table).iter();
    known
        .find(|foreign| foreign.key == key)
        .map(|foreign| foreign.advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_foreign_key_is_one_of_ours_but_for_another_form() {
        for table in [
            Table::Top,
            Table::Client,
            Table::Channel,
            Table::ChannelProxy,
            Table::Namespace,
            Table::Token,
            Table::SwitchedProxy,
            Table::Proxy,
            Table::NamedProxy,
            Table::Rpc,
            Table::HttpApi,
            Table::Transport,
        ] {
            for foreign in foreign(table) {
                // Texts here, and tables there.
                let has_other_form = ["log", "broker"].contains(&foreign.key);
                let is_ours = table.keys().contains(&foreign.key);
                assert!(!is_ours || has_other_form, "{}", foreign.key);
            }
        }
    }
}
