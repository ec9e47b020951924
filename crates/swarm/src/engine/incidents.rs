//! What happens to a share of the terminals at one time: a storm drops their connections, they stall, or they vanish.
//!
//! Each thread has its exact share of each incident. A walk chooses its terminals, and goes on from one incident to the next:
//! the second hits others, as long as there are any.

use crate::clock::Nanos;
use crate::config::{CrowdSize, What};
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
    /// From the end of connecting.
    at: Duration,
    /// The number of its incident.
    number: usize,
    deed: Deed,
}

#[derive(Clone, Copy, Debug)]
enum Deed {
    /// Hit so many terminals that are not hit yet.
    Begin(u64),
    /// Let those that stall read again.
    Resume,
}

impl Incidents {
    /// None where nothing happens.
    pub(super) fn new(plan: &Plan, part: Part) -> Option<Box<Self>> {
        if plan.incidents.is_empty() {
            return None;
        }
        let mut pending = Vec::new();
        for (number, incident) in plan.incidents.iter().enumerate() {
            let at = incident.at;
            let deed = Deed::Begin(part_of(incident.size, plan, part));
            pending.push(Pending { at, number, deed });
            if let What::Stall(Some(lasts)) = incident.what {
                let (at, deed) = (at.saturating_add(lasts), Deed::Resume);
                pending.push(Pending { at, number, deed });
            }
        }
        pending.sort_by_key(|pending| pending.at);
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
            (Some(next), Some(at)) => at.plus(next.at).since(now),
            _ => Duration::MAX,
        }
    }
}

/// A thread's part of the terminals that are hit. The parts add up to what is hit of the crowd, rounded.
fn part_of(size: CrowdSize, plan: &Plan, part: Part) -> u64 {
    let whole = truncate(size.of(u64::from(plan.connections)).round());
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
            && connected_at.plus(pending.at) <= now
            && budget > 0
        {
            let is_over = match &mut pending.deed {
                Deed::Begin(0) => true,
                Deed::Begin(_) if incidents.looks == 0 => true,
                Deed::Begin(left) => {
                    let index = incidents.walk.next();
                    incidents.looks -= 1;
                    if self.can_be_hit(index, pending.number) {
                        *left -= 1;
                        budget -= 1;
                        self.hit(reactor, index, pending.number, now);
                    }
                    false
                }
                Deed::Resume => {
                    let resumed = self.resume_some(reactor, pending.number, budget, now);
                    let is_over = resumed < budget;
                    budget -= resumed;
                    is_over
                }
            };
            if is_over {
                incidents.looks = u64::from(self.part.count);
                incidents.pending.pop_front();
            }
        }
        self.incidents = Some(incidents);
    }

    /// Whether something can happen to a terminal: one that is away or lost cannot be hit, and one that is open without a connection has
    /// none that could vanish.
    fn can_be_hit(&self, index: usize, number: usize) -> bool {
        let is_storm = self.plan.incidents[number].what.is_storm();
        self.terminals[index].phase == Phase::Open || (is_storm && self.is_dormant(index))
    }

    fn hit<R: Reactor>(&mut self, reactor: &mut R, index: usize, number: usize, now: Nanos) {
        self.leave_group(index);
        match self.plan.incidents[number].what {
            What::Storm(ending) => self.drop_in_storm(reactor, index, (number, ending), now),
            What::Stall(_) => self.stall(reactor, index, number, now),
            What::Vanish => self.vanish(reactor, index, now),
        }
    }

    fn drop_in_storm<R: Reactor>(
        &mut self,
        reactor: &mut R,
        index: usize,
        (number, ending): (usize, Option<Ending>),
        now: Nanos,
    ) {
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
            let size = CrowdSize::Share(share);
            let parts = (0..3).map(|thread| part_of(size, &plan, plan.part(thread)));
            #[expect(clippy::cast_precision_loss, reason = "a few")]
            let whole = truncate((connections as f64 * share).round());
            assert_eq!(parts.sum::<u64>(), whole, "{share} of {connections}");
        }
    }
}
