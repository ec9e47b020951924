//! One channel of the index: its name and its publications in one block of memory, because there may be a million of them.

use super::Entry;
use crate::record::Limits;
use crate::segment::LogPosition;

/// What is known of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelState {
    /// Its epoch.
    pub epoch: u64,
    /// The offset of its last publication.
    pub last: u64,
    /// The offset before the oldest publication that is kept; the last one if none is.
    pub lost: u64,
    /// The greatest offset whose publication is gone. Everything after it is kept. It is more than `lost` only where the disk
    /// has lost publications in the middle.
    pub whole_after: u64,
    /// Publications that are kept.
    pub count: u64,
    /// What it keeps.
    pub limits: Limits,
}

#[derive(Debug, Default)]
pub(crate) struct Channel {
    /// The name, then entries that were dropped, then those that are kept.
    packed: Vec<u8>,
    pub(crate) epoch: u64,
    pub(crate) last: u64,
    /// The offset before the oldest entry, which is the base of its coding. With no entry, everything up to here is gone.
    pub(crate) lost: u64,
    base_position: LogPosition,
    /// The newest publication, which need not be kept any more. 0: none.
    pub(crate) newest: LogPosition,
    /// The last record of its state. 0: none.
    pub(crate) state: LogPosition,
    base_time_s: u32,
    newest_time_s: u32,
    pub(crate) count: u32,
    /// Where the oldest entry begins in `packed`.
    head: u32,
    pub(crate) limits: u16,
    name_bytes: u16,
    /// A state record says the last offset.
    pub(crate) is_last_stated: bool,
    /// It counts in its newest publication's segment.
    pub(crate) is_pinned: bool,
    /// The newest entry has another offset than the last one.
    is_ragged: bool,
}

impl Channel {
    pub(super) fn new(name: &str, epoch: u64, last: u64) -> Self {
        let bytes = u16::try_from(name.len()).unwrap_or(u16::MAX);
        Self {
            packed: name.as_bytes().to_vec(),
            epoch,
            last,
            lost: last,
            head: u32::from(bytes),
            name_bytes: bytes,
            ..Self::default()
        }
    }

    pub(crate) fn name(&self) -> &str {
        let name = &self.packed[..usize::from(self.name_bytes)];
        str::from_utf8(name).unwrap_or_default()
    }

    pub(super) fn state(&self, limits: Limits) -> ChannelState {
        ChannelState {
            epoch: self.epoch,
            last: self.last,
            lost: self.gone_to(),
            whole_after: self.whole_after(),
            count: u64::from(self.count),
            limits,
        }
    }

    /// The offset before the oldest publication; with none, the last one that is gone.
    pub(crate) fn gone_to(&self) -> u64 {
        self.oldest().map_or(self.lost, |oldest| oldest.offset - 1)
    }

    /// The greatest offset that is missing.
    fn whole_after(&self) -> u64 {
        if self.last - self.lost == u64::from(self.count) {
            return self.lost;
        }
        let mut whole_after = self.gone_to();
        let mut before = whole_after;
        for entry in self.entries() {
            if entry.offset > before + 1 {
                whole_after = entry.offset - 1;
            }
            before = entry.offset;
        }
        if self.last > before {
            whole_after = self.last;
        }
        whole_after
    }

    fn base(&self) -> Entry {
        Entry {
            offset: self.lost,
            position: self.base_position,
            bytes: 0,
            time_s: self.base_time_s,
        }
    }

