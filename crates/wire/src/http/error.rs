//! Why a head was not accepted. The peer is always the cause.

use std::fmt;

/// A head that will not be accepted, however many bytes follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeadError {
    /// No end of the head within [`super::HeadLimits::bytes_max`].
    TooLong,
    /// More header lines than [`super::HeadLimits::headers_max`].
    TooManyHeaders,
    /// Not the grammar of RFC 9112.
    Malformed(Malformed),
    /// A version of HTTP that is neither 1.0 nor 1.1.
    Version,
    /// No Host header, several, or one that names no host (RFC 9112, section 3.2).
    Host,
    /// The target names another host than the Host header (RFC 9112, section 3.2.2).
    Authority,
    /// A transfer coding other than `chunked`.
    TransferCoding,
    /// Several lengths of the body, or one that is no number: where the body ends would be a guess.
    Framing,
    /// An expectation other than `100-continue` (RFC 9110, section 10.1.1).
    Expectation,
    /// CONNECT: what follows its head would be no request (RFC 9110, section 9.3.6).
    Connect,
}

/// The part of a head that broke the grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Malformed {
    /// The method or the request target.
    RequestLine,
    /// No version of HTTP where one belongs.
    Version,
    /// A response's status code or reason.
    Status,
    /// A byte that cannot be in a header's name, or no colon after it.
    HeaderName,
    /// A control character in a header's value.
    HeaderValue,
    /// A carriage return or a line feed without the other.
    LineEnd,
    /// A `#` in the request target.
    Fragment,
    /// A target in a form that its method does not have, or with a byte that must be percent-encoded.
    Target,
}

impl HeadError {
    /// The status to answer with: 431 (RFC 6585, section 5), 501 (RFC 9112, section 6.1; RFC 9110, section 15.6.2), 505
    /// (RFC 9110, section 15.6.6), 417 (RFC 9110, section 15.5.18) or 400.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::TooLong | Self::TooManyHeaders => 431,
            Self::TransferCoding | Self::Connect => 501,
            Self::Version => 505,
            Self::Expectation => 417,
            Self::Malformed(_) | Self::Host | Self::Authority | Self::Framing => 400,
        }
    }

    /// What was wrong and what to do about it, for the body of the answer.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::TooLong => {
                "The request head is too long for this server: send shorter headers or fewer cookies."
            }
            Self::TooManyHeaders => "The request has too many headers for this server: send fewer.",
            Self::Malformed(Malformed::RequestLine) => {
                "The request line is malformed: send METHOD, one space, a target without spaces, one space, HTTP/1.1."
            }
            Self::Malformed(Malformed::Version) => {
                "The request line has no HTTP version where one belongs: send METHOD, one space, a target without spaces, one space, HTTP/1.1."
            }
            Self::Version => "The HTTP version is not supported: send HTTP/1.1 without TLS here.",
            Self::Malformed(Malformed::Status) => {
                "The status line is malformed: send HTTP/1.1, a three-digit status, a reason."
            }
            Self::Malformed(Malformed::HeaderName) => {
                "A header name is malformed: send a name of letters, digits and hyphens with a colon right after it."
            }
            Self::Malformed(Malformed::HeaderValue) => {
                "A header value contains a control character: remove or encode it."
            }
            Self::Malformed(Malformed::LineEnd) => {
                "A line of the head does not end in CR LF: end every line with both."
            }
            Self::Malformed(Malformed::Fragment) => {
                "The request target has a fragment: send it without the # and what follows."
            }
            Self::Malformed(Malformed::Target) => {
                "The request target is malformed: begin it with a slash, and percent-encode every byte of its path that RFC 3986 does not allow there."
            }
            Self::Host => {
                "The request needs exactly one Host header: send the name and port of this server."
            }
            Self::Authority => {
                "The request's target and its Host header name different hosts: send the name and port of this server in both, or a target that begins with a slash."
            }
            Self::TransferCoding => {
                "The transfer coding is not supported: send Transfer-Encoding: chunked, or Content-Length."
            }
            Self::Framing => {
                "The length of the body is ambiguous: send one Content-Length in digits, or one Transfer-Encoding: chunked, and not both."
            }
            Self::Expectation => {
                "The expectation is not supported: send Expect: 100-continue, or no Expect."
            }
            Self::Connect => {
                "This server is no proxy and opens no tunnels: send another method than CONNECT."
            }
        }
    }

    /// The value of the `reason` label of metrics.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::TooLong => "head_too_long",
            Self::TooManyHeaders => "too_many_headers",
            Self::Malformed(_) => "malformed_head",
            Self::Host | Self::Authority => "host",
            Self::TransferCoding => "transfer_coding",
            Self::Framing => "framing",
            Self::Version => "http_version",
            Self::Expectation => "expectation",
            Self::Connect => "connect",
        }
    }
}

impl From<httparse::Error> for HeadError {
    fn from(error: httparse::Error) -> Self {
        Self::Malformed(match error {
            httparse::Error::TooManyHeaders => return Self::TooManyHeaders,
            httparse::Error::Token => Malformed::RequestLine,
            httparse::Error::Version => Malformed::Version,
            httparse::Error::Status => Malformed::Status,
            httparse::Error::HeaderName => Malformed::HeaderName,
            httparse::Error::HeaderValue => Malformed::HeaderValue,
            httparse::Error::NewLine => Malformed::LineEnd,
        })
    }
}

impl fmt::Display for HeadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

impl std::error::Error for HeadError {}
