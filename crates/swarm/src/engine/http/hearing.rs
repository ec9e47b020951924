//! What a terminal does with the bytes that came, and with the end of its connection.

use super::exchange::{Exchange, Trouble};
use super::memory::Memory;
use super::reader::{Heard, Progress, Reader, refusal_so_far};
use super::{Flags, HttpTerminals};
use crate::clock::Nanos;
use crate::engine::crowd::{Partial, World};
use crate::engine::terminal::Phase;
use crate::failure::Failure;
use myriad_reactor::{Close, Reactor, Token};
use std::sync::Arc;

/// What was read of an answer in one piece.
struct Piece<'a> {
    bytes: &'a [u8],
    /// What is left of them behind the end of the answer.
    rest: &'a [u8],
    /// The terminal was open, and had nothing incomplete before.
    was_at_rest: bool,
    /// The body of its stream comes in chunks.
    is_chunked: bool,
    heard: Heard,
    progress: Progress,
}

impl World {
    /// Takes bytes that a terminal of a run that speaks HTTP received.
    pub(in crate::engine) fn handle_http<R: Reactor>(
        &mut self,
        reactor: &mut R,
        token: Token,
        bytes: &[u8],
        now: Nanos,
    ) {
        if self.is_requesting() {
            return self.handle_answer_to_request(reactor, token, bytes, now);
        }
        let index = token.index as usize;
        if self.is_polling() && !self.http_mut().has(index, Flags::ASKED) {
            let trouble = Trouble::invalid("an answer that nobody has asked for");
            return self.fail_exchange(reactor, index, trouble, now);
        }
        let is_open = self.is_listening(index);
        let was_at_rest = is_open && !self.partials.contains_key(&token.index);
        let is_chunked = self.http_mut().has(index, Flags::CHUNKED);
        if was_at_rest && self.hear_remembered(reactor, token, (bytes, is_chunked), now) {
            return;
        }
        let mut exchange = self.take_exchange(index, is_open);
        let (mut input, mut heard) = (bytes, Heard::default());
        match self.read_answer(&mut exchange, &mut input, &mut heard) {
            Err(trouble) => {
                // What came whole counts, whatever came behind it in the same piece.
                if !heard.is_nothing() {
                    if !is_open {
                        self.note_in_use(index, now);
                    }
                    self.hear_answer_of_http(token, &heard, now);
                }
                self.drop_heard(&heard);
                self.fail_exchange(reactor, index, trouble, now);
            }
            Ok(progress) => {
                let piece = Piece {
                    bytes,
                    rest: input,
                    was_at_rest,
                    is_chunked,
                    heard,
                    progress,
                };
                self.go_on(reactor, token, exchange, piece, now);
            }
        }
    }

    /// Hears a piece that the memory knows, as the terminals in a broadcast do. False if it does not.
    fn hear_remembered<R: Reactor>(
        &mut self,
        reactor: &mut R,
        token: Token,
        (bytes, is_chunked): (&[u8], bool),
        now: Nanos,
    ) -> bool {
        let Some((heard, progress)) = self.http_mut().memory.recall(bytes, is_chunked) else {
            return false;
        };
        self.hear_answer_of_http(token, &heard, now);
        let is_nothing = heard.is_nothing();
        self.http_mut().memory.give_back(heard);
        if let Progress::Done { keeps } = progress {
            self.end_answer(reactor, token.index as usize, is_nothing, keeps, now);
        }
        true
    }

    /// Goes on with an answer of which a piece was read.
    fn go_on<R: Reactor>(
        &mut self,
        reactor: &mut R,
        token: Token,
        exchange: Box<Exchange>,
        piece: Piece<'_>,
        now: Nanos,
    ) {
        let (index, progress) = (token.index as usize, piece.progress);
        if !self.is_listening(index) && exchange_has_begun(&exchange, progress) {
            self.http_mut()
                .set(index, Flags::CHUNKED, exchange.is_chunked());
            self.note_in_use(index, now);
        }
        self.hear_answer_of_http(token, &piece.heard, now);
        let is_nothing = piece.heard.is_nothing();
        let is_unasked = self.is_polling() && !piece.rest.is_empty();
        self.remember_or_drop(&exchange, piece);
        if is_unasked {
            let trouble = Trouble::invalid("more than the answer to one request");
            return self.fail_exchange(reactor, index, trouble, now);
        }
        match progress {
            Progress::Under => self.keep_exchange(reactor, index, exchange, now),
            Progress::Done { keeps } => self.end_answer(reactor, index, is_nothing, keeps, now),
        }
    }

