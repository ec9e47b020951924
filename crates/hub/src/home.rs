//! The home of channels: the one shard of the process that orders a channel's publications, and remembers them.

mod batch;
mod budget;
mod defects;
mod durable;
mod elsewhere;
mod history;
mod logs;
mod occupancy;
mod presence;
mod publish;
mod questions;
mod recent_keys;
mod record;
mod reload;
mod shard_set;
mod streams;
mod time;
mod user_counts;

pub use durable::{DurableChange, DurableEntry, StoredChannel, StoredPublication};
pub use elsewhere::{FromNode, NodeSays, Told};
pub use logs::{LogEntry, LogEvent, LogId, Partitions, Wanting, Wish, name_hash};
pub use questions::{
    HistoryAnswer, HomeEffect, Kept, NotRecovered, ReadHistory, Recover, Recovered, RequestId,
    Since, Submission,
};
pub use shard_set::ShardSet;
pub use streams::{
    AppendToStream, Appender, CreateStream, Producer, ProducerPosition, ReadFrom, ReadRefused,
    ReadStream, StreamAnswer, StreamCommand, StreamDone, StreamEnd, StreamEndKind, StreamEntry,
    StreamExpiry, StreamPage, StreamRead, StreamRefused, StreamRequest, StreamState,
};

use crate::defects::Defects;
use crate::{Asker, ChannelOptions, Epoch, Namespaces, Now, Position};
use budget::Budget;
use elsewhere::Elsewhere;
use history::may_be;
use logs::{Logs, Question};
use myriad_wheel::{Slab, Wheel};
use occupancy::Occupancy;
use recent_keys::RecentKeys;
use record::HomeChannel;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// What a home is told at its start; plain data.
#[derive(Clone, Debug)]
pub struct HomeSettings {
    /// Of all channels without history: their offsets start again together, with the process.
    pub epoch: Epoch,
    /// Where the epochs of channels with history begin. Homes of one process have seeds that are at least 2^32 apart: so no
    /// two of their channels ever share an epoch.
    pub epoch_seed: u64,
    /// The options of channels.
    pub namespaces: Arc<Namespaces>,
    /// Logs that order channels elsewhere; 0: this home orders all of its channels.
    pub logs: usize,
    /// It reads no more of the logs than the channels that are wanted: see [`Home::poll_wish`].
    pub by_channel: bool,
    /// Bytes that this home's histories may take, with the records of their channels. Only the records of channels with
    /// subscribers may be more.
    pub history_bytes_max: u64,
    /// Bytes at which a waiting batch leaves. A batch is one entry of a connection's queue: it must be far smaller than the
    /// queue's budget.
    pub batch_bytes_max: usize,
    /// Tells which channels are occupied, and how long a channel must be empty before it is told as vacated; none: nobody wants
    /// to know.
    pub vacated_delay: Option<Duration>,
}

/// Figures of a home.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HomeStats {
    /// Channels with a record.
    pub channels: usize,
    /// Of these, those with history.
    pub channels_with_history: usize,
    /// Publications in all histories.
    pub publications: usize,
    /// Bytes of these and of the records of channels with history.
    pub bytes: u64,
    /// Publications dropped before their time to keep the budget, ever.
    pub evicted: u64,
}

