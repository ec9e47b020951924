//! Limits on strangers: what one address, one user or one client may have and do. Plain data, most of them off by default.

use myriad_hub::{AddressKey, Allowance, Arrival, Now, RateLimit, Tally, TokenBucket, TooMany};
use myriad_wire::peer::{AddressHeader, Networks};
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What strangers may have and do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections of one address at once; 0 for any number. Past it, 429 with Retry-After. An IPv6 network of 64 bits counts as
    /// one address.
    pub connections_per_address: u32,
    /// Connections that one address may begin. Past it, 429 with Retry-After.
    pub connection_rate_per_address: Option<RateLimit>,
    /// Addresses without these two limits.
    pub unlimited_addresses: Networks,
    /// Connections that all clients together may begin. Past it, 503 with Retry-After.
    pub connection_rate: Option<RateLimit>,
    /// Connections of one user at once; 0 for any number. Past it, close 3504. Anonymous clients are no user.
    pub connections_per_user: u32,
    /// Commands of one client. Past it, error 111, and close 3013 for a client that goes on.
    pub commands: Option<RateLimit>,
    /// Publish commands of one client. Past it, error 111.
    pub publishes: Option<RateLimit>,
    /// Publish commands of all clients to one channel. Past it, error 111.
    pub publishes_per_channel: Option<RateLimit>,
    /// Subscribe commands of one client. Past it, error 111.
    pub subscribes: Option<RateLimit>,
    /// Requests on one connection that read streams, but for those with a key of the API. Past it, 429 with Retry-After, and the end
    /// of the connection for a client that goes on.
    pub reads: Option<RateLimit>,
    /// Channels that one client names and its shard does not know: where it subscribes and there is a history, reads history, or asks for
    /// members. Past it, error 111.
    pub new_channels: Option<RateLimit>,
}

/// A client that comes back has no more channels than this at once: [`Settings::subscriptions_max`] is 255 at most.
///
/// [`Settings::subscriptions_max`]: crate::Settings::subscriptions_max
const NEW_CHANNELS_IN_A_SECOND: u64 = 256;

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_per_address: 0,
            connection_rate_per_address: None,
            unlimited_addresses: Networks::default(),
            connection_rate: None,
            connections_per_user: 0,
            commands: None,
            publishes: None,
            publishes_per_channel: None,
            subscribes: None,
            reads: None,
            new_channels: RateLimit::new(NEW_CHANNELS_IN_A_SECOND, Duration::from_secs(1)),
        }
    }
}

impl Limits {
    /// What one address may have and do.
    pub(crate) fn of_address(&self) -> Allowance {
        Allowance {
            open_max: self.connections_per_address,
            rate: self.connection_rate_per_address,
        }
    }

    /// Whether commands of single clients are counted.
    pub(crate) fn count_commands(&self) -> bool {
        self.commands.is_some() || self.publishes.is_some() || self.subscribes.is_some()
    }
}

/// Proxies of the operator's, which say who their clients are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    /// Where they connect from. What others say of addresses is not believed.
    pub networks: Networks,
    /// Their connections begin with a header of the PROXY protocol.
    pub proxy_protocol: bool,
    /// The header of their requests that names the client.
    pub header: AddressHeader,
}

/// A limit: the label of a metric, and what it is called in the config file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Limit {
    /// [`Limits::connections_per_address`].
    ConnectionsPerAddress,
    /// [`Limits::connection_rate_per_address`].
    ConnectionRatePerAddress,
    /// [`Limits::connection_rate`].
    ConnectionRate,
    /// [`Limits::connections_per_user`].
    ConnectionsPerUser,
    /// [`Limits::commands`].
    Commands,
    /// [`Limits::publishes`].
    Publishes,
    /// [`Limits::publishes_per_channel`].
    PublishesPerChannel,
    /// [`Limits::subscribes`].
    Subscribes,
    /// [`Limits::reads`].
    Reads,
    /// [`Limits::new_channels`].
    NewChannels,
}

impl Limit {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 10] = [
        Self::ConnectionsPerAddress,
        Self::ConnectionRatePerAddress,
        Self::ConnectionRate,
        Self::ConnectionsPerUser,
        Self::Commands,
        Self::Publishes,
        Self::PublishesPerChannel,
        Self::Subscribes,
        Self::Reads,
        Self::NewChannels,
    ];

    /// The value of the metric's `limit` label.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::ConnectionsPerAddress => "connections_per_address",
            Self::ConnectionRatePerAddress => "connection_rate_per_address",
            Self::ConnectionRate => "connection_rate",
            Self::ConnectionsPerUser => "connections_per_user",
            Self::Commands => "commands",
            Self::Publishes => "publishes",
            Self::PublishesPerChannel => "publishes_per_channel",
            Self::Subscribes => "subscribes",
            Self::Reads => "reads",
            Self::NewChannels => "new_channels",
        }
    }
}

