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
//! `MYRIAD_SIM_SEEDS` is the number of seeds (1000 unless told) and `MYRIAD_SIM_FROM` the first (0). `make sim` runs
//! 100,000 of them or an hour, and reports what they reached (see `reach`).

mod access;
mod batches;
mod channels;
mod compression;
mod control;
mod decoder;
mod defects;
mod desk;
mod ending;
mod ledger;
mod members;
mod node;
#[path = "../shared/notices.rs"]
mod notices;
mod peer;
mod plan;
mod reach;
mod regressions;
mod request;
mod rooms;
mod run;
mod schedule;
mod secured;
mod sessions;
mod trace;
mod verdict;
mod visitor;
mod world;

use myriad_reactor::sim::{Campaign, Outcomes, seed_to_replay, variable};
use std::time::{Duration, Instant};

/// Seeds of a run in CI.
const SEEDS: u64 = 1000;
/// Of a run at length: whichever is first.
const SEEDS_AT_LENGTH: u64 = 100_000;
const MINUTES_AT_LENGTH: u64 = 60;
/// What `cargo test` is told to replay a seed.
const REPLAY: &str = "-p myriad-shard --test sim replay";

#[test]
fn seeds() {
    let campaign = Campaign::from_environment(SEEDS, REPLAY);
    let Outcomes {
        summary, failures, ..
    } = run::run_all(&campaign, false);
    assert!(failures.is_empty(), "seeds that fail: {failures:?}");
    println!("{}\n{}", summary.reach.lines().join("\n"), summary.work);
    if campaign.count >= SEEDS {
        summary.reach.check();
    }
}

/// As many seeds as an hour takes, and a report of what they came through.
#[test]
#[ignore = "an hour: make sim"]
fn at_length() {
    let minutes = variable("MYRIAD_SIM_MINUTES").unwrap_or(MINUTES_AT_LENGTH);
    let began = Instant::now();
    let deadline = began + Duration::from_secs(60 * minutes);
    let campaign = Campaign {
        deadline: Some(deadline),
        ..Campaign::from_environment(SEEDS_AT_LENGTH, REPLAY)
    };
    let Outcomes {
        summary, failures, ..
    } = run::run_all(&campaign, true);
    let (all, missed) = summary.reach.missed();
    println!("\nHow often each state was reached, in how many ways a schedule can meet it:\n");
    println!("{}\n", summary.reach.lines().join("\n"));
    println!("{}", summary.work);
    println!("{} s", began.elapsed().as_secs());
    println!("{} of {all} states reached", all - missed.len());
    missed
        .iter()
        .for_each(|what| println!("not reached: {what}"));
    assert!(failures.is_empty(), "seeds that fail: {failures:?}");
}

/// Runs `MYRIAD_SIM_SEED` and prints every step; does nothing without it.
#[test]
fn replay() {
    if let Some(seed) = seed_to_replay() {
        let outcome = run::run(seed, true);
        eprintln!("seed {seed} passes: trace {:x}", outcome.trace);
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
