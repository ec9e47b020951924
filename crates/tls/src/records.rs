//! A connection behind its handshake: 216 bytes that seal and open its records (RFC 8446, section 5).
//!
//! No key schedule of a cipher is kept. It would cost 550 to 630 bytes a direction, and to fetch them into the cache takes longer than
//! to make them again: 438 ns for a record against 1,199 ns, over 400,000 connections in random order (AES-128-GCM, AMD EPYC).

use std::ops::Range;

use aws_lc_rs::aead::{Aad, LessSafeKey, Nonce, UnboundKey};
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::alert::{Alert, Fault};
use crate::header::{HEADER, Header};
use crate::suite::{KEY, NONCE, SECRET, Suite, TAG};

/// Bytes of text that a record takes (RFC 8446, 5.1).
pub const PLAIN_MAX: usize = 1 << 14;

/// Records in a row without data, as `KeyUpdate`s and empty ones are, that a peer may send. OpenSSL allows 32.
pub(crate) const QUIET_MAX: u8 = 32;

/// Records that one key seals. A key of AES-GCM lasts for 2^24.5 full ones (RFC 8446, 5.5), and nobody else counts them.
const SEALED_MAX: u64 = 1 << 24;

#[cfg(feature = "key-limit")]
thread_local! {
    static LIMIT: std::cell::Cell<u64> = const { std::cell::Cell::new(SEALED_MAX) };
}

/// A key seals no more records than this on the current thread from now on.
#[cfg(feature = "key-limit")]
pub fn limit_keys(records: u64) {
    LIMIT.set(records);
}

fn sealed_max() -> u64 {
    #[cfg(feature = "key-limit")]
    return LIMIT.get();
    #[cfg(not(feature = "key-limit"))]
    SEALED_MAX
}

pub(crate) const ALERT: u8 = 21;
pub(crate) const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;

/// Types of the messages of a handshake that may come behind it (RFC 8446, 4).
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;

/// One of the two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Gets tickets.
    Client = 1,
    /// Gets none.
    Server = 2,
}

/// What protects one direction.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
struct Half {
    /// Number of the next record under this key.
    sequence: u64,
    secret: [u8; SECRET],
    key: [u8; KEY],
    nonce: [u8; NONCE],
}

/// A connection's state behind its handshake, without a pointer: it lies in a slab, and another process can go on with its bytes.
///
/// Dropping it wipes its keys.
#[derive(Clone)]
pub struct Records {
    read: Half,
    write: Half,
    suite: Suite,
    side: Side,
    /// Records without data since the last one with some.
    quiet: u8,
    /// The peer asked for a `KeyUpdate` that has not been sealed yet (RFC 8446, 4.6.3).
    owes_update: bool,
    /// The peer said that nothing more comes from it.
    is_read_closed: bool,
    /// We have said so, or why the connection ends. Nothing is sealed behind that (RFC 8446, 6.1 and 6.2).
    is_write_closed: bool,
}

const _: () = assert!(size_of::<Records>() == 216);

/// Bytes of [`Records::to_bytes`].
pub const STATE: usize = 2 * (8 + SECRET + KEY + NONCE) + 6;

/// What `open` found at the start of its input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opened {
    /// No whole record has come.
    Incomplete,
    /// A record.
    Record {
        /// Its bytes in the input, with the header.
        whole: usize,
        /// Its contents.
        content: Content,
    },
}

/// The contents of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Data: a range of the input, which was opened in its place. May be empty.
    Data(Range<usize>),
    /// Messages with tickets, whole, with their headers (RFC 8446, 4.6.1): a range of the input. Only a client gets them.
    Tickets(Range<usize>),
    /// Nothing for the application: a `KeyUpdate`, or an alert that means nothing.
    Nothing,
    /// A `close_notify`: the peer sends nothing more, and may still read (RFC 8446, 6.1).
    Closed,
    /// An alert of the peer that ends the connection.
    Alert(Alert),
}

/// A secret that has not the length of its suite's hash: there is nothing to seal or open with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the secrets of a connection do not fit its cipher suite")]
pub struct Unfit;

