//! Joins and leaves of clients, for those who watch a channel's members.

use crate::ClientInfo;
use crate::encoding::Encoding;
use crate::frames::{Encode, FrameCache};
use crate::publication::kind_of;
use myriad_wire::centrifuge::{Encoding as Format, Push};
use myriad_wire::ws::Kind;
use std::borrow::Cow;
use std::sync::Arc;

/// What a client did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PresenceChange {
    /// It subscribed.
    Joined,
    /// It is no longer subscribed.
    Left,
}

/// A client joined a channel or left it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresenceEvent {
    /// The channel.
    pub channel: Arc<str>,
    /// What it did.
    pub change: PresenceChange,
    /// Who it is.
    pub info: Arc<ClientInfo>,
}

impl PresenceEvent {
    /// About as many bytes as its frame has.
    pub(crate) fn bytes(&self) -> usize {
        /// The id of the client as text, and the names of the fields.
        const TEXT_BYTES: usize = 64;
        self.channel.len() + self.info.bytes() + TEXT_BYTES
    }
}

/// A join or a leave on its way to those who watch, encoded once for all of them. It has no place in the channel's order.
#[derive(Debug)]
pub struct Announcement {
    event: PresenceEvent,
    frames: FrameCache,
}

impl Announcement {
    /// What happened.
    #[must_use]
    pub fn event(&self) -> &PresenceEvent {
        &self.event
    }
}

impl From<PresenceEvent> for Announcement {
    fn from(event: PresenceEvent) -> Self {
        Self {
            event,
            frames: FrameCache::default(),
        }
    }
}

impl Encode for Announcement {
    fn cache(&self) -> &FrameCache {
        &self.frames
    }

    fn data_bytes(&self) -> usize {
        self.event.info.bytes()
    }

    fn message(&self, encoding: Encoding) -> (Kind, Cow<'_, [u8]>) {
        let protocol = encoding.protocol();
        // Only clients with sessions ask for joins and leaves.
        debug_assert!(protocol.format().is_some());
        let format = protocol.format().unwrap_or(Format::Json);
        let client = self.event.info.client.to_string();
        let info = self.event.info.fields(&client);
        let push = match self.event.change {
            PresenceChange::Joined => Push::Join(info),
            PresenceChange::Left => Push::Leave(info),
        };
        let mut message = Vec::new();
        protocol
            .writer(&mut message)
            .push(&self.event.channel, &push);
        (kind_of(format), Cow::Owned(message))
    }
}
