//! What a connection has been given and the kernel has not taken.

use crate::marks::HubMark;
use myriad_wheel::Tick;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;

/// A run of bytes to send.
#[derive(Clone, Debug)]
pub enum Chunk {
    /// Shared with other connections: a ping, a join.
    Shared(Arc<[u8]>),
    /// An encoded publication, shared with the channel's other subscribers.
    Publication {
        /// Its frame.
        frame: Arc<[u8]>,
        /// The index of the subscription that it is for.
        subscription: u32,
        /// The lowest bits of the subscription's generation: once it has ended, the same index may name another one of the same
        /// connection.
        generation: u8,
        /// How many publications the frame has.
        publications: u16,
    },
    /// This connection's own: a reply, a control frame.
    Owned(Box<[u8]>),
    /// The answer to its request. Never dropped: the peer cannot read anything before it.
    Response(Box<[u8]>),
    /// The answer or close frame with which the connection ends. It costs nothing of the budgets: a connection has one, it is
    /// short, and the connection is closed within the linger timeout.
    FinalChunk(Box<[u8]>),
}

/// What a chunk costs beyond its bytes: its entry in the queue, and the allocator's overhead. Without it, a client that pings
/// and reads nothing could have 29 MB of memory in two-byte pongs on a budget of 1 MiB.
pub(crate) const CHUNK_BYTES: usize = 64;

impl Chunk {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Shared(bytes) | Self::Publication { frame: bytes, .. } => bytes,
            Self::Owned(bytes) | Self::Response(bytes) | Self::FinalChunk(bytes) => bytes,
        }
    }

    /// What it costs of the budgets while its bytes from `offset` on are queued.
    pub(crate) fn cost(&self, offset: usize) -> usize {
        match self {
            Self::FinalChunk(_) => 0,
            _ => self.bytes().len() - offset + CHUNK_BYTES,
        }
    }
}

// A million queues of one chunk each are 24 MB.
const _: () = assert!(size_of::<Chunk>() == 24);

/// A queue would exceed a budget; the connection has to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// The connection's own budget.
    Connection,
    /// The process's.
    Process,
}

/// A connection's queue; exists only while the connection is backpressured.
#[derive(Debug, Default)]
pub struct Outbound {
    chunks: VecDeque<Chunk>,
    /// Bytes of the first chunk that the kernel has taken.
    taken: usize,
    /// What all chunks cost.
    cost: u32,
    /// When the kernel took something of it last, or when it began.
    progressed_at: Tick,
}

// A million backpressured connections have one each.
const _: () = assert!(size_of::<Outbound>() == 48);

impl Outbound {
    /// An empty queue.
    pub(crate) fn new(now: Tick) -> Self {
        Self {
            progressed_at: now,
            ..Self::default()
        }
    }

    /// When the kernel took something of it last, or when it began.
    pub(crate) fn progressed_at(&self) -> Tick {
        self.progressed_at
    }

    /// What it counts against the budgets: the bytes queued and not yet taken, and something for each chunk.
    #[must_use]
    pub fn cost(&self) -> u32 {
        self.cost
    }

