//! Channels whose order is made elsewhere.
//!
//! A *log* has the order of all channels of a namespace that keep a history. Several homes read it, each on its node, and each
//! gives its subscribers what the log says. A publication's offset is its place in the log. So the offsets of one channel rise,
//! with holes, and what the home has read of the log is a position in each of its channels.
//!
//! A home that has not read a log up to its end yet answers nothing about its channels: questions wait ([`waiting`]), and are told after
//! a while that the home is behind. Later only those wait who come from a home that has read further ([`ahead`]).
//!
//! Where a node hears only the channels that its clients want ([`wanted`]), each of these is a log of its own here: it begins, is caught up
//! with, and goes on by itself.

mod ahead;
mod entry;
mod losses;
mod partitions;
mod progress;
mod waiting;
mod wanted;

pub use entry::{LogEntry, LogEvent};
pub use partitions::{LogId, Partitions, name_hash};
pub(super) use waiting::Question;
pub use wanted::{Wanting, Wish};

use super::batch::Accepted;
use super::{Home, Submission};
use crate::time::ticks;
use crate::{Epoch, Now};
use ahead::Ahead;
use myriad_wheel::Tick;
use progress::Progress;
use std::sync::Arc;
use std::time::Duration;
use waiting::Waiting;
use wanted::WantedChannels;

/// What a home reads in one order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    /// A log.
    Log(LogId),
    /// A channel that is read by itself.
    Channel(Arc<str>),
}

/// All logs of a home, and the questions that wait for them.
#[derive(Debug, Default)]
pub(super) struct Logs {
    logs: Box<[Progress]>,
    /// None where logs are read whole.
    wanted: Option<WantedChannels>,
    /// Joins and questions for sources that are not caught up.
    waiting: Waiting,
    /// Questions of those who have seen more than this home.
    ahead: Ahead,
}

impl Logs {
    /// So many logs. `by_channel`: channels are read by themselves.
    pub(super) fn new(count: usize, by_channel: bool) -> Self {
        Self {
            logs: (0..count).map(|_| Progress::default()).collect(),
            wanted: by_channel.then(WantedChannels::default),
            ..Self::default()
        }
    }

    /// How far a source has been read. Of a channel that is not wanted, nothing.
    fn of(&self, source: &Source) -> Progress {
        match source {
            Source::Log(log) => self.logs[usize::from(log.0)],
            Source::Channel(channel) => self.of_channel(channel),
        }
    }

    fn of_channel(&self, channel: &str) -> Progress {
        let wanted = self.wanted.as_ref();
        let known = wanted.and_then(|wanted| wanted.progress_of(channel));
        known.copied().unwrap_or_default()
    }

    /// The same, to be changed; none for a channel that is not wanted.
    fn of_mut(&mut self, source: &Source) -> Option<&mut Progress> {
        match source {
            Source::Log(log) => self.logs.get_mut(usize::from(log.0)),
            Source::Channel(channel) => self.wanted.as_mut()?.progress_of_mut(channel),
        }
    }

    /// How far the source of a channel of this log has been read.
    fn of_either(&self, log: LogId, channel: &str) -> Progress {
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
        let waits = [self.ahead.next_deadline(), self.waiting.next_deadline()];
        let wanted = self.wanted.as_ref();
        let unwanted = wanted.and_then(WantedChannels::next_deadline);
        waits.into_iter().flatten().chain(unwanted).min()
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
            LogEvent::Heard(is_heard) => {
                known.is_deaf = !is_heard;
                return;
            }
            LogEvent::Beat(age_max) => {
                return self.answer_ahead_beyond(log, offset, age_max, now);
            }
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
            LogEvent::Removed { channel, behind } if self.is_ordered_by(&channel, log) => {
                self.remove_up_to(&channel, offset, behind, now);
            }
            LogEvent::LostIn(channel) if self.is_ordered_by(&channel, log) => {
                self.lose_channel(&channel, log, now);
            }
            LogEvent::Lost => self.lose_source(source, log, now),
            // Somebody may have written about a channel in a log that is not the channel's.
            LogEvent::Publication(..)
            | LogEvent::Removed { .. }
            | LogEvent::LostIn(_)
            | LogEvent::Passed
            | LogEvent::Beat(_)
            | LogEvent::Heard(_)
            | LogEvent::Began(_)
            | LogEvent::CaughtUp { .. }
            | LogEvent::Whole => {}
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

    /// A channel's history was removed up to this place of its log. Who has everything up to here, or up to the last message before it, has
    /// lost nothing.
    fn remove_up_to(&mut self, channel: &str, offset: u64, behind: Option<u64>, now: Now) {
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
                let lost = behind.map_or(offset, |behind| behind.min(offset));
                history.begin_after(lost.max(history.lost()));
            }
            self.budget.note(before, history.holding());
        }
        self.finish(index, now);
    }
}
