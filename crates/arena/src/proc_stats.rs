//! What processes use, read from outside: `/proc` of a process and its descendants.

use std::collections::BTreeSet;
use std::fs;

/// Of the clock ticks in `/proc/PID/stat`; the kernel's interface has had 100 a second on every architecture we run on.
const TICKS_PER_S: f64 = 100.0;

/// Memory of some processes together, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Memory {
    /// Resident, shared pages counted in each process that has them.
    pub(crate) rss_bytes: f64,
    /// Proportional: a page that n processes share counts 1/n in each.
    pub(crate) pss_bytes: f64,
}

/// A process and all its descendants, each once.
fn tree(root: u32) -> BTreeSet<u32> {
    let (mut found, mut todo) = (BTreeSet::new(), vec![root]);
    while let Some(process) = todo.pop() {
        if !found.insert(process) {
            continue;
        }
        let Ok(tasks) = fs::read_dir(format!("/proc/{process}/task")) else {
            continue;
        };
        for task in tasks.flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            todo.extend(
                children
                    .split_whitespace()
                    .filter_map(|id| id.parse::<u32>().ok()),
            );
        }
    }
    found
}

/// Memory of these processes and their descendants. One that is gone has none.
pub(crate) fn memory(roots: &[u32]) -> Memory {
    let mut total = Memory::default();
    for process in roots.iter().flat_map(|&root| tree(root)) {
        let rollup = fs::read_to_string(format!("/proc/{process}/smaps_rollup"));
        let rollup = rollup.unwrap_or_default();
        total.rss_bytes += kilobytes(&rollup, "Rss").unwrap_or(0.0) * 1024.0;
        total.pss_bytes += kilobytes(&rollup, "Pss").unwrap_or(0.0) * 1024.0;
    }
    total
}

/// CPU seconds that these processes and their descendants have used, the ended ones among them included.
pub(crate) fn cpu_s(roots: &[u32]) -> f64 {
    let processes = roots.iter().flat_map(|&root| tree(root));
    let ticks = processes.map(|process| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        cpu_ticks(&stat).unwrap_or(0.0)
    });
    ticks.sum::<f64>() / TICKS_PER_S
}

/// User and system time of a process and of its children that have been waited for: fields 14 to 17 of proc(5).
fn cpu_ticks(stat: &str) -> Option<f64> {
    // The name in field 2 may hold spaces and parentheses itself.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields = fields.split_whitespace().skip(11).take(4);
    let ticks: Option<Vec<f64>> = fields.map(|field| field.parse().ok()).collect();
    ticks
        .filter(|ticks| ticks.len() == 4)
        .map(|ticks| ticks.iter().sum())
}

/// Memory that new programs could have, in bytes; `MemAvailable`.
pub(crate) fn available_bytes() -> Option<f64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    kilobytes(&text, "MemAvailable").map(|kilobytes| kilobytes * 1024.0)
}

fn kilobytes(text: &str, name: &str) -> Option<f64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_program_confuses_nobody() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 1 0 0 0 150 50 7 3 20 0 1 0";
        assert_eq!(cpu_ticks(stat), Some(210.0));
        assert_eq!(cpu_ticks("7 (x) S 1 2"), None);
        assert_eq!(cpu_ticks(""), None);
    }

    #[test]
    fn this_process_is_its_own_tree_and_uses_memory() {
        let own = std::process::id();
        assert!(tree(own).contains(&own));
        let memory = memory(&[own]);
        assert!(memory.pss_bytes > 0.0 && memory.rss_bytes >= memory.pss_bytes);
        assert!(available_bytes().is_some_and(|bytes| bytes > 0.0));
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

    #[test]
    fn kilobytes_are_those_of_that_name() {
        let text = "Pss_Dirty: 9 kB\nPss:      7 kB\n";
        assert_eq!(kilobytes(text, "Pss"), Some(7.0));
        assert_eq!(kilobytes(text, "Rss"), None);
    }
}
