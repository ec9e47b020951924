//! Flows of terminals with sessions: commands, their replies by id, and publications at whoever subscribes.
//!
//! What a command publishes is in the ledger as all messages are. Its reply is awaited here, and for as long the ledger counts one more
//! thing that is to come.

use super::Flows;
use super::ledger::MessageKey;
use super::mark::Mark;
use super::plan::{Audience, CommandPlan, FlowPlan, FlowsPlan, Route};
use super::template::Values;
use crate::clock::Nanos;
use crate::config::Action;
use crate::engine::crowd::World;
use crate::engine::terminal::{Phase, Terminal};
use crate::failure::Failure;
use myriad_reactor::Token;
use myriad_wire::centrifuge::client::{CommandWriter, Failure as Refusal, Outcome};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// From this id on commands are those of flows.
const COMMAND_ID_FROM: u32 = 1 << 30;

/// Ids before they begin again: far more than may be unanswered.
const COMMAND_IDS: u32 = 1 << 30;

/// Commands of a thread that are not answered yet. Past it, commands that are due wait.
const UNANSWERED_MAX: usize = 1 << 17;

/// How often those are looked for that nothing will answer any more.
const SWEEP_EVERY: Duration = Duration::from_millis(250);

/// The commands of a thread that are not answered yet.
#[derive(Debug, Default)]
pub(super) struct Commands {
    unanswered: HashMap<u32, Asked>,
    /// How many there were.
    issued: u32,
    swept: Nanos,
}

/// A command without a reply.
#[derive(Clone, Copy, Debug)]
struct Asked {
    token: Token,
    key: MessageKey,
    due: Nanos,
    sent: Nanos,
}

/// What a reply turned out to be.
enum Judged {
    Answered,
    Refused(Failure, String),
}

impl Commands {
    /// Whether one more may be sent.
    pub(super) fn has_room(&self) -> bool {
        self.unanswered.len() < UNANSWERED_MAX
    }

    /// The id of a command whose reply is awaited from now on.
    fn issue(&mut self, asked: Asked) -> u32 {
        let id = COMMAND_ID_FROM + self.issued % COMMAND_IDS;
        self.issued = (self.issued + 1) % COMMAND_IDS;
        let previous = self.unanswered.insert(id, asked);
        assert!(previous.is_none(), "ids are far more than UNANSWERED_MAX");
        id
    }

    /// Takes the command of this id that was sent on this connection.
    fn take(&mut self, token: Token, id: u32) -> Option<Asked> {
        let asked = self.unanswered.get(&id)?;
        if asked.token != token {
            return None;
        }
        self.unanswered.remove(&id)
    }

    /// Takes those that nothing will answer: their time is over, or their connection.
    fn take_over(&mut self, terminals: &[Terminal], now: Nanos, settle: Duration) -> Vec<Asked> {
        let mut over = Vec::new();
        self.unanswered.retain(|_, asked| {
            let terminal = &terminals[asked.token.index as usize];
            let is_gone =
                terminal.attempt != asked.token.generation || terminal.phase != Phase::Open;
            let is_over = is_gone || now.since(asked.sent) >= settle;
            if is_over {
                over.push(*asked);
            }
            !is_over
        });
        over
    }
}

