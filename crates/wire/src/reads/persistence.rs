//! Whether a connection goes on after an answer.

use crate::http::{RequestHead, list_has_token};

/// What becomes of a connection after the answer to a request (RFC 9112, section 9.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Persistence {
    /// It takes another request: what HTTP/1.1 does unless it is told otherwise.
    KeepAlive,
    /// It takes another request, and the answer has to say so: the client speaks HTTP/1.0.
    KeepAliveSaid,
    /// It ends.
    Close,
}

impl Persistence {
    /// In the order of their numbers.
    pub const ALL: [Self; 3] = [Self::KeepAlive, Self::KeepAliveSaid, Self::Close];

    /// What a request wishes.
    #[must_use]
    pub fn of(head: &RequestHead<'_>) -> Self {
        let has = |token| {
            let mut values = head.headers("connection");
            values.any(|value| list_has_token(value, token))
        };
        if has("close") {
            return Self::Close;
        }
        match head.minor_version() {
            0 if has("keep-alive") => Self::KeepAliveSaid,
            0 => Self::Close,
            _ => Self::KeepAlive,
        }
    }

    /// The value of the answer's Connection header; none where it needs none.
    #[must_use]
    pub fn header(self) -> Option<&'static str> {
        match self {
            Self::KeepAlive => None,
            Self::KeepAliveSaid => Some("keep-alive"),
            Self::Close => Some("close"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Persistence;
    use crate::http::{HeadLimits, parse_request};

    #[test]
    fn a_request_says_whether_its_connection_goes_on() {
        for (version, headers, expected) in [
            ("1.1", "", Persistence::KeepAlive),
            ("1.1", "Connection: keep-alive\r\n", Persistence::KeepAlive),
            ("1.1", "Connection: foo, Close\r\n", Persistence::Close),
            (
                "1.1",
                "Connection: foo\r\nConnection: close\r\n",
                Persistence::Close,
            ),
            ("1.0", "", Persistence::Close),
            (
                "1.0",
                "Connection: Keep-Alive\r\n",
                Persistence::KeepAliveSaid,
            ),
            (
                "1.0",
                "Connection: keep-alive, close\r\n",
                Persistence::Close,
            ),
        ] {
            let text = format!("GET / HTTP/{version}\r\nHost: a\r\n{headers}\r\n");
            let head = parse_request(text.as_bytes(), HeadLimits::default());
            let head = head.expect("well-formed").expect("whole");
            assert_eq!(Persistence::of(&head), expected, "{version} {headers}");
        }
    }
}
