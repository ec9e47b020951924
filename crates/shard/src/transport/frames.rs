//! WebSocket frames from clients, for every transport that speaks them. Changes `inputs` and `hub`.

use crate::input::{Input, PartialMessage};
use crate::marks::{Happening, hit};
use crate::shard::Shard;
use myriad_hub::{CloseReason, Now, Phase, Transport};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::ws::{
    CloseCode, Decoder, Event, Extension, Limits, Opcode, ProtocolError, Role, encode_close,
    encode_frame,
};
use std::borrow::Cow;

/// The whole message once its last piece has come; `ends` says whether this one is the first, and the last. Until then
/// the pieces are kept in `message`; what came in one piece is never copied there.
///
/// Compressed ones are kept as they came, within the limit of a message and the process's budget: to inflate piece by piece
/// would take a window of 32 KiB for each connection in the middle of one.
fn gathered<'a>(
    piece: &'a [u8],
    ends: (bool, bool),
    message: &mut Vec<u8>,
) -> Option<Cow<'a, [u8]>> {
    if ends == (true, true) {
        return Some(Cow::Borrowed(piece));
    }
    message.extend_from_slice(piece);
    let (_, last) = ends;
    // Taken: a client that once sent a large message would hold its memory through the next.
    last.then(|| Cow::Owned(std::mem::take(message)))
}

impl<R: Reactor> Shard<R> {
    /// Bytes of an open connection.
    pub(crate) fn handle_frames(&mut self, key: Key, bytes: &mut [u8], now: Now) {
        let limits = Limits {
            frame_bytes_max: self.settings.message_bytes_max,
            message_bytes_max: self.settings.message_bytes_max,
            fragments_max: self.settings.fragments_max,
        };
        let mut partial = match self.inputs.take(&mut self.hub, key.index) {
            Input::Frames(partial) => {
                hit!(MessageInPieces);
                *partial
            }
            _ => PartialMessage {
                decoder: self.new_decoder(key),
                message: Vec::new(),
            },
        };
        let mut input = bytes;
        while self.hub.connection(key.index).phase == Phase::Open {
            match partial.decoder.next_event(&limits, &mut input) {
                Ok(Some(event)) => {
                    let handled = self.handle_event(key, event, &mut partial.message, now);
                    if let Err(error) = handled {
                        self.fail(key, error, now);
                    }
                }
                Ok(None) => break,
                Err(error) => self.fail(key, error, now),
            }
        }
        let open = self.hub.connection(key.index).phase == Phase::Open;
        if open
            && !partial.decoder.is_idle()
            && !self
                .inputs
                .keep(&mut self.hub, key.index, Input::Frames(partial.into()))
        {
            self.note_happening(key.index, Happening::Overloaded);
            self.close_stream(key, CloseReason::Overloaded, now);
        }
    }

    fn new_decoder(&self, key: Key) -> Decoder {
        let extension = match self.hub.connection(key.index).window() {
            Some(_) => Extension::Deflate,
            None => Extension::None,
        };
        Decoder::with_extension(Role::Server, extension)
    }

    /// Handles one event of a client's stream. An error if a compressed message is not valid, which only inflating shows.
    fn handle_event(
        &mut self,
        key: Key,
        event: Event<'_>,
        message: &mut Vec<u8>,
        now: Now,
    ) -> Result<(), ProtocolError> {
        match event {
            Event::Data {
                kind,
                compressed,
                bytes,
                first,
                last,
            } => {
                let echoes = self.hub.connection(key.index).transport() == Transport::Echo;
                if !compressed {
                    self.metrics().messages_received.add(u64::from(last));
                    hit!(MessageFragmented if first && !last);
                }
                // What a raw client sends is ignored: the limits above bound it, and nothing of it is kept. But whether it is
                // compressed as it says shows only in the whole message.
                if !echoes && !compressed {
                    return Ok(());
                }
                match gathered(bytes, (first, last), message) {
                    Some(whole) if compressed => self.handle_compressed(key, kind, &whole, now)?,
                    Some(whole) => self.echo_message(key, kind, &whole, now),
                    None => {}
                }
            }
            Event::Ping(payload) => self.send_frame(key, Opcode::Pong, &payload, now),
            Event::Pong(_) => {}
            Event::Close(status) => {
                let code = status.map(|(code, _)| code);
                self.answer_close(key, code, now);
            }
        }
        Ok(())
    }

    pub(crate) fn send_frame(&mut self, key: Key, opcode: Opcode, payload: &[u8], now: Now) {
        let mut frame = Vec::with_capacity(payload.len() + 10);
        encode_frame(&mut frame, opcode, true, None, payload);
        self.queue(key, frame, now);
    }

    /// Answers the client's close frame with its own code (RFC 6455, section 5.5.1), after what is queued.
    fn answer_close(&mut self, key: Key, code: Option<CloseCode>, now: Now) {
        let mut frame = Vec::with_capacity(4);
        match code {
            Some(code) => encode_close(&mut frame, code, "", None),
            None => encode_frame(&mut frame, Opcode::Close, true, None, &[]),
        }
        self.close_gracefully(key, CloseReason::Client, frame, now);
    }

    fn fail(&mut self, key: Key, error: ProtocolError, now: Now) {
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
