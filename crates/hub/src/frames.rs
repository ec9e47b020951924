//! The frames of what is delivered, each made on first need and shared by all clients with the same encoding.

use crate::compression::Compressor;
use crate::encoding::{DataForm, Encoding, Protocol};
use myriad_wire::deflate::Window;
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
    plain: [Frames; Protocol::COUNT],
    /// Boxed, because most channels have no deltas.
    with_deltas: OnceLock<Box<FramesWithDeltas>>,
}

impl FrameCache {
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

    /// The WebSocket message, without its frame.
    fn message(&self, encoding: Encoding) -> (Kind, Cow<'_, [u8]>);

    /// The frame as it is sent to peers without compression.
    fn make_frame(&self, encoding: Encoding) -> Vec<u8> {
        let (kind, message) = self.message(encoding);
        frame_of(kind, &message)
    }

    /// The frame for peers with this window; none where it would be no smaller.
    fn make_compressed_frame(
        &self,
        encoding: Encoding,
        window: Window,
        compressor: &mut Compressor,
    ) -> Option<Vec<u8>> {
        let (kind, message) = self.message(encoding);
        compressor.compress(window, kind, &message)
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

/// A message as one frame of a server.
pub(crate) fn frame_of(kind: Kind, message: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(message.len() + 10);
    encode_frame(&mut frame, kind.into(), true, None, message);
    frame
}
