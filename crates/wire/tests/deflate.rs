//! Compressed messages: the examples of RFC 7692, section 7.2.3, what other deflaters make, damage, and bombs.

use flate2::{Compress, Compression, FlushCompress};
use myriad_wire::deflate::{Deflater, Inflater, Window};
use myriad_wire::fuzzing::{Item, check_deflated, check_extended_frames, check_inflated};
use myriad_wire::ws::{
    CloseCode, Extension, Kind, Limits, Opcode, ProtocolError, Role, encode_compressed_frame,
    encode_frame,
};
use proptest::prelude::*;

/// What is large here is smaller by this in Miri, which compresses less than a KiB a second.
const SHRINK: usize = if cfg!(miri) { 32 } else { 1 };

/// Reads the frames in every cut.
fn read(bytes: &[u8]) -> Result<Vec<Item>, ProtocolError> {
    let transcript =
        check_extended_frames(Role::Client, Extension::Deflate, &Limits::default(), bytes);
    match transcript.error {
        Some(error) => Err(error),
        None => Ok(transcript.items),
    }
}

fn text(text: &str) -> Item {
    Item::Message(Kind::Text, text.as_bytes().to_vec())
}

fn compressed(kind: Kind, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_compressed_frame(&mut bytes, kind, None, payload);
    bytes
}

mod examples_of_the_rfc {
    use super::*;

    const HELLO: [u8; 9] = [0xc1, 0x07, 0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];

    #[test]
    fn one_block() {
        assert_eq!(read(&HELLO), Ok(vec![text("Hello")]));
        assert_eq!(compressed(Kind::Text, &HELLO[2..]), HELLO);
        let fragments = [
            0x41, 0x03, 0xf2, 0x48, 0xcd, 0x80, 0x04, 0xc9, 0xc9, 0x07, 0x00,
        ];
        assert_eq!(read(&fragments), Ok(vec![text("Hello")]));
    }

    /// Such a message refers to the one before it, which is not allowed without context takeover.
    #[test]
    fn a_shared_window_is_refused() {
        let frames = [&HELLO[..], &[0xc1, 0x05, 0xf2, 0x00, 0x11, 0x00, 0x00]].concat();
        assert_eq!(read(&frames), Err(ProtocolError::InvalidDeflate));
    }

    #[test]
    fn a_block_without_compression() {
        let bytes = [
            0xc1, 0x0b, 0x00, 0x05, 0x00, 0xfa, 0xff, 0x48, 0x65, 0x6c, 0x6c, 0x6f, 0x00,
        ];
        assert_eq!(read(&bytes), Ok(vec![text("Hello")]));
    }

    #[test]
    fn a_final_block() {
        let bytes = [0xc1, 0x08, 0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00];
        assert_eq!(read(&bytes), Ok(vec![text("Hello")]));
        // As some send it, without the byte that should follow.
        assert_eq!(
            read(&compressed(Kind::Text, &bytes[2..9])),
            Ok(vec![text("Hello")])
        );
        let twice = [&bytes[2..9], &bytes[2..]].concat();
        assert_eq!(
            read(&compressed(Kind::Text, &twice)),
            Ok(vec![text("HelloHello")])
        );
    }

    #[test]
    fn two_blocks() {
        let bytes = [
            0xc1, 0x0d, 0xf2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xff, 0xff, 0xca, 0xc9, 0xc9, 0x07,
            0x00,
        ];
        assert_eq!(read(&bytes), Ok(vec![text("Hello")]));
    }

    #[test]
    fn an_empty_message() {
        assert_eq!(read(&[0xc1, 0x01, 0x00]), Ok(vec![text("")]));
        assert_eq!(read(&[0xc1, 0x00]), Ok(vec![text("")]));
        assert_eq!(read(&[0x41, 0x00, 0x80, 0x01, 0x00]), Ok(vec![text("")]));
    }
}

mod framing {
    use super::*;

