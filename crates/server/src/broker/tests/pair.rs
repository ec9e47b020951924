//! Two nodes to which nothing happens but what a test has happen.

use super::cloud::{Cloud, lock};
use super::crowd::{Crowd, Published};
use super::node::{Node, seed_random};
use super::plan::{NODES_MAX, Plan};
use crate::broker::link::SPARE_MESSAGES;
use crate::broker::settings::BrokerInterest;
use myriad_broker::{Policy, Subjects};
use myriad_reactor::sim::Prng;
use myriad_shard::{Epoch, NotPublished, Position};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// A channel that no client of any node wants: nodes that hear by channel do not read what they publish there.
const CHANNEL: usize = 0;
/// Each way to hear; who chooses hears the log whole, because little is said.
pub(super) const ALL_INTERESTS: [BrokerInterest; 3] = [
    BrokerInterest::Stream,
    BrokerInterest::Channel,
    BrokerInterest::Auto(Policy::new(20_000)),
];
/// What has to happen at once has happened by then, and a new leader has settled.
pub(super) const SOON: Duration = Duration::from_secs(3);
/// By then a node whose connection is back has opened its log: what it asked before is answered by nobody.
pub(super) const OPEN_AGAIN: Duration = Duration::from_secs(20);

/// Nothing fails but what a test has fail.
fn plan() -> Plan {
    let history_ttl = Duration::from_secs(300);
    Plan {
        nodes: 2,
        interest: [BrokerInterest::Channel; NODES_MAX],
        subscribers: 0,
        steps: 0,
        pause_ms: 1,
        delay_us: 100,
        history_size: 5,
        history_ttl,
        kept_by_log: 10 + SPARE_MESSAGES,
        log_ttl: 2 * history_ttl,
        loses_answers: false,
        breaks_consumers: false,
        breaks_connections: false,
        changes_leaders: false,
        cuts_logs: false,
        kills_nodes: false,
        stops_nodes: false,
        has_strangers: false,
    }
}

/// Up to two nodes, and what they publish.
pub(super) struct Pair {
    plan: Plan,
    /// What they hear.
    interest: BrokerInterest,
    began: Instant,
    subjects: Subjects,
    pub(super) cloud: Arc<Cloud>,
    crowd: Arc<Mutex<Crowd>>,
    pub(super) nodes: Vec<Node>,
    numbers: u64,
}

/// What a publisher is answered; none before.
pub(super) type Answer = Option<Result<Position, NotPublished>>;

impl Pair {
    /// Of nodes that hear by channel. With its first node.
    pub(super) async fn new() -> Self {
        Self::of(BrokerInterest::Channel).await
    }

    /// Of nodes that read the log whole. With its first node.
    pub(super) async fn of_readers() -> Self {
        Self::of(BrokerInterest::Stream).await
    }

    /// Of nodes that hear this. With its first node.
    pub(super) async fn of(interest: BrokerInterest) -> Self {
        let plan = plan();
        let mut prng = Prng::new(7);
        seed_random(prng.fork());
        let subjects = Subjects::new("my").expect("a prefix");
        let cloud = Cloud::new(plan, prng.fork(), prng.fork(), subjects.clone(), false);
        let mut pair = Self {
            plan,
            interest,
            began: Instant::now(),
            subjects,
            cloud,
            crowd: Arc::new(Mutex::new(Crowd::new(plan.subscribers))),
            nodes: Vec::new(),
            numbers: 0,
        };
        pair.start().await;
        pair
    }

    /// Starts the next node.
    pub(super) async fn start(&mut self) {
        let number = self.nodes.len() as u64 + 1;
        if self.interest.keeps_only_wanted() {
            lock(&self.crowd).note_hearer(number);
        }
        let node = Node::start(
            number,
            self.interest,
            &self.plan,
            &self.cloud,
            &self.crowd,
            &self.subjects,
            self.began,
        );
        self.nodes.push(node);
        sleep(SOON).await;
    }

    /// Gives a publication to a node, and waits for nothing. Returns its number.
    pub(super) fn submit(&mut self, node: usize, key: Option<u64>) -> u64 {
        self.numbers += 1;
        let number = self.numbers;
        let node = &self.nodes[node];
        let published = Published {
            node: node.number,
            channel: CHANNEL,
            key,
            has_version: false,
            answer: None,
        };
        lock(&self.crowd).publications.insert(number, published);
        node.publish(CHANNEL, number, key, 0);
        number
    }

    /// The answer to a publication.
    pub(super) fn answer(&self, number: u64) -> Answer {
        lock(&self.crowd).publications[&number].answer
    }

    /// Publishes on a node. Returns where the publication stands.
    pub(super) async fn publish(&mut self, node: usize, key: Option<u64>) -> Position {
        let number = self.submit(node, key);
        sleep(SOON).await;
        let answer = self.answer(number).expect("an answer");
        answer.expect("a place")
    }

    pub(super) async fn remove_history(&mut self, node: usize) {
        self.numbers += 1;
        let node = &self.nodes[node];
        let removal = (node.number, None);
        lock(&self.crowd).removals.insert(self.numbers, removal);
        node.remove(CHANNEL, self.numbers);
        sleep(SOON).await;
        assert_eq!(lock(&self.crowd).removals[&self.numbers].1, Some(true));
    }

    /// The first node loses its connections, and makes them again.
    pub(super) async fn open_again(&self) {
        self.nodes[0].client.cut();
        self.nodes[0].client.reconnect();
        sleep(OPEN_AGAIN).await;
    }

    /// The epoch of the log on all nodes.
    pub(super) fn epoch(&self) -> Epoch {
        let epochs: Vec<_> = self.nodes.iter().map(Node::check).collect();
        let first = epochs[0];
        assert!(epochs.iter().all(|epoch| *epoch == first), "{epochs:?}");
        first
    }
}
