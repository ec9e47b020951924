//! The log that the server writes (crates/journal).

use crate::{Publication, Store};
use anyhow::Result;
use myriad_journal::disk::real::RealDisk;
use myriad_journal::{Body, Durability, Limits, Log, LogSettings, Opening, Record, Unit, Why};
use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

pub struct Journal {
    log: Log<RealDisk>,
    names: Vec<String>,
    keep: u32,
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

impl Journal {
    pub fn open(dir: &Path, channels: u32, keep: u64) -> Result<Self> {
        fs::create_dir_all(dir)?;
        let opening = Opening {
            now_ms: now_ms(),
            random: 0x9E37_79B9,
        };
        let settings = LogSettings::default();
        let (log, _) = Log::open(RealDisk::open(dir)?, settings, opening, |_, _| ())?;
        let names = (0..channels).map(|channel| format!("channel:{channel}"));
        Ok(Self {
            log,
            names: names.collect(),
            keep: u32::try_from(keep)?,
        })
    }

    fn record<'r>(&'r self, channel: u32, offset: u64, now_ms: u64, body: Body<'r>) -> Record<'r> {
        Record {
            channel: &self.names[channel as usize],
            epoch: 1,
            offset,
            time_ms: now_ms,
            body,
        }
    }
}

impl Store for Journal {
    fn commit(&mut self, group: &[Publication<'_>], _: &[(u32, u64)]) -> Result<()> {
        let now_ms = now_ms();
        for publication in group {
            let channel = publication.channel;
            let mut unit = Unit::new();
            if publication.offset == 1 {
                // The log itself forgets what is too much.
                let limits = Limits {
                    size: self.keep,
                    ttl_s: u32::MAX,
                };
                let (why, lost) = (Why::Opened, 0);
                let body = Body::Channel { why, lost, limits };
                unit.push(self.record(channel, 0, now_ms, body))?;
            }
            let body = Body::Publication(publication.payload);
            unit.push(self.record(channel, publication.offset, now_ms, body))?;
            self.log.append(&unit, now_ms)?;
        }
        self.log.commit(Durability::Synced)?;
        // The thread of a server does the same between two groups.
        self.log.compact_step(512 << 10, now_ms)?;
        if self.log.is_snapshot_due() {
            self.log.snapshot_step(1 << 20)?;
        }
        Ok(())
    }

    fn read(&self, channel: u32, from: u64, most: usize) -> Result<(usize, usize)> {
        let (mut count, mut bytes) = (0, 0);
        for located in self
            .log
            .locate(&self.names[channel as usize], from - 1, most)
        {
            count += 1;
            bytes += located.read(|record| match record.body {
                Body::Publication(content) => content.len(),
                _ => 0,
            })?;
        }
        Ok((count, bytes))
    }

    fn last(&self, channel: u32) -> u64 {
        let state = self.log.channel(&self.names[channel as usize]);
        state.map_or(0, |state| state.last)
    }

    fn end(&mut self) -> Result<()> {
        while !self.log.snapshot_step(8 << 20)? {}
        let figures = self.log.figures();
        eprintln!(
            "{} channels, {} publications, index {} bytes, copied {} bytes, {} syncs",
            figures.index.channels,
            figures.index.publications,
            self.log.memory_bytes(),
            figures.copied_bytes,
            figures.syncs,
        );
        Ok(())
    }
}
