//! What one terminal has seen of one channel, in four bytes.

/// The newest sequence seen and which of the eight before it are missing.
///
/// The upper 24 bits hold the newest sequence, zero before the first. Bit *i* of the lower eight is set
/// while the sequence *i + 1* below the newest was skipped and has not come since; so an overtaken
/// publication is told from a repeated one. One that comes more than eight late counts as repeated.
///
/// Before the first, the lower bits say whether the terminal was there when the channel's publications began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sequence(u32);

/// What a publication's sequence says about the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Observed {
    /// The first that a terminal sees which joined later, or the one after the last.
    InOrder,
    /// So many before it have not come.
    AfterGap(u32),
    /// It fills a gap that was counted: later ones have overtaken it.
    Overtaken,
    /// It was seen before.
    Repeated,
}

const WINDOW: u32 = 8;

/// The newest number of a row that was seen, and which of the eight before it are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Newest {
    pub(crate) number: u64,
    /// Bit *i* is set while the number *i + 1* below the newest was skipped and has not come since.
    pub(crate) missing: u8,
}

impl Newest {
    /// Takes note of one number.
    pub(crate) fn observe(&mut self, number: u64) -> Observed {
        if number > self.number {
            let step = number - self.number;
            let skipped = match step {
                1..=8 => u8::MAX.unbounded_shr(9 - low_bits(step)),
                _ => u8::MAX,
            };
            self.missing = self.missing.unbounded_shl(low_bits(step)) | skipped;
            self.number = number;
            return match step {
                1 => Observed::InOrder,
                _ => Observed::AfterGap(u32::try_from(step - 1).unwrap_or(u32::MAX)),
            };
        }
        let back = self.number - number;
        if (1..=u64::from(WINDOW)).contains(&back) && self.missing >> (back - 1) & 1 == 1 {
            self.missing &= !(1 << (back - 1));
            return Observed::Overtaken;
        }
        Observed::Repeated
    }
}

/// A step as a width of a shift. Anything above a byte shifts all bits out.
fn low_bits(step: u64) -> u32 {
    u32::try_from(step).unwrap_or(u32::MAX)
}

impl Sequence {
    /// Nothing seen; what came before the terminal joined is none of its business.
    pub(crate) const NONE: Self = Self(0);

    /// Nothing seen by one that was there before the first publication: it is to see that one too.
    pub(crate) const FROM_THE_FIRST: Self = Self(1);

    /// The newest seen; zero before the first.
    pub(crate) fn newest(self) -> u32 {
        self.0 >> WINDOW
    }

    /// Takes note of one publication; `sequence` counts from 1 and fits 24 bits.
    pub(crate) fn observe(&mut self, sequence: u32) -> Observed {
        if *self == Self::NONE {
            self.0 = sequence << WINDOW;
            return Observed::InOrder;
        }
        let [missing, ..] = self.0.to_le_bytes();
        let mut newest = Newest {
            number: self.newest().into(),
            // Before the first the bits say something else.
            missing: if self.newest() == 0 { 0 } else { missing },
        };
        let observed = newest.observe(sequence.into());
        self.0 = self.newest().max(sequence) << WINDOW | u32::from(newest.missing);
        observed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observe_all(sequences: &[u32]) -> Vec<Observed> {
        let mut state = Sequence::NONE;
        sequences
            .iter()
            .map(|&sequence| state.observe(sequence))
            .collect()
    }

    #[test]
    fn an_unbroken_run_is_in_order_wherever_it_begins() {
        assert!(
            observe_all(&[7, 8, 9, 10])
                .iter()
                .all(|&observed| observed == Observed::InOrder)
        );
        assert_eq!(
            observe_all(&[crate::stamp::SEQUENCE_MAX]),
            [Observed::InOrder]
        );
    }

    #[test]
    fn gaps_and_repeats_are_told_apart() {
        use Observed::{AfterGap, InOrder, Overtaken, Repeated};
        assert_eq!(
            observe_all(&[1, 2, 2, 5, 6]),
            [InOrder, InOrder, Repeated, AfterGap(2), InOrder]
        );
        assert_eq!(
            observe_all(&[1, 3, 2, 2, 4]),
            [InOrder, AfterGap(1), Overtaken, Repeated, InOrder]
        );
        assert_eq!(
            observe_all(&[1, 10, 2, 9]),
            [InOrder, AfterGap(8), Overtaken, Overtaken]
        );
        assert_eq!(
            observe_all(&[1, 20, 11, 12]),
            [InOrder, AfterGap(18), Repeated, Overtaken]
        );
    }

    #[test]
    fn who_was_there_from_the_first_misses_what_it_never_got() {
        use Observed::{AfterGap, InOrder, Overtaken, Repeated};
        let observe_all = |sequences: &[u32]| {
            let mut state = Sequence::FROM_THE_FIRST;
            assert_eq!(state.newest(), 0);
            let observed = sequences.iter().map(|&sequence| state.observe(sequence));
            observed.collect::<Vec<_>>()
        };
        assert_eq!(observe_all(&[1, 2, 1]), [InOrder, InOrder, Repeated]);
        assert_eq!(
            observe_all(&[3, 1, 2, 4]),
            [AfterGap(2), Overtaken, Overtaken, InOrder]
        );
        assert_eq!(observe_all(&[20, 12]), [AfterGap(19), Overtaken]);
    }

    /// Against a set of everything seen, on short random walks.
    #[test]
    fn it_agrees_with_a_set_inside_its_window() {
        let mut random = 0x9e37_79b9_u32;
        for _ in 0..2000 {
            let mut state = Sequence::NONE;
            let mut seen = std::collections::BTreeSet::new();
            let mut newest = 0;
            for _ in 0..40 {
                random ^= random << 13;
                random ^= random >> 17;
                random ^= random << 5;
                let low = newest.max(9_u32) - 8;
                let sequence = if seen.is_empty() {
                    100
                } else {
                    low + random % 12
                };
                if sequence <= newest && sequence < 100 {
                    continue;
                }
                let observed = state.observe(sequence);
                let expected = if seen.contains(&sequence) {
                    Observed::Repeated
                } else if seen.is_empty() || sequence == newest + 1 {
                    Observed::InOrder
                } else if sequence > newest {
                    Observed::AfterGap(sequence - newest - 1)
                } else {
                    Observed::Overtaken
                };
                assert_eq!(observed, expected, "{sequence} after {seen:?}");
                seen.insert(sequence);
                newest = newest.max(sequence);
            }
        }
    }
}
