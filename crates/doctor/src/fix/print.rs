//! The changes as files for others to apply.

use crate::budget::Concern;
use crate::changes::{Change, Setting};
use crate::examination::Examination;
use crate::limits::{Program, Role};
use crate::names::limit;
use std::fmt::Write;

/// What to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A file of `/etc/sysctl.d`.
    SysctlConf,
    /// A file of `/etc/security/limits.d`.
    LimitsConf,
    /// A drop-in of a systemd unit.
    Systemd,
    /// Options of `docker run`.
    Docker,
    /// Part of a pod's manifest.
    Kubernetes,
}

/// The changes an examination asks for, in that form.
#[must_use]
pub fn print(examination: &Examination, format: Format) -> String {
    match format {
        Format::SysctlConf => sysctl_conf(&examination.changes),
        Format::LimitsConf => of_program(examination, limits_conf),
        Format::Systemd => of_program(examination, systemd_drop_in),
        Format::Docker => docker(examination),
        Format::Kubernetes => kubernetes(examination),
    }
}

fn sysctls(changes: &[Change]) -> impl Iterator<Item = (&'static str, &Change)> {
    changes.iter().filter_map(|change| match change.setting {
        Setting::Sysctl(key) => Some((key, change)),
        _ => None,
    })
}

fn sysctl_conf(changes: &[Change]) -> String {
    merged_sysctl_conf("", &lines(changes))
}

/// A line of sysctl's configuration, and what is said of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) key: String,
    pub(super) to: String,
    pub(super) note: String,
}

/// The changes of settings, as lines.
pub(super) fn lines(changes: &[Change]) -> Vec<Line> {
    sysctls(changes)
        .map(|(key, change)| {
            let from = match change.from.as_str() {
                "" => "empty",
                from => from,
            };
            Line {
                key: key.to_owned(),
                to: change.to.clone(),
                note: format!("was {from}; {}", change.why),
            }
        })
        .collect()
}

/// The file with the lines in it; lines of other settings stay.
pub(super) fn merged_sysctl_conf(existing: &str, lines: &[Line]) -> String {
    let mut out = String::new();
    for line in existing.lines() {
        let key = line.split('=').next().unwrap_or_default().trim();
        if lines.iter().all(|new| new.key != key) {
            out.push_str(line);
            out.push('\n');
        }
    }
    if out.is_empty() {
        out.push_str("# Written by myriad doctor; sysctl --system reads it.\n");
    }
    for Line { key, to, note } in lines {
        let _ = writeln!(out, "# {note}\n{key} = {to}");
    }
    if lines.is_empty() {
        out.push_str("# Nothing to change.\n");
    }
    out
}

/// A file of what one program is given, or why there is nothing in it.
fn of_program(examination: &Examination, form: fn(&[Change]) -> Option<String>) -> String {
    let changes = &examination.changes;
    if let Some(text) = form(changes) {
        return ceiling_first(changes) + &text;
    }
    let binds = examination.limits.iter().any(|judged| {
        let of_program = [limit::TABLES, limit::LOCKED_MEMORY];
        judged.concern != Concern::None && of_program.contains(&judged.limit.name)
    });
    let why = match examination.load.program {
        Program::Myriad if binds => "no limit that can be set is high enough",
        Program::Myriad => "Myriad takes as many descriptor tables as it needs",
        Program::Ordinary { .. } => "the limit suffices",
    };
    format!("# Nothing to change: {why}.\n")
}

/// Where the limit is above `fs.nr_open`, `pam_limits` lets nobody log in, and units do not start as they should.
fn ceiling_first(changes: &[Change]) -> String {
    let raised = sysctls(changes).find(|(key, _)| *key == "fs.nr_open");
    raised.map_or_else(String::new, |(key, change)| {
        format!(
            "# first: {key} = {}, now and in /etc/sysctl.d; with a lower one logins fail\n",
            change.to
        )
    })
}

pub(super) fn limits_conf(changes: &[Change]) -> Option<String> {
    let lines: Vec<(&str, String)> = changes
        .iter()
        .filter_map(|change| match change.setting {
            Setting::DescriptorLimit => Some(("nofile", change.to.clone())),
            Setting::LockedMemory => Some(("memlock", kibibytes(&change.to))),
            _ => None,
        })
        .collect();
    if lines.is_empty() {
        return None;
    }
    let mut out = String::from("# Written by myriad doctor; it counts from the next login on.\n");
    for (item, limit) in lines {
        // An asterisk does not stand for root.
        let _ = write!(
            out,
            "* soft {item} {limit}\n* hard {item} {limit}\nroot soft {item} {limit}\nroot hard {item} {limit}\n"
        );
    }
    Some(out)
}

/// `limits.conf` and `ulimit` count locked memory so.
pub(super) fn kibibytes(bytes: &str) -> String {
    bytes.parse::<u64>().map_or_else(
        |_| bytes.to_owned(),
        |bytes| bytes.div_ceil(1_024).to_string(),
    )
}

