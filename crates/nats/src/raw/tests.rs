//! Against a server that the tests play.

use super::link::Socket;
use super::*;
use crate::{Nats, NatsError};
use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use serde_json::{Value, json};
use std::future::pending;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, duplex};
use tokio::net::TcpListener;
use tokio::time::{Instant, pause};
use tokio::{join, select};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// A server that waits for a client.
struct Server {
    listener: TcpListener,
    /// Its address.
    nats: Nats,
}

/// The server's end of a connection.
struct Peer(BufReader<Box<dyn Socket>>);

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let nats = Nats::at(format!("nats://{address}"));
        Self { listener, nats }
    }

    /// Introduces itself to a client.
    async fn greet(&self, info: &str) -> Peer {
        let (stream, _) = self.listener.accept().await.unwrap();
        let mut peer = Peer(BufReader::new(Box::new(stream)));
        peer.say(format!("INFO {info}\r\n")).await;
        peer
    }

    /// Both ends of a connection, and what the client said about itself.
    async fn connect(&self) -> (Peer, RawConnection, Value) {
        let let_in = async {
            let mut peer = self.greet("{}").await;
            let said = peer.let_in().await;
            (peer, said)
        };
        let ((peer, said), connection) = join!(let_in, self.nats.connect_raw("test"));
        (peer, connection.unwrap(), said)
    }

    /// What a client makes of an introduction.
    async fn connect_to(&self, info: &str) -> String {
        let (_peer, refused) = join!(self.greet(info), self.nats.connect_raw("test"));
        refused.unwrap_err().to_string()
    }
}

impl Peer {
    async fn say(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
        self.0.flush().await.unwrap();
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).await.unwrap();
        line
    }

    /// Lets the client in, and returns what it says about itself.
    async fn let_in(&mut self) -> Value {
        let said = self.line().await;
        assert_eq!(self.line().await, "PING\r\n");
        self.say("PONG\r\n").await;
        serde_json::from_str(said.strip_prefix("CONNECT ").unwrap()).unwrap()
    }
}

/// Both ends of a connection without a network, so that the clock can be virtual.
fn connected() -> (Peer, RawConnection) {
    let (near, far) = duplex(1 << 16);
    let connection = RawConnection::over(Link::over(Box::new(near)));
    (Peer(BufReader::new(Box::new(far))), connection)
}

#[tokio::test]
async fn messages_come_and_lines_go() {
    let (mut peer, mut connection, _) = Server::start().await.connect().await;
    assert_eq!(connection.subscribe("my.r.a"), Sid(1));
    assert_eq!(connection.subscribe("my.r.b"), Sid(2));
    connection.unsubscribe(Sid(1));
    connection.publish("a", Some("b"), b"hi");
    connection.publish("a", None, b"");
    let block = "NATS/1.0\r\nNats-Subject: my.h.\u{3000}b\u{a0}\r\n\r\n";
    let (headers, bytes) = (block.len(), block.len() + 2);
    let message = format!("HMSG my.r.\u{3000}b\u{a0} 2 {headers} {bytes}\r\n{block}hi\r\n");
    peer.say("PING\r\n").await;
    peer.say(message).await;
    let message = connection.next().await.unwrap();
    assert_eq!(message.subject.as_str(), "my.r.\u{3000}b\u{a0}");
    assert_eq!((message.sid, &*message.payload), (Sid(2), &b"hi"[..]));
    let headers = Headers::parse(&message.headers.unwrap()).unwrap();
    let stored = headers.get("Nats-Subject").unwrap();
    assert_eq!(stored, "my.h.\u{3000}b\u{a0}");
    for line in [
        "SUB my.r.a 1",
        "SUB my.r.b 2",
        "UNSUB 1",
        "PUB a b 2",
        "hi",
        "PUB a 0",
        "",
        "PONG",
    ] {
        assert_eq!(peer.line().await, format!("{line}\r\n"));
    }
}

