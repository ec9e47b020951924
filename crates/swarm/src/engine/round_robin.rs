//! Who sends next: the terminals of a thread, one after the other.

use crate::engine::outbox::Outbox;
use crate::engine::terminal::{Phase, Terminal};

/// Terminals looked at in one turn for one that can take a message.
pub(super) const LOOKS_PER_TURN_MAX: usize = 16 * 1024;

/// Where a schedule is among the terminals.
#[derive(Debug, Default)]
pub(super) struct RoundRobin {
    /// The one that is looked at next.
    cursor: usize,
}

impl RoundRobin {
    /// The next terminal that can take a message, if one is found within so many `looks`, which are used up by that.
    pub(super) fn next(
        &mut self,
        terminals: &[Terminal],
        outbox: &Outbox,
        looks: &mut usize,
    ) -> Option<u32> {
        while *looks > 0 {
            *looks -= 1;
            let index = self.cursor % terminals.len();
            self.cursor = index + 1;
            let number = u32::try_from(index).expect("terminals are at most 2^32");
            if terminals[index].phase == Phase::Open && !outbox.has_unsent(number) {
                return Some(number);
            }
        }
        None
    }
}
