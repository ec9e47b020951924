//! What a log says.

use super::super::Submission;
use super::LogId;
use crate::Epoch;
use std::sync::Arc;
use std::time::Duration;

/// What a home reads next in a log.
#[derive(Debug)]
pub struct LogEntry {
    /// The log.
    pub log: LogId,
    /// The channel, if it is read by itself: then all of this is about it alone.
    pub channel: Option<Arc<str>>,
    /// The place in the log. Entries up to the offset of an earlier entry are ignored, unless the log begins.
    pub offset: u64,
    /// What stands there.
    pub event: LogEvent,
}

/// What a log says.
#[derive(Debug)]
pub enum LogEvent {
    /// What follows is of this epoch. Whatever is known of another one has gone, and the home has to catch up (again).
    Began(Epoch),
    /// All that was in the log when the home began to read it has come, and all that was in it by then. (A log that keeps so many
    /// publications of a channel may drop one unread for one that comes meanwhile: the home must have seen both.) What has an
    /// offset up to `floor` may be missing.
    CaughtUp {
        /// The last offset that may be missing.
        floor: u64,
    },
    /// Histories have no holes any more: what was missing up to `floor` has gone from them.
    Whole,
    /// A publication, and how old it is.
    Publication(Box<Submission>, Duration),
    /// A channel's history is removed up to here.
    Removed {
        /// The channel.
        channel: Box<str>,
        /// The place of its last publication before that, or of one that it had removed already; none if the log does not say it. Whoever
        /// has seen that one has missed nothing.
        behind: Option<u64>,
    },
    /// A message to a channel that this node cannot read, or has no room for. Its subscribers must not miss it in silence.
    LostIn(Box<str>),
    /// Nothing that a channel is told.
    Passed,
    /// The log has given out this place so long ago at most, and to no channel.
    Beat(Duration),
    /// The node hears the log from now on, or not: then the log may say more than homes know.
    Heard(bool),
    /// What stood between the last offset and this one has gone before it was read.
    Lost,
}
