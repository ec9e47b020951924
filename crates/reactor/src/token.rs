//! The two names of a connection: the reactor's for its socket, the caller's for its record.

/// The reactor's name of a socket: 12 bits of table, 20 bits of slot. Opaque to callers, stored as 4 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Socket(pub(crate) u32);

impl Socket {
    pub(crate) const SLOT_BITS: u32 = 20;
    /// Slots a table can have: a descriptor number fits 20 bits while `fs.nr_open` keeps its default.
    pub(crate) const SLOTS_MAX: usize = 1 << Self::SLOT_BITS;

    pub(crate) fn new(table: usize, slot: u32) -> Self {
        assert!(slot < 1 << Self::SLOT_BITS);
        let table = u32::try_from(table).expect("tables are few");
        assert!(table < 1 << (32 - Self::SLOT_BITS));
        Self(table << Self::SLOT_BITS | slot)
    }

    pub(crate) fn table(self) -> usize {
        (self.0 >> Self::SLOT_BITS) as usize
    }

    pub(crate) fn slot(self) -> u32 {
        self.0 & ((1 << Self::SLOT_BITS) - 1)
    }

    /// The name as plain data, for records that keep it.
    #[must_use]
    pub fn to_bits(self) -> u32 {
        self.0
    }

    /// The name back from [`Socket::to_bits`].
    #[must_use]
    pub fn from_bits(bits: u32) -> Self {
        Self(bits)
    }
}

/// The caller's name of a record: an index into its slab and the low bits of the record's generation.
///
/// Eight bits of generation suffice: a stale completion can only arrive until the driver has cancelled
/// its poll, which is before the [`crate::Reactor::wait`] after next, and a record is reused at most once a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    /// Index of the caller's record.
    pub index: u32,
    /// Low eight bits of the record's generation.
    pub generation: u8,
}
