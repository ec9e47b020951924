//! Readers of streams whose token takes longer to verify than a shard has. They have no session, and their questions wait among
//! those of sessions: for the same time, and with places of those that connect. Changes `reads` and `sessions`; sends by `mesh`.
//!
//! The request waits as one does whose channel's home is asked: what comes behind it waits, too, and a client that goes takes it
//! along.

use super::asks::Waiting;
use crate::access::Verdict;
use crate::asks::{AskAnswer, AskingClient, Question};
use crate::marks::hit;
use crate::reading::Reading;
use crate::shard::Shard;
use crate::transport::Refused;
use myriad_hub::{Now, Ticket};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use std::sync::Arc;

impl<R: Reactor> Shard<R> {
    /// Asks the control plane whose token a request has, and keeps the request meanwhile.
    pub(crate) fn verify_reader(
        &mut self,
        key: Key,
        reading: Box<Reading>,
        token: Box<str>,
        now: Now,
    ) {
        let question = Question::Read { token };
        self.make_unconnected_room(Some(key), question.unconnected_bytes(0), now);
        let Some(place) = self.mesh.ask_place(&question, 0) else {
            hit!(AskFull);
            self.metrics().asks_refused.add(1);
            return self.refuse(key, Refused::unverified().of_stream(), now);
        };
        let place = Arc::new(place);
        let ticket = self.hold_reading(key, reading, now);
        let since = self.sessions.recent.now();
        let waiting = Waiting::reader(ticket, &question, since, place);
        let asker = AskingClient {
            client: self.client_id(key),
            user: None,
            transport: "stream",
            protocol: "json",
            address: None,
            headers: None,
            emulated_headers: None,
            meta: None,
        };
        self.send_ask(waiting, asker, question, now);
    }

    /// The control plane has said whose token a request has, or has not said it in time.
    pub(super) fn handle_reader_verdict(&mut self, ticket: Ticket, answer: AskAnswer, now: Now) {
        let key = ticket.connection;
        let held = self.take_reading(ticket);
        hit!(AskerGone if held.is_none());
        self.forget_orders();
        let Some(mut reading) = held else {
            return;
        };
        hit!(AskAnswered);
        let verdict = match answer {
            AskAnswer::Connect(grant) => Verdict::Now(Ok(*grant)),
            AskAnswer::Token(fault) => Verdict::Now(Err(fault)),
            _ => Verdict::Later,
        };
        match self.bearer_of(&reading.channel, verdict, now) {
            Ok(Some(bearer)) if self.is_revoked(&bearer) => {
                self.refuse(key, Refused::revoked(), now);
            }
            Ok(Some(bearer)) => {
                reading.bearer = Some(bearer);
                self.start_reading(key, reading, now);
            }
            Ok(None) => self.refuse(key, Refused::unverified().of_stream(), now),
            Err(refused) => self.refuse(key, refused.of_stream(), now),
        }
    }
}
