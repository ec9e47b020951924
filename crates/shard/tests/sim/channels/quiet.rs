//! Quiet moments: nothing is under way, so nobody misses anything, and nobody waits where nothing will come.

use super::facts::{ROOMS, STREAMS};
use super::reader::Reader;
use super::request::{From, Live};
use super::scenario::Scenario;
use super::tokens::Token;
use crate::members::Client;
use crate::node::Node;
use crate::verdict::{TICK_NS, ns};
use myriad_shard::{NoticedClient, StreamState};
use std::collections::BTreeSet;
use std::time::Duration;

/// What may come late: some ticks.
const SLACK_NS: u64 = 4 * TICK_NS;
/// Longer than a batch waits.
const BATCHES_LEAVE: Duration = Duration::from_millis(500);
/// Ticks that channels may wait for congested members.
const PAUSES_MAX: usize = 200;

impl Scenario {
    /// Everything that could be under way has arrived: requests that wait now have nothing on the way.
    pub(super) fn note_settled_requests(&mut self) {
        let now = self.world.scene.now;
        if self.world.net.backlog() > 0 || self.desk.is_awaited() {
            return;
        }
        for reader in &mut self.readers {
            let is_attentive = reader.is_attentive();
            if let Some(request) = reader.asked.front_mut().filter(|_| is_attentive) {
                request.settled_at.get_or_insert(now);
                request.alive_at = now;
            }
        }
    }

    /// Everybody reads all there is; then all agree.
    pub(super) fn check_quiet(&mut self) {
        for reader in &mut self.readers {
            reader.resume(&self.world.net);
        }
        for client in &mut self.clients {
            client.resume(&self.world.net);
        }
        for listener in &mut self.listeners {
            listener.resume(&self.world.net);
        }
        self.is_quiet = true;
        self.walk(BATCHES_LEAVE);
        for _ in 0..PAUSES_MAX {
            if self.world.mesh.publication_bytes() > 0 {
                self.walk(Duration::from_millis(50));
            }
        }
        assert_eq!(self.world.mesh.publication_bytes(), 0, "all is delivered");
        for room in 0..STREAMS {
            self.writers
                .describe(room, &self.world.mesh, &mut self.facts);
        }
        self.settle();
        assert!(self.writers.is_answered(), "somebody waits for an answer");
        let moment = self.facts.tick();
        let mut waiting = (0, 0);
        for index in 0..self.readers.len() {
            self.check_reader(index, moment, &mut waiting);
        }
        let is_accepted = self.world.net.backlog() == 0;
        if is_accepted && self.readers.iter().all(Reader::is_attentive) {
            self.check_gauges(waiting);
        }
        self.check_members();
        self.is_quiet = false;
        self.world.work.quiets += 1;
        self.facts.note("readers: a quiet moment");
        self.world.log(format_args!("quiet"));
    }

    /// Clients and listeners have everything, and the application and the members of a channel know who is there.
    fn check_members(&mut self) {
        for client in &self.clients {
            client.check_quiet(&mut self.facts);
        }
        for listener in &self.listeners {
            listener.check_quiet(&mut self.facts);
        }
        self.check_notices();
        let room = self.facts.draw_json_room(&mut self.world.prng);
        let asker = self.clients.iter().position(Client::may_ask);
        let Some(asker) = asker.filter(|_| !self.facts.may_be_unknown(room)) else {
            return;
        };
        let subscribed = self.clients.iter().filter(|one| one.is_subscribed(room));
        let expected: BTreeSet<String> = subscribed.map(|client| client.name.clone()).collect();
        let (net, facts) = (&self.world.net, &mut self.facts);
        let client = &mut self.clients[asker];
        client.ask_presence(net, room);
        client.publish_in_quiet(net, room, facts);
        client.send_apart(&self.world.mesh, facts);
        self.settle();
        let client = &mut self.clients[asker];
        client.end_quiet();
        if client.is_connected {
            client.check_presence(room, &expected, &self.facts);
        }
    }

    /// The application knows who is connected, and where somebody is subscribed.
    fn check_notices(&self) {
        let application = &self.world.application;
        let connected = self.clients.iter().filter(|client| client.is_connected);
        let connected = connected.count();
        // Readers of streams, and listeners, are told as well.
        let mut known = application.connected.values();
        let speaks = |client: &&NoticedClient| matches!(client.protocol, "json" | "protobuf");
        let known = known.by_ref().filter(speaks).count();
        assert!(
            (connected..=connected + self.guests.len()).contains(&known),
            "{connected} clients are connected, but the application knows {known}: {:?}",
            application.connected,
        );
        for (room, named) in ROOMS.iter().enumerate() {
            let is_occupied = self.clients.iter().any(|client| client.is_subscribed(room));
            assert!(!is_occupied || application.occupied.contains(named.name));
        }
    }

    /// It has been told everything, and is overdue for nothing.
    fn check_reader(&mut self, index: usize, moment: u64, waiting: &mut (u64, u64)) {
        let now = self.world.scene.now;
        let reader = &mut self.readers[index];
        let number = reader.number;
        if !reader.is_attentive() || self.world.net.backlog() > 0 {
            return;
        }
        let Some(request) = reader.asked.front_mut() else {
            return;
        };
        let name = ROOMS[request.room].name;
        let described = self.writers.described[&request.room].as_ref();
        let Some(StreamState {
            tail, is_closed, ..
        }) = described
        else {
            panic!("reader {number} waits at {name}, which is no stream");
        };
        let tail = tail.stream_offset();
        assert!(
            !is_closed,
            "reader {number} waits at {name}, which has ended"
        );
        let since = request.settled_at.expect("it was settled");
        let lasts = request.token.map_or(Duration::MAX, Token::lasts);
        assert!(
            u128::from(now - since) <= lasts.as_nanos() + u128::from(SLACK_NS),
            "reader {number}: its token has expired"
        );
        let at = match (request.live, &reader.events) {
            (Live::Poll, _) => {
                let held = now - since;
                let most = ns(self.facts.settings.readers.poll_max) + SLACK_NS;
                assert!(held <= most, "reader {number} is held for {held} ns");
                waiting.0 += 1;
                self.facts
                    .note("readers: a held request waits at a quiet moment");
                match request.from {
                    From::After(at) => Some(at),
                    _ => request.quiet.map(|(_, at)| at),
                }
            }
            (Live::Events, Some(events)) => {
                let interval = self.facts.settings.ping_interval;
                let silence = now - since.max(events.last_came_at);
                let is_alive = interval.is_zero() || silence <= ns(interval) + SLACK_NS;
                assert!(is_alive, "reader {number}: silence for {silence} ns");
                waiting.1 += 1;
                self.facts.note("readers: events go on at a quiet moment");
                events.at
            }
            (live, _) => panic!("reader {number} is not answered: {live:?} of {name}"),
        };
        let has_all = at.is_none_or(|at| at == tail);
        assert!(
            has_all,
            "reader {number} is at {at:?} of {name}, which ends at {tail}"
        );
        request.quiet = Some((moment, tail));
    }

    /// Figures are what clients see.
    pub(super) fn check_gauges(&self, (held, events): (u64, u64)) {
        let parked = self.world.sum(|metrics| &metrics.parked_polls);
        let streams = self.world.sum(|metrics| &metrics.event_streams);
        assert_eq!((parked, streams), (held, events), "held, and with events");
    }
}
