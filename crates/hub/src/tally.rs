//! How much somebody has of us and does: addresses, users, channels.

use crate::{Now, RateLimit, TokenBucket, TooMany};
use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::time::Duration;

/// What counts as one address. A customer of a network provider has a whole IPv6 network of 64 bits, and can take any address
/// in it for each connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressKey {
    /// An IPv4 address, also one that is written as an IPv6 address.
    V4(u32),
    /// The first 64 bits of an IPv6 address.
    V6(u64),
}

impl From<IpAddr> for AddressKey {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.to_bits()),
            IpAddr::V6(address) => Self::V6((address.to_bits() >> 64) as u64),
        }
    }
}

/// What one of them may have and do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// How many may be open at once; 0 for any number.
    pub open_max: u32,
    /// How many may begin in a time; none for any number.
    pub rate: Option<RateLimit>,
}

impl Allowance {
    /// Whether there is nothing to count.
    #[must_use]
    pub fn is_unlimited(&self) -> bool {
        self.open_max == 0 && self.rate.is_none()
    }
}

/// Whether one more may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It may, and is counted as open.
    Admitted,
    /// It may not, and is to be told so.
    Refused(Excess),
    /// It may not, and too many have been told so: an answer would be a waste.
    Ignored(Excess),
}

/// What there was too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// As many as may be open are.
    Open,
    /// As many as may begin in the time have.
    Rate,
}

/// Refusals of one key that are answered in a second.
const ANSWERS_PER_SECOND: u64 = 10;

/// No neighbour in the list of idle ones.
const NONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct Entry<K> {
    key: K,
    /// How many are open. An entry with none is in the list of idle ones.
    open: u32,
    /// Neighbours in the list of idle ones, or the next free entry.
    older: u32,
    newer: u32,
    rate: TokenBucket,
    answers: TokenBucket,
}

/// What each key has open and has left of its rate.
///
/// Entries with something open are as many as there are open things, which the caller bounds. Of the others at most
/// `idle_max` are kept: those that were used last. An idle entry that has its whole rate left says nothing, so two of these
/// go for each new one that comes. Whoever wants to have its entry forgotten earlier must make `idle_max` others be used, in less
/// time than its rate takes to come back.
#[derive(Clone, Debug)]
pub struct Tally<K> {
    entries: Vec<Entry<K>>,
    names: HashMap<K, u32>,
    free: u32,
    idle_count: usize,
    idle_max: usize,
    oldest_idle: u32,
    newest_idle: u32,
    evictions: u64,
}

impl<K: Clone + Eq + Hash> Tally<K> {
    /// An empty one.
    #[must_use]
    pub fn new(idle_max: usize) -> Self {
        Self {
            entries: Vec::new(),
            names: HashMap::new(),
            free: NONE,
            idle_count: 0,
            idle_max: idle_max.max(1),
            oldest_idle: NONE,
            newest_idle: NONE,
            evictions: 0,
        }
    }

    /// One more begins for this key, if its allowance lets it.
    pub fn arrive(&mut self, key: &K, allowance: Allowance, now: Now) -> Arrival {
        let index = self.entry(key, now);
        let entry = &mut self.entries[index as usize];
        // First the rate, so that whoever has too many open pays for trying.
        let excess = if allowance
            .rate
            .is_some_and(|rate| !entry.rate.take(rate, now))
        {
            Some(Excess::Rate)
        } else if allowance.open_max > 0 && entry.open >= allowance.open_max {
            Some(Excess::Open)
        } else {
            None
        };
        let Some(excess) = excess else {
            if entry.open == 0 {
                self.unlist(index);
            }
            self.entries[index as usize].open += 1;
            return Arrival::Admitted;
        };
        let answers = RateLimit::new(ANSWERS_PER_SECOND, Duration::from_secs(1));
        let is_told = answers.is_some_and(|answers| entry.answers.take(answers, now));
        self.use_again(index);
        if is_told {
            Arrival::Refused(excess)
        } else {
            Arrival::Ignored(excess)
        }
    }

    /// One that was admitted has ended.
    pub fn leave(&mut self, key: &K) {
        // An entry with something open stays. Without it nothing is counted that could be taken back.
        debug_assert!(self.names.contains_key(key));
        let Some(&index) = self.names.get(key) else {
            return;
        };
        let entry = &mut self.entries[index as usize];
        debug_assert!(entry.open > 0);
        entry.open = entry.open.saturating_sub(1);
        if entry.open > 0 {
            return;
        }
        let is_new = |bucket: TokenBucket| bucket == TokenBucket::default();
        let says_nothing = is_new(entry.rate) && is_new(entry.answers);
        self.list(index);
        if says_nothing {
            self.forget(index);
        } else {
            self.keep_bound();
        }
    }

