//! Records: what a log says of its channels, and how that is written.
//!
//! A record is a head of 20 bytes, then a body, then zeros up to a multiple of 8 bytes. Numbers are little-endian.
//!
//! | bytes of the head | what |
//! | --- | --- |
//! | 0..4 | length of the body |
//! | 4 | kind |
//! | 5 | 1: a copy that compaction made |
//! | 6..8 | length of the channel's name |
//! | 8..12 | number of the group in its segment |
//! | 12..16 | CRC-32C of the seed and the body |
//! | 16..20 | CRC-32C of the seed and the 16 bytes before |
//!
//! The body is epoch, offset and time (8 bytes each), the channel's name, and what the kind adds. The seed is the log's id and the record's
//! position. So bytes of another place are no record here, nor are those that a publisher has written to look like one: nobody outside
//! knows the id.

use crc32c::{crc32c, crc32c_append};

/// Bytes of a head.
pub(crate) const HEAD_BYTES: usize = 20;
/// Bytes of a body before the channel's name.
const FIXED_BYTES: usize = 24;
/// Bytes of a body at most: a head that says more is none.
pub const BODY_BYTES_MAX: usize = 256 << 20;
/// Bytes of a channel's name at most.
pub const NAME_BYTES_MAX: usize = u16::MAX as usize;

const MOVED: u8 = 1;
/// Bytes of the record that begins a group.
pub(crate) const GROUP_BYTES: usize = (HEAD_BYTES + FIXED_BYTES + 16).next_multiple_of(8);

/// What a log says of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The channel's name; empty for what is not about a channel.
    pub channel: &'a str,
    /// The channel's epoch: a number of the caller's.
    pub epoch: u64,
    /// Of a publication its offset, of a key that of the publication which came first with it, otherwise the channel's last one.
    pub offset: u64,
    /// When, in milliseconds since 1970.
    pub time_ms: u64,
    /// What.
    pub body: Body<'a>,
}

/// The kinds of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// A publication. Its content is the caller's: data, tags, publisher.
    Publication(&'a [u8]),
    /// The state of a channel. Everything up to the offset `lost` is gone, and everything of other epochs.
    Channel {
        /// What has happened.
        why: Why,
        /// The greatest offset whose publication is gone.
        lost: u64,
        /// What the channel keeps.
        limits: Limits,
    },
    /// The channel is gone, with everything that was known of it.
    Deleted,
    /// What is known of the channel as a stream: content type, expiry, end. The caller's bytes replace those before.
    Stream(&'a [u8]),
    /// What is known of a producer of the stream. An empty value: nothing any more.
    Producer {
        /// Whose, as the caller names it.
        key: &'a [u8],
        /// The caller's bytes, which replace those before.
        value: &'a [u8],
    },
    /// An idempotency key of the channel.
    Key(&'a [u8]),
    /// Begins a group: records that count all together or not at all.
    Group {
        /// When it was written, everything before this position was on the disk.
        synced: u64,
        /// Bytes of the group, with this record.
        bytes: u64,
    },
}

/// Why a channel's state was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The channel begins.
    Opened,
    /// It has other limits.
    Limits,
    /// Its history was removed.
    Removed,
    /// It got another epoch: a client had a position that this log does not have.
    Renewed,
    /// Nothing: the record that said it is about to go.
    Carried,
}

/// What a channel keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Publications at most.
    pub size: u32,
    /// Seconds that each is kept.
    pub ttl_s: u32,
}

impl Limits {
    /// Everything, for ever.
    pub const NONE: Self = Self {
        size: u32::MAX,
        ttl_s: u32::MAX,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::NONE
    }
}

impl Body<'_> {
    fn kind(&self) -> u8 {
        match self {
            Self::Publication(_) => 1,
            Self::Channel { .. } => 2,
            Self::Deleted => 3,
            Self::Stream(_) => 4,
            Self::Producer { .. } => 5,
            Self::Key(_) => 6,
            Self::Group { .. } => 7,
        }
    }
}

const WHYS: [Why; 5] = [
    Why::Opened,
    Why::Limits,
    Why::Removed,
    Why::Renewed,
    Why::Carried,
];

/// Bytes of a record with a body of this length.
pub(crate) fn record_bytes(body: usize) -> usize {
    (HEAD_BYTES + body).next_multiple_of(8)
}

