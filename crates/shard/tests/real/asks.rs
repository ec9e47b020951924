//! Commands that wait for the control plane.

use super::client::{Client, PATH};
use super::node::{Driver, Node, Options};
use myriad_shard::{Access, AskAnswer, CloseReason, ErrorCode, Payload, Question};
use serde_json::{Value, json};
use std::time::Duration;
use tungstenite::Message;

on_both_drivers!(
    the_control_plane_is_asked_and_its_answer_told,
    a_later_command_may_be_answered_first,
    as_many_commands_wait_as_may,
    one_client_leaves_places_for_others,
    a_crowd_that_connects_takes_no_places_of_commands,
    questions_count_against_the_buffered_bytes,
    a_command_is_answered_at_its_deadline,
    the_answer_to_a_client_that_has_gone_is_dropped,
    a_drain_without_time_does_not_wait_for_answers,
    a_drain_with_time_lets_clients_have_their_answers,
    a_drain_with_time_lets_slow_readers_have_their_answers,
    a_drain_ends_although_a_reader_is_stalled,
    an_answer_in_the_last_turn_of_a_drain_is_told,
    a_command_behind_the_last_answer_of_a_drain_is_not_taken,
    a_client_that_never_pauses_has_all_answers_when_a_drain_closes_it,
    answered_commands_leave_no_tickets,
);

fn rpc(id: u64, method: &str) -> Value {
    json!({"id": id, "rpc": {"method": method, "data": {"a": 1}}})
}

fn holding() -> Options {
    Options {
        holds_asks: true,
        // Tests of this deadline set a shorter one.
        ask_timeout: Duration::from_secs(60),
        ..Options::default()
    }
}

fn the_control_plane_is_asked_and_its_answer_told(driver: Driver) {
    let options = Options {
        access: Access {
            addresses: true,
            ..Access::default()
        },
        ..holding()
    };
    let node = Node::start(driver, options);
    let mut client = Client::open(&node);
    client.send(&rpc(2, "sum"));
    let ask = node.asked();
    let Question::Rpc { method, data } = ask.question() else {
        panic!("{:?}", ask.question());
    };
    assert_eq!(&**method, "sum");
    assert_eq!(ask.asker().address, Some([127, 0, 0, 1].into()));
    assert_eq!(*data, Payload::Json("{\"a\":1}".into()));
    node.answer(ask, ErrorCode::MethodNotFound);
    let error = json!({"code": 104, "message": "method not found"});
    assert_eq!(client.read(), json!({"id": 2, "error": error}));
    let counted = |code: ErrorCode| node.sum(|shard| shard.command_errors[code.index()].value());
    assert_eq!(counted(ErrorCode::MethodNotFound), 1);
    assert_eq!(asks(&node), 1);
    node.settle(|node| node.sum(|shard| shard.asks_waiting.value()) == 0);
}

fn a_later_command_may_be_answered_first(driver: Driver) {
    let node = Node::start(driver, holding());
    let mut client = Client::open(&node);
    let leave = json!({"id": 4, "unsubscribe": {"channel": "none"}});
    client.send_text(format!("{}\n{}\n{leave}", rpc(2, "a"), rpc(3, "b")));
    assert_eq!(client.read(), json!({"id": 4, "unsubscribe": {}}));
    let asks = [node.asked(), node.asked()];
    for (ask, (id, code)) in asks
        .into_iter()
        .rev()
        .zip([(3, ErrorCode::NotAvailable), (2, ErrorCode::BadRequest)])
    {
        node.answer(ask, code);
        let reply = client.read();
        assert_eq!(
            (&reply["id"], &reply["error"]["code"]),
            (&json!(id), &json!(code.code()))
        );
    }
}

fn as_many_commands_wait_as_may(driver: Driver) {
    let options = Options {
        asks_max: 2,
        ..holding()
    };
    let node = Node::start(driver, options);
    let (mut one, mut other) = (Client::open(&node), Client::open(&node));
    one.send(&rpc(2, "a"));
    other.send(&rpc(2, "b"));
    let (ask, held) = (node.asked(), node.asked());
    let reply = one.ask(&rpc(3, "c"));
    assert_eq!(reply["error"]["code"], 100, "{reply}");
    assert_eq!(reply["error"]["temporary"], true, "{reply}");
    let refused = |node: &Node| node.sum(|shard| shard.asks_refused.value());
    assert_eq!(refused(&node), 1);
    // The place of a question that is answered is free as soon as its client knows.
    let Question::Rpc { method, .. } = ask.question() else {
        panic!("{:?}", ask.question());
    };
    let (asker, waiting) = match &**method {
        "a" => (&mut one, &mut other),
        _ => (&mut other, &mut one),
    };
    node.answer(ask, ErrorCode::NotAvailable);
    assert_eq!(asker.read()["error"]["code"], 108);
    asker.send(&rpc(4, "d"));
    node.answer(node.asked(), ErrorCode::NotAvailable);
    assert_eq!(asker.read()["id"], 4);
    node.answer(held, ErrorCode::NotAvailable);
    assert_eq!(waiting.read()["id"], 2);
    assert_eq!(refused(&node), 1);
}

