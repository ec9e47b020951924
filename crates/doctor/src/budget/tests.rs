//! Budgets of machines that do not exist.

use super::*;
use crate::limits::{Load, Paths, Program, Role};
use crate::machine::{Cgroup, CgroupVersion, Conntrack, IoUring, OldAdvice};
use crate::names;
use crate::remarks::Weight;
use crate::testing::{GIB, small_machine};

fn both_ends(machine: &Machine) -> Budget {
    Budget::new(machine, Load::broadcast(Role::BothEnds), 1_000_000)
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
    // 3 GiB less half a gibibyte kept, over 7,900 + 2 * (250 + 100) + 1,300 bytes.
    let expected = (3 * GIB - GIB / 2) / 9_900;
    let decision = budget.connections(1_000_000);
    assert_eq!(decision.connections, expected);
    assert!(
        decision.why.starts_with("Memory allows 271,"),
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
        file: "memory.max".into(),
        limit_bytes: 2 * GIB,
        used_bytes: GIB / 4,
    });
    let budget = both_ends(&machine);
    assert_eq!(budget.first_stop().name, "memory of the control group");
    assert_eq!(
        budget.first_stop().connections,
        (2 * GIB - GIB / 4 - (3 << 20)) / 9_900
    );
    assert!(
        budget
            .first_stop()
            .evidence
            .starts_with("memory.max of /docker/abc is 2 GiB")
    );
}

#[test]
fn root_is_not_bound_by_the_machines_open_files() {
    let mut machine = small_machine();
    machine.descriptors.files_max_exempt = true;
    machine.descriptors.locked_bytes_max = Some(8 << 20);
    machine.descriptors.locked_exempt = true;
    let budget = both_ends(&machine);
    assert_eq!(budget.first_stop().name, "memory");
    assert!(budget.first_stop().connections > 2_000_000);
    // But another user's program is, and that is said.
    for name in ["open files of the machine", "locked memory of one user"] {
        let limit = budget
            .limits
            .iter()
            .find(|limit| limit.name == name)
            .expect(name);
        assert!(
            limit.connections < 3_000_000 && !limit.binds_us,
            "{limit:?}"
        );
        assert!(
            limit.evidence.contains("another user's program stops here"),
            "{limit:?}"
        );
        assert_eq!(limit.concern(3_000_000), Concern::Worse);
    }
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
    machine.conntrack = machine.conntrack.map(|tracking| Conntrack {
        entries: 144,
        ..tracking
    });
    let budget = both_ends(&machine);
    assert_eq!(budget.first_stop().name, "connection tracking");
    assert_eq!(budget.connections(1_000_000).connections, 262_000);
}

