//! What a home is asked about streams, and what it answers.

use super::{Appender, Producer, ProducerPosition, StreamExpiry};
use crate::{Asker, Content, Kept, Permit, Position, StreamPart};
use myriad_wire::streams::{MediaType, StreamOffset};
use std::sync::Arc;
use std::time::Duration;

/// Somebody creates, changes or looks at a stream.
#[derive(Debug)]
pub struct StreamRequest {
    /// The channel's name.
    pub channel: Box<str>,
    /// Who asks.
    pub asker: Asker,
    /// What it wants.
    pub command: StreamCommand,
}

/// What is to be done with a stream.
#[derive(Debug)]
pub enum StreamCommand {
    /// Create it, unless it exists like that.
    Create(CreateStream),
    /// Append to it, close it, or both at once.
    Append(AppendToStream),
    /// Say what it is. It does not count as a use.
    Describe,
    /// End it, with everything that it keeps.
    Delete,
}

impl StreamCommand {
    /// What it appends.
    #[must_use]
    pub fn entries(&self) -> &[StreamEntry] {
        match self {
            Self::Create(create) => &create.entries,
            Self::Append(append) => &append.entries,
            Self::Describe | Self::Delete => &[],
        }
    }
}

/// A stream to create.
#[derive(Debug)]
pub struct CreateStream {
    /// Its content type.
    pub content_type: MediaType,
    /// When it ends by itself.
    pub expiry: StreamExpiry,
    /// For [`StreamExpiry::At`]: the time until then.
    pub expires_in: Duration,
    /// Nothing can be appended later.
    pub is_closed: bool,
    /// What it has from its beginning on.
    pub entries: Vec<StreamEntry>,
}

/// What is appended to a stream, all of it or nothing.
#[derive(Debug)]
pub struct AppendToStream {
    /// Must be the stream's; not looked at if there are no entries.
    pub content_type: MediaType,
    /// One publication each, in their order. None: the stream is only closed.
    pub entries: Vec<StreamEntry>,
    /// Who appends it: its producer and its `stream_seq` are other ones for others.
    pub by: Appender,
    /// Recognises what was appended before.
    pub producer: Option<Producer>,
    /// Must come after the last one by its bytes: the application's after the application's, a client's after one of any client.
    pub stream_seq: Option<Box<str>>,
    /// Nothing can be appended later.
    pub closes: bool,
}

/// Data on its way into a stream.
#[derive(Debug)]
pub struct StreamEntry {
    /// What it says.
    pub content: Arc<Content>,
    /// Its share of the limit of publication bytes; goes back when the publication is dropped.
    pub permit: Permit,
}

/// What a stream is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamState {
    /// Its content type.
    pub content_type: MediaType,
    /// The position after its last publication.
    pub tail: Position,
    /// The earliest position from which everything is kept.
    pub earliest: Position,
    /// When it ends by itself.
    pub expiry: StreamExpiry,
    /// Whether nothing can be appended any more.
    pub is_closed: bool,
}

/// The answer to a [`StreamRequest`].
pub type StreamAnswer = Result<StreamDone, StreamRefused>;

/// What was done with a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamDone {
    /// It is new.
    Created(StreamState),
    /// It was there already, just as it was to be created.
    Existed(StreamState),
    /// It has the data, and is closed if that was asked for.
    Appended {
        /// The stream now.
        state: StreamState,
        /// Where its producer is now, if one was named.
        producer: Option<ProducerPosition>,
        /// Publications that are new.
        count: usize,
    },
    /// It had the data, and the end, already.
    Repeated {
        /// The stream now.
        state: StreamState,
        /// Where its producer is now, if one was named.
        producer: Option<ProducerPosition>,
    },
    /// What it is.
    Described(StreamState),
    /// It is no more.
    Deleted,
}

/// Why nothing was done with a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamRefused {
    /// There is no such stream.
    NotFound,
    /// This home has not read the log of its channel up to the end yet.
    Behind,
    /// The channel has no history, so it cannot be a stream.
    NoHistory,
    /// It exists, and is another one than was to be created.
    Differs(StreamState),
    /// It is closed.
    Closed(StreamState),
    /// It has another content type.
    ContentType(StreamState),
    /// The `Stream-Seq` does not come after this one.
    StreamSeq {
        /// The last one that was taken.
        last: Box<str>,
    },
    /// The producer has a later epoch: another instance of it has taken over.
    StaleProducer {
        /// The epoch that it has.
        epoch: u64,
    },
    /// A producer's epoch must begin with sequence number 0.
    ProducerBegin,
    /// Something is missing before this sequence number.
    ProducerGap {
        /// The next one that would be taken.
        expected: u64,
        /// The one that came.
        received: u64,
    },
}

/// From where a stream is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFrom {
    /// The earliest position that is kept.
    Start,
    /// The tail: what is kept is left out.
    Now,
    /// A position that an answer told.
    After(StreamOffset),
}

/// Somebody reads a stream. It counts as a use.
#[derive(Clone, Debug)]
pub struct ReadStream {
    /// The channel.
    pub channel: Box<str>,
    /// Who asks.
    pub asker: Asker,
    /// From where.
    pub from: ReadFrom,
    /// Bytes at most, by [`Content::bytes`]; the first publication may be larger.
    pub bytes_max: usize,
    /// Publications at most.
    pub publications_max: u32,
}

/// The answer to a [`ReadStream`]. What is published after `page.tail` is delivered after the answer to every shard that has joined,
/// except that a batch may repeat some of it.
pub type StreamRead = Result<StreamPage, ReadRefused>;

/// A piece of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamPage {
    /// The stream.
    pub state: StreamState,
    /// Where the page begins: everything after it follows.
    pub start: Position,
    /// What is kept after `start`, with consecutive offsets.
    pub publications: Vec<Kept>,
    /// Where the next page begins.
    pub next: Position,
}

impl StreamPage {
    /// What its reader is told.
    #[must_use]
    pub fn part(&self) -> StreamPart<'_> {
        StreamPart {
            media_type: &self.state.content_type,
            epoch: self.start.epoch,
            from: self.start.offset,
            to: self.next.offset,
            is_up_to_date: self.is_at_tail(),
            is_closed: self.is_end(),
        }
    }

    /// Whether nothing is kept after this page.
    #[must_use]
    pub fn is_at_tail(&self) -> bool {
        self.next == self.state.tail
    }

    /// Whether nothing will ever come after this page.
    #[must_use]
    pub fn is_end(&self) -> bool {
        self.state.is_closed && self.is_at_tail()
    }
}

/// Why a stream was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadRefused {
    /// There is no such stream.
    NotFound,
    /// History no longer has what follows the position, or the position is of an earlier stream of the same name. The way on is
    /// `earliest`.
    Unrecoverable(StreamState),
    /// No stream of this name has given out the position yet.
    InvalidOffset,
    /// Another node may have given it out, and this home has not read so far.
    Behind,
}
