//! Orders: what an application does to connections of its users.

use super::client::{Client, PATH};
use super::node::{Driver, Node, Options};
use myriad_shard::{
    Access, ApplicationClose, Ask, AskAnswer, ChannelOptions, ChannelProxies, ClientId,
    ClientOptions, CloseReason, ConnectGrant, ConnectionQuestion, Deed, Described, MetaFilter,
    Namespaces, OrderDone, Payload, PersonalChannel, Question, RefreshGrant, Refreshed, Right,
    ServerSubscribe, SubscribeGrant, Users, Whose,
};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tungstenite::Message;

on_both_drivers!(
    a_user_is_disconnected_with_a_code_and_a_reason,
    code_3000_ends_a_connection_without_a_word,
    one_client_goes_and_others_are_kept,
    anonymous_clients_are_found_by_looking_at_all,
    a_large_user_goes_in_slices_and_nothing_waits,
    a_client_whose_connect_is_asked_about_goes_with_the_answer,
    what_is_ordered_while_a_client_connects_is_done_when_it_has,
    a_subscription_that_is_asked_about_does_not_outlast_an_order,
    a_refresh_that_is_asked_about_does_not_replace_an_order,
    a_client_is_subscribed_and_unsubscribed,
    a_subscription_that_is_being_made_ends_behind_its_answer,
    what_was_missed_follows_the_push_of_a_subscription,
    a_connection_is_refreshed_or_expires,
    connections_are_described_in_pages,
    a_connection_is_described_as_it_is,
    an_order_to_a_shard_that_has_ended_is_done,
);

fn options() -> Options {
    let plain = ChannelOptions {
        subscribe: Right::ALL,
        ..ChannelOptions::default()
    };
    let kept = ChannelOptions {
        history_size: 10,
        history_ttl: Duration::from_secs(60),
        force_recovery: true,
        ..plain.clone()
    };
    Options {
        namespaces: Namespaces::new(plain, [("kept".into(), kept)]),
        client: ClientOptions {
            user_id_http_header: Some("x-user".into()),
            ..ClientOptions::default()
        },
        ..Options::default()
    }
}

/// A client of a user, and its id.
fn open(node: &Node, user: &'static str) -> (Client, ClientId) {
    let mut client = Client(node.connect_with(PATH, "x-user", user));
    let id = connect(&mut client);
    (client, id)
}

fn connect(client: &mut Client) -> ClientId {
    let reply = client.ask(&json!({"id": 1, "connect": {}}));
    let id = reply["connect"]["client"].as_str().expect("an id");
    ClientId::parse(id).expect("one of ours")
}

pub(super) fn whose(user: &str) -> Whose {
    Whose {
        users: Users::One(user.into()),
        ..Whose::default()
    }
}

pub(super) fn disconnect(code: u32, reason: &str) -> Deed {
    Deed::Disconnect(ApplicationClose::new(code, reason).expect("a close"))
}

fn subscribe(channel: &str) -> ServerSubscribe {
    ServerSubscribe {
        channel: channel.into(),
        grant: SubscribeGrant::default(),
        since: None,
    }
}

/// How often an order was carried out, and how often it failed, on all shards.
pub(super) fn done(done: &[OrderDone]) -> (u64, u64) {
    let sum = |count: fn(&OrderDone) -> u64| done.iter().map(count).sum();
    (sum(|done| done.done), sum(|done| done.failed))
}

/// The code and the reason of the close frame that comes next.
fn close(client: &mut Client) -> (u16, String) {
    loop {
        match client.0.read() {
            Ok(Message::Close(Some(frame))) => {
                return (frame.code.into(), frame.reason.as_str().to_owned());
            }
            Ok(_) => {}
            Err(error) => panic!("no close frame: {error}"),
        }
    }
}

fn is_alive(client: &mut Client) -> bool {
    client.ask(&json!({"id": 9, "rpc": {"method": "x"}}))["id"] == 9
}