    #[test]
    fn the_mark_stands_on_the_first_frame_of_a_message_alone() {
        let payload = [0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];
        let mut continued = vec![0x41, 0x03];
        continued.extend_from_slice(&payload[..3]);
        continued.extend_from_slice(&[0xc0, 0x04]);
        continued.extend_from_slice(&payload[3..]);
        assert_eq!(read(&continued), Err(ProtocolError::ReservedBits));
        for control in [0xc8, 0xc9, 0xca] {
            assert_eq!(read(&[control, 0]), Err(ProtocolError::ReservedBits));
        }
        for reserved in [0xa1, 0x91, 0xe1, 0xd1] {
            assert_eq!(read(&[reserved, 0]), Err(ProtocolError::ReservedBits));
        }
    }

    #[test]
    fn plain_messages_and_control_frames_go_between() {
        let payload = [0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];
        let mut bytes = vec![0x41, 0x03];
        bytes.extend_from_slice(&payload[..3]);
        encode_frame(&mut bytes, Opcode::Ping, true, None, b"?");
        bytes.extend_from_slice(&[0x80, 0x04]);
        bytes.extend_from_slice(&payload[3..]);
        encode_frame(&mut bytes, Opcode::Text, true, None, b"plain");
        bytes.extend(compressed(Kind::Binary, &payload));
        let expected = [
            Item::Ping(b"?".to_vec()),
            text("Hello"),
            text("plain"),
            Item::Message(Kind::Binary, b"Hello".to_vec()),
        ];
        assert_eq!(read(&bytes), Ok(expected.to_vec()));
    }

    #[test]
    fn without_negotiation_the_mark_is_an_error() {
        let bytes = compressed(Kind::Text, &[0]);
        let limits = Limits::default();
        let read = check_extended_frames(Role::Client, Extension::None, &limits, &bytes);
        assert_eq!(read.error, Some(ProtocolError::ReservedBits));
    }
}

mod refusals {
    use super::*;

    fn error_of(kind: Kind, payload: &[u8]) -> Option<ProtocolError> {
        read(&compressed(kind, payload)).err()
    }

    #[test]
    fn damaged_or_cut_data_closes_with_1007() {
        let mut whole = Vec::new();
        let message = "some text, some more text, and some text again".repeat(3);
        assert!(Deflater::default().deflate(Window::MAX, message.as_bytes(), &mut whole));
        for end in (1..whole.len()).step_by(if cfg!(miri) { 8 } else { 1 }) {
            assert_eq!(
                error_of(Kind::Binary, &whole[..end]),
                Some(ProtocolError::InvalidDeflate),
                "cut at {end}"
            );
        }
        for payload in [
            &[0x07][..],
            &[0xff; 20],
            b"not compressed at all",
            &[0, 4, 0, 0xfb, 0xff],
        ] {
            assert_eq!(
                error_of(Kind::Binary, payload),
                Some(ProtocolError::InvalidDeflate)
            );
        }
        assert_eq!(
            ProtocolError::InvalidDeflate.code(),
            CloseCode::INVALID_PAYLOAD
        );
    }

    #[test]
    fn text_is_checked_once_it_is_inflated() {
        for bad in [
            &b"good and then \xff, and good again"[..],
            b"cut off \xe2\x82",
        ] {
            let stored = stored_blocks(bad);
            assert_eq!(
                error_of(Kind::Text, &stored),
                Some(ProtocolError::InvalidText)
            );
            assert_eq!(error_of(Kind::Binary, &stored), None);
        }
        // Longer than a step of the inflater, whose ends fall inside of code points.
        let long = "€".repeat(20_000 / SHRINK);
        assert_eq!(
            read(&compressed(Kind::Text, &stored_blocks(long.as_bytes()))),
            Ok(vec![text(&long)])
        );
    }

    /// A message in blocks without compression.
    fn stored_blocks(message: &[u8]) -> Vec<u8> {
        let mut payload = Vec::new();
        for block in message.chunks(40_000) {
            let length = u16::try_from(block.len()).expect("at most 40,000");
            payload.push(0);
            payload.extend(length.to_le_bytes());
            payload.extend((!length).to_le_bytes());
            payload.extend(block);
        }
        payload.push(0);
        payload
    }
}

mod bombs {
    use super::*;

