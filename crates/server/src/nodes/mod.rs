//! The other nodes of a cluster: which there are, and what this node asks them.
//!
//! Nodes speak by core NATS, at most once, under `PREFIX.c.…`. Each says hello every second ([`hello`]). A question goes to all nodes, or
//! to one; each answers to the node that asks ([`asking`], [`answering`]). What is asked is the business of
//! [`control::nodes`](crate::control). Joins and leaves are told to all without an answer ([`announcements`]).

mod announcements;
mod answering;
mod asking;
mod counts;
mod hello;
mod message;
mod says;
mod unnamed;
mod versions;

pub(crate) use answering::{Answer, NodeAsk, answer};
pub(crate) use asking::{Wanted, Whom};
pub(crate) use counts::NodesCounts;
pub(crate) use says::{KeysMark, Says};

use crate::nats::{Messages, is_connected};
use asking::Pending;
use async_nats::Client;
use myriad_broker::Subjects;
use myriad_shard::{Mesh, Told};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;
use unnamed::Unnamed;
use versions::OtherVersions;

/// Joins and leaves that wait to be told.
const TOLD_MAX: usize = 65_536;
/// Names of newcomers that wait to be noticed.
const NEWCOMERS_MAX: usize = 1_000;
/// How long a goodbye may take.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

/// A node's way to the others.
#[derive(Debug)]
pub(crate) struct Nodes {
    client: Client,
    subjects: Subjects,
    /// This node's name.
    name: String,
    others: Mutex<myriad_broker::Nodes>,
    pending: Mutex<Pending>,
    /// What the others are to be told, and the end of the queue that [`Nodes::follow`] takes.
    telling: mpsc::Sender<Told>,
    told: Mutex<Option<mpsc::Receiver<Told>>>,
    /// Something did not fit into the queue.
    needs_round: AtomicBool,
    /// Rounds that were begun.
    rounds: AtomicU64,
    other_versions: OtherVersions,
    other_namespaces: OtherVersions,
    other_keys: OtherVersions,
    says: Says,
    pub(crate) unnamed: Unnamed,
    pub(crate) counts: NodesCounts,
}

impl Nodes {
    pub(crate) fn new(client: Client, subjects: Subjects, name: String, says: Says) -> Self {
        let (telling, told) = mpsc::channel(TOLD_MAX);
        Self {
            telling,
            told: Mutex::new(Some(told)),
            needs_round: AtomicBool::new(false),
            client,
            subjects,
            others: Mutex::new(myriad_broker::Nodes::new(&name)),
            name,
            pending: Mutex::new(Pending {
                last: 0,
                asks: HashMap::new(),
            }),
            rounds: AtomicU64::new(0),
            other_versions: OtherVersions::default(),
            other_namespaces: OtherVersions::default(),
            other_keys: OtherVersions::default(),
            says,
            unnamed: Unnamed::default(),
            counts: NodesCounts::default(),
        }
    }

    /// This node's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Takes the mark of other keys for tokens. With them nodes may differ that agreed before.
    pub(crate) fn set_keys(&self, mark: KeysMark) {
        if self.says.set_keys(mark) {
            self.other_keys.forget();
        }
    }

    /// The number of another round.
    pub(crate) fn next_round(&self) -> u64 {
        self.rounds.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The names of the others that are there, in order.
    pub(crate) fn others(&self) -> Vec<String> {
        let mut others = self.lock_others();
        let names = others.others(crate::shards::monotonic_now());
        names.map(str::to_owned).collect()
    }

    /// Whether one of the others hears all of its logs, as it says.
    pub(crate) fn any_hears(&self) -> bool {
        let mut others = self.lock_others();
        others.any_hears(crate::shards::monotonic_now())
    }

    /// Follows who is there, and hears answers, until the runtime ends. Gives the names of those that come, also of those that come
    /// back. What others ask is answered by [`answer`].
    pub(crate) async fn follow(self: &Arc<Self>, mesh: Mesh) -> mpsc::Receiver<String> {
        let (newcomers, names) = mpsc::channel(NEWCOMERS_MAX);
        // Whoever hears of this node may tell it something at once.
        let subject = self.subjects.announced_of_all();
        let told = Messages::of(&self.client, subject, "joins and leaves").await;
        let nodes = || Arc::clone(self);
        tokio::spawn(announcements::hear(nodes(), mesh.clone(), told));
        let queue = self
            .told
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let queue = queue.expect("a node joins its cluster once");
        tokio::spawn(announcements::say(nodes(), mesh.shard_count(), queue));
        tokio::spawn(asking::hear_answers(nodes()));
        tokio::spawn(hello::hear(nodes(), mesh.clone(), newcomers.clone()));
        tokio::spawn(hello::say(nodes(), mesh, newcomers));
        names
    }

    /// Tells the others that this node has no clients any more.
    pub(crate) async fn leave(&self) {
        if self.is_connected() {
            let _ = timeout(GOODBYE_TIMEOUT, hello::goodbye(self)).await;
        }
    }

    fn is_connected(&self) -> bool {
        is_connected(&self.client)
    }

    fn lock_others(&self) -> MutexGuard<'_, myriad_broker::Nodes> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
