//! Tokens and the application: who may connect, subscribe and publish, and for how long.

use super::client::{Client, PATH};
use super::node::{Driver, Node, Options};
use myriad_shard::{
    Access, ApplicationClose, Ask, AskAnswer, ChannelOptions, ChannelProxies, ClientOptions,
    CloseReason, ConnectGrant, ConnectionEvent, Deed, ErrorCode, Limit, Limits, Namespaces, Now,
    OptionOverrides, Payload, PersonalChannel, ProcessLimits, PublishGrant, Question, RateLimit,
    RefreshGrant, Refreshed, Refusal, RevokedTokens, Right, SubscribeGrant, TokenFault,
    TokenIdentity, Tokens, Verdict, Whose,
};
use serde_json::{Value, json};
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

on_both_drivers!(
    a_token_says_who_a_client_is,
    a_token_at_fault_is_answered_with_its_code,
    a_costly_token_is_verified_by_the_control_plane,
    a_token_that_is_revoked_after_it_was_verified_counts_no_more,
    a_revoked_token_ends_what_was_subscribed_with_it,
    history_and_members_of_a_channel_that_one_may_not_see_are_refused,
    what_only_the_operator_can_mend_ends_nobody_for_good,
    the_id_of_a_user_is_opaque_in_a_personal_channel,
    what_follows_a_refused_connect_is_not_read,
    a_token_grants_subscriptions_with_options,
    channels_that_a_client_had_are_subscribed_if_it_may,
    too_many_granted_channels_end_nobody_for_good,
    names_that_are_made_up_have_a_rate,
    nobody_publishes_to_a_channel_that_he_may_not_see,
    a_connection_expires_unless_it_is_refreshed,
    a_refresh_with_another_token_is_refused,
    a_private_channel_needs_its_token,
    a_subscription_expires_unless_it_is_refreshed,
    the_application_is_asked_who_connects,
    the_application_is_asked_again_when_a_connection_expires,
    what_has_expired_does_not_go_on_without_end,
    the_application_decides_about_subscriptions,
    commands_about_a_channel_keep_their_order,
    reads_of_a_channel_wait_for_the_application_too,
    a_subscription_that_expires_waits_only_for_the_publication_under_way,
    a_client_with_as_many_questions_as_it_may_have_expires,
    the_application_decides_about_publications,
    the_application_answers_a_method,
    the_application_disconnects_with_its_own_code,
    a_client_that_the_application_does_not_know_is_told_of_in_the_log,
    the_application_gets_the_headers_that_are_listed,
    every_line_of_a_header_reaches_the_application,
    a_get_that_any_page_may_have_caused_is_nobodys,
    headers_of_a_command_are_bounded_and_have_one_value,
);

/// Tokens as JSON: the fields say what they grant.
#[derive(Debug)]
struct PlainTokens;

fn time_left(token: &Value) -> Option<Duration> {
    token["left_ms"].as_u64().map(Duration::from_millis)
}

fn fault_of(token: &Value) -> Option<TokenFault> {
    Some(match token["fault"].as_str()? {
        "expired" => TokenFault::Expired,
        "revoked" => TokenFault::Revoked,
        "other user" => TokenFault::OtherUser,
        _ => TokenFault::Invalid("a test"),
    })
}

fn bytes(value: &Value) -> Option<Arc<[u8]>> {
    (!value.is_null()).then(|| value.to_string().into_bytes().into())
}

fn data(value: &Value) -> Option<Payload> {
    (!value.is_null()).then(|| Payload::Json(value.to_string().into()))
}

fn subscription(value: &Value) -> SubscribeGrant {
    SubscribeGrant {
        expires_in: time_left(value),
        info: bytes(&value["info"]),
        data: data(&value["data"]),
        overrides: OptionOverrides {
            presence: value["presence"].as_bool(),
            join_leave: value["join_leave"].as_bool(),
            force_push_join_leave: value["force_push_join_leave"].as_bool(),
            force_recovery: value["force_recovery"].as_bool(),
            ..OptionOverrides::default()
        },
        token: value["jti"].as_str().and_then(identity),
    }
}

fn connection(value: &Value) -> ConnectGrant {
    let subs = value["subs"].as_object().into_iter().flatten();
    ConnectGrant {
        user: value["user"].as_str().map(Into::into),
        expires_in: time_left(value),
        info: bytes(&value["info"]),
        data: data(&value["data"]),
        subscriptions: subs
            .map(|(channel, value)| (channel.as_str().into(), subscription(value)))
            .collect(),
        meta: bytes(&value["meta"]),
        token: None,
    }
}

fn verdict<T>(token: &str, grant: impl FnOnce(&Value) -> T) -> Verdict<T> {
    let Ok(token) = serde_json::from_str::<Value>(token) else {
        return Verdict::Now(Err(TokenFault::Invalid("it is not JSON")));
    };
    match fault_of(&token) {
        _ if token["later"] == true => Verdict::Later,
        Some(fault) => Verdict::Now(Err(fault)),
        None => Verdict::Now(Ok(grant(&token))),
    }
}

impl Tokens for PlainTokens {
    fn connection(&self, token: &str) -> Verdict<ConnectGrant> {
        verdict(token, connection)
    }

    fn subscription(
        &self,
        token: &str,
        channel: &str,
        user: &str,
        client: &str,
    ) -> Verdict<SubscribeGrant> {
        assert!(!client.is_empty());
        let read: Value = serde_json::from_str(token).unwrap_or_default();
        if read["channel"] != channel {
            return Verdict::Now(Err(TokenFault::OtherChannel));
        }
        if read["user"].as_str().unwrap_or_default() != user {
            return Verdict::Now(Err(TokenFault::OtherUser));
        }
        verdict(token, subscription)
    }

    fn is_revoked(&self, token: &TokenIdentity, user: &str) -> bool {
        let ids = REVOKED.lock().expect("no test panics with it");
        token
            .id
            .as_ref()
            .is_some_and(|id| ids.contains(&(id.clone(), user.into())))
    }
}

/// Tokens that are revoked, with their users.
static REVOKED: Mutex<Vec<(Box<str>, Box<str>)>> = Mutex::new(Vec::new());

fn revoke(id: &str, user: &str) {
    let mut ids = REVOKED.lock().expect("no test panics with it");
    ids.push((id.into(), user.into()));
}

fn identity(id: &str) -> Option<Arc<TokenIdentity>> {
    Some(Arc::new(TokenIdentity {
        id: Some(id.into()),
        issued_at: None,
    }))
}

fn with_tokens() -> Options {
    Options {
        access: Access {
            tokens: Some(Arc::new(PlainTokens)),
            ..Access::default()
        },
        anonymous: false,
        holds_asks: true,
        client: ClientOptions {
            expired_close_delay: Duration::from_millis(50),
            expired_sub_close_delay: Duration::from_millis(50),
            ..ClientOptions::default()
        },
        ..Options::default()
    }
}

fn connect_command(token: &Value) -> Value {
    json!({"id": 1, "connect": {"token": token.to_string()}})
}

