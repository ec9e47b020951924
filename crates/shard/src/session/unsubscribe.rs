//! `unsubscribe`, and other ends of subscriptions. Changes `hub`, `sessions` and `turn_end`.

use super::subscribe::Later;
use super::{Failure, TICKETS_MAX, bad_request};
use crate::shard::Shard;
use crate::transport::centrifuge::protocol_of;
use myriad_hub::{CloseReason, Now, SubscriptionFlags};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::centrifuge::{ErrorCode, Push, UnsubscribeCode};

impl<R: Reactor> Shard<R> {
    pub(super) fn handle_unsubscribe(
        &mut self,
        key: Key,
        id: u32,
        channel: &str,
        text: &[u8],
        now: Now,
    ) -> Result<(), Failure> {
        if channel.is_empty() {
            return Err(bad_request("it names no channel"));
        }
        if self.waits_for_publications(key, channel, text)? {
            return Ok(());
        }
        if let Some(subscription) = self.hub.find_subscription(key.index, channel)
            && let Some(pending) = self.sessions.pending.get_mut(&subscription)
        {
            // The subscription is answered first.
            if pending.later.len() >= usize::from(TICKETS_MAX) {
                return Err(ErrorCode::TooManyRequests.into());
            }
            pending.later.push(Later::Unsubscribe(id));
            return Ok(());
        }
        self.end_behind_own(key, channel, now);
        self.reply(key, |writer| writer.unsubscribe(id));
        Ok(())
    }

    /// Ends a subscription as its client wishes, behind what the client itself has published to the channel.
    pub(super) fn end_behind_own(&mut self, key: Key, channel: &str, now: Now) {
        let mut overflown = Vec::new();
        let client = self.client_id(key);
        self.hub
            .catch_up(key.index, channel, client, &mut overflown);
        self.end_overflown(overflown, now);
        self.end_subscription(key, channel, now);
    }

    /// Ends a subscription that is made, if there is one, and announces that the client has left.
    pub(super) fn end_subscription(&mut self, key: Key, channel: &str, now: Now) {
        let Some(subscription) = self.hub.find_subscription(key.index, channel) else {
            return;
        };
        self.note_leave(key, subscription, now);
        self.drop_subscription(key, channel);
    }

    /// As [`Shard::end_subscription`], but not of the client's own will: it need not wait before it joins another one.
    pub(super) fn drop_subscription(&mut self, key: Key, channel: &str) {
        let Some(subscription) = self.hub.find_subscription(key.index, channel) else {
            return;
        };
        self.announce_leave(key, subscription);
        let emptied = &mut self.turn_end.emptied_channels;
        self.hub.unsubscribe(key.index, channel, emptied);
    }

    /// Ends a subscription that has missed something, so that the client subscribes anew and recovers. Clients do not do that for
    /// subscriptions by the server: they have to connect anew.
    pub(crate) fn end_gapped_subscription(&mut self, index: u32, channel: &str, now: Now) {
        let Some(key) = self.hub.key_of(index) else {
            return;
        };
        let Some(subscription) = self.hub.find_subscription(index, channel) else {
            return;
        };
        let flags = self.hub.subscription_flags(subscription);
        if flags.has(SubscriptionFlags::SERVER_SIDE) {
            return self.close_stream(key, CloseReason::InsufficientState, now);
        }
        self.end_subscription(key, channel, now);
        let protocol = protocol_of(self.hub.connection(index).transport());
        let mut message = Vec::new();
        let push = Push::Unsubscribe(UnsubscribeCode::InsufficientState.into());
        protocol.writer(&mut message).push(channel, &push);
        self.send_message_to(key, &message, now);
    }

    /// Ends a subscription to a channel that has lost publications. A client connects anew whose subscription is not made yet: the
    /// answer that it waits for will not come. So does one without a session, which has nothing but its subscriptions.
    pub(crate) fn end_lost_subscription(&mut self, index: u32, channel: &str, now: Now) {
        let found = self.hub.find_subscription(index, channel);
        let is_made = found.is_some_and(|found| !self.sessions.pending.contains_key(&found));
        if is_made && self.hub.connection(index).has_session() {
            self.end_gapped_subscription(index, channel, now);
        } else {
            self.close_index(index, CloseReason::InsufficientState, now);
        }
    }

    /// A connection with a session ends: its subscriptions are announced as left, and nothing waits for it any more.
    pub(crate) fn end_session(&mut self, key: Key) {
        if !self.hub.connection(key.index).has_session() {
            return;
        }
        self.forget_connecting(key.index);
        self.take_answer(key.index);
        self.forget_counts(key);
        self.sessions.connects.forget(key.index);
        self.sessions.questions.forget(key);
        self.forget_lines(key);
        let subscriptions: Vec<_> = self
            .hub
            .subscriptions_of(key.index)
            .map(|(subscription, _, flags)| (subscription, flags))
            .collect();
        for (subscription, flags) in subscriptions {
            if flags.has(SubscriptionFlags::WAITING) {
                self.sessions.pending.remove(&subscription);
            }
            self.announce_leave(key, subscription);
        }
    }
}
