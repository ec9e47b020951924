//! The index on the disk, so that a start need not read the whole log.
//!
//! It is written a part at a time while the log goes on. So each block says up to where of the log it is, and a start reads the log from
//! where the snapshot was begun. The file gets its name only when it is whole and safe, and everything that it says is safe in the log.
//!
//! The file is a row of blocks: length and CRC-32C (4 bytes each), a position, and what it contains. The first has the letters
//! `myriadhi`, the version and the log's id; the last one has no channels but segments.

use super::{Log, WriteError};
use crate::disk::{Disk, DiskFile, is_full, read_full};
use crate::index::{ChannelState, Entry, Extra, Index, Live, Placed};
use crate::record::{Limits, long, number};
use crate::segment::{LogPosition, VERSION};
use crc32c::crc32c;
use std::io;
use std::ops::Range;

/// The name of the file.
pub(crate) const SNAPSHOT_NAME: &str = "index";
const UNFINISHED_NAME: &str = "index.tmp";
const MAGIC: &[u8; 8] = b"myriadhi";
/// Bytes before the content of a block.
const BLOCK_HEAD_BYTES: usize = 16;

/// Snapshots that a log writes.
#[derive(Debug)]
pub(super) struct Snapshots<F> {
    writing: Option<Writing<F>>,
    /// Bytes that had been written when the last one was begun.
    begun_at: u64,
}

impl<F> Default for Snapshots<F> {
    fn default() -> Self {
        Self {
            writing: None,
            begun_at: 0,
        }
    }
}

#[derive(Debug)]
struct Writing<F> {
    file: F,
    bytes: u64,
    next_id: u32,
}

impl<D: Disk> Log<D> {
    /// Whether so much was written since the last snapshot that another one is due.
    #[must_use]
    pub fn is_snapshot_due(&self) -> bool {
        let written = self.figures.written_bytes - self.snapshots.begun_at;
        self.snapshots.writing.is_some() || written >= self.settings.snapshot_every
    }

    /// Goes on with a snapshot, or begins one. Writes about `max_bytes`, and waits for the disk at the end. Returns whether it is whole.
    ///
    /// # Errors
    /// There is none, and the one before it counts. The log goes on, unless it has stopped.
    pub fn snapshot_step(&mut self, max_bytes: usize) -> Result<bool, WriteError> {
        self.refuse_if_stopped()?;
        let writing = match self.snapshots.writing.take() {
            Some(writing) => Ok(writing),
            None => self.begin_snapshot(),
        };
        let done = writing.and_then(|writing| self.write_some(writing, max_bytes));
        match done {
            Ok(None) => self.finish_snapshot(),
            Ok(Some(writing)) => {
                self.snapshots.writing = Some(writing);
                Ok(false)
            }
            Err(error) => {
                let _ = self.disk.remove(UNFINISHED_NAME);
                Err(match is_full(&error) {
                    true => WriteError::Full,
                    false => self.stop("a snapshot", &error),
                })
            }
        }
    }

    fn begin_snapshot(&mut self) -> io::Result<Writing<D::File>> {
        self.snapshots.begun_at = self.figures.written_bytes;
        // It is left of a process that has ended.
        match self.disk.remove(UNFINISHED_NAME) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = self.disk.create(UNFINISHED_NAME)?;
        let mut content = MAGIC.to_vec();
        content.extend_from_slice(&VERSION.to_le_bytes());
        content.extend_from_slice(&self.log_id.to_le_bytes());
        let block = block(self.end(), &content);
        file.write_at(&block, 0)?;
        Ok(Writing {
            file,
            bytes: block.len() as u64,
            next_id: 0,
        })
    }

    /// Writes the next channels. Returns none when all of them are safe.
    fn write_some(
        &mut self,
        mut writing: Writing<D::File>,
        max_bytes: usize,
    ) -> io::Result<Option<Writing<D::File>>> {
        let mut content = Vec::new();
        let end = self.index.names.end();
        while content.len() < max_bytes && writing.next_id < end {
            if self.index.names.is_used(writing.next_id) {
                write_channel(&mut content, &self.index, writing.next_id);
            }
            writing.next_id += 1;
        }
        let bytes = block(self.end(), &content);
        writing.file.write_at(&bytes, writing.bytes)?;
        writing.bytes += bytes.len() as u64;
        if writing.next_id < end {
            return Ok(Some(writing));
        }
        // What it says may be in the log without being safe yet. A start must not find the index ahead of the log.
        #[cfg(test)]
        let is_ahead = self.planted == super::tests::Planted::IndexAhead;
        #[cfg(not(test))]
        let is_ahead = false;
        if !is_ahead {
            self.sync().map_err(io::Error::other)?;
        }
        let bytes = block(self.end(), &segments(&self.index));
        writing.file.write_at(&bytes, writing.bytes)?;
        writing.file.sync()?;
        Ok(None)
    }

