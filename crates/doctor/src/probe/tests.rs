//! Machines made of files.

use super::*;
use crate::machine::{CgroupVersion, ConnectionCost};
use crate::testing::Folder;
use std::path::Path;

/// What the probe reads of a machine made of files.
impl Folder {
    fn plain_machine(name: &str) -> Self {
        Self::with(
            &format!("probe-{name}"),
            &[
                ("proc/sys/kernel/osrelease", "6.18.44-generic\n"),
                ("proc/meminfo", MEMINFO),
                ("proc/self/limits", LIMITS),
                (
                    "proc/self/status",
                    "Name:\tprobe\nCapEff:\t0000000000000000\n",
                ),
                ("proc/self/uid_map", "         0          0 4294967295\n"),
                ("proc/self/cgroup", "0::/\n"),
                ("proc/stat", "cpu  1 2 3\ncpu0 1 2 3\ncpu1 1 2 3\nintr 5\n"),
                ("proc/sys/fs/file-nr", "483\t0\t2465610\n"),
                ("proc/sys/fs/nr_open", "1048576\n"),
                ("proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n"),
                ("proc/sys/net/ipv4/ip_local_reserved_ports", "\n"),
                ("proc/sys/net/ipv4/tcp_mem", "287832\t383779\t575664\n"),
                ("proc/sys/net/core/somaxconn", "4096\n"),
                ("proc/sys/net/ipv4/tcp_max_orphans", "131072\n"),
                ("proc/sys/net/ipv4/tcp_max_syn_backlog", "2048\n"),
                ("proc/sys/net/ipv4/tcp_syncookies", "1\n"),
                ("proc/sys/net/ipv4/tcp_max_tw_buckets", "131072\n"),
                ("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n"),
                ("proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t4194304\n"),
                ("proc/sys/net/ipv4/tcp_keepalive_time", "7200\n"),
                ("proc/sys/net/ipv4/tcp_keepalive_intvl", "75\n"),
                ("proc/sys/net/ipv4/tcp_keepalive_probes", "9\n"),
            ],
        )
    }

    fn probe(&self) -> Probe {
        Probe::under(&self.0)
    }

    fn machine(&self) -> Machine {
        self.probe()
            .machine(ConnectionCost::assumed("of a test"))
            .unwrap()
    }
}

const MEMINFO: &str = "MemTotal:       24682416 kB\nMemFree:        24414592 kB\nMemAvailable:   24364736 kB\n\
                       Slab:              81940 kB\nSReclaimable:      59932 kB\nSUnreclaim:        22008 kB\n";
const LIMITS: &str = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max processes             96343                96343                processes \n\
                      Max open files            1024                 20000                files     \n\
                      Max locked memory         65536                8388608              bytes     \n";

#[test]
fn a_plain_machine_is_read_whole() {
    let machine = Folder::plain_machine("plain").machine();
    assert_eq!(
        machine.kernel,
        Kernel {
            release: "6.18.44-generic".into(),
            major: 6,
            minor: 18
        }
    );
    assert_eq!(machine.memory.available_bytes, 24_364_736 * 1024);
    assert_eq!(machine.memory.slab_bytes, 81_940 * 1024);
    assert_eq!(
        (
            machine.descriptors.table_soft,
            machine.descriptors.table_hard
        ),
        (1_024, 20_000)
    );
    assert_eq!(
        (
            machine.descriptors.files_open,
            machine.descriptors.files_max
        ),
        (483, 2_465_610)
    );
    assert!(!machine.descriptors.files_max_exempt);
    assert_eq!(machine.ports.per_source(), 28_232);
    assert_eq!(machine.cores.online, 2);
    assert_eq!(machine.tcp.hash_buckets, None);
    assert_eq!(machine.conntrack, None);
    assert_eq!(machine.cgroup, None);
    assert_eq!(machine.io_uring, IoUring::Allowed);
}

#[test]
fn this_very_machine_can_be_read() {
    let machine = Probe::system()
        .machine(ConnectionCost::assumed("of a test"))
        .unwrap();
    assert!(machine.memory.available_bytes <= machine.memory.total_bytes);
    assert!(machine.descriptors.table_soft <= machine.descriptors.table_hard);
    assert!(machine.cores.usable >= 1);
}

