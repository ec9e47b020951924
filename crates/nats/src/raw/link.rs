//! The bytes of one connection: a socket, what came by it, and what waits to be written.

use super::connect::Info;
use super::outgoing::{Outgoing, Progress};
use super::{Op, Parser, RawError};
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::time::Instant;

/// Bytes that may wait for a server that reads too slowly. 1,000,000 subscriptions with the longest names have 0.9 GB.
const WAITING_BYTES_MAX: usize = 1 << 30;

/// A connection as it carries bytes: TCP, TLS, or a test's.
pub(super) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Socket for S {}

/// A connection that speaks lines. It has no debug format: a password may wait to be written.
pub(super) struct Link {
    socket: Box<dyn Socket>,
    parser: Parser,
    pub(super) outgoing: Outgoing,
    /// When the last byte came.
    pub(super) heard_at: Instant,
    /// Bytes that the server takes of a message.
    pub(super) max_payload: usize,
    /// The id that the server gives itself; empty before it has.
    pub(super) server_id: String,
    /// The servers of the cluster that it knows.
    pub(super) found_servers: Vec<String>,
    /// Why nothing can be written any more. What the server said before is still to be read: it may be the reason.
    write_error: Option<io::Error>,
}

impl Link {
    pub(super) fn over(socket: Box<dyn Socket>) -> Self {
        Self {
            socket,
            parser: Parser::new(),
            outgoing: Outgoing::default(),
            heard_at: Instant::now(),
            max_payload: usize::MAX,
            server_id: String::new(),
            found_servers: Vec::new(),
            write_error: None,
        }
    }

    /// The server has introduced itself, at first or again.
    pub(super) fn note_info(&mut self, info: Info) {
        if let Some(max_payload) = info.max_payload {
            self.max_payload = max_payload;
        }
        if !info.server_id.is_empty() {
            self.server_id = info.server_id;
        }
        if !info.connect_urls.is_empty() {
            self.found_servers = info.connect_urls;
        }
    }

    /// The socket; none if bytes were read from it that nobody took.
    pub(super) fn into_socket(self) -> Option<Box<dyn Socket>> {
        self.parser.is_empty().then_some(self.socket)
    }

    /// What the server says next. Writes what waits meanwhile.
    pub(super) async fn next_op(&mut self) -> Result<Op, RawError> {
        poll_fn(|context| self.poll_op(context)).await
    }

    /// The same. Nothing is lost if the answer is not waited for.
    ///
    /// Reading and writing take turns, a piece each. A server that is told of 100,000 subscriptions sends messages meanwhile, and one
    /// that nobody reads from would stop reading.
    pub(super) fn poll_op(&mut self, context: &mut Context<'_>) -> Poll<Result<Op, RawError>> {
        loop {
            let progress = self.write(context)?;
            if let Some(op) = self.parser.next_op()? {
                return Poll::Ready(Ok(op));
            }
            let is_read = self.poll_read(context)?.is_ready();
            if !is_read && progress == Progress::Stopped {
                return Poll::Pending;
            }
        }
    }

    fn write(&mut self, context: &mut Context<'_>) -> Result<Progress, RawError> {
        if self.write_error.is_some() {
            return Ok(Progress::Stopped);
        }
        let written = self.outgoing.poll_write(&mut self.socket, context);
        if self.outgoing.waiting() > WAITING_BYTES_MAX {
            let why = "it takes too little of what is written to it";
            return Err(RawError::Io(io::Error::other(why)));
        }
        Ok(written.unwrap_or_else(|error| {
            self.write_error = Some(error);
            Progress::Stopped
        }))
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Result<(), RawError>> {
        let read = {
            let mut room = self.parser.room();
            let read = pin!(self.socket.read_buf(&mut room));
            read.poll(context)
        };
        let error = match read {
            Poll::Pending if self.write_error.is_none() => return Poll::Pending,
            Poll::Ready(Ok(bytes)) if bytes > 0 => {
                self.heard_at = Instant::now();
                return Poll::Ready(Ok(()));
            }
            Poll::Ready(Err(error)) => RawError::Io(error),
            Poll::Ready(Ok(_)) | Poll::Pending => RawError::Ended,
        };
        let first = self.write_error.take();
        Poll::Ready(Err(first.map_or(error, RawError::Io)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::Pin;
    use std::task::Waker;
    use tokio::io::ReadBuf;

    /// A connection that the server has reset: writing fails, and what it sent before can still be read.
    struct Reset(Vec<u8>);

    impl AsyncRead for Reset {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            room: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            room.put_slice(&std::mem::take(&mut self.0));
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Reset {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn what_the_server_said_last_is_read_after_a_write_failed() {
        let said = b"PING\r\n-ERR 'Slow Consumer'\r\n".to_vec();
        let mut link = Link::over(Box::new(Reset(said)));
        link.outgoing.line(format_args!("PING"));
        let mut context = Context::from_waker(Waker::noop());
        let mut next = || link.poll_op(&mut context);
        assert!(matches!(next(), Poll::Ready(Ok(Op::Ping))));
        let Poll::Ready(Ok(Op::Error(text))) = next() else {
            panic!("the error is read");
        };
        assert_eq!(text, "Slow Consumer");
        let Poll::Ready(Err(RawError::Io(error))) = next() else {
            panic!("the connection has ended");
        };
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn a_socket_with_unread_bytes_is_not_given_away() {
        let info = |more: &str| Reset(format!("INFO {{}}\r\n{more}").into_bytes());
        for (more, is_given) in [("", true), ("P", false), ("PING\r\n", false)] {
            let mut link = Link::over(Box::new(info(more)));
            assert!(matches!(link.next_op().await, Ok(Op::Info(_))));
            assert_eq!(link.into_socket().is_some(), is_given, "{more:?}");
        }
    }
}
