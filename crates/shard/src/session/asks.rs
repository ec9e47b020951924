//! Commands that wait for the control plane: until it answers, or until their deadline. See [`crate::Ask`].
//!
//! The shard keeps the deadlines, because its clients must get an answer even if the control plane is busy or stuck. A command that
//! needs its own words again when the answer comes is kept as it was written, and read a second time. While a client's command
//! about a channel waits, its later ones about that channel wait behind it ([`super::lines`]).
//!
//! Changes `sessions`; sends by `mesh`.

use super::recent::Moment;
use super::{Asked, Failure};
use crate::access::Refusal;
use crate::asks::{Ask, AskAnswer, AskId, AskPlace, AskingClient, Question, READ};
use crate::marks::hit;
use crate::shard::Shard;
use crate::transport::centrifuge::{format_of, names_of};
use myriad_hub::{Now, Ticket};
use myriad_reactor::Reactor;
use myriad_wheel::{Key, Tick};
use myriad_wire::centrifuge::{Decoder, DisconnectCode, ErrorCode, ReplyError, Request};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// What a client is told when too many commands wait.
const FULL: &str = "internal server error: too many commands wait for the application";

/// What a client is told at the deadline.
const LATE: &str = "internal server error: the application did not answer in time";
const TOKEN_LATE: &str = "internal server error: the token could not be verified in time";

/// What a client is told when the application cannot be asked.
const UNAVAILABLE: &str = "internal server error: the application is not available";
/// What a client is told whose token cannot be verified now: its keys cannot be fetched, or too many signatures wait.
const TOKEN_UNAVAILABLE: &str = "internal server error: the token cannot be verified now";

/// The asks of a shard's clients that wait. Those of clients that have gone are among them: the control plane works on them all
/// the same.
#[derive(Debug, Default)]
pub(super) struct Asks {
    waiting: BTreeMap<AskId, Waiting>,
    last_serial: u64,
    /// How many asks each client has that has some.
    by_client: HashMap<Key, u64>,
}

/// A command that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    ticket: Ticket,
    /// Its name, for the log.
    command: &'static str,
    /// It is about a token: the application has nothing to do with it.
    has_token: bool,
    /// The channel whose later commands wait behind it.
    channel: Option<Box<str>>,
    /// When it was asked about, in the order of orders.
    since: Moment,
    /// As the client wrote it, if that is needed again; empty for what the server asks of its own will.
    text: Box<[u8]>,
    /// Held until the answer has come, so that questions stay bounded.
    place: Arc<AskPlace>,
}

impl Waiting {
    /// A reader of a stream waits, which has no session: nothing waits behind it here.
    pub(super) fn reader(
        ticket: Ticket,
        question: &Question,
        since: Moment,
        place: Arc<AskPlace>,
    ) -> Self {
        Self {
            ticket,
            command: question.command(),
            has_token: true,
            channel: None,
            since,
            text: Box::default(),
            place,
        }
    }

    fn is_reader(&self) -> bool {
        self.command == READ
    }
}

/// What is asked for a command.
pub(super) struct Asking<'a> {
    /// The client's command; 0 for what the server asks of its own will.
    pub(super) command: u32,
    /// The channel whose later commands wait behind it.
    pub(super) channel: Option<&'a str>,
    /// As the client wrote it, if that is needed again.
    pub(super) text: &'a [u8],
    pub(super) question: Question,
}

impl Asks {
    pub(super) fn insert(&mut self, deadline: Tick, waiting: Waiting) -> AskId {
        self.last_serial += 1;
        let id = AskId {
            deadline,
            serial: self.last_serial,
        };
        *self.by_client.entry(waiting.ticket.connection).or_default() += 1;
        self.waiting.insert(id, waiting);
        id
    }

    /// None if it does not wait any more.
    fn remove(&mut self, id: AskId) -> Option<Waiting> {
        let waiting = self.waiting.remove(&id)?;
        self.uncount(waiting.ticket.connection);
        Some(waiting)
    }

    /// Takes out one whose deadline has come.
    fn pop_due(&mut self, now: Tick) -> Option<Waiting> {
        let id = *self.waiting.first_key_value()?.0;
        (id.deadline <= now).then(|| self.remove(id)).flatten()
    }

