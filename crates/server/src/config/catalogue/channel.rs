//! `[channel]` and the options of a namespace.

use super::Form::{Count, Flag, List, Size, Text, Time, Word};
use super::{Described, Group};

const DATA_FORMATS: super::Form = Word(&["", "json", "json_object", "binary"]);

const PROXY_NAME: &str = "One of [[proxies]], or default for the one of [channel.proxy].";

/// `[channel]`.
pub(in super::super) const CHANNEL: &[Group] = &[Group {
    heading: "Channels",
    options: &[
        Described::new(
            "max_length",
            Count,
            "255",
            "Bytes of a channel's name, 1 to 255.",
        ),
        Described::new(
            "history_meta_ttl",
            Time,
            "720h",
            "How long a channel's position is kept after its last use, where its namespace does not say.",
        ),
        Described::depends(
            "history_bytes_max",
            Size,
            "an eighth of memory, 4MiB to 256MiB",
            "256MiB",
            "Bytes of history, all channels together; past it the oldest publications go.",
        )
        .fixed(),
        Described::new(
            "publication_data_format",
            DATA_FORMATS,
            "",
            "What publications must be, where a namespace does not say.",
        ),
        Described::new(
            "reload_may_remove",
            Flag,
            "false",
            "Lets a reload to this file delete histories or remove all namespaces. Without it such a reload is refused.",
        ),
        Described::table("proxy", "What the application is asked about channels."),
        Described::table(
            "without_namespace",
            "Options of channels without a namespace.",
        ),
        Described::table(
            "namespaces",
            "Namespaces: a channel chat:1 is in the namespace chat.",
        ),
    ],
}];

