//! What the crowd's threads and the rest of the run tell each other.
//!
//! Each thread has one account, locked once a turn by its owner and some twenty times a second by the
//! run, so neither waits for long. Orders go the other way through one atomic.

use crate::clock::Nanos;
use crate::engine::comeback::{ComebackFigures, ComebackTotals};
use crate::engine::flows::ledger::FlowLedger;
use crate::engine::flows::plan::FlowsPlan;
use crate::engine::flows::presence::Presence;
use crate::engine::flows::unstamped::Unstamped;
use crate::engine::plan::Plan;
use crate::engine::tls::TlsFigures;
use crate::engine::unwell::{UnwellFigures, UnwellTotals};
use crate::failure::Failure;
use crate::measure::deliveries::Deliveries;
use crate::measure::figures::microseconds;
use crate::measure::push::{Ledger, PushKey, Roll, Tally};
use crate::measure::round_trip::RoundTrips;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How far a thread is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Stage {
    /// Connections are being made.
    #[default]
    Connecting,
    /// Each of its terminals is open, or has given up.
    Holding,
    /// It has closed everything and ended.
    Gone,
}

/// Why a thread of the crowd cannot go on, and with it the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fatal {
    /// Its reactor failed.
    Reactor(String),
    /// It is an agent of a fleet that cannot do its part: its name, and why.
    Agent(String, String),
}

/// What a thread is told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// Connect and hold.
    Run,
    /// Hold, and replace terminals, which leave in this way.
    Churn(Ending),
    /// Close everything: with a close frame and its answer, or at once.
    Close(Ending),
}

/// How the crowd leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// By reset: a million connections leave in seconds, and neither TIME_WAIT nor orphaned sockets stay behind.
    #[default]
    Reset,
    /// By close frame, as a browser does.
    Orderly,
}

/// Running totals of a thread; sums over threads are sums of fields unless said otherwise.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Totals {
    /// Upgrades that succeeded.
    pub opened: u64,
    /// Of those, the ones whose server agreed to compress.
    pub compressed: u64,
    /// Terminals that are open now.
    pub open: u64,
    /// Connections under way now.
    pub connecting: u64,
    /// TCP connections that were established, upgraded or not.
    pub tcp_connected: u64,
    /// Connections that may be under way now, and the fewest that it has been.
    pub window: u64,
    pub window_least: u64,
    /// Terminals that will not be tried again.
    pub given_up: u64,
    /// Terminals that left on purpose, the connections that replaced them, and those of them that were given up.
    pub churned: u64,
    pub reconnected: u64,
    pub replacements_given_up: u64,
    /// Terminals that were due to leave by the rate of churn and did not.
    pub churn_forgone: u64,
    /// Terminals whose close frame was not answered in time, and which reset their connection.
    pub impatient: u64,
    /// Open connections that the server or the network ended.
    pub lost: u64,
    /// Data messages, and their payload bytes.
    pub messages: u64,
    pub message_bytes: u64,
    /// The server's pings that were answered.
    pub pings_answered: u64,
    /// Own heartbeats and the pongs that came back.
    pub heartbeats_sent: u64,
    pub heartbeats_answered: u64,
    /// Publications that a terminal missed before a later one.
    pub gaps: u64,
    /// Publications counted as gaps that came later after all.
    pub overtaken: u64,
    /// Publications that a terminal received again.
    pub duplicates: u64,
    /// Publications received by a terminal that did not subscribe to their channel, or that nobody has made.
    pub unexpected: u64,
    /// Messages that belong to no measured publication, and publications of clients that no client made.
    pub unmeasured: u64,
    /// Messages in which no stamp of a flow was found.
    pub unstamped: u64,
    /// Publications that came to clients which had connected after the roll call.
    pub replayed: u64,
    /// The same as gaps, overtaken and duplicates, by the offsets that a protocol gives to publications.
    pub offset_gaps: u64,
    pub offset_overtaken: u64,
    pub offset_duplicates: u64,
    /// Subscriptions that asked for what they had missed: those that got it, those that did not, and the publications.
    pub recoveries: u64,
    pub recoveries_failed: u64,
    pub recovered: u64,
    /// Of terminals that speak HTTP.
    pub http: HttpTotals,
    /// Of terminals that come back after a storm, or because they were lost.
    pub comeback: ComebackTotals,
    /// Of terminals that stall or vanish.
    pub unwell: UnwellTotals,
    /// Largest lateness of the connect schedule that is this side's fault, and the server's (a full window). Merged by
    /// maximum.
    pub schedule_late: Duration,
    pub window_late: Duration,
    /// Longest time one turn took to process what was received. Merged by maximum.
    pub turn_max: Duration,
    /// Time of the first attempt and of the last success. Merged by minimum and maximum.
    pub first_attempt: Option<Nanos>,
    pub last_opened: Option<Nanos>,
}

