//! Publishing: numbers, history, batches.

use super::batch::{Accepted, WaitingBatch};
use super::{Home, HomeEffect, Kept, ShardSet, Submission};
use crate::defects::DefectScope;
use crate::time::ticks;
use crate::{Asker, Content, Delivery, Now, Position, Ticket};
use myriad_wheel::Tick;
use std::sync::Arc;

impl Home {
    /// Data comes to be published. Its publication counts as accepted at `now`. Where a log orders the channel, only data comes here
    /// that has no place in it: history skips it.
    pub fn handle_publish(&mut self, submission: Submission, now: Now) {
        let Submission {
            channel,
            content,
            permit,
            asker,
            sender,
            idempotency_key,
            delta,
            skip_history,
            version,
            version_epoch,
        } = submission;
        if self.is_catching_up(&channel) {
            // Nobody has subscribed yet.
            return;
        }
        // An offset of our own would be one of the log's.
        let skip_history = skip_history || self.log_of(&channel).is_some();
        if let Some(key) = &idempotency_key
            && let Some(position) = self.recent_keys.position(&channel, key, now.tick())
        {
            self.answer_publisher(asker, position);
            return;
        }
        let index = self.find_or_open(&channel, now);
        if let Some(index) = index
            && self.is_closed_stream(index)
        {
            if let Some(asker) = asker {
                self.effects.push_back(HomeEffect::PublishRefused { asker });
            }
            self.finish(index, now);
            return;
        }
        if let Some(index) = index
            && !skip_history
            && !self.note_version(index, version, version_epoch)
        {
            self.answer_publisher(asker, self.position_of(Some(index)));
            self.finish(index, now);
            return;
        }
        let (position, delta_base) = match index {
            Some(index) => self.accept(index, &content, delta, skip_history, now),
            None => {
                self.floor += 1;
                (self.position_of(None), None)
            }
        };
        if let Some(key) = &idempotency_key {
            self.note_key(index, &channel, key, position, now);
        }
        let has_history = index.is_some_and(|index| self.channels[index].history.is_some());
        let accepted = Accepted {
            position,
            last_offset: self.position_of(index).offset,
            content,
            delta_base,
            is_kept: has_history && !skip_history,
            sender,
            published_at: now,
            permit,
        };
        match index {
            Some(index) => {
                self.dispatch(index, accepted, now);
                self.finish(index, now);
            }
            None => self.deliver(accepted, channel.into(), ShardSet::default()),
        }
        // Behind the delivery: when the shard of its client has the answer, it has the publication, too. What the client asks next
        // comes behind both.
        self.answer_publisher(asker, position);
    }

    /// Notes an idempotency key that was used first.
    fn note_key(
        &mut self,
        index: Option<u32>,
        channel: &str,
        key: &str,
        position: Position,
        now: Now,
    ) {
        self.recent_keys.insert(channel, key, position, now.tick());
        self.note_durable_key(index, key, position);
    }

    /// Notes the version of what a publication describes. False if the channel had this version, or a later one: the publication is
    /// left out then.
    pub(super) fn note_version(&mut self, index: u32, version: u64, epoch: Box<str>) -> bool {
        match &mut self.channels[index].history {
            Some(history) if version > 0 => history.note_version(version, epoch),
            _ => true,
        }
    }

    pub(super) fn answer_publisher(&mut self, asker: Option<Asker>, position: Position) {
        if let Some(asker) = asker {
            self.effects
                .push_back(HomeEffect::Published { asker, position });
        }
    }

    /// Gives a publication its position, and keeps it. With the one before it, if it may be sent as a delta.
    pub(super) fn accept(
        &mut self,
        index: u32,
        content: &Arc<Content>,
        delta: bool,
        skip_history: bool,
        now: Now,
    ) -> (Position, Option<Kept>) {
        if skip_history && let Some(history) = &mut self.channels[index].history {
            history.note_skipped();
            let epoch = self.channels[index].epoch;
            return (Position { epoch, offset: 0 }, None);
        }
        let offset = self.channels[index].last_offset + 1;
        self.keep(index, content, offset, delta, 0, now)
    }

    /// Gives a publication its offset, and keeps it. With the one before it, if it may be sent as a delta.
    pub(super) fn keep(
        &mut self,
        index: u32,
        content: &Arc<Content>,
        offset: u64,
        delta: bool,
        age: u32,
        now: Now,
    ) -> (Position, Option<Kept>) {
        self.note_durable_begin(index);
        let record = &mut self.channels[index];
        record.last_offset = offset;
        let position = record.position();
        let offers_delta = delta || record.options.delta_publish;
        let Some(history) = self.current_history(index, now) else {
            return (position, None);
        };
        let before = history.holding();
        let base = history.push(offset, Arc::clone(content), age, now);
        let after = history.holding();
        self.budget.note(before, after);
        let Ok(base) = base else {
            let scope = DefectScope::Home(Arc::clone(&self.channels[index].name));
            self.defects.note(scope, "an order has each offset once");
            return (position, None);
        };
        if let Some(key) = self.channels.key_of(index) {
            self.budget.note_kept(after.share, key, offset);
        }
        self.note_durable_publication(index, offset, content);
        (position, base.filter(|_| offers_delta))
    }

    /// Delivers a publication, or lets it wait for others.
    pub(super) fn dispatch(&mut self, index: u32, accepted: Accepted, now: Now) {
        let record = &mut self.channels[index];
        let shards = record.subscribed;
        if record.options.batch_delay.is_zero() || shards.is_empty() {
            let name = Arc::clone(&record.name);
            self.deliver(accepted, name, shards);
            return;
        }
        let delay = ticks(record.options.batch_delay);
        let deadline = Tick(now.tick().0.saturating_add(delay));
        let batch = record
            .batch
            .get_or_insert_with(|| Box::new(WaitingBatch::new(deadline)));
        if batch.push(accepted, self.settings.batch_bytes_max) {
            self.flush_batch(index);
        }
    }

    /// A client's command waits until the publications have been delivered that it sent before: those of a batch leave now.
    pub fn handle_fence(&mut self, channel: Box<str>, ticket: Ticket) {
        if let Some(&index) = self.names.get(&*channel) {
            self.flush_batch(index);
        }
        self.effects
            .push_back(HomeEffect::Fenced { ticket, channel });
    }

    fn deliver(&mut self, accepted: Accepted, channel: Arc<str>, shards: ShardSet) {
        let publication = accepted.into_publication(channel, shards.len());
        self.effects.push_back(HomeEffect::Deliver {
            delivery: Delivery::Publication(publication),
            shards,
        });
    }

    /// Delivers what waits, to those who have subscribed by now.
    pub(super) fn flush_batch(&mut self, index: u32) {
        let record = &mut self.channels[index];
        let Some(batch) = record.batch.take() else {
            return;
        };
        let shards = record.subscribed;
        let delivery = batch.into_delivery(&record.name, shards.len());
        self.effects
            .push_back(HomeEffect::Deliver { delivery, shards });
    }
}
