//! The HTTP API about connections of users: what it does to them, and what their clients are told.

use crate::support::{
    Running, api, api_error, head, next_text, on_both_drivers, options, publish_ok, start,
    websocket,
};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use myriad_server::{
    ChannelTable, ClientTable, Count, DriverChoice, NamespaceTable, Options, Span, TokenTable,
};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, SystemTime};
use tungstenite::{Message, WebSocket};

const SECRET: &str = "a secret of at least thirty-two bytes";

/// Clients show tokens; channels of `kept` have history.
fn started(driver: DriverChoice) -> Running {
    let kept = NamespaceTable {
        name: Some("kept".into()),
        history_size: Count(10),
        history_ttl: Span(Duration::from_secs(300)),
        force_recovery: true,
        ..NamespaceTable::default()
    };
    let channel = ChannelTable {
        namespaces: vec![kept],
        ..ChannelTable::default()
    };
    let token = TokenTable {
        hmac_secret_key: SECRET.to_owned().into(),
        ..TokenTable::default()
    };
    let client = ClientTable {
        token,
        ..ClientTable::default()
    };
    start(Options {
        channel: Some(channel),
        client: Some(client),
        ..options(driver)
    })
}

/// A client that has connected.
struct Client {
    socket: WebSocket<TcpStream>,
    id: String,
}

impl Client {
    fn connect(server: &Running, connect: Value) -> Self {
        let mut client = Self {
            socket: websocket(server.address(), "/connection/websocket"),
            id: String::new(),
        };
        let connected = client.ask(&json!({"id": 1, "connect": connect}));
        let id = connected["connect"]["client"].as_str();
        client.id = id.unwrap_or_else(|| panic!("{connected}")).to_owned();
        client
    }

    /// Of the user that the claims name.
    fn with(server: &Running, claims: &Value) -> Self {
        Self::connect(server, json!({"token": token(claims)}))
    }

    fn of(server: &Running, user: &str) -> Self {
        Self::with(server, &json!({"sub": user}))
    }

    fn ask(&mut self, command: &Value) -> Value {
        let command = Message::text(command.to_string());
        self.socket.send(command).expect("sent");
        self.read()
    }

    /// The next message, which is one line. Pings are none: a slow machine may be in time for one.
    fn read(&mut self) -> Value {
        loop {
            let text = next_text(&mut self.socket);
            let message: Value = serde_json::from_str(&text).expect("one message");
            if message != json!({}) {
                return message;
            }
        }
    }

    /// The close frame that comes next.
    fn close(&mut self) -> (u16, String) {
        loop {
            match self.socket.read().expect("a close frame") {
                Message::Close(Some(frame)) => {
                    return (frame.code.into(), frame.reason.as_str().to_owned());
                }
                _ => continue,
            }
        }
    }

    fn is_alive(&mut self) -> bool {
        self.ask(&json!({"id": 9, "rpc": {"method": "x"}}))["id"] == 9
    }
}

fn token(claims: &Value) -> String {
    let key = EncodingKey::from_secret(SECRET.as_bytes());
    encode(&Header::new(Algorithm::HS256), claims, &key).expect("a token")
}

fn unix_now() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.expect("after 1970").as_secs()
}

/// Calls a method that has nothing to say.
fn done(server: &Running, method: &str, request: Value) {
    let answer = api(server.address(), method, &request.to_string());
    assert_eq!(answer, json!({"result": {}}), "{method} {request}");
}

/// The ids that `connections` finds, by pages of two.
fn found(server: &Running, mut request: Value) -> Vec<String> {
    let mut ids = Vec::new();
    request["limit"] = 2.into();
    loop {
        let answer = api(server.address(), "connections", &request.to_string());
        let page = answer["result"]["connections"]
            .as_object()
            .expect("connections");
        assert!(page.len() <= 2);
        ids.extend(page.keys().cloned());
        match answer["result"]["cursor"].as_str() {
            Some(cursor) => request["cursor"] = cursor.into(),
            None => break,
        }
    }
    ids.sort();
    ids
}

fn sorted<'c>(clients: impl IntoIterator<Item = &'c Client>) -> Vec<String> {
    let mut ids: Vec<_> = clients
        .into_iter()
        .map(|client| client.id.clone())
        .collect();
    ids.sort();
    ids
}

