//! Addresses to listen on, as people write them.

use serde::de::{Unexpected, Visitor};
use serde::{Deserializer, de};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use thiserror::Error;

/// Text that is no address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum AddressError {
    #[error("the port is missing; write ADDRESS:PORT, such as 127.0.0.1:8000")]
    NoPort,
    #[error("the port must be a number from 0 to 65535")]
    Port,
    #[error("write an IPv6 address in brackets, such as [::1]:8000")]
    Brackets,
    #[error(
        "the host must be an IP address, localhost, or empty for every address of the machine; write such as 127.0.0.1:8000 or :8000"
    )]
    Host,
}

/// Reads `ADDRESS:PORT`. A port alone is on loopback, where the default is; `:PORT` and `*:PORT` are on every IPv4
/// address; `localhost:PORT` is on 127.0.0.1, without asking anybody.
pub(super) fn parse(text: &str) -> Result<SocketAddr, AddressError> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (host, port) = match text.rsplit_once(':') {
        Some(parts) => parts,
        None if is_number(text) => ("localhost", text),
        None => return Err(AddressError::NoPort),
    };
    let is_bare_ipv6 = |text: &str| text.parse::<Ipv6Addr>().is_ok();
    if is_bare_ipv6(host) || is_bare_ipv6(text) {
        return Err(AddressError::Brackets);
    }
    if text.ends_with(']') {
        return Err(AddressError::NoPort);
    }
    // The standard library would take a sign.
    let port = Some(port).filter(|port| is_number(port));
    let port = port
        .and_then(|port| port.parse().ok())
        .ok_or(AddressError::Port)?;
    let ip = match host {
        "" | "*" => Ipv4Addr::UNSPECIFIED,
        _ if host.eq_ignore_ascii_case("localhost") => Ipv4Addr::LOCALHOST,
        _ => return Err(AddressError::Host),
    };
    Ok((ip, port).into())
}

/// An address in the config file: text as in flags, or a number for the port alone.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SocketAddr>, D::Error> {
    struct Address;
    impl Visitor<'_> for Address {
        type Value = SocketAddr;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an address such as \"127.0.0.1:8000\", \":8000\" or 8000")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<SocketAddr, E> {
            parse(text).map_err(|error| E::custom(format_args!("`{text}`: {error}")))
        }

        fn visit_i64<E: de::Error>(self, port: i64) -> Result<SocketAddr, E> {
            let port = u16::try_from(port)
                .map_err(|_| E::invalid_value(Unexpected::Signed(port), &self))?;
            Ok((Ipv4Addr::LOCALHOST, port).into())
        }
    }
    deserializer.deserialize_any(Address).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_what_people_mean() {
        for (text, meant) in [
            ("127.0.0.1:8000", "127.0.0.1:8000"),
            ("0.0.0.0:0", "0.0.0.0:0"),
            ("[::1]:8000", "[::1]:8000"),
            ("[::]:8000", "[::]:8000"),
            ("8000", "127.0.0.1:8000"),
            (":8000", "0.0.0.0:8000"),
            ("*:8000", "0.0.0.0:8000"),
            ("localhost:8000", "127.0.0.1:8000"),
            ("LOCALHOST:65535", "127.0.0.1:65535"),
        ] {
            let address = parse(text).expect(text);
            assert_eq!(address.to_string(), meant, "{text}");
        }
    }

    #[test]
    fn what_is_no_address_says_what_to_write() {
        for (text, error) in [
            ("", AddressError::NoPort),
            ("localhost", AddressError::NoPort),
            ("127.0.0.1", AddressError::NoPort),
            ("[::1]", AddressError::NoPort),
            ("::1", AddressError::Brackets),
            ("::1:8000", AddressError::Brackets),
            (":", AddressError::Port),
            ("localhost:", AddressError::Port),
            ("localhost:http", AddressError::Port),
            ("127.0.0.1:+80", AddressError::Port),
            (":-1", AddressError::Port),
            ("65536", AddressError::Port),
            ("127.0.0.1:65536", AddressError::Port),
            ("example.com:8000", AddressError::Host),
            ("127.0.0.256:8000", AddressError::Host),
            ("[localhost]:8000", AddressError::Host),
            ("http://localhost:8000", AddressError::Host),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
        }
    }
}
