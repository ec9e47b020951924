//! Replies and pushes as clients read them: protobuf through `prost`, JSON as its exact text.

use std::iter;

use myriad_wire::centrifuge::{
    ClientInfo, ConnectResult, DisconnectCode, Encoding, ErrorCode, FrameWriter, PublicationFields,
    Push, ReplyError, ServerSubscription, SubscribeResult, UnsubscribeCode,
};
use proptest::prelude::*;
use prost::Message;
use serde_json::json;

use super::schema;

/// One message in both encodings. JSON must have no line break, because line breaks separate messages.
fn both(write: impl Fn(&mut FrameWriter<'_>)) -> (String, schema::Reply) {
    let mut json = Vec::new();
    write(&mut FrameWriter::new(Encoding::Json, &mut json));
    let json = String::from_utf8(json).expect("UTF-8");
    let _: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert!(!json.contains('\n'));
    let mut protobuf = Vec::new();
    write(&mut FrameWriter::new(Encoding::Protobuf, &mut protobuf));
    let decoded = schema::Reply::decode_length_delimited(&protobuf[..]).expect("protobuf");
    assert_eq!(
        decoded.encode_length_delimited_to_vec().len(),
        protobuf.len(),
        "the schema knows every field, and no zero is written"
    );
    (json, decoded)
}

fn push(channel: &str, push: &Push<'_>) -> (String, schema::Push) {
    let (json, reply) = both(|frame| frame.push(channel, push));
    assert_eq!(reply.id, 0);
    (json, reply.push.expect("a push"))
}

const NONE: iter::Empty<PublicationFields<'static>> = iter::empty();

const INFO: ClientInfo<'static> = ClientInfo {
    user: "u",
    client: "id",
    connection_info: b"1",
    channel_info: b"{}",
};
const INFO_JSON: &str = r#"{"user":"u","client":"id","conn_info":1,"chan_info":{}}"#;

fn schema_info() -> schema::ClientInfo {
    schema::ClientInfo {
        user: "u".into(),
        client: "id".into(),
        conn_info: b"1".to_vec(),
        chan_info: b"{}".to_vec(),
    }
}

fn tags() -> [(Box<str>, Box<str>); 2] {
    [("a".into(), "1".into()), ("b\"".into(), "2".into())]
}

fn publication(tags: &[(Box<str>, Box<str>)]) -> PublicationFields<'_> {
    PublicationFields {
        data: b"{\"x\":1}",
        info: Some(INFO),
        offset: 300,
        tags,
        delta: true,
        epoch: "e",
    }
}

fn schema_publication() -> schema::Publication {
    schema::Publication {
        data: b"{\"x\":1}".to_vec(),
        info: Some(schema_info()),
        offset: 300,
        tags: [("a".into(), "1".into()), ("b\"".into(), "2".into())].into(),
        delta: true,
        epoch: "e".into(),
        ..Default::default()
    }
}

const PUBLICATION_JSON: &str = r#"{"data":{"x":1},"info":{"user":"u","client":"id","conn_info":1,"chan_info":{}},"offset":300,"tags":{"a":"1","b\"":"2"},"delta":true,"epoch":"e"}"#;

