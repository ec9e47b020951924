//! The server's side: checks a request and accepts it.

use super::extensions::{Deflate, EXTENSIONS, choose};
use super::key::ACCEPT_BYTES;
use super::{Key, Refusal, VERSION};
use crate::http::{RequestHead, is_token, list_has_token, list_tokens, push_field};

const PROTOCOL: &str = "sec-websocket-protocol";

/// A request that may become a WebSocket connection.
#[derive(Clone, Debug)]
pub struct Upgrade<'a> {
    accept: [u8; ACCEPT_BYTES],
    /// The head. It is kept instead of a list because most clients offer no subprotocol, and the others few.
    head: &'a [u8],
}

/// Whether the client wants to speak WebSocket, however well it asks.
#[must_use]
pub fn asks_for_websocket(head: &RequestHead<'_>) -> bool {
    head.headers("upgrade")
        .any(|value| list_has_token(value, "websocket"))
}

/// Checks a request head by RFC 6455, section 4.2.1. The caller must check the path, the origin and the limit of
/// connections.
///
/// # Errors
/// The first requirement that the request does not meet. The kind of request is checked before its details, because
/// that helps a person most.
pub fn check_upgrade<'a>(head: &RequestHead<'a>) -> Result<Upgrade<'a>, Refusal> {
    if head.method() != "GET" {
        return Err(Refusal::Method);
    }
    if head.minor_version() < 1 {
        return Err(Refusal::HttpVersion);
    }
    let fields = Fields::collect(head);
    if !matches!(fields.host, Field::Once(_)) {
        return Err(Refusal::Host);
    }
    if !fields.upgrade_has_websocket {
        return Err(Refusal::NotUpgrade);
    }
    if !fields.connection_has_upgrade {
        return Err(Refusal::Connection);
    }
    if fields.announces_body {
        return Err(Refusal::Body);
    }
    if !matches!(fields.version, Field::Once(version) if version == VERSION.as_bytes()) {
        return Err(Refusal::Version);
    }
    let Field::Once(key) = fields.key else {
        return Err(Refusal::Key);
    };
    let key = Key::parse(key).ok_or(Refusal::Key)?;
    Ok(Upgrade {
        accept: key.accept(),
        head: head.bytes(),
    })
}

impl<'a> Upgrade<'a> {
    /// The subprotocols of all headers, in the client's order of preference (RFC 6455, section 11.3.4).
    pub fn protocols(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.values_of(PROTOCOL).flat_map(list_tokens)
    }

    /// The client's first acceptable offer of permessage-deflate, if it made one.
    #[must_use]
    pub fn deflate(&self) -> Option<Deflate> {
        // Headers of one name are one list (RFC 9110, section 5.3). An element cannot continue on the next line.
        self.values_of(EXTENSIONS).find_map(choose)
    }

    fn values_of(&self, name: &'static str) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.head
            .split(|byte| *byte == b'\n')
            .filter_map(move |line| value_of(name, line))
    }

    /// Appends the 101 response. `protocol` is one of [`Upgrade::protocols`] or none. `deflate` is
    /// [`Upgrade::deflate`] or none.
    pub fn write_response(
        &self,
        protocol: Option<&str>,
        deflate: Option<&Deflate>,
        out: &mut Vec<u8>,
    ) {
        out.extend_from_slice(
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-accept: ",
        );
        out.extend_from_slice(&self.accept);
        out.extend_from_slice(b"\r\n");
        if let Some(protocol) = protocol {
            debug_assert!(is_token(protocol.as_bytes()), "a subprotocol is a token");
            push_field(out, PROTOCOL, protocol);
        }
        if let Some(deflate) = deflate {
            push_field(out, EXTENSIONS, &deflate.answer());
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// The value of a line of the head if it is this header.
fn value_of<'a>(wanted: &str, line: &'a [u8]) -> Option<&'a [u8]> {
    let (name, rest) = line.split_at_checked(wanted.len())?;
    let value = rest.strip_prefix(b":")?;
    name.eq_ignore_ascii_case(wanted.as_bytes())
        .then_some(value)
}

/// A header that must not be repeated.
#[derive(Clone, Copy, Debug)]
enum Field<'a> {
    Absent,
    Once(&'a [u8]),
    Repeated,
}

impl<'a> Field<'a> {
    fn add(&mut self, value: &'a [u8]) {
        *self = match self {
            Self::Absent => Self::Once(value),
            Self::Once(_) | Self::Repeated => Self::Repeated,
        };
    }
}

/// The headers that the check needs, collected in one pass. A look-up of each would walk the headers seven times, for
/// each of a million handshakes.
#[derive(Debug)]
struct Fields<'a> {
    host: Field<'a>,
    key: Field<'a>,
    version: Field<'a>,
    upgrade_has_websocket: bool,
    connection_has_upgrade: bool,
    announces_body: bool,
}

impl<'a> Fields<'a> {
    fn collect(head: &RequestHead<'a>) -> Self {
        let mut fields = Self {
            host: Field::Absent,
            key: Field::Absent,
            version: Field::Absent,
            upgrade_has_websocket: false,
            connection_has_upgrade: false,
            announces_body: false,
        };
        for (name, value) in head.header_lines() {
            let is = |wanted: &str| name.eq_ignore_ascii_case(wanted);
            if is("host") {
                fields.host.add(value);
            } else if is("upgrade") {
                fields.upgrade_has_websocket |= list_has_token(value, "websocket");
            } else if is("connection") {
                fields.connection_has_upgrade |= list_has_token(value, "upgrade");
            } else if is("sec-websocket-key") {
                fields.key.add(value);
            } else if is("sec-websocket-version") {
                fields.version.add(value);
            } else if is("transfer-encoding") || is("content-length") && value != b"0" {
                fields.announces_body = true;
            }
        }
        fields
    }
}
