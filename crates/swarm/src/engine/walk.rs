//! A walk over the terminals of a thread that visits every one before it visits any again.
//!
//! Its steps are long, so neighbours in the server's tables are not visited together.

use crate::random::mix;

/// Where a walk is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk {
    count: u64,
    cursor: u64,
    /// Coprime to `count`.
    stride: u64,
}

impl Walk {
    /// Over so many terminals, at least one.
    pub(super) fn new(count: u32, seed: u64) -> Self {
        let count = u64::from(count.max(1));
        let random = mix(seed);
        Self {
            count,
            cursor: random % count,
            stride: stride(count, mix(random)),
        }
    }

    /// The next terminal.
    pub(super) fn next(&mut self) -> usize {
        self.cursor = (self.cursor + self.stride) % self.count;
        usize::try_from(self.cursor).expect("terminals are at most 2^32")
    }
}

/// A step for a walk that visits each of `count` indices, near their golden section: consecutive visits are far apart.
fn stride(count: u64, random: u64) -> u64 {
    // Within an eighth of it, so that runs with different seeds walk differently.
    let golden = count * 618 / 1000 + random % (count / 8).max(1);
    (golden.max(1)..)
        .find(|&stride| greatest_common_divisor(stride, count) == 1)
        .expect("a prime above the count is among them")
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 {
        a
    } else {
        greatest_common_divisor(b, a % b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_is_visited_once_before_anybody_is_visited_twice() {
        for count in [1, 2, 3, 6, 97, 1000, 4096] {
            for seed in 0..20 {
                let mut walk = Walk::new(count, seed);
                let mut visits = vec![0; usize::try_from(count).unwrap()];
                for _ in 0..3 * count {
                    visits[walk.next()] += 1;
                }
                assert!(visits.iter().all(|&times| times == 3), "{count} {seed}");
            }
        }
    }
}
