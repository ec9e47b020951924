//! Ports, addresses, TCP's limits, connection tracking.
//!
//! Most of these files belong to this process's network namespace. In one that is not the machine's first,
//! `tcp_mem` and `tcp_max_orphans` do not exist, although the first one's values bind there too.

use super::files::ProbeError;
use super::{Probe, Unread};
use crate::machine::{Addresses, Conntrack, Ports, Tcp, TrackingTimeouts};
use std::collections::BTreeSet;

const RESERVED: &str = "sys/net/ipv4/ip_local_reserved_ports";

impl Probe {
    /// Ports for outgoing connections.
    ///
    /// # Errors
    /// The range or the reserved list cannot be read or has another form.
    pub fn ports(&self) -> Result<Ports, ProbeError> {
        const RANGE: &str = "sys/net/ipv4/ip_local_port_range";
        let [first, last] = self.proc.numbers(RANGE)?;
        let (Ok(first), Ok(last)) = (u16::try_from(first), u16::try_from(last)) else {
            return Err(self
                .proc
                .malformed(RANGE, "two ports", &format!("{first} {last}")));
        };
        let reserved = self.reserved_ports()?.into_iter();
        // Only what lies in the range counts.
        let reserved = reserved.map(|(from, to)| {
            let (from, to) = (u32::from(from.max(first)), u32::from(to.min(last)));
            (to + 1).saturating_sub(from)
        });
        Ok(Ports {
            first,
            last,
            reserved: reserved.sum(),
        })
    }

    /// `ip_local_reserved_ports` as it is written; empty where the kernel has none.
    pub(super) fn reserved_list(&self) -> Result<String, ProbeError> {
        let text = self.proc.text_if_present(RESERVED)?.unwrap_or_default();
        Ok(text.trim().to_owned())
    }

    /// It is a list such as `8000,9000-9010`.
    fn reserved_ports(&self) -> Result<Vec<(u16, u16)>, ProbeError> {
        let text = self.reserved_list()?;
        let items = text.trim().split(',').filter(|item| !item.is_empty());
        items
            .map(|item| {
                let (from, to) = item.split_once('-').unwrap_or((item, item));
                match (from.parse(), to.parse()) {
                    (Ok(from), Ok(to)) => Ok((from, to)),
                    _ => Err(self
                        .proc
                        .malformed(RESERVED, "ports and ranges of ports", &text)),
                }
            })
            .collect()
    }

    /// `/proc/net/fib_trie` names each address, and on the next line what it is to this machine. Local ones
    /// stand in two tables.
    pub(super) fn addresses(&self) -> Result<Addresses, ProbeError> {
        let Some(text) = self.proc.text_if_present("net/fib_trie")? else {
            return Ok(Addresses { outside: None });
        };
        let mut local = BTreeSet::new();
        let mut address = "";
        for line in text.lines() {
            if let Some((_, name)) = line.split_once("|-- ") {
                address = name.trim();
            } else if line.contains("/32 host LOCAL") && !address.starts_with("127.") {
                local.insert(address);
            }
        }
        Ok(Addresses {
            outside: Some(local.len() as u64),
        })
    }

    pub(super) fn tcp(&self, unread: &mut Unread) -> Tcp {
        let mut number = |name: &str| {
            let path = format!("sys/net/ipv4/{name}");
            unread.or(self.proc.number(&path).map(Some), || None)
        };
        let (handshakes_max, time_wait_max) =
            (number("tcp_max_syn_backlog"), number("tcp_max_tw_buckets"));
        let keepalive = [
            number("tcp_keepalive_time"),
            number("tcp_keepalive_intvl"),
            number("tcp_keepalive_probes"),
        ];
        let keepalive = match keepalive {
            [Some(time_s), Some(interval_s), Some(probes)] => Some([time_s, interval_s, probes]),
            _ => None,
        };
        let mut of_first_namespace = |name: &str| {
            let path = format!("sys/net/ipv4/{name}");
            unread.or(self.proc.number_if_present(path), || None)
        };
        let (orphans_max, child_hash_buckets) = (
            of_first_namespace("tcp_max_orphans"),
            of_first_namespace("tcp_child_ehash_entries"),
        );
        // Missing where the kernel is built without cookies.
        let cookies = self
            .proc
            .number_if_present("sys/net/ipv4/tcp_syncookies")
            .map(|value| Some(value.is_some_and(|value| value != 0)));
        let pages = self.proc.numbers_if_present("sys/net/ipv4/tcp_mem");
        let mut buffers = |name: &str| {
            let path = format!("sys/net/ipv4/{name}");
            unread.or(self.proc.numbers(&path).map(Some), || None)
        };
        Tcp {
            receive_buffer_bytes: buffers("tcp_rmem"),
            send_buffer_bytes: buffers("tcp_wmem"),
            memory_pages: unread.or(pages, || None),
            backlog_max: unread.or(self.accept_queue().map(Some), || None),
            handshakes_max,
            syn_cookies: unread.or(cookies, || None),
            orphans_max,
            time_wait_max,
            hash_buckets: unread.or(self.hash_buckets(), || None),
            child_hash_buckets,
            keepalive,
        }
    }

    /// Negative in a network namespace that shares the first one's table; the size is the same table's.
    fn hash_buckets(&self) -> Result<Option<u64>, ProbeError> {
        let text = self
            .proc
            .text_if_present("sys/net/ipv4/tcp_ehash_entries")?;
        Ok(text
            .and_then(|text| text.trim().parse::<i64>().ok())
            .map(i64::unsigned_abs))
    }

    /// Connection tracking, or nothing where the module is not loaded.
    pub(super) fn conntrack(&self, tracks: Option<bool>) -> Result<Option<Conntrack>, ProbeError> {
        let setting = |name: &str| {
            self.proc
                .number_if_present(format!("sys/net/netfilter/nf_conntrack_{name}"))
        };
        let (Some(entries_max), Some(entries)) = (setting("max")?, setting("count")?) else {
            return Ok(None);
        };
        let timeout = |state: &str| setting(&format!("tcp_timeout_{state}"));
        Ok(Some(Conntrack {
            entries_max,
            entries,
            buckets: setting("buckets")?,
            established_timeout_s: timeout("established")?,
            timeouts: TrackingTimeouts {
                syn_sent_s: timeout("syn_sent")?,
                syn_recv_s: timeout("syn_recv")?,
                unacknowledged_s: timeout("unacknowledged")?,
                max_retrans_s: timeout("max_retrans")?,
                fin_wait_s: timeout("fin_wait")?,
                close_wait_s: timeout("close_wait")?,
                last_ack_s: timeout("last_ack")?,
                time_wait_s: timeout("time_wait")?,
                close_s: timeout("close")?,
            },
            tracks,
        }))
    }

    /// `net.core.somaxconn`.
    ///
    /// # Errors
    /// The file cannot be read or has another form.
    pub fn accept_queue(&self) -> Result<u64, ProbeError> {
        self.proc.number("sys/net/core/somaxconn")
    }

    /// Connections tracked now; none where the module is not loaded.
    ///
    /// # Errors
    /// The file is there and has another form.
    pub fn conntrack_entries(&self) -> Result<Option<u64>, ProbeError> {
        self.proc
            .number_if_present("sys/net/netfilter/nf_conntrack_count")
    }
}
