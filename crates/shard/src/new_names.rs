//! How many channels a client may name that its shard does not know. Changes `new_names`.
//!
//! A name that is made up takes memory at its home for as long as its namespace says, where it has a history, or is asked about on
//! every shard and node. Most clients name few, so only those have a record here who have named some a moment ago.

use crate::limits::Limit;
use crate::shard::Shard;
use myriad_hub::{Now, RateLimit, TokenBucket};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};

/// So many records are kept before the first look for those that are no longer needed.
const SWEEP_MIN: usize = 256;
/// Names of a client that are remembered. Whoever asks about one of them again has not named a new one.
const REMEMBERED: usize = 32;

/// What clients have left of [`Limits::new_channels`].
///
/// [`Limits::new_channels`]: crate::Limits::new_channels
#[derive(Debug, Default)]
pub(crate) struct NewNames {
    /// By the index of the connection.
    left: HashMap<u32, Left>,
    /// The number of records at which full ones are looked for.
    sweep_at: usize,
    /// Secret, so that nobody can choose names that are taken for one another.
    hasher: RandomState,
}

/// What one client has left.
#[derive(Debug, Default)]
struct Left {
    bucket: TokenBucket,
    /// Hashes of the last names.
    recent: VecDeque<u64>,
}

impl NewNames {
    /// Counts a name; false if the client has named too many.
    fn take(&mut self, index: u32, name: &str, limit: RateLimit, now: Now) -> bool {
        if self.left.len() >= self.sweep_at.max(SWEEP_MIN) {
            self.left.retain(|_, left| !left.bucket.is_full(now));
            // Twice as many as there are, so that a sweep looks at few for each name since the last one.
            self.sweep_at = 2 * self.left.len();
            self.left.shrink_to(self.sweep_at);
        }
        let hash = self.hasher.hash_one(name);
        let left = self.left.entry(index).or_default();
        if left.recent.contains(&hash) {
            return true;
        }
        if !left.bucket.take(limit, now) {
            return false;
        }
        if left.recent.len() == REMEMBERED {
            left.recent.pop_front();
        }
        left.recent.push_back(hash);
        true
    }

    /// The record of a connection is freed.
    pub(crate) fn forget(&mut self, index: u32) {
        if !self.left.is_empty() {
            self.left.remove(&index);
        }
    }
}

impl<R: Reactor> Shard<R> {
    /// Counts a channel that a client names, if the shard does not know it. False if the client has named too many such.
    pub(crate) fn take_new_name(&mut self, key: Key, channel: &str, now: Now) -> bool {
        let Some(limit) = self.settings.limits.new_channels else {
            return true;
        };
        let may =
            self.hub.knows_channel(channel) || self.new_names.take(key.index, channel, limit, now);
        if !may {
            self.metrics().count_limited(Limit::NewChannels);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const SECOND: u64 = 1_000_000_000;

    fn limit() -> RateLimit {
        RateLimit::new(4, Duration::from_secs(1)).expect("a limit")
    }

    #[test]
    fn names_are_counted_once_while_they_are_remembered() {
        let mut names = NewNames::default();
        let mut take = |name: &str, ms: u64| {
            let now = Now(5 * SECOND + ms * 1_000_000);
            names.take(7, name, limit(), now)
        };
        for name in ["a", "b", "a", "c", "d", "b", "a"] {
            assert!(take(name, 0), "{name}");
        }
        assert!(!take("e", 0));
        assert!(take("a", 0), "not a new one");
        assert!(take("e", 250) && !take("f", 250));
    }

    #[test]
    fn what_is_not_remembered_counts_again_and_others_have_their_own() {
        let mut names = NewNames::default();
        let wide = RateLimit::new(100, Duration::from_secs(1)).expect("a limit");
        let round: Vec<String> = (0..=REMEMBERED).map(|number| number.to_string()).collect();
        let mut taken = 0;
        while names.take(1, &round[taken % round.len()], wide, Now(SECOND)) {
            taken += 1;
        }
        assert_eq!(taken, 100);
        assert!(names.take(2, "0", wide, Now(SECOND)));
        names.forget(1);
        assert!(names.take(1, "0", wide, Now(SECOND)), "a later connection");
    }

    #[test]
    fn who_names_few_is_forgotten() {
        let mut names = NewNames::default();
        for second in 0..20_u32 {
            for index in 0..10_000 {
                let now = Now(u64::from(5 + 2 * second) * SECOND);
                assert!(names.take(10_000 * second + index, "a", limit(), now));
            }
        }
        assert!(names.left.len() <= 20_000, "{}", names.left.len());
        assert!(names.left.capacity() <= 64_000, "{}", names.left.capacity());
    }
}
