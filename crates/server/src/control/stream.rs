//! A connection's stream as the HTTP library sees it.
//!
//! It stands between the library and the socket for five reasons:
//!
//! * **Input is checked first.** The library gets one request at a time, and only what [`Inbound`] has checked.
//! * **Answers are never lost.** The library may call a connection done while its answer is still in its own buffer (it
//!   does for a request with an Upgrade header whose body is unread). So a write here never waits: what the socket does
//!   not take is kept, at most one answer, and is sent before the next request is read or the connection ends.
//! * **Input comes before time.** A deadline is judged only after the socket itself has said that nothing is there. After a
//!   pause of the process (SIGSTOP, a suspended machine) every deadline has passed and every answer is in the socket.
//! * **The library's own answers are withheld.** They have no body, and a client deserves a sentence.
//! * **Requests for shards are withheld.** The library sees the end of its input between two requests, and the connection goes
//!   back to a shard with the head that it never saw.

use super::client_stream::ClientStream;
use super::inbound::{Asked, Fault, Inbound, Next};
use super::key::Keys;
use super::places::{Phase, Place};
use arc_swap::ArcSwap;
use axum::http::StatusCode;
use bytes::{Buf, BytesMut};
use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep_until};

/// Time for a request's head, from its first byte.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for a request's body, from the end of its head.
pub(super) const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for a client to take an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Time a connection may wait for its next request.
pub(super) const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(60);
/// After a deadline, with input still unread: the runtime brings it with its next look at the sockets.
const UNREAD_INPUT_GRACE: Duration = Duration::from_secs(1);
/// Bytes read from the socket at a time.
const READ_BYTES: usize = 16 << 10;

/// Bytes of answers that all clients together may leave unread are counted in steps, so that short answers cost nothing.
const UNSENT_STEP_BYTES: usize = 64 << 10;

/// The memory for answers that wait for their readers, in steps.
#[derive(Clone, Debug)]
pub(super) struct Unsent(Arc<Semaphore>);

impl Unsent {
    /// The memory, of which nothing is taken.
    pub(super) fn new(bytes: u64) -> Self {
        let steps = usize::try_from(bytes).unwrap_or(usize::MAX) / UNSENT_STEP_BYTES;
        Self(Arc::new(Semaphore::new(steps.min(Semaphore::MAX_PERMITS))))
    }
}

/// A checked stream of requests, and of answers that are never lost.
#[derive(Debug)]
pub(super) struct RequestStream {
    stream: ClientStream,
    inbound: Inbound,
    /// What of an answer the socket has not taken.
    outbound: BytesMut,
    /// Its share of the memory for such bytes.
    share: Option<OwnedSemaphorePermit>,
    unsent: Unsent,
    /// Told of each phase, so that it is known who can make room for others.
    place: Arc<Place>,
    keys: Arc<ArcSwap<Keys>>,
    timer: Pin<Box<Sleep>>,
    /// Set when a deadline has passed and input was still unread.
    postponed_until: Option<Instant>,
    end: Option<End>,
    /// What may be the library's own answer to a head that it cannot read, and its status.
    withheld: Option<(StatusCode, Vec<u8>)>,
}

/// Why no further request is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The client has ended its side.
    Client,
    /// No further request came in time.
    Idle,
    /// The head of a request did not come in time.
    SlowHead,
    /// The body of a request did not come in time.
    SlowBody,
    /// The client did not take its answer in time.
    SlowReader,
    /// A request broke the rules.
    Fault(Fault),
    /// The next request is for a shard.
    ForShard,
}

impl RequestStream {
    /// `inbound` has what was read from the stream before.
    pub(super) fn new(
        stream: ClientStream,
        inbound: Inbound,
        place: Arc<Place>,
        keys: Arc<ArcSwap<Keys>>,
        unsent: Unsent,
    ) -> Self {
        Self {
            stream,
            inbound,
            outbound: BytesMut::new(),
            share: None,
            unsent,
            timer: Box::pin(sleep_until(deadline(&place))),
            place,
            keys,
            postponed_until: None,
            end: None,
            withheld: None,
        }
    }

