//! Clients of the Centrifuge protocol, frame by frame.

use super::client::{Client, PATH};
use super::node::{Driver, Node, Options};
use myriad_shard::{
    ChannelOptions, ClientOptions, CloseReason, Namespaces, Payload, PersonalChannel, RecoveryMode,
    Right,
};
use myriad_wire::centrifuge::ErrorCode;
use serde_json::{Value, json};
use std::time::Duration;
use tungstenite::Message;

on_both_drivers!(
    commands_are_answered_in_their_order,
    a_client_that_subscribes_and_publishes_at_once_gets_its_own,
    a_channel_without_history_says_what_was_asked_and_takes_no_types,
    what_a_client_may_not_is_an_error_with_its_code,
    what_breaks_the_protocol_closes_with_its_code,
    a_client_that_does_not_connect_is_closed,
    members_are_listed_in_pages_and_counted,
    a_member_list_that_does_not_fit_is_an_error,
    joins_and_leaves_reach_those_who_wish_them,
    a_user_gets_his_personal_channel,
    a_new_connection_of_a_user_ends_the_older_ones,
    a_personal_channel_announces_joins_where_everybody_is_told,
    a_drain_tells_clients_to_reconnect,
    data_that_is_nested_too_deep_is_an_error,
    bytes_that_are_no_json_are_left_out_for_json_clients,
    bytes_that_are_not_for_a_json_client_do_not_end_it,
    kept_bytes_that_are_no_json_are_left_out_of_answers,
    bytes_in_a_personal_channel_are_left_out_for_a_json_client_that_recovers,
    protobuf_clients_get_binary_frames,
    a_client_that_comes_back_gets_what_it_missed_and_then_what_follows,
    history_is_read_in_pages_and_in_reverse,
    what_has_no_room_as_it_is_written_is_not_recovered,
    filters_are_bounded,
    commands_for_one_channel_keep_their_order,
    who_joins_and_leaves_all_the_time_has_to_wait,
    a_cache_tells_its_own_offset,
    hundreds_of_questions_are_all_answered,
);

fn commands_are_answered_in_their_order(driver: Driver) {
    let node = Node::start(driver, Options::default());
    let mut client = Client::open(&node);
    let subscribed = client.ask(&json!({"id": 2, "subscribe": {"channel": "room"}}));
    assert_eq!(subscribed["id"], 2);
    assert!(subscribed["error"].is_null(), "{subscribed}");
    let again = client.ask(&json!({"id": 3, "subscribe": {"channel": "room"}}));
    assert_eq!(again["error"]["code"], 105);
    node.publish("room", Payload::Json("{\"n\":\n1}".into()));
    let push = client.read();
    assert_eq!(push["push"]["channel"], "room");
    assert_eq!(push["push"]["pub"]["data"], json!({"n": 1}));
    client.send(&json!({"id": 4, "publish": {"channel": "room", "data": [1, "x"]}}));
    let mut both = [client.read(), client.read()];
    both.sort_by_key(|message| message["id"].is_null());
    assert_eq!(both[0], json!({"id": 4, "publish": {}}));
    assert_eq!(both[1]["push"]["pub"]["data"], json!([1, "x"]));
    assert_eq!(both[1]["push"]["pub"]["info"]["user"], "");
    let left = client.ask(&json!({"id": 5, "unsubscribe": {"channel": "room"}}));
    assert_eq!(left, json!({"id": 5, "unsubscribe": {}}));
    node.publish("room", Payload::Json("2".into()));
    client.send_text(
        "{\"id\":6,\"publish\":{\"channel\":\"room\"}}\n{\"id\":7,\"unsubscribe\":{\"channel\":\"none\"}}\n".to_owned(),
    );
    let replies = client.read_lines();
    assert_eq!(
        replies[0]["error"],
        json!({"code": 107, "message": "bad request"})
    );
    assert_eq!(replies[1], json!({"id": 7, "unsubscribe": {}}));
}

fn strict() -> Namespaces {
    let closed = ChannelOptions::default();
    let members_only = ChannelOptions {
        subscribe: Right::ALL,
        publish: Right {
            subscriber: true,
            anonymous: true,
            client: false,
        },
        ..ChannelOptions::default()
    };
    Namespaces::new(
        closed,
        [
            ("open".into(), members_only.clone()),
            (
                "users".into(),
                ChannelOptions {
                    allow_user_limited_channels: true,
                    ..members_only
                },
            ),
        ],
    )
}

