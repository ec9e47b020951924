//! Receiving: one batch in each wait, into pieces of the shared buffer.

use super::super::readable::Readable;
use super::super::slots::SlotFlag;
use super::super::tag::{EventKind, Tag};
use super::Uring;
use super::state::ReceiveResult;
use crate::{Completion, Completions};
use io_uring::{opcode, types::Fixed};

/// The smallest piece of the buffer for one receive, used when many sockets are readable. It is large enough for most
/// requests and most bursts of frames. A socket that fills it is queued again.
const PIECE_BYTES_MIN: usize = 1024;

/// Pieces are doubled after a batch in which one in so many was filled: a second receive costs more than a socket that waits for
/// the next batch.
const FILLED_DIVISOR: usize = 8;

/// How large pieces are while many sockets are readable: as what comes asks for.
#[derive(Debug)]
pub(super) struct PieceSize {
    bytes: usize,
}

impl Default for PieceSize {
    fn default() -> Self {
        Self {
            bytes: PIECE_BYTES_MIN,
        }
    }
}

impl PieceSize {
    /// Of a batch: how many sockets, how many of them filled their piece, and the bytes of the largest receive.
    fn note_batch(&mut self, sockets: usize, filled: usize, largest: usize) {
        if filled > 0 && filled * FILLED_DIVISOR >= sockets {
            self.bytes = (2 * self.bytes).min(Completions::RECEIVE_BYTES_MAX);
        } else if largest <= self.bytes / 2 {
            self.bytes = (self.bytes / 2).max(PIECE_BYTES_MIN);
        }
    }
}

impl Uring {
    /// Receives from readable sockets, oldest first, as many as the buffer has pieces. True if some were not read.
    pub(super) fn receive_some(&mut self, completions: &mut Completions) -> bool {
        let waiting = self.state.readable.len();
        if waiting == 0 {
            return false;
        }
        let count = waiting.min(completions.receives_max);
        let bytes = completions.buffer.len();
        let piece = (bytes / count).clamp(self.piece_size.bytes, Completions::RECEIVE_BYTES_MAX);
        let batch = self.submit_receives(&mut completions.buffer, piece, count);
        let mut input_pending = !self.state.readable.is_empty();
        let (mut filled, mut largest) = (0, 0);
        let sockets = batch.len();
        for (index, readable) in batch.into_iter().enumerate() {
            match self.state.receives[index] {
                Some(receive) => {
                    let bytes = usize::try_from(receive.result).unwrap_or(0);
                    filled += usize::from(bytes == piece);
                    largest = largest.max(bytes);
                    self.handle_receive(readable, receive, index * piece, piece);
                }
                None => {
                    input_pending = true;
                    self.requeue(readable);
                }
            }
        }
        self.piece_size.note_batch(sockets, filled, largest);
        input_pending
    }

    fn submit_receives(&mut self, buffer: &mut [u8], piece: usize, count: usize) -> Vec<Readable> {
        let mut batch = Vec::with_capacity(count.min(buffer.len() / piece));
        self.state.receives.clear();
        self.state.receives.resize(batch.capacity(), None);
        for bytes in buffer.chunks_exact_mut(piece).take(count) {
            let Some(readable) = self.next_readable() else {
                break;
            };
            let (table, slot) = (readable.socket.table(), readable.socket.slot());
            let index = u32::try_from(batch.len()).expect("the buffer has fewer than 2^32 pieces");
            let length = u32::try_from(bytes.len()).expect("a piece is small");
            batch.push(readable);
            let entry = opcode::Recv::new(Fixed(slot), bytes.as_mut_ptr(), length)
                .flags(libc::MSG_DONTWAIT)
                .build()
                .user_data(Tag::plain(EventKind::Receive, index).to_bits());
            let ring = &mut self.rings[table];
            if ring.begin_batch() {
                self.batch_tables.push(table);
            }
            // SAFETY: the buffer is borrowed until this function returns, and the batch ends below.
            // A refused entry has no result, so its socket is queued again.
            let _ = unsafe { ring.push_borrowing(&entry, &mut self.state) };
        }
        while let Some(table) = self.batch_tables.pop() {
            self.rings[table].end_batch(&mut self.state, |_| {});
        }
        batch
    }

    /// The next readable socket that still wants its bytes.
    fn next_readable(&mut self) -> Option<Readable> {
        while let Some(readable) = self.state.readable.pop() {
            if readable.claim(&mut self.rings[readable.socket.table()].slots) {
                return Some(readable);
            }
        }
        None
    }

    fn handle_receive(
        &mut self,
        readable: Readable,
        receive: ReceiveResult,
        start: usize,
        piece: usize,
    ) {
        let (slot, token) = (readable.socket.slot(), readable.token);
        let slots = &mut self.rings[readable.socket.table()].slots;
        match usize::try_from(receive.result) {
            Ok(0) => {
                slots.take(slot, SlotFlag::Receiving);
                self.state.ready.push(Completion::Finished { token });
            }
            Ok(count) => {
                self.state.ready.push(Completion::Received {
                    token,
                    range: start..start + count,
                });
                // A poll reports only new bytes, so read the rest without one. After the peer's end no poll comes.
                if count == piece || receive.more || slots.has(slot, SlotFlag::Ended) {
                    self.requeue(readable);
                }
            }
            Err(_) => {
                let errno = receive.result.wrapping_neg();
                if !matches!(errno, libc::EAGAIN | libc::EINTR) {
                    slots.take(slot, SlotFlag::Receiving);
                    self.state.ready.push(Completion::Failed { token, errno });
                }
            }
        }
    }

    fn requeue(&mut self, readable: Readable) {
        let slots = &mut self.rings[readable.socket.table()].slots;
        self.state
            .readable
            .push(slots, readable.socket, readable.token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_grow_while_many_are_filled_and_shrink_when_none_is_half_full() {
        let mut size = PieceSize::default();
        size.note_batch(100, 12, 1024);
        assert_eq!(size.bytes, 1024, "a few large senders change nothing");
        for bytes in [2048, 4096, 4096] {
            size.note_batch(100, 13, size.bytes);
            assert_eq!(size.bytes, bytes);
        }
        size.note_batch(100, 0, 2049);
        assert_eq!(size.bytes, 4096);
        for bytes in [2048, 1024, 1024] {
            size.note_batch(100, 0, 512);
            assert_eq!(size.bytes, bytes);
        }
    }
}
