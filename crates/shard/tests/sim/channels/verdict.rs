//! Whether a reader was told what it should have been.

use super::answer::{Answer, numbers_in};
use super::events::{Events, Part};
use super::facts::{Facts, ROOMS};
use super::limited::Refusal;
use super::reader::Reader;
use super::request::{From, Live, Request};
use myriad_reactor::sim::PeerEnd;
use myriad_shard::StreamOffset;

impl Reader {
    /// What was told of a stream: where it begins and ends, and what is between.
    fn check_told(
        &self,
        request: &Request,
        before: Option<StreamOffset>,
        next: StreamOffset,
        numbers: &[usize],
        facts: &mut Facts,
    ) {
        let count = numbers.len() as u64;
        let first = next.offset.checked_sub(count);
        let first = first.expect("as many positions as publications");
        // What waits for a slow reader may go, where its channel's policy says so.
        let may_drop = request.live == Live::Events && facts.rules[request.room].may_drop;
        if let Some(before) = before {
            assert!(
                may_drop || before.offset == first && before.epoch == next.epoch,
                "reader {} of {}: nothing is left out, and nothing comes twice: {request:?}",
                self.number,
                ROOMS[request.room].name
            );
        }
        for (offset, number) in (first + 1..).zip(numbers) {
            facts.place(request.room, StreamOffset { offset, ..next }, *number);
        }
        facts.told += count;
        if count > 1 {
            facts.note("readers: several publications come in one answer");
        }
    }

    /// Whether an answer says rightly that nothing comes behind it.
    fn check_tail(&self, request: &Request, next: StreamOffset) {
        assert!(
            next.offset >= request.top(next.epoch),
            "reader {}: {} is known behind {next}: {request:?}",
            self.number,
            request.top(next.epoch)
        );
    }

    fn check_closed(&self, request: &Request, facts: &mut Facts) {
        assert!(
            facts.streams[request.room].may_be_closed,
            "reader {}: nobody closed {}",
            self.number, ROOMS[request.room].name
        );
        facts.note("readers: a stream is told to be closed");
    }

    pub(super) fn check_answer(&mut self, request: &Request, answer: &Answer, facts: &mut Facts) {
        let number = self.number;
        let is_faulty = !request.faults.is_empty();
        let refusal = answer.refusal();
        if matches!(answer.status, 200 | 204 | 304) || refusal != Refusal::None {
            self.charges.note(request, refusal, facts);
        }
        match answer.status {
            429 if refusal != Refusal::None => {
                assert!(answer.retry_after > Some(0), "a time: {answer:?}");
                assert!(!request.closes || answer.closes, "as it wishes: {answer:?}");
                return;
            }
            // The control plane has not said in time whose token it is.
            503 if request.token.is_some_and(|token| token.is_later)
                && facts.may_have_passed(request.sent_at, facts.settings.ask_timeout) =>
            {
                facts.note("readers: a token is not verified in time");
            }
            408 | 503 => return self.check_unasked(answer, facts),
            429 => assert!(self.has_flooded, "reader {number} has sent little"),
            400 | 403 if answer.misses_namespace() => {
                let expected = request.status_without_namespace(facts);
                assert_eq!(Some(answer.status), expected, "{request:?} {answer:?}");
                facts.note("readers: there is no such namespace");
            }
            status if is_faulty => {
                assert!(request.faults.contains(&status), "{status}: {request:?}");
            }
            200 | 204 => self.check_told_answer(request, answer, facts),
            304 => {
                assert_eq!(request.etag, answer.etag, "what it has");
                facts.note("readers: nothing has changed for an entity tag");
            }
            404 => {
                assert!(
                    request.may_be_missing(facts),
                    "reader {number}: {} is there: {request:?}",
                    ROOMS[request.room].name
                );
                if request.quiet.is_some() {
                    facts.note("readers: a held request is told that its stream has gone");
                }
            }
            410 => {
                assert!(facts.may_be_trimmed(request.room), "{request:?}");
                match request.from {
                    From::After(at) => assert_ne!(answer.next, Some(at), "a way on"),
                    // It was held at the end of a stream that was deleted, and has missed a part of the next one.
                    _ => assert_eq!(request.live, Live::Poll, "{request:?}"),
                }
                assert!(answer.next.is_some(), "a way on");
                facts.note("readers: a part of a stream has gone");
            }
            other => panic!("reader {number} is answered {other}: {request:?} {answer:?}"),
        }
        let ends = request.closes || answer.status >= 400;
        // Whoever is held may be told that there is nothing, and no memory.
        let may_end = facts.is_draining || facts.is_tight && answer.status == 204;
        assert!(answer.closes == ends || may_end, "{answer:?}");
        if request.is_old && answer.closes {
            facts.note("readers: an old client ends with its answer");
        }
    }