    /// Remembers what a piece said, if other terminals may get the same.
    fn remember_or_drop(&mut self, exchange: &Exchange, piece: Piece<'_>) {
        let is_done = matches!(piece.progress, Progress::Done { .. });
        let is_at_rest = (is_done || exchange.is_at_rest()) && piece.rest.is_empty();
        if !piece.was_at_rest || !is_at_rest || !Memory::fits(piece.bytes) {
            return self.drop_heard(&piece.heard);
        }
        let http = self.http_mut();
        let (bytes, positions) = ((piece.bytes, piece.is_chunked), &mut http.positions);
        http.memory
            .remember(bytes, piece.heard, piece.progress, positions);
    }

    /// Whether a terminal is open: its polls are taken, or its stream has begun.
    fn is_listening(&self, index: usize) -> bool {
        matches!(self.terminals[index].phase, Phase::Open | Phase::Stalled)
    }

    fn read_answer(
        &mut self,
        exchange: &mut Exchange,
        input: &mut &[u8],
        heard: &mut Heard,
    ) -> Result<Progress, Trouble> {
        let plan = Arc::clone(&self.plan);
        self.reader(&plan).read(exchange, input, heard)
    }

    fn reader<'a>(&'a mut self, plan: &'a crate::engine::plan::Plan) -> Reader<'a> {
        let limit = plan.limits.message_bytes_max;
        Reader {
            plan: plan.http.as_ref().expect("the run speaks HTTP"),
            run: plan.run,
            flows: plan.flows.as_deref().map(|flows| (flows, plan.mark_run)),
            message_bytes_max: usize::try_from(limit).unwrap_or(usize::MAX),
            positions: &mut self.http.as_mut().expect("the run speaks HTTP").positions,
        }
    }

    /// Counts what an answer said at one terminal.
    fn hear_answer_of_http(&mut self, token: Token, heard: &Heard, now: Nanos) {
        for &(key, bytes) in &heard.messages {
            self.note_heard(token, key, bytes);
        }
        for &key in &heard.of_flows {
            self.note_flow_delivery(token, key, now);
        }
        self.totals.unstamped += heard.unstamped;
        self.keep_unstamped(&heard.unstamped_first);
        self.totals.messages += heard.of_flows.len() as u64;
        self.totals.message_bytes += heard.bytes_of_flows as u64;
        self.totals.http.heartbeats += heard.heartbeats;
        if let Some(position) = heard.position {
            self.http_mut().move_to(token.index as usize, position);
        }
        if heard.retry.is_some() {
            let target = self.target_index(token.index);
            self.http_mut().retry_by_target[target] = heard.retry;
        }
    }

    /// Gives up the hold on a position that nobody remembers.
    fn drop_heard(&mut self, heard: &Heard) {
        if let Some(position) = heard.position {
            self.http_mut().positions.release(position);
        }
    }

    /// Keeps an answer of which more is to come, unless nothing of it is incomplete.
    fn keep_exchange<R: Reactor>(
        &mut self,
        reactor: &mut R,
        index: usize,
        exchange: Box<Exchange>,
        now: Nanos,
    ) {
        let number = u32::try_from(index).expect("terminals are at most 2^32");
        if exchange.is_at_rest() || exchange.is_fresh() {
            return;
        }
        self.partial_bytes += exchange.bytes();
        self.partials.insert(number, Partial::Exchange(exchange));
        if self.partial_bytes > self.plan.partial_bytes_max {
            let trouble = Trouble {
                failure: Failure::Unfinished,
                said: Vec::new(),
            };
            self.fail_exchange(reactor, index, trouble, now);
        }
    }

    /// A poll was answered, or a stream has ended.
    fn end_answer<R: Reactor>(
        &mut self,
        reactor: &mut R,
        index: usize,
        is_nothing: bool,
        keeps: bool,
        now: Nanos,
    ) {
        self.http_mut().set(index, Flags::ASKED, false);
        if self.is_polling() {
            self.totals.http.answers += 1;
            if is_nothing {
                self.note_time_out(index, now);
            }
            self.confirm(index);
        }
        if self.closing_all.is_some() {
            return;
        }
        if self.terminals[index].phase == Phase::Stalled {
            return self.lose(reactor, index, Failure::LostEnd, Close::Orderly, now);
        }
        if keeps {
            self.http_mut().set(index, Flags::ANSWERED, true);
            self.ask_soon(index);
        } else {
            self.reopen(reactor, index, now);
        }
    }