fn a_user_is_disconnected_with_a_code_and_a_reason(driver: Driver) {
    let node = Node::start(driver, options());
    let mut clients: Vec<_> = (0..8).map(|_| open(&node, "42").0).collect();
    let (mut other, _) = open(&node, "43");
    // Its user is known before it has connected: it goes too.
    let mut stranger = Client(node.connect_with(PATH, "x-user", "42"));
    let ended = node.order(whose("42"), disconnect(4321, "you are banned"));
    assert_eq!(done(&ended), (9, 0));
    let told = (4321, "you are banned".to_owned());
    for client in &mut clients {
        assert_eq!(close(client), told);
    }
    assert_eq!(close(&mut stranger), told);
    assert!(is_alive(&mut other));
    assert_eq!(node.closes(CloseReason::Application), 9);
    assert_eq!(done(&node.order(whose("44"), disconnect(4321, ""))), (0, 0));
}

fn code_3000_ends_a_connection_without_a_word(driver: Driver) {
    let node = Node::start(driver, options());
    let (mut client, _) = open(&node, "42");
    assert_eq!(done(&node.order(whose("42"), disconnect(3000, ""))), (1, 0));
    let end = client.0.read();
    assert!(
        matches!(
            end,
            Err(tungstenite::Error::Protocol(
                tungstenite::error::ProtocolError::ResetWithoutClosingHandshake
            ))
        ),
        "{end:?}"
    );
}

fn one_client_goes_and_others_are_kept(driver: Driver) {
    let node = Node::start(driver, options());
    let mut clients: Vec<_> = (0..6).map(|_| open(&node, "42")).collect();
    let (_, other) = open(&node, "43");
    let one = |client| Whose {
        client: Some(client),
        ..whose("42")
    };
    assert_eq!(done(&node.order(one(other), disconnect(4000, ""))), (0, 0));
    let unknown = ClientId([0x80; 16]);
    assert!(node.order(one(unknown), disconnect(4000, "")).is_empty());
    assert_eq!(
        done(&node.order(one(clients[3].1), disconnect(3503, ""))),
        (1, 0)
    );
    let told = close(&mut clients[3].0);
    assert_eq!(told, (3503, "force disconnect".to_owned()));
    clients.remove(3);
    let kept = Whose {
        kept: vec![clients[0].1, clients[2].1],
        ..whose("42")
    };
    assert_eq!(done(&node.order(kept, disconnect(4000, ""))), (3, 0));
    for (at, (client, _)) in clients.iter_mut().enumerate() {
        if matches!(at, 0 | 2) {
            assert!(is_alive(client), "{at}");
        } else {
            assert_eq!(client.close_code(), 4000, "{at}");
        }
    }
}

fn anonymous_clients_are_found_by_looking_at_all(driver: Driver) {
    let node = Node::start(driver, options());
    let mut nameless: Vec<_> = (0..5).map(|_| Client::open(&node)).collect();
    let (mut named, _) = open(&node, "42");
    // Nobody knows yet who it will be.
    let mut stranger = Client(node.connect(PATH));
    node.settle(|node| node.sum(|shard| shard.connections.value()) == 7);
    let anonymous = Whose {
        users: Users::Anonymous,
        ..Whose::default()
    };
    assert_eq!(done(&node.order(anonymous, disconnect(4000, ""))), (5, 0));
    for client in &mut nameless {
        assert_eq!(client.close_code(), 4000);
    }
    assert!(is_alive(&mut named));
    connect(&mut stranger);
    assert_eq!(
        done(&node.order(Whose::default(), disconnect(4001, ""))),
        (2, 0)
    );
    assert_eq!(named.close_code(), 4001);
    assert_eq!(stranger.close_code(), 4001);
}

