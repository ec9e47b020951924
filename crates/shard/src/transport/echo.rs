//! `/echo`: every message comes back whole, for conformance and latency tests. Changes `hub`.

use crate::shard::Shard;
use myriad_hub::Now;
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::ws::Kind;

impl<R: Reactor> Shard<R> {
    /// Sends a whole message back to its client; compressed where that was agreed to and makes it smaller.
    pub(crate) fn echo_message(&mut self, key: Key, kind: Kind, message: &[u8], now: Now) {
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
