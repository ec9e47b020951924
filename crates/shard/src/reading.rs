//! Readers of streams: from a request to its answer, and to the next request on the same connection. Changes `reads`, `inputs` and
//! `hub`; asks homes by `mesh`.
//!
//! A request that reads what is there asks the channel's home, and is answered. One that is live joins the channel first, as other
//! subscribers do. Then it asks the home what comes after its offset, and is held if that is nothing: the home's answer says up to
//! which position it speaks, and everything after that is delivered. A shard that knows the stream and its last offset need not ask
//! for whoever has read up to there.
//!
//! One request of a connection is under way at a time. The next one waits until the answer has left.

use crate::closing::Last;
use crate::input::Input;
use crate::marks::{Happening, hit};
use crate::mesh::Message;
use crate::shard::Shard;
use crate::transport::Refused;
use myriad_hub::{
    Asker, Bearer, Chunk, CloseReason, Content, EndedReader, Kept, NEVER, Now, Phase, Position,
    ReadFrom, ReadRefused, ReadStream, Reader, StreamEndKind, StreamPage, StreamPart, StreamRead,
    Subscribed, SubscriptionId, Ticket, Transport, Variant,
};
use myriad_reactor::Reactor;
use myriad_wheel::{Key, Tick};
use myriad_wire::reads::{Caching, Live, Persistence, Status, etag_matches};
use std::collections::HashMap;

/// Bytes that may wait behind a request that is not answered.
const BEHIND_BYTES_MAX: usize = 16 * 1024;
/// A page of a stream may take this part of a connection's outbound budget.
const PAGE_DIVISOR: usize = 4;
/// Publications of a page.
const PAGE_PUBLICATIONS_MAX: u32 = 10_000;

/// A request that reads a stream and is not answered, or a stream of events that is not caught up.
#[derive(Debug)]
pub(crate) struct Reading {
    /// Names the question to the home: the answer to an earlier one is dropped.
    pub(crate) serial: u32,
    pub(crate) channel: Box<str>,
    pub(crate) from: ReadFrom,
    pub(crate) live: Live,
    /// The cursor that the client has shown.
    pub(crate) cursor: Option<u64>,
    /// Entity tags that it has.
    pub(crate) if_none_match: Option<Box<[u8]>>,
    pub(crate) variant: Variant,
    /// Whose token the request has; none without one.
    pub(crate) bearer: Option<Bearer>,
    /// It was held before, and is held no longer than it was to be; [`NEVER`] for one that was not.
    pub(crate) held_until: Tick,
}

impl Reading {
    /// The serial of one whose home is not asked.
    pub(crate) const NOT_ASKED: u32 = 0;

    /// When it is to be answered, whatever its stream does; [`NEVER`] if that depends on the time others are held.
    fn expires_at(&self) -> Tick {
        let bearer = self.bearer.as_ref();
        bearer
            .map_or(NEVER, |one| one.expires_at)
            .min(self.held_until)
    }
}

/// The requests of a shard that read streams.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    under_way: HashMap<u32, Box<Reading>>,
    serial: u32,
    /// Connections whose answer has left, and which have something to do.
    next: Vec<Key>,
}

impl Reads {
    /// Whether a connection has a request under way.
    pub(crate) fn is_reading(&self, index: u32) -> bool {
        !self.under_way.is_empty() && self.under_way.contains_key(&index)
    }

    pub(crate) fn len(&self) -> usize {
        self.under_way.len()
    }

    pub(crate) fn forget(&mut self, index: u32) {
        if !self.under_way.is_empty() {
            self.under_way.remove(&index);
        }
    }

    /// Whether a turn has something to do for it at once.
    pub(crate) fn has_next(&self) -> bool {
        !self.next.is_empty()
    }
}

impl<R: Reactor> Shard<R> {
    /// Begins to answer a request. With a `token`, it has to be found out first whose it is. `behind` is what the client sent after
    /// it.
    pub(crate) fn begin_read(
        &mut self,
        key: Key,
        reading: Box<Reading>,
        token: Option<Box<str>>,
        behind: &[u8],
        now: Now,
    ) {
        if !behind.is_empty() {
            hit!(RequestBehind);
            self.keep_behind(key, behind, now);
            if self.hub.connection(key.index).phase == Phase::Closing {
                return;
            }
        }
        match token {
            Some(token) => self.verify_reader(key, reading, token, now),
            None => self.start_reading(key, reading, now),
        }
    }

