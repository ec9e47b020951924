//! Replies to commands, and pushes.

use super::writer::{Fields, Json, Protobuf};
use super::{Encoding as Format, ErrorCode, UnsubscribeCode};

/// What other clients are told of a client.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientInfo<'a> {
    /// The user's id; empty if anonymous.
    pub user: &'a str,
    /// The client's id.
    pub client: &'a str,
    /// What the application says of the connection: JSON, or bytes.
    pub connection_info: &'a [u8],
    /// What the application says of the client in the channel.
    pub channel_info: &'a [u8],
}

impl ClientInfo<'_> {
    fn write(&self, fields: &mut impl Fields) {
        fields.string_always(1, "user", self.user);
        fields.string_always(2, "client", self.client);
        fields.data(3, "conn_info", self.connection_info);
        fields.data(4, "chan_info", self.channel_info);
    }
}

/// A publication as a client gets it.
#[derive(Clone, Copy, Debug, Default)]
pub struct PublicationFields<'a> {
    /// The data: JSON without line breaks, or bytes.
    pub data: &'a [u8],
    /// Who published it; none if the application did.
    pub info: Option<ClientInfo<'a>>,
    /// Its offset; 0 in a channel without history.
    pub offset: u64,
    /// Names and values.
    pub tags: &'a [(Box<str>, Box<str>)],
    /// The data is a delta to the publication before.
    pub delta: bool,
}

impl PublicationFields<'_> {
    fn write(&self, fields: &mut impl Fields) {
        fields.data(4, "data", self.data);
        if let Some(info) = &self.info {
            fields.message(5, "info", |fields| info.write(fields));
        }
        fields.number(6, "offset", self.offset);
        fields.strings(7, "tags", self.tags);
        fields.flag(8, "delta", self.delta);
    }
}

/// The result of `connect`.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnectResult<'a> {
    /// The client's id.
    pub client: &'a str,
    /// The server's name and version; never empty, because some clients need it.
    pub version: &'a str,
    /// Seconds between two pings; 0 for none.
    pub ping: u32,
    /// The client must answer pings.
    pub pong: bool,
}

/// The result of `subscribe`, without its publications.
#[derive(Clone, Copy, Debug, Default)]
pub struct SubscribeResult<'a> {
    /// The client may recover later.
    pub recoverable: bool,
    /// The client is told positions.
    pub positioned: bool,
    /// The channel's epoch; empty where there are no positions.
    pub epoch: &'a str,
    /// The position after which publications will come: of a client that recovered its own, otherwise the channel's last.
    pub offset: u64,
    /// Everything missed is in `publications`.
    pub recovered: bool,
    /// Recovery was tried.
    pub was_recovering: bool,
    /// Publications may come as deltas.
    pub delta: bool,
}

impl SubscribeResult<'_> {
    fn write<'p>(
        &self,
        fields: &mut impl Fields,
        publications: impl Iterator<Item = PublicationFields<'p>>,
    ) {
        fields.flag(3, "recoverable", self.recoverable);
        fields.string(6, "epoch", self.epoch);
        let mut publications = publications.peekable();
        if publications.peek().is_some() {
            fields.list_always(7, "publications", publications, |fields, publication| {
                publication.write(fields);
            });
        }
        fields.flag(8, "recovered", self.recovered);
        fields.number(9, "offset", self.offset);
        fields.flag(10, "positioned", self.positioned);
        fields.flag(12, "was_recovering", self.was_recovering);
        fields.flag(13, "delta", self.delta);
    }
}

/// What the server says without being asked. Each names its channel.
#[derive(Clone, Copy, Debug)]
pub enum Push<'a> {
    /// A publication.
    Publication(PublicationFields<'a>),
    /// A client has joined.
    Join(ClientInfo<'a>),
    /// A client has left.
    Leave(ClientInfo<'a>),
    /// The server has ended the subscription.
    Unsubscribe(UnsubscribeCode),
}

impl Push<'_> {
    fn write(&self, channel: &str, fields: &mut impl Fields) {
        fields.message(4, "push", |fields| {
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
                Self::Unsubscribe(code) => fields.message(7, "unsubscribe", |fields| {
                    fields.number(2, "code", u64::from(code.code()));
                    fields.string(3, "reason", code.text());
                }),
            }
        });
    }
}

/// Appends replies and pushes to the content of a frame.
#[derive(Debug)]
pub struct FrameWriter<'a> {
    format: Format,
    frame: &'a mut Vec<u8>,
}

