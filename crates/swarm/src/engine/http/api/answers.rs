//! Answers to the requests of flows, and connections that end.

use super::super::exchange::{Content, Exchange, Trouble};
use super::super::{Flags, exchange};
use super::Asked;
use crate::clock::Nanos;
use crate::engine::crowd::{Partial, World};
use crate::engine::flows::plan::Wrong;
use crate::engine::plan::HttpPlan;
use crate::engine::tls::TlsFailure;
use crate::failure::Failure;
use myriad_reactor::{Close, Reactor, Token};
use std::borrow::Cow;
use std::sync::Arc;

/// The server has waited for too long for the request, which may be sent again (RFC 9110, section 15.5.9).
const REQUEST_TIMEOUT: u16 = 408;

/// How an answer with that status begins.
const TIMEOUT_LINES: [&[u8; 12]; 2] = [b"HTTP/1.1 408", b"HTTP/1.0 408"];

/// A whole answer.
struct Whole {
    status: u16,
    /// As much of the body as is looked at.
    body: Vec<u8>,
    /// The server keeps the connection.
    keeps: bool,
}

impl World {
    /// Takes bytes of an answer.
    pub(in crate::engine::http) fn handle_answer_to_request<R: Reactor>(
        &mut self,
        reactor: &mut R,
        token: Token,
        bytes: &[u8],
        now: Nanos,
    ) {
        let asked = self.api_mut().under_way.get(&token.index);
        let asked = asked.filter(|asked| asked.attempt == Some(token.generation));
        let Some(flow) = asked.map(|asked| asked.key.flow) else {
            return self.handle_unasked(reactor, token, bytes);
        };
        let crossed;
        let bytes = match self.take_unasked(token.index, bytes) {
            None => bytes,
            Some(unasked) => match Unasked::of(&unasked) {
                Unasked::Undecided => return self.keep_unasked(token.index, unasked),
                // Nobody can tell any more what the answer to the request is.
                Unasked::Other => {
                    let trouble = Trouble {
                        failure: Failure::AnswerInvalid,
                        said: unasked,
                    };
                    return self.fail_request(reactor, token, &trouble);
                }
                Unasked::Timeout => {
                    crossed = unasked;
                    &crossed[..]
                }
            },
        };
        let is_to_head = self.request_plan(flow).is_to_head();
        let mut exchange = self.take_answer_to_request(token.index);
        let plan = Arc::clone(&self.plan);
        let http = plan.http.as_ref().expect("the run speaks HTTP");
        let mut input = bytes;
        let is_whole = match read(&mut exchange, &mut input, http, is_to_head) {
            Ok(is_whole) => is_whole,
            Err(trouble) => return self.fail_request(reactor, token, &trouble),
        };
        // By the head alone: the connection may break before the body has come.
        if self.repeat_behind_timeout(reactor, token, exchange.status(), now) {
            return;
        }
        match is_whole {
            true => self.end_request(reactor, token, Whole::of(*exchange), input, now),
            false => self.keep_answer_to_request(reactor, token, exchange),
        }
    }

    fn take_answer_to_request(&mut self, index: u32) -> Box<Exchange> {
        match self.take_partial(index) {
            Some(Partial::Exchange(exchange)) => exchange,
            _ => Box::default(),
        }
    }

    fn keep_answer_to_request<R: Reactor>(
        &mut self,
        reactor: &mut R,
        token: Token,
        exchange: Box<Exchange>,
    ) {
        self.partial_bytes += exchange.bytes();
        let partial = Partial::Exchange(exchange);
        self.partials.insert(token.index, partial);
        if self.partial_bytes > self.plan.partial_bytes_max {
            let trouble = Trouble {
                failure: Failure::Unfinished,
                said: b"unfinished answers take more than is kept of them".to_vec(),
            };
            self.fail_request(reactor, token, &trouble);
        }
    }

    /// Repeats a request behind an answer of this status, if that says that the server has waited for it in vain. False if it was
    /// repeated before, or if the flow expects that status.
    fn repeat_behind_timeout<R: Reactor>(
        &mut self,
        reactor: &mut R,
        token: Token,
        status: Option<u16>,
        now: Nanos,
    ) -> bool {
        if status != Some(REQUEST_TIMEOUT) {
            return false;
        }
        let asked = &self.api_mut().under_way[&token.index];
        let flow = asked.key.flow;
        let expected = &self.request_plan(flow).expected.statuses;
        let is_repeated =
            !expected.contains(&REQUEST_TIMEOUT) && self.repeat_request(reactor, token, now);
        self.totals.http.answers += u64::from(is_repeated);
        is_repeated
    }

