//! Opening a log: what a crash has left becomes a log again, and what it has lost is reported.

use super::{Durability, Group, Log, LogFigures, LogSettings, Segment, WriteError};
use crate::disk::{Disk, DiskFile, read_full};
use crate::index::Index;
use crate::log::snapshot::{Snapshot, Snapshots};
use crate::record::{Body, Limits, Record, Why};
use crate::segment::{
    HEADER_BYTES, Header, Item, LogPosition, NoHeader, SegmentReader, VERSION, segment_name,
    segment_number,
};
use crate::unit::Unit;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use thiserror::Error;

/// Epochs have 40 bits.
const EPOCH_MASK: u64 = (1 << 40) - 1;

/// What a log is told at its start.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// Milliseconds since 1970.
    pub now_ms: u64,
    /// A random number: the id of a log that begins, and where epochs begin that it has to make.
    pub random: u64,
}

/// What a start has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Segments that were there.
    pub segments: u64,
    /// Records that were read.
    pub records: u64,
    /// A snapshot of the index was of use.
    pub had_snapshot: bool,
    /// What was not finished, and is cut.
    pub cut: Option<CutTail>,
    /// What was safe once and cannot be read any more.
    pub lost: Vec<BadRange>,
    /// The disk has less than it had promised to keep: these channels have another epoch now.
    pub renewed: Vec<Box<str>>,
}

/// The end of a log that was not finished. Nobody had been told that it was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutTail {
    /// The name of the segment.
    pub file: String,
    /// Where it ends now.
    pub at: u64,
    /// Bytes that went.
    pub bytes: u64,
}

/// Bytes of a segment that are no records, where there were some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRange {
    /// The name of the segment.
    pub file: String,
    /// Where they begin.
    pub at: u64,
    /// How many.
    pub bytes: u64,
}

/// Why a log cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Another process has the directory.
    #[error("another process has the directory")]
    Locked,
    /// Another version of the server has written it.
    #[error("{file} has version {version} of the format, and this server reads version {VERSION}")]
    Version {
        /// The name of the segment.
        file: String,
        /// Its version.
        version: u32,
    },
    /// Two logs in one directory.
    #[error("{file} belongs to another log")]
    OtherLog {
        /// The name of the segment.
        file: String,
    },
    /// No segment says which log this is.
    #[error("no segment has a header that can be read")]
    NoHeader,
    /// The disk fails.
    #[error("{0}")]
    Disk(#[from] io::Error),
}

/// A segment as it was found.
pub(crate) struct Found<F> {
    pub(crate) file: F,
    pub(crate) header: Option<Header>,
    pub(crate) bytes: u64,
}

pub(crate) type Segments<F> = BTreeMap<u32, Found<F>>;

/// Where a log ends.
#[derive(Debug, Default)]
struct Tail {
    end: LogPosition,
    /// Bytes behind it in its segment.
    cut_bytes: u64,
    /// Before it in its segment something is damaged.
    has_damage: bool,
}

impl<D: Disk> Log<D> {
    /// Opens the log of a directory, or begins one in an empty directory. `progress` is told bytes that were read, and of how many.
    ///
    /// # Errors
    /// Nothing was changed but an unfinished end.
    pub fn open(
        disk: D,
        settings: LogSettings,
        opening: Opening,
        progress: impl FnMut(u64, u64),
    ) -> Result<(Self, Opened), OpenError> {
        let log = Self::unread(disk, settings, opening)?;
        log.read_all(opening, progress)
    }

