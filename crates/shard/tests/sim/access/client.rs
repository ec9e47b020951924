//! A client of this simulation: what it asks. `told` has what it may be told, `ends` how it may end.

use super::facts::{Due, Facts};
use super::rules::{ROOMS, TOKEN_IDS, USERS};
use super::tokens::{Fault, Token};
use crate::decoder::Decoder;
use crate::request;
use crate::secured::Net;
use myriad_reactor::sim::{PeerEnd, PeerId, Prng};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A command that waits for its reply.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) what: What,
    pub(crate) token: Option<Token>,
    /// When it was sent.
    pub(crate) at: u64,
    /// The oldest rules by which it may be judged.
    pub(crate) version: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Connect,
    Refresh,
    Subscribe(usize),
    Unsubscribe(usize),
    SubRefresh(usize),
    /// To a room, with the number of the publication.
    Publish(usize, usize),
    Rpc,
}

/// A subscription that is made.
#[derive(Debug)]
pub(crate) struct Visit {
    /// Everything that was issued from here on must come.
    pub(crate) since: usize,
    pub(crate) is_server_side: bool,
    /// That of the token by which it was subscribed.
    pub(crate) token_id: u64,
    pub(crate) due: Option<Due>,
    pub(crate) received: BTreeSet<usize>,
    /// The last publication of each publisher.
    pub(crate) last: BTreeMap<Option<usize>, usize>,
}

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: PeerId,
    pub(crate) number: usize,
    /// The last byte of its address.
    pub(crate) host: u8,
    pub(crate) decoder: Decoder,
    lines: Vec<String>,
    outbox: Vec<u8>,
    pub(crate) is_upgraded: bool,
    /// Its id, once it has connected.
    pub(crate) name: Option<String>,
    /// 0 for none.
    pub(crate) user: usize,
    /// That of the token that it has shown.
    pub(crate) token_id: u64,
    /// Rooms that its token, or the application, has granted.
    pub(crate) granted: Vec<usize>,
    pub(crate) due: Option<Due>,
    pub(crate) asked: BTreeMap<u32, Asked>,
    /// Every command that it has sent, for what the application may say of it.
    pub(crate) serials: Vec<u32>,
    pub(crate) visits: BTreeMap<usize, Visit>,
    /// Rooms in which it ever was.
    pub(crate) entered: BTreeSet<usize>,
    /// Commands sent since it has connected, and those that were not refused for a rate; of these, publications and
    /// subscriptions.
    pub(crate) sent: [u64; 3],
    pub(crate) taken: [u64; 3],
    pub(crate) connected_at: u64,
    /// Pushes by orders: refreshes, and unsubscribes of each room.
    pub(crate) refreshes: usize,
    pub(crate) unsubscribes: HashMap<usize, usize>,
    /// Its connect command was refused.
    pub(crate) is_refused: bool,
    pub(crate) has_erred: bool,
    pub(crate) is_stalled: bool,
    pub(crate) has_sent_fin: bool,
    pub(crate) close: Option<u16>,
    pub(crate) status: Option<u16>,
    pub(crate) is_broken: bool,
    pub(crate) end: Option<PeerEnd>,
}

impl Client {
    pub(crate) fn new(id: PeerId, number: usize, host: u8, head: Vec<u8>) -> Self {
        Self {
            id,
            number,
            host,
            decoder: Decoder::new(),
            lines: Vec::new(),
            outbox: head,
            is_upgraded: false,
            name: None,
            user: 0,
            token_id: 0,
            granted: Vec::new(),
            due: None,
            asked: BTreeMap::new(),
            serials: Vec::new(),
            visits: BTreeMap::new(),
            entered: BTreeSet::new(),
            sent: [0; 3],
            taken: [0; 3],
            connected_at: 0,
            refreshes: 0,
            unsubscribes: HashMap::new(),
            is_refused: false,
            has_erred: false,
            is_stalled: false,
            has_sent_fin: false,
            close: None,
            status: None,
            is_broken: false,
            end: None,
        }
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.is_broken || self.end.is_some()
    }

    pub(crate) fn may_speak(&self) -> bool {
        let is_over = self.has_sent_fin || self.has_erred || self.is_refused;
        self.is_upgraded && !self.is_gone() && !is_over && self.close.is_none()
    }

    pub(crate) fn is_new(&self) -> bool {
        self.serials.is_empty()
    }

    /// Its connect command was answered, and nothing has ended it, as far as it knows.
    pub(crate) fn is_connected(&self) -> bool {
        self.name.is_some() && !self.is_gone() && !self.has_sent_fin && self.close.is_none()
    }

    /// How often the application has unsubscribed it from a room.
    pub(crate) fn unsubscribes_of(&self, room: usize) -> usize {
        self.unsubscribes.get(&room).copied().unwrap_or(0)
    }

    // Sending.

    /// Sends the commands that it has gathered, as one message, and so many bytes of what it has to send.
    pub(crate) fn write(&mut self, net: &Net, count: usize, prng: &mut Prng) -> bool {
        if !self.lines.is_empty() {
            let message = std::mem::take(&mut self.lines).join("\n");
            request::frame(&mut self.outbox, 0x81, message.as_bytes(), prng);
        }
        let count = count.min(self.outbox.len());
        if count == 0 || self.has_sent_fin || self.is_gone() {
            return false;
        }
        let bytes: Vec<u8> = self.outbox.drain(..count).collect();
        net.write(self.id, &bytes);
        true
    }

