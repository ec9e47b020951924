//! One connection of the control plane, from its arrival to its lingering end.

use super::Stage;
use axum::Router;
use axum::body::Body;
use axum::response::Response;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tower::ServiceExt;

/// Connections over the limit that are being told so; more are closed without a word.
const REFUSALS_MAX: usize = 64;
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

const FULL: &str = "{\"error\":{\"code\":\"busy\",\"message\":\"too many connections to the HTTP API; \
                    close some, or keep and reuse them\"}}";

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
    connections: Arc<Semaphore>,
    connections_max: u32,
    refusals: Arc<Semaphore>,
}

impl Gate {
    pub(crate) fn new(router: Router, stage: watch::Receiver<Stage>, connections_max: u32) -> Self {
        Self {
            router,
            stage,
            connections: Arc::new(Semaphore::new(connections_max as usize)),
            connections_max,
            refusals: Arc::new(Semaphore::new(REFUSALS_MAX)),
        }
    }

    /// Serves the connection in a task of its own, or tells it that there are too many.
    pub(crate) fn admit(&self, stream: TcpStream, origin: Origin) {
        if let Ok(permit) = Arc::clone(&self.connections).try_acquire_owned() {
            tokio::spawn(serve(
                stream,
                origin,
                self.router.clone(),
                self.stage.clone(),
                permit,
            ));
        } else if let Ok(permit) = Arc::clone(&self.refusals).try_acquire_owned() {
            tokio::spawn(refuse(stream, permit));
        }
    }

    /// Waits until no connection is left.
    pub(crate) async fn emptied(&self) {
        // The semaphore is never closed.
        let _ = self.connections.acquire_many(self.connections_max).await;
    }
}

async fn refuse(mut stream: TcpStream, _permit: OwnedSemaphorePermit) {
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Retry-After: {}\r\nConnection: close\r\n\r\n{FULL}",
        FULL.len(),
        super::error::RETRY_AFTER_S,
    );
    if matches!(
        timeout(LINGER_TIMEOUT, stream.write_all(answer.as_bytes())).await,
        Ok(Ok(()))
    ) {
        linger(&mut stream).await;
    }
}

async fn serve(
    stream: TcpStream,
    origin: Origin,
    router: Router,
    mut stage: watch::Receiver<Stage>,
    _permit: OwnedSemaphorePermit,
) {
    let progress = Arc::new(Progress::new());
    let received = match origin {
        Origin::Shard(received) => received,
        Origin::Listener => Vec::new(),
    };
    let io = TokioIo::new(Rewound::new(received, stream, Arc::clone(&progress)));
    let requests = Requests {
        router,
        progress: Arc::clone(&progress),
    };
    let mut connection = http1::Builder::new()
        .max_buf_size(READ_BUFFER_BYTES)
        .header_read_timeout(None)
        .serve_connection(io, requests);
    let mut stopping = false;
    loop {
        // A phase may begin during the sleep and end before it: no sleep is longer than a glance at the clock is cheap.
        let glance = progress.deadline().min(Instant::now() + GLANCE_INTERVAL);
        tokio::select! {
            // With its shutdown: without it, hyper can call a connection done before the answer is flushed
            // (a 413 to a client that waits for 100 Continue).
            ended = &mut connection => {
                if let Err(error) = ended {
                    tracing::debug!("control connection: {error}");
                }
                break;
            }
            () = sleep_until(glance) => if progress.deadline() <= Instant::now() { break },
            _ = stage.wait_for(|stage| *stage == Stage::Stopped), if !stopping => {
                stopping = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
        }
    }
    let mut stream = connection.into_parts().io.into_inner().stream;
    linger(&mut stream).await;
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
struct Progress(Mutex<(Phase, Instant)>);

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

    fn enter(&self, phase: Phase) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (phase, Instant::now());
    }

    /// Bytes have come: a head begins, unless they belong to what is under way.
    fn received(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.0 == Phase::Idle {
            *state = (Phase::Head, Instant::now());
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

/// A stream whose first bytes were already read.
#[derive(Debug)]
struct Rewound {
    received: Vec<u8>,
    position: usize,
    stream: TcpStream,
    progress: Arc<Progress>,
}

impl Rewound {
    fn new(received: Vec<u8>, stream: TcpStream, progress: Arc<Progress>) -> Self {
        Self {
            received,
            position: 0,
            stream,
            progress,
        }
    }
}

impl AsyncRead for Rewound {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let left = &self.received[self.position..];
        if !left.is_empty() {
            let count = left.len().min(buffer.remaining());
            buffer.put_slice(&left[..count]);
            self.position += count;
            if self.position == self.received.len() {
                self.received = Vec::new();
                self.position = 0;
            }
            return Poll::Ready(Ok(()));
        }
        let filled = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > filled {
            self.progress.received();
        }
        polled
    }
}

impl AsyncWrite for Rewound {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
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
            let gate = Gate::new(router, stage, 1);
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
    fn half_a_head_is_waited_for_within_limits() {
        let (answer, took) = serve_until_closed("GET / HTTP/1.1\r\nHost: he");
        assert_eq!(answer, "");
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
    fn a_broken_head_is_answered_400_and_lingers() {
        let (answer, took) = serve_until_closed("GET / HTTP/1.1\r\nbroken\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
        assert!(took <= LINGER_TIMEOUT + GLANCE_INTERVAL, "{took:?}");
    }
}