/// The channels at home on one shard: their order, their history, and which shards want their publications.
///
/// What happens is told by the `handle_*` methods; what is to be done about it comes from [`Home::poll_effect`], until it has
/// nothing more. A publication's position need not be known when it is submitted: a home whose order is made elsewhere answers
/// later. [`Home::handle_time`] is due at [`Home::next_deadline`].
///
/// A channel with history has an epoch of its own and offsets from 1 on. It is remembered for a time after its last use, and
/// comes back with another epoch when it was forgotten.
///
/// Other homes number no channels of their own that have history, but read their order in logs ([`Home::handle_log`]). Their
/// epochs are those of the logs, and their offsets have holes.
///
/// A channel without history takes memory only while some shard has a subscriber. Offsets keep growing all the same: a channel
/// that comes back starts above the highest offset of every channel that was forgotten.
#[derive(Debug)]
pub struct Home {
    settings: HomeSettings,
    /// Of channels whose namespace does not exist.
    no_options: Arc<ChannelOptions>,
    /// Epochs given out so far.
    epochs: u64,
    channels: Slab<HomeChannel>,
    names: HashMap<Arc<str>, u32>,
    floor: u64,
    wheel: Wheel,
    due: Vec<u32>,
    budget: Budget,
    recent_keys: RecentKeys,
    logs: Logs,
    /// None where nobody wants to know.
    occupancy: Option<Occupancy>,
    effects: VecDeque<HomeEffect>,
    /// Histories of namespaces that want it are on the disk, too.
    has_disk: bool,
    /// What the disk is to keep.
    durable: Vec<DurableEntry>,
    /// None where no other nodes are to be told anything.
    elsewhere: Option<Box<Elsewhere>>,
    /// For other nodes.
    told: VecDeque<Told>,
    /// The next record that gets the options of new settings; none once all have them.
    reloaded_to: Option<u32>,
    defects: Defects,
}

impl Home {
    /// A home without channels.
    #[must_use]
    pub fn new(settings: HomeSettings, now: Now) -> Self {
        Self {
            no_options: Arc::default(),
            epochs: 0,
            channels: Slab::new(),
            names: HashMap::new(),
            floor: 0,
            wheel: Wheel::new(now.tick()),
            due: Vec::new(),
            budget: Budget::new(settings.history_bytes_max),
            recent_keys: RecentKeys::default(),
            logs: Logs::new(settings.logs, settings.by_channel),
            occupancy: settings.vacated_delay.map(Occupancy::new),
            effects: VecDeque::new(),
            has_disk: false,
            durable: Vec::new(),
            elsewhere: None,
            told: VecDeque::new(),
            reloaded_to: None,
            defects: Defects::default(),
            settings,
        }
    }

    /// From now on histories are on the disk, where their namespaces want that: see [`Home::take_durable`].
    pub fn begin_disk(&mut self) {
        self.has_disk = true;
    }

    /// A shard has its first subscriber of a channel, and asks for its publications. `serial` comes back in the answer.
    pub fn handle_join(&mut self, channel: Arc<str>, shard: usize, serial: u64, now: Now) {
        if self.holds_join(&channel, shard, serial, now) {
            return;
        }
        let known = self.names.get(&channel).copied();
        let known = known.and_then(|index| self.after_expiry(index, now));
        let index = match known {
            Some(index) => index,
            None => {
                let options = self.options_of(&channel);
                self.open(Arc::clone(&channel), options, now)
            }
        };
        self.note_join(index);
        let record = &mut self.channels[index];
        record.subscribed.insert(shard);
        let position = self.position_of(Some(index));
        self.effects.push_back(HomeEffect::Joined {
            shard,
            channel,
            serial,
            position,
        });
        self.finish(index, now);
    }

    /// A shard has lost its last subscriber of a channel.
    pub fn handle_leave(&mut self, channel: &str, shard: usize, now: Now) {
        self.note_channel_use(channel, now);
        if self.holds_leave(channel, shard) {
            return;
        }
        let Some(&index) = self.names.get(channel) else {
            return;
        };
        let record = &mut self.channels[index];
        let was_subscribed = record.subscribed.remove(shard);
        if record.subscribed.is_empty() {
            record.users.clear();
            if was_subscribed {
                self.note_empty(index, now);
            }
            self.flush_batch(index);
            if self.channels[index].history.is_none() {
                self.forget(index);
                return;
            }
            self.adopt_all_options(index);
            self.touch_stream(index, now);
        }
        self.finish(index, now);
    }

    /// A subscriber comes back and asks for what it missed. Its shard has joined before: what is published after the answer's
    /// position is delivered after the answer, except that a batch may repeat some of it.
    pub fn handle_recover(&mut self, request: Recover, now: Now) {
        self.ask(Question::Recover(request), now, now);
    }

