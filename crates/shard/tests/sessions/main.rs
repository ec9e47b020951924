//! Sessions, simulated: clients of the Centrifuge protocol on several shards, with the code that ships.
//!
//! Clients subscribe, publish, lose their connections at any byte and recover, while others and the application publish. What each
//! client must see is in `client`; what all of them must agree on is in `ledger`.
//!
//! A seed that fails says how to replay it:
//!
//! ```text
//! MYRIAD_SIM_SEED=123 cargo test -p myriad-shard --test sessions replay -- --nocapture
//! ```
//!
//! `MYRIAD_SIM_SEEDS` is the number of seeds (1000 unless told) and `MYRIAD_SIM_FROM` the first (0). `make sim` runs 10,000.

mod client;
mod ledger;
#[path = "../shared/notices.rs"]
mod notices;
mod plan;
mod socket;
mod subscription;
mod world;

use myriad_reactor::sim::{Campaign, Outcomes, seed_to_replay};
use std::collections::BTreeMap;
use world::World;

/// Seeds of a run in CI.
const SEEDS: u64 = 1000;
/// Of a run at length.
const SEEDS_AT_LENGTH: u64 = 10_000;
/// Failing seeds after which a run gives up.
const FAILURES_MAX: usize = 5;
/// What `cargo test` is told to replay a seed.
const REPLAY: &str = "-p myriad-shard --test sessions replay";

/// How often something happened.
type Counts = BTreeMap<&'static str, u64>;

/// As many seeds as the environment says, or `count`, on all cores.
fn run(count: u64) {
    let campaign = Campaign {
        failures_max: FAILURES_MAX,
        ..Campaign::from_environment(count, REPLAY)
    };
    let Outcomes {
        summary, failures, ..
    } = campaign.run(Counts::new(), World::run, add, None);
    for (what, times) in &summary {
        eprintln!("{times:>12}  {what}");
    }
    assert!(failures.is_empty(), "seeds that fail: {failures:?}");
    if campaign.count >= SEEDS {
        for what in world::MUST_HAPPEN {
            let is_reached = summary.contains_key(what);
            assert!(is_reached, "the schedules miss: {what}");
        }
    }
}

fn add(summary: &mut Counts, counts: Counts) {
    for (what, times) in counts {
        *summary.entry(what).or_default() += times;
    }
}

#[test]
fn seeds() {
    run(SEEDS);
}

#[test]
#[ignore = "minutes: make sim"]
fn at_length() {
    run(SEEDS_AT_LENGTH);
}

#[test]
fn replay() {
    let seed = seed_to_replay().unwrap_or(0);
    World::run(seed);
}