    /// So many zeros, compressed as tightly as DEFLATE can: a thousandth of it.
    fn zeros(bytes: usize) -> Vec<u8> {
        let mut payload = Vec::with_capacity(bytes / 900 + 100);
        Compress::new(Compression::best(), false)
            .compress_vec(&vec![0; bytes], &mut payload, FlushCompress::Sync)
            .expect("room enough");
        assert!(payload.ends_with(&[0, 0, 0xff, 0xff]));
        payload.truncate(payload.len() - 4);
        payload
    }

    #[test]
    fn a_message_over_the_limit_is_given_up_while_it_grows() {
        const BOMB_BYTES: usize = if cfg!(miri) { 4000 } else { 50 << 20 };
        let bomb = zeros(BOMB_BYTES);
        assert!(bomb.len() < 64 * 1024, "it passes as a message");
        let limits = [0, 1, 200, 64 * 1024, 1 << 20].into_iter();
        for bytes_max in limits.filter(|bytes_max| *bytes_max < BOMB_BYTES as u64) {
            let mut out = Vec::new();
            let outcome = Inflater::default().inflate(Kind::Binary, &bomb, bytes_max, &mut out);
            assert_eq!(outcome, Err(ProtocolError::MessageTooBig));
            assert!(out.capacity() as u64 <= bytes_max + 1);
        }
        assert_eq!(ProtocolError::MessageTooBig.code(), CloseCode::TOO_BIG);
    }

    #[test]
    fn the_limit_is_exact() {
        const BYTES: usize = 70_000 / SHRINK;
        let payload = zeros(BYTES);
        let inflate = |bytes_max| {
            let mut out = Vec::new();
            let outcome = Inflater::default().inflate(Kind::Binary, &payload, bytes_max, &mut out);
            outcome.map(|()| out.len())
        };
        assert_eq!(inflate(BYTES as u64), Ok(BYTES));
        assert_eq!(inflate(u64::MAX), Ok(BYTES));
        assert_eq!(inflate(BYTES as u64 - 1), Err(ProtocolError::MessageTooBig));
    }

    /// What does not compress is larger on the wire than the message, which is no fault of its sender.
    #[test]
    fn a_message_of_the_limit_passes_though_it_does_not_compress() {
        let limits = Limits {
            frame_bytes_max: 1000,
            message_bytes_max: 1000,
            fragments_max: 4,
        };
        let read = |bytes: usize| {
            let mut payload = vec![0];
            let length = u16::try_from(bytes).expect("some thousand");
            payload.extend(length.to_le_bytes());
            payload.extend((!length).to_le_bytes());
            payload.extend(vec![7; bytes]);
            payload.push(0);
            let frame = compressed(Kind::Binary, &payload);
            check_extended_frames(Role::Client, Extension::Deflate, &limits, &frame).error
        };
        assert_eq!(read(1000), None);
        assert_eq!(read(1001), Some(ProtocolError::MessageTooBig));
        assert_eq!(read(1200), Some(ProtocolError::FrameTooBig));
    }

    /// A block marked as final ends the stream, and the next begins a new one. The bound is on how many there are: each
    /// costs a new beginning, and takes two bytes.
    #[test]
    fn final_blocks_are_bounded() {
        let inflate = |count: usize| {
            let payload = [0x03, 0x00].repeat(count);
            Inflater::default().inflate(Kind::Text, &payload, 100, &mut Vec::new())
        };
        assert_eq!(inflate(1024), Ok(()));
        for count in [1025, 32 * 1024] {
            assert_eq!(inflate(count), Err(ProtocolError::TooManyFinalBlocks));
        }
        let frame = compressed(Kind::Text, &[0x03, 0x00].repeat(1025));
        assert_eq!(read(&frame), Err(ProtocolError::TooManyFinalBlocks));
        assert_eq!(ProtocolError::TooManyFinalBlocks.code(), CloseCode::TOO_BIG);
    }
}

/// Whatever zlib offers its users to end a piece with, the message passes, also when each byte is a piece.
#[test]
fn every_way_to_flush_is_read() {
    let message: Vec<u8> = (0..7_u8).cycle().take(1000 / SHRINK).collect();
    for flush in [
        FlushCompress::None,
        FlushCompress::Partial,
        FlushCompress::Sync,
        FlushCompress::Full,
        FlushCompress::Finish,
    ] {
        for piece_bytes in [1, 2, 30, message.len()] {
            let payload = flushed(&message, flush, piece_bytes);
            let mut out = Vec::new();
            let outcome = Inflater::default().inflate(Kind::Binary, &payload, 1000, &mut out);
            assert_eq!(
                (outcome, &out),
                (Ok(()), &message),
                "{flush:?} {piece_bytes}"
            );
        }
    }
}

