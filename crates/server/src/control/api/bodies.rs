//! The memory for bodies of requests, and who gives some of it up when there is none left.
//!
//! The application, which has shown a key of the API, may use all of it. Everybody else together may use half, so nobody keeps the
//! application out. When others need that half, a body that is under way is ended to make room: of a stranger before that of a client
//! with a token, of the address with the most bytes before others, and of these the one that has stood still for longest. A body that
//! comes without pauses is ended only for the sake of somebody who is worth more, or whose address has less. Where a proxy gives all
//! clients its own address, the ones that stand still are ended.
//!
//! A body that was received whole is never ended: its request is carried out.

use super::super::metrics::BodyCounts;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// All who have shown no key of the API may have this part of the memory together.
const CLIENTS_DIVISOR: usize = 2;
/// But no less than the largest body takes.
const CLIENTS_LEAST: usize = 8 << 20;
/// A body is counted in steps of so many bytes, as it comes: who only says that it will send much has none.
const STEP_BYTES: usize = 4 << 10;
/// Bytes that are made free at a time, because finding out whose takes a look at all bodies.
const EVICTED_BYTES: usize = 1 << 20;
/// A body of which nothing has come for longer stands still.
const STALLED_AFTER: Duration = Duration::from_secs(1);

/// Who sends a body, as far as the head of the request has shown it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Sender {
    /// Nothing that was shown could be checked.
    Stranger(IpAddr),
    /// A client whose token is valid.
    Client(IpAddr),
    /// The application: it has shown a key, or the API is open.
    Application,
}

impl Sender {
    /// Who is worth less makes room first.
    fn worth(self) -> u8 {
        match self {
            Self::Stranger(_) => 0,
            Self::Client(_) => 1,
            Self::Application => 2,
        }
    }

    fn address(self) -> Option<IpAddr> {
        match self {
            Self::Stranger(address) | Self::Client(address) => Some(address),
            Self::Application => None,
        }
    }
}

/// The bodies in memory.
#[derive(Debug)]
pub(in super::super) struct Bodies {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    next_id: u64,
    /// Bytes that may be taken at a time.
    bytes_max: usize,
    /// Bytes of all.
    bytes: usize,
    /// Bytes of those who have shown no key.
    of_clients: usize,
    /// Those bodies that are under way and may be ended: all but the application's.
    under_way: HashMap<u64, UnderWay>,
    counts: BodyCounts,
}

#[derive(Debug)]
struct UnderWay {
    worth: u8,
    address: IpAddr,
    bytes: usize,
    progressed_at: Instant,
    evicted: Arc<Notify>,
}

/// What a body has of the memory, until it is dropped.
#[derive(Debug)]
pub(super) struct Share<'b> {
    bodies: &'b Bodies,
    id: u64,
    sender: Sender,
    bytes: usize,
    is_whole: bool,
    evicted: Arc<Notify>,
}

/// Why a body gets no more memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoMemory {
    /// All of it is taken by others who are worth as much.
    Full,
    /// This body was ended for others.
    Evicted,
}

impl Bodies {
    /// The memory, of which nothing is taken.
    pub(super) fn new(counts: BodyCounts, bytes_max: u64) -> Self {
        let table = Table {
            counts,
            bytes_max: usize::try_from(bytes_max).unwrap_or(usize::MAX),
            ..Table::default()
        };
        Self {
            table: Mutex::new(table),
        }
    }

