//! Who may have a connection to the control plane when more want one than there are places.
//!
//! A newcomer always gets in as long as somebody can make room for it, so a stranger who holds connections open cannot
//! keep others out: it only loses its own. When there is no room, [`Places::enter`] ends the connections that are worth
//! least, some at a time, because finding them takes a look at all:
//!
//! 1. Connections that have shown the API's key stay as long as there are others.
//! 2. Of the rest, the address with the most of them loses one (an IPv6 network of 64 bits counts as one address).
//! 3. Of that address's connections, one that only waits to be closed goes first, then one that has stalled (it sends
//!    or reads slowly for more than a second), then one that waits for its next request, then one that has just begun.
//!    Among equals the one that has been so for longest goes.
//!
//! A request that is received whole is never interrupted: the server owes it an answer. When all places are taken by
//! such requests, health and metrics have [`PROBE_PLACES`] of their own.
//!
//! A limit by address alone would hurt the wrong ones: behind a proxy all clients have its address. So an address is
//! bounded only by what others need.

use super::metrics::ConnectionCounts;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Places that only health and metrics may use.
pub(super) const PROBE_PLACES: usize = 32;
/// A client that has kept us waiting for longer in the middle of a request or answer has stalled.
const STALLED_AFTER: Duration = Duration::from_secs(1);
/// One connection of so many makes room when there is none.
const EVICTED_PART: usize = 32;

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Waits for a request to begin.
    Idle,
    /// A head has begun.
    Head,
    /// A head was received, its body not yet.
    Body,
    /// A request was received whole and has no answer yet.
    Working,
    /// The client does not take the answer as fast as it is written.
    Answering,
    /// Our side has ended, the client's has not.
    Lingering,
}

/// Why a connection had to make room: the label of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Eviction {
    Idle,
    SlowRequest,
    SlowReader,
    Lingering,
}

impl Eviction {
    /// Every reason there is.
    pub(super) const ALL: [Self; 4] = [
        Self::Idle,
        Self::SlowRequest,
        Self::SlowReader,
        Self::Lingering,
    ];

    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::SlowRequest => "slow_request",
            Self::SlowReader => "slow_reader",
            Self::Lingering => "lingering",
        }
    }
}

/// The connections of the control plane.
#[derive(Clone, Debug)]
pub(super) struct Places(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    table: Mutex<Table>,
    count_max: usize,
    /// Notified when the last connection leaves.
    emptied: Notify,
    counts: ConnectionCounts,
}

#[derive(Debug, Default)]
struct Table {
    next_id: u64,
    occupants: HashMap<u64, Arc<Occupant>>,
}

#[derive(Debug)]
struct Occupant {
    address: IpAddr,
    state: Mutex<State>,
    evicted: Notify,
}

#[derive(Clone, Copy, Debug)]
struct State {
    phase: Phase,
    since: Instant,
    is_keyed: bool,
}

/// A connection's place, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    id: u64,
    occupant: Arc<Occupant>,
    places: Places,
}

/// What is known of a newcomer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Newcomer {
    pub(super) address: IpAddr,
    pub(super) is_keyed: bool,
    /// It asks for health or metrics, or has not said yet what it asks for.
    pub(super) may_be_probe: bool,
    /// Its first request is here to its end: it is owed an answer.
    pub(super) has_whole_request: bool,
}

impl Places {
    /// Room for `count_max` connections, those of probes among them.
    pub(super) fn new(count_max: usize, counts: ConnectionCounts) -> Self {
        assert!(count_max > PROBE_PLACES, "somebody must get in");
        Self(Arc::new(Shared {
            table: Mutex::default(),
            count_max,
            emptied: Notify::new(),
            counts,
        }))
    }

    /// A place for the newcomer; none when every connection is owed an answer.
    pub(super) fn enter(&self, newcomer: Newcomer) -> Option<Place> {
        let now = Instant::now();
        let mut table = self.table();
        if table.occupants.len() >= self.0.count_max - PROBE_PLACES {
            let made_room = table.evict(self.evicted_at_a_time(), now, &self.0.counts) > 0;
            let fits = made_room || table.occupants.len() < self.0.count_max;
            if !fits || !made_room && !newcomer.may_be_probe {
                return None;
            }
        }
        let occupant = Arc::new(Occupant {
            address: network(newcomer.address),
            state: Mutex::new(State {
                phase: if newcomer.has_whole_request {
                    Phase::Working
                } else {
                    Phase::Head
                },
                since: now,
                is_keyed: newcomer.is_keyed,
            }),
            evicted: Notify::new(),
        });
        let id = table.next_id;
        table.next_id += 1;
        table.occupants.insert(id, Arc::clone(&occupant));
        self.0.count(&table);
        Some(Place {
            id,
            occupant,
            places: self.clone(),
        })
    }

