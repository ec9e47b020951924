//! Deliveries of publications to a channel's members on this shard, in slices.

use super::{Hub, SubscriptionId};
use crate::channel::{Backlog, Member, Membership, SubscriptionFlags};
use crate::compression::Compressor;
use crate::connection::{Connection, Phase, Transport};
use crate::defects::DefectScope;
use crate::delivery::{Delivery, Framed, Had, ToldBy};
use crate::encoding::{DataForm, Encoding};
use crate::marks::hit;
use crate::{ClientId, Overflown, Publication, SlowConsumer};
use myriad_wheel::NONE;
use std::sync::Arc;

/// Merged deliveries may take a sixteenth of a connection's outbound budget.
const MERGED_DIVISOR: usize = 16;
/// Bytes of merged deliveries. Beyond it a send costs by its bytes.
const MERGED_BYTES_MAX: usize = 32 << 10;

/// So many publications of a batch cost a member as much as one member more: each is looked at for it. A batch that is merged here costs
/// twice as much as one publication at most. One append has thousands.
const PUBLICATIONS_OF_A_MEMBER: usize = 256;

/// A connection that a slice of a delivery goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Index of its record.
    pub connection: u32,
    /// Index of its subscription's record; of a target that gets no publication,
    /// [`Target::NO_SUBSCRIPTION`].
    pub subscription: u32,
    /// The reactor's name of its socket.
    pub socket: u32,
    /// How publications are encoded for it; of a ping's target, [`Encoding::NO_PUBLICATION`].
    pub encoding: Encoding,
}

impl Target {
    /// What is sent is no publication.
    pub const NO_SUBSCRIPTION: u32 = NONE;
}

/// One slice of a delivery.
#[derive(Debug)]
pub struct DeliverySlice {
    /// What is delivered.
    pub delivery: Delivery,
    /// True if every member on this shard has been visited.
    pub finished: bool,
    /// The cost of the slice: members visited, whether or not they became targets, and what comparing their filters cost beside.
    pub visited: usize,
}

impl Hub {
    /// Queues a delivery for this shard's members. False if there are none: then this shard is done with it. A join or a leave
    /// needs observers, and is dropped where too much waits already.
    ///
    /// A publication without an offset goes to those that do not know a later one, and leaves their positions as they are. This
    /// shard may have joined while a batch waited: then no member needs what the home's answer already counted.
    pub fn deliver(&mut self, delivery: Delivery) -> bool {
        let Some(channel) = self.joined_channel(&delivery) else {
            return false;
        };
        if matches!(delivery, Delivery::Presence(_)) && !self.takes_announcement(channel) {
            return false;
        }
        if matches!(delivery, Delivery::Lost(_)) && !self.begin_loss(channel) {
            return false;
        }
        let offset = delivery.offset();
        let record = &mut self.channels[channel];
        if let Delivery::StreamEnd(end) = &delivery {
            // A deleted stream takes an offset. The home must not know a later one than this shard.
            record.last_offset = record.last_offset.max(end.tail.offset);
            if record.stream.is_none() {
                return false;
            }
        }
        if delivery.had_by(record.last_offset) == Had::All {
            if !matches!(delivery, Delivery::Batch(_)) {
                let scope = DefectScope::Channel(Arc::clone(&record.name));
                self.defects
                    .note(scope, "a home delivers in order, each publication once");
            }
            hit!(BatchBeforeJoin);
            return false;
        }
        record.last_offset = record.last_offset.max(offset);
        if let (Delivery::StreamEnd(end), Some(side)) = (&delivery, &mut record.stream) {
            side.note_end(end.kind);
        }
        if !record.has_members() && record.deliveries.is_empty() {
            hit!(DeliverWhileLingering);
            return false;
        }
        let is_first = record.deliveries.is_empty();
        hit!(DeliverBehindAnother if !is_first);
        record.backlog.add(&delivery);
        record.deliveries.push_back(delivery);
        if is_first {
            self.list_delivering(channel);
        } else if record.ends_pauses(self.outbound_bytes_max) {
            self.end_pause(channel);
        }
        true
    }

