//! One connection of the control plane, from its arrival to its lingering end.

use super::Stage;
use super::error::Refusal;
use super::metrics::RequestCounts;
use super::rewound::Rewound;
use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tower::ServiceExt;

/// Connections over the limit that are being told so; more are closed without a word.
const REFUSALS_MAX: usize = 64;
/// The share of the connections below which idle ones make room: an eighth.
const SPARE_PART: usize = 8;
/// Time for a request's head, from its first byte.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for a request: its body, its work, and the client's reading of the answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Time a connection may wait for its next request.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(60);
/// How late the end of a phase may be noticed.
const GLANCE_INTERVAL: Duration = Duration::from_secs(5);
/// Time for the client to end its side after we have ended ours.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of hyper's read buffer: a head must fit, bodies are read in pieces. The default is 400 KiB.
const READ_BUFFER_BYTES: usize = 32 << 10;

/// Where a connection came from, and so what it has already said.
#[derive(Debug)]
pub(crate) enum Origin {
    /// From a shard, with the bytes of its first request.
    Shard(Vec<u8>),
    /// From the control plane's own listener.
    Listener,
}

/// Admits connections to the router, a bounded number at a time.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    router: Router,
    stage: watch::Receiver<Stage>,
    counts: RequestCounts,
    connections: Arc<Semaphore>,
    connections_max: u32,
    refusals: Arc<Semaphore>,
    /// Rung when little room is left: one that only waits for its next request makes some.
    crowding: Arc<Notify>,
}

impl Gate {
    pub(crate) fn new(
        router: Router,
        stage: watch::Receiver<Stage>,
        counts: RequestCounts,
        connections_max: u32,
    ) -> Self {
        Self {
            router,
            stage,
            counts,
            connections: Arc::new(Semaphore::new(connections_max as usize)),
            connections_max,
            refusals: Arc::new(Semaphore::new(REFUSALS_MAX)),
            crowding: Arc::new(Notify::new()),
        }
    }

    /// Serves the connection in a task of its own, or tells it that there are too many.
    pub(crate) fn admit(&self, stream: TcpStream, origin: Origin) {
        // Clients share this port: kept connections of theirs must not keep a load balancer's probe out.
        if self.connections.available_permits() <= self.connections_max as usize / SPARE_PART {
            self.crowding.notify_one();
        }
        if let Ok(permit) = Arc::clone(&self.connections).try_acquire_owned() {
            tokio::spawn(self.clone().serve(stream, origin, permit));
        } else if let Ok(permit) = Arc::clone(&self.refusals).try_acquire_owned() {
            tokio::spawn(self.clone().turn_away(stream, permit));
        } else {
            self.counts.count("other", StatusCode::SERVICE_UNAVAILABLE);
        }
    }

    /// Waits until no connection is left.
    pub(crate) async fn emptied(&self) {
        // The semaphore is never closed.
        let _ = self.connections.acquire_many(self.connections_max).await;
    }

    async fn turn_away(self, mut stream: TcpStream, _permit: OwnedSemaphorePermit) {
        let refusal = Refusal::busy(
            "too many connections to the HTTP API; close some, or keep and reuse them",
        );
        self.refuse(&mut stream, &refusal).await;
        linger(&mut stream).await;
    }

    async fn serve(mut self, stream: TcpStream, origin: Origin, _permit: OwnedSemaphorePermit) {
        let progress = Arc::new(Progress::new());
        let received = match origin {
            Origin::Shard(received) => received,
            Origin::Listener => Vec::new(),
        };
        let io = TokioIo::new(Rewound::new(received, stream, Arc::clone(&progress)));
        let requests = Requests {
            router: self.router.clone(),
            progress: Arc::clone(&progress),
        };
        let mut connection = http1::Builder::new()
            .max_buf_size(READ_BUFFER_BYTES)
            .header_read_timeout(None)
            // A client that ends its side behind its request (`nc -N`) waits for the answer.
            .half_close(true)
            .serve_connection(io, requests);
        let end = self.watch(&mut connection, &progress).await;
        let parts = connection.into_parts();
        let end = match end {
            // Part of a head came together with the request before it, and nobody saw it begin.
            End::Idle if !parts.read_buf.is_empty() => End::SlowHead,
            end => end,
        };
        let mut rewound = parts.io.into_inner();
        // Behind half an answer nothing can be said.
        if let Some(refusal) = end.refusal(rewound.withheld())
            && !rewound.is_blocked()
        {
            self.refuse(rewound.stream(), &refusal).await;
        }
        linger(rewound.stream()).await;
    }

