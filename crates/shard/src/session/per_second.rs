//! How often a client did something in this second. Most do it seldom, so only those are noted who did it in this second.

use myriad_hub::Now;
use myriad_wheel::Key;
use std::collections::HashMap;

/// Who did something in this second, and how often. Empty unless somebody has.
#[derive(Debug)]
pub(super) struct PerSecond {
    max: u32,
    second: u64,
    by_client: HashMap<Key, u32>,
}

impl PerSecond {
    /// A client that has done it `max` times is to wait.
    pub(super) fn new(max: u32) -> Self {
        Self {
            max,
            second: 0,
            by_client: HashMap::new(),
        }
    }

    pub(super) fn note(&mut self, client: Key, now: Now) {
        self.begin_second(now);
        *self.by_client.entry(client).or_default() += 1;
    }

    /// Whether a client has done it so often that it is to wait.
    pub(super) fn are_too_many(&mut self, client: Key, now: Now) -> bool {
        self.begin_second(now);
        let count = self.by_client.get(&client);
        count.is_some_and(|&count| count >= self.max)
    }

    fn begin_second(&mut self, now: Now) {
        let second = now.0 / 1_000_000_000;
        if self.second != second {
            self.second = second;
            self.by_client.clear();
        }
    }
}
