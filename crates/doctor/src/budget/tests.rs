//! Budgets of machines that do not exist.

use super::*;
use crate::limits::Role;
use crate::machine::{
    Cgroup, CgroupVersion, ConnectionCost, Conntrack, Cores, CostSource, Descriptors, Kernel,
    Memory, Ports, Tcp,
};

const GIB: u64 = 1 << 30;

/// Two cores, 24 GiB, a hard limit of 20,000 descriptors, everything else as Linux sets it.
fn small_machine() -> Machine {
    Machine {
        kernel: Kernel {
            release: "6.18.44".into(),
            major: 6,
            minor: 18,
        },
        cores: Cores {
            online: 2,
            usable: 2,
        },
        memory: Memory {
            total_bytes: 24 * GIB,
            available_bytes: 23 * GIB,
            slab_bytes: 80 << 20,
            page_bytes: 4096,
        },
        cgroup: None,
        descriptors: Descriptors {
            table_soft: 20_000,
            table_hard: 20_000,
            table_ceiling: 1_048_576,
            files_max: 2_465_610,
            files_open: 483,
            files_max_exempt: false,
        },
        ports: Ports {
            first: 32_768,
            last: 60_999,
            reserved: 0,
        },
        tcp: Tcp {
            memory_pages: [287_832, 383_779, 575_664],
            backlog_max: 4_096,
            orphans_max: 131_072,
            hash_buckets: Some(262_144),
        },
        conntrack: Some(Conntrack {
            entries_max: 262_144,
            entries: 0,
        }),
        epoll_watches_max: Some(5_490_265),
        io_uring: IoUring::Allowed,
        connection_cost: ConnectionCost {
            sockets_bytes: 7_900,
            source: CostSource::Measured { pairs: 2_000 },
        },
    }
}

fn both_ends(machine: &Machine) -> Budget {
    Budget::new(machine, Load::broadcast(Role::BothEnds))
}

#[test]
fn a_small_machine_allows_a_million_with_both_ends() {
    let decision = both_ends(&small_machine()).connections(1_000_000);
    assert_eq!(decision.connections, 1_000_000);
    assert_eq!(
        decision.why,
        "This machine allows 1,230,515; the first thing to stop more is open files of the machine (2,465,610)."
    );
}

#[test]
fn limits_are_sorted_with_the_nearest_first() {
    let budget = both_ends(&small_machine());
    let counts: Vec<u64> = budget
        .limits
        .iter()
        .map(|limit| limit.connections)
        .collect();
    assert!(counts.is_sorted(), "{counts:?}");
    let mut names: Vec<&str> = budget.limits.iter().map(|limit| limit.name).collect();
    names.sort_unstable();
    let named = names.len();
    names.dedup();
    assert_eq!(names.len(), named, "a name appears twice");
}

#[test]
fn memory_decides_where_it_is_scarce() {
    let mut machine = small_machine();
    machine.memory.total_bytes = 4 * GIB;
    machine.memory.available_bytes = 3 * GIB;
    let budget = both_ends(&machine);
    // 3 GiB less half a gibibyte kept, over 7,900 + 2 * (250 + 200) + 1,300 bytes.
    let expected = (3 * GIB - GIB / 2) / 10_100;
    let decision = budget.connections(1_000_000);
    assert_eq!(decision.connections, expected);
    assert!(
        decision.why.starts_with("Memory allows 265,"),
        "{}",
        decision.why
    );
    assert!(
        decision.why.contains("measured here with 2,000 pairs"),
        "{}",
        decision.why
    );
}

#[test]
fn a_machine_without_room_allows_none_and_does_not_wrap() {
    let mut machine = small_machine();
    machine.memory.available_bytes = 100 << 20;
    machine.descriptors.files_open = machine.descriptors.files_max;
    let decision = both_ends(&machine).connections(1_000_000);
    assert_eq!(decision.connections, 0);
}

#[test]
fn a_control_group_is_a_tighter_limit_than_the_machine() {
    let mut machine = small_machine();
    machine.cgroup = Some(Cgroup {
        version: CgroupVersion::V2,
        path: "/docker/abc".into(),
        limit_bytes: 2 * GIB,
        used_bytes: GIB / 4,
    });
    let budget = both_ends(&machine);
    assert_eq!(budget.first_stop().name, "memory of the control group");
    assert_eq!(
        budget.first_stop().connections,
        (2 * GIB - GIB / 4 - GIB / 2) / 10_100
    );
    assert!(
        budget
            .first_stop()
            .evidence
            .starts_with("memory.max of /docker/abc is 2.15 GB")
    );
}

