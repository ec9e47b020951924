//! What the last piece said, for the terminals that get the same bytes.

use super::positions::Positions;
use super::reader::{Heard, Progress};

/// Pieces up to this size are remembered whole. Comparing one is cheaper than reading it.
const REMEMBERED_BYTES_MAX: usize = 16 * 1024;

/// The piece seen last that left nothing incomplete, and what it said.
#[derive(Debug)]
pub(super) struct Memory {
    bytes: Vec<u8>,
    /// Whether it belonged to a stream of chunks.
    is_chunked: bool,
    heard: Heard,
    progress: Progress,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            is_chunked: false,
            heard: Heard::default(),
            progress: Progress::Under,
        }
    }
}

impl Memory {
    /// Whether a piece of this size is worth remembering.
    pub(super) fn fits(piece: &[u8]) -> bool {
        piece.len() <= REMEMBERED_BYTES_MAX
    }

    /// Takes what these bytes said, if they are exactly the piece seen last. Give it back with [`Self::give_back`].
    pub(super) fn recall(&mut self, bytes: &[u8], is_chunked: bool) -> Option<(Heard, Progress)> {
        let is_same = bytes == self.bytes && is_chunked == self.is_chunked && !bytes.is_empty();
        is_same.then(|| (std::mem::take(&mut self.heard), self.progress))
    }

    pub(super) fn give_back(&mut self, heard: Heard) {
        self.heard = heard;
    }

    /// Remembers a piece; the position in what it said is held by the memory from now on.
    pub(super) fn remember(
        &mut self,
        (bytes, is_chunked): (&[u8], bool),
        heard: Heard,
        progress: Progress,
        positions: &mut Positions,
    ) {
        if let Some(previous) = self.heard.position {
            positions.release(previous);
        }
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        (self.is_chunked, self.heard, self.progress) = (is_chunked, heard, progress);
    }
}