    /// Keeps a request until somebody has answered what is asked about it: the ticket names the question.
    pub(crate) fn hold_reading(&mut self, key: Key, mut reading: Box<Reading>, now: Now) -> Ticket {
        self.hub.begin_reading(key.index, now);
        let ticket = self.ticket_of(key, &mut reading);
        self.reads.under_way.insert(key.index, reading);
        ticket
    }

    /// A new ticket for a question about a request.
    fn ticket_of(&mut self, key: Key, reading: &mut Reading) -> Ticket {
        self.reads.serial = self.reads.serial.wrapping_add(1).max(1);
        reading.serial = self.reads.serial;
        Ticket {
            shard: u16::try_from(self.index).expect("at most 256 shards"),
            connection: key,
            command: reading.serial,
        }
    }

    /// The request that a ticket is for, if it still waits for the answer.
    pub(crate) fn take_reading(&mut self, ticket: Ticket) -> Option<Box<Reading>> {
        let key = ticket.connection;
        let reading = self.reads.under_way.get(&key.index)?;
        let is_asked = reading.serial == ticket.command && self.hub.contains(key);
        is_asked.then(|| self.reads.under_way.remove(&key.index))?
    }

    /// Answers a request whose client may read, or holds it.
    pub(crate) fn start_reading(&mut self, key: Key, mut reading: Box<Reading>, now: Now) {
        reading.serial = Reading::NOT_ASKED;
        self.hub.begin_reading(key.index, now);
        let known = self.hub.find_subscription(key.index, &reading.channel);
        if known.is_none() {
            self.leave_streams(key);
        }
        if reading.live == Live::No {
            return self.ask_stream(key, reading);
        }
        match self.hub.subscribe(key.index, &reading.channel) {
            Subscribed::Ready { .. } | Subscribed::Already(_) => {
                self.read_joined(key, reading, now)
            }
            Subscribed::Pending => self.await_join(key, reading),
            Subscribed::Ask { name, serial } => {
                self.await_join(key, reading);
                self.send_join(name, serial);
            }
        }
    }

    /// Ends the subscriptions of earlier requests of a connection.
    pub(crate) fn leave_streams(&mut self, key: Key) {
        self.hub
            .leave_streams(key.index, &mut self.turn_end.emptied_channels);
    }

    fn await_join(&mut self, key: Key, reading: Box<Reading>) {
        let subscription = self.subscription_of(key, &reading);
        self.hub.set_waiting(subscription);
        self.reads.under_way.insert(key.index, reading);
    }

    fn subscription_of(&self, key: Key, reading: &Reading) -> SubscriptionId {
        let subscription = self.hub.find_subscription(key.index, &reading.channel);
        subscription.expect("a live reader has a subscription")
    }

    /// The channel of a live request has joined.
    pub(crate) fn handle_reader_joined(&mut self, key: Key, now: Now) {
        let reading = self.reads.under_way.get(&key.index);
        // Whoever is asked about is not let in by a channel that has joined.
        if reading.is_none_or(|reading| reading.serial != Reading::NOT_ASKED) {
            return;
        }
        if let Some(reading) = self.reads.under_way.remove(&key.index) {
            self.read_joined(key, reading, now);
        }
    }

    /// Answers, or holds, a live request if the shard knows enough. Otherwise asks the home.
    fn read_joined(&mut self, key: Key, reading: Box<Reading>, now: Now) {
        let subscription = self.subscription_of(key, &reading);
        self.hub.set_waiting(subscription);
        let Some(known) = self.hub.known_stream(&reading.channel) else {
            return self.ask_stream(key, reading);
        };
        // More may be on its way to this shard, or the end of a stream that has begun again. Whoever is held hears of that. But who
        // begins now gets nothing that was there before, and nobody is told that this is all, or the end, before the home says so.
        let at_tail = ReadFrom::After(known.position.stream_offset());
        if reading.live != Live::LongPoll || reading.from != at_tail || known.is_closed {
            return self.ask_stream(key, reading);
        }
        hit!(ReadKnown);
        self.park(key, &reading, known.position.offset, now);
    }

