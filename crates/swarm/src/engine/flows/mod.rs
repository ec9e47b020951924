//! Flows: messages that terminals send by a schedule, and what comes of each.
//!
//! * `template`: what is sent; `mark`: how it is known again;
//! * `groups`: who belongs together; `ledger`: what became of each message, for all threads;
//! * here: a thread's part of the schedules, and what its terminals hear.

pub(crate) mod groups;
pub(crate) mod ledger;
pub(crate) mod mark;
pub(crate) mod plan;
pub(crate) mod template;

use crate::clock::Nanos;
use crate::engine::crowd::World;
use crate::engine::outbox::Outbox;
use crate::engine::pacing::{Pacing, intervals};
use crate::engine::plan::{Part, Plan};
use crate::engine::shared::Window;
use crate::engine::terminal::{Phase, Terminal};
use crate::random::Random;
use ledger::{MessageKey, Receiver, Sending};
use mark::Mark;
use myriad_reactor::Token;
use myriad_wire::ws::{Opcode, encode_frame};
use plan::{Audience, FlowsPlan};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use template::Values;

/// Messages of a flow sent in one turn, and terminals looked at for one that can take a message.
const PER_TURN_MAX: u64 = 1024;
const LOOKS_PER_TURN_MAX: usize = 16 * 1024;

/// Time after which a message that had to wait is tried again.
const HELD_STEP: Duration = Duration::from_millis(1);

/// Time after the end of the schedule in which due messages may still be sent.
const SEND_GRACE: Duration = Duration::from_millis(100);

/// How often messages that are over are looked for.
const SWEEP_EVERY: Duration = Duration::from_millis(100);

/// A thread's part of the flows.
#[derive(Debug)]
pub(super) struct Flows {
    plan: Arc<FlowsPlan>,
    part: Part,
    threads: u64,
    run: u16,
    senders: Vec<Sender>,
    swept: Nanos,
    random: Random,
    /// The message under construction.
    message: Vec<u8>,
}

/// One flow's schedule in a thread.
#[derive(Debug)]
struct Sender {
    rate_per_s: f64,
    offset: Duration,
    /// None before the schedule is known.
    pacing: Option<Pacing>,
    /// The next terminal in turn.
    cursor: usize,
    /// By terminal: its last message. At most one entry a terminal.
    last: HashMap<u32, u64>,
    /// Messages are due and nobody could take one.
    is_held: bool,
}

impl Flows {
    pub(super) fn new(plan: &Plan, part: Part) -> Option<Box<Self>> {
        let flows = plan.flows.as_ref()?;
        let share = f64::from(part.count) / f64::from(plan.connections);
        let senders = flows.flows.iter().map(|flow| Sender {
            rate_per_s: flow.rate_per_s * share,
            offset: intervals(f64::from(part.thread), flow.rate_per_s),
            pacing: None,
            cursor: 0,
            last: HashMap::new(),
            is_held: false,
        });
        Some(Box::new(Self {
            senders: senders.collect(),
            plan: Arc::clone(flows),
            part,
            threads: u64::from(plan.threads),
            run: plan.run,
            swept: Nanos(0),
            random: Random::new(plan.seed ^ u64::from(part.thread)),
            message: Vec::new(),
        }))
    }

    /// Time until they need attention.
    pub(super) fn wait(&self, now: Nanos) -> Duration {
        let waits = self.senders.iter().map(|sender| match &sender.pacing {
            None => Duration::MAX,
            Some(_) if sender.is_held => HELD_STEP,
            Some(pacing) => pacing.wait(now),
        });
        waits.min().unwrap_or(Duration::MAX)
    }
}

impl Sender {
    /// The next terminal in turn that can take a message.
    fn next(&mut self, terminals: &[Terminal], outbox: &Outbox, looks: &mut usize) -> Option<u32> {
        while *looks > 0 {
            *looks -= 1;
            let index = self.cursor % terminals.len();
            self.cursor = index + 1;
            let number = u32::try_from(index).expect("terminals are at most 2^32");
            if terminals[index].phase == Phase::Open && !outbox.has_unsent(number) {
                return Some(number);
            }
        }
        None
    }
}

impl World {
    /// Says what a terminal says when it opens.
    pub(super) fn say_opening(&mut self, token: Token) {
        let Some(mut flows) = self.flows.take() else {
            return;
        };
        let terminal = self.plan.number(self.part, token.index);
        let plan = Arc::clone(&flows.plan);
        let (group, _) = plan.groups.of(terminal);
        for template in &plan.opening {
            let values = Values {
                terminal,
                group,
                sequence: 0,
                mark: Mark::new(flows.run, 0, 0),
                unix_ms: unix_ms(),
            };
            flows.message.clear();
            template.write(&mut flows.message, values, &mut flows.random);
            self.queue_text(token, Opcode::Text, &flows.message);
        }
        self.flows = Some(flows);
    }

    fn queue_text(&mut self, token: Token, opcode: Opcode, message: &[u8]) {
        let mask = Some(self.random.mask());
        self.outbox.push(token.index, token.generation, |out| {
            encode_frame(out, opcode, true, mask, message);
        });
    }

    /// Notes in its group that a terminal opened or ended.
    pub(super) fn note_open_in_group(&self, index: u32, opened: bool) {
        if let (Some(flows), Some(ledger)) = (&self.plan.flows, &self.shared.flows) {
            let (group, _) = flows.groups.of(self.plan.number(self.part, index));
            ledger.note_open(group, opened);
        }
    }

