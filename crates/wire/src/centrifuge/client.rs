//! The client's side of the protocol: what the load generator and tests need of it.
//!
//! [`CommandWriter`] appends commands to a frame, and [`ServerMessages`] reads what a server sends.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::de::{Deserialize, Deserializer, IgnoredAny};

use super::frame::Messages;
use super::message::{Value, message};
use super::protobuf::Field;
use super::{CommandError, Data, Encoding};
use crate::varint::push_varint;

message! {
    /// Why a command failed.
    pub struct Failure<'a> {
        /// An [`ErrorCode`](super::ErrorCode), or an application's code.
        code: 1 "code" => u32,
        /// For people.
        message: 2 "message" => Cow<'a, str>,
        /// Whether to try again.
        temporary: 3 "temporary" => bool,
    }

    /// The session that began.
    pub struct Connected<'a> {
        /// The connection's id.
        client: 1 "client" => Cow<'a, str>,
        /// Server-side subscriptions.
        subs: 6 "subs" => BTreeMap<Cow<'a, str>, Subscribed<'a>>,
        /// The interval of pings in seconds; 0 for none.
        ping_s: 7 "ping" => u32,
        /// Whether pings have to be answered.
        pong: 8 "pong" => bool,
        /// Names the session, where commands go apart from their connection.
        session: 9 "session" => Cow<'a, str>,
        /// Names the server, for the same.
        node: 10 "node" => Cow<'a, str>,
    }

    /// The subscription that began.
    pub struct Subscribed<'a> {
        /// Whether a later subscribe may recover.
        recoverable: 3 "recoverable" => bool,
        /// The epoch of `offset`.
        epoch: 6 "epoch" => Cow<'a, str>,
        /// What was recovered.
        publications: 7 "publications" => Vec<Publication<'a>>,
        /// Whether nothing is missing.
        recovered: 8 "recovered" => bool,
        /// The position before `publications`.
        offset: 9 "offset" => u64,
        /// Whether the stream has no gaps.
        positioned: 10 "positioned" => bool,
        /// Whether a recovery was tried.
        was_recovering: 12 "was_recovering" => bool,
        /// Whether publications may be deltas.
        delta: 13 "delta" => bool,
    }

    /// A publication.
    pub struct Publication<'a> {
        /// Its content. In JSON a string if the subscription has deltas.
        data: 4 "data" => Data<'a>,
        /// Its publisher, if it was a client.
        info: 5 "info" => Option<ClientInfo<'a>>,
        /// 0 in a channel without history.
        offset: 6 "offset" => u64,
        /// Names and values.
        tags: 7 "tags" => BTreeMap<Cow<'a, str>, Cow<'a, str>>,
        /// Whether `data` is a delta.
        delta: 8 "delta" => bool,
        /// The epoch, on some publications.
        epoch: 14 "epoch" => Cow<'a, str>,
    }

    /// A client of a channel.
    pub struct ClientInfo<'a> {
        /// The user's id.
        user: 1 "user" => Cow<'a, str>,
        /// The connection's id.
        client: 2 "client" => Cow<'a, str>,
    }

    /// Who is subscribed.
    pub struct PresenceMap<'a> {
        /// The clients by their ids.
        presence: 1 "presence" => BTreeMap<Cow<'a, str>, ClientInfo<'a>>,
    }

    /// Earlier publications.
    pub struct History<'a> {
        /// The publications.
        publications: 1 "publications" => Vec<Publication<'a>>,
        /// The channel's epoch.
        epoch: 2 "epoch" => Cow<'a, str>,
        /// The channel's last offset.
        offset: 3 "offset" => u64,
    }

    /// What the application returned.
    pub struct Content<'a> {
        /// The payload.
        data: 1 "data" => Data<'a>,
    }

    /// Why a subscription ended.
    pub struct Unsubscribed<'a> {
        /// An [`UnsubscribeCode`](super::UnsubscribeCode), or an application's code.
        code: 2 "code" => u32,
        /// For people.
        reason: 3 "reason" => Cow<'a, str>,
    }

    /// Why the connection ends.
    pub struct Disconnected<'a> {
        /// A [`DisconnectCode`](super::DisconnectCode), or an application's code.
        code: 1 "code" => u32,
        /// For people.
        reason: 2 "reason" => Cow<'a, str>,
    }

    struct Membership<'a> {
        info: 1 "info" => Option<ClientInfo<'a>>,
    }

    struct AnyPush<'a> {
        channel: 2 "channel" => Cow<'a, str>,
        publication: 4 "pub" => Option<Publication<'a>>,
        join: 5 "join" => Option<Membership<'a>>,
        leave: 6 "leave" => Option<Membership<'a>>,
        unsubscribe: 7 "unsubscribe" => Option<Unsubscribed<'a>>,
        message: 8 "message" => Option<Content<'a>>,
        connect: 10 "connect" => Option<Connected<'a>>,
        disconnect: 11 "disconnect" => Option<Disconnected<'a>>,
    }

    struct AnyReply<'a> {
        id: 1 "id" => u32,
        error: 2 "error" => Option<Failure<'a>>,
        push: 4 "push" => Option<AnyPush<'a>>,
        connect: 5 "connect" => Option<Connected<'a>>,
        subscribe: 6 "subscribe" => Option<Subscribed<'a>>,
        unsubscribe: 7 "unsubscribe" => Present,
        publish: 8 "publish" => Present,
        presence: 9 "presence" => Option<PresenceMap<'a>>,
        presence_stats: 10 "presence_stats" => Present,
        history: 11 "history" => Option<History<'a>>,
        rpc: 13 "rpc" => Option<Content<'a>>,
    }
}

