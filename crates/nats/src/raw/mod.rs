//! A small client for NATS, for very many subscriptions or very many messages over one connection.
//!
//! async-nats takes 4.9 KB for each subscription, and ends the connection at a subject or a header with a Unicode space. This client
//! keeps nothing for a subscription, and splits where the protocol says. It has no queue groups, no requests, and no reconnecting: what a
//! new connection is to hear, its owner knows best.
//!
//! [`Nats::connect_raw`](crate::Nats::connect_raw) gives a [`RawConnection`]. Its calls only add lines to what waits:
//! [`subscribe`](RawConnection::subscribe), [`unsubscribe`](RawConnection::unsubscribe), [`publish`](RawConnection::publish) and
//! [`publish_with_headers`](RawConnection::publish_with_headers). [`poll_next`](RawConnection::poll_next) does everything else: it writes,
//! reads, answers the server, asks it for signs of life, and gives messages. An owner that does not poll it for a minute loses the
//! connection, because the server is not answered.

mod connect;
mod credentials;
mod headers;
mod keep_alive;
mod link;
mod outgoing;
mod parse;
mod tls;

pub use headers::Headers;
pub use parse::{Op, Parser, ProtocolError};

use async_nats::Subject;
use bytes::Bytes;
use connect::Info;
pub(crate) use credentials::read_credentials;
use futures_util::FutureExt as _;
use keep_alive::{Due, KeepAlive, SILENCE_MAX};
use link::Link;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};
use thiserror::Error;
use tokio::task::unconstrained;

/// How a server says that we may not publish a message. It drops that, and lets the connection live.
const FORBIDDEN: &str = "Permissions Violation for Publish";

/// A connection to one NATS server.
///
/// It has ended after the first error, and every later call of [`RawConnection::poll_next`] says [`RawError::Ended`].
pub struct RawConnection {
    link: Link,
    keep_alive: KeepAlive,
    last_sid: Sid,
    /// A message that we may not publish does not end the connection.
    stays_when_forbidden: bool,
    /// What the server said last about such a message.
    forbidden: Option<RawError>,
    has_ended: bool,
}

/// Names a subscription of one connection. NATS calls it `sid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sid(pub u64);

impl fmt::Display for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A message of a subscription.
///
/// Its parts are pieces of the buffer that they were read to, of 64 KiB or more, which they keep in memory. Copy what is to be kept
/// for long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawMessage {
    /// What it was published to. Bytes that are no UTF-8 are replaced.
    pub subject: Subject,
    /// The subscription.
    pub sid: Sid,
    /// Where an answer is to be sent.
    pub reply: Option<Subject>,
    /// The block of headers, for [`Headers::parse`].
    pub headers: Option<Bytes>,
    /// The message itself.
    pub payload: Bytes,
}

/// A message has more bytes than its server takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("it has {bytes} bytes with its headers, and the servers take {bytes_max} (max_payload)")]
pub struct TooLarge {
    /// Bytes of the message with its headers.
    pub bytes: usize,
    /// Bytes that the server takes.
    pub bytes_max: usize,
}

/// Why a connection has ended.
#[derive(Debug, Error)]
pub enum RawError {
    /// The network failed.
    #[error("the connection to the NATS server broke: {0}")]
    Io(#[from] io::Error),
    /// The server closed the connection.
    #[error("the NATS server closed the connection")]
    Ended,
    /// The server sent nothing for 11 s, though it was asked.
    #[error("the NATS server has been silent for {} s", SILENCE_MAX.as_secs())]
    Silent,
    /// The server sent an error: its text. It ends the connection also where the server would let it live, as after a subscription
    /// that is not permitted: see [`RawError::forbidden_subject`].
    #[error("the NATS server says: {0}{hint}", hint = advice(.0))]
    Server(String),
    /// The server sent something that no NATS server sends.
    #[error("the NATS server sent what cannot be understood: {0}")]
    Protocol(#[from] ProtocolError),
}

impl RawConnection {
    fn over(link: Link) -> Self {
        Self {
            link,
            keep_alive: KeepAlive::start(),
            last_sid: Sid(0),
            stays_when_forbidden: false,
            forbidden: None,
            has_ended: false,
        }
    }

    /// Subscribes to a subject. Returns the id of the subscription: 1, 2 and so on.
    ///
    /// # Panics
    /// The subject is empty or contains a space or a control character of ASCII.
    pub fn subscribe(&mut self, subject: &str) -> Sid {
        assert_word(subject);
        self.last_sid.0 += 1;
        let sid = self.last_sid;
        self.link.outgoing.line(format_args!("SUB {subject} {sid}"));
        sid
    }

    /// Ends a subscription. Messages that are on their way still come.
    pub fn unsubscribe(&mut self, sid: Sid) {
        self.link.outgoing.line(format_args!("UNSUB {sid}"));
    }

    /// Publishes a message, behind all that was asked for before. A server refuses one that is larger than it is set to take, with an
    /// error.
    ///
    /// # Panics
    /// A subject is empty or contains a space or a control character of ASCII.
    pub fn publish(&mut self, subject: &str, reply: Option<&str>, payload: &[u8]) {
        assert_word(subject);
        let outgoing = &mut self.link.outgoing;
        match reply {
            Some(reply) => {
                assert_word(reply);
                outgoing.message(format_args!("PUB {subject} {reply}"), payload);
            }
            None => outgoing.message(format_args!("PUB {subject}"), payload),
        }
    }

    /// Publishes a message with headers, behind all that was asked for before, and has it answered to a subject.
    ///
    /// # Errors
    /// It has more bytes than the server takes, and does not leave: the server would end the connection over it.
    ///
    /// # Panics
    /// A subject is empty or contains a space or a control character of ASCII; or a header has the end of a line in it.
    pub fn publish_with_headers<'h>(
        &mut self,
        subject: &str,
        reply: &str,
        headers: impl IntoIterator<Item = (&'h str, &'h str)>,
        payload: &[u8],
    ) -> Result<(), TooLarge> {
        assert_word(subject);
        assert_word(reply);
        let headers = headers.into_iter().inspect(|(name, value)| {
            let has_end = |text: &str| text.contains(['\r', '\n']);
            assert!(!has_end(name) && !has_end(value), "{name} is one line");
        });
        let head = format_args!("HPUB {subject} {reply}");
        let bytes_max = self.link.max_payload;
        let outgoing = &mut self.link.outgoing;
        let added = outgoing.message_with_headers(head, headers, payload, bytes_max);
        added.map_err(|bytes| TooLarge { bytes, bytes_max })
    }

    /// Bytes that wait to be written.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.link.outgoing.waiting()
    }

