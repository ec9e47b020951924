//! Disks that change what they have, or lose what they had promised to keep.

use super::Planted;
use super::crashes::Random;
use super::model::Model;
use crate::disk::Disk as _;
use crate::disk::sim::{Faults, SimDisk};
use crate::log::{Durability, Log, LogSettings, Opened, Opening};
use crate::record::{Body, Limits, Record, Why};
use crate::unit::Unit;

const OPENING: Opening = Opening {
    now_ms: 1_000_000,
    random: 77,
};

fn settings() -> LogSettings {
    LogSettings {
        segment_bytes: 2000,
        snapshot_every: u64::MAX,
        ..LogSettings::default()
    }
}

fn open(disk: &SimDisk, planted: Planted) -> (Log<SimDisk>, Opened) {
    let opened = Log::open_with(disk.clone(), settings(), OPENING, planted);
    opened.expect("a log")
}

fn publication(channel: &str, offset: u64) -> Unit {
    let content = format!("{channel} {offset} {}", "x".repeat(30));
    Unit::of(Record {
        channel,
        epoch: 3,
        offset,
        time_ms: 1_000_000,
        body: Body::Publication(content.as_bytes()),
    })
    .expect("a unit")
}

/// A log of three channels with publications from 1 on.
fn written(disk: &SimDisk, count: u64, planted: Planted) -> Log<SimDisk> {
    let (mut log, _) = open(disk, planted);
    for offset in 1..=count {
        for channel in ["a", "b", "c"] {
            log.append(&publication(channel, offset), 1_000_000)
                .expect("room");
        }
        log.commit(Durability::Synced).expect("a commit");
    }
    log
}

/// A bit of a segment changes: one publication is lost and told, with its place, and every other one can be read.
pub(super) fn one_flipped_bit(seed: u64, planted: Planted) {
    let mut random = Random(seed);
    let disk = SimDisk::new();
    let log = written(&disk, 20, planted);
    let expected = Model::of(&log).expect("a whole log");
    drop(log);
    let mut names = disk.list().expect("a directory");
    names.sort();
    // Behind the last group nothing proves that it was safe.
    names.pop();
    let pick = usize::try_from(random.next()).unwrap_or(0) % names.len();
    let name = &names[pick];
    let bytes = disk.bytes(name).expect("a file").len();
    let at = usize::try_from(random.below(bytes as u64)).expect("few");
    assert!(disk.flip(name, at, 3));
    disk.kill();
    let (log, opened) = open(&disk, planted);
    let found = Model::of(&log).expect("what is in the index can be read");
    let mut missing = 0;
    for (channel, before) in &expected.0 {
        let after = &found.0[channel];
        assert_eq!((after.epoch, after.last), (before.epoch, before.last));
        for (offset, content) in &before.publications {
            match after.publications.get(offset) {
                Some(found) => assert_eq!(found, content),
                None => missing += 1,
            }
        }
        let state = log.channel(channel).expect("a channel");
        let is_whole = after
            .publications
            .keys()
            .all(|one| *one <= state.whole_after)
            || (state.whole_after + 1..=state.last)
                .all(|one| after.publications.contains_key(&one));
        assert!(is_whole, "a hole that nobody is told of");
    }
    assert!(missing <= 1, "{missing} publications for one bit");
    assert!(missing == 0 || opened.lost.len() == 1, "{opened:?}");
    if let [lost] = &*opened.lost {
        assert_eq!(&lost.file, name);
        assert!((lost.at..lost.at + lost.bytes).contains(&(at as u64)));
    }
}

#[test]
fn a_changed_bit_costs_one_publication_and_is_told() {
    for seed in 0..2000 {
        one_flipped_bit(seed, Planted::Nothing);
    }
}

#[test]
fn a_disk_that_lied_gives_another_epoch() {
    let disk = SimDisk::new();
    let mut log = written(&disk, 3, Planted::Nothing);
    disk.set_faults(Faults {
        sync_lies: true,
        ..Faults::default()
    });
    log.append(&publication("a", 4), 1_000_000).expect("room");
    log.commit(Durability::Synced).expect("a commit");
    assert!(!log.is_beyond("a", 3, 4));
    // It loses everything since.
    disk.crash(|| 0);
    let (log, _) = open(&disk, Planted::Nothing);
    // A client has seen the fourth one.
    assert!(log.is_beyond("a", 3, 4));
    assert!(!log.is_beyond("a", 3, 3));
    assert!(!log.is_beyond("b", 3, 3));
}

