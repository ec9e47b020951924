//! What has been published: the content, and the order that homes gave it.

use myriad_reactor::sim::Prng;
use myriad_shard::{
    Ask, Compression, ControlPlane, Epoch, InquiryAnswer, Mesh, NotPublished, Payload, Position,
    ProcessLimits, PublishRefused, RequestId,
};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

/// The channel whose publications are too small to say which they are. A peer tells them by their size and order.
pub(crate) const TINY: usize = 0;
/// Bytes from which on a publication names itself.
pub(crate) const NAMED_BYTES_MIN: usize = 8;

pub(crate) const CHANNELS: usize = 6;

#[derive(Debug)]
pub(crate) struct Publication {
    pub(crate) channel: usize,
    pub(crate) is_text: bool,
    pub(crate) content: Vec<u8>,
    /// Its place in the order of its channel.
    pub(crate) position: Option<usize>,
}

impl Publication {
    /// Bytes of its frame, from RFC 6455, section 5.2.
    pub(crate) fn frame_bytes(&self) -> u64 {
        let length = self.content.len() as u64;
        length
            + match length {
                0..=125 => 2,
                126..=0xffff => 4,
                _ => 10,
            }
    }
}

#[derive(Debug, Default)]
struct Channel {
    name: String,
    /// Accepted, without a place so far.
    pending: VecDeque<usize>,
    order: Vec<usize>,
    last_offset: u64,
    /// Frame bytes of the publications before each place.
    bytes_before: Vec<u64>,
    /// The place up to which everything has come to every shard: who subscribes later gets none of it.
    known: usize,
}

/// Ids from here on are not those of this ledger's publications.
pub(crate) const OTHERS: u64 = 1 << 63;

/// The answer to a publication: its position, if it got one.
type Answer = (RequestId, Option<Position>);

/// What shards told the control plane, as it came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replies(Arc<Mutex<Told>>);

#[derive(Debug, Default)]
struct Told {
    published: Vec<Answer>,
    /// Answers with ids that are not this ledger's.
    others: Vec<Answer>,
    asks: Vec<Ask>,
    answered: Vec<Answered>,
}

/// The answer to an inquiry or an order; none if its shard has ended.
type Answered = (RequestId, Option<InquiryAnswer>);

impl ControlPlane for Replies {
    fn answered(&self, id: RequestId, answer: Option<InquiryAnswer>) {
        self.told().answered.push((id, answer));
    }

    fn published(&self, id: RequestId, position: Result<Position, NotPublished>) {
        let mut told = self.told();
        match id.0.checked_sub(OTHERS) {
            None => told.published.push((id, position.ok())),
            Some(other) => told.others.push((RequestId(other), position.ok())),
        }
    }

    fn ask(&self, _mesh: &Mesh, ask: Ask) {
        self.told().asks.push(ask);
    }
}

impl Replies {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.0.lock().expect("one thread")
    }

    pub(crate) fn take(&self) -> Vec<Answer> {
        std::mem::take(&mut self.told().published)
    }

    /// Answers to ids behind [`OTHERS`], counted from there.
    pub(crate) fn take_others(&self) -> Vec<Answer> {
        std::mem::take(&mut self.told().others)
    }

    pub(crate) fn take_asks(&self) -> Vec<Ask> {
        std::mem::take(&mut self.told().asks)
    }

    pub(crate) fn take_answers(&self) -> Vec<Answered> {
        std::mem::take(&mut self.told().answered)
    }
}

pub(crate) struct Ledger {
    channels: Vec<Channel>,
    publications: Vec<Publication>,
    pub(crate) replies: Replies,
    /// Of every position.
    epoch: Epoch,
}

impl Ledger {
    /// Channels whose homes differ from seed to seed.
    pub(crate) fn new(replies: Replies, epoch: Epoch, prng: &mut Prng) -> Self {
        let suffix = prng.below(1000);
        let channel = |base: &str| Channel {
            name: format!("{base}{suffix}"),
            bytes_before: vec![0],
            ..Channel::default()
        };
        Self {
            channels: ["tiny", "a", "b", "c d", "é&=", "rare"].map(channel).into(),
            publications: Vec::new(),
            replies,
            epoch,
        }
    }

    /// A channel's name as a query writes it.
    pub(crate) fn query_name(&self, channel: usize) -> String {
        let encode = |byte: u8| match byte {
            b'a'..=b'z' | b'0'..=b'9' => char::from(byte).to_string(),
            b' ' => "+".into(),
            other => format!("%{other:02x}"),
        };
        self.channels[channel].name.bytes().map(encode).collect()
    }

