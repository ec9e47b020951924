//! What this machine allows the crowd; read by `doctor`, and said in its words.

use crate::engine::sources::Sources;
use crate::target::Target;
use myriad_doctor::{
    Budget, ConnectionCost, Load, Machine, Paths, Probe, ProbeError, Role, Trials, startup,
};
use myriad_reactor::Driver;
use std::collections::BTreeSet;

/// Ports of a source where they cannot be read: the kernel's default range.
const PORTS_DEFAULT: u64 = 28_232;

/// This machine, or why it cannot be read.
pub(crate) struct Here(Result<Machine, ProbeError>);

impl Here {
    /// Reads it. The cost of a connection is not measured, because a start must be quick.
    pub(crate) fn probe(driver: Driver) -> Self {
        let io_uring = match driver {
            Driver::IoUring => Ok(()),
            Driver::Epoll => Err("epoll is used".to_owned()),
        };
        let trials = Trials {
            io_uring: Some(io_uring),
            ..ConnectionCost::assumed("a start must be quick").into()
        };
        Self(Probe::system().machine(trials))
    }

    /// Ports of one source address towards one destination.
    pub(crate) fn ports_per_source(&self) -> u64 {
        let ports = self.0.as_ref().map(|machine| machine.ports.per_source());
        ports.unwrap_or(PORTS_DEFAULT)
    }

    /// What will trouble that many connections.
    pub(crate) fn warnings(
        &self,
        targets: &[Target],
        sources: &Sources,
        connections: u64,
    ) -> Vec<String> {
        let machine = match &self.0 {
            Ok(machine) => machine,
            Err(error) => return vec![format!("This machine is not checked: {error}")],
        };
        // Of a server on this machine the ends are here too.
        let role = if targets
            .iter()
            .all(|target| target.address.ip().is_loopback())
        {
            Role::BothEnds
        } else {
            let destinations: BTreeSet<_> = targets.iter().map(|target| target.address).collect();
            Role::Crowd(Paths {
                sources: sources.count(),
                destinations: destinations.len() as u64,
            })
        };
        let mut machine = machine.clone();
        // Where the server listens, and how it accepts, is not the crowd's business.
        machine.listening.can_be_taken = false;
        machine.tcp.backlog_max = None;
        let budget = Budget::new(&machine, Load::idle(role), connections);
        startup::warnings(&budget, connections)
    }
}

/// The kernel's release; empty where it cannot be read.
pub(crate) fn kernel() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here(ports: (u16, u16), available_bytes: u64) -> Here {
        let mut machine = Here::probe(Driver::IoUring).0.expect("a /proc");
        (machine.ports.first, machine.ports.last) = ports;
        machine.ports.reserved = 0;
        machine.cgroup = None;
        machine.cores.usable = machine.cores.online;
        machine.memory.total_bytes = 1 << 30;
        machine.memory.available_bytes = available_bytes;
        machine.surroundings.threads = None;
        machine.surroundings.oom_score_adjustment = None;
        machine.unread = Vec::new();
        Here(Ok(machine))
    }

    fn targets(url: &str) -> [Target; 1] {
        [Target::parse(url).unwrap()]
    }

    #[test]
    fn a_crowd_that_fits_is_not_warned() {
        let here = here((32_768, 60_999), 1 << 40);
        let warnings = here.warnings(&targets("ws://127.0.0.1:8000/"), &Sources::Kernel, 50_000);
        assert_eq!(warnings, Vec::<String>::new());
    }

    #[test]
    fn both_ends_count_on_loopback_and_one_elsewhere() {
        // Half a gibibyte is kept; an idle end is taken to cost 3,400 + 250 + 100 bytes.
        let here = here((32_768, 60_999), (512 << 20) + 2 * 3_750 * 10_000);
        let near = here.warnings(&targets("ws://127.0.0.1:8000/"), &Sources::Kernel, 15_000);
        assert!(
            near[0].starts_with("Memory allows 10,000 of the 15,000 wanted: "),
            "{near:?}"
        );
        let far = here.warnings(&targets("ws://192.0.2.1:80/"), &Sources::Kernel, 15_000);
        assert_eq!(far, Vec::<String>::new());
    }

    fn unreadable() -> Here {
        let cost = ConnectionCost::assumed("of a test");
        Here(Probe::under("/nonexistent").machine(cost))
    }

    #[test]
    fn a_machine_that_cannot_be_read_is_not_passed_over() {
        let warnings =
            unreadable().warnings(&targets("ws://127.0.0.1:8000/"), &Sources::Kernel, 1_000);
        assert!(
            warnings[0].contains("not checked")
                && warnings[0].contains("/nonexistent/proc/meminfo"),
            "{warnings:?}"
        );
    }

    #[test]
    fn ports_are_read_in_the_same_way_as_doctor_does() {
        assert_eq!(here((10_000, 11_999), 1 << 40).ports_per_source(), 2_000);
        assert_eq!(unreadable().ports_per_source(), PORTS_DEFAULT);
    }
}
