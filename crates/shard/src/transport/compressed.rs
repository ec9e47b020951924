//! Compressed messages from clients (RFC 7692), for every transport that speaks WebSocket. Changes
//! `inputs` (its inflater).

use crate::shard::Shard;
use myriad_reactor::Reactor;
use myriad_wire::ws::{Kind, ProtocolError};

impl<R: Reactor> Shard<R> {
    /// Inflates a whole message. Ignored messages are inflated too, so that the client is told what is wrong with them, as it is
    /// of messages that are not compressed. Bounded by the limit of a message.
    pub(super) fn inflate(&mut self, kind: Kind, payload: &[u8]) -> Result<Vec<u8>, ProtocolError> {
        let mut message = Vec::new();
        let bytes_max = self.settings.message_bytes_max;
        self.inputs
            .inflater
            .inflate(kind, payload, bytes_max, &mut message)?;
        self.metrics().messages_received.add(1);
        self.metrics().compressed_messages_received.add(1);
        Ok(message)
    }
}
