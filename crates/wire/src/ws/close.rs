//! Close codes (RFC 6455, section 7.4, and its registry).

use std::fmt;

/// The reason of a close, as a code in the close frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CloseCode(pub u16);

impl CloseCode {
    /// A normal close.
    pub const NORMAL: Self = Self(1000);
    /// The server shuts down, or the page was left.
    pub const GOING_AWAY: Self = Self(1001);
    /// The peer broke RFC 6455.
    pub const PROTOCOL_ERROR: Self = Self(1002);
    /// The peer sent a kind of data that is not accepted here.
    pub const UNSUPPORTED: Self = Self(1003);
    /// The peer sent data that does not fit its kind, such as text that is not UTF-8.
    pub const INVALID_PAYLOAD: Self = Self(1007);
    /// The peer broke a rule of this service.
    pub const POLICY: Self = Self(1008);
    /// The peer sent a message larger than is accepted here.
    pub const TOO_BIG: Self = Self(1009);
    /// The server failed.
    pub const INTERNAL: Self = Self(1011);
    /// The server restarts: connect again, after a random delay.
    pub const SERVICE_RESTART: Self = Self(1012);
    /// The server is overloaded: connect again, later.
    pub const TRY_AGAIN: Self = Self(1013);

    /// Whether a close frame may carry this code.
    ///
    /// 1004 is reserved. 1005, 1006 and 1015 are only for local reports of an end. 1012 to 1014 were registered after
    /// the RFC. 3000 to 3999 are for libraries, 4000 to 4999 for applications.
    #[must_use]
    pub fn is_valid_on_wire(self) -> bool {
        matches!(self.0, 1000..=1003 | 1007..=1014 | 3000..=4999)
    }
}

impl fmt::Display for CloseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
