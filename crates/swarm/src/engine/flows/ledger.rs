//! What became of each message of a flow, for all threads.
//!
//! A message is in the ledger from when it is sent until nobody can get it any more: until it settled, or, once all have it, until
//! its repetitions are over. Its audience is a bitmap, so that each member counts once. A shard's lock is held for one
//! message at a time.

use super::figures::FlowFigures;
use super::plan::{Audience, FlowsPlan, Route};
use super::presence::{Absences, Presence};
use crate::clock::Nanos;
use crate::measure::figures::record;
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Parts of the ledger with a lock each.
const SHARDS: u64 = 64;

/// Messages in the ledger, and the bytes of their audiences. Past it, messages that are due wait.
const MESSAGES_MAX: u64 = 1 << 19;
const AUDIENCE_BYTES_MAX: u64 = 512 << 20;

/// How long a message stays that everybody has, so that its repetitions are known.
const REPEATED_WITHIN: Duration = Duration::from_secs(5);

/// Later messages of a sender that are looked at to judge the order.
const LATER_MAX: usize = 64;

/// The name of a message in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MessageKey {
    pub flow: usize,
    pub number: u64,
}

/// A message that is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sending {
    pub due: Nanos,
    pub sent: Nanos,
    pub sender: u64,
    pub group: u32,
    /// Members that are open now.
    pub expected: u32,
    /// The last change of who is there, which has not been followed by another one yet.
    pub stage: u64,
    /// Members, open or not: the size of the bitmap.
    pub members: u32,
}

/// A message on its way.
#[derive(Debug)]
struct Flight {
    sending: Sending,
    received: u32,
    /// When something of it was received last.
    heard: Nanos,
    seen: Box<[u64]>,
    /// The sender's next message of the flow.
    next: Option<u64>,
    /// When the last of its audience had it, or when it was sent if nothing more is expected.
    complete: Option<Nanos>,
    /// The server did not take it. It stays for a while, because it links the sender's messages before and after it.
    is_refused: bool,
    /// Its sender left on purpose meanwhile. A connection that is reset may take what was sent over it with it, so that a message which
    /// nobody gets is not the server's fault.
    is_orphan: bool,
}

impl Flight {
    fn has(&self, place: u32) -> bool {
        let word = self.seen.get(place as usize / 64);
        word.is_some_and(|word| word >> (place % 64) & 1 == 1)
    }
}

/// Who gets a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receiver {
    pub terminal: u64,
    pub group: u32,
    /// Its place in the group.
    pub place: u32,
    /// When it was not there.
    pub absences: Absences,
}

/// The ledger of a run.
#[derive(Debug)]
pub(crate) struct FlowLedger {
    shards: Vec<Mutex<FxHashMap<MessageKey, Flight>>>,
    /// The threads of the crowd that are here.
    threads: Range<u32>,
    /// Of each of them, then of all callers.
    figures: Vec<Mutex<Vec<FlowFigures>>>,
    /// By agent of a fleet, where figures are gathered: messages that are incomplete there.
    incomplete_by_agent: Mutex<Vec<u64>>,
    /// Who is there.
    pub presence: Presence,
    messages: AtomicU64,
    audience_bytes: AtomicU64,
    incomplete: AtomicU64,
    /// When something of a flow was last received.
    heard: AtomicU64,
}