    /// Asks a channel's home what there is after the reader's offset.
    fn ask_stream(&mut self, key: Key, mut reading: Box<Reading>) {
        let ticket = self.ticket_of(key, &mut reading);
        let budget = self.settings.outbound_bytes_max as usize;
        let question = ReadStream {
            channel: reading.channel.clone(),
            asker: Asker::Session(ticket),
            from: reading.from,
            bytes_max: budget / PAGE_DIVISOR,
            publications_max: PAGE_PUBLICATIONS_MAX,
        };
        self.reads.under_way.insert(key.index, reading);
        self.metrics().stream_questions.add(1);
        let home = self.mesh.home_of(&question.channel);
        self.send_message(home, Message::ReadStream(Box::new(question)));
    }

    /// A home has answered [`Shard::ask_stream`].
    pub(crate) fn handle_stream_read(&mut self, ticket: Ticket, answer: StreamRead, now: Now) {
        let key = ticket.connection;
        let Some(reading) = self.take_reading(ticket) else {
            hit!(ReaderGone);
            return;
        };
        match answer {
            Ok(page) => self.tell_page(key, reading, page, now),
            Err(refused) => {
                let is_open = self.hub.connection(key.index).phase == Phase::Open;
                hit!(ReadRefused);
                if is_open {
                    // A stream of events whose head has left: its client comes back, and is told then.
                    return self.end_events(key, CloseReason::Answered, now);
                }
                let refused = match refused {
                    ReadRefused::NotFound => Refused::no_stream(),
                    ReadRefused::Unrecoverable(state) => {
                        Refused::gone(state.earliest.stream_offset().to_string())
                    }
                    ReadRefused::InvalidOffset => Refused::future_offset(),
                };
                self.refuse(key, refused, now);
            }
        }
    }

    fn tell_page(&mut self, key: Key, mut reading: Box<Reading>, page: StreamPage, now: Now) {
        if reading.live != Live::No {
            let subscription = self.subscription_of(key, &reading);
            let state = &page.state;
            self.hub
                .note_stream(subscription, &state.content_type, state.is_closed);
        }
        self.tell(key, &reading, &page.part(), &page.publications, now);
        let is_behind = reading.live == Live::Events && !page.is_at_tail();
        if is_behind && self.hub.connection(key.index).phase == Phase::Open {
            hit!(EventsBehind);
            reading.from = ReadFrom::After(page.next.stream_offset());
            // Asked again once what it was given has left.
            reading.serial = Reading::NOT_ASKED;
            self.reads.under_way.insert(key.index, reading);
        }
    }

    /// Tells a reader a part of its stream, or holds it if there is nothing to tell.
    fn tell(
        &mut self,
        key: Key,
        reading: &Reading,
        part: &StreamPart<'_>,
        kept: &[Kept],
        now: Now,
    ) {
        match reading.live {
            Live::No => self.answer_read(key, reading, part, kept, now),
            Live::Events => self.tell_events(key, reading, part, kept, now),
            Live::LongPoll if kept.is_empty() && !part.is_closed => {
                self.park(key, reading, part.to, now);
            }
            Live::LongPoll => {
                let settings = *self.hub.reader_settings();
                let (status, caching) = if kept.is_empty() {
                    (Status::NoContent, Caching::Never)
                } else {
                    (
                        Status::Ok,
                        Caching::Kept {
                            public: settings.is_public,
                        },
                    )
                };
                let cursor = Some(settings.cursor(reading.cursor, now));
                let persistence = self.persistence_of(reading);
                let bytes = part.answer(contents(kept), status, cursor, caching, persistence);
                self.metrics().poll_answers.add(1);
                self.answer_reader(key, bytes, persistence, now);
            }
        }
    }

