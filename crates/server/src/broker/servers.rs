//! What this node asks of the servers that keep its logs.
//!
//! [`super::jetstream`] asks NATS. The servers of the tests' simulator lose, delay and repeat what they are asked, change their leader,
//! and come back without the end of a log.

use super::link::{BrokerError, Log};
use async_nats::Subject;
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use myriad_broker::{Envelope, Extent, Header, Previous, Unreadable};
use myriad_nats::raw::{Headers, Sid};
use myriad_shard::Told;
use std::collections::HashMap;
use std::fmt::{Debug, Display};
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;
use thiserror::Error;
use tokio::task::unconstrained;
use tokio::time::Instant;

/// Subjects whose last messages are asked for at once: JetStream answers for 1,024 at most.
pub(super) const SUBJECTS_ASKED_MAX: usize = 1_000;

/// A feed has a heartbeat every 5 s, if it has nothing else.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(11);

/// The connection by which a message is looked for.
///
/// Each has its own: an answer that is late on one holds up nobody on the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The publisher's: it looks for the message before a publication with a version, and for epochs.
    Publishing,
    /// The reader's: streams and their messages are asked about by it.
    Reading,
}

/// A part of what a node hears of a stream, or asks, by connections of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The messages of the stream.
    Feed,
    /// What is asked about it.
    Questions,
}

/// A message as it stands in a stream.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) sequence: u64,
    /// When it was stored, by the servers' clock: ns since 1970.
    pub(super) stored_ns: i128,
    pub(super) subject: Subject,
    pub(super) headers: Option<Headers>,
    pub(super) payload: Bytes,
    /// Its headers cannot be parsed or have a status, or its payload cannot be read.
    pub(super) is_spoiled: bool,
}

impl Stored {
    /// Keeps nothing of the piece of memory in which it came, with others: it may be held for long.
    pub(super) fn detach(&mut self) {
        self.subject = Subject::from(&*self.subject);
        self.payload = Bytes::copy_from_slice(&self.payload);
    }

    /// The value of one of its headers.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.as_ref()?.get(name)
    }

    /// What it says.
    ///
    /// # Errors
    /// A header of ours has something else in it.
    pub(super) fn envelope(&self) -> Result<Envelope, Unreadable> {
        let headers = self.headers.iter().flat_map(Headers::iter);
        Envelope::read(headers, &self.payload)
    }
}

/// A message that is looked for in a stream.
#[derive(Clone, Copy, Debug)]
pub(super) enum Which<'a> {
    /// The first one from a place on.
    From(u64),
    /// The first one of a subject from a place on.
    OfFrom(&'a str, u64),
    /// The last one of a subject.
    LastOf(&'a str),
}

/// A message that is to be stored.
#[derive(Clone, Debug, Default)]
pub(super) struct ToStore {
    pub(super) subject: String,
    pub(super) headers: Vec<Header>,
    pub(super) payload: Bytes,
    /// Of two messages with one id the stream takes one.
    pub(super) id: Option<String>,
    /// It is stored only if this is the last message of its subject (0: there is none).
    pub(super) behind: Option<u64>,
}

/// A message is stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ack {
    pub(super) sequence: u64,
    /// It was not there before under the same id.
    pub(super) is_new: bool,
}

/// Why a message is not stored, as far as this node knows.
#[derive(Debug, Error)]
pub(super) enum NotStored {
    #[error("another message came first")]
    Overtaken,
    /// It never will be.
    #[error("{0}")]
    Refused(String),
    /// It may have been. The same message may be stored again.
    #[error("{0}")]
    Unknown(String),
}

