//! Flows: messages that terminals and callers send by a schedule, and what comes of each.
//!
//! * `template`: what is sent, with `accounts`; `mark`: how it is known again;
//! * `groups`: who belongs together; `presence` and `changes`: which of them are there; `ledger`: what became of each message, for
//!   all threads;
//! * `commands`: what terminals with sessions do, and the replies;
//! * `talk`: what terminals say when they open, as heartbeats, and as replies;
//! * `hearing`: what they hear; `bodies`: the same of what comes over HTTP;
//! * `thinking`: who sends when the last answer has come, and not by a schedule;
//! * here: a thread's part of the schedules. `crate::caller` has those of HTTP.

pub(crate) mod accounts;
mod bodies;
pub(in crate::engine) mod changes;
mod commands;
pub(crate) mod figures;
pub(crate) mod groups;
mod hearing;
pub(crate) mod ledger;
pub(crate) mod mark;
pub(crate) mod plan;
pub(crate) mod presence;
mod talk;
pub(crate) mod template;
pub(crate) mod thinking;
pub(crate) mod unstamped;

use crate::clock::Nanos;
use crate::engine::crowd::World;
use crate::engine::pacing::{HELD_STEP, Pacing, SEND_GRACE, Share};
use crate::engine::plan::{Part, Plan};
use crate::engine::round_robin::{LOOKS_PER_TURN_MAX, RoundRobin};
use crate::engine::shared::Span;
use crate::failure::Failure;
use crate::random::Random;
use commands::Commands;
use hearing::Recent;
use ledger::{MessageKey, Sending};
use mark::Mark;
use plan::{Audience, FlowsPlan, Pace, Route};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use template::Values;
use thinking::Loop;

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
    /// By terminal that is opening: messages that were not the answer it waits for. None is added once some of them are the example.
    misheard: HashMap<u32, Vec<Vec<u8>>>,
    /// Failures to open of which an example was kept.
    pub(super) exemplified: BTreeSet<Failure>,
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
    pace: Schedule,
    /// By terminal: its last message. At most one entry a terminal.
    last: HashMap<u32, u64>,
    /// Messages are due and nobody could take one.
    is_held: bool,
}

/// When messages of a flow are due.
#[derive(Debug)]
enum Schedule {
    Rate(ByRate),
    Think(Box<Loop>),
}

/// At a rate, by one terminal after the other.
#[derive(Debug)]
struct ByRate {
    share: Share,
    /// None before the schedule is known.
    pacing: Option<Pacing>,
    terminals: RoundRobin,
}

impl Schedule {
    fn new(pace: Pace, plan: &Plan, part: Part) -> Self {
        match pace {
            Pace::Think(think) => Self::Think(Box::new(Loop::new(think))),
            Pace::Rate(rate_per_s) => Self::Rate(ByRate {
                share: Share::of(rate_per_s, plan, part),
                pacing: None,
                terminals: RoundRobin::default(),
            }),
        }
    }
}

impl Sender {
    /// Time until it may send. After the window nothing is sent, however long deliveries are awaited, so that what would be due then does not
    /// wake the thread.
    fn wait(&self, window: Span, now: Nanos) -> Duration {
        if self.is_held {
            return HELD_STEP;
        }
        match &self.pace {
            Schedule::Think(own) if now < window.until => own.wait(now),
            Schedule::Rate(own) if now < window.until.plus(SEND_GRACE) => {
                let pacing = own.pacing.as_ref();
                pacing.map_or(Duration::MAX, |it| it.wait_before(window.until, now))
            }
            Schedule::Think(_) | Schedule::Rate(_) => Duration::MAX,
        }
    }
}

