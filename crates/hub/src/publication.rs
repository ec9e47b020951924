//! One message of a channel, encoded once for all its subscribers.

use crate::compression::Compression;
use crate::encoding::{DataForm, Encoding, Framing, Protocol};
use crate::frames::{Encode, FrameCache};
use crate::{Content, Kept, Now, Payload, Permit, Position, Ticket};
use myriad_wire::centrifuge::{Encoding as Format, EventId, PublicationFields, Push};
use myriad_wire::deflate::Window;
use myriad_wire::sse::{encode_event, encode_id};
use myriad_wire::ws::Kind;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A publication with its offset in its channel, shared by every shard that delivers it.
///
/// Each encoding is made on first need and shared from then on. The publication is dropped after its last delivery.
/// Backpressured connections keep only the encoding, so that they never hold back the publishers' permits.
#[derive(Debug)]
pub struct Publication {
    channel: Arc<str>,
    position: Position,
    content: Arc<Content>,
    /// The client that does not get it as it happens.
    sender: Option<Ticket>,
    /// The channel's publication before this one.
    delta_base: Option<Kept>,
    published_at: Now,
    /// The least last offset of a subscriber that does not get it any more.
    had_from: u64,
    /// Whether clients are told its offset: those of channels with history are.
    keeps_position: bool,
    frames: FrameCache,
    shards_remaining: AtomicUsize,
    permit: Option<Permit>,
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
        let had_from = match position.offset {
            0 => u64::MAX,
            offset => offset,
        };
        Self {
            channel,
            position,
            content,
            had_from,
            sender: None,
            delta_base: None,
            published_at,
            keeps_position: false,
            frames: FrameCache::default(),
            shards_remaining: AtomicUsize::new(shards),
            permit,
        }
    }

    /// The same, which this client does not get as it happens.
    #[must_use]
    pub fn without_sender(self, sender: Option<Ticket>) -> Self {
        Self { sender, ..self }
    }

    /// The same, with the channel's publication before it: it can be sent as a delta to that.
    #[must_use]
    pub fn with_delta_base(self, delta_base: Option<Kept>) -> Self {
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

    /// The same, without an offset and behind this one in the channel's order: a subscriber that was told of a later one does not
    /// get it any more. Otherwise it would come late, and the next delta would have another base.
    #[must_use]
    pub fn without_offset_after(self, offset: u64) -> Self {
        // Its caller has just made it so.
        debug_assert_eq!(self.offset(), 0);
        Self {
            had_from: offset + 1,
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

    /// Whether a subscriber has had it whose last offset is this, or what comes after it.
    pub(crate) fn is_had_by(&self, last: u64) -> bool {
        self.had_from <= last
    }

    /// The least last offset of a subscriber that has had it.
    pub(crate) fn had_from(&self) -> u64 {
        self.had_from
    }

    /// How much all publications in flight hold of what they may: 0 to 4 quarters. Zero without a permit.
    pub(crate) fn held_quarters(&self) -> u64 {
        self.permit.as_ref().map_or(0, Permit::held_quarters)
    }

    /// What it says.
    #[must_use]
    pub fn content(&self) -> &Arc<Content> {
        &self.content
    }

    /// The client that does not get it as it happens: the one that published it, if its channel wants that.
    #[must_use]
    pub fn sender(&self) -> Option<Ticket> {
        self.sender
    }

    /// The channel's publication before this one, if this one may be sent as a delta. Of use to subscribers who were given that
    /// one last.
    #[must_use]
    pub fn delta_base(&self) -> Option<&Kept> {
        self.delta_base.as_ref()
    }

    /// When it was accepted.
    #[must_use]
    pub fn published_at(&self) -> Now {
        self.published_at
    }

    /// What a publication can come to hold, its permit's size: the data, and for each protocol its frame, with
    /// compression one more for each window that makes a difference. Frames with deltas count as one protocol more: a delta is
    /// smaller than the data. With `http_streams`, messages may travel over HTTP too, and to clients without commands. Characters that
    /// have to be escaped are not counted, nor is the frame of a batch that a shard makes of what waits.
    #[must_use]
    pub fn bytes_max(content: &Content, compression: Compression, http_streams: bool) -> u64 {
        /// Protocols of clients that speak WebSocket in any case.
        const PROTOCOLS: usize = 3;
        /// JSON and pushes in both framings of HTTP, protobuf in one of them; and frames with deltas in both.
        const OVER_HTTP: usize = 5 + Framing::HTTP_COUNT;
        let windows = match compression {
            Compression::Shared => Window::MAX
                .worthwhile(content.payload.bytes().len())
                .map_or(0, |largest| 1 + largest.index()),
            Compression::Off => 0,
        };
        let mut frames = (PROTOCOLS + 1) * (1 + windows);
        if http_streams {
            frames += (Protocol::COUNT - PROTOCOLS) * (1 + windows) + OVER_HTTP;
        }
        let bytes = content.bytes() - size_of::<Content>();
        (1 + frames as u64) * bytes as u64 + Self::OVERHEAD_BYTES
    }

    /// What a publication takes beside its data and frames: its record with the places of its frames, its content, and 256 bytes
    /// for the heads of frames, its entries in inboxes and batches, and the allocator. For a publication of one byte that is nearly
    /// all of it.
    pub const OVERHEAD_BYTES: u64 = (size_of::<Self>() + size_of::<Content>()) as u64 + 256;

    /// Whether clients that read only JSON can read it.
    #[must_use]
    pub fn is_json(&self) -> bool {
        self.content.payload.is_json()
    }

    /// Appends it to a message of Centrifuge clients.
    pub(crate) fn write(&self, protocol: Protocol, form: DataForm, message: &mut Vec<u8>) {
        // Those of `raw` are written as they are.
        debug_assert!(protocol.format().is_some());
        let format = protocol.format().unwrap_or(Format::Json);
        let offset = if self.keeps_position {
            self.position.offset
        } else {
            0
        };
        let base = self.delta_base.as_ref().map(|base| &*base.content);
        let parts = self.content.parts(format, form, base);
        // Clients learn the epoch from the first publication of one, as they do in Centrifuge. It leaves that out in JSON for
        // subscriptions with deltas.
        let is_ordinary = form == DataForm::Plain || format == Format::Protobuf;
        let tells_epoch = offset == 1 && is_ordinary;
        let fields = PublicationFields {
            epoch: if tells_epoch {
                self.position.epoch.as_str()
            } else {
                ""
            },
            ..self.content.fields(&parts, offset)
        };
        let push = Push::Publication(fields);
        protocol.writer(message).push(&self.channel, &push);
    }

    /// Appends it as an event for a client without commands. Where its position is told, the event's id has it: a client that comes
    /// back says the id.
    pub(crate) fn write_event(&self, encoding: Encoding, events: &mut Vec<u8>) {
        if self.keeps_position && self.offset() > 0 {
            let id = EventId {
                channel: (&*self.channel).into(),
                position: self.position.stream_offset(),
            };
            encode_id(events, &id.to_string());
        }
        let mut message = Vec::with_capacity(self.content.payload.bytes().len() + 128);
        self.write(encoding.protocol(), encoding.form(), &mut message);
        encode_event(events, None, &message);
    }

    /// Notes that one shard has submitted its last delivery; true for the last shard of all.
    pub fn note_shard_done(&self) -> bool {
        self.shards_remaining.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

impl Encode for Publication {
    fn cache(&self) -> &FrameCache {
        &self.frames
    }

    fn data_bytes(&self) -> usize {
        self.content.payload.bytes().len()
    }

    fn message(&self, encoding: Encoding) -> (Kind, Cow<'_, [u8]>) {
        let protocol = encoding.protocol();
        let Some(format) = protocol.format() else {
            let payload = &self.content.payload;
            return (raw_kind(payload), payload.raw());
        };
        let mut message = Vec::with_capacity(self.data_bytes() + 128);
        self.write(protocol, encoding.form(), &mut message);
        (kind_of(format), Cow::Owned(message))
    }

    fn make_frame(&self, encoding: Encoding) -> Vec<u8> {
        if encoding.has_event_ids() {
            return encoding.events(|events| self.write_event(encoding, events));
        }
        let (kind, message) = self.message(encoding);
        encoding.frame(kind, &message)
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
        Payload::JsonBytes(_) | Payload::Binary(_) => Kind::Binary,
    }
}

#[cfg(test)]
mod tests {
    use super::{Payload, Publication};
    use crate::compression::{Compression, Compressor};
    use crate::encoding::{DataForm, Encoding, Framing, Protocol};
    use crate::frames::Encode;
    use crate::{Content, Epoch, Kept, Now, Position};
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
            let saved = publication.uncompressed_frame(raw(None)).len() - frame.len();
            assert_eq!(
                publication.saved_bytes(raw(Some(window)), &frame),
                saved as u64
            );
        }
        assert!(Arc::ptr_eq(
            publication.frame(raw(None), &mut compressor),
            publication.uncompressed_frame(raw(None))
        ));
        assert_eq!(
            publication.saved_bytes(raw(None), publication.uncompressed_frame(raw(None))),
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
                    publication.uncompressed_frame(raw(None))
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
            let bytes = bytes / 2 * 2;
            let publication = publication(&"ab".repeat(bytes / 2));
            let mut compressor = Compressor::default();
            for compression in [Compression::Off, Compression::Shared] {
                let windows = windows()
                    .map(Some)
                    .filter(|_| compression != Compression::Off);
                let windows: Vec<_> = windows.chain([None]).collect();
                for http_streams in [false, true] {
                    let frames: HashSet<*const u8> = encodings(http_streams, &windows)
                        .into_iter()
                        .map(|encoding| publication.frame(encoding, &mut compressor).as_ptr())
                        .collect();
                    let held = (1 + frames.len()) as u64 * bytes as u64;
                    let content = publication.content();
                    let permit = Publication::bytes_max(content, compression, http_streams);
                    assert_eq!(permit, held + Publication::OVERHEAD_BYTES, "{bytes}");
                }
            }
        }
    }

    /// Every encoding that there can be; of those with deltas one in each framing.
    fn encodings(http_streams: bool, windows: &[Option<Window>]) -> Vec<Encoding> {
        let (json, protobuf) = (Protocol::CentrifugeJson, Protocol::CentrifugeProtobuf);
        let mut encodings = Vec::new();
        for &window in windows {
            let protocols = [Protocol::Raw, json, protobuf];
            encodings.extend(protocols.map(|protocol| Encoding::new(protocol, window)));
            encodings.push(Encoding::new(json, window).with_form(DataForm::Whole));
            if http_streams {
                encodings.push(Encoding::new(Protocol::CentrifugePush, window));
            }
        }
        if http_streams {
            let plain = |protocol| Encoding::new(protocol, None);
            for framing in [Framing::Chunk, Framing::Event] {
                let of_json = [json, Protocol::CentrifugePush].map(plain);
                let whole = plain(json).with_form(DataForm::Whole);
                let all = of_json.into_iter().chain([whole]);
                encodings.extend(all.map(|encoding| encoding.with_framing(framing)));
            }
            encodings.push(plain(protobuf).with_framing(Framing::Chunk));
        }
        encodings
    }

    #[test]
    fn the_first_publication_of_an_epoch_tells_it_but_in_json_with_deltas() {
        let publication = new(Payload::Json("{}".into())).with_position();
        let epoch = publication.position().epoch;
        let tells = |protocol, form| {
            let (_, message) = publication.message(Encoding::new(protocol, None).with_form(form));
            let name = epoch.as_str().as_bytes();
            message.windows(name.len()).any(|bytes| bytes == name)
        };
        let (json, protobuf) = (Protocol::CentrifugeJson, Protocol::CentrifugeProtobuf);
        for form in [DataForm::Plain, DataForm::Whole, DataForm::Delta] {
            assert!(tells(protobuf, form), "{form:?}");
            assert_eq!(tells(json, form), form == DataForm::Plain, "{form:?}");
        }
    }

    #[test]
    fn a_delta_is_told_to_those_who_have_the_publication_before() {
        let text = |number: u32| {
            let json = format!(
                "{{\"places\":\"{}\",\"number\":{number}}}",
                "é, ".repeat(50)
            );
            Arc::new(Content::new(Payload::Json(json.into())))
        };
        let (base, next) = (text(1), text(2));
        let kept = Kept {
            offset: 1,
            content: Arc::clone(&base),
        };
        let publication = new(next.payload.clone()).with_delta_base(Some(kept));
        let push = |protocol, form| {
            let (_, message) = publication.message(Encoding::new(protocol, None).with_form(form));
            message.into_owned()
        };
        let json = |form| {
            let message = push(Protocol::CentrifugeJson, form);
            let value: serde_json::Value = serde_json::from_slice(&message).expect("JSON");
            value["push"]["pub"].clone()
        };
        let (base, next) = (base.payload.bytes(), next.payload.bytes());
        assert_eq!(json(DataForm::Plain)["data"]["number"], 2);
        let whole = json(DataForm::Whole);
        assert_eq!(whole["data"].as_str().map(str::as_bytes), Some(next));
        assert!(whole.get("delta").is_none());
        let delta = json(DataForm::Delta);
        assert_eq!(delta["delta"], true);
        let text = delta["data"].as_str().expect("a string");
        assert!(text.len() < next.len() / 2, "{text}");
        let made = myriad_wire::centrifuge::apply_delta(base, text.as_bytes(), next.len());
        assert_eq!(made.as_deref(), Some(next));
        let whole = push(Protocol::CentrifugeProtobuf, DataForm::Whole);
        assert_eq!(whole, push(Protocol::CentrifugeProtobuf, DataForm::Plain));
        assert!(push(Protocol::CentrifugeProtobuf, DataForm::Delta).len() < whole.len() / 2);
        // What differs in all is told whole.
        let other = new(Payload::Json("1".into())).with_delta_base(publication.delta_base.clone());
        let other = |form| {
            let encoding = Encoding::new(Protocol::CentrifugeJson, None).with_form(form);
            other.message(encoding).1.into_owned()
        };
        assert_eq!(other(DataForm::Delta), other(DataForm::Whole));
    }
}