    /// The first chunks, as slices for one gathered send.
    pub fn slices<'a>(&'a self, slices: &mut Vec<IoSlice<'a>>, max: usize) {
        for (index, chunk) in self.chunks.iter().take(max).enumerate() {
            let from = if index == 0 { self.taken } else { 0 };
            slices.push(IoSlice::new(&chunk.bytes()[from..]));
        }
    }

    /// Appends `chunk`. The caller has made sure that the sum fits.
    pub(crate) fn push(&mut self, chunk: Chunk) {
        self.count(&chunk, 0);
        self.chunks.push_back(chunk);
    }

    /// Appends another queue, which nothing was taken of.
    pub(crate) fn append(&mut self, mut other: Self) {
        // Nothing is sent of what is kept for a client that connects.
        debug_assert_eq!(other.taken, 0, "the peer has nothing of it");
        self.cost += other.cost;
        self.chunks.append(&mut other.chunks);
    }

    /// Whether the peer has a part of the first chunk, and not all of it.
    pub(crate) fn is_taken_in_part(&self) -> bool {
        self.taken > 0
    }

    /// Puts `chunk` in front, from `offset` on. Nothing queued may have been taken in part.
    pub(crate) fn push_front(&mut self, chunk: Chunk, offset: usize) {
        debug_assert_eq!(self.taken, 0, "the peer has part of another chunk");
        self.count(&chunk, offset);
        self.taken = offset;
        self.chunks.push_front(chunk);
    }

    fn count(&mut self, chunk: &Chunk, offset: usize) {
        debug_assert!(
            chunk.bytes().len() > offset,
            "the hub queues no empty chunk"
        );
        let cost = u32::try_from(chunk.cost(offset));
        // One chunk is bounded by what a message, a page or a delivery may have: far less than 4 GiB.
        self.cost += cost.expect("bounded by the outbound budget");
    }

    /// Notes that the kernel took `bytes` from the front. Returns by how much the cost fell, and how many bytes there were that
    /// nothing was queued for.
    pub(crate) fn advance(&mut self, mut bytes: usize, now: Tick) -> (u32, usize) {
        let before = self.cost;
        if bytes > 0 {
            self.progressed_at = now;
        }
        while let Some(first) = self.chunks.front() {
            let remaining = first.bytes().len() - self.taken;
            let cost = first.cost(self.taken);
            if bytes < remaining {
                self.taken += bytes;
                self.uncount(cost - first.cost(self.taken));
                break;
            }
            bytes -= remaining;
            self.taken = 0;
            self.chunks.pop_front();
            self.uncount(cost);
        }
        let beyond = if self.chunks.is_empty() { bytes } else { 0 };
        (before - self.cost, beyond)
    }

    fn uncount(&mut self, cost: usize) {
        // It was counted, in 32 bits.
        self.cost -= u32::try_from(cost).expect("no more than was counted");
    }

    /// Drops all chunks but the one that a close frame must follow: a chunk that was sent in part, or the response. Returns
    /// by how much the cost fell.
    pub(crate) fn drop_untouched(&mut self) -> u32 {
        let is_response = matches!(self.chunks.front(), Some(Chunk::Response(_)));
        let keep = usize::from(self.taken > 0 || is_response);
        let dropped = self
            .chunks
            .drain(keep.min(self.chunks.len())..)
            .map(|chunk| chunk.cost(0))
            .sum::<usize>();
        let before = self.cost;
        self.uncount(dropped);
        before - self.cost
    }

    /// Drops publications of which no byte was sent and whose subscription `may_go`, the oldest first, until that has freed
    /// `wanted` or none is left. Returns how many, and by how much the cost fell.
    ///
    /// Looks at no chunk behind the last one that goes, and moves none that stays but to close a gap.
    pub(crate) fn drop_oldest(
        &mut self,
        wanted: usize,
        may_go: impl Fn(u32, u8) -> bool,
    ) -> (u64, u32) {
        let (mut dropped, mut cost) = (0, 0);
        let mut index = usize::from(self.taken > 0);
        while cost < wanted
            && let Some(chunk) = self.chunks.get(index)
        {
            match chunk {
                Chunk::Publication {
                    subscription,
                    generation,
                    publications,
                    ..
                } if may_go(*subscription, *generation) => {
                    dropped += u64::from(*publications);
                    cost += chunk.cost(0);
                    self.chunks.remove(index);
                }
                _ => index += 1,
            }
        }
        let before = self.cost;
        self.uncount(cost);
        (dropped, before - self.cost)
    }

    /// Drops the last frame of publications of a subscription, if no byte of it was sent. Returns how many publications it has,
    /// and by how much the cost fell.
    pub(crate) fn drop_newest_publication(&mut self, of: (u32, u8)) -> Option<(u16, u32)> {
        let count = |chunk: &Chunk| match chunk {
            Chunk::Publication {
                subscription,
                generation,
                publications,
                ..
            } if (*subscription, *generation) == of => Some(*publications),
            _ => None,
        };
        let index = self
            .chunks
            .iter()
            .rposition(|chunk| count(chunk).is_some())?;
        if index == 0 && self.taken > 0 {
            return None;
        }
        let chunk = self.chunks.remove(index)?;
        let before = self.cost;
        self.uncount(chunk.cost(0));
        Some((count(&chunk)?, before - self.cost))
    }

    /// Which kind of [`Outbound::drop_untouched`] this would be.
    pub(crate) fn kind_of_drop(&self) -> HubMark {
        match self.chunks.front() {
            _ if self.taken > 0 => HubMark::DropBehindPart,
            Some(Chunk::Response(_)) => HubMark::DropBehindResponse,
            _ => HubMark::DropQueue,
        }
    }

    /// What [`Outbound::cost`] must be.
    pub(crate) fn recount(&self) -> u32 {
        let offsets = std::iter::once(self.taken).chain(std::iter::repeat(0));
        let chunks = self.chunks.iter().zip(offsets);
        let cost: usize = chunks.map(|(chunk, offset)| chunk.cost(offset)).sum();
        u32::try_from(cost).expect("bounded by the outbound budget")
    }

    /// Whether nothing behind the first chunk costs anything.
    pub(crate) fn costs_by_first_only(&self) -> bool {
        self.chunks.iter().skip(1).all(|chunk| chunk.cost(0) == 0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::{CHUNK_BYTES, Chunk, Outbound};
    use myriad_wheel::Tick;

    fn owned(bytes: &[u8]) -> Chunk {
        Chunk::Owned(bytes.into())
    }

    fn content(outbound: &Outbound) -> Vec<u8> {
        let mut slices = Vec::new();
        outbound.slices(&mut slices, usize::MAX);
        slices.iter().flat_map(|slice| slice.to_vec()).collect()
    }

    #[test]
    fn every_way_of_taking_leaves_the_unsent_tail() {
        for first in 0..=9 {
            for offset in 0..3 {
                let mut outbound = Outbound::default();
                outbound.push(owned(b"d"));
                outbound.push_front(owned(b"abc"), offset);
                outbound.push(owned(b"efgh"));
                let whole = b"abcdefgh"[offset..].to_vec();
                let first = first.min(whole.len());
                let before = outbound.cost();
                let (fell, beyond) = outbound.advance(first, Tick(0));
                assert_eq!(beyond, 0);
                assert_eq!(content(&outbound), whole[first..]);
                assert_eq!(outbound.cost(), before - fell);
                assert_eq!(outbound.cost(), outbound.recount());
                let remaining = outbound.chunks.len();
                assert_eq!(
                    outbound.cost() as usize,
                    whole.len() - first + remaining * CHUNK_BYTES
                );
                assert_eq!(outbound.is_empty(), first == whole.len());
            }
        }
    }

    #[test]
    fn a_chunk_the_peer_has_begun_stays() {
        let mut outbound = Outbound::default();
        outbound.push_front(owned(b"abc"), 1);
        outbound.push(owned(b"defg"));
        assert_eq!(outbound.drop_untouched() as usize, 4 + CHUNK_BYTES);
        assert_eq!(content(&outbound), b"bc");
        outbound.advance(2, Tick(0));
        outbound.push(owned(b"xyz"));
        assert_eq!(outbound.drop_untouched() as usize, 3 + CHUNK_BYTES);
        assert!(outbound.is_empty());
        assert_eq!(outbound.cost(), 0);
    }

    #[test]
    fn a_response_stays_and_leaves_first() {
        let mut outbound = Outbound::default();
        outbound.push(Chunk::Response(b"101"[..].into()));
        outbound.push(owned(b"frame"));
        assert_eq!(outbound.drop_untouched() as usize, 5 + CHUNK_BYTES);
        outbound.push(owned(b"close"));
        assert_eq!(content(&outbound), b"101close");
    }

    #[test]
    fn only_untouched_publications_of_the_subscription_are_dropped() {
        let publication = |subscription, bytes: &[u8]| Chunk::Publication {
            frame: bytes.into(),
            subscription,
            generation: 7,
            publications: 3,
        };
        let mut outbound = Outbound::default();
        for (subscription, bytes) in [(1, b"aa"), (2, b"bb"), (1, b"cc"), (1, b"dd")] {
            outbound.push(publication(subscription, bytes));
        }
        outbound.push(owned(b"ee"));
        outbound.advance(1, Tick(0));
        let cost = u32::try_from(2 + CHUNK_BYTES).expect("small");
        assert_eq!(outbound.drop_oldest(1, |of, _| of == 1), (3, cost));
        assert_eq!(content(&outbound), b"abbddee");
        outbound.push(publication(1, b"ff"));
        assert_eq!(outbound.drop_newest_publication((1, 7)), Some((3, cost)));
        assert_eq!(content(&outbound), b"abbddee");
        assert_eq!(outbound.drop_oldest(usize::MAX, |of, _| of == 1), (3, cost));
        assert_eq!(
            content(&outbound),
            b"abbee",
            "the peer has part of the first"
        );
        assert_eq!(outbound.drop_oldest(usize::MAX, |of, _| of == 1), (0, 0));
        assert_eq!(outbound.drop_newest_publication((1, 7)), None);
        assert_eq!(outbound.drop_oldest(usize::MAX, |of, _| of == 2), (3, cost));
        assert_eq!(outbound.cost(), outbound.recount());
    }

    #[test]
    fn a_final_chunk_costs_nothing() {
        let mut outbound = Outbound::default();
        outbound.push(owned(b"ab"));
        let cost = outbound.cost();
        outbound.push(Chunk::FinalChunk(b"close"[..].into()));
        assert_eq!(outbound.cost(), cost);
        assert_eq!(outbound.advance(4, Tick(0)), (cost, 0));
        assert_eq!(outbound.cost(), outbound.recount());
        assert_eq!(outbound.advance(5, Tick(0)), (0, 2));
        assert!(outbound.is_empty());
    }
}
