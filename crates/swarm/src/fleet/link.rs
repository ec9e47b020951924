//! What a controller hears of its agents during a run, and tells them.
//!
//! Each agent is a thread of the crowd for the rest of the run: its state is in that thread's account, and what the run orders goes
//! to all agents with the next beacon.

use super::messages::{
    Beacon, Request, is_id, read, shown_text, subject_of_agent, subject_of_run, written,
};
use super::offset::{ControllerTime, Offset, wall_now};
use super::state::{MachineState, State};
use super::unsent;
use crate::clock::{Clock as _, Nanos, RunClock};
use crate::engine::deal::Slice;
use crate::engine::plan::Plan;
use crate::engine::shared::{Fatal, Shared, Stage};
use async_nats::connection::State as Connection;
use async_nats::{Client, Subscriber};
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use myriad_report::{AgentReport, FleetReport};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// How often agents are told what to do.
const BEACON_EVERY: Duration = Duration::from_millis(100);

/// Beacons in a row without a state of an agent after which it is lost: 3 s. Time in which the controller itself did not run says
/// nothing of its agents, whose states wait in the socket meanwhile.
const SILENT_BEACONS_MAX: u32 = 30;

const _: () = assert!(BEACON_EVERY.as_millis() * SILENT_BEACONS_MAX as u128 == 3_000);

/// How often figures are looked at that shall be newer than a moment: for 3 s.
const REFRESH_LOOKS_MAX: u32 = 300;
const REFRESH_LOOK_EVERY: Duration = Duration::from_millis(10);

/// How long agents may take to say that they work for this controller no more.
const RELEASED_WITHIN: Duration = Duration::from_secs(1);

/// How far ahead the schedules of a fleet begin: agents know of them with the next beacon.
pub(crate) const FLEET_SCHEDULE_AHEAD: Duration = Duration::from_millis(700);

/// An agent of the fleet.
pub(super) struct Member {
    pub id: String,
    pub name: String,
    pub slice: Slice,
}

/// What is known of an agent.
#[derive(Clone, Copy, Debug, Default)]
struct AgentView {
    number: u64,
    /// When its newest state was taken, and when it came.
    at: Nanos,
    came: Nanos,
    /// Beacons since then.
    silent_beacons: u32,
    stage: Stage,
    callers_ended: bool,
    machine: MachineState,
    lost: Option<Nanos>,
}

/// The earliest of the times up to which agents have told everything. One that is silent is waited for until it is lost.
fn told_until(now: Nanos, told: impl Iterator<Item = Nanos>) -> Nanos {
    told.min().unwrap_or(now).min(now)
}

/// The agents of a run.
pub(crate) struct Link {
    client: Client,
    run: String,
    members: Vec<Member>,
    shared: Arc<Shared>,
    clock: RunClock,
    views: Mutex<Vec<AgentView>>,
    /// Set when the crowd begins.
    plan: OnceLock<Arc<Plan>>,
    /// When it begins. Before that nobody can be lost.
    begun: OnceLock<Nanos>,
    /// Set when it is measured no more: what agents use to close it is no figure of the run.
    measured: OnceLock<()>,
}

impl Link {
    /// Tells and hears from now on, on the runtime that it is called on.
    pub(super) fn start(
        (client, run): (Client, String),
        members: Vec<Member>,
        (shared, clock): (Arc<Shared>, RunClock),
        (states, clocks): (Subscriber, Subscriber),
    ) -> Arc<Self> {
        let views = vec![AgentView::default(); members.len()];
        let link = Arc::new(Self {
            client,
            run,
            members,
            shared,
            clock,
            views: Mutex::new(views),
            plan: OnceLock::new(),
            begun: OnceLock::new(),
            measured: OnceLock::new(),
        });
        tokio::spawn(Arc::clone(&link).answer_clocks(clocks));
        tokio::spawn(Arc::clone(&link).handle_states(states));
        tokio::spawn(Arc::clone(&link).send_beacons());
        link
    }

    /// The crowd begins then, on clocks that stand so.
    pub(super) fn begin(&self, clocks: Vec<Offset>, at: Nanos) {
        let mut views = self.views();
        for (view, clock) in views.iter_mut().zip(clocks) {
            view.machine.clock = clock;
            view.came = at;
            view.silent_beacons = 0;
        }
        drop(views);
        let _ = self.begun.set(at);
    }

