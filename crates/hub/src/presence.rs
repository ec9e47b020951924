//! Joins and leaves of clients, for those who watch a channel's members.

use crate::ClientInfo;
use std::sync::Arc;

/// What a client did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PresenceChange {
    /// It subscribed.
    Joined,
    /// It is no longer subscribed.
    Left,
}

/// A client joined a channel or left it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresenceEvent {
    /// The channel.
    pub channel: Arc<str>,
    /// What it did.
    pub change: PresenceChange,
    /// Who it is.
    pub info: Arc<ClientInfo>,
}