#[test]
fn an_unlimited_descriptor_limit_is_a_large_one() {
    let files = Folder::plain_machine("unlimited");
    files.write(
        "proc/self/limits",
        "Max open files            unlimited            unlimited            files \n\
         Max locked memory         unlimited            unlimited            bytes \n",
    );
    assert_eq!(files.machine().descriptors.table_hard, u64::MAX);
}

#[test]
fn reserved_ports_count_only_inside_the_range() {
    let files = Folder::plain_machine("reserved");
    files.write(
        "proc/sys/net/ipv4/ip_local_reserved_ports",
        "8000,32760-32769,40000,60990-65535\n",
    );
    // 32768 and 32769, 40000, 60990 to 60999.
    assert_eq!(files.machine().ports.reserved, 13);
}

#[test]
fn a_listening_port_is_safe_outside_the_range_or_reserved() {
    let files = Folder::plain_machine("listening");
    let mut machine = files.machine();
    assert!(!machine.listening.can_be_taken);
    machine.listen_on(40_000);
    assert!(machine.listening.can_be_taken);
    files.write(
        "proc/sys/net/ipv4/ip_local_reserved_ports",
        "8080,39000-40000\n",
    );
    let mut machine = files.machine();
    machine.listen_on(40_000);
    assert!(machine.listening.is_reserved && !machine.listening.can_be_taken);
    machine.listen_on(40_001);
    assert!(machine.listening.can_be_taken);
}

#[test]
fn a_namespace_that_is_not_the_first_hides_some_limits() {
    let files = Folder::plain_machine("namespace");
    for name in ["tcp_mem", "tcp_max_orphans"] {
        std::fs::remove_file(files.0.join("proc/sys/net/ipv4").join(name)).unwrap();
    }
    let tcp = files.machine().tcp;
    assert_eq!((tcp.memory_pages, tcp.orphans_max), (None, None));
}

#[test]
fn surroundings_are_read() {
    let files = Folder::plain_machine("surroundings");
    for (path, text) in [
        (".dockerenv", ""),
        ("proc/self/cgroup", "0::/\n"),
        ("sys/fs/cgroup/pids.max", "100\n"),
        ("sys/fs/cgroup/pids.current", "7\n"),
        ("sys/fs/cgroup/cpu.max", "100000 100000\n"),
        ("proc/self/oom_score_adj", "500\n"),
        (
            "sys/kernel/mm/transparent_hugepage/enabled",
            "[always] madvise never\n",
        ),
        ("sys/class/net/eth0/device/vendor", "0x1af4\n"),
        (
            "sys/class/net/eth0/queues/rx-0/rps_cpus",
            "00000000,00000002\n",
        ),
        ("sys/class/net/eth0/queues/rx-1/rps_cpus", "0\n"),
        ("sys/class/net/eth0/queues/tx-0/xps_cpus", "0\n"),
        ("sys/class/net/lo/queues/rx-0/rps_cpus", "0\n"),
        (
            "etc/sysctl.conf",
            "# net.ipv4.tcp_tw_recycle = 1\n\nnet.ipv4.tcp_tw_recycle=1\nnet.core.somaxconn = 4096\n",
        ),
        ("etc/sysctl.d/10-old.conf", "-net/ipv4/tcp_fack = 1\n"),
        ("etc/sysctl.d/README", "net.ipv4.tcp_fack = 1\n"),
        (
            "proc/net/fib_trie",
            "Local:\n  |-- 10.0.0.5\n     /32 host LOCAL\n  |-- 127.0.0.1\n     /32 host LOCAL\n  \
             |-- 10.0.0.255\n     /32 link BROADCAST\n  |-- 10.0.0.5\n     /32 host LOCAL\n",
        ),
    ] {
        files.write(path, text);
    }
    let machine = files.machine();
    assert_eq!(machine.cores.usable, 1);
    assert_eq!(machine.addresses.outside, Some(1));
    let surroundings = machine.surroundings;
    assert_eq!(surroundings.container.as_deref(), Some("docker"));
    assert_eq!(surroundings.threads, Some([100, 7]));
    assert_eq!(surroundings.oom_score_adjustment, Some(500));
    assert_eq!(surroundings.huge_pages.as_deref(), Some("always"));
    let [card] = &surroundings.interfaces[..] else {
        panic!("{surroundings:?}")
    };
    assert_eq!((card.receive_queues, card.transmit_queues), (2, 1));
    assert!(card.spreads_packets);
    let old: Vec<(&str, usize)> = surroundings
        .old_advice
        .iter()
        .map(|advice| (advice.file.as_str(), advice.line))
        .collect();
    assert_eq!(
        old,
        [("/etc/sysctl.conf", 3), ("/etc/sysctl.d/10-old.conf", 1)]
    );
}

