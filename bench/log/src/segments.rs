//! A log: records of all channels one after the other in segments, and an index of them in memory.
//!
//! A record is the length of its payload and a checksum of the rest (CRC-32C), then channel, offset and payload. Numbers are little-endian. The
//! index is made again from the segments at a start; nothing compacts them here: a segment goes when nothing of it is kept.

use crate::{Publication, Store};
use anyhow::{Result, bail, ensure};
use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

const SEGMENT_BYTES: u64 = 64 << 20;
const HEAD_BYTES: usize = 20;

pub struct Log {
    dir: PathBuf,
    segments: BTreeMap<u32, Segment>,
    channels: Vec<Channel>,
    /// The segment that is written.
    current: u32,
    buffer: Vec<u8>,
}

struct Segment {
    file: File,
    bytes: u64,
    kept: u64,
}

/// Where the publications of a channel are that are kept.
#[derive(Default)]
struct Channel {
    last: u64,
    places: VecDeque<(u32, u32)>,
}

impl Log {
    pub fn open(dir: &Path, channels: u32) -> Result<Self> {
        fs::create_dir_all(dir)?;
        let mut log = Self {
            dir: dir.to_owned(),
            segments: BTreeMap::new(),
            channels: Vec::new(),
            current: 0,
            buffer: Vec::new(),
        };
        log.channels
            .resize_with(channels as usize, Channel::default);
        let mut numbers: Vec<u32> = fs::read_dir(dir)?
            .filter_map(|entry| {
                entry
                    .ok()?
                    .file_name()
                    .to_str()?
                    .strip_suffix(".log")?
                    .parse()
                    .ok()
            })
            .collect();
        numbers.sort_unstable();
        for number in numbers {
            log.scan(number)?;
        }
        log.begin_segment()?;
        Ok(log)
    }

    fn path(&self, number: u32) -> PathBuf {
        self.dir.join(format!("{number:010}.log"))
    }

    fn scan(&mut self, number: u32) -> Result<()> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(self.path(number))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let mut kept = 0;
        let mut at = 0;
        while let Some(record) = Record::parse(&bytes[at..]) {
            let channel = &mut self.channels[record.channel as usize];
            channel.last = record.offset;
            channel.places.push_back((number, at as u32));
            kept += 1;
            at += record.bytes;
        }
        // Behind it is what a crash has cut.
        file.set_len(at as u64)?;
        self.segments.insert(
            number,
            Segment {
                file,
                bytes: at as u64,
                kept,
            },
        );
        self.current = number;
        Ok(())
    }

    fn begin_segment(&mut self) -> Result<()> {
        self.current += 1;
        let path = self.path(self.current);
        let file = OpenOptions::new()
            .create_new(true)
            .read(true)
            .write(true)
            .open(path)?;
        // The name has to survive too.
        File::open(&self.dir)?.sync_all()?;
        self.segments.insert(
            self.current,
            Segment {
                file,
                bytes: 0,
                kept: 0,
            },
        );
        Ok(())
    }

    fn forget(&mut self, channel: u32) -> Result<()> {
        let Some((number, _)) = self.channels[channel as usize].places.pop_front() else {
            bail!("channel {channel} keeps nothing");
        };
        let segment = self.segments.get_mut(&number).expect("of a record");
        segment.kept -= 1;
        if segment.kept == 0 && number != self.current {
            self.segments.remove(&number);
            fs::remove_file(self.path(number))?;
        }
        Ok(())
    }
}

struct Record<'b> {
    channel: u32,
    offset: u64,
    payload: &'b [u8],
    bytes: usize,
}

impl<'b> Record<'b> {
    fn parse(bytes: &'b [u8]) -> Option<Self> {
        let head = bytes.get(..HEAD_BYTES)?;
        let length = u32::from_le_bytes(head[..4].try_into().ok()?) as usize;
        let sum = u32::from_le_bytes(head[4..8].try_into().ok()?);
        let end = HEAD_BYTES.checked_add(length)?;
        let covered = bytes.get(8..end)?;
        (crc32c::crc32c(covered) == sum).then_some(())?;
        Some(Self {
            channel: u32::from_le_bytes(head[8..12].try_into().ok()?),
            offset: u64::from_le_bytes(head[12..20].try_into().ok()?),
            payload: &bytes[HEAD_BYTES..end],
            bytes: end,
        })
    }
}

impl Store for Log {
    fn commit(&mut self, group: &[Publication<'_>], forgotten: &[(u32, u64)]) -> Result<()> {
        if self.segments[&self.current].bytes >= SEGMENT_BYTES {
            self.begin_segment()?;
        }
        let segment = self.segments.get_mut(&self.current).expect("is open");
        self.buffer.clear();
        for publication in group {
            let from = self.buffer.len();
            let length = publication.payload.len() as u32;
            self.buffer.extend_from_slice(&length.to_le_bytes());
            self.buffer.extend_from_slice(&[0; 4]);
            self.buffer
                .extend_from_slice(&publication.channel.to_le_bytes());
            self.buffer
                .extend_from_slice(&publication.offset.to_le_bytes());
            self.buffer.extend_from_slice(publication.payload);
            let sum = crc32c::crc32c(&self.buffer[from + 8..]);
            self.buffer[from + 4..from + 8].copy_from_slice(&sum.to_le_bytes());
            let channel = &mut self.channels[publication.channel as usize];
            channel.last = publication.offset;
            channel
                .places
                .push_back((self.current, (segment.bytes + from as u64) as u32));
        }
        segment.file.write_all_at(&self.buffer, segment.bytes)?;
        segment.file.sync_data()?;
        segment.bytes += self.buffer.len() as u64;
        segment.kept += group.len() as u64;
        for &(channel, _) in forgotten {
            self.forget(channel)?;
        }
        Ok(())
    }

    fn read(&self, channel: u32, from: u64, most: usize) -> Result<(usize, usize)> {
        let places = &self.channels[channel as usize].places;
        let first = self.channels[channel as usize].last + 1 - places.len() as u64;
        let skipped = from.saturating_sub(first) as usize;
        let (mut count, mut bytes) = (0, 0);
        let mut buffer = vec![0; 4096];
        for (offset, &(number, at)) in
            (first + skipped as u64..).zip(places.iter().skip(skipped).take(most))
        {
            let segment = &self.segments[&number];
            let length = (segment.bytes - u64::from(at)).min(buffer.len() as u64) as usize;
            segment
                .file
                .read_exact_at(&mut buffer[..length], u64::from(at))?;
            let Some(record) = Record::parse(&buffer[..length]) else {
                bail!("segment {number} at {at}: no record");
            };
            ensure!(
                (record.channel, record.offset) == (channel, offset),
                "segment {number} at {at}: another record"
            );
            count += 1;
            bytes += record.payload.len();
        }
        Ok((count, bytes))
    }

    fn last(&self, channel: u32) -> u64 {
        self.channels[channel as usize].last
    }
}
