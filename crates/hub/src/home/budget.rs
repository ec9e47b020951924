//! The memory that a home's histories may take.
//!
//! When there is too little, the namespace goes first whose publications take most. So each has an equal share, and what others do not
//! use. Whoever may publish in one namespace pushes out nothing of one that has less. Records that nobody has published to go before those
//! that hold a position: whoever may subscribe makes up names, and pushes out only such names.

use super::Home;
use super::history::Holding;
use super::record::HomeChannel;
use super::streams::StreamHolding;
use crate::Namespaces;
use myriad_wheel::{Key, Tick};
use std::collections::{HashMap, VecDeque};

/// Bytes of the record of a channel with history, without its name.
const RECORD_BYTES: u64 = 384;

/// The part of the budget that idle records may take (one in so many) before publications go. Idle records have neither
/// publications nor subscribers. They hold only a position, so many of them must not push out what other channels keep.
const IDLE_DIVISOR: u64 = 8;

/// The part of the budget that producers of streams may take (one in so many) before publications go. Nobody reads what is known of a
/// producer, and whoever makes up names of producers must not push out what others keep.
const PRODUCERS_DIVISOR: u64 = 8;

/// Entries of a queue that may be stale beside as many as are live.
const STALE_MAX: usize = 64;

/// The memory of a home's histories, and in which order it is given back.
#[derive(Debug)]
pub(super) struct Budget {
    bytes_max: u64,
    pub(super) held: Holding,
    /// Records of channels with history.
    pub(super) records: usize,
    idle_bytes: u64,
    /// Of what is known of streams, that of producers.
    producers: StreamHolding,
    /// Uses of producers, ever.
    producer_uses: u64,
    /// Last uses of producers, the oldest first, as record and number. Entries of those that were used again are skipped.
    uses: VecDeque<(Key, u64)>,
    /// Publications that went before their time, ever.
    pub(super) evicted: u64,
    /// What each namespace has. There are as many as the configuration has had since the start.
    shares: Vec<Share>,
    shares_by_name: HashMap<Box<str>, u32>,
    /// Idle records with the time of their last use, each once. Entries of others are skipped.
    idle: VecDeque<(Key, Tick)>,
    /// Idle records to which nobody had published when they were listed, likewise. They go first.
    untouched: VecDeque<(Key, Tick)>,
}

/// The publications of a namespace.
#[derive(Debug, Default)]
struct Share {
    publications: usize,
    bytes: u64,
    /// The oldest first, as record and offset. Entries of those that have gone are skipped.
    order: VecDeque<(Key, u64)>,
}