#[test]
fn the_size_of_a_shared_hash_is_told_as_a_negative_number() {
    let files = Folder::plain_machine("hash");
    files.write("proc/sys/net/ipv4/tcp_ehash_entries", "-262144\n");
    assert_eq!(files.machine().tcp.hash_buckets, Some(262_144));
}

#[test]
fn root_is_exempt_from_the_file_limit_unless_its_namespace_is_its_own() {
    let files = Folder::plain_machine("root");
    files.write("proc/self/status", "CapEff:\t000001fffeffffff\n");
    assert!(files.machine().descriptors.files_max_exempt);
    files.write("proc/self/uid_map", "         0       1000          1\n");
    assert!(!files.machine().descriptors.files_max_exempt);
}

#[test]
fn locked_memory_bounds_rings_from_one_version_on_without_the_capability() {
    let files = Folder::plain_machine("locked");
    let locked = |release: &str, status: &str| {
        files.write("proc/sys/kernel/osrelease", release);
        files.write("proc/self/status", status);
        let descriptors = files.machine().descriptors;
        (descriptors.locked_bytes_max, descriptors.locked_exempt)
    };
    let (nobody, root) = ("CapEff:\t0000000000000000\n", "CapEff:\t0000000000004000\n");
    assert_eq!(locked("6.14.0\n", nobody), (Some(8 << 20), false));
    assert_eq!(locked("6.13.9\n", nobody), (None, false));
    assert_eq!(locked("6.14.0\n", root), (Some(8 << 20), true));
    files.write("proc/self/uid_map", "         0       1000          1\n");
    assert_eq!(locked("6.14.0\n", root), (Some(8 << 20), false));
    files.write(
        "proc/self/limits",
        "Max open files 1 2 files\nMax locked memory unlimited unlimited bytes\n",
    );
    assert_eq!(locked("6.14.0\n", nobody), (None, false));
}

#[test]
fn io_uring_depends_on_version_sysctl_and_rights() {
    let files = Folder::plain_machine("uring");
    files.write("proc/sys/kernel/io_uring_disabled", "1\n");
    assert_eq!(files.machine().io_uring, IoUring::Disabled);
    files.write("proc/self/status", "CapEff:\t000001fffeffffff\n");
    assert_eq!(files.machine().io_uring, IoUring::Allowed);
    files.write("proc/sys/kernel/io_uring_disabled", "2\n");
    assert_eq!(files.machine().io_uring, IoUring::Disabled);
    files.write("proc/sys/kernel/osrelease", "6.8.0-1-amd64\n");
    assert_eq!(files.machine().io_uring, IoUring::KernelTooOld);
}

#[test]
fn the_tightest_ancestor_of_version_two_counts() {
    let files = Folder::plain_machine("v2");
    files.write("proc/self/cgroup", "0::/system.slice/demo.service\n");
    files.write(
        "sys/fs/cgroup/system.slice/demo.service/memory.max",
        "max\n",
    );
    files.write("sys/fs/cgroup/system.slice/memory.max", "4294967296\n");
    files.write("sys/fs/cgroup/system.slice/memory.current", "1073741824\n");
    files.write(
        "sys/fs/cgroup/system.slice/memory.stat",
        "anon 5\ninactive_file 536870912\nactive_file 268435456\n",
    );
    let group = files.machine().cgroup.expect("the slice has a limit");
    assert_eq!(
        (group.version, group.path.as_str()),
        (CgroupVersion::V2, "/system.slice")
    );
    assert_eq!(group.limit_bytes, 4 << 30);
    assert_eq!(group.used_bytes, 256 << 20);
}

