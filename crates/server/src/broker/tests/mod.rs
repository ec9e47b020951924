//! A cluster, simulated: several nodes with the code that ships, servers that lose what they may lose, and time that costs nothing.
//!
//! A seed decides everything. Nodes come, are killed and stand still, connections break, answers are lost, the servers have no leader or come back
//! without the end of the log, consumers lose messages, and strangers write where they should not. At the end, when all works again:
//!
//! * every subscriber has each publication of its channel since it began, or since it was told that something is missing, once and in
//!   the log's order;
//! * every publication that was acknowledged stands where its publisher was told, once (unless the servers lost it);
//! * whoever asked a node that lives was answered, once; nodes agree on the epoch, have read all, and hold nothing.
//!
//! A seed that fails says how to replay it. `MYRIAD_SIM_SEEDS` is the number of seeds and `MYRIAD_SIM_FROM` the first.

mod cloud;
mod crowd;
mod frozen;
mod node;
mod truth;

use cloud::{Cloud, lock};
use crowd::{Crowd, Published, Reached};
use myriad_broker::Subjects;
use myriad_reactor::sim::Prng;
use node::{Node, seed_random};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const STREAM_NAMESPACE: &str = "log";
const CHANNELS: [&str; 3] = ["log:a", "log:b", "log:c d.*>"];
/// Seeds of a run in CI, and at length.
const SEEDS: u64 = 1_000;
const SEEDS_AT_LENGTH: u64 = 10_000;
/// Failing seeds after which a run gives up.
const FAILURES_MAX: usize = 10;
/// How long everything works before the end: longer than a node needs to find that it no longer hears its log.
const QUIET: Duration = Duration::from_secs(60);
/// No fault lasts longer, but for a node that is down.
const FAULT_MAX: Duration = Duration::from_secs(15);
/// Longer than a publisher waits.
const ANSWERED_WITHIN: Duration = Duration::from_secs(6);

/// What a seed's cluster is like, and what may happen to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    nodes: usize,
    subscribers: usize,
    steps: usize,
    /// Time between two steps at most, in ms.
    pause_ms: usize,
    /// A message's way takes less, in us.
    delay_us: usize,
    history_size: u32,
    history_ttl: Duration,
    /// Messages of a subject that the log keeps, and for how long.
    kept_by_log: usize,
    log_ttl: Duration,
    loses_answers: bool,
    breaks_consumers: bool,
    breaks_connections: bool,
    changes_leaders: bool,
    /// A new leader may lack the end of the log.
    cuts_logs: bool,
    kills_nodes: bool,
    stops_nodes: bool,
    has_strangers: bool,
}

impl Plan {
    fn new(prng: &mut Prng) -> Self {
        let history_size = *prng.pick(&[1, 3, 5, 20]);
        let history_ttl = Duration::from_secs(*prng.pick(&[5, 30, 300]));
        let cuts_logs = prng.one_in(3);
        // As many as a stream of ours has. With fewer, what came in the place of what was lost may have gone before a node looks.
        let spare = if cuts_logs {
            256
        } else {
            *prng.pick(&[0, 2, 256])
        };
        Self {
            nodes: prng.between(1, 4),
            subscribers: prng.between(1, 9),
            steps: prng.between(50, 250),
            pause_ms: *prng.pick(&[10, 100, 500]),
            delay_us: *prng.pick(&[100, 5_000, 100_000]),
            history_size,
            history_ttl,
            kept_by_log: 2 * history_size as usize + spare,
            // Longer than beats are apart: a log without a beat has no epoch.
            log_ttl: history_ttl + history_ttl / 2 + Duration::from_secs(40),
            loses_answers: prng.one_in(2),
            breaks_consumers: prng.one_in(2),
            breaks_connections: prng.one_in(2),
            changes_leaders: prng.one_in(2),
            cuts_logs,
            // A node that is killed may be the only one that has read what the log lost.
            kills_nodes: !cuts_logs && prng.one_in(2),
            stops_nodes: prng.one_in(2),
            has_strangers: prng.one_in(4),
        }
    }
}

