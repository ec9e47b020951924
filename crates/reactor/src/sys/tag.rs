//! The 64 bits that the kernel returns with each event: the kind of event, the socket and the caller's record.

use crate::Token;

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum EventKind {
    /// Cancellations, closes and options. Their outcome is ignored: a failure means that the socket is gone.
    Ignored = 0,
    /// A connection waits at the listener.
    Listener,
    /// A connection was accepted into the slot, or the accept failed.
    Accepted,
    /// The waker.
    Wake,
    /// The socket has bytes or reached its end.
    Readable,
    /// The socket can take bytes again.
    Writable,
    /// A step before a connect failed.
    Prepare,
    /// An outgoing connection was established, or failed.
    Connect,
    /// A send of the running batch. The tag's index is its index in the batch.
    Send,
    /// A receive of the running batch. The tag's index is its index in the batch.
    Receive,
    /// A descriptor was installed for a transfer.
    Install,
    /// The address of a peer was read. The tag's index is its index in the batch.
    PeerAddress,
}

/// 4 bits kind, 8 bits generation, 20 bits slot, 32 bits index. With it the drivers need no memory per connection to
/// find the record of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag(u64);

impl Tag {
    pub(super) fn new(kind: EventKind, slot: u32, token: Token) -> Self {
        debug_assert!(slot < 1 << 20);
        Self(
            (kind as u64) << 60
                | u64::from(token.generation) << 52
                | u64::from(slot) << 32
                | u64::from(token.index),
        )
    }

    /// A tag of an event without a socket.
    pub(super) fn plain(kind: EventKind, index: u32) -> Self {
        Self::new(
            kind,
            0,
            Token {
                index,
                generation: 0,
            },
        )
    }

    pub(super) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(super) fn to_bits(self) -> u64 {
        self.0
    }

    pub(super) fn kind(self) -> EventKind {
        match self.0 >> 60 {
            1 => EventKind::Listener,
            2 => EventKind::Accepted,
            3 => EventKind::Wake,
            4 => EventKind::Readable,
            5 => EventKind::Writable,
            6 => EventKind::Prepare,
            7 => EventKind::Connect,
            8 => EventKind::Send,
            9 => EventKind::Receive,
            10 => EventKind::Install,
            11 => EventKind::PeerAddress,
            _ => EventKind::Ignored,
        }
    }

    pub(super) fn slot(self) -> u32 {
        (self.0 >> 32) as u32 & 0xF_FFFF
    }

    #[expect(clippy::cast_possible_truncation, reason = "the low half is the index")]
    pub(super) fn index(self) -> u32 {
        self.0 as u32
    }

    #[expect(clippy::cast_possible_truncation, reason = "8 bits are kept")]
    pub(super) fn token(self) -> Token {
        Token {
            index: self.index(),
            generation: (self.0 >> 52) as u8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_comes_back() {
        let kinds = [
            EventKind::Ignored,
            EventKind::Listener,
            EventKind::Accepted,
            EventKind::Wake,
            EventKind::Readable,
            EventKind::Writable,
            EventKind::Prepare,
            EventKind::Connect,
            EventKind::Send,
            EventKind::Receive,
            EventKind::Install,
            EventKind::PeerAddress,
        ];
        for kind in kinds {
            for slot in [0, 1, 0xF_FFFF] {
                for token in [
                    Token {
                        index: 0,
                        generation: 0,
                    },
                    Token {
                        index: u32::MAX,
                        generation: 0,
                    },
                    Token {
                        index: 7,
                        generation: u8::MAX,
                    },
                ] {
                    let tag = Tag::from_bits(Tag::new(kind, slot, token).to_bits());
                    assert_eq!((tag.kind(), tag.slot(), tag.token()), (kind, slot, token));
                }
            }
        }
    }
}
