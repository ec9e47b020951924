//! Commands: what a client asks for.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;

use serde::de::Deserializer;

use super::frame::Messages;
use super::json::{Array, OrNull, is_nested_too_deep};
use super::message::{Value, message};
use super::protobuf::Field;
use super::{CommandError, Data, Encoding};

message! {
    /// Begins a session. The first command of a connection.
    pub struct ConnectRequest<'a> {
        /// A JWT, or empty.
        token: 1 "token" => Cow<'a, str>,
        /// For the application's connect proxy.
        data: 2 "data" => Data<'a>,
        /// Positions of server-side subscriptions that the client wants to recover, by channel.
        subs: 3 "subs" => BTreeMap<Cow<'a, str>, SubscribeRequest<'a>>,
        /// The client's name, by default that of its library.
        name: 4 "name" => Cow<'a, str>,
        /// The version of the client.
        version: 5 "version" => Cow<'a, str>,
        /// Headers for the proxies, from clients that cannot set HTTP headers.
        headers: 6 "headers" => BTreeMap<Cow<'a, str>, Cow<'a, str>>,
        /// Bit 0: the client knows dictionary compression.
        flag: 7 "flag" => i64,
    }

    /// Begins a subscription, or says where a server-side one stood.
    pub struct SubscribeRequest<'a> {
        /// The channel. Empty in [`ConnectRequest::subs`], where it is the key.
        channel: 1 "channel" => Cow<'a, str>,
        /// A JWT, or empty.
        token: 2 "token" => Cow<'a, str>,
        /// Whether to send what was published since `epoch` and `offset`.
        recover: 3 "recover" => bool,
        /// The epoch of the last publication that the client has.
        epoch: 6 "epoch" => Cow<'a, str>,
        /// The offset of the last publication that the client has.
        offset: 7 "offset" => u64,
        /// For the application's subscribe proxy.
        data: 8 "data" => Data<'a>,
        /// A wish for a stream without gaps.
        positioned: 9 "positioned" => bool,
        /// A wish for recovery after a reconnect.
        recoverable: 10 "recoverable" => bool,
        /// A wish for joins and leaves.
        join_leave: 11 "join_leave" => bool,
        /// The delta format that the client knows: `fossil`, or empty.
        delta: 12 "delta" => Cow<'a, str>,
        /// A filter by tags of publications.
        filter: 13 "tf" => Option<FilterNode<'a>>,
        /// Bit 0: a numeric channel id is welcome. Bit 1: fail with [`ErrorCode::UnrecoverablePosition`] rather than
        /// without recovery.
        ///
        /// [`ErrorCode::UnrecoverablePosition`]: super::ErrorCode::UnrecoverablePosition
        flag: 14 "flag" => i64,
        /// 0 for a stream of publications; others are experimental.
        kind: 15 "type" => i32,
    }

    /// Ends a subscription.
    pub struct UnsubscribeRequest<'a> {
        /// The channel.
        channel: 1 "channel" => Cow<'a, str>,
    }

    /// Publishes.
    pub struct PublishRequest<'a> {
        /// The channel.
        channel: 1 "channel" => Cow<'a, str>,
        /// The payload.
        data: 2 "data" => Data<'a>,
        /// 0 for a stream of publications; 1, a map, is experimental.
        kind: 3 "type" => i32,
    }

    /// Asks for the clients that are subscribed.
    pub struct PresenceRequest<'a> {
        /// The channel.
        channel: 1 "channel" => Cow<'a, str>,
        /// Clients of a page at most; 0 for all of them. Our extension, as `cursor`: its number is far from the protocol's.
        limit: 1001 "limit" => u32,
        /// The page after this client id; empty for the first.
        cursor: 1002 "cursor" => Cow<'a, str>,
    }

    /// Asks how many clients and users are subscribed.
    pub struct PresenceStatsRequest<'a> {
        /// The channel.
        channel: 1 "channel" => Cow<'a, str>,
    }

    /// Asks for earlier publications.
    pub struct HistoryRequest<'a> {
        /// The channel.
        channel: 1 "channel" => Cow<'a, str>,
        /// How many at most. 0: only the position. Negative: all.
        limit: 7 "limit" => i32,
        /// Where to begin, exclusively.
        since: 8 "since" => Option<StreamPosition<'a>>,
        /// Newest first, backwards from `since`.
        reverse: 9 "reverse" => bool,
    }

    /// A place in a channel's order.
    pub struct StreamPosition<'a> {
        /// The offset within the epoch.
        offset: 1 "offset" => u64,
        /// The epoch. Empty stands for any.
        epoch: 2 "epoch" => Cow<'a, str>,
    }

    /// Calls a method of the application.
    pub struct RpcRequest<'a> {
        /// The argument.
        data: 1 "data" => Data<'a>,
        /// The method's name, perhaps after a namespace and a colon.
        method: 2 "method" => Cow<'a, str>,
    }

    /// A message to the application, without a reply.
    pub struct SendRequest<'a> {
        /// The message.
        data: 1 "data" => Data<'a>,
    }

    /// Brings a new token for the connection.
    pub struct RefreshRequest<'a> {
        /// The JWT.
        token: 1 "token" => Cow<'a, str>,
    }

    /// Brings a new token for a subscription.
    pub struct SubRefreshRequest<'a> {
        /// The channel.
        channel: 1 "channel" => Cow<'a, str>,
        /// The JWT.
        token: 2 "token" => Cow<'a, str>,
        /// 0 to refresh; 1 and 2, to track keys and to stop it, are experimental.
        kind: 3 "type" => i32,
        /// The keys to track.
        track: 4 "track" => Vec<TrackBatch<'a>>,
        /// The keys to track no longer.
        untrack: 5 "untrack" => Vec<Cow<'a, str>>,
    }

    /// Keys to track, under one signature.
    pub struct TrackBatch<'a> {
        /// The signature of the keys.
        signature: 1 "signature" => Cow<'a, str>,
        /// The keys.
        items: 2 "items" => Vec<KeyedItem<'a>>,
    }

    /// A key to track.
    pub struct KeyedItem<'a> {
        /// The key.
        key: 1 "key" => Cow<'a, str>,
        /// The version that the client has.
        version: 2 "version" => u64,
    }

    /// A node of a tags filter, as the client sent it.
    pub struct FilterNode<'a> {
        /// `and`, `or`, `not`, or empty for a comparison.
        op: 1 "op" => Cow<'a, str>,
        /// The tag's name.
        key: 2 "key" => Cow<'a, str>,
        /// The comparison.
        cmp: 3 "cmp" => Cow<'a, str>,
        /// The value to compare with.
        val: 4 "val" => Cow<'a, str>,
        /// The values to compare with.
        vals: 5 "vals" => Vec<Cow<'a, str>>,
        /// What an operator combines.
        nodes: 6 "nodes" => FilterNodes<'a>,
    }

    /// All that a command can hold; only one request of it counts.
    struct AnyCommand<'a> {
        id: 1 "id" => u32,
        connect: 4 "connect" => Option<ConnectRequest<'a>>,
        subscribe: 5 "subscribe" => Option<SubscribeRequest<'a>>,
        unsubscribe: 6 "unsubscribe" => Option<UnsubscribeRequest<'a>>,
        publish: 7 "publish" => Option<PublishRequest<'a>>,
        presence: 8 "presence" => Option<PresenceRequest<'a>>,
        presence_stats: 9 "presence_stats" => Option<PresenceStatsRequest<'a>>,
        history: 10 "history" => Option<HistoryRequest<'a>>,
        send: 12 "send" => Option<SendRequest<'a>>,
        rpc: 13 "rpc" => Option<RpcRequest<'a>>,
        refresh: 14 "refresh" => Option<RefreshRequest<'a>>,
        sub_refresh: 15 "sub_refresh" => Option<SubRefreshRequest<'a>>,
    }
}

