//! Requests that are no streams: they leave for the control plane, with every byte read of them.

use crate::reach::ShardPlace;
use crate::shard::{Shard, token_of};
use myriad_hub::{CloseReason, Now};
use myriad_reactor::{Reactor, Socket};
use myriad_wheel::Key;

impl<R: Reactor> Shard<R> {
    /// Notes a request for the control plane. It leaves after the turn's completions: more of it may be among them,
    /// and what the reactor has brought is nowhere else.
    pub(crate) fn depart(&mut self, key: Key, bytes: &[u8], now: Now) {
        self.note_closed(key, CloseReason::HandedOver, now);
        self.departing.push((key, bytes.to_vec()));
    }

    /// Bytes of a connection that has ended here: of use only to the control plane.
    pub(crate) fn handle_departing_bytes(&mut self, key: Key, bytes: &[u8]) {
        let departing = self.departing.iter_mut().find(|(known, _)| *known == key);
        if let Some((_, received)) = departing {
            received.extend_from_slice(bytes);
            self.reach.note(ShardPlace::HandedOverInPieces);
        }
    }

    /// Passes on what departs.
    pub(crate) fn hand_over_departing(&mut self) {
        for (key, received) in std::mem::take(&mut self.departing) {
            let socket = Socket::from_bits(self.hub.connection(key.index).socket);
            let handle = self.reactor.transfer(socket, token_of(key));
            self.release(key);
            self.reach
                .note_if(handle.is_err(), ShardPlace::TransferFailed);
            let is_transferred = handle.is_ok();
            let taken = handle.and_then(|handle| self.hand_over.hand_over(handle, &received));
            if taken.is_ok() {
                self.metrics().handed_over.add(1);
                self.reach.note(ShardPlace::HandedOver);
            } else {
                self.metrics().hand_overs_refused.add(1);
            }
            self.reach.note_if(
                is_transferred && taken.is_err(),
                ShardPlace::HandOverRefused,
            );
        }
    }
}