#[test]
fn root_is_not_bound_by_the_machines_open_files() {
    let mut machine = small_machine();
    machine.descriptors.files_max_exempt = true;
    let budget = both_ends(&machine);
    assert_eq!(budget.first_stop().name, "memory");
    assert!(budget.first_stop().connections > 2_000_000);
}

#[test]
fn connection_tracking_stops_only_where_it_tracks() {
    let mut machine = small_machine();
    assert!(
        both_ends(&machine)
            .limits
            .iter()
            .all(|limit| limit.name != "connection tracking")
    );
    machine.conntrack = Some(Conntrack {
        entries_max: 262_144,
        entries: 144,
    });
    let budget = both_ends(&machine);
    assert_eq!(budget.first_stop().name, "connection tracking");
    assert_eq!(budget.connections(1_000_000).connections, 262_000);
}

#[test]
fn epoll_watches_bind_only_the_epoll_driver() {
    let mut machine = small_machine();
    machine.epoll_watches_max = Some(400_000);
    assert_eq!(
        both_ends(&machine).connections(1_000_000).connections,
        1_000_000
    );
    machine.io_uring = IoUring::Disabled;
    let budget = both_ends(&machine);
    assert_eq!(budget.first_stop().name, "epoll watches of one user");
    assert_eq!(budget.connections(1_000_000).connections, 200_000);
    assert!(budget.remarks[0].finding.contains("io_uring_disabled"));
}

#[test]
fn a_low_descriptor_limit_is_not_a_low_number_of_connections() {
    let mut machine = small_machine();
    machine.descriptors.table_hard = 4_096;
    assert_eq!(
        both_ends(&machine).connections(1_000_000).connections,
        1_000_000
    );
    machine.descriptors.table_hard = 700;
    let budget = both_ends(&machine);
    assert_eq!(budget.first_stop().name, "descriptor tables");
    assert_eq!(budget.first_stop().connections, 100 * 4_096);
}

#[test]
fn a_crowd_elsewhere_is_bound_by_its_source_ports() {
    let budget = Budget::new(
        &small_machine(),
        Load::broadcast(Role::Crowd { sources: 2 }),
    );
    assert_eq!(budget.first_stop().name, "source ports");
    assert_eq!(budget.first_stop().connections, 2 * 28_232);
}

#[test]
fn a_server_alone_pays_for_one_end() {
    let machine = small_machine();
    let alone = Budget::new(&machine, Load::broadcast(Role::Server));
    let files = alone
        .limits
        .iter()
        .find(|limit| limit.name == "open files of the machine")
        .unwrap();
    assert_eq!(files.connections, 2_465_610 - 483 - 4_096);
    let memory = alone
        .limits
        .iter()
        .find(|limit| limit.name == "memory")
        .unwrap();
    // 23 GiB less a sixteenth of 24, over 3,950 + 250 + 200 + 1,300 bytes.
    assert_eq!(memory.connections, (23 * GIB - 24 * GIB / 16) / 5_700);
}

#[test]
fn what_degrades_is_told_once_it_is_passed() {
    let budget = both_ends(&small_machine());
    let names = |connections| {
        budget
            .degrading(connections)
            .map(|limit| limit.name)
            .collect::<Vec<_>>()
    };
    assert_eq!(names(100_000), Vec::<&str>::new());
    assert_eq!(
        names(1_000_000),
        ["orphaned sockets", "TCP buffers", "connection hash"]
    );
}

#[test]
fn remarks_name_what_is_not_a_number_of_connections() {
    let mut machine = small_machine();
    assert_eq!(both_ends(&machine).remarks, []);
    machine.tcp.backlog_max = 128;
    machine.cores.usable = 1;
    machine.kernel = Kernel {
        release: "5.15.0".into(),
        major: 5,
        minor: 15,
    };
    machine.io_uring = IoUring::KernelTooOld;
    let findings: Vec<String> = both_ends(&machine)
        .remarks
        .into_iter()
        .map(|remark| remark.finding)
        .collect();
    assert_eq!(
        findings,
        [
            "Linux 5.15.0 is older than 6.8",
            "net.core.somaxconn is 128",
            "1 of 2 cores may be used"
        ]
    );
}

#[test]
fn a_machine_survives_a_round_trip_through_json() {
    let machine = small_machine();
    let text = serde_json::to_string(&machine).unwrap();
    assert_eq!(serde_json::from_str::<Machine>(&text).unwrap(), machine);
}
