//! A client: what it asks for, and what it must see.

use crate::Counts;
use crate::ledger::Ledger;
use crate::plan::{CHANNELS, Plan};
use crate::socket::{Event, Socket};
use myriad_reactor::sim::{Prng, SimNet};
use myriad_wire::centrifuge::client::{
    CommandWriter, Outcome, Publication, Recovery, ServerEvent, ServerMessage, ServerMessages,
    Subscribed,
};
use myriad_wire::centrifuge::{Data, Encoding, apply_delta};
use std::collections::{BTreeSet, HashMap, HashSet};

/// A command that waits for its answer.
#[derive(Debug)]
enum Asked {
    Connect,
    Subscribe {
        channel: usize,
        since: Option<(String, u64)>,
        delta: bool,
    },
    Unsubscribe(usize),
    Publish(usize),
    History(usize),
    Presence(usize),
}

/// A subscription that was answered.
#[derive(Debug, Default)]
struct Subscription {
    /// Everything published later comes to it.
    live_at: u64,
    epoch: String,
    last: u64,
    has_deltas: bool,
    base: Option<Vec<u8>>,
    seen: HashSet<usize>,
    /// Whether each other client is there, as far as it was told.
    members: HashMap<String, bool>,
}

#[derive(Debug)]
pub(crate) struct Client {
    id: usize,
    encoding: Encoding,
    pub(crate) socket: Option<Socket>,
    /// Counts its connections.
    connection: u64,
    pub(crate) name: String,
    pub(crate) is_connected: bool,
    has_sent_nonsense: bool,
    was_stalled: bool,
    last_command: u32,
    asked: HashMap<u32, Asked>,
    subscriptions: HashMap<usize, Subscription>,
    /// Where it would recover from.
    positions: HashMap<usize, (String, u64)>,
    /// Places that it was not given, because it had published what is there.
    left_out: Vec<(usize, String, u64, u64)>,
    /// The last answers to presence.
    presence: HashMap<usize, BTreeSet<String>>,
}

