//! The publications that a channel keeps.

use super::{HistoryAnswer, Kept, ReadHistory, Recover, Since};
use crate::time::ticks;
use crate::{ChannelOptions, Content, Epoch, Now, Position, RecoveryMode};
use myriad_wheel::Tick;
use std::collections::VecDeque;
use std::sync::Arc;

/// What an entry costs beside its content: the entry, its share of the ring's spare room, its entry in the order of all
/// publications, and the counts of the shared content.
const ENTRY_BYTES: u64 = 2 * size_of::<Entry>() as u64 + 48;

#[derive(Debug)]
struct Entry {
    kept: Kept,
    expires: Tick,
    bytes: u64,
}

/// A publication has an offset that its channel has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OutOfOrder;

/// What a history counts against the budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Holding {
    pub(super) publications: usize,
    pub(super) bytes: u64,
    /// Of which namespace, as the budget numbers them.
    pub(super) share: u32,
}

/// The publications that a channel keeps, and how long.
#[derive(Debug)]
pub(super) struct History {
    /// The newest publications, by ascending offset. Where the home numbers them itself, offsets are consecutive.
    entries: VecDeque<Entry>,
    /// The greatest offset whose publication may be missing here: the last one that went, or what came before the history began.
    /// Everything after it is in `entries`.
    lost: u64,
    bytes: u64,
    size_max: usize,
    /// Ticks that a publication is kept.
    ttl: u32,
    /// Ticks that the channel's record is kept after its last use.
    meta_ttl: u32,
    pub(super) last_used: Tick,
    /// A publication that is not kept was delivered after the newest entry, so this entry is no base for a delta.
    is_base_stale: bool,
    /// The latest version that a publication had, and its epoch.
    version: u64,
    version_epoch: Box<str>,
    /// The record counts as idle: nothing is kept, and nobody has subscribed.
    pub(super) is_idle: bool,
    /// The record is in the list of idle ones, perhaps from an earlier time.
    pub(super) is_listed: bool,
    /// Its namespace, as the budget numbers them.
    pub(super) share: u32,
    /// The last offset when the record was made. While it is the last, nobody has published here.
    begins_after: u64,
}

impl History {
    /// A history that begins after the offset `lost`.
    pub(super) fn new(options: &ChannelOptions, lost: u64, now: Now) -> Self {
        Self {
            entries: VecDeque::new(),
            lost,
            bytes: 0,
            size_max: options.history_size as usize,
            ttl: ticks(options.history_ttl),
            meta_ttl: ticks(options.history_meta_ttl.max(options.history_ttl)),
            last_used: now.tick(),
            is_base_stale: false,
            version: 0,
            version_epoch: "".into(),
            is_idle: false,
            is_listed: false,
            share: 0,
            begins_after: lost,
        }
    }

    /// Takes the sizes and times of other options. What is too much, or too old by them, goes.
    pub(super) fn adopt(&mut self, options: &ChannelOptions, now: Now) {
        let ttl = ticks(options.history_ttl);
        for entry in &mut self.entries {
            entry.expires = after(Tick(entry.expires.0.saturating_sub(self.ttl)), ttl);
        }
        self.ttl = ttl;
        self.size_max = options.history_size as usize;
        self.meta_ttl = ticks(options.history_meta_ttl.max(options.history_ttl));
        while self.entries.len() > self.size_max {
            self.pop_oldest();
        }
        self.expire(now, usize::MAX);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn holding(&self) -> Holding {
        Holding {
            publications: self.entries.len(),
            bytes: self.bytes,
            share: self.share,
        }
    }

    /// Whether nothing was published since the record was made, after which the last offset is this one.
    pub(super) fn is_untouched(&self, last_offset: u64) -> bool {
        self.begins_after == last_offset
    }

    pub(super) fn oldest_offset(&self) -> Option<u64> {
        self.entries.front().map(|entry| entry.kept.offset)
    }

    /// When the oldest publication goes.
    pub(super) fn next_expiry(&self) -> Option<Tick> {
        self.entries.front().map(|entry| entry.expires)
    }

    /// When the record goes if nobody uses it until then.
    pub(super) fn record_expiry(&self) -> Tick {
        after(self.last_used, self.meta_ttl)
    }

    /// Keeps the channel's next publication, which is as many ticks old. Returns the one before it, if nothing was delivered in
    /// between.
    ///
    /// # Errors
    /// It has the offset of one that came before, or a lower one. It is not kept.
    pub(super) fn push(
        &mut self,
        offset: u64,
        content: Arc<Content>,
        age: u32,
        now: Now,
    ) -> Result<Option<Kept>, OutOfOrder> {
        let newest = self.entries.back();
        let last = newest.map_or(self.lost, |entry| entry.kept.offset);
        if last >= offset {
            return Err(OutOfOrder);
        }
        let base = newest
            .filter(|_| !self.is_base_stale)
            .map(|entry| entry.kept.clone());
        self.is_base_stale = false;
        let bytes = content.bytes() as u64 + ENTRY_BYTES;
        self.bytes += bytes;
        self.entries.push_back(Entry {
            kept: Kept { offset, content },
            expires: after(now.tick(), self.ttl.saturating_sub(age)),
            bytes,
        });
        if self.entries.len() > self.size_max {
            self.pop_oldest();
        }
        Ok(base)
    }

    /// Notes a version, unless it is not later than the one before it.
    pub(super) fn note_version(&mut self, version: u64, epoch: Box<str>) -> bool {
        let is_comparable = epoch.is_empty() || epoch == self.version_epoch;
        if is_comparable && version <= self.version {
            return false;
        }
        self.version = version;
        if !is_comparable {
            self.version_epoch = epoch;
        }
        true
    }

    /// The latest version that a publication had, 0 if none had one, and its epoch.
    pub(super) fn version(&self) -> (u64, &str) {
        (self.version, &self.version_epoch)
    }

    /// Notes a publication that is delivered and not kept.
    pub(super) fn note_skipped(&mut self) {
        self.is_base_stale = true;
    }

    pub(super) fn pop_oldest(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            self.bytes -= entry.bytes;
            self.lost = entry.kept.offset;
        }
        if self.entries.is_empty() {
            // A channel that was busy once gives its memory back.
            self.entries = VecDeque::new();
        }
    }