fn what_a_client_may_not_is_an_error_with_its_code(driver: Driver) {
    let options = Options {
        namespaces: strict(),
        subscriptions_max: 2,
        ..Options::default()
    };
    let node = Node::start(driver, options);
    let mut client = Client::open(&node);
    let long = "a".repeat(256);
    for (request, code) in [
        (json!({"subscribe": {"channel": "room"}}), 103),
        (json!({"subscribe": {"channel": "unknown:a"}}), 102),
        (json!({"subscribe": {"channel": long}}), 107),
        (json!({"subscribe": {"channel": "open:caf\u{e9}"}}), 107),
        (json!({"subscribe": {"channel": "$open:a"}}), 103),
        (json!({"subscribe": {"channel": "users:a#42"}}), 103),
        (json!({"subscribe": {"channel": "open:a", "type": 1}}), 103),
        (
            json!({"subscribe": {"channel": "open:a", "tf": {"key": "k", "cmp": "ex"}}}),
            107,
        ),
        (json!({"publish": {"channel": "open:a", "data": 1}}), 103),
        (json!({"publish": {"channel": "open:a"}}), 107),
        (json!({"publish": {"channel": "unknown:a", "data": 1}}), 102),
        (json!({"presence": {"channel": "open:a"}}), 108),
        (json!({"presence_stats": {"channel": "open:a"}}), 108),
        (json!({"history": {"channel": "open:a"}}), 108),
        (json!({"rpc": {"method": "m"}}), 108),
        (
            json!({"sub_refresh": {"channel": "open:a", "token": "t"}}),
            103,
        ),
    ] {
        let mut command = request.clone();
        command["id"] = json!(9);
        let reply = client.ask(&command);
        assert_eq!(
            (&reply["id"], &reply["error"]["code"]),
            (&json!(9), &json!(code)),
            "{request}"
        );
    }
    for channel in ["open:a", "open:b"] {
        let reply = client.ask(&json!({"id": 1, "subscribe": {"channel": channel}}));
        assert!(reply["error"].is_null(), "{reply}");
    }
    let reply = client.ask(&json!({"id": 1, "subscribe": {"channel": "open:c"}}));
    assert_eq!(reply["error"]["code"], 106);
    let errors = node.sum(|metrics| {
        metrics
            .command_errors
            .iter()
            .map(|count| count.value())
            .sum()
    });
    assert_eq!(errors, 17);
}

fn data_that_is_nested_too_deep_is_an_error(driver: Driver) {
    let node = Node::start(driver, Options::default());
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let ask = |client: &mut Client, id: u32, command: &str, data: &str, rest: &str| {
        client.send_text(format!(
            "{{\"id\":{id},\"{command}\":{{\"data\":{data}{rest}}}}}"
        ));
        let reply = client.read();
        assert_eq!(reply["id"], id, "{reply}");
        (reply["error"]["code"].as_u64(), reply.to_string())
    };
    let (room, known) = (
        ",\"channel\":\"room\"",
        format!(",\"subs\":{{\"room\":{{\"data\":{}}}}}", nested(129)),
    );
    for (command, data, rest) in [
        ("connect", nested(20_000), ""),
        ("connect", nested(1), &*known),
    ] {
        // A client that may not connect is told so, and what it sends next is not read.
        let mut client = Client(node.connect(PATH));
        let (code, reply) = ask(&mut client, 1, command, &data, rest);
        assert_eq!(code, Some(107), "{reply}");
        assert!(reply.contains("the data of connect is nested"), "{reply}");
    }
    let mut client = Client(node.connect(PATH));
    let mut ask =
        |id, command: &str, data: &str, rest: &str| ask(&mut client, id, command, data, rest);
    assert_eq!(ask(2, "connect", &nested(128), "").0, None);
    for command in ["subscribe", "publish", "rpc"] {
        let (code, reply) = ask(3, command, &nested(129), room);
        assert_eq!(code, Some(107), "{reply}");
        assert!(
            reply.contains(&format!("the data of {command} is nested")),
            "{reply}"
        );
    }
    assert_eq!(ask(4, "publish", &nested(128), room).0, None);
    assert_eq!(ask(5, "subscribe", &nested(128), room).0, None);
    let errors = node.sum(|metrics| metrics.command_errors[ErrorCode::BadRequest.index()].value());
    assert_eq!(errors, 5);
}

