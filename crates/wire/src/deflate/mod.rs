//! Compressed messages (RFC 7692, permessage-deflate), without context takeover.
//!
//! Every message is compressed by itself, in both directions. So a compressed message can be sent to any number of
//! connections, and a connection keeps no window between messages. A [`Deflater`] and an [`Inflater`] belong to a thread
//! and serve all its connections. An idle connection with compression costs as much as one without. [`crate::handshake`]
//! negotiates compression, [`crate::ws`] handles RSV1.
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

/// The end of every compressed message, which the sender omits (RFC 7692, section 7.2.1): the empty stored block of a sync
/// flush without its first byte.
const TAIL: [u8; 4] = [0x00, 0x00, 0xff, 0xff];

/// Minimum size of a message to be compressed.
///
/// Of 200 bytes of JSON records zlib saves 59, fewer than a packet's headers have, and the peer must still inflate them.
/// Of 1 KiB it saves two thirds.
pub const DEFLATED_BYTES_MIN: usize = 256;

/// The largest LZ77 window that a compressed message needs, as a power of two (RFC 7692, section 7.1.2).
///
/// 8 is valid too, but zlib cannot deflate with it (it silently uses 9), so it is always declined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Window(NonZeroU8);

impl Window {
    /// 512 bytes.
    pub const MIN: Self = Self(NonZeroU8::new(9).expect("not 0"));
    /// 32 KiB, the default.
    pub const MAX: Self = Self(NonZeroU8::new(15).expect("not 0"));
    /// The number of different windows.
    pub const COUNT: usize = 7;

    /// The window with this many bits, 9 to 15.
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

    /// Its index among all windows, from 0 for the smallest.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.bits() - Self::MIN.bits())
    }

    /// The smallest window that compresses a payload of this size as well as `self`. So peers with different windows
    /// share the same frame.
    #[must_use]
    pub fn fitting(self, payload_bytes: usize) -> Self {
        // zlib's longest distance is this much shorter than its window.
        const MIN_LOOKAHEAD: usize = 262;
        let used = payload_bytes
            .saturating_add(MIN_LOOKAHEAD)
            .checked_next_power_of_two();
        let bits = used.map_or(u32::MAX, usize::ilog2);
        let bits = u8::try_from(bits).unwrap_or(u8::MAX);
        Self::new(bits.clamp(Self::MIN.bits(), self.bits())).expect("between two windows")
    }

    /// The same, or none for a payload below [`DEFLATED_BYTES_MIN`].
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
