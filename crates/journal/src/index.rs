//! The index: what the log says, as far as it fits in memory. Contents stay on the disk.

mod channel;
mod names;
mod places;

pub(crate) use channel::Channel;
pub use channel::ChannelState;
pub(crate) use places::Entry;

use crate::record::{Body, Limits, Read, Record, Why};
use crate::segment::LogPosition;
use names::Names;
use std::collections::{BTreeMap, BTreeSet};

/// Seconds that an idempotency key is known.
pub const KEY_S: u32 = 300;

/// Where a record is that is not a publication, and its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) position: LogPosition,
    pub(crate) bytes: u32,
}

/// What only few channels have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extra {
    pub(crate) stream: Option<Placed>,
    pub(crate) producers: BTreeMap<Box<[u8]>, Placed>,
}

/// What of a segment is still of use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Live {
    pub(crate) bytes: u64,
    /// Channels whose last offset only a publication says that is not kept any more.
    pub(crate) pinned: u64,
    /// Records of channels that are gone.
    pub(crate) tombstones: u64,
    /// When the last of its idempotency keys is forgotten, in seconds since 1970.
    pub(crate) keys_until_s: u32,
}

/// Sums over all channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexFigures {
    /// Channels that are known.
    pub channels: u64,
    /// Publications that are kept.
    pub publications: u64,
    /// Bytes of their records.
    pub live_bytes: u64,
}

/// All channels of a log.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) names: Names,
    extras: BTreeMap<u32, Extra>,
    pub(crate) live: BTreeMap<u32, Live>,
    /// Limits that channels have: few different ones.
    limits: Vec<Limits>,
    publications: u64,
    /// A log is being read. Sizes are kept only at its end: a copy of a channel's state may stand far behind the publications for which it
    /// was written, and an older state before them that is of no use any more.
    is_reading: bool,
}

impl Index {
    /// An empty one. `key` makes it hard to choose names that collide.
    pub(crate) fn new(key: u64) -> Self {
        Self {
            names: Names::new(key),
            extras: BTreeMap::new(),
            live: BTreeMap::new(),
            limits: vec![Limits::NONE],
            publications: 0,
            is_reading: false,
        }
    }

    /// One that takes a log from its beginning, up to [`Index::finish_reading`].
    pub(crate) fn reading(key: u64) -> Self {
        Self {
            is_reading: true,
            ..Self::new(key)
        }
    }

    /// All of the log was read.
    pub(crate) fn finish_reading(&mut self) {
        self.is_reading = false;
        for id in self.names.ids().collect::<Vec<_>>() {
            let limits = self.limits_of(self.names.get(id));
            self.keep_size(id, limits);
        }
    }

    pub(crate) fn figures(&self) -> IndexFigures {
        IndexFigures {
            channels: self.names.len() as u64,
            publications: self.publications,
            live_bytes: self.live.values().map(|live| live.bytes).sum(),
        }
    }