#[test]
fn an_index_ahead_of_the_log_is_noticed() {
    let disk = SimDisk::new();
    let mut log = written(&disk, 3, Planted::Nothing);
    disk.set_faults(Faults {
        sync_lies: true,
        ..Faults::default()
    });
    log.append(&publication("a", 4), 1_000_000).expect("room");
    log.commit(Durability::Synced).expect("a commit");
    disk.set_faults(Faults::default());
    // Only the log's file has lost what it was told to keep.
    let name = "0000000001.log";
    let before = disk.bytes(name).expect("a file").len();
    assert!(log.snapshot_step(usize::MAX).expect("a snapshot"));
    drop(log);
    disk.kill();
    let file = disk.open(name).expect("a file");
    crate::disk::DiskFile::truncate(&file, before as u64 - 120).expect("a cut");
    let (log, opened) = open(&disk, Planted::Nothing);
    assert!(!opened.had_snapshot);
    assert_eq!(opened.renewed, [Box::from("a")]);
    let state = log.channel("a").expect("a channel");
    assert_ne!(state.epoch, 3);
    assert_eq!((state.last, state.count), (4, 0));
    assert_eq!(log.channel("b").map(|state| state.epoch), Some(3));
}

#[test]
fn the_oldest_goes_first_and_channels_keep_their_positions() {
    let disk = SimDisk::new();
    let opened = Log::open(
        disk.clone(),
        LogSettings {
            disk_max: Some(12_000),
            ..settings()
        },
        OPENING,
        |_, _| (),
    );
    let (mut log, _) = opened.expect("a log");
    log.append(&publication("quiet", 1), 1).expect("room");
    for offset in 1..=400 {
        log.append(&publication("busy", offset), 1).expect("room");
        log.commit(Durability::Synced).expect("a commit");
        while log.compact_step(500, 1).expect("a step").is_some() {}
    }
    assert!(log.bytes() < 16_000, "{}", log.bytes());
    assert!(log.figures().evicted > 200);
    for _ in 0..2 {
        let quiet = log.channel("quiet").expect("a channel");
        assert_eq!((quiet.epoch, quiet.last, quiet.count), (3, 1, 0));
        let busy = log.channel("busy").expect("a channel");
        assert_eq!(busy.last, 400);
        assert_eq!(busy.whole_after + busy.count, 400);
        drop(log);
        disk.crash(|| 0);
        log = open(&disk, Planted::Nothing).0;
    }
}

#[test]
fn times_and_sizes_hold() {
    let disk = SimDisk::new();
    let (mut log, _) = open(&disk, Planted::Nothing);
    let state = |ttl_s, size| {
        Unit::of(Record {
            channel: "a",
            epoch: 3,
            offset: 0,
            time_ms: 1_000_000,
            body: Body::Channel {
                why: Why::Opened,
                lost: 0,
                limits: Limits { size, ttl_s },
            },
        })
        .expect("a unit")
    };
    log.append(&state(10, 3), 1_000_000).expect("room");
    for offset in 1..=5 {
        log.append(&publication("a", offset), 1_000_000)
            .expect("room");
    }
    log.commit(Durability::Synced).expect("a commit");
    let count = |log: &Log<SimDisk>| log.channel("a").map(|state| (state.lost, state.count));
    assert_eq!(count(&log), Some((2, 3)));
    assert_eq!(log.expire_some(0, 100, 1_010_999), 0);
    assert_eq!(count(&log), Some((2, 3)));
    log.expire_some(0, 100, 1_011_000);
    assert_eq!(count(&log), Some((5, 0)));
    drop(log);
    disk.crash(|| 0);
    // A start long after.
    let opening = Opening {
        now_ms: 2_000_000,
        ..OPENING
    };
    let (log, _) = Log::open(disk, settings(), opening, |_, _| ()).expect("a log");
    assert_eq!(count(&log), Some((5, 0)));
}

#[test]
fn one_directory_has_one_owner() {
    let disk = SimDisk::new();
    let (_log, _) = open(&disk, Planted::Nothing);
    let second = Log::open(disk, settings(), OPENING, |_, _| ());
    assert!(matches!(second, Err(crate::OpenError::Locked)));
}
