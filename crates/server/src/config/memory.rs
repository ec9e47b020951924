//! What the server may keep in memory beside its connections: one budget for each purpose, derived from the memory that the control
//! group and the machine leave.
//!
//! All of them together are at most half of that memory, as long as it has 160 MiB. The other half is for connections, whose larger part is
//! the kernel's and counts in the control group, too. A value that was written stands as it is, and the others do not shrink for it.

use super::{ConfigError, Options, refuse};
use myriad_units::bytes;
use myriad_units::option::Size;
use std::fmt;

const MIB: u64 = 1 << 20;

/// No share is smaller.
const LEAST: u64 = 4 * MIB;
/// A publication has 1 MiB at most, and several encodings: the smallest share still takes one at a time.
const PUBLICATIONS_LEAST: u64 = 16 * MIB;
/// A body has 8 MiB at most.
const BODIES_LEAST: u64 = 10 * MIB;
/// What is assumed where `/proc` is not readable.
const ASSUMED: u64 = 1 << 30;
/// The share of clients that have not connected of all buffered bytes.
const UNCONNECTED_DIVISOR: u64 = 4;

/// Budgets in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryShares {
    /// The memory of which they are shares.
    pub available: u64,
    /// `buffered-bytes-max`.
    pub buffered: u64,
    /// `unconnected-bytes-max`.
    pub unconnected: u64,
    /// Publications accepted and not yet sent to every subscriber.
    pub publications: u64,
    /// `channel.history_bytes_max`.
    pub history: u64,
    /// Bodies of requests of the control plane.
    pub bodies: u64,
    /// Results of batches.
    pub results: u64,
    /// Answers of the control plane that their readers have not taken.
    pub unsent: u64,
}

impl MemoryShares {
    /// The shares of what is available, but for those that are written in `options`.
    ///
    /// # Errors
    /// A written value cannot be used.
    pub(super) fn of(options: &Options, available: Option<u64>) -> Result<Self, ConfigError> {
        let available = available.unwrap_or(ASSUMED);
        let share =
            |divisor: u64, most_mib: u64| (available / divisor).clamp(LEAST, most_mib * MIB);
        let channel = options.channel.as_ref();
        let history = channel.and_then(|channel| channel.history_bytes_max);
        let buffered = or_written(
            "buffered-bytes-max",
            options.buffered_bytes_max,
            share(8, 2048),
        )?;
        let unconnected = buffered / UNCONNECTED_DIVISOR;
        let name = "unconnected-bytes-max";
        let unconnected = match options.unconnected_bytes_max {
            Some(size) if size.0 < 64 << 10 || size.0 > buffered => {
                let most = Size(buffered);
                let advice = format!("choose 64KiB to {most} (it is a part of buffered-bytes-max)");
                return Err(refuse(name, size, advice));
            }
            Some(size) => size.0,
            None => unconnected,
        };
        Ok(Self {
            available,
            buffered,
            unconnected,
            publications: share(16, 256).max(PUBLICATIONS_LEAST),
            history: or_written("channel.history_bytes_max", history, share(8, 256))?,
            bodies: share(16, 64).max(BODIES_LEAST),
            // Half of the others' share: with 160 MiB they would not leave half for connections.
            results: share(32, 256),
            unsent: share(32, 256),
        })
    }
}

fn or_written(name: &'static str, written: Option<Size>, share: u64) -> Result<u64, ConfigError> {
    match written {
        None => Ok(share),
        Some(size) if size.0 < MIB => Err(refuse(name, size, "choose at least 1MiB")),
        Some(size) => Ok(size.0),
    }
}

impl fmt::Display for MemoryShares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shares = [
            ("publications under way", self.publications),
            ("history", self.history),
            ("bodies of requests", self.bodies),
            ("results of batches", self.results),
            ("answers that are not read", self.unsent),
        ];
        let [available, buffered] = [self.available, self.buffered].map(bytes);
        let unconnected = bytes(self.unconnected);
        write!(
            f,
            "of {available} of memory, at most: {buffered} for buffers ({unconnected} of it for clients that have not connected)"
        )?;
        for (purpose, share) in shares {
            write!(f, ", {} for {purpose}", bytes(share))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ChannelTable;

    fn sum(shares: &MemoryShares) -> u64 {
        shares.buffered
            + shares.publications
            + shares.history
            + shares.bodies
            + shares.results
            + shares.unsent
    }

    #[test]
    fn all_shares_together_leave_half_for_connections() {
        for available in [160, 192, 512, 1 << 10, 24 << 10, 512 << 10].map(|mib| mib * MIB) {
            let shares = MemoryShares::of(&Options::default(), Some(available)).expect("defaults");
            assert!(sum(&shares) <= available / 2, "{shares}");
            assert!(shares.unconnected < shares.buffered);
        }
        let large = MemoryShares::of(&Options::default(), Some(64 << 30)).expect("defaults");
        assert_eq!((large.buffered, large.bodies), (2 << 30, 64 * MIB));
    }

    #[test]
    fn what_is_written_wins() {
        let options = Options {
            buffered_bytes_max: Some(Size(300 * MIB)),
            channel: Some(ChannelTable {
                history_bytes_max: Some(Size(200 * MIB)),
                ..ChannelTable::default()
            }),
            ..Options::default()
        };
        let shares = MemoryShares::of(&options, Some(160 * MIB)).expect("large enough");
        assert_eq!((shares.buffered, shares.history), (300 * MIB, 200 * MIB));
        assert_eq!((shares.unconnected, shares.bodies), (75 * MIB, 10 * MIB));
        for unconnected in [1 << 10, 301 * MIB] {
            let options = Options {
                unconnected_bytes_max: Some(Size(unconnected)),
                ..options.clone()
            };
            let refused = MemoryShares::of(&options, None).expect_err("out of range");
            assert!(
                refused.to_string().contains("unconnected-bytes-max"),
                "{refused}"
            );
        }
    }
}
