//! Joins and leaves: who is told of them.

use super::{Home, HomeEffect};
use crate::{Announcement, Delivery, JoinLeaveBy, PresenceEvent};
use std::sync::Arc;

impl Home {
    /// A client has joined a channel, or left it. Every shard with a subscriber is told, its own too. Where users are announced
    /// instead of clients, they are told when a user's first client joins and when the last one leaves. An anonymous client
    /// counts as a user of its own. [`Home::poll_told`] has what other nodes are told.
    ///
    /// A shard tells of a join after it has joined the channel itself, and of a leave before it leaves.
    pub fn handle_presence_event(&mut self, event: PresenceEvent) {
        let Some(&index) = self.names.get(&event.channel) else {
            return;
        };
        let record = &mut self.channels[index];
        if record.subscribed.is_empty() {
            return;
        }
        let user = &event.info.user;
        if record.options.join_leave_by == JoinLeaveBy::User && !user.is_empty() {
            if !record.users.note(user, event.change) || !self.tell_of_user(&event) {
                return;
            }
        } else {
            self.tell_of_client(&event);
        }
        self.announce(event);
    }

    /// Tells every shard with a subscriber.
    pub(super) fn announce(&mut self, event: PresenceEvent) {
        let Some(&index) = self.names.get(&event.channel) else {
            return;
        };
        let shards = self.channels[index].subscribed;
        if shards.is_empty() {
            return;
        }
        self.effects.push_back(HomeEffect::Deliver {
            delivery: Delivery::Presence(Arc::new(Announcement::from(event))),
            shards,
        });
    }
}
