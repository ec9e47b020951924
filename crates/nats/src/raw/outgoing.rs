//! What waits to be written to a server.

use std::fmt::Arguments;
use std::io;
use std::io::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::AsyncWrite;

/// Bytes that one call writes at most, so that reading gets its turn while many subscriptions leave.
const PIECE_BYTES_MAX: usize = 256 << 10;
/// Memory that is kept while nothing waits.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// Lines in the order in which they are to be written. It is unbounded; [`Outgoing::waiting`] says how much there is.
#[derive(Default)]
pub(super) struct Outgoing {
    bytes: Vec<u8>,
    /// So many of the bytes were written.
    written: usize,
    /// What was written may wait in the socket's own buffer, as TLS has one.
    needs_flush: bool,
    /// A message's block of headers, while it is put together.
    block: Vec<u8>,
}

/// What came of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Something was written: the next call may write more.
    Moving,
    /// Nothing waits, or the socket is full. The task is woken when it has room.
    Stopped,
}

impl Outgoing {
    /// Adds a line.
    pub(super) fn line(&mut self, line: Arguments<'_>) {
        let added = self.bytes.write_fmt(line);
        added.expect("memory takes what is written");
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Adds a message: its control line without the size, and its payload.
    pub(super) fn message(&mut self, head: Arguments<'_>, payload: &[u8]) {
        self.line(format_args!("{head} {}", payload.len()));
        self.bytes.extend_from_slice(payload);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Adds a message with headers: their names and values, without line ends in them.
    ///
    /// # Errors
    /// It has more bytes than it may have: so many, with its headers. Nothing is added.
    pub(super) fn message_with_headers<'h>(
        &mut self,
        head: Arguments<'_>,
        headers: impl IntoIterator<Item = (&'h str, &'h str)>,
        payload: &[u8],
        bytes_max: usize,
    ) -> Result<(), usize> {
        let mut block = std::mem::take(&mut self.block);
        block.extend_from_slice(b"NATS/1.0\r\n");
        for (name, value) in headers {
            for part in [name, ": ", value, "\r\n"] {
                block.extend_from_slice(part.as_bytes());
            }
        }
        block.extend_from_slice(b"\r\n");
        let bytes = block.len() + payload.len();
        let fits = bytes <= bytes_max;
        if fits {
            self.line(format_args!("{head} {} {bytes}", block.len()));
            self.bytes.extend_from_slice(&block);
            self.bytes.extend_from_slice(payload);
            self.bytes.extend_from_slice(b"\r\n");
        }
        block.clear();
        block.shrink_to(KEPT_BYTES_MAX);
        self.block = block;
        if fits { Ok(()) } else { Err(bytes) }
    }

    /// Bytes that the socket has not taken.
    pub(super) fn waiting(&self) -> usize {
        self.bytes.len() - self.written
    }

    /// Writes one piece, if the socket takes it.
    ///
    /// # Errors
    /// The connection is broken.
    pub(super) fn poll_write(
        &mut self,
        mut socket: impl AsyncWrite + Unpin,
        context: &mut Context<'_>,
    ) -> io::Result<Progress> {
        let socket = Pin::new(&mut socket);
        let piece_bytes = self.waiting().min(PIECE_BYTES_MAX);
        if piece_bytes == 0 {
            if self.needs_flush && socket.poll_flush(context)?.is_ready() {
                self.needs_flush = false;
            }
            return Ok(Progress::Stopped);
        }
        let piece = &self.bytes[self.written..self.written + piece_bytes];
        match socket.poll_write(context, piece)? {
            Poll::Pending => Ok(Progress::Stopped),
            Poll::Ready(0) => Err(io::ErrorKind::WriteZero.into()),
            Poll::Ready(bytes) => {
                self.needs_flush = true;
                self.discard(bytes);
                Ok(Progress::Moving)
            }
        }
    }

    /// Forgets bytes that were written. No more bytes are moved than were written, however small the pieces.
    fn discard(&mut self, bytes: usize) {
        self.written += bytes;
        if self.waiting() == 0 {
            self.bytes.clear();
            self.bytes.shrink_to(KEPT_BYTES_MAX);
            self.written = 0;
        } else if self.written >= self.waiting() {
            self.bytes.drain(..self.written);
            self.written = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    /// Takes so many bytes a call, and remembers them.
    struct Slow {
        bytes_max: usize,
        taken: Vec<u8>,
        is_flushed: bool,
    }

    impl AsyncWrite for Slow {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let taken = &bytes[..bytes.len().min(self.bytes_max)];
            self.taken.extend_from_slice(taken);
            self.is_flushed = false;
            Poll::Ready(Ok(taken.len()))
        }

        fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.is_flushed = true;
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn lines_leave_in_their_order_whatever_the_socket_takes() {
        let mut context = Context::from_waker(Waker::noop());
        for bytes_max in [1, 3, 100, usize::MAX] {
            let (mut outgoing, mut expected) = (Outgoing::default(), String::new());
            let mut socket = Slow {
                bytes_max,
                taken: Vec::new(),
                is_flushed: true,
            };
            for sid in 0..200 {
                outgoing.line(format_args!("UNSUB {sid}"));
                outgoing.message(format_args!("PUB a.{sid}"), b"hello");
                expected.push_str(&format!("UNSUB {sid}\r\nPUB a.{sid} 5\r\nhello\r\n"));
                outgoing.poll_write(&mut socket, &mut context).unwrap();
                let left = expected.len() - socket.taken.len();
                assert_eq!(outgoing.waiting(), left);
            }
            while outgoing.poll_write(&mut socket, &mut context).unwrap() == Progress::Moving {}
            assert!(socket.is_flushed);
            assert_eq!(String::from_utf8(socket.taken).unwrap(), expected);
            assert_eq!(outgoing.waiting(), 0);
        }
    }

    #[test]
    fn memory_is_given_back() {
        let mut context = Context::from_waker(Waker::noop());
        let mut outgoing = Outgoing::default();
        let mut socket = Slow {
            bytes_max: usize::MAX,
            taken: Vec::new(),
            is_flushed: true,
        };
        outgoing.message(format_args!("PUB a"), &vec![b'x'; 3 * PIECE_BYTES_MAX]);
        let mut pieces = 0;
        while outgoing.poll_write(&mut socket, &mut context).unwrap() == Progress::Moving {
            pieces += 1;
        }
        assert_eq!(pieces, 4);
        assert!(outgoing.bytes.capacity() <= 2 * KEPT_BYTES_MAX);
    }

    #[test]
    fn a_socket_that_takes_nothing_is_broken() {
        let mut context = Context::from_waker(Waker::noop());
        let mut outgoing = Outgoing::default();
        outgoing.line(format_args!("PING"));
        let socket = Slow {
            bytes_max: 0,
            taken: Vec::new(),
            is_flushed: true,
        };
        let error = outgoing.poll_write(socket, &mut context).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WriteZero);
    }
}
