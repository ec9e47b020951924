//! The same work on three stores of publications: fjall, an embedded store; a plain log of segments; and the log of the server.
//!
//! ```sh
//! cargo run --release -- write --store log --dir DIR      # publications that are on the disk when a commit returns
//! cargo run --release -- open --store log --dir DIR       # a start: the next offset of each channel is known again
//! cargo run --release -- read --store log --dir DIR       # clients that come back for what they missed
//! ```
//!
//! Each prints a line of JSON. docs/adr/0037 and 0038 have what came out.

mod embedded;
mod journal;
mod segments;

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A store of publications. Offsets of a channel count from 1.
pub trait Store {
    /// Keeps a group of publications, and forgets older ones. When it returns they are on the disk.
    ///
    /// # Errors
    /// The disk fails.
    fn commit(&mut self, group: &[Publication<'_>], forgotten: &[(u32, u64)]) -> Result<()>;

    /// Reads publications of a channel from an offset on. Returns how many there were, and their bytes.
    ///
    /// # Errors
    /// The disk fails, or has something else.
    fn read(&self, channel: u32, from: u64, most: usize) -> Result<(usize, usize)>;

    /// The last offset of a channel.
    fn last(&self, channel: u32) -> u64;

    /// The process is about to end.
    ///
    /// # Errors
    /// The disk fails.
    fn end(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A publication, and its place.
pub struct Publication<'p> {
    pub channel: u32,
    pub offset: u64,
    pub payload: &'p [u8],
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    Fjall,
    Journal,
    Log,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Step {
    Write,
    Open,
    Read,
}

#[derive(Debug, Parser)]
struct Arguments {
    step: Step,
    #[arg(long)]
    store: Kind,
    #[arg(long)]
    dir: PathBuf,
    /// Publications in all
    #[arg(long, default_value_t = 2_000_000)]
    publications: u64,
    #[arg(long, default_value_t = 100_000)]
    channels: u32,
    /// Bytes of a publication
    #[arg(long, default_value_t = 256)]
    bytes: usize,
    /// Publications of one commit
    #[arg(long, default_value_t = 1_000)]
    group: usize,
    /// Publications that a channel keeps
    #[arg(long, default_value_t = 100)]
    keep: u64,
    /// Clients that come back, each of another channel
    #[arg(long, default_value_t = 10_000)]
    clients: u32,
    /// What each of them missed
    #[arg(long, default_value_t = 50)]
    missed: usize,
}

/// The same numbers in each run (xorshift64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u32) -> u32 {
        ((u64::from(self.next() as u32) * u64::from(bound)) >> 32) as u32
    }
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let began = Instant::now();
    let store: Box<dyn Store> = match arguments.store {
        Kind::Fjall => Box::new(embedded::Fjall::open(&arguments.dir, arguments.channels)?),
        Kind::Journal => Box::new(journal::Journal::open(
            &arguments.dir,
            arguments.channels,
            arguments.keep,
        )?),
        Kind::Log => Box::new(segments::Log::open(&arguments.dir, arguments.channels)?),
    };
    let opened = began.elapsed();
    match arguments.step {
        Step::Write => write(store, &arguments),
        Step::Open => print(&arguments, &[("open_s", opened.as_secs_f64())]),
        Step::Read => read(&*store, &arguments, opened),
    }
}

fn write(mut store: Box<dyn Store>, arguments: &Arguments) -> Result<()> {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    // Letters: as text is, some of it can be compressed.
    let pool: Vec<u8> = (0..1 << 20)
        .map(|_| b'0' + (random.next() % 64) as u8)
        .collect();
    let mut last = vec![0; arguments.channels as usize];
    for (channel, last) in last.iter_mut().enumerate() {
        *last = store.last(u32::try_from(channel)?);
    }
    let mut commits = Vec::new();
    let mut done = 0;
    let began = Instant::now();
    while done < arguments.publications {
        let mut group = Vec::with_capacity(arguments.group);
        let mut forgotten = Vec::new();
        for _ in 0..arguments.group {
            let channel = random.below(arguments.channels);
            let at = random.below((pool.len() - arguments.bytes) as u32) as usize;
            let last = &mut last[channel as usize];
            *last += 1;
            if *last > arguments.keep {
                forgotten.push((channel, *last - arguments.keep));
            }
            let payload = &pool[at..at + arguments.bytes];
            group.push(Publication {
                channel,
                offset: *last,
                payload,
            });
        }
        let from = Instant::now();
        store.commit(&group, &forgotten)?;
        commits.push(from.elapsed());
        done += group.len() as u64;
    }
    let seconds = began.elapsed().as_secs_f64();
    store.end()?;
    commits.sort();
    let at = |share: f64| ms(commits[((commits.len() - 1) as f64 * share) as usize]);
    print(
        arguments,
        &[
            ("publications_per_s", done as f64 / seconds),
            ("commit_p50_ms", at(0.5)),
            ("commit_p99_ms", at(0.99)),
            ("commit_max_ms", at(1.0)),
        ],
    )
}

fn read(store: &dyn Store, arguments: &Arguments, opened: Duration) -> Result<()> {
    let mut random = Random(0x2545_F491_4F6C_DD1D);
    let began = Instant::now();
    let (mut publications, mut bytes) = (0, 0);
    for _ in 0..arguments.clients {
        let channel = random.below(arguments.channels);
        let last = store.last(channel);
        let from = (last + 1).saturating_sub(arguments.missed as u64).max(1);
        let found = store.read(channel, from, arguments.missed)?;
        ensure!(
            found.0 as u64 == last + 1 - from,
            "channel {channel} from {from} to {last}: {}",
            found.0
        );
        publications += found.0;
        bytes += found.1;
    }
    let seconds = began.elapsed().as_secs_f64();
    print(
        arguments,
        &[
            ("open_s", opened.as_secs_f64()),
            ("read_s", seconds),
            ("read_publications", publications as f64),
            ("read_bytes", bytes as f64),
        ],
    )
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// The figures of a step, and what the process and the disk took for it.
fn print(arguments: &Arguments, figures: &[(&str, f64)]) -> Result<()> {
    let mut line = serde_json::Map::new();
    line.insert("store".into(), format!("{:?}", arguments.store).into());
    line.insert("step".into(), format!("{:?}", arguments.step).into());
    line.insert("group".into(), arguments.group.into());
    for (name, value) in figures {
        line.insert((*name).into(), ((value * 1000.0).round() / 1000.0).into());
    }
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat
        .rsplit(") ")
        .next()
        .unwrap_or_default()
        .split(' ')
        .collect();
    // utime and stime, in ticks of 10 ms.
    let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
    line.insert("cpu_s".into(), (ticks / 100.0).into());
    let status = fs::read_to_string("/proc/self/status")?;
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let resident =
        resident.and_then(|text| text.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok());
    line.insert(
        "own_memory_mib".into(),
        (resident.unwrap_or_default() / 1024.0).round().into(),
    );
    let io = fs::read_to_string("/proc/self/io")?;
    let written = io
        .lines()
        .find_map(|line| line.strip_prefix("write_bytes: "));
    let written: f64 = written.unwrap_or("0").parse()?;
    line.insert("written_mib".into(), (written / 1048576.0).round().into());
    line.insert(
        "on_disk_mib".into(),
        (size_of(&arguments.dir)? as f64 / 1048576.0).round().into(),
    );
    println!("{}", serde_json::Value::Object(line));
    Ok(())
}

fn size_of(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() {
            size_of(&entry.path())?
        } else {
            metadata.len()
        };
    }
    Ok(bytes)
}
