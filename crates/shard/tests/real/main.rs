//! Shards on threads with real drivers and sockets, against a WebSocket client that we did not write.

/// The same tests on both drivers.
macro_rules! on_both_drivers {
    ($($test:ident),* $(,)?) => {
        mod epoll { $(#[test] fn $test() { super::$test(crate::node::Driver::Epoll); })* }
        mod io_uring { $(#[test] fn $test() { super::$test(crate::node::Driver::IoUring); })* }
    };
}

mod access;
mod asks;
mod client;
mod deliveries;
mod disk;
mod large;
mod node;
mod orders;
mod reader_access;
mod reader_limits;
mod readers;
mod sessions;
mod streams;
mod unconnected;
mod unidirectional;

use myriad_shard::{
    ChannelOptions, ClientOptions, CloseReason, Namespaces, Payload, PersonalChannel,
    PublishRefused, REFUSALS,
};
use node::{Driver, Node, Options, UPGRADE};
use std::io::{Read, Write};
use std::time::Duration;
use tungstenite::{Message, error::Error};

on_both_drivers!(
    publications_arrive_in_order_on_every_shard,
    binary_and_text_keep_their_kind,
    a_publication_after_the_upgrade_is_never_missed,
    echo_returns_whole_messages,
    pings_are_answered_and_sent,
    a_silent_client_is_closed_with_3012,
    bad_requests_get_their_status,
    a_channel_of_some_users_is_refused_without_a_session,
    a_full_server_says_when_to_come_back,
    a_stalled_reader_costs_its_budget_only,
    a_bad_frame_gets_its_close_code,
    requests_that_are_no_streams_are_handed_over_whole,
    a_slow_handshake_is_answered_408,
    drain_closes_everyone_with_1001_and_finishes,
);

fn text(message: &Message) -> &str {
    message.to_text().expect("a text message")
}

fn publications_arrive_in_order_on_every_shard(driver: Driver) {
    let node = Node::start(driver, Options::default());
    let mut clients: Vec<_> = (0..40).map(|_| node.connect("/raw?channel=news")).collect();
    let offsets: Vec<u64> = (0..20)
        .map(|n| node.publish("news", Payload::Text(format!("n{n}").into())))
        .collect();
    assert!(offsets.is_sorted_by(|a, b| a < b));
    for client in &mut clients {
        for n in 0..20 {
            assert_eq!(
                text(&client.read().expect("a publication")),
                format!("n{n}")
            );
        }
    }
    node.settle(|node| node.sum(|metrics| metrics.deliveries.value()) == 800);
    drop(clients);
    node.settle(|node| node.sum(|metrics| metrics.connections.value()) == 0);
}

fn binary_and_text_keep_their_kind(driver: Driver) {
    let node = Node::start(driver, Options::default());
    let mut client = node.connect("/raw?channel=a%20b&channel=c");
    node.publish("a b", Payload::Binary(vec![0, 159, 146, 150].into()));
    assert_eq!(
        client.read().expect("binary"),
        Message::binary(vec![0, 159, 146, 150])
    );
    node.publish("c", Payload::Text("".into()));
    assert_eq!(client.read().expect("empty"), Message::text(""));
    let long = "ü".repeat(70_000);
    node.publish("c", Payload::Text(long.as_str().into()));
    assert_eq!(text(&client.read().expect("long")), long);
}

fn a_publication_after_the_upgrade_is_never_missed(driver: Driver) {
    let node = Node::start(
        driver,
        Options {
            shards: 3,
            ..Options::default()
        },
    );
    for round in 0..200 {
        // The channel is new, or has just lost its only member, each time.
        let channel = format!("c{}", round % 3);
        let mut client = node.connect(&format!("/raw?channel={channel}"));
        node.publish(&channel, Payload::Text(round.to_string().into()));
        assert_eq!(
            text(&client.read().expect("the publication")),
            round.to_string()
        );
    }
}

fn echo_returns_whole_messages(driver: Driver) {
    let node = Node::start(driver, Options::default());
    let mut client = node.connect("/echo");
    for size in [0, 1, 125, 126, 4096, 65_535, 65_536] {
        let sent = Message::binary(vec![7; size]);
        client.send(sent.clone()).expect("sent");
        assert_eq!(client.read().expect("echo"), sent);
    }
    client
        .send(Message::text("x".repeat(65_537)))
        .expect("sent");
    match client.read() {
        Ok(Message::Close(Some(frame))) => assert_eq!(u16::from(frame.code), 1009),
        other => panic!("{other:?}"),
    }
}

fn pings_are_answered_and_sent(driver: Driver) {
    let node = Node::start(
        driver,
        Options {
            ping_interval: Duration::from_millis(50),
            ..Options::default()
        },
    );
    let mut client = node.connect("/raw?channel=x");
    client.send(Message::Ping("abc".into())).expect("sent");
    let mut seen = (false, 0);
    while !seen.0 || seen.1 < 3 {
        match client.read().expect("a frame") {
            Message::Pong(payload) => seen.0 = payload == "abc".as_bytes(),
            Message::Ping(_) => seen.1 += 1,
            other => panic!("{other:?}"),
        }
    }
}

fn a_silent_client_is_closed_with_3012(driver: Driver) {
    let timing = Options {
        ping_interval: Duration::from_millis(50),
        pong_timeout: Duration::from_millis(100),
        ..Options::default()
    };
    let node = Node::start(driver, timing);
    // Without a library, which would answer pings.
    let mut stream = node.stream();
    let upgrade = format!("GET /raw?channel=x HTTP/1.1\r\n{UPGRADE}");
    stream.write_all(upgrade.as_bytes()).expect("sent");
    let mut received = Vec::new();
    stream
        .read_to_end(&mut received)
        .expect("the server ends the connection in order");
    let head = received.windows(4).position(|four| four == b"\r\n\r\n");
    let frames = &received[head.expect("a head") + 4..];
    // Pings without payload, then the close frame with its code.
    let close = frames
        .windows(2)
        .position(|pair| pair == 3012_u16.to_be_bytes())
        .expect("the code 3012");
    assert_eq!(
        frames[..close - 2]
            .chunks(2)
            .filter(|frame| *frame != [0x89, 0])
            .count(),
        0
    );
    assert_eq!(node.closes(CloseReason::PongTimeout), 1);
}

fn bad_requests_get_their_status(driver: Driver) {
    let node = Node::start(
        driver,
        Options {
            hands_over: false,
            ..Options::default()
        },
    );
    let long = format!(
        "GET /raw?channel=x HTTP/1.1\r\nX: {}\r\n",
        "y".repeat(33_000)
    );
    let many = format!(
        "GET /raw?channel=x HTTP/1.1\r\n{}\r\n",
        "A: b\r\n".repeat(129)
    );
    let cases: [(&str, String); 9] = [
        ("404", format!("GET /nothing HTTP/1.1\r\n{UPGRADE}")),
        ("400", format!("GET /raw HTTP/1.1\r\n{UPGRADE}")),
        ("400", format!("GET /raw?channel=%ff HTTP/1.1\r\n{UPGRADE}")),
        (
            "426",
            "GET /raw?channel=x HTTP/1.1\r\nHost: x\r\n\r\n".into(),
        ),
        ("405", format!("POST /raw?channel=x HTTP/1.1\r\n{UPGRADE}")),
        (
            "400",
            format!(
                "GET /raw?channel=x HTTP/1.1\r\n{}",
                UPGRADE.replace("dGhlI", "d")
            ),
        ),
        ("431", long),
        ("431", many),
        ("400", "\u{16}\u{3}\u{1}\u{2}\u{0}\r\n\r\n".into()),
    ];
    for (status, request) in cases {
        let mut stream = node.stream();
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream
            .read_to_string(&mut answer)
            .expect("an answer that is not eaten by a reset");
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{request:?} got {answer}"
        );
        assert!(
            answer
                .split("\r\n\r\n")
                .nth(1)
                .is_some_and(|body| body.len() > 20),
            "{answer}"
        );
    }
    assert_eq!(node.closes(CloseReason::Refused), 9);
    node.settle(|node| {
        node.sum(|metrics| metrics.connections.value() + metrics.buffered_bytes.value()) == 0
    });
}

fn a_channel_of_some_users_is_refused_without_a_session(driver: Driver) {
    let limited = ChannelOptions {
        allow_user_limited_channels: true,
        ..ChannelOptions::default()
    };
    let named = [
        ("me".into(), ChannelOptions::default()),
        ("limited".into(), limited),
    ];
    let personal = PersonalChannel {
        namespace: Some("me".into()),
        single_connection: false,
    };
    let client = ClientOptions {
        // Even where every client has every right, names of users bind.
        insecure: true,
        personal_channel: Some(personal),
        ..ClientOptions::default()
    };
    let node = Node::start(
        driver,
        Options {
            namespaces: Namespaces::new(ChannelOptions::default(), named),
            client,
            ..Options::default()
        },
    );
    for refused in [
        "me:%2342",
        "me:%23",
        "limited:room%237,42",
        "limited:room%23",
        "$news",
        "$me:a",
        "$%C3%BC",
        "news&channel=me:%2342",
    ] {
        let (status, _) = node.refused(&format!("/raw?channel={refused}"));
        assert_eq!(status, 403, "{refused}");
    }
    let (status, _) = node.refused("/raw?channel=$nope:a");
    assert_eq!(status, 400, "the namespace is looked at first");
    let refusals = REFUSALS.iter().position(|label| *label == "permission");
    let refusals = refusals.expect("a label");
    assert_eq!(node.sum(|metrics| metrics.refusals[refusals].value()), 8);
    // Where `#` says nothing about users, it is a sign as any other.
    for open in ["%2342", "me:42", "me:room%2342", "limited:room", "a$"] {
        node.connect(&format!("/raw?channel={open}"));
    }
}

fn a_full_server_says_when_to_come_back(driver: Driver) {
    let node = Node::start(
        driver,
        Options {
            connections_max: 5,
            ..Options::default()
        },
    );
    let kept: Vec<_> = (0..5).map(|_| node.connect("/raw?channel=x")).collect();
    for _ in 0..10 {
        let (status, retry_after) = node.refused("/raw?channel=x");
        assert_eq!((status, retry_after.as_deref()), (503, Some("5")));
    }
    drop(kept);
    node.settle(|node| node.sum(|metrics| metrics.connections.value()) == 0);
    node.connect("/raw?channel=x");
}

fn a_stalled_reader_costs_its_budget_only(driver: Driver) {
    let node = Node::start(
        driver,
        Options {
            outbound_bytes_max: 100_000,
            ..Options::default()
        },
    );
    let mut reader = node.connect("/raw?channel=x");
    let mut stalled = node.connect("/raw?channel=x");
    let data = "z".repeat(10_000);
    let mut count = 0;
    while node.closes(CloseReason::SlowConsumer) == 0 {
        node.publish("x", Payload::Text(data.as_str().into()));
        assert_eq!(text(&reader.read().expect("a publication")).len(), 10_000);
        count += 1;
        assert!(
            count < 5_000,
            "the kernel took 50 MB for a client that does not read"
        );
        // The other client's shard has it before the next one comes.
        node.settle(|node| {
            node.closes(CloseReason::SlowConsumer) == 1
                || node.sum(|metrics| metrics.deliveries.value()) >= 2 * count
        });
        assert!(node.sum(|metrics| metrics.buffered_bytes.value()) <= 100_000);
    }
    node.publish("x", Payload::Text("after".into()));
    assert_eq!(text(&reader.read().expect("a publication")), "after");
    // It reads at last: whole publications, in order, then the close frame that says why.
    let mut received = 0;
    loop {
        match stalled.read() {
            Ok(Message::Text(text)) if text.len() == 10_000 => received += 1,
            Ok(Message::Close(Some(frame))) => {
                assert_eq!(u16::from(frame.code), 3008);
                break;
            }
            other => panic!("after {received} of {count}: {other:?}"),
        }
    }
    assert!(received < count);
}

fn a_bad_frame_gets_its_close_code(driver: Driver) {
    let node = Node::start(driver, Options::default());
    for (frame, code) in [
        (&[0x81_u8, 0x01, b'x'][..], 1002),
        (&[0xc1, 0x80, 0, 0, 0, 0], 1002),
        (&[0x81, 0x81, 0, 0, 0, 0, 0xff], 1007),
    ] {
        let mut client = node.connect("/raw?channel=x");
        client.get_mut().write_all(frame).expect("sent");
        match client.read() {
            Ok(Message::Close(Some(close))) => assert_eq!(u16::from(close.code), code),
            other => panic!("{frame:?}: {other:?}"),
        }
        assert!(matches!(
            client.read(),
            Err(Error::ConnectionClosed | Error::Protocol(_) | Error::Io(_))
        ));
    }
    node.settle(|node| {
        node.sum(|metrics| metrics.connections.value() + metrics.buffered_bytes.value()) == 0
    });
}

fn requests_that_are_no_streams_are_handed_over_whole(driver: Driver) {
    let node = Node::start(driver, Options::default());
    let mut stream = node.stream();
    // In two writes, so that the head is joined from parts; the body follows after the hand-over.
    stream
        .write_all(b"POST /api/publish HTTP/1.1\r\nHost: x\r\nContent-")
        .expect("sent");
    node.settle(|node| node.sum(|metrics| metrics.buffered_bytes.value()) > 0);
    stream.write_all(b"Length: 8\r\n\r\nhalf").expect("sent");
    let (mut handle, received) = node.handed_over();
    assert_eq!(
        received,
        b"POST /api/publish HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\nhalf"
    );
    stream.write_all(b"more").expect("sent");
    let mut rest = [0; 4];
    handle.set_nonblocking(false).expect("a socket");
    handle.read_exact(&mut rest).expect("the rest");
    assert_eq!(&rest, b"more");
    handle.write_all(b"done").expect("sent");
    stream.read_exact(&mut rest).expect("an answer");
    assert_eq!(&rest, b"done");
    // The gauge follows at the end of the turn that handed over.
    node.settle(|node| node.sum(|metrics| metrics.connections.value()) == 0);
}

fn a_slow_handshake_is_answered_408(driver: Driver) {
    let node = Node::start(
        driver,
        Options {
            handshake_timeout: Duration::from_millis(100),
            ..Options::default()
        },
    );
    let mut stream = node.stream();
    stream.write_all(b"GET /raw HTTP/1.1\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
}

fn drain_closes_everyone_with_1001_and_finishes(driver: Driver) {
    let node = Node::start(driver, Options::default());
    let mut clients: Vec<_> = (0..50).map(|_| node.connect("/raw?channel=x")).collect();
    node.drain(Duration::from_millis(200));
    // Whoever is left hears it.
    let publish = |data: &str| node.mesh().publish("x", Payload::Text(data.into()), None);
    assert_eq!(publish("late"), Ok(()));
    for client in &mut clients {
        let mut next = client.read();
        if let Ok(Message::Text(text)) = &next {
            assert_eq!(text.as_str(), "late");
            next = client.read();
        }
        match next {
            Ok(Message::Close(Some(frame))) => assert_eq!(u16::from(frame.code), 1001),
            other => panic!("{other:?}"),
        }
        // Answers the close and reads the end.
        while client.read().is_ok() {}
    }
    node.settle(|_| publish("too late") == Err(PublishRefused::Draining));
    drop(clients);
    let closes = node.finish();
    assert_eq!(closes, 50);
}
