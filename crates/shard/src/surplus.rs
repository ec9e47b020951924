//! Connections beyond the limit: kept for a moment to be told that the server is full, or to be handed over.
//!
//! A request for the control plane has to get through on a full server, however many others connect. So no newcomer is turned
//! away because earlier ones wait: the connection that has waited longest is reset for it. Clients send their request right
//! after connecting, so they have been answered before that happens to them.
//!
//! Changes `admission` and `hub`; closes connections by the methods of `closing`.

use crate::marks::hit;
use crate::shard::{PendingHandover, Shard};
use myriad_hub::{CloseReason, Now};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use std::collections::VecDeque;

/// Surplus connections that have a record. More are reset: the descriptor tables have room for these.
const RECORDS_MAX: usize = 256;
/// Those that may wait from one turn to the next. The others are closed at the end of the turn.
const WAITING_MAX: usize = 128;

/// The connections beyond the limit.
#[derive(Debug, Default)]
pub(crate) struct Surplus {
    /// Those with a record.
    count: usize,
    /// Of these, the ones reset in this turn.
    evicted: usize,
    /// In the order they came; with some that have gone since.
    keys: VecDeque<Key>,
}

impl Surplus {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// A record of one of them was freed.
    pub(crate) fn release(&mut self) {
        self.count -= 1;
    }

    /// The connections reset in this turn were closed.
    pub(crate) fn end_turn(&mut self) {
        self.evicted = 0;
    }
}

impl<R: Reactor> Shard<R> {
    /// Makes room for another surplus connection; false when too many came in this turn.
    pub(crate) fn make_surplus_room(&mut self, now: Now) -> bool {
        if self.admission.surplus.count - self.admission.surplus.evicted < WAITING_MAX {
            return true;
        }
        if self.admission.surplus.count >= RECORDS_MAX {
            return false;
        }
        while let Some(key) = self.admission.surplus.keys.pop_front() {
            let is_handed_over = |pending: &PendingHandover| pending.key == key;
            // One that is handed over in this turn leaves by itself.
            if self.hub.contains(key) && !self.turn_end.pending_handovers.iter().any(is_handed_over)
            {
                hit!(SurplusEvicted);
                self.admission.surplus.evicted += 1;
                self.reset(key, CloseReason::Full, now);
                return true;
            }
        }
        // All of them leave in this turn.
        true
    }

    /// Notes that a new connection is beyond the limit.
    pub(crate) fn add_surplus(&mut self, key: Key) {
        if self.admission.surplus.keys.len() >= 2 * RECORDS_MAX {
            let hub = &self.hub;
            self.admission
                .surplus
                .keys
                .retain(|known| hub.contains(*known));
        }
        self.admission.surplus.count += 1;
        self.admission.surplus.keys.push_back(key);
        self.hub.connection_mut(key.index).set_surplus();
    }
}
