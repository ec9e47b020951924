//! Terminals that speak HTTP: polls, which are held and answered one by one, streams, whose answer does not end, and those
//! that use an API by the requests of flows ([`api`]).
//!
//! A poll is answered with a delivery or by a time-out, and its terminal asks again at once, on the same connection where
//! the server keeps it. A terminal whose server ends an answer's connection, or ends a stream, connects again: it stays
//! one client all the while, open and expected to get what is published. Its *position* goes with each request, so that it
//! gets what it missed ([`positions`]).
//!
//! An idle terminal keeps five bytes here: its position, which all who have the same share, and its [`Flags`]. An answer
//! that is incomplete is kept as [`exchange::Exchange`], and only for as long.

mod api;
mod exchange;
mod hearing;
mod memory;
mod positions;
mod reader;
mod reopening;
mod request;
mod scan;

use crate::clock::Nanos;
use crate::engine::crowd::World;
use crate::engine::plan::{HttpKind, Plan};
use crate::engine::terminal::Phase;
use api::Api;
pub(in crate::engine) use exchange::Exchange;
pub(crate) use exchange::SAID_BYTES_MAX;
use memory::Memory;
use positions::{PositionId, Positions};
use request::Requests;
use std::collections::VecDeque;
use std::time::Duration;

/// How long a stream waits before it connects again, where the server gives no `retry`.
const REOPEN_STREAM_AFTER: Duration = Duration::from_secs(1);
/// The longest `retry` of a server that clients heed: one of days would end the run for them.
const REOPEN_STREAM_AFTER_MAX: Duration = Duration::from_secs(60);

/// How much later than expected an answer may come before it counts as late: what a server's timers may be late, with the way to
/// the client and back.
const HELD_TOLERANCE: Duration = Duration::from_millis(100);

/// Polls that a turn sends: no more, so that the crowd soon looks again for answers.
const ASKS_PER_TURN_MAX: usize = 256;

/// How much the crowd's own clock, of 100 microseconds, may be off.
const CLOCK_TOLERANCE: Duration = Duration::from_micros(200);

/// What is known of a terminal's connection, in one byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags(u8);

impl Flags {
    /// A whole answer has come on this connection: its server may end it before the next request arrives.
    const ANSWERED: u8 = 1;
    /// The stream comes in chunks.
    const CHUNKED: u8 = 2;
    /// Counted as connected because its first poll was sent; not answered yet.
    const UNCONFIRMED: u8 = 4;
    /// Between two connections.
    const REOPENING: u8 = 8;
    /// Open without a connection, until the next request.
    const DORMANT: u8 = 16;
    /// The request of a poll or a stream was queued on this connection, and its answer has not ended.
    const ASKED: u8 = 32;
    /// It stands in `asking`, whatever becomes of its connection.
    const ASKING: u8 = 64;

    fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    fn set(&mut self, flag: u8, value: bool) {
        if value {
            self.0 |= flag;
        } else {
            self.0 &= !flag;
        }
    }
}

/// What the terminals of one thread keep for HTTP.
#[derive(Debug)]
pub(super) struct HttpTerminals {
    /// By terminal.
    places: Vec<PositionId>,
    flags: Vec<Flags>,
    positions: Positions,
    requests: Requests,
    memory: Memory,
    /// What each target last gave as `retry`. Browsers keep one for each stream; clients of one target are told the same.
    retry_by_target: Vec<Option<Duration>>,
    /// The requests of flows, where terminals send those.
    api: Api,
    /// Terminals whose poll was answered and that ask again: each is there once at most.
    asking: VecDeque<u32>,
}

impl HttpTerminals {
    /// None where terminals speak something else.
    pub(super) fn new(plan: &Plan, count: u32) -> Option<Box<Self>> {
        plan.http.as_ref()?;
        Some(Box::new(Self {
            places: vec![PositionId::NONE; count as usize],
            flags: vec![Flags::default(); count as usize],
            positions: Positions::default(),
            requests: Requests::default(),
            memory: Memory::default(),
            retry_by_target: vec![None; plan.targets.len()],
            api: Api::default(),
            asking: VecDeque::new(),
        }))
    }

    fn has(&self, index: usize, flag: u8) -> bool {
        self.flags[index].has(flag)
    }

    fn set(&mut self, index: usize, flag: u8, value: bool) {
        self.flags[index].set(flag, value);
    }

    /// Whether a terminal goes on from somewhere.
    pub(super) fn has_position(&self, index: usize) -> bool {
        self.places[index] != PositionId::NONE
    }

    /// Whether a terminal is between two connections: it is counted as open, and has no socket or a new one.
    pub(super) fn is_reopening(&self, index: usize) -> bool {
        self.has(index, Flags::REOPENING)
    }

    /// Notes that a terminal is no longer between two connections. False if it was not.
    pub(super) fn take_reopening(&mut self, index: usize) -> bool {
        let was = self.is_reopening(index);
        self.set(index, Flags::REOPENING, false);
        was
    }

