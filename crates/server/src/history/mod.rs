//! Histories on the disk: one log for all channels of the node whose namespaces want it, and the thread that writes it.

mod codec;

use crate::config::DiskSettings;
use crate::error::ServerError;
use crate::shards::random_bits;
use myriad_journal::disk::real::RealDisk;
use myriad_journal::{
    Answer, Body, Limits, Log, LogSettings, OpenError, Opened, Opening, Record, Unit, Why, Writer,
    WriterSettings,
};
use myriad_shard::{
    DurableChange, DurableEntry, Epoch, Home, Journal, Mesh, Now, Position, StoredChannel,
    StoredPublication,
};
use myriad_units::count;
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Bits of a ticket that are the home's own; those above name its shard.
const TICKET_BITS: u32 = 48;

/// The log as a start has found it.
pub(crate) struct Found {
    log: Log<RealDisk>,
    channels: Vec<StoredChannel>,
    keys: Vec<StoredKey>,
}

/// An idempotency key that the disk has.
#[derive(Clone, Debug)]
struct StoredKey {
    channel: Box<str>,
    key: Box<str>,
    position: Position,
    age: Duration,
}

/// A shard's way to the disk, and what the disk has for its home.
pub(crate) type DiskOfShard = (Box<dyn Journal>, Share);

/// What the disk has for one home.
#[derive(Default)]
pub(crate) struct Share {
    channels: Vec<StoredChannel>,
    keys: Vec<StoredKey>,
    unix_now_ms: u64,
}

impl Share {
    /// Gives it to a home: channels, a way to give it keys, and the time.
    pub(crate) fn into_parts(self, now: Now) -> (Vec<StoredChannel>, impl FnOnce(&mut Home), u64) {
        let keys = self.keys;
        let give = move |home: &mut Home| {
            for one in keys {
                home.restore_key(&one.channel, &one.key, one.position, one.age, now);
            }
        };
        (self.channels, give, self.unix_now_ms)
    }
}

/// The log with its thread.
#[derive(Debug)]
pub(crate) struct DiskHistory {
    writer: Arc<Writer<RealDisk>>,
}

/// Opens the log of a directory, and reads what it keeps.
///
/// # Errors
/// The directory cannot be used, or another process has it.
pub(crate) fn open(settings: &DiskSettings) -> Result<Found, ServerError> {
    let refused = |source| ServerError::History {
        directory: settings.directory.clone(),
        source,
    };
    make_directory(&settings.directory).map_err(|error| refused(OpenError::Disk(error)))?;
    let disk = RealDisk::open(&settings.directory).map_err(|error| refused(error.into()))?;
    let opening = Opening {
        now_ms: unix_now_ms(),
        random: random_bits()?,
    };
    let limits = LogSettings {
        disk_max: settings.disk_max,
        ..LogSettings::default()
    };
    let mut told = 0;
    let progress = |done: u64, total: u64| {
        let percent = done * 100 / total.max(1);
        if percent >= told + 10 {
            told = percent;
            tracing::info!("history: read {percent}% of {} bytes", count(total));
        }
    };
    let (log, opened) = Log::open(disk, limits, opening, progress).map_err(refused)?;
    tell(&opened);
    let (channels, keys) = load(&log, opening.now_ms).map_err(|error| refused(error.into()))?;
    tracing::info!(
        "history: {} channels in {}",
        count(channels.len() as u64),
        settings.directory.display()
    );
    Ok(Found {
        log,
        channels,
        keys,
    })
}