/// Bytes of the record of the state of a channel with a name of this length.
pub(crate) fn state_bytes(name: usize) -> u32 {
    let bytes = record_bytes(FIXED_BYTES + name + 17);
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRecord {
    /// There may be one with more bytes, so many in all.
    Short(usize),
    /// The head is none.
    Head,
    /// The head is one, of a record of so many bytes, and the body is not what was written.
    Body(usize),
}

/// Where a record stands, which its checksums include.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) log_id: u64,
    pub(crate) position: u64,
}

impl Place {
    fn seed(self) -> u32 {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.log_id.to_le_bytes());
        bytes[8..].copy_from_slice(&self.position.to_le_bytes());
        crc32c(&bytes)
    }
}

/// A record as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Read<'a> {
    pub(crate) record: Record<'a>,
    pub(crate) group: u32,
    pub(crate) moved: bool,
    /// Bytes of all of it.
    pub(crate) bytes: usize,
}

/// What stands before a body. The checksums come when the record has its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) moved: bool,
    pub(crate) group: u32,
}

/// Appends a record at this place. Its body and its name must be within the bounds, which whoever makes units has seen to.
pub(crate) fn write(into: &mut Vec<u8>, record: &Record<'_>, head: Head, place: Place) {
    let from = into.len();
    into.resize(from + HEAD_BYTES, 0);
    write_body(into, record);
    let length = into.len() - from - HEAD_BYTES;
    assert!(length <= BODY_BYTES_MAX && record.channel.len() <= NAME_BYTES_MAX);
    into.resize(from + record_bytes(length), 0);
    let written = &mut into[from..];
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    let name = u16::try_from(record.channel.len()).unwrap_or(u16::MAX);
    let moved = if head.moved { MOVED } else { 0 };
    written[..4].copy_from_slice(&length.to_le_bytes());
    written[4] = record.body.kind();
    written[5] = moved;
    written[6..8].copy_from_slice(&name.to_le_bytes());
    written[8..12].copy_from_slice(&head.group.to_le_bytes());
    let seed = place.seed();
    let body = &written[HEAD_BYTES..HEAD_BYTES + length as usize];
    let sum = crc32c_append(seed, body);
    written[12..16].copy_from_slice(&sum.to_le_bytes());
    let sum = crc32c_append(seed, &written[..16]);
    written[16..20].copy_from_slice(&sum.to_le_bytes());
}

fn write_body(into: &mut Vec<u8>, record: &Record<'_>) {
    into.extend_from_slice(&record.epoch.to_le_bytes());
    into.extend_from_slice(&record.offset.to_le_bytes());
    into.extend_from_slice(&record.time_ms.to_le_bytes());
    into.extend_from_slice(record.channel.as_bytes());
    match record.body {
        Body::Publication(bytes) | Body::Stream(bytes) | Body::Key(bytes) => {
            into.extend_from_slice(bytes);
        }
        Body::Channel { why, lost, limits } => {
            let why = WHYS.iter().position(|one| *one == why).unwrap_or_default();
            into.push(u8::try_from(why).unwrap_or_default());
            into.extend_from_slice(&lost.to_le_bytes());
            into.extend_from_slice(&limits.size.to_le_bytes());
            into.extend_from_slice(&limits.ttl_s.to_le_bytes());
        }
        Body::Deleted => {}
        Body::Producer { key, value } => {
            let length = u32::try_from(key.len()).unwrap_or(u32::MAX);
            into.extend_from_slice(&length.to_le_bytes());
            into.extend_from_slice(key);
            into.extend_from_slice(value);
        }
        Body::Group { synced, bytes } => {
            into.extend_from_slice(&synced.to_le_bytes());
            into.extend_from_slice(&bytes.to_le_bytes());
        }
    }
}

/// Reads the record that begins at this place. `checks`: false only for a test of the tests, which must notice that.
pub(crate) fn read(bytes: &[u8], place: Place, checks: bool) -> Result<Read<'_>, NoRecord> {
    let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else {
        return Err(NoRecord::Short(HEAD_BYTES));
    };
    let length = number(&head[..4]) as usize;
    // The cheap tests first: whoever looks for the next record behind a bad one tries every 8 bytes.
    if !(FIXED_BYTES..=BODY_BYTES_MAX).contains(&length) || head[5] > MOVED {
        return Err(NoRecord::Head);
    }
    let seed = place.seed();
    if checks && crc32c_append(seed, &head[..16]) != number(&head[16..20]) {
        return Err(NoRecord::Head);
    }
    let total = record_bytes(length);
    let Some(body) = bytes.get(HEAD_BYTES..HEAD_BYTES + length) else {
        return Err(NoRecord::Short(total));
    };
    if bytes.len() < total {
        return Err(NoRecord::Short(total));
    }
    if checks && crc32c_append(seed, body) != number(&head[12..16]) {
        return Err(NoRecord::Body(total));
    }
    let name = usize::from(u16::from_le_bytes([head[6], head[7]]));
    let record = parse(head[4], body, name).ok_or(NoRecord::Body(total))?;
    Ok(Read {
        record,
        group: number(&head[8..12]),
        moved: head[5] == MOVED,
        bytes: total,
    })
}

