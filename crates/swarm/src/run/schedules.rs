//! What goes by schedules beside and in the crowd: when it begins and ends, and when nothing more is awaited of it.

use super::figures::Figures;
use super::{Run, RunError};
use crate::caller;
use crate::clock::{Clock as _, Nanos};
use crate::engine::pacing::SEND_GRACE;
use crate::fleet::FLEET_SCHEDULE_AHEAD;
use crate::open_loop::OpenLoop;
use crate::requester;
use std::time::Duration;

/// How far ahead a schedule begins, so that every thread knows in time: twice as long as one sleeps.
const SCHEDULE_AHEAD: Duration = Duration::from_millis(200);

/// How long nothing may come of flows before they are over, so that repetitions of the last messages are counted. Longer than
/// threads may send after the end of the schedule.
const FLOWS_QUIET: Duration = Duration::from_millis(300);

const _: () = assert!(FLOWS_QUIET.as_millis() > SEND_GRACE.as_millis());

impl Run<'_> {
    /// All requests beside the crowd that go by schedules.
    pub(crate) fn open_loops(&self) -> impl Iterator<Item = &OpenLoop> {
        let callers = self.callers.iter().map(|(_, requests)| requests);
        self.requester.iter().chain(callers)
    }

    /// Whether more deliveries are awaited of what clients published.
    pub(super) fn awaits_deliveries(&self, figures: &Figures) -> bool {
        let schedule = self.shared.schedule().unwrap_or_default();
        let (replied, settle) = (figures.answered.last, self.config.settle);
        let now = self.known_until(self.clock.now());
        figures
            .deliveries
            .are_awaited(schedule, replied, settle, now)
    }

    /// Up to when it is known what came to the clients. A fleet's agents tell it a little later.
    pub(super) fn known_until(&self, now: Nanos) -> Nanos {
        let link = self.link.as_ref();
        link.map_or(now, |link| link.told_until(now))
    }

    /// Whether all agents have told how things stood after the end of schedules, and what their callers did. Alone, at once.
    pub(super) fn is_told(&self) -> bool {
        let Some(link) = &self.link else {
            return true;
        };
        let window = self.shared.schedule();
        let until = window.map_or(Nanos(0), |window| window.until.plus(SEND_GRACE));
        link.is_told(until) && (self.plan.flows.is_none() || link.have_callers_ended())
    }

    /// Whether nothing more is awaited of the messages of flows. Repetitions get a moment to come too.
    pub(super) fn are_flows_over(&self) -> bool {
        let Some(ledger) = &self.shared.flows else {
            return true;
        };
        let now = self.known_until(self.clock.now());
        let window = self.shared.schedule();
        let until = window.unwrap_or_default().until;
        if now < until.plus(FLOWS_QUIET) {
            return false;
        }
        let is_quiet = now.since(ledger.heard()) >= FLOWS_QUIET;
        ledger.incomplete() == 0 && (is_quiet || now >= until.plus(self.config.settle))
    }

    /// Ends what goes by a schedule; answers are still awaited.
    pub(super) fn end_schedules(&self) {
        let now = self.clock.now();
        self.shared.end_schedule(now);
        self.open_loops().for_each(|requests| requests.stop(now));
    }

    /// When a schedule begins and ends that is begun now.
    fn window(&self, warmup: Duration, connected_at: Nanos) -> (Nanos, Option<Nanos>) {
        let ahead = match &self.link {
            Some(_) => FLEET_SCHEDULE_AHEAD,
            None => SCHEDULE_AHEAD,
        };
        let soonest = self.clock.now().plus(ahead);
        let from = connected_at.plus(warmup).max(soonest);
        let until = self
            .config
            .held_for()
            .map(|duration| connected_at.plus(duration).max(from));
        (from, until)
    }

    pub(super) fn begin_schedules(&mut self, connected_at: Nanos) -> Result<(), RunError> {
        if let Some(load) = self.config.answered() {
            let (from, until) = self.window(load.warmup(), connected_at);
            self.shared.begin_schedule(from, until);
        }
        if let Some(flows) = &self.config.flows {
            let (from, until) = self.window(flows.warmup, connected_at);
            self.shared.begin_schedule(from, until);
            let (plan, shared) = (&self.plan, &self.shared);
            if self.link.is_none() {
                let callers = caller::start_all(plan, shared, (from, until), self.clock);
                self.callers = callers.map_err(RunError::Start)?;
            }
        }
        if let Some(requests) = &self.config.requests {
            let window = self.window(requests.warmup, connected_at);
            let (run, settle) = (self.plan.run, self.config.settle);
            let run = (run, self.plan.request_tls());
            let requester = requester::start(requests, run, settle, window, self.clock);
            self.requester = Some(requester.map_err(RunError::Start)?);
        }
        Ok(())
    }
}
