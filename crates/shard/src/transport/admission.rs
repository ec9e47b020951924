//! From an accepted request to an open stream: subscriptions first, then the 101. Changes `inputs` and `hub`; sends by `mesh`.

use super::refusals::Refused;
use crate::input::Input;
use crate::marks::{Happening, hit};
use crate::mesh::Message;
use crate::shard::Shard;
use myriad_hub::{Chunk, Framing, Now, Subscribed};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use std::sync::Arc;

/// Bytes a client may send behind its request before the 101.
const EARLY_BYTES_MAX: usize = 16 * 1024;

impl<R: Reactor> Shard<R> {
    /// Subscribes a connection, and answers 101 when every channel's home has confirmed: a publication that is
    /// accepted after the client has seen the 101 reaches it.
    pub(super) fn join(
        &mut self,
        key: Key,
        response: Vec<u8>,
        channels: &[String],
        early: &mut [u8],
        now: Now,
    ) {
        let mut pending = false;
        for channel in channels {
            match self.hub.subscribe(key.index, channel) {
                Subscribed::Ready { .. } | Subscribed::Already(_) => {}
                Subscribed::Pending => pending = true,
                Subscribed::Ask { name, serial } => {
                    pending = true;
                    self.send_join(name, serial);
                }
            }
        }
        if !pending {
            hit!(JoinAtOnce);
            return self.admit(key, response, early, now);
        }
        self.hub.begin_joining(key.index, now);
        self.keep_joining(key, response.into(), early.to_vec(), now);
    }

    /// Asks the home of a channel that has its first subscriber here.
    pub(crate) fn send_join(&mut self, channel: Arc<str>, serial: u64) {
        // A leave of the same channel in this turn must arrive before this join.
        self.send_leaves();
        let (shard, home) = (self.index, self.mesh.home_of(&channel));
        hit!(AskSelf if home == shard);
        hit!(AskOther if home != shard);
        self.send_message(
            home,
            Message::Join {
                channel,
                shard,
                serial,
            },
        );
    }

    /// Bytes that come behind the request, before the 101 has left.
    pub(crate) fn handle_early_bytes(&mut self, key: Key, bytes: &mut [u8], now: Now) {
        if self.reads.is_reading(key.index) {
            hit!(RequestBehind);
            return self.keep_behind(key, bytes, now);
        }
        let Some((response, mut early)) = self.take_joining(key) else {
            return;
        };
        if early.len() + bytes.len() > EARLY_BYTES_MAX {
            hit!(EarlyTooMuch);
            let sentence = "Too much behind the request: wait for the 101 before you send frames.";
            return self.refuse(key, Refused::new(400, "body", sentence), now);
        }
        hit!(EarlyBytes);
        early.extend_from_slice(bytes);
        self.keep_joining(key, response, early, now);
    }

    /// All channels of a joining connection are confirmed.
    pub(crate) fn admit_joined(&mut self, key: Key, now: Now) {
        let Some((response, mut early)) = self.take_joining(key) else {
            return;
        };
        self.admit(key, response.into(), &mut early, now);
    }

    /// Stores what a joining connection waits with. Without memory for it, the connection is refused.
    fn keep_joining(&mut self, key: Key, response: Box<[u8]>, early: Vec<u8>, now: Now) {
        let input = Input::Joining { response, early };
        if !self.keep_input(key, input, now) {
            self.note_happening(key.index, Happening::Overloaded);
            self.refuse(key, Refused::overloaded(), now);
        }
    }

    /// The response and the early bytes of a joining connection. They are stored no longer.
    fn take_joining(&mut self, key: Key) -> Option<(Box<[u8]>, Vec<u8>)> {
        match self.inputs.take(&mut self.hub, key.index) {
            Input::Joining { response, early } => Some((response, early)),
            _ => {
                self.note_defect_of(
                    key.index,
                    "a connection that joins has its response waiting",
                );
                None
            }
        }
    }

    /// Opens a connection: queues the answer, and handles what came early. The request has chosen its transport.
    pub(super) fn admit(&mut self, key: Key, response: Vec<u8>, early: &mut [u8], now: Now) {
        self.hub.admit(key.index, now);
        self.note_connected(key, now);
        let transport = self.hub.connection(key.index).transport();
        self.metrics().streams[transport as usize].add(1);
        let compresses = self.hub.connection(key.index).window().is_some();
        let is_queued =
            if transport.is_unidirectional() && transport.framing() != Framing::WebSocket {
                self.hold_answer(key.index, response)
            } else {
                let response = Chunk::Response(response.into());
                self.hub.enqueue(key.index, response).is_ok()
            };
        if !is_queued {
            // No answer: a close frame would be no answer to a request.
            hit!(ResponseTooMuch);
            return self.refuse(key, Refused::overloaded(), now);
        }
        let is_upgrade = transport.framing() == Framing::WebSocket;
        self.metrics().upgrades.add(u64::from(is_upgrade));
        self.metrics()
            .compressed_upgrades
            .add(u64::from(compresses));
        self.note_event(Some(key), now, |shard| shard.upgraded(key));
        if !early.is_empty() {
            hit!(EarlyWithRequest);
            self.handle_input(key, early, now);
        }
    }
}
