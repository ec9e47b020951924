//! Outbound queues: replies, and everything that could not be sent at once. Changes `hub`; sends by `reactor`.

use crate::marks::{Happening, hit};
use crate::shard::{Shard, token_of};
use myriad_hub::{Chunk, Now, Phase};
use myriad_reactor::{GATHER_PARTS_MAX, Parts, Reactor, SendOp, Sent, Socket};
use myriad_wheel::Key;
use std::io::IoSlice;
use std::ops::Range;

impl<R: Reactor> Shard<R> {
    /// Queues bytes for a connection; they leave at the end of the turn.
    pub(crate) fn queue(&mut self, key: Key, bytes: Vec<u8>, now: Now) {
        if let Err(overflow) = self.hub.enqueue(key.index, Chunk::Owned(bytes.into())) {
            self.close_stream(key, overflow.into(), now);
        }
    }

    /// Sends what is queued on every connection whose socket is not known to be full.
    pub(crate) fn flush(&mut self, now: Now) {
        let mut listed = Vec::new();
        // Two passes: the second sends what the first queued. What the second queues waits for the next turn.
        for _ in 0..2 {
            self.hub.poll_flush(&mut listed);
            for batch in listed.chunks(self.settings.slice_max) {
                self.flush_batch(batch, now);
            }
        }
    }

    fn flush_batch(&mut self, batch: &[u32], now: Now) {
        for (index, outcome) in self.send_queues(batch, now) {
            let Some(key) = self.hub.key_of(index) else {
                self.note_defect_of(index, "closes wait for the end of the turn");
                continue;
            };
            match outcome {
                Sent::All => {}
                Sent::Partly(_) => self.await_writable(key),
                Sent::Failed(_) => self.handle_failed(key, now),
            }
        }
        for &index in batch {
            self.send_fin_if_due(index, now);
        }
    }

    /// One gathered send per connection. Answers those that the kernel did not take whole.
    fn send_queues(&mut self, batch: &[u32], now: Now) -> Vec<(u32, Sent)> {
        let mut slices = Vec::with_capacity(batch.len());
        let mut queues: Vec<(u32, Range<usize>)> = Vec::with_capacity(batch.len());
        for &index in batch {
            let from = slices.len();
            if let Some(outbound) = self.hub.outbound(index) {
                outbound.slices(&mut slices, GATHER_PARTS_MAX);
                queues.push((index, from..slices.len()));
            }
        }
        let mut ops: Vec<SendOp<'_>> = queues
            .iter()
            .map(|(index, range)| SendOp {
                socket: Socket::from_bits(self.hub.connection(*index).socket),
                parts: parts(&slices[range.clone()]),
                sent: Sent::All,
            })
            .collect();
        self.reactor.send_batch(&mut ops);
        let outcomes: Vec<(u32, usize, Sent)> = ops
            .iter()
            .zip(&queues)
            .map(|(op, (index, range))| {
                let whole = slices[range.clone()].iter().map(|slice| slice.len()).sum();
                (
                    *index,
                    if let Sent::Partly(bytes) = op.sent {
                        bytes
                    } else {
                        whole
                    },
                    op.sent,
                )
            })
            .collect();
        self.note_taken(outcomes, now)
    }

    fn note_taken(&mut self, outcomes: Vec<(u32, usize, Sent)>, now: Now) -> Vec<(u32, Sent)> {
        let mut unfinished = Vec::new();
        for (index, bytes, sent) in outcomes {
            self.note_happening(
                index,
                match sent {
                    Sent::All => Happening::FlushTaken,
                    Sent::Partly(0) => Happening::FlushRefused,
                    Sent::Partly(_) => Happening::FlushShort,
                    Sent::Failed(_) => Happening::FlushFailed,
                },
            );
            if let Sent::Failed(_) = sent {
                unfinished.push((index, sent));
                continue;
            }
            self.metrics().sent_bytes.add(bytes as u64);
            if !self.traces.is_empty() {
                self.trace_queue(index, bytes, now);
            }
            self.hub.advance_outbound(index, bytes);
            if !self.traces.is_empty() && !self.hub.connection(index).has_outbound() {
                self.trace_boundary(index);
            }
            if !self.hub.connection(index).has_outbound() {
                self.note_queue_left(index, now);
            }
            if sent != Sent::All {
                unfinished.push((index, sent));
            } else if self.hub.connection(index).has_outbound() {
                self.note_happening(index, Happening::FlushMore);
                self.hub.list_for_flush(index);
            }
        }
        unfinished
    }

    pub(crate) fn await_writable(&mut self, key: Key) {
        self.hub.await_writable(key.index);
        let socket = Socket::from_bits(self.hub.connection(key.index).socket);
        self.reactor.notify_writable(socket, token_of(key));
    }

    /// Sends our FIN once the queue is empty, and closes the socket once the peer's FIN has come too.
    fn send_fin_if_due(&mut self, index: u32, now: Now) {
        let connection = self.hub.connection_mut(index);
        if connection.phase != Phase::Closing || !connection.fin_is_due() {
            return;
        }
        connection.note_fin_sent();
        let socket = Socket::from_bits(connection.socket);
        let finished = connection.is_finished();
        self.reactor.shutdown(socket);
        self.hub.begin_linger(index, now);
        if finished {
            hit!(FinAfterFin);
            self.close_orderly(index);
        }
    }
}

fn parts<'a>(slices: &'a [IoSlice<'a>]) -> Parts<'a> {
    match slices {
        [one] => Parts::One(one),
        many => Parts::Many(many),
    }
}
