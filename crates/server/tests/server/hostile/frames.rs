//! Frames that break RFC 6455 or a limit.

use super::{MASK, Scene, check_end, check_next, close_frame, masked, send};
use crate::support::{on_both_drivers, options, until};
use myriad_server::{Count, Options, Size};
use std::io::{Read, Write};

/// What was sent, the code and the sentence it is closed with, and the metric's reason.
type Case = (Vec<u8>, u16, &'static str, &'static str);

const RESERVED_BITS: &str =
    "Reserved bits are set where no negotiated extension has a use for them: send them as 0.";
const RESERVED_OPCODE: &str = "The opcode is reserved: send 0, 1, 2, 8, 9 or 10.";
const UNMASKED: &str = "The frame has no mask: a client must mask every frame.";
const CONTROL_TOO_LONG: &str =
    "A control frame has more than 125 bytes: send less with close, ping and pong.";
const FRAGMENTED_CONTROL: &str =
    "A control frame has no FIN: send close, ping and pong in one frame.";
const CLOSE_CODE: &str =
    "The close code is reserved or unknown: send 1000, or one from 3000 to 4999.";
const HALF_A_CODE: &str = "The close frame has one byte: send none, or a code of two bytes.";
const CLOSE_REASON: &str = "The close reason is not UTF-8: send text.";
const UNEXPECTED: &str = "A continuation came with no message open: start with text or binary.";
const EXPECTED: &str = "A new message came inside another: finish the first with FIN.";
const NOT_MINIMAL: &str = "The length takes more bytes than it needs: use its shortest form.";
const TOP_BIT: &str = "The length has its top bit set: send less than 2^63 bytes.";
const TOO_BIG: &str = "The frame is larger than is accepted here: send smaller ones.";
const MESSAGE_TOO_BIG: &str = "The message is larger than is accepted here: send smaller ones.";
const FRAGMENTS: &str = "The message has too many fragments: send it in fewer frames.";
const NOT_UTF8: &str = "The text message is not UTF-8: send other bytes as binary.";

fn broken(frame: impl Into<Vec<u8>>, sentence: &'static str) -> Case {
    (frame.into(), 1002, sentence, "protocol_error")
}

fn headers() -> Vec<Case> {
    let mut cases = vec![
        broken([0x81, 0x01, b'x'], UNMASKED),
        broken([0x89, 0x00], UNMASKED),
        broken([0x88, 0x02, 0x03, 0xe8], UNMASKED),
        broken(masked(0x80, b"x"), UNEXPECTED),
        broken([masked(0x01, b"x"), masked(0x81, b"y")].concat(), EXPECTED),
        broken([masked(0x02, b""), masked(0x82, b"")].concat(), EXPECTED),
        broken([0x82, 0xfe, 0, 125], NOT_MINIMAL),
        broken([0x82, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff], NOT_MINIMAL),
    ];
    for bits in 1..8 {
        for opcode in [0x1, 0x2, 0x8, 0x9, 0xa] {
            cases.push(broken(
                masked(0x80 | bits << 4 | opcode, b"x"),
                RESERVED_BITS,
            ));
        }
    }
    for opcode in (0x3..=0x7).chain(0xb..=0xf) {
        cases.push(broken(masked(0x80 | opcode, b"x"), RESERVED_OPCODE));
    }
    for opcode in [0x8, 0x9, 0xa] {
        cases.push(broken(masked(opcode, b""), FRAGMENTED_CONTROL));
        cases.push(broken(
            masked(0x80 | opcode, &[b'a'; 126]),
            CONTROL_TOO_LONG,
        ));
        let endless = [&[0x80 | opcode, 0xff], &(1_u64 << 40).to_be_bytes()[..]].concat();
        cases.push(broken(endless, CONTROL_TOO_LONG));
    }
    cases
}

fn lengths() -> Vec<Case> {
    let announce = |length: u64| [&[0x82, 0xff], &length.to_be_bytes()[..], &MASK].concat();
    let mut cases = vec![
        broken(announce(1 << 63), TOP_BIT),
        broken(announce(u64::MAX), TOP_BIT),
    ];
    // Nothing of these messages is sent: the header is enough.
    for length in [(1 << 16) + 1, 1 << 32, (1 << 63) - 1] {
        cases.push((announce(length), 1009, TOO_BIG, "too_big"));
    }
    let rest = [&[0x80, 0xfe], &u16::MAX.to_be_bytes()[..], &MASK].concat();
    let together = [masked(0x02, b"xx"), rest].concat();
    cases.push((together, 1009, MESSAGE_TOO_BIG, "too_big"));
    cases
}

