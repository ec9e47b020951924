//! Who sends next: the terminals of a thread, one after the other.

/// Terminals looked at in one turn for one that can take a message.
pub(super) const LOOKS_PER_TURN_MAX: usize = 16 * 1024;

/// Where a schedule is among the terminals.
#[derive(Debug, Default)]
pub(super) struct RoundRobin {
    /// The one that is looked at next.
    cursor: usize,
}

impl RoundRobin {
    /// The next of so many terminals that can take a message, if one is found within so many `looks`, which are used up by that.
    pub(super) fn next(
        &mut self,
        terminals: usize,
        looks: &mut usize,
        is_free: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        while *looks > 0 {
            *looks -= 1;
            let index = self.cursor % terminals;
            self.cursor = index + 1;
            let number = u32::try_from(index).expect("terminals are at most 2^32");
            if is_free(number) {
                return Some(number);
            }
        }
        None
    }
}
