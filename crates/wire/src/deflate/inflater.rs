//! Inflating what was received.

use super::TAIL;
use crate::ws::utf8::Utf8;
use crate::ws::{Kind, ProtocolError};
use flate2::{Decompress, FlushDecompress, Status};

/// The end a message was sent without, and an empty block that is marked as the last one: whether the message stopped
/// between two blocks shows in how that is taken, and in nothing else.
const END: [u8; 6] = [TAIL[0], TAIL[1], TAIL[2], TAIL[3], 0x03, 0x00];

/// Blocks marked as final in one message. Behind each the inflater starts again, which costs as much as inflating some
/// hundred bytes, and one of them takes two bytes: a message of 64 KiB could have 32,768. Senders mark one block, or none.
pub(crate) const FINAL_BLOCKS_MAX: usize = 1024;

/// Bytes inflated before the message's size and text are judged.
const STEP_BYTES: usize = if cfg!(miri) { 512 } else { 16 * 1024 };

/// Inflates messages, one at a time.
///
/// Belongs to a thread, not to a connection: 32 KiB of window and some tables.
#[derive(Debug)]
pub struct Inflater {
    decompress: Decompress,
    /// Where a step's bytes land. Cleared once: clearing room in the message before each step costs more than a short
    /// step itself.
    step: Box<[u8]>,
}

impl Default for Inflater {
    fn default() -> Self {
        // Any client may use the largest window, unless it was told otherwise; one for all of them costs nothing more.
        Self {
            decompress: Decompress::new(false),
            step: vec![0; STEP_BYTES].into(),
        }
    }
}

impl Inflater {
    /// Appends the message whose compressed payload this is (RFC 7692, section 7.2.2). Text is checked to be UTF-8.
    ///
    /// `bytes_max` bounds the message while it grows: `out` never holds more of it than that and one byte.
    ///
    /// # Errors
    /// No DEFLATE data, or cut off; a message over `bytes_max`, or of more than 1024 final blocks; text that is no UTF-8.
    /// `out` may have part of the message then.
    pub fn inflate(
        &mut self,
        kind: Kind,
        payload: &[u8],
        bytes_max: u64,
        out: &mut Vec<u8>,
    ) -> Result<(), ProtocolError> {
        let mut message = Message {
            kind,
            // A limit above what memory can hold is none.
            bytes_max: usize::try_from(bytes_max)
                .map_or(usize::MAX / 2, |max| max.min(usize::MAX / 2)),
            start: out.len(),
            utf8: Utf8::START,
            out,
        };
        let mut rest = payload;
        if rest.is_empty() {
            // It should have been one byte (section 7.2.3.6), but what is meant is plain.
            return Ok(());
        }
        let mut final_blocks = 0;
        let is_whole = loop {
            self.decompress.reset(false);
            let ended = self.run(&mut rest, &mut message)?;
            if !ended {
                break self.ends_between_blocks(&mut message)?;
            }
            // A sender may mark blocks as final (section 7.2.3.4), and go on behind one.
            final_blocks += 1;
            if final_blocks > FINAL_BLOCKS_MAX {
                return Err(ProtocolError::TooManyFinalBlocks);
            }
            if rest.is_empty() {
                break true;
            }
        };
        if !is_whole {
            return Err(ProtocolError::InvalidDeflate);
        }
        message.finish()
    }

    /// Whether the message is whole: with the end it was sent without it stops between two blocks, and nothing of that
    /// end was taken for data.
    fn ends_between_blocks(&mut self, message: &mut Message<'_>) -> Result<bool, ProtocolError> {
        let bytes = message.out.len();
        let mut rest = &END[..];
        let ended = self.run(&mut rest, message)?;
        Ok(ended && rest.is_empty() && message.out.len() == bytes)
    }

    /// Inflates up to the end of `input` or of a final block; true for the latter.
    fn run(&mut self, input: &mut &[u8], message: &mut Message<'_>) -> Result<bool, ProtocolError> {
        loop {
            let step = STEP_BYTES.min(message.room());
            let (had_in, had_out) = (self.decompress.total_in(), self.decompress.total_out());
            let outcome =
                self.decompress
                    .decompress(input, &mut self.step[..step], FlushDecompress::Sync);
            let count = |now: u64, had: u64| usize::try_from(now - had).expect("held in memory");
            let written = count(self.decompress.total_out(), had_out);
            *input = &input[count(self.decompress.total_in(), had_in)..];
            let status = outcome.map_err(|_| ProtocolError::InvalidDeflate)?;
            message.append(&self.step[..written])?;
            match status {
                Status::StreamEnd => return Ok(true),
                // Room that is left says that nothing is held back.
                Status::Ok | Status::BufError if written < step => return Ok(false),
                Status::Ok | Status::BufError => {}
            }
        }
    }
}

/// A message as it grows.
struct Message<'o> {
    kind: Kind,
    bytes_max: usize,
    /// Where it begins in `out`.
    start: usize,
    utf8: Utf8,
    out: &'o mut Vec<u8>,
}

impl Message<'_> {
    /// Bytes that may still come: up to one past the limit, by which a message over it shows.
    fn room(&self) -> usize {
        self.bytes_max + 1 - (self.out.len() - self.start)
    }

    /// Appends what a step has inflated, and judges it.
    fn append(&mut self, inflated: &[u8]) -> Result<(), ProtocolError> {
        if self.out.capacity() - self.out.len() < inflated.len() {
            // As much again as there is, so that a long message is not copied at each step; but within the limit.
            let bytes = self.out.len() - self.start;
            let more = bytes.max(inflated.len()).min(self.room());
            self.out.reserve_exact(more);
        }
        self.out.extend_from_slice(inflated);
        if self.out.len() - self.start > self.bytes_max {
            return Err(ProtocolError::MessageTooBig);
        }
        if self.kind == Kind::Text {
            self.utf8
                .check(inflated)
                .map_err(|_| ProtocolError::InvalidText)?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<(), ProtocolError> {
        match self.kind {
            Kind::Text => self.utf8.finish().map_err(|_| ProtocolError::InvalidText),
            Kind::Binary => Ok(()),
        }
    }
}
