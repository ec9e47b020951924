//! Compressed messages from clients (RFC 7692), for every transport that speaks WebSocket. Changes
//! `inputs` (its inflater).

use crate::shard::Shard;
use myriad_hub::{Now, Transport};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::ws::{Kind, ProtocolError};

impl<R: Reactor> Shard<R> {
    /// Inflates a whole message, of a `raw` client too, whose messages are ignored: it is told what is wrong with them
    /// whether they are compressed or not. The message lives for this call, within the limit of one.
    pub(crate) fn handle_compressed(
        &mut self,
        key: Key,
        kind: Kind,
        payload: &[u8],
        now: Now,
    ) -> Result<(), ProtocolError> {
        let mut message = Vec::new();
        let bytes_max = self.settings.message_bytes_max;
        self.inputs
            .inflater
            .inflate(kind, payload, bytes_max, &mut message)?;
        self.metrics().messages_received.add(1);
        self.metrics().compressed_messages_received.add(1);
        if self.hub.connection(key.index).transport() == Transport::Echo {
            self.echo_message(key, kind, &message, now);
        }
        Ok(())
    }
}