fn make_directory(path: &Path) -> io::Result<()> {
    match std::fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Says what a start has found, where somebody should know.
fn tell(opened: &Opened) {
    if let Some(cut) = &opened.cut {
        tracing::warn!(
            "history: {} ended in {} bytes that were not finished; they are cut at byte {}, and nobody was told that they were kept",
            cut.file,
            count(cut.bytes),
            cut.at,
        );
    }
    for lost in &opened.lost {
        tracing::error!(
            "history: {} is damaged: {} bytes at byte {} are lost",
            lost.file,
            count(lost.bytes),
            lost.at,
        );
    }
    if !opened.renewed.is_empty() {
        tracing::error!(
            "history: the disk has less than it had promised to keep; {} channels begin anew",
            count(opened.renewed.len() as u64),
        );
    }
}

/// What a log keeps.
fn load(log: &Log<RealDisk>, now_ms: u64) -> io::Result<(Vec<StoredChannel>, Vec<StoredKey>)> {
    let mut channels: Vec<StoredChannel> = Vec::new();
    let mut indices: HashMap<Box<str>, usize> = HashMap::new();
    for name in log.names() {
        let Some(state) = log.channel(name) else {
            continue;
        };
        indices.insert(name.into(), channels.len());
        channels.push(StoredChannel {
            name: name.into(),
            epoch: Epoch::new(state.epoch),
            last: state.last,
            lost: state.whole_after,
            publications: Vec::new(),
            stream: None,
        });
    }
    let mut keys = Vec::new();
    log.load(now_ms, |record| {
        let Some(&index) = indices.get(record.channel) else {
            return;
        };
        let channel = &mut channels[index];
        let age = Duration::from_millis(now_ms.saturating_sub(record.time_ms));
        match record.body {
            Body::Publication(bytes) if record.offset > channel.lost => {
                if let Some(stored) = codec::decode(bytes) {
                    channel.publications.push(StoredPublication {
                        offset: record.offset,
                        age,
                        content: Arc::new(stored.content),
                        version: stored.version,
                        version_epoch: stored.version_epoch,
                    });
                }
            }
            Body::Stream(state) => channel.stream = Some(state.to_vec()),
            Body::Key(key) => keys.push(StoredKey {
                channel: record.channel.into(),
                key: String::from_utf8_lossy(key).into(),
                position: Position {
                    epoch: Epoch::new(record.epoch),
                    offset: record.offset,
                },
                age,
            }),
            _ => {}
        }
    })?;
    for channel in &mut channels {
        // Copies stand behind what came later.
        channel.publications.sort_by_key(|one| one.offset);
    }
    keys.sort_by_key(|one| std::cmp::Reverse(one.age));
    Ok((channels, keys))
}

impl Found {
    /// Starts the thread, and divides what was found among the homes.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn begin(
        self,
        settings: &DiskSettings,
        mesh: &Mesh,
    ) -> Result<(DiskHistory, Vec<Share>), ServerError> {
        let unix_now_ms = unix_now_ms();
        let mut shares: Vec<Share> = Vec::new();
        shares.resize_with(mesh.shard_count(), || Share {
            unix_now_ms,
            ..Share::default()
        });
        for channel in self.channels {
            shares[mesh.home_shard(&channel.name)]
                .channels
                .push(channel);
        }
        for key in self.keys {
            shares[mesh.home_shard(&key.channel)].keys.push(key);
        }
        let (told, mut has_failed) = (mesh.clone(), false);
        let answer = move |answers: &[Answer]| tell_homes(&told, answers, &mut has_failed);
        let settings = WriterSettings {
            sync: settings.sync,
            // Permits of publications bound both, and what comes here must not get lost.
            units_max: usize::MAX,
            bytes_max: usize::MAX,
            waits_for_room: true,
            ..WriterSettings::default()
        };
        let writer = Writer::spawn(self.log, settings, answer);
        let writer = writer.map_err(ServerError::system("start a thread"))?;
        let history = DiskHistory {
            writer: Arc::new(writer),
        };
        Ok((history, shares))
    }
}

/// Tells homes what is kept. Answers of one shard come in order, so its last one says all.
fn tell_homes(mesh: &Mesh, answers: &[Answer], has_failed: &mut bool) {
    let mut last: HashMap<usize, u64> = HashMap::new();
    for answer in answers {
        match answer.outcome {
            Ok(()) => {
                let shard = usize::try_from(answer.ticket >> TICKET_BITS).unwrap_or(0);
                last.insert(shard, answer.ticket & ((1 << TICKET_BITS) - 1));
            }
            Err(error) => {
                if !std::mem::replace(has_failed, true) {
                    tracing::error!(
                        "history: {error}; publications to channels on the disk are refused"
                    );
                    mesh.disk_failed();
                }
            }
        }
    }
    for (shard, ticket) in last {
        mesh.kept(shard, ticket);
    }
}

impl DiskHistory {
    /// The way of a home to the log.
    pub(crate) fn journal(&self, shard: usize) -> Box<dyn Journal> {
        Box::new(OfShard {
            shard: shard as u64,
            writer: Arc::clone(&self.writer),
        })
    }
}

struct OfShard {
    shard: u64,
    writer: Arc<Writer<RealDisk>>,
}

impl Journal for OfShard {
    fn submit(&mut self, ticket: u64, entries: Vec<DurableEntry>) {
        let now_ms = unix_now_ms();
        let mut unit = Unit::new();
        for entry in entries {
            push(&mut unit, &entry, now_ms);
        }
        // Refused only when the server ends, and nobody waits any more.
        let _ = self.writer.submit(self.shard << TICKET_BITS | ticket, unit);
    }

    fn is_full(&self) -> bool {
        self.writer.is_full()
    }
}

fn push(unit: &mut Unit, entry: &DurableEntry, now_ms: u64) {
    let mut add = |offset: u64, body: Body<'_>| {
        let record = Record {
            channel: &entry.channel,
            epoch: entry.epoch.bits(),
            offset,
            time_ms: now_ms,
            body,
        };
        if let Err(error) = unit.push(record) {
            tracing::error!("history: channel {:?}: {error}", entry.channel);
        }
    };
    match &entry.change {
        DurableChange::State {
            last,
            lost,
            size,
            ttl,
        } => {
            let limits = Limits {
                size: *size,
                ttl_s: u32::try_from(ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0))
                    .unwrap_or(u32::MAX),
            };
            let why = Why::Opened;
            let lost = *lost;
            add(*last, Body::Channel { why, lost, limits });
        }
        DurableChange::Publication {
            offset,
            content,
            version,
            version_epoch,
        } => {
            let bytes = codec::encode(content, *version, version_epoch);
            add(*offset, Body::Publication(&bytes));
        }
        DurableChange::Key { key, offset } => add(*offset, Body::Key(key.as_bytes())),
        DurableChange::Stream { last, state } => add(*last, Body::Stream(state)),
        DurableChange::Deleted { last } => add(*last, Body::Deleted),
    }
}

fn unix_now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}
