//! One message of a channel, encoded once for all its subscribers.

use crate::compression::{Compression, Compressor};
use crate::encoding::{Encoding, Protocol};
use crate::{Content, Now, Payload, Permit, Position};
use myriad_wire::deflate::Window;
use myriad_wire::ws::{Kind, encode_frame};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// The frames of a publication in one protocol, each made on first need.
#[derive(Debug, Default)]
struct Frames {
    uncompressed: OnceLock<Arc<[u8]>>,
    /// By window. Boxed, because most publications have nobody to compress them for.
    compressed: OnceLock<Box<CompressedFrames>>,
}

/// The compressed frames by window; none where compressing gains nothing.
type CompressedFrames = [OnceLock<Option<Arc<[u8]>>>; Window::COUNT];

/// A publication with its offset in its channel, shared by every shard that delivers it.
///
/// Each encoding is made on first need and shared from then on. The publication is dropped after its last delivery.
/// Backpressured connections keep only the encoding, so that they never hold back the publishers' permits.
#[derive(Debug)]
pub struct Publication {
    channel: Arc<str>,
    position: Position,
    content: Arc<Content>,
    /// What the channel's publication before this one said.
    delta_base: Option<Arc<Content>>,
    published_at: Now,
    /// By protocol.
    frames: [Frames; Protocol::COUNT],
    shards_remaining: AtomicUsize,
    _permit: Option<Permit>,
}

impl Publication {
    /// A publication that `shards` shards will deliver.
    #[must_use]
    pub fn new(
        channel: Arc<str>,
        position: Position,
        content: Arc<Content>,
        published_at: Now,
        shards: usize,
        permit: Option<Permit>,
    ) -> Self {
        Self {
            channel,
            position,
            content,
            delta_base: None,
            published_at,
            frames: Default::default(),
            shards_remaining: AtomicUsize::new(shards),
            _permit: permit,
        }
    }

    /// The same, with what the channel's publication before it said: it can be sent as a delta to that.
    #[must_use]
    pub fn with_delta_base(self, delta_base: Option<Arc<Content>>) -> Self {
        Self { delta_base, ..self }
    }

    /// The channel's name.
    #[must_use]
    pub fn channel(&self) -> &Arc<str> {
        &self.channel
    }

