//! From changes to what is written where.

use super::Root;
use super::print::{Line, kibibytes, limits_conf, lines, merged_sysctl_conf, systemd_drop_in};
use crate::change_list::ChangeList;
use crate::changes::{Change, Setting};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

/// How long changes should last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// Only what is in force now.
    UntilReboot,
    /// Also in the files that are read when the machine starts.
    Persistent,
}

/// What a step writes to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// A setting of the running kernel, by its name with dots.
    Sysctl(String),
    /// A file of a configuration.
    File(PathBuf),
}

const RESERVED: &str = "net.ipv4.ip_local_reserved_ports";

/// A list such as `8000,9000-9010` as the ranges it comes to, in order; what is no port stands for itself.
fn ports(list: &str) -> Result<Vec<(u32, u32)>, &str> {
    let mut ranges = Vec::new();
    for item in list.trim().split(',').filter(|item| !item.is_empty()) {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        match (first.parse::<u16>(), last.parse::<u16>()) {
            (Ok(first), Ok(last)) => ranges.push((u32::from(first), u32::from(last))),
            _ => return Err(list),
        }
    }
    ranges.sort_unstable();
    let mut joined: Vec<(u32, u32)> = Vec::new();
    for (first, last) in ranges {
        match joined.last_mut() {
            Some((_, end)) if first <= *end + 1 => *end = last.max(*end),
            _ => joined.push((first, last)),
        }
    }
    Ok(joined)
}

impl Target {
    /// The file it is.
    pub(super) fn path(&self, root: &Root) -> PathBuf {
        match self {
            Self::Sysctl(key) => {
                root.place(&PathBuf::from("/proc/sys").join(key.replace('.', "/")))
            }
            Self::File(path) => root.place(path),
        }
    }

    /// What it holds; none where there is no such file. A setting's final line end is not part of it.
    pub(super) fn read(&self, root: &Root) -> io::Result<Option<String>> {
        match std::fs::read_to_string(self.path(root)) {
            Ok(text) if matches!(self, Self::Sysctl(_)) => Ok(Some(text.trim_end().to_owned())),
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether two values are the same to the kernel, which writes tabs where it was given spaces, and sorts and joins a
    /// list of ports.
    pub(super) fn same(&self, one: Option<&str>, other: Option<&str>) -> bool {
        match self {
            Self::Sysctl(key) if key == RESERVED => match (one, other) {
                (Some(one), Some(other)) => ports(one) == ports(other),
                (one, other) => one == other,
            },
            Self::Sysctl(_) => {
                let words = |text: Option<&str>| {
                    text.map(|text| {
                        text.split_whitespace()
                            .map(str::to_owned)
                            .collect::<Vec<_>>()
                    })
                };
                words(one) == words(other)
            }
            Self::File(_) => one == other,
        }
    }
}

impl Target {
    /// Whether systemd has to read its files anew for it.
    #[must_use]
    pub fn is_of_systemd(&self) -> bool {
        let folders = ["/etc/systemd", "/run/systemd"];
        matches!(self, Self::File(path) if folders.iter().any(|folder| path.starts_with(folder)))
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sysctl(key) => f.write_str(key),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Where.
    pub target: Target,
    /// What is there now; none where there is nothing.
    pub before: Option<String>,
    /// What will be there.
    pub after: String,
    /// Why.
    pub why: String,
    /// What has to be as planned before: without it this step would do harm, and is left out.
    pub needs: Vec<Target>,
}

/// What will be written, and what nobody but the user can do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Writes, in order.
    pub steps: Vec<Step>,
    /// Sentences.
    pub by_hand: Vec<String>,
    /// What the files among the steps give to programs that are started after them.
    pub given: Vec<Change>,
}

pub(super) const SYSCTL_FILE: &str = "/etc/sysctl.d/90-myriad.conf";
const LIMITS_FILE: &str = "/etc/security/limits.d/90-myriad.conf";

/// A setting that an earlier run changed, and that is still as it made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// Its name with dots.
    pub key: String,
    /// What it is now.
    pub value: String,
}

/// Files are read by their names, whatever folder they are in, and `sysctl.conf` after all of them.
fn is_read_after_ours(file: &str) -> bool {
    let name = |path: &str| Path::new(path).file_name().map(std::ffi::OsStr::to_owned);
    file == "/etc/sysctl.conf" || (file != SYSCTL_FILE && name(file) > name(SYSCTL_FILE))
}

impl Plan {
    /// Plans the changes. `unit` is the systemd unit whose program gets descriptors, such as `nginx.service`; `made`
    /// is what earlier runs changed, which lasts from now on too if the changes are to.
    ///
    /// # Errors
    /// Something that would be changed cannot be read.
    pub fn new(
        root: &Root,
        changes: &[Change],
        persistence: Persistence,
        unit: Option<&str>,
        made: &[Made],
    ) -> io::Result<Self> {
        let mut plan = Self::default();
        for change in changes {
            // The others are inherited from whoever starts the program: below.
            if let Setting::Sysctl(key) = change.setting {
                let target = Target::Sysctl(key.to_owned());
                plan.add(root, target, change.to.clone(), &change.why)?;
            }
        }
        if persistence == Persistence::Persistent {
            plan.lasting(root, changes, made)?;
        }
        plan.of_program(root, changes, persistence, unit)?;
        plan.find_needs();
        Ok(plan)
    }

