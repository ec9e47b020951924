//! The frames of what is delivered, each made on first need and shared by all clients with the same encoding.

use crate::compression::Compressor;
use crate::encoding::{DataForm, Encoding, Framing, Protocol};
use myriad_wire::deflate::Window;
use myriad_wire::http::encode_chunk;
use myriad_wire::sse::encode_event;
use myriad_wire::ws::{Kind, encode_frame};
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

/// The frames of one protocol and form.
#[derive(Debug, Default)]
struct Frames {
    uncompressed: OnceLock<Arc<[u8]>>,
    /// By window. Boxed, because most deliveries have nobody to compress them for.
    compressed: OnceLock<Box<CompressedFrames>>,
}

/// The compressed frames by window; none where compressing gains nothing.
type CompressedFrames = [OnceLock<Option<Arc<[u8]>>>; Window::COUNT];

/// Frames for subscriptions with deltas: by protocol, and whole or not.
type FramesWithDeltas = [[Frames; DataForm::COUNT - 1]; Protocol::COUNT];

/// The frames that were made.
#[derive(Debug, Default)]
pub(crate) struct FrameCache {
    of_web_socket: FramesOfFraming,
    /// Those of the other framings. Boxed, because most clients have a WebSocket.
    over_http: OnceLock<Box<[FramesOfFraming; Framing::HTTP_COUNT]>>,
}

impl FrameCache {
    fn frames(&self, encoding: Encoding) -> &Frames {
        let over_http = || self.over_http.get_or_init(Box::default);
        let frames = match encoding.framing() {
            Framing::WebSocket => &self.of_web_socket,
            Framing::Chunk => &over_http()[0],
            Framing::Event => &over_http()[1],
        };
        frames.frames(encoding)
    }
}

/// The frames of one framing that were made.
#[derive(Debug, Default)]
struct FramesOfFraming {
    plain: [Frames; Protocol::COUNT],
    /// Boxed, because most channels have no deltas.
    with_deltas: OnceLock<Box<FramesWithDeltas>>,
}

impl FramesOfFraming {
    fn frames(&self, encoding: Encoding) -> &Frames {
        let protocol = encoding.protocol() as usize;
        let with_deltas = || &self.with_deltas.get_or_init(Box::default)[protocol];
        match encoding.form() {
            DataForm::Plain => &self.plain[protocol],
            DataForm::Whole => &with_deltas()[0],
            DataForm::Delta => &with_deltas()[1],
        }
    }
}

/// What is encoded once for all its subscribers.
pub(crate) trait Encode {
    fn cache(&self) -> &FrameCache;

    /// Bytes of the data in it: they decide which windows of compression are worth their work.
    fn data_bytes(&self) -> usize;

    /// The message, without its frame.
    fn message(&self, encoding: Encoding) -> (Kind, Cow<'_, [u8]>);

    /// The frame as it is sent to peers without compression.
    fn make_frame(&self, encoding: Encoding) -> Vec<u8> {
        let (kind, message) = self.message(encoding);
        encoding.frame(kind, &message)
    }

    /// The frame for peers with this window; none where it would be no smaller.
    fn make_compressed_frame(
        &self,
        encoding: Encoding,
        window: Window,
        compressor: &mut Compressor,
    ) -> Option<Vec<u8>> {
        let (kind, message) = self.message(encoding);
        encoding.compressed_frame(window, kind, &message, compressor)
    }

    /// The frame in this encoding, compressed where that makes it smaller.
    ///
    /// Concurrent callers block on the first encoder, never longer than encoding would take.
    fn frame(&self, encoding: Encoding, compressor: &mut Compressor) -> &Arc<[u8]> {
        let worthwhile = |window: Window| window.worthwhile(self.data_bytes());
        let Some(window) = encoding.window().and_then(worthwhile) else {
            return self.uncompressed_frame(encoding);
        };
        let frames = self.cache().frames(encoding);
        let compressed = frames.compressed.get_or_init(Box::default);
        let frame = compressed[window.index()].get_or_init(|| {
            let frame = self.make_compressed_frame(encoding, window, compressor)?;
            Some(frame.into())
        });
        frame
            .as_ref()
            .unwrap_or_else(|| self.uncompressed_frame(encoding))
    }

    fn uncompressed_frame(&self, encoding: Encoding) -> &Arc<[u8]> {
        let frame = &self.cache().frames(encoding).uncompressed;
        frame.get_or_init(|| self.make_frame(encoding).into())
    }

    /// Bytes that one delivery of `frame`, which is in `encoding`, saves by being compressed.
    fn saved_bytes(&self, encoding: Encoding, frame: &[u8]) -> u64 {
        // What is not compressed saves nothing, and needs no second frame to compare with.
        if encoding.window().is_none() {
            return 0;
        }
        (self.uncompressed_frame(encoding).len() - frame.len()) as u64
    }
}

impl Encoding {
    /// A message of a server in its framing. A text is lines, without a line feed at its end.
    #[must_use]
    pub fn frame(self, kind: Kind, message: &[u8]) -> Vec<u8> {
        let mut frame = Vec::with_capacity(message.len() + 10);
        match self.framing() {
            Framing::WebSocket => self.push_web_socket_frames(kind, message, &mut frame),
            Framing::Chunk if kind == Kind::Text => encode_chunk(&mut frame, &[message, b"\n"]),
            Framing::Chunk => encode_chunk(&mut frame, &[message]),
            Framing::Event => {
                let mut events = Vec::with_capacity(message.len() + 16);
                for line in message.split(|byte| *byte == b'\n') {
                    encode_event(&mut events, None, line);
                }
                encode_chunk(&mut frame, &[&events]);
            }
        }
        frame
    }

