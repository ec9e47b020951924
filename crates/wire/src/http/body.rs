//! Where the body of a request ends.

use super::RequestHead;

/// How long a request's body is, as its head says (RFC 9112, section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// So many bytes; 0 when there is no body.
    Bytes(u64),
    /// Up to the end of the last chunk's trailers: see [`super::ChunkedBody`].
    Chunked,
}

impl BodyLength {
    /// Reads it from the head; `None` where the head announces no length that can be read in one way only.
    #[must_use]
    pub fn of(head: &RequestHead<'_>) -> Option<Self> {
        let mut lengths = head.headers("content-length");
        let mut codings = head.headers("transfer-encoding");
        match (codings.next(), lengths.next()) {
            (None, None) => Some(Self::Bytes(0)),
            // Even a list of equal numbers is refused: not all readers agree on it.
            (None, Some(length)) if lengths.next().is_none() => decimal(length).map(Self::Bytes),
            (Some(coding), None)
                if coding.eq_ignore_ascii_case(b"chunked")
                    && codings.next().is_none()
                    && head.minor_version() > 0 =>
            {
                Some(Self::Chunked)
            }
            _ => None,
        }
    }
}

/// The longest body whose length all readers agree on: some keep lengths in 64 bits with a sign.
pub(super) const LENGTH_MAX: u64 = i64::MAX.unsigned_abs();

/// One digit or more and nothing else: `str::parse` would take a sign.
pub(super) fn decimal(digits: &[u8]) -> Option<u64> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let length = str::from_utf8(digits).ok()?.parse().ok()?;
    (length <= LENGTH_MAX).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::super::{HeadLimits, parse_request};
    use super::*;

    fn length(version: &str, headers: &str) -> Option<BodyLength> {
        let head = format!("POST / HTTP/{version}\r\nHost: a\r\n{headers}\r\n");
        let head = parse_request(head.as_bytes(), HeadLimits::default());
        BodyLength::of(&head.expect("a head").expect("a whole head"))
    }

    #[test]
    fn a_body_has_one_length() {
        assert_eq!(length("1.1", ""), Some(BodyLength::Bytes(0)));
        for (headers, expected) in [
            ("Content-Length: 012\r\n", BodyLength::Bytes(12)),
            ("Transfer-Encoding: Chunked\r\n", BodyLength::Chunked),
        ] {
            assert_eq!(length("1.1", headers), Some(expected));
        }
        for headers in [
            "Content-Length:\r\n",
            "Content-Length: +1\r\n",
            "Content-Length: -1\r\n",
            "Content-Length: 0x1\r\n",
            "Content-Length: 1,1\r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Content-Length: 9223372036854775808\r\n",
            "Content-Length: 1\r\nContent-Length: 1\r\n",
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: chunked, chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding:\r\n",
        ] {
            assert_eq!(length("1.1", headers), None, "{headers}");
        }
        assert_eq!(length("1.0", "Transfer-Encoding: chunked\r\n"), None);
    }
}
