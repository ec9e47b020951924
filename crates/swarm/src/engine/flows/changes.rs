//! Members of groups that leave, are lost, and come back, as one thread tells the ledger of them.

use super::ledger::Receiver;
use super::presence::Absences;
use crate::engine::crowd::World;
use crate::engine::plan::Plan;
use myriad_reactor::Token;
use std::collections::HashMap;
use std::sync::Arc;

/// The members of one thread that are away, or were.
#[derive(Debug, Default)]
pub(in crate::engine) struct Changes {
    /// By terminal. One that is there all the time is not in it.
    absences: HashMap<u32, Absences>,
    /// Those that leave on purpose in this turn, as they were until now.
    leaving: Vec<Receiver>,
}

impl Changes {
    /// None where nobody leaves, or nobody is expected to get anything.
    pub(in crate::engine) fn new(plan: &Plan) -> Option<Box<Self>> {
        let is_wanted = plan.is_changing() && plan.flows.is_some();
        is_wanted.then(Box::default)
    }
}

impl World {
    /// A terminal as the ledger knows it.
    pub(super) fn receiver(&self, index: u32) -> Receiver {
        let plan = self.plan.flows.as_ref().expect("the run has flows");
        let terminal = self.plan.number(self.part, index);
        let (group, place) = plan.groups.of(terminal);
        let absences = self.changes.as_ref().map(|changes| &changes.absences);
        let absences = absences.and_then(|absences| absences.get(&index));
        Receiver {
            terminal,
            group,
            place,
            absences: absences.copied().unwrap_or_default(),
        }
    }

    /// Notes that an open terminal is about to leave on purpose: it drops its connection, stalls or vanishes.
    pub(in crate::engine) fn leave_group(&mut self, index: usize) {
        if self.changes.is_none() {
            return;
        }
        let number = u32::try_from(index).expect("terminals are at most 2^32");
        let member = self.receiver(number);
        if let Some(changes) = &mut self.changes {
            changes.leaving.push(member);
            changes.absences.insert(number, Absences::ON_PURPOSE);
        }
    }

    /// Tells the ledger who left, before anything else is sent or received.
    pub(in crate::engine) fn settle_leaving(&mut self) {
        let Some(changes) = &mut self.changes else {
            return;
        };
        if changes.leaving.is_empty() {
            return;
        }
        let leaving = std::mem::take(&mut changes.leaving);
        let shared = Arc::clone(&self.shared);
        let ledger = shared.flow_ledger();
        let plan = self.plan.flows.as_ref().expect("the run has flows");
        ledger.leave(&leaving, plan, self.part.thread);
    }

    /// Whether a connection has ended, or stalls, because its terminal left on purpose.
    pub(super) fn has_left(&self, token: Token) -> bool {
        let changes = self.changes.as_ref();
        let absences = changes.and_then(|changes| changes.absences.get(&token.index));
        // Another one has come in its place since, or itself was there all the time.
        let is_there = |absences: &Absences| absences.are_over() && self.current(token).is_some();
        absences.is_some_and(|absences| absences.is_on_purpose() && !is_there(absences))
    }

    /// Notes in its group that a terminal opened or ended.
    pub(in crate::engine) fn note_open_in_group(&mut self, index: u32, opened: bool) {
        if self.plan.flows.is_none() || self.shared.flows.is_none() {
            return;
        }
        if opened {
            // One that stalled may read again in the same turn.
            self.settle_leaving();
        }
        let shared = Arc::clone(&self.shared);
        let presence = &shared.flow_ledger().presence;
        let member = self.receiver(index);
        let is_over = self.closing_all.is_some();
        let note = || presence.note(member.group, member.terminal, opened);
        let Some(changes) = self.changes.as_mut().filter(|_| !is_over) else {
            return note();
        };
        if !opened {
            // Otherwise it is one of those that leave in this turn.
            if member.absences.are_over() {
                let change = presence.change();
                note();
                changes.absences.entry(index).or_default().begin(*change);
            }
            return;
        }
        match changes.absences.get_mut(&index) {
            Some(absences) if !absences.are_over() => {
                let change = presence.change();
                note();
                absences.end(*change);
            }
            _ => note(),
        }
    }
}
