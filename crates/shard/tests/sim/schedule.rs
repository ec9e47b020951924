//! What happens in a run: one random thing after another.

use crate::compression::Offer;
use crate::ledger::{NAMED_BYTES_MIN, TINY};
use crate::node::Node;
use crate::peer::{Errand, Manners, Peer};
use crate::plan::Clock;
use crate::request;
use crate::world::World;
use myriad_reactor::sim::Chance;
use std::time::Duration;

impl World {
    /// One step of the schedule.
    pub(crate) fn step(&mut self) {
        self.work.steps += 1;
        let weights = self.scene.plan.weights;
        let kinds = [
            weights.turn,
            weights.act,
            weights.publish,
            weights.connect,
            weights.time,
        ];
        let mut at = self.prng.below(kinds.iter().sum());
        let kind = kinds.iter().position(|weight| {
            let is_it = at < *weight;
            at = at.saturating_sub(*weight);
            is_it
        });
        match kind {
            Some(0) => {
                let shard = self.prng.below(self.seats.len());
                self.turn(shard);
            }
            Some(1) => self.act(),
            Some(2) => self.publish(),
            Some(3) => self.connect(),
            _ => self.pass_time(),
        }
    }

    // Time.

    fn pass_time(&mut self) {
        let is_calm = self.scene.plan.clock == Clock::Calm;
        let ms = Duration::from_millis;
        let small = Duration::from_micros(self.prng.between(1, 2_000) as u64);
        match self.prng.below(60) {
            // How long a drain may take is measured: no leaps.
            _ if self.scene.is_draining => self.advance(small),
            0 if is_calm => {
                let jump = [ms(300), ms(3_000), ms(30_000), ms(20_000_000)];
                let jump = *self.prng.pick(&jump);
                self.check_quiet();
                self.advance(jump);
                self.settle();
            }
            1 | 2 if is_calm => {
                let time = *self.prng.pick(&[ms(120), ms(1_000), ms(11_000)]);
                self.log(format_args!("walks {time:?}"));
                self.walk(time);
            }
            3 => self.check_pings(),
            0..8 if !is_calm => {
                let jump = [ms(50), ms(120), ms(1_000), ms(11_000), ms(20_000_000)];
                let jump = *self.prng.pick(&jump);
                if self.has_messages() {
                    self.reach
                        .note("node: time leaps while messages are under way");
                }
                self.advance(jump);
            }
            _ if is_calm => self.advance(small),
            _ => self.advance(10 * small),
        }
    }

    /// Who answers pings goes on getting them.
    fn check_pings(&mut self) {
        let plan = std::rc::Rc::clone(&self.scene.plan);
        let interval = plan.settings.ping_interval;
        let is_possible = !interval.is_zero() && plan.clock == Clock::Calm;
        if !is_possible {
            return;
        }
        self.settle();
        let answering = |peer: &&Peer| {
            peer.may_speak()
                && peer.manners.is_prompt
                && !peer.manners.is_slow_writer
                && !peer.is_stalled
        };
        let before: Vec<(usize, u64)> = self
            .peers
            .iter()
            .filter(answering)
            .map(|peer| (peer.number, peer.pings))
            .collect();
        let longest = interval.max(plan.settings.pong_timeout) + Duration::from_millis(200);
        self.log(format_args!("counts pings"));
        self.walk(3 * longest);
        for (number, pings) in before {
            let Some(peer) = self.peers.iter().find(|peer| peer.number == number) else {
                continue;
            };
            let more = peer.pings - pings;
            assert!(more >= 2, "peer {number}: {more} pings in three intervals");
        }
    }

    // Publishing.

    fn publish(&mut self) {
        if self.prng.one_in(100) {
            // For backpressured peers this is more than one gathered send takes.
            let channel = self.prng.between(TINY + 1, self.scene.plan.channels() - 1);
            (0..200).for_each(|_| self.publish_to(channel, NAMED_BYTES_MIN));
            return;
        }
        for _ in 0..*self.prng.pick(&[1, 1, 1, 3, 12]) {
            let channel = self.prng.below(self.scene.plan.channels());
            let size = self.payload_size(channel);
            self.publish_to(channel, size);
        }
    }

