//! How a run of this simulation ends: everybody leaves, or the node drains; and then nothing is left.

use super::scenario::{META_TTL, Scenario};
use crate::members::Client;
use crate::node::Node;
use std::rc::Rc;
use std::time::Duration;

/// Channels that were read are kept for 2 s.
const LINGER: Duration = Duration::from_secs(3);

impl Scenario {
    /// The node drains while readers and writers go on. It comes to an end in time.
    pub(super) fn drain(&mut self) {
        self.facts.is_draining = true;
        self.facts.note("readers: the node drains");
        if !self.clients.is_empty() {
            self.facts.note("sessions: the node drains");
        }
        self.drain_while(|scenario| {
            let kind = scenario.world.prng.below(188);
            scenario.happen(kind);
        });
        for reader in &mut self.readers {
            reader.resume(&self.world.net);
        }
        for client in &mut self.clients {
            client.resume(&self.world.net);
        }
        for listener in &mut self.listeners {
            listener.resume(&self.world.net);
        }
        self.settle();
        let is_accepted = self.world.net.backlog() == 0;
        for reader in &self.readers {
            assert!(!is_accepted, "reader {}: no end", reader.number);
        }
        assert!(self.guests.is_empty() || !is_accepted, "a guest: no end");
        assert!(
            self.listeners.is_empty() || !is_accepted,
            "a listener: no end"
        );
        let has_all_ended = self.clients.iter().all(Client::is_gone);
        assert!(has_all_ended || !is_accepted, "a client: no end");
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
        for client in &mut self.clients {
            client.check_left_out(&self.facts);
            client.leave(net, prng.one_in(2));
        }
        self.facts.ledger.check_glimpses();
        for listener in &mut self.listeners {
            listener.leave(net, &self.facts, prng);
        }
        self.desk.clear(&self.world.mesh);
    }

    fn check_end(&mut self) {
        assert!(self.writers.is_answered(), "somebody waits for an answer");
        for (what, count) in std::mem::take(&mut self.facts.reached) {
            self.world.reach.add(what, count);
        }
        let [channels, clients] = self.world.application.told;
        let dropped = self.world.sum(|metrics| &metrics.dropped_publications);
        for (what, count) in [
            ("sessions: a channel is occupied or vacated", channels),
            ("sessions: a client connects or disconnects", clients),
            (
                "sessions: publications are dropped for a slow client",
                dropped,
            ),
        ] {
            self.world.reach.add(what, count);
        }
        self.world.replies = self.world.sum(|metrics| &metrics.publications);
        self.world.former_peers.deliveries = self.facts.told.min(self.deliveries());
        assert_eq!(self.world.mesh.publication_bytes(), 0);
        self.desk.forget();
        self.world.check_end();
    }

    fn deliveries(&self) -> u64 {
        self.world.sum(|metrics| &metrics.deliveries)
    }
}