    /// Why no further request is read; none while the library may still ask.
    pub(super) fn end(&self) -> Option<End> {
        self.end
    }

    /// The status of the library's own answer, if it was the last one. It will not be sent.
    pub(super) fn take_withheld(&mut self) -> Option<StatusCode> {
        self.withheld.take().map(|(status, _)| status)
    }

    /// True when the client has taken everything that was written so far.
    pub(super) fn is_flushed(&self) -> bool {
        self.outbound.is_empty()
    }

    /// The socket, for a last answer or none.
    pub(super) fn into_socket(self) -> ClientStream {
        self.stream
    }

    /// The socket, and what was read from it and is for a shard.
    pub(super) fn into_parts(self) -> (ClientStream, Vec<u8>) {
        (self.stream, self.inbound.into_received())
    }

    /// Waits until the client has taken everything.
    ///
    /// # Errors
    /// The connection is broken, or the client took too long.
    pub(super) async fn flushed(&mut self) -> io::Result<()> {
        self.release_withheld();
        poll_fn(|context| self.poll_answer_taken(context)).await
    }

    fn enter(&mut self, phase: Phase) {
        self.place.set_phase(phase);
        self.postponed_until = None;
    }

    /// An answer that looked like the library's own and is none, because it goes on.
    fn release_withheld(&mut self) {
        if let Some((_, bytes)) = self.withheld.take() {
            self.outbound.extend(bytes);
        }
    }

    /// Sends what the socket takes; ready when all is sent.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.outbound.is_empty() {
            let sent = ready!(Pin::new(&mut self.stream).poll_write(context, &self.outbound))?;
            self.outbound.advance(sent);
        }
        // With TLS the last record may wait for the socket.
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.forget_sent();
        Poll::Ready(Ok(()))
    }

    fn forget_sent(&mut self) {
        self.outbound = BytesMut::new();
        self.share = None;
    }

    /// Counts what the socket has not taken.
    ///
    /// # Errors
    /// All clients together leave too much unread: this one is let go.
    fn count_unsent(&mut self) -> io::Result<()> {
        let held = self.share.as_ref().map_or(0, |share| share.num_permits());
        let missing = (self.outbound.len() / UNSENT_STEP_BYTES).saturating_sub(held);
        if missing == 0 {
            return Ok(());
        }
        let missing = u32::try_from(missing).unwrap_or(u32::MAX);
        let Ok(more) = Arc::clone(&self.unsent.0).try_acquire_many_owned(missing) else {
            self.forget_sent();
            self.end = Some(End::SlowReader);
            return Err(io::Error::other("too many answers wait for their readers"));
        };
        match &mut self.share {
            Some(share) => share.merge(more),
            None => self.share = Some(more),
        }
        Ok(())
    }

    /// The same, for no longer than a client may take.
    fn poll_answer_taken(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Poll::Ready(sent) = self.poll_send(context) {
            return Poll::Ready(sent);
        }
        self.place.set_phase(Phase::Answering);
        ready!(self.poll_deadline(context));
        // The runtime may not know yet that the client has read on.
        if self.stream.send_now(&self.outbound) {
            self.forget_sent();
            return Poll::Ready(Ok(()));
        }
        self.end = Some(End::SlowReader);
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Ready when the phase has lasted for too long.
    fn poll_deadline(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let deadline = self
            .postponed_until
            .unwrap_or_else(|| deadline(&self.place));
        if self.timer.deadline() != deadline {
            self.timer.as_mut().reset(deadline);
        }
        self.timer.as_mut().poll(context)
    }

    /// Receives more, or finds out why no more comes.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut space = [MaybeUninit::uninit(); READ_BYTES];
        let mut read = ReadBuf::uninit(&mut space);
        if let Poll::Ready(received) = Pin::new(&mut self.stream).poll_read(context, &mut read) {
            received?;
            if read.filled().is_empty() {
                self.end = Some(End::Client);
            } else if !self.inbound.has_begun() {
                self.enter(Phase::Head);
            }
            self.inbound.extend(read.filled());
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_deadline(context));
        if self.stream.has_unread_input() {
            self.postponed_until = Some(Instant::now() + UNREAD_INPUT_GRACE);
            return self.poll_deadline(context).map(Ok);
        }
        self.end = Some(match self.place.phase().0 {
            Phase::Idle => End::Idle,
            Phase::Body => End::SlowBody,
            _ => End::SlowHead,
        });
        Poll::Ready(Ok(()))
    }

    /// Gives the library checked bytes, if there are some.
    fn give(&mut self, buffer: &mut ReadBuf<'_>) -> Result<Next, Fault> {
        let (place, keys) = (&self.place, &self.keys);
        let next = self.inbound.next(|head| {
            if Asked::of(head, &keys.load()).is_keyed {
                place.set_keyed();
            }
        })?;
        if let Next::Bytes(count) = next {
            let count = count.min(buffer.remaining());
            self.inbound.take(count, |bytes| buffer.put_slice(bytes));
            self.enter(if self.inbound.is_taken() {
                Phase::Working
            } else {
                Phase::Body
            });
        }
        Ok(next)
    }

    /// What the library reads behind the end: an error where it would wait for the rest of a body.
    fn read_behind(&self, end: End) -> io::Result<()> {
        match end {
            End::SlowBody => Err(io::ErrorKind::TimedOut.into()),
            End::Fault(Fault::Body(error)) => {
                Err(io::Error::new(io::ErrorKind::InvalidData, error))
            }
            _ => Ok(()),
        }
    }
}

