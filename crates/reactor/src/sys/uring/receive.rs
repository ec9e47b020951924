//! Receiving: one batch per wait, into pieces of the shared buffer.

use super::super::readable::Readable;
use super::super::slots::SlotFlag;
use super::super::tag::{EventKind, Tag};
use super::Uring;
use super::state::ReceiveResult;
use crate::{Completion, Completions};
use io_uring::{opcode, types::Fixed};

/// The smallest piece a receive is given when many wait. Large enough for most requests and most bursts of
/// frames, and whoever fills it is served again.
const PIECE_BYTES_MIN: usize = 1024;

impl Uring {
    /// Receives from those that wait, oldest first, as many as the buffer has pieces for; true when some had no turn.
    pub(super) fn receive_some(&mut self, completions: &mut Completions) -> bool {
        let waiting = self.state.readable.len();
        if waiting == 0 {
            return false;
        }
        let bytes = completions.buffer.len();
        let piece = (bytes / waiting).clamp(PIECE_BYTES_MIN, Completions::RECEIVE_BYTES_MAX);
        let batch = self.submit_receives(&mut completions.buffer, piece, waiting);
        let mut input_pending = !self.state.readable.is_empty();
        for (index, readable) in batch.into_iter().enumerate() {
            match self.state.receives[index] {
                Some(receive) => self.handle_receive(readable, receive, index * piece, piece),
                None => {
                    input_pending = true;
                    self.requeue(readable);
                }
            }
        }
        input_pending
    }

    fn submit_receives(
        &mut self,
        buffer: &mut [u8],
        piece: usize,
        waiting: usize,
    ) -> Vec<Readable> {
        let mut batch = Vec::with_capacity(waiting.min(buffer.len() / piece));
        self.state.receives.clear();
        self.state.receives.resize(batch.capacity(), None);
        for bytes in buffer.chunks_exact_mut(piece) {
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
            // A refused entry leaves no receipt, so that its socket stays queued.
            let _ = unsafe { ring.push_borrowing(&entry, &mut self.state) };
        }
        while let Some(table) = self.batch_tables.pop() {
            self.rings[table].end_batch(&mut self.state, |_| {});
        }
        batch
    }

    /// The next socket whose bytes are still wanted.
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
                // A poll tells of new bytes only, so what is left must be fetched without one; after the
                // peer's end no poll comes at all.
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