    fn check_told_answer(&self, request: &Request, answer: &Answer, facts: &mut Facts) {
        let number = self.number;
        let next = answer.next.expect("a way on");
        let numbers = match answer.status {
            200 => numbers_in(&answer.body),
            _ => Vec::new(),
        };
        let held_from = request.quiet.map(|(_, at)| at);
        let before = match request.from {
            From::After(at) => Some(at),
            From::Now => held_from,
            From::Start => None,
        };
        self.check_told(request, before, next, &numbers, facts);
        assert!(
            answer.cursor > request.cursor || request.live == Live::No,
            "a cursor grows: {answer:?}"
        );
        if request.from == From::Now && answer.status == 200 {
            let first = next.offset - numbers.len() as u64;
            assert!(first >= request.top(next.epoch), "{request:?}: {answer:?}");
        }
        // Whoever is held is told what its shard knows, and that does not know of a batch before it leaves.
        let waits_for_batch = request.live == Live::Poll && facts.rules[request.room].is_batched;
        if answer.is_up_to_date && !waits_for_batch {
            self.check_tail(request, next);
        }
        if answer.is_closed {
            self.check_closed(request, facts);
            assert!(answer.is_up_to_date, "the end is the end");
        }
        match (request.live, numbers.is_empty()) {
            (Live::Events, _) => unreachable!("it goes on"),
            (Live::No, _) => {
                assert_eq!(answer.status, 200);
                facts.note(if answer.is_up_to_date {
                    "readers: a read has all that is kept"
                } else {
                    "readers: a read has a page"
                });
            }
            (Live::Poll, true) => {
                assert_eq!(answer.status, 204);
                let has_expired = request.may_have_expired(facts);
                let poll_min = facts.settings.readers.poll_min;
                let is_over = facts.may_have_passed(request.sent_at, poll_min) || has_expired;
                // Whoever has ended its side is not held.
                let may_end = facts.is_draining || facts.is_tight || self.has_ended;
                let is_told = answer.is_closed || answer.closes && may_end || self.has_ended;
                assert!(is_over || is_told, "reader {number}: too early {request:?}");
                if is_over && !is_told {
                    facts.note("readers: a held request is over");
                }
            }
            (Live::Poll, false) => facts.note("readers: a held request is answered with data"),
        }
    }

    /// An answer without a cause in its request.
    pub(super) fn check_unasked(&self, answer: &Answer, facts: &mut Facts) {
        let since = self.last_asked_at.unwrap_or(self.connected_at);
        // The next request has to be whole before its connection has been idle for too long.
        let settings = &facts.settings;
        let timeout = match self.last_asked_at {
            Some(_) => settings.handshake_timeout.min(settings.readers.keep_alive),
            None => settings.handshake_timeout,
        };
        let is_late = facts.may_have_passed(since, timeout);
        let is_plausible = match answer.status {
            408 => is_late,
            503 => facts.is_draining || facts.may_end_strangers() || is_late,
            400 if self.has_sent_behind => true,
            400 | 431 | 429 => self.has_flooded,
            _ => false,
        };
        assert!(is_plausible, "reader {}: {answer:?}", self.number);
        if answer.status == 503 && !facts.is_draining && !is_late {
            facts.note("readers: there is no memory for an answer");
        }
        assert!(answer.closes, "{answer:?}");
    }

