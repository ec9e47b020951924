//! What a connection costs this very kernel, found by opening some.
//!
//! The kernel's slab caches are watched while loopback pairs are opened. `MemAvailable` was tried first and
//! lost: with 2,000 pairs its noise is as large as the thing measured. `/proc/slabinfo` names the caches,
//! but only root may read it.

use crate::machine::{Charged, ConnectionCost, CostSource};
use crate::probe::{Probe, ProbeError};
use socket2::{Domain, SockAddr, Socket, Type};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Batches measured one by one: their median does not mind another process that opens or closes sockets
/// during one or two of them.
const BATCHES: usize = 5;
/// Pairs in a batch.
const BATCH_PAIRS: u64 = 400;
/// Below this the slab caches grow by less than the kernel's own counters are behind (some 50 pages a core).
const BATCH_PAIRS_MIN: u64 = 75;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4_096;
/// Of them, where it is not known how many the kernel lets wait.
const PATIENT_QUEUE: u64 = 100;
/// Connections from one source address.
const PAIRS_PER_SOURCE: usize = 100;
/// How long one connection may take: over loopback it is there at once, unless a firewall drops its packets.
const PATIENCE: Duration = Duration::from_secs(1);
/// Descriptors left for everybody else in this process.
const DESCRIPTORS_KEPT: u64 = 64;

/// Opens and closes up to 4,400 loopback connections (a fifth of a second) and returns what one costs.
///
/// Where that is not possible, or the figures contradict each other or the sizes of the structures known,
/// returns [`ConnectionCost::assumed`] with the reason. Sockets are closed with a reset, so that none
/// stays behind in TIME_WAIT.
#[must_use]
pub fn connection_cost(probe: &Probe) -> ConnectionCost {
    connections(probe).cost
}

/// What opening connections showed.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// What one costs.
    pub cost: ConnectionCost,
    /// Whether connection tracking noticed them; none where it is not loaded or nothing was opened.
    pub conntrack_tracks: Option<bool>,
}

/// As [`connection_cost`], and watches connection tracking meanwhile.
#[must_use]
pub fn connections(probe: &Probe) -> Measured {
    let mut seen = Seen::default();
    let sockets_bytes = measure(probe, &mut seen);
    // What the control group was charged stands, whatever made the machine's caches unsteady.
    let cost = match sockets_bytes {
        Ok((sockets_bytes, pairs)) => ConnectionCost {
            sockets_bytes,
            charged: seen.charged,
            source: CostSource::Measured { pairs },
        },
        Err(failure) => ConnectionCost {
            charged: seen.charged,
            ..ConnectionCost::assumed(failure.to_string())
        },
    };
    Measured {
        cost,
        conntrack_tracks: seen.conntrack_tracks,
    }
}

/// What a measurement notices beside the kernel's caches, kept when those say nothing.
#[derive(Default)]
struct Seen {
    charged: Option<Charged>,
    conntrack_tracks: Option<bool>,
}

/// Why a measurement was given up.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("only {free} descriptors are free, too few to measure with")]
    Descriptors { free: u64 },
    #[error("the control group has {free_bytes} bytes left, too few to measure with")]
    Memory { free_bytes: u64 },
    #[error(transparent)]
    Probe(#[from] ProbeError),
    #[error("opening loopback connections failed: {0}")]
    Socket(#[source] io::Error),
    #[error(
        "a loopback connection was not there within {} s: a firewall, or a table of connection tracking that is full, drops it",
        PATIENCE.as_secs()
    )]
    Unanswered,
    #[error("measurements disagree, from {low} to {high} bytes a connection: the machine is busy")]
    Unsteady { low: u64, high: u64 },
    #[error("{bytes} bytes a connection is not plausible")]
    Implausible { bytes: u64 },
}

/// The bytes of a connection, and the pairs behind that figure.
fn measure(probe: &Probe, seen: &mut Seen) -> Result<(u64, u64), Failure> {
    let batch = batch_pairs(free_descriptors(probe)?, free_bytes(probe)?)?;
    let measured = batch * BATCHES as u64;
    let tracked_before = probe.conntrack_entries().ok().flatten();
    let mut pairs = Pairs::new(batch + 2 * measured)?;
    // The first ones fill holes that earlier sockets left in the caches' slabs; they would look free.
    pairs.open(batch)?;
    seen.charged = measure_charge(probe, &mut pairs, measured)?;
    let mut slab_bytes = probe.memory()?.slab_bytes;
    let mut costs = [0; BATCHES];
    for cost in &mut costs {
        pairs.open(batch)?;
        let grown = probe.memory()?.slab_bytes;
        *cost = grown.saturating_sub(slab_bytes) / batch;
        slab_bytes = grown;
    }
    let tracked = tracked_before.zip(probe.conntrack_entries().ok().flatten());
    // Half of them, because entries of others end meanwhile.
    seen.conntrack_tracks =
        tracked.map(|(before, after)| after.saturating_sub(before) > measured / 2);
    Ok((judge(costs)?, measured))
}

