//! Whether and how messages to clients are compressed (RFC 7692).

use myriad_wire::deflate::{Deflater, Window};
use myriad_wire::ws::{Kind, encode_compressed_frame};

/// What is agreed to of permessage-deflate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Nothing: offers are declined.
    Off,
    /// Each message by itself, so that all clients of a window share its frame.
    #[default]
    Shared,
}

/// One shard's compressor, for all its connections, with its figures.
#[derive(Debug, Default)]
pub struct Compressor {
    deflater: Deflater,
    payload: Vec<u8>,
    frames: u64,
}

impl Compressor {
    /// Bytes of working memory that are kept from one message to the next.
    const KEPT_BYTES_MAX: usize = 64 * 1024;

    /// The message as one compressed frame; none when that would be no smaller.
    pub fn compress(&mut self, window: Window, kind: Kind, message: &[u8]) -> Option<Vec<u8>> {
        self.payload.clear();
        let is_smaller = self.deflater.deflate(window, message, &mut self.payload);
        let frame = is_smaller.then(|| {
            self.frames += 1;
            let mut frame = Vec::with_capacity(self.payload.len() + 10);
            encode_compressed_frame(&mut frame, kind, None, &self.payload);
            frame
        });
        if self.payload.capacity() > Self::KEPT_BYTES_MAX {
            self.payload = Vec::new();
        }
        frame
    }

    /// Compressed frames made, ever.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.frames
    }
}
