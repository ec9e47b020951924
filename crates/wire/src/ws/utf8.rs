//! Checks UTF-8 while it arrives (RFC 6455, section 8.1). The check fails at the first byte that cannot be valid.

/// The bytes are not UTF-8, whatever bytes follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidUtf8;

/// The state of a text: between two code points, or inside one.
///
/// The state is the bytes of the incomplete code point. That suffices to fail at once, because a prefix of a code point
/// follows the same rules as a complete one: `ED A0` fails at its second byte, because only surrogates begin so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Utf8 {
    open: [u8; 3],
    open_length: u8,
}

impl Utf8 {
    pub(crate) const START: Self = Self {
        open: [0; 3],
        open_length: 0,
    };

    /// Takes the next bytes of the text.
    pub(crate) fn check(&mut self, bytes: &[u8]) -> Result<(), InvalidUtf8> {
        let rest = self.close_code_point(bytes)?;
        match simdutf8::compat::from_utf8(rest) {
            Ok(_) => Ok(()),
            Err(error) if error.error_len().is_none() => {
                self.save(&rest[error.valid_up_to()..]);
                Ok(())
            }
            Err(_) => Err(InvalidUtf8),
        }
    }

    /// Ends the text and is ready for the next one. Fails inside a code point.
    pub(crate) fn finish(&mut self) -> Result<(), InvalidUtf8> {
        let open_length = std::mem::replace(self, Self::START).open_length;
        if open_length == 0 {
            Ok(())
        } else {
            Err(InvalidUtf8)
        }
    }

    /// Adds bytes to the incomplete code point until it is complete. Returns the remaining bytes.
    fn close_code_point<'b>(&mut self, mut bytes: &'b [u8]) -> Result<&'b [u8], InvalidUtf8> {
        while self.open_length > 0
            && let [byte, rest @ ..] = bytes
        {
            let length = usize::from(self.open_length);
            let mut candidate = [0; 4];
            candidate[..length].copy_from_slice(&self.open[..length]);
            candidate[length] = *byte;
            match str::from_utf8(&candidate[..=length]) {
                Ok(_) => self.open_length = 0,
                // With four bytes the result is always known, so at most three are saved.
                Err(error) if error.error_len().is_none() => self.save(&candidate[..=length]),
                Err(_) => return Err(InvalidUtf8),
            }
            bytes = rest;
        }
        Ok(bytes)
    }

    fn save(&mut self, open: &[u8]) {
        self.open[..open.len()].copy_from_slice(open);
        self.open_length = u8::try_from(open.len()).expect("a code point has at most four bytes");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many bytes go in, one at a time, before the first refusal; `None` when all do.
    fn refused_at(bytes: &[u8]) -> Option<usize> {
        let mut state = Utf8::START;
        bytes.iter().position(|byte| state.check(&[*byte]).is_err())
    }

    #[test]
    fn every_code_point_passes_in_any_cut() {
        // Miri has time for some hundred of them.
        let step = if cfg!(miri) { 9973 } else { 7 };
        for point in ('\0'..=char::MAX).step_by(step).chain([
            '\u{7ff}',
            '\u{800}',
            '\u{ffff}',
            '\u{10000}',
            char::MAX,
        ]) {
            let mut encoded = [0; 4];
            let bytes = point.encode_utf8(&mut encoded).as_bytes();
            for cut in 0..=bytes.len() {
                let mut state = Utf8::START;
                assert_eq!(
                    state
                        .check(&bytes[..cut])
                        .and_then(|()| state.check(&bytes[cut..])),
                    Ok(())
                );
                assert_eq!(state.finish(), Ok(()));
            }
        }
    }

    #[test]
    fn refusal_comes_at_the_first_impossible_byte() {
        let cases: [(&[u8], usize); 15] = [
            (b"\x80", 0),
            (b"\xc0\x80", 0),
            (b"\xc1\xbf", 0),
            (b"\xf5\x80", 0),
            (b"\xff", 0),
            (b"a\xc3\x28", 2),
            (b"\xe0\x9f", 1),
            (b"\xed\xa0\x80", 1),
            (b"\xf0\x8f", 1),
            (b"\xf4\x90\x80\x80", 1),
            (b"\xe2\x82\x28", 2),
            (b"\xf0\x9f\x98\x28", 3),
            (b"\xf0\x9f\xc3", 2),
            (b"\xc3\xc3", 1),
            ("κόσμε\u{0}".as_bytes().trim_ascii_end(), usize::MAX),
        ];
        for (bytes, at) in cases {
            assert_eq!(
                refused_at(bytes),
                (at != usize::MAX).then_some(at),
                "{bytes:x?}"
            );
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "327,680 sequences are too many for it")]
    fn all_two_and_three_byte_sequences_agree_with_the_standard_library() {
        for first in 0x80..=0xff_u8 {
            for second in 0..=0xff_u8 {
                for third in [0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0xa0, 0xbf, 0xc2, 0xff] {
                    let bytes = [first, second, third];
                    let hopeless = |end: &usize| {
                        str::from_utf8(&bytes[..*end])
                            .is_err_and(|error| error.error_len().is_some())
                    };
                    let expected = (1..=3).find(hopeless).map(|end| end - 1);
                    assert_eq!(refused_at(&bytes), expected, "{bytes:x?}");
                    assert_eq!(
                        { Utf8::START }.check(&bytes).is_err(),
                        expected.is_some(),
                        "{bytes:x?}"
                    );
                }
            }
        }
    }

    #[test]
    fn an_open_code_point_does_not_end_a_text() {
        let mut state = Utf8::START;
        state
            .check(
                "long enough for the vector path, and then some more of it: "
                    .repeat(3)
                    .as_bytes(),
            )
            .unwrap();
        state.check(b"\xf0\x9f\x98").unwrap();
        assert_eq!(state.finish(), Err(InvalidUtf8));
        assert_eq!(state, Utf8::START);
    }
}
