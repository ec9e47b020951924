//! tokio with hyper for HTTP and tokio-tungstenite for WebSockets: one task per connection, and one
//! `tokio::sync::broadcast` channel that all of them listen to. With TLS, tokio-rustls is below hyper.

use futures_util::{SinkExt, StreamExt};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::broadcast;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs::{cipher_suite, default_provider};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::version::TLS13;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

const MESSAGE_BYTES_MAX: usize = 131_072;
const REQUEST_BYTES_MAX: usize = 4_096;
/// Broadcasts a connection may be behind before it is closed.
const BEHIND_MAX: usize = 1_024;

struct Server {
    pushes: broadcast::Sender<Utf8Bytes>,
    connections: AtomicUsize,
    echo: bool,
}

/// What connections are made of: TCP, or TLS on it.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for S {}

type Answer = Response<Full<Bytes>>;

fn answer(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer
}

fn answer_connections(count: usize) -> Answer {
    answer(StatusCode::OK, format!("{{\"connections\": {count}}}"))
}

/// Counts a connection for as long as it lives, however it ends.
struct Counted(Arc<Server>);

impl Counted {
    fn new(server: Arc<Server>) -> Self {
        server.connections.fetch_add(1, Ordering::Relaxed);
        Self(server)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn converse<S: Stream>(
    mut socket: WebSocketStream<S>,
    mut pushes: broadcast::Receiver<Utf8Bytes>,
    echo: bool,
) {
    loop {
        tokio::select! {
            push = pushes.recv() => {
                let Ok(push) = push else { break };
                if socket.send(Message::Text(push)).await.is_err() {
                    break;
                }
            }
            message = socket.next() => match message {
                Some(Ok(message @ (Message::Text(_) | Message::Binary(_)))) if echo => {
                    if socket.send(message).await.is_err() {
                        break;
                    }
                }
                // Pongs and closes are answered by the library.
                Some(Ok(_)) => {}
                Some(Err(_)) | None => break,
            },
        }
    }
}

/// The default read buffer, 128 KiB a connection, is for few connections that say a lot.
fn config() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(1024)
        .write_buffer_size(0)
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX))
}

fn upgrade<S: Stream>(mut request: Request<Incoming>, server: Arc<Server>) -> Answer {
    let wanted = request
        .headers()
        .get(UPGRADE)
        .is_some_and(|upgrade| upgrade.as_bytes().eq_ignore_ascii_case(b"websocket"));
    let Some(key) = request.headers().get(SEC_WEBSOCKET_KEY).filter(|_| wanted) else {
        return answer(StatusCode::UPGRADE_REQUIRED, "");
    };
    let accept = derive_accept_key(key.as_bytes());
    tokio::spawn(async move {
        let Ok(upgraded) = hyper::upgrade::on(&mut request).await else {
            return;
        };
        drop(request);
        let Ok(parts) = upgraded.downcast::<TokioIo<S>>() else {
            return;
        };
        let pushes = server.pushes.subscribe();
        let echo = server.echo;
        let _counted = Counted::new(server);
        let stream = parts.io.into_inner();
        let read = parts.read_buf.to_vec();
        let socket =
            WebSocketStream::from_partially_read(stream, read, Role::Server, Some(config())).await;
        // Boxed, so that the task is not as large as hyper's part of it and this one's together.
        Box::pin(converse(socket, pushes, echo)).await;
    });
    let mut response = answer(StatusCode::SWITCHING_PROTOCOLS, "");
    let headers = response.headers_mut();
    headers.insert(CONNECTION, const { hyper::header::HeaderValue::from_static("Upgrade") });
    headers.insert(UPGRADE, const { hyper::header::HeaderValue::from_static("websocket") });
    if let Ok(accept) = accept.try_into() {
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    response
}

async fn body(request: Request<Incoming>, bytes_max: usize) -> Result<Bytes, Answer> {
    match Limited::new(request.into_body(), bytes_max).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            Err(answer(StatusCode::PAYLOAD_TOO_LARGE, ""))
        }
        Err(_) => Err(answer(StatusCode::BAD_REQUEST, "")),
    }
}

