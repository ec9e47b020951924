//! Compressed messages (RFC 7692, permessage-deflate), each by itself.
//!
//! No context is taken over from one message to the next, in either direction: a compressed message can be sent to
//! any number of connections, and between messages nobody keeps a window. So a [`Deflater`] and an [`Inflater`]
//! belong to a thread and serve all its connections, and an idle connection that negotiated compression costs what
//! any other does. What was negotiated is in [`crate::handshake`], what RSV1 means in [`crate::ws`].
//!
//! ```
//! use myriad_wire::deflate::{Deflater, Inflater, Window};
//! use myriad_wire::ws::Kind;
//!
//! let text = "the same words, the same words, the same words, and the same words again";
//! let (mut payload, mut message) = (Vec::new(), Vec::new());
//! assert!(Deflater::default().deflate(Window::MAX, text.as_bytes(), &mut payload));
//! assert!(payload.len() < text.len());
//! Inflater::default().inflate(Kind::Text, &payload, 1024, &mut message)?;
//! assert_eq!(message, text.as_bytes());
//! # Ok::<(), myriad_wire::ws::ProtocolError>(())
//! ```

mod deflater;
mod inflater;

pub use deflater::Deflater;
pub(crate) use inflater::FINAL_BLOCKS_MAX;
pub use inflater::Inflater;

use std::num::NonZeroU8;

/// What every compressed message ends with before it is sent without it (RFC 7692, section 7.2.1): the empty stored
/// block of a sync flush, less its first byte.
const TAIL: [u8; 4] = [0x00, 0x00, 0xff, 0xff];

/// Bytes of a message from which on compressing it may gain anything.
///
/// Of 200 bytes of JSON records zlib saves 59, fewer than the packet's own headers have, and the peer has to inflate them
/// all the same; of a kibibyte it saves two thirds.
pub const DEFLATED_BYTES_MIN: usize = 256;

/// The LZ77 window that a compressed message needs at most, as a power of two (RFC 7692, section 7.1.2).
///
/// 8 is lawful too, but zlib cannot deflate with it (it silently takes 9), so that it is never agreed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Window(NonZeroU8);

impl Window {
    /// 512 bytes.
    pub const MIN: Self = Self(NonZeroU8::new(9).expect("not 0"));
    /// 32 KiB: what is meant when nothing is said.
    pub const MAX: Self = Self(NonZeroU8::new(15).expect("not 0"));
    /// How many windows there are.
    pub const COUNT: usize = 7;

    /// The window of so many bits, 9 to 15.
    #[must_use]
    pub fn new(bits: u8) -> Option<Self> {
        let window = Self(NonZeroU8::new(bits)?);
        (Self::MIN..=Self::MAX).contains(&window).then_some(window)
    }

    /// Its bits, 9 to 15.
    #[must_use]
    pub fn bits(self) -> u8 {
        self.0.get()
    }

    /// Its place among all windows, from 0 for the smallest.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.bits() - Self::MIN.bits())
    }

    /// The window to compress a payload of this size with for a peer that takes this one: no larger than the payload
    /// can use. What comes out is as small, and peers of different windows get the very same frame.
    #[must_use]
    pub fn fitting(self, payload_bytes: usize) -> Self {
        // zlib looks back by this much less than its window.
        const MIN_LOOKAHEAD: usize = 262;
        let used = payload_bytes
            .saturating_add(MIN_LOOKAHEAD)
            .checked_next_power_of_two();
        let bits = used.map_or(u32::MAX, usize::ilog2);
        let bits = u8::try_from(bits).unwrap_or(u8::MAX);
        Self::new(bits.clamp(Self::MIN.bits(), self.bits())).expect("between two windows")
    }

    /// The same, or none for a payload too small to gain by it: below [`DEFLATED_BYTES_MIN`].
    #[must_use]
    pub fn worthwhile(self, payload_bytes: usize) -> Option<Self> {
        (payload_bytes >= DEFLATED_BYTES_MIN).then(|| self.fitting(payload_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_nine_to_fifteen_bits() {
        assert_eq!(Window::new(0), None);
        assert_eq!(Window::new(8), None);
        assert_eq!(Window::new(9), Some(Window::MIN));
        assert_eq!(Window::new(15), Some(Window::MAX));
        assert_eq!(Window::new(16), None);
        assert_eq!(
            (Window::MIN.index(), Window::MAX.index() + 1),
            (0, Window::COUNT)
        );
        assert_eq!(size_of::<Option<Window>>(), 1);
    }

    #[test]
    fn a_small_payload_is_not_worth_compressing() {
        assert_eq!(Window::MAX.worthwhile(DEFLATED_BYTES_MIN - 1), None);
        assert_eq!(
            Window::MAX.worthwhile(DEFLATED_BYTES_MIN),
            Some(Window::MAX.fitting(DEFLATED_BYTES_MIN))
        );
    }

    #[test]
    fn a_window_is_no_larger_than_the_payload_can_use() {
        let cases = [
            (0, 9),
            (250, 9),
            (251, 10),
            (1024, 11),
            (65_536, 15),
            (usize::MAX, 15),
        ];
        for (payload_bytes, bits) in cases {
            assert_eq!(Window::MAX.fitting(payload_bytes).bits(), bits);
            assert_eq!(Window::MIN.fitting(payload_bytes), Window::MIN);
        }
    }
}
