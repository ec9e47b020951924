//! Replies to commands.

use super::push::Push;
use super::writer::{Fields, Json, Protobuf};
use super::{Encoding as Format, ErrorCode};

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
    pub(super) fn write(&self, fields: &mut impl Fields) {
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
    /// The channel's epoch where the publication tells it: the first one of an epoch does. Otherwise empty.
    pub epoch: &'a str,
}

impl PublicationFields<'_> {
    pub(super) fn write(&self, fields: &mut impl Fields) {
        fields.data(4, "data", self.data);
        if let Some(info) = &self.info {
            fields.message(5, "info", |fields| info.write(fields));
        }
        fields.number(6, "offset", self.offset);
        fields.strings(7, "tags", self.tags);
        fields.flag(8, "delta", self.delta);
        fields.string(14, "epoch", self.epoch);
    }
}

/// The result of `connect`, without the server-side subscriptions.
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
    /// Seconds until the connection expires, if its client has to refresh it; at least 1.
    pub ttl: Option<u32>,
    /// Data from the application: JSON without line breaks, or bytes.
    pub data: &'a [u8],
    /// Names the session to a transport that sends commands apart from replies; otherwise empty.
    pub session: &'a str,
    /// Names the server to such a transport.
    pub node: &'a str,
    /// The server's time in milliseconds since 1970; 0 if it is not told.
    pub time_ms: u64,
}

impl ConnectResult<'_> {
    fn write<'s, P: Iterator<Item = PublicationFields<'s>>>(
        &self,
        fields: &mut impl Fields,
        subs: impl ExactSizeIterator<Item = (&'s str, (SubscribeResult<'s>, P))>,
    ) {
        fields.string(1, "client", self.client);
        fields.string(2, "version", self.version);
        write_expiry(fields, [3, 4], self.ttl);
        fields.data(5, "data", self.data);
        if subs.len() > 0 {
            fields.map_always(6, "subs", subs, |fields, (result, publications)| {
                result.write(fields, publications);
            });
        }
        fields.number(7, "ping", u64::from(self.ping));
        fields.flag(8, "pong", self.pong);
        fields.string(9, "session", self.session);
        fields.string(10, "node", self.node);
        fields.number(11, "time", self.time_ms);
    }
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
    /// Seconds until the subscription expires, if its client has to refresh it; at least 1.
    pub ttl: Option<u32>,
    /// Data from the application: JSON without line breaks, or bytes.
    pub data: &'a [u8],
}

impl SubscribeResult<'_> {
    fn write<'p>(
        &self,
        fields: &mut impl Fields,
        publications: impl Iterator<Item = PublicationFields<'p>>,
    ) {
        write_expiry(fields, [1, 2], self.ttl);
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
        fields.data(11, "data", self.data);
        fields.flag(12, "was_recovering", self.was_recovering);
        fields.flag(13, "delta", self.delta);
    }
}

/// Whether a token has to be refreshed, with the numbers of both fields. `ttl` is always there with `expires`, because some
/// clients need it.
pub(super) fn write_expiry(fields: &mut impl Fields, numbers: [u32; 2], ttl: Option<u32>) {
    if let Some(seconds) = ttl {
        fields.flag(numbers[0], "expires", true);
        fields.number_always(numbers[1], "ttl", u64::from(seconds));
    }
}

/// Why a command failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyError<'a> {
    /// An [`ErrorCode`], or an application's code: 400 to 1999.
    pub code: u32,
    /// For people; never empty, because some clients need it.
    pub message: &'a str,
    /// Clients try the same again by themselves.
    pub temporary: bool,
}

impl From<ErrorCode> for ReplyError<'_> {
    fn from(code: ErrorCode) -> Self {
        Self {
            code: code.code(),
            message: code.text(),
            temporary: code.is_temporary(),
        }
    }
}

/// Appends replies and pushes to the content of a frame.
#[derive(Debug)]
pub struct FrameWriter<'a> {
    format: Format,
    frame: &'a mut Vec<u8>,
    /// Its client sends no commands: pushes are not in replies.
    is_bare: bool,
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
        Self {
            format,
            frame,
            is_bare: false,
        }
    }

    /// Appends bare pushes to `frame`, as JSON, for a client that sends no commands: pushes are not in replies, and the answer to
    /// its connect request is a push too. Nothing else is written for such a client.
    pub fn of_pushes(frame: &'a mut Vec<u8>) -> Self {
        Self {
            format: Format::Json,
            frame,
            is_bare: true,
        }
    }

    /// A ping: an empty reply, or an empty push.
    pub fn ping(&mut self) {
        append!(self, _fields => ());
    }

    /// A push of a channel. `channel` is empty for pushes of none.
    pub fn push(&mut self, channel: &str, push: &Push<'_>) {
        if self.is_bare {
            append!(self, fields => push.write(channel, fields));
            return;
        }
        append!(self, fields => {
            fields.message(4, "push", |fields| push.write(channel, fields));
        });
    }

    /// An error: an [`ErrorCode`], or an application's own.
    pub fn error<'e>(&mut self, id: u32, error: impl Into<ReplyError<'e>>) {
        debug_assert!(!self.is_bare, "a client without commands is told no errors");
        let error = error.into();
        append!(self, fields => {
            fields.number(1, "id", u64::from(id));
            fields.message(2, "error", |fields| {
                fields.number(1, "code", u64::from(error.code));
                fields.string(2, "message", error.message);
                fields.flag(3, "temporary", error.temporary);
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
        if self.is_bare {
            append!(self, fields => {
                fields.message(10, "connect", |fields| result.write(fields, subs));
            });
            return;
        }
        append!(self, fields => {
            fields.number(1, "id", u64::from(id));
            fields.message(5, "connect", |fields| result.write(fields, subs));
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

    /// The result of `rpc`. `data` is what the application has returned: JSON without line breaks, or bytes.
    pub fn rpc(&mut self, id: u32, data: &[u8]) {
        append!(self, fields => {
            fields.number(1, "id", u64::from(id));
            fields.message(13, "rpc", |fields| fields.data(1, "data", data));
        });
    }

    /// The result of `refresh`: seconds until the connection expires; none if it does not.
    pub fn refresh(&mut self, id: u32, ttl: Option<u32>) {
        append!(self, fields => {
            fields.number(1, "id", u64::from(id));
            fields.message(14, "refresh", |fields| write_expiry(fields, [3, 4], ttl));
        });
    }

    /// The result of `sub_refresh`: seconds until the subscription expires; none if it does not.
    pub fn sub_refresh(&mut self, id: u32, ttl: Option<u32>) {
        append!(self, fields => {
            fields.number(1, "id", u64::from(id));
            fields.message(15, "sub_refresh", |fields| write_expiry(fields, [1, 2], ttl));
        });
    }
}