fn a_large_user_goes_in_slices_and_nothing_waits(driver: Driver) {
    let options = Options {
        shards: 1,
        slice_max: 16,
        ..options()
    };
    let node = Node::start(driver, options);
    let mut clients: Vec<_> = (0..100).map(|_| open(&node, "42").0).collect();
    let subscribed = node.order(whose("42"), Deed::Subscribe(Box::new(subscribe("news"))));
    assert_eq!(done(&subscribed), (100, 0));
    node.publish("news", Payload::Json("1".into()));
    for client in &mut clients {
        let push = client.read();
        assert!(push["push"]["subscribe"].is_object(), "{push}");
        assert_eq!(client.read()["push"]["pub"]["data"], 1);
    }
    // Some go by themselves while others are made to go.
    let leaving = clients.split_off(70);
    drop(leaving);
    let ended = done(&node.order(whose("42"), disconnect(4000, "")));
    assert!((70..=100).contains(&ended.0), "{ended:?}");
    for client in &mut clients {
        assert_eq!(client.close_code(), 4000);
    }
    node.settle(|node| node.sum(|shard| shard.connections.value()) == 0);
}

/// The application says who connects, and answers when the test wants it to.
fn asking() -> Options {
    let proxies = ChannelProxies {
        subscribe: Some("default".into()),
        ..ChannelProxies::default()
    };
    let channel = ChannelOptions {
        proxies,
        ..ChannelOptions::default()
    };
    Options {
        access: Access {
            connect_proxy: true,
            refresh_proxy: true,
            ..Access::default()
        },
        namespaces: Namespaces::new(channel, []),
        holds_asks: true,
        ..Options::default()
    }
}

/// A client whose connect command waits for the application.
fn knock(node: &Node) -> (Client, Ask) {
    let mut client = Client(node.connect(PATH));
    client.send(&json!({"id": 1, "connect": {}}));
    (client, node.asked())
}

fn let_in(node: &Node, ask: Ask, user: Option<&str>, channels: &[&str]) {
    let subscriptions = channels.iter().map(|channel| {
        let channel = Arc::<str>::from(*channel);
        (channel, SubscribeGrant::default())
    });
    let grant = ConnectGrant {
        user: user.map(Into::into),
        subscriptions: subscriptions.collect(),
        ..ConnectGrant::default()
    };
    node.grant(ask, AskAnswer::Connect(Box::new(grant)));
}

fn a_client_whose_connect_is_asked_about_goes_with_the_answer(driver: Driver) {
    let node = Node::start(driver, asking());
    let waiting: Vec<_> = (0..8).map(|_| knock(&node)).collect();
    let kept = waiting[7].1.asker().client;
    let orders = [
        (whose("42"), 4001),
        (
            Whose {
                users: Users::Anonymous,
                ..Whose::default()
            },
            4002,
        ),
        (
            Whose {
                kept: vec![kept],
                ..whose("43")
            },
            4003,
        ),
        (
            Whose {
                client: Some(waiting[4].1.asker().client),
                ..whose("44")
            },
            4004,
        ),
    ];
    for (whose, code) in orders {
        assert_eq!(done(&node.order(whose, disconnect(code, ""))), (0, 0));
    }
    // Nobody needs to know the user of a client that is named, nor of all.
    let one = Whose {
        client: Some(waiting[6].1.asker().client),
        ..Whose::default()
    };
    assert_eq!(done(&node.order(one, disconnect(4005, ""))), (1, 0));
    let users = [
        Some("42"),
        None,
        Some("43"),
        Some("44"),
        Some("44"),
        Some("9"),
        Some("9"),
        Some("43"),
    ];
    let codes = [4001, 4002, 4003, 0, 4004, 0, 4005, 0];
    let mut connected = Vec::new();
    for ((mut client, ask), (user, code)) in waiting.into_iter().zip(users.into_iter().zip(codes)) {
        let_in(&node, ask, user, &["room"]);
        if code == 0 {
            assert!(client.read()["connect"]["client"].is_string());
            connected.push(client);
        } else {
            assert_eq!(client.close_code(), code);
        }
    }
    // What was asked about after the order is the application's business.
    let (mut client, ask) = knock(&node);
    let_in(&node, ask, Some("42"), &[]);
    assert!(client.read()["connect"]["client"].is_string());
    let (mut client, _ask) = knock(&node);
    assert_eq!(
        done(&node.order(Whose::default(), disconnect(4006, ""))),
        (5, 0)
    );
    assert_eq!(client.close_code(), 4006);
}