    /// Drops what is too old, at most `max` publications.
    pub(super) fn expire(&mut self, now: Now, max: usize) {
        for _ in 0..max {
            if self.next_expiry().is_none_or(|expiry| expiry > now.tick()) {
                break;
            }
            self.pop_oldest();
        }
    }

    /// Drops everything.
    pub(super) fn clear(&mut self) {
        if let Some(newest) = self.entries.back() {
            self.lost = newest.kept.offset;
        }
        self.entries = VecDeque::new();
        self.bytes = 0;
    }

    /// Drops everything, and begins again after an offset, which may be of another epoch.
    pub(super) fn begin_after(&mut self, offset: u64) {
        self.restart();
        self.lost = offset;
    }

    /// The last offset whose publication may be missing.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Drops everything, for another stream of the same name.
    fn restart(&mut self) {
        self.clear();
        self.is_base_stale = false;
        self.version = 0;
        self.version_epoch = "".into();
    }

    /// What is kept after an offset.
    pub(super) fn kept_after(&self, offset: u64) -> impl ExactSizeIterator<Item = Kept> + '_ {
        // Offsets may have holes, so that the place is searched for.
        let before = self
            .entries
            .partition_point(|entry| entry.kept.offset <= offset);
        self.kept().skip(before)
    }

    /// What a subscriber missed that comes back; none if history no longer has all of it. `top` is the channel's last position, and
    /// `floor` an offset up to which publications may be missing in every history.
    pub(super) fn recover(
        &self,
        top: Position,
        floor: u64,
        request: &Recover,
    ) -> Option<Vec<Kept>> {
        match request.mode {
            RecoveryMode::Stream => self.missed_since(top, floor, &request.since, request.max),
            RecoveryMode::Cache => self.newest(top, request.is_asked.then_some(&request.since)),
        }
    }

    fn missed_since(
        &self,
        top: Position,
        floor: u64,
        since: &Since,
        max: u32,
    ) -> Option<Vec<Kept>> {
        let is_whole = since.offset >= self.lost.max(floor) && since.offset <= top.offset;
        if !is_whole || !may_be(&since.epoch, top.epoch) {
            return None;
        }
        let missed = self.kept_after(since.offset);
        (missed.len() <= max as usize).then(|| missed.collect())
    }

    /// The newest publication, unless a subscriber has had it whose position is `since`.
    fn newest(&self, top: Position, since: Option<&Since>) -> Option<Vec<Kept>> {
        let newest = self.entries.back();
        let newest = newest.map_or(self.lost, |entry| entry.kept.offset);
        let is_known = since.is_some_and(|since| {
            (newest.max(1)..=top.offset).contains(&since.offset)
                && *since.epoch == *top.epoch.as_str()
        });
        match self.entries.back() {
            _ if is_known => Some(Vec::new()),
            Some(entry) => Some(vec![entry.kept.clone()]),
            None => None,
        }
    }

    /// What a reader gets.
    pub(super) fn read(&self, top: Position, request: &ReadHistory) -> HistoryAnswer {
        if let Some(since) = &request.since
            && !may_be(&since.epoch, top.epoch)
        {
            return HistoryAnswer::Unrecoverable;
        }
        let limit = request.limit.map_or(usize::MAX, |limit| limit as usize);
        let since = request.since.as_ref().map(|since| since.offset);
        let publications = if request.reverse {
            let before = self.kept().rev();
            let skipped = before.skip_while(|kept| since.is_some_and(|since| kept.offset >= since));
            skipped.take(limit).collect()
        } else {
            let after = self.kept_after(since.unwrap_or(0));
            after.take(limit).collect()
        };
        HistoryAnswer::Page {
            position: top,
            publications,
        }
    }

    pub(super) fn kept(&self) -> impl DoubleEndedIterator<Item = Kept> + ExactSizeIterator + '_ {
        self.entries.iter().map(|entry| entry.kept.clone())
    }

    /// Asserts that its parts agree, for tests.
    #[cfg(test)]
    pub(super) fn check(&self, last_offset: u64) {
        let bytes: u64 = self.entries.iter().map(|entry| entry.bytes).sum();
        assert_eq!(bytes, self.bytes);
        assert!(self.entries.len() <= self.size_max);
        let offsets: Vec<_> = self.kept().map(|kept| kept.offset).collect();
        assert!(offsets.is_sorted_by(|one, next| one < next));
        assert!(offsets.first().is_none_or(|first| *first > self.lost));
        assert!(offsets.last().copied().unwrap_or(self.lost) <= last_offset);
    }

    /// Asserts that no offset is left out, for tests.
    #[cfg(test)]
    pub(super) fn check_consecutive(&self, last_offset: u64) {
        let offsets = self.kept().map(|kept| kept.offset);
        assert!(offsets.eq(self.lost + 1..=last_offset));
    }
}

/// Whether a client's epoch can be this one.
pub(super) fn may_be(epoch: &str, current: Epoch) -> bool {
    epoch.is_empty() || epoch == current.as_str()
}

fn after(tick: Tick, ticks: u32) -> Tick {
    Tick(tick.0.saturating_add(ticks))
}
