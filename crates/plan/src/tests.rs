//! Chains whose numbers can be checked by hand, and the whole text of some.

use super::*;
use myriad_layout::WIDTH_MAX;
use myriad_units::count;

fn chain(connections: u64, hops: Vec<Hop>) -> Chain {
    Chain {
        connections,
        connections_per_client: 1,
        traffic: Traffic::default(),
        hops,
        region_connections: 10_000_000,
        broker_replicas: 3,
    }
}

/// Eight nginx with eight workers of 100,000 `worker_connections`.
fn eight_nginx() -> Hop {
    let mut hop = Hop::nginx(8);
    hop.kind = Kind::Nginx(Nginx {
        workers: Some(8),
        worker_connections: 100_000,
        send_buffer_bytes: None,
    });
    hop
}

fn limit(plan: &Plan, hop: usize, name: &str) -> u64 {
    plan.hops[hop]
        .resources
        .iter()
        .find(|resource| resource.name == name)
        .and_then(|resource| resource.limit.as_ref())
        .unwrap_or_else(|| panic!("no limit called {name}"))
        .connections
}

fn need(plan: &Plan, hop: usize, name: &str) -> f64 {
    plan.hops[hop]
        .resources
        .iter()
        .find(|resource| resource.name == name)
        .unwrap_or_else(|| panic!("no resource called {name}"))
        .need
        .value
}

#[test]
fn eight_nginx_end_where_their_fullest_worker_does() {
    let mut chain = chain(5_000_000, vec![eight_nginx()]);
    let plan = Plan::new(&chain, &[]);
    let weakest = plan.weakest.clone().unwrap();
    assert_eq!(weakest.resource, "fullest worker");
    assert_eq!(count(weakest.connections), "3,143,168");
    assert!(!plan.carries);
    // 6.4 million slots, two of each worker its own, two for each connection: measured with 102 slots, which carry 50.
    let slots = limit(&plan, 0, "worker_connections");
    assert_eq!(slots, 8 * 8 * ((100_000 - 2) / 2));

    chain.connections_per_client = 2;
    chain.connections = 3_143_168;
    let plan = Plan::new(&chain, &[]);
    assert_eq!(plan.weakest.unwrap().clients, 1_571_584);
    assert_eq!(plan.clients, 1_571_584);
    assert!(plan.carries);
}

#[test]
fn with_one_address_each_eight_nginx_end_much_earlier_at_their_ports() {
    let plan = Plan::new(&chain(3_000_000, vec![eight_nginx(), Hop::myriad(4)]), &[]);
    let weakest = plan.weakest.unwrap();
    assert_eq!((weakest.hop, weakest.resource), (1, "source ports"));
    assert_eq!(weakest.connections, 8 * 28_232 * 4);

    let mut enough = eight_nginx();
    enough.addresses = 4;
    let plan = Plan::new(&chain(3_000_000, vec![enough, Hop::myriad(4)]), &[]);
    assert_eq!(plan.weakest.unwrap().resource, "fullest worker");
    assert!(plan.carries);
}

#[test]
fn a_million_worker_connections_cost_their_memory_before_the_first_client() {
    let mut hop = eight_nginx();
    hop.memory_bytes = Some(4 << 30);
    let Kind::Nginx(nginx) = &mut hop.kind else {
        unreachable!()
    };
    nginx.worker_connections = 1_000_000;
    let plan = Plan::new(&chain(1_000_000, vec![hop]), &[]);
    // 8 × 1,000,000 × 432 B = 3.22 GiB of the 3.5 GiB that may be used.
    let weakest = plan.weakest.unwrap();
    assert_eq!(weakest.resource, "memory");
    assert!(weakest.connections < 100_000, "{}", weakest.connections);
    let remarks = plan.hops[0].remarks.join(" ");
    assert!(
        remarks.contains("8 × 1,000,000 × 432 B = 3.22 GiB on each node, 25.7 GiB"),
        "{remarks}"
    );
}

#[test]
fn the_fullest_of_several_workers_is_full_before_the_mean_is() {
    let mut chain = chain(3_143_168, vec![eight_nginx()]);
    let plan = Plan::new(&chain, &[]);
    let even = limit(&plan, 0, "worker_connections");
    let fullest = limit(&plan, 0, "fullest worker");
    // 49,112 + 4 × √49,112 = 49,998 of 49,999.
    assert_eq!(fullest, 49_112 * 64);
    assert!(fullest < even);
    assert!(plan.carries);
    // One more, and a worker refuses clients although the slots of all workers together would do.
    chain.connections += 1;
    assert!(chain.connections < even);
    let plan = Plan::new(&chain, &[]);
    assert!(!plan.carries);
    let advice = plan.weakest.unwrap().remedy;
    assert!(advice.contains("worker_connections to 100,002"), "{advice}");
}

