//! Deliveries of publications to a channel's members on this shard, in slices.

use super::Hub;
use crate::channel::{Member, Membership, SubscriptionFlags};
use crate::compression::Compressor;
use crate::connection::{Connection, Phase, Transport};
use crate::encoding::Encoding;
use crate::marks::hit;
use crate::outbound::Chunk;
use crate::{CloseReason, Now, PresenceEvent, Publication};
use myriad_wheel::NONE;
use std::sync::Arc;

/// A connection that a slice of a delivery goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Index of its record.
    pub connection: u32,
    /// The reactor's name of its socket.
    pub socket: u32,
    /// How publications are encoded for it; of a ping's target, [`Encoding::NO_PUBLICATION`].
    pub encoding: Encoding,
}

/// One slice of a delivery.
#[derive(Debug)]
pub struct DeliverySlice {
    /// What is delivered.
    pub publication: Arc<Publication>,
    /// True if every member on this shard has been visited.
    pub finished: bool,
    /// Members visited, whether or not they became targets: the cost of the slice.
    pub visited: usize,
}

impl Hub {
    /// Queues a publication for this shard's members. False if there are none: then this shard is done with it.
    ///
    /// A publication without an offset goes to all of them, and leaves their positions as they are.
    pub fn deliver(&mut self, publication: Arc<Publication>) -> bool {
        let Some(channel) = self.joined_channel(&publication) else {
            return false;
        };
        let offset = publication.offset();
        let record = &mut self.channels[channel];
        if offset > 0 {
            assert!(
                offset > record.last_offset,
                "a home delivers in order, each publication once"
            );
            record.last_offset = offset;
        }
        if record.deliveries.is_empty() {
            self.delivering.push_back(channel);
        } else {
            hit!(DeliverBehindAnother);
        }
        record.deliveries.push_back(publication);
        true
    }

    /// As [`Hub::deliver`], for a publication of a batch. This shard may have joined while the batch waited: then no member
    /// needs what the home's answer already counted.
    pub fn deliver_batched(&mut self, publication: Arc<Publication>) -> bool {
        let offset = publication.offset();
        let is_known = offset > 0
            && self
                .joined_channel(&publication)
                .is_some_and(|channel| offset <= self.channels[channel].last_offset);
        !is_known && self.deliver(publication)
    }

    /// The publication's channel, if this shard has members of it and its home has confirmed them.
    fn joined_channel(&self, publication: &Publication) -> Option<u32> {
        let Some(&channel) = self.names.get(&**publication.channel()) else {
            hit!(DeliverToNobody);
            return None;
        };
        // While joining, a publication can only be of an earlier membership. Ours begins with the home's answer.
        let Membership::Joined { epoch } = self.channels[channel].membership else {
            hit!(DeliverWhileJoining);
            return None;
        };
        assert_eq!(
            publication.position().epoch,
            epoch,
            "a home keeps its epoch while shards are joined"
        );
        Some(channel)
    }

    /// Whether deliveries are under way.
    #[must_use]
    pub fn is_delivering(&self) -> bool {
        !self.delivering.is_empty()
    }

    /// Publications given to one subscriber each, ever.
    #[must_use]
    pub fn delivery_count(&self) -> u64 {
        self.deliveries
    }

    /// The frame of a publication for `targets` targets with this encoding.
    pub fn frame_for(
        &mut self,
        publication: &Publication,
        encoding: Encoding,
        targets: usize,
    ) -> Arc<[u8]> {
        let frame = publication.frame(encoding, &mut self.compressor);
        self.saved_bytes += publication.saved_bytes(encoding, frame) * targets as u64;
        Arc::clone(frame)
    }

    /// The shard's compressor.
    #[must_use]
    pub fn compressor(&self) -> &Compressor {
        &self.compressor
    }

    /// The shard's compressor, to use.
    pub fn compressor_mut(&mut self) -> &mut Compressor {
        &mut self.compressor
    }

    /// Bytes that deliveries did not take because they were compressed, ever.
    #[must_use]
    pub fn saved_bytes(&self) -> u64 {
        self.saved_bytes
    }

    /// The next slice of the next channel in turn: `max` members at most.
    ///
    /// `targets` gets those whose queue is empty and that are not in it already: they can be sent to at once, in one
    /// batch that ends with [`Hub::end_batch`]. For the others the frame is queued, or they go to `overflown`. A
    /// channel whose last member left during its deliveries is appended to `emptied_channels` when they end.
    pub fn poll_delivery(
        &mut self,
        max: usize,
        targets: &mut Vec<Target>,
        overflown: &mut Vec<(u32, CloseReason)>,
        emptied_channels: &mut Vec<Arc<str>>,
    ) -> Option<DeliverySlice> {
        let channel = self.delivering.pop_front()?;
        hit!(DeliverInTurn if !self.delivering.is_empty());
        let record = &mut self.channels[channel];
        let publication = Arc::clone(
            record
                .deliveries
                .front()
                .expect("a channel is listed while it delivers"),
        );
        let end = record.members.len().min(record.cursor + max);
        let slice = record.cursor..end;
        let visited = slice.len();
        record.cursor = end;
        let finished = end == record.members.len();
        for member_index in slice {
            let member = self.channels[channel].members[member_index];
            if member != Member::TOMBSTONE {
                self.deliver_to_member(member, &publication, targets, overflown);
            }
        }
        if finished {
            self.finish_delivery(channel, emptied_channels);
        } else {
            hit!(DeliverInSlices);
            self.delivering.push_back(channel);
        }
        Some(DeliverySlice {
            publication,
            finished,
            visited,
        })
    }

