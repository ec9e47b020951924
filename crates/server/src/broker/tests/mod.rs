//! A cluster, simulated: several nodes with the code that ships, servers that lose what they may lose, and time that costs nothing.
//!
//! A seed decides everything. Nodes come, are killed and stand still, connections break, answers are lost, the servers have no leader or come back
//! without the end of the log, consumers lose messages, and strangers write where they should not. Some nodes read the whole log, some
//! hear the channels that somebody wants there, some choose, and a cluster may have all of these. What is republished gets lost, repeated
//! or late, and servers that are asked are behind. At the end, when all works again:
//!
//! * every subscriber has each publication of its channel since it began, or since it was told that something is missing, once and in
//!   the log's order. That is so before anything else is published, too: nothing has to follow a lost message for a node to find it;
//! * a history has what was published last, also on a node where nobody wanted the channel;
//! * every publication that was acknowledged stands where its publisher was told, once (unless the servers lost it);
//! * nobody is told, of a log that has lost nothing, that its place is lost because a node is behind;
//! * whoever asked a node that lives was answered, once; nodes agree on the epoch, have read all, and hold nothing.
//!
//! A seed that fails says how to replay it. `MYRIAD_SIM_SEEDS` is the number of seeds and `MYRIAD_SIM_FROM` the first.
//! With `MYRIAD_SIM_BY_CHANNEL=0` all nodes read the whole log, with 1 each hears by channel or chooses, and with 2 all choose.

mod acknowledged;
mod beats;
mod cloud;
mod crowd;
mod ending;
mod frozen;
mod node;
mod pair;
mod paused;
mod plan;
mod reached;
mod truth;

use crate::broker::link::SPARE_MESSAGES;
use cloud::{Cloud, lock};
use crowd::{Crowd, Published};
use myriad_broker::Subjects;
use myriad_reactor::sim::{Campaign, Outcomes, Prng, seed_to_replay, variable};
use node::{Node, seed_random};
use plan::Plan;
use reached::Reached;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const STREAM_NAMESPACE: &str = "log";
const CHANNELS: [&str; 3] = ["log:a", "log:b", "log:c d.*>"];
/// Seeds of a run in CI, and at length.
const SEEDS: u64 = 1_000;
const SEEDS_AT_LENGTH: u64 = 10_000;
/// What `cargo test` is told to replay a seed.
const REPLAY: &str = "-p myriad-server --lib broker::tests::replay";
/// How long everything works before the end, while nothing is published: longer than a node needs to find that it no longer hears its log,
/// or that it has missed the last message of a channel.
const QUIET: Duration = Duration::from_secs(60);
/// No fault lasts longer, but for a node that is down.
const FAULT_MAX: Duration = Duration::from_secs(15);
/// Longer than a publisher waits.
const ANSWERED_WITHIN: Duration = Duration::from_secs(6);
/// Once in so many steps, the subscribers of a channel go for a while.
const LULL_ONE_IN: usize = 60;
/// How long they are away, and how long little happens: a home wants a channel for a minute that nobody uses.
const AWAY_MAX_S: usize = 150;
const LULL_MAX_S: usize = 100;
const LULL_PAUSE: Duration = Duration::from_millis(250);
/// A message's way is shorter where a channel says more than the log keeps: a publisher does not wait for long.
const FLOOD_DELAY_MAX_US: usize = 5_000;

/// A cluster, its servers and its crowd.
struct World {
    plan: Plan,
    prng: Prng,
    /// Decides what is done only where nodes hear by channel.
    hearing: Prng,
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
    fn new(plan: Plan, mut prng: Prng, mut hearing: Prng, is_printed: bool) -> Self {
        seed_random(prng.fork());
        let subjects = Subjects::new("my").expect("a prefix");
        let (random, of_hearing) = (prng.fork(), hearing.fork());
        let cloud = Cloud::new(plan, random, of_hearing, subjects.clone(), is_printed);
        Self {
            plan,
            prng,
            hearing,
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
            if self.plan.has_hearers() && self.hearing.one_in(LULL_ONE_IN) {
                self.lull().await;
            }
        }
        self.finish().await
    }

    /// The subscribers of a channel go for a while, and little happens: nodes want the channel no more, and then again.
    async fn lull(&mut self) {
        let channel = self.hearing.below(CHANNELS.len());
        let is_quick = self.plan.delay_us <= FLOOD_DELAY_MAX_US;
        if is_quick && self.hearing.one_in(3) {
            self.flood(channel);
        }
        let away = Duration::from_secs(self.hearing.below(AWAY_MAX_S) as u64);
        for index in 0..self.plan.subscribers {
            if lock(&self.crowd).subscribers[index].channel == channel {
                self.take_away(index);
                lock(&self.crowd).subscribers[index].stay_away(Instant::now() + away);
            }
        }
        let end = Instant::now() + Duration::from_secs(self.hearing.below(LULL_MAX_S) as u64);
        while Instant::now() < end {
            sleep(LULL_PAUSE).await;
            self.mend(false);
            if self.hearing.one_in(16) {
                self.step();
            }
            self.subscribe(2);
        }
    }

