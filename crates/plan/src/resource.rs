//! What a node has to have for its connections, and the number of connections at which it has no more.

use super::chain::{Chain, Hop};
use super::costs;
use super::demand::{Demand, Term};
use super::figure::{Figure, Unit};
use myriad_doctor::Effect;
use myriad_units::{count, counted};
use serde::Serialize;

/// Something every node of a hop needs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Resource {
    /// A few words, unique in a hop.
    pub name: &'static str,
    /// For a node, with all connections wanted open.
    pub need: Figure,
    /// Where the hop ends for want of it, if it is known how much there is.
    pub limit: Option<Limit>,
}

/// Where a hop ends.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limit {
    /// Connections the whole hop carries at most.
    pub connections: u64,
    /// What happens to those beyond.
    pub effect: Effect,
    /// How the number came about.
    pub formula: String,
    /// Where the constants in the formula come from.
    pub sources: Vec<&'static str>,
    /// What to do about it.
    pub remedy: String,
}

/// The connections of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// When all wanted are open and only the nodes that are not spare are up.
    pub(crate) connections: u64,
    /// Nodes that carry them.
    pub(crate) active: u64,
}

impl Share {
    pub(crate) fn new(chain: &Chain, hop: &Hop) -> Self {
        let active = hop.active();
        Self {
            connections: chain.connections.div_ceil(active),
            active,
        }
    }

    pub(crate) fn float(self) -> f64 {
        float(self.connections)
    }
}

pub(crate) fn times(nodes: u64) -> String {
    if nodes == 1 {
        String::new()
    } else {
        format!(", × {}", counted(nodes, "node"))
    }
}

/// More than anybody plans for; and in every product with a cost still exact enough in a float.
pub(crate) const CONNECTIONS_MAX: u64 = 1_000_000_000_000;

/// Memory with what must stay free of it taken off.
pub(crate) fn memory_supply(hop: &Hop) -> Option<(f64, String)> {
    let total = float(hop.memory_bytes?);
    let kept = (total * costs::MEMORY_KEPT_SHARE.value).max(costs::MEMORY_KEPT_MIN.value);
    let usable = (total - kept).max(0.0);
    Some((
        usable,
        format!(
            "{} ({} less {} kept for everything else)",
            Unit::Bytes.show(usable),
            Unit::Bytes.show(total),
            Unit::Bytes.show(kept)
        ),
    ))
}

/// What a contract or a setting allows.
pub(crate) fn connections_max(
    hop: &Hop,
    share: &Share,
    called: &'static str,
    source: &'static str,
) -> Option<Resource> {
    let most = hop.connections_max?;
    let formula = counted(share.connections, "connection");
    Some(Resource {
        name: called,
        need: Figure::new(called, share.float(), Unit::Count, formula),
        limit: Some(Limit {
            connections: most.saturating_mul(share.active),
            effect: Effect::Stops,
            formula: format!("{} a node{}", count(most), times(share.active)),
            sources: vec![source],
            remedy: format!("Raise {called}, or add nodes."),
        }),
    })
}

/// The kernel's hash of connections, with that many sockets for each.
pub(crate) fn connection_hash(hop: &Hop, share: &Share, sockets: u64) -> Resource {
    let mut demand = Demand::new("connection hash", Unit::Count);
    demand.terms.push(Term::new(
        float(sockets),
        "sockets in the hash",
        costs::HASH_BUCKETS.source,
    ));
    let room = float(hop.hash_buckets) * costs::BUCKET_SOCKETS.value;
    demand.supply = Some((
        room,
        format!(
            "{} buckets with {} sockets each, beyond which packets search longer",
            count(hop.hash_buckets),
            costs::BUCKET_SOCKETS.value
        ),
    ));
    demand.effect = Effect::Degrades;
    demand.remedy = "Boot with thash_entries=4194304, or more nodes.".into();
    demand.resource(share)
}

/// The ports a hop that ends connections needs towards the next.
pub(crate) fn source_ports(hop: &Hop, next: Option<&Hop>, share: &Share) -> Resource {
    let tuples = hop.addresses.saturating_mul(hop.ports);
    let need = |connections: u64, endpoints: u64| {
        let value = connections.div_ceil(endpoints.max(1));
        let formula = format!(
            "{} / {} (address and port) of the next hop",
            counted(connections, "connection"),
            counted(endpoints, "endpoint")
        );
        Figure::new("source ports", float(value), Unit::Count, formula).from(&[costs::PORTS.source])
    };
    let Some(next) = next else {
        // Nobody said what is behind: then what has to be there is the figure.
        let formula = format!(
            "{} / ({} × {}): so many pairs of address and port must be behind it",
            counted(share.connections, "connection"),
            addresses(hop),
            counted(hop.ports, "port")
        );
        let endpoints = share.connections.div_ceil(tuples.max(1));
        return Resource {
            name: "endpoints behind it",
            need: Figure::new(
                "endpoints behind it",
                float(endpoints),
                Unit::Count,
                formula,
            )
            .from(&[costs::PORTS.source]),
            limit: None,
        };
    };
    let endpoints = next.endpoints();
    let a_node = tuples.saturating_mul(endpoints);
    Resource {
        name: "source ports",
        need: need(share.connections, endpoints),
        limit: Some(Limit {
            connections: a_node.saturating_mul(share.active),
            effect: Effect::Stops,
            formula: format!(
                "{} × {} × {} of the next hop{}",
                addresses(hop),
                counted(hop.ports, "port"),
                counted(endpoints, "endpoint"),
                times(share.active)
            ),
            sources: vec![costs::PORTS.source],
            remedy: "Give the hop more addresses (addresses=; nginx: proxy_bind from split_clients), the next \
                     one more ports to listen on (endpoints=), or widen ip_local_port_range (ports=)."
                .into(),
        }),
    }
}

fn addresses(hop: &Hop) -> String {
    counted(hop.addresses, "address")
}

/// A count as a float; the counts here are far below 2^53.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts are bounded by what a person plans, far below 2^53"
)]
pub(crate) fn float(value: u64) -> f64 {
    value as f64
}
