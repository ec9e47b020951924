//! What the kernel carries back with each event: 64 bits that name the socket, the record and the matter.

use crate::Token;

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Matter {
    /// Nothing to be told: cancellations, closes, options; their failures mean the socket is gone.
    Ignored = 0,
    /// Somebody is at the listener.
    Listener,
    /// A connection accepted into the slot, or the reason why not.
    Accepted,
    /// The waker.
    Wake,
    /// The socket has bytes, or its end.
    Readable,
    /// The socket takes bytes again.
    Writable,
    /// A step before a connect failed.
    Prepare,
    /// An outgoing connection is made, or not.
    Connect,
    /// A send of the running batch; `index` is its place in the batch.
    Send,
    /// A receive of the running batch; `index` is its place in the batch.
    Receive,
    /// A descriptor installed for a transfer.
    Install,
}

/// Matter 4 bits | generation 8 | slot 20 | index 32: so the drivers need no memory per connection to
/// find the record an event belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag(u64);

impl Tag {
    pub(super) fn new(matter: Matter, slot: u32, token: Token) -> Self {
        debug_assert!(slot < 1 << 20);
        Self(
            (matter as u64) << 60
                | u64::from(token.generation) << 52
                | u64::from(slot) << 32
                | u64::from(token.index),
        )
    }

    /// A tag of a matter without a socket.
    pub(super) fn plain(matter: Matter, index: u32) -> Self {
        Self::new(
            matter,
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

    pub(super) fn matter(self) -> Matter {
        match self.0 >> 60 {
            1 => Matter::Listener,
            2 => Matter::Accepted,
            3 => Matter::Wake,
            4 => Matter::Readable,
            5 => Matter::Writable,
            6 => Matter::Prepare,
            7 => Matter::Connect,
            8 => Matter::Send,
            9 => Matter::Receive,
            10 => Matter::Install,
            _ => Matter::Ignored,
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
        let matters = [
            Matter::Ignored,
            Matter::Listener,
            Matter::Accepted,
            Matter::Wake,
            Matter::Readable,
            Matter::Writable,
            Matter::Prepare,
            Matter::Connect,
            Matter::Send,
            Matter::Receive,
            Matter::Install,
        ];
        for matter in matters {
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
                    let tag = Tag::from_bits(Tag::new(matter, slot, token).to_bits());
                    assert_eq!(
                        (tag.matter(), tag.slot(), tag.token()),
                        (matter, slot, token)
                    );
                }
            }
        }
    }
}
