//! A client with a session: what it asks for. What it must see is in `told`.

mod told;

use super::TAG;
use super::TAGS;
use super::ledger::data_of;
use super::socket::{Socket, Way};
use super::subscription::{ELSEWHERE, LeftOut, Subscription};
use crate::channels::{Facts, ROOMS};
use crate::secured::Net;
use myriad_reactor::sim::Prng;
use myriad_shard::{Mesh, StreamOffset};
use myriad_wire::centrifuge::client::{CommandWriter, Recovery};
use myriad_wire::centrifuge::{Encoding, EventId};
use std::collections::{BTreeSet, HashMap};

/// Subscriptions that a client may ask for with its connect command.
const SUBSCRIPTIONS_MAX: usize = 4;

/// A position that a client would recover from: its epoch and offset.
type Since = (String, u64);

/// A command that waits for its answer.
#[derive(Debug)]
enum Asked {
    /// With the subscriptions that it had.
    Connect(HashMap<usize, Option<Since>>),
    Subscribe {
        room: usize,
        since: Option<Since>,
        delta: bool,
        tag: Option<&'static str>,
    },
    Unsubscribe(usize),
    Publish(usize),
    History(usize),
    Presence(usize),
}

#[derive(Debug)]
pub(crate) struct Client {
    id: usize,
    encoding: Encoding,
    way: Way,
    /// The names of node and session, where messages go apart.
    address: Option<(String, String)>,
    socket: Option<Socket>,
    /// Counts its connections.
    connection: u64,
    pub(crate) name: String,
    pub(crate) is_connected: bool,
    has_sent_nonsense: bool,
    was_stalled: bool,
    /// It has asked for subscriptions with its connection.
    has_server_side: bool,
    /// Nothing is under way: there must be room for what it publishes.
    has_quiet: bool,
    /// The last message told a publication.
    has_just_got: bool,
    last_command: u32,
    asked: HashMap<u32, Asked>,
    subscriptions: HashMap<usize, Subscription>,
    /// Where it would recover from.
    positions: HashMap<usize, Since>,
    /// Places that it was not given.
    left_out: Vec<LeftOut>,
    /// The last answers to presence.
    presence: HashMap<usize, BTreeSet<String>>,
}

impl Client {
    pub(crate) fn new(id: usize, prng: &mut Prng) -> Self {
        let encoding = *prng.pick(&[Encoding::Json, Encoding::Protobuf]);
        let way = match encoding {
            Encoding::Json => *prng.pick(&[
                Way::WebSocket,
                Way::WebSocket,
                Way::HttpStream,
                Way::Sse,
                Way::UniHttpStream,
                Way::UniSse,
                Way::UniWebSocket,
            ]),
            Encoding::Protobuf => *prng.pick(&[Way::WebSocket, Way::HttpStream]),
        };
        Self::over(id, encoding, way)
    }

    pub(crate) fn over(id: usize, encoding: Encoding, way: Way) -> Self {
        Self {
            id,
            encoding,
            way,
            address: None,
            socket: None,
            connection: 0,
            name: String::new(),
            is_connected: false,
            has_sent_nonsense: false,
            was_stalled: false,
            has_server_side: false,
            has_quiet: false,
            has_just_got: false,
            last_command: 0,
            asked: HashMap::new(),
            subscriptions: HashMap::new(),
            positions: HashMap::new(),
            left_out: Vec::new(),
            presence: HashMap::new(),
        }
    }

    fn command(&mut self, asked: Asked) -> u32 {
        self.last_command += 1;
        self.asked.insert(self.last_command, asked);
        self.last_command
    }

    fn is_idle_in(&self, room: usize) -> bool {
        let concerns = |asked: &Asked| matches!(asked, Asked::Subscribe { room: of, .. } | Asked::Unsubscribe(of) if *of == room);
        !self.asked.values().any(concerns)
    }

    /// A client that reads JSON reads no other streams.
    fn draw_room(&self, facts: &Facts, prng: &mut Prng) -> usize {
        match self.encoding {
            Encoding::Json => facts.draw_json_room(prng),
            Encoding::Protobuf => facts.draw_room(prng),
        }
    }