fn connect(node: &Node, token: &Value) -> (Client, Value) {
    let mut client = Client(node.connect(PATH));
    let reply = client.ask(&connect_command(token));
    (client, reply)
}

fn subscribe(id: u32, channel: &str) -> Value {
    json!({"id": id, "subscribe": {"channel": channel}})
}

fn a_token_says_who_a_client_is(driver: Driver) {
    let node = Node::start(driver, with_tokens());
    let token =
        json!({"user": "42", "info": {"name": "Ann"}, "data": {"hello": 1}, "left_ms": 59_001});
    let (mut client, reply) = connect(&node, &token);
    let result = &reply["connect"];
    assert_eq!(result["data"], json!({"hello": 1}), "{reply}");
    assert_eq!(
        (&result["expires"], &result["ttl"]),
        (&json!(true), &json!(60))
    );
    assert_eq!(client.ask(&subscribe(2, "room"))["id"], 2);
    let members = client.ask(&json!({"id": 3, "presence": {"channel": "room"}}));
    let members = members["presence"]["presence"].as_object().expect("a map");
    let me = members.values().next().expect("a member");
    assert_eq!(me["user"], "42");
    assert_eq!(me["conn_info"], json!({"name": "Ann"}));
}

fn a_token_at_fault_is_answered_with_its_code(driver: Driver) {
    let node = Node::start(driver, with_tokens());
    let (_client, reply) = connect(&node, &json!({"fault": "expired"}));
    assert_eq!(
        reply["error"],
        json!({"code": 109, "message": "token expired"})
    );
    for token in [
        json!({"fault": "invalid"}),
        json!({"fault": "revoked"}),
        json!({"fault": "any other"}),
    ] {
        let mut client = Client(node.connect(PATH));
        client.send(&connect_command(&token));
        assert_eq!(client.close_code(), 3500, "{token}");
    }
    // Nothing but a token lets a client in here.
    let mut client = Client(node.connect(PATH));
    client.send(&json!({"id": 1, "connect": {}}));
    assert_eq!(client.close_code(), 3501);
}

fn a_costly_token_is_verified_by_the_control_plane(driver: Driver) {
    let node = Node::start(driver, with_tokens());
    let token = json!({"later": true});
    let first = connect_command(&token);
    let mut client = Client(node.connect(PATH));
    client.send_text(format!("{first}\n{}", subscribe(2, "room")));
    let ask = node.asked();
    let Question::Connect { token: shown, .. } = ask.question() else {
        panic!("{:?}", ask.question());
    };
    assert_eq!(shown.as_deref(), Some(&*token.to_string()));
    node.grant(
        ask,
        AskAnswer::Connect(Box::new(connection(&json!({"user": "7"})))),
    );
    // The subscription waited for the answer.
    assert!(client.read()["connect"]["client"].is_string());
    assert!(client.read()["subscribe"]["epoch"].is_string());
    for (answer, code) in [
        (AskAnswer::Token(TokenFault::Expired), 109),
        (AskAnswer::Unavailable, 100),
        (AskAnswer::Refused(ErrorCode::PermissionDenied.into()), 103),
        (AskAnswer::Rpc(Payload::Json("1".into())), 100),
    ] {
        let mut client = Client(node.connect(PATH));
        client.send(&first);
        node.grant(node.asked(), answer);
        assert_eq!(client.read()["error"]["code"], code);
    }
    let mut client = Client(node.connect(PATH));
    client.send(&first);
    node.grant(
        node.asked(),
        AskAnswer::Token(TokenFault::Invalid("a test")),
    );
    assert_eq!(client.close_code(), 3500);
    assert_eq!(
        node.mesh().available().connect_asks_max,
        ProcessLimits::default().connect_asks_max
    );
}

/// The API's answer to a revocation comes when the shards have carried out its order. What was verified before comes after it.
fn a_token_that_is_revoked_after_it_was_verified_counts_no_more(driver: Driver) {
    let node = Node::start(driver, with_tokens());
    let later = |id: u32, command: &str, channel: &str| {
        let token = json!({"later": true, "channel": channel, "user": "42"}).to_string();
        let mut fields = json!({"token": token});
        if !channel.is_empty() {
            fields["channel"] = channel.into();
        }
        json!({"id": id, command: fields})
    };
    let granted = |token: &str| {
        AskAnswer::Connect(Box::new(ConnectGrant {
            user: Some("42".into()),
            token: identity(token),
            ..ConnectGrant::default()
        }))
    };
    let end_revoked = |token: &str| {
        let deed = Deed::EndRevoked(RevokedTokens::Id(token.into()));
        node.order(Whose::default(), deed);
    };
    // Ids of this driver's: both run side by side.
    let name = |id: &str| format!("{id} {}", driver as u8);
    let mut client = Client(node.connect(PATH));
    client.send(&later(1, "connect", ""));
    let ask = node.asked();
    revoke(&name("a"), "42");
    end_revoked(&name("a"));
    node.grant(ask, granted(&name("a")));
    assert_eq!(client.close_code(), 3500);
    // One that is connected already keeps its connection, and what it shows meanwhile does not count.
    let mut client = Client(node.connect(PATH));
    client.send(&later(1, "connect", ""));
    node.grant(node.asked(), granted(&name("b")));
    assert_eq!(client.read()["id"], 1);
    client.send(&later(2, "subscribe", "room"));
    let ask = node.asked();
    revoke(&name("c"), "42");
    end_revoked(&name("c"));
    let grant = SubscribeGrant {
        token: identity(&name("c")),
        ..SubscribeGrant::default()
    };
    node.grant(ask, AskAnswer::Subscribe(Box::new(grant)));
    let reply = client.read();
    assert_eq!(
        (&reply["id"], &reply["error"]["code"]),
        (&json!(2), &json!(103))
    );
    client.send(&later(3, "refresh", ""));
    let ask = node.asked();
    revoke(&name("d"), "42");
    end_revoked(&name("d"));
    node.grant(ask, granted(&name("d")));
    assert_eq!(client.close_code(), 3500);
}

/// The connection goes on, and so does everything that another token grants. A refresh by another token saves a subscription.
fn a_revoked_token_ends_what_was_subscribed_with_it(driver: Driver) {
    let options = Options {
        namespaces: one_namespace(ChannelOptions::default()),
        ..with_tokens()
    };
    let node = Node::start(driver, options);
    let (mut client, reply) = connect(&node, &json!({"user": "42"}));
    assert!(reply["connect"]["client"].is_string(), "{reply}");
    let show = |id: u32, command: &str, channel: &str, jti: &str| {
        let token = json!({"channel": channel, "user": "42", "jti": jti, "left_ms": 600_000});
        json!({"id": id, command: {"channel": channel, "token": token.to_string()}})
    };
    for (id, command, channel, jti) in [
        (2, "subscribe", "$a", "old"),
        (3, "subscribe", "$b", "new"),
        (4, "subscribe", "$c", "old"),
        (5, "sub_refresh", "$c", "new"),
    ] {
        let reply = client.ask(&show(id, command, channel, jti));
        assert!(reply[command].is_object(), "{reply}");
    }
    let done = node.order(
        Whose::default(),
        Deed::EndRevoked(RevokedTokens::Id("old".into())),
    );
    let connections: u64 = done.iter().map(|done| done.done).sum();
    assert_eq!(connections, 1);
    let push = client.read();
    assert_eq!(push["push"]["channel"], "$a", "{push}");
    assert_eq!(push["push"]["unsubscribe"]["code"], 2000);
    for channel in ["$a", "$b", "$c"] {
        node.publish(channel, Payload::Json("1".into()));
    }
    let mut heard = [client.read(), client.read()].map(|push| push["push"]["channel"].clone());
    heard.sort_unstable_by_key(ToString::to_string);
    assert_eq!(heard, ["$b", "$c"]);
}

