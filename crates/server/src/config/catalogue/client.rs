//! `[client]`.

use super::Form::{Count, Flag, Json, List, Rate, Text, Time};
use super::{Described, Group};

/// `[client]`.
pub(in super::super) const CLIENT: &[Group] = &[
    Group {
        heading: "Who a client is",
        options: &[
            Described::depends(
                "allow_anonymous_connect_without_token",
                Flag,
                "as anonymous",
                "true",
                "Clients may connect without a proof of who they are; /raw asks anonymous only.",
            ),
            Described::new(
                "user_id_http_header",
                Text,
                "",
                "A header of the upgrade request with the user's id, only behind a proxy that always sets or removes it.",
            ),
            Described::new(
                "insecure",
                Flag,
                "false",
                "Every client has every right and needs no proof of who it is; never for production.",
            ),
            Described::new(
                "insecure_skip_token_signature_verify",
                Flag,
                "false",
                "Claims of tokens count without a signature; never for production.",
            ),
            Described::new(
                "disallow_anonymous_connection_tokens",
                Flag,
                "false",
                "A connection token must name a user.",
            ),
            Described::table(
                "token",
                "Keys for tokens of connections, and what they must say.",
            ),
            Described::table(
                "subscription_token",
                "The same for tokens of subscriptions, if they have keys of their own.",
            ),
            Described::table("proxy", "What the application is asked about clients."),
            Described::table(
                "subscribe_to_user_personal_channel",
                "A channel of its own for each user.",
            ),
        ],
    },
    Group {
        heading: "Limits of a client",
        options: &[
            Described::new(
                "channel_limit",
                Count,
                "128",
                "Channels of one connection, 1 to 255; also for /raw.",
            ),
            Described::new(
                "stale_close_delay",
                Time,
                "10s",
                "Time that a client has for its connect command; past it: close 3502.",
            ),
            Described::new(
                "expired_close_delay",
                Time,
                "25s",
                "Time to refresh a connection after the end of its token; past it: close 3005.",
            ),
            Described::new(
                "expired_sub_close_delay",
                Time,
                "25s",
                "Time to refresh a subscription after the end of its token; past it the subscription ends with 2501.",
            ),
            Described::new(
                "history_max_publication_limit",
                Count,
                "300",
                "Publications of one answer to a client that reads history.",
            ),
            Described::new(
                "recovery_max_publication_limit",
                Count,
                "300",
                "Publications read for one recovery; a client that missed more does not recover.",
            ),
            Described::new(
                "tags_filter_work_limit",
                Count,
                "256",
                "Comparisons of one client's filter of tags, 1 for each value and 16 for ct; past it: error 107. 1 to 4096.",
            ),
            Described::new(
                "tags_bytes_limit",
                Count,
                "4096",
                "Bytes of the names and values of one publication's tags; past it: error 107. 1 to 65536.",
            ),
            Described::table("rate_limits", "How much one client may do."),
            Described::depends(
                "ping_interval",
                Time,
                "ping-interval",
                "25s",
                "Another name of ping-interval; a file has one of the two.",
            )
            .fixed(),
            Described::depends(
                "pong_timeout",
                Time,
                "pong-timeout",
                "10s",
                "Another name of pong-timeout; a file has one of the two.",
            )
            .fixed(),
        ],
    },
    Group {
        heading: "Limits on strangers",
        options: &[
            Described::depends(
                "connection_limit",
                Count,
                "max-connections",
                "50k",
                "Another name of max-connections; a file has one of the two.",
            )
            .fixed(),
            Described::new(
                "connection_rate_limit",
                Rate,
                "0",
                "WebSockets that all clients together open; past it: 503.",
            ),
            Described::new(
                "connection_limit_per_address",
                Count,
                "0",
                "Open connections of one address; past it: 429. 0 for no limit.",
            ),
            Described::new(
                "connection_rate_limit_per_address",
                Rate,
                "0",
                "Connections that one address begins; past it: 429.",
            ),
            Described::new(
                "unlimited_addresses",
                List,
                "[]",
                "Addresses and networks without these two limits.",
            ),
            Described::new(
                "connect_code_to_http_response",
                Json,
                "[]",
                "Responses to clients of uni_sse and uni_http_stream that may not connect: tables with the code of the close, status_code (400 to 599) and body, if it is to be another.",
            ),
            Described::new(
                "user_connection_limit",
                Count,
                "0",
                "Connections of one user; past it: close 3504. 0 for no limit.",
            ),
            Described::depends(
                "allowed_origins",
                List,
                "allowed-origins",
                "[\"https://*.example.com\"]",
                "Another name of allowed-origins; a file has one of the two.",
            ),
        ],
    },
];

/// `[client.rate_limits]`.
pub(in super::super) const RATE_LIMITS: &[Group] = &[Group {
    heading: "Past a rate: error 111, and 429 to readers of streams",
    options: &[
        Described::new(
            "commands",
            Rate,
            "0",
            "Commands of one client; whoever goes on is closed with 3013.",
        ),
        Described::new("publishes", Rate, "0", "Publish commands of one client."),
        Described::new(
            "publishes_per_channel",
            Rate,
            "0",
            "Publish commands of all clients to one channel, and each element that they append to it as a stream.",
        ),
        Described::new("subscribes", Rate, "0", "Subscribe commands of one client."),
        Described::new(
            "reads",
            Rate,
            "0",
            "Requests on one connection that read streams: past it 429, and the end of a connection that goes on.",
        ),
        Described::new(
            "new_channels",
            Rate,
            "256/s",
            "Channels that one client names and that nobody has subscribed to where it is connected: made-up names take memory.",
        ),
    ],
}];

/// `[client.subscribe_to_user_personal_channel]`.
pub(in super::super) const PERSONAL_CHANNEL: &[Group] = &[Group {
    heading: "A channel for each user",
    options: &[
        Described::new(
            "enabled",
            Flag,
            "false",
            "Each user that connects is subscribed to a channel of its own: #42 for user 42.",
        ),
        Described::new(
            "personal_channel_namespace",
            Text,
            "",
            "The namespace of these channels: with me it is me:#42.",
        ),
        Described::new(
            "single_connection",
            Flag,
            "false",
            "A new connection of a user ends the older ones with 3504.",
        ),
    ],
}];