    /// Holds a request of somebody who has all up to an offset.
    fn park(&mut self, key: Key, reading: &Reading, last: u64, now: Now) {
        hit!(Park);
        let reader = Reader {
            subscription: self.subscription_of(key, reading),
            last,
            cursor: reading.cursor,
            variant: reading.variant,
            expires_at: reading.expires_at(),
        };
        self.hub.park(key.index, reader, now);
    }

    /// Answers a request that is not live.
    fn answer_read(
        &mut self,
        key: Key,
        reading: &Reading,
        part: &StreamPart<'_>,
        kept: &[Kept],
        now: Now,
    ) {
        let settings = *self.hub.reader_settings();
        let caching = match reading.from {
            ReadFrom::Now => Caching::Never,
            _ if part.is_up_to_date && !part.is_closed => Caching::Revalidated,
            _ => Caching::Kept {
                public: settings.is_public,
            },
        };
        let known = reading.if_none_match.as_deref();
        let is_known = caching != Caching::Never
            && known.is_some_and(|known| etag_matches(known, &part.etag()));
        let status = if is_known {
            Status::NotModified
        } else {
            Status::Ok
        };
        let cursor = Some(settings.cursor(reading.cursor, now));
        let persistence = self.persistence_of(reading);
        let bytes = part.answer(contents(kept), status, cursor, caching, persistence);
        self.metrics().stream_reads.add(1);
        self.answer_reader(key, bytes, persistence, now);
    }

    /// Opens a stream of events, if that is not done yet, and tells what there is. It is live once it is caught up.
    fn tell_events(
        &mut self,
        key: Key,
        reading: &Reading,
        part: &StreamPart<'_>,
        kept: &[Kept],
        now: Now,
    ) {
        let is_new = self.hub.connection(key.index).phase != Phase::Open;
        let bearer = reading.bearer.as_ref().filter(|_| is_new);
        if bearer.is_some_and(|bearer| self.is_revoked(bearer)) {
            hit!(ReadRefused);
            return self.refuse(key, Refused::revoked(), now);
        }
        let mut bytes = Vec::new();
        if is_new {
            let retry_ms = self.hub.next_retry_ms();
            bytes = StreamPart::events_head(part.media_type, reading.variant, retry_ms);
        }
        let cursor = self.hub.reader_settings().cursor(reading.cursor, now);
        bytes.extend(part.events(contents(kept), cursor, reading.variant));
        let queued = self.hub.enqueue(key.index, Chunk::Response(bytes.into()));
        match queued {
            // It has no head yet, so it has no last chunk either.
            Err(_) if is_new => {
                hit!(AnswerTooMuch);
                return self.refuse(key, Refused::overloaded().of_stream(), now);
            }
            Err(overflow) => return self.close_stream(key, overflow.into(), now),
            Ok(()) if is_new => self.open_events(key, reading, now),
            Ok(()) => {}
        }
        if part.is_up_to_date {
            let subscription = self.subscription_of(key, reading);
            self.hub.begin_delivering(subscription, part.to);
        }
        if part.is_closed {
            self.end_events(key, CloseReason::Answered, now);
        }
    }

    /// The head of a stream of events is queued.
    fn open_events(&mut self, key: Key, reading: &Reading, now: Now) {
        let bearer = reading.bearer.clone();
        self.hub
            .open_events(key.index, reading.variant, bearer, now);
        // What the client sent behind its request is of no use: nobody would answer it.
        drop(self.inputs.take(&mut self.hub, key.index));
        self.note_connected(key, now);
        self.note_event(Some(key), now, |shard| shard.upgraded(key));
        self.metrics().event_streams_opened.add(1);
    }

    /// How a request's connection goes on: while the shard drains, it does not.
    fn persistence_of(&self, reading: &Reading) -> Persistence {
        if self.admission.drain.is_some() {
            Persistence::Close
        } else {
            reading.variant.persistence()
        }
    }

