//! What a home has kept on the disk, and what it finds there at a start.
//!
//! A home goes ahead of the disk: it gives a publication its offset and keeps it in memory at once. Its effects must wait. Whoever carries
//! them out takes [`Home::take_durable`] first, and holds the effects of that channel back until the disk has it.

use super::history::History;
use super::record::epoch_of_life;
use super::{Home, HomeEffect, Since};
use crate::time::ticks;
use crate::{Content, Delivery, Epoch, Now, Position};
use std::sync::Arc;
use std::time::Duration;

/// A change of a channel that the disk is to keep. In the order in which they happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DurableEntry {
    /// The channel.
    pub channel: Arc<str>,
    /// Its epoch.
    pub epoch: Epoch,
    /// What has happened.
    pub change: DurableChange,
}

impl DurableEntry {
    /// A channel is gone whose last offset was this one.
    #[must_use]
    pub fn deleted(channel: Arc<str>, epoch: Epoch, last: u64) -> Self {
        let change = DurableChange::Deleted { last };
        Self {
            channel,
            epoch,
            change,
        }
    }
}

/// What has happened to a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DurableChange {
    /// It begins, or has other limits, or its history was removed.
    State {
        /// The offset of its last publication.
        last: u64,
        /// The greatest offset whose publication is gone.
        lost: u64,
        /// Publications that it keeps.
        size: u32,
        /// How long it keeps each.
        ttl: Duration,
    },
    /// It has a publication more.
    Publication {
        /// Its offset.
        offset: u64,
        /// What it says.
        content: Arc<Content>,
        /// The latest version that a publication of the channel had; 0: none had one.
        version: u64,
        /// The epoch of that.
        version_epoch: Box<str>,
    },
    /// An idempotency key was used first.
    Key {
        /// The key.
        key: Box<str>,
        /// The offset of its publication.
        offset: u64,
    },
    /// What is known of it as a stream, in bytes that [`Home::restore`] reads.
    Stream {
        /// Its last offset.
        last: u64,
        /// The bytes.
        state: Vec<u8>,
    },
    /// It is gone.
    Deleted {
        /// Its last offset.
        last: u64,
    },
}

/// A channel as the disk has it.
#[derive(Clone, Debug)]
pub struct StoredChannel {
    /// Its name.
    pub name: Arc<str>,
    /// Its epoch.
    pub epoch: Epoch,
    /// The offset of its last publication.
    pub last: u64,
    /// The greatest offset whose publication is gone.
    pub lost: u64,
    /// Publications after `lost`, by ascending offset.
    pub publications: Vec<StoredPublication>,
    /// What is known of it as a stream.
    pub stream: Option<Vec<u8>>,
}

/// A publication as the disk has it.
#[derive(Clone, Debug)]
pub struct StoredPublication {
    /// Its offset.
    pub offset: u64,
    /// How long ago it came.
    pub age: Duration,
    /// What it says.
    pub content: Arc<Content>,
    /// The channel's latest version then; 0: none.
    pub version: u64,
    /// The epoch of that.
    pub version_epoch: Box<str>,
}

impl Home {
    /// Changes since the last call that the disk is to keep: all of them or none.
    pub fn take_durable(&mut self) -> Vec<DurableEntry> {
        std::mem::take(&mut self.durable)
    }

    /// Whether the disk keeps a channel.
    #[must_use]
    pub fn is_durable(&self, channel: &str) -> bool {
        let options = self.settings.namespaces.options_of(channel);
        self.has_disk && options.is_some_and(|options| options.is_durable())
    }

    /// Takes a channel that the disk has. False if its namespace keeps no history on the disk any more. `unix_now_ms` is the time now.
    pub fn restore(&mut self, stored: StoredChannel, unix_now_ms: u64, now: Now) -> bool {
        if !self.is_durable(&stored.name) || self.names.contains_key(&*stored.name) {
            return false;
        }
        let options = self.options_of(&stored.name);
        let index = self.open(Arc::clone(&stored.name), options, now);
        let record = &mut self.channels[index];
        record.epoch = stored.epoch;
        record.last_offset = stored.last;
        record.is_on_disk = true;
        record.may_be_behind = true;
        let share = record.history.as_ref().map_or(0, |history| history.share);
        let mut history = History::new(&record.options, stored.lost, now);
        history.share = share;
        let key = self.channels.key_of(index);
        for one in stored.publications {
            let age = ticks(one.age);
            let before = history.holding();
            if one.version > 0 {
                history.note_version(one.version, one.version_epoch);
            }
            if history.push(one.offset, one.content, age, now).is_ok() {
                self.budget.note(before, history.holding());
                if let Some(key) = key {
                    self.budget.note_kept(share, key, one.offset);
                }
            }
        }
        self.channels[index].history = Some(Box::new(history));
        if let Some(state) = stored.stream {
            let mut uses = Vec::new();
            for _ in 0..super::streams::producers_in(&state) {
                uses.push(self.note_producer_use(index));
            }
            let mut uses = uses.into_iter();
            let number = || uses.next().unwrap_or_default();
            let stream = super::streams::read_stream(&state, unix_now_ms, now, number);
            self.set_stream_unkept(index, stream);
        }
        self.finish(index, now);
        true
    }

