//! Memory of clients that have not connected: they fill their own share, and the oldest of them make room for others.

use super::client::{Client, PATH};
use super::node::{Driver, Node, Options};
use myriad_shard::{CloseReason, Payload};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use tungstenite::WebSocket;

on_both_drivers!(
    strangers_end_each_other_and_nobody_who_has_connected,
    a_head_that_is_not_whole_makes_room_for_others,
    what_a_client_holds_before_it_connects_is_given_back,
);

const SHARE: u64 = 64 * 1024;
const PIECE: u16 = 8 * 1024;

/// One shard: all clients share what one has.
fn options() -> Options {
    Options {
        shards: 1,
        buffered_bytes_max: 8 * SHARE,
        unconnected_bytes_max: SHARE,
        ..Options::default()
    }
}

/// A fragment of a text message (RFC 6455, section 5.2), with a mask that changes nothing.
fn fragment(first: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).expect("a short fragment");
    let mut frame = vec![first];
    match u8::try_from(length) {
        Ok(short) if short < 126 => frame.push(0x80 | short),
        _ => {
            frame.push(0x80 | 126);
            frame.extend(length.to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend(payload);
    frame
}

/// A WebSocket that has sent the beginning of a connect command.
fn beginning(node: &Node) -> WebSocket<TcpStream> {
    let mut client = node.connect(PATH);
    let text = format!(
        r#"{{"id":1,"connect":{{"data":"{}"#,
        "a".repeat(usize::from(PIECE))
    );
    let frame = fragment(0x01, text.as_bytes());
    client.get_mut().write_all(&frame).expect("sent");
    client
}

fn ended(node: &Node) -> u64 {
    node.sum(|shard| shard.unconnected_ended.value())
}

fn held(node: &Node) -> u64 {
    node.sum(|shard| shard.unconnected_bytes.value())
}

fn strangers_end_each_other_and_nobody_who_has_connected(driver: Driver) {
    let node = Node::start(driver, options());
    let mut member = Client::open(&node);
    member.ask(&json!({"id": 2, "subscribe": {"channel": "room"}}));
    // Seven fit. Each of the others ends the one that came first, and the test sees that before the next one comes.
    let mut strangers = Vec::new();
    for n in 1..=20_u64 {
        strangers.push(beginning(&node));
        node.settle(|node| {
            held(node) >= u64::from(PIECE) * n.min(7) && ended(node) == n.saturating_sub(7)
        });
        assert!(held(&node) <= SHARE);
    }
    assert_eq!(node.closes(CloseReason::Overloaded), 13);
    for stranger in &mut strangers[..13] {
        let code = Client::close_code_of(stranger);
        assert_eq!(code, 1013);
    }
    // Who has connected may have more than the share of strangers, and hears everything.
    let large = format!("\"{}\"", "b".repeat(100_000));
    node.publish("room", Payload::Json(large.as_str().into()));
    let push = member.read();
    assert_eq!(push["push"]["pub"]["data"], large.trim_matches('"'));
    // The last stranger may go on, and connects.
    let mut last = Client(strangers.pop().expect("twenty"));
    let rest = fragment(0x80, br#""}}"#);
    last.0.get_mut().write_all(&rest).expect("sent");
    assert_eq!(last.read()["id"], 1);
}

fn a_head_that_is_not_whole_makes_room_for_others(driver: Driver) {
    let options = Options {
        unconnected_bytes_max: 4096,
        ..options()
    };
    let node = Node::start(driver, options);
    let half = |bytes: usize| {
        let mut stream = node.stream();
        let head = format!(
            "GET /raw?channel=x HTTP/1.1\r\nHost: x\r\nCookie: {}",
            "c".repeat(bytes)
        );
        stream.write_all(head.as_bytes()).expect("sent");
        stream
    };
    let mut first = half(3000);
    node.settle(|node| held(node) > 3000);
    let _second = half(3000);
    node.settle(|node| ended(node) == 1);
    let mut answer = String::new();
    first.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!((3000..4096).contains(&held(&node)));
}

fn what_a_client_holds_before_it_connects_is_given_back(driver: Driver) {
    let node = Node::start(driver, options());
    for ends in [false, true] {
        let mut client = Client(beginning(&node));
        node.settle(|node| held(node) > u64::from(PIECE));
        if ends {
            drop(client);
        } else {
            let rest = fragment(0x80, br#""}}"#);
            client.0.get_mut().write_all(&rest).expect("sent");
            assert_eq!(client.read()["id"], 1);
        }
        node.settle(|node| held(node) == 0);
    }
    assert_eq!(ended(&node), 0);
}
