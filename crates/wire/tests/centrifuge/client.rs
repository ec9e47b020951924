//! The client's side: its commands through our decoder and `prost`, and replies as other implementations write them.

use myriad_wire::centrifuge::client::{
    CommandWriter, Outcome, Recovery, ServerEvent, ServerMessage, ServerMessages,
};
use myriad_wire::centrifuge::{Command, Data, Decoder, Encoding, Request};
use proptest::prelude::*;
use prost::Message;
use serde_json::json;

use super::schema;

fn write(encoding: Encoding, commands: impl FnOnce(&mut CommandWriter<'_>)) -> Vec<u8> {
    let mut frame = Vec::new();
    commands(&mut CommandWriter::new(encoding, &mut frame));
    frame
}

fn decode(encoding: Encoding, frame: &[u8]) -> Vec<Command<'_>> {
    let commands: Result<Vec<_>, _> = Decoder::new(encoding, frame).collect();
    commands.expect("well-formed")
}

fn read(encoding: Encoding, frame: &[u8]) -> Vec<ServerMessage<'_>> {
    let messages: Result<Vec<_>, _> = ServerMessages::new(encoding, frame).collect();
    messages.expect("well-formed")
}

proptest! {
    #![proptest_config(super::cases())]

    #[test]
    fn commands_come_back(
        id in 1u32.., channel in ".{0,200}", token in ".*", offset: u64, epoch in "[a-z]{0,8}", delta: bool, limit in 0u32..1_000,
    ) {
        for encoding in [Encoding::Json, Encoding::Protobuf] {
            let recovery = Recovery { epoch: &epoch, offset };
            let frame = write(encoding, |commands| {
                commands.connect(id, &token, "name");
                commands.subscribe(id, &channel, Some(recovery), delta);
                commands.subscribe_tagged(id, &channel, None, delta, Some(("kind", &token)));
                commands.publish(id, &channel, b"{\"a\":1}");
                commands.presence(id, &channel);
                commands.history(id, &channel, limit);
                commands.unsubscribe(id, &channel);
                commands.rpc(id, &token, b"[2]");
                commands.presence_stats(id, &channel);
                commands.send(b"[3]");
                commands.pong();
            });
            let commands = decode(encoding, &frame);
            prop_assert_eq!(commands.len(), 11);
            prop_assert!(commands[..9].iter().all(|command| command.id == id));
            let Request::Connect(connect) = &commands[0].request else { panic!("connect") };
            prop_assert_eq!((&*connect.token, &*connect.name), (&*token, "name"));
            let Request::Subscribe(subscribe) = &commands[1].request else { panic!("subscribe") };
            prop_assert_eq!(&subscribe.filter, &None);
            prop_assert_eq!((&*subscribe.channel, &*subscribe.epoch), (&*channel, &*epoch));
            prop_assert_eq!((subscribe.recover, subscribe.offset), (true, offset));
            prop_assert_eq!(&*subscribe.delta, if delta { "fossil" } else { "" });
            let Request::Subscribe(subscribe) = &commands[2].request else { panic!("subscribe") };
            prop_assert_eq!((subscribe.recover, subscribe.offset), (false, 0));
            let Some(filter) = &subscribe.filter else { panic!("a filter") };
            prop_assert_eq!((&*filter.key, &*filter.cmp, &*filter.val), ("kind", "eq", &*token));
            let Request::Publish(publish) = &commands[3].request else { panic!("publish") };
            prop_assert_eq!(publish.data.as_bytes(), b"{\"a\":1}");
            let Request::Presence(presence) = &commands[4].request else { panic!("presence") };
            prop_assert_eq!(&*presence.channel, &*channel);
            let Request::History(history) = &commands[5].request else { panic!("history") };
            prop_assert_eq!(i64::from(history.limit), i64::from(limit));
            let Request::Unsubscribe(unsubscribe) = &commands[6].request else { panic!("unsubscribe") };
            prop_assert_eq!(&*unsubscribe.channel, &*channel);
            let Request::Rpc(rpc) = &commands[7].request else { panic!("rpc") };
            prop_assert_eq!((&*rpc.method, rpc.data.as_bytes()), (&*token, &b"[2]"[..]));
            let Request::PresenceStats(presence) = &commands[8].request else { panic!("presence_stats") };
            prop_assert_eq!(&*presence.channel, &*channel);
            let Request::Send(sent) = &commands[9].request else { panic!("send") };
            prop_assert_eq!((commands[9].id, sent.data.as_bytes()), (0, &b"[3]"[..]));
            prop_assert_eq!(&commands[10].request, &Request::Pong);
        }
    }

    #[test]
    fn the_subscriptions_that_a_client_had_come_back(
        id in 1u32.., channel in "[^a]{1,200}", offset: u64, epoch in "[a-z]{0,8}",
    ) {
        let recovery = Recovery { epoch: &epoch, offset };
        let had = [(&*channel, Some(recovery)), ("a", None)];
        let request = write(Encoding::Json, |commands| commands.connect_request(&had));
        let command = [b"{\"id\":1,\"connect\":", &request[..], b"}"].concat();
        let frames = [Encoding::Json, Encoding::Protobuf]
            .map(|encoding| (encoding, write(encoding, |commands| commands.connect_again(id, "t", &had))));
        for (encoding, frame) in frames.into_iter().chain([(Encoding::Json, command)]) {
            let commands = decode(encoding, &frame);
            let Request::Connect(connect) = &commands[0].request else { panic!("connect") };
            prop_assert_eq!(connect.subs.len(), 2);
            let first = &connect.subs[&*channel];
            prop_assert_eq!((first.recover, &*first.epoch, first.offset), (true, &*epoch, offset));
            prop_assert!(!connect.subs["a"].recover);
        }
    }

    #[test]
    fn no_bytes_make_the_client_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for encoding in [Encoding::Json, Encoding::Protobuf] {
            ServerMessages::new(encoding, &bytes).for_each(drop);
        }
    }
}

