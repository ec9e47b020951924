//! Segments: the files of a log, and how one is read.
//!
//! A segment begins with a header of 64 bytes: the letters `myriadhl`, the version of the format (4 bytes), the header's length (4), the
//! log's id (8), the segment's number (8), the length of the segment before it (8), milliseconds since 1970 (8), the number
//! of the segment before it (4), 8 zeros, and the CRC-32C of the 60 bytes before. Records follow.

use crate::disk::{DiskFile, read_full};
use crate::record::{Body, HEAD_BYTES, NoRecord, Place, Read, long, number, read};
use crc32c::crc32c;
use std::fmt;
use std::io;

/// The version of the format that this code writes.
pub const VERSION: u32 = 1;
/// Bytes of a segment's header.
pub(crate) const HEADER_BYTES: usize = 64;
const MAGIC: &[u8; 8] = b"myriadhl";
/// Bytes that are read from a file at once.
const CHUNK_BYTES: usize = 1 << 20;

/// Where a record begins: its segment, and the byte in there. Later records of a log have greater positions.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPosition(pub(crate) u64);

impl LogPosition {
    /// A place in a segment.
    #[must_use]
    pub fn new(segment: u32, at: u32) -> Self {
        Self(u64::from(segment) << 32 | u64::from(at))
    }

    /// The segment's number.
    #[must_use]
    pub fn segment(self) -> u32 {
        u32::try_from(self.0 >> 32).unwrap_or(u32::MAX)
    }

    /// The byte in the segment.
    #[must_use]
    pub fn at(self) -> u64 {
        self.0 & u64::from(u32::MAX)
    }
}

impl fmt::Debug for LogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.segment(), self.at())
    }
}

/// The name of a segment's file.
#[must_use]
pub fn segment_name(number: u32) -> String {
    format!("{number:010}.log")
}

/// The number of the segment in a file of this name.
pub(crate) fn segment_number(name: &str) -> Option<u32> {
    let digits = name.strip_suffix(".log")?;
    (digits.len() == 10).then_some(())?;
    digits.parse().ok()
}

/// What a segment says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) log_id: u64,
    pub(crate) number: u32,
    /// The segment before it; 0 if there was none.
    pub(crate) previous: u32,
    /// Bytes of that one when it was sealed.
    pub(crate) previous_bytes: u64,
    pub(crate) made_ms: u64,
}

/// Why a file is no segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoHeader {
    /// It is damaged, or was not written whole.
    Damaged,
    /// Another program has written it.
    Version(u32),
}

impl Header {
    pub(crate) fn write(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&64_u32.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.log_id.to_le_bytes());
        bytes[24..32].copy_from_slice(&u64::from(self.number).to_le_bytes());
        bytes[32..40].copy_from_slice(&self.previous_bytes.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.made_ms.to_le_bytes());
        bytes[48..52].copy_from_slice(&self.previous.to_le_bytes());
        let sum = crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, NoHeader> {
        let Some(bytes) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(NoHeader::Damaged);
        };
        if &bytes[..8] != MAGIC || crc32c(&bytes[..60]) != number(&bytes[60..]) {
            return Err(NoHeader::Damaged);
        }
        match number(&bytes[8..12]) {
            VERSION => {}
            other => return Err(NoHeader::Version(other)),
        }
        Ok(Self {
            log_id: long(&bytes[16..24]),
            number: u32::try_from(long(&bytes[24..32])).map_err(|_| NoHeader::Damaged)?,
            previous_bytes: long(&bytes[32..40]),
            made_ms: long(&bytes[40..48]),
            previous: number(&bytes[48..52]),
        })
    }
}

/// What stands next in a segment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Item<'a> {
    /// A record, and where it begins.
    Record(LogPosition, Read<'a>),
    /// So many bytes from here on are none, up to the next record or the end.
    Bad(LogPosition, u64),
}

/// Reads the records of one segment, a part of the file at a time.
#[derive(Debug)]
pub(crate) struct SegmentReader<F> {
    file: F,
    log_id: u64,
    number: u32,
    /// Bytes of the file that count.
    end: u64,
    at: u64,
    buffer: Vec<u8>,
    buffer_at: u64,
    /// The group of the last record.
    group: u32,
    /// Bytes were left out since, so the next record may be of a later group whose beginning is not known.
    is_group_open: bool,
    checks: bool,
}

impl<F: DiskFile> SegmentReader<F> {
    /// From the first record on, up to a byte of the file.
    pub(crate) fn new(file: F, log_id: u64, number: u32, end: u64) -> Self {
        Self::from(file, log_id, LogPosition::new(number, 64), end)
    }

    /// From a record on.
    pub(crate) fn from(file: F, log_id: u64, from: LogPosition, end: u64) -> Self {
        Self {
            file,
            log_id,
            number: from.segment(),
            // A position has 32 bits for the byte.
            end: end.min(u64::from(u32::MAX)),
            at: from.at(),
            buffer: Vec::new(),
            buffer_at: 0,
            group: 0,
            is_group_open: from.at() > HEADER_BYTES as u64,
            checks: true,
        }
    }

