//! `/proc/meminfo`.

use super::files::{ProbeError, Tree};
use crate::machine::Memory;

pub(super) fn read(proc: &Tree) -> Result<Memory, ProbeError> {
    const PATH: &str = "meminfo";
    let text = proc.text(PATH)?;
    let bytes = |name: &str, expected| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let kilobytes =
            line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
        kilobytes
            .map(|value| value.saturating_mul(1024))
            .ok_or_else(|| proc.malformed(PATH, expected, &text))
    };
    let reclaimable = bytes("SReclaimable", "a line 'SReclaimable: N kB'")?;
    let unreclaimable = bytes("SUnreclaim", "a line 'SUnreclaim: N kB'")?;
    Ok(Memory {
        total_bytes: bytes("MemTotal", "a line 'MemTotal: N kB'")?,
        available_bytes: bytes("MemAvailable", "a line 'MemAvailable: N kB'")?,
        slab_bytes: reclaimable.saturating_add(unreclaimable),
        page_bytes: rustix::param::page_size() as u64,
    })
}
