//! What an agent tells its controller of its part of the crowd: everything so far, so that a message that is lost does no harm.
//!
//! Of a publication it tells the arrivals since the first one here: when it was made, the controller knows.

use super::offset::Offset;
use crate::clock::Nanos;
use crate::engine::deal::Slice;
use crate::engine::flows::figures::FlowFigures;
use crate::engine::flows::unstamped::{EXAMPLE_BYTES_MAX, Unstamped};
use crate::engine::shared::{Closes, Shared, Stage, Totals};
use crate::engine::tls::TlsFigures;
use crate::failure::Failure;
use crate::measure::deliveries::Deliveries;
use crate::measure::figures::{microseconds, record_count};
use crate::measure::push::{Entry, PushKey, Tally};
use crate::measure::round_trip::RoundTrips;
use crate::run::{Figures, RunError, Times};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::time::Duration;

/// Bytes of one message's publications, about. What is more comes with the next message.
const TALLIES_BYTES_MAX: usize = 400 << 10;

/// Bytes of one bucket of a histogram on its way, about.
const BUCKET_BYTES: usize = 5;

/// Most close codes and publications of one message. The protocol has some 2,000 codes, and publications are bounded by their bytes.
const KINDS_MAX: usize = 10_000;

/// The largest count of an agent that is believed: more than it can reach, and so little that the sum of all agents fits.
const COUNT_MAX: u64 = 1 << 53;

/// A histogram of microseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Buckets(#[serde(with = "crate::measure::buckets")] Histogram<u64>);

/// Arrivals of one publication of the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct PushState {
    stream: u16,
    sequence: u32,
    /// From when its times count.
    base: Nanos,
    received: u64,
    first: Duration,
    last: Duration,
    times: Buckets,
}

/// What an agent's machine uses.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct MachineState {
    pub share: f64,
    pub share_max: f64,
    pub saturated_s: u64,
    pub watched_s: u64,
    pub machine_share: f64,
    pub machine_share_max: f64,
    pub machine_saturated_s: u64,
    pub rss_anon_bytes: u64,
    /// Anonymous memory before the first connection.
    pub memory_before: u64,
    pub clock: Offset,
    /// Largest distance between the clocks since they were compared first, in nanoseconds.
    pub drift_nanos: u64,
}

/// Everything that an agent tells.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct State {
    /// Rising: an older one is passed over.
    pub number: u64,
    /// When it was taken, by the controller's clock.
    pub at: Nanos,
    pub stage: Stage,
    /// Why the agent cannot do its part. Nothing else of such a state is looked at.
    pub fatal: Option<String>,
    totals: Totals,
    failures: Vec<(Failure, u64)>,
    closes: Vec<(Option<u16>, Closes)>,
    answers: Vec<(Failure, Vec<u8>)>,
    unstamped: Option<Unstamped>,
    open_by_target: Vec<u32>,
    setup_times: Buckets,
    pong_times: Buckets,
    held_times: Buckets,
    tls: TlsFigures,
    answered: RoundTrips,
    answered_ended: bool,
    deliveries: Deliveries,
    pushes: Vec<PushState>,
    flows: Vec<FlowFigures>,
    flows_incomplete: u64,
    flows_heard: Nanos,
    /// Failures of callers, by kind, and whether all of their requests have ended.
    pub callers: Vec<(Failure, u64)>,
    pub callers_ended: bool,
    pub machine: MachineState,
}

/// What an agent has told of publications: of each, how many arrivals.
#[derive(Debug, Default)]
pub(super) struct PushesTold(HashMap<PushKey, u64>);

impl State {
    /// Sums what the threads of a slice have so far. Every tenth message tells all publications again.
    pub(super) fn of(shared: &Shared, slice: Slice, number: u64, told: &mut PushesTold) -> Self {
        let (mut figures, mut times) = (Figures::none(), Times::none());
        let mut open_by_target: Vec<u32> = Vec::new();
        let mut tallies: HashMap<PushKey, Tally> = HashMap::new();
        for thread in slice.thread_numbers() {
            let account = shared.account(thread as usize);
            figures.add(&account);
            times.add(&account);
            open_by_target.resize(account.open_by_target.len(), 0);
            for (sum, more) in open_by_target.iter_mut().zip(&account.open_by_target) {
                *sum += more;
            }
            for (key, tally) in &account.tallies {
                let sum = tallies.entry(*key);
                sum.and_modify(|sum| sum.merge(tally))
                    .or_insert_with(|| tally.clone());
            }
        }
        let mut state = Self {
            stage: figures.stage,
            fatal: figures.fatal.map(|it| RunError::from(it).to_string()),
            totals: figures.totals,
            failures: figures.failures.into_iter().collect(),
            closes: figures.closes.into_iter().collect(),
            answers: figures.answers.into_iter().collect(),
            unstamped: figures.unstamped,
            open_by_target,
            setup_times: Buckets(times.setup),
            pong_times: Buckets(times.pong),
            held_times: Buckets(times.held),
            tls: times.tls,
            answered: times.answered,
            answered_ended: figures.answered_ended,
            deliveries: times.deliveries,
            ..Self::empty(number)
        };
        state.tell_pushes(tallies, told);
        if let Some(ledger) = &shared.flows {
            state.flows = ledger.sum();
            state.flows_incomplete = ledger.incomplete();
            state.flows_heard = ledger.heard();
        }
        state
    }

