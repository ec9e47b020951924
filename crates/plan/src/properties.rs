//! What holds for every chain.

use super::*;
use myriad_layout::WIDTH_MAX;
use proptest::prelude::*;

fn machine() -> impl Strategy<Value = (Option<u64>, Option<u64>, Option<u64>)> {
    (
        proptest::option::of(1..=256_u64),
        proptest::option::of((1..=512_u64).prop_map(|gib| gib << 30)),
        proptest::option::of((1..=400_u64).prop_map(|gigabits| gigabits * 1_000_000_000)),
    )
}

fn nginx() -> impl Strategy<Value = Nginx> {
    let workers = proptest::option::of(1..=64_u64);
    let buffer = proptest::option::of(4_096..=1_048_576_u64);
    (workers, 1..=2_000_000_u64, buffer).prop_map(
        |(workers, worker_connections, send_buffer_bytes)| Nginx {
            workers,
            worker_connections,
            send_buffer_bytes,
        },
    )
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        prop_oneof![
            Just(SlbMode::Dr),
            Just(SlbMode::Nat),
            Just(SlbMode::FullNat)
        ]
        .prop_map(Kind::Slb),
        nginx().prop_map(Kind::Nginx),
        nginx().prop_map(Kind::Ingress),
        (1_024..=1_u64 << 24, 1_u64 << 20..=1 << 36, any::<bool>()).prop_map(
            |(outbound_bytes, buffered_bytes, tls)| {
                Kind::Myriad(Myriad {
                    outbound_bytes,
                    buffered_bytes: Some(buffered_bytes),
                    tls,
                })
            }
        ),
    ]
}

fn hop() -> impl Strategy<Value = Hop> {
    let sizes = (1..=1_000_u64, 0..=3_u64, 1..=64_u64, 1..=64_512_u64);
    let limits = (
        proptest::option::of(1..=100_u64),
        proptest::option::of(64..=1_048_576_u64),
    );
    (kind(), machine(), sizes, limits).prop_map(|(kind, machine, sizes, limits)| {
        let (nodes, spare, addresses, ports) = sizes;
        let mut hop = Hop::new(kind, nodes + spare);
        (hop.cores, hop.memory_bytes, hop.bandwidth_bits_per_s) = machine;
        (hop.endpoints, hop.descriptors) = limits;
        (hop.spare, hop.addresses, hop.ports) = (spare, addresses, ports);
        hop
    })
}

fn traffic() -> impl Strategy<Value = Traffic> {
    let audience = proptest::option::of(1..=1_000_000_u64);
    let interval = proptest::option::of(1.0..=300.0_f64);
    (
        0.0..=100.0_f64,
        audience,
        0..=1_000_000_u64,
        interval,
        0.0..=0.2_f64,
    )
        .prop_map(
            |(messages_per_s, audience, message_bytes, ping_interval_s, slow_share)| Traffic {
                messages_per_s,
                audience,
                message_bytes,
                ping_interval_s,
                slow_share,
            },
        )
}

fn chains() -> impl Strategy<Value = Chain> {
    let hops = proptest::collection::vec(hop(), 1..=5);
    (
        1..=2_000_000_000_u64,
        1..=4_u64,
        traffic(),
        hops,
        1..=50_000_000_u64,
    )
        .prop_map(
            |(connections, connections_per_client, traffic, hops, region_connections)| Chain {
                connections,
                connections_per_client,
                traffic,
                hops,
                region_connections,
                broker_replicas: 3,
            },
        )
}

/// Connections the chain carries; a chain without limits carries everything.
fn capacity(chain: &Chain) -> u64 {
    Plan::new(chain, &[])
        .weakest
        .map_or(u64::MAX, |weakest| weakest.connections)
}

fn is_of_workers(resource: &Resource) -> bool {
    matches!(resource.name, "worker_connections" | "fullest worker")
}

/// The number in "Raise worker_connections to 1,234, ...".
fn advised(remedy: &str) -> u64 {
    let (_, rest) = remedy
        .split_once("worker_connections to ")
        .expect("a number is advised");
    let number = rest.split(", ").next().unwrap_or_default();
    number.replace(',', "").parse().expect("a count")
}