    /// Whether it can read what is published to a channel.
    pub(crate) fn reads(&self, room: usize, facts: &Facts) -> bool {
        self.encoding == Encoding::Protobuf || facts.is_json(room)
    }

    // What it does.

    /// True if it has opened a connection.
    pub(crate) fn act(&mut self, net: &Net, facts: &mut Facts, prng: &mut Prng) -> bool {
        let Some(socket) = &mut self.socket else {
            let opens = prng.one_in(2);
            if opens {
                self.open(net, None, facts, prng);
            }
            return opens;
        };
        if socket.is_stalled {
            if prng.one_in(3) {
                socket.resume(net);
            }
            return false;
        }
        match prng.below(40) {
            0 => self.leave(net, prng.one_in(2)),
            1 => {
                socket.stall(net);
                self.was_stalled = true;
            }
            _ if self.way.is_unidirectional() => {}
            2 if prng.one_in(4) => {
                self.has_sent_nonsense = true;
                socket.send(net, self.encoding, b"\xffnonsense", usize::MAX);
            }
            _ => self.speak(net, facts, prng),
        }
        false
    }

    /// Connects anew, mostly with subscriptions.
    pub(crate) fn open(&mut self, net: &Net, room: Option<usize>, facts: &Facts, prng: &mut Prng) {
        let mut wanted = HashMap::new();
        if let Some(room) = room {
            wanted.insert(room, self.since(room, facts, prng));
        }
        if self.way.is_unidirectional() || prng.one_in(2) {
            for _ in 0..prng.below(SUBSCRIPTIONS_MAX + 1) {
                let room = self.draw_room(facts, prng);
                let since = self.since(room, facts, prng);
                wanted.insert(room, since);
            }
        }
        self.open_with(net, wanted);
    }

    /// Connects, and asks for the subscriptions that it had.
    pub(crate) fn open_with(&mut self, net: &Net, wanted: HashMap<usize, Option<Since>>) {
        let mut socket = Socket::open(net, self.encoding, self.way);
        self.connection += 1;
        socket.last_event_id = self.last_event_id(&wanted);
        // The id comes before that which the request says of its channel.
        let is_said = |room: usize| {
            let id = socket.last_event_id.as_deref().and_then(EventId::parse);
            id.is_some_and(|id| id.channel == ROOMS[room].name)
        };
        self.address = None;
        self.has_sent_nonsense = false;
        self.was_stalled = false;
        self.has_server_side = !wanted.is_empty();
        let mut rooms: Vec<usize> = wanted.keys().copied().collect();
        rooms.sort_unstable();
        let subscriptions: Vec<_> = rooms
            .iter()
            .map(|&room| {
                let since = wanted[&room].as_ref().filter(|_| !is_said(room));
                (ROOMS[room].name, since.map(recovery_of))
            })
            .collect();
        self.socket = Some(socket);
        let mut message = Vec::new();
        let mut writer = CommandWriter::new(self.encoding, &mut message);
        if self.way.is_unidirectional() {
            writer.connect_request(&subscriptions);
            self.asked.insert(0, Asked::Connect(wanted));
        } else {
            let id = self.last_command + 1;
            writer.connect_again(id, "", &subscriptions);
            self.command(Asked::Connect(wanted));
        }
        self.send(net, &message, usize::MAX);
    }

    /// Every other time a reader of events comes back as browsers do, with the id of an event.
    fn last_event_id(&self, wanted: &HashMap<usize, Option<Since>>) -> Option<String> {
        if self.way != Way::UniSse || self.connection.is_multiple_of(2) {
            return None;
        }
        let room = *wanted.keys().min()?;
        let (epoch, offset) = wanted[&room].as_ref()?;
        let position = StreamOffset {
            epoch: epoch.as_bytes().try_into().ok()?,
            offset: *offset,
        };
        let channel = ROOMS[room].name.into();
        Some(EventId { channel, position }.to_string())
    }