    /// That an agent cannot do its part, and why: it ends the run, so nothing else is told.
    pub(super) fn failed(number: u64, reason: String) -> Self {
        Self {
            fatal: Some(reason),
            ..Self::empty(number)
        }
    }

    fn empty(number: u64) -> Self {
        Self {
            number,
            at: Nanos(0),
            stage: Stage::Connecting,
            fatal: None,
            totals: Totals::default(),
            failures: Vec::new(),
            closes: Vec::new(),
            answers: Vec::new(),
            unstamped: None,
            open_by_target: Vec::new(),
            setup_times: Buckets(microseconds()),
            pong_times: Buckets(microseconds()),
            held_times: Buckets(microseconds()),
            tls: TlsFigures::default(),
            answered: RoundTrips::default(),
            answered_ended: false,
            deliveries: Deliveries::default(),
            pushes: Vec::new(),
            flows: Vec::new(),
            flows_incomplete: 0,
            flows_heard: Nanos(0),
            callers: Vec::new(),
            callers_ended: true,
            machine: MachineState::default(),
        }
    }

    /// Takes publications that have gained arrivals, the oldest first, as many as one message holds.
    fn tell_pushes(&mut self, tallies: HashMap<PushKey, Tally>, told: &mut PushesTold) {
        told.0.retain(|key, _| tallies.contains_key(key));
        if self.number.is_multiple_of(10) {
            told.0.clear();
        }
        let mut tallies: Vec<(PushKey, Tally)> = tallies.into_iter().collect();
        tallies.sort_by_key(|(key, tally)| (tally.base(), *key));
        let mut bytes = 0;
        for (key, tally) in tallies {
            let PushKey::Own { stream, sequence } = key else {
                continue;
            };
            if told.0.get(&key) == Some(&tally.received) || bytes > TALLIES_BYTES_MAX {
                continue;
            }
            told.0.insert(key, tally.received);
            bytes += 128 + BUCKET_BYTES * tally.times.iter_recorded().count();
            self.pushes.push(PushState {
                stream,
                sequence,
                base: tally.base(),
                received: tally.received,
                first: tally.first,
                last: tally.last,
                times: Buckets(tally.times),
            });
        }
    }

    /// Takes what only a caller's schedule knows of its flow.
    pub(super) fn note_caller(&mut self, flow: usize, due: u64, behind: Duration) {
        if let Some(figures) = self.flows.get_mut(flow) {
            (figures.due, figures.behind) = (due, behind);
        }
    }

    /// Whether it can be what the agent of a slice has to say.
    pub(super) fn is_plausible(&self, slice: Slice, targets: usize, flows: usize) -> bool {
        let terminals = u64::from(slice.terminals);
        let open: u64 = self.open_by_target.iter().copied().map(u64::from).sum();
        let has_shape = self.open_by_target.len() == targets && self.flows.len() == flows;
        let counts = [
            self.failures.len(),
            self.closes.len(),
            self.answers.len(),
            self.pushes.len(),
            self.callers.len(),
        ];
        let is_sound = |push: &PushState| {
            push.received == push.times.0.len() && (push.received == 0 || push.first <= push.last)
        };
        let example = self.unstamped.as_ref();
        has_shape
            && example.is_none_or(|it| it.message.len() <= EXAMPLE_BYTES_MAX)
            && counts.iter().all(|count| *count <= KINDS_MAX)
            && open <= terminals
            && self.totals.open <= terminals
            && self.tls.handshakes == self.tls.times.len()
            && self.totals.given_up <= terminals
            && self.totals.unwell.are_sound(COUNT_MAX)
            && self.answered.counts.are_sound(COUNT_MAX)
            && self.pushes.iter().all(is_sound)
    }

