//! Where a publication is in its channel's order.

use myriad_wire::streams::StreamOffset;
use std::fmt;

/// A name for one run of a channel's offsets: while it stays the same, offsets only grow. It changes when they may start
/// again, as they do with each start of the server.
///
/// Clients read it as an opaque string, and compare it for equality only.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Epoch([u8; Self::BYTES]);

impl Epoch {
    const BYTES: usize = 8;
    /// Lower-case letters and digits that are not mistaken for each other (RFC 4648, section 6).
    const ALPHABET: [u8; 32] = *b"abcdefghijklmnopqrstuvwxyz234567";

    /// The epoch made of the low 40 bits of a random number.
    #[must_use]
    pub fn new(random: u64) -> Self {
        let letter = |index: usize| Self::ALPHABET[(random >> (5 * index) & 31) as usize];
        Self(std::array::from_fn(letter))
    }

    /// The epoch of these letters; none if they are not eight of ours.
    #[must_use]
    pub fn parse(letters: &str) -> Option<Self> {
        let letters: [u8; Self::BYTES] = letters.as_bytes().try_into().ok()?;
        let are_ours = letters.iter().all(|one| Self::ALPHABET.contains(one));
        are_ours.then_some(Self(letters))
    }

    /// The 40 bits that it is made of.
    #[must_use]
    pub fn bits(self) -> u64 {
        let value = |letter: &u8| Self::ALPHABET.iter().position(|one| one == letter);
        let values = self.0.iter().rev().filter_map(value);
        values.fold(0, |bits, value| bits << 5 | value as u64)
    }

    /// Its letters.
    #[must_use]
    pub fn letters(self) -> [u8; Self::BYTES] {
        self.0
    }

    /// Its letters, as clients read it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.0).expect("letters and digits of ASCII")
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Where a publication is in its channel's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The run of offsets that `offset` belongs to. Offsets of different epochs cannot be compared.
    pub epoch: Epoch,
    /// Larger than that of every earlier publication of the channel in this epoch. In a channel with history offsets are 1, 2,
    /// 3; a publication that history does not keep has 0, and so has a channel without publications. In other channels, and where
    /// a log orders them, offsets may leave out numbers.
    pub offset: u64,
}

impl Position {
    /// The position as clients of streams read it.
    #[must_use]
    pub fn stream_offset(self) -> StreamOffset {
        StreamOffset {
            epoch: self.epoch.letters(),
            offset: self.offset,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Epoch;

    #[test]
    fn an_epoch_is_eight_letters_of_forty_bits() {
        assert_eq!(Epoch::new(0).as_str(), "aaaaaaaa");
        assert_eq!(Epoch::new(u64::MAX).to_string(), "77777777");
        assert_eq!(Epoch::new(1 << 40), Epoch::new(0));
        assert_eq!(Epoch::new(u64::MAX).bits(), (1 << 40) - 1);
        assert_eq!(Epoch::parse("77777777"), Some(Epoch::new(u64::MAX)));
        assert_eq!(Epoch::parse("7777777"), None);
        assert_eq!(Epoch::parse("7777777A"), None);
        for bit in 0..40 {
            assert_eq!(Epoch::new(1 << bit).bits(), 1 << bit);
            assert_ne!(Epoch::new(1 << bit), Epoch::new(0), "{bit}");
        }
    }
}
