//! How many requests a reader may send on one connection.

use super::node::{Driver, Node, Options};
use super::readers::{Client, parked, publish};
use myriad_shard::{CloseReason, Limit, Limits, RateLimit};
use std::io::Write;
use std::time::Duration;

on_both_drivers!(
    who_asks_too_often_is_told_to_wait_and_then_ended,
    who_waits_is_answered_on_the_same_connection,
    what_is_sent_behind_a_refused_request_is_answered,
    held_requests_count_and_connections_are_apart,
);

/// Readers may send this many requests in this time.
fn node(driver: Driver, count: u64, period: Duration) -> Node {
    let limits = Limits {
        reads: RateLimit::new(count, period),
        ..Limits::default()
    };
    let options = Options {
        limits,
        ..Options::default()
    };
    Node::start(driver, options)
}

fn limited(node: &Node) -> u64 {
    node.sum(|metrics| metrics.limited[Limit::Reads as usize].value())
}

fn who_asks_too_often_is_told_to_wait_and_then_ended(driver: Driver) {
    let node = node(driver, 3, Duration::from_hours(3));
    publish(&node, "1");
    let mut client = Client::open(&node);
    for _ in 0..3 {
        client.ask("");
        assert_eq!(client.answer().body, "[1]");
    }
    // Refused requests count, too.
    for refused in 1..=3 {
        client.ask("");
        let answer = client.answer();
        assert_eq!(answer.status(), "429");
        assert_eq!(answer.header("connection"), Some("keep-alive"));
        assert!(answer.body.contains(r#""code":"reads""#), "{}", answer.body);
        let wait: u64 = answer
            .header("retry-after")
            .expect("a time")
            .parse()
            .expect("seconds");
        assert!(
            ((refused + 1) * 3_600 - 60..=(refused + 1) * 3_600).contains(&wait),
            "{wait} s"
        );
    }
    // What stands behind a request that is refused is answered in its turn, and nothing behind the last answer.
    client.ask("");
    client.ask("");
    let last = client.answer();
    assert_eq!(
        (last.status(), last.header("connection")),
        ("429", Some("close"))
    );
    assert_eq!(client.read_to_end(), "");
    node.settle(|node| node.closes(CloseReason::TooManyRequests) == 1);
    assert_eq!(limited(&node), 4);
}

fn who_waits_is_answered_on_the_same_connection(driver: Driver) {
    let node = node(driver, 1, Duration::from_secs(1));
    publish(&node, "1");
    let mut client = Client::open(&node);
    for _ in 0..2 {
        let refused = loop {
            client.ask("");
            let answer = client.answer();
            if answer.status() == "429" {
                break answer;
            }
        };
        let wait = refused.header("retry-after").expect("a time");
        std::thread::sleep(Duration::from_secs(wait.parse().expect("seconds")));
        client.ask("");
        assert_eq!(client.answer().body, "[1]");
    }
    assert_eq!(node.closes(CloseReason::TooManyRequests), 0);
}

fn what_is_sent_behind_a_refused_request_is_answered(driver: Driver) {
    let node = node(driver, 3, Duration::from_hours(3));
    publish(&node, "1");
    let mut client = Client::open(&node);
    let request = "GET /v1/stream/s HTTP/1.1\r\nHost: a\r\n\r\n";
    let all = request.repeat(6);
    client
        .stream
        .write_all(all.as_bytes())
        .expect("an open connection");
    let statuses: Vec<_> = (0..6)
        .map(|_| client.answer().status().to_owned())
        .collect();
    assert_eq!(statuses, ["200", "200", "200", "429", "429", "429"]);
}

fn held_requests_count_and_connections_are_apart(driver: Driver) {
    let node = node(driver, 2, Duration::from_hours(2));
    publish(&node, "1");
    let mut clients = [Client::open(&node), Client::open(&node)];
    for round in 2..4 {
        for client in &mut clients {
            client.ask("?offset=now&live=long-poll");
        }
        parked(&node, 2);
        publish(&node, &round.to_string());
        for client in &mut clients {
            assert_eq!(client.answer().body, format!("[{round}]"));
        }
        // An answer may arrive before the shard has counted that nobody is parked.
        parked(&node, 0);
    }
    for client in &mut clients {
        client.ask("?offset=now&live=sse");
        assert_eq!(client.answer().status(), "429");
    }
    assert_eq!(limited(&node), 2);
}
