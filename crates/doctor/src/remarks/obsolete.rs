//! Settings that guides still list and that no longer do anything, or harm.

use super::{Remark, note};
use crate::machine::Machine;
use crate::names::remark;

/// Why an old setting does nothing, or harm.
fn obsolete(key: &str) -> &'static str {
    match key {
        "net.ipv4.tcp_tw_recycle" => "removed in Linux 4.12; it broke clients behind NAT",
        "net.ipv4.tcp_low_latency" => "without effect since Linux 4.14",
        "net.ipv4.tcp_fack" => "without effect since Linux 4.15",
        "net.ipv4.tcp_adv_win_scale" => "without effect since Linux 6.6",
        "net.ipv4.tcp_abort_on_overflow" => {
            "resets clients that a full accept queue would only delay"
        }
        _ => "renamed net.netfilter.nf_conntrack_max long ago",
    }
}

/// One of them still works on the older kernels we run on.
fn is_obsolete(key: &str, machine: &Machine) -> bool {
    key != "net.ipv4.tcp_adv_win_scale" || machine.kernel.at_least(6, 6)
}

pub(super) fn old_advice_in_files(machine: &Machine) -> Option<Remark> {
    let lines: Vec<String> = machine
        .surroundings
        .old_advice
        .iter()
        .filter(|line| is_obsolete(&line.key, machine))
        .map(|line| {
            format!(
                "{} ({}:{}): {}",
                line.key,
                line.file,
                line.line,
                obsolete(&line.key)
            )
        })
        .collect();
    if lines.is_empty() {
        return None;
    }
    let from = "/etc/sysctl.conf, sysctl.d";
    Some(
        note(
            remark::OLD_SETTINGS,
            from,
            lines.join("; "),
            "Delete these lines.",
        )
        .warning_if(true),
    )
}

pub(super) fn old_advice() -> Remark {
    note(
        remark::OLD_ADVICE,
        "the kernel's history",
        format!(
            "tcp_tw_recycle: {}. oom_adj: replaced by oom_score_adj in Linux 2.6.36. tcp_low_latency: {}. \
             tcp_fack: {}. tcp_tw_reuse: only for outgoing connections, nothing to a server",
            obsolete("net.ipv4.tcp_tw_recycle"),
            obsolete("net.ipv4.tcp_low_latency"),
            obsolete("net.ipv4.tcp_fack"),
        ),
        "Guides for a million connections still list them; leave them out.",
    )
}
