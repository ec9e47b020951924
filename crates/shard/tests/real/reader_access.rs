//! Who reads streams: by tokens that the control plane verifies, by keys of the API, and until when.

use super::node::{Driver, Node, Options};
use super::orders::{disconnect, done, whose};
use super::readers::{Client, parked, publish};
use myriad_shard::{
    Access, ApiKeys, Ask, AskAnswer, ClientOptions, CloseReason, ConnectGrant, Deed, KeyFault,
    Question, RevokedTokens, SubscribeGrant, TokenFault, TokenIdentity, Tokens, Verdict, Whose,
};
use std::io::Write;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

on_both_drivers!(
    a_costly_token_is_verified_once_for_each_read,
    what_comes_behind_waits_for_the_verdict,
    a_reader_that_goes_is_forgotten,
    readers_beyond_the_places_are_told_to_come_back,
    without_a_verdict_a_reader_is_told_to_come_back,
    a_key_of_the_api_reads_live,
    a_held_request_ends_with_its_token,
    a_stream_of_events_ends_with_its_token,
    readers_of_a_user_end_by_order,
    held_requests_of_a_user_end_by_order,
    readers_of_a_user_are_unsubscribed_by_order,
    a_token_revoked_on_the_way_opens_nothing,
);

/// Tokens and keys of these tests. A token is a number of milliseconds that it is good for, or takes long.
#[derive(Debug, Default)]
struct Desk {
    revokes: AtomicBool,
    keys_asked: Mutex<Vec<String>>,
}

fn grant(user: &str, left: Option<Duration>) -> ConnectGrant {
    ConnectGrant {
        user: Some(user.into()),
        expires_in: left,
        subscriptions: vec![("s".into(), SubscribeGrant::default())],
        token: Some(Arc::new(TokenIdentity {
            id: Some(user.into()),
            issued_at: Some(7),
        })),
        ..ConnectGrant::default()
    }
}

impl Tokens for Desk {
    fn connection(&self, token: &str) -> Verdict<ConnectGrant> {
        match token.parse() {
            Ok(0) => Verdict::Now(Err(TokenFault::Expired)),
            Ok(ms) => Verdict::Now(Ok(grant("ann", Some(Duration::from_millis(ms))))),
            Err(_) if token == "now" => Verdict::Now(Ok(grant("bob", None))),
            Err(_) => Verdict::Later,
        }
    }

    fn subscription(&self, _: &str, _: &str, _: &str, _: &str) -> Verdict<SubscribeGrant> {
        Verdict::Now(Err(TokenFault::Invalid("a test")))
    }

    fn is_revoked(&self, _: &TokenIdentity, _: &str) -> bool {
        self.revokes.load(Ordering::Relaxed)
    }
}

impl ApiKeys for Desk {
    fn is_open(&self) -> bool {
        false
    }

    fn check_read(&self, presented: &[u8], channel: &str) -> Result<(), KeyFault> {
        let mut asked = self.keys_asked.lock().expect("no test has failed");
        asked.push(channel.to_owned());
        match presented {
            b"all" => Ok(()),
            b"some" => Err(KeyFault::Forbidden("It may not.".into())),
            _ => Err(KeyFault::Unknown),
        }
    }
}

fn node_with(driver: Driver, options: Options) -> (Node, Arc<Desk>) {
    let desk = Arc::new(Desk::default());
    let access = Access {
        tokens: Some(Arc::<Desk>::clone(&desk)),
        keys: Some(Arc::<Desk>::clone(&desk)),
        ..Access::default()
    };
    let options = Options {
        access,
        holds_asks: true,
        anonymous: false,
        client: ClientOptions::default(),
        ..options
    };
    let node = Node::start(driver, options);
    publish(&node, "1");
    (node, desk)
}

