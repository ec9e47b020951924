//! From seeds to runs.

use crate::channels::Profile;
use crate::plan::Plan;
use crate::reach::Reach;
use crate::world::{Work, World};
use myriad_reactor::sim::{Campaign, Outcomes, Prng};

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
    let mut prng = Prng::new(seed.rotate_left(16) ^ 2).fork();
    let together = crate::channels::run(Profile::Together, &mut prng, is_printed);
    let apart = if seed.is_multiple_of(2) {
        Profile::Readers
    } else {
        Profile::Sessions
    };
    let apart = crate::channels::run(apart, &mut prng, is_printed);
    for other in [sessions, access, together, apart] {
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

/// What many runs were together.
pub(crate) struct Summary {
    pub(crate) work: Work,
    pub(crate) reach: Reach,
}

impl Summary {
    fn add(&mut self, outcome: Outcome) {
        self.work.add(&outcome.work);
        self.reach.merge(outcome.reach);
    }

    fn progress(&self) -> String {
        let (all, missed) = self.reach.missed();
        format!("{} of {all} states reached", all - missed.len())
    }
}

/// Runs the seeds of a campaign.
pub(crate) fn run_all(campaign: &Campaign, shows_progress: bool) -> Outcomes<Summary> {
    let summary = Summary {
        work: Work::default(),
        reach: Reach::new(),
    };
    let progress: fn(&Summary) -> String = Summary::progress;
    let progress = shows_progress.then_some(progress);
    campaign.run(summary, |seed| run(seed, false), Summary::add, progress)
}
