//! Questions that wait until a log has been read further.

use super::super::{Home, HomeEffect, ReadHistory, ReadStream, Recover, StreamRequest};
use super::Source;
use super::progress::Progress;
use crate::{Asker, Now, Ticket};
use myriad_wheel::{Key, Tick};
use std::collections::HashMap;
use std::sync::Arc;

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
    fn is_about_history(&self) -> bool {
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
struct Waiting {
    question: Question,
    since: Tick,
}

/// Questions in the order in which they came. A log may stay away for hours, and clients come, ask and go.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Vec<Waiting>,
    /// At how many those are looked for that nobody waits for.
    sweep_at: usize,
}

impl Queue {
    fn push(&mut self, one: Waiting) {
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

impl Home {
    /// What questions about a channel wait for: it was not read to its end yet.
    pub(in super::super) fn awaited_log(&self, channel: &str) -> Option<Source> {
        let log = self.log_of(channel)?;
        let Progress { is_caught_up, .. } = self.logs.of_either(log, channel);
        (!is_caught_up).then(|| self.logs.source_of(log, channel))
    }

    /// The same for a question about what a channel's history has.
    pub(in super::super) fn awaited_history(&self, channel: &str) -> Option<Source> {
        let log = self.log_of(channel)?;
        let Progress {
            is_caught_up,
            is_whole,
            ..
        } = self.logs.of_either(log, channel);
        (!is_caught_up || !is_whole).then(|| self.logs.source_of(log, channel))
    }

    /// Keeps a join for later if it waits for a log.
    pub(in super::super) fn holds_join(
        &mut self,
        channel: &Arc<str>,
        shard: usize,
        serial: u64,
        now: Now,
    ) -> bool {
        let Some(source) = self.awaited_log(channel) else {
            return false;
        };
        self.want(&source, now);
        let joins = self.logs.joins.entry(source).or_default();
        joins.insert((Arc::clone(channel), shard), serial);
        true
    }

    /// Whether a leave is of a join that waited for a log, or came before the log began anew: then there is nothing else to leave.
    pub(in super::super) fn holds_leave(&mut self, channel: &str, shard: usize) -> bool {
        let Some(source) = self.awaited_log(channel) else {
            return false;
        };
        if let Some(joins) = self.logs.joins.get_mut(&source) {
            joins.remove(&(Arc::<str>::from(channel), shard));
            if joins.is_empty() {
                self.logs.joins.remove(&source);
            }
        }
        true
    }

    /// Keeps a question for later if it waits for a log. Gives it back if it can be answered now.
    pub(in super::super) fn hold<T>(
        &mut self,
        awaited: Option<Source>,
        request: T,
        question: impl FnOnce(T) -> Question,
        now: Now,
    ) -> Option<T> {
        let Some(source) = awaited else {
            return Some(request);
        };
        self.want(&source, now);
        let question = question(request);
        self.tell_held(question.command());
        let since = now.tick();
        let queue = self.logs.queues.entry(source).or_default();
        queue.push(Waiting { question, since });
        None
    }

    /// A client's question waits here, perhaps for long: it is not to hold up those of others.
    pub(super) fn tell_held(&mut self, ticket: Option<Ticket>) {
        let held = ticket.map(|ticket| HomeEffect::Held { ticket });
        self.effects.extend(held);
    }

    /// A source is caught up, or whole: questions about its channels are handled in their order.
    pub(super) fn answer_waiting(&mut self, source: &Source, now: Now) {
        // Whoever asks for what it missed has joined before.
        let joins = self.logs.joins.remove(source).unwrap_or_default();
        for ((channel, shard), serial) in joins {
            self.handle_join(channel, shard, serial, now);
        }
        let Some(queue) = self.logs.queues.remove(source) else {
            return;
        };
        let is_whole = self.logs.of(source).is_whole;
        let mut early = Vec::new();
        for one in queue.waiting {
            if !is_whole && one.question.is_about_history() {
                early.push(one);
                continue;
            }
            match one.question {
                Question::Recover(request) => self.handle_recover(request, now),
                Question::History(request) => self.handle_history(request, now),
                Question::Stream(request) => self.handle_stream(request, now),
                Question::ReadStream(request) => self.handle_read_stream(request, now),
            }
        }
        if !early.is_empty() {
            let queue = self.logs.queues.entry(source.clone()).or_default();
            queue.waiting.extend(early);
        }
    }
}