impl Budget {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            held: Holding::default(),
            records: 0,
            idle_bytes: 0,
            producers: StreamHolding::default(),
            producer_uses: 0,
            uses: VecDeque::new(),
            evicted: 0,
            shares: Vec::new(),
            shares_by_name: HashMap::new(),
            idle: VecDeque::new(),
            untouched: VecDeque::new(),
        }
    }

    /// A history held `before`, and holds `after`.
    pub(super) fn note(&mut self, before: Holding, after: Holding) {
        self.held.publications = self.held.publications + after.publications - before.publications;
        self.held.bytes = self.held.bytes + after.bytes - before.bytes;
        // A history that goes holds nothing afterwards, of no namespace.
        let share = &mut self.shares[before.share as usize];
        share.publications = share.publications + after.publications - before.publications;
        share.bytes = share.bytes + after.bytes - before.bytes;
    }

    /// The number of a channel's namespace.
    fn share_of(&mut self, channel: &str) -> u32 {
        let name = Namespaces::name_of(channel).unwrap_or_default();
        if let Some(share) = self.shares_by_name.get(name) {
            return *share;
        }
        // No configuration has so many namespaces; the last one would be shared.
        let share = u32::try_from(self.shares.len()).unwrap_or(u32::MAX);
        self.shares.push(Share::default());
        self.shares_by_name.insert(name.into(), share);
        share
    }

    /// The namespace whose publications take most; none if there are no publications.
    fn largest_share(&self) -> Option<u32> {
        let shares = (0_u32..).zip(&self.shares);
        let held = shares.filter(|(_, share)| share.publications > 0);
        // Of those that have as much, the first: the choice is the same in each run.
        let largest = held.min_by_key(|(_, share)| std::cmp::Reverse(share.bytes));
        largest.map(|(number, _)| number)
    }

    /// Lists an idle record.
    fn list_idle(&mut self, record: Key, last_used: Tick, is_untouched: bool) {
        let list = match is_untouched {
            true => &mut self.untouched,
            false => &mut self.idle,
        };
        list.push_back((record, last_used));
    }

    fn pop_idle(&mut self) -> Option<(Key, Tick)> {
        self.untouched.pop_front().or_else(|| self.idle.pop_front())
    }

    /// What is known of a stream was `before`, and is `after`.
    fn note_stream(&mut self, before: StreamHolding, after: StreamHolding) {
        self.held.bytes = self.held.bytes + after.bytes - before.bytes;
        let all = &mut self.producers;
        all.producers = all.producers + after.producers - before.producers;
        all.producer_bytes = all.producer_bytes + after.producer_bytes - before.producer_bytes;
    }

    /// The newest publication of a namespace is this one.
    pub(super) fn note_kept(&mut self, share: u32, record: Key, offset: u64) {
        self.shares[share as usize]
            .order
            .push_back((record, offset));
    }

    /// The oldest entry of the namespace whose publications take most.
    fn pop_of_largest(&mut self) -> Option<(Key, u64)> {
        let share = self.largest_share()?;
        self.shares[share as usize].order.pop_front()
    }
}

/// Whether nobody has published to a channel, or made a stream of it, since its record was made.
fn is_untouched(record: &HomeChannel) -> bool {
    let history = record.history.as_ref();
    record.stream.is_none() && history.is_some_and(|one| one.is_untouched(record.last_offset))
}

/// What a record counts, with what is known of its stream.
fn record_bytes(record: &HomeChannel) -> u64 {
    RECORD_BYTES + record.name.len() as u64 + record.stream_holding().bytes
}

impl Home {
    /// Gives memory back until the budget is kept, or all that is left are records of channels with subscribers.
    pub(super) fn keep_budget(&mut self) {
        while self.budget.held.bytes > self.budget.bytes_max {
            let has_many_idle = self.budget.idle_bytes > self.budget.bytes_max / IDLE_DIVISOR;
            let producers_max = self.budget.bytes_max / PRODUCERS_DIVISOR;
            let has_many_producers = self.budget.producers.producer_bytes > producers_max;
            let has_freed = has_many_idle && self.forget_idle()
                || has_many_producers && self.forget_producer()
                || self.evict_oldest()
                || self.forget_idle()
                || self.forget_producer();
            if !has_freed {
                break;
            }
        }
        self.compact_queues();
    }

    /// Drops the oldest publication of the namespace whose publications take most; false if there is none.
    fn evict_oldest(&mut self) -> bool {
        while let Some((key, offset)) = self.budget.pop_of_largest() {
            if !self.is_oldest(key, offset) {
                continue;
            }
            if let Some(history) = &mut self.channels[key.index].history {
                let before = history.holding();
                history.pop_oldest();
                self.budget.note(before, history.holding());
            }
            self.budget.evicted += 1;
            self.note_idleness(key.index);
            return true;
        }
        false
    }

    /// Forgets the producer that has appended nothing for the longest time of all; false if there is none. If it goes on, it is told that
    /// something is missing before what it sends, as a producer is that nobody knows.
    fn forget_producer(&mut self) -> bool {
        while let Some((key, number)) = self.budget.uses.pop_front() {
            if self.is_use(key, number) {
                self.change_stream(key.index, |stream| stream.forget_use(number));
                return true;
            }
        }
        false
    }

