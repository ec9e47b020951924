//! Subscriptions of connections to channels, and the homes' confirmations.

use super::Hub;
use crate::channel::{Channel, Member, Membership, Subscribed, Subscription};
use crate::connection::Phase;
use crate::reach::HubPlace;
use myriad_wheel::{Key, NONE};
use std::sync::Arc;

impl Hub {
    /// Subscribes a connection. A second subscription to the same channel changes nothing.
    pub fn subscribe(&mut self, index: u32, name: &str) -> Subscribed {
        let known = self.names.get(name).copied();
        let channel = known.unwrap_or_else(|| self.add_channel(name));
        if self.is_subscribed(index, channel) {
            return Subscribed::Ready;
        }
        let key = self
            .connections
            .key_of(index)
            .expect("a live connection subscribes");
        let record = &mut self.channels[channel];
        let member_index =
            u32::try_from(record.members.len()).expect("fewer members than connections");
        let next = self.connections[index].subscriptions;
        let subscription = self
            .subscriptions
            .insert(Subscription::new(channel, member_index, next))
            .index;
        self.subscriptions[subscription].set_last(record.last_offset);
        self.reach
            .note_if(!record.deliveries.is_empty(), HubPlace::SubscribeInDelivery);
        record.members.push(Member {
            connection: index,
            subscription,
        });
        self.connections[index].subscriptions = subscription;
        let Membership::Joining { serial, waiting } = &mut record.membership else {
            self.reach.note(HubPlace::SubscribeReady);
            return Subscribed::Ready;
        };
        waiting.push(key);
        self.connections[index].joins_pending += 1;
        match known {
            Some(_) => {
                self.reach.note(HubPlace::SubscribePending);
                Subscribed::Pending
            }
            None => Subscribed::Ask {
                name: Arc::clone(&record.name),
                serial: *serial,
            },
        }
    }

    fn add_channel(&mut self, name: &str) -> u32 {
        let name: Arc<str> = name.into();
        self.join_serial += 1;
        let index = self
            .channels
            .insert(Channel::new(Arc::clone(&name), self.join_serial))
            .index;
        self.names.insert(name, index);
        index
    }

    fn is_subscribed(&self, index: u32, channel: u32) -> bool {
        let mut next = self.connections[index].subscriptions;
        while next != NONE {
            if self.subscriptions[next].channel == channel {
                return true;
            }
            next = self.subscriptions[next].next;
        }
        false
    }

    /// The home confirmed this shard's interest, as of `offset`. Appends the connections that now have all their
    /// channels. An answer to a question that is not the channel's last one is ignored.
    pub fn handle_joined(&mut self, name: &str, answered: u64, offset: u64, ready: &mut Vec<Key>) {
        let Some(&channel) = self.names.get(name) else {
            return self.reach.note(HubPlace::AnswerToNobody);
        };
        let record = &mut self.channels[channel];
        let Membership::Joining { serial, waiting } = &mut record.membership else {
            return;
        };
        if *serial != answered {
            return self.reach.note(HubPlace::AnswerToOlderQuestion);
        }
        let waiting = std::mem::take(waiting);
        record.membership = Membership::Joined;
        record.last_offset = offset;
        for member in &record.members {
            self.subscriptions[member.subscription].set_last(offset);
        }
        for key in waiting {
            let connection = self
                .connections
                .get_mut(key)
                .expect("a connection that ends stops waiting");
            connection.joins_pending -= 1;
            if connection.joins_pending == 0 && connection.phase == Phase::Joining {
                ready.push(key);
            }
        }
    }

    pub(super) fn unsubscribe_all(&mut self, index: u32, emptied_channels: &mut Vec<Arc<str>>) {
        let mut next = std::mem::replace(&mut self.connections[index].subscriptions, NONE);
        self.connections[index].joins_pending = 0;
        let key = self.connections.key_of(index);
        while next != NONE {
            let subscription = self.subscriptions.remove(next);
            let record = &mut self.channels[subscription.channel];
            if let Membership::Joining { waiting, .. } = &mut record.membership {
                waiting.retain(|waiter| Some(*waiter) != key);
                self.reach.note(HubPlace::LeaveWhileJoining);
            }
            self.reach
                .note_if(!record.deliveries.is_empty(), HubPlace::LeaveInDelivery);
            if let Some(moved) = record.remove_member(subscription.member_index) {
                self.reach.note(HubPlace::LeaveSwaps);
                self.subscriptions[moved].member_index = subscription.member_index;
            }
            if !record.has_members() && record.deliveries.is_empty() {
                emptied_channels.push(self.remove_channel(subscription.channel));
            }
            next = subscription.next;
        }
    }

    pub(super) fn remove_channel(&mut self, channel: u32) -> Arc<str> {
        let record = self.channels.remove(channel);
        self.names.remove(&record.name);
        record.name
    }
}
