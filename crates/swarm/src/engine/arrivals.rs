//! Recognising messages: which publication is this, and how many of it came this turn.

use crate::measure::push::PushKey;
use crate::stamp::{PREFIX, SEQUENCE_MAX, STAMP_BYTES, Stamp};
use std::hash::{DefaultHasher, Hasher as _};

/// Frames up to this size are remembered whole: comparing one is cheaper than reading it, and inflating costs more yet.
const REMEMBERED_BYTES_MAX: usize = 16 * 1024;

/// Different publications of one turn that are counted. What a crowd receives in a turn has far fewer, unless a server
/// invents them.
const COUNTED_MAX: usize = 4096;

/// The arrivals of one turn, and the frame seen last.
///
/// In a broadcast every frame is the same bytes, so a terminal's message is nearly always recognised by
/// one comparison with the frame before it.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    run: u16,
    frame: Vec<u8>,
    frame_key: Option<PushKey>,
    frame_payload_bytes: usize,
    /// The publications of this turn and how many terminals were reached. Few: a turn has at most a few hundred messages.
    counts: Vec<(PushKey, u64)>,
}

impl Arrivals {
    pub(crate) fn new(run: u16) -> Self {
        Self {
            run,
            ..Self::default()
        }
    }

    /// The publication in these bytes, if they are exactly the frame seen last; and its payload's size.
    pub(crate) fn recall(&self, bytes: &[u8]) -> Option<(PushKey, usize)> {
        if bytes == self.frame {
            self.frame_key.map(|key| (key, self.frame_payload_bytes))
        } else {
            None
        }
    }

    /// Recognises the payload of a whole frame, and remembers the frame.
    pub(crate) fn recognise_frame(&mut self, frame: &[u8], payload: &[u8]) -> PushKey {
        let key = self.recognise(payload);
        if frame.len() <= REMEMBERED_BYTES_MAX {
            self.frame.clear();
            self.frame.extend_from_slice(frame);
            self.frame_key = Some(key);
            self.frame_payload_bytes = payload.len();
        }
        key
    }

    /// Recognises a payload.
    pub(crate) fn recognise(&self, payload: &[u8]) -> PushKey {
        key_of(Stamp::find(payload), self.run, || {
            let mut hasher = DefaultHasher::new();
            hasher.write(payload);
            hasher.finish()
        })
    }

    pub(crate) fn run(&self) -> u16 {
        self.run
    }

    /// Counts a terminal that a publication reached. False if there are too many different publications in this turn.
    #[must_use]
    pub(crate) fn count(&mut self, key: PushKey) -> bool {
        let has_room = self.counts.len() < COUNTED_MAX;
        // The last entry is nearly always the one; the others are this turn's few.
        match self
            .counts
            .iter_mut()
            .rev()
            .find(|(known, _)| *known == key)
        {
            Some((_, count)) => *count += 1,
            None if has_room => self.counts.push((key, 1)),
            None => return false,
        }
        true
    }

    /// This turn's counts, to be drained.
    pub(crate) fn counts_mut(&mut self) -> &mut Vec<(PushKey, u64)> {
        &mut self.counts
    }
}

/// Looks for a stamp in a message that may come in pieces.
#[derive(Clone, Debug, Default)]
pub(crate) struct MessageScan {
    stamp: Option<Stamp>,
    /// The end of what came so far, in case a stamp begins there.
    tail: Vec<u8>,
    hasher: DefaultHasher,
    bytes: usize,
}

impl MessageScan {
    /// Takes the next piece.
    pub(crate) fn feed(&mut self, piece: &[u8]) {
        if self.stamp.is_none() {
            if self.bytes == 0 {
                self.stamp = Stamp::find(piece);
            } else {
                self.tail.extend_from_slice(piece);
                self.stamp = Stamp::find(&self.tail);
            }
            self.keep_tail(piece);
        }
        self.hasher.write(piece);
        self.bytes += piece.len();
    }

