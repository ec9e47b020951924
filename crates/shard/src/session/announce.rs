//! Joins and leaves: a client's home tells them to those who wish it. Changes `hub`; sends by `mesh`.

use crate::mesh::Message;
use crate::shard::Shard;
use myriad_hub::{PresenceChange, PresenceEvent, SubscriptionFlags, SubscriptionId};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use std::sync::Arc;

impl<R: Reactor> Shard<R> {
    /// Tells subscribers who wish it that a client has joined, if the channel announces that.
    pub(super) fn announce_join(&mut self, key: Key, channel: &Arc<str>) {
        let options = self.settings.namespaces.options_of(channel);
        if !options.is_some_and(|options| options.join_leave) {
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