#[test]
fn prost_reads_our_commands() {
    let frame = write(Encoding::Protobuf, |commands| {
        let recovery = Recovery {
            epoch: "e",
            offset: 300,
        };
        commands.subscribe(5, "c", Some(recovery), true);
    });
    let command = schema::Command::decode_length_delimited(&frame[..]).expect("protobuf");
    let subscribe = schema::Subscribe {
        channel: "c".into(),
        recover: true,
        epoch: "e".into(),
        offset: 300,
        delta: "fossil".into(),
        ..Default::default()
    };
    assert_eq!((command.id, command.subscribe), (5, Some(subscribe)));
}

fn publication() -> schema::Publication {
    let info = schema::ClientInfo {
        user: "u".into(),
        client: "id".into(),
        conn_info: b"1".to_vec(),
        chan_info: b"2".to_vec(),
    };
    schema::Publication {
        data: b"[1]".to_vec(),
        info: Some(info),
        offset: 6,
        tags: [("t".into(), "v".into())].into(),
        delta: true,
        channel: "other".into(),
        epoch: "e".into(),
    }
}

fn publication_json() -> serde_json::Value {
    json!({"data": [1], "info": {"user": "u", "client": "id", "conn_info": 1, "chan_info": 2}, "offset": 6,
        "tags": {"t": "v"}, "delta": true, "channel": "other", "epoch": "e"})
}

fn check_publication(publication: &myriad_wire::centrifuge::client::Publication<'_>) {
    assert_eq!(publication.data.as_bytes(), b"[1]");
    let info = publication.info.as_ref().expect("info");
    assert_eq!((&*info.user, &*info.client), ("u", "id"));
    assert_eq!((publication.offset, publication.delta), (6, true));
    assert_eq!(publication.epoch, "e");
    assert_eq!(publication.tags["t"], "v");
}