impl Half {
    fn new(suite: Suite, secret: &[u8; SECRET], sequence: u64) -> Result<Self, Unfit> {
        let mut half = Self {
            sequence,
            secret: *secret,
            key: [0; KEY],
            nonce: [0; NONCE],
        };
        half.derive(suite)?;
        Ok(half)
    }

    /// Makes key and nonce of the secret (RFC 8446, 7.3).
    fn derive(&mut self, suite: Suite) -> Result<(), Unfit> {
        let (key, rest) = self.key.split_at_mut(suite.aead().key_len());
        rest.fill(0);
        let is_made = suite.expand(&self.secret, "key", key)
            && suite.expand(&self.secret, "iv", &mut self.nonce);
        is_made.then_some(()).ok_or(Unfit)
    }

    /// The next secret, its key, and sequence numbers from 0 (RFC 8446, 7.2 and 5.3).
    fn update(&mut self, suite: Suite) {
        let mut next = [0; SECRET];
        // Cannot fail: `new` has expanded a secret of this suite.
        let is_made = suite.expand(
            &self.secret,
            "traffic upd",
            &mut next[..suite.secret_length()],
        );
        self.secret.zeroize();
        self.secret = next;
        next.zeroize();
        let is_derived = self.derive(suite).is_ok();
        debug_assert!(
            is_made && is_derived,
            "a secret of this suite was expanded before"
        );
        self.sequence = 0;
    }

    fn cipher(&self, suite: Suite) -> Option<LessSafeKey> {
        let algorithm = suite.aead();
        UnboundKey::new(algorithm, &self.key[..algorithm.key_len()])
            .ok()
            .map(LessSafeKey::new)
    }

    /// The nonce of the next record, which it counts (RFC 8446, 5.3).
    fn next_nonce(&mut self) -> Nonce {
        let mut nonce = self.nonce;
        for (byte, sequence) in nonce[NONCE - 8..]
            .iter_mut()
            .zip(self.sequence.to_be_bytes())
        {
            *byte ^= sequence;
        }
        self.sequence += 1;
        Nonce::assume_unique_for_key(nonce)
    }

    fn to_bytes(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.sequence.to_be_bytes());
        bytes.extend_from_slice(&self.secret);
        bytes.extend_from_slice(&self.key);
        bytes.extend_from_slice(&self.nonce);
    }

    fn from_bytes(bytes: &mut &[u8]) -> Option<Self> {
        Some(Self {
            sequence: u64::from_be_bytes(take(bytes)?),
            secret: take(bytes)?,
            key: take(bytes)?,
            nonce: take(bytes)?,
        })
    }
}

fn take<const LENGTH: usize>(bytes: &mut &[u8]) -> Option<[u8; LENGTH]> {
    let (taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*taken)
}

impl Records {
    /// The record stage of a connection whose handshake ended with these traffic secrets. `read` and `written` are the records that have
    /// come and gone under them.
    ///
    /// # Errors
    ///
    /// Secrets that are not those of `suite`.
    pub(crate) fn new(
        side: Side,
        suite: Suite,
        read: (&[u8; SECRET], u64),
        write: (&[u8; SECRET], u64),
    ) -> Result<Self, Unfit> {
        Ok(Self {
            read: Half::new(suite, read.0, read.1)?,
            write: Half::new(suite, write.0, write.1)?,
            suite,
            side,
            quiet: 0,
            owes_update: false,
            is_read_closed: false,
            is_write_closed: false,
        })
    }

    /// Whether these are the keys and nonces of both directions, as rustls extracted them: reading, then writing.
    pub(crate) fn has_keys(&self, read: (&[u8], &[u8]), write: (&[u8], &[u8])) -> bool {
        let is_of = |half: &Half, (key, nonce): (&[u8], &[u8])| {
            half.key[..self.suite.aead().key_len()] == *key && half.nonce == *nonce
        };
        is_of(&self.read, read) && is_of(&self.write, write)
    }

    /// The cipher suite.
    pub fn suite(&self) -> Suite {
        self.suite
    }

    /// Whether the peer said that nothing more comes from it.
    pub fn is_read_closed(&self) -> bool {
        self.is_read_closed
    }

