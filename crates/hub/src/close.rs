//! Why connections end. Each reason has one metric label and one close code. The code of [`CloseReason::Drain`] is 1001, but
//! clients of the Centrifuge protocol are told their own: 3001.

use myriad_wire::centrifuge::DisconnectCode;
use myriad_wire::ws::CloseCode;

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum CloseReason {
    /// The client closed: a close frame, or FIN.
    Client,
    /// The connection broke: RST, or the network's timeout.
    Reset,
    /// The client did not read fast enough and its outbound budget is spent.
    SlowConsumer,
    /// The process-wide budget of buffered bytes is spent, and this connection needed some.
    Overloaded,
    /// A frame broke RFC 6455.
    Protocol,
    /// Text was not UTF-8.
    InvalidPayload,
    /// A compressed message was not DEFLATE data.
    InvalidDeflate,
    /// A frame, message or its number of fragments was over the limit.
    TooBig,
    /// No pong, nor anything else, within the time allowed after a ping.
    PongTimeout,
    /// Nothing came from the client for the idle timeout.
    Idle,
    /// The request head did not come within the handshake timeout.
    HandshakeTimeout,
    /// The request was answered with an HTTP error.
    Refused,
    /// The server was full.
    Full,
    /// The connection was handed over to the control plane.
    HandedOver,
    /// The server is draining.
    Drain,
    /// A command broke the client protocol.
    BadRequest,
    /// No connect command came within the stale timeout.
    Stale,
    /// The client's token is not valid.
    InvalidToken,
    /// The user has connected anew, and may have one connection only.
    ConnectionLimit,
    /// A publication is not JSON, and the client reads only JSON.
    InappropriateProtocol,
    /// The client used something that the server does not offer.
    NotAvailable,
    /// A server-side subscription missed publications.
    InsufficientState,
}

impl CloseReason {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 22] = [
        Self::Client,
        Self::Reset,
        Self::SlowConsumer,
        Self::Overloaded,
        Self::Protocol,
        Self::InvalidPayload,
        Self::InvalidDeflate,
        Self::TooBig,
        Self::PongTimeout,
        Self::Idle,
        Self::HandshakeTimeout,
        Self::Refused,
        Self::Full,
        Self::HandedOver,
        Self::Drain,
        Self::BadRequest,
        Self::Stale,
        Self::InvalidToken,
        Self::ConnectionLimit,
        Self::InappropriateProtocol,
        Self::NotAvailable,
        Self::InsufficientState,
    ];

    /// The value of the metric's `reason` label.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Reset => "reset",
            Self::SlowConsumer => "slow_consumer",
            Self::Overloaded => "overloaded",
            Self::Protocol => "protocol_error",
            Self::InvalidPayload => "invalid_payload",
            Self::InvalidDeflate => "invalid_deflate",
            Self::TooBig => "too_big",
            Self::PongTimeout => "pong_timeout",
            Self::Idle => "idle_timeout",
            Self::HandshakeTimeout => "handshake_timeout",
            Self::Refused => "refused",
            Self::Full => "full",
            Self::HandedOver => "handed_over",
            Self::Drain => "drain",
            Self::BadRequest => "bad_request",
            Self::Stale => "stale",
            Self::InvalidToken => "invalid_token",
            Self::ConnectionLimit => "connection_limit",
            Self::InappropriateProtocol => "inappropriate_protocol",
            Self::NotAvailable => "not_available",
            Self::InsufficientState => "insufficient_state",
        }
    }

    /// The WebSocket close code that a client is told. Standard codes are those of RFC 6455, section 7.4.1. Codes from 3000 on
    /// are those of Centrifuge clients. It is 1000 where nobody is told.
    #[must_use]
    pub fn code(self) -> u16 {
        match self {
            Self::Client | Self::Reset | Self::HandedOver | Self::Refused => CloseCode::NORMAL.0,
            Self::SlowConsumer => DisconnectCode::Slow.code(),
            Self::Overloaded | Self::Full => CloseCode::TRY_AGAIN.0,
            Self::Protocol => CloseCode::PROTOCOL_ERROR.0,
            Self::InvalidPayload | Self::InvalidDeflate => CloseCode::INVALID_PAYLOAD.0,
            Self::TooBig => CloseCode::TOO_BIG.0,
            Self::PongTimeout => DisconnectCode::NoPong.code(),
            Self::Idle | Self::HandshakeTimeout | Self::Drain => CloseCode::GOING_AWAY.0,
            Self::InsufficientState => DisconnectCode::InsufficientState.code(),
            Self::InvalidToken => DisconnectCode::InvalidToken.code(),
            Self::BadRequest => DisconnectCode::BadRequest.code(),
            Self::Stale => DisconnectCode::Stale.code(),
            Self::ConnectionLimit => DisconnectCode::ConnectionLimit.code(),
            Self::InappropriateProtocol => DisconnectCode::InappropriateProtocol.code(),
            Self::NotAvailable => DisconnectCode::NotAvailable.code(),
        }
    }

    /// What the client is told beside the code: at most 123 bytes.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Client | Self::Reset | Self::HandedOver | Self::Refused => "",
            Self::SlowConsumer => {
                "slow consumer: read faster, or subscribe to less; then reconnect"
            }
            Self::Overloaded => "server out of buffer memory: reconnect after a pause",
            Self::Full => "server full: reconnect after a pause",
            Self::Protocol => "protocol error",
            Self::InvalidPayload => "text was not UTF-8",
            Self::InvalidDeflate => "a compressed message was not DEFLATE data",
            Self::TooBig => "message over the limit",
            Self::PongTimeout => "no pong: answer pings, then reconnect",
            Self::Idle => "idle: nothing received within the idle timeout",
            Self::HandshakeTimeout => "the request head came too slowly",
            Self::Drain => "server shutting down: reconnect",
            Self::BadRequest => "bad request",
            Self::Stale => "stale: send the connect command in time",
            Self::InvalidToken => "invalid token",
            Self::ConnectionLimit => "connection limit: this user has connected anew",
            Self::InappropriateProtocol => "a publication is not JSON: use protobuf",
            Self::NotAvailable => "not available",
            Self::InsufficientState => "insufficient state: publications were missed; reconnect",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CloseReason;

    #[test]
    fn numbers_follow_the_list_and_labels_differ() {
        for (index, reason) in CloseReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
            assert!(reason.sentence().len() <= 123, "{reason:?}");
            assert_eq!(
                CloseReason::ALL
                    .iter()
                    .filter(|other| other.label() == reason.label())
                    .count(),
                1
            );
        }
    }
}