    /// The file that the boot reads, and what can still undo it.
    fn lasting(&mut self, root: &Root, changes: &[Change], made: &[Made]) -> io::Result<()> {
        let target = Target::File(SYSCTL_FILE.into());
        let existing = target.read(root)?.unwrap_or_default();
        let mut lines = lines(changes);
        for Made { key, value } in made {
            let has =
                |line: &str| line.replace(' ', "") == format!("{key}={value}").replace(' ', "");
            if lines.iter().any(|line| line.key == *key) || existing.lines().any(has) {
                continue;
            }
            lines.push(Line {
                key: key.clone(),
                to: value.clone(),
                note: "made by an earlier run".into(),
            });
        }
        if lines.is_empty() {
            return Ok(());
        }
        let contents = merged_sysctl_conf(&existing, &lines);
        self.add(root, target, contents, "so that it lasts beyond a reboot")?;
        let is_ours = |key: &str| lines.iter().any(|line| line.key == key);
        for later in crate::probe::configured_sysctls(&root.place(Path::new("/"))) {
            if is_ours(&later.key) && is_read_after_ours(&later.file) {
                self.by_hand.push(format!(
                    "take {} out of {}, line {}: it is read after {SYSCTL_FILE}",
                    later.key, later.file, later.line
                ));
            }
        }
        if is_ours("net.netfilter.nf_conntrack_max") {
            self.by_hand.push(
                "echo nf_conntrack > /etc/modules-load.d/nf_conntrack.conf: at boot the setting is lost where that module \
                 is loaded after sysctl's files are read"
                    .into(),
            );
        }
        Ok(())
    }

    /// A limit above `fs.nr_open`, now or after the next boot, keeps logins and services from starting. A wider range of
    /// ports takes in a listening port, unless that is reserved first.
    fn find_needs(&mut self) {
        let ceiling = [
            Target::Sysctl("fs.nr_open".into()),
            Target::File(SYSCTL_FILE.into()),
        ];
        let reserved = [Target::Sysctl(RESERVED.into())];
        let planned = |needed: &[Target], steps: &[Step]| -> Vec<Target> {
            let is_step = |target: &&Target| steps.iter().any(|step| step.target == **target);
            needed.iter().filter(is_step).cloned().collect()
        };
        for index in 0..self.steps.len() {
            let needed = match &self.steps[index].target {
                Target::File(path) if path != Path::new(SYSCTL_FILE) => &ceiling[..],
                Target::Sysctl(key) if key == "net.ipv4.ip_local_port_range" => &reserved,
                _ => &[],
            };
            self.steps[index].needs = planned(needed, &self.steps);
        }
    }

