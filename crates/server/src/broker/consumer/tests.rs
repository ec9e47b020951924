//! Against a NATS server that the tests play.

use super::*;
use crate::broker::played::{Peer, Server};
use crate::broker::servers::SILENCE_MAX;
use tokio::join;

/// The server's end of a consumer that begins at place 5.
struct Served {
    peer: Peer,
    /// Where messages are sent.
    inbox: String,
    /// Where it is said that there is a consumer.
    answers: String,
    question: String,
}

async fn open() -> (Consumer, Served) {
    let server = Server::start().await;
    let (connection, mut peer) = join!(server.nats.connect_raw("test"), server.let_in("{}"));
    let consumer = Consumer::open(connection.unwrap(), "my-~", 5);
    let inbox = peer.subscribed().await;
    let answers = peer.subscribed().await;
    let (line, question) = peer.message().await;
    assert!(line.starts_with(&asked_for(&inbox, &answers)), "{line}");
    let served = Served {
        peer,
        inbox,
        answers,
        question,
    };
    (consumer, served)
}

/// How a request for a consumer begins. It has the name of its inbox.
fn asked_for(inbox: &str, answers: &str) -> String {
    let name = inbox.strip_prefix("_INBOX.").expect("an inbox");
    format!("PUB $JS.API.CONSUMER.CREATE.my-~.{name} {answers} ")
}

impl Served {
    /// The answer that there is a consumer.
    async fn made(&mut self) {
        let config = r#"{"deliver_policy":"all","ack_policy":"none","replay_policy":"instant","max_deliver":1}"#;
        let place = r#"{"consumer_seq":0,"stream_seq":0}"#;
        let made = format!(
            r#"{{"stream_name":"my-~","name":"c","created":"2026-11-22T10:00:00Z","config":{config},"delivered":{place},"ack_floor":{place},"num_ack_pending":0,"num_redelivered":0,"num_waiting":0,"num_pending":1}}"#
        );
        self.answer(&made).await;
    }

    /// The client asks for the same consumer again.
    async fn asked_again(&mut self) {
        let (line, question) = self.peer.message().await;
        assert!(line.starts_with(&asked_for(&self.inbox, &self.answers)));
        assert_eq!(question, self.question);
    }

    /// A message of the stream.
    async fn stored(&mut self, sequence: u64, count: u64, payload: &str) {
        let reply = format!("$JS.ACK.my-~.c.1.{sequence}.{count}.1000000007.0");
        let bytes = payload.len();
        let message = format!("MSG my.h.~.a 1 {reply} {bytes}\r\n{payload}\r\n");
        self.peer.say(&message).await;
    }

    /// A message of the stream with headers.
    async fn stored_with(&mut self, sequence: u64, count: u64, block: &str) {
        let reply = format!("$JS.ACK._.hash.my-~.c.1.{sequence}.{count}.1000000007.0.random");
        let bytes = block.len();
        let message = format!(
            "HMSG my.h.~.a 1 {reply} {bytes} {}\r\n{block}1\r\n",
            bytes + 1
        );
        self.peer.say(&message).await;
    }

    /// A message about the consumer.
    async fn status(&mut self, reply: &str, block: &str) {
        let (inbox, bytes) = (&self.inbox, block.len());
        let message = format!("HMSG {inbox} 1 {reply}{bytes} {bytes}\r\n{block}\r\n");
        self.peer.say(&message).await;
    }

    /// The consumer says how many messages it has sent.
    async fn heartbeat(&mut self, count: u64) {
        let block = format!("NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: {count}\r\n\r\n");
        self.status("", &block).await;
    }

    async fn answer(&mut self, payload: &str) {
        let (answers, bytes) = (&self.answers, payload.len());
        let message = format!("MSG {answers} 2 {bytes}\r\n{payload}\r\n");
        self.peer.say(&message).await;
    }
}

async fn next(consumer: &mut Consumer) -> Result<Stored, FeedError> {
    let feed: &mut dyn Feed = consumer;
    feed.next().await
}

async fn failure(consumer: &mut Consumer) -> String {
    next(consumer).await.unwrap_err().to_string()
}

#[tokio::test]
async fn a_consumer_is_asked_for_that_begins_at_a_place() {
    let (_consumer, served) = open().await;
    let question: serde_json::Value = serde_json::from_str(&served.question).unwrap();
    assert_eq!(question["stream_name"], "my-~");
    let config = &question["config"];
    assert_eq!(config["deliver_subject"], *served.inbox);
    assert_eq!(config["opt_start_seq"], 5);
    assert_eq!(config["ack_policy"], "none");
    assert_eq!(config["flow_control"], true);
    assert_eq!(config["idle_heartbeat"], 5_000_000_000_u64);
}