/// Why a feed ended, or a message could not be looked at.
#[derive(Debug, Error)]
pub(super) enum FeedError {
    #[error("it cannot be followed: {0}")]
    Make(String),
    #[error("the consumer ended: {0}")]
    Ended(String),
    #[error("messages were lost on their way")]
    Hole,
    #[error("the stream goes back to what has been read")]
    Back,
    #[error("the connection was lost")]
    Cut,
    #[error("the consumer has been silent for {0} s")]
    Silent(u64),
    /// The place of a message.
    #[error("nothing comes, though the stream has stored a message of this node at place {0}")]
    Stuck(u64),
    #[error("a message cannot be looked at: {0}")]
    Look(String),
    #[error("the stream cannot be looked at: {0}")]
    Info(String),
    /// The place of a message.
    #[error("the stream ends before place {0}, where it has stored a message of this node")]
    Short(u64),
}

impl FeedError {
    pub(super) fn make(error: &dyn Display) -> Self {
        Self::Make(error.to_string())
    }

    pub(super) fn look(error: &dyn Display) -> Self {
        Self::Look(error.to_string())
    }
}

/// The messages of a stream in their order, from a place on.
pub(super) trait Feed: Send {
    /// The next message.
    ///
    /// # Errors
    /// Something was lost.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Stored, FeedError>>;

    /// When the last message was taken from it. It has heartbeats, which are none for the owner.
    fn heard(&self) -> Instant;
}

impl dyn Feed + '_ {
    /// Whether nothing was taken from it for too long. What has come meanwhile is still to be had.
    pub(super) fn is_silent(&self) -> bool {
        self.heard().elapsed() > SILENCE_MAX
    }

    /// The next message. May be given up while it waits.
    ///
    /// # Errors
    /// Something was lost.
    pub(super) async fn next(&mut self) -> Result<Stored, FeedError> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// The next message if it has come.
    ///
    /// # Errors
    /// Something was lost.
    pub(super) fn next_now(&mut self) -> Result<Option<Stored>, FeedError> {
        unconstrained(self.next()).now_or_never().transpose()
    }
}

/// Where the last messages of some subjects stand.
#[derive(Debug)]
pub(super) struct LastBySubject {
    /// All that was stored up to here is counted.
    pub(super) watermark: u64,
    /// By subject; one without a message is left out.
    pub(super) places: HashMap<String, u64>,
}

/// How much a page may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageSize {
    pub(super) messages_max: usize,
    /// A page ends with the message that makes it so large, or larger.
    pub(super) bytes_max: usize,
}

impl PageSize {
    /// With one message more, of so many bytes; 0: as it is.
    pub(super) fn and_bytes(self, bytes: usize) -> Self {
        Self {
            messages_max: self.messages_max + usize::from(bytes > 0),
            bytes_max: self.bytes_max + bytes,
        }
    }
}

/// Messages of one subject, in their order.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) messages: Vec<Stored>,
    /// Whether the subject has more behind them.
    pub(super) has_more: bool,
}

/// A message that came by itself.
#[derive(Debug)]
pub(super) struct HeardMessage {
    /// As it stands in the stream; it has the subject under which it stands there.
    pub(super) stored: Stored,
    /// What it says of the message of its subject before it.
    pub(super) previous: Previous,
}

/// What a listener hears.
#[derive(Debug)]
pub(super) enum Heard {
    Message(HeardMessage),
    /// The stream has dropped messages that this node had not read. Only where everything comes in order.
    Hole,
    /// The answer to [`Listener::ask_fence`]: what is stored behind this place comes for all that was subscribed before.
    Fence(u64),
}

/// Messages as they are stored. They come in the stream's order, if nothing fails. Where the stream republishes them, a fault may lose one,
/// repeat it, or make it late.
pub(super) trait Listener: Send {
    /// Wants the messages of a stored subject. What is stored before the next fence may not come. None if all subjects come anyway.
    fn subscribe(&mut self, subject: &str) -> Option<Sid>;

    /// Does not want them any more.
    fn unsubscribe(&mut self, sid: Sid);

    /// Asks for a place behind which everything comes that was subscribed before.
    fn ask_fence(&mut self);

    /// The next thing that is heard.
    ///
    /// # Errors
    /// The connection is lost, or silent: a new listener is needed.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Heard, FeedError>>;

