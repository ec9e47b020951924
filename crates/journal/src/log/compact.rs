//! Compaction: what is still of use of a segment is written again, and the segment goes. A bounded number of bytes at a time.

use super::{Durability, Log, WriteError};
use crate::disk::Disk;
use crate::index::{Entry, KEY_S, seconds};
use crate::record::{Body, Read};
use crate::segment::{Item, LogPosition, SegmentReader, segment_name};
use std::collections::{BTreeSet, HashMap};

/// What a step of compaction has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Bytes that were read.
    pub read_bytes: u64,
    /// A segment has gone.
    pub removed: Option<u32>,
}

/// A segment on its way out.
#[derive(Debug)]
pub(super) struct Compaction<F> {
    reader: SegmentReader<F>,
    segment: u32,
    /// Its publications go, too: the log has its most bytes.
    evicts: bool,
    /// Channels that have publications in it, if these go.
    losers: BTreeSet<u32>,
}

/// What becomes of a record of a segment that goes.
pub(super) enum Fate {
    Goes,
    /// It is written again as it is.
    Stays,
    /// What its channel is now is written instead.
    Carried(u32),
}

/// Entries of channels that a step has looked at. Each costs as much as its channel has publications.
pub(super) type Known = HashMap<u32, Vec<Entry>>;

impl<D: Disk> Log<D> {
    /// Goes on with a compaction, or begins one if a segment is due; none if there is nothing to do. Reads about `max_bytes`, writes no more
    /// than that, and waits for the disk. Nothing may wait for a commit.
    ///
    /// # Errors
    /// It is tried again later, unless the log has stopped.
    pub fn compact_step(
        &mut self,
        max_bytes: u64,
        now_ms: u64,
    ) -> Result<Option<Compacted>, WriteError> {
        self.refuse_if_stopped()?;
        assert!(self.group.bytes.is_empty(), "a step is a group of its own");
        if self.compaction.is_none() {
            self.compaction = self.next_compaction(now_ms);
        }
        let Some(mut compaction) = self.compaction.take() else {
            return Ok(None);
        };
        let done = self.copy_some(&mut compaction, max_bytes, now_ms);
        let result = match done {
            Ok((read_bytes, is_whole)) => {
                let copied = self.group.bytes.len() as u64;
                self.commit(Durability::Synced).map(|()| {
                    self.figures.copied_bytes += copied;
                    (read_bytes, is_whole)
                })
            }
            Err(error) => Err(error),
        };
        let (read_bytes, is_whole) = match result {
            Ok(done) => done,
            Err(error) => {
                // It begins anew later: what was copied already is not found in the segment any more.
                self.group.bytes.clear();
                return Err(error);
            }
        };
        let segment = compaction.segment;
        let removed = is_whole.then_some(segment);
        if is_whole {
            self.remove_segment(segment, &compaction.losers)?;
        } else {
            self.compaction = Some(compaction);
        }
        Ok(Some(Compacted {
            read_bytes,
            removed,
        }))
    }

    /// The segment that goes next.
    fn next_compaction(&self, now_ms: u64) -> Option<Compaction<D::File>> {
        let sealed = || {
            self.segments
                .keys()
                .filter(|one| Some(**one) != self.current)
        };
        let is_over = self.settings.disk_max.is_some_and(|max| self.bytes() > max);
        let (segment, evicts) = if is_over {
            (*sealed().next()?, true)
        } else {
            let share = |number: &u32| {
                let live = self.index.live.get(number).copied().unwrap_or_default();
                let bytes = self.segments.get(number).map_or(1, |one| one.bytes.max(1));
                live.bytes * 100 / bytes
            };
            let least = sealed().min_by_key(|number| share(number))?;
            if share(least) >= u64::from(self.settings.compact_below) || !self.gains(*least, now_ms)
            {
                return None;
            }
            (*least, false)
        };
        self.compaction_of(segment, evicts)
    }

    fn compaction_of(&self, segment: u32, evicts: bool) -> Option<Compaction<D::File>> {
        let found = self.segments.get(&segment)?;
        let reader = SegmentReader::new(found.file.clone(), self.log_id, segment, found.bytes);
        Some(Compaction {
            reader,
            segment,
            evicts,
            losers: BTreeSet::new(),
        })
    }

