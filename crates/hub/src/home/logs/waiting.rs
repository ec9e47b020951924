//! Questions that wait until a log has been read further.

use super::super::{ReadHistory, ReadStream, Recover, StreamRequest};
use crate::{Asker, Ticket};
use myriad_wheel::{Key, Tick};
use std::collections::HashMap;

/// Questions that wait for a log before those are looked for that nobody waits for any more.
const WAITING_MIN: usize = 1_024;
/// The control plane waits for no answer so long.
const CONTROL_PATIENCE_MS: u64 = 60_000;

/// A question that waits until its log has been read further.
#[derive(Debug)]
pub(in super::super) enum Question {
    Recover(Recover),
    History(ReadHistory),
    Stream(StreamRequest),
    ReadStream(ReadStream),
}

impl Question {
    /// Whether it asks what a history has.
    pub(super) fn is_about_history(&self) -> bool {
        matches!(self, Self::History(_) | Self::ReadStream(_))
    }

    fn asker(&self) -> Asker {
        match self {
            Self::Recover(request) => Asker::Session(request.ticket),
            Self::History(request) => request.asker,
            Self::Stream(request) => request.asker,
            Self::ReadStream(request) => request.asker,
        }
    }

    /// Who asks, if it is a connection.
    fn ticket(&self) -> Option<Ticket> {
        match self.asker() {
            Asker::Session(ticket) => Some(ticket),
            Asker::Control(_) => None,
        }
    }

    /// Whose command it is, if it is a command of a client.
    pub(super) fn command(&self) -> Option<Ticket> {
        let is_command = matches!(self, Self::Recover(_) | Self::History(_));
        self.ticket().filter(|_| is_command)
    }
}

#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) question: Question,
    pub(super) since: Tick,
}

/// Questions in the order in which they came. A log may stay away for hours, and clients come, ask and go.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) waiting: Vec<Waiting>,
    /// At how many those are looked for that nobody waits for.
    sweep_at: usize,
}

impl Queue {
    pub(super) fn push(&mut self, one: Waiting) {
        if self.waiting.len() >= self.sweep_at.max(WAITING_MIN) {
            self.sweep(one.since);
            // So that each question pays for its own part of a sweep.
            self.sweep_at = 2 * self.waiting.len();
        }
        self.waiting.push(one);
    }

    /// Whether a client waits for an answer.
    pub(super) fn has_clients(&self) -> bool {
        let mut waiting = self.waiting.iter();
        waiting.any(|one| one.question.ticket().is_some())
    }

    /// Drops what was asked by clients whose connections have become others', and by requests that have ended. What is left is
    /// bounded by the connections that there may be.
    fn sweep(&mut self, now: Tick) {
        let mut newest = HashMap::new();
        for ticket in self.waiting.iter().filter_map(|one| one.question.ticket()) {
            let Key { index, generation } = ticket.connection;
            newest.insert((ticket.shard, index), generation);
        }
        self.waiting.retain(|one| match one.question.ticket() {
            Some(Ticket {
                shard,
                connection: Key { index, generation },
                ..
            }) => newest.get(&(shard, index)) == Some(&generation),
            None => one.since.plus_ms(CONTROL_PATIENCE_MS) > now,
        });
    }
}
