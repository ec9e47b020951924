//! Connection tracking: entries of connections that are open, and of those that were.

use super::Load;
use super::needed::{self, beyond};
use crate::budget::{Effect, Limit};
use crate::machine::Machine;
use crate::names::limit;
use myriad_units::count;

pub(super) fn entries(machine: &Machine, load: Load, wanted: u64) -> Option<Limit> {
    let tracking = machine.conntrack?;
    // The module may be loaded without any rule that makes it look at packets; then it counts nothing.
    if !tracking.is_in_use(load.role) {
        return None;
    }
    let each = load.role.connections_each();
    let connections = tracking.entries_max.saturating_sub(tracking.entries) / each;
    let how = match tracking.tracks {
        Some(true) => "connections opened here were counted",
        Some(false) => "those opened here over loopback were not counted, but others are",
        None => "it counts connections",
    };
    let timeout = tracking
        .established_timeout_s
        .map_or(String::new(), |seconds| {
            format!("; a silent one is remembered for {} s", count(seconds))
        });
    let buckets = tracking.buckets.map_or(String::new(), |buckets| {
        format!(" in {} buckets", count(buckets))
    });
    Some(Limit {
        name: limit::TRACKING,
        value: count(tracking.entries_max),
        connections,
        effect: Effect::Stops,
        binds_us: true,
        evidence: format!(
            "nf_conntrack_max is {}{buckets}, {} in use; {how}, {each} a connection, and a full table drops packets{timeout}",
            count(tracking.entries_max),
            count(tracking.entries)
        ),
        read_from: "/proc/sys/net/netfilter; opening loopback connections",
        remedy: format!(
            "Exempt the port (nft: notrack; iptables -t raw -j CT --notrack), or \
             sysctl -w net.netfilter.nf_conntrack_max={}, and nf_conntrack_buckets to a quarter of that at least",
            needed::conntrack(machine, load, beyond(connections, wanted))
        ),
    })
}

/// A connection that comes again has another source port, and so an entry of its own beside the old one.
pub(super) fn ends(machine: &Machine, load: Load) -> Option<Limit> {
    let tracking = machine.conntrack.filter(|it| it.is_in_use(load.role))?;
    let timeouts = tracking.timeouts;
    let closed_s = timeouts.time_wait_s?;
    let free = tracking.entries_max.saturating_sub(tracking.entries);
    let rest: Vec<String> = [
        ("after a reset", "close", timeouts.close_s),
        ("if one side alone closed", "fin_wait", timeouts.fin_wait_s),
        (
            "with that acknowledged",
            "close_wait",
            timeouts.close_wait_s,
        ),
        (
            "if the last acknowledgement is missing",
            "last_ack",
            timeouts.last_ack_s,
        ),
    ]
    .into_iter()
    .filter_map(|(when, name, seconds)| Some(format!("{} s {when} ({name})", count(seconds?))))
    .collect();
    let rest = if rest.is_empty() {
        String::new()
    } else {
        format!(", {}", rest.join(", "))
    };
    Some(Limit {
        name: limit::TRACKED_ENDS,
        value: format!("{} s", count(closed_s)),
        connections: free / load.role.connections_each() / 2,
        effect: Effect::CutsMassCloses,
        binds_us: true,
        evidence: format!(
            "nf_conntrack keeps an entry for {} s after both sides closed (time_wait){rest}. If more than this end and \
             come again in that time, the table is full, but for what the kernel drops early from 95% of it on",
            count(closed_s)
        ),
        read_from: "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_*",
        remedy: format!(
            "Have clients come again spread over {} s, or make the table larger.",
            count(closed_s)
        ),
    })
}
