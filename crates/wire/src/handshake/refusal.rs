//! Why a request is not a WebSocket handshake, and how to answer it.

use std::fmt;

/// A request that cannot become a WebSocket connection. The client or a proxy is always the cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Not GET.
    Method,
    /// HTTP/1.0, which cannot switch protocols.
    HttpVersion,
    /// No Host header, or several (RFC 9112, section 3.2).
    Host,
    /// No `Upgrade: websocket`: an ordinary request.
    NotUpgrade,
    /// `Upgrade: websocket`, but Connection does not name it.
    Connection,
    /// The request announces a body, which would be read as frames.
    Body,
    /// No key, several, or one that is not 16 bytes in base64.
    Key,
    /// No version, several, or another than 13.
    Version,
}

impl Refusal {
    /// All refusals, for metrics that list their labels in advance.
    pub const ALL: [Self; 8] = [
        Self::Method,
        Self::HttpVersion,
        Self::Host,
        Self::NotUpgrade,
        Self::Connection,
        Self::Body,
        Self::Key,
        Self::Version,
    ];

    /// The status to answer with, together with [`Refusal::headers`].
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::Method => 405,
            Self::NotUpgrade | Self::Version => 426,
            Self::HttpVersion => 505,
            Self::Host | Self::Connection | Self::Body | Self::Key => 400,
        }
    }

    /// The headers that belong to the status. They say what the server accepts.
    ///
    /// A 426 names the protocol in Upgrade and its versions (RFC 6455, section 4.4). Connection must then name Upgrade
    /// (RFC 9110, sections 7.8 and 15.5.22).
    #[must_use]
    pub fn headers(&self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Method => &[("allow", "GET")],
            Self::NotUpgrade | Self::Version => &[
                ("upgrade", "websocket"),
                ("connection", "upgrade, close"),
                ("sec-websocket-version", super::VERSION),
            ],
            Self::HttpVersion | Self::Host | Self::Connection | Self::Body | Self::Key => &[],
        }
    }

    /// What was wrong and what to do about it, for the body of the answer.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Method => {
                "A WebSocket handshake is a GET request: connect with a WebSocket client."
            }
            Self::HttpVersion => {
                "A WebSocket handshake needs HTTP/1.1: if a proxy is in between, make it speak HTTP/1.1 to this server."
            }
            Self::Host => {
                "The request needs exactly one Host header: send the name and port of this server."
            }
            Self::NotUpgrade => {
                "This is a WebSocket endpoint: connect with a WebSocket client, or if a proxy is in between, make it pass on Upgrade and Connection."
            }
            Self::Connection => {
                "Upgrade is there but Connection does not name it: send Connection: Upgrade, and if a proxy is in between, make it do so."
            }
            Self::Body => {
                "A WebSocket handshake has no body: send no Transfer-Encoding, and no Content-Length but 0."
            }
            Self::Key => {
                "The request needs exactly one Sec-WebSocket-Key: send 16 random bytes in base64."
            }
            Self::Version => {
                "The WebSocket version is not supported: send exactly one Sec-WebSocket-Version: 13."
            }
        }
    }

    /// The value of the `reason` label of metrics.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Method => "method",
            Self::HttpVersion => "http_version",
            Self::Host => "host",
            Self::NotUpgrade => "not_upgrade",
            Self::Connection => "connection_header",
            Self::Body => "body",
            Self::Key => "websocket_key",
            Self::Version => "websocket_version",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

impl std::error::Error for Refusal {}