    /// What is kept, the oldest first.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry> {
        let mut before = self.base();
        let mut rest = &self.packed[self.head as usize..];
        std::iter::from_fn(move || {
            before = Entry::decode(&before, &mut rest)?;
            Some(before)
        })
    }

    pub(super) fn oldest(&self) -> Option<Entry> {
        self.entries().next()
    }

    /// Adds the next publication.
    pub(super) fn push(&mut self, mut entry: Entry) {
        if self.count == 0 {
            self.base_position = LogPosition::default();
            self.base_time_s = 0;
            // With nothing before it that is kept, nothing before it is missing that was not gone already.
            self.lost = entry.offset - 1;
        } else if self.is_ragged {
            let mut entries: Vec<Entry> = self.entries().collect();
            entries.push(entry);
            self.last = entry.offset;
            self.set_entries(&entries);
            self.is_last_stated = false;
            return;
        } else {
            // A clock that goes back makes nothing older.
            entry.time_s = entry.time_s.max(self.newest_time_s);
        }
        let before = if self.count == 0 {
            self.base()
        } else {
            Entry {
                offset: self.last,
                position: self.newest,
                bytes: 0,
                time_s: self.newest_time_s,
            }
        };
        self.make_room();
        entry.encode(&before, &mut self.packed);
        self.count += 1;
        self.last = entry.offset;
        self.newest = entry.position;
        self.newest_time_s = entry.time_s;
        self.is_last_stated = false;
        self.is_ragged = false;
    }

    /// A record of the channel's state says its last offset.
    pub(super) fn state_last(&mut self, last: u64) {
        if last > self.last {
            self.last = last;
            self.is_ragged = self.count > 0;
        }
        if self.count == 0 {
            self.lost = self.lost.max(self.last);
        }
        self.is_last_stated = self.last == last;
    }

    /// Puts back what a snapshot has, behind its entries.
    pub(super) fn restore_last(&mut self, last: u64, newest: LogPosition, is_stated: bool) {
        self.is_ragged = self.count > 0 && self.last != last;
        self.last = last;
        self.newest = newest;
        self.is_last_stated = is_stated;
    }

    /// Memory grows by a fourth, and not to twice as much: most channels have few entries, and there are many of them.
    fn make_room(&mut self) {
        let name = usize::from(self.name_bytes);
        let head = self.head as usize;
        let dead = head - name;
        if dead > 64 && dead > (self.packed.len() - head) {
            self.packed.drain(name..head);
            self.head = u32::from(self.name_bytes);
        }
        // The longest entry has 34 bytes, a usual one 7 to 9.
        if self.packed.capacity() - self.packed.len() < 16 {
            self.packed.reserve_exact((self.packed.len() / 4).max(16));
        }
    }

    pub(super) fn pop_oldest(&mut self) -> Option<Entry> {
        let mut rest = &self.packed[self.head as usize..];
        let entry = Entry::decode(&self.base(), &mut rest)?;
        let left = rest.len();
        self.head = u32::try_from(self.packed.len() - left).unwrap_or(u32::MAX);
        self.count -= 1;
        self.lost = entry.offset;
        self.base_position = entry.position;
        self.base_time_s = entry.time_s;
        if self.count == 0 {
            self.clear();
        }
        Some(entry)
    }

    fn clear(&mut self) {
        self.packed.truncate(usize::from(self.name_bytes));
        self.packed.shrink_to_fit();
        self.head = u32::from(self.name_bytes);
        // The last offset may be one that is missing.
        self.lost = self.lost.max(self.last);
        self.is_ragged = false;
    }

    /// Adds entries, by ascending offset, and replaces those of the same offsets. Returns what was replaced, and what came.
    pub(super) fn relocate(&mut self, moved: &[Entry]) -> (Vec<Entry>, Vec<Entry>) {
        let mut kept: Vec<Entry> = Vec::with_capacity(self.count as usize + moved.len());
        let mut replaced = Vec::new();
        let mut moved_rest = moved.iter().copied().peekable();
        for entry in self.entries() {
            while let Some(one) = moved_rest.next_if(|one| one.offset <= entry.offset) {
                kept.push(one);
            }
            if kept.last().is_some_and(|one| one.offset == entry.offset) {
                replaced.push(entry);
            } else {
                kept.push(entry);
            }
        }
        kept.extend(moved_rest);
        if let (Some(first), Some(last)) = (kept.first(), kept.last()) {
            self.lost = self.lost.min(first.offset - 1);
            self.last = self.last.max(last.offset);
        }
        self.set_entries(&kept);
        (replaced, moved.to_vec())
    }

    /// Keeps some entries. Returns the others.
    pub(super) fn retain(&mut self, keeps: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        if self.entries().all(|entry| keeps(&entry)) {
            return Vec::new();
        }
        let (kept, gone): (Vec<Entry>, Vec<Entry>) = self.entries().partition(|one| keeps(one));
        self.set_entries(&kept);
        gone
    }

    fn set_entries(&mut self, entries: &[Entry]) {
        self.packed.truncate(usize::from(self.name_bytes));
        self.head = u32::from(self.name_bytes);
        self.base_position = LogPosition::default();
        self.base_time_s = 0;
        self.count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        let Some(first) = entries.first() else {
            self.clear();
            return;
        };
        self.lost = first.offset - 1;
        let mut before = self.base();
        for entry in entries {
            entry.encode(&before, &mut self.packed);
            before = *entry;
        }
        self.packed.shrink_to_fit();
        self.is_ragged = before.offset != self.last;
        self.newest_time_s = before.time_s;
        if !self.is_ragged {
            self.newest = before.position;
        }
    }

    /// Bytes of memory that it takes.
    pub(super) fn memory_bytes(&self) -> usize {
        // What the allocator adds, and rounds up to.
        size_of::<Self>() + (self.packed.capacity() + 8).next_multiple_of(16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(offset: u64) -> Entry {
        Entry {
            offset,
            position: LogPosition::new(1, u32::try_from(offset * 64).expect("few")),
            bytes: 64,
            time_s: 1_700_000_000 + u32::try_from(offset).expect("few"),
        }
    }

    fn offsets(channel: &Channel) -> Vec<u64> {
        channel.entries().map(|one| one.offset).collect()
    }

    #[test]
    fn a_ring_of_publications_stays_small() {
        assert!(size_of::<Channel>() <= 104);
        let mut channel = Channel::new("news", 7, 0);
        for offset in 1..=10_000 {
            channel.push(entry(offset));
            if channel.count > 10 {
                assert_eq!(channel.pop_oldest(), Some(entry(offset - 10)));
            }
        }
        assert_eq!(channel.name(), "news");
        assert_eq!(offsets(&channel), (9_991..=10_000).collect::<Vec<_>>());
        assert_eq!(channel.entries().last(), Some(entry(10_000)));
        assert!(channel.packed.capacity() < 400);
    }

    #[test]
    fn copies_replace_what_they_are_copies_of() {
        let mut channel = Channel::new("a", 7, 0);
        for offset in 1..=5 {
            channel.push(entry(offset));
        }
        let moved = |offset| Entry {
            position: LogPosition::new(2, 64),
            ..entry(offset)
        };
        let (old, new) = channel.relocate(&[moved(2), moved(5)]);
        assert_eq!((old, new.len()), (vec![entry(2), entry(5)], 2));
        assert_eq!(offsets(&channel), [1, 2, 3, 4, 5]);
        assert_eq!(channel.entries().nth(1), Some(moved(2)));
        channel.push(entry(6));
        assert_eq!(channel.entries().last(), Some(entry(6)));
        assert_eq!(channel.state(Limits::NONE).whole_after, 0);
    }

    #[test]
    fn a_hole_is_known() {
        let mut channel = Channel::new("a", 7, 0);
        for offset in [1, 2, 4, 5] {
            channel.push(entry(offset));
        }
        assert_eq!(channel.state(Limits::NONE).whole_after, 3);
        assert_eq!(channel.retain(|one| one.offset != 5), [entry(5)]);
        assert_eq!(channel.state(Limits::NONE).whole_after, 5);
        channel.push(entry(6));
        assert_eq!(offsets(&channel), [1, 2, 4, 6]);
        assert_eq!(channel.state(Limits::NONE).whole_after, 5);
        assert_eq!(channel.state(Limits::NONE).lost, 0);
    }
}
