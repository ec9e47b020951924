//! Flows of callers, who are no clients: HTTP requests by open-loop schedules ([`OpenLoop`]).
//!
//! A request speaks for a client, who takes its turn: its number, its group and its account are filled in. What the crowd is to
//! receive because of it is in the same ledger as what clients send.

use crate::clock::{Clock as _, Nanos, RunClock};
use crate::engine::flows::figures::FlowFigures;
use crate::engine::flows::ledger::{MessageKey, Sending};
use crate::engine::flows::mark::Mark;
use crate::engine::flows::plan::{Audience, CallPlan, FlowPlan, FlowsPlan, Route, Wrong};
use crate::engine::flows::template::{Template, Values};
use crate::engine::plan::Plan;
use crate::engine::shared::Shared;
use crate::failure::Failure;
use crate::open_loop::{Asker, Kept, OpenLoop, Schedule, lock};
use crate::random::Random;
use hyper::Request;
use hyper::header::HOST;
use std::io;
use std::sync::{Arc, Mutex};

/// Bytes of an answer that are looked at.
pub(crate) const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Begins the flows of callers at the first time; they end at the second, or when they are stopped. Each has the index of its
/// flow.
pub(crate) fn start_all(
    plan: &Arc<Plan>,
    shared: &Arc<Shared>,
    window: (Nanos, Option<Nanos>),
    clock: RunClock,
) -> io::Result<Vec<(usize, OpenLoop)>> {
    let Some(flows) = &plan.flows else {
        return Ok(Vec::new());
    };
    // This machine's callers speak for its own clients.
    let share = f64::from(plan.deal.own().terminals) / f64::from(plan.connections);
    let calls = flows.flows.iter().enumerate();
    let calls = calls.filter_map(|(index, flow)| match &flow.route {
        Route::Http(call) => Some((index, flow.pace.rate_per_s()? * share, call)),
        Route::Socket { .. } | Route::Command(_) | Route::Request(_) => None,
    });
    let begun = calls.map(|(flow, rate_per_s, call)| {
        let lanes = |schedule: &Arc<Mutex<Schedule>>| {
            let lane = |number: u32| Caller {
                plan: Arc::clone(plan),
                flows: Arc::clone(flows),
                flow,
                connection: Kept::new(call.endpoint.clone(), plan.request_tls()),
                shared: Arc::clone(shared),
                clock,
                schedule: Arc::clone(schedule),
                random: Random::new(plan.seed ^ u64::from(number) << 32),
            };
            (0..call.connections).map(lane).collect()
        };
        let name = format!("flow {flow}");
        Ok((
            flow,
            OpenLoop::start(&name, rate_per_s, window, clock, lanes)?,
        ))
    });
    begun.collect()
}

/// One request at a time, on a kept connection.
struct Caller {
    plan: Arc<Plan>,
    flows: Arc<FlowsPlan>,
    flow: usize,
    connection: Kept,
    shared: Arc<Shared>,
    clock: RunClock,
    schedule: Arc<Mutex<Schedule>>,
    random: Random,
}

/// A request under way.
#[derive(Clone, Copy)]
struct Asked {
    key: MessageKey,
    due: Nanos,
    sent: Nanos,
}

impl Asker for Caller {
    async fn open(&mut self) {
        self.connection.open(self.flows.settle).await;
    }

    async fn ask(&mut self, index: u64, due: Nanos) {
        let own = self.plan.deal.own();
        let terminal = u64::from(own.first_terminal) + index % u64::from(own.terminals);
        let number = index;
        let flow = self.flow;
        let request = self.request(terminal, number);
        let asked = Asked {
            key: MessageKey { flow, number },
            due,
            sent: self.clock.now(),
        };
        self.note_sent(terminal, asked);
        let within = self.flows.settle;
        let answer = match request {
            Ok(request) => {
                let exchange = self.connection.exchange(request, ANSWER_BYTES_MAX, within);
                exchange.await
            }
            Err(reason) => Err(reason),
        };
        match answer {
            Err(reason) => self.note_unanswered(reason),
            Ok((status, body)) => match self
                .planned()
                .1
                .request
                .expected
                .judge(status.as_u16(), &body)
            {
                Ok(()) => self.note_answered(asked),
                Err(refused) => self.note_refused(asked, refused),
            },
        }
    }
}

