//! The hub itself: connections, their subscriptions, deliveries and queues.

use crate::channel::{Channel, Member, Membership, Subscribed, Subscription};
use crate::compression::Compressor;
use crate::connection::{Connection, Phase, Transport};
use crate::limits::Lease;
use crate::outbound::{Chunk, Outbound, Overflow};
use crate::reach::{HubPlace, Reach};
use crate::timers::{InputBacklog, Timing};
use crate::{CloseReason, Now, Publication};
use myriad_wheel::{Key, NONE, Slab, Wheel};
use myriad_wire::deflate::Window;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// One core's connections and channels.
#[derive(Debug)]
pub struct Hub {
    pub(crate) connections: Slab<Connection>,
    pub(crate) wheel: Wheel,
    pub(crate) input_backlog: InputBacklog,
    pub(crate) timing: Timing,
    pub(crate) fired: Vec<u32>,
    pub(crate) subscriptions: Slab<Subscription>,
    pub(crate) outbounds: Slab<Outbound>,
    pub(crate) channels: Slab<Channel>,
    pub(crate) names: HashMap<Arc<str>, u32>,
    /// Channels with a delivery under way, in turn.
    pub(crate) delivering: VecDeque<u32>,
    /// Connections with something to send that does not wait for their socket, each once.
    flush: Vec<u32>,
    deliveries: u64,
    compressor: Compressor,
    saved_bytes: u64,
    buffered: Lease,
    pub(crate) buffered_bytes: u64,
    pub(crate) outbound_bytes_max: u32,
    /// Where in their interval the first connections ping, as the numerator of 2^32.
    pub(crate) spread_from: u32,
    join_serial: u64,
    pub(crate) reach: Reach<HubPlace>,
}