    /// Takes what states are judged by.
    pub(crate) fn set_plan(&self, plan: &Arc<Plan>) {
        let _ = self.plan.set(Arc::clone(plan));
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn clock(&self) -> RunClock {
        self.clock
    }

    fn views(&self) -> MutexGuard<'_, Vec<AgentView>> {
        // Each entry is whole after every statement.
        self.views.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers agents that compare clocks.
    async fn answer_clocks(self: Arc<Self>, mut clocks: Subscriber) {
        while let Some(message) = clocks.next().await {
            let told = ControllerTime {
                run: self.clock.now().0,
                wall: wall_now(),
            };
            if let Some(reply) = message.reply {
                let _ = self.client.publish(reply, written(&told).into()).await;
            }
        }
    }

    async fn handle_states(self: Arc<Self>, mut states: Subscriber) {
        while let Some(message) = states.next().await {
            let id = message.subject.rsplit('.').next().unwrap_or_default();
            let known = self.members.iter().position(|member| member.id == id);
            let Some(agent) = known.filter(|_| is_id(id)) else {
                continue;
            };
            if let Some(state) = read::<State>(&message.payload) {
                self.handle_state(agent, state);
            }
        }
    }

    /// Takes what an agent tells, if it is new and can be true.
    fn handle_state(&self, agent: usize, state: State) {
        let Some(plan) = self.plan.get() else { return };
        let flows = plan.flows.as_ref().map_or(0, |it| it.flows.len());
        let slice = self.members[agent].slice;
        let now = self.clock.now();
        {
            let mut views = self.views();
            let view = &mut views[agent];
            let is_new = state.number > view.number && view.lost.is_none();
            if !is_new {
                return;
            }
            if let Some(reason) = &state.fatal {
                return self.fail(agent, reason);
            }
            if !state.is_plausible(slice, plan.targets.len(), flows) {
                return;
            }
            view.number = state.number;
            view.came = now;
            view.silent_beacons = 0;
            view.stage = state.stage;
            view.callers_ended = state.callers_ended;
            if self.measured.get().is_none() {
                view.machine = state.machine;
            }
        }
        let at = state.at;
        state.into_account(&self.shared, agent, &self.shared.ledger.open());
        // Only now: whoever waits for these figures finds them.
        self.views()[agent].at = at;
    }

    /// An agent cannot do its part: the run ends with what it says.
    fn fail(&self, agent: usize, reason: &str) {
        let name = self.members[agent].name.clone();
        let fatal = Fatal::Agent(name, shown_text(reason));
        self.shared.account(agent).fatal = Some(fatal);
    }

    /// Tells all agents what the run wants, and notices those that are silent.
    async fn send_beacons(self: Arc<Self>) {
        let mut ticks = interval(BEACON_EVERY);
        // Beacons measure silence, so none of them may follow another at once: states are read in between.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for number in 1.. {
            ticks.tick().await;
            self.notice_lost();
            let subject = subject_of_run(&self.run, "beacon");
            let beacon = written(&self.beacon(number));
            let _ = self.client.publish(subject, beacon.into()).await;
        }
    }

    fn beacon(&self, number: u64) -> Beacon {
        let schedule = self.shared.schedule();
        let views = self.views();
        let lost = self.members.iter().zip(&*views);
        let lost = lost.filter(|(_, view)| view.lost.is_some());
        Beacon {
            number,
            order: self.shared.order(),
            connected_at: self.shared.connected_at(),
            schedule: schedule.map(|it| (it.from, it.until)),
            measured_from: self.shared.ledger.measured_from(),
            lost: lost.map(|(member, _)| member.id.clone()).collect(),
        }
    }

    fn notice_lost(&self) {
        if self.begun.get().is_none() {
            return;
        }
        for agent in 0..self.members.len() {
            let mut views = self.views();
            let view = &mut views[agent];
            view.silent_beacons = view.silent_beacons.saturating_add(1);
            let is_silent = view.silent_beacons >= SILENT_BEACONS_MAX;
            if !is_silent || view.lost.is_some() || view.stage == Stage::Gone {
                continue;
            }
            // Since then nobody knows what its terminals saw.
            view.lost = Some(view.came);
            self.shared.lose(agent, self.plan.get().map(|plan| &**plan));
        }
        self.count_unsent();
    }

    /// Counts what has fallen due at agents that are lost.
    pub(crate) fn count_unsent(&self) {
        let (Some(plan), Some(window)) = (self.plan.get(), self.shared.schedule()) else {
            return;
        };
        let now = self.clock.now();
        let views = self.views();
        let lost = views.iter().enumerate();
        let lost = lost.filter(|(_, view)| view.lost.is_some());
        for (agent, _) in lost {
            let due = unsent::due_of(plan, self.members[agent].slice, window, now);
            self.shared.note_due(agent, &due);
        }
    }

    /// Whether no agent is left.
    pub(crate) fn is_alone(&self) -> bool {
        self.views().iter().all(|view| view.lost.is_some())
    }

