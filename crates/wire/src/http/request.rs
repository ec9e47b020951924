//! What every request must fulfil beyond the grammar of its head, whatever it asks for.
//!
//! A proxy in front and this server must agree on where a request ends and which host it names; where they can
//! disagree, a stranger can smuggle one request inside another. So a request that two readers may read differently is
//! refused, even where RFC 9112 lets a server repair it.

use super::RequestHead;
use std::fmt;

/// Where a request's body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// After so many bytes; 0 when there is no body.
    Bytes(u64),
    /// After the last chunk and its trailers: see [`super::ChunkedBody`].
    Chunked,
}

/// A request that must be refused although its head could be read. Always the client's doing, or a proxy's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestFault {
    /// A line ends in LF without CR (RFC 9112, section 2.2).
    BareLineFeed,
    /// The target has a fragment, which is never sent (RFC 9112, section 3.2).
    Fragment,
    /// No Host header, several, or one that names no host (RFC 9112, section 3.2).
    Host,
    /// Content-Length is repeated or no number (RFC 9112, section 6.3).
    ContentLength,
    /// A transfer coding other than a single `chunked` (RFC 9112, section 6.1).
    TransferCoding,
    /// Both Content-Length and Transfer-Encoding (RFC 9112, section 6.3).
    TwoLengths,
}

impl RequestFault {
    /// Every fault there is, for metrics that list their labels beforehand.
    pub const ALL: [Self; 6] = [
        Self::BareLineFeed,
        Self::Fragment,
        Self::Host,
        Self::ContentLength,
        Self::TransferCoding,
        Self::TwoLengths,
    ];

    /// The status to answer with.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            // RFC 9112, section 6.1, asks for it where the coding is unknown.
            Self::TransferCoding => 501,
            _ => 400,
        }
    }

    /// What was wrong and what to do about it, for the body of the answer.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::BareLineFeed => "A line ends in a line feed alone: end lines with CR LF.",
            Self::Fragment => {
                "The request target contains a fragment: send the target without # and what follows."
            }
            Self::Host => {
                "The request needs exactly one valid Host header: send the name and port of this server."
            }
            Self::ContentLength => {
                "Content-Length is repeated or not a number: send it once, in decimal digits."
            }
            Self::TransferCoding => {
                "The transfer coding is not supported: send Transfer-Encoding: chunked over HTTP/1.1, or Content-Length."
            }
            Self::TwoLengths => {
                "The request has both Content-Length and Transfer-Encoding: send only one of them."
            }
        }
    }

    /// The value of the `reason` label of metrics.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::BareLineFeed => "bare_line_feed",
            Self::Fragment => "fragment",
            Self::Host => "host",
            Self::ContentLength => "content_length",
            Self::TransferCoding => "transfer_coding",
            Self::TwoLengths => "two_lengths",
        }
    }
}

impl fmt::Display for RequestFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

impl std::error::Error for RequestFault {}

/// Checks what holds for every request, and says where its body ends.
///
/// # Errors
/// The first requirement that the request does not fulfil.
pub fn check_request(head: &RequestHead<'_>) -> Result<BodyLength, RequestFault> {
    if has_bare_line_feed(head.bytes()) {
        return Err(RequestFault::BareLineFeed);
    }
    if head.target().contains('#') {
        return Err(RequestFault::Fragment);
    }
    check_host(head)?;
    body_length(head)
}

fn has_bare_line_feed(head: &[u8]) -> bool {
    let mut before = 0;
    head.iter().any(|&byte| {
        let is_bare = byte == b'\n' && before != b'\r';
        before = byte;
        is_bare
    })
}

/// HTTP/1.0 has no Host header, and load balancers probe without one.
fn check_host(head: &RequestHead<'_>) -> Result<(), RequestFault> {
    let mut hosts = head.headers("host");
    match (hosts.next(), hosts.next()) {
        (None, _) if head.minor_version() == 0 => Ok(()),
        (Some(host), None) if is_host(host) => Ok(()),
        _ => Err(RequestFault::Host),
    }
}

/// `uri-host [ ":" port ]` (RFC 9110, section 7.2). An empty host is valid: it stands for a target without one.
fn is_host(value: &[u8]) -> bool {
    let (host, port) = match value.strip_prefix(b"[") {
        Some(rest) => {
            let Some(end) = rest.iter().position(|byte| *byte == b']') else {
                return false;
            };
            if !is_ip_literal(&rest[..end]) {
                return false;
            }
            (&b""[..], &rest[end + 1..])
        }
        None => {
            let end = value.iter().position(|byte| *byte == b':');
            value.split_at(end.unwrap_or(value.len()))
        }
    };
    is_registered_name(host) && (port.is_empty() || is_port(&port[1..]) && port[0] == b':')
}

/// What is between the brackets of an IPv6 address (RFC 3986, section 3.2.2). Zones and future versions are for links
/// and for the future.
fn is_ip_literal(bytes: &[u8]) -> bool {
    str::from_utf8(bytes).is_ok_and(|text| text.parse::<std::net::Ipv6Addr>().is_ok())
}

/// `reg-name`, which an IPv4 address is as well (RFC 3986, section 3.2.2).
fn is_registered_name(mut bytes: &[u8]) -> bool {
    while let Some((&first, rest)) = bytes.split_first() {
        bytes = match first {
            b'%' => match rest {
                [high, low, rest @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                    rest
                }
                _ => return false,
            },
            _ if first.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&first) => rest,
            _ => return false,
        };
    }
    true
}