/// `[channel.without_namespace]` and `[[channel.namespaces]]`.
pub(in super::super) const NAMESPACE: &[Group] = &[
    Group {
        heading: "Name",
        options: &[Described::depends(
            "name",
            Text,
            "none: each namespace needs one",
            "chat",
            "The text before the first colon of the names of its channels: 2 or more of letters, digits, -, _ and .",
        )
        .not_of_first()],
    },
    Group {
        heading: "Who may do what",
        options: &[
            Described::new(
                "allow_subscribe_for_client",
                Flag,
                "false",
                "Clients may subscribe, and read streams.",
            ),
            Described::new(
                "allow_subscribe_for_anonymous",
                Flag,
                "false",
                "Anonymous clients may subscribe, and read streams; needs allow_subscribe_for_client. It binds /raw, too.",
            ),
            Described::new(
                "allow_publish_for_client",
                Flag,
                "false",
                "Clients may publish.",
            ),
            Described::new(
                "allow_publish_for_subscriber",
                Flag,
                "false",
                "Subscribers of the channel may publish.",
            ),
            Described::new(
                "allow_publish_for_anonymous",
                Flag,
                "false",
                "Anonymous clients may publish; needs one of the two above.",
            ),
            Described::new(
                "allow_presence_for_client",
                Flag,
                "false",
                "Clients may ask who is subscribed.",
            ),
            Described::new(
                "allow_presence_for_subscriber",
                Flag,
                "false",
                "Subscribers of the channel may ask who is subscribed.",
            ),
            Described::new(
                "allow_presence_for_anonymous",
                Flag,
                "false",
                "Anonymous clients may ask who is subscribed; needs one of the two above.",
            ),
            Described::new(
                "allow_history_for_client",
                Flag,
                "false",
                "Clients may read history.",
            ),
            Described::new(
                "allow_history_for_subscriber",
                Flag,
                "false",
                "Subscribers of the channel may read history.",
            ),
            Described::new(
                "allow_history_for_anonymous",
                Flag,
                "false",
                "Anonymous clients may read history; needs one of the two above.",
            ),
            Described::new(
                "allow_stream_end_for_client",
                Flag,
                "false",
                "Clients may close and delete streams, and give them a time to live.",
            ),
            Described::new(
                "allow_stream_end_for_anonymous",
                Flag,
                "false",
                "Anonymous clients may close and delete streams, and give them a time to live; needs allow_stream_end_for_client.",
            ),
            Described::new(
                "allow_user_limited_channels",
                Flag,
                "false",
                "Only the users that a name lists may subscribe: 7 and 42 in room#7,42.",
            ),
            Described::new(
                "channel_regex",
                Text,
                "",
                "What a name must match behind its namespace; without it, names are ASCII.",
            ),
        ],
    },
    Group {
        heading: "Members",
        options: &[
            Described::new("presence", Flag, "false", "Members can be asked for."),
            Described::new(
                "join_leave",
                Flag,
                "false",
                "Joins and leaves are announced to subscribers who wish it.",
            ),
            Described::new(
                "force_push_join_leave",
                Flag,
                "false",
                "Joins and leaves are announced to all subscribers; needs join_leave.",
            ),
            Described::new(
                "join_leave_by",
                Word(&["client", "user"]),
                "client",
                "Whose joins are announced: every client's, or the first client's of a user and the leave of the last.",
            ),
        ],
    },
    Group {
        heading: "History and recovery",
        options: &[
            Described::new(
                "history_size",
                Count,
                "0",
                "Publications that a channel keeps; history needs history_ttl too.",
            ),
            Described::new(
                "history_ttl",
                Time,
                "0",
                "How long a channel keeps a publication, at most 720h.",
            ),
            Described::depends(
                "history_meta_ttl",
                Time,
                "that of [channel]",
                "720h",
                "How long the channel's position is kept after its last use; at least history_ttl, at most 720h.",
            ),
            Described::depends(
                "history_durability",
                Word(&["memory", "disk"]),
                "disk with history-dir, memory without",
                "disk",
                "Where publications are kept: on the disk they outlive the server, and nobody sees one before it is there.",
            ),
            Described::new(
                "force_positioning",
                Flag,
                "false",
                "All subscribers have positions.",
            ),
            Described::new(
                "allow_positioning",
                Flag,
                "false",
                "Subscribers who wish it have positions.",
            ),
            Described::new(
                "force_recovery",
                Flag,
                "false",
                "All subscribers recover what they missed; needs history.",
            ),
            Described::new(
                "allow_recovery",
                Flag,
                "false",
                "Subscribers who wish it recover what they missed.",
            ),
            Described::new(
                "force_recovery_mode",
                Word(&["stream", "cache"]),
                "stream",
                "What is recovered: everything that was missed, or the newest publication.",
            ),
            Described::new(
                "auto_cache_recover",
                Flag,
                "false",
                "Recovers for subscribers that do not ask, too; needs force_recovery and \"cache\".",
            ),
        ],
    },
    Group {
        heading: "Publications",
        options: &[
            Described::new(
                "publication_data_format",
                DATA_FORMATS,
                "",
                "What publications must be: \"\" is anything but nothing, binary anything at all.",
            ),
            Described::new(
                "allowed_delta_types",
                List,
                "[]",
                "[\"fossil\"]: subscribers may ask for deltas; needs history.",
            ),
            Described::new(
                "delta_publish",
                Flag,
                "false",
                "Every publication is offered as a delta; needs allowed_delta_types.",
            ),
            Described::new(
                "allow_tags_filter",
                Flag,
                "false",
                "Subscribers may filter publications by tags.",
            ),
            Described::new(
                "slow_consumer",
                Word(&[
                    "disconnect",
                    "drop_oldest",
                    "keep_latest",
                    "gap_then_recover",
                ]),
                "disconnect",
                "What happens to a subscriber whose queue is over outbound-bytes-max.",
            ),
            Described::new(
                "batch_delay",
                Time,
                "0",
                "Publications of so much time leave together, as one frame; at most 10s.",
            ),
            Described::new(
                "exclude_sender",
                Flag,
                "false",
                "A client does not get its own publications as they happen.",
            ),
        ],
    },
    Group {
        heading: "What the application decides",
        options: &[
            Described::new(
                "subscribe_proxy_enabled",
                Flag,
                "false",
                "It is asked whether a client without a token may subscribe.",
            ),
            Described::new("subscribe_proxy_name", Text, "default", PROXY_NAME),
            Described::new(
                "publish_proxy_enabled",
                Flag,
                "false",
                "It is asked whether a client may publish; allow_publish_... do not matter then.",
            ),
            Described::new("publish_proxy_name", Text, "default", PROXY_NAME),
            Described::new(
                "sub_refresh_proxy_enabled",
                Flag,
                "false",
                "It is asked whether a subscription that expires goes on.",
            ),
            Described::new("sub_refresh_proxy_name", Text, "default", PROXY_NAME),
        ],
    },
];
