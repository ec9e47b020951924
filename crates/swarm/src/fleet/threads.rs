//! An agent's threads: started at the controller's time, told what to do by its beacons, and summed for it.

use super::messages::Beacon;
use super::offset::Offset;
use super::pushes::Pushes;
use super::state::{MachineState, PushesTold, State};
use crate::caller;
use crate::clock::{Clock as _, Nanos, RunClock};
use crate::config::Prepared;
use crate::engine::deal::Slice;
use crate::engine::plan::Plan;
use crate::engine::shared::{Ending, Order, Shared, Stage};
use crate::engine::thread::spawn;
use crate::failure::Failure;
use crate::measure::process::{Watch, anonymous_bytes};
use crate::open_loop::OpenLoop;
use crate::run::RunError;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the machine is watched.
const WATCHED_EVERY: Duration = Duration::from_secs(1);

/// An agent's part of the crowd, under way.
pub(super) struct AgentThreads {
    plan: Arc<Plan>,
    slice: Slice,
    shared: Arc<Shared>,
    clock: RunClock,
    threads: Vec<JoinHandle<()>>,
    /// The flows of callers, by the index of the flow.
    callers: Option<Vec<(usize, OpenLoop)>>,
    watch: Watch,
    next_watch: Nanos,
    machine: MachineState,
    number: u64,
    told: PushesTold,
    /// The newest beacon that was handled.
    beacon: u64,
    /// When the controller publishes; none if it does not.
    pushes: Option<Pushes>,
    /// Why it cannot do its part.
    fatal: Option<String>,
}

impl AgentThreads {
    /// Starts the threads.
    pub(super) fn start(prepared: Prepared, clock: RunClock, offset: Offset) -> io::Result<Self> {
        let plan = Arc::new(prepared.plan);
        let slice = plan.deal.own();
        let shared = Arc::new(Shared::of_agent(&plan));
        let now = clock.now();
        let mut started = Self {
            slice,
            clock,
            threads: Vec::new(),
            callers: None,
            watch: Watch::start(now, slice.threads as usize),
            next_watch: now.plus(WATCHED_EVERY),
            machine: MachineState {
                memory_before: anonymous_bytes(),
                clock: offset,
                ..MachineState::default()
            },
            number: 0,
            told: PushesTold::default(),
            beacon: 0,
            pushes: prepared.pushes,
            fatal: None,
            plan,
            shared,
        };
        started.bound_push_numbers(now);
        for thread in slice.thread_numbers() {
            let (plan, shared) = (Arc::clone(&started.plan), Arc::clone(&started.shared));
            match spawn(
                plan,
                thread,
                prepared.driver,
                prepared.tables,
                shared,
                clock,
            ) {
                Ok(handle) => started.threads.push(handle),
                Err(error) => {
                    started.close(Ending::Reset);
                    return Err(error);
                }
            }
        }
        Ok(started)
    }

    /// Terminals that it has.
    pub(super) fn terminals(&self) -> u64 {
        u64::from(self.slice.terminals)
    }

    /// The controller's clock, as far as it is known here.
    pub(super) fn clock(&self) -> RunClock {
        self.clock
    }

    /// Does what the controller says.
    pub(super) fn handle_beacon(&mut self, beacon: &Beacon) {
        if beacon.number <= self.beacon {
            return;
        }
        self.beacon = beacon.number;
        self.shared.set_order(beacon.order);
        if let Some(at) = beacon.connected_at {
            self.shared.note_connected(at);
        }
        self.bound_push_numbers(self.clock.now());
        self.shared
            .forget_measured(&self.plan, beacon.measured_from);
        let Some((from, until)) = beacon.schedule else {
            return;
        };
        if self.shared.schedule().is_none() {
            self.shared.begin_schedule(from, Some(until));
            let (plan, shared) = (&self.plan, &self.shared);
            match caller::start_all(plan, shared, (from, Some(until)), self.clock) {
                Ok(callers) => self.callers = Some(callers),
                Err(error) => self.fail(RunError::Start(error).to_string()),
            }
        } else {
            self.shared.end_schedule(until);
            for (_, caller) in self.callers.iter().flatten() {
                caller.stop(until);
            }
        }
    }

