//! Readers of streams: held requests and streams of events.
//!
//! A reader is a member of its channel like others. A held request that is answered stays one, with a subscription that waits: its
//! client asks again at once, and nothing has to leave and to join for that.

use super::deliveries::Target;
use super::{Hub, SubscriptionId};
use crate::channel::{Member, Membership, SubscriptionFlags};
use crate::connection::{Connection, Phase, Transport};
use crate::delivery::Had;
use crate::encoding::{DataForm, Encoding};
use crate::marks::hit;
use crate::outbound::Chunk;
use crate::streams::{ReaderSettings, StreamPart, StreamSide, Variant, comment, end_of_events};
use crate::time::ticks;
use crate::timers::{Due, GOLDEN_SECTION, after};
use crate::{
    Batch, CloseReason, Content, Delivery, Epoch, NEVER, Now, Overflown, Position, Publication,
    StreamEnd, StreamEndKind, TokenIdentity,
};
use myriad_wheel::{NONE, Tick};
use myriad_wire::streams::MediaType;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// Ticks that a channel without members is kept after it was read: 2 s. Those whose poll was answered on a connection that ended
/// ask again by then.
const LINGER_TICKS: u32 = 40;
/// Channels that may be kept without members.
const LINGERING_MAX: usize = 4096;
/// Clients of streams of events come back after this time at least, ms ...
const RETRY_MS_MIN: u32 = 1_000;
/// ... and up to this much later.
const RETRY_MS_SPAN: u32 = 2_000;

/// What a hub remembers of its readers.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    pub(super) settings: ReaderSettings,
    /// Where in the range of times the next poll is, as the numerator of 2^32.
    poll_phase: u32,
    /// Cursors of those that cannot share an answer, by connection.
    own_cursors: HashMap<u32, u64>,
    /// Whom live reads are for that have shown a token, by connection. In their order, so that a walk can be interrupted.
    bearers: BTreeMap<u32, Bearer>,
    /// The same connections by their users.
    bearers_of: BTreeSet<(Arc<str>, u32)>,
    /// Connections whose held request was answered by a delivery.
    answered: Vec<u32>,
    /// Readers whose stream has ended.
    ended: Vec<EndedReader>,
    /// Channels that are kept without members, by the end of their time.
    lingering: VecDeque<(Tick, u32)>,
    parked: u64,
    events: u64,
}

/// What a shard knows of a stream that it gets the publications of.
#[derive(Clone, Copy, Debug)]
pub struct KnownStream {
    /// Every publication after this position is still to be delivered here.
    pub position: Position,
    /// Nothing more will come.
    pub is_closed: bool,
}

/// Who has shown a token to read a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bearer {
    /// The user; none if the token names nobody.
    pub user: Option<Arc<str>>,
    /// The token, so that it can be revoked.
    pub token: Option<Arc<TokenIdentity>>,
    /// When the token's time is over; [`NEVER`] for never.
    pub expires_at: Tick,
}

/// A reader that waits for what comes.
#[derive(Clone, Debug)]
pub struct Reader {
    /// Its subscription.
    pub subscription: SubscriptionId,
    /// It gets what comes after this offset.
    pub last: u64,
    /// The cursor that it has shown.
    pub cursor: Option<u64>,
    /// How its answers differ from those of others.
    pub variant: Variant,
    /// It is held no longer than until then: the end of its token, or of the time for which it was held first; [`NEVER`] without.
    pub expires_at: Tick,
    /// Who has shown a token for it.
    pub bearer: Option<Bearer>,
}

/// A reader whose stream has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedReader {
    /// Index of its connection's record.
    pub connection: u32,
    /// How the stream ended.
    pub kind: StreamEndKind,
    /// It asked so late that it may read another stream of that name, which was created after the end.
    pub is_late: bool,
}

impl Hub {
    /// How readers of streams are answered.
    #[must_use]
    pub fn reader_settings(&self) -> &ReaderSettings {
        &self.readers.settings
    }

    /// Takes other settings for readers from now on. Those who wait keep their deadlines.
    pub fn set_reader_settings(&mut self, settings: ReaderSettings) {
        self.readers.settings = settings;
    }

