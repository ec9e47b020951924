//! nginx, alone or as an ingress: what a proxied WebSocket costs there.

use super::chain::{Chain, Hop, Nginx};
use super::costs;
use super::demand::{Demand, Term};
use super::figure::{Figure, Unit};
use super::resource::{
    Limit, Resource, Share, connection_hash, connections_max, float, memory_supply, source_ports,
    times,
};
use myriad_doctor::Effect;
use myriad_units::{bytes, count, counted, truncate};

/// Preallocated memory of a node worth a remark when most of it is for slots that nobody will use.
const PREALLOCATION_REMARK_BYTES: f64 = 1e9;

pub(crate) fn resources(
    chain: &Chain,
    hop: &Hop,
    nginx: &Nginx,
    next: Option<&Hop>,
    share: &Share,
) -> (Vec<Resource>, Vec<String>) {
    let (workers, assumed) = nginx.workers(hop);
    let mut told = counted(workers, "worker");
    if assumed.is_some() {
        told.push_str(" (assumed)");
    }
    let mut resources = vec![
        slots(nginx, workers, &told, share),
        descriptors(hop, workers, share),
        source_ports(hop, next, share),
        memory(chain, hop, nginx, workers, &told, share),
        slow_readers(chain, nginx, share),
        bandwidth(chain, hop, share),
        processor(chain, hop, workers, share),
        connection_hash(hop, share, 2),
    ];
    resources.extend((workers > 1).then(|| fullest_worker(nginx, workers, &told, share)));
    resources.extend(connections_max(
        hop,
        share,
        "connections",
        "given: connections=",
    ));
    let mut remarks: Vec<String> = assumed.map(str::to_owned).into_iter().collect();
    remarks.extend(descriptors_unknown(hop, workers));
    remarks.extend(preallocation(hop, nginx, workers, share));
    remarks.extend(chain.traffic.unmeasured());
    (resources, remarks)
}

/// Proxied connections of one worker.
fn worker_most(nginx: &Nginx) -> u64 {
    let kept = costs::NGINX_SLOTS_KEPT.value_u64();
    nginx.worker_connections.saturating_sub(kept) / costs::NGINX_SLOTS.value_u64()
}

fn slots(nginx: &Nginx, workers: u64, told: &str, share: &Share) -> Resource {
    let kept = costs::NGINX_SLOTS_KEPT.value_u64();
    let sources = vec![costs::NGINX_SLOTS.source, costs::NGINX_SLOTS_KEPT.source];
    let need = share
        .connections
        .saturating_mul(2)
        .saturating_add(workers.saturating_mul(kept));
    let formula = format!(
        "{} × 2 (the client's side and the upstream's) + {} × {kept} (listener, channel)",
        counted(share.connections, "connection"),
        told
    );
    let most = worker_most(nginx);
    Resource {
        name: "worker_connections",
        need: Figure::new("worker_connections", float(need), Unit::Count, formula).from(&sources),
        limit: Some(Limit {
            connections: most.saturating_mul(workers).saturating_mul(share.active),
            effect: Effect::Stops,
            formula: format!(
                "({} − {kept}) / 2 = {} a worker, × {}{}",
                count(nginx.worker_connections),
                count(most),
                told,
                times(share.active)
            ),
            sources,
            remedy: format!(
                "Raise worker_connections to {}, with worker_rlimit_nofile above it; past it nginx closes new \
                 connections or answers 500, and logs that worker_connections are not enough.",
                count(worker_connections_needed(workers, share))
            ),
        }),
    }
}

/// Connections of the fullest of some workers that have `mean` each on average.
fn fullest(mean: u64) -> u64 {
    let mean = float(mean);
    truncate((mean + costs::DEVIATIONS.value * mean.sqrt()).ceil())
}

/// The largest mean with which the fullest worker has at most `most` connections.
fn mean_of_fullest(most: u64) -> u64 {
    // m + d √m = most is a square equation in √m. Its root is right but for the rounding of floats.
    let deviations = costs::DEVIATIONS.value;
    let root = (f64::sqrt(deviations * deviations + 4.0 * float(most)) - deviations) / 2.0;
    let mut mean = truncate(root * root) + 1;
    while mean > 0 && fullest(mean) > most {
        mean -= 1;
    }
    mean
}

