//! Terminals that use an API over HTTP: each sends the requests of flows, one at a time, and keeps its connection.
//!
//! A connection that ends between two requests is no fault, with a 408 or without: its terminal stays open without one (it is
//! *dormant*), and connects again for its next request, as HTTP clients do. The same goes for a connection that its server does
//! not keep.
//!
//! A request that the server did not take is repeated once, on another connection, where HTTP lets clients do so: behind 408,
//! and on a kept connection that ended before anything of an answer came. The latter only if doing it twice is the same as
//! once, or if nothing of it was written (RFC 9110, sections 9.2.2 and 15.5.9; RFC 9112, section 9.3.1). Anything else that
//! keeps a request from its answer is a failure of it.
//!
//! * [`sending`]: requests on their way out, repeated, given up;
//! * [`writing`]: their bytes;
//! * [`answers`]: what comes, and connections that end.
//!
//! An idle terminal keeps nothing here. One that waits keeps its request, in case it has to be repeated.

mod answers;
mod sending;
mod writing;

use super::Flags;
use crate::clock::Nanos;
use crate::engine::crowd::World;
use crate::engine::flows::ledger::MessageKey;
use crate::engine::flows::plan::RequestPlan;
use crate::engine::plan::HttpKind;
use crate::engine::terminal::Phase;
use crate::failure::Failure;
use myriad_reactor::{Close, Reactor, Token};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
pub(in crate::engine) use writing::Written;

/// Kinds of failures of which an example is kept. A server may answer with any status.
const EXAMPLES_MAX: usize = 64;

/// A flow whose terminal was due while it waited for another answer: which sender, and since when.
pub(in crate::engine) type Deferred = (usize, Token, Nanos);

/// The requests of a thread's terminals.
#[derive(Debug, Default)]
pub(super) struct Api {
    /// By terminal: the request without an answer.
    under_way: FxHashMap<u32, Asked>,
    /// Who was due meanwhile, and may send again.
    released: Vec<Deferred>,
    /// Failures of which an example was kept.
    exemplified: BTreeSet<Failure>,
    swept: Nanos,
}

/// A request without an answer.
#[derive(Debug)]
struct Asked {
    key: MessageKey,
    due: Nanos,
    /// When its terminal took it up. It is given up `settle` later, however often it was sent.
    begun: Nanos,
    /// When it last went out.
    sent: Nanos,
    request: Written,
    /// The connection that it went out on; none: it waits for one.
    attempt: Option<u8>,
    /// Something of it may have left.
    is_written: bool,
    is_repeated: bool,
    /// Other flows of this terminal that are due.
    deferred: Vec<Deferred>,
}

impl World {
    /// Whether terminals send the requests of flows.
    pub(in crate::engine) fn is_requesting(&self) -> bool {
        let http = self.plan.http.as_ref();
        http.is_some_and(|http| http.kind == HttpKind::Requests)
    }

    fn api_mut(&mut self) -> &mut Api {
        &mut self.http_mut().api
    }

    /// The requests of a flow.
    fn request_plan(&self, flow: usize) -> &RequestPlan {
        let plan = self.plan.flows.as_ref().expect("the run has flows");
        plan.request_of(flow)
    }

    /// Whether a terminal can send a message of a flow now.
    pub(in crate::engine) fn is_free(&self, index: u32) -> bool {
        let place = index as usize;
        let is_open = self.terminals[place].phase == Phase::Open;
        if !self.is_requesting() {
            return is_open && !self.outbox.has_unsent(index);
        }
        let is_there = is_open || self.is_dormant(place) || self.is_reopening(place);
        is_there && !self.is_waiting_for_answer(index)
    }

    /// Whether a terminal waits for the answer to a request of a flow.
    pub(in crate::engine) fn is_waiting_for_answer(&self, index: u32) -> bool {
        let http = self.http.as_ref();
        http.is_some_and(|http| http.api.under_way.contains_key(&index))
    }

    /// Whether a terminal is open without a connection.
    pub(in crate::engine) fn is_dormant(&self, index: usize) -> bool {
        let http = self.http.as_ref();
        http.is_some_and(|http| http.has(index, Flags::DORMANT))
    }

    /// A connection is made: sends what waits for it.
    pub(super) fn begin_requests(&mut self, token: Token, now: Nanos) {
        let index = token.index as usize;
        self.note_in_use(index, now);
        self.send_asked(token.index, now);
    }

    /// The connection of an open terminal is of no use any more. The next request makes another one.
    fn go_dormant<R: Reactor>(&mut self, reactor: &mut R, index: usize, how: Close) {
        self.disconnect(reactor, index, how);
        self.http_mut().set(index, Flags::DORMANT, true);
    }

    /// Ends a terminal without a connection. False if it has one, or is over.
    pub(in crate::engine) fn end_dormant(&mut self, index: usize) -> bool {
        if !self.is_dormant(index) {
            return false;
        }
        self.http_mut().set(index, Flags::DORMANT, false);
        let number = u32::try_from(index).expect("terminals are at most 2^32");
        self.note_open(number, false);
        self.terminals[index].phase = Phase::Ended;
        true
    }

    /// Counts a failure, and keeps what is said of the first of its kind.
    fn note_fault(&mut self, failure: Failure, said: impl FnOnce() -> String) {
        self.note_failure(failure);
        let exemplified = &mut self.api_mut().exemplified;
        if exemplified.len() < EXAMPLES_MAX && exemplified.insert(failure) {
            self.notes.answers.push((failure, said().into_bytes()));
        }
    }
}
