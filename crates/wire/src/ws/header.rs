//! Reads a frame's header, and checks everything that does not depend on the frames before it.

use super::{CONTROL_BYTES_MAX, Extension, Opcode, ProtocolError, Role};

const RESERVED_BITS: u8 = 0x70;
/// The mark of a compressed message.
pub(super) const RSV1: u8 = 0x40;

/// A frame's header, valid by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) opcode: Opcode,
    pub(super) fin: bool,
    /// RSV1 of a message's first frame, where permessage-deflate was negotiated.
    pub(super) is_compressed: bool,
    /// Zeros if the frame is not masked. The role decides whether to unmask, not this value.
    pub(super) mask: [u8; 4],
    pub(super) payload_bytes: u64,
    /// Bytes of the header itself.
    pub(super) header_bytes: usize,
}

impl Header {
    /// Reads the header at the front of `bytes`. `None` while it is incomplete.
    ///
    /// Each call checks byte by byte from the start. So the error comes with the first wrong byte, and does not depend on
    /// how the bytes were cut.
    pub(super) fn read(
        bytes: &[u8],
        role: Role,
        extension: Extension,
    ) -> Result<Option<Self>, ProtocolError> {
        let [first, after_first @ ..] = bytes else {
            return Ok(None);
        };
        let fin = first & 0x80 != 0;
        let opcode = judge_first(*first, fin, extension)?;
        let [second, rest @ ..] = after_first else {
            return Ok(None);
        };
        judge_second(*second, opcode, role)?;
        let Some((payload_bytes, rest)) = read_length(*second & 0x7f, rest)? else {
            return Ok(None);
        };
        let (mask, rest) = match role {
            Role::Client => ([0; 4], rest),
            Role::Server => match rest.split_first_chunk() {
                Some((mask, rest)) => (*mask, rest),
                None => return Ok(None),
            },
        };
        Ok(Some(Self {
            opcode,
            fin,
            is_compressed: first & RSV1 != 0,
            mask,
            payload_bytes,
            header_bytes: bytes.len() - rest.len(),
        }))
    }
}

fn judge_first(first: u8, fin: bool, extension: Extension) -> Result<Opcode, ProtocolError> {
    let opcode = Opcode::from_bits(first & 0x0f);
    judge_reserved_bits(first, opcode, extension)?;
    let opcode = opcode.ok_or(ProtocolError::ReservedOpcode)?;
    if opcode.is_control() && !fin {
        return Err(ProtocolError::FragmentedControl);
    }
    Ok(opcode)
}

/// Checks RSV1 to RSV3. permessage-deflate allows RSV1 in the first frame of a message, but neither in its other frames
/// nor in control frames (RFC 7692, section 6.1).
fn judge_reserved_bits(
    first: u8,
    opcode: Option<Opcode>,
    extension: Extension,
) -> Result<(), ProtocolError> {
    let begins_message = matches!(opcode, Some(Opcode::Text | Opcode::Binary));
    let allowed = match extension {
        Extension::Deflate if begins_message => RSV1,
        Extension::Deflate | Extension::None => 0,
    };
    if first & RESERVED_BITS & !allowed == 0 {
        Ok(())
    } else {
        Err(ProtocolError::ReservedBits)
    }
}

fn judge_second(second: u8, opcode: Opcode, role: Role) -> Result<(), ProtocolError> {
    match (role, second & 0x80 != 0) {
        (Role::Server, false) => return Err(ProtocolError::Unmasked),
        (Role::Client, true) => return Err(ProtocolError::Masked),
        (Role::Server, true) | (Role::Client, false) => {}
    }
    // 126 and 127 announce longer lengths, which a control frame cannot have either.
    if opcode.is_control() && usize::from(second & 0x7f) > CONTROL_BYTES_MAX {
        return Err(ProtocolError::ControlTooLong);
    }
    Ok(())
}

/// The payload's length and the bytes that follow it. `None` while the length is incomplete.
fn read_length(short: u8, rest: &[u8]) -> Result<Option<(u64, &[u8])>, ProtocolError> {
    let (length, minimum, rest) = match short {
        126 => match rest.split_first_chunk() {
            Some((bytes, rest)) => (u64::from(u16::from_be_bytes(*bytes)), 126, rest),
            None => return Ok(None),
        },
        127 => match rest.split_first_chunk() {
            Some((bytes, rest)) => (u64::from_be_bytes(*bytes), 1 << 16, rest),
            None => return Ok(None),
        },
        _ => (u64::from(short), 0, rest),
    };
    if length >> 63 != 0 {
        return Err(ProtocolError::LengthOutOfRange);
    }
    if length < minimum {
        return Err(ProtocolError::LengthNotMinimal);
    }
    Ok(Some((length, rest)))
}

