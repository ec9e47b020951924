//! Outbound queues of connections, the list of those to flush, and the budgets of buffered bytes.

use super::Hub;
use crate::CloseReason;
use crate::connection::Connection;
use crate::defects::DefectScope;
use crate::marks::{self, Set, hit};
use crate::outbound::{Chunk, Outbound, Overflow};
use myriad_wheel::NONE;

impl Hub {
    /// Queues `chunk` behind what is queued, and lists the connection for the next flush. Where a budget is spent, publications
    /// make room whose channels say that they may be dropped.
    ///
    /// # Errors
    /// A budget is spent: nothing was queued, and the connection must be closed.
    pub fn enqueue(&mut self, index: u32, chunk: Chunk) -> Result<(), Overflow> {
        if self.is_empty_chunk(index, chunk.bytes()) {
            return Ok(());
        }
        let outbound = self.reserve_outbound(index, chunk.cost(0))?;
        self.outbounds[outbound].push(chunk);
        self.list_for_flush(index);
        Ok(())
    }

    /// An empty chunk would never leave its queue.
    pub(super) fn is_empty_chunk(&self, index: u32, bytes: &[u8]) -> bool {
        if bytes.is_empty() {
            self.defects
                .note(DefectScope::Connection(index), "a chunk has bytes");
        }
        bytes.is_empty()
    }

    /// As [`Hub::enqueue`], for what a client has asked for: where nothing else waits, `chunk` may be larger than the connection's
    /// own budget. It is a page then, or has one publication that is as large, which nobody could read otherwise. Bytes of the
    /// process's budget it takes like others.
    ///
    /// # Errors
    /// As [`Hub::enqueue`].
    pub fn enqueue_alone(&mut self, index: u32, chunk: Chunk) -> Result<(), Overflow> {
        if self.is_empty_chunk(index, chunk.bytes()) {
            return Ok(());
        }
        let outbound = self.reserve_alone(index, chunk.cost(0))?;
        self.outbounds[outbound].push(chunk);
        self.list_for_flush(index);
        Ok(())
    }

    /// Queues the answer or close frame with which a connection ends, whatever the budgets say; see
    /// [`Chunk::FinalChunk`].
    pub fn enqueue_final_chunk(&mut self, index: u32, bytes: Vec<u8>) {
        if self.is_empty_chunk(index, &bytes) {
            return;
        }
        let outbound = self.outbound_made(index);
        self.outbounds[outbound].push(Chunk::FinalChunk(bytes.into()));
        self.list_for_flush(index);
    }

    /// Queues the unsent tail of a frame that was sent in a batch: its bytes from `offset` on. It goes to the front of the
    /// queue, because whatever is queued was queued after the frame had joined the batch. A reader of a stream gets it as
    /// [`Hub::enqueue_alone`] would.
    ///
    /// # Errors
    /// As [`Hub::enqueue`].
    pub fn enqueue_unsent_tail(
        &mut self,
        index: u32,
        chunk: Chunk,
        offset: usize,
    ) -> Result<(), Overflow> {
        let is_backpressured = self.connections[index].has_outbound();
        let cost = chunk.cost(offset);
        let outbound = if self.connections[index].transport().reads_streams() {
            self.reserve_alone(index, cost)?
        } else {
            self.reserve_outbound(index, cost)?
        };
        if self.outbounds[outbound].is_taken_in_part() {
            self.release_buffered_of(index, cost);
            self.note_broken_queue(index, "the peer has no part of another chunk");
            return Ok(());
        }
        hit!(TailAlone if !is_backpressured);
        hit!(TailInFront if is_backpressured);
        self.outbounds[outbound].push_front(chunk, offset);
        Ok(())
    }

    fn reserve_outbound(&mut self, index: u32, cost: usize) -> Result<u32, Overflow> {
        if let Err(overflow) = self.try_reserve_outbound(index, cost) {
            let wanted = match overflow {
                Overflow::Connection => cost - self.outbound_room(index),
                Overflow::Process => cost,
            };
            if !self.make_room(index, wanted) {
                return Err(overflow);
            }
            self.try_reserve_outbound(index, cost)?;
        }
        Ok(self.outbound_made(index))
    }

    /// As [`Hub::reserve_outbound`], but an empty queue has room for any chunk.
    fn reserve_alone(&mut self, index: u32, cost: usize) -> Result<u32, Overflow> {
        if !self.has_empty_queue(index) || cost <= self.outbound_room(index) {
            return self.reserve_outbound(index, cost);
        }
        if !self.reserve_buffered(cost) {
            return Err(Overflow::Process);
        }
        hit!(AloneOverBudget);
        Ok(self.outbound_made(index))
    }

    /// Whether nothing waits for a connection.
    #[must_use]
    pub fn has_empty_queue(&self, index: u32) -> bool {
        !self.connections[index].has_outbound() && self.held_bytes_of(index) == 0
    }