    pub(crate) fn publish_to(&mut self, channel: usize, size: usize) {
        let limits = self.scene.plan.limits;
        let is_unheard = self.is_unheard();
        let outcome = self.ledger.publish(
            &self.mesh,
            channel,
            size,
            limits,
            is_unheard,
            &mut self.prng,
        );
        self.log(format_args!("publish to {channel}, {size} B: {outcome:?}"));
        self.reach.note(match outcome {
            Ok(_) => "publish: accepted".to_owned(),
            Err(refused) => format!("publish: {refused:?}"),
        });
    }

    fn payload_size(&mut self, channel: usize) -> usize {
        if channel == TINY {
            return self.prng.below(NAMED_BYTES_MIN);
        }
        let max = self.scene.plan.payload_bytes_max;
        let size = match self.prng.below(30) {
            0 => max,
            1 => self.prng.between(0, max),
            2 | 3 => *self.prng.pick(&[123, 124, 125, 126, 127, 65_535, 65_536]),
            4..10 => self.prng.between(0, 1000),
            _ => self.prng.between(0, 60),
        };
        size.clamp(NAMED_BYTES_MIN, max)
    }

    // The crowd.

    pub(crate) fn connect(&mut self) {
        let plan = &self.scene.plan;
        if plan.has_storms && self.prng.one_in(10) {
            // More at once than are even told that there is no room.
            self.log(format_args!("a storm"));
            self.reach.note("node: a storm of clients");
            (0..300).for_each(|_| self.connect_for(Errand::Stream, &[1]));
        }
        let plan = &self.scene.plan;
        if self.peers.len() >= plan.peers_max {
            return;
        }
        if plan.is_churning && self.prng.one_in(3) {
            return self.churn();
        }
        let kind = self.prng.below(20);
        let errand = match kind {
            0..13 => Errand::Stream,
            13..15 => Errand::Echo,
            15 => Errand::Api,
            16 => Errand::Unfinished,
            _ => {
                let bad = request::bad_request(&mut self.prng, &self.scene.plan.settings);
                let errand = Errand::Refused {
                    status: bad.status,
                    is_found_late: bad.is_found_late,
                };
                return self.add_peer(errand, &[], bad.bytes, None);
            }
        };
        let mut channels: Vec<usize> = Vec::new();
        for _ in 0..*self.prng.pick(&[1, 1, 2, 4]) {
            let channel = self.prng.below(self.scene.plan.channels());
            if !channels.contains(&channel) {
                channels.push(channel);
            }
        }
        self.connect_for(errand, &channels);
    }

    /// Everybody wants the same channel, or has just left it.
    fn churn(&mut self) {
        let channel = self.prng.below(self.scene.plan.channels());
        for _ in 0..12 {
            match self.prng.below(6) {
                0 | 1 => self.connect_for(Errand::Stream, &[channel]),
                2 => {
                    let size = self.payload_size(channel);
                    self.publish_to(channel, size);
                }
                _ => {
                    let shard = self.prng.below(self.seats.len());
                    self.turn(shard);
                }
            }
        }
    }

    /// A client with a proper request.
    pub(crate) fn connect_for(&mut self, errand: Errand, channels: &[usize]) {
        let may_offer =
            self.scene.plan.has_offers && matches!(errand, Errand::Stream | Errand::Echo);
        let offer = (may_offer && self.prng.one_in(2)).then(|| Offer::random(&mut self.prng));
        let request = match errand {
            Errand::Stream => {
                // Some ask for the same channel twice, which changes nothing.
                let again = self.prng.below(channels.len() * 4);
                let pairs: Vec<String> = channels
                    .iter()
                    .chain(channels.get(again))
                    .map(|channel| format!("channel={}", self.ledger.query_name(*channel)))
                    .collect();
                request::handshake_with(&format!("/raw?{}", pairs.join("&")), offer)
            }
            Errand::Echo => request::handshake_with("/echo?x=y", offer),
            Errand::Api => request::api_request(&mut self.prng),
            _ => {
                let whole = request::handshake("/raw?channel=a");
                let part = self.prng.below(whole.len());
                whole[..part].to_vec()
            }
        };
        self.add_peer(errand, channels, request, offer);
    }

