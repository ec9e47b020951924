//! The log: segments, groups of units, and the index that follows them.
//!
//! It has no clock, no threads and no randomness but its callers': what it does depends on its arguments and on the disk alone. Each of
//! its methods blocks for as long as the disk takes, so that a thread of its own calls them ([`Writer`](crate::Writer)).

mod compact;
mod load;
mod open;
mod snapshot;
#[cfg(test)]
mod tests;

pub use compact::Compacted;
pub use open::{BadRange, CutTail, OpenError, Opened, Opening};
pub(crate) use open::{Found, find_segments};

use crate::disk::{Disk, DiskFile, is_full};
use crate::index::{ChannelState, Entry, Index, IndexFigures};
use crate::record::{Body, GROUP_BYTES, Head, Place, Record, read, write};
use crate::segment::{HEADER_BYTES, Header, LogPosition, segment_name};
use crate::unit::Unit;
use compact::Compaction;
use snapshot::Snapshots;
use std::collections::BTreeMap;
use std::io;
use thiserror::Error;

/// What a log may take, and how it is laid out.
#[derive(Clone, Copy, Debug)]
pub struct LogSettings {
    /// Bytes at which a segment is sealed. A group is never divided, so that a segment may be longer by one.
    pub segment_bytes: u64,
    /// Bytes of all segments at which the oldest goes, with what it keeps; none: never.
    pub disk_max: Option<u64>,
    /// A sealed segment is compacted when less than this share of it is of use, in percent.
    pub compact_below: u8,
    /// Bytes of the log after which the index is written again.
    pub snapshot_every: u64,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            disk_max: None,
            compact_below: 50,
            snapshot_every: 512 << 20,
        }
    }
}

/// When a commit returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When everything is on the disk (fdatasync has returned).
    Synced,
    /// When the kernel has it, which outlives this process and not the machine.
    Written,
}

/// Why nothing was written.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum WriteError {
    /// There is no room. It may succeed later.
    #[error("the disk of the history is full")]
    Full,
    /// The disk has failed, now or before. Nothing is written any more until the server starts again: a sync that fails may
    /// have lost what came before, and one that succeeds later says nothing about that.
    #[error(
        "the disk of the history has failed, and nothing is written to it until the next start"
    )]
    Stopped,
}

/// What a log has done since it was opened, and what it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogFigures {
    /// Sums over the index.
    pub index: IndexFigures,
    /// Files of the log.
    pub segments: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Groups that were written.
    pub commits: u64,
    /// Calls of fdatasync.
    pub syncs: u64,
    /// Bytes that were written, with copies.
    pub written_bytes: u64,
    /// Of these, copies that compaction made.
    pub copied_bytes: u64,
    /// Publications that went before their time, because the log has its most bytes.
    pub evicted: u64,
}

#[derive(Clone, Debug)]
struct Segment<F> {
    file: F,
    bytes: u64,
}

/// Records that are not written yet.
#[derive(Debug, Default)]
struct Group {
    bytes: Vec<u8>,
    /// Where the first of them will stand.
    begin: LogPosition,
    time_ms: u64,
}

/// A log, open for writing.
#[derive(Debug)]
pub struct Log<D: Disk> {
    disk: D,
    settings: LogSettings,
    log_id: u64,
    index: Index,
    segments: BTreeMap<u32, Segment<D::File>>,
    /// The segment that is written; none before the first group.
    current: Option<u32>,
    last_segment: u32,
    group: Group,
    group_number: u32,
    /// Everything before this position is on the disk.
    synced: LogPosition,
    /// A part of a group was written and cut, and the cut is not safe yet.
    has_remains: bool,
    failure: Option<String>,
    compaction: Option<Compaction<D::File>>,
    snapshots: Snapshots<D::File>,
    figures: LogFigures,
    #[cfg(test)]
    planted: tests::Planted,
}

impl<D: Disk> Log<D> {
    /// Adds a unit to the group that the next commit writes. Publications of a channel come by ascending offset.
    ///
    /// # Errors
    /// Nothing was added.
    pub fn append(&mut self, unit: &Unit, now_ms: u64) -> Result<(), WriteError> {
        if unit.is_empty() {
            return Ok(());
        }
        self.begin_group(now_ms)?;
        for record in unit.records() {
            self.add(&record, false);
        }
        Ok(())
    }

