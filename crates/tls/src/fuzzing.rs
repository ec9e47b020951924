//! Any bytes as records of a peer behind its handshake: for a fuzz target, and for a test that replays its inputs.
//!
//! A tag that is wrong would end nearly every input at its first record. So an input is a script of inner plaintexts, which are sealed
//! with the peer's key, and of bytes that go out as they are.

use crate::alert::Fault;
use crate::records::{Content, Opened, PLAIN_MAX, QUIET_MAX, Records, Side};
use crate::suite::{SECRET, Suite, TAG};

/// Cuts that are tried in one input.
const CUTS: usize = 8;

/// Bytes of the peer, and the results that they must have.
struct Script {
    ours: Records,
    sent: Vec<u8>,
    /// The results up to the first bytes that are no record of the peer. Behind these only `open` knows.
    expected: Vec<Seen>,
    is_known: bool,
}

/// What one record came to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Data(Vec<u8>),
    Tickets(Vec<u8>),
    Nothing,
    Closed,
    Alert(u8),
    Fault(Fault),
}

/// The result is the same wherever the input is cut and wherever another process takes the connection over, and the same as a second
/// reader says of the inner plaintexts (RFC 8446, 5.2 to 6).
pub fn records(bytes: &[u8]) {
    let Some(script) = Script::read(bytes) else {
        return;
    };
    let whole = script.open(script.sent.len());
    let known = match script.is_known {
        true => whole.len(),
        false => script.expected.len().min(whole.len()),
    };
    assert_eq!(whole[..known], script.expected);
    let mut at = bytes.len();
    for _ in 0..CUTS {
        at = at.wrapping_mul(31).wrapping_add(7) % (script.sent.len() + 1);
        assert_eq!(script.open(at), whole, "cut at {at}");
    }
}

impl Script {
    /// The first byte chooses the suite and our side. Then come steps: two bytes with what it is and its length, and its bytes.
    fn read(bytes: &[u8]) -> Option<Self> {
        let (&choice, mut rest) = bytes.split_first()?;
        let suite = Suite::numbered(choice % 3 + 1)?;
        let (side, peer_side) = match choice & 4 {
            0 => (Side::Server, Side::Client),
            _ => (Side::Client, Side::Server),
        };
        let secrets = [[choice; SECRET], [!choice; SECRET]];
        let ours = Records::new(side, suite, (&secrets[0], 0), (&secrets[1], 0)).ok()?;
        let mut peer = Records::new(peer_side, suite, (&secrets[1], 0), (&secrets[0], 0)).ok()?;
        let mut script = Self {
            ours,
            sent: Vec::new(),
            expected: Vec::new(),
            is_known: true,
        };
        let mut reader = Reader { side, quiet: 0 };
        while let Some((&[high, low], body)) = rest.split_first_chunk() {
            let length = usize::from(high & 0x7f) << 8 | usize::from(low);
            let (step, behind) = body.split_at(length.min(body.len()));
            rest = behind;
            if high & 0x80 != 0 {
                script.is_known &= step.is_empty();
                script.sent.extend_from_slice(step);
            } else if !step.is_empty() {
                peer.seal_inner(step, &mut script.sent);
                script.expect(&mut reader, step);
            }
        }
        Some(script)
    }

    fn expect(&mut self, reader: &mut Reader, inner: &[u8]) {
        let is_over = matches!(self.expected.last(), Some(Seen::Fault(_)));
        if self.is_known && !is_over {
            self.expected.push(reader.read(inner));
        }
    }

    /// Opens all that was sent, which comes in two pieces. Another process goes on with the connection between them.
    fn open(&self, cut: usize) -> Vec<Seen> {
        let mut seen = Vec::new();
        let mut records = self.ours.clone();
        let mut input = self.sent[..cut].to_vec();
        if !open_all(&mut records, &mut input, &mut seen) {
            return seen;
        }
        let state = records.to_bytes();
        let mut records = Records::from_bytes(&state).expect("what it has written");
        assert_eq!(records.to_bytes(), state);
        input.extend_from_slice(&self.sent[cut..]);
        open_all(&mut records, &mut input, &mut seen);
        seen
    }
}

/// Opens the records that are whole. False if the connection cannot go on.
fn open_all(records: &mut Records, input: &mut Vec<u8>, seen: &mut Vec<Seen>) -> bool {
    loop {
        match records.open(input) {
            Ok(Opened::Incomplete) => return true,
            Ok(Opened::Record { whole, content }) => {
                seen.push(match content {
                    Content::Data(range) => Seen::Data(input[range].to_vec()),
                    Content::Tickets(range) => Seen::Tickets(input[range].to_vec()),
                    Content::Nothing => Seen::Nothing,
                    Content::Closed => Seen::Closed,
                    Content::Alert(alert) => Seen::Alert(alert.0),
                });
                input.drain(..whole);
            }
            Err(fault) => {
                seen.push(Seen::Fault(fault));
                return false;
            }
        }
    }
}

/// A second reader of inner plaintexts, which knows nothing of ciphers.
struct Reader {
    side: Side,
    /// Records in a row without data.
    quiet: u8,
}

impl Reader {
    fn read(&mut self, inner: &[u8]) -> Seen {
        if inner.len() + TAG > PLAIN_MAX + 256 {
            return Seen::Fault(Fault::TooLong);
        }
        let mut text = inner.to_vec();
        while text.last() == Some(&0) {
            text.pop();
        }
        let Some(kind) = text.pop() else {
            return Seen::Fault(Fault::NoType);
        };
        if text.len() > PLAIN_MAX || inner.len() > PLAIN_MAX + 1 {
            return Seen::Fault(Fault::TooLong);
        }
        if kind == 23 && !text.is_empty() {
            self.quiet = 0;
            return Seen::Data(text);
        }
        self.quiet += 1;
        if self.quiet > QUIET_MAX {
            return Seen::Fault(Fault::Flood);
        }
        match (kind, &*text) {
            (23, _) | (21, [_, 90]) => Seen::Nothing,
            (21 | 22, []) => Seen::Fault(Fault::Empty(kind)),
            (21, [_, 0]) => Seen::Closed,
            (21, [_, alert]) => Seen::Alert(*alert),
            (21, _) => Seen::Fault(Fault::AlertLength),
            (22, _) if self.side == Side::Client && is_of_tickets(&text) => Seen::Tickets(text),
            (22, [24, 0, 0, 1, 0 | 1]) => Seen::Nothing,
            (22, [24, 0, 0, 1, _]) => Seen::Fault(Fault::KeyUpdateValue),
            (22, [24, 0, 0, 1, ..]) => Seen::Fault(Fault::NoKeyUpdate),
            (22, [24, _, _, _, ..]) => Seen::Fault(Fault::KeyUpdateLength),
            (22, _) => Seen::Fault(Fault::NoKeyUpdate),
            (other, _) => Seen::Fault(Fault::Unexpected(other)),
        }
    }
}

/// Whether these are messages of type 4, each with three bytes of its length, and nothing else.
fn is_of_tickets(text: &[u8]) -> bool {
    let mut at = 0;
    while at < text.len() {
        let Some(&[4, a, b, c]) = text.get(at..at + 4) else {
            return false;
        };
        at += 4 + (usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c));
    }
    at == text.len() && at > 0
}
