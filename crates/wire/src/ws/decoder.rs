//! Turns received bytes into events.

use super::encode::HEADER_BYTES_MAX;
use super::header::Header;
use super::utf8::Utf8;
use super::{
    CONTROL_BYTES_MAX, CloseCode, Control, Extension, Kind, Limits, Opcode, ProtocolError, Reason,
    Role, apply_mask,
};

/// One event of a connection's input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'i> {
    /// A piece of a message, pointing into the input.
    ///
    /// A piece ends where the input or a frame ends. A piece of text is checked to be UTF-8, but may begin or end
    /// inside a code point. All pieces together are the whole message. Only the last piece may be empty.
    Data {
        /// The kind of the message, the same in all its pieces.
        kind: Kind,
        /// The message is compressed: its pieces are DEFLATE data (RFC 7692, section 7.2.1) that is not checked yet.
        compressed: bool,
        /// The piece, unmasked.
        bytes: &'i [u8],
        /// The message begins with this piece.
        first: bool,
        /// The message ends with this piece.
        last: bool,
    },
    /// Answer it with a pong of the same payload.
    Ping(Control),
    /// The answer to a ping, or an unsolicited heartbeat.
    Pong(Control),
    /// The peer sends no more frames. Answer with a close frame, unless one was sent before.
    ///
    /// It has no code if the close frame was empty.
    Close(Option<(CloseCode, Reason)>),
}

/// Decodes one direction of one connection.
///
/// Call [`Decoder::next_event`] with each received slice until it returns `None`. Between messages
/// ([`Decoder::is_idle`]) a decoder has the same state as a new one, so a connection needs one only during a message.
/// It is plain data: no pointers, no heap.
///
/// After [`Event::Close`] or an error the decoder discards all further input (RFC 6455, section 5.5.1 and 7.1.7).
#[derive(Clone, Debug)]
pub struct Decoder {
    /// Payload bytes of the current frame that were not received yet.
    frame_bytes_left: u64,
    /// Payload bytes that the frames of the current message have announced so far.
    message_bytes: u64,
    /// Number of frames of the current message so far.
    fragments: u32,
    /// The mask of the current frame, rotated so that its first byte applies to the next payload byte.
    mask: [u8; 4],
    utf8: Utf8,
    message: Message,
    phase: Phase,
    role: Role,
    compression: Compression,
    saved_length: u8,
    /// The received part of an incomplete header or control payload. Never both at the same time.
    saved: [u8; CONTROL_BYTES_MAX],
}

// Few connections are in the middle of a message, but each of them pays for this size.
const _: () = assert!(size_of::<Decoder>() == 160);

/// The state of the current message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    None,
    /// The message has begun, and no piece was returned.
    Fresh(Kind),
    /// The message has begun, and a piece was returned.
    Flowing(Kind),
}

/// Whether compression was negotiated, and whether the current message uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compression {
    NotNegotiated,
    /// Negotiated, but the current message, if any, does not use it.
    Idle,
    /// The current message is compressed.
    Current,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Header,
    Payload(Payload),
    Ended,
}

/// The kind of the current frame's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Payload {
    Data {
        /// The message ends with this frame.
        last: bool,
    },
    Control(ControlKind),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ControlKind {
    Close,
    Ping,
    Pong,
}

impl Decoder {
    /// A decoder for the beginning of a connection, or between two messages.
    #[must_use]
    pub fn new(role: Role) -> Self {
        Self::with_extension(role, Extension::None)
    }

    /// The same for a connection that has negotiated an extension.
    #[must_use]
    pub fn with_extension(role: Role, extension: Extension) -> Self {
        Self {
            frame_bytes_left: 0,
            message_bytes: 0,
            fragments: 0,
            mask: [0; 4],
            utf8: Utf8::START,
            message: Message::None,
            phase: Phase::Header,
            role,
            compression: match extension {
                Extension::None => Compression::NotNegotiated,
                Extension::Deflate => Compression::Idle,
            },
            saved_length: 0,
            saved: [0; CONTROL_BYTES_MAX],
        }
    }

