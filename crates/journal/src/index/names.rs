//! Channels by name and by number.

use super::Channel;
use hashbrown::HashTable;
use siphasher::sip::SipHasher13;
use std::hash::Hasher as _;

/// Channels in one row, and a table of their numbers.
#[derive(Debug)]
pub(crate) struct Names {
    key: u64,
    channels: Vec<Option<Channel>>,
    free: Vec<u32>,
    table: HashTable<u32>,
}

impl Names {
    pub(super) fn new(key: u64) -> Self {
        Self {
            key,
            channels: Vec::new(),
            free: Vec::new(),
            table: HashTable::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Numbers that are or were in use are below this one.
    pub(crate) fn end(&self) -> u32 {
        u32::try_from(self.channels.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> {
        let used = |id: &u32| self.channels[*id as usize].is_some();
        (0..self.end()).filter(used)
    }

    pub(crate) fn is_used(&self, id: u32) -> bool {
        matches!(self.channels.get(id as usize), Some(Some(_)))
    }

    fn hash(key: u64, name: &str) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(key, 0);
        hasher.write(name.as_bytes());
        hasher.finish()
    }

    pub(crate) fn find(&self, name: &str) -> Option<u32> {
        let hash = Self::hash(self.key, name);
        let found = self.table.find(hash, |id| self.get(*id).name() == name);
        found.copied()
    }

    /// A channel whose number is in use.
    pub(crate) fn get(&self, id: u32) -> &Channel {
        let channel = self.channels[id as usize].as_ref();
        channel.expect("a number in use")
    }

    pub(super) fn change<T>(&mut self, id: u32, change: impl FnOnce(&mut Channel) -> T) -> T {
        let channel = self.channels[id as usize].as_mut();
        change(channel.expect("a number in use"))
    }

    pub(super) fn insert(&mut self, name: &str, epoch: u64, last: u64) -> u32 {
        let channel = Some(Channel::new(name, epoch, last));
        let id = if let Some(id) = self.free.pop() {
            self.channels[id as usize] = channel;
            id
        } else {
            if self.channels.len() == self.channels.capacity() {
                // Doubling would leave half of the largest part of the memory unused.
                self.channels
                    .reserve_exact((self.channels.len() / 8).max(64));
            }
            self.channels.push(channel);
            self.end() - 1
        };
        let (key, channels) = (self.key, &self.channels);
        let hash_of = |id: &u32| {
            let channel = channels[*id as usize].as_ref();
            Self::hash(key, channel.map_or("", Channel::name))
        };
        self.table.insert_unique(Self::hash(key, name), id, hash_of);
        id
    }

    pub(super) fn remove(&mut self, id: u32) {
        let hash = Self::hash(self.key, self.get(id).name());
        if let Ok(entry) = self.table.find_entry(hash, |one| *one == id) {
            entry.remove();
        }
        self.channels[id as usize] = None;
        self.free.push(id);
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let channels = self.channels.iter().flatten();
        let used: usize = channels.map(Channel::memory_bytes).sum();
        let unused = self.channels.capacity() - self.table.len();
        let table = self.table.capacity() * 8 / 7 * 5;
        (used + unused * size_of::<Option<Channel>>() + table + self.free.capacity() * 4) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::Names;

    #[test]
    fn a_name_is_found_until_it_is_removed() {
        let mut names = Names::new(1);
        let ids: Vec<u32> = (0..1000)
            .map(|n| names.insert(&n.to_string(), 1, n))
            .collect();
        assert_eq!(names.find("77"), Some(ids[77]));
        names.remove(ids[77]);
        assert_eq!((names.find("77"), names.len()), (None, 999));
        assert_eq!(names.insert("new", 1, 1), ids[77]);
        assert_eq!(names.ids().count(), 1000);
    }
}