    /// The servers of its cluster that the server knows, as HOST:PORT.
    #[must_use]
    pub fn found_servers(&self) -> &[String] {
        &self.link.found_servers
    }

    /// The id that the server gives itself.
    #[must_use]
    pub fn server_id(&self) -> &str {
        &self.link.server_id
    }

    /// From now on a message that we may not publish does not end the connection. [`RawConnection::take_forbidden`] tells of it.
    pub fn stay_when_forbidden(&mut self) {
        self.stays_when_forbidden = true;
    }

    /// What the server said last about a message that we may not publish; none if it has said nothing since this was asked.
    pub fn take_forbidden(&mut self) -> Option<RawError> {
        self.forbidden.take()
    }

    /// A subject for answers that nobody can guess.
    #[must_use]
    pub fn new_inbox(&self) -> String {
        format!("_INBOX.{:032x}", u128::from_ne_bytes(random()))
    }

    /// The next message. Writes what waits, and keeps the connection alive, while it is polled.
    ///
    /// # Errors
    /// The connection has ended, and why.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<RawMessage, RawError>> {
        if self.has_ended {
            return Poll::Ready(Err(RawError::Ended));
        }
        let heard = ready!(self.poll_message(context));
        self.has_ended = heard.is_err();
        Poll::Ready(heard)
    }

    /// The same. Nothing is lost if the future is dropped.
    ///
    /// # Errors
    /// The connection has ended, and why.
    pub async fn next(&mut self) -> Result<RawMessage, RawError> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// The next message if it has come. Writes what waits, too.
    ///
    /// # Errors
    /// The connection has ended, and why.
    pub fn next_now(&mut self) -> Result<Option<RawMessage>, RawError> {
        unconstrained(self.next()).now_or_never().transpose()
    }

    fn poll_message(&mut self, context: &mut Context<'_>) -> Poll<Result<RawMessage, RawError>> {
        loop {
            match self.link.poll_op(context)? {
                Poll::Ready(Op::Message(message)) => return Poll::Ready(Ok(message)),
                Poll::Ready(Op::Error(text))
                    if self.stays_when_forbidden && text.starts_with(FORBIDDEN) =>
                {
                    self.forbidden = Some(RawError::Server(text));
                }
                Poll::Ready(Op::Error(text)) => return Poll::Ready(Err(RawError::Server(text))),
                Poll::Ready(Op::Ping) => self.link.outgoing.line(format_args!("PONG")),
                Poll::Ready(Op::Info(info)) => {
                    if let Ok(info) = Info::parse(&info) {
                        self.link.note_info(info);
                    }
                }
                Poll::Ready(Op::Pong | Op::Ok) => {}
                Poll::Pending => match ready!(self.keep_alive.poll(context, self.link.heard_at)) {
                    Due::Ping => self.link.outgoing.line(format_args!("PING")),
                    Due::Silent => return Poll::Ready(Err(RawError::Silent)),
                },
            }
        }
    }
}

impl fmt::Debug for RawConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawConnection")
            .field("last_sid", &self.last_sid)
            .field("waiting_bytes", &self.link.outgoing.waiting())
            .field("has_ended", &self.has_ended)
            .finish_non_exhaustive()
    }
}

impl RawError {
    /// The subject that the server does not let us subscribe to, if that is the error.
    #[must_use]
    pub fn forbidden_subject(&self) -> Option<&str> {
        let Self::Server(text) = self else {
            return None;
        };
        let rest = text.strip_prefix("Permissions Violation for Subscription to \"")?;
        rest.split_once('"').map(|(subject, _)| subject)
    }
}

/// What to do about an error of a server.
fn advice(text: &str) -> &'static str {
    if text.starts_with("Permissions Violation") {
        "; permit it to our user in the servers' configuration"
    } else {
        ""
    }
}

/// A space or the end of a line would make other commands of our line.
#[track_caller]
fn assert_word(subject: &str) {
    let is_word = !subject.is_empty() && subject.bytes().all(|byte| byte > b' ');
    assert!(is_word, "{subject:?} can be written as one word");
}

/// Bytes that nobody can guess.
fn random<const BYTES: usize>() -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    aws_lc_rs::rand::fill(&mut bytes).expect("the machine has random bytes");
    bytes
}

#[cfg(test)]
mod tests;