    pub(super) fn try_reserve_outbound(&mut self, index: u32, cost: usize) -> Result<(), Overflow> {
        if cost > self.outbound_room(index) {
            hit!(OverConnectionBudget);
            return Err(Overflow::Connection);
        }
        // The first chunk leaves in this turn, mostly: the answer to the request is one. It is as small as what was asked.
        let is_reserved = if self.connections[index].has_outbound() && self.is_stranger(index) {
            self.reserve_unconnected(index, cost)
        } else {
            self.reserve_buffered(cost)
        };
        if !is_reserved {
            return Err(Overflow::Process);
        }
        Ok(())
    }

    /// Bytes that a connection's own budget leaves.
    #[must_use]
    pub fn outbound_room(&self, index: u32) -> usize {
        let queued = self.outbound(index).map_or(0, Outbound::cost) + self.held_bytes_of(index);
        (self.outbound_bytes_max - queued.min(self.outbound_bytes_max)) as usize
    }

    pub(super) fn outbound_made(&mut self, index: u32) -> u32 {
        let connection = &mut self.connections[index];
        if connection.outbound == NONE {
            let outbound = Outbound::new(self.turn_tick);
            connection.outbound = self.outbounds.insert(outbound).index;
        }
        connection.outbound
    }

    /// Lists a connection for the next flush, unless it waits for its socket.
    pub fn list_for_flush(&mut self, index: u32) {
        let connection = &mut self.connections[index];
        if !connection.awaits_writable() && !connection.is(Connection::FLUSH_LISTED) {
            connection.set(Connection::FLUSH_LISTED, true);
            self.flush.push(index);
        }
    }

    /// Whether connections are listed for a flush.
    #[must_use]
    pub fn has_flush(&self) -> bool {
        !self.flush.is_empty()
    }

    /// Takes the connections listed for a flush off the list, into `listed`.
    pub fn poll_flush(&mut self, listed: &mut Vec<u32>) {
        listed.clear();
        std::mem::swap(&mut self.flush, listed);
        // A record that ended, or was reused, since it was listed does not carry the mark.
        let connections = &mut self.connections;
        listed.retain(|&index| {
            if connections.key_of(index).is_none() {
                hit!(FlushGone);
                return false;
            }
            let connection = &mut connections[index];
            let listed = connection.is(Connection::FLUSH_LISTED);
            connection.set(Connection::FLUSH_LISTED, false);
            hit!(FlushWaits if listed && connection.awaits_writable());
            listed && !connection.awaits_writable()
        });
    }

    /// The outbound queue of a backpressured connection; none when nothing is queued.
    #[must_use]
    pub fn outbound(&self, index: u32) -> Option<&Outbound> {
        let outbound = self.connections[index].outbound;
        (outbound != NONE).then(|| &self.outbounds[outbound])
    }

    /// Notes that the kernel took `bytes` of the queue. An empty queue is freed.
    pub fn advance_outbound(&mut self, index: u32, bytes: usize) {
        let outbound = self.connections[index].outbound;
        let (freed, beyond) = self.outbounds[outbound].advance(bytes, self.turn_tick);
        if beyond > 0 {
            self.note_broken_queue(index, "the kernel takes no more than it is given");
        }
        self.release_buffered_of(index, freed as usize);
        self.free_if_empty(index);
    }

    /// Drops queued chunks of which no byte was sent, so that a close frame can follow at once.
    pub fn drop_untouched_outbound(&mut self, index: u32) {
        let outbound = self.connections[index].outbound;
        if outbound == NONE {
            hit!(DropEmpty);
            return;
        }
        marks::count_hit(Set::Hub, self.outbounds[outbound].kind_of_drop() as usize);
        let dropped = self.outbounds[outbound].drop_untouched();
        self.release_buffered_of(index, dropped as usize);
        self.free_if_empty(index);
    }

    /// Frees the queue of a connection for which nothing waits any more.
    pub(super) fn free_if_empty(&mut self, index: u32) {
        let outbound = self.connections[index].outbound;
        if self.outbounds[outbound].is_empty() {
            self.outbounds.remove(outbound);
            self.connections[index].outbound = NONE;
        }
    }

    pub(super) fn drop_outbound(&mut self, index: u32) {
        let outbound = std::mem::replace(&mut self.connections[index].outbound, NONE);
        if outbound != NONE {
            hit!(ReleaseQueue);
            let dropped = self.outbounds.remove(outbound);
            self.release_buffered_of(index, dropped.cost() as usize);
        }
    }

    /// Reserves bytes of the process's budget for something buffered outside the hub; [`Hub::reserve_input`] is for input.
    #[must_use]
    pub fn reserve_buffered(&mut self, bytes: usize) -> bool {
        let granted = self.buffered.spend(bytes as u64);
        if granted {
            self.buffered_bytes += bytes as u64;
        } else {
            hit!(OverProcessBudget);
        }
        granted
    }

    /// Gives back what [`Hub::reserve_buffered`] took.
    pub fn release_buffered(&mut self, bytes: usize) {
        self.buffered_bytes -= bytes as u64;
        self.buffered.refund(bytes as u64);
    }
}

impl From<Overflow> for CloseReason {
    fn from(overflow: Overflow) -> Self {
        match overflow {
            Overflow::Connection => Self::SlowConsumer,
            Overflow::Process => Self::Overloaded,
        }
    }
}
