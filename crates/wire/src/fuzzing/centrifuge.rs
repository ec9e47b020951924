//! Properties of the Centrifuge decoder.

use crate::centrifuge::client::ServerMessages;
use crate::centrifuge::{Command, CommandError, Decoder, Encoding, is_json};

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

/// The commands of the frame. An error, with a sentence and a label, ends it; the client's reader agrees on where.
fn check_frame(encoding: Encoding, frame: &[u8]) -> Vec<Result<Command<'_>, CommandError>> {
    let commands: Vec<_> = Decoder::new(encoding, frame).collect();
    assert!(!commands.is_empty(), "an empty frame is an error");
    let (last, before) = commands.split_last().expect("not empty");
    assert!(before.iter().all(Result::is_ok), "an error ends the frame");
    if let Err(error) = last {
        assert!(!error.label().is_empty() && !error.to_string().is_empty());
    }
    ServerMessages::new(encoding, frame).for_each(drop);
    commands
}

fn lines(frame: &[u8]) -> impl Iterator<Item = &[u8]> {
    let frame = frame.strip_suffix(b"\n").unwrap_or(frame);
    frame.split(|&byte| byte == b'\n')
}