/// The lines of a trace, as they come.
fn trace(server: &Running, request: &Value) -> Receiver<Value> {
    let body = request.to_string();
    let length = format!("Content-Length: {}\r\nConnection: close\r\n", body.len());
    let mut stream = TcpStream::connect(server.address()).expect("a listening server");
    let head = head("POST", "/api/trace", &length);
    stream
        .write_all(format!("{head}{body}").as_bytes())
        .expect("sent");
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        // The sizes of chunks stand on lines of their own.
        let lines = BufReader::new(stream).lines().map_while(Result::ok);
        for line in lines.filter(|line| line.starts_with('{')) {
            let line = serde_json::from_str(&line).expect("JSON");
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

on_both_drivers! {
    fn a_trace_tells_what_a_connection_says_and_hears(driver) {
        let server = started(driver);
        let mut client = Client::of(&server, "42");
        let mut other = Client::of(&server, "42");
        let lines = trace(&server, &json!({"client": client.id, "seconds": 100}));
        // It has begun as soon as it tells of something, which may be the answer to what was said before.
        while lines.recv_timeout(Duration::from_millis(20)).is_err() {
            assert!(client.is_alive() && other.is_alive());
        }
        assert!(client.is_alive());
        let next = |wanted: fn(&Value) -> bool| loop {
            let line = lines.recv_timeout(Duration::from_secs(30)).expect("a line");
            if wanted(&line) {
                break line;
            }
        };
        let said = next(|line| line["from"] == "client");
        assert_eq!(said["message"]["rpc"]["method"], "x");
        let reply = next(|line| line["from"] == "server");
        assert_eq!(reply["message"]["error"]["code"], 108);
        done(&server, "subscribe", json!({"client": client.id, "channel": "a"}));
        done(&server, "publish", json!({"channel": "a", "data": "seen"}));
        let push = next(|line| line["message"]["push"]["subscribe"].is_object());
        assert_eq!(push["message"]["push"]["channel"], "a");
        let push = next(|line| line["message"]["push"]["pub"].is_object());
        assert_eq!(push["message"]["push"]["pub"]["data"], "seen");
        done(&server, "disconnect", json!({"client": client.id, "disconnect": {"code": 4000, "reason": "bye"}}));
        client.read();
        client.read();
        assert_eq!(client.close().0, 4000);
        assert_eq!(next(|line| line["closed"].is_string())["closed"], "application");
        let close = next(|line| line["frame"] == "close");
        assert_eq!((&close["code"], &close["reason"]), (&json!(4000), &json!("bye")));
        drop(client);
        assert_eq!(next(|line| line["end"].is_string()), json!({"end": "gone"}));
        assert!(lines.recv().is_err(), "nothing follows");
        assert!(other.is_alive());
    }

    fn a_trace_has_bounds(driver) {
        let server = started(driver);
        let mut client = Client::of(&server, "42");
        let lines = trace(&server, &json!({"client": client.id, "seconds": 100, "bytes": 500}));
        let end = loop {
            assert!(client.is_alive());
            let line = lines.recv_timeout(Duration::from_millis(20));
            if let Ok(line) = line && line["end"].is_string() {
                break line;
            }
        };
        assert_eq!(end, json!({"end": "bytes"}));
        let lines = trace(&server, &json!({"client": client.id, "seconds": 1}));
        assert_eq!(lines.iter().last(), Some(json!({"end": "time"})));
        let gone = Client::of(&server, "42").id.clone();
        let lines = trace(&server, &json!({"client": gone, "seconds": 100}));
        assert_eq!(lines.iter().last(), Some(json!({"end": "gone"})));
        for (request, code) in [
            (json!({"client": "x"}), 104),
            (json!({"client": client.id, "seconds": 301}), 107),
        ] {
            let error = api_error(server.address(), "trace", &request.to_string());
            assert_eq!(error["code"], code, "{error}");
        }
        let batch = json!({"commands": [{"trace": {"client": client.id}}]});
        let answer = crate::support::request(server.address(), "POST", "/api/batch", crate::support::EXPLAINED, &batch.to_string());
        assert!(answer.body.contains("a trace is a stream"), "{answer:?}");
    }

    fn a_user_is_disconnected(driver) {
        let server = started(driver);
        let mut clients: Vec<_> = (0..5).map(|_| Client::of(&server, "42")).collect();
        let mut other = Client::of(&server, "43");
        let mut anonymous = Client::connect(&server, json!({}));
        let kept = clients.remove(1);
        done(&server, "disconnect", json!({"user": "42", "whitelist": [kept.id],
            "disconnect": {"code": 4500, "reason": "banned"}}));
        for client in &mut clients {
            assert_eq!(client.close(), (4500, "banned".to_owned()));
        }
        let mut clients = [kept, Client::of(&server, "42")];
        done(&server, "disconnect", json!({"client": clients[1].id}));
        assert_eq!(clients[1].close(), (3503, "force disconnect".to_owned()));
        done(&server, "disconnect", json!({"user": "42", "client": other.id}));
        done(&server, "disconnect", json!({"user": "nobody"}));
        done(&server, "disconnect", json!({"user": "42", "client": "not an id"}));
        assert!(clients[0].is_alive() && other.is_alive());
        done(&server, "disconnect", json!({"user": ""}));
        assert_eq!(anonymous.close().0, 3503);
        assert!(clients[0].is_alive());
        done(&server, "disconnect", json!({"all_users": true, "disconnect": {"code": 4000, "reconnect": true}}));
        assert_eq!(other.close(), (4000, "disconnected by the application".to_owned()));
    }

    fn a_user_is_subscribed_and_unsubscribed(driver) {
        let server = started(driver);
        let mut client = Client::of(&server, "42");
        assert_eq!(publish_ok(server.address(), r#"{"channel": "kept:a", "data": 1}"#), 1);
        done(&server, "subscribe", json!({"user": "42", "channel": "kept:a", "data": {"x": 1},
            "info": {"name": "A"}, "override": {"force_recovery": {"value": true}},
            "recover_since": {"offset": 0, "epoch": ""}, "expire_at": unix_now() + 1000}));
        let told: Vec<Value> = next_text(&mut client.socket).lines()
            .map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(told[0]["push"]["channel"], "kept:a");
        assert_eq!(told[0]["push"]["subscribe"]["data"], json!({"x": 1}));
        assert_eq!(told[1]["push"]["pub"], json!({"data": 1, "offset": 1}));
        publish_ok(server.address(), r#"{"channel": "kept:a", "data": 2}"#);
        assert_eq!(client.read()["push"]["pub"], json!({"data": 2, "offset": 2}));
        done(&server, "subscribe", json!({"user": "42", "channel": "kept:a"}));
        done(&server, "unsubscribe", json!({"user": "42", "channel": "kept:a"}));
        let ended = json!({"code": 2000, "reason": "server unsubscribe"});
        assert_eq!(client.read()["push"]["unsubscribe"], ended);
        done(&server, "subscribe", json!({"client": client.id, "channel": "a"}));
        assert_eq!(client.read()["push"]["channel"], "a");
        done(&server, "unsubscribe", json!({"user": "42", "channel": ""}));
        assert_eq!(client.read()["push"]["unsubscribe"], ended);
        // It reads only JSON: it is left out, and stays.
        let bytes = json!({"user": "42", "channel": "b", "b64data": "/w=="});
        assert_eq!(api_error(server.address(), "subscribe", &bytes.to_string())["code"], 106);
        assert!(client.is_alive());
    }

    fn a_connection_is_refreshed(driver) {
        let server = started(driver);
        let mut client = Client::of(&server, "42");
        done(&server, "refresh", json!({"user": "42", "expire_at": unix_now() + 1000, "info": {"n": 1}}));
        let told = client.read();
        let ttl = told["push"]["refresh"]["ttl"].as_u64().expect("seconds");
        assert!((900..=1000).contains(&ttl), "{told}");
        let answer = api(server.address(), "connections", r#"{"user": "42"}"#);
        assert_eq!(answer["result"]["connections"][&client.id]["info"], json!({"n": 1}));
        done(&server, "refresh", json!({"client": client.id, "expired": true}));
        assert_eq!(client.close().0, 3005);
    }

    fn revoked_tokens_count_no_more_and_end_their_connections(driver) {
        let server = started(driver);
        let now = unix_now();
        let claims = |user: &str, id: &str, issued| json!({"sub": user, "jti": id, "iat": issued});
        let mut first = Client::with(&server, &claims("42", "a", now - 100));
        let mut second = Client::with(&server, &claims("42", "b", now - 10));
        let mut other = Client::with(&server, &claims("43", "c", now - 100));
        let refused = |claims: &Value| {
            let mut socket = websocket(server.address(), "/connection/websocket");
            let connect = json!({"id": 1, "connect": {"token": token(claims)}});
            socket.send(Message::text(connect.to_string())).expect("sent");
            match socket.read().expect("a close frame") {
                Message::Close(Some(frame)) => u16::from(frame.code),
                other => panic!("{other:?}"),
            }
        };
        done(&server, "revoke_token", json!({"uid": "a", "expire_at": now + 1000}));
        assert_eq!(first.close().0, 3500);
        assert_eq!(refused(&claims("42", "a", now - 100)), 3500);
        assert!(second.is_alive() && other.is_alive());
        done(&server, "invalidate_user_tokens", json!({"user": "42", "issued_before": now - 50}));
        assert!(second.is_alive());
        assert_eq!(refused(&claims("42", "d", now - 60)), 3500);
        done(&server, "invalidate_user_tokens", json!({"user": "42"}));
        assert_eq!(second.close().0, 3500);
        assert_eq!(refused(&json!({"sub": "42"})), 3500);
        let mut newer = Client::with(&server, &claims("42", "e", now + 1000));
        assert!(newer.is_alive() && other.is_alive());
    }

    fn connections_are_found(driver) {
        let server = started(driver);
        let with = |user: &str, meta: Value| Client::with(&server, &json!({"sub": user, "meta": meta, "jti": "t", "iat": 7}));
        let mut clients: Vec<_> = (0..3).map(|n| with("42", json!({"n": n, "device": "ios"}))).collect();
        clients.extend((0..4).map(|n| with("43", json!({"n": n, "device": "web"}))));
        clients.push(Client::connect(&server, json!({})));
        clients[4].ask(&json!({"id": 2, "subscribe": {"channel": "kept:a"}}));
        done(&server, "subscribe", json!({"client": clients[0].id, "channel": "kept:a"}));
        clients[0].read();
        assert_eq!(found(&server, json!({})), sorted(&clients));
        assert_eq!(found(&server, json!({"user": "42"})), sorted(&clients[..3]));
        assert_eq!(found(&server, json!({"user": ""})), sorted(&clients[7..]));
        assert_eq!(found(&server, json!({"client": clients[5].id})), sorted([&clients[5]]));
        assert_eq!(found(&server, json!({"meta": {"device": "web"}})), sorted(&clients[3..7]));
        let two = json!({"meta": {"device": "web", "n": 2}});
        assert_eq!(found(&server, two), sorted([&clients[5]]));
        assert_eq!(found(&server, json!({"channel": "kept:a"})), sorted([&clients[0]]));
        assert_eq!(found(&server, json!({"user": "43", "channel": "kept:a"})), Vec::<String>::new());
        let answer = api(server.address(), "connections", &json!({"client": clients[0].id}).to_string());
        let mut one = answer["result"]["connections"][&clients[0].id].clone();
        assert!(one["open_ms"].take().is_u64(), "{answer}");
        assert_eq!(one, json!({"user": "42", "transport": "websocket", "protocol": "json", "open_ms": null,
            "address": "127.0.0.1", "num_channels": 1, "state": {"channels": {"kept:a": {}}, "meta": {"n": 0, "device": "ios"},
            "connection_token": {"uid": "t", "issued_at": 7}}}));
    }

    fn requests_that_make_no_sense_are_refused(driver) {
        let server = started(driver);
        for (method, request, words) in [
            ("disconnect", json!({}), "field \"user\" is missing"),
            ("disconnect", json!({"user": "1", "disconnect": {"code": 1000}}), "code 1000 is not allowed"),
            ("disconnect", json!({"user": "1", "disconnect": {"code": 4000, "reason": "x".repeat(124)}}), "124 bytes"),
            ("unsubscribe", json!({"user": "x".repeat(256)}), "256 bytes"),
            ("subscribe", json!({"user": "1", "channel": ""}), "0 bytes"),
            ("subscribe", json!({"user": "1", "channel": "a", "expire_at": 1}), "has passed"),
            ("subscribe", json!({"user": "1", "channel": "a", "b64info": "*"}), "b64info"),
            ("refresh", json!({"user": "1", "expire_at": -1}), "has passed"),
            ("connections", json!({"cursor": "x"}), "cursor"),
            ("connections", json!({"limit": -1}), "limit"),
            ("revoke_token", json!({"uid": ""}), "1 to 255 bytes"),
            ("revoke_token", json!({"uid": "a", "expire_at": 1}), "has passed"),
            ("invalidate_user_tokens", json!({"user": ""}), "1 to 255 bytes"),
        ] {
            let error = api_error(server.address(), method, &request.to_string());
            assert_eq!(error["code"], 107, "{method} {request}: {error}");
            let detail = error["detail"].as_str().expect("a sentence");
            assert!(detail.contains(words), "{method} {request}: {detail}");
        }
        let error = api_error(server.address(), "subscribe", r#"{"user": "1", "channel": "nope:a"}"#);
        assert_eq!(error["code"], 102);
    }
}
