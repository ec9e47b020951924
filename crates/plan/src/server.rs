//! Myriad as a hop: what our own measurements say it costs.

use super::chain::{Chain, Hop, Myriad};
use super::costs::{self, Cost};
use super::demand::{Demand, Term};
use super::figure::{Figure, Unit};
use super::resource::{
    Limit, Resource, Share, connection_hash, connections_max, float, memory_supply, times,
};
use myriad_doctor::Effect;
use myriad_doctor::tables;
use myriad_units::{count, counted, truncate};

pub(crate) fn resources(
    chain: &Chain,
    hop: &Hop,
    myriad: Myriad,
    share: &Share,
) -> (Vec<Resource>, Vec<String>) {
    let mut resources = vec![
        descriptors(hop, share),
        memory(chain, hop, myriad, share),
        slow_readers(chain, hop, myriad, share),
        bandwidth(chain, hop, share),
        processor(chain, hop, myriad, share),
        connection_hash(hop, share, 1),
        connecting(myriad, share),
    ];
    resources.extend(connections_max(
        hop,
        share,
        "max-connections",
        costs::MYRIAD_CONNECTIONS_MAX.source,
    ));
    resources.extend(reaching_all(hop, myriad, share));
    (resources, chain.traffic.unmeasured().into_iter().collect())
}

/// Tables, not descriptors, are the limit: Myriad opens as many as it needs, and fills each to its last slot.
fn descriptors(hop: &Hop, share: &Share) -> Resource {
    let limit = hop
        .descriptors
        .unwrap_or(costs::DESCRIPTORS_MAX.value_u64());
    let slots = limit.clamp(1, tables::RING_SLOTS_MAX);
    let most = tables::ring_connections_max(limit);
    let sources = vec![costs::TABLES_MAX.source, costs::DESCRIPTORS_MAX.source];
    Resource {
        name: "descriptor tables",
        need: Figure::new(
            "descriptor tables",
            float(share.connections.div_ceil(slots)),
            Unit::Count,
            format!(
                "{} / {} slots of a table, rounded up",
                counted(share.connections, "connection"),
                count(slots)
            ),
        )
        .from(&sources),
        limit: Some(Limit {
            connections: most.saturating_mul(share.active),
            effect: Effect::Stops,
            formula: format!(
                "{} of {} slots (RLIMIT_NOFILE {}, of which each table takes one) a node{}",
                counted(most / slots, "table"),
                count(slots),
                count(limit),
                times(share.active)
            ),
            sources,
            remedy: "Raise the hard RLIMIT_NOFILE.".into(),
        }),
    }
}

fn memory(chain: &Chain, hop: &Hop, myriad: Myriad, share: &Share) -> Resource {
    let slow = chain.traffic.slow_share;
    let mut demand = Demand::new("memory", Unit::Bytes);
    demand.terms.push(Term::cost(
        costs::CONNECTION_BYTES,
        "record and subscription",
    ));
    if myriad.tls {
        demand
            .terms
            .push(Term::cost(costs::TLS_BYTES, "keys of TLS"));
    }
    demand.terms.push(Term::cost(costs::SOCKET_BYTES, "socket"));
    demand.terms.push(Term::new(
        chain.traffic.in_flight_bytes(costs::PARKED_BYTES.value),
        "packets of a push",
        costs::IN_FLIGHT_BYTES.source,
    ));
    demand.terms.push(Term::new(
        slow * costs::PARKED_BYTES.value,
        "parked in the kernel for those that do not read",
        costs::PARKED_BYTES.source,
    ));
    demand.terms.push(
        Term::new(
            slow * float(myriad.outbound_bytes),
            "queued for those that do not read",
            costs::OUTBOUND_BYTES.source,
        )
        .at_most(float(myriad.buffered(hop))),
    );
    demand.supply = memory_supply(hop);
    demand.remedy = "More memory, or more nodes.".into();
    demand.resource(share)
}

fn slow_readers(chain: &Chain, hop: &Hop, myriad: Myriad, share: &Share) -> Resource {
    let mut demand = Demand::new("of it under slow readers", Unit::Bytes);
    demand
        .terms
        .push(Term::cost(costs::PARKED_BYTES, "parked in the kernel"));
    demand.terms.push(
        Term::new(
            float(myriad.outbound_bytes),
            "queued (outbound-bytes-max)",
            costs::OUTBOUND_BYTES.source,
        )
        .at_most(float(myriad.buffered(hop))),
    );
    let slow = Share {
        connections: truncate((share.float() * chain.traffic.slow_share).ceil()),
        ..*share
    };
    demand.resource(&slow)
}

fn bandwidth(chain: &Chain, hop: &Hop, share: &Share) -> Resource {
    let down = chain.traffic.down_bits_per_s(chain.connections);
    let terms = [(down, "deliveries and pings with all heads")];
    Demand::bandwidth("bandwidth out", hop, &terms).resource(share)
}

fn processor(chain: &Chain, hop: &Hop, myriad: Myriad, share: &Share) -> Resource {
    let supply = hop
        .cores
        .map(|cores| (float(cores), counted(cores, "core")));
    let ping_s = match myriad.tls {
        true => costs::TLS_PING_S,
        false => costs::PING_S,
    };
    let mut demand = Demand::processor(chain, delivery_s(myriad), ping_s, supply);
    demand.remedy = "More cores, or more nodes.".into();
    demand.resource(share)
}

fn delivery_s(myriad: Myriad) -> Cost {
    match myriad.tls {
        true => costs::TLS_DELIVERY_S,
        false => costs::DELIVERY_S,
    }
}

/// How long everybody takes to come back after a restart.
fn connecting(myriad: Myriad, share: &Share) -> Resource {
    let (rate, what) = match myriad.tls {
        true => (costs::TLS_CONNECTS_PER_S, "handshakes of TLS "),
        false => (costs::CONNECTS_PER_S, ""),
    };
    Resource {
        name: "time until all are back",
        need: Figure::new(
            "time until all are back",
            share.float() / rate.value,
            Unit::Seconds,
            format!(
                "{} / {} {what}a second, both ends on two cores",
                counted(share.connections, "connection"),
                count(rate.value_u64())
            ),
        )
        .from(&[rate.source]),
        limit: None,
    }
}

/// The least a push to everybody takes, by the processor alone.
fn reaching_all(hop: &Hop, myriad: Myriad, share: &Share) -> Option<Resource> {
    let cores = hop.cores?;
    let each = delivery_s(myriad);
    Some(Resource {
        name: "a push to everybody, at least",
        need: Figure::new(
            "a push to everybody, at least",
            share.float() * each.value / float(cores.max(1)),
            Unit::Seconds,
            format!(
                "{} × {} µs / {}",
                counted(share.connections, "connection"),
                myriad_units::significant(each.value * 1e6),
                counted(cores, "core")
            ),
        )
        .from(&[each.source]),
        limit: None,
    })
}
