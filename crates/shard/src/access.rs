//! What tokens and the application grant: plain data that the control plane makes and shards carry out.

use myriad_hub::{ApplicationClose, Payload, TokenIdentity};
use myriad_wire::centrifuge::ErrorCode;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Tells the application the user whom a client's certificate names. No client's line of this name is ever forwarded.
pub const CERTIFICATE_USER_HEADER: &str = "myriad-certificate-user";

/// How clients prove who they are, and what the application is asked.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Verifies tokens. Without it every token is invalid.
    pub tokens: Option<Arc<dyn Tokens>>,
    /// Knows the keys of the HTTP API, by which an application reads streams. Without it there are none.
    pub keys: Option<Arc<dyn ApiKeys>>,
    /// A client whose token names no user is refused.
    pub disallow_anonymous_connection_tokens: bool,
    /// The application is asked about clients that connect without a token.
    pub connect_proxy: bool,
    /// The application is asked again when a connection expires that it granted.
    pub refresh_proxy: bool,
    /// Headers of the upgrade request that the application is sent, in lower case.
    pub headers: Arc<[Box<str>]>,
    /// Entries of the connect command's `headers` that it is sent, in lower case.
    pub emulated_headers: Arc<[Box<str>]>,
    /// It is sent clients' addresses.
    pub addresses: bool,
}

/// Verifies tokens on a shard's own thread, where that is cheap.
pub trait Tokens: Send + Sync + fmt::Debug {
    /// The token of a connect or refresh command.
    fn connection(&self, token: &str) -> Verdict<ConnectGrant>;

    /// The token of a subscribe or sub_refresh command. `user` is empty for an anonymous client.
    fn subscription(
        &self,
        token: &str,
        channel: &str,
        user: &str,
        client: &str,
    ) -> Verdict<SubscribeGrant>;

    /// Whether a token counts no more that was good when it was verified. `user` is the token's; empty for an anonymous client.
    /// Shards ask it when an answer of the control plane comes: the token may have been revoked on the way.
    fn is_revoked(&self, token: &TokenIdentity, user: &str) -> bool;
}

/// Knows the keys of the HTTP API. Shards ask it on their own threads.
pub trait ApiKeys: Send + Sync + fmt::Debug {
    /// Nobody needs a key.
    fn is_open(&self) -> bool;

    /// Whether whoever shows this key may read what a channel keeps. Takes the same time for every text that is no key.
    ///
    /// # Errors
    /// It is no key, or one that may not.
    fn check_read(&self, presented: &[u8], channel: &str) -> Result<(), KeyFault>;
}

/// Why a key of the HTTP API lets nobody read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyFault {
    /// It is no key of the API.
    Unknown,
    /// It may not do this. A sentence says what it lacks.
    Forbidden(String),
}

/// What is found out about a token.
#[derive(Debug)]
pub enum Verdict<T> {
    /// What it grants, or what is wrong with it.
    Now(Result<T, TokenFault>),
    /// Verifying it takes longer than a shard has: ask the control plane.
    Later,
}

/// What is wrong with a token. The client is at fault, or whoever made the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenFault {
    /// Not signed by a known key, or malformed. The cause is for the log.
    Invalid(&'static str),
    /// Its time is over, or has not begun.
    Expired,
    /// It is revoked.
    Revoked,
    /// It is for another user.
    OtherUser,
    /// It is for another channel.
    OtherChannel,
    /// It is for another connection.
    OtherClient,
}

impl TokenFault {
    /// What a client, a reader or a writer of streams is told: whether to come with another token. The cause is for the log,
    /// because it helps whoever makes up tokens.
    #[must_use]
    pub fn told(self) -> &'static str {
        match self {
            Self::Expired => "has expired, or is not valid yet",
            Self::Invalid(_)
            | Self::Revoked
            | Self::OtherUser
            | Self::OtherChannel
            | Self::OtherClient => "is not valid",
        }
    }

    /// The cause, for the log.
    #[must_use]
    pub fn cause(self) -> &'static str {
        match self {
            Self::Invalid(cause) => cause,
            Self::Expired => "the token has expired, or is not valid yet",
            Self::Revoked => "the token is revoked",
            Self::OtherUser => "the token is for another user",
            Self::OtherChannel => "the token is for another channel",
            Self::OtherClient => "the token is for another connection",
        }
    }
}

