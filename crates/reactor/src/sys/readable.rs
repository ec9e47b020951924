//! The queue of sockets to receive from, oldest first.

use super::slots::{Epoch, SlotFlag, SlotTable};
use crate::{Socket, Token};
use std::collections::VecDeque;

/// A readable socket that was not drained yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Readable {
    pub(super) socket: Socket,
    pub(super) token: Token,
    /// Tells the socket from the slot's next one, whose bytes must not be reported with this token.
    epoch: Epoch,
}

impl Readable {
    /// Marks the socket as no longer queued, so that new bytes queue it again. True if it is still the same socket and
    /// the caller still wants its bytes.
    pub(super) fn claim(&self, slots: &mut SlotTable) -> bool {
        let slot = self.socket.slot();
        slots.epoch(slot) == self.epoch
            && slots.take(slot, SlotFlag::Queued)
            && slots.has(slot, SlotFlag::Receiving)
    }
}

/// A first-in first-out queue that holds each socket at most once. A socket with more input goes to the end, so one
/// busy peer cannot take the shared buffer from the others.
#[derive(Debug, Default)]
pub(super) struct ReadableQueue(VecDeque<Readable>);

impl ReadableQueue {
    /// Queues the socket, unless it is queued already or the caller does not want its bytes.
    pub(super) fn push(&mut self, slots: &mut SlotTable, socket: Socket, token: Token) {
        let slot = socket.slot();
        if !slots.has(slot, SlotFlag::Receiving) || slots.has(slot, SlotFlag::Queued) {
            return;
        }
        slots.set(slot, SlotFlag::Queued);
        self.0.push_back(Readable {
            socket,
            token,
            epoch: slots.epoch(slot),
        });
    }

    /// The next socket. The caller must call [`Readable::claim`].
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

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: Token = Token {
        index: 4,
        generation: 1,
    };

    fn queue() -> (ReadableQueue, SlotTable, Socket) {
        let (mut queue, mut slots, socket) = (
            ReadableQueue::default(),
            SlotTable::default(),
            Socket::new(0, 2),
        );
        slots.open(2);
        slots.set(2, SlotFlag::Receiving);
        queue.push(&mut slots, socket, TOKEN);
        (queue, slots, socket)
    }

    #[test]
    fn a_socket_waits_once() {
        let (mut queue, mut slots, socket) = queue();
        queue.push(&mut slots, socket, TOKEN);
        assert_eq!(queue.len(), 1);
        assert!(queue.pop().unwrap().claim(&mut slots));
        assert!(queue.is_empty());
        queue.push(&mut slots, socket, TOKEN);
        assert_eq!(queue.len(), 1, "claimed, it may wait again");
    }

    #[test]
    fn a_slots_next_socket_is_not_mistaken_for_the_one_queued() {
        let (mut queue, mut slots, socket) = queue();
        slots.close(2);
        slots.open(2);
        slots.set(2, SlotFlag::Receiving);
        queue.push(
            &mut slots,
            socket,
            Token {
                index: 5,
                generation: 1,
            },
        );
        assert!(!queue.pop().unwrap().claim(&mut slots));
        let next = queue.pop().unwrap();
        assert!(next.claim(&mut slots));
        assert_eq!(next.token.index, 5);
    }

    #[test]
    fn a_socket_that_is_not_receiving_is_not_queued() {
        let (mut queue, mut slots, socket) = queue();
        assert!(queue.pop().unwrap().claim(&mut slots));
        slots.take(2, SlotFlag::Receiving);
        queue.push(&mut slots, socket, TOKEN);
        assert!(queue.is_empty());
    }
}