    /// A share of nothing, for a body that begins.
    pub(super) fn begin(&self, sender: Sender) -> Share<'_> {
        let evicted = Arc::new(Notify::new());
        let mut table = self.table();
        let id = table.next_id;
        table.next_id += 1;
        if let Some(address) = sender.address() {
            let under_way = UnderWay {
                worth: sender.worth(),
                address,
                bytes: 0,
                progressed_at: Instant::now(),
                evicted: Arc::clone(&evicted),
            };
            table.under_way.insert(id, under_way);
        }
        Share {
            bodies: self,
            id,
            sender,
            bytes: 0,
            is_whole: false,
            evicted,
        }
    }

    /// Bytes that are taken, and those of them by whoever has shown no key.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> (usize, usize) {
        let table = self.table();
        (table.bytes, table.of_clients)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn clients_bytes_max(&self) -> usize {
        (self.bytes_max / CLIENTS_DIVISOR).max(CLIENTS_LEAST)
    }

    /// Bytes that are missing before `more` fit.
    fn missing(&self, sender: Sender, more: usize) -> usize {
        let of_all = (self.bytes + more).saturating_sub(self.bytes_max);
        let of_clients = (self.of_clients + more).saturating_sub(self.clients_bytes_max());
        match sender {
            Sender::Application => of_all,
            Sender::Client(_) | Sender::Stranger(_) => of_all.max(of_clients),
        }
    }

    /// Ends bodies that have to make room for `id`, until `missing` bytes are free; a few more if they may go, too. None is ended if
    /// that would not suffice.
    fn make_room(&mut self, id: u64, sender: Sender, missing: usize, now: Instant) {
        let mut of_address: HashMap<IpAddr, usize> = HashMap::new();
        for one in self.under_way.values() {
            *of_address.entry(one.address).or_default() += one.bytes;
        }
        let own = sender.address();
        let own_bytes = own.and_then(|own| of_address.get(&own).copied());
        let may_go = |one: &UnderWay| {
            let is_stalled = now.duration_since(one.progressed_at) > STALLED_AFTER;
            let has_more = of_address[&one.address] > own_bytes.unwrap_or(0) + missing;
            one.worth < sender.worth() || one.worth == sender.worth() && (is_stalled || has_more)
        };
        let mut candidates: Vec<_> = self
            .under_way
            .iter()
            .filter(|(other, one)| **other != id && one.bytes > 0 && may_go(one))
            .map(|(other, one)| {
                let most_first = usize::MAX - of_address[&one.address];
                (one.worth, most_first, one.progressed_at, *other, one.bytes)
            })
            .collect();
        if candidates
            .iter()
            .map(|candidate| candidate.4)
            .sum::<usize>()
            < missing
        {
            return;
        }
        candidates.sort_unstable();
        let wanted = missing.max(EVICTED_BYTES);
        let mut freed = 0;
        for (.., other, bytes) in candidates {
            if freed >= wanted {
                break;
            }
            freed += bytes;
            self.evict(other);
        }
    }

    fn evict(&mut self, id: u64) {
        if let Some(one) = self.under_way.remove(&id) {
            self.bytes -= one.bytes;
            self.of_clients -= one.bytes;
            self.counts.count_eviction();
            one.evicted.notify_one();
        }
    }
}