fn what_is_ordered_while_a_client_connects_is_done_when_it_has(driver: Driver) {
    let node = Node::start(driver, asking());
    let (mut client, ask) = knock(&node);
    node.order(whose("42"), Deed::Unsubscribe(Some("a".into())));
    node.order(whose("42"), Deed::Subscribe(Box::new(subscribe("c"))));
    let refresh = |refreshed| Deed::Refresh {
        refreshed,
        info: None,
    };
    let hour = Refreshed::For(Some(Duration::from_secs(3600)));
    node.order(whose("42"), refresh(hour));
    node.order(whose("43"), refresh(Refreshed::Expired));
    let_in(&node, ask, Some("42"), &["a", "b"]);
    let subs = client.read()["connect"]["subs"].clone();
    assert_eq!(subs, json!({"a": {}, "b": {}}));
    let mut pushes: Vec<Value> = (0..3).map(|_| client.read()["push"].take()).collect();
    pushes.sort_by_key(|push| push["channel"].as_str().map(str::to_owned));
    assert!(pushes[0]["refresh"].is_object(), "{pushes:?}");
    assert_eq!(pushes[1]["unsubscribe"]["code"], 2000, "{pushes:?}");
    assert_eq!(pushes[2]["channel"], "c");
    assert!(pushes[2]["subscribe"].is_object(), "{pushes:?}");
    let (mut client, ask) = knock(&node);
    node.order(whose("43"), refresh(Refreshed::Expired));
    let_in(&node, ask, Some("43"), &[]);
    assert_eq!(client.close_code(), 3005);
}

fn a_subscription_that_is_asked_about_does_not_outlast_an_order(driver: Driver) {
    let node = Node::start(driver, asking());
    let (mut client, ask) = knock(&node);
    let_in(&node, ask, Some("42"), &[]);
    assert_eq!(client.read()["id"], 1);
    let mut ask_for = |id: u32, channel: &str, order: Option<Deed>| {
        client.send(&json!({"id": id, "subscribe": {"channel": channel}}));
        let ask = node.asked();
        if let Some(deed) = order {
            node.order(whose("42"), deed);
        }
        node.grant(ask, AskAnswer::Subscribe(Box::default()));
        loop {
            let told = client.read();
            if told["id"] == id {
                return told["error"]["code"].as_u64().unwrap_or(0);
            }
            assert_eq!(told["push"]["unsubscribe"]["code"], 2000, "{told}");
        }
    };
    let unsubscribe = |channel: &str| Some(Deed::Unsubscribe(Some(channel.into())));
    assert_eq!(ask_for(2, "a", unsubscribe("a")), 103);
    assert_eq!(ask_for(3, "a", unsubscribe("b")), 0);
    assert_eq!(ask_for(4, "b", Some(Deed::Unsubscribe(None))), 103);
    assert_eq!(ask_for(5, "b", None), 0);
}

