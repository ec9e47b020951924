//! Ports, cards, connection tracking, what TCP does by itself.

use super::{Remark, note};
use crate::limits::{Load, Program, needed};
use crate::machine::Machine;
use crate::names::remark;
use myriad_units::{bytes, count, counted};

pub(super) fn listening_port(machine: &Machine, load: Load) -> Option<Remark> {
    if !load.role.accepts() {
        return None;
    }
    let (listening, ports) = (machine.listening, machine.ports);
    let from = "/proc/sys/net/ipv4/ip_local_port_range, ip_local_reserved_ports";
    let port = listening.port;
    Some(if listening.can_be_taken {
        let finding = format!(
            "port {port} lies in ip_local_port_range ({}-{}) and is not reserved",
            ports.first, ports.last
        );
        let consequence = format!(
            "An outgoing connection can take it while the server is down. Listen below {}, or \
             sysctl -w net.ipv4.ip_local_reserved_ports={}.",
            ports.first,
            needed::reserved_ports(machine, port)
        );
        note(remark::LISTENING_PORT, from, finding, consequence).warning_if(true)
    } else {
        let finding = format!(
            "port {port} is not given to outgoing connections ({}-{} are)",
            ports.first, ports.last
        );
        note(remark::LISTENING_PORT, from, finding, "Nothing to do.")
    })
}

pub(super) fn cards(machine: &Machine) -> Option<Remark> {
    let interfaces = &machine.surroundings.interfaces;
    if interfaces.is_empty() {
        return None;
    }
    let described: Vec<String> = interfaces
        .iter()
        .map(|card| {
            let spreading = if card.spreads_packets {
                "RPS"
            } else {
                "no RPS"
            };
            let (receive, transmit) = (card.receive_queues, card.transmit_queues);
            format!(
                "{} has receive queues: {receive}, transmit queues: {transmit}, {spreading}",
                card.name
            )
        })
        .collect();
    let lonely = interfaces
        .iter()
        .find(|card| card.receive_queues == 1 && !card.spreads_packets);
    let crowded = lonely.filter(|_| machine.cores.usable > 1);
    let consequence = match crowded {
        Some(card) => format!(
            "One core takes all packets of {0}. If it is at its limit and others are not: \
             echo {1} > /sys/class/net/{0}/queues/rx-0/rps_cpus (a mask of all cores).",
            card.name,
            mask_of_cores(machine.cores.online)
        ),
        None if lonely.is_some() => {
            "One core takes all packets, and there is no other to spread them over.".into()
        }
        None => "Packets are spread over cores.".into(),
    };
    let from = "/sys/class/net/*/queues";
    Some(note(remark::CARDS, from, described.join("; "), consequence))
}

/// Hexadecimal, in groups of 32 cores, the highest first.
fn mask_of_cores(cores: usize) -> String {
    let (groups, rest) = (cores / 32, cores % 32);
    let first = (rest > 0).then(|| format!("{:x}", (1_u64 << rest) - 1));
    let full = std::iter::repeat_n("ffffffff".to_owned(), groups);
    first.into_iter().chain(full).collect::<Vec<_>>().join(",")
}

pub(super) fn untracked(machine: &Machine, load: Load) -> Option<Remark> {
    let from = "/proc/sys/net/netfilter; opening loopback connections";
    match machine.conntrack {
        None => Some(note(
            remark::TRACKING,
            from,
            "nf_conntrack is not loaded",
            "Nothing to do.",
        )),
        Some(tracking) if tracking.is_in_use(load.role) => None,
        Some(tracking) if tracking.entries > 0 => Some(note(
            remark::TRACKING,
            from,
            format!(
                "nf_conntrack counts {} entries, but connections opened here over loopback were not counted",
                count(tracking.entries)
            ),
            "Nothing to do for connections that stay on this machine.",
        )),
        Some(tracking) => Some(note(
            remark::TRACKING,
            from,
            format!(
                "nf_conntrack is there ({} entries at most) and no rule uses it",
                count(tracking.entries_max)
            ),
            "Nothing to do, until a firewall or NAT is set up.",
        )),
    }
}

/// Two ping intervals of Myriad: what it leaves silent is never silent for longer.
const MYRIAD_SILENT_S: u64 = 50;

