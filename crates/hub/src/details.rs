//! What only some subscriptions have.

use crate::FilterId;
use crate::TokenIdentity;
use myriad_wheel::Tick;
use std::sync::Arc;

/// What only some subscriptions of clients with sessions have, beside the record that every subscription has.
#[derive(Debug, Default)]
pub struct SubscriptionDetails {
    /// What the application says of the client in this channel, for other clients: JSON, or bytes for protobuf clients.
    pub info: Option<Arc<[u8]>>,
    /// Only publications whose tags pass are delivered.
    pub filter: Option<FilterId>,
    /// The token that grants the subscription, so that revoking it ends the subscription.
    pub token: Option<Arc<TokenIdentity>>,
    /// When the subscription expires; none if it does not.
    pub expires_at: Option<Tick>,
    /// How often it went on since the application last answered whether it does.
    pub extensions: u8,
    /// The client is in no member list of the channel.
    pub is_hidden: bool,
}
