//! The thread beside a shard that writes its log, so that the shard never waits for a disk.

use crate::disk::Disk;
use crate::log::{Durability, Log, LogFigures, WriteError};
use crate::unit::Unit;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

/// When an answer says that a unit is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPolicy {
    /// When it is on the disk. A power cut takes nothing that was answered.
    Always,
    /// When the kernel has it; it is on the disk at most this long after. A power cut takes what was answered in that time.
    Every(Duration),
    /// When the kernel has it. A power cut takes what the kernel has not written yet, usually 30 s.
    Never,
}

/// How a [`Writer`] works.
#[derive(Clone, Copy, Debug)]
pub struct WriterSettings {
    /// When it answers.
    pub sync: SyncPolicy,
    /// Units that wait or are being written, at most.
    pub units_max: usize,
    /// Bytes of these, at most.
    pub bytes_max: usize,
    /// Bytes at which a group is written though more units wait.
    pub group_bytes: usize,
    /// Bytes a second that compaction may read.
    pub compact_rate: u64,
    /// What finds the disk full waits until there is room, and is not answered before. [`Writer::is_full`] says so.
    pub waits_for_room: bool,
}

impl Default for WriterSettings {
    fn default() -> Self {
        Self {
            sync: SyncPolicy::Always,
            units_max: 65_536,
            bytes_max: 64 << 20,
            group_bytes: 4 << 20,
            compact_rate: 32 << 20,
            waits_for_room: false,
        }
    }
}

/// What became of a unit.
pub type Outcome = Result<(), WriteError>;

/// The answer for a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The number that came with the unit.
    pub ticket: u64,
    /// Whether it is kept.
    pub outcome: Outcome,
}

/// A unit that was not taken, which comes back.
#[derive(Debug)]
pub struct Refused {
    /// The unit.
    pub unit: Unit,
    /// The writer has ended. Otherwise too much waits.
    pub is_ended: bool,
}

type Task<D> = Box<dyn FnOnce(&mut Log<D>) + Send>;

struct Queue<D: Disk> {
    units: VecDeque<(u64, Unit)>,
    tasks: Vec<Task<D>>,
    /// Of units that wait and of those that are being written.
    count: usize,
    bytes: usize,
    is_ending: bool,
    is_ended: bool,
    figures: LogFigures,
}

struct Shared<D: Disk> {
    queue: Mutex<Queue<D>>,
    wakes: Condvar,
    is_full: AtomicBool,
}

impl<D: Disk> Shared<D> {
    fn queue(&self) -> MutexGuard<'_, Queue<D>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A log with its thread. Units are written in the order in which they came, and answered in that order.
pub struct Writer<D: Disk> {
    shared: Arc<Shared<D>>,
    settings: WriterSettings,
    thread: Option<JoinHandle<()>>,
}

impl<D: Disk> fmt::Debug for Writer<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}