/// `worker_connections` with which a node carries its share, the fullest worker included.
fn worker_connections_needed(workers: u64, share: &Share) -> u64 {
    let mean = share.connections.div_ceil(workers);
    let most = if workers > 1 { fullest(mean) } else { mean };
    most.saturating_mul(costs::NGINX_SLOTS.value_u64())
        .saturating_add(costs::NGINX_SLOTS_KEPT.value_u64())
}

/// With one listening socket for each worker the kernel deals connections by a hash. So one worker is always fuller
/// than the mean, and it refuses clients while others have room.
fn fullest_worker(nginx: &Nginx, workers: u64, told: &str, share: &Share) -> Resource {
    let deviations = costs::DEVIATIONS.value;
    let most = worker_most(nginx);
    let mean = share.connections.div_ceil(workers);
    let full_mean = mean_of_fullest(most);
    Resource {
        name: "fullest worker",
        need: Figure::new(
            "fullest worker",
            float(fullest(mean)),
            Unit::Count,
            format!(
                "{} on average + {deviations} standard deviations (√ of it)",
                count(mean)
            ),
        )
        .from(&[costs::DEVIATIONS.source]),
        limit: Some(Limit {
            connections: full_mean
                .saturating_mul(workers)
                .saturating_mul(share.active),
            effect: Effect::Stops,
            formula: format!(
                "a mean of {} a worker makes the fullest reach {}, × {}{}",
                count(full_mean),
                count(most),
                told,
                times(share.active)
            ),
            sources: vec![costs::DEVIATIONS.source],
            remedy: format!(
                "Raise worker_connections to {}, with worker_rlimit_nofile above it, and listen with reuseport. The \
                 fullest worker refuses clients while others have room; without reuseport the spread is worse, because \
                 the kernel wakes the worker that was last asleep first.",
                count(worker_connections_needed(workers, share))
            ),
        }),
    }
}

fn descriptors(hop: &Hop, workers: u64, share: &Share) -> Resource {
    let mut demand = Demand::new("descriptors a worker", Unit::Count);
    let kept = costs::NGINX_DESCRIPTORS_KEPT;
    demand.fixed.push((kept.value, "kept".into(), kept.source));
    demand.terms.push(Term::new(
        2.0 / float(workers),
        "(2 sockets, dealt out to the workers)",
        costs::NGINX_SLOTS.source,
    ));
    demand.supply = hop
        .descriptors
        .map(|most| (float(most), format!("{} descriptors", count(most))));
    demand.remedy =
        "Raise worker_rlimit_nofile (and fs.nr_open beyond 1,048,576), or add workers.".into();
    demand.resource(share)
}

/// nginx keeps the limit it is started with, which is far below its slots unless it is told otherwise.
fn descriptors_unknown(hop: &Hop, workers: u64) -> Option<String> {
    if hop.descriptors.is_some() {
        return None;
    }
    let soft = costs::DESCRIPTORS_SOFT.value_u64();
    let kept = costs::NGINX_DESCRIPTORS_KEPT.value_u64();
    Some(format!(
        "RLIMIT_NOFILE of a worker is not known: give worker_rlimit_nofile as descriptors=. Without that directive it is \
         usually {} soft, which ends a node at {} connections.",
        count(soft),
        count((soft - kept) / 2 * workers)
    ))
}

/// The slots of all workers, allocated and touched at start.
fn preallocated(nginx: &Nginx, workers: u64) -> f64 {
    float(workers) * float(nginx.worker_connections) * costs::NGINX_SLOT_BYTES.value
}

/// What a client that does not read holds in the two sockets of its proxied connection.
fn parked(nginx: &Nginx) -> f64 {
    let sending = nginx
        .send_buffer_bytes
        .map_or(costs::SEND_BUFFER_MAX.value, |bytes| {
            // The kernel doubles SO_SNDBUF for its own overhead: socket(7).
            2.0 * float(bytes)
        });
    sending + costs::RECEIVE_BUFFER.value
}