/// The nodes that a tags filter's operator combines. A whole filter has at most 256 nodes, in at most 32 levels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilterNodes<'a> {
    nodes: Vec<FilterNode<'a>>,
    /// All nodes below the operator.
    count: usize,
    /// The levels of nodes below the operator.
    levels: usize,
}

impl<'a> FilterNodes<'a> {
    const COUNT_MAX: usize = 255;
    const LEVELS_MAX: usize = 31;

    /// Appends a node.
    ///
    /// # Errors
    /// If a filter of this and all appended nodes is too large.
    pub fn push(&mut self, node: FilterNode<'a>) -> Result<(), CommandError> {
        self.count += 1 + node.nodes.count;
        self.levels = self.levels.max(1 + node.nodes.levels);
        if self.count > Self::COUNT_MAX || self.levels > Self::LEVELS_MAX {
            return Err(CommandError::TooDeep { field: "nodes" });
        }
        self.nodes.push(node);
        Ok(())
    }
}

impl<'a> std::ops::Deref for FilterNodes<'a> {
    type Target = [FilterNode<'a>];

    fn deref(&self) -> &Self::Target {
        &self.nodes
    }
}

impl<'a> Value<'a> for FilterNodes<'a> {
    fn from_json<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        let mut nodes = Self::default();
        let push = |node| nodes.push(node);
        deserializer.deserialize_option(OrNull(Array(push, PhantomData)))?;
        Ok(nodes)
    }

    fn merge(&mut self, field: Field<'a>) -> Result<(), CommandError> {
        let mut node = FilterNode::default();
        node.merge(field)?;
        self.push(node)
    }
}

