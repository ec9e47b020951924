//! What a process uses, read from outside.

use serde::Serialize;
use std::io;

/// Memory of a process now, from `/proc/PID/status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Footprint {
    /// `RssAnon`: heap, stacks and other private memory really in use. What connections cost in user space.
    pub(crate) anonymous_bytes: u64,
    /// `VmRSS`: the same, and mapped files, the program itself among them, and rings shared with the kernel.
    pub(crate) resident_bytes: u64,
}

impl Footprint {
    pub(crate) fn of(process: u32) -> io::Result<Self> {
        let text = std::fs::read_to_string(format!("/proc/{process}/status"))?;
        Self::parse(&text).ok_or_else(|| io::Error::other("no RssAnon in the process's status"))
    }

    fn parse(status: &str) -> Option<Self> {
        let bytes = |name: &str| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
        };
        Some(Self {
            anonymous_bytes: bytes("RssAnon")?,
            resident_bytes: bytes("VmRSS")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_figures_are_read_in_bytes() {
        let status = "Name:\tx\nVmHWM:\t 9 kB\nVmRSS:\t    2048 kB\nRssAnon:\t     512 kB\nRssFile:\t 1536 kB\n";
        let expected = Footprint {
            anonymous_bytes: 512 << 10,
            resident_bytes: 2 << 20,
        };
        assert_eq!(Footprint::parse(status), Some(expected));
        assert_eq!(Footprint::parse("Name:\tkthreadd\n"), None);
    }

    #[test]
    fn this_process_uses_memory() {
        let own = Footprint::of(std::process::id()).unwrap();
        assert!(own.anonymous_bytes > 0 && own.resident_bytes >= own.anonymous_bytes);
    }
}
