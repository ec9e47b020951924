//! Publications that are larger than what may be queued for a connection: everybody can read past them.

use super::client::Client as Session;
use super::node::{Driver, Node, Options};
use super::readers::{Client, parked, publish};
use myriad_shard::{CloseReason, Payload};
use serde_json::json;

on_both_drivers!(
    a_reader_gets_past_what_is_larger_than_its_budget,
    a_page_of_what_has_to_be_escaped_is_told,
    those_who_wait_get_what_is_larger_than_their_budget,
    a_session_recovers_what_is_larger_than_its_budget,
    where_the_process_has_no_room_a_reader_is_to_come_back,
);

/// Bytes that may be queued for a connection.
const BUDGET: u32 = 100_000;

fn node(driver: Driver) -> Node {
    let options = Options {
        outbound_bytes_max: BUDGET,
        ..Options::default()
    };
    Node::start(driver, options)
}

/// JSON that is six times as large.
fn large() -> String {
    format!("\"{}\"", "x".repeat(600_000))
}

fn a_reader_gets_past_what_is_larger_than_its_budget(driver: Driver) {
    let node = node(driver);
    let large = large();
    for json in ["1", &large, "2"] {
        publish(&node, json);
    }
    let bodies = ["[1]".to_owned(), format!("[{large}]"), "[2]".to_owned()];
    for live in ["", "&live=long-poll"] {
        let mut client = Client::open(&node);
        let mut offset = "-1".to_owned();
        for body in &bodies {
            client.ask(&format!("?offset={offset}{live}"));
            let answer = client.answer();
            assert_eq!(answer.status(), "200");
            assert!(answer.body == *body, "{} bytes", answer.body.len());
            answer.next().clone_into(&mut offset);
        }
    }
    let mut client = Client::open(&node);
    client.ask("?offset=-1&live=sse");
    for body in bodies {
        let events = client.read_until("\"streamNextOffset\"");
        assert!(events.contains(&format!("data:{body}\n\n")));
    }
    assert_eq!(node.closes(CloseReason::SlowConsumer), 0);
}

fn a_page_of_what_has_to_be_escaped_is_told(driver: Driver) {
    let node = node(driver);
    for _ in 0..30 {
        // One byte of a control character is six of JSON.
        let text = "\u{1}".repeat(BUDGET as usize / 120);
        node.publish("s", Payload::Text(text.into()));
    }
    let mut client = Client::open(&node);
    client.ask("");
    let answer = client.answer();
    assert_eq!(answer.status(), "200");
    assert!(answer.body.len() > BUDGET as usize, "{}", answer.body.len());
}

fn those_who_wait_get_what_is_larger_than_their_budget(driver: Driver) {
    let node = node(driver);
    publish(&node, "1");
    let mut polls = [(); 2].map(|()| Client::open(&node));
    polls[0].ask("?offset=now&live=long-poll");
    // A cursor that nobody else would share.
    polls[1].ask(&format!(
        "?offset=now&live=long-poll&cursor={}",
        u64::MAX - 5
    ));
    let mut events = Client::open(&node);
    events.ask("?offset=now&live=sse");
    events.read_until("\"upToDate\":true");
    parked(&node, 2);
    let large = large();
    publish(&node, &large);
    for poll in &mut polls {
        let answer = poll.answer();
        assert!(
            answer.body == format!("[{large}]"),
            "{} bytes",
            answer.body.len()
        );
    }
    let told = events.read_until("\"upToDate\":true");
    assert!(told.contains(&format!("data:[{large}]\n\n")));
    assert_eq!(node.closes(CloseReason::SlowConsumer), 0);
}

fn a_session_recovers_what_is_larger_than_its_budget(driver: Driver) {
    let node = node(driver);
    let large = large();
    let mut client = Session::open(&node);
    let position =
        client.ask(&json!({"id": 2, "subscribe": {"channel": "s", "recoverable": true}}));
    let epoch = position["subscribe"]["epoch"].clone();
    client.ask(&json!({"id": 3, "unsubscribe": {"channel": "s"}}));
    for json in ["1", &large, "2"] {
        publish(&node, json);
    }
    let recovered = client.ask(&json!({"id": 4, "subscribe": {
        "channel": "s", "recover": true, "recoverable": true, "epoch": epoch, "offset": 0,
    }}));
    let subscribed = &recovered["subscribe"];
    assert_eq!(subscribed["recovered"], true);
    let publications = subscribed["publications"].as_array().expect("a list");
    assert_eq!(publications.len(), 3);
    assert_eq!(
        publications[1]["data"].as_str().map(str::len),
        Some(600_000)
    );
    let page = client.ask(&json!({"id": 5, "history": {"channel": "s", "limit": 3}}));
    let publications = page["history"]["publications"].as_array();
    assert_eq!(publications.map(Vec::len), Some(3));
    // Two of them are more than one.
    client.ask(&json!({"id": 6, "unsubscribe": {"channel": "s"}}));
    publish(&node, &large);
    let page = client.ask(&json!({"id": 7, "history": {"channel": "s", "limit": 4}}));
    assert_eq!(page["error"]["code"], 106);
}

fn where_the_process_has_no_room_a_reader_is_to_come_back(driver: Driver) {
    let options = Options {
        outbound_bytes_max: BUDGET,
        buffered_bytes_max: 300_000,
        ..Options::default()
    };
    let node = Node::start(driver, options);
    publish(&node, &large());
    let mut client = Client::open(&node);
    client.ask("");
    let answer = client.answer();
    assert_eq!(answer.status(), "503");
    assert!(answer.header("retry-after").is_some());
}
