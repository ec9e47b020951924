//! A connection of a reader: its requests, one behind the other, and what it reads.

use super::answer::Answer;
use super::events::{Event, Events};
use super::facts::{Facts, ROOMS};
use super::limited::Charges;
use super::request::{Found, From, Live, Request};
use crate::secured::Net;
use myriad_reactor::sim::{PeerEnd, PeerId, Prng};
use std::collections::VecDeque;

/// More than a connection may send behind a request that is not answered.
const FLOOD_BYTES: usize = 17 * 1024;

#[derive(Debug)]
pub(super) struct Reader {
    pub(super) id: PeerId,
    pub(super) number: usize,
    /// What it has not sent.
    outbox: VecDeque<u8>,
    /// Requests without a whole answer.
    pub(super) asked: VecDeque<Request>,
    received: Vec<u8>,
    /// Those that have one.
    pub(super) charges: Charges,
    /// The answer to the first request, which goes on.
    pub(super) events: Option<Events>,
    pub(super) found: Vec<Found>,
    pub(super) connected_at: u64,
    /// When the request was sent that was answered last.
    pub(super) last_asked_at: Option<u64>,
    pub(super) is_stalled: bool,
    /// It sends nothing more, or has sent what is no request.
    pub(super) has_ended: bool,
    pub(super) has_flooded: bool,
    /// It has sent what is no good request behind one whose answer was to go on.
    pub(super) has_sent_behind: bool,
    /// The last answer of this connection has come.
    pub(super) is_over: bool,
    pub(super) end: Option<PeerEnd>,
    pub(super) received_bytes: u64,
}

impl Reader {
    pub(super) fn new(id: PeerId, number: usize, now: u64) -> Self {
        Self {
            id,
            number,
            outbox: VecDeque::new(),
            asked: VecDeque::new(),
            received: Vec::new(),
            charges: Charges::default(),
            events: None,
            found: vec![Found::default(); ROOMS.len()],
            connected_at: now,
            last_asked_at: None,
            is_stalled: false,
            has_ended: false,
            has_flooded: false,
            has_sent_behind: false,
            is_over: false,
            end: None,
            received_bytes: 0,
        }
    }

    /// Whether it may ask for more.
    fn may_ask(&self) -> bool {
        let goes_on = self
            .asked
            .back()
            .is_none_or(|last| last.live != Live::Events && !last.closes && last.faults.is_empty());
        // A stream of events may end at its time, and then the server answers what was sent behind it first.
        let is_answered_next = !self.has_sent_behind && !self.has_flooded;
        goes_on && is_answered_next && !self.has_ended && !self.is_over
    }

