//! `/echo`: every message comes back whole, for conformance and latency tests.

use crate::shard::Shard;
use myriad_hub::Now;
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::ws::Kind;

impl<R: Reactor> Shard<R> {
    /// A piece of a message; `ends` says whether it is the first, and the last. A message that came in one piece is
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
            (true, true) => self.send_frame(key, kind.into(), bytes, now),
            (_, false) => message.extend_from_slice(bytes),
            (false, true) => {
                message.extend_from_slice(bytes);
                self.send_frame(key, kind.into(), message, now);
                // Not cleared: a client that once sent a large message would hold its memory through the next.
                *message = Vec::new();
            }
        }
    }
}
