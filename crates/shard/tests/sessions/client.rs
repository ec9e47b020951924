//! A client: what it asks for, and what it must see.

use crate::Counts;
use crate::ledger::{Glimpse, Ledger};
use crate::plan::{CACHED, CHANNELS, KINDS, PATIENCE, Plan, TAG, has_history};
use crate::socket::{Event, Socket, Way};
use crate::subscription::{ELSEWHERE, LeftOut, Subscription, check_recovery};
use myriad_reactor::sim::{Prng, SimNet};
use myriad_shard::Mesh;
use myriad_wire::centrifuge::Encoding;
use myriad_wire::centrifuge::client::{
    CommandWriter, Outcome, Recovery, ServerEvent, ServerMessage, ServerMessages, Subscribed,
};
use std::collections::{BTreeSet, HashMap};

/// A command that waits for its answer.
#[derive(Debug)]
enum Asked {
    Connect,
    Subscribe {
        channel: usize,
        since: Option<(String, u64)>,
        delta: bool,
        kind: Option<&'static str>,
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
    pub(crate) socket: Option<Socket>,
    /// Counts its connections.
    connection: u64,
    pub(crate) name: String,
    pub(crate) is_connected: bool,
    has_sent_nonsense: bool,
    was_stalled: bool,
    /// Nothing is under way: there must be room for what it publishes.
    has_quiet: bool,
    last_command: u32,
    asked: HashMap<u32, Asked>,
    subscriptions: HashMap<usize, Subscription>,
    /// Where it would recover from.
    positions: HashMap<usize, (String, u64)>,
    /// Places that it was not given.
    left_out: Vec<LeftOut>,
    /// The last answers to presence.
    presence: HashMap<usize, BTreeSet<String>>,
}

impl Client {
    pub(crate) fn new(id: usize, prng: &mut Prng) -> Self {
        let encoding = *prng.pick(&[Encoding::Json, Encoding::Protobuf]);
        let way = match encoding {
            Encoding::Json => *prng.pick(&[Way::WebSocket, Way::HttpStream, Way::Sse]),
            Encoding::Protobuf => *prng.pick(&[Way::WebSocket, Way::HttpStream]),
        };
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
            has_quiet: false,
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

    fn is_idle_in(&self, channel: usize) -> bool {
        let concerns = |asked: &Asked| matches!(asked, Asked::Subscribe { channel: of, .. } | Asked::Unsubscribe(of) if *of == channel);
        !self.asked.values().any(concerns)
    }

    // What it does.

    pub(crate) fn act(&mut self, net: &SimNet, plan: &Plan, ledger: &mut Ledger, prng: &mut Prng) {
        let Some(socket) = &mut self.socket else {
            if prng.one_in(2) {
                self.open(net);
            }
            return;
        };
        if socket.is_stalled {
            if prng.one_in(3) {
                socket.resume(net);
            }
            return;
        }
        match prng.below(40) {
            0 => self.leave(net, prng.one_in(2)),
            1 => {
                socket.stall(net);
                self.was_stalled = true;
            }
            2 if prng.one_in(4) => {
                self.has_sent_nonsense = true;
                socket.send(net, self.encoding, b"\xffnonsense", usize::MAX);
            }
            _ => self.speak(net, plan, ledger, prng),
        }
    }

    fn open(&mut self, net: &SimNet) {
        self.socket = Some(Socket::open(net, self.encoding, self.way));
        self.connection += 1;
        self.address = None;
        self.has_sent_nonsense = false;
        self.was_stalled = false;
        let id = self.command(Asked::Connect);
        let mut message = Vec::new();
        CommandWriter::new(self.encoding, &mut message).connect(id, "", "");
        self.send(net, &message, usize::MAX);
    }

    fn send(&self, net: &SimNet, message: &[u8], bytes: usize) {
        if let Some(socket) = &self.socket {
            socket.send(net, self.encoding, message, bytes);
        }
    }

    /// One to three commands in a message.
    fn speak(&mut self, net: &SimNet, plan: &Plan, ledger: &mut Ledger, prng: &mut Prng) {
        let encoding = self.encoding;
        let mut message = Vec::new();
        let mut writer = CommandWriter::new(encoding, &mut message);
        for _ in 0..prng.between(1, 3) {
            let channel = prng.below(CHANNELS.len());
            let name = CHANNELS[channel];
            let is_subscribed = self.subscriptions.contains_key(&channel);
            let is_idle = self.is_idle_in(channel);
            match prng.below(10) {
                0..=3 if !is_subscribed && is_idle => self.subscribe(channel, &mut writer, prng),
                4 if is_subscribed && is_idle && prng.one_in(3) => {
                    let id = self.command(Asked::Unsubscribe(channel));
                    writer.unsubscribe(id, name);
                    if prng.one_in(2) {
                        self.subscribe(channel, &mut writer, prng);
                    }
                }
                5 if has_history(channel) => {
                    let id = self.command(Asked::History(channel));
                    writer.history(id, name, 5);
                }
                6 => {
                    let id = self.command(Asked::Presence(channel));
                    writer.presence(id, name);
                }
                _ => {
                    let filler = prng.below(plan.payload_bytes_max / 3);
                    let publisher = Some((self.id, self.connection));
                    let (number, data) = ledger.attempt(channel, publisher, filler);
                    let id = self.command(Asked::Publish(number));
                    ledger.attempts[number].command = id;
                    writer.publish(id, name, &data);
                }
            }
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

    /// From where it was, if it was there before.
    fn subscribe(&mut self, channel: usize, writer: &mut CommandWriter<'_>, prng: &mut Prng) {
        let mut since = self.positions.get(&channel).cloned();
        let odds = if channel == CACHED { 3 } else { 15 };
        if let Some((epoch, _)) = &mut since
            && prng.one_in(odds)
        {
            *epoch = ELSEWHERE.to_owned();
        }
        let delta = prng.one_in(2);
        let kind = prng.one_in(3).then(|| *prng.pick(&KINDS));
        let id = self.command(Asked::Subscribe {
            channel,
            since: since.clone(),
            delta,
            kind,
        });
        let recovery = since.as_ref().map(|(epoch, offset)| Recovery {
            epoch,
            offset: *offset,
        });
        let tag = kind.map(|kind| (TAG, kind));
        writer.subscribe_tagged(id, CHANNELS[channel], recovery, delta, tag);
    }

    pub(crate) fn ask_presence(&mut self, net: &SimNet, channel: usize) {
        let id = self.command(Asked::Presence(channel));
        let mut message = Vec::new();
        CommandWriter::new(self.encoding, &mut message).presence(id, CHANNELS[channel]);
        self.presence.remove(&channel);
        self.send(net, &message, usize::MAX);
    }

    /// Publishes where there must be room.
    pub(crate) fn publish_in_quiet(&mut self, net: &SimNet, channel: usize, ledger: &mut Ledger) {
        self.has_quiet = true;
        let publisher = Some((self.id, self.connection));
        let (number, data) = ledger.attempt(channel, publisher, 1);
        let id = self.command(Asked::Publish(number));
        ledger.attempts[number].command = id;
        let mut message = Vec::new();
        CommandWriter::new(self.encoding, &mut message).publish(id, CHANNELS[channel], &data);
        self.send(net, &message, usize::MAX);
    }

    /// The quiet is over.
    pub(crate) fn end_quiet(&mut self) {
        self.has_quiet = false;
    }

    pub(crate) fn leave(&mut self, net: &SimNet, resets: bool) {
        if let Some(socket) = self.socket.take() {
            socket.leave(net, resets);
        }
        self.note_end();
    }

    fn note_end(&mut self) {
        self.socket = None;
        self.is_connected = false;
        self.asked.clear();
        self.subscriptions.clear();
    }

    /// Takes messages that go in requests of their own to the server.
    pub(crate) fn send_apart(&self, mesh: &Mesh, counts: &mut Counts) {
        let (Some(socket), Some((node, session))) = (&self.socket, &self.address) else {
            return;
        };
        for message in socket.take_apart() {
            let taken = mesh.emulate(node, session, &message);
            taken.expect("there is room");
            *counts.entry("commands come apart").or_default() += 1;
        }
    }

    // What it sees.

    /// Reads what has come; true if anything did.
    pub(crate) fn receive(
        &mut self,
        net: &SimNet,
        plan: &Plan,
        ledger: &mut Ledger,
        counts: &mut Counts,
    ) -> bool {
        let Some(socket) = &mut self.socket else {
            return false;
        };
        let mut events = Vec::new();
        let is_moving = socket.receive(net, &mut events);
        let end = socket.end(net);
        for event in events {
            match event {
                Event::Message(message) => {
                    self.read(net, plan, ledger, counts, &message);
                    if self.socket.is_none() {
                        return true;
                    }
                }
                Event::Close(code) => {
                    self.check_close(code, plan, counts);
                    self.leave(net, false);
                    return true;
                }
            }
        }
        if end.is_some() && self.socket.is_some() {
            *counts
                .entry("a connection ends without a close frame")
                .or_default() += 1;
            self.leave(net, false);
            return true;
        }
        is_moving
    }

    fn check_close(&self, code: u16, plan: &Plan, counts: &mut Counts) {
        let what = match code {
            1007 | 3501 if self.has_sent_nonsense => "nonsense ends with 1007 or 3501",
            3008 if plan.settings.outbound_bytes_max < 1 << 20 => "a slow client ends with 3008",
            3012 if self.was_stalled || plan.settings.pong_timeout < PATIENCE => {
                "a silent client ends with 3012"
            }
            // Time may leap while a connect command is under way.
            3502 | 408 => "a client is too late",
            other => panic!("client {} is closed with {other}", self.id),
        };
        *counts.entry(what).or_default() += 1;
    }

    fn read(
        &mut self,
        net: &SimNet,
        plan: &Plan,
        ledger: &mut Ledger,
        counts: &mut Counts,
        message: &[u8],
    ) {
        let mut count = |what: &'static str| *counts.entry(what).or_default() += 1;
        let mut publications = 0;
        for message in ServerMessages::new(self.encoding, message) {
            match message.expect("the server speaks the protocol") {
                ServerMessage::Ping => {
                    count("a ping is answered");
                    let mut pong = Vec::new();
                    CommandWriter::new(self.encoding, &mut pong).pong();
                    self.send(net, &pong, usize::MAX);
                }
                ServerMessage::Reply { id, outcome } => {
                    let asked = self
                        .asked
                        .remove(&id)
                        .expect("each command is answered once");
                    match outcome {
                        Ok(outcome) => {
                            self.take_outcome((id, asked), outcome, plan, ledger, &mut count);
                        }
                        Err(failure) => {
                            count(match (&asked, failure.code) {
                                (Asked::History(_), 106) => "a page of history has no room",
                                (Asked::Presence(_), 106) => "a member list has no room",
                                (Asked::Publish(_), 111) if !self.has_quiet => {
                                    "a channel is crowded"
                                }
                                _ => panic!("{asked:?} fails: {failure:?}"),
                            });
                        }
                    }
                }
                ServerMessage::Push {
                    event: ServerEvent::Disconnected(end),
                    ..
                } => {
                    assert_ne!(self.way, Way::WebSocket, "it has close frames");
                    let code = u16::try_from(end.code).expect("a code");
                    self.check_close(code, plan, counts);
                    return self.leave(net, false);
                }
                ServerMessage::Push { channel, event, .. } => {
                    let channel = CHANNELS.iter().position(|one| *one == channel);
                    let channel = channel.expect("one of ours");
                    publications += usize::from(matches!(event, ServerEvent::Publication(_)));
                    self.take_push(channel, event, plan, ledger, &mut count);
                }
            }
        }
        if publications > 1 {
            count("a batch comes as one frame");
        }
    }

    fn take_outcome(
        &mut self,
        (id, asked): (u32, Asked),
        outcome: Outcome<'_>,
        plan: &Plan,
        ledger: &mut Ledger,
        count: &mut impl FnMut(&'static str),
    ) {
        match (asked, outcome) {
            (Asked::Connect, Outcome::Connected(connected)) => {
                assert_eq!(connected.session.is_empty(), self.way == Way::WebSocket);
                let names = (connected.node.into_owned(), connected.session.into_owned());
                self.address = Some(names).filter(|_| self.way != Way::WebSocket);
                self.name = connected.client.into_owned();
                self.is_connected = true;
            }
            (asked @ Asked::Subscribe { .. }, Outcome::Subscribed(subscribed)) => {
                self.take_subscribed((id, asked), &subscribed, plan, ledger, count);
            }
            (Asked::Unsubscribe(channel), Outcome::Unsubscribed) => {
                if let Some(subscription) = self.subscriptions.remove(&channel)
                    && !plan.drops(channel)
                    && !plan.excludes_sender
                    && !plan.delays
                {
                    let own = (self.id, self.connection);
                    if subscription.check_has_own(channel, own, id, ledger) {
                        count("a client publishes and unsubscribes");
                    }
                }
            }
            (Asked::Publish(number), Outcome::Published) => {
                ledger.attempts[number].is_acknowledged = true;
            }
            (Asked::History(channel), Outcome::History(history)) => {
                self.note_glimpse(id, channel, &history.epoch, history.offset, ledger);
                let mut last = None;
                for publication in &history.publications {
                    let number = ledger.number_of(publication.data.as_bytes());
                    ledger.note(channel, &history.epoch, publication.offset, number);
                    assert!(publication.offset <= history.offset);
                    assert!(last.is_none_or(|last| publication.offset == last + 1));
                    last = Some(publication.offset);
                }
            }
            (Asked::Presence(channel), Outcome::Presence(presence)) => {
                let names = presence.presence.into_keys().map(|name| name.into_owned());
                self.presence.insert(channel, names.collect());
            }
            (asked, outcome) => panic!("{outcome:?} is no answer to {asked:?}"),
        }
    }

    fn take_subscribed(
        &mut self,
        (id, asked): (u32, Asked),
        subscribed: &Subscribed<'_>,
        plan: &Plan,
        ledger: &mut Ledger,
        count: &mut impl FnMut(&'static str),
    ) {
        let Asked::Subscribe {
            channel,
            since,
            delta,
            kind,
        } = asked
        else {
            unreachable!("the answer to a subscribe command");
        };
        let has_places = has_history(channel);
        assert_eq!(subscribed.positioned, has_places);
        assert_eq!(subscribed.recoverable, has_places);
        let has_deltas = has_places && delta && !plan.drops(channel);
        assert_eq!(subscribed.delta, has_deltas);
        let mut subscription = Subscription::new(id, subscribed, kind, ledger.tick());
        // Where publications are delivered later than they are answered, a shard may count from an earlier place.
        if has_places && !subscribed.recovered && !plan.delays {
            self.note_glimpse(id, channel, &subscribed.epoch, subscribed.offset, ledger);
        }
        let is_unasked = channel == CACHED && plan.recovers_unasked;
        let is_recovering = has_places && since.is_some() || is_unasked;
        assert_eq!(subscribed.was_recovering, is_recovering);
        let since = since.unwrap_or_default();
        if !is_recovering {
            assert!(!subscribed.recovered && subscribed.publications.is_empty());
        } else if channel == CACHED {
            subscription.check_newest(subscribed, &since, plan, count);
        } else {
            check_recovery(subscribed, &since, plan, count);
        }
        for publication in &subscribed.publications {
            let before = subscription.last;
            subscription.take(channel, publication, ledger, self.encoding, count);
            if channel != CACHED {
                // Its own are among them.
                let left_out = subscription.left_out_after(before, channel, None);
                assert!(left_out.is_empty() || kind.is_some(), "nothing is missing");
                self.left_out.extend(left_out);
            }
        }
        if has_places {
            let position = (subscription.epoch.clone(), subscription.last);
            self.positions.insert(channel, position);
        }
        let before = self.subscriptions.insert(channel, subscription);
        assert!(before.is_none(), "subscribed once");
    }

    /// The answer to a command says how far a channel has come.
    fn note_glimpse(
        &self,
        command: u32,
        channel: usize,
        epoch: &str,
        offset: u64,
        ledger: &mut Ledger,
    ) {
        ledger.glimpses.push(Glimpse {
            channel,
            epoch: epoch.to_owned(),
            offset,
            client: (self.id, self.connection),
            command,
        });
    }

    fn take_push(
        &mut self,
        channel: usize,
        event: ServerEvent<'_>,
        plan: &Plan,
        ledger: &mut Ledger,
        count: &mut impl FnMut(&'static str),
    ) {
        let subscription = self.subscriptions.get_mut(&channel);
        let subscription = subscription.expect("nothing comes before the answer, or after the end");
        match event {
            ServerEvent::Publication(publication) => {
                let before = subscription.last;
                let number = subscription.take(channel, &publication, ledger, self.encoding, count);
                let own = Some((self.id, self.connection));
                let is_own = ledger.attempts[number].publisher == own;
                assert!(!(is_own && plan.excludes_sender), "its own are left out");
                if publication.offset == 0 {
                    return;
                }
                assert!(publication.offset > before, "in order");
                if !plan.drops(channel) {
                    let own = plan.excludes_sender.then_some((self.id, self.connection));
                    let left_out = subscription.left_out_after(before, channel, own);
                    let may_be = plan.excludes_sender || subscription.kind.is_some();
                    assert!(left_out.is_empty() || may_be, "nothing is missing");
                    if !left_out.is_empty() {
                        count("publications are left out");
                    }
                    self.left_out.extend(left_out);
                }
                let position = (subscription.epoch.clone(), subscription.last);
                self.positions.insert(channel, position);
            }
            ServerEvent::Join(info) => {
                let known = subscription.members.insert(info.client.into_owned(), true);
                assert_ne!(known, Some(true), "nobody joins twice");
                count("a join is told");
            }
            ServerEvent::Leave(info) => {
                let known = subscription.members.insert(info.client.into_owned(), false);
                assert_ne!(known, Some(false), "nobody leaves twice");
                count("a leave is told");
            }
            ServerEvent::Unsubscribed(unsubscribed) => {
                assert_eq!(unsubscribed.code, 2500);
                assert!(
                    self.is_idle_in(channel)
                        || self
                            .asked
                            .values()
                            .any(|asked| matches!(asked, Asked::Unsubscribe(of) if *of == channel))
                );
                self.subscriptions.remove(&channel);
                count("a subscription ends in a gap");
            }
            other => panic!("{other:?} is not sent"),
        }
    }

    // Quiet moments.

    /// Nothing is under way: everything must have come.
    pub(crate) fn check_quiet(&self, plan: &Plan, ledger: &Ledger) {
        if !self.is_connected {
            return;
        }
        assert!(self.asked.is_empty(), "not answered: {:?}", self.asked);
        for (&channel, subscription) in &self.subscriptions {
            if plan.drops(channel) {
                continue;
            }
            let own = plan.excludes_sender.then_some((self.id, self.connection));
            let client = (self.id, self.connection);
            subscription.check_has_all(channel, client, own, ledger);
            subscription.check_has_places(channel, own, ledger);
        }
    }

    pub(crate) fn is_subscribed(&self, channel: usize) -> bool {
        self.is_connected && self.subscriptions.contains_key(&channel)
    }

    pub(crate) fn check_presence(&self, channel: usize, expected: &BTreeSet<String>) {
        assert_eq!(self.presence.get(&channel), Some(expected));
    }

    /// What it was not given must have been its own, or not what its filter asks for.
    pub(crate) fn check_left_out(&self, ledger: &Ledger) {
        self.left_out
            .iter()
            .for_each(|left_out| left_out.check(ledger));
    }
}