fn a_refresh_that_is_asked_about_does_not_replace_an_order(driver: Driver) {
    let node = Node::start(driver, asking());
    let (mut client, ask) = knock(&node);
    let grant = ConnectGrant {
        user: Some("42".into()),
        expires_in: Some(Duration::from_millis(50)),
        ..ConnectGrant::default()
    };
    node.grant(ask, AskAnswer::Connect(Box::new(grant)));
    assert_eq!(client.read()["id"], 1);
    let ask = node.asked();
    let short = Refreshed::For(Some(Duration::from_millis(50)));
    let deed = Deed::Refresh {
        refreshed: short,
        info: None,
    };
    node.order(whose("42"), deed);
    let goes_on = RefreshGrant {
        refreshed: Refreshed::For(None),
        info: None,
        meta: None,
    };
    node.grant(ask, AskAnswer::Refresh(Box::new(goes_on)));
    assert!(client.read()["push"]["refresh"].is_object());
    let ask = node.asked();
    assert!(matches!(ask.question(), Question::Refresh { .. }));
}

fn a_client_is_subscribed_and_unsubscribed(driver: Driver) {
    let node = Node::start(driver, options());
    let (mut client, id) = open(&node, "42");
    let granted = ServerSubscribe {
        grant: SubscribeGrant {
            data: Some(Payload::Json("{\"a\":1}".into())),
            ..SubscribeGrant::default()
        },
        ..subscribe("kept:a")
    };
    let subscribing = || Deed::Subscribe(Box::new(granted.clone()));
    assert_eq!(done(&node.order(whose("42"), subscribing())), (1, 0));
    let push = client.read();
    let told = &push["push"]["subscribe"];
    assert_eq!(push["push"]["channel"], "kept:a");
    assert_eq!(
        (&told["recoverable"], &told["positioned"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(told["data"], json!({"a": 1}));
    assert!(told["epoch"].is_string(), "{push}");
    // It has it already: it is not told again.
    assert_eq!(done(&node.order(whose("42"), subscribing())), (0, 0));
    node.publish("kept:a", Payload::Json("7".into()));
    let push = client.read();
    assert_eq!(
        push["push"]["pub"],
        json!({"data": 7, "offset": 1, "epoch": told["epoch"]}),
        "{push}"
    );
    let again = client.ask(&json!({"id": 2, "subscribe": {"channel": "kept:a"}}));
    assert_eq!(again["error"]["code"], 105);
    let ended = node.order(whose("42"), Deed::Unsubscribe(Some("kept:a".into())));
    assert_eq!(done(&ended), (1, 0));
    let told = json!({"push": {"channel": "kept:a",
        "unsubscribe": {"code": 2000, "reason": "server unsubscribe"}}});
    assert_eq!(client.read(), told);
    // A client may believe that it has a subscription: it is told in any case.
    let one = Whose {
        client: Some(id),
        ..whose("42")
    };
    node.order(one, Deed::Unsubscribe(Some("kept:a".into())));
    assert_eq!(client.read(), told);
    for (id, channel) in [(3, "a"), (4, "b")] {
        client.ask(&json!({"id": id, "subscribe": {"channel": channel}}));
    }
    node.order(whose("42"), subscribing());
    client.read();
    assert_eq!(
        done(&node.order(whose("42"), Deed::Unsubscribe(None))),
        (1, 0)
    );
    let mut ended: Vec<Value> = (0..3)
        .map(|_| client.read()["push"]["channel"].take())
        .collect();
    ended.sort_by_key(Value::to_string);
    assert_eq!(ended, ["a", "b", "kept:a"]);
    assert!(is_alive(&mut client));
    assert_eq!(
        node.sum(|shard| shard.command_errors.iter().map(|count| count.value()).sum()),
        2
    );
}

fn a_subscription_that_is_being_made_ends_behind_its_answer(driver: Driver) {
    let node = Node::start(driver, options());
    let (mut client, _) = open(&node, "42");
    let mut made = 0;
    // Whether the order finds the subscription made, being made or not begun is chance; what the client is told is true each time.
    for id in 2..52 {
        let channel = format!("c{id}");
        client.send(&json!({"id": id, "subscribe": {"channel": channel}}));
        node.order(
            whose("42"),
            Deed::Unsubscribe(Some(channel.as_str().into())),
        );
        let mut told = Vec::new();
        while told.len() < 2 {
            told.extend(client.read_lines());
        }
        let is_end = |line: &Value| line["push"]["unsubscribe"]["code"] == 2000;
        let reply = told
            .iter()
            .position(|line| line["id"] == id)
            .expect("a reply");
        let end = told.iter().position(is_end).expect("a push");
        let again = client.ask(&json!({"id": 100, "subscribe": {"channel": channel}}));
        let code = &again["error"]["code"];
        assert_eq!(code == 105, end < reply, "{told:?}: {again}");
        made += usize::from(reply < end);
    }
    node.settle(|node| node.sum(|shard| shard.subscribes.value()) == 50 + made as u64);
}

fn what_was_missed_follows_the_push_of_a_subscription(driver: Driver) {
    let node = Node::start(driver, options());
    let (mut client, _) = open(&node, "42");
    for n in 1..=4 {
        node.publish("kept:a", Payload::Json(n.to_string().into()));
    }
    let since = |offset| ServerSubscribe {
        since: Some((offset, "".into())),
        ..subscribe("kept:a")
    };
    node.order(whose("42"), Deed::Subscribe(Box::new(since(2))));
    let told = client.read_lines();
    assert_eq!(told[0]["push"]["subscribe"]["offset"], 2, "{told:?}");
    let missed: Vec<_> = told[1..]
        .iter()
        .map(|line| &line["push"]["pub"]["data"])
        .collect();
    assert_eq!(missed, [&json!(3), &json!(4)]);
    assert_eq!(node.publish("kept:a", Payload::Json("5".into())), 5);
    assert_eq!(client.read()["push"]["pub"]["offset"], 5);
    node.order(whose("42"), Deed::Unsubscribe(None));
    client.read();
    // What is lost is not told: the push says the newest position.
    for n in 6..=20 {
        node.publish("kept:a", Payload::Json(n.to_string().into()));
    }
    node.order(whose("42"), Deed::Subscribe(Box::new(since(2))));
    assert_eq!(client.read()["push"]["subscribe"]["offset"], 20);
}

fn a_connection_is_refreshed_or_expires(driver: Driver) {
    let node = Node::start(driver, options());
    let (mut client, id) = open(&node, "42");
    let refresh = |refreshed, info: Option<&[u8]>| Deed::Refresh {
        refreshed,
        info: info.map(Arc::from),
    };
    let left = Refreshed::For(Some(Duration::from_secs(90)));
    assert_eq!(
        done(&node.order(whose("42"), refresh(left, Some(b"{\"n\":1}")))),
        (1, 0)
    );
    assert_eq!(
        client.read(),
        json!({"push": {"refresh": {"expires": true, "ttl": 90}}})
    );
    let described = describe(&node, whose("42"), ConnectionQuestion::default());
    assert_eq!(described[0].client, id);
    assert_eq!(described[0].info.as_deref(), Some(&b"{\"n\":1}"[..]));
    node.order(whose("42"), refresh(Refreshed::For(None), None));
    assert_eq!(client.read(), json!({"push": {"refresh": {}}}));
    node.order(whose("42"), refresh(Refreshed::Expired, None));
    assert_eq!(client.close_code(), 3005);
}

/// All connections that a question is about, by pages.
fn describe(node: &Node, whose: Whose, question: ConnectionQuestion) -> Vec<Described> {
    let question = ConnectionQuestion {
        max: question.max.max(1),
        ..question
    };
    let done = node.order(whose, Deed::Describe(question));
    let mut described = Vec::new();
    for done in done {
        assert_eq!(done.done, done.connections.len() as u64);
        described.extend(done.connections);
    }
    described
}

/// One page: the ids, and where the next page begins.
fn page(
    node: &Node,
    whose: Whose,
    channel: Option<&str>,
    from: u32,
    max: usize,
) -> (Vec<ClientId>, Option<u32>) {
    let question = ConnectionQuestion {
        channel: channel.map(Into::into),
        from,
        max,
        ..ConnectionQuestion::default()
    };
    let done = node.order(whose, Deed::Describe(question)).remove(0);
    let ids: Vec<_> = done.connections.iter().map(|it| it.client).collect();
    assert!(ids.len() == max || done.next.is_none());
    (ids, done.next)
}

fn connections_are_described_in_pages(driver: Driver) {
    let options = Options {
        shards: 1,
        slice_max: 8,
        ..options()
    };
    let node = Node::start(driver, options);
    let (mut ids, mut clients) = (Vec::new(), Vec::new());
    for n in 0..30 {
        let (mut client, id) = open(&node, if n % 3 == 0 { "43" } else { "42" });
        if n % 2 == 0 {
            client.ask(&json!({"id": 2, "subscribe": {"channel": "even"}}));
        }
        ids.push(id);
        clients.push(client);
    }
    let all = |whose: Whose, channel: Option<&str>, max| {
        let (mut all, mut from) = (Vec::new(), Some(0));
        while let Some(first) = from {
            let (ids, next) = page(&node, whose.clone(), channel, first, max);
            all.extend(ids);
            from = next;
        }
        all.sort_unstable();
        all
    };
    let wanted = |is_wanted: fn(usize) -> bool| {
        let mut wanted: Vec<_> = (0..30).filter(|&n| is_wanted(n)).map(|n| ids[n]).collect();
        wanted.sort_unstable();
        wanted
    };
    for max in [1, 4, 7, 30, 100] {
        let everybody = Whose::default;
        assert_eq!(all(everybody(), None, max), wanted(|_| true));
        assert_eq!(all(whose("43"), None, max), wanted(|n| n % 3 == 0));
        let even = Some("even");
        assert_eq!(all(everybody(), even, max), wanted(|n| n % 2 == 0));
        assert_eq!(all(whose("43"), even, max), wanted(|n| n % 6 == 0));
    }
    drop(clients);
}

fn a_connection_is_described_as_it_is(driver: Driver) {
    let options = Options {
        client: ClientOptions {
            user_id_http_header: Some("x-user".into()),
            personal_channel: Some(PersonalChannel {
                namespace: None,
                single_connection: false,
            }),
            ..ClientOptions::default()
        },
        ..options()
    };
    let node = Node::start(driver, options);
    let (mut client, id) = open(&node, "42");
    let (_other, _) = open(&node, "42");
    client.ask(&json!({"id": 2, "subscribe": {"channel": "news"}}));
    let one = Whose {
        client: Some(id),
        ..Whose::default()
    };
    let described = describe(&node, one, ConnectionQuestion::default());
    assert_eq!(described.len(), 1);
    assert_eq!(described[0].user.as_deref(), Some("42"));
    let spoken = (described[0].transport, described[0].protocol);
    assert_eq!(spoken, ("websocket", "json"));
    assert_eq!(described[0].channels, ["news".into(), Arc::from("#42")]);
    let with_meta = ConnectionQuestion {
        meta: Some(MetaFilter(Box::new(|_| true))),
        ..ConnectionQuestion::default()
    };
    let described = describe(&node, Whose::default(), with_meta);
    assert!(described.is_empty(), "nobody has meta");
}

fn an_order_to_a_shard_that_has_ended_is_done(driver: Driver) {
    let node = Node::start(driver, options());
    let mesh = node.mesh().clone();
    let order = mesh.new_order(whose("42"), disconnect(4000, ""));
    let order = order.expect("there is room");
    node.drain(Duration::ZERO);
    // Who is left can still be sent away.
    assert!(mesh.new_order(whose("42"), disconnect(4000, "")).is_ok());
    node.settle(|node| node.are_ended());
    assert_eq!(
        node.ordered(&order),
        [OrderDone::default(), OrderDone::default()]
    );
}
