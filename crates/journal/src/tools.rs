//! What a person does to the directory of a log: check, export, import, compact.
//!
//! [`check`] and [`export`] change nothing and need no lock, so that they work beside a running server. They see what was written when they
//! read it.

mod lines;
#[cfg(test)]
mod tests;

use crate::disk::{Disk, DiskFile};
use crate::index::{Index, KEY_S, seconds};
use crate::log::{
    BadRange, Durability, Log, LogSettings, OpenError, Opening, WriteError, find_segments,
};
use crate::record::{Body, Place, Record, read};
use crate::segment::{Item, SegmentReader, segment_name};
use crate::unit::{UnfitRecord, Unit};
pub use lines::Line;
use std::collections::BTreeMap;
use std::io::{self, BufRead, ErrorKind, Write};
use thiserror::Error;

/// What [`check`] has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Segments.
    pub segments: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Records of publications, with copies and with those that are not kept any more.
    pub publications: u64,
    /// Other records.
    pub others: u64,
    /// Bytes that are no records. At the end of the last segment it may be what is being written.
    pub bad: Vec<BadRange>,
}

/// Why a tool has not done its work.
#[derive(Debug, Error)]
pub enum ToolError {
    /// The log cannot be opened.
    #[error("{0}")]
    Open(#[from] OpenError),
    /// The log cannot be written.
    #[error("{0}")]
    Write(#[from] WriteError),
    /// A disk or a pipe fails.
    #[error("{0}")]
    Disk(#[from] io::Error),
    /// What is to be imported is not what an export writes.
    #[error("line {line}: {error}")]
    Line {
        /// From 1 on.
        line: u64,
        /// What is wrong with it.
        error: serde_json::Error,
    },
    /// A line says what no log can keep.
    #[error("line {line}: {error}")]
    Unfit {
        /// From 1 on.
        line: u64,
        /// What is wrong with it.
        error: UnfitRecord,
    },
    /// The directory of an import has a log already.
    #[error("the directory is not empty")]
    NotEmpty,
}

/// Reads every record of a directory. `progress` is told bytes that were read, and of how many.
///
/// # Errors
/// The directory has no log that could be read, or the disk fails.
pub fn check<D: Disk>(disk: &D, mut progress: impl FnMut(u64, u64)) -> Result<Checked, ToolError> {
    let mut checked = Checked::default();
    visit(disk, &mut progress, |item| match item {
        Item::Record(_, found) if matches!(found.record.body, Body::Publication(_)) => {
            checked.publications += 1;
        }
        Item::Record(..) => checked.others += 1,
        Item::Bad(position, bytes) => checked.bad.push(BadRange {
            file: segment_name(position.segment()),
            at: position.at(),
            bytes,
        }),
    })
    .map(|(segments, bytes)| {
        checked.segments = segments;
        checked.bytes = bytes;
    })?;
    Ok(checked)
}

/// Gives everything of a log to `take`, in its order. Returns segments and bytes.
fn visit<D: Disk>(
    disk: &D,
    progress: &mut impl FnMut(u64, u64),
    mut take: impl FnMut(Item<'_>),
) -> Result<(u64, u64), ToolError> {
    let (found, log_id) = find_all(disk)?;
    let total = found.values().map(|one| one.bytes).sum();
    let mut done = 0;
    for (number, segment) in &found {
        let mut reader = SegmentReader::new(segment.file.clone(), log_id, *number, segment.bytes);
        while let Some(item) = reader.next()? {
            take(item);
        }
        done += segment.bytes;
        progress(done, total);
    }
    Ok((found.len() as u64, total))
}

type Segments<F> = BTreeMap<u32, crate::log::Found<F>>;

/// Opens all segments. A server that runs may remove one meanwhile, when what it keeps of it stands elsewhere.
fn find_all<D: Disk>(disk: &D) -> Result<(Segments<D::File>, u64), ToolError> {
    let mut tries = 5;
    loop {
        let names = disk.list()?;
        match find_segments(disk, &names) {
            Ok((found, log_id)) => return Ok((found, log_id.unwrap_or_default())),
            Err(OpenError::Disk(error)) if error.kind() == ErrorKind::NotFound && tries > 0 => {
                tries -= 1;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Writes everything that a log keeps: a line of JSON for each channel, publication, stream, producer and idempotency key. Returns lines.
///
/// # Errors
/// The log cannot be read, or what it is written to fails.
pub fn export<D: Disk>(
    disk: &D,
    into: &mut impl Write,
    now_ms: u64,
    mut progress: impl FnMut(u64, u64),
) -> Result<u64, ToolError> {
    let (found, log_id) = find_all(disk)?;
    let total: u64 = found.values().map(|one| one.bytes).sum();
    let mut index = Index::reading(log_id);
    let mut keys: Vec<Line> = Vec::new();
    let mut done = 0;
    for (number, segment) in &found {
        let mut reader = SegmentReader::new(segment.file.clone(), log_id, *number, segment.bytes);
        while let Some(item) = reader.next()? {
            let Item::Record(position, found) = item else {
                continue;
            };
            let record = &found.record;
            let until = seconds(record.time_ms).saturating_add(KEY_S);
            if matches!(record.body, Body::Key(_)) && until > seconds(now_ms) {
                keys.extend(Line::of(record));
            }
            index.apply(&found, position);
        }
        done += segment.bytes;
        progress(done, total);
    }
    index.finish_reading();
    let files = Files { found, log_id };
    let mut lines = 0;
    let mut names: Vec<(String, u32)> = Vec::new();
    for id in index.names.ids().collect::<Vec<_>>() {
        index.expire(id, seconds(now_ms));
        names.push((index.names.get(id).name().to_owned(), id));
    }
    names.sort();
    for (_, id) in names {
        lines += export_channel(&index, id, &files, into)?;
    }
    for key in keys {
        key.write(into)?;
        lines += 1;
    }
    into.flush()?;
    Ok(lines)
}

struct Files<F> {
    found: Segments<F>,
    log_id: u64,
}

fn export_channel<F: DiskFile>(
    index: &Index,
    id: u32,
    files: &Files<F>,
    into: &mut impl Write,
) -> Result<u64, ToolError> {
    let mut lines = 0;
    let mut write = |line: Option<Line>| -> Result<(), ToolError> {
        if let Some(line) = line {
            line.write(into)?;
            lines += 1;
        }
        Ok(())
    };
    for entry in index.names.get(id).entries() {
        write(files.line(entry.placed())?)?;
    }
    write(Line::of(&index.carried(id, 0)))?;
    if let Some(extra) = index.extra(id) {
        for placed in extra.stream.iter().chain(extra.producers.values()) {
            write(files.line(*placed)?)?;
        }
    }
    Ok(lines)
}

impl<F: DiskFile> Files<F> {
    /// The record at a place as a line; none if it cannot be read any more.
    fn line(&self, placed: crate::index::Placed) -> Result<Option<Line>, ToolError> {
        let Some(segment) = self.found.get(&placed.position.segment()) else {
            return Ok(None);
        };
        let mut bytes = vec![0; placed.bytes as usize];
        let count = crate::disk::read_full(&segment.file, &mut bytes, placed.position.at())?;
        let place = Place {
            log_id: self.log_id,
            position: placed.position.0,
        };
        let found = read(&bytes[..count], place, true);
        Ok(found.ok().and_then(|found| Line::of(&found.record)))
    }
}

/// Bytes of a group of an import.
const GROUP_BYTES: usize = 4 << 20;

/// Makes a log of what an export has written, in an empty directory. Returns lines. `progress` is told lines.
///
/// # Errors
/// A line is none of an export, or the disk fails. What came before is in the log.
pub fn import<D: Disk>(
    disk: D,
    from: impl BufRead,
    settings: LogSettings,
    opening: Opening,
    mut progress: impl FnMut(u64),
) -> Result<u64, ToolError> {
    if !disk.list()?.is_empty() {
        return Err(ToolError::NotEmpty);
    }
    let (mut log, _) = Log::open(disk, settings, opening, |_, _| ())?;
    let mut lines = 0;
    for text in from.lines() {
        lines += 1;
        let parsed: Line =
            serde_json::from_str(&text?).map_err(|error| ToolError::Line { line: lines, error })?;
        let unit = parsed.with_record(|record: Record<'_>| Unit::of(record));
        let unit = unit.map_err(|error| ToolError::Unfit { line: lines, error })?;
        log.append(&unit, opening.now_ms)?;
        if log.pending_bytes() >= GROUP_BYTES {
            log.commit(Durability::Synced)?;
            progress(lines);
        }
    }
    log.commit(Durability::Synced)?;
    while !log.snapshot_step(GROUP_BYTES)? {}
    progress(lines);
    Ok(lines)
}

/// Rewrites every segment of a directory of which a tenth or more is of no use. `progress` is told segments, and of how many. Returns bytes
/// before and after.
///
/// # Errors
/// The log cannot be opened, or the disk fails.
pub fn compact<D: Disk>(
    disk: D,
    settings: LogSettings,
    opening: Opening,
    progress: impl FnMut(u64, u64),
) -> Result<(u64, u64), ToolError> {
    let (mut log, _) = Log::open(disk, settings, opening, |_, _| ())?;
    let before = log.bytes();
    log.compact_all(opening.now_ms, progress)?;
    while !log.snapshot_step(GROUP_BYTES)? {}
    Ok((before, log.bytes()))
}
