//! What readers are told: parts of their stream, and that there is nothing new.

use super::EndedReader;
use crate::channel::{Member, SubscriptionFlags};
use crate::connection::{Phase, Transport};
use crate::defects::DefectScope;
use crate::delivery::Had;
use crate::encoding::{DataForm, Encoding, Protocol};
use crate::hub::deliveries::Target;
use crate::hub::{Hub, SubscriptionId};
use crate::marks::hit;
use crate::outbound::Chunk;
use crate::streams::{StreamPart, StreamSide, end_of_events};
use crate::{Batch, CloseReason, Content, Epoch, Framed, Now, Overflown, Publication, StreamEnd};
use myriad_wheel::NONE;
use myriad_wire::streams::MediaType;
use std::sync::Arc;

/// What a held request is answered whose stream is not known any more.
const UNKNOWN_STREAM: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nCache-Control: no-store\r\nContent-Length: 0\r\n\r\n";

impl Hub {
    /// Where a reader's time-out belongs among others: those with equal keys get the same bytes.
    #[must_use]
    pub fn idle_key(&self, index: u32) -> (u32, u64, Encoding) {
        let encoding = self.connections[index].encoding();
        match self.subscriptions_of(index).next() {
            Some((SubscriptionId(subscription), ..)) => {
                let record = &self.subscriptions[subscription];
                (record.channel, record.last(), encoding)
            }
            None => (NONE, 0, encoding),
        }
    }

    /// What a reader is told when there is nothing new: a whole answer, or an event that says where it is. `closing` ends its
    /// connection with it, `is_end` says that nothing more will come.
    pub fn idle_answer(&mut self, index: u32, closing: bool, is_end: bool, now: Now) -> Arc<[u8]> {
        let (channel, last, mut encoding) = self.idle_key(index);
        if closing {
            let transport = self.connections[index].transport();
            encoding = Encoding::of_reader(transport, encoding.variant().closing());
        }
        if channel == NONE {
            let scope = DefectScope::Connection(index);
            self.defects.note(scope, "a reader has a subscription");
            return unknown_stream(encoding);
        }
        let settings = self.readers.settings;
        let interval = settings.cursor_interval(now.tick());
        let own = self.readers.own_cursors.get(&index).copied();
        let record = &mut self.channels[channel];
        // At the end of its stream, what may have come since is of another one.
        let is_up_to_date = is_end || last >= record.last_offset;
        let Some((epoch, side)) = record.as_stream() else {
            let name = Arc::clone(&record.name);
            return self.answer_of_unknown_stream(name, encoding);
        };
        let is_closed = is_end || side.is_closed && is_up_to_date;
        let media_type = Arc::clone(&side.media_type);
        let part = StreamPart {
            media_type: &media_type,
            epoch,
            from: last,
            to: last,
            is_up_to_date,
            is_closed,
        };
        let is_public = side.is_public(&settings);
        let tell = |cursor| StreamSide::tell(&part, [].into_iter(), cursor, encoding, is_public);
        if let Some(own) = own {
            return tell(own.saturating_add(1)).into();
        }
        let cursor = side.cursor(interval);
        if is_closed {
            return tell(cursor).into();
        }
        side.made((last, last), Some(cursor), encoding, |_| tell(cursor))
    }

    /// A reader's stream is not known, though it was when the reader began. Its client is told something whole, and comes back: its
    /// channel ends here with the turn.
    #[cold]
    fn answer_of_unknown_stream(&self, name: Arc<str>, encoding: Encoding) -> Arc<[u8]> {
        self.defects
            .note(DefectScope::Channel(name), "a reader's stream is known");
        unknown_stream(encoding)
    }

    /// The frame of a delivery for readers, all of whose publications have offsets.
    pub(in crate::hub) fn reader_frame(
        &mut self,
        delivery: Framed<'_>,
        encoding: Encoding,
    ) -> Arc<[u8]> {
        let name = delivery.channel();
        let Some(&channel) = self.names.get(name) else {
            return self.answer_of_unknown_stream(Arc::clone(name), encoding);
        };
        let settings = self.readers.settings;
        let interval = settings.cursor_interval(self.turn_tick);
        let record = &mut self.channels[channel];
        let last_offset = record.last_offset;
        let Some((epoch, side)) = record.as_stream() else {
            return self.answer_of_unknown_stream(Arc::clone(name), encoding);
        };
        let part = part_of(epoch, delivery, last_offset);
        side.made((part.from, part.to), None, encoding, |side| {
            let cursor = side.cursor(interval);
            let part = part.of(&side.media_type);
            StreamSide::tell(
                &part,
                contents_of(delivery),
                cursor,
                encoding,
                side.is_public(&settings),
            )
        })
    }

    /// Gives a reader what it has not had of a delivery and history keeps. A held request is answered by it.
    pub(in crate::hub) fn deliver_to_reader(
        &mut self,
        member: Member,
        delivery: Framed<'_>,
        (last, had): (u64, Had),
        targets: &mut Vec<Target>,
        overflown: &mut Vec<Overflown>,
    ) {
        let is_kept = |publication: &&Arc<Publication>| publication.offset() > 0;
        let is_whole =
            had == Had::Nothing && delivery.publications().iter().all(|one| is_kept(&one));
        let part;
        let delivery = if is_whole {
            delivery
        } else {
            let kept: Box<[_]> = delivery
                .publications_after(last)
                .iter()
                .filter(is_kept)
                .cloned()
                .collect();
            if kept.is_empty() {
                return;
            }
            hit!(DeliverPartToReader);
            part = Arc::new(Batch::new(kept));
            Framed::Batch(&part)
        };
        let record = &mut self.subscriptions[member.subscription];
        record.set_last(last.max(delivery.offset()));
        let connection = &self.connections[member.connection];
        let variant = connection.variant();
        if connection.transport() == Transport::LongPoll {
            // It gets one answer, whatever comes behind it.
            record.set_flags(record.flags().with(SubscriptionFlags::WAITING));
            self.readers.answered.push(member.connection);
        }
        if variant.has_own_cursor() {
            self.answer_with_own_cursor(member, delivery, overflown);
        } else if is_whole {
            self.send_to_member(member, delivery, DataForm::Plain, targets, overflown);
        } else {
            let queued = self.queue_delivery(member, delivery, DataForm::Plain);
            overflown.extend(queued.err());
        }
    }

