//! Options at the top of the file, each of which is a flag too, and the tables below them.

use super::Form::{Address, Count, Flag, Json, List, Size, Text, Time, TimeRange, Word};
use super::{Described, Group};

/// The top of the file.
pub(in super::super) const SERVER: &[Group] = &[
    Group {
        heading: "Addresses and threads",
        options: &[
            Described::new(
                "listen",
                Address,
                "127.0.0.1:8000",
                "Where clients connect. 8000 is a port of loopback, :8000 one of every address, port 0 any that is free.",
            )
            .fixed(),
            Described::depends(
                "internal-listen",
                Address,
                "none: all is at one address",
                "127.0.0.1:8001",
                "A second address for the API, health and metrics, instead of the first one. It has no TLS: keys of the API go there in clear.",
            )
            .fixed(),
            Described::depends(
                "tls-listen",
                Address,
                "none: no TLS; :443 with tls-acme",
                ":8443",
                "An address at which clients speak TLS, beside listen; docs/tls.md.",
            )
            .fixed(),
            Described::depends(
                "tls-certificate",
                Text,
                "none",
                "/etc/myriad/tls/fullchain.pem",
                "A file with our certificate and those that sign it (PEM). It is read again when it changes.",
            ),
            Described::depends(
                "tls-key",
                Text,
                "none",
                "/etc/myriad/tls/privkey.pem",
                "A file with the private key (PEM) of tls-certificate.",
            ),
            Described::depends(
                "tls-client-ca",
                Text,
                "none",
                "/etc/myriad/tls/clients.pem",
                "A file with the certificates (PEM) that sign those of clients.",
            ),
            Described::depends(
                "tls-client-auth",
                Word(&["none", "optional", "required"]),
                "required with tls-client-ca, and otherwise none",
                "optional",
                "Whether clients have to show a certificate that tls-client-ca has signed.",
            ),
            Described::new(
                "tls-client-user",
                Word(&["none", "common-name", "dns", "email", "uri"]),
                "none",
                "Which name in a client's certificate is its user: the common name of its subject, or the first DNS name, e-mail address or URI of its subject alternative names.",
            ),
            Described::new(
                "tls-min-version",
                Word(&["1.2", "1.3"]),
                "1.2",
                "The oldest version of TLS that clients may speak. A connection with 1.2 costs some 3.5 KB more.",
            ),
            Described::depends(
                "tls-ticket-keys",
                Text,
                "none: each server makes its own, and another pair every six hours",
                "/etc/myriad/tls/tickets",
                "A file with keys of session tickets, so that clients resume at any node: 32 bytes in base64 a line; the first line makes tickets.",
            ),
            Described::new(
                "tls-acme",
                List,
                "[]",
                "Names to get a certificate for from an authority (ACME), such as push.example.com. One certificate has all of them.",
            )
            .fixed(),
            Described::new(
                "tls-acme-accept-terms",
                Flag,
                "false",
                "Whether you accept the terms of the authority. It makes no certificate otherwise.",
            )
            .fixed(),
            Described::depends(
                "tls-acme-email",
                Text,
                "none",
                "admin@example.com",
                "Where the authority may write to.",
            )
            .fixed(),
            Described::new(
                "tls-acme-directory",
                Text,
                "letsencrypt",
                "The authority: letsencrypt, letsencrypt-staging (for trials: no client trusts it), or the address of a directory.",
            )
            .fixed(),
            Described::depends(
                "tls-acme-ca",
                Text,
                "those that the machine trusts",
                "/etc/myriad/tls/authority.pem",
                "A file with the only CAs (PEM) that may sign for the directory.",
            )
            .fixed(),
            Described::new(
                "tls-acme-cache",
                Text,
                "/var/lib/myriad/acme",
                "A folder for the account and the certificate. Only the server's user may read it.",
            )
            .fixed(),
            Described::depends(
                "tls-acme-http",
                Address,
                "none: the authority is answered at tls-listen",
                ":80",
                "An address for requests of the authority without TLS (HTTP-01). It asks at port 80 of each name.",
            )
            .fixed(),
            Described::new(
                "driver",
                Word(&["auto", "io_uring", "epoll"]),
                "auto",
                "How to drive sockets. auto takes io_uring where the kernel allows it, and epoll otherwise.",
            )
            .fixed(),
            Described::depends(
                "shards",
                Count,
                "one per core, more where descriptor tables are small",
                "2",
                "Shards (threads) to run.",
            )
            .fixed(),
            Described::new(
                "drain",
                Time,
                "10s",
                "Time over which connections are closed when the server stops.",
            )
            .fixed(),
        ],
    },
    Group {
        heading: "Who gets in",
        options: &[
            Described::new(
                "dev",
                Flag,
                "false",
                "For development: open API, anonymous clients, and /echo.",
            )
            .fixed(),
            Described::depends(
                "anonymous",
                Flag,
                "as dev",
                "true",
                "Accepts clients without proof of who they are.",
            ),
            Described::depends(
                "allowed-origins",
                List,
                "none: pages of the server's own host",
                "[\"https://*.example.com\"]",
                "Web pages of other hosts, apps and extensions that may connect; * lets every page, with its visitor's cookies.",
            ),
            Described::new(
                "public-metrics",
                Flag,
                "false",
                "Shows /metrics to everybody at the clients' address. Without it a key of the API is needed there, or an address of loopback.",
            ),
            Described::new(
                "trusted-proxies",
                List,
                "[]",
                "Addresses and networks of proxies that say who their clients are, such as 10.0.0.0/8.",
            ),
            Described::new(
                "proxy-protocol",
                Flag,
                "false",
                "Expects the PROXY protocol, version 1 or 2, from the trusted proxies.",
            ),
            Described::new(
                "client-address-header",
                Word(&["x-forwarded-for", "x-real-ip", "forwarded"]),
                "x-forwarded-for",
                "The header in which the trusted proxies name the client.",
            ),
            Described::depends(
                "api-key",
                Text,
                "generated and shown at the start",
                "choose-a-long-one",
                "The key that API callers must present.",
            )
            .secret(),
            Described::depends(
                "max-connections",
                Count,
                "1m, or what memory allows",
                "50k",
                "Client connections to hold at most; more are answered 503.",
            )
            .fixed(),
        ],
    },
    Group {
        heading: "Times of connections",
        options: &[
            Described::new(
                "handshake-timeout",
                Time,
                "10s",
                "Time that a client has for its request head; past it: 408.",
            ),
            Described::new(
                "ping-interval",
                Time,
                "25s",
                "Time between pings to a connection; 0 for none.",
            )
            .fixed(),
            Described::new(
                "pong-timeout",
                Time,
                "10s",
                "Closes a connection with 3012 that sends nothing for this long after a ping; at most ping-interval.",
            )
            .fixed(),
            Described::new(
                "idle-timeout",
                Time,
                "0",
                "Closes a connection with 1001 that sends nothing for this long; 0 for never.",
            )
            .fixed(),
            Described::new(
                "stall-timeout",
                Time,
                "30s",
                "Resets a connection whose client takes nothing of what is queued for it for this long; 0 for never.",
            ),
            Described::new(
                "poll-timeout",
                TimeRange,
                "25s",
                "Answers a held request (live=long-poll) after this time if nothing comes; of a range, after a time in it.",
            ),
            Described::new(
                "keep-alive-timeout",
                Time,
                "75s",
                "Closes a connection whose requests for streams were answered and which sends no other one for this long.",
            ),
            Described::new(
                "events-timeout",
                Time,
                "0",
                "Ends a stream of events (live=sse) after this time, so that its client comes back; 0 for never.",
            ),
        ],
    },
    Group {
        heading: "Messages and memory",
        options: &[
            Described::new(
                "message-bytes-max",
                Size,
                "64KiB",
                "Bytes of one message from a client; past it: close 1009.",
            ),
            Described::new(
                "message-fragments-max",
                Count,
                "1024",
                "Fragments (frames) of one message from a client; past it: close 1009.",
            ),
            Described::new(
                "head-bytes-max",
                Size,
                "32KiB",
                "Bytes of a request head, with its cookies and tokens; past it: 431. 4KiB to 1MiB.",
            )
            .fixed(),
            Described::new(
                "head-lines-max",
                Count,
                "128",
                "Lines of headers in a request head; past it: 431. 16 to 1024.",
            )
            .fixed(),
            Described::new(
                "append-elements-max",
                Count,
                "10k",
                "Elements of a JSON array that one request appends to a stream; past it: 413. 1 to 100k; each thousand takes a shard about a millisecond.",
            ),
            Described::new(
                "outbound-bytes-max",
                Size,
                "1MiB",
                "Bytes queued for one connection; past it the channel's slow_consumer decides, by default close 3008.",
            )
            .fixed(),
            Described::depends(
                "buffered-bytes-max",
                Size,
                "an eighth of memory, 4MiB to 2GiB",
                "512MiB",
                "Bytes buffered for all connections together; past it: close 1013.",
            )
            .fixed(),
            Described::depends(
                "unconnected-bytes-max",
                Size,
                "a quarter of buffered-bytes-max",
                "128MiB",
                "Those of them that clients may hold who have not connected: heads, bodies and first messages that are not whole. Past it, the one that has waited longest is ended.",
            )
            .fixed(),
            Described::new(
                "send-buffer-bytes",
                Size,
                "32KiB",
                "Kernel send buffer (SO_SNDBUF) of each connection: a stalled client parks up to twice that in the kernel.",
            )
            .fixed(),
            Described::new(
                "compression",
                Word(&["shared", "off"]),
                "shared",
                "Compresses messages for clients that offer it (permessage-deflate), once for all of them.",
            )
            .fixed(),
        ],
    },
    Group {
        heading: "Histories on the disk",
        options: &[
            Described::depends(
                "history-dir",
                Text,
                "none: histories are in memory alone",
                "/var/lib/myriad/history",
                "A directory in which histories are kept, so that they outlive the server; one process at a time. Not with a broker.",
            )
            .fixed(),
            Described::new(
                "history-sync",
                Text,
                "always",
                "When a publication counts as kept, and is acknowledged and delivered: always (it is on the disk), a time such as 100ms (the kernel has it, and the disk within this time), never (the kernel has it). A power cut takes what the disk does not have; the end of this process takes nothing.",
            )
            .fixed(),
            Described::depends(
                "history-disk-max",
                Size,
                "none: as much as there is room",
                "16GiB",
                "Bytes in history-dir; past it the oldest publications go. At least 256MiB.",
            )
            .fixed(),
        ],
    },
    Group {
        heading: "A cluster",
        options: &[
            Described::depends(
                "broker",
                Text,
                "none: this node is alone",
                "nats://127.0.0.1:4222",
                "NATS servers whose JetStream orders channels for all nodes of a cluster; several with commas. With it, channels change with a restart only.",
            )
            .secret()
            .fixed(),
            Described::new(
                "broker-prefix",
                Text,
                "myriad",
                "The cluster's name in NATS: subjects and streams begin with it.",
            )
            .fixed(),
            Described::new(
                "broker-replicas",
                Count,
                "1",
                "NATS servers that keep each publication: 1 to 5. With 3, what was acknowledged outlives any one server.",
            )
            .fixed(),
            Described::new(
                "broker-partitions",
                Count,
                "1",
                "Streams of each namespace with history, 1 to 64: its channels are spread over them. All nodes have the same number.",
            )
            .fixed(),
            Described::new(
                "broker-interest",
                Word(&["stream", "channel", "auto"]),
                "stream",
                "What this node hears of the broker: each stream whole, or only the channels that its clients want; with auto it chooses by what it measures. Nodes of one cluster may differ.",
            )
            .fixed(),
            Described::new(
                "broker-auto-rate",
                Count,
                "20000",
                "With broker-interest = auto: publications with history a second, of all streams together. From here on a node hears single channels of a stream, if its clients want less than a quarter of it.",
            )
            .fixed(),
            Described::new(
                "broker-storage",
                Word(&["file"]),
                "file",
                "Where JetStream keeps publications. Its memory storage is refused: limits for each channel slow it to a few hundred messages a second.",
            )
            .fixed(),
            Described::depends(
                "broker-credentials",
                Text,
                "none",
                "/etc/myriad/nats.creds",
                "A file of credentials for NATS.",
            )
            .fixed(),
            Described::depends(
                "broker-ca",
                Text,
                "those that the machine trusts",
                "/etc/myriad/nats-ca.pem",
                "A file of certificates (PEM) that NATS servers may be signed by, instead of those the machine trusts.",
            )
            .fixed(),
            Described::depends(
                "broker-certificate",
                Text,
                "none",
                "/etc/myriad/nats.pem",
                "A file with our certificate for NATS (PEM).",
            )
            .fixed(),
            Described::depends(
                "broker-key",
                Text,
                "none",
                "/etc/myriad/nats.key",
                "A file with the key (PEM) of broker-certificate.",
            )
            .fixed(),
        ],
    },
    Group {
        heading: "Announcements and the log",
        options: &[
            Described::new(
                "announce",
                List,
                "[]",
                "Publishes the server's time to a channel at an interval, such as time=1m.",
            )
            .fixed(),
            Described::new(
                "log",
                Text,
                "info",
                "What to log: error, warn, info, debug or trace; parts may have other levels: info,server::proxy=debug.",
            ),
            Described::new(
                "log-format",
                Word(&["text", "json"]),
                "text",
                "How to write the log: for people, or one JSON object a line.",
            )
            .fixed(),
        ],
    },
    Group {
        heading: "Tables",
        options: &[
            Described::new(
                "tls",
                Json,
                "{}",
                "Certificates for other names, as [[tls.certificates]] with certificate and key each; the client's name chooses.",
            ),
            Described::table("channel", "What channels may do and keep."),
            Described::table("client", "What clients may do."),
            Described::table("http_stream", "/connection/http_stream: the Centrifuge protocol in HTTP responses that go on; commands come to /emulation."),
            Described::table("sse", "/connection/sse: the Centrifuge protocol as an event stream; commands come to /emulation."),
            Described::table("uni_websocket", "/connection/uni_websocket: pushes over WebSocket, for clients without commands."),
            Described::table("uni_sse", "/connection/uni_sse: pushes as an event stream, for clients without commands."),
            Described::table("uni_http_stream", "/connection/uni_http_stream: pushes as lines of an HTTP response, for clients without commands."),
            Described::table("webhooks", "Who is told which channels are occupied and which clients are connected."),
            Described::table("rpc", "Methods of the application that clients may call."),
            Described::table(
                "proxies",
                "Addresses of the application with names, for namespaces that do not use the common ones.",
            ),
            Described::table("http_api", "Who may call the API, and how it tells errors."),
        ],
    },
];

/// `[sse]`, `[http_stream]`, `[uni_websocket]`, `[uni_sse]` and `[uni_http_stream]`.
pub(in super::super) const TRANSPORT: &[Group] = &[Group {
    heading: "A transport beside WebSocket",
    options: &[
        Described::depends("enabled", Flag, "as dev", "true", "Whether it is served.").fixed(),
    ],
}];