/// A cluster, its servers and its crowd.
struct World {
    plan: Plan,
    prng: Prng,
    began: Instant,
    subjects: Subjects,
    cloud: Arc<Cloud>,
    crowd: Arc<Mutex<Crowd>>,
    /// None while it is down.
    nodes: Vec<Option<Node>>,
    nodes_ever: u64,
    numbers: u64,
    /// When there is a leader again, and what it lacks.
    election: Option<(Instant, u64)>,
    /// The servers have lost the end of the log.
    has_cut: bool,
    /// When a node's connection is back.
    cuts: Vec<Option<Instant>>,
    /// When a node that was stopped continues.
    stops: Vec<Option<Instant>>,
}

impl World {
    fn new(plan: Plan, mut prng: Prng, is_printed: bool) -> Self {
        seed_random(prng.fork());
        let subjects = Subjects::new("my").expect("a prefix");
        let cloud = Cloud::new(plan, prng.fork(), subjects.clone(), is_printed);
        Self {
            plan,
            prng,
            began: Instant::now(),
            subjects,
            cloud,
            crowd: Arc::new(Mutex::new(Crowd::new(plan.subscribers))),
            nodes: (0..plan.nodes).map(|_| None).collect(),
            nodes_ever: 0,
            numbers: 0,
            election: None,
            has_cut: false,
            cuts: vec![None; plan.nodes],
            stops: vec![None; plan.nodes],
        }
    }

    async fn run(mut self) -> Outcome {
        for slot in 0..self.plan.nodes {
            self.start(slot);
        }
        for _ in 0..self.plan.steps {
            let pause = self.prng.below(self.plan.pause_ms);
            sleep(Duration::from_millis(pause as u64)).await;
            self.mend(false);
            self.step();
            self.subscribe(2);
        }
        self.finish().await
    }

    fn start(&mut self, slot: usize) {
        self.nodes_ever += 1;
        let (cloud, crowd) = (&self.cloud, &self.crowd);
        let number = self.nodes_ever;
        let node = Node::start(number, &self.plan, cloud, crowd, &self.subjects, self.began);
        self.nodes[slot] = Some(node);
        self.cuts[slot] = None;
        self.stops[slot] = None;
    }

    fn step(&mut self) {
        let plan = self.plan;
        let channel = self.prng.below(CHANNELS.len());
        let slot = self.prng.below(plan.nodes);
        match self.prng.below(40) {
            0..20 => self.publish(slot, channel),
            20..23 => {
                // A channel says much at once.
                for _ in 0..self.prng.between(2, 3 * plan.history_size as usize) {
                    self.publish(slot, channel);
                }
            }
            23..26 => self.move_subscriber(),
            26..30 => {
                if let Some(node) = &self.nodes[slot] {
                    node.read_history(channel);
                }
            }
            30 => self.remove(slot, channel),
            31 if plan.has_strangers => self.cloud.write_rubbish(),
            32 if plan.breaks_connections => self.cut(slot),
            33 if plan.changes_leaders => self.lose_leader(false),
            34 if plan.cuts_logs => self.lose_leader(true),
            35 if plan.kills_nodes => self.kill(slot),
            37 if plan.stops_nodes => self.stop(slot),
            36 if plan.changes_leaders && plan.breaks_connections => {
                // All servers go.
                self.lose_leader(plan.cuts_logs);
                (0..plan.nodes).for_each(|slot| self.cut(slot));
            }
            _ => {}
        }
    }

    fn publish(&mut self, slot: usize, channel: usize) {
        let Some(node) = &self.nodes[slot] else {
            return;
        };
        self.numbers += 1;
        let number = self.numbers;
        // Few keys, so that some are used twice.
        let key = self.prng.one_in(8).then(|| self.prng.below(20) as u64);
        let key = key.map(|key| key * CHANNELS.len() as u64 + channel as u64);
        let version = if key.is_none() && self.prng.one_in(10) {
            self.prng.between(1, 50) as u64
        } else {
            0
        };
        let published = Published {
            node: node.number,
            channel,
            key,
            has_version: version > 0,
            answer: None,
        };
        lock(&self.crowd).publications.insert(number, published);
        node.publish(channel, number, key, version);
    }

    fn remove(&mut self, slot: usize, channel: usize) {
        if let Some(node) = &self.nodes[slot] {
            self.numbers += 1;
            let removal = (node.number, None);
            lock(&self.crowd).removals.insert(self.numbers, removal);
            node.remove(channel, self.numbers);
        }
    }