    /// Drives a connection to its end, or to the end of our patience.
    async fn watch(&mut self, connection: &mut Connection, progress: &Progress) -> End {
        let mut stopping = false;
        loop {
            // A phase may begin during the sleep and end before it: no sleep is longer than a glance at the clock is cheap.
            let glance = progress.deadline().min(Instant::now() + GLANCE_INTERVAL);
            let is_idle = progress.is_idle();
            tokio::select! {
                // With its shutdown: without it, hyper can call a connection done before the answer is flushed
                // (a 413 to a client that waits for 100 Continue).
                ended = &mut *connection => return End::of(ended),
                () = sleep_until(glance) => if progress.deadline() <= Instant::now() {
                    return progress.end();
                },
                () = self.crowding.notified(), if is_idle => {
                    if progress.is_idle() {
                        return End::Idle;
                    }
                    // Its next request has begun: another one's turn.
                    self.crowding.notify_one();
                }
                _ = self.stage.wait_for(|stage| *stage == Stage::Stopped), if !stopping => {
                    stopping = true;
                    Pin::new(&mut *connection).graceful_shutdown();
                }
            }
        }
    }

    /// Says a last word, within limits.
    async fn refuse(&self, stream: &mut TcpStream, refusal: &Refusal) {
        self.counts.count("other", refusal.status());
        let words = refusal.last_words();
        // A client that does not take it ends the same way.
        let _ = timeout(LINGER_TIMEOUT, stream.write_all(words.as_bytes())).await;
    }
}

type Connection = http1::Connection<TokioIo<Rewound>, Requests>;

/// How serving a connection ended.
enum End {
    /// Nothing is left to say.
    Quiet,
    /// No further request came in time.
    Idle,
    /// The head of a request did not come in time.
    SlowHead,
    /// The head of a request could not be read.
    Unreadable(hyper::Error),
}

impl End {
    fn of(ended: Result<(), hyper::Error>) -> Self {
        match ended {
            Ok(()) => Self::Quiet,
            Err(error) if error.is_parse() => Self::Unreadable(error),
            Err(error) => {
                tracing::debug!("control connection: {error}");
                Self::Quiet
            }
        }
    }

    /// What the client is told; `withheld` is the status that hyper answers, without a word.
    fn refusal(&self, withheld: Option<StatusCode>) -> Option<Refusal> {
        match self {
            Self::Quiet | Self::Idle => None,
            Self::SlowHead => Some(Refusal::timeout(format!(
                "the request's head did not come within {} s; send it whole, without pauses",
                HEAD_TIMEOUT.as_secs()
            ))),
            Self::Unreadable(error) => {
                let status = withheld.unwrap_or(StatusCode::BAD_REQUEST);
                let (code, advice) = match status {
                    StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
                        ("head_too_long", "send fewer and shorter headers")
                    }
                    StatusCode::URI_TOO_LONG => ("head_too_long", "send a shorter target"),
                    _ => (
                        "malformed_head",
                        "send METHOD TARGET HTTP/1.1, lines of NAME: VALUE, and an empty line",
                    ),
                };
                let message = format!("the request's head cannot be read ({error}); {advice}");
                Some(Refusal::new(status, code, message))
            }
        }
    }
}

/// Ends our side, then waits for the client to end its own.
///
/// Closing a socket with unread input sends RST, and an RST can overtake the answer: the client of a 413, still
/// sending its body, would see a broken connection instead of the reason.
async fn linger(stream: &mut TcpStream) {
    let discard = async {
        stream.shutdown().await?;
        let mut discarded = [0; 4096];
        while stream.read(&mut discarded).await? > 0 {}
        io::Result::Ok(())
    };
    // A client that goes on sending, and one that has gone, end the same way: with the socket.
    let _ = timeout(LINGER_TIMEOUT, discard).await;
}