    /// The server ended or broke the connection of an open terminal.
    pub(in crate::engine) fn handle_http_end<R: Reactor>(
        &mut self,
        reactor: &mut R,
        index: usize,
        failure: Failure,
        now: Nanos,
    ) {
        if self.is_requesting() {
            return self.handle_request_end(reactor, index, failure, now);
        }
        let is_polling = self.is_polling();
        let is_end = failure == Failure::LostEnd;
        let mut exchange = self.take_exchange(index, true);
        if is_end && exchange.lasts_until_end() {
            let (plan, mut heard) = (Arc::clone(&self.plan), Heard::default());
            let finished = self.reader(&plan).finish(&mut exchange, &mut heard);
            let number = u32::try_from(index).expect("terminals are at most 2^32");
            let token = self.terminals[index].token(number);
            self.hear_answer_of_http(token, &heard, now);
            self.drop_heard(&heard);
            return match finished {
                Err(trouble) => self.fail_exchange(reactor, index, trouble, now),
                Ok(_) => {
                    self.end_answer(reactor, index, heard.is_nothing(), false, now);
                }
            };
        }
        if let Some(trouble) = refusal_so_far(&mut exchange) {
            return self.fail_exchange(reactor, index, trouble, now);
        }
        let was_answered = self.http_mut().has(index, Flags::ANSWERED);
        // A server may end a connection that it was answering on just when the next request is on its way (RFC 9112, section
        // 9.3.1): clients ask again. And a stream that ends is opened again, as browsers do.
        let asks_again = match is_polling {
            true => was_answered && exchange.is_fresh() && failure.is_lost_connection(),
            false => is_end,
        };
        if asks_again && self.closing_all.is_none() {
            return self.reopen(reactor, index, now);
        }
        let trouble = Trouble {
            failure,
            said: Vec::new(),
        };
        self.fail_exchange(reactor, index, trouble, now);
    }

    /// Ends a terminal's connection because of an answer. A poll that was counted as connected and is refused has not
    /// connected after all.
    fn fail_exchange<R: Reactor>(
        &mut self,
        reactor: &mut R,
        index: usize,
        trouble: Trouble,
        now: Nanos,
    ) {
        let number = u32::try_from(index).expect("terminals are at most 2^32");
        let token = self.terminals[index].token(number);
        let Trouble { failure, said } = trouble;
        if !said.is_empty() && self.refusals.is_kept(failure, token) {
            self.notes.answers.push((failure, said));
        }
        let is_unconfirmed = self.http_mut().has(index, Flags::UNCONFIRMED);
        if is_unconfirmed {
            self.http_mut().set(index, Flags::UNCONFIRMED, false);
            self.totals.opened -= 1;
        }
        if is_unconfirmed || !self.is_listening(index) {
            self.fail_attempt(reactor, index, failure.of_first_answer(), now);
        } else {
            self.lose(reactor, index, failure, Close::Reset, now);
        }
    }

    /// Ends an attempt to open a stream, whose head is incomplete or did not come.
    pub(in crate::engine) fn fail_stream<R: Reactor>(
        &mut self,
        reactor: &mut R,
        index: usize,
        failure: Failure,
        now: Nanos,
    ) {
        let mut exchange = self.take_exchange(index, false);
        let trouble = refusal_so_far(&mut exchange).unwrap_or(Trouble {
            failure: failure.of_first_answer(),
            said: Vec::new(),
        });
        self.fail_exchange(reactor, index, trouble, now);
    }
}

/// Whether a stream has its head: its terminal is open.
fn exchange_has_begun(exchange: &Exchange, progress: Progress) -> bool {
    let is_refusal = exchange.is_refusal();
    matches!(progress, Progress::Done { .. }) || (exchange.answer.is_some() && !is_refusal)
}

impl HttpTerminals {
    /// Forgets what was known of a connection that ended.
    pub(in crate::engine) fn forget_connection(&mut self, index: usize) {
        let kept = [Flags::REOPENING, Flags::ASKING];
        let kept = kept.map(|flag| (flag, self.has(index, flag)));
        self.flags[index] = Flags::default();
        for (flag, value) in kept {
            self.set(index, flag, value);
        }
    }
}