/// The options let every client read history and members, and say nothing of names: these keep a channel for its users.
fn history_and_members_of_a_channel_that_one_may_not_see_are_refused(driver: Driver) {
    let mut options = Options {
        namespaces: one_namespace(ChannelOptions {
            allow_user_limited_channels: true,
            presence: true,
            history_size: 10,
            history_ttl: Duration::from_secs(60),
            history_meta_ttl: Duration::from_secs(60),
            subscribe: Right::ALL,
            history_read: Right::ALL,
            presence_read: Right::ALL,
            ..ChannelOptions::default()
        }),
        ..with_tokens()
    };
    options.client.personal_channel = Some(PersonalChannel {
        namespace: None,
        single_connection: false,
    });
    let node = Node::start(driver, options);
    let reads = ["subscribe", "history", "presence", "presence_stats"];
    let answers = |client: &mut Client, channel: &str| {
        reads.map(|command| {
            let reply = client.ask(&json!({"id": 9, command: {"channel": channel}}));
            reply["error"]["code"].as_u64().unwrap_or(0)
        })
    };
    let subs = json!({"$granted": {}, "room#8": {}});
    let (mut client, _) = connect(&node, &json!({"user": "42", "subs": subs}));
    for (channel, expected) in [
        ("$secret", [103; 4]),
        ("room#7", [103; 4]),
        ("#7", [103; 4]),
        ("open", [0; 4]),
        ("room#7,42", [0; 4]),
        // It has them already, by its token or because it is that user.
        ("#42", [105, 0, 0, 0]),
        ("$granted", [105, 0, 0, 0]),
        ("room#8", [105, 0, 0, 0]),
    ] {
        assert_eq!(answers(&mut client, channel), expected, "{channel}");
    }
    // Who has lost a channel sees it no more.
    client.ask(&json!({"id": 3, "unsubscribe": {"channel": "$granted"}}));
    assert_eq!(answers(&mut client, "$granted"), [103; 4]);
}

/// Clients name the server-side subscriptions that they had. SDKs do not come back after a close with 3501.
fn what_only_the_operator_can_mend_ends_nobody_for_good(driver: Driver) {
    let node = Node::start(driver, with_tokens());
    let mut client = Client(node.connect(PATH));
    let mut command = connect_command(&json!({"user": "42"}));
    command["connect"]["subs"] = json!({"gone:1": {"recover": true, "epoch": "e", "offset": 3}});
    let reply = client.ask(&command);
    assert!(reply["connect"]["client"].is_string(), "{reply}");
    assert_eq!(reply["connect"]["subs"], Value::Null, "{reply}");
    // A token that names it is its maker's error.
    let subs = json!({"a": {}, "gone:1": {}});
    let (_client, reply) = connect(&node, &json!({"user": "42", "subs": subs}));
    assert_eq!(reply["error"]["code"], 102, "{reply}");
    node.settle(|node| node.sum(|shard| shard.channels.value()) == 0);
}

/// Identity providers give out ids with colons.
fn the_id_of_a_user_is_opaque_in_a_personal_channel(driver: Driver) {
    let subs_of = |lists_users: bool, user: &str| {
        let mut options = Options {
            namespaces: one_namespace(ChannelOptions {
                allow_user_limited_channels: lists_users,
                ..ChannelOptions::default()
            }),
            ..with_tokens()
        };
        options.client.personal_channel = Some(PersonalChannel {
            namespace: None,
            single_connection: false,
        });
        let node = Node::start(driver, options);
        let (_client, reply) = connect(&node, &json!({"user": user}));
        assert!(reply["connect"]["client"].is_string(), "{reply}");
        reply["connect"]["subs"].clone()
    };
    for user in ["f:550e8400:alice", "us-east-1:550e8400", "a#b", "x,7"] {
        let own = format!("#{user}");
        assert_eq!(subs_of(false, user), json!({own: {}}));
    }
    assert_eq!(subs_of(true, "us-east-1:7"), json!({"#us-east-1:7": {}}));
    // Where names list users, these would let in b, and x and 7.
    for user in ["a#b", "x,7"] {
        assert_eq!(subs_of(true, user), Value::Null);
    }
}

fn what_follows_a_refused_connect_is_not_read(driver: Driver) {
    let node = Node::start(driver, with_tokens());
    for later in [false, true] {
        let token = json!({"fault": "expired", "later": later});
        let mut client = Client(node.connect(PATH));
        // Clients send all subscriptions with the connect command. Each would be answered with a close that is final.
        client.send_text(format!(
            "{}\n{}",
            connect_command(&token),
            subscribe(2, "room")
        ));
        if later {
            node.grant(node.asked(), AskAnswer::Token(TokenFault::Expired));
        }
        assert_eq!(client.read()["error"]["code"], 109);
        client.send(&subscribe(3, "room"));
        client.send(&connect_command(&json!({"user": "1"})));
        // The end that comes is none that keeps a client away.
        assert_eq!(client.close_code(), 1000);
    }
}

fn a_token_grants_subscriptions_with_options(driver: Driver) {
    let options = Options {
        namespaces: one_namespace(ChannelOptions {
            presence: true,
            presence_read: Right::ALL,
            ..ChannelOptions::default()
        }),
        ..with_tokens()
    };
    let node = Node::start(driver, options);
    let subs = json!({"$news": {"info": {"role": "reader"}, "data": {"a": 1}}, "hidden": {"presence": false}});
    let (mut client, reply) = connect(&node, &json!({"user": "1", "subs": subs}));
    let made = &reply["connect"]["subs"];
    assert_eq!(
        made,
        &json!({"$news": {"data": {"a": 1}}, "hidden": {}}),
        "{reply}"
    );
    let members = client.ask(&json!({"id": 2, "presence": {"channel": "$news"}}));
    let members = members["presence"]["presence"].as_object().expect("a map");
    assert_eq!(
        members.values().next().expect("a member")["chan_info"],
        json!({"role": "reader"})
    );
    let none = client.ask(&json!({"id": 3, "presence": {"channel": "hidden"}}));
    assert_eq!(none["presence"]["presence"], json!({}));
    let twice = client.ask(&subscribe(4, "hidden"));
    assert_eq!(twice["error"]["code"], 105);
    node.publish("$news", Payload::Json("5".into()));
    assert_eq!(client.read()["push"]["pub"]["data"], 5);
}

fn one_namespace(options: ChannelOptions) -> Namespaces {
    Namespaces::new(options, [])
}