    /// Leaves, in one of the ways there are.
    pub(crate) fn leave(&mut self, net: &Net, prng: &mut Prng) {
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

    fn ask(&mut self, serial: u32, asked: Asked, mut line: Value) {
        line["id"] = serial.into();
        let what = asked.what;
        if what != What::Connect {
            self.sent[0] += 1;
            self.sent[1] += u64::from(matches!(what, What::Publish(..)));
            self.sent[2] += u64::from(matches!(what, What::Subscribe(_)));
        }
        self.asked.insert(serial, asked);
        self.serials.push(serial);
        self.lines.push(line.to_string());
    }

    /// A token that is mostly right.
    fn token(&self, user: usize, facts: &mut Facts, prng: &mut Prng) -> Token {
        Token {
            serial: facts.serial(),
            is_later: prng.one_in(3),
            fault: match prng.below(16) {
                0 => Some(Fault::Invalid),
                1 => Some(Fault::Expired),
                _ => None,
            },
            user: if prng.one_in(16) { 0 } else { user },
            ttl: *prng.pick(&[0, 0, 1, 2, 3]),
            ..Token::default()
        }
    }

    pub(crate) fn connect(&mut self, facts: &mut Facts, prng: &mut Prng) {
        let user = prng.between(1, USERS);
        let mut token = self.token(user, facts, prng);
        if prng.one_in(3) {
            let count = *prng.pick(&[1, 1, 2, 5]);
            token.subs = (prng.below(ROOMS.len())..ROOMS.len()).take(count).collect();
            token.sub_ttl = *prng.pick(&[0, 0, 1, 2]);
        }
        token.id = token_id(prng);
        self.connect_with((!prng.one_in(5)).then_some(token), facts);
    }

    /// Connects with a token, or without one.
    pub(crate) fn connect_with(&mut self, token: Option<Token>, facts: &mut Facts) {
        let serial = match &token {
            Some(token) => token.serial,
            None => facts.serial(),
        };
        let line = match &token {
            Some(token) => json!({"connect": {"token": token.text()}}),
            None => json!({"connect": {"data": {"s": serial}}}),
        };
        self.ask(serial, Asked::new(What::Connect, token, facts), line);
    }

    pub(crate) fn subscribe(&mut self, room: usize, facts: &mut Facts, prng: &mut Prng) {
        let channel = ROOMS[room];
        let mut token = self.token(self.user, facts, prng);
        let (serial, what) = (token.serial, What::Subscribe(room));
        if prng.one_in(3) {
            let line = json!({"subscribe": {"channel": channel, "data": {"s": serial}}});
            return self.ask(serial, Asked::new(what, None, facts), line);
        }
        token.room = if prng.one_in(20) {
            prng.below(ROOMS.len())
        } else {
            room
        };
        token.user = if prng.one_in(30) { 1 } else { self.user };
        token.id = token_id(prng);
        let line = json!({"subscribe": {"channel": channel, "token": token.text()}});
        self.ask(serial, Asked::new(what, Some(token), facts), line);
    }

    pub(crate) fn unsubscribe(&mut self, room: usize, facts: &mut Facts) {
        let line = json!({"unsubscribe": {"channel": ROOMS[room]}});
        let asked = Asked::new(What::Unsubscribe(room), None, facts);
        self.ask(facts.serial(), asked, line);
    }

    pub(crate) fn publish(&mut self, room: usize, facts: &mut Facts) {
        let id = facts.issue(room, Some(self.number));
        facts.attempts[room] += 1;
        let serial = facts.serial();
        let line = json!({"publish": {"channel": ROOMS[room], "data": {"n": id, "s": serial}}});
        let asked = Asked::new(What::Publish(room, id), None, facts);
        self.ask(serial, asked, line);
    }

    pub(crate) fn rpc(&mut self, facts: &mut Facts) {
        let serial = facts.serial();
        let line = json!({"rpc": {"method": serial.to_string(), "data": {"s": serial}}});
        self.ask(serial, Asked::new(What::Rpc, None, facts), line);
    }

    /// Shows a new token for its connection. Where the application refreshes, that is an error.
    pub(crate) fn refresh(&mut self, facts: &mut Facts, prng: &mut Prng) {
        let errs = facts.fixed.refresh_proxy;
        if errs && !prng.one_in(8) {
            return;
        }
        let mut token = self.token(self.user, facts, prng);
        token.id = token_id(prng);
        token.subs.clone_from(&self.granted);
        if prng.one_in(20) {
            token.subs = vec![0];
        }
        let line = json!({"refresh": {"token": token.text()}});
        self.has_erred |= errs;
        let serial = token.serial;
        self.ask(serial, Asked::new(What::Refresh, Some(token), facts), line);
    }

    /// Shows a new token for a subscription. Where the application refreshes, that is an error.
    pub(crate) fn sub_refresh(&mut self, room: usize, facts: &mut Facts, prng: &mut Prng) {
        let errs = facts.refreshes(room);
        if errs && !prng.one_in(8) {
            return;
        }
        let mut token = self.token(self.user, facts, prng);
        token.room = room;
        token.user = self.user;
        token.id = token_id(prng);
        let line = json!({"sub_refresh": {"channel": ROOMS[room], "token": token.text()}});
        self.has_erred |= errs;
        let (serial, what) = (token.serial, What::SubRefresh(room));
        self.ask(serial, Asked::new(what, Some(token), facts), line);
    }
}

/// By which a token can be revoked; 0 for none.
fn token_id(prng: &mut Prng) -> u64 {
    prng.below(TOKEN_IDS) as u64
}

impl Asked {
    fn new(what: What, token: Option<Token>, facts: &Facts) -> Self {
        Self {
            what,
            token,
            at: facts.now,
            version: facts.oldest,
        }
    }
}
