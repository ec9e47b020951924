//! The header lines of a head, and the lists of tokens in their values.

use super::{HEADERS_INLINE, HEADERS_MAX};
use httparse::Header;
use std::fmt;

/// The headers of one head, in the order they came; borrowed from its bytes.
///
/// An inline array for nearly all heads: a thread parses one head at a time, and a million handshakes should not make a million heap
/// allocations.
#[derive(Clone)]
pub(super) struct Headers<'a> {
    pub(super) inline: [Header<'a>; HEADERS_INLINE],
    pub(super) count: usize,
    /// All headers, where the array is too short.
    pub(super) long: Vec<Header<'a>>,
}

impl<'a> Headers<'a> {
    pub(super) const EMPTY: Self = Self {
        inline: [httparse::EMPTY_HEADER; HEADERS_INLINE],
        count: 0,
        long: Vec::new(),
    };

    /// Parses with the array, and again with a longer list if the head has more headers and may have so many. `parse` answers what
    /// it found, and how many headers.
    pub(super) fn parse<T>(
        &mut self,
        headers_max: usize,
        parse: impl Fn(&mut [Header<'a>]) -> Result<(T, usize), httparse::Error>,
    ) -> Result<T, httparse::Error> {
        let inline_max = headers_max.min(HEADERS_INLINE);
        match parse(&mut self.inline[..inline_max]) {
            Err(httparse::Error::TooManyHeaders) if headers_max > inline_max => {
                self.long = vec![httparse::EMPTY_HEADER; headers_max.min(HEADERS_MAX)];
                let (parsed, count) = parse(&mut self.long)?;
                self.count = count;
                Ok(parsed)
            }
            parsed => {
                let (parsed, count) = parsed?;
                self.count = count;
                Ok(parsed)
            }
        }
    }

    fn all_lines(&self) -> &[Header<'a>] {
        let lines = match self.long.is_empty() {
            true => &self.inline[..],
            false => &self.long,
        };
        &lines[..self.count]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> + '_ {
        self.all_lines()
            .iter()
            .map(|header| (header.name, header.value))
    }

    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.iter()
            .filter(move |(candidate, _)| candidate.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    pub(super) fn first(&self, name: &str) -> Option<&'a [u8]> {
        self.all(name).next()
    }
}

impl fmt::Debug for Headers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(
                self.iter()
                    .map(|(name, value)| (name, String::from_utf8_lossy(value))),
            )
            .finish()
    }
}

/// Whether the bytes are a `token` (RFC 9110, section 5.6.2).
pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().copied().all(is_token_byte)
}

/// Whether the byte is a `tchar` (RFC 9110, section 5.6.2).
pub(super) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// The tokens of a comma-separated list (RFC 9110, section 5.6.1). Elements that are not tokens are skipped.
pub(crate) fn list_tokens(value: &[u8]) -> impl Iterator<Item = &str> {
    value
        .split(|byte| *byte == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|element| is_token(element))
        .filter_map(|element| str::from_utf8(element).ok())
}

/// Whether a comma-separated list has this token, in any case.
pub(crate) fn list_has_token(value: &[u8], token: &str) -> bool {
    list_tokens(value).any(|element| element.eq_ignore_ascii_case(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_split_at_commas_and_lose_their_space() {
        let tokens: Vec<_> = list_tokens(b" keep-alive,\tUpgrade , ,,x/y,z").collect();
        assert_eq!(tokens, ["keep-alive", "Upgrade", "z"]);
        assert!(list_has_token(b"keep-alive, UPGRADE", "upgrade"));
        assert!(!list_has_token(b"keep-alive, upgrades", "upgrade"));
        assert!(!list_has_token(b"", "upgrade"));
    }

    #[test]
    fn tokens_are_the_grammar_of_rfc_9110() {
        assert!(is_token(b"v10.stomp"));
        assert!(is_token(b"!#$%&'*+-.^_`|~09AZaz"));
        for bad in [&b""[..], b"a b", b"a\"b", b"a\rb", b"\xc3\xa9", b"a;b"] {
            assert!(!is_token(bad), "{bad:?}");
        }
    }
}
