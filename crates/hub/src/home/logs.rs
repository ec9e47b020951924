//! Channels whose order is made elsewhere.
//!
//! A *log* has the order of all channels of a namespace that keep a history. Several homes read it, each on its node, and each
//! gives its subscribers what the log says. A publication's offset is its place in the log. So the offsets of one channel rise,
//! with holes, and what the home has read of the log is a position in each of its channels.
//!
//! A home that has not read a log up to its end yet answers nothing about its channels: questions wait. Later only a subscriber
//! waits who comes from a home that has read further.
//!
//! Where a node hears only the channels that its clients want ([`wanted`]), each of these is a log of its own here: it begins, is caught up
//! with, and goes on by itself.

mod waiting;
mod wanted;

pub(super) use waiting::Question;
pub use wanted::{Wanting, Wish};

use super::batch::Accepted;
use super::{Home, HomeEffect, Recover, Submission};
use crate::time::ticks;
use crate::{Delivery, Epoch, Now, Position, Ticket};
use myriad_wheel::Tick;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use waiting::{Queue, Waiting};
use wanted::WantedChannels;

/// How long a subscriber waits whose position this home has not read yet.
const AHEAD_MS: u64 = 4_000;
/// Subscribers that wait at a home for that reason. Others are answered at once, as those that have lost something.
const AHEAD_MAX: usize = 10_000;

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

/// What a home reads in one order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    /// A log.
    Log(LogId),
    /// A channel that is read by itself.
    Channel(Arc<str>),
}

/// Shards that join channels, with the serials of their questions.
type Joins = BTreeMap<(Arc<str>, usize), u64>;

/// All logs of a home, and the questions that wait for them.
#[derive(Debug, Default)]
pub(super) struct Logs {
    logs: Box<[Log]>,
    /// None where logs are read whole.
    wanted: Option<WantedChannels>,
    /// Joins that wait until a source is caught up. Who leaves is no longer here, so these are no more than the channels with members.
    joins: BTreeMap<Source, Joins>,
    /// Questions for sources that are not caught up.
    queues: BTreeMap<Source, Queue>,
    /// Subscribers who have seen more than this home, by their offsets, so that those are found at once whose entry has come. The
    /// last part of the key is different for each.
    ahead: BTreeMap<AheadKey, Recover>,
    /// When they are answered in any case. Some have been answered.
    deadlines: VecDeque<(Tick, AheadKey)>,
    /// Of the last one.
    ahead_serial: u64,
}

/// The source, the offset that a subscriber has seen, and a serial.
type AheadKey = (Source, u64, u64);

impl Logs {
    /// So many logs. `by_channel`: channels are read by themselves.
    pub(super) fn new(count: usize, by_channel: bool) -> Self {
        Self {
            logs: (0..count).map(|_| Log::default()).collect(),
            wanted: by_channel.then(WantedChannels::default),
            ..Self::default()
        }
    }

    /// How far a source has been read. Of a channel that is not wanted, nothing.
    fn of(&self, source: &Source) -> Log {
        match source {
            Source::Log(log) => self.logs[usize::from(log.0)],
            Source::Channel(channel) => self.of_channel(channel),
        }
    }

    fn of_channel(&self, channel: &str) -> Log {
        let wanted = self.wanted.as_ref();
        let known = wanted.and_then(|wanted| wanted.log_of(channel));
        known.copied().unwrap_or_default()
    }

    /// The same, to be changed; none for a channel that is not wanted.
    fn of_mut(&mut self, source: &Source) -> Option<&mut Log> {
        match source {
            Source::Log(log) => self.logs.get_mut(usize::from(log.0)),
            Source::Channel(channel) => self.wanted.as_mut()?.log_of_mut(channel),
        }
    }

    /// How far the source of a channel of this log has been read.
    fn of_either(&self, log: LogId, channel: &str) -> Log {
        match &self.wanted {
            Some(_) => self.of_channel(channel),
            None => self.logs[usize::from(log.0)],
        }
    }

