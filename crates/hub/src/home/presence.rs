//! Joins and leaves: who is told of them.

use super::{Home, HomeEffect};
use crate::{Delivery, JoinLeaveBy, PresenceEvent};
use std::sync::Arc;

impl Home {
    /// A client has joined a channel, or left it. Every shard with a subscriber is told, its own too. Where users are announced
    /// instead of clients, they are told when a user's first client joins and when the last one leaves. An anonymous client
    /// counts as a user of its own.
    ///
    /// A shard tells of a join after it has joined the channel itself, and of a leave before it leaves.
    pub fn handle_presence_event(&mut self, event: PresenceEvent) {
        let Some(&index) = self.names.get(&event.channel) else {
            return;
        };
        let record = &mut self.channels[index];
        let user = &event.info.user;
        let is_counted = record.options.join_leave_by == JoinLeaveBy::User && !user.is_empty();
        let shards = record.subscribed;
        if shards.is_empty() || is_counted && !record.users.note(user, event.change) {
            return;
        }
        self.effects.push_back(HomeEffect::Deliver {
            delivery: Delivery::Presence(Arc::new(event.into())),
            shards,
        });
    }
}
