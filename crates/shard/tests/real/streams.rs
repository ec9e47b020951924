//! Clients of the Centrifuge protocol over HTTP: replies in a response that goes on, commands in requests of their own.

use super::node::{Driver, Node, Options};
use myriad_shard::{CloseReason, EmulatedRefused, Payload, Transport};
use myriad_wire::http::{ChunkedBody, HeadLimits, parse_response};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

on_both_drivers!(
    a_client_over_http_has_what_one_over_websocket_has,
    events_carry_the_same_messages,
    protobuf_travels_in_chunks,
    a_publication_is_encoded_once_for_each_framing,
    pings_are_answered_by_requests_of_their_own,
    commands_for_others_go_nowhere,
    a_body_may_come_in_pieces_and_in_chunks,
    bodies_that_are_none_get_their_status,
    a_body_that_does_not_come_is_answered_408,
    a_request_behind_one_that_goes_on_ends_it,
    old_clients_and_wrong_methods_are_told_so,
    a_slow_reader_of_a_stream_is_told_at_a_chunk,
    a_drain_ends_bodies_with_their_last_chunk,
    a_flood_of_commands_is_bounded_and_ends_with_its_client,
);

/// A response that goes on.
pub(crate) struct Stream {
    pub(crate) socket: TcpStream,
    pub(crate) status: u16,
    pub(crate) head: String,
    is_event: bool,
    chunks: ChunkedBody,
    data: Vec<u8>,
    lines: VecDeque<Value>,
}

impl Stream {
    /// Sends a request as it is, and reads the head of the answer.
    pub(crate) fn begin(node: &Node, request: &[u8]) -> Self {
        let mut socket = node.stream();
        socket.write_all(request).expect("a socket");
        Self::read_head(socket)
    }

    pub(crate) fn read_head(mut socket: TcpStream) -> Self {
        let mut bytes = Vec::new();
        loop {
            let head = parse_response(&bytes, HeadLimits::default()).expect("a head");
            if let Some(head) = head {
                let mut stream = Self {
                    status: head.status(),
                    head: String::from_utf8_lossy(&bytes[..head.head_bytes()]).to_lowercase(),
                    is_event: head.header("content-type") == Some(b"text/event-stream"),
                    socket,
                    chunks: ChunkedBody::default(),
                    data: Vec::new(),
                    lines: VecDeque::new(),
                };
                let rest = bytes[head.head_bytes()..].to_vec();
                if stream.status == 200 {
                    stream.take(&rest);
                }
                return stream;
            }
            let mut byte = [0];
            assert_eq!(socket.read(&mut byte).expect("an answer"), 1, "no head");
            bytes.push(byte[0]);
        }
    }

    pub(crate) fn post(node: &Node, path: &str, headers: &str, body: &[u8]) -> Self {
        Self::begin(node, &post(path, headers, body))
    }

    pub(crate) fn get(node: &Node, target: &str) -> Self {
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        Self::begin(node, request.as_bytes())
    }

    fn take(&mut self, bytes: &[u8]) {
        let taken = self.chunks.decode(bytes, &mut self.data, usize::MAX);
        assert_eq!(taken.expect("chunks"), Some(bytes.len()));
    }

    /// More of the body; false at its end.
    fn more(&mut self) -> bool {
        if self.chunks.is_done() {
            return false;
        }
        let mut bytes = [0; 16 * 1024];
        let count = self.socket.read(&mut bytes).expect("more of the body");
        assert!(count > 0, "the body ends with its last chunk");
        self.take(&bytes[..count]);
        true
    }