fn channels_that_a_client_had_are_subscribed_if_it_may(driver: Driver) {
    let options = Options {
        namespaces: Namespaces::new(
            ChannelOptions {
                subscribe: Right::ALL,
                allow_user_limited_channels: true,
                ..ChannelOptions::default()
            },
            [("closed".into(), ChannelOptions::default())],
        ),
        ..with_tokens()
    };
    let node = Node::start(driver, options);
    let mut client = Client(node.connect(PATH));
    let had =
        json!({"open": {}, "closed:a": {}, "$private": {}, "dialog#1,2": {}, "dialog#3,4": {}});
    let token = json!({"user": "1"}).to_string();
    let reply = client.ask(&json!({"id": 1, "connect": {"token": token, "subs": had}}));
    assert_eq!(
        reply["connect"]["subs"],
        json!({"open": {}, "dialog#1,2": {}}),
        "{reply}"
    );
    // A namespace that the operator has taken away ends nobody: the channel is left out.
    let mut client = Client(node.connect(PATH));
    let had = json!({"open": {}, "nowhere:a": {}});
    let reply = client.ask(&json!({"id": 1, "connect": {"token": token, "subs": had}}));
    assert_eq!(reply["connect"]["subs"], json!({"open": {}}), "{reply}");
}

/// The application's token names too many, or the operator allows too few: clients come back, and find that mended.
fn too_many_granted_channels_end_nobody_for_good(driver: Driver) {
    let options = Options {
        subscriptions_max: 2,
        namespaces: one_namespace(ChannelOptions {
            subscribe: Right::ALL,
            ..ChannelOptions::default()
        }),
        ..with_tokens()
    };
    let node = Node::start(driver, options);
    let (_client, reply) = connect(&node, &json!({"subs": {"a": {}, "b": {}}}));
    assert!(reply["connect"]["subs"]["b"].is_object(), "{reply}");
    let mut client = Client(node.connect(PATH));
    client.send(&connect_command(
        &json!({"subs": {"a": {}, "b": {}, "c": {}}}),
    ));
    assert_eq!(client.close_code(), 3004);
    let ends = node.sum(|metrics| metrics.closes[CloseReason::ChannelLimit as usize].value());
    assert_eq!(ends, 1);
    // Channels that it names itself are left out beyond the limit.
    let mut client = Client(node.connect(PATH));
    let mut command = connect_command(&json!({"user": "1", "subs": {"a": {}}}));
    command["connect"]["subs"] = json!({"x": {}, "y": {}, "z": {}});
    let reply = client.ask(&command);
    let subs = reply["connect"]["subs"].as_object().expect("subscriptions");
    assert!(subs.len() == 2 && subs.contains_key("a"), "{reply}");
}

fn names_that_are_made_up_have_a_rate(driver: Driver) {
    let limits = Limits {
        new_channels: RateLimit::new(3, Duration::from_hours(3)),
        ..Limits::default()
    };
    let options = Options {
        namespaces: one_namespace(ChannelOptions {
            presence: true,
            history_size: 10,
            history_ttl: Duration::from_secs(60),
            history_meta_ttl: Duration::from_secs(60),
            subscribe: Right::ALL,
            history_read: Right::ALL,
            presence_read: Right::ALL,
            ..ChannelOptions::default()
        }),
        limits,
        ..with_tokens()
    };
    let node = Node::start(driver, options);
    let ask = |client: &mut Client, command: &str, channel: &str| {
        let reply = client.ask(&json!({"id": 9, command: {"channel": channel}}));
        reply["error"]["code"].as_u64().unwrap_or(0)
    };
    let (mut client, _) = connect(&node, &json!({"user": "1"}));
    for (command, channel, expected) in [
        ("history", "a", 0),
        ("presence", "b", 0),
        ("subscribe", "c", 0),
        ("history", "d", 111),
        ("presence", "e", 111),
        ("presence_stats", "f", 111),
        ("subscribe", "g", 111),
        // These are not new.
        ("presence_stats", "a", 0),
        ("history", "b", 0),
        ("history", "c", 0),
    ] {
        let code = ask(&mut client, command, channel);
        assert_eq!(code, expected, "{command} {channel}");
    }
    let limited = node.sum(|metrics| metrics.limited[Limit::NewChannels as usize].value());
    assert_eq!(limited, 4);
    let (mut other, _) = connect(&node, &json!({"user": "1"}));
    assert_eq!(ask(&mut other, "history", "d"), 0, "of each client");
}

fn nobody_publishes_to_a_channel_that_he_may_not_see(driver: Driver) {
    let mut options = Options {
        namespaces: one_namespace(ChannelOptions {
            allow_user_limited_channels: true,
            publish: Right::ALL,
            ..ChannelOptions::default()
        }),
        ..with_tokens()
    };
    options.client.personal_channel = Some(PersonalChannel {
        namespace: None,
        single_connection: false,
    });
    let node = Node::start(driver, options);
    let publish = |channel: &str| json!({"id": 9, "publish": {"channel": channel, "data": 1}});
    let subs = json!({"$granted": {}});
    let (mut client, _) = connect(&node, &json!({"user": "42", "subs": subs}));
    for (channel, expected) in [
        ("$secret", 103),
        ("room#7", 103),
        ("#7", 103),
        ("open", 0),
        ("room#7,42", 0),
    ] {
        let reply = client.ask(&publish(channel));
        let code = reply["error"]["code"].as_u64().unwrap_or(0);
        assert_eq!(code, expected, "{channel}: {reply}");
    }
    // Its own, and one that its token lets it into.
    for channel in ["#42", "$granted"] {
        client.send(&publish(channel));
        let (publication, reply) = published(&mut client);
        assert_eq!(publication["data"], 1, "{channel}: {publication}");
        assert_eq!(reply, json!({"id": 9, "publish": {}}), "{channel}");
    }
}

fn refresh(id: u32, token: &Value) -> Value {
    json!({"id": id, "refresh": {"token": token.to_string()}})
}

fn a_connection_expires_unless_it_is_refreshed(driver: Driver) {
    let node = Node::start(driver, with_tokens());
    let (mut client, reply) = connect(&node, &json!({"user": "1", "left_ms": 100}));
    assert_eq!(reply["connect"]["ttl"], 1);
    assert_eq!(client.close_code(), 3005);
    let (mut client, _) = connect(&node, &json!({"user": "1", "left_ms": 60_000}));
    let reply = client.ask(&refresh(2, &json!({"user": "1", "left_ms": 90_000})));
    assert_eq!(
        reply,
        json!({"id": 2, "refresh": {"expires": true, "ttl": 90}})
    );
    // Without an expiry it goes on for ever.
    let reply = client.ask(&refresh(3, &json!({"user": "1"})));
    assert_eq!(reply, json!({"id": 3, "refresh": {}}));
    let reply = client.ask(&refresh(4, &json!({"user": "1", "left_ms": 1})));
    assert_eq!(reply["refresh"]["ttl"], 1);
    assert_eq!(client.close_code(), 3005);
}