    /// Whether an entry of the uses is a producer's last one.
    fn is_use(&self, key: Key, number: u64) -> bool {
        let stream = self
            .channels
            .get(key)
            .and_then(|record| record.stream.as_ref());
        stream.is_some_and(|stream| stream.has_use(number))
    }

    /// A producer of a record's stream appends. Returns the number of this use.
    pub(super) fn note_producer_use(&mut self, index: u32) -> u64 {
        self.budget.producer_uses += 1;
        let number = self.budget.producer_uses;
        // A use of what has no record would be skipped later.
        if let Some(key) = self.channels.key_of(index) {
            self.budget.uses.push_back((key, number));
        }
        number
    }

    /// What is known of a record's stream has changed. It was `before`.
    pub(super) fn note_stream(&mut self, index: u32, before: StreamHolding) {
        let record = &self.channels[index];
        let after = record.stream_holding();
        self.budget.note_stream(before, after);
        if record.history.as_ref().is_some_and(|one| one.is_idle) {
            self.budget.idle_bytes = self.budget.idle_bytes + after.bytes - before.bytes;
        }
    }

    /// Whether an entry of the order is the oldest of its channel. Those before it have been popped.
    fn is_oldest(&self, key: Key, offset: u64) -> bool {
        let history = self
            .channels
            .get(key)
            .and_then(|record| record.history.as_ref());
        history.and_then(|history| history.oldest_offset()) == Some(offset)
    }

    /// Forgets the idle record whose last use was the longest ago, first of those to which nobody has published; false if there is none.
    fn forget_idle(&mut self) -> bool {
        while let Some((key, listed_at)) = self.budget.pop_idle() {
            let Some(record) = self.channels.get_mut(key) else {
                continue;
            };
            let is_untouched = is_untouched(record);
            let Some(history) = record.history.as_mut() else {
                continue;
            };
            history.is_listed = false;
            if !history.is_idle {
                continue;
            }
            if history.last_used > listed_at {
                // It was used since: it waits once more, behind those that were not.
                history.is_listed = true;
                let last_used = history.last_used;
                self.budget.list_idle(key, last_used, is_untouched);
                continue;
            }
            self.forget(key.index);
            return true;
        }
        false
    }

    /// Counts and lists a record that has become idle, and no longer counts one that is in use again.
    pub(super) fn note_idleness(&mut self, index: u32) {
        let record = &mut self.channels[index];
        let bytes = record_bytes(record);
        let is_untouched = is_untouched(record);
        let has_subscribers = !record.subscribed.is_empty();
        let Some(history) = &mut record.history else {
            return;
        };
        let is_idle = !has_subscribers && history.is_empty();
        if is_idle == history.is_idle {
            return;
        }
        history.is_idle = is_idle;
        if !is_idle {
            self.budget.idle_bytes -= bytes;
            return;
        }
        self.budget.idle_bytes += bytes;
        if !history.is_listed {
            history.is_listed = true;
            let last_used = history.last_used;
            if let Some(key) = self.channels.key_of(index) {
                self.budget.list_idle(key, last_used, is_untouched);
            }
        }
    }

    /// Takes a new record of a channel with history into account.
    pub(super) fn note_opened(&mut self, index: u32) {
        let record = &mut self.channels[index];
        if let Some(history) = &mut record.history {
            history.share = self.budget.share_of(&record.name);
        }
        let record = &self.channels[index];
        let (bytes, stream) = (record_bytes(record), record.stream_holding());
        // The record's bytes count those of its stream.
        self.budget.held.bytes += bytes - stream.bytes;
        self.budget.note_stream(StreamHolding::default(), stream);
        self.budget.records += 1;
        self.note_idleness(index);
    }

    /// A record of a channel with history goes.
    pub(super) fn note_forgotten(&mut self, record: &HomeChannel) {
        let Some(history) = &record.history else {
            return;
        };
        let bytes = record_bytes(record);
        self.budget.note(history.holding(), Holding::default());
        let stream = record.stream_holding();
        self.budget.held.bytes -= bytes - stream.bytes;
        self.budget.note_stream(stream, StreamHolding::default());
        self.budget.records -= 1;
        if history.is_idle {
            self.budget.idle_bytes -= bytes;
        }
    }

