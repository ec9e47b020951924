//! The names of clients.

use myriad_wheel::Key;
use siphasher::sip::SipHasher13;
use std::fmt;
use std::hash::Hasher;

/// Names a connected client, for ever: a UUID of version 8 (RFC 9562, section 5.8), whose bits only this server can read.
///
/// It carries where the client is (shard, index and generation of its connection's record), so that a request that names a
/// client needs no directory. Its 122 bits beside version and variant are scrambled with the process's secret ([`ClientIds`]):
/// nobody can guess another client's id, nor see from his own how many clients there are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub [u8; 16]);

impl ClientId {
    /// Reads an id as it is written: 32 lower-case hexadecimal digits with dashes in their places.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits: String = text.split('-').collect();
        let id = Self(u128::from_str_radix(&digits, 16).ok()?.to_be_bytes());
        // Any other way to write the number is refused.
        (id.text() == text.as_bytes()).then_some(id)
    }

    /// Its text, in ASCII.
    fn text(&self) -> [u8; 36] {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let is_dash = |at| matches!(at, 8 | 13 | 18 | 23);
        let mut text = [b'-'; 36];
        let digits = text.iter_mut().enumerate();
        let digits = digits.filter(|(at, _)| !is_dash(*at));
        let halves = self.0.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        for ((_, digit), half) in digits.zip(halves) {
            *digit = HEX[usize::from(half)];
        }
        text
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text();
        f.write_str(std::str::from_utf8(&text).expect("it is ASCII"))
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Makes client ids, with a secret of the process.
///
/// A permutation of 122 bits: a Feistel network of four rounds over two halves of 61 bits, with SipHash-1-3 as the function of a
/// round (Luby and Rackoff: four rounds of a pseudorandom function make a strong pseudorandom permutation). Of the bits that
/// it scrambles, 50 are zero: an id that was made up passes for one of ours once in 2^50.
#[derive(Clone, Copy)]
pub struct ClientIds {
    secret: (u64, u64),
}

impl fmt::Debug for ClientIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientIds").finish_non_exhaustive()
    }
}

impl ClientIds {
    const HALF_BITS: u32 = 61;
    const HALF: u64 = (1 << Self::HALF_BITS) - 1;
    const ROUNDS: u8 = 4;
    /// The version (8) and the variant (binary 10) of RFC 9562, in their places.
    const FIXED: u128 = 8 << 76 | 2 << 62;

    /// With the process's secret, which must be random.
    #[must_use]
    pub fn new(secret: u128) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "the halves of a u128")]
        let secret = (secret as u64, (secret >> 64) as u64);
        Self { secret }
    }

    /// Names of sessions, which only their own clients know. Another client knows this one's id, for example from a list of members: by
    /// that it must not be able to speak for this one. So they are made with another secret.
    #[must_use]
    pub fn of_sessions(self) -> Self {
        Self {
            secret: (self.derived(b"sessions 0"), self.derived(b"sessions 1")),
        }
    }

    /// Names the process, in 16 hexadecimal digits.
    #[must_use]
    pub fn node(self) -> String {
        format!("{:016x}", self.derived(b"node"))
    }

    /// A number that says nothing of the secret.
    fn derived(self, purpose: &[u8]) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.secret.0, self.secret.1);
        hasher.write(purpose);
        hasher.finish()
    }

    fn round(self, half: u64, round: u8) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.secret.0, self.secret.1);
        hasher.write_u64(half);
        hasher.write_u8(round);
        hasher.finish() & Self::HALF
    }

    /// The id of a client whose connection has this record on this shard.
    #[must_use]
    pub fn id_of(self, shard: u16, key: Key) -> ClientId {
        let mut left = u64::from(shard) << 32 | u64::from(key.index);
        let mut right = u64::from(key.generation);
        for round in 0..Self::ROUNDS {
            (left, right) = (right, left ^ self.round(right, round));
        }
        let bits = u128::from(left) << Self::HALF_BITS | u128::from(right);
        // 48 bits, the version, 12 bits, the variant, 62 bits.
        let spread = bits >> 74 << 80 | (bits >> 62 & 0xfff) << 64 | bits & ((1 << 62) - 1);
        ClientId((spread | Self::FIXED).to_be_bytes())
    }

    /// The shard and the record that an id names; none if this process did not make it.
    #[must_use]
    pub fn place_of(self, id: ClientId) -> Option<(u16, Key)> {
        let spread = u128::from_be_bytes(id.0);
        if spread & (0xf << 76 | 3 << 62) != Self::FIXED {
            return None;
        }
        let bits = spread >> 80 << 74 | (spread >> 64 & 0xfff) << 62 | spread & ((1 << 62) - 1);
        let half = |bits: u128| u64::try_from(bits & u128::from(Self::HALF)).expect("61 bits");
        let (mut left, mut right) = (half(bits >> Self::HALF_BITS), half(bits));
        for round in (0..Self::ROUNDS).rev() {
            (left, right) = (right ^ self.round(left, round), left);
        }
        let shard = u16::try_from(left >> 32).ok()?;
        let generation = u32::try_from(right).ok()?;
        let index = u32::try_from(left & u64::from(u32::MAX)).expect("32 bits");
        Some((shard, Key { index, generation }))
    }

    /// A secret for the table of users of a shard.
    #[must_use]
    pub fn user_seed(self, shard: u16) -> u64 {
        self.round(u64::from(shard), Self::ROUNDS)
    }
}

#[cfg(test)]
mod tests {
    use super::{ClientId, ClientIds};
    use myriad_wheel::Key;
    use std::collections::HashSet;

    #[test]
    fn an_id_names_one_place_and_a_changed_one_names_none() {
        let ids = ClientIds::new(7);
        let mut seen = HashSet::new();
        for shard in [0, 1, 255, u16::MAX] {
            for index in [0, 1, 2, 1 << 20, u32::MAX] {
                for generation in [0, 1, 3, u32::MAX] {
                    let key = Key { index, generation };
                    let id = ids.id_of(shard, key);
                    assert!(seen.insert(id));
                    assert_eq!(ids.place_of(id), Some((shard, key)));
                    assert_eq!(ClientIds::new(8).place_of(id), None);
                    let text = id.to_string();
                    assert_eq!(ClientId::parse(&text), Some(id));
                    assert_eq!(ClientId::parse(&text.to_uppercase()), None);
                    assert_eq!(&text[14..15], "8", "{text}");
                    assert!(matches!(&text[19..20], "8" | "9" | "a" | "b"), "{text}");
                    for bit in 0..128 {
                        let changed = u128::from_be_bytes(id.0) ^ 1 << bit;
                        assert_eq!(ids.place_of(ClientId(changed.to_be_bytes())), None);
                    }
                }
            }
        }
    }

    #[test]
    fn an_id_is_written_as_a_uuid() {
        let id = ClientId(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff_u128.to_be_bytes());
        assert_eq!(id.to_string(), "00112233-4455-6677-8899-aabbccddeeff");
        for other in [
            "00112233-4455-6677-8899_aabbccddeeff",
            "0011223-34455-6677-8899-aabbccddeeff",
            "00112233-4455-6677-8899-aabbccddeef",
            "00112233-4455-6677-8899-aabbccddeeff0",
            "00112233-4455-6677-8899-aabbccddeeg0",
            "00112233-4455-6677-8899-aabbccdd\u{e9}ff",
            "",
        ] {
            assert_eq!(ClientId::parse(other), None, "{other}");
        }
    }
}