    /// Bounds the stamps that are taken for those of the controller's publications.
    fn bound_push_numbers(&self, now: Nanos) {
        let Some(pushes) = self.pushes else { return };
        let connected_at = self.shared.connected_at();
        let connected = connected_at.map_or(Duration::ZERO, |at| now.since(at));
        let rounds = pushes.rounds_max(connected);
        let ledger = &self.shared.ledger;
        ledger.may_be_made(self.plan.numbers_of_rounds(rounds));
    }

    /// Closes all connections, whoever asks.
    pub(super) fn close(&mut self, ending: Ending) {
        self.shared.set_order(Order::Close(ending));
        let now = self.clock.now();
        self.shared.end_schedule(now);
        for (_, caller) in self.callers.iter().flatten() {
            caller.stop(now);
        }
    }

    /// Whether every thread has ended.
    pub(super) fn is_gone(&self) -> bool {
        let mut threads = self.slice.thread_numbers();
        threads.all(|thread| self.shared.account(thread as usize).stage == Stage::Gone)
    }

    /// It cannot do its part: from now on that is all it tells.
    pub(super) fn fail(&mut self, reason: String) {
        self.fatal.get_or_insert(reason);
    }

    /// Waits for threads that have ended.
    pub(super) fn join(self) {
        for thread in self.threads {
            // It only fails if it panicked, and then its message is on standard error already.
            let _ = thread.join();
        }
    }

    /// Takes note of how far its clock, which reads the controller's time if nothing has drifted, is off.
    pub(super) fn note_clock(&mut self, offset: Offset) {
        let drift = offset.nanos.unsigned_abs();
        // What the exchanges themselves are off by is no drift.
        let drift = drift.saturating_sub(offset.error_nanos + self.machine.clock.error_nanos);
        self.machine.drift_nanos = self.machine.drift_nanos.max(drift);
    }

    /// Everything so far.
    pub(super) fn state(&mut self) -> State {
        if let Some(reason) = &self.fatal {
            self.number += 1;
            return State::failed(self.number, reason.clone());
        }
        let now = self.clock.now();
        self.bound_push_numbers(now);
        if now >= self.next_watch {
            self.next_watch = now.plus(WATCHED_EVERY);
            let threads = self.slice.thread_numbers();
            let times = threads.map(|thread| self.shared.account(thread as usize).cpu_time);
            self.watch.sample(now, times.collect());
        }
        self.number += 1;
        let mut state = State::of(&self.shared, self.slice, self.number, &mut self.told);
        state.at = now;
        state.machine = MachineState {
            share: self.watch.share,
            share_max: self.watch.share_max,
            saturated_s: self.watch.saturated_seconds,
            watched_s: self.watch.seconds,
            machine_share: self.watch.machine_share,
            machine_share_max: self.watch.machine_share_max,
            machine_saturated_s: self.watch.machine_saturated_seconds,
            rss_anon_bytes: anonymous_bytes(),
            ..self.machine
        };
        let mut failures: BTreeMap<Failure, u64> = BTreeMap::new();
        for (flow, caller) in self.callers.iter().flatten() {
            let progress = caller.progress();
            for (failure, count) in progress.failures {
                *failures.entry(failure).or_default() += count;
            }
            let counts = progress.trips.counts;
            state.note_caller(*flow, counts.due, counts.held);
            state.callers_ended &= caller.is_done();
        }
        state.callers = failures.into_iter().collect();
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::target::Target;
    use myriad_reactor::Driver;

    #[test]
    fn an_agent_that_failed_tells_that_and_nothing_else() {
        let target = Target::parse("ws://127.0.0.1:1/").unwrap();
        let mut config = Config::new(vec![target], 1);
        config.driver = Some(Driver::Epoll);
        let prepared = config.prepare().unwrap();
        let mut threads =
            AgentThreads::start(prepared, RunClock::start(), Offset::default()).unwrap();
        assert_eq!(threads.state().fatal, None);
        threads.fail("no threads".to_owned());
        threads.fail("and no memory".to_owned());
        let state = threads.state();
        assert_eq!(state.fatal.as_deref(), Some("no threads"));
        assert_eq!(state.number, 2, "it is newer than the one before");
        threads.close(Ending::Reset);
        while !threads.is_gone() {
            std::thread::yield_now();
        }
        threads.join();
    }
}
