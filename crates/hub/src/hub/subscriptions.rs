//! Subscriptions of connections to channels, and the homes' confirmations.

use super::Hub;
use crate::channel::SubscriptionFlags;
use crate::channel::{Channel, Member, Membership, Subscription};
use crate::defects::DefectScope;
use crate::details::SubscriptionDetails;
use crate::marks::hit;
use crate::{Content, Position};
use myriad_wheel::{Key, NONE};
use myriad_wire::centrifuge::Filter;
use std::sync::Arc;

/// The index of a subscription's record; it may name another subscription once this one has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubscriptionId(pub(crate) u32);

/// What became of [`Hub::subscribe`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subscribed {
    /// The connection had a subscription to the channel already; nothing changed.
    Already(SubscriptionId),
    /// The shard gets the channel's publications already: the connection is subscribed.
    Ready {
        /// The new subscription.
        subscription: SubscriptionId,
        /// Every publication of the channel after this position is delivered to it.
        position: Position,
    },
    /// The home has to confirm first, and has been asked. [`Hub::handle_joined`] will yield a [`Joined`].
    Pending,
    /// As [`Subscribed::Pending`], but the home has not been asked: ask it, and give its answer with this serial to
    /// [`Hub::handle_joined`].
    Ask {
        /// The channel.
        name: Arc<str>,
        /// Names the question.
        serial: u64,
    },
}

/// Effect of [`Hub::handle_joined`]: the channel's home has confirmed one subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The connection.
    pub key: Key,
    /// Its subscription to the channel.
    pub subscription: SubscriptionId,
    /// Every publication of the channel after this position is delivered to it.
    pub position: Position,
}

impl Hub {
    /// Subscribes a connection to a channel.
    pub fn subscribe(&mut self, index: u32, name: &str) -> Subscribed {
        let known = self.names.get(name).copied();
        let channel = known.unwrap_or_else(|| self.add_channel(name));
        if let Some(subscription) = self.subscription_to(index, channel) {
            return Subscribed::Already(SubscriptionId(subscription));
        }
        let next = self.first_subscription(index);
        let record = &mut self.channels[channel];
        // A connection is a member once, and connections have indices of 32 bits.
        let member_index =
            u32::try_from(record.members.len()).expect("fewer members than connections");
        let subscription = self
            .subscriptions
            .insert(Subscription::new(channel, member_index, next))
            .index;
        self.subscriptions[subscription].set_last(record.last_offset);
        hit!(SubscribeInDelivery if !record.deliveries.is_empty());
        record.members.push(Member {
            connection: index,
            subscription,
        });
        self.set_first_subscription(index, subscription);
        let record = &self.channels[channel];
        let serial = match record.membership {
            Membership::Joining { serial } => serial,
            Membership::Joined { epoch } => {
                hit!(SubscribeReady);
                let offset = record.last_offset;
                return Subscribed::Ready {
                    subscription: SubscriptionId(subscription),
                    position: Position { epoch, offset },
                };
            }
        };
        self.connections[index].joins_pending += 1;
        match known {
            Some(_) => {
                hit!(SubscribePending);
                Subscribed::Pending
            }
            None => Subscribed::Ask {
                name: Arc::clone(&record.name),
                serial,
            },
        }
    }

    fn add_channel(&mut self, name: &str) -> u32 {
        let name: Arc<str> = name.into();
        self.join_serial += 1;
        let options = self.namespaces.options_of(&name);
        let policy = options.map(|options| options.slow_consumer);
        let channel = Channel::new(
            Arc::clone(&name),
            policy.unwrap_or_default(),
            self.join_serial,
        );
        let index = self.channels.insert(channel).index;
        self.names.insert(name, index);
        index
    }

    /// The connection's subscription to a channel, if it has one.
    #[must_use]
    pub fn find_subscription(&self, index: u32, name: &str) -> Option<SubscriptionId> {
        let channel = *self.names.get(name)?;
        self.subscription_to(index, channel).map(SubscriptionId)
    }

    /// The channel of a live subscription.
    #[must_use]
    pub fn channel_name(&self, subscription: SubscriptionId) -> &Arc<str> {
        &self.channels[self.subscriptions[subscription.0].channel].name
    }