    fn unread(mut disk: D, settings: LogSettings, opening: Opening) -> Result<Self, OpenError> {
        match disk.lock() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(OpenError::Locked),
            locked => locked?,
        }
        Ok(Self {
            disk,
            settings,
            log_id: opening.random,
            index: Index::new(opening.random),
            segments: BTreeMap::new(),
            current: None,
            last_segment: 0,
            group: Group::default(),
            group_number: 0,
            synced: LogPosition::default(),
            has_remains: false,
            failure: None,
            compaction: None,
            snapshots: Snapshots::default(),
            figures: LogFigures::default(),
            #[cfg(test)]
            planted: super::tests::Planted::Nothing,
        })
    }

    #[cfg(test)]
    pub(super) fn open_with(
        disk: D,
        settings: LogSettings,
        opening: Opening,
        planted: super::tests::Planted,
    ) -> Result<(Self, Opened), OpenError> {
        let mut log = Self::unread(disk, settings, opening)?;
        log.planted = planted;
        log.read_all(opening, |_, _| ())
    }

    fn read_all(
        mut self,
        opening: Opening,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<(Self, Opened), OpenError> {
        let mut opened = Opened::default();
        let names = self.disk.list()?;
        let (mut found, log_id) = find_segments(&self.disk, &names)?;
        self.log_id = log_id.unwrap_or(self.log_id);
        self.last_segment = found.last_key_value().map_or(0, |(number, _)| *number);
        opened.segments = found.len() as u64;
        let proven = self.remove_empty_end(&mut found)?;
        let tail = self.find_end(&found, proven)?;
        let end = tail.end;
        let snapshot = Snapshot::newest(&self.disk, &names, self.log_id);
        #[cfg(test)]
        let end_is = match self.planted {
            super::tests::Planted::IndexAhead => LogPosition(u64::MAX),
            _ => end,
        };
        #[cfg(not(test))]
        let end_is = end;
        let (snapshot, ahead) = match snapshot {
            Some(one) if one.until <= end_is => (Some(one), None),
            Some(one) => (None, Some(one)),
            None => (None, None),
        };
        opened.had_snapshot = snapshot.is_some();
        self.index = Index::reading(self.log_id);
        let mut replay = Replay::begin(snapshot, &mut self.index);
        let from = replay.from;
        let total = found.values().map(|one| one.bytes).sum();
        let mut done = 0;
        for (number, segment) in &found {
            let next = found.range(number + 1..).next().map(|(_, next)| next);
            if *number >= from.segment() {
                let bytes = if *number == end.segment() {
                    end.at()
                } else {
                    segment.bytes
                };
                let mut reader =
                    SegmentReader::new(segment.file.clone(), self.log_id, *number, bytes);
                #[cfg(test)]
                {
                    reader =
                        reader.without_checks(self.planted == super::tests::Planted::NoChecksum);
                }
                replay.segment(&mut reader, &mut self.index, &mut opened)?;
                report_short(*number, segment, next, &mut opened);
            }
            done += segment.bytes;
            progress(done, total);
        }
        self.take_segments(found, end);
        self.cut(&tail, opening.now_ms, &mut opened)?;
        self.settle(opening, ahead, &mut opened)?;
        Ok((self, opened))
    }

    /// Removes segments at the end that have no record: the start of a segment was interrupted, or nothing came behind it. Returns up
    /// to where the segment before them was safe.
    fn remove_empty_end(
        &mut self,
        found: &mut Segments<D::File>,
    ) -> Result<LogPosition, OpenError> {
        let mut proven = LogPosition::default();
        while let Some(last) = found.last_entry() {
            let segment = last.get();
            let number = *last.key();
            let file = segment.file.clone();
            let mut reader = SegmentReader::new(file, self.log_id, number, segment.bytes);
            let is_empty = loop {
                match reader.next()? {
                    None => break true,
                    Some(Item::Record(..)) => break false,
                    Some(Item::Bad(..)) => {}
                }
            };
            // A header is safe before the first record is written. So one that is damaged, with something behind it, is no beginning.
            if !is_empty || segment.header.is_none() && segment.bytes > HEADER_BYTES as u64 {
                break;
            }
            if let Some(header) = segment.header {
                let before = u64::from(header.previous) << 32 | header.previous_bytes;
                proven = proven.max(LogPosition(before));
            }
            last.remove();
            self.disk.remove(&segment_name(number))?;
        }
        Ok(proven)
    }

    /// Where the log ends. Behind it is what a crash has left of groups that nobody was answered for.
    ///
    /// A damaged place is such an end, unless a group behind it says that it had been safe. Then the disk has damaged it later.
    fn find_end(
        &self,
        found: &Segments<D::File>,
        mut proven: LogPosition,
    ) -> Result<Tail, OpenError> {
        let Some((&number, segment)) = found.last_key_value() else {
            return Ok(Tail::default());
        };
        let reader =
            || SegmentReader::new(segment.file.clone(), self.log_id, number, segment.bytes);
        #[cfg(test)]
        let reader = || {
            let is_blind = self.planted == super::tests::Planted::NoChecksum;
            reader().without_checks(is_blind)
        };
        let mut looking = reader();
        while let Some(item) = looking.next()? {
            if let Item::Record(position, found) = item
                && let Body::Group { synced, .. } = found.record.body
            {
                proven = proven.max(LogPosition(synced).min(position));
            }
        }
        let mut reading = reader();
        // Everything that was safe counts, and behind it whole groups.
        let mut end = LogPosition::new(number, 64);
        let mut group_end = LogPosition::default();
        let mut has_damage = false;
        while let Some(item) = reading.next()? {
            match item {
                Item::Record(position, found) => {
                    if let Body::Group { bytes, .. } = found.record.body {
                        group_end = LogPosition(position.0.saturating_add(bytes));
                    }
                }
                Item::Bad(position, bytes) if position.0 + bytes <= proven.0 => has_damage = true,
                Item::Bad(..) => break,
            }
            if reading.position() == group_end {
                end = group_end;
            }
        }
        has_damage |= end < proven;
        let end = end.max(proven);
        let bytes = LogPosition(u64::from(number) << 32 | segment.bytes);
        #[cfg(test)]
        let end = match self.planted {
            super::tests::Planted::TailNotCut => bytes,
            _ => end,
        };
        let end = end.min(bytes);
        Ok(Tail {
            end,
            cut_bytes: bytes.0 - end.0,
            has_damage,
        })
    }

    /// Cuts what was not finished.
    fn cut(&mut self, tail: &Tail, now_ms: u64, opened: &mut Opened) -> Result<(), OpenError> {
        let number = tail.end.segment();
        let Some(segment) = self.segments.get(&number) else {
            return Ok(());
        };
        let file = segment.file.clone();
        if tail.cut_bytes > 0 {
            if tail.has_damage {
                // The group that proves that the damaged place had been safe may be what is cut. Then the next start would take that
                // place for the end. The header of a segment says up to where the one before it was safe.
                let begun = self.begin_segment(now_ms);
                begun.map_err(io::Error::other)?;
            }
            file.truncate(tail.end.at())?;
            opened.cut = Some(CutTail {
                file: segment_name(number),
                at: tail.end.at(),
                bytes: tail.cut_bytes,
            });
        }
        // What was written and never synced is read from now on, so it has to stay.
        file.sync()?;
        self.disk.sync_directory()?;
        Ok(())
    }

    fn take_segments(&mut self, found: Segments<D::File>, end: LogPosition) {
        for (number, found) in found {
            let bytes = if number == end.segment() {
                end.at()
            } else {
                found.bytes
            };
            let file = found.file;
            self.segments.insert(number, Segment { file, bytes });
        }
        self.synced = self.end();
    }

    /// Drops what is gone with its segments, and gives another epoch to channels of which the disk has lost the end.
    fn settle(
        &mut self,
        opening: Opening,
        ahead: Option<Snapshot>,
        opened: &mut Opened,
    ) -> Result<(), OpenError> {
        self.index.finish_reading();
        let ids: Vec<u32> = self.index.names.ids().collect();
        for id in ids {
            let segments = &self.segments;
            let is_there = |segment| segments.contains_key(&segment);
            self.index.drop_missing(id, is_there);
            if !self.index.forget_unless(id, is_there) {
                self.index.expire(id, crate::index::seconds(opening.now_ms));
            }
        }
        for number in self.index.segments() {
            if !self.segments.contains_key(&number) {
                self.index.live.remove(&number);
            }
        }
        let mut unit = Unit::new();
        let mut epoch = opening.random;
        for (name, state) in ahead.iter().flat_map(Snapshot::states) {
            let known = self.index.state(name);
            // Whoever has a position of another epoch is told so without that.
            if known.is_none_or(|known| known.epoch != state.epoch || known.last >= state.last) {
                continue;
            }
            epoch = epoch.wrapping_add(1) & EPOCH_MASK;
            let record = Record {
                channel: name,
                epoch,
                offset: state.last,
                time_ms: opening.now_ms,
                body: Body::Channel {
                    why: Why::Renewed,
                    lost: state.last,
                    limits: known.map_or(Limits::NONE, |known| known.limits),
                },
            };
            if unit.push(record).is_ok() {
                opened.renewed.push(name.into());
            }
        }
        let written = self
            .append(&unit, opening.now_ms)
            .and_then(|()| self.commit(Durability::Synced));
        match written {
            Ok(()) => Ok(()),
            // The same is found at the next start.
            Err(WriteError::Full) => Ok(()),
            Err(WriteError::Stopped) => {
                let why = self.failure.clone().unwrap_or_default();
                Err(OpenError::Disk(io::Error::other(why)))
            }
        }
    }
}

