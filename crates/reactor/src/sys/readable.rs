//! The queue of sockets to receive from, oldest first.

use super::slots::{Epoch, Fact, Slots};
use crate::{Socket, Token};
use std::collections::VecDeque;

/// A socket the kernel called readable, and has not been drained since.
#[derive(Clone, Copy, Debug)]
pub(super) struct Readable {
    pub(super) socket: Socket,
    pub(super) token: Token,
    /// Guards against the slot's next socket: its bytes must not arrive under this token.
    epoch: Epoch,
}

impl Readable {
    /// Whether the socket is still the one that was queued, and its bytes are still wanted.
    pub(super) fn is_current(&self, slots: &Slots) -> bool {
        let slot = self.socket.slot();
        slots.epoch(slot) == self.epoch && slots.is(slot, Fact::Receiving)
    }
}

/// First in, first out, each socket at most once: a socket with more to give goes to the end, so that
/// one busy peer cannot keep the shared buffer from the others.
#[derive(Debug, Default)]
pub(super) struct ReadableQueue(VecDeque<Readable>);

impl ReadableQueue {
    /// Queues the socket unless it waits already or its bytes are not wanted.
    pub(super) fn push(&mut self, slots: &mut Slots, socket: Socket, token: Token) {
        let slot = socket.slot();
        if !slots.is(slot, Fact::Receiving) || slots.is(slot, Fact::Queued) {
            return;
        }
        slots.set(slot, Fact::Queued);
        self.0.push_back(Readable {
            socket,
            token,
            epoch: slots.epoch(slot),
        });
    }

    /// Puts back one that was taken and not drained; it keeps its [`Fact::Queued`].
    pub(super) fn push_again(&mut self, readable: Readable) {
        self.0.push_back(readable);
    }

    /// The next one, which the caller checks with [`Readable::is_current`].
    pub(super) fn pop(&mut self) -> Option<Readable> {
        self.0.pop_front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
