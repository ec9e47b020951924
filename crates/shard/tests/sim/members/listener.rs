//! A `raw` listener: data over a WebSocket, without positions, and without a word about what it missed.

use super::ledger::EpochName;
use super::subscription::Subscription;
use crate::channels::{Facts, Kind, ROOMS};
use crate::decoder::{Decoder, Item, close_of};
use crate::request;
use crate::secured::Net;
use myriad_reactor::sim::{PeerEnd, PeerId, Prng};
use std::collections::{BTreeSet, HashMap};

/// Channels of one listener.
const ROOMS_MAX: usize = 3;

#[derive(Debug)]
pub(crate) struct Listener {
    id: PeerId,
    number: usize,
    rooms: BTreeSet<usize>,
    decoder: Decoder,
    /// Since its handshake was answered.
    subscription: Option<Subscription>,
    /// What came, in its order.
    heard: Vec<usize>,
    is_stalled: bool,
    came_at: u64,
    is_gone: bool,
}

impl Listener {
    /// Connects, and asks for some channels, `room` among them.
    pub(crate) fn come(
        net: &Net,
        number: usize,
        room: Option<usize>,
        facts: &Facts,
        prng: &mut Prng,
    ) -> Self {
        let id = net.connect();
        let drawn = (0..prng.between(1, ROOMS_MAX)).map(|_| facts.draw_room(prng));
        let rooms: BTreeSet<usize> = drawn.chain(room).collect();
        let name = |room: &usize| format!("channel={}", ROOMS[*room].name.replace(':', "%3a"));
        let names: Vec<String> = rooms.iter().map(name).collect();
        let target = format!("/raw?{}", names.join("&"));
        net.write(id, &request::handshake(&target));
        Self {
            id,
            number,
            rooms,
            decoder: Decoder::new(),
            subscription: None,
            heard: Vec::new(),
            is_stalled: false,
            came_at: facts.now,
            is_gone: false,
        }
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone
    }

    pub(crate) fn act(&mut self, net: &Net, facts: &Facts, prng: &mut Prng) {
        match prng.below(12) {
            0 => self.leave(net, facts, prng),
            1 => {
                net.stall(self.id);
                self.is_stalled = true;
            }
            2..6 => self.resume(net),
            _ => {}
        }
    }

    pub(crate) fn resume(&mut self, net: &Net) {
        net.resume(self.id);
        self.is_stalled = false;
    }

    pub(crate) fn leave(&mut self, net: &Net, facts: &Facts, prng: &mut Prng) {
        if prng.one_in(2) {
            net.reset(self.id);
        } else {
            net.close(self.id);
        }
        self.check_order(facts);
        self.is_gone = true;
    }

    /// Reads what has come; true if anything did.
    pub(crate) fn receive(&mut self, net: &Net, facts: &mut Facts) -> bool {
        if self.is_gone || self.is_stalled {
            return false;
        }
        let mut bytes = net.read(self.id);
        let end = net.end(self.id);
        // The end may have come with more bytes.
        bytes.extend(net.read(self.id));
        self.decoder.push(&bytes);
        while let Some(item) = self.decoder.next() {
            self.take(item, net, facts);
        }
        if let Some(how) = end {
            self.check_end(how, facts);
            self.check_order(facts);
            net.close(self.id);
            self.is_gone = true;
        }
        !bytes.is_empty() || end.is_some()
    }

    fn take(&mut self, item: Item, net: &Net, facts: &mut Facts) {
        match item {
            Item::Upgraded { .. } => {
                self.subscription = Some(Subscription::bare(facts.ledger.tick()));
            }
            Item::Response { status, .. } => self.check_status(status, facts),
            Item::Frame {
                opcode: opcode @ (1 | 2),
                payload,
            } => {
                let subscription = self
                    .subscription
                    .as_mut()
                    .expect("its handshake comes first");
                let number = subscription.take_data(&payload, facts);
                let room = facts.ledger.attempts[number].room;
                assert!(self.rooms.contains(&room), "{number} is of another channel");
                let is_text = ROOMS[room].kind != Kind::Bytes;
                assert_eq!(opcode == 1, is_text, "the kind of {number}");
                self.heard.push(number);
            }
            Item::Frame { opcode: 9, payload } => {
                let mut pong = vec![0x8a, 0x80];
                pong.extend_from_slice(&[0; 4]);
                assert!(payload.is_empty(), "a ping says nothing");
                net.write(self.id, &pong);
            }
            Item::Frame { opcode: 8, payload } => {
                let code = close_of(&payload).map_or(0, |(code, _)| code);
                let is_plausible = match code {
                    3008 => facts.is_tight,
                    1013 => facts.is_tight,
                    1001 | 3001 => facts.is_draining,
                    3012 => facts.may_be_silent,
                    _ => false,
                };
                assert!(is_plausible, "listener {} is closed: {code}", self.number);
            }
            Item::Frame { opcode, .. } => panic!("a frame of opcode {opcode}"),
        }
    }

    fn check_status(&self, status: u16, facts: &Facts) {
        let is_late = facts.may_have_passed(self.came_at, facts.settings.handshake_timeout);
        let is_plausible = match status {
            408 => is_late,
            503 => facts.is_draining || facts.may_end_strangers() || is_late,
            404 | 403 | 400 => self.rooms.iter().any(|room| facts.may_be_unknown(*room)),
            _ => false,
        };
        assert!(
            is_plausible,
            "listener {} is answered {status}",
            self.number
        );
    }

    fn check_end(&self, how: PeerEnd, facts: &Facts) {
        let may_stall =
            facts.may_have_stalled(self.came_at) || facts.may_have_lingered(self.came_at);
        let has_cause = facts.is_draining || facts.is_tight || facts.may_be_silent || may_stall;
        let is_refused = self.subscription.is_none();
        assert!(
            has_cause || is_refused,
            "listener {} ends: {how:?}",
            self.number
        );
    }

    /// What came has the order of its channel.
    fn check_order(&self, facts: &Facts) {
        let mut last: HashMap<(usize, EpochName), u64> = HashMap::new();
        for number in &self.heard {
            let Some((epoch, offset)) = facts.ledger.place_of(*number) else {
                continue;
            };
            let room = facts.ledger.attempts[*number].room;
            let before = last.insert((room, epoch), offset).unwrap_or(0);
            assert!(
                before < offset,
                "listener {}: {number} comes late",
                self.number
            );
        }
    }

    /// Nothing is under way: everything has come.
    pub(crate) fn check_quiet(&self, facts: &mut Facts) {
        self.check_order(facts);
        let Some(subscription) = self.subscription.as_ref() else {
            return;
        };
        for &room in &self.rooms {
            if !facts.rules[room].may_drop {
                subscription.check_has_all(room, None, &facts.ledger);
                facts.note("sessions: a listener has everything at a quiet moment");
            }
        }
    }
}
