//! A client that speaks the Centrifuge protocol: what it asks, and what it may be told.

mod verdict;

use crate::decoder::{Decoder, Item, close_of};
use crate::desk::ERRORS;
use crate::request;
use crate::rooms::{Memory, ROOMS, Rooms, data_of, id_in, kind_of};
use crate::secured::Net;
use crate::verdict::{TICK_NS, ns};
use myriad_reactor::sim::{PeerEnd, PeerId, Prng};
use myriad_shard::{ErrorCode, Now};
use myriad_wire::centrifuge::Encoding;
use myriad_wire::centrifuge::client::{
    CommandWriter, Connected, Failure, Outcome, PresenceMap, Publication, Recovery, ServerEvent,
    ServerMessage, ServerMessages, Subscribed,
};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

/// The code with which a server that drains ends a session.
pub(crate) const SHUTDOWN: u16 = 3001;

/// A command that waits for its reply.
#[derive(Clone, Debug)]
enum Asked {
    Connect,
    Subscribe {
        room: usize,
        since: Option<Memory>,
        /// Publications that were issued when it was sent.
        issued: usize,
    },
    Unsubscribe(usize),
    Publish(u64),
    Presence(usize),
    History(usize),
    /// The place of the error that it is to get, and when it asked.
    Rpc(usize, Now),
}

/// A subscription that is made.
#[derive(Debug, Default)]
pub(crate) struct Visit {
    /// Everything that was issued from here on must come.
    issued: usize,
    epoch: String,
    /// The offset of the last publication, or the position at which it began.
    offset: u64,
    last: Option<u64>,
    received: HashSet<u64>,
    /// Offsets that did not come: its own publications.
    gaps: Vec<u64>,
    /// Whom it was told of, and who has not left since.
    joined: HashSet<String>,
}

#[derive(Debug)]
pub(crate) struct Visitor {
    pub(crate) id: PeerId,
    pub(crate) number: usize,
    has_user: bool,
    encoding: Encoding,
    decoder: Decoder,
    outbox: Vec<u8>,
    pub(crate) is_upgraded: bool,
    pub(crate) client: Option<String>,
    asked: HashMap<u32, Asked>,
    last_command: u32,
    pub(crate) visits: HashMap<usize, Visit>,
    /// Who was subscribed, by the last answers.
    pub(crate) members: HashMap<usize, BTreeSet<String>>,
    pub(crate) deliveries: u64,
    /// It answers pings.
    pub(crate) is_prompt: bool,
    pub(crate) is_stalled: bool,
    has_sent_fin: bool,
    /// It said something after which the server ends the connection.
    pub(crate) has_erred: bool,
    pub(crate) close: Option<u16>,
    is_broken: bool,
    end: Option<PeerEnd>,
    /// Everything that was kept once must be recovered.
    expects_recovery: bool,
    /// The time for an answer of the control plane.
    ask_timeout: Duration,
    /// The time when it reads.
    now: Now,
}

impl Visitor {
    pub(crate) fn new(
        id: PeerId,
        number: usize,
        user: Option<usize>,
        expects_recovery: bool,
        ask_timeout: Duration,
        prng: &mut Prng,
    ) -> Self {
        let encoding = *prng.pick(&[Encoding::Json, Encoding::Protobuf]);
        let mut head = request::handshake(match encoding {
            Encoding::Json => "/connection/websocket",
            Encoding::Protobuf => "/connection/websocket?format=protobuf",
        });
        if let Some(user) = user {
            head.truncate(head.len() - 2);
            head.extend(format!("x-user: {user}\r\n\r\n").bytes());
        }
        Self {
            id,
            number,
            has_user: user.is_some(),
            encoding,
            decoder: Decoder::new(),
            outbox: head,
            is_upgraded: false,
            client: None,
            asked: HashMap::new(),
            last_command: 0,
            visits: HashMap::new(),
            members: HashMap::new(),
            deliveries: 0,
            is_prompt: !prng.one_in(6),
            is_stalled: false,
            has_sent_fin: false,
            has_erred: false,
            close: None,
            is_broken: false,
            end: None,
            expects_recovery,
            ask_timeout,
            now: Now(0),
        }
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.is_broken || self.end.is_some()
    }

    pub(crate) fn may_speak(&self) -> bool {
        self.is_upgraded
            && !self.is_gone()
            && !self.has_sent_fin
            && !self.has_erred
            && self.close.is_none()
    }

    /// It has not sent its connect command.
    pub(crate) fn is_new(&self) -> bool {
        self.last_command == 0
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.client.is_some() && self.may_speak()
    }

    // Sending.

