//! Properties of compressed messages.

use super::inflate_by_the_book;
use crate::deflate::{Deflater, Inflater, Window};
use crate::ws::{Kind, ProtocolError};

/// Fuzz target: any bytes as a compressed payload, and as a message to compress. The first byte chooses the limit, the
/// kind and the window, the rest is the input.
///
/// # Panics
/// If a property does not hold.
pub fn deflate(bytes: &[u8]) {
    let Some((setting, input)) = bytes.split_first() else {
        return;
    };
    let kind = if setting & 1 == 0 {
        Kind::Text
    } else {
        Kind::Binary
    };
    let bytes_max = [65_536, 0, 100, 20_000][usize::from(setting >> 1 & 3)];
    check_inflated(kind, input, bytes_max);
    let window = Window::new(9 + (setting >> 3 & 7) % 7).expect("9 to 15");
    check_deflated(window, input);
}

/// An inflater agrees with the simple one, keeps the limit, and keeps no state from one message to the next.
///
/// # Panics
/// If a property does not hold.
pub fn check_inflated(kind: Kind, payload: &[u8], bytes_max: u64) {
    let mut inflater = Inflater::default();
    let mut message = Vec::new();
    let outcome = inflater.inflate(kind, payload, bytes_max, &mut message);
    assert!(
        message.capacity() as u64 <= bytes_max + 1,
        "bounded while it grows"
    );
    match inflate_by_the_book(payload, bytes_max) {
        Ok(expected) => {
            let is_text = str::from_utf8(&expected.bytes).is_ok();
            if kind == Kind::Text && !is_text {
                assert_eq!(outcome, Err(ProtocolError::InvalidText));
            } else {
                assert_eq!(outcome, Ok(()));
                assert_eq!(message, expected.bytes);
            }
        }
        // If there are several faults, the steps of inflating decide which one is reported.
        Err(_) => assert!(outcome.is_err(), "against the book"),
    }
    let mut again = b"before".to_vec();
    assert_eq!(
        inflater.inflate(kind, payload, bytes_max, &mut again),
        outcome
    );
    assert_eq!(&again[..6], b"before");
    assert_eq!(again[6..], message);
}

/// A deflater's output is smaller, needs no larger window than requested, and inflates to the same message.
///
/// # Panics
/// If a property does not hold.
pub fn check_deflated(window: Window, message: &[u8]) {
    let mut deflater = Deflater::default();
    let mut payload = Vec::new();
    if !deflater.deflate(window, message, &mut payload) {
        assert!(payload.is_empty());
        return;
    }
    assert!(payload.len() < message.len());
    let inflated = inflate_by_the_book(&payload, message.len() as u64).expect("whole and lawful");
    assert_eq!(inflated.bytes, message);
    assert!(inflated.distance_max <= 1 << window.bits());
    check_inflated(Kind::Binary, &payload, message.len() as u64);
}