#[test]
fn empty_results_are_present() {
    let (json, reply) = both(|frame| frame.connect(1, &ConnectResult::default(), no_subs()));
    assert_eq!(json, r#"{"id":1,"connect":{}}"#);
    assert!(reply.id == 1 && reply.connect.is_some());
    let (json, reply) = both(|frame| frame.subscribe(2, &SubscribeResult::default(), NONE));
    assert_eq!(json, r#"{"id":2,"subscribe":{}}"#);
    assert!(reply.subscribe.is_some());
    let (json, reply) = both(|frame| frame.unsubscribe(3));
    assert_eq!(json, r#"{"id":3,"unsubscribe":{}}"#);
    assert!(reply.unsubscribe.is_some());
    let (json, reply) = both(|frame| frame.publish(4));
    assert_eq!(json, r#"{"id":4,"publish":{}}"#);
    assert!(reply.publish.is_some());
    let (json, reply) = both(|frame| frame.rpc(5, b""));
    assert_eq!(json, r#"{"id":5,"rpc":{}}"#);
    assert!(reply.rpc.is_some());
    let (json, reply) = both(|frame| frame.refresh(6, None));
    assert_eq!(json, r#"{"id":6,"refresh":{}}"#);
    assert!(reply.refresh.is_some());
    let (json, reply) = both(|frame| frame.sub_refresh(7, None));
    assert_eq!(json, r#"{"id":7,"sub_refresh":{}}"#);
    assert!(reply.sub_refresh.is_some());
}

type Sub<'s> = (
    &'s str,
    (SubscribeResult<'s>, iter::Empty<PublicationFields<'s>>),
);

fn no_subs<'s>() -> iter::Empty<Sub<'s>> {
    iter::empty()
}

#[test]
fn some_fields_are_always_in_json() {
    let (json, reply) = both(|frame| frame.presence(1, iter::empty(), ""));
    assert_eq!(json, r#"{"id":1,"presence":{"presence":{}}}"#);
    assert!(reply.presence.is_some());
    let (json, reply) = both(|frame| frame.presence_stats(2, 0, 0));
    let expected = r#"{"id":2,"presence_stats":{"num_clients":0,"num_users":0}}"#;
    assert_eq!(json, expected);
    assert!(reply.presence_stats.is_some());
    let (json, reply) = both(|frame| frame.history(3, NONE, "", 0));
    let expected = r#"{"id":3,"history":{"publications":[],"epoch":"","offset":0}}"#;
    assert_eq!(json, expected);
    assert!(reply.history.is_some());
    let (json, _) = push("", &Push::Join(ClientInfo::default()));
    let expected = r#"{"push":{"join":{"info":{"user":"","client":""}}}}"#;
    assert_eq!(json, expected);
}

#[test]
fn a_connect_result_has_its_fields() {
    let tags = tags();
    let result = ConnectResult {
        client: "id",
        version: "v",
        ping: 25,
        pong: true,
        ttl: Some(70),
        data: b"null",
        session: "s",
        node: "n",
        time_ms: 1_700_000_000_000,
    };
    let granted = SubscribeResult {
        recoverable: true,
        positioned: true,
        epoch: "e",
        offset: u64::MAX,
        recovered: true,
        was_recovering: true,
        delta: true,
        ttl: Some(60),
        data: b"[]",
    };
    let small = PublicationFields {
        data: b"1",
        ..PublicationFields::default()
    };
    let missed = [publication(&tags), small];
    let (json, reply) = both(|frame| {
        let bare = SubscribeResult {
            positioned: true,
            ..SubscribeResult::default()
        };
        let subs = [
            ("a", (granted, missed.iter().copied())),
            ("b", (bare, [].iter().copied())),
        ];
        frame.connect(1, &result, subs.into_iter());
    });
    let sub = format!(
        r#"{{"expires":true,"ttl":60,"recoverable":true,"epoch":"e","publications":[{PUBLICATION_JSON},{{"data":1}}],"recovered":true,"offset":18446744073709551615,"positioned":true,"data":[],"was_recovering":true,"delta":true}}"#
    );
    let expected = format!(
        r#"{{"id":1,"connect":{{"client":"id","version":"v","expires":true,"ttl":70,"data":null,"subs":{{"a":{sub},"b":{{"positioned":true}}}},"ping":25,"pong":true,"session":"s","node":"n","time":1700000000000}}}}"#
    );
    assert_eq!(json, expected);
    let subs = [
        ("a".into(), schema_subscription()),
        (
            "b".into(),
            schema::Subscribed {
                positioned: true,
                ..Default::default()
            },
        ),
    ];
    let connected = schema::Connected {
        client: "id".into(),
        version: "v".into(),
        expires: true,
        ttl: 70,
        data: b"null".to_vec(),
        subs: subs.into(),
        ping: 25,
        pong: true,
        session: "s".into(),
        node: "n".into(),
        time: 1_700_000_000_000,
    };
    assert_eq!(reply.connect, Some(connected));
}

/// What a subscription with every field and two publications is.
fn schema_subscription() -> schema::Subscribed {
    let small = schema::Publication {
        data: b"1".to_vec(),
        ..Default::default()
    };
    schema::Subscribed {
        expires: true,
        ttl: 60,
        recoverable: true,
        epoch: "e".into(),
        publications: vec![schema_publication(), small],
        recovered: true,
        offset: u64::MAX,
        positioned: true,
        data: b"[]".to_vec(),
        was_recovering: true,
        delta: true,
        id: 0,
    }
}

#[test]
fn history_and_members_have_their_fields() {
    let tags = tags();
    let (json, reply) =
        both(|frame| frame.history(9, iter::repeat_n(publication(&tags), 40), "e", 7));
    let publications = vec![PUBLICATION_JSON; 40].join(",");
    let expected = format!(
        r#"{{"id":9,"history":{{"publications":[{publications}],"epoch":"e","offset":7}}}}"#
    );
    assert_eq!(json, expected);
    let past = schema::Past {
        publications: vec![schema_publication(); 40],
        epoch: "e".into(),
        offset: 7,
    };
    assert_eq!(reply.history, Some(past));

    let (json, reply) = both(|frame| frame.presence(1, iter::once(INFO), "next"));
    let expected =
        format!(r#"{{"id":1,"presence":{{"presence":{{"id":{INFO_JSON}}},"cursor":"next"}}}}"#);
    assert_eq!(json, expected);
    let members = schema::Present {
        presence: [("id".to_string(), schema_info())].into(),
        cursor: "next".into(),
    };
    assert_eq!(reply.presence, Some(members));

    let (json, reply) = both(|frame| frame.presence_stats(u32::MAX, 5, u32::MAX));
    let expected = r#"{"id":4294967295,"presence_stats":{"num_clients":5,"num_users":4294967295}}"#;
    assert_eq!(json, expected);
    assert_eq!(reply.id, u32::MAX);
    let stats = schema::PresenceStats {
        num_clients: 5,
        num_users: u32::MAX,
    };
    assert_eq!(reply.presence_stats, Some(stats));
}

#[test]
fn answers_to_tokens_and_calls_have_their_fields() {
    let (json, reply) = both(|frame| frame.rpc(1, b"\"x\""));
    assert_eq!(json, r#"{"id":1,"rpc":{"data":"x"}}"#);
    assert_eq!(reply.rpc.expect("rpc").data, b"\"x\"");

    let (json, reply) = both(|frame| frame.refresh(1, Some(9)));
    assert_eq!(json, r#"{"id":1,"refresh":{"expires":true,"ttl":9}}"#);
    let refreshed = reply.refresh.expect("refresh");
    assert_eq!((refreshed.expires, refreshed.ttl), (true, 9));

    let (json, reply) = both(|frame| frame.sub_refresh(1, Some(9)));
    assert_eq!(json, r#"{"id":1,"sub_refresh":{"expires":true,"ttl":9}}"#);
    let refreshed = reply.sub_refresh.expect("sub_refresh");
    assert_eq!((refreshed.expires, refreshed.ttl), (true, 9));

    // `ttl` goes with `expires`, even if it says nothing good.
    let (json, _) = both(|frame| frame.refresh(1, Some(0)));
    assert_eq!(json, r#"{"id":1,"refresh":{"expires":true,"ttl":0}}"#);
}

#[test]
fn errors_have_their_fields() {
    for &code in ErrorCode::ALL {
        let (json, reply) = both(|frame| frame.error(8, code));
        let temporary = if code.is_temporary() {
            r#","temporary":true"#
        } else {
            ""
        };
        let expected = format!(
            r#"{{"id":8,"error":{{"code":{},"message":"{}"{temporary}}}}}"#,
            code.code(),
            code.text()
        );
        assert_eq!(json, expected);
        let error = schema::Error {
            code: code.code(),
            message: code.text().into(),
            temporary: code.is_temporary(),
        };
        assert_eq!(reply.error, Some(error));
    }
    let own = ReplyError {
        code: 1999,
        message: "say \"please\"",
        temporary: true,
    };
    let (json, reply) = both(|frame| frame.error(8, own));
    let expected = r#"{"id":8,"error":{"code":1999,"message":"say \"please\"","temporary":true}}"#;
    assert_eq!(json, expected);
    let error = reply.error.expect("an error");
    assert_eq!((error.code, &*error.message), (1999, "say \"please\""));
}

#[test]
fn pushes_of_channels_have_their_fields() {
    let tags = tags();
    let (json, decoded) = push("c", &Push::Publication(publication(&tags)));
    let expected = format!(r#"{{"push":{{"channel":"c","pub":{PUBLICATION_JSON}}}}}"#);
    assert_eq!(json, expected);
    assert_eq!(decoded.channel, "c");
    assert_eq!(decoded.publication, Some(schema_publication()));

    let (json, decoded) = push("c", &Push::Join(INFO));
    let expected = format!(r#"{{"push":{{"channel":"c","join":{{"info":{INFO_JSON}}}}}}}"#);
    assert_eq!(json, expected);
    assert_eq!(decoded.join.and_then(|join| join.info), Some(schema_info()));

    let (json, decoded) = push("c", &Push::Leave(INFO));
    let expected = format!(r#"{{"push":{{"channel":"c","leave":{{"info":{INFO_JSON}}}}}}}"#);
    assert_eq!(json, expected);
    let leave = decoded.leave.expect("a leave");
    assert_eq!(leave.info, Some(schema_info()));

    let subscription = ServerSubscription {
        recoverable: true,
        positioned: true,
        epoch: "e",
        offset: 4,
        data: b"1",
    };
    let (json, decoded) = push("c", &Push::Subscribe(subscription));
    let expected = r#"{"push":{"channel":"c","subscribe":{"recoverable":true,"epoch":"e","offset":4,"positioned":true,"data":1}}}"#;
    assert_eq!(json, expected);
    let subscribed = schema::ServerSubscribed {
        recoverable: true,
        epoch: "e".into(),
        offset: 4,
        positioned: true,
        data: b"1".to_vec(),
    };
    assert_eq!(decoded.subscribe, Some(subscribed));
    let (json, decoded) = push("c", &Push::Subscribe(ServerSubscription::default()));
    assert_eq!(json, r#"{"push":{"channel":"c","subscribe":{}}}"#);
    assert!(decoded.subscribe.is_some());

    let code = UnsubscribeCode::InsufficientState;
    let (json, decoded) = push("c", &Push::Unsubscribe(code.into()));
    let expected =
        r#"{"push":{"channel":"c","unsubscribe":{"code":2500,"reason":"insufficient state"}}}"#;
    assert_eq!(json, expected);
    let unsubscribed = decoded.unsubscribe.expect("an unsubscribe");
    assert_eq!(unsubscribed.code, 2500);
    assert_eq!(unsubscribed.reason, "insufficient state");
}

#[test]
fn pushes_of_no_channel_have_their_fields() {
    let (json, decoded) = push("", &Push::Message(b"[1]"));
    assert_eq!(json, r#"{"push":{"message":{"data":[1]}}}"#);
    assert_eq!(decoded.message.expect("a message").data, b"[1]");

    let (json, decoded) = push("", &Push::Disconnect(DisconnectCode::Shutdown.into()));
    let expected = r#"{"push":{"disconnect":{"code":3001,"reason":"shutdown"}}}"#;
    assert_eq!(json, expected);
    let disconnected = decoded.disconnect.expect("a disconnect");
    assert_eq!(disconnected.code, 3001);
    assert_eq!(disconnected.reason, "shutdown");

    let (json, decoded) = push("", &Push::Refresh(Some(u32::MAX)));
    let expected = r#"{"push":{"refresh":{"expires":true,"ttl":4294967295}}}"#;
    assert_eq!(json, expected);
    let refreshed = decoded.refresh.expect("a refresh");
    assert_eq!((refreshed.expires, refreshed.ttl), (true, u32::MAX));
    let (json, _) = push("", &Push::Refresh(None));
    assert_eq!(json, r#"{"push":{"refresh":{}}}"#);
}

/// The entry of a protobuf map has both its fields, even empty ones, as other writers of protobuf do; `prost` leaves them out.
#[test]
fn empty_tags_are_tags() {
    let tags: [(Box<str>, Box<str>); 1] = [("".into(), "".into())];
    let fields = PublicationFields {
        tags: &tags,
        ..PublicationFields::default()
    };
    let mut json = Vec::new();
    FrameWriter::new(Encoding::Json, &mut json).push("c", &Push::Publication(fields));
    assert_eq!(
        String::from_utf8(json).expect("UTF-8"),
        r#"{"push":{"channel":"c","pub":{"tags":{"":""}}}}"#
    );
    let mut protobuf = Vec::new();
    FrameWriter::new(Encoding::Protobuf, &mut protobuf).push("c", &Push::Publication(fields));
    assert!(protobuf.ends_with(&[0x3a, 4, 0x0a, 0, 0x12, 0]));
    let reply = schema::Reply::decode_length_delimited(&protobuf[..]).expect("protobuf");
    let push = reply.push.expect("a push");
    let decoded = push.publication.expect("a publication");
    assert_eq!(decoded.tags, [(String::new(), String::new())].into());
}

#[test]
fn messages_of_a_frame_are_separate() {
    let write = |frame: &mut FrameWriter<'_>| {
        frame.ping();
        frame.publish(1);
        frame.push("c", &Push::Publication(PublicationFields::default()));
    };
    let mut json = Vec::new();
    write(&mut FrameWriter::new(Encoding::Json, &mut json));
    let expected = "{}\n{\"id\":1,\"publish\":{}}\n{\"push\":{\"channel\":\"c\",\"pub\":{}}}";
    assert_eq!(String::from_utf8(json).expect("UTF-8"), expected);

    let mut protobuf = Vec::new();
    write(&mut FrameWriter::new(Encoding::Protobuf, &mut protobuf));
    assert_eq!(protobuf[0], 0, "a ping is one byte");
    let mut rest = &protobuf[..];
    let mut replies = Vec::new();
    while !rest.is_empty() {
        replies.push(schema::Reply::decode_length_delimited(&mut rest).expect("well-formed"));
    }
    assert_eq!(replies.len(), 3);
    assert_eq!(replies[0], schema::Reply::default());
    assert!(replies[1].publish.is_some() && replies[2].push.is_some());
}

/// Lengths at the borders of their varints, of the message and of what is in it.
#[test]
fn a_client_without_commands_gets_bare_pushes() {
    let mut text = Vec::new();
    let mut frame = FrameWriter::of_pushes(&mut text);
    let result = ConnectResult {
        client: "id",
        version: "v",
        ping: 25,
        ..ConnectResult::default()
    };
    frame.connect(1, &result, no_subs());
    frame.push("c", &Push::Join(INFO));
    frame.push("", &Push::Disconnect(DisconnectCode::Shutdown.into()));
    frame.ping();
    let lines = String::from_utf8(text).expect("UTF-8");
    let expected = [
        r#"{"connect":{"client":"id","version":"v","ping":25}}"#.to_owned(),
        format!(r#"{{"channel":"c","join":{{"info":{INFO_JSON}}}}}"#),
        r#"{"disconnect":{"code":3001,"reason":"shutdown"}}"#.to_owned(),
        "{}".to_owned(),
    ];
    assert_eq!(lines.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn messages_of_any_length_have_the_right_length() {
    let lengths = (100..140)
        .chain(16_360..16_400)
        .chain([2_097_140, 2_097_152]);
    for length in lengths.filter(|length| !cfg!(miri) || *length < 140) {
        let data = format!("\"{}\"", "1".repeat(length)).into_bytes();
        let (_, reply) = both(|frame| frame.rpc(1, &data));
        assert_eq!(reply.rpc.expect("rpc").data, data);
    }
}

#[test]
fn numbers_come_back_near_each_power_of_two() {
    let step = if cfg!(miri) { 21 } else { 1 };
    let powers = (0..u64::BITS).step_by(step).map(|bits| 1_u64 << bits);
    for offset in powers
        .flat_map(|power| [power - 1, power, power + 1])
        .chain([u64::MAX])
    {
        let (json, reply) = both(|frame| frame.history(1, NONE, "e", offset));
        let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(value["history"]["offset"], json!(offset));
        assert_eq!(reply.history.expect("history").offset, offset);
    }
}

proptest! {
    #![proptest_config(super::cases())]

    /// Quotes, backslashes, control characters and every other character, in values and in keys.
    #[test]
    fn texts_come_back(
        channel in ".{0,40}|[\\x00-\\x1f\"\\\\/\u{7f}\u{2028}\u{10ffff}]{1,20}",
        user in "\\PC{0,9}|[\\x00-\\x1f\"\\\\]{1,9}",
        name in "[\\x00-\\x22a\\\\]{1,9}",
    ) {
        let info = ClientInfo { user: &user, client: &name, ..ClientInfo::default() };
        let (json, decoded) = push(&channel, &Push::Join(info));
        let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        let written = value["push"]["channel"].as_str().unwrap_or_default();
        prop_assert_eq!(written, &*channel);
        prop_assert_eq!(&value["push"]["join"]["info"]["user"], &json!(user));
        prop_assert_eq!(decoded.channel, &*channel);
        let joined = decoded.join.and_then(|join| join.info).expect("info");
        prop_assert_eq!(joined.user, &*user);

        let tags: [(Box<str>, Box<str>); 1] = [(name.as_str().into(), name.as_str().into())];
        let fields = PublicationFields { tags: &tags, ..PublicationFields::default() };
        let (json, decoded) = push(&channel, &Push::Publication(fields));
        let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        prop_assert_eq!(&value["push"]["pub"]["tags"], &json!({ &name: name }));
        let decoded = decoded.publication.expect("a publication");
        prop_assert_eq!(&decoded.tags[&name], &name);

        let (json, reply) = both(|frame| frame.presence(1, iter::once(info), &channel));
        let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        prop_assert_eq!(&value["presence"]["presence"][&name]["client"], &json!(name));
        prop_assert_eq!(&reply.presence.expect("presence").presence[&name].client, &name);
    }
}
