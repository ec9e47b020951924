//! The client's side: writes the request and checks the answer.

use super::extensions::{EXTENSIONS, agrees_to_offer};
use super::key::ACCEPT_BYTES;
use super::{Key, VERSION};
use crate::http::{ResponseHead, list_has_token, push_field};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use std::fmt;

/// Characters that a request target cannot contain, and those that end it (a space, `#`). `%` stays as it is, because
/// the target is already encoded.
const TARGET_ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'#');

/// Appends the request of a handshake (RFC 6455, section 4.1).
///
/// `host` is the server's name, with its port unless that is the scheme's default. `target` is the path with its
/// query; characters that it cannot contain are percent-encoded. `extra` headers come last; control characters in
/// them become spaces. The only extension allowed among them is [`super::DEFLATE_OFFER`]. Check the answer to that
/// with [`check_response_to_offer`].
pub fn write_request(
    out: &mut Vec<u8>,
    host: &str,
    target: &str,
    key: &Key,
    extra: &[(&str, &str)],
) {
    out.extend_from_slice(b"GET ");
    if !target.starts_with('/') {
        out.push(b'/');
    }
    for part in utf8_percent_encode(target, TARGET_ENCODED) {
        out.extend_from_slice(part.as_bytes());
    }
    out.extend_from_slice(b" HTTP/1.1\r\n");
    // RFC 9112, section 3.2: a request has one.
    if !extra
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("host"))
    {
        push_field(out, "host", host);
    }
    out.extend_from_slice(b"upgrade: websocket\r\nconnection: Upgrade\r\n");
    push_field(out, "sec-websocket-key", key.as_str());
    push_field(out, "sec-websocket-version", VERSION);
    for (name, value) in extra {
        push_field(out, name, value);
    }
    out.extend_from_slice(b"\r\n");
}

/// What client and server agreed to beyond RFC 6455.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreed {
    /// Nothing.
    Plain,
    /// permessage-deflate without context takeover.
    Deflate,
}

/// As [`check_response`], for a request that had [`super::DEFLATE_OFFER`] among its headers.
///
/// # Errors
/// As [`check_response`]. [`ResponseRefused::Extension`] if the server answers with something that was not offered.
pub fn check_response_to_offer(
    head: &ResponseHead<'_>,
    expected: &[u8; ACCEPT_BYTES],
) -> Result<Agreed, ResponseRefused> {
    check_switch(head, expected)?;
    let mut answers = head.headers(EXTENSIONS).filter(|value| !value.is_empty());
    match (answers.next(), answers.next()) {
        (None, _) => Ok(Agreed::Plain),
        (Some(answer), None) if agrees_to_offer(answer) => Ok(Agreed::Deflate),
        _ => Err(ResponseRefused::Extension),
    }
}

/// Checks the answer to a handshake. `expected` is the [`Key::accept`] of the key that was sent.
///
/// The caller must check whether the answer's subprotocol is one that it offered.
///
/// # Errors
/// The server refused, or its answer does not fit the request.
pub fn check_response(
    head: &ResponseHead<'_>,
    expected: &[u8; ACCEPT_BYTES],
) -> Result<(), ResponseRefused> {
    check_switch(head, expected)?;
    if head.headers(EXTENSIONS).any(|value| !value.is_empty()) {
        return Err(ResponseRefused::Extension);
    }
    Ok(())
}

/// Checks the answer without its extensions.
fn check_switch(
    head: &ResponseHead<'_>,
    expected: &[u8; ACCEPT_BYTES],
) -> Result<(), ResponseRefused> {
    if head.status() != 101 {
        return Err(ResponseRefused::Status(head.status()));
    }
    if !head
        .headers("upgrade")
        .any(|value| list_has_token(value, "websocket"))
    {
        return Err(ResponseRefused::Upgrade);
    }
    if !head
        .headers("connection")
        .any(|value| list_has_token(value, "upgrade"))
    {
        return Err(ResponseRefused::Connection);
    }
    let mut accepts = head.headers("sec-websocket-accept");
    if accepts.next() != Some(expected) || accepts.next().is_some() {
        return Err(ResponseRefused::Accept);
    }
    Ok(())
}

/// Why a client's handshake failed. The server is always the cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResponseRefused {
    /// Another status than 101.
    Status(u16),
    /// 101, but to another protocol.
    Upgrade,
    /// 101, but Connection does not name Upgrade.
    Connection,
    /// The answer does not fit the key that was sent.
    Accept,
    /// An extension that was not asked for, or not in this form.
    Extension,
}

impl ResponseRefused {
    /// What was wrong and what to check.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Status(503) => {
                "The server is full or shutting down (503): try later, as its Retry-After says."
            }
            Self::Status(429) => {
                "The server limits the rate of connections (429): connect more slowly."
            }
            Self::Status(401 | 403) => {
                "The server does not admit this client (401 or 403): check token and origin."
            }
            Self::Status(404) => {
                "The server has no WebSocket endpoint at this path (404): check the URL."
            }
            Self::Status(300..=399) => {
                "The server redirects elsewhere: connect to the URL in its Location header."
            }
            Self::Status(_) => {
                "The server answered with another status than 101: its body may say why."
            }
            Self::Upgrade => {
                "The server switched to another protocol than WebSocket: check what answers at this URL."
            }
            Self::Connection => {
                "The answer lacks Connection: Upgrade: check the proxies in between."
            }
            Self::Accept => {
                "The answer's Sec-WebSocket-Accept does not fit the key: something in between may be caching."
            }
            Self::Extension => {
                "The server chose an extension that was not asked for, or with other parameters: check the server."
            }
        }
    }

    /// The value of the `reason` label of metrics and reports.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Status(_) => "status",
            Self::Upgrade => "upgrade_header",
            Self::Connection => "connection_header",
            Self::Accept => "accept_key",
            Self::Extension => "extension",
        }
    }
}

impl fmt::Display for ResponseRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Status(status) = self {
            write!(f, "HTTP status {status}. ")?;
        }
        f.write_str(self.sentence())
    }
}

impl std::error::Error for ResponseRefused {}
