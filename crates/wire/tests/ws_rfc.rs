//! The examples of RFC 6455, section 5.7, byte for byte.

use myriad_wire::fuzzing::{Item, Transcript, check_frames};
use myriad_wire::ws::{Kind, Limits, Opcode, Role, encode_frame};

const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
const HELLO_MASKED: [u8; 11] = [
    0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58,
];

fn read(role: Role, bytes: &[u8]) -> Vec<Item> {
    let transcript = check_frames(role, &Limits::default(), bytes);
    assert_eq!(
        transcript,
        Transcript {
            items: transcript.items.clone(),
            ..Transcript::default()
        }
    );
    transcript.items
}

fn written(opcode: Opcode, fin: bool, mask: Option<[u8; 4]>, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_frame(&mut out, opcode, fin, mask, payload);
    out
}

#[test]
fn a_single_unmasked_text() {
    let bytes = [0x81, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f];
    assert_eq!(
        read(Role::Client, &bytes),
        [Item::Message(Kind::Text, b"Hello".to_vec())]
    );
    assert_eq!(written(Opcode::Text, true, None, b"Hello"), bytes);
}

#[test]
fn a_single_masked_text() {
    assert_eq!(
        read(Role::Server, &HELLO_MASKED),
        [Item::Message(Kind::Text, b"Hello".to_vec())]
    );
    assert_eq!(
        written(Opcode::Text, true, Some(MASK), b"Hello"),
        HELLO_MASKED
    );
}

#[test]
fn a_fragmented_unmasked_text() {
    let bytes = [0x01, 0x03, 0x48, 0x65, 0x6c, 0x80, 0x02, 0x6c, 0x6f];
    assert_eq!(
        read(Role::Client, &bytes),
        [Item::Message(Kind::Text, b"Hello".to_vec())]
    );
    let first = written(Opcode::Text, false, None, b"Hel");
    let last = written(Opcode::Continuation, true, None, b"lo");
    assert_eq!([first, last].concat(), bytes);
}

#[test]
fn an_unmasked_ping_and_a_masked_pong() {
    let ping = [0x89, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f];
    assert_eq!(read(Role::Client, &ping), [Item::Ping(b"Hello".to_vec())]);
    assert_eq!(written(Opcode::Ping, true, None, b"Hello"), ping);

    let mut pong = HELLO_MASKED;
    pong[0] = 0x8a;
    assert_eq!(read(Role::Server, &pong), [Item::Pong(b"Hello".to_vec())]);
    assert_eq!(written(Opcode::Pong, true, Some(MASK), b"Hello"), pong);
}

#[test]
fn binary_of_256_bytes_and_of_64_kib() {
    let payload: Vec<u8> = (0..=u8::MAX).collect();
    let bytes = [&[0x82, 0x7e, 0x01, 0x00], &payload[..]].concat();
    assert_eq!(
        read(Role::Client, &bytes),
        [Item::Message(Kind::Binary, payload.clone())]
    );
    assert_eq!(written(Opcode::Binary, true, None, &payload), bytes);

    let payload = payload.repeat(256);
    let bytes = [&[0x82, 0x7f, 0, 0, 0, 0, 0, 1, 0, 0], &payload[..]].concat();
    assert_eq!(
        read(Role::Client, &bytes),
        [Item::Message(Kind::Binary, payload.clone())]
    );
    assert_eq!(written(Opcode::Binary, true, None, &payload), bytes);
}