    /// Whether publications travel as events whose ids say where their channel stands.
    #[must_use]
    pub fn has_event_ids(self) -> bool {
        self.framing() == Framing::Event && self.protocol() == Protocol::CentrifugePush
    }

    /// Events in their framing.
    pub fn events(self, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        debug_assert_eq!(self.framing(), Framing::Event);
        let (mut events, mut frame) = (Vec::new(), Vec::new());
        write(&mut events);
        encode_chunk(&mut frame, &[&events]);
        frame
    }

    fn push_web_socket_frames(self, kind: Kind, message: &[u8], frames: &mut Vec<u8>) {
        for part in self.frame_contents(message) {
            encode_frame(frames, kind.into(), true, None, part);
        }
    }

    /// What the WebSocket frames of a message hold: all of it, or a line each.
    fn frame_contents(self, message: &[u8]) -> impl Iterator<Item = &[u8]> {
        let is_by_line = self.protocol() == Protocol::CentrifugePush;
        message.split(move |byte| is_by_line && *byte == b'\n')
    }

    /// A message of a server in WebSocket frames for peers with this window; none where they would be no smaller.
    #[must_use]
    pub fn compressed_frame(
        self,
        window: Window,
        kind: Kind,
        message: &[u8],
        compressor: &mut Compressor,
    ) -> Option<Vec<u8>> {
        debug_assert_eq!(self.framing(), Framing::WebSocket);
        let (mut frames, mut is_smaller) = (Vec::new(), false);
        for part in self.frame_contents(message) {
            match compressor.compress(window, kind, part) {
                Some(frame) if frames.is_empty() => (frames, is_smaller) = (frame, true),
                Some(frame) => {
                    frames.extend_from_slice(&frame);
                    is_smaller = true;
                }
                None => encode_frame(&mut frames, kind.into(), true, None, part),
            }
        }
        is_smaller.then_some(frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(protocol: Protocol, framing: Framing, kind: Kind, message: &str) -> String {
        let encoding = Encoding::new(protocol, None).with_framing(framing);
        let frame = encoding.frame(kind, message.as_bytes());
        String::from_utf8(frame).expect("text")
    }

    #[test]
    fn a_message_of_lines_travels_in_each_framing() {
        let text = |protocol, framing| framed(protocol, framing, Kind::Text, "{}\n[1]");
        for protocol in [Protocol::CentrifugeJson, Protocol::CentrifugePush] {
            assert_eq!(text(protocol, Framing::Chunk), "7\r\n{}\n[1]\n\r\n");
            assert_eq!(
                text(protocol, Framing::Event),
                "15\r\ndata: {}\n\ndata: [1]\n\n\r\n"
            );
        }
        let bytes = framed(
            Protocol::CentrifugeProtobuf,
            Framing::Chunk,
            Kind::Binary,
            "\0",
        );
        assert_eq!(bytes, "1\r\n\0\r\n");
    }

    #[test]
    fn a_client_without_commands_gets_a_frame_for_each_push() {
        let frames = |protocol| Encoding::new(protocol, None).frame(Kind::Text, b"{}\n[1]");
        assert_eq!(frames(Protocol::CentrifugeJson), b"\x81\x06{}\n[1]");
        assert_eq!(frames(Protocol::CentrifugePush), b"\x81\x02{}\x81\x03[1]");
        let long = "x".repeat(500);
        let message = format!("{long}\n[1]\n{long}");
        let window = Window::MAX;
        let encoding = Encoding::new(Protocol::CentrifugePush, Some(window));
        let mut compressor = Compressor::default();
        let mut compress = |message: &str| {
            encoding.compressed_frame(window, Kind::Text, message.as_bytes(), &mut compressor)
        };
        let one = compress(&long).expect("smaller");
        assert_eq!(one[0], 0xc1);
        let expected = [&one[..], b"\x81\x03[1]", &one].concat();
        assert_eq!(compress(&message), Some(expected));
        assert_eq!(compress("{}\n[1]"), None);
    }
}
