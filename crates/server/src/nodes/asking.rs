//! Questions to other nodes, and their answers.

use super::Nodes;
use super::message::{ASK, END, FAILED, Headers, NODE, PART, SEED, WHAT};
use crate::nats::{Messages, headers};
use async_nats::Message;
use bytes::Bytes;
use myriad_broker::{Gather, Gathered};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// Questions under way at once. Each holds its answers in memory.
const ASKS_MAX: usize = 64;
/// Bytes of the answers to one question.
const ANSWERS_BYTES_MAX: usize = 64 << 20;

/// Questions that wait for answers.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) last: u64,
    pub(super) asks: HashMap<u64, Asked>,
}

/// A question that waits.
#[derive(Debug)]
pub(super) struct Asked {
    gather: Gather,
    whole: Arc<Notify>,
}

impl Pending {
    /// A node has gone: nobody waits for it.
    pub(super) fn forget(&mut self, node: &str) {
        for asked in self.asks.values_mut() {
            asked.gather.forget(node);
            asked.note();
        }
    }
}

impl Asked {
    fn note(&self) {
        if self.gather.is_whole() {
            self.whole.notify_one();
        }
    }
}

/// Which nodes are asked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Whom<'a> {
    /// All others that are there.
    Others,
    /// This one.
    One(&'a str),
}

/// What is asked.
#[derive(Clone, Debug)]
pub(crate) struct Wanted<'a> {
    /// Its name.
    pub(crate) what: &'a str,
    /// A random number for all that are asked.
    pub(crate) seed: u64,
    /// What it is about.
    pub(crate) payload: Bytes,
}

/// Ends the wait for a question, also where nobody waits to its end.
struct Waiting<'n> {
    nodes: &'n Nodes,
    number: u64,
    whole: Arc<Notify>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.nodes.lock_pending().asks.remove(&self.number);
    }
}

impl Nodes {
    /// Asks, and waits for the answers until the deadline. While there is no connection, all answers are missing at once.
    pub(crate) async fn ask(
        &self,
        whom: Whom<'_>,
        wanted: Wanted<'_>,
        deadline: Instant,
    ) -> Gathered {
        let asked = match whom {
            Whom::Others => self.others(),
            Whom::One(node) => vec![node.to_owned()],
        };
        if asked.is_empty() {
            return Gathered::default();
        }
        let names = asked.iter().map(String::as_str);
        let gather = Gather::new(names, ANSWERS_BYTES_MAX);
        let unasked = |gather: Gather| {
            self.counts.count_unanswered(asked.len());
            gather.end()
        };
        if !self.is_connected() {
            return unasked(gather);
        }
        let waiting = match self.begin(gather) {
            Ok(waiting) => waiting,
            Err(gather) => return unasked(gather),
        };
        let subject = match whom {
            Whom::Others => self.subjects.control("ask"),
            Whom::One(node) => self.subjects.control(&format!("ask.{node}")),
        };
        let number = waiting.number.to_string();
        let seed = format!("{:x}", wanted.seed);
        let said = headers([
            (NODE, &*self.name),
            (ASK, &number),
            (WHAT, wanted.what),
            (SEED, &seed),
        ]);
        let sent = self
            .client
            .publish_with_headers(subject, said, wanted.payload);
        match timeout_at(deadline, sent).await {
            Ok(Ok(())) => waiting.until(deadline).await,
            Ok(Err(error)) => {
                tracing::warn!("other nodes cannot be asked for {}: {error}", wanted.what);
                waiting.end()
            }
            Err(_) => waiting.end(),
        }
    }

    /// Notes a question; gives back its answers, if there are too many questions.
    fn begin(&self, gather: Gather) -> Result<Waiting<'_>, Gather> {
        let whole = Arc::new(Notify::new());
        let mut pending = self.lock_pending();
        if pending.asks.len() >= ASKS_MAX {
            return Err(gather);
        }
        pending.last += 1;
        let number = pending.last;
        let asked = Asked {
            gather,
            whole: Arc::clone(&whole),
        };
        pending.asks.insert(number, asked);
        Ok(Waiting {
            nodes: self,
            number,
            whole,
        })
    }

    /// An answer comes, or a part of one.
    fn take(&self, message: &Message) -> Option<()> {
        let headers = Headers(message);
        let node = headers.text(NODE)?;
        let number = headers.number(ASK)?;
        let end = headers.text(END);
        let mut pending = self.lock_pending();
        let asked = pending.asks.get_mut(&number)?;
        if end == Some(FAILED) {
            asked.gather.fail(node);
        } else {
            let part = u32::try_from(headers.number(PART)?).ok()?;
            let taken = asked
                .gather
                .take(node, part, end.is_some(), &message.payload);
            if let Err(error) = taken {
                tracing::warn!("node {node} did not answer: {error}");
            }
        }
        asked.note();
        Some(())
    }
}

impl Waiting<'_> {
    /// The answers that come until the deadline.
    async fn until(self, deadline: Instant) -> Gathered {
        let _ = timeout_at(deadline, self.whole.notified()).await;
        self.end()
    }

    /// The answers so far.
    fn end(self) -> Gathered {
        let asked = self.nodes.lock_pending().asks.remove(&self.number);
        let gathered = asked.map(|asked| asked.gather.end()).unwrap_or_default();
        self.nodes.counts.count_answered(gathered.answers.len());
        self.nodes.counts.count_unanswered(gathered.missing.len());
        gathered
    }
}

/// Hears answers, until the runtime ends.
pub(super) async fn hear_answers(nodes: Arc<Nodes>) {
    let subject = nodes.subjects.control(&format!("answer.{}", nodes.name));
    let mut answers = Messages::of(&nodes.client, subject, "answers of other nodes").await;
    loop {
        // What is no answer of ours is somebody else's mistake.
        let _ = nodes.take(&answers.next().await);
    }
}