impl FlowLedger {
    pub(crate) fn new(threads: Range<u32>, flows: usize, presence: Presence) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            figures: (0..=threads.len())
                .map(|_| Mutex::new(vec![FlowFigures::default(); flows]))
                .collect(),
            incomplete_by_agent: Mutex::new(vec![0; threads.len()]),
            threads,
            presence,
            messages: AtomicU64::new(0),
            audience_bytes: AtomicU64::new(0),
            incomplete: AtomicU64::new(0),
            heard: AtomicU64::new(0),
        }
    }

    /// The figures of a thread of the crowd.
    pub(crate) fn figures(&self, thread: u32) -> MutexGuard<'_, Vec<FlowFigures>> {
        lock(&self.figures[(thread - self.threads.start) as usize])
    }

    /// The figures of all callers.
    pub(crate) fn figures_of_callers(&self) -> MutexGuard<'_, Vec<FlowFigures>> {
        lock(&self.figures[self.threads.len()])
    }

    /// Takes what an agent of a fleet has so far, in place of what it had.
    pub(crate) fn replace(
        &self,
        agent: usize,
        figures: Vec<FlowFigures>,
        incomplete: u64,
        heard: Nanos,
    ) {
        *lock(&self.figures[agent]) = figures;
        self.heard.fetch_max(heard.0, Ordering::Relaxed);
        self.set_incomplete(agent, incomplete);
    }

    /// Awaits nothing more of an agent.
    pub(crate) fn lose(&self, agent: usize) {
        self.set_incomplete(agent, 0);
    }

    /// Notes what has fallen due at an agent, by flow, if that is more than it told.
    pub(crate) fn note_due(&self, agent: usize, due: &[u64]) {
        for (figures, due) in lock(&self.figures[agent]).iter_mut().zip(due) {
            figures.due = figures.due.max(*due);
        }
    }

    fn set_incomplete(&self, agent: usize, count: u64) {
        let mut by_agent = lock(&self.incomplete_by_agent);
        by_agent[agent] = count;
        self.incomplete
            .store(by_agent.iter().sum(), Ordering::Release);
    }

    /// The figures of all threads, by flow.
    pub(crate) fn sum(&self) -> Vec<FlowFigures> {
        let mut sum: Vec<FlowFigures> = Vec::new();
        for figures in &self.figures {
            let figures = lock(figures);
            sum.resize_with(figures.len(), FlowFigures::default);
            for (sum, more) in sum.iter_mut().zip(&*figures) {
                sum.merge(more);
            }
        }
        sum
    }

    /// Whether it takes one more message.
    pub(crate) fn has_room(&self) -> bool {
        self.messages.load(Ordering::Relaxed) < MESSAGES_MAX
            && self.audience_bytes.load(Ordering::Relaxed) < AUDIENCE_BYTES_MAX
    }

    /// Messages that some of their audience have not got yet, and may still get, and answers that are awaited.
    pub(crate) fn incomplete(&self) -> u64 {
        self.incomplete.load(Ordering::Acquire)
    }

    /// Notes that an answer is awaited: something that may still come, beside deliveries.
    pub(crate) fn await_answer(&self) {
        self.incomplete.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes that such an answer came at this time, or will not.
    pub(crate) fn end_answer(&self, now: Nanos) {
        self.heard.fetch_max(now.0, Ordering::Relaxed);
        self.incomplete.fetch_sub(1, Ordering::AcqRel);
    }

    pub(crate) fn heard(&self) -> Nanos {
        Nanos(self.heard.load(Ordering::Relaxed))
    }

    /// Takes a message before it leaves, and counts it in the figures of who sends it. `previous` is the sender's one before it.
    pub(crate) fn send(
        &self,
        key: MessageKey,
        sending: Sending,
        previous: Option<u64>,
        figures: &mut FlowFigures,
    ) {
        figures.sent += 1;
        figures.expected += u64::from(sending.expected);
        let words = sending.members.div_ceil(64) as usize;
        let is_complete = sending.expected == 0;
        let flight = Flight {
            sending,
            received: 0,
            heard: sending.sent,
            seen: vec![0; words].into_boxed_slice(),
            next: None,
            complete: is_complete.then_some(sending.sent),
            is_refused: false,
            is_orphan: false,
        };
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.audience_bytes
            .fetch_add(words as u64 * 8, Ordering::Relaxed);
        if !is_complete {
            self.incomplete.fetch_add(1, Ordering::AcqRel);
        }
        self.shard(key).insert(key, flight);
        if let Some(number) = previous {
            let before = MessageKey { number, ..key };
            if let Some(flight) = self.shard(before).get_mut(&before) {
                flight.next = Some(key.number);
            }
        }
    }

    /// Notes that the server did not take a message. What somebody got of it all the same stays counted, and nothing more is
    /// expected.
    pub(crate) fn cancel(&self, key: MessageKey, figures: &mut FlowFigures) {
        let mut shard = self.shard(key);
        let Some(flight) = shard.get_mut(&key) else {
            return;
        };
        flight.is_refused = true;
        let sending = flight.sending;
        if flight.complete.replace(sending.sent).is_none() {
            let expected = sending.expected.saturating_sub(flight.received);
            figures.expected -= u64::from(expected);
            self.incomplete.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Notes that members leave on purpose: what of the messages under way they have not got yet is not expected there any more. It is
    /// counted in the figures of the thread whose terminals they are.
    pub(crate) fn leave(&self, leaving: &[Receiver], plan: &FlowsPlan, thread: u32) {
        let mut by_group: FxHashMap<u32, Vec<Receiver>> = FxHashMap::default();
        let change = self.presence.change();
        let mut figures = self.figures(thread);
        for member in leaving {
            self.presence.note(member.group, member.terminal, false);
            by_group.entry(member.group).or_default().push(*member);
        }
        let senders: FxHashSet<u64> = leaving.iter().map(|member| member.terminal).collect();
        for shard in &self.shards {
            let mut shard = lock(shard);
            let under_way = shard.iter_mut().filter(|(_, one)| one.complete.is_none());
            for (key, flight) in under_way {
                let planned = &plan.flows[key.flow];
                // Callers have connections of their own.
                let is_socket = !matches!(planned.route, Route::Http(_));
                flight.is_orphan |= is_socket && senders.contains(&flight.sending.sender);
                let members = match planned.audience {
                    Audience::All => Some(leaving),
                    _ => by_group.get(&flight.sending.group).map(Vec::as_slice),
                };
                if let Some(members) = members {
                    self.strike(flight, planned.audience, members, &mut figures[key.flow]);
                }
            }
        }
        drop(change);
    }

    /// Expects a message no more at those of its audience that leave without it.
    fn strike(
        &self,
        flight: &mut Flight,
        audience: Audience,
        leaving: &[Receiver],
        figures: &mut FlowFigures,
    ) {
        let sending = flight.sending;
        let is_owed = |member: &&Receiver| {
            let place = audience.place(sending.sender, sending.group, **member);
            let was_there = !member.absences.covers(sending.stage);
            was_there && place.is_some_and(|place| !flight.has(place))
        };
        let struck = leaving.iter().filter(is_owed).count();
        let struck = u32::try_from(struck).expect("terminals are at most 2^32");
        if struck == 0 {
            return;
        }
        figures.away += u64::from(struck);
        flight.sending.expected = sending.expected.saturating_sub(struck);
        if flight.received >= flight.sending.expected {
            flight.complete = Some(flight.heard);
            self.incomplete.fetch_sub(1, Ordering::AcqRel);
            if flight.received > 0 {
                figures.complete += 1;
                record(&mut figures.to_last, flight.heard.since(sending.due));
            }
        }
    }

    fn forget(&self, flight: &Flight) {
        let bytes = flight.seen.len() as u64 * 8;
        self.messages.fetch_sub(1, Ordering::Relaxed);
        self.audience_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Takes a delivery, and counts it in the figures of the thread whose terminal got it.
    pub(crate) fn receive(
        &self,
        key: MessageKey,
        audience: Audience,
        receiver: Receiver,
        now: Nanos,
        figures: &mut FlowFigures,
    ) {
        // A turn has one time, and the threads share this word: most deliveries only read it.
        if self.heard.load(Ordering::Relaxed) < now.0 {
            self.heard.fetch_max(now.0, Ordering::Relaxed);
        }
        let mut shard = self.shard(key);
        let Some(flight) = shard.get_mut(&key).filter(|flight| !flight.is_refused) else {
            figures.late += 1;
            return;
        };
        let sending = flight.sending;
        let Some(place) = audience.place(sending.sender, sending.group, receiver) else {
            figures.unexpected += 1;
            return;
        };
        // Somebody else may have been in this place, and have it.
        if receiver.absences.covers(sending.stage) {
            figures.replayed += 1;
            return;
        }
        if flight.has(place) {
            figures.duplicated += 1;
            return;
        }
        flight.seen[place as usize / 64] |= 1 << (place % 64);
        flight.received += 1;
        flight.heard = now;
        figures.received += 1;
        record(&mut figures.since_due, now.since(sending.due));
        record(&mut figures.since_sent, now.since(sending.sent));
        if flight.received == sending.expected {
            flight.complete = Some(now);
            figures.complete += 1;
            record(&mut figures.to_last, now.since(sending.due));
            self.incomplete.fetch_sub(1, Ordering::AcqRel);
        }
        let mut next = flight.next;
        drop(shard);
        for _ in 0..LATER_MAX {
            let Some(number) = next else { return };
            let later = MessageKey { number, ..key };
            let shard = self.shard(later);
            let Some(flight) = shard.get(&later) else {
                return;
            };
            if audience
                .place(sending.sender, flight.sending.group, receiver)
                .is_some_and(|place| flight.has(place))
            {
                figures.out_of_order += 1;
                return;
            }
            next = flight.next;
        }
    }

    /// Ends the messages of a thread's shards that are over. What did not come by now is missing.
    pub(crate) fn sweep(&self, thread: u32, now: Nanos, settle: Duration) {
        let (threads, own) = (self.threads.len(), thread - self.threads.start);
        let mut figures = self.figures(thread);
        for shard in self.shards.iter().skip(own as usize).step_by(threads) {
            lock(shard).retain(|key, flight| {
                let sending = &flight.sending;
                let is_over = match flight.complete {
                    Some(complete) => now.since(complete) >= REPEATED_WITHIN.min(settle),
                    None => now.since(sending.due) >= settle,
                };
                if !is_over {
                    return true;
                }
                if flight.complete.is_none() {
                    let missing = sending.expected.saturating_sub(flight.received);
                    let figures = &mut figures[key.flow];
                    // What one of the audience has got was not lost on its way to the server.
                    match flight.is_orphan && flight.received == 0 {
                        true => figures.away += u64::from(missing),
                        false => figures.note_missing(u64::from(missing)),
                    }
                    self.incomplete.fetch_sub(1, Ordering::AcqRel);
                }
                self.forget(flight);
                false
            });
        }
    }

    fn shard(&self, key: MessageKey) -> MutexGuard<'_, FxHashMap<MessageKey, Flight>> {
        let shard = usize::try_from(key.number % SHARDS).expect("a small number");
        lock(&self.shards[shard])
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Figures are plain sums: whatever a panicking thread left is still worth reporting.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Nanos {
        Nanos(millis * 1_000_000)
    }

    fn key(number: u64) -> MessageKey {
        MessageKey { flow: 0, number }
    }

    /// A group of three, of whom the first sends.
    fn ledger() -> FlowLedger {
        let ledger = FlowLedger::new(0..1, 1, Presence::new(1, Some(3)));
        (0..3).for_each(|terminal| ledger.presence.note(0, terminal, true));
        ledger
    }

    fn send(ledger: &FlowLedger, number: u64, previous: Option<u64>) {
        let sending = Sending {
            due: at(number),
            sent: at(number + 1),
            sender: 0,
            group: 0,
            expected: 3,
            stage: 0,
            members: 3,
        };
        let mut figures = ledger.figures(0);
        ledger.send(key(number), sending, previous, &mut figures[0]);
    }

    fn receive(ledger: &FlowLedger, number: u64, terminal: u32) {
        let receiver = Receiver {
            terminal: u64::from(terminal),
            group: 0,
            place: terminal,
            absences: Absences::default(),
        };
        let mut figures = ledger.figures(0);
        ledger.receive(
            key(number),
            Audience::Group,
            receiver,
            at(100),
            &mut figures[0],
        );
    }

    #[test]
    fn each_member_counts_once_and_the_last_completes() {
        let ledger = ledger();
        send(&ledger, 0, None);
        assert_eq!(ledger.incomplete(), 1);
        for terminal in [0, 1, 1, 2, 2] {
            receive(&ledger, 0, terminal);
        }
        let sum = &ledger.sum()[0];
        assert_eq!((sum.received, sum.duplicated, sum.complete), (3, 2, 1));
        assert_eq!(
            (ledger.incomplete(), sum.since_due.len(), sum.to_last.len()),
            (0, 3, 1)
        );
    }

    #[test]
    fn what_does_not_come_is_missing_and_what_comes_then_is_late() {
        let ledger = ledger();
        send(&ledger, 0, None);
        receive(&ledger, 0, 1);
        ledger.sweep(0, at(999), Duration::from_secs(1));
        assert_eq!(ledger.sum()[0].missing, 0);
        ledger.sweep(0, at(1000), Duration::from_secs(1));
        receive(&ledger, 0, 2);
        let sum = &ledger.sum()[0];
        assert_eq!((sum.missing, sum.late, ledger.incomplete()), (2, 1, 0));
        assert!(ledger.messages.into_inner() + ledger.audience_bytes.into_inner() == 0);
    }

    #[test]
    fn a_message_behind_a_later_one_of_its_sender_is_out_of_order() {
        let ledger = ledger();
        send(&ledger, 0, None);
        send(&ledger, 1, Some(0));
        send(&ledger, 2, Some(1));
        for number in [2, 0, 1] {
            receive(&ledger, number, 1);
        }
        for number in 0..3 {
            receive(&ledger, number, 2);
        }
        assert_eq!(ledger.sum()[0].out_of_order, 2);
    }

    #[test]
    fn who_is_outside_of_the_audience_is_not_expected() {
        let ledger = ledger();
        send(&ledger, 0, None);
        let receiver = Receiver {
            terminal: 9,
            group: 1,
            place: 0,
            absences: Absences::default(),
        };
        let mut figures = FlowFigures::default();
        ledger.receive(key(0), Audience::Group, receiver, at(9), &mut figures);
        assert_eq!((figures.unexpected, figures.received), (1, 0));
    }

    #[test]
    fn who_leaves_without_a_message_is_not_expected_to_get_it() {
        let ledger = ledger();
        send(&ledger, 0, None);
        receive(&ledger, 0, 0);
        let member = |terminal: u32, absences| Receiver {
            terminal: u64::from(terminal),
            group: 0,
            place: terminal,
            absences,
        };
        let mut figures = FlowFigures::default();
        let strike = |member: Receiver, figures: &mut FlowFigures| {
            let mut shard = ledger.shard(key(0));
            let flight = shard.get_mut(&key(0)).expect("it is under way");
            ledger.strike(flight, Audience::Group, &[member], figures);
        };
        // One that has it, one that came later, and two that were waiting for it.
        strike(member(0, Absences::default()), &mut figures);
        let mut later = Absences::ON_PURPOSE;
        later.end(1);
        strike(member(1, later), &mut figures);
        assert_eq!((figures.away, ledger.incomplete()), (0, 1));
        strike(member(1, Absences::default()), &mut figures);
        strike(member(2, Absences::default()), &mut figures);
        assert_eq!((figures.away, figures.complete), (2, 1));
        assert_eq!((ledger.incomplete(), figures.to_last.len()), (0, 1));
        // What comes all the same comes to somebody who was not there.
        let gone = member(1, Absences::ON_PURPOSE);
        ledger.receive(key(0), Audience::Group, gone, at(100), &mut figures);
        assert_eq!((figures.replayed, figures.received), (1, 0));
        ledger.sweep(0, at(5200), Duration::from_secs(5));
        assert_eq!(ledger.sum()[0].missing, 0);
    }

    #[test]
    fn a_message_that_nobody_got_may_have_gone_with_its_sender() {
        let ledger = ledger();
        send(&ledger, 0, None);
        send(&ledger, 1, None);
        receive(&ledger, 1, 2);
        for number in [0, 1] {
            let mut shard = ledger.shard(key(number));
            shard.get_mut(&key(number)).expect("it is there").is_orphan = true;
        }
        ledger.sweep(0, at(9000), Duration::from_secs(5));
        let sum = &ledger.sum()[0];
        // The second one had reached the server.
        assert_eq!((sum.away, sum.missing), (3, 2));
        assert_eq!(ledger.incomplete(), 0);
    }

    #[test]
    fn the_order_is_judged_across_a_message_that_was_refused() {
        let ledger = ledger();
        send(&ledger, 0, None);
        send(&ledger, 1, Some(0));
        ledger.cancel(key(1), &mut ledger.figures(0)[0]);
        send(&ledger, 2, Some(1));
        for number in [2, 0] {
            receive(&ledger, number, 1);
        }
        receive(&ledger, 1, 1);
        let sum = &ledger.sum()[0];
        assert_eq!((sum.out_of_order, sum.received, sum.late), (1, 2, 1));
        ledger.sweep(0, at(5200), Duration::from_secs(5));
        assert!(ledger.messages.into_inner() + ledger.audience_bytes.into_inner() == 0);
    }

    #[test]
    fn what_the_server_does_not_take_is_not_expected() {
        let ledger = ledger();
        send(&ledger, 0, None);
        send(&ledger, 1, None);
        receive(&ledger, 0, 1);
        let mut figures = ledger.figures(0);
        ledger.cancel(key(0), &mut figures[0]);
        ledger.cancel(key(7), &mut figures[0]);
        drop(figures);
        let sum = &ledger.sum()[0];
        assert_eq!((sum.sent, sum.expected, sum.received), (2, 4, 1));
        assert_eq!(ledger.incomplete(), 1);
    }
}