fn what_breaks_the_protocol_closes_with_its_code(driver: Driver) {
    let node = Node::start(driver, Options::default());
    for (frame, code) in [
        (r#"{"id":1,"subscribe":{"channel":"a"}}"#, 3501),
        ("{}", 3501),
        ("nonsense", 3501),
        ("", 3501),
        (r#"{"id":1,"connect":{"token":"t"}}"#, 3500),
        ("{\"id\":1,\"connect\":{}}\n{\"id\":2,\"connect\":{}}", 3501),
        ("{\"id\":1,\"connect\":{}}\n{}", 3501),
        ("{\"id\":1,\"connect\":{}}\n{\"id\":2,\"ping\":{}}", 3501),
        ("{\"id\":1,\"connect\":{}}\n{\"send\":{\"data\":1}}", 3508),
        ("{\"id\":1,\"connect\":{}}\n{\"id\":2,\"refresh\":{}}", 3501),
        (
            "{\"id\":1,\"connect\":{}}\n{\"id\":2,\"refresh\":{\"token\":\"t\"}}",
            3500,
        ),
        (
            "{\"id\":1,\"connect\":{}}\n{\"id\":2,\"subscribe\":{}}",
            3501,
        ),
        (
            "{\"id\":1,\"connect\":{}}\n{\"id\":2,\"subscribe\":{\"channel\":\"a\",\"delta\":\"x\"}}",
            3501,
        ),
    ] {
        let mut client = Client(node.connect(PATH));
        client.send_text(frame.to_owned());
        assert_eq!(client.close_code(), code, "{frame}");
    }
    node.settle(|node| node.sum(|metrics| metrics.connections.value()) == 0);
    assert_eq!(node.closes(CloseReason::BadRequest), 10);
    assert_eq!(node.closes(CloseReason::InvalidToken), 2);
    assert_eq!(node.closes(CloseReason::NotAvailable), 1);
}

fn a_client_that_does_not_connect_is_closed(driver: Driver) {
    let options = Options {
        client: ClientOptions {
            stale_close_delay: Duration::from_millis(100),
            ..ClientOptions::default()
        },
        ..Options::default()
    };
    let node = Node::start(driver, options);
    let mut client = Client(node.connect(PATH));
    assert_eq!(client.close_code(), 3502);
}

fn members_are_listed_in_pages_and_counted(driver: Driver) {
    let node = Node::start(driver, Options::default());
    let mut clients: Vec<_> = (0..7).map(|_| Client::open(&node)).collect();
    for client in &mut clients {
        client.ask(&json!({"id": 2, "subscribe": {"channel": "room"}}));
    }
    let client = &mut clients[0];
    let stats = client.ask(&json!({"id": 3, "presence_stats": {"channel": "room"}}));
    assert_eq!(
        stats["presence_stats"],
        json!({"num_clients": 7, "num_users": 1})
    );
    let whole = client.ask(&json!({"id": 4, "presence": {"channel": "room"}}));
    let whole = whole["presence"]["presence"]
        .as_object()
        .expect("members")
        .clone();
    assert_eq!(whole.len(), 7);
    let mut paged = serde_json::Map::new();
    let mut cursor = String::new();
    for size in [3, 3, 1] {
        let request =
            json!({"id": 5, "presence": {"channel": "room", "limit": 3, "cursor": cursor}});
        let page = client.ask(&request);
        let members = page["presence"]["presence"]
            .as_object()
            .expect("members")
            .clone();
        assert_eq!(members.len(), size);
        paged.extend(members);
        cursor = page["presence"]["cursor"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
    }
    assert_eq!((paged, cursor), (whole, String::new()));
    let request = json!({"id": 6, "presence": {"channel": "room", "cursor": "nonsense"}});
    assert_eq!(client.ask(&request)["error"]["code"], 107);
    let mut late = Client::open(&node);
    late.send_text(
        "{\"id\":2,\"subscribe\":{\"channel\":\"alone\"}}\n{\"id\":3,\"presence\":{\"channel\":\"alone\"}}".into(),
    );
    let mut replies = late.read_lines();
    while replies.len() < 2 {
        replies.extend(late.read_lines());
    }
    let own = replies
        .iter()
        .find(|reply| reply["id"] == 3)
        .expect("presence");
    let members = own["presence"]["presence"].as_object().expect("members");
    assert_eq!(members.len(), 1, "it finds itself: {own}");
    let empty = client.ask(&json!({"id": 7, "presence": {"channel": "empty"}}));
    assert_eq!(empty["presence"], json!({"presence": {}}));
}

/// Rooms whose joins are announced, with a recovery that asks the home.
fn commands_for_one_channel_keep_their_order(driver: Driver) {
    let node = Node::start(driver, Options::default());
    for round in 0..50 {
        let mut client = Client::open(&node);
        let channel = format!("room{round}");
        let subscribe = |id: u32| json!({"id": id, "subscribe": {"channel": channel, "recover": true, "recoverable": true, "epoch": "e"}});
        let unsubscribe = |id: u32| json!({"id": id, "unsubscribe": {"channel": channel}});
        let commands = [
            subscribe(2),
            unsubscribe(3),
            subscribe(4),
            subscribe(5),
            unsubscribe(6),
            subscribe(7),
        ];
        let lines: Vec<String> = commands.iter().map(ToString::to_string).collect();
        client.send_text(lines.join("\n"));
        let mut replies = Vec::new();
        while replies.len() < 6 {
            replies.extend(client.read_lines());
        }
        // The second of two subscribes has nothing before it that ends the first.
        let refused: Vec<_> = replies
            .iter()
            .filter(|reply| !reply["error"].is_null())
            .collect();
        assert_eq!(refused.len(), 1, "{replies:?}");
        assert_eq!(
            (&refused[0]["id"], &refused[0]["error"]["code"]),
            (&json!(5), &json!(105))
        );
        let answered = replies.iter().filter(|reply| reply["error"].is_null());
        let ids: Vec<u64> = answered.filter_map(|reply| reply["id"].as_u64()).collect();
        assert_eq!(ids, [2, 3, 4, 6, 7], "{replies:?}");
        node.publish(&channel, Payload::Json("1".into()));
        assert_eq!(
            client.read()["push"]["pub"]["data"],
            json!(1),
            "it is subscribed"
        );
    }
}

fn who_joins_and_leaves_all_the_time_has_to_wait(driver: Driver) {
    let node = Node::start(driver, Options::default());
    let mut watcher = Client::open(&node);
    watcher.ask(&json!({"id": 2, "subscribe": {"channel": "room", "join_leave": true}}));
    let mut client = Client::open(&node);
    let pair = |id: u32| {
        let subscribe = json!({"id": id, "subscribe": {"channel": "room"}});
        let unsubscribe = json!({"id": id + 1, "unsubscribe": {"channel": "room"}});
        format!("{subscribe}\n{unsubscribe}")
    };
    let pairs: Vec<String> = (0..100).map(|nth| pair(2 + 2 * nth)).collect();
    let (mut carried_out, mut refused) = (0, 0);
    while refused == 0 {
        client.send_text(pairs.join("\n"));
        let mut replies = Vec::new();
        while replies.len() < 200 {
            replies.extend(client.read_lines());
        }
        let errors = replies.iter().filter(|reply| !reply["error"].is_null());
        let codes: Vec<_> = errors.map(|reply| reply["error"]["code"].clone()).collect();
        assert!(codes.iter().all(|code| *code == 111), "{codes:?}");
        refused = codes.len();
        carried_out += 100 - refused;
    }
    assert!(carried_out >= 128, "{carried_out}");
    // The watcher is told of its own join too.
    let mut events = [0, 0];
    while events[1] < carried_out {
        for push in watcher.read_lines() {
            events[0] += usize::from(!push["push"]["join"].is_null());
            events[1] += usize::from(!push["push"]["leave"].is_null());
        }
    }
    assert_eq!(events, [carried_out + 1, carried_out]);
    // In the next second it may join again.
    let joined = (0..).find(|id| {
        let reply = client.ask(&json!({"id": 1000 + id, "subscribe": {"channel": "room"}}));
        reply["error"].is_null()
    });
    assert!(joined.is_some());
}

fn a_cache_tells_its_own_offset(driver: Driver) {
    let development = Namespaces::development();
    let options = development.options_of("price").expect("a namespace");
    let cache = ChannelOptions {
        recovery_mode: RecoveryMode::Cache,
        ..ChannelOptions::clone(options)
    };
    let node = Node::start(
        driver,
        Options {
            namespaces: Namespaces::new(cache, []),
            ..Options::default()
        },
    );
    for number in 1..=3 {
        node.publish("price", Payload::Json(number.to_string().as_str().into()));
    }
    let mut client = Client::open(&node);
    let subscribed = client.ask(&json!({"id": 2, "subscribe": {
        "channel": "price", "recover": true, "recoverable": true, "epoch": "older", "offset": 10,
    }}));
    let subscribed = &subscribed["subscribe"];
    assert_eq!(subscribed["recovered"], true, "{subscribed}");
    assert_eq!(subscribed["offset"], 3, "{subscribed}");
    assert_eq!(subscribed["publications"][0]["data"], 3);
}

fn a_member_list_that_does_not_fit_is_an_error(driver: Driver) {
    let options = Options {
        outbound_bytes_max: 4096,
        ..Options::default()
    };
    let node = Node::start(driver, options);
    let mut clients: Vec<_> = (0..60).map(|_| Client::open(&node)).collect();
    for client in &mut clients {
        client.ask(&json!({"id": 2, "subscribe": {"channel": "room"}}));
    }
    let client = &mut clients[0];
    let whole = client.ask(&json!({"id": 3, "presence": {"channel": "room"}}));
    assert_eq!(whole["error"]["code"], 106, "{whole}");
    let page = client.ask(&json!({"id": 4, "presence": {"channel": "room", "limit": 5}}));
    let members = page["presence"]["presence"].as_object();
    assert_eq!(members.map(|members| members.len()), Some(5), "{page}");
    assert!(page["presence"]["cursor"].is_string());
}

fn joins_and_leaves_reach_those_who_wish_them(driver: Driver) {
    let node = Node::start(driver, Options::default());
    let mut watcher = Client::open(&node);
    watcher.ask(&json!({"id": 2, "subscribe": {"channel": "room", "join_leave": true}}));
    let own = watcher.read();
    assert!(own["push"]["join"]["info"]["client"].is_string(), "{own}");
    let mut other = Client::open(&node);
    other.ask(&json!({"id": 2, "subscribe": {"channel": "room"}}));
    let joined = watcher.read()["push"]["join"]["info"]["client"].clone();
    assert_ne!(joined, own["push"]["join"]["info"]["client"]);
    other.ask(&json!({"id": 3, "unsubscribe": {"channel": "room"}}));
    assert_eq!(watcher.read()["push"]["leave"]["info"]["client"], joined);
    other.ask(&json!({"id": 4, "subscribe": {"channel": "room"}}));
    assert_eq!(watcher.read()["push"]["join"]["info"]["client"], joined);
    drop(other);
    assert_eq!(watcher.read()["push"]["leave"]["info"]["client"], joined);
}

fn a_user_gets_his_personal_channel(driver: Driver) {
    for names_list_users in [false, true] {
        personal_channel_belongs_to_its_user(driver, names_list_users);
    }
}

fn personal_channel_belongs_to_its_user(driver: Driver, names_list_users: bool) {
    let development = Namespaces::development();
    let open = development
        .options_of("")
        .expect("channels without a namespace");
    let options = Options {
        namespaces: Namespaces::new(
            ChannelOptions {
                allow_user_limited_channels: names_list_users,
                ..ChannelOptions::clone(open)
            },
            [],
        ),
        client: ClientOptions {
            user_id_http_header: Some("x-user".into()),
            personal_channel: Some(PersonalChannel {
                namespace: None,
                single_connection: false,
            }),
            ..ClientOptions::default()
        },
        ..Options::default()
    };
    let node = Node::start(driver, options);
    let mut client = Client(node.connect_with(PATH, "x-user", "42"));
    // What comes before the connect command is answered waits.
    client.send_text(
        "{\"id\":1,\"connect\":{}}\n{\"id\":2,\"presence_stats\":{\"channel\":\"#42\"}}".to_owned(),
    );
    let connected = client.read();
    assert!(
        connected["connect"]["subs"]["#42"].is_object(),
        "{connected}"
    );
    let stats = client.read();
    assert_eq!(
        stats["presence_stats"],
        json!({"num_clients": 1, "num_users": 1})
    );
    node.publish("#42", Payload::Text("for you".into()));
    let push = client.read();
    let epoch = &push["push"]["pub"]["epoch"];
    assert!(epoch.is_string(), "the first publication tells it");
    assert_eq!(
        push["push"],
        json!({"channel": "#42", "pub": {"data": "for you", "offset": 1, "epoch": epoch}})
    );
    let taken = client.ask(&json!({"id": 3, "subscribe": {"channel": "#42"}}));
    assert_eq!(taken["error"]["code"], 105);
    let mut other = Client(node.connect_with(PATH, "x-user", "66"));
    other.ask(&json!({"id": 1, "connect": {}}));
    let refused = other.ask(&json!({"id": 2, "subscribe": {"channel": "#42"}}));
    assert_eq!(refused["error"]["code"], 103, "somebody else's");
    for command in ["history", "presence", "presence_stats"] {
        let asked =
            |client: &mut Client| client.ask(&json!({"id": 4, command: {"channel": "#42"}}));
        assert_eq!(asked(&mut other)["error"]["code"], 103, "{command}");
        assert!(asked(&mut client)[command].is_object(), "{command}");
    }
}

fn a_new_connection_of_a_user_ends_the_older_ones(driver: Driver) {
    let options = Options {
        client: ClientOptions {
            user_id_http_header: Some("x-user".into()),
            personal_channel: Some(PersonalChannel {
                namespace: None,
                single_connection: true,
            }),
            ..ClientOptions::default()
        },
        ..Options::default()
    };
    let node = Node::start(driver, options);
    let open = |user: &'static str| {
        let mut client = Client(node.connect_with(PATH, "x-user", user));
        client.send(&json!({"id": 1, "connect": {}}));
        client
    };
    let mut other = open("7");
    assert_eq!(other.read()["id"], 1);
    let mut last = open("42");
    assert_eq!(last.read()["id"], 1);
    // Two shards accept them: some of the pairs meet on one, some do not. They come within a tick of the clock.
    for _ in 0..32 {
        let mut newer = open("42");
        assert_eq!(newer.read()["id"], 1);
        assert_eq!(last.close_code(), 3504);
        last = newer;
    }
    // Of many at once, one stays.
    let mut many: Vec<_> = (0..8).map(|_| open("42")).collect();
    many.push(last);
    node.settle(|node| node.closes(CloseReason::ConnectionLimit) == 40);
    let ping = json!({"id": 2, "presence_stats": {"channel": "#42"}});
    let living = many.iter_mut().filter_map(|client| {
        client.0.send(Message::text(ping.to_string())).ok()?;
        loop {
            match client.0.read().ok()? {
                Message::Close(_) => return None,
                Message::Text(text) if text.contains("presence_stats") => return Some(()),
                _ => {}
            }
        }
    });
    assert_eq!(living.count(), 1);
    assert_eq!(other.ask(&ping)["id"], 2, "another user's stays");
}

fn a_personal_channel_announces_joins_where_everybody_is_told(driver: Driver) {
    let announcing = ChannelOptions {
        join_leave: true,
        force_push_join_leave: true,
        ..ChannelOptions::default()
    };
    let options = Options {
        client: ClientOptions {
            user_id_http_header: Some("x-user".into()),
            personal_channel: Some(PersonalChannel {
                namespace: None,
                single_connection: false,
            }),
            ..ClientOptions::default()
        },
        namespaces: Namespaces::new(announcing, []),
        ..Options::default()
    };
    let node = Node::start(driver, options);
    let mut client = Client(node.connect_with(PATH, "x-user", "42"));
    client.send(&json!({"id": 1, "connect": {}}));
    assert!(client.read()["connect"]["subs"]["#42"].is_object());
    let join = client.read()["push"].clone();
    assert_eq!(join["channel"], "#42");
    assert_eq!(join["join"]["info"]["user"], "42");
}

fn a_drain_tells_clients_to_reconnect(driver: Driver) {
    let node = Node::start(driver, Options::default());
    let mut client = Client::open(&node);
    node.drain(Duration::ZERO);
    assert_eq!(client.close_code(), 3001);
    drop(client);
    assert_eq!(node.finish(), 1);
}

fn a_client_that_subscribes_and_publishes_at_once_gets_its_own(driver: Driver) {
    let node = Node::start(driver, Options::default());
    for recover in [false, true] {
        // Channels whose homes are on all shards.
        for nth in 0..16 {
            let channel = format!("room{nth}{recover}");
            let mut client = Client::open(&node);
            let position = json!({"channel": channel, "recover": recover, "epoch": "other"});
            let subscribe = json!({"id": 2, "subscribe": position});
            let publish = json!({"id": 3, "publish": {"channel": channel, "data": nth}});
            let leave = json!({"id": 4, "unsubscribe": {"channel": channel}});
            client.send_text(format!("{subscribe}\n{publish}\n{leave}"));
            let mut told = Vec::new();
            while told.last().is_none_or(|last: &Value| last["id"] != 4) {
                told.extend(client.read_lines());
            }
            let place = |is: &dyn Fn(&Value) -> bool| told.iter().position(is);
            let subscribed = place(&|one| one["id"] == 2).expect("a reply");
            let own = place(&|one| one["push"]["pub"]["data"] == nth);
            assert!(own.is_some_and(|own| own > subscribed), "{told:?}");
        }
    }
}

fn a_channel_without_history_says_what_was_asked_and_takes_no_types(driver: Driver) {
    let plain = ChannelOptions {
        subscribe: Right::ALL,
        publish: Right::ALL,
        ..ChannelOptions::default()
    };
    let options = Options {
        namespaces: Namespaces::new(plain, []),
        ..Options::default()
    };
    let node = Node::start(driver, options);
    let mut client = Client::open(&node);
    let recover = json!({"channel": "room", "recover": true, "offset": 3, "epoch": "e"});
    let reply = client.ask(&json!({"id": 2, "subscribe": recover}));
    assert_eq!(reply["subscribe"], json!({"was_recovering": true}));
    let map = json!({"channel": "room", "data": 1, "type": 1, "key": "k"});
    let reply = client.ask(&json!({"id": 3, "publish": map}));
    assert_eq!(reply["error"]["code"], 103);
}

fn bytes_that_are_no_json_are_left_out_for_json_clients(driver: Driver) {
    let node = Node::start(driver, Options::default());
    let mut json = Client::open(&node);
    json.ask(&json!({"id": 2, "subscribe": {"channel": "room"}}));
    let mut raw = node.connect("/raw?channel=room");
    node.publish("room", Payload::of_bytes(vec![0, 255]));
    assert_eq!(raw.read().expect("a frame"), Message::binary(vec![0, 255]));
    node.publish("room", Payload::of_bytes(b"{\"a\":\n1}".to_vec()));
    let bytes = Message::binary(b"{\"a\":\n1}".to_vec());
    assert_eq!(raw.read().expect("a frame"), bytes);
    let push = json.read();
    assert_eq!(push["push"]["pub"]["data"], json!({"a": 1}), "{push}");
    assert_eq!(push["push"]["pub"]["offset"], 2);
    node.settle_unreadable(1);
}

fn bytes_that_are_not_for_a_json_client_do_not_end_it(driver: Driver) {
    let node = Node::start(driver, Options::default());
    let mut json = Client::open(&node);
    let filter = json!({"key": "kind", "cmp": "ex"});
    json.ask(&json!({"id": 2, "subscribe": {"channel": "room", "tf": filter}}));
    node.publish("room", Payload::Binary([0, 255].into()));
    let stats = json.ask(&json!({"id": 3, "presence_stats": {"channel": "room"}}));
    assert_eq!(stats["presence_stats"]["num_clients"], 1, "{stats}");
}

fn kept_bytes_that_are_no_json_are_left_out_of_answers(driver: Driver) {
    let node = Node::start(driver, Options::default());
    let mut publisher = node.connect_with(PATH, "sec-websocket-protocol", "centrifuge-protobuf");
    // {id: 1, connect: {}}, and {id: 2, publish: {channel: "room", data: [0, 255]}}
    let connect = [4, 0x08, 1, 0x22, 0];
    let publish = b"\x0e\x08\x02\x3a\x0a\x0a\x04room\x12\x02\x00\xff";
    for command in [&connect[..], publish] {
        let command = Message::binary(command.to_vec());
        publisher.send(command).expect("a socket");
        publisher.read().expect("a reply");
    }
    node.publish("room", Payload::Json("2".into()));
    let mut client = Client::open(&node);
    let told = |publications: &Value| -> Vec<(u64, Value)> {
        let publications = publications.as_array().expect("a list").iter();
        publications
            .map(|one| {
                (
                    one["offset"].as_u64().expect("a number"),
                    one["data"].clone(),
                )
            })
            .collect()
    };
    let history = json!({"id": 3, "history": {"channel": "room", "limit": -1}});
    let page = client.ask(&history);
    let page = &page["history"];
    assert_eq!(told(&page["publications"]), [(2, json!(2))], "{page}");
    assert_eq!(page["offset"], 2);
    let subscribe = json!({"id": 2, "subscribe": {"channel": "room", "recover": true}});
    let recovered = client.ask(&subscribe);
    let recovered = &recovered["subscribe"];
    assert_eq!(recovered["recovered"], true, "{recovered}");
    assert_eq!(told(&recovered["publications"]), [(2, json!(2))]);
    node.settle_unreadable(2);
    // {id: 3, history: {channel: "room", limit: 9}}
    let history = b"\x0c\x08\x03\x52\x08\x0a\x04room\x38\x09";
    let history = Message::binary(history.to_vec());
    publisher.send(history).expect("a socket");
    let page = publisher.read().expect("a reply").into_data();
    assert!(page.windows(4).any(|bytes| bytes == [0x22, 2, 0, 255]));
}

fn bytes_in_a_personal_channel_are_left_out_for_a_json_client_that_recovers(driver: Driver) {
    let options = Options {
        client: ClientOptions {
            user_id_http_header: Some("x-user".into()),
            personal_channel: Some(PersonalChannel {
                namespace: None,
                single_connection: false,
            }),
            ..ClientOptions::default()
        },
        ..Options::default()
    };
    let node = Node::start(driver, options);
    node.publish("#42", Payload::Binary([0, 255].into()));
    let mut client = Client(node.connect_with(PATH, "x-user", "42"));
    let known = json!({"#42": {"recover": true, "recoverable": true, "offset": 0}});
    let connected = client.ask(&json!({"id": 1, "connect": {"subs": known}}));
    let personal = &connected["connect"]["subs"]["#42"];
    assert_eq!(personal["recovered"], true, "{connected}");
    assert_eq!(personal["publications"], Value::Null);
}

fn protobuf_clients_get_binary_frames(driver: Driver) {
    let node = Node::start(driver, Options::default());
    let mut client = node.connect_with(PATH, "sec-websocket-protocol", "centrifuge-protobuf");
    // {id: 1, connect: {}}, and {id: 2, subscribe: {channel: "c"}}
    let commands = [4, 0x08, 1, 0x22, 0, 7, 0x08, 2, 0x2a, 3, 0x0a, 1, b'c'];
    client
        .send(Message::binary(commands.to_vec()))
        .expect("a socket");
    let connected = client.read().expect("a frame");
    assert!(connected.is_binary());
    assert_eq!(connected.into_data()[1..4], [0x08, 1, 0x2a]);
    let subscribed = client.read().expect("a frame").into_data();
    assert_eq!(subscribed[1..4], [0x08, 2, 0x32]);
    node.publish("c", Payload::Binary([0, 255].into()));
    let push = client.read().expect("a frame").into_data();
    assert!(
        push.ends_with(&[0x22, 4, 0x22, 2, 0, 255]) || push.windows(2).any(|pair| pair == [0, 255])
    );
}

fn a_client_that_comes_back_gets_what_it_missed_and_then_what_follows(driver: Driver) {
    let node = Node::start(driver, Options::default());
    let mut client = Client::open(&node);
    let first = client.ask(&json!({"id": 2, "subscribe": {"channel": "room"}}));
    let first = &first["subscribe"];
    assert_eq!(
        (&first["recoverable"], &first["positioned"]),
        (&json!(true), &json!(true))
    );
    let epoch = first["epoch"].as_str().expect("an epoch").to_owned();
    drop(client);
    for n in 1..=5 {
        node.publish("room", Payload::Json(n.to_string().into()));
    }
    let offsets = |publications: &Value| -> Vec<u64> {
        let list = publications.as_array().cloned().unwrap_or_default();
        list.iter()
            .map(|publication| publication["offset"].as_u64().expect("an offset"))
            .collect()
    };
    for (offset, epoch, recovered, missed) in [
        (2, &*epoch, true, vec![3, 4, 5]),
        (5, &*epoch, true, vec![]),
        (0, "", true, vec![1, 2, 3, 4, 5]),
        (2, "_", false, vec![]),
        (9, &*epoch, false, vec![]),
    ] {
        let mut client = Client::open(&node);
        let request = json!({"channel": "room", "recover": true, "offset": offset, "epoch": epoch});
        let reply = client.ask(&json!({"id": 2, "subscribe": request}));
        let result = &reply["subscribe"];
        assert_eq!(result["was_recovering"], true, "{reply}");
        assert_eq!(
            result["recovered"].as_bool().unwrap_or_default(),
            recovered,
            "{reply}"
        );
        assert_eq!(offsets(&result["publications"]), missed, "{reply}");
        let expected = if recovered { offset } else { 5 };
        assert_eq!(
            result["offset"].as_u64().unwrap_or_default(),
            expected,
            "{reply}"
        );
    }
    let mut client = Client::open(&node);
    let request = json!({"channel": "room", "recover": true, "offset": 2, "epoch": "_", "flag": 2});
    let reply = client.ask(&json!({"id": 2, "subscribe": request}));
    assert_eq!(reply["error"]["code"], 112);
    let unrecoverable = ErrorCode::UnrecoverablePosition.index();
    let counted = node.sum(|metrics| metrics.command_errors[unrecoverable].value());
    assert_eq!(counted, 1);
    let request = json!({"channel": "room", "recover": true, "offset": 4, "epoch": epoch});
    client.ask(&json!({"id": 3, "subscribe": request}));
    node.publish("room", Payload::Json("6".into()));
    assert_eq!(
        client.read()["push"]["pub"],
        json!({"data": 6, "offset": 6})
    );
}

fn history_is_read_in_pages_and_in_reverse(driver: Driver) {
    let node = Node::start(driver, Options::default());
    for n in 1..=5 {
        node.publish("room", Payload::Json(n.to_string().into()));
    }
    let mut client = Client::open(&node);
    let mut read = |request: Value| {
        let mut request = request;
        request["channel"] = json!("room");
        let reply = client.ask(&json!({"id": 2, "history": request}));
        let offsets = reply["history"]["publications"].as_array().map(|list| {
            let offsets = list
                .iter()
                .map(|publication| publication["offset"].as_u64());
            offsets
                .map(|offset| offset.expect("an offset"))
                .collect::<Vec<_>>()
        });
        (
            offsets,
            reply["history"]["offset"].as_u64(),
            reply["error"]["code"].as_u64(),
        )
    };
    assert_eq!(read(json!({})), (Some(vec![]), Some(5), None));
    assert_eq!(
        read(json!({"limit": -1})),
        (Some(vec![1, 2, 3, 4, 5]), Some(5), None)
    );
    assert_eq!(
        read(json!({"limit": 2, "since": {"offset": 2}})),
        (Some(vec![3, 4]), Some(5), None)
    );
    assert_eq!(
        read(json!({"limit": 2, "reverse": true})),
        (Some(vec![5, 4]), Some(5), None)
    );
    assert_eq!(
        read(json!({"limit": 9, "reverse": true, "since": {"offset": 3}})),
        (Some(vec![2, 1]), Some(5), None)
    );
    assert_eq!(
        read(json!({"limit": 9, "reverse": true, "since": {"offset": 0}})),
        (None, None, Some(107))
    );
    assert_eq!(
        read(json!({"limit": 9, "since": {"offset": 1, "epoch": "other"}})),
        (None, None, Some(112))
    );
    // An error that came from elsewhere counts as one that was answered at once.
    let counted =
        |code: ErrorCode| node.sum(|metrics| metrics.command_errors[code.index()].value());
    assert_eq!(counted(ErrorCode::BadRequest), 1);
    assert_eq!(counted(ErrorCode::UnrecoverablePosition), 1);
}

fn what_has_no_room_as_it_is_written_is_not_recovered(driver: Driver) {
    let namespaces = Namespaces::new(
        ChannelOptions {
            allow_fossil_delta: true,
            ..Options::default()
                .namespaces
                .options_of("room")
                .map_or_else(ChannelOptions::default, |options| {
                    ChannelOptions::clone(options)
                })
        },
        [],
    );
    let options = Options {
        namespaces,
        ..Options::default()
    };
    let node = Node::start(driver, options);
    // 800 KB as it came. For a client with deltas data is a string, in which each of its escapes takes twice as many bytes. No two
    // publications are alike, so that deltas are no smaller.
    let mut state = 7_u32;
    for _ in 0..80 {
        let escaped = (0..5_000).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ['"', '\\', '\n', '\r', '\t', '\u{8}', '\u{c}'][(state >> 16) as usize % 7]
        });
        let data = json!(escaped.collect::<String>()).to_string();
        node.publish("room", Payload::Json(data.into()));
    }
    for (delta, recovered) in [("", true), ("fossil", false)] {
        let mut client = Client::open(&node);
        let request = json!({"channel": "room", "recover": true, "delta": delta});
        let reply = client.ask(&json!({"id": 2, "subscribe": request}));
        let result = &reply["subscribe"];
        let is_recovered = result["recovered"].as_bool().unwrap_or_default();
        let bytes = reply.to_string().len();
        assert_eq!(
            is_recovered, recovered,
            "{delta}: {bytes} bytes, delta {}",
            result["delta"]
        );
        node.publish("room", Payload::Json("1".into()));
        assert_eq!(client.read()["push"]["channel"], "room", "still open");
    }
    let mut client = Client::open(&node);
    let request = json!({"channel": "room", "recover": true, "delta": "fossil", "flag": 2});
    let reply = client.ask(&json!({"id": 2, "subscribe": request}));
    assert_eq!(reply["error"]["code"], 112);
}

