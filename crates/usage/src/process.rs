//! Single processes, and those with their descendants.

use procfs::process::Process;
use serde::Serialize;
use std::collections::BTreeSet;
use std::io;

/// Memory of a process now, from `/proc/PID/status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Footprint {
    /// `RssAnon`: heap, stacks and other private memory really in use. What connections cost in user space.
    pub anonymous_bytes: u64,
    /// `VmRSS`: the same, and mapped files, the program itself among them, and rings shared with the kernel.
    pub resident_bytes: u64,
}

impl Footprint {
    /// Of a process.
    ///
    /// # Errors
    /// There is no such process, or `/proc` does not say.
    pub fn of(process: u32) -> io::Result<Self> {
        let status = open(process).and_then(|process| process.status().ok());
        let bytes = |kilobytes: Option<u64>| Some(kilobytes?.saturating_mul(1024));
        status
            .and_then(|status| {
                Some(Self {
                    anonymous_bytes: bytes(status.rssanon)?,
                    resident_bytes: bytes(status.vmrss)?,
                })
            })
            .ok_or_else(|| io::Error::other(format!("no RssAnon in the status of {process}")))
    }
}

/// Memory of some processes together, in bytes; floats, because means and slopes are worked out of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Memory {
    /// Resident, shared pages counted in each process that has them.
    pub rss_bytes: f64,
    /// Proportional: a page that n processes share counts 1/n in each.
    pub pss_bytes: f64,
}

/// Memory of these processes and their descendants. One that is gone has none.
#[must_use]
pub fn memory(roots: &[u32]) -> Memory {
    let mut total = Memory::default();
    for process in trees(roots) {
        let rollup = open(process).and_then(|process| process.smaps_rollup().ok());
        for map in rollup.iter().flat_map(|rollup| &rollup.memory_map_rollup.0) {
            #[expect(clippy::cast_precision_loss, reason = "memory is far below 2^53 bytes")]
            let bytes = |name: &str| {
                map.extension
                    .map
                    .get(name)
                    .map_or(0.0, |&bytes| bytes as f64)
            };
            total.rss_bytes += bytes("Rss");
            total.pss_bytes += bytes("Pss");
        }
    }
    total
}

/// Processor seconds, user and system, that these processes and their descendants have used, the ended ones among them
/// that have been waited for included.
#[must_use]
pub fn cpu_s(roots: &[u32]) -> f64 {
    let stats = trees(roots).filter_map(|process| open(process)?.stat().ok());
    let ticks: u64 = stats
        .map(|stat| {
            let children = stat.cutime.saturating_add(stat.cstime);
            stat.utime + stat.stime + u64::try_from(children).unwrap_or(0)
        })
        .sum();
    #[expect(clippy::cast_precision_loss, reason = "ticks of days are exact")]
    let seconds = ticks as f64 / procfs::ticks_per_second() as f64;
    seconds
}

fn open(process: u32) -> Option<Process> {
    Process::new(i32::try_from(process).ok()?).ok()
}

fn trees(roots: &[u32]) -> impl Iterator<Item = u32> {
    roots.iter().flat_map(|&root| tree(root))
}

/// A process and all its descendants, each once.
fn tree(root: u32) -> BTreeSet<u32> {
    let (mut found, mut todo) = (BTreeSet::new(), vec![root]);
    while let Some(process) = todo.pop() {
        if !found.insert(process) {
            continue;
        }
        let tasks = open(process).and_then(|process| process.tasks().ok());
        let tasks = tasks.into_iter().flatten().flatten();
        todo.extend(tasks.filter_map(|task| task.children().ok()).flatten());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_its_own_tree_and_uses_memory() {
        let own = std::process::id();
        assert!(tree(own).contains(&own));
        let memory = memory(&[own]);
        assert!(memory.pss_bytes > 0.0 && memory.rss_bytes >= memory.pss_bytes);
        let footprint = Footprint::of(own).unwrap();
        assert!(footprint.anonymous_bytes > 0);
        assert!(footprint.resident_bytes >= footprint.anonymous_bytes);
    }

    #[test]
    fn a_process_that_is_not_there_uses_nothing() {
        let nobody = u32::MAX;
        assert!(Footprint::of(nobody).is_err());
        assert_eq!(memory(&[nobody]), Memory::default());
        assert!(cpu_s(&[nobody]).abs() < f64::EPSILON);
    }

    #[test]
    fn a_child_is_counted_with_its_parent() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        assert!(tree(std::process::id()).contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
