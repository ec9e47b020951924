//! How connections end. Changes `hub`, `inputs`, `admission` and `turn_end`; closes sockets of `reactor`.
//!
//! There are three ways, each counted once under its reason. [`Shard::close_gracefully`] sends a final chunk and our FIN,
//! then waits for the peer's FIN. It gives the peer the linger timeout for that, from when it took something last.
//! [`Shard::reset`] resets. The peer's own FIN or RST ends a connection at once, but for a reader of streams who has sent its
//! requests before the FIN: it gets its answers first (`reading/pipeline.rs`). Sockets are closed and records freed at the end of the
//! turn.

use crate::marks::hit;
use crate::session::last_for;
use crate::shard::{Shard, token_of};
use crate::transport::{Methods, Refused};
use myriad_hub::{ApplicationClose, CloseReason, Now, Phase};
use myriad_reactor::{Close, Reactor, Socket};
use myriad_wheel::Key;

/// What a connection is sent last.
pub(crate) enum Last {
    /// An answer, a close frame, the end of a body.
    Bytes(Vec<u8>),
    /// The client has had everything.
    Nothing,
}

impl<R: Reactor> Shard<R> {
    /// Ends a connection with a final chunk of its transport (an answer or a close frame), after what is queued.
    pub(crate) fn close_gracefully(
        &mut self,
        key: Key,
        reason: CloseReason,
        final_chunk: Vec<u8>,
        now: Now,
    ) {
        let unanswered = self.take_answer(key.index);
        if self.note_closed(key, reason, now) {
            let last = self.last_chunk(unanswered, reason, None, final_chunk);
            self.end_with(key, last);
        }
    }

    /// The last bytes of a connection: what its transport says, or the answer to a client whose answer has not begun.
    fn last_chunk(
        &self,
        unanswered: Option<Vec<u8>>,
        reason: CloseReason,
        by_application: Option<&ApplicationClose>,
        end: Vec<u8>,
    ) -> Vec<u8> {
        let configured = &self.settings.client.http_refusals;
        match unanswered {
            Some(response) => last_for(response, reason, by_application, &end, configured),
            None => end,
        }
    }

    /// Queues the last bytes of a connection. Our FIN follows them.
    fn end_with(&mut self, key: Key, final_chunk: Vec<u8>) {
        self.hub.enqueue_final_chunk(key.index, final_chunk);
        self.hub.connection_mut(key.index).want_fin();
    }

    /// Ends an open connection with its transport's last bytes for the reason, such as a close frame. Queued messages of which no
    /// byte was sent are dropped first. Otherwise a slow client would have to read all of them before it learns the reason.
    pub(crate) fn close_stream(&mut self, key: Key, reason: CloseReason, now: Now) {
        match self.hub.connection(key.index).phase {
            Phase::Open => {}
            // A second publication of this turn overflowed its queue too: the first has ended it.
            Phase::Closing => {
                hit!(CloseAgain);
                return;
            }
            Phase::Handshake | Phase::Joining => return self.reset(key, reason, now),
        }
        self.hub.drop_untouched_outbound(key.index);
        let transport = self.hub.connection(key.index).transport();
        let last = if transport.reads_streams() {
            self.last_of_reader(key, now)
        } else {
            Last::Bytes((Methods::<R>::of(transport).close)(reason))
        };
        match last {
            Last::Bytes(bytes) => self.close_gracefully(key, reason, bytes, now),
            Last::Nothing => self.close_after_queue(key, reason, now),
        }
    }

    /// Ends a connection once what is queued has left.
    pub(crate) fn close_after_queue(&mut self, key: Key, reason: CloseReason, now: Now) {
        if self.note_closed(key, reason, now) {
            self.hub.connection_mut(key.index).want_fin();
            self.hub.list_for_flush(key.index);
        }
    }

    /// Ends an open connection as the application wishes, behind the replies that were gathered and what is queued.
    pub(crate) fn close_by_application(&mut self, key: Key, close: &ApplicationClose, now: Now) {
        let connection = self.hub.connection(key.index);
        if connection.phase != Phase::Open {
            return;
        }
        let frame = (Methods::<R>::of(connection.transport()).application_close)(close);
        self.finish_replies(key, now);
        let unanswered = self.take_answer(key.index);
        let reason = CloseReason::Application;
        if self.note_closed_as(key, reason, Some(close), now) {
            let last = self.last_chunk(unanswered, reason, Some(close), frame);
            if last.is_empty() {
                self.hub.connection_mut(key.index).want_fin();
                self.hub.list_for_flush(key.index);
            } else {
                self.end_with(key, last);
            }
        }
    }

    pub(crate) fn close_index(&mut self, index: u32, reason: CloseReason, now: Now) {
        if let Some(key) = self.hub.key_of(index) {
            self.close_stream(key, reason, now);
        }
    }

