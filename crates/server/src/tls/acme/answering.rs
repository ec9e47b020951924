//! Answers an authority that asks by HTTP (RFC 8555, section 8.3).

use super::CHALLENGES;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Connections at a time. Others wait in the kernel: anybody may connect, and only the authority has something to ask.
const CONNECTIONS_MAX: usize = 16;

/// The time of a connection.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Wait after an error such as a lack of descriptors. Without it, the loop would spin.
const PAUSE: Duration = Duration::from_millis(100);

const PATH: &str = "/.well-known/acme-challenge/";

/// Answers for as long as the server runs.
pub(super) async fn answer(listener: TcpListener) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // Nobody closes it.
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(async move {
                    let served = http1::Builder::new()
                        .keep_alive(false)
                        .timer(TokioTimer::new())
                        .serve_connection(TokioIo::new(stream), service_fn(respond));
                    // How it ends is the client's business.
                    let _ = tokio::time::timeout(TIMEOUT, served).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!("cannot accept on the address of tls-acme-http: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn respond(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let token = request.uri().path().strip_prefix(PATH);
    let text = token.and_then(|token| CHALLENGES.text(token));
    let (status, text) = match text {
        Some(text) if matches!(*request.method(), Method::GET | Method::HEAD) => {
            (StatusCode::OK, text)
        }
        _ => (
            StatusCode::NOT_FOUND,
            "this address answers an authority that looks for its challenge, and nobody else; use https:// and wss://\n".into(),
        ),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let kind = header::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}
