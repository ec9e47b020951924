//! A channel's record: how it comes, and how it goes.

use super::batch::WaitingBatch;
use super::history::History;
use super::streams::{Stream, StreamHolding};
use super::user_counts::UserCounts;
use super::{Home, HomeEffect, ShardSet};
use crate::defects::DefectScope;
use crate::{ChannelOptions, Delivery, Epoch, LogId, Now, Position};
use myriad_wheel::{Timed, Timer};
use std::sync::Arc;

/// A channel at its home.
#[derive(Debug)]
pub(super) struct HomeChannel {
    pub(super) name: Arc<str>,
    pub(super) options: Arc<ChannelOptions>,
    pub(super) epoch: Epoch,
    pub(super) last_offset: u64,
    pub(super) subscribed: ShardSet,
    /// Of channels with history. The others have a record only while somebody has subscribed.
    pub(super) history: Option<Box<History>>,
    /// Publications that wait to leave together. None while nobody has subscribed.
    pub(super) batch: Option<Box<WaitingBatch>>,
    pub(super) users: UserCounts,
    /// What is known of the channel as a stream beside its history. None: nothing yet.
    pub(super) stream: Option<Box<Stream>>,
    /// The disk knows it.
    pub(super) is_on_disk: bool,
    /// It came from the disk, which may have lost its end.
    pub(super) may_be_behind: bool,
    timer: Timer,
}

impl HomeChannel {
    /// The record of the same channel with other options: with a history that keeps nothing yet, or without one.
    pub(super) fn with_options(self, options: Arc<ChannelOptions>, now: Now) -> Self {
        let has_history = options.has_history();
        let lost = self.last_offset;
        let history = has_history.then(|| Box::new(History::new(&options, lost, now)));
        // What was published before is in no history: the stream begins with the next publication.
        let stream = has_history.then(|| Box::new(Stream::published_after(self.last_offset)));
        Self {
            options,
            history,
            stream,
            is_on_disk: false,
            may_be_behind: false,
            batch: None,
            timer: Timer::default(),
            ..self
        }
    }

    /// The log that orders it; none if its home does.
    pub(super) fn log(&self) -> Option<LogId> {
        self.options.logs.map(|logs| logs.of(&self.name))
    }

    /// What is known of its stream.
    pub(super) fn stream_holding(&self) -> StreamHolding {
        let stream = self.stream.as_ref();
        stream.map_or_else(StreamHolding::default, |stream| stream.holding())
    }

    /// The position of its last publication.
    pub(super) fn position(&self) -> Position {
        Position {
            epoch: self.epoch,
            offset: self.last_offset,
        }
    }
}

impl Default for HomeChannel {
    fn default() -> Self {
        Self {
            name: "".into(),
            options: Arc::default(),
            epoch: Epoch::new(0),
            last_offset: 0,
            subscribed: ShardSet::default(),
            history: None,
            batch: None,
            users: UserCounts::default(),
            stream: None,
            is_on_disk: false,
            may_be_behind: false,
            timer: Timer::default(),
        }
    }
}

impl Timed for HomeChannel {
    fn timer(&self) -> &Timer {
        &self.timer
    }

    fn timer_mut(&mut self) -> &mut Timer {
        &mut self.timer
    }
}

/// Bits of an epoch.
const EPOCH_BITS: u32 = 40;

/// The epoch of the nth life of a channel's record. Each step is a bijection of 40 bits, so different numbers give different
/// epochs.
pub(super) fn epoch_of_life(seed: u64, life: u64) -> Epoch {
    let mask = (1_u64 << EPOCH_BITS) - 1;
    let mut bits = seed.wrapping_add(life) & mask;
    for factor in [0x9e_3779_b97f, 0xbf_5847_6d1d] {
        bits ^= bits >> (EPOCH_BITS / 2);
        bits = bits.wrapping_mul(factor) & mask;
    }
    Epoch::new(bits ^ bits >> (EPOCH_BITS / 2))
}

impl Home {
    pub(super) fn options_of(&self, channel: &str) -> Arc<ChannelOptions> {
        let options = self.settings.namespaces.options_of(channel);
        Arc::clone(options.unwrap_or(&self.no_options))
    }

