//! The server's side: judging a request, accepting it.

use super::extensions::{Deflate, EXTENSIONS, choose};
use super::key::ACCEPT_BYTES;
use super::{Key, Refusal, VERSION};
use crate::http::{RequestHead, is_token, list_has_token, list_tokens, push_field};

const PROTOCOL: &str = "sec-websocket-protocol";

/// A request that may become a WebSocket connection.
#[derive(Clone, Debug)]
pub struct Upgrade<'a> {
    accept: [u8; ACCEPT_BYTES],
    /// The head, kept instead of a list: most clients offer no subprotocol, and the rest few.
    head: &'a [u8],
}

/// Judges a request head by RFC 6455, section 4.2.1. What it leaves to the caller: the path, the
/// origin, whether there is room.
///
/// # Errors
/// The first requirement that is not met, in the order that helps a person most: what kind of request
/// it is, then its details.
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
    /// The subprotocols the client offers, in its order of preference, from all its headers together
    /// (RFC 6455, section 11.3.4).
    pub fn protocols(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.values_of(PROTOCOL).flat_map(list_tokens)
    }

    /// The client's first acceptable offer of permessage-deflate, if it made one.
    #[must_use]
    pub fn deflate(&self) -> Option<Deflate> {
        // Headers of one name are one list (RFC 9110, section 5.3); an element cut by a line's end is none.
        self.values_of(EXTENSIONS).find_map(choose)
    }

    fn values_of(&self, name: &'static str) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.head
            .split(|byte| *byte == b'\n')
            .filter_map(move |line| value_of(name, line))
    }

    /// Appends the 101 response. `protocol` is the one chosen of [`Upgrade::protocols`], or none; `deflate` is
    /// [`Upgrade::deflate`], or none.
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

/// What the judgement needs of the headers, collected in one pass: a look-up for each would walk them
/// seven times, for each of a million handshakes.
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