#[tokio::test]
async fn messages_come_in_their_order_whatever_their_headers_are() {
    let (mut consumer, mut served) = open().await;
    served.stored(5, 1, "1").await;
    served
        .stored_with(7, 2, "NATS/1.0\r\nA: \u{3000}b\r\n\r\n")
        .await;
    served.stored_with(8, 3, "NATS/1.0 503\r\n\r\n").await;
    let first = next(&mut consumer).await.unwrap();
    assert_eq!((first.sequence, first.stored_ns), (5, 1_000_000_007));
    assert_eq!((&*first.subject, &*first.payload), ("my.h.~.a", &b"1"[..]));
    assert!(first.headers.is_none() && !first.is_spoiled);
    let second = next(&mut consumer).await.unwrap();
    assert_eq!(
        (second.sequence, second.header("A")),
        (7, Some("\u{3000}b"))
    );
    let third = next(&mut consumer).await.unwrap();
    assert!(third.sequence == 8 && third.is_spoiled);
}

#[tokio::test]
async fn a_message_that_is_lost_on_its_way_ends_it() {
    let (mut consumer, mut served) = open().await;
    served.stored(5, 1, "1").await;
    served.stored(7, 3, "1").await;
    assert_eq!(next(&mut consumer).await.unwrap().sequence, 5);
    assert_eq!(
        failure(&mut consumer).await,
        "messages were lost on their way"
    );

    let (mut consumer, mut served) = open().await;
    served.stored(5, 1, "1").await;
    served.heartbeat(1).await;
    served.heartbeat(2).await;
    assert_eq!(next(&mut consumer).await.unwrap().sequence, 5);
    assert_eq!(
        failure(&mut consumer).await,
        "messages were lost on their way"
    );
}

#[tokio::test]
async fn a_stream_that_goes_back_ends_it() {
    let (mut consumer, mut served) = open().await;
    served.stored(5, 1, "1").await;
    served.stored(5, 2, "1").await;
    assert_eq!(next(&mut consumer).await.unwrap().sequence, 5);
    let why = failure(&mut consumer).await;
    assert_eq!(why, "the stream goes back to what has been read");
}

