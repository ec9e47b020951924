//! Crashes at any step: what is found at the next start is what was answered for, and of the rest a beginning.
//!
//! Each seed is a log on a disk of its own, a few hundred operations, and crashes between and within them.

use super::Planted;
use super::model::{Model, check_live, difference};
use crate::disk::sim::{Faults, SimDisk};
use crate::log::{Durability, Log, LogSettings, Opening, WriteError};
use crate::record::{Body, Limits, Record, Why};
use crate::unit::Unit;
use myriad_reactor::sim::Campaign;

/// Numbers from a seed (splitmix64).
#[derive(Clone, Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(super) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// What the seeds of a campaign came through.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) crashes: u64,
    pub(super) in_operations: u64,
    pub(super) cut: u64,
    pub(super) snapshots: u64,
    pub(super) compactions: u64,
    pub(super) full: u64,
    pub(super) failed_syncs: u64,
}

impl Seen {
    fn add(&mut self, other: Self) {
        self.crashes += other.crashes;
        self.in_operations += other.in_operations;
        self.cut += other.cut;
        self.snapshots += other.snapshots;
        self.compactions += other.compactions;
        self.full += other.full;
        self.failed_syncs += other.failed_syncs;
    }
}

/// A log, what it has to have, and what it may have.
struct Run {
    random: Random,
    disk: SimDisk,
    log: Log<SimDisk>,
    planted: Planted,
    settings: LogSettings,
    /// What was answered for.
    safe: Model,
    /// Units since then that may be found, a beginning of them.
    open: Vec<Unit>,
    /// Units of the group that is not committed.
    group: Vec<Unit>,
    /// What callers see: what was answered for and written.
    current: Model,
    content: u64,
    now_ms: u64,
    seen: Seen,
}

impl Run {
    fn new(seed: u64, planted: Planted) -> Self {
        let mut random = Random(seed);
        let settings = LogSettings {
            segment_bytes: 600 + random.below(3000),
            disk_max: None,
            compact_below: 60,
            snapshot_every: 1000 + random.below(8000),
        };
        let disk = SimDisk::new();
        let opening = Opening {
            now_ms: 1_000_000,
            random: random.next(),
        };
        let opened = Log::open_with(disk.clone(), settings, opening, planted);
        let (log, _) = opened.expect("an empty disk");
        Self {
            random,
            disk,
            log,
            planted,
            settings,
            safe: Model::default(),
            open: Vec::new(),
            group: Vec::new(),
            current: Model::default(),
            content: 0,
            now_ms: 1_000_000,
            seen: Seen::default(),
        }
    }

    /// What the group will have made of the model, for the offsets of the next unit.
    fn next_state(&self) -> Model {
        let mut model = self.current.clone();
        for unit in &self.group {
            model.apply(unit);
        }
        model
    }