    fn add_peer(
        &mut self,
        errand: Errand,
        channels: &[usize],
        request: Vec<u8>,
        offer: Option<Offer>,
    ) {
        let manners = Manners {
            is_prompt: !self.prng.one_in(6),
            ends_its_side: !self.prng.one_in(6),
            is_slow_writer: self.prng.one_in(12),
        };
        let is_handed_back = self.prng.one_in(8);
        let id = if is_handed_back {
            let (id, handle) = self.net.connect_elsewhere();
            self.control.borrow_mut().keep(handle);
            id
        } else {
            self.net.connect()
        };
        let may_be_lost = self.scene.plan.faults.transfer_failure != Chance::NEVER;
        if may_be_lost && matches!(errand, Errand::Api) {
            self.net.may_be_cut(id);
        }
        let number = self.connected;
        self.connected += 1;
        self.log(format_args!(
            "peer {number}: {errand:?} {channels:?} {manners:?} {offer:?}"
        ));
        let is_stream = matches!(errand, Errand::Stream);
        let mut peer = Peer::new(id, number, errand, manners, request, self.scene.now);
        peer.is_handed_back = is_handed_back;
        peer.is_too_late = self.is_drain_known();
        peer.offer = offer;
        if is_stream {
            if !self.has_messages() {
                self.ledger.note_known();
            }
            for &channel in channels {
                peer.subscribe(channel, self.ledger.known(channel));
            }
            if self.prng.one_in(8) {
                let frames = *self.prng.pick(&[1, 3, 300]);
                peer.hurry(&self.scene.plan, frames, &mut self.prng);
            }
        }
        if !self.prng.one_in(4) && !manners.is_slow_writer {
            peer.write_all(&self.net, self.scene.now);
        }
        if self.scene.plan.is_churning && self.prng.one_in(2) && !peer.has_outbox() {
            // Gone again before any answer: what it asked of others is answered to whoever comes next.
            self.log(format_args!("peer {number}: leaves at once"));
            peer.fin(&self.net);
        }
        self.peers.push(peer);
    }

    /// Some peer does something.
    fn act(&mut self) {
        if self.peers.is_empty() {
            return;
        }
        let at = self.prng.below(self.peers.len());
        let mut kind = self.prng.below(100);
        if self.scene.plan.is_churning && self.prng.one_in(2) {
            kind = self.prng.between(94, 97);
        }
        let (net, prng, plan) = (&self.net, &mut self.prng, &self.scene.plan);
        let peer = &mut self.peers[at];
        let number = peer.number;
        match kind {
            0..40 if peer.has_outbox() => {
                let most = if peer.manners.is_slow_writer { 2 } else { 500 };
                peer.write(net, prng.between(1, most), self.scene.now);
                return;
            }
            40..55 => {
                net.stall(peer.id);
                (peer.is_stalled, peer.has_stalled) = (true, true);
            }
            55..68 => {
                net.resume(peer.id);
                peer.is_stalled = false;
            }
            68..76 if peer.may_speak() => peer.ping(prng),
            76..90 if peer.may_speak() => peer.message(plan, prng),
            90..92 if peer.may_speak() => peer.close(prng),
            92..94 if peer.may_speak() => peer.break_a_rule(plan, prng),
            94 if !peer.has_sent_fin => peer.fin(net),
            95 => {
                peer.is_broken = true;
                net.reset(peer.id);
            }
            96 => {
                peer.is_broken = true;
                net.time_out(peer.id);
            }
            97 => {
                peer.is_broken = true;
                net.close(peer.id);
            }
            _ => return,
        }
        self.log(format_args!("peer {number}: does {kind}"));
    }
}