    /// A channel has lost publications. False if no member has to be told. Then it was kept without members: it goes, so that the
    /// next one asks its home. The home needs no leave.
    fn begin_loss(&mut self, channel: u32) -> bool {
        let record = &mut self.channels[channel];
        record.is_lost = true;
        let is_used = record.has_members() || !record.deliveries.is_empty();
        if !is_used {
            self.remove_channel(channel);
        }
        is_used
    }

    /// The delivery's channel, if this shard has members of it and its home has confirmed them.
    fn joined_channel(&self, delivery: &Delivery) -> Option<u32> {
        let Some(&channel) = self.names.get(&**delivery.channel()) else {
            hit!(DeliverToNobody);
            return None;
        };
        // While joining, a publication can only be of an earlier membership. Ours begins with the home's answer.
        let Membership::Joined { epoch } = self.channels[channel].membership else {
            hit!(DeliverWhileJoining);
            return None;
        };
        let mut publications = delivery.publications().iter();
        if publications.any(|publication| publication.position().epoch != epoch) {
            let scope = DefectScope::Channel(Arc::clone(delivery.channel()));
            self.defects
                .note(scope, "a home keeps its epoch while shards are joined");
            return None;
        }
        Some(channel)
    }

    /// Whether so much waits for the channel's members on this shard, or was taken from its clients in this turn, that clients
    /// are to publish later.
    #[must_use]
    pub fn refuses_publications(&self, channel: &str) -> bool {
        let index = self.names.get(channel);
        index.is_some_and(|&index| self.channels[index].refuses_clients(self.outbound_bytes_max))
    }