/// What the connection is doing, and since when: it bounds each phase by a time of its own.
#[derive(Debug)]
pub(super) struct Progress(Mutex<(Phase, Instant)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Waiting for a request to begin.
    Idle,
    /// A head has begun.
    Head,
    /// A request is being served.
    Request,
}

impl Progress {
    /// A new connection owes its first head.
    fn new() -> Self {
        Self(Mutex::new((Phase::Head, Instant::now())))
    }

    fn is_idle(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0 == Phase::Idle
    }

    fn enter(&self, phase: Phase) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (phase, Instant::now());
    }

    /// Bytes have come: a head begins, unless they belong to what is under way.
    pub(super) fn received(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.0 == Phase::Idle {
            *state = (Phase::Head, Instant::now());
        }
    }

    /// What its deadline means once it has passed.
    fn end(&self) -> End {
        match self.0.lock().unwrap_or_else(PoisonError::into_inner).0 {
            Phase::Head => End::SlowHead,
            Phase::Idle => End::Idle,
            Phase::Request => End::Quiet,
        }
    }

    fn deadline(&self) -> Instant {
        let (phase, since) = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        since
            + match phase {
                Phase::Idle => KEEP_ALIVE_TIMEOUT,
                Phase::Head => HEAD_TIMEOUT,
                Phase::Request => REQUEST_TIMEOUT,
            }
    }
}

/// The router as a connection sees it, noting when requests begin and end.
struct Requests {
    router: Router,
    progress: Arc<Progress>,
}