impl Client {
    pub(crate) fn new(id: usize, prng: &mut Prng) -> Self {
        Self {
            id,
            encoding: *prng.pick(&[Encoding::Json, Encoding::Protobuf]),
            socket: None,
            connection: 0,
            name: String::new(),
            is_connected: false,
            has_sent_nonsense: false,
            was_stalled: false,
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
        self.socket = Some(Socket::open(net, self.encoding));
        self.connection += 1;
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
                0..=3 if !is_subscribed && is_idle => {
                    let since = self.positions.get(&channel).cloned();
                    let delta = prng.one_in(2);
                    let id = self.command(Asked::Subscribe {
                        channel,
                        since: since.clone(),
                        delta,
                    });
                    let recovery = since.as_ref().map(|(epoch, offset)| Recovery {
                        epoch,
                        offset: *offset,
                    });
                    writer.subscribe(id, name, recovery, delta);
                }
                4 if is_subscribed && is_idle && prng.one_in(3) => {
                    let id = self.command(Asked::Unsubscribe(channel));
                    writer.unsubscribe(id, name);
                }
                5 if channel < 2 => {
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

    pub(crate) fn ask_presence(&mut self, net: &SimNet, channel: usize) {
        let id = self.command(Asked::Presence(channel));
        let mut message = Vec::new();
        CommandWriter::new(self.encoding, &mut message).presence(id, CHANNELS[channel]);
        self.presence.remove(&channel);
        self.send(net, &message, usize::MAX);
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
                Event::Message(message) => self.read(net, plan, ledger, counts, &message),
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
            3012 if self.was_stalled || plan.settings.pong_timeout.as_millis() < 10_000 => {
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
                        Ok(outcome) => self.take_outcome(asked, outcome, plan, ledger, &mut count),
                        Err(failure) => {
                            count(match (&asked, failure.code) {
                                (Asked::History(_), 106) => "a page of history has no room",
                                (Asked::Publish(_), 111) => "a channel is crowded",
                                _ => panic!("{asked:?} fails: {failure:?}"),
                            });
                        }
                    }
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
        asked: Asked,
        outcome: Outcome<'_>,
        plan: &Plan,
        ledger: &mut Ledger,
        count: &mut impl FnMut(&'static str),
    ) {
        match (asked, outcome) {
            (Asked::Connect, Outcome::Connected(connected)) => {
                self.name = connected.client.into_owned();
                self.is_connected = true;
            }
            (
                Asked::Subscribe {
                    channel,
                    since,
                    delta,
                },
                Outcome::Subscribed(subscribed),
            ) => self.take_subscribed(channel, since, delta, &subscribed, plan, ledger, count),
            (Asked::Unsubscribe(channel), Outcome::Unsubscribed) => {
                self.subscriptions.remove(&channel);
            }
            (Asked::Publish(number), Outcome::Published) => {
                ledger.attempts[number].is_acknowledged = true;
            }
            (Asked::History(channel), Outcome::History(history)) => {
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

    #[expect(clippy::too_many_arguments, reason = "one thing of each side")]
    fn take_subscribed(
        &mut self,
        channel: usize,
        since: Option<(String, u64)>,
        delta: bool,
        subscribed: &Subscribed<'_>,
        plan: &Plan,
        ledger: &mut Ledger,
        count: &mut impl FnMut(&'static str),
    ) {
        let is_kept = channel < 2;
        assert_eq!(subscribed.positioned, is_kept);
        assert_eq!(subscribed.recoverable, is_kept);
        assert_eq!(subscribed.delta, is_kept && delta && !plan.drops());
        let mut subscription = Subscription {
            live_at: ledger.tick(),
            epoch: subscribed.epoch.clone().into_owned(),
            last: subscribed.offset,
            has_deltas: subscribed.delta,
            ..Subscription::default()
        };
        assert_eq!(subscribed.was_recovering, is_kept && since.is_some());
        if let Some((epoch, offset)) = since.filter(|_| is_kept) {
            if subscribed.recovered {
                count("a client recovers");
                assert_eq!((&*subscribed.epoch, subscribed.offset), (&*epoch, offset));
            } else {
                count("a client cannot recover");
                assert!(subscribed.publications.is_empty());
                if plan.is_roomy {
                    assert_eq!(subscribed.epoch, epoch);
                    let missed = subscribed.offset - offset;
                    let most = u64::from(plan.history_size.min(300));
                    assert!(missed > most, "{missed} missed could be recovered");
                }
            }
        } else {
            assert!(subscribed.publications.is_empty());
        }
        for publication in &subscribed.publications {
            assert_eq!(
                publication.offset,
                subscription.last + 1,
                "nothing is missing"
            );
            subscription.take(channel, publication, ledger, self.encoding, count);
        }
        if is_kept {
            let position = (subscription.epoch.clone(), subscription.last);
            self.positions.insert(channel, position);
        }
        let before = self.subscriptions.insert(channel, subscription);
        assert!(before.is_none(), "subscribed once");
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
                let (before, offset) = (subscription.last, publication.offset);
                let number = subscription.take(channel, &publication, ledger, self.encoding, count);
                let own = Some((self.id, self.connection));
                let is_own = ledger.attempts[number].publisher == own;
                assert!(!(is_own && plan.excludes_sender), "its own are left out");
                if channel == 2 {
                    assert_eq!(offset, 0);
                    return;
                }
                assert!(offset > before, "{offset} after {before}");
                if offset > before + 1 && !plan.drops() {
                    assert!(plan.excludes_sender, "{offset} after {before}");
                    count("its own publications are left out");
                    for missing in before + 1..offset {
                        let place = subscription.epoch.clone();
                        self.left_out
                            .push((channel, place, missing, self.connection));
                    }
                }
                let position = (subscription.epoch.clone(), offset);
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
            for (number, attempt) in ledger.attempts.iter().enumerate() {
                let is_due = attempt.channel == channel
                    && attempt.is_acknowledged
                    && attempt.at > subscription.live_at;
                let own = Some((self.id, self.connection));
                let is_left_out = plan.excludes_sender && attempt.publisher == own;
                assert!(
                    !is_due || is_left_out || plan.drops() || subscription.seen.contains(&number),
                    "client {} misses {number} of {}",
                    self.id,
                    CHANNELS[channel]
                );
            }
        }
    }

    pub(crate) fn is_subscribed(&self, channel: usize) -> bool {
        self.is_connected && self.subscriptions.contains_key(&channel)
    }

    pub(crate) fn check_presence(&self, channel: usize, expected: &BTreeSet<String>) {
        assert_eq!(self.presence.get(&channel), Some(expected));
    }

    /// What it was not given must have been its own.
    pub(crate) fn check_left_out(&self, ledger: &Ledger) {
        for (channel, epoch, offset, connection) in &self.left_out {
            if let Some(number) = ledger.at(*channel, epoch, *offset) {
                let own = Some((self.id, *connection));
                assert_eq!(ledger.attempts[number].publisher, own, "{channel} {offset}");
            }
        }
    }
}

impl Subscription {
    /// Takes a publication in; its number.
    fn take(
        &mut self,
        channel: usize,
        publication: &Publication<'_>,
        ledger: &mut Ledger,
        encoding: Encoding,
        count: &mut impl FnMut(&'static str),
    ) -> usize {
        let told = match (publication.data, encoding) {
            (Data::Json(text), Encoding::Json) if self.has_deltas => {
                let text: String = serde_json::from_str(text).expect("a string");
                text.into_bytes()
            }
            (data, _) => data.as_bytes().to_vec(),
        };
        let data = if publication.delta {
            count("a delta is applied");
            let base = self.base.as_ref().expect("a base");
            apply_delta(base, &told, usize::MAX).expect("a delta to the one before")
        } else {
            told
        };
        let number = ledger.number_of(&data);
        assert!(self.seen.insert(number), "{number} comes once");
        if channel < 2 {
            ledger.note(channel, &self.epoch, publication.offset, number);
            self.last = publication.offset;
        }
        self.base = self.has_deltas.then_some(data);
        number
    }
}
