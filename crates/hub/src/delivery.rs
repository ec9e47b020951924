//! What a home sends to the shards of its subscribers.

use crate::compression::Compressor;
use crate::encoding::{DataForm, Encoding, Protocol};
use crate::frames::{Encode, FrameCache};
use crate::outbound::CHUNK_BYTES;
use crate::publication::kind_of;
use crate::{Announcement, Publication, StreamEnd};
use myriad_wire::centrifuge::Encoding as Format;
use myriad_wire::deflate::Window;
use myriad_wire::ws::Kind;
use std::borrow::Cow;
use std::sync::Arc;

/// What a home sends to the shards of its subscribers. Cheap to clone: one for each shard.
#[derive(Clone, Debug)]
pub enum Delivery {
    /// One publication.
    Publication(Arc<Publication>),
    /// Publications that leave together.
    Batch(Arc<Batch>),
    /// A join or a leave.
    Presence(Arc<Announcement>),
    /// The channel is a stream that has ended. It has no frame: `raw` and Centrifuge clients are not told.
    StreamEnd(Arc<StreamEnd>),
    /// The channel, of this name, has lost publications. It has no frame: every subscription ends.
    Lost(Arc<str>),
}

impl Delivery {
    /// The channel's name.
    #[must_use]
    pub fn channel(&self) -> &Arc<str> {
        match self {
            Self::Publication(publication) => publication.channel(),
            Self::Batch(batch) => batch.publications[0].channel(),
            Self::Presence(announcement) => &announcement.event().channel,
            Self::StreamEnd(end) => &end.channel,
            Self::Lost(channel) => channel,
        }
    }

    /// Its publications, in their order; none of a join, a leave, an end or a loss.
    #[must_use]
    pub fn publications(&self) -> &[Arc<Publication>] {
        match self {
            Self::Publication(publication) => std::slice::from_ref(publication),
            Self::Batch(batch) => &batch.publications,
            Self::Presence(_) | Self::StreamEnd(_) | Self::Lost(_) => &[],
        }
    }

    /// The offset of its last publication that has one; otherwise 0.
    #[must_use]
    pub fn offset(&self) -> u64 {
        match self {
            Self::Publication(publication) => publication.offset(),
            Self::Batch(batch) => batch.last_offset,
            Self::Presence(_) | Self::StreamEnd(_) | Self::Lost(_) => 0,
        }
    }

    /// About as many bytes as it adds to a queue.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let bytes = match self {
            Self::Presence(announcement) => announcement.event().bytes(),
            Self::StreamEnd(_) | Self::Lost(_) => 0,
            Self::Publication(_) | Self::Batch(_) => {
                let publications = self.publications().iter();
                publications
                    .map(|publication| publication.content().bytes())
                    .sum()
            }
        };
        bytes + CHUNK_BYTES
    }

    /// What a subscriber has had of it whose last offset is this.
    pub(crate) fn had_by(&self, last: u64) -> Had {
        match self.told() {
            ToldBy::Frame(framed) => framed.had_by(last),
            ToldBy::StreamEnd(_) | ToldBy::Loss(_) => Had::Nothing,
        }
    }

    /// What its members are told.
    #[must_use]
    pub fn told(&self) -> ToldBy<'_> {
        match self {
            Self::Publication(publication) => ToldBy::Frame(Framed::Publication(publication)),
            Self::Batch(batch) => ToldBy::Frame(Framed::Batch(batch)),
            Self::Presence(announcement) => ToldBy::Frame(Framed::Presence(announcement)),
            Self::StreamEnd(end) => ToldBy::StreamEnd(end),
            Self::Lost(channel) => ToldBy::Loss(channel),
        }
    }
}

