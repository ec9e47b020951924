//! Many seeds on all cores, and which of them fail.
//!
//! A simulation runs with each seed of a [`Campaign`], and what each came through is added up. These variables of the environment choose
//! seeds:
//!
//! | variable | what |
//! | --- | --- |
//! | `MYRIAD_SIM_SEEDS` | how many |
//! | `MYRIAD_SIM_FROM` | the first of them; 0 unless told |
//! | `MYRIAD_SIM_SEED` | the one to replay |

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// Failing seeds after which a campaign gives up, unless it says otherwise.
const FAILURES_MAX: usize = 10;
/// Time between two lines about progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);
/// How often it is looked whether such a line is due.
const PROGRESS_PAUSE: Duration = Duration::from_millis(200);

/// Which seeds are simulated.
#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    /// The first seed; the others follow.
    pub from: u64,
    /// How many there are.
    pub count: u64,
    /// No seed begins later, even if some are left.
    pub deadline: Option<Instant>,
    /// Failing seeds after which the rest is given up.
    pub failures_max: usize,
    /// What `cargo test` is told to replay a seed: a package, a target and the name of a test.
    pub replay: &'static str,
}

/// What came of a campaign.
#[derive(Debug)]
pub struct Outcomes<S> {
    /// What the seeds that passed came through.
    pub summary: S,
    /// How many have passed.
    pub passed: u64,
    /// The seeds that failed, in the order in which they did.
    pub failures: Vec<u64>,
}

impl Campaign {
    /// The seeds that the environment says; `count` of them from 0 on unless told.
    ///
    /// # Panics
    /// A variable has another value than a number.
    #[must_use]
    pub fn from_environment(count: u64, replay: &'static str) -> Self {
        Self {
            from: variable("MYRIAD_SIM_FROM").unwrap_or(0),
            count: variable("MYRIAD_SIM_SEEDS").unwrap_or(count),
            deadline: None,
            failures_max: FAILURES_MAX,
            replay,
        }
    }

    /// Simulates all seeds, and adds what each gives to the summary. A seed fails if it panics: standard error says how to replay it.
    ///
    /// With `progress`, standard error also says every 10 s how many seeds have run, and what that makes of the summary.
    ///
    /// # Panics
    /// `add` does.
    pub fn run<S: Send, T>(
        &self,
        summary: S,
        simulate: impl Fn(u64) -> T + Sync,
        add: impl Fn(&mut S, T) + Sync,
        progress: Option<fn(&S) -> String>,
    ) -> Outcomes<S> {
        let next = AtomicU64::new(0);
        let outcomes = Mutex::new(Outcomes {
            summary,
            passed: 0,
            failures: Vec::new(),
        });
        let work = || self.work(&next, &outcomes, &simulate, &add);
        thread::scope(|scope| {
            let threads = thread::available_parallelism().map_or(1, usize::from);
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            if let Some(progress) = progress {
                self.say_progress(&workers, &outcomes, progress);
            }
        });
        outcomes.into_inner().expect("no worker panics")
    }

    fn work<S, T>(
        &self,
        next: &AtomicU64,
        outcomes: &Mutex<Outcomes<S>>,
        simulate: &impl Fn(u64) -> T,
        add: &impl Fn(&mut S, T),
    ) {
        while let Some(seed) = self.draw(next, outcomes) {
            let outcome = catch_unwind(AssertUnwindSafe(|| simulate(seed)));
            let mut outcomes = lock(outcomes);
            match outcome {
                Ok(outcome) => {
                    outcomes.passed += 1;
                    add(&mut outcomes.summary, outcome);
                }
                Err(_) => {
                    let replay = self.replay;
                    eprintln!(
                        "seed {seed} fails: MYRIAD_SIM_SEED={seed} cargo test {replay} -- --nocapture"
                    );
                    outcomes.failures.push(seed);
                }
            }
        }
    }

    /// The next seed; none when it is over.
    fn draw<S>(&self, next: &AtomicU64, outcomes: &Mutex<Outcomes<S>>) -> Option<u64> {
        let is_late = self.deadline.is_some_and(|at| Instant::now() >= at);
        if is_late || lock(outcomes).failures.len() >= self.failures_max {
            return None;
        }
        let at = next.fetch_add(1, Relaxed);
        (at < self.count).then(|| self.from + at)
    }

    /// Says how far the workers have come, until they have ended.
    fn say_progress<S>(
        &self,
        workers: &[ScopedJoinHandle<'_, ()>],
        outcomes: &Mutex<Outcomes<S>>,
        progress: fn(&S) -> String,
    ) {
        let began = Instant::now();
        let mut said = began;
        while workers.iter().any(|worker| !worker.is_finished()) {
            thread::park_timeout(PROGRESS_PAUSE);
            if said.elapsed() < PROGRESS_INTERVAL {
                continue;
            }
            said = Instant::now();
            let outcomes = lock(outcomes);
            let (seconds, count) = (began.elapsed().as_secs(), self.count);
            eprintln!(
                "{seconds:>5} s  {} of {count} seeds, {} failed, {}",
                outcomes.passed,
                outcomes.failures.len(),
                progress(&outcomes.summary)
            );
        }
    }
}

fn lock<S>(outcomes: &Mutex<Outcomes<S>>) -> MutexGuard<'_, Outcomes<S>> {
    outcomes.lock().expect("no worker panics")
}

/// The seed that `MYRIAD_SIM_SEED` asks to replay.
///
/// # Panics
/// The variable has another value than a number.
#[must_use]
pub fn seed_to_replay() -> Option<u64> {
    variable("MYRIAD_SIM_SEED")
}

/// A number from the environment; none if the variable is not set.
///
/// # Panics
/// The variable has another value than a number.
#[must_use]
pub fn variable(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().expect("a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn campaign(count: u64) -> Campaign {
        Campaign {
            from: 5,
            count,
            deadline: None,
            failures_max: 2,
            replay: "replay",
        }
    }

    #[test]
    fn each_seed_runs_once() {
        let add = |seeds: &mut Vec<u64>, seed| seeds.push(seed);
        let outcomes = campaign(20).run(Vec::new(), |seed| seed, add, None);
        let mut seeds = outcomes.summary;
        seeds.sort_unstable();
        assert_eq!(seeds, (5..25).collect::<Vec<_>>());
        assert_eq!((outcomes.passed, outcomes.failures), (20, Vec::new()));
    }

    #[test]
    fn seeds_that_panic_fail_and_the_rest_is_given_up() {
        let add = |passed: &mut u64, ()| *passed += 1;
        let even_passes = |seed: u64| assert!(seed.is_multiple_of(2));
        let outcomes = campaign(100_000).run(0, even_passes, add, None);
        assert!(outcomes.failures.len() >= 2);
        assert!(outcomes.failures.iter().all(|seed| seed % 2 == 1));
        assert!(outcomes.passed < 50_000, "it goes on");
        assert_eq!(outcomes.summary, outcomes.passed);
    }

    #[test]
    fn no_seed_begins_after_the_deadline() {
        let add = |passed: &mut u64, ()| *passed += 1;
        let campaign = Campaign {
            deadline: Some(Instant::now()),
            ..campaign(20)
        };
        assert_eq!(campaign.run(0, |_| (), add, None).passed, 0);
    }
}
