//! Container, control group, cards, and what somebody once wrote into sysctl's files.

use super::files::{ProbeError, Tree};
use super::{Unread, cgroup};
use crate::machine::{Interface, OldAdvice, Surroundings};
use std::path::Path;

pub(super) fn read(proc: &Tree, root: &Tree, cgroups: &Path, unread: &mut Unread) -> Surroundings {
    let huge_pages = root.text_if_present("sys/kernel/mm/transparent_hugepage/enabled");
    let huge_pages = unread.or(huge_pages, || None);
    let adjustment = unread.or(proc.text_if_present("self/oom_score_adj"), || None);
    Surroundings {
        container: unread.or(container(proc, root), || None),
        threads: unread.or(cgroup::threads(proc, cgroups), || None),
        oom_score_adjustment: adjustment.and_then(|text| text.trim().parse().ok()),
        // The mode in force stands in brackets: `always [madvise] never`.
        huge_pages: huge_pages.and_then(|text| {
            let (_, rest) = text.split_once('[')?;
            Some(rest.split_once(']')?.0.to_owned())
        }),
        interfaces: unread.or(interfaces(root), Vec::new),
        old_advice: unread.or(old_advice(root), Vec::new),
    }
}

/// What contains us, by the marks that runtimes leave.
fn container(proc: &Tree, root: &Tree) -> Result<Option<String>, ProbeError> {
    if root.exists("var/run/secrets/kubernetes.io") {
        return Ok(Some("kubernetes".into()));
    }
    for (mark, name) in [(".dockerenv", "docker"), ("run/.containerenv", "podman")] {
        if root.exists(mark) {
            return Ok(Some(name.into()));
        }
    }
    // systemd keeps there what the runtime told the first process (`container=`).
    if let Some(name) = root.text_if_present("run/systemd/container")? {
        return Ok(Some(name.trim().to_owned()));
    }
    let membership = proc.text_if_present("self/cgroup")?.unwrap_or_default();
    let of_group = ["kubepods", "docker", "lxc", "libpod"]
        .into_iter()
        .find(|name| membership.contains(&format!("/{name}")));
    Ok(of_group.map(str::to_owned))
}

/// Cards have a device behind them; loopback, bridges and tunnels do not.
fn interfaces(root: &Tree) -> Result<Vec<Interface>, ProbeError> {
    let mut interfaces = Vec::new();
    for name in root.names_in("sys/class/net")? {
        let card = format!("sys/class/net/{name}");
        if !root.exists(format!("{card}/device")) {
            continue;
        }
        let queues = root.names_in(format!("{card}/queues"))?;
        let receive: Vec<&String> = queues
            .iter()
            .filter(|name| name.starts_with("rx-"))
            .collect();
        let mut spreads_packets = false;
        for queue in &receive {
            let mask = root.text_if_present(format!("{card}/queues/{queue}/rps_cpus"))?;
            // A mask is hexadecimal, in groups: `00000000,00000003`.
            spreads_packets |=
                mask.is_some_and(|mask| mask.contains(|c: char| ('1'..='f').contains(&c)));
        }
        interfaces.push(Interface {
            receive_queues: receive.len(),
            transmit_queues: queues.iter().filter(|name| name.starts_with("tx-")).count(),
            spreads_packets,
            name,
        });
    }
    Ok(interfaces)
}

/// Settings that are found in advice everywhere, and do nothing or harm on the kernels we run on.
pub(crate) const OLD_KEYS: [&str; 7] = [
    "net.ipv4.tcp_tw_recycle",
    "net.ipv4.tcp_low_latency",
    "net.ipv4.tcp_fack",
    "net.ipv4.tcp_adv_win_scale",
    "net.ipv4.netfilter.ip_conntrack_max",
    "net.ipv4.ip_conntrack_max",
    "net.ipv4.tcp_abort_on_overflow",
];

/// Where sysctl's settings are kept, as sysctl.d(5) has it.
const FOLDERS: [&str; 4] = [
    "etc/sysctl.d",
    "run/sysctl.d",
    "usr/local/lib/sysctl.d",
    "usr/lib/sysctl.d",
];
/// A configuration longer than this is none.
const FILES_MAX: usize = 1_000;

/// Every setting in sysctl's files: `sysctl.conf`, then the folders.
pub(super) fn sysctl_lines(root: &Tree) -> Result<Vec<OldAdvice>, ProbeError> {
    let mut files = vec!["etc/sysctl.conf".to_owned()];
    for folder in FOLDERS {
        let names = root.names_in(folder)?.into_iter();
        files.extend(
            names
                .filter(|name| name.ends_with(".conf"))
                .map(|name| format!("{folder}/{name}")),
        );
    }
    let mut found = Vec::new();
    for file in files.iter().take(FILES_MAX) {
        // A dangling link, or a file that only root may read, hides advice and nothing more.
        let Ok(Some(text)) = root.text_if_present(file) else {
            continue;
        };
        for (index, line) in text.lines().enumerate() {
            let Some((key, _)) = line.split_once('=') else {
                continue;
            };
            let key = key.trim();
            // A dash before the key lets sysctl go on without it.
            let key = key.strip_prefix('-').unwrap_or(key).replace('/', ".");
            found.push(OldAdvice {
                file: format!("/{file}"),
                line: index + 1,
                key,
            });
        }
    }
    Ok(found)
}

fn old_advice(root: &Tree) -> Result<Vec<OldAdvice>, ProbeError> {
    let mut found = sysctl_lines(root)?;
    found.retain(|line| OLD_KEYS.contains(&line.key.as_str()));
    Ok(found)
}
