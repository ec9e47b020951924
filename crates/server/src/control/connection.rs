//! One connection of the control plane, from its arrival to its lingering end.

use super::client_stream::ClientStream;
use super::error::Refusal;
use super::inbound::{Fault, Inbound};
use super::metrics::RequestCounts;
use super::places::{Phase, Place};
use super::requests::{ClientAddress, Requests, Side};
use super::stream::{End, HEAD_TIMEOUT, RequestStream, Unsent};
use super::{Rules, Shards, Stage};
use axum::http::StatusCode;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use myriad_shard::Origin;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

/// Time for a client to take a last answer.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for the client to end its side after we have ended ours.
pub(super) const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of the library's read buffer: a head must fit, bodies are read in pieces. The default is 400 KiB.
const READ_BUFFER_BYTES: usize = 32 << 10;
/// Bytes behind the end that may be unread when the linger is over.
const UNREAD_BYTES_MAX: usize = 64 << 10;

/// What a connection is served with.
#[derive(Clone, Debug)]
pub(super) struct Service {
    pub(super) rules: Rules,
    pub(super) stage: watch::Receiver<Stage>,
    pub(super) counts: RequestCounts,
    pub(super) unsent: Unsent,
}

/// How a connection that came from a shard can go back to one.
#[derive(Clone, Debug)]
pub(super) struct Return {
    pub(super) shards: Shards,
    pub(super) origin: Origin,
}

type Connection = http1::Connection<TokioIo<RequestStream>, Requests>;

/// How the library's part of a connection ended.
enum Served {
    /// It had no more to do, or could not go on.
    Ended(Result<(), hyper::Error>),
    /// Others need the place.
    Evicted,
}

impl Service {
    /// Serves a connection until its end, or until a request is for a shard. `inbound` has what was read from it before.
    pub(super) async fn serve(
        mut self,
        stream: ClientStream,
        inbound: Inbound,
        place: Place,
        back: Option<Return>,
    ) {
        let place = Arc::new(place);
        let Rules {
            router,
            keys,
            limits,
            ..
        } = self.rules.clone();
        let named = back.as_ref().map(|back| back.origin);
        let named = named.filter(|origin| origin.is_named);
        let address = named.and_then(|origin| origin.address);
        let peer = || stream.peer_addr().map(|address| address.ip());
        let address = address.or_else(|| peer().ok());
        let side = address.map_or(Side::Other, Side::of);
        let stream = RequestStream::new(
            stream,
            inbound,
            Arc::clone(&place),
            keys,
            self.unsent.clone(),
        );
        let mut connection = http1::Builder::new()
            .max_buf_size(READ_BUFFER_BYTES.max(limits.bytes_max + 1024))
            .max_headers(limits.headers_max)
            .header_read_timeout(None)
            // A client that ends its side behind its request (`nc -N`) waits for the answer.
            .half_close(true)
            .serve_connection(
                TokioIo::new(stream),
                Requests::new(router, ClientAddress(place.address()), side),
            );
        let served = self.drive(&mut connection, &place).await;
        let mut stream = connection.into_parts().io.into_inner();
        let refusal = match served {
            Served::Evicted => return self.leave(stream, &place),
            Served::Ended(ended) => refusal(ended, &mut stream),
        };
        // The library may be done before its answer is sent.
        if let Err(error) = stream.flushed().await {
            tracing::debug!("control connection: the answer was not taken: {error}");
            return;
        }
        let is_for_shard = stream.end() == Some(End::ForShard);
        let (mut socket, received) = stream.into_parts();
        let refusal = match back.filter(|_| is_for_shard) {
            Some(back) => match back.hand_back(socket, &received).await {
                Ok(()) => return,
                Err(Stays { stream, why }) => {
                    socket = stream;
                    Some(why)
                }
            },
            None => refusal,
        };
        place.set_phase(Phase::Lingering);
        let farewell = async {
            if let Some(refusal) = refusal {
                self.refuse(&mut socket, &refusal).await;
            }
            linger(&mut socket).await;
        };
        tokio::select! {
            () = farewell => {}
            () = place.evicted() => {}
        }
    }

