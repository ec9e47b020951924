//! A client's TLS: a handshake of rustls, and then records of its own.

use super::records::{ALERT, DATA, HANDSHAKE, HEADER, Half, TEXT_MAX, whole};
use super::toy;
use myriad_reactor::sim::{PeerEnd, Prng};
use myriad_wire::peer::parse_proxy_header;
use rustls::ClientConnection;

/// Records in a row without data that a server allows.
const QUIET_MAX: u32 = 32;

/// Types of the messages of a handshake that may come behind it.
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;

const CLOSE_NOTIFY: u8 = 0;

/// How a client breaks TLS behind its handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A record that no key opens.
    WrongTag,
    /// A record that was sent before.
    Again,
    /// A record without protection.
    Bare,
    /// Bytes that begin no record.
    NoRecord,
    /// A header that announces too much.
    TooLong,
    /// Too many records without data.
    Flood,
    /// A `KeyUpdate` that asks for something unknown.
    OddUpdate,
    /// A message of a handshake that may not come any more.
    Renegotiation,
    /// The client gives up.
    GivesUp,
}

impl Fault {
    pub(crate) const ALL: [Self; 9] = [
        Self::WrongTag,
        Self::Again,
        Self::Bare,
        Self::NoRecord,
        Self::TooLong,
        Self::Flood,
        Self::OddUpdate,
        Self::Renegotiation,
        Self::GivesUp,
    ];

    /// The alert that answers it (RFC 8446, 6). None for an alert, to which nobody may answer.
    fn alert(self) -> Option<u8> {
        Some(match self {
            Self::WrongTag | Self::Again => 20,
            Self::Bare | Self::NoRecord | Self::Flood | Self::Renegotiation => 10,
            Self::TooLong => 22,
            Self::OddUpdate => 47,
            Self::GivesUp => return None,
        })
    }

    /// The line of the report.
    pub(crate) fn sent(self) -> &'static str {
        match self {
            Self::WrongTag => "tls: a client sends a record that no key opens",
            Self::Again => "tls: a client sends a record again",
            Self::Bare => "tls: a client sends a record without protection",
            Self::NoRecord => "tls: a client sends what is no record",
            Self::TooLong => "tls: a client announces a record that is too long",
            Self::Flood => "tls: a client floods with records without data",
            Self::OddUpdate => "tls: a client sends an odd KeyUpdate",
            Self::Renegotiation => "tls: a client begins another handshake",
            Self::GivesUp => "tls: a client gives up with an alert",
        }
    }
}

enum Stage {
    Fresh,
    Handshaking(Box<ClientConnection>),
    Open { read: Half, write: Half },
}

pub(crate) struct Client {
    stage: Stage,
    /// Which of the configurations it has.
    suite: usize,
    /// Said before the handshake has ended.
    queued: Vec<u8>,
    /// Ciphertext that has not left.
    pub(crate) outgoing: Vec<u8>,
    /// Ciphertext that is no whole record yet.
    incoming: Vec<u8>,
    /// Opened, and not read.
    pub(crate) plain: Vec<u8>,
    /// Records that a server's key seals.
    key_records_max: u64,
    /// Our records without data since the last one with some.
    quiet: u32,
    /// `KeyUpdate`s that asked for one, and answers. One answer may be for several.
    asked: u32,
    answered: u32,
    /// `KeyUpdate`s of keys that had sealed enough. They may be answers, too.
    due: u32,
    /// The same at the last quiet moment.
    before: (u32, u32),
    /// The server knows that an answer is due: it comes before any data.
    is_answer_due: bool,
    /// The server has sealed something, so its handshake has ended too.
    pub(crate) is_heard: bool,
    has_read_close_notify: bool,
    alert_heard: Option<u8>,
    pub(crate) fault: Option<Fault>,
    /// It has said that it sends no more.
    pub(crate) has_sent_close_notify: bool,
    /// It has closed, or was reset.
    pub(crate) is_gone: bool,
    /// Its side ends when its handshake has ended and all has left. It says nothing more.
    pub(crate) wants_fin: bool,
    pub(crate) sends_close_notify_first: bool,
    /// The end of its side is in what leaves.
    pub(crate) has_ended_its_side: bool,
    /// It does not read, once its handshake has ended.
    pub(crate) is_stalled: bool,
    /// Its descriptor may be lost on the way to the control plane, and its server's side end anywhere.
    pub(crate) may_be_cut: bool,
    has_checked_end: bool,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("fault", &self.fault)
            .field("alert_heard", &self.alert_heard)
            .field("has_read_close_notify", &self.has_read_close_notify)
            .field("is_heard", &self.is_heard)
            .field("outgoing", &self.outgoing.len())
            .field("incoming", &self.incoming.len())
            .field("is_gone", &self.is_gone)
            .finish_non_exhaustive()
    }
}

