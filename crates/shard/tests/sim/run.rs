//! From seeds to runs.

use crate::plan::Plan;
use crate::reach::Reach;
use crate::world::{Work, World};
use myriad_reactor::sim::Prng;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Failing seeds after which a run gives up.
const FAILURES_MAX: usize = 10;
/// Time between two lines about a long run's progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

/// What a run was, for comparison with another of the same seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) trace: u64,
    fingerprint: u64,
    pub(crate) work: Work,
    pub(crate) reach: Reach,
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
    let (mut trace, mut fingerprint) = (world.trace.hash(), world.net.fingerprint());
    let sessions = crate::sessions::run(&mut Prng::new(!seed).fork(), is_printed);
    let access = crate::access::run(&mut Prng::new(seed.rotate_left(32) ^ 1).fork(), is_printed);
    let readers = crate::readers::run(&mut Prng::new(seed.rotate_left(16) ^ 2).fork(), is_printed);
    for other in [sessions, access, readers] {
        world.work.add(&other.work);
        world.reach.merge(other.reach);
        trace = trace.rotate_left(1) ^ other.trace.hash();
        fingerprint = fingerprint.rotate_left(1) ^ other.net.fingerprint();
    }
    world.work.seeds = 1;
    Outcome {
        trace,
        fingerprint,
        work: world.work,
        reach: world.reach,
    }
}

/// A number from the environment.
pub(crate) fn variable(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().expect("a number"))
}

/// What many runs were together.
pub(crate) struct Summary {
    pub(crate) work: Work,
    pub(crate) reach: Reach,
    pub(crate) failures: Vec<u64>,
}

/// Seeds on their way to all threads of a run.
pub(crate) struct Campaign {
    from: u64,
    count: u64,
    next: AtomicU64,
    deadline: Option<Instant>,
    is_over: AtomicBool,
    summary: Mutex<Summary>,
}

impl Campaign {
    /// `count` seeds from `from` on, or as many as come before `deadline`.
    pub(crate) fn new(from: u64, count: u64, deadline: Option<Instant>) -> Self {
        Self {
            from,
            count,
            next: AtomicU64::new(0),
            deadline,
            is_over: AtomicBool::new(false),
            summary: Mutex::new(Summary {
                work: Work::default(),
                reach: Reach::new(),
                failures: Vec::new(),
            }),
        }
    }

    /// Runs them on all cores, and says which fail and how to replay them.
    pub(crate) fn run(self, shows_progress: bool) -> Summary {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(|| self.work())).collect();
            let began = Instant::now();
            let mut said = began;
            while shows_progress && workers.iter().any(|worker| !worker.is_finished()) {
                std::thread::park_timeout(Duration::from_millis(200));
                if said.elapsed() >= PROGRESS_INTERVAL {
                    said = Instant::now();
                    self.say_progress(began.elapsed());
                }
            }
        });
        self.summary.into_inner().expect("no worker panics")
    }

    fn work(&self) {
        while !self.is_over.load(Relaxed) && self.deadline.is_none_or(|at| Instant::now() < at) {
            let at = self.next.fetch_add(1, Relaxed);
            if at >= self.count {
                return;
            }
            let seed = self.from + at;
            let outcome = catch_unwind(AssertUnwindSafe(|| run(seed, false)));
            let mut summary = self.summary.lock().expect("no worker panics");
            match outcome {
                Ok(outcome) => {
                    summary.work.add(&outcome.work);
                    summary.reach.merge(outcome.reach);
                }
                Err(_) => {
                    eprintln!(
                        "seed {seed} fails: MYRIAD_SIM_SEED={seed} cargo test -p myriad-shard --test sim replay -- --nocapture"
                    );
                    summary.failures.push(seed);
                }
            }
            let is_over = summary.failures.len() >= FAILURES_MAX;
            self.is_over.fetch_or(is_over, Relaxed);
        }
    }

    fn say_progress(&self, elapsed: Duration) {
        let summary = self.summary.lock().expect("no worker panics");
        let (all, missed) = summary.reach.missed();
        let (seeds, count) = (summary.work.seeds, self.count);
        let seconds = elapsed.as_secs();
        eprintln!(
            "{seconds:>5} s  {seeds} of {count} seeds, {} failed, {} of {all} states reached",
            summary.failures.len(),
            all - missed.len()
        );
        std::io::stderr().flush().expect("a standard error");
    }
}
