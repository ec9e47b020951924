//! Against a NATS server that the tests play.

use super::*;
use crate::broker::played::{Peer, Server};
use bytes::Bytes;
use myriad_nats::Sid;
use tokio::join;

const STREAM: &str = "my-~";

/// A storer, and the server's end of its connection.
async fn connect(server: &Server) -> (Storer, Peer) {
    let connecting = Storer::connect(&server.nats, "test".to_owned());
    let (storer, mut peer) = join!(connecting, server.let_in("{}"));
    peer.subscribed().await;
    (storer.unwrap(), peer)
}

/// The next message: its reply subject, and its headers and payload.
async fn published(peer: &mut Peer) -> (String, String) {
    let (line, body) = peer.message().await;
    let words: Vec<&str> = line.split(' ').collect();
    let ["HPUB", "my.h.~.a", reply, ..] = words[..] else {
        panic!("{line}");
    };
    (reply.to_owned(), body)
}

async fn answer_to(peer: &mut Peer, reply: &str, payload: &str) {
    let bytes = payload.len();
    peer.say(&format!("MSG {reply} 1 {bytes}\r\n{payload}\r\n"))
        .await;
}

fn message(payload: &'static str) -> ToStore {
    ToStore {
        subject: "my.h.~.a".to_owned(),
        headers: vec![("Myriad-Format", "json".to_owned())],
        payload: Bytes::from_static(payload.as_bytes()),
        id: Some("7".to_owned()),
        behind: Some(5),
    }
}

async fn store(storer: &Storer, payload: &'static str) -> Result<Ack, NotStored> {
    storer.store(STREAM.to_owned(), message(payload)).await
}