    fn add(&mut self, root: &Root, target: Target, after: String, why: &str) -> io::Result<()> {
        let before = target.read(root)?;
        if !target.same(before.as_deref(), Some(&after)) {
            self.steps.push(Step {
                target,
                before,
                after,
                why: why.to_owned(),
                needs: Vec::new(),
            });
        }
        Ok(())
    }

    /// A limit of a program is inherited from whoever starts it, so that there is nothing to change in the kernel.
    fn of_program(
        &mut self,
        root: &Root,
        changes: &[Change],
        persistence: Persistence,
        unit: Option<&str>,
    ) -> io::Result<()> {
        let Some(drop_in) = systemd_drop_in(changes) else {
            return Ok(());
        };
        if let Some(unit) = unit {
            let folder = match persistence {
                Persistence::Persistent => "/etc/systemd/system",
                Persistence::UntilReboot => "/run/systemd/system",
            };
            let path = PathBuf::from(format!("{folder}/{unit}.d/90-myriad.conf"));
            let why = "the unit's processes get that much";
            self.given = changes.to_vec();
            self.add(root, Target::File(path), drop_in, why)?;
            self.by_hand.push(format!(
                "systemctl daemon-reload && systemctl restart {unit}"
            ));
            return Ok(());
        }
        let limits = limits_conf(changes);
        let written = limits.is_some() && persistence == Persistence::Persistent;
        if let Some(limits) = limits.filter(|_| written) {
            let target = Target::File(LIMITS_FILE.into());
            let of_login = |change: &&Change| {
                matches!(
                    change.setting,
                    Setting::DescriptorLimit | Setting::LockedMemory
                )
            };
            self.given = changes.iter().filter(of_login).cloned().collect();
            self.add(root, target, limits, "logins get that much")?;
            self.by_hand.push(
                "log in again, and start the program from there (services need --unit)".into(),
            );
        }
        for change in changes {
            let to = &change.to;
            let task = match change.setting {
                Setting::DescriptorLimit if !written => format!("ulimit -n {to}"),
                Setting::LockedMemory if !written => format!("ulimit -l {}", kibibytes(to)),
                Setting::Threads => {
                    self.by_hand.push(format!(
                        "raise pids.max of the control group to {to} (TasksMax=, --pids-limit; or --unit NAME for a service)"
                    ));
                    continue;
                }
                Setting::OutOfMemoryScore => format!("echo {to} > /proc/self/oom_score_adj"),
                _ => continue,
            };
            self.by_hand.push(format!(
                "{task} in the shell that starts the program (or --unit NAME for a service)"
            ));
        }
        Ok(())
    }

    /// What will be written, as a person should see it before it is: a table for a terminal with `width` columns, and
    /// lines of at most [`myriad_layout::WIDTH_MAX`]. Lines of a file stay as they are.
    #[must_use]
    pub fn listed(&self, width: usize) -> String {
        let mut list = ChangeList::new(width);
        for Step {
            target,
            before,
            after,
            why,
            ..
        } in &self.steps
        {
            match (target, before) {
                (Target::Sysctl(key), before) => {
                    let before = before.as_deref().unwrap_or_default().replace('\t', " ");
                    list.add(key, &before, after, "", why);
                }
                (Target::File(path), None) => {
                    list.add(&path.to_string_lossy(), "no file", "new file", after, why);
                }
                (Target::File(path), Some(_)) => {
                    list.add(&path.to_string_lossy(), "old file", "new file", after, why);
                }
            }
        }
        let mut out = list.draw();
        for task in &self.by_hand {
            let _ = writeln!(out, "  by hand: {task}");
        }
        out
    }
}