    fn move_to(&mut self, index: usize, position: PositionId) {
        self.positions.hold(position);
        let previous = std::mem::replace(&mut self.places[index], position);
        self.positions.release(previous);
    }
}

impl World {
    fn http_mut(&mut self) -> &mut HttpTerminals {
        self.http.as_mut().expect("the run speaks HTTP")
    }

    pub(super) fn is_polling(&self) -> bool {
        let http = self.plan.http.as_ref();
        http.is_some_and(|http| http.kind == HttpKind::LongPoll)
    }

    /// A terminal asks again as soon as this thread has read what has come.
    ///
    /// All terminals share a few processors, which people do not: what is sent for one of them would delay, in the figures, the answers
    /// that others have already. Those who ask are never kept waiting for long, as each answer is to a request.
    fn ask_soon(&mut self, index: usize) {
        let number = u32::try_from(index).expect("terminals are at most 2^32");
        let http = self.http_mut();
        if !http.has(index, Flags::ASKING) {
            http.set(index, Flags::ASKING, true);
            http.asking.push_back(number);
        }
    }

    /// Whether terminals are about to ask again.
    pub(super) fn is_asking(&self) -> bool {
        let asking = self.http.as_ref().map(|http| &http.asking);
        asking.is_some_and(|asking| !asking.is_empty())
    }

    /// Sends some of the polls that are due.
    pub(super) fn ask_again(&mut self, now: Nanos) {
        for _ in 0..ASKS_PER_TURN_MAX {
            let Some(number) = self.http_mut().asking.pop_front() else {
                return;
            };
            let index = number as usize;
            self.http_mut().set(index, Flags::ASKING, false);
            // It may have asked on another connection meanwhile.
            let has_asked = self.http_mut().has(index, Flags::ASKED);
            if self.terminals[index].phase == Phase::Open && !has_asked {
                self.send_request(index, now);
            }
        }
    }

    /// Queues a terminal's next request.
    fn send_request(&mut self, index: usize, now: Nanos) {
        let number = u32::try_from(index).expect("terminals are at most 2^32");
        let (target_index, is_polling) = (self.target_index(number), self.is_polling());
        let client = self.plan.number(self.part, number);
        let group = self.plan.group_in_url(client);
        let own = self.plan.has_own_heads.then_some(client);
        let plan = std::sync::Arc::clone(&self.plan);
        let http = self.http.as_mut().expect("the run speaks HTTP");
        http.set(index, Flags::ASKED, true);
        let (id, terminal) = (http.places[index], &mut self.terminals[index]);
        // A stream has waited since it began to connect.
        if is_polling {
            terminal.waiting_since = now.ticks();
        }
        let positions = &mut http.positions;
        let request = http
            .requests
            .bytes((target_index, group, own, id), positions, &plan);
        self.outbox.push(number, terminal.attempt, |out| {
            out.extend_from_slice(request);
        });
        self.totals.http.requests += 1;
    }

    /// An answer that is under way, or a fresh one: that of a poll, or the rest of a stream.
    fn take_exchange(&mut self, index: usize, is_open: bool) -> Box<Exchange> {
        let number = u32::try_from(index).expect("terminals are at most 2^32");
        if let Some(crate::engine::crowd::Partial::Exchange(exchange)) = self.take_partial(number) {
            return exchange;
        }
        let plan = self.plan.http.as_ref().expect("the run speaks HTTP");
        let http = self.http.as_ref().expect("the run speaks HTTP");
        if is_open && plan.kind != HttpKind::LongPoll {
            Box::new(Exchange::resumed(
                plan.kind,
                http.has(index, Flags::CHUNKED),
            ))
        } else {
            Box::default()
        }
    }

    /// Counts a poll that ended without a delivery, and judges how long it was held.
    fn note_time_out(&mut self, index: usize, now: Nanos) {
        let held = now.ticks().since(self.terminals[index].waiting_since);
        self.totals.http.timeouts += 1;
        self.notes.held_times.push(held);
        let plan = self.plan.http.as_ref().expect("the run speaks HTTP");
        if let Some((shortest, longest)) = plan.expect_held {
            let early = held + CLOCK_TOLERANCE < shortest;
            let late = held > longest + HELD_TOLERANCE;
            self.totals.http.held_early += u64::from(early);
            self.totals.http.held_late += u64::from(late);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // What an idle terminal costs here, beside the sixteen bytes of its record.
    const _: () = assert!(size_of::<PositionId>() + size_of::<Flags>() == 5);

    #[test]
    fn flags_are_apart() {
        let mut flags = Flags::default();
        flags.set(Flags::CHUNKED, true);
        flags.set(Flags::REOPENING, true);
        flags.set(Flags::CHUNKED, false);
        assert!(flags.has(Flags::REOPENING) && !flags.has(Flags::CHUNKED));
        assert!(!flags.has(Flags::ANSWERED) && !flags.has(Flags::UNCONFIRMED));
        assert!(!flags.has(Flags::ASKED) && !flags.has(Flags::ASKING));
    }
}
