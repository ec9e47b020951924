//! WebSocket frames from clients, for every transport that speaks them. Changes `inputs` and `hub`.

use crate::input::{Input, PartialMessage};
use crate::marks::{Happening, hit};
use crate::shard::Shard;
use myriad_hub::{CloseReason, Now, Phase};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::ws::{Decoder, Event, Extension, Kind, Limits, Opcode, ProtocolError, Role};
use std::borrow::Cow;

/// What a transport does with a whole message of its client, after inflating.
pub(super) type MessageHandler<R> = fn(&mut Shard<R>, Key, Kind, &[u8], Now);

/// The whole message, once its last piece has come. `ends` says whether this piece is the first, and whether it is the last.
/// Until then the pieces are kept in `message`. A message in one piece is never copied there.
///
/// A compressed message is kept as it came, within the limit of a message and the process's budget. Inflating it piece by piece
/// would take a window of 32 KiB for each connection that is in the middle of one.
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
    /// Bytes of an open WebSocket. Its whole messages go to `handle_message`. Without one they are ignored: the limits bound
    /// them, and nothing of them is kept.
    pub(super) fn handle_frames(
        &mut self,
        key: Key,
        bytes: &mut [u8],
        handle_message: Option<MessageHandler<R>>,
        now: Now,
    ) {
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
                    let message = &mut partial.message;
                    let handled = self.handle_event(key, event, message, handle_message, now);
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
            && !self.keep_input(key, Input::Frames(partial.into()), now)
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
        handle_message: Option<MessageHandler<R>>,
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
                if !compressed {
                    self.metrics().messages_received.add(u64::from(last));
                    hit!(MessageFragmented if first && !last);
                }
                // An ignored message is gathered only if it is compressed: whether its DEFLATE data is valid shows only in
                // the whole of it.
                if handle_message.is_none() && !compressed {
                    return Ok(());
                }
                let Some(whole) = gathered(bytes, (first, last), message) else {
                    return Ok(());
                };
                let whole = if compressed {
                    Cow::Owned(self.inflate(kind, &whole)?)
                } else {
                    whole
                };
                if let Some(handle_message) = handle_message {
                    handle_message(self, key, kind, &whole, now);
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
}