    /// A channel says more than the log keeps of it.
    fn flood(&mut self, channel: usize) {
        for _ in 0..self.plan.kept_by_log + SPARE_MESSAGES / 4 {
            let slot = self.hearing.below(self.plan.nodes);
            self.publish(slot, channel);
        }
    }

    fn start(&mut self, slot: usize) {
        self.nodes_ever += 1;
        let (cloud, crowd) = (&self.cloud, &self.crowd);
        let number = self.nodes_ever;
        let interest = self.plan.interest[slot];
        if interest.keeps_only_wanted() {
            lock(crowd).note_hearer(number);
        }
        let node = Node::start(
            number,
            interest,
            &self.plan,
            cloud,
            crowd,
            &self.subjects,
            self.began,
        );
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
            // A removal that takes what stands in the place of a lost message hides the loss: nobody could tell any more.
            30 if !plan.cuts_logs => self.remove(slot, channel),
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
        self.take_away(index);
    }

    /// A subscriber leaves its node.
    fn take_away(&mut self, index: usize) {
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
                let is_free = subscriber.is_away() && !subscriber.stays_away();
                let comes = is_free && self.prng.one_in(one_in);
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
        lock(&self.crowd).call_back();
        // An election, as all else, takes as long as it takes.
        self.pass(FAULT_MAX).await;
        self.mend(true);
        self.pass(QUIET).await;
        self.cloud
            .with_truth(|truth| lock(&self.crowd).check_subscribers(truth));
        let (first, behind) = (self.numbers + 1, self.cloud.last());
        for slot in 0..self.plan.nodes {
            for channel in 0..CHANNELS.len() {
                self.publish(slot, channel);
            }
        }
        self.pass(ANSWERED_WITHIN).await;
        self.read_histories(behind).await;
        self.check(first)
    }

    /// Every node is asked for every history, whether somebody wants the channel there or not. What was published last stands behind that
    /// place of the log.
    async fn read_histories(&mut self, behind: u64) {
        let plan = self.plan;
        // Young enough, and no node has missed it because the log dropped it unread.
        let is_kept = plan.history_ttl > 3 * ANSWERED_WITHIN
            && plan.kept_by_log >= 2 * plan.history_size as usize + SPARE_MESSAGES;
        let before = {
            let mut crowd = lock(&self.crowd);
            if is_kept {
                crowd.expect_histories(behind, plan.history_size as usize);
            }
            crowd.reached.histories
        };
        let mut asked = 0;
        for node in self.nodes.iter().flatten() {
            for channel in 0..CHANNELS.len() {
                node.read_history(channel);
                asked += 1;
            }
        }
        self.pass(ANSWERED_WITHIN).await;
        let answered = lock(&self.crowd).reached.histories - before;
        assert!(
            answered >= asked,
            "{answered} of {asked} histories are read"
        );
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
        crowd.reached.by_channel.add(&self.cloud.reached());
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
    let (plan, hearing) = Plan::of(seed, &mut prng);
    if is_printed {
        println!("{plan:#?}");
    }
    simulate(async { World::new(plan, prng, hearing, is_printed).run().await })
}

/// Runs something in time that costs nothing.
pub(in crate::broker) fn simulate<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(future)
}

/// Runs seeds on all cores. Says what they came through.
fn run_all(count: u64) -> Reached {
    let add = |reached: &mut Reached, outcome: Outcome| reached.add(&outcome.reached);
    let campaign = Campaign::from_environment(count, REPLAY);
    let Outcomes {
        summary, failures, ..
    } = campaign.run(Reached::default(), |seed| run(seed, false), add, None);
    assert!(failures.is_empty(), "seeds that fail: {failures:?}");
    println!("{summary:#?}");
    summary
}

/// Asserts that nothing is simulated in vain.
fn check(reached: Reached) {
    reached.check(variable(plan::BY_CHANNEL) != Some(0));
}

#[test]
fn seeds() {
    let reached = run_all(SEEDS);
    if reached.seeds >= SEEDS {
        check(reached);
    }
}

/// `make sim`.
#[test]
#[ignore = "minutes: make sim"]
fn at_length() {
    check(run_all(SEEDS_AT_LENGTH));
}

/// Runs `MYRIAD_SIM_SEED` and prints what happens; does nothing without it.
#[test]
fn replay() {
    if let Some(seed) = seed_to_replay() {
        println!("seed {seed} passes: {:#?}", run(seed, true));
    }
}

#[test]
fn equal_seeds_run_equally() {
    for seed in 0..12 {
        assert_eq!(run(seed, false), run(seed, false), "seed {seed}");
    }
}