    /// Ends a connection with a reset.
    pub(crate) fn reset(&mut self, key: Key, reason: CloseReason, now: Now) {
        self.note_closed(key, reason, now);
        self.close_at_turn_end(key, Close::Reset);
    }

    /// Counts the end of a connection and stops its deliveries; false when it has ended before.
    pub(crate) fn note_closed(&mut self, key: Key, reason: CloseReason, now: Now) -> bool {
        self.note_closed_as(key, reason, None, now)
    }

    /// As [`Shard::note_closed`], with what the application tells the client.
    fn note_closed_as(
        &mut self,
        key: Key,
        reason: CloseReason,
        told: Option<&ApplicationClose>,
        now: Now,
    ) -> bool {
        if self.hub.connection(key.index).phase == Phase::Closing {
            return false;
        }
        self.metrics().count_close(reason);
        if self.hub.connection(key.index).phase == Phase::Open {
            let transport = self.hub.connection(key.index).transport();
            self.metrics().streams_ended[transport as usize].add(1);
        }
        if !self.traces.is_empty() {
            self.trace_closed(key.index, reason, now);
        }
        self.note_disconnected(key, reason, told, now);
        self.note_close(key, reason, now);
        self.inputs.take(&mut self.hub, key.index);
        self.reads.forget(key.index);
        self.end_session(key);
        self.hub
            .begin_closing(key.index, now, &mut self.turn_end.emptied_channels);
        true
    }

    /// The peer's FIN.
    pub(crate) fn handle_finished(&mut self, key: Key, now: Now) {
        let connection = self.hub.connection_mut(key.index);
        connection.note_fin_received();
        if connection.phase == Phase::Closing {
            if connection.is_finished() {
                self.close_at_turn_end(key, Close::Orderly);
            }
        } else if self.owes_answers(key) {
            hit!(FinBeforeAnswers);
            self.answer_after_fin(key, now);
        } else {
            // No close frame: the peer has ended the connection without one (RFC 6455, section 7.1.5).
            self.end_by_client(key, now);
        }
    }

    /// The client has ended its side, and nothing is left to be told to it.
    pub(crate) fn end_by_client(&mut self, key: Key, now: Now) {
        self.note_closed(key, CloseReason::Client, now);
        self.close_at_turn_end(key, Close::Orderly);
    }

    /// The connection broke.
    pub(crate) fn handle_failed(&mut self, key: Key, now: Now) {
        self.note_closed(key, CloseReason::Reset, now);
        self.close_at_turn_end(key, Close::Reset);
    }

    pub(crate) fn refuse_index(&mut self, index: u32, refused: Refused, now: Now) {
        if let Some(key) = self.hub.key_of(index) {
            let refused = match self.reads.is_reading(index) {
                true => refused.of_stream(),
                false => refused,
            };
            self.refuse(key, refused, now);
        }
    }

    /// A client takes nothing of what is queued for it. It would not take a close frame either, so its connection is reset.
    pub(crate) fn reset_stalled(&mut self, index: u32, now: Now) {
        if let Some(key) = self.hub.key_of(index) {
            self.reset(key, CloseReason::Stalled, now);
        }
    }

    pub(crate) fn close_orderly(&mut self, index: u32) {
        if let Some(key) = self.hub.key_of(index) {
            self.close_at_turn_end(key, Close::Orderly);
        }
    }

    pub(crate) fn close_reset(&mut self, index: u32) {
        if let Some(key) = self.hub.key_of(index) {
            self.close_at_turn_end(key, Close::Reset);
        }
    }

    fn close_at_turn_end(&mut self, key: Key, how: Close) {
        self.turn_end.pending_closes.push((key, how));
    }

    /// Makes this turn's pending closes. A connection may be listed twice (broken, and finished): the first entry counts.
    pub(crate) fn run_pending_closes(&mut self) {
        let mut pending = std::mem::take(&mut self.turn_end.pending_closes);
        for (key, how) in pending.drain(..) {
            if self.hub.contains(key) {
                let socket = Socket::from_bits(self.hub.connection(key.index).socket);
                self.reactor.close(socket, token_of(key), how);
                self.release(key);
            } else {
                hit!(ClosedTwice);
            }
        }
        self.turn_end.pending_closes = pending;
        self.admission.surplus.end_turn();
    }

    /// Frees the record, and its credit of the limit of connections.
    pub(crate) fn release(&mut self, key: Key) {
        if !self.traces.is_empty() {
            self.end_trace(key.index);
        }
        self.inputs.take(&mut self.hub, key.index);
        self.inputs.release_below(&mut self.hub, key.index);
        self.forget_peer(key);
        self.forget_reads(key);
        self.new_names.forget(key.index);
        if self.hub.connection(key.index).is_surplus() {
            self.admission.surplus.release();
        } else {
            self.admission.credits.refund(1);
        }
        self.hub
            .release(key.index, &mut self.turn_end.emptied_channels);
    }
}