    fn finish_snapshot(&mut self) -> Result<bool, WriteError> {
        let renamed = self.disk.rename(UNFINISHED_NAME, SNAPSHOT_NAME);
        let done = renamed.and_then(|()| self.disk.sync_directory());
        done.map_err(|error| self.stop("the name of a snapshot", &error))?;
        Ok(true)
    }
}

fn block(position: LogPosition, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 8];
    bytes.extend_from_slice(&position.0.to_le_bytes());
    bytes.extend_from_slice(content);
    let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
    let sum = crc32c(&bytes[8..]);
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes[4..8].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn write_channel(into: &mut Vec<u8>, index: &Index, id: u32) {
    let channel = index.names.get(id);
    let limits = index.limits_of(channel);
    let name = channel.name().as_bytes();
    let length = u16::try_from(name.len()).unwrap_or(u16::MAX);
    into.extend_from_slice(&length.to_le_bytes());
    into.extend_from_slice(name);
    for one in [
        channel.epoch,
        channel.last,
        channel.lost,
        channel.state.0,
        channel.newest.0,
    ] {
        into.extend_from_slice(&one.to_le_bytes());
    }
    let extra = index.extra(id);
    let flags = u8::from(channel.is_last_stated) | u8::from(extra.is_some()) << 1;
    into.push(flags);
    for one in [limits.size, limits.ttl_s, channel.count] {
        into.extend_from_slice(&one.to_le_bytes());
    }
    let mut before = Entry {
        offset: channel.lost,
        ..Entry::default()
    };
    for entry in channel.entries() {
        entry.encode(&before, into);
        before = entry;
    }
    let Some(extra) = extra else {
        return;
    };
    write_placed(
        into,
        extra.stream.unwrap_or(Placed {
            position: LogPosition::default(),
            bytes: 0,
        }),
    );
    let count = u32::try_from(extra.producers.len()).unwrap_or(u32::MAX);
    into.extend_from_slice(&count.to_le_bytes());
    for (key, placed) in &extra.producers {
        let length = u32::try_from(key.len()).unwrap_or(u32::MAX);
        into.extend_from_slice(&length.to_le_bytes());
        into.extend_from_slice(key);
        write_placed(into, *placed);
    }
}

fn write_placed(into: &mut Vec<u8>, placed: Placed) {
    into.extend_from_slice(&placed.position.0.to_le_bytes());
    into.extend_from_slice(&placed.bytes.to_le_bytes());
}

fn segments(index: &Index) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (segment, live) in &index.live {
        bytes.extend_from_slice(&segment.to_le_bytes());
        bytes.extend_from_slice(&live.keys_until_s.to_le_bytes());
        bytes.extend_from_slice(&live.tombstones.to_le_bytes());
    }
    bytes
}

/// A snapshot as it was found, with all of its checksums.
pub(super) struct Snapshot {
    /// Where it was begun: what the log has from here on may be missing.
    pub(super) from: LogPosition,
    /// Where it was finished: what it has may be in the log up to here.
    pub(super) until: LogPosition,
    bytes: Vec<u8>,
    /// Contents of blocks with channels, and up to where of the log each is.
    blocks: Vec<(Range<usize>, LogPosition)>,
    segments: Range<usize>,
}

/// A channel of a snapshot.
struct Parsed<'a> {
    name: &'a str,
    state: ChannelState,
    stated: LogPosition,
    newest: LogPosition,
    is_last_stated: bool,
    entries: Vec<Entry>,
    extra: Option<Extra>,
}

impl Snapshot {
    /// The snapshot of a directory; none if there is no whole one of this log. Whatever is wrong with it, the log has everything.
    pub(super) fn newest<D: Disk>(disk: &D, names: &[String], log_id: u64) -> Option<Self> {
        if !names.iter().any(|name| name == SNAPSHOT_NAME) {
            return None;
        }
        let file = disk.open(SNAPSHOT_NAME).ok()?;
        let size = usize::try_from(file.size().ok()?).ok()?;
        let mut bytes = vec![0; size];
        let count = read_full(&file, &mut bytes, 0).ok()?;
        bytes.truncate(count);
        Self::parse(bytes, log_id)
    }