    /// Sends the messages that are due.
    pub(super) fn send_flows(&mut self, now: Nanos) {
        let Some(mut flows) = self.flows.take() else {
            return;
        };
        if let Some(window) = self.shared.answered_window() {
            for flow in 0..flows.senders.len() {
                self.send_flow(&mut flows, flow, window, now);
            }
            if now.since(flows.swept) >= SWEEP_EVERY {
                flows.swept = now;
                let shared = Arc::clone(&self.shared);
                let ledger = shared.flows.as_ref().expect("a run with flows has one");
                ledger.sweep(self.part.thread, now, flows.plan.settle);
            }
        }
        self.flows = Some(flows);
    }

    fn send_flow(&mut self, flows: &mut Flows, flow: usize, window: Window, now: Nanos) {
        let shared = Arc::clone(&self.shared);
        let ledger = shared.flows.as_ref().expect("a run with flows has one");
        let sender = &mut flows.senders[flow];
        let (rate, from) = (sender.rate_per_s, window.from.plus(sender.offset));
        let pacing = sender
            .pacing
            .get_or_insert_with(|| Pacing::new(Some(rate), from));
        let due = pacing.due_before(window.until, now);
        let (lateness, issued) = (pacing.lateness(now), pacing.issued());
        sender.is_held = false;
        {
            let mut figures = ledger.figures(self.part.thread);
            figures[flow].due = issued + due;
            if due > 0 {
                figures[flow].behind = figures[flow].behind.max(lateness);
            }
        }
        if now >= window.until.plus(SEND_GRACE) {
            return;
        }
        let mut looks = self.terminals.len().min(LOOKS_PER_TURN_MAX);
        let mut sent = 0;
        while sent < due.min(PER_TURN_MAX)
            && ledger.has_room()
            && let Some(index) = flows.senders[flow].next(&self.terminals, &self.outbox, &mut looks)
        {
            self.send_of_flow(flows, flow, index, now);
            sent += 1;
        }
        flows.senders[flow].is_held = sent < due;
    }

    fn send_of_flow(&mut self, flows: &mut Flows, flow: usize, index: u32, now: Nanos) {
        let token = self.terminals[index as usize].token(index);
        let terminal = self.plan.number(self.part, index);
        let plan = Arc::clone(&flows.plan);
        let planned = &plan.flows[flow];
        let (group, _) = plan.groups.of(terminal);
        let sender = &mut flows.senders[flow];
        let pacing = sender.pacing.as_mut().expect("the schedule has begun");
        let (issued, due) = (pacing.issued(), pacing.at(pacing.issued()));
        pacing.issue(1);
        let number = issued * flows.threads + u64::from(flows.part.thread);
        let ledger = self
            .shared
            .flows
            .as_ref()
            .expect("a run with flows has one");
        let (expected, members) = match planned.audience {
            Audience::Group => (ledger.open_in(group), plan.groups.size(group)),
            Audience::Others => (
                ledger.open_in(group).saturating_sub(1),
                plan.groups.size(group),
            ),
            Audience::Sender => (1, 1),
            Audience::All => (ledger.open_in_all(), self.plan.connections),
        };
        let sending = Sending {
            due,
            sent: now,
            sender: terminal,
            group,
            expected,
            members,
        };
        let previous = sender.last.insert(index, number);
        ledger.send(MessageKey { flow, number }, sending, previous);
        {
            let mut figures = ledger.figures(self.part.thread);
            figures[flow].sent += 1;
            figures[flow].expected += u64::from(expected);
        }
        let values = Values {
            terminal,
            group,
            sequence: number,
            mark: Mark::new(flows.run, flow, number),
            unix_ms: unix_ms(),
        };
        flows.message.clear();
        planned
            .template
            .write(&mut flows.message, values, &mut flows.random);
        let opcode = match planned.is_binary {
            true => Opcode::Binary,
            false => Opcode::Text,
        };
        self.queue_text(token, opcode, &flows.message);
    }

    /// Takes a message for one of a flow, if it is one.
    pub(super) fn hear_flow(&mut self, token: Token, message: &[u8], now: Nanos) -> bool {
        let Some(flows) = &self.flows else {
            return false;
        };
        let planned = flows.plan.flows.iter().zip(0..);
        let mut found = planned.filter_map(|(flow, index)| {
            let mark = flow.place.find(message, flows.run)?;
            (usize::from(mark.flow) == index).then_some((flow, mark))
        });
        let Some((flow, mark)) = found.next() else {
            return false;
        };
        let terminal = self.plan.number(self.part, token.index);
        let (group, place) = flows.plan.groups.of(terminal);
        let receiver = Receiver {
            terminal,
            group,
            place,
        };
        let key = MessageKey {
            flow: usize::from(mark.flow),
            number: mark.number,
        };
        let ledger = self
            .shared
            .flows
            .as_ref()
            .expect("a run with flows has one");
        let mut figures = ledger.figures(self.part.thread);
        ledger.receive(key, flow.audience, receiver, now, &mut figures[key.flow]);
        drop(figures);
        self.totals.messages += 1;
        self.totals.message_bytes += message.len() as u64;
        true
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}
