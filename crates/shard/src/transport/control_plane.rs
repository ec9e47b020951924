//! Requests that are no streams. They go to the control plane, with all their bytes that were read, and so does the connection.
//! When a later request on it is for a shard, the connection comes back: then it goes on as if it had just been accepted.
//!
//! Changes `hub`, `peers`, `admission` and `turn_end`; gives sockets of `reactor` to `hand_over`, and takes them back.

use crate::drain::Drain;
use crate::events::ConnectionEvent;
use crate::marks::hit;
use crate::shard::{HandedBack, Origin, PendingHandover, Shard, TurnedAway, token_of};
use myriad_hub::{CloseReason, Now};
use myriad_reactor::{Reactor, Socket};
use myriad_wheel::Key;

impl<R: Reactor> Shard<R> {
    /// Lists a request for the control plane. It is handed over after the turn's completions, because these may hold more
    /// of its bytes. Tells whether the connection has read a stream before.
    pub(crate) fn begin_handover(&mut self, key: Key, bytes: &[u8], has_read: bool, now: Now) {
        self.note_closed(key, CloseReason::HandedOver, now);
        self.turn_end.pending_handovers.push(PendingHandover {
            key,
            received: bytes.to_vec(),
            has_read,
        });
    }

    /// Bytes of a closing connection. They count only if the connection is to be handed over.
    pub(crate) fn handle_closing_bytes(&mut self, key: Key, bytes: &[u8]) {
        let pending = self
            .turn_end
            .pending_handovers
            .iter_mut()
            .find(|pending| pending.key == key);
        if let Some(pending) = pending {
            pending.received.extend_from_slice(bytes);
            hit!(HandedOverInPieces);
        }
    }

    /// Hands this turn's requests over to the control plane.
    pub(crate) fn run_pending_handovers(&mut self) {
        for pending in std::mem::take(&mut self.turn_end.pending_handovers) {
            let (key, received) = (pending.key, pending.received);
            let socket = Socket::from_bits(self.hub.connection(key.index).socket);
            let handle = self.reactor.transfer(socket, token_of(key));
            let origin = Origin {
                has_read: pending.has_read,
                reads: self.reads_left(key),
                ..self.origin(key)
            };
            self.release(key);
            // Whoever asks for the metrics must not find itself among the connections: this turn may end after the answer is written.
            let connections = self.hub.connection_count() as u64;
            self.metrics().connections.set(connections);
            hit!(TransferFailed if handle.is_err());
            let is_transferred = handle.is_ok();
            let taken =
                handle.and_then(|handle| self.hand_over.hand_over(handle, &received, origin));
            if taken.is_ok() {
                self.metrics().handed_over.add(1);
                hit!(HandedOver);
            } else {
                self.metrics().hand_overs_refused.add(1);
            }
            hit!(HandOverRefused if is_transferred && taken.is_err());
        }
    }

    /// Takes in a connection that the control plane hands back, and what was read of its request.
    ///
    /// The descriptor has a place in the tables like an accepted one. If even those for answers of 503 are taken, the client is
    /// told so without a record.
    pub(crate) fn take_back(&mut self, now: Now) {
        let Some(returned) = self.hand_over.take_back() else {
            self.metrics().hand_backs_refused.add(1);
            return;
        };
        let HandedBack {
            handle,
            mut received,
            origin,
        } = returned;
        if self.admission.drain.as_ref().is_some_and(Drain::is_over) {
            // Nobody may make the drain wait for one more linger.
            hit!(HandedBackTooLate);
            self.metrics().hand_backs_refused.add(1);
            return self.hand_over.turn_away(handle, TurnedAway::Draining);
        }
        let socket = match self.reactor.adopt(handle) {
            Ok(socket) => socket,
            Err(refused) => {
                hit!(AdoptFailed);
                self.metrics().hand_backs_refused.add(1);
                let why = TurnedAway::Full;
                return self.hand_over.turn_away(refused.handle, why);
            }
        };
        self.metrics().handed_back.add(1);
        let peer = self.judge_returned(socket, origin, now);
        let Some(key) = self.open(socket, peer, now) else {
            return;
        };
        hit!(HandedBack);
        self.restore_reads(key, origin.reads, now);
        if origin.has_read {
            self.hub.begin_next_request(key.index, now);
        }
        hit!(HandedBackWhileDraining if self.admission.drain.is_some());
        self.note_event(Some(key), now, |_| ConnectionEvent::HandedBack);
        if !received.is_empty() {
            self.metrics().received_bytes.add(received.len() as u64);
            self.handle_received(key, &mut received, now);
        }
        // Both planes agree about requests, but nothing here depends on it.
        self.run_pending_handovers();
    }
}
