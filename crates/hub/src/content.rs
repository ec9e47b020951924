//! What a publication says: its data, its tags, and who published it.

use crate::{ClientId, DataForm, Payload};
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

    /// What has to be made for a Centrifuge client before [`Content::fields`]: the data in its format, and the publisher's id as
    /// text. `base` is the content of the publication before it; only a delta needs it.
    #[must_use]
    pub fn parts(
        &self,
        format: Format,
        form: DataForm,
        base: Option<&Content>,
    ) -> ContentParts<'_> {
        let base = base.filter(|_| form == DataForm::Delta);
        let delta = base.and_then(|base| self.payload.delta_to(&base.payload, format));
        let is_delta = delta.is_some();
        let data = match (delta, format) {
            (Some(delta), Format::Protobuf) => Cow::Owned(delta),
            (None, Format::Protobuf) => self.payload.binary(),
            (Some(delta), Format::Json) => {
                Cow::Owned(json_string(&String::from_utf8_lossy(&delta)))
            }
            (None, Format::Json) => {
                // Bytes have no form in JSON: a client that reads only JSON is closed before it would be told of them.
                let json = self.payload.json().unwrap_or_default();
                match (form, json) {
                    (DataForm::Whole | DataForm::Delta, json) => Cow::Owned(json_string(&json)),
                    (DataForm::Plain, Cow::Borrowed(json)) => Cow::Borrowed(json.as_bytes()),
                    (DataForm::Plain, Cow::Owned(json)) => Cow::Owned(json.into_bytes()),
                }
            }
        };
        let client = self.publisher.as_ref().map(|info| info.client.to_string());
        ContentParts {
            data,
            is_delta,
            client,
        }
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
            delta: parts.is_delta,
            epoch: "",
        }
    }

    /// Bytes of the names and values of its tags.
    #[must_use]
    pub fn tag_bytes(&self) -> usize {
        let tag = |(name, value): &(Box<str>, Box<str>)| name.len() + value.len();
        self.tags.iter().map(tag).sum()
    }

    /// Bytes it holds, for budgets. Parts that it shares, such as the publisher's information, count in full.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let tag = |(name, value): &(Box<str>, Box<str>)| name.len() + value.len() + 32;
        let tags: usize = self.tags.iter().map(tag).sum();
        let publisher = self.publisher.as_ref().map_or(0, |info| info.bytes());
        size_of::<Self>() + self.payload.bytes().len() + tags + publisher
    }
}

fn json_string(text: &str) -> Vec<u8> {
    serde_json::to_vec(text).expect("text can be quoted")
}

/// What [`Content::fields`] borrows from.
#[derive(Debug)]
pub struct ContentParts<'a> {
    /// The data in the client's format.
    data: Cow<'a, [u8]>,
    is_delta: bool,
    /// The publisher's id.
    client: Option<String>,
}

impl ContentParts<'_> {
    /// Bytes of the data in the client's format.
    #[must_use]
    pub fn data_bytes(&self) -> usize {
        self.data.len()
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

    /// Bytes it holds, for budgets.
    pub(crate) fn bytes(&self) -> usize {
        let info = |info: &Option<Arc<[u8]>>| info.as_ref().map_or(0, |bytes| bytes.len());
        size_of::<Self>() + self.user.len() + info(&self.connection_info) + info(&self.channel_info)
    }
}