async fn publish(request: Request<Incoming>, server: &Server) -> Result<Answer, Answer> {
    let body = body(request, MESSAGE_BYTES_MAX).await?;
    let text = Utf8Bytes::try_from(body).map_err(|_| answer(StatusCode::BAD_REQUEST, ""))?;
    // An error means that nobody is there.
    Ok(answer_connections(server.pushes.send(text).unwrap_or(0)))
}

async fn route<S: Stream>(
    request: Request<Incoming>,
    server: Arc<Server>,
) -> Result<Answer, Infallible> {
    let answered = match (request.method(), request.uri().path()) {
        (&Method::GET, "/") => Ok(upgrade::<S>(request, server)),
        (&Method::GET, "/stats") => {
            Ok(answer_connections(server.connections.load(Ordering::Relaxed)))
        }
        (&Method::POST, "/broadcast") => publish(request, &server).await,
        (&Method::POST, "/request") => {
            body(request, REQUEST_BYTES_MAX).await.map(|body| answer(StatusCode::OK, body))
        }
        _ => Ok(answer(StatusCode::NOT_FOUND, "")),
    };
    Ok(answered.unwrap_or_else(|refusal| refusal))
}

async fn push_every(interval: Duration, pushes: broadcast::Sender<Utf8Bytes>) {
    let mut interval = tokio::time::interval(interval);
    interval.tick().await;
    for tick in 1_u64.. {
        interval.tick().await;
        // An error means that nobody is there.
        let _ = pushes.send(format!("tick {tick}").into());
    }
}

async fn serve(listener: TcpListener, server: Arc<Server>, tls: Option<TlsAcceptor>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors: what is waiting stays in the backlog until one is free.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        // Fails only on a connection that is gone already.
        let _ = stream.set_nodelay(true);
        let server = server.clone();
        let Some(tls) = tls.clone() else {
            tokio::spawn(serve_one(stream, server));
            continue;
        };
        tokio::spawn(async move {
            if let Ok(stream) = tls.accept(stream).await {
                // Boxed, so that the task is not as large as the handshake and the rest together.
                Box::pin(serve_one(stream, server)).await;
            }
        });
    }
}

async fn serve_one<S: Stream>(stream: S, server: Arc<Server>) {
    let service = service_fn(move |request| route::<S>(request, server.clone()));
    let connection =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let _ = connection.with_upgrades().await;
}

/// TLS 1.3 with AES-128-GCM, if there is a certificate.
fn tls() -> Result<Option<TlsAcceptor>, Box<dyn Error>> {
    let (Ok(certificate), Ok(key)) = (std::env::var("TLS_CERTIFICATE"), std::env::var("TLS_KEY"))
    else {
        return Ok(None);
    };
    let mut provider = default_provider();
    provider.cipher_suites = vec![cipher_suite::TLS13_AES_128_GCM_SHA256];
    let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<Vec<_>, _>>()?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Some(TlsAcceptor::from(Arc::new(config))))
}

fn setting(name: &str, otherwise: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| otherwise.to_owned())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = format!("{}:{}", setting("HOST", "127.0.0.1"), setting("PORT", "9000"));
    let server = Arc::new(Server {
        pushes: broadcast::Sender::new(BEHIND_MAX),
        connections: AtomicUsize::new(0),
        echo: setting("MODE", "push") == "echo",
    });
    if let Ok(every_ms @ 1..) = setting("PUSH_EVERY_MS", "0").parse() {
        tokio::spawn(push_every(Duration::from_millis(every_ms), server.pushes.clone()));
    }
    let listener = TcpListener::bind(address).await?;
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        () = serve(listener, server, tls()?) => {}
        _ = terminated.recv() => {}
    }
    Ok(())
}
