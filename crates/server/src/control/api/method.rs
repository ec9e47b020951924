//! The table of methods.
//!
//! A method is a line of the table and a type that reads its request and answers it ([`Request`]). The line gives it a path, a place
//! in batches, in the legacy form, in the rights of keys and in the metrics. One that is marked `everywhere` concerns the clients of all
//! nodes of a cluster ([`everywhere`]), with `_counted` where nodes have to know more of each other than the API tells. One that is marked
//! `one_by_one` does, too, and asks the nodes by itself.

use super::super::Control;
use super::everywhere;
use super::fault::Fault;
use super::reading::Shape;
use super::reply::Reply;
use super::{
    broadcast, channels, connections, disconnect, history, info, presence, publish, refresh,
    revoke, rpc, subscribe, trace, unsubscribe,
};
use serde::Deserialize;

/// Reads a method's request, and answers it.
pub(crate) trait Request<'a>: Deserialize<'a> {
    /// What to send, for the sentences of refusals.
    const FORM: &'static str;

    /// What the request is about, for the rights of keys.
    fn scope(&self) -> Scope<'_>;

    /// Carries it out.
    async fn answer(self, control: &Control) -> Reply;
}

/// What a request is about.
pub(crate) enum Scope<'a> {
    /// These channels and no others.
    Channels(Box<dyn Iterator<Item = &'a str> + 'a>),
    /// The server, or users.
    Server,
}

impl<'a> Scope<'a> {
    /// One channel.
    pub(crate) fn channel(name: &'a str) -> Self {
        Self::Channels(Box::new(std::iter::once(name)))
    }
}

macro_rules! answer {
    ($variant:ident, $request:ident, $control:ident) => {
        $request.answer($control).await
    };
    ($variant:ident, $request:ident, $control:ident, everywhere_counted) => {
        answer!($variant, $request, $control, everywhere)
    };
    ($variant:ident, $request:ident, $control:ident, everywhere) => {
        if let Some(nodes) = &$control.nodes {
            let mut request = $request;
            let json = everywhere::written_request(&mut request);
            let (own, others) = everywhere::ask_all($control, nodes, Method::$variant, json).await;
            let remark = |node: &str, why: &str| nodes.remark_other_version(node, why);
            everywhere::put_together(&request, nodes.name(), own?, &others, remark)
        } else {
            $request.answer($control).await
        }
    };
    ($variant:ident, $request:ident, $control:ident, one_by_one) => {
        $request.answer_for_all($control).await
    };
}

macro_rules! answer_node {
    ($request:ident, $control:ident, $seed:ident) => {{
        // No node of this version asks.
        let _ = ($request, $control, $seed);
        Err(Fault::bad("this method concerns one node only"))
    }};
    ($request:ident, $control:ident, $seed:ident, everywhere_counted) => {
        $request.answer_node($control, $seed).await
    };
    ($request:ident, $control:ident, $seed:ident, $everywhere:ident) => {{
        let _ = $seed;
        $request.answer($control).await
    }};
}

macro_rules! methods {
    ($($(#[$meta:meta])* $name:literal $variant:ident($request:ty) $($everywhere:ident)?,)*) => {
        /// A method's name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub(crate) enum Method {
            $($variant,)*
        }

        /// A request that was read.
        #[derive(Debug, Deserialize)]
        #[expect(private_interfaces, reason = "others see only what a command is about")]
        pub(crate) enum Command<'a> {
            $(#[serde(rename = $name)] $(#[$meta])* $variant($request),)*
        }

        impl Method {
            /// All of them.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// As paths, batches and keys have it.
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Where it is.
            pub(crate) const fn path(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!("/api/", $name),)*
                }
            }

            /// What to send.
            #[expect(clippy::extra_unused_lifetimes, reason = "the table's types name it")]
            pub(super) const fn form<'a>(self) -> &'static str {
                match self {
                    $(Self::$variant => <$request as Request<'a>>::FORM,)*
                }
            }

        }

        impl<'a> Shape<'a> for Method {
            type Read = Command<'a>;

            /// Reads a request of this method.
            fn read<D: serde::Deserializer<'a>>(self, json: D) -> Result<Command<'a>, D::Error> {
                match self {
                    $(Self::$variant => Deserialize::deserialize(json).map(Command::$variant),)*
                }
            }
        }

        impl Command<'_> {
            pub(in super::super) fn method(&self) -> Method {
                match self {
                    $(Self::$variant(_) => Method::$variant,)*
                }
            }

            pub(in super::super) fn scope(&self) -> Scope<'_> {
                match self {
                    $(Self::$variant(request) => request.scope(),)*
                }
            }

            /// Carries it out, on all nodes that it concerns.
            pub(super) async fn answer(self, control: &Control) -> Reply {
                match self {
                    $(Self::$variant(request) => answer!($variant, request, control $(, $everywhere)?),)*
                }
            }

            /// Carries it out here, for another node.
            pub(super) async fn answer_node(self, control: &Control, seed: u64) -> Reply {
                match self {
                    $(Self::$variant(request) => answer_node!(request, control, seed $(, $everywhere)?),)*
                }
            }
        }
    };
}

methods! {
    #[serde(borrow)]
    "publish" Publish(publish::Publish<'a>),
    #[serde(borrow)]
    "broadcast" Broadcast(broadcast::Broadcast<'a>),
    #[serde(borrow)]
    "presence" Presence(presence::Presence<'a>) everywhere,
    #[serde(borrow)]
    "presence_stats" PresenceStats(presence::PresenceStats<'a>) everywhere_counted,
    #[serde(borrow)]
    "history" History(history::History<'a>),
    #[serde(borrow)]
    "history_remove" HistoryRemove(history::HistoryRemove<'a>),
    #[serde(borrow)]
    "channels" Channels(channels::Channels<'a>) everywhere,
    "info" Info(info::Info) everywhere,
    #[serde(borrow)]
    "subscribe" Subscribe(subscribe::Subscribe<'a>) everywhere,
    #[serde(borrow)]
    "unsubscribe" Unsubscribe(unsubscribe::Unsubscribe<'a>) everywhere,
    #[serde(borrow)]
    "disconnect" Disconnect(disconnect::Disconnect<'a>) everywhere,
    #[serde(borrow)]
    "refresh" Refresh(refresh::Refresh<'a>) everywhere,
    #[serde(borrow)]
    "connections" Connections(connections::Connections<'a>) one_by_one,
    #[serde(borrow)]
    "trace" Trace(trace::Trace<'a>),
    #[serde(borrow)]
    "revoke_token" RevokeToken(revoke::RevokeToken<'a>) everywhere,
    #[serde(borrow)]
    "invalidate_user_tokens" InvalidateUserTokens(revoke::InvalidateUserTokens<'a>) everywhere,
    #[serde(borrow)]
    "rpc" Rpc(rpc::Rpc<'a>),
}

impl Method {
    /// Whether a request of it may be about channels alone, so that a key for some namespaces may send it.
    pub(crate) const fn is_for_channels(self) -> bool {
        match self {
            Self::Publish
            | Self::Broadcast
            | Self::Presence
            | Self::PresenceStats
            | Self::History
            | Self::HistoryRemove
            | Self::Subscribe
            | Self::Unsubscribe => true,
            Self::Channels
            | Self::Info
            | Self::Disconnect
            | Self::Refresh
            | Self::Connections
            | Self::Trace
            | Self::RevokeToken
            | Self::InvalidateUserTokens
            | Self::Rpc => false,
        }
    }

    /// The method of a name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let mut all = Self::ALL.iter().copied();
        all.find(|method| method.name() == name)
    }
}