    /// Whether an alert of ours has ended what we send. Then nothing more is sealed.
    pub fn is_write_closed(&self) -> bool {
        self.is_write_closed
    }

    /// Whether the peer waits for a `KeyUpdate` of ours. The next `seal` writes it, or [`Records::answer`] if there is nothing to seal.
    pub fn owes_update(&self) -> bool {
        self.owes_update
    }

    /// Bytes that `seal` writes for `plain` bytes of data, without a `KeyUpdate` before them.
    pub fn sealed_length(plain: usize) -> usize {
        plain + plain.div_ceil(PLAIN_MAX).max(1) * (HEADER + 1 + TAG)
    }

    /// Writes `plain` behind what is in `sealed`, in records of at most [`PLAIN_MAX`] bytes. No bytes make no record.
    ///
    /// Each call uses sequence numbers up. So nothing may be sealed a second time: what a socket does not take stays sealed until it has
    /// left.
    pub fn seal(&mut self, plain: &[u8], sealed: &mut Vec<u8>) {
        if plain.is_empty() || self.is_write_closed {
            return;
        }
        self.answer(sealed);
        let mut cipher = None;
        for part in plain.chunks(PLAIN_MAX) {
            if self.write.sequence >= sealed_max() - 1 {
                self.update_write(0, sealed);
                cipher = None;
            }
            if cipher.is_none() {
                cipher = self.write.cipher(self.suite);
            }
            let Some(cipher) = &cipher else { return };
            seal_record(&mut self.write, cipher, DATA, part, sealed);
        }
    }

    /// Writes the `KeyUpdate` that the peer asked for, if it did. Asking many times before an answer gets one (RFC 8446, 4.6.3).
    pub fn answer(&mut self, sealed: &mut Vec<u8>) {
        if self.owes_update {
            self.update_write(0, sealed);
        }
    }

    /// Writes a `KeyUpdate`, which asks for one of the peer as well, and changes our key behind it.
    pub fn refresh(&mut self, sealed: &mut Vec<u8>) {
        self.update_write(1, sealed);
    }

    /// Writes an alert. Nothing is sealed behind a `close_notify` or an error, not even another alert (RFC 8446, 6.1 and 6.2).
    pub fn seal_alert(&mut self, alert: Alert, sealed: &mut Vec<u8>) {
        if self.is_write_closed {
            return;
        }
        self.is_write_closed = alert != Alert::USER_CANCELED;
        if let Some(cipher) = self.write.cipher(self.suite) {
            seal_record(&mut self.write, &cipher, ALERT, &alert.message(), sealed);
        }
    }

    /// Seals any inner plaintext, as no peer of ours does, and changes the key behind a `KeyUpdate`.
    pub(crate) fn seal_inner(&mut self, inner: &[u8], sealed: &mut Vec<u8>) {
        let (Some((kind, text)), Some(cipher)) =
            (inner.split_last(), self.write.cipher(self.suite))
        else {
            return;
        };
        seal_record(&mut self.write, &cipher, *kind, text, sealed);
        let end = inner.iter().rposition(|byte| *byte != 0);
        let unpadded = &inner[..end.map_or(0, |end| end + 1)];
        if matches!(unpadded, [KEY_UPDATE, 0, 0, 1, 0 | 1, HANDSHAKE]) {
            self.write.update(self.suite);
        }
    }

    /// A `KeyUpdate` goes under the old key, and everything behind it under the new one (RFC 8446, 4.6.3).
    fn update_write(&mut self, asks: u8, sealed: &mut Vec<u8>) {
        if self.is_write_closed {
            return;
        }
        if let Some(cipher) = self.write.cipher(self.suite) {
            seal_record(
                &mut self.write,
                &cipher,
                HANDSHAKE,
                &[KEY_UPDATE, 0, 0, 1, asks],
                sealed,
            );
        }
        self.write.update(self.suite);
        self.owes_update = false;
    }

