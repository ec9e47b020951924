//! Clients without commands: their connect request, and bare pushes.

use super::node::{Driver, Node, Options};
use super::streams::Stream;
use myriad_shard::{
    Access, AskAnswer, ChannelOptions, ClientOptions, CloseReason, ConnectGrant, ErrorCode,
    Namespaces, Payload, Question, Right, SubscribeGrant,
};
use serde_json::{Value, json};
use std::net::TcpStream;
use std::time::Duration;
use tungstenite::{Message, WebSocket};

on_both_drivers!(
    pushes_are_bare_on_each_transport,
    a_connect_request_may_come_first_on_a_websocket,
    pings_want_no_answer,
    errors_of_the_connect_request_end_the_connection,
    the_application_grants_subscriptions,
    what_it_missed_is_in_the_connect_push,
);

/// A client without commands, on one of the transports.
enum Uni {
    Http(Box<Stream>),
    WebSocket(Box<WebSocket<TcpStream>>),
}

impl Uni {
    /// How many ways there are to send a connect request.
    const WAYS: std::ops::Range<usize> = 0..4;

    fn open(node: &Node, way: usize, request: &str) -> Self {
        let encoded: String = request.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let post = |path| Self::Http(Stream::post(node, path, "", request.as_bytes()).into());
        match way {
            0 => {
                let target = format!("/connection/uni_sse?cf_connect={encoded}");
                Self::Http(Stream::get(node, &target).into())
            }
            1 => post("/connection/uni_sse"),
            2 => post("/connection/uni_http_stream"),
            _ => {
                let target = format!("/connection/uni_websocket?cf_connect={encoded}");
                Self::WebSocket(node.connect(&target).into())
            }
        }
    }

    /// The next push; pings are none. None at the end.
    fn next(&mut self) -> Option<Value> {
        loop {
            let push = match self {
                Self::Http(stream) => stream.next()?,
                Self::WebSocket(socket) => match socket.read().expect("a frame") {
                    Message::Text(text) => serde_json::from_str(&text).expect("one push"),
                    Message::Close(_) => return None,
                    Message::Ping(_) => continue,
                    other => panic!("{other:?}"),
                },
            };
            if push != json!({}) {
                return Some(push);
            }
        }
    }

    fn read(&mut self) -> Value {
        self.next().expect("a push")
    }
}

/// Clients may have what they ask for in their connect request.
fn open_to_all() -> Options {
    let client = ClientOptions {
        insecure: true,
        ..ClientOptions::default()
    };
    Options {
        client,
        ..Options::default()
    }
}

fn pushes_are_bare_on_each_transport(driver: Driver) {
    let node = Node::start(driver, open_to_all());
    for way in Uni::WAYS {
        let mut client = Uni::open(&node, way, "{\"subs\": {\"room\": {}}}");
        let connect = client.read();
        let connect = connect["connect"].as_object().expect("connect comes first");
        assert!(connect["client"].is_string() && connect["version"].is_string());
        assert!(connect["subs"]["room"].is_object(), "{connect:?}");
        for absent in ["session", "node", "pong"] {
            assert!(!connect.contains_key(absent), "{absent}");
        }
        node.publish("room", Payload::Json("{\"n\":\n1}".into()));
        node.publish("room", Payload::Json("2".into()));
        let first = client.read();
        let offset = first["pub"]["offset"].as_u64();
        let expected = json!({"channel": "room", "pub": {"data": {"n": 1}, "offset": offset}});
        assert_eq!(first, expected);
        assert_eq!(client.read()["pub"]["data"], 2);
        if let Uni::WebSocket(socket) = &mut client {
            // It may say what it likes.
            socket.send(Message::text("{\"id\":1}")).expect("sent");
            socket.send(Message::text("no JSON")).expect("sent");
            node.publish("room", Payload::Json("3".into()));
            assert_eq!(client.read()["pub"]["data"], 3);
        }
    }
    let mut clients = Uni::WAYS
        .map(|way| Uni::open(&node, way, "{}"))
        .collect::<Vec<_>>();
    for client in &mut clients {
        client.read();
    }
    node.drain(Duration::from_millis(50));
    for client in &mut clients {
        let last = client.read();
        assert_eq!(
            last,
            json!({"disconnect": {"code": 3001, "reason": "shutdown"}})
        );
        assert_eq!(client.next(), None);
    }
}

fn a_connect_request_may_come_first_on_a_websocket(driver: Driver) {
    let node = Node::start(driver, open_to_all());
    let mut socket = node.connect("/connection/uni_websocket");
    socket
        .send(Message::text("{\"subs\":{\"a\":{}}}"))
        .expect("sent");
    let mut client = Uni::WebSocket(socket.into());
    assert!(client.read()["connect"]["subs"]["a"].is_object());
    // A connect request is an object and nothing more.
    for broken in ["{},\"publish\":{\"channel\":\"a\"}", "", "[1]", "null", "{"] {
        let mut socket = node.connect("/connection/uni_websocket");
        socket.send(Message::text(broken)).expect("sent");
        let mut client = Uni::WebSocket(socket.into());
        assert_eq!(client.read()["disconnect"]["code"], 3501, "{broken}");
        assert_eq!(client.next(), None);
    }
    for broken in ["{},\"publish\":{\"channel\":\"a\"}", "", "{"] {
        let stream = Stream::post(&node, "/connection/uni_http_stream", "", broken.as_bytes());
        assert_eq!(stream.status, 400, "{broken}");
    }
    let mut stream = Stream::get(&node, "/connection/uni_sse");
    assert!(
        stream.read()["connect"].is_object(),
        "nothing is an empty request"
    );
}

