//! Reading the machine: `/proc`, `/sys`, and nothing that changes anything.

mod cgroup;
mod files;
mod meminfo;
mod network;
mod surroundings;

pub use files::ProbeError;

use crate::machine::{
    Cgroup, Cores, Descriptors, IoUring, Kernel, Listening, Machine, Memory, Rights,
};
use crate::trials::Trials;
use files::Tree;
use std::path::{Path, PathBuf};

// Bits of the capability masks in `/proc/self/status` (capabilities(7)).
const CAP_NET_ADMIN: u32 = 12;
const CAP_IPC_LOCK: u32 = 14;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_SYS_RESOURCE: u32 = 24;

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
    /// A file every supported kernel has is missing, unreadable or has another form.
    pub fn machine(&self, trials: impl Into<Trials>) -> Result<Machine, ProbeError> {
        let trials = trials.into();
        let kernel = self.kernel()?;
        let descriptors = self.descriptors()?;
        let (ports, reserved_ports) = (self.ports()?, self.reserved_list()?);
        Ok(Machine {
            io_uring: self.io_uring(
                &kernel,
                descriptors.files_max_exempt,
                trials.io_uring.as_ref(),
            )?,
            kernel,
            cores: self.cores()?,
            memory: self.memory()?,
            cgroup: self.cgroup()?,
            descriptors,
            rights: self.rights()?,
            listening: Listening::of(LISTENING_PORT, ports, &reserved_ports),
            ports,
            reserved_ports,
            addresses: self.addresses()?,
            tcp: self.tcp()?,
            conntrack: self.conntrack(trials.conntrack_tracks)?,
            epoll_watches_max: self
                .proc
                .number_if_present("sys/fs/epoll/max_user_watches")?,
            surroundings: surroundings::read(&self.proc, &self.root, &self.cgroups)?,
            connection_cost: trials.connection_cost,
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

    /// Descriptor limits of this process and of the machine.
    ///
    /// # Errors
    /// One of the files cannot be read or has another form.
    pub fn descriptors(&self) -> Result<Descriptors, ProbeError> {
        let (table_soft, table_hard) =
            self.limits("Max open files", "a line 'Max open files' with two limits")?;
        let [files_open, _free, files_max] = self.proc.numbers("sys/fs/file-nr")?;
        Ok(Descriptors {
            table_soft,
            table_hard,
            table_ceiling: self.proc.number("sys/fs/nr_open")?,
            files_max,
            files_open,
            files_max_exempt: self.has_in_first_namespace(CAP_SYS_ADMIN)?,
            locked_bytes_max: self.locked_bytes_max()?,
            locked_exempt: self.has_in_first_namespace(CAP_IPC_LOCK)?,
        })
    }

    fn locked_bytes_max(&self) -> Result<Option<u64>, ProbeError> {
        if !self.kernel()?.at_least(6, 14) {
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

    /// True when a bound of the whole machine does not bind us: with that capability, and in the first user namespace,
    /// whose map covers all ids. A capability inside a user namespace of our own does not count for the kernel.
    fn has_in_first_namespace(&self, capability: u32) -> Result<bool, ProbeError> {
        let first_namespace = match self.proc.text_if_present("self/uid_map")? {
            None => true,
            Some(map) => map.split_whitespace().eq(["0", "0", "4294967295"]),
        };
        Ok(first_namespace && self.capabilities()? >> capability & 1 == 1)
    }

    fn rights(&self) -> Result<Rights, ProbeError> {
        let capabilities = self.capabilities()?;
        let has = |bit: u32| capabilities >> bit & 1 == 1;
        Ok(Rights {
            raises_hard_limits: has(CAP_SYS_RESOURCE),
            administers_network: has(CAP_NET_ADMIN),
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
    ) -> Result<IoUring, ProbeError> {
        match trial {
            Some(Ok(())) => return Ok(IoUring::Allowed),
            Some(Err(reason)) => {
                return Ok(IoUring::Refused {
                    reason: reason.clone(),
                });
            }
            None if !kernel.at_least(6, 13) => return Ok(IoUring::KernelTooOld),
            None => {}
        }
        // 0: everybody; 1: CAP_SYS_ADMIN or members of kernel.io_uring_group; 2: nobody (Linux 6.6).
        Ok(
            match self
                .proc
                .number_if_present("sys/kernel/io_uring_disabled")?
            {
                None | Some(0) => IoUring::Allowed,
                Some(1) if administers_machine => IoUring::Allowed,
                Some(_) => IoUring::Disabled,
            },
        )
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

#[cfg(test)]
mod tests;