    /// Ends the connections that are worth least. False if there is none that may be ended.
    pub(super) fn make_room(&self) -> bool {
        let (wanted, now) = (self.evicted_at_a_time(), Instant::now());
        self.table().evict(wanted, now, &self.0.counts) > 0
    }

    fn evicted_at_a_time(&self) -> usize {
        (self.0.count_max / EVICTED_PART).max(1)
    }

    /// Waits until no connection is left.
    pub(super) async fn emptied(&self) {
        loop {
            let emptied = self.0.emptied.notified();
            if self.table().occupants.is_empty() {
                return;
            }
            emptied.await;
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn count(&self, table: &Table) {
        let open = table.occupants.len();
        // Three quarters of the places.
        self.counts.set_open(open, open >= self.count_max / 4 * 3);
    }
}

impl Table {
    /// Ends the connections that are worth least, `wanted` of them if there are as many. Returns how many.
    fn evict(&mut self, wanted: usize, now: Instant, counts: &ConnectionCounts) -> usize {
        let mut candidates = Vec::new();
        let mut of_group: HashMap<Group, usize> = HashMap::new();
        for (id, occupant) in &self.occupants {
            let state = occupant.state();
            let group = (state.is_keyed, occupant.address);
            *of_group.entry(group).or_default() += 1;
            candidates.extend(Candidate::of(*id, group, state, now));
        }
        candidates
            .sort_unstable_by_key(|candidate| (candidate.rank, candidate.since, candidate.id));
        for candidate in &mut candidates {
            // A group that loses a connection has one less when its next one is judged.
            let remaining = of_group.entry(candidate.group).or_default();
            candidate.of_group = *remaining;
            *remaining -= 1;
        }
        // Stable: within a group the order stays.
        candidates.sort_by_key(|candidate| (candidate.group.0, Reverse(candidate.of_group)));
        candidates.truncate(wanted);
        for candidate in &candidates {
            if let Some(occupant) = self.occupants.remove(&candidate.id) {
                occupant.evicted.notify_one();
            }
            counts.count_eviction(candidate.eviction);
        }
        candidates.len()
    }
}

/// Connections that share a fate: those of one address, with the key and without.
type Group = (bool, IpAddr);

/// A connection that may be ended.
struct Candidate {
    id: u64,
    group: Group,
    rank: u8,
    since: Instant,
    eviction: Eviction,
    /// Connections of its group when its turn comes.
    of_group: usize,
}

impl Candidate {
    fn of(id: u64, group: Group, state: State, now: Instant) -> Option<Self> {
        let (rank, eviction) = rank(state, now)?;
        Some(Self {
            id,
            group,
            rank,
            since: state.since,
            eviction,
            of_group: 0,
        })
    }
}

/// The lowest goes first; none for a request that is owed an answer.
fn rank(state: State, now: Instant) -> Option<(u8, Eviction)> {
    let has_stalled = now.duration_since(state.since) > STALLED_AFTER;
    let of_transfer = if has_stalled { 1 } else { 3 };
    match state.phase {
        Phase::Lingering => Some((0, Eviction::Lingering)),
        Phase::Head | Phase::Body => Some((of_transfer, Eviction::SlowRequest)),
        Phase::Answering => Some((of_transfer, Eviction::SlowReader)),
        Phase::Idle => Some((2, Eviction::Idle)),
        Phase::Working => None,
    }
}

/// What counts as one address: a customer of a network provider has a whole IPv6 network of 64 bits.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
    }
}

