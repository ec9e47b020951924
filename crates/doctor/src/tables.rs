//! Arithmetic of descriptor tables, which RLIMIT_NOFILE bounds one by one. The server plans with it too.

/// Tables a server can have under epoll: shards, each with a thread and a table of its own.
pub const EPOLL_TABLES_MAX: usize = 256;
/// Tables a server can have under io_uring: a socket's name has 12 bits for its ring.
pub const RING_TABLES_MAX: u64 = 4_096;
/// Slots of one ring's table at most, whatever RLIMIT_NOFILE is: the kernel takes no larger one.
pub const RING_SLOTS_MAX: u64 = 1 << 20;
/// What the kernel counts for the smallest ring the driver makes: three pages of completions, four of submissions.
pub const RING_BYTES_MIN: u64 = 7 * 4_096;
/// Sockets beyond the connections' limit that a shard can hold while it answers them 503.
pub const REFUSAL_SLOTS: u64 = 256;
/// Descriptors of a table that are no client: stdio, listener, epoll, wakers of the runtime, the files of one moment.
const OWN_DESCRIPTORS: u64 = 64;

/// Descriptors in a table that are not connections: every shard's waker is in every table, and both ends of the pair.
#[must_use]
pub fn own_descriptors(shards: usize) -> u64 {
    OWN_DESCRIPTORS + 3 * shards as u64
}

/// The fewest tables of `table` slots that hold all connections although SO_REUSEPORT spreads them by hash.
#[must_use]
pub fn epoll_tables_needed(connections: u64, table: u64) -> Option<usize> {
    (1..=EPOLL_TABLES_MAX).find(|&tables| {
        fullest_table(connections, tables) + own_descriptors(tables) + REFUSAL_SLOTS <= table
    })
}

/// The most connections that tables of `table` slots hold under epoll.
#[must_use]
pub fn epoll_connections_max(table: u64) -> u64 {
    // Halving finds the most that fits; nothing fits when a table cannot even hold its own descriptors.
    let (mut low, mut high) = (
        0,
        table.saturating_mul(EPOLL_TABLES_MAX as u64).min(1 << 40),
    );
    while high - low > 1 {
        let middle = low.midpoint(high);
        if epoll_tables_needed(middle, table).is_some() {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// The most connections that rings hold, each with a table as large as the process's own. A ring takes a
/// descriptor of the process's table.
#[must_use]
pub fn ring_connections_max(table: u64) -> u64 {
    let rings = table.saturating_sub(OWN_DESCRIPTORS).min(RING_TABLES_MAX);
    rings.saturating_mul(table.min(RING_SLOTS_MAX))
}

/// The least that a table must have for so many connections, by one of the functions here that say what tables hold;
/// none where no table is large enough.
#[must_use]
pub fn table_needed(connections: u64, holds: fn(u64) -> u64) -> Option<u64> {
    let (mut short, mut enough) = (0, 1 << 30);
    if holds(enough) < connections {
        return None;
    }
    while enough - short > 1 {
        let middle = u64::midpoint(short, enough);
        if holds(middle) >= connections {
            enough = middle;
        } else {
            short = middle;
        }
    }
    Some(enough)
}

/// Rings whose queues are within that much locked memory, each as small as it can be.
#[must_use]
pub fn rings_max(locked_bytes: u64) -> u64 {
    locked_bytes / RING_BYTES_MIN
}

/// Sockets that rings hold whose queues are counted as their user's locked memory, each ring as small as it can be.
#[must_use]
pub fn locked_ring_sockets_max(table: u64, locked_bytes: u64) -> u64 {
    rings_max(locked_bytes).saturating_mul(table.min(RING_SLOTS_MAX))
}

/// Connections in the fullest table: the mean, and four standard deviations of the binomial spread.
///
/// Among 256 tables, one goes past that in a hundred starts at most; a client that meets it is answered 503.
fn fullest_table(connections: u64, tables: usize) -> u64 {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a spread is an estimate; connections are far below 2^52"
    )]
    let (connections_f, share) = (connections as f64, 1.0 / tables as f64);
    let deviation = (connections_f * share * (1.0 - share)).sqrt();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive and far below 2^52"
    )]
    let spread = (4.0 * deviation).ceil() as u64;
    connections.div_ceil(tables as u64) + spread
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_fits_and_one_more_does_not() {
        for table in [512, 600, 1_024, 20_000, 1 << 20] {
            let most = epoll_connections_max(table);
            assert!(epoll_tables_needed(most, table).is_some(), "{table}");
            assert_eq!(epoll_tables_needed(most + 1, table), None, "{table}");
        }
    }

    #[test]
    fn tables_that_cannot_hold_their_own_descriptors_hold_nothing() {
        assert_eq!(epoll_connections_max(300), 0);
        assert_eq!(ring_connections_max(64), 0);
        assert_eq!(epoll_connections_max(0), 0);
    }

    #[test]
    fn the_table_needed_is_the_least_that_holds_them() {
        for holds in [ring_connections_max, epoll_connections_max] {
            for connections in [1, 10_000, 1_000_000] {
                let table = table_needed(connections, holds).expect("small");
                assert!(holds(table) >= connections && holds(table - 1) < connections);
            }
        }
        assert_eq!(table_needed(1 << 62, ring_connections_max), None);
    }

    #[test]
    fn a_ring_has_a_million_slots_at_the_most() {
        let most = ring_connections_max(u64::MAX);
        assert_eq!(most, RING_TABLES_MAX * RING_SLOTS_MAX);
        assert_eq!(locked_ring_sockets_max(1 << 40, 64 << 10), 2 << 20);
    }

    #[test]
    fn a_spread_over_many_tables_keeps_a_reserve() {
        assert_eq!(fullest_table(1_000_000, 1), 1_000_000);
        // 20,000 each, and 4 * sqrt(1,000,000 / 50 * 49 / 50).
        assert_eq!(fullest_table(1_000_000, 50), 20_560);
    }
}
