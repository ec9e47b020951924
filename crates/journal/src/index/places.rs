//! Where the publications of a channel stand, in about 7 bytes each.
//!
//! Each is written as the difference to the one before it, in numbers of variable length: bytes of the record in units of 8, with a bit for
//! offsets that were left out; how many; the position; the seconds.

use super::Placed;
use crate::segment::LogPosition;

/// A publication in the index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) offset: u64,
    pub(crate) position: LogPosition,
    /// Bytes of its record.
    pub(crate) bytes: u32,
    /// When it came, in seconds since 1970.
    pub(crate) time_s: u32,
}

impl Entry {
    pub(crate) fn placed(&self) -> Placed {
        Placed {
            position: self.position,
            bytes: self.bytes,
        }
    }

    /// Appends it as the next one behind `before`.
    pub(crate) fn encode(&self, before: &Entry, into: &mut Vec<u8>) {
        let skipped = self.offset - before.offset - 1;
        let has_hole = u64::from(skipped > 0);
        write(into, u64::from(self.bytes / 8) << 1 | has_hole);
        if skipped > 0 {
            write(into, skipped);
        }
        write(into, zigzag(units(self.position), units(before.position)));
        let times = (u64::from(self.time_s), u64::from(before.time_s));
        write(into, zigzag(times.0, times.1));
    }

    /// Reads the next one behind `before`, and moves on.
    pub(crate) fn decode(before: &Entry, from: &mut &[u8]) -> Option<Self> {
        let first = read(from)?;
        let skipped = if first & 1 == 1 { read(from)? } else { 0 };
        let position = unzigzag(read(from)?, units(before.position));
        let time_s = unzigzag(read(from)?, u64::from(before.time_s));
        Some(Self {
            offset: before.offset + skipped + 1,
            position: LogPosition(position.wrapping_mul(8)),
            bytes: u32::try_from((first >> 1) * 8).ok()?,
            time_s: u32::try_from(time_s).ok()?,
        })
    }
}

fn units(position: LogPosition) -> u64 {
    position.0 / 8
}

/// A difference of either sign: small ones are small numbers.
fn zigzag(value: u64, before: u64) -> u64 {
    let difference = value.wrapping_sub(before).cast_signed();
    (difference << 1 ^ difference >> 63).cast_unsigned()
}

fn unzigzag(coded: u64, before: u64) -> u64 {
    let difference = coded >> 1 ^ (coded & 1).wrapping_neg();
    before.wrapping_add(difference)
}

fn write(into: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        into.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    into.push((value & 0x7f) as u8);
}

fn read(from: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn entries_are_read_as_they_were_written(
            steps in prop::collection::vec((0u64..3, any::<u64>(), 0u32..1 << 25, any::<u32>()), 0..20),
        ) {
            let mut entries = Vec::new();
            let mut bytes = Vec::new();
            let mut before = Entry::default();
            for (skipped, position, units, time_s) in steps {
                let entry = Entry {
                    offset: before.offset + 1 + skipped,
                    position: LogPosition(position / 8 * 8),
                    bytes: units * 8,
                    time_s,
                };
                entry.encode(&before, &mut bytes);
                entries.push(entry);
                before = entry;
            }
            let mut from = &bytes[..];
            let mut before = Entry::default();
            for entry in entries {
                prop_assert_eq!(Entry::decode(&before, &mut from), Some(entry));
                before = entry;
            }
            prop_assert_eq!(from.len(), 0);
        }
    }
}
