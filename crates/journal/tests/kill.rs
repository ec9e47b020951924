//! A process that writes a log is killed at any time: everything that it was answered for is there at the next start.
//!
//! The process is this test itself, started again with a variable of the environment.

use myriad_journal::disk::real::RealDisk;
use myriad_journal::{
    Answer, Body, Log, LogSettings, Opening, Record, SyncPolicy, Unit, Writer, WriterSettings,
};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

const DIRECTORY: &str = "MYRIAD_JOURNAL_KILL_DIR";
const CHANNELS: u64 = 50;
const ROUNDS: u64 = 20;

fn settings() -> LogSettings {
    LogSettings {
        segment_bytes: 1 << 20,
        snapshot_every: 2 << 20,
        ..LogSettings::default()
    }
}

fn open(directory: &Path) -> Log<RealDisk> {
    let disk = RealDisk::open(directory).expect("a directory");
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970");
    let opening = Opening {
        now_ms: u64::try_from(since.as_millis()).expect("before 2500"),
        random: u64::from(since.subsec_nanos()),
    };
    Log::open(disk, settings(), opening, |_, _| ())
        .expect("a log")
        .0
}

fn content(channel: u64, offset: u64) -> Vec<u8> {
    let mut content = format!("{channel} {offset} ").into_bytes();
    content.resize(100 + usize::try_from(offset % 300).expect("few"), b'x');
    content
}

/// The process that is killed: it writes for ever, and says channel and offset of what was answered for.
#[test]
fn writes_until_it_is_killed() {
    let Ok(directory) = std::env::var(DIRECTORY) else {
        return;
    };
    let log = open(Path::new(&directory));
    let name = |channel: u64| format!("channel-{channel}");
    let mut last: Vec<u64> = (0..CHANNELS)
        .map(|channel| log.channel(&name(channel)).map_or(0, |state| state.last))
        .collect();
    let writer = Writer::spawn(
        log,
        WriterSettings {
            sync: SyncPolicy::Always,
            units_max: 500,
            ..WriterSettings::default()
        },
        |answers: &[Answer]| {
            let mut out = std::io::stdout().lock();
            for answer in answers.iter().filter(|answer| answer.outcome.is_ok()) {
                let (channel, offset) = (answer.ticket >> 48, answer.ticket & ((1 << 48) - 1));
                // The parent may have gone.
                let _ = writeln!(out, "kept {channel} {offset}");
            }
            let _ = out.flush();
        },
    );
    let writer = writer.expect("a thread");
    let mut turn: u64 = 0;
    loop {
        turn = turn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let channel = (turn >> 33) % CHANNELS;
        let index = usize::try_from(channel).expect("few");
        let offset = last[index] + 1;
        let unit = Unit::of(Record {
            channel: &name(channel),
            epoch: 1,
            offset,
            time_ms: 1,
            body: Body::Publication(&content(channel, offset)),
        });
        match writer.submit(channel << 48 | offset, unit.expect("a unit")) {
            Ok(()) => last[index] = offset,
            Err(_) => std::thread::yield_now(),
        }
    }
}

fn start(directory: &Path) -> Child {
    let program = std::env::current_exe().expect("a test is a program");
    Command::new(program)
        .args(["--exact", "writes_until_it_is_killed", "--nocapture"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a process")
}

struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn everything_that_was_answered_for_outlives_the_process() {
    let name = format!("myriad-journal-kill-{}", std::process::id());
    let directory = Directory(std::env::temp_dir().join(name));
    fs::create_dir(&directory.0).expect("a directory");
    let mut kept: BTreeMap<u64, u64> = BTreeMap::new();
    for round in 0..ROUNDS {
        let mut child = start(&directory.0);
        let out = child.stdout.take().expect("a pipe");
        // It is killed when it has been answered for so many, whatever it does at that moment.
        let wanted = 200 + round * 137 % 3000;
        let mut seen = 0;
        let mut lines = BufReader::new(out).lines();
        let mut is_killed = false;
        while let Some(Ok(line)) = lines.next() {
            let mut words = line.split(' ');
            if words.next() != Some("kept") {
                continue;
            }
            let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
            // The last line may have been cut.
            if let (Some(channel), Some(offset)) = (number(), number()) {
                let before = kept.insert(channel, offset);
                assert!(
                    before.is_none_or(|before| before < offset),
                    "answers come in order"
                );
            }
            seen += 1;
            if seen >= wanted && !is_killed {
                child.kill().expect("a process of ours");
                is_killed = true;
            }
        }
        child.wait().expect("it has ended");
        assert!(is_killed, "it ended by itself");
        check(&directory.0, &kept);
    }
}

fn check(directory: &Path, kept: &BTreeMap<u64, u64>) {
    let log = open(directory);
    for (channel, offset) in kept {
        let name = format!("channel-{channel}");
        let state = log.channel(&name).expect("a channel");
        assert!(state.last >= *offset, "{name}: {offset} is lost");
        assert_eq!((state.lost, state.count), (0, state.last), "{name}");
        // All of them once, and the newest hundred every time, or the test would take minutes.
        for located in log.locate(&name, state.last.saturating_sub(100), usize::MAX) {
            let found = located.read(|record| match record.body {
                Body::Publication(bytes) => bytes.to_vec(),
                _ => Vec::new(),
            });
            assert_eq!(
                found.expect("a record"),
                content(*channel, located.offset())
            );
        }
    }
}
