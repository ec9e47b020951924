//! One message of a channel, encoded once for all its subscribers.

use crate::compression::{Compression, Compressor};
use crate::encoding::{Encoding, Protocol};
use crate::{
    ClientInfo, Content, Epoch, Now, Payload, Permit, Position, PresenceChange, PresenceEvent,
    Ticket,
};
use myriad_wire::centrifuge::{Encoding as Format, FrameWriter, Push};
use myriad_wire::deflate::Window;
use myriad_wire::ws::{Kind, encode_frame};
use std::borrow::Cow;
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

/// What is told to subscribers.
#[derive(Debug)]
enum Body {
    Content(Arc<Content>),
    Presence(PresenceChange, Arc<ClientInfo>),
}

/// A publication with its offset in its channel, shared by every shard that delivers it.
///
/// Each encoding is made on first need and shared from then on. The publication is dropped after its last delivery.
/// Backpressured connections keep only the encoding, so that they never hold back the publishers' permits.
#[derive(Debug)]
pub struct Publication {
    channel: Arc<str>,
    position: Position,
    body: Body,
    /// The client that does not get it as it happens.
    sender: Option<Ticket>,
    /// What the channel's publication before this one said.
    delta_base: Option<Arc<Content>>,
    published_at: Now,
    /// Whether clients are told its offset: those of channels with history are.
    keeps_position: bool,
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
            body: Body::Content(content),
            sender: None,
            delta_base: None,
            published_at,
            keeps_position: false,
            frames: Default::default(),
            shards_remaining: AtomicUsize::new(shards),
            _permit: permit,
        }
    }

    /// A join or a leave on its way to members on one shard. Of the position only the epoch counts: it has no place in the order.
    #[must_use]
    pub fn presence(event: &PresenceEvent, epoch: Epoch, now: Now) -> Self {
        let position = Position { epoch, offset: 0 };
        Self {
            channel: Arc::clone(&event.channel),
            position,
            body: Body::Presence(event.change, Arc::clone(&event.info)),
            sender: None,
            delta_base: None,
            published_at: now,
            keeps_position: false,
            frames: Default::default(),
            shards_remaining: AtomicUsize::new(1),
            _permit: None,
        }
    }

    /// The same, which this client does not get as it happens.
    #[must_use]
    pub fn without_sender(self, sender: Option<Ticket>) -> Self {
        Self { sender, ..self }
    }

    /// The same, with what the channel's publication before it said: it can be sent as a delta to that.
    #[must_use]
    pub fn with_delta_base(self, delta_base: Option<Arc<Content>>) -> Self {
        Self { delta_base, ..self }
    }

    /// The same, whose offset Centrifuge clients are told.
    #[must_use]
    pub fn with_position(self) -> Self {
        Self {
            keeps_position: true,
            ..self
        }
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

    /// What it says; none of a join or a leave.
    #[must_use]
    pub fn content(&self) -> Option<&Arc<Content>> {
        match &self.body {
            Body::Content(content) => Some(content),
            Body::Presence(..) => None,
        }
    }

    /// The client that does not get it as it happens: the one that published it, if its channel wants that.
    #[must_use]
    pub fn sender(&self) -> Option<Ticket> {
        self.sender
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
        let bytes = self.payload().map_or(0, |payload| payload.bytes().len());
        let worthwhile = |window: Window| window.worthwhile(bytes);
        let Some(window) = encoding.window().and_then(worthwhile) else {
            return self.uncompressed_frame(protocol);
        };
        let compressed = &self.frames[protocol as usize].compressed;
        let frame = compressed.get_or_init(Box::default)[window.index()].get_or_init(|| {
            let (kind, message) = self.message(protocol);
            Some(compressor.compress(window, kind, &message)?.into())
        });
        frame
            .as_ref()
            .unwrap_or_else(|| self.uncompressed_frame(protocol))
    }

    fn uncompressed_frame(&self, protocol: Protocol) -> &Arc<[u8]> {
        let frame = &self.frames[protocol as usize].uncompressed;
        frame.get_or_init(|| {
            let (kind, message) = self.message(protocol);
            let mut frame = Vec::with_capacity(message.len() + 10);
            encode_frame(&mut frame, kind.into(), true, None, &message);
            frame.into()
        })
    }

    /// The WebSocket message of the publication, without its frame.
    fn message(&self, protocol: Protocol) -> (Kind, Cow<'_, [u8]>) {
        let format = match protocol {
            Protocol::Raw => {
                let payload = self.payload().expect("raw clients get no joins");
                return (raw_kind(payload), payload.raw());
            }
            Protocol::CentrifugeJson => Format::Json,
            Protocol::CentrifugeProtobuf => Format::Protobuf,
        };
        let offset = if self.keeps_position {
            self.position.offset
        } else {
            0
        };
        let bytes = self.payload().map_or(0, |payload| payload.bytes().len());
        let mut message = Vec::with_capacity(bytes + 128);
        let mut writer = FrameWriter::new(format, &mut message);
        match &self.body {
            Body::Content(content) => {
                let parts = content.parts(format);
                let push = Push::Publication(content.fields(&parts, offset));
                writer.push(&self.channel, &push);
            }
            Body::Presence(change, info) => {
                let client = info.client.to_string();
                let info = info.fields(&client);
                let push = match change {
                    PresenceChange::Joined => Push::Join(info),
                    PresenceChange::Left => Push::Leave(info),
                };
                writer.push(&self.channel, &push);
            }
        }
        (kind_of(format), Cow::Owned(message))
    }

    /// Whether clients that read only JSON can read it.
    #[must_use]
    pub fn is_json(&self) -> bool {
        !matches!(self.payload(), Some(Payload::Binary(_)))
    }

    /// Whether it is a join or a leave.
    #[must_use]
    pub fn is_presence(&self) -> bool {
        matches!(self.body, Body::Presence(..))
    }

    fn payload(&self) -> Option<&Payload> {
        self.content().map(|content| &content.payload)
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

/// The kind of frame that messages of a format travel in.
#[must_use]
pub fn kind_of(format: Format) -> Kind {
    match format {
        Format::Json => Kind::Text,
        Format::Protobuf => Kind::Binary,
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
