//! The simulation's randomness.

/// A small random number generator (splitmix64: Steele, Lea and Flood, 2014).
///
/// Our own code, because a seed must replay the same sequence after every update of a dependency.
#[derive(Clone, Debug)]
pub struct Prng(u64);

impl Prng {
    /// The generator of that seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A number from 0 to `end` - 1.
    ///
    /// # Panics
    /// When `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        assert!(end > 0, "no number is below zero");
        let wide = u128::from(self.bits()) * end as u128;
        usize::try_from(wide >> 64).expect("below `end`")
    }

    /// A number from `first` to `last`, both included.
    pub fn between(&mut self, first: usize, last: usize) -> usize {
        first + self.below(last - first + 1)
    }

    /// True once in so many times.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of the items.
    ///
    /// # Panics
    /// When there is none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// A second generator with an independent sequence.
    pub fn fork(&mut self) -> Self {
        Self(mix(self.bits()))
    }
}

/// Spreads every bit of the input over all of the output.
pub(super) fn mix(bits: u64) -> u64 {
    let bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ bits >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs for seed 1234567, which other implementations of the algorithm agree on.
    #[test]
    fn matches_the_reference_sequence() {
        let mut prng = Prng::new(1_234_567);
        assert_eq!(prng.bits(), 6_457_827_717_110_365_317);
        assert_eq!(prng.bits(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn below_reaches_every_number_and_no_other() {
        let mut prng = Prng::new(1);
        let mut seen = [false; 7];
        (0..200).for_each(|_| seen[prng.below(7)] = true);
        assert_eq!(seen, [true; 7]);
        assert!((0..200).all(|_| (3..=5).contains(&prng.between(3, 5))));
    }
}
