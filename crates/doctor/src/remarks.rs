//! What a machine's settings mean that are no number of connections.

use crate::limits::{Load, needed};
use crate::machine::{IoUring, Machine};
use crate::units::{bytes, count};
use serde::Serialize;

/// Something worth knowing about a machine that is not a number of connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remark {
    /// A few words, what it is about.
    pub name: &'static str,
    /// Whether something should be done.
    pub weight: Weight,
    /// What was found.
    pub finding: String,
    /// What it means here and what to do.
    pub consequence: String,
    /// The file read, or the trial made.
    pub read_from: &'static str,
}

/// How much a remark matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// Nothing needs to be done.
    Note,
    /// Something is worse than it could be.
    Warning,
}

/// Everything there is to say, warnings first.
pub(crate) fn all(machine: &Machine, load: Load) -> Vec<Remark> {
    let mut remarks = vec![io_uring(machine)];
    remarks.extend(unread(machine));
    remarks.extend(listening_port(machine, load));
    remarks.extend(cores(machine));
    remarks.extend(old_advice_in_files(machine));
    remarks.extend(cards(machine));
    remarks.extend(out_of_memory(machine));
    remarks.extend(threads(machine, load));
    remarks.extend(container(machine));
    remarks.extend(untracked(machine, load));
    remarks.extend(addresses(machine));
    remarks.extend(epoll_watches(machine, load));
    remarks.extend(keepalive(machine));
    remarks.extend(socket_buffers(machine));
    remarks.extend(of_the_first_namespace(machine));
    remarks.extend(syn_cookies(machine, load));
    remarks.extend(huge_pages(machine));
    remarks.push(rights(machine));
    remarks.push(old_advice());
    // Stable: within a weight the order above stays.
    remarks.sort_by_key(|remark| remark.weight == Weight::Note);
    remarks
}

fn note(
    name: &'static str,
    read_from: &'static str,
    finding: impl Into<String>,
    consequence: impl Into<String>,
) -> Remark {
    Remark {
        name,
        weight: Weight::Note,
        finding: finding.into(),
        consequence: consequence.into(),
        read_from,
    }
}

impl Remark {
    fn warning_if(mut self, condition: bool) -> Self {
        if condition {
            self.weight = Weight::Warning;
        }
        self
    }
}

fn io_uring(machine: &Machine) -> Remark {
    const FALLBACK: &str =
        "The epoll driver is used; io_uring needs about a third less CPU per message";
    let (finding, consequence) = match &machine.io_uring {
        IoUring::Allowed if !machine.takes_io_uring() => (
            format!(
                "locked memory (hard RLIMIT_MEMLOCK, {}) holds {} rings, and each of {} cores needs one",
                bytes(machine.descriptors.locked_bytes_max.unwrap_or(0)),
                machine.descriptors.rings_max().unwrap_or(0),
                machine.cores.usable
            ),
            format!(
                "{FALLBACK}. LimitMEMLOCK= in a systemd unit, --ulimit memlock= of a container."
            ),
        ),
        IoUring::Allowed => (
            "io_uring may be used".to_owned(),
            "Myriad uses it.".to_owned(),
        ),
        IoUring::KernelTooOld => (
            format!("Linux {} is older than 6.13", machine.kernel.release),
            format!("{FALLBACK}."),
        ),
        IoUring::Disabled => (
            "kernel.io_uring_disabled forbids io_uring to this process".into(),
            format!("{FALLBACK}; sysctl -w kernel.io_uring_disabled=0 allows it."),
        ),
        IoUring::Refused { reason } => (
            format!("io_uring does not work here: {reason}"),
            format!("{FALLBACK}."),
        ),
    };
    note(
        "io_uring",
        "a small ring, every operation tried; /proc/sys/kernel/io_uring_disabled",
        finding,
        consequence,
    )
    .warning_if(!machine.takes_io_uring())
}

fn unread(machine: &Machine) -> Option<Remark> {
    (!machine.unread.is_empty()).then(|| {
        note(
            "unread",
            "the errors themselves",
            format!(
                "what follows could not be read: {}",
                machine.unread.join("; ")
            ),
            "What they bound is not judged here; run doctor where they can be read.",
        )
        .warning_if(true)
    })
}