impl Flows {
    pub(super) fn new(plan: &Plan, part: Part) -> Option<Box<Self>> {
        let flows = plan.flows.as_ref()?;
        let of_terminals = flows.flows.iter().enumerate();
        let of_terminals = of_terminals.filter(|(_, flow)| !matches!(flow.route, Route::Http(_)));
        let senders = of_terminals.map(|(index, flow)| Sender {
            flow: index,
            pace: Schedule::new(flow.pace, plan, part),
            last: HashMap::new(),
            is_held: false,
        });
        Some(Box::new(Self {
            senders: senders.collect(),
            plan: Arc::clone(flows),
            threads: u64::from(plan.threads),
            run: plan.mark_run,
            joining: HashMap::new(),
            misheard: HashMap::new(),
            exemplified: BTreeSet::new(),
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
        self.misheard.remove(&index);
    }

    /// Time until they need attention. Messages are due in this window; none before it is known.
    pub(super) fn wait(&self, window: Option<Span>, now: Nanos) -> Duration {
        let Some(window) = window else {
            return Duration::MAX;
        };
        let waits = self.senders.iter().map(|sender| sender.wait(window, now));
        waits.min().unwrap_or(Duration::MAX)
    }
}

impl World {
    /// Sends the messages that are due.
    pub(super) fn send_flows(&mut self, now: Nanos) {
        let Some(mut flows) = self.flows.take() else {
            return;
        };
        if let Some(window) = self.shared.schedule() {
            self.note_answers(&mut flows, window, now);
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
    fn send_flow(&mut self, flows: &mut Flows, sender: usize, window: Span, now: Nanos) {
        match &flows.senders[sender].pace {
            Schedule::Rate(_) => self.send_by_rate(flows, sender, window, now),
            Schedule::Think(_) => self.send_thought(flows, sender, window, now),
        }
    }

    /// Sends what is due of a flow at a rate.
    fn send_by_rate(&mut self, flows: &mut Flows, sender: usize, window: Span, now: Nanos) {
        let due = self.due_by_rate(&mut flows.senders[sender], window, now);
        if now >= window.until.plus(SEND_GRACE) {
            return;
        }
        let mut looks = self.terminals.len().min(LOOKS_PER_TURN_MAX);
        let mut sent = 0;
        while sent < due.min(PER_TURN_MAX)
            && self.shared.flow_ledger().has_room()
            && flows.commands.has_room()
            && let Schedule::Rate(own) = &mut flows.senders[sender].pace
            && let Some(index) = own
                .terminals
                .next(self.terminals.len(), &mut looks, |index| {
                    self.is_free(index)
                })
        {
            let pacing = own.pacing.as_mut().expect("the schedule has begun");
            let issued = pacing.issued();
            let due = pacing.at(issued);
            pacing.issue(1);
            let number = issued * flows.threads + u64::from(self.part.thread);
            self.send_of_flow(flows, sender, (index, number), (due, now));
            sent += 1;
        }
        flows.senders[sender].is_held = sent < due;
    }

    /// How many messages of a flow at a rate are due.
    fn due_by_rate(&self, sender: &mut Sender, window: Span, now: Nanos) -> u64 {
        let flow = sender.flow;
        sender.is_held = false;
        let Schedule::Rate(own) = &mut sender.pace else {
            return 0;
        };
        let share = own.share;
        let pacing = own.pacing.get_or_insert_with(|| share.pacing(window.from));
        let due = pacing.due_before(window.until, now);
        let mut figures = self.shared.flow_ledger().figures(self.part.thread);
        let figures = &mut figures[flow];
        figures.due = pacing.issued() + due;
        if due > 0 {
            figures.behind = figures.behind.max(pacing.lateness(now));
        }
        due
    }

    /// Sends for terminals that have thought.
    fn send_thought(&mut self, flows: &mut Flows, sender: usize, window: Span, now: Nanos) {
        flows.senders[sender].is_held = false;
        if now < window.from || now >= window.until {
            return;
        }
        let (threads, thread) = (flows.threads, u64::from(self.part.thread));
        let until = now.plus(flows.plan.settle);
        for (_, token, due) in self.take_released(sender) {
            if let Schedule::Think(own) = &mut flows.senders[sender].pace {
                own.put_back(token, due);
            }
        }
        for _ in 0..PER_TURN_MAX {
            let has_room = self.shared.flow_ledger().has_room() && flows.commands.has_room();
            let Schedule::Think(own) = &mut flows.senders[sender].pace else {
                return;
            };
            let Some((token, due)) = own.take_due(now) else {
                return;
            };
            if !self.may_send(token) {
                continue;
            }
            if self.is_waiting_for_answer(token.index) {
                self.defer(sender, token, due);
                continue;
            }
            if !has_room || !self.is_free(token.index) {
                own.put_back(token, due);
                flows.senders[sender].is_held = true;
                return;
            }
            let number = own.issue(token, |issued| issued * threads + thread, until);
            let flow = flows.senders[sender].flow;
            {
                let mut figures = self.shared.flow_ledger().figures(self.part.thread);
                figures[flow].due += 1;
                figures[flow].behind = figures[flow].behind.max(now.since(due));
            }
            self.send_of_flow(flows, sender, (token.index, number), (due, now));
        }
    }

    /// Lets terminals think that have opened, that were answered, or that will not be.
    fn note_answers(&mut self, flows: &mut Flows, window: Span, now: Nanos) {
        let from = now.max(window.from);
        let (newcomers, answered) = (
            std::mem::take(&mut self.newcomers),
            std::mem::take(&mut self.flow_answers),
        );
        let random = &mut flows.random;
        for sender in &mut flows.senders {
            let Schedule::Think(own) = &mut sender.pace else {
                continue;
            };
            for token in &newcomers {
                own.begin(*token, from, random);
            }
            let answered = answered.iter().filter(|(_, key)| key.flow == sender.flow);
            for (index, key) in answered {
                own.answer(*index, key.number, now, random);
            }
            own.give_up(now, random);
        }
    }

    /// Sends a message of a flow from a terminal: the terminal, the number of the message, when it was due, and now.
    fn send_of_flow(
        &mut self,
        flows: &mut Flows,
        sender: usize,
        (index, number): (u32, u64),
        (due, now): (Nanos, Nanos),
    ) {
        let terminal = self.plan.number(self.part, index);
        let plan = Arc::clone(&flows.plan);
        let sender = &mut flows.senders[sender];
        let flow = sender.flow;
        let planned = &plan.flows[flow];
        // The order is judged among messages that somebody gets.
        let is_message = planned.audience != Audience::Answer;
        let previous = is_message.then(|| sender.last.insert(index, number));
        let previous = previous.flatten();
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
            Route::Request(request) => {
                let values = Values {
                    mark: Some(Mark::new(flows.run, flow, number)),
                    ..plan.values_of(terminal)
                };
                let written = self.write_request(index, request, &values, &mut flows.random);
                self.send_request_of_flow(index, key, written, (due, now));
            }
            Route::Http(_) => unreachable!("callers send the messages of other routes"),
        }
    }

    /// Counts a message that is about to leave, with what is expected because of it. The last two are when it was due, and now.
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
        // Nobody leaves or comes until the ledger has it.
        let stage = ledger.presence.hold();
        let (expected, members) = plan.audience_of(ledger, audience, (group, sender));
        let sending = Sending {
            due,
            sent,
            sender,
            group,
            expected,
            stage: *stage,
            members,
        };
        ledger.send(key, sending, previous, figures);
    }
}
