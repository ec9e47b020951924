//! Headers in which proxies name the client: X-Forwarded-For, X-Real-IP, and Forwarded (RFC 7239).

use super::Networks;
use crate::http::RequestHead;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

/// The header in which proxies name the client.
///
/// One is chosen, and the others are not looked at. A proxy that writes one of them passes the others on as the client has sent
/// them, so a server that took whichever is there could be told anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressHeader {
    /// A list to which each proxy appends the address that it was reached from.
    #[default]
    XForwardedFor,
    /// One address.
    XRealIp,
    /// A list as that of X-Forwarded-For, in the form of RFC 7239.
    Forwarded,
}

/// Text that names no [`AddressHeader`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressHeaderError;

impl fmt::Display for AddressHeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("choose x-forwarded-for, x-real-ip or forwarded")
    }
}

impl std::error::Error for AddressHeaderError {}

impl AddressHeader {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::XForwardedFor, Self::XRealIp, Self::Forwarded];

    /// Its name, in lower case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::XForwardedFor => "x-forwarded-for",
            Self::XRealIp => "x-real-ip",
            Self::Forwarded => "forwarded",
        }
    }

    /// The address of one element of its list.
    fn address(self, element: &[u8]) -> Option<IpAddr> {
        match self {
            Self::XForwardedFor | Self::XRealIp => parse_node(element),
            Self::Forwarded => {
                let value = element.split(|byte| *byte == b';').find_map(for_value)?;
                let inner = value
                    .strip_prefix(b"\"")
                    .and_then(|rest| rest.strip_suffix(b"\""));
                parse_node(inner.unwrap_or(value))
            }
        }
    }
}

impl FromStr for AddressHeader {
    type Err = AddressHeaderError;

    fn from_str(text: &str) -> Result<Self, AddressHeaderError> {
        let named = |header: &Self| header.name().eq_ignore_ascii_case(text);
        Self::ALL.into_iter().find(named).ok_or(AddressHeaderError)
    }
}

/// The value of a `for=value` pair.
fn for_value(pair: &[u8]) -> Option<&[u8]> {
    let (name, value) = pair.trim_ascii().split_at_checked(4)?;
    name.eq_ignore_ascii_case(b"for=").then_some(value)
}

/// An address, perhaps with a port: `192.0.2.7`, `192.0.2.7:80`, `2001:db8::1`, `[2001:db8::1]:80`.
fn parse_node(node: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(node.trim_ascii()).ok()?;
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    let address = if let Some(literal) = text.strip_prefix('[') {
        let (address, rest) = literal.split_once(']')?;
        let known = rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port);
        IpAddr::V6(known.then_some(address)?.parse().ok()?)
    } else if let Ok(address) = text.parse() {
        address
    } else {
        let (address, port) = text.split_once(':')?;
        IpAddr::V4(is_port(port).then_some(address)?.parse::<Ipv4Addr>().ok()?)
    };
    Some(address.to_canonical())
}