#[test]
fn where_a_group_is_slowed_down_or_its_kernel_memory_ends_counts_too() {
    let files = Folder::plain_machine("high");
    files.write("proc/self/cgroup", "0::/\n");
    files.write("sys/fs/cgroup/memory.max", "4294967296\n");
    files.write("sys/fs/cgroup/memory.high", "2147483648\n");
    files.write("sys/fs/cgroup/memory.current", "1048576\n");
    let group = files.machine().cgroup.expect("a limit");
    assert_eq!(
        (group.file.as_str(), group.limit_bytes),
        ("memory.high", 2 << 30)
    );

    let files = Folder::plain_machine("kmem");
    files.write("proc/self/cgroup", "4:memory:/\n");
    let memory = "sys/fs/cgroup/memory/memory";
    files.write(&format!("{memory}.limit_in_bytes"), "4294967296\n");
    files.write(&format!("{memory}.usage_in_bytes"), "1073741824\n");
    files.write(&format!("{memory}.kmem.limit_in_bytes"), "1073741824\n");
    files.write(&format!("{memory}.kmem.usage_in_bytes"), "1048576\n");
    let group = files.machine().cgroup.expect("a limit");
    assert_eq!(group.file, "memory.kmem.limit_in_bytes");
    assert_eq!(group.available_bytes(), (1 << 30) - (1 << 20));
}

#[test]
fn what_tcp_may_take_in_a_group_of_version_1_is_a_limit_of_its_own() {
    let files = Folder::plain_machine("kmem-tcp");
    files.write("proc/self/cgroup", "4:memory:/service/inner\n0::/\n");
    let memory = "sys/fs/cgroup/memory";
    for (group, limit, used) in [
        ("service/inner", "9223372036854771712", "0"),
        ("service", "8192000", "4096"),
        ("", "81920000", "8192"),
    ] {
        let tcp = format!("{memory}/{group}/memory.kmem.tcp");
        files.write(&format!("{tcp}.limit_in_bytes"), &format!("{limit}\n"));
        files.write(&format!("{tcp}.usage_in_bytes"), &format!("{used}\n"));
    }
    let machine = files.machine();
    assert_eq!(machine.cgroup, None, "it bounds no other memory");
    let group = machine.cgroup_tcp.clone().expect("a limit");
    assert_eq!(
        (group.path.as_str(), group.available_bytes()),
        ("/service", 8_192_000 - 4_096)
    );
    let budget = crate::Budget::new(&machine, crate::Load::idle(crate::Role::BothEnds), 10_000);
    let limit = budget
        .limits
        .iter()
        .find(|limit| limit.name == crate::names::limit::GROUP_TCP_BUFFERS)
        .expect("it is judged");
    // Two ends, a page each, of the 1,999 that are left.
    assert_eq!(limit.connections, 999);
    assert_eq!(limit.concern(10_000), crate::Concern::Worse);
    // 30,000 pages are a fifth more than needed, in round figures, beside the one in use.
    assert!(
        limit
            .remedy
            .contains(&format!("set it to {} ", 30_000 * 4_096 + 4_096)),
        "{limit:?}"
    );

    files.write(
        &format!("{memory}/memory.kmem.tcp.limit_in_bytes"),
        "much\n",
    );
    let machine = files.machine();
    assert_eq!(machine.cgroup_tcp, None);
    assert!(
        machine
            .unread
            .iter()
            .any(|error| error.contains("memory.kmem.tcp.limit_in_bytes")),
        "{:?}",
        machine.unread
    );
}

#[test]
fn numbers_of_any_size_do_not_wrap() {
    let files = Folder::plain_machine("huge");
    files.write(
        "proc/meminfo",
        &MEMINFO.replace("24682416", "18446744073709551615"),
    );
    files.write(
        "proc/sys/fs/file-nr",
        "18446744073709551615 0 18446744073709551615\n",
    );
    files.write("proc/sys/net/core/somaxconn", "18446744073709551615\n");
    files.write(
        "proc/self/limits",
        "Max open files unlimited unlimited files\nMax locked memory unlimited unlimited bytes\n",
    );
    let machine = files.machine();
    for program in [
        crate::Program::Myriad,
        crate::Program::Ordinary {
            processes: u64::MAX,
        },
    ] {
        let load = crate::Load::broadcast(crate::Role::Server).on(program);
        let examination = crate::Examination::new(machine.clone(), load, u64::MAX);
        assert!(!examination.limits.is_empty());
    }
}

