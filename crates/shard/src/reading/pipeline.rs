//! Requests behind one that is not answered: they wait until its answer has left.

use crate::input::Input;
use crate::marks::{Happening, hit};
use crate::shard::Shard;
use crate::transport::Refused;
use myriad_hub::{Chunk, CloseReason, Now, Phase, Transport};
use myriad_reactor::Reactor;
use myriad_wheel::Key;

/// Bytes that may wait behind a request that is not answered, or two heads if these may be longer.
const BEHIND_BYTES_MAX: usize = 16 * 1024;

impl<R: Reactor> Shard<R> {
    /// Keeps what comes behind a request that is not answered.
    pub(crate) fn keep_behind(&mut self, key: Key, bytes: &[u8], now: Now) {
        let mut behind = match self.inputs.take(&mut self.hub, key.index) {
            Input::Head(behind) => behind,
            _ => Vec::new(),
        };
        let bytes_max = BEHIND_BYTES_MAX.max(2 * self.settings.head_bytes_max);
        if behind.len() + bytes.len() > bytes_max {
            hit!(TooMuchBehind);
            return self.refuse(key, Refused::pipelined(), now);
        }
        behind.extend_from_slice(bytes);
        if !self.keep_input(key, Input::Head(behind), now) {
            self.note_happening(key.index, Happening::Overloaded);
            self.refuse(key, Refused::overloaded().of_stream(), now);
        }
    }

    /// Whether somebody who has ended its side gets answers still: to what is asked about, and to what it sent behind that. It may
    /// read on, which a connection does not tell from a client that is gone: that one answers the first bytes with a reset.
    pub(crate) fn owes_answers(&self, key: Key) -> bool {
        let connection = self.hub.connection(key.index);
        match connection.phase {
            Phase::Handshake => {
                connection.is_kept_alive() && (connection.has_outbound() || connection.has_input())
            }
            Phase::Joining => self.reads.is_reading(key.index),
            Phase::Open => connection.transport().reads_streams(),
            Phase::Closing => false,
        }
    }

    /// Goes on with a connection whose client has ended its side.
    pub(crate) fn answer_after_fin(&mut self, key: Key, now: Now) {
        let connection = self.hub.connection(key.index);
        if connection.phase == Phase::Open && connection.transport() == Transport::Events {
            return self.end_events(key, CloseReason::Client, now);
        }
        self.end_poll_after_fin(key, now);
        // Nothing else might look at what has come of its next request.
        self.note_answer_left(key);
    }

    /// Answers the held request of a client that has ended its side, as at its time-out. Most of those clients are gone, and would
    /// be held for nothing; whoever reads on gets its answer now.
    pub(super) fn end_poll_after_fin(&mut self, key: Key, now: Now) {
        let connection = self.hub.connection(key.index);
        let is_held = connection.phase == Phase::Open
            && connection.transport() == Transport::LongPoll
            && connection.has_received_fin();
        // A delivery of this turn may have answered it.
        if is_held && !self.hub.is_answered(key.index) {
            hit!(FinWhileHeld);
            let bytes = self.hub.idle_answer(key.index, false, false, now);
            if let Err(overflow) = self.hub.enqueue(key.index, Chunk::Shared(bytes)) {
                return self.close_stream(key, overflow.into(), now);
            }
            self.metrics().poll_timeouts.add(1);
            self.finish_answer(key.index, now);
        }
    }

    /// Lists a connection whose answer has left, if the next request has come.
    pub(super) fn note_answer_left(&mut self, key: Key) {
        let connection = self.hub.connection(key.index);
        if connection.is_kept_alive() && !connection.has_outbound() && connection.has_input() {
            self.reads.next.push(key);
        }
    }

    /// The queue of a connection is empty: the next request of a reader may begin, or the next page.
    pub(crate) fn note_queue_left(&mut self, index: u32, now: Now) {
        if self.hub.connection(index).is_kept_alive() {
            self.hub.begin_keep_alive(index, now);
        }
        let connection = self.hub.connection(index);
        let waits = match connection.phase {
            Phase::Handshake => connection.is_kept_alive() && connection.has_input(),
            Phase::Open => {
                connection.transport() == Transport::Events && self.reads.is_reading(index)
            }
            Phase::Joining | Phase::Closing => false,
        };
        if waits && let Some(key) = self.hub.key_of(index) {
            self.reads.next.push(key);
        }
    }

    /// Begins what waited until an answer had left.
    pub(crate) fn begin_next(&mut self, now: Now) {
        for key in std::mem::take(&mut self.reads.next) {
            if !self.hub.contains(key) {
                continue;
            }
            let connection = self.hub.connection(key.index);
            match connection.phase {
                Phase::Handshake if !connection.has_outbound() => {
                    if let Input::Head(mut head) = self.inputs.take(&mut self.hub, key.index) {
                        hit!(NextRequest);
                        self.handle_request(key, &mut head, now);
                    }
                }
                Phase::Open => {
                    if let Some(reading) = self.reads.under_way.remove(&key.index) {
                        self.ask_stream(key, reading);
                    }
                }
                _ => {}
            }
        }
    }
}