    /// True if neither a message nor a heartbeat was taken for [`SILENCE_MAX`]. Some may wait here: take them before you believe it. Always
    /// false where there are no heartbeats.
    fn is_silent(&self) -> bool {
        false
    }
}

impl dyn Listener + '_ {
    /// The next thing that is heard. May be given up while it waits.
    ///
    /// # Errors
    /// The connection is lost, or silent.
    pub(super) async fn next(&mut self) -> Result<Heard, FeedError> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// The next thing if it has come.
    ///
    /// # Errors
    /// The connection is lost, or silent.
    pub(super) fn next_now(&mut self) -> Result<Option<Heard>, FeedError> {
        unconstrained(self.next()).now_or_never().transpose()
    }
}

/// The servers, and the connections to them.
pub(super) trait Servers: Debug + Send + Sync {
    /// Whether messages that streams keep reach them now, as far as this node knows.
    fn can_store(&self) -> bool;

    /// Whether messages that no stream keeps reach them now, as far as this node knows.
    fn can_send(&self) -> bool;

    /// Opens a log's stream: it is made if it is missing, and changed if it keeps too little, or has to republish
    /// ([`Log::needs_republish`]).
    ///
    /// # Errors
    /// It cannot be made, or is none of ours.
    fn open<'a>(&'a self, log: &'a Log) -> BoxFuture<'a, Result<Extent, BrokerError>>;

    /// What a log's stream has now.
    ///
    /// # Errors
    /// There is no answer.
    fn extent<'a>(&'a self, log: &'a Log) -> BoxFuture<'a, Result<Extent, FeedError>>;

    /// Follows a log's stream from a place on.
    ///
    /// # Errors
    /// No server can be reached, or none makes a consumer.
    fn follow<'a>(
        &'a self,
        log: &'a Log,
        first: u64,
    ) -> BoxFuture<'a, Result<Box<dyn Feed>, FeedError>>;

    /// Hears what a log's stream republishes, of the subjects that are wanted.
    ///
    /// # Errors
    /// The servers do not let us.
    fn listen<'a>(&'a self, log: &'a Log) -> BoxFuture<'a, Result<Box<dyn Listener>, FeedError>>;

    /// The last messages of some stored subjects, as one server of the stream has them: it may be behind. At most
    /// [`SUBJECTS_ASKED_MAX`] subjects.
    ///
    /// # Errors
    /// There is no answer.
    fn last_by_subject<'a>(
        &'a self,
        log: &'a Log,
        subjects: &'a [String],
    ) -> BoxFuture<'a, Result<LastBySubject, FeedError>>;

    /// Messages of a stored subject from a place on, as one server of the stream has them: it may be behind.
    ///
    /// # Errors
    /// There is no answer.
    fn page<'a>(
        &'a self,
        log: &'a Log,
        subject: &'a str,
        from: u64,
        size: PageSize,
    ) -> BoxFuture<'a, Result<Page, FeedError>>;

    /// A message as the stream's leader has it; none if there is none. It can be read whatever stands in it.
    ///
    /// # Errors
    /// There is no answer.
    fn look<'a>(
        &'a self,
        way: Way,
        log: &'a Log,
        which: Which<'a>,
    ) -> BoxFuture<'a, Result<Option<Stored>, FeedError>>;

    /// Stores a message in a log's stream.
    ///
    /// # Errors
    /// It was not stored, or nobody knows.
    fn store<'a>(&'a self, log: &'a Log, message: ToStore)
    -> BoxFuture<'a, Result<Ack, NotStored>>;

    /// Sends a message that no stream keeps. False if it has not left.
    fn send(&self, message: ToStore) -> BoxFuture<'_, bool>;

    /// The server says nothing by which this comes: another one is to be tried.
    fn leave_server(&self, log: &Log, part: Part);

    /// Tells the other nodes.
    fn tell(&self, told: Told);
}