    /// The flags of a live subscription.
    #[must_use]
    pub fn subscription_flags(&self, subscription: SubscriptionId) -> SubscriptionFlags {
        self.subscriptions[subscription.0].flags()
    }

    /// Sets the flags of a live subscription.
    pub fn set_subscription_flags(
        &mut self,
        subscription: SubscriptionId,
        flags: SubscriptionFlags,
    ) {
        let record = &mut self.subscriptions[subscription.0];
        let before = record.flags();
        let mut flags = flags;
        if before.has(SubscriptionFlags::JOIN_LEAVE) && !flags.has(SubscriptionFlags::JOIN_LEAVE) {
            flags = flags.with(SubscriptionFlags::JOIN_LEAVE);
            let member_index = record.member_index;
            let member = self.channels[record.channel].members[member_index as usize];
            self.defects.note(
                DefectScope::Connection(member.connection),
                "an observer stays one until its subscription ends",
            );
        }
        let observes =
            !before.has(SubscriptionFlags::JOIN_LEAVE) && flags.has(SubscriptionFlags::JOIN_LEAVE);
        // Whether it has details is the hub's own to know.
        let details = before.has(SubscriptionFlags::DETAILS);
        let flags = flags.without(SubscriptionFlags::DETAILS);
        record.set_flags(if details {
            flags.with(SubscriptionFlags::DETAILS)
        } else {
            flags
        });
        if observes {
            self.add_observer(subscription.0);
        }
    }

    /// A subscription that waited gets everything after `offset` from now on.
    pub fn end_waiting(&mut self, subscription: SubscriptionId, offset: u64) {
        let record = &mut self.subscriptions[subscription.0];
        if !record.flags().has(SubscriptionFlags::WAITING) {
            let name = Arc::clone(&self.channels[record.channel].name);
            self.defects.note(
                DefectScope::Channel(name),
                "a subscription is waited for once",
            );
        }
        record.set_flags(record.flags().without(SubscriptionFlags::WAITING));
        record.set_last(offset.max(record.last()));
    }

    /// What only some subscriptions have; none if this one does not.
    #[must_use]
    pub fn details(&self, subscription: SubscriptionId) -> Option<&SubscriptionDetails> {
        let flags = self.subscription_flags(subscription);
        let has_details = flags.has(SubscriptionFlags::DETAILS);
        has_details.then(|| self.details.get(&subscription.0))?
    }

    /// As [`Hub::details`], made on first need.
    pub fn details_mut(&mut self, subscription: SubscriptionId) -> &mut SubscriptionDetails {
        let record = &mut self.subscriptions[subscription.0];
        record.set_flags(record.flags().with(SubscriptionFlags::DETAILS));
        self.details.entry(subscription.0).or_default()
    }

    /// Sets a subscription's filter, whose [`Filter::bytes`] the caller has reserved with [`Hub::reserve_buffered`]. They are
    /// released when the last subscription with an equal filter ends; at once if others have one.
    pub fn set_filter(&mut self, subscription: SubscriptionId, filter: Filter) {
        let bytes = filter.bytes();
        let (filter, is_new) = self.filters.add(filter);
        if !is_new {
            self.release_buffered(bytes);
        }
        let before = self.details_mut(subscription).filter.replace(filter);
        if let Some(before) = before {
            let freed = self.filters.remove(before);
            self.release_buffered(freed);
            let scope = DefectScope::Channel(Arc::clone(self.channel_name(subscription)));
            self.defects
                .note(scope, "a subscription's filter never changes");
        }
    }

    /// Whether a subscription has a filter.
    #[must_use]
    pub fn has_filter(&self, subscription: SubscriptionId) -> bool {
        let details = self.details(subscription);
        details.is_some_and(|details| details.filter.is_some())
    }

    /// Whether a publication that is in no delivery passes a subscription's filter, and what comparing them cost, in members that could
    /// have been delivered to.
    pub fn compare(&mut self, subscription: SubscriptionId, content: &Content) -> (bool, usize) {
        match self
            .details(subscription)
            .and_then(|details| details.filter)
        {
            Some(filter) => self.filters.compare(filter, content),
            None => (true, 0),
        }
    }