impl CommandPlan {
    /// The channel that it is about.
    fn channel_of<'a>(
        &self,
        plan: &'a FlowsPlan,
        values: &Values<'_>,
        flows: &mut Flows,
    ) -> Cow<'a, str> {
        let Some(template) = &self.channel else {
            let of_group = plan.channels.get(values.group as usize);
            return Cow::Borrowed(of_group.map_or("", String::as_str));
        };
        let mut name = Vec::new();
        template.write(&mut name, values, &mut flows.random);
        Cow::Owned(String::from_utf8_lossy(&name).into_owned())
    }

    fn write(&self, writer: &mut CommandWriter<'_>, id: u32, channel: &str, data: &[u8]) {
        match self.action {
            Action::Publish => writer.publish(id, channel, data),
            Action::Rpc => writer.rpc(id, &self.method, data),
            Action::History => writer.history(id, channel, self.limit),
            Action::Presence => writer.presence(id, channel),
            Action::PresenceStats => writer.presence_stats(id, channel),
            Action::Send => writer.send(data),
        }
    }

    /// Whether a reply is what the command asks for.
    fn judge(&self, outcome: &Result<Outcome<'_>, Refusal<'_>>, name: &str) -> Judged {
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(refusal) => {
                let code = u16::try_from(refusal.code).unwrap_or(u16::MAX);
                let said = format!("{} {}: {name}", refusal.code, refusal.message);
                return Judged::Refused(Failure::Command(code), said);
            }
        };
        let is_asked = match (self.action, outcome) {
            (Action::Publish, Outcome::Published)
            | (Action::History, Outcome::History(_))
            | (Action::Presence, Outcome::Presence(_))
            | (Action::PresenceStats, Outcome::PresenceStats) => true,
            (Action::Rpc, Outcome::Rpc(content)) => {
                let data = content.data.as_bytes();
                self.answer
                    .as_ref()
                    .is_none_or(|answer| answer.is_match(data))
            }
            _ => false,
        };
        match is_asked {
            true => Judged::Answered,
            false => {
                let said = format!("another reply than to {}: {name}", self.action.name());
                Judged::Refused(Failure::CommandWrong, said)
            }
        }
    }
}

fn planned(plan: &FlowsPlan, flow: usize) -> (&FlowPlan, &CommandPlan) {
    let planned = &plan.flows[flow];
    match &planned.route {
        Route::Command(command) => (planned, command),
        Route::Socket { .. } | Route::Request(_) | Route::Http(_) => {
            unreachable!("only commands are awaited here")
        }
    }
}

impl World {
    /// Sends the command of a flow from a terminal. The last two are when it was due, and now.
    pub(super) fn send_command_of_flow(
        &mut self,
        flows: &mut Flows,
        token: Token,
        key: MessageKey,
        times: (Nanos, Nanos),
    ) {
        let plan = Arc::clone(&flows.plan);
        let (_, command) = planned(&plan, key.flow);
        let terminal = self.plan.number(self.part, token.index);
        let values = Values {
            mark: Some(Mark::new(flows.run, key.flow, key.number)),
            ..plan.values_of(terminal)
        };
        let channel = command.channel_of(&plan, &values, flows);
        flows.message.clear();
        if let Some(data) = &command.data {
            data.write(&mut flows.message, &values, &mut flows.random);
        }
        self.break_no_lines(&mut flows.message);
        let (due, sent) = times;
        let asked = Asked {
            token,
            key,
            due,
            sent,
        };
        let id = match command.action {
            Action::Send => 0,
            _ => {
                self.shared.flow_ledger().await_answer();
                flows.commands.issue(asked)
            }
        };
        self.send_command(token, |writer| {
            command.write(writer, id, &channel, &flows.message);
        });
    }

    /// Takes the reply to a command of a flow. False if it is none, or not awaited.
    pub(in crate::engine) fn take_flow_reply(
        &mut self,
        token: Token,
        id: u32,
        outcome: &Result<Outcome<'_>, Refusal<'_>>,
        now: Nanos,
    ) -> bool {
        if id < COMMAND_ID_FROM {
            return false;
        }
        let asked = self
            .flows
            .as_mut()
            .and_then(|flows| flows.commands.take(token, id));
        let (Some(asked), Some(plan)) = (asked, self.plan.flows.clone()) else {
            return false;
        };
        let (flow, command) = planned(&plan, asked.key.flow);
        let is_all = flow.audience == Audience::Answer;
        let judged = command.judge(outcome, &flow.name);
        let shared = Arc::clone(&self.shared);
        let ledger = shared.flow_ledger();
        {
            let mut figures = ledger.figures(self.part.thread);
            let figures = &mut figures[asked.key.flow];
            match &judged {
                Judged::Answered => {
                    let (due, sent) = (now.since(asked.due), now.since(asked.sent));
                    figures.note_answered(due, sent, is_all);
                }
                Judged::Refused(..) if is_all => figures.note_refused(is_all),
                Judged::Refused(..) => {
                    figures.note_refused(is_all);
                    ledger.cancel(asked.key, figures);
                }
            }
        }
        ledger.end_answer(now);
        if flow.pace.think().is_some() {
            self.flow_answers.push((token.index, asked.key));
        }
        if let Judged::Refused(failure, said) = judged {
            self.keep_example(failure, &said);
            self.note_failure(failure);
        } else if let (Ok(Outcome::Rpc(content)), false) = (outcome, is_all) {
            self.hear_data(token, content.data.as_bytes(), now);
        }
        true
    }