    pub(crate) fn write(&mut self, net: &Net, count: usize) -> bool {
        let count = count.min(self.outbox.len());
        if count == 0 || self.has_sent_fin || self.is_gone() {
            return false;
        }
        let bytes: Vec<u8> = self.outbox.drain(..count).collect();
        net.write(self.id, &bytes);
        true
    }

    /// Leaves, in one of the ways there are, in the middle of whatever it sends.
    pub(crate) fn leave(&mut self, net: &Net, prng: &mut Prng) {
        let some = prng.below(self.outbox.len() + 1);
        self.write(net, some);
        match prng.below(4) {
            0 => net.reset(self.id),
            1 => net.close(self.id),
            _ if !self.has_sent_fin => {
                net.fin(self.id);
                self.has_sent_fin = true;
                return;
            }
            _ => net.time_out(self.id),
        }
        self.is_broken = true;
    }

    fn ask(&mut self, asked: Asked) -> u32 {
        self.last_command += 1;
        self.asked.insert(self.last_command, asked);
        self.last_command
    }

    fn send(&mut self, prng: &mut Prng, write: impl FnOnce(&mut CommandWriter<'_>)) {
        let mut message = Vec::new();
        write(&mut CommandWriter::new(self.encoding, &mut message));
        self.send_message(&message, prng);
    }

    pub(crate) fn send_message(&mut self, message: &[u8], prng: &mut Prng) {
        let first = if self.encoding == Encoding::Json {
            0x81
        } else {
            0x82
        };
        request::frame(&mut self.outbox, first, message, prng);
    }

    pub(crate) fn connect(&mut self, token: &str, prng: &mut Prng) {
        let id = self.ask(Asked::Connect);
        self.send(prng, |writer| writer.connect(id, token, "sim"));
    }

    pub(crate) fn subscribe(&mut self, room: usize, rooms: &Rooms, prng: &mut Prng) {
        let known: Vec<_> = rooms
            .memories
            .iter()
            .filter(|memory| memory.room == room)
            .collect();
        let newest = known.last().copied();
        let since = match known.len() {
            0 => None,
            _ if prng.one_in(4) => None,
            _ if prng.one_in(2) => newest,
            count => Some(known[prng.below(count)]),
        };
        let since = since.cloned();
        let id = self.ask(Asked::Subscribe {
            room,
            since: since.clone(),
            issued: rooms.issues.len(),
        });
        self.send(prng, |writer| {
            let recovery = since.as_ref().map(|memory| Recovery {
                epoch: &memory.epoch,
                offset: memory.offset,
            });
            writer.subscribe(id, ROOMS[room], recovery, false);
        });
    }

    pub(crate) fn unsubscribe(&mut self, room: usize, prng: &mut Prng) {
        let id = self.ask(Asked::Unsubscribe(room));
        self.send(prng, |writer| writer.unsubscribe(id, ROOMS[room]));
    }

    pub(crate) fn publish(&mut self, room: usize, size: usize, rooms: &mut Rooms, prng: &mut Prng) {
        let publication = rooms.issue(room, Some(self.number));
        let id = self.ask(Asked::Publish(publication));
        let data = data_of(publication, size, true);
        self.send(prng, |writer| writer.publish(id, ROOMS[room], &data));
    }

    pub(crate) fn ask_members(&mut self, room: usize, prng: &mut Prng) {
        let id = self.ask(Asked::Presence(room));
        self.send(prng, |writer| writer.presence(id, ROOMS[room]));
    }

    pub(crate) fn ask_history(&mut self, room: usize, prng: &mut Prng) {
        let (id, limit) = (self.ask(Asked::History(room)), prng.below(20));
        let limit = u32::try_from(limit).expect("small");
        self.send(prng, |writer| writer.history(id, ROOMS[room], limit));
    }

    /// Asks the control plane for an error.
    pub(crate) fn rpc(&mut self, now: Now, prng: &mut Prng) {
        let wanted = prng.below(ERRORS.len());
        let id = self.ask(Asked::Rpc(wanted, now));
        let method = wanted.to_string();
        self.send(prng, |writer| writer.rpc(id, &method, method.as_bytes()));
    }

    /// Says something that ends the connection.
    pub(crate) fn err(&mut self, prng: &mut Prng) {
        match prng.below(4) {
            0 => self.send_message(b"\xff{ no command", prng),
            1 if self.client.is_none() && self.last_command == 0 => self.connect("token", prng),
            2 if self.client.is_some() && self.encoding == Encoding::Json => {
                self.send_message(b"{\"send\":{\"data\":{}}}", prng);
            }
            _ => {
                self.connect("", prng);
                self.connect("", prng);
            }
        }
        self.has_erred = true;
    }

    // Receiving.

    /// Takes what has come, and checks it. True when something came.
    pub(crate) fn receive(
        &mut self,
        net: &Net,
        rooms: &mut Rooms,
        now: Now,
        prng: &mut Prng,
    ) -> bool {
        self.now = now;
        if self.is_broken {
            return false;
        }
        let mut bytes = net.read(self.id);
        if self.end.is_none() {
            self.end = net.end(self.id);
            bytes.extend(net.read(self.id));
        }
        self.decoder.push(&bytes);
        while let Some(item) = self.decoder.next() {
            match item {
                Item::Upgraded { .. } => self.is_upgraded = true,
                Item::Response { .. } => self.has_erred = true,
                Item::Frame {
                    opcode: 1 | 2,
                    payload,
                } => self.take_message(&payload, rooms, prng),
                Item::Frame { opcode: 8, payload } => {
                    self.close = Some(close_of(&payload).map_or(0, |(code, _)| code));
                }
                Item::Frame { opcode, .. } => panic!("a frame of opcode {opcode}"),
            }
        }
        if self.end.is_some() && !self.has_sent_fin {
            let has_end = self.end != Some(PeerEnd::Fin) || self.close.is_some();
            assert!(has_end || !self.is_upgraded, "ends without a word");
            net.fin(self.id);
            self.has_sent_fin = true;
        }
        !bytes.is_empty()
    }

    fn take_message(&mut self, payload: &[u8], rooms: &mut Rooms, prng: &mut Prng) {
        for message in ServerMessages::new(self.encoding, payload) {
            match message.expect("what a server may send") {
                ServerMessage::Ping if self.is_prompt && self.may_speak() => {
                    self.send(prng, |writer| writer.pong());
                }
                ServerMessage::Ping => {}
                ServerMessage::Reply { id, outcome } => {
                    let asked = self.asked.remove(&id).expect("one reply to each command");
                    match outcome {
                        Ok(outcome) => self.take_reply(asked, outcome, rooms),
                        Err(failure) => self.take_failure(&asked, &failure, rooms),
                    }
                }
                ServerMessage::Push { channel, event, .. } => {
                    let room = ROOMS.iter().position(|room| *room == channel);
                    match room {
                        Some(room) => self.take_push(room, event, rooms),
                        // Its user's own channel.
                        None => assert!(channel.contains('#'), "a push of {channel}"),
                    }
                }
            }
        }
    }

    fn take_failure(&self, asked: &Asked, failure: &Failure<'_>, rooms: &mut Rooms) {
        assert!(failure.code >= 100, "{failure:?}");
        let Asked::Rpc(wanted, asked_at) = asked else {
            return;
        };
        if failure.code != ErrorCode::Internal.code() {
            assert_eq!(failure.code, ERRORS[*wanted].code(), "another's answer");
            rooms.reached.insert("session: the control plane answers");
            return;
        }
        assert!(failure.temporary);
        if failure.message.contains("in time") {
            let waited = self.now.0 - asked_at.0;
            let timeout = ns(self.ask_timeout);
            assert!(waited + TICK_NS > timeout, "told so after {waited} ns");
            rooms
                .reached
                .insert("session: the control plane is too late");
        } else {
            assert!(failure.message.contains("too many"), "{failure:?}");
            rooms
                .reached
                .insert("session: too many wait for the control plane");
        }
    }

    fn take_reply(&mut self, asked: Asked, outcome: Outcome<'_>, rooms: &mut Rooms) {
        match (asked, outcome) {
            (Asked::Connect, Outcome::Connected(Connected { client, .. })) => {
                assert_eq!(self.client, None, "connected twice");
                self.client = Some(client.into_owned());
            }
            (
                Asked::Subscribe {
                    room,
                    since,
                    issued,
                },
                Outcome::Subscribed(subscribed),
            ) => {
                self.begin_visit(room, since, issued, &subscribed, rooms);
            }
            (Asked::Unsubscribe(room), Outcome::Unsubscribed) => self.end_visit(room, rooms),
            (Asked::Publish(id), Outcome::Published) => rooms.accept(id),
            (Asked::Presence(room), Outcome::Presence(PresenceMap { presence })) => {
                let members = presence.keys().map(|client| client.clone().into_owned());
                self.members.insert(room, members.collect());
            }
            (Asked::History(room), Outcome::History(history)) => {
                self.check_history(room, &history, rooms);
            }
            (asked, outcome) => panic!("{asked:?} is answered {outcome:?}"),
        }
    }

    fn begin_visit(
        &mut self,
        room: usize,
        since: Option<Memory>,
        issued: usize,
        subscribed: &Subscribed<'_>,
        rooms: &mut Rooms,
    ) {
        assert!(!self.visits.contains_key(&room), "subscribed twice");
        let kind = kind_of(room);
        assert_eq!(subscribed.recoverable, kind.has_history);
        assert_eq!(subscribed.positioned, kind.has_history);
        let is_recovering = since.is_some();
        assert_eq!(subscribed.was_recovering, is_recovering);
        let mut visit = Visit {
            issued: rooms.issues.len(),
            epoch: subscribed.epoch.clone().into_owned(),
            offset: subscribed.offset,
            ..Visit::default()
        };
        if subscribed.recovered {
            let since = since.expect("recovers only if asked");
            assert!(since.epoch.is_empty() || since.epoch == visit.epoch);
            assert_eq!(subscribed.offset, since.offset, "counts on from its own");
            rooms.reached.insert("session: recovered");
            if !subscribed.publications.is_empty() {
                rooms.reached.insert("session: recovered with publications");
            }
            if issued < rooms.issues.len() {
                rooms
                    .reached
                    .insert("session: recovered while publishers were busy");
            }
        } else {
            assert!(subscribed.publications.is_empty(), "a part is no recovery");
            if is_recovering && kind.has_history {
                assert!(!self.expects_recovery, "all was kept: {since:?}");
                rooms.reached.insert("session: not recovered");
            }
        }
        rooms.see_top(room, &visit.epoch, visit.offset);
        for publication in &subscribed.publications {
            // Its own are among them.
            self.check_order(rooms, room, &visit.epoch, visit.offset, publication.offset);
            visit.offset = publication.offset - 1;
            visit.take(room, self.encoding, publication, rooms);
        }
        self.visits.insert(room, visit);
    }

    fn end_visit(&mut self, room: usize, rooms: &mut Rooms) {
        if let Some(visit) = self.visits.remove(&room)
            && kind_of(room).has_history
        {
            rooms.memories.push(Memory {
                room,
                epoch: visit.epoch,
                offset: visit.offset,
            });
        }
    }

    /// It has gone: somebody may come back in its place.
    pub(crate) fn end_visits(&mut self, rooms: &mut Rooms) {
        let mut open: Vec<usize> = self.visits.keys().copied().collect();
        open.sort_unstable();
        open.into_iter()
            .for_each(|room| self.end_visit(room, rooms));
    }

    fn take_push(&mut self, room: usize, event: ServerEvent<'_>, rooms: &mut Rooms) {
        let own = self.number;
        let visit = self.visits.get_mut(&room);
        let visit =
            visit.unwrap_or_else(|| panic!("{}: {event:?} without subscription", ROOMS[room]));
        match event {
            ServerEvent::Publication(publication) => {
                let id = id_in(publication.data.as_bytes());
                let excluded = kind_of(room).excludes_sender;
                assert!(
                    !excluded || rooms.issued(id).publisher != Some(own),
                    "its own"
                );
                // Who reads JSON is not told of what is none. The quiet moment judges what was left out.
                let may_skip = excluded || self.encoding == Encoding::Json;
                if publication.offset > 0 && may_skip {
                    let missed = visit.offset + 1..publication.offset;
                    visit.offset = visit.offset.max(publication.offset - 1);
                    visit.gaps.extend(missed);
                }
                visit.take(room, self.encoding, &publication, rooms);
                self.deliveries += 1;
            }
            ServerEvent::Join(info) => {
                let is_new = visit.joined.insert(info.client.clone().into_owned());
                assert!(is_new, "joined twice: {info:?}");
            }
            ServerEvent::Leave(info) => {
                visit.joined.remove(&*info.client);
            }
            ServerEvent::Unsubscribed(unsubscribed) => {
                assert_eq!(unsubscribed.code, 2500);
                rooms.reached.insert("session: told of a gap");
                self.end_visit(room, rooms);
            }
            other => panic!("a push of {other:?}"),
        }
    }
}

impl Visit {
    /// The next publication of the channel.
    fn take(
        &mut self,
        room: usize,
        encoding: Encoding,
        publication: &Publication<'_>,
        rooms: &mut Rooms,
    ) {
        let id = id_in(publication.data.as_bytes());
        let kind = kind_of(room);
        if kind.has_history {
            let next = self.offset + 1;
            assert_eq!(publication.offset, next, "{}: a hole", ROOMS[room]);
            self.offset = next;
            rooms.see(room, &self.epoch, next, id);
        } else {
            assert_eq!(publication.offset, 0, "a position without history");
            assert_eq!(rooms.issued(id).room, room, "of another channel");
            if let Some(last) = self.last.filter(|_| !kind.may_drop) {
                rooms.see_pair(room, encoding, last, id);
            }
        }
        self.last = Some(id);
        assert!(self.received.insert(id), "{}: {id} twice", ROOMS[room]);
    }
}
