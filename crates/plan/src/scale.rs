//! The same chain for many more connections: how many nodes of each kind, in how many regions, and what a
//! broker between them carries for each push.

use super::chain::{Chain, Hop, Kind};
use super::costs;
use super::figure::{Figure, Unit};
use super::resource::{CONNECTIONS_MAX, float};
use super::{HopPlan, hop_plan};
use myriad_units::{count, counted, significant};
use serde::Serialize;

/// A chain at another size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScaleOut {
    /// Connections in all regions.
    pub connections: u64,
    /// Clients, at the connections that each of them opens.
    pub clients: u64,
    /// Regions, and how that number came about.
    pub regions: Figure,
    /// Nodes of each hop, in the order clients meet them.
    pub hops: Vec<HopNodes>,
    /// What a push costs beyond the nodes.
    pub broker: Vec<Figure>,
}

/// Nodes of one hop.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HopNodes {
    /// As in `--hop`.
    pub kind: &'static str,
    /// Connections one node carries at most, if anything we know of limits it.
    pub connections_a_node: Option<u64>,
    /// What ends first on a node.
    pub resource: Option<&'static str>,
    /// Nodes of a region, spares included; none where no number of them is enough.
    pub nodes_a_region: Option<u64>,
    /// Nodes in all regions.
    pub nodes: Option<u64>,
    /// How that number came about.
    pub formula: String,
}

pub(crate) fn scale_out(chain: &Chain, connections: u64) -> ScaleOut {
    let region = chain.region_connections.clamp(1, CONNECTIONS_MAX);
    let regions = connections.div_ceil(region).max(1);
    let here = connections.div_ceil(regions);
    let hops = nodes(chain, here, regions);
    let servers = hops
        .iter()
        .filter(|hop| hop.kind == "myriad")
        .filter_map(|hop| hop.nodes)
        .sum();
    let formula = format!(
        "{} / {} a region, rounded up",
        counted(connections, "connection"),
        count(region)
    );
    ScaleOut {
        connections,
        clients: chain.clients(connections),
        regions: Figure::new("regions", float(regions), Unit::Count, formula)
            .from(&["given: --region-connections, what may fail together"]),
        hops,
        broker: broker(chain, connections, regions, servers),
    }
}

/// From the last hop to the first: how many ports a hop has depends on the nodes behind it.
fn nodes(chain: &Chain, connections: u64, regions: u64) -> Vec<HopNodes> {
    let mut region = Chain {
        connections,
        ..chain.clone()
    };
    // Each connection gets what it got: as if every publication of its own channels went to everybody.
    region.traffic.messages_per_s = chain.traffic.deliveries_per_s(chain.connections);
    region.traffic.audience = None;
    let mut found = Vec::new();
    for index in (0..chain.hops.len()).rev() {
        let (hop, planned) = sized(&region, index);
        found.push(hop_nodes(&hop, &planned, connections, regions));
        region.hops[index] = hop;
    }
    found.reverse();
    found
}

/// The hop with the fewest nodes that carry the region, and what one of them carries.
fn sized(region: &Chain, index: usize) -> (Hop, HopPlan) {
    let mut chain = region.clone();
    let hop = &mut chain.hops[index];
    let spare = hop.spare;
    hop.nodes = 1;
    hop.spare = 0;
    let planned = hop_plan(&chain, index);
    let hop = &mut chain.hops[index];
    let given = region.hops[index].active();
    let active = match planned.first_stop() {
        // No number of them is enough, which the formula says; what is before them is sized for those given.
        Some((_, limit)) if limit.connections == 0 => given,
        Some((_, limit)) => region.connections.div_ceil(limit.connections).max(1),
        None => given,
    };
    hop.nodes = active.saturating_add(spare);
    hop.spare = spare;
    // As many for each node as there were.
    hop.endpoints = hop.endpoints.map(|endpoints| {
        let all = u128::from(endpoints) * u128::from(active);
        u64::try_from(all.div_ceil(u128::from(given))).unwrap_or(u64::MAX)
    });
    (chain.hops.swap_remove(index), planned)
}