    async fn drive(&mut self, connection: &mut Connection, place: &Place) -> Served {
        let mut is_stopping = false;
        loop {
            tokio::select! {
                biased;
                ended = &mut *connection => return Served::Ended(ended),
                () = place.evicted() => return Served::Evicted,
                _ = self.stage.wait_for(|stage| *stage == Stage::Stopped), if !is_stopping => {
                    is_stopping = true;
                    Pin::new(&mut *connection).graceful_shutdown();
                }
            }
        }
    }

    /// Makes room at once. A client that waits for an answer is told so, if the socket takes it.
    fn leave(&self, stream: RequestStream, place: &Place) {
        let (phase, _) = place.phase();
        if matches!(phase, Phase::Head | Phase::Body) && stream.is_flushed() {
            let refusal = Refusal::busy(
                "the HTTP API needs the connection for others, and this request was slow; send it whole, and keep fewer connections",
            );
            self.counts.count("other", refusal.status());
            // Best effort: whoever is slow may be gone.
            stream
                .into_socket()
                .send_now(refusal.whole_response().as_bytes());
        }
    }

    /// Answers in place of the router, within limits.
    pub(super) async fn refuse(&self, stream: &mut ClientStream, refusal: &Refusal) {
        self.counts.count("other", refusal.status());
        let response = refusal.whole_response();
        // A client that does not take it ends the same way.
        let written = async {
            stream.write_all(response.as_bytes()).await?;
            stream.flush().await
        };
        let _ = timeout(REFUSAL_TIMEOUT, written).await;
    }
}

/// A connection that no shard takes.
struct Stays {
    stream: ClientStream,
    why: Refusal,
}

impl Return {
    /// Hands the connection to a shard, which answers the request that has begun.
    async fn hand_back(self, stream: ClientStream, received: &[u8]) -> Result<(), Stays> {
        // Only one may watch it. This fails if the runtime does not know the socket, which has no further use then.
        let Ok((mut carried, unread)) = stream.into_carried() else {
            return Ok(());
        };
        let received = [received, &unread].concat();
        let sent = self
            .shards
            .way
            .hand_back(&mut carried, &received, self.origin);
        let Err(error) = sent.await else {
            return Ok(());
        };
        tracing::debug!("control connection: no shard takes it: {error}");
        let why = if error.kind() == io::ErrorKind::BrokenPipe {
            "the server is shutting down; reconnect"
        } else {
            "the server has more new connections than it keeps up with; reconnect after a pause"
        };
        match ClientStream::take(carried) {
            Ok(stream) => Err(Stays {
                stream,
                why: Refusal::busy(why),
            }),
            Err(_) => Ok(()),
        }
    }
}

/// What the client is told in place of a further answer.
fn refusal(ended: Result<(), hyper::Error>, stream: &mut RequestStream) -> Option<Refusal> {
    match (stream.end(), ended) {
        (Some(End::SlowHead), _) => Some(Refusal::timeout(format!(
            "the request's head did not come within {} s; send it whole, without pauses",
            HEAD_TIMEOUT.as_secs()
        ))),
        (Some(End::Fault(Fault::Head(error))), _) => {
            let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::BAD_REQUEST);
            Some(Refusal::new(status, error.label(), error.sentence()))
        }
        // What our own parser takes and the library does not: a target that is no URI, for one.
        (_, Err(error)) if error.is_parse() => Some(Refusal::new(
            stream.take_withheld().unwrap_or(StatusCode::BAD_REQUEST),
            "malformed_head",
            format!(
                "the request's head cannot be read ({error}); send a target that is a valid URI"
            ),
        )),
        (_, Err(error)) => {
            tracing::debug!("control connection: {error}");
            None
        }
        _ => None,
    }
}

