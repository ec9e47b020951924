//! The node, simulated: several shards and their inboxes on one thread, with the code that ships.
//!
//! A seed decides everything: limits, faults, the crowd, the schedule, and what time does. After every turn of a shard
//! and at every quiet moment, what must hold is checked (see `world`, `verdict` and `ending`): publications arrive in
//! order, once, whole and without gap; budgets hold; pings, statuses and close codes are what they should be; and at
//! the end nothing is left.
//!
//! A seed that fails says how to replay it:
//!
//! ```text
//! MYRIAD_SIM_SEED=123 cargo test -p myriad-shard --test sim replay -- --nocapture
//! ```
//!
//! `MYRIAD_SIM_SEEDS` is the number of seeds (1000 unless told) and `MYRIAD_SIM_FROM` the first (0).

mod control;
mod decoder;
mod ending;
mod ledger;
mod peer;
mod plan;
mod regressions;
mod request;
mod run;
mod schedule;
mod trace;
mod verdict;
mod world;

/// The seeds in parts, so that they run on several cores.
macro_rules! seeds_in_parts {
    ($($name:ident: $part:literal),* $(,)?) => {
        const PARTS: u64 = [$($part),*].len() as u64;
        $(
            #[test]
            fn $name() {
                run::run_part($part, PARTS);
            }
        )*
    };
}

seeds_in_parts!(seeds_a: 0, seeds_b: 1, seeds_c: 2, seeds_d: 3);

/// Runs `MYRIAD_SIM_SEED` and prints every step; does nothing without it.
#[test]
fn replay() {
    if let Some(seed) = run::variable("MYRIAD_SIM_SEED") {
        let outcome = run::run(seed, true);
        eprintln!("seed {seed} passes: {outcome:?}");
    }
}

#[test]
fn equal_seeds_run_equally() {
    let outcomes = || {
        (0..12)
            .map(|seed| run::run(seed, false))
            .collect::<Vec<_>>()
    };
    let first = outcomes();
    assert_eq!(first, outcomes());
    assert_ne!(first[0].trace, first[1].trace);
}
