//! Which requests a shard answers itself: streams, refusals, and what a full server does with strangers.

use crate::support::{
    Answer, Http, get, head, metric, next_text, on_both_drivers, options, publish_ok, request,
    start, websocket,
};
use myriad_server::{ChannelTable, Count, NamespaceTable, Options};
use std::net::{SocketAddr, TcpStream};

const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

pub(crate) fn upgrade(address: SocketAddr, path: &str, headers: &str) -> Answer {
    let mut http = Http::connect(address);
    http.send(head("GET", path, &format!("{UPGRADE}{headers}")).as_bytes());
    http.answer()
}

fn refusals(address: SocketAddr, reason: &str) -> u64 {
    metric(
        address,
        &format!("myriad_upgrades_refused_total{{reason=\"{reason}\"}}"),
    )
}

on_both_drivers! {
    fn a_websocket_to_no_path_is_told_the_paths(driver) {
        let server = start(options(driver));
        let answer = upgrade(server.address(), "/socket", "");
        assert_eq!(answer.status, 404);
        assert_eq!(answer.body, "No WebSocket is at /socket: connect to /connection/websocket, /raw?channel=NAME or /echo.");
        let production = start(Options { dev: None, anonymous: Some(true), ..options(driver) });
        let address = production.address();
        let answer = upgrade(address, "/echo", "");
        assert_eq!(answer.status, 404);
        assert!(answer.body.contains("/echo needs --dev"), "{}", answer.body);
        assert_eq!(upgrade(address, "/api/publish", "").status, 404);
        assert_eq!(refusals(address, "path"), 2);
        assert_eq!(upgrade(address, "/raw?channel=c", "").status, 101);
    }

    fn a_path_that_is_not_there_is_told_where_streams_are(driver) {
        let told = |address: SocketAddr, path: &str| {
            let answer = get(address, path);
            assert_eq!(answer.status, 404, "{path}");
            answer.body
        };
        let server = start(options(driver));
        let body = told(server.address(), "/nothing");
        assert!(body.contains("/connection/websocket, /raw?channel=NAME and /echo"), "{body}");
        assert!(body.contains("/ and /chat (pages)"), "{body}");
        assert_eq!(get(server.address(), "/echo").status, 426);
        let production = start(Options { dev: None, anonymous: Some(true), ..options(driver) });
        let address = production.address();
        let body = told(address, "/echo");
        assert!(body.contains("/connection/websocket and /raw?channel=NAME (/echo needs --dev)"), "{body}");
        // A connection of the API has the same streams.
        for (path, status) in [("/connection/websocket", 426), ("/raw", 426), ("/echo", 404)] {
            let mut http = Http::connect(address);
            for (path, status) in [("/healthz", 200), (path, status)] {
                http.send(head("GET", path, "").as_bytes());
                assert_eq!(http.answer().status, status, "{path}");
            }
        }
    }

    fn only_a_development_server_has_a_page(driver) {
        let server = start(options(driver));
        let files = [
            ("/", "development server"),
            ("/dev_page.js", "'use strict'"),
            ("/chat", "Chat on Myriad"),
            ("/chat.js", "'use strict'"),
            ("/centrifuge.js", "Centrifuge"),
        ];
        for (path, content) in files {
            let answer = get(server.address(), path);
            assert_eq!(answer.status, 200, "{path}");
            assert!(answer.body.contains(content), "{path}");
        }
        let answer = get(server.address(), "/chat/");
        assert_eq!((answer.status, answer.header("location")), (308, Some("/chat")));
        let production = start(Options { dev: None, anonymous: Some(true), ..options(driver) });
        for (path, _) in files {
            assert_eq!(get(production.address(), path).status, 404, "{path}");
        }
    }

    fn repeated_channels_are_bounded_before_they_are_compared(driver) {
        let server = start(options(driver));
        let path = |count: usize| format!("/raw?{}", "channel=c&".repeat(count));
        assert_eq!(upgrade(server.address(), &path(256), "").status, 101);
        let answer = upgrade(server.address(), &path(257), "");
        assert_eq!(answer.status, 400);
        assert!(answer.body.contains("at most 128"), "{}", answer.body);
    }

    fn a_channel_of_no_namespace_is_refused(driver) {
        let server = start(options(driver));
        for path in ["/raw?channel=nope:a", "/raw?channel=c&channel=nope%3Aa"] {
            let answer = upgrade(server.address(), path, "");
            assert_eq!(answer.status, 400, "{path}");
            assert!(answer.body.contains(r#"the namespace "nope", which is not configured: add it to [[channel.namespaces]]"#), "{}", answer.body);
        }
        assert_eq!(refusals(server.address(), "namespace"), 2);
        let namespace = NamespaceTable { name: Some("nope".into()), ..NamespaceTable::default() };
        let channel = Some(ChannelTable { namespaces: vec![namespace], ..ChannelTable::default() });
        let server = start(Options { channel, ..options(driver) });
        assert_eq!(upgrade(server.address(), "/raw?channel=nope:a", "").status, 101);
    }

    fn every_request_has_one_valid_host_and_one_length(driver) {
        let server = start(options(driver));
        for (headers, status, reason) in [
            ("", 400, "host"),
            ("Host: a\r\nHost: a\r\n", 400, "host"),
            ("Host: a b\r\n", 400, "host"),
            ("Host: a\r\nTransfer-Encoding: gzip, chunked\r\n", 501, "transfer_coding"),
            ("Host: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n", 400, "framing"),
        ] {
            for path in ["/raw?channel=c", "/healthz", "/nothing"] {
                let before = refusals(server.address(), reason);
                let mut http = Http::connect(server.address());
                http.send(format!("GET {path} HTTP/1.1\r\n{headers}\r\n").as_bytes());
                assert_eq!(http.answer().status, status, "{path} {headers}");
                assert_eq!(refusals(server.address(), reason), before + 1);
            }
        }
        let mut http = Http::connect(server.address());
        http.send(b"GET /healthz HTTP/1.0\r\n\r\n");
        assert_eq!(http.answer().status, 200);
    }

    fn pages_of_other_hosts_stay_out(driver) {
        let listed = Some(vec!["https://*.example.com".parse().expect("an origin")]);
        let server = start(Options { allowed_origins: listed, ..options(driver) });
        let status = |origin: &str| {
            let header = format!("Origin: {origin}\r\n");
            upgrade(server.address(), "/raw?channel=c", &header).status
        };
        assert_eq!(upgrade(server.address(), "/raw?channel=c", "").status, 101);
        assert_eq!(status("http://localhost:3000"), 101);
        assert_eq!(status("https://a.example.com"), 101);
        assert_eq!(status("https://evil.test"), 403);
        assert_eq!(status("null"), 403);
        assert_eq!(refusals(server.address(), "origin"), 2);
    }

    fn a_full_server_still_answers_and_publishes(driver) {
        const STRANGERS: usize = 2_000;
        let server = start(Options { max_connections: Some(Count(3)), ..options(driver) });
        let address = server.address();
        let mut clients: Vec<_> = (0..3).map(|_| websocket(address, "/raw?channel=c")).collect();
        let mut strangers = Vec::new();
        for round in 0..10 {
            // They connect and stay silent. One that is reset is none the less a stranger that tried.
            let more = (0..STRANGERS / 10).filter_map(|_| TcpStream::connect(address).ok());
            strangers.extend(more);
            assert_eq!(get(address, "/healthz").status, 200, "round {round}");
            assert_eq!(get(address, "/metrics").status, 200, "round {round}");
            publish_ok(address, r#"{"channel": "c", "data": "still here"}"#);
            for client in &mut clients {
                assert_eq!(next_text(client), "still here");
            }
            // Whoever wants a stream is told, and not just reset.
            assert_eq!(upgrade(address, "/raw?channel=c", "").status, 503, "round {round}");
        }
        assert_eq!(request(address, "GET", "/healthz", "", "").status, 200);
        drop(strangers);
    }
}