/// Ends our side, then waits for the client to end its own.
///
/// Closing a socket with unread input sends RST, and an RST can overtake the answer: the client of a 413, still
/// sending its body, would see a broken connection instead of the reason.
pub(super) async fn linger(stream: &mut ClientStream) {
    let deadline = Instant::now() + LINGER_TIMEOUT;
    if stream.shutdown().await.is_err() {
        return;
    }
    let discard = async {
        let mut discarded = [0; 4096];
        while stream.read(&mut discarded).await? > 0 {}
        io::Result::Ok(())
    };
    tokio::select! {
        biased;
        // A client that has gone, and one whose connection is broken, end the same way.
        _ = discard => return,
        () = sleep_until(deadline) => {}
    }
    // A client that goes on sending is let go. After a pause of the process its FIN may be here unseen.
    let mut discarded = [0; 4096];
    for _ in 0..UNREAD_BYTES_MAX / discarded.len() {
        if !stream.discard(&mut discarded) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::key::Keys;
    use super::super::metrics::ConnectionCounts;
    use super::super::places::PROBE_PLACES;
    use super::super::stream::{BODY_TIMEOUT, KEEP_ALIVE_TIMEOUT};
    use super::super::{Admission, Room, Source, api};
    use super::*;
    use arc_swap::ArcSwap;
    use axum::Router;
    use axum::extract::Request;
    use axum::response::IntoResponse;
    use axum::routing::{get, post};
    use myriad_tls_stage::Carried;
    use myriad_wire::http::HeadLimits;
    use std::io::Read;
    use std::net;

    const SLOW_HEAD: &str = "HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-type: application/json\r\n\
        content-length: 115\r\n\r\n{\"error\":{\"code\":\"timeout\",\"message\":\"the request's head did not come within \
        10 s; send it whole, without pauses\"}}";

    fn admission() -> (Admission, watch::Sender<Stage>) {
        let body = async |request: Request| match api::read_body(request.into_body()).await {
            Ok(_) => "read".into_response(),
            Err(refusal) => refusal.into_response(),
        };
        let router = Router::new()
            .route("/", get(async || "hello"))
            .route("/body", post(body))
            .route(
                "/unread",
                post(async || (StatusCode::UNAUTHORIZED, "unread")),
            )
            .route("/long", get(async || "x".repeat(8 << 20)));
        let rules = Rules {
            router_of_shards: router.clone(),
            router,
            limits: HeadLimits::default(),
            keys: Arc::new(ArcSwap::from_pointee(Keys::lone("k"))),
        };
        let (stage, stages) = watch::channel(Stage::Serving);
        let admission = Admission::new(
            rules,
            stages,
            RequestCounts::default(),
            ConnectionCounts::default(),
            Room {
                places: 1 + PROBE_PLACES,
                ..Room::of(1024)
            },
            256 << 20,
            None,
        );
        (admission, stage)
    }

    fn runtime() -> tokio::runtime::Runtime {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().start_paused(true).build();
        runtime.expect("a runtime")
    }

    fn pair() -> (net::TcpStream, net::TcpStream) {
        let listener = net::TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = listener.local_addr().expect("its address");
        let client = net::TcpStream::connect(address).expect("a connection");
        let (stream, _) = listener.accept().expect("its other end");
        stream.set_nonblocking(true).expect("a socket option");
        (client, stream)
    }

    /// Serves one connection that has sent `received`, on a clock that jumps to the next deadline whenever nothing
    /// else is left to do. Returns what the client was answered and how long it took.
    fn serve_until_closed(received: &str) -> (String, Duration) {
        let (mut client, stream) = pair();
        let received = received.as_bytes().to_vec();
        let took = runtime().block_on(async move {
            let (admission, _stage) = admission();
            let begin = Instant::now();
            let stream = Carried::plain(stream.into());
            let stream = ClientStream::take(stream).expect("a socket");
            admission.admit(stream, Source::of_shard(received));
            admission.emptied().await;
            begin.elapsed()
        });
        let mut answer = String::new();
        client
            .read_to_string(&mut answer)
            .expect("an end, not a reset");
        (answer, took)
    }

    #[track_caller]
    fn check_took(took: Duration, least: Duration) {
        assert!(took >= least && took <= least + LINGER_TIMEOUT, "{took:?}");
    }

    #[test]
    fn a_kept_connection_is_closed_after_its_idle_time() {
        let (answer, took) = serve_until_closed("GET / HTTP/1.1\r\nHost: here\r\n\r\n");
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello"),
            "{answer}"
        );
        check_took(took, KEEP_ALIVE_TIMEOUT);
    }

    #[test]
    fn half_a_head_is_answered_408() {
        for before in ["", "GET / HTTP/1.1\r\nHost: here\r\n\r\n"] {
            let (answers, took) = serve_until_closed(&format!("{before}GET / HTTP/1.1\r\nHo"));
            let answer = match before {
                "" => &*answers,
                _ => answers.split_once("hello").expect("the first answer").1,
            };
            assert_eq!(answer, SLOW_HEAD);
            check_took(took, HEAD_TIMEOUT);
        }
    }

    #[test]
    fn a_body_that_does_not_come_is_answered_408() {
        for (framing, part) in [
            ("Content-Length: 10", "half"),
            ("Transfer-Encoding: chunked", "4\r\nhalf\r\n"),
        ] {
            let head = format!("POST /body HTTP/1.1\r\nHost: here\r\n{framing}\r\n\r\n{part}");
            let (answer, took) = serve_until_closed(&head);
            assert!(
                answer.starts_with("HTTP/1.1 408") && answer.contains("Content-Length"),
                "{answer}"
            );
            check_took(took, BODY_TIMEOUT);
        }
    }

    #[test]
    fn a_malformed_chunk_is_told_what_to_do() {
        let head = "POST /body HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n1;\0\r\nx\r\n0\r\n\r\n";
        let (answer, took) = serve_until_closed(head);
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
        assert!(answer.contains("extension is malformed"), "{answer}");
        check_took(took, Duration::ZERO);
    }

    #[test]
    fn an_answer_is_whole_although_the_body_is_unread_and_an_upgrade_is_offered() {
        for upgrade in [
            "",
            "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
        ] {
            for framing in ["Content-Length: 1500000", "Transfer-Encoding: chunked"] {
                let head =
                    format!("POST /unread HTTP/1.1\r\nHost: here\r\n{upgrade}{framing}\r\n\r\n");
                let (answer, took) = serve_until_closed(&head);
                assert!(answer.starts_with("HTTP/1.1 401 "), "{head}: {answer}");
                assert!(answer.contains("connection: close\r\n"), "{answer}");
                assert!(answer.ends_with("unread"), "{answer}");
                check_took(took, Duration::ZERO);
            }
        }
        let (answer, _) = serve_until_closed("CONNECT here:80 HTTP/1.1\r\nHost: here\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 501 "), "{answer}");
    }

    #[test]
    fn a_request_behind_an_unread_body_is_answered() {
        for body in [
            "Content-Length: 4\r\n\r\nbody",
            "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
            "Transfer-Encoding: chunked\r\n\r\n4;x\r\nbody\r\n4\r\nmore\r\n0\r\na: b\r\n\r\n",
        ] {
            for upgrade in ["", "Upgrade: h2c\r\n"] {
                let requests = format!(
                    "POST /unread HTTP/1.1\r\nHost: here\r\n{upgrade}{body}GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n"
                );
                let (answers, took) = serve_until_closed(&requests);
                assert!(answers.contains("unreadHTTP/1.1 200 "), "{body}: {answers}");
                assert!(answers.ends_with("hello"), "{body}: {answers}");
                check_took(took, Duration::ZERO);
            }
        }
    }

    #[test]
    fn an_answer_longer_than_the_socket_takes_is_sent_before_the_end() {
        let (mut client, stream) = pair();
        let reader = std::thread::spawn(move || {
            let mut answers = Vec::new();
            client.read_to_end(&mut answers).expect("an end");
            answers.len()
        });
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder
            .enable_all()
            .build()
            .expect("a runtime")
            .block_on(async {
                let (admission, _stage) = admission();
                let request = "GET /long HTTP/1.1\r\nHost: here\r\nUpgrade: h2c\r\n";
                let requests = format!("{request}\r\n{request}Connection: close\r\n\r\n");
                let stream = ClientStream::take(Carried::plain(stream.into())).expect("a socket");
                admission.admit(stream, Source::of_shard(requests.into_bytes()));
                admission.emptied().await;
            });
        let received = reader.join().expect("a reader without panic");
        assert!(received > 16 << 20, "{received} bytes");
    }

    #[test]
    fn a_client_that_does_not_read_is_let_go() {
        let (client, stream) = pair();
        let took = runtime().block_on(async move {
            let (admission, _stage) = admission();
            let begin = Instant::now();
            let request = "GET /long HTTP/1.1\r\nHost: here\r\n\r\n";
            let stream = ClientStream::take(Carried::plain(stream.into())).expect("a socket");
            admission.admit(stream, Source::of_shard(request.into()));
            admission.emptied().await;
            begin.elapsed()
        });
        drop(client);
        check_took(took, Duration::from_secs(30));
    }

    #[test]
    fn input_that_came_during_a_pause_is_read_before_time_is_judged() {
        use std::io::Write;
        let (mut client, stream) = pair();
        let head = "POST /body HTTP/1.1\r\nHost: here\r\nContent-Length: 10\r\n\r\n";
        runtime().block_on(async move {
            let (admission, _stage) = admission();
            let stream = ClientStream::take(Carried::plain(stream.into())).expect("a socket");
            admission.admit(stream, Source::of_shard(head.into()));
            tokio::task::yield_now().await;
            // The runtime learns of neither before it sleeps again: the clock jumps, and the body is in the socket.
            client.write_all(b"0123456789").expect("an open connection");
            tokio::time::advance(2 * BODY_TIMEOUT).await;
            let mut answer = [0; 12];
            tokio::task::spawn_blocking(move || {
                client.read_exact(&mut answer).expect("an answer");
                assert_eq!(&answer, b"HTTP/1.1 200");
            })
            .await
            .expect("no panic");
        });
    }

    #[test]
    fn a_head_that_cannot_be_read_is_told_what_to_do_and_lingers() {
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(200));
        let long = format!("GET / HTTP/1.1\r\na: {}\r\n\r\n", "x".repeat(33_000));
        for (head, status, advice) in [
            (
                "GET / HTTP/1.1\r\nbroken\r\n\r\n",
                "400 Bad Request",
                "with a colon",
            ),
            (
                "GET / HTTP/9.9\r\n\r\n",
                "505 HTTP Version Not Supported",
                "HTTP/1.1",
            ),
            ("\u{16}\u{3}\u{1}\r\n\r\n", "400 Bad Request", "METHOD"),
            (
                "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                "505 HTTP Version Not Supported",
                "HTTP/1.1",
            ),
            (&many, "431 Request Header Fields Too Large", "fewer"),
            (&long, "431 Request Header Fields Too Large", "shorter"),
            (
                "GET / HTTP/1.1\r\na: \0\r\n\r\n",
                "400 Bad Request",
                "remove or encode",
            ),
            ("GET / HTTP/1.1\r\n\r\n", "400 Bad Request", "Host"),
            (
                "GET /<> HTTP/1.1\r\nHost: here\r\n\r\n",
                "400 Bad Request",
                "percent-encode",
            ),
        ] {
            for before in ["", "GET / HTTP/1.1\r\nHost: here\r\n\r\n"] {
                let (answers, took) = serve_until_closed(&format!("{before}{head}"));
                let answer = match before {
                    "" => &*answers,
                    _ => answers.split_once("hello").expect("the first answer").1,
                };
                assert!(
                    answer.starts_with(&format!("HTTP/1.1 {status}\r\n")),
                    "{before:.3} {head:.30}: {answer}"
                );
                let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
                assert!(body.contains(advice), "{answer}");
                assert!(
                    answer.contains(&format!("content-length: {}\r\n", body.len())),
                    "{answer}"
                );
                check_took(took, Duration::ZERO);
            }
        }
    }
}
