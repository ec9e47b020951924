//! Cheap numbers that look random, from a seed: for nonces, masks and jitter. Nothing here guards a secret, [`secret`] excepted.

use rustix::rand::{GetRandomFlags, getrandom};
use std::hash::{BuildHasher, RandomState};
use std::io;

/// One step of SplitMix64: every bit of the input changes about half of the output's.
pub(crate) fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// A sequence of such numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0)
    }

    /// Any number from zero to one, and less than that.
    pub(crate) fn part(&mut self) -> f64 {
        // 53 bits are what a float holds.
        #[expect(clippy::cast_precision_loss, reason = "it fits")]
        let part = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        part
    }

    /// A frame's mask. RFC 6455, section 5.3 wants it unpredictable to protect proxies from scripts in
    /// browsers; a crowd has neither, and servers need only see that it varies.
    pub(crate) fn mask(&mut self) -> [u8; 4] {
        let [a, b, c, d, ..] = self.next().to_le_bytes();
        [a, b, c, d]
    }
}

/// A secret of 128 bits, as 32 hexadecimal digits.
///
/// # Errors
/// The kernel gives no random bytes.
pub(crate) fn secret() -> io::Result<String> {
    let mut bytes = [0; 16];
    // Requests of up to 256 bytes are answered whole (getrandom(2)).
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}

/// A seed that differs from run to run.
pub(crate) fn seed() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_have_one_length_and_differ() {
        let (one, other) = (secret().unwrap(), secret().unwrap());
        assert_eq!((one.len(), other.len()), (32, 32));
        assert_ne!(one, other);
    }
}
