//! Requests behind one that is not answered: they wait until its answer has left.

use crate::input::Input;
use crate::marks::{Happening, hit};
use crate::shard::Shard;
use crate::transport::Refused;
use myriad_hub::{Now, Phase, Transport};
use myriad_reactor::Reactor;
use myriad_wheel::Key;

/// Bytes that may wait behind a request that is not answered.
const BEHIND_BYTES_MAX: usize = 16 * 1024;

impl<R: Reactor> Shard<R> {
    /// Keeps what comes behind a request that is not answered.
    pub(crate) fn keep_behind(&mut self, key: Key, bytes: &[u8], now: Now) {
        let mut behind = match self.inputs.take(&mut self.hub, key.index) {
            Input::Head(behind) => behind,
            _ => Vec::new(),
        };
        if behind.len() + bytes.len() > BEHIND_BYTES_MAX {
            hit!(TooMuchBehind);
            return self.refuse(key, Refused::pipelined(), now);
        }
        behind.extend_from_slice(bytes);
        if !self
            .inputs
            .keep(&mut self.hub, key.index, Input::Head(behind))
        {
            self.note_happening(key.index, Happening::Overloaded);
            self.refuse(key, Refused::overloaded().of_stream(), now);
        }
    }

    /// Lists a connection whose answer has left, if the next request has come.
    pub(super) fn note_answer_left(&mut self, key: Key) {
        let connection = self.hub.connection(key.index);
        if !connection.has_outbound() && connection.has_input() {
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