/// What decides how long the table remembers connections that nobody ended.
pub(super) fn tracking_timeouts(machine: &Machine, load: Load) -> Option<Remark> {
    let tracking = machine.conntrack.filter(|it| it.is_in_use(load.role))?;
    let open_s = tracking.established_timeout_s?;
    let timeouts = tracking.timeouts;
    let mut findings = vec![format!(
        "a silent connection is remembered for {} s (established)",
        count(open_s)
    )];
    findings.extend(
        [
            (
                "one with something unacknowledged",
                "unacknowledged",
                timeouts.unacknowledged_s,
            ),
            (
                "one with many retransmissions",
                "max_retrans",
                timeouts.max_retrans_s,
            ),
            ("a SYN without an answer", "syn_sent", timeouts.syn_sent_s),
            (
                "a handshake without its end",
                "syn_recv",
                timeouts.syn_recv_s,
            ),
        ]
        .into_iter()
        .filter_map(|(what, name, seconds)| {
            Some(format!("{what} for {} s ({name})", count(seconds?)))
        }),
    );
    let (silent_s, whose, advice) = match load.program {
        Program::Myriad => (
            MYRIAD_SILENT_S,
            "Myriad's pings",
            "a shorter serve --ping-interval",
        ),
        Program::Ordinary { .. } => {
            let [first_probe_s, ..] = machine.tcp.keepalive?;
            (
                first_probe_s,
                "the first keepalive probe",
                "a shorter tcp_keepalive_time, or pings",
            )
        }
    };
    let forgets = open_s < silent_s;
    let consequence = if forgets {
        format!(
            "Open connections are forgotten before {whose} ({} s); a firewall may drop what comes on them then, and NAT does: \
             sysctl -w net.netfilter.nf_conntrack_tcp_timeout_established=432000, or {advice}.",
            count(silent_s)
        )
    } else {
        "A client that vanishes leaves its entry behind for the first of these; where something is sent to it, as pings \
             are, for the second. A SYN takes an entry whether there are cookies or not."
            .to_owned()
    };
    let from = "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_*";
    Some(
        note(
            remark::TRACKING_TIMEOUTS,
            from,
            findings.join(", "),
            consequence,
        )
        .warning_if(forgets),
    )
}

pub(super) fn addresses(machine: &Machine) -> Option<Remark> {
    let addresses = machine.addresses.outside?;
    Some(note(
        remark::ADDRESSES,
        "/proc/net/fib_trie",
        format!(
            "{} beside 127.0.0.0/8, each with {} towards a destination",
            count(addresses),
            counted(machine.ports.per_source(), "port")
        ),
        "A crowd towards another machine can use all of them (swarm --source-ip).",
    ))
}

pub(super) fn keepalive(machine: &Machine) -> Option<Remark> {
    let [time_s, interval_s, probes] = machine.tcp.keepalive?;
    Some(note(
        remark::KEEPALIVE,
        "/proc/sys/net/ipv4/tcp_keepalive_*",
        format!(
            "a dead peer is noticed after {} s by programs that ask for TCP keepalive",
            count(time_s.saturating_add(interval_s.saturating_mul(probes)))
        ),
        "Myriad pings instead (serve --ping-interval), which also keeps NAT entries alive.",
    ))
}

pub(super) fn socket_buffers(machine: &Machine) -> Option<Remark> {
    let ([_, _, receive], [_, _, send]) = (
        machine.tcp.receive_buffer_bytes?,
        machine.tcp.send_buffer_bytes?,
    );
    Some(note(
        remark::SOCKET_BUFFERS,
        "/proc/sys/net/ipv4/tcp_rmem, tcp_wmem",
        format!(
            "buffers grow up to {} for receiving and {} for sending, a socket; idle ones have none",
            bytes(receive),
            bytes(send)
        ),
        "A stalled client can park that much in a server that sets no bound; Myriad's is serve --send-buffer-bytes.",
    ))
}

pub(super) fn of_the_first_namespace(machine: &Machine) -> Option<Remark> {
    let hidden = machine.tcp.memory_pages.is_none() && machine.unread.is_empty();
    hidden.then(|| {
        note(
            remark::NAMESPACE,
            "/proc/sys/net/ipv4",
            "this is not the machine's first network namespace: tcp_mem and tcp_max_orphans are not shown here",
            "They bind all the same; run doctor outside to see them.",
        )
    })
}

pub(super) fn syn_cookies(machine: &Machine, load: Load) -> Option<Remark> {
    let handshakes = machine.tcp.handshakes_max?;
    (machine.tcp.syn_cookies == Some(true) && load.role.accepts()).then(|| {
        note(
            remark::SYN_BACKLOG,
            "/proc/sys/net/ipv4/tcp_max_syn_backlog, tcp_syncookies",
            format!(
                "{} at once, and cookies for those beyond",
                counted(handshakes, "handshake")
            ),
            "Nothing to do: a larger tcp_max_syn_backlog changes nothing while tcp_syncookies is on.",
        )
    })
}
