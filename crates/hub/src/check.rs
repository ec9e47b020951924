//! The sweep that tests and the simulator run after each step: what must hold of a hub's records together.

use crate::Hub;
use crate::channel::{Channel, Member, Membership, SubscriptionFlags};
use crate::connection::{Connection, Phase};
use myriad_wheel::NONE;
use std::collections::HashSet;

impl Hub {
    /// Asserts that the hub's records agree with each other. Costs a pass over all of them: for tests.
    ///
    /// # Panics
    /// They do not: a bug in the hub.
    pub fn check(&self) {
        let mut members = 0;
        for channel in self.channels.indices() {
            members += self.check_channel(channel);
        }
        assert_eq!(
            members,
            self.subscriptions.len(),
            "every subscription is one member of one channel"
        );
        assert_eq!(self.names.len(), self.channels.len());
        let (mut subscriptions, mut outbounds, mut outbound_bytes) = (0, HashSet::new(), 0);
        for index in self.connections.indices() {
            subscriptions += self.check_subscriptions(index);
            let connection = &self.connections[index];
            assert!(
                !connection.is(Connection::IN_BATCH),
                "a batch ends in the call that made it"
            );
            if connection.outbound != NONE {
                assert!(
                    outbounds.insert(connection.outbound),
                    "a queue has one owner"
                );
                let outbound = &self.outbounds[connection.outbound];
                let cost = outbound.cost();
                assert!(!outbound.is_empty());
                assert!(
                    cost <= self.outbound_bytes_max || outbound.costs_by_first_only(),
                    "one chunk may be over the budget, alone"
                );
                assert_eq!(cost, outbound.recount());
                outbound_bytes += u64::from(cost);
                let leaves =
                    connection.awaits_writable() || connection.is(Connection::FLUSH_LISTED);
                assert!(
                    leaves || connection.phase == Phase::Closing,
                    "a queue nobody would ever send"
                );
            }
        }
        assert_eq!(
            subscriptions,
            self.subscriptions.len(),
            "every subscription has an owner"
        );
        assert_eq!(
            outbounds.len(),
            self.outbounds.len(),
            "every queue has an owner"
        );
        assert!(outbound_bytes + self.filter_bytes() <= self.buffered_bytes);
        self.check_details();
        self.check_unconnected();
        self.users.check(&self.sessions);
    }

    /// Bytes that the filters of subscriptions have reserved.
    #[must_use]
    pub fn filter_bytes(&self) -> u64 {
        self.filters.bytes()
    }

    fn check_details(&self) {
        let with_details = self.subscriptions.indices().filter(|&subscription| {
            let flags = self.subscriptions[subscription].flags();
            flags.has(SubscriptionFlags::DETAILS)
        });
        let with_details: HashSet<_> = with_details.collect();
        assert_eq!(with_details.len(), self.details.len());
        let mut owners = self.details.keys();
        assert!(owners.all(|subscription| with_details.contains(subscription)));
    }

    fn check_observers(&self, channel: &Channel) {
        let listed = channel.observers.iter();
        let live: HashSet<_> = listed
            .filter(|key| self.subscriptions.contains(**key))
            .map(|key| key.index)
            .collect();
        assert_eq!(
            channel.observers.len() - live.len(),
            channel.ended_observers
        );
        let members = channel.members.iter();
        let observing: HashSet<_> = members
            .filter(|member| **member != Member::TOMBSTONE)
            .map(|member| member.subscription)
            .filter(|&subscription| {
                let flags = self.subscriptions[subscription].flags();
                flags.has(SubscriptionFlags::JOIN_LEAVE)
            })
            .collect();
        assert_eq!(live, observing, "each observer is listed once");
    }

    /// Answers how many members the channel has.
    fn check_channel(&self, index: u32) -> usize {
        let channel = &self.channels[index];
        assert_eq!(self.names.get(&channel.name), Some(&index));
        let options = self.namespaces.options_of(&channel.name);
        // Of a namespace that has gone nobody knows any more whether it had any.
        let has_batches = options.is_none_or(|options| !options.batch_delay.is_zero());
        let mut connections = HashSet::new();
        for (member_index, member) in channel.members.iter().enumerate() {
            if *member == Member::TOMBSTONE {
                assert!(
                    !channel.deliveries.is_empty(),
                    "tombstones are removed when a delivery ends"
                );
                continue;
            }
            assert!(
                connections.insert(member.connection),
                "a connection is subscribed once"
            );
            let subscription = &self.subscriptions[member.subscription];
            assert_eq!(
                (subscription.channel, subscription.member_index as usize),
                (index, member_index)
            );
            // One that has recovered may know what waits in a batch.
            assert!(has_batches || subscription.last() <= channel.last_offset);
        }
        assert_eq!(
            channel.members.len() - connections.len(),
            channel.tombstones
        );
        assert!(
            !connections.is_empty()
                || !channel.deliveries.is_empty()
                || channel.lingers_until.is_some(),
            "an empty channel is removed"
        );
        assert!(
            !channel.is_lost || !connections.is_empty() || !channel.deliveries.is_empty(),
            "a channel that has lost something is not kept without members"
        );
        assert!(channel.cursor <= channel.members.len().max(channel.observers.len()));
        self.check_observers(channel);
        let listed = self
            .delivering
            .iter()
            .filter(|listed| **listed == index)
            .count();
        let paused = self.paused.iter().filter(|paused| paused.1 == index);
        let listed = listed + paused.count();
        assert_eq!(listed, usize::from(!channel.deliveries.is_empty()));
        assert!(
            channel
                .deliveries
                .iter()
                .map(|publication| publication.offset())
                .filter(|&offset| offset > 0)
                .is_sorted_by(|a, b| a < b)
        );
        if matches!(channel.membership, Membership::Joining { .. }) {
            assert!(
                channel.deliveries.is_empty(),
                "deliveries begin with the home's answer"
            );
        }
        connections.len()
    }

    /// Answers how many subscriptions the connection has.
    fn check_subscriptions(&self, index: u32) -> usize {
        let (mut count, mut pending) = (0, 0);
        let mut next = self.first_subscription(index);
        while next != NONE {
            let subscription = &self.subscriptions[next];
            let channel = &self.channels[subscription.channel];
            assert_eq!(
                channel.members[subscription.member_index as usize].connection,
                index
            );
            pending += u8::from(matches!(channel.membership, Membership::Joining { .. }));
            next = subscription.next;
            count += 1;
        }
        assert_eq!(pending, self.connections[index].joins_pending);
        assert!(count == 0 || self.connections[index].phase != Phase::Closing);
        count
    }
}