/// How a channel's members are told of a delivery. Whoever asks for a frame has a [`Framed`], so nobody can ask a delivery that
/// has none.
#[derive(Clone, Copy, Debug)]
pub enum ToldBy<'a> {
    /// By a frame, which many share.
    Frame(Framed<'a>),
    /// By the end of their request. Only readers of streams are told.
    StreamEnd(&'a StreamEnd),
    /// By the end of their subscription to the channel of this name.
    Loss(&'a Arc<str>),
}

/// A delivery that has a frame.
#[derive(Clone, Copy, Debug)]
pub enum Framed<'a> {
    /// One publication.
    Publication(&'a Arc<Publication>),
    /// Publications that leave together.
    Batch(&'a Arc<Batch>),
    /// A join or a leave.
    Presence(&'a Arc<Announcement>),
}

impl<'a> Framed<'a> {
    /// The channel's name.
    #[must_use]
    pub fn channel(self) -> &'a Arc<str> {
        match self {
            Self::Publication(publication) => publication.channel(),
            Self::Batch(batch) => batch.publications[0].channel(),
            Self::Presence(announcement) => &announcement.event().channel,
        }
    }

    /// Its publications, in their order; none of a join or a leave.
    #[must_use]
    pub fn publications(self) -> &'a [Arc<Publication>] {
        match self {
            Self::Publication(publication) => std::slice::from_ref(publication),
            Self::Batch(batch) => &batch.publications,
            Self::Presence(_) => &[],
        }
    }

    /// The offset of its last publication that has one; otherwise 0.
    #[must_use]
    pub fn offset(self) -> u64 {
        match self {
            Self::Publication(publication) => publication.offset(),
            Self::Batch(batch) => batch.last_offset,
            Self::Presence(_) => 0,
        }
    }

    /// How many publications its frame has.
    #[must_use]
    pub fn publication_count(self) -> u16 {
        u16::try_from(self.publications().len()).unwrap_or(u16::MAX)
    }

    /// Whether it is a join or a leave.
    #[must_use]
    pub fn is_presence(self) -> bool {
        matches!(self, Self::Presence(_))
    }

    /// What a subscriber has had of it whose last offset is this.
    pub(crate) fn had_by(self, last: u64) -> Had {
        match self {
            Self::Presence(_) => Had::Nothing,
            Self::Publication(publication) if publication.is_had_by(last) => Had::All,
            Self::Publication(_) => Had::Nothing,
            // Offsets grow, so that the beginning tells nearly always.
            Self::Batch(batch) if batch.had_from > last => Had::Nothing,
            Self::Batch(batch) => match batch.had_count(last) {
                0 => Had::Nothing,
                count if count == batch.publications.len() => Had::All,
                _ => Had::Part,
            },
        }
    }

    /// The publications that a subscriber has not had whose last offset is this.
    pub(crate) fn publications_after(self, last: u64) -> &'a [Arc<Publication>] {
        match self {
            Self::Batch(batch) => &batch.publications[batch.had_count(last)..],
            Self::Publication(_) | Self::Presence(_) => match self.had_by(last) {
                Had::All => &[],
                Had::Part | Had::Nothing => self.publications(),
            },
        }
    }

    /// The frame in this encoding, compressed where that makes it smaller.
    pub fn frame(self, encoding: Encoding, compressor: &mut Compressor) -> &'a Arc<[u8]> {
        match self {
            Self::Publication(publication) => publication.frame(encoding, compressor),
            Self::Batch(batch) => batch.frame(encoding, compressor),
            Self::Presence(announcement) => announcement.frame(encoding, compressor),
        }
    }

    /// Bytes that one delivery of `frame`, which is in `encoding`, saves by being compressed.
    #[must_use]
    pub fn saved_bytes(self, encoding: Encoding, frame: &[u8]) -> u64 {
        match self {
            Self::Publication(publication) => publication.saved_bytes(encoding, frame),
            Self::Batch(batch) => batch.saved_bytes(encoding, frame),
            Self::Presence(announcement) => announcement.saved_bytes(encoding, frame),
        }
    }
}

/// What of a delivery a subscriber has had before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Had {
    Nothing,
    /// Some publications of a batch: it came, or recovered, while the batch waited.
    Part,
    All,
}

