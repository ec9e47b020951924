//! Deliveries: publications and pings, to many connections in few kernel entries. Changes `hub` and `turn_end`; sends by
//! `reactor`.

use crate::marks::{Happening, hit};
use crate::shard::Shard;
use crate::transport::{Methods, Refused};
use myriad_hub::{
    Chunk, CloseReason, Due, Encoding, Framed, Now, SessionState, Target, ToldBy, Transport,
};
use myriad_reactor::{Reactor, SendOp, Sent, Socket};
use myriad_wheel::Key;
use std::ops::Range;
use std::sync::Arc;

/// A turn's deliveries may add a quarter of a connection's outbound budget to its queue: then the queue is flushed. A reader who
/// takes everything at once is not slow because many publications came in one turn.
const TURN_BURST_DIVISOR: usize = 4;

/// Consecutive targets of one batch that get the same bytes.
struct Run {
    targets: Range<usize>,
    frame: Arc<[u8]>,
    /// How many publications the frame has.
    publications: u16,
}

impl<R: Reactor> Shard<R> {
    /// The next slices of the deliveries under way, as one batch of sends.
    pub(crate) fn deliver(&mut self, now: Now) {
        self.hub.begin_deliveries();
        if !self.hub.is_delivering() {
            return;
        }
        let slice_max = self.settings.slice_max;
        let burst_max = self.settings.outbound_bytes_max as usize / TURN_BURST_DIVISOR;
        let mut targets = Vec::with_capacity(slice_max);
        let mut overflown = Vec::new();
        let mut runs = Vec::new();
        // Submitted to every member once this batch has gone out.
        let mut finished = Vec::new();
        let (mut visited, mut burst) = (0, 0);
        while visited < slice_max && burst < burst_max {
            let from = targets.len();
            let max = slice_max - visited;
            let Some(slice) = self.hub.poll_delivery(
                max,
                &mut targets,
                &mut overflown,
                &mut self.turn_end.emptied_channels,
            ) else {
                break;
            };
            // Counts as one at least, so that the loop ends: a channel without members has none to visit.
            visited += slice.visited.max(1);
            burst += slice.delivery.bytes();
            if let ToldBy::Frame(framed) = slice.delivery.told() {
                self.add_runs(framed, from, &mut targets, &mut runs);
            }
            if slice.finished {
                finished.push(slice.delivery);
            }
        }
        self.send_runs(&targets, &runs, now);
        self.hub.end_batch(&targets);
        self.end_overflown(overflown, now);
        for delivery in finished {
            self.note_submitted(&delivery);
        }
        self.finish_readers(now);
    }

    /// Ends the requests that this turn's deliveries have answered, and the readers whose stream has ended.
    fn finish_readers(&mut self, now: Now) {
        let answered = self.hub.take_answered();
        for index in answered {
            if self.finish_answer(index, now) {
                self.metrics().poll_answers.add(1);
            }
        }
        let ended = self.hub.take_ended();
        self.end_readers(ended, now);
    }

    /// Sends several connections the same bytes, behind what is queued for them.
    pub(crate) fn send_alike(&mut self, alike: &[u32], bytes: &Arc<[u8]>, now: Now) {
        let mut targets = Vec::with_capacity(alike.len());
        for &index in alike {
            let connection = self.hub.connection(index);
            if !connection.has_outbound() {
                targets.push(Target {
                    connection: index,
                    subscription: Target::NO_SUBSCRIPTION,
                    socket: connection.socket,
                    encoding: Encoding::NO_PUBLICATION,
                });
            } else if let Err(overflow) = self.hub.enqueue(index, Chunk::Shared(Arc::clone(bytes)))
            {
                self.close_index(index, overflow.into(), now);
            }
        }
        let run = Run {
            targets: 0..targets.len(),
            frame: Arc::clone(bytes),
            publications: 0,
        };
        self.send_runs(&targets, &[run], now);
    }