    fn deliver_to_member(
        &mut self,
        member: Member,
        publication: &Publication,
        targets: &mut Vec<Target>,
        overflown: &mut Vec<(u32, CloseReason)>,
    ) {
        let subscription = &mut self.subscriptions[member.subscription];
        let offset = publication.offset();
        if offset > 0 && subscription.last() >= offset {
            hit!(DeliverPastOwn);
            return;
        }
        let flags = subscription.flags();
        if flags.has(SubscriptionFlags::WAITING)
            || publication.is_presence() && !flags.has(SubscriptionFlags::JOIN_LEAVE)
        {
            return;
        }
        let connection = &mut self.connections[member.connection];
        if connection.phase != Phase::Open {
            hit!(DeliverBeforeAdmission);
            return;
        }
        if offset > 0 {
            subscription.set_last(offset);
        }
        if connection.session != NONE && self.is_withheld(member, publication, overflown) {
            return;
        }
        let connection = &mut self.connections[member.connection];
        if connection.outbound == NONE && !connection.is(Connection::IN_BATCH) {
            targets.push(Target {
                connection: member.connection,
                socket: connection.socket,
                encoding: connection.encoding(),
            });
            connection.set(Connection::IN_BATCH, true);
            self.deliveries += 1;
            return;
        }
        let is_twice = connection.is(Connection::IN_BATCH);
        hit!(DeliverTwiceInBatch if is_twice);
        hit!(DeliverBackpressured if !is_twice);
        let encoding = connection.encoding();
        let frame = publication.frame(encoding, &mut self.compressor);
        let saved_bytes = publication.saved_bytes(encoding, frame);
        let chunk = Chunk::Shared(Arc::clone(frame));
        match self.enqueue(member.connection, chunk) {
            Ok(()) => {
                self.deliveries += 1;
                self.saved_bytes += saved_bytes;
            }
            Err(overflow) => overflown.push((member.connection, overflow.into())),
        }
    }

    /// Whether a member with a session does not get a publication that has its turn. One that cannot read it goes to `overflown`.
    fn is_withheld(
        &self,
        member: Member,
        publication: &Publication,
        overflown: &mut Vec<(u32, CloseReason)>,
    ) -> bool {
        if !publication.is_json()
            && self.connections[member.connection].transport() == Transport::CentrifugeJson
        {
            overflown.push((member.connection, CloseReason::InappropriateProtocol));
            return true;
        }
        let is_sender = publication.sender().is_some_and(|sender| {
            sender.shard == self.shard
                && self.connections.contains(sender.connection)
                && sender.connection.index == member.connection
        });
        let flags = self.subscriptions[member.subscription].flags();
        is_sender
            || flags.has(SubscriptionFlags::DETAILS)
                && self.is_filtered(member.subscription, publication)
    }

    fn is_filtered(&self, subscription: u32, publication: &Publication) -> bool {
        let filter = self.details[&subscription].filter.as_ref();
        let content = publication.content();
        filter
            .zip(content)
            .is_some_and(|(filter, content)| !filter.passes(&content.tags))
    }

    /// Queues a join or a leave for members who watch them. False if the channel has no members here.
    pub fn deliver_presence(&mut self, event: &PresenceEvent, now: Now) -> bool {
        let Some(&channel) = self.names.get(&event.channel) else {
            return false;
        };
        let Membership::Joined { epoch } = self.channels[channel].membership else {
            return false;
        };
        self.deliver(Arc::new(Publication::presence(event, epoch, now)))
    }

    fn finish_delivery(&mut self, channel: u32, emptied_channels: &mut Vec<Arc<str>>) {
        let record = &mut self.channels[channel];
        record.deliveries.pop_front();
        record.cursor = 0;
        // No cursor is active here, so compact the list. A busy channel always has another publication waiting: without
        // this it would keep the entry of every member that ever left.
        if record.tombstones > 0 {
            record.tombstones = 0;
            hit!(TombstonesRemoved);
            record.members.retain(|member| *member != Member::TOMBSTONE);
            for (index, member) in record.members.iter().enumerate() {
                self.subscriptions[member.subscription].member_index =
                    u32::try_from(index).expect("fewer than connections");
            }
        }
        if !record.deliveries.is_empty() {
            self.delivering.push_back(channel);
        } else if !record.has_members() {
            hit!(LastLeavesInDelivery);
            emptied_channels.push(self.remove_channel(channel));
        }
    }

    /// Ends a batch of sends: its targets may be in the next one.
    pub fn end_batch(&mut self, targets: &[Target]) {
        for target in targets {
            self.connections[target.connection].set(Connection::IN_BATCH, false);
        }
    }
}
