//! Negotiating permessage-deflate (RFC 7692, section 7.1), for both ends.
//!
//! Always without context takeover, in both directions: see [`crate::deflate`].

use crate::deflate::Window;
use crate::http::is_token;

pub(super) const EXTENSIONS: &str = "sec-websocket-extensions";

const DEFLATE: &str = "permessage-deflate";
const SERVER_WINDOW: &str = "server_max_window_bits";
const CLIENT_WINDOW: &str = "client_max_window_bits";
const SERVER_NO_TAKEOVER: &str = "server_no_context_takeover";
const CLIENT_NO_TAKEOVER: &str = "client_no_context_takeover";

/// The extra header for [`super::write_request`] that offers compression without context takeover.
pub const DEFLATE_OFFER: (&str, &str) = (
    EXTENSIONS,
    "permessage-deflate; server_no_context_takeover; client_no_context_takeover; client_max_window_bits",
);

/// An acceptable offer of permessage-deflate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deflate {
    /// The largest window with which the server may compress.
    window: Window,
    /// True if the client has named a window: then the answer must repeat it.
    names_window: bool,
}

impl Deflate {
    /// The window to compress with for this client.
    #[must_use]
    pub fn window(&self) -> Window {
        self.window
    }

    /// The header's value in the answer. It sets no window for the client, because one inflater with the largest window
    /// serves all clients.
    pub(super) fn answer(&self) -> String {
        let mut answer = format!("{DEFLATE}; {SERVER_NO_TAKEOVER}; {CLIENT_NO_TAKEOVER}");
        if self.names_window {
            answer.push_str(&format!("; {SERVER_WINDOW}={}", self.window.bits()));
        }
        answer
    }
}

/// The first acceptable offer in one header's value. The client lists its offers in the order of its preference
/// (RFC 6455, section 9.1). Offers that are unknown, malformed or against RFC 7692 are declined without an error.
pub(super) fn choose(value: &[u8]) -> Option<Deflate> {
    let mut rest = value;
    while !rest.is_empty() {
        let (offer, after) = split_outside_quotes(rest, b',');
        if let Some(deflate) = accept(offer) {
            return Some(deflate);
        }
        rest = after;
    }
    None
}

/// Checks one offer.
fn accept(offer: &[u8]) -> Option<Deflate> {
    let parameters = Parameters::read(offer)?;
    let window = match parameters.server_window {
        Some(bits) => Window::new(bits)?,
        None => Window::MAX,
    };
    Some(Deflate {
        window,
        names_window: parameters.server_window.is_some(),
    })
}

/// Whether the header's value accepts [`DEFLATE_OFFER`]: only that extension, and without context takeover by the
/// server.
pub(super) fn agrees_to_offer(value: &[u8]) -> bool {
    let (extension, more) = split_outside_quotes(value, b',');
    let parameters = Parameters::read(extension);
    // If an answer sets the client's window, it must have a value (section 7.1.2.2).
    let is_agreed = |parameters: Parameters| {
        parameters.server_no_takeover && parameters.client_window != Some(None)
    };
    more.is_empty() && parameters.is_some_and(is_agreed)
}

/// The parameters of permessage-deflate (RFC 7692, section 7.1), in an offer or an answer.
#[derive(Clone, Copy, Debug, Default)]
struct Parameters {
    server_no_takeover: bool,
    client_no_takeover: bool,
    /// 8 to 15.
    server_window: Option<u8>,
    /// 8 to 15. An offer may leave the value open.
    client_window: Option<Option<u8>>,
}

impl Parameters {
    /// Reads one element of the header's list. `None` if it is another extension or malformed, or if a parameter is
    /// repeated, unknown or has a bad value.
    fn read(element: &[u8]) -> Option<Self> {
        let (name, mut rest) = split_outside_quotes(element, b';');
        if name.trim_ascii() != DEFLATE.as_bytes() || element.last() == Some(&b';') {
            return None;
        }
        let mut parameters = Self::default();
        while !rest.is_empty() {
            let (parameter, after) = split_outside_quotes(rest, b';');
            rest = after;
            let (name, value) = read_parameter(parameter)?;
            let bits = match &value {
                Some(value) => Some(window_bits(value)?),
                None => None,
            };
            let is_new = match name {
                SERVER_NO_TAKEOVER if value.is_none() => {
                    !std::mem::replace(&mut parameters.server_no_takeover, true)
                }
                CLIENT_NO_TAKEOVER if value.is_none() => {
                    !std::mem::replace(&mut parameters.client_no_takeover, true)
                }
                SERVER_WINDOW => parameters.server_window.replace(bits?).is_none(),
                CLIENT_WINDOW => parameters.client_window.replace(bits).is_none(),
                _ => false,
            };
            if !is_new {
                return None;
            }
        }
        Some(parameters)
    }
}

/// 8 to 15, without leading zeros (section 7.1.2.1).
fn window_bits(value: &str) -> Option<u8> {
    let bits: u8 = value.parse().ok()?;
    let is_plain = value.bytes().all(|byte| byte.is_ascii_digit()) && !value.starts_with('0');
    (is_plain && (8..=15).contains(&bits)).then_some(bits)
}

/// A parameter and its value. A quoted value must also be a token when it is unquoted (RFC 6455, section 9.1).
fn read_parameter(parameter: &[u8]) -> Option<(&str, Option<String>)> {
    let (name, value) = match parameter.iter().position(|byte| *byte == b'=') {
        Some(at) => (&parameter[..at], Some(parameter[at + 1..].trim_ascii())),
        None => (parameter, None),
    };
    let name = name.trim_ascii();
    if !is_token(name) {
        return None;
    }
    let value = match value {
        None => None,
        Some([b'"', quoted @ .., b'"']) => Some(unquote(quoted)?),
        Some(token) => Some(token.to_vec()),
    };
    if value.as_ref().is_some_and(|value| !is_token(value)) {
        return None;
    }
    let value = value.map(|value| String::from_utf8(value).expect("a token is ASCII"));
    Some((str::from_utf8(name).expect("a token is ASCII"), value))
}