    /// Where it is in its channel's order.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// Its offset in the channel; 0 if it has none, because its channel has a history that does not keep it.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.position.offset
    }

    /// What it says.
    #[must_use]
    pub fn content(&self) -> &Arc<Content> {
        &self.content
    }

    /// What the channel's publication before this one said, if this one may be sent as a delta. Of use to subscribers who were
    /// given the publication before this one, whose offset is one less.
    #[must_use]
    pub fn delta_base(&self) -> Option<&Arc<Content>> {
        self.delta_base.as_ref()
    }

    /// When it was accepted.
    #[must_use]
    pub fn published_at(&self) -> Now {
        self.published_at
    }

    /// What a publication of so many bytes can come to hold, its permit's size: the data, its frame, and with
    /// compression one frame more for each window that makes a difference.
    #[must_use]
    pub fn bytes_max(payload_bytes: usize, compression: Compression) -> u64 {
        /// Its record, the heads of its frames, its entries in inboxes.
        const OVERHEAD_BYTES: u64 = 256;
        let windows = match compression {
            Compression::Shared => Window::MAX
                .worthwhile(payload_bytes)
                .map_or(0, |largest| 1 + largest.index()),
            Compression::Off => 0,
        };
        (2 + windows as u64) * payload_bytes as u64 + OVERHEAD_BYTES
    }

    /// The publication in this encoding, compressed where that makes it smaller.
    ///
    /// Concurrent callers block on the first encoder, never longer than encoding would take.
    pub fn frame(&self, encoding: Encoding, compressor: &mut Compressor) -> &Arc<[u8]> {
        let protocol = encoding.protocol();
        let payload = &self.content.payload;
        let worthwhile = |window: Window| window.worthwhile(payload.bytes().len());
        let Some(window) = encoding.window().and_then(worthwhile) else {
            return self.uncompressed_frame(protocol);
        };
        let compressed = &self.frames[protocol as usize].compressed;
        let frame = compressed.get_or_init(Box::default)[window.index()].get_or_init(|| {
            let frame = match protocol {
                Protocol::Raw => compressor.compress(window, raw_kind(payload), &payload.raw())?,
            };
            Some(frame.into())
        });
        frame
            .as_ref()
            .unwrap_or_else(|| self.uncompressed_frame(protocol))
    }

    fn uncompressed_frame(&self, protocol: Protocol) -> &Arc<[u8]> {
        let frame = &self.frames[protocol as usize].uncompressed;
        frame.get_or_init(|| match protocol {
            Protocol::Raw => self.encode_raw().into(),
        })
    }

    /// One unmasked WebSocket frame, text or binary.
    fn encode_raw(&self) -> Vec<u8> {
        let payload = &self.content.payload;
        let bytes = payload.raw();
        let mut frame = Vec::with_capacity(bytes.len() + 10);
        encode_frame(&mut frame, raw_kind(payload).into(), true, None, &bytes);
        frame
    }

    /// Bytes that one delivery of `frame`, which is this publication's in `encoding`, saves by being compressed.
    #[must_use]
    pub fn saved_bytes(&self, encoding: Encoding, frame: &[u8]) -> u64 {
        // What is not compressed saves nothing, and needs no second frame to compare with.
        if encoding.window().is_none() {
            return 0;
        }
        let plain = self.uncompressed_frame(encoding.protocol());
        (plain.len() - frame.len()) as u64
    }

    /// Notes that one shard has submitted its last delivery; true for the last shard of all.
    pub fn note_shard_done(&self) -> bool {
        self.shards_remaining.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// The kind of a payload's `raw` frame.
fn raw_kind(payload: &Payload) -> Kind {
    match payload {
        Payload::Text(_) | Payload::Json(_) => Kind::Text,
        Payload::Binary(_) => Kind::Binary,
    }
}

#[cfg(test)]
mod tests {
    use super::{Payload, Publication};
    use crate::compression::{Compression, Compressor};
    use crate::encoding::{Encoding, Protocol};
    use crate::{Content, Epoch, Now, Position};
    use myriad_wire::deflate::{Inflater, Window};
    use myriad_wire::ws::Kind;
    use std::collections::HashSet;
    use std::sync::Arc;

    fn publication(text: &str) -> Publication {
        new(Payload::Text(text.into()))
    }

    fn new(payload: Payload) -> Publication {
        let position = Position {
            epoch: Epoch::new(7),
            offset: 1,
        };
        let content = Arc::new(Content::new(payload));
        Publication::new("x".into(), position, content, Now(0), 1, None)
    }

    fn raw(window: Option<Window>) -> Encoding {
        Encoding::new(Protocol::Raw, window)
    }

    fn windows() -> impl Iterator<Item = Window> {
        (9..=15).filter_map(Window::new)
    }

    #[test]
    #[cfg_attr(miri, ignore = "it takes minutes to compress some 5 KiB")]
    fn peers_of_one_window_share_a_frame_that_inflates_to_the_data() {
        let text = (0..500)
            .map(|n| format!("{n} {}, ", n * n))
            .collect::<String>();
        let publication = publication(&text);
        let mut compressor = Compressor::default();
        for window in windows() {
            let frame = Arc::clone(publication.frame(raw(Some(window)), &mut compressor));
            assert!(Arc::ptr_eq(
                &frame,
                publication.frame(raw(Some(window)), &mut compressor)
            ));
            assert_eq!(frame[..2], [0xc1, 126], "a compressed text");
            let mut inflated = Vec::new();
            let inflating =
                Inflater::default().inflate(Kind::Text, &frame[4..], 1 << 20, &mut inflated);
            assert_eq!((inflating, inflated), (Ok(()), text.clone().into_bytes()));
            let saved = publication.uncompressed_frame(Protocol::Raw).len() - frame.len();
            assert_eq!(
                publication.saved_bytes(raw(Some(window)), &frame),
                saved as u64
            );
        }
        assert!(Arc::ptr_eq(
            publication.frame(raw(None), &mut compressor),
            publication.uncompressed_frame(Protocol::Raw)
        ));
        assert_eq!(
            publication.saved_bytes(raw(None), publication.uncompressed_frame(Protocol::Raw)),
            0
        );
        // No larger window than 13 bits is of use to some 5 KiB.
        assert!((4097 - 262..=8192 - 262).contains(&text.len()));
        assert_eq!(compressor.frames(), 5);
    }

    #[test]
    fn what_gains_nothing_goes_as_it_is() {
        let mut compressor = Compressor::default();
        let short = publication("a short text");
        let payload = Payload::Binary(random_bytes(if cfg!(miri) { 300 } else { 2000 }).into());
        let random = new(payload);
        for publication in [&short, &random] {
            for window in windows() {
                let frame = publication.frame(raw(Some(window)), &mut compressor);
                assert!(Arc::ptr_eq(
                    frame,
                    publication.uncompressed_frame(Protocol::Raw)
                ));
            }
        }
        assert_eq!(compressor.frames(), 0);
    }

    fn random_bytes(count: usize) -> Vec<u8> {
        let mut seed = 1_u64;
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed.to_be_bytes()[0]
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn a_permit_covers_every_frame_there_can_be() {
        let sizes = [0, 1, 255, 256, 1024, 5000, 100_000];
        // Miri has no time for the large ones.
        for bytes in sizes
            .into_iter()
            .filter(|bytes| !cfg!(miri) || *bytes <= 1024)
        {
            let publication = publication(&"ab".repeat(bytes / 2));
            let mut compressor = Compressor::default();
            let frames: HashSet<*const u8> = windows()
                .map(|window| {
                    publication
                        .frame(raw(Some(window)), &mut compressor)
                        .as_ptr()
                })
                .chain([publication.uncompressed_frame(Protocol::Raw).as_ptr()])
                .collect();
            let held = (1 + frames.len()) as u64 * bytes as u64;
            assert_eq!(
                Publication::bytes_max(bytes, Compression::Shared),
                held + 256,
                "{bytes}"
            );
            assert_eq!(
                Publication::bytes_max(bytes, Compression::Off),
                2 * bytes as u64 + 256
            );
        }
    }
}
