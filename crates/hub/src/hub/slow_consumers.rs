//! Subscribers that read more slowly than their channels speak: each channel says what becomes of them.

use super::Hub;
use crate::channel::{Member, SubscriptionFlags};
use crate::encoding::{DataForm, Protocol};
use crate::marks::hit;
use crate::outbound::Chunk;
use crate::{CloseReason, Framed, SlowConsumer};
use myriad_wheel::NONE;
use std::sync::Arc;

/// What it takes at most to tell a client that its subscription has ended: the channel's name, a code, a reason, and the entry in
/// the queue.
const GAP_BYTES_MAX: usize = 1024;

/// A subscriber that a delivery does not reach any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Overflown {
    /// Its connection has to be closed.
    Close {
        /// Index of its record.
        connection: u32,
        /// Why.
        reason: CloseReason,
    },
    /// Its subscription has missed something and gets nothing more. It has to be ended, so that the client subscribes anew and
    /// recovers.
    Gap {
        /// Index of the connection's record.
        connection: u32,
        /// The channel.
        channel: Arc<str>,
    },
    /// Its channel has lost publications, whether it is slow or not: its subscription has to be ended, even one that is not made yet.
    Lost {
        /// Index of the connection's record.
        connection: u32,
        /// The channel.
        channel: Arc<str>,
    },
}

/// What slow consumers have missed, ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlowConsumerStats {
    /// Publications that were dropped from their queues, for one subscriber each.
    pub dropped: u64,
    /// Subscriptions that were ended, to be recovered.
    pub gaps: u64,
}

impl Hub {
    /// What slow consumers have missed, ever.
    #[must_use]
    pub fn slow_consumer_stats(&self) -> SlowConsumerStats {
        self.slow_consumers
    }

    /// Queues a delivery for a member. Where a budget is spent, the channel's policy decides.
    pub(super) fn queue_delivery(
        &mut self,
        member: Member,
        delivery: Framed<'_>,
        form: DataForm,
    ) -> Result<(), Overflown> {
        let connection = &self.connections[member.connection];
        let encoding = connection.encoding().with_form(form);
        let has_session = connection.has_session();
        let frame = if encoding.protocol().reads_streams() {
            self.reader_frame(delivery, encoding)
        } else {
            Arc::clone(delivery.frame(encoding, &mut self.compressor))
        };
        let saved_bytes = delivery.saved_bytes(encoding, &frame);
        let is_presence = delivery.is_presence();
        let is_answer = encoding.protocol() == Protocol::Answer;
        let chunk = if is_presence || is_answer {
            Chunk::Shared(frame)
        } else {
            self.publication_chunk(frame, member.subscription, delivery.publication_count())
        };
        let channel = self.subscriptions[member.subscription].channel;
        let policy = self.channels[channel].slow_consumer;
        if policy == SlowConsumer::KeepLatest && !is_presence {
            // At most one waits: each replaces the one before.
            self.drop_newest(member);
        }
        if let Err(overflow) = self.enqueue_delivery(member.connection, chunk) {
            return Err(match policy {
                SlowConsumer::GapThenRecover if has_session => self.make_gap(member),
                _ => Overflown::Close {
                    connection: member.connection,
                    reason: overflow.into(),
                },
            });
        }
        self.deliveries += delivery.publications().len() as u64;
        self.saved_bytes += saved_bytes;
        Ok(())
    }

    /// Makes room in a connection's queue, for whatever is to be queued: publications go whose channels say that they may.
    /// False if that frees nothing.
    pub(super) fn make_room(&mut self, index: u32, wanted: usize) -> bool {
        let oldest = self.drop_oldest(index, wanted, |hub, of, generation| {
            hub.policy_of(index, of, generation) == Some(SlowConsumer::DropOldest)
        });
        if oldest >= wanted {
            return true;
        }
        // The only one that waits of such a channel: it goes last.
        let latest = self.drop_oldest(index, wanted - oldest, |hub, of, generation| {
            hub.policy_of(index, of, generation) == Some(SlowConsumer::KeepLatest)
        });
        oldest + latest > 0
    }

    /// A frame of publications for a subscription, as a queue holds it.
    #[must_use]
    pub fn publication_chunk(
        &self,
        frame: Arc<[u8]>,
        subscription: u32,
        publications: u16,
    ) -> Chunk {
        Chunk::Publication {
            frame,
            subscription,
            generation: self.generation_of(subscription).unwrap_or_default(),
            publications,
        }
    }

    /// The lowest bits of a subscription's generation; none if it has ended.
    fn generation_of(&self, subscription: u32) -> Option<u8> {
        let [lowest, ..] = self
            .subscriptions
            .key_of(subscription)?
            .generation
            .to_le_bytes();
        Some(lowest)
    }

    /// The policy of a subscription's channel, if it still is a connection's subscription.
    fn policy_of(
        &self,
        connection: u32,
        subscription: u32,
        generation: u8,
    ) -> Option<SlowConsumer> {
        if self.generation_of(subscription)? != generation {
            return None;
        }
        let record = &self.subscriptions[subscription];
        let channel = &self.channels[record.channel];
        let member = channel.members[record.member_index as usize];
        (member.connection == connection).then_some(channel.slow_consumer)
    }

    /// Drops the oldest publications that wait for a connection and `may_go`. Returns what that freed.
    fn drop_oldest(
        &mut self,
        index: u32,
        wanted: usize,
        may_go: impl Fn(&Self, u32, u8) -> bool,
    ) -> usize {
        let outbound = self.connections[index].outbound;
        if outbound == NONE {
            return 0;
        }
        let mut queue = std::mem::take(&mut self.outbounds[outbound]);
        let (dropped, cost) =
            queue.drop_oldest(wanted, |of, generation| may_go(self, of, generation));
        self.outbounds[outbound] = queue;
        self.release_buffered_of(index, cost as usize);
        self.free_if_empty(index);
        self.slow_consumers.dropped += dropped;
        hit!(SlowConsumerDrops if dropped > 0);
        cost as usize
    }

    /// Drops the last frame of publications that waits for a member. Looks from the back, where it mostly is. False if there is
    /// none.
    fn drop_newest(&mut self, member: Member) -> bool {
        let outbound = self.connections[member.connection].outbound;
        if outbound == NONE {
            return false;
        }
        let generation = self.generation_of(member.subscription).unwrap_or_default();
        let of = (member.subscription, generation);
        let newest = self.outbounds[outbound].drop_newest_publication(of);
        let Some((dropped, cost)) = newest else {
            return false;
        };
        self.release_buffered_of(member.connection, cost as usize);
        self.free_if_empty(member.connection);
        self.slow_consumers.dropped += u64::from(dropped);
        hit!(SlowConsumerDrops);
        true
    }

    /// A member gets what waits for it and nothing more. Makes room for the sentence that says so: without what is queued last.
    ///
    /// What waits is not dropped, so that the client gets further each time, and its next recovery is small.
    fn make_gap(&mut self, member: Member) -> Overflown {
        self.slow_consumers.gaps += 1;
        hit!(SlowConsumerGap);
        while self.outbound_room(member.connection) < GAP_BYTES_MAX {
            if !self.drop_newest(member) {
                break;
            }
        }
        let subscription = &mut self.subscriptions[member.subscription];
        subscription.set_flags(subscription.flags().with(SubscriptionFlags::WAITING));
        Overflown::Gap {
            connection: member.connection,
            channel: Arc::clone(&self.channels[subscription.channel].name),
        }
    }
}