    /// The next message, and pings among them; none at the end of the body.
    pub(crate) fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                return Some(line);
            }
            while let Some(end) = self.data.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.data.drain(..=end).collect();
                let line = std::str::from_utf8(&line[..end])
                    .expect("UTF-8")
                    .trim_end_matches('\r');
                let line = if self.is_event {
                    line.strip_prefix("data: ").unwrap_or_else(|| {
                        let is_known = line.is_empty() || line.starts_with("id: ");
                        assert!(is_known, "a field that is no data: {line}");
                        ""
                    })
                } else {
                    line
                };
                if !line.is_empty() {
                    self.lines
                        .push_back(serde_json::from_str(line).expect(line));
                }
            }
            if self.lines.is_empty() && !self.more() {
                return None;
            }
        }
    }

    /// The next message that is no ping.
    pub(crate) fn read(&mut self) -> Value {
        loop {
            let message = self.next().expect("the body goes on");
            if message != json!({}) {
                return message;
            }
        }
    }

    /// The bytes of the body, at least so many.
    fn read_bytes(&mut self, count: usize) -> Vec<u8> {
        while self.data.len() < count {
            assert!(self.more(), "the body goes on");
        }
        std::mem::take(&mut self.data)
    }
}

pub(crate) fn post(path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: a\r\n{headers}Content-Length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

const CONNECT: &[u8] = b"{\"id\":1,\"connect\":{}}";

/// A client that has connected, and how its commands are addressed.
struct Emulated {
    stream: Stream,
    node: String,
    session: String,
}

impl Emulated {
    fn new(mut stream: Stream) -> Self {
        assert_eq!(stream.status, 200, "{}", stream.head);
        let reply = stream.read();
        assert_eq!(reply["id"], 1, "{reply}");
        let name = |field: &str| reply["connect"][field].as_str().expect(field).to_owned();
        assert_ne!(
            name("session"),
            name("client"),
            "others know the client's id"
        );
        Self {
            node: name("node"),
            session: name("session"),
            stream,
        }
    }

    fn open(node: &Node) -> Self {
        Self::new(Stream::post(node, "/connection/http_stream", "", CONNECT))
    }

    fn open_events(node: &Node) -> Self {
        let target = "/connection/sse?cf_connect=%7B%22id%22%3A1%2C%22connect%22%3A%7B%7D%7D";
        Self::new(Stream::get(node, target))
    }

    fn send(&self, node: &Node, commands: &[Value]) {
        let commands: Vec<String> = commands.iter().map(Value::to_string).collect();
        let frame = commands.join("\n");
        let taken = node
            .mesh()
            .emulate(&self.node, &self.session, frame.as_bytes());
        assert_eq!(taken, Ok(()));
    }

    fn ask(&mut self, node: &Node, command: Value) -> Value {
        self.send(node, &[command]);
        self.stream.read()
    }
}

fn a_client_over_http_has_what_one_over_websocket_has(driver: Driver) {
    let node = Node::start(driver, Options::default());
    let mut client = Emulated::open(&node);
    for header in [
        "content-type: application/x-ndjson",
        "transfer-encoding: chunked",
        "x-accel-buffering: no",
        "cache-control: private, no-cache",
    ] {
        assert!(
            client.stream.head.contains(header),
            "{}",
            client.stream.head
        );
    }
    let subscribed = client.ask(&node, json!({"id": 2, "subscribe": {"channel": "room"}}));
    assert_eq!(subscribed["id"], 2);
    assert!(subscribed["error"].is_null(), "{subscribed}");
    node.publish("room", Payload::Json("{\"n\":\n1}".into()));
    let push = client.stream.read();
    assert_eq!(push["push"]["pub"]["data"], json!({"n": 1}));
    client.send(
        &node,
        &[
            json!({"id": 3, "presence_stats": {"channel": "room"}}),
            json!({"id": 4, "publish": {"channel": "none:room"}}),
        ],
    );
    let mut both = [client.stream.read(), client.stream.read()];
    both.sort_by_key(|reply| reply["id"].as_u64());
    assert_eq!(both[0]["presence_stats"]["num_clients"], 1);
    assert_eq!(both[1]["error"]["code"], 102);
    // What breaks the protocol ends the stream with the code.
    client.send(&node, &[json!({"id": 5, "connect": {}})]);
    let last = client.stream.read();
    assert_eq!(last["push"]["disconnect"]["code"], 3501);
    assert_eq!(client.stream.next(), None);
    assert_eq!(node.closes(CloseReason::BadRequest), 1);
    drop(client);
    node.settle(|node| node.sum(|metrics| metrics.connections.value()) == 0);
    let index = Transport::HttpStreamJson as usize;
    assert_eq!(node.sum(|metrics| metrics.streams[index].value()), 1);
    assert_eq!(node.sum(|metrics| metrics.streams_ended[index].value()), 1);
    assert_eq!(node.sum(|metrics| metrics.upgrades.value()), 0);
}

fn events_carry_the_same_messages(driver: Driver) {
    let node = Node::start(driver, Options::default());
    let mut by_get = Emulated::open_events(&node);
    let mut by_post = Emulated::new(Stream::post(&node, "/connection/sse", "", CONNECT));
    for client in [&mut by_get, &mut by_post] {
        assert!(client.stream.is_event);
        let subscribed = client.ask(&node, json!({"id": 2, "subscribe": {"channel": "room"}}));
        assert_eq!(subscribed["id"], 2);
    }
    node.publish("room", Payload::Json("[1,\n\"\\n\"]".into()));
    for client in [&mut by_get, &mut by_post] {
        assert_eq!(
            client.stream.read()["push"]["pub"]["data"],
            json!([1, "\n"])
        );
    }
    let refused = Stream::get(&node, "/connection/sse");
    assert_eq!(refused.status, 400);
    let refused = Stream::get(&node, "/connection/sse?cf_connect=");
    assert_eq!(refused.status, 400);
}

fn protobuf_travels_in_chunks(driver: Driver) {
    let node = Node::start(driver, Options::default());
    let binary = "Content-Type: application/octet-stream\r\n";
    // A command with id 1 and an empty connect request.
    let connect = [4, 0x08, 1, 0x22, 0];
    let mut stream = Stream::post(&node, "/connection/http_stream", binary, &connect);
    assert!(
        stream
            .head
            .contains("content-type: application/octet-stream")
    );
    let reply = stream.read_bytes(3);
    assert_eq!(
        usize::from(reply[0]) + 1,
        reply.len(),
        "a reply behind its length"
    );
    let text = String::from_utf8_lossy(&reply);
    assert!(text.contains(node.mesh().node()));
    let session = (0..text.len())
        .filter_map(|start| text.get(start..start + 36))
        .filter(|id| {
            id.matches('-').count() == 4 && id.chars().all(|c| c == '-' || c.is_ascii_hexdigit())
        })
        .nth(1)
        .expect("a session behind the client's id")
        .to_owned();
    // A command with id 2 that subscribes to x.
    let subscribe = [7, 0x08, 2, 0x2a, 3, 0x0a, 1, b'x'];
    let taken = node
        .mesh()
        .emulate(node.mesh().node(), &session, &subscribe);
    assert_eq!(taken, Ok(()));
    assert_eq!(stream.read_bytes(5)[1..3], [0x08, 2]);
    node.publish("x", Payload::Binary(vec![0, 255].into()));
    let push = stream.read_bytes(4);
    let data = [0x22, 2, 0, 255];
    assert!(push.windows(4).any(|bytes| bytes == data), "{push:?}");
}

fn a_publication_is_encoded_once_for_each_framing(driver: Driver) {
    let node = Node::start(driver, Options::default());
    let mut clients: Vec<_> = (0..20)
        .map(|nth| match nth % 2 {
            0 => Emulated::open(&node),
            _ => Emulated::open_events(&node),
        })
        .collect();
    let mut web_socket = super::client::Client::open(&node);
    web_socket.ask(&json!({"id": 2, "subscribe": {"channel": "room"}}));
    for client in &mut clients {
        client.ask(&node, json!({"id": 2, "subscribe": {"channel": "room"}}));
    }
    for n in 0..50 {
        node.publish("room", Payload::Json(n.to_string().into()));
    }
    let mut pushes = Vec::new();
    while pushes.len() < 50 {
        pushes.extend(web_socket.read_lines());
    }
    for (n, push) in pushes.iter().enumerate() {
        assert_eq!(push["push"]["pub"]["data"], n);
        for client in &mut clients {
            assert_eq!(client.stream.read()["push"]["pub"]["data"], n);
        }
    }
}

fn pings_are_answered_by_requests_of_their_own(driver: Driver) {
    let options = Options {
        // Time enough for an answer where the machine is slow.
        ping_interval: Duration::from_secs(2),
        pong_timeout: Duration::from_secs(2),
        ..Options::default()
    };
    let node = Node::start(driver, options);
    let mut client = Emulated::open(&node);
    // The second comes when the answer to the first is due.
    for _ in 0..2 {
        assert_eq!(client.stream.next(), Some(json!({})));
        client.send(&node, &[json!({})]);
    }
    // Now it is silent.
    let last = client.stream.read();
    assert_eq!(last["push"]["disconnect"]["code"], 3012);
    assert_eq!(client.stream.next(), None);
    assert_eq!(node.closes(CloseReason::PongTimeout), 1);
}

fn commands_for_others_go_nowhere(driver: Driver) {
    let node = Node::start(driver, Options::default());
    let mut client = Emulated::open(&node);
    let mut other = super::client::Client::open(&node);
    let frame = b"{\"id\":9,\"subscribe\":{\"channel\":\"room\"}}";
    let refused = Err(EmulatedRefused::UnknownNode);
    assert_eq!(node.mesh().emulate("", &client.session, frame), refused);
    assert_eq!(
        node.mesh()
            .emulate("0123456789abcdef", &client.session, frame),
        refused
    );
    // Another client knows the client's id, for example from a list of members.
    let members = client.ask(&node, json!({"id": 2, "subscribe": {"channel": "room"}}));
    assert_eq!(members["id"], 2);
    let members = other.ask(&json!({"id": 2, "presence": {"channel": "room"}}));
    let members = members["presence"]["presence"]
        .as_object()
        .expect("members");
    let client_id = members.keys().next().expect("one").clone();
    for session in [
        client_id.as_str(),
        "",
        "00000000-0000-8000-8000-000000000000",
        "no session",
        &client.session.to_uppercase(),
        &"x".repeat(60_000),
    ] {
        assert_eq!(node.mesh().emulate(&client.node, session, frame), Ok(()));
    }
    // Changed in any digit, it is nobody's.
    for place in 0..client.session.len() {
        let mut forged = client.session.clone();
        let digit = if &forged[place..=place] == "0" {
            "1"
        } else {
            "0"
        };
        forged.replace_range(place..=place, digit);
        assert_eq!(node.mesh().emulate(&client.node, &forged, frame), Ok(()));
    }
    let stats = client.ask(
        &node,
        json!({"id": 3, "presence_stats": {"channel": "room"}}),
    );
    assert_eq!(stats["id"], 3, "nothing came of all that: {stats}");
    // After its end, a session is nobody's either.
    let (session, name) = (client.session.clone(), client.node.clone());
    drop(client);
    node.settle(|node| node.sum(|metrics| metrics.connections.value()) == 1);
    let before = node.sum(|metrics| metrics.emulated_dropped.value());
    let mut next = Emulated::open(&node);
    assert_eq!(node.mesh().emulate(&name, &session, frame), Ok(()));
    node.settle(|node| node.sum(|metrics| metrics.emulated_dropped.value()) == before + 1);
    assert_eq!(
        next.ask(
            &node,
            json!({"id": 4, "presence_stats": {"channel": "room"}})
        )["id"],
        4
    );
}

fn a_body_may_come_in_pieces_and_in_chunks(driver: Driver) {
    let node = Node::start(driver, Options::default());
    let request = post("/connection/http_stream", "", CONNECT);
    let chunked =
        b"POST /connection/http_stream HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                    5\r\n{\"id\"\r\n11\r\n:1,\"connect\":{}}\n\r\n0\r\nTracer: x\r\n\r\n";
    for whole in [&request[..], chunked] {
        for cut in (1..whole.len()).step_by(7) {
            let mut socket = node.stream();
            socket.set_nodelay(true).expect("a socket");
            socket.write_all(&whole[..cut]).expect("sent");
            std::thread::yield_now();
            socket.write_all(&whole[cut..]).expect("sent");
            let mut stream = Stream::read_head(socket);
            assert_eq!(stream.status, 200, "cut at {cut}");
            assert_eq!(stream.read()["id"], 1);
        }
    }
}

fn bodies_that_are_none_get_their_status(driver: Driver) {
    let node = Node::start(driver, Options::default());
    let path = "/connection/http_stream";
    let status = |request: &[u8]| Stream::begin(&node, request).status;
    assert_eq!(status(&post(path, "", b"")), 400);
    let large = format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 65537\r\n\r\n");
    assert_eq!(status(large.as_bytes()), 413);
    let chunked = format!("POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    let endless = [chunked.as_bytes(), b"10001\r\n", &[b' '; 65_537]].concat();
    assert_eq!(status(&endless), 413);
    for broken in ["x\r\n", "5\nhello", "2\r\n{}}\r\n", "-1\r\n"] {
        assert_eq!(
            status(format!("{chunked}{broken}").as_bytes()),
            400,
            "{broken}"
        );
    }
    let both = format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    assert_eq!(status(both.as_bytes()), 400);
    let waits = format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    );
    assert_eq!(status(waits.as_bytes()), 417);
    assert_eq!(
        status(b"GET /connection/sse?cf_connect=%7B%7D HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n"),
        400
    );
    // What is no command is told in the stream.
    let mut stream = Stream::post(&node, path, "", b"no command");
    assert_eq!(stream.status, 200);
    assert_eq!(stream.read()["push"]["disconnect"]["code"], 3501);
    assert_eq!(stream.next(), None);
    let mut stream = Stream::post(
        &node,
        path,
        "",
        b"{\"id\":1,\"publish\":{\"channel\":\"a\"}}",
    );
    assert_eq!(stream.read()["push"]["disconnect"]["code"], 3501);
}

fn a_body_that_does_not_come_is_answered_408(driver: Driver) {
    let options = Options {
        handshake_timeout: Duration::from_millis(200),
        ..Options::default()
    };
    let node = Node::start(driver, options);
    let request = post("/connection/http_stream", "", CONNECT);
    let stream = Stream::begin(&node, &request[..request.len() - 1]);
    assert_eq!(stream.status, 408);
    assert_eq!(node.closes(CloseReason::HandshakeTimeout), 1);
    node.settle(|node| node.sum(|metrics| metrics.buffered_bytes.value()) == 0);
}

fn a_request_behind_one_that_goes_on_ends_it(driver: Driver) {
    let node = Node::start(driver, Options::default());
    let request = post("/connection/http_stream", "", CONNECT);
    // At once, and later.
    let mut stream = Stream::begin(&node, &[&request[..], &request].concat());
    let last = stream.read();
    assert_eq!(last["push"]["disconnect"]["code"], 1002, "{last}");
    assert_eq!(stream.next(), None, "the second request is not answered");
    let mut client = Emulated::open(&node);
    client.stream.socket.write_all(b"\r\n").expect("sent");
    assert_eq!(
        client.ask(&node, json!({"id": 2, "unsubscribe": {"channel": "a"}}))["id"],
        2
    );
    client
        .stream
        .socket
        .write_all(b"GET / HTTP/1.1\r\n")
        .expect("sent");
    assert_eq!(client.stream.read()["push"]["disconnect"]["code"], 1002);
    assert_eq!(client.stream.next(), None);
    assert_eq!(node.closes(CloseReason::Protocol), 2);
}

fn old_clients_and_wrong_methods_are_told_so(driver: Driver) {
    let node = Node::start(driver, Options::default());
    let status = |request: &str| Stream::begin(&node, request.as_bytes()).status;
    let old = "POST /connection/http_stream HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}";
    assert_eq!(status(old), 505);
    for (method, path) in [
        ("GET", "http_stream"),
        ("PUT", "http_stream"),
        ("HEAD", "sse"),
        ("DELETE", "sse"),
        ("GET", "uni_http_stream"),
        ("PUT", "uni_sse"),
    ] {
        let request = format!("{method} /connection/{path} HTTP/1.1\r\nHost: a\r\n\r\n");
        let stream = Stream::begin(&node, request.as_bytes());
        assert_eq!(stream.status, 405, "{method} {path}");
        assert!(stream.head.contains("allow: "), "{}", stream.head);
    }
    let mut socket = node.stream();
    let preflight = b"OPTIONS /connection/http_stream HTTP/1.1\r\nHost: a\r\n\r\n";
    socket.write_all(preflight).expect("sent");
    assert_eq!(
        node.handed_over().1,
        preflight,
        "browsers' questions go to the control plane"
    );
}

fn a_slow_reader_of_a_stream_is_told_at_a_chunk(driver: Driver) {
    let options = Options {
        outbound_bytes_max: 100_000,
        ..Options::default()
    };
    let node = Node::start(driver, options);
    let mut client = Emulated::open(&node);
    client.ask(&node, json!({"id": 2, "subscribe": {"channel": "room"}}));
    let long = format!("\"{}\"", "x".repeat(20_000));
    let ended = |node: &Node| node.closes(CloseReason::SlowConsumer) == 1;
    while !ended(&node) {
        let published = node.publish("room", Payload::Json(long.as_str().into()));
        // No faster than deliveries: what waits between shards is bounded, too.
        node.settle(|node| {
            ended(node) || node.sum(|metrics| metrics.deliveries.value()) >= published
        });
    }
    // It reads now: whole messages, then the reason, then the end of the body.
    let mut last = Value::Null;
    while let Some(message) = client.stream.next() {
        last = message;
    }
    assert_eq!(last["push"]["disconnect"]["code"], 3008);
}

fn a_drain_ends_bodies_with_their_last_chunk(driver: Driver) {
    let node = Node::start(driver, Options::default());
    let mut clients = [Emulated::open(&node), Emulated::open_events(&node)];
    let mut waiting = node.stream();
    let request = post("/connection/http_stream", "", CONNECT);
    waiting
        .write_all(&request[..request.len() - 3])
        .expect("sent");
    node.settle(|node| node.sum(|metrics| metrics.connections.value()) == 3);
    node.drain(Duration::from_millis(100));
    for client in &mut clients {
        assert_eq!(client.stream.read()["push"]["disconnect"]["code"], 3001);
        assert_eq!(client.stream.next(), None);
    }
    drop(clients);
    assert_eq!(Stream::read_head(waiting).status, 503);
    node.finish();
}

fn a_flood_of_commands_is_bounded_and_ends_with_its_client(driver: Driver) {
    let node = Node::start(driver, Options::default());
    let client = Emulated::open(&node);
    let frame = vec![b' '; 60_000];
    let mut refused = 0;
    for _ in 0..10_000 {
        match node.mesh().emulate(&client.node, &client.session, &frame) {
            Ok(()) => {}
            Err(EmulatedRefused::Busy) => refused += 1,
            Err(EmulatedRefused::UnknownNode) => panic!("it is this node"),
        }
    }
    // The first one has ended it: the frame is no command.
    node.settle(|node| node.closes(CloseReason::BadRequest) == 1);
    node.settle(|node| {
        let dropped = node.sum(|metrics| metrics.emulated_dropped.value());
        dropped + refused + 1 == 10_000
    });
    let mut other = Emulated::open(&node);
    assert_eq!(
        other.ask(&node, json!({"id": 2, "unsubscribe": {"channel": "a"}}))["id"],
        2
    );
}