    pub(super) fn check_part(
        &self,
        request: &Request,
        events: &Events,
        part: &Part,
        facts: &mut Facts,
    ) {
        let before = match (events.at, request.from) {
            (Some(at), _) | (None, From::After(at)) => Some(at),
            _ => None,
        };
        self.check_told(request, before, part.next, &part.numbers, facts);
        if request.from == From::Now && events.at.is_none() {
            assert!(part.numbers.is_empty(), "it begins at the end");
            self.check_tail(request, part.next);
        }
        if part.is_up_to_date {
            self.check_tail(request, part.next);
        }
        if part.is_closed {
            self.check_closed(request, facts);
        }
        assert_eq!(part.cursor.is_none(), part.is_closed, "{part:?}");
        assert!(
            !part.numbers.is_empty() || part.is_closed || events.at.is_none(),
            "an event says something: {part:?}"
        );
        if !part.numbers.is_empty() {
            facts.note(if events.is_base64() {
                "readers: an event is told to a stream of bytes"
            } else {
                "readers: an event comes"
            });
        }
    }

    /// A stream of events ends for some reason.
    pub(super) fn check_events_end(&self, request: &Request, events: &Events, facts: &Facts) {
        let max = facts.settings.readers.events_max;
        let is_over = !max.is_zero() && facts.may_have_passed(request.sent_at, max)
            || request.may_have_expired(facts);
        let is_missing = request.may_be_missing(facts);
        // It is told so when it asks again.
        let is_trimmed = request.quiet.is_none() && facts.may_be_trimmed(request.room);
        let may_be_told_later = is_trimmed || facts.streams[request.room].may_be_closed;
        let is_slow = facts.is_tight;
        assert!(
            events.is_closed
                || is_over
                || is_missing
                || may_be_told_later
                || is_slow
                || facts.is_draining
                || self.has_ended,
            "reader {}: its events end: {request:?} {events:?}",
            self.number
        );
    }

    /// The server has ended the connection.
    pub(super) fn check_end(&self, how: PeerEnd, facts: &mut Facts) {
        let may_be_cut = self.has_flooded || facts.is_draining || facts.may_end_strangers();
        let is_cut = may_be_cut || self.is_over;
        if self.has_ended && how == PeerEnd::Fin && !is_cut {
            // A stream of events for an old client ends with its connection.
            let front = self.asked.front().filter(|_| self.events.is_none());
            assert!(
                front.is_none(),
                "{} sent all before its FIN: {front:?}",
                self.number
            );
            facts.note("readers: all answers come behind a FIN");
        }
        if self.has_ended || may_be_cut {
            return;
        }
        let since = self.last_asked_at.unwrap_or(self.connected_at);
        let since = self.asked.front().map_or(since, |front| front.alive_at);
        let has_lingered = how == PeerEnd::Reset && facts.may_have_lingered(since);
        if let (Some(events), Some(request)) = (&self.events, self.asked.front()) {
            assert!(request.is_old || has_lingered, "a last chunk comes first");
            assert!(events.is_whole() || has_lingered, "events are whole");
            // It took nothing of what was queued for it.
            if how == PeerEnd::Reset && facts.may_have_stalled(since) {
                return;
            }
            return self.check_events_end(request, events, facts);
        }
        let settings = &facts.settings;
        let is_idle = match self.last_asked_at {
            Some(at) => facts.may_have_passed(at, settings.readers.keep_alive),
            // It was told so, but its request came when the connection had gone: that is lost then.
            None => {
                let is_late = facts.may_have_passed(self.connected_at, settings.handshake_timeout);
                is_late && how == PeerEnd::Reset
            }
        };
        assert!(
            self.is_over || is_idle || has_lingered,
            "reader {} ends by {how:?} without a word: {:?}",
            self.number,
            self.asked
        );
        let is_whole = self.has_all_whole();
        assert!(how == PeerEnd::Reset || is_whole, "answers are whole");
    }
}
