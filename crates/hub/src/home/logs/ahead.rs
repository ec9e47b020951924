//! Subscribers who have seen more than this home has read, because they come from a home that has read further.

use super::super::{Home, Recover};
use super::Source;
use super::waiting::Question;
use crate::{Now, Position};
use myriad_wheel::Tick;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// How long a subscriber waits whose position this home has not read yet.
const AHEAD_MS: u64 = 4_000;
/// Subscribers that wait at a home for that reason. Others are answered at once, as those that have lost something.
const AHEAD_MAX: usize = 10_000;

/// The source, the offset that a subscriber has seen, and a serial.
type AheadKey = (Source, u64, u64);

/// Their recoveries, which wait until this home has read as far, or for [`AHEAD_MS`].
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// By their offsets, so that those are found at once whose entry has come. The last part of the key is different for each.
    requests: BTreeMap<AheadKey, Recover>,
    /// When they are answered in any case. Some have been answered.
    deadlines: VecDeque<(Tick, AheadKey)>,
    /// The serial of the last request.
    serial: u64,
}

impl Ahead {
    pub(super) fn next_deadline(&self) -> Option<Tick> {
        self.deadlines.front().map(|(deadline, _)| *deadline)
    }

    fn is_full(&self) -> bool {
        self.requests.len() == AHEAD_MAX
    }

    fn push(&mut self, source: Source, request: Recover, now: Tick) {
        self.serial += 1;
        let key = (source, request.since.offset, self.serial);
        let deadline = now.plus_ms(AHEAD_MS);
        self.requests.insert(key.clone(), request);
        self.deadlines.push_back((deadline, key));
        if self.deadlines.len() > 2 * AHEAD_MAX {
            let requests = &self.requests;
            self.deadlines.retain(|(_, key)| requests.contains_key(key));
        }
    }

    /// The next one who has waited long enough.
    fn take_overdue(&mut self, now: Tick) -> Option<Recover> {
        while self.next_deadline().is_some_and(|deadline| deadline <= now) {
            let (_, key) = self.deadlines.pop_front()?;
            if let Some(request) = self.requests.remove(&key) {
                return Some(request);
            }
        }
        None
    }

    /// The next one who has seen no more of a source than this.
    fn take_up_to(&mut self, source: &Source, offset: u64) -> Option<Recover> {
        let (begin, end) = ((source.clone(), 0, 0), (source.clone(), offset, u64::MAX));
        let (key, _) = self.requests.range(begin..=end).next()?;
        let key = key.clone();
        self.requests.remove(&key)
    }
}

impl Home {
    /// Keeps a recovery for later if it waits for a log, and for a while if its subscriber has seen more than this home. Gives it back if
    /// it can be answered now.
    pub(in super::super) fn hold_recover(&mut self, request: Recover, now: Now) -> Option<Recover> {
        let awaited = self.awaited_log(&request.channel);
        let request = self.hold(awaited, request, Question::Recover, now)?;
        let Some(log) = self.log_of(&request.channel) else {
            return Some(request);
        };
        let Position { epoch, offset } = self.read_position(log, &request.channel);
        let is_ahead = request.since.offset > offset && *request.since.epoch == *epoch.as_str();
        if !is_ahead || self.logs.ahead.is_full() {
            return Some(request);
        }
        self.tell_held(Some(request.ticket));
        self.note_channel_use(&request.channel, now);
        self.confirm(&request.channel, request.since.offset);
        let source = self.logs.source_of(log, Arc::clone(&request.channel));
        self.logs.ahead.push(source, request, now.tick());
        None
    }

    /// Answers those who have waited long enough for a log that does not come, and wants no more what nobody has used for long.
    pub(in super::super) fn answer_overdue(&mut self, now: Now) {
        self.drop_unused(now);
        while let Some(request) = self.logs.ahead.take_overdue(now.tick()) {
            self.answer_recover(request, now);
        }
    }

    /// A source has been read up to there: those are answered who have seen no more than that.
    pub(super) fn answer_ahead_up_to(&mut self, source: &Source, offset: u64, now: Now) {
        while let Some(request) = self.logs.ahead.take_up_to(source, offset) {
            self.answer_recover(request, now);
        }
    }
}