    /// A request has its answer. `rest` has come behind it.
    fn end_request<R: Reactor>(
        &mut self,
        reactor: &mut R,
        token: Token,
        whole: Whole,
        rest: &[u8],
        now: Nanos,
    ) {
        let index = token.index as usize;
        self.totals.http.answers += 1;
        let asked = self.take_asked(token.index).expect("it is under way");
        self.count_answer(token.index, &asked, &whole, now);
        // A server that answers before it has the whole request may never read the rest of it.
        let is_whole_request = !self.outbox.has_unsent(token.index);
        if !whole.keeps || asked.request.closes || !is_whole_request {
            self.note_unasked(rest);
            return self.go_dormant(reactor, index, Close::Orderly);
        }
        self.http_mut().set(index, Flags::ANSWERED, true);
        if !rest.is_empty() {
            self.handle_unasked(reactor, token, rest);
        }
    }

    fn count_answer(&mut self, index: u32, asked: &Asked, whole: &Whole, now: Nanos) {
        let plan = self.plan.flows.clone().expect("the run has flows");
        let flow = &plan.flows[asked.key.flow];
        let expected = &plan.request_of(asked.key.flow).expected;
        let judged = expected.judge(whole.status, &whole.body);
        self.count_asked(asked.key.flow, now, |figures| match judged {
            Ok(()) => figures.note_answered(now.since(asked.due), now.since(asked.sent), true),
            Err(_) => figures.note_refused(true),
        });
        if flow.pace.think().is_some() {
            self.flow_answers.push((index, asked.key));
        }
        if let Err(Wrong { failure, reason }) = judged {
            let said = || format!("{}: {reason} {}", flow.name, beginning(&whole.body));
            self.note_fault(failure, said);
        }
    }

    /// What came is no answer: nothing is known of the connection any more.
    fn fail_request<R: Reactor>(&mut self, reactor: &mut R, token: Token, trouble: &Trouble) {
        let why = format!("what came cannot be read: {}", beginning(&trouble.said));
        self.abandon_request(token.index, trouble.failure, &why);
        self.go_dormant(reactor, token.index as usize, Close::Reset);
    }

    /// Something came that nobody asked for. It is no answer to the next request (RFC 9112, section 9.2), so the connection ends.
    /// A server that has waited for a request for too long may say so.
    fn handle_unasked<R: Reactor>(&mut self, reactor: &mut R, token: Token, bytes: &[u8]) {
        let before = self.take_unasked(token.index, bytes);
        let unasked = before.unwrap_or_else(|| bytes.to_vec());
        if Unasked::of(&unasked) == Unasked::Undecided {
            return self.keep_unasked(token.index, unasked);
        }
        self.note_unasked(&unasked);
        self.go_dormant(reactor, token.index as usize, Close::Orderly);
    }

    fn note_unasked(&mut self, bytes: &[u8]) {
        if Unasked::of(bytes) == Unasked::Other {
            self.note_fault(Failure::AnswerInvalid, || {
                format!("without a request: {}", beginning(bytes))
            });
        }
    }

    /// The beginning of what nobody asked for, with these bytes behind it; none if nothing of that kind was kept.
    fn take_unasked(&mut self, index: u32, bytes: &[u8]) -> Option<Vec<u8>> {
        if !matches!(self.partials.get(&index), Some(Partial::Head(_))) {
            return None;
        }
        let Some(Partial::Head(mut unasked)) = self.take_partial(index) else {
            unreachable!("it is a head")
        };
        unasked.extend_from_slice(bytes);
        Some(unasked)
    }

    /// Keeps the beginning of what nobody asked for until it is known whether it says 408.
    fn keep_unasked(&mut self, index: u32, unasked: Vec<u8>) {
        assert!(unasked.len() < TIMEOUT_LINES[0].len());
        self.partials.insert(index, Partial::Head(unasked));
    }