#[test]
fn pushes_are_read() {
    let push = schema::Push {
        channel: "c".into(),
        publication: Some(publication()),
        ..Default::default()
    };
    let reply = schema::Reply {
        push: Some(push),
        ..Default::default()
    };
    let protobuf = reply.encode_length_delimited_to_vec();
    let json = json!({"push": {"channel": "c", "pub": publication_json()}}).to_string();
    for (encoding, frame) in [
        (Encoding::Protobuf, &protobuf[..]),
        (Encoding::Json, json.as_bytes()),
    ] {
        let messages = read(encoding, frame);
        let [
            ServerMessage::Push {
                channel,
                event: ServerEvent::Publication(publication),
            },
        ] = &messages[..]
        else {
            panic!("a push, not {messages:?}");
        };
        assert_eq!(channel, "c");
        check_publication(publication);
        for length in 0..frame.len() {
            let cut = ServerMessages::new(encoding, &frame[..length]).last();
            assert!(cut.is_some_and(|message| message.is_err()), "{length}");
        }
    }
}

#[test]
fn the_session_of_a_client_without_commands_comes_as_a_push() {
    let json = br#"{"push":{"connect":{"client":"c","subs":{"a":{"offset":3}}}}}"#;
    let messages = read(Encoding::Json, json);
    let [
        ServerMessage::Push {
            event: ServerEvent::Connected(connected),
            ..
        },
    ] = &messages[..]
    else {
        panic!("a push, not {messages:?}");
    };
    assert_eq!(connected.client, "c");
    assert_eq!(connected.subs["a"].offset, 3);
}

#[test]
fn replies_are_read() {
    let subscribed = schema::Subscribed {
        recoverable: true,
        recovered: true,
        epoch: "e".into(),
        offset: 5,
        publications: vec![publication()],
        ..Default::default()
    };
    let reply = schema::Reply {
        id: 4,
        subscribe: Some(subscribed),
        ..Default::default()
    };
    let mut protobuf = reply.encode_length_delimited_to_vec();
    protobuf.push(0);
    let json = json!({"id": 4, "subscribe": {"recoverable": true, "recovered": true, "epoch": "e", "offset": 5,
        "publications": [publication_json()]}})
    .to_string()
        + "\n{}";
    for (encoding, frame) in [
        (Encoding::Protobuf, &protobuf[..]),
        (Encoding::Json, json.as_bytes()),
    ] {
        let messages = read(encoding, frame);
        let [
            ServerMessage::Reply {
                id: 4,
                outcome: Ok(Outcome::Subscribed(subscribed)),
            },
            ServerMessage::Ping,
        ] = &messages[..]
        else {
            panic!("a reply and a ping, not {messages:?}");
        };
        assert!(subscribed.recoverable && subscribed.recovered && !subscribed.positioned);
        assert_eq!((&*subscribed.epoch, subscribed.offset), ("e", 5));
        check_publication(&subscribed.publications[0]);
    }
}

#[test]
fn results_are_told_apart() {
    let outcome = |line: &'static str| match read(Encoding::Json, line.as_bytes()).remove(0) {
        ServerMessage::Reply { outcome, .. } => outcome,
        other => panic!("a reply, not {other:?}"),
    };
    assert_eq!(outcome(r#"{"id":1,"publish":{}}"#), Ok(Outcome::Published));
    assert_eq!(
        outcome(r#"{"id":1,"unsubscribe":{}}"#),
        Ok(Outcome::Unsubscribed)
    );
    assert_eq!(
        outcome(r#"{"id":1,"presence_stats":{"num_clients":2}}"#),
        Ok(Outcome::PresenceStats)
    );
    assert_eq!(outcome(r#"{"id":1,"refresh":{}}"#), Ok(Outcome::Other));
    let Ok(Outcome::Connected(connected)) = outcome(
        r#"{"id":1,"connect":{"client":"i","version":"v","ping":25,"pong":true,"subs":{"a":{"offset":2}}}}"#,
    ) else {
        panic!("a session");
    };
    assert_eq!((connected.ping_s, connected.pong), (25, true));
    assert_eq!(connected.subs["a"].offset, 2);
    let Ok(Outcome::Rpc(content)) = outcome(r#"{"id":1,"rpc":{"data":"x"}}"#) else {
        panic!("a result");
    };
    assert_eq!(content.data, Data::Json("\"x\""));
    let failure = outcome(r#"{"id":3,"error":{"code":103,"message":"permission denied"}}"#);
    let failure = failure.expect_err("an error");
    assert_eq!(
        (failure.code, &*failure.message),
        (103, "permission denied")
    );
}