    fn unit(&mut self) -> Unit {
        let names = ["a", "b", "c", "d", "channel:with:a:longer:name"];
        let index = usize::try_from(self.random.below(5)).expect("few");
        let name = names[index];
        let state = self.next_state();
        let known = state.0.get(name);
        let last = known.map_or(0, |one| one.last);
        let epoch = known.map_or_else(|| self.random.next() % 1_000_000, |one| one.epoch);
        let mut unit = Unit::new();
        let time_ms = self.now_ms;
        fn at<'r>(name: &'r str, epoch: u64, time_ms: u64) -> impl Fn(u64, Body<'r>) -> Record<'r> {
            move |offset, body| Record {
                channel: name,
                epoch,
                offset,
                time_ms,
                body,
            }
        }
        let record = at(name, epoch, time_ms);
        let limits = Limits {
            size: 1 + u32::try_from(self.random.below(6)).expect("few"),
            ttl_s: u32::MAX,
        };
        let state = |why, lost| Body::Channel { why, lost, limits };
        let pushed = match self.random.below(20) {
            0 => unit.push(record(last, state(Why::Removed, last))),
            1 if known.is_some() => unit.push(record(last, Body::Deleted)),
            2 => unit.push(Record {
                epoch: epoch + 1,
                ..record(last + 5, state(Why::Renewed, last + 5))
            }),
            3 => {
                let state = last.to_le_bytes();
                unit.push(at(name, epoch, time_ms)(0, Body::Stream(&state)))
            }
            _ => {
                let mut pushed = Ok(());
                if known.is_none() && self.random.one_in(2) {
                    pushed = unit.push(record(0, state(Why::Opened, 0)));
                }
                for index in 1..=1 + self.random.below(3) {
                    self.content += 1;
                    let length = usize::try_from(self.random.below(120)).expect("few");
                    let mut content = format!("{}:", self.content).into_bytes();
                    content.resize(content.len() + length, b'x');
                    let record = at(name, epoch, time_ms);
                    let body = Body::Publication(&content);
                    pushed = pushed.and(unit.push(record(last + index, body)));
                }
                if self.random.one_in(4) {
                    pushed = pushed.and(unit.push(record(last + 1, Body::Key(b"key"))));
                }
                if self.random.one_in(4) {
                    let value = self.content.to_le_bytes();
                    let key = if self.random.one_in(2) { b"p" } else { b"q" };
                    let record = at(name, epoch, time_ms);
                    let body = Body::Producer { key, value: &value };
                    pushed = pushed.and(unit.push(record(0, body)));
                }
                pushed
            }
        };
        pushed.expect("a record of a few bytes");
        unit
    }

    fn step(&mut self) {
        self.now_ms += self.random.below(50);
        match self.random.below(24) {
            0..=11 => {
                let unit = self.unit();
                if self.random.one_in(40) {
                    let crash_after = Some(self.random.below(6));
                    self.disk.set_faults(Faults {
                        crash_after,
                        ..Faults::default()
                    });
                }
                match self.log.append(&unit, self.now_ms) {
                    Ok(()) => self.group.push(unit),
                    Err(error) => self.failed(error),
                }
            }
            12..=17 => self.commit(),
            18 | 19 => self.compact(),
            20 | 21 => self.snapshot(),
            22 => self.trouble(),
            _ => self.restart(),
        }
    }

    fn commit(&mut self) {
        let durability = if self.random.one_in(4) {
            Durability::Written
        } else {
            Durability::Synced
        };
        match self.log.commit(durability) {
            Ok(()) => {
                for unit in std::mem::take(&mut self.group) {
                    self.current.apply(&unit);
                    self.open.push(unit);
                }
                if durability == Durability::Synced {
                    self.answered();
                }
                check_live(&self.log);
            }
            Err(error) => self.failed(error),
        }
    }

    /// Everything that was written is safe now.
    fn answered(&mut self) {
        self.safe = self.current.clone();
        self.open.clear();
    }

    fn failed(&mut self, error: WriteError) {
        match error {
            WriteError::Full => {
                self.seen.full += 1;
                self.group.clear();
            }
            WriteError::Stopped => {
                self.seen.in_operations += 1;
                // What was being written may be there.
                self.open.append(&mut self.group);
                self.restart();
            }
        }
    }

    fn compact(&mut self) {
        self.commit();
        if self.log.pending_bytes() > 0 || !self.group.is_empty() {
            return;
        }
        let step = self
            .log
            .compact_step(200 + self.random.below(2000), self.now_ms);
        match step {
            Ok(done) => {
                self.seen.compactions += u64::from(done.is_some_and(|done| done.removed.is_some()));
                if done.is_some() {
                    self.answered();
                }
                check_live(&self.log);
            }
            Err(error) => self.failed(error),
        }
    }

    fn snapshot(&mut self) {
        self.commit();
        if !self.group.is_empty() || !self.log.is_snapshot_due() {
            return;
        }
        let max = match self.random.one_in(2) {
            true => usize::MAX,
            false => usize::try_from(1 + self.random.below(200)).expect("few"),
        };
        if let Err(error) = self.log.snapshot_step(max) {
            self.failed(error);
        }
    }