    /// Keeps as much of the end as can be the beginning of a stamp.
    fn keep_tail(&mut self, piece: &[u8]) {
        if self.bytes == 0 {
            self.tail.clear();
            self.tail
                .extend_from_slice(&piece[piece.len().saturating_sub(STAMP_BYTES - 1)..]);
        } else {
            let surplus = self.tail.len().saturating_sub(STAMP_BYTES - 1);
            self.tail.drain(..surplus);
        }
    }

    /// Payload bytes so far.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// What the whole message is: one of this run's publications, or somebody else's.
    pub(crate) fn finish(&self, run: u16) -> PushKey {
        key_of(self.stamp, run, || self.hasher.finish())
    }
}

/// What a message is that carries this stamp, or else has this hash.
pub(super) fn key_of(stamp: Option<Stamp>, run: u16, hash: impl FnOnce() -> u64) -> PushKey {
    match stamp {
        Some(stamp) if stamp.run == run && (1..=SEQUENCE_MAX).contains(&stamp.sequence) => {
            PushKey::Own {
                stream: stamp.stream,
                sequence: stamp.sequence,
            }
        }
        _ => PushKey::Foreign(hash()),
    }
}

const _: () = assert!(PREFIX.len() < STAMP_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp {
        run: 7,
        stream: 1,
        sequence: 9,
    };
    const OWN: PushKey = PushKey::Own {
        stream: 1,
        sequence: 9,
    };

    #[test]
    fn a_stamp_is_found_however_the_message_is_cut() {
        let message = format!("{{\"d\":\"{}\"}}", STAMP.payload(40)).into_bytes();
        let mut whole = MessageScan::default();
        whole.feed(&message);
        assert_eq!(whole.finish(7), OWN);
        for cut in 0..=message.len() {
            let mut scan = MessageScan::default();
            scan.feed(&message[..cut]);
            scan.feed(&message[cut..]);
            assert_eq!(scan.finish(7), OWN, "cut at {cut}");
        }
        let mut bytewise = MessageScan::default();
        message.iter().for_each(|byte| bytewise.feed(&[*byte]));
        assert_eq!((bytewise.finish(7), bytewise.bytes()), (OWN, message.len()));
    }

    #[test]
    fn other_messages_are_told_apart_by_content_and_not_by_cut() {
        let key = |pieces: &[&[u8]]| {
            let mut scan = MessageScan::default();
            pieces.iter().for_each(|piece| scan.feed(piece));
            scan.finish(7)
        };
        assert_eq!(key(&[b"12:00:01"]), key(&[b"12:00", b":01"]));
        assert_ne!(key(&[b"12:00:01"]), key(&[b"12:00:02"]));
        let other_run = Stamp { run: 8, ..STAMP }.payload(32);
        assert!(matches!(key(&[other_run.as_bytes()]), PushKey::Foreign(_)));
    }

    #[test]
    fn a_repeated_frame_is_recalled() {
        let mut arrivals = Arrivals::new(7);
        let payload = STAMP.payload(32);
        let frame = [&[0x81, 32], payload.as_bytes()].concat();
        assert_eq!(arrivals.recall(&frame), None);
        assert_eq!(arrivals.recognise_frame(&frame, payload.as_bytes()), OWN);
        assert_eq!(arrivals.recall(&frame), Some((OWN, 32)));
        assert_eq!(arrivals.recall(&frame[..33]), None);
        assert!(arrivals.count(OWN) && arrivals.count(PushKey::Foreign(1)) && arrivals.count(OWN));
        assert_eq!(*arrivals.counts_mut(), [(OWN, 2), (PushKey::Foreign(1), 1)]);
        for hash in 0..2 * COUNTED_MAX as u64 {
            let _ = arrivals.count(PushKey::Foreign(hash));
        }
        assert_eq!(arrivals.counts_mut().len(), COUNTED_MAX);
        assert!(arrivals.count(OWN) && !arrivals.count(PushKey::Foreign(u64::MAX)));
    }

    #[test]
    fn an_empty_frame_memory_recalls_nothing() {
        assert_eq!(Arrivals::new(1).recall(b""), None);
    }
}