    /// Bytes that wait for the next commit.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.group.bytes.len()
    }

    /// Writes what was appended, all of it or nothing.
    ///
    /// # Errors
    /// Nothing of it counts, and the group is empty. After [`WriteError::Stopped`] some of it may be there at the next start.
    pub fn commit(&mut self, durability: Durability) -> Result<(), WriteError> {
        self.refuse_if_stopped()?;
        if self.group.bytes.is_empty() {
            return match durability {
                Durability::Synced => self.sync(),
                Durability::Written => Ok(()),
            };
        }
        let written = self.write_group();
        let bytes = std::mem::take(&mut self.group.bytes);
        written?;
        if durability == Durability::Synced {
            self.sync()?;
        }
        self.apply_group(&bytes);
        self.group.bytes = bytes;
        self.group.bytes.clear();
        Ok(())
    }

    /// Whether something was written that is not on the disk for sure.
    #[must_use]
    pub fn is_unsynced(&self) -> bool {
        self.synced < self.end()
    }

    /// What is known of a channel, as of the last commit.
    #[must_use]
    pub fn channel(&self, name: &str) -> Option<ChannelState> {
        self.index.state(name)
    }

    /// Whether a position cannot be one that this log has given out, so that the channel needs another epoch: the disk has lost what it
    /// had promised to keep.
    #[must_use]
    pub fn is_beyond(&self, name: &str, epoch: u64, offset: u64) -> bool {
        let state = self.index.state(name);
        state.is_some_and(|state| state.epoch == epoch && offset > state.last)
    }

    /// Where publications of a channel are, after an offset. The files can be read without the log.
    #[must_use]
    pub fn locate(&self, name: &str, after: u64, max: usize) -> Vec<Located<D::File>> {
        let Some(id) = self.index.names.find(name) else {
            return Vec::new();
        };
        let entries = self.index.names.get(id).entries();
        let wanted = entries.skip_while(|entry| entry.offset <= after).take(max);
        wanted.filter_map(|entry| self.located(entry)).collect()
    }

    fn located(&self, entry: Entry) -> Option<Located<D::File>> {
        let segment = self.segments.get(&entry.position.segment())?;
        Some(Located {
            file: segment.file.clone(),
            log_id: self.log_id,
            entry,
        })
    }

    /// Its figures.
    #[must_use]
    pub fn figures(&self) -> LogFigures {
        LogFigures {
            index: self.index.figures(),
            segments: self.segments.len() as u64,
            bytes: self.bytes(),
            ..self.figures
        }
    }

    /// Whether a compaction is under way.
    #[must_use]
    pub fn is_compacting(&self) -> bool {
        self.compaction.is_some()
    }

    /// Why it has stopped; none while it goes on.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Bytes of all segments.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.bytes).sum()
    }

    /// Bytes of memory that its index takes, as far as it counts them. Looks at all channels.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.index.memory_bytes()
    }

    /// Drops publications that are too old by their channels' limits, of so many channels from a number on. Returns the number for the next
    /// call; 0 when all had their turn.
    pub fn expire_some(&mut self, from: u32, channels: u32, now_ms: u64) -> u32 {
        let now_s = crate::index::seconds(now_ms);
        let end = from.saturating_add(channels).min(self.index.names.end());
        for id in from..end {
            if self.index.names.is_used(id) {
                self.index.expire(id, now_s);
            }
        }
        if end < self.index.names.end() { end } else { 0 }
    }

    /// The end of the log.
    #[must_use]
    pub fn end(&self) -> LogPosition {
        let last = self.segments.last_key_value();
        last.map_or(LogPosition::default(), |(number, segment)| {
            LogPosition(u64::from(*number) << 32 | segment.bytes)
        })
    }

    fn refuse_if_stopped(&self) -> Result<(), WriteError> {
        match self.failure {
            None => Ok(()),
            Some(_) => Err(WriteError::Stopped),
        }
    }

    /// Nothing is written any more.
    fn stop(&mut self, what: &str, error: &io::Error) -> WriteError {
        let failure = || format!("{what}: {error}");
        self.failure.get_or_insert_with(failure);
        WriteError::Stopped
    }

    fn begin_group(&mut self, now_ms: u64) -> Result<(), WriteError> {
        self.refuse_if_stopped()?;
        if !self.group.bytes.is_empty() {
            return Ok(());
        }
        let bytes = self.current.and_then(|number| self.segments.get(&number));
        if bytes.is_none_or(|segment| segment.bytes >= self.settings.segment_bytes) {
            self.begin_segment(now_ms)?;
        }
        self.group.begin = self.end();
        self.group_number += 1;
        self.group.time_ms = now_ms;
        // The group's own record is written when its length is known.
        self.group.bytes.resize(GROUP_BYTES, 0);
        Ok(())
    }

    /// Writes the record that begins the group.
    fn finish_group(&mut self) {
        let record = Record {
            channel: "",
            epoch: 0,
            offset: 0,
            time_ms: self.group.time_ms,
            body: Body::Group {
                synced: self.synced.0,
                bytes: self.group.bytes.len() as u64,
            },
        };
        let place = Place {
            log_id: self.log_id,
            position: self.group.begin.0,
        };
        let head = Head {
            moved: false,
            group: self.group_number,
        };
        let mut bytes = Vec::with_capacity(GROUP_BYTES);
        write(&mut bytes, &record, head, place);
        self.group.bytes[..GROUP_BYTES].copy_from_slice(&bytes);
    }

    fn add(&mut self, record: &Record<'_>, moved: bool) {
        let place = Place {
            log_id: self.log_id,
            position: self.group.begin.0 + self.group.bytes.len() as u64,
        };
        let head = Head {
            moved,
            group: self.group_number,
        };
        write(&mut self.group.bytes, record, head, place);
    }

    fn write_group(&mut self) -> Result<(), WriteError> {
        self.finish_group();
        let (at, number) = (self.group.begin.at(), self.group.begin.segment());
        let Some(segment) = self.segments.get_mut(&number) else {
            return Err(self.stop("a segment", &io::ErrorKind::NotFound.into()));
        };
        match segment.file.write_at(&self.group.bytes, at) {
            Ok(()) => {
                let bytes = self.group.bytes.len() as u64;
                segment.bytes += bytes;
                self.figures.commits += 1;
                self.figures.written_bytes += bytes;
                Ok(())
            }
            Err(error) if is_full(&error) => {
                // What was written of it is no group, because it is not whole. A later one in its place has another number.
                self.has_remains = true;
                match segment.file.truncate(at) {
                    Ok(()) => Err(WriteError::Full),
                    Err(error) => Err(self.stop("a cut", &error)),
                }
            }
            Err(error) => Err(self.stop("a write", &error)),
        }
    }

    /// Waits until everything that was written is on the disk.
    ///
    /// # Errors
    /// It is not, and nothing is written any more.
    pub fn sync(&mut self) -> Result<(), WriteError> {
        self.refuse_if_stopped()?;
        let end = self.end();
        if self.synced >= end && !self.has_remains {
            return Ok(());
        }
        let Some(segment) = self.segments.get(&end.segment()) else {
            return Ok(());
        };
        #[cfg(test)]
        if self.planted == tests::Planted::AckBeforeSync {
            return Ok(());
        }
        self.figures.syncs += 1;
        let synced = segment.file.sync();
        #[cfg(test)]
        let synced = match self.planted {
            tests::Planted::RetrySync => synced.or(Ok(())),
            _ => synced,
        };
        if let Err(error) = synced {
            return Err(self.stop("fdatasync", &error));
        }
        self.synced = end;
        self.has_remains = false;
        Ok(())
    }

    /// Seals the segment that is written, and begins another one.
    fn begin_segment(&mut self, now_ms: u64) -> Result<(), WriteError> {
        self.sync()?;
        let previous = self.end();
        self.last_segment += 1;
        let number = self.last_segment;
        let name = segment_name(number);
        let header = Header {
            log_id: self.log_id,
            number,
            previous: previous.segment(),
            previous_bytes: previous.at(),
            made_ms: now_ms,
        };
        let file = match self.disk.create(&name) {
            Ok(file) => file,
            Err(error) if is_full(&error) => return Err(WriteError::Full),
            Err(error) => return Err(self.stop("a new segment", &error)),
        };
        if let Err(error) = file.write_at(&header.write(), 0) {
            // If the name stays, the next start finds a segment without records.
            let _ = self.disk.remove(&name);
            return Err(match is_full(&error) {
                true => WriteError::Full,
                false => self.stop("a new segment", &error),
            });
        }
        if let Err(error) = file.sync() {
            return Err(self.stop("fdatasync of a new segment", &error));
        }
        #[cfg(test)]
        let syncs_directory = self.planted != tests::Planted::NoDirectorySync;
        #[cfg(not(test))]
        let syncs_directory = true;
        // Without it the file is safe, and its name is not.
        if syncs_directory && let Err(error) = self.disk.sync_directory() {
            return Err(self.stop("fsync of the directory", &error));
        }
        let bytes = HEADER_BYTES as u64;
        self.segments.insert(number, Segment { file, bytes });
        self.current = Some(number);
        self.group_number = 0;
        self.synced = self.end();
        Ok(())
    }

    /// Brings the index up to what was written.
    fn apply_group(&mut self, bytes: &[u8]) {
        let mut at = 0;
        let mut moved: BTreeMap<u32, Vec<Entry>> = BTreeMap::new();
        while at < bytes.len() {
            let place = Place {
                log_id: self.log_id,
                position: self.group.begin.0 + at as u64,
            };
            // They were made here, so that their checksums say nothing.
            let Ok(found) = read(&bytes[at..], place, false) else {
                debug_assert!(false, "a group has only records");
                return;
            };
            let position = LogPosition(place.position);
            match (found.moved, found.record.body) {
                // Each place that changes costs as much as its channel has publications. So those of a channel change together.
                (true, Body::Publication(_)) => {
                    if let Some(id) = self.index.names.find(found.record.channel) {
                        let entry = entry_of(&found.record, position, found.bytes);
                        moved.entry(id).or_default().push(entry);
                    }
                }
                _ => self.index.apply(&found, position),
            }
            at += found.bytes;
        }
        for (id, mut entries) in moved {
            entries.sort_by_key(|entry| entry.offset);
            self.index.relocate(id, &entries);
        }
    }
}