    /// Bytes of memory that it takes, as far as it counts them. Looks at all channels.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.names.memory_bytes() + 200 * self.extras.len() as u64
    }

    /// What is known of a channel.
    pub(crate) fn state(&self, name: &str) -> Option<ChannelState> {
        let id = self.names.find(name)?;
        Some(self.state_of(id))
    }

    pub(crate) fn state_of(&self, id: u32) -> ChannelState {
        let channel = self.names.get(id);
        channel.state(self.limits_of(channel))
    }

    pub(crate) fn limits_of(&self, channel: &Channel) -> Limits {
        let limits = self.limits.get(usize::from(channel.limits));
        limits.copied().unwrap_or(Limits::NONE)
    }

    pub(crate) fn extra(&self, id: u32) -> Option<&Extra> {
        self.extras.get(&id)
    }

    /// Takes what a record says. `position` is where it stands.
    pub(crate) fn apply(&mut self, read: &Read<'_>, position: LogPosition) {
        let bytes = u32::try_from(read.bytes).unwrap_or(u32::MAX);
        let placed = Placed { position, bytes };
        let record = &read.record;
        let name = record.channel;
        match record.body {
            Body::Publication(_) if read.moved => self.move_publication(record, placed),
            Body::Publication(_) => self.publish(record, placed),
            Body::Channel { lost, limits, .. } => {
                self.set_state(record, lost, limits, placed);
            }
            Body::Deleted => {
                if let Some(id) = self.names.find(name) {
                    self.delete(id);
                }
                self.live.entry(position.segment()).or_default().tombstones += 1;
            }
            Body::Stream(_) => {
                let id = self.find_or_open(record);
                let extra = self.extras.entry(id).or_default();
                let before = extra.stream.replace(placed);
                self.replace_live(before, Some(placed));
            }
            Body::Producer { key, value } => self.note_producer(record, key, value, placed),
            Body::Key(_) => {
                let until = seconds(record.time_ms).saturating_add(KEY_S);
                let live = self.live.entry(position.segment()).or_default();
                live.keys_until_s = live.keys_until_s.max(until);
            }
            Body::Group { .. } => {}
        }
    }

    fn note_producer(&mut self, record: &Record<'_>, key: &[u8], value: &[u8], placed: Placed) {
        let id = self.find_or_open(record);
        let extra = self.extras.entry(id).or_default();
        // A producer that was forgotten is kept as a record until its stream goes, or it would come back with its last record.
        let _ = value;
        let before = extra.producers.insert(key.into(), placed);
        self.replace_live(before, Some(placed));
    }

    /// The channel of a record. One of another epoch is another channel of that name.
    fn find_or_open(&mut self, record: &Record<'_>) -> u32 {
        if let Some(id) = self.names.find(record.channel) {
            if self.names.get(id).epoch == record.epoch {
                return id;
            }
            self.delete(id);
        }
        self.names
            .insert(record.channel, record.epoch, record.offset)
    }

    fn publish(&mut self, record: &Record<'_>, placed: Placed) {
        let before = record.offset.saturating_sub(1);
        let id = self.find_or_open(&Record {
            offset: before,
            ..*record
        });
        let channel = self.names.get(id);
        if record.offset <= channel.last {
            // Only a log that two processes have written says so.
            return;
        }
        let limits = self.limits_of(channel);
        self.unpin(id);
        let entry = Entry {
            offset: record.offset,
            position: placed.position,
            bytes: placed.bytes,
            time_s: seconds(record.time_ms),
        };
        self.names.change(id, |channel| channel.push(entry));
        self.publications += 1;
        self.replace_live(None, Some(placed));
        self.keep_size(id, limits);
    }

    /// A copy of a publication, which takes the place of the first one.
    fn move_publication(&mut self, record: &Record<'_>, placed: Placed) {
        let entry = Entry {
            offset: record.offset,
            position: placed.position,
            bytes: placed.bytes,
            time_s: seconds(record.time_ms),
        };
        let id = match self.names.find(record.channel) {
            Some(id) if self.names.get(id).epoch == record.epoch => id,
            // It was alive when it was copied, so this is the channel's epoch.
            _ => self.find_or_open(record),
        };
        self.relocate(id, &[entry]);
    }

    /// Gives publications other places, by ascending offset.
    pub(crate) fn relocate(&mut self, id: u32, moved: &[Entry]) {
        let limits = self.limits_of(self.names.get(id));
        self.unpin(id);
        let (old, new) = self.names.change(id, |channel| channel.relocate(moved));
        self.publications = self.publications + new.len() as u64 - old.len() as u64;
        for entry in old {
            self.replace_live(Some(entry.placed()), None);
        }
        for entry in new {
            self.replace_live(None, Some(entry.placed()));
        }
        self.pin(id);
        self.keep_size(id, limits);
    }

    fn set_state(&mut self, record: &Record<'_>, lost: u64, limits: Limits, placed: Placed) {
        let id = self.find_or_open(record);
        let number = self.number_of(limits);
        self.unpin(id);
        let before = self.names.get(id).state;
        self.names.change(id, |channel| {
            channel.state = placed.position;
            channel.limits = number;
            channel.state_last(record.offset);
        });
        let bytes = crate::record::state_bytes(record.channel.len());
        let before = (before != LogPosition::default()).then_some(Placed {
            position: before,
            bytes,
        });
        self.replace_live(before, Some(placed));
        self.pin(id);
        self.drop_up_to(id, lost);
        self.keep_size(id, limits);
    }

    fn number_of(&mut self, limits: Limits) -> u16 {
        let found = self.limits.iter().position(|one| *one == limits);
        let index = found.unwrap_or_else(|| {
            self.limits.push(limits);
            self.limits.len() - 1
        });
        // Past 65,535 different limits a channel keeps everything here, and its caller says what goes.
        u16::try_from(index).unwrap_or(0)
    }

    /// Drops publications up to an offset.
    pub(crate) fn drop_up_to(&mut self, id: u32, lost: u64) -> u64 {
        let mut dropped = 0;
        while self
            .names
            .get(id)
            .oldest()
            .is_some_and(|one| one.offset <= lost)
        {
            self.drop_oldest(id);
            dropped += 1;
        }
        self.names.change(id, |channel| {
            if channel.count == 0 {
                channel.lost = channel.lost.max(lost);
            }
        });
        dropped
    }

    fn keep_size(&mut self, id: u32, limits: Limits) {
        if self.is_reading {
            return;
        }
        while self.names.get(id).count > limits.size {
            self.drop_oldest(id);
        }
    }

    /// Drops what is too old by its channel's limits.
    pub(crate) fn expire(&mut self, id: u32, now_s: u32) -> u64 {
        let ttl_s = self.limits_of(self.names.get(id)).ttl_s;
        let mut dropped = 0;
        loop {
            let oldest = self.names.get(id).oldest();
            // The second in which it came is not over for all of it.
            if oldest.is_none_or(|one| one.time_s.saturating_add(ttl_s) >= now_s) {
                return dropped;
            }
            self.drop_oldest(id);
            dropped += 1;
        }
    }

    fn drop_oldest(&mut self, id: u32) {
        if let Some(entry) = self.names.change(id, Channel::pop_oldest) {
            self.publications -= 1;
            self.replace_live(Some(entry.placed()), None);
        }
        self.pin(id);
    }

    /// Drops the publications of a channel that are in segments which are gone. Their channel has a hole if later ones go before earlier ones.
    pub(crate) fn drop_missing(&mut self, id: u32, is_there: impl Fn(u32) -> bool) -> u64 {
        let gone = self.names.change(id, |channel| {
            channel.retain(|one| is_there(one.position.segment()))
        });
        self.publications -= gone.len() as u64;
        for entry in &gone {
            self.replace_live(Some(entry.placed()), None);
        }
        if !gone.is_empty() {
            self.pin(id);
        }
        gone.len() as u64
    }

    /// Forgets a channel of which no segment says anything, as a snapshot may have it: it was deleted since, and then that went, too.
    /// Returns whether it did so.
    pub(crate) fn forget_unless(&mut self, id: u32, is_there: impl Fn(u32) -> bool) -> bool {
        let stays = |placed: &Placed| is_there(placed.position.segment());
        if let Some(extra) = self.extras.get_mut(&id) {
            extra.stream = extra.stream.filter(stays);
            extra.producers.retain(|_, placed| stays(placed));
            if *extra == Extra::default() {
                self.extras.remove(&id);
            }
        }
        let channel = self.names.get(id);
        let is_known = channel.count > 0
            || self.extras.contains_key(&id)
            || is_there(channel.state.segment())
            || is_there(channel.newest.segment());
        if !is_known {
            self.delete(id);
        }
        !is_known
    }

    /// Forgets a channel.
    pub(crate) fn delete(&mut self, id: u32) {
        while self.names.get(id).count > 0 {
            self.drop_oldest(id);
        }
        self.unpin(id);
        let channel = self.names.get(id);
        let state = channel.state;
        let bytes = crate::record::state_bytes(channel.name().len());
        if state != LogPosition::default() {
            let position = state;
            self.replace_live(Some(Placed { position, bytes }), None);
        }
        if let Some(extra) = self.extras.remove(&id) {
            let placed = extra
                .stream
                .into_iter()
                .chain(extra.producers.into_values());
            for one in placed {
                self.replace_live(Some(one), None);
            }
        }
        self.names.remove(id);
    }

    /// Counts the last publication of a channel that keeps none: no other record says its last offset.
    fn pin(&mut self, id: u32) {
        let channel = self.names.get(id);
        if channel.count > 0 || channel.is_last_stated || channel.is_pinned {
            return;
        }
        let segment = channel.newest.segment();
        if segment == 0 {
            // Nothing was ever published.
            return;
        }
        self.names.change(id, |channel| channel.is_pinned = true);
        self.live.entry(segment).or_default().pinned += 1;
    }

    fn unpin(&mut self, id: u32) {
        let channel = self.names.get(id);
        if !channel.is_pinned {
            return;
        }
        let segment = channel.newest.segment();
        self.names.change(id, |channel| channel.is_pinned = false);
        if let Some(live) = self.live.get_mut(&segment) {
            live.pinned = live.pinned.saturating_sub(1);
        }
    }

    fn replace_live(&mut self, before: Option<Placed>, after: Option<Placed>) {
        if let Some(after) = after {
            let live = self.live.entry(after.position.segment()).or_default();
            live.bytes += u64::from(after.bytes);
        }
        if let Some(before) = before
            && let Some(live) = self.live.get_mut(&before.position.segment())
        {
            live.bytes = live.bytes.saturating_sub(u64::from(before.bytes));
        }
    }

    /// The record that says what is known of a channel now.
    pub(crate) fn carried(&self, id: u32, now_ms: u64) -> Record<'_> {
        let channel = self.names.get(id);
        Record {
            channel: channel.name(),
            epoch: channel.epoch,
            offset: channel.last,
            time_ms: now_ms,
            body: Body::Channel {
                why: Why::Carried,
                lost: channel.gone_to(),
                limits: self.limits_of(channel),
            },
        }
    }

    /// Segments in which something is of use.
    pub(crate) fn segments(&self) -> BTreeSet<u32> {
        self.live.keys().copied().collect()
    }

    /// Puts back a channel that a snapshot has.
    pub(crate) fn restore(
        &mut self,
        name: &str,
        limits: Limits,
        state: ChannelState,
        at: (LogPosition, LogPosition, bool),
        entries: &[Entry],
    ) -> u32 {
        let number = self.number_of(limits);
        if let Some(id) = self.names.find(name) {
            self.delete(id);
        }
        let id = self.names.insert(name, state.epoch, state.lost);
        let (stated, newest, is_stated) = at;
        self.names.change(id, |channel| {
            channel.limits = number;
            channel.state = stated;
            for entry in entries {
                channel.push(*entry);
            }
            channel.restore_last(state.last, newest, is_stated);
        });
        self.publications += entries.len() as u64;
        for entry in entries {
            self.replace_live(None, Some(entry.placed()));
        }
        if stated != LogPosition::default() {
            let bytes = crate::record::state_bytes(name.len());
            let position = stated;
            self.replace_live(None, Some(Placed { position, bytes }));
        }
        self.pin(id);
        id
    }

    /// Puts back what only few channels have.
    pub(crate) fn restore_extra(&mut self, id: u32, extra: Extra) {
        for placed in extra.stream.iter().chain(extra.producers.values()) {
            self.replace_live(None, Some(*placed));
        }
        self.extras.insert(id, extra);
    }
}

/// Seconds since 1970.
pub(crate) fn seconds(ms: u64) -> u32 {
    u32::try_from(ms / 1000).unwrap_or(u32::MAX)
}
