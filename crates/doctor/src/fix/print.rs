//! The changes as files for others to apply.

use crate::changes::{Change, Setting};
use crate::examination::Examination;
use crate::limits::Program;
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
        Format::LimitsConf => of_limit(examination, limits_conf),
        Format::Systemd => of_limit(examination, systemd_drop_in),
        Format::Docker => docker(examination),
        Format::Kubernetes => kubernetes(examination),
    }
}

fn sysctls(changes: &[Change]) -> impl Iterator<Item = (&'static str, &Change)> {
    changes.iter().filter_map(|change| match change.setting {
        Setting::Sysctl(key) => Some((key, change)),
        Setting::DescriptorLimit => None,
    })
}

fn descriptor_limit(changes: &[Change]) -> Option<&str> {
    let change = changes
        .iter()
        .find(|change| change.setting == Setting::DescriptorLimit)?;
    Some(&change.to)
}

fn sysctl_conf(changes: &[Change]) -> String {
    merged_sysctl_conf("", changes)
}

/// The file with the changes in it; lines of other settings stay.
pub(super) fn merged_sysctl_conf(existing: &str, changes: &[Change]) -> String {
    let changed: Vec<&str> = sysctls(changes).map(|(key, _)| key).collect();
    let mut out = String::new();
    for line in existing.lines() {
        let key = line.split('=').next().unwrap_or_default().trim();
        if !changed.contains(&key) {
            out.push_str(line);
            out.push('\n');
        }
    }
    if out.is_empty() {
        out.push_str("# Written by myriad doctor; sysctl --system reads it.\n");
    }
    for (key, change) in sysctls(changes) {
        let from = if change.from.is_empty() {
            "empty"
        } else {
            &change.from
        };
        let _ = writeln!(out, "# was {from}; {}", change.why);
        let _ = writeln!(out, "{key} = {}", change.to);
    }
    if changed.is_empty() {
        out.push_str("# Nothing to change.\n");
    }
    out
}

fn of_limit(examination: &Examination, form: fn(&str) -> String) -> String {
    match (
        descriptor_limit(&examination.changes),
        examination.load.program,
    ) {
        (Some(limit), _) => ceiling_first(&examination.changes) + &form(limit),
        (None, Program::Myriad) => {
            "# Nothing to change: Myriad takes as many descriptor tables as it needs.\n".into()
        }
        (None, Program::Ordinary { .. }) => "# Nothing to change: the limit suffices.\n".into(),
    }
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

pub(super) fn limits_conf(limit: &str) -> String {
    // An asterisk does not stand for root.
    format!(
        "# Written by myriad doctor; it counts from the next login on.\n\
         * soft nofile {limit}\n* hard nofile {limit}\nroot soft nofile {limit}\nroot hard nofile {limit}\n"
    )
}

pub(super) fn systemd_drop_in(limit: &str) -> String {
    format!("# Written by myriad doctor.\n[Service]\nLimitNOFILE={limit}\n")
}

/// Memory for the connections asked for, in mebibytes, the program's own included.
fn memory_mebibytes(examination: &Examination) -> u64 {
    let load = examination.load;
    let each = load.charged_bytes(&examination.machine.connection_cost);
    let bytes =
        crate::limits::PROGRAM_BYTES.saturating_add(each.saturating_mul(examination.wanted));
    // Five per cent, because a charge is rounded up to pages.
    bytes.saturating_add(bytes / 20).div_ceil(1 << 20)
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
    if let Some(limit) = descriptor_limit(&examination.changes) {
        let _ = writeln!(out, "--ulimit nofile={limit}:{limit}");
    }
    for (key, change) in sysctls(&examination.changes) {
        if change.setting.belongs_to_namespace() {
            let _ = writeln!(out, "--sysctl '{key}={}'", change.to);
        }
    }
    out
}

/// Of what is ever changed, this alone is among the settings that every cluster lets pods have.
const SAFE: [&str; 1] = ["net.ipv4.ip_local_port_range"];

fn kubernetes(examination: &Examination) -> String {
    let mut out = String::from("# Part of a pod's manifest.\n");
    of_host(&examination.changes, &mut out);
    if let Some(limit) = descriptor_limit(&examination.changes) {
        let _ = writeln!(
            out,
            "# A pod has no field for RLIMIT_NOFILE: the container runtime of the node has to give {limit}."
        );
    }
    let own: Vec<_> = sysctls(&examination.changes)
        .filter(|(_, change)| change.setting.belongs_to_namespace())
        .collect();
    out.push_str("spec:\n");
    if !own.is_empty() {
        for (key, _) in own.iter().filter(|(key, _)| !SAFE.contains(key)) {
            let _ = writeln!(
                out,
                "  # The kubelet has to allow it: --allowed-unsafe-sysctls {key}"
            );
        }
        out.push_str("  securityContext:\n    sysctls:\n");
        for (key, change) in own {
            let _ = writeln!(out, "    - name: {key}\n      value: \"{}\"", change.to);
        }
    }
    let memory = memory_mebibytes(examination);
    let _ = write!(
        out,
        "  containers:\n  - name: myriad\n    resources:\n      limits:\n        memory: {memory}Mi\n"
    );
    out
}