    /// Distinct filters of subscriptions, and publications compared with one each, ever.
    #[must_use]
    pub fn filter_stats(&self) -> (usize, u64) {
        (self.filters.len(), self.filters.comparisons())
    }

    /// Whether a channel has members or deliveries here.
    #[must_use]
    pub fn knows_channel(&self, channel: &str) -> bool {
        self.names.contains_key(channel)
    }

    /// The subscriptions of a connection: the channel's name, and the flags.
    pub fn subscriptions_of(
        &self,
        index: u32,
    ) -> impl Iterator<Item = (SubscriptionId, &Arc<str>, SubscriptionFlags)> {
        let first = self.first_subscription(index);
        let live = |subscription: u32| (subscription != NONE).then_some(subscription);
        std::iter::successors(live(first), move |&subscription| {
            live(self.subscriptions[subscription].next)
        })
        .map(|subscription| {
            let record = &self.subscriptions[subscription];
            let name = &self.channels[record.channel].name;
            (SubscriptionId(subscription), name, record.flags())
        })
    }

    /// The first channel in the order of their records, from `from` on: its name, its members here, and where to look for the next one.
    #[must_use]
    pub fn channel_from(&self, from: u32) -> Option<(&Arc<str>, usize, u32)> {
        let index = self.channels.index_from(from)?;
        let channel = &self.channels[index];
        let members = channel.members.len() - channel.tombstones;
        Some((&channel.name, members, index + 1))
    }

    /// The members of a channel here: connection, subscription and its flags.
    pub fn members_of(
        &self,
        name: &str,
    ) -> impl Iterator<Item = (u32, SubscriptionId, SubscriptionFlags)> {
        let channel = self.names.get(name).map(|&channel| &self.channels[channel]);
        let members = channel.map_or(&[][..], |channel| &channel.members);
        let live = members
            .iter()
            .filter(|member| **member != Member::TOMBSTONE);
        live.map(|member| {
            let flags = self.subscriptions[member.subscription].flags();
            (
                member.connection,
                SubscriptionId(member.subscription),
                flags,
            )
        })
    }

    /// Channels that a connection is subscribed to. Walks its subscriptions.
    #[must_use]
    pub fn channel_count_of(&self, index: u32) -> usize {
        let mut count = 0;
        let mut next = self.first_subscription(index);
        while next != NONE {
            count += 1;
            next = self.subscriptions[next].next;
        }
        count
    }

    /// First of a connection's subscriptions, or `NONE`.
    pub(crate) fn first_subscription(&self, index: u32) -> u32 {
        let connection = &self.connections[index];
        match connection.session() {
            Some(session) => self.sessions[session].subscriptions,
            None => connection.subscriptions(),
        }
    }

    fn set_first_subscription(&mut self, index: u32, subscription: u32) {
        let connection = &mut self.connections[index];
        match connection.session() {
            Some(session) => self.sessions[session].subscriptions = subscription,
            None => connection.set_subscriptions(subscription),
        }
    }

    /// The connection's subscription to the channel, if it has one.
    fn subscription_to(&self, index: u32, channel: u32) -> Option<u32> {
        let mut next = self.first_subscription(index);
        while next != NONE && self.subscriptions[next].channel != channel {
            next = self.subscriptions[next].next;
        }
        (next != NONE).then_some(next)
    }

    /// The home confirmed this shard's interest in a channel, as of `position`. Appends one effect to `joined` for each
    /// subscription that waited for it. Ignored unless `answered` is the serial of the channel's last question.
    pub fn handle_joined(
        &mut self,
        name: &str,
        answered: u64,
        position: Position,
        joined: &mut Vec<Joined>,
    ) {
        let Some(&channel) = self.names.get(name) else {
            hit!(AnswerToNobody);
            return;
        };
        let record = &mut self.channels[channel];
        let Membership::Joining { serial } = record.membership else {
            return;
        };
        if serial != answered {
            hit!(AnswerToOlderQuestion);
            return;
        }
        let Position { epoch, offset } = position;
        record.membership = Membership::Joined { epoch };
        record.last_offset = offset;
        // A channel that joins has no deliveries, so its list of members has no tombstones.
        let members = record.members.iter();
        for member in members.filter(|member| **member != Member::TOMBSTONE) {
            let Some(key) = self.connections.key_of(member.connection) else {
                let scope = DefectScope::Channel(Arc::clone(&record.name));
                self.defects.note(scope, "a member is a live connection");
                continue;
            };
            self.subscriptions[member.subscription].set_last(offset);
            self.connections[member.connection].joins_pending -= 1;
            joined.push(Joined {
                key,
                subscription: SubscriptionId(member.subscription),
                position,
            });
        }
    }

