//! Channels whose order is made elsewhere.
//!
//! A *log* has the order of all channels of a namespace that keep a history. Several homes read it, each on its node, and each
//! gives its subscribers what the log says. A publication's offset is its place in the log. So the offsets of one channel rise,
//! with holes, and what the home has read of the log is a position in each of its channels.
//!
//! A home that has not read a log up to its end yet answers nothing about its channels: questions wait. Later only a subscriber
//! waits who comes from a home that has read further.

use super::batch::Accepted;
use super::{Home, HomeEffect, ReadHistory, ReadStream, Recover, StreamRequest, Submission};
use crate::time::ticks;
use crate::{Asker, Delivery, Epoch, Now, Position, Ticket};
use myriad_wheel::{Key, Tick};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// How long a subscriber waits whose position this home has not read yet.
const AHEAD_MS: u64 = 4_000;
/// Subscribers that wait at a home for that reason. Others are answered at once, as those that have lost something.
const AHEAD_MAX: usize = 10_000;
/// Questions that wait for a log before those are looked for that nobody waits for any more.
const WAITING_MIN: usize = 1_024;
/// The control plane waits for no answer so long.
const CONTROL_PATIENCE_MS: u64 = 60_000;

/// Names a log: its index among those of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId(pub u16);

/// The logs of a namespace: each orders some of its channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partitions {
    /// The first of them; the others follow.
    pub first: LogId,
    /// How many there are; at least one.
    pub count: u16,
}

impl Partitions {
    /// One log for all channels.
    #[must_use]
    pub fn one(log: LogId) -> Self {
        Self {
            first: log,
            count: 1,
        }
    }

    /// The log of a channel. All nodes of a cluster must agree, whatever their versions are.
    #[must_use]
    pub fn of(self, channel: &str) -> LogId {
        if self.count == 1 {
            return self.first;
        }
        let partition = name_hash(channel) % u64::from(self.count);
        LogId(self.first.0 + u16::try_from(partition).expect("fewer than the count"))
    }

    /// All of them.
    pub fn iter(self) -> impl Iterator<Item = LogId> {
        (0..self.count).map(move |partition| LogId(self.first.0 + partition))
    }
}

/// A hash of a name that never changes: FNV-1a, with its halves mixed.
#[must_use]
pub fn name_hash(name: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, step);
    hash ^ hash >> 32
}

/// What a home reads next in a log.
#[derive(Debug)]
pub struct LogEntry {
    /// The log.
    pub log: LogId,
    /// The place in it. Entries up to the offset of an earlier entry are ignored, unless the log begins.
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
    Removed(Box<str>),
    /// A message to a channel that this node cannot read, or has no room for. Its subscribers must not miss it in silence.
    LostIn(Box<str>),
    /// Nothing that a channel is told.
    Passed,
    /// What stood between the last offset and this one has gone before it was read.
    Lost,
}

/// How far a home has read a log.
#[derive(Clone, Copy, Debug, Default)]
struct Log {
    /// None before the log begins.
    epoch: Option<Epoch>,
    /// Whether all has come that was in the log when the home began to read it.
    is_caught_up: bool,
    /// Whether histories have all that came between what they have. Who reads them waits for that.
    is_whole: bool,
    /// The last offset that was read.
    offset: u64,
    /// The last offset that may be missing in every channel.
    floor: u64,
    /// The last offset that may be missing in channels whose record was forgotten.
    forgotten: u64,
}

/// A question that waits until its log has been read further.
#[derive(Debug)]
pub(super) enum Question {
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
    fn command(&self) -> Option<Ticket> {
        let is_command = matches!(self, Self::Recover(_) | Self::History(_));
        self.ticket().filter(|_| is_command)
    }
}

#[derive(Debug)]
struct Waiting {
    log: LogId,
    question: Question,
    since: Tick,
}

/// Questions in the order in which they came. A log may stay away for hours, and clients come, ask and go.
#[derive(Debug, Default)]
struct Queue {
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

/// All logs of a home, and the questions that wait for them.
#[derive(Debug, Default)]
pub(super) struct Logs {
    logs: Box<[Log]>,
    /// Shards that join a channel of a log that is not caught up, with the serial of the question. Who leaves is no longer here, so
    /// these are no more than the channels with members.
    joins: BTreeMap<(LogId, Arc<str>, usize), u64>,
    /// For logs that are not caught up.
    queue: Queue,
    /// Subscribers who have seen more than this home, by their offsets, so that those are found at once whose entry has come. The
    /// last part of the key is different for each.
    ahead: BTreeMap<AheadKey, Recover>,
    /// When they are answered in any case. Some have been answered.
    deadlines: VecDeque<(Tick, AheadKey)>,
    /// Of the last one.
    ahead_serial: u64,
}

/// The log, the offset that a subscriber has seen, and a serial.
type AheadKey = (LogId, u64, u64);

impl Logs {
    pub(super) fn new(count: usize) -> Self {
        Self {
            logs: (0..count).map(|_| Log::default()).collect(),
            ..Self::default()
        }
    }

