//! Writes frames.

use super::header::RSV1;
use super::{CloseCode, Kind, Opcode, REASON_BYTES_MAX, apply_mask};
use std::ops::Deref;

/// Bytes of the longest header: two, a 64-bit length, a mask.
pub(super) const HEADER_BYTES_MAX: usize = 14;

/// A frame's header, stored inline.
#[derive(Clone, Copy, Debug)]
pub struct FrameHeader {
    length: u8,
    bytes: [u8; HEADER_BYTES_MAX],
}

impl FrameHeader {
    fn push(&mut self, bytes: &[u8]) {
        let start = usize::from(self.length);
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        self.length += u8::try_from(bytes.len()).expect("a header has at most fourteen bytes");
    }
}

impl Deref for FrameHeader {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl AsRef<[u8]> for FrameHeader {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for FrameHeader {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for FrameHeader {}

/// The header of a frame whose payload of `payload_bytes` is sent separately. With a mask, the caller must apply
/// [`apply_mask`] to the payload.
///
/// Clients mask every frame, servers mask no frame (RFC 6455, section 5.1).
#[must_use]
pub fn frame_header(
    opcode: Opcode,
    fin: bool,
    mask: Option<[u8; 4]>,
    payload_bytes: u64,
) -> FrameHeader {
    let mut header = FrameHeader {
        length: 0,
        bytes: [0; HEADER_BYTES_MAX],
    };
    let mask_bit = if mask.is_some() { 0x80 } else { 0 };
    header.push(&[u8::from(fin) << 7 | opcode.bits()]);
    if let Ok(short) = u8::try_from(payload_bytes)
        && short < 126
    {
        header.push(&[mask_bit | short]);
    } else if let Ok(medium) = u16::try_from(payload_bytes) {
        header.push(&[mask_bit | 126]);
        header.push(&medium.to_be_bytes());
    } else {
        header.push(&[mask_bit | 127]);
        header.push(&payload_bytes.to_be_bytes());
    }
    if let Some(mask) = mask {
        header.push(&mask);
    }
    header
}

/// Appends a whole frame.
pub fn encode_frame(
    out: &mut Vec<u8>,
    opcode: Opcode,
    fin: bool,
    mask: Option<[u8; 4]>,
    payload: &[u8],
) {
    let header = frame_header(opcode, fin, mask, payload.len() as u64);
    out.reserve(header.len() + payload.len());
    out.extend_from_slice(&header);
    let start = out.len();
    out.extend_from_slice(payload);
    if let Some(mask) = mask {
        apply_mask(&mut out[start..], mask, 0);
    }
}

/// Appends a whole frame with a compressed message (RFC 7692, section 7.2.1), for a peer that has negotiated it.
pub fn encode_compressed_frame(
    out: &mut Vec<u8>,
    kind: Kind,
    mask: Option<[u8; 4]>,
    payload: &[u8],
) {
    let start = out.len();
    encode_frame(out, kind.into(), true, mask, payload);
    out[start] |= RSV1;
}

/// Appends a close frame. A reason longer than [`REASON_BYTES_MAX`] is cut before the first code point that does not fit.
pub fn encode_close(out: &mut Vec<u8>, code: CloseCode, reason: &str, mask: Option<[u8; 4]>) {
    debug_assert!(code.is_valid_on_wire(), "{code} must not be sent");
    let reason = &reason[..reason.floor_char_boundary(REASON_BYTES_MAX)];
    let mut payload = [0; 2 + REASON_BYTES_MAX];
    payload[..2].copy_from_slice(&code.0.to_be_bytes());
    payload[2..2 + reason.len()].copy_from_slice(reason.as_bytes());
    encode_frame(out, Opcode::Close, true, mask, &payload[..2 + reason.len()]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_take_their_shortest_form() {
        let cases: [(u64, &[u8]); 7] = [
            (0, &[0x82, 0]),
            (125, &[0x82, 125]),
            (126, &[0x82, 126, 0, 126]),
            (65_535, &[0x82, 126, 0xff, 0xff]),
            (65_536, &[0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
            (
                u64::from(u32::MAX) + 1,
                &[0x82, 127, 0, 0, 0, 1, 0, 0, 0, 0],
            ),
            (
                (1 << 63) - 1,
                &[0x82, 127, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            ),
        ];
        for (length, expected) in cases {
            assert_eq!(&*frame_header(Opcode::Binary, true, None, length), expected);
            let masked = frame_header(Opcode::Binary, true, Some([1, 2, 3, 4]), length);
            assert_eq!(masked[1], expected[1] | 0x80);
            assert_eq!(masked[2..], [&expected[2..], &[1, 2, 3, 4]].concat());
        }
    }

    #[test]
    fn a_long_reason_is_cut_between_code_points() {
        let mut out = Vec::new();
        encode_close(&mut out, CloseCode::POLICY, &"é".repeat(100), None);
        assert_eq!(out[..4], [0x88, 124, 0x03, 0xf0]);
        assert_eq!(str::from_utf8(&out[4..]).unwrap(), "é".repeat(61));

        out.clear();
        encode_close(&mut out, CloseCode::NORMAL, "", None);
        assert_eq!(out, [0x88, 2, 0x03, 0xe8]);
    }
}
