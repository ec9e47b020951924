//! Answers an authority that asks by HTTP (RFC 8555, section 8.3).

use super::CHALLENGES;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

/// Connections at a time. Anybody may connect, so a further connection ends the oldest: silence keeps no place.
const CONNECTIONS_MAX: usize = 64;

/// The time of a connection.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Wait after an error such as a lack of descriptors. Without it, the loop would spin.
const PAUSE: Duration = Duration::from_millis(100);

const PATH: &str = "/.well-known/acme-challenge/";

/// Answers for as long as the server runs.
pub(super) async fn answer(listener: TcpListener) {
    let mut places: VecDeque<AbortHandle> = VecDeque::with_capacity(CONNECTIONS_MAX);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                places.retain(|place| !place.is_finished());
                if places.len() == CONNECTIONS_MAX
                    && let Some(oldest) = places.pop_front()
                {
                    oldest.abort();
                }
                let served = http1::Builder::new()
                    .keep_alive(false)
                    .timer(TokioTimer::new())
                    .serve_connection(TokioIo::new(stream), service_fn(respond));
                // How it ends is the client's business.
                let task = tokio::spawn(tokio::time::timeout(TIMEOUT, served));
                places.push_back(task.abort_handle());
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

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    #[tokio::test]
    async fn silent_strangers_keep_no_place() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(answer(listener));
        let mut silent = Vec::new();
        for _ in 0..2 * CONNECTIONS_MAX {
            silent.push(TcpStream::connect(address).await.expect("a connection"));
        }
        let mut authority = TcpStream::connect(address).await.expect("a connection");
        let request = format!("GET {PATH}unknown HTTP/1.1\r\nhost: push.example\r\n\r\n");
        authority.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        authority.read_to_string(&mut answer).await.expect("text");
        assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
        // The first comers went to make room, and the last ones are still there.
        let end = tokio::time::timeout(TIMEOUT / 2, silent[0].read(&mut [0])).await;
        assert_eq!(
            end.expect("it was ended, and not timed out")
                .expect("an end"),
            0
        );
        let last = silent.last().expect("a connection");
        let read = last.try_read(&mut [0]);
        assert_eq!(
            read.map_err(|error| error.kind()),
            Err(std::io::ErrorKind::WouldBlock)
        );
    }
}
