//! The facts about the machine that the server's defaults depend on, most of them from `doctor`.

use crate::config::DriverChoice;
use myriad_doctor::{Budget, ConnectionCost, IoUring, Load, Probe, Role, Trials};
use myriad_reactor::Driver;

/// What defaults and plans depend on.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Memory available without swapping, within the control group's limit; none if `/proc` is not readable.
    pub memory_available_bytes: Option<u64>,
    /// Processors this process may use.
    pub cores: usize,
    /// Doctor's view of the machine; none if `/proc` is not readable.
    pub probed: Option<Box<myriad_doctor::Machine>>,
}

#[cfg(test)]
impl Machine {
    /// With two processors and much memory.
    pub(crate) const OF_TESTS: Self = Self {
        memory_available_bytes: Some(20 << 30),
        cores: 2,
        probed: None,
    };
}

impl Machine {
    /// This machine, now.
    #[must_use]
    pub fn here() -> Self {
        // The cost of a connection is not measured: that opens thousands of sockets, and a start must be quick.
        let trials = Trials {
            io_uring: Some(Driver::probe_io_uring().map_err(|unavailable| unavailable.0)),
            ..ConnectionCost::assumed("a start must be quick").into()
        };
        let probed = match Probe::system().machine(trials) {
            Ok(machine) => Some(machine),
            Err(error) => {
                tracing::warn!(
                    "the machine cannot be checked, so the defaults are guesses: {error}"
                );
                None
            }
        };
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
            probed: probed.map(Box::new),
        }
    }

    /// Rings of io_uring that locked memory allows; none without a known limit.
    pub(crate) fn rings_max(&self) -> Option<u64> {
        self.probed.as_ref()?.descriptors.rings_max()
    }

    /// The budget of a server on that port with that driver; none if `/proc` is not readable.
    pub(crate) fn budget(&self, port: u16, driver: DriverChoice, wanted: u64) -> Option<Budget> {
        let mut machine = self.probed.as_deref()?.clone();
        machine.listen_on(port);
        if driver == DriverChoice::Epoll {
            machine.io_uring = IoUring::Refused {
                reason: "another driver was chosen".into(),
            };
        }
        Some(Budget::new(&machine, Load::idle(Role::Server), wanted))
    }
}

/// The longest accept queue the kernel gives (`net.core.somaxconn`); none where it cannot be read.
pub(crate) fn backlog_max() -> Option<u32> {
    let most = Probe::system().accept_queue().ok()?;
    Some(u32::try_from(most).unwrap_or(u32::MAX))
}

/// The first port that a process without capabilities may listen on (`net.ipv4.ip_unprivileged_port_start`), for IPv6 too.
pub(crate) fn unprivileged_port() -> u16 {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    let port = text.ok().and_then(|text| text.trim().parse().ok());
    port.unwrap_or(UNPRIVILEGED_PORT_DEFAULT)
}

/// The kernel's default for it.
const UNPRIVILEGED_PORT_DEFAULT: u16 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_core_and_memory() {
        let machine = Machine::here();
        assert!(machine.cores > 0);
        assert!(machine.memory_available_bytes.is_none_or(|bytes| bytes > 0));
    }
}