#[test]
fn an_ingress_has_a_worker_for_each_core() {
    let mut hop = Hop::ingress(5);
    let plan = Plan::new(&chain(100_000, vec![hop.clone()]), &[]);
    assert_eq!(limit(&plan, 0, "worker_connections"), 5 * 4 * 8_191);
    assert!(plan.hops[0].remarks[0].contains("4 are assumed"));
    let text = render(&plan, WIDTH_MAX);
    assert!(text.contains("× 4 workers (assumed)"), "{text}");
    hop.cores = Some(16);
    let plan = Plan::new(&chain(100_000, vec![hop]), &[]);
    assert_eq!(limit(&plan, 0, "worker_connections"), 5 * 16 * 8_191);
}

#[test]
fn what_is_behind_myriad_is_refused() {
    let ends_late = chain(1_000_000, vec![Hop::myriad(3), Hop::nginx(2)]);
    let error = ends_late.check().unwrap_err();
    assert_eq!((error.hop, error.kind), (2, "nginx"));
    let sentence = error.to_string();
    assert!(
        sentence.starts_with("hop 2 (nginx) is behind myriad"),
        "{sentence}"
    );
    let twice = chain(1_000_000, vec![Hop::myriad(3), Hop::myriad(2)]);
    assert_eq!(twice.check().unwrap_err().hop, 2);
    for hops in [
        vec![],
        vec![Hop::nginx(2)],
        vec![Hop::slb(2), Hop::nginx(2), Hop::myriad(3)],
    ] {
        assert_eq!(chain(1_000_000, hops).check(), Ok(()));
    }
}

#[test]
fn one_virtual_address_before_a_hop_takes_its_four_tuples() {
    let mut behind = Hop::myriad(10);
    behind.endpoints = Some(1);
    let plan = Plan::new(&chain(100_000, vec![eight_nginx(), behind]), &[]);
    assert_eq!(limit(&plan, 0, "source ports"), 8 * 28_232);
}

#[test]
fn only_a_balancer_that_hides_sources_needs_ports() {
    for (mode, ports) in [
        (SlbMode::Dr, false),
        (SlbMode::Nat, false),
        (SlbMode::FullNat, true),
    ] {
        let hops = vec![Hop::new(Kind::Slb(mode), 2), Hop::myriad(3)];
        let plan = Plan::new(&chain(1_000_000, hops), &[]);
        let named = plan.hops[0]
            .resources
            .iter()
            .any(|resource| resource.name == "source ports");
        assert_eq!(named, ports, "{mode:?}");
        let expected = if ports { 2 * 28_232 * 3 } else { 3_000_000 };
        assert_eq!(plan.weakest.unwrap().connections, expected);
    }
}

#[test]
fn a_million_idle_connections_need_what_was_measured() {
    let mut chain = chain(1_000_000, vec![Hop::myriad(1)]);
    chain.traffic.messages_per_s = 0.0;
    chain.traffic.slow_share = 0.0;
    let plan = Plan::new(&chain, &[]);
    assert!((need(&plan, 0, "processor") - 0.311).abs() < 1e-9);
    // 99 B, a socket of 4,240 B, and room for a packet to everybody.
    assert!((need(&plan, 0, "memory") - 1e6 * (99.0 + 4_240.0 + 1_300.0)).abs() < 1.0);
    assert_eq!(plan.weakest.unwrap().resource, "max-connections");
}

#[test]
fn a_hop_with_tls_takes_its_keys_and_its_handshakes() {
    let plan = |tls| {
        let mut hop = Hop::myriad(1);
        hop.cores = Some(2);
        let Kind::Myriad(myriad) = &mut hop.kind else {
            unreachable!("a hop of Myriad");
        };
        myriad.tls = tls;
        Plan::new(&chain(1_000_000, vec![hop]), &[])
    };
    let (plain, secured) = (plan(false), plan(true));
    let ratio = |name| need(&secured, 0, name) / need(&plain, 0, name);
    let keys = need(&secured, 0, "memory") - need(&plain, 0, "memory");
    assert!((keys - 1e6 * 311.0).abs() < 1.0, "{keys}");
    for name in ["processor", "a push to everybody, at least"] {
        assert!((ratio(name) - 1.11).abs() < 1e-6, "{name}");
    }
    // 305 s for a million, instead of 16 s.
    let back = need(&secured, 0, "time until all are back");
    assert!((back - 1e6 / 3_277.0).abs() < 1e-6, "{back}");
}