    /// Takes an idempotency key that the disk has, used so long ago.
    pub fn restore_key(
        &mut self,
        channel: &str,
        key: &str,
        position: Position,
        age: Duration,
        now: Now,
    ) {
        let known = self.recent_keys.position(channel, key, now.tick());
        if known.is_none() {
            self.recent_keys
                .insert_older(channel, key, position, ticks(age), now.tick());
        }
    }

    /// A client has a position that the disk has not: it has lost what it had promised to keep, and others may have seen that, too. So
    /// the channel gets another epoch, and keeps what it has.
    ///
    /// Clients can make positions up. So this happens to a channel once after a start, and costs nobody more than to subscribe again.
    pub(super) fn renew_if_beyond(&mut self, index: Option<u32>, since: &Since) {
        let Some(index) = index else {
            return;
        };
        let record = &mut self.channels[index];
        let is_same = *since.epoch == *record.epoch.as_str();
        if !record.may_be_behind || !is_same || since.offset <= record.last_offset {
            return;
        }
        record.may_be_behind = false;
        self.epochs += 1;
        record.epoch = epoch_of_life(self.settings.epoch_seed, self.epochs);
        let (delivery, shards) = (Delivery::Lost(Arc::clone(&record.name)), record.subscribed);
        self.effects
            .push_back(HomeEffect::Deliver { delivery, shards });
        self.note_durable_whole(index);
    }

    /// Notes a channel with all that it keeps.
    fn note_durable_whole(&mut self, index: u32) {
        let last = self.channels[index].last_offset;
        let Some(history) = &self.channels[index].history else {
            return;
        };
        let kept: Vec<_> = history.kept().collect();
        // On the disk, too, publications come behind the channel's last offset.
        self.channels[index].last_offset = history.lost();
        self.note_durable_state(index);
        self.channels[index].last_offset = last;
        for one in &kept {
            self.note_durable_publication(index, one.offset, &one.content);
        }
        if kept.last().is_none_or(|newest| newest.offset < last) {
            self.note_durable_state(index);
        }
        if self.channels[index].stream.is_some() {
            self.note_durable_stream(index);
        }
    }

    pub(super) fn is_durable_record(&self, index: u32) -> bool {
        self.has_disk && self.channels[index].options.is_durable()
    }

    fn note_change(&mut self, index: u32, change: DurableChange) {
        let record = &self.channels[index];
        self.durable.push(DurableEntry {
            channel: Arc::clone(&record.name),
            epoch: record.epoch,
            change,
        });
    }

    /// Notes what the channel is now, if the disk is to know.
    pub(super) fn note_durable_state(&mut self, index: u32) {
        if !self.is_durable_record(index) {
            return;
        }
        let record = &mut self.channels[index];
        record.is_on_disk = true;
        let last = record.last_offset;
        let lost = record
            .history
            .as_ref()
            .map_or(last, |history| history.lost());
        let change = DurableChange::State {
            last,
            lost,
            size: record.options.history_size,
            ttl: record.options.history_ttl,
        };
        self.note_change(index, change);
    }

    /// A reload has changed where a history is, or how long.
    pub(super) fn adopt_durability(&mut self, index: u32) {
        let was_on_disk = self.channels[index].is_on_disk;
        if !self.is_durable_record(index) {
            let record = &mut self.channels[index];
            if std::mem::take(&mut record.is_on_disk) {
                let last = record.last_offset;
                self.note_change(index, DurableChange::Deleted { last });
            }
            return;
        }
        if was_on_disk {
            self.note_durable_state(index);
        } else {
            self.note_durable_whole(index);
        }
    }

    /// Before the first other entry of a channel: what it is.
    pub(super) fn note_durable_begin(&mut self, index: u32) {
        if !self.channels[index].is_on_disk {
            self.note_durable_state(index);
        }
    }

    /// Notes a publication that history keeps.
    pub(super) fn note_durable_publication(
        &mut self,
        index: u32,
        offset: u64,
        content: &Arc<Content>,
    ) {
        if !self.is_durable_record(index) {
            return;
        }
        let Some(history) = &self.channels[index].history else {
            return;
        };
        let (version, version_epoch) = history.version();
        let change = DurableChange::Publication {
            offset,
            content: Arc::clone(content),
            version,
            version_epoch: version_epoch.into(),
        };
        self.note_change(index, change);
    }

    /// Notes an idempotency key.
    pub(super) fn note_durable_key(&mut self, index: Option<u32>, key: &str, position: Position) {
        if let Some(index) = index
            && self.channels[index].is_on_disk
            && position.offset > 0
        {
            let key = key.into();
            let offset = position.offset;
            self.note_change(index, DurableChange::Key { key, offset });
        }
    }

    /// Notes what is known of a stream.
    pub(super) fn note_durable_stream(&mut self, index: u32) {
        if !self.is_durable_record(index) {
            return;
        }
        self.note_durable_begin(index);
        let record = &self.channels[index];
        let last = record.last_offset;
        let Some(stream) = &record.stream else {
            return;
        };
        let state = super::streams::write_stream(stream);
        self.note_change(index, DurableChange::Stream { last, state });
    }

    /// Notes that a channel is gone. Its record is not in the slab any more.
    pub(super) fn note_durable_end(&mut self, record: &super::HomeChannel) {
        if record.is_on_disk {
            let last = record.last_offset;
            self.durable.push(DurableEntry {
                channel: Arc::clone(&record.name),
                epoch: record.epoch,
                change: DurableChange::Deleted { last },
            });
        }
    }
}
