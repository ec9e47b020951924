//! What no file tells: found by trying.

use crate::machine::{ConnectionCost, IoUring, Machine};
use crate::measure;
use crate::probe::{Probe, ProbeError};
use myriad_reactor::{Driver, descriptor_limit};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What was tried on a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Trials {
    /// What a connection costs its kernel.
    pub connection_cost: ConnectionCost,
    /// Whether the server's io_uring driver works, and why not: a seccomp filter shows only here. None: not tried.
    pub io_uring: Option<Result<(), String>>,
    /// Whether connection tracking noticed the connections that were opened to measure. None: not tried.
    pub conntrack_tracks: Option<bool>,
}

impl Trials {
    /// Opens some thousand loopback connections and a small ring, here and now: a fifth of a second. The soft limit on
    /// descriptors is raised meanwhile.
    #[must_use]
    pub fn here(probe: &Probe) -> Self {
        let _raised = RaisedLimit::new();
        let measured = measure::connections(probe);
        Self {
            connection_cost: measured.cost,
            io_uring: Some(Driver::probe_io_uring().map_err(|unavailable| unavailable.0)),
            conntrack_tracks: measured.conntrack_tracks,
        }
    }
}

/// The soft RLIMIT_NOFILE at its hard one, for as long as this lives.
///
/// Linux starts programs with 1,024, which are too few connections to see what one costs. Afterwards it is as it was,
/// because children inherit it.
struct RaisedLimit(Rlimit);

impl RaisedLimit {
    fn new() -> Self {
        let before = getrlimit(Resource::Nofile);
        // Where it cannot be raised there is less to measure with, and the measurement says so.
        let _ = descriptor_limit();
        Self(before)
    }
}

impl Drop for RaisedLimit {
    fn drop(&mut self) {
        // Lowering is always allowed.
        let _ = setrlimit(Resource::Nofile, self.0);
    }
}

/// Reads a machine, and then tries what no file tells. In this order, because closed connections linger for a while
/// in the control group's memory and in connection tracking.
///
/// # Errors
/// As [`Probe::machine`].
pub fn examine(probe: &Probe) -> Result<Machine, ProbeError> {
    let mut machine = probe.machine(ConnectionCost::assumed("it was not measured yet"))?;
    let trials = Trials::here(probe);
    machine.connection_cost = trials.connection_cost;
    machine.io_uring = match trials.io_uring {
        Some(Ok(())) => IoUring::Allowed,
        Some(Err(reason)) => IoUring::Refused { reason },
        None => machine.io_uring,
    };
    if let Some(tracking) = &mut machine.conntrack {
        tracking.tracks = trials.conntrack_tracks;
    }
    Ok(machine)
}

/// Only the cost: nothing else was tried.
impl From<ConnectionCost> for Trials {
    fn from(connection_cost: ConnectionCost) -> Self {
        Self {
            connection_cost,
            io_uring: None,
            conntrack_tracks: None,
        }
    }
}
