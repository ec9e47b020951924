//! How many requests a reader may send on one connection. Changes `reads`.
//!
//! A client that is refused keeps its connection, because another one would cost both sides more. So the limit bounds a connection,
//! and those by address bound how many connections somebody has.

use crate::limits::Limit;
use crate::marks::hit;
use crate::shard::Shard;
use crate::transport::Refused;
use myriad_hub::{Charge, CloseReason, Now, RateLimit, TokenBucket};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::http::RequestHead;
use myriad_wire::reads::Persistence;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// So many rates are kept before the first look for those that are full.
const SWEEP_MIN: usize = 256;

/// What connections have left of their rate. Empty while there is no limit.
///
/// A rate that is full again is as good as none, and is dropped now and then: a reader that waits costs nothing more in the long run.
#[derive(Debug, Default)]
pub(super) struct Rates {
    /// By the index of the connection.
    left: HashMap<u32, Left>,
    /// The number of rates at which full ones are looked for.
    sweep_at: usize,
}

/// What one connection has left.
#[derive(Clone, Copy, Debug, Default)]
struct Left {
    bucket: TokenBucket,
    /// Whose requests it has counted, if a trusted proxy names its clients: they may share a connection.
    client: Option<IpAddr>,
}

impl Rates {
    /// Counts a request. `client` is whom a trusted proxy has named. Also tells how long to wait until the next one is taken.
    fn charge(
        &mut self,
        index: u32,
        client: Option<IpAddr>,
        limit: RateLimit,
        now: Now,
    ) -> (Charge, Duration) {
        if self.left.len() >= self.sweep_at.max(SWEEP_MIN) {
            self.left.retain(|_, left| !left.bucket.is_full(now));
            // Twice as many as there are, so that a sweep looks at few for each request since the last one.
            self.sweep_at = 2 * self.left.len();
            self.left.shrink_to(self.sweep_at);
        }
        let left = self.left.entry(index).or_default();
        if client.is_some() && left.client.is_some() && left.client != client {
            *left = Left::default();
        }
        left.client = client.or(left.client);
        let charge = left.bucket.charge(limit, now);
        (charge, left.bucket.wait(limit, now))
    }

    fn bucket(&self, index: u32) -> TokenBucket {
        self.left
            .get(&index)
            .map_or_else(TokenBucket::default, |left| left.bucket)
    }
}

impl<R: Reactor> Shard<R> {
    /// Whether a connection may read now. Call it once for each request.
    pub(crate) fn charge_read(
        &mut self,
        key: Key,
        head: &RequestHead<'_>,
        now: Now,
    ) -> Result<(), Refused> {
        let Some(limit) = self.settings.limits.reads else {
            return Ok(());
        };
        let client = self.forwarded_client(key);
        let (charge, wait) = self.reads.rates.charge(key.index, client, limit, now);
        if charge == Charge::Taken {
            return Ok(());
        }
        self.metrics().count_limited(Limit::Reads);
        let refused = Refused::too_many_reads(wait);
        if charge == Charge::Exhausted {
            hit!(ReadsExhausted);
            return Err(refused.because(CloseReason::TooManyRequests));
        }
        hit!(ReadLimited);
        Err(refused.with_persistence(Persistence::of(head)))
    }

    /// What a connection takes along to the control plane.
    pub(crate) fn reads_left(&self, key: Key) -> TokenBucket {
        self.reads.rates.bucket(key.index)
    }

    /// A connection comes back, with what it had left.
    pub(crate) fn restore_reads(&mut self, key: Key, bucket: TokenBucket, now: Now) {
        if self.settings.limits.reads.is_some() && !bucket.is_full(now) {
            let client = None;
            self.reads
                .rates
                .left
                .insert(key.index, Left { bucket, client });
        }
    }

    /// The record of a connection is freed.
    pub(crate) fn forget_reads(&mut self, key: Key) {
        let left = &mut self.reads.rates.left;
        if !left.is_empty() {
            left.remove(&key.index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn limit() -> RateLimit {
        RateLimit::new(2, Duration::from_secs(1)).expect("a limit")
    }

    #[test]
    fn rates_that_are_full_again_are_dropped() {
        let mut rates = Rates::default();
        for second in 0..20_u32 {
            for index in 0..10_000 {
                let now = Now(u64::from(5 + 2 * second) * SECOND);
                let (charge, _) = rates.charge(10_000 * second + index, None, limit(), now);
                assert_eq!(charge, Charge::Taken);
            }
        }
        assert!(rates.left.len() <= 20_000, "{}", rates.left.len());
        assert!(rates.left.capacity() <= 64_000, "{}", rates.left.capacity());
    }

    #[test]
    fn clients_of_a_proxy_have_rates_of_their_own() {
        let mut rates = Rates::default();
        let mut charge = |client: Option<&str>| {
            let client = client.map(|text| text.parse().expect("an address"));
            rates.charge(7, client, limit(), Now(SECOND)).0
        };
        use Charge::{Refused, Taken};
        let one = Some("192.0.2.1");
        assert_eq!([one, one, one].map(&mut charge), [Taken, Taken, Refused]);
        let other = Some("192.0.2.2");
        assert_eq!([other, None, other].map(charge), [Taken, Taken, Refused]);
    }
}
