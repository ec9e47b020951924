//! A position in a stream as its clients write it.

use std::fmt;

/// A position in a stream: the epoch of its channel, and the offset of the last publication before the position; 0 at the
/// beginning.
///
/// Clients read it as an opaque token. It is written as the epoch's letters, `_` and 16 hexadecimal digits, so that tokens of one
/// epoch sort by their bytes as their positions do. A token is never one of the protocol's words `-1` and `now`, and has none of
/// the characters that mean something in a query (`PROTOCOL.md`, section "Offsets").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamOffset {
    /// The epoch's letters: lower-case letters and digits.
    pub epoch: [u8; Self::EPOCH_BYTES],
    /// The offset of the last publication before the position.
    pub offset: u64,
}

impl StreamOffset {
    /// Letters of an epoch.
    pub const EPOCH_BYTES: usize = 8;
    /// Bytes of a token.
    pub const BYTES: usize = Self::EPOCH_BYTES + 1 + 16;

    /// Reads a token; none if the text is not one that [`fmt::Display`] writes.
    #[must_use]
    pub fn parse(token: &str) -> Option<Self> {
        let (epoch, digits) = token.split_once('_')?;
        let epoch: [u8; Self::EPOCH_BYTES] = epoch.as_bytes().try_into().ok()?;
        let is_letter = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if !epoch.iter().all(is_letter) || digits.len() != 16 || !digits.bytes().all(is_digit) {
            return None;
        }
        let offset = u64::from_str_radix(digits, 16).ok()?;
        Some(Self { epoch, offset })
    }
}

impl fmt::Display for StreamOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let epoch = str::from_utf8(&self.epoch).expect("letters and digits of ASCII");
        write!(f, "{epoch}_{:016x}", self.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::StreamOffset;
    use proptest::prelude::*;

    fn at(offset: u64) -> StreamOffset {
        StreamOffset {
            epoch: *b"ab234567",
            offset,
        }
    }

    #[test]
    fn a_token_is_letters_and_digits() {
        assert_eq!(at(0).to_string(), "ab234567_0000000000000000");
        assert_eq!(at(0xabc).to_string(), "ab234567_0000000000000abc");
        assert_eq!(at(7).to_string().len(), StreamOffset::BYTES);
    }

    #[test]
    fn other_text_is_no_token() {
        for text in [
            "",
            "-1",
            "now",
            "0",
            "ab234567",
            "ab234567_",
            "ab234567_0",
            "ab234567_0000000000000ABC",
            "ab234567_+000000000000abc",
            "AB234567_0000000000000abc",
            "ab23456_00000000000000abc",
            "ab234567_00000000000000abc",
            "ab234567-0000000000000abc",
            "ab23456é_000000000000000",
            "ab234567_0000000000000abc ",
            "0,1",
        ] {
            assert_eq!(StreamOffset::parse(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn tokens_are_read_back_and_sort_as_positions_do(a in any::<u64>(), b in any::<u64>()) {
            prop_assert_eq!(StreamOffset::parse(&at(a).to_string()), Some(at(a)));
            prop_assert_eq!(a.cmp(&b), at(a).to_string().cmp(&at(b).to_string()));
        }

        #[test]
        fn what_is_read_is_written_the_same(text in "[a-z2-7_]{8}_[0-9a-f]{16}|.{0,30}") {
            if let Some(offset) = StreamOffset::parse(&text) {
                prop_assert_eq!(offset.to_string(), text);
            }
        }
    }
}