    /// A subscriber leaves its node, and will come to another one.
    fn move_subscriber(&mut self) {
        let index = self.prng.below(self.plan.subscribers);
        let (number, channel, is_away) = {
            let crowd = lock(&self.crowd);
            let subscriber = &crowd.subscribers[index];
            (subscriber.node, subscriber.channel, subscriber.is_away())
        };
        let mut nodes = self.nodes.iter().flatten();
        let node = nodes.find(|node| Some(node.number) == number);
        if let Some(node) = node.filter(|_| !is_away) {
            node.leave(index, channel);
        }
        lock(&self.crowd).subscribers[index].leave();
    }

    /// Of the subscribers that are away, one in so many comes to a node.
    fn subscribe(&mut self, one_in: usize) {
        for index in 0..self.plan.subscribers {
            let slot = self.prng.below(self.plan.nodes);
            let Some(node) = &self.nodes[slot] else {
                continue;
            };
            let begun = {
                let mut crowd = lock(&self.crowd);
                let subscriber = &mut crowd.subscribers[index];
                let comes = subscriber.is_away() && self.prng.one_in(one_in);
                comes.then(|| {
                    subscriber.begin(node.number);
                    (subscriber.channel, subscriber.serial)
                })
            };
            if let Some((channel, serial)) = begun {
                node.join(index, channel, serial);
            }
        }
    }

    fn cut(&mut self, slot: usize) {
        if let Some(node) = &self.nodes[slot] {
            node.client.cut();
            let down = Duration::from_millis(self.prng.below(8_000) as u64);
            self.cuts[slot] = Some(Instant::now() + down);
            lock(&self.crowd).reached.cut_connections += 1;
        }
    }

    /// Stops a node, as SIGSTOP does.
    fn stop(&mut self, slot: usize) {
        if let Some(node) = &self.nodes[slot] {
            let number = node.number;
            self.cloud.say(|| format!("node {number} stands still"));
            node.freezer.freeze();
            let stopped = Duration::from_millis(self.prng.below(15_000) as u64);
            self.stops[slot] = Some(Instant::now() + stopped);
            lock(&self.crowd).reached.stopped_nodes += 1;
        }
    }

    fn lose_leader(&mut self, cuts_log: bool) {
        if self.election.is_some() {
            return;
        }
        self.cloud.lose_leader();
        // Servers need a while to find that a leader has gone; one that steps down is followed at once.
        // What nodes do about a loss may be lost itself by the next one, so there is one.
        let cuts_log = cuts_log && !self.has_cut;
        self.has_cut |= cuts_log;
        let (lost, first_ms) = if cuts_log {
            // Perhaps nothing is left.
            let all = self.prng.one_in(8);
            let lost = if all {
                u64::MAX
            } else {
                self.prng.between(0, 6) as u64
            };
            (lost, 1_500)
        } else {
            (0, 10)
        };
        let down = Duration::from_millis(self.prng.between(first_ms, 9_000) as u64);
        self.election = Some((Instant::now() + down, lost));
        let reached = &mut lock(&self.crowd).reached;
        reached.elections += 1;
        reached.cut_logs += u64::from(lost > 0);
    }

    fn kill(&mut self, slot: usize) {
        let Some(node) = self.nodes[slot].take() else {
            return self.start(slot);
        };
        let mut crowd = lock(&self.crowd);
        crowd.reached.killed_nodes += 1;
        for subscriber in &mut crowd.subscribers {
            if subscriber.node == Some(node.number) {
                subscriber.leave();
            }
        }
        drop(crowd);
        node.kill();
    }

    /// What is to come back by now comes back, or all of it.
    fn mend(&mut self, all: bool) {
        let now = Instant::now();
        let is_due = |at: Instant| all || at <= now;
        if let Some((_, lost)) = self.election.take_if(|(at, _)| is_due(*at)) {
            self.cloud.elect(lost);
        }
        for slot in 0..self.plan.nodes {
            if self.cuts[slot].take_if(|at| is_due(*at)).is_some()
                && let Some(node) = &self.nodes[slot]
            {
                node.client.reconnect();
            }
            if self.stops[slot].take_if(|at| is_due(*at)).is_some()
                && let Some(node) = &self.nodes[slot]
            {
                let number = node.number;
                self.cloud.say(|| format!("node {number} goes on"));
                node.freezer.thaw();
            }
            if all && self.nodes[slot].is_none() {
                self.start(slot);
            }
        }
    }

