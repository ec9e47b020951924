//! Inflates compressed messages.

use super::TAIL;
use crate::ws::utf8::Utf8;
use crate::ws::{Kind, ProtocolError};
use flate2::{Decompress, FlushDecompress, Status};

/// The omitted end of a message, and an empty final block. Only the way the inflater takes them shows whether the message
/// stopped between two blocks.
const END: [u8; 6] = [TAIL[0], TAIL[1], TAIL[2], TAIL[3], 0x03, 0x00];

/// Blocks marked as final in one message. Behind each the inflater starts again, which costs as much as inflating some
/// hundred bytes, and one of them takes two bytes: a message of 64 KiB could have 32,768. Senders mark one block, or none.
pub(crate) const FINAL_BLOCKS_MAX: usize = 1024;

/// Bytes inflated between two checks of the message's size and text.
const STEP_BYTES: usize = if cfg!(miri) { 512 } else { 16 * 1024 };

/// Inflates messages, one at a time.
///
/// It belongs to a thread, not to a connection. It has a window of 32 KiB and some tables.
#[derive(Debug)]
pub struct Inflater {
    decompress: Decompress,
    /// The output of one step. It is cleared only once: clearing room in the message before each step would cost more
    /// than a short step.
    step: Box<[u8]>,
}

impl Default for Inflater {
    fn default() -> Self {
        // A client may use the largest window, because the server sets no other. One inflater serves all windows.
        Self {
            decompress: Decompress::new(false),
            step: vec![0; STEP_BYTES].into(),
        }
    }
}

impl Inflater {
    /// Inflates a compressed payload (RFC 7692, section 7.2.2), and appends the message. Checks that text is UTF-8.
    ///
    /// `bytes_max` bounds the message while it grows: `out` never gets more than `bytes_max` and one byte of it.
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
            // A limit larger than the address space is no limit.
            bytes_max: usize::try_from(bytes_max)
                .map_or(usize::MAX / 2, |max| max.min(usize::MAX / 2)),
            start: out.len(),
            utf8: Utf8::START,
            out,
        };
        let mut rest = payload;
        if rest.is_empty() {
            // An empty message should have one byte (section 7.2.3.6), but the meaning is clear.
            return Ok(());
        }
        let mut final_blocks = 0;
        let is_whole = loop {
            self.decompress.reset(false);
            let ended = self.run(&mut rest, &mut message)?;
            if !ended {
                break self.ends_between_blocks(&mut message)?;
            }
            // A sender may mark blocks as final (section 7.2.3.4), and continue after such a block.
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

    /// Whether the message is complete: with its omitted end it stops between two blocks, and no byte of that end was
    /// taken for data.
    fn ends_between_blocks(&mut self, message: &mut Message<'_>) -> Result<bool, ProtocolError> {
        let bytes = message.out.len();
        let mut rest = &END[..];
        let ended = self.run(&mut rest, message)?;
        Ok(ended && rest.is_empty() && message.out.len() == bytes)
    }

    /// Inflates until the end of `input` or of a final block. True for the latter.
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
                // All output was written if there is room left.
                Status::Ok | Status::BufError if written < step => return Ok(false),
                Status::Ok | Status::BufError => {}
            }
        }
    }
}

/// A message in progress.
struct Message<'o> {
    kind: Kind,
    bytes_max: usize,
    /// The begin of the message in `out`.
    start: usize,
    utf8: Utf8,
    out: &'o mut Vec<u8>,
}

impl Message<'_> {
    /// Bytes that may still be appended: up to one byte over the limit, which shows that the message is too big.
    fn room(&self) -> usize {
        self.bytes_max + 1 - (self.out.len() - self.start)
    }

    /// Appends the output of a step, and checks it.
    fn append(&mut self, inflated: &[u8]) -> Result<(), ProtocolError> {
        if self.out.capacity() - self.out.len() < inflated.len() {
            // Double the capacity, within the limit, so that a long message is not copied at each step.
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
