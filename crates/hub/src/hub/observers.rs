//! Observers: the subscribers of a channel that get its joins and leaves.
//!
//! In a large room every member joins and leaves, but few subscribers ask to be told. So a channel lists its observers, and an
//! announcement visits only them.

use super::Hub;
use crate::channel::{Channel, Member};

/// Deliveries of one channel that may wait on a shard before a join or a leave is dropped. Permits bound publications. Clients
/// that come and go need no permit, so this bounds their announcements.
const WAITING_MAX: usize = 1024;

/// Sends that a publication may have to wait for: joins and leaves that wait, times the channel's observers. They take half a
/// second at 100,000 sends a second. One announcement may always wait.
const WAITING_SENDS_MAX: usize = 50_000;

impl Channel {
    pub(crate) fn has_observers(&self) -> bool {
        self.observers.len() > self.ended_observers
    }
}

impl Hub {
    /// Joins and leaves that were dropped on this shard because their channel had too much to deliver, ever.
    #[must_use]
    pub fn dropped_announcements(&self) -> u64 {
        self.dropped_announcements
    }

    /// Whether a join or a leave is to be delivered here. Counts those that are dropped.
    ///
    /// It waits even where there are no observers. A subscriber that becomes one meanwhile is told of a join that waits, and
    /// then has to be told of the leave behind it.
    pub(super) fn takes_announcement(&mut self, channel: u32) -> bool {
        let record = &self.channels[channel];
        if !record.has_observers() && record.deliveries.is_empty() {
            return false;
        }
        let waiting = record.deliveries.len();
        let observers = record.observers.len() - record.ended_observers;
        let fits = waiting == 0 || waiting < WAITING_MAX && waiting * observers < WAITING_SENDS_MAX;
        self.dropped_announcements += u64::from(!fits);
        fits
    }

    /// Lists a subscription that gets joins and leaves from now on.
    pub(super) fn add_observer(&mut self, subscription: u32) {
        if let Some(key) = self.subscriptions.key_of(subscription) {
            let channel = self.subscriptions[subscription].channel;
            self.channels[channel].observers.push(key);
        }
    }

    /// The member behind an entry of the list; none if its subscription has ended.
    pub(super) fn observer(&self, channel: u32, entry: usize) -> Option<Member> {
        let record = &self.channels[channel];
        let subscription = self.subscriptions.get(record.observers[entry])?;
        Some(record.members[subscription.member_index as usize])
    }

    /// The subscription of an observer has ended.
    pub(super) fn note_observer_ended(&mut self, channel: u32) {
        self.channels[channel].ended_observers += 1;
        if self.channels[channel].deliveries.is_empty() {
            self.compact_observers(channel);
        }
    }

    /// Removes entries of subscriptions that have ended, once they are half of the list: so each is moved a bounded number of
    /// times. No cursor may be active.
    pub(super) fn compact_observers(&mut self, channel: u32) {
        let record = &mut self.channels[channel];
        if record.ended_observers * 2 <= record.observers.len() {
            return;
        }
        let subscriptions = &self.subscriptions;
        record.observers.retain(|&key| subscriptions.contains(key));
        record.ended_observers = 0;
    }
}