impl<D> Writer<D>
where
    D: Disk + Send + 'static,
    D::File: Send + 'static,
{
    /// Starts the thread of a log. It calls `answer` with the answers of each group, and must not be held up by it.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn spawn(
        log: Log<D>,
        settings: WriterSettings,
        answer: impl FnMut(&[Answer]) + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue {
                units: VecDeque::new(),
                tasks: Vec::new(),
                count: 0,
                bytes: 0,
                is_ending: false,
                is_ended: false,
                figures: log.figures(),
            }),
            wakes: Condvar::new(),
            is_full: AtomicBool::new(false),
        });
        let now = Instant::now();
        let mut work = Work {
            log,
            settings,
            shared: Arc::clone(&shared),
            answer,
            answers: Vec::new(),
            unsynced_since: None,
            compact_credit: 0,
            credited_at: now,
            looked_at: now,
            expired_to: 0,
        };
        let thread = thread::Builder::new()
            .name("journal".into())
            .spawn(move || work.run())?;
        Ok(Self {
            shared,
            settings,
            thread: Some(thread),
        })
    }

    /// Gives a unit to the thread, without waiting for anything. Its answer has the ticket.
    ///
    /// # Errors
    /// It is not taken: too much waits.
    pub fn submit(&self, ticket: u64, unit: Unit) -> Result<(), Refused> {
        let bytes = unit.bytes();
        let mut queue = self.shared.queue();
        let is_full = queue.count >= self.settings.units_max
            || queue.count > 0 && queue.bytes + bytes > self.settings.bytes_max;
        if queue.is_ending || is_full {
            let is_ended = queue.is_ending;
            return Err(Refused { unit, is_ended });
        }
        let was_idle = queue.units.is_empty();
        queue.count += 1;
        queue.bytes += bytes;
        queue.units.push_back((ticket, unit));
        drop(queue);
        if was_idle {
            self.shared.wakes.notify_one();
        }
        Ok(())
    }

    /// Has the thread do something with the log between two groups. Not done if the writer has ended.
    pub fn run(&self, task: impl FnOnce(&mut Log<D>) + Send + 'static) {
        let mut queue = self.shared.queue();
        if !queue.is_ended {
            queue.tasks.push(Box::new(task));
        }
        drop(queue);
        self.shared.wakes.notify_one();
    }

    /// Whether what was submitted waits for room on the disk.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.shared.is_full.load(Ordering::Relaxed)
    }

    /// Figures of the log, as of its last group.
    #[must_use]
    pub fn figures(&self) -> LogFigures {
        self.shared.queue().figures
    }

    /// Units and bytes that wait or are being written.
    #[must_use]
    pub fn waiting(&self) -> (usize, usize) {
        let queue = self.shared.queue();
        (queue.count, queue.bytes)
    }
}

impl<D: Disk> Writer<D> {
    /// Takes no more, writes what waits, and returns when the thread has ended. The next start finds a snapshot.
    pub fn end(mut self) {
        self.finish();
    }

    fn finish(&mut self) {
        self.shared.queue().is_ending = true;
        self.shared.wakes.notify_one();
        if let Some(thread) = self.thread.take() {
            // It has said why it has panicked.
            let _ = thread.join();
        }
    }
}

impl<D: Disk> Drop for Writer<D> {
    fn drop(&mut self) {
        self.finish();
    }
}

/// How often it is looked for work beside.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Bytes of a step of compaction, and of a snapshot: what a group waits for at most.
const STEP_BYTES: u64 = 1 << 20;
/// Channels that are looked at for what is too old, each time it is looked for work.
const EXPIRY_CHANNELS: u32 = 4096;

struct Work<D: Disk, A> {
    log: Log<D>,
    settings: WriterSettings,
    shared: Arc<Shared<D>>,
    answer: A,
    answers: Vec<Answer>,
    unsynced_since: Option<Instant>,
    /// Bytes that compaction may read now.
    compact_credit: u64,
    credited_at: Instant,
    looked_at: Instant,
    expired_to: u32,
}

impl<D: Disk, A: FnMut(&[Answer])> Work<D, A> {
    fn run(&mut self) {
        loop {
            let (units, tasks, is_ending) = self.wait();
            for task in tasks {
                task(&mut self.log);
            }
            let had_units = !units.is_empty();
            self.write(units);
            self.sync_if_due();
            if is_ending && !had_units {
                break;
            }
            self.work_beside();
        }
        // Errors change nothing any more: the next start reads what is there.
        let _ = self.log.sync();
        while self.log.failure().is_none()
            && !matches!(self.log.snapshot_step(8 << 20), Ok(true) | Err(_))
        {}
        self.shared.queue().is_ended = true;
    }

    /// Waits for work; for no longer than until something is due.
    fn wait(&self) -> (VecDeque<(u64, Unit)>, Vec<Task<D>>, bool) {
        let mut queue = self.shared.queue();
        if queue.units.is_empty() && queue.tasks.is_empty() && !queue.is_ending {
            let (again, _) = self
                .shared
                .wakes
                .wait_timeout(queue, self.time_to_wait())
                .unwrap_or_else(PoisonError::into_inner);
            queue = again;
        }
        let units = std::mem::take(&mut queue.units);
        let tasks = std::mem::take(&mut queue.tasks);
        (units, tasks, queue.is_ending)
    }

    fn time_to_wait(&self) -> Duration {
        match (self.settings.sync, self.unsynced_since) {
            (SyncPolicy::Every(time), Some(since)) => {
                time.saturating_sub(since.elapsed()).min(LOOK_INTERVAL)
            }
            _ => LOOK_INTERVAL,
        }
    }

