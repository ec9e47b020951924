//! Commands that wait for the control plane: until it answers, or until their deadline. See [`crate::Ask`].
//!
//! The shard keeps the deadlines, because its clients must get an answer even if the control plane is busy or stuck.
//!
//! Changes `sessions`; sends by `mesh`.

use super::{Asked, Failure};
use crate::access::Refusal;
use crate::asks::{Ask, AskAnswer, AskId, AskPlace, AskingClient, Question};
use crate::marks::hit;
use crate::shard::Shard;
use crate::transport::centrifuge::format_of;
use myriad_hub::{CloseReason, Now, Ticket};
use myriad_reactor::Reactor;
use myriad_wheel::{Key, Tick};
use myriad_wire::centrifuge::{Encoding as Format, ErrorCode, ReplyError};
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
    waiting: BTreeMap<AskId, Waiting>,
    last_serial: u64,
}

/// A command that waits.
#[derive(Debug)]
struct Waiting {
    ticket: Ticket,
    /// Its name, for the log.
    command: &'static str,
    _place: Arc<AskPlace>,
}

impl Asks {
    fn insert(&mut self, deadline: Tick, waiting: Waiting) -> AskId {
        self.last_serial += 1;
        let id = AskId {
            deadline,
            serial: self.last_serial,
        };
        self.waiting.insert(id, waiting);
        id
    }

    /// None if it does not wait any more.
    fn remove(&mut self, id: AskId) -> Option<Waiting> {
        self.waiting.remove(&id)
    }

    /// Takes out one whose deadline has come.
    fn pop_due(&mut self, now: Tick) -> Option<Waiting> {
        let next = self.waiting.first_entry()?;
        (next.key().deadline <= now).then(|| next.remove())
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
        let waiting = Waiting {
            ticket,
            command: question.command(),
            _place: Arc::clone(&place),
        };
        let id = self.sessions.asks.insert(deadline, waiting);
        self.metrics().asks.add(1);
        let asker = self.asking_client(key);
        self.mesh.ask(Ask {
            ticket,
            id,
            asker,
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
        let Some(Waiting { command, .. }) = self.sessions.asks.remove(id) else {
            hit!(AskLate);
            self.metrics().late_answers.add(1);
            return;
        };
        let Some(key) = self.close_ticket(ticket) else {
            hit!(AskerGone);
            return;
        };
        hit!(AskAnswered);
        match answer {
            AskAnswer::Refused(refusal) => self.answer_refusal(key, ticket, command, &refusal, now),
            AskAnswer::Rpc(data) => {
                let format = format_of(self.hub.connection(key.index).transport());
                let Some(data) = data.told(format) else {
                    return self.close_behind_replies(key, CloseReason::InappropriateProtocol, now);
                };
                self.answer(key, now, |writer| writer.rpc(ticket.command, &data));
            }
            _ => {
                let asked = || Asked::command(command, "");
                self.answer_error(key, ticket, asked, ErrorCode::Internal, now);
            }
        }
    }

    /// Who asks the control plane.
    fn asking_client(&self, key: Key) -> AskingClient {
        let protocol = match format_of(self.hub.connection(key.index).transport()) {
            Format::Json => "json",
            Format::Protobuf => "protobuf",
        };
        let session = self.hub.session(key.index);
        let details = session.details.as_deref();
        AskingClient {
            client: self.client_id(key),
            user: session.user.clone(),
            transport: "websocket",
            protocol,
            headers: details.and_then(|details| details.headers.clone()),
            emulated_headers: details.and_then(|details| details.emulated_headers.clone()),
            meta: details.and_then(|details| details.meta.clone()),
        }
    }

    /// Answers commands whose deadline has come, as many as a slice of work has.
    pub(crate) fn handle_ask_deadlines(&mut self, now: Now) {
        for _ in 0..self.settings.slice_max {
            let Some(waiting) = self.sessions.asks.pop_due(now.tick()) else {
                return;
            };
            let Waiting {
                ticket, command, ..
            } = waiting;
            hit!(AskTimeout);
            self.metrics().ask_timeouts.add(1);
            if let Some(key) = self.close_ticket(ticket) {
                let asked = || Asked::command(command, "");
                self.answer_explained(key, ticket, asked, ErrorCode::Internal, LATE, now);
            }
        }
    }

    /// When [`Shard::handle_ask_deadlines`] has something to do.
    pub(crate) fn next_ask_deadline(&self) -> Option<Tick> {
        self.sessions.asks.next_deadline()
    }

    /// Tells a client that the application refuses its command.
    fn answer_refusal(
        &mut self,
        key: Key,
        ticket: Ticket,
        command: &'static str,
        refusal: &Refusal,
        now: Now,
    ) {
        match refusal {
            Refusal::Error {
                code,
                message,
                temporary,
            } => {
                self.metrics().count_command_error(*code);
                let error = ReplyError {
                    code: *code,
                    message,
                    temporary: *temporary,
                };
                self.answer(key, now, |writer| writer.error(ticket.command, error));
            }
            Refusal::Disconnect { .. } => {
                let asked = || Asked::command(command, "");
                self.answer_error(key, ticket, asked, ErrorCode::NotAvailable, now);
            }
        }
    }
}
