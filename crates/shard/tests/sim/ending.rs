//! How a run ends: everybody leaves, or the node drains; and then nothing is left.

use crate::control::ANSWER_BYTES_MAX;
use crate::node::Node;
use crate::peer::Peer;
use crate::verdict::{TICK_NS, ns};
use crate::world::World;
use myriad_reactor::Reactor;
use myriad_shard::{CLOSE_REASONS, CloseReason, Holdings, Metrics, REFUSALS};
use std::time::Duration;

/// What a drain may take beyond its window and the time of those who are left then: some ticks.
const DRAIN_SLACK_NS: u64 = 10 * TICK_NS;
/// No channel pauses longer.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Turns after which shards that have ended should rest.
const TURNS_MAX: usize = 200_000;

impl World {
    /// The peers leave, each in its way; then the node must be as new.
    pub(crate) fn leave(&mut self) {
        self.check_quiet();
        for peer in &mut self.peers {
            self.net.resume(peer.id);
            peer.is_stalled = false;
        }
        self.check_quiet();
        self.check_deliveries();
        let (net, prng) = (&self.net, &mut self.prng);
        for peer in &mut self.peers {
            match prng.below(6) {
                0 if peer.may_speak() => peer.close(prng),
                1 => break_off(peer, |peer| net.reset(peer.id)),
                2 => break_off(peer, |peer| net.time_out(peer.id)),
                3 => break_off(peer, |peer| net.close(peer.id)),
                _ if !peer.has_sent_fin => peer.fin(net),
                _ => {}
            }
        }
        self.log(format_args!("everybody leaves"));
        self.reach.note("node: everybody leaves");
        self.settle();
        let (net, prng) = (&self.net, &mut self.prng);
        for peer in &mut self.peers {
            if prng.one_in(2) && !peer.has_sent_fin {
                peer.fin(net);
            }
        }
        self.settle();
        // Some have closed and not ended their side, or never finished their request.
        let settings = &self.scene.plan.settings;
        let patience = settings.linger_timeout + settings.handshake_timeout;
        self.control.borrow_mut().give_up(&self.net);
        self.walk(patience + Duration::from_millis(200));
        for peer in &mut self.peers {
            break_off(peer, |peer| self.net.reset(peer.id));
        }
        self.settle();
        let delay = self.scene.plan.settings.notices.vacated_delay;
        self.walk(delay.unwrap_or_default() + Duration::from_millis(100));
        self.check_submits();
        self.check_end();
    }

    /// Each publication is submitted for the last time once.
    fn check_submits(&self) {
        let counted =
            |metrics: &Metrics| metrics.publish_to_last_submit.counts().iter().sum::<u64>();
        let submits: u64 = self.mesh.metrics().iter().map(counted).sum();
        assert_eq!(submits, self.replies);
    }

    /// The node drains while the crowd goes on; it must come to an end in time, whatever peers do.
    pub(crate) fn drain(&mut self, over: Duration) {
        self.log(format_args!("drains over {over:?}"));
        self.reach.note(if over.is_zero() {
            "node: drains at once"
        } else {
            "node: drains over time"
        });
        if self.prng.one_in(2) {
            // Some are in the middle of asking to be let in.
            (0..5).for_each(|_| self.connect());
            let shard = self.prng.below(self.seats.len());
            self.turn(shard);
        }
        let deadline = self.begin_drain(over);
        // Finer steps than the shards' own would only cost time.
        let pause = Duration::from_millis(20 + self.prng.below(30) as u64);
        while self.is_still_draining(deadline) {
            for _ in 0..self.prng.below(10) {
                self.step();
            }
            // In turn until all sleep, as threads would.
            for _ in 0..1000 {
                if !self.turn_all() {
                    break;
                }
            }
            self.advance(pause);
            if self.prng.one_in(50) {
                // Whoever is impatient says it again, which changes nothing.
                self.mesh.drain(Duration::ZERO);
            }
        }
        self.check_drained();
    }

    /// Begins a drain, and returns the time by which all shards must have ended.
    pub(crate) fn begin_drain(&mut self, over: Duration) -> u64 {
        self.mesh.drain(over);
        self.scene.is_draining = true;
        self.scene.draining_since = self.scene.now;
        let linger = self.scene.plan.settings.drain_linger;
        self.scene.now + ns(over) + ns(linger) + DRAIN_SLACK_NS
    }

    /// Whether some shard has not ended. None may go on after `deadline`, which [`World::begin_drain`] returned.
    pub(crate) fn is_still_draining(&self, deadline: u64) -> bool {
        let is_draining = self.seats.iter().any(|seat| !seat.is_finished);
        let is_late = self.scene.now > deadline;
        assert!(!is_draining || !is_late, "the drain does not end");
        is_draining
    }

    pub(crate) fn check_drained(&mut self) {
        self.log(format_args!("drained"));
        self.control.borrow_mut().give_up(&self.net);
        // What shards sent to peers that had left already, and what was published to shards that had ended before others.
        self.turn_until_nothing_is_due();
        self.replies += self.ledger.take_replies() as u64;
        self.ledger.check_replies();
        self.settle();
        // Only who does not read, or was never accepted, has not seen an end.
        let is_accepted = self.net.backlog() == 0;
        for peer in &self.peers {
            assert!(
                peer.is_stalled || !is_accepted,
                "peer {}: no end",
                peer.number
            );
        }
        for peer in &mut self.peers {
            break_off(peer, |peer| self.net.close(peer.id));
        }
        self.exchange_with_peers(false);
        self.turn_after_the_end();
        assert_eq!(self.mesh.publication_bytes(), 0);
        self.check_end();
    }

