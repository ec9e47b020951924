//! A connection's stream as hyper sees it.

use super::connection::Progress;
use axum::http::StatusCode;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A stream whose first bytes were already read.
#[derive(Debug)]
pub(super) struct Rewound {
    received: Vec<u8>,
    position: usize,
    stream: TcpStream,
    progress: Arc<Progress>,
    /// The last write found the socket full: hyper holds the rest of an answer.
    blocked: bool,
    /// The status of hyper's own answer to a head that it cannot read, which was not sent.
    withheld: Option<StatusCode>,
}

impl Rewound {
    pub(super) fn new(received: Vec<u8>, stream: TcpStream, progress: Arc<Progress>) -> Self {
        Self {
            received,
            position: 0,
            stream,
            progress,
            blocked: false,
            withheld: None,
        }
    }

    pub(super) fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Whether the client has not taken all of an answer.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// The status of the answer that was kept back.
    pub(super) fn withheld(&self) -> Option<StatusCode> {
        self.withheld
    }

    /// Keeps hyper's own answer back: it is only a head, and the client deserves a sentence.
    fn withholds(&mut self, bytes: &[u8]) -> bool {
        self.withheld = automatic_status(bytes);
        self.withheld.is_some()
    }
}

/// The status, if these bytes are an answer that hyper made by itself: the client's error, and no word beside.
///
/// The router has no such answer: whatever it refuses has a body, and the body's type.
fn automatic_status(bytes: &[u8]) -> Option<StatusCode> {
    let head = std::str::from_utf8(bytes).ok()?.strip_suffix("\r\n\r\n")?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.")?.get(2..5)?;
    let status = StatusCode::from_bytes(status.as_bytes()).ok()?;
    let silent = lines.all(|line| match line.split_once(": ") {
        Some(("content-length", length)) => length == "0",
        Some((name, _)) => matches!(name, "connection" | "date"),
        None => false,
    });
    (status.is_client_error() && silent).then_some(status)
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
        if self.withholds(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.blocked = polled.is_pending();
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [bytes] = slices
            && self.withholds(bytes)
        {
            return Poll::Ready(Ok(bytes.len()));
        }
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.blocked = polled.is_pending();
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    /// Only flushes: whoever takes the stream back may have something to say before it ends our side.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_silent_refusal_is_hypers() {
        let status = |text: &str| automatic_status(text.as_bytes()).map(|status| status.as_u16());
        let date = "date: Sat, 21 Nov 2026 19:53:11 GMT\r\n";
        let silent = format!(
            "HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\n{date}\r\n"
        );
        assert_eq!(status(&silent), Some(431));
        let closing = format!(
            "HTTP/1.0 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n{date}\r\n"
        );
        assert_eq!(status(&closing), Some(400));
        for answer in [
            "HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}",
            "HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n",
            "HTTP/1.1 204 No Content\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 400",
            "",
        ] {
            assert_eq!(status(answer), None, "{answer}");
        }
    }
}
