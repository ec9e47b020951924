//! Which log orders a channel, where a namespace has several.

/// Names a log: its index among those of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId(pub u16);

/// The logs of a namespace: each orders some of its channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partitions {
    /// The first of them; the others follow.
    pub first: LogId,
    /// How many there are; at least one.
    pub count: u16,
}

impl Partitions {
    /// One log for all channels.
    #[must_use]
    pub fn one(log: LogId) -> Self {
        Self {
            first: log,
            count: 1,
        }
    }

    /// The log of a channel. All nodes of a cluster must agree, whatever their versions are.
    #[must_use]
    pub fn of(self, channel: &str) -> LogId {
        if self.count == 1 {
            return self.first;
        }
        let partition = name_hash(channel) % u64::from(self.count);
        LogId(self.first.0 + u16::try_from(partition).expect("fewer than the count"))
    }

    /// All of them.
    pub fn iter(self) -> impl Iterator<Item = LogId> {
        (0..self.count).map(move |partition| LogId(self.first.0 + partition))
    }
}

/// A hash of a name that never changes: FNV-1a, with its halves mixed.
#[must_use]
pub fn name_hash(name: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, step);
    hash ^ hash >> 32
}