    /// Drops stale entries once they are more than the live ones, so that the queues are no longer than what they name.
    fn compact_queues(&mut self) {
        let channels = &self.channels;
        for share in &mut self.budget.shares {
            if share.order.len() > 2 * share.publications + STALE_MAX {
                share.order.retain(|&(key, offset)| {
                    let history = channels.get(key).and_then(|record| record.history.as_ref());
                    let oldest = history.and_then(|history| history.oldest_offset());
                    oldest.is_some_and(|oldest| oldest <= offset)
                });
            }
        }
        for idle in [&mut self.budget.idle, &mut self.budget.untouched] {
            if idle.len() > 2 * self.budget.records + STALE_MAX {
                idle.retain(|&(key, _)| channels.contains(key));
            }
        }
        if self.budget.uses.len() > 2 * self.budget.producers.producers + STALE_MAX {
            let mut uses = std::mem::take(&mut self.budget.uses);
            uses.retain(|&(key, number)| self.is_use(key, number));
            self.budget.uses = uses;
        }
    }

    /// Asserts that the figures are those of the records, for tests.
    #[cfg(test)]
    pub(super) fn check_budget(&self) {
        let mut counted = Holding::default();
        let (mut idle_bytes, mut records) = (0, 0);
        let mut producers = StreamHolding::default();
        for index in self.channels.indices() {
            let record = &self.channels[index];
            let Some(history) = &record.history else {
                continue;
            };
            records += 1;
            counted.publications += history.holding().publications;
            counted.bytes += history.holding().bytes;
            counted.bytes += record_bytes(record);
            let stream = record.stream_holding();
            producers.producers += stream.producers;
            producers.producer_bytes += stream.producer_bytes;
            let key = self.channels.key_of(index).expect("in use");
            let is_idle = record.subscribed.is_empty() && history.is_empty();
            assert_eq!(history.is_idle, is_idle);
            idle_bytes += if is_idle { record_bytes(record) } else { 0 };
            let lists = [&self.budget.idle, &self.budget.untouched];
            let listed = lists.into_iter().flatten();
            let listed = listed.filter(|entry| entry.0 == key);
            assert_eq!(listed.count(), usize::from(history.is_listed));
            assert!(history.is_listed || !is_idle);
            for kept in history.kept() {
                let entry = (key, kept.offset);
                let order = &self.budget.shares[history.share as usize].order;
                let named = order.iter().filter(|named| **named == entry);
                assert_eq!(named.count(), 1);
            }
        }
        for (key, number) in self.channels.indices().flat_map(|index| {
            let key = self.channels.key_of(index).expect("in use");
            let stream = self.channels[index].stream.as_ref();
            let uses = stream.into_iter().flat_map(|stream| stream.uses());
            uses.map(move |number| (key, number))
        }) {
            let named = self
                .budget
                .uses
                .iter()
                .filter(|named| **named == (key, number));
            assert_eq!(named.count(), 1);
        }
        assert_eq!(counted, self.budget.held);
        let shares = &self.budget.shares;
        let sum: usize = shares.iter().map(|share| share.publications).sum();
        assert_eq!(sum, counted.publications);
        assert_eq!(producers, self.budget.producers);
        assert!(self.budget.uses.len() <= 2 * producers.producers + STALE_MAX);
        assert_eq!(
            (records, idle_bytes),
            (self.budget.records, self.budget.idle_bytes)
        );
        for share in &self.budget.shares {
            assert!(share.order.len() <= 2 * share.publications + STALE_MAX);
        }
        for idle in [&self.budget.idle, &self.budget.untouched] {
            assert!(idle.len() <= 2 * records + STALE_MAX);
        }
        assert!(
            counted.bytes <= self.budget.bytes_max
                || counted.publications == 0 && idle_bytes == 0 && producers.producers == 0
        );
    }
}
