//! What every transport over WebSocket sends: pings, pongs, and the close handshake. Changes `hub`; closes connections by the
//! methods of `closing`.

use crate::shard::Shard;
use myriad_hub::{ApplicationClose, CloseReason, Now};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::ws::{CloseCode, Opcode, ProtocolError, encode_close, encode_frame};

/// A ping. Its payload is empty: what counts is that something comes back.
pub(super) fn ping_frame() -> Vec<u8> {
    let mut frame = Vec::with_capacity(2);
    encode_frame(&mut frame, Opcode::Ping, true, None, &[]);
    frame
}

/// The close frame for a connection that we end.
pub(super) fn close_frame(reason: CloseReason) -> Vec<u8> {
    let mut frame = Vec::with_capacity(128);
    encode_close(
        &mut frame,
        CloseCode(reason.code()),
        reason.sentence(),
        None,
    );
    frame
}

/// The close frame for a connection that the application ends; empty where it ends without a word.
pub(super) fn application_close_frame(close: &ApplicationClose) -> Vec<u8> {
    if !close.is_told() {
        return Vec::new();
    }
    let mut frame = Vec::with_capacity(128);
    encode_close(&mut frame, CloseCode(close.code()), close.reason(), None);
    frame
}

impl<R: Reactor> Shard<R> {
    pub(super) fn send_frame(&mut self, key: Key, opcode: Opcode, payload: &[u8], now: Now) {
        let mut frame = Vec::with_capacity(payload.len() + 10);
        encode_frame(&mut frame, opcode, true, None, payload);
        self.queue(key, frame, now);
    }

    /// Answers the client's close frame with its own code (RFC 6455, section 5.5.1), after what is queued.
    pub(super) fn answer_close(&mut self, key: Key, code: Option<CloseCode>, now: Now) {
        let mut frame = Vec::with_capacity(4);
        match code {
            Some(code) => encode_close(&mut frame, code, "", None),
            None => encode_frame(&mut frame, Opcode::Close, true, None, &[]),
        }
        self.close_gracefully(key, CloseReason::Client, frame, now);
    }

    /// Ends a connection whose client broke the protocol, after what is queued.
    pub(super) fn fail(&mut self, key: Key, error: ProtocolError, now: Now) {
        let reason = match error.code() {
            CloseCode::INVALID_PAYLOAD if error == ProtocolError::InvalidDeflate => {
                CloseReason::InvalidDeflate
            }
            CloseCode::INVALID_PAYLOAD => CloseReason::InvalidPayload,
            CloseCode::TOO_BIG => CloseReason::TooBig,
            _ => CloseReason::Protocol,
        };
        let mut frame = Vec::with_capacity(128);
        encode_close(&mut frame, error.code(), error.sentence(), None);
        self.close_gracefully(key, reason, frame, now);
    }
}