    fn of(&self, log: LogId) -> &Log {
        &self.logs[usize::from(log.0)]
    }

    fn of_mut(&mut self, log: LogId) -> &mut Log {
        &mut self.logs[usize::from(log.0)]
    }

    pub(super) fn next_deadline(&self) -> Option<Tick> {
        self.deadlines.front().map(|(deadline, _)| *deadline)
    }
}

impl Home {
    /// The log that orders a channel; none if this home does.
    pub(super) fn log_of(&self, channel: &str) -> Option<LogId> {
        if self.logs.logs.is_empty() {
            return None;
        }
        let logs = self.options_of(channel).logs;
        logs.map(|logs| logs.of(channel))
    }

    fn is_ordered_by(&self, channel: &str, log: LogId) -> bool {
        self.log_of(channel) == Some(log)
    }

    /// The next entry of a log. What it says about a channel of another log is left out.
    pub fn handle_log(&mut self, entry: LogEntry, now: Now) {
        let LogEntry { log, offset, event } = entry;
        if let LogEvent::Began(epoch) = event {
            self.begin_log(log, epoch, offset, now);
            return;
        }
        let known = self.logs.of_mut(log);
        if let LogEvent::CaughtUp { floor } = event {
            known.is_caught_up = true;
            known.offset = known.offset.max(offset).max(floor);
            known.floor = known.floor.max(floor);
            known.forgotten = known.forgotten.max(floor);
            return self.answer_waiting(log, now);
        }
        if let LogEvent::Whole = event {
            known.is_whole = true;
            return self.answer_waiting(log, now);
        }
        if offset <= known.offset {
            return;
        }
        known.offset = offset;
        match event {
            LogEvent::Publication(submission, age)
                if self.is_ordered_by(&submission.channel, log) =>
            {
                self.publish_numbered(*submission, offset, age, now);
            }
            LogEvent::Removed(channel) if self.is_ordered_by(&channel, log) => {
                self.remove_up_to(&channel, offset, now);
            }
            LogEvent::LostIn(channel) if self.is_ordered_by(&channel, log) => {
                self.lose_channel(&channel, log, now);
            }
            LogEvent::Lost => self.lose_channels(log, now),
            // Somebody may have written about a channel in a log that is not the channel's.
            LogEvent::Publication(..)
            | LogEvent::Removed(_)
            | LogEvent::LostIn(_)
            | LogEvent::Passed
            | LogEvent::Began(_)
            | LogEvent::CaughtUp { .. }
            | LogEvent::Whole => {}
        }
        self.answer_ahead(log, now);
    }

    /// The epoch and the offset of what has been read of a log. Before it begins, they are no position.
    pub(super) fn read_position(&self, log: LogId) -> Position {
        let Log { epoch, offset, .. } = *self.logs.of(log);
        let epoch = epoch.unwrap_or(self.settings.epoch);
        Position { epoch, offset }
    }

    /// The last offset that may be missing in every channel of a record's log.
    pub(super) fn floor_of(&self, index: u32) -> u64 {
        let log = self.channels[index].log();
        log.map_or(0, |log| self.logs.of(log).floor)
    }

    /// Where the history of a new record begins.
    pub(super) fn begin_of(&self, log: LogId) -> u64 {
        self.logs.of(log).forgotten
    }

    /// The record of a channel goes, whose history ended there.
    pub(super) fn note_forgotten_offset(&mut self, log: LogId, lost: u64) {
        let known = self.logs.of_mut(log);
        known.forgotten = known.forgotten.max(lost);
    }

    /// Whether publications of a channel without a place in its log are of no use yet.
    pub(super) fn is_catching_up(&self, channel: &str) -> bool {
        self.awaited_log(channel).is_some()
    }

    /// The log that questions about a channel wait for: it was not read to its end yet.
    pub(super) fn awaited_log(&self, channel: &str) -> Option<LogId> {
        self.log_of(channel)
            .filter(|log| !self.logs.of(*log).is_caught_up)
    }