    /// Answers a request. Its connection takes the next one, or ends.
    fn answer_reader(&mut self, key: Key, bytes: Vec<u8>, persistence: Persistence, now: Now) {
        if self
            .hub
            .enqueue(key.index, Chunk::Response(bytes.into()))
            .is_err()
        {
            hit!(AnswerTooMuch);
            return self.refuse(key, Refused::overloaded().of_stream(), now);
        }
        match persistence {
            Persistence::Close => self.close_after_queue(key, CloseReason::Answered, now),
            Persistence::KeepAlive | Persistence::KeepAliveSaid => {
                self.hub.end_answer(key.index, now);
            }
        }
    }

    /// A delivery, or its time-out, has answered a held request.
    pub(crate) fn finish_answer(&mut self, index: u32, now: Now) {
        let Some(key) = self.hub.key_of(index) else {
            return;
        };
        let connection = self.hub.connection(index);
        if connection.phase != Phase::Open || connection.transport() != Transport::LongPoll {
            hit!(AnswerFailed);
            return;
        }
        if self.hub.variant_of(index).persistence() == Persistence::Close {
            return self.close_after_queue(key, CloseReason::Answered, now);
        }
        self.hub.end_answer(index, now);
        self.note_answer_left(key);
    }

    /// Lists a connection whose answer has left, if the next request has come.
    fn note_answer_left(&mut self, key: Key) {
        let connection = self.hub.connection(key.index);
        if !connection.has_outbound() && connection.has_input() {
            self.reads.next.push(key);
        }
    }

    /// The queue of a connection is empty: the next request of a reader may begin, or the next page.
    pub(crate) fn note_queue_left(&mut self, index: u32) {
        let connection = self.hub.connection(index);
        let waits = match connection.phase {
            Phase::Handshake => connection.is_kept_alive() && connection.has_input(),
            Phase::Open => {
                connection.transport() == Transport::Events && self.reads.is_reading(index)
            }
            Phase::Joining | Phase::Closing => false,
        };
        if waits && let Some(key) = self.hub.key_of(index) {
            self.reads.next.push(key);
        }
    }

    /// Begins what waited until an answer had left.
    pub(crate) fn begin_next(&mut self, now: Now) {
        for key in std::mem::take(&mut self.reads.next) {
            if !self.hub.contains(key) {
                continue;
            }
            let connection = self.hub.connection(key.index);
            match connection.phase {
                Phase::Handshake if !connection.has_outbound() => {
                    if let Input::Head(mut head) = self.inputs.take(&mut self.hub, key.index) {
                        hit!(NextRequest);
                        self.handle_request(key, &mut head, now);
                    }
                }
                Phase::Open => {
                    if let Some(reading) = self.reads.under_way.remove(&key.index) {
                        self.ask_stream(key, reading);
                    }
                }
                _ => {}
            }
        }
    }

    /// Keeps what comes behind a request that is not answered.
    pub(crate) fn keep_behind(&mut self, key: Key, bytes: &[u8], now: Now) {
        let mut behind = match self.inputs.take(&mut self.hub, key.index) {
            Input::Head(behind) => behind,
            _ => Vec::new(),
        };
        if behind.len() + bytes.len() > BEHIND_BYTES_MAX {
            hit!(TooMuchBehind);
            return self.refuse(key, Refused::pipelined(), now);
        }
        behind.extend_from_slice(bytes);
        if !self
            .inputs
            .keep(&mut self.hub, key.index, Input::Head(behind))
        {
            self.note_happening(key.index, Happening::Overloaded);
            self.refuse(key, Refused::overloaded().of_stream(), now);
        }
    }

    /// Held requests have waited for as long as they may: those that are alike get the same bytes.
    pub(crate) fn end_polls(&mut self, mut due: Vec<u32>, now: Now) {
        due.retain(|&index| self.hub.connection(index).transport() == Transport::LongPoll);
        due.sort_unstable_by_key(|&index| self.hub.idle_key(index));
        let over_at = due.iter().map(|&index| self.hub.poll_end(index));
        self.turn_end.polls_over.extend(over_at);
        self.metrics().poll_timeouts.add(due.len() as u64);
        let mut rest = &due[..];
        while let Some(&first) = rest.first() {
            let idle_key = self.hub.idle_key(first);
            let count = if self.hub.variant_of(first).has_own_cursor() {
                1
            } else {
                rest.partition_point(|&index| self.hub.idle_key(index) == idle_key)
            };
            let (alike, others) = rest.split_at(count);
            self.send_idle_answer(alike, now);
            rest = others;
        }
    }

