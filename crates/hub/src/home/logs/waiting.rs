//! Questions and joins that wait until a log has been read further. None waits for longer than [`PATIENCE_MS`].

use super::super::{Home, HomeEffect, ReadHistory, ReadStream, Recover, StreamRequest};
use super::Source;
use super::progress::Progress;
use crate::{Asker, Now, Ticket};
use myriad_wheel::Tick;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How long somebody waits for a log, whatever for. An SDK gives up after 5 s, and its subscriptions wait together.
const PATIENCE_MS: u64 = 2_500;

/// When somebody who came then has waited long enough.
pub(super) fn deadline_of(since: Now) -> Tick {
    since.tick().plus_ms(PATIENCE_MS)
}

/// A question that waits until its log has been read further.
#[derive(Debug)]
pub(in super::super) enum Question {
    Recover(Recover),
    History(ReadHistory),
    Stream(StreamRequest),
    ReadStream(ReadStream),
}

impl Question {
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

    /// Whether it recovers what a shard has not joined.
    fn follows(&self, joins: &Joins) -> bool {
        let Self::Recover(Recover {
            channel, ticket, ..
        }) = self
        else {
            return false;
        };
        !joins.is_empty() && joins.contains_key(&(Arc::clone(channel), ticket.shard.into()))
    }

    /// Whose command it is, if it is a command of a client.
    pub(super) fn command(&self) -> Option<Ticket> {
        let is_command = matches!(self, Self::Recover(_) | Self::History(_));
        self.ticket().filter(|_| is_command)
    }
}

#[derive(Debug)]
struct Held {
    question: Question,
    since: Now,
}

#[derive(Debug)]
struct Join {
    serial: u64,
    since: Now,
}

/// Shards that join channels.
type Joins = BTreeMap<(Arc<str>, usize), Join>;

/// All that waits for sources that are not caught up, or not whole.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    joins: BTreeMap<Source, Joins>,
    /// In the order in which they came. They are no more than what was asked within [`PATIENCE_MS`].
    queues: BTreeMap<Source, Vec<Held>>,
    /// When somebody has waited long enough for a source. Some have been answered.
    deadlines: BTreeSet<(Tick, Source)>,
}

impl Waiting {
    pub(super) fn next_deadline(&self) -> Option<Tick> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    fn note_deadline(&mut self, source: &Source, since: Now) {
        self.deadlines.insert((deadline_of(since), source.clone()));
    }

    /// The next source for which somebody has waited long enough.
    fn take_overdue(&mut self, now: Tick) -> Option<Source> {
        let is_overdue = self.next_deadline().is_some_and(|deadline| deadline <= now);
        let overdue = is_overdue.then(|| self.deadlines.pop_first()).flatten();
        overdue.map(|(_, source)| source)
    }

    /// Whether a client or a shard waits for a source.
    pub(super) fn has_clients(&self, source: &Source) -> bool {
        let queue = self.queues.get(source);
        let mut held = queue.into_iter().flatten();
        self.joins.contains_key(source) || held.any(|held| held.question.ticket().is_some())
    }

    /// Nobody waits for a source any more.
    pub(super) fn drop_questions(&mut self, source: &Source) {
        self.queues.remove(source);
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
        self.logs.waiting.note_deadline(&source, now);
        let joins = self.logs.waiting.joins.entry(source).or_default();
        let since = now;
        joins.insert((Arc::clone(channel), shard), Join { serial, since });
        true
    }

    /// Whether a leave is of a join that waited for a log, or came before the log began anew: then there is nothing else to leave.
    pub(in super::super) fn holds_leave(&mut self, channel: &str, shard: usize) -> bool {
        let Some(source) = self.awaited_log(channel) else {
            return false;
        };
        if let Some(joins) = self.logs.waiting.joins.get_mut(&source) {
            joins.remove(&(Arc::<str>::from(channel), shard));
            if joins.is_empty() {
                self.logs.waiting.joins.remove(&source);
            }
        }
        true
    }

    /// Answers a question that came then, or keeps it if it waits for its log.
    pub(in super::super) fn ask(&mut self, question: Question, since: Now, now: Now) {
        if let Some(source) = self.awaited_by(&question) {
            return self.hold(source, question, since, now);
        }
        if let Some(question) = self.hold_ahead(question, since, now) {
            self.answer(question, now);
        }
    }

    /// Answers a question with what this home has read.
    pub(super) fn answer(&mut self, question: Question, now: Now) {
        match question {
            Question::Recover(request) => self.answer_recover(request, now),
            Question::History(request) => self.answer_history(&request, now),
            Question::Stream(request) => self.carry_out_stream(request, now),
            Question::ReadStream(request) => self.answer_read_stream(&request, now),
        }
    }

    fn awaited_by(&self, question: &Question) -> Option<Source> {
        match question {
            Question::Recover(_) | Question::Stream(_) => self.awaited_log(question.channel()),
            Question::History(_) | Question::ReadStream(_) => {
                self.awaited_history(question.channel())
            }
        }
    }

    fn hold(&mut self, source: Source, question: Question, since: Now, now: Now) {
        self.want(&source, now);
        self.tell_held(question.command());
        self.logs.waiting.note_deadline(&source, since);
        let queue = self.logs.waiting.queues.entry(source).or_default();
        queue.push(Held { question, since });
    }

    /// A client's question waits here, perhaps for long: it is not to hold up those of others.
    pub(super) fn tell_held(&mut self, ticket: Option<Ticket>) {
        let held = ticket.map(|ticket| HomeEffect::Held { ticket });
        self.effects.extend(held);
    }

    /// A source is caught up, or whole: questions about its channels are handled in their order.
    pub(super) fn answer_waiting(&mut self, source: &Source, now: Now) {
        // Whoever asks for what it missed has joined before.
        let joins = self.logs.waiting.joins.remove(source).unwrap_or_default();
        for ((channel, shard), join) in joins {
            self.handle_join(channel, shard, join.serial, now);
        }
        let queue = self.logs.waiting.queues.remove(source);
        for Held { question, since } in queue.unwrap_or_default() {
            self.ask(question, since, now);
        }
    }

    /// Tells those who have waited long enough that this home is behind.
    pub(super) fn end_waits(&mut self, now: Now) {
        while let Some(source) = self.logs.waiting.take_overdue(now.tick()) {
            self.end_waits_for(&source, now);
        }
    }

    fn end_waits_for(&mut self, source: &Source, now: Now) {
        let is_over = |since| deadline_of(since) <= now.tick();
        let mut refused = Joins::new();
        if let Some(joins) = self.logs.waiting.joins.get_mut(source) {
            refused.extend(joins.extract_if(.., |_, join| is_over(join.since)));
            if joins.is_empty() {
                self.logs.waiting.joins.remove(source);
            }
        }
        let mut ended = Vec::new();
        if let Some(queue) = self.logs.waiting.queues.get_mut(source) {
            // Whoever recovers is a member of what its shard joins, and ends with that.
            let taken = queue.extract_if(.., |held| {
                is_over(held.since) || held.question.follows(&refused)
            });
            ended.extend(taken);
            if queue.is_empty() {
                self.logs.waiting.queues.remove(source);
            }
        }
        for held in ended {
            self.answer_behind(held.question, now);
        }
        for ((channel, shard), Join { serial, .. }) in refused {
            self.effects.push_back(HomeEffect::NotJoined {
                shard,
                channel,
                serial,
            });
        }
    }
}
