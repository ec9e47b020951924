//! Reading the machine: `/proc`, `/sys`, and nothing that changes anything.
//!
//! These readers are by hand, unlike those of `myriad-usage`: a file may be under any root, an error names the file and
//! what should be in it, and what a file does not say, as in many containers, is a remark of the report. The parsers
//! of `procfs` refuse a file as a whole when one line is missing that we do not need.

mod cgroup;
mod files;
mod meminfo;
mod network;
mod surroundings;

pub use files::ProbeError;

use crate::machine::{
    Addresses, Cgroup, Cores, Descriptors, IoUring, Kernel, Listening, Machine, Memory, OldAdvice,
    Rights,
};
use crate::trials::Trials;
use files::Tree;
use std::path::{Path, PathBuf};

// Bits of the capability masks in `/proc/self/status` (capabilities(7)).
const CAP_NET_ADMIN: u32 = 12;
const CAP_IPC_LOCK: u32 = 14;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_SYS_RESOURCE: u32 = 24;

/// `fs.nr_open` where nobody changed it.
const TABLE_CEILING: u64 = 1 << 20;

/// Where a server listens unless it is told otherwise.
pub const LISTENING_PORT: u16 = 8000;

/// Where to look. Production looks at [`Probe::system`]; tests bring directories of their own.
#[derive(Clone, Debug)]
pub struct Probe {
    proc: Tree,
    /// `/`, for what is neither in `/proc` nor a control group.
    root: Tree,
    cgroups: PathBuf,
}

impl Probe {
    /// This machine.
    #[must_use]
    pub fn system() -> Self {
        Self::under("/")
    }

    /// A machine described by files under another root: its `proc`, `sys` and `etc`.
    pub fn under(root: impl AsRef<Path>) -> Self {
        let root = root.as_ref();
        Self {
            proc: Tree::new(root.join("proc")),
            cgroups: root.join("sys/fs/cgroup"),
            root: Tree::new(root.to_path_buf()),
        }
    }

    /// Everything, with what was found by trying: [`Trials`], or only the cost of a connection. A server is taken to
    /// listen on [`LISTENING_PORT`]; [`Machine::listen_on`] changes that.
    ///
    /// # Errors
    /// Memory, descriptors or ports cannot be read: without them there is nothing to say. What else cannot be read is
    /// in [`Machine::unread`].
    pub fn machine(&self, trials: impl Into<Trials>) -> Result<Machine, ProbeError> {
        let trials = trials.into();
        let memory = self.memory()?;
        let (ports, reserved_ports) = (self.ports()?, self.reserved_list()?);
        let mut unread = Unread::default();
        let kernel = unread.or(self.kernel(), Kernel::unknown);
        let capabilities = unread.or(self.capabilities(), || 0);
        let descriptors = self.descriptors(&kernel, capabilities, &mut unread)?;
        Ok(Machine {
            io_uring: self.io_uring(
                &kernel,
                descriptors.files_max_exempt,
                trials.io_uring.as_ref(),
                &mut unread,
            ),
            cores: unread.or(self.cores(), || self.cores_unread()),
            memory,
            cgroup: unread.or(self.cgroup(), || None),
            cgroup_tcp: unread.or(cgroup::tightest_for_tcp(&self.proc, &self.cgroups), || None),
            descriptors,
            rights: rights(capabilities),
            listening: Listening::of(LISTENING_PORT, ports, &reserved_ports),
            ports,
            reserved_ports,
            addresses: unread.or(self.addresses(), || Addresses { outside: None }),
            tcp: self.tcp(&mut unread),
            conntrack: unread.or(self.conntrack(trials.conntrack_tracks), || None),
            epoll_watches_max: unread.or(
                self.proc.number_if_present("sys/fs/epoll/max_user_watches"),
                || None,
            ),
            surroundings: surroundings::read(&self.proc, &self.root, &self.cgroups, &mut unread),
            connection_cost: trials.connection_cost,
            kernel,
            unread: unread.0,
        })
    }

    /// The tightest memory limit among this process's control groups.
    ///
    /// # Errors
    /// A file is there and has another form.
    pub fn cgroup(&self) -> Result<Option<Cgroup>, ProbeError> {
        cgroup::tightest(&self.proc, &self.cgroups)
    }

