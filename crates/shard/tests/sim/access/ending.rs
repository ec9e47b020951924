//! How a run of this simulation ends: everybody leaves, or the node drains; and then nothing is left.

use super::scenario::Scenario;
use crate::ending::DRAIN_SLACK_NS;
use crate::verdict::ns;
use std::rc::Rc;
use std::time::Duration;

/// A shard of small slices has to be turned so often for what is left.
const TURNS_AFTER_THE_END: usize = 50;

impl Scenario {
    /// The node drains while clients go on. It comes to an end in time.
    pub(super) fn drain(&mut self) {
        let over = Duration::from_millis(*self.world.prng.pick(&[0, 300, 3_000]));
        self.world.log(format_args!("drains over {over:?}"));
        self.world.mesh.drain(over);
        self.world.scene.is_draining = true;
        self.facts.is_draining = true;
        self.facts.note("access: the node drains");
        let linger = self.world.scene.plan.settings.linger_timeout;
        let deadline = self.world.scene.now + ns(over) + ns(linger) + DRAIN_SLACK_NS;
        while self.world.seats.iter().any(|seat| !seat.is_finished) {
            assert!(self.world.scene.now <= deadline, "the drain does not end");
            for _ in 0..self.world.prng.below(10) {
                let kind = self.world.prng.below(190);
                self.happen(kind);
            }
            for _ in 0..1_000 {
                let mut is_awake = false;
                for index in 0..self.world.seats.len() {
                    is_awake |= self.world.turn(index);
                }
                self.exchange(false);
                if !is_awake {
                    break;
                }
            }
            let pause = 20 + self.world.prng.below(30) as u64;
            self.advance(Duration::from_millis(pause));
        }
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
