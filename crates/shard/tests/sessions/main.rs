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

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use world::World;

/// Seeds of a run in CI.
const SEEDS: u64 = 1000;
/// Of a run at length.
const SEEDS_AT_LENGTH: u64 = 10_000;
/// Failing seeds after which a run gives up.
const FAILURES_MAX: usize = 5;

/// How often something happened.
type Counts = BTreeMap<&'static str, u64>;

fn variable(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().expect("a number"))
}

/// What many seeds came through, and which of them fail.
#[derive(Default)]
struct Summary {
    counts: Counts,
    failures: Vec<u64>,
}

impl Summary {
    fn add(&mut self, seed: u64, outcome: std::thread::Result<Counts>) {
        match outcome {
            Ok(counts) => {
                for (what, times) in counts {
                    *self.counts.entry(what).or_default() += times;
                }
            }
            Err(_) => {
                eprintln!(
                    "seed {seed} fails: MYRIAD_SIM_SEED={seed} cargo test -p myriad-shard --test sessions replay -- --nocapture"
                );
                self.failures.push(seed);
            }
        }
    }
}

/// As many seeds as the environment says, or `count`, on all cores.
fn run(count: u64) {
    let count = variable("MYRIAD_SIM_SEEDS").unwrap_or(count);
    let from = variable("MYRIAD_SIM_FROM").unwrap_or(0);
    let next = AtomicU64::new(from);
    let summary = Mutex::new(Summary::default());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let work = || {
        loop {
            let failed = summary.lock().expect("no panic inside").failures.len();
            let seed = next.fetch_add(1, Relaxed);
            if seed >= from + count || failed >= FAILURES_MAX {
                return;
            }
            let outcome = catch_unwind(AssertUnwindSafe(|| World::run(seed)));
            summary.lock().expect("no panic inside").add(seed, outcome);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let summary = summary.into_inner().expect("no panic inside");
    for (what, times) in &summary.counts {
        eprintln!("{times:>12}  {what}");
    }
    let failures = summary.failures;
    assert!(failures.is_empty(), "seeds that fail: {failures:?}");
    if count >= SEEDS {
        for what in world::MUST_HAPPEN {
            let is_reached = summary.counts.contains_key(what);
            assert!(is_reached, "the schedules miss: {what}");
        }
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
    let seed = variable("MYRIAD_SIM_SEED").unwrap_or(0);
    World::run(seed);
}