impl Totals {
    /// Terminals that left on purpose and have not been replaced yet, those that are on their way back, and those that cannot be
    /// reached on purpose.
    fn away(&self) -> u64 {
        let replaced = self.reconnected + self.replacements_given_up;
        self.churned.saturating_sub(replaced) + self.comeback.away() + self.unwell.away()
    }

    /// Adds the totals of another thread.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.opened += other.opened;
        self.compressed += other.compressed;
        self.open += other.open;
        self.connecting += other.connecting;
        self.tcp_connected += other.tcp_connected;
        self.window += other.window;
        self.window_least += other.window_least;
        self.given_up += other.given_up;
        self.churned += other.churned;
        self.reconnected += other.reconnected;
        self.replacements_given_up += other.replacements_given_up;
        self.churn_forgone += other.churn_forgone;
        self.impatient += other.impatient;
        self.lost += other.lost;
        self.messages += other.messages;
        self.message_bytes += other.message_bytes;
        self.pings_answered += other.pings_answered;
        self.heartbeats_sent += other.heartbeats_sent;
        self.heartbeats_answered += other.heartbeats_answered;
        self.gaps += other.gaps;
        self.overtaken += other.overtaken;
        self.duplicates += other.duplicates;
        self.unexpected += other.unexpected;
        self.unmeasured += other.unmeasured;
        self.unstamped += other.unstamped;
        self.replayed += other.replayed;
        self.offset_gaps += other.offset_gaps;
        self.offset_overtaken += other.offset_overtaken;
        self.offset_duplicates += other.offset_duplicates;
        self.recoveries += other.recoveries;
        self.recoveries_failed += other.recoveries_failed;
        self.recovered += other.recovered;
        self.http.merge(&other.http);
        self.comeback.merge(&other.comeback);
        self.unwell.merge(&other.unwell);
        self.schedule_late = self.schedule_late.max(other.schedule_late);
        self.window_late = self.window_late.max(other.window_late);
        self.turn_max = self.turn_max.max(other.turn_max);
        self.first_attempt = [self.first_attempt, other.first_attempt]
            .into_iter()
            .flatten()
            .min();
        self.last_opened = self.last_opened.max(other.last_opened);
    }
}

/// What terminals that speak HTTP asked and were told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HttpTotals {
    /// Requests that were written.
    pub requests: u64,
    /// Polls that were answered, and of these the ones without a delivery.
    pub answers: u64,
    pub timeouts: u64,
    /// Of those, the ones that were held for less, or for longer, than was expected.
    pub held_early: u64,
    pub held_late: u64,
    /// Comments, blank lines and empty messages of streams.
    pub heartbeats: u64,
    /// Connections that were replaced because they ended behind an answer or between two, or with their stream.
    pub reopened: u64,
    /// Terminals that are between two such connections now: open, and nothing reaches them.
    pub reopening: u64,
    /// Requests that were sent again on another connection.
    pub repeated: u64,
}

impl HttpTotals {
    fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.answers += other.answers;
        self.timeouts += other.timeouts;
        self.held_early += other.held_early;
        self.held_late += other.held_late;
        self.heartbeats += other.heartbeats;
        self.reopened += other.reopened;
        self.reopening += other.reopening;
        self.repeated += other.repeated;
    }
}

/// Close frames of one code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Closes {
    pub count: u64,
    /// The first reason that came with one; empty if none did.
    pub reason: String,
}

