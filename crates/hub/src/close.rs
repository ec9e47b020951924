//! Why connections end. Each reason has one metric label and one close code. The code of [`CloseReason::Drain`] is 1001, but
//! clients of the Centrifuge protocol are told their own: 3001.

use myriad_wire::centrifuge::DisconnectCode;
use myriad_wire::ws::CloseCode;
use std::fmt;
use std::sync::Arc;

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
    /// The user has connected anew and may have one connection only, or has as many as it may.
    ConnectionLimit,
    /// What the application answers is not JSON, and the client reads only JSON.
    InappropriateProtocol,
    /// The client used something that the server does not offer.
    NotAvailable,
    /// A server-side subscription missed publications.
    InsufficientState,
    /// The application asked for it. What the client is told is the application's: an [`ApplicationClose`].
    Application,
    /// Nobody has refreshed the connection.
    Expired,
    /// Nobody has refreshed a server-side subscription.
    SubscriptionExpired,
    /// A token or the application grants the client more channels than a connection may have.
    ChannelLimit,
    /// The client may not connect.
    PermissionDenied,
    /// The client sends more than it may, and goes on when it is refused.
    TooManyRequests,
    /// The connect request of a client without commands failed by no fault of its own.
    ConnectFailed,
    /// Its request was answered, and it takes no other one.
    Answered,
    /// Bytes were queued for the client, and it took none of them for the stall timeout.
    Stalled,
    /// A statement about the connection's own records does not hold: a fault of the server.
    Defect,
    /// Its TLS failed: in the handshake, or by a record behind it. An alert has said why.
    Tls,
}

impl CloseReason {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 33] = [
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
        Self::Application,
        Self::Expired,
        Self::SubscriptionExpired,
        Self::ChannelLimit,
        Self::PermissionDenied,
        Self::TooManyRequests,
        Self::ConnectFailed,
        Self::Answered,
        Self::Stalled,
        Self::Defect,
        Self::Tls,
    ];

    /// Whether the server ends a connection of its own judgement, for something that its operator or the client's maker can mend.
    /// The others follow from the network, from time, or from what the application wants, or a refused command says them.
    #[must_use]
    pub fn is_judgement(self) -> bool {
        matches!(
            self,
            Self::SlowConsumer
                | Self::Stalled
                | Self::Overloaded
                | Self::Protocol
                | Self::InvalidPayload
                | Self::InvalidDeflate
                | Self::TooBig
                | Self::ConnectionLimit
                | Self::InappropriateProtocol
                | Self::InsufficientState
                | Self::SubscriptionExpired
                | Self::ChannelLimit
        )
    }

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
            Self::Application => "application",
            Self::Expired => "expired",
            Self::SubscriptionExpired => "subscription_expired",
            Self::ChannelLimit => "channel_limit",
            Self::PermissionDenied => "permission_denied",
            Self::TooManyRequests => "too_many_requests",
            Self::ConnectFailed => "connect_failed",
            Self::Answered => "answered",
            Self::Stalled => "stalled",
            Self::Defect => "defect",
            Self::Tls => "tls",
        }
    }

    /// The WebSocket close code that a client is told. Standard codes are those of RFC 6455, section 7.4.1. Codes from 3000 on
    /// are those of Centrifuge clients. It is 1000 where nobody is told.
    #[must_use]
    pub fn code(self) -> u16 {
        match self {
            Self::Client
            | Self::Reset
            | Self::HandedOver
            | Self::Refused
            | Self::Answered
            | Self::Tls => CloseCode::NORMAL.0,
            Self::SlowConsumer | Self::Stalled => DisconnectCode::Slow.code(),
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
            Self::Application => DisconnectCode::ForceDisconnect.code(),
            Self::Expired => DisconnectCode::Expired.code(),
            Self::SubscriptionExpired => DisconnectCode::SubscriptionExpired.code(),
            Self::PermissionDenied => DisconnectCode::PermissionDenied.code(),
            Self::TooManyRequests => DisconnectCode::TooManyRequests.code(),
            // The application grants too much, or the operator allows too little: the client comes back when that is mended.
            Self::ConnectFailed | Self::Defect | Self::ChannelLimit => {
                DisconnectCode::ServerError.code()
            }
        }
    }

    /// What the client is told beside the code: at most 123 bytes.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Client
            | Self::Reset
            | Self::HandedOver
            | Self::Refused
            | Self::Answered
            | Self::Tls => "",
            Self::SlowConsumer => {
                "slow consumer: read faster, or subscribe to less; then reconnect"
            }
            Self::Stalled => "stalled: nothing was read within the stall timeout; reconnect",
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
            Self::ConnectionLimit => "connection limit: this user has too many connections",
            Self::InappropriateProtocol => "data that is not JSON: use protobuf",
            Self::NotAvailable => "not available",
            Self::InsufficientState => "insufficient state: publications were missed; reconnect",
            Self::TooManyRequests => "too many requests: send fewer commands",
            Self::ConnectFailed | Self::Defect => "internal server error: reconnect",
            Self::Application => "force disconnect",
            Self::Expired => "connection expired: reconnect with a new token",
            Self::SubscriptionExpired => "subscription expired: reconnect with a new token",
            Self::ChannelLimit => "channel limit: too many server-side subscriptions",
            Self::PermissionDenied => "permission denied: connect as a user",
        }
    }
}