/// Opens the files, and finds out which log this is.
pub(crate) fn find_segments<D: Disk>(
    disk: &D,
    names: &[String],
) -> Result<(Segments<D::File>, Option<u64>), OpenError> {
    let mut found = BTreeMap::new();
    let mut log_id = None;
    for name in names {
        let Some(number) = segment_number(name) else {
            continue;
        };
        let file = disk.open(name)?;
        let mut bytes = [0; HEADER_BYTES];
        let count = read_full(&file, &mut bytes, 0)?;
        let header = match Header::parse(&bytes[..count]) {
            Ok(header) if header.number == number => Some(header),
            Err(NoHeader::Version(version)) => {
                let file = name.clone();
                return Err(OpenError::Version { file, version });
            }
            _ => None,
        };
        if let Some(header) = &header
            && *log_id.get_or_insert(header.log_id) != header.log_id
        {
            return Err(OpenError::OtherLog { file: name.clone() });
        }
        let bytes = file.size()?;
        found.insert(
            number,
            Found {
                file,
                header,
                bytes,
            },
        );
    }
    let has_records = found.values().any(|one| one.bytes > HEADER_BYTES as u64);
    if log_id.is_none() && has_records {
        return Err(OpenError::NoHeader);
    }
    Ok((found, log_id))
}

