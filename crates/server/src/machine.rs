//! The few facts of the machine that the server decides by. What `doctor` knows is asked there.

use myriad_doctor::{ConnectionCost, Probe};

/// What defaults and plans depend on.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Memory that can be had without swapping, within the control group's limit; none where `/proc` is not readable.
    pub memory_available_bytes: Option<u64>,
    /// Processors this process may use.
    pub cores: usize,
}

impl Machine {
    /// This machine, now.
    #[must_use]
    pub fn here() -> Self {
        // The cost of a connection is not asked for: measuring it opens hundreds of sockets, and a start must be quick.
        let probed = Probe::system()
            .machine(ConnectionCost::assumed("not asked for"))
            .ok();
        let memory_available_bytes = probed.as_ref().map(|machine| {
            let group = machine
                .cgroup
                .as_ref()
                .map_or(u64::MAX, |group| group.available_bytes());
            machine.memory.available_bytes.min(group)
        });
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            memory_available_bytes,
            cores,
        }
    }
}

/// The longest accept queue the kernel gives (`net.core.somaxconn`); none where it cannot be read.
pub(crate) fn backlog_max() -> Option<u32> {
    number_at("/proc/sys/net/core/somaxconn")
}

/// True when the kernel may give `port` to an outgoing connection, which would then keep a restarted server from
/// listening on it.
pub(crate) fn port_can_be_taken(port: u16) -> bool {
    let range =
        std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let reserved =
        std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_reserved_ports").unwrap_or_default();
    port_in_range(port, &range) && !port_in_list(port, &reserved)
}

/// `range` is the sysctl's two numbers.
fn port_in_range(port: u16, range: &str) -> bool {
    let mut ends = range.split_whitespace().map(str::parse::<u16>);
    matches!((ends.next(), ends.next()), (Some(Ok(first)), Some(Ok(last))) if (first..=last).contains(&port))
}

/// `list` is the sysctl's list of ports and ranges: `8080,9000-9010`.
fn port_in_list(port: u16, list: &str) -> bool {
    list.trim().split(',').any(|entry| {
        let (first, last) = entry.split_once('-').unwrap_or((entry, entry));
        matches!((first.parse::<u16>(), last.parse::<u16>()), (Ok(first), Ok(last)) if (first..=last).contains(&port))
    })
}

fn number_at(path: &str) -> Option<u32> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_core_and_memory() {
        let machine = Machine::here();
        assert!(machine.cores > 0);
        assert!(machine.memory_available_bytes.is_none_or(|bytes| bytes > 0));
    }

    #[test]
    fn a_port_in_the_range_is_safe_only_when_reserved() {
        assert!(port_in_range(40_000, "32768\t60999\n"));
        assert!(!port_in_range(8_000, "32768\t60999\n"));
        assert!(!port_in_range(8_000, ""));
        assert!(port_in_list(40_000, "8080,39000-40000\n"));
        assert!(port_in_list(8_080, "8080\n"));
        assert!(!port_in_list(40_001, "8080,39000-40000\n"));
        assert!(!port_in_list(40_000, "\n"));
    }
}
