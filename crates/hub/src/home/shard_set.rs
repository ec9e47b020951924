//! Sets of shards.

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

#[cfg(test)]
mod tests {
    use super::ShardSet;

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