pub(super) fn systemd_drop_in(changes: &[Change]) -> Option<String> {
    let lines: Vec<String> = changes
        .iter()
        .filter_map(|change| {
            let directive = match change.setting {
                Setting::DescriptorLimit => "LimitNOFILE",
                Setting::LockedMemory => "LimitMEMLOCK",
                Setting::Threads => "TasksMax",
                Setting::OutOfMemoryScore => "OOMScoreAdjust",
                Setting::Sysctl(_) => return None,
            };
            Some(format!("{directive}={}\n", change.to))
        })
        .collect();
    let lines = (!lines.is_empty()).then(|| lines.concat())?;
    Some(format!("# Written by myriad doctor.\n[Service]\n{lines}"))
}

/// The options of `docker run` for what one program is given.
fn docker_options(changes: &[Change]) -> Vec<String> {
    let option = |change: &Change| {
        let to = &change.to;
        match change.setting {
            Setting::DescriptorLimit => Some(format!("--ulimit nofile={to}:{to}")),
            Setting::LockedMemory => Some(format!("--ulimit memlock={to}:{to}")),
            Setting::Threads => Some(format!("--pids-limit {to}")),
            Setting::OutOfMemoryScore => Some(format!("--oom-score-adj {to}")),
            Setting::Sysctl(_) => None,
        }
    };
    changes.iter().filter_map(option).collect()
}

/// Memory for the connections asked for, in mebibytes, the program's own included.
fn memory_mebibytes(examination: &Examination) -> u64 {
    let load = examination.load;
    let each = load.charged_bytes(&examination.machine.connection_cost);
    let bytes =
        crate::limits::PROGRAM_BYTES.saturating_add(each.saturating_mul(examination.wanted));
    // Five per cent, because a charge is rounded up to pages.
    let bytes = bytes.saturating_add(bytes / 20);
    let bytes = match (load.program, load.role) {
        // An eighth of its memory may be queued, and a sixteenth of it be publications on their way.
        (Program::Myriad, Role::Server | Role::BothEnds) => bytes.saturating_mul(16) / 13,
        _ => bytes,
    };
    bytes.div_ceil(1 << 20)
}

fn of_host(changes: &[Change], out: &mut String) {
    for (key, change) in
        sysctls(changes).filter(|(_, change)| !change.setting.belongs_to_namespace())
    {
        let _ = writeln!(
            out,
            "# On the host, because containers share it: {key} = {}",
            change.to
        );
    }
}

fn docker(examination: &Examination) -> String {
    let mut out = String::from("# Options of docker run, or the same names in a compose file.\n");
    of_host(&examination.changes, &mut out);
    let _ = writeln!(out, "--memory {}m", memory_mebibytes(examination));
    for option in docker_options(&examination.changes) {
        let _ = writeln!(out, "{option}");
    }
    for (key, change) in sysctls(&examination.changes) {
        if change.setting.belongs_to_namespace() {
            let _ = writeln!(out, "--sysctl '{key}={}'", change.to);
        }
    }
    out
}

/// What every cluster lets pods have of what is ever changed, and the version from which on, if not always.
const SAFE: [(&str, Option<&str>); 3] = [
    ("net.ipv4.ip_local_port_range", None),
    ("net.ipv4.tcp_syncookies", None),
    ("net.ipv4.ip_local_reserved_ports", Some("1.27")),
];

fn kubernetes(examination: &Examination) -> String {
    let mut out = String::from("# Part of a pod's manifest.\n");
    of_host(&examination.changes, &mut out);
    for change in &examination.changes {
        let who = match change.setting {
            Setting::DescriptorLimit | Setting::LockedMemory => "the container runtime of the node",
            Setting::Threads => "the kubelet (podPidsLimit)",
            // The kubelet sets it by the pod's class.
            Setting::OutOfMemoryScore | Setting::Sysctl(_) => continue,
        };
        let name = change.setting.name();
        let _ = writeln!(
            out,
            "# A pod has no field for {name}: {who} has to give {}.",
            change.to
        );
    }
    let own: Vec<_> = sysctls(&examination.changes)
        .filter(|(_, change)| change.setting.belongs_to_namespace())
        .collect();
    out.push_str("spec:\n");
    if !own.is_empty() {
        for (key, _) in &own {
            let safe = SAFE.iter().find(|(safe, _)| safe == key);
            let before = match safe {
                Some((_, None)) => continue,
                Some((_, Some(version))) => format!(", before Kubernetes {version}"),
                None => String::new(),
            };
            let _ = writeln!(
                out,
                "  # The kubelet has to allow it{before}: --allowed-unsafe-sysctls {key}"
            );
        }
        out.push_str("  securityContext:\n    sysctls:\n");
        for (key, change) in own {
            let _ = writeln!(out, "    - name: {key}\n      value: \"{}\"", change.to);
        }
    }
    let memory = memory_mebibytes(examination);
    let name = match (examination.load.program, examination.load.role) {
        (Program::Myriad, _) => "myriad",
        (Program::Ordinary { .. }, Role::Proxy(_)) => "proxy",
        (Program::Ordinary { .. }, Role::Crowd(_)) => "client",
        (Program::Ordinary { .. }, Role::Server | Role::BothEnds) => "server",
    };
    let _ = write!(
        out,
        "  containers:\n  - name: {name}\n    resources:\n      limits:\n        memory: {memory}Mi\n"
    );
    out
}