/// Keys without anything open that are remembered, for each kind of key: 12 MB of addresses.
const IDLE_MAX: usize = 1 << 17;

/// Parts of a count, each behind a lock of its own, so that shards seldom meet.
const STRIPES: usize = 64;

/// What all shards together count. SO_REUSEPORT spreads the connections of one address over shards, so no shard knows how
/// many there are.
#[derive(Debug, Default)]
pub(crate) struct Tallies {
    pub(crate) addresses: Striped<AddressKey>,
    pub(crate) users: Striped<Arc<str>>,
    pub(crate) channels: Striped<Arc<str>>,
    connections: AtomicU64,
}

impl Tallies {
    /// Whether one more client may connect now.
    pub(crate) fn take_connection(&self, limit: RateLimit, now: Now) -> bool {
        let take = |bits| {
            let mut bucket = TokenBucket::from_bits(bits);
            bucket.take(limit, now).then(|| bucket.to_bits())
        };
        self.connections
            .fetch_update(Relaxed, Relaxed, take)
            .is_ok()
    }
}

/// A [`Tally`] in parts.
#[derive(Debug)]
pub(crate) struct Striped<K> {
    stripes: Box<[Mutex<Tally<K>>]>,
    /// Secret, so that nobody can choose keys that share a part.
    hasher: RandomState,
}

impl<K: Clone + Eq + Hash> Default for Striped<K> {
    fn default() -> Self {
        let stripe = || Mutex::new(Tally::new(IDLE_MAX / STRIPES));
        Self {
            stripes: std::iter::repeat_with(stripe).take(STRIPES).collect(),
            hasher: RandomState::new(),
        }
    }
}

impl<K: Clone + Eq + Hash> Striped<K> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a remainder of the count of parts"
    )]
    fn of(&self, key: &K) -> MutexGuard<'_, Tally<K>> {
        let index = self.hasher.hash_one(key) % STRIPES as u64;
        let stripe = &self.stripes[index as usize];
        stripe.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Tally::arrive`].
    pub(crate) fn arrive(&self, key: &K, allowance: Allowance, now: Now) -> Arrival {
        self.of(key).arrive(key, allowance, now)
    }

    /// As [`Tally::leave`].
    pub(crate) fn leave(&self, key: &K) {
        self.of(key).leave(key);
    }

    /// As [`Tally::spend`].
    pub(crate) fn spend(&self, key: &K, rate: RateLimit, now: Now) -> bool {
        self.of(key).spend(key, rate, now)
    }

    /// As [`Tally::spend_many`].
    pub(crate) fn spend_many(
        &self,
        key: &K,
        count: u64,
        rate: RateLimit,
        now: Now,
    ) -> Result<(), TooMany> {
        self.of(key).spend_many(key, count, rate, now)
    }

    /// Keys that have an entry, and entries that were forgotten too early.
    pub(crate) fn sizes(&self) -> (u64, u64) {
        let sizes = self.stripes.iter().map(|stripe| {
            let tally = stripe.lock().unwrap_or_else(PoisonError::into_inner);
            (tally.len() as u64, tally.evictions())
        });
        sizes.fold((0, 0), |(keys, evictions), (more, evicted)| {
            (keys + more, evictions + evicted)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_the_list() {
        for (number, limit) in Limit::ALL.into_iter().enumerate() {
            assert_eq!(limit as usize, number);
        }
    }

    /// Threads that meet at one key admit exactly as many as may be open.
    #[test]
    fn threads_count_together() {
        let tallies = Tallies::default();
        let allowance = Allowance {
            open_max: 1000,
            rate: None,
        };
        let key = AddressKey::V4(7);
        let admit = || {
            let arrivals = (0..1000).map(|_| tallies.addresses.arrive(&key, allowance, Now(0)));
            arrivals
                .filter(|arrival| *arrival == Arrival::Admitted)
                .count()
        };
        let admitted: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(admit)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"))
                .sum()
        });
        assert_eq!(admitted, 1000);
        (0..1000).for_each(|_| tallies.addresses.leave(&key));
    }

    #[test]
    fn threads_share_one_rate() {
        let tallies = Tallies::default();
        let limit = RateLimit::new(100, Duration::from_secs(1)).expect("a limit");
        let take = || {
            (0..1000)
                .filter(|_| tallies.take_connection(limit, Now(5)))
                .count()
        };
        let taken: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"))
                .sum()
        });
        assert_eq!(taken, 100);
    }
}