    fn answer_recover(&mut self, request: Recover, now: Now) {
        self.note_channel_use(&request.channel, now);
        let index = self.find_or_open(&request.channel, now);
        self.renew_if_beyond(index, &request.since);
        let position = self.position_of(index);
        let floor = index.map_or(0, |index| self.floor_of(index));
        let history = index.and_then(|index| self.current_history(index, now));
        let publications = history.and_then(|history| history.recover(position, floor, &request));
        // Its position may be of an epoch that this home has not heard of yet.
        let is_other_epoch = !may_be(&request.since.epoch, position.epoch);
        let publications = publications.ok_or(match is_other_epoch {
            true if self.is_deaf_to(&request.channel) => NotRecovered::Behind,
            _ => NotRecovered::Lost,
        });
        self.tell_recovered(request, publications, now);
    }

    fn tell_recovered(
        &mut self,
        request: Recover,
        publications: Result<Vec<Kept>, NotRecovered>,
        now: Now,
    ) {
        let index = self.find_or_open(&request.channel, now);
        let position = self.position_of(index);
        let Recover {
            channel, ticket, ..
        } = request;
        self.effects.push_back(HomeEffect::Recovered(Recovered {
            ticket,
            channel,
            position,
            publications,
        }));
        self.finish_if_open(index, now);
    }

    /// Somebody reads a channel's history. A channel without history has an empty one.
    pub fn handle_history(&mut self, request: ReadHistory, now: Now) {
        self.ask(Question::History(request), now, now);
    }

    fn answer_history(&mut self, request: &ReadHistory, now: Now) {
        self.note_channel_use(&request.channel, now);
        let index = self.find_or_open(&request.channel, now);
        let position = self.position_of(index);
        let history = index.and_then(|index| self.current_history(index, now));
        let answer = history.map_or_else(
            || HistoryAnswer::Page {
                position,
                publications: Vec::new(),
            },
            |history| history.read(position, request),
        );
        let asker = request.asker;
        self.effects
            .push_back(HomeEffect::History { asker, answer });
        self.finish_if_open(index, now);
    }

    /// Somebody has a channel's history removed. Its epoch and its offset stay.
    pub fn handle_remove_history(&mut self, channel: &str, asker: Asker, now: Now) {
        let index = self.names.get(channel).copied();
        if let Some(index) = index
            && let Some(history) = &mut self.channels[index].history
        {
            let before = history.holding();
            history.clear();
            history.last_used = now.tick();
            self.budget.note(before, history.holding());
            if self.channels[index].is_on_disk {
                self.note_durable_state(index);
            }
        }
        self.effects.push_back(HomeEffect::HistoryRemoved { asker });
        self.finish_if_open(index, now);
    }

    /// The next thing to do, until there is none.
    pub fn poll_effect(&mut self) -> Option<HomeEffect> {
        self.effects.pop_front()
    }

    /// Whether anybody has subscribed to the first channel in the order of their records, from `from` on, and where to look for the
    /// next one.
    #[must_use]
    pub fn channel_from(&self, from: u32) -> Option<(bool, u32)> {
        let index = self.channels.index_from(from)?;
        let is_subscribed = !self.channels[index].subscribed.is_empty();
        Some((is_subscribed, index + 1))
    }

    /// Channels with a record.
    #[must_use]
    pub fn len(&self) -> usize {
        self.channels.len()
    }

    /// Whether no channel has a record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.channels.is_empty()
    }

    /// Its figures.
    #[must_use]
    pub fn stats(&self) -> HomeStats {
        HomeStats {
            channels: self.channels.len(),
            channels_with_history: self.budget.records,
            publications: self.budget.held.publications,
            bytes: self.budget.held.bytes,
            evicted: self.budget.evicted,
        }
    }

    /// The last position of a channel with or without a record. Where a log orders the channel, that is all that was read of it.
    fn position_of(&self, index: Option<u32>) -> Position {
        let Some(index) = index else {
            return Position {
                epoch: self.settings.epoch,
                offset: self.floor,
            };
        };
        let record = &self.channels[index];
        match record.log() {
            Some(log) => self.read_position(log, &record.name),
            None => record.position(),
        }
    }
}

#[cfg(test)]
mod tests;