/// Bytes of the reason in a close frame at most (RFC 6455, section 5.5: a control frame has 125, of which the code takes two).
pub const CLOSE_REASON_BYTES_MAX: usize = 123;

/// What a client is told where the application gives a code of its own and no reason. Some clients need one.
const APPLICATION_SENTENCE: &str = "disconnected by the application";

/// What the application tells a client whose connection it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplicationClose {
    code: u16,
    reason: Arc<str>,
}

/// Why a client cannot be told so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplicationCloseError {
    /// The code is not one of 3000 to 4999.
    Code(u32),
    /// The reason has this many bytes, more than [`CLOSE_REASON_BYTES_MAX`].
    ReasonLength(usize),
    /// The reason begins with `{`. Some clients take that for an old form of a close, which has its own rule of reconnecting.
    ReasonObject,
}

impl fmt::Display for ApplicationCloseError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(
                formatter,
                "code {code} is not allowed: give one from 4000 to 4999, or a code of the protocol from 3000 to 3999"
            ),
            Self::ReasonLength(bytes) => write!(
                formatter,
                "the reason has {bytes} bytes: a close frame has room for {CLOSE_REASON_BYTES_MAX}"
            ),
            Self::ReasonObject => formatter.write_str(
                "the reason begins with `{`, which some clients misread: give plain text",
            ),
        }
    }
}

impl std::error::Error for ApplicationCloseError {}

impl ApplicationClose {
    /// A code from 3000 to 4999 and a reason for people. The code's range decides whether the client comes back. An empty reason
    /// becomes the protocol's words for the code, or ours.
    ///
    /// # Errors
    /// A client cannot be told so.
    pub fn new(code: u32, reason: &str) -> Result<Self, ApplicationCloseError> {
        let number = u16::try_from(code).ok();
        let number = number.filter(|number| matches!(number, 3000..=4999));
        let number = number.ok_or(ApplicationCloseError::Code(code))?;
        if reason.len() > CLOSE_REASON_BYTES_MAX {
            return Err(ApplicationCloseError::ReasonLength(reason.len()));
        }
        if reason.trim_start().starts_with('{') {
            return Err(ApplicationCloseError::ReasonObject);
        }
        let known = || {
            DisconnectCode::ALL
                .iter()
                .find(|known| known.code() == number)
        };
        let reason = match reason {
            "" => known().map_or(APPLICATION_SENTENCE, |known| known.text()),
            reason => reason,
        };
        Ok(Self {
            code: number,
            reason: reason.into(),
        })
    }

    /// Whether the client is told anything: 3000 ends the connection without a word, and the client takes it for a broken one.
    #[must_use]
    pub fn is_told(&self) -> bool {
        self.code != DisconnectCode::ConnectionClosed.code()
    }

    /// The close code.
    #[must_use]
    pub fn code(&self) -> u16 {
        self.code
    }

    /// What the client is told beside the code; never empty.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl From<DisconnectCode> for ApplicationClose {
    fn from(code: DisconnectCode) -> Self {
        Self {
            code: code.code(),
            reason: code.text().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ApplicationClose, ApplicationCloseError, CLOSE_REASON_BYTES_MAX, CloseReason};
    use myriad_wire::centrifuge::DisconnectCode;

    #[test]
    fn an_application_may_say_what_a_close_frame_carries() {
        let told = |code, reason: &str| {
            ApplicationClose::new(code, reason)
                .map(|close| (close.code(), close.reason().to_owned()))
        };
        let longest = "\u{e9}".repeat(CLOSE_REASON_BYTES_MAX / 2) + "!";
        assert_eq!(told(4000, "bye"), Ok((4000, "bye".to_owned())));
        assert_eq!(told(4999, &longest), Ok((4999, longest.clone())));
        assert_eq!(told(3503, ""), Ok((3503, "force disconnect".to_owned())));
        let unnamed = "disconnected by the application".to_owned();
        assert_eq!(told(4500, ""), Ok((4500, unnamed)));
        for code in [0, 1000, 2999, 5000, 65_536 + 4000, u32::MAX] {
            assert_eq!(told(code, "bye"), Err(ApplicationCloseError::Code(code)));
        }
        let too_long = longest + "!";
        assert_eq!(
            told(4000, &too_long),
            Err(ApplicationCloseError::ReasonLength(124))
        );
        let object = " {\"reconnect\":true}";
        assert_eq!(told(4000, object), Err(ApplicationCloseError::ReasonObject));
        for code in DisconnectCode::ALL {
            let close = ApplicationClose::from(*code);
            assert_eq!(ApplicationClose::new(code.code().into(), ""), Ok(close));
        }
    }

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
