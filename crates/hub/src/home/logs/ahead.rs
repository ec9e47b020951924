//! Who has seen more than this home has read, because it comes from a home that has read further. A home that is behind does not guess: it
//! waits, and then says that it is behind. It never says that something is lost which may only not be here yet.

use super::super::{HistoryAnswer, Home, HomeEffect, NotRecovered, ReadFrom, ReadHistory};
use super::super::{ReadRefused, ReadStream, Recover, Recovered, StreamRefused, history::may_be};
use super::waiting::{Question, deadline_of};
use super::{LogId, Source};
use crate::{Epoch, Now, Position};
use myriad_wheel::Tick;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Questions that wait at a home for that reason. Others are told at once that it is behind.
const AHEAD_MAX: usize = 10_000;
/// What was stored so long after a question came was surely stored behind all that its asker has seen. The way from the reader of the log to
/// its home takes less.
const WAY_MAX: Duration = Duration::from_secs(1);

/// The source, the offset that somebody has seen, and a serial.
type AheadKey = (Source, u64, u64);

/// A question that waits.
#[derive(Debug)]
struct Held {
    question: Question,
    log: LogId,
    since: Now,
}

/// Questions that wait until this home has read as far as their askers have seen, or as long as anybody waits for a log.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// By their offsets, so that those are found at once whose entry has come. The last part of the key is different for each.
    held: BTreeMap<AheadKey, Held>,
    /// When they are answered in any case. Some have been answered.
    deadlines: BTreeSet<(Tick, AheadKey)>,
    /// The serial of the last question.
    serial: u64,
}

impl Ahead {
    pub(super) fn next_deadline(&self) -> Option<Tick> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    fn is_full(&self) -> bool {
        self.held.len() == AHEAD_MAX
    }

    fn push(&mut self, source: Source, seen: u64, held: Held) {
        self.serial += 1;
        let key = (source, seen, self.serial);
        let deadline = deadline_of(held.since);
        self.held.insert(key.clone(), held);
        self.deadlines.insert((deadline, key));
        if self.deadlines.len() > 2 * AHEAD_MAX {
            let held = &self.held;
            self.deadlines.retain(|(_, key)| held.contains_key(key));
        }
    }

    /// The next one that has waited long enough.
    fn take_overdue(&mut self, now: Tick) -> Option<Question> {
        while self.next_deadline().is_some_and(|deadline| deadline <= now) {
            let (_, key) = self.deadlines.pop_first()?;
            if let Some(held) = self.held.remove(&key) {
                return Some(held.question);
            }
        }
        None
    }

    /// The next one of somebody who has seen no more of a source than this.
    fn take_up_to(&mut self, source: &Source, offset: u64) -> Option<Held> {
        let (begin, end) = ((source.clone(), 0, 0), (source.clone(), offset, u64::MAX));
        let (key, _) = self.held.range(begin..=end).next()?;
        let key = key.clone();
        self.held.remove(&key)
    }

    /// Those that came before this time, of askers who have seen more of a log than this.
    fn take_beyond(&mut self, log: LogId, offset: u64, before: Now) -> Vec<Question> {
        let taken = self.held.extract_if(.., |(_, seen, _), held| {
            held.log == log && *seen > offset && held.since < before
        });
        taken.map(|(_, held)| held.question).collect()
    }
}

impl Question {
    /// What it asks about.
    pub(super) fn channel(&self) -> &str {
        match self {
            Self::Recover(request) => &request.channel,
            Self::History(request) => &request.channel,
            Self::Stream(request) => &request.channel,
            Self::ReadStream(request) => &request.channel,
        }
    }

    /// The last offset that its asker has seen, if it is of this epoch.
    fn seen_in(&self, epoch: Epoch) -> Option<u64> {
        match self {
            Self::Recover(Recover { since, .. }) => {
                may_be(&since.epoch, epoch).then_some(since.offset)
            }
            Self::History(ReadHistory { since, reverse, .. }) => {
                let since = since.as_ref().filter(|_| !reverse)?;
                may_be(&since.epoch, epoch).then_some(since.offset)
            }
            Self::ReadStream(ReadStream { from, .. }) => match from {
                ReadFrom::After(after) if after.epoch == epoch.letters() => Some(after.offset),
                ReadFrom::After(_) | ReadFrom::Start | ReadFrom::Now => None,
            },
            Self::Stream(_) => None,
        }
    }
}