    fn write(&mut self, units: VecDeque<(u64, Unit)>) {
        let mut group = Vec::new();
        let mut bytes = 0;
        for (ticket, unit) in units {
            bytes += unit.bytes();
            group.push((ticket, unit));
            if bytes >= self.settings.group_bytes {
                self.write_group(&mut group);
                bytes = 0;
            }
        }
        self.write_group(&mut group);
    }

    /// Writes a group, and answers.
    fn write_group(&mut self, group: &mut Vec<(u64, Unit)>) {
        if group.is_empty() {
            return;
        }
        let mut outcome = self.try_group(group);
        while outcome == Err(WriteError::Full) && self.waits_for_room() {
            outcome = self.try_group(group);
        }
        self.shared.is_full.store(false, Ordering::Relaxed);
        if self.unsynced_since.is_none() && self.log.is_unsynced() {
            self.unsynced_since = Some(Instant::now());
        }
        let mut queue = self.shared.queue();
        queue.count -= group.len();
        queue.bytes -= group.iter().map(|(_, unit)| unit.bytes()).sum::<usize>();
        queue.figures = self.log.figures();
        drop(queue);
        self.answers.clear();
        let answers = group
            .drain(..)
            .map(|(ticket, _)| Answer { ticket, outcome });
        self.answers.extend(answers);
        (self.answer)(&self.answers);
    }

    fn try_group(&mut self, group: &[(u64, Unit)]) -> Outcome {
        let now_ms = now_ms();
        for (_, unit) in group {
            self.log.append(unit, now_ms)?;
        }
        self.log.commit(match self.settings.sync {
            SyncPolicy::Always => Durability::Synced,
            SyncPolicy::Every(_) | SyncPolicy::Never => Durability::Written,
        })
    }

    /// Waits before another try, if it is to wait at all.
    fn waits_for_room(&mut self) -> bool {
        let queue = self.shared.queue();
        if !self.settings.waits_for_room || queue.is_ending {
            return false;
        }
        self.shared.is_full.store(true, Ordering::Relaxed);
        let waited = self.shared.wakes.wait_timeout(queue, LOOK_INTERVAL);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        // A segment that is of no use any more goes without needing room.
        self.work_beside();
        true
    }

    fn sync_if_due(&mut self) {
        let SyncPolicy::Every(time) = self.settings.sync else {
            return;
        };
        if self
            .unsynced_since
            .is_some_and(|since| since.elapsed() >= time)
        {
            // If it fails, the log has stopped, and the next unit is told.
            let _ = self.log.sync();
            self.unsynced_since = None;
        }
    }