    /// Requests that are held.
    #[must_use]
    pub fn parked_count(&self) -> u64 {
        self.readers.parked
    }

    /// Streams of events.
    #[must_use]
    pub fn events_count(&self) -> u64 {
        self.readers.events
    }

    /// What is known of a channel as a stream; none if its home has to be asked.
    #[must_use]
    pub fn known_stream(&self, name: &str) -> Option<KnownStream> {
        let record = &self.channels[*self.names.get(name)?];
        let Membership::Joined { epoch } = record.membership else {
            return None;
        };
        let side = record.stream.as_ref().filter(|side| !side.has_gone)?;
        Some(KnownStream {
            position: Position {
                epoch,
                offset: record.last_offset,
            },
            is_closed: side.is_closed,
        })
    }

    /// The home has said what a stream is. `is_open` says that the channel is not for some users only: then shared caches may
    /// keep answers, where everybody may read ([`ReaderSettings::is_public`]).
    pub fn note_stream(
        &mut self,
        subscription: SubscriptionId,
        media_type: &MediaType,
        is_closed: bool,
        is_open: bool,
    ) {
        let channel = self.subscriptions[subscription.0].channel;
        match &mut self.channels[channel].stream {
            Some(side) if *side.media_type == *media_type => {
                side.is_closed = is_closed;
                side.is_open = is_open;
                side.has_gone = false;
            }
            side => {
                *side = Some(Box::new(StreamSide::new(
                    Arc::new(media_type.clone()),
                    is_closed,
                    is_open,
                )))
            }
        }
    }

    /// A request is to be answered when its channel's home has said what there is. It has as long for that as a head to arrive.
    pub fn begin_reading(&mut self, index: u32, now: Now) {
        self.begin_joining(index, now);
    }

    /// Deliveries skip a subscription until its reader is told what it missed.
    pub fn set_waiting(&mut self, subscription: SubscriptionId) {
        let record = &mut self.subscriptions[subscription.0];
        record.set_flags(record.flags().with(SubscriptionFlags::WAITING));
    }

    /// Holds a request until something comes, or its time is over.
    pub fn park(&mut self, index: u32, reader: Reader, now: Now) {
        let variant = self.shared_variant(index, &reader, now);
        let phase = self.next_phase();
        // The tick that has begun does not count: no poll ends before its time.
        let held = self.readers.settings.poll_ticks(phase);
        let deadline = after(now.tick(), held.saturating_add(1));
        let deadline = deadline.min(reader.expires_at).max(after(now.tick(), 1));
        self.begin_delivering(reader.subscription, reader.last);
        let connection = &mut self.connections[index];
        connection.set_reader(Transport::LongPoll, variant);
        connection.phase = Phase::Open;
        connection.ping_at = deadline;
        self.wheel.arm(&mut self.connections, index, deadline);
        self.readers.parked += 1;
        self.note_bearer(index, reader.bearer);
    }

    /// Notes whom a live read is for, so that orders find it.
    fn note_bearer(&mut self, index: u32, bearer: Option<Bearer>) {
        let Some(bearer) = bearer else {
            return;
        };
        let user = bearer.user.clone();
        self.readers
            .bearers_of
            .extend(user.map(|user| (user, index)));
        self.readers.bearers.insert(index, bearer);
    }

    /// When the client of the next stream of events is to come back after its end, ms: clients that lose a server together come
    /// back spread over two seconds.
    pub fn next_retry_ms(&mut self) -> u32 {
        RETRY_MS_MIN + (self.next_phase() >> 16) * RETRY_MS_SPAN / (1 << 16)
    }

    /// Opens a stream of events, for whoever has shown a token. Its head is queued. Nothing is delivered to it before
    /// [`Hub::begin_delivering`].
    pub fn open_events(&mut self, index: u32, variant: Variant, bearer: Option<Bearer>, now: Now) {
        self.note_bearer(index, bearer);
        let connection = &mut self.connections[index];
        connection.set_reader(Transport::Events, variant);
        connection.set(Connection::AWAITS_PONG, false);
        connection.phase = Phase::Open;
        connection.opened = now.tick();
        connection.ping_at = after(now.tick(), self.timing.ping_interval);
        self.rearm_events(index, now.tick());
        self.readers.events += 1;
    }

