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
//! `MYRIAD_SIM_SEEDS` is the number of seeds (1000 unless told).

mod client;
mod ledger;
mod plan;
mod socket;
mod world;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use world::World;

/// Seeds of a run in CI.
const SEEDS: u64 = 1000;
/// Failing seeds after which a run gives up.
const FAILURES_MAX: usize = 5;

/// How often something happened.
type Counts = BTreeMap<&'static str, u64>;

fn variable(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().expect("a number"))
}

#[test]
fn seeds() {
    let count = variable("MYRIAD_SIM_SEEDS").unwrap_or(SEEDS);
    let next = AtomicU64::new(0);
    let failures = Mutex::new(Vec::new());
    let counts = Mutex::new(Counts::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Relaxed);
                    let failed = failures.lock().expect("no panic inside").len();
                    if seed >= count || failed >= FAILURES_MAX {
                        return;
                    }
                    match catch_unwind(AssertUnwindSafe(|| World::run(seed))) {
                        Ok(run) => {
                            let mut counts = counts.lock().expect("no panic inside");
                            for (what, times) in run {
                                *counts.entry(what).or_default() += times;
                            }
                        }
                        Err(_) => {
                            eprintln!("seed {seed} fails: MYRIAD_SIM_SEED={seed} cargo test -p myriad-shard --test sessions replay -- --nocapture");
                            failures.lock().expect("no panic inside").push(seed);
                        }
                    }
                }
            });
        }
    });
    let counts = counts.into_inner().expect("no panic inside");
    for (what, times) in &counts {
        eprintln!("{times:>12}  {what}");
    }
    let failures = failures.into_inner().expect("no panic inside");
    assert!(failures.is_empty(), "seeds that fail: {failures:?}");
    if count >= SEEDS {
        for what in world::MUST_HAPPEN {
            assert!(counts.contains_key(what), "the schedules miss: {what}");
        }
    }
}

#[test]
fn replay() {
    let seed = variable("MYRIAD_SIM_SEED").unwrap_or(0);
    World::run(seed);
}
