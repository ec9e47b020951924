//! Sessions: who speaks, on transports whose clients send commands.

use crate::users::UserLinks;
use myriad_wheel::{NONE, Tick};
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
    /// Its connect command was answered with an error: what it sends is not read.
    Refused,
    /// Its connect command was answered.
    Connected,
}

/// Names and values of headers; the names are in lower case, and the values any bytes (RFC 9110, section 5.5).
pub type Headers = Arc<[(Box<str>, Box<[u8]>)]>;

/// Names a token among those of its user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenIdentity {
    /// The claim `jti`.
    pub id: Option<Box<str>>,
    /// The claim `iat`: seconds since 1970.
    pub issued_at: Option<u64>,
}

/// What only some sessions have.
#[derive(Clone, Debug, Default)]
pub struct SessionDetails {
    /// What the application says of the connection, for other clients: JSON, or bytes for protobuf clients.
    pub info: Option<Arc<[u8]>>,
    /// What the application wants to know with each of the client's questions: JSON.
    pub meta: Option<Arc<[u8]>>,
    /// Headers of the upgrade request that the application is sent.
    pub headers: Option<Headers>,
    /// Headers of the connect command that the application is sent.
    pub emulated_headers: Option<Headers>,
    /// The token by which the client connected.
    pub token: Option<Arc<TokenIdentity>>,
    /// A fingerprint of the channels that the token granted; 0 for none.
    pub granted_channels: u64,
}

/// Never: what does not expire has this tick.
pub const NEVER: Tick = Tick(u32::MAX);

/// Who speaks on a connection. Plain data, but for the user and the details: messages share what is in them (`Arc`).
#[derive(Debug)]
pub struct Session {
    /// The index of its connection's record.
    pub connection: u32,
    /// First of its connection's subscriptions, or `NONE`.
    pub(crate) subscriptions: u32,
    /// The user's id; none if the client is anonymous. [`crate::Hub::set_user`] changes it.
    pub user: Option<Arc<str>>,
    /// What only some sessions have.
    pub details: Option<Box<SessionDetails>>,
    /// When the connection expires; [`NEVER`] if it does not.
    pub expires_at: Tick,
    /// When the first of its subscriptions expires, or a tick before; [`NEVER`] if none does.
    pub subscription_expires_at: Tick,
    /// Commands that wait for an answer from a home, from all shards, or from the control plane.
    pub tickets_open: u16,
    /// How far it has come.
    pub state: SessionState,
    /// Pings that have no pong yet.
    pub(crate) unanswered_pings: u8,
    /// Its place among the sessions of its user.
    pub(crate) user_links: UserLinks,
    /// It stands for all sessions of its user.
    pub(crate) is_first_of_user: bool,
    /// How often the connection went on since the application last answered whether it does.
    pub extensions: u8,
}

const _: () = assert!(size_of::<Session>() == 56);

impl Session {
    /// What only some sessions have; made if it has none.
    pub fn details_mut(&mut self) -> &mut SessionDetails {
        self.details.get_or_insert_default()
    }

    /// When the connection or one of its subscriptions expires, or a tick before; [`NEVER`] if none does.
    #[must_use]
    pub fn next_expiry(&self) -> Tick {
        self.expires_at.min(self.subscription_expires_at)
    }

    /// What other clients are told of the connection.
    #[must_use]
    pub fn info(&self) -> Option<&Arc<[u8]>> {
        self.details.as_ref()?.info.as_ref()
    }

    /// Whether it is the one session of its user here that stands for all of them.
    #[must_use]
    pub fn stands_for_user(&self) -> bool {
        self.is_first_of_user
    }

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
            details: None,
            expires_at: NEVER,
            subscription_expires_at: NEVER,
            tickets_open: 0,
            state: SessionState::New,
            user_links: UserLinks::NONE,
            is_first_of_user: false,
            extensions: 0,
        }
    }
}