fn entry_of(record: &Record<'_>, position: LogPosition, bytes: usize) -> Entry {
    Entry {
        offset: record.offset,
        position,
        bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
        time_s: crate::index::seconds(record.time_ms),
    }
}

/// A publication on the disk.
#[derive(Clone, Debug)]
pub struct Located<F> {
    file: F,
    log_id: u64,
    entry: Entry,
}

/// A publication cannot be read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The disk fails.
    #[error("{0}")]
    Disk(#[from] io::Error),
    /// The disk has other bytes than were written.
    #[error("{file} at {at}: the record of offset {offset} is damaged")]
    Damaged {
        /// The name of the segment.
        file: String,
        /// The byte in it.
        at: u64,
        /// The publication's offset in its channel.
        offset: u64,
    },
}

impl<F: DiskFile> Located<F> {
    /// Its offset in its channel.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.entry.offset
    }

    /// Where its record is.
    #[must_use]
    pub fn position(&self) -> LogPosition {
        self.entry.position
    }

    /// Reads it, and gives it to `then`.
    ///
    /// # Errors
    /// The disk fails, or has something else.
    pub fn read<T>(&self, then: impl FnOnce(&Record<'_>) -> T) -> Result<T, ReadError> {
        let mut bytes = vec![0; self.entry.bytes as usize];
        let at = self.entry.position.at();
        let count = crate::disk::read_full(&self.file, &mut bytes, at)?;
        let place = Place {
            log_id: self.log_id,
            position: self.entry.position.0,
        };
        match read(&bytes[..count], place, true) {
            Ok(found) if found.record.offset == self.entry.offset => Ok(then(&found.record)),
            _ => Err(ReadError::Damaged {
                file: segment_name(self.entry.position.segment()),
                at,
                offset: self.entry.offset,
            }),
        }
    }
}