    /// Publishes something new, and checks what becomes of it at once.
    pub(crate) fn publish(
        &mut self,
        mesh: &Mesh,
        channel: usize,
        size: usize,
        limits: ProcessLimits,
        is_unheard: bool,
        prng: &mut Prng,
    ) -> Result<usize, PublishRefused> {
        let id = self.publications.len();
        let is_text = prng.one_in(2);
        let content = content(id, size);
        let payload = if is_text {
            Payload::Text(String::from_utf8(content.clone()).expect("ASCII").into())
        } else {
            Payload::Binary(content.clone().into())
        };
        let limit = limits.publication_bytes_max;
        let cost = cost(size, limits.compression);
        let expected = if is_unheard {
            Err(PublishRefused::Draining)
        } else if cost > limit {
            Err(PublishRefused::TooLarge)
        } else if mesh.publication_bytes() + cost > limit {
            Err(PublishRefused::Busy)
        } else {
            Ok(())
        };
        let name = &self.channels[channel].name;
        let publish_id = Some(RequestId(id as u64));
        assert_eq!(mesh.publish(name, payload, publish_id), expected);
        expected?;
        self.channels[channel].pending.push_back(id);
        self.publications.push(Publication {
            channel,
            is_text,
            content,
            position: None,
        });
        Ok(id)
    }

    /// Takes in the replies since the last call: each accepted publication gets one, in the order of publishing, and
    /// offsets grow, whatever becomes of the channel in between.
    pub(crate) fn take_replies(&mut self) -> usize {
        let replies = self.replies.take();
        for &(id, position) in &replies {
            let id = usize::try_from(id.0).expect("an index");
            let position = position.expect("its home lives");
            assert_eq!(position.epoch, self.epoch);
            let offset = position.offset;
            let publication = &mut self.publications[id];
            let channel = &mut self.channels[publication.channel];
            assert_eq!(
                channel.pending.pop_front(),
                Some(id),
                "a reply out of order"
            );
            assert!(
                offset > channel.last_offset,
                "{}: offset {offset} after {}",
                channel.name,
                channel.last_offset
            );
            channel.last_offset = offset;
            publication.position = Some(channel.order.len());
            channel.order.push(id);
            let before = channel.bytes_before.last().expect("begins with 0");
            channel
                .bytes_before
                .push(before + publication.frame_bytes());
        }
        replies.len()
    }

    /// No message is under way: everything accepted has its place, and has come to every shard that wants it.
    pub(crate) fn note_known(&mut self) {
        self.check_replies();
        for channel in &mut self.channels {
            channel.known = channel.order.len();
        }
    }

    /// Everything accepted has its place.
    pub(crate) fn check_replies(&self) {
        for channel in &self.channels {
            assert!(channel.pending.is_empty(), "{}: no reply", channel.name);
        }
    }

    pub(crate) fn known(&self, channel: usize) -> usize {
        self.channels[channel].known
    }

    /// Publications with a place.
    pub(crate) fn len(&self, channel: usize) -> usize {
        self.channels[channel].order.len()
    }

    pub(crate) fn at(&self, channel: usize, position: usize) -> &Publication {
        &self.publications[self.channels[channel].order[position]]
    }

    /// Frame bytes of everything from a place on.
    pub(crate) fn bytes_from(&self, channel: usize, position: usize) -> u64 {
        let before = &self.channels[channel].bytes_before;
        before.last().expect("begins with 0") - before[position]
    }

    /// How many they are.
    pub(crate) fn frames_from(&self, channel: usize, position: usize) -> u64 {
        (self.channels[channel].order.len() - position) as u64
    }

    /// The largest frame from a place on.
    pub(crate) fn frame_bytes_max_from(&self, channel: usize, position: usize) -> u64 {
        let order = &self.channels[channel].order[position..];
        order
            .iter()
            .map(|id| self.publications[*id].frame_bytes())
            .max()
            .unwrap_or(0)
    }

    /// The publication that names itself in this content.
    pub(crate) fn named_in(&self, content: &[u8]) -> &Publication {
        let name = str::from_utf8(&content[..7]).expect("digits");
        let id: usize = name.parse().expect("digits");
        &self.publications[id]
    }
}

/// Its data; for each of three protocols, and once more for deltas, a frame and a compressed one for each window that differs: a
/// larger one does where the data, and what zlib never looks back to, are not within the smaller.
fn cost(size: usize, compression: Compression) -> u64 {
    let windows = if compression == Compression::Off || size < 256 {
        0
    } else {
        1 + (10..=15)
            .filter(|bits| size + 262 > 1 << (bits - 1))
            .count()
    };
    (1 + 4 * (1 + windows as u64)) * size as u64 + myriad_hub::Publication::OVERHEAD_BYTES
}

/// Begins with the publication's number, and continues so that no part can stand for another.
fn content(id: usize, size: usize) -> Vec<u8> {
    let mut content = format!("{id:07}:").into_bytes();
    if size < NAMED_BYTES_MIN {
        // The low digits first: they are what little of the number fits.
        content.pop();
        content.reverse();
        content.truncate(size);
    }
    let mut pattern = Prng::new(id as u64);
    // Some repeat themselves at a distance that the smallest windows do not reach, and so can be compressed.
    let period = if id.is_multiple_of(2) {
        600
    } else {
        usize::MAX
    };
    while content.len() < size {
        let byte = match content.len().checked_sub(period) {
            Some(at) if content.len() % 50 > 9 => content[at],
            _ => b' ' + pattern.bits().to_le_bytes()[0] % 95,
        };
        content.push(byte);
    }
    content
}