    /// Whether the decoder is between messages and has saved nothing. A caller may drop it and make a new one when more
    /// bytes arrive.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.phase == Phase::Header && self.message == Message::None && self.saved_length == 0
    }

    /// Takes the next event from the front of `input`, unmasking in place. `None` when `input` is used up.
    ///
    /// `limits` must not change during a message. A piece of data is returned as soon as it arrives. A control payload is
    /// returned when it is complete.
    ///
    /// # Errors
    /// The peer broke the protocol or a limit. The rest of the input is discarded.
    pub fn next_event<'i>(
        &mut self,
        limits: &Limits,
        input: &mut &'i mut [u8],
    ) -> Result<Option<Event<'i>>, ProtocolError> {
        let outcome = self.advance(limits, input);
        if outcome.is_err() {
            self.phase = Phase::Ended;
            *input = &mut [];
        }
        outcome
    }

    fn advance<'i>(
        &mut self,
        limits: &Limits,
        input: &mut &'i mut [u8],
    ) -> Result<Option<Event<'i>>, ProtocolError> {
        loop {
            let payload = match self.phase {
                Phase::Payload(payload) => payload,
                Phase::Header => match self.read_header(limits, input)? {
                    Some(payload) => payload,
                    None => return Ok(None),
                },
                Phase::Ended => {
                    *input = &mut [];
                    return Ok(None);
                }
            };
            let event = match payload {
                Payload::Data { last } => self.read_data(last, input)?,
                Payload::Control(kind) => self.read_control(kind, input)?,
            };
            if event.is_some() || input.is_empty() {
                return Ok(event);
            }
        }
    }

    /// Reads a header, without copying it if the input contains all of it. `None` if the input ends before it does.
    fn read_header(
        &mut self,
        limits: &Limits,
        input: &mut &mut [u8],
    ) -> Result<Option<Payload>, ProtocolError> {
        let saved = usize::from(self.saved_length);
        let extension = match self.compression {
            Compression::NotNegotiated => Extension::None,
            Compression::Idle | Compression::Current => Extension::Deflate,
        };
        let header = if saved == 0 {
            Header::read(input, self.role, extension)?
        } else {
            let mut joined = [0; HEADER_BYTES_MAX];
            let more = input.len().min(HEADER_BYTES_MAX - saved);
            joined[..saved].copy_from_slice(&self.saved[..saved]);
            joined[saved..saved + more].copy_from_slice(&input[..more]);
            Header::read(&joined[..saved + more], self.role, extension)?
        };
        let Some(header) = header else {
            let rest = take_front(input, input.len());
            self.save(rest);
            return Ok(None);
        };
        take_front(input, header.header_bytes - saved);
        self.saved_length = 0;
        self.begin_frame(&header, limits).map(Some)
    }

    /// Checks a header against the frames before it, and makes its frame the current one.
    fn begin_frame(&mut self, header: &Header, limits: &Limits) -> Result<Payload, ProtocolError> {
        let payload = match header.opcode {
            Opcode::Close => Payload::Control(ControlKind::Close),
            Opcode::Ping => Payload::Control(ControlKind::Ping),
            Opcode::Pong => Payload::Control(ControlKind::Pong),
            Opcode::Continuation | Opcode::Text | Opcode::Binary => {
                self.judge_fragment(header, limits)?;
                Payload::Data { last: header.fin }
            }
        };
        self.frame_bytes_left = header.payload_bytes;
        self.mask = header.mask;
        self.phase = Phase::Payload(payload);
        Ok(payload)
    }

    /// Counts a data frame against the limits at its header, before its payload is received.
    fn judge_fragment(&mut self, header: &Header, limits: &Limits) -> Result<(), ProtocolError> {
        self.message = match (header.opcode, self.message) {
            (Opcode::Continuation, Message::None) => {
                return Err(ProtocolError::UnexpectedContinuation);
            }
            (Opcode::Continuation, open) => open,
            (Opcode::Text, Message::None) => Message::Fresh(Kind::Text),
            (_, Message::None) => Message::Fresh(Kind::Binary),
            (_, _) => return Err(ProtocolError::ExpectedContinuation),
        };
        if header.is_compressed {
            self.compression = Compression::Current;
        }
        let limits = self.wire_limits(limits);
        if header.payload_bytes > limits.frame_bytes_max {
            return Err(ProtocolError::FrameTooBig);
        }
        self.message_bytes = self.message_bytes.saturating_add(header.payload_bytes);
        if self.message_bytes > limits.message_bytes_max {
            return Err(ProtocolError::MessageTooBig);
        }
        self.fragments = self.fragments.saturating_add(1);
        if self.fragments > limits.fragments_max {
            return Err(ProtocolError::TooManyFragments);
        }
        Ok(())
    }

    /// Maximum number of bytes of the current message on the wire.
    fn wire_limits(&self, limits: &Limits) -> Limits {
        if self.compression != Compression::Current {
            return *limits;
        }
        let more = |bytes: u64| bytes.saturating_add(bytes / 16).saturating_add(64);
        Limits {
            frame_bytes_max: more(limits.frame_bytes_max),
            message_bytes_max: more(limits.message_bytes_max),
            fragments_max: limits.fragments_max,
        }
    }

    /// Returns the input's part of the current data frame. `None` if that makes no event.
    fn read_data<'i>(
        &mut self,
        last_frame: bool,
        input: &mut &'i mut [u8],
    ) -> Result<Option<Event<'i>>, ProtocolError> {
        let (Message::Fresh(kind) | Message::Flowing(kind)) = self.message else {
            unreachable!("a data frame is current only inside a message");
        };
        let bytes = self.take_payload(input);
        let frame_ended = self.frame_bytes_left == 0;
        let last = frame_ended && last_frame;
        let compressed = self.compression == Compression::Current;
        if kind == Kind::Text && !compressed {
            self.utf8
                .check(bytes)
                .map_err(|_| ProtocolError::InvalidText)?;
            if last {
                self.utf8.finish().map_err(|_| ProtocolError::InvalidText)?;
            }
        }
        if frame_ended {
            self.phase = Phase::Header;
        }
        if bytes.is_empty() && !last {
            return Ok(None);
        }
        let first = self.message == Message::Fresh(kind);
        if last {
            self.message = Message::None;
            self.message_bytes = 0;
            self.fragments = 0;
            if compressed {
                self.compression = Compression::Idle;
            }
        } else {
            self.message = Message::Flowing(kind);
        }
        Ok(Some(Event::Data {
            kind,
            compressed,
            bytes,
            first,
            last,
        }))
    }

    /// Returns the current control frame when its payload is complete.
    fn read_control<'i>(
        &mut self,
        kind: ControlKind,
        input: &mut &'i mut [u8],
    ) -> Result<Option<Event<'i>>, ProtocolError> {
        let bytes = self.take_payload(input);
        let control = if self.saved_length == 0 && self.frame_bytes_left == 0 {
            Control::new(bytes)
        } else {
            self.save(bytes);
            if self.frame_bytes_left > 0 {
                return Ok(None);
            }
            Control::new(&self.saved[..usize::from(self.saved_length)])
        };
        let control = control.expect("a longer control frame was refused by its header");
        self.saved_length = 0;
        self.phase = Phase::Header;
        Ok(Some(match kind {
            ControlKind::Ping => Event::Ping(control),
            ControlKind::Pong => Event::Pong(control),
            ControlKind::Close => {
                self.phase = Phase::Ended;
                Event::Close(read_close(&control)?)
            }
        }))
    }

    /// Takes the input's part of the current payload, and unmasks it.
    fn take_payload<'i>(&mut self, input: &mut &'i mut [u8]) -> &'i mut [u8] {
        let count = usize::try_from(self.frame_bytes_left)
            .map_or(input.len(), |left| left.min(input.len()));
        let bytes = take_front(input, count);
        self.frame_bytes_left -= count as u64;
        if self.role == Role::Server {
            apply_mask(bytes, self.mask, 0);
            self.mask.rotate_left(count % 4);
        }
        bytes
    }

    fn save(&mut self, bytes: &[u8]) {
        let start = usize::from(self.saved_length);
        self.saved[start..start + bytes.len()].copy_from_slice(bytes);
        self.saved_length = u8::try_from(start + bytes.len()).expect("at most 125 bytes are saved");
    }
}

/// The code and reason of a close payload (RFC 6455, section 5.5.1).
fn read_close(payload: &[u8]) -> Result<Option<(CloseCode, Reason)>, ProtocolError> {
    match payload {
        [] => Ok(None),
        [_] => Err(ProtocolError::TruncatedCloseCode),
        [high, low, reason @ ..] => {
            let code = CloseCode(u16::from_be_bytes([*high, *low]));
            if !code.is_valid_on_wire() {
                return Err(ProtocolError::InvalidCloseCode);
            }
            let text = str::from_utf8(reason).map_err(|_| ProtocolError::InvalidCloseReason)?;
            Ok(Some((
                code,
                Reason::new(text).expect("a control payload less two bytes fits"),
            )))
        }
    }
}

/// Splits `count` bytes off the front of the input.
fn take_front<'i>(input: &mut &'i mut [u8], count: usize) -> &'i mut [u8] {
    let (front, rest) = std::mem::take(input).split_at_mut(count);
    *input = rest;
    front
}