    /// Gives up commands that nothing will answer any more.
    pub(super) fn sweep_commands(&mut self, flows: &mut Flows, now: Nanos) {
        if flows.commands.unanswered.is_empty() || now.since(flows.commands.swept) < SWEEP_EVERY {
            return;
        }
        flows.commands.swept = now;
        let settle = flows.plan.settle;
        for asked in flows.commands.take_over(&self.terminals, now, settle) {
            let (flow, _) = planned(&flows.plan, asked.key.flow);
            let is_all = flow.audience == Audience::Answer;
            let ledger = self.shared.flow_ledger();
            ledger.end_answer(Nanos(0));
            let mut figures = ledger.figures(self.part.thread);
            let figures = &mut figures[asked.key.flow];
            // One that has left on purpose awaits nothing.
            if self.has_left(asked.token) {
                figures.note_left(is_all);
                continue;
            }
            figures.note_unanswered(is_all);
            self.notes.failures.push(Failure::Command(0));
        }
    }

    /// Takes data that came to a terminal for a message of a flow, if it is one.
    pub(in crate::engine) fn hear_data(&mut self, token: Token, data: &[u8], now: Nanos) {
        if let Some(key) = self.recognise_flow(data)
            && self.terminals[token.index as usize].phase == Phase::Open
        {
            self.note_flow_delivery(token, key, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(index: u32, sent: u64) -> Asked {
        Asked {
            token: Token {
                index,
                generation: 0,
            },
            key: MessageKey { flow: 0, number: 7 },
            due: Nanos(0),
            sent: Nanos(sent),
        }
    }

    #[test]
    fn a_reply_belongs_to_one_command_of_its_connection() {
        let mut commands = Commands {
            issued: COMMAND_IDS - 1,
            ..Commands::default()
        };
        let (one, other) = (commands.issue(asked(1, 0)), commands.issue(asked(2, 0)));
        assert_eq!((one, other), (u32::MAX >> 1, COMMAND_ID_FROM), "they wrap");
        let token = |index| asked(index, 0).token;
        assert!(commands.take(token(1), other).is_none(), "of another");
        assert!(commands.take(token(2), other).is_some());
        assert!(commands.take(token(2), other).is_none(), "twice");
    }

    #[test]
    fn what_nothing_will_answer_is_over() {
        let mut terminals = vec![Terminal::new(), Terminal::new(), Terminal::new()];
        terminals[0].phase = Phase::Open;
        terminals[1].phase = Phase::Ended;
        terminals[2].phase = Phase::Open;
        terminals[2].attempt = 1;
        let mut commands = Commands::default();
        for (index, sent) in [(0, 5), (0, 4), (1, 5), (2, 5)] {
            commands.issue(asked(index, sent));
        }
        let over = commands.take_over(&terminals, Nanos(14), Duration::from_nanos(10));
        let mut over: Vec<(u32, u64)> = over.iter().map(|it| (it.token.index, it.sent.0)).collect();
        over.sort_unstable();
        assert_eq!(over, [(0, 4), (1, 5), (2, 5)]);
        assert_eq!(commands.unanswered.len(), 1);
    }
}
