//! fjall: the key is channel and offset, so a channel's publications stand beside each other.

use crate::{Publication, Store};
use anyhow::Result;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use std::path::Path;

pub struct Fjall {
    database: Database,
    publications: Keyspace,
    last: Vec<u64>,
}

fn key(channel: u32, offset: u64) -> [u8; 12] {
    let mut key = [0; 12];
    key[..4].copy_from_slice(&channel.to_be_bytes());
    key[4..].copy_from_slice(&offset.to_be_bytes());
    key
}

fn offset_of(key: &[u8]) -> u64 {
    let bytes = key[4..12].try_into().expect("8 bytes");
    u64::from_be_bytes(bytes)
}

impl Fjall {
    pub fn open(dir: &Path, channels: u32) -> Result<Self> {
        // Its own commit writes the journal to the kernel. Each of ours asks for the disk.
        let database = Database::builder(dir).manual_journal_persist(true).open()?;
        let publications = database.keyspace("publications", KeyspaceCreateOptions::default)?;
        let mut last = vec![0; channels as usize];
        for (channel, last) in (0u32..).zip(&mut last) {
            if let Some(found) = publications.prefix(channel.to_be_bytes()).next_back() {
                *last = offset_of(&found.key()?);
            }
        }
        Ok(Self {
            database,
            publications,
            last,
        })
    }
}

impl Store for Fjall {
    fn commit(&mut self, group: &[Publication<'_>], forgotten: &[(u32, u64)]) -> Result<()> {
        let mut batch = self
            .database
            .batch()
            .durability(Some(PersistMode::SyncData));
        for publication in group {
            let key = key(publication.channel, publication.offset);
            batch.insert(&self.publications, key, publication.payload);
            self.last[publication.channel as usize] = publication.offset;
        }
        for &(channel, offset) in forgotten {
            // Each key is written once, so one tombstone takes one value.
            batch.remove_weak(&self.publications, key(channel, offset));
        }
        Ok(batch.commit()?)
    }

    fn read(&self, channel: u32, from: u64, most: usize) -> Result<(usize, usize)> {
        let range = key(channel, from)..=key(channel, u64::MAX);
        let (mut count, mut bytes) = (0, 0);
        for found in self.publications.range(range).take(most) {
            count += 1;
            bytes += found.value()?.len();
        }
        Ok((count, bytes))
    }

    fn last(&self, channel: u32) -> u64 {
        self.last[channel as usize]
    }
}
