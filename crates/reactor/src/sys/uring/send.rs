//! Sending: hundreds of sends per kernel entry, without a completion for those that succeed.
//!
//! Without `MSG_WAITALL` a short write counts as a success: it would post no completion, and the unsent bytes would be
//! lost silently. With `MSG_WAITALL` and `MSG_DONTWAIT` a short write posts its count, a full socket posts EAGAIN, and
//! no send outlives its submission.

use super::super::tag::{EventKind, Tag};
use super::Uring;
use super::ring::Ring;
use super::state::State;
use crate::{Parts, SendOp, Sent, Token};
use io_uring::opcode;
use io_uring::squeue::{Entry, Flags};
use io_uring::types::Fixed;
use std::io::IoSlice;

const SEND_FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_WAITALL | libc::MSG_NOSIGNAL;

/// Maximum bytes of one send. The kernel moves less than 2 GiB in one call (send(2)) and would report a longer send as
/// complete.
const SEND_BYTES_MAX: usize = 1 << 30;

/// Maximum number of gathered sends between two submissions.
const HEADERS_MAX: usize = 256;

/// Message headers, kept in place while the kernel may read them.
#[derive(Default)]
pub(super) struct Headers(Vec<libc::msghdr>);

impl Headers {
    fn is_full(&self) -> bool {
        self.0.len() == HEADERS_MAX
    }

    /// A header that stays where it is until the next `clear`.
    fn push(&mut self, slices: &[IoSlice<'_>]) -> *const libc::msghdr {
        assert!(self.0.len() < HEADERS_MAX);
        self.0.reserve_exact(HEADERS_MAX - self.0.len());
        // SAFETY: all zeroes is a valid header without a name, data or control.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        // `IoSlice` is an `iovec` on Unix (its documentation), and sending only reads it.
        header.msg_iov = slices.as_ptr().cast_mut().cast();
        header.msg_iovlen = slices.len();
        self.0.push(header);
        self.0.last().expect("one was just pushed")
    }
}

impl Uring {
    pub(super) fn send_ops(&mut self, ops: &mut [SendOp<'_>]) {
        self.state.sends.clear();
        for (index, op) in ops.iter_mut().enumerate() {
            let index = u32::try_from(index).expect("a batch has fewer than 2^32 sends");
            if self.headers.is_full() {
                self.submit_sends();
            }
            let (table, slot) = (op.socket.table(), op.socket.slot());
            let Some(ring) = self.rings.get_mut(table) else {
                op.sent = Sent::Failed(libc::EBADF);
                continue;
            };
            let (entry, sent) = prepare(slot, op.parts, &mut self.headers);
            op.sent = sent;
            if ring.begin_batch() {
                self.batch_tables.push(table);
            }
            let entry = entry
                .flags(Flags::SKIP_SUCCESS)
                .user_data(tag(index).to_bits());
            // SAFETY: the operations borrow their bytes for as long as this function runs, the headers stay
            // in place until `submit_sends` clears them, and that leaves nothing of the batch with the kernel.
            if unsafe { ring.push_borrowing(&entry, &mut self.state) }.is_err() {
                op.sent = Sent::Partly(0);
            }
        }
        self.submit_sends();
        for (index, result) in self.state.sends.drain(..) {
            ops[index as usize].sent = outcome(result);
        }
    }

    /// Submits the rest of the batch in each of its rings.
    fn submit_sends(&mut self) {
        for table in self.batch_tables.drain(..) {
            end_batch(&mut self.rings[table], &mut self.state);
        }
        self.headers.0.clear();
    }
}

fn end_batch(ring: &mut Ring, state: &mut State) {
    let mut discarded = Vec::new();
    ring.end_batch(state, |tag| discarded.push(tag));
    // Not sent because memory is short: treat the socket as full.
    let sends = discarded.iter().filter(|tag| tag.kind() == EventKind::Send);
    state
        .sends
        .extend(sends.map(|tag| (tag.index(), -libc::EAGAIN)));
}

fn tag(index: u32) -> Tag {
    Tag::new(
        EventKind::Send,
        0,
        Token {
            index,
            generation: 0,
        },
    )
}

/// The entry, and the outcome if it posts no completion.
fn prepare(slot: u32, parts: Parts<'_>, headers: &mut Headers) -> (Entry, Sent) {
    match parts {
        Parts::One(bytes) => prepare_one(slot, bytes),
        Parts::Many(slices) => {
            let total: usize = slices.iter().map(|slice| slice.len()).sum();
            if total > SEND_BYTES_MAX {
                let first = slices
                    .iter()
                    .find(|slice| !slice.is_empty())
                    .expect("the sum is positive");
                let (entry, _) = prepare_one(slot, first);
                return (entry, Sent::Partly(first.len().min(SEND_BYTES_MAX)));
            }
            let header = headers.push(slices);
            let entry = opcode::SendMsg::new(Fixed(slot), header)
                .flags(SEND_FLAGS.cast_unsigned())
                .build();
            (entry, Sent::All)
        }
    }
}

fn prepare_one(slot: u32, bytes: &[u8]) -> (Entry, Sent) {
    let length = bytes.len().min(SEND_BYTES_MAX);
    let sent = if length == bytes.len() {
        Sent::All
    } else {
        Sent::Partly(length)
    };
    let length = u32::try_from(length).expect("bounded above");
    (
        opcode::Send::new(Fixed(slot), bytes.as_ptr(), length)
            .flags(SEND_FLAGS)
            .build(),
        sent,
    )
}

fn outcome(result: i32) -> Sent {
    match usize::try_from(result) {
        Ok(count) => Sent::Partly(count),
        Err(_) => match result.wrapping_neg() {
            // After these errors, the same send may succeed later.
            libc::EAGAIN | libc::EINTR | libc::ENOBUFS | libc::ENOMEM => Sent::Partly(0),
            errno => Sent::Failed(errno),
        },
    }
}