/// A message without fields, which counts by its presence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Present(bool);

impl<'a> Value<'a> for Present {
    fn from_json<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        let ignored = Option::<IgnoredAny>::deserialize(deserializer)?;
        Ok(Self(ignored.is_some()))
    }

    fn merge(&mut self, field: Field<'a>) -> Result<(), CommandError> {
        *self = Self(true);
        field.bytes().map(drop)
    }
}

/// What a server sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerMessage<'a> {
    /// A ping, to be answered with [`CommandWriter::pong`] if the session says so.
    Ping,
    /// The answer to a command.
    Reply {
        /// The command's id.
        id: u32,
        /// What became of it.
        outcome: Result<Outcome<'a>, Failure<'a>>,
    },
    /// What the client did not ask for.
    Push {
        /// The channel.
        channel: Cow<'a, str>,
        /// What happened.
        event: ServerEvent<'a>,
    },
}

/// The result of a command, by the command's kind.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the results themselves are documented")]
pub enum Outcome<'a> {
    Connected(Connected<'a>),
    Subscribed(Subscribed<'a>),
    /// The subscription ended.
    Unsubscribed,
    /// The publication was taken in.
    Published,
    Presence(PresenceMap<'a>),
    /// How many are subscribed. The numbers are not read.
    PresenceStats,
    History(History<'a>),
    Rpc(Content<'a>),
    /// A result that this client does not read.
    Other,
}

/// What a push tells.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the events themselves are documented")]
pub enum ServerEvent<'a> {
    Publication(Publication<'a>),
    /// A client subscribed.
    Join(ClientInfo<'a>),
    /// A client's subscription ended.
    Leave(ClientInfo<'a>),
    Unsubscribed(Unsubscribed<'a>),
    /// What the application sends to this connection, of no channel.
    Message(Content<'a>),
    /// The session that began, where clients send no commands.
    Connected(Connected<'a>),
    Disconnected(Disconnected<'a>),
    /// An event that this client does not read.
    Other,
}

impl<'a> From<AnyReply<'a>> for ServerMessage<'a> {
    fn from(reply: AnyReply<'a>) -> Self {
        if let Some(push) = reply.push {
            return Self::from(push);
        }
        if reply == AnyReply::default() {
            return Self::Ping;
        }
        let outcome = (reply.connect.map(Outcome::Connected))
            .or(reply.subscribe.map(Outcome::Subscribed))
            .or(reply.unsubscribe.0.then_some(Outcome::Unsubscribed))
            .or(reply.publish.0.then_some(Outcome::Published))
            .or(reply.presence.map(Outcome::Presence))
            .or(reply.presence_stats.0.then_some(Outcome::PresenceStats))
            .or(reply.history.map(Outcome::History))
            .or(reply.rpc.map(Outcome::Rpc))
            .unwrap_or(Outcome::Other);
        Self::Reply {
            id: reply.id,
            outcome: reply.error.map_or(Ok(outcome), Err),
        }
    }
}

impl<'a> From<AnyPush<'a>> for ServerMessage<'a> {
    fn from(push: AnyPush<'a>) -> Self {
        let info = |membership: Membership<'a>| membership.info.unwrap_or_default();
        let event = (push.publication.map(ServerEvent::Publication))
            .or(push.join.map(info).map(ServerEvent::Join))
            .or(push.leave.map(info).map(ServerEvent::Leave))
            .or(push.unsubscribe.map(ServerEvent::Unsubscribed))
            .or(push.message.map(ServerEvent::Message))
            .or(push.connect.map(ServerEvent::Connected))
            .or(push.disconnect.map(ServerEvent::Disconnected))
            .unwrap_or(ServerEvent::Other);
        Self::Push {
            channel: push.channel,
            event,
        }
    }
}

/// The messages of a server's frame, in order. After an error there is nothing more.
#[derive(Clone, Debug)]
pub struct ServerMessages<'a>(Messages<'a>);

impl<'a> ServerMessages<'a> {
    /// Begins with a whole frame.
    #[must_use]
    pub fn new(encoding: Encoding, frame: &'a [u8]) -> Self {
        Self(Messages::new(encoding, "message", frame))
    }
}

impl<'a> Iterator for ServerMessages<'a> {
    type Item = Result<ServerMessage<'a>, CommandError>;

    fn next(&mut self) -> Option<Self::Item> {
        let message = self.0.next::<AnyReply<'a>>()?;
        Some(message.map(ServerMessage::from))
    }
}

/// Where a subscription is to begin again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery<'a> {
    /// The epoch of the last publication received.
    pub epoch: &'a str,
    /// The offset of the last publication received.
    pub offset: u64,
}

/// Appends commands to a frame.
#[derive(Debug)]
pub struct CommandWriter<'o> {
    encoding: Encoding,
    out: &'o mut Vec<u8>,
    is_first: bool,
}

impl<'o> CommandWriter<'o> {
    /// Begins a frame at the end of `out`.
    #[must_use]
    pub fn new(encoding: Encoding, out: &'o mut Vec<u8>) -> Self {
        Self {
            encoding,
            out,
            is_first: true,
        }
    }

    /// Begins a session. The token and the client's name may be empty.
    pub fn connect(&mut self, id: u32, token: &str, name: &str) {
        self.command(id, 4, "connect", |fields| {
            fields.text(1, "token", token);
            fields.text(4, "name", name);
        });
    }

    /// Begins a session with the server-side subscriptions that the client had, and where it recovers from.
    pub fn connect_again(
        &mut self,
        id: u32,
        token: &str,
        subscriptions: &[(&str, Option<Recovery<'_>>)],
    ) {
        self.command(id, 4, "connect", |fields| {
            fields.text(1, "token", token);
            fields.subscriptions(subscriptions);
        });
    }

    /// The same as a request in JSON, for transports without commands.
    pub fn connect_request(&mut self, subscriptions: &[(&str, Option<Recovery<'_>>)]) {
        self.message(|request| request.subscriptions(subscriptions));
    }

    /// Begins a subscription, or begins it again. With `delta` publications may come as Fossil deltas.
    pub fn subscribe(
        &mut self,
        id: u32,
        channel: &str,
        recovery: Option<Recovery<'_>>,
        delta: bool,
    ) {
        self.subscribe_tagged(id, channel, recovery, delta, None);
    }

    /// As [`CommandWriter::subscribe`]. With a `tag`, a name and a value, only publications come that have it.
    pub fn subscribe_tagged(
        &mut self,
        id: u32,
        channel: &str,
        recovery: Option<Recovery<'_>>,
        delta: bool,
        tag: Option<(&str, &str)>,
    ) {
        self.command(id, 5, "subscribe", |fields| {
            fields.text(1, "channel", channel);
            fields.recovery(recovery);
            fields.text(12, "delta", if delta { "fossil" } else { "" });
            if let Some((name, value)) = tag {
                let mut filter = CommandFields::new(fields.encoding);
                filter.text(2, "key", name);
                filter.text(3, "cmp", "eq");
                filter.text(4, "val", value);
                fields.message(13, "tf", filter);
            }
        });
    }

    /// Ends a subscription.
    pub fn unsubscribe(&mut self, id: u32, channel: &str) {
        self.command(id, 6, "unsubscribe", |fields| {
            fields.text(1, "channel", channel);
        });
    }

    /// Publishes. In JSON the data is a JSON value without line breaks.
    pub fn publish(&mut self, id: u32, channel: &str, data: &[u8]) {
        self.command(id, 7, "publish", |fields| {
            fields.text(1, "channel", channel);
            fields.raw(2, "data", data);
        });
    }

    /// Asks who is subscribed.
    pub fn presence(&mut self, id: u32, channel: &str) {
        self.command(id, 8, "presence", |fields| {
            fields.text(1, "channel", channel);
        });
    }

    /// Asks how many are subscribed.
    pub fn presence_stats(&mut self, id: u32, channel: &str) {
        self.command(id, 9, "presence_stats", |fields| {
            fields.text(1, "channel", channel);
        });
    }

    /// Asks for the first `limit` publications that are kept; 0 for the position alone.
    pub fn history(&mut self, id: u32, channel: &str, limit: u32) {
        self.command(id, 10, "history", |fields| {
            fields.text(1, "channel", channel);
            fields.number(7, "limit", limit.into());
        });
    }

    /// Calls a method of the application. In JSON the data is a JSON value without line breaks.
    pub fn rpc(&mut self, id: u32, method: &str, data: &[u8]) {
        self.command(id, 13, "rpc", |fields| {
            fields.raw(1, "data", data);
            fields.text(2, "method", method);
        });
    }

    /// Sends something to the application, which is never answered. In JSON the data is a JSON value without line breaks.
    pub fn send(&mut self, data: &[u8]) {
        self.command(0, 12, "send", |fields| fields.raw(1, "data", data));
    }

    /// Answers a ping.
    pub fn pong(&mut self) {
        self.message(|_| {});
    }

    fn command(
        &mut self,
        id: u32,
        number: u32,
        name: &str,
        fields: impl FnOnce(&mut CommandFields),
    ) {
        let mut request = CommandFields::new(self.encoding);
        fields(&mut request);
        self.message(|command| {
            command.number(1, "id", id.into());
            command.message(number, name, request);
        });
    }

    fn message(&mut self, fields: impl FnOnce(&mut CommandFields)) {
        let mut command = CommandFields::new(self.encoding);
        fields(&mut command);
        match self.encoding {
            Encoding::Json if self.is_first => {}
            Encoding::Json => self.out.push(b'\n'),
            Encoding::Protobuf => push_varint(self.out, command.bytes.len() as u64),
        }
        self.is_first = false;
        command.close();
        self.out.extend_from_slice(&command.bytes);
    }
}

/// The fields of one message, in a buffer of their own: a client writes too few commands to save it.
struct CommandFields {
    encoding: Encoding,
    bytes: Vec<u8>,
}

impl CommandFields {
    fn new(encoding: Encoding) -> Self {
        let bytes = match encoding {
            Encoding::Json => b"{".to_vec(),
            Encoding::Protobuf => Vec::new(),
        };
        Self { encoding, bytes }
    }

    fn close(&mut self) {
        if self.encoding == Encoding::Json {
            self.bytes.push(b'}');
        }
    }

    fn text(&mut self, number: u32, name: &str, text: &str) {
        match self.encoding {
            _ if text.is_empty() => {}
            Encoding::Json => {
                self.key(name);
                serde_json::to_writer(&mut self.bytes, text).expect("a Vec takes any bytes");
            }
            Encoding::Protobuf => self.raw(number, name, text.as_bytes()),
        }
    }

    fn raw(&mut self, number: u32, name: &str, bytes: &[u8]) {
        match self.encoding {
            _ if bytes.is_empty() => return,
            Encoding::Json => self.key(name),
            Encoding::Protobuf => self.length_of(number, bytes),
        }
        self.bytes.extend_from_slice(bytes);
    }

    fn number(&mut self, number: u32, name: &str, value: u64) {
        match self.encoding {
            _ if value == 0 => {}
            Encoding::Json => {
                self.key(name);
                self.bytes.extend_from_slice(value.to_string().as_bytes());
            }
            Encoding::Protobuf => {
                push_varint(&mut self.bytes, u64::from(number << 3));
                push_varint(&mut self.bytes, value);
            }
        }
    }

    fn recovery(&mut self, recovery: Option<Recovery<'_>>) {
        if let Some(Recovery { epoch, offset }) = recovery {
            self.flag(3, "recover");
            self.text(6, "epoch", epoch);
            self.number(7, "offset", offset);
        }
    }

    /// Server-side subscriptions by channel: in JSON an object, in protobuf an entry of the map for each.
    fn subscriptions(&mut self, subscriptions: &[(&str, Option<Recovery<'_>>)]) {
        let mut all = Self::new(self.encoding);
        for (channel, recovery) in subscriptions {
            let mut position = Self::new(self.encoding);
            position.recovery(*recovery);
            match self.encoding {
                Encoding::Json => all.message(0, channel, position),
                Encoding::Protobuf => {
                    let mut entry = Self::new(self.encoding);
                    entry.text(1, "", channel);
                    entry.message(2, "", position);
                    self.message(3, "subs", entry);
                }
            }
        }
        if self.encoding == Encoding::Json && !subscriptions.is_empty() {
            self.message(3, "subs", all);
        }
    }

    fn flag(&mut self, number: u32, name: &str) {
        match self.encoding {
            Encoding::Json => {
                self.key(name);
                self.bytes.extend_from_slice(b"true");
            }
            Encoding::Protobuf => self.number(number, name, 1),
        }
    }

    fn message(&mut self, number: u32, name: &str, mut message: Self) {
        message.close();
        match self.encoding {
            Encoding::Json => self.key(name),
            Encoding::Protobuf => self.length_of(number, &message.bytes),
        }
        self.bytes.extend_from_slice(&message.bytes);
    }

    fn length_of(&mut self, number: u32, bytes: &[u8]) {
        push_varint(&mut self.bytes, u64::from(number << 3 | 2));
        push_varint(&mut self.bytes, bytes.len() as u64);
    }

    fn key(&mut self, name: &str) {
        if self.bytes != b"{" {
            self.bytes.push(b',');
        }
        // A name may be a channel's, which has any characters.
        serde_json::to_writer(&mut self.bytes, name).expect("a Vec takes any bytes");
        self.bytes.push(b':');
    }
}
