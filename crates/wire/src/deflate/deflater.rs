//! Compressing what is sent.

use super::{TAIL, Window};
use flate2::{Compress, Compression, FlushCompress};

/// On zlib's scale from 1 to 9. JSON records come out at 33% of a kibibyte and 19% of 64 of them; level 1 leaves 42% and
/// 31%. Level 6 saves 3% more and takes half as long again, and a whole shard waits for a long message.
const LEVEL: Compression = Compression::new(4);

/// Compresses messages, one at a time.
///
/// Belongs to a thread, not to a connection. zlib's state for a window, some 200 to 350 KiB, is made on first need and
/// kept.
#[derive(Debug, Default)]
pub struct Deflater {
    by_window: [Option<Compress>; Window::COUNT],
}

impl Deflater {
    /// Appends the payload of a compressed message (RFC 7692, section 7.2.1) that peers with this window or a larger one
    /// can inflate; false when that would be no smaller than the message itself, and then nothing is appended.
    #[must_use]
    pub fn deflate(&mut self, window: Window, message: &[u8], out: &mut Vec<u8>) -> bool {
        let compress = self.by_window[window.index()]
            .get_or_insert_with(|| Compress::new_with_window_bits(LEVEL, false, window.bits()));
        compress.reset();
        let start = out.len();
        // Room for a gain and no more: where that is too little zlib stops, and so ends its work early.
        out.resize(start + message.len() + TAIL.len(), 0);
        let outcome = compress.compress(message, &mut out[start..], FlushCompress::Sync);
        let written = usize::try_from(compress.total_out()).expect("written to memory");
        // Room that is left says that the flush is complete.
        let gained = outcome.is_ok()
            && compress.total_in() == message.len() as u64
            && start + written < out.len()
            && out[start..start + written].ends_with(&TAIL);
        out.truncate(if gained {
            start + written - TAIL.len()
        } else {
            start
        });
        gained
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_shrink_is_left_alone() {
        let mut deflater = Deflater::default();
        let mut out = b"before".to_vec();
        let mut seed = 1_u64;
        let mut byte = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed.to_be_bytes()[0]
        };
        let random: Vec<u8> = (0..5000).map(|_| byte()).collect();
        for message in [&b""[..], b"a", b"abc", &random] {
            assert!(!deflater.deflate(Window::MAX, message, &mut out));
            assert_eq!(out, b"before");
        }
        assert!(deflater.deflate(Window::MIN, &[b'a'; 100], &mut out));
        assert!(out.len() < 20 && out.starts_with(b"before"));
    }

    #[test]
    fn no_message_depends_on_the_one_before_it() {
        let mut deflater = Deflater::default();
        let (mut first, mut second) = (Vec::new(), Vec::new());
        let message = b"to be, or not to be, to be, or not to be";
        assert!(deflater.deflate(Window::MAX, message, &mut first));
        assert!(deflater.deflate(Window::MAX, message, &mut second));
        assert_eq!(first, second);
    }
}