/// Firewalls commonly leave loopback untracked, which is all that a trial can see.
#[test]
fn entries_count_although_a_trial_over_loopback_was_not_tracked() {
    let mut machine = small_machine();
    machine.conntrack = machine.conntrack.map(|tracking| Conntrack {
        entries: 200_000,
        tracks: Some(false),
        ..tracking
    });
    let server = Budget::new(&machine, Load::broadcast(Role::Server), 1_000_000);
    assert_eq!(server.first_stop().name, "connection tracking");
    assert_eq!(server.first_stop().connections, 262_144 - 200_000);
    let loopback = both_ends(&machine);
    assert!(
        loopback
            .limits
            .iter()
            .all(|limit| limit.name != "connection tracking")
    );
    let remark = loopback
        .remarks
        .iter()
        .find(|it| it.name == "connection tracking");
    assert!(remark.expect("one").finding.contains("200,000 entries"));
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
fn epoll_is_judged_where_locked_memory_has_too_few_rings_for_the_cores() {
    let mut machine = small_machine();
    machine.descriptors.table_hard = 700;
    machine.descriptors.locked_bytes_max = Some(64 << 10);
    let server = |machine: &Machine| Budget::new(machine, Load::idle(Role::Server), 1_000_000);
    // Two rings for two cores.
    assert_eq!(
        server(&machine).first_stop().name,
        "locked memory of one user"
    );
    machine.cores.usable = 3;
    let budget = server(&machine);
    assert_eq!(budget.first_stop().name, "descriptor tables");
    assert_eq!(
        budget.first_stop().connections,
        crate::tables::epoll_connections_max(700)
    );
    let finding = &budget.remarks[0].finding;
    assert!(
        finding.contains("holds 2 rings, and each of 3 cores"),
        "{finding}"
    );
    machine.descriptors.locked_exempt = true;
    assert!(machine.takes_io_uring());
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
    assert_eq!(budget.first_stop().connections, (700 - 64) * 700);
    machine.io_uring = IoUring::Disabled;
    let epoll = both_ends(&machine).first_stop().connections;
    assert_eq!(epoll, crate::tables::epoll_connections_max(700));
}

#[test]
fn a_crowd_elsewhere_is_bound_by_its_source_ports() {
    let budget = Budget::new(
        &small_machine(),
        Load::broadcast(Role::Crowd(Paths {
            sources: 2,
            destinations: 3,
        })),
        1_000_000,
    );
    assert_eq!(budget.first_stop().name, "source ports");
    // Of the 28,232 ports of a source Myriad's crowd takes as many.
    assert_eq!(budget.first_stop().connections, 2 * 3 * 25_000);
    let evidence = &budget.first_stop().evidence;
    let reason = "of the 28,232 ports of a source Myriad's crowd takes 25,000";
    assert!(evidence.contains(reason), "{evidence}");
    let why = budget.connections(1_000_000).why;
    assert!(
        why.starts_with("Source ports allow 150,000 of the 1,000,000 wanted: "),
        "{why}"
    );
    assert!(
        budget
            .limits
            .iter()
            .all(|limit| limit.name != "accept queue")
    );
}

#[test]
fn an_ordinary_process_ends_at_its_descriptors_and_a_proxy_at_half_of_them() {
    let stop = |role, processes| {
        let load = Load::broadcast(role).on(Program::Ordinary { processes });
        let budget = Budget::new(&small_machine(), load, 1_000_000);
        (budget.first_stop().name, budget.first_stop().connections)
    };
    let of_a_process = "descriptors of a process";
    assert_eq!(stop(Role::Server, 1), (of_a_process, 19_988));
    assert_eq!(stop(Role::Server, 4), (of_a_process, 4 * 19_988));
    let proxy = Role::Proxy(Paths {
        sources: 1,
        destinations: 4,
    });
    assert_eq!(stop(proxy, 1), (of_a_process, 9_994));
    assert_eq!(
        stop(Role::Proxy(Paths::SINGLE), 8),
        ("source ports", 28_232)
    );
    // An ordinary client starts all of them from 127.0.0.1.
    assert_eq!(stop(Role::BothEnds, 2), ("source ports", 28_232));
}

#[test]
fn bursts_matter_when_the_queue_is_short_and_cookies_end_the_other_one() {
    let mut machine = small_machine();
    let concern = |machine: &Machine, name| {
        let budget = both_ends(machine);
        let limit = budget.limits.iter().find(|limit| limit.name == name);
        limit.map(|limit| (limit.connections, limit.concern(1_000_000)))
    };
    assert_eq!(
        concern(&machine, "accept queue"),
        Some((4_097, Concern::None))
    );
    assert_eq!(concern(&machine, "SYN backlog"), None);
    machine.tcp.backlog_max = Some(128);
    machine.tcp.syn_cookies = Some(false);
    machine.tcp.handshakes_max = Some(100);
    assert_eq!(
        concern(&machine, "accept queue"),
        Some((129, Concern::Worse))
    );
    assert_eq!(concern(&machine, "SYN backlog"), Some((75, Concern::Worse)));
}

#[test]
fn a_server_alone_pays_for_one_end() {
    let machine = small_machine();
    let alone = Budget::new(&machine, Load::broadcast(Role::Server), 1_000_000);
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
    // 23 GiB less a sixteenth of 24, over 3,950 + 250 + 100 + 1,300 bytes.
    assert_eq!(memory.connections, (23 * GIB - 24 * GIB / 16) / 5_600);
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
    assert_eq!(names(1_000_000), ["TCP buffers", "connection hash"]);
}

#[test]
fn remarks_to_act_on_come_first() {
    let mut machine = small_machine();
    let warnings = |machine: &Machine| -> Vec<String> {
        let remarks = both_ends(machine).remarks;
        assert!(remarks.is_sorted_by_key(|remark| remark.weight == Weight::Note));
        let warnings = remarks
            .into_iter()
            .filter(|remark| remark.weight == Weight::Warning);
        warnings.map(|remark| remark.finding).collect()
    };
    assert_eq!(warnings(&machine), Vec::<String>::new());
    machine.cores.usable = 1;
    machine.kernel.release = "5.15.0".into();
    machine.io_uring = IoUring::KernelTooOld;
    machine.surroundings.threads = Some([100, 20]);
    machine.surroundings.old_advice = vec![OldAdvice {
        file: "/etc/sysctl.conf".into(),
        line: 3,
        key: "net.ipv4.tcp_tw_recycle".into(),
    }];
    assert_eq!(
        warnings(&machine),
        [
            "Linux 5.15.0 is older than 6.13",
            "1 of 2 cores may be used",
            "net.ipv4.tcp_tw_recycle (/etc/sysctl.conf:3): removed in Linux 4.12; it broke clients behind NAT",
            "the control group allows 100 threads; it has 20",
        ]
    );
}

#[test]
fn entries_outlive_their_connections_and_must_not_go_before_them() {
    let mut machine = small_machine();
    let tracking = Conntrack {
        entries_max: 100_000,
        entries: 20_000,
        ..machine.conntrack.expect("it has that")
    };
    machine.conntrack = Some(tracking);
    let find = |machine: &Machine, load| {
        let budget = Budget::new(machine, load, 1_000);
        let ends = names::limit::TRACKED_ENDS;
        let limit = budget.limits.into_iter().find(|limit| limit.name == ends);
        let timeouts = names::remark::TRACKING_TIMEOUTS;
        let remark = budget.remarks.into_iter().find(|it| it.name == timeouts);
        limit.zip(remark)
    };
    let proxy = Role::Proxy(Paths::SINGLE);
    let one = Program::Ordinary { processes: 1 };
    let server = Load::idle(Role::Server);
    let (ends, remark) = find(&machine, server).expect("both");
    // 80,000 are free: as many entries again as there are connections.
    assert_eq!((ends.connections, ends.value.as_str()), (40_000, "120 s"));
    assert!(
        ends.evidence.contains("10 s after a reset (close)"),
        "{ends:?}"
    );
    assert_eq!(ends.concern(1_000_000), Concern::None, "it stops nobody");
    assert_eq!(remark.weight, Weight::Note);
    assert!(
        remark.finding.contains("300 s (unacknowledged)"),
        "{remark:?}"
    );
    assert_eq!(
        find(&machine, Load::idle(proxy).on(one))
            .unwrap()
            .0
            .connections,
        20_000
    );

    machine.conntrack = Some(Conntrack {
        established_timeout_s: Some(600),
        ..tracking
    });
    assert_eq!(find(&machine, server).unwrap().1.weight, Weight::Note);
    let (_, remark) = find(&machine, server.on(one)).unwrap();
    assert_eq!(remark.weight, Weight::Warning);
    assert!(
        remark.consequence.contains("keepalive probe (7,200 s)"),
        "{remark:?}"
    );

    machine.conntrack = Some(Conntrack {
        established_timeout_s: Some(30),
        timeouts: crate::TrackingTimeouts::default(),
        ..tracking
    });
    assert_eq!(
        find(&machine, server),
        None,
        "nobody told how long an ended one stays"
    );
    let remarks = Budget::new(&machine, server, 1_000).remarks;
    let remark = remarks
        .iter()
        .find(|it| it.name == names::remark::TRACKING_TIMEOUTS);
    assert!(remark.is_some_and(
        |it| it.weight == Weight::Warning && it.consequence.contains("Myriad's pings (50 s)")
    ));
}

#[test]
fn a_machine_survives_a_round_trip_through_json() {
    let machine = small_machine();
    let text = serde_json::to_string(&machine).unwrap();
    assert_eq!(serde_json::from_str::<Machine>(&text).unwrap(), machine);
}

#[test]
fn what_is_advised_is_made_for_the_connections_wanted() {
    let mut machine = small_machine();
    machine.tcp.memory_pages = Some([287_832, 383_779, 575_664]);
    machine.conntrack = machine.conntrack.map(|tracking| Conntrack {
        entries: 144,
        ..tracking
    });
    let load = Load::broadcast(Role::BothEnds);
    let remedies = |wanted| {
        let budget = Budget::new(&machine, load, wanted);
        let one = |name| {
            let limit = budget.limits.iter().find(|limit| limit.name == name);
            limit.expect(name).remedy.clone()
        };
        [
            "open files of the machine",
            "connection tracking",
            "TCP buffers",
            "connection hash",
        ]
        .map(one)
    };
    let [files, tracked, tcp, hash] = remedies(30_000_000);
    assert_eq!(files, "sysctl -w fs.file-max=72100000");
    assert!(tracked.contains("nf_conntrack_max=36100000,"), "{tracked}");
    assert!(
        tcp.contains("tcp_mem='36000000 48000000 72000000'"),
        "{tcp}"
    );
    assert!(hash.contains("thash_entries=16777216,"), "{hash}");
    // Never less than there is: it would be a change for the worse.
    let [files, tracked, tcp, hash] = remedies(1_000);
    assert_eq!(files, "sysctl -w fs.file-max=3000000");
    assert!(tracked.contains("nf_conntrack_max=400000,"), "{tracked}");
    assert!(tcp.contains("tcp_mem='350000 466666 700000'"), "{tcp}");
    assert!(hash.contains("thash_entries=524288,"), "{hash}");
}

#[test]
fn remedies_keep_what_is_there_and_fit_the_machine() {
    let mut machine = small_machine();
    machine.reserved_ports = "9000-9010".into();
    machine.listening.port = 40_000;
    machine.listening.can_be_taken = true;
    machine.surroundings.interfaces = vec![crate::Interface {
        name: "eth0".into(),
        receive_queues: 1,
        transmit_queues: 1,
        spreads_packets: false,
    }];
    let consequence = |machine: &Machine, name| {
        let remarks = crate::remarks::all(machine, Load::idle(Role::Server));
        let remark = remarks.into_iter().find(|remark| remark.name == name);
        remark.expect(name).consequence
    };
    let port = consequence(&machine, "listening port");
    assert!(
        port.contains("ip_local_reserved_ports=9000-9010,40000."),
        "{port}"
    );
    for (cores, mask) in [
        (2, "echo 3 >"),
        (32, "echo ffffffff >"),
        (36, "echo f,ffffffff >"),
    ] {
        machine.cores.online = cores;
        let card = consequence(&machine, "network cards");
        assert!(card.contains(mask), "{card}");
    }
}

#[test]
fn what_is_said_of_cards_and_old_settings_is_true_of_this_machine() {
    let mut machine = small_machine();
    machine.cores.usable = 1;
    machine.surroundings.interfaces = vec![crate::Interface {
        name: "eth0".into(),
        receive_queues: 1,
        transmit_queues: 1,
        spreads_packets: false,
    }];
    machine.surroundings.old_advice = vec![OldAdvice {
        file: "/etc/sysctl.conf".into(),
        line: 1,
        key: "net.ipv4.tcp_adv_win_scale".into(),
    }];
    let find = |machine: &Machine, name| {
        let remarks = crate::remarks::all(machine, Load::idle(Role::Server));
        remarks.into_iter().find(|remark| remark.name == name)
    };
    let card = find(&machine, "network cards").expect("a card");
    assert!(card.consequence.contains("there is no other"), "{card:?}");
    assert!(find(&machine, "obsolete settings").is_some());
    (machine.kernel.major, machine.kernel.minor) = (6, 1);
    assert_eq!(find(&machine, "obsolete settings"), None);
}