/// One thread's figures, as of the end of its last turn.
#[derive(Debug)]
pub(crate) struct Account {
    pub stage: Stage,
    pub totals: Totals,
    pub failures: BTreeMap<Failure, u64>,
    /// Close frames from the server, by code; `None` when it gave no code.
    pub closes: BTreeMap<Option<u16>, Closes>,
    /// The first bytes of what the server said, by kind of failure.
    pub answers: BTreeMap<Failure, Vec<u8>>,
    /// A message in which no stamp of a flow was found.
    pub unstamped: Option<Unstamped>,
    /// Terminals open now, by target.
    pub open_by_target: Vec<u32>,
    /// From the first packet of the first attempt to the upgrade's answer, in microseconds.
    pub setup_times: Histogram<u64>,
    /// From an own heartbeat to its pong, in microseconds.
    pub pong_times: Histogram<u64>,
    /// How long polls were held that ended without a delivery, in microseconds.
    pub held_times: Histogram<u64>,
    pub comebacks: ComebackFigures,
    pub unwell: UnwellFigures,
    /// Terminals that stall now, by target.
    pub stalling_by_target: Vec<u32>,
    /// Deliveries that would have come to terminals that stall: one for each publication made meanwhile, and for each that was on
    /// its way when they stalled.
    pub stall_expected: u64,
    /// TLS handshakes that are over.
    pub tls: TlsFigures,
    pub tallies: HashMap<PushKey, Tally>,
    pub answered: RoundTrips,
    /// The schedule of answered messages is over, and no answer is awaited.
    pub answered_ended: bool,
    /// Of what terminals published.
    pub deliveries: Deliveries,
    /// Number of the last publication whose roll call has passed here; zero before the first.
    pub called: u64,
    /// By number of a publication: terminals that were counted at its roll call and left before it came.
    pub departed: BTreeMap<u64, u64>,
    /// Processor time of the thread, as of a moment ago.
    pub cpu_time: Duration,
    /// Why the run cannot go on.
    pub fatal: Option<Fatal>,
}

impl Account {
    fn new(target_count: usize) -> Self {
        Self {
            stage: Stage::Connecting,
            totals: Totals::default(),
            failures: BTreeMap::new(),
            closes: BTreeMap::new(),
            answers: BTreeMap::new(),
            unstamped: None,
            open_by_target: vec![0; target_count],
            setup_times: microseconds(),
            pong_times: microseconds(),
            held_times: microseconds(),
            comebacks: ComebackFigures::default(),
            unwell: UnwellFigures::default(),
            stalling_by_target: vec![0; target_count],
            stall_expected: 0,
            tls: TlsFigures::default(),
            tallies: HashMap::new(),
            answered: RoundTrips::default(),
            answered_ended: false,
            deliveries: Deliveries::default(),
            called: 0,
            departed: BTreeMap::new(),
            cpu_time: Duration::ZERO,
            fatal: None,
        }
    }

    fn open_terminals(&self, wanted: impl Fn(usize) -> bool) -> u64 {
        sum_of(&self.open_by_target, wanted)
    }
}

/// The sum over the targets that `wanted` names by index.
fn sum_of(by_target: &[u32], wanted: impl Fn(usize) -> bool) -> u64 {
    let counts = by_target.iter().enumerate();
    let wanted = counts.filter(|&(target, _)| wanted(target));
    wanted.map(|(_, &count)| u64::from(count)).sum()
}

/// The state that all threads of a run share.
#[derive(Debug)]
pub(crate) struct Shared {
    accounts: Vec<Mutex<Account>>,
    pub ledger: Ledger,
    /// What became of messages of flows; none without flows.
    pub flows: Option<FlowLedger>,
    order: AtomicU8,
    connected_at: AtomicU64,
    schedule_from: AtomicU64,
    schedule_until: AtomicU64,
    /// By thread: how many messages of the schedule it has sent.
    messages_sent: Vec<AtomicU64>,
}

/// When a schedule begins and ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub from: Nanos,
    /// Not included.
    pub until: Nanos,
}

/// Messages that have fallen due by schedules.
#[derive(Clone, Debug, Default)]
pub(crate) struct Due {
    /// Echoes, or publications of clients.
    pub answered: u64,
    /// Of each flow.
    pub flows: Vec<u64>,
}