fn one_client_leaves_places_for_others(driver: Driver) {
    let options = Options {
        asks_max: 32,
        ..holding()
    };
    let node = Node::start(driver, options);
    let (mut greedy, mut other) = (Client::open(&node), Client::open(&node));
    let commands: Vec<String> = (0..9).map(|nth| rpc(10 + nth, "a").to_string()).collect();
    greedy.send_text(commands.join("\n"));
    let reply = greedy.read();
    assert_eq!(
        (&reply["id"], &reply["error"]["code"]),
        (&json!(18), &json!(111))
    );
    let held: Vec<_> = (0..8).map(|_| node.asked()).collect();
    other.send(&rpc(2, "b"));
    node.answer(node.asked(), ErrorCode::NotAvailable);
    assert_eq!(other.read()["id"], 2);
    // An answer gives its client the place back.
    for ask in held {
        node.answer(ask, ErrorCode::NotAvailable);
        assert_eq!(greedy.read()["error"]["code"], 108);
    }
    greedy.send(&rpc(30, "a"));
    node.answer(node.asked(), ErrorCode::NotAvailable);
    assert_eq!(greedy.read()["id"], 30);
}

fn a_crowd_that_connects_takes_no_places_of_commands(driver: Driver) {
    let options = Options {
        asks_max: 1,
        access: Access {
            connect_proxy: true,
            ..Access::default()
        },
        ..holding()
    };
    let node = Node::start(driver, options);
    let connect = json!({"id": 1, "connect": {}});
    let mut client = Client(node.connect(PATH));
    client.send(&connect);
    node.grant(node.asked(), AskAnswer::Connect(Box::default()));
    assert_eq!(client.read()["id"], 1);
    let mut crowd: Vec<_> = (0..20).map(|_| Client(node.connect(PATH))).collect();
    crowd.iter_mut().for_each(|client| client.send(&connect));
    let waiting: Vec<_> = crowd.iter().map(|_| node.asked()).collect();
    client.send(&rpc(2, "a"));
    node.answer(node.asked(), ErrorCode::NotAvailable);
    assert_eq!(client.read()["error"]["code"], 108);
    drop(waiting);
}

fn questions_count_against_the_buffered_bytes(driver: Driver) {
    let options = Options {
        shards: 1,
        buffered_bytes_max: 32 * 1024,
        ..holding()
    };
    let node = Node::start(driver, options);
    let mut client = Client::open(&node);
    let large = |id: u64| json!({"id": id, "rpc": {"data": "x".repeat(1024)}});
    let counted = |node: &Node| (asks(node), node.sum(|shard| shard.asks_refused.value()));
    let mut sent = 0;
    while counted(&node).1 == 0 {
        sent += 1;
        assert!(sent < 32, "without memory");
        client.send(&large(100 + sent));
        node.settle(|node| counted(node).0 + counted(node).1 == sent);
    }
    assert!(sent > 4, "{sent} questions of a kilobyte");
    let reply = client.read();
    assert_eq!(
        (&reply["id"], &reply["error"]["code"]),
        (&json!(100 + sent), &json!(100))
    );
    for _ in 1..sent {
        node.answer(node.asked(), ErrorCode::NotAvailable);
        assert_eq!(client.read()["error"]["code"], 108);
    }
    client.send(&large(2));
    node.answer(node.asked(), ErrorCode::NotAvailable);
    assert_eq!(client.read()["error"]["code"], 108);
}

