//! Mistakes that were made on purpose: the tests of crashes and of damage notice each of them.

use super::Planted;
use super::crashes::simulate;
use super::damage;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Seeds in which a mistake has to be noticed.
const SEEDS: u64 = 300;

fn is_noticed(run: impl Fn(u64)) -> bool {
    (0..SEEDS).any(|seed| catch_unwind(AssertUnwindSafe(|| run(seed))).is_err())
}

#[test]
fn mistakes_about_crashes_are_noticed() {
    for planted in [
        Planted::AckBeforeSync,
        Planted::NoDirectorySync,
        Planted::IndexAhead,
        Planted::RetrySync,
        Planted::TailNotCut,
    ] {
        let noticed = is_noticed(|seed| {
            simulate(seed, planted);
        });
        assert!(noticed, "{planted:?}");
    }
}

#[test]
fn a_log_that_believes_damaged_bytes_is_noticed() {
    assert!(is_noticed(|seed| damage::one_flipped_bit(
        seed,
        Planted::NoChecksum
    )));
}