fn deadline(place: &Place) -> Instant {
    let (phase, since) = place.phase();
    since
        + match phase {
            Phase::Idle => KEEP_ALIVE_TIMEOUT,
            Phase::Head => HEAD_TIMEOUT,
            Phase::Body => BODY_TIMEOUT,
            // Nothing is waited for while a request is worked on; the answer's time begins with its first delay.
            Phase::Working | Phase::Answering | Phase::Lingering => ANSWER_TIMEOUT,
        }
}

/// The status, if these bytes are an answer that the library made by itself: the client's error, and no word beside.
///
/// The router's refusals have a body, and the body's type.
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

impl AsyncRead for RequestStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Woken because the socket takes more, perhaps: a client may wait for 100 Continue.
        if let Poll::Ready(Err(error)) = self.poll_send(context) {
            return Poll::Ready(Err(error));
        }
        loop {
            if let Some(end) = self.end {
                return Poll::Ready(self.read_behind(end));
            }
            match self.give(buffer) {
                Ok(Next::Bytes(_)) => return Poll::Ready(Ok(())),
                Ok(Next::Missing) => ready!(self.poll_receive(context))?,
                Ok(Next::Whole) => {
                    // Asked for the next request: the one before has its answer.
                    self.release_withheld();
                    ready!(self.poll_answer_taken(context))?;
                    self.inbound.begin_next();
                    let has_begun = self.inbound.has_begun();
                    self.enter(if has_begun { Phase::Head } else { Phase::Idle });
                }
                // To the library it looks as if the client had ended a kept connection: it gives it up without an error.
                Ok(Next::ForShard) => self.end = Some(End::ForShard),
                Err(fault) => self.end = Some(End::Fault(fault)),
            }
        }
    }
}

impl AsyncWrite for RequestStream {
    /// Takes everything: the library may not come back to write what is left.
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.release_withheld();
        if let Some(status) = automatic_status(bytes) {
            self.withheld = Some((status, bytes.to_vec()));
            return Poll::Ready(Ok(bytes.len()));
        }
        self.outbound.extend_from_slice(bytes);
        if self.poll_send(context)?.is_pending() {
            self.count_unsent()?;
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.poll_send(context) {
            Poll::Ready(sent) => Poll::Ready(sent),
            Poll::Pending => Poll::Ready(Ok(())),
        }
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
    fn only_a_silent_refusal_is_the_librarys() {
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
