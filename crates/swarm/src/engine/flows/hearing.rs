//! What terminals hear where flows are sent.

use super::Flows;
use super::ledger::MessageKey;
use super::plan::{FlowsPlan, Route};
use crate::clock::Nanos;
use crate::engine::crowd::World;
use crate::engine::terminal::Phase;
use myriad_reactor::Token;
use rustc_hash::FxHasher;
use std::hash::Hasher as _;

/// Longest message that is remembered.
const RECENT_BYTES_MAX: usize = 16 * 1024;

/// Messages that are remembered: those of a few groups, which batches bring together.
const RECENT_MESSAGES: usize = 128;

/// Messages that were heard lately, by their hash. The members of a group hear the same one after the other, and comparing it
/// costs less than looking for its stamp.
#[derive(Debug)]
pub(super) struct Recent {
    slots: Box<[Remembered]>,
}

#[derive(Clone, Debug, Default)]
struct Remembered {
    message: Vec<u8>,
    known: Known,
}

/// What is known of a message by its bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Which message of a flow it is; none if it is none.
    key: Option<MessageKey>,
    /// Whether terminals reply to it.
    draws_reply: bool,
}

impl Default for Recent {
    fn default() -> Self {
        Self {
            slots: vec![Remembered::default(); RECENT_MESSAGES].into(),
        }
    }
}

impl Recent {
    fn recognise(&mut self, plan: &FlowsPlan, run: u16, message: &[u8]) -> Known {
        let mut hasher = FxHasher::default();
        hasher.write(message);
        let slots = self.slots.len() as u64;
        let slot = usize::try_from(hasher.finish() % slots).expect("fewer than slots");
        let remembered = &mut self.slots[slot];
        if remembered.message != message || message.is_empty() {
            let known = Known::find(plan, run, message);
            if message.len() > RECENT_BYTES_MAX {
                return known;
            }
            remembered.message.clear();
            remembered.message.extend_from_slice(message);
            remembered.known = known;
        }
        remembered.known
    }
}

impl Known {
    fn find(plan: &FlowsPlan, run: u16, message: &[u8]) -> Self {
        let key = plan.recognise(message, run);
        let draws_reply = plan.replies.iter().any(|reply| reply.to.is_match(message));
        Self { key, draws_reply }
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
        let is_joining = self.terminals[token.index as usize].phase == Phase::Joining;
        if is_joining && self.hear_opening(flows, token, message, now) {
            return true;
        }
        let known = flows.recent.recognise(&flows.plan, flows.run, message);
        if is_joining {
            // A server may ping, or ask for something, before it lets a client in.
            if !known.draws_reply {
                flows.note_misheard(token.index, message);
            }
            return known.draws_reply && self.reply(flows, token, message);
        }
        let heard = match known.key {
            Some(key) => {
                self.note_flow_delivery(token, key, now);
                true
            }
            None => {
                let is_beat = self.hear_heartbeat(flows, token, message, now);
                if !is_beat && !known.draws_reply {
                    self.totals.unstamped += 1;
                    self.keep_unstamped(message);
                }
                is_beat
            }
        };
        // One that stalls says nothing.
        let is_open = self.terminals[token.index as usize].phase == Phase::Open;
        is_open && known.draws_reply && self.reply(flows, token, message) || heard
    }

    /// Which message of a flow this is; none if it is none.
    pub(in crate::engine) fn recognise_flow(&mut self, message: &[u8]) -> Option<MessageKey> {
        let flows = self.flows.as_mut()?;
        flows.recent.recognise(&flows.plan, flows.run, message).key
    }

    /// Counts a message of a flow at a terminal.
    pub(in crate::engine) fn note_flow_delivery(
        &mut self,
        token: Token,
        key: MessageKey,
        now: Nanos,
    ) {
        let plan = self.plan.flows.as_ref().expect("the run has flows");
        let planned = &plan.flows[key.flow];
        // The answer to a command is its reply.
        if planned.pace.think().is_some() && matches!(planned.route, Route::Socket { .. }) {
            self.flow_answers.push((token.index, key));
        }
        let receiver = self.receiver(token.index);
        let ledger = self.shared.flow_ledger();
        let mut figures = ledger.figures(self.part.thread);
        let audience = planned.audience;
        ledger.receive(key, audience, receiver, now, &mut figures[key.flow]);
    }

    /// Counts a message of a flow at a terminal that it does not concern.
    pub(in crate::engine) fn note_flow_unexpected(&self, key: MessageKey) {
        let mut figures = self.shared.flow_ledger().figures(self.part.thread);
        figures[key.flow].unexpected += 1;
    }
}
