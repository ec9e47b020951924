//! What connections speak: the request head first, then one transport each.
//!
//! [`Methods::of`] chooses what an open connection's transport does. Each transport has a file that says what it does: `raw.rs`,
//! `echo.rs`, `centrifuge.rs`, `uni_websocket.rs`. Those over HTTP are all in `over_http.rs`, and those that read streams in
//! `readers.rs`. What the others share of WebSocket is in `websocket.rs`, `frames.rs` and `compressed.rs`. How publications are
//! encoded for a transport is [`Transport::protocol`], because the hub delivers them. Changes what the transport's file changes.

mod admission;
pub(crate) mod centrifuge;
mod compressed;
mod control_plane;
mod echo;
mod frames;
mod over_http;
mod peers;
mod raw;
mod readers;
mod refusals;
mod routing;
mod streams;
mod uni_websocket;
mod websocket;

pub(crate) use peers::{Judged, Peer, Peers};
pub(crate) use refusals::Refused;
pub use routing::{EMULATION, ShardRequests};

use crate::shard::Shard;
use myriad_hub::{ApplicationClose, CloseReason, Now, Transport};
use myriad_reactor::Reactor;
use myriad_wheel::Key;

/// What a transport does with its open connections.
pub(crate) struct Methods<R: Reactor> {
    /// Handles bytes from the client.
    handle_input: fn(&mut Shard<R>, Key, &mut [u8], Now),
    /// The bytes of a ping, the same for all clients. What counts is that something comes back. None where clients differ.
    pub(crate) ping: Option<fn() -> Vec<u8>>,
    /// The last bytes to a client, which say why its connection ends.
    pub(crate) close: fn(CloseReason) -> Vec<u8>,
    /// The last bytes to a client whose connection the application ends.
    pub(crate) application_close: fn(&ApplicationClose) -> Vec<u8>,
}

impl<R: Reactor> Methods<R> {
    /// Of a connection that opened without a transport, which none does.
    const UNOPENED: Self = Self {
        handle_input: Shard::note_unopened,
        ping: None,
        close: |_| Vec::new(),
        application_close: |_| Vec::new(),
    };

    /// The methods of an open connection's transport.
    pub(crate) fn of(transport: Transport) -> Self {
        match transport {
            Transport::Raw => Self::RAW,
            Transport::Echo => Self::ECHO,
            Transport::CentrifugeJson => Self::CENTRIFUGE_JSON,
            Transport::CentrifugeProtobuf => Self::CENTRIFUGE_PROTOBUF,
            Transport::HttpStreamJson => Self::HTTP_STREAM_JSON,
            Transport::HttpStreamProtobuf => Self::HTTP_STREAM_PROTOBUF,
            Transport::Sse => Self::SSE,
            Transport::UniWebSocket => Self::UNI_WEBSOCKET,
            Transport::UniSse => Self::UNI_SSE,
            Transport::UniHttpStream => Self::UNI_HTTP_STREAM,
            Transport::LongPoll => Self::LONG_POLL,
            Transport::Events => Self::EVENTS,
            Transport::Http => Self::UNOPENED,
        }
    }
}

/// The last bytes to a client of this transport, for the reason.
pub(crate) fn close_frame_of<R: Reactor>(transport: Transport, reason: CloseReason) -> Vec<u8> {
    (Methods::<R>::of(transport).close)(reason)
}

/// The close code that clients of a transport are told for the reason, and the words.
pub(crate) fn told(transport: Transport, reason: CloseReason) -> (u16, &'static str) {
    if transport.has_sessions() && reason == CloseReason::Drain {
        (centrifuge::SHUTDOWN.code(), centrifuge::SHUTDOWN.text())
    } else {
        (reason.code(), reason.sentence())
    }
}

impl<R: Reactor> Shard<R> {
    fn note_unopened(&mut self, key: Key, _bytes: &mut [u8], _now: Now) {
        self.note_defect_of(key.index, "a connection opens with a transport");
    }

    /// Bytes of an open connection.
    pub(crate) fn handle_input(&mut self, key: Key, bytes: &mut [u8], now: Now) {
        let methods = Methods::of(self.hub.connection(key.index).transport());
        (methods.handle_input)(self, key, bytes, now);
    }
}
