//! Sessions: who speaks, on transports whose clients send commands.

use myriad_wheel::NONE;
use std::sync::Arc;

/// How far a client has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum SessionState {
    /// It has not sent its connect command.
    #[default]
    New,
    /// Its connect command waits for something: what it sends meanwhile waits too.
    Connecting,
    /// Its connect command was answered.
    Connected,
}

/// Who speaks on a connection. Plain data, but for the user and the information: messages share them (`Arc`).
#[derive(Debug)]
pub struct Session {
    /// The index of its connection's record.
    pub connection: u32,
    /// First of its connection's subscriptions, or `NONE`.
    pub(crate) subscriptions: u32,
    /// The user's id; none if the client is anonymous.
    pub user: Option<Arc<str>>,
    /// What the application says of the connection, for other clients: JSON, or bytes for protobuf clients.
    pub info: Option<Arc<[u8]>>,
    /// Commands that wait for an answer from a home, from all shards, or from the control plane.
    pub tickets_open: u16,
    /// How far it has come.
    pub state: SessionState,
    /// Pings that have no pong yet.
    pub(crate) unanswered_pings: u8,
}

const _: () = assert!(size_of::<Session>() == 48);

impl Session {
    pub(crate) fn new(connection: u32, user: Option<Arc<str>>) -> Self {
        Self {
            connection,
            user,
            ..Self::default()
        }
    }
}

impl Default for Session {
    fn default() -> Self {
        Self {
            connection: NONE,
            subscriptions: NONE,
            unanswered_pings: 0,
            user: None,
            info: None,
            tickets_open: 0,
            state: SessionState::New,
        }
    }
}