impl Home {
    /// Keeps a question for a while if its asker has seen more than this home has read. Gives it back if it can be answered now. `since`:
    /// when it came. It may have waited already until the log was read up to its end.
    pub(super) fn hold_ahead(
        &mut self,
        question: Question,
        since: Now,
        now: Now,
    ) -> Option<Question> {
        let Some(log) = self.log_of(question.channel()) else {
            return Some(question);
        };
        let Position { epoch, offset } = self.read_position(log, question.channel());
        let seen = question.seen_in(epoch).filter(|seen| *seen > offset);
        let Some(seen) = seen else {
            return Some(question);
        };
        let channel: Arc<str> = question.channel().into();
        if self.logs.ahead.is_full() {
            self.answer_behind(question, now);
            return None;
        }
        self.tell_held(question.command());
        self.note_channel_use(&channel, now);
        self.confirm(&channel, seen);
        let source = self.logs.source_of(log, channel);
        let held = Held {
            question,
            log,
            since,
        };
        self.logs.ahead.push(source, seen, held);
        None
    }

    /// Answers those who have waited long enough for a log that does not come, and wants no more what nobody has used for long.
    pub(in super::super) fn answer_overdue(&mut self, now: Now) {
        self.drop_unused(now);
        self.end_waits(now);
        while let Some(question) = self.logs.ahead.take_overdue(now.tick()) {
            self.answer_behind(question, now);
        }
    }

    /// A source has been read up to there: those are answered who have seen no more than that.
    pub(super) fn answer_ahead_up_to(&mut self, source: &Source, offset: u64, now: Now) {
        while let Some(held) = self.logs.ahead.take_up_to(source, offset) {
            match held.question {
                // A position of another epoch is lost, however far the log has been read.
                question @ Question::Recover(_) => self.answer(question, now),
                question => self.ask(question, held.since, now),
            }
        }
    }

    /// The log gave out this place not longer ago than that. Whoever asked before, and has seen more, has a position that the log has not: it
    /// has lost its end, and this home is not behind.
    pub(super) fn answer_ahead_beyond(
        &mut self,
        log: LogId,
        offset: u64,
        age_max: Duration,
        now: Now,
    ) {
        let ago = (age_max + WAY_MAX).as_nanos();
        let ago = u64::try_from(ago).unwrap_or(u64::MAX);
        let before = Now(now.0.saturating_sub(ago));
        for question in self.logs.ahead.take_beyond(log, offset, before) {
            self.answer(question, now);
        }
    }

    /// This home has not read as far as somebody has seen, or not up to the end that the log had. It cannot say what is missing.
    pub(super) fn answer_behind(&mut self, question: Question, now: Now) {
        match question {
            Question::Recover(Recover {
                channel, ticket, ..
            }) => {
                let position = self.position_of(None);
                let publications = Err(NotRecovered::Behind);
                self.effects.push_back(HomeEffect::Recovered(Recovered {
                    ticket,
                    channel,
                    position,
                    publications,
                }));
            }
            Question::ReadStream(request) => {
                let (asker, answer) = (request.asker, Box::new(Err(ReadRefused::Behind)));
                let refused = HomeEffect::StreamRead { asker, answer };
                self.effects.push_back(refused);
            }
            Question::History(request) if self.awaited_history(&request.channel).is_some() => {
                let (asker, answer) = (request.asker, HistoryAnswer::Behind);
                self.effects
                    .push_back(HomeEffect::History { asker, answer });
            }
            // The page tells its position, and is not said to be all.
            Question::History(request) => self.answer_history(&request, now),
            Question::Stream(request) => {
                self.answer_stream(request.asker, Err(StreamRefused::Behind));
            }
        }
    }

    /// Whether what this home does not know of a channel may be in its log all the same: nobody reads the log for it now.
    pub(in super::super) fn is_deaf_to(&self, channel: &str) -> bool {
        let log = self.log_of(channel);
        log.is_some_and(|log| self.logs.logs[usize::from(log.0)].is_deaf)
    }
}