    /// The same that believes every checksum, for a test of the tests.
    #[cfg(test)]
    pub(crate) fn without_checks(mut self, is_so: bool) -> Self {
        self.checks = !is_so;
        self
    }

    /// Where the next item begins.
    pub(crate) fn position(&self) -> LogPosition {
        LogPosition(u64::from(self.number) << 32 | self.at)
    }

    /// The next item; none at the end.
    ///
    /// # Errors
    /// The disk fails.
    pub(crate) fn next(&mut self) -> io::Result<Option<Item<'_>>> {
        if self.at >= self.end {
            return Ok(None);
        }
        let begin = self.at;
        let mut at = self.at;
        // Only the borrow checker wants the record looked for first and read again.
        loop {
            let (step, is_record) = self.look(at)?;
            if is_record {
                break;
            }
            at = (at + step).min(self.end);
            self.is_group_open = true;
            if at >= self.end {
                break;
            }
        }
        let position = LogPosition(u64::from(self.number) << 32 | begin);
        if at > begin {
            self.at = at;
            return Ok(Some(Item::Bad(position, at - begin)));
        }
        let from = usize::try_from(at - self.buffer_at).unwrap_or(usize::MAX);
        let bytes = self.buffer.get(from..).unwrap_or_default();
        let place = Place {
            log_id: self.log_id,
            position: position.0,
        };
        let Ok(found) = read(bytes, place, self.checks) else {
            return Ok(None);
        };
        self.group = found.group;
        self.is_group_open = false;
        self.at = at + found.bytes as u64;
        Ok(Some(Item::Record(position, found)))
    }

    /// Whether a record begins at a place, and how many bytes to go on by if not.
    fn look(&mut self, at: u64) -> io::Result<(u64, bool)> {
        let mut need = HEAD_BYTES;
        loop {
            self.fill(at, need)?;
            let from = usize::try_from(at - self.buffer_at).unwrap_or(usize::MAX);
            let bytes = self.buffer.get(from..).unwrap_or_default();
            let place = Place {
                log_id: self.log_id,
                position: u64::from(self.number) << 32 | at,
            };
            match read(bytes, place, self.checks) {
                // What is left of an earlier group that was not finished, behind a shorter one.
                Ok(found) if !self.is_of_group(&found) => return Ok((found.bytes as u64, false)),
                Ok(_) => return Ok((0, true)),
                Err(NoRecord::Body(total)) => return Ok((total as u64, false)),
                Err(NoRecord::Short(total)) if at + total as u64 <= self.end && total > need => {
                    need = total;
                }
                Err(NoRecord::Head | NoRecord::Short(_)) => return Ok((8, false)),
            }
        }
    }

    fn is_of_group(&self, found: &Read<'_>) -> bool {
        match found.record.body {
            Body::Group { .. } => found.group > self.group,
            _ if self.is_group_open => found.group >= self.group,
            _ => found.group == self.group,
        }
    }

    /// Sees to it that the buffer has so many bytes from a place on, if the file has.
    fn fill(&mut self, at: u64, need: usize) -> io::Result<()> {
        let have = self.buffer_at + self.buffer.len() as u64;
        let is_there = at >= self.buffer_at && at + need as u64 <= have;
        if is_there || have >= self.end && at >= self.buffer_at && !self.buffer.is_empty() {
            return Ok(());
        }
        let left = self.end.saturating_sub(at);
        let want = (need.max(CHUNK_BYTES) as u64).min(left);
        self.buffer
            .resize(usize::try_from(want).unwrap_or(usize::MAX), 0);
        self.buffer_at = at;
        let count = read_full(&self.file, &mut self.buffer, at)?;
        self.buffer.truncate(count);
        if (count as u64) < want {
            // The file is shorter than it was.
            self.end = at + count as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written_and_every_bit_of_it_counts() {
        let header = Header {
            log_id: 7,
            number: 9,
            previous: 8,
            previous_bytes: 11,
            made_ms: 13,
        };
        let mut bytes = header.write();
        assert_eq!(Header::parse(&bytes), Ok(header));
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::parse(&bytes), Err(NoHeader::Damaged));
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        bytes[8] = 9;
        let sum = crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(Header::parse(&bytes), Err(NoHeader::Version(9)));
    }

    #[test]
    fn names_and_positions() {
        assert_eq!(segment_name(12), "0000000012.log");
        assert_eq!(segment_number("0000000012.log"), Some(12));
        for other in ["12.log", "0000000012.tmp", "000000001a.log", "lock"] {
            assert_eq!(segment_number(other), None, "{other}");
        }
        let position = LogPosition::new(3, 64);
        assert_eq!((position.segment(), position.at()), (3, 64));
        assert_eq!(format!("{position:?}"), "3:64");
    }
}