fn listening_port(machine: &Machine, load: Load) -> Option<Remark> {
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
        note("listening port", from, finding, consequence).warning_if(true)
    } else {
        let finding = format!(
            "port {port} is not given to outgoing connections ({}-{} are)",
            ports.first, ports.last
        );
        note("listening port", from, finding, "Nothing to do.")
    })
}

fn cores(machine: &Machine) -> Option<Remark> {
    let cores = machine.cores;
    (cores.usable < cores.online).then(|| {
        note(
            "cores",
            "/proc/self/status, cpu.max or cpu.cfs_quota_us",
            format!("{} of {} cores may be used", cores.usable, cores.online),
            "Affinity or a control group's CPU quota holds the others back.",
        )
        .warning_if(true)
    })
}

fn cards(machine: &Machine) -> Option<Remark> {
    let interfaces = &machine.surroundings.interfaces;
    if interfaces.is_empty() {
        return None;
    }
    let described: Vec<String> = interfaces
        .iter()
        .map(|card| {
            let spreading = if card.spreads_packets { ", RPS" } else { "" };
            let (receive, transmit) = (card.receive_queues, card.transmit_queues);
            format!(
                "{} has {receive} receive and {transmit} transmit queues{spreading}",
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
    Some(note(
        "network cards",
        from,
        described.join("; "),
        consequence,
    ))
}

/// Hexadecimal, in groups of 32 cores, the highest first.
fn mask_of_cores(cores: usize) -> String {
    let (groups, rest) = (cores / 32, cores % 32);
    let first = (rest > 0).then(|| format!("{:x}", (1_u64 << rest) - 1));
    let full = std::iter::repeat_n("ffffffff".to_owned(), groups);
    first.into_iter().chain(full).collect::<Vec<_>>().join(",")
}

fn out_of_memory(machine: &Machine) -> Option<Remark> {
    let adjustment = machine.surroundings.oom_score_adjustment?;
    let consequence = match adjustment {
        1.. => {
            "The kernel kills this process before others when memory runs out. OOMScoreAdjust= in a systemd unit."
        }
        0 => "The kernel kills the largest process when memory runs out: the server.",
        _ => "The kernel spares this process when memory runs out.",
    };
    let finding = format!("oom_score_adj is {adjustment}");
    Some(
        note(
            "out of memory",
            "/proc/self/oom_score_adj",
            finding,
            consequence,
        )
        .warning_if(adjustment > 0),
    )
}

fn threads(machine: &Machine, load: Load) -> Option<Remark> {
    let [most, now] = machine.surroundings.threads?;
    let free = most.saturating_sub(now);
    let wanted = needed::threads(machine, load);
    let finding = format!(
        "the control group allows {} threads, {} exist",
        count(most),
        count(now)
    );
    let short = free < wanted;
    let consequence = if short {
        format!(
            "Up to {} may be needed; raise pids.max (--pids-limit, TasksMax=).",
            count(wanted)
        )
    } else {
        "Enough.".to_owned()
    };
    Some(note("threads", "pids.max, pids.current", finding, consequence).warning_if(short))
}

fn container(machine: &Machine) -> Option<Remark> {
    let name = machine.surroundings.container.as_ref()?;
    Some(note(
        "container",
        "marks of container runtimes, /proc/self/cgroup",
        format!("this process is contained: {name}"),
        "Settings under net.* are those of the container; fs.*, memory and modules belong to the host.",
    ))
}

fn untracked(machine: &Machine, load: Load) -> Option<Remark> {
    let from = "/proc/sys/net/netfilter; opening loopback connections";
    match machine.conntrack {
        None => Some(note(
            "connection tracking",
            from,
            "nf_conntrack is not loaded",
            "Nothing to do.",
        )),
        Some(tracking) if tracking.is_in_use(load.role) => None,
        Some(tracking) if tracking.entries > 0 => Some(note(
            "connection tracking",
            from,
            format!(
                "nf_conntrack counts {} entries, but connections opened here over loopback were not counted",
                count(tracking.entries)
            ),
            "Nothing to do for connections that stay on this machine.",
        )),
        Some(tracking) => Some(note(
            "connection tracking",
            from,
            format!(
                "nf_conntrack is there ({} entries at most) and no rule uses it",
                count(tracking.entries_max)
            ),
            "Nothing to do, until a firewall or NAT is set up.",
        )),
    }
}

fn addresses(machine: &Machine) -> Option<Remark> {
    let addresses = machine.addresses.outside?;
    Some(note(
        "source addresses",
        "/proc/net/fib_trie",
        format!(
            "{} beside 127.0.0.0/8, each with {} ports towards a destination",
            count(addresses),
            count(machine.ports.per_source())
        ),
        "A crowd towards another machine can use all of them (swarm --source-ip).",
    ))
}

/// A limit of the epoll driver alone.
fn epoll_watches(machine: &Machine, load: Load) -> Option<Remark> {
    let watches = machine
        .epoll_watches_max
        .filter(|_| !load.uses_epoll(machine))?;
    Some(note(
        "epoll watches",
        "/proc/sys/fs/epoll/max_user_watches",
        format!("one user may have {} epoll watches", count(watches)),
        "io_uring needs none; serve --driver epoll takes one a connection.",
    ))
}

fn keepalive(machine: &Machine) -> Option<Remark> {
    let [time_s, interval_s, probes] = machine.tcp.keepalive?;
    Some(note(
        "keepalive",
        "/proc/sys/net/ipv4/tcp_keepalive_*",
        format!(
            "a dead peer is noticed after {} s by programs that ask for TCP keepalive",
            count(time_s.saturating_add(interval_s.saturating_mul(probes)))
        ),
        "Myriad pings instead (serve --ping-interval), which also keeps NAT entries alive.",
    ))
}

fn socket_buffers(machine: &Machine) -> Option<Remark> {
    let ([_, _, receive], [_, _, send]) = (
        machine.tcp.receive_buffer_bytes?,
        machine.tcp.send_buffer_bytes?,
    );
    Some(note(
        "socket buffers",
        "/proc/sys/net/ipv4/tcp_rmem, tcp_wmem",
        format!(
            "buffers grow up to {} for receiving and {} for sending, a socket; idle ones have none",
            bytes(receive),
            bytes(send)
        ),
        "A stalled client can park that much in a server that sets no bound; Myriad's is serve --send-buffer-bytes.",
    ))
}

fn of_the_first_namespace(machine: &Machine) -> Option<Remark> {
    let hidden = machine.tcp.memory_pages.is_none() && machine.unread.is_empty();
    hidden.then(|| {
        note(
            "network namespace",
            "/proc/sys/net/ipv4",
            "this is not the machine's first network namespace: tcp_mem and tcp_max_orphans are not shown here",
            "They bind all the same; run doctor outside to see them.",
        )
    })
}

fn syn_cookies(machine: &Machine, load: Load) -> Option<Remark> {
    let handshakes = machine.tcp.handshakes_max?;
    (machine.tcp.syn_cookies == Some(true) && load.role.accepts()).then(|| {
        note(
            "SYN backlog",
            "/proc/sys/net/ipv4/tcp_max_syn_backlog, tcp_syncookies",
            format!(
                "{} handshakes at once, and cookies for those beyond",
                count(handshakes)
            ),
            "Nothing to do: a larger tcp_max_syn_backlog changes nothing while tcp_syncookies is on.",
        )
    })
}

fn huge_pages(machine: &Machine) -> Option<Remark> {
    let mode = machine.surroundings.huge_pages.as_ref()?;
    let consequence = if mode == "always" {
        "Heaps with gaps take more memory than they use; Myriad's records lie close together."
    } else {
        "Programs get them when they ask."
    };
    let from = "/sys/kernel/mm/transparent_hugepage/enabled";
    let finding = format!("transparent huge pages: {mode}");
    Some(note("huge pages", from, finding, consequence))
}

fn rights(machine: &Machine) -> Remark {
    let rights = machine.rights;
    let may = |allowed| if allowed { "may" } else { "may not" };
    note(
        "rights",
        "/proc/self/status",
        format!(
            "this process {} raise hard limits (CAP_SYS_RESOURCE) and {} change the network's settings (CAP_NET_ADMIN)",
            may(rights.raises_hard_limits),
            may(rights.administers_network)
        ),
        "Myriad needs neither.",
    )
}

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

fn old_advice_in_files(machine: &Machine) -> Option<Remark> {
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
            "obsolete settings",
            from,
            lines.join("; "),
            "Delete these lines.",
        )
        .warning_if(true),
    )
}

fn old_advice() -> Remark {
    note(
        "advice to ignore",
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