    /// Takes a client's publication of so many bytes into account, which the channel's home was sent.
    pub fn note_taken(&mut self, channel: &str, bytes: usize) {
        let Some(&index) = self.names.get(channel) else {
            return;
        };
        let taken = &mut self.channels[index].taken;
        if *taken == Backlog::default() {
            self.taken.push(index);
        }
        taken.add_one(bytes);
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

    /// The frame of a delivery for `targets` targets with this encoding.
    pub fn frame_for(
        &mut self,
        delivery: Framed<'_>,
        encoding: Encoding,
        targets: usize,
    ) -> Arc<[u8]> {
        if encoding.protocol().reads_streams() {
            return self.reader_frame(delivery, encoding);
        }
        let frame = delivery.frame(encoding, &mut self.compressor);
        self.saved_bytes += delivery.saved_bytes(encoding, frame) * targets as u64;
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

    /// Publications that subscribers did not get because they read only JSON, for one subscriber each, ever.
    #[must_use]
    pub fn unreadable_count(&self) -> u64 {
        self.unreadable
    }

    /// Notes that an answer has left so many publications out, because its client reads only JSON.
    pub fn note_unreadable(&mut self, count: usize) {
        self.unreadable += count as u64;
    }

    /// Bytes that deliveries did not take because they were compressed, ever.
    #[must_use]
    pub fn saved_bytes(&self) -> u64 {
        self.saved_bytes
    }

    /// The next slice of the next channel in turn: `max` members at most, and fewer where comparing their filters costs as much.
    ///
    /// `targets` gets those whose queue is empty and that are not in it already: they can be sent to at once, in one
    /// batch that ends with [`Hub::end_batch`]. For the others the frame is queued, or they go to `overflown`. A
    /// channel whose last member left during its deliveries is appended to `emptied_channels` when they end.
    pub fn poll_delivery(
        &mut self,
        max: usize,
        targets: &mut Vec<Target>,
        overflown: &mut Vec<Overflown>,
        emptied_channels: &mut Vec<Arc<str>>,
    ) -> Option<DeliverySlice> {
        let channel = self.delivering.pop_front()?;
        hit!(DeliverInTurn if !self.delivering.is_empty());
        let merged_max = (self.outbound_bytes_max as usize / MERGED_DIVISOR).min(MERGED_BYTES_MAX);
        let record = &mut self.channels[channel];
        if record.cursor == 0 && record.slow_consumer != SlowConsumer::KeepLatest {
            record.merge_deliveries(merged_max);
        }
        let Some(delivery) = record.deliveries.front().cloned() else {
            let scope = DefectScope::Channel(Arc::clone(&record.name));
            self.defects
                .note(scope, "a channel is listed while it delivers");
            return None;
        };
        let is_presence = matches!(delivery, Delivery::Presence(_));
        let count = if is_presence {
            record.observers.len()
        } else {
            record.members.len()
        };
        if record.cursor == 0 {
            record.delivery = self.filters.begin();
        }
        self.filters.resume(record.delivery);
        let cost = 1 + delivery.publications().len() / PUBLICATIONS_OF_A_MEMBER;
        let mut entry = record.cursor;
        let mut visited = 0;
        while entry < count && visited < max {
            let member = if is_presence {
                self.observer(channel, entry)
            } else {
                let member = self.channels[channel].members[entry];
                (member != Member::TOMBSTONE).then_some(member)
            };
            if let Some(member) = member {
                match delivery.told() {
                    ToldBy::Frame(framed) => {
                        self.deliver_to_member(member, framed, targets, overflown);
                    }
                    ToldBy::StreamEnd(end) => self.end_for_reader(member, end),
                    ToldBy::Loss(channel) => overflown.push(Overflown::Lost {
                        connection: member.connection,
                        channel: Arc::clone(channel),
                    }),
                }
            }
            entry += 1;
            visited += cost + self.filters.take_cost();
        }
        self.channels[channel].cursor = entry;
        let finished = entry == count;
        if finished {
            self.finish_delivery(channel, emptied_channels);
        } else {
            hit!(DeliverInSlices);
            self.delivering.push_back(channel);
        }
        Some(DeliverySlice {
            delivery,
            finished,
            visited,
        })
    }

    fn deliver_to_member(
        &mut self,
        member: Member,
        delivery: Framed<'_>,
        targets: &mut Vec<Target>,
        overflown: &mut Vec<Overflown>,
    ) {
        let subscription = &mut self.subscriptions[member.subscription];
        let last = subscription.last();
        let had = delivery.had_by(last);
        if had == Had::All {
            hit!(DeliverPastOwn);
            return;
        }
        let flags = subscription.flags();
        if flags.has(SubscriptionFlags::WAITING) {
            return self.hold_delivery(member, delivery, had, overflown);
        }
        let connection = &self.connections[member.connection];
        if connection.phase != Phase::Open {
            hit!(DeliverBeforeAdmission);
            return;
        }
        if connection.transport().reads_streams() {
            return self.deliver_to_reader(member, delivery, (last, had), targets, overflown);
        }
        subscription.set_last(last.max(delivery.offset()));
        let has_session = connection.has_session();
        if had == Had::Part || has_session && self.has_exception(member, delivery) {
            self.deliver_in_part(member, delivery, last, overflown);
            return;
        }
        let first = delivery.publications().first();
        let form = first.map_or(DataForm::Plain, |first| form_for(flags, last, first));
        if delivery.offset() > 0 {
            self.note_base(member, true);
        }
        self.send_to_member(member, delivery, form, targets, overflown);
    }

    /// Queues for a subscriber what its channel has still to deliver here, up to the last publication of the client itself. A client that
    /// has published and unsubscribes gets its own publications before the end.
    pub fn catch_up(
        &mut self,
        index: u32,
        name: &str,
        client: ClientId,
        overflown: &mut Vec<Overflown>,
    ) {
        let Some(SubscriptionId(subscription)) = self.find_subscription(index, name) else {
            return;
        };
        let record = &self.subscriptions[subscription];
        let is_open = self.connections[index].phase == Phase::Open;
        if !is_open || record.flags().has(SubscriptionFlags::WAITING) {
            return;
        }
        let channel = &self.channels[record.channel];
        let is_past = (record.member_index as usize) < channel.cursor;
        let is_own = |publication: &Arc<Publication>| {
            let publisher = publication.content().publisher.as_deref();
            publisher.is_some_and(|publisher| publisher.client == client)
        };
        let waiting = channel.deliveries.iter().skip(usize::from(is_past));
        let last_own = waiting
            .clone()
            .rposition(|delivery| delivery.publications().iter().any(is_own));
        let Some(last_own) = last_own else {
            return;
        };
        let waiting: Vec<Delivery> = waiting
            .take(last_own + 1)
            .filter(|delivery| !delivery.publications().is_empty())
            .cloned()
            .collect();
        let member = Member {
            connection: index,
            subscription,
        };
        for delivery in waiting {
            let last = self.subscriptions[subscription].last();
            let ToldBy::Frame(framed) = delivery.told() else {
                continue;
            };
            if framed.had_by(last) == Had::All {
                continue;
            }
            hit!(DeliverBeforeEnd);
            // It is not the delivery under way, whose filters may have been evaluated.
            let own = self.filters.begin();
            self.filters.resume(own);
            self.subscriptions[subscription].set_last(last.max(framed.offset()));
            let before = overflown.len();
            self.deliver_in_part(member, framed, last, overflown);
            if overflown.len() > before {
                return;
            }
        }
    }

    /// Sends a delivery now if nothing is queued for the member; otherwise queues it.
    pub(super) fn send_to_member(
        &mut self,
        member: Member,
        delivery: Framed<'_>,
        form: DataForm,
        targets: &mut Vec<Target>,
        overflown: &mut Vec<Overflown>,
    ) {
        let connection = &mut self.connections[member.connection];
        if connection.outbound == NONE && !connection.is(Connection::IN_BATCH) {
            // No policy for slow consumers drops a join or a leave, or an answer.
            let is_presence = delivery.is_presence();
            let is_answer = connection.transport() == Transport::LongPoll;
            let subscription = if is_presence || is_answer {
                Target::NO_SUBSCRIPTION
            } else {
                member.subscription
            };
            targets.push(Target {
                connection: member.connection,
                subscription,
                socket: connection.socket,
                encoding: connection.encoding().with_form(form),
            });
            connection.set(Connection::IN_BATCH, true);
            self.deliveries += delivery.publications().len() as u64;
            return;
        }
        let is_twice = connection.is(Connection::IN_BATCH);
        hit!(DeliverTwiceInBatch if is_twice);
        hit!(DeliverBackpressured if !is_twice);
        if let Err(overflow) = self.queue_delivery(member, delivery, form) {
            overflown.push(overflow);
        }
        if !delivery.is_presence() {
            self.note_congestion(member);
        }
    }

    /// Whether a member with a session does not get a publication of a delivery, or cannot read it.
    pub(super) fn has_exception(&mut self, member: Member, delivery: Framed<'_>) -> bool {
        let mut publications = delivery.publications().iter().enumerate();
        publications.any(|(nth, publication)| {
            self.is_withheld(member, publication, nth) || self.cannot_read(member, publication)
        })
    }

    /// Queues those publications of a delivery that the member, whose last offset was `last`, has not had and gets.
    pub(super) fn deliver_in_part(
        &mut self,
        member: Member,
        delivery: Framed<'_>,
        mut last: u64,
        overflown: &mut Vec<Overflown>,
    ) {
        hit!(DeliverInPart);
        let mut is_queued = false;
        let has_session = self.connections[member.connection].has_session();
        let after = delivery.publications_after(last);
        let first = delivery.publications().len() - after.len();
        for (nth, publication) in (first..).zip(after) {
            let flags = self.subscriptions[member.subscription].flags();
            let form = form_for(flags, last, publication);
            let is_unreadable = has_session && self.cannot_read(member, publication);
            let is_withheld =
                is_unreadable || has_session && self.is_withheld(member, publication, nth);
            self.unreadable += u64::from(is_unreadable);
            if publication.offset() > 0 {
                last = publication.offset();
                self.note_base(member, !is_withheld);
            }
            if is_withheld {
                continue;
            }
            is_queued = true;
            let one = Framed::Publication(publication);
            if let Err(overflow) = self.queue_delivery(member, one, form) {
                overflown.push(overflow);
                break;
            }
        }
        if is_queued {
            self.note_congestion(member);
        }
    }

    /// Notes whether a subscriber with deltas has the publication at its last offset.
    pub(super) fn note_base(&mut self, member: Member, has_base: bool) {
        let subscription = &mut self.subscriptions[member.subscription];
        let flags = subscription.flags();
        if flags.has(SubscriptionFlags::DELTA) {
            subscription.set_flags(if has_base {
                flags.with(SubscriptionFlags::HAS_BASE)
            } else {
                flags.without(SubscriptionFlags::HAS_BASE)
            });
        }
    }

    /// Whether a member with a session reads only JSON, and a publication is something else.
    fn cannot_read(&self, member: Member, publication: &Publication) -> bool {
        !publication.is_json()
            && self.connections[member.connection]
                .transport()
                .reads_only_json()
    }

    /// Whether a member with a session does not get a publication that has its turn, and this place in the delivery.
    fn is_withheld(&mut self, member: Member, publication: &Publication, nth: usize) -> bool {
        let is_sender = publication.sender().is_some_and(|sender| {
            sender.shard == self.shard
                && self.connections.contains(sender.connection)
                && sender.connection.index == member.connection
        });
        let flags = self.subscriptions[member.subscription].flags();
        is_sender
            || flags.has(SubscriptionFlags::DETAILS)
                && self.is_filtered(member.subscription, publication, nth)
    }

    fn is_filtered(&mut self, subscription: u32, publication: &Publication, nth: usize) -> bool {
        let details = self.details.get(&subscription);
        let filter = details.and_then(|details| details.filter);
        filter.is_some_and(|filter| !self.filters.pass(filter, nth, publication.content()))
    }

    fn finish_delivery(&mut self, channel: u32, emptied_channels: &mut Vec<Arc<str>>) {
        let record = &mut self.channels[channel];
        // `poll_delivery` has found one.
        let finished = record.deliveries.pop_front();
        let bytes = finished
            .as_ref()
            .map_or(0, |finished| record.backlog.remove(finished));
        record.cursor = 0;
        if let Some(side) = &mut record.stream {
            side.forget_made();
        }
        // No cursor is active here, so compact the list. A busy channel always has another publication waiting: without
        // this it would keep the entry of every member that ever left.
        self.compact_members(channel);
        self.compact_observers(channel);
        // A join or a leave visits observers only, so it says nothing about most members.
        if !matches!(finished, Some(Delivery::Presence(_))) {
            self.update_pace(channel, bytes);
        }
        let record = &mut self.channels[channel];
        if !record.deliveries.is_empty() {
            self.list_delivering(channel);
        } else if !record.has_members() {
            hit!(LastLeavesInDelivery);
            self.note_empty(channel, emptied_channels);
        }
    }

    /// Removes the entries of members that left. No cursor may be active.
    pub(super) fn compact_members(&mut self, channel: u32) {
        let record = &mut self.channels[channel];
        if record.tombstones == 0 {
            return;
        }
        record.tombstones = 0;
        hit!(TombstonesRemoved);
        record.members.retain(|member| *member != Member::TOMBSTONE);
        for (index, member) in (0..).zip(&record.members) {
            self.subscriptions[member.subscription].member_index = index;
        }
    }

    /// Ends a batch of sends: its targets may be in the next one.
    pub fn end_batch(&mut self, targets: &[Target]) {
        for target in targets {
            self.connections[target.connection].set(Connection::IN_BATCH, false);
        }
    }
}

/// How a publication is told to a subscriber whose last offset is `last`.
pub(super) fn form_for(flags: SubscriptionFlags, last: u64, publication: &Publication) -> DataForm {
    if !flags.has(SubscriptionFlags::DELTA) {
        return DataForm::Plain;
    }
    let base = publication.delta_base();
    let follows = base.is_some_and(|base| base.offset == last);
    if follows && flags.has(SubscriptionFlags::HAS_BASE) {
        DataForm::Delta
    } else {
        DataForm::Whole
    }
}