fn a_refresh_with_another_token_is_refused(driver: Driver) {
    let node = Node::start(driver, with_tokens());
    for (token, code) in [
        (json!({"user": "2"}), 3500),
        (json!({"fault": "invalid"}), 3500),
        (json!({"fault": "expired"}), 3005),
        (json!({"user": "1", "subs": {"a": {}}}), 3010),
    ] {
        let (mut client, _) = connect(&node, &json!({"user": "1", "left_ms": 60_000}));
        client.send(&refresh(2, &token));
        assert_eq!(client.close_code(), code, "{token}");
    }
    let (mut client, _) = connect(&node, &json!({"user": "1", "left_ms": 60_000}));
    client.send(&json!({"id": 2, "refresh": {}}));
    assert_eq!(client.close_code(), 3501);
    // A costly one is left to the control plane.
    let (mut client, _) = connect(&node, &json!({"user": "1", "left_ms": 60_000}));
    client.send(&refresh(2, &json!({"later": true})));
    let grant = connection(&json!({"user": "1", "left_ms": 30_000}));
    node.grant(node.asked(), AskAnswer::Connect(Box::new(grant)));
    assert_eq!(client.read()["refresh"]["ttl"], 30);
}

fn a_private_channel_needs_its_token(driver: Driver) {
    let node = Node::start(driver, with_tokens());
    let (mut client, _) = connect(&node, &json!({"user": "1"}));
    let with = |id: u32, token: &Value| json!({"id": id, "subscribe": {"channel": "$a", "token": token.to_string()}});
    assert_eq!(client.ask(&subscribe(2, "$a"))["error"]["code"], 103);
    for (fault, code) in [("expired", 109), ("invalid", 103), ("revoked", 103)] {
        let token = json!({"channel": "$a", "user": "1", "fault": fault});
        assert_eq!(
            client.ask(&with(3, &token))["error"]["code"],
            code,
            "{fault}"
        );
    }
    let token = json!({"channel": "$a", "user": "1", "data": {"x": 1}, "left_ms": 60_000});
    let reply = client.ask(&with(4, &token));
    assert_eq!(reply["subscribe"]["data"], json!({"x": 1}), "{reply}");
    assert_eq!(reply["subscribe"]["ttl"], 60);
    for token in [
        json!({"channel": "$b", "user": "1"}),
        json!({"channel": "$a", "user": "2"}),
    ] {
        let (mut client, _) = connect(&node, &json!({"user": "1"}));
        client.send(&with(2, &token));
        assert_eq!(client.close_code(), 3500, "{token}");
    }
}

fn a_subscription_expires_unless_it_is_refreshed(driver: Driver) {
    let node = Node::start(driver, with_tokens());
    let (mut client, _) = connect(&node, &json!({"user": "1"}));
    let token =
        |left_ms: u64| json!({"channel": "$a", "user": "1", "left_ms": left_ms}).to_string();
    let subscribe =
        |left_ms| json!({"id": 2, "subscribe": {"channel": "$a", "token": token(left_ms)}});
    assert_eq!(client.ask(&subscribe(50))["subscribe"]["ttl"], 1);
    let push = client.read();
    assert_eq!(push["push"]["unsubscribe"]["code"], 2501, "{push}");
    // The connection goes on, and so does a subscription that is refreshed.
    assert_eq!(client.ask(&subscribe(60_000))["subscribe"]["ttl"], 60);
    let refresh = |id: u32, token: String| json!({"id": id, "sub_refresh": {"channel": "$a", "token": token}});
    let reply = client.ask(&refresh(3, token(70_000)));
    assert_eq!(
        reply,
        json!({"id": 3, "sub_refresh": {"expires": true, "ttl": 70}})
    );
    let expired = json!({"channel": "$a", "user": "1", "fault": "expired"}).to_string();
    let reply = client.ask(&refresh(4, expired));
    assert_eq!(reply["sub_refresh"]["ttl"], 1, "it may try again: {reply}");
    assert_eq!(client.ask(&refresh(5, String::new()))["error"]["code"], 107);
    // One that the server made takes the connection with it.
    let (mut client, _) = connect(&node, &json!({"user": "1", "subs": {"b": {"left_ms": 50}}}));
    assert_eq!(client.close_code(), 3006);
}

fn with_application(proxies: ChannelProxies) -> Options {
    Options {
        access: Access {
            connect_proxy: true,
            refresh_proxy: true,
            headers: ["x-tenant".into()].into(),
            emulated_headers: ["authorization".into()].into(),
            ..Access::default()
        },
        namespaces: one_namespace(ChannelOptions {
            proxies,
            publish: Right::ALL,
            subscribe: Right::ALL,
            ..ChannelOptions::default()
        }),
        ..with_tokens()
    }
}

/// A client that the application lets in.
fn let_in(node: &Node, grant: &Value) -> Client {
    let mut client = Client(node.connect(PATH));
    client.send(&json!({"id": 1, "connect": {}}));
    node.grant(
        node.asked(),
        AskAnswer::Connect(Box::new(connection(grant))),
    );
    assert!(client.read()["connect"]["client"].is_string());
    client
}

fn the_application_is_asked_who_connects(driver: Driver) {
    let node = Node::start(driver, with_application(ChannelProxies::default()));
    let mut client = Client(node.connect(PATH));
    let command =
        json!({"id": 1, "connect": {"data": {"key": 5}, "name": "js", "subs": {"a": {}}}});
    client.send(&command);
    let ask = node.asked();
    let Question::Connect {
        token,
        data,
        name,
        channels,
        ..
    } = ask.question()
    else {
        panic!("{:?}", ask.question());
    };
    assert_eq!((token, &**name), (&None, "js"));
    assert_eq!(*data, Some(Payload::Json("{\"key\":5}".into())));
    assert_eq!(channels.as_slice(), ["a".into()]);
    assert_eq!(
        (ask.asker().transport, ask.asker().protocol),
        ("websocket", "json")
    );
    let grant = connection(&json!({"user": "9", "left_ms": 60_000, "subs": {"b": {}}}));
    node.grant(ask, AskAnswer::Connect(Box::new(grant)));
    let reply = client.read();
    // The server refreshes: the client is told no time. What the application does not name is not subscribed.
    assert_eq!(reply["connect"].get("ttl"), None, "{reply}");
    assert_eq!(reply["connect"]["subs"], json!({"b": {}}));
}

fn the_application_is_asked_again_when_a_connection_expires(driver: Driver) {
    let node = Node::start(driver, with_application(ChannelProxies::default()));
    let grant = |refreshed| {
        AskAnswer::Refresh(Box::new(RefreshGrant {
            refreshed,
            info: None,
            meta: None,
        }))
    };
    let mut client = let_in(&node, &json!({"user": "9", "left_ms": 50}));
    let ask = node.asked();
    assert!(matches!(ask.question(), Question::Refresh { token: None }));
    assert_eq!(ask.asker().user.as_deref(), Some("9"));
    node.grant(ask, grant(Refreshed::For(Some(Duration::from_millis(50)))));
    let ask = node.asked();
    node.grant(ask, grant(Refreshed::Expired));
    assert_eq!(client.close_code(), 3005);
    // Without an answer it goes on for a while.
    let mut client = let_in(&node, &json!({"user": "9", "left_ms": 50}));
    node.grant(node.asked(), AskAnswer::Unavailable);
    client.send(&json!({"id": 2, "refresh": {"token": "x"}}));
    assert_eq!(client.close_code(), 3501);
}