impl Share<'_> {
    /// Told once this body has to make room for others.
    pub(super) fn evicted(&self) -> Arc<Notify> {
        Arc::clone(&self.evicted)
    }

    /// The body has come to this length.
    ///
    /// # Errors
    /// There is no memory for it, and nobody has to make room. Or it was ended itself.
    pub(super) fn grow(&mut self, length: usize) -> Result<(), NoMemory> {
        let now = Instant::now();
        let more = length.next_multiple_of(STEP_BYTES) - self.bytes;
        let mut table = self.bodies.table();
        if let Some(one) = table.under_way.get_mut(&self.id) {
            one.progressed_at = now;
        } else if self.sender != Sender::Application {
            return Err(NoMemory::Evicted);
        }
        let missing = table.missing(self.sender, more);
        if missing > 0 {
            table.make_room(self.id, self.sender, missing, now);
            if table.missing(self.sender, more) > 0 {
                return Err(NoMemory::Full);
            }
        }
        table.bytes += more;
        if let Some(one) = table.under_way.get_mut(&self.id) {
            one.bytes += more;
            table.of_clients += more;
        }
        self.bytes += more;
        table.counts.set_bytes(table.bytes);
        Ok(())
    }

    /// The body is whole: it makes room for nobody any more.
    ///
    /// # Errors
    /// It was ended.
    pub(super) fn finish(&mut self) -> Result<(), NoMemory> {
        let was_under_way = self.bodies.table().under_way.remove(&self.id).is_some();
        if !was_under_way && self.sender != Sender::Application {
            return Err(NoMemory::Evicted);
        }
        self.is_whole = true;
        Ok(())
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let mut table = self.bodies.table();
        let was_under_way = table.under_way.remove(&self.id).is_some();
        let is_application = self.sender == Sender::Application;
        // What an evicted body had was given back when it was ended.
        if was_under_way || self.is_whole || is_application {
            table.bytes -= self.bytes;
        }
        if was_under_way || self.is_whole && !is_application {
            table.of_clients -= self.bytes;
        }
        table.counts.set_bytes(table.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use tokio::time::advance;

    const MIB: usize = 1 << 20;

    fn address(host: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, host).into()
    }

    fn stranger(host: u8) -> Sender {
        Sender::Stranger(address(host))
    }

    /// Shares of so many bytes each, as many as fit.
    fn sixty_four_mib() -> Bodies {
        Bodies::new(BodyCounts::default(), 64 << 20)
    }

    fn fill(bodies: &Bodies, sender: Sender, bytes: usize) -> Vec<Share<'_>> {
        let mut shares = Vec::new();
        loop {
            let mut share = bodies.begin(sender);
            if share.grow(bytes).is_err() {
                return shares;
            }
            shares.push(share);
        }
    }

    fn live(shares: &mut [Share<'_>]) -> usize {
        let grown = shares.iter_mut().map(|share| share.grow(share.bytes));
        grown.filter(Result::is_ok).count()
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_leave_half_to_the_application() {
        let bodies = sixty_four_mib();
        let strangers = fill(&bodies, stranger(1), MIB);
        assert_eq!(strangers.len(), 32);
        let application = fill(&bodies, Sender::Application, 8 * MIB);
        // The strangers' bodies are under way, so the application may have all of it.
        assert_eq!(application.len(), 8);
        assert_eq!(bodies.bytes(), (64 * MIB, 0));
        drop((strangers, application));
        assert_eq!(bodies.bytes(), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn the_ones_that_stand_still_make_room() {
        let bodies = sixty_four_mib();
        let mut held = fill(&bodies, stranger(1), MIB);
        // From the same address, as behind a proxy.
        let mut share = bodies.begin(stranger(1));
        assert_eq!(share.grow(100), Err(NoMemory::Full), "nobody stands still");
        advance(STALLED_AFTER * 2).await;
        assert_eq!(share.grow(100), Ok(()));
        assert_eq!(
            (live(&mut held), bodies.table().counts.evictions()),
            (31, 1)
        );
        let evicted = held.iter().map(Share::evicted);
        let told = evicted.filter(|evicted| {
            let told = std::pin::pin!(evicted.notified());
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            told.poll(&mut context).is_ready()
        });
        assert_eq!(told.count(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_with_less_gets_what_one_with_more_has() {
        let bodies = sixty_four_mib();
        let mut many = fill(&bodies, stranger(1), MIB);
        let few = fill(&bodies, stranger(2), MIB);
        // Until both have the same.
        assert_eq!((few.len(), live(&mut many)), (16, 16));
        assert_eq!(bodies.bytes(), (32 * MIB, 32 * MIB));
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_worth_more_than_nothing() {
        let bodies = sixty_four_mib();
        let mut strangers = fill(&bodies, stranger(1), MIB);
        let mut clients = fill(&bodies, Sender::Client(address(1)), MIB);
        assert_eq!((clients.len(), live(&mut strangers)), (32, 0));
        advance(STALLED_AFTER * 2).await;
        assert_eq!(fill(&bodies, stranger(2), MIB).len(), 0);
        assert_eq!(live(&mut clients), 32);
    }

    #[tokio::test(start_paused = true)]
    async fn a_whole_body_is_never_ended() {
        let bodies = sixty_four_mib();
        let mut whole = fill(&bodies, stranger(1), MIB);
        assert!(whole.iter_mut().all(|share| share.finish().is_ok()));
        advance(STALLED_AFTER * 2).await;
        let mut share = bodies.begin(stranger(2));
        assert_eq!(share.grow(1), Err(NoMemory::Full));
        let mut application = fill(&bodies, Sender::Application, 8 * MIB);
        assert_eq!(application.len(), 4);
        whole.truncate(1);
        assert_eq!(share.grow(1), Ok(()));
        assert!(application.iter_mut().all(|share| share.finish().is_ok()));
        drop((whole, application, share));
        assert_eq!(bodies.bytes(), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_ended_for_what_would_not_fit_all_the_same() {
        let bodies = sixty_four_mib();
        let mut whole = fill(&bodies, stranger(1), 8 * MIB);
        assert!(whole[..3].iter_mut().all(|share| share.finish().is_ok()));
        advance(STALLED_AFTER * 2).await;
        let mut share = bodies.begin(stranger(2));
        assert_eq!(share.grow(9 * MIB), Err(NoMemory::Full));
        assert_eq!(bodies.table().counts.evictions(), 0);
        assert_eq!(share.grow(8 * MIB), Ok(()));
    }
}