    pub(crate) fn resume(&mut self, net: &Net) {
        if let Some(socket) = &mut self.socket {
            socket.resume(net);
        }
    }

    fn send(&self, net: &Net, message: &[u8], bytes: usize) {
        if let Some(socket) = &self.socket {
            socket.send(net, self.encoding, message, bytes);
        }
    }

    /// One to three commands in a message.
    fn speak(&mut self, net: &Net, facts: &mut Facts, prng: &mut Prng) {
        let mut message = Vec::new();
        let mut writer = CommandWriter::new(self.encoding, &mut message);
        for _ in 0..prng.between(1, 3) {
            self.say(&mut writer, facts, prng);
        }
        if message.is_empty() {
            return;
        }
        if prng.one_in(60) {
            // It goes in the middle of a frame.
            let bytes = prng.below(message.len());
            self.send(net, &message, bytes);
            self.leave(net, prng.one_in(2));
        } else {
            self.send(net, &message, usize::MAX);
        }
    }

    fn say(&mut self, writer: &mut CommandWriter<'_>, facts: &mut Facts, prng: &mut Prng) {
        let room = self.draw_room(facts, prng);
        let name = ROOMS[room].name;
        let is_subscribed = self.subscriptions.contains_key(&room);
        let is_idle = self.is_idle_in(room);
        match prng.below(10) {
            0..=3 if !is_subscribed && is_idle && self.is_connected => {
                self.subscribe(room, writer, facts, prng);
            }
            4 if is_subscribed && is_idle && prng.one_in(3) => {
                let id = self.command(Asked::Unsubscribe(room));
                writer.unsubscribe(id, name);
                if prng.one_in(2) {
                    self.subscribe(room, writer, facts, prng);
                }
            }
            5 if facts.rules[room].has_history => {
                let id = self.command(Asked::History(room));
                writer.history(id, name, 5);
            }
            6 => {
                let id = self.command(Asked::Presence(room));
                writer.presence(id, name);
            }
            _ if facts.is_json(room) => {
                let filler = prng.below(facts.data_bytes_max);
                self.publish(room, filler, writer, facts);
            }
            _ => {}
        }
    }

    fn publish(
        &mut self,
        room: usize,
        filler: usize,
        writer: &mut CommandWriter<'_>,
        facts: &mut Facts,
    ) {
        let number = facts.issue_by(room, Some((self.id, self.connection)));
        // A line break would end the command.
        let data = data_of(ROOMS[room].kind, number, filler).replace('\n', "");
        facts.ledger.attempts[number].bytes = data.clone().into_bytes();
        let id = self.command(Asked::Publish(number));
        facts.ledger.attempts[number].command = id;
        writer.publish(id, ROOMS[room].name, data.as_bytes());
    }

    /// Where it was, if it was there before. Some come from another server.
    fn since(&self, room: usize, facts: &Facts, prng: &mut Prng) -> Option<Since> {
        let mut since = self.positions.get(&room).cloned();
        let odds = if facts.rules[room].is_cached { 3 } else { 15 };
        if let Some((epoch, _)) = &mut since
            && prng.one_in(odds)
        {
            *epoch = ELSEWHERE.to_owned();
        }
        since
    }

    /// From where it was, if it was there before.
    fn subscribe(
        &mut self,
        room: usize,
        writer: &mut CommandWriter<'_>,
        facts: &Facts,
        prng: &mut Prng,
    ) {
        let since = self.since(room, facts, prng);
        let delta = prng.one_in(2);
        let tag = prng.one_in(3).then(|| *prng.pick(&TAGS));
        self.subscribe_with(room, since, delta, tag, writer);
    }

    /// Subscribes with a filter.
    pub(crate) fn subscribe_by_tag(&mut self, net: &Net, room: usize, tag: &'static str) {
        let mut message = Vec::new();
        let mut writer = CommandWriter::new(self.encoding, &mut message);
        self.subscribe_with(room, None, false, Some(tag), &mut writer);
        self.send(net, &message, usize::MAX);
    }

