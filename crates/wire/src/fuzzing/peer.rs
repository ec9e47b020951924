//! Properties of what proxies say of their clients.

use super::spread;
use crate::http::{HeadLimits, parse_request};
use crate::peer::{
    AddressHeader, Network, Networks, PROXY_HEADER_BYTES_MAX, forwarded_address, parse_proxy_header,
};

/// The most prefixes of an input that are tried.
const PREFIXES_MAX: usize = if cfg!(any(fuzzing, miri)) { 8 } else { 512 };

/// Fuzz target: any bytes as the beginning of a connection from a proxy.
///
/// # Panics
/// If the verdict on a prefix changes with more bytes, or depends on bytes behind the header, or waits for too many.
pub fn proxy_header(bytes: &[u8]) {
    let whole = parse_proxy_header(bytes);
    match whole {
        Ok(None) => assert!(bytes.len() < PROXY_HEADER_BYTES_MAX),
        Ok(Some(header)) => {
            assert!((1..=bytes.len().min(PROXY_HEADER_BYTES_MAX)).contains(&header.bytes));
            assert_eq!(parse_proxy_header(&bytes[..header.bytes]), whole);
            assert_eq!(parse_proxy_header(&bytes[..header.bytes - 1]), Ok(None));
        }
        Err(error) => assert!((400..500).contains(&error.status())),
    }
    let verdict = spread(bytes, PREFIXES_MAX)
        .map(|end| parse_proxy_header(&bytes[..end]))
        .find(|verdict| *verdict != Ok(None));
    assert_eq!(verdict.unwrap_or(whole), whole);
}

/// Fuzz target: any text as the list of a header in which proxies name the client. The proxy before the server, and then one
/// before that, append to it.
///
/// # Panics
/// If the client can choose its own address.
pub fn forwarded(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let sent: String = text.chars().filter(|char| !char.is_control()).collect();
    let _ = text.parse::<Network>();
    let trusted: Networks = "10.0.0.0/8".parse::<Network>().into_iter().collect();
    for header in [AddressHeader::XForwardedFor, AddressHeader::Forwarded] {
        let node = if header == AddressHeader::Forwarded {
            "for="
        } else {
            ""
        };
        let name = header.name();
        let lines = [
            format!("{name}: {sent}, {node}192.0.2.1\r\n"),
            format!("{name}: {sent}, {node}192.0.2.1, {node}10.0.0.1\r\n"),
            format!("{name}: {sent}\r\n{name}: {node}192.0.2.1\r\n"),
        ];
        for line in lines {
            let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{line}\r\n");
            let limits = HeadLimits {
                bytes_max: usize::MAX,
                ..HeadLimits::default()
            };
            if let Ok(Some(head)) = parse_request(head.as_bytes(), limits) {
                let client = forwarded_address(&head, header, &trusted);
                assert_eq!(client, Some([192, 0, 2, 1].into()), "{line}");
            }
        }
    }
}
