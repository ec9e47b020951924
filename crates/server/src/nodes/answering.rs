//! What other nodes ask this one.

use super::Nodes;
use super::message::{ASK, END, FAILED, Headers, NODE, PART, SEED, WHAT, WHOLE};
use crate::nats::{Messages, headers};
use async_nats::{Message, PublishError};
use bytes::Bytes;
use myriad_broker::is_node_name;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Questions of other nodes that are answered at once.
const ANSWERS_MAX: usize = 64;
/// Bytes of a part of an answer, if NATS takes twice as many in a message.
const PART_BYTES: usize = 512 << 10;

/// A question of another node.
#[derive(Debug)]
pub(crate) struct NodeAsk {
    /// What is asked.
    pub(crate) what: String,
    /// The asker's random number.
    pub(crate) seed: u64,
    /// What it is about.
    pub(crate) payload: Bytes,
}

/// Whoever answers.
pub(crate) trait Answer: Send + Sync + 'static {
    /// The answer; none if there will be none. Takes as long as it needs: the asker has a deadline.
    fn answer(&self, ask: NodeAsk) -> impl Future<Output = Option<Vec<u8>>> + Send;
}

/// Whom to answer.
struct Asker {
    node: String,
    number: u64,
}

/// Answers other nodes, until the runtime ends.
pub(crate) async fn answer(nodes: Arc<Nodes>, answerer: Arc<impl Answer>) {
    let places = Arc::new(Semaphore::new(ANSWERS_MAX));
    let to_all = nodes.subjects.control("ask");
    let to_us = nodes.subjects.control(&format!("ask.{}", nodes.name));
    let asks = |subject| Messages::of(&nodes.client, subject, "what other nodes ask");
    let (mut to_all, mut to_us) = tokio::join!(asks(to_all), asks(to_us));
    loop {
        let message = tokio::select! {
            message = to_all.next() => message,
            message = to_us.next() => message,
        };
        let Some((asker, ask)) = read(&message) else {
            continue;
        };
        if asker.node == nodes.name {
            continue;
        }
        let nodes = Arc::clone(&nodes);
        let answerer = Arc::clone(&answerer);
        let place = Arc::clone(&places).try_acquire_owned().ok();
        tokio::spawn(async move {
            let answer = match &place {
                Some(_) => answerer.answer(ask).await,
                None => None,
            };
            if let Err(error) = send(&nodes, &asker, answer).await {
                tracing::warn!("node {} is not answered: {error}", asker.node);
            }
        });
    }
}

/// The question in a message; none if no node wrote it.
fn read(message: &Message) -> Option<(Asker, NodeAsk)> {
    let headers = Headers(message);
    let asker = Asker {
        node: headers.text(NODE)?.to_owned(),
        number: headers.number(ASK)?,
    };
    // Its name becomes part of a subject.
    let is_node = is_node_name(&asker.node);
    let ask = NodeAsk {
        what: headers.text(WHAT)?.to_owned(),
        seed: u64::from_str_radix(headers.text(SEED)?, 16).ok()?,
        payload: message.payload.clone(),
    };
    is_node.then_some((asker, ask))
}

/// Sends an answer in parts, or that there is none.
async fn send(nodes: &Nodes, asker: &Asker, answer: Option<Vec<u8>>) -> Result<(), PublishError> {
    let subject = nodes.subjects.control(&format!("answer.{}", asker.node));
    let number = asker.number.to_string();
    let publish = |part: usize, end: Option<&'static str>, payload: Bytes| {
        let part = part.to_string();
        let mut said = headers([(NODE, &*nodes.name), (ASK, &number), (PART, &part)]);
        if let Some(end) = end {
            said.insert(END, end);
        }
        nodes
            .client
            .publish_with_headers(subject.clone(), said, payload)
    };
    let Some(answer) = answer else {
        return publish(0, Some(FAILED), Bytes::new()).await;
    };
    let part_bytes = (nodes.client.server_info().max_payload / 2).clamp(1, PART_BYTES);
    let answer = Bytes::from(answer);
    let parts = answer.len().div_ceil(part_bytes).max(1);
    for part in 0..parts {
        let (from, to) = (part * part_bytes, (part + 1) * part_bytes);
        let end = (part + 1 == parts).then_some(WHOLE);
        publish(part, end, answer.slice(from..to.min(answer.len()))).await?;
    }
    Ok(())
}
