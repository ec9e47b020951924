//! Numbers of variable length, as protobuf writes them: seven bits a byte, the lowest first. All bytes but the last one have their
//! highest bit set.

/// Why bytes do not begin with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VarintError {
    /// The bytes end before the number does.
    Truncated,
    /// The number has more than 64 bits.
    TooLarge,
}

/// Appends a number: one to ten bytes.
pub fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(low_byte(value) | 0x80);
        value >>= 7;
    }
    out.push(low_byte(value));
}

fn low_byte(value: u64) -> u8 {
    value.to_le_bytes()[0]
}

/// The number that `bytes` begin with, and what is behind it.
///
/// # Errors
///
/// If the number does not end, or is too large.
pub fn split_varint(bytes: &[u8]) -> Result<(u64, &[u8]), VarintError> {
    let mut value = 0;
    for (index, &byte) in bytes.iter().enumerate() {
        // Nine bytes carry 63 bits, so the tenth may only be 0 or 1.
        if index == 9 && byte > 1 {
            return Err(VarintError::TooLarge);
        }
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return Ok((value, &bytes[index + 1..]));
        }
    }
    Err(VarintError::Truncated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_read_as_it_was_written() {
        let borders = (0..64).flat_map(|bits| [(1 << bits) - 1, 1_u64 << bits]);
        for value in borders.chain([150, u64::MAX]) {
            let mut bytes = Vec::new();
            push_varint(&mut bytes, value);
            assert_eq!(
                bytes.len(),
                (u64::BITS - value.leading_zeros()).div_ceil(7).max(1) as usize
            );
            for end in 0..bytes.len() {
                assert_eq!(split_varint(&bytes[..end]), Err(VarintError::Truncated));
            }
            bytes.extend(b"rest");
            assert_eq!(split_varint(&bytes), Ok((value, &b"rest"[..])));
        }
    }

    #[test]
    fn the_specification_s_example_is_written_as_there() {
        let mut bytes = Vec::new();
        push_varint(&mut bytes, 150);
        assert_eq!(bytes, [0x96, 0x01]);
    }

    #[test]
    fn more_than_64_bits_are_no_number() {
        let longest = |last| [[0xff; 9].as_slice(), &[last]].concat();
        assert_eq!(split_varint(&longest(1)), Ok((u64::MAX, &[][..])));
        for last in [2, 0x7f, 0x80, 0x81] {
            assert_eq!(split_varint(&longest(last)), Err(VarintError::TooLarge));
        }
        // More bytes than necessary are allowed.
        assert_eq!(split_varint(&[0x81, 0x80, 0]), Ok((1, &[][..])));
    }
}
