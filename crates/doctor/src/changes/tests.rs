use super::*;
use crate::limits::{Paths, Role};
use crate::testing::small_machine;

fn keys(changes: &[Change]) -> Vec<&Setting> {
    changes.iter().map(|change| &change.setting).collect()
}

#[test]
fn a_machine_that_suffices_is_left_alone() {
    let load = Load::broadcast(Role::BothEnds);
    assert_eq!(changes(&small_machine(), load, 1_000_000), []);
}

#[test]
fn only_what_binds_is_changed() {
    let mut machine = small_machine();
    machine.tcp.backlog_max = Some(128);
    let load = Load::broadcast(Role::BothEnds);
    let changes = changes(&machine, load, 2_000_000);
    assert_eq!(
        keys(&changes),
        [
            &Setting::Sysctl("fs.file-max"),
            &Setting::Sysctl("net.core.somaxconn")
        ]
    );
    // Two ends each, those that are open already, a fifth more, in hundred thousands.
    assert_eq!(changes[0].to, "4900000");
}

#[test]
fn an_accept_queue_that_suffices_for_a_burst_is_left_alone() {
    let mut machine = small_machine();
    let load = Load::broadcast(Role::Server);
    for (queue, wanted) in [(1_023, 1_000_000), (128, 100)] {
        machine.tcp.backlog_max = Some(queue);
        assert_eq!(changes(&machine, load, wanted), [], "{queue} for {wanted}");
    }
}

/// Who runs doctor with sudo has the service in mind, which runs as somebody else.
#[test]
fn what_binds_other_users_is_changed_although_root_is_exempt() {
    let mut machine = small_machine();
    machine.descriptors.files_max_exempt = true;
    let changes = changes(&machine, Load::broadcast(Role::BothEnds), 2_000_000);
    assert_eq!(keys(&changes), [&Setting::Sysctl("fs.file-max")]);
}

#[test]
fn a_proxy_of_one_process_gets_descriptors_and_ports() {
    let paths = Paths {
        sources: 1,
        destinations: 4,
    };
    let load = Load::broadcast(Role::Proxy(paths)).on(Program::Ordinary { processes: 1 });
    let found = changes(&small_machine(), load, 200_000);
    assert_eq!(
        keys(&found),
        [
            &Setting::DescriptorLimit,
            &Setting::Sysctl("net.ipv4.ip_local_reserved_ports"),
            &Setting::Sysctl("net.ipv4.ip_local_port_range")
        ]
    );
    assert_eq!(found[0].to, "500000");
    assert_eq!(
        (found[2].from.as_str(), found[2].to.as_str()),
        ("32768 60999", "1024 65535")
    );
    assert_eq!(found[1].to, "8000");
    let million = changes(&small_machine(), load, 1_000_000);
    assert_eq!(keys(&million)[0], &Setting::Sysctl("fs.nr_open"));
}

#[test]
fn ports_already_reserved_are_kept() {
    let mut machine = small_machine();
    machine.reserved_ports = "9000-9010".into();
    machine.listening.port = 40_000;
    machine.listening.can_be_taken = true;
    let load = Load::broadcast(Role::Server);
    let changes = changes(&machine, load, 1_000);
    assert_eq!(changes[0].to, "9000-9010,40000");
    assert_eq!(changes.len(), 1);
}

#[test]
fn what_stops_myriad_itself_has_a_change_too() {
    let mut machine = small_machine();
    machine.descriptors.table_hard = 560;
    machine.descriptors.locked_bytes_max = Some(1 << 20);
    machine.surroundings.threads = Some([100, 90]);
    machine.surroundings.oom_score_adjustment = Some(200);
    machine.tcp.syn_cookies = Some(false);
    machine.tcp.handshakes_max = Some(100);
    let load = Load::idle(Role::Server);
    let found = changes(&machine, load, 1_000_000);
    assert_eq!(
        keys(&found),
        [
            &Setting::DescriptorLimit,
            &Setting::LockedMemory,
            &Setting::Threads,
            &Setting::OutOfMemoryScore,
            &Setting::Sysctl("net.ipv4.tcp_syncookies")
        ]
    );
    // 1,033 × (1,033 − 64) is the first above a million. 1,786 rings of 560 and one for each core, 28 KiB each, a fifth more.
    assert_eq!(
        (found[0].from.as_str(), found[0].to.as_str()),
        ("560", "2000")
    );
    assert_eq!(found[1].to, (59_u64 << 20).to_string());
    assert_eq!(found[2].to, "1000");
    // With what it asks for, nothing stops it any more.
    machine.give(&found);
    machine.tcp.syn_cookies = Some(true);
    assert_eq!(changes(&machine, load, 1_000_000), []);
}

#[test]
fn what_would_not_help_is_not_changed() {
    let mut machine = small_machine();
    (machine.ports.first, machine.ports.last) = (1_024, 65_535);
    let load = Load::broadcast(Role::Crowd(Paths::SINGLE));
    assert_eq!(changes(&machine, load, 1_000_000), []);
}