impl Occupant {
    fn state(&self) -> State {
        *self.locked()
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// What it does, and since when.
    pub(super) fn phase(&self) -> (Phase, Instant) {
        let state = self.occupant.state();
        (state.phase, state.since)
    }

    /// It does something else from now on.
    pub(super) fn set_phase(&self, phase: Phase) {
        let mut state = self.occupant.locked();
        if state.phase != phase {
            (state.phase, state.since) = (phase, Instant::now());
        }
    }

    /// Where its connection comes from. An IPv6 network of 64 bits is one address.
    pub(super) fn address(&self) -> IpAddr {
        self.occupant.address
    }

    /// It has shown the API's key.
    pub(super) fn set_keyed(&self) {
        self.occupant.locked().is_keyed = true;
    }

    /// Waits until it must make room for others.
    pub(super) async fn evicted(&self) {
        self.occupant.evicted.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.places.table();
        // One that was evicted has been removed before.
        table.occupants.remove(&self.id);
        self.places.0.count(&table);
        if table.occupants.is_empty() {
            self.places.0.emptied.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use tokio::time::advance;

    const COUNT: usize = 8;

    fn places() -> Places {
        Places::new(COUNT + PROBE_PLACES, ConnectionCounts::default())
    }

    fn stranger(host: u8) -> Newcomer {
        Newcomer {
            address: Ipv4Addr::new(127, 0, 0, host).into(),
            is_keyed: false,
            may_be_probe: false,
            has_whole_request: false,
        }
    }

    /// Each from an address of its own, so that only phases count; the first has been there for longest.
    async fn filled(places: &Places, phases: &[Phase]) -> Vec<Place> {
        let mut held = Vec::new();
        for host in 0..COUNT {
            let newcomer = stranger(u8::try_from(host).expect("few"));
            let place = places.enter(newcomer).expect("room");
            place.set_phase(phases.get(host).copied().unwrap_or(Phase::Working));
            held.push(place);
            advance(Duration::from_millis(1)).await;
        }
        held
    }

    fn is_in(places: &Places, place: &Place) -> bool {
        places.table().occupants.contains_key(&place.id)
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_is_slowest_makes_room() {
        let phases = [
            Phase::Head,
            Phase::Idle,
            Phase::Body,
            Phase::Lingering,
            Phase::Answering,
            Phase::Working,
        ];
        for (wait, order) in [
            (Duration::ZERO, [3, 1, 0, 2, 4]),
            (2 * STALLED_AFTER, [3, 0, 2, 4, 1]),
        ] {
            let places = places();
            let held = filled(&places, &phases).await;
            advance(wait).await;
            let mut entered = Vec::new();
            for leaving in order {
                assert!(is_in(&places, &held[leaving]));
                let place = places.enter(stranger(200)).expect("room is made");
                // Not among those that can be ended.
                place.set_phase(Phase::Working);
                entered.push(place);
                assert!(!is_in(&places, &held[leaving]), "{leaving} after {wait:?}");
                held[leaving].evicted().await;
            }
            assert!(
                places.enter(stranger(200)).is_none(),
                "all are owed an answer"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_with_many_loses_its_own() {
        let places = places();
        let few = places.enter(stranger(1)).expect("room");
        advance(10 * STALLED_AFTER).await;
        let mut many = Vec::new();
        for _ in 0..100 {
            many.push(places.enter(stranger(2)).expect("room"));
        }
        assert!(is_in(&places, &few));
        let remaining = many.iter().filter(|place| is_in(&places, place)).count();
        assert_eq!(remaining, COUNT - 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_key_is_worth_more_than_a_fresh_address() {
        let places = places();
        let keyed = places
            .enter(Newcomer {
                is_keyed: true,
                ..stranger(1)
            })
            .expect("room");
        let later = places.enter(stranger(1)).expect("room");
        later.set_keyed();
        keyed.set_phase(Phase::Idle);
        advance(10 * STALLED_AFTER).await;
        let strangers: Vec<_> = (0..100).map(|host| places.enter(stranger(host))).collect();
        assert!(is_in(&places, &keyed) && is_in(&places, &later));
        assert!(strangers.iter().all(Option::is_some));
    }

    #[tokio::test(start_paused = true)]
    async fn room_is_made_before_all_places_are_taken() {
        let places = places();
        let keyed = places.enter(Newcomer {
            is_keyed: true,
            ..stranger(1)
        });
        let held = [places.enter(stranger(2)), places.enter(stranger(3))].map(Option::unwrap);
        held[1].set_phase(Phase::Working);
        assert!(places.make_room());
        assert!(!is_in(&places, &held[0]));
        let keyed = keyed.unwrap();
        keyed.set_phase(Phase::Working);
        assert!(!places.make_room(), "all are owed an answer");
        assert!(is_in(&places, &keyed) && is_in(&places, &held[1]));
    }

    #[tokio::test(start_paused = true)]
    async fn probes_have_places_of_their_own() {
        let places = places();
        let held = filled(&places, &[]).await;
        assert!(places.enter(stranger(100)).is_none());
        let probe = Newcomer {
            may_be_probe: true,
            ..stranger(100)
        };
        let probes: Vec<_> = (0..PROBE_PLACES)
            .map(|_| {
                let place = places.enter(probe).expect("a place of their own");
                place.set_phase(Phase::Working);
                place
            })
            .collect();
        assert!(places.enter(probe).is_none());
        probes[0].set_phase(Phase::Lingering);
        assert!(places.enter(probe).is_some());
        drop((held, probes));
        places.emptied().await;
    }

    #[test]
    fn an_ipv6_network_counts_as_one_address() {
        let parse = |text: &str| network(text.parse().expect("an address"));
        assert_eq!(parse("2001:db8:1:2:3::4"), parse("2001:db8:1:2:ffff::"));
        assert_ne!(parse("2001:db8:1:2::"), parse("2001:db8:1:3::"));
        assert_eq!(parse("::ffff:10.0.0.1"), parse("10.0.0.1"));
    }
}