    fn subscribe_with(
        &mut self,
        room: usize,
        since: Option<Since>,
        delta: bool,
        tag: Option<&'static str>,
        writer: &mut CommandWriter<'_>,
    ) {
        let id = self.command(Asked::Subscribe {
            room,
            since: since.clone(),
            delta,
            tag,
        });
        let recovery = since.as_ref().map(recovery_of);
        let tag = tag.map(|tag| (TAG, tag));
        writer.subscribe_tagged(id, ROOMS[room].name, recovery, delta, tag);
    }

    pub(crate) fn ask_presence(&mut self, net: &Net, room: usize) {
        let id = self.command(Asked::Presence(room));
        let mut message = Vec::new();
        CommandWriter::new(self.encoding, &mut message).presence(id, ROOMS[room].name);
        self.presence.remove(&room);
        self.send(net, &message, usize::MAX);
    }

    /// Publishes where there must be room.
    pub(crate) fn publish_in_quiet(&mut self, net: &Net, room: usize, facts: &mut Facts) {
        self.has_quiet = true;
        let mut message = Vec::new();
        let mut writer = CommandWriter::new(self.encoding, &mut message);
        self.publish(room, 1, &mut writer, facts);
        self.send(net, &message, usize::MAX);
    }

    /// The quiet is over.
    pub(crate) fn end_quiet(&mut self) {
        self.has_quiet = false;
    }

    pub(crate) fn leave(&mut self, net: &Net, resets: bool) {
        if let Some(socket) = self.socket.take() {
            socket.leave(net, resets);
        }
        self.is_connected = false;
        self.asked.clear();
        self.subscriptions.clear();
    }

    /// Takes messages that go in requests of their own to the server.
    pub(crate) fn send_apart(&self, mesh: &Mesh, facts: &mut Facts) {
        let (Some(socket), Some((node, session))) = (&self.socket, &self.address) else {
            return;
        };
        for message in socket.take_apart() {
            let taken = mesh.emulate(node, session, &message);
            assert!(taken.is_ok() || facts.is_draining, "there is room");
            facts.note("sessions: commands come apart");
        }
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.socket.is_none()
    }

    // Quiet moments.

    /// It says commands, and nothing of its own is wrong.
    pub(crate) fn may_ask(&self) -> bool {
        self.is_connected && !self.way.is_unidirectional() && !self.has_sent_nonsense
    }

    /// Nothing is under way: everything must have come.
    pub(crate) fn check_quiet(&self, facts: &mut Facts) {
        if !self.is_connected {
            return;
        }
        assert!(self.asked.is_empty(), "not answered: {:?}", self.asked);
        for (&room, subscription) in &self.subscriptions {
            let rules = facts.rules[room];
            if rules.may_drop {
                continue;
            }
            let own = rules.excludes_sender.then_some((self.id, self.connection));
            subscription.check_has_all(room, own, &facts.ledger);
            subscription.check_has_places(room, own, &facts.ledger);
            facts.note("sessions: a subscription has everything at a quiet moment");
        }
    }

    pub(crate) fn is_subscribed(&self, room: usize) -> bool {
        self.is_connected && self.subscriptions.contains_key(&room)
    }

    pub(crate) fn check_presence(&self, room: usize, expected: &BTreeSet<String>, facts: &Facts) {
        let known = self.presence.get(&room);
        // There may be no room for the list.
        assert!(
            known.is_some() || facts.is_tight,
            "it asked for the members of {room}"
        );
        assert!(
            known.is_none_or(|known| known == expected),
            "{known:?} in {room}, not {expected:?}"
        );
    }

    /// What it was not given must have been its own, or not what its filter asks for.
    pub(crate) fn check_left_out(&self, facts: &Facts) {
        let left_out = self.left_out.iter();
        left_out.for_each(|left_out| left_out.check(&facts.ledger));
    }
}

fn recovery_of((epoch, offset): &Since) -> Recovery<'_> {
    Recovery {
        epoch,
        offset: *offset,
    }
}
