//! A second implementation of RFC 6455, slow and without state machines, to compare the decoder with.

use super::{Item, Transcript, inflate_by_the_book};
use crate::ws::{CloseCode, Extension, Kind, Limits, ProtocolError, Role};

/// Reads all the bytes at once, frame by frame, by indices into them.
#[must_use]
pub fn read_by_the_book(
    role: Role,
    extension: Extension,
    limits: &Limits,
    bytes: &[u8],
) -> Transcript {
    let mut reading = Reading {
        transcript: Transcript::default(),
        fragments: 0,
        announced: 0,
        compressed: false,
        closed: false,
    };
    let mut position = 0;
    while !reading.closed {
        match reading.frame(role, extension, limits, &bytes[position..]) {
            Ok(Some(frame_bytes)) => position += frame_bytes,
            Ok(None) => break,
            Err(error) => {
                reading.transcript.error = Some(error);
                break;
            }
        }
    }
    // The decoder returns no piece of a message while all its frames are empty.
    reading
        .transcript
        .unfinished
        .take_if(|(_, message)| message.is_empty());
    reading.transcript
}

struct Reading {
    transcript: Transcript,
    fragments: u64,
    announced: u128,
    compressed: bool,
    closed: bool,
}

impl Reading {
    /// Reads one frame. Returns its length, or `None` if it is incomplete.
    fn frame(
        &mut self,
        role: Role,
        extension: Extension,
        limits: &Limits,
        bytes: &[u8],
    ) -> Result<Option<usize>, ProtocolError> {
        let Some(first) = bytes.first() else {
            return Ok(None);
        };
        let (fin, opcode) = (first >> 7 == 1, first & 15);
        let reserved = first >> 4 & 7;
        let is_marked =
            reserved == 4 && extension == Extension::Deflate && [1, 2].contains(&opcode);
        if reserved != 0 && !is_marked {
            return Err(ProtocolError::ReservedBits);
        }
        if ![0, 1, 2, 8, 9, 10].contains(&opcode) {
            return Err(ProtocolError::ReservedOpcode);
        }
        if opcode >= 8 && !fin {
            return Err(ProtocolError::FragmentedControl);
        }
        let Some(second) = bytes.get(1) else {
            return Ok(None);
        };
        match (role, second >> 7) {
            (Role::Server, 0) => return Err(ProtocolError::Unmasked),
            (Role::Client, 1) => return Err(ProtocolError::Masked),
            _ => {}
        }
        if opcode >= 8 && second & 127 > 125 {
            return Err(ProtocolError::ControlTooLong);
        }
        let length_bytes = match second & 127 {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let Some(long) = bytes.get(2..2 + length_bytes) else {
            return Ok(None);
        };
        let length = match length_bytes {
            0 => u64::from(second & 127),
            _ => long.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
        };
        if length > i64::MAX as u64 {
            return Err(ProtocolError::LengthOutOfRange);
        }
        if length_bytes == 2 && length < 126 || length_bytes == 8 && length < 65_536 {
            return Err(ProtocolError::LengthNotMinimal);
        }
        let mask_bytes = if role == Role::Server { 4 } else { 0 };
        let start = 2 + length_bytes + mask_bytes;
        let Some(mask) = bytes.get(start - mask_bytes..start) else {
            return Ok(None);
        };
        let whole = (bytes.len() - start) as u64 >= length;
        let end = if whole {
            start + usize::try_from(length).expect("within the input")
        } else {
            bytes.len()
        };
        let mut payload = bytes[start..end].to_vec();
        for (index, byte) in payload.iter_mut().enumerate().filter(|_| mask_bytes > 0) {
            *byte ^= mask[index % 4];
        }
        if opcode < 8 {
            self.announce(opcode, is_marked, length, limits)?;
            self.data(&payload, fin && whole, limits)?;
        } else if whole {
            self.control(opcode, payload)?;
        }
        Ok(whole.then_some(end))
    }

    fn announce(
        &mut self,
        opcode: u8,
        is_marked: bool,
        length: u64,
        limits: &Limits,
    ) -> Result<(), ProtocolError> {
        match (opcode, &self.transcript.unfinished) {
            (0, None) => return Err(ProtocolError::UnexpectedContinuation),
            (1 | 2, Some(_)) => return Err(ProtocolError::ExpectedContinuation),
            _ => {}
        }
        self.announced += u128::from(length);
        self.fragments += 1;
        self.compressed |= is_marked;
        let wire_max = |bytes: u64| match self.compressed {
            true => u128::from(bytes) + u128::from(bytes) / 16 + 64,
            false => u128::from(bytes),
        };
        if u128::from(length) > wire_max(limits.frame_bytes_max) {
            return Err(ProtocolError::FrameTooBig);
        }
        if self.announced > wire_max(limits.message_bytes_max) {
            return Err(ProtocolError::MessageTooBig);
        }
        if self.fragments > u64::from(limits.fragments_max) {
            return Err(ProtocolError::TooManyFragments);
        }
        if opcode != 0 {
            let kind = if opcode == 1 {
                Kind::Text
            } else {
                Kind::Binary
            };
            self.transcript.unfinished = Some((kind, Vec::new()));
        }
        Ok(())
    }

    fn data(
        &mut self,
        payload: &[u8],
        ends_message: bool,
        limits: &Limits,
    ) -> Result<(), ProtocolError> {
        let (kind, message) = self
            .transcript
            .unfinished
            .as_mut()
            .expect("a data frame was announced");
        message.extend_from_slice(payload);
        if self.compressed {
            if !ends_message {
                return Ok(());
            }
            *message = inflate_by_the_book(message, limits.message_bytes_max)?.bytes;
        }
        if *kind == Kind::Text
            && let Err(error) = str::from_utf8(message)
            && (ends_message || error.error_len().is_some())
        {
            return Err(ProtocolError::InvalidText);
        }
        if ends_message {
            let (kind, message) = self.transcript.unfinished.take().expect("seen above");
            self.transcript.items.push(Item::Message(kind, message));
            (self.fragments, self.announced, self.compressed) = (0, 0, false);
        }
        Ok(())
    }

    fn control(&mut self, opcode: u8, payload: Vec<u8>) -> Result<(), ProtocolError> {
        let item = match opcode {
            9 => Item::Ping(payload),
            10 => Item::Pong(payload),
            _ => {
                self.closed = true;
                Item::Close(close(payload)?)
            }
        };
        self.transcript.items.push(item);
        Ok(())
    }
}

fn close(mut payload: Vec<u8>) -> Result<Option<(CloseCode, String)>, ProtocolError> {
    if payload.len() == 1 {
        return Err(ProtocolError::TruncatedCloseCode);
    }
    if payload.is_empty() {
        return Ok(None);
    }
    let reason = payload.split_off(2);
    let code = u16::from(payload[0]) * 256 + u16::from(payload[1]);
    let registered = [
        1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014,
    ];
    if !registered.contains(&code) && !(3000..5000).contains(&code) {
        return Err(ProtocolError::InvalidCloseCode);
    }
    let reason = String::from_utf8(reason).map_err(|_| ProtocolError::InvalidCloseReason)?;
    Ok(Some((CloseCode(code), reason)))
}
