//! Flows: messages that terminals and callers send by a schedule, and what comes of each.
//!
//! * `template`: what is sent, with `accounts`; `mark`: how it is known again;
//! * `groups`: who belongs together; `ledger`: what became of each message, for all threads;
//! * `commands`: what terminals with sessions do, and the replies;
//! * `talk`: what terminals say when they open, as heartbeats, and as replies;
//! * `hearing`: what they hear; `bodies`: the same of what comes over HTTP;
//! * here: a thread's part of the schedules. `crate::caller` has those of HTTP.

pub(crate) mod accounts;
mod bodies;
mod commands;
pub(crate) mod figures;
pub(crate) mod groups;
mod hearing;
pub(crate) mod ledger;
pub(crate) mod mark;
pub(crate) mod plan;
mod talk;
pub(crate) mod template;

use crate::clock::Nanos;
use crate::engine::crowd::World;
use crate::engine::pacing::{HELD_STEP, Pacing, SEND_GRACE, Share};
use crate::engine::plan::{Part, Plan};
use crate::engine::round_robin::{LOOKS_PER_TURN_MAX, RoundRobin};
use crate::engine::shared::Window;
use crate::random::Random;
use commands::Commands;
use hearing::Recent;
use ledger::{MessageKey, Sending};
use mark::Mark;
use plan::{Audience, FlowsPlan, Route};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use template::Values;

/// Messages of a flow sent in one turn.
const PER_TURN_MAX: u64 = 1024;

/// How often messages that are over are looked for.
const SWEEP_EVERY: Duration = Duration::from_millis(100);

/// A thread's part of the flows.
#[derive(Debug)]
pub(super) struct Flows {
    plan: Arc<FlowsPlan>,
    threads: u64,
    run: u16,
    senders: Vec<Sender>,
    /// By terminal that is opening: which of its messages is to be answered next.
    joining: HashMap<u32, usize>,
    recent: Recent,
    commands: Commands,
    swept: Nanos,
    random: Random,
    /// The message under construction.
    message: Vec<u8>,
}

/// One flow's schedule in a thread.
#[derive(Debug)]
struct Sender {
    flow: usize,
    share: Share,
    /// None before the schedule is known.
    pacing: Option<Pacing>,
    terminals: RoundRobin,
    /// By terminal: its last message. At most one entry a terminal.
    last: HashMap<u32, u64>,
    /// Messages are due and nobody could take one.
    is_held: bool,
}

impl Flows {
    pub(super) fn new(plan: &Plan, part: Part) -> Option<Box<Self>> {
        let flows = plan.flows.as_ref()?;
        let of_terminals = flows.flows.iter().enumerate();
        let of_terminals = of_terminals.filter(|(_, flow)| !matches!(flow.route, Route::Http(_)));
        let senders = of_terminals.map(|(index, flow)| Sender {
            flow: index,
            share: Share::of(flow.rate_per_s, plan, part),
            pacing: None,
            terminals: RoundRobin::default(),
            last: HashMap::new(),
            is_held: false,
        });
        Some(Box::new(Self {
            senders: senders.collect(),
            plan: Arc::clone(flows),
            threads: u64::from(plan.threads),
            run: plan.mark_run,
            joining: HashMap::new(),
            recent: Recent::default(),
            commands: Commands::default(),
            swept: Nanos(0),
            random: Random::new(plan.seed ^ u64::from(part.thread)),
            message: Vec::new(),
        }))
    }

    /// Forgets what is remembered of a terminal's connection.
    pub(super) fn forget(&mut self, index: u32) {
        self.joining.remove(&index);
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

impl World {
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
            for sender in 0..flows.senders.len() {
                self.send_flow(&mut flows, sender, window, now);
            }
            self.sweep_commands(&mut flows, now);
            if now.since(flows.swept) >= SWEEP_EVERY {
                flows.swept = now;
                let ledger = self.shared.flow_ledger();
                ledger.sweep(self.part.thread, now, flows.plan.settle);
            }
        }
        self.flows = Some(flows);
    }

    /// Sends what is due of one flow.
    fn send_flow(&mut self, flows: &mut Flows, sender: usize, window: Window, now: Nanos) {
        let shared = Arc::clone(&self.shared);
        let ledger = shared.flow_ledger();
        let due = {
            let sender = &mut flows.senders[sender];
            let share = sender.share;
            let pacing = sender
                .pacing
                .get_or_insert_with(|| share.pacing(window.from));
            let due = pacing.due_before(window.until, now);
            let mut figures = ledger.figures(self.part.thread);
            let figures = &mut figures[sender.flow];
            figures.due = pacing.issued() + due;
            if due > 0 {
                figures.behind = figures.behind.max(pacing.lateness(now));
            }
            sender.is_held = false;
            due
        };
        if now >= window.until.plus(SEND_GRACE) {
            return;
        }
        let mut looks = self.terminals.len().min(LOOKS_PER_TURN_MAX);
        let mut sent = 0;
        while sent < due.min(PER_TURN_MAX)
            && ledger.has_room()
            && flows.commands.has_room()
            && let Some(index) =
                flows.senders[sender]
                    .terminals
                    .next(&self.terminals, &self.outbox, &mut looks)
        {
            self.send_of_flow(flows, sender, index, now);
            sent += 1;
        }
        flows.senders[sender].is_held = sent < due;
    }

    /// Sends the next message of a flow from a terminal.
    fn send_of_flow(&mut self, flows: &mut Flows, sender: usize, index: u32, now: Nanos) {
        let terminal = self.plan.number(self.part, index);
        let plan = Arc::clone(&flows.plan);
        let sender = &mut flows.senders[sender];
        let flow = sender.flow;
        let planned = &plan.flows[flow];
        let pacing = sender.pacing.as_mut().expect("the schedule has begun");
        let issued = pacing.issued();
        let due = pacing.at(issued);
        pacing.issue(1);
        let number = issued * flows.threads + u64::from(self.part.thread);
        let previous = sender.last.insert(index, number);
        let key = MessageKey { flow, number };
        self.note_sending(&plan, terminal, key, previous, (due, now));
        let token = self.terminals[index as usize].token(index);
        match &planned.route {
            Route::Socket {
                template,
                is_binary,
            } => {
                let values = Values {
                    mark: Some(Mark::new(flows.run, flow, number)),
                    ..plan.values_of(terminal)
                };
                self.say(flows, token, (template, *is_binary), &values);
            }
            Route::Command(_) => self.send_command_of_flow(flows, token, key, (due, now)),
            Route::Http(_) => unreachable!("callers send the messages of other routes"),
        }
    }

    /// Counts a message that is about to leave, with what is expected because of it. `times` are when it was due, and now.
    fn note_sending(
        &self,
        plan: &FlowsPlan,
        sender: u64,
        key: MessageKey,
        previous: Option<u64>,
        (due, sent): (Nanos, Nanos),
    ) {
        let ledger = self.shared.flow_ledger();
        let audience = plan.flows[key.flow].audience;
        let mut figures = ledger.figures(self.part.thread);
        let figures = &mut figures[key.flow];
        if audience == Audience::Answer {
            return figures.note_asked();
        }
        let (group, _) = plan.groups.of(sender);
        let (expected, members) = plan.audience_of(ledger, audience, group);
        let sending = Sending {
            due,
            sent,
            sender,
            group,
            expected,
            members,
        };
        ledger.send(key, sending, previous, figures);
    }
}