proptest! {
    #[test]
    fn the_weakest_hop_is_the_least_of_all_limits_that_stop(chain in chains()) {
        let plan = Plan::new(&chain, &[]);
        let least = plan.hops.iter()
            .flat_map(|hop| &hop.resources)
            .filter_map(|resource| resource.limit.as_ref())
            .filter(|limit| limit.effect == Effect::Stops)
            .map(|limit| limit.connections)
            .min();
        prop_assert_eq!(plan.weakest.as_ref().map(|weakest| weakest.connections), least);
        prop_assert_eq!(plan.carries, least.is_none_or(|least| least >= chain.connections));
        if let Some(weakest) = &plan.weakest {
            let named = &plan.hops[weakest.hop - 1];
            prop_assert_eq!(named.kind, weakest.kind);
            prop_assert_eq!(named.first_stop().unwrap().1.connections, weakest.connections);
        }
    }

    #[test]
    fn another_node_never_lowers_the_capacity(chain in chains(), which in any::<prop::sample::Index>()) {
        let mut larger = chain.clone();
        let index = which.index(chain.hops.len());
        larger.hops[index].nodes += 1;
        prop_assert!(capacity(&larger) >= capacity(&chain));
    }

    #[test]
    fn a_larger_machine_never_lowers_the_capacity(chain in chains(), which in any::<prop::sample::Index>()) {
        let mut larger = chain.clone();
        let hop = &mut larger.hops[which.index(chain.hops.len())];
        hop.memory_bytes = hop.memory_bytes.map(|bytes| bytes * 2);
        hop.bandwidth_bits_per_s = hop.bandwidth_bits_per_s.map(|bits| bits * 2);
        hop.addresses += 1;
        hop.descriptors = hop.descriptors.map(|most| most * 2);
        prop_assert!(capacity(&larger) >= capacity(&chain));
    }

    #[test]
    fn another_hop_never_raises_the_capacity(chain in chains(), hop in hop()) {
        let mut longer = chain.clone();
        longer.hops.insert(0, hop);
        prop_assert!(capacity(&longer) <= capacity(&chain));
    }

    #[test]
    fn at_its_capacity_a_chain_carries_and_one_further_it_does_not(chain in chains()) {
        // With a fixed audience a larger crowd is a quieter one; a limit holds for traffic as it was given.
        let mut chain = chain;
        chain.traffic.audience = None;
        let most = capacity(&chain);
        if (1..u64::MAX / 2).contains(&most) {
            chain.connections = most;
            prop_assert!(Plan::new(&chain, &[]).carries);
            chain.connections = most + 1;
            prop_assert!(!Plan::new(&chain, &[]).carries);
        }
    }

    #[test]
    fn scaling_out_gives_every_region_enough_nodes(chain in chains(), connections in 1..=10_000_000_000_u64) {
        let plan = Plan::new(&chain, &[connections]);
        let scale = &plan.scale_out[0];
        let regions = myriad_units::truncate(scale.regions.value);
        prop_assert!(regions.saturating_mul(chain.region_connections) >= connections);
        for (hop, given) in scale.hops.iter().zip(&chain.hops) {
            let Some(a_region) = hop.nodes_a_region else {
                prop_assert_eq!((hop.connections_a_node, hop.nodes), (Some(0), None));
                continue;
            };
            prop_assert_eq!(hop.nodes, Some(a_region.saturating_mul(regions)));
            if let Some(a_node) = hop.connections_a_node {
                prop_assert!(a_node > 0);
                let up = a_region - given.spare;
                prop_assert!(up.saturating_mul(a_node) >= connections.div_ceil(regions));
            }
        }
    }

    #[test]
    fn the_nodes_of_a_region_carry_it(chain in chains()) {
        // One region, and everybody gets every publication: both tables speak of the same traffic.
        let mut chain = chain;
        chain.traffic.audience = None;
        chain.region_connections = chain.connections;
        let plan = Plan::new(&chain, &[chain.connections]);
        let mut scaled = chain.clone();
        for (hop, nodes) in scaled.hops.iter_mut().zip(&plan.scale_out[0].hops) {
            let Some(nodes) = nodes.nodes_a_region else {
                prop_assert!(!plan.carries, "a hop that no number of nodes makes enough is given once");
                return Ok(());
            };
            let given = hop.active();
            hop.nodes = nodes;
            hop.endpoints = hop.endpoints.map(|all| (all * hop.active()).div_ceil(given));
        }
        let again = Plan::new(&scaled, &[]);
        prop_assert!(again.carries, "{:?}", again.weakest);
    }

    #[test]
    fn the_advised_worker_connections_carry_every_worker(chain in chains()) {
        let advice = Plan::new(&chain, &[]);
        let mut mended = chain.clone();
        for (hop, planned) in mended.hops.iter_mut().zip(&advice.hops) {
            let (Kind::Nginx(nginx) | Kind::Ingress(nginx)) = &mut hop.kind else {
                continue;
            };
            for resource in &planned.resources {
                let Some(limit) = resource.limit.as_ref().filter(|_| is_of_workers(resource)) else {
                    continue;
                };
                if limit.connections < chain.connections {
                    nginx.worker_connections = nginx.worker_connections.max(advised(&limit.remedy));
                }
            }
        }
        let plan = Plan::new(&mended, &[]);
        for resource in plan.hops.iter().flat_map(|hop| &hop.resources).filter(|found| is_of_workers(found)) {
            let limit = resource.limit.as_ref().expect("workers have a limit");
            prop_assert!(limit.connections >= chain.connections, "{limit:?}");
        }
    }

    #[test]
    fn every_number_has_a_formula_and_every_limit_a_way_out(chain in chains()) {
        let plan = Plan::new(&chain, &[chain.connections]);
        for resource in plan.hops.iter().flat_map(|hop| &hop.resources) {
            prop_assert!(!resource.need.formula.is_empty(), "{}", resource.name);
            prop_assert!(resource.need.value.is_finite() && resource.need.value >= 0.0, "{:?}", resource);
            if let Some(limit) = &resource.limit {
                prop_assert!(!limit.formula.is_empty() && !limit.remedy.is_empty(), "{}", resource.name);
                prop_assert!(!limit.sources.is_empty(), "{}", resource.name);
            }
        }
        prop_assert!(render(&plan, WIDTH_MAX).lines().count() > 10);
    }
}
