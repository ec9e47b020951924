//! Joins and leaves: a client's home tells them to those who wish it. Changes `hub`; sends by `mesh`.

use crate::mesh::Message;
use crate::shard::Shard;
use myriad_hub::{Now, PresenceChange, PresenceEvent, SubscriptionFlags, SubscriptionId};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use std::sync::Arc;

/// How often a client may leave channels that announce it, in a second. Each join and leave goes to all who watch: without this, some
/// kilobytes of one client would become megabytes in the queue of each of them.
pub(super) const LEAVES_MAX: u32 = 128;

impl<R: Reactor> Shard<R> {
    /// Tells subscribers who wish it that a client has joined, if that is announced.
    pub(super) fn announce_join(&mut self, key: Key, channel: &Arc<str>, is_announced: bool) {
        if !is_announced {
            return;
        }
        let Some(subscription) = self.hub.find_subscription(key.index, channel) else {
            return;
        };
        let flags = self.hub.subscription_flags(subscription);
        let announced = flags.with(SubscriptionFlags::ANNOUNCED);
        self.hub.set_subscription_flags(subscription, announced);
        self.send_presence_event(key, subscription, PresenceChange::Joined);
    }

    /// Notes that a client leaves a channel of its own will. Past a limit it has to wait before it joins one.
    pub(super) fn note_leave(&mut self, key: Key, subscription: SubscriptionId, now: Now) {
        let flags = self.hub.subscription_flags(subscription);
        if flags.has(SubscriptionFlags::ANNOUNCED) {
            self.sessions.leaves.note(key, now);
        }
    }

    pub(super) fn announce_leave(&mut self, key: Key, subscription: SubscriptionId) {
        let flags = self.hub.subscription_flags(subscription);
        if flags.has(SubscriptionFlags::ANNOUNCED) {
            self.send_presence_event(key, subscription, PresenceChange::Left);
        }
    }

    fn send_presence_event(
        &mut self,
        key: Key,
        subscription: SubscriptionId,
        change: PresenceChange,
    ) {
        let channel = Arc::clone(self.hub.channel_name(subscription));
        let info = self.client_info(key, Some(subscription));
        let home = self.mesh.home_of(&channel);
        let event = PresenceEvent {
            channel,
            change,
            info: Arc::new(info),
        };
        self.send_message(home, Message::PresenceEvent(Box::new(event)));
    }
}
