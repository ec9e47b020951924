//! The sizes of a ring's queues, and their cost in locked memory.
//!
//! Linux 6.14 and later count a ring's pages as locked memory of its *user* (`io_create_region`), unless the
//! process has CAP_IPC_LOCK in the first user namespace. The usual limit of 8 MiB is 54 of our full-size rings, but a
//! million connections with both ends here need 104. So where pages are counted, the queues are made short enough for
//! all rings. Measured: ENOMEM at 540,000 connections before, a million connections now.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities};

/// Numbers of entries in a ring's queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueSizes {
    /// Maximum number of submissions in one kernel entry. A power of two.
    pub(super) submissions: u32,
    /// Number of completions before the kernel must allocate an overflow entry for each. A power of two, at least
    /// `submissions`.
    ///
    /// The kernel also sizes its hash of armed requests by this (256 buckets from 8192 on). Cancelling one of 20,000
    /// polls walks through a bucket.
    pub(super) completions: u32,
}

impl Default for QueueSizes {
    fn default() -> Self {
        Self {
            submissions: 256,
            completions: 8192,
        }
    }
}

/// With fewer, bursts would overflow all the time, at one allocation for each completion.
const COMPLETIONS_MIN: u32 = 512;
const PAGE_BYTES: u64 = 4096;
const SUBMISSION_BYTES: u64 = 64;
const COMPLETION_BYTES: u64 = 16;
/// Size of `struct io_rings`, the heads and tails of both queues, rounded up.
const HEADER_BYTES: u64 = 320;

impl QueueSizes {
    /// The longest queues with which `rings` rings fit this process's share of locked memory.
    pub(super) fn affordable(rings: usize) -> Self {
        let wanted = Self::default();
        match locked_bytes_allowed() {
            // The kernel counts per user, so half is left to other processes: a crowd on this machine, or the
            // successor of this server.
            Some(allowed) => {
                wanted.fitting(allowed / 2 / u64::try_from(rings.max(1)).unwrap_or(u64::MAX))
            }
            None => wanted,
        }
    }

    /// Halves `completions` until a ring costs at most `bytes` or has the minimum size.
    fn fitting(self, bytes: u64) -> Self {
        let mut sizes = self;
        while sizes.locked_bytes() > bytes {
            let Some(smaller) = sizes.smaller() else {
                break;
            };
            sizes = smaller;
        }
        sizes
    }

    /// The same with half the completions. None if that would be too few.
    pub(super) fn smaller(self) -> Option<Self> {
        let completions = self.completions / 2;
        (completions >= COMPLETIONS_MIN.max(self.submissions)).then_some(Self {
            completions,
            ..self
        })
    }

    /// Bytes that the kernel counts for a ring with these queues: whole pages for each of its two mappings.
    fn locked_bytes(self) -> u64 {
        let rings = HEADER_BYTES + u64::from(self.completions) * COMPLETION_BYTES;
        let submissions = u64::from(self.submissions) * SUBMISSION_BYTES;
        (rings.div_ceil(PAGE_BYTES) + submissions.div_ceil(PAGE_BYTES)) * PAGE_BYTES
    }
}

/// Raises the soft RLIMIT_MEMLOCK to the hard one and returns it. None if the kernel does not count this process.
fn locked_bytes_allowed() -> Option<u64> {
    if is_exempt() {
        return None;
    }
    let limit = getrlimit(Resource::Memlock);
    if limit.current == limit.maximum {
        return limit.maximum;
    }
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // If the kernel refuses, the soft limit applies.
    match setrlimit(Resource::Memlock, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    }
}

/// Whether the kernel does not count this process: it has CAP_IPC_LOCK in the first user namespace.
fn is_exempt() -> bool {
    let capable =
        capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    capable && std::fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| maps_everybody(&map))
}

/// Whether a `uid_map` is that of the first user namespace, which maps every id to itself (user_namespaces(7)).
fn maps_everybody(map: &str) -> bool {
    map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the kernel counted them on Linux 6.18: 54 rings of the full size in 8 MiB.
    #[test]
    fn a_full_size_ring_costs_what_was_counted() {
        let bytes = QueueSizes::default().locked_bytes();
        assert_eq!(bytes, 37 * 4096);
        assert!(bytes * 54 <= 8 << 20 && bytes * 57 > 8 << 20);
    }

    #[test]
    fn queues_are_as_long_as_the_share_allows_and_never_useless() {
        let wanted = QueueSizes::default();
        let fitting = |bytes| wanted.fitting(bytes).completions;
        assert_eq!(fitting(u64::MAX), 8192);
        assert_eq!(fitting(wanted.locked_bytes()), 8192);
        assert_eq!(fitting(wanted.locked_bytes() - 1), 4096);
        // A million connections in one process, in tables of 20,000, within half of 8 MiB.
        assert_eq!(fitting((4 << 20) / 52), 2048);
        assert_eq!(fitting(0), COMPLETIONS_MIN);
    }

    #[test]
    fn only_the_first_user_namespace_maps_everybody() {
        assert!(maps_everybody("         0          0 4294967295\n"));
        assert!(!maps_everybody("         0       1000          1\n"));
        assert!(!maps_everybody(""));
    }
}