/// A command of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command<'a> {
    /// The id that the reply repeats. A command without one is a pong or a message.
    pub id: u32,
    /// What the client asks for.
    pub request: Request<'a>,
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the requests themselves are documented")]
pub enum Request<'a> {
    /// The answer to a ping: any command without an id, unless it is a message.
    Pong,
    Connect(ConnectRequest<'a>),
    Subscribe(SubscribeRequest<'a>),
    Unsubscribe(UnsubscribeRequest<'a>),
    Publish(PublishRequest<'a>),
    Presence(PresenceRequest<'a>),
    PresenceStats(PresenceStatsRequest<'a>),
    History(HistoryRequest<'a>),
    Rpc(RpcRequest<'a>),
    Send(SendRequest<'a>),
    Refresh(RefreshRequest<'a>),
    SubRefresh(SubRefreshRequest<'a>),
}

impl Request<'_> {
    /// The command's name in the protocol.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pong => "pong",
            Self::Connect(_) => "connect",
            Self::Subscribe(_) => "subscribe",
            Self::Unsubscribe(_) => "unsubscribe",
            Self::Publish(_) => "publish",
            Self::Presence(_) => "presence",
            Self::PresenceStats(_) => "presence_stats",
            Self::History(_) => "history",
            Self::Rpc(_) => "rpc",
            Self::Send(_) => "send",
            Self::Refresh(_) => "refresh",
            Self::SubRefresh(_) => "sub_refresh",
        }
    }

    /// The channel that it names; empty for a command that is about none.
    #[must_use]
    pub fn channel(&self) -> &str {
        match self {
            Self::Subscribe(request) => &request.channel,
            Self::Unsubscribe(request) => &request.channel,
            Self::Publish(request) => &request.channel,
            Self::Presence(request) => &request.channel,
            Self::PresenceStats(request) => &request.channel,
            Self::History(request) => &request.channel,
            Self::SubRefresh(request) => &request.channel,
            Self::Pong | Self::Connect(_) | Self::Rpc(_) | Self::Send(_) | Self::Refresh(_) => "",
        }
    }

    /// What is wrong if JSON in its data is nested deeper than parsers have to follow ([`is_nested_too_deep`]). Bytes are not
    /// looked into, nor is the data of `send`, which has no reply.
    #[must_use]
    pub fn nested_too_deep(&self) -> Option<&'static str> {
        let is_too_deep = |data: Data<'_>| match data {
            Data::Json(json) => is_nested_too_deep(json),
            Data::Binary(_) => false,
        };
        match self {
            Self::Publish(request) => is_too_deep(request.data)
                .then_some("the data of publish is nested deeper than 128 arrays and objects"),
            Self::Rpc(request) => is_too_deep(request.data)
                .then_some("the data of rpc is nested deeper than 128 arrays and objects"),
            Self::Subscribe(request) => is_too_deep(request.data)
                .then_some("the data of subscribe is nested deeper than 128 arrays and objects"),
            Self::Connect(request) => {
                let mut all = std::iter::once(request.data)
                    .chain(request.subs.values().map(|known| known.data));
                all.any(is_too_deep)
                    .then_some("the data of connect is nested deeper than 128 arrays and objects")
            }
            _ => None,
        }
    }
}

impl<'a> AnyCommand<'a> {
    /// The one request that counts.
    fn choose(self) -> Result<Command<'a>, CommandError> {
        let id = self.id;
        if id == 0 && self.send.is_none() {
            return Ok(Command {
                id,
                request: Request::Pong,
            });
        }
        let request = (self.connect.map(Request::Connect))
            .or(self.subscribe.map(Request::Subscribe))
            .or(self.unsubscribe.map(Request::Unsubscribe))
            .or(self.publish.map(Request::Publish))
            .or(self.presence.map(Request::Presence))
            .or(self.presence_stats.map(Request::PresenceStats))
            .or(self.history.map(Request::History))
            .or(self.rpc.map(Request::Rpc))
            .or(self.send.map(Request::Send))
            .or(self.refresh.map(Request::Refresh))
            .or(self.sub_refresh.map(Request::SubRefresh));
        let request = request.ok_or(CommandError::NoRequest { id })?;
        Ok(Command { id, request })
    }
}

/// The commands of a frame, in order. After an error there is nothing more.
#[derive(Clone, Debug)]
pub struct Decoder<'a>(Messages<'a>);

impl<'a> Decoder<'a> {
    /// Begins with a whole frame. It may come in a text frame or in a binary one, so it need not be UTF-8.
    #[must_use]
    pub fn new(encoding: Encoding, frame: &'a [u8]) -> Self {
        Self(Messages::new(encoding, "command", frame))
    }

    /// The bytes behind the last command: a frame too, or empty.
    #[must_use]
    pub fn remaining(&self) -> &'a [u8] {
        self.0.remaining()
    }
}

impl<'a> Iterator for Decoder<'a> {
    type Item = Result<Command<'a>, CommandError>;

    fn next(&mut self) -> Option<Self::Item> {
        let command = self.0.next::<AnyCommand<'a>>()?;
        let command = command.and_then(AnyCommand::choose);
        if command.is_err() {
            self.0.end();
        }
        Some(command)
    }
}
