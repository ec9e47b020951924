//! What a connection costs this very kernel, found by opening some.
//!
//! The kernel's slab caches are watched while loopback pairs are opened. `MemAvailable` was tried first and
//! lost: with 2,000 pairs its noise is as large as the thing measured. `/proc/slabinfo` names the caches,
//! but only root may read it.

use crate::machine::{ConnectionCost, CostSource};
use crate::probe::{Probe, ProbeError};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// Batches measured one by one: their median does not mind another process that opens or closes sockets
/// during one or two of them.
const BATCHES: usize = 5;
/// Pairs in a batch.
const BATCH_PAIRS: u64 = 400;
/// Below this the slab caches grow by less than the kernel's own counters are behind (some 50 pages a core).
const BATCH_PAIRS_MIN: u64 = 75;
/// Descriptors left for everybody else in this process.
const DESCRIPTORS_KEPT: u64 = 64;

/// Opens and closes up to 2,400 loopback connections (a fifth of a second) and returns what one costs.
///
/// Where that is not possible, or the figures contradict each other or the sizes of the structures known,
/// returns [`ConnectionCost::assumed`] with the reason. Sockets are closed with a reset, so that none
/// stays behind in TIME_WAIT.
#[must_use]
pub fn connection_cost(probe: &Probe) -> ConnectionCost {
    match measure(probe) {
        Ok(cost) => cost,
        Err(failure) => ConnectionCost::assumed(failure.to_string()),
    }
}

/// Why a measurement was given up.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("only {free} descriptors are free, too few to measure with")]
    Descriptors { free: u64 },
    #[error(transparent)]
    Probe(#[from] ProbeError),
    #[error("opening loopback connections failed: {0}")]
    Socket(#[from] io::Error),
    #[error("measurements disagree, from {low} to {high} bytes a connection: the machine is busy")]
    Unsteady { low: u64, high: u64 },
    #[error("{bytes} bytes a connection is not plausible")]
    Implausible { bytes: u64 },
}

fn measure(probe: &Probe) -> Result<ConnectionCost, Failure> {
    let batch = batch_pairs(free_descriptors(probe)?)?;
    let mut pairs = Pairs::new()?;
    // The first ones fill holes that earlier sockets left in the caches' slabs; they would look free.
    pairs.open(batch)?;
    let mut slab_bytes = probe.memory()?.slab_bytes;
    let mut costs = [0; BATCHES];
    for cost in &mut costs {
        pairs.open(batch)?;
        let grown = probe.memory()?.slab_bytes;
        *cost = grown.saturating_sub(slab_bytes) / batch;
        slab_bytes = grown;
    }
    judge(costs, batch * BATCHES as u64)
}

fn free_descriptors(probe: &Probe) -> Result<u64, Failure> {
    let open = std::fs::read_dir("/proc/self/fd")?.count() as u64;
    Ok(probe
        .descriptors()?
        .table_soft
        .saturating_sub(open + DESCRIPTORS_KEPT))
}

/// All batches and the one that fills holes, two descriptors a pair, must fit.
fn batch_pairs(free: u64) -> Result<u64, Failure> {
    let batch = (free / (2 * (BATCHES as u64 + 1))).min(BATCH_PAIRS);
    if batch < BATCH_PAIRS_MIN {
        Err(Failure::Descriptors { free })
    } else {
        Ok(batch)
    }
}

/// The middle three batches must agree within a third, and no kernel's two sockets fit into less than half,
/// nor (short of a debugging kernel, or neighbours that open as many) need more than twice, what 6.18's do.
fn judge(mut costs: [u64; BATCHES], pairs: u64) -> Result<ConnectionCost, Failure> {
    costs.sort_unstable();
    let [_, low, bytes, high, _] = costs;
    if (high - low) * 3 > high {
        return Err(Failure::Unsteady { low, high });
    }
    let assumed = 2 * ConnectionCost::SOCKET_BYTES;
    if bytes < assumed / 2 || bytes > assumed * 2 {
        return Err(Failure::Implausible { bytes });
    }
    Ok(ConnectionCost {
        sockets_bytes: bytes,
        source: CostSource::Measured { pairs },
    })
}

/// Loopback connections, both ends ours.
struct Pairs {
    listener: TcpListener,
    address: SocketAddr,
    open: Vec<(TcpStream, TcpStream)>,
}

impl Pairs {
    fn new() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        Ok(Self {
            listener,
            address,
            open: Vec::new(),
        })
    }

    fn open(&mut self, count: u64) -> io::Result<()> {
        for _ in 0..count {
            let near = TcpStream::connect(self.address)?;
            let (far, _) = self.listener.accept()?;
            socket2::SockRef::from(&near).set_linger(Some(Duration::ZERO))?;
            self.open.push((near, far));
        }
        Ok(())
    }
}

impl Drop for Pairs {
    /// The near end goes first: its reset takes the far end along, and nobody waits in TIME_WAIT.
    fn drop(&mut self) {
        for (near, far) in self.open.drain(..) {
            drop(near);
            drop(far);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_can_be_measured_or_says_why_not() {
        let cost = connection_cost(&Probe::system());
        match cost.source {
            CostSource::Measured { pairs } => {
                assert!(pairs >= BATCH_PAIRS_MIN * BATCHES as u64);
                assert!((3_400..=13_600).contains(&cost.sockets_bytes), "{cost:?}");
            }
            CostSource::Assumed { reason } => assert!(!reason.is_empty()),
        }
    }

    #[test]
    fn batches_shrink_with_the_descriptor_limit() {
        assert_eq!(batch_pairs(19_900).unwrap(), 400);
        assert_eq!(batch_pairs(1_024 - 80).unwrap(), 78);
        assert!(matches!(
            batch_pairs(256),
            Err(Failure::Descriptors { free: 256 })
        ));
    }

    #[test]
    fn the_median_ignores_a_neighbour_in_one_batch_and_another_in_the_next() {
        let cost = judge([8_100, 40_000, 7_900, 0, 8_000], 2_000).unwrap();
        assert_eq!(cost.sockets_bytes, 8_000);
        assert_eq!(cost.source, CostSource::Measured { pairs: 2_000 });
    }

    #[test]
    fn noise_and_nonsense_are_refused() {
        let noise = judge([8_000, 4_000, 8_000, 4_000, 15_000], 2_000);
        assert!(matches!(
            noise,
            Err(Failure::Unsteady {
                low: 4_000,
                high: 8_000
            })
        ));
        for bytes in [0, 100, 90_000] {
            assert!(matches!(
                judge([bytes; BATCHES], 2_000),
                Err(Failure::Implausible { .. })
            ));
        }
    }

    #[test]
    fn a_failed_measurement_falls_back_to_the_constants_and_says_why() {
        let nowhere = Probe::at("/nonexistent/proc", "/nonexistent/cgroup");
        let cost = connection_cost(&nowhere);
        assert_eq!(cost.sockets_bytes, 6_800);
        let CostSource::Assumed { reason } = cost.source else {
            panic!("measured without a /proc")
        };
        assert!(reason.contains("/nonexistent/proc/self/limits"), "{reason}");
    }
}
