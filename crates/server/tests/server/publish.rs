//! `POST /api/publish`, from request to subscriber.

use crate::support::{
    Http, api_error, head, metric, next, next_text, on_both_drivers, options, publish, publish_ok,
    publish_position, request, start, websocket,
};
use myriad_server::{ChannelTable, NamespaceTable, Options};
use myriad_shard::DataFormat;
use tungstenite::Message;

on_both_drivers! {
    fn every_kind_of_data_arrives_as_it_was_meant(driver) {
        let server = start(options(driver));
        let mut client = websocket(server.address(), "/raw?channel=news");
        let sent = [
            r#"{"channel": "news", "data": "a string's \"content\""}"#,
            r#"{"channel": "news", "data": {"b": 1.50,  "a": [null]}}"#,
            r#"{"channel": "news", "b64data": "AAH/"}"#,
            r#"{"channel": "news", "data": ""}"#,
        ];
        let offsets: Vec<u64> = sent.iter().map(|body| publish_ok(server.address(), body)).collect();
        assert!(offsets.is_sorted_by(|a, b| a < b), "{offsets:?}");
        assert_eq!(next_text(&mut client), "a string's \"content\"");
        assert_eq!(next_text(&mut client), r#"{"b": 1.50,  "a": [null]}"#);
        assert_eq!(next(&mut client), Message::Binary(vec![0, 1, 255].into()));
        assert_eq!(next_text(&mut client), "");
    }

    fn an_epoch_lasts_as_long_as_its_server(driver) {
        let body = |channel: &str| format!(r#"{{"channel": "{channel}", "data": 1}}"#);
        let server = start(options(driver));
        let (epoch, first) = publish_position(server.address(), &body("a"));
        let (same, second) = publish_position(server.address(), &body("a"));
        assert_eq!((first, second), (1, 2));
        assert_eq!(epoch, same);
        assert_ne!(publish_position(server.address(), &body("b")).0, same, "each channel with history has its own");
        let other = start(options(driver));
        let (later, offset) = publish_position(other.address(), &body("a"));
        assert_eq!(offset, 1, "offsets start again");
        assert_ne!(later, epoch);
    }

    fn a_key_publishes_once(driver) {
        let server = start(options(driver));
        let mut client = websocket(server.address(), "/raw?channel=a");
        let body = |channel: &str, key: &str, data: u32| {
            format!(r#"{{"channel": "{channel}", "idempotency_key": "{key}", "data": {data}}}"#)
        };
        let first = publish_position(server.address(), &body("a", "k", 1));
        assert_eq!(publish_position(server.address(), &body("a", "k", 2)), first);
        assert_eq!(publish_position(server.address(), &body("b", "k", 3)).1, 1, "of its channel");
        assert_eq!(publish_position(server.address(), &body("a", "l", 4)).1, 2);
        assert_eq!([next_text(&mut client), next_text(&mut client)], ["1", "4"]);
    }

    fn history_can_be_skipped(driver) {
        let server = start(options(driver));
        let mut client = websocket(server.address(), "/raw?channel=a");
        let skipped = r#"{"channel": "a", "data": 2, "skip_history": true}"#;
        assert_eq!(publish_ok(server.address(), r#"{"channel": "a", "data": 1}"#), 1);
        assert_eq!(publish(server.address(), skipped).body, r#"{"result":{}}"#);
        assert_eq!(publish_ok(server.address(), r#"{"channel": "a", "data": 3}"#), 2);
        assert_eq!([(); 3].map(|()| next_text(&mut client)), ["1", "2", "3"]);
    }

    fn a_client_gets_its_channels_and_no_others(driver) {
        let server = start(options(driver));
        let mut both = websocket(server.address(), "/raw?channel=a&channel=b%20c");
        let mut one = websocket(server.address(), "/raw?channel=a");
        for (channel, data) in [("b c", 1), ("other", 2), ("a", 3)] {
            publish_ok(server.address(), &format!(r#"{{"channel": "{channel}", "data": {data}}}"#));
        }
        // Across channels no order is promised.
        let mut got = [next_text(&mut both), next_text(&mut both)];
        got.sort();
        assert_eq!(got, ["1", "3"]);
        assert_eq!(next_text(&mut one), "3");
    }

    fn one_order_for_all_subscribers_of_parallel_publishers(driver) {
        const PUBLISHERS: u64 = 4;
        const EACH: u64 = 50;
        let server = start(options(driver));
        let address = server.address();
        let mut clients: Vec<_> = (0..8).map(|_| websocket(address, "/raw?channel=c")).collect();
        let publishers: Vec<_> = (0..PUBLISHERS)
            .map(|publisher| {
                std::thread::spawn(move || {
                    let mut placed = Vec::new();
                    for number in 0..EACH {
                        let body = format!(r#"{{"channel": "c", "data": "{publisher}.{number}"}}"#);
                        placed.push((publish_ok(address, &body), format!("{publisher}.{number}")));
                    }
                    placed
                })
            })
            .collect();
        let mut placed: Vec<_> = publishers.into_iter().flat_map(|publisher| publisher.join().expect("a publisher without panic")).collect();
        placed.sort();
        for client in &mut clients {
            for (_, data) in &placed {
                assert_eq!(&next_text(client), data);
            }
        }
    }

    fn the_api_asks_for_its_key(driver) {
        let server = start(Options { dev: None, anonymous: Some(true), ..options(driver) });
        let key = server.api_key().expect("a generated key").to_owned();
        let body = r#"{"channel": "c", "data": 1}"#;
        let send = |headers: &str| request(server.address(), "POST", "/api/publish", headers, body);
        let missing = send("");
        assert_eq!((missing.status, missing.header("www-authenticate")), (401, Some("apikey")));
        assert!(missing.body.contains("X-API-Key"), "{}", missing.body);
        assert_eq!(send("X-API-Key: wrong\r\n").status, 401);
        assert_eq!(send(&format!("Authorization: Bearer {key}\r\n")).status, 401);
        assert_eq!(send(&format!("X-API-Key: {key}\r\n")).status, 200);
        assert_eq!(send(&format!("Authorization: apikey {key}\r\n")).status, 200);
        // What everybody may know needs none.
        assert_eq!(request(server.address(), "GET", "/healthz", "", "").status, 200);
    }

    fn a_foreign_page_cannot_publish_where_the_api_is_open(driver) {
        let server = start(options(driver));
        let address = server.address();
        let body = r#"{"channel": "c", "data": 1}"#;
        // A form, which no browser asks about first; `localhost` is the host that the request names.
        let send = |headers: &str| request(address, "POST", "/api/publish", &format!("Content-Type: text/plain\r\n{headers}"), body);
        for origin in ["https://evil.example", "null", "http://localhost.evil.example", "http://localhost\r\nOrigin: http://evil.example"] {
            let answer = send(&format!("Origin: {origin}\r\n"));
            assert_eq!(answer.status, 403, "{origin}: {answer:?}");
            assert!(answer.body.contains("\"code\":\"origin\"") && answer.body.contains("allowed-origins"), "{answer:?}");
        }
        let refused = "myriad_api_requests_total{route=\"/api/publish\",status=\"403\"}";
        assert_eq!(metric(address, refused), 4);
        for origin in ["", "Origin: http://localhost\r\n", "Origin: http://localhost:3000\r\n"] {
            assert_eq!(send(origin).status, 200, "{origin}");
        }
        let listed = Some(vec!["https://*.example.com".parse().expect("an origin")]);
        let server = start(Options { allowed_origins: listed, ..options(driver) });
        for (origin, status) in [("https://a.example.com", 200), ("https://evil.example", 403)] {
            let headers = format!("Origin: {origin}\r\n");
            assert_eq!(request(server.address(), "POST", "/api/publish", &headers, body).status, status);
        }
        // With a key, it is the key that says who may publish.
        let server = start(Options { dev: None, anonymous: Some(true), ..options(driver) });
        let key = server.api_key().expect("a generated key");
        let headers = format!("Origin: https://app.example\r\nX-API-Key: {key}\r\n");
        assert_eq!(request(server.address(), "POST", "/api/publish", &headers, body).status, 200);
    }

    fn what_cannot_be_published_is_explained(driver) {
        let server = start(options(driver));
        let address = server.address();
        let long = format!(r#"{{"channel": "{}", "data": 1}}"#, "x".repeat(256));
        for (body, words) in [
            ("", "empty"),
            ("{\"channel\": \"c\",\n\"data\": }", "line 2"),
            (r#"{"channel": "c", "date": 1}"#, "`date`"),
            (r#"{"channel": 7, "data": 1}"#, "\\\"channel\\\""),
        ] {
            let answer = publish(address, body);
            assert_eq!(answer.status, 400, "{body}: {answer:?}");
            let error: serde_json::Value = serde_json::from_str(&answer.body).expect("JSON");
            assert!(error["error"]["code"].is_string(), "{answer:?}");
            assert!(answer.body.contains(words), "{body}: {answer:?}");
        }
        for (body, words) in [
            (r#"{"channel": "c"}"#, "is missing"),
            (r#"{"channel": "", "data": 1}"#, "1 to 255"),
            (&long, "256 bytes"),
        ] {
            let error = api_error(address, "publish", body);
            assert_eq!(error["code"], 107, "{body}");
            assert!(error["detail"].as_str().expect("a sentence").contains(words), "{body}: {error}");
        }
    }

    fn a_channel_takes_what_its_namespace_says(driver) {
        let namespace = |name: &str, format| NamespaceTable {
            name: Some(name.to_owned()),
            publication_data_format: format,
            ..NamespaceTable::default()
        };
        let channel = ChannelTable {
            namespaces: vec![
                namespace("any", None),
                namespace("json", Some(DataFormat::Json)),
                namespace("object", Some(DataFormat::JsonObject)),
                namespace("binary", Some(DataFormat::Binary)),
            ],
            ..ChannelTable::default()
        };
        let server = start(Options { channel: Some(channel), ..options(driver) });
        for (channel, data, refused) in [
            ("news", r#""data": 1"#, None),
            ("nope:a", r#""data": 1"#, Some("the namespace \\\"nope\\\", which is not configured; add it to [[channel.namespaces]]")),
            ("$nope:a", r#""data": 1"#, Some("the namespace \\\"nope\\\"")),
            (":a", r#""data": 1"#, Some("the namespace \\\"\\\"")),
            ("any:a", r#""data": null"#, None),
            ("any:a", r#""data": """#, None),
            ("any:a", r#""b64data": """#, Some("at least one byte")),
            ("any:a", r#""b64data": "AP8=""#, None),
            ("json:a", r#""data": [1]"#, None),
            ("json:a", r#""b64data": "e30=""#, None),
            ("json:a", r#""b64data": "AP8=""#, Some("send JSON as")),
            ("object:a", r#""data": {"a": 1}"#, None),
            ("object:a", r#""data": [1]"#, Some("publication_data_format = \\\"json_object\\\"")),
            ("object:a", r#""data": "{}""#, Some("send an object")),
            ("object:a", r#""b64data": "e30=""#, None),
            ("object:a", r#""b64data": "WzFd""#, Some("send an object")),
            ("binary:a", r#""b64data": """#, None),
        ] {
            let body = format!(r#"{{"channel": "{channel}", {data}}}"#);
            let answer = publish(server.address(), &body);
            assert_eq!(answer.status, 200, "{body}: {answer:?}");
            match refused {
                None => assert_eq!(answer.body, r#"{"result":{}}"#, "{body}"),
                Some(words) => {
                    let code = if channel.contains("any") || channel.contains("object") || channel.contains("json") { 107 } else { 102 };
                    assert!(answer.body.contains(&format!("{{\"code\":{code},")), "{body}: {answer:?}");
                    assert!(answer.body.contains(words), "{body}: {answer:?}");
                }
            }
        }
    }

    fn wrong_methods_and_paths_say_what_is_there(driver) {
        let server = start(options(driver));
        let wrong = request(server.address(), "PUT", "/api/publish", "", "{}");
        assert_eq!((wrong.status, wrong.header("allow")), (405, Some("POST")));
        let wrong = request(server.address(), "DELETE", "/healthz", "", "");
        assert_eq!((wrong.status, wrong.header("allow")), (405, Some("GET,HEAD")));
        let unknown = request(server.address(), "GET", "/api/publsh", "", "");
        assert_eq!(unknown.status, 404);
        assert!(unknown.body.contains("/api/publish"), "{}", unknown.body);
    }

    fn a_body_over_the_limit_is_answered_even_to_who_sends_on(driver) {
        let server = start(options(driver));
        let piece = vec![b'x'; 64 << 10];
        for length in ["Content-Length: 4194304\r\n", "Transfer-Encoding: chunked\r\n"] {
            let mut http = Http::connect(server.address());
            http.send(head("POST", "/api/publish", length).as_bytes());
            let chunked = length.starts_with('T');
            for _ in 0..64 {
                if chunked {
                    http.send_anyway(b"10000\r\n");
                }
                http.send_anyway(&piece);
                if chunked {
                    http.send_anyway(b"\r\n");
                }
            }
            let answer = http.answer();
            assert_eq!((answer.status, answer.header("connection")), (413, Some("close")), "{length}");
            assert!(answer.body.contains("1048576"), "{}", answer.body);
        }
    }

    fn an_offered_upgrade_does_not_cost_the_answer(driver) {
        let server = start(Options { dev: None, anonymous: Some(true), ..options(driver) });
        let key = server.api_key().expect("a generated key").to_owned();
        // What curl --http2 and the HTTP client of Java's library send beside a body.
        let offer = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQBAAAA\r\n";
        let body = "x".repeat(1_500_000);
        for (presented, status) in [(&*key, 413), ("wrong", 401)] {
            let headers = format!("{offer}X-API-Key: {presented}\r\nContent-Length: {}\r\n", body.len());
            let mut http = Http::connect(server.address());
            http.send(head("POST", "/api/publish", &headers).as_bytes());
            http.send_anyway(body.as_bytes());
            assert_eq!(http.answer().status, status);
        }
        let small = r#"{"channel": "c", "data": 1}"#;
        let headers = format!("{offer}X-API-Key: {key}\r\n");
        let answer = request(server.address(), "POST", "/api/publish", &headers, small);
        assert_eq!(answer.status, 200);
    }

    fn a_request_behind_an_unread_body_is_answered(driver) {
        let server = start(Options { dev: None, anonymous: Some(true), ..options(driver) });
        let mut http = Http::connect(server.address());
        let refused = head("POST", "/api/publish", "Transfer-Encoding: chunked\r\n");
        let next = head("GET", "/healthz", "");
        http.send(format!("{refused}2\r\n{{}}\r\n0\r\n\r\n{next}").as_bytes());
        assert_eq!([http.answer().status, http.answer().status], [401, 200]);
    }

    fn a_client_that_waits_for_100_continue_is_told_at_once(driver) {
        let server = start(options(driver));
        let mut http = Http::connect(server.address());
        http.send(head("POST", "/api/publish", "Content-Length: 4194304\r\nExpect: 100-continue\r\n").as_bytes());
        assert_eq!(http.answer().status, 413);
        assert!(http.ended());
        let mut http = Http::connect(server.address());
        let body = r#"{"channel": "c", "data": 1}"#;
        let headers = format!("Content-Length: {}\r\nExpect: 100-continue\r\n", body.len());
        http.send(head("POST", "/api/publish", &headers).as_bytes());
        assert_eq!(http.answer().status, 100);
        http.send(body.as_bytes());
        assert_eq!(http.answer().status, 200);
    }

    fn the_largest_body_is_published(driver) {
        let server = start(options(driver));
        let mut client = websocket(server.address(), "/raw?channel=c");
        let overhead = r#"{"channel":"c","data":""}"#.len();
        let data = "y".repeat((1 << 20) - overhead);
        publish_ok(server.address(), &format!(r#"{{"channel":"c","data":"{data}"}}"#));
        assert!(next_text(&mut client) == data);
    }
}