/// The content of a quoted string, unescaped (RFC 9110, section 5.6.4).
fn unquote(quoted: &[u8]) -> Option<Vec<u8>> {
    let mut value = Vec::with_capacity(quoted.len());
    let mut bytes = quoted.iter();
    while let Some(byte) = bytes.next() {
        value.push(match byte {
            b'"' => return None,
            b'\\' => *bytes.next()?,
            other => *other,
        });
    }
    Some(value)
}

/// Splits at the first `separator` outside of quoted strings.
fn split_outside_quotes(bytes: &[u8], separator: u8) -> (&[u8], &[u8]) {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            byte if *byte == separator && !is_quoted => return (&bytes[..at], &bytes[at + 1..]),
            _ => {}
        }
    }
    (bytes, &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(value: &str) -> Option<String> {
        choose(value.as_bytes()).map(|deflate| deflate.answer())
    }

    const AGREED: &str =
        "permessage-deflate; server_no_context_takeover; client_no_context_takeover";

    #[test]
    fn the_first_acceptable_offer_is_chosen() {
        let with_window = |bits: u8| Some(format!("{AGREED}; server_max_window_bits={bits}"));
        let cases = [
            ("permessage-deflate", Some(AGREED.to_owned())),
            (
                " permessage-deflate ; client_max_window_bits",
                Some(AGREED.to_owned()),
            ),
            (
                "permessage-deflate; client_max_window_bits=8",
                Some(AGREED.to_owned()),
            ),
            (
                "permessage-deflate;server_max_window_bits=9",
                with_window(9),
            ),
            (
                r#"permessage-deflate; server_max_window_bits="1\2""#,
                with_window(12),
            ),
            (
                "permessage-deflate; server_max_window_bits = 15",
                with_window(15),
            ),
            // The examples of RFC 7692, section 7.1.3, of which the first has a window that is declined here.
            (
                "permessage-deflate; client_max_window_bits; server_max_window_bits=10, permessage-deflate; client_max_window_bits",
                with_window(10),
            ),
            (
                "permessage-deflate; server_max_window_bits=8, permessage-deflate",
                Some(AGREED.to_owned()),
            ),
            (
                "x-webkit-deflate-frame, permessage-deflate",
                Some(AGREED.to_owned()),
            ),
            (
                r#"other; a="permessage-deflate, \", b"; c, permessage-deflate"#,
                Some(AGREED.to_owned()),
            ),
        ];
        for (offer, expected) in cases {
            assert_eq!(chosen(offer), expected, "{offer}");
        }
    }

    #[test]
    fn bad_offers_are_declined() {
        let cases = [
            "",
            ",",
            "permessage-bzip2",
            "permessage-deflated",
            "permessage-deflate;",
            "permessage-deflate; ;client_max_window_bits",
            "permessage-deflate=1",
            "permessage-deflate; unknown",
            "permessage-deflate; server_no_context_takeover=1",
            "permessage-deflate; client_no_context_takeover=15",
            "permessage-deflate; server_no_context_takeover; server_no_context_takeover",
            "permessage-deflate; server_max_window_bits=10; server_max_window_bits=10",
            "permessage-deflate; client_max_window_bits; client_max_window_bits=10",
            "permessage-deflate; server_max_window_bits",
            "permessage-deflate; server_max_window_bits=8",
            "permessage-deflate; server_max_window_bits=16",
            "permessage-deflate; server_max_window_bits=09",
            "permessage-deflate; server_max_window_bits=+9",
            "permessage-deflate; server_max_window_bits=",
            "permessage-deflate; server_max_window_bits=\"\"",
            "permessage-deflate; server_max_window_bits=\"10",
            "permessage-deflate; server_max_window_bits=\"1\"0",
            "permessage-deflate; server_max_window_bits=1 0",
            "permessage-deflate; client_max_window_bits=7",
            "permessage-deflate; client_max_window_bits=abc",
            "permessage-deflate; \"client_max_window_bits\"",
            "permessage-deflate client_max_window_bits",
        ];
        for offer in cases {
            assert_eq!(chosen(offer), None, "{offer}");
            let then_good = format!("{offer}, permessage-deflate");
            // An open quote runs to the end of the header.
            if offer.matches('"').count() % 2 == 0 {
                assert_eq!(chosen(&then_good).as_deref(), Some(AGREED), "{offer}");
            }
        }
    }

    #[test]
    fn an_answer_must_give_up_the_servers_context() {
        let agrees = |value: &str| agrees_to_offer(value.as_bytes());
        assert!(agrees(AGREED));
        assert!(agrees(
            "permessage-deflate; server_no_context_takeover; server_max_window_bits=8"
        ));
        assert!(agrees(
            "permessage-deflate; client_max_window_bits=9; server_no_context_takeover"
        ));
        assert!(!agrees("permessage-deflate"));
        assert!(!agrees(
            "permessage-deflate; server_no_context_takeover; client_max_window_bits"
        ));
        assert!(!agrees(
            "permessage-deflate; server_no_context_takeover; other"
        ));
        assert!(!agrees(
            "permessage-deflate; server_no_context_takeover, other"
        ));
        assert!(!agrees("other"));
        // What our server answers to our client's offer.
        let answer = choose(DEFLATE_OFFER.1.as_bytes())
            .expect("acceptable")
            .answer();
        assert!(agrees(&answer));
    }
}
