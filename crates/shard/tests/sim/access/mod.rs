//! Who may what, in a node of its own: tokens, the application's answers, limits, orders, and rules that change.
//!
//! Clients connect with good and bad tokens and without any, subscribe to channels that not everybody may see, refresh in time, late
//! or never. The application answers what it is asked, late or never, and gives orders. What a client is told must follow from what
//! it was granted (`told`); what it is refused must have a cause (`ends`).

mod client;
mod desk;
mod ending;
mod ends;
mod facts;
mod orders;
mod quiet;
mod rules;
mod scenario;
mod tokens;
mod told;

pub(crate) use scenario::run;

/// What the seeds of CI must come through.
pub(crate) const MUST_HAPPEN: [&str; 23] = [
    "access: a client has as many subscriptions as it may",
    "access: a client refreshes a subscription",
    "access: a client refreshes its connection",
    "access: a client sends too much",
    "access: a connection expires",
    "access: a quiet moment",
    "access: a right is missing",
    "access: a subscription by the server expires",
    "access: a subscription expires",
    "access: a token grants a command",
    "access: a user has as many connections as it may, and no more",
    "access: a user has too many connections",
    "access: an address has as many connections as it may, and no more",
    "access: an expired token leaves a subscription its time",
    "access: an order ends a connection",
    "access: other rules",
    "access: the application is asked about what expires",
    "access: the application is not available",
    "access: the application refuses a command",
    "access: the control plane grants a command",
    "access: the control plane is too late",
    "access: the node drains",
    "access: too many wait for the control plane",
];
