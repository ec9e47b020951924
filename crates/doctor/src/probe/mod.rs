//! Reading the machine: `/proc`, `/sys`, and nothing that changes anything.

mod cgroup;
mod files;
mod meminfo;

pub use files::ProbeError;

use crate::machine::{
    ConnectionCost, Conntrack, Cores, Descriptors, IoUring, Kernel, Machine, Memory, Ports, Tcp,
};
use files::Tree;
use std::path::PathBuf;

/// CAP_SYS_ADMIN is bit 21 of the capability masks in `/proc/self/status` (capabilities(7)).
const CAP_SYS_ADMIN: u32 = 21;

/// Where to look. Production looks at [`Probe::system`]; tests bring directories of their own.
#[derive(Clone, Debug)]
pub struct Probe {
    proc: Tree,
    cgroups: PathBuf,
}

impl Probe {
    /// This machine.
    #[must_use]
    pub fn system() -> Self {
        Self::at("/proc", "/sys/fs/cgroup")
    }

    /// A machine described by files under other directories.
    pub fn at(proc: impl Into<PathBuf>, cgroups: impl Into<PathBuf>) -> Self {
        Self {
            proc: Tree::new(proc.into()),
            cgroups: cgroups.into(),
        }
    }

    /// Everything, with the given cost of a connection (see [`crate::measure`]).
    ///
    /// # Errors
    /// A file every supported kernel has is missing, unreadable or has another form.
    pub fn machine(&self, connection_cost: ConnectionCost) -> Result<Machine, ProbeError> {
        let kernel = self.kernel()?;
        let descriptors = self.descriptors()?;
        Ok(Machine {
            io_uring: self.io_uring(&kernel, descriptors.files_max_exempt)?,
            kernel,
            cores: self.cores()?,
            memory: self.memory()?,
            cgroup: cgroup::tightest(&self.proc, &self.cgroups)?,
            descriptors,
            ports: self.ports()?,
            tcp: self.tcp()?,
            conntrack: self.conntrack()?,
            epoll_watches_max: self
                .proc
                .number_if_present("sys/fs/epoll/max_user_watches")?,
            connection_cost,
        })
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
        let (table_soft, table_hard) = self.table_limits()?;
        let [files_open, _free, files_max] = self.proc.numbers("sys/fs/file-nr")?;
        Ok(Descriptors {
            table_soft,
            table_hard,
            table_ceiling: self.proc.number("sys/fs/nr_open")?,
            files_max,
            files_open,
            files_max_exempt: self.administers_machine()?,
        })
    }

    /// The `Max open files` line of `/proc/self/limits`: soft, hard.
    fn table_limits(&self) -> Result<(u64, u64), ProbeError> {
        const PATH: &str = "self/limits";
        let text = self.proc.text(PATH)?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("Max open files"));
        let mut words = line
            .unwrap_or_default()
            .split_whitespace()
            .map(|word| match word {
                "unlimited" => Some(u64::MAX),
                number => number.parse().ok(),
            });
        match (words.next().flatten(), words.next().flatten()) {
            (Some(soft), Some(hard)) => Ok((soft, hard)),
            _ => Err(self
                .proc
                .malformed(PATH, "a line 'Max open files' with two limits", &text)),
        }
    }

    /// True when `fs.file-max` does not bind us: CAP_SYS_ADMIN, and in the first user namespace, whose
    /// map covers all ids. A capability inside a user namespace of our own does not count for the kernel.
    fn administers_machine(&self) -> Result<bool, ProbeError> {
        const PATH: &str = "self/status";
        let text = self.proc.text(PATH)?;
        let mask = text.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        let mask = mask.ok_or_else(|| {
            self.proc
                .malformed(PATH, "a line 'CapEff:' with a mask", &text)
        })?;
        let first_namespace = match self.proc.text_if_present("self/uid_map")? {
            None => true,
            Some(map) => map.split_whitespace().eq(["0", "0", "4294967295"]),
        };
        Ok(first_namespace && mask >> CAP_SYS_ADMIN & 1 == 1)
    }

    fn io_uring(&self, kernel: &Kernel, administers_machine: bool) -> Result<IoUring, ProbeError> {
        if !kernel.at_least(6, 8) {
            return Ok(IoUring::KernelTooOld);
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
        let usable = std::thread::available_parallelism().map_or(online, |n| n.get().min(online));
        Ok(Cores { online, usable })
    }

    /// Ports for outgoing connections.
    ///
    /// # Errors
    /// The range or the reserved list cannot be read or has another form.
    pub fn ports(&self) -> Result<Ports, ProbeError> {
        const RANGE: &str = "sys/net/ipv4/ip_local_port_range";
        let [first, last] = self.proc.numbers(RANGE)?;
        let (Ok(first), Ok(last)) = (u16::try_from(first), u16::try_from(last)) else {
            return Err(self
                .proc
                .malformed(RANGE, "two ports", &format!("{first} {last}")));
        };
        Ok(Ports {
            first,
            last,
            reserved: self.reserved_ports(first, last)?,
        })
    }

    /// `ip_local_reserved_ports` is a list such as `8000,9000-9010`; only what lies in the range counts.
    fn reserved_ports(&self, first: u16, last: u16) -> Result<u32, ProbeError> {
        const PATH: &str = "sys/net/ipv4/ip_local_reserved_ports";
        let Some(text) = self.proc.text_if_present(PATH)? else {
            return Ok(0);
        };
        let mut reserved = 0;
        for item in text.trim().split(',').filter(|item| !item.is_empty()) {
            let (from, to) = item.split_once('-').unwrap_or((item, item));
            let (Ok(from), Ok(to)) = (from.parse::<u16>(), to.parse::<u16>()) else {
                return Err(self
                    .proc
                    .malformed(PATH, "ports and ranges of ports", &text));
            };
            let (from, to) = (u32::from(from.max(first)), u32::from(to.min(last)));
            reserved += (to + 1).saturating_sub(from);
        }
        Ok(reserved)
    }

    fn tcp(&self) -> Result<Tcp, ProbeError> {
        // Negative in a network namespace that shares the first one's table; the size is the same table's.
        let buckets = self
            .proc
            .text_if_present("sys/net/ipv4/tcp_ehash_entries")?;
        let buckets = buckets.and_then(|text| text.trim().parse::<i64>().ok());
        Ok(Tcp {
            memory_pages: self.proc.numbers("sys/net/ipv4/tcp_mem")?,
            backlog_max: self.proc.number("sys/net/core/somaxconn")?,
            orphans_max: self.proc.number("sys/net/ipv4/tcp_max_orphans")?,
            hash_buckets: buckets.map(i64::unsigned_abs),
        })
    }

    /// Connection tracking, or nothing where the module is not loaded.
    ///
    /// # Errors
    /// A file is there and has another form.
    pub fn conntrack(&self) -> Result<Option<Conntrack>, ProbeError> {
        let entries_max = self
            .proc
            .number_if_present("sys/net/netfilter/nf_conntrack_max")?;
        let entries = self
            .proc
            .number_if_present("sys/net/netfilter/nf_conntrack_count")?;
        Ok(match (entries_max, entries) {
            (Some(entries_max), Some(entries)) => Some(Conntrack {
                entries_max,
                entries,
            }),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests;