    pub(super) fn has_outbox(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// All its bytes have gone, and it reads on.
    pub(super) fn is_attentive(&self) -> bool {
        let speaks = !self.has_ended && !self.has_flooded && !self.is_over;
        speaks && self.outbox.is_empty() && !self.is_stalled && self.end.is_none()
    }

    /// No part of an answer has come without its rest.
    pub(super) fn has_all_whole(&self) -> bool {
        self.received.is_empty()
    }

    // What it does.

    pub(super) fn act(&mut self, net: &Net, facts: &mut Facts, prng: &mut Prng) {
        match prng.below(60) {
            0 if self.asked.is_empty() || prng.one_in(4) => self.leave(net, prng),
            1 => {
                net.stall(self.id);
                self.is_stalled = true;
            }
            2..8 => self.resume(net),
            8 if prng.one_in(3) => {
                self.write(net, usize::MAX);
                net.fin(self.id);
                self.has_ended = true;
            }
            9 if prng.one_in(4) && !self.has_ended => {
                self.has_flooded = true;
                self.outbox.extend([b'x'; FLOOD_BYTES]);
            }
            10..16 => self.write(net, prng.between(1, 80)),
            16..20 => self.ask(facts, prng),
            _ if self.asked.is_empty() => self.ask(facts, prng),
            _ => {}
        }
        if prng.one_in(3) {
            self.write(net, usize::MAX);
        }
    }

    fn ask(&mut self, facts: &mut Facts, prng: &mut Prng) {
        let is_behind_events = self
            .asked
            .back()
            .is_some_and(|last| last.live == Live::Events);
        if is_behind_events && !self.has_ended && prng.one_in(8) {
            self.outbox.extend(b"GET / HTTP/1.1\r\n\r\n");
            self.has_sent_behind = true;
            return;
        }
        if !self.may_ask() || self.asked.len() > 3 {
            return;
        }
        if !self.asked.is_empty() {
            facts.note("readers: a request comes behind another");
        }
        let request = Request::draw(&self.found, facts, prng);
        self.outbox.extend(request.text().bytes());
        self.asked.push_back(request);
    }

    /// Waits at once for what comes in a stream, if it has read it and waits for nothing else.
    pub(super) fn ask_about(&mut self, room: usize, net: &Net, facts: &mut Facts) {
        if let Some(at) = self.found[room].at
            && self.asked.is_empty()
            && self.outbox.is_empty()
            && self.may_ask()
        {
            self.send(net, Request::new(room, From::After(at), Live::Poll, facts));
        }
    }

    /// Sends a request at once.
    pub(super) fn send(&mut self, net: &Net, request: Request) {
        self.outbox.extend(request.text().bytes());
        self.asked.push_back(request);
        self.write(net, usize::MAX);
    }

    pub(super) fn write(&mut self, net: &Net, bytes_max: usize) {
        let count = self.outbox.len().min(bytes_max);
        if count > 0 && !self.has_ended {
            let bytes: Vec<u8> = self.outbox.drain(..count).collect();
            net.write(self.id, &bytes);
        }
    }

    pub(super) fn resume(&mut self, net: &Net) {
        net.resume(self.id);
        self.is_stalled = false;
    }

    /// Ends its connection in some way. It reads nothing more.
    pub(super) fn leave(&mut self, net: &Net, prng: &mut Prng) {
        match prng.below(3) {
            0 => net.reset(self.id),
            1 => net.time_out(self.id),
            _ => net.close(self.id),
        }
        self.end = Some(PeerEnd::Reset);
    }

    pub(super) fn is_gone(&self) -> bool {
        self.end.is_some()
    }

    // What it sees.

    /// Reads what has come; true if anything did.
    pub(super) fn receive(&mut self, net: &Net, facts: &mut Facts) -> bool {
        if self.is_gone() || self.is_stalled {
            return false;
        }
        let mut bytes = net.read(self.id);
        let end = net.end(self.id);
        // The end may have come with more bytes.
        bytes.extend(net.read(self.id));
        self.received_bytes += bytes.len() as u64;
        self.received.extend_from_slice(&bytes);
        while self.take_next(facts) {}
        if let Some(how) = end {
            if net.is_heard(self.id) {
                self.check_end(how, facts);
            }
            net.close(self.id);
            self.end = end;
        }
        !bytes.is_empty() || end.is_some()
    }

    /// Takes what is whole of what has come; false if nothing is.
    fn take_next(&mut self, facts: &mut Facts) -> bool {
        if self.received.is_empty() {
            return false;
        }
        if self.events.is_some() {
            self.take_events(facts);
            return false;
        }
        let Some((answer, length)) = Answer::of(&self.received) else {
            return false;
        };
        self.received.drain(..length);
        assert!(!self.is_over, "{} is told more: {answer:?}", self.number);
        let request = self.asked.front();
        let opens = request.is_some_and(|request| request.live == Live::Events);
        if opens && answer.status == 200 {
            self.events = Some(Events::new(&answer, facts.now));
            return true;
        }
        self.take_answer(&answer, facts);
        true
    }

    fn take_answer(&mut self, answer: &Answer, facts: &mut Facts) {
        let Some(request) = self.asked.pop_front() else {
            self.check_unasked(answer, facts);
            self.is_over = true;
            return;
        };
        self.check_answer(&request, answer, facts);
        self.last_asked_at = Some(request.sent_at);
        self.is_over = answer.closes;
        let found = &mut self.found[request.room];
        match answer.status {
            200 | 204 | 304 => {
                found.at = answer.next;
                found.cursor = answer.cursor;
                if request.live == Live::No && request.from != From::Now {
                    found.etag = answer.etag.clone().map(|etag| (etag, request.from));
                }
            }
            410 => found.at = answer.next,
            429 => {}
            _ => *found = Found::default(),
        }
    }

    fn take_events(&mut self, facts: &mut Facts) {
        let mut events = self.events.take().expect("a stream of events");
        events.take(&std::mem::take(&mut self.received));
        events.last_came_at = facts.now;
        let request = self.asked.front().expect("what it has asked for").clone();
        while let Some(event) = events.next() {
            match event {
                Event::Comment => {
                    assert!(!facts.settings.ping_interval.is_zero() || request.is_old);
                    facts.note("readers: events keep themselves alive");
                }
                Event::Part(part) => {
                    self.check_part(&request, &events, &part, facts);
                    events.at = Some(part.next);
                    events.is_closed = part.is_closed;
                    let found = &mut self.found[request.room];
                    found.at = Some(part.next);
                    found.cursor = part.cursor.or(found.cursor);
                }
            }
        }
        if events.is_over() {
            assert!(events.is_whole(), "events are whole");
            self.check_events_end(&request, &events, facts);
            self.is_over = true;
            self.asked.clear();
        } else {
            self.events = Some(events);
        }
    }
}