    /// Everything works again, and all must be well after a while.
    async fn finish(mut self) -> Outcome {
        self.cloud.calm();
        // An election, as all else, takes as long as it takes.
        self.pass(FAULT_MAX).await;
        self.mend(true);
        self.pass(QUIET).await;
        let first = self.numbers + 1;
        for slot in 0..self.plan.nodes {
            for channel in 0..CHANNELS.len() {
                self.publish(slot, channel);
            }
        }
        self.pass(ANSWERED_WITHIN).await;
        self.check(first)
    }

    async fn pass(&mut self, duration: Duration) {
        let end = Instant::now() + duration;
        while Instant::now() < end {
            sleep(Duration::from_millis(250)).await;
            self.mend(false);
            self.subscribe(1);
        }
    }

    fn check(&self, first_of_last: u64) -> Outcome {
        let nodes: Vec<_> = self.nodes.iter().flatten().collect();
        let epochs: Vec<_> = nodes.iter().map(|node| node.check()).collect();
        let epoch = epochs[0];
        assert!(epochs.iter().all(|one| *one == epoch), "{epochs:?}");
        let mut crowd = lock(&self.crowd);
        self.cloud.with_truth(|truth| crowd.check(truth, epoch));
        let lives = |number: u64| nodes.iter().any(|node| node.number == number);
        for (number, published) in &crowd.publications {
            let is_answered = published.answer.is_some() || !lives(published.node);
            assert!(is_answered, "{number} is not answered: {published:?}");
            if *number >= first_of_last {
                let is_stored = matches!(published.answer, Some(Ok(_)));
                assert!(is_stored, "{number} is refused: {published:?}");
            }
        }
        for (number, (node, answer)) in &crowd.removals {
            assert!(answer.is_some() || !lives(*node), "removal {number}");
        }
        crowd.reached.seeds = 1;
        Outcome {
            reached: crowd.reached,
            trace: crowd.trace,
        }
    }
}

/// What a run was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Outcome {
    reached: Reached,
    trace: u64,
}

fn run(seed: u64, is_printed: bool) -> Outcome {
    let mut prng = Prng::new(seed).fork();
    let plan = Plan::new(&mut prng);
    if is_printed {
        println!("{plan:#?}");
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async { World::new(plan, prng, is_printed).run().await })
}

fn variable(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().expect("a number"))
}

/// Runs seeds on all cores. Says what they came through.
fn run_all(count: u64) -> Reached {
    let from = variable("MYRIAD_SIM_FROM").unwrap_or(0);
    let count = variable("MYRIAD_SIM_SEEDS").unwrap_or(count);
    let next = AtomicU64::new(from);
    let summary = Mutex::new((Reached::default(), Vec::new()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= from + count || lock(&summary).1.len() >= FAILURES_MAX {
                return;
            }
            let outcome = catch_unwind(AssertUnwindSafe(|| run(seed, false)));
            let mut summary = lock(&summary);
            match outcome {
                Ok(outcome) => summary.0.add(&outcome.reached),
                Err(_) => {
                    eprintln!(
                        "seed {seed} fails: MYRIAD_SIM_SEED={seed} cargo test -p myriad-server --lib broker::tests::replay -- --nocapture"
                    );
                    summary.1.push(seed);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let (reached, failures) = summary.into_inner().expect("no worker panics");
    assert!(failures.is_empty(), "seeds that fail: {failures:?}");
    println!("{reached:#?}");
    reached
}

#[test]
fn seeds() {
    let reached = run_all(SEEDS);
    if reached.seeds >= SEEDS {
        reached.check();
    }
}

/// `make sim`.
#[test]
#[ignore = "minutes: make sim"]
fn at_length() {
    run_all(SEEDS_AT_LENGTH).check();
}

/// Runs `MYRIAD_SIM_SEED` and prints what happens; does nothing without it.
#[test]
fn replay() {
    if let Some(seed) = variable("MYRIAD_SIM_SEED") {
        println!("seed {seed} passes: {:#?}", run(seed, true));
    }
}

#[test]
fn equal_seeds_run_equally() {
    for seed in 0..12 {
        assert_eq!(run(seed, false), run(seed, false), "seed {seed}");
    }
}
