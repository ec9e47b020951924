//! One message of a channel, encoded once for all its subscribers.

use crate::{Now, Permit};
use myriad_wire::ws::{Opcode, encode_frame};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// The data of a publication, as a publisher gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Text: one text frame on `raw`. For the API: a JSON string's content, or any other JSON as its text.
    Text(Box<str>),
    /// Bytes: one binary frame on `raw`.
    Binary(Box<[u8]>),
}

impl Payload {
    /// The data's bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Binary(bytes) => bytes,
        }
    }
}

/// A publication with its place in its channel, shared by every shard that delivers it.
///
/// Encodings are made on first need and shared from then on. The publication itself ends with its last delivery;
/// connections that are behind keep the encoding only, so that they never hold back the publishers' permits.
#[derive(Debug)]
pub struct Publication {
    channel: Arc<str>,
    offset: u64,
    payload: Payload,
    published_at: Now,
    raw_frame: OnceLock<Arc<[u8]>>,
    shards_left: AtomicUsize,
    _permit: Option<Permit>,
}

impl Publication {
    /// A publication that `shards` shards will deliver.
    #[must_use]
    pub fn new(
        channel: Arc<str>,
        offset: u64,
        payload: Payload,
        published_at: Now,
        shards: usize,
        permit: Option<Permit>,
    ) -> Self {
        Self {
            channel,
            offset,
            payload,
            published_at,
            raw_frame: OnceLock::new(),
            shards_left: AtomicUsize::new(shards),
            _permit: permit,
        }
    }

    /// The channel's name.
    #[must_use]
    pub fn channel(&self) -> &Arc<str> {
        &self.channel
    }

    /// The place in the channel.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// When it was accepted.
    #[must_use]
    pub fn published_at(&self) -> Now {
        self.published_at
    }

    /// As one unmasked WebSocket frame, text or binary.
    pub fn raw_frame(&self) -> &Arc<[u8]> {
        self.raw_frame.get_or_init(|| {
            let opcode = match self.payload {
                Payload::Text(_) => Opcode::Text,
                Payload::Binary(_) => Opcode::Binary,
            };
            let mut frame = Vec::with_capacity(self.payload.bytes().len() + 10);
            encode_frame(&mut frame, opcode, true, None, self.payload.bytes());
            frame.into()
        })
    }

    /// Notes that one shard has submitted its last delivery; true for the last shard of all.
    pub fn note_shard_done(&self) -> bool {
        self.shards_left.fetch_sub(1, Ordering::AcqRel) == 1
    }
}