fn memory(
    chain: &Chain,
    hop: &Hop,
    nginx: &Nginx,
    workers: u64,
    told: &str,
    share: &Share,
) -> Resource {
    let mut demand = Demand::new("memory", Unit::Bytes);
    demand.fixed.push((
        preallocated(nginx, workers),
        format!(
            "preallocated ({} × {} worker_connections × {} B)",
            told,
            count(nginx.worker_connections),
            costs::NGINX_SLOT_BYTES.value
        ),
        costs::NGINX_SLOT_BYTES.source,
    ));
    demand.terms.push(Term::cost(
        costs::NGINX_CONNECTION_BYTES,
        "pools and proxy buffers",
    ));
    demand.terms.push(Term::new(
        2.0 * costs::SOCKET_BYTES.value,
        "two sockets",
        costs::SOCKET_BYTES.source,
    ));
    demand.terms.push(Term::new(
        2.0 * chain.traffic.in_flight_bytes(parked(nginx) / 2.0),
        "packets of a push",
        costs::IN_FLIGHT_BYTES.source,
    ));
    demand.terms.push(Term::new(
        chain.traffic.slow_share * parked(nginx),
        "for those that do not read",
        parked_source(nginx),
    ));
    demand.supply = memory_supply(hop);
    demand.remedy =
        "More memory, more nodes, or fewer worker_connections where they are not used.".into();
    demand.resource(share)
}

fn slow_readers(chain: &Chain, nginx: &Nginx, share: &Share) -> Resource {
    let mut demand = Demand::new("of it under slow readers", Unit::Bytes);
    let called = match nginx.send_buffer_bytes {
        Some(_) => "each (its sndbuf, and what the upstream had sent)",
        None => "each (the kernel tunes up to tcp_wmem[2], and what the upstream had sent)",
    };
    demand
        .terms
        .push(Term::new(parked(nginx), called, parked_source(nginx)));
    let slow = Share {
        connections: truncate((share.float() * chain.traffic.slow_share).ceil()),
        ..*share
    };
    demand.resource(&slow)
}

fn parked_source(nginx: &Nginx) -> &'static str {
    if nginx.send_buffer_bytes.is_some() {
        "socket(7): SO_SNDBUF is doubled; Linux: tcp_rmem[1]"
    } else {
        "Linux: tcp_wmem[2], tcp_rmem[1]"
    }
}

/// What comes in on one side goes out on the other, in both directions.
fn bandwidth(chain: &Chain, hop: &Hop, share: &Share) -> Resource {
    let traffic = &chain.traffic;
    let terms = [
        (traffic.down_bits_per_s(chain.connections), "to the client"),
        (traffic.up_bits_per_s(chain.connections), "to the upstream"),
    ];
    Demand::bandwidth("bandwidth each way", hop, &terms).resource(share)
}

fn processor(chain: &Chain, hop: &Hop, workers: u64, share: &Share) -> Resource {
    // A worker is one thread.
    let supply = hop.cores.map(|cores| {
        let used = cores.min(workers);
        (
            float(used),
            format!(
                "{} ({}, {})",
                counted(used, "core"),
                counted(cores, "core"),
                counted(workers, "worker")
            ),
        )
    });
    let (delivery_s, ping_s) = (costs::NGINX_DELIVERY_S, costs::NGINX_PING_S);
    let mut demand = Demand::processor(chain, delivery_s, ping_s, supply);
    demand.remedy = "More cores and a worker for each, or more nodes.".into();
    demand.resource(share)
}

/// Why a generous `worker_connections` is not free.
fn preallocation(hop: &Hop, nginx: &Nginx, workers: u64, share: &Share) -> Option<String> {
    let slots = workers.saturating_mul(nginx.worker_connections);
    let needed = share.connections.saturating_mul(2);
    let memory = preallocated(nginx, workers);
    if memory < PREALLOCATION_REMARK_BYTES || needed.saturating_mul(2) > slots {
        return None;
    }
    let all = bytes(truncate(memory * float(hop.nodes)));
    Some(format!(
        "nginx allocates and touches all its slots when a worker starts: {workers} × {} × {} B = {} on each node, {all} \
         on all of them, before the first client; these connections use {} of the {} slots. A worker cannot hold \
         {} sockets anyway where fs.nr_open is below it.",
        count(nginx.worker_connections),
        costs::NGINX_SLOT_BYTES.value,
        bytes(truncate(memory)),
        count(needed),
        count(slots),
        count(nginx.worker_connections),
    ))
}