/// What the two ends cost the control group, if one limits this process.
///
/// They differ: an accepted socket is made while its peer's packet is handled, for which the kernel charges
/// nobody, and before Linux 6.12, or with version 1 of control groups, it is not charged later either.
fn measure_charge(
    probe: &Probe,
    pairs: &mut Pairs,
    count: u64,
) -> Result<Option<Charged>, Failure> {
    let Some(before) = probe.charged_bytes().ok().flatten() else {
        return Ok(None);
    };
    let queue = probe
        .accept_queue()
        .unwrap_or(PATIENT_QUEUE)
        .clamp(1, count);
    let (mut connecting, mut accepted) = (Steps::default(), Steps::default());
    let mut charged = before;
    while accepted.sockets < count {
        let now = queue.min(count - accepted.sockets);
        for (end, open) in [
            (&mut connecting, Pairs::connect as fn(&mut Pairs, u64) -> _),
            (&mut accepted, Pairs::accept),
        ] {
            let wanted = end.sockets + now;
            while end.sockets < wanted {
                let few = READ_EVERY.min(wanted - end.sockets);
                open(pairs, few)?;
                let grown = probe.charged_bytes()?.unwrap_or(charged);
                end.add(few, grown.saturating_sub(charged));
                charged = grown;
            }
        }
    }
    let charged = Charged {
        connecting_bytes: connecting.bytes_each(),
        accepted_bytes: accepted.bytes_each(),
    };
    // Neighbours in the group take and give too.
    let plausible = (ConnectionCost::SOCKET_BYTES / 2..=4 * ConnectionCost::SOCKET_BYTES)
        .contains(&(charged.connecting_bytes + charged.accepted_bytes));
    Ok(plausible.then_some(charged))
}

/// Sockets between two looks at the charge.
const READ_EVERY: u64 = 10;

/// A charge that grows in steps: the kernel charges 64 pages a core at once, which is some two hundred sockets.
/// From the first step to the last one it tells far more exactly what one costs than from begin to end.
#[derive(Clone, Copy, Debug, Default)]
struct Steps {
    sockets: u64,
    bytes: u64,
    first: Option<(u64, u64)>,
    last: (u64, u64),
}

impl Steps {
    fn add(&mut self, sockets: u64, bytes: u64) {
        self.sockets += sockets;
        self.bytes += bytes;
        if bytes > 0 {
            self.last = (self.sockets, self.bytes);
            self.first.get_or_insert(self.last);
        }
    }

    fn bytes_each(&self) -> u64 {
        match (self.first, self.last) {
            (Some((from, low)), (to, high)) if to > from => (high - low) / (to - from),
            _ => self.bytes / self.sockets.max(1),
        }
    }
}

/// Room in the control group, which sockets of a measurement must not use up.
fn free_bytes(probe: &Probe) -> Result<u64, Failure> {
    // A group that cannot be read is a remark of the report; thirty megabytes at the most do no harm in it.
    let group = probe.cgroup().ok().flatten();
    Ok(group.map_or(u64::MAX, |group| group.available_bytes()))
}

fn free_descriptors(probe: &Probe) -> Result<u64, Failure> {
    let open = myriad_usage::open_descriptors()?;
    let (soft, _) = probe.table_limits()?;
    Ok(soft.saturating_sub(open + DESCRIPTORS_KEPT))
}

/// All batches, as many again for the control group's part, and the one that fills holes, two descriptors a pair,
/// must fit, and into half of the memory.
fn batch_pairs(free: u64, free_bytes: u64) -> Result<u64, Failure> {
    let batches = 2 * BATCHES as u64 + 1;
    let batch = (free / (2 * batches)).min(BATCH_PAIRS);
    if batch < BATCH_PAIRS_MIN {
        return Err(Failure::Descriptors { free });
    }
    let batch = batch.min(free_bytes / 2 / (2 * ConnectionCost::SOCKET_BYTES) / batches);
    if batch < BATCH_PAIRS_MIN {
        return Err(Failure::Memory { free_bytes });
    }
    Ok(batch)
}

/// The middle three batches must agree within a third, and no kernel's two sockets fit into less than half,
/// nor (short of a debugging kernel, or neighbours that open as many) need more than twice, what 6.18's do.
fn judge(mut costs: [u64; BATCHES]) -> Result<u64, Failure> {
    costs.sort_unstable();
    let [_, low, bytes, high, _] = costs;
    if (high - low) * 3 > high {
        return Err(Failure::Unsteady { low, high });
    }
    let assumed = 2 * ConnectionCost::SOCKET_BYTES;
    if bytes < assumed / 2 || bytes > assumed * 2 {
        return Err(Failure::Implausible { bytes });
    }
    Ok(bytes)
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Self::Unanswered,
            _ => Self::Socket(error),
        }
    }
}

