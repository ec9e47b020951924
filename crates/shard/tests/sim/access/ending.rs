//! How a run of this simulation ends: everybody leaves, or the node drains; and then nothing is left.

use super::scenario::Scenario;
use crate::node::Node;
use std::rc::Rc;
use std::time::Duration;

/// A shard of small slices has to be turned so often for what is left.
const TURNS_AFTER_THE_END: usize = 50;

impl Scenario {
    /// The node drains while clients go on. It comes to an end in time.
    pub(super) fn drain(&mut self) {
        self.facts.is_draining = true;
        self.facts.note("access: the node drains");
        self.drain_while(|scenario| {
            let kind = scenario.world.prng.below(190);
            scenario.happen(kind);
        });
        for client in &mut self.clients {
            self.world.net.resume(client.id);
        }
        self.settle();
        let is_accepted = self.world.net.backlog() == 0;
        for client in &mut self.clients {
            assert!(!is_accepted, "client {}: no end", client.number);
            client.leave(&self.world.net, &mut self.world.prng);
        }
        self.exchange(false);
        self.desk
            .clear(&self.world.mesh, self.world.now(), &mut self.world.prng);
        // Some was asked that nobody will answer.
        self.advance(2 * self.facts.fixed.ask_timeout);
        let now = self.world.now();
        for _ in 0..TURNS_AFTER_THE_END {
            for seat in &mut self.world.seats {
                seat.shard.turn(now);
            }
        }
        self.exchange(false);
        self.check_end();
    }

    /// All leave; then nothing is left.
    pub(super) fn leave(&mut self) {
        for client in &mut self.clients {
            client.leave(&self.world.net, &mut self.world.prng);
        }
        let patience = Rc::clone(&self.world.scene.plan).settings.linger_timeout;
        self.walk(patience + Duration::from_secs(1));
        self.desk
            .clear(&self.world.mesh, self.world.now(), &mut self.world.prng);
        self.walk(2 * self.facts.fixed.ask_timeout);
        assert!(self.clients.is_empty(), "somebody has seen no end");
        self.check_end();
    }

    pub(super) fn check_end(&mut self) {
        let missing = self.facts.orders.iter().find(|order| !order.is_answered());
        assert!(missing.is_none(), "nobody has answered {missing:?}");
        for (what, count) in std::mem::take(&mut self.facts.reached) {
            self.world.reach.add(what, count);
        }
        self.world.replies = self.world.sum(|metrics| &metrics.publications);
        self.world.check_end();
    }
}
