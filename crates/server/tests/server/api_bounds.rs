//! Requests to the API that ask for too much: each is told so, and others are served.

use crate::support::{
    Http, Running, api, api_error, head, next_text, on_both_drivers, options, publish_ok, request,
    start, websocket,
};
use myriad_server::{ChannelTable, Count, DriverChoice, NamespaceTable, Options, Span};
use serde_json::{Value, json};
use std::time::Duration;
use tungstenite::Message;

fn started(driver: DriverChoice) -> Running {
    let kept = NamespaceTable {
        history_size: Count(100),
        history_ttl: Span(Duration::from_secs(300)),
        presence: true,
        allow_subscribe_for_client: true,
        allow_subscribe_for_anonymous: true,
        ..NamespaceTable::default()
    };
    let channel = ChannelTable {
        without_namespace: kept,
        ..ChannelTable::default()
    };
    start(Options {
        channel: Some(channel),
        ..options(driver)
    })
}

on_both_drivers! {
    fn bodies_that_are_only_announced_hold_no_memory(driver) {
        let server = started(driver);
        let slow = |path: &str, framing: &str, body: &str| {
            let mut http = Http::connect(server.address());
            http.send(head("POST", path, &format!("{framing}\r\n")).as_bytes());
            http.send(body.as_bytes());
            http
        };
        // Together they announce more than twice the memory that there is for bodies.
        let announced: Vec<_> = (0..80)
            .map(|_| slow("/api/publish", "Content-Length: 1048576", "{"))
            .chain((0..10).map(|_| slow("/api/batch", "Transfer-Encoding: chunked", "1\r\n{\r\n")))
            .collect();
        for n in 1..=20 {
            let data = "x".repeat(500_000);
            let body = json!({"channel": "a", "data": data}).to_string();
            assert_eq!(publish_ok(server.address(), &body), n);
        }
        drop(announced);
    }

    fn too_many_commands_and_publications_are_counted(driver) {
        let server = started(driver);
        let commands = vec!["{\"info\":{}}"; 500_000].join(",");
        let error = api_error(server.address(), "batch", &format!("{{\"commands\":[{commands}]}}"));
        assert_eq!(error["code"], 107);
        assert!(error["detail"].as_str().expect("a sentence").contains("500000 commands"), "{error}");
        let channels = vec!["\"a\""; 10_000].join(",");
        let broadcast = format!(r#"{{"channels": [{channels}], "data": 1}}"#);
        let batch = vec![format!(r#"{{"broadcast": {broadcast}}}"#); 11].join(",");
        let error = api_error(server.address(), "batch", &format!("{{\"commands\":[{batch}]}}"));
        assert!(error["detail"].as_str().expect("a sentence").contains("110000 publications"), "{error}");
        let lines = vec![format!(r#"{{"method": "broadcast", "params": {broadcast}}}"#); 11].join("\n");
        let answer = request(server.address(), "POST", "/api", "", &lines);
        assert_eq!(answer.status, 400);
        assert!(answer.body.contains("110000 publications"), "{}", answer.body);
        assert_eq!(publish_ok(server.address(), r#"{"channel": "a", "data": 1}"#), 1, "nothing was published");
    }

    fn a_batch_reads_so_much_and_no_more(driver) {
        let server = started(driver);
        let data = "x".repeat(1_000_000);
        for _ in 0..15 {
            publish_ok(server.address(), &json!({"channel": "a", "data": data}).to_string());
        }
        let read = json!({"history": {"channel": "a", "limit": -1}});
        let publish = json!({"publish": {"channel": "b", "data": 1}});
        let commands = [&read, &read, &read, &read, &read, &read, &publish];
        let answer = api(server.address(), "batch", &json!({"commands": commands}).to_string());
        let replies = answer["replies"].as_array().expect("replies");
        let read: Vec<_> = replies.iter().map(|reply| reply["history"].is_object()).collect();
        assert_eq!(read, [true, true, true, true, true, false, false], "64 MiB, and what the last one has");
        assert_eq!(replies[5]["error"]["code"], 106);
        assert_eq!(replies[6]["publish"]["offset"], 1, "short answers are given all the same");
    }

    fn large_numbers_are_numbers(driver) {
        let server = started(driver);
        let mut client = websocket(server.address(), "/connection/websocket");
        client.send(Message::text(r#"{"id": 1, "connect": {}}"#)).expect("sent");
        let connected: Value = serde_json::from_str(&next_text(&mut client)).expect("JSON");
        let id = &connected["connect"]["client"];
        let (most, least) = (i64::MAX, i64::MIN);
        for (method, body, code) in [
            ("refresh", json!({"client": id, "expire_at": most}), 0),
            ("refresh", json!({"client": id, "expire_at": least}), 107),
            ("subscribe", json!({"client": id, "channel": "a", "expire_at": most, "recover_since": {"offset": u64::MAX}}), 0),
            ("publish", json!({"channel": "a", "data": 1e300, "version": u64::MAX}), 0),
            ("history", json!({"channel": "a", "limit": most}), 0),
            ("history", json!({"channel": "a", "limit": least, "reverse": true}), 0),
            ("history", json!({"channel": "a", "limit": -1, "since": {"offset": u64::MAX}}), 0),
            ("history", json!({"channel": "a", "limit": -1, "reverse": true, "since": {"offset": u64::MAX}}), 0),
            ("presence", json!({"channel": "a", "limit": most}), 0),
            ("presence", json!({"channel": "a", "limit": least}), 107),
            ("channels", json!({"limit": most, "cursor": "\u{10ffff}"}), 0),
            ("connections", json!({"limit": most, "cursor": "18446744073709551615-4294967295"}), 0),
            ("connections", json!({"cursor": "0-4294967295"}), 0),
            ("disconnect", json!({"user": "1", "disconnect": {"code": u32::MAX}}), 107),
            ("revoke_token", json!({"uid": "a", "expire_at": u64::MAX}), 0),
            ("invalidate_user_tokens", json!({"user": "a", "issued_before": u64::MAX, "expire_at": u64::MAX}), 0),
            ("trace", json!({"client": id, "seconds": u64::MAX}), 107),
            ("trace", json!({"client": id, "bytes": u64::MAX}), 107),
        ] {
            let answer = api(server.address(), method, &body.to_string());
            assert_eq!(answer["error"]["code"].as_i64().unwrap_or_default(), code, "{method} {body}: {answer}");
        }
        for (field, number) in [("limit", "9223372036854775808"), ("limit", "1e3"), ("limit", "1.0"), ("since", "{\"offset\": -1}")] {
            let body = format!(r#"{{"channel": "a", "{field}": {number}}}"#);
            let answer = request(server.address(), "POST", "/api/history", "", &body);
            assert!(answer.status == 400 && answer.body.contains(field), "{body}: {answer:?}");
        }
    }

    fn deep_and_doubtful_json_is_refused_or_kept_as_it_is(driver) {
        let server = started(driver);
        let deep = "[".repeat(200_000) + &"]".repeat(200_000);
        for (path, body) in [
            ("/api/publish", format!(r#"{{"channel": "a", "data": {deep}}}"#)),
            ("/api/connections", format!(r#"{{"meta": {{"a": {deep}}}}}"#)),
            ("/api/subscribe", format!(r#"{{"user": "1", "channel": "a", "info": {deep}}}"#)),
            ("/api/rpc", format!(r#"{{"method": "x", "params": {deep}}}"#)),
            ("/api/batch", format!(r#"{{"commands": {deep}}}"#)),
            ("/api/batch", r#"{"commands": [{"batch": {"commands": []}}]}"#.to_owned()),
            ("/api/batch", r#"{"commands": [{"info": {}, "rpc": {"method": "x"}}]}"#.to_owned()),
            ("/api/batch", r#"{"commands": [], "commands": []}"#.to_owned()),
            ("/api", format!(r#"{{"method": "publish", "params": {deep}}}"#)),
            ("/api", r#"{"method": "batch", "params": {"commands": []}}"#.to_owned()),
            ("/api/history", r#"{"channel": "a", "channel": "b"}"#.to_owned()),
            ("/api/history", r#"{"channel": "a", "since": {"offset": 1, "offset": 2}}"#.to_owned()),
        ] {
            let answer = request(server.address(), "POST", path, "", &body);
            assert!(answer.body.len() < 1_000, "{path}: {answer:?}");
            let answer: Value = serde_json::from_str(&answer.body).expect("JSON");
            // What is wrong with a command is told in its place.
            let is_command = path == "/api/batch" && !body.ends_with(r#""commands": []}"#) || body.contains(r#"{"batch""#);
            let error = if is_command { &answer["replies"][0]["error"] } else { &answer["error"] };
            assert!(error.is_object(), "{path}: {answer}");
        }
    }
}