    /// Bytes charged to the control group whose limit binds this process, if one does.
    ///
    /// # Errors
    /// A file is there and has another form.
    pub fn charged_bytes(&self) -> Result<Option<u64>, ProbeError> {
        cgroup::charged_bytes(&self.proc, &self.cgroups)
    }

    /// The running kernel.
    ///
    /// # Errors
    /// `kernel.osrelease` cannot be read or does not start with two numbers.
    pub fn kernel(&self) -> Result<Kernel, ProbeError> {
        const PATH: &str = "sys/kernel/osrelease";
        let release = self.proc.text(PATH)?.trim().to_owned();
        let mut numbers = release.split(['.', '-', '+']).map(str::parse::<u32>);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => Ok(Kernel {
                release,
                major,
                minor,
            }),
            _ => Err(self
                .proc
                .malformed(PATH, "a version such as 6.8.0", &release)),
        }
    }

    /// Memory now.
    ///
    /// # Errors
    /// `/proc/meminfo` cannot be read or lacks a line (`MemAvailable` exists from Linux 3.14 on).
    pub fn memory(&self) -> Result<Memory, ProbeError> {
        meminfo::read(&self.proc)
    }

    /// RLIMIT_NOFILE of this process, soft and hard.
    ///
    /// # Errors
    /// `/proc/self/limits` cannot be read or has another form.
    pub fn table_limits(&self) -> Result<(u64, u64), ProbeError> {
        self.limits("Max open files", "a line 'Max open files' with two limits")
    }

    /// Descriptor limits of this process and of the machine.
    fn descriptors(
        &self,
        kernel: &Kernel,
        capabilities: u64,
        unread: &mut Unread,
    ) -> Result<Descriptors, ProbeError> {
        let (table_soft, table_hard) = self.table_limits()?;
        let [files_open, _free, files_max] = self.proc.numbers("sys/fs/file-nr")?;
        let ceiling = unread.or(self.proc.number("sys/fs/nr_open"), || {
            TABLE_CEILING.max(table_hard)
        });
        let first_namespace = unread.or(self.is_first_namespace(), || false);
        let has = |capability: u32| first_namespace && capabilities >> capability & 1 == 1;
        Ok(Descriptors {
            table_soft,
            table_hard,
            table_ceiling: ceiling,
            files_max,
            files_open,
            files_max_exempt: has(CAP_SYS_ADMIN),
            locked_bytes_max: unread.or(self.locked_bytes_max(kernel), || None),
            locked_exempt: has(CAP_IPC_LOCK),
        })
    }

    fn locked_bytes_max(&self, kernel: &Kernel) -> Result<Option<u64>, ProbeError> {
        if !kernel.at_least(6, 14) {
            return Ok(None);
        }
        let (_, hard) = self.limits(
            "Max locked memory",
            "a line 'Max locked memory' with two limits",
        )?;
        Ok((hard != u64::MAX).then_some(hard))
    }

    /// The line of `/proc/self/limits` that begins so: soft, hard.
    fn limits(&self, name: &str, expected: &'static str) -> Result<(u64, u64), ProbeError> {
        const PATH: &str = "self/limits";
        let text = self.proc.text(PATH)?;
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let mut words = line
            .unwrap_or_default()
            .split_whitespace()
            .map(|word| match word {
                "unlimited" => Some(u64::MAX),
                number => number.parse().ok(),
            });
        match (words.next().flatten(), words.next().flatten()) {
            (Some(soft), Some(hard)) => Ok((soft, hard)),
            _ => Err(self.proc.malformed(PATH, expected, &text)),
        }
    }

    /// True in the first user namespace, whose map covers all ids. A capability inside a user namespace of our own does
    /// not exempt from bounds of the whole machine.
    fn is_first_namespace(&self) -> Result<bool, ProbeError> {
        Ok(match self.proc.text_if_present("self/uid_map")? {
            None => true,
            Some(map) => map.split_whitespace().eq(["0", "0", "4294967295"]),
        })
    }

    /// The mask of effective capabilities.
    fn capabilities(&self) -> Result<u64, ProbeError> {
        const PATH: &str = "self/status";
        let text = self.proc.text(PATH)?;
        let mask = text.lines().find_map(|line| line.strip_prefix("CapEff:"));
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .ok_or_else(|| {
                self.proc
                    .malformed(PATH, "a line 'CapEff:' with a mask", &text)
            })
    }

    /// What a trial said, or else what the kernel's version and settings say.
    fn io_uring(
        &self,
        kernel: &Kernel,
        administers_machine: bool,
        trial: Option<&Result<(), String>>,
        unread: &mut Unread,
    ) -> IoUring {
        match trial {
            Some(Ok(())) => return IoUring::Allowed,
            Some(Err(reason)) => {
                return IoUring::Refused {
                    reason: reason.clone(),
                };
            }
            None if !kernel.at_least(6, 13) => return IoUring::KernelTooOld,
            None => {}
        }
        let setting = self.proc.number_if_present("sys/kernel/io_uring_disabled");
        // 0: everybody; 1: CAP_SYS_ADMIN or members of kernel.io_uring_group; 2: nobody (Linux 6.6).
        match unread.or(setting, || None) {
            None | Some(0) => IoUring::Allowed,
            Some(1) if administers_machine => IoUring::Allowed,
            Some(_) => IoUring::Disabled,
        }
    }

    /// Cores where `/proc/stat` does not tell: those of this process's affinity, or one of a machine elsewhere.
    fn cores_unread(&self) -> Cores {
        let here = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let is_here = self.cgroups == Path::new("/sys/fs/cgroup");
        let allowed = self.cores_allowed().ok().flatten();
        let cores = allowed.unwrap_or_else(|| if is_here { here() } else { 1 });
        Cores {
            online: cores,
            usable: cores,
        }
    }

    fn cores(&self) -> Result<Cores, ProbeError> {
        const PATH: &str = "stat";
        let text = self.proc.text(PATH)?;
        let online = text
            .lines()
            .filter(|line| {
                line.strip_prefix("cpu")
                    .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
            })
            .count();
        if online == 0 {
            return Err(self.proc.malformed(PATH, "lines cpu0, cpu1, ...", &text));
        }
        let allowed = self.cores_allowed()?.unwrap_or(online);
        let quota = cgroup::cores(&self.proc, &self.cgroups)?.unwrap_or(online);
        let usable = online.min(allowed).min(quota).max(1);
        Ok(Cores { online, usable })
    }

    /// Cores of this process's affinity, a list such as `0-3,8`; none where it is not told.
    fn cores_allowed(&self) -> Result<Option<usize>, ProbeError> {
        const PATH: &str = "self/status";
        let text = self.proc.text(PATH)?;
        let Some(list) = text
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        else {
            return Ok(None);
        };
        let mut cores = 0;
        for item in list.trim().split(',') {
            let (first, last) = item.split_once('-').unwrap_or((item, item));
            match (first.parse::<usize>(), last.parse::<usize>()) {
                (Ok(first), Ok(last)) if first <= last => cores += last - first + 1,
                _ => {
                    return Err(self
                        .proc
                        .malformed(PATH, "a list of cores such as 0-3,8", list));
                }
            }
        }
        Ok(Some(cores))
    }
}

/// Every setting in sysctl's files under that root, as far as they can be read.
pub(crate) fn configured_sysctls(root: &Path) -> Vec<OldAdvice> {
    let tree = Tree::new(root.to_path_buf());
    surroundings::sysctl_lines(&tree).unwrap_or_default()
}

/// What the machine allows by the mask of effective capabilities.
fn rights(capabilities: u64) -> Rights {
    let has = |bit: u32| capabilities >> bit & 1 == 1;
    Rights {
        raises_hard_limits: has(CAP_SYS_RESOURCE),
        administers_network: has(CAP_NET_ADMIN),
    }
}

/// Errors of what a machine can be judged without.
#[derive(Debug, Default)]
struct Unread(Vec<String>);

impl Unread {
    /// What was read; or else what is taken instead, and the error is kept.
    fn or<T>(&mut self, read: Result<T, ProbeError>, instead: impl FnOnce() -> T) -> T {
        read.unwrap_or_else(|error| {
            let error = error.to_string();
            // One file can be read for several things.
            if !self.0.contains(&error) {
                self.0.push(error);
            }
            instead()
        })
    }
}

#[cfg(test)]
mod tests;