    /// The home could not confirm this shard's interest in a channel: all members that wait for it, for the caller to end. Nobody unless
    /// `answered` is the serial of the channel's last question.
    #[must_use]
    pub fn not_joined(&self, name: &str, answered: u64) -> Vec<(Key, SubscriptionId)> {
        let Some(&channel) = self.names.get(name) else {
            hit!(AnswerToNobody);
            return Vec::new();
        };
        let record = &self.channels[channel];
        if !matches!(record.membership, Membership::Joining { serial } if serial == answered) {
            hit!(AnswerToOlderQuestion);
            return Vec::new();
        }
        let members = record.members.iter();
        let members = members.filter(|member| **member != Member::TOMBSTONE);
        let members = members.filter_map(|member| {
            let key = self.connections.key_of(member.connection)?;
            Some((key, SubscriptionId(member.subscription)))
        });
        members.collect()
    }

    /// Ends a connection's subscription to one channel; false if it has none. Appends the channel's name to
    /// `emptied_channels` if it lost its last member here.
    pub fn unsubscribe(
        &mut self,
        index: u32,
        name: &str,
        emptied_channels: &mut Vec<Arc<str>>,
    ) -> bool {
        let channel = self.names.get(name).copied();
        let Some(subscription) = channel.and_then(|channel| self.subscription_to(index, channel))
        else {
            return false;
        };
        let next = self.subscriptions[subscription].next;
        let first = self.first_subscription(index);
        if first == subscription {
            self.set_first_subscription(index, next);
        } else {
            let mut previous = first;
            while self.subscriptions[previous].next != subscription {
                previous = self.subscriptions[previous].next;
            }
            self.subscriptions[previous].next = next;
        }
        self.end_subscription(index, subscription, emptied_channels);
        true
    }

    pub(super) fn unsubscribe_all(&mut self, index: u32, emptied_channels: &mut Vec<Arc<str>>) {
        let mut next = self.first_subscription(index);
        self.set_first_subscription(index, NONE);
        while next != NONE {
            next = self.end_subscription(index, next, emptied_channels);
        }
    }

    /// Frees a subscription that its connection's list no longer holds. Returns the next one of that list.
    fn end_subscription(
        &mut self,
        index: u32,
        subscription: u32,
        emptied_channels: &mut Vec<Arc<str>>,
    ) -> u32 {
        let index_of_record = subscription;
        let subscription = self.subscriptions.remove(subscription);
        if subscription.flags().has(SubscriptionFlags::DETAILS) {
            let details = self.details.remove(&index_of_record);
            let filter = details.and_then(|details| details.filter);
            if let Some(filter) = filter {
                let freed = self.filters.remove(filter);
                self.release_buffered(freed);
            }
        }
        let record = &mut self.channels[subscription.channel];
        if matches!(record.membership, Membership::Joining { .. }) {
            self.connections[index].joins_pending -= 1;
            hit!(LeaveWhileJoining);
        }
        hit!(LeaveInDelivery if !record.deliveries.is_empty());
        if let Some(moved) = record.remove_member(subscription.member_index) {
            hit!(LeaveSwaps);
            self.subscriptions[moved].member_index = subscription.member_index;
        }
        if subscription.flags().has(SubscriptionFlags::JOIN_LEAVE) {
            self.note_observer_ended(subscription.channel);
        }
        let record = &self.channels[subscription.channel];
        if !record.has_members() && record.deliveries.is_empty() {
            self.note_empty(subscription.channel, emptied_channels);
        }
        subscription.next
    }

    pub(super) fn remove_channel(&mut self, channel: u32) -> Arc<str> {
        let record = self.channels.remove(channel);
        self.names.remove(&record.name);
        record.name
    }
}