#[tokio::test]
async fn a_message_has_headers_and_as_many_bytes_as_the_server_takes() {
    let (mut peer, mut connection) = connected();
    let headers = [("A", "1"), ("B", "\u{3000}2")];
    let publish =
        |connection: &mut RawConnection| connection.publish_with_headers("a", "b", headers, b"hi");
    assert_eq!(publish(&mut connection), Ok(()));
    let bare = connection.publish_with_headers("a", "b", [], b"");
    assert_eq!(bare, Ok(()));
    peer.say("INFO {\"max_payload\": 28}\r\nMSG a 1 0\r\n\r\n")
        .await;
    connection.next().await.unwrap();
    let too_large = TooLarge {
        bytes: 29,
        bytes_max: 28,
    };
    assert_eq!(publish(&mut connection), Err(too_large));
    assert_eq!(connection.waiting_bytes(), 0);
    for line in [
        "HPUB a b 27 29",
        "NATS/1.0",
        "A: 1",
        "B: \u{3000}2",
        "",
        "hi",
        "HPUB a b 12 12",
        "NATS/1.0",
        "",
        "",
    ] {
        assert_eq!(peer.line().await, format!("{line}\r\n"));
    }
}

#[tokio::test]
async fn what_we_may_not_publish_is_told_and_ends_nothing() {
    let (mut peer, mut connection) = connected();
    connection.stay_when_forbidden();
    assert!(connection.take_forbidden().is_none());
    let forbidden = "-ERR 'Permissions Violation for Publish to \"a\"'\r\n";
    peer.say(format!("{forbidden}MSG a 1 0\r\n\r\n")).await;
    connection.next().await.unwrap();
    let said = connection.take_forbidden().unwrap().to_string();
    assert!(said.contains("to \"a\"; permit it"), "{said}");
    assert!(connection.take_forbidden().is_none());
    // Who has not asked for that is told by the end of the connection.
    let (mut peer, mut connection) = connected();
    peer.say(forbidden).await;
    assert!(matches!(connection.next().await, Err(RawError::Server(_))));
}

#[tokio::test]
async fn an_error_of_the_server_ends_the_connection() {
    let (mut peer, mut connection, _) = Server::start().await.connect().await;
    peer.say("MSG a 1 2\r\nhi\r\n-ERR 'Permissions Violation for Subscription to \"my.r.b\"'\r\n")
        .await;
    assert!(connection.next().await.is_ok());
    let error = connection.next().await.unwrap_err();
    assert_eq!(error.forbidden_subject(), Some("my.r.b"));
    assert!(error.to_string().contains("my.r.b"), "{error}");
    let again = connection.next().await.unwrap_err();
    assert!(matches!(again, RawError::Ended), "{again}");
}

#[tokio::test]
async fn a_server_that_leaves_ends_the_connection() {
    let (peer, mut connection, _) = Server::start().await.connect().await;
    drop(peer);
    let error = connection.next().await.unwrap_err();
    assert!(matches!(error, RawError::Ended), "{error}");
}

#[tokio::test]
async fn nonsense_ends_the_connection() {
    let (mut peer, mut connection) = connected();
    peer.say("MSG a 1\r\n").await;
    let error = connection.next().await.unwrap_err();
    let is_named = matches!(error, RawError::Protocol(ProtocolError::Words));
    assert!(is_named, "{error}");
    assert_eq!(error.forbidden_subject(), None);
}

#[tokio::test]
async fn a_client_says_who_it_is_and_hides_its_password() {
    let mut server = Server::start().await;
    let address = server.nats.url.replace("nats://", "");
    server.nats = Nats::at(format!("nats://ann:secret@{address}"));
    let (_peer, connection, said) = server.connect().await;
    assert_eq!(said["name"], "test");
    assert_eq!(said["user"], "ann");
    assert_eq!(said["pass"], "secret");
    assert_eq!(said["headers"], json!(true));
    assert!(!format!("{connection:?}").contains("secret"));
}

#[tokio::test]
async fn who_is_not_let_in_is_told_so() {
    let server = Server::start().await;
    let refuse = async {
        let mut peer = server.greet("{}").await;
        peer.line().await;
        peer.say("-ERR 'Authorization Violation'\r\n").await;
    };
    let ((), refused) = join!(refuse, server.nats.connect_raw("test"));
    let is_refused = matches!(refused, Err(NatsError::Refused { .. }));
    assert!(is_refused, "{refused:?}");
}

#[tokio::test]
async fn a_server_that_is_gone_is_passed_over() {
    let gone = Server::start().await.nats.url;
    let mut server = Server::start().await;
    server.nats = Nats::at(format!("{gone},{}", server.nats.url));
    for _ in 0..10 {
        server.connect().await;
    }
    let refused = Nats::at(&gone).connect_raw("test").await.unwrap_err();
    let is_named = matches!(&refused, NatsError::Connect { why, .. } if why.contains(&gone[7..]));
    assert!(is_named, "{refused}");
}