/// The client's address in a request that a trusted proxy has passed on: the right-most one of the list that is not a trusted
/// proxy's. If all are, the left-most.
///
/// None if there is no such header, or if the first address that counts is hidden or malformed: what is to the left of it may
/// be the client's invention.
#[must_use]
pub fn forwarded_address(
    head: &RequestHead<'_>,
    header: AddressHeader,
    trusted: &Networks,
) -> Option<IpAddr> {
    let lines: Vec<&[u8]> = head.headers(header.name()).collect();
    if header == AddressHeader::XRealIp {
        return header.address(lines.last()?);
    }
    let mut client = None;
    // A comma inside of quotes separates here too. A proxy that appends to the list knows nothing of quotes that a client has
    // left open, so what follows them must not be taken for a part of them.
    let elements = lines
        .iter()
        .rev()
        .flat_map(|line| line.rsplit(|byte| *byte == b','))
        // An empty element of a list is none (RFC 9110, section 5.6.1.2).
        .filter(|element| !element.trim_ascii().is_empty());
    for element in elements {
        let address = header.address(element)?;
        client = Some(address);
        if !trusted.contains(address) {
            break;
        }
    }
    client
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{HeadLimits, parse_request};

    fn address(header: AddressHeader, lines: &[&str]) -> Option<String> {
        let trusted: Networks = ["10.0.0.0/8", "fd00::/8"]
            .iter()
            .map(|text| text.parse().expect("a network"))
            .collect();
        let mut head = "GET / HTTP/1.1\r\nHost: a\r\n".to_owned();
        for line in lines {
            head.push_str(&format!("{}: {line}\r\n", header.name().to_uppercase()));
        }
        head.push_str("\r\n");
        let head = parse_request(head.as_bytes(), HeadLimits::default())
            .expect("well-formed")
            .expect("whole");
        forwarded_address(&head, header, &trusted).map(|address| address.to_string())
    }

    fn check(header: AddressHeader, cases: &[(&[&str], Option<&str>)]) {
        for (lines, expected) in cases {
            assert_eq!(address(header, lines).as_deref(), *expected, "{lines:?}");
        }
    }

    #[test]
    fn the_right_most_address_that_is_no_proxys_is_the_clients() {
        check(
            AddressHeader::XForwardedFor,
            &[
                (&[], None),
                (&["192.0.2.1"], Some("192.0.2.1")),
                // What a client has written itself is to the left.
                (&["198.51.100.9, 192.0.2.1"], Some("192.0.2.1")),
                (
                    &["10.9.9.9, 192.0.2.1, 10.0.0.1 ,10.0.0.2"],
                    Some("192.0.2.1"),
                ),
                (
                    &["198.51.100.9", "192.0.2.1", "10.0.0.1"],
                    Some("192.0.2.1"),
                ),
                (&["10.0.0.3, 10.0.0.1"], Some("10.0.0.3")),
                (&["::ffff:192.0.2.1, ::ffff:10.0.0.1"], Some("192.0.2.1")),
                (&["[2001:db8::1]:443, fd00::1"], Some("2001:db8::1")),
                (&["192.0.2.1,"], Some("192.0.2.1")),
                (&[", 192.0.2.1,, 10.0.0.1 , "], Some("192.0.2.1")),
                (&["192.0.2.1", ""], Some("192.0.2.1")),
                (&["192.0.2.1:8080"], Some("192.0.2.1")),
                (&["2001:db8::1"], Some("2001:db8::1")),
            ],
        );
    }

    #[test]
    fn nothing_to_the_left_of_what_cannot_be_read_counts() {
        check(
            AddressHeader::XForwardedFor,
            &[
                (&["192.0.2.1, unknown"], None),
                (&["192.0.2.1, unknown, 10.0.0.1"], None),
                (&[""], None),
                (&[" , ,"], None),
                (&["192.0.2.1:port"], None),
                (&["[2001:db8::1"], None),
                (&["[192.0.2.1]"], None),
                (&["192.0.2.1:80:90"], None),
            ],
        );
    }

    #[test]
    fn forwarded_has_pairs() {
        check(
            AddressHeader::Forwarded,
            &[
                (&["for=192.0.2.1"], Some("192.0.2.1")),
                (
                    &["proto=https; For=\"[2001:db8::1]:4711\";by=10.0.0.1"],
                    Some("2001:db8::1"),
                ),
                (
                    &["for=198.51.100.9, for=192.0.2.1;proto=http, for=10.0.0.1"],
                    Some("192.0.2.1"),
                ),
                (&["for=_hidden"], None),
                (&["by=192.0.2.1"], None),
                // Quotes that a client has left open hide nothing.
                (&["for=\"198.51.100.9, for=192.0.2.1"], Some("192.0.2.1")),
            ],
        );
    }

    #[test]
    fn the_last_real_ip_counts() {
        check(
            AddressHeader::XRealIp,
            &[
                (&["192.0.2.1"], Some("192.0.2.1")),
                (&["198.51.100.9", "192.0.2.1"], Some("192.0.2.1")),
                (&["10.0.0.1"], Some("10.0.0.1")),
                (&["192.0.2.1, 10.0.0.1"], None),
            ],
        );
    }

    #[test]
    fn headers_are_chosen_by_name() {
        for header in AddressHeader::ALL {
            assert_eq!(header.name().to_uppercase().parse(), Ok(header));
        }
        assert_eq!("via".parse::<AddressHeader>(), Err(AddressHeaderError));
    }
}
