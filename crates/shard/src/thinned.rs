//! One line a second for each reason, for logs that an attacker must not fill.

use myriad_hub::Now;
use std::collections::BTreeMap;

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

/// Reasons that are known at a time. Events of further ones are left out and counted together.
const REASONS_MAX: usize = 256;

/// Lets one event a second through for each reason, and counts the others.
#[derive(Debug)]
pub struct Thinned<K> {
    reasons: BTreeMap<K, Reason>,
    /// Events left out because there were too many reasons.
    beyond: u64,
}

#[derive(Debug)]
struct Reason {
    /// The second of the last event that was let through.
    second: u64,
    left_out: u64,
}

impl<K> Default for Thinned<K> {
    fn default() -> Self {
        Self {
            reasons: BTreeMap::new(),
            beyond: 0,
        }
    }
}

impl<K: Ord> Thinned<K> {
    /// Whether an event may have a line.
    pub fn note(&mut self, reason: K, now: Now) -> bool {
        let second = now.0 / NANOSECONDS_PER_SECOND;
        if let Some(known) = self.reasons.get_mut(&reason) {
            if known.second == second {
                known.left_out += 1;
                return false;
            }
            known.second = second;
            return true;
        }
        if self.reasons.len() >= REASONS_MAX {
            self.beyond += 1;
            return false;
        }
        let left_out = 0;
        self.reasons.insert(reason, Reason { second, left_out });
        true
    }

    /// How many events were left out in seconds that are over, by reason; and of how many the reason is not known. Each is
    /// told once.
    pub fn take_left_out(&mut self, now: Now) -> (Vec<(K, u64)>, u64)
    where
        K: Clone,
    {
        let second = now.0 / NANOSECONDS_PER_SECOND;
        let mut left_out = Vec::new();
        self.reasons.retain(|reason, known| {
            if known.second == second {
                return true;
            }
            if known.left_out > 0 {
                left_out.push((reason.clone(), std::mem::take(&mut known.left_out)));
            }
            false
        });
        (left_out, std::mem::take(&mut self.beyond))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64, nanoseconds: u64) -> Now {
        Now(seconds * NANOSECONDS_PER_SECOND + nanoseconds)
    }

    #[test]
    fn each_reason_has_a_line_a_second_and_nothing_goes_uncounted() {
        let mut thinned = Thinned::default();
        let mut shown = 0;
        for nth in 0..50 {
            shown += u64::from(thinned.note("full", at(1, nth)));
            shown += u64::from(thinned.note("origin", at(1, nth)));
        }
        assert_eq!(shown, 2);
        assert_eq!(
            thinned.take_left_out(at(1, 99)),
            (vec![], 0),
            "the second is under way"
        );
        assert!(thinned.note("full", at(2, 0)), "another second");
        let (left_out, beyond) = thinned.take_left_out(at(3, 0));
        assert_eq!((left_out, beyond), (vec![("full", 49), ("origin", 49)], 0));
        assert_eq!(thinned.take_left_out(at(9, 0)), (vec![], 0));
        assert!(
            thinned.reasons.is_empty(),
            "nothing is kept of quiet reasons"
        );
    }

    #[test]
    fn many_reasons_are_bounded() {
        let mut thinned = Thinned::default();
        let shown = (0..1_000).filter(|reason| thinned.note(*reason, at(1, 0)));
        assert_eq!(shown.count(), REASONS_MAX);
        assert_eq!(
            thinned.take_left_out(at(2, 0)),
            (vec![], 1_000 - REASONS_MAX as u64)
        );
        assert!(thinned.note(999, at(2, 0)));
    }
}