#[tokio::test]
async fn what_is_no_nats_server_is_named() {
    let server = Server::start().await;
    let said = server.connect_to("hello").await;
    assert!(said.contains("does not introduce itself"), "{said}");
    let said = server.connect_to("{}\r\nHTTP/1.1 400 Bad Request").await;
    assert!(said.contains("HTTP/1.1"), "{said}");
}

#[tokio::test]
async fn many_subscriptions_leave_while_messages_come() {
    const SUBSCRIPTIONS: u64 = 100_000;
    const MESSAGES: u32 = 100_000;
    let subject = format!("my.r.default.{}", "channel".repeat(20));
    let (mut peer, mut connection, _) = Server::start().await.connect().await;
    for _ in 0..SUBSCRIPTIONS {
        connection.subscribe(&subject);
    }
    // It does not read before it has written everything. Both ways have more than the buffers of both sockets hold.
    let serve = async move {
        let message = format!("MSG a 1 200\r\n{}\r\n", "x".repeat(200));
        peer.say(message.repeat(MESSAGES as usize)).await;
        for sid in 1..=SUBSCRIPTIONS {
            let line = peer.line().await;
            assert!(line.ends_with(&format!(" {sid}\r\n")), "{line}");
        }
    };
    let hear = async {
        let mut heard = 0;
        loop {
            match connection.next().await {
                Ok(_) => heard += 1,
                Err(error) => return (heard, error),
            }
        }
    };
    let ((), (heard, error)) = join!(serve, hear);
    assert_eq!(heard, MESSAGES);
    assert!(matches!(error, RawError::Ended), "{error}");
}

#[tokio::test]
async fn a_future_that_is_dropped_loses_nothing() {
    let (mut peer, mut connection) = connected();
    connection.subscribe("a");
    for piece in ["MS", "G a 1 5\r\nhe", "llo\r"] {
        peer.say(piece).await;
        let is_pending = poll_fn(|context| {
            let next = std::pin::pin!(connection.next());
            Poll::Ready(next.poll(context).is_pending())
        });
        assert!(is_pending.await);
    }
    peer.say("\n").await;
    assert_eq!(&*connection.next().await.unwrap().payload, b"hello");
    assert_eq!(peer.line().await, "SUB a 1\r\n");
}

#[tokio::test]
async fn a_silent_server_is_asked_and_given_up() {
    let (mut peer, mut connection, _) = Server::start().await.connect().await;
    pause();
    let start = Instant::now();
    let error = connection.next().await.unwrap_err();
    assert!(matches!(error, RawError::Silent), "{error}");
    let waited = start.elapsed();
    assert!(waited <= Duration::from_secs(12), "{waited:?}");
    assert_eq!(peer.line().await, "PING\r\n");
    assert_eq!(peer.line().await, "PING\r\n");
    drop(connection);
    assert_eq!(peer.line().await, "");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_is_not_given_up() {
    let (mut peer, mut connection) = connected();
    let answer = async {
        for _ in 0..20 {
            assert_eq!(peer.line().await, "PING\r\n");
            peer.say("PONG\r\n").await;
        }
    };
    let start = Instant::now();
    select! {
        () = answer => {}
        ended = connection.next() => panic!("{ended:?}"),
    }
    assert_eq!(start.elapsed(), Duration::from_secs(100));
}

/// A certificate for 127.0.0.1, and the file of the authority that signed it.
struct Certificate {
    made: CertifiedKey<KeyPair>,
    file: PathBuf,
}

impl Certificate {
    fn make(name: &str) -> Self {
        let made = generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let name = format!("myriad-nats-raw-{}-{name}.pem", std::process::id());
        let file = std::env::temp_dir().join(name);
        std::fs::write(&file, made.cert.pem()).unwrap();
        Self { made, file }
    }

    fn acceptor(&self) -> TlsAcceptor {
        let key = PrivateKeyDer::Pkcs8(self.made.signing_key.serialize_der().into());
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![self.made.cert.der().clone()], key);
        TlsAcceptor::from(Arc::new(config.unwrap()))
    }
}

impl Drop for Certificate {
    fn drop(&mut self) {
        // The folder is the machine's for such files: one that stays is no harm.
        let _ = std::fs::remove_file(&self.file);
    }
}