fn place(sequence: u64) -> String {
    format!(r#"{{"stream":"{STREAM}","seq":{sequence}}}"#)
}

/// A message is stored, and its place told.
async fn stores(storer: &Storer, peer: &mut Peer) {
    let serve = async {
        let (reply, _) = published(peer).await;
        answer_to(peer, &reply, &place(8)).await;
    };
    let (stored, ()) = join!(store(storer, "1"), serve);
    assert_eq!(stored.unwrap().sequence, 8);
}

#[tokio::test]
async fn each_is_told_where_its_message_stands() {
    let (storer, mut peer) = connect(&Server::start().await).await;
    let serve = async {
        let (first, body) = published(&mut peer).await;
        let expected = "NATS/1.0\r\nMyriad-Format: json\r\nNats-Expected-Stream: my-~\r\nNats-Msg-Id: 7\r\n\
             Nats-Expected-Last-Subject-Sequence: 5\r\n\r\n1\r\n";
        assert_eq!(body, expected);
        let (second, _) = published(&mut peer).await;
        answer_to(&mut peer, &second, &place(9)).await;
        answer_to(&mut peer, &first, &place(8)).await;
    };
    let (first, second, ()) = join!(store(&storer, "1"), store(&storer, "2"), serve);
    let places = [first, second].map(|ack| ack.unwrap().sequence);
    assert_eq!(places, [8, 9]);
}

#[tokio::test]
async fn who_waits_on_a_connection_that_is_lost_is_told_and_it_is_made_again() {
    let server = Server::start().await;
    let (storer, mut peer) = connect(&server).await;
    let lose = async {
        published(&mut peer).await;
        drop(peer);
    };
    let (stored, ()) = join!(store(&storer, "1"), lose);
    assert!(matches!(stored, Err(NotStored::Unknown(_))));
    let mut peer = server.let_in("{}").await;
    peer.subscribed().await;
    stores(&storer, &mut peer).await;
    assert!(storer.is_connected());
}

#[tokio::test]
async fn another_server_is_found_where_the_first_one_named_it() {
    let (first, second) = (Server::start().await, Server::start().await);
    let other = second.listener.local_addr().unwrap();
    let info = format!(r#"{{"connect_urls":["{other}"]}}"#);
    let connecting = Storer::connect(&first.nats, "test".to_owned());
    let (storer, peer) = join!(connecting, first.let_in(&info));
    drop((peer, first));
    let storer = storer.unwrap();
    let mut peer = second.let_in("{}").await;
    peer.subscribed().await;
    stores(&storer, &mut peer).await;
}

#[tokio::test]
async fn what_a_server_forbids_costs_nobody_else_an_acknowledgement() {
    let (storer, mut peer) = connect(&Server::start().await).await;
    let serve = async {
        let (reply, _) = published(&mut peer).await;
        peer.say("-ERR 'Permissions Violation for Publish to \"b\"'\r\n")
            .await;
        answer_to(&mut peer, &reply, &place(8)).await;
    };
    let (stored, ()) = join!(store(&storer, "1"), serve);
    assert_eq!(stored.unwrap().sequence, 8);
}

#[tokio::test]
async fn a_message_that_is_too_large_is_refused_and_costs_nothing() {
    let server = Server::start().await;
    let connecting = Storer::connect(&server.nats, "test".to_owned());
    let (storer, mut peer) = join!(connecting, server.let_in(r#"{"max_payload":200}"#));
    let storer = storer.unwrap();
    peer.subscribed().await;
    let large: &str = "x".repeat(100).leak();
    let refused = store(&storer, large).await;
    assert!(matches!(&refused, Err(NotStored::Refused(why)) if why.contains("200 (max_payload)")));
    stores(&storer, &mut peer).await;
}

#[tokio::test]
async fn who_gives_up_while_a_server_does_not_read_leaves_nothing_behind() {
    let (storer, mut peer) = connect(&Server::start().await).await;
    // The server reads nothing. More is asked for than the sockets' buffers take.
    let large: &str = "x".repeat(1 << 20).leak();
    let many = (0..64).map(|_| store(&storer, large));
    let all = futures_util::future::join_all(many);
    assert!(timeout(Duration::from_millis(200), all).await.is_err());
    let serve = async {
        let mut written = 0;
        loop {
            let (reply, body) = published(&mut peer).await;
            if body.ends_with("\r\n1\r\n") {
                answer_to(&mut peer, &reply, &place(8)).await;
                return written;
            }
            written += 1;
        }
    };
    let (stored, written) = join!(store(&storer, "1"), serve);
    assert_eq!(stored.unwrap().sequence, 8);
    // Those that had left, and one that passed the bound.
    assert!(written < 32, "{written}");
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_ever() {
    let (requests, _received) = channel(1);
    let storer = Storer {
        requests,
        is_connected: Arc::default(),
    };
    let waited = store(&storer, "1").await;
    assert!(matches!(waited, Err(NotStored::Unknown(why)) if why.contains("5 s")));
}

fn answer(headers: Option<&'static str>, payload: &str) -> RawMessage {
    RawMessage {
        subject: "_INBOX.a.7".into(),
        sid: Sid(1),
        reply: None,
        headers: headers.map(|headers| Bytes::from_static(headers.as_bytes())),
        payload: payload.to_owned().into(),
    }
}

fn said(payload: &str) -> Result<Ack, NotStored> {
    acknowledgement(&answer(None, payload), STREAM)
}

#[test]
fn an_acknowledgement_is_of_its_stream_and_has_a_place() {
    for (payload, sequence, is_new) in [
        (r#"{"stream":"my-~","seq":7}"#, 7, true),
        (
            r#"{"stream":"my-~","domain":"d","seq":8,"duplicate":true}"#,
            8,
            false,
        ),
    ] {
        let ack = said(payload).expect("it is stored");
        assert_eq!((ack.sequence, ack.is_new), (sequence, is_new));
    }
    for none in [
        "{}",
        r#"{"stream":"my-~"}"#,
        r#"{"stream":"my-~","seq":0}"#,
        r#"{"stream":"other","seq":7}"#,
        "",
        "{",
    ] {
        assert!(matches!(said(none), Err(NotStored::Unknown(_))), "{none}");
    }
}

#[test]
fn it_is_told_why_a_message_is_not_stored() {
    let error = |code: u16, err_code: u64| {
        let text =
            // As nats-server 2.15 writes it: an error has a place, which is none.
            format!(r#"{{"error":{{"code":{code},"err_code":{err_code},"description":"why"}},"stream":"{STREAM}","seq":0}}"#);
        said(&text).expect_err("it is not stored")
    };
    for code in OVERTAKEN {
        assert!(matches!(error(400, code), NotStored::Overtaken), "{code}");
    }
    let refused = error(400, 10054);
    assert!(matches!(&refused, NotStored::Refused(why) if why == "why (400, 10054)"));
    for (code, err_code) in [(409, IN_PROCESS), (503, 10077)] {
        let error = error(code, err_code);
        assert!(matches!(error, NotStored::Unknown(_)), "{error}");
    }
    let none = acknowledgement(&answer(Some("NATS/1.0 503\r\n\r\n"), ""), STREAM);
    assert!(matches!(none, Err(NotStored::Unknown(why)) if why.contains("503")));
}

#[tokio::test(start_paused = true)]
async fn a_server_is_left_that_answers_nothing_for_long() {
    let second = Duration::from_secs(1);
    let mut unanswered = Unanswered::default();
    unanswered.note_failed(2);
    assert!(!unanswered.is_over(), "nothing was sent");
    let mut unanswered = Unanswered::default();
    unanswered.note_sent();
    unanswered.note_failed(1);
    tokio::time::advance(UNANSWERED_MAX).await;
    assert!(!unanswered.is_over(), "one message may be lost");
    unanswered.note_sent();
    unanswered.note_failed(1);
    assert!(unanswered.is_over());
    let mut unanswered = Unanswered::default();
    unanswered.note_sent();
    unanswered.note_failed(9);
    tokio::time::advance(UNANSWERED_MAX - second).await;
    assert!(!unanswered.is_over(), "an election may take so long");
}

#[tokio::test]
async fn a_server_that_stores_nothing_is_left_for_another_one() {
    let servers = [Server::start().await, Server::start().await];
    let nats = Nats::at(format!("{},{}", servers[0].nats.url, servers[1].nats.url));
    // The first one is the only one that is there at first.
    nats.avoided.add("B");
    let serve = async {
        let mut first = servers[0].let_in(r#"{"server_id":"A"}"#).await;
        first.subscribed().await;
        first
    };
    let other = async {
        servers[1].let_in(r#"{"server_id":"B"}"#).await;
        std::future::pending::<()>().await;
    };
    let (storer, mut first) = tokio::select! {
        both = async { join!(Storer::connect(&nats, "test".to_owned()), serve) } => both,
        () = other => unreachable!("it serves for ever"),
    };
    let storer = storer.unwrap();
    let refuse = async {
        // As a server says that has lost the others.
        loop {
            let Some(line) = first.line_or_end().await else {
                // The storer has left.
                return std::future::pending().await;
            };
            let Some(rest) = line.strip_prefix("HPUB my.h.~.a ") else {
                continue;
            };
            let reply = rest.split(' ').next().unwrap();
            let nobody = "NATS/1.0 503\r\n\r\n";
            let bytes = nobody.len();
            first
                .say(&format!("HMSG {reply} 1 {bytes} {bytes}\r\n{nobody}\r\n"))
                .await;
        }
    };
    let left = async {
        while !nats.avoided.has("A") {
            let refused = store(&storer, "1").await;
            assert!(matches!(refused, Err(NotStored::Unknown(_))));
            assert!(
                storer.is_connected(),
                "publications wait, and are not refused"
            );
            sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        () = left => {}
        () = refuse => unreachable!("it waits for ever"),
    }
}
