//! What all simulations have in common: the threads of a crowd on one network, and their clock.

use super::Manual;
use crate::clock::Clock as _;
use crate::engine::crowd::{Crowd, Turned};
use crate::engine::plan::Plan;
use crate::engine::shared::{Ending, Order, Shared, Stage, Totals};
use myriad_reactor::sim::{Campaign, Outcomes, Sim, SimNet, seed_to_replay};
use std::sync::Arc;
use std::time::Duration;

/// What simulations with `count` seeds show, or with those that the environment says ([`Campaign`]), in any order. None where that is
/// too little to say something of all: with fewer seeds, or one that is replayed alone. `replay` is what `cargo test` is told for that.
pub(super) fn for_seeds<T: Send>(
    count: u64,
    replay: &'static str,
    simulate: impl Fn(u64) -> T + Sync,
) -> Option<Vec<T>> {
    if let Some(seed) = seed_to_replay() {
        simulate(seed);
        return None;
    }
    let campaign = Campaign::from_environment(count, replay);
    let add = |all: &mut Vec<T>, outcome: T| all.push(outcome);
    let Outcomes {
        summary, failures, ..
    } = campaign.run(Vec::new(), simulate, add, None);
    assert!(failures.is_empty(), "seeds that fail: {failures:?}");
    (campaign.count >= count).then_some(summary)
}

/// Ends the crowd of a world whose server goes on to `serve`: nothing may stay open.
pub(super) fn close<W>(
    world: &mut W,
    run: fn(&mut W) -> &mut Run,
    serve: fn(&mut W),
    ending: Ending,
) {
    run(world).shared.set_order(Order::Close(ending));
    for _ in 0..1000 {
        if run(world).has_ended() {
            break;
        }
        run(world).turn();
        serve(world);
        run(world).pass(20);
    }
    run(world).check_ended();
}

pub(super) struct Run {
    pub(super) net: SimNet,
    pub(super) clock: Manual,
    pub(super) plan: Arc<Plan>,
    pub(super) shared: Arc<Shared>,
    crowds: Vec<Option<Crowd<Sim>>>,
}

impl Run {
    pub(super) fn new(plan: Plan, shared: Shared, net: SimNet) -> Self {
        let (plan, shared, clock) = (Arc::new(plan), Arc::new(shared), Manual::default());
        let crowds = (0..plan.threads).map(|thread| {
            let part = plan.part(thread);
            let reactor = net.reactor(plan.sockets_max(part));
            let (plan, shared) = (Arc::clone(&plan), Arc::clone(&shared));
            Some(Crowd::new(reactor, plan, part, shared, clock.now()))
        });
        Self {
            crowds: crowds.collect(),
            net,
            clock,
            plan,
            shared,
        }
    }

    /// Every thread takes a turn.
    pub(super) fn turn(&mut self) {
        for crowd in &mut self.crowds {
            let Some(running) = crowd else { continue };
            if running.turn(&self.clock).unwrap() == Turned::Done {
                *crowd = None;
            }
        }
    }

    /// Takes turns for this long, each when the ones before it said so, and returns how many. Nothing comes meanwhile.
    pub(super) fn turns_within(&mut self, time: Duration) -> u64 {
        let until = self.clock.now().plus(time);
        let mut turns = 0;
        while self.clock.now() < until {
            self.turn();
            turns += 1;
            let crowds = self.crowds.iter().flatten();
            let waits = crowds.map(|crowd| crowd.timeout(&self.clock));
            // A clock that stands still would be no test of who wakes too often.
            let wait = waits.min().unwrap_or(time).max(Duration::from_micros(100));
            self.clock.0.set(self.clock.now().plus(wait).0);
        }
        turns
    }

    /// Time passes.
    pub(super) fn pass(&self, millis: u64) {
        self.clock.0.set(self.clock.0.get() + millis * 1_000_000);
    }

    /// Whether every thread holds its terminals.
    pub(super) fn holds(&self) -> bool {
        let mut accounts = self.shared.accounts();
        accounts.all(|account| account.stage == Stage::Holding)
    }

    /// As a run does once every thread holds its terminals.
    pub(super) fn note_connected(&self) {
        self.shared.note_connected(self.clock.now());
        self.shared.begin_schedule(self.clock.now(), None);
    }

    pub(super) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        let accounts = self.shared.accounts();
        accounts.for_each(|account| totals.merge(&account.totals));
        totals
    }

    pub(super) fn has_ended(&self) -> bool {
        self.crowds.iter().all(Option::is_none)
    }

    /// Nothing may stay open.
    pub(super) fn check_ended(&self) {
        assert!(self.has_ended(), "every thread ends");
        assert_eq!(self.totals().open, 0);
        assert_eq!(self.net.open_sockets(), 0);
        assert!(self.net.leaked().is_empty());
    }
}
