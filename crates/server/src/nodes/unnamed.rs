//! Commands for a session whose node is not named: every node is asked, whoever sent them. So there are few of them, whatever comes.

use myriad_shard::{Now, RateLimit, TokenBucket};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Such commands under way at once: a part of the questions that this node may ask, which are the API's, too.
const TURNS: usize = 8;
/// Such commands in a second. Clients name their node; only those that lost its name do not.
const PER_SECOND: u64 = 100;

/// What is left of both bounds.
#[derive(Debug)]
pub(crate) struct Unnamed {
    turns: Semaphore,
    bucket: Mutex<TokenBucket>,
}

impl Default for Unnamed {
    fn default() -> Self {
        Self {
            turns: Semaphore::new(TURNS),
            bucket: Mutex::default(),
        }
    }
}

impl Unnamed {
    /// A turn to ask every node; none if too many are under way, or came in this second.
    pub(crate) fn take(&self, now: Now) -> Option<SemaphorePermit<'_>> {
        let limit = RateLimit::new(PER_SECOND, Duration::from_secs(1))?;
        let turn = self.turns.try_acquire().ok()?;
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        bucket.take(limit, now).then_some(turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_under_way_and_few_come_in_a_second() {
        let unnamed = Unnamed::default();
        let now = Now(5_000_000_000);
        let held: Vec<_> = (0..TURNS).filter_map(|_| unnamed.take(now)).collect();
        assert_eq!(held.len(), TURNS);
        assert!(unnamed.take(now).is_none(), "all turns are taken");
        drop(held);
        let taken = (0..1_000).filter(|_| unnamed.take(now).is_some()).count();
        assert_eq!(taken as u64, PER_SECOND - TURNS as u64);
        let later = Now(now.0 + 10_000_000);
        assert!(unnamed.take(later).is_some(), "one hundredth of a second");
        assert!(unnamed.take(later).is_none());
    }
}