    /// Shards that have ended do what is left, as if they had gone on. A shard ends once it has no connections. A channel that
    /// paused when its last member left has deliveries to nobody then, and its home has not heard of the leave.
    pub(crate) fn turn_after_the_end(&mut self) {
        self.turn_until_nothing_is_due();
        self.advance(PAUSE_MAX);
        self.turn_until_nothing_is_due();
    }

    fn turn_until_nothing_is_due(&mut self) {
        let now = self.now();
        let mut turns = 0;
        while let Some(seat) = self
            .seats
            .iter_mut()
            .find(|seat| seat.shard.timeout(now) == Some(Duration::ZERO))
        {
            seat.shard.turn(now);
            turns += 1;
            assert!(turns < TURNS_MAX, "shards that have ended never rest");
        }
    }

    /// Deliveries are what open peers have got; the others may have lost some of theirs on the way.
    fn check_deliveries(&self) {
        let seen: u64 = self.peers.iter().map(|peer| peer.deliveries).sum();
        let deliveries = self.sum(|metrics| &metrics.deliveries);
        assert!(seen + self.former_peers.deliveries <= deliveries);
        let lost = self.closes();
        let is_exact = lost == 0;
        assert!(!is_exact || seen + self.former_peers.deliveries == deliveries);
    }

    /// Nothing is left, and all figures agree.
    pub(crate) fn check_end(&mut self) {
        for seat in &self.seats {
            seat.shard.check();
            assert_eq!(seat.shard.connection_count(), 0);
            assert_eq!(seat.shard.holdings(), Holdings::default());
            assert!(seat.shard.reactor().capacity() > 0);
        }
        self.application.check_end();
        assert_eq!(self.net.leaked(), []);
        assert_eq!(self.net.open_sockets(), 0);
        assert_eq!(self.net.open_handles(), 0);
        self.net.check_end();
        assert!(self.peers.is_empty() || self.scene.is_draining);
        self.check_figures();
        self.note_reach();
        self.work.clients = self.connected as u64;
        self.work.publications = self.replies;
        self.work.deliveries = self.former_peers.deliveries;
        self.work.received_bytes = self.former_peers.received_bytes;
        let limits = self.scene.plan.limits;
        assert_eq!(
            self.mesh.available().connections_max,
            limits.connections_max
        );
        self.seats.clear();
        assert_eq!(self.mesh.available(), limits);
    }

    fn check_figures(&self) {
        assert_eq!(self.came(), self.closes());
        assert_eq!(self.sum(|metrics| &metrics.connections), 0);
        assert_eq!(self.sum(|metrics| &metrics.buffered_bytes), 0);
        assert_eq!(self.sum(|metrics| &metrics.publications), self.replies);
        assert!(self.former_peers.deliveries <= self.sum(|metrics| &metrics.deliveries));
        assert!(self.former_peers.upgrades <= self.sum(|metrics| &metrics.upgrades));
        assert!(self.former_peers.pings <= self.sum(|metrics| &metrics.pings));
        let taken = self.control.borrow().taken;
        let from_shards = self.sum(|metrics| &metrics.sent_bytes);
        let answers = taken + self.control.borrow().turned_away;
        // The last byte of a record counts as sent once the record has left, and the connection may end before that.
        let withheld = self.net.secured_clients();
        let received = self.former_peers.received_bytes;
        assert!(received <= from_shards + answers * ANSWER_BYTES_MAX + withheld);
        assert_eq!(self.sum(|metrics| &metrics.handed_over), taken);
        let closes = |reason: CloseReason| self.sum(|metrics| &metrics.closes[reason as usize]);
        assert!(taken <= closes(CloseReason::HandedOver));
        let refusals = |label: &str| {
            let at = REFUSALS.iter().position(|known| *known == label);
            let at = at.expect("a known label");
            self.sum(|metrics| &metrics.refusals[at])
        };
        let (late, full, draining) = (
            refusals("handshake_timeout"),
            refusals("full"),
            refusals("draining"),
        );
        let overloaded = refusals("overloaded") + refusals("join_timeout");
        assert_eq!(late, closes(CloseReason::HandshakeTimeout));
        assert!(full <= closes(CloseReason::Full));
        assert!(draining <= closes(CloseReason::Drain));
        assert!(overloaded <= closes(CloseReason::Overloaded));
        let all: u64 = REFUSALS.iter().map(|label| refusals(label)).sum();
        let refused = all - late - full - draining - overloaded;
        let closed = closes(CloseReason::Refused);
        let is_exact = !self.scene.plan.limits_strangers;
        // A reader that is refused once keeps its connection.
        assert!(refused - refusals("reads") <= closed);
        assert!(closed <= refused || !is_exact);
    }

    /// Connections ended so far, by reason.
    pub(crate) fn closes_by_reason(&self) -> [u64; CLOSE_REASONS.len()] {
        std::array::from_fn(|reason| self.sum(|metrics| &metrics.closes[reason]))
    }
}

pub(crate) fn break_off(peer: &mut Peer, how: impl Fn(&Peer)) {
    how(peer);
    peer.is_broken = true;
}
