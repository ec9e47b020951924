//! Readers of streams: from a request to its answer, and to the next request on the same connection. Changes `reads`, `inputs` and
//! `hub`; asks homes by `mesh`.
//!
//! A request that reads what is there asks the channel's home, and is answered. One that is live joins the channel first, as other
//! subscribers do. Then it asks the home what comes after its offset, and is held if that is nothing: the home's answer says up to
//! which position it speaks, and everything after that is delivered. A shard that knows the stream and its last offset need not ask
//! for whoever has read up to there.
//!
//! One request of a connection is under way at a time. The next one waits until the answer has left.

mod answers;
mod ends;
mod events;
mod limited;
mod pipeline;

use crate::marks::hit;
use crate::mesh::Message;
use crate::shard::Shard;
use crate::transport::Refused;
use myriad_hub::{
    Asker, Bearer, CloseReason, Kept, NEVER, Now, Phase, ReadFrom, ReadRefused, ReadStream, Reader,
    StreamPage, StreamPart, StreamRead, Subscribed, SubscriptionId, Ticket, Variant,
};
use myriad_reactor::Reactor;
use myriad_wheel::{Key, Tick};
use myriad_wire::reads::Live;
use std::collections::HashMap;

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
    /// A browser's `EventSource` asks again from where it was.
    pub(crate) comes_back: bool,
    /// The cursor that the client has shown.
    pub(crate) cursor: Option<u64>,
    /// Entity tags that it has.
    pub(crate) if_none_match: Option<Box<[u8]>>,
    pub(crate) variant: Variant,
    /// Whose token the request has; none without one.
    pub(crate) bearer: Option<Bearer>,
    /// The deadline of the held request that asks again; [`NEVER`] for a new one.
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
    /// How many more requests connections may send now.
    rates: limited::Rates,
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
            mark: 0,
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
        let Some(subscription) = self.subscription_of(key, &reading) else {
            return;
        };
        self.hub.set_waiting(subscription);
        self.reads.under_way.insert(key.index, reading);
    }

    fn subscription_of(&self, key: Key, reading: &Reading) -> Option<SubscriptionId> {
        let subscription = self.hub.find_subscription(key.index, &reading.channel);
        if subscription.is_none() {
            self.note_defect_of(key.index, "a live reader has a subscription");
        }
        subscription
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
        let Some(subscription) = self.subscription_of(key, &reading) else {
            return;
        };
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
                    ReadRefused::Behind => Refused::behind(),
                };
                self.refuse(key, refused, now);
            }
        }
    }

    fn tell_page(&mut self, key: Key, mut reading: Box<Reading>, page: StreamPage, now: Now) {
        if reading.live != Live::No {
            let Some(subscription) = self.subscription_of(key, &reading) else {
                return;
            };
            let state = &page.state;
            let is_open = self.is_open(&reading.channel);
            self.hub
                .note_stream(subscription, &state.content_type, state.is_closed, is_open);
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
            Live::LongPoll => self.answer_poll(key, reading, part, kept, now),
        }
    }

    /// Holds a request of somebody who has all up to an offset.
    fn park(&mut self, key: Key, reading: &Reading, last: u64, now: Now) {
        // A revocation is in force before its order comes, which finds those that are held.
        let bearer = reading.bearer.clone();
        if bearer.as_ref().is_some_and(|one| self.is_revoked(one)) {
            hit!(ReadRefused);
            return self.refuse(key, Refused::revoked(), now);
        }
        let Some(subscription) = self.subscription_of(key, reading) else {
            return;
        };
        hit!(Park);
        let reader = Reader {
            subscription,
            last,
            cursor: reading.cursor,
            variant: reading.variant,
            expires_at: reading.expires_at(),
            bearer,
        };
        self.hub.park(key.index, reader, now);
        self.end_poll_after_fin(key, now);
    }
}