#[tokio::test]
async fn a_server_with_tls() {
    let (certificate, mut server) = (Certificate::make("tls"), Server::start().await);
    server.nats.ca = Some(certificate.file.clone());
    let let_in = async {
        let peer = server.greet(r#"{"tls_required": true}"#).await;
        let stream = certificate.acceptor().accept(peer.0.into_inner()).await;
        let mut peer = Peer(BufReader::new(Box::new(stream.unwrap())));
        let said = peer.let_in().await;
        assert_eq!(said["tls_required"], json!(true));
        peer
    };
    let (mut peer, connection) = join!(let_in, server.nats.connect_raw("test"));
    let mut connection = connection.unwrap();
    connection.subscribe("a");
    peer.say("MSG a 1 2\r\nhi\r\n").await;
    assert_eq!(&*connection.next().await.unwrap().payload, b"hi");
    assert_eq!(peer.line().await, "SUB a 1\r\n");
}

#[tokio::test]
async fn a_server_of_an_unknown_authority_is_not_trusted() {
    let (ours, theirs) = (Certificate::make("ours"), Certificate::make("theirs"));
    let mut server = Server::start().await;
    server.nats.ca = Some(ours.file.clone());
    let accept = async {
        let peer = server.greet(r#"{"tls_available": true}"#).await;
        let stream = theirs.acceptor().accept(peer.0.into_inner()).await;
        assert!(stream.is_err());
    };
    let ((), refused) = join!(accept, server.nats.connect_raw("test"));
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("no TLS: "), "{refused}");
}

#[tokio::test]
async fn tls_is_neither_left_out_nor_mixed_with_plain_text() {
    let certificate = Certificate::make("plain");
    let mut server = Server::start().await;
    server.nats.ca = Some(certificate.file.clone());
    let said = server.connect_to("{}").await;
    assert!(said.contains("it has no TLS"), "{said}");
    let said = server.connect_to("{\"tls_required\": true}\r\nPING").await;
    assert!(said.contains("before TLS"), "{said}");
    server.nats = Nats::at(server.nats.url.replace("nats://", "tls://"));
    let said = server.connect_to("{}").await;
    assert!(said.contains("it has no TLS"), "{said}");
}

#[tokio::test]
async fn connecting_can_be_left_to_another_thread() {
    fn assert_send<T: Send>(it: T) -> T {
        it
    }
    let server = Server::start().await;
    drop(assert_send(server.nats.connect_raw("test")));
    let (_peer, connection, _) = server.connect().await;
    let first = assert_send(connection).new_inbox();
    assert_eq!((&first[..7], first.len()), ("_INBOX.", 39));
    let (_peer, connection) = connected();
    assert_ne!(connection.new_inbox(), first);
}

#[tokio::test]
#[should_panic = "can be written as one word"]
async fn a_subject_with_a_space_is_a_fault_of_ours() {
    connected().1.subscribe("a 1\r\nPUB b");
}

#[tokio::test]
async fn a_found_server_has_tls_where_the_url_demands_it() {
    let server = Server::start().await;
    let found = [server.nats.url.replace("nats://", "")];
    let nats = Nats::at("tls://127.0.0.1:1");
    let (_peer, refused) = join!(server.greet("{}"), nats.connect_raw_or("test", &found));
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("it has no TLS"), "{said}");
}

#[tokio::test]
async fn a_server_that_is_avoided_is_taken_where_no_other_can_be_reached() {
    let servers = [Server::start().await, Server::start().await];
    let nats = Nats::at(format!("{},{}", servers[0].nats.url, servers[1].nats.url));
    let connect = async || {
        let serve = async |server: &Server, info: &str| {
            let mut peer = server.greet(info).await;
            peer.let_in().await;
            pending::<()>().await;
        };
        // A server that nobody connects to waits for ever.
        let connection = select! {
            connection = nats.connect_raw("test") => connection,
            () = serve(&servers[0], r#"{"server_id":"A"}"#) => unreachable!("it serves for ever"),
            () = serve(&servers[1], r#"{"server_id":"B"}"#) => unreachable!("it serves for ever"),
        };
        connection.unwrap().server_id().to_owned()
    };
    assert!(nats.avoided.add("A"));
    // They are tried in random order.
    for _ in 0..8 {
        assert_eq!(connect().await, "B");
    }
    nats.avoided.add("B");
    assert!(["A", "B"].contains(&&*connect().await));
}