    fn source_of(&self, log: LogId, channel: impl Into<Arc<str>>) -> Source {
        match &self.wanted {
            Some(_) => Source::Channel(channel.into()),
            None => Source::Log(log),
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Tick> {
        let overdue = self.deadlines.front().map(|(deadline, _)| *deadline);
        let wanted = self.wanted.as_ref();
        let unwanted = wanted.and_then(WantedChannels::next_deadline);
        overdue.into_iter().chain(unwanted).min()
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
        let LogEntry {
            log,
            channel,
            offset,
            event,
        } = entry;
        let source = channel.map_or(Source::Log(log), Source::Channel);
        let Some(known) = self.logs.of_mut(&source) else {
            // It is not wanted any more.
            return;
        };
        let is_early = known.epoch.is_none() && !matches!(event, LogEvent::Began(_));
        if is_early && matches!(source, Source::Channel(_)) {
            // This is about the time before it was wanted again.
            return;
        }
        match event {
            LogEvent::Began(epoch) => return self.begin_log(&source, log, epoch, offset, now),
            LogEvent::CaughtUp { floor } => {
                known.is_caught_up = true;
                known.offset = known.offset.max(offset).max(floor);
                known.floor = known.floor.max(floor);
                known.forgotten = known.forgotten.max(floor);
                return self.answer_waiting(&source, now);
            }
            LogEvent::Whole => {
                known.is_whole = true;
                return self.answer_waiting(&source, now);
            }
            _ if offset <= known.offset => return,
            event => {
                known.offset = offset;
                self.handle_entry(&source, log, event, now);
            }
        }
        self.answer_ahead_up_to(&source, offset, now);
    }

    /// An entry that was not read before.
    fn handle_entry(&mut self, source: &Source, log: LogId, event: LogEvent, now: Now) {
        let offset = self.logs.of(source).offset;
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
            LogEvent::Lost => self.lose_source(source, log, now),
            // Somebody may have written about a channel in a log that is not the channel's.
            LogEvent::Publication(..)
            | LogEvent::Removed(_)
            | LogEvent::LostIn(_)
            | LogEvent::Passed
            | LogEvent::Began(_)
            | LogEvent::CaughtUp { .. }
            | LogEvent::Whole => {}
        }
    }

    /// The epoch and the offset of what has been read of a channel's source. Before it begins, they are no position.
    pub(super) fn read_position(&self, log: LogId, channel: &str) -> Position {
        let Log { epoch, offset, .. } = self.logs.of_either(log, channel);
        let epoch = epoch.unwrap_or(self.settings.epoch);
        Position { epoch, offset }
    }

    /// The last offset that may be missing in every channel of a record's source.
    pub(super) fn floor_of(&self, index: u32) -> u64 {
        let record = &self.channels[index];
        let log = record.log();
        log.map_or(0, |log| self.logs.of_either(log, &record.name).floor)
    }

    /// Where the history of a new record begins.
    pub(super) fn begin_of(&self, log: LogId, channel: &str) -> u64 {
        self.logs.of_either(log, channel).forgotten
    }

    /// The record of a channel goes, whose history ended there.
    pub(super) fn note_forgotten_offset(&mut self, log: LogId, channel: &Arc<str>, lost: u64) {
        let source = self.logs.source_of(log, Arc::clone(channel));
        if let Some(known) = self.logs.of_mut(&source) {
            known.forgotten = known.forgotten.max(lost);
        }
    }

    /// Whether publications of a channel without a place in its log are of no use yet.
    pub(super) fn is_catching_up(&self, channel: &str) -> bool {
        let log = self.log_of(channel);
        log.is_some_and(|log| !self.logs.of_either(log, channel).is_caught_up)
    }

    /// What questions about a channel wait for: it was not read to its end yet.
    pub(super) fn awaited_log(&self, channel: &str) -> Option<Source> {
        let log = self.log_of(channel)?;
        let Log { is_caught_up, .. } = self.logs.of_either(log, channel);
        (!is_caught_up).then(|| self.logs.source_of(log, channel))
    }

    /// The same for a question about what a channel's history has.
    pub(super) fn awaited_history(&self, channel: &str) -> Option<Source> {
        let log = self.log_of(channel)?;
        let Log {
            is_caught_up,
            is_whole,
            ..
        } = self.logs.of_either(log, channel);
        (!is_caught_up || !is_whole).then(|| self.logs.source_of(log, channel))
    }

    /// Keeps a join for later if it waits for a log.
    pub(super) fn holds_join(
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
    pub(super) fn holds_leave(&mut self, channel: &str, shard: usize) -> bool {
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
    pub(super) fn hold<T>(
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
        let Position { epoch, offset } = self.read_position(log, &request.channel);
        let is_ahead = request.since.offset > offset && *request.since.epoch == *epoch.as_str();
        if !is_ahead || self.logs.ahead.len() == AHEAD_MAX {
            return Some(request);
        }
        self.tell_held(Some(request.ticket));
        self.note_channel_use(&request.channel, now);
        self.confirm(&request.channel, request.since.offset);
        let logs = &mut self.logs;
        logs.ahead_serial += 1;
        let source = logs.source_of(log, Arc::clone(&request.channel));
        let key = (source, request.since.offset, logs.ahead_serial);
        let deadline = now.tick().plus_ms(AHEAD_MS);
        logs.ahead.insert(key.clone(), request);
        logs.deadlines.push_back((deadline, key));
        if logs.deadlines.len() > 2 * AHEAD_MAX {
            let ahead = &logs.ahead;
            logs.deadlines.retain(|(_, key)| ahead.contains_key(key));
        }
        None
    }

    /// Answers those who have waited long enough for a log that does not come, and wants no more what nobody has used for long.
    pub(super) fn answer_overdue(&mut self, now: Now) {
        self.drop_unused(now);
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

    /// A source is caught up, or whole: questions about its channels are handled in their order.
    fn answer_waiting(&mut self, source: &Source, now: Now) {
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

    /// A source has been read up to there: those are answered who have seen no more than that.
    fn answer_ahead_up_to(&mut self, source: &Source, offset: u64, now: Now) {
        let first = |logs: &Logs| {
            let (begin, end) = ((source.clone(), 0, 0), (source.clone(), offset, u64::MAX));
            let mut keys = logs.ahead.range(begin..=end);
            keys.next().map(|(key, _)| key.clone())
        };
        while let Some(key) = first(&self.logs)
            && let Some(request) = self.logs.ahead.remove(&key)
        {
            self.answer_recover(request, now);
        }
    }

    /// A source begins, or begins again. Nothing is known of what came before.
    fn begin_log(&mut self, source: &Source, log: LogId, epoch: Epoch, offset: u64, now: Now) {
        let Some(known) = self.logs.of_mut(source) else {
            return;
        };
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
        self.lose_source(source, log, now);
        // What they have seen is of another epoch now.
        self.answer_ahead_up_to(source, u64::MAX, now);
    }

    fn lose_source(&mut self, source: &Source, log: LogId, now: Now) {
        match source {
            Source::Log(log) => self.lose_channels(*log, now),
            Source::Channel(channel) => {
                let lost = self.read_position(log, channel).offset;
                self.note_forgotten_offset(log, channel, lost);
                self.lose_channel(channel, log, now);
            }
        }
    }

    /// All channels of a log have lost something. Their histories begin again here, and their subscribers have to subscribe anew.
    /// That happens when a log lost what this home had not read: it may take long where there are many channels.
    fn lose_channels(&mut self, log: LogId, now: Now) {
        let known = self
            .logs
            .of_mut(&Source::Log(log))
            .expect("one of its logs");
        known.forgotten = known.forgotten.max(known.offset);
        let Log { epoch, offset, .. } = *known;
        let epoch = epoch.unwrap_or(self.settings.epoch);
        let position = Position { epoch, offset };
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
            self.lose(index, self.read_position(log, channel), now);
        }
    }

    fn lose(&mut self, index: u32, position: Position, now: Now) {
        self.flush_batch(index);
        // Its shards have left it by this, and say nothing more of it.
        let name = Arc::clone(&self.channels[index].name);
        self.note_channel_use(&name, now);
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
