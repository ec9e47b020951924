//! Channels read as streams over HTTP: held requests, events, and what comes behind them on a connection.

use super::node::{Driver, Node, Options, UPGRADE};
use myriad_shard::{CloseReason, Metrics, Payload, ReaderSettings};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

on_both_drivers!(
    a_reader_catches_up_and_waits_on_one_connection,
    held_requests_share_an_answer_on_every_shard,
    a_held_request_ends_at_its_time,
    pipelined_requests_are_answered_in_their_order,
    a_client_that_has_sent_its_last_request_gets_all_answers,
    behind_the_last_request_nothing_is_held,
    a_stream_of_events_is_live_after_what_it_missed,
    a_client_that_reads_nothing_gives_its_memory_back,
    what_comes_behind_a_request_for_events_is_not_kept,
    what_cannot_be_read_is_refused,
    another_transport_may_follow_a_stream,
    a_drain_answers_held_requests,
    too_much_behind_a_held_request_ends_it,
);

fn node(driver: Driver) -> Node {
    with_polls(driver, Duration::from_secs(60), Duration::from_secs(60))
}

fn with_polls(driver: Driver, poll_min: Duration, poll_max: Duration) -> Node {
    let readers = ReaderSettings {
        poll_min,
        poll_max,
        ..ReaderSettings::default()
    };
    Node::start(
        driver,
        Options {
            readers,
            ..Options::default()
        },
    )
}

pub(super) fn publish(node: &Node, json: &str) {
    node.publish("s", Payload::Json(json.into()));
}

/// A client that reads answers one after another.
pub(super) struct Client {
    pub(super) stream: TcpStream,
    rest: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Answer {
    head: String,
    pub(super) body: String,
}

impl Answer {
    pub(super) fn status(&self) -> &str {
        &self.head[9..12]
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    }

    pub(super) fn next(&self) -> &str {
        self.header("stream-next-offset").expect("an offset")
    }
}

impl Client {
    pub(super) fn open(node: &Node) -> Self {
        Self {
            stream: node.stream(),
            rest: Vec::new(),
        }
    }

    pub(super) fn ask(&mut self, query: &str) {
        self.ask_with(query, "");
    }

    pub(super) fn ask_with(&mut self, query: &str, headers: &str) {
        let request = format!("GET /v1/stream/s{query} HTTP/1.1\r\nHost: a\r\n{headers}\r\n");
        self.stream.write_all(request.as_bytes()).expect("a socket");
    }

    pub(super) fn read_until(&mut self, end: &str) -> String {
        let mut buffer = [0; 4096];
        loop {
            let text = String::from_utf8_lossy(&self.rest).into_owned();
            if let Some(at) = text.find(end) {
                return String::from_utf8(self.rest.drain(..at + end.len()).collect())
                    .expect("text");
            }
            let read = self.stream.read(&mut buffer).expect("bytes in time");
            assert!(read > 0, "the connection has ended behind {text:?}");
            self.rest.extend_from_slice(&buffer[..read]);
        }
    }

    pub(super) fn answer(&mut self) -> Answer {
        let head = self.read_until("\r\n\r\n");
        let mut answer = Answer {
            head,
            body: String::new(),
        };
        let length = answer
            .header("content-length")
            .map_or(0, |value| value.parse().expect("a number"));
        let mut buffer = [0; 4096];
        while self.rest.len() < length {
            let read = self.stream.read(&mut buffer).expect("bytes in time");
            assert!(read > 0, "the connection has ended in a body");
            self.rest.extend_from_slice(&buffer[..read]);
        }
        answer.body = String::from_utf8(self.rest.drain(..length).collect()).expect("text");
        answer
    }