    /// A numerator of 2^32, each far from those before.
    fn next_phase(&mut self) -> u32 {
        self.readers.poll_phase = self.readers.poll_phase.wrapping_add(GOLDEN_SECTION);
        self.readers.poll_phase.wrapping_add(self.spread_from)
    }

    /// A reader gets everything after `last` from now on.
    pub fn begin_delivering(&mut self, subscription: SubscriptionId, last: u64) {
        let record = &mut self.subscriptions[subscription.0];
        record.set_flags(record.flags().without(SubscriptionFlags::WAITING));
        record.set_last(last);
    }

    /// A reader's variant, with a mark if its cursor is one that it cannot share.
    fn shared_variant(&mut self, index: u32, reader: &Reader, now: Now) -> Variant {
        let Some(cursor) = reader.cursor else {
            return reader.variant;
        };
        let interval = self.readers.settings.cursor_interval(now.tick());
        let channel = self.subscriptions[reader.subscription.0].channel;
        let side = self.channels[channel].stream.as_mut();
        if cursor < interval || side.is_some_and(|side| side.note_cursor(cursor, interval)) {
            return reader.variant;
        }
        hit!(ReaderHasOwnCursor);
        self.readers.own_cursors.insert(index, cursor);
        reader.variant.with_own_cursor()
    }

    /// The request of a connection was answered: it waits for the next one.
    pub fn end_answer(&mut self, index: u32, now: Now) {
        self.forget_reader(index);
        let first = self.first_subscription(index);
        if first != NONE {
            self.set_waiting(SubscriptionId(first));
        }
        let deadline = after(now.tick(), ticks(self.readers.settings.keep_alive));
        let connection = &mut self.connections[index];
        connection.set_answered();
        connection.ping_at = deadline;
        self.wheel.arm(&mut self.connections, index, deadline);
        self.watch_progress(index);
    }

    /// All of an answer is written. The time in which the next request has to come begins now.
    pub fn begin_keep_alive(&mut self, index: u32, now: Now) {
        let deadline = after(now.tick(), ticks(self.readers.settings.keep_alive));
        let connection = &mut self.connections[index];
        debug_assert!(connection.is_kept_alive() && !connection.has_outbound());
        if connection.ping_at != deadline {
            connection.ping_at = deadline;
            self.wheel.arm(&mut self.connections, index, deadline);
        }
    }

    /// A connection was opened that has read a stream before, elsewhere. Its next request has to be whole as soon as that of a new one.
    pub fn begin_next_request(&mut self, index: u32, now: Now) {
        let deadline = after(now.tick(), self.timing.handshake);
        let connection = &mut self.connections[index];
        connection.set_answered();
        connection.ping_at = deadline;
    }

    /// The next request on a connection has begun to come. It has to be whole in time.
    pub fn begin_next_head(&mut self, index: u32, now: Now) {
        let deadline = after(now.tick(), self.timing.handshake);
        let connection = &mut self.connections[index];
        debug_assert!(connection.is_kept_alive());
        if connection.ping_at > deadline {
            connection.ping_at = deadline;
            self.wheel.arm(&mut self.connections, index, deadline);
        }
    }

    /// The next request on a connection is whole, or belongs to another transport.
    pub fn end_keep_alive(&mut self, index: u32) {
        self.connections[index].set(Connection::KEPT_ALIVE, false);
    }

    /// The head of the next request is whole, and it opens a stream with a message in its body: that has as long to come as a head.
    /// The timer still stood at the end of the time in which a next request may begin.
    pub fn begin_next_body(&mut self, index: u32, now: Now) {
        self.connections[index].opened = now.tick();
        self.arm_handshake(index);
    }

    /// Ends the subscriptions of a connection whose next request is not about them.
    pub fn leave_streams(&mut self, index: u32, emptied_channels: &mut Vec<Arc<str>>) {
        self.unsubscribe_all(index, emptied_channels);
    }