    /// The server ended or broke the connection of an open terminal.
    pub(in crate::engine::http) fn handle_request_end<R: Reactor>(
        &mut self,
        reactor: &mut R,
        index: usize,
        failure: Failure,
        now: Nanos,
    ) {
        let number = u32::try_from(index).expect("terminals are at most 2^32");
        let token = self.terminals[index].token(number);
        let was_answered = self.http_mut().has(index, Flags::ANSWERED);
        let Some(asked) = self.api_mut().under_way.get(&number) else {
            return self.end_unused(reactor, index, failure);
        };
        let (flow, is_written) = (asked.key.flow, asked.is_written);
        let exchange = self.take_answer_to_request(number);
        if failure == Failure::LostEnd && exchange.lasts_until_end() {
            let whole = Whole {
                keeps: false,
                ..Whole::of(*exchange)
            };
            return self.end_request(reactor, token, whole, b"", now);
        }
        // A server may end a kept connection just when the next request is on its way.
        let was_kept = was_answered && exchange.is_fresh() && failure.is_lost_connection();
        let may_repeat = !is_written || self.request_plan(flow).may_be_done_twice();
        if was_kept && may_repeat && self.repeat_request(reactor, token, now) {
            return;
        }
        let why = match exchange.is_fresh() {
            true => format!("the connection ended without an answer ({failure})"),
            false => format!("the connection ended within the answer ({failure})"),
        };
        let failure = match failure {
            Failure::Tls(TlsFailure::Truncated) => failure,
            _ => Failure::Call(0),
        };
        self.abandon_request(number, failure, &why);
        self.go_dormant(reactor, index, Close::Reset);
    }

    /// A connection ended that was waiting for a request. Servers and networks end what is not used; anything else is a failure.
    fn end_unused<R: Reactor>(&mut self, reactor: &mut R, index: usize, failure: Failure) {
        if !failure.is_lost_connection() && failure != Failure::LostTimeout {
            self.note_fault(failure, || "between two requests".to_owned());
        }
        let how = match failure {
            Failure::LostEnd => Close::Orderly,
            _ => Close::Reset,
        };
        self.go_dormant(reactor, index, how);
    }
}

impl Whole {
    /// What has come of an answer, of which no more comes. It has a head.
    fn of(exchange: Exchange) -> Self {
        let answer = exchange.answer.expect("it has a head");
        let Content::Whole(status, body) = answer.content else {
            unreachable!("requests of flows are answered as a whole")
        };
        Self {
            status,
            body,
            keeps: answer.keeps,
        }
    }
}

/// Reads an answer. False: more of it is to come.
fn read(
    exchange: &mut Exchange,
    input: &mut &[u8],
    plan: &HttpPlan,
    is_to_head: bool,
) -> Result<bool, Trouble> {
    if exchange.answer.is_none() && !exchange.read_head(input, plan)? {
        return Ok(false);
    }
    if is_to_head {
        return Ok(true);
    }
    let answer = exchange.answer.as_mut().expect("it was read");
    loop {
        let data = answer.body.next_data(input);
        let data = data.map_err(|error| Trouble::invalid(error.sentence()))?;
        let Some(data) = data else { break };
        if let Content::Whole(_, kept) = &mut answer.content {
            let room = plan.answer_bytes_max.saturating_sub(kept.len());
            kept.extend_from_slice(&data[..data.len().min(room)]);
        }
    }
    Ok(answer.body.is_done())
}

/// What came that nobody asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unasked {
    /// Too short to tell.
    Undecided,
    /// An answer with 408.
    Timeout,
    Other,
}

impl Unasked {
    fn of(bytes: &[u8]) -> Self {
        let agrees = |line: &[u8; 12]| bytes.iter().zip(line).all(|(byte, wanted)| byte == wanted);
        match TIMEOUT_LINES.into_iter().any(agrees) {
            true if bytes.len() < TIMEOUT_LINES[0].len() => Self::Undecided,
            true => Self::Timeout,
            false => Self::Other,
        }
    }
}

/// What came, or its beginning, for people.
fn beginning(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(&bytes[..bytes.len().min(exchange::SAID_BYTES_MAX)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_408_is_known_once_its_status_has_come() {
        let said = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\n\r\n";
        for end in 0..said.len() {
            let expected = match end {
                0..12 => Unasked::Undecided,
                _ => Unasked::Timeout,
            };
            assert_eq!(Unasked::of(&said[..end]), expected, "{end} bytes");
        }
        let other = b"HTTP/1.0 408 Request Time-out\r\n";
        assert_eq!(Unasked::of(other), Unasked::Timeout);
        for other in ["HTTP/1.1 400", "HTTP/1.1 200 OK\r\n", "408", "\x15\x03"] {
            assert_eq!(Unasked::of(other.as_bytes()), Unasked::Other, "{other}");
        }
    }
}