    /// Puts it in the place of what the agent has told before, as the account of a thread. `entries` are the publications that
    /// are measured.
    pub(super) fn into_account(self, shared: &Shared, agent: usize, entries: &[Entry]) {
        let mut failures: std::collections::BTreeMap<Failure, u64> =
            self.failures.into_iter().collect();
        for (failure, count) in self.callers {
            *failures.entry(failure).or_default() += count;
        }
        if let Some(ledger) = &shared.flows {
            let (incomplete, heard) = (self.flows_incomplete, self.flows_heard);
            ledger.replace(agent, self.flows, incomplete, heard);
        }
        let mut account = shared.account(agent);
        account.stage = self.stage;
        account.totals = self.totals;
        account.failures = failures;
        account.closes = self.closes.into_iter().collect();
        account.answers = self.answers.into_iter().collect();
        account.unstamped = self.unstamped;
        account.open_by_target = self.open_by_target;
        account.setup_times = self.setup_times.0;
        account.tls = self.tls;
        account.pong_times = self.pong_times.0;
        account.held_times = self.held_times.0;
        account.answered = self.answered;
        account.answered_ended = self.answered_ended;
        account.deliveries = self.deliveries;
        let machine = &self.machine;
        let clock_error = machine.clock.error_nanos;
        let clock_error = Duration::from_nanos(clock_error.saturating_add(machine.drift_nanos));
        for push in self.pushes {
            let (stream, sequence) = (push.stream, push.sequence);
            let key = PushKey::Own { stream, sequence };
            if let Some(entry) = entries.iter().find(|entry| entry.key == key) {
                account.tallies.insert(key, push.since(entry, clock_error));
            }
        }
    }
}

