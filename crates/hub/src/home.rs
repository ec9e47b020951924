//! The home of channels: the one shard of the process that orders a channel's publications.

use crate::{Epoch, Position};
use std::collections::HashMap;
use std::sync::Arc;

/// A set of shards, by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardSet([u64; Self::WORDS]);

impl ShardSet {
    const WORDS: usize = 4;
    /// Shards a set can name.
    pub const SHARDS_MAX: usize = Self::WORDS * 64;

    /// Adds a shard; false when it was in.
    pub fn insert(&mut self, shard: usize) -> bool {
        let before = *self;
        self.0[shard / 64] |= 1 << (shard % 64);
        *self != before
    }

    /// Takes a shard out; false when it was not in.
    pub fn remove(&mut self, shard: usize) -> bool {
        let before = *self;
        self.0[shard / 64] &= !(1 << (shard % 64));
        *self != before
    }

    /// Whether no shard is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0 == [0; Self::WORDS]
    }

    /// How many shards are in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The shards in it, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + use<> {
        let words = self.0;
        (0..Self::SHARDS_MAX).filter(move |shard| words[shard / 64] >> (shard % 64) & 1 == 1)
    }
}

#[derive(Debug)]
struct HomeChannel {
    name: Arc<str>,
    last_offset: u64,
    subscribed: ShardSet,
}

/// The channels at home on one shard: their offsets, and which shards want their publications.
///
/// A channel takes memory only while some shard has a subscriber. Offsets keep growing all the same: a channel that
/// comes back starts above the highest offset of every channel that was forgotten.
#[derive(Debug)]
pub struct Home {
    /// Of all channels: their offsets start again together, with the process.
    epoch: Epoch,
    channels: HashMap<Arc<str>, HomeChannel>,
    floor: u64,
}

impl Home {
    /// A home without channels.
    #[must_use]
    pub fn new(epoch: Epoch) -> Self {
        Self {
            epoch,
            channels: HashMap::new(),
            floor: 0,
        }
    }

    /// A shard has its first subscriber. Returns the channel's last position: everything after it will be delivered.
    pub fn join(&mut self, channel: &Arc<str>, shard: usize) -> Position {
        let floor = self.floor;
        let entry = self
            .channels
            .entry(Arc::clone(channel))
            .or_insert_with(|| HomeChannel {
                name: Arc::clone(channel),
                last_offset: floor,
                subscribed: ShardSet::default(),
            });
        entry.subscribed.insert(shard);
        Position {
            epoch: self.epoch,
            offset: entry.last_offset,
        }
    }

    /// A shard has lost its last subscriber.
    pub fn leave(&mut self, channel: &str, shard: usize) {
        let Some(entry) = self.channels.get_mut(channel) else {
            return;
        };
        entry.subscribed.remove(shard);
        if entry.subscribed.is_empty() {
            self.floor = self.floor.max(entry.last_offset);
            self.channels.remove(channel);
        }
    }

    /// Gives a publication its position. Returns it with the shards that have subscribers, and the channel's shared name.
    pub fn publish(&mut self, channel: &str) -> (Position, ShardSet, Arc<str>) {
        let epoch = self.epoch;
        if let Some(entry) = self.channels.get_mut(channel) {
            entry.last_offset += 1;
            let offset = entry.last_offset;
            let name = Arc::clone(&entry.name);
            return (Position { epoch, offset }, entry.subscribed, name);
        }
        self.floor += 1;
        let offset = self.floor;
        (
            Position { epoch, offset },
            ShardSet::default(),
            channel.into(),
        )
    }

    /// Channels with a subscriber somewhere.
    #[must_use]
    pub fn len(&self) -> usize {
        self.channels.len()
    }

    /// Whether no channel has a subscriber.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.channels.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::{Home, ShardSet};
    use crate::Epoch;
    use std::sync::Arc;

    #[test]
    fn offsets_grow_through_absence() {
        let mut home = Home::new(Epoch::new(7));
        let name: Arc<str> = "news".into();
        assert_eq!(home.publish("news").0.offset, 1);
        assert_eq!(home.join(&name, 3).offset, 1);
        assert_eq!(home.publish("news").0.offset, 2);
        let (position, shards, _) = home.publish("news");
        assert_eq!(
            (position.offset, shards.iter().collect::<Vec<_>>()),
            (3, vec![3])
        );
        home.leave("news", 3);
        assert!(home.is_empty());
        assert_eq!(home.publish("news").0.offset, 4);
        assert_eq!(home.join(&name, 0).offset, 4);
        assert_eq!(home.publish("other").0.offset, 5);
        assert_eq!(home.publish("news").0.offset, 5);
    }

    #[test]
    fn sets_name_every_shard() {
        let mut set = ShardSet::default();
        for shard in [0, 63, 64, 255] {
            assert!(set.insert(shard) && !set.insert(shard));
        }
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 63, 64, 255]);
        assert_eq!(set.len(), 4);
        assert!(set.remove(64) && !set.remove(64));
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 63, 255]);
    }
}
