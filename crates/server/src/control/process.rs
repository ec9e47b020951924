//! The process as `/proc` sees it, under the names that Prometheus clients have agreed on.

use rustix::thread::Pid;
use std::fs;
use std::io;
use std::path::Path;

/// One look at the process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Process {
    pub(crate) resident_bytes: u64,
    pub(crate) cpu_seconds: f64,
    pub(crate) threads: u64,
    /// Descriptors open in all tables that were asked for.
    pub(crate) descriptors: u64,
    /// Slots of one descriptor table.
    pub(crate) descriptors_max: u64,
    /// Seconds since 1970.
    pub(crate) started_at_seconds: f64,
}

impl Process {
    /// Looks now. `tables` are threads with a descriptor table of their own.
    ///
    /// # Errors
    /// `/proc` is not mounted or has another form.
    pub(crate) fn look(tables: &[Pid]) -> io::Result<Self> {
        let stat = fs::read_to_string("/proc/self/stat")?;
        let statm = fs::read_to_string("/proc/self/statm")?;
        let mut process =
            parse_stat(&stat, &fs::read_to_string("/proc/stat")?).ok_or_else(unexpected)?;
        let pages = statm
            .split(' ')
            .nth(1)
            .and_then(|pages| pages.parse::<u64>().ok())
            .ok_or_else(unexpected)?;
        process.resident_bytes = pages * rustix::param::page_size() as u64;
        process.descriptors = descriptors(Path::new("/proc/self/fd"))?;
        for thread in tables {
            // A thread that has ended has closed its table.
            let path = format!("/proc/self/task/{}/fd", thread.as_raw_nonzero());
            process.descriptors += descriptors(Path::new(&path)).unwrap_or(0);
        }
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        process.descriptors_max = limit.current.unwrap_or(u64::MAX);
        Ok(process)
    }
}

fn unexpected() -> io::Error {
    io::Error::from(io::ErrorKind::InvalidData)
}

/// Since Linux 6.2 the directory's size is the number of its entries. Older kernels report 0; there the entries are
/// counted, which takes a second for a million of them.
fn descriptors(directory: &Path) -> io::Result<u64> {
    match fs::metadata(directory)?.len() {
        0 => Ok(fs::read_dir(directory)?.count() as u64),
        count => Ok(count),
    }
}

/// `/proc/self/stat` (proc_pid_stat(5)): after the command in brackets, which may contain anything, field 3 comes first.
fn parse_stat(stat: &str, machine: &str) -> Option<Process> {
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<f64>().ok();
    #[expect(clippy::cast_precision_loss, reason = "ticks a second are 100 or so")]
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let booted_at: f64 = machine
        .lines()
        .find_map(|line| line.strip_prefix("btime "))?
        .trim()
        .parse()
        .ok()?;
    Some(Process {
        cpu_seconds: (number(14)? + number(15)?) / ticks,
        threads: fields.get(20 - 3)?.parse().ok()?,
        started_at_seconds: booted_at + number(22)? / ticks,
        ..Process::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{SystemTime, UNIX_EPOCH};

    #[test]
    fn this_process_is_alive_and_has_memory() {
        let process = Process::look(&[]).unwrap();
        assert!(process.resident_bytes > 100_000);
        assert!(process.descriptors >= 3 && process.descriptors <= process.descriptors_max);
        assert!(process.threads >= 1);
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs_f64();
        assert!(process.started_at_seconds > 1.5e9 && process.started_at_seconds < now + 2.0);
    }

    #[test]
    fn a_command_with_brackets_and_spaces_does_not_shift_the_fields() {
        let fields: Vec<String> = (4..=24).map(|field| (field * 100).to_string()).collect();
        let stat = format!("7 (a) (b c) S {}", fields.join(" "));
        let process = parse_stat(&stat, "cpu 1\nbtime 1000\n").unwrap();
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        assert!((process.cpu_seconds - 2_900.0 / ticks).abs() < 1e-9);
        assert_eq!(process.threads, 2_000);
        assert!((process.started_at_seconds - (1_000.0 + 2_200.0 / ticks)).abs() < 1e-9);
        assert!(parse_stat("nothing", "").is_none());
    }
}