    fn uncount(&mut self, client: Key) {
        if let Entry::Occupied(mut count) = self.by_client.entry(client) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// How many asks of a client wait.
    fn of_client(&self, client: Key) -> u64 {
        self.by_client.get(&client).copied().unwrap_or(0)
    }

    fn next_deadline(&self) -> Option<Tick> {
        self.waiting.first_key_value().map(|(id, _)| id.deadline)
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// When they were asked about.
    pub(super) fn moments(&self) -> impl Iterator<Item = Moment> {
        self.waiting.values().map(|waiting| waiting.since)
    }
}

impl<R: Reactor> Shard<R> {
    /// Asks the control plane what a command needs to know. The command is answered when the answer comes, or at the deadline.
    pub(super) fn ask_control_plane(
        &mut self,
        key: Key,
        asking: Asking<'_>,
        now: Now,
    ) -> Result<(), Failure> {
        let Asking {
            command,
            channel,
            text,
            question,
        } = asking;
        // What the server asks of its own will is not the client's doing.
        let is_clients = !text.is_empty();
        if is_clients && self.sessions.asks.of_client(key) >= self.mesh.ask_share() {
            self.metrics().asks_refused.add(1);
            return Err(ErrorCode::TooManyRequests.into());
        }
        // A client with as many tickets as it may have could not be asked about otherwise, and would never expire.
        let ticket = if is_clients {
            self.open_ticket(key, command)?
        } else {
            self.open_own_ticket(key, command)
        };
        self.make_unconnected_room(Some(key), question.unconnected_bytes(text.len()), now);
        let Some(place) = self.mesh.ask_place(&question, text.len()) else {
            hit!(AskFull);
            self.close_ticket(ticket);
            self.metrics().asks_refused.add(1);
            return Err(Failure::Explained(ErrorCode::Internal, FULL));
        };
        let waiting = Waiting {
            ticket,
            command: question.command(),
            has_token: question.has_token(),
            channel: channel.map(Into::into),
            since: self.sessions.recent.now(),
            text: text.into(),
            place: Arc::new(place),
        };
        let asker = self.asking_client(key);
        self.send_ask(waiting, asker, question, now);
        Ok(())
    }

    /// Asks the control plane, and notes who waits for the answer, and until when.
    pub(super) fn send_ask(
        &mut self,
        waiting: Waiting,
        asker: AskingClient,
        question: Question,
        now: Now,
    ) {
        let (ticket, place) = (waiting.ticket, Arc::clone(&waiting.place));
        if let Some(channel) = &waiting.channel {
            self.sessions.lines.begin_ask(ticket.connection, channel);
        }
        let deadline = now.tick_after(self.settings.ask_timeout);
        let id = self.sessions.asks.insert(deadline, waiting);
        self.metrics().asks.add(1);
        self.mesh.ask(Ask {
            ticket,
            id,
            asker,
            question,
            _place: place,
        });
    }

    /// Who asks the control plane.
    fn asking_client(&mut self, key: Key) -> AskingClient {
        let wants_address = self.settings.access.addresses;
        let address = wants_address.then(|| self.client_address(key)).flatten();
        let (transport, protocol) = names_of(self.hub.connection(key.index).transport());
        let session = self.hub.session(key.index);
        let details = session.details.as_deref();
        AskingClient {
            client: self.client_id(key),
            user: session.user.clone(),
            transport,
            protocol,
            address,
            headers: details.and_then(|details| details.headers.clone()),
            emulated_headers: details.and_then(|details| details.emulated_headers.clone()),
            meta: details.and_then(|details| details.meta.clone()),
        }
    }

    /// The control plane has answered.
    pub(crate) fn handle_ask_answer(
        &mut self,
        ticket: Ticket,
        id: AskId,
        answer: AskAnswer,
        now: Now,
    ) {
        let Some(waiting) = self.sessions.asks.remove(id) else {
            hit!(AskLate);
            self.metrics().late_answers.add(1);
            return;
        };
        if waiting.is_reader() {
            return self.handle_reader_verdict(ticket, answer, now);
        }
        let key = self.close_ticket(ticket);
        hit!(AskerGone if key.is_none());
        hit!(AskAnswered if key.is_some());
        self.finish_ask(key, waiting, answer, now);
    }

    /// Answers commands whose deadline has come, as many as a slice of work has.
    pub(crate) fn handle_ask_deadlines(&mut self, now: Now) {
        for _ in 0..self.settings.slice_max {
            let Some(waiting) = self.sessions.asks.pop_due(now.tick()) else {
                return;
            };
            hit!(AskTimeout);
            self.metrics().ask_timeouts.add(1);
            if waiting.is_reader() {
                self.handle_reader_verdict(waiting.ticket, AskAnswer::Unavailable, now);
                continue;
            }
            let key = self.close_ticket(waiting.ticket);
            let refusal = Refusal::Error {
                code: ErrorCode::Internal.code(),
                message: if waiting.has_token { TOKEN_LATE } else { LATE }.into(),
                temporary: true,
            };
            self.finish_ask(key, waiting, AskAnswer::Refused(refusal), now);
        }
    }

    /// When [`Shard::handle_ask_deadlines`] has something to do.
    pub(crate) fn next_ask_deadline(&self) -> Option<Tick> {
        self.sessions.asks.next_deadline()
    }

    /// A command does not wait any more. It is carried out, and then those that waited behind it. `key` is none if its client has
    /// gone.
    fn finish_ask(&mut self, key: Option<Key>, waiting: Waiting, answer: AskAnswer, now: Now) {
        let client = waiting.ticket.connection;
        let behind = waiting.channel.as_ref().map(|channel| {
            let behind = self.end_asked(client, channel);
            (channel.clone(), behind)
        });
        if let Some(key) = key {
            if waiting.text.is_empty() {
                self.handle_own_answer(key, &waiting, answer, now);
            } else {
                self.carry_on(key, &waiting, answer, now);
            }
        }
        if let Some((channel, behind)) = behind {
            self.carry_out_line(client, &channel, behind, now);
        }
        if let Some(key) = key {
            self.finish_replies(key, now);
        }
        self.forget_orders();
    }

    /// Carries out a command with what the control plane has answered.
    fn carry_on(&mut self, key: Key, waiting: &Waiting, answer: AskAnswer, now: Now) {
        let (ticket, command) = (waiting.ticket, waiting.command);
        let unavailable = if waiting.has_token {
            Failure::Explained(ErrorCode::Internal, TOKEN_UNAVAILABLE)
        } else {
            Failure::Explained(ErrorCode::Internal, UNAVAILABLE)
        };
        let format = format_of(self.hub.connection(key.index).transport());
        let Some(Ok(read)) = Decoder::new(format, &waiting.text).next() else {
            return self.note_defect_of(key.index, "what was read once can be read again");
        };
        let channel = read.request.channel().to_owned();
        let handled = match (read.request, self.unrevoked(key, answer)) {
            (_, AskAnswer::Refused(refusal)) => {
                let asked = || Asked::command(command, &channel);
                self.note_refusal_of(key, asked, &refusal, now);
                return self.answer_refusal(key, ticket, command, &refusal, now);
            }
            (_, AskAnswer::Unavailable) => Err(unavailable),
            (Request::Connect(request), AskAnswer::Connect(grant)) => {
                self.connect_granted(key, read.id, &request, *grant, now)
            }
            (Request::Connect(_), AskAnswer::Token(fault)) => {
                Err(super::verify::connection_failure(fault))
            }
            (Request::Refresh(_), AskAnswer::Connect(grant)) => {
                self.refresh_connection(key, read.id, *grant, now)
            }
            (Request::Refresh(_), AskAnswer::Token(fault)) => Err(super::refresh::failure(fault)),
            (Request::Subscribe(request), AskAnswer::Subscribe(grant)) => {
                match self.is_unsubscribed_since(key, &channel, waiting.since) {
                    Ok(false) => self.subscribe_granted(key, read.id, &request, *grant, now),
                    // It has been told that it is unsubscribed.
                    Ok(true) => Err(ErrorCode::PermissionDenied.into()),
                    Err(forgotten) => Err(forgotten.into()),
                }
            }
            (Request::Subscribe(_), AskAnswer::Token(fault)) => {
                Err(super::verify::subscription_failure(fault))
            }
            (Request::SubRefresh(request), AskAnswer::Subscribe(grant)) => {
                self.refresh_subscription(key, read.id, &request.channel, *grant, now)
            }
            (Request::SubRefresh(request), AskAnswer::Token(fault)) => {
                self.fail_sub_refresh(key, read.id, &request.channel, fault)
            }
            (Request::Publish(request), AskAnswer::Publish(grant)) => {
                self.publish_granted(key, read.id, &request, *grant, now)
            }
            (Request::Rpc(_), AskAnswer::Rpc(data)) => self.answer_rpc(key, read.id, &data),
            _ => Err(unavailable),
        };
        if let Err(failure) = handled {
            self.note_refused(key, || Asked::command(command, &channel), failure, now);
            self.tell_failure(key, read.id, failure, now);
            if command == "connect" {
                self.refuse_client(key, now);
            }
        }
    }

    /// What the server has asked of its own will is answered: whether a connection goes on, or a subscription.
    fn handle_own_answer(&mut self, key: Key, waiting: &Waiting, answer: AskAnswer, now: Now) {
        match (waiting.channel.as_deref(), answer) {
            // The application has said something newer, which counts.
            (None, _) if self.is_refreshed_since(key, waiting.since) => {}
            (None, AskAnswer::Refresh(grant)) => self.handle_refreshed(key, *grant, now),
            (None, _) => self.refresh_later(key, now),
            (Some(channel), AskAnswer::SubRefresh(grant)) => {
                self.handle_sub_refreshed(key, channel, *grant, now);
            }
            (Some(channel), _) => self.refresh_subscription_later(key, channel, now),
        }
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
                if self.is_unidirectional(key) {
                    return self.end_connect_request(key, *code, now);
                }
                let error = ReplyError {
                    code: *code,
                    message,
                    temporary: *temporary,
                };
                self.answer(key, now, |writer| writer.error(ticket.command, error));
                if command == "connect" {
                    self.refuse_client(key, now);
                }
            }
            Refusal::Disconnect(close) => self.close_by_application(key, close, now),
            Refusal::Nobody => {
                let close = DisconnectCode::BadRequest.into();
                self.close_by_application(key, &close, now);
            }
        }
    }
}
