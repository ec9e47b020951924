//! `[client.proxy]`, `[channel.proxy]`, `[rpc]` and `[[proxies]]`.

use super::Form::{Count, Flag, Json, List, Size, Text, Time};
use super::{Described, Group};

/// `[client.proxy]`.
pub(in super::super) const CLIENT_PROXY: &[Group] = &[Group {
    heading: "What the application is asked about clients",
    options: &[
        Described::table("connect", "Who a client without a token is."),
        Described::table("refresh", "Whether a connection that expires goes on."),
    ],
}];

/// `[channel.proxy]`.
pub(in super::super) const CHANNEL_PROXY: &[Group] = &[Group {
    heading: "What the application is asked about channels, where namespaces turn it on",
    options: &[
        Described::table("subscribe", "Whether a client may subscribe."),
        Described::table("publish", "Whether a client may publish, and what."),
        Described::table(
            "sub_refresh",
            "Whether a subscription that expires goes on.",
        ),
    ],
}];

/// Where and how the application is called.
const CALLS: Group = Group {
    heading: "Calls",
    options: &[
        Described::new(
            "endpoint",
            Text,
            "",
            "The address of the application, such as http://127.0.0.1:3000/, or one with https.",
        )
        .secret(),
        Described::new(
            "timeout",
            Time,
            "1s",
            "Time for an answer, at most 4s; a call waits as long for a place before.",
        ),
        Described::new(
            "calls_max",
            Count,
            "256",
            "Calls under way; four times as many wait for a place, and of connects 16,384.",
        ),
        Described::new(
            "answer_bytes_max",
            Size,
            "256KiB",
            "Bytes of an answer, 1KiB to 1MiB.",
        ),
        Described::new(
            "http_headers",
            List,
            "[]",
            "Headers of the client's upgrade request that are forwarded.",
        ),
        Described::new(
            "emulated_headers",
            List,
            "[]",
            "Headers in the client's connect command that are forwarded; those of its request win.",
        ),
        Described::new(
            "address_header",
            Text,
            "",
            "A header of calls with the client's address, such as X-Real-IP.",
        ),
        Described::new(
            "binary_encoding",
            Flag,
            "false",
            "Data of clients is told in base64, so that it may be bytes.",
        ),
        Described::new(
            "include_connection_meta",
            Flag,
            "false",
            "Calls tell the meta that the connect answered.",
        ),
        Described::table("http", "Headers of calls, and what statuses mean."),
    ],
};

/// `[client.proxy.connect]` and `[client.proxy.refresh]`.
pub(in super::super) const SWITCHED_PROXY: &[Group] = &[
    Group {
        heading: "Switch",
        options: &[Described::new(
            "enabled",
            Flag,
            "false",
            "The application is asked; needs endpoint.",
        )],
    },
    CALLS,
];

/// `[channel.proxy.subscribe]`, `publish` and `sub_refresh`, and `[rpc.proxy]`.
pub(in super::super) const PROXY: &[Group] = &[CALLS];

/// `[[proxies]]`.
pub(in super::super) const NAMED_PROXY: &[Group] = &[
    Group {
        heading: "Name",
        options: &[Described::depends(
            "name",
            Text,
            "none: each of these proxies needs one",
            "strict",
            "What namespaces call it: 2 or more of letters, digits, -, _ and .",
        )],
    },
    CALLS,
];

/// `http` of a proxy.
pub(in super::super) const PROXY_HTTP: &[Group] = &[Group {
    heading: "HTTP",
    options: &[
        Described::new(
            "static_headers",
            Json,
            "{}",
            "Headers of every call, such as { Authorization = \"Bearer a-secret\" }; they win over forwarded ones.",
        )
        .secret(),
        Described::new(
            "status_to_code_transforms",
            Json,
            "[]",
            "What a status other than 200 means: a list of { status_code, to_error or to_disconnect }.",
        ),
        Described::new(
            "tls",
            Json,
            "{}",
            "Certificates, with https: server_ca_pem_file, cert_pem_file and key_pem_file, or the same without _file and with the PEM text.",
        )
        .secret(),
    ],
}];

/// `[rpc]`.
pub(in super::super) const RPC: &[Group] = &[Group {
    heading: "Methods that clients call",
    options: &[
        Described::table("proxy", "The application that carries out methods."),
        Described::table("without_namespace", "Methods without a namespace."),
        Described::table(
            "namespaces",
            "Namespaces of methods: orders:list is in the namespace orders.",
        ),
        Described::table("ping", "A method that answers nothing and asks nobody."),
    ],
}];

/// `[rpc.without_namespace]` and `[[rpc.namespaces]]`.
pub(in super::super) const RPC_NAMESPACE: &[Group] = &[Group {
    heading: "Who carries out its methods",
    options: &[
        Described::depends(
            "name",
            Text,
            "none: each namespace needs one",
            "orders",
            "The text before the first colon of the names of its methods: 2 or more of letters, digits, -, _ and .",
        )
        .not_of_first(),
        Described::new(
            "proxy_enabled",
            Flag,
            "false",
            "The application is called; otherwise: error 108.",
        ),
        Described::new(
            "proxy_name",
            Text,
            "default",
            "One of [[proxies]], or default for [rpc.proxy].",
        ),
    ],
}];

/// `[rpc.ping]`.
pub(in super::super) const RPC_PING: &[Group] = &[Group {
    heading: "A method for measuring the way to here",
    options: &[
        Described::new("enabled", Flag, "false", "There is such a method."),
        Described::new("method", Text, "ping", "Its name."),
    ],
}];