/// Calls to the application may fail for long, because it is down or because all places for calls are taken.
fn what_has_expired_does_not_go_on_without_end(driver: Driver) {
    let proxies = ChannelProxies {
        subscribe: Some("default".into()),
        sub_refresh: Some("default".into()),
        ..ChannelProxies::default()
    };
    let options = Options {
        refresh_grace: Duration::from_millis(1),
        ..with_application(proxies)
    };
    let node = Node::start(driver, options);
    let refreshed = || {
        Box::new(RefreshGrant {
            refreshed: Refreshed::For(Some(Duration::from_millis(1))),
            info: None,
            meta: None,
        })
    };
    let fail_often = || {
        for nth in 0..10 {
            match nth % 2 {
                0 => node.grant(node.asked(), AskAnswer::Unavailable),
                _ => node.answer(node.asked(), ErrorCode::TooManyRequests),
            }
        }
    };
    let mut client = let_in(&node, &json!({"user": "9", "left_ms": 50}));
    fail_often();
    // An answer lets it begin anew.
    node.grant(node.asked(), AskAnswer::Refresh(refreshed()));
    fail_often();
    node.grant(node.asked(), AskAnswer::Unavailable);
    assert_eq!(client.close_code(), 3005);
    // A subscription ends without its connection, if it is the client's own.
    let mut client = let_in(&node, &json!({"user": "9"}));
    client.send(&subscribe(2, "room"));
    let granted = SubscribeGrant {
        expires_in: Some(Duration::from_millis(50)),
        ..SubscribeGrant::default()
    };
    node.grant(node.asked(), AskAnswer::Subscribe(Box::new(granted)));
    assert!(client.read()["subscribe"].is_object());
    fail_often();
    node.grant(node.asked(), AskAnswer::SubRefresh(refreshed()));
    fail_often();
    node.grant(node.asked(), AskAnswer::Unavailable);
    assert_eq!(client.read()["push"]["unsubscribe"]["code"], 2501);
    let subs = json!({"room": {"left_ms": 50}});
    let mut client = let_in(&node, &json!({"user": "9", "subs": subs}));
    fail_often();
    node.grant(node.asked(), AskAnswer::Unavailable);
    assert_eq!(client.close_code(), 3006);
}

fn a_client_with_as_many_questions_as_it_may_have_expires(driver: Driver) {
    let node = Node::start(
        driver,
        Options {
            asks_max: 16 * 1024,
            ..with_application(ChannelProxies::default())
        },
    );
    let mut client = Client(node.connect(PATH));
    let call = |id: u32| json!({"id": id, "rpc": {"method": "m"}}).to_string();
    let connect = json!({"id": 1, "connect": {}}).to_string();
    let commands: Vec<String> = [connect].into_iter().chain((2..=258).map(call)).collect();
    // In one frame: the expiry cannot come before the calls are asked.
    client.send_text(commands.join("\n"));
    let grant = connection(&json!({"user": "9", "left_ms": 50}));
    node.grant(node.asked(), AskAnswer::Connect(Box::new(grant)));
    assert!(client.read()["connect"]["client"].is_string());
    let asks: Vec<Ask> = (0..256).map(|_| node.asked()).collect();
    let is_call = |ask: &Ask| matches!(ask.question(), Question::Rpc { .. });
    assert!(asks.iter().all(is_call));
    assert_eq!(client.read()["error"]["code"], 111, "one too many");
    let ask = node.asked();
    assert!(matches!(ask.question(), Question::Refresh { token: None }));
    let expired = RefreshGrant {
        refreshed: Refreshed::Expired,
        info: None,
        meta: None,
    };
    node.grant(ask, AskAnswer::Refresh(Box::new(expired)));
    assert_eq!(client.close_code(), 3005);
}

fn proxies(subscribe: bool, publish: bool) -> ChannelProxies {
    ChannelProxies {
        subscribe: subscribe.then(|| "s".into()),
        publish: publish.then(|| "p".into()),
        sub_refresh: subscribe.then(|| "r".into()),
    }
}