#[tokio::test]
async fn the_server_is_told_what_was_read_when_it_was() {
    let (mut consumer, mut served) = open().await;
    served.stored(5, 1, "1").await;
    served
        .status(
            "$JS.FC.my-~.c.1 ",
            "NATS/1.0 100 FlowControl Request\r\n\r\n",
        )
        .await;
    served.stored(6, 2, "1").await;
    let stalled = "NATS/1.0 100 Idle Heartbeat\r\nNats-Consumer-Stalled: $JS.FC.my-~.c.2\r\n\r\n";
    served.status("", stalled).await;
    served.stored(7, 3, "1").await;
    // The pump has read everything and answers the ping; flow control waits for the owner.
    served.peer.say("PING\r\n").await;
    assert_eq!(served.peer.line().await, "PONG");
    for (sequence, told) in [
        (5, None),
        (6, Some("PUB $JS.FC.my-~.c.1 0")),
        (7, Some("PUB $JS.FC.my-~.c.2 0")),
    ] {
        assert_eq!(next(&mut consumer).await.unwrap().sequence, sequence);
        if let Some(told) = told {
            assert_eq!(served.peer.line().await, told);
            assert_eq!(served.peer.line().await, "");
        }
    }
    assert_eq!(consumer.waiting_bytes.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn what_came_before_the_connection_was_lost_is_given_out() {
    let (mut consumer, mut served) = open().await;
    served.stored(5, 1, "1").await;
    served.stored(6, 2, "1").await;
    drop(served);
    for sequence in [5, 6] {
        assert_eq!(next(&mut consumer).await.unwrap().sequence, sequence);
    }
    let why = failure(&mut consumer).await;
    assert!(why.starts_with("the consumer ended: "), "{why}");
}

#[tokio::test]
async fn a_consumer_that_is_not_made_says_why() {
    for (payload, says) in [
        (
            r#"{"error":{"code":404,"err_code":10059,"description":"stream not found"}}"#,
            "stream not found",
        ),
        ("?", "expected value"),
    ] {
        let (mut consumer, mut served) = open().await;
        served.answer(payload).await;
        let why = failure(&mut consumer).await;
        assert!(
            why.starts_with("it cannot be followed: ") && why.contains(says),
            "{why}"
        );
    }
    let (mut consumer, mut served) = open().await;
    let (answers, nobody) = (&served.answers, "NATS/1.0 503\r\n\r\n");
    let bytes = nobody.len();
    let message = format!("HMSG {answers} 2 {bytes} {bytes}\r\n{nobody}\r\n");
    served.peer.say(&message).await;
    let why = failure(&mut consumer).await;
    assert_eq!(why, "it cannot be followed: status 503");
}

#[tokio::test]
async fn a_consumer_that_is_made_begins() {
    let (mut consumer, mut served) = open().await;
    // What comes before the answer is not lost.
    served.stored(5, 1, "1").await;
    served.made().await;
    served.stored(6, 2, "1").await;
    consumer.created().await.unwrap();
    for sequence in [5, 6] {
        assert_eq!(next(&mut consumer).await.unwrap().sequence, sequence);
    }
    assert_eq!(consumer.waiting_bytes.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_request_for_a_consumer_that_nobody_answers_is_repeated() {
    let (mut consumer, mut served) = open().await;
    let asked = async {
        // Nobody answers the first, and the second is answered by a server without a leader.
        served.asked_again().await;
        let later = r#"{"error":{"code":503,"err_code":10008,"description":"JetStream system temporarily unavailable"}}"#;
        served.answer(later).await;
        served.asked_again().await;
        let nobody = format!(
            "HMSG {} 2 16 16\r\nNATS/1.0 503\r\n\r\n\r\n",
            served.answers
        );
        served.peer.say(&nobody).await;
        served.asked_again().await;
        served.made().await;
        served.stored(5, 1, "1").await;
    };
    let (created, ()) = join!(consumer.created(), asked);
    created.unwrap();
    // The same consumer, so that an answer to an earlier request is none to another one.
    served.made().await;
    assert_eq!(next(&mut consumer).await.unwrap().sequence, 5);
}

#[tokio::test]
async fn a_consumer_that_no_server_will_make_is_not_asked_for_again() {
    let (mut consumer, mut served) = open().await;
    served
        .answer(r#"{"error":{"code":404,"err_code":10059,"description":"stream not found"}}"#)
        .await;
    let why = consumer.created().await.unwrap_err().to_string();
    assert!(why.contains("stream not found"), "{why}");
}

#[tokio::test]
async fn a_consumer_that_the_server_ends_says_why() {
    let (mut consumer, mut served) = open().await;
    let deleted = "NATS/1.0 409 Consumer Deleted\r\n\r\n";
    served.status("", deleted).await;
    let why = failure(&mut consumer).await;
    assert_eq!(why, "the consumer ended: NATS/1.0 409 Consumer Deleted");

    let (mut consumer, mut served) = open().await;
    let message = "MSG my.h.~.a 1 $JS.ACK.nonsense 1\r\n1\r\n";
    served.peer.say(message).await;
    let why = failure(&mut consumer).await;
    assert!(
        why.ends_with("says \"$JS.ACK.nonsense\" of its place"),
        "{why}"
    );
}

#[tokio::test]
async fn more_messages_than_one_batch_come_in_their_order() {
    let (mut consumer, mut served) = open().await;
    let count = 3 * BATCH_MAX as u64;
    let serve = async {
        for number in 1..=count {
            served.stored(4 + number, number, "1").await;
        }
    };
    let take = async {
        for number in 1..=count {
            assert_eq!(next(&mut consumer).await.unwrap().sequence, 4 + number);
        }
    };
    join!(serve, take);
    assert_eq!(consumer.waiting_bytes.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn nobody_else_makes_this_node_publish() {
    let (mut consumer, mut served) = open().await;
    let question = "NATS/1.0 100 FlowControl Request\r\n\r\n";
    for reply in ["my.h.~.~beat ", "a\u{1}b "] {
        served.status(reply, question).await;
    }
    for stalled in ["", "a b", "$JS.FC.a b", "my.h.~.~beat"] {
        let name = "Nats-Consumer-Stalled";
        let block = format!("NATS/1.0 100 Idle Heartbeat\r\n{name}: {stalled}\r\n\r\n");
        served.status("", &block).await;
    }
    served.stored(5, 1, "1").await;
    assert_eq!(next(&mut consumer).await.unwrap().sequence, 5);
    served.peer.say("PING\r\n").await;
    assert_eq!(served.peer.line().await, "PONG", "nothing else was sent");
}

#[tokio::test]
async fn the_connection_ends_with_the_consumer() {
    let (consumer, mut served) = open().await;
    drop(consumer);
    assert_eq!(served.peer.line().await, "", "nothing more");
}

#[test]
fn places_are_read_in_both_forms() {
    let delivery = Delivery {
        sequence: 12,
        count: 3,
        stored_ns: 99,
    };
    for words in [
        "stream.consumer.1.12.3.99.0",
        "_.hash.stream.consumer.1.12.3.99.0",
        "hub.hash.stream.consumer.1.12.3.99.0.random.more",
    ] {
        assert_eq!(Delivery::parse(words).as_ref(), Some(&delivery), "{words}");
    }
    for words in ["", "a.b.1.12.3.99", "a.b.1.x.3.99.0", "a.b.1.12.3.99.0.8"] {
        assert_eq!(Delivery::parse(words), None, "{words}");
    }
}

#[tokio::test]
async fn it_is_silent_when_neither_messages_nor_heartbeats_come() {
    let (mut consumer, mut served) = open().await;
    served.stored(5, 1, "1").await;
    next(&mut consumer).await.unwrap();
    tokio::time::pause();
    let is_silent = |consumer: &mut Consumer| {
        let feed: &mut dyn Feed = consumer;
        feed.is_silent()
    };
    let silent_at = consumer.heard() + SILENCE_MAX;
    tokio::time::advance(silent_at - Instant::now()).await;
    assert!(!is_silent(&mut consumer));
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(is_silent(&mut consumer));
    // What has come by now was no silence.
    served.heartbeat(1).await;
    served.stored(6, 2, "2").await;
    assert_eq!(next(&mut consumer).await.unwrap().sequence, 6);
    assert!(!is_silent(&mut consumer));
}