    /// A disk that is full, or does not sync, for one commit.
    fn trouble(&mut self) {
        let faults = if self.random.one_in(2) {
            let room = Some(self.random.below(300));
            Faults {
                room,
                ..Faults::default()
            }
        } else {
            self.seen.failed_syncs += 1;
            Faults {
                sync_fails: true,
                ..Faults::default()
            }
        };
        if faults.room.is_some() {
            // Room for that much more.
            let used = self.log.bytes();
            let room = faults.room.map(|room| room + used);
            self.disk.set_faults(Faults { room, ..faults });
        } else {
            self.disk.set_faults(faults);
        }
        self.commit();
        self.disk.set_faults(Faults::default());
    }

    fn restart(&mut self) {
        self.seen.crashes += 1;
        self.open.append(&mut self.group);
        let is_kill = self.random.one_in(4) && self.log.failure().is_none();
        if is_kill {
            self.disk.kill();
        } else {
            let mut random = self.random.clone();
            self.disk.crash(|| random.next());
            self.random.next();
            self.random.0 ^= random.0;
        }
        let opening = Opening {
            now_ms: self.now_ms,
            random: self.random.next(),
        };
        // A start may be interrupted, too.
        for left in 0..3 {
            let crash_after = self.random.one_in(6).then(|| self.random.below(12));
            self.disk.set_faults(Faults {
                crash_after,
                ..Faults::default()
            });
            let opened = Log::open_with(self.disk.clone(), self.settings, opening, self.planted);
            match opened {
                Ok((log, opened)) if self.disk.faults().crash_after.is_none() => {
                    self.seen.cut += u64::from(opened.cut.is_some());
                    self.seen.snapshots += u64::from(opened.had_snapshot);
                    assert_eq!(opened.lost, [], "nothing is damaged");
                    assert!(opened.renewed.is_empty(), "the index is ahead of the log");
                    self.log = log;
                    self.judge();
                    return;
                }
                Ok(_) => {}
                Err(error) => assert!(crash_after.is_some() && left < 3, "{error}"),
            }
            let mut random = self.random.clone();
            self.disk.crash(|| random.next());
            self.random.0 ^= random.0;
        }
        let opened = Log::open_with(self.disk.clone(), self.settings, opening, self.planted);
        self.log = opened.expect("a disk without faults").0;
        self.judge();
    }

    /// What is there is what was answered for, and behind it a beginning of what was written since.
    fn judge(&mut self) {
        check_live(&self.log);
        let found = Model::of(&self.log).unwrap_or_else(|error| panic!("{error}"));
        let mut expected = self.safe.clone();
        let mut units = std::mem::take(&mut self.open).into_iter();
        loop {
            if expected == found {
                break;
            }
            match units.next() {
                Some(unit) => expected.apply(&unit),
                None => panic!("{}", difference(&self.safe, &found)),
            }
        }
        self.current = expected;
        // A start makes safe what it finds.
        self.answered();
    }
}

pub(super) fn simulate(seed: u64, planted: Planted) -> Seen {
    let mut run = Run::new(seed, planted);
    let steps = 60 + run.random.below(200);
    for _ in 0..steps {
        run.step();
    }
    run.commit();
    run.restart();
    run.seen
}

#[test]
fn what_was_answered_for_is_found_after_any_crash() {
    let replay = "-p myriad-journal --lib what_was_answered_for";
    let campaign = Campaign::from_environment(3000, replay);
    let outcomes = campaign.run(
        Seen::default(),
        |seed| simulate(seed, Planted::Nothing),
        Seen::add,
        None,
    );
    let seen = outcomes.summary;
    println!("{} seeds: {seen:?}", outcomes.passed);
    assert_eq!(outcomes.failures, [] as [u64; 0]);
    if outcomes.passed > 100 {
        let numbers = [
            seen.crashes,
            seen.in_operations,
            seen.cut,
            seen.snapshots,
            seen.compactions,
            seen.full,
            seen.failed_syncs,
        ];
        assert!(numbers.iter().all(|one| *one > 10), "{seen:?}");
    }
}