    /// A channel's record. None if it has no history and nobody has subscribed: then it needs none.
    pub(super) fn find_or_open(&mut self, channel: &str, now: Now) -> Option<u32> {
        if let Some(&index) = self.names.get(channel)
            && let Some(index) = self.after_expiry(index, now)
        {
            return Some(index);
        }
        let options = self.options_of(channel);
        options
            .has_history()
            .then(|| self.open(channel.into(), options, now))
    }

    /// Makes a channel's record.
    pub(super) fn open(&mut self, name: Arc<str>, options: Arc<ChannelOptions>, now: Now) -> u32 {
        let has_history = options.has_history();
        let (epoch, last_offset) = if let Some(log) = options.logs.map(|logs| logs.of(&name)) {
            (
                self.read_position(log, &name).epoch,
                self.begin_of(log, &name),
            )
        } else if has_history {
            self.epochs += 1;
            (epoch_of_life(self.settings.epoch_seed, self.epochs), 0)
        } else {
            (self.settings.epoch, self.floor)
        };
        let lost = last_offset;
        let history = has_history.then(|| Box::new(History::new(&options, lost, now)));
        let record = HomeChannel {
            name: Arc::clone(&name),
            options,
            epoch,
            last_offset,
            history,
            ..HomeChannel::default()
        };
        let index = self.channels.insert(record).index;
        self.names.insert(name, index);
        if has_history {
            self.note_opened(index);
        }
        index
    }

    /// Removes the record of a channel that nobody has subscribed to.
    pub(super) fn forget(&mut self, index: u32) {
        self.wheel.disarm(&mut self.channels, index);
        let record = self.channels.remove(index);
        if !record.subscribed.is_empty() || record.batch.is_some() {
            // Who has subscribed is told to do it anew, and finds a channel that begins.
            let scope = DefectScope::Home(Arc::clone(&record.name));
            self.defects.note(
                scope,
                "a channel is forgotten that nobody has subscribed to",
            );
            let delivery = Delivery::Lost(Arc::clone(&record.name));
            let shards = record.subscribed;
            self.effects
                .push_back(HomeEffect::Deliver { delivery, shards });
        }
        self.names.remove(&record.name);
        if record.history.is_some() {
            self.note_forgotten(&record);
        }
        self.note_durable_end(&record);
        if let Some(log) = record.log() {
            self.note_forgotten_offset(log, &record.name, record.last_offset);
        }
        // A channel that got its history from a reload has offsets of the common epoch, too.
        if record.epoch == self.settings.epoch {
            self.floor = self.floor.max(record.last_offset);
        }
    }

    /// A channel's history as of now, which counts as a use of the channel.
    pub(super) fn current_history(&mut self, index: u32, now: Now) -> Option<&mut History> {
        let history = self.channels[index].history.as_deref_mut()?;
        let before = history.holding();
        history.expire(now, usize::MAX);
        history.last_used = now.tick();
        self.budget.note(before, history.holding());
        Some(history)
    }

    /// Ends every call that changed a record: its timer, its part of the budget.
    pub(super) fn finish(&mut self, index: u32, now: Now) {
        if let Some(history) = &mut self.channels[index].history {
            history.last_used = history.last_used.max(now.tick());
        }
        self.arm(index);
        self.note_idleness(index);
        self.keep_budget();
    }

    pub(super) fn finish_if_open(&mut self, index: Option<u32>, now: Now) {
        if let Some(index) = index {
            self.finish(index, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{EPOCH_BITS, epoch_of_life};
    use std::collections::HashSet;

    #[test]
    fn no_two_lives_share_an_epoch() {
        let count = if cfg!(miri) { 100 } else { 20_000 };
        let homes = [0, 1 << 32, 2 << 32, 255 << 32];
        let epochs: HashSet<_> = homes
            .iter()
            .flat_map(|seed| (0..count).map(move |life| epoch_of_life(12_345 + seed, life)))
            .collect();
        assert_eq!(
            epochs.len(),
            homes.len() * usize::try_from(count).expect("few")
        );
        // The seed is of 40 bits.
        assert_eq!(epoch_of_life(7 + (1 << EPOCH_BITS), 0), epoch_of_life(7, 0));
    }
}
