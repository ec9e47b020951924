//! Conformance by topic, with the ideas of the Autobahn test suite's sections in mind: framing, pings
//! and pongs, reserved bits, opcodes, fragmentation, UTF-8, close handling, and sizes in small.
//!
//! Every sequence of frames is read in many cuts and compared with a naive reading ([`check_frames`]).

use myriad_wire::fuzzing::{Item, Transcript, check_frames};
use myriad_wire::ws::{
    CloseCode, Decoder, Event, Kind, Limits, Opcode, ProtocolError, Role, encode_close,
    encode_frame,
};

const MASK: [u8; 4] = [0xa5, 0x00, 0x3c, 0xff];

/// Frames for a server, built one after the other.
#[derive(Default)]
struct Frames(Vec<u8>);

impl Frames {
    fn frame(mut self, opcode: Opcode, fin: bool, payload: &[u8]) -> Self {
        encode_frame(&mut self.0, opcode, fin, Some(MASK), payload);
        self
    }

    fn text(self, payload: impl AsRef<[u8]>) -> Self {
        self.frame(Opcode::Text, true, payload.as_ref())
    }

    fn begin(self, payload: impl AsRef<[u8]>) -> Self {
        self.frame(Opcode::Text, false, payload.as_ref())
    }

    fn more(self, payload: impl AsRef<[u8]>) -> Self {
        self.frame(Opcode::Continuation, false, payload.as_ref())
    }

    fn end(self, payload: impl AsRef<[u8]>) -> Self {
        self.frame(Opcode::Continuation, true, payload.as_ref())
    }

    fn ping(self, payload: impl AsRef<[u8]>) -> Self {
        self.frame(Opcode::Ping, true, payload.as_ref())
    }

    fn pong(self, payload: impl AsRef<[u8]>) -> Self {
        self.frame(Opcode::Pong, true, payload.as_ref())
    }

    fn close(self, payload: impl AsRef<[u8]>) -> Self {
        self.frame(Opcode::Close, true, payload.as_ref())
    }

    fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn read(&self) -> Transcript {
        check_frames(Role::Server, &Limits::default(), &self.0)
    }

    #[track_caller]
    fn gives(&self, items: impl IntoIterator<Item = Item>) {
        assert_eq!(
            self.read(),
            Transcript {
                items: items.into_iter().collect(),
                ..Transcript::default()
            }
        );
    }

    #[track_caller]
    fn fails(&self, items: impl IntoIterator<Item = Item>, error: ProtocolError) {
        let transcript = self.read();
        assert_eq!(transcript.items, items.into_iter().collect::<Vec<_>>());
        assert_eq!(transcript.error, Some(error));
    }
}

fn frames() -> Frames {
    Frames::default()
}

fn text(payload: impl AsRef<[u8]>) -> Item {
    Item::Message(Kind::Text, payload.as_ref().to_vec())
}

fn binary(payload: impl AsRef<[u8]>) -> Item {
    Item::Message(Kind::Binary, payload.as_ref().to_vec())
}

fn ping(payload: impl AsRef<[u8]>) -> Item {
    Item::Ping(payload.as_ref().to_vec())
}

fn pong(payload: impl AsRef<[u8]>) -> Item {
    Item::Pong(payload.as_ref().to_vec())
}

mod framing {
    use super::*;

    #[test]
    fn messages_of_every_length_form() {
        let limits = Limits {
            frame_bytes_max: 65_536,
            message_bytes_max: 65_536,
            ..Limits::default()
        };
        let lengths = [0, 1, 124, 125, 126, 127, 128, 65_534, 65_535, 65_536];
        // Miri takes half a minute for each of the long ones.
        for length in lengths
            .into_iter()
            .filter(|length| !cfg!(miri) || *length <= 128)
        {
            for kind in [Kind::Text, Kind::Binary] {
                for (role, mask) in [(Role::Server, Some(MASK)), (Role::Client, None)] {
                    let payload = vec![if kind == Kind::Text { b'*' } else { 0xfe }; length];
                    let mut bytes = Vec::new();
                    encode_frame(&mut bytes, kind.into(), true, mask, &payload);
                    let transcript = check_frames(role, &limits, &bytes);
                    assert_eq!(transcript.error, None, "{length} bytes");
                    assert_eq!(
                        transcript.items,
                        [Item::Message(kind, payload)],
                        "{length} bytes"
                    );
                }
            }
        }
    }

