//! Bytes as text.

use std::fmt::Write as _;

/// Two digits for each byte, in lower case.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a String takes everything");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_has_two_digits() {
        assert_eq!(hex(&[0, 10, 255]), "000aff");
        assert_eq!(hex(&[]), "");
    }
}
