//! Commands that wait for the control plane: until it answers, or until their deadline. See [`crate::Ask`].
//!
//! The shard keeps the deadlines, because its clients must get an answer even if the control plane is busy or stuck.
//!
//! Changes `sessions`; sends by `mesh`.

use super::{Asked, Failure};
use crate::asks::{Ask, AskAnswer, AskId, AskPlace, Question};
use crate::marks::hit;
use crate::shard::Shard;
use myriad_hub::{Now, Ticket};
use myriad_reactor::Reactor;
use myriad_wheel::{Key, Tick};
use myriad_wire::centrifuge::ErrorCode;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a client is told when too many commands wait.
const FULL: &str = "internal server error: too many commands wait for the application";

/// What a client is told at the deadline.
const LATE: &str = "internal server error: the application did not answer in time";

/// The asks of a shard's clients that wait. Those of clients that have gone are among them: the control plane works on them all
/// the same.
#[derive(Debug, Default)]
pub(super) struct Asks {
    waiting: BTreeMap<AskId, (Ticket, Arc<AskPlace>)>,
    last_serial: u64,
}

impl Asks {
    fn insert(&mut self, deadline: Tick, ticket: Ticket, place: Arc<AskPlace>) -> AskId {
        self.last_serial += 1;
        let id = AskId {
            deadline,
            serial: self.last_serial,
        };
        self.waiting.insert(id, (ticket, place));
        id
    }

    /// False if it does not wait any more.
    fn remove(&mut self, id: AskId) -> bool {
        self.waiting.remove(&id).is_some()
    }

    /// Takes out one whose deadline has come.
    fn pop_due(&mut self, now: Tick) -> Option<Ticket> {
        let next = self.waiting.first_entry()?;
        (next.key().deadline <= now).then(|| next.remove().0)
    }

    fn next_deadline(&self) -> Option<Tick> {
        self.waiting.first_key_value().map(|(id, _)| id.deadline)
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }
}

impl<R: Reactor> Shard<R> {
    /// Asks the control plane what a command needs to know. The command is answered when the answer comes, or at the deadline.
    pub(super) fn ask_control_plane(
        &mut self,
        key: Key,
        command: u32,
        question: Question,
        now: Now,
    ) -> Result<(), Failure> {
        let ticket = self.open_ticket(key, command)?;
        let Some(place) = self.mesh.ask_place(&question) else {
            hit!(AskFull);
            self.close_ticket(ticket);
            self.metrics().asks_refused.add(1);
            return Err(Failure::Explained(ErrorCode::Internal, FULL));
        };
        let place = Arc::new(place);
        let deadline = now.tick_after(self.settings.ask_timeout);
        let id = self
            .sessions
            .asks
            .insert(deadline, ticket, Arc::clone(&place));
        self.metrics().asks.add(1);
        self.mesh.ask(Ask {
            ticket,
            id,
            question,
            _place: place,
        });
        Ok(())
    }

    /// The control plane has answered.
    pub(crate) fn handle_ask_answer(
        &mut self,
        ticket: Ticket,
        id: AskId,
        answer: AskAnswer,
        now: Now,
    ) {
        if !self.sessions.asks.remove(id) {
            hit!(AskLate);
            self.metrics().late_answers.add(1);
            return;
        }
        let Some(key) = self.close_ticket(ticket) else {
            hit!(AskerGone);
            return;
        };
        hit!(AskAnswered);
        match answer {
            AskAnswer::Refused(code) => {
                self.answer_error(key, ticket, || Asked::command("rpc", ""), code, now);
            }
        }
    }

    /// Answers commands whose deadline has come, as many as a slice of work has.
    pub(crate) fn handle_ask_deadlines(&mut self, now: Now) {
        for _ in 0..self.settings.slice_max {
            let Some(ticket) = self.sessions.asks.pop_due(now.tick()) else {
                return;
            };
            hit!(AskTimeout);
            self.metrics().ask_timeouts.add(1);
            if let Some(key) = self.close_ticket(ticket) {
                let asked = || Asked::command("rpc", "");
                self.answer_explained(key, ticket, asked, ErrorCode::Internal, LATE, now);
            }
        }
    }

    /// When [`Shard::handle_ask_deadlines`] has something to do.
    pub(crate) fn next_ask_deadline(&self) -> Option<Tick> {
        self.sessions.asks.next_deadline()
    }
}