#[cfg(test)]
mod tests {
    use super::super::frame_header;
    use super::*;

    #[test]
    fn headers_read_back_as_written_and_no_sooner() {
        let opcodes = [
            Opcode::Continuation,
            Opcode::Text,
            Opcode::Binary,
            Opcode::Close,
            Opcode::Ping,
            Opcode::Pong,
        ];
        for opcode in opcodes {
            for length in [0, 1, 125, 126, 127, 65_535, 65_536, (1 << 63) - 1] {
                if opcode.is_control() && length > 125 {
                    continue;
                }
                for (role, mask) in [(Role::Server, Some([9, 8, 7, 6])), (Role::Client, None)] {
                    let written = frame_header(opcode, true, mask, length);
                    for cut in 0..written.len() {
                        assert_eq!(
                            Header::read(&written[..cut], role, Extension::None),
                            Ok(None)
                        );
                    }
                    let mut followed = written.to_vec();
                    followed.extend_from_slice(b"payload");
                    let expected = Header {
                        opcode,
                        fin: true,
                        is_compressed: false,
                        mask: mask.unwrap_or_default(),
                        payload_bytes: length,
                        header_bytes: written.len(),
                    };
                    assert_eq!(
                        Header::read(&followed, role, Extension::None),
                        Ok(Some(expected))
                    );
                }
            }
        }
    }

    #[test]
    fn each_law_is_enforced_at_its_byte() {
        let cases: [(&[u8], Role, ProtocolError); 13] = [
            (&[0xc1], Role::Client, ProtocolError::ReservedBits),
            (&[0xa1], Role::Client, ProtocolError::ReservedBits),
            (&[0x91], Role::Client, ProtocolError::ReservedBits),
            (&[0x83], Role::Client, ProtocolError::ReservedOpcode),
            (&[0x8b], Role::Server, ProtocolError::ReservedOpcode),
            (&[0x09], Role::Server, ProtocolError::FragmentedControl),
            (&[0x81, 0x00], Role::Server, ProtocolError::Unmasked),
            (&[0x81, 0x80], Role::Client, ProtocolError::Masked),
            (&[0x89, 126], Role::Client, ProtocolError::ControlTooLong),
            (&[0x88, 127], Role::Client, ProtocolError::ControlTooLong),
            (
                &[0x82, 126, 0, 125],
                Role::Client,
                ProtocolError::LengthNotMinimal,
            ),
            (
                &[0x82, 127, 0, 0, 0, 0, 0, 0, 0xff, 0xff],
                Role::Client,
                ProtocolError::LengthNotMinimal,
            ),
            (
                &[0x82, 127, 0x80, 0, 0, 0, 0, 0, 0, 0],
                Role::Client,
                ProtocolError::LengthOutOfRange,
            ),
        ];
        for (bytes, role, error) in cases {
            assert_eq!(
                Header::read(bytes, role, Extension::None),
                Err(error),
                "{bytes:x?}"
            );
            assert_eq!(
                Header::read(&bytes[..bytes.len() - 1], role, Extension::None),
                Ok(None),
                "{bytes:x?}"
            );
        }
    }

    #[test]
    fn rsv1_means_something_on_the_first_frame_of_a_message_only() {
        let read = |first: u8| Header::read(&[first, 0], Role::Client, Extension::Deflate);
        for first in [0x41, 0x42, 0xc1, 0xc2] {
            assert!(read(first).unwrap().unwrap().is_compressed, "{first:x}");
        }
        for first in [0x01, 0x82, 0x80, 0x89] {
            assert!(!read(first).unwrap().unwrap().is_compressed, "{first:x}");
        }
        for first in [0x40, 0xc0, 0xc8, 0xc9, 0xca, 0xc3, 0xa1, 0x91, 0xe1, 0xf2] {
            assert_eq!(read(first), Err(ProtocolError::ReservedBits), "{first:x}");
        }
    }
}
