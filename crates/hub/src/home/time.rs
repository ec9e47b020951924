//! Time: what a record waits for, and what is done about it.

use super::Home;
use crate::Now;
use myriad_wheel::{Tick, Timed};

/// Records that one call of [`Home::handle_time`] handles.
const RECORDS_MAX: usize = 256;
/// Publications of one record that it drops.
const EXPIRED_MAX: usize = 1024;

impl Home {
    /// Does what is due: batches leave, publications and records go, channels are told as vacated. At most some hundreds of
    /// records: what is left is due at once.
    pub fn handle_time(&mut self, now: Now) {
        self.recent_keys.forget_old(now.tick());
        self.answer_overdue(now);
        let mut due = std::mem::take(&mut self.due);
        self.wheel
            .advance(&mut self.channels, now.tick(), RECORDS_MAX, &mut due);
        for index in due.drain(..) {
            self.handle_due(index, now);
        }
        self.due = due;
        self.tell_vacated(now);
        self.keep_budget();
    }

    /// The earliest tick at which [`Home::handle_time`] may have something to do, or a tick before it.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Tick> {
        let deadlines = [
            self.wheel.next_deadline(),
            self.next_vacated(),
            self.logs.next_deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }

    fn handle_due(&mut self, index: u32, now: Now) {
        let tick = now.tick();
        let record = &self.channels[index];
        if record
            .batch
            .as_ref()
            .is_some_and(|batch| batch.deadline <= tick)
        {
            self.flush_batch(index);
        }
        let Some(index) = self.after_expiry(index, now) else {
            return;
        };
        let record = &mut self.channels[index];
        if let Some(history) = &mut record.history {
            let before = history.holding();
            history.expire(now, EXPIRED_MAX);
            self.budget.note(before, history.holding());
            if record.subscribed.is_empty() && history.record_expiry() <= tick {
                self.forget(index);
                return;
            }
        }
        self.arm(index);
        self.note_idleness(index);
    }

    /// Arms a record's timer, unless it fires in time anyway. A timer that fires early finds nothing to do and is armed again.
    /// So a busy channel does not move its timer with each publication.
    pub(super) fn arm(&mut self, index: u32) {
        let Some(deadline) = self.deadline_of(index) else {
            return;
        };
        let timer = self.channels[index].timer();
        if !timer.is_armed() || deadline < timer.deadline() {
            self.wheel.arm(&mut self.channels, index, deadline);
        }
    }

    /// The earliest deadline of a record.
    pub(super) fn deadline_of(&self, index: u32) -> Option<Tick> {
        let record = &self.channels[index];
        let batch = record.batch.as_ref().map(|batch| batch.deadline);
        let history = record.history.as_ref();
        let publication = history.and_then(|history| history.next_expiry());
        let expiry = history
            .filter(|_| record.subscribed.is_empty())
            .map(|history| history.record_expiry());
        let is_subscribed = !record.subscribed.is_empty();
        let stream = record.stream.as_ref();
        let stream = stream.and_then(|stream| stream.expiry(is_subscribed));
        [batch, publication, expiry, stream]
            .into_iter()
            .flatten()
            .min()
    }
}