    /// The same for a question about what a channel's history has.
    pub(super) fn awaited_history(&self, channel: &str) -> Option<LogId> {
        let log = self.log_of(channel)?;
        let Log {
            is_caught_up,
            is_whole,
            ..
        } = *self.logs.of(log);
        (!is_caught_up || !is_whole).then_some(log)
    }

    /// Keeps a join for later if it waits for a log.
    pub(super) fn holds_join(&mut self, channel: &Arc<str>, shard: usize, serial: u64) -> bool {
        let Some(log) = self.awaited_log(channel) else {
            return false;
        };
        let join = (log, Arc::clone(channel), shard);
        self.logs.joins.insert(join, serial);
        true
    }

    /// Whether a leave is of a join that waited for a log, or came before the log began anew: then there is nothing else to leave.
    pub(super) fn holds_leave(&mut self, channel: &str, shard: usize) -> bool {
        let Some(log) = self.awaited_log(channel) else {
            return false;
        };
        let join = (log, Arc::<str>::from(channel), shard);
        self.logs.joins.remove(&join);
        true
    }

    /// Keeps a question for later if it waits for a log. Gives it back if it can be answered now.
    pub(super) fn hold<T>(
        &mut self,
        awaited: Option<LogId>,
        request: T,
        question: impl FnOnce(T) -> Question,
        now: Now,
    ) -> Option<T> {
        let Some(log) = awaited else {
            return Some(request);
        };
        let question = question(request);
        self.tell_held(question.command());
        let since = now.tick();
        self.logs.queue.push(Waiting {
            log,
            question,
            since,
        });
        None
    }

    /// A client's question waits here, perhaps for long: it is not to hold up those of others.
    fn tell_held(&mut self, ticket: Option<Ticket>) {
        let held = ticket.map(|ticket| HomeEffect::Held { ticket });
        self.effects.extend(held);
    }

    /// The same for a recovery. It also waits for a while if its subscriber has seen more than this home.
    pub(super) fn hold_recover(&mut self, request: Recover, now: Now) -> Option<Recover> {
        let awaited = self.awaited_log(&request.channel);
        let request = self.hold(awaited, request, Question::Recover, now)?;
        let Some(log) = self.log_of(&request.channel) else {
            return Some(request);
        };
        let Position { epoch, offset } = self.read_position(log);
        let is_ahead = request.since.offset > offset && *request.since.epoch == *epoch.as_str();
        if !is_ahead || self.logs.ahead.len() == AHEAD_MAX {
            return Some(request);
        }
        self.tell_held(Some(request.ticket));
        let logs = &mut self.logs;
        logs.ahead_serial += 1;
        let key = (log, request.since.offset, logs.ahead_serial);
        let deadline = now.tick().plus_ms(AHEAD_MS);
        logs.ahead.insert(key, request);
        logs.deadlines.push_back((deadline, key));
        if logs.deadlines.len() > 2 * AHEAD_MAX {
            let ahead = &logs.ahead;
            logs.deadlines.retain(|(_, key)| ahead.contains_key(key));
        }
        None
    }

    /// Answers those who have waited long enough for a log that does not come.
    pub(super) fn answer_overdue(&mut self, now: Now) {
        while let Some((deadline, key)) = self.logs.deadlines.front()
            && *deadline <= now.tick()
        {
            let request = self.logs.ahead.remove(key);
            self.logs.deadlines.pop_front();
            if let Some(request) = request {
                self.answer_recover(request, now);
            }
        }
    }

    /// A log is caught up, or whole: questions about its channels are handled in their order.
    fn answer_waiting(&mut self, log: LogId, now: Now) {
        // Whoever asks for what it missed has joined before.
        let joins = std::mem::take(&mut self.logs.joins);
        for ((of, channel, shard), serial) in joins {
            if of == log {
                self.handle_join(channel, shard, serial, now);
            } else {
                self.logs.joins.insert((of, channel, shard), serial);
            }
        }
        let waiting = std::mem::take(&mut self.logs.queue.waiting);
        let is_whole = self.logs.of(log).is_whole;
        for one in waiting {
            let is_early = !is_whole && one.question.is_about_history();
            if one.log != log || is_early {
                self.logs.queue.waiting.push(one);
                continue;
            }
            match one.question {
                Question::Recover(request) => self.handle_recover(request, now),
                Question::History(request) => self.handle_history(request, now),
                Question::Stream(request) => self.handle_stream(request, now),
                Question::ReadStream(request) => self.handle_read_stream(request, now),
            }
        }
    }

