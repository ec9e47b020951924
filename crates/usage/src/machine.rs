//! The whole machine.

use procfs::{Current, CurrentSI, KernelStats, Meminfo};

/// Processor time of all processors so far, in ticks of the kernel's clock (10 ms).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticks {
    /// Of any kind.
    pub all: u64,
    /// Without anything to run, or only with something that waits for a disk.
    pub idle: u64,
}

impl Ticks {
    /// Until now; none where `/proc/stat` cannot be read.
    #[must_use]
    pub fn now() -> Option<Self> {
        let time = KernelStats::current().ok()?.total;
        let idle = time.idle + time.iowait?;
        let busy = time.user + time.nice + time.system;
        let interrupts = [time.irq, time.softirq, time.steal];
        // Guest time is part of user time already.
        let interrupts: u64 = interrupts.into_iter().flatten().sum();
        Some(Self {
            all: idle + busy + interrupts,
            idle,
        })
    }
}

/// Memory that new programs could have (`MemAvailable`); none where `/proc/meminfo` does not say.
#[must_use]
pub fn available_bytes() -> Option<u64> {
    Meminfo::current().ok()?.mem_available
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_memory_and_its_clock_goes_forward() {
        assert!(available_bytes().is_some_and(|bytes| bytes > 1 << 20));
        let (before, after) = (Ticks::now().unwrap(), Ticks::now().unwrap());
        assert!(after.all >= before.all && before.all > before.idle);
    }
}