fn filters_are_bounded(driver: Driver) {
    let namespaces = Namespaces::new(
        ChannelOptions {
            subscribe: Right::ALL,
            allow_tags_filter: true,
            ..ChannelOptions::default()
        },
        [],
    );
    let options = Options {
        namespaces,
        ..Options::default()
    };
    let node = Node::start(driver, options);
    let mut client = Client::open(&node);
    let listed = |count: usize, bytes: usize| {
        let values: Vec<String> = (0..count).map(|n| format!("{n:0>bytes$}")).collect();
        json!({"key": "k", "cmp": "in", "vals": values})
    };
    let containing = |count: usize| {
        let nodes: Vec<_> = (0..count)
            .map(|n| json!({"key": "k", "cmp": "ct", "val": n.to_string()}))
            .collect();
        json!({"op": "or", "nodes": nodes})
    };
    for (id, filter, code) in [
        (2, listed(257, 1), Some(107)),
        (3, listed(200, 100), Some(107)),
        // Each counts 16.
        (5, containing(17), Some(107)),
        (4, listed(256, 60), None),
    ] {
        let request = json!({"channel": "c", "tf": filter});
        let reply = client.ask(&json!({"id": id, "subscribe": request}));
        assert_eq!(reply["error"]["code"].as_u64(), code, "{reply}");
    }
}

fn hundreds_of_questions_are_all_answered(driver: Driver) {
    let node = Node::start(driver, Options::default());
    node.publish("room", Payload::Json("1".into()));
    let mut client = Client::open(&node);
    client.ask(&json!({"id": 2, "subscribe": {"channel": "room"}}));
    let questions = (0..240).map(|n| {
        let id = 100 + n;
        match n % 3 {
            0 => json!({"id": id, "presence": {"channel": "room"}}),
            1 => json!({"id": id, "presence_stats": {"channel": "room"}}),
            _ => json!({"id": id, "history": {"channel": "room", "limit": 1}}),
        }
    });
    let lines: Vec<String> = questions.map(|question| question.to_string()).collect();
    client.send_text(lines.join("\n"));
    let mut answered: Vec<u64> = Vec::new();
    while answered.len() < lines.len() {
        for reply in client.read_lines() {
            assert!(reply["error"].is_null(), "{reply}");
            answered.push(reply["id"].as_u64().expect("a reply"));
        }
    }
    assert!(answered.is_sorted(), "of one client, one after the other");
}
