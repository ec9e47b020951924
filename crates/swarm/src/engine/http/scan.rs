//! Recognising what is in a body: one answer may carry several publications, and it may come in pieces.

use crate::engine::arrivals::key_of;
use crate::measure::push::PushKey;
use crate::stamp::{PREFIX, STAMP_BYTES, Stamp};
use memchr::memmem;
use std::hash::{DefaultHasher, Hasher as _};

/// A message that was recognised, and its bytes.
pub(super) type Message = (PushKey, usize);

/// Publications that the answer to one poll may carry, so that a server cannot fill this machine's memory with stamps. A message that
/// is kept whole needs no such bound: its keys take no more memory than the message.
pub(super) const PUBLICATIONS_MAX: usize = 65_536;

/// Looks for stamps in a body that comes in pieces.
#[derive(Clone, Debug, Default)]
pub(super) struct BodyScan {
    own: Vec<PushKey>,
    /// The end of what came so far, in case a stamp begins there.
    tail: Vec<u8>,
    hasher: DefaultHasher,
    bytes: usize,
    /// The whole of a body of two bytes: `[]` is an answer in JSON mode without a message.
    first: [u8; 2],
    /// The body itself, where flows are looked for in it.
    body: Vec<u8>,
}

impl BodyScan {
    /// Takes the next piece.
    pub(super) fn feed(&mut self, piece: &[u8], run: u16) {
        for (slot, byte) in self.first.iter_mut().skip(self.bytes).zip(piece) {
            *slot = *byte;
        }
        if !self.tail.is_empty() {
            let before = self.tail.len();
            let more = &piece[..piece.len().min(STAMP_BYTES - 1)];
            self.tail.extend_from_slice(more);
            let own = own_stamps(&self.tail, run).filter(|&(at, _)| at < before);
            self.own.extend(own.map(|(_, key)| key));
        }
        self.own.extend(own_stamps(piece, run).map(|(_, key)| key));
        if piece.len() >= STAMP_BYTES {
            self.tail.clear();
            self.tail
                .extend_from_slice(&piece[piece.len() - (STAMP_BYTES - 1)..]);
        } else {
            if self.tail.is_empty() {
                self.tail.extend_from_slice(piece);
            }
            let surplus = self.tail.len().saturating_sub(STAMP_BYTES - 1);
            self.tail.drain(..surplus);
        }
        self.hasher.write(piece);
        self.bytes += piece.len();
    }

    /// Whether it carries more publications than are told apart.
    pub(super) fn is_overfull(&self) -> bool {
        self.own.len() > PUBLICATIONS_MAX
    }

    /// Keeps a piece that was fed.
    pub(super) fn keep(&mut self, piece: &[u8]) {
        self.body.extend_from_slice(piece);
    }

    /// What was kept.
    pub(super) fn take_body(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.body)
    }

    /// Bytes that are kept.
    pub(super) fn kept_bytes(&self) -> usize {
        self.tail.len() + self.own.len() * size_of::<PushKey>() + self.body.len()
    }

    /// Adds what the whole body is to `messages`: the publications of this run in it, or else one of somebody else. One that has
    /// messages of flows is nobody else's.
    pub(super) fn finish(self, is_of_flows: bool, messages: &mut Vec<Message>) {
        let is_empty = self.bytes == 0 || (self.bytes == 2 && self.first == *b"[]");
        if is_empty {
            return;
        }
        let own = self.own.len();
        let each = self.bytes / own.max(1);
        messages.extend(self.own.into_iter().map(|key| (key, each)));
        match own {
            0 if is_of_flows => {}
            0 => messages.push((PushKey::Foreign(self.hasher.finish()), self.bytes)),
            _ => {
                let rest = self.bytes - each * own;
                messages.last_mut().expect("there is one").1 += rest;
            }
        }
    }
}

/// The same for a message that lies there whole.
pub(super) fn recognise(message: &[u8], run: u16, is_of_flows: bool, messages: &mut Vec<Message>) {
    let mut scan = BodyScan::default();
    scan.feed(message, run);
    scan.finish(is_of_flows, messages);
}

/// The stamps of this run's publications, with the place where each begins.
fn own_stamps(bytes: &[u8], run: u16) -> impl Iterator<Item = (usize, PushKey)> {
    memmem::find_iter(bytes, PREFIX).filter_map(move |at| {
        let stamp = bytes.get(at..at + STAMP_BYTES).and_then(Stamp::find)?;
        match key_of(Some(stamp), run, || 0) {
            PushKey::Foreign(_) => None,
            own => Some((at, own)),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(run: u16, sequence: u32) -> Stamp {
        Stamp {
            run,
            stream: 1,
            sequence,
        }
    }

    fn own(sequence: u32) -> PushKey {
        PushKey::Own {
            stream: 1,
            sequence,
        }
    }

    fn found(pieces: &[&[u8]]) -> Vec<Message> {
        let (mut scan, mut messages) = (BodyScan::default(), Vec::new());
        pieces.iter().for_each(|piece| scan.feed(piece, 7));
        assert!(scan.kept_bytes() < 200);
        scan.finish(false, &mut messages);
        messages
    }

    #[test]
    fn all_publications_of_a_body_are_found_however_it_is_cut() {
        let body = format!(
            "[\"{}\",\"{}\",{{\"d\":\"{}\"}}]",
            stamp(7, 9).payload(40),
            stamp(8, 1).payload(26),
            stamp(7, 10).payload(26)
        );
        let body = body.as_bytes();
        let each = body.len() / 2;
        let expected = [(own(9), each), (own(10), body.len() - each)];
        assert_eq!(found(&[body]), expected);
        for cut in 0..=body.len() {
            assert_eq!(found(&[&body[..cut], &body[cut..]]), expected, "{cut}");
        }
        for size in 1..30 {
            let pieces: Vec<&[u8]> = body.chunks(size).collect();
            assert_eq!(found(&pieces), expected, "pieces of {size}");
        }
    }

    #[test]
    fn a_body_without_them_is_one_message() {
        let foreign = found(&[b"12:00", b":01"]);
        assert_eq!(foreign, found(&[b"12:00:01"]));
        assert!(matches!(foreign[..], [(PushKey::Foreign(_), 8)]));
        assert_ne!(foreign, found(&[b"12:00:02"]));
        assert_eq!(found(&[]), []);
        assert_eq!(found(&[b"[", b"]"]), [], "nothing, in JSON");
        assert_eq!(found(&[b"[1]"]).len(), 1);
    }
}