    /// Compacts each segment of which more than a tenth is of no use. `progress` is told segments that are done, and of how many.
    ///
    /// # Errors
    /// What was done stays done.
    pub fn compact_all(
        &mut self,
        now_ms: u64,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<(), WriteError> {
        let segments: Vec<u32> = self.segments.keys().copied().collect();
        let total = segments.len() as u64;
        for (done, segment) in (1..).zip(segments) {
            let live = self.index.live.get(&segment).copied().unwrap_or_default();
            let bytes = self.segments.get(&segment).map_or(0, |one| one.bytes);
            if live.bytes * 10 < bytes * 9 {
                if self.current == Some(segment) {
                    // The next group begins another one.
                    self.current = None;
                }
                self.compaction = self.compaction_of(segment, false);
                while self.compaction.is_some() {
                    self.compact_step(8 << 20, now_ms)?;
                }
            }
            progress(done, total);
        }
        Ok(())
    }

    /// Whether a segment would be smaller behind compaction. One full of keys or of deleted channels would be written again and again.
    fn gains(&self, segment: u32, now_ms: u64) -> bool {
        let live = self.index.live.get(&segment).copied().unwrap_or_default();
        let is_oldest = self.segments.first_key_value().map(|(one, _)| *one) == Some(segment);
        let keeps_tombstones = live.tombstones > 0 && !is_oldest;
        live.keys_until_s <= seconds(now_ms) && !keeps_tombstones
            || self.segments.get(&segment).is_some_and(|one| {
                one.bytes >= self.settings.segment_bytes && live.tombstones * 400 < one.bytes
            })
    }

    /// Appends what stays of the next bytes of a segment. Returns bytes that were read, and whether these were the last.
    fn copy_some(
        &mut self,
        compaction: &mut Compaction<D::File>,
        max_bytes: u64,
        now_ms: u64,
    ) -> Result<(u64, bool), WriteError> {
        let begin = compaction.reader.position();
        let mut known = Known::new();
        loop {
            let read_bytes = compaction.reader.position().0 - begin.0;
            if read_bytes >= max_bytes {
                return Ok((read_bytes, false));
            }
            let item = match compaction.reader.next() {
                Ok(item) => item,
                Err(error) => return Err(self.stop("a read", &error)),
            };
            let Some(item) = item else {
                return Ok((read_bytes, true));
            };
            let Item::Record(position, found) = item else {
                continue;
            };
            if compaction.evicts
                && let Some(id) = self.index.names.find(found.record.channel)
            {
                compaction.losers.insert(id);
            }
            match self.fate(&found, position, compaction.evicts, now_ms, &mut known) {
                Fate::Goes => {}
                Fate::Stays => {
                    let record = found.record;
                    self.begin_group(now_ms)?;
                    self.add(&record, true);
                }
                Fate::Carried(id) => {
                    self.begin_group(now_ms)?;
                    self.carry(id, now_ms);
                }
            }
        }
    }

    /// Writes what is known of a channel.
    fn carry(&mut self, id: u32, now_ms: u64) {
        let mut unit = crate::unit::Unit::new();
        // Its name came from a record, so that it fits into one.
        if unit.push(self.index.carried(id, now_ms)).is_ok() {
            for record in unit.records() {
                self.add(&record, true);
            }
        }
    }

    pub(super) fn fate(
        &self,
        found: &Read<'_>,
        position: LogPosition,
        evicts: bool,
        now_ms: u64,
        known: &mut Known,
    ) -> Fate {
        let record = &found.record;
        let id = self.index.names.find(record.channel);
        let id = match (&record.body, id) {
            (Body::Group { .. }, _) => return Fate::Goes,
            // An older segment may have records of the channel, which would come back. Another channel of its name says so, too.
            (Body::Deleted, id) => {
                let is_oldest = self.segments.range(..position.segment()).next().is_none();
                return if is_oldest || id.is_some() {
                    Fate::Goes
                } else {
                    Fate::Stays
                };
            }
            (_, None) => return Fate::Goes,
            (_, Some(id)) => id,
        };
        let channel = self.index.names.get(id);
        if channel.epoch != record.epoch {
            return Fate::Goes;
        }
        let extra = self.index.extra(id);
        let is_alive = match record.body {
            Body::Publication(_) => {
                let entries = known
                    .entry(id)
                    .or_insert_with(|| channel.entries().collect());
                let at = entries.binary_search_by_key(&record.offset, |one| one.offset);
                let is_kept = at.is_ok_and(|at| entries[at].position == position);
                if channel.newest == position && (evicts || !is_kept) && !channel.is_last_stated {
                    return Fate::Carried(id);
                }
                is_kept && !evicts
            }
            Body::Channel { .. } if channel.state == position => return Fate::Carried(id),
            Body::Stream(_) => {
                let stream = extra.and_then(|extra| extra.stream);
                stream.is_some_and(|placed| placed.position == position)
            }
            Body::Producer { key, .. } => {
                let producer = extra.and_then(|extra| extra.producers.get(key));
                producer.is_some_and(|placed| placed.position == position)
            }
            Body::Key(_) => seconds(record.time_ms).saturating_add(KEY_S) > seconds(now_ms),
            Body::Channel { .. } | Body::Deleted | Body::Group { .. } => false,
        };
        if is_alive { Fate::Stays } else { Fate::Goes }
    }

    /// Removes a segment. What stays of it is on the disk elsewhere.
    fn remove_segment(&mut self, number: u32, losers: &BTreeSet<u32>) -> Result<(), WriteError> {
        for &id in losers {
            // Its number may be another channel's by now, which loses nothing.
            if self.index.names.is_used(id) {
                self.figures.evicted += self.index.drop_missing(id, |one| one != number);
            }
        }
        if let Err(error) = self.disk.remove(&segment_name(number)) {
            return Err(self.stop("removing a segment", &error));
        }
        self.segments.remove(&number);
        self.index.live.remove(&number);
        // Whether an older segment is there decides what others keep. So it must not come back.
        if let Err(error) = self.disk.sync_directory() {
            return Err(self.stop("fsync of the directory", &error));
        }
        Ok(())
    }
}
