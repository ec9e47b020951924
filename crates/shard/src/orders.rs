//! Orders: what an application does to connections of its users, and what it asks about them.
//!
//! [`Mesh::order`](crate::Mesh::order) brings an order to a shard, which carries it out a slice at a time, one order after the other.
//! [`ControlPlane::ordered`](crate::ControlPlane::ordered) says that it is done.

use crate::access::{Refreshed, SubscribeGrant};
use myriad_hub::{ApplicationClose, ClientId, Permit, TokenIdentity};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// Orders of the process that are not carried out yet.
pub(crate) const ORDERS_MAX: u64 = 4_096;

/// What is to be done, and to whom.
#[derive(Debug)]
pub struct Order {
    /// Shards may remember it when the order is carried out: for commands that waited for an answer meanwhile.
    pub(crate) instruction: Arc<Instruction>,
    /// Its place among the orders of the process.
    pub(crate) _place: Permit,
}

/// What an order says.
#[derive(Debug)]
pub(crate) struct Instruction {
    pub(crate) whose: Whose,
    pub(crate) deed: Deed,
}

impl Instruction {
    /// Whether live reads of streams end by it, too. They have no session, and no client's id names one.
    pub(crate) fn is_for_readers(&self) -> bool {
        let ends = matches!(
            self.deed,
            Deed::Disconnect(_) | Deed::EndRevoked(_) | Deed::Unsubscribe(_)
        );
        self.whose.client.is_none() && ends
    }
}

impl Order {
    /// Which connections it is for.
    #[must_use]
    pub fn whose(&self) -> &Whose {
        &self.instruction.whose
    }
}

/// Why an order was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderRefused {
    /// Too many orders wait; try again later.
    Busy,
}

/// Which connections an order is for: those of these users that all the other fields allow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Whose {
    /// Whose connections.
    pub users: Users,
    /// This connection only.
    pub client: Option<ClientId>,
    /// All but these connections.
    pub kept: Vec<ClientId>,
}

impl Whose {
    /// Whether a client of this user is meant; none is an anonymous one.
    pub(crate) fn are(&self, user: Option<&str>, client: ClientId) -> bool {
        self.users.have(user)
            && self.client.is_none_or(|one| one == client)
            && !self.kept.contains(&client)
    }
}

/// Users whose connections an order is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Users {
    /// One user.
    One(Arc<str>),
    /// Clients without a user. All connections are looked at.
    Anonymous,
    /// Everybody. All connections are looked at.
    #[default]
    All,
}

impl Users {
    /// Whether this user is one of them; none is an anonymous one.
    pub(crate) fn have(&self, user: Option<&str>) -> bool {
        match self {
            Self::One(wanted) => user == Some(&**wanted),
            Self::Anonymous => user.is_none(),
            Self::All => true,
        }
    }
}

/// What is to be done to a connection.
#[derive(Debug)]
pub enum Deed {
    /// It ends.
    Disconnect(ApplicationClose),
    /// It ends if it was opened with a token that is revoked. Subscriptions that were made with one end, and the connection goes on.
    EndRevoked(RevokedTokens),
    /// It loses its subscription to this channel, or to every channel.
    Unsubscribe(Option<Arc<str>>),
    /// It gets a subscription.
    Subscribe(Box<ServerSubscribe>),
    /// When it expires changes.
    Refresh {
        /// How long it goes on.
        refreshed: Refreshed,
        /// New information for other clients; none leaves the old.
        info: Option<Arc<[u8]>>,
    },
    /// Nothing: it is described.
    Describe(Question),
}

/// Tokens that are revoked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RevokedTokens {
    /// The one with this id.
    Id(Box<str>),
    /// Those issued before this time, in seconds since 1970. One that does not say when it was issued counts.
    IssuedBefore(u64),
}

impl RevokedTokens {
    /// Whether a token is one of them.
    #[must_use]
    pub fn contain(&self, token: &TokenIdentity) -> bool {
        match self {
            Self::Id(id) => token.id.as_ref() == Some(id),
            Self::IssuedBefore(time) => token.issued_at.is_none_or(|issued| issued < *time),
        }
    }
}

/// A subscription by the application.
#[derive(Clone, Debug)]
pub struct ServerSubscribe {
    /// The channel; it has a namespace.
    pub channel: Arc<str>,
    /// What the subscription is granted.
    pub grant: SubscribeGrant,
    /// The client has everything up to this offset and epoch. It gets what came after, if it may recover.
    pub since: Option<(u64, Box<str>)>,
}

/// Which connections are described.
#[derive(Debug, Default)]
pub struct Question {
    /// Only those subscribed to this channel.
    pub channel: Option<Box<str>>,
    /// Only those of whose data for the application (`meta`) this is true.
    pub meta: Option<MetaFilter>,
    /// The first one to look at: 0, or [`OrderDone::next`] of the page before.
    pub from: u32,
    /// As many at most.
    pub max: usize,
}

/// A question about the JSON of a connection's `meta`.
type IsWanted = dyn Fn(&[u8]) -> bool + Send + Sync;

/// Says yes or no to the JSON of a connection's `meta`.
pub struct MetaFilter(pub Box<IsWanted>);

impl fmt::Debug for MetaFilter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("MetaFilter").finish_non_exhaustive()
    }
}

/// An order is carried out on one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrderDone {
    /// Connections that it was carried out for.
    pub done: u64,
    /// Connections that it was for, and could not be carried out for.
    pub failed: u64,
    /// Those that were asked about.
    pub connections: Vec<Described>,
    /// Where the next page begins; none behind the last.
    pub next: Option<u32>,
}

/// A connection, as an application sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Its id.
    pub client: ClientId,
    /// Its user; none of an anonymous client.
    pub user: Option<Arc<str>>,
    /// Its transport, such as `websocket`.
    pub transport: &'static str,
    /// `json` or `protobuf`.
    pub protocol: &'static str,
    /// Its address, as far as it is known. Behind a proxy that is not trusted, it is the proxy's.
    pub address: Option<IpAddr>,
    /// How long it has been open, in milliseconds, to a tick.
    pub open_ms: u64,
    /// What the application says of it, for other clients.
    pub info: Option<Arc<[u8]>>,
    /// What the application keeps with it: JSON.
    pub meta: Option<Arc<[u8]>>,
    /// Its channels, the newest subscription first.
    pub channels: Vec<Arc<str>>,
    /// The token that it was opened with.
    pub token: Option<Arc<TokenIdentity>>,
}

#[cfg(test)]
mod tests {
    use super::{RevokedTokens, TokenIdentity};

    #[test]
    fn a_token_without_a_time_counts_as_issued_before() {
        let token = |id: Option<&str>, issued_at| TokenIdentity {
            id: id.map(Into::into),
            issued_at,
        };
        let by_id = RevokedTokens::Id("a".into());
        assert!(by_id.contain(&token(Some("a"), None)));
        assert!(!by_id.contain(&token(Some("b"), None)));
        assert!(!by_id.contain(&token(None, None)));
        let by_time = RevokedTokens::IssuedBefore(7);
        for (issued_at, is_revoked) in [(None, true), (Some(6), true), (Some(7), false)] {
            assert_eq!(by_time.contain(&token(None, issued_at)), is_revoked);
        }
    }
}