    /// Opens the record at the start of `input`, in its place.
    ///
    /// # Errors
    ///
    /// A record that ends the connection: [`Fault::alert`] is for [`Records::seal_alert`].
    pub fn open(&mut self, input: &mut [u8]) -> Result<Opened, Fault> {
        let Some(header) = Header::read(input)? else {
            return Ok(Opened::Incomplete);
        };
        // Before the peer's Finished a change_cipher_spec may come without protection, behind it nothing may (RFC 8446, 5).
        if header.kind != DATA {
            return Err(Fault::Unexpected(header.kind));
        }
        let whole = header.whole();
        let Some(record) = input.get_mut(..whole) else {
            return Ok(Opened::Incomplete);
        };
        let (head, body) = record.split_at_mut(HEADER);
        let Some(cipher) = self.read.cipher(self.suite) else {
            return Err(Fault::NotOurs);
        };
        let nonce = self.read.next_nonce();
        let inner = cipher
            .open_in_place(nonce, Aad::from(&*head), body)
            .map_err(|_| Fault::NotOurs)?;
        // Text, type, and any number of zeros (RFC 8446, 5.2).
        let length = inner
            .iter()
            .rposition(|byte| *byte != 0)
            .ok_or(Fault::NoType)?;
        if length > PLAIN_MAX || inner.len() > PLAIN_MAX + 1 {
            return Err(Fault::TooLong);
        }
        let kind = inner[length];
        let content = self.take_content(kind, &inner[..length])?;
        Ok(Opened::Record { whole, content })
    }

    fn take_content(&mut self, kind: u8, text: &[u8]) -> Result<Content, Fault> {
        if kind == DATA && !text.is_empty() {
            self.quiet = 0;
            return Ok(Content::Data(HEADER..HEADER + text.len()));
        }
        if self.quiet == QUIET_MAX {
            return Err(Fault::Flood);
        }
        self.quiet += 1;
        match kind {
            DATA => Ok(Content::Nothing),
            HANDSHAKE | ALERT if text.is_empty() => Err(Fault::Empty(kind)),
            HANDSHAKE if self.side == Side::Client && are_tickets(text) => {
                Ok(Content::Tickets(HEADER..HEADER + text.len()))
            }
            HANDSHAKE => self.take_key_update(text),
            ALERT => self.take_alert(text),
            _ => Err(Fault::Unexpected(kind)),
        }
    }

    fn take_key_update(&mut self, text: &[u8]) -> Result<Content, Fault> {
        let asks = match *text {
            [KEY_UPDATE, 0, 0, 1, asks] => asks,
            [KEY_UPDATE, high, middle, low, ..] if [high, middle, low] != [0, 0, 1] => {
                return Err(Fault::KeyUpdateLength);
            }
            _ => return Err(Fault::NoKeyUpdate),
        };
        match asks {
            0 => {}
            1 => self.owes_update = true,
            _ => return Err(Fault::KeyUpdateValue),
        }
        self.read.update(self.suite);
        Ok(Content::Nothing)
    }

    fn take_alert(&mut self, text: &[u8]) -> Result<Content, Fault> {
        // The level says nothing in TLS 1.3 (RFC 8446, 6).
        let [_, description] = *text else {
            return Err(Fault::AlertLength);
        };
        match Alert(description) {
            Alert::CLOSE_NOTIFY => {
                self.is_read_closed = true;
                Ok(Content::Closed)
            }
            Alert::USER_CANCELED => Ok(Content::Nothing),
            alert => Ok(Content::Alert(alert)),
        }
    }

    /// The state for another process of this server. It contains the connection's keys.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(STATE);
        bytes.extend_from_slice(&[
            self.suite as u8,
            self.side as u8,
            self.quiet,
            self.owes_update.into(),
            self.is_read_closed.into(),
            self.is_write_closed.into(),
        ]);
        self.read.to_bytes(&mut bytes);
        self.write.to_bytes(&mut bytes);
        bytes
    }

    /// Reads what [`Records::to_bytes`] wrote: nothing if it cannot have written this.
    pub fn from_bytes(mut bytes: &[u8]) -> Option<Self> {
        if bytes.len() != STATE {
            return None;
        }
        let [
            suite,
            side,
            quiet,
            owes_update,
            is_read_closed,
            is_write_closed,
        ] = take(&mut bytes)?;
        Some(Self {
            read: Half::from_bytes(&mut bytes)?,
            write: Half::from_bytes(&mut bytes)?,
            suite: Suite::numbered(suite)?,
            side: [Side::Client, Side::Server]
                .into_iter()
                .find(|end| *end as u8 == side)?,
            quiet,
            owes_update: owes_update != 0,
            is_read_closed: is_read_closed != 0,
            is_write_closed: is_write_closed != 0,
        })
    }
}

