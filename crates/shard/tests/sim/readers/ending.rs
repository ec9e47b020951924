//! How a run of this simulation ends: everybody leaves, or the node drains; and then nothing is left.

use super::scenario::{META_TTL, Scenario};
use crate::ending::DRAIN_SLACK_NS;
use crate::verdict::ns;
use std::rc::Rc;
use std::time::Duration;

/// Channels that were read are kept for 2 s.
const LINGER: Duration = Duration::from_secs(3);

impl Scenario {
    /// The node drains while readers and writers go on. It comes to an end in time.
    pub(super) fn drain(&mut self) {
        let over = Duration::from_millis(*self.world.prng.pick(&[0, 300, 3_000]));
        self.world.log(format_args!("drains over {over:?}"));
        self.world.mesh.drain(over);
        self.world.scene.is_draining = true;
        self.facts.is_draining = true;
        self.facts.note("readers: the node drains");
        let linger = self.world.scene.plan.settings.linger_timeout;
        let deadline = self.world.scene.now + ns(over) + ns(linger) + DRAIN_SLACK_NS;
        while self.world.seats.iter().any(|seat| !seat.is_finished) {
            assert!(self.world.scene.now <= deadline, "the drain does not end");
            for _ in 0..self.world.prng.below(10) {
                let kind = self.world.prng.below(188);
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
        for reader in &mut self.readers {
            reader.resume(&self.world.net);
        }
        self.settle();
        let is_accepted = self.world.net.backlog() == 0;
        for reader in &self.readers {
            assert!(!is_accepted, "reader {}: no end", reader.number);
        }
        assert!(self.guests.is_empty() || !is_accepted, "a guest: no end");
        self.let_all_leave();
        self.exchange(false);
        // What shards sent to homes that had ended already; and histories are kept after their readers have gone.
        self.world.turn_after_the_end();
        self.world.advance(2 * META_TTL);
        self.world.turn_after_the_end();
        self.exchange(false);
        self.check_end();
    }

    /// All leave; then nothing is left.
    pub(super) fn leave(&mut self) {
        self.let_all_leave();
        let patience = Rc::clone(&self.world.scene.plan).settings.linger_timeout;
        self.walk(patience + LINGER);
        self.check_gauges((0, 0));
        self.walk(2 * META_TTL);
        self.check_end();
    }

    fn let_all_leave(&mut self) {
        let (net, prng) = (&self.world.net, &mut self.world.prng);
        for reader in &mut self.readers {
            reader.leave(net, prng);
        }
        for guest in &mut self.guests {
            guest.leave(net, prng);
        }
        self.desk.clear(&self.world.mesh);
    }

    fn check_end(&mut self) {
        assert!(self.writers.is_answered(), "somebody waits for an answer");
        for (what, count) in std::mem::take(&mut self.facts.reached) {
            self.world.reach.add(what, count);
        }
        self.world.replies = self.world.sum(|metrics| &metrics.publications);
        self.world.former_peers.deliveries = self.facts.told.min(self.deliveries());
        assert_eq!(self.world.mesh.publication_bytes(), 0);
        self.world.check_end();
    }

    fn deliveries(&self) -> u64 {
        self.world.sum(|metrics| &metrics.deliveries)
    }
}
