//! Which terminals of a thread have got which publications of terminals, so that a copy is told from the first.

use crate::clock::Nanos;
use rustc_hash::FxHashMap;
use std::time::Duration;

/// For as long at least a copy is known for one.
const PERIOD_MIN: Duration = Duration::from_secs(1);

/// By publication and 64 terminals in a row: those that have got it, one bit each.
type Seen = FxHashMap<(u64, u32), u64>;

/// Who has got what lately.
///
/// An offset says less: a server that stores a publication twice gives it two of them, and a channel without history has none.
#[derive(Debug, Default)]
pub(super) struct Receipts {
    /// Since `begun`.
    recent: Seen,
    /// In the period before that.
    before: Seen,
    begun: Nanos,
    /// A copy that comes later than this behind the first may not be known for one.
    period: Duration,
}

impl Receipts {
    /// Those of a run in which terminals publish, and wait so long for what is missing.
    pub(super) fn new(settle: Option<Duration>) -> Self {
        Self {
            period: settle.unwrap_or_default().max(PERIOD_MIN),
            ..Self::default()
        }
    }

    /// Notes that a terminal got a publication. False if it had it.
    pub(super) fn note(&mut self, number: u64, index: u32, now: Nanos) -> bool {
        if now.since(self.begun) >= self.period {
            std::mem::swap(&mut self.recent, &mut self.before);
            self.recent.clear();
            self.begun = now;
        }
        let (key, bit) = ((number, index / 64), 1 << (index % 64));
        let recent = self.recent.entry(key).or_default();
        let earlier = self.before.get(&key).copied().unwrap_or_default();
        let is_first = (*recent | earlier) & bit == 0;
        *recent |= bit;
        is_first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_from_copies_until_two_periods_have_passed() {
        let at = |seconds: u64| Nanos(seconds * 1_000_000_000);
        let mut receipts = Receipts::new(Some(Duration::from_secs(5)));
        for index in [0, 63, 64, 1000] {
            assert!(receipts.note(7, index, at(10)), "{index}");
            assert!(!receipts.note(7, index, at(10)), "{index}");
            assert!(receipts.note(8, index, at(11)), "{index}");
        }
        assert!(!receipts.note(7, 63, at(15)), "the period before");
        assert!(receipts.note(7, 62, at(15)));
        // Nothing is kept for ever.
        for (index, seconds) in [(0, 20), (1, 30), (0, 40)] {
            assert!(receipts.note(9, index, at(seconds)), "at {seconds}");
        }
    }
}