impl Client {
    pub(crate) fn new(key_records_max: u64, prng: &mut Prng) -> Self {
        Self {
            stage: Stage::Fresh,
            suite: prng.below(toy::CLIENTS.len()),
            queued: Vec::new(),
            outgoing: Vec::new(),
            incoming: Vec::new(),
            plain: Vec::new(),
            key_records_max,
            quiet: 0,
            asked: 0,
            answered: 0,
            due: 0,
            before: (0, 0),
            is_answer_due: false,
            is_heard: false,
            has_read_close_notify: false,
            alert_heard: None,
            fault: None,
            has_sent_close_notify: false,
            is_gone: false,
            wants_fin: false,
            sends_close_notify_first: false,
            has_ended_its_side: false,
            is_stalled: false,
            may_be_cut: false,
            has_checked_end: false,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open { .. })
    }

    /// It has said nothing.
    pub(crate) fn is_fresh(&self) -> bool {
        matches!(self.stage, Stage::Fresh)
    }

    /// Its handshake has begun and not ended.
    pub(crate) fn is_handshaking(&self) -> bool {
        matches!(self.stage, Stage::Handshaking(_))
    }

    /// The server's side has ended before the handshake, which will not end any more. A FIN that waited for that leaves now, as that of
    /// any program that reads the end of its handshake does. Without it the server lingers.
    pub(crate) fn is_shut_out(&self) -> bool {
        self.has_checked_end && !self.is_open()
    }

    /// Whether it may send records.
    pub(crate) fn may_speak(&self) -> bool {
        let is_silent =
            self.has_sent_close_notify || self.is_gone || self.wants_fin || self.has_ended_its_side;
        self.is_open() && !is_silent && self.fault.is_none()
    }

    /// Whether it has something for the network, or will have after the network's next word.
    pub(crate) fn is_busy(&self) -> bool {
        !self.is_gone && (self.is_handshaking() || !self.outgoing.is_empty() || self.wants_fin)
    }

    // Sending.

