//! What clients that connect are told behind the answer to their connect command.
//!
//! The server may make several subscriptions for one of them. Each is made as soon as its home has answered, and gets every publication
//! after that. The answer names all of them, so it waits for the last. A client that was told of a publication before would not know
//! the subscription yet, and drop it.

use super::deliveries::form_for;
use super::{Hub, SubscriptionId};
use crate::channel::{Member, SubscriptionFlags};
use crate::delivery::Had;
use crate::encoding::DataForm;
use crate::marks::hit;
use crate::outbound::{Chunk, Outbound, Overflow};
use crate::{Framed, Overflown};
use myriad_wheel::Key;

/// What waits for one client.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// Subscriptions that are made. They have [`SubscriptionFlags::WAITING`] all the same.
    subscriptions: Vec<Key>,
    chunks: Outbound,
}

impl Hub {
    /// A subscription is made, and its client is told so later, by [`Hub::release_held`]. Until then its deliveries are kept.
    pub fn hold(&mut self, index: u32, subscription: SubscriptionId) {
        let Some(key) = self.subscriptions.key_of(subscription.0) else {
            return;
        };
        let record = &mut self.subscriptions[subscription.0];
        record.set_flags(record.flags().with(SubscriptionFlags::WAITING));
        self.held.entry(index).or_default().subscriptions.push(key);
    }

    /// Whether something may be kept for a client.
    #[must_use]
    pub fn holds(&self, index: u32) -> bool {
        !self.held.is_empty() && self.held.contains_key(&index)
    }

    /// The client has been told of its subscriptions: what was kept for it follows.
    pub fn release_held(&mut self, index: u32) {
        let Some(held) = self.held.remove(&index) else {
            return;
        };
        for key in held.subscriptions {
            if self.subscriptions.contains(key) {
                let record = &mut self.subscriptions[key.index];
                record.set_flags(record.flags().without(SubscriptionFlags::WAITING));
            }
        }
        if !held.chunks.is_empty() {
            let outbound = self.outbound_made(index);
            self.outbounds[outbound].append(held.chunks);
            self.list_for_flush(index);
        }
    }

    /// The client's connection ends.
    pub(super) fn drop_held(&mut self, index: u32) {
        if self.holds(index)
            && let Some(held) = self.held.remove(&index)
        {
            self.release_buffered_of(index, held.chunks.cost() as usize);
        }
    }

    /// Bytes of what is kept, counted as outbound queues are.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        let held = self.held.values();
        held.map(|held| u64::from(held.chunks.cost())).sum()
    }

    /// As [`Hub::held_bytes`], of one client.
    pub(super) fn held_bytes_of(&self, index: u32) -> u32 {
        if self.held.is_empty() {
            return 0;
        }
        self.held.get(&index).map_or(0, |held| held.chunks.cost())
    }

    /// Keeps a delivery for a member that waits, if its subscription is made.
    #[cold]
    pub(super) fn hold_delivery(
        &mut self,
        member: Member,
        delivery: Framed<'_>,
        had: Had,
        overflown: &mut Vec<Overflown>,
    ) {
        let Some(held) = self.held.get(&member.connection) else {
            return;
        };
        let mut made = held.subscriptions.iter();
        if !made.any(|key| key.index == member.subscription && self.subscriptions.contains(*key)) {
            return;
        }
        hit!(DeliverHeld);
        let subscription = &mut self.subscriptions[member.subscription];
        let (last, flags) = (subscription.last(), subscription.flags());
        subscription.set_last(last.max(delivery.offset()));
        if had == Had::Part || self.has_exception(member, delivery) {
            return self.deliver_in_part(member, delivery, last, overflown);
        }
        let first = delivery.publications().first();
        let form = first.map_or(DataForm::Plain, |first| form_for(flags, last, first));
        if delivery.offset() > 0 {
            self.note_base(member, true);
        }
        if let Err(overflow) = self.queue_delivery(member, delivery, form) {
            overflown.push(overflow);
        }
    }

    /// Queues what is delivered to a connection, behind what it is told first.
    pub(super) fn enqueue_delivery(&mut self, index: u32, chunk: Chunk) -> Result<(), Overflow> {
        if !self.holds(index) {
            return self.enqueue(index, chunk);
        }
        if self.is_empty_chunk(index, chunk.bytes()) {
            return Ok(());
        }
        self.try_reserve_outbound(index, chunk.cost(0))?;
        if let Some(held) = self.held.get_mut(&index) {
            held.chunks.push(chunk);
        }
        Ok(())
    }
}
