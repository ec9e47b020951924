//! A machine that does not exist, for tests; and machines made of files.

use crate::machine::{
    Addresses, ConnectionCost, Conntrack, Cores, CostSource, Descriptors, IoUring, Kernel,
    Listening, Machine, Memory, Ports, Rights, Surroundings, Tcp, TrackingTimeouts,
};
use std::path::PathBuf;

pub(crate) const GIB: u64 = 1 << 30;

/// A folder with the `proc`, `sys` and `etc` of a machine. It goes away with the value.
#[derive(Debug)]
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    /// A new folder of that name, with these files.
    pub(crate) fn with(name: &str, files: &[(&str, &str)]) -> Self {
        let path = std::env::temp_dir().join(format!("myriad-{name}-{}", std::process::id()));
        // One may be left from a test of an earlier process that was killed.
        let _ = std::fs::remove_dir_all(&path);
        let folder = Self(path);
        for (path, text) in files {
            folder.write(path, text);
        }
        folder
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().expect("inside the folder")).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Two cores, 24 GiB, a hard limit of 20,000 descriptors, everything else as Linux sets it.
#[expect(clippy::too_many_lines, reason = "one line a field of plain data")]
pub(crate) fn small_machine() -> Machine {
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
        cgroup_tcp: None,
        descriptors: Descriptors {
            table_soft: 20_000,
            table_hard: 20_000,
            table_ceiling: 1_048_576,
            files_max: 2_465_610,
            files_open: 483,
            files_max_exempt: false,
            locked_bytes_max: None,
            locked_exempt: false,
        },
        rights: Rights {
            raises_hard_limits: false,
            administers_network: false,
        },
        ports: Ports {
            first: 32_768,
            last: 60_999,
            reserved: 0,
        },
        reserved_ports: String::new(),
        listening: Listening {
            port: 8_000,
            is_reserved: false,
            can_be_taken: false,
        },
        addresses: Addresses { outside: Some(1) },
        tcp: Tcp {
            memory_pages: Some([287_832, 383_779, 575_664]),
            backlog_max: Some(4_096),
            handshakes_max: Some(2_048),
            syn_cookies: Some(true),
            orphans_max: Some(131_072),
            time_wait_max: Some(131_072),
            hash_buckets: Some(262_144),
            child_hash_buckets: Some(0),
            receive_buffer_bytes: Some([4_096, 131_072, 6_291_456]),
            send_buffer_bytes: Some([4_096, 16_384, 4_194_304]),
            keepalive: Some([7_200, 75, 9]),
        },
        conntrack: Some(Conntrack {
            entries_max: 262_144,
            entries: 0,
            buckets: Some(262_144),
            established_timeout_s: Some(432_000),
            timeouts: TrackingTimeouts {
                syn_sent_s: Some(120),
                syn_recv_s: Some(60),
                unacknowledged_s: Some(300),
                max_retrans_s: Some(300),
                fin_wait_s: Some(120),
                close_wait_s: Some(60),
                last_ack_s: Some(30),
                time_wait_s: Some(120),
                close_s: Some(10),
            },
            tracks: None,
        }),
        epoll_watches_max: Some(5_490_265),
        io_uring: IoUring::Allowed,
        surroundings: Surroundings::default(),
        connection_cost: ConnectionCost {
            sockets_bytes: 7_900,
            charged: None,
            source: CostSource::Measured { pairs: 2_000 },
        },
        unread: Vec::new(),
    }
}
