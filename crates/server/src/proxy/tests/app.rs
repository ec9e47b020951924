//! An application for tests: it reads calls and answers what a test wants, on the test's own runtime.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// A call as it came.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// The request line and the header lines, in lower case.
    pub(super) head: String,
    pub(super) body: String,
}

impl Seen {
    /// The values of a header, in their order.
    pub(super) fn header(&self, name: &str) -> Vec<&str> {
        let lines = self.head.lines().skip(1);
        let pairs = lines.filter_map(|line| line.split_once(": "));
        pairs
            .filter(|(found, _)| *found == name)
            .map(|(_, value)| value)
            .collect()
    }
}

/// What the application does about a call.
#[derive(Clone)]
pub(super) enum Act {
    /// Answers 200 with this body.
    Answer(String),
    /// Answers with this status, without a body.
    Status(u16),
    /// Writes these bytes and closes.
    Raw(Vec<u8>),
    /// Answers once it gets a permit.
    Gated(Arc<Semaphore>, String),
    /// Never answers.
    Silent,
    /// Begins an answer that never ends.
    Endless,
}

/// The application.
pub(super) struct App {
    pub(super) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    connections: Arc<AtomicUsize>,
}

impl App {
    pub(super) async fn start(act: impl Fn(&Seen) -> Act + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::listen(listener, act)
    }

    /// The same at a port that is known already.
    pub(super) fn listen(
        listener: TcpListener,
        act: impl Fn(&Seen) -> Act + Send + Sync + 'static,
    ) -> Self {
        Self::accept(listener, None, act)
    }

    /// The same answer to every call over TLS.
    pub(super) async fn with_tls(tls: ServerConfig, act: Act) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tls = TlsAcceptor::from(Arc::new(tls));
        Self::accept(listener, Some(tls), move |_| act.clone())
    }

    fn accept(
        listener: TcpListener,
        tls: Option<TlsAcceptor>,
        act: impl Fn(&Seen) -> Act + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let connections = Arc::<AtomicUsize>::default();
        let (act, log, count) = (Arc::new(act), Arc::clone(&seen), Arc::clone(&connections));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let (act, log, tls) = (Arc::clone(&act), Arc::clone(&log), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, act, log).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, act, log).await;
                            }
                        }
                    }
                });
            }
        });
        Self {
            address,
            seen,
            connections,
        }
    }

    /// The same answer to every call.
    pub(super) async fn always(act: Act) -> Self {
        Self::start(move |_| act.clone()).await
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Connections accepted.
    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    pub(super) fn last(&self) -> Seen {
        self.seen().pop().expect("a call")
    }
}

/// A connection, with or without TLS.
trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

async fn serve(
    mut stream: impl Stream,
    act: Arc<impl Fn(&Seen) -> Act>,
    log: Arc<Mutex<Vec<Seen>>>,
) {
    while let Some(call) = read_call(&mut stream).await {
        let act = act(&call);
        log.lock().unwrap().push(call);
        let is_kept = match act {
            Act::Answer(body) => answer(&mut stream, 200, &body).await,
            Act::Status(status) => answer(&mut stream, status, "").await,
            Act::Raw(bytes) => {
                let _ = stream.write_all(&bytes).await;
                false
            }
            Act::Gated(gate, body) => {
                gate.acquire().await.unwrap().forget();
                answer(&mut stream, 200, &body).await
            }
            Act::Silent => std::future::pending().await,
            Act::Endless => {
                let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
                let _ = stream.write_all(head).await;
                while stream.write_all(b"4\r\n    \r\n").await.is_ok() {}
                false
            }
        };
        if !is_kept {
            return;
        }
    }
}

async fn read_call(stream: &mut impl Stream) -> Option<Seen> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..head_end].to_vec())
        .unwrap()
        .to_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .map_or(0, |length| length.parse().unwrap());
    while bytes.len() < head_end + length {
        stream.read_buf(&mut bytes).await.ok()?;
    }
    let body = String::from_utf8(bytes[head_end..].to_vec()).unwrap();
    Some(Seen { head, body })
}

/// False if the connection has gone.
async fn answer(stream: &mut impl Stream, status: u16, body: &str) -> bool {
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status} x\r\nlocation: /other\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(answer.as_bytes()).await.is_ok()
}
