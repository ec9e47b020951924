//! Joins and leaves on other nodes: by core NATS, at most once. What is lost is said again in the next round
//! ([`myriad_broker::Announced`], and `hub/home/elsewhere.rs`).

use super::Nodes;
use crate::nats::{Messages, header, headers};
use async_nats::Message;
use myriad_broker::Announced;
use myriad_shard::{Mesh, Told};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::mpsc;

impl Nodes {
    /// Has the other nodes told. What does not fit into the queue is said again in a round.
    pub(crate) fn tell(&self, told: Told) {
        if self.telling.try_send(told).is_err() {
            self.needs_round.store(true, Ordering::Relaxed);
        }
    }

    /// Tells the other nodes. Without a connection they are not told: a round follows when it is back.
    async fn send_told(&self, homes: usize, told: &Told) {
        if !self.is_connected() {
            return;
        }
        let announced = Announced::new(&self.name, homes, told);
        let subject = match &announced.channel {
            Some(channel) => self.subjects.announced(channel),
            None => self.subjects.announced_to_all(),
        };
        let values = announced.headers.iter();
        let headers = headers(values.map(|(name, value)| (*name, value.as_str())));
        let data = announced.data.into();
        let sent = self.client.publish_with_headers(subject, headers, data);
        if let Err(error) = sent.await {
            tracing::debug!("other nodes are not told of a join or a leave: {error}");
        }
    }
}

/// Tells the other nodes what homes want them to know, in its order, until the runtime ends.
pub(super) async fn say(nodes: Arc<Nodes>, homes: usize, mut queue: mpsc::Receiver<Told>) {
    while let Some(told) = queue.recv().await {
        nodes.send_told(homes, &told).await;
    }
}

/// Gives homes what other nodes tell, until the runtime ends.
pub(super) async fn hear(nodes: Arc<Nodes>, mesh: Mesh, mut messages: Messages) {
    loop {
        take(&nodes, &mesh, &messages.next().await);
    }
}

fn take(nodes: &Nodes, mesh: &Mesh, message: &Message) {
    let header = |name: &str| header(message.headers.as_ref(), name);
    let channel = nodes.subjects.channel_of_announced(&message.subject);
    if channel.is_none() && *message.subject != *nodes.subjects.announced_to_all() {
        return;
    }
    match Announced::read(channel.as_deref(), header, &message.payload) {
        Ok(from) if *from.node == *nodes.name => {}
        Ok(from) => mesh.hear_node(from),
        Err(error) => {
            tracing::warn!("a join or a leave of channel {channel:?} is left out: {error}");
            nodes.counts.count_unreadable();
        }
    }
}
