//! Requests on their way: sent, repeated, given up.

use super::super::Flags;
use super::{Asked, Deferred, Written};
use crate::clock::Nanos;
use crate::engine::crowd::World;
use crate::engine::flows::figures::FlowFigures;
use crate::engine::flows::ledger::MessageKey;
use crate::engine::terminal::Phase;
use crate::failure::Failure;
use myriad_reactor::{Close, Reactor, Token};
use std::time::Duration;

/// How often those are looked for that nothing will answer any more.
const SWEEP_EVERY: Duration = Duration::from_millis(250);

impl World {
    /// Sends the request of a flow from a terminal, which is free. The last two are when it was due, and now.
    pub(in crate::engine) fn send_request_of_flow(
        &mut self,
        index: u32,
        key: MessageKey,
        request: Written,
        (due, now): (Nanos, Nanos),
    ) {
        let asked = Asked {
            key,
            due,
            begun: now,
            sent: now,
            request,
            attempt: None,
            is_written: false,
            is_repeated: false,
            deferred: Vec::new(),
        };
        self.shared.flow_ledger().await_answer();
        let previous = self.api_mut().under_way.insert(index, asked);
        assert!(previous.is_none(), "a terminal asks one thing at a time");
        self.send_or_connect(index, now);
    }

    /// Sends a terminal's request on its connection, or makes one. One that is being made sends it once it is there.
    fn send_or_connect(&mut self, index: u32, now: Nanos) {
        let place = index as usize;
        if self.is_dormant(place) {
            let http = self.http_mut();
            http.set(place, Flags::DORMANT, false);
            http.set(place, Flags::REOPENING, true);
            self.opening.reopen(index, now);
        } else if self.terminals[place].phase == Phase::Open {
            self.send_asked(index, now);
        }
    }

    /// Sends the request of an open terminal, if it has one.
    pub(super) fn send_asked(&mut self, index: u32, now: Nanos) {
        let attempt = self.terminals[index as usize].attempt;
        let http = self.http.as_mut().expect("the run speaks HTTP");
        let Some(asked) = http.api.under_way.get_mut(&index) else {
            return;
        };
        asked.attempt = Some(attempt);
        asked.sent = now;
        asked.is_written = true;
        self.outbox.push(index, attempt, |out| {
            out.extend_from_slice(&asked.request.bytes);
        });
        self.totals.http.requests += 1;
    }

    /// Notes that the connection of a terminal took nothing of what was queued for it in this turn.
    pub(in crate::engine) fn note_unwritten(&mut self, index: u32) {
        let http = self.http.as_mut();
        if let Some(asked) = http.and_then(|http| http.api.under_way.get_mut(&index)) {
            asked.is_written = false;
        }
    }

    /// Repeats a request on another connection, once. False if it was repeated before.
    pub(super) fn repeat_request<R: Reactor>(
        &mut self,
        reactor: &mut R,
        token: Token,
        now: Nanos,
    ) -> bool {
        let asked = self.api_mut().under_way.get_mut(&token.index);
        let Some(asked) = asked.filter(|asked| !asked.is_repeated) else {
            return false;
        };
        asked.is_repeated = true;
        asked.attempt = None;
        self.totals.http.repeated += 1;
        self.go_dormant(reactor, token.index as usize, Close::Orderly);
        self.send_or_connect(token.index, now);
        true
    }

    /// A terminal that is due for a flow waits for the answer to another request first.
    pub(in crate::engine) fn defer(&mut self, sender: usize, token: Token, due: Nanos) {
        let asked = self.api_mut().under_way.get_mut(&token.index);
        let asked = asked.expect("it waits for an answer");
        asked.deferred.push((sender, token, due));
    }

    /// Those that were due while they waited, and may send again.
    pub(in crate::engine) fn take_released(&mut self, sender: usize) -> Vec<Deferred> {
        let Some(http) = &mut self.http else {
            return Vec::new();
        };
        let released = &mut http.api.released;
        released.extract_if(.., |one| one.0 == sender).collect()
    }

    /// A terminal's request has its answer, or none will come. Who else was due may send again.
    pub(super) fn take_asked(&mut self, index: u32) -> Option<Asked> {
        let api = &mut self.http.as_mut()?.api;
        let mut asked = api.under_way.remove(&index)?;
        api.released.append(&mut asked.deferred);
        Some(asked)
    }

    /// Counts what became of a request of a flow, of which nothing more is awaited. `heard` is when its answer came, or 0.
    pub(super) fn count_asked(
        &self,
        flow: usize,
        heard: Nanos,
        count: impl FnOnce(&mut FlowFigures),
    ) {
        let ledger = self.shared.flow_ledger();
        count(&mut ledger.figures(self.part.thread)[flow]);
        // Last: a run ends when nothing is awaited any more, and has to have the figures by then.
        ledger.end_answer(heard);
    }

    /// A terminal leaves on purpose, and takes its request with it, if it has one.
    pub(in crate::engine) fn leave_request(&mut self, index: u32) {
        if let Some(asked) = self.take_asked(index) {
            self.count_asked(asked.key.flow, Nanos(0), |figures| figures.note_left(true));
        }
    }

    /// Gives up the request of a terminal, if it has one: it is unanswered, because of this failure.
    pub(in crate::engine) fn abandon_request(&mut self, index: u32, failure: Failure, why: &str) {
        // What is under way when the run ends is cut off by us.
        if self.closing_all.is_some() {
            return self.leave_request(index);
        }
        let Some(asked) = self.take_asked(index) else {
            return;
        };
        let flow = asked.key.flow;
        self.count_asked(flow, Nanos(0), |figures| figures.note_unanswered(true));
        let plan = self.plan.flows.clone().expect("the run has flows");
        let planned = &plan.flows[flow];
        if planned.pace.think().is_some() {
            self.flow_answers.push((index, asked.key));
        }
        self.note_fault(failure, || format!("{}: {why}", planned.name));
    }

    /// Gives up requests whose time is over.
    pub(in crate::engine) fn sweep_requests<R: Reactor>(&mut self, reactor: &mut R, now: Nanos) {
        let (Some(http), Some(plan)) = (&mut self.http, &self.plan.flows) else {
            return;
        };
        let api = &mut http.api;
        if api.under_way.is_empty() || now.since(api.swept) < SWEEP_EVERY {
            return;
        }
        api.swept = now;
        let is_over = |asked: &Asked| now.since(asked.begun) >= plan.settle;
        let over = api.under_way.iter().filter(|(_, asked)| is_over(asked));
        let mut over: Vec<u32> = over.map(|(index, _)| *index).collect();
        over.sort_unstable();
        for index in over {
            self.abandon_request(index, Failure::Call(0), "no answer in hold.settle");
            // What comes later must not pass for the answer to the next request.
            if self.terminals[index as usize].phase == Phase::Open {
                self.go_dormant(reactor, index as usize, Close::Reset);
            }
        }
    }
}
