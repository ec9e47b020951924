//! Messages that are republished: each is told, held back while its channel is filled, or shows that one before it is missing.

use super::Interest;
use super::channel::{Channel, Held, Phase};
use crate::envelope::MESSAGE_OVERHEAD;
use std::sync::Arc;

/// Messages of one channel that are held back while it is filled.
pub(super) const HELD_MAX: usize = 256;
/// Bytes of messages that are held back in all channels.
const HELD_BYTES_MAX: usize = 64 << 20;

/// What a message says of the one before it in its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Previous {
    /// Its place.
    Place(u64),
    /// There is none, or it has gone.
    None,
    /// Nothing: messages come without a gap, so it has come.
    InOrder,
}

impl Previous {
    /// Of a place; 0: there is none, or it has gone.
    #[must_use]
    pub fn of(place: u64) -> Self {
        match place {
            0 => Self::None,
            place => Self::Place(place),
        }
    }
}

/// What a message is, by its place and the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Repeated,
    Next,
    /// Something before it is missing.
    Gap,
    /// A server said that it does not exist.
    Denied,
}

impl<M> Interest<M> {
    /// A message came.
    pub fn handle_message(
        &mut self,
        name: &str,
        sequence: u64,
        previous: Previous,
        message: M,
        bytes: usize,
    ) {
        let Some((name, channel)) = self.channels.get_key_value(name) else {
            return;
        };
        let name = Arc::clone(name);
        let held = Held {
            sequence,
            previous,
            bytes: bytes + MESSAGE_OVERHEAD as usize,
            message,
        };
        if channel.phase == Phase::Live {
            self.hear(&name, held);
        } else {
            self.hold(&name, held);
        }
    }

    /// All messages up to here have come in order, those of other channels too.
    pub fn handle_in_order(&mut self, sequence: u64) {
        self.in_order_to = sequence.max(self.in_order_to);
    }

    /// Messages did not come that should have come in order, and nobody knows of which channels. Each channel waits for another fence,
    /// and is asked about.
    pub fn handle_hole(&mut self) {
        for (name, channel) in &mut self.channels {
            channel.note_in_order(self.in_order_to);
            if channel.phase == Phase::Live {
                channel.phase = Phase::New;
                self.unfenced.push((Arc::clone(name), channel.serial));
            } else {
                // It has to be asked about again when it has got what is on its way.
                channel.is_overfull = true;
            }
        }
        self.fence();
    }

    /// Keeps what comes for a channel that is filled.
    fn hold(&mut self, name: &Arc<str>, one: Held<M>) {
        let is_full = self.held_bytes + one.bytes > HELD_BYTES_MAX;
        let Some(channel) = self.channels.get_mut(name) else {
            return;
        };
        // What is held is a beginning without a gap: the rest is read when that has been told.
        if channel.is_overfull || is_full || channel.held.len() >= HELD_MAX {
            channel.is_overfull = true;
            return;
        }
        self.held_bytes += one.bytes;
        channel.held.push(one);
    }

    /// A message of a channel that is followed.
    fn hear(&mut self, name: &Arc<str>, one: Held<M>) {
        let Some(channel) = self.channels.get(name) else {
            return;
        };
        match verdict(channel, one.sequence, one.previous) {
            Verdict::Repeated => {}
            Verdict::Next => {
                self.tell_message(name, one.sequence, one.message);
                self.tell_if_confirming(name);
            }
            Verdict::Denied => self.deny(name),
            Verdict::Gap => {
                let to = one.sequence;
                self.hold(name, one);
                self.fill(name, to);
            }
        }
    }

    /// What was held back is told, up to the next gap.
    pub(super) fn release(&mut self, name: &Arc<str>) {
        let Some(channel) = self.channels.get_mut(name) else {
            return;
        };
        self.held_bytes -= channel.held_bytes();
        let mut held = std::mem::take(&mut channel.held);
        // What was republished late comes out of order.
        held.sort_by_key(|one| one.sequence);
        for one in held {
            let is_live = self
                .channels
                .get(name)
                .is_some_and(|one| one.phase == Phase::Live);
            if is_live {
                self.hear(name, one);
            } else {
                self.hold(name, one);
            }
        }
        if let Some(channel) = self.channels.get_mut(name)
            && channel.is_overfull
            && channel.phase == Phase::Live
        {
            channel.is_overfull = false;
            self.renew(name);
        }
    }
}

/// Whether a message is the next one of its channel.
fn verdict<M>(channel: &Channel<M>, sequence: u64, previous: Previous) -> Verdict {
    if sequence <= channel.last {
        return Verdict::Repeated;
    }
    if sequence <= channel.read_to {
        return match previous {
            Previous::InOrder => Verdict::Denied,
            // What stands before the place up to which all was told, and was not told, has gone meanwhile.
            Previous::Place(_) | Previous::None => Verdict::Repeated,
        };
    }
    let is_next = match previous {
        Previous::Place(place) => place == channel.last,
        Previous::None => channel.last == 0 || channel.is_empty,
        Previous::InOrder => true,
    };
    if is_next { Verdict::Next } else { Verdict::Gap }
}
