//! What a publication says: its data, its tags, and who published it.

use crate::{ClientId, Payload};
use myriad_wire::centrifuge::{Encoding as Format, PublicationFields};
use std::borrow::Cow;
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

    /// What has to be made before a Centrifuge client can be given the fields of a publication.
    #[must_use]
    pub fn parts(&self, format: Format) -> ContentParts<'_> {
        let data = match (format, &self.payload) {
            (Format::Protobuf, Payload::Json(_) | Payload::Binary(_)) => {
                Cow::Borrowed(self.payload.bytes())
            }
            // Bytes are empty in JSON: a client that reads only JSON cannot get them.
            _ => match self.payload.json().unwrap_or_default() {
                Cow::Borrowed(json) => Cow::Borrowed(json.as_bytes()),
                Cow::Owned(json) => Cow::Owned(json.into_bytes()),
            },
        };
        let client = self.publisher.as_ref().map(|info| info.client.to_string());
        ContentParts { data, client }
    }

    /// The fields of a publication as a Centrifuge client gets them. An `offset` of 0 is not told.
    #[must_use]
    pub fn fields<'a>(&'a self, parts: &'a ContentParts<'a>, offset: u64) -> PublicationFields<'a> {
        let info = self.publisher.as_deref().zip(parts.client.as_deref());
        PublicationFields {
            data: &parts.data,
            info: info.map(|(info, client)| info.fields(client)),
            offset,
            tags: &self.tags,
            delta: false,
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

/// What [`Content::fields`] borrows from.
#[derive(Debug)]
pub struct ContentParts<'a> {
    /// The data in the client's format.
    data: Cow<'a, [u8]>,
    /// The publisher's id.
    client: Option<String>,
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
    /// The fields that a Centrifuge client gets. `client` is the client's id as text.
    #[must_use]
    pub fn fields<'a>(&'a self, client: &'a str) -> myriad_wire::centrifuge::ClientInfo<'a> {
        let bytes = |info: &'a Option<Arc<[u8]>>| info.as_deref().unwrap_or_default();
        myriad_wire::centrifuge::ClientInfo {
            user: &self.user,
            client,
            connection_info: bytes(&self.connection_info),
            channel_info: bytes(&self.channel_info),
        }
    }

    fn bytes(&self) -> usize {
        let info = |info: &Option<Arc<[u8]>>| info.as_ref().map_or(0, |bytes| bytes.len());
        size_of::<Self>() + self.user.len() + info(&self.connection_info) + info(&self.channel_info)
    }
}