fn a_command_is_answered_at_its_deadline(driver: Driver) {
    let options = Options {
        ask_timeout: Duration::from_millis(50),
        ..holding()
    };
    let node = Node::start(driver, options);
    let mut client = Client::open(&node);
    let reply = client.ask(&rpc(2, "slow"));
    let error = json!({
        "code": 100,
        "message": "internal server error: the application did not answer in time",
        "temporary": true,
    });
    assert_eq!(reply, json!({"id": 2, "error": error}));
    assert_eq!(node.sum(|shard| shard.ask_timeouts.value()), 1);
    assert_eq!(node.sum(|shard| shard.late_answers.value()), 0);
    node.answer(node.asked(), ErrorCode::NotAvailable);
    node.settle(|node| node.sum(|shard| shard.late_answers.value()) == 1);
    // The client hears nothing of it.
    let leave = json!({"id": 3, "unsubscribe": {"channel": "none"}});
    assert_eq!(client.ask(&leave)["id"], 3);
}

fn the_answer_to_a_client_that_has_gone_is_dropped(driver: Driver) {
    let node = Node::start(driver, holding());
    let mut client = Client::open(&node);
    client.send(&rpc(2, "a"));
    let ask = node.asked();
    drop(client);
    node.settle(|node| node.sum(|shard| shard.connections.value()) == 0);
    // Its record is used again.
    let mut next = Client::open(&node);
    assert_eq!(node.sum(|shard| shard.asks_waiting.value()), 1);
    node.answer(ask, ErrorCode::NotAvailable);
    node.settle(|node| node.sum(|shard| shard.asks_waiting.value()) == 0);
    assert_eq!(node.sum(|shard| shard.late_answers.value()), 0);
    let leave = json!({"id": 2, "unsubscribe": {"channel": "none"}});
    assert_eq!(next.ask(&leave), json!({"id": 2, "unsubscribe": {}}));
}

fn a_drain_without_time_does_not_wait_for_answers(driver: Driver) {
    let node = Node::start(driver, holding());
    let mut client = Client::open(&node);
    client.send(&rpc(2, "a"));
    let ask = node.asked();
    node.drain(Duration::ZERO);
    assert_eq!(client.close_code(), 3001);
    drop(client);
    let mesh = node.mesh().clone();
    assert_eq!(node.finish(), 1);
    let limits = mesh.available();
    mesh.answer(
        ask,
        myriad_shard::AskAnswer::Refused(ErrorCode::NotAvailable.into()),
    );
    assert_eq!(mesh.available().asks_max, limits.asks_max + 1);
}

fn a_drain_with_time_lets_clients_have_their_answers(driver: Driver) {
    let node = holding_shard(driver);
    let mut client = Client::open(&node);
    client.send(&rpc(2, "a"));
    let ask = node.asked();
    let mut others: Vec<_> = (0..19).map(|_| Client::open(&node)).collect();
    // One is closed each second, the first one at once.
    node.drain(Duration::from_secs(20));
    assert_eq!(others[0].close_code(), 3001);
    node.answer(ask, ErrorCode::NotAvailable);
    assert_eq!(client.read()["error"]["code"], 108);
    assert_eq!(client.close_code(), 3001);
    // With nobody left, the drain does not last longer.
    drop((client, others));
    node.finish();
}

/// A node of one shard whose asks wait for the test.
fn holding_shard(driver: Driver) -> Node {
    let options = Options {
        shards: 1,
        ..holding()
    };
    Node::start(driver, options)
}

/// Commands that were taken, and that somebody is asked about.
fn asks(node: &Node) -> u64 {
    node.sum(|shard| shard.asks.value())
}

/// A client that has subscribed, and has read nothing of what was published until its socket was full.
fn slow_reader(node: &Node) -> Client {
    /// More than sockets that are on their way to being full may hold for a moment.
    const BACKLOG_BYTES: u64 = 300_000;
    let mut client = Client::open(node);
    let reply = client.ask(&json!({"id": 2, "subscribe": {"channel": "room"}}));
    assert!(reply["error"].is_null(), "{reply}");
    let filler = format!("\"{}\"", "x".repeat(60_000));
    let backlog = |node: &Node| node.sum(|shard| shard.buffered_bytes.value());
    while backlog(node) < BACKLOG_BYTES {
        let published = node.publish("room", Payload::Json(filler.as_str().into()));
        assert!(published < 1000, "sockets do not hold as much");
        // No faster than deliveries, so that the queue does not overflow.
        node.settle(|node| node.sum(|shard| shard.deliveries.value()) >= published);
    }
    client
}