    /// The targets from `from` on, which get the same delivery, as runs of those that get the same frame.
    fn add_runs(
        &mut self,
        delivery: Framed<'_>,
        from: usize,
        targets: &mut [Target],
        runs: &mut Vec<Run>,
    ) {
        // A batch has no order among connections. Where all take the same, as they do without compression, this is one
        // look at each.
        targets[from..].sort_unstable_by_key(|target| target.encoding);
        let mut start = from;
        while let Some(first) = targets.get(start) {
            let encoding = first.encoding;
            let count = targets[start..].partition_point(|target| target.encoding == encoding);
            runs.push(Run {
                targets: start..start + count,
                frame: self.hub.frame_for(delivery, encoding, count),
                publications: delivery.publication_count(),
            });
            start += count;
        }
    }

    fn send_runs(&mut self, targets: &[Target], runs: &[Run], now: Now) {
        let mut ops = Vec::with_capacity(targets.len());
        for run in runs {
            let to = &targets[run.targets.clone()];
            ops.extend(
                to.iter()
                    .map(|target| SendOp::new(Socket::from_bits(target.socket), &run.frame)),
            );
        }
        self.reactor.send_batch(&mut ops);
        let mut sent_bytes = 0;
        let mut unfinished = Vec::new();
        for run in runs {
            for nth in run.targets.clone() {
                match ops[nth].sent {
                    Sent::All => {
                        sent_bytes += run.frame.len();
                        self.note_happening(targets[nth].connection, Happening::BatchTaken);
                    }
                    sent => unfinished.push((targets[nth], sent, run)),
                }
            }
        }
        let outcomes: Vec<Sent> = if self.traces.is_empty() {
            Vec::new()
        } else {
            ops.iter().map(|op| op.sent).collect()
        };
        drop(ops);
        if !outcomes.is_empty() {
            self.trace_runs(targets, runs, &outcomes, now);
        }
        self.metrics().sent_bytes.add(sent_bytes as u64);
        for (target, sent, run) in unfinished {
            self.note_unfinished(target, sent, run, now);
        }
    }

    /// Notes for traces what the kernel took.
    fn trace_runs(&mut self, targets: &[Target], runs: &[Run], outcomes: &[Sent], now: Now) {
        for run in runs {
            for nth in run.targets.clone() {
                let taken = match outcomes[nth] {
                    Sent::All => run.frame.len(),
                    Sent::Partly(bytes) => bytes,
                    Sent::Failed(_) => 0,
                };
                self.trace_heard(targets[nth].connection, &run.frame[..taken], now);
            }
        }
    }

    /// The kernel did not take all of a frame: the unsent tail goes in front of the connection's queue.
    fn note_unfinished(&mut self, target: Target, sent: Sent, run: &Run, now: Now) {
        let index = target.connection;
        let Some(key) = self.hub.key_of(index) else {
            return self.note_defect_of(index, "closes wait for the end of the turn");
        };
        let happening = match sent {
            Sent::All => Happening::BatchTaken,
            Sent::Partly(0) => Happening::BatchRefused,
            Sent::Partly(_) => Happening::BatchShort,
            Sent::Failed(_) => Happening::BatchFailed,
        };
        self.note_happening(index, happening);
        match sent {
            Sent::All => {}
            Sent::Failed(_) => self.handle_failed(key, now),
            Sent::Partly(bytes) => {
                self.metrics().sent_bytes.add(bytes as u64);
                let frame = Arc::clone(&run.frame);
                let frame = match target.subscription {
                    Target::NO_SUBSCRIPTION => Chunk::Shared(frame),
                    subscription => {
                        self.hub
                            .publication_chunk(frame, subscription, run.publications)
                    }
                };
                match self.hub.enqueue_unsent_tail(index, frame.clone(), bytes) {
                    Ok(()) => self.await_writable(key),
                    Err(overflow) => self.close_in_frame(key, frame, bytes, overflow.into(), now),
                }
            }
        }
    }

