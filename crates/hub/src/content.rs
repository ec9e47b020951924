//! What a publication says: its data, its tags, and who published it.

use crate::{ClientId, Payload};
use std::sync::Arc;

/// What a publication says. Shared by its deliveries and by its channel's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// The data.
    pub payload: Payload,
    /// Names and values for filters of subscribers; in the order in which they are sent.
    pub tags: Box<[(Box<str>, Box<str>)]>,
    /// The client that published it; none if the application did.
    pub publisher: Option<Arc<ClientInfo>>,
}

impl Content {
    /// Data without tags, from the application.
    #[must_use]
    pub fn new(payload: Payload) -> Self {
        Self {
            payload,
            tags: Box::default(),
            publisher: None,
        }
    }

    /// Bytes it holds, for budgets. What it shares with others, as the publisher's information, counts each time.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let tag = |(name, value): &(Box<str>, Box<str>)| name.len() + value.len() + 32;
        let tags: usize = self.tags.iter().map(tag).sum();
        let publisher = self.publisher.as_ref().map_or(0, |info| info.bytes());
        size_of::<Self>() + self.payload.bytes().len() + tags + publisher
    }
}

/// What other clients are told of a client: in member lists, in joins and leaves, and with what it publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientInfo {
    /// The user's id; empty if the client is anonymous.
    pub user: Arc<str>,
    /// Names the connection.
    pub client: ClientId,
    /// What the application says of the connection: JSON, or bytes for protobuf clients.
    pub connection_info: Option<Arc<[u8]>>,
    /// What the application says of the client in this channel.
    pub channel_info: Option<Arc<[u8]>>,
}

impl ClientInfo {
    fn bytes(&self) -> usize {
        let info = |info: &Option<Arc<[u8]>>| info.as_ref().map_or(0, |bytes| bytes.len());
        size_of::<Self>() + self.user.len() + info(&self.connection_info) + info(&self.channel_info)
    }
}
