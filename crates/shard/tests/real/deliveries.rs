//! What subscribers of the Centrifuge protocol get: batches, deltas, and what slow ones get instead.

use super::client::Client;
use super::node::{Driver, Node, Options};
use myriad_shard::{ChannelOptions, Namespaces, Payload, Right, SlowConsumer};
use myriad_wire::centrifuge::apply_delta;
use serde_json::{Value, json};
use std::time::Duration;

on_both_drivers!(
    publications_of_a_busy_room_leave_as_one_frame,
    subscribers_with_deltas_can_follow,
    a_slow_consumer_finds_no_gap_that_it_is_not_told_of,
);

/// A node where anybody may do anything, and all channels have these options besides.
fn node(driver: Driver, options: ChannelOptions) -> Node {
    let channels = ChannelOptions {
        history_size: 1000,
        history_ttl: Duration::from_secs(60),
        history_meta_ttl: Duration::from_secs(60),
        force_recovery: true,
        subscribe: Right::ALL,
        publish: Right::ALL,
        ..options
    };
    let options = Options {
        namespaces: Namespaces::new(channels, []),
        outbound_bytes_max: 1 << 20,
        ..Options::default()
    };
    Node::start(driver, options)
}

fn subscribe(client: &mut Client, request: Value) -> Value {
    let reply = client.ask(&json!({"id": 2, "subscribe": request}));
    assert!(reply["error"].is_null(), "{reply}");
    reply["subscribe"].clone()
}

fn number(json: &str) -> Payload {
    Payload::Json(json.into())
}

fn publications_of_a_busy_room_leave_as_one_frame(driver: Driver) {
    let node = node(
        driver,
        ChannelOptions {
            // Long enough that all three come within it, however busy the machine is.
            batch_delay: Duration::from_secs(2),
            exclude_sender: true,
            ..ChannelOptions::default()
        },
    );
    let mut reader = Client::open(&node);
    let mut sender = Client::open(&node);
    for client in [&mut reader, &mut sender] {
        subscribe(client, json!({"channel": "room"}));
    }
    let mut raw = node.connect("/raw?channel=room");
    sender.send_text(
        [1, 2]
            .map(|n| json!({"id": n, "publish": {"channel": "room", "data": n}}).to_string())
            .join("\n"),
    );
    for id in [1, 2] {
        assert_eq!(sender.read(), json!({"id": id, "publish": {}}));
    }
    assert_eq!(node.publish("room", number("3")), 3);
    let data = |lines: Vec<Value>| -> Vec<Value> {
        let data = lines
            .into_iter()
            .map(|line| line["push"]["pub"]["data"].clone());
        data.collect()
    };
    assert_eq!(data(reader.read_lines()), [1, 2, 3]);
    assert_eq!(data(sender.read_lines()), [3], "its own are left out");
    for text in ["1", "2", "3"] {
        let frame = raw.read().expect("a frame");
        assert_eq!(frame.to_text().expect("text"), text);
    }
    // What it published is in its history all the same.
    let mut back = Client::open(&node);
    let missed = subscribe(&mut back, json!({"channel": "room", "recover": true}));
    assert_eq!(missed["publications"].as_array().map(Vec::len), Some(3));
}

/// What a client with deltas makes of publications.
#[derive(Default)]
struct Reader {
    last: String,
    deltas: usize,
}

impl Reader {
    fn read(&mut self, publication: &Value) -> &str {
        let data = publication["data"].as_str().expect("a string");
        self.last = if publication["delta"] == true {
            self.deltas += 1;
            let whole = apply_delta(self.last.as_bytes(), data.as_bytes(), usize::MAX);
            String::from_utf8(whole.expect("a delta to the last one")).expect("text")
        } else {
            data.to_owned()
        };
        &self.last
    }
}

fn subscribers_with_deltas_can_follow(driver: Driver) {
    let node = node(
        driver,
        ChannelOptions {
            allow_fossil_delta: true,
            delta_publish: true,
            history_read: Right::ALL,
            ..ChannelOptions::default()
        },
    );
    let document = |n: u64| format!("{{\"version\":{n},\"text\":\"{}\"}}", "é è ".repeat(40));
    let publish = |n: u64| node.publish("room", Payload::Json(document(n).into()));
    let request = json!({"channel": "room", "delta": "fossil"});
    let mut client = Client::open(&node);
    assert_eq!(subscribe(&mut client, request.clone())["delta"], true);
    let mut plain = Client::open(&node);
    let undone = subscribe(&mut plain, json!({"channel": "room"}));
    assert!(undone["delta"].is_null());
    let mut reader = Reader::default();
    for n in 1..=3 {
        publish(n);
        let push = client.read();
        assert_eq!(reader.read(&push["push"]["pub"]), document(n));
        assert_eq!(plain.read()["push"]["pub"]["data"]["version"], n);
    }
    assert_eq!(reader.deltas, 2, "the first one is whole");
    drop(client);
    for n in 4..=6 {
        publish(n);
    }
    let mut client = Client::open(&node);
    let mut again = request;
    again["recover"] = json!(true);
    again["offset"] = json!(3);
    let result = subscribe(&mut client, again);
    let missed = result["publications"].as_array().expect("a list");
    let mut reader = Reader::default();
    for (publication, n) in missed.iter().zip(4..) {
        assert_eq!(reader.read(publication), document(n));
    }
    assert_eq!((missed.len(), reader.deltas), (3, 2));
    publish(7);
    let push = client.read();
    assert_eq!(reader.read(&push["push"]["pub"]), document(7));
    assert_eq!(reader.deltas, 3, "the last one of the list is the base");
    let history = client.ask(&json!({"id": 3, "history": {"channel": "room", "limit": 1}}));
    let first = &history["history"]["publications"][0];
    assert_eq!(first["data"]["version"], 1, "history has no deltas");
}

fn a_slow_consumer_finds_no_gap_that_it_is_not_told_of(driver: Driver) {
    let node = node(
        driver,
        ChannelOptions {
            slow_consumer: SlowConsumer::GapThenRecover,
            ..ChannelOptions::default()
        },
    );
    let mut client = Client::open(&node);
    let position = subscribe(&mut client, json!({"channel": "room"}));
    let filler = "x".repeat(60_000);
    let mut published = 0;
    while node.sum(|metrics| metrics.subscription_gaps.value()) == 0 {
        published = node.publish("room", Payload::Json(format!("\"{filler}\"").into()));
        assert!(published < 1000, "sockets do not hold as much");
        // No faster than deliveries, so that little is missed.
        node.settle(|node| {
            let delivered = node.sum(|metrics| metrics.deliveries.value());
            delivered == published || node.sum(|metrics| metrics.subscription_gaps.value()) > 0
        });
    }
    let mut last = 0;
    let end = loop {
        let push = client.read();
        let Some(offset) = push["push"]["pub"]["offset"].as_u64() else {
            break push;
        };
        assert_eq!(offset, last + 1);
        last = offset;
    };
    assert_eq!(end["push"]["unsubscribe"]["code"], 2500);
    assert!(last < published);
    let again =
        json!({"channel": "room", "recover": true, "offset": last, "epoch": position["epoch"]});
    let result = subscribe(&mut client, again);
    assert_eq!(result["recovered"], true, "{last} of {published}");
    let missed = result["publications"].as_array().expect("a list");
    let offsets = missed
        .iter()
        .map(|one| one["offset"].as_u64().expect("an offset"));
    assert!(offsets.eq(last + 1..=published));
}