impl Shared {
    pub(crate) fn new(thread_count: usize, target_count: usize) -> Self {
        Self {
            accounts: (0..thread_count)
                .map(|_| Mutex::new(Account::new(target_count)))
                .collect(),
            ledger: Ledger::default(),
            flows: None,
            order: AtomicU8::new(0),
            connected_at: AtomicU64::new(u64::MAX),
            schedule_from: AtomicU64::new(u64::MAX),
            schedule_until: AtomicU64::new(u64::MAX),
            messages_sent: (0..thread_count).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// The same for a run that may have flows.
    pub(crate) fn of_plan(plan: &Plan) -> Self {
        let flows = plan.flows.as_ref();
        let own = plan.deal.own();
        let ledger = |flows: &FlowsPlan| {
            let changing = plan.is_changing().then(|| flows.groups.terminals());
            let presence = Presence::new(flows.groups.count(), changing);
            FlowLedger::new(own.thread_numbers(), flows.flows.len(), presence)
        };
        Self {
            flows: flows.map(|flows| ledger(flows)),
            ..Self::new(plan.threads as usize, plan.targets.len())
        }
    }

    /// The same for an agent of a fleet. Threads of other agents are none of its business, and what they send is sent.
    pub(crate) fn of_agent(plan: &Plan) -> Self {
        let mut shared = Self::of_plan(plan);
        shared.ledger = Ledger::of_agent();
        let own = plan.deal.own().thread_numbers();
        for thread in (0..plan.threads).filter(|thread| !own.contains(thread)) {
            shared.account(thread as usize).stage = Stage::Gone;
            shared.note_messages_sent(thread as usize, u64::MAX);
        }
        shared
    }

    /// The same for a controller, for which each agent is a thread.
    pub(crate) fn gathering(plan: &Plan, agents: usize) -> Self {
        let flows = plan.flows.as_ref();
        let count = u32::try_from(agents).expect("at most a thousand");
        Self {
            flows: flows
                .map(|flows| FlowLedger::new(0..count, flows.flows.len(), Presence::new(0, None))),
            ..Self::new(agents, plan.targets.len())
        }
    }

    /// Ends an agent that is lost: its terminals are not there any more, and nothing is awaited of them. `plan` says who was to
    /// get what is under way.
    pub(crate) fn lose(&self, agent: usize, plan: Option<&Plan>) {
        let entries = self.ledger.open();
        if let Some(ledger) = &self.flows {
            ledger.lose(agent);
        }
        let mut account = self.account(agent);
        account.stage = Stage::Gone;
        account.answered_ended = true;
        account.totals.open = 0;
        account.totals.connecting = 0;
        account.totals.http.reopening = 0;
        for entry in entries {
            let PushKey::Own { stream, .. } = entry.key else {
                continue;
            };
            let wanted = |target: usize| {
                let target = plan.and_then(|plan| plan.targets.get(target));
                target.is_some_and(|target| target.slot(stream).is_some())
            };
            let received = account.tallies.get(&entry.key).map_or(0, |it| it.received);
            let missing = account.open_terminals(wanted).saturating_sub(received);
            account.departed.insert(entry.number, missing);
        }
        account.open_by_target.fill(0);
        account.stalling_by_target.fill(0);
    }

    /// Notes what has fallen due at an agent that is lost, beyond what it told.
    pub(crate) fn note_due(&self, agent: usize, due: &Due) {
        if let Some(ledger) = &self.flows {
            ledger.note_due(agent, &due.flows);
        }
        let mut account = self.account(agent);
        let counts = &mut account.answered.counts;
        counts.due = counts.due.max(due.answered);
    }

    /// Forgets what an agent has of publications that are measured: those before this number.
    pub(crate) fn forget_measured(&self, plan: &Plan, measured_from: u64) {
        let is_over = |key: &PushKey| match *key {
            PushKey::Own { stream, sequence } => plan.number_of(stream, sequence) < measured_from,
            PushKey::Foreign(_) => true,
        };
        self.ledger.end(is_over);
        for mut account in self.accounts() {
            account.tallies.retain(|key, _| !is_over(key));
        }
    }

    /// What became of messages of flows, in a run that has some.
    pub(crate) fn flow_ledger(&self) -> &FlowLedger {
        self.flows.as_ref().expect("a run with flows has one")
    }

    /// A thread's account. Never take the ledger's lock while holding it.
    pub(crate) fn account(&self, thread: usize) -> MutexGuard<'_, Account> {
        lock(&self.accounts[thread])
    }

    /// Every thread's account, one after the other.
    pub(crate) fn accounts(&self) -> impl Iterator<Item = MutexGuard<'_, Account>> {
        self.accounts.iter().map(lock)
    }