/// Publications of one channel that leave together, in their order; at least one. For Centrifuge clients they are one frame,
/// for `raw` clients frames that are sent at once.
///
/// Each of them counts its shards and holds its permit, as if it were delivered alone. A shard that joined while the batch
/// waited has been told a position inside of it: its members skip what is at or before that.
#[derive(Debug)]
pub struct Batch {
    publications: Box<[Arc<Publication>]>,
    /// The least last offset of a subscriber that has had one of them.
    had_from: u64,
    /// The greatest offset of those that have one; otherwise 0.
    last_offset: u64,
    data_bytes: usize,
    frames: FrameCache,
}

impl Batch {
    /// # Panics
    /// There is no publication.
    #[must_use]
    pub fn new(publications: Box<[Arc<Publication>]>) -> Self {
        assert!(!publications.is_empty());
        let offsets = publications.iter().map(|one| one.offset());
        let had_from = publications.iter().map(|one| one.had_from());
        Self {
            had_from: had_from.min().unwrap_or(u64::MAX),
            last_offset: offsets.max().unwrap_or(0),
            data_bytes: publications.iter().map(|one| one.data_bytes()).sum(),
            frames: FrameCache::default(),
            publications,
        }
    }

    /// How many of its publications come before what a subscriber has still to get whose last offset is this. Those without an
    /// offset are in the order too: a subscriber that knows the publication after one of them must not get it any more, or
    /// the next delta would have another base.
    fn had_count(&self, last: u64) -> usize {
        let had = |publication: &Arc<Publication>| publication.is_had_by(last);
        self.publications
            .iter()
            .rposition(had)
            .map_or(0, |index| index + 1)
    }

    /// The form of each publication's data, for subscribers that are given the first one in `first`.
    fn forms(first: DataForm) -> impl Iterator<Item = DataForm> {
        // They get all of the batch, so that each publication follows one that they have.
        let next = match first {
            DataForm::Plain => DataForm::Plain,
            DataForm::Whole | DataForm::Delta => DataForm::Delta,
        };
        std::iter::once(first).chain(std::iter::repeat(next))
    }
}

impl Encode for Batch {
    fn cache(&self) -> &FrameCache {
        &self.frames
    }

    fn data_bytes(&self) -> usize {
        self.data_bytes
    }

    fn message(&self, encoding: Encoding) -> (Kind, Cow<'_, [u8]>) {
        let protocol = encoding.protocol();
        // Frames of `raw` are made one by one, and readers' by `StreamSide`.
        debug_assert!(protocol.format().is_some());
        let format = protocol.format().unwrap_or(Format::Json);
        let mut message = Vec::with_capacity(self.data_bytes + 128 * self.publications.len());
        for (publication, form) in self.publications.iter().zip(Self::forms(encoding.form())) {
            publication.write(protocol, form, &mut message);
        }
        (kind_of(format), Cow::Owned(message))
    }

    fn make_frame(&self, encoding: Encoding) -> Vec<u8> {
        if encoding.has_event_ids() {
            return encoding.events(|events| {
                for (one, form) in self.publications.iter().zip(Self::forms(encoding.form())) {
                    one.write_event(encoding.with_form(form), events);
                }
            });
        }
        if encoding.protocol() != Protocol::Raw {
            let (kind, message) = self.message(encoding);
            return encoding.frame(kind, &message);
        }
        let frames = self.publications.iter();
        let frames: Vec<_> = frames
            .map(|one| &**one.uncompressed_frame(encoding))
            .collect();
        frames.concat()
    }

    fn make_compressed_frame(
        &self,
        encoding: Encoding,
        window: Window,
        compressor: &mut Compressor,
    ) -> Option<Vec<u8>> {
        if encoding.protocol() != Protocol::Raw {
            let (kind, message) = self.message(encoding);
            return encoding.compressed_frame(window, kind, &message, compressor);
        }
        let mut frames = Vec::new();
        for publication in &self.publications {
            frames.extend_from_slice(publication.frame(encoding, compressor));
        }
        Some(frames)
    }
}
