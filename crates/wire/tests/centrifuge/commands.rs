//! Commands, as clients write them.

use myriad_wire::centrifuge::{
    Command, CommandError, ConnectRequest, Data, Decoder, Encoding, FilterNode, HistoryRequest,
    Request, StreamPosition, SubscribeRequest,
};
use prost::Message;
use serde_json::json;

use super::schema;

fn decode(encoding: Encoding, frame: &[u8]) -> Result<Vec<Command<'_>>, CommandError> {
    Decoder::new(encoding, frame).collect()
}

fn one(encoding: Encoding, frame: &[u8]) -> Command<'_> {
    let mut commands = decode(encoding, frame).expect("well-formed");
    assert_eq!(commands.len(), 1);
    commands.remove(0)
}

fn protobuf(command: &schema::Command) -> Vec<u8> {
    command.encode_length_delimited_to_vec()
}

/// The same subscription in both encodings.
fn subscription() -> (schema::Subscribe, serde_json::Value) {
    let leaf = schema::Filter {
        key: "t".into(),
        cmp: "in".into(),
        vals: vec!["a".into(), "b".into()],
        ..Default::default()
    };
    let tf = schema::Filter {
        op: "not".into(),
        nodes: vec![leaf],
        ..Default::default()
    };
    let protobuf = schema::Subscribe {
        channel: "c".into(),
        token: "T".into(),
        recover: true,
        epoch: "abcd".into(),
        offset: u64::MAX,
        data: b"{}".to_vec(),
        positioned: true,
        recoverable: true,
        join_leave: true,
        delta: "fossil".into(),
        tf: Some(tf),
        flag: 3,
        kind: -1,
        phase: 2,
        cursor: "x".into(),
        limit: 7,
        asc: true,
    };
    let json = json!({
        "channel": "c", "token": "T", "recover": true, "epoch": "abcd", "offset": u64::MAX, "data": {},
        "positioned": true, "recoverable": true, "join_leave": true, "delta": "fossil", "flag": 3, "type": -1,
        "tf": {"op": "not", "nodes": [{"key": "t", "cmp": "in", "vals": ["a", "b"]}]},
        "phase": 2, "cursor": "x", "limit": 7, "asc": true, "later": [{}],
    });
    (protobuf, json)
}