    /// Seals these bytes, once the handshake has ended.
    pub(crate) fn say(
        &mut self,
        bytes: &[u8],
        prng: &mut Prng,
        note: &mut dyn FnMut(&'static str),
    ) {
        let mut bytes = bytes;
        if matches!(self.stage, Stage::Fresh) {
            bytes = self.pass_header(bytes, note);
            self.begin();
        }
        match &self.stage {
            Stage::Open { .. } if self.may_speak() => self.seal(bytes, prng, note),
            Stage::Open { .. } => {}
            _ => self.queued.extend_from_slice(bytes),
        }
    }

    /// A proxy's header comes before the handshake, without protection. Answers what the client itself says. A header that is wrong comes
    /// inside.
    fn pass_header<'a>(&mut self, bytes: &'a [u8], note: &mut dyn FnMut(&'static str)) -> &'a [u8] {
        let Ok(Some(header)) = parse_proxy_header(bytes) else {
            return bytes;
        };
        note("tls: the header of a proxy comes before a handshake");
        let (header, rest) = bytes.split_at(header.bytes);
        self.outgoing.extend_from_slice(header);
        rest
    }

    fn begin(&mut self) {
        let config = toy::CLIENTS[self.suite].clone();
        let name = "push.example".try_into().expect("a name");
        let mut connection = ClientConnection::new(config, name).expect("a configuration");
        connection.write_tls(&mut self.outgoing).expect("memory");
        self.stage = Stage::Handshaking(Box::new(connection));
    }

    /// Seals data in records of any sizes, with what may come between them.
    fn seal(&mut self, mut bytes: &[u8], prng: &mut Prng, note: &mut dyn FnMut(&'static str)) {
        while !bytes.is_empty() {
            if prng.one_in(24) {
                self.interject(prng, note);
            }
            let most = bytes.len().min(TEXT_MAX);
            let count = match prng.below(8) {
                0 => prng.between(1, most),
                1 => prng.between(1, most.min(20)),
                _ => most,
            };
            let zeros = if prng.one_in(8) { prng.below(40) } else { 0 };
            let (part, rest) = bytes.split_at(count);
            let zeros = zeros.min(TEXT_MAX - count);
            self.record(DATA, part, zeros);
            self.quiet = 0;
            bytes = rest;
        }
    }

    fn record(&mut self, kind: u8, text: &[u8], zeros: usize) {
        if let Stage::Open { write, .. } = &mut self.stage {
            write.seal(kind, text, zeros, &mut self.outgoing);
        }
    }

    /// A record without data, as many as may follow one another.
    pub(crate) fn interject(&mut self, prng: &mut Prng, note: &mut dyn FnMut(&'static str)) {
        if self.quiet + 1 >= QUIET_MAX {
            return;
        }
        self.quiet += 1;
        match prng.below(4) {
            0 => {
                note("tls: a client sends a record without data");
                self.record(DATA, &[], prng.below(10));
            }
            1 => {
                note("tls: a client changes its key");
                self.update_key(0);
            }
            _ => {
                note("tls: a client asks for a new key");
                self.asked += 1;
                self.update_key(1);
            }
        }
    }

    fn update_key(&mut self, asks: u8) {
        self.record(HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, asks], 0);
        if let Stage::Open { write, .. } = &mut self.stage {
            write.update();
        }
    }

    pub(crate) fn send_close_notify(&mut self) {
        if self.may_speak() {
            self.send_last_close_notify();
        }
    }

    /// Behind everything else.
    pub(crate) fn send_last_close_notify(&mut self) {
        if self.fault.is_none() && !self.has_sent_close_notify {
            self.record(ALERT, &[1, CLOSE_NOTIFY], 0);
            self.has_sent_close_notify = true;
        }
    }

    /// Says nothing more, not even what it has said already.
    pub(crate) fn give_up(&mut self) {
        self.queued.clear();
        self.outgoing.clear();
        self.has_ended_its_side = true;
    }

    /// Breaks a rule. Nothing that it says from now on is heard.
    pub(crate) fn break_a_rule(&mut self, fault: Fault, prng: &mut Prng) {
        match fault {
            Fault::WrongTag => {
                self.record(DATA, b"never read", 0);
                let last = self.outgoing.len() - 1 - prng.below(16);
                self.outgoing[last] ^= 1 << prng.below(8);
            }
            Fault::Again => {
                let start = self.outgoing.len();
                self.record(DATA, &[], 0);
                self.outgoing.extend_from_within(start..);
            }
            Fault::Bare => self.outgoing.extend([ALERT, 3, 3, 0, 2, 2, 40]),
            Fault::NoRecord => self.outgoing.extend(b"GET / HTTP/1.1\r\n\r\n"),
            Fault::TooLong => self.outgoing.extend([DATA, 3, 3, 0xff, 0xff]),
            Fault::Flood => (0..=QUIET_MAX).for_each(|_| self.record(DATA, &[], 0)),
            Fault::OddUpdate => self.record(HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, 2], 0),
            Fault::Renegotiation => self.record(HANDSHAKE, &[1, 0, 0, 0], 0),
            Fault::GivesUp => self.record(ALERT, &[2, 80], 0),
        }
        self.fault = Some(fault);
    }

    // Receiving.

    /// Takes ciphertext. True if the handshake has ended with it.
    pub(crate) fn take(
        &mut self,
        bytes: &[u8],
        prng: &mut Prng,
        note: &mut dyn FnMut(&'static str),
    ) -> bool {
        self.incoming.extend_from_slice(bytes);
        let was_open = self.is_open();
        let mut taken = 0;
        while let Some(count) = whole(&self.incoming[taken..]) {
            let mut record = self.incoming[taken..taken + count].to_vec();
            taken += count;
            match self.stage {
                Stage::Open { .. } => self.open(&mut record, note),
                _ => self.shake_hands(&record),
            }
        }
        self.incoming.drain(..taken);
        match self.incoming.len() {
            0 => {}
            1..HEADER if self.is_open() => {
                note("tls: a client has read a header of a record in part");
            }
            _ => note("tls: a client has read a record in part"),
        }
        let has_opened = !was_open && self.is_open();
        if has_opened {
            note("tls: a handshake ends");
            let queued = std::mem::take(&mut self.queued);
            self.seal(&queued, prng, note);
        }
        has_opened
    }

    fn shake_hands(&mut self, record: &[u8]) {
        let Stage::Handshaking(connection) = &mut self.stage else {
            panic!("the server speaks first");
        };
        let mut bytes = record;
        connection.read_tls(&mut bytes).expect("memory");
        connection
            .process_new_packets()
            .expect("a handshake without a fault");
        while connection.wants_write() {
            connection.write_tls(&mut self.outgoing).expect("memory");
        }
        if !connection.is_handshaking() {
            let suite = connection
                .negotiated_cipher_suite()
                .expect("it has ended")
                .suite();
            let [ours, servers] = toy::take_secrets();
            self.stage = Stage::Open {
                read: Half::new(suite, servers),
                write: Half::new(suite, ours),
            };
        }
    }

    fn open(&mut self, record: &mut [u8], note: &mut dyn FnMut(&'static str)) {
        let Stage::Open { read, .. } = &mut self.stage else {
            panic!("the handshake has not ended");
        };
        assert!(
            !self.has_read_close_notify,
            "a record behind the close_notify"
        );
        assert_eq!(self.alert_heard, None, "a record behind an alert");
        self.is_heard = true;
        let has_sealed_enough = read.sequence() >= self.key_records_max - 1;
        let (kind, text) = read
            .open(record)
            .expect("the server's records open in their order");
        assert!(!text.is_empty(), "a server of ours sends nothing empty");
        match kind {
            DATA => {
                assert!(
                    !self.is_answer_due,
                    "data before the KeyUpdate that was asked for"
                );
                assert!(!has_sealed_enough, "a key seals too much");
                self.plain.extend_from_slice(text);
            }
            HANDSHAKE if text[0] == NEW_SESSION_TICKET => note("tls: a client reads a ticket"),
            HANDSHAKE => {
                assert_eq!(text, [KEY_UPDATE, 0, 0, 1, 0], "an answer to a KeyUpdate");
                note(if has_sealed_enough {
                    "tls: a client reads the KeyUpdate of a key that has sealed enough"
                } else {
                    "tls: a client reads the answer to its KeyUpdate"
                });
                self.is_answer_due = false;
                self.answered += 1;
                self.due += u32::from(has_sealed_enough);
                assert!(
                    self.answered <= self.asked + self.due,
                    "a KeyUpdate that nobody asked for"
                );
                read.update();
            }
            ALERT if text == [1, CLOSE_NOTIFY] => self.has_read_close_notify = true,
            ALERT => {
                let due = self.fault.and_then(Fault::alert);
                assert_eq!(due, Some(text[1]), "{:?}", self.fault);
                note("tls: a client reads the alert that is due");
                self.alert_heard = due;
            }
            other => panic!("a record of type {other}"),
        }
    }

    /// Nothing is under way: what the client has asked for is known to the server.
    pub(crate) fn note_quiet(&mut self) {
        if self.is_busy() || self.is_stalled {
            return;
        }
        let (asked, answered) = self.before;
        let is_unanswered = self.asked > asked && self.answered == answered;
        self.is_answer_due |= is_unanswered && self.may_speak();
        self.before = (self.asked, self.answered);
    }

    /// The server's side has ended like this, and all before it has come.
    pub(crate) fn check_end(&mut self, end: PeerEnd, note: &mut dyn FnMut(&'static str)) {
        if std::mem::replace(&mut self.has_checked_end, true) {
            return;
        }
        if end == PeerEnd::Reset {
            return note("tls: a client reads RST");
        }
        if self.may_be_cut {
            return note("tls: a client is dropped on its way to the control plane");
        }
        assert!(self.incoming.is_empty(), "the end cuts a record: {self:?}");
        if !self.is_heard {
            return note("tls: a client is shut out before its handshake has ended");
        }
        if let Some(fault) = self.fault {
            note("tls: a client that broke a rule reads FIN");
            let is_told = self.alert_heard.is_some() || self.has_read_close_notify;
            assert!(
                is_told || fault.alert().is_none(),
                "{fault:?} without an alert"
            );
            return;
        }
        assert!(
            self.has_read_close_notify,
            "the server's side ends without a close_notify"
        );
        note("tls: a client reads a close_notify and FIN");
    }
}
