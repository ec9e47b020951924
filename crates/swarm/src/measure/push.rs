//! What is known of each publication: when it was made, who should get it, when it arrived.
//!
//! Time is taken once per publication, when its publisher is about to write it, and once per batch of
//! received messages, right after the batch was received and before any of it is looked at. So an
//! arrival is never recorded early, and late by no more than the time one batch takes to be received
//! (at most [`myriad_reactor::Completions::BUFFER_BYTES`] of messages).

use crate::clock::Nanos;
use crate::measure::figures::{add, microseconds, record_count};
use hdrhistogram::Histogram;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A publication, as terminals recognise it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum PushKey {
    /// Made by this run: its stamp.
    Own { stream: u16, sequence: u32 },
    /// Made by somebody else: a hash of the message.
    Foreign(u64),
}

/// Arrivals of one publication at the terminals of one thread, or of all of them.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    base: Nanos,
    /// Terminals reached; repeats are not counted here.
    pub received: u64,
    /// Publication to the first of them.
    pub first: Duration,
    /// Publication to the last of them.
    pub last: Duration,
    /// Publication to arrival, in microseconds, to three digits.
    pub times: Histogram<u64>,
    /// Arrivals from before the publication was made, which are none of its own. Only an agent of a fleet has them: it does not
    /// know when that was.
    pub made_up: u64,
    /// Processor time of the one thread it belongs to, when its first terminals were reached and when its last were.
    processor_times: Option<(Duration, Duration)>,
}

/// Shortest time between first and last arrival that says how busy a thread was meanwhile: some turns of it.
const BUSY_SPAN_MIN: Duration = Duration::from_millis(20);

impl Tally {
    /// No arrivals yet, of a publication made at `base`.
    pub(crate) fn new(base: Nanos) -> Self {
        Self {
            base,
            received: 0,
            first: Duration::MAX,
            last: Duration::ZERO,
            times: microseconds(),
            made_up: 0,
            processor_times: None,
        }
    }

    /// Arrivals that were timed elsewhere: the first and the last of them, and all.
    pub(crate) fn of(
        base: Nanos,
        (first, last): (Duration, Duration),
        times: Histogram<u64>,
    ) -> Self {
        Self {
            base,
            received: times.len(),
            first,
            last,
            times,
            made_up: 0,
            processor_times: None,
        }
    }

    /// From when its times count.
    pub(crate) fn base(&self) -> Nanos {
        self.base
    }

    /// Records `count` arrivals at one time.
    pub(crate) fn record(&mut self, now: Nanos, count: u64) {
        let elapsed = now.since(self.base);
        self.received += count;
        self.first = self.first.min(elapsed);
        self.last = self.last.max(elapsed);
        record_count(&mut self.times, elapsed, count);
    }

    /// Notes the processor time of the thread after arrivals that were just recorded.
    pub(crate) fn note_processor_time(&mut self, now: Duration) {
        let (first, _) = self.processor_times.unwrap_or((now, now));
        self.processor_times = Some((first, now));
    }

    /// How much of the time from its first arrival to its last the thread was running; none when that was too short.
    pub(crate) fn busy_share(&self) -> Option<f64> {
        let (first, last) = self.processor_times?;
        let span = self.last.saturating_sub(self.first);
        let share = last.saturating_sub(first).as_secs_f64() / span.as_secs_f64();
        (span >= BUSY_SPAN_MIN).then_some(share.min(1.0))
    }

    /// Keeps the first `count` arrivals, and returns how many came after them.
    pub(crate) fn keep_first(&mut self, count: u64) -> u64 {
        let surplus = self.received.saturating_sub(count);
        if surplus == 0 {
            return 0;
        }
        let (mut kept, mut room) = (microseconds(), count);
        for step in self.times.iter_recorded() {
            let taken = step.count_at_value().min(room);
            if taken == 0 {
                break;
            }
            let time = Duration::from_micros(step.value_iterated_to());
            record_count(&mut kept, time, taken);
            room -= taken;
        }
        self.last = self.last.min(Duration::from_micros(kept.max()));
        (self.times, self.received) = (kept, count);
        surplus
    }

    /// Adds the arrivals at another thread's terminals.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.received += other.received;
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
        self.made_up += other.made_up;
        add(&mut self.times, &other.times);
    }
}

/// Publications of others that are measured at once. A server that sends every terminal something of its
/// own would otherwise fill memory with one entry per message.
const FOREIGN_OPEN_MAX: usize = 64;

/// Publications that an agent of a fleet measures at once.
const AGENT_OPEN_MAX: usize = 4096;

/// Runs of refused publications that are remembered of a stream. Past so many changes of mind of the server, what it refused
/// counts as a gap at those that get a later one.
const REFUSED_RUNS_MAX: usize = 1024;