    pub(super) fn read_to_end(&mut self) -> String {
        let _ = self.stream.read_to_end(&mut self.rest);
        String::from_utf8(std::mem::take(&mut self.rest)).expect("text")
    }
}

pub(super) fn parked(node: &Node, count: u64) {
    node.settle(|node| node.sum(|metrics| metrics.parked_polls.value()) == count);
}

fn a_reader_catches_up_and_waits_on_one_connection(driver: Driver) {
    let node = node(driver);
    publish(&node, "1");
    publish(&node, "2");
    let mut client = Client::open(&node);
    client.ask("");
    let first = client.answer();
    assert_eq!((first.status(), first.body.as_str()), ("200", "[1,2]"));
    assert_eq!(first.header("stream-up-to-date"), Some("true"));
    client.ask_with(
        "",
        &format!(
            "If-None-Match: {}\r\n",
            first.header("etag").expect("a tag")
        ),
    );
    assert_eq!(client.answer().status(), "304");
    client.ask(&format!("?offset={}&live=long-poll", first.next()));
    parked(&node, 1);
    publish(&node, "3");
    let second = client.answer();
    assert_eq!((second.status(), second.body.as_str()), ("200", "[3]"));
    assert!(second.header("stream-cursor").is_some());
    // What came between two polls is there at once.
    publish(&node, "4");
    client.ask(&format!("?offset={}&live=long-poll", second.next()));
    let third = client.answer();
    assert_eq!(third.body, "[4]");
    for n in 5..20 {
        // The figures are those of the last turn's end.
        parked(&node, 0);
        client.ask("?offset=now&live=long-poll");
        parked(&node, 1);
        publish(&node, &n.to_string());
        assert_eq!(client.answer().body, format!("[{n}]"));
    }
    assert!(third.next() > second.next() && second.next() > first.next());
    drop(client);
    node.settle(|node| node.sum(|metrics| metrics.connections.value()) == 0);
}

fn held_requests_share_an_answer_on_every_shard(driver: Driver) {
    let node = node(driver);
    publish(&node, "0");
    let mut clients: Vec<_> = (0..60).map(|_| Client::open(&node)).collect();
    for client in &mut clients {
        client.ask("?offset=now&live=long-poll");
    }
    parked(&node, 60);
    for n in 1..6 {
        publish(&node, &n.to_string());
        for client in &mut clients {
            let answer = client.answer();
            assert_eq!(answer.body, format!("[{n}]"));
            let cursor = answer.header("stream-cursor").expect("a cursor");
            client.ask(&format!(
                "?offset={}&live=long-poll&cursor={cursor}",
                answer.next()
            ));
        }
        parked(&node, 60);
    }
    drop(clients);
    node.settle(|node| node.sum(|metrics| metrics.connections.value()) == 0);
}

fn a_held_request_ends_at_its_time(driver: Driver) {
    let node = with_polls(
        driver,
        Duration::from_millis(300),
        Duration::from_millis(600),
    );
    publish(&node, "1");
    let mut client = Client::open(&node);
    let mut cursor = 0;
    for _ in 0..3 {
        let began = Instant::now();
        client.ask(&format!("?offset=now&live=long-poll&cursor={cursor}"));
        let answer = client.answer();
        let held = began.elapsed();
        assert_eq!(answer.status(), "204");
        assert_eq!(answer.header("stream-up-to-date"), Some("true"));
        assert_eq!(answer.header("content-length"), None);
        assert!(held >= Duration::from_millis(300), "{held:?}");
        let next = answer
            .header("stream-cursor")
            .expect("a cursor")
            .parse()
            .expect("a number");
        assert!(next > cursor);
        cursor = next;
    }
    // A cursor that nobody else would share.
    client.ask(&format!(
        "?offset=now&live=long-poll&cursor={}",
        u64::MAX - 5
    ));
    let own = client.answer();
    assert_eq!(
        own.header("stream-cursor"),
        Some((u64::MAX - 4).to_string().as_str())
    );
    assert_eq!(node.sum(|metrics| metrics.poll_timeouts.value()), 4);
    let timed = |metrics: &Metrics| metrics.poll_lateness.counts().iter().sum();
    // A turn's figures are noted at its end, which is behind its answers.
    node.settle(|node| node.sum(timed) == 4);
}

fn pipelined_requests_are_answered_in_their_order(driver: Driver) {
    let node = node(driver);
    publish(&node, "1");
    let mut client = Client::open(&node);
    let one = "GET /v1/stream/s HTTP/1.1\r\nHost: a\r\n\r\n";
    let held = "GET /v1/stream/s?offset=now&live=long-poll HTTP/1.1\r\nHost: a\r\n\r\n";
    let last = "GET /v1/stream/s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let text = format!("{}{held}{last}", one.repeat(50));
    for piece in text.as_bytes().chunks(37) {
        client.stream.write_all(piece).expect("a socket");
    }
    for _ in 0..50 {
        assert_eq!(client.answer().body, "[1]");
    }
    parked(&node, 1);
    publish(&node, "2");
    assert_eq!(client.answer().body, "[2]");
    let last = client.answer();
    assert_eq!(
        (last.body.as_str(), last.header("connection")),
        ("[1,2]", Some("close"))
    );
    assert_eq!(client.read_to_end(), "");
    // HTTP/1.0 goes on only where it is asked to.
    let mut old = Client::open(&node);
    let request = "GET /v1/stream/s HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    old.stream.write_all(request.as_bytes()).expect("a socket");
    assert_eq!(old.answer().header("connection"), Some("keep-alive"));
    let request = "GET /v1/stream/s HTTP/1.0\r\n\r\n";
    old.stream.write_all(request.as_bytes()).expect("a socket");
    assert_eq!(old.answer().header("connection"), Some("close"));
    assert_eq!(old.read_to_end(), "");
}

fn a_client_that_has_sent_its_last_request_gets_all_answers(driver: Driver) {
    let node = node(driver);
    publish(&node, "1");
    let (poll, part) = ("?offset=now&live=long-poll", "GET /v1/stre");
    for (requests, rest) in [
        (&[""][..], ""),
        (&["", "", ""], ""),
        (&["", poll, ""], ""),
        (&[poll, poll, ""], ""),
        (&[poll], ""),
        (&["", poll], part),
    ] {
        let mut client = Client::open(&node);
        let mut text = String::new();
        for query in requests {
            text += &format!("GET /v1/stream/s{query} HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        let text = text + rest;
        client.stream.write_all(text.as_bytes()).expect("a socket");
        client.stream.shutdown(Shutdown::Write).expect("a socket");
        for query in requests {
            let answer = client.answer();
            let expected = match *query {
                "" => ("200", "[1]"),
                _ => ("204", ""),
            };
            assert_eq!((answer.status(), &*answer.body), expected, "{requests:?}");
        }
        assert_eq!(client.read_to_end(), "", "{requests:?}");
    }
    // A stream of events tells what there is.
    let mut client = Client::open(&node);
    client.ask("");
    client.ask("?offset=-1&live=sse");
    client.stream.shutdown(Shutdown::Write).expect("a socket");
    assert_eq!(client.answer().body, "[1]");
    let events = client.read_to_end();
    assert!(events.contains("data:[1]\n"), "{events}");
    assert!(events.ends_with("0\r\n\r\n"), "{events}");
    node.settle(|node| node.sum(|metrics| metrics.connections.value()) == 0);
}

fn behind_the_last_request_nothing_is_held(driver: Driver) {
    let node = node(driver);
    publish(&node, "1");
    let mut client = Client::open(&node);
    client.ask("?offset=now&live=long-poll");
    client.ask("");
    parked(&node, 1);
    client.stream.shutdown(Shutdown::Write).expect("a socket");
    assert_eq!(client.answer().status(), "204");
    assert_eq!(client.answer().body, "[1]");
    assert_eq!(client.read_to_end(), "");
    // Nobody would end a connection that goes on.
    let mut client = Client::open(&node);
    client.ask("");
    let upgrade = format!("GET /raw?channel=s HTTP/1.1\r\n{UPGRADE}");
    client
        .stream
        .write_all(upgrade.as_bytes())
        .expect("a socket");
    client.stream.shutdown(Shutdown::Write).expect("a socket");
    assert_eq!(client.answer().body, "[1]");
    client.read_to_end();
    node.settle(|node| node.sum(|metrics| metrics.connections.value()) == 0);
}

fn a_stream_of_events_is_live_after_what_it_missed(driver: Driver) {
    let node = node(driver);
    publish(&node, "1");
    let mut client = Client::open(&node);
    client.ask("?offset=-1&live=sse");
    let head = client.read_until("\r\n\r\n");
    assert!(
        head.contains("content-type: text/event-stream\r\n"),
        "{head}"
    );
    let first = client.read_until("\n\n\r\n");
    let retry = first.split_once("retry:").expect("a time").1;
    let retry = retry.split_once('\n').expect("a line").0;
    let retry_ms: u32 = retry.parse().expect("a number");
    assert!((1_000..3_000).contains(&retry_ms), "{retry_ms}");
    assert!(
        first.contains("event: data\ndata:[1]\n\nevent: control\n"),
        "{first}"
    );
    assert!(first.contains("\"upToDate\":true"), "{first}");
    for n in 2..10 {
        publish(&node, &n.to_string());
        let event = client.read_until("\n\n\r\n");
        assert!(event.contains(&format!("data:[{n}]\n")), "{event}");
    }
    let id = first.rsplit_once("id:").expect("an id").1.trim().to_owned();
    let mut again = Client::open(&node);
    again.ask_with("?offset=-1&live=sse", &format!("Last-Event-ID: {id}\r\n"));
    again.read_until("\r\n\r\n");
    let event = again.read_until("\n\n\r\n");
    assert!(event.contains("data:[2,3,4,5,6,7,8,9]\n"), "{event}");
    node.settle(|node| node.sum(|metrics| metrics.event_streams.value()) == 2);
}

fn a_client_that_reads_nothing_gives_its_memory_back(driver: Driver) {
    let node = Node::start(
        driver,
        Options {
            stall_timeout: Duration::from_millis(300),
            ..Options::default()
        },
    );
    let data = format!("\"{}\"", "z".repeat(10_000));
    publish(&node, &data);
    for (stalled, is_reader) in [true, false].into_iter().enumerate() {
        let mut reader = Client::open(&node);
        let _web_socket = if is_reader {
            reader.ask("?offset=now&live=sse");
            reader.read_until("\n\n");
            None
        } else {
            Some(node.connect("/raw?channel=s"))
        };
        let mut count = 0;
        let ended = |node: &Node| node.closes(CloseReason::Stalled) > stalled as u64;
        let kept = |node: &Node| node.sum(|metrics| metrics.buffered_bytes.value()) > 0;
        let delivered = |node: &Node| node.sum(|metrics| metrics.deliveries.value());
        while !ended(&node) {
            if kept(&node) {
                // The shards need the processor more than the question does.
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            let before = delivered(&node);
            publish(&node, &data);
            count += 1;
            assert!(count < 5_000, "the kernel took 50 MB");
            // The client's shard has it before the next one comes.
            node.settle(|node| ended(node) || kept(node) || delivered(node) > before);
        }
        node.settle(|node| node.sum(|metrics| metrics.buffered_bytes.value()) == 0);
    }
    assert_eq!(node.closes(CloseReason::SlowConsumer), 0);
}

fn what_comes_behind_a_request_for_events_is_not_kept(driver: Driver) {
    let node = node(driver);
    publish(&node, "1");
    let mut client = Client::open(&node);
    let behind = "GET /v1/stream/s HTTP/1.1\r\nHost: a\r\n\r\n".repeat(50);
    let request = "GET /v1/stream/s?offset=-1&live=sse HTTP/1.1\r\nHost: a\r\n\r\n";
    client
        .stream
        .write_all((request.to_owned() + &behind).as_bytes())
        .expect("a socket");
    client.read_until("\n\n\r\n");
    node.settle(|node| node.sum(|metrics| metrics.buffered_bytes.value()) == 0);
    publish(&node, "2");
    assert!(client.read_until("\n\n\r\n").contains("data:[2]\n"));
}

fn what_cannot_be_read_is_refused(driver: Driver) {
    let node = node(driver);
    publish(&node, "1");
    for (target, headers, status) in [
        ("/v1/stream/unknown", "", "404"),
        ("/v1/stream/unknown?offset=now&live=long-poll", "", "404"),
        ("/v1/stream/unknown?offset=now&live=sse", "", "404"),
        ("/v1/stream/s?offset=aaaaaaaa_0000000000000001", "", "410"),
        (
            "/v1/stream/s?offset=aaaaaaaa_0000000000000001&live=long-poll",
            "",
            "410",
        ),
        ("/v1/stream/s?offset=a,b", "", "400"),
        ("/v1/stream/s?live=long-poll", "", "400"),
        (
            "/v1/stream/s?offset=now&live=long-poll",
            "Content-Length: 3\r\n",
            "400",
        ),
        ("/v1/stream/other:s", "", "400"),
        ("/v1/stream/s", "Authorization: Bearer x\r\n", "401"),
    ] {
        let mut client = Client::open(&node);
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n{headers}\r\n");
        client
            .stream
            .write_all(request.as_bytes())
            .expect("a socket");
        let answer = client.answer();
        assert_eq!(answer.status(), status, "{target}: {answer:?}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("stream-durability"), Some("memory"));
        let exposed = answer.header("access-control-expose-headers");
        assert!(exposed.is_some_and(|names| names.contains("Stream-Next-Offset")));
        assert_eq!(
            answer.header("stream-next-offset").is_some(),
            status == "410"
        );
    }
}

fn another_transport_may_follow_a_stream(driver: Driver) {
    let node = node(driver);
    publish(&node, "1");
    let mut client = Client::open(&node);
    client.ask("?offset=now&live=long-poll");
    parked(&node, 1);
    publish(&node, "2");
    assert_eq!(client.answer().body, "[2]");
    let upgrade = format!("GET /raw?channel=s HTTP/1.1\r\n{UPGRADE}");
    client
        .stream
        .write_all(upgrade.as_bytes())
        .expect("a socket");
    assert!(client.read_until("\r\n\r\n").starts_with("HTTP/1.1 101 "));
    publish(&node, "3");
    let mut frame = [0; 3];
    client.stream.read_exact(&mut frame).expect("a frame");
    assert_eq!(frame, [0x81, 1, b'3']);
    // A request for the control plane is handed over with what came behind it.
    let mut client = Client::open(&node);
    client.ask("");
    client.answer();
    client
        .stream
        .write_all(b"POST /api/info HTTP/1.1\r\nHost: a\r\n\r\nrest")
        .expect("a socket");
    let (_, received) = node.handed_over();
    assert_eq!(received, b"POST /api/info HTTP/1.1\r\nHost: a\r\n\r\nrest");
}

fn a_drain_answers_held_requests(driver: Driver) {
    let node = node(driver);
    publish(&node, "1");
    let mut held = Client::open(&node);
    held.ask("?offset=now&live=long-poll");
    let mut idle = Client::open(&node);
    idle.ask("");
    idle.answer();
    let mut events = Client::open(&node);
    events.ask("?offset=now&live=sse");
    events.read_until("\n\n\r\n");
    parked(&node, 1);
    node.drain(Duration::from_millis(100));
    let answer = held.answer();
    assert_eq!(
        (answer.status(), answer.header("connection")),
        ("204", Some("close"))
    );
    assert_eq!(
        (held.read_to_end().as_str(), idle.read_to_end().as_str()),
        ("", "")
    );
    assert_eq!(events.read_to_end(), "0\r\n\r\n");
    drop((held, idle, events));
    node.finish();
}

fn too_much_behind_a_held_request_ends_it(driver: Driver) {
    let node = node(driver);
    publish(&node, "1");
    let mut client = Client::open(&node);
    client.ask("?offset=now&live=long-poll");
    parked(&node, 1);
    let _ = client.stream.write_all(&[b'x'; 70_000]);
    assert_eq!(client.answer().status(), "429");
    drop(client);
    node.settle(|node| node.sum(|metrics| metrics.connections.value()) == 0);
}
