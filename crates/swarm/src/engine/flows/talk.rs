//! What terminals say beside the messages of flows: when they open, as heartbeats, and as replies.

use super::Flows;
use super::template::{Template, Values};
use super::unstamped::EXAMPLE_BYTES_MAX;
use crate::clock::{Nanos, Ticks};
use crate::engine::crowd::World;
use crate::engine::terminal::Phase;
use crate::failure::Failure;
use myriad_reactor::Token;
use myriad_wire::ws::Opcode;
use std::sync::Arc;

/// Opening terminals whose misheard messages are kept at once. More are not needed: one of them becomes the example.
const MISHEARD_MAX: usize = 64;

/// Unlike messages that are kept of each: a greeting, a refusal, and pings that come behind it.
const UNLIKE_MAX: usize = 4;

impl Flows {
    /// Keeps a message that is no answer to what an opening terminal said, as long as no example of one was kept. A ping that comes
    /// again and again is kept once: it must not hide the refusal before it.
    pub(super) fn note_misheard(&mut self, index: u32, message: &[u8]) {
        let is_full = self.misheard.len() >= MISHEARD_MAX && !self.misheard.contains_key(&index);
        if is_full || self.exemplified.contains(&Failure::SessionTimeout) {
            return;
        }
        let message = &message[..message.len().min(EXAMPLE_BYTES_MAX)];
        let kept = self.misheard.entry(index).or_default();
        if kept.len() < UNLIKE_MAX && !kept.iter().any(|other| is_alike(other, message)) {
            kept.push(message.to_vec());
        }
    }
}

/// Whether two messages differ in numbers only, such as times and counters.
fn is_alike(one: &[u8], other: &[u8]) -> bool {
    let letters = |message: &[u8]| -> Vec<u8> {
        let is_letter = |byte: &u8| !byte.is_ascii_digit();
        message.iter().copied().filter(is_letter).collect()
    };
    letters(one) == letters(other) && one.first() == other.first()
}

impl World {
    /// Says what a terminal says when it opens, up to the first message that is to be answered. Returns whether there is one: then
    /// the terminal is open once everything is said and answered.
    pub(in crate::engine) fn begin_talk(&mut self, token: Token) -> bool {
        let Some(mut flows) = self.flows.take() else {
            return false;
        };
        let awaits = self.say_from(&mut flows, token, 0);
        self.flows = Some(flows);
        awaits
    }

    /// Says the messages from this one on, up to the first that is to be answered. Returns whether there is one.
    fn say_from(&mut self, flows: &mut Flows, token: Token, first: usize) -> bool {
        let plan = Arc::clone(&flows.plan);
        let terminal = self.plan.number(self.part, token.index);
        for (step, said) in plan.opening.iter().enumerate().skip(first) {
            let values = plan.values_of(terminal);
            self.say(flows, token, (&said.template, said.is_binary), &values);
            if said.answer.is_some() {
                flows.joining.insert(token.index, step);
                return true;
            }
        }
        flows.joining.remove(&token.index);
        false
    }

    /// Takes a message for the answer that an opening terminal waits for, if it is that.
    pub(super) fn hear_opening(
        &mut self,
        flows: &mut Flows,
        token: Token,
        message: &[u8],
        now: Nanos,
    ) -> bool {
        let Some(&step) = flows.joining.get(&token.index) else {
            return false;
        };
        let answer = flows.plan.opening[step].answer.as_ref();
        if !answer.is_some_and(|answer| answer.is_match(message)) {
            return false;
        }
        flows.misheard.remove(&token.index);
        if !self.say_from(flows, token, step + 1) {
            self.note_opened(token.index as usize, now);
        }
        true
    }

    /// What a terminal heard that it did not wait for when it opened, the last first: that is most likely a refusal.
    pub(in crate::engine) fn misheard(&mut self, index: u32) -> String {
        let flows = self.flows.as_mut();
        let said = flows.and_then(|flows| flows.misheard.remove(&index));
        let said = said.unwrap_or_default();
        let said = said.iter().rev().map(|one| String::from_utf8_lossy(one));
        said.collect::<Vec<_>>().join(" | ")
    }

    /// Says a terminal's heartbeat, where it is a message.
    pub(in crate::engine) fn say_heartbeat(&mut self, token: Token) {
        let Some(mut flows) = self.flows.take() else {
            return;
        };
        let plan = Arc::clone(&flows.plan);
        if let Some(said) = &plan.heartbeat {
            let terminal = self.plan.number(self.part, token.index);
            let values = plan.values_of(terminal);
            let message = (&said.template, said.is_binary);
            self.say(&mut flows, token, message, &values);
        }
        self.flows = Some(flows);
    }

    /// Takes a message for the answer to a terminal's heartbeat, if it is that.
    pub(super) fn hear_heartbeat(
        &mut self,
        flows: &Flows,
        token: Token,
        message: &[u8],
        now: Nanos,
    ) -> bool {
        let terminal = &mut self.terminals[token.index as usize];
        let heartbeat = flows.plan.heartbeat.as_ref();
        let answer = heartbeat.and_then(|said| said.answer.as_ref());
        if terminal.phase != Phase::Open
            || terminal.waiting_since == Ticks(0)
            || !answer.is_some_and(|answer| answer.is_match(message))
        {
            return false;
        }
        let time = now.ticks().since(terminal.waiting_since);
        terminal.waiting_since = Ticks(0);
        self.notes.pong_times.push(time);
        self.totals.heartbeats_answered += 1;
        true
    }

    /// Says what is replied to a message. Returns whether anything is.
    pub(super) fn reply(&mut self, flows: &mut Flows, token: Token, message: &[u8]) -> bool {
        let plan = Arc::clone(&flows.plan);
        let terminal = self.plan.number(self.part, token.index);
        let mut replied = false;
        for reply in &plan.replies {
            let Some(found) = reply.to.captures(message) else {
                continue;
            };
            replied = true;
            // A server that asks for too much at once does not get it all: it could have a client keep any number of bytes.
            if !self.outbox.has_room(token.index) {
                break;
            }
            let matched = found.get(1).or_else(|| found.get(0));
            let values = Values {
                matched: matched.map_or(b"", |matched| matched.as_bytes()),
                ..plan.values_of(terminal)
            };
            self.say(flows, token, (&reply.template, reply.is_binary), &values);
        }
        replied
    }

    /// Queues a message of a terminal: its template, and whether it is binary.
    pub(super) fn say(
        &mut self,
        flows: &mut Flows,
        token: Token,
        (template, is_binary): (&Template, bool),
        values: &Values<'_>,
    ) {
        flows.message.clear();
        template.write(&mut flows.message, values, &mut flows.random);
        let opcode = match is_binary {
            true => Opcode::Binary,
            false => Opcode::Text,
        };
        self.queue_message(token, opcode, &flows.message);
    }
}
