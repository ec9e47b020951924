//! Calls to the application.

use super::{Form, Row, Zero};

const GRPC: &str =
    "only HTTP is spoken: the application needs an endpoint that begins with http:// or https://";

/// A proxy, wherever it stands. In version 5 one set of options, whose names begin with `proxy_`, is for all.
pub(super) const PROXY: &[Row] = &[
    Row::same("", "name", Form::Text, ""),
    Row::same("", "enabled", Form::Flag, "false"),
    Row::ruled("", "endpoint", Form::Secret, "", GRPC),
    Row::same(
        "",
        "timeout",
        Form::Time {
            most_ms: 4_000,
            zero: Zero::Default,
        },
        "\"1s\"",
    ),
    Row::same("http_headers", "http_headers", Form::List, "[]"),
    Row::gone(
        "grpc_metadata",
        "grpc_metadata",
        Form::List,
        "[]",
        "there are no gRPC clients whose metadata could be forwarded",
    ),
    Row::same("", "emulated_headers", Form::List, "[]"),
    Row::same("binary_encoding", "binary_encoding", Form::Flag, "false"),
    Row::same(
        "include_connection_meta",
        "include_connection_meta",
        Form::Flag,
        "false",
    ),
    Row::same(
        "static_http_headers",
        "http.static_headers",
        Form::Map,
        "{}",
    ),
    Row::ruled(
        "http_status_code_transforms",
        "http.status_to_code_transforms",
        Form::Any,
        "[]",
        "a code of zero is one that is not written",
    ),
    Row::ruled(
        "",
        "http.tls",
        Form::Any,
        "{}",
        "server_ca_pem, cert_pem and key_pem, as text or as the path of a file; server_name and insecure_skip_verify are not there",
    ),
    Row::part(
        "grpc_cert_file grpc_credentials_key grpc_credentials_value grpc_compression grpc_tls",
        "grpc",
    ),
];

const BOUNDARY: &str = "the sign : in names of methods cannot be changed";

pub(super) const RPC: &[Row] = &[
    Row::decide(
        "rpc_namespace_boundary",
        "rpc.namespace_boundary",
        Form::Text,
        "\":\"",
        BOUNDARY,
    ),
    Row::same("rpc_ping", "rpc.ping.enabled", Form::Flag, "false"),
    Row::same("rpc_ping_method", "rpc.ping.method", Form::Text, "\"ping\""),
    Row::decide(
        "proxy_subscribe_stream_endpoint",
        "channel.proxy.subscribe_stream.endpoint",
        Form::Secret,
        "",
        "there are no subscription streams: let the application publish by the API",
    ),
    Row::part(
        "proxy_subscribe_stream_timeout",
        "channel.proxy.subscribe_stream",
    ),
    Row::part("", "channel.proxy.map_publish"),
    Row::part("", "channel.proxy.map_remove"),
    Row::part("", "channel.proxy.shared_poll_refresh"),
    Row::part(
        "proxy_state_endpoint proxy_state_timeout",
        "channel.proxy.state",
    ),
    Row::part(
        "proxy_cache_empty_endpoint proxy_cache_empty_timeout",
        "channel.proxy.cache_empty",
    ),
];

pub(super) const RPC_NAMESPACE: &[Row] = &[
    Row::same("", "name", Form::Text, ""),
    Row::ruled(
        "",
        "proxy_enabled",
        Form::Flag,
        "false",
        "needs a proxy that speaks HTTP; without one its methods answer error 108",
    ),
    Row::ruled(
        "rpc_proxy_name",
        "proxy_name",
        Form::Text,
        "\"default\"",
        "needs a proxy that speaks HTTP; without one its methods answer error 108",
    ),
];