    /// The channel's stream has ended. Only readers who wait for something are told: a held request that was answered, a client that
    /// connects, and members that read no stream are not.
    pub(in crate::hub) fn end_for_reader(&mut self, member: Member, end: &StreamEnd) {
        let connection = &self.connections[member.connection];
        let record = &mut self.subscriptions[member.subscription];
        let is_told = connection.phase == Phase::Open
            && connection.transport().reads_streams()
            && !record.flags().has(SubscriptionFlags::WAITING);
        if is_told {
            // What the next stream of that name has may follow in this turn. It is none of this reader's.
            record.set_flags(record.flags().with(SubscriptionFlags::WAITING));
            self.note_ended(member.connection, end);
        } else {
            self.mark_passed_by_end(member);
        }
    }

    /// Names the state of a member that the end of a stream passes.
    fn mark_passed_by_end(&self, member: Member) {
        let connection = &self.connections[member.connection];
        let flags = self.subscriptions[member.subscription].flags();
        let is_waiting = flags.has(SubscriptionFlags::WAITING);
        let is_held = self.holds(member.connection);
        if connection.phase != Phase::Open {
            hit!(StreamEndBeforeAdmission);
        } else if connection.transport().reads_streams() {
            hit!(StreamEndAtAnswered);
        } else if !connection.has_session() {
            hit!(StreamEndAtListener);
        } else {
            hit!(StreamEndAtSession if !is_waiting);
            hit!(StreamEndAtHeld if is_waiting && is_held);
            hit!(StreamEndAtWaiting if is_waiting && !is_held);
        }
    }

    /// A reader's stream has ended, unless it reads the next one of that name.
    fn note_ended(&mut self, index: u32, end: &StreamEnd) {
        let connection = &self.connections[index];
        let asked_at = match connection.transport() {
            Transport::LongPoll => connection.last_input,
            _ => connection.opened,
        };
        self.readers.ended.push(EndedReader {
            connection: index,
            kind: end.kind,
            is_late: end.may_precede(asked_at),
        });
    }

    /// Queues an answer that no other reader gets.
    fn answer_with_own_cursor(
        &mut self,
        member: Member,
        delivery: Framed<'_>,
        overflown: &mut Vec<Overflown>,
    ) {
        let own = self.readers.own_cursors.get(&member.connection).copied();
        let cursor = own.unwrap_or_default().saturating_add(1);
        let encoding = self.connections[member.connection].encoding();
        let channel = self.subscriptions[member.subscription].channel;
        let record = &mut self.channels[channel];
        let last_offset = record.last_offset;
        let bytes: Arc<[u8]> = match record.as_stream() {
            Some((epoch, side)) => {
                let part = part_of(epoch, delivery, last_offset);
                let part = part.of(&side.media_type);
                let is_public = side.is_public(&self.readers.settings);
                let contents = contents_of(delivery);
                StreamSide::tell(&part, contents, cursor, encoding, is_public).into()
            }
            None => self.answer_of_unknown_stream(Arc::clone(delivery.channel()), encoding),
        };
        self.deliveries += delivery.publications().len() as u64;
        if let Err(overflow) = self.enqueue_alone(member.connection, Chunk::Shared(bytes)) {
            overflown.push(Overflown::Close {
                connection: member.connection,
                reason: CloseReason::from(overflow),
            });
        }
    }
}

fn unknown_stream(encoding: Encoding) -> Arc<[u8]> {
    match encoding.protocol() {
        Protocol::Events => end_of_events(encoding.variant().is_chunked()).into(),
        _ => UNKNOWN_STREAM.into(),
    }
}

/// What a delivery is of its stream, but for the content type.
#[derive(Clone, Copy)]
struct DeliveredPart {
    epoch: Epoch,
    from: u64,
    to: u64,
    is_up_to_date: bool,
}

impl DeliveredPart {
    fn of(self, media_type: &MediaType) -> StreamPart<'_> {
        StreamPart {
            media_type,
            epoch: self.epoch,
            from: self.from,
            to: self.to,
            is_up_to_date: self.is_up_to_date,
            is_closed: false,
        }
    }
}

/// What a delivery is whose publications all have offsets.
fn part_of(epoch: Epoch, delivery: Framed<'_>, last_offset: u64) -> DeliveredPart {
    let to = delivery.offset();
    // Readers are given publications: a join or a leave visits observers only.
    let first = delivery.publications().first();
    DeliveredPart {
        epoch,
        from: first.map_or(to, |first| first.offset().saturating_sub(1)),
        to,
        is_up_to_date: to >= last_offset,
    }
}

fn contents_of(delivery: Framed<'_>) -> impl Iterator<Item = &Content> {
    delivery.publications().iter().map(|one| &**one.content())
}