impl Caller {
    fn planned(&self) -> (&FlowPlan, &CallPlan) {
        let planned = &self.flows.flows[self.flow];
        match &planned.route {
            Route::Http(call) => (planned, call),
            Route::Socket { .. } | Route::Command(_) | Route::Request(_) => {
                unreachable!("terminals send the messages of other routes")
            }
        }
    }

    fn is_answer_all(&self) -> bool {
        self.planned().0.audience == Audience::Answer
    }

    /// The request that speaks for a terminal.
    fn request(&mut self, terminal: u64, number: u64) -> Result<Request<String>, String> {
        let flows = Arc::clone(&self.flows);
        let Route::Http(call) = &flows.flows[self.flow].route else {
            unreachable!("terminals send the messages of other routes")
        };
        let values = Values {
            mark: Some(Mark::new(self.plan.mark_run, self.flow, number)),
            ..flows.values_of(terminal)
        };
        let planned = &call.request;
        let mut request = Request::builder()
            .method(planned.method.clone())
            .uri(self.written(&planned.path, &values)?);
        if planned.headers.iter().all(|(name, _)| *name != HOST) {
            request = request.header(HOST, &call.endpoint.host);
        }
        for (name, value) in &planned.headers {
            request = request.header(name, self.written(value, &values)?);
        }
        let body = planned.body.as_ref();
        let body = body.map_or_else(|| Ok(String::new()), |body| self.written(body, &values))?;
        let request = request.body(body);
        request.map_err(|error| format!("it cannot be written: {error}"))
    }

    fn written(&mut self, template: &Template, values: &Values<'_>) -> Result<String, String> {
        let mut out = Vec::new();
        template.write(&mut out, values, &mut self.random);
        String::from_utf8(out).map_err(|_| "it is no text".to_owned())
    }

    fn count(&self, count: impl FnOnce(&mut FlowFigures)) {
        let mut figures = self.shared.flow_ledger().figures_of_callers();
        count(&mut figures[self.flow]);
    }

    fn note_sent(&self, terminal: u64, asked: Asked) {
        let (planned, _) = self.planned();
        if planned.audience == Audience::Answer {
            return self.count(FlowFigures::note_asked);
        }
        let (group, _) = self.flows.groups.of(terminal);
        let ledger = self.shared.flow_ledger();
        // Nobody leaves or comes until the ledger has it.
        let stage = ledger.presence.hold();
        let audience = planned.audience;
        let (expected, members) = self.flows.audience_of(ledger, audience, (group, terminal));
        let sending = Sending {
            due: asked.due,
            sent: asked.sent,
            sender: terminal,
            group,
            expected,
            stage: *stage,
            members,
        };
        let previous = asked
            .key
            .number
            .checked_sub(u64::from(self.plan.deal.own().terminals));
        self.count(|figures| ledger.send(asked.key, sending, previous, figures));
    }

    fn note_answered(&self, asked: Asked) {
        let now = self.clock.now();
        lock(&self.schedule).note_answer(asked.due, now);
        let is_all = self.is_answer_all();
        self.count(|figures| {
            let (since_due, since_sent) = (now.since(asked.due), now.since(asked.sent));
            figures.note_answered(since_due, since_sent, is_all);
        });
    }

    fn note_refused(&self, asked: Asked, refused: Wrong) {
        let ledger = self.shared.flow_ledger();
        let is_all = self.is_answer_all();
        self.count(|figures| {
            figures.note_refused(is_all);
            if !is_all {
                ledger.cancel(asked.key, figures);
            }
        });
        self.note(refused.failure, refused.reason);
    }

    fn note_unanswered(&self, reason: String) {
        let is_all = self.is_answer_all();
        self.count(|figures| figures.note_unanswered(is_all));
        self.note(Failure::Call(0), reason);
    }

    fn note(&self, failure: Failure, reason: String) {
        let mut schedule = lock(&self.schedule);
        schedule.progress.trips.counts.lost += 1;
        schedule
            .progress
            .note(failure, &self.connection.endpoint, reason);
    }
}