    /// Whether connections of the crowd are still being made; those that replace others do not count.
    pub(crate) fn is_connecting(&self) -> bool {
        self.accounts()
            .any(|account| account.stage == Stage::Connecting)
    }

    /// Open terminals of the targets that `wanted` names by index.
    pub(crate) fn open_terminals(&self, wanted: impl Fn(usize) -> bool) -> u64 {
        self.accounts()
            .map(|account| account.open_terminals(&wanted))
            .sum()
    }

    /// The same, for the publication of that number: from now on each thread knows who was counted for it. Numbers
    /// are called in order.
    pub(crate) fn call_roll(&self, number: u64, wanted: impl Fn(usize) -> bool) -> Roll {
        let (mut expected, mut opened, mut away) = (0, 0, 0);
        for mut account in self.accounts() {
            assert!(account.called < number);
            account.called = number;
            expected += account.open_terminals(&wanted);
            account.stall_expected += sum_of(&account.stalling_by_target, &wanted);
            opened += account.totals.opened;
            away += account.totals.away();
        }
        Roll {
            expected,
            deserted: expected == 0 && opened > 0 && away == 0,
        }
    }

    pub(crate) fn set_order(&self, order: Order) {
        let code = match order {
            Order::Run => 0,
            Order::Close(Ending::Reset) => 1,
            Order::Close(Ending::Orderly) => 2,
            Order::Churn(Ending::Reset) => 3,
            Order::Churn(Ending::Orderly) => 4,
        };
        self.order.store(code, Ordering::Relaxed);
    }

    /// Notes when the whole crowd was connected, from which incidents are counted.
    pub(crate) fn note_connected(&self, at: Nanos) {
        self.connected_at.store(at.0, Ordering::Relaxed);
    }

    /// When the whole crowd was connected; none before.
    pub(crate) fn connected_at(&self) -> Option<Nanos> {
        let at = self.connected_at.load(Ordering::Relaxed);
        (at < u64::MAX).then_some(Nanos(at))
    }

    /// Starts the schedule of what clients send. Without an end it goes on until [`Self::end_schedule`].
    pub(crate) fn begin_schedule(&self, from: Nanos, until: Option<Nanos>) {
        let until = until.unwrap_or(Nanos(u64::MAX));
        self.schedule_until.store(until.0, Ordering::Relaxed);
        // Last and released: whoever sees the beginning sees the end too.
        self.schedule_from.store(from.0, Ordering::Release);
    }

    /// Ends that schedule now, unless it ended before; answers are still awaited.
    pub(crate) fn end_schedule(&self, now: Nanos) {
        self.schedule_until.fetch_min(now.0, Ordering::Relaxed);
    }

    /// The schedule of what clients send: echoes, publications or flows. None before it is known.
    pub(crate) fn schedule(&self) -> Option<Span> {
        let from = Nanos(self.schedule_from.load(Ordering::Acquire));
        (from.0 < u64::MAX).then(|| Span {
            from,
            until: Nanos(self.schedule_until.load(Ordering::Relaxed)),
        })
    }

    /// Notes that a thread is sending its messages up to this many.
    pub(crate) fn note_messages_sent(&self, thread: usize, count: u64) {
        self.messages_sent[thread].store(count, Ordering::Release);
    }

    pub(crate) fn messages_sent(&self, thread: usize) -> u64 {
        self.messages_sent[thread].load(Ordering::Acquire)
    }

    pub(crate) fn order(&self) -> Order {
        match self.order.load(Ordering::Relaxed) {
            0 => Order::Run,
            1 => Order::Close(Ending::Reset),
            2 => Order::Close(Ending::Orderly),
            3 => Order::Churn(Ending::Reset),
            _ => Order::Churn(Ending::Orderly),
        }
    }
}

fn lock(account: &Mutex<Account>) -> MutexGuard<'_, Account> {
    // Figures are plain sums: whatever a panicking thread left is still worth reporting.
    account.lock().unwrap_or_else(PoisonError::into_inner)
}
