//! The whole machine.

use procfs::{CpuInfo, Current, CurrentSI, KernelStats, Meminfo};

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

/// All memory that the kernel manages (`MemTotal`); none where `/proc/meminfo` does not say.
#[must_use]
pub fn total_bytes() -> Option<u64> {
    Some(Meminfo::current().ok()?.mem_total)
}

/// The model of the first processor in the kernel's words; none where it has none, as on many ARM machines.
#[must_use]
pub fn processor_model() -> Option<String> {
    Some(CpuInfo::current().ok()?.model_name(0)?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_memory_and_its_clock_goes_forward() {
        let (available, total) = (available_bytes().unwrap(), total_bytes().unwrap());
        assert!(available > 1 << 20 && total > 1 << 20);
        let (before, after) = (Ticks::now().unwrap(), Ticks::now().unwrap());
        assert!(after.all >= before.all && before.all > before.idle);
    }
}
