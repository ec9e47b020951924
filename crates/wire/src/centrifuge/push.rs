//! Pushes: what the server says without being asked.

use super::reply::{ClientInfo, PublicationFields, write_expiry};
use super::writer::Fields;
use super::{DisconnectCode, UnsubscribeCode};

/// What the server says without being asked.
#[derive(Clone, Copy, Debug)]
pub enum Push<'a> {
    /// A publication.
    Publication(PublicationFields<'a>),
    /// A client has joined.
    Join(ClientInfo<'a>),
    /// A client has left.
    Leave(ClientInfo<'a>),
    /// The server has ended the subscription. From code 2500 on, the client subscribes again.
    Unsubscribe(EndReason<'a>),
    /// Data from the application for this connection, of no channel: JSON without line breaks, or bytes.
    Message(&'a [u8]),
    /// The server has subscribed the client.
    Subscribe(ServerSubscription<'a>),
    /// The server ends the connection; nothing follows. For transports without a WebSocket's close frame. Of no channel.
    Disconnect(EndReason<'a>),
    /// The server has refreshed the connection: seconds until it expires, none if it does not. Of no channel.
    Refresh(Option<u32>),
}

impl Push<'_> {
    pub(super) fn write(&self, channel: &str, fields: &mut impl Fields) {
        fields.string(2, "channel", channel);
        match self {
            Self::Publication(publication) => {
                fields.message(4, "pub", |fields| publication.write(fields));
            }
            Self::Join(info) => fields.message(5, "join", |fields| {
                fields.message(1, "info", |fields| info.write(fields));
            }),
            Self::Leave(info) => fields.message(6, "leave", |fields| {
                fields.message(1, "info", |fields| info.write(fields));
            }),
            Self::Unsubscribe(reason) => fields.message(7, "unsubscribe", |fields| {
                fields.number(2, "code", u64::from(reason.code));
                fields.string(3, "reason", reason.text);
            }),
            Self::Message(data) => {
                fields.message(8, "message", |fields| fields.data(1, "data", data));
            }
            Self::Subscribe(subscription) => {
                fields.message(9, "subscribe", |fields| subscription.write(fields));
            }
            Self::Disconnect(reason) => fields.message(11, "disconnect", |fields| {
                fields.number(1, "code", u64::from(reason.code));
                fields.string(2, "reason", reason.text);
            }),
            Self::Refresh(ttl) => {
                fields.message(12, "refresh", |fields| write_expiry(fields, [1, 2], *ttl));
            }
        }
    }
}

/// Why the server ends a subscription or a connection. The range of the code decides what the client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndReason<'a> {
    /// One of the protocol's codes, or an application's: of connections 4000 to 4999.
    pub code: u32,
    /// For people; never empty, because some clients need it.
    pub text: &'a str,
}

impl From<UnsubscribeCode> for EndReason<'_> {
    fn from(code: UnsubscribeCode) -> Self {
        Self {
            code: code.code(),
            text: code.text(),
        }
    }
}

impl From<DisconnectCode> for EndReason<'_> {
    fn from(code: DisconnectCode) -> Self {
        Self {
            code: u32::from(code.code()),
            text: code.text(),
        }
    }
}

/// A subscription that the server has made for a connected client.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerSubscription<'a> {
    /// The client may recover later.
    pub recoverable: bool,
    /// The client is told positions.
    pub positioned: bool,
    /// The channel's epoch; empty where there are no positions.
    pub epoch: &'a str,
    /// The offset after which publications will come.
    pub offset: u64,
    /// Data from the application: JSON without line breaks, or bytes.
    pub data: &'a [u8],
}

impl ServerSubscription<'_> {
    fn write(&self, fields: &mut impl Fields) {
        fields.flag(1, "recoverable", self.recoverable);
        fields.string(4, "epoch", self.epoch);
        fields.number(5, "offset", self.offset);
        fields.flag(6, "positioned", self.positioned);
        fields.data(7, "data", self.data);
    }
}