fn expected_subscription(data: Data<'_>) -> SubscribeRequest<'_> {
    let leaf = FilterNode {
        key: "t".into(),
        cmp: "in".into(),
        vals: vec!["a".into(), "b".into()],
        ..FilterNode::default()
    };
    let mut filter = FilterNode {
        op: "not".into(),
        ..FilterNode::default()
    };
    filter.nodes.push(leaf).expect("small");
    SubscribeRequest {
        channel: "c".into(),
        token: "T".into(),
        recover: true,
        epoch: "abcd".into(),
        offset: u64::MAX,
        data,
        positioned: true,
        recoverable: true,
        join_leave: true,
        delta: "fossil".into(),
        filter: Some(filter),
        flag: 3,
        kind: -1,
    }
}

#[test]
fn subscribe_has_all_its_fields() {
    let (subscribe, json) = subscription();
    let frame = protobuf(&schema::Command {
        id: 7,
        subscribe: Some(subscribe),
        ..Default::default()
    });
    let command = one(Encoding::Protobuf, &frame);
    assert_eq!(command.id, 7);
    let expected = expected_subscription(Data::Binary(b"{}"));
    assert_eq!(command.request, Request::Subscribe(expected));

    let frame = json!({"id": 7, "subscribe": json}).to_string();
    let command = one(Encoding::Json, frame.as_bytes());
    assert_eq!(
        command.request,
        Request::Subscribe(expected_subscription(Data::Json("{}")))
    );
}

#[test]
fn connect_has_maps() {
    let (subscribe, json) = subscription();
    let connect = schema::Connect {
        token: "T".into(),
        data: b"[1]".to_vec(),
        subs: [("a".into(), subscribe)].into(),
        name: "js".into(),
        version: "5".into(),
        headers: [("h".into(), "v".into()), ("i".into(), String::new())].into(),
        flag: -1,
        dict: "d".into(),
        profile: "p".into(),
    };
    let expected = |data, sub| ConnectRequest {
        token: "T".into(),
        data,
        subs: [("a".into(), sub)].into(),
        name: "js".into(),
        version: "5".into(),
        headers: [("h".into(), "v".into()), ("i".into(), "".into())].into(),
        flag: -1,
    };
    let frame = protobuf(&schema::Command {
        id: 1,
        connect: Some(connect),
        ..Default::default()
    });
    assert_eq!(
        one(Encoding::Protobuf, &frame).request,
        Request::Connect(expected(
            Data::Binary(b"[1]"),
            expected_subscription(Data::Binary(b"{}"))
        ))
    );
    let frame = json!({"id": 1, "connect": {
        "token": "T", "data": [1], "subs": {"a": json}, "name": "js", "version": "5",
        "headers": {"h": "v", "i": null}, "flag": -1,
    }})
    .to_string();
    assert_eq!(
        one(Encoding::Json, frame.as_bytes()).request,
        Request::Connect(expected(
            Data::Json("[1]"),
            expected_subscription(Data::Json("{}"))
        ))
    );
}

/// Each kind of command, in both encodings, and its name.
fn simple_commands() -> Vec<(&'static str, schema::Command, serde_json::Value)> {
    let channel = || {
        Some(schema::Channel {
            channel: "c".into(),
        })
    };
    let data = || b"\"x\"".to_vec();
    let command = |id| schema::Command {
        id,
        ..Default::default()
    };
    let mut commands = Vec::new();
    let mut add = |name, command, json| commands.push((name, command, json));
    add("Pong", command(0), json!({}));
    let mut next = command(2);
    next.unsubscribe = channel();
    add("Unsubscribe", next, json!({"channel": "c"}));
    let mut next = command(3);
    next.publish = Some(schema::Publish {
        channel: "c".into(),
        data: data(),
        kind: 1,
        key: "k".into(),
    });
    let json = json!({"channel": "c", "data": "x", "type": 1, "key": "k"});
    add("Publish", next, json);
    let mut next = command(4);
    next.presence = channel();
    add("Presence", next, json!({"channel": "c"}));
    let mut next = command(5);
    next.presence_stats = channel();
    add("PresenceStats", next, json!({"channel": "c"}));
    let mut next = command(6);
    next.send = Some(schema::Send { data: data() });
    add("Send", next, json!({"data": "x"}));
    let mut next = command(7);
    next.rpc = Some(schema::Rpc {
        data: data(),
        method: "m".into(),
    });
    add("Rpc", next, json!({"data": "x", "method": "m"}));
    let mut next = command(8);
    next.refresh = Some(schema::Refresh { token: "t".into() });
    add("Refresh", next, json!({"token": "t"}));
    let mut next = command(9);
    let items = vec![schema::Item {
        key: "k".into(),
        version: 4,
    }];
    next.sub_refresh = Some(schema::SubRefresh {
        channel: "c".into(),
        token: "t".into(),
        kind: 2,
        track: vec![schema::Batch {
            signature: "s".into(),
            items,
        }],
        untrack: vec!["u".into()],
    });
    let json = json!({"channel": "c", "token": "t", "type": 2, "untrack": ["u"],
        "track": [{"signature": "s", "items": [{"key": "k", "version": 4}]}]});
    add("SubRefresh", next, json);
    commands
}

/// The debug text with payloads of both encodings alike.
fn text_of(command: &Command<'_>) -> String {
    format!("{command:?}")
        .replace("Json(\"\\\"x\\\"\")", "x")
        .replace("Binary([34, 120, 34])", "x")
}

fn json_key(name: &str) -> String {
    let mut key = String::new();
    for char in name.chars() {
        if char.is_uppercase() && !key.is_empty() {
            key.push('_');
        }
        key.extend(char.to_lowercase());
    }
    key
}

#[test]
fn both_encodings_give_the_same_commands() {
    for (name, command, json) in simple_commands() {
        let frame = protobuf(&command);
        let from_protobuf = text_of(&one(Encoding::Protobuf, &frame));
        let mut line = json!({});
        if command.id > 0 {
            line = json!({"id": command.id, json_key(name): json});
        }
        let line = line.to_string();
        let from_json = text_of(&one(Encoding::Json, line.as_bytes()));
        assert_eq!(from_protobuf, from_json);
        assert!(
            from_json.starts_with(&format!("Command {{ id: {}, request: {name}", command.id)),
            "{from_json}"
        );
        for part in [
            "\"c\"",
            "x",
            "\"m\"",
            "\"t\"",
            "\"u\"",
            "\"k\"",
            "version: 4",
        ] {
            let sent = json.to_string().contains(&part.replace(": ", "\":"));
            let ignored = name == "Publish" && part == "\"k\"";
            assert!(
                !sent || ignored || from_json.contains(part),
                "{part} of {from_json}"
            );
        }
    }
}

#[test]
fn history_has_a_position() {
    let expected = Request::History(HistoryRequest {
        channel: "c".into(),
        limit: -1,
        since: Some(StreamPosition {
            offset: 5,
            epoch: "e".into(),
        }),
        reverse: true,
    });
    let frame = protobuf(&schema::Command {
        id: 1,
        history: Some(schema::History {
            channel: "c".into(),
            limit: -1,
            since: Some(schema::Position {
                offset: 5,
                epoch: "e".into(),
            }),
            reverse: true,
        }),
        ..Default::default()
    });
    assert_eq!(one(Encoding::Protobuf, &frame).request, expected);
    let frame = br#"{"id":1,"history":{"channel":"c","limit":-1,"since":{"offset":5,"epoch":"e"},"reverse":true}}"#;
    assert_eq!(one(Encoding::Json, frame).request, expected);
}

#[test]
fn several_commands_come_in_a_frame() {
    let lines = b"{\"id\":1,\"connect\":{}}\n{\"id\":2,\"presence\":{\"channel\":\"c\"}}\n{}\n";
    let commands = decode(Encoding::Json, lines).expect("well-formed");
    assert_eq!(commands.iter().map(|c| c.id).collect::<Vec<_>>(), [1, 2, 0]);
    let mut frame = Vec::new();
    for (_, command, _) in simple_commands() {
        frame.extend(protobuf(&command));
    }
    let commands = decode(Encoding::Protobuf, &frame).expect("well-formed");
    assert_eq!(
        commands.iter().map(|c| c.id).collect::<Vec<_>>(),
        [0, 2, 3, 4, 5, 6, 7, 8, 9]
    );
    assert_eq!(one(Encoding::Protobuf, &[0]).request, Request::Pong);
}

#[test]
fn only_one_request_of_a_command_counts() {
    let chosen = |frame: &str| format!("{:?}", one(Encoding::Json, frame.as_bytes()).request);
    assert!(chosen(r#"{"id":1,"rpc":{},"send":{},"history":{}}"#).starts_with("History"));
    assert!(chosen(r#"{"send":{}}"#).starts_with("Send"));
    assert!(chosen(r#"{"connect":{},"subscribe":{}}"#).starts_with("Pong"));
    assert!(chosen(r#"{"id":1,"ping":{},"refresh":{}}"#).starts_with("Refresh"));
    let error = decode(Encoding::Json, br#"{"id":3,"ping":{}}"#);
    assert_eq!(error, Err(CommandError::NoRequest { id: 3 }));
}

#[test]
fn null_is_absent_but_as_data_and_unknown_keys_are_ignored() {
    let line = br#"{"id":2,"connect":null,"subscribe":{"channel":"c","data":null,"tf":null,"offset":null,"x":{"y":[1]}}}"#;
    let Request::Subscribe(subscribe) = one(Encoding::Json, line).request else {
        panic!("a subscribe");
    };
    let expected = SubscribeRequest {
        channel: "c".into(),
        data: Data::Json("null"),
        ..SubscribeRequest::default()
    };
    assert_eq!(subscribe, expected);
}

#[test]
fn payloads_and_escapes_stay_as_written() {
    let line = "{\"id\":1,\"publish\":{\"data\": {\"a\" : 1e3, \"a\":\"\\u00e9\"} ,\"channel\":\"\\u00e9\\n\"}}";
    let Request::Publish(publish) = one(Encoding::Json, line.as_bytes()).request else {
        panic!("a publish");
    };
    assert_eq!(publish.data, Data::Json("{\"a\" : 1e3, \"a\":\"\\u00e9\"}"));
    assert_eq!(publish.channel, "é\n");
}

#[test]
fn malformed_frames_name_the_field() {
    let sentence = |encoding, frame: &[u8]| {
        let error = decode(encoding, frame).expect_err("malformed");
        error.to_string()
    };
    let json = |line: &str| sentence(Encoding::Json, line.as_bytes());
    assert_eq!(json(""), "the frame is empty");
    assert_eq!(json("\n"), "the frame is empty");
    assert_eq!(json("{}\n\n{}"), "the frame has a blank line");
    assert_eq!(json("{}\n\n"), "the frame has a blank line");
    assert_eq!(json("\n{}"), "the frame has a blank line");
    assert!(json("{").contains("EOF"));
    assert!(json("{} {}").contains("trailing"));
    assert!(json("[]").contains("expected an object"));
    assert!(json(r#"{"id":-1}"#).contains("id: invalid value: integer `-1`, expected u32"));
    assert!(json(r#"{"id":4294967296}"#).contains("id: invalid value"));
    assert!(
        json(r#"{"id":1,"subscribe":{"channel":5}}"#).contains("subscribe: channel: invalid type")
    );
    assert!(json(r#"{"id":1,"subscribe":{"recover":"yes"}}"#).contains("subscribe: recover: "));
    assert!(
        json(r#"{"id":1,"history":{"since":{"offset":18446744073709551616}}}"#)
            .contains("since: offset: ")
    );
    assert_eq!(
        sentence(Encoding::Json, b"{\"id\":1,\"x\":\"\xff\"}"),
        "the frame is not UTF-8"
    );

    let protobuf = |bytes: &[u8]| sentence(Encoding::Protobuf, bytes);
    assert_eq!(protobuf(b""), "the frame is empty");
    assert_eq!(protobuf(&[2, 8]), "the message ends within command");
    assert_eq!(protobuf(&[2, 8, 0x80]), "the message ends within command");
    assert_eq!(
        protobuf(&[0xff; 11]),
        "the number in command has more than 64 bits"
    );
    assert_eq!(protobuf(&[2, 0x0a, 0]), "id has a wrong wire type");
    assert_eq!(protobuf(&[1, 0x0b]), "command has a wrong wire type");
    assert_eq!(
        protobuf(&[2, 0, 0]),
        "a field has a number that protobuf does not allow"
    );
    assert_eq!(
        protobuf(&[5, 0x2a, 3, 0x0a, 1, 0xff]),
        "channel is not UTF-8"
    );
    assert_eq!(
        protobuf(&[4, 0x2a, 2, 0x0a, 1]),
        "the message ends within subscribe"
    );
}

#[test]
fn an_error_ends_the_frame() {
    let mut decoder = Decoder::new(Encoding::Json, b"{}\nx\n{}");
    assert!(decoder.next().is_some_and(|command| command.is_ok()));
    assert!(decoder.next().is_some_and(|command| command.is_err()));
    assert!(decoder.next().is_none());
}

#[test]
fn protobuf_follows_its_specification() {
    // Twice an id: the last counts. Fields 100 (fixed32), 101 (fixed64) and 102 (bytes) are unknown.
    let message = [
        &[8, 1, 8, 2][..],
        &[0xa5, 6, 1, 2, 3, 4],
        &[0xa9, 6, 1, 2, 3, 4, 5, 6, 7, 8],
        &[0xb2, 6, 1, 0],
        // Two parts of a subscribe request merge.
        &[0x2a, 3, 0x0a, 1, b'a'],
        &[0x2a, 2, 0x18, 2],
    ]
    .concat();
    let mut frame = vec![u8::try_from(message.len()).expect("short")];
    frame.extend(&message);
    let command = one(Encoding::Protobuf, &frame);
    assert_eq!(command.id, 2);
    let expected = SubscribeRequest {
        channel: "a".into(),
        recover: true,
        ..SubscribeRequest::default()
    };
    assert_eq!(command.request, Request::Subscribe(expected));
    let oracle = schema::Command::decode(&message[..]).expect("well-formed");
    assert_eq!(oracle.id, 2);
    assert_eq!(
        oracle.subscribe.map(|s| (s.channel, s.recover)),
        Some(("a".into(), true))
    );
}

/// Each prefix of a valid frame gives fewer commands or an error, and no panic.
#[test]
fn frames_may_be_cut_anywhere() {
    let (subscribe, json) = subscription();
    let mut frames = vec![
        (
            Encoding::Json,
            json!({"id": 1, "subscribe": json}).to_string().into_bytes(),
        ),
        (
            Encoding::Protobuf,
            protobuf(&schema::Command {
                id: 1,
                subscribe: Some(subscribe),
                ..Default::default()
            }),
        ),
    ];
    for (name, command, json) in simple_commands() {
        frames.push((Encoding::Protobuf, protobuf(&command)));
        frames.push((
            Encoding::Json,
            json!({"id": 1, json_key(name): json})
                .to_string()
                .into_bytes(),
        ));
    }
    for (encoding, frame) in frames {
        for length in 0..frame.len() {
            let cut = decode(encoding, &frame[..length]);
            assert!(cut.is_err(), "{encoding:?} {:?}", &frame[..length]);
        }
    }
}

#[test]
fn depth_is_bounded() {
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    for line in [
        format!("{{\"id\":1,\"rpc\":{{\"data\":{deep}}}}}"),
        format!("{{\"id\":1,\"rpc\":{{}},\"unknown\":{deep}}}"),
    ] {
        assert!(decode(Encoding::Json, line.as_bytes()).is_ok());
    }
    let line = format!(
        "{{\"id\":1,\"subscribe\":{{\"tf\":{}",
        "{\"nodes\":[".repeat(50_000)
    );
    assert!(decode(Encoding::Json, line.as_bytes()).is_err());
    for (levels, allowed) in [(32, true), (33, false), (2_000, false)] {
        let tf = (1..levels).fold(schema::Filter::default(), |inner, _| schema::Filter {
            op: "not".into(),
            nodes: vec![inner],
            ..Default::default()
        });
        let tf = json_of(&tf);
        let line = format!("{{\"id\":1,\"subscribe\":{{\"tf\":{tf}}}}}");
        assert_eq!(decode(Encoding::Json, line.as_bytes()).is_ok(), allowed);
    }
    for (levels, allowed) in [(32, true), (33, false), (2_000, false)] {
        let mut tf = Vec::new();
        for _ in 1..levels {
            let mut outer = vec![0x32];
            prost::encode_length_delimiter(tf.len(), &mut outer).expect("room");
            outer.extend(&tf);
            tf = outer;
        }
        let mut subscribe = vec![0x6a];
        prost::encode_length_delimiter(tf.len(), &mut subscribe).expect("room");
        subscribe.extend(tf);
        let mut command = vec![8, 1, 0x2a];
        prost::encode_length_delimiter(subscribe.len(), &mut command).expect("room");
        command.extend(subscribe);
        let mut frame = Vec::new();
        prost::encode_length_delimiter(command.len(), &mut frame).expect("room");
        frame.extend(command);
        assert_eq!(
            decode(Encoding::Protobuf, &frame).is_ok(),
            allowed,
            "{levels}"
        );
    }
    for (count, allowed) in [(255, true), (256, false)] {
        let nodes = vec!["{}"; count].join(",");
        let line = format!("{{\"id\":1,\"subscribe\":{{\"tf\":{{\"nodes\":[{nodes}]}}}}}}");
        assert_eq!(decode(Encoding::Json, line.as_bytes()).is_ok(), allowed);
    }
}

/// A chain of filter nodes as text, without recursion on its way out.
fn json_of(filter: &schema::Filter) -> String {
    let mut levels = 0;
    let mut node = filter;
    while let Some(inner) = node.nodes.first() {
        levels += 1;
        node = inner;
    }
    "{\"nodes\":[".repeat(levels) + "{}" + &"]}".repeat(levels)
}

proptest::proptest! {
    #![proptest_config(super::cases())]

    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
        drop(decode(Encoding::Json, &bytes));
        drop(decode(Encoding::Protobuf, &bytes));
    }
}
