//! The header of the PROXY protocol, versions 1 and 2, which a proxy sends before everything else of a connection.
//!
//! <https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of a header. Version 1 has 107 at most; version 2 has 16, addresses of 36 at most, and what a proxy adds to them.
pub const PROXY_HEADER_BYTES_MAX: usize = 4096;

/// The first bytes of version 1.
const V1_START: &[u8] = b"PROXY ";
/// Bytes of version 1, with the end of its line.
const V1_BYTES_MAX: usize = 107;
/// The first bytes of version 2.
const V2_START: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes of version 2 before its addresses.
const V2_FIXED_BYTES: usize = 16;
/// Bytes of two addresses and two ports.
const IPV4_BYTES: usize = 12;
const IPV6_BYTES: usize = 36;

/// A whole header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyHeader {
    /// The client's address. None if the proxy speaks for itself, as it does to check our health, or does not know.
    pub source: Option<IpAddr>,
    /// Bytes of the header. What follows is the client's.
    pub bytes: usize,
}

/// Bytes that are no header that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyHeaderError {
    /// Something else than a header.
    Missing,
    /// A header that breaks its grammar.
    Malformed,
    /// A header of more than [`PROXY_HEADER_BYTES_MAX`] bytes.
    TooLong,
}

impl ProxyHeaderError {
    /// The status to answer with.
    #[must_use]
    pub fn status(self) -> u16 {
        400
    }

    /// What was wrong and what to do about it.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Missing => {
                "The connection came from a proxy without a PROXY header: let the proxy send one, or turn proxy-protocol off."
            }
            Self::Malformed => {
                "The PROXY header is malformed: send version 1 or 2 of the PROXY protocol for TCP."
            }
            Self::TooLong => "The PROXY header is too long: send fewer additional fields.",
        }
    }

    /// The value of the `reason` label of metrics.
    #[must_use]
    pub fn label(self) -> &'static str {
        "proxy_protocol"
    }
}

impl fmt::Display for ProxyHeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

impl std::error::Error for ProxyHeaderError {}

/// Reads a header from the front of `bytes`. `None` while it is incomplete.
///
/// Call it again with the same bytes and more. An error is final.
///
/// # Errors
/// The bytes begin with no header, or with one that cannot be used.
pub fn parse_proxy_header(bytes: &[u8]) -> Result<Option<ProxyHeader>, ProxyHeaderError> {
    if bytes.first() == V2_START.first() {
        return parse_v2(bytes);
    }
    let known = bytes.len().min(V1_START.len());
    if bytes[..known] != V1_START[..known] {
        return Err(ProxyHeaderError::Missing);
    }
    let line_max = &bytes[..bytes.len().min(V1_BYTES_MAX)];
    match line_max.iter().position(|byte| *byte == b'\n') {
        Some(end) => parse_v1(&bytes[..=end]).map(Some),
        None if bytes.len() < V1_BYTES_MAX => Ok(None),
        None => Err(ProxyHeaderError::Malformed),
    }
}

/// Reads a line such as `PROXY TCP4 192.0.2.1 192.0.2.2 56324 443`.
fn parse_v1(line: &[u8]) -> Result<ProxyHeader, ProxyHeaderError> {
    let read = || {
        let text = line.strip_prefix(V1_START)?.strip_suffix(b"\r\n")?;
        let text = str::from_utf8(text).ok().filter(|text| text.is_ascii())?;
        let mut words = text.split(' ');
        let family = words.next()?;
        if family == "UNKNOWN" {
            // The rest of the line may be anything.
            return Some(None);
        }
        let mut address = || -> Option<IpAddr> {
            let word = words.next()?;
            match family {
                "TCP4" => Some(IpAddr::V4(word.parse().ok()?)),
                "TCP6" => Some(IpAddr::V6(word.parse().ok()?)),
                _ => None,
            }
        };
        let (source, _target) = (address()?, address()?);
        let (source_port, target_port) = (words.next()?, words.next()?);
        let is_whole = is_port(source_port) && is_port(target_port) && words.next().is_none();
        is_whole.then_some(Some(source.to_canonical()))
    };
    let source = read().ok_or(ProxyHeaderError::Malformed)?;
    Ok(ProxyHeader {
        source,
        bytes: line.len(),
    })
}