fn payloads() -> Vec<Case> {
    let mut cases = vec![broken(masked(0x88, &[3]), HALF_A_CODE)];
    for code in [0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, u16::MAX] {
        cases.push(broken(masked(0x88, &code.to_be_bytes()), CLOSE_CODE));
    }
    let reason = masked(0x88, b"\x03\xe8\xed\xa0\x80");
    cases.push((reason, 1007, CLOSE_REASON, "invalid_payload"));
    for text in [
        &b"\xff"[..],
        b"\xc0\xaf",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"cut \xe2\x82",
    ] {
        cases.push((masked(0x81, text), 1007, NOT_UTF8, "invalid_payload"));
        let split = [masked(0x01, b"begun "), masked(0x80, text)].concat();
        cases.push((split, 1007, NOT_UTF8, "invalid_payload"));
    }
    cases
}

on_both_drivers! {
    fn every_broken_frame_has_its_close_code_and_its_sentence(driver) {
        let mut scene = Scene::start(options(driver));
        let cases = [headers(), lengths(), payloads()].concat();
        for (frame, code, sentence, _) in &cases {
            for path in ["/echo", "/raw?channel=other"] {
                let mut stream = scene.upgraded(path);
                // What follows the broken frame is discarded, and must not turn the answer into a reset.
                send(&mut stream, [&frame[..], &[0xff; 1000]].concat());
                check_end(&mut stream, close_frame(*code, sentence));
            }
        }
        for reason in ["protocol_error", "invalid_payload", "too_big"] {
            let expected = cases.iter().filter(|case| case.3 == reason).count() as u64;
            assert_eq!(scene.closes(reason), 2 * expected, "{reason}");
        }
        scene.check_settled();
    }

    fn a_good_message_before_a_broken_frame_is_still_answered(driver) {
        let mut scene = Scene::start(options(driver));
        let mut stream = scene.upgraded("/echo");
        send(&mut stream, [masked(0x81, b"one"), masked(0x89, b"two"), masked(0x83, b"")].concat());
        check_end(
            &mut stream,
            [b"\x81\x03one\x8a\x03two".to_vec(), close_frame(1002, RESERVED_OPCODE)].concat(),
        );
        scene.check_settled();
    }

    fn a_message_of_131_000_fragments_ends_at_the_limit(driver) {
        let mut scene = Scene::start(options(driver));
        let mut stream = scene.upgraded("/echo");
        let fragments = masked(0x00, b"x").repeat(131_000);
        let mut sender = stream.try_clone().expect("a descriptor");
        let sender = std::thread::spawn(move || {
            sender.write_all(&masked(0x01, b"x")).expect("an open connection");
            // The server stops listening long before the end: how much it takes is its business.
            let _ = sender.write_all(&fragments);
        });
        check_end(&mut stream, close_frame(1009, FRAGMENTS));
        assert_eq!(scene.closes("too_big"), 1);
        scene.check_bystander();
        sender.join().expect("a sender that ends");
        drop(stream);
        scene.check_settled();
    }

    fn as_many_fragments_as_are_allowed_are_one_message(driver) {
        const COUNT: usize = 131_000;
        const BYTES: u64 = COUNT as u64;
        let mut scene = Scene::start(Options {
            message_bytes_max: Some(Size(BYTES)),
            message_fragments_max: Some(Count(BYTES)),
            ..options(driver)
        });
        let mut stream = scene.upgraded("/echo");
        let all_but_one = [masked(0x01, b"x"), masked(0x00, b"x").repeat(COUNT - 2)].concat();
        send(&mut stream, all_but_one);
        // What is kept of it is what was sent of it, and some for the decoder.
        until("all but one fragment is kept", || {
            let kept = scene.metric("myriad_buffered_bytes");
            assert!(kept < BYTES + 1000, "{kept} bytes");
            kept >= BYTES - 1
        });
        scene.check_bystander();
        send(&mut stream, masked(0x80, b"x"));
        let mut echo = vec![0; 10 + COUNT];
        stream.read_exact(&mut echo).expect("an echo");
        assert_eq!(echo[..10], [&[0x81, 127], &BYTES.to_be_bytes()[..]].concat());
        assert!(echo[10..].iter().all(|byte| *byte == b'x'));
        // A message of its own has a count of its own.
        send(&mut stream, masked(0x81, b"next"));
        check_next(&mut stream, b"\x81\x04next");
        send(&mut stream, masked(0x88, &1000_u16.to_be_bytes()));
        check_end(&mut stream, [0x88, 0x02, 0x03, 0xe8]);
        drop(stream);
        scene.check_settled();
    }
}
