//! Keys of publishers that may send the same publication twice.

use crate::Position;
use myriad_wheel::Tick;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Milliseconds that a key is known: users of Centrifugo expect 300 s.
const KEPT_MS: u64 = 300_000;
/// Keys of a home. Past it the oldest is forgotten early.
const KEYS_MAX: usize = 10_000;
/// Bytes of a home's keys with their channels' names. Past it the oldest is forgotten early.
const BYTES_MAX: usize = 4 << 20;

/// The positions of recent publications by channel and key.
#[derive(Debug, Default)]
pub(super) struct RecentKeys {
    positions: HashMap<Arc<str>, Position>,
    /// All keys, the oldest first, with the time when each is forgotten.
    order: VecDeque<(Tick, Arc<str>)>,
    bytes: usize,
}

impl RecentKeys {
    /// The position of the publication that came first with this key.
    pub(super) fn position(&mut self, channel: &str, key: &str, now: Tick) -> Option<Position> {
        self.forget_old(now);
        self.positions.get(&*joined(channel, key)).copied()
    }

    /// Notes the first publication with a key.
    pub(super) fn insert(&mut self, channel: &str, key: &str, position: Position, now: Tick) {
        let name: Arc<str> = joined(channel, key).into();
        self.note(name, position, now.plus_ms(KEPT_MS));
    }

    /// Notes a key of an earlier time, so many ticks ago. Keys come by their age, the oldest first.
    pub(super) fn insert_older(
        &mut self,
        channel: &str,
        key: &str,
        position: Position,
        age: u32,
        now: Tick,
    ) {
        let until = now.plus_ms(KEPT_MS).0.saturating_sub(age);
        self.note(joined(channel, key).into(), position, Tick(until));
    }

    fn note(&mut self, name: Arc<str>, position: Position, until: Tick) {
        self.bytes += name.len();
        self.order.push_back((until, Arc::clone(&name)));
        let previous = self.positions.insert(name, position);
        // Whoever publishes has looked for the key. One that is noted twice is forgotten with its first entry, which is too early and
        // harms nothing.
        debug_assert_eq!(previous, None, "a repeat is no first publication");
        while self.order.len() > KEYS_MAX || self.bytes > BYTES_MAX {
            self.forget_oldest();
        }
    }

    /// Forgets what is due by `now`.
    pub(super) fn forget_old(&mut self, now: Tick) {
        while self.order.front().is_some_and(|(until, _)| *until <= now) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, name)) = self.order.pop_front() {
            self.bytes -= name.len();
            self.positions.remove(&name);
        }
    }
}

/// Channel and key in one string. Another channel, or another key, gives another string.
fn joined(channel: &str, key: &str) -> String {
    format!("{}:{channel}{key}", channel.len())
}

#[cfg(test)]
mod tests {
    use super::{BYTES_MAX, KEYS_MAX, RecentKeys};
    use crate::{Epoch, Position};
    use myriad_wheel::Tick;

    fn at(offset: u64) -> Position {
        Position {
            epoch: Epoch::new(1),
            offset,
        }
    }

    #[test]
    fn a_key_is_of_its_channel_and_for_300_seconds() {
        let mut keys = RecentKeys::default();
        keys.insert("ab", "c", at(1), Tick(10));
        assert_eq!(keys.position("a", "bc", Tick(10)), None);
        assert_eq!(keys.position("ab", "c", Tick(10 + 5999)), Some(at(1)));
        assert_eq!(keys.position("ab", "c", Tick(10 + 6000)), None);
        assert_eq!((keys.positions.len(), keys.bytes), (0, 0));
    }

    #[test]
    #[cfg_attr(miri, ignore = "it takes minutes to insert 10,000 keys")]
    fn the_oldest_keys_make_room() {
        let mut keys = RecentKeys::default();
        for n in 0..=KEYS_MAX as u64 {
            keys.insert("a", &n.to_string(), at(n), Tick(0));
        }
        assert_eq!(keys.positions.len(), KEYS_MAX);
        assert_eq!(keys.position("a", "0", Tick(0)), None);
        assert_eq!(keys.position("a", "1", Tick(0)), Some(at(1)));
        keys.insert("a", &"k".repeat(BYTES_MAX), at(7), Tick(0));
        assert_eq!((keys.positions.len(), keys.order.len()), (0, 0));
    }
}