/// What a client that connects is granted.
#[derive(Clone, Debug, Default)]
pub struct ConnectGrant {
    /// The user; none for an anonymous client.
    pub user: Option<Arc<str>>,
    /// Time until the connection expires; none for never.
    pub expires_in: Option<Duration>,
    /// What other clients are told of the connection: JSON, or bytes for protobuf clients.
    pub info: Option<Arc<[u8]>>,
    /// What the client is told with the answer.
    pub data: Option<Payload>,
    /// Subscriptions that the server makes.
    pub subscriptions: Vec<(Arc<str>, SubscribeGrant)>,
    /// What the application wants to know in later questions: JSON.
    pub meta: Option<Arc<[u8]>>,
    /// The token, if one was shown, so that it can be revoked.
    pub token: Option<Arc<TokenIdentity>>,
}

/// What a subscription is granted beyond what its channel allows everybody.
#[derive(Clone, Debug, Default)]
pub struct SubscribeGrant {
    /// Time until it expires; none for never.
    pub expires_in: Option<Duration>,
    /// What other clients are told of the client in the channel.
    pub info: Option<Arc<[u8]>>,
    /// What the client is told with the answer.
    pub data: Option<Payload>,
    /// Options of the channel that are other ones for this subscription.
    pub overrides: OptionOverrides,
    /// The token, if one was shown, so that it can be revoked.
    pub token: Option<Arc<TokenIdentity>>,
}

/// Options of a channel that a token or the application sets for one subscription. None leaves the channel's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OptionOverrides {
    /// Member lists can be asked for.
    pub presence: Option<bool>,
    /// The subscription's join and leave are announced.
    pub join_leave: Option<bool>,
    /// Joins and leaves are pushed to the subscription.
    pub force_push_join_leave: Option<bool>,
    /// It has a position.
    pub force_positioning: Option<bool>,
    /// It recovers.
    pub force_recovery: Option<bool>,
    /// In cache mode, it gets the newest publication although it does not ask for it.
    pub cache_recover: Option<bool>,
}

/// How an expiry was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refreshed {
    /// It goes on for so long; none for ever.
    For(Option<Duration>),
    /// It is over.
    Expired,
}

/// What a refresh grants.
#[derive(Clone, Debug)]
pub struct RefreshGrant {
    /// How long it goes on.
    pub refreshed: Refreshed,
    /// New information of the connection, or of the client in the channel; none leaves the old.
    pub info: Option<Arc<[u8]>>,
    /// New data for later questions; none leaves the old.
    pub meta: Option<Arc<[u8]>>,
}

/// What is published instead of what the client sent, and how.
#[derive(Clone, Debug, Default)]
pub struct PublishGrant {
    /// The data; none leaves the client's.
    pub data: Option<Payload>,
    /// The publication is not kept in history.
    pub skip_history: bool,
    /// Tags, for subscribers' filters.
    pub tags: Vec<(Box<str>, Box<str>)>,
    /// Another publication with the same key within five minutes is not delivered.
    pub idempotency_key: Option<Box<str>>,
    /// It may be delivered as a delta.
    pub delta: bool,
    /// Skipped if the channel has this version already; 0 for none.
    pub version: u64,
    /// What versions are counted in.
    pub version_epoch: Box<str>,
}

/// What a client is told that is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// An error in the reply.
    Error {
        /// 100 to 399 are the protocol's, 400 to 1999 the application's.
        code: u32,
        /// Never empty: some clients require one.
        message: Box<str>,
        /// The client tries again by itself.
        temporary: bool,
    },
    /// The end of the connection.
    Disconnect(ApplicationClose),
    /// The end of the connection, because nothing says who the client is: the application has answered without a result.
    Nobody,
}

impl From<ErrorCode> for Refusal {
    fn from(code: ErrorCode) -> Self {
        Self::Error {
            code: code.code(),
            message: code.text().into(),
            temporary: code.is_temporary(),
        }
    }
}
