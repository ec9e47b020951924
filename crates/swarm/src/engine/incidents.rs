//! What happens to a share of the terminals at one time: a storm drops their connections.
//!
//! Each thread has its exact share of each incident. A walk chooses its terminals, and goes on from one incident to the next:
//! the second hits others, as long as there are any.

use crate::clock::Nanos;
use crate::config::{Incident, What};
use crate::engine::comeback::Cause;
use crate::engine::crowd::World;
use crate::engine::plan::{Part, Plan};
use crate::engine::shared::Ending;
use crate::engine::terminal::Phase;
use crate::engine::walk::Walk;
use myriad_reactor::{Close, Reactor};
use myriad_units::truncate;
use std::collections::VecDeque;
use std::time::Duration;

/// Terminals that are hit in one turn. More wait for the next, so that receiving is never held up for long.
const PER_TURN_MAX: u64 = 1024;

/// What is to happen to the terminals of one thread.
#[derive(Debug)]
pub(super) struct Incidents {
    /// By time.
    pending: VecDeque<Pending>,
    walk: Walk,
    /// Terminals that the walk may still look at before it has seen everybody.
    looks: u64,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    incident: Incident,
    /// Its number among those of its kind.
    number: usize,
    /// Terminals it still has to hit.
    left: u64,
}

impl Incidents {
    /// None where nothing happens.
    pub(super) fn new(plan: &Plan, part: Part) -> Option<Box<Self>> {
        if plan.incidents.is_empty() {
            return None;
        }
        let mut pending: Vec<Pending> = (0..)
            .zip(&plan.incidents)
            .map(|(number, incident)| Pending {
                incident: *incident,
                number,
                left: share_of(incident.share, plan, part),
            })
            .collect();
        pending.sort_by_key(|pending| pending.incident.at);
        let seed = plan.seed ^ !u64::from(part.thread).rotate_left(17);
        Some(Box::new(Self {
            pending: pending.into(),
            walk: Walk::new(part.count, seed),
            looks: u64::from(part.count),
        }))
    }

    /// Time until the next one, if the crowd is held since then.
    pub(super) fn wait(&self, connected_at: Option<Nanos>, now: Nanos) -> Duration {
        match (self.pending.front(), connected_at) {
            (Some(next), Some(at)) => at.plus(next.incident.at).since(now),
            _ => Duration::MAX,
        }
    }
}

/// A thread's part of the terminals that are hit. The parts add up to the share of the crowd, rounded.
fn share_of(share: f64, plan: &Plan, part: Part) -> u64 {
    let whole = truncate((share * f64::from(plan.connections)).round());
    let threads = u64::from(plan.threads);
    whole / threads + u64::from(u64::from(part.thread) < whole % threads)
}

impl World {
    /// Does what is to happen by now.
    pub(super) fn suffer<R: Reactor>(&mut self, reactor: &mut R, now: Nanos) {
        let Some(mut incidents) = self.incidents.take() else {
            return;
        };
        let mut budget = PER_TURN_MAX;
        while let Some(connected_at) = self.shared.connected_at()
            && let Some(pending) = incidents.pending.front_mut()
            && connected_at.plus(pending.incident.at) <= now
            && budget > 0
        {
            if pending.left == 0 || incidents.looks == 0 {
                incidents.looks = u64::from(self.part.count);
                incidents.pending.pop_front();
                continue;
            }
            let index = incidents.walk.next();
            incidents.looks -= 1;
            // One that is away or lost cannot be hit.
            if self.terminals[index].phase == Phase::Open {
                pending.left -= 1;
                budget -= 1;
                self.hit(reactor, index, pending.number, now);
            }
        }
        self.incidents = Some(incidents);
    }

    fn hit<R: Reactor>(&mut self, reactor: &mut R, index: usize, number: usize, now: Nanos) {
        let What::Storm(ending) = self.plan.incidents[number].what;
        if let Some(membership) = &mut self.membership {
            membership.note_departed(index);
        }
        let storm = &mut self.storms[number];
        storm.began.get_or_insert(now);
        storm.dropped += 1;
        // An outage is no farewell: no close frame, and nobody waits for the server's side of it.
        let how = match ending.unwrap_or_default() {
            Ending::Reset => Close::Reset,
            Ending::Orderly => Close::Orderly,
        };
        self.end(reactor, index, how);
        self.come_back(index, Cause::Storm(number), now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::target::Target;
    use myriad_reactor::Driver;

    #[test]
    fn the_threads_parts_of_an_incident_add_up() {
        let target = Target::parse("ws://127.0.0.1:1/").unwrap();
        for (connections, share) in [(100, 0.5), (101, 0.333), (7, 0.01), (7, 1.0), (3, 0.5)] {
            let mut config = Config::new(vec![target.clone()], connections);
            config.driver = Some(Driver::Epoll);
            config.threads = Some(3);
            let plan = config.prepare().unwrap().plan;
            let parts = (0..3).map(|thread| share_of(share, &plan, plan.part(thread)));
            #[expect(clippy::cast_precision_loss, reason = "a few")]
            let whole = truncate((connections as f64 * share).round());
            assert_eq!(parts.sum::<u64>(), whole, "{share} of {connections}");
        }
    }
}
