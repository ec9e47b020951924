//! How far a home has read its logs, and what that means for their channels.

use super::super::Home;
use super::LogId;
use crate::{Epoch, Position};
use std::sync::Arc;

/// How far a home has read a log.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// None before the log begins.
    pub(super) epoch: Option<Epoch>,
    /// Whether all has come that was in the log when the home began to read it.
    pub(super) is_caught_up: bool,
    /// Whether histories have all that came between what they have. Who reads them waits for that.
    pub(super) is_whole: bool,
    /// The node does not hear the log now: more may be in it.
    pub(super) is_deaf: bool,
    /// The last offset that was read.
    pub(super) offset: u64,
    /// The last offset that may be missing in every channel.
    pub(super) floor: u64,
    /// The last offset that may be missing in channels whose record was forgotten.
    pub(super) forgotten: u64,
}

impl Home {
    /// The epoch and the offset of what has been read of a channel's source. Before it begins, they are no position.
    pub(in super::super) fn read_position(&self, log: LogId, channel: &str) -> Position {
        let Progress { epoch, offset, .. } = self.logs.of_either(log, channel);
        let epoch = epoch.unwrap_or(self.settings.epoch);
        Position { epoch, offset }
    }

    /// The last offset that may be missing in every channel of a record's source.
    pub(in super::super) fn floor_of(&self, index: u32) -> u64 {
        let record = &self.channels[index];
        let log = record.log();
        log.map_or(0, |log| self.logs.of_either(log, &record.name).floor)
    }

    /// Where the history of a new record begins.
    pub(in super::super) fn begin_of(&self, log: LogId, channel: &str) -> u64 {
        self.logs.of_either(log, channel).forgotten
    }

    /// The record of a channel goes, whose history ended there.
    pub(in super::super) fn note_forgotten_offset(
        &mut self,
        log: LogId,
        channel: &Arc<str>,
        lost: u64,
    ) {
        let source = self.logs.source_of(log, Arc::clone(channel));
        if let Some(known) = self.logs.of_mut(&source) {
            known.forgotten = known.forgotten.max(lost);
        }
    }

    /// Whether publications of a channel without a place in its log are of no use yet.
    pub(in super::super) fn is_catching_up(&self, channel: &str) -> bool {
        let log = self.log_of(channel);
        log.is_some_and(|log| !self.logs.of_either(log, channel).is_caught_up)
    }
}
