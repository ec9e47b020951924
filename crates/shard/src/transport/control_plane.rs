//! Requests that are no streams. They go to the control plane, with all their bytes that were read. Changes `hub` and
//! `turn_end`; gives sockets of `reactor` to `hand_over`.

use crate::marks::hit;
use crate::shard::{Shard, token_of};
use myriad_hub::{CloseReason, Now};
use myriad_reactor::{Reactor, Socket};
use myriad_wheel::Key;

impl<R: Reactor> Shard<R> {
    /// Lists a request for the control plane. It is handed over after the turn's completions, because these may hold more
    /// of its bytes.
    pub(crate) fn begin_handover(&mut self, key: Key, bytes: &[u8], now: Now) {
        self.note_closed(key, CloseReason::HandedOver, now);
        self.turn_end.pending_handovers.push((key, bytes.to_vec()));
    }

    /// Bytes of a closing connection. They count only if the connection is to be handed over.
    pub(crate) fn handle_closing_bytes(&mut self, key: Key, bytes: &[u8]) {
        let pending = self
            .turn_end
            .pending_handovers
            .iter_mut()
            .find(|(known, _)| *known == key);
        if let Some((_, received)) = pending {
            received.extend_from_slice(bytes);
            hit!(HandedOverInPieces);
        }
    }

    /// Hands this turn's requests over to the control plane.
    pub(crate) fn run_pending_handovers(&mut self) {
        for (key, received) in std::mem::take(&mut self.turn_end.pending_handovers) {
            let socket = Socket::from_bits(self.hub.connection(key.index).socket);
            let handle = self.reactor.transfer(socket, token_of(key));
            self.release(key);
            hit!(TransferFailed if handle.is_err());
            let is_transferred = handle.is_ok();
            let taken = handle.and_then(|handle| self.hand_over.hand_over(handle, &received));
            if taken.is_ok() {
                self.metrics().handed_over.add(1);
                hit!(HandedOver);
            } else {
                self.metrics().hand_overs_refused.add(1);
            }
            hit!(HandOverRefused if is_transferred && taken.is_err());
        }
    }
}
