//! What terminals hear where flows are sent.

use super::Flows;
use super::ledger::{MessageKey, Receiver};
use super::plan::FlowPlan;
use crate::clock::Nanos;
use crate::engine::crowd::World;
use crate::engine::terminal::Phase;
use myriad_reactor::Token;

/// Longest message that is remembered.
const RECENT_BYTES_MAX: usize = 16 * 1024;

/// The message that was heard last. The members of a group hear the same one after the other, and comparing it costs less than
/// looking for its stamp.
#[derive(Debug, Default)]
pub(super) struct Recent {
    message: Vec<u8>,
    found: Option<MessageKey>,
}

impl Recent {
    /// Which message of a flow this is; none if it is none.
    fn recognise(&mut self, flows: &[FlowPlan], run: u16, message: &[u8]) -> Option<MessageKey> {
        if self.message == message {
            return self.found;
        }
        let found = flows.iter().zip(0..).find_map(|(planned, flow)| {
            let mark = planned.place.find(message, run)?;
            let number = mark.number;
            (usize::from(mark.flow) == flow).then_some(MessageKey { flow, number })
        });
        self.message.clear();
        self.found = None;
        if message.len() <= RECENT_BYTES_MAX {
            self.message.extend_from_slice(message);
            self.found = found;
        }
        found
    }
}

impl World {
    /// Takes what came for a message of a flow, or for the answer to something that the terminal said. Returns whether it was.
    pub(in crate::engine) fn hear_talk(
        &mut self,
        token: Token,
        message: &[u8],
        now: Nanos,
    ) -> bool {
        let Some(mut flows) = self.flows.take() else {
            return false;
        };
        let heard = if flows.plan.are_lines {
            let lines = message.split(|byte| *byte == b'\n');
            let lines = lines.filter(|line| !line.is_empty());
            let heard = lines.filter(|line| self.hear_one(&mut flows, token, line, now));
            heard.count() > 0
        } else {
            self.hear_one(&mut flows, token, message, now)
        };
        self.flows = Some(flows);
        if heard {
            self.totals.messages += 1;
            self.totals.message_bytes += message.len() as u64;
        }
        heard
    }

    fn hear_one(&mut self, flows: &mut Flows, token: Token, message: &[u8], now: Nanos) -> bool {
        if self.terminals[token.index as usize].phase == Phase::Joining {
            return self.hear_opening(flows, token, message, now);
        }
        let heard = self.hear_flow(flows, token, message, now)
            || self.hear_heartbeat(flows, token, message, now);
        self.reply(flows, token, message) || heard
    }

    fn hear_flow(&mut self, flows: &mut Flows, token: Token, message: &[u8], now: Nanos) -> bool {
        let planned = &flows.plan.flows;
        let Some(key) = flows.recent.recognise(planned, flows.run, message) else {
            return false;
        };
        self.note_flow_delivery(token, key, now);
        true
    }

    /// Which message of a flow this is; none if it is none.
    pub(in crate::engine) fn recognise_flow(&mut self, message: &[u8]) -> Option<MessageKey> {
        let flows = self.flows.as_mut()?;
        let planned = &flows.plan.flows;
        flows.recent.recognise(planned, flows.run, message)
    }

    /// Counts a message of a flow at a terminal.
    pub(in crate::engine) fn note_flow_delivery(&self, token: Token, key: MessageKey, now: Nanos) {
        let plan = self.plan.flows.as_ref().expect("the run has flows");
        let terminal = self.plan.number(self.part, token.index);
        let (group, place) = plan.groups.of(terminal);
        let receiver = Receiver {
            terminal,
            group,
            place,
        };
        let ledger = self.shared.flow_ledger();
        let mut figures = ledger.figures(self.part.thread);
        let audience = plan.flows[key.flow].audience;
        ledger.receive(key, audience, receiver, now, &mut figures[key.flow]);
    }

    /// Counts a message of a flow at a terminal that it does not concern.
    pub(in crate::engine) fn note_flow_unexpected(&self, key: MessageKey) {
        let mut figures = self.shared.flow_ledger().figures(self.part.thread);
        figures[key.flow].unexpected += 1;
    }
}