    /// Whether all agents that are left have told how things stood at a time.
    pub(crate) fn is_told(&self, at: Nanos) -> bool {
        let views = self.views();
        let mut left = views.iter().filter(|view| view.lost.is_none());
        left.all(|view| view.at >= at)
    }

    /// Up to when it is known what the agents saw: what they have not told yet may have come to them all the same.
    pub(crate) fn told_until(&self, now: Nanos) -> Nanos {
        let views = self.views();
        let left = views.iter().filter(|view| view.lost.is_none());
        // Who is gone has told everything.
        let left = left.filter(|view| view.stage != Stage::Gone);
        told_until(now, left.map(|view| view.at))
    }

    /// Whether all requests of callers have ended.
    pub(crate) fn have_callers_ended(&self) -> bool {
        let views = self.views();
        let mut left = views.iter().filter(|view| view.lost.is_none());
        left.all(|view| view.callers_ended)
    }

    /// Waits until figures are as of now, while there is a server over which they may come.
    pub(crate) fn refresh(&self) {
        let now = self.clock.now();
        let is_connected = || self.client.connection_state() == Connection::Connected;
        for _ in 0..REFRESH_LOOKS_MAX {
            if self.is_told(now) || !is_connected() {
                return;
            }
            std::thread::sleep(REFRESH_LOOK_EVERY);
        }
    }

    /// Ends the measuring: what the machines of all agents have used until now.
    pub(crate) fn end_measuring(&self) -> MachineState {
        let views = self.views();
        let _ = self.measured.set(());
        drop(views);
        self.machine()
    }

    /// What the machines of all agents use: the busiest of them, and their memory together.
    pub(crate) fn machine(&self) -> MachineState {
        let views = self.views();
        let machines = views.iter().map(|view| view.machine);
        machines
            .reduce(|one, other| MachineState {
                share: one.share.max(other.share),
                share_max: one.share_max.max(other.share_max),
                saturated_s: one.saturated_s.max(other.saturated_s),
                watched_s: one.watched_s.max(other.watched_s),
                machine_share: one.machine_share.max(other.machine_share),
                machine_share_max: one.machine_share_max.max(other.machine_share_max),
                machine_saturated_s: one.machine_saturated_s.max(other.machine_saturated_s),
                rss_anon_bytes: one.rss_anon_bytes.saturating_add(other.rss_anon_bytes),
                memory_before: one.memory_before.saturating_add(other.memory_before),
                ..one
            })
            .unwrap_or_default()
    }

    /// The fleet as reports have it.
    pub(crate) fn report(&self) -> FleetReport {
        #[expect(
            clippy::cast_precision_loss,
            reason = "clocks are less than days apart"
        )]
        let millis = |nanos: i64| nanos as f64 / 1e6;
        let of = |nanos: u64| millis(i64::try_from(nanos).unwrap_or(i64::MAX));
        let views = self.views();
        let agents = self.members.iter().zip(&*views).map(|(member, view)| {
            let machine = &view.machine;
            AgentReport {
                name: member.name.clone(),
                first_terminal: u64::from(member.slice.first_terminal),
                terminals: u64::from(member.slice.terminals),
                threads: member.slice.threads,
                clock_offset_ms: millis(machine.clock.wall_nanos),
                clock_error_ms: of(machine.clock.error_nanos),
                clock_drift_ms: of(machine.drift_nanos),
                cpu_share_max: machine.share_max,
                machine_cpu_share_max: machine.machine_share_max,
                rss_anon_bytes: machine.rss_anon_bytes,
                lost_s: view.lost.map(|at| at.since(Nanos(0)).as_secs_f64()),
            }
        });
        FleetReport {
            agents: agents.collect(),
        }
    }

    /// Lets all agents go, all at once. Who does not hear it finds out by itself that nobody is there.
    pub(super) async fn release(&self) {
        let asked = self.members.iter().map(|member| {
            let run = self.run.clone();
            let request = written(&Request::Release { run });
            let subject = subject_of_agent(&member.id);
            self.client.request(subject, request.into())
        });
        // Without a server the client queues all that it is given, and waits for ever to send it.
        let _ = timeout(RELEASED_WITHIN, join_all(asked)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_agent_has_not_told_is_not_taken_for_what_did_not_come() {
        let at = |millis: u64| Nanos(millis * 1_000_000);
        let until = |told: &[u64]| told_until(at(9_000), told.iter().map(|it| at(*it)));
        assert_eq!(until(&[8_900, 8_750, 8_800]), at(8_750));
        assert_eq!(until(&[9_001]), at(9_000), "clocks are off by a little");
        assert_eq!(until(&[8_900, 10]), at(10), "it is not lost yet");
        assert_eq!(until(&[]), at(9_000));
    }
}
