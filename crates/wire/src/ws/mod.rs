//! WebSocket frames (RFC 6455, sections 5 to 8), and the mark of compressed messages (RFC 7692, section 6).
//!
//! A [`Decoder`] turns received bytes into [`Event`]s that point into them. [`encode_frame`] and [`encode_close`] write
//! frames. [`frame_header`] writes only a header, for a gathered write with a payload from elsewhere. Pass the data of a
//! complete compressed message to [`crate::deflate`].
//!
//! ```
//! use myriad_wire::ws::{Decoder, Event, Kind, Limits, Opcode, Role, encode_frame};
//!
//! let mut received = Vec::new();
//! encode_frame(&mut received, Opcode::Text, true, Some([1, 2, 3, 4]), b"hello");
//! encode_frame(&mut received, Opcode::Ping, true, Some([5, 6, 7, 8]), b"?");
//!
//! let (mut text, mut reply) = (Vec::new(), Vec::new());
//! let mut decoder = Decoder::new(Role::Server);
//! let mut input = &mut received[..];
//! while let Some(event) = decoder.next_event(&Limits::default(), &mut input)? {
//!     match event {
//!         Event::Data { kind: Kind::Text, bytes, .. } => text.extend_from_slice(bytes),
//!         Event::Ping(payload) => encode_frame(&mut reply, Opcode::Pong, true, None, &payload),
//!         _ => {}
//!     }
//! }
//! assert_eq!((&text[..], &reply[..]), (&b"hello"[..], &[0x8a, 1, b'?'][..]));
//! assert!(decoder.is_idle());
//! # Ok::<(), myriad_wire::ws::ProtocolError>(())
//! ```

mod close;
mod control;
mod decoder;
mod encode;
mod error;
mod header;
mod mask;
pub(crate) mod utf8;

pub use close::CloseCode;
pub use control::{Control, Reason};
pub use decoder::{Decoder, Event};
pub use encode::{FrameHeader, encode_close, encode_compressed_frame, encode_frame, frame_header};
pub use error::ProtocolError;
pub use mask::apply_mask;

/// Maximum payload of a control frame (RFC 6455, section 5.5).
pub const CONTROL_BYTES_MAX: usize = 125;

/// Maximum length of a close reason: [`CONTROL_BYTES_MAX`] without the code.
pub const REASON_BYTES_MAX: usize = CONTROL_BYTES_MAX - 2;

/// The kind of a frame (RFC 6455, section 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Opcode {
    /// Continues the message that a text or binary frame began.
    Continuation,
    /// A text message, or its beginning.
    Text,
    /// A binary message, or its beginning.
    Binary,
    /// The last frame of this direction.
    Close,
    /// Asks for a pong with the same payload.
    Ping,
    /// Answers a ping, or is an unsolicited heartbeat.
    Pong,
}

impl Opcode {
    /// The opcode as it is on the wire.
    #[must_use]
    pub fn bits(self) -> u8 {
        match self {
            Self::Continuation => 0x0,
            Self::Text => 0x1,
            Self::Binary => 0x2,
            Self::Close => 0x8,
            Self::Ping => 0x9,
            Self::Pong => 0xa,
        }
    }

    /// The opcode with these four bits. `None` for the ten reserved values.
    #[must_use]
    pub fn from_bits(bits: u8) -> Option<Self> {
        Some(match bits {
            0x0 => Self::Continuation,
            0x1 => Self::Text,
            0x2 => Self::Binary,
            0x8 => Self::Close,
            0x9 => Self::Ping,
            0xa => Self::Pong,
            _ => return None,
        })
    }

    /// Close, ping or pong: never fragmented, and allowed between the fragments of a message.
    #[must_use]
    pub fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// UTF-8.
    Text,
    /// Any bytes.
    Binary,
}

impl From<Kind> for Opcode {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Text => Self::Text,
            Kind::Binary => Self::Binary,
        }
    }
}

/// Which end of the connection decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Receives masked frames only.
    Server,
    /// Receives unmasked frames only.
    Client,
}

/// The negotiated extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extension {
    /// Nothing.
    None,
    /// permessage-deflate (RFC 7692) without context takeover: messages may be compressed.
    Deflate,
}

/// Limits of a peer's messages. Beyond one of them the connection is closed with 1009.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Payload bytes of one data frame.
    ///
    /// For this limit and the next, a compressed message may have a sixteenth and 64 bytes more on the wire, because
    /// incompressible data gets larger. [`crate::deflate::Inflater`] applies the limit itself to the inflated message.
    pub frame_bytes_max: u64,
    /// Payload bytes of one message, all its frames together.
    pub message_bytes_max: u64,
    /// Frames of one message. Bounds the cost of empty fragments, which no limit of bytes does.
    pub fragments_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes_max: 64 * 1024,
            message_bytes_max: 64 * 1024,
            fragments_max: 1024,
        }
    }
}