    /// A log has been read further: those are answered who have seen no more than that.
    fn answer_ahead(&mut self, log: LogId, now: Now) {
        let read = self.logs.of(log).offset;
        self.answer_ahead_up_to(log, read, now);
    }

    fn answer_ahead_up_to(&mut self, log: LogId, offset: u64, now: Now) {
        let first = |logs: &Logs| {
            let mut keys = logs.ahead.range((log, 0, 0)..=(log, offset, u64::MAX));
            keys.next().map(|(key, _)| *key)
        };
        while let Some(key) = first(&self.logs)
            && let Some(request) = self.logs.ahead.remove(&key)
        {
            self.answer_recover(request, now);
        }
    }

    /// A log begins, or begins again. Nothing is known of what came before.
    fn begin_log(&mut self, log: LogId, epoch: Epoch, offset: u64, now: Now) {
        let known = self.logs.of_mut(log);
        let is_first = known.epoch.is_none();
        if known.epoch == Some(epoch) {
            return;
        }
        known.epoch = Some(epoch);
        known.offset = offset;
        known.is_caught_up = false;
        known.is_whole = false;
        if is_first {
            return;
        }
        known.floor = offset;
        known.forgotten = offset;
        self.lose_channels(log, now);
        // What they have seen is of another epoch now.
        self.answer_ahead_up_to(log, u64::MAX, now);
    }

    /// All channels of a log have lost something. Their histories begin again here, and their subscribers have to subscribe anew.
    /// That happens when a log lost what this home had not read: it may take long where there are many channels.
    fn lose_channels(&mut self, log: LogId, now: Now) {
        let position = self.read_position(log);
        self.note_forgotten_offset(log, position.offset);
        let indices: Vec<u32> = self.channels.indices().collect();
        for index in indices {
            if self.channels[index].log() == Some(log) {
                self.lose(index, position, now);
            }
        }
    }

    /// One channel of a log has lost something.
    fn lose_channel(&mut self, channel: &str, log: LogId, now: Now) {
        if let Some(index) = self.find_or_open(channel, now) {
            self.lose(index, self.read_position(log), now);
        }
    }

    fn lose(&mut self, index: u32, position: Position, now: Now) {
        self.flush_batch(index);
        let record = &mut self.channels[index];
        record.epoch = position.epoch;
        record.last_offset = position.offset;
        if let Some(history) = &mut record.history {
            let before = history.holding();
            history.begin_after(position.offset);
            self.budget.note(before, history.holding());
        }
        let shards = std::mem::take(&mut record.subscribed);
        if !shards.is_empty() {
            self.tell_of_nobody(index);
            let record = &mut self.channels[index];
            record.users.clear();
            // By this, these shards have left the channel.
            let delivery = Delivery::Lost(Arc::clone(&record.name));
            self.effects
                .push_back(HomeEffect::Deliver { delivery, shards });
            self.note_empty(index, now);
        }
        self.finish(index, now);
    }

    /// A publication comes with its offset. What stands in the log counts, whatever its version is: homes remember different ones.
    fn publish_numbered(&mut self, submission: Submission, offset: u64, age: Duration, now: Now) {
        let Some(index) = self.find_or_open(&submission.channel, now) else {
            return;
        };
        let Submission {
            content,
            permit,
            asker,
            sender,
            delta,
            ..
        } = submission;
        let (position, delta_base) = self.keep(index, &content, offset, delta, ticks(age), now);
        self.answer_publisher(asker, position);
        let accepted = Accepted {
            position,
            last_offset: offset,
            content,
            delta_base,
            is_kept: true,
            sender,
            published_at: now,
            permit,
        };
        self.dispatch(index, accepted, now);
        self.finish(index, now);
    }

    /// A channel's history was removed up to this place of its log. Who has everything up to here has lost nothing.
    fn remove_up_to(&mut self, channel: &str, offset: u64, now: Now) {
        let Some(index) = self.find_or_open(channel, now) else {
            return;
        };
        let has_read_all = !self.is_catching_up(channel);
        let record = &mut self.channels[index];
        record.last_offset = offset;
        if let Some(history) = &mut record.history {
            let before = history.holding();
            if has_read_all {
                history.clear();
            } else {
                // What was removed may never have come here.
                history.begin_after(offset);
            }
            self.budget.note(before, history.holding());
        }
        self.finish(index, now);
    }
}