/// Notes that a segment has fewer bytes than it had when the next one was begun.
fn report_short<F>(number: u32, segment: &Found<F>, next: Option<&Found<F>>, opened: &mut Opened) {
    let header = next.and_then(|next| next.header);
    let Some(header) = header.filter(|header| header.previous == number) else {
        return;
    };
    if segment.bytes < header.previous_bytes {
        opened.lost.push(BadRange {
            file: segment_name(number),
            at: segment.bytes,
            bytes: header.previous_bytes - segment.bytes,
        });
    }
}

/// Brings an index up to the end of the log.
struct Replay {
    from: LogPosition,
    /// By number of channel: up to where its snapshot is.
    known_to: Vec<LogPosition>,
}

impl Replay {
    fn begin(snapshot: Option<Snapshot>, index: &mut Index) -> Self {
        let Some(snapshot) = snapshot else {
            return Self {
                from: LogPosition::default(),
                known_to: Vec::new(),
            };
        };
        let from = snapshot.from;
        let known_to = snapshot.restore(index);
        Self { from, known_to }
    }

    fn segment<F: DiskFile>(
        &mut self,
        reader: &mut SegmentReader<F>,
        index: &mut Index,
        opened: &mut Opened,
    ) -> Result<(), OpenError> {
        index.live.entry(reader.position().segment()).or_default();
        while let Some(item) = reader.next()? {
            match item {
                Item::Record(position, found) => {
                    opened.records += 1;
                    let id = index.names.find(found.record.channel);
                    let known_to = id.and_then(|id| self.known_to.get(id as usize));
                    if known_to.is_none_or(|known| position >= *known) {
                        index.apply(&found, position);
                    }
                }
                Item::Bad(position, bytes) if position >= self.from => {
                    opened.lost.push(BadRange {
                        file: segment_name(position.segment()),
                        at: position.at(),
                        bytes,
                    });
                }
                Item::Bad(..) => {}
            }
        }
        Ok(())
    }
}