    /// Ends a connection that has taken `bytes` of a frame, when the remaining bytes are over a budget.
    fn close_in_frame(
        &mut self,
        key: Key,
        frame: Chunk,
        bytes: usize,
        reason: CloseReason,
        now: Now,
    ) {
        // Dropping what was queued after the frame may free enough of the budget.
        self.hub.drop_untouched_outbound(key.index);
        hit!(CloseBeforeFrame if bytes == 0);
        if bytes > 0 {
            if self
                .hub
                .enqueue_unsent_tail(key.index, frame, bytes)
                .is_err()
            {
                // The peer has part of a frame, and no budget is left for its tail: no close frame can follow, so reset.
                hit!(ResetInFrame);
                return self.reset(key, reason, now);
            }
            hit!(CloseInFrame);
            self.await_writable(key);
        }
        self.close_stream(key, reason, now);
    }

    /// Whatever time asks of connections now.
    pub(crate) fn handle_timers(&mut self, now: Now) {
        let mut due = Vec::new();
        self.hub.poll_due(now, self.settings.slice_max, &mut due);
        let (mut pings, mut polls, mut events) = (Vec::new(), Vec::new(), Vec::new());
        self.hub
            .end_lingering(now, false, &mut self.turn_end.emptied_channels);
        for (index, what) in due {
            match what {
                Due::Ping if self.hub.connection(index).transport() == Transport::Events => {
                    events.push(index);
                }
                Due::PollOver => polls.push(index),
                Due::EventsOver => self.close_index(index, CloseReason::Answered, now),
                Due::EventsExpired => self.close_index(index, CloseReason::Expired, now),
                Due::KeepAliveOver => {
                    if let Some(key) = self.hub.key_of(index) {
                        self.close_after_queue(key, CloseReason::Idle, now);
                    }
                }
                Due::Ping => pings.push((self.hub.connection(index).transport(), index)),
                Due::PongTimeout => self.close_index(index, CloseReason::PongTimeout, now),
                Due::Stalled => self.reset_stalled(index, now),
                Due::Idle => self.close_index(index, CloseReason::Idle, now),
                Due::HandshakeTimeout if self.has_waited_for_us(index, now) => {}
                Due::HandshakeTimeout => {
                    let refused = match self.awaits_body(index) {
                        true => Refused::body_timeout(),
                        false => Refused::handshake_timeout(),
                    };
                    self.refuse_index(index, refused, now);
                }
                Due::JoinTimeout => {
                    let refused = match self.reads.is_reading(index) {
                        true => Refused::join_timeout().of_stream(),
                        false => Refused::join_timeout(),
                    };
                    self.refuse_index(index, refused, now);
                }
                Due::LingerTimeout => self.close_reset(index),
                Due::Stale => self.close_stranger(index, now),
                Due::Expired => self.handle_expired(index, now),
            }
        }
        if !polls.is_empty() {
            self.end_polls(polls, now);
        }
        if !events.is_empty() {
            self.ping_events(events, now);
        }
        // One batch for each transport. Where all have the same, this is one look at each.
        pings.sort_by_key(|(transport, _)| *transport as u8);
        for alike in pings.chunk_by(|(one, _), (other, _)| one == other) {
            self.ping(alike, now);
        }
    }

    /// A head is late. Whether its client has waited for us before it could send it, and so gets more time.
    fn has_waited_for_us(&mut self, index: u32, now: Now) -> bool {
        let socket = Socket::from_bits(self.hub.connection(index).socket);
        let held_up = self.reactor.held_up(socket);
        !held_up.is_zero() && self.hub.extend_handshake(index, held_up, now)
    }

    /// A client that has not connected has had its time.
    fn close_stranger(&mut self, index: u32, now: Now) {
        let is_refused = self.hub.session(index).state == SessionState::Refused;
        let reason = if is_refused {
            CloseReason::Refused
        } else {
            CloseReason::Stale
        };
        self.close_index(index, reason, now);
    }

    /// Sends connections of one transport their ping: one frame, shared by all.
    fn ping(&mut self, due: &[(Transport, u32)], now: Now) {
        let Some(&(transport, first)) = due.first() else {
            return;
        };
        let Some(ping) = Methods::<R>::of(transport).ping else {
            return self.note_defect_of(first, "a reader of a stream has other pings");
        };
        let frame: Arc<[u8]> = ping().into();
        self.metrics().pings.add(due.len() as u64);
        let due: Vec<u32> = due.iter().map(|&(_, index)| index).collect();
        self.send_alike(&due, &frame, now);
    }
}