impl PushState {
    /// The arrivals, counted from when the publication was due: not before that, because clocks are off by a little. Those from before
    /// it was made, by more than clocks may be off, are of a stamp that the server made up.
    fn since(&self, entry: &Entry, clock_error: Duration) -> Tally {
        let moved = |time: Duration| self.base.plus(time).since(entry.base);
        // Times on their way are rounded down to microseconds.
        let slack = clock_error + Duration::from_micros(1);
        let is_possible = |time: Duration| self.base.plus(time).plus(slack) >= entry.made;
        let (mut times, mut made_up, mut earliest) = (microseconds(), 0, None);
        for step in self.times.0.iter_recorded() {
            let (time, count) = (step.value_iterated_to(), step.count_at_value());
            let time = Duration::from_micros(time);
            if !is_possible(time) {
                made_up += count;
                continue;
            }
            earliest.get_or_insert(time);
            record_count(&mut times, moved(time), count);
        }
        let mut tally = match earliest {
            None => Tally::new(entry.base),
            Some(earliest) => {
                // The upper end of a bucket may lie past the last arrival, which is exact.
                let first = match made_up {
                    0 => self.first,
                    _ => earliest.min(self.last),
                };
                Tally::of(entry.base, (moved(first), moved(self.last)), times)
            }
        };
        tally.made_up = made_up;
        tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::fanout::times_of;

    fn slice(terminals: u32) -> Slice {
        Slice {
            first_thread: 0,
            threads: 1,
            first_terminal: 0,
            terminals,
        }
    }

    fn at(millis: u64) -> Nanos {
        Nanos(millis * 1_000_000)
    }

    const KEY: PushKey = PushKey::Own {
        stream: 0,
        sequence: 1,
    };

    /// What an agent saw whose first arrival was at 10 ms.
    fn agent() -> Shared {
        let shared = Shared::new(1, 1);
        let mut account = shared.account(0);
        let mut tally = Tally::new(at(10));
        tally.record(at(10), 3);
        tally.record(at(25), 4);
        account.tallies.insert(KEY, tally);
        account.totals.opened = 7;
        account.totals.open = 7;
        account.open_by_target = vec![7];
        account.failures.insert(Failure::HandshakeStatus(503), 2);
        account.setup_times.record(1500).unwrap();
        drop(account);
        shared
    }

    fn told(shared: &Shared, number: u64) -> State {
        let state = State::of(shared, slice(7), number, &mut PushesTold::default());
        let text = serde_json::to_string(&state).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn arrivals_count_from_when_the_controller_has_published() {
        let state = told(&agent(), 1);
        assert!(state.is_plausible(slice(7), 1, 0));
        let controller = Shared::new(1, 1);
        let roll = crate::measure::push::Roll {
            expected: 7,
            deserted: false,
        };
        controller.ledger.publish(KEY, 1, roll, at(4), at(4));
        state.into_account(&controller, 0, &controller.ledger.open());
        let account = controller.account(0);
        let tally = &account.tallies[&KEY];
        assert_eq!((tally.received, tally.times.len()), (7, 7));
        assert_eq!(tally.first, Duration::from_millis(6));
        assert_eq!(tally.last, Duration::from_millis(21));
        assert_eq!(account.failures[&Failure::HandshakeStatus(503)], 2);
        assert_eq!((account.totals.open, account.setup_times.len()), (7, 1));
    }

    #[test]
    fn what_came_before_its_publication_was_made_is_of_a_stamp_that_was_made_up() {
        let controller = Shared::new(1, 1);
        let roll = crate::measure::push::Roll {
            expected: 7,
            deserted: false,
        };
        controller.ledger.publish(KEY, 1, roll, at(20), at(20));
        // The first three came at 10 ms, and four at 25 ms.
        for (error_nanos, made_up, received, first) in [
            (9_000_000, 3, 4, Duration::from_millis(5)),
            (10_000_000, 0, 7, Duration::ZERO),
        ] {
            let mut state = told(&agent(), 1);
            state.machine.clock.error_nanos = error_nanos;
            state.into_account(&controller, 0, &controller.ledger.open());
            let account = controller.account(0);
            let tally = &account.tallies[&KEY];
            assert_eq!((tally.made_up, tally.received), (made_up, received));
            assert_eq!(tally.times.len(), received);
            let distance = tally.first.abs_diff(first);
            assert!(distance < Duration::from_micros(20), "{:?}", tally.first);
            assert_eq!(tally.last, Duration::from_millis(5));
        }
    }

    #[test]
    fn the_first_arrival_is_not_after_the_last_because_its_bucket_is() {
        let (controller, shared) = (Shared::new(1, 1), agent());
        let roll = crate::measure::push::Roll {
            expected: 7,
            deserted: false,
        };
        controller.ledger.publish(KEY, 1, roll, at(900), at(900));
        // Three came before it was made. Buckets of the others are half a millisecond wide.
        let mut tally = Tally::new(at(10));
        tally.record(at(10), 3);
        tally.record(at(1031), 4);
        shared.account(0).tallies.insert(KEY, tally);
        told(&shared, 1).into_account(&controller, 0, &controller.ledger.open());
        let account = controller.account(0);
        let tally = &account.tallies[&KEY];
        assert_eq!((tally.made_up, tally.received), (3, 4));
        assert_eq!(tally.first, Duration::from_millis(131));
        assert_eq!(tally.last, Duration::from_millis(131));
        let times = times_of(&tally.times, tally.first, tally.last);
        assert_eq!((times.p50_ms, times.last_ms), (Some(131.0), Some(131.0)));
    }

    #[test]
    fn only_what_changed_is_told_and_all_of_it_now_and_then() {
        let shared = agent();
        let mut told = PushesTold::default();
        let mut pushes = |number| State::of(&shared, slice(7), number, &mut told).pushes.len();
        assert_eq!([pushes(1), pushes(2), pushes(10), pushes(11)], [1, 0, 1, 0]);
        let mut account = shared.account(0);
        account.tallies.get_mut(&KEY).unwrap().record(at(30), 1);
        drop(account);
        assert_eq!(pushes(12), 1);
    }

    #[test]
    fn what_no_agent_can_have_seen_is_not_plausible() {
        let state = told(&agent(), 1);
        assert!(
            !state.is_plausible(slice(6), 1, 0),
            "more terminals than it has"
        );
        assert!(!state.is_plausible(slice(7), 2, 0));
        assert!(!state.is_plausible(slice(7), 1, 1));
        let mut value = serde_json::to_value(&state).unwrap();
        let last = value["pushes"][0]["last"].take();
        value["pushes"][0]["last"] = serde_json::json!({ "secs": 0, "nanos": 0 });
        value["pushes"][0]["first"] = last;
        let crossed: State = serde_json::from_value(value).unwrap();
        assert!(!crossed.is_plausible(slice(7), 1, 0), "first after last");
        for (part, count, given) in [
            ("totals", "resumed", 1),
            ("totals", "stalled", COUNT_MAX + 1),
            ("totals", "vanished", u64::MAX),
            ("answered", "received", 1),
            ("answered", "departed", u64::MAX),
            ("answered", "sent", COUNT_MAX + 1),
            ("answered", "due", u64::MAX),
        ] {
            let mut value = serde_json::to_value(&state).unwrap();
            let counts = match part {
                "totals" => &mut value["totals"]["unwell"],
                _ => &mut value["answered"]["counts"],
            };
            assert_eq!(counts[count], 0, "{count}");
            counts[count] = given.into();
            let wrong: State = serde_json::from_value(value).unwrap();
            assert!(!wrong.is_plausible(slice(7), 1, 0), "{count}");
        }
        let mut value = serde_json::to_value(&state).unwrap();
        value["pushes"][0]["received"] = 9.into();
        let wrong: State = serde_json::from_value(value.clone()).unwrap();
        assert!(!wrong.is_plausible(slice(7), 1, 0));
        value["setup_times"] = serde_json::json!([[1, 2]]);
        assert!(serde_json::from_value::<State>(value).is_err());
    }
}