fn parse(kind: u8, body: &[u8], name: usize) -> Option<Record<'_>> {
    let (fixed, rest) = body.split_at_checked(FIXED_BYTES)?;
    let (channel, rest) = rest.split_at_checked(name)?;
    let body = match kind {
        1 => Body::Publication(rest),
        2 => {
            let rest: &[u8; 17] = rest.try_into().ok()?;
            let limits = Limits {
                size: number(&rest[9..13]),
                ttl_s: number(&rest[13..]),
            };
            Body::Channel {
                why: *WHYS.get(usize::from(rest[0]))?,
                lost: long(&rest[1..9]),
                limits,
            }
        }
        3 if rest.is_empty() => Body::Deleted,
        4 => Body::Stream(rest),
        5 => {
            let (length, rest) = rest.split_at_checked(4)?;
            let (key, value) = rest.split_at_checked(number(length) as usize)?;
            Body::Producer { key, value }
        }
        6 => Body::Key(rest),
        7 if rest.len() == 16 => Body::Group {
            synced: long(&rest[..8]),
            bytes: long(&rest[8..]),
        },
        _ => return None,
    };
    Some(Record {
        channel: str::from_utf8(channel).ok()?,
        epoch: long(&fixed[..8]),
        offset: long(&fixed[8..16]),
        time_ms: long(&fixed[16..]),
        body,
    })
}

/// A number of up to 4 bytes.
pub(crate) fn number(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .rev()
        .fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

/// A number of up to 8 bytes.
pub(crate) fn long(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place {
        log_id: 0x1234_5678_9abc_def0,
        position: 3 << 32 | 64,
    };
    const HEAD: Head = Head {
        moved: true,
        group: 7,
    };

    fn record(body: Body<'_>) -> Record<'_> {
        Record {
            channel: "news",
            epoch: 5,
            offset: 9,
            time_ms: 1_700_000_000_000,
            body,
        }
    }

    fn bodies() -> Vec<Body<'static>> {
        let limits = Limits {
            size: 10,
            ttl_s: 300,
        };
        let states = WHYS.map(|why| Body::Channel {
            why,
            lost: 4,
            limits,
        });
        let mut bodies = states.to_vec();
        bodies.extend([
            Body::Publication(b"{\"a\":1}"),
            Body::Publication(b""),
            Body::Deleted,
            Body::Stream(b"text/plain"),
            Body::Producer {
                key: b"p1",
                value: b"7",
            },
            Body::Key(b"k"),
            Body::Group {
                synced: 77,
                bytes: 64,
            },
        ]);
        bodies
    }

    #[test]
    fn every_kind_is_read_as_it_was_written() {
        for body in bodies() {
            let mut bytes = Vec::new();
            write(&mut bytes, &record(body), HEAD, PLACE);
            assert_eq!(bytes.len() % 8, 0);
            let read = read(&bytes, PLACE, true).expect("a record");
            assert_eq!(read.record, record(body));
            assert_eq!((read.group, read.moved), (7, true));
            assert_eq!(read.bytes, bytes.len());
        }
        assert_eq!(state_bytes(4) as usize, {
            let mut bytes = Vec::new();
            write(&mut bytes, &record(bodies()[0]), HEAD, PLACE);
            bytes.len()
        });
    }

    #[test]
    fn no_changed_bit_goes_unnoticed_and_no_other_place_fits() {
        for body in bodies() {
            let mut bytes = Vec::new();
            write(&mut bytes, &record(body), HEAD, PLACE);
            let length = HEAD_BYTES + number(&bytes[..4]) as usize;
            for bit in 0..length * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(read(&bytes, PLACE, true).is_err(), "{body:?}: bit {bit}");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            let elsewhere = Place {
                position: PLACE.position + 8,
                ..PLACE
            };
            assert_eq!(read(&bytes, elsewhere, true), Err(NoRecord::Head));
            for end in 0..bytes.len() {
                let short = read(&bytes[..end], PLACE, true);
                assert!(matches!(short, Err(NoRecord::Short(_))), "{end}");
            }
        }
    }
}