#[test]
fn queues_for_slow_readers_end_at_the_bound_of_all_queues() {
    let mut chain = chain(1_000_000, vec![Hop::myriad(1)]);
    chain.traffic.slow_share = 0.01;
    let plan = Plan::new(&chain, &[]);
    // 10,000 × 1 MiB would be 10.5 GB; buffered-bytes-max ends it at 2 GiB.
    let expected = 10_000.0 * 65_536.0 + f64::from(1 << 30) * 2.0;
    assert!((need(&plan, 0, "of it under slow readers") - expected).abs() < 1.0);
    // Of 8 GiB the server keeps an eighth for them, unless it is told otherwise.
    chain.hops[0].memory_bytes = Some(8 << 30);
    let plan = Plan::new(&chain, &[]);
    let expected = 10_000.0 * 65_536.0 + f64::from(1 << 30);
    assert!((need(&plan, 0, "of it under slow readers") - expected).abs() < 1.0);
}

#[test]
fn large_messages_reach_memory_and_leave_the_processor_without_a_limit() {
    let mut hop = Hop::myriad(1);
    hop.cores = Some(8);
    let mut chain = chain(1_000_000, vec![hop]);
    chain.traffic.slow_share = 0.0;
    let small = Plan::new(&chain, &[]);
    assert!(limit(&small, 0, "processor") > 0);
    chain.traffic.message_bytes = 100_000;
    let large = Plan::new(&chain, &[]);
    let more = need(&large, 0, "memory") - need(&small, 0, "memory");
    // 70 packets would be 191 KB; the kernel takes 64 KiB of a connection.
    assert!((more - 1e6 * (65_536.0 - 1_300.0)).abs() < 1.0, "{more}");
    let processor = large.hops[0]
        .resources
        .iter()
        .find(|one| one.name == "processor");
    assert_eq!(processor.expect("a need").limit, None);
    assert!(large.hops[0].remarks[0].contains("70 packets"));
}

#[test]
fn myriad_fills_small_tables_and_nginx_is_asked_for_its_limit() {
    let mut hop = Hop::myriad(1);
    hop.descriptors = Some(600);
    let plan = Plan::new(&chain(100_000, vec![hop]), &[]);
    // As many rings as the process has descriptors for, each of 600 slots.
    assert_eq!(limit(&plan, 0, "descriptor tables"), (600 - 64) * 600);
    assert_eq!(need(&plan, 0, "descriptor tables"), 167.0);

    let mut hop = eight_nginx();
    let plan = Plan::new(&chain(1_000_000, vec![hop.clone()]), &[]);
    let remarks = plan.hops[0].remarks.join(" ");
    assert!(
        remarks.contains("worker_rlimit_nofile") && remarks.contains("ends a node at 3,968"),
        "{remarks}"
    );
    hop.descriptors = Some(1_024);
    let plan = Plan::new(&chain(1_000_000, vec![hop]), &[]);
    assert_eq!(limit(&plan, 0, "descriptors a worker"), 8 * 3_968);
    assert_eq!(plan.hops[0].remarks, Vec::<String>::new());
}

#[test]
fn a_spare_node_carries_nothing() {
    let mut hop = Hop::myriad(3);
    hop.spare = 1;
    let plan = Plan::new(&chain(2_000_001, vec![hop]), &[]);
    assert_eq!(plan.weakest.clone().unwrap().connections, 2_000_000);
    assert_eq!(plan.hops[0].connections_a_node, 1_000_001);
    assert!(!plan.carries);
}

#[test]
fn a_hundred_millions_are_ten_regions() {
    let hops = vec![eight_nginx(), Hop::myriad(2)];
    let plan = Plan::new(&chain(1_000_000, hops), &[100_000_000]);
    let scale = &plan.scale_out[0];
    assert_eq!(scale.regions.value, 10.0);
    let [nginx, myriad] = scale.hops.as_slice() else {
        panic!("a hop is missing")
    };
    assert_eq!((myriad.nodes_a_region, myriad.nodes), (Some(10), Some(100)));
    // Ten servers behind: 282,320 ports, fewer than the 399,992 connections its slots allow.
    assert_eq!(
        (nginx.connections_a_node, nginx.resource),
        (Some(282_320), Some("source ports"))
    );
    assert_eq!(nginx.nodes_a_region, Some(10_000_000_u64.div_ceil(282_320)));
    // 128 B and what NATS puts around them: to 100 nodes, 90 of them in other regions than the streams.
    let message = 128.0 + costs::BROKER_BYTES.value;
    assert_eq!(scale.broker[0].value, 100.0 * message);
    assert_eq!(scale.broker[1].value, 90.0 * message);
}