    /// Takes one of a key's rate. Nothing is open by that.
    #[must_use]
    pub fn spend(&mut self, key: &K, rate: RateLimit, now: Now) -> bool {
        self.spend_many(key, 1, rate, now).is_ok()
    }

    /// Takes so many of a key's rate at once, or none.
    ///
    /// # Errors
    /// As [`TokenBucket::take_many`].
    pub fn spend_many(
        &mut self,
        key: &K,
        count: u64,
        rate: RateLimit,
        now: Now,
    ) -> Result<(), TooMany> {
        let index = self.entry(key, now);
        let spent = self.entries[index as usize]
            .rate
            .take_many(count, rate, now);
        self.use_again(index);
        spent
    }

    /// Keys that have an entry.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether no key has an entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Entries that were forgotten although something of their rate was used: there were too many.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// The entry of a key: a new one is idle.
    fn entry(&mut self, key: &K, now: Now) -> u32 {
        if let Some(&index) = self.names.get(key) {
            return index;
        }
        for _ in 0..2 {
            let oldest = self.oldest_idle;
            if oldest == NONE {
                break;
            }
            let entry = &self.entries[oldest as usize];
            if !(entry.rate.is_full(now) && entry.answers.is_full(now)) {
                break;
            }
            self.forget(oldest);
        }
        let entry = Entry {
            key: key.clone(),
            open: 0,
            older: NONE,
            newer: NONE,
            rate: TokenBucket::default(),
            answers: TokenBucket::default(),
        };
        let index = if self.free == NONE {
            self.entries.push(entry);
            u32::try_from(self.entries.len() - 1).expect("fewer than connections have indices")
        } else {
            let index = self.free;
            let place = &mut self.entries[index as usize];
            self.free = place.newer;
            *place = entry;
            index
        };
        self.names.insert(key.clone(), index);
        self.list(index);
        self.keep_bound();
        index
    }

    /// Forgets the entry that was used the longest ago, if there are too many idle ones.
    fn keep_bound(&mut self) {
        if self.idle_count > self.idle_max {
            self.evictions += 1;
            self.forget(self.oldest_idle);
        }
    }

    /// An idle entry becomes the one that was used last.
    fn use_again(&mut self, index: u32) {
        if self.entries[index as usize].open == 0 {
            self.unlist(index);
            self.list(index);
        }
    }

    fn list(&mut self, index: u32) {
        let older = self.newest_idle;
        let entry = &mut self.entries[index as usize];
        (entry.older, entry.newer) = (older, NONE);
        if older == NONE {
            self.oldest_idle = index;
        } else {
            self.entries[older as usize].newer = index;
        }
        self.newest_idle = index;
        self.idle_count += 1;
    }

