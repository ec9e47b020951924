//! Clients without commands: their connect request, and bare pushes.

use super::node::{Driver, Node, Options};
use super::streams::{Stream, post};
use myriad_shard::{
    Access, AskAnswer, ChannelOptions, ClientOptions, CloseReason, ConnectGrant, ErrorCode,
    HttpRefusal, Namespaces, Payload, Question, Right, SubscribeGrant,
};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use tungstenite::{Message, WebSocket};

on_both_drivers!(
    pushes_are_bare_on_each_transport,
    a_connect_request_may_come_first_on_a_websocket,
    pings_want_no_answer,
    errors_of_the_connect_request_end_the_connection,
    the_operator_chooses_the_response_to_who_may_not_connect,
    the_application_grants_subscriptions,
    what_it_missed_is_in_the_connect_push,
    an_event_source_goes_on_where_it_was,
);

/// A client without commands, on one of the transports.
enum Uni {
    /// Over HTTP. The head of the answer comes when the client has connected.
    Asked(TcpStream),
    Http(Box<Stream>),
    WebSocket(Box<WebSocket<TcpStream>>),
}

impl Uni {
    /// How many ways there are to send a connect request.
    const WAYS: std::ops::Range<usize> = 0..4;

    fn open(node: &Node, way: usize, request: &str) -> Self {
        let encoded: String = request.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let ask = |request: &[u8]| {
            let mut socket = node.stream();
            socket.write_all(request).expect("a socket");
            Self::Asked(socket)
        };
        let post = |path| ask(&post(path, "", request.as_bytes()));
        match way {
            0 => {
                let target = format!("/connection/uni_sse?cf_connect={encoded}");
                ask(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())
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
                Self::Asked(socket) => {
                    let socket = socket.try_clone().expect("a descriptor");
                    *self = Self::Http(Stream::read_head(socket).into());
                    continue;
                }
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

    /// The status of a refusal; over WebSocket the code of the close.
    fn refused(&mut self) -> u64 {
        if let Self::Asked(socket) = self {
            let socket = socket.try_clone().expect("a descriptor");
            return Stream::read_head(socket).status.into();
        }
        let told = self.read();
        assert_eq!(self.next(), None);
        told["disconnect"]["code"].as_u64().expect("a code")
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
        assert_eq!(connect["session"], connect["client"]);
        for absent in ["node", "pong"] {
            assert!(!connect.contains_key(absent), "{absent}");
        }
        node.publish("room", Payload::Json("{\"n\":\n1}".into()));
        node.publish("room", Payload::Json("2".into()));
        let first = client.read();
        let offset = first["pub"]["offset"].as_u64();
        let mut expected = json!({"channel": "room", "pub": {"data": {"n": 1}, "offset": offset}});
        if offset == Some(1) {
            // The first publication of an epoch tells it.
            assert!(first["pub"]["epoch"].is_string());
            expected["pub"]["epoch"] = first["pub"]["epoch"].clone();
        }
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
        (ErrorCode::TooManyRequests, 3013),
        (ErrorCode::Internal, 3004),
    ] {
        for way in Uni::WAYS {
            let mut client = Uni::open(&node, way, "{}");
            node.answer(node.asked(), error);
            assert_eq!(client.read()["disconnect"]["code"], code);
            assert_eq!(client.next(), None);
        }
    }
    // A browser would come back after a stream that ends, with the same request.
    for (error, code, status) in [
        (ErrorCode::PermissionDenied, 3507, 403),
        (ErrorCode::TokenExpired, 3005, 401),
    ] {
        for way in Uni::WAYS {
            let mut client = Uni::open(&node, way, "{}");
            node.answer(node.asked(), error);
            let is_web_socket = matches!(client, Uni::WebSocket(_));
            assert_eq!(client.refused(), if is_web_socket { code } else { status });
        }
    }
    for path in ["/connection/uni_sse", "/connection/uni_http_stream"] {
        let refused = Stream::post(&node, path, "", b"{\"token\":\"x\"}");
        assert_eq!(refused.status, 401, "{path}");
        assert!(
            refused.head.contains("www-authenticate: bearer"),
            "{}",
            refused.head
        );
    }
}

fn the_operator_chooses_the_response_to_who_may_not_connect(driver: Driver) {
    let access = Access {
        connect_proxy: true,
        ..Access::default()
    };
    let wish = |code, status, body: &str| HttpRefusal {
        code,
        status,
        body: Some(body.into()),
    };
    let client = ClientOptions {
        http_refusals: [wish(3507, 410, "gone"), wish(3004, 503, "later")].into(),
        ..ClientOptions::default()
    };
    let options = Options {
        access,
        client,
        holds_asks: true,
        ..Options::default()
    };
    let node = Node::start(driver, options);
    for (error, code, status) in [
        (ErrorCode::PermissionDenied, 3507, 410),
        // Without a wish such a client comes back after its stream.
        (ErrorCode::Internal, 3004, 503),
    ] {
        for way in Uni::WAYS {
            let mut client = Uni::open(&node, way, "{}");
            node.answer(node.asked(), error);
            let is_web_socket = matches!(client, Uni::WebSocket(_));
            assert_eq!(client.refused(), if is_web_socket { code } else { status });
        }
    }
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

/// Reads until the text has this.
fn read_until(socket: &mut TcpStream, wanted: &str) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if text.contains(wanted) && text.ends_with("\n\n\r\n") {
            return text;
        }
        let mut more = [0; 1024];
        let count = socket.read(&mut more).expect("more");
        assert!(count > 0, "{text}");
        bytes.extend_from_slice(&more[..count]);
    }
}

/// The last id in an event stream.
fn last_id(text: &str) -> &str {
    let mut ids = text.lines().filter_map(|line| line.strip_prefix("id: "));
    ids.next_back().expect("an id")
}

fn an_event_source_goes_on_where_it_was(driver: Driver) {
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
    let publish = |n: u32| node.publish("a%b", Payload::Json(n.to_string().into()));
    publish(1);
    let request = "%7B%22subs%22%3A%7B%22a%25b%22%3A%7B%7D%7D%7D";
    let open = |query: &str, headers: &str| {
        let target = format!("/connection/uni_sse?cf_connect={request}{query}");
        let mut socket = node.stream();
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n{headers}\r\n");
        socket.write_all(request.as_bytes()).expect("a socket");
        socket
    };
    // It leaves before anything is published.
    let mut first = open("", "");
    let text = read_until(&mut first, "id: ");
    let begun = last_id(&text).to_owned();
    drop(first);
    publish(2);
    let mut second = open("", &format!("Last-Event-ID: {begun}\r\n"));
    let text = read_until(&mut second, "id: ");
    assert!(
        text.contains("\"recovered\":true") && text.contains("\"data\":2"),
        "{text}"
    );
    assert!(!text.contains("\"data\":1"), "{text}");
    publish(3);
    let text = read_until(&mut second, "\"data\":3");
    let third = last_id(&text).to_owned();
    drop(second);
    publish(4);
    // Programs that cannot set a header say it in the query.
    let escaped: String = third.bytes().map(|byte| format!("%{byte:02x}")).collect();
    for name in ["lastEventId", "last_event_id"] {
        let mut back = open(&format!("&{name}={escaped}"), "");
        let text = read_until(&mut back, "id: ");
        assert!(
            text.contains("\"data\":4") && !text.contains("\"data\":3"),
            "{text}"
        );
    }
    // Programs that fetch send the request as a body, whole or in two pieces.
    for cut in [0, 9] {
        let body = r#"{"subs":{"a%b":{}}}"#;
        let length = body.len();
        let head = format!(
            "POST /connection/uni_sse HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\nLast-Event-ID: {third}\r\n\r\n"
        );
        let mut back = node.stream();
        back.write_all(head.as_bytes()).expect("a socket");
        back.write_all(&body.as_bytes()[..cut]).expect("a socket");
        back.write_all(&body.as_bytes()[cut..]).expect("a socket");
        let text = read_until(&mut back, "id: ");
        assert!(
            text.contains("\"data\":4") && !text.contains("\"data\":3"),
            "{text}"
        );
    }
    // What was not made here says nothing.
    let mut other = open("", "Last-Event-ID: 7\r\n");
    let text = read_until(&mut other, "id: ");
    assert!(!text.contains("\"data\""), "{text}");
}
