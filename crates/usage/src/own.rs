//! The process that asks, as Prometheus clients have agreed to describe one.

use procfs::process::{LimitValue, Process};
use procfs::{CurrentSI, KernelStats, ProcResult};
use rustix::thread::Pid;
use std::fs;
use std::io;
use std::path::Path;

/// One look at this process.
#[derive(Clone, Copy, Debug)]
pub struct OwnProcess {
    /// Resident memory, mapped files included.
    pub resident_bytes: u64,
    /// Processor time so far, user and system.
    pub cpu_s: f64,
    /// Threads now.
    pub threads: u64,
    /// Descriptors open in all tables that were asked for.
    pub descriptors: u64,
    /// Slots of one descriptor table (RLIMIT_NOFILE, soft).
    pub descriptors_max: u64,
    /// Seconds since 1970.
    pub started_at_s: f64,
}

impl OwnProcess {
    /// Looks now. `tables` are threads with a descriptor table of their own.
    ///
    /// # Errors
    /// `/proc` is not mounted or has another form.
    pub fn look(tables: &[Pid]) -> io::Result<Self> {
        // The directory of the process is closed again before descriptors are counted: it would count as one.
        let mut process = Self::without_descriptors().map_err(io::Error::other)?;
        process.descriptors = descriptors(Path::new("/proc/self/fd"))?;
        for thread in tables {
            // A thread that has ended has closed its table.
            let path = format!("/proc/self/task/{}/fd", thread.as_raw_nonzero());
            process.descriptors += descriptors(Path::new(&path)).unwrap_or(0);
        }
        Ok(process)
    }

    #[expect(clippy::cast_precision_loss, reason = "ticks of years are exact")]
    fn without_descriptors() -> ProcResult<Self> {
        let process = Process::myself()?;
        let stat = process.stat()?;
        let seconds = |ticks: u64| ticks as f64 / procfs::ticks_per_second() as f64;
        Ok(Self {
            resident_bytes: process.statm()?.resident * procfs::page_size(),
            cpu_s: seconds(stat.utime + stat.stime),
            threads: u64::try_from(stat.num_threads).unwrap_or(0),
            descriptors: 0,
            descriptors_max: match process.limits()?.max_open_files.soft_limit {
                LimitValue::Value(slots) => slots,
                LimitValue::Unlimited => u64::MAX,
            },
            started_at_s: KernelStats::current()?.btime as f64 + seconds(stat.starttime),
        })
    }
}

/// Descriptors open in the table of this thread, the one that lists them not included.
///
/// # Errors
/// `/proc` is not mounted.
pub fn open_descriptors() -> io::Result<u64> {
    descriptors(Path::new("/proc/thread-self/fd"))
}

/// Since Linux 6.2 the directory's size is the number of its entries. Older kernels report 0; there the entries are
/// counted, which takes a second for a million of them.
///
/// `procfs` counts in the same way, but through a descriptor of its own that it counts too.
fn descriptors(directory: &Path) -> io::Result<u64> {
    match fs::metadata(directory)?.len() {
        // One entry is the descriptor that reads the directory.
        0 => Ok((fs::read_dir(directory)?.count() as u64).saturating_sub(1)),
        count => Ok(count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{SystemTime, UNIX_EPOCH};

    #[test]
    fn this_process_is_alive_and_has_memory() {
        let process = OwnProcess::look(&[]).unwrap();
        assert!(process.resident_bytes > 100_000);
        assert!(process.descriptors >= 3 && process.descriptors <= process.descriptors_max);
        assert!(process.threads >= 1);
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs_f64();
        assert!(process.started_at_s > 1.5e9 && process.started_at_s < now + 2.0);
    }

    #[test]
    fn a_thread_with_the_same_table_is_counted_again() {
        let ended = Pid::from_raw(i32::MAX).unwrap();
        let (once, twice) = (
            OwnProcess::look(&[]).unwrap(),
            OwnProcess::look(&[rustix::thread::gettid(), ended]).unwrap(),
        );
        assert!(twice.descriptors > once.descriptors);
    }
}
