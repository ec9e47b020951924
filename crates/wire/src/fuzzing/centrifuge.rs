//! Properties of the Centrifuge decoder and of deltas.

use crate::centrifuge::client::ServerMessages;
use crate::centrifuge::{
    Command, CommandError, Decoder, Encoding, apply_delta, is_json, make_delta, make_text_delta,
};

/// Fuzz target: any bytes as a frame in JSON, of a client and of a server.
///
/// # Panics
/// If a property does not hold.
pub fn centrifuge_json(frame: &[u8]) {
    let commands = check_frame(Encoding::Json, frame);
    let lines: Vec<_> = lines(frame).collect();
    let read = commands.iter().filter(|command| command.is_ok()).count();
    for line in &lines[..read] {
        let value: Result<serde::de::IgnoredAny, _> = serde_json::from_slice(line);
        assert!(value.is_ok(), "what is read is JSON");
    }
    if commands.iter().all(Result::is_ok) {
        assert_eq!(lines.len(), read, "each line is a command");
    }
    let is_value = serde_json::from_slice::<serde_json::Value>(frame).is_ok();
    // A Value is read with recursion, one level less deep, and has numbers of limited size.
    assert!(!is_value || is_json(frame));
}

/// Fuzz target: any bytes as a frame in protobuf, of a client and of a server.
///
/// # Panics
/// If a property does not hold.
pub fn centrifuge_protobuf(frame: &[u8]) {
    let commands = check_frame(Encoding::Protobuf, frame);
    if commands.iter().all(Result::is_ok) {
        // Frames have no state, so two of them are one frame of both their commands.
        let twice = [frame, frame].concat();
        let doubled: Vec<_> = Decoder::new(Encoding::Protobuf, &twice).collect();
        assert_eq!(doubled[..commands.len()], commands);
        assert_eq!(doubled[commands.len()..], commands);
    }
}

/// Fuzz target: any bytes as a base, and as a delta to it or the next publication. The first two bytes say where the base
/// ends.
///
/// # Panics
/// If a property does not hold.
pub fn fossil_delta(bytes: &[u8]) {
    /// A delta of a few bytes can copy its base many times.
    const BYTES_MAX: usize = 1 << 16;
    let Some((cut, rest)) = bytes.split_first_chunk() else {
        return;
    };
    let (base, other) = rest.split_at(usize::from(u16::from_be_bytes(*cut)) % (rest.len() + 1));
    if let Some(target) = apply_delta(base, other, BYTES_MAX) {
        let is_refused = |limit| apply_delta(base, other, limit).is_none();
        assert!(target.is_empty() || is_refused(target.len() - 1));
        assert!((0..other.len()).all(|end| apply_delta(base, &other[..end], BYTES_MAX).is_none()));
        check_delta(base, &target);
    }
    check_delta(base, other);
    check_delta(other, base);
}

/// A delta is smaller than its target and gives it; so is one of texts, if these are texts.
fn check_delta(base: &[u8], target: &[u8]) {
    let gives_target = |delta: &[u8]| {
        assert!(delta.len() < target.len());
        assert_eq!(
            apply_delta(base, delta, target.len()).as_deref(),
            Some(target)
        );
    };
    if let Some(delta) = make_delta(base, target) {
        gives_target(&delta.0);
    }
    if let (Ok(base), Ok(target)) = (str::from_utf8(base), str::from_utf8(target))
        && let Some(delta) = make_text_delta(base, target)
    {
        gives_target(delta.as_bytes());
    }
}

/// The commands of the frame. An error, with a sentence, ends it; the client's reader agrees on where.
fn check_frame(encoding: Encoding, frame: &[u8]) -> Vec<Result<Command<'_>, CommandError>> {
    let commands: Vec<_> = Decoder::new(encoding, frame).collect();
    assert!(!commands.is_empty(), "an empty frame is an error");
    let (last, before) = commands.split_last().expect("not empty");
    assert!(before.iter().all(Result::is_ok), "an error ends the frame");
    if let Err(error) = last {
        assert!(!error.to_string().is_empty());
    }
    ServerMessages::new(encoding, frame).for_each(drop);
    commands
}

fn lines(frame: &[u8]) -> impl Iterator<Item = &[u8]> {
    let frame = frame.strip_suffix(b"\n").unwrap_or(frame);
    frame.split(|&byte| byte == b'\n')
}
