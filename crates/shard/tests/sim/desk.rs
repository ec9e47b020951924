//! The control plane's desk: it answers what sessions ask, at once, late, or never.

use crate::ledger::Replies;
use myriad_reactor::sim::Prng;
use myriad_shard::{Ask, AskAnswer, ErrorCode, Mesh, Question};

/// Errors that the desk answers with. A client names the one it wants by its place, as the method.
pub(crate) const ERRORS: [ErrorCode; 4] = [
    ErrorCode::PermissionDenied,
    ErrorCode::MethodNotFound,
    ErrorCode::NotAvailable,
    ErrorCode::TokenExpired,
];

pub(crate) struct Desk {
    replies: Replies,
    /// What will be answered late, or never.
    held: Vec<Ask>,
    /// Whether it holds asks back.
    pub(crate) holds: bool,
    /// Whether it leaves some without an answer.
    drops: bool,
}

impl Desk {
    pub(crate) fn new(replies: Replies, drops: bool) -> Self {
        Self {
            replies,
            held: Vec::new(),
            holds: true,
            drops,
        }
    }

    /// Takes in what was asked. True if there was something.
    pub(crate) fn attend(&mut self, mesh: &Mesh, prng: &mut Prng) -> bool {
        let asks = self.replies.take_asks();
        let is_moving = !asks.is_empty();
        for ask in asks {
            if self.holds && prng.one_in(2) {
                self.held.push(ask);
            } else {
                answer(mesh, ask);
            }
        }
        is_moving
    }

    /// Answers one of those that it holds, or drops it.
    pub(crate) fn decide(&mut self, mesh: &Mesh, prng: &mut Prng) {
        if self.held.is_empty() {
            return;
        }
        let ask = self.held.swap_remove(prng.below(self.held.len()));
        if !self.drops || !prng.one_in(4) {
            answer(mesh, ask);
        }
    }

    /// Answers everything that it holds, or drops all of it.
    pub(crate) fn clear(&mut self, mesh: &Mesh, prng: &mut Prng) {
        if self.drops && prng.one_in(2) {
            self.held.clear();
        }
        self.held.drain(..).for_each(|ask| answer(mesh, ask));
    }
}

fn answer(mesh: &Mesh, ask: Ask) {
    let Question::Rpc { method, data } = ask.question() else {
        unreachable!("clients of the simulation ask for nothing else");
    };
    assert_eq!(data.bytes(), method.as_bytes(), "a question is whole");
    let wanted: usize = method.parse().expect("the place of an error");
    mesh.answer(ask, AskAnswer::Refused(ERRORS[wanted].into()));
}
