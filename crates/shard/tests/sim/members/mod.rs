//! Members of channels that are no readers of streams: clients with sessions, and `raw` listeners. What each of them must see is in
//! `client` and `listener`; what all of them must agree on is in `ledger`.

mod client;
mod ledger;
mod listener;
mod socket;
mod subscription;

pub(crate) use client::Client;
pub(crate) use ledger::{Ledger, data_of};
pub(crate) use listener::Listener;
pub(crate) use socket::Way;

/// The tag by which subscribers filter, and its values.
pub(crate) const TAG: &str = "kind";
pub(crate) const TAGS: [&str; 2] = ["odd", "even"];

/// What the seeds of CI must come through.
pub(crate) const MUST_HAPPEN: [&str; 38] = [
    "sessions: a batch comes as one frame",
    "sessions: a channel is occupied or vacated",
    "sessions: a client cannot recover",
    "sessions: a client comes from elsewhere",
    "sessions: a client connects or disconnects",
    "sessions: a client has the newest publication",
    "sessions: a client publishes and unsubscribes",
    "sessions: a client recovers the newest publication",
    "sessions: a client recovers",
    "sessions: a client that has not connected makes room",
    "sessions: a client without commands is told of its subscriptions",
    "sessions: a connection ends without a close frame",
    "sessions: a delta is applied",
    "sessions: a history is removed",
    "sessions: a join is told",
    "sessions: a leave is told",
    "sessions: a listener has everything at a quiet moment",
    "sessions: a namespace has gone",
    "sessions: a namespace is what it was before",
    "sessions: a namespace loses its history",
    "sessions: a ping is answered",
    "sessions: a publication says its place as the id of its event",
    "sessions: a publication to a closed stream is refused",
    "sessions: a publication without a place comes",
    "sessions: a reader of events goes on from the id of an event",
    "sessions: a reader of events is told where it stands",
    "sessions: a silent client ends with 3012",
    "sessions: a slow client ends with 3008",
    "sessions: a subscription comes with the connection",
    "sessions: a subscription ends in a gap",
    "sessions: a subscription has everything at a quiet moment",
    "sessions: an offset is of no publication",
    "sessions: commands come apart",
    "sessions: no publication is kept to recover",
    "sessions: nonsense ends with 1007 or 3501",
    "sessions: publications are dropped for a slow client",
    "sessions: publications are left out",
    "sessions: the node drains",
];