#[test]
fn with_an_audience_more_connections_are_more_channels() {
    let mut chain = chain(1_000_000, vec![Hop::myriad(1)]);
    chain.traffic.messages_per_s = 1_000.0;
    chain.traffic.audience = Some(100);
    let plan = Plan::new(&chain, &[10_000_000]);
    let deliveries = &plan.scale_out[0].broker[4];
    assert_eq!(deliveries.name, "deliveries to clients");
    assert!((deliveries.value - 1_000_000.0).abs() < 1e-3);
}

#[test]
fn each_node_reads_every_stream_whoever_subscribes() {
    let mut chain = chain(1_000_000, vec![Hop::myriad(1)]);
    chain.traffic.messages_per_s = 1_000.0;
    chain.traffic.audience = Some(5);
    let broker = &Plan::new(&chain, &[1_000_000]).scale_out[0].broker;
    assert_eq!(broker[0].value, 128.0 + costs::BROKER_BYTES.value);
    assert_eq!(broker[1].value, 0.0);
    let cores = 1_000.0 * (3.0 * costs::BROKER_STORE_S.value + costs::BROKER_COPY_S.value);
    assert!((broker[3].value - cores).abs() < 1e-9);
}

#[test]
fn endpoints_that_were_given_grow_with_the_nodes() {
    let mut behind = Hop::myriad(2);
    behind.endpoints = Some(8);
    let chain = chain(1_000_000, vec![eight_nginx(), behind]);
    let scale = &Plan::new(&chain, &[10_000_000]).scale_out[0];
    // Ten servers with four endpoints each: no longer the ports, but the fullest worker is the limit.
    assert_eq!(
        (scale.hops[0].connections_a_node, scale.hops[0].resource),
        (Some(392_896), Some("fullest worker"))
    );
}

#[test]
fn what_no_number_of_nodes_carries_is_said() {
    let mut hop = Hop::nginx(2);
    hop.memory_bytes = Some(64 << 20);
    let plan = Plan::new(&chain(1_000_000, vec![hop]), &[10_000_000]);
    let scale = &plan.scale_out[0].hops[0];
    assert_eq!((scale.nodes, scale.nodes_a_region), (None, None));
    let text = render(&plan, WIDTH_MAX);
    assert!(
        text.contains("not with such nodes")
            && text.contains("no number of such nodes carries them"),
        "{text}"
    );
}

#[test]
fn a_plan_reads_well() {
    let mut proxies = eight_nginx();
    proxies.memory_bytes = Some(64 << 30);
    proxies.cores = Some(8);
    proxies.bandwidth_bits_per_s = Some(10_000_000_000);
    let mut servers = Hop::myriad(4);
    servers.cores = Some(8);
    servers.memory_bytes = Some(32 << 30);
    servers.spare = 1;
    let hops = vec![Hop::slb(2), proxies, Hop::ingress(5), servers];
    let mut chain = chain(1_000_000, hops);
    chain.connections_per_client = 2;
    insta::assert_snapshot!(
        "chain",
        render(&Plan::new(&chain, &[100_000_000, 1_000_000_000]), WIDTH_MAX)
    );
}

#[test]
fn the_known_case_reads_well() {
    let mut chain = chain(3_200_000, vec![eight_nginx()]);
    chain.connections_per_client = 2;
    insta::assert_snapshot!("eight_nginx", render(&Plan::new(&chain, &[]), WIDTH_MAX));
}

#[test]
fn a_plan_as_json_has_formulas_and_sources() {
    let plan = Plan::new(&chain(1_000_000, vec![Hop::myriad(1)]), &[100_000_000]);
    let json = serde_json::to_value(&plan).unwrap();
    assert_eq!(json["carries"], true);
    assert_eq!(json["weakest"]["connections"], 1_000_000);
    let first = &json["hops"][0]["resources"][0];
    assert_eq!(first["need"]["unit"], "count");
    assert!(!first["need"]["formula"].as_str().unwrap().is_empty());
    assert!(!first["limit"]["sources"][0].as_str().unwrap().is_empty());
}

#[test]
fn a_terminal_of_80_columns_gets_no_longer_lines() {
    let mut chain = chain(5_000_000, vec![eight_nginx(), Hop::slb(2), Hop::myriad(5)]);
    chain.connections_per_client = 2;
    for line in render(&Plan::new(&chain, &[100_000_000]), 80).lines() {
        assert!(myriad_layout::columns(line) <= 80, "{line}");
    }
}