/// The publications being measured: written by the publisher, read once per thread and publication.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    entries: Mutex<Entries>,
    /// Number of the latest publication of this run. Read for each message, so beside the lock.
    made: AtomicU64,
}

#[derive(Debug, Default)]
struct Entries {
    open: HashMap<PushKey, Entry>,
    /// Number of the latest publication of this run.
    published: u64,
    /// By stream: runs of sequences that the server refused, as first and last, in order.
    refused: HashMap<u16, Vec<(u32, u32)>>,
    foreign_open: usize,
    /// Foreign messages whose measurement ended with some terminals missing: what still comes of them
    /// until then belongs to nothing new.
    foreign_stragglers: HashMap<u64, Nanos>,
    /// Publications are made by the controller of a fleet, which alone knows when. Those of others are not measured.
    is_of_agent: bool,
    /// In that case: sequences up to which a stream's publications are measured.
    ended: HashMap<u16, u32>,
}

/// Who is there for a publication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Roll {
    /// Terminals that should get it.
    pub expected: u64,
    /// None is there, although there had been terminals and none of them is away on purpose.
    pub deserted: bool,
}

/// One publication being measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub key: PushKey,
    /// Its position in the order of this run's publications, from 1; zero of a foreign one.
    pub number: u64,
    /// When its clock began: when it was due; of a foreign one, when it was first seen.
    pub base: Nanos,
    /// When it was made, which may be later: nothing could arrive before.
    pub made: Nanos,
    /// Terminals that should get it: those up at `base`. Unknown of a foreign one until somebody counts.
    pub expected: Option<u64>,
    /// Nobody was up to get it, because the server or the network had ended every connection.
    pub deserted: bool,
    pub acceptance: Acceptance,
}

impl Entry {
    /// A publication whose making was not seen.
    fn seen(key: PushKey, now: Nanos) -> Self {
        Self {
            key,
            number: 0,
            base: now,
            made: now,
            expected: None,
            deserted: false,
            acceptance: Acceptance::Unknown,
        }
    }
}

impl Entries {
    /// Where the clock of a publication begins that an agent sees for the first time: now, and the controller knows better.
    fn first_seen(&mut self, stream: u16, sequence: u32, now: Nanos) -> Base {
        let ended = self.ended.get(&stream).copied().unwrap_or(0);
        if sequence <= ended || self.open.len() >= AGENT_OPEN_MAX {
            return Base::Closed;
        }
        let key = PushKey::Own { stream, sequence };
        self.open.insert(key, Entry::seen(key, now));
        Base::Open(now)
    }
}

/// What the publish request's answer was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acceptance {
    /// None yet, or there is no request to answer.
    Unknown,
    /// Accepted, after so long.
    After(Duration),
    /// Refused: it will reach nobody.
    Refused,
    /// There was no connection to send the request on: it will reach nobody.
    Unreached,
    /// The request was made and never answered: it may have been taken, and may reach somebody.
    Unanswered,
}

/// Where the clock of a publication began, for a thread that sees it for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// It is being measured, and was published then.
    Open(Nanos),
    /// Its measurement has ended, or it was never begun.
    Closed,
}

impl Ledger {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        // Entries are whole after every statement, so a panicking holder leaves nothing half done.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ledger of an agent of a fleet.
    pub(crate) fn of_agent() -> Self {
        Self {
            entries: Mutex::new(Entries {
                is_of_agent: true,
                ..Entries::default()
            }),
            // Its controller makes them, and does not tell it of each.
            made: AtomicU64::new(0),
        }
    }

    /// Publications up to this number may have been made, as an agent knows their schedule.
    pub(crate) fn may_be_made(&self, number: u64) {
        self.made.fetch_max(number, Ordering::Release);
    }

    /// Ends the measurement of publications on an agent.
    pub(crate) fn end(&self, is_over: impl Fn(&PushKey) -> bool) {
        let mut entries = self.entries();
        let over: Vec<PushKey> = entries.open.keys().copied().filter(is_over).collect();
        for key in over {
            entries.open.remove(&key);
            if let PushKey::Own { stream, sequence } = key {
                let ended = entries.ended.entry(stream).or_default();
                *ended = sequence.max(*ended);
            }
        }
    }

    /// Enters a publication of this run, whose clock began at `base`, before its first byte is written.
    pub(crate) fn publish(&self, key: PushKey, number: u64, roll: Roll, base: Nanos, now: Nanos) {
        let entry = Entry {
            key,
            number,
            base,
            made: now,
            expected: Some(roll.expected),
            deserted: roll.deserted,
            acceptance: Acceptance::Unknown,
        };
        let mut entries = self.entries();
        entries.published = number;
        entries.open.insert(key, entry);
        self.made.fetch_max(number, Ordering::Release);
    }