/// The payload of a message of which each piece is flushed this way.
fn flushed(message: &[u8], flush: FlushCompress, piece_bytes: usize) -> Vec<u8> {
    let mut compress = Compress::new(Compression::default(), false);
    let mut payload = Vec::with_capacity(message.len() * 20 + 1024);
    for piece in message.chunks(piece_bytes) {
        compress
            .compress_vec(piece, &mut payload, flush)
            .expect("room enough");
        if flush == FlushCompress::Finish {
            compress.reset();
        }
    }
    if flush != FlushCompress::Finish {
        compress
            .compress_vec(&[], &mut payload, FlushCompress::Sync)
            .expect("room enough");
        // A second sync flush of nothing adds nothing.
        assert!(payload.ends_with(&[0, 0, 0xff, 0xff]));
        payload.truncate(payload.len() - 4);
    }
    payload
}

/// The payload as another implementation may make it: any level, any window, flushed anywhere.
fn payload_of(message: &[u8], level: u32, window: Window, pieces: usize) -> Vec<u8> {
    let mut compress =
        Compress::new_with_window_bits(Compression::new(level), false, window.bits());
    let mut payload = Vec::with_capacity(message.len() * 2 + 64 * pieces + 64);
    for piece in message.chunks(message.len() / pieces + 1) {
        compress
            .compress_vec(piece, &mut payload, FlushCompress::Sync)
            .expect("room enough");
    }
    if payload.is_empty() {
        return vec![0];
    }
    payload.truncate(payload.len() - 4);
    payload
}

fn message() -> impl Strategy<Value = Vec<u8>> {
    let words = [
        "{\"id\":",
        "},",
        "\"name\":\"",
        "0.25",
        "é€😀",
        " ",
        "\n",
        "zz",
    ];
    let repetitive = prop::collection::vec(prop::sample::select(words.to_vec()), 0..3000 / SHRINK)
        .prop_map(|words| words.concat().into_bytes());
    prop_oneof![
        3 => repetitive,
        1 => prop::collection::vec(any::<u8>(), 0..3000 / SHRINK),
        1 => (any::<u8>(), 0..100_000 / SHRINK).prop_map(|(byte, count)| vec![byte; count]),
    ]
}

fn window() -> impl Strategy<Value = Window> {
    (9..=15_u8).prop_map(|bits| Window::new(bits).expect("9 to 15"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 3 } else { 96 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_deflated_inflates_again_in_its_window(message in message(), window in window()) {
        check_deflated(window, &message);
        check_deflated(window.fitting(message.len()), &message);
    }

    #[test]
    fn what_others_deflate_is_read(
        message in message(), level in 0..=9_u32, window in window(), pieces in 1..5_usize, bytes_max in 0..200_000_u64,
    ) {
        let payload = payload_of(&message, level, window, pieces);
        check_inflated(Kind::Binary, &payload, message.len() as u64);
        check_inflated(Kind::Text, &payload, bytes_max);
        let mut out = Vec::new();
        let outcome = Inflater::default().inflate(Kind::Binary, &payload, message.len() as u64, &mut out);
        prop_assert_eq!((outcome, out), (Ok(()), message));
    }

    #[test]
    fn damage_is_read_as_the_book_says(
        message in message(), level in 0..=9_u32, damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut payload = payload_of(&message, level, Window::MAX, 2);
        for (at, value) in damage {
            let at = at.index(payload.len());
            payload[at] ^= value;
        }
        check_inflated(Kind::Binary, &payload, 65_536);
    }

    #[test]
    fn any_bytes_are_read_as_the_book_says(payload in prop::collection::vec(any::<u8>(), 0..300)) {
        check_inflated(Kind::Text, &payload, 10_000);
        let _ = read(&compressed(Kind::Text, &payload));
    }
}