    /// Takes the connections whose held request was answered by deliveries.
    pub fn take_answered(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.readers.answered)
    }

    /// Takes the readers whose stream has ended.
    pub fn take_ended(&mut self) -> Vec<EndedReader> {
        std::mem::take(&mut self.readers.ended)
    }

    /// What becomes of the connection of a reader after its answer.
    #[must_use]
    pub fn variant_of(&self, index: u32) -> Variant {
        self.connections[index].variant()
    }

    /// Whether a held request was answered by a delivery of this turn.
    #[must_use]
    pub fn is_answered(&self, index: u32) -> bool {
        let subscription = &self.subscriptions[self.first_subscription(index)];
        subscription.flags().has(SubscriptionFlags::WAITING)
    }

    /// When a held request is to be answered if nothing comes.
    #[must_use]
    pub fn poll_end(&self, index: u32) -> Now {
        let connection = &self.connections[index];
        debug_assert!(connection.transport() == Transport::LongPoll);
        Now::at(connection.ping_at)
    }

    /// Where a reader's time-out belongs among others: those with equal keys get the same bytes.
    #[must_use]
    pub fn idle_key(&self, index: u32) -> (u32, u64, Encoding) {
        let subscription = &self.subscriptions[self.first_subscription(index)];
        let encoding = self.connections[index].encoding();
        (subscription.channel, subscription.last(), encoding)
    }

    /// What a reader is told when there is nothing new: a whole answer, or an event that says where it is. `closing` ends its
    /// connection with it, `is_end` says that nothing more will come.
    pub fn idle_answer(&mut self, index: u32, closing: bool, is_end: bool, now: Now) -> Arc<[u8]> {
        let (channel, last, mut encoding) = self.idle_key(index);
        if closing {
            let transport = self.connections[index].transport();
            encoding = Encoding::of_reader(transport, encoding.variant().closing());
        }
        let settings = self.readers.settings;
        let interval = settings.cursor_interval(now.tick());
        let own = self.readers.own_cursors.get(&index).copied();
        let record = &mut self.channels[channel];
        let epoch = record.epoch();
        // At the end of its stream, what may have come since is of another one.
        let is_up_to_date = is_end || last >= record.last_offset;
        let side = record.stream.as_mut();
        let side = side.expect("a reader's stream is known");
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

    /// The frame of a delivery for readers, all of whose publications have offsets.
    pub(super) fn reader_frame(&mut self, delivery: &Delivery, encoding: Encoding) -> Arc<[u8]> {
        let channel = self.names[&**delivery.channel()];
        let settings = self.readers.settings;
        let interval = settings.cursor_interval(self.turn_tick);
        let record = &mut self.channels[channel];
        let part = part_of(record.epoch(), delivery, record.last_offset);
        let side = record.stream.as_mut();
        let side = side.expect("a reader's stream is known");
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
    pub(super) fn deliver_to_reader(
        &mut self,
        member: Member,
        delivery: &Delivery,
        (last, had): (u64, Had),
        targets: &mut Vec<Target>,
        overflown: &mut Vec<Overflown>,
    ) {
        if let Delivery::StreamEnd(end) = delivery {
            // What the next stream of that name has may follow in this turn. It is none of this reader's.
            let record = &mut self.subscriptions[member.subscription];
            record.set_flags(record.flags().with(SubscriptionFlags::WAITING));
            self.note_ended(member.connection, end);
            return;
        }
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
            part = Delivery::Batch(Arc::new(Batch::new(kept)));
            &part
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

    /// Takes a held request out of the list of those that wait, to ask its home again. It has `last`, and is held again no longer
    /// than it was to be.
    ///
    /// Returns the channel's name and the reader as it was.
    pub fn unpark(&mut self, index: u32, now: Now) -> (Arc<str>, Epoch, Reader) {
        let connection = &self.connections[index];
        debug_assert!(connection.transport() == Transport::LongPoll);
        let (variant, expires_at) = (connection.variant(), connection.ping_at);
        let subscription = SubscriptionId(self.first_subscription(index));
        let record = &self.subscriptions[subscription.0];
        let channel = &self.channels[record.channel];
        let shown = channel.stream.as_ref().map(|side| side.shown_cursor());
        let reader = Reader {
            subscription,
            last: record.last(),
            cursor: self.readers.own_cursors.get(&index).copied().or(shown),
            variant: variant.without_own_cursor(),
            expires_at,
            bearer: self.readers.bearers.get(&index).cloned(),
        };
        let (name, epoch) = (Arc::clone(&channel.name), channel.epoch());
        self.end_answer(index, now);
        self.end_keep_alive(index);
        (name, epoch, reader)
    }

    /// Queues an answer that no other reader gets.
    fn answer_with_own_cursor(
        &mut self,
        member: Member,
        delivery: &Delivery,
        overflown: &mut Vec<Overflown>,
    ) {
        let own = self.readers.own_cursors.get(&member.connection).copied();
        let cursor = own.unwrap_or_default().saturating_add(1);
        let encoding = self.connections[member.connection].encoding();
        let channel = self.subscriptions[member.subscription].channel;
        let record = &self.channels[channel];
        let part = part_of(record.epoch(), delivery, record.last_offset);
        let side = record.stream.as_ref();
        let side = side.expect("a reader's stream is known");
        let part = part.of(&side.media_type);
        let is_public = side.is_public(&self.readers.settings);
        let bytes = StreamSide::tell(&part, contents_of(delivery), cursor, encoding, is_public);
        self.deliveries += delivery.publications().len() as u64;
        if let Err(overflow) = self.enqueue_alone(member.connection, Chunk::Owned(bytes.into())) {
            overflown.push(Overflown::Close {
                connection: member.connection,
                reason: CloseReason::from(overflow),
            });
        }
    }

    /// The first live read from this connection on for which a token was shown: of this user, or of anybody.
    #[must_use]
    pub fn bearer_from(&self, user: Option<&Arc<str>>, from: u32) -> Option<(u32, &Bearer)> {
        let Some(user) = user else {
            let (index, bearer) = self.readers.bearers.range(from..).next()?;
            return Some((*index, bearer));
        };
        let of_user = (Arc::clone(user), from)..=(Arc::clone(user), u32::MAX);
        let (_, index) = self.readers.bearers_of.range(of_user).next()?;
        Some((*index, &self.readers.bearers[index]))
    }

    /// When the token of a stream of events is over.
    fn bearer_expiry(&self, index: u32) -> Tick {
        let bearer = self.readers.bearers.get(&index);
        bearer.map_or(NEVER, |bearer| bearer.expires_at)
    }

    /// Whether a stream of events ends with its token.
    #[must_use]
    pub fn events_expire(&self, index: u32) -> bool {
        self.bearer_expiry(index) != NEVER
    }

    /// A comment for a stream of events.
    #[must_use]
    pub fn events_comment(&self, index: u32) -> Vec<u8> {
        comment(self.connections[index].variant().is_chunked())
    }

    /// The last bytes of a stream of events.
    #[must_use]
    pub fn events_end(&self, index: u32) -> Vec<u8> {
        end_of_events(self.connections[index].variant().is_chunked())
    }

    /// The connection is no reader any more.
    pub(super) fn forget_reader(&mut self, index: u32) {
        let connection = &self.connections[index];
        if connection.phase != Phase::Open || !connection.transport().reads_streams() {
            return;
        }
        match connection.transport() {
            Transport::LongPoll => self.readers.parked -= 1,
            _ => self.readers.events -= 1,
        }
        if !self.readers.bearers.is_empty()
            && let Some(bearer) = self.readers.bearers.remove(&index)
            && let Some(user) = bearer.user
        {
            self.readers.bearers_of.remove(&(user, index));
        }
        if connection.variant().has_own_cursor() {
            self.readers.own_cursors.remove(&index);
        }
    }

    /// A channel has lost its last member: it is removed, or kept for a while if it was read as a stream.
    pub(super) fn note_empty(&mut self, channel: u32, emptied_channels: &mut Vec<Arc<str>>) {
        let record = &mut self.channels[channel];
        let is_joined = matches!(record.membership, Membership::Joined { .. });
        if record.stream.is_none() || !is_joined || self.readers.lingering.len() >= LINGERING_MAX {
            emptied_channels.push(self.remove_channel(channel));
            return;
        }
        let until = after(self.turn_tick, LINGER_TICKS);
        record.lingers_until = Some(until);
        self.readers.lingering.push_back((until, channel));
        hit!(ChannelLingers);
    }

    /// Removes the channels that were kept without members for long enough; all of them at an end.
    pub fn end_lingering(&mut self, now: Now, is_end: bool, emptied_channels: &mut Vec<Arc<str>>) {
        while let Some(&(until, channel)) = self.readers.lingering.front()
            && (is_end || until <= now.tick())
        {
            self.readers.lingering.pop_front();
            // It may have members again, or be another channel.
            let is_same = self.channels.key_of(channel).is_some()
                && self.channels[channel].lingers_until == Some(until);
            if !is_same {
                continue;
            }
            self.channels[channel].lingers_until = None;
            let record = &self.channels[channel];
            if !record.has_members() && record.deliveries.is_empty() {
                emptied_channels.push(self.remove_channel(channel));
            }
        }
    }

    /// When the first channel without members is to be removed.
    pub(crate) fn next_linger_end(&self) -> Option<Tick> {
        self.readers.lingering.front().map(|(until, _)| *until)
    }

    pub(crate) fn handle_reader_deadline(&mut self, index: u32, now: Tick) -> Option<Due> {
        let connection = &mut self.connections[index];
        if connection.transport() == Transport::LongPoll {
            if connection.ping_at > now {
                let deadline = connection.ping_at;
                self.wheel.arm(&mut self.connections, index, deadline);
                return None;
            }
            hit!(PollOver);
            return Some(Due::PollOver);
        }
        let max = ticks(self.readers.settings.events_max);
        if max > 0 && after(connection.opened, max) <= now {
            hit!(EventsOver);
            return Some(Due::EventsOver);
        }
        if self.bearer_expiry(index) <= now {
            hit!(EventsExpired);
            return Some(Due::EventsExpired);
        }
        let connection = &mut self.connections[index];
        let mut due = None;
        if self.timing.ping_interval > 0 && connection.ping_at <= now {
            connection.ping_at = after(now, self.timing.ping_interval);
            due = Some(Due::Ping);
        }
        self.rearm_events(index, now);
        due
    }

    /// Arms a stream of events for its next comment or its end.
    pub(crate) fn rearm_events(&mut self, index: u32, now: Tick) {
        let connection = &self.connections[index];
        let ping = (self.timing.ping_interval > 0).then_some(connection.ping_at);
        let max = ticks(self.readers.settings.events_max);
        let end = (max > 0).then(|| after(connection.opened, max));
        let expiry = Some(self.bearer_expiry(index)).filter(|&expiry| expiry != NEVER);
        match ping.into_iter().chain(end).chain(expiry).min() {
            Some(deadline) => {
                let deadline = deadline.max(after(now, 1));
                self.wheel.arm(&mut self.connections, index, deadline);
            }
            None => self.wheel.disarm(&mut self.connections, index),
        }
        self.watch_progress(index);
    }

    pub(crate) fn handle_kept_alive_deadline(&mut self, index: u32, now: Tick) -> Option<Due> {
        let connection = &self.connections[index];
        let mut deadline = connection.ping_at;
        if connection.has_outbound() {
            // Its client has not read the answer yet. The time for the next request begins when the answer has left.
            hit!(AnswerOutlastsKeepAlive if deadline <= now);
            deadline = deadline.max(after(now, ticks(self.readers.settings.keep_alive)));
        }
        if deadline > now {
            self.wheel.arm(&mut self.connections, index, deadline);
            return None;
        }
        let has_begun = connection.input != NONE;
        if !self.is_late(index, deadline, now) {
            return None;
        }
        if has_begun {
            return Some(Due::HandshakeTimeout);
        }
        hit!(KeepAliveOver);
        Some(Due::KeepAliveOver)
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
fn part_of(epoch: Epoch, delivery: &Delivery, last_offset: u64) -> DeliveredPart {
    let first = delivery.publications().first();
    let first = first.expect("readers are given publications").offset();
    let to = delivery.offset();
    DeliveredPart {
        epoch,
        from: first.saturating_sub(1),
        to,
        is_up_to_date: to >= last_offset,
    }
}

fn contents_of(delivery: &Delivery) -> impl Iterator<Item = &Content> {
    delivery.publications().iter().map(|one| &**one.content())
}