    /// Whether a publication of this run has been made, as far as is known here. Nobody but a server that makes stamps up sends
    /// one that has not.
    pub(crate) fn is_made(&self, number: u64) -> bool {
        number <= self.made.load(Ordering::Acquire)
    }

    /// Number of the oldest publication of this run that is still being measured, or of the next one.
    pub(crate) fn measured_from(&self) -> u64 {
        let entries = self.entries();
        let open = entries.open.values().map(|entry| entry.number);
        open.filter(|&number| number > 0)
            .min()
            .unwrap_or(entries.published + 1)
    }

    /// Notes the answer to its request.
    pub(crate) fn answer(&self, key: PushKey, acceptance: Acceptance) {
        let mut entries = self.entries();
        if let Some(entry) = entries.open.get_mut(&key) {
            entry.acceptance = acceptance;
        }
        if let (PushKey::Own { stream, sequence }, Acceptance::Refused | Acceptance::Unreached) =
            (key, acceptance)
        {
            let runs = entries.refused.entry(stream).or_default();
            let room = runs.len() < REFUSED_RUNS_MAX;
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == sequence => *last = sequence,
                _ if room => runs.push((sequence, sequence)),
                _ => {}
            }
        }
    }

    /// How many of the `count` publications of a stream right before this one were refused: nobody misses those. A
    /// stream's next publication is made when the last has its answer, so that all of them are known.
    pub(crate) fn refused_before(&self, stream: u16, sequence: u32, count: u32) -> u32 {
        let (from, to) = (sequence.saturating_sub(count), sequence);
        let entries = self.entries();
        let runs = entries.refused.get(&stream).into_iter().flatten();
        runs.map(|&(first, last)| (last + 1).min(to).saturating_sub(first.max(from)))
            .sum()
    }

    /// Says where the clock of a publication began; a foreign one begins now if it is new.
    pub(crate) fn base(&self, key: PushKey, now: Nanos) -> Base {
        let mut entries = self.entries();
        if let Some(entry) = entries.open.get(&key) {
            return Base::Open(entry.base);
        }
        let hash = match key {
            PushKey::Foreign(hash) if !entries.is_of_agent => hash,
            PushKey::Own { stream, sequence } if entries.is_of_agent => {
                return entries.first_seen(stream, sequence, now);
            }
            _ => return Base::Closed,
        };
        let straggling = entries
            .foreign_stragglers
            .get(&hash)
            .is_some_and(|&until| now < until);
        if straggling || entries.foreign_open >= FOREIGN_OPEN_MAX {
            return Base::Closed;
        }
        entries.foreign_stragglers.remove(&hash);
        entries.foreign_open += 1;
        entries.open.insert(key, Entry::seen(key, now));
        Base::Open(now)
    }

    /// Whether anything is.
    pub(crate) fn is_measuring(&self) -> bool {
        !self.entries().open.is_empty()
    }

    /// Whether this one is.
    pub(crate) fn is_open(&self, key: PushKey) -> bool {
        self.entries().open.contains_key(&key)
    }

    /// Everything being measured, oldest first.
    pub(crate) fn open(&self) -> Vec<Entry> {
        let mut open: Vec<Entry> = self.entries().open.values().copied().collect();
        open.sort_by_key(|entry| (entry.base, entry.key));
        open
    }

    /// Fixes how many terminals should get a foreign publication.
    pub(crate) fn expect(&self, key: PushKey, expected: u64) {
        if let Some(entry) = self.entries().open.get_mut(&key) {
            entry.expected = Some(expected);
        }
    }

    /// Ends a measurement. Until `stragglers_until`, more of a foreign publication is not taken for a new one.
    pub(crate) fn close(&self, key: PushKey, stragglers_until: Option<Nanos>) {
        let mut entries = self.entries();
        if entries.open.remove(&key).is_none() {
            return;
        }
        if let PushKey::Foreign(hash) = key {
            entries.foreign_open -= 1;
            if let Some(until) = stragglers_until {
                entries.foreign_stragglers.insert(hash, until);
            }
        }
    }

    /// Forgets stragglers whose time is up.
    pub(crate) fn forget_stragglers(&self, now: Nanos) {
        self.entries()
            .foreign_stragglers
            .retain(|_, until| *until > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: PushKey = PushKey::Own {
        stream: 0,
        sequence: 1,
    };

    fn at(millis: u64) -> Nanos {
        Nanos(millis * 1_000_000)
    }

    #[test]
    fn tallies_of_threads_add_up_to_the_whole() {
        let mut one = Tally::new(at(100));
        let mut two = Tally::new(at(100));
        one.record(at(110), 90);
        one.record(at(150), 9);
        two.record(at(105), 1);
        one.merge(&two);
        assert_eq!(one.received, 100);
        assert_eq!(
            (one.first, one.last),
            (Duration::from_millis(5), Duration::from_millis(50))
        );
        assert_eq!(one.times.len(), 100);
        assert_eq!(one.times.value_at_quantile(0.5) / 100, 100);
    }

    #[test]
    fn the_first_arrivals_are_kept_with_their_times() {
        let mut tally = Tally::new(at(0));
        for millis in 1..=10 {
            tally.record(at(millis), 10);
        }
        assert_eq!(tally.clone().keep_first(100), 0);
        assert_eq!(tally.keep_first(35), 65);
        assert_eq!((tally.received, tally.times.len()), (35, 35));
        assert_eq!(tally.first, Duration::from_millis(1));
        let last = tally.last.as_micros();
        assert!((4_000..4_010).contains(&last), "{last}");
    }

    #[test]
    fn a_thread_that_runs_from_first_to_last_arrival_is_busy() {
        let mut tally = Tally::new(at(0));
        tally.record(at(100), 1);
        tally.note_processor_time(Duration::from_millis(5000));
        tally.record(at(110), 1);
        tally.note_processor_time(Duration::from_millis(5010));
        assert_eq!(tally.busy_share(), None, "too short to say");
        tally.record(at(350), 1);
        tally.note_processor_time(Duration::from_millis(5125));
        assert_eq!(tally.busy_share(), Some(0.5));
        tally.record(at(600), 1);
        tally.note_processor_time(Duration::from_millis(5501));
        assert_eq!(tally.busy_share(), Some(1.0));
    }

    #[test]
    fn an_own_publication_is_measured_from_publish_to_close() {
        let ledger = Ledger::default();
        assert_eq!(ledger.base(OWN, at(1)), Base::Closed);
        assert_eq!(ledger.measured_from(), 1);
        let roll = Roll {
            expected: 10,
            deserted: false,
        };
        ledger.publish(OWN, 1, roll, at(2), at(3));
        assert_eq!(ledger.measured_from(), 1);
        ledger.answer(OWN, Acceptance::After(Duration::from_millis(1)));
        assert_eq!(ledger.base(OWN, at(9)), Base::Open(at(2)));
        let open = ledger.open();
        assert_eq!((open.len(), open[0].expected), (1, Some(10)));
        ledger.close(OWN, None);
        assert_eq!(ledger.measured_from(), 2);
        assert_eq!(ledger.base(OWN, at(10)), Base::Closed);
        assert!(ledger.open().is_empty());
    }

    #[test]
    fn refused_publications_are_told_from_missing_ones() {
        let ledger = Ledger::default();
        for sequence in [1, 4, 5, 6, 9] {
            let key = PushKey::Own {
                stream: 2,
                sequence,
            };
            ledger.answer(key, Acceptance::Refused);
        }
        assert_eq!(ledger.refused_before(2, 2, 1), 1);
        assert_eq!(ledger.refused_before(2, 4, 3), 1);
        assert_eq!(ledger.refused_before(2, 6, 4), 2);
        assert_eq!(ledger.refused_before(2, 10, 9), 5);
        assert_eq!(ledger.refused_before(2, 10, 2), 1);
        assert_eq!(ledger.refused_before(2, 9, 2), 0);
        assert_eq!(ledger.refused_before(0, 10, 9), 0);
    }

    #[test]
    fn a_foreign_publication_begins_when_first_seen_and_can_return() {
        let ledger = Ledger::default();
        let key = PushKey::Foreign(7);
        assert_eq!(ledger.base(key, at(5)), Base::Open(at(5)));
        assert_eq!(ledger.base(key, at(8)), Base::Open(at(5)));
        ledger.close(key, Some(at(50)));
        assert_eq!(
            ledger.base(key, at(49)),
            Base::Closed,
            "a straggler is no new publication"
        );
        assert_eq!(ledger.base(key, at(50)), Base::Open(at(50)));
        ledger.close(key, None);
        assert_eq!(ledger.base(key, at(51)), Base::Open(at(51)));
    }

    #[test]
    fn foreign_publications_are_bounded() {
        let ledger = Ledger::default();
        for hash in 0..FOREIGN_OPEN_MAX as u64 {
            assert_eq!(
                ledger.base(PushKey::Foreign(hash), at(1)),
                Base::Open(at(1))
            );
        }
        assert_eq!(ledger.base(PushKey::Foreign(999), at(1)), Base::Closed);
        ledger.close(PushKey::Foreign(3), None);
        assert_eq!(ledger.base(PushKey::Foreign(999), at(1)), Base::Open(at(1)));
    }
}