fn the_application_decides_about_subscriptions(driver: Driver) {
    let node = Node::start(driver, with_application(proxies(true, false)));
    let mut client = let_in(&node, &json!({"user": "9", "meta": {"m": 1}}));
    client.send(&json!({"id": 2, "subscribe": {"channel": "a", "data": [1]}}));
    let ask = node.asked();
    assert_eq!(ask.asker().meta.as_deref(), Some(&br#"{"m":1}"#[..]));
    let Question::Subscribe {
        channel,
        data,
        proxy,
        ..
    } = ask.question()
    else {
        panic!("{:?}", ask.question());
    };
    assert_eq!((&**channel, proxy.as_deref()), ("a", Some("s")));
    assert_eq!(*data, Some(Payload::Json("[1]".into())));
    let grant = subscription(&json!({"data": {"ok": 1}, "left_ms": 50}));
    node.grant(ask, AskAnswer::Subscribe(Box::new(grant)));
    assert_eq!(
        client.read(),
        json!({"id": 2, "subscribe": {"data": {"ok": 1}}})
    );
    // It expires, and the application is asked again.
    let ask = node.asked();
    let Question::SubRefresh { channel, proxy, .. } = ask.question() else {
        panic!("{:?}", ask.question());
    };
    assert_eq!((&**channel, proxy.as_deref()), ("a", Some("r")));
    let expired = RefreshGrant {
        refreshed: Refreshed::Expired,
        info: None,
        meta: None,
    };
    node.grant(ask, AskAnswer::SubRefresh(Box::new(expired)));
    assert_eq!(client.read()["push"]["unsubscribe"]["code"], 2501);
    client.send(&subscribe(3, "a"));
    node.grant(
        node.asked(),
        AskAnswer::Refused(Refusal::Error {
            code: 1001,
            message: "not you".into(),
            temporary: false,
        }),
    );
    assert_eq!(
        client.read()["error"],
        json!({"code": 1001, "message": "not you"})
    );
    assert_eq!(node.sum(|shard| shard.application_errors.value()), 1);
}

fn commands_about_a_channel_keep_their_order(driver: Driver) {
    let node = Node::start(driver, with_application(proxies(true, true)));
    let mut client = let_in(&node, &json!({"user": "9"}));
    let leave = json!({"id": 3, "unsubscribe": {"channel": "a"}});
    let publish = |id: u32| json!({"id": id, "publish": {"channel": "a", "data": id}});
    let frame = format!(
        "{}\n{leave}\n{}\n{}\n{}",
        subscribe(2, "a"),
        subscribe(4, "a"),
        publish(5),
        publish(6)
    );
    client.send_text(frame);
    let grant = || AskAnswer::Subscribe(Box::default());
    let ask = node.asked();
    // Commands about other channels do not wait.
    assert_eq!(
        client.ask(&json!({"id": 7, "unsubscribe": {"channel": "b"}}))["id"],
        7
    );
    node.grant(ask, grant());
    let replies = [
        json!({"id": 2, "subscribe": {}}),
        json!({"id": 3, "unsubscribe": {}}),
    ];
    assert_eq!(client.read_lines(), replies);
    node.grant(node.asked(), grant());
    assert_eq!(client.read(), json!({"id": 4, "subscribe": {}}));
    for id in [5, 6] {
        node.grant(node.asked(), AskAnswer::Publish(Box::default()));
        let (publication, reply) = published(&mut client);
        assert_eq!(publication["data"], id);
        assert_eq!(reply, json!({"id": id, "publish": {}}));
    }
    // As many wait as may, and those of a client that goes are forgotten.
    client.send(&subscribe(20, "c"));
    let ask = node.asked();
    let waiting: Vec<String> = (0..257)
        .map(|id| json!({"id": 21 + id, "unsubscribe": {"channel": "c"}}).to_string())
        .collect();
    client.send_text(waiting.join("\n"));
    assert_eq!(client.read()["error"]["code"], 111);
    drop(client);
    node.settle(|node| node.sum(|shard| shard.connections.value()) == 0);
    node.grant(ask, grant());
    node.settle(|node| node.sum(|shard| shard.buffered_bytes.value()) == 0);
}

fn reads_of_a_channel_wait_for_the_application_too(driver: Driver) {
    let mut options = with_application(proxies(true, false));
    options.namespaces = one_namespace(ChannelOptions {
        proxies: proxies(true, false),
        history_size: 10,
        history_ttl: Duration::from_secs(60),
        history_meta_ttl: Duration::from_secs(60),
        presence: true,
        history_read: Right {
            subscriber: true,
            ..Right::default()
        },
        presence_read: Right {
            subscriber: true,
            ..Right::default()
        },
        ..ChannelOptions::default()
    });
    let node = Node::start(driver, options);
    let mut client = let_in(&node, &json!({"user": "9"}));
    let reads = ["history", "presence", "presence_stats"];
    let read =
        |(id, name): (usize, &&str)| json!({"id": 3 + id, *name: {"channel": "a"}}).to_string();
    let reads: Vec<String> = reads.iter().enumerate().map(read).collect();
    client.send_text(format!("{}\n{}", subscribe(2, "a"), reads.join("\n")));
    node.grant(node.asked(), AskAnswer::Subscribe(Box::default()));
    let mut replies = Vec::new();
    while replies.len() < 4 {
        replies.extend(client.read_lines());
    }
    assert_eq!(replies[0]["id"], 2, "{replies:?}");
    assert!(
        replies.iter().all(|reply| reply.get("error").is_none()),
        "{replies:?}"
    );
}

fn a_subscription_that_expires_waits_only_for_the_publication_under_way(driver: Driver) {
    let node = Node::start(driver, with_application(proxies(true, true)));
    let mut client = let_in(&node, &json!({"user": "9"}));
    client.send(&subscribe(2, "a"));
    let grant = subscription(&json!({"left_ms": 50}));
    let publish = |id: u32| json!({"id": id, "publish": {"channel": "a", "data": id}});
    let ask = node.asked();
    client.send_text(format!("{}\n{}\n{}", publish(3), publish(4), publish(5)));
    // It has come before the answer does: this one is answered behind it.
    assert_eq!(
        client.ask(&json!({"id": 9, "unsubscribe": {"channel": "b"}}))["id"],
        9
    );
    node.grant(ask, AskAnswer::Subscribe(Box::new(grant)));
    assert_eq!(client.read()["id"], 2);
    let first = node.asked();
    assert!(matches!(first.question(), Question::Publish { .. }));
    // Time passes, and the subscription expires.
    let expires = Instant::now() + Duration::from_millis(200);
    while Instant::now() < expires {
        client.ask(&json!({"id": 9, "unsubscribe": {"channel": "b"}}));
    }
    node.grant(first, AskAnswer::Publish(Box::default()));
    assert_eq!(published(&mut client).1["id"], 3);
    // The client's other commands do not put the question off.
    let ask = node.asked();
    assert!(matches!(ask.question(), Question::SubRefresh { .. }));
    let expired = RefreshGrant {
        refreshed: Refreshed::Expired,
        info: None,
        meta: None,
    };
    node.grant(ask, AskAnswer::SubRefresh(Box::new(expired)));
    assert_eq!(client.read()["push"]["unsubscribe"]["code"], 2501);
    // They are carried out behind it, by a client without the subscription.
    for id in [4, 5] {
        node.grant(node.asked(), AskAnswer::Publish(Box::default()));
        assert_eq!(client.read(), json!({"id": id, "publish": {}}));
    }
}

fn the_application_decides_about_publications(driver: Driver) {
    let node = Node::start(driver, with_application(proxies(false, true)));
    let mut client = let_in(&node, &json!({"user": "9"}));
    client.ask(&subscribe(2, "a"));
    client.send(&json!({"id": 3, "publish": {"channel": "a", "data": "bad word"}}));
    let ask = node.asked();
    let Question::Publish {
        channel,
        data,
        proxy,
    } = ask.question()
    else {
        panic!("{:?}", ask.question());
    };
    assert_eq!((&**channel, &**proxy), ("a", "p"));
    assert_eq!(*data, Payload::Json("\"bad word\"".into()));
    let grant = PublishGrant {
        data: Some(Payload::Json("\"****\"".into())),
        tags: vec![("checked".into(), "yes".into())],
        ..PublishGrant::default()
    };
    node.grant(ask, AskAnswer::Publish(Box::new(grant)));
    let (publication, reply) = published(&mut client);
    assert_eq!(publication["data"], "****", "{publication}");
    assert_eq!(publication["tags"], json!({"checked": "yes"}));
    assert_eq!(publication["info"]["user"], "9");
    assert_eq!(reply, json!({"id": 3, "publish": {}}));
}

/// A client's own publication and the reply to its command, which come in any order.
fn published(client: &mut Client) -> (Value, Value) {
    let mut messages = Vec::new();
    while messages.len() < 2 {
        messages.extend(client.read_lines());
    }
    messages.sort_by_key(|message| message.get("id").is_some());
    let reply = messages.pop().expect("two messages");
    let push = messages.pop().expect("two messages");
    (push["push"]["pub"].clone(), reply)
}

fn the_application_answers_a_method(driver: Driver) {
    let node = Node::start(driver, with_application(ChannelProxies::default()));
    let mut client = let_in(&node, &json!({"user": "9"}));
    client.send(&json!({"id": 2, "rpc": {"method": "sum", "data": [1, 2]}}));
    node.grant(node.asked(), AskAnswer::Rpc(Payload::Json("3".into())));
    assert_eq!(client.read(), json!({"id": 2, "rpc": {"data": 3}}));
    // Bytes have no form in JSON.
    client.send(&json!({"id": 3, "rpc": {"method": "sum"}}));
    node.grant(
        node.asked(),
        AskAnswer::Rpc(Payload::Binary([0, 255].into())),
    );
    assert_eq!(client.close_code(), 3506);
}

fn the_application_disconnects_with_its_own_code(driver: Driver) {
    let node = Node::start(driver, with_application(ChannelProxies::default()));
    let mut client = Client(node.connect(PATH));
    client.send(&json!({"id": 1, "connect": {}}));
    let close = ApplicationClose::new(4501, "go away").expect("a code of the application");
    node.grant(node.asked(), AskAnswer::Refused(Refusal::Disconnect(close)));
    assert_eq!(client.close_code(), 4501);
}

fn a_client_that_the_application_does_not_know_is_told_of_in_the_log(driver: Driver) {
    let node = Node::start(driver, with_application(ChannelProxies::default()));
    let mut client = Client(node.connect(PATH));
    client.send(&json!({"id": 1, "connect": {}}));
    node.grant(node.asked(), AskAnswer::Refused(Refusal::Nobody));
    assert_eq!(client.close_code(), 3501);
    let noted = (0..node.mesh().shard_count())
        .flat_map(|shard| node.mesh().take_refusals(shard, Now(0)).kept)
        .filter_map(|(_, event)| match event {
            ConnectionEvent::CommandRefused(refused) => Some((refused.code, refused.reason)),
            _ => None,
        });
    let noted: Vec<_> = noted.collect();
    let [(3501, reason)] = &noted[..] else {
        panic!("{noted:?}");
    };
    assert!(reason.contains("without a result"), "{reason}");
}

fn pairs(headers: &Option<myriad_shard::Headers>) -> Vec<(String, String)> {
    let headers = headers.iter().flat_map(|headers| headers.iter());
    headers
        .map(|(name, value)| (name.to_string(), value.escape_ascii().to_string()))
        .collect()
}

/// The first bytes that a session asks the application with.
fn asked_by(node: &Node, head: &[u8]) -> (Option<String>, Vec<(String, String)>) {
    let mut socket = node.stream();
    socket.write_all(head).expect("a socket");
    let ask = node.asked();
    let user = ask.asker().user.as_deref().map(str::to_owned);
    (user, pairs(&ask.asker().headers))
}

/// A request with a connect command, and these lines in its head.
fn request(line: &str, headers: &[u8], body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!("{line} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n");
    [head.as_bytes(), headers, b"\r\n", body.as_bytes()].concat()
}

fn every_line_of_a_header_reaches_the_application(driver: Driver) {
    let mut options = with_application(ChannelProxies::default());
    options.access.headers = ["cookie".into(), "x-forwarded-for".into()].into();
    let node = Node::start(driver, options);
    let asked = |headers: &[u8]| {
        let connect = r#"{"id":1,"connect":{}}"#;
        asked_by(
            &node,
            &request("POST /connection/http_stream", headers, connect),
        )
        .1
    };
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    // A proxy adds a line to the client's.
    assert_eq!(
        asked(b"X-Forwarded-For: 203.0.113.66\r\nx-forwarded-for: 127.0.0.5\r\n"),
        [
            pair("x-forwarded-for", "203.0.113.66"),
            pair("x-forwarded-for", "127.0.0.5")
        ]
    );
    // Several lines of cookies mean what one means.
    assert_eq!(
        asked(b"Cookie: lang=en\r\nX-Forwarded-For: ::1\r\nCookie: sid=1\r\nCookie:\r\n"),
        [
            pair("cookie", "lang=en; sid=1"),
            pair("x-forwarded-for", "::1")
        ]
    );
    // A value is any bytes.
    assert_eq!(
        asked(b"Cookie: sid=1; city=M\xfcnchen\r\n"),
        [pair("cookie", "sid=1; city=M\\xfcnchen")]
    );
}

fn a_get_that_any_page_may_have_caused_is_nobodys(driver: Driver) {
    let mut options = with_application(ChannelProxies::default());
    options.access.headers = [
        "cookie".into(),
        "authorization".into(),
        "x-trace".into(),
        "x-user".into(),
    ]
    .into();
    options.client.user_id_http_header = Some("X-User".into());
    let node = Node::start(driver, options);
    let lines = "Cookie: sid=1\r\nAuthorization: Basic eA==\r\nX-Trace: 7\r\nX-User: ann\r\n";
    let connect = "%7B%22id%22%3A1%2C%22connect%22%3A%7B%7D%7D";
    for path in ["/connection/sse", "/connection/uni_sse"] {
        let message = if path.ends_with("uni_sse") {
            "%7B%7D"
        } else {
            connect
        };
        let target = format!("GET {path}?cf_connect={message}");
        let asked = |more: &str| {
            let headers = format!("{lines}{more}");
            let (user, headers) = asked_by(&node, &request(&target, headers.as_bytes(), ""));
            (user, headers.len())
        };
        // As Chromium sends them for an image of another site, of a sibling, and from the line of addresses. HTTP alone: nothing.
        for page in [
            "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: image\r\n",
            "Sec-Fetch-Site: same-site\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: image\r\n",
            "Sec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate\r\n",
            "",
        ] {
            assert_eq!(asked(page), (None, 1), "{page}");
        }
        for page in [
            "Sec-Fetch-Site: same-origin\r\n",
            "Origin: http://a:3000\r\n",
        ] {
            assert_eq!(asked(page), (Some("ann".to_owned()), 4), "{page}");
        }
        // Of two names, one may be the client's own.
        let two = "Sec-Fetch-Site: same-origin\r\nX-User: bob\r\n";
        assert_eq!(asked(two), (None, 5));
    }
}

fn the_application_gets_the_headers_that_are_listed(driver: Driver) {
    let node = Node::start(driver, with_application(ChannelProxies::default()));
    let mut client = Client(node.connect_with(PATH, "x-tenant", "acme"));
    let emulated = json!({"Authorization": "Bearer t", "Cookie": "no"});
    client.send(&json!({"id": 1, "connect": {"headers": emulated}}));
    let ask = node.asked();
    assert_eq!(
        pairs(&ask.asker().headers),
        [("x-tenant".into(), "acme".into())]
    );
    assert_eq!(
        pairs(&ask.asker().emulated_headers),
        [("authorization".into(), "Bearer t".into())]
    );
    node.grant(ask, AskAnswer::Connect(Box::default()));
    assert!(client.read()["connect"]["client"].is_string());
    // They stay with the connection.
    client.send(&json!({"id": 2, "rpc": {"method": "m"}}));
    assert_eq!(pairs(&node.asked().asker().headers).len(), 1);
}

fn headers_of_a_command_are_bounded_and_have_one_value(driver: Driver) {
    let node = Node::start(driver, with_application(ChannelProxies::default()));
    let close_code = |headers: Value| {
        let mut client = Client(node.connect(PATH));
        client.send(&json!({"id": 1, "connect": {"headers": headers}}));
        client.close_code()
    };
    assert_eq!(close_code(json!({"Authorization": "x".repeat(8192)})), 3501);
    let twice = json!({"Authorization": "one", "authorization": "other"});
    assert_eq!(close_code(twice), 3501);
    // Those that nobody wants are not kept.
    let mut client = Client(node.connect(PATH));
    client.send(&json!({"id": 1, "connect": {"headers": {"X-Big": "x".repeat(8192)}}}));
    assert!(node.asked().asker().emulated_headers.is_none());
}
