//! Limits of the whole process: a pool owned by the server, leased to shards in portions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A process-wide number of credits (bytes, connections). Cheap to clone.
///
/// Relaxed ordering suffices: the pool guards a number, not memory.
#[derive(Clone, Debug)]
pub struct Pool {
    available: Arc<AtomicU64>,
    size: u64,
}

impl Pool {
    /// A pool of `credits`.
    #[must_use]
    pub fn new(credits: u64) -> Self {
        Self {
            available: Arc::new(AtomicU64::new(credits)),
            size: credits,
        }
    }

    /// Credits that there are, held or not.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Credits nobody holds.
    #[must_use]
    pub fn available(&self) -> u64 {
        self.available.load(Relaxed)
    }

    /// Takes up to `wanted` credits, but at least `least` or none.
    pub fn take(&self, wanted: u64, least: u64) -> u64 {
        let grant = |available: u64| {
            if available < least {
                0
            } else {
                available.min(wanted)
            }
        };
        self.available
            .fetch_update(Relaxed, Relaxed, |available| {
                Some(available - grant(available))
            })
            .map_or(0, grant)
    }

    /// Gives credits back.
    pub fn give(&self, credits: u64) {
        self.available.fetch_add(credits, Relaxed);
    }
}

/// One shard's share of a [`Pool`], taken and given back in portions so that shards seldom meet at its cache line.
#[derive(Debug)]
pub struct Lease {
    pool: Pool,
    portion: u64,
    held: u64,
}

impl Lease {
    /// A lease that takes `portion` credits at a time. A portion of 0 holds nothing back, so the limit is exact.
    #[must_use]
    pub fn new(pool: Pool, portion: u64) -> Self {
        Self {
            pool,
            portion,
            held: 0,
        }
    }

    /// A lease of a pool of its own that is as large: it bounds nothing that this one does not bound.
    pub(crate) fn all(&self) -> Self {
        Self::new(Pool::new(self.pool.size), 0)
    }

    /// Spends credits; false when the process has none left, and then nothing is spent.
    #[must_use]
    pub fn spend(&mut self, credits: u64) -> bool {
        if self.held < credits {
            let missing = credits - self.held;
            self.held += self.pool.take(missing + self.portion, missing);
        }
        if self.held < credits {
            return false;
        }
        self.held -= credits;
        true
    }

    /// Takes back credits that were spent here.
    pub fn refund(&mut self, credits: u64) {
        self.held += credits;
        if self.held > 2 * self.portion {
            self.pool.give(self.held - self.portion);
            self.held = self.portion;
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.pool.give(self.held);
    }
}

/// Credits that go back to their pool when the permit is dropped.
#[derive(Debug)]
pub struct Permit {
    pool: Pool,
    credits: u64,
}

impl Permit {
    /// Takes `credits`, all or none; none if that would leave less than `reserve`.
    #[must_use]
    pub fn take(pool: &Pool, credits: u64, reserve: u64) -> Option<Self> {
        (pool.take(credits, credits.saturating_add(reserve)) == credits).then(|| Self {
            pool: pool.clone(),
            credits,
        })
    }

    /// What it holds.
    #[must_use]
    pub fn credits(&self) -> u64 {
        self.credits
    }

    /// How much of its pool is held: 0 to 4 quarters, rounded down.
    #[must_use]
    pub fn held_quarters(&self) -> u64 {
        let held = self.pool.size().saturating_sub(self.pool.available());
        (4 * held).checked_div(self.pool.size()).unwrap_or(4)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.pool.give(self.credits);
    }
}

#[cfg(test)]
mod tests {
    use super::{Lease, Permit, Pool};

    #[test]
    fn a_lease_without_portion_is_exact() {
        let pool = Pool::new(3);
        let (mut a, mut b) = (Lease::new(pool.clone(), 0), Lease::new(pool.clone(), 0));
        assert!(a.spend(1) && a.spend(1) && b.spend(1));
        assert!(!b.spend(1));
        a.refund(1);
        assert!(b.spend(1));
        assert_eq!(pool.available(), 0);
    }

    #[test]
    fn portions_come_back() {
        let pool = Pool::new(1000);
        let mut lease = Lease::new(pool.clone(), 100);
        assert!(lease.spend(50));
        assert_eq!(pool.available(), 850);
        assert!(lease.spend(900));
        assert!(!lease.spend(900));
        lease.refund(950);
        assert_eq!(pool.available(), 900);
        drop(lease);
        assert_eq!(pool.available(), 1000);
    }

    #[test]
    fn a_permit_is_all_or_nothing() {
        let pool = Pool::new(10);
        let permit = Permit::take(&pool, 7, 0).expect("all are there");
        assert!(Permit::take(&pool, 4, 0).is_none());
        assert_eq!((pool.available(), pool.size()), (3, 10));
        assert_eq!(permit.held_quarters(), 2);
        drop(permit);
        assert_eq!(pool.available(), 10);
    }

    #[test]
    fn a_permit_leaves_the_reserve() {
        let pool = Pool::new(10);
        let permit = Permit::take(&pool, 5, 4).expect("five stay");
        assert!(Permit::take(&pool, 2, 4).is_none());
        assert!(Permit::take(&pool, 1, 4).is_some());
        assert!(Permit::take(&pool, 1, u64::MAX).is_none());
        let all = Permit::take(&pool, 5, 0).expect("nothing has to stay");
        assert_eq!(permit.held_quarters(), 4);
        drop((all, permit));
    }
}