fn node(driver: Driver) -> Node {
    node_with(driver, Options::default()).0
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

const POLL: &str = "?offset=now&live=long-poll";
const EVENTS: &str = "?offset=now&live=sse";

fn token_of(ask: &Ask) -> &str {
    match ask.question() {
        Question::Read { token } => token,
        other => panic!("{other:?}"),
    }
}

fn let_in(node: &Node, user: &str) {
    let granted = AskAnswer::Connect(Box::new(grant(user, None)));
    node.grant(node.asked(), granted);
}

fn a_costly_token_is_verified_once_for_each_read(driver: Driver) {
    let node = node(driver);
    let mut client = Client::open(&node);
    for _ in 0..3 {
        client.ask_with("", &bearer("costly"));
        let ask = node.asked();
        assert_eq!(token_of(&ask), "costly");
        node.grant(ask, AskAnswer::Connect(Box::new(grant("ann", None))));
        assert_eq!(client.answer().body, "[1]");
    }
    client.ask_with(POLL, &bearer("costly"));
    let_in(&node, "ann");
    parked(&node, 1);
    publish(&node, "2");
    assert_eq!(client.answer().body, "[2]");
    client.ask_with(EVENTS, &bearer("costly"));
    let_in(&node, "ann");
    client.read_until("\"upToDate\":true");
    publish(&node, "3");
    client.read_until("data:[3]\n");
    // What is wrong with a token is told as for others.
    for (answer, status) in [
        (AskAnswer::Token(TokenFault::Expired), "401"),
        (AskAnswer::Unavailable, "503"),
        (
            AskAnswer::Connect(Box::new(ConnectGrant {
                user: Some("eve".into()),
                ..ConnectGrant::default()
            })),
            "403",
        ),
    ] {
        let mut client = Client::open(&node);
        client.stream.write_all(b"GET /v1/stream/$private?offset=now&live=sse HTTP/1.1\r\nHost: a\r\nCookie: myriad_token=costly\r\n\r\n").expect("a socket");
        node.grant(node.asked(), answer);
        assert_eq!(client.answer().status(), status);
        assert_eq!(client.read_to_end(), "");
    }
    node.settle(|node| node.sum(|shard| shard.asks_waiting.value()) == 0);
}

fn what_comes_behind_waits_for_the_verdict(driver: Driver) {
    let node = node(driver);
    let mut client = Client::open(&node);
    let one = format!(
        "GET /v1/stream/s HTTP/1.1\r\nHost: a\r\n{}\r\n",
        bearer("costly")
    );
    for piece in one.repeat(3).as_bytes().chunks(29) {
        client.stream.write_all(piece).expect("a socket");
    }
    for _ in 0..3 {
        let_in(&node, "ann");
        assert_eq!(client.answer().body, "[1]");
    }
    // Too much of it ends the connection, and the verdict finds nobody.
    client.stream.write_all(one.as_bytes()).expect("a socket");
    let ask = node.asked();
    // The server may have closed before it is all written.
    let _ = client.stream.write_all(one.repeat(1_000).as_bytes());
    assert_eq!(client.answer().status(), "429");
    node.grant(ask, AskAnswer::Connect(Box::new(grant("ann", None))));
    node.settle(|node| node.sum(|shard| shard.asks_waiting.value()) == 0);
}

fn a_reader_that_goes_is_forgotten(driver: Driver) {
    let node = node(driver);
    for half in [true, false] {
        let mut client = Client::open(&node);
        client.ask_with(POLL, &bearer("costly"));
        client.ask_with("", &bearer("now"));
        let ask = node.asked();
        client.stream.shutdown(Shutdown::Write).expect("a socket");
        // Whoever has sent everything may still read.
        let mut client = half.then_some(client);
        let mut other = Client::open(&node);
        other.ask_with(POLL, &bearer("now"));
        parked(&node, 1);
        match &mut client {
            Some(client) => {
                node.grant(ask, AskAnswer::Connect(Box::new(grant("ann", None))));
                assert_eq!(client.answer().status(), "204");
                assert!(client.answer().body.starts_with("[1"));
                assert_eq!(client.read_to_end(), "");
            }
            None => node.grant(ask, AskAnswer::Token(TokenFault::Expired)),
        }
        node.settle(|node| node.sum(|shard| shard.connections.value()) == 1);
        node.settle(|node| node.sum(|shard| shard.asks_waiting.value()) == 0);
        publish(&node, "2");
        assert_eq!(other.answer().status(), "200");
        drop(other);
        node.settle(|node| node.sum(|shard| shard.connections.value()) == 0);
    }
    assert_eq!(node.sum(|shard| shard.late_answers.value()), 0);
}

fn readers_beyond_the_places_are_told_to_come_back(driver: Driver) {
    let options = Options {
        buffered_bytes_max: 1000,
        ..Options::default()
    };
    let (node, _) = node_with(driver, options);
    let mut first = Client::open(&node);
    first.ask_with(POLL, &bearer("costly"));
    let ask = node.asked();
    let mut second = Client::open(&node);
    second.ask_with(POLL, &bearer("costly"));
    let answer = second.answer();
    assert_eq!(
        (answer.status(), answer.header("retry-after")),
        ("503", Some("5"))
    );
    assert_eq!(node.sum(|shard| shard.asks_refused.value()), 1);
    node.grant(ask, AskAnswer::Token(TokenFault::Revoked));
    assert_eq!(first.answer().status(), "401");
}

fn without_a_verdict_a_reader_is_told_to_come_back(driver: Driver) {
    let options = Options {
        ask_timeout: Duration::from_millis(200),
        ..Options::default()
    };
    let (node, _) = node_with(driver, options);
    let mut client = Client::open(&node);
    client.ask_with(POLL, &bearer("costly"));
    let ask = node.asked();
    assert_eq!(client.answer().status(), "503");
    node.grant(ask, AskAnswer::Connect(Box::new(grant("ann", None))));
    node.settle(|node| node.sum(|shard| shard.late_answers.value()) == 1);
    assert_eq!(node.sum(|shard| shard.ask_timeouts.value()), 1);
}

fn a_key_of_the_api_reads_live(driver: Driver) {
    let (node, desk) = node_with(driver, Options::default());
    let mut client = Client::open(&node);
    client.ask_with("", "X-API-Key: all\r\n");
    assert_eq!(client.answer().body, "[1]");
    client.ask_with(POLL, "Authorization: ApiKey all\r\n");
    parked(&node, 1);
    publish(&node, "2");
    assert_eq!(client.answer().body, "[2]");
    for (key, status) in [("some", "403"), ("none", "401")] {
        let mut client = Client::open(&node);
        client.ask_with(EVENTS, &format!("X-API-Key: {key}\r\n"));
        assert_eq!(client.answer().status(), status);
    }
    let asked = desk.keys_asked.lock().expect("no test has failed");
    assert_eq!(*asked, ["s"; 4]);
    // Where the API has an address of its own, its keys count there only.
    let options = Options {
        hands_over: false,
        ..Options::default()
    };
    let (node, _) = node_with(driver, options);
    let mut client = Client::open(&node);
    client.ask_with(POLL, "X-API-Key: all\r\n");
    assert_eq!(client.answer().status(), "401");
}

fn a_held_request_ends_with_its_token(driver: Driver) {
    let node = node(driver);
    let mut client = Client::open(&node);
    client.ask_with(POLL, &bearer("400"));
    assert_eq!(client.answer().status(), "204");
    client.ask_with(POLL, &bearer("0"));
    assert_eq!(client.answer().status(), "401");
}

fn a_stream_of_events_ends_with_its_token(driver: Driver) {
    let node = node(driver);
    let mut client = Client::open(&node);
    client.ask_with(EVENTS, &bearer("600"));
    let head = client.read_until("\"upToDate\":true");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let rest = client.read_to_end();
    // Its last id is where it goes on, with another token.
    assert!(
        rest.contains("\nid:") && rest.ends_with("\r\n0\r\n\r\n"),
        "{rest}"
    );
    assert_eq!(node.closes(CloseReason::Expired), 1);
    let mut again = Client::open(&node);
    again.ask_with(EVENTS, &bearer("0"));
    assert_eq!(again.answer().status(), "401");
}

fn events_of(node: &Node, token: &str) -> Client {
    let mut client = Client::open(node);
    client.ask_with(EVENTS, &bearer(token));
    client.read_until("\"upToDate\":true");
    client
}

fn readers_of_a_user_end_by_order(driver: Driver) {
    let (node, _) = node_with(driver, Options::default());
    let (mut ann, mut bob) = (events_of(&node, "60000"), events_of(&node, "now"));
    let revoked = |id: &str| Deed::EndRevoked(RevokedTokens::Id(id.into()));
    assert_eq!(done(&node.order(whose("ann"), revoked("other"))), (0, 0));
    assert_eq!(done(&node.order(whose("ann"), revoked("ann"))), (1, 0));
    assert!(ann.read_to_end().ends_with("0\r\n\r\n"));
    assert_eq!(node.closes(CloseReason::InvalidToken), 1);
    publish(&node, "2");
    bob.read_until("data:[2]\n");
    let all = || Deed::EndRevoked(RevokedTokens::IssuedBefore(7));
    assert_eq!(done(&node.order(Whose::default(), all())), (0, 0));
    let mut more: Vec<_> = (0..20).map(|_| events_of(&node, "now")).collect();
    assert_eq!(
        done(&node.order(whose("bob"), disconnect(4500, "bye"))),
        (21, 0)
    );
    for client in more.iter_mut().chain([&mut bob]) {
        assert!(client.read_to_end().ends_with("0\r\n\r\n"));
    }
    assert_eq!(node.closes(CloseReason::Application), 21);
}

fn held_requests_of_a_user_end_by_order(driver: Driver) {
    let (node, _) = node_with(driver, Options::default());
    let held = |token: &str| {
        let mut client = Client::open(&node);
        client.ask_with(POLL, &bearer(token));
        client
    };
    let (mut ann, mut bob) = (held("60000"), held("now"));
    let mut nobody = Client::open(&node);
    nobody.ask_with(POLL, "X-API-Key: all\r\n");
    parked(&node, 3);
    let revoked = Deed::EndRevoked(RevokedTokens::Id("ann".into()));
    assert_eq!(done(&node.order(whose("ann"), revoked)), (1, 0));
    assert_eq!(ann.answer().status(), "204");
    assert_eq!(ann.read_to_end(), "");
    // A request that was answered is found no more, and the next one on its connection is.
    publish(&node, "2");
    assert_eq!(bob.answer().body, "[2]");
    assert_eq!(nobody.answer().body, "[2]");
    assert_eq!(
        done(&node.order(whose("bob"), disconnect(4500, "bye"))),
        (0, 0)
    );
    // An answer may arrive before the shard has counted that nobody is parked.
    parked(&node, 0);
    bob.ask_with(POLL, &bearer("now"));
    nobody.ask_with(POLL, "X-API-Key: all\r\n");
    parked(&node, 2);
    // Who has shown no token is nobody's reader, also where everybody is meant.
    assert_eq!(
        done(&node.order(Whose::default(), disconnect(4500, "bye"))),
        (1, 0)
    );
    assert_eq!(bob.answer().status(), "204");
    assert_eq!(bob.read_to_end(), "");
    assert_eq!(node.closes(CloseReason::Application), 1);
    publish(&node, "3");
    assert_eq!(nobody.answer().body, "[3]");
}

/// `unsubscribe` ends a user's live reads of that channel, and without a channel all of them.
fn readers_of_a_user_are_unsubscribed_by_order(driver: Driver) {
    let (node, _) = node_with(driver, Options::default());
    let (mut ann, mut bob) = (events_of(&node, "60000"), events_of(&node, "now"));
    let unsubscribe = |channel: Option<&str>| Deed::Unsubscribe(channel.map(Into::into));
    assert_eq!(
        done(&node.order(whose("ann"), unsubscribe(Some("other")))),
        (0, 0)
    );
    assert_eq!(
        done(&node.order(whose("ann"), unsubscribe(Some("s")))),
        (1, 0)
    );
    assert!(ann.read_to_end().ends_with("0\r\n\r\n"));
    publish(&node, "2");
    bob.read_until("data:[2]\n");
    assert_eq!(done(&node.order(whose("bob"), unsubscribe(None))), (1, 0));
    assert!(bob.read_to_end().ends_with("0\r\n\r\n"));
    assert_eq!(node.closes(CloseReason::Application), 2);
}

fn a_token_revoked_on_the_way_opens_nothing(driver: Driver) {
    for live in [EVENTS, POLL] {
        let (node, desk) = node_with(driver, Options::default());
        let mut client = Client::open(&node);
        client.ask_with(live, &bearer("costly"));
        let ask = node.asked();
        desk.revokes.store(true, Ordering::Relaxed);
        node.grant(ask, AskAnswer::Connect(Box::new(grant("ann", None))));
        assert_eq!(client.answer().status(), "401");
    }
}