fn hop_nodes(hop: &Hop, planned: &HopPlan, connections: u64, regions: u64) -> HopNodes {
    let stop = planned.first_stop();
    let spare = if hop.spare == 0 {
        String::new()
    } else {
        format!(" + {} spare", count(hop.spare))
    };
    let is_enough = stop.is_none_or(|(_, limit)| limit.connections > 0);
    let formula = match stop {
        Some((resource, limit)) if limit.connections == 0 => format!(
            "no number of such nodes carries them: {resource} holds none on a node ({})",
            limit.formula
        ),
        Some((resource, limit)) => format!(
            "{} regions × ({} / {} a node ({resource}){spare})",
            count(regions),
            count(connections),
            count(limit.connections),
        ),
        None => format!(
            "{} regions × {} as given: nothing we know of limits a node",
            count(regions),
            count(hop.nodes)
        ),
    };
    HopNodes {
        kind: hop.kind.name(),
        connections_a_node: stop.map(|(_, limit)| limit.connections),
        resource: stop.map(|(resource, _)| resource),
        nodes_a_region: is_enough.then_some(hop.nodes),
        nodes: is_enough.then(|| hop.nodes.saturating_mul(regions)),
        formula,
    }
}

/// A push is stored on the servers of NATS, and each node reads every stream; the nodes make the millions of it.
fn broker(chain: &Chain, connections: u64, regions: u64, servers: u64) -> Vec<Figure> {
    if servers == 0
        || !chain
            .hops
            .iter()
            .any(|hop| matches!(hop.kind, Kind::Myriad(_)))
    {
        return Vec::new();
    }
    let traffic = &chain.traffic;
    let message = float(traffic.message_bytes) + costs::BROKER_BYTES.value;
    let sources = [costs::BROKER_BYTES.source];
    let elsewhere = servers - servers.div_ceil(regions);
    let replicas = chain.broker_replicas.max(1);
    let figure = |name, copies: u64, to: &str| {
        let formula = format!(
            "{} {to} × ({} payload + {} subject, headers and framing)",
            count(copies),
            count(traffic.message_bytes),
            costs::BROKER_BYTES.value
        );
        Figure::new(name, float(copies) * message, Unit::Bytes, formula).from(&sources)
    };
    // A channel keeps its audience: more connections are more channels. A push to everybody stays one push.
    let rate = if traffic.audience.is_some() {
        traffic.messages_per_s * float(connections) / float(chain.connections.max(1))
    } else {
        traffic.messages_per_s
    };
    let deliveries = traffic.deliveries_per_s(chain.connections) * float(connections);
    vec![
        figure(
            "a push to the nodes",
            servers,
            "nodes, which read every stream",
        ),
        figure(
            "of it between regions",
            elsewhere,
            "nodes outside the region of the streams",
        ),
        sent(servers, replicas, message, rate),
        worked(servers, replicas, rate),
        Figure::new(
            "deliveries to clients",
            deliveries,
            Unit::PerSecond,
            format!(
                "{} × {}/s each; the broker carries one copy for each node instead",
                counted(connections, "connection"),
                significant(traffic.deliveries_per_s(chain.connections))
            ),
        ),
    ]
}

/// What the NATS servers send, in bits a second.
fn sent(servers: u64, replicas: u64, message: f64, rate: f64) -> Figure {
    let copies = servers.saturating_add(replicas - 1);
    let bits = float(copies) * message * 8.0 * rate;
    Figure::new(
        "the broker sends",
        bits,
        Unit::BitsPerSecond,
        format!(
            "({} to nodes + {} to other replicas) × {} B × 8 × publications at {}/s",
            count(servers),
            count(replicas - 1),
            significant(message),
            significant(rate)
        ),
    )
    .from(&[costs::BROKER_BYTES.source])
}

/// What the NATS servers work, in cores.
fn worked(servers: u64, replicas: u64, rate: f64) -> Figure {
    let store_s = float(replicas) * costs::BROKER_STORE_S.value;
    let cores = rate * (store_s + float(servers) * costs::BROKER_COPY_S.value);
    Figure::new(
        "the NATS servers work",
        cores,
        Unit::Cores,
        format!(
            "publications at {}/s × ({} × {} µs to store one + {} × {} µs to send one)",
            significant(rate),
            count(replicas),
            significant(costs::BROKER_STORE_S.value * 1e6),
            count(servers),
            significant(costs::BROKER_COPY_S.value * 1e6)
        ),
    )
    .from(&[costs::BROKER_STORE_S.source, costs::BROKER_COPY_S.source])
}