/// Digits of 0 to 65535, without zeros before them.
fn is_port(word: &str) -> bool {
    let has_digits = word.bytes().all(|byte| byte.is_ascii_digit());
    has_digits && (word == "0" || !word.starts_with('0')) && word.parse::<u16>().is_ok()
}

fn parse_v2(bytes: &[u8]) -> Result<Option<ProxyHeader>, ProxyHeaderError> {
    let known = bytes.len().min(V2_START.len());
    if bytes[..known] != V2_START[..known] {
        return Err(ProxyHeaderError::Missing);
    }
    let fixed = bytes.get(V2_START.len()..).unwrap_or_default();
    let is_local = match fixed.first() {
        None => return Ok(None),
        Some(0x20) => true,
        Some(0x21) => false,
        Some(_) => return Err(ProxyHeaderError::Malformed),
    };
    let Some(&[_, family, high, low]) = fixed.first_chunk() else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    let end = V2_FIXED_BYTES + length;
    if end > PROXY_HEADER_BYTES_MAX {
        return Err(ProxyHeaderError::TooLong);
    }
    let addresses_bytes = match (is_local, family) {
        // Whatever family it names has no meaning.
        (true, _) => 0,
        (false, 0x11) => IPV4_BYTES,
        (false, 0x21) => IPV6_BYTES,
        // The proxy does not know, or its client came over a Unix socket.
        (false, 0x00 | 0x31) => 0,
        (false, _) => return Err(ProxyHeaderError::Malformed),
    };
    if length < addresses_bytes {
        return Err(ProxyHeaderError::Malformed);
    }
    let Some(header) = bytes.get(..end) else {
        return Ok(None);
    };
    let addresses = &header[V2_FIXED_BYTES..][..addresses_bytes];
    let source = match addresses_bytes {
        IPV4_BYTES => addresses
            .first_chunk()
            .map(|&octets: &[u8; 4]| Ipv4Addr::from(octets).into()),
        IPV6_BYTES => addresses
            .first_chunk()
            .map(|&octets: &[u8; 16]| Ipv6Addr::from(octets).into()),
        _ => None,
    };
    Ok(Some(ProxyHeader {
        source: source.map(|source: IpAddr| source.to_canonical()),
        bytes: end,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzzing::proxy_header;
    use proptest::prelude::*;

    fn v2(version_and_command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).expect("short").to_be_bytes();
        [V2_START, &[version_and_command, family][..], &length, rest].concat()
    }

    fn source(bytes: &[u8]) -> Result<Option<String>, ProxyHeaderError> {
        let with_more = [bytes, b"GET / HTTP/1.1\r\n"].concat();
        // Every cut, and the same verdict however much follows.
        proxy_header(&with_more);
        let header = parse_proxy_header(&with_more)?.expect("whole");
        assert_eq!(header.bytes, bytes.len());
        Ok(header.source.map(|address| address.to_string()))
    }

    #[test]
    fn lines_of_version_1() {
        for (line, address) in [
            (
                "PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n",
                Some("192.0.2.1"),
            ),
            (
                "PROXY TCP6 2001:db8::1 ::1 1 65535\r\n",
                Some("2001:db8::1"),
            ),
            ("PROXY TCP6 ::ffff:192.0.2.1 ::1 0 0\r\n", Some("192.0.2.1")),
            ("PROXY UNKNOWN\r\n", None),
            ("PROXY UNKNOWN anything at all\r\n", None),
        ] {
            assert_eq!(
                source(line.as_bytes()),
                Ok(address.map(Into::into)),
                "{line}"
            );
        }
    }

    #[test]
    fn what_is_no_line_of_version_1() {
        for line in [
            "PROXY TCP4 192.0.2.1 192.0.2.2 56324\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 56324 443 \r\n",
            "PROXY  TCP4 192.0.2.1 192.0.2.2 56324 443\r\n",
            "PROXY TCP4 2001:db8::1 ::1 56324 443\r\n",
            "PROXY TCP4 192.0.2.256 192.0.2.2 56324 443\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 056324 443\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 56324 65536\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 +6324 443\r\n",
            "PROXY UDP4 192.0.2.1 192.0.2.2 56324 443\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\n",
            "PROXY \r\n",
            "PROXY UNKNOWN \u{e9}\r\n",
        ] {
            assert_eq!(
                source(line.as_bytes()),
                Err(ProxyHeaderError::Malformed),
                "{line}"
            );
        }
        let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(100));
        assert_eq!(source(long.as_bytes()), Err(ProxyHeaderError::Malformed));
        for other in ["GET / HTTP/1.1\r\n", "PROXI", "proxy TCP4", "\r\n\r\nGET"] {
            assert_eq!(
                source(other.as_bytes()),
                Err(ProxyHeaderError::Missing),
                "{other}"
            );
        }
    }

    #[test]
    fn blocks_of_version_2() {
        let ipv4 = [192, 0, 2, 1, 192, 0, 2, 2, 0xdc, 4, 1, 0xbb];
        let mut ipv6 = [0; 36];
        ipv6[..2].copy_from_slice(&[0x20, 1]);
        ipv6[15] = 9;
        let with_field = [&ipv4[..], &[0x03, 0, 4, 1, 2, 3, 4]].concat();
        for (bytes, address) in [
            (v2(0x21, 0x11, &ipv4), Some("192.0.2.1")),
            (v2(0x21, 0x11, &with_field), Some("192.0.2.1")),
            (v2(0x21, 0x21, &ipv6), Some("2001::9")),
            (v2(0x20, 0x00, &[]), None),
            (v2(0x20, 0x11, &ipv4), None),
            (v2(0x21, 0x00, &[]), None),
            (v2(0x21, 0x31, &[0; 216]), None),
        ] {
            assert_eq!(source(&bytes), Ok(address.map(Into::into)), "{bytes:?}");
        }
        for (bytes, error) in [
            (v2(0x11, 0x11, &ipv4), ProxyHeaderError::Malformed),
            (v2(0x22, 0x11, &ipv4), ProxyHeaderError::Malformed),
            (v2(0x21, 0x12, &ipv4), ProxyHeaderError::Malformed),
            (v2(0x21, 0x11, &ipv4[..11]), ProxyHeaderError::Malformed),
            (v2(0x21, 0x21, &ipv4), ProxyHeaderError::Malformed),
            (v2(0x21, 0x11, &[0; 5000]), ProxyHeaderError::TooLong),
        ] {
            assert_eq!(source(&bytes), Err(error), "{bytes:?}");
        }
    }

    #[test]
    fn nothing_is_no_verdict() {
        assert_eq!(parse_proxy_header(b""), Ok(None));
    }

    proptest! {
        #[test]
        fn what_a_proxy_writes_is_read(source: [u8; 4], target: [u8; 4], ports: (u16, u16), fields in prop::collection::vec(any::<u8>(), 0..200), rest in prop::collection::vec(any::<u8>(), 0..40)) {
            let expected = Some(IpAddr::from(source));
            let line = format!("PROXY TCP4 {} {} {} {}\r\n", Ipv4Addr::from(source), Ipv4Addr::from(target), ports.0, ports.1);
            let addresses = [&source[..], &target, &ports.0.to_be_bytes(), &ports.1.to_be_bytes(), &fields].concat();
            for header in [line.into_bytes(), v2(0x21, 0x11, &addresses)] {
                let bytes = [&header[..], &rest].concat();
                proxy_header(&bytes);
                prop_assert_eq!(parse_proxy_header(&bytes), Ok(Some(ProxyHeader { source: expected, bytes: header.len() })));
                for cut in 0..header.len() {
                    prop_assert_eq!(parse_proxy_header(&bytes[..cut]), Ok(None), "cut at {}", cut);
                }
            }
        }

        #[test]
        fn any_bytes_keep_the_properties(start in 0_usize..3, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let start: &[u8] = [&b""[..], V1_START, V2_START][start];
            proxy_header(&[start, &bytes].concat());
        }
    }
}
