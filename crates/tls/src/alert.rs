//! Alerts (RFC 8446, section 6), and the faults of a peer that they answer.

/// A description of an alert, as its number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alert(pub u8);

impl Alert {
    /// The peer sends nothing more.
    pub const CLOSE_NOTIFY: Self = Self(0);
    /// A record of a kind or in a place that is not allowed.
    pub const UNEXPECTED_MESSAGE: Self = Self(10);
    /// A record that its key does not open.
    pub const BAD_RECORD_MAC: Self = Self(20);
    /// A record longer than 2^14 bytes of text.
    pub const RECORD_OVERFLOW: Self = Self(22);
    /// Both ends have no parameters in common, or a certificate is missing in TLS 1.2.
    pub const HANDSHAKE_FAILURE: Self = Self(40);
    /// A field with a value that is not allowed.
    pub const ILLEGAL_PARAMETER: Self = Self(47);
    /// A message whose length does not fit its fields.
    pub const DECODE_ERROR: Self = Self(50);
    /// We cannot go on, and the peer is not to blame.
    pub const INTERNAL_ERROR: Self = Self(80);
    /// A hello lacks an extension that its version must have.
    pub const MISSING_EXTENSION: Self = Self(109);
    /// The peer's user gave up. A `close_notify` follows (RFC 8446, 6.1).
    pub const USER_CANCELED: Self = Self(90);

    /// Writes the alert as a record without protection, which is all that one can say before keys are known.
    pub fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[21, 3, 3, 0, 2]);
        out.extend_from_slice(&self.message());
    }

    /// The two bytes of the message: its level and its description. Only a close is no error (RFC 8446, 6).
    pub(crate) fn message(self) -> [u8; 2] {
        let is_close = matches!(self, Self::CLOSE_NOTIFY | Self::USER_CANCELED);
        [if is_close { 1 } else { 2 }, self.0]
    }
}

/// A record of the peer that ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The header announces more than 2^14 + 256 bytes, or the text inside has more than 2^14 (RFC 8446, 5.1 and 5.2).
    #[error("a record is too long")]
    TooLong,
    /// The tag is wrong: a byte was changed, a record is missing, or the keys differ.
    #[error("a record does not open with the connection's key")]
    NotOurs,
    /// A record without protection, or of a kind that may not come here.
    #[error("a record of type {0} may not come behind the handshake")]
    Unexpected(u8),
    /// A record that contains nothing but padding (RFC 8446, 5.4).
    #[error("a record has no type")]
    NoType,
    /// A message of the handshake other than a `KeyUpdate`, or more than that in its record (RFC 8446, 5.1).
    #[error(
        "a message of the handshake may not come behind it, unless it is a KeyUpdate alone in its record"
    )]
    NoKeyUpdate,
    /// A `KeyUpdate` that asks for something unknown (RFC 8446, 4.6.3).
    #[error("a KeyUpdate has a value other than 0 or 1")]
    KeyUpdateValue,
    /// A `KeyUpdate` that has not one byte.
    #[error("a KeyUpdate has not one byte")]
    KeyUpdateLength,
    /// An alert that has not two bytes.
    #[error("an alert has not two bytes")]
    AlertLength,
    /// A message of the handshake, or an alert, of no bytes (RFC 8446, 5.4).
    #[error("a record of type {0} is empty")]
    Empty(u8),
    /// Many records in a row that contain no data. Each costs us as much as one with data.
    #[error(
        "more than {} records in a row contain no data",
        crate::records::QUIET_MAX
    )]
    Flood,
}

impl Fault {
    /// The alert for the peer.
    pub fn alert(self) -> Alert {
        match self {
            Self::TooLong => Alert::RECORD_OVERFLOW,
            Self::NotOurs => Alert::BAD_RECORD_MAC,
            Self::Unexpected(_)
            | Self::NoType
            | Self::NoKeyUpdate
            | Self::Empty(_)
            | Self::Flood => Alert::UNEXPECTED_MESSAGE,
            Self::KeyUpdateValue => Alert::ILLEGAL_PARAMETER,
            Self::AlertLength | Self::KeyUpdateLength => Alert::DECODE_ERROR,
        }
    }
}
