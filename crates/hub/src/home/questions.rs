//! What a home is asked, and what it answers.

use super::{ShardSet, StreamAnswer, StreamRead};
use crate::{Asker, Content, Delivery, Permit, Position, RecoveryMode, Ticket};
use std::sync::Arc;

/// Names a question of the control plane, so that its answer finds it. Plain data: whoever asks maps it to its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// Data on its way to become a publication.
#[derive(Debug)]
pub struct Submission {
    /// The channel's name.
    pub channel: Box<str>,
    /// What it says; one content may go to many channels.
    pub content: Arc<Content>,
    /// Its share of the limit of publication bytes; goes back when the publication is dropped.
    pub permit: Permit,
    /// Who is to be answered with its position; none where nobody asks.
    pub asker: Option<Asker>,
    /// The client that published it, where clients do not get their own publications.
    pub sender: Option<Ticket>,
    /// A later publication of the channel with the same key gets the position of the first, and is not published.
    pub idempotency_key: Option<Box<str>>,
    /// Subscribers who can read deltas may get it as one.
    pub delta: bool,
    /// History does not keep it: in a channel with history it takes no offset, and its position has the offset 0.
    pub skip_history: bool,
    /// The version of what it describes; 0: none. In a channel with history it is left out if the version before it was the same
    /// or a later one.
    pub version: u64,
    /// Versions of different epochs are not compared. Empty: of the epoch of the version before it.
    pub version_epoch: Box<str>,
}

/// A position as a client wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Since {
    /// The last offset it has seen.
    pub offset: u64,
    /// The epoch of the offset. Empty: any.
    pub epoch: Box<str>,
}

/// A subscriber comes back and asks for what it missed.
#[derive(Clone, Debug)]
pub struct Recover {
    /// The channel.
    pub channel: Arc<str>,
    /// Who asks.
    pub ticket: Ticket,
    /// What it has seen.
    pub since: Since,
    /// What it gets.
    pub mode: RecoveryMode,
    /// False if the client knows no position, and gets the newest publication only because its namespace says so
    /// (`auto_cache_recover`).
    pub is_asked: bool,
    /// Publications that it may get at most. One that missed more starts anew.
    pub max: u32,
}

/// The answer to [`Recover`].
#[derive(Clone, Debug)]
pub struct Recovered {
    /// Who asked.
    pub ticket: Ticket,
    /// The channel.
    pub channel: Arc<str>,
    /// The position of the channel's last publication. What the subscriber is given later comes after it.
    pub position: Position,
    /// What it missed, by ascending offset.
    pub publications: Result<Vec<Kept>, NotRecovered>,
}

/// Why a subscriber is not told what it missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotRecovered {
    /// History no longer has all of it.
    Lost,
    /// The home has read less of the channel than the subscriber. Nothing is known to be lost.
    Behind,
}

/// A publication that history keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its offset.
    pub offset: u64,
    /// What it says.
    pub content: Arc<Content>,
}

/// Somebody reads a channel's history.
#[derive(Clone, Debug)]
pub struct ReadHistory {
    /// The channel.
    pub channel: Box<str>,
    /// Who asks.
    pub asker: Asker,
    /// Publications at most; none: all.
    pub limit: Option<u32>,
    /// Only what comes after this position; in reverse, what comes before it.
    pub since: Option<Since>,
    /// The newest first.
    pub reverse: bool,
}

/// The answer to [`ReadHistory`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HistoryAnswer {
    /// What is kept.
    Page {
        /// The position of the channel's last publication.
        position: Position,
        /// In the order that was asked for.
        publications: Vec<Kept>,
    },
    /// The position in the question is of another epoch.
    Unrecoverable,
    /// The home has not read the channel up to its end yet.
    Behind,
}

/// What a home asks of its shard. Effects are carried out in the order in which they were polled.
#[derive(Debug)]
pub enum HomeEffect {
    /// Answer the publisher: its publication has this position.
    Published {
        /// The publisher.
        asker: Asker,
        /// Where the publication is in its channel's order.
        position: Position,
    },
    /// Answer the publisher: the channel is a stream that is closed, so nothing was published.
    PublishRefused {
        /// The publisher.
        asker: Asker,
    },
    /// Answer who created, changed or looked at a stream.
    Stream {
        /// Who asked.
        asker: Asker,
        /// What became of it.
        answer: Box<StreamAnswer>,
    },
    /// Answer the reader of a stream.
    StreamRead {
        /// The reader.
        asker: Asker,
        /// What the stream keeps.
        answer: Box<StreamRead>,
    },
    /// Answer a shard's join: it gets everything after `position`.
    Joined {
        /// The shard that asked.
        shard: usize,
        /// The channel.
        channel: Arc<str>,
        /// Names the shard's question.
        serial: u64,
        /// The position of the channel's last publication. A batch that waits may begin before it.
        position: Position,
    },
    /// Answers a shard's join: the home has not read the channel's log up to its end in time. Whoever waits for the join is to ask again.
    NotJoined {
        /// The shard that asked.
        shard: usize,
        /// The channel.
        channel: Arc<str>,
        /// Names the shard's question.
        serial: u64,
    },
    /// The question of a client is kept until a log was read further. Its answer comes later.
    Held {
        /// Who asked.
        ticket: Ticket,
    },
    /// Answer a subscriber that came back.
    Recovered(Recovered),
    /// Answer a reader of history.
    History {
        /// The reader.
        asker: Asker,
        /// What is kept.
        answer: HistoryAnswer,
    },
    /// Tell a client's shard that everything is delivered that was taken before it asked.
    Fenced {
        /// Who asked.
        ticket: Ticket,
        /// The channel.
        channel: Box<str>,
    },
    /// Answer who had a channel's history removed.
    HistoryRemoved {
        /// Who asked.
        asker: Asker,
    },
    /// Send something to every shard with a subscriber.
    Deliver {
        /// What is sent.
        delivery: Delivery,
        /// The shards; none if nobody has subscribed.
        shards: ShardSet,
    },
    /// Tell the application that a channel has its first subscriber.
    Occupied {
        /// The channel.
        channel: Arc<str>,
    },
    /// Tell the application that a channel has had no subscriber for the delay.
    Vacated {
        /// The channel.
        channel: Arc<str>,
    },
}
