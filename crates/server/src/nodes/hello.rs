//! Hello and goodbye: who is there.

use super::Nodes;
use super::message::{COMMON, HEARS, Headers, KEYS, NODE};
use crate::nats::{Messages, connects_of, headers};
use crate::shards::monotonic_now;
use async_nats::PublishError;
use myriad_broker::{HELLO_NS, is_node_name};
use myriad_shard::{FromNode, Mesh, NodeSays};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

/// What a node says.
const HELLO: &[u8] = b"hello";
const GOODBYE: &[u8] = b"goodbye";
const YES: &str = "yes";
const NO: &str = "no";

fn subject(nodes: &Nodes) -> String {
    nodes.subjects.control("hello")
}

/// Tells homes which nodes have gone.
fn tell_gone(nodes: &Nodes, mesh: &Mesh) {
    let gone = nodes.lock_others().take_gone(monotonic_now());
    for node in gone {
        tracing::info!("node {node} has gone");
        let (node, says) = (node.into(), NodeSays::Gone);
        mesh.hear_node(FromNode { node, says });
    }
}

/// Says hello every second. After a failure of the connection, all others are newcomers: neither side knows what it has missed.
pub(super) async fn say(nodes: Arc<Nodes>, mesh: Mesh, newcomers: mpsc::Sender<String>) {
    let mut known = connects_of(&nodes.client);
    let mut ticks = interval(Duration::from_nanos(HELLO_NS));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if nodes.is_connected() {
            if let Err(error) = publish(&nodes, HELLO).await {
                tracing::debug!("no hello to the other nodes: {error}");
            }
        } else {
            nodes.lock_others().hold(monotonic_now());
        }
        tell_gone(&nodes, &mesh);
        let others = nodes.others();
        nodes.counts.set_others(others.len());
        if nodes.is_connected() && nodes.needs_round.swap(false, Ordering::Relaxed) {
            mesh.begin_round(nodes.next_round());
        }
        let connects = connects_of(&nodes.client);
        if nodes.is_connected() && connects > known {
            known = connects;
            mesh.begin_round(nodes.next_round());
            for node in others {
                let _ = newcomers.try_send(node);
            }
        }
    }
}

/// Says that this node is gone.
pub(super) async fn goodbye(nodes: &Nodes) {
    if publish(nodes, GOODBYE).await.is_ok() {
        let _ = nodes.client.flush().await;
    }
}

async fn publish(nodes: &Nodes, what: &'static [u8]) -> Result<(), PublishError> {
    let hears = if nodes.says.hears() { YES } else { NO };
    let common = nodes.says.common();
    let keys = nodes.says.keys();
    let said = headers([
        (NODE, &*nodes.name),
        (HEARS, hears),
        (COMMON, common),
        (KEYS, &*keys),
    ]);
    let client = &nodes.client;
    client
        .publish_with_headers(subject(nodes), said, what.into())
        .await
}

/// What another node says of itself. Those of older versions say nothing.
fn note_says(nodes: &Nodes, node: &str, said: &Headers<'_>) {
    let hears = said.text(HEARS).is_none_or(|hears| hears == YES);
    nodes.lock_others().note_hearing(node, hears);
    let common = said.text(COMMON).filter(|_| node != nodes.name);
    if common.is_some_and(|common| common != nodes.says.common()) && is_node_name(node) {
        nodes.remark_other_namespaces(node);
    }
    let keys = said.text(KEYS).filter(|_| node != nodes.name);
    if keys.is_some_and(|keys| keys != nodes.says.keys()) && is_node_name(node) {
        nodes.remark_other_keys(node);
    }
}

/// Hears what the others say, until the runtime ends.
pub(super) async fn hear(nodes: Arc<Nodes>, mesh: Mesh, newcomers: mpsc::Sender<String>) {
    let mut said = Messages::of(&nodes.client, subject(&nodes), "other nodes").await;
    loop {
        let message = said.next().await;
        let Some(node) = Headers(&message).text(NODE) else {
            continue;
        };
        if *message.payload == *GOODBYE {
            nodes.lock_others().forget(node);
            nodes.lock_pending().forget(node);
            tell_gone(&nodes, &mesh);
            continue;
        }
        let is_new = nodes.lock_others().hear(node, monotonic_now());
        note_says(&nodes, node, &Headers(&message));
        if is_new {
            tracing::info!("node {node} is there");
            tell_gone(&nodes, &mesh);
            // It need not wait for our next hello to know us.
            let _ = publish(&nodes, HELLO).await;
            let _ = newcomers.try_send(node.to_owned());
        }
    }
}