    fn parse(bytes: Vec<u8>, log_id: u64) -> Option<Self> {
        let mut blocks = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let length = number(rest.get(..4)?) as usize;
            let end = BLOCK_HEAD_BYTES.checked_add(length)?;
            let block = rest.get(8..end)?;
            if crc32c(block) != number(&rest[4..8]) {
                return None;
            }
            let position = LogPosition(long(&block[..8]));
            blocks.push((at + BLOCK_HEAD_BYTES..at + end, position));
            at += end;
        }
        if blocks.len() < 2 {
            return None;
        }
        let (head, from) = blocks.remove(0);
        let head = &bytes[head];
        let is_ours = head.len() == 20
            && &head[..8] == MAGIC
            && number(&head[8..12]) == VERSION
            && long(&head[12..]) == log_id;
        let (segments, until) = blocks.pop()?;
        let snapshot = Self {
            from,
            until,
            bytes,
            blocks,
            segments,
        };
        (is_ours && snapshot.channels(|_, _| ()).is_some()).then_some(snapshot)
    }

    /// Names and states of its channels.
    pub(super) fn states(&self) -> Vec<(&str, ChannelState)> {
        let mut states = Vec::new();
        self.channels(|parsed, _| states.push((parsed.name, parsed.state)));
        states
    }

    /// Puts it into an index. Returns, by number of channel, up to where of the log the channel is.
    pub(super) fn restore(&self, index: &mut Index) -> Vec<LogPosition> {
        let mut known_to: Vec<LogPosition> = Vec::new();
        self.channels(|parsed, position| {
            let at = (parsed.stated, parsed.newest, parsed.is_last_stated);
            let id = index.restore(
                parsed.name,
                parsed.state.limits,
                parsed.state,
                at,
                &parsed.entries,
            );
            if let Some(extra) = parsed.extra {
                index.restore_extra(id, extra);
            }
            if known_to.len() <= id as usize {
                known_to.resize(id as usize + 1, LogPosition::default());
            }
            known_to[id as usize] = position;
        });
        for segment in self.bytes[self.segments.clone()].chunks_exact(16) {
            let live = index.live.entry(number(&segment[..4])).or_default();
            *live = Live {
                keys_until_s: number(&segment[4..8]),
                tombstones: long(&segment[8..]),
                ..*live
            };
        }
        known_to
    }

    /// Gives its channels to `take`; none if a block is not what we write.
    fn channels<'a>(&'a self, mut take: impl FnMut(Parsed<'a>, LogPosition)) -> Option<()> {
        for (block, position) in &self.blocks {
            let mut rest = &self.bytes[block.clone()];
            while !rest.is_empty() {
                take(parse_channel(&mut rest)?, *position);
            }
        }
        Some(())
    }
}

fn parse_channel<'a>(rest: &mut &'a [u8]) -> Option<Parsed<'a>> {
    let name = number(take(rest, 2)?) as usize;
    let name = str::from_utf8(take(rest, name)?).ok()?;
    let mut longs = [0; 5];
    for one in &mut longs {
        *one = long(take(rest, 8)?);
    }
    let [epoch, last, lost, stated, newest] = longs;
    let flags = take(rest, 1)?[0];
    let mut numbers = [0; 3];
    for one in &mut numbers {
        *one = number(take(rest, 4)?);
    }
    let [size, ttl_s, count] = numbers;
    let mut before = Entry {
        offset: lost,
        ..Entry::default()
    };
    let mut entries = Vec::new();
    for _ in 0..count {
        before = Entry::decode(&before, rest)?;
        entries.push(before);
    }
    let extra = match flags & 2 {
        0 => None,
        _ => Some(parse_extra(rest)?),
    };
    let state = ChannelState {
        epoch,
        last,
        lost,
        whole_after: lost,
        count: u64::from(count),
        limits: Limits { size, ttl_s },
    };
    Some(Parsed {
        name,
        state,
        stated: LogPosition(stated),
        newest: LogPosition(newest),
        is_last_stated: flags & 1 == 1,
        entries,
        extra,
    })
}

fn parse_extra(rest: &mut &[u8]) -> Option<Extra> {
    let stream = parse_placed(rest)?;
    let mut extra = Extra {
        stream: (stream.bytes > 0).then_some(stream),
        ..Extra::default()
    };
    for _ in 0..number(take(rest, 4)?) {
        let key = number(take(rest, 4)?) as usize;
        let key = take(rest, key)?;
        extra.producers.insert(key.into(), parse_placed(rest)?);
    }
    Some(extra)
}

fn parse_placed(rest: &mut &[u8]) -> Option<Placed> {
    let position = LogPosition(long(take(rest, 8)?));
    let bytes = number(take(rest, 4)?);
    Some(Placed { position, bytes })
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(count)?;
    *rest = left;
    Some(taken)
}