#[test]
fn a_container_of_version_one_sees_its_group_as_the_root() {
    let files = Folder::plain_machine("v1");
    files.write(
        "proc/self/cgroup",
        "4:cpu,memory:/docker/0123\n1:name=systemd:/docker/0123\n0::/\n",
    );
    files.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n");
    files.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "1048576\n");
    let group = files
        .machine()
        .cgroup
        .expect("the root of the mount has a limit");
    assert_eq!(
        (group.version, group.path.as_str()),
        (CgroupVersion::V1, "/")
    );
    assert_eq!(group.available_bytes(), (2 << 30) - (1 << 20));
    files.write(
        "sys/fs/cgroup/memory/memory.limit_in_bytes",
        "9223372036854771712\n",
    );
    assert_eq!(files.machine().cgroup, None);
}

/// Containers hide files, and hardened ones forbid them. What can be read is judged all the same.
#[test]
fn what_can_not_be_read_is_named_and_ends_nothing() {
    let files = Folder::plain_machine("unread");
    let gone = [
        "proc/sys/kernel/osrelease",
        "proc/self/status",
        "proc/stat",
        "proc/sys/fs/nr_open",
        "proc/sys/net/core/somaxconn",
        "proc/sys/net/ipv4/tcp_max_syn_backlog",
        "proc/sys/net/ipv4/tcp_max_tw_buckets",
        "proc/sys/net/ipv4/tcp_rmem",
        "proc/sys/net/ipv4/tcp_wmem",
        "proc/sys/net/ipv4/tcp_keepalive_time",
    ];
    for path in gone {
        std::fs::remove_file(files.0.join(path)).unwrap();
    }
    // Neither a number nor 'max'; and a folder where a file should be.
    files.write("sys/fs/cgroup/memory.max", "lots\n");
    std::fs::create_dir_all(files.0.join("proc/net/fib_trie")).unwrap();
    let machine = files.machine();
    for path in gone.iter().chain(&["memory.max", "net/fib_trie"]) {
        let named = machine.unread.iter().filter(|it| it.contains(path)).count();
        assert_eq!(named, 1, "{path}: {:#?}", machine.unread);
    }
    assert_eq!(machine.unread.len(), gone.len() + 2);
    assert_eq!(
        (machine.cgroup.as_ref(), machine.tcp.backlog_max),
        (None, None)
    );
    assert_eq!(machine.descriptors.table_ceiling, 1 << 20);
    let load = crate::Load::idle(crate::Role::Server);
    let examination = crate::Examination::new(machine, load, 1_000);
    assert!(examination.enough);
    let remark = &examination.remarks[..2]
        .iter()
        .find(|it| it.name == "unread");
    assert!(
        remark
            .expect("among the first")
            .finding
            .contains("somaxconn")
    );
}

#[test]
fn errors_name_the_file_and_what_it_should_hold() {
    let files = Folder::plain_machine("errors");
    files.write("proc/meminfo", "MemTotal: 5 kB\n");
    let error = files.probe().memory().unwrap_err().to_string();
    assert!(
        error.contains("proc/meminfo does not hold a line"),
        "{error}"
    );

    files.write("proc/sys/fs/file-nr", "1 2\n");
    files.write("proc/meminfo", MEMINFO);
    let cost = ConnectionCost::assumed("of a test");
    let error = files.probe().machine(cost).unwrap_err();
    assert!(matches!(error, ProbeError::Malformed { .. }), "{error}");

    std::fs::remove_file(files.0.join("proc/sys/kernel/osrelease")).unwrap();
    let ProbeError::Unreadable { path, .. } = files.probe().kernel().unwrap_err() else {
        panic!()
    };
    assert!(path.ends_with(Path::new("sys/kernel/osrelease")));
}