/// Appends one message. A macro, because closures cannot be generic over the writer.
macro_rules! append {
    ($writer:expr, $fields:ident => $write:expr) => {
        match $writer.format {
            Format::Json => {
                if !$writer.frame.is_empty() {
                    $writer.frame.push(b'\n');
                }
                Json($writer.frame).object(|$fields| $write);
            }
            Format::Protobuf => Protobuf($writer.frame).delimited(|$fields| $write),
        }
    };
}

impl<'a> FrameWriter<'a> {
    /// Appends to `frame`, which holds messages of this format only.
    pub fn new(format: Format, frame: &'a mut Vec<u8>) -> Self {
        Self { format, frame }
    }

    /// A ping: an empty reply.
    pub fn ping(&mut self) {
        append!(self, _fields => ());
    }

    /// A push of a channel.
    pub fn push(&mut self, channel: &str, push: &Push<'_>) {
        append!(self, fields => push.write(channel, fields));
    }

    /// An error.
    pub fn error(&mut self, id: u32, code: ErrorCode) {
        append!(self, fields => {
            fields.number(1, "id", u64::from(id));
            fields.message(2, "error", |fields| {
                fields.number(1, "code", u64::from(code.code()));
                fields.string(2, "message", code.text());
                fields.flag(3, "temporary", code.is_temporary());
            });
        });
    }

    /// The result of `connect`, with the server-side subscriptions.
    pub fn connect<'s, P: Iterator<Item = PublicationFields<'s>>>(
        &mut self,
        id: u32,
        result: &ConnectResult<'_>,
        subs: impl ExactSizeIterator<Item = (&'s str, (SubscribeResult<'s>, P))>,
    ) {
        append!(self, fields => {
            fields.number(1, "id", u64::from(id));
            fields.message(5, "connect", |fields| {
                fields.string(1, "client", result.client);
                fields.string(2, "version", result.version);
                if subs.len() > 0 {
                    fields.map_always(6, "subs", subs, |fields, (result, publications)| {
                        result.write(fields, publications);
                    });
                }
                fields.number(7, "ping", u64::from(result.ping));
                fields.flag(8, "pong", result.pong);
            });
        });
    }

    /// The result of `subscribe`.
    pub fn subscribe<'p>(
        &mut self,
        id: u32,
        result: &SubscribeResult<'_>,
        publications: impl Iterator<Item = PublicationFields<'p>>,
    ) {
        append!(self, fields => {
            fields.number(1, "id", u64::from(id));
            fields.message(6, "subscribe", |fields| result.write(fields, publications));
        });
    }

    /// The result of `unsubscribe`: nothing.
    pub fn unsubscribe(&mut self, id: u32) {
        append!(self, fields => {
            fields.number(1, "id", u64::from(id));
            fields.message(7, "unsubscribe", |_| {});
        });
    }

    /// The result of `publish`: nothing.
    pub fn publish(&mut self, id: u32) {
        append!(self, fields => {
            fields.number(1, "id", u64::from(id));
            fields.message(8, "publish", |_| {});
        });
    }

    /// The result of `presence`: members by their client ids. `cursor` is our extension: where the next page begins, or empty.
    pub fn presence<'m>(
        &mut self,
        id: u32,
        members: impl Iterator<Item = ClientInfo<'m>>,
        cursor: &str,
    ) {
        append!(self, fields => {
            fields.number(1, "id", u64::from(id));
            fields.message(9, "presence", |fields| {
                let members = members.map(|info| (info.client, info));
                fields.map_always(1, "presence", members, |fields, info| info.write(fields));
                fields.string(1002, "cursor", cursor);
            });
        });
    }

    /// The result of `presence_stats`.
    pub fn presence_stats(&mut self, id: u32, clients: u32, users: u32) {
        append!(self, fields => {
            fields.number(1, "id", u64::from(id));
            fields.message(10, "presence_stats", |fields| {
                fields.number_always(1, "num_clients", u64::from(clients));
                fields.number_always(2, "num_users", u64::from(users));
            });
        });
    }

    /// The result of `history`: some publications, and the channel's last position.
    pub fn history<'p>(
        &mut self,
        id: u32,
        publications: impl Iterator<Item = PublicationFields<'p>>,
        epoch: &str,
        offset: u64,
    ) {
        append!(self, fields => {
            fields.number(1, "id", u64::from(id));
            fields.message(11, "history", |fields| {
                fields.list_always(1, "publications", publications, |fields, publication| {
                    publication.write(fields);
                });
                fields.string_always(2, "epoch", epoch);
                fields.number_always(3, "offset", offset);
            });
        });
    }
}
