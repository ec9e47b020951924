//! What is to be done for the channels of a log, and what comes of it.

use myriad_hub::LogEvent;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Counts how often the node began to listen. Answers to questions of an earlier life are of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life(pub(super) u64);

/// A question for the last messages of channels.
#[derive(Clone, Debug)]
pub struct Asked {
    /// In which life it was asked.
    pub life: Life,
    /// Which channels.
    pub channels: Vec<Arc<str>>,
    /// Only a server that has everything up to here may answer.
    pub at_least: u64,
    /// Nothing waits for the answer, so the question is dropped if nobody answers.
    pub may_fail: bool,
}

/// What a channel lacks.
#[derive(Clone, Debug)]
pub struct Fill {
    /// In which life it was asked for.
    pub life: Life,
    /// The channel.
    pub channel: Arc<str>,
    /// The first place of what is to be read.
    pub from: u64,
    /// The last place: a message stands there, or has gone for a later one.
    pub to: u64,
    /// Of the channel's time since it was wanted.
    pub(super) serial: u64,
}

/// What was read for a [`Fill`].
#[derive(Debug)]
pub struct Filled<M> {
    /// The messages of the channel from [`Fill::from`] on, by their places.
    pub messages: Vec<(u64, M)>,
    /// The log's first entry, asked for after they were read: what came before it may have gone.
    pub first: u64,
    /// Messages between [`Fill::from`] and the first of these may have gone unread.
    pub is_cut: bool,
    /// The first of them took the place of all before it: that is how a history is removed.
    pub begins_with_rollup: bool,
}

impl<M> Filled<M> {
    pub(super) fn begin(&self) -> Option<u64> {
        self.messages.first().map(|(sequence, _)| *sequence)
    }

    /// Whether the log had no need to drop one of these, or of those before them, for a newer one.
    pub(super) fn is_whole(&self, kept_min: usize) -> bool {
        !self.is_cut && self.messages.len() < kept_min
    }
}

/// What is to be done.
#[derive(Debug)]
pub enum Task<M> {
    /// Subscribe to a channel.
    Subscribe(Arc<str>),
    /// End the subscription.
    Unsubscribe(Arc<str>),
    /// Ask the log's leader how far the log goes, behind all subscriptions.
    Fence,
    /// Ask for last messages.
    Ask(Asked),
    /// Read a channel's messages.
    Fill(Fill),
    /// Tell the channel's home.
    Tell {
        /// The channel.
        channel: Arc<str>,
        /// The place in the log.
        offset: u64,
        /// What it is told.
        event: ChannelEvent<M>,
    },
    /// The log does not have what was heard of it. Open it anew.
    Suspect,
}

/// What a channel's home is told.
#[derive(Debug)]
pub enum ChannelEvent<M> {
    /// A message.
    Message(M),
    /// Something else.
    Log(LogEvent),
}

/// Where the last messages of some channels stand, and how far the server has got that says so.
#[derive(Clone, Debug)]
pub struct LastByChannel {
    /// All that was stored up to here is counted.
    pub watermark: u64,
    /// The log's first entry when this was asked.
    pub first: u64,
    /// The place of the last message of each channel that has one.
    pub places: BTreeMap<Arc<str>, u64>,
}
