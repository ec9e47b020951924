//! The Host header and other names of hosts (RFC 9110, section 7.2; RFC 3986, section 3.2).

use std::net::{Ipv4Addr, Ipv6Addr};

/// A host and its port, as a Host header or an origin has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host<'a> {
    name: &'a str,
    port: Option<u16>,
}

impl<'a> Host<'a> {
    /// Reads `host` or `host:port`; `None` if the value is neither.
    ///
    /// An empty host is valid: a client sends it when its target has no authority (RFC 9112, section 3.2). The zone of
    /// an IPv6 address is not, because it means nothing outside of the client's machine.
    #[must_use]
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let text = str::from_utf8(value).ok()?;
        let name_end = match text.strip_prefix('[') {
            Some(literal) => literal.find(']')? + 2,
            None => text.find(':').unwrap_or(text.len()),
        };
        let (name, rest) = text.split_at(name_end);
        let port = match rest.strip_prefix(':') {
            // A colon without a port means the default port.
            Some("") => None,
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                Some(digits.parse().ok()?)
            }
            Some(_) => return None,
            None if rest.is_empty() => None,
            None => return None,
        };
        is_host(name).then_some(Self { name, port })
    }

    /// The host as written, an IPv6 address in its brackets.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// The port, when one is written.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// True for `localhost`, names that end in `.localhost`, and addresses of the loopback interface.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        let name = without_root_dot(self.name);
        let labels_end = name.len().saturating_sub("localhost".len());
        if let (Some(before), Some(last)) = (name.get(..labels_end), name.get(labels_end..))
            && last.eq_ignore_ascii_case("localhost")
        {
            return before.is_empty() || before.ends_with('.');
        }
        if let Some(address) = ipv6(name) {
            return address.is_loopback()
                || address
                    .to_ipv4_mapped()
                    .is_some_and(|address| address.is_loopback());
        }
        name.parse::<Ipv4Addr>()
            .is_ok_and(|address| address.is_loopback())
    }

    /// True for an address instead of a name. Nobody can make it resolve to another machine.
    #[must_use]
    pub fn is_address(&self) -> bool {
        ipv6(self.name).is_some() || self.name.parse::<Ipv4Addr>().is_ok()
    }

    /// True when both name the same host; ports are not compared.
    #[must_use]
    pub fn is_same_host(&self, other: &Self) -> bool {
        match (ipv6(self.name), ipv6(other.name)) {
            (Some(one), Some(two)) => one == two,
            (None, None) => {
                let (one, two) = (without_root_dot(self.name), without_root_dot(other.name));
                !one.is_empty() && one.eq_ignore_ascii_case(two)
            }
            _ => false,
        }
    }
}

/// `example.com.` is the same host as `example.com`.
pub(super) fn without_root_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

fn ipv6(name: &str) -> Option<Ipv6Addr> {
    name.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}

/// `host` of RFC 3986, section 3.2.2.
fn is_host(name: &str) -> bool {
    if let Some(literal) = name.strip_prefix('[') {
        return literal.strip_suffix(']').is_some_and(is_ip_literal);
    }
    let mut pieces = name.split('%');
    // In front of the first `%` nothing is escaped; each later piece begins with two digits.
    let first = pieces.next().unwrap_or_default();
    let is_escaped = |piece: &str| {
        let split = piece.split_at_checked(2);
        split.is_some_and(|(digits, rest)| {
            digits.bytes().all(|digit| digit.is_ascii_hexdigit()) && is_plain(rest)
        })
    };
    is_plain(first) && pieces.all(is_escaped)
}

fn is_plain(text: &str) -> bool {
    text.bytes().all(is_unreserved_or_delimiter)
}

/// The part between the brackets: an IPv6 address, or an address of a future version.
fn is_ip_literal(literal: &str) -> bool {
    if literal.parse::<Ipv6Addr>().is_ok() {
        return true;
    }
    let future = literal
        .strip_prefix(['v', 'V'])
        .and_then(|rest| rest.split_once('.'));
    future.is_some_and(|(version, address)| {
        !version.is_empty()
            && version.bytes().all(|digit| digit.is_ascii_hexdigit())
            && !address.is_empty()
            && address
                .bytes()
                .all(|byte| byte == b':' || is_unreserved_or_delimiter(byte))
    })
}

/// `unreserved` and `sub-delims` of RFC 3986, sections 2.2 and 2.3.
fn is_unreserved_or_delimiter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_the_grammar_of_rfc_3986() {
        let good = [
            ("", "", None),
            (":80", "", Some(80)),
            ("example.com", "example.com", None),
            ("example.com:", "example.com", None),
            ("Example.com:8000", "Example.com", Some(8000)),
            ("under_score.local", "under_score.local", None),
            ("127.0.0.1:65535", "127.0.0.1", Some(65535)),
            ("[::1]", "[::1]", None),
            ("[::ffff:1.2.3.4]:443", "[::ffff:1.2.3.4]", Some(443)),
            ("[v1.fe80::a+en1]", "[v1.fe80::a+en1]", None),
            ("a%C3%A9", "a%C3%A9", None),
        ];
        for (text, name, port) in good {
            let host = Host::parse(text.as_bytes());
            assert_eq!(host, Some(Host { name, port }), "{text}");
        }
        let bad = [
            "a b",
            "a/b",
            "a@b",
            "a#b",
            "a?b",
            "a:b",
            "a:80:80",
            "a:-1",
            "a:+1",
            "a:65536",
            "a,b c",
            "::1",
            "[::1",
            "::1]",
            "[::1]x",
            "[]",
            "[1.2.3.4]",
            "[::1%25lo]",
            "[v.x]",
            "[vx.y]",
            "[v1.]",
            "a%",
            "a%4",
            "a%4g",
            "http://a",
            "a\\b",
            "\"a\"",
            "é",
        ];
        for text in bad {
            assert_eq!(Host::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(Host::parse(b"a\xff"), None);
    }

    #[test]
    fn loopback_has_names_and_addresses() {
        let is = |text: &str| Host::parse(text.as_bytes()).unwrap().is_loopback();
        for text in [
            "localhost",
            "LocalHost:3000",
            "localhost.",
            "app.localhost",
            "127.0.0.1:8000",
            "127.9.9.9",
            "[::1]:1",
            "[::ffff:127.0.0.1]",
        ] {
            assert!(is(text), "{text}");
        }
        for text in [
            "",
            "notlocalhost",
            "localhost.example.com",
            "128.0.0.1",
            "127.0.0.1.example.com",
            "[::2]",
            "0.0.0.0",
        ] {
            assert!(!is(text), "{text}");
        }
    }

    #[test]
    fn the_same_host_has_several_spellings() {
        let same = |one: &str, two: &str| {
            let host = |text| Host::parse(str::as_bytes(text)).unwrap();
            host(one).is_same_host(&host(two))
        };
        assert!(same("example.com:3000", "EXAMPLE.com.:8000"));
        assert!(same("[0:0::1]:1", "[::1]"));
        assert!(!same("example.com", "www.example.com"));
        assert!(!same("[::1]", "127.0.0.1"));
        assert!(!same("", ""));
    }
}