    /// A bounded part of what can wait.
    fn work_beside(&mut self) {
        let now = Instant::now();
        let passed = now - self.credited_at;
        self.credited_at = now;
        let passed_us = u64::try_from(passed.as_micros()).unwrap_or(u64::MAX);
        let credit = self.settings.compact_rate.saturating_mul(passed_us) / 1_000_000;
        self.compact_credit = (self.compact_credit + credit).min(2 * STEP_BYTES);
        let is_look_due = now - self.looked_at >= LOOK_INTERVAL;
        if is_look_due {
            self.looked_at = now;
            self.expired_to = self
                .log
                .expire_some(self.expired_to, EXPIRY_CHANNELS, now_ms());
        }
        if self.log.failure().is_some() {
            return;
        }
        let is_compacting = is_look_due || self.log.is_compacting();
        if is_compacting && self.compact_credit >= STEP_BYTES {
            // A full disk: it is tried again when the next look is due.
            let step = self.log.compact_step(STEP_BYTES, now_ms());
            if let Ok(Some(step)) = step {
                self.compact_credit = self.compact_credit.saturating_sub(step.read_bytes);
            }
        }
        if self.log.is_snapshot_due() {
            let _ = self.log.snapshot_step(1 << 20);
        }
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::sim::{Faults, SimDisk};
    use crate::{Body, LogSettings, Opening, Record};
    use std::sync::mpsc;

    const OPENING: Opening = Opening {
        now_ms: 1,
        random: 1,
    };

    fn writer(
        disk: &SimDisk,
        settings: WriterSettings,
    ) -> (Writer<SimDisk>, mpsc::Receiver<Answer>) {
        let opened = Log::open(disk.clone(), LogSettings::default(), OPENING, |_, _| ());
        let (log, _) = opened.expect("a log");
        let (send, answers) = mpsc::channel();
        let writer = Writer::spawn(log, settings, move |group: &[Answer]| {
            for answer in group {
                let _ = send.send(*answer);
            }
        });
        (writer.expect("a thread"), answers)
    }

    fn publication(offset: u64) -> Unit {
        Unit::of(Record {
            channel: "a",
            epoch: 1,
            offset,
            time_ms: 1,
            body: Body::Publication(b"data"),
        })
        .expect("a unit")
    }

    #[test]
    fn answers_come_in_order_and_the_next_start_has_a_snapshot() {
        let disk = SimDisk::new();
        let (writer, answers) = writer(&disk, WriterSettings::default());
        for offset in 1..=1000 {
            writer.submit(offset, publication(offset)).expect("room");
        }
        for ticket in 1..=1000 {
            let answer = answers.recv().expect("an answer");
            assert_eq!(
                answer,
                Answer {
                    ticket,
                    outcome: Ok(())
                }
            );
        }
        writer.end();
        disk.crash(|| 0);
        let opened = Log::open(disk, LogSettings::default(), OPENING, |_, _| ());
        let (log, opened) = opened.expect("a log");
        assert!(opened.had_snapshot);
        assert_eq!(log.channel("a").map(|state| state.count), Some(1000));
    }

    #[test]
    fn too_much_is_refused_and_never_waited_for() {
        let disk = SimDisk::new();
        let settings = WriterSettings {
            units_max: 3,
            ..WriterSettings::default()
        };
        let (writer, answers) = writer(&disk, settings);
        let (open, gate) = mpsc::channel::<()>();
        writer.run(move |_| {
            let _ = gate.recv();
        });
        let refused = (1..=5).filter(|one| writer.submit(*one, publication(*one)).is_err());
        assert_eq!(refused.count(), 2);
        drop(open);
        assert_eq!(
            answers
                .iter()
                .take(3)
                .map(|one| one.ticket)
                .collect::<Vec<_>>(),
            [1, 2, 3]
        );
    }

    #[test]
    fn what_waits_for_room_is_answered_when_there_is_some() {
        let disk = SimDisk::new();
        let settings = WriterSettings {
            waits_for_room: true,
            ..WriterSettings::default()
        };
        let (writer, answers) = writer(&disk, settings);
        disk.set_faults(Faults {
            room: Some(0),
            ..Faults::default()
        });
        writer.submit(1, publication(1)).expect("room");
        while !writer.is_full() {
            std::thread::yield_now();
        }
        writer.submit(2, publication(2)).expect("room");
        assert_eq!(answers.try_recv(), Err(mpsc::TryRecvError::Empty));
        disk.set_faults(Faults::default());
        for ticket in [1, 2] {
            let outcome = Ok(());
            assert_eq!(answers.recv(), Ok(Answer { ticket, outcome }));
        }
        assert!(!writer.is_full());
    }

    #[test]
    fn a_full_disk_is_told_and_room_helps_and_a_failed_sync_ends_it() {
        let disk = SimDisk::new();
        let (writer, answers) = writer(&disk, WriterSettings::default());
        let outcome = |offset| {
            writer.submit(offset, publication(offset)).expect("room");
            answers.recv().expect("an answer").outcome
        };
        assert_eq!(outcome(1), Ok(()));
        disk.set_faults(Faults {
            room: Some(0),
            ..Faults::default()
        });
        assert_eq!(outcome(2), Err(WriteError::Full));
        disk.set_faults(Faults::default());
        assert_eq!(outcome(2), Ok(()));
        disk.set_faults(Faults {
            sync_fails: true,
            ..Faults::default()
        });
        assert_eq!(outcome(3), Err(WriteError::Stopped));
        disk.set_faults(Faults::default());
        assert_eq!(outcome(4), Err(WriteError::Stopped));
    }
}