impl std::fmt::Debug for Records {
    /// Without keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Records")
            .field("suite", &self.suite)
            .field("read", &self.read.sequence)
            .field("written", &self.write.sequence)
            .finish_non_exhaustive()
    }
}

/// Whether a record's text is whole messages with tickets, one behind the other.
fn are_tickets(mut text: &[u8]) -> bool {
    while let [NEW_SESSION_TICKET, high, middle, low, rest @ ..] = text {
        let length = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
        match rest.get(length..) {
            Some([]) => return true,
            Some(next) => text = next,
            None => return false,
        }
    }
    false
}

/// Writes one record with a text of at most [`PLAIN_MAX`] bytes.
fn seal_record(half: &mut Half, cipher: &LessSafeKey, kind: u8, text: &[u8], sealed: &mut Vec<u8>) {
    let inner = text.len() + 1;
    let [.., high, low] = (inner + TAG).to_be_bytes();
    let head = [DATA, 3, 3, high, low];
    sealed.reserve(HEADER + inner + TAG);
    sealed.extend_from_slice(&head);
    let start = sealed.len();
    sealed.extend_from_slice(text);
    sealed.push(kind);
    let nonce = half.next_nonce();
    let tag = cipher.seal_in_place_separate_tag(nonce, Aad::from(head), &mut sealed[start..]);
    // aws-lc refuses only texts far beyond PLAIN_MAX. Without a tag the peer ends the connection, and no plain text has left.
    match tag {
        Ok(tag) => sealed.extend_from_slice(tag.as_ref()),
        Err(_) => sealed.truncate(start - HEADER),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUITES: [Suite; 3] = [Suite::Aes128Gcm, Suite::Aes256Gcm, Suite::ChaCha20Poly1305];

    /// Both ends of a connection.
    fn ends(suite: Suite) -> (Records, Records) {
        let (client, server) = ([1; SECRET], [2; SECRET]);
        let one = Records::new(Side::Server, suite, (&client, 0), (&server, 0)).expect("fits");
        let other = Records::new(Side::Client, suite, (&server, 0), (&client, 0)).expect("fits");
        (one, other)
    }

    fn seal_as(records: &mut Records, kind: u8, text: &[u8]) -> Vec<u8> {
        let cipher = records.write.cipher(records.suite).expect("a key");
        let mut sealed = Vec::new();
        seal_record(&mut records.write, &cipher, kind, text, &mut sealed);
        sealed
    }

    /// The data of all records in `sealed`.
    fn opened(records: &mut Records, sealed: &mut [u8]) -> Result<Vec<u8>, Fault> {
        let (mut data, mut rest) = (Vec::new(), sealed);
        while let Opened::Record { whole, content } = records.open(rest)? {
            if let Content::Data(range) = content {
                data.extend_from_slice(&rest[range]);
            }
            rest = &mut rest[whole..];
        }
        assert_eq!(rest.len(), 0, "bytes behind the last whole record");
        Ok(data)
    }

    #[test]
    fn data_of_every_length_comes_through_in_as_few_records_as_possible() {
        for suite in SUITES {
            let (mut one, mut other) = ends(suite);
            for length in [
                0,
                1,
                100,
                PLAIN_MAX - 1,
                PLAIN_MAX,
                PLAIN_MAX + 1,
                3 * PLAIN_MAX,
            ] {
                let plain = vec![b'x'; length];
                let mut sealed = vec![];
                one.seal(&plain, &mut sealed);
                if length > 0 {
                    assert_eq!(sealed.len(), Records::sealed_length(length));
                }
                assert_eq!(
                    opened(&mut other, &mut sealed),
                    Ok(plain),
                    "{suite:?} {length}"
                );
            }
        }
    }

    #[test]
    fn a_record_that_is_not_whole_is_left_as_it_is() {
        let (mut one, mut other) = ends(Suite::Aes128Gcm);
        let mut sealed = vec![];
        one.seal(b"hello", &mut sealed);
        for cut in 0..sealed.len() {
            let mut part = sealed[..cut].to_vec();
            assert_eq!(other.open(&mut part), Ok(Opened::Incomplete), "{cut}");
            assert_eq!(part, sealed[..cut]);
        }
        assert_eq!(opened(&mut other, &mut sealed), Ok(b"hello".to_vec()));
    }

    #[test]
    fn no_changed_record_opens_and_none_opens_twice_or_out_of_order() {
        for suite in SUITES {
            let (mut one, other) = ends(suite);
            let (mut first, mut second) = (vec![], vec![]);
            one.seal(b"first", &mut first);
            one.seal(b"second", &mut second);
            for bit in 0..first.len() * 8 {
                let mut changed = first.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                // A longer record has not come whole.
                let result = other.clone().open(&mut changed);
                assert!(
                    matches!(result, Err(_) | Ok(Opened::Incomplete)),
                    "{suite:?} bit {bit}: {result:?}"
                );
            }
            assert_eq!(
                opened(&mut other.clone(), &mut second.clone()),
                Err(Fault::NotOurs)
            );
            let mut twice = [first.clone(), first.clone()].concat();
            assert_eq!(opened(&mut other.clone(), &mut twice), Err(Fault::NotOurs));
        }
    }

    #[test]
    fn each_fault_has_the_alert_of_the_rfc() {
        let cases: [(u8, Vec<u8>, Fault); 12] = [
            (20, vec![1], Fault::Unexpected(20)),
            (99, vec![1], Fault::Unexpected(99)),
            (HANDSHAKE, vec![], Fault::Empty(HANDSHAKE)),
            (HANDSHAKE, vec![KEY_UPDATE, 0, 0], Fault::NoKeyUpdate),
            (
                HANDSHAKE,
                vec![KEY_UPDATE, 0, 0, 1, 0, KEY_UPDATE],
                Fault::NoKeyUpdate,
            ),
            (HANDSHAKE, vec![1, 0, 0, 1, 0], Fault::NoKeyUpdate),
            (
                HANDSHAKE,
                vec![KEY_UPDATE, 0, 0, 1, 2],
                Fault::KeyUpdateValue,
            ),
            (HANDSHAKE, vec![KEY_UPDATE, 0, 0, 0], Fault::KeyUpdateLength),
            (
                HANDSHAKE,
                vec![KEY_UPDATE, 0, 0, 2, 0, 0],
                Fault::KeyUpdateLength,
            ),
            (ALERT, vec![1], Fault::AlertLength),
            (ALERT, vec![], Fault::Empty(ALERT)),
            (0, vec![0, 0], Fault::NoType),
        ];
        for (kind, text, fault) in cases {
            let (mut one, mut other) = ends(Suite::Aes128Gcm);
            assert_eq!(
                other.open(&mut seal_as(&mut one, kind, &text)),
                Err(fault),
                "{kind} {text:?}"
            );
        }
        let (mut one, mut other) = ends(Suite::Aes128Gcm);
        // Room for a text of 2^14 with its type, and one byte more.
        let mut padded = vec![b'x'; PLAIN_MAX];
        padded.extend_from_slice(&[DATA]);
        assert_eq!(
            other.open(&mut seal_as(&mut one, 0, &padded)),
            Err(Fault::TooLong)
        );
        assert_eq!(
            other.open(&mut [ALERT, 3, 3, 0, 2, 1, 0]),
            Err(Fault::Unexpected(ALERT))
        );
        assert_eq!(other.open(&mut [DATA, 3, 3, 0, 0]), Err(Fault::NotOurs));
    }

    #[test]
    fn tickets_come_to_clients_only_and_whole() {
        let (mut server, client) = ends(Suite::Aes128Gcm);
        let (one, two) = ([4, 0, 0, 3, b'a', b'b', b'c'], [4, 0, 0, 1, b'd']);
        let cases = [
            ([one.as_slice(), &two].concat(), true),
            (one.to_vec(), true),
            (one[..6].to_vec(), false),
            ([one.as_slice(), &two[..4]].concat(), false),
            ([one.as_slice(), &[KEY_UPDATE, 0, 0, 1, 0]].concat(), false),
        ];
        for (text, is_taken) in cases {
            let mut sealed = seal_as(&mut server.clone(), HANDSHAKE, &text);
            let whole = sealed.len();
            let expected = if is_taken {
                Ok(Opened::Record {
                    whole,
                    content: Content::Tickets(HEADER..HEADER + text.len()),
                })
            } else {
                Err(Fault::NoKeyUpdate)
            };
            assert_eq!(client.clone().open(&mut sealed), expected, "{text:?}");
        }
        let mut sealed = seal_as(&mut client.clone(), HANDSHAKE, &one);
        assert_eq!(server.open(&mut sealed), Err(Fault::NoKeyUpdate));
    }

    #[test]
    fn padding_is_taken_off() {
        let (mut one, mut other) = ends(Suite::Aes256Gcm);
        let padded = [b"hello".as_slice(), &[DATA], &[0; 300]].concat();
        let mut sealed = seal_as(&mut one, 0, &padded);
        assert_eq!(opened(&mut other, &mut sealed), Ok(b"hello".to_vec()));
    }

    #[test]
    fn records_without_data_are_counted_until_one_has_some() {
        let (mut one, mut other) = ends(Suite::Aes128Gcm);
        for _ in 0..2 {
            for _ in 0..QUIET_MAX {
                assert_eq!(
                    opened(&mut other, &mut seal_as(&mut one, DATA, b"")),
                    Ok(vec![])
                );
            }
            assert_eq!(
                opened(&mut other, &mut seal_as(&mut one, DATA, b"x")),
                Ok(b"x".to_vec())
            );
        }
        let mut updates = vec![];
        for _ in 0..=QUIET_MAX {
            one.refresh(&mut updates);
        }
        assert_eq!(opened(&mut other, &mut updates), Err(Fault::Flood));
    }

    #[test]
    fn a_key_update_is_answered_once_before_our_own_data() {
        for suite in SUITES {
            let (mut one, mut other) = ends(suite);
            let mut sealed = vec![];
            one.refresh(&mut sealed);
            one.refresh(&mut sealed);
            one.seal(b"new", &mut sealed);
            assert_eq!(opened(&mut other, &mut sealed), Ok(b"new".to_vec()));
            assert!(other.owes_update());
            let mut answer = vec![];
            other.seal(b"answer", &mut answer);
            assert!(!other.owes_update());
            assert_eq!(
                answer.len(),
                Records::sealed_length(5) + Records::sealed_length(6)
            );
            assert_eq!(opened(&mut one, &mut answer), Ok(b"answer".to_vec()));
            assert!(!one.owes_update());
        }
    }

    #[test]
    fn a_key_that_has_sealed_enough_is_replaced() {
        let (mut one, mut other) = ends(Suite::Aes128Gcm);
        one.write.sequence = SEALED_MAX - 2;
        other.read.sequence = SEALED_MAX - 2;
        let plain = vec![b'x'; 3 * PLAIN_MAX];
        let mut sealed = vec![];
        one.seal(&plain, &mut sealed);
        assert_eq!(one.write.sequence, 2);
        assert_eq!(opened(&mut other, &mut sealed), Ok(plain));
    }

    #[test]
    fn another_process_goes_on_with_the_bytes() {
        let (mut one, mut other) = ends(Suite::ChaCha20Poly1305);
        let mut sealed = vec![];
        one.seal(b"before", &mut sealed);
        assert_eq!(opened(&mut other, &mut sealed), Ok(b"before".to_vec()));
        let mut update = vec![];
        one.refresh(&mut update);
        assert_eq!(opened(&mut other, &mut update), Ok(vec![]));

        let (bytes, mut sealed) = (other.to_bytes(), vec![]);
        assert_eq!(bytes.len(), STATE);
        let mut other = Records::from_bytes(&bytes).expect("as written");
        assert!(other.owes_update());
        one.seal(b"after", &mut sealed);
        assert_eq!(opened(&mut other, &mut sealed), Ok(b"after".to_vec()));
        for broken in [
            &bytes[1..],
            &[bytes.as_slice(), &[0]].concat(),
            &[&[9], &bytes[1..]].concat(),
        ] {
            assert!(Records::from_bytes(broken).is_none());
        }
    }

    #[test]
    fn alerts_come_through_and_only_a_close_is_no_error() {
        let (mut one, mut other) = ends(Suite::Aes128Gcm);
        let cases = [
            (Alert::USER_CANCELED, Content::Nothing),
            (Alert::BAD_RECORD_MAC, Content::Alert(Alert::BAD_RECORD_MAC)),
            (Alert::CLOSE_NOTIFY, Content::Closed),
        ];
        for (alert, expected) in cases {
            let mut sealed = vec![];
            one.is_write_closed = false;
            one.seal_alert(alert, &mut sealed);
            let whole = sealed.len();
            assert_eq!(
                other.open(&mut sealed),
                Ok(Opened::Record {
                    whole,
                    content: expected
                })
            );
        }
        assert!(other.is_read_closed());
        assert!(!format!("{one:?}").contains("secret"));
    }

    #[test]
    fn nothing_is_sealed_behind_the_alert_that_ends_our_side() {
        for alert in [Alert::CLOSE_NOTIFY, Alert::BAD_RECORD_MAC] {
            let (mut one, mut other) = ends(Suite::Aes128Gcm);
            let mut sealed = vec![];
            one.seal_alert(alert, &mut sealed);
            assert!(one.is_write_closed());
            // Such a peer may ask for a KeyUpdate before it has read the alert, and break rules.
            let mut update = vec![];
            other.refresh(&mut update);
            assert_eq!(opened(&mut one, &mut update), Ok(vec![]));
            assert!(one.owes_update());

            let whole = sealed.len();
            one.answer(&mut sealed);
            one.seal(b"data", &mut sealed);
            one.seal_alert(Alert::CLOSE_NOTIFY, &mut sealed);
            one.refresh(&mut sealed);
            assert_eq!(sealed.len(), whole);
        }
    }

    proptest::proptest! {
        /// Whatever a peer puts into a record that it seals, the record is opened, or refused with an alert. Nothing of it is lost.
        #[test]
        fn any_contents_are_taken_or_refused(
            contents in proptest::collection::vec((proptest::num::u8::ANY, proptest::collection::vec(0..32_u8, 0..40)), 1..20),
        ) {
            let (mut one, mut other) = ends(Suite::ChaCha20Poly1305);
            for (kind, text) in contents {
                let mut sealed = seal_as(&mut one, kind, &text);
                let length = sealed.len();
                match other.open(&mut sealed) {
                    Ok(Opened::Record { whole, content }) => {
                        proptest::prop_assert_eq!(whole, length);
                        if let Content::Data(range) | Content::Tickets(range) = content {
                            // A type of 0 is padding: then the type is in the text.
                            proptest::prop_assert!(text.starts_with(&sealed[range]));
                        }
                        if other.read.sequence == 0 {
                            one.write.update(one.suite);
                        }
                    }
                    Ok(Opened::Incomplete) => proptest::prop_assert!(false, "it is whole"),
                    Err(fault) => {
                        proptest::prop_assert!(fault.alert() != Alert::CLOSE_NOTIFY);
                        return Ok(());
                    }
                }
            }
        }

        /// Whatever comes instead of records is refused, or waits for the rest of a record.
        #[test]
        fn any_bytes_are_refused_or_incomplete(mut bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..100)) {
            let (_, mut other) = ends(Suite::Aes256Gcm);
            let result = other.open(&mut bytes);
            proptest::prop_assert!(matches!(result, Ok(Opened::Incomplete) | Err(_)), "{result:?}");
        }
    }
}