fn pings_want_no_answer(driver: Driver) {
    let options = Options {
        ping_interval: Duration::from_millis(100),
        pong_timeout: Duration::from_millis(50),
        idle_timeout: Duration::from_millis(200),
        ..open_to_all()
    };
    let node = Node::start(driver, options);
    let mut stream = Stream::get(&node, "/connection/uni_sse");
    let connect = stream.read();
    assert_eq!(connect["connect"]["ping"], 1, "whole seconds, rounded up");
    for _ in 0..8 {
        assert_eq!(stream.next(), Some(json!({})));
    }
    assert_eq!(
        node.closes(CloseReason::PongTimeout) + node.closes(CloseReason::Idle),
        0
    );
    // A WebSocket answers by itself, if somebody is there. It has the time for that where the machine is slow.
    let options = Options {
        ping_interval: Duration::from_secs(2),
        pong_timeout: Duration::from_secs(2),
        idle_timeout: Duration::from_secs(6),
        ..open_to_all()
    };
    let node = Node::start(driver, options);
    let mut socket = node.connect("/connection/uni_websocket?cf_connect=%7B%7D");
    let (mut pings, mut pushes) = (0, 0);
    // The second comes when the answer to the first is due.
    while pings < 2 {
        match socket.read().expect("a frame") {
            Message::Ping(_) => pings += 1,
            Message::Text(text) if text.as_str() == "{}" => pushes += 1,
            other => assert!(other.to_text().expect("text").contains("connect")),
        }
    }
    assert!((1..=2).contains(&pushes), "{pushes}");
    node.settle(|node| node.closes(CloseReason::PongTimeout) + node.closes(CloseReason::Idle) == 1);
}

fn errors_of_the_connect_request_end_the_connection(driver: Driver) {
    let access = Access {
        connect_proxy: true,
        ..Access::default()
    };
    let options = Options {
        access,
        holds_asks: true,
        ..Options::default()
    };
    let node = Node::start(driver, options);
    for (error, code) in [
        (ErrorCode::PermissionDenied, 3507),
        (ErrorCode::TooManyRequests, 3013),
        (ErrorCode::Internal, 3004),
        (ErrorCode::TokenExpired, 3005),
    ] {
        for way in Uni::WAYS {
            let mut client = Uni::open(&node, way, "{}");
            node.answer(node.asked(), error);
            assert_eq!(client.read()["disconnect"]["code"], code);
            assert_eq!(client.next(), None);
        }
    }
    let token = Stream::post(
        &node,
        "/connection/uni_http_stream",
        "",
        b"{\"token\":\"x\"}",
    );
    let mut client = Uni::Http(token.into());
    assert_eq!(client.read()["disconnect"]["code"], 3500);
}

fn the_application_grants_subscriptions(driver: Driver) {
    let access = Access {
        connect_proxy: true,
        ..Access::default()
    };
    let options = Options {
        access,
        holds_asks: true,
        ..Options::default()
    };
    let node = Node::start(driver, options);
    let names = ["uni_sse", "uni_sse", "uni_http_stream", "uni_websocket"];
    for way in Uni::WAYS {
        let mut client = Uni::open(&node, way, "{\"data\":{\"a\":1},\"name\":\"js\"}");
        let ask = node.asked();
        assert_eq!(ask.asker().protocol, "json");
        assert_eq!(ask.asker().transport, names[way]);
        let Question::Connect { name, data, .. } = ask.question() else {
            panic!("{:?}", ask.question());
        };
        assert_eq!(
            (&**name, data),
            ("js", &Some(Payload::Json("{\"a\":1}".into())))
        );
        let grant = ConnectGrant {
            user: Some("42".into()),
            subscriptions: vec![("news".into(), SubscribeGrant::default())],
            ..ConnectGrant::default()
        };
        node.grant(ask, AskAnswer::Connect(grant.into()));
        assert!(client.read()["connect"]["subs"]["news"].is_object());
        node.publish("news", Payload::Json("1".into()));
        assert_eq!(client.read()["channel"], "news");
        // Bytes have no form in JSON: they are left out.
        node.publish("news", Payload::Binary(vec![1].into()));
        node.publish("news", Payload::Json("2".into()));
        assert_eq!(client.read()["pub"]["data"], 2);
    }
}

fn what_it_missed_is_in_the_connect_push(driver: Driver) {
    let kept = ChannelOptions {
        history_size: 10,
        history_ttl: Duration::from_secs(60),
        force_recovery: true,
        subscribe: Right::ALL,
        ..ChannelOptions::default()
    };
    let options = Options {
        namespaces: Namespaces::new(kept, []),
        ..open_to_all()
    };
    let node = Node::start(driver, options);
    for n in 0..3 {
        node.publish("room", Payload::Json(n.to_string().into()));
    }
    let request = "{\"subs\":{\"room\":{\"recover\":true,\"offset\":1}}}";
    for way in Uni::WAYS {
        let mut client = Uni::open(&node, way, request);
        let connect = client.read();
        let room = &connect["connect"]["subs"]["room"];
        assert_eq!(room["recovered"], true, "{room}");
        let missed = room["publications"].as_array().expect("publications");
        assert_eq!(missed.len(), 2);
    }
}
