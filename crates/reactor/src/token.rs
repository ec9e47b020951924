//! The two identifiers of a connection: the reactor's for its socket, and the caller's for its record.

/// The reactor's identifier of a socket: 11 bits of table and 20 bits of slot. Opaque to callers.
///
/// No driver sets the highest bit. A reactor that is built on a driver marks its own sockets with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Socket(pub(crate) u32);

impl Socket {
    pub(crate) const SLOT_BITS: u32 = 20;
    /// Maximum number of slots in a table. A descriptor number fits 20 bits unless `fs.nr_open` was raised.
    pub(crate) const SLOTS_MAX: usize = 1 << Self::SLOT_BITS;

    /// Maximum number of tables.
    pub(crate) const TABLES_MAX: usize = 1 << (31 - Self::SLOT_BITS);

    pub(crate) fn new(table: usize, slot: u32) -> Self {
        assert!(slot < 1 << Self::SLOT_BITS);
        assert!(table < Self::TABLES_MAX);
        let table = u32::try_from(table).expect("tables are few");
        Self(table << Self::SLOT_BITS | slot)
    }

    pub(crate) fn table(self) -> usize {
        (self.0 >> Self::SLOT_BITS) as usize
    }

    pub(crate) fn slot(self) -> u32 {
        self.0 & ((1 << Self::SLOT_BITS) - 1)
    }

    /// The identifier as a plain number, to keep in a record.
    #[must_use]
    pub fn to_bits(self) -> u32 {
        self.0
    }

    /// The identifier from the number that [`Socket::to_bits`] gave.
    #[must_use]
    pub fn from_bits(bits: u32) -> Self {
        Self(bits)
    }
}

/// The caller's identifier of a record: an index into its slab and the low bits of the record's generation.
///
/// Eight bits of generation suffice. A driver cancels its poll before the [`crate::Reactor::wait`] after next, so no
/// stale completion arrives later, and a record is reused at most once a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    /// Index of the caller's record.
    pub index: u32,
    /// Low eight bits of the record's generation.
    pub generation: u8,
}