fn a_drain_with_time_lets_slow_readers_have_their_answers(driver: Driver) {
    let node = holding_shard(driver);
    let mut slow = slow_reader(&node);
    slow.send(&rpc(3, "a"));
    let ask = node.asked();
    let mut others: Vec<_> = (0..19).map(|_| Client::open(&node)).collect();
    // One is closed each second, the first one at once.
    node.drain(Duration::from_secs(20));
    assert_eq!(others[0].close_code(), 3001);
    node.answer(ask, ErrorCode::NotAvailable);
    // The answer has stood behind the backlog for many turns by then.
    assert_eq!(others[1].close_code(), 3001);
    let reply = loop {
        let mut lines = slow.read_lines().into_iter();
        if let Some(reply) = lines.find(|line| line["id"] == 3) {
            break reply;
        }
    };
    assert_eq!(reply["error"]["code"], 108);
    assert_eq!(slow.close_code(), 3001);
    drop((slow, others));
    node.finish();
}

fn a_drain_ends_although_a_reader_is_stalled(driver: Driver) {
    let node = holding_shard(driver);
    let stalled = slow_reader(&node);
    node.drain(Duration::from_millis(200));
    node.settle(|node| node.closes(CloseReason::Drain) == 1);
    drop(stalled);
    assert_eq!(node.finish(), 1);
}

fn an_answer_in_the_last_turn_of_a_drain_is_told(driver: Driver) {
    for _ in 0..5 {
        let node = holding_shard(driver);
        let mut client = Client::open(&node);
        client.send(&rpc(2, "a"));
        let ask = node.asked();
        // Both come in one turn, unless the shard wakes in between.
        node.answer(ask, ErrorCode::NotAvailable);
        node.drain(Duration::ZERO);
        assert_eq!(client.read()["error"]["code"], 108);
        assert_eq!(client.close_code(), 3001);
        drop(client);
        assert_eq!(node.finish(), 1);
    }
}

fn a_command_behind_the_last_answer_of_a_drain_is_not_taken(driver: Driver) {
    let node = holding_shard(driver);
    let mut client = Client::open(&node);
    client.send(&rpc(100, "a"));
    node.settle(|node| asks(node) == 1);
    node.drain(Duration::from_secs(20));
    let mut answered = 0;
    // The client's turn may come behind its first answers. From then on, its next answer is the last one.
    loop {
        node.settle(|node| asks(node) > answered || node.closes(CloseReason::Drain) == 1);
        if node.closes(CloseReason::Drain) == 1 {
            break;
        }
        node.answer(node.asked(), ErrorCode::NotAvailable);
        let reply = client.read();
        assert_eq!(
            (&reply["id"], &reply["error"]["code"]),
            (&json!(100 + answered), &json!(108))
        );
        answered += 1;
        client.send(&rpc(100 + answered, "a"));
    }
    assert_eq!(client.close_code(), 3001);
    assert_eq!(asks(&node), answered, "one is taken, and not answered");
    drop(client);
    assert_eq!(node.finish(), 1);
}

fn a_client_that_never_pauses_has_all_answers_when_a_drain_closes_it(driver: Driver) {
    // What it asks is answered in the turn that reads it.
    let options = Options {
        shards: 1,
        ..Options::default()
    };
    let node = Node::start(driver, options);
    let mut client = Client::open(&node);
    node.drain(Duration::from_secs(20));
    let (mut sent, mut answered) = (0, 0);
    let code = loop {
        sent += 1;
        client.send(&rpc(100 + sent, "a"));
        match client.0.read().expect("a frame") {
            Message::Close(Some(frame)) => break u16::from(frame.code),
            Message::Text(text) => {
                assert!(text.contains("\"code\":108"), "{text}");
                answered += 1;
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(code, 3001);
    assert_eq!(asks(&node), answered, "one is taken, and not answered");
    drop(client);
    assert_eq!(node.finish(), 1);
}

fn answered_commands_leave_no_tickets(driver: Driver) {
    let options = Options {
        ask_timeout: Duration::from_millis(50),
        ..holding()
    };
    let node = Node::start(driver, options);
    let mut client = Client::open(&node);
    // More than a client may have open, in parts: each part is answered at its deadline.
    for round in 0..3 {
        let commands: Vec<String> = (0..100)
            .map(|nth| rpc(1_000 * (round + 1) + nth, "a").to_string())
            .collect();
        client.send_text(commands.join("\n"));
        let mut replies = 0;
        while replies < commands.len() {
            for reply in client.read_lines() {
                assert_eq!(reply["error"]["code"], 100, "{reply}");
                replies += 1;
            }
        }
    }
}