/// `*DIGIT` (RFC 3986, section 3.2.3) that is a port.
fn is_port(digits: &[u8]) -> bool {
    digits.is_empty() || decimal(digits).is_some_and(|port| port <= u64::from(u16::MAX))
}

fn body_length(head: &RequestHead<'_>) -> Result<BodyLength, RequestFault> {
    let mut lengths = head.headers("content-length");
    let mut codings = head.headers("transfer-encoding");
    match (codings.next(), lengths.next()) {
        (None, None) => Ok(BodyLength::Bytes(0)),
        // Even a list of equal numbers is refused: not all readers agree on it.
        (None, Some(length)) if lengths.next().is_none() => decimal(length)
            .map(BodyLength::Bytes)
            .ok_or(RequestFault::ContentLength),
        (None, Some(_)) => Err(RequestFault::ContentLength),
        (Some(_), Some(_)) => Err(RequestFault::TwoLengths),
        (Some(coding), None)
            if coding.eq_ignore_ascii_case(b"chunked")
                && codings.next().is_none()
                && head.minor_version() > 0 =>
        {
            Ok(BodyLength::Chunked)
        }
        (Some(_), None) => Err(RequestFault::TransferCoding),
    }
}

/// One digit or more and nothing else: `str::parse` would take a sign.
fn decimal(digits: &[u8]) -> Option<u64> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::{HeadLimits, parse_request};
    use super::*;

    fn check(head: &str) -> Result<BodyLength, RequestFault> {
        let head = parse_request(head.as_bytes(), HeadLimits::default());
        check_request(&head.expect("a head").expect("a whole head"))
    }

    fn with(headers: &str) -> Result<BodyLength, RequestFault> {
        check(&format!("POST / HTTP/1.1\r\nHost: a\r\n{headers}\r\n"))
    }

    #[test]
    fn a_request_names_exactly_one_valid_host() {
        let host = |value: &str| check(&format!("GET / HTTP/1.1\r\nHost: {value}\r\n\r\n"));
        for value in [
            "",
            "a",
            "a.b-c_d",
            "a:80",
            "a:",
            "127.0.0.1:65535",
            "[::1]",
            "[::1]:80",
            "%41",
            "a!$&'()*+,;=~",
        ] {
            assert_eq!(host(value), Ok(BodyLength::Bytes(0)), "{value}");
        }
        for value in [
            "a b", "a/b", "a:65536", "a:-1", "a:+1", "a:b", "a:1:2", "user@a", "[::1", "[::1]80",
            "[a]", "[]", "::1", "%4", "%4g", "a?b", "a#b", "\u{e9}", "http://a", "\"a\"", "a\\b",
        ] {
            assert_eq!(host(value), Err(RequestFault::Host), "{value}");
        }
        for head in [
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n",
            "GET / HTTP/1.0\r\nHost: a b\r\n\r\n",
        ] {
            assert_eq!(check(head), Err(RequestFault::Host), "{head:?}");
        }
        assert!(check("GET / HTTP/1.0\r\n\r\n").is_ok());
    }

    #[test]
    fn lines_end_with_both_bytes_and_targets_have_no_fragment() {
        for head in [
            "GET / HTTP/1.1\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n\n",
            "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        ] {
            assert_eq!(check(head), Err(RequestFault::BareLineFeed), "{head:?}");
        }
        // An empty line before a request is to be ignored (RFC 9112, section 2.2).
        assert!(check("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n").is_ok());
        for target in ["/a#b", "/#", "http://a/#b", "/a?b#c"] {
            let head = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(check(&head), Err(RequestFault::Fragment), "{target}");
        }
    }

    #[test]
    fn a_body_has_one_length() {
        assert_eq!(with(""), Ok(BodyLength::Bytes(0)));
        assert_eq!(with("Content-Length: 012\r\n"), Ok(BodyLength::Bytes(12)));
        assert_eq!(
            with("Transfer-Encoding: Chunked\r\n"),
            Ok(BodyLength::Chunked)
        );
        for value in ["", "+1", "-1", "0x1", "1,1", "99999999999999999999"] {
            let length = format!("Content-Length: {value}\r\n");
            assert_eq!(with(&length), Err(RequestFault::ContentLength), "{value:?}");
        }
        let twice = "Content-Length: 1\r\nContent-Length: 1\r\n";
        assert_eq!(with(twice), Err(RequestFault::ContentLength));
        let both = "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n";
        assert_eq!(with(both), Err(RequestFault::TwoLengths));
        for codings in [
            "Transfer-Encoding: gzip\r\n",
            "Transfer-Encoding: identity\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: chunked, chunked\r\n",
            "Transfer-Encoding: chunked,\r\n",
            "Transfer-Encoding: chunked;a=b\r\n",
            "Transfer-Encoding:\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        ] {
            assert_eq!(
                with(codings),
                Err(RequestFault::TransferCoding),
                "{codings}"
            );
        }
        let old = "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(check(old), Err(RequestFault::TransferCoding));
    }

    #[test]
    fn every_fault_says_what_to_send() {
        for fault in RequestFault::ALL {
            assert!(matches!(fault.status(), 400 | 501));
            assert!(fault.sentence().contains(": ") && fault.sentence().ends_with('.'));
            assert!(!fault.label().is_empty());
        }
    }
}