impl hyper::service::Service<Request<Incoming>> for Requests {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        self.progress.enter(Phase::Request);
        let (router, progress) = (self.router.clone(), Arc::clone(&self.progress));
        Box::pin(async move {
            let response = router.oneshot(request.map(Body::new)).await;
            progress.enter(Phase::Idle);
            response
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::publish;
    use axum::extract::Request;
    use axum::response::IntoResponse;
    use axum::routing::{get, post};
    use std::io::Read;
    use std::net;

    const SLOW_HEAD: &str = "HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-type: application/json\r\n\
        content-length: 115\r\n\r\n{\"error\":{\"code\":\"timeout\",\"message\":\"the request's head did not come within \
        10 s; send it whole, without pauses\"}}";

    /// Serves one connection that has sent `received`, on a clock that jumps to the next deadline whenever nothing
    /// else is left to do. Returns what the client was answered and how long it took.
    fn serve_until_closed(received: &str) -> (String, Duration) {
        let listener = net::TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = listener.local_addr().expect("its address");
        let mut client = net::TcpStream::connect(address).expect("a connection");
        let (stream, _) = listener.accept().expect("its other end");
        stream.set_nonblocking(true).expect("a socket option");
        let received = received.as_bytes().to_vec();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build();
        let took = runtime.expect("a runtime").block_on(async move {
            let body = async |request: Request| match publish::read(request.into_body()).await {
                Ok(_) => "read".into_response(),
                Err(refusal) => refusal.into_response(),
            };
            let router = Router::new()
                .route("/", get(async || "hello"))
                .route("/body", post(body));
            let (_sender, stage) = watch::channel(Stage::Serving);
            let gate = Gate::new(router, stage, RequestCounts::default(), 1);
            let begin = Instant::now();
            gate.admit(
                TcpStream::from_std(stream).expect("a socket"),
                Origin::Shard(received),
            );
            gate.emptied().await;
            begin.elapsed()
        });
        let mut answer = String::new();
        client
            .read_to_string(&mut answer)
            .expect("an end, not a reset");
        (answer, took)
    }

    #[test]
    fn a_kept_connection_is_closed_after_its_idle_time() {
        let (answer, took) = serve_until_closed("GET / HTTP/1.1\r\nHost: here\r\n\r\n");
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello"),
            "{answer}"
        );
        let most = KEEP_ALIVE_TIMEOUT + GLANCE_INTERVAL + LINGER_TIMEOUT;
        assert!(took >= KEEP_ALIVE_TIMEOUT && took <= most, "{took:?}");
    }

    #[test]
    fn kept_connections_make_room_for_newcomers() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build();
        runtime.expect("a runtime").block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
                .await
                .expect("a listener");
            let address = listener.local_addr().expect("its address");
            let router = Router::new().route("/", get(async || "hello"));
            let (_sender, stage) = watch::channel(Stage::Serving);
            let gate = Gate::new(router, stage, RequestCounts::default(), 8);
            let mut kept = Vec::new();
            // More of them within the time that a connection is kept than there is room for.
            for number in 0..40 {
                let mut client = TcpStream::connect(address).await.expect("a connection");
                let (stream, _) = listener.accept().await.expect("its other end");
                let request = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n";
                gate.admit(stream, Origin::Shard(request.to_vec()));
                let mut answer = [0; 12];
                client.read_exact(&mut answer).await.expect("an answer");
                assert_eq!(&answer, b"HTTP/1.1 200", "client {number}");
                kept.push(client);
                tokio::time::sleep(GLANCE_INTERVAL + Duration::from_millis(1)).await;
            }
        });
    }

    #[test]
    fn half_a_head_is_answered_408() {
        let (answer, took) = serve_until_closed("GET / HTTP/1.1\r\nHost: he");
        assert_eq!(answer, SLOW_HEAD);
        assert!(
            took >= HEAD_TIMEOUT && took <= HEAD_TIMEOUT + GLANCE_INTERVAL + LINGER_TIMEOUT,
            "{took:?}"
        );
    }

    #[test]
    fn a_body_that_does_not_come_is_answered_408() {
        let head = "POST /body HTTP/1.1\r\nHost: here\r\nContent-Length: 10\r\n\r\nhalf";
        let (answer, took) = serve_until_closed(head);
        assert!(
            answer.starts_with("HTTP/1.1 408") && answer.contains("Content-Length"),
            "{answer}"
        );
        assert!(took < REQUEST_TIMEOUT, "{took:?}");
    }

    #[test]
    fn half_a_second_head_is_answered_408_behind_the_first_answer() {
        let heads = "GET / HTTP/1.1\r\nHost: here\r\n\r\nGET / HTTP/1.1\r\nHo";
        let (answers, took) = serve_until_closed(heads);
        let (first, second) = answers.split_at(answers.find("hello").expect("a body") + 5);
        assert!(first.starts_with("HTTP/1.1 200 "), "{first}");
        assert_eq!(second, SLOW_HEAD);
        // What came with the first request counts as the time between two: nobody saw it begin.
        let most = KEEP_ALIVE_TIMEOUT + GLANCE_INTERVAL + LINGER_TIMEOUT;
        assert!(took >= HEAD_TIMEOUT && took <= most, "{took:?}");
    }

    #[test]
    fn a_head_that_cannot_be_read_is_told_what_to_do_and_lingers() {
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(200));
        let long = format!(
            "GET / HTTP/1.1\r\na: {}\r\n\r\n",
            "x".repeat(4 * READ_BUFFER_BYTES)
        );
        for (head, status, advice) in [
            (
                "GET / HTTP/1.1\r\nbroken\r\n\r\n",
                "400 Bad Request",
                "NAME: VALUE",
            ),
            ("GET / HTTP/9.9\r\n\r\n", "400 Bad Request", "HTTP/1.1"),
            ("\u{16}\u{3}\u{1}\r\n\r\n", "400 Bad Request", "METHOD"),
            (
                "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                "400 Bad Request",
                "HTTP/1.1",
            ),
            (&many, "431 Request Header Fields Too Large", "fewer"),
            (&long, "431 Request Header Fields Too Large", "shorter"),
            (
                "GET / HTTP/1.1\r\na: \0\r\n\r\n",
                "400 Bad Request",
                "NAME: VALUE",
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
                assert!(
                    body.contains("cannot be read (") && body.contains(advice),
                    "{answer}"
                );
                assert!(
                    answer.contains(&format!("content-length: {}\r\n", body.len())),
                    "{answer}"
                );
                assert!(took <= LINGER_TIMEOUT + GLANCE_INTERVAL, "{took:?}");
            }
        }
    }
}
