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

/// Pairs of each of the two halves whose agreement tells a measurement from noise.
const HALF_PAIRS: u64 = 1_000;
/// Below this the slab caches grow by less than other processes' noise.
const HALF_PAIRS_MIN: u64 = 150;
/// Descriptors left for everybody else in this process.
const DESCRIPTORS_KEPT: u64 = 64;

/// Opens and closes up to 2,500 loopback connections (a fifth of a second) and returns what one costs.
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
    #[error(
        "two measurements disagree, {first} and {second} bytes a connection: the machine is busy"
    )]
    Unsteady { first: u64, second: u64 },
    #[error("{bytes} bytes a connection is not plausible")]
    Implausible { bytes: u64 },
}

fn measure(probe: &Probe) -> Result<ConnectionCost, Failure> {
    let half = half_pairs(free_descriptors(probe)?)?;
    let mut pairs = Pairs::new(half)?;
    // The first ones fill holes that earlier sockets left in the caches' slabs; they would look free.
    pairs.open(half / 2)?;
    let start = probe.memory()?.slab_bytes;
    pairs.open(half)?;
    let middle = probe.memory()?.slab_bytes;
    pairs.open(half)?;
    let end = probe.memory()?.slab_bytes;
    judge(
        half,
        middle.saturating_sub(start),
        end.saturating_sub(middle),
    )
}

fn free_descriptors(probe: &Probe) -> Result<u64, Failure> {
    let open = std::fs::read_dir("/proc/self/fd")?.count() as u64;
    Ok(probe
        .descriptors()?
        .table_soft
        .saturating_sub(open + DESCRIPTORS_KEPT))
}

/// Two and a half halves of pairs, two descriptors each, must fit.
fn half_pairs(free: u64) -> Result<u64, Failure> {
    let half = (free / 5).min(HALF_PAIRS);
    if half < HALF_PAIRS_MIN {
        Err(Failure::Descriptors { free })
    } else {
        Ok(half)
    }
}

/// Two growths for `half` pairs each: they must agree within a quarter, and no kernel's two sockets fit
/// into less than half, nor (short of a debugging kernel) need more than four times, what 6.18's do.
fn judge(half: u64, first: u64, second: u64) -> Result<ConnectionCost, Failure> {
    let (first, second) = (first / half, second / half);
    if first.abs_diff(second) * 4 > first.max(second) {
        return Err(Failure::Unsteady { first, second });
    }
    let bytes = first.midpoint(second);
    let assumed = 2 * ConnectionCost::SOCKET_BYTES;
    if bytes < assumed / 2 || bytes > assumed * 4 {
        return Err(Failure::Implausible { bytes });
    }
    Ok(ConnectionCost {
        sockets_bytes: bytes,
        source: CostSource::Measured { pairs: 2 * half },
    })
}

/// Loopback connections, both ends ours.
struct Pairs {
    listener: TcpListener,
    address: SocketAddr,
    open: Vec<(TcpStream, TcpStream)>,
}

impl Pairs {
    fn new(half: u64) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let capacity = usize::try_from(half * 5 / 2).expect("a few thousand");
        Ok(Self {
            listener,
            address,
            open: Vec::with_capacity(capacity),
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
                assert!(pairs >= 2 * HALF_PAIRS_MIN);
                assert!((3_400..=27_200).contains(&cost.sockets_bytes), "{cost:?}");
            }
            CostSource::Assumed { reason } => assert!(!reason.is_empty()),
        }
    }

    #[test]
    fn pairs_shrink_with_the_descriptor_limit() {
        assert_eq!(half_pairs(19_900).unwrap(), 1_000);
        assert_eq!(half_pairs(1_024 - 80).unwrap(), 188);
        assert!(matches!(
            half_pairs(256),
            Err(Failure::Descriptors { free: 256 })
        ));
    }

    #[test]
    fn agreeing_halves_make_a_figure() {
        let cost = judge(1_000, 7_900_000, 8_100_000).unwrap();
        assert_eq!(cost.sockets_bytes, 8_000);
        assert_eq!(cost.source, CostSource::Measured { pairs: 2_000 });
    }

    #[test]
    fn noise_and_nonsense_are_refused() {
        assert!(matches!(
            judge(1_000, 7_900_000, 4_000_000),
            Err(Failure::Unsteady { .. })
        ));
        assert!(matches!(
            judge(1_000, 100_000, 100_000),
            Err(Failure::Implausible { bytes: 100 })
        ));
        assert!(matches!(
            judge(1_000, 0, 0),
            Err(Failure::Implausible { bytes: 0 })
        ));
        assert!(matches!(
            judge(1_000, 90_000_000, 90_000_000),
            Err(Failure::Implausible { .. })
        ));
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