    fn unlist(&mut self, index: u32) {
        let Entry { older, newer, .. } = self.entries[index as usize];
        match older {
            NONE => self.oldest_idle = newer,
            older => self.entries[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest_idle = older,
            newer => self.entries[newer as usize].older = older,
        }
        self.idle_count -= 1;
    }

    /// Frees an idle entry.
    fn forget(&mut self, index: u32) {
        self.unlist(index);
        self.names.remove(&self.entries[index as usize].key);
        self.entries[index as usize].newer = self.free;
        self.free = index;
        if self.names.is_empty() {
            // What an attack has taken is given back when it is over.
            self.entries = Vec::new();
            self.names = HashMap::new();
            self.free = NONE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    fn per_second(count: u64) -> Option<RateLimit> {
        RateLimit::new(count, Duration::from_secs(1))
    }

    impl<K: Clone + Eq + Hash> Tally<K> {
        fn check(&self) {
            let mut idle = 0;
            let (mut index, mut before) = (self.oldest_idle, NONE);
            while index != NONE {
                let entry = &self.entries[index as usize];
                assert_eq!((entry.older, entry.open), (before, 0));
                assert_eq!(self.names.get(&entry.key), Some(&index));
                (before, index) = (index, entry.newer);
                idle += 1;
            }
            assert_eq!((self.newest_idle, self.idle_count), (before, idle));
            assert!(idle <= self.idle_max);
            let open = self
                .names
                .values()
                .filter(|&&index| self.entries[index as usize].open > 0);
            assert_eq!(open.count() + idle, self.names.len());
        }
    }

    #[test]
    fn an_address_is_what_its_owner_can_choose_from() {
        let key = |text: &str| AddressKey::from(text.parse::<IpAddr>().expect("an address"));
        assert_eq!(key("192.0.2.1"), key("::ffff:192.0.2.1"));
        assert_ne!(key("192.0.2.1"), key("192.0.2.2"));
        assert_eq!(key("2001:db8:1:2::1"), key("2001:db8:1:2:ffff::"));
        assert_ne!(key("2001:db8:1:2::1"), key("2001:db8:1:3::1"));
    }

    #[test]
    fn each_key_has_its_own_allowance() {
        let mut tally = Tally::new(8);
        let allowance = Allowance {
            open_max: 2,
            rate: None,
        };
        let now = Now(SECOND);
        for key in [1, 2] {
            assert_eq!(tally.arrive(&key, allowance, now), Arrival::Admitted);
            assert_eq!(tally.arrive(&key, allowance, now), Arrival::Admitted);
            assert_eq!(
                tally.arrive(&key, allowance, now),
                Arrival::Refused(Excess::Open)
            );
        }
        tally.leave(&1);
        assert_eq!(tally.arrive(&1, allowance, now), Arrival::Admitted);
        assert!(matches!(
            tally.arrive(&2, allowance, now),
            Arrival::Refused(Excess::Open)
        ));
    }

    #[test]
    fn who_is_refused_too_often_is_not_told_any_more() {
        let mut tally = Tally::new(8);
        let allowance = Allowance {
            open_max: 0,
            rate: per_second(1),
        };
        let arrivals: Vec<_> = (0..30)
            .map(|_| tally.arrive(&7, allowance, Now(SECOND)))
            .collect();
        assert_eq!(arrivals[0], Arrival::Admitted);
        assert!(
            arrivals[1..11]
                .iter()
                .all(|arrival| *arrival == Arrival::Refused(Excess::Rate))
        );
        assert!(
            arrivals[11..]
                .iter()
                .all(|arrival| *arrival == Arrival::Ignored(Excess::Rate))
        );
        assert_eq!(
            tally.arrive(&7, allowance, Now(2 * SECOND)),
            Arrival::Admitted
        );
    }

    #[test]
    fn what_says_nothing_is_forgotten() {
        let mut tally = Tally::new(1000);
        for key in 0..100 {
            assert_eq!(
                tally.arrive(
                    &key,
                    Allowance {
                        open_max: 1,
                        rate: None
                    },
                    Now(0)
                ),
                Arrival::Admitted
            );
            tally.leave(&key);
        }
        assert!(tally.is_empty());
        for key in 0..100 {
            assert!(tally.spend(&key, per_second(5).expect("a limit"), Now(SECOND)));
        }
        assert_eq!(tally.len(), 100);
        // Their rates have come back, and each newcomer lets two go.
        for key in 100..200 {
            assert!(tally.spend(&key, per_second(5).expect("a limit"), Now(5 * SECOND)));
        }
        assert_eq!((tally.len(), tally.evictions()), (100, 0));
    }

    #[test]
    fn many_keys_take_no_more_memory_and_the_last_used_stay() {
        let mut tally = Tally::new(100);
        let rate = per_second(2).expect("a limit");
        assert!(
            tally.spend(&u64::MAX, rate, Now(SECOND)) && tally.spend(&u64::MAX, rate, Now(SECOND))
        );
        for key in 0..10_000 {
            assert!(tally.spend(&key, rate, Now(SECOND)));
            // Whoever goes on trying is not forgotten.
            assert!(!tally.spend(&u64::MAX, rate, Now(SECOND)));
        }
        tally.check();
        assert_eq!((tally.len(), tally.evictions()), (100, 9_901));
        assert!(tally.entries.len() <= 102);
    }

    proptest! {
        #[test]
        fn it_counts_as_a_plain_list_does(steps in prop::collection::vec((0_u8..6, 0_u8..3, 0_u64..300_000_000), 1..200)) {
            let mut tally = Tally::new(3);
            let allowance = Allowance { open_max: 3, rate: per_second(4) };
            let mut open = [0_u32; 6];
            let mut now = SECOND;
            for (key, what, step) in steps {
                now += step;
                let count = &mut open[usize::from(key)];
                match what {
                    0 if *count > 0 => {
                        tally.leave(&key);
                        *count -= 1;
                    }
                    0 | 1 => match tally.arrive(&key, allowance, Now(now)) {
                        Arrival::Admitted => {
                            prop_assert!(*count < 3);
                            *count += 1;
                        }
                        Arrival::Refused(Excess::Open) | Arrival::Ignored(Excess::Open) => prop_assert_eq!(*count, 3),
                        Arrival::Refused(Excess::Rate) | Arrival::Ignored(Excess::Rate) => {}
                    },
                    _ => {
                        let _ = tally.spend(&key, per_second(4).expect("a limit"), Now(now));
                    }
                }
                tally.check();
            }
            for (key, count) in (0..).zip(open) {
                (0..count).for_each(|_| tally.leave(&key));
            }
            tally.check();
            prop_assert!(tally.len() <= 3);
        }
    }
}
