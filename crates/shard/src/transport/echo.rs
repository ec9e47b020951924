//! `/echo`: every message comes back whole, for conformance and latency tests. It has no publications. Changes `hub`, and what
//! `frames` changes.

use super::{Methods, websocket};
use crate::shard::Shard;
use myriad_hub::Now;
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::ws::Kind;

impl<R: Reactor> Methods<R> {
    pub(super) const ECHO: Self = Self {
        handle_input: Shard::handle_echo_input,
        ping: Some(websocket::ping_frame),
        close: websocket::close_frame,
        application_close: websocket::application_close_frame,
    };
}

impl<R: Reactor> Shard<R> {
    fn handle_echo_input(&mut self, key: Key, bytes: &mut [u8], now: Now) {
        self.handle_frames(key, bytes, Some(Self::echo_message), now);
    }

    /// Sends a whole message back to its client; compressed where that was agreed to and makes it smaller.
    fn echo_message(&mut self, key: Key, kind: Kind, message: &[u8], now: Now) {
        let window = self.hub.connection(key.index).window();
        let window = window.and_then(|window| window.worthwhile(message.len()));
        let compressed =
            window.and_then(|window| self.hub.compressor_mut().compress(window, kind, message));
        match compressed {
            Some(frame) => self.queue(key, frame, now),
            None => self.send_frame(key, kind.into(), message, now),
        }
    }
}
