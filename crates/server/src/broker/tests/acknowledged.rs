//! Servers that come back without what they had acknowledged, and have other messages in its place before the publisher's node looks.

use super::cloud::{Cloud, lock};
use super::crowd::{Crowd, Published};
use super::node::{Node, seed_random};
use super::plan::{NODES_MAX, Plan, SPARE};
use super::simulate;
use myriad_broker::Subjects;
use myriad_reactor::sim::Prng;
use myriad_shard::{Epoch, Position};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// A channel that no client of any node wants: nodes that hear by channel do not read what they publish there.
const CHANNEL: usize = 0;
/// What has to happen at once has happened by then, and a new leader has settled.
const SOON: Duration = Duration::from_secs(3);
/// By then a node whose connection is back has opened its log: what it asked before is answered by nobody.
const OPEN_AGAIN: Duration = Duration::from_secs(20);

/// Nothing fails but what a test has fail.
fn plan() -> Plan {
    let history_ttl = Duration::from_secs(300);
    Plan {
        nodes: 2,
        by_channel: [true; NODES_MAX],
        subscribers: 0,
        steps: 0,
        pause_ms: 1,
        delay_us: 100,
        history_size: 5,
        history_ttl,
        kept_by_log: 10 + SPARE,
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

/// Two nodes that hear by channel, and what they publish.
struct Pair {
    plan: Plan,
    began: Instant,
    subjects: Subjects,
    cloud: Arc<Cloud>,
    crowd: Arc<Mutex<Crowd>>,
    nodes: Vec<Node>,
    numbers: u64,
}

impl Pair {
    /// With its first node.
    async fn new() -> Self {
        let plan = plan();
        let mut prng = Prng::new(7);
        seed_random(prng.fork());
        let subjects = Subjects::new("my").expect("a prefix");
        let cloud = Cloud::new(plan, prng.fork(), prng.fork(), subjects.clone(), false);
        let mut pair = Self {
            plan,
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
    async fn start(&mut self) {
        let number = self.nodes.len() as u64 + 1;
        lock(&self.crowd).note_hearer(number);
        let node = Node::start(
            number,
            true,
            &self.plan,
            &self.cloud,
            &self.crowd,
            &self.subjects,
            self.began,
        );
        self.nodes.push(node);
        sleep(SOON).await;
    }

    /// Publishes on a node. Returns where the publication stands.
    async fn publish(&mut self, node: usize, key: Option<u64>) -> Position {
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
        sleep(SOON).await;
        let crowd = lock(&self.crowd);
        let answer = crowd.publications[&number].answer;
        answer.expect("an answer").expect("a place")
    }

    async fn remove_history(&mut self, node: usize) {
        self.numbers += 1;
        let node = &self.nodes[node];
        let removal = (node.number, None);
        lock(&self.crowd).removals.insert(self.numbers, removal);
        node.remove(CHANNEL, self.numbers);
        sleep(SOON).await;
        assert_eq!(lock(&self.crowd).removals[&self.numbers].1, Some(true));
    }

    /// The first node loses its connections, and makes them again.
    async fn open_again(&self) {
        self.nodes[0].client.cut();
        self.nodes[0].client.reconnect();
        sleep(OPEN_AGAIN).await;
    }

    /// The epoch of the log on all nodes.
    fn epoch(&self) -> Epoch {
        let epochs: Vec<_> = self.nodes.iter().map(Node::check).collect();
        let first = epochs[0];
        assert!(epochs.iter().all(|epoch| *epoch == first), "{epochs:?}");
        first
    }
}

/// The first node publishes something that the servers lose while it has no connection. Then the second node writes in its place.
async fn lose_a_publication() -> (Pair, Epoch) {
    let mut pair = Pair::new().await;
    let epoch = pair.epoch();
    let lost = pair.publish(0, None).await;
    assert_eq!((lost.epoch, lost.offset), (epoch, pair.cloud.last()));
    pair.nodes[0].client.cut();
    pair.cloud.lose_leader();
    pair.cloud.elect(1);
    pair.start().await;
    let other = pair.publish(1, None).await;
    assert!(
        other.offset > lost.offset,
        "the log goes further than before"
    );
    assert_eq!(other.epoch, epoch, "nobody has noticed");
    (pair, epoch)
}

#[test]
fn a_message_in_the_place_of_an_acknowledged_one_is_a_loss() {
    simulate(async {
        let (pair, epoch) = lose_a_publication().await;
        pair.nodes[0].client.reconnect();
        sleep(OPEN_AGAIN).await;
        assert_ne!(pair.epoch(), epoch);
    });
}

#[test]
fn a_publication_behind_a_loss_does_not_hide_it() {
    simulate(async {
        let (mut pair, epoch) = lose_a_publication().await;
        pair.nodes[0].client.reconnect();
        // The log is not open yet.
        let next = pair.publish(0, None).await;
        assert_eq!(next.offset, pair.cloud.last());
        sleep(OPEN_AGAIN).await;
        assert_ne!(pair.epoch(), epoch);
    });
}

#[test]
fn a_publication_that_has_gone_is_no_loss() {
    simulate(async {
        let mut pair = Pair::new().await;
        pair.start().await;
        let epoch = pair.epoch();
        pair.publish(0, None).await;
        pair.remove_history(1).await;
        pair.open_again().await;
        assert_eq!(pair.epoch(), epoch);
        // Nor is a removal of its own.
        pair.remove_history(0).await;
        pair.open_again().await;
        assert_eq!(pair.epoch(), epoch);
    });
}

#[test]
fn a_publication_in_the_stead_of_which_another_one_was_stored_is_no_loss() {
    simulate(async {
        let mut pair = Pair::new().await;
        pair.start().await;
        let epoch = pair.epoch();
        let first = pair.publish(1, Some(7)).await;
        let second = pair.publish(0, Some(7)).await;
        assert_eq!(first, second, "both have one key");
        pair.open_again().await;
        assert_eq!(pair.epoch(), epoch);
    });
}
