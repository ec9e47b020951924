//! From seeds to runs.

use crate::plan::Plan;
use crate::world::World;
use myriad_reactor::sim::Prng;
use myriad_shard::CLOSE_REASONS;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Seeds of a run in CI, all parts together.
const SEEDS: u64 = 1000;
/// Failing seeds after which a run gives up.
const FAILURES_MAX: usize = 10;

/// What a run was, for comparison with another of the same seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) trace: u64,
    fingerprint: u64,
    closes: [u64; CLOSE_REASONS.len()],
}

/// One seed, from beginning to end.
pub(crate) fn run(seed: u64, is_printed: bool) -> Outcome {
    let mut prng = Prng::new(seed).fork();
    let plan = Plan::new(&mut prng);
    let (steps, drain) = (plan.steps, plan.drain);
    let mut world = World::new(plan, prng, is_printed);
    let steps = drain.map_or(steps, |drain| drain.at_step);
    for _ in 0..steps {
        world.step();
    }
    match drain {
        Some(drain) => world.drain(drain.over),
        None => world.leave(),
    }
    Outcome {
        trace: world.trace.hash(),
        fingerprint: world.net.fingerprint(),
        closes: world.closes_by_reason(),
    }
}

/// A number from the environment.
pub(crate) fn variable(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().expect("a number"))
}

/// Runs every `parts`-th seed, and says which fail and how to replay them.
pub(crate) fn run_part(part: u64, parts: u64) {
    let from = variable("MYRIAD_SIM_FROM").unwrap_or(0);
    let count = variable("MYRIAD_SIM_SEEDS").unwrap_or(SEEDS);
    let mut closes = [0; CLOSE_REASONS.len()];
    let mut failures = Vec::new();
    for seed in (from..from + count).filter(|seed| seed % parts == part) {
        match catch_unwind(AssertUnwindSafe(|| run(seed, false))) {
            Ok(outcome) => {
                for (sum, more) in closes.iter_mut().zip(outcome.closes) {
                    *sum += more;
                }
            }
            Err(_) => {
                eprintln!(
                    "seed {seed} fails: MYRIAD_SIM_SEED={seed} cargo test -p myriad-shard --test sim replay -- --nocapture"
                );
                failures.push(seed);
            }
        }
        if failures.len() == FAILURES_MAX {
            break;
        }
    }
    assert!(failures.is_empty(), "seeds that fail: {failures:?}");
    if count >= SEEDS {
        for (reason, count) in CLOSE_REASONS.iter().zip(closes) {
            assert!(
                count > 0,
                "no connection ends for {reason:?}: the schedules are too tame"
            );
        }
    }
}
