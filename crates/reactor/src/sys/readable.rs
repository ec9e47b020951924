//! The queue of sockets to receive from, oldest first.

use super::slots::{Epoch, SlotFlag, SlotTable};
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
    /// Takes the socket off the queue's books, and tells whether it is still the one that was queued and
    /// its bytes are still wanted. From here on new bytes queue it again.
    pub(super) fn claim(&self, slots: &mut SlotTable) -> bool {
        let slot = self.socket.slot();
        slots.epoch(slot) == self.epoch
            && slots.take(slot, SlotFlag::Queued)
            && slots.has(slot, SlotFlag::Receiving)
    }
}

/// First in, first out, each socket at most once: a socket with more to give goes to the end, so that
/// one busy peer cannot keep the shared buffer from the others.
#[derive(Debug, Default)]
pub(super) struct ReadableQueue(VecDeque<Readable>);

impl ReadableQueue {
    /// Queues the socket unless it waits already or its bytes are not wanted.
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

    /// The next one, which the caller must [`Readable::claim`].
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
    fn bytes_nobody_wants_are_not_queued() {
        let (mut queue, mut slots, socket) = queue();
        assert!(queue.pop().unwrap().claim(&mut slots));
        slots.take(2, SlotFlag::Receiving);
        queue.push(&mut slots, socket, TOKEN);
        assert!(queue.is_empty());
    }
}
