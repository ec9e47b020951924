//! `/echo`: every message comes back whole, for conformance and latency tests.

use crate::shard::Shard;
use myriad_hub::Now;
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::deflate::DEFLATED_BYTES_MIN;
use myriad_wire::ws::Kind;

impl<R: Reactor> Shard<R> {
    /// A piece of a plain message; `ends` says whether it is the first, and the last. A message that came in one piece is
    /// never copied into `message`.
    pub(crate) fn handle_echo(
        &mut self,
        key: Key,
        kind: Kind,
        bytes: &[u8],
        ends: (bool, bool),
        message: &mut Vec<u8>,
        now: Now,
    ) {
        match ends {
            (true, true) => self.send_message(key, kind, bytes, now),
            (_, false) => message.extend_from_slice(bytes),
            (false, true) => {
                message.extend_from_slice(bytes);
                // Taken: a client that once sent a large message would hold its memory through the next.
                let message = std::mem::take(message);
                self.send_message(key, kind, &message, now);
            }
        }
    }

    /// A whole message to one client; compressed where that was agreed to and gains anything.
    pub(crate) fn send_message(&mut self, key: Key, kind: Kind, message: &[u8], now: Now) {
        let window = self.hub.connection(key.index).window();
        let window = window.filter(|_| message.len() >= DEFLATED_BYTES_MIN);
        let compressed = window.and_then(|window| {
            let window = window.fitting(message.len());
            self.hub.compressor_mut().compress(window, kind, message)
        });
        match compressed {
            Some(frame) => self.queue(key, frame, now),
            None => self.send_frame(key, kind.into(), message, now),
        }
    }
}