    #[test]
    fn a_whole_frame_is_one_event_in_place() {
        let mut bytes = frames().text("Hello").0;
        let address = bytes[6..].as_ptr();
        let mut input = &mut bytes[..];
        let mut decoder = Decoder::new(Role::Server);
        match decoder.next_event(&Limits::default(), &mut input) {
            Ok(Some(Event::Data {
                kind: Kind::Text,
                compressed: false,
                bytes: b"Hello",
                first: true,
                last: true,
            })) => {}
            other => panic!("{other:?}"),
        }
        assert!(decoder.is_idle());
        assert_eq!(decoder.next_event(&Limits::default(), &mut input), Ok(None));
        assert_eq!(&bytes[6..], b"Hello", "unmasked where it was");
        assert_eq!(bytes[6..].as_ptr(), address);
    }

    #[test]
    fn empty_messages_are_messages() {
        frames()
            .text("")
            .frame(Opcode::Binary, true, b"")
            .gives([text(""), binary("")]);
    }

    #[test]
    fn idle_means_nothing_is_lost() {
        let limits = Limits::default();
        let bytes = frames().begin("a").ping("b").end("c").0;
        for cut in 0..=bytes.len() {
            let mut front = bytes[..cut].to_vec();
            let mut input = &mut front[..];
            let mut decoder = Decoder::new(Role::Server);
            while decoder.next_event(&limits, &mut input).unwrap().is_some() {}
            assert_eq!(
                decoder.is_idle(),
                cut == 0 || cut == bytes.len(),
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn masks_are_demanded_of_clients_and_refused_from_servers() {
        let mut unmasked = Vec::new();
        encode_frame(&mut unmasked, Opcode::Text, true, None, b"x");
        let limits = Limits::default();
        assert_eq!(
            check_frames(Role::Server, &limits, &unmasked).error,
            Some(ProtocolError::Unmasked)
        );
        assert_eq!(
            check_frames(Role::Client, &limits, &frames().ping("").0).error,
            Some(ProtocolError::Masked)
        );
    }

    #[test]
    fn lengths_must_be_minimal_and_positive() {
        frames()
            .raw(&[0x82, 0xfe, 0, 125])
            .fails([], ProtocolError::LengthNotMinimal);
        frames()
            .raw(&[0x82, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff])
            .fails([], ProtocolError::LengthNotMinimal);
        frames()
            .raw(&[0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0])
            .fails([], ProtocolError::LengthOutOfRange);
        frames()
            .raw(&[0x82, 0xff, 0x7f, 0, 0, 0, 0, 0, 0, 0])
            .raw(&MASK)
            .fails([], ProtocolError::FrameTooBig);
    }
}

mod pings_and_pongs {
    use super::*;

    #[test]
    fn payloads_up_to_125_bytes() {
        for length in [0, 1, 5, 124, 125] {
            let payload = vec![0xfe; length];
            frames()
                .ping(&payload)
                .pong(&payload)
                .gives([ping(&payload), pong(&payload)]);
        }
    }

    #[test]
    fn more_than_125_bytes_fail() {
        frames()
            .ping("a")
            .ping([0; 126])
            .fails([ping("a")], ProtocolError::ControlTooLong);
        frames()
            .pong([0; 70_000])
            .fails([], ProtocolError::ControlTooLong);
        frames()
            .close([3; 126])
            .fails([], ProtocolError::ControlTooLong);
    }

    #[test]
    fn many_at_once_keep_their_order() {
        let mut all = frames();
        for number in 0..20_u8 {
            all = all.ping([number]).pong([number, number]);
        }
        all.gives((0..20_u8).flat_map(|number| [ping([number]), pong([number, number])]));
    }

    #[test]
    fn between_the_fragments_of_a_message() {
        frames()
            .begin("a")
            .ping("1")
            .more("b")
            .pong("2")
            .pong("3")
            .end("c")
            .text("d")
            .gives([ping("1"), pong("2"), pong("3"), text("abc"), text("d")]);
    }

    #[test]
    fn never_fragmented() {
        for opcode in [Opcode::Ping, Opcode::Pong, Opcode::Close] {
            frames()
                .frame(opcode, false, b"")
                .fails([], ProtocolError::FragmentedControl);
        }
        frames()
            .begin("a")
            .frame(Opcode::Ping, false, b"p")
            .end("b")
            .fails([], ProtocolError::FragmentedControl);
    }
}

mod reserved {
    use super::*;

    #[test]
    fn each_reserved_bit_fails_on_each_kind_of_frame() {
        for bits in 1..8_u8 {
            for opcode in [0x1, 0x2, 0x8, 0x9, 0xa] {
                frames()
                    .text("a")
                    .raw(&[0x80 | bits << 4 | opcode])
                    .fails([text("a")], ProtocolError::ReservedBits);
            }
            frames()
                .begin("a")
                .raw(&[0x80 | bits << 4])
                .fails([], ProtocolError::ReservedBits);
        }
    }

    #[test]
    fn each_reserved_opcode_fails() {
        for opcode in (0x3..=0x7).chain(0xb..=0xf) {
            frames()
                .text("a")
                .raw(&[0x80 | opcode])
                .text("b")
                .fails([text("a")], ProtocolError::ReservedOpcode);
            frames()
                .begin("a")
                .raw(&[opcode, 0x80])
                .fails([], ProtocolError::ReservedOpcode);
        }
    }
}

mod fragmentation {
    use super::*;

    #[test]
    fn fragments_of_any_size_are_one_message() {
        frames()
            .begin("Hello")
            .end(", world")
            .gives([text("Hello, world")]);
        frames()
            .begin("")
            .more("")
            .more("x")
            .more("")
            .end("")
            .gives([text("x")]);
        frames().begin("").more("").end("").gives([text("")]);
        frames()
            .frame(Opcode::Binary, false, b"\xff")
            .end(b"\xfe")
            .gives([binary(b"\xff\xfe")]);
        let mut bytewise = frames().begin("");
        for byte in "κόσμε".bytes() {
            bytewise = bytewise.more([byte]);
        }
        bytewise.end("").gives([text("κόσμε")]);
    }

    #[test]
    fn a_continuation_needs_an_open_message() {
        frames()
            .end("a")
            .fails([], ProtocolError::UnexpectedContinuation);
        frames()
            .more("a")
            .fails([], ProtocolError::UnexpectedContinuation);
        frames()
            .text("a")
            .more("b")
            .fails([text("a")], ProtocolError::UnexpectedContinuation);
        frames()
            .begin("a")
            .end("b")
            .end("c")
            .fails([text("ab")], ProtocolError::UnexpectedContinuation);
    }

    #[test]
    fn a_new_message_needs_the_last_one_closed() {
        frames()
            .begin("a")
            .text("b")
            .fails([], ProtocolError::ExpectedContinuation);
        frames()
            .begin("a")
            .ping("p")
            .begin("b")
            .fails([ping("p")], ProtocolError::ExpectedContinuation);
        frames()
            .begin("")
            .frame(Opcode::Binary, true, b"")
            .fails([], ProtocolError::ExpectedContinuation);
    }

    #[test]
    fn pieces_are_marked_at_both_ends_across_fragments() {
        let mut bytes = frames().begin("").more("ab").more("").end("c").0;
        let mut input = &mut bytes[..];
        let mut decoder = Decoder::new(Role::Server);
        let mut pieces = Vec::new();
        while let Some(event) = decoder.next_event(&Limits::default(), &mut input).unwrap() {
            let Event::Data {
                bytes, first, last, ..
            } = event
            else {
                panic!("{event:?}")
            };
            pieces.push((bytes.to_vec(), first, last));
        }
        assert_eq!(
            pieces,
            [(b"ab".to_vec(), true, false), (b"c".to_vec(), false, true)]
        );
    }
}

mod utf8 {
    use super::*;

    const VALID: [&str; 9] = [
        "Hello-µ@ßöäüàá-UTF-8!!",
        "κόσμε",
        "\u{0}",
        "\u{7f}\u{80}\u{7ff}\u{800}\u{ffff}\u{10000}\u{10ffff}",
        "\u{d7ff}\u{e000}\u{fffd}",
        "\u{fffe}\u{feff}",
        "\u{1fffe}\u{10fffe}",
        "𐍈😀万",
        "ends in the longest: \u{10ffff}",
    ];

    const INVALID: [&[u8]; 18] = [
        b"\x80",
        b"\xbf\x80",
        b"\xc0\xaf",
        b"\xc1\xbf",
        b"\xe0\x80\xaf",
        b"\xe0\x9f\xbf",
        b"\xf0\x80\x80\xaf",
        b"\xf0\x8f\xbf\xbf",
        b"\xf8\x88\x80\x80\x80",
        b"\xfc\x84\x80\x80\x80\x80",
        b"\xed\xa0\x80",
        b"\xed\xbf\xbf",
        b"\xed\xa0\xbd\xed\xb8\x80",
        b"\xf4\x90\x80\x80",
        b"\xf5\x80\x80\x80",
        b"\xfe",
        b"\xff",
        b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited",
    ];

    #[test]
    fn valid_text_passes_whole_and_in_fragments() {
        for valid in VALID {
            frames().text(valid).gives([text(valid)]);
            for cut in (0..=valid.len()).step_by(if cfg!(miri) { 4 } else { 1 }) {
                let (front, back) = valid.as_bytes().split_at(cut);
                frames()
                    .begin(front)
                    .ping("")
                    .end(back)
                    .gives([ping(""), text(valid)]);
            }
        }
    }

    const PADDINGS: &[usize] = if cfg!(miri) {
        &[31]
    } else {
        &[1, 31, 63, 64, 65, 130]
    };

    #[test]
    fn invalid_text_fails_wherever_it_stands() {
        for invalid in INVALID {
            frames().text(invalid).fails([], ProtocolError::InvalidText);
            for padding in PADDINGS {
                let padded = [&vec![b'a'; *padding][..], invalid, b"after"].concat();
                frames().text(&padded).fails([], ProtocolError::InvalidText);
            }
            for cut in 0..=invalid.len() {
                let (front, back) = invalid.split_at(cut);
                frames()
                    .begin(front)
                    .end(back)
                    .fails([], ProtocolError::InvalidText);
            }
        }
    }

    #[test]
    fn binary_is_never_judged() {
        for invalid in INVALID {
            frames()
                .frame(Opcode::Binary, true, invalid)
                .gives([binary(invalid)]);
        }
    }

    #[test]
    fn a_code_point_must_not_be_open_at_the_end() {
        for open in ["é", "€", "😀"] {
            for length in 1..open.len() {
                let payload = [b"text ", &open.as_bytes()[..length]].concat();
                frames()
                    .text(&payload)
                    .fails([], ProtocolError::InvalidText);
                frames()
                    .begin(&payload)
                    .end("")
                    .fails([], ProtocolError::InvalidText);
            }
        }
    }

    #[test]
    fn a_new_text_starts_afresh() {
        frames()
            .text("é")
            .text("é")
            .begin("\u{10ffff}")
            .end("")
            .text("a")
            .gives([text("é"), text("é"), text("\u{10ffff}"), text("a")]);
    }

    /// The verdict comes with the first byte that no valid text could have there, long before the frame ends.
    #[test]
    fn failure_is_fast() {
        let limits = Limits::default();
        for invalid in INVALID {
            let hopeless = |end: &usize| {
                str::from_utf8(&invalid[..*end]).is_err_and(|e| e.error_len().is_some())
            };
            let first_bad = (1..=invalid.len()).find(hopeless).unwrap();
            let mut payload = invalid.to_vec();
            payload.resize(1000, b'a');
            let mut bytes = frames().begin("begun ").more(&payload).0;
            let header_bytes = bytes.len() - payload.len();
            let mut decoder = Decoder::new(Role::Server);
            let failed_at = bytes
                .chunks_mut(1)
                .position(|mut byte| {
                    loop {
                        match decoder.next_event(&limits, &mut byte) {
                            Ok(Some(_)) => {}
                            Ok(None) => return false,
                            Err(error) => {
                                assert_eq!(error, ProtocolError::InvalidText);
                                return true;
                            }
                        }
                    }
                })
                .unwrap();
            assert_eq!(failed_at, header_bytes + first_bad - 1, "{invalid:x?}");
        }
    }
}

mod closing {
    use super::*;

    fn closed(code: u16, reason: &str) -> Item {
        Item::Close(Some((CloseCode(code), reason.into())))
    }

    #[test]
    fn with_nothing_with_a_code_with_a_reason() {
        frames().close("").gives([Item::Close(None)]);
        frames().close([0x03, 0xe8]).gives([closed(1000, "")]);
        frames()
            .close(b"\x03\xe8tsch\xc3\xbc\xc3\x9f")
            .gives([closed(1000, "tschüß")]);
        let longest = "*".repeat(123);
        frames()
            .close([&[0x03, 0xe8], longest.as_bytes()].concat())
            .gives([closed(1000, &longest)]);
    }

    #[test]
    fn nothing_counts_after_it() {
        frames()
            .text("a")
            .close("")
            .text("b")
            .ping("c")
            .close("")
            .raw(&[0xff])
            .gives([text("a"), Item::Close(None)]);
        let inside = frames().begin("a").close([0x03, 0xe9]).end("b").read();
        assert_eq!(inside.items, [closed(1001, "")]);
        assert_eq!(inside.error, None);
    }

    #[test]
    fn half_a_code_fails() {
        frames()
            .close([0x03])
            .fails([], ProtocolError::TruncatedCloseCode);
    }

    #[test]
    fn codes_are_those_of_the_registry() {
        let valid = |code: u16| matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999);
        let is_tried = |code: &u16| match code {
            990..=1020 | 2990..3010 => true,
            _ if cfg!(miri) => code.is_multiple_of(9973),
            0..1100 => true,
            _ => code.is_multiple_of(97),
        };
        for code in (0..=u16::MAX).filter(is_tried) {
            assert_eq!(CloseCode(code).is_valid_on_wire(), valid(code), "{code}");
            let frame = frames().close(code.to_be_bytes());
            if valid(code) {
                frame.gives([closed(code, "")]);
            } else {
                frame.fails([], ProtocolError::InvalidCloseCode);
            }
        }
        for code in [2999, 5000, 65_535] {
            frames()
                .close(u16::to_be_bytes(code))
                .fails([], ProtocolError::InvalidCloseCode);
        }
        for code in [3000, 3999, 4000, 4999] {
            frames()
                .close(u16::to_be_bytes(code))
                .gives([closed(code, "")]);
        }
    }

    #[test]
    fn a_reason_is_utf8() {
        frames()
            .close(b"\x03\xe8\xed\xa0\x80")
            .fails([], ProtocolError::InvalidCloseReason);
        frames()
            .close(b"\x03\xe8open \xf0\x9f")
            .fails([], ProtocolError::InvalidCloseReason);
    }

    #[test]
    fn what_we_close_with_reads_back() {
        for error in ProtocolError::ALL {
            for (role, mask) in [(Role::Client, None), (Role::Server, Some(MASK))] {
                let mut bytes = Vec::new();
                encode_close(&mut bytes, error.code(), error.sentence(), mask);
                let read = check_frames(role, &Limits::default(), &bytes);
                assert_eq!(read.items, [closed(error.code().0, error.sentence())]);
            }
        }
    }
}

mod limits {
    use super::*;

    const TIGHT: Limits = Limits {
        frame_bytes_max: 100,
        message_bytes_max: 250,
        fragments_max: 4,
    };

    #[track_caller]
    fn error_of(frames: &Frames) -> Option<ProtocolError> {
        check_frames(Role::Server, &TIGHT, &frames.0).error
    }

    #[test]
    fn each_is_exact() {
        assert_eq!(error_of(&frames().text([b'a'; 100])), None);
        assert_eq!(
            error_of(&frames().text([b'a'; 101])),
            Some(ProtocolError::FrameTooBig)
        );
        assert_eq!(
            error_of(
                &frames()
                    .begin([b'a'; 100])
                    .more([b'a'; 100])
                    .end([b'a'; 50])
            ),
            None
        );
        let too_big = frames()
            .begin([b'a'; 100])
            .more([b'a'; 100])
            .end([b'a'; 51]);
        assert_eq!(error_of(&too_big), Some(ProtocolError::MessageTooBig));
        assert_eq!(
            error_of(&frames().begin("").more("").more("").end("")),
            None
        );
        let too_many = frames().begin("").more("").more("").more("").end("");
        assert_eq!(error_of(&too_many), Some(ProtocolError::TooManyFragments));
        for error in [
            ProtocolError::FrameTooBig,
            ProtocolError::MessageTooBig,
            ProtocolError::TooManyFragments,
        ] {
            assert_eq!(error.code(), CloseCode::TOO_BIG);
        }
    }

    #[test]
    fn each_message_counts_for_itself() {
        let mut many = frames();
        for _ in 0..5 {
            many = many
                .begin([b'a'; 90])
                .more([b'a'; 90])
                .end([b'a'; 60])
                .text([b'b'; 100]);
        }
        assert_eq!(error_of(&many), None);
    }

    #[test]
    fn control_frames_do_not_count() {
        let limits = Limits {
            frame_bytes_max: 1,
            message_bytes_max: 2,
            fragments_max: 2,
        };
        let bytes = frames()
            .begin("a")
            .ping([0; 125])
            .pong([0; 125])
            .ping("")
            .end("b")
            .0;
        assert_eq!(check_frames(Role::Server, &limits, &bytes).error, None);
    }

    /// A header is enough: what it announces must not be received first.
    #[test]
    fn the_verdict_comes_with_the_header() {
        let header_only =
            |opcode: u8, length: u16| [&[opcode, 0xfe], &length.to_be_bytes()[..], &MASK].concat();
        assert_eq!(
            error_of(&frames().raw(&header_only(0x82, 200))),
            Some(ProtocolError::FrameTooBig)
        );
        let third = frames()
            .begin([b'a'; 100])
            .more([b'a'; 100])
            .raw(&[0x80, 0xb3])
            .raw(&MASK);
        assert_eq!(error_of(&third), Some(ProtocolError::MessageTooBig));
        let fifth = frames()
            .begin("a")
            .more("a")
            .more("a")
            .more("a")
            .raw(&[0x80, 0x81])
            .raw(&MASK);
        assert_eq!(error_of(&fifth), Some(ProtocolError::TooManyFragments));
    }

    #[test]
    fn announcing_the_impossible_does_not_overflow() {
        let limits = Limits {
            frame_bytes_max: u64::MAX,
            message_bytes_max: u64::MAX - 1,
            fragments_max: u32::MAX,
        };
        let huge = [0x02, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
        let bytes = [&huge[..], &MASK, b"a beginning"].concat();
        let transcript = check_frames(Role::Server, &limits, &bytes);
        assert_eq!(transcript.error, None);
        assert_eq!(transcript.unfinished.unwrap().1.len(), 11);
    }
}