/// Loopback connections, both ends ours.
struct Pairs {
    listener: Socket,
    address: SockAddr,
    near: Vec<Socket>,
    far: Vec<Socket>,
}

impl Pairs {
    /// With room for that many, so that a growing list is not taken for sockets.
    fn new(most: u64) -> io::Result<Self> {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
        listener.listen(BACKLOG)?;
        // It bounds the wait in accept, too: socket(7).
        listener.set_read_timeout(Some(PATIENCE))?;
        let most = usize::try_from(most).expect("some thousands");
        Ok(Self {
            address: listener.local_addr()?,
            listener,
            near: Vec::with_capacity(most),
            far: Vec::with_capacity(most),
        })
    }

    fn open(&mut self, count: u64) -> io::Result<()> {
        for _ in 0..count {
            self.connect(1)?;
            self.accept(1)?;
        }
        Ok(())
    }

    /// From another address every hundred connections, so that a narrow range of ports does for all of them.
    fn connect(&mut self, count: u64) -> io::Result<()> {
        for _ in 0..count {
            let nth = u8::try_from(self.near.len() / PAIRS_PER_SOURCE % 200).expect("below 200");
            let source = SocketAddr::from((Ipv4Addr::new(127, 77, 0, 1 + nth), 0));
            let near = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            near.bind(&source.into())?;
            near.connect_timeout(&self.address, PATIENCE)?;
            near.set_linger(Some(Duration::ZERO))?;
            self.near.push(near);
        }
        Ok(())
    }

    fn accept(&mut self, count: u64) -> io::Result<()> {
        for _ in 0..count {
            self.far.push(self.listener.accept()?.0);
        }
        Ok(())
    }
}

impl Drop for Pairs {
    /// The near ends go first: their resets take the far ends along, and nobody waits in TIME_WAIT.
    fn drop(&mut self) {
        self.near.clear();
        self.far.clear();
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
        assert_eq!(batch_pairs(19_900, u64::MAX).unwrap(), 400);
        assert_eq!(batch_pairs(2_048 - 80, u64::MAX).unwrap(), 89);
        assert!(matches!(
            batch_pairs(256, u64::MAX),
            Err(Failure::Descriptors { free: 256 })
        ));
    }

    #[test]
    fn batches_shrink_with_the_memory_of_the_group() {
        assert_eq!(batch_pairs(19_900, 16 << 20).unwrap(), 112);
        assert!(matches!(
            batch_pairs(19_900, 1 << 20),
            Err(Failure::Memory { .. })
        ));
    }

    #[test]
    fn a_connection_that_does_not_come_is_not_waited_for() {
        let mut pairs = Pairs::new(1).unwrap();
        // Nobody connects.
        let failure = Failure::from(pairs.accept(1).unwrap_err());
        assert!(matches!(failure, Failure::Unanswered), "{failure}");
        // A backlog of nothing takes one connection and drops the next ones' packets, as a firewall would.
        pairs.listener.listen(0).unwrap();
        let failure = Failure::from(pairs.connect(5).unwrap_err());
        assert!(matches!(failure, Failure::Unanswered), "{failure}");
    }

    #[test]
    fn the_median_ignores_a_neighbour_in_one_batch_and_another_in_the_next() {
        let cost = judge([8_100, 40_000, 7_900, 0, 8_000]).unwrap();
        assert_eq!(cost, 8_000);
    }

    #[test]
    fn a_charge_in_steps_is_measured_from_step_to_step() {
        let mut steps = Steps::default();
        // 1,250 bytes each, charged 262,144 at a time, the first one after 15 sockets.
        let mut credit = 20_000_i64;
        for _ in 0..200 {
            credit -= 10 * 1_250;
            let mut charged = 0;
            while credit < 0 {
                credit += 262_144;
                charged += 262_144;
            }
            steps.add(10, charged);
        }
        let each = steps.bytes_each();
        assert!((1_230..=1_270).contains(&each), "{each}");
        assert_eq!(Steps::default().bytes_each(), 0);
    }

    #[test]
    fn noise_and_nonsense_are_refused() {
        let noise = judge([8_000, 4_000, 8_000, 4_000, 15_000]);
        assert!(matches!(
            noise,
            Err(Failure::Unsteady {
                low: 4_000,
                high: 8_000
            })
        ));
        for bytes in [0, 100, 90_000] {
            assert!(matches!(
                judge([bytes; BATCHES]),
                Err(Failure::Implausible { .. })
            ));
        }
    }

    #[test]
    fn a_failed_measurement_falls_back_to_the_constants_and_says_why() {
        let nowhere = Probe::under("/nonexistent");
        let cost = connection_cost(&nowhere);
        assert_eq!(cost.sockets_bytes, 6_800);
        let CostSource::Assumed { reason } = cost.source else {
            panic!("measured without a /proc")
        };
        assert!(reason.contains("/nonexistent/proc/self/limits"), "{reason}");
    }
}
