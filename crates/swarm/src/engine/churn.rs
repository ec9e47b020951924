//! Churn: open terminals that leave and are replaced, all the time.
//!
//! A terminal that leaves connects again in the same record, as another client would: from another port, with another
//! key, and with nothing seen yet. A [`Walk`] chooses who leaves.

use crate::clock::Nanos;
use crate::engine::crowd::World;
use crate::engine::plan::{Part, Plan};
use crate::engine::shared::{Ending, Order};
use crate::engine::terminal::Phase;
use crate::engine::walk::Walk;
use crate::measure::figures::float;
use myriad_reactor::{Close, Reactor};
use myriad_units::truncate;
use std::time::Duration;

/// Terminals that leave in one turn. More wait for the next, so that receiving is never held up for long.
const PER_TURN_MAX: u64 = 256;

/// Sockets a thread needs beyond one per terminal: a closed socket is freed some turns later, when its terminal already
/// connects again.
pub(crate) const SOCKETS_SPARE: u32 = 1024;

/// Shortest wait for the next one to leave. Bursts every 10 ms are even enough, and cost few wakes.
const STEP: Duration = Duration::from_millis(10);

/// Who leaves of one thread, and when.
#[derive(Debug)]
pub(super) struct Churn {
    /// Terminals a second.
    rate_per_s: f64,
    /// When terminals were last told to leave; none until the whole crowd is connected.
    last: Option<Nanos>,
    /// Fractions of a terminal carried over between bursts.
    carried: f64,
    /// Terminals that were due and did not leave: after a stall, or because too many were still reconnecting.
    forgone: f64,
    walk: Walk,
}

impl Churn {
    pub(super) fn new(plan: &Plan, part: Part) -> Option<Self> {
        let share_per_s = plan.churn_per_s?;
        Some(Self {
            rate_per_s: share_per_s * f64::from(part.count),
            last: None,
            carried: 0.0,
            forgone: 0.0,
            walk: Walk::new(part.count, plan.seed ^ !u64::from(part.thread)),
        })
    }

    /// Whether terminals have begun to leave. From then on each new connection replaces one.
    pub(super) fn is_begun(&self) -> bool {
        self.last.is_some()
    }

    /// How many are to leave now. The first call begins the walk.
    ///
    /// After a stall at most one turn's worth is made up for, and the rest is noted as forgone: a burst is not the rate
    /// that was asked for.
    fn due(&mut self, now: Nanos) -> u64 {
        let elapsed = self.last.map_or(Duration::ZERO, |last| now.since(last));
        self.last = Some(now);
        #[expect(clippy::cast_precision_loss, reason = "a small constant")]
        let most = PER_TURN_MAX as f64;
        let wanted = self.carried + elapsed.as_secs_f64() * self.rate_per_s;
        self.carried = wanted.min(most);
        self.forgone += wanted - self.carried;
        let due = truncate(self.carried);
        #[expect(clippy::cast_precision_loss, reason = "at most PER_TURN_MAX")]
        let taken = due as f64;
        self.carried -= taken;
        due
    }

    /// Time until the next one must leave.
    pub(super) fn wait(&self) -> Duration {
        if !self.is_begun() {
            return Duration::MAX;
        }
        let seconds = (1.0 - self.carried).max(0.0) / self.rate_per_s;
        Duration::try_from_secs_f64(seconds)
            .unwrap_or(Duration::MAX)
            .max(STEP)
    }
}

impl World {
    /// Ends the terminals that are due to leave, once the whole crowd is connected.
    pub(super) fn churn<R: Reactor>(&mut self, reactor: &mut R, now: Nanos) {
        let Order::Churn(ending) = self.shared.order() else {
            return;
        };
        let Some(churn) = &mut self.churn else {
            return;
        };
        let due = churn.due(now);
        // A server that does not take the replacements must not be left by everybody else.
        let leaving = due.min(self.opening.room());
        churn.forgone += float(due - leaving);
        self.totals.churn_forgone = truncate(churn.forgone);
        for _ in 0..leaving {
            let churn = self.churn.as_mut().expect("it was there above");
            let index = churn.walk.next();
            // One that is lost, given up, or on its way already is nobody who could leave.
            if self.terminals[index].phase == Phase::Open || self.is_dormant(index) {
                if let Some(membership) = &mut self.membership {
                    membership.note_departed(index);
                }
                self.leave_group(index);
                self.totals.churned += 1;
                self.leave(reactor, index, ending, now);
            }
        }
    }

    /// Whether every new connection replaces one.
    pub(super) fn is_replacing(&self) -> bool {
        let is_churning = self.churn.as_ref().is_some_and(Churn::is_begun);
        is_churning || (self.membership.is_some() && self.shared.connected_at().is_some())
    }

    fn leave<R: Reactor>(&mut self, reactor: &mut R, index: usize, ending: Ending, now: Nanos) {
        match ending {
            Ending::Orderly if !self.has_farewell() => {
                self.replace(reactor, index, Close::Orderly, now);
            }
            Ending::Orderly => self.send_close(index, Phase::Leaving, now),
            Ending::Reset => self.replace(reactor, index, Close::Reset, now),
        }
    }

    /// Ends a terminal that left, and connects again in its record as another one.
    pub(super) fn replace<R: Reactor>(
        &mut self,
        reactor: &mut R,
        index: usize,
        how: Close,
        now: Nanos,
    ) {
        self.end(reactor, index, how);
        if !self.opening.is_stopped() {
            self.terminals[index].phase = Phase::Waiting;
            let index = u32::try_from(index).expect("terminals are at most 2^32");
            self.opening.open_at(index, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn churn(rate_per_s: f64, count: u32) -> Churn {
        Churn {
            rate_per_s,
            last: None,
            carried: 0.0,
            forgone: 0.0,
            walk: Walk::new(count, 12345),
        }
    }

    #[test]
    fn the_share_of_a_minute_leaves_in_a_minute_and_evenly() {
        // 1% of 50,000 a minute.
        let mut walk = churn(50_000.0 * 0.01 / 60.0, 50_000);
        assert_eq!(walk.due(Nanos(0)), 0, "the walk begins");
        let bursts: Vec<u64> = (1..=6000)
            .map(|step| walk.due(Nanos(step * 10_000_000)))
            .collect();
        assert!((499..=500).contains(&bursts.iter().sum::<u64>()));
        assert_eq!(bursts.iter().max(), Some(&1));
        assert!(walk.wait() >= STEP && walk.wait() <= Duration::from_millis(120));
    }

    #[test]
    fn a_stall_is_not_made_up_for() {
        let mut walk = churn(1000.0, 1_000_000);
        walk.due(Nanos(0));
        assert_eq!(walk.due(Nanos(60_000_000_000)), PER_TURN_MAX);
        assert_eq!(walk.due(Nanos(60_000_000_000)), 0);
        assert_eq!(truncate(walk.forgone), 60_000 - PER_TURN_MAX, "and noted");
    }
}
