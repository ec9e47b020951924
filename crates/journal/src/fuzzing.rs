//! Any bytes as a segment: for a fuzz target, and for a test that replays its inputs.
//!
//! Bytes without the right checksums would end nearly every input at its first record. So an input is a script of records, which are
//! written as a log writes them, and of damage that is done to them.

use crate::disk::sim::SimDisk;
use crate::disk::{Disk as _, DiskFile as _};
use crate::record::{Body, Head, Limits, Place, Record, Why, write};
use crate::segment::{HEADER_BYTES, Header, Item, SegmentReader, segment_name};
use crate::{Log, LogSettings, Opening};
use std::collections::BTreeSet;

const LOG_ID: u64 = 0x5eed;
/// Bytes of an input that count.
const INPUT_MAX: usize = 4096;

/// A reader finds each record that is not damaged, says of every other byte that it is bad, and a log opens whatever is there, twice with
/// the same result.
///
/// # Panics
/// It does not.
pub fn segment(input: &[u8]) {
    let input = &input[..input.len().min(INPUT_MAX)];
    let Some((bytes, places)) = script(input) else {
        return;
    };
    let mut disk = SimDisk::new();
    let Ok(file) = disk.create(&segment_name(1)) else {
        return;
    };
    let written = file.write_at(&bytes, 0).and_then(|()| file.sync());
    if written.is_err() || disk.sync_directory().is_err() {
        return;
    }
    let mut reader = SegmentReader::new(file, LOG_ID, 1, bytes.len() as u64);
    let mut at = HEADER_BYTES as u64;
    while let Some(item) = reader.next().expect("a disk without faults") {
        let (position, length) = match item {
            Item::Record(position, found) => {
                assert!(
                    places.contains(&position.at()),
                    "a record that nobody wrote"
                );
                (position, found.bytes as u64)
            }
            Item::Bad(position, length) => (position, length),
        };
        assert_eq!(position.at(), at, "nothing is left out");
        at += length;
    }
    let opening = Opening {
        now_ms: 1,
        random: LOG_ID,
    };
    let open = || Log::open(disk.clone(), LogSettings::default(), opening, |_, _| ());
    let Ok((first, _)) = open() else {
        return;
    };
    let figures = first.figures().index;
    drop(first);
    disk.kill();
    let (second, _) = open().expect("what was opened once");
    assert_eq!(second.figures().index, figures);
}

/// The bytes of a segment, and where its whole records are.
fn script(input: &[u8]) -> Option<(Vec<u8>, BTreeSet<u64>)> {
    let header = Header {
        log_id: LOG_ID,
        number: 1,
        previous: 0,
        previous_bytes: 0,
        made_ms: 0,
    };
    let mut bytes = header.write().to_vec();
    let mut places = BTreeSet::new();
    let mut group = 0;
    for step in input.chunks_exact(4) {
        let step = *step.first_chunk::<4>()?;
        if step[0] % 10 == 9 {
            damage(&mut bytes, step);
            continue;
        }
        let at = bytes.len() as u64;
        places.insert(at);
        let is_group = step[0] % 10 == 0;
        group += u32::from(is_group);
        let head = Head {
            moved: step[0] >= 128,
            group,
        };
        let place = Place {
            log_id: LOG_ID,
            position: 1 << 32 | at,
        };
        let content = [step[3]; 40];
        let record = Record {
            channel: if is_group {
                ""
            } else {
                ["a", "b", "news", ""][usize::from(step[1] % 4)]
            },
            epoch: u64::from(step[2] / 64),
            offset: u64::from(step[2] % 64) + 1,
            time_ms: 1,
            body: body(step, at, &content[..usize::from(step[3] % 41)]),
        };
        write(&mut bytes, &record, head, place);
    }
    Some((bytes, places))
}

/// Bytes of the input as they are, or another bit in what was written.
fn damage(bytes: &mut Vec<u8>, step: [u8; 4]) {
    if step[3].is_multiple_of(2) {
        bytes.extend_from_slice(&step);
        bytes.extend_from_slice(&step);
        return;
    }
    let from = usize::from(step[1]) << 8 | usize::from(step[2]);
    let at = HEADER_BYTES + from % (bytes.len() - HEADER_BYTES + 1);
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= 1 << (step[3] / 2 % 8);
    }
}

fn body(step: [u8; 4], at: u64, content: &[u8]) -> Body<'_> {
    match step[0] % 10 {
        0 => Body::Group {
            // A log says only what is so.
            synced: 1 << 32 | if step[3].is_multiple_of(2) { 64 } else { at },
            bytes: u64::from(step[1]) * 8,
        },
        4 => Body::Channel {
            why: Why::Removed,
            lost: u64::from(step[3] % 16),
            limits: Limits {
                size: u32::from(step[3] % 8),
                ttl_s: u32::MAX,
            },
        },
        5 => Body::Deleted,
        6 => Body::Stream(content),
        7 => Body::Producer {
            key: &content[..content.len() / 2],
            value: content,
        },
        8 => Body::Key(content),
        _ => Body::Publication(content),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        // A failure belongs into the corpus of the fuzz target.
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::default()
        })]
        #[test]
        fn any_bytes_as_a_segment(input in prop::collection::vec(any::<u8>(), 0..400)) {
            super::segment(&input);
        }
    }
}