/// A connection that a slice of a delivery goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Index of its record.
    pub connection: u32,
    /// The reactor's name of its socket.
    pub socket: u32,
    /// The window it takes compressed messages with.
    pub window: Option<Window>,
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
    /// An empty hub. `buffered` bounds the bytes buffered for its connections; `spread_from` is where in their interval
    /// the first of them ping, as the numerator of 2^32.
    #[must_use]
    pub fn new(
        timing: Timing,
        outbound_bytes_max: u32,
        buffered: Lease,
        spread_from: u32,
        now: Now,
    ) -> Self {
        Self {
            connections: Slab::new(),
            wheel: Wheel::new(now.tick()),
            input_backlog: InputBacklog::new(now),
            timing,
            fired: Vec::new(),
            subscriptions: Slab::new(),
            outbounds: Slab::new(),
            channels: Slab::new(),
            names: HashMap::new(),
            delivering: VecDeque::new(),
            flush: Vec::new(),
            deliveries: 0,
            compressor: Compressor::default(),
            saved_bytes: 0,
            buffered,
            buffered_bytes: 0,
            outbound_bytes_max,
            spread_from,
            join_serial: 0,
            reach: Reach::default(),
        }
    }

    // Connections.

    /// A record for an accepted socket, waiting for its request head.
    pub fn open(&mut self, socket: u32, now: Now) -> Key {
        let key = self.connections.insert(Connection::new(socket, now.tick()));
        self.arm_handshake(key.index);
        key
    }

    /// Connections with a record.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.connections.len()
    }

    /// The key of a live record whose generation ends in these eight bits; `None` for a late completion.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a token carries the low eight bits"
    )]
    pub fn find(&self, index: u32, generation: u8) -> Option<Key> {
        self.connections
            .key_of(index)
            .filter(|key| key.generation as u8 == generation)
    }

    /// The key of a live record.
    #[must_use]
    pub fn key_of(&self, index: u32) -> Option<Key> {
        self.connections.key_of(index)
    }

    /// Whether the record is still that connection's.
    #[must_use]
    pub fn contains(&self, key: Key) -> bool {
        self.connections.contains(key)
    }

    /// A live record.
    #[must_use]
    pub fn connection(&self, index: u32) -> &Connection {
        &self.connections[index]
    }

    /// A live record, to change.
    pub fn connection_mut(&mut self, index: u32) -> &mut Connection {
        &mut self.connections[index]
    }

    /// The indices of all live records, ascending.
    pub fn connection_indices(&self) -> impl Iterator<Item = u32> + '_ {
        self.connections.indices()
    }

    /// Notes that bytes came.
    pub fn note_input(&mut self, index: u32, now: Now) {
        self.connections[index].last_input = now.tick();
    }

    /// The request is answered with 101: deliveries may begin, and so do pings.
    pub fn admit(&mut self, index: u32, now: Now) {
        let connection = &mut self.connections[index];
        assert!(matches!(
            connection.phase,
            Phase::Handshake | Phase::Joining
        ));
        assert_eq!(connection.joins_pending, 0);
        connection.phase = Phase::Open;
        self.arm_open(index, now);
    }

    /// Begins the end of a connection: no more deliveries. What is queued may still be sent until the linger deadline.
    /// Appends the names of channels that lost their last member here to `emptied_channels`.
    pub fn begin_closing(&mut self, index: u32, now: Now, emptied_channels: &mut Vec<Arc<str>>) {
        self.connections[index].phase = Phase::Closing;
        self.unsubscribe_all(index, emptied_channels);
        self.arm_linger(index, now);
    }

    /// Frees the record and everything it holds. The next connection may get its index.
    pub fn release(&mut self, index: u32, emptied_channels: &mut Vec<Arc<str>>) {
        self.unsubscribe_all(index, emptied_channels);
        self.drop_outbound(index);
        self.wheel.disarm(&mut self.connections, index);
        self.connections.remove(index);
    }

    // Channels.

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

    fn unsubscribe_all(&mut self, index: u32, emptied_channels: &mut Vec<Arc<str>>) {
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

    fn remove_channel(&mut self, channel: u32) -> Arc<str> {
        let record = self.channels.remove(channel);
        self.names.remove(&record.name);
        record.name
    }

    // Deliveries.

    /// Queues a publication for this shard's members. False if there are none: then this shard is done with it.
    pub fn deliver(&mut self, publication: Arc<Publication>) -> bool {
        let Some(&channel) = self.names.get(&**publication.channel()) else {
            self.reach.note(HubPlace::DeliverToNobody);
            return false;
        };
        let record = &mut self.channels[channel];
        // While joining, a publication can only be of an earlier membership. Ours begins with the home's answer.
        if matches!(record.membership, Membership::Joining { .. }) {
            self.reach.note(HubPlace::DeliverWhileJoining);
            return false;
        }
        assert!(
            publication.offset() > record.last_offset,
            "a home delivers in order, each publication once"
        );
        record.last_offset = publication.offset();
        if record.deliveries.is_empty() {
            self.delivering.push_back(channel);
        } else {
            self.reach.note(HubPlace::DeliverBehindAnother);
        }
        record.deliveries.push_back(publication);
        true
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

    /// The frame of a publication for `targets` targets that take compressed messages with this window, or none.
    pub fn frame_for(
        &mut self,
        publication: &Publication,
        window: Option<Window>,
        targets: usize,
    ) -> Arc<[u8]> {
        let frame = publication.frame(window, &mut self.compressor);
        self.saved_bytes += publication.saved_bytes(frame) * targets as u64;
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
        self.reach
            .note_if(!self.delivering.is_empty(), HubPlace::DeliverInTurn);
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
            self.reach.note(HubPlace::DeliverInSlices);
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
        if subscription.last() >= publication.offset() {
            return self.reach.note(HubPlace::DeliverPastOwn);
        }
        let connection = &mut self.connections[member.connection];
        if connection.phase != Phase::Open {
            return self.reach.note(HubPlace::DeliverBeforeAdmission);
        }
        subscription.set_last(publication.offset());
        debug_assert_eq!(
            connection.transport(),
            Transport::Raw,
            "only raw connections subscribe so far"
        );
        if connection.outbound == NONE && !connection.is(Connection::IN_BATCH) {
            targets.push(Target {
                connection: member.connection,
                socket: connection.socket,
                window: connection.window(),
            });
            connection.set(Connection::IN_BATCH, true);
            self.deliveries += 1;
            return;
        }
        let is_twice = connection.is(Connection::IN_BATCH);
        self.reach.note_if(is_twice, HubPlace::DeliverTwiceInBatch);
        self.reach
            .note_if(!is_twice, HubPlace::DeliverBackpressured);
        let frame = publication.frame(connection.window(), &mut self.compressor);
        let saved_bytes = publication.saved_bytes(frame);
        let chunk = Chunk::Shared(Arc::clone(frame));
        match self.enqueue(member.connection, chunk) {
            Ok(()) => {
                self.deliveries += 1;
                self.saved_bytes += saved_bytes;
            }
            Err(overflow) => overflown.push((member.connection, overflow.into())),
        }
    }

    fn finish_delivery(&mut self, channel: u32, emptied_channels: &mut Vec<Arc<str>>) {
        let record = &mut self.channels[channel];
        record.deliveries.pop_front();
        record.cursor = 0;
        // No cursor is active here, so compact the list. A busy channel always has another publication waiting: without
        // this it would keep the entry of every member that ever left.
        if record.tombstones > 0 {
            record.tombstones = 0;
            self.reach.note(HubPlace::TombstonesRemoved);
            record.members.retain(|member| *member != Member::TOMBSTONE);
            for (index, member) in record.members.iter().enumerate() {
                self.subscriptions[member.subscription].member_index =
                    u32::try_from(index).expect("fewer than connections");
            }
        }
        if !record.deliveries.is_empty() {
            self.delivering.push_back(channel);
        } else if !record.has_members() {
            self.reach.note(HubPlace::LastLeavesInDelivery);
            emptied_channels.push(self.remove_channel(channel));
        }
    }

    /// Ends a batch of sends: its targets may be in the next one.
    pub fn end_batch(&mut self, targets: &[Target]) {
        for target in targets {
            self.connections[target.connection].set(Connection::IN_BATCH, false);
        }
    }

    // Outbound queues.

    /// Queues `chunk` behind what is queued, and lists the connection for the next flush.
    ///
    /// # Errors
    /// A budget is spent: nothing was queued, and the connection must be closed.
    pub fn enqueue(&mut self, index: u32, chunk: Chunk) -> Result<(), Overflow> {
        let outbound = self.reserve_outbound(index, chunk.cost(0))?;
        self.outbounds[outbound].push(chunk);
        self.list_for_flush(index);
        Ok(())
    }

    /// Queues the answer or close frame with which a connection ends, whatever the budgets say; see
    /// [`Chunk::FinalChunk`].
    pub fn enqueue_final_chunk(&mut self, index: u32, bytes: Vec<u8>) {
        let outbound = self.outbound_made(index);
        self.outbounds[outbound].push(Chunk::FinalChunk(bytes.into()));
        self.list_for_flush(index);
    }

    /// Queues the unsent tail of a frame that was sent in a batch: its bytes from `offset` on. It goes to the front of the
    /// queue, because whatever is queued was queued after the frame had joined the batch.
    ///
    /// # Errors
    /// As [`Hub::enqueue`].
    pub fn enqueue_unsent_tail(
        &mut self,
        index: u32,
        chunk: Chunk,
        offset: usize,
    ) -> Result<(), Overflow> {
        let is_backpressured = self.connections[index].has_outbound();
        let outbound = self.reserve_outbound(index, chunk.cost(offset))?;
        self.reach.note_if(!is_backpressured, HubPlace::TailAlone);
        self.reach.note_if(is_backpressured, HubPlace::TailInFront);
        self.outbounds[outbound].push_front(chunk, offset);
        Ok(())
    }

    fn reserve_outbound(&mut self, index: u32, cost: usize) -> Result<u32, Overflow> {
        let outbound = self.connections[index].outbound;
        let queued = if outbound == NONE {
            0
        } else {
            self.outbounds[outbound].cost()
        };
        if queued as usize + cost > self.outbound_bytes_max as usize {
            self.reach.note(HubPlace::OverConnectionBudget);
            return Err(Overflow::Connection);
        }
        if !self.reserve_buffered(cost) {
            return Err(Overflow::Process);
        }
        Ok(self.outbound_made(index))
    }

    fn outbound_made(&mut self, index: u32) -> u32 {
        let connection = &mut self.connections[index];
        if connection.outbound == NONE {
            connection.outbound = self.outbounds.insert(Outbound::default()).index;
        }
        connection.outbound
    }

    /// Lists a connection for the next flush, unless it waits for its socket.
    pub fn list_for_flush(&mut self, index: u32) {
        let connection = &mut self.connections[index];
        if !connection.awaits_writable() && !connection.is(Connection::FLUSH_LISTED) {
            connection.set(Connection::FLUSH_LISTED, true);
            self.flush.push(index);
        }
    }

    /// Whether connections are listed for a flush.
    #[must_use]
    pub fn has_flush(&self) -> bool {
        !self.flush.is_empty()
    }

    /// Takes the connections listed for a flush off the list, into `listed`.
    pub fn poll_flush(&mut self, listed: &mut Vec<u32>) {
        listed.clear();
        std::mem::swap(&mut self.flush, listed);
        // A record that ended, or was reused, since it was listed does not carry the mark.
        let (connections, reach) = (&mut self.connections, &mut self.reach);
        listed.retain(|&index| {
            if connections.key_of(index).is_none() {
                reach.note(HubPlace::FlushGone);
                return false;
            }
            let connection = &mut connections[index];
            let listed = connection.is(Connection::FLUSH_LISTED);
            connection.set(Connection::FLUSH_LISTED, false);
            reach.note_if(listed && connection.awaits_writable(), HubPlace::FlushWaits);
            listed && !connection.awaits_writable()
        });
    }

    /// The outbound queue of a backpressured connection; none when nothing is queued.
    #[must_use]
    pub fn outbound(&self, index: u32) -> Option<&Outbound> {
        let outbound = self.connections[index].outbound;
        (outbound != NONE).then(|| &self.outbounds[outbound])
    }

    /// Notes that the kernel took `bytes` of the queue. An empty queue is freed.
    pub fn advance_outbound(&mut self, index: u32, bytes: usize) {
        let outbound = self.connections[index].outbound;
        let freed = self.outbounds[outbound].advance(bytes);
        self.release_buffered(freed as usize);
        if self.outbounds[outbound].is_empty() {
            self.outbounds.remove(outbound);
            self.connections[index].outbound = NONE;
        }
    }

    /// Drops queued chunks of which no byte was sent, so that a close frame can follow at once.
    pub fn drop_untouched_outbound(&mut self, index: u32) {
        let outbound = self.connections[index].outbound;
        if outbound == NONE {
            return self.reach.note(HubPlace::DropEmpty);
        }
        self.reach.note(self.outbounds[outbound].kind_of_drop());
        let dropped = self.outbounds[outbound].drop_untouched();
        self.release_buffered(dropped as usize);
        if self.outbounds[outbound].is_empty() {
            self.outbounds.remove(outbound);
            self.connections[index].outbound = NONE;
        }
    }

    fn drop_outbound(&mut self, index: u32) {
        let outbound = std::mem::replace(&mut self.connections[index].outbound, NONE);
        if outbound != NONE {
            self.reach.note(HubPlace::ReleaseQueue);
            let dropped = self.outbounds.remove(outbound);
            self.release_buffered(dropped.cost() as usize);
        }
    }

    /// Reserves bytes of the process's budget for something buffered outside the hub (partial input).
    #[must_use]
    pub fn reserve_buffered(&mut self, bytes: usize) -> bool {
        let granted = self.buffered.spend(bytes as u64);
        if granted {
            self.buffered_bytes += bytes as u64;
        } else {
            self.reach.note(HubPlace::OverProcessBudget);
        }
        granted
    }

    /// Gives back what [`Hub::reserve_buffered`] took.
    pub fn release_buffered(&mut self, bytes: usize) {
        self.buffered_bytes -= bytes as u64;
        self.buffered.refund(bytes as u64);
    }

    /// Which states of the hub's code have been reached, in builds with debug assertions.
    #[must_use]
    pub fn reach(&self) -> &Reach<HubPlace> {
        &self.reach
    }

    /// Subscriptions of all connections.
    #[must_use]
    pub fn subscription_count(&self) -> usize {
        self.subscriptions.len()
    }

    /// Channels with members or deliveries here.
    #[must_use]
    pub fn channel_count(&self) -> usize {
        self.channels.len()
    }

    /// Backpressured connections: those with an outbound queue.
    #[must_use]
    pub fn outbound_count(&self) -> usize {
        self.outbounds.len()
    }

    /// Armed timers.
    #[must_use]
    pub fn timer_count(&self) -> usize {
        self.wheel.len()
    }

    /// Bytes buffered for this shard's connections.
    #[must_use]
    pub fn buffered_bytes(&self) -> u64 {
        self.buffered_bytes
    }
}

impl From<Overflow> for CloseReason {
    fn from(overflow: Overflow) -> Self {
        match overflow {
            Overflow::Connection => Self::SlowConsumer,
            Overflow::Process => Self::Overloaded,
        }
    }
}

#[cfg(test)]
mod tests;