    fn send_idle_answer(&mut self, alike: &[u32], now: Now) {
        let bytes = self.hub.idle_answer(alike[0], false, false, now);
        self.send_alike(alike, &bytes, now);
        for &index in alike {
            self.finish_answer(index, now);
        }
    }

    /// Streams of events are told that they are alive.
    pub(crate) fn ping_events(&mut self, mut due: Vec<u32>, now: Now) {
        due.sort_by_key(|&index| self.hub.variant_of(index).is_chunked());
        self.metrics().pings.add(due.len() as u64);
        let split = due.partition_point(|&index| !self.hub.variant_of(index).is_chunked());
        for alike in [&due[..split], &due[split..]] {
            if let Some(&first) = alike.first() {
                let bytes = self.hub.events_comment(first).into();
                self.send_alike(alike, &bytes, now);
            }
        }
    }

    /// Ends a stream of events behind what is queued.
    pub(crate) fn end_events(&mut self, key: Key, reason: CloseReason, now: Now) {
        let last = self.hub.events_end(key.index);
        self.close_gracefully(key, reason, last, now);
    }

    /// Streams have ended: those who wait for more are told.
    pub(crate) fn end_readers(&mut self, ended: Vec<EndedReader>, now: Now) {
        for reader in ended {
            let Some(key) = self.hub.key_of(reader.connection) else {
                continue;
            };
            let connection = self.hub.connection(key.index);
            if connection.phase != Phase::Open || !connection.transport().reads_streams() {
                continue;
            }
            let is_poll = connection.transport() == Transport::LongPoll;
            match reader.kind {
                _ if reader.is_late && is_poll => self.ask_again(key, now),
                StreamEndKind::Deleted if is_poll => {
                    hit!(PollOfDeleted);
                    self.refuse(key, Refused::no_stream(), now);
                }
                StreamEndKind::Closed if !reader.is_late => self.tell_closed(key, is_poll, now),
                // Its client comes back, and is told then what there is.
                _ => self.end_events(key, CloseReason::Answered, now),
            }
        }
    }

    /// A held request came so late that its stream may be the next one of that name, although the shard did not know that yet.
    fn ask_again(&mut self, key: Key, now: Now) {
        hit!(PollAsksAgain);
        let (channel, epoch, reader) = self.hub.unpark(key.index, now);
        let position = Position {
            epoch,
            offset: reader.last,
        };
        let reading = Box::new(Reading {
            serial: Reading::NOT_ASKED,
            channel: (*channel).into(),
            from: ReadFrom::After(position.stream_offset()),
            live: Live::LongPoll,
            cursor: reader.cursor,
            if_none_match: None,
            variant: reader.variant,
            bearer: None,
            held_until: reader.expires_at,
        });
        self.hub.begin_reading(key.index, now);
        self.ask_stream(key, reading);
    }

    fn tell_closed(&mut self, key: Key, is_poll: bool, now: Now) {
        hit!(ReaderOfClosed);
        let bytes = self.hub.idle_answer(key.index, false, true, now);
        if let Err(overflow) = self.hub.enqueue(key.index, Chunk::Shared(bytes)) {
            return self.close_stream(key, overflow.into(), now);
        }
        if is_poll {
            self.metrics().poll_answers.add(1);
            self.finish_answer(key.index, now);
        } else {
            self.end_events(key, CloseReason::Answered, now);
        }
    }

    /// The last bytes of a reader whose connection ends.
    pub(crate) fn last_of_reader(&mut self, key: Key, now: Now) -> Last {
        if self.hub.connection(key.index).transport() == Transport::Events {
            return Last::Bytes(self.hub.events_end(key.index));
        }
        if self.hub.is_answered(key.index) {
            return Last::Nothing;
        }
        Last::Bytes(self.hub.idle_answer(key.index, true, false, now).to_vec())
    }
}

fn contents(kept: &[Kept]) -> impl Iterator<Item = &Content> {
    kept.iter().map(|kept| &*kept.content)
}
