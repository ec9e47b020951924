//! Sessions: what clients of the Centrifuge protocol ask for by commands, one file for each kind of command.
//!
//! Some commands are answered at once. Others ask the home of their channel (`Message::Recover`, `ReadHistory`, `Publish`), all
//! shards (member lists), or the control plane ([`crate::Ask`]). A question travels with a [`Ticket`], which is plain data, and its
//! answer comes back through the inbox. The tickets that a session may have open are bounded.
//!
//! Changes `hub` and `sessions`; sends by `mesh`.

mod announce;
mod asks;
mod connect;
mod connect_request;
mod deeds;
mod emulated;
mod granted;
mod history;
mod limited;
mod lines;
mod members;
mod orders;
mod per_second;
mod publish;
mod questions;
mod readers;
mod recent;
mod recovery;
mod refresh;
mod refused;
mod rpc;
mod sifting;
mod single;
mod subscribe;
mod unanswered;
mod unsubscribe;
mod verify;

pub(crate) use members::Gather;
pub use members::{MembersKind, MembersPage, MembersQuestion};
pub(crate) use single::OnlyConnection;
pub(crate) use unanswered::last_for;

use crate::shard::Shard;
use crate::transport::centrifuge::{format_of, protocol_of};
use announce::LEAVES_MAX;
use asks::Asks;
use connect::Connecting;
use limited::Counts;
use lines::Lines;
use myriad_hub::{
    ChannelOptions, Chunk, ClientId, ClientIds, ClientInfo, CloseReason, Kept, Now, Phase,
    RequestId, SessionState, SubscriptionId, Ticket,
};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::centrifuge::{Command, CommandError, Decoder, ErrorCode, FrameWriter, Request};
use orders::Orders;
use per_second::PerSecond;
use questions::Questions;
use recent::Recent;
use refused::{Asked, Failure, INVALID_TOKEN, bad_request};
use sifting::Sifting;
use single::Connects;
use std::collections::HashMap;
use std::sync::Arc;
use subscribe::Pending;

/// Commands of one client that may wait for an answer from elsewhere. Past it they are answered "too many requests".
const TICKETS_MAX: u16 = 256;

/// What a large reply leaves free in its client's queue: the frame's head, the queue's entry, and short replies behind it.
const REST_BYTES: usize = 1024;

/// Bytes of replies that are gathered into one frame.
const FRAME_BYTES_MAX: usize = 64 * 1024;

/// What a shard keeps for its sessions beside their records in the hub.
#[derive(Debug)]
pub(crate) struct Sessions {
    /// Makes client ids.
    pub(crate) ids: ClientIds,
    /// Replies to the message that is being handled: the content of its client's next frame. Empty between two messages.
    replies: Vec<u8>,
    /// Subscriptions that wait for their home.
    pending: HashMap<SubscriptionId, Pending>,
    /// Clients whose connect command waits for server-side subscriptions, by their connection.
    connecting: HashMap<u32, Connecting>,
    /// Heads of answers over HTTP that wait for what becomes of a connect request, by their connection.
    unanswered: HashMap<u32, Vec<u8>>,
    /// Member lists that are being gathered from all shards.
    gathers: HashMap<u64, Gather>,
    last_gather: u64,
    /// Member lists and history that clients wait for.
    questions: Questions,
    /// What clients missed, while it is compared with their filters.
    sifting: Sifting,
    /// Commands that wait for the control plane.
    asks: Asks,
    /// Commands that wait behind others about their channel.
    lines: Lines,
    /// Leaves of channels that announce them.
    leaves: PerSecond,
    counts: Counts,
    /// What the application wants done.
    orders: Orders,
    /// What it wanted done while commands waited.
    recent: Recent,
    /// When clients connected whose users are to have one connection only.
    connects: Connects,
}

impl Sessions {
    pub(crate) fn new(ids: ClientIds) -> Self {
        Self {
            ids,
            replies: Vec::new(),
            pending: HashMap::new(),
            connecting: HashMap::new(),
            unanswered: HashMap::new(),
            gathers: HashMap::new(),
            last_gather: 0,
            questions: Questions::default(),
            sifting: Sifting::default(),
            asks: Asks::default(),
            lines: Lines::default(),
            leaves: PerSecond::new(LEAVES_MAX),
            counts: Counts::default(),
            orders: Orders::default(),
            recent: Recent::default(),
            connects: Connects::default(),
        }
    }

    /// Bytes of messages that wait for the answer to a connect command, or behind another command, for checks.
    pub(crate) fn held_bytes(&self) -> usize {
        let held: usize = self.connecting.values().map(Connecting::held_bytes).sum();
        let unanswered: usize = self.unanswered.values().map(Vec::len).sum();
        held + unanswered + self.lines.bytes()
    }

    /// Commands that wait for the control plane.
    pub(crate) fn asks(&self) -> usize {
        self.asks.len()
    }

    /// What waits for an answer, for checks.
    pub(crate) fn waiting(&self) -> usize {
        self.pending.len()
            + self.connecting.len()
            + self.unanswered.len()
            + self.gathers.len()
            + self.questions.len()
            + self.sifting.len()
            + self.asks.len()
            + self.lines.len()
            + self.counts.len()
            + self.orders.len()
    }

    /// Whether [`Shard::run_orders`] has something to do.
    pub(crate) fn has_orders(&self) -> bool {
        self.orders.len() > 0
    }

    /// The orders that are not carried out.
    pub(crate) fn take_orders(&mut self) -> impl Iterator<Item = RequestId> + use<> {
        self.orders.take()
    }

    /// Whether [`Shard::ask_questions`] or [`Shard::sift_missed`] has something to do.
    pub(crate) fn has_questions(&self) -> bool {
        self.questions.has_next() || self.sifting.len() > 0
    }
}

/// The channel that a command reads about: such commands need no other check before they wait their turn.
fn read_channel<'a>(request: &'a Request<'_>) -> Option<&'a str> {
    match request {
        Request::History(request) => Some(&request.channel),
        Request::Presence(request) => Some(&request.channel),
        Request::PresenceStats(request) => Some(&request.channel),
        _ => None,
    }
}

impl<R: Reactor> Shard<R> {
    /// Handles the commands of one message.
    pub(crate) fn handle_commands(&mut self, key: Key, message: &[u8], now: Now) {
        match self.hub.session(key.index).state {
            SessionState::Connecting => return self.hold_message(key, message, now),
            SessionState::Refused => return,
            SessionState::New | SessionState::Connected => {}
        }
        let format = format_of(self.hub.connection(key.index).transport());
        let mut commands = Decoder::new(format, message);
        let mut before = message;
        while let Some(command) = commands.next() {
            let text = &before[..before.len() - commands.remaining().len()];
            before = commands.remaining();
            if command.is_ok() {
                self.metrics().commands.add(1);
            }
            match self.check_rates(key, &command, now) {
                Ok(()) => self.handle_read(key, command, text, now),
                Err(failure) => self.refuse_read(key, &command, failure, now),
            }
            if self.sessions.replies.len() > FRAME_BYTES_MAX {
                self.finish_replies(key, now);
            }
            if self.hub.connection(key.index).phase != Phase::Open {
                self.sessions.replies.clear();
                return;
            }
            match self.hub.session(key.index).state {
                SessionState::New | SessionState::Connected => {}
                SessionState::Refused => break,
                SessionState::Connecting => {
                    let remaining = commands.remaining();
                    if !remaining.is_empty() {
                        self.hold_message(key, remaining, now);
                    }
                    break;
                }
            }
        }
        self.finish_replies(key, now);
    }

    /// Tells of a command that is not even looked at.
    fn refuse_read(
        &mut self,
        key: Key,
        command: &Result<Command<'_>, CommandError>,
        failure: Failure,
        now: Now,
    ) {
        self.note_refused(key, || Asked::by(command), failure, now);
        let id = command.as_ref().map_or(0, |command| command.id);
        self.tell_failure(key, id, failure, now);
    }

    /// Handles a command that has waited behind another one.
    fn handle_again(&mut self, key: Key, text: &[u8], now: Now) {
        if self.hub.connection(key.index).phase != Phase::Open {
            return;
        }
        let format = format_of(self.hub.connection(key.index).transport());
        if let Some(command) = Decoder::new(format, text).next() {
            self.handle_read(key, command, text, now);
        }
    }

    /// Handles a command that was read from `text`, and says what becomes of it.
    fn handle_read(
        &mut self,
        key: Key,
        command: Result<Command<'_>, CommandError>,
        text: &[u8],
        now: Now,
    ) {
        let is_new = self.hub.session(key.index).state == SessionState::New;
        let handled = match command {
            Ok(command) => self.handle_command(key, command, text, now),
            Err(_) => Err((0, bad_request("it is no command"))),
        };
        let Err((id, failure)) = handled else {
            return;
        };
        // Read once more, only for a line of the log: most commands are carried out.
        let format = format_of(self.hub.connection(key.index).transport());
        let asked = || match Decoder::new(format, text).next() {
            Some(command) => Asked::by(&command),
            None => Asked::command("message", ""),
        };
        self.note_refused(key, asked, failure, now);
        self.tell_failure(key, id, failure, now);
        if is_new {
            self.refuse_client(key, now);
        }
    }

    fn handle_command(
        &mut self,
        key: Key,
        command: Command<'_>,
        text: &[u8],
        now: Now,
    ) -> Result<(), (u32, Failure)> {
        let id = command.id;
        let state = self.hub.session(key.index).state;
        let too_deep = command.request.nested_too_deep();
        let handled = match (state, command.request) {
            (SessionState::New, Request::Connect(_)) | (SessionState::Connected, _)
                if let Some(sentence) = too_deep =>
            {
                Err(Failure::Explained(ErrorCode::BadRequest, sentence))
            }
            (SessionState::Connected, Request::Pong) => {
                if self.hub.take_pong(key.index) {
                    Ok(())
                } else {
                    Err(bad_request("no ping was unanswered"))
                }
            }
            (SessionState::New, Request::Connect(request)) => {
                self.handle_connect(key, id, &request, text, now)
            }
            (SessionState::New | SessionState::Connecting | SessionState::Refused, _) => {
                Err(bad_request("the first command must be connect"))
            }
            (SessionState::Connected, request) => {
                self.handle_connected(key, id, request, text, now)
            }
        };
        handled.map_err(|failure| (id, failure))
    }

    /// A command of a connected client.
    fn handle_connected(
        &mut self,
        key: Key,
        id: u32,
        request: Request<'_>,
        text: &[u8],
        now: Now,
    ) -> Result<(), Failure> {
        if let Some(channel) = read_channel(&request)
            && self.question_waits(key, channel, text)?
        {
            return Ok(());
        }
        match request {
            Request::Subscribe(request) => self.handle_subscribe(key, id, &request, text, now),
            Request::Unsubscribe(request) => {
                self.handle_unsubscribe(key, id, &request.channel, text, now)
            }
            Request::Publish(request) => self.handle_publish(key, id, &request, text, now),
            Request::Presence(request) => self.handle_presence(key, id, &request, now),
            Request::PresenceStats(request) => {
                self.handle_presence_stats(key, id, &request.channel, now)
            }
            Request::History(request) => self.handle_history(key, id, &request, now),
            Request::Rpc(request) => self.handle_rpc(key, id, &request, text, now),
            Request::Send(_) => Err(Failure::Close(
                CloseReason::NotAvailable,
                "no application takes messages yet",
            )),
            Request::Refresh(request) => self.handle_refresh(key, id, &request, text, now),
            Request::SubRefresh(request) => self.handle_sub_refresh(key, id, &request, text, now),
            Request::Connect(_) | Request::Pong => {
                Err(bad_request("the client has connected already"))
            }
        }
    }

    /// Appends to the replies to the message that is being handled.
    fn reply(&mut self, key: Key, write: impl FnOnce(&mut FrameWriter<'_>)) {
        let protocol = protocol_of(self.hub.connection(key.index).transport());
        write(&mut protocol.writer(&mut self.sessions.replies));
    }

    /// Appends a reply that may be large. False if it has no room in the client's queue: then nothing is appended. Without room
    /// the connection would end, and its client would come back and ask the same again.
    fn reply_if_it_fits(&mut self, key: Key, write: impl FnOnce(&mut FrameWriter<'_>)) -> bool {
        self.reply_kept_if_it_fits(key, |writer| {
            write(writer);
            0
        })
    }

    /// As [`Shard::reply_if_it_fits`], of a reply with publications. `write` says how many bytes the largest one has. Where nothing
    /// else waits for the client, these do not count: a publication that is larger than the budget could never be told otherwise.
    fn reply_kept_if_it_fits(
        &mut self,
        key: Key,
        write: impl FnOnce(&mut FrameWriter<'_>) -> usize,
    ) -> bool {
        let before = self.sessions.replies.len();
        let mut largest_bytes = 0;
        self.reply(key, |writer| largest_bytes = write(writer));
        let room = self.room_beside(key, largest_bytes, before == 0);
        let fits = self.sessions.replies.len() + REST_BYTES <= room;
        if !fits {
            self.sessions.replies.truncate(before);
        }
        fits
    }

    /// Whether a reply with these publications may have room in the client's queue: its exact size is known when it is written.
    fn may_fit(&self, key: Key, publications: &[Kept]) -> bool {
        let sizes = || publications.iter().map(|kept| kept.content.bytes());
        let largest = sizes().max().unwrap_or_default();
        let replies = self.sessions.replies.len();
        sizes().sum::<usize>() + replies <= self.room_beside(key, largest, replies == 0)
    }

    /// Bytes of replies that have room in a client's queue; more by those of the largest publication, where it is the first to go.
    fn room_beside(&self, key: Key, largest_bytes: usize, is_first: bool) -> usize {
        let room = self.hub.outbound_room(key.index);
        if is_first && self.hub.has_empty_queue(key.index) {
            room.saturating_add(largest_bytes)
        } else {
            room
        }
    }

    /// Queues the replies that were gathered, as one frame.
    pub(crate) fn finish_replies(&mut self, key: Key, now: Now) {
        if self.sessions.replies.is_empty() {
            return;
        }
        let mut message = std::mem::take(&mut self.sessions.replies);
        if self.hub.connection(key.index).phase == Phase::Open {
            self.send_message_to(key, &message, now);
        }
        message.clear();
        // Replies with history may be large; memory for them is not kept.
        if message.capacity() <= 2 * FRAME_BYTES_MAX {
            self.sessions.replies = message;
        }
    }

    /// Queues a message of the protocol, compressed where that was agreed to and makes it smaller.
    pub(super) fn send_message_to(&mut self, key: Key, message: &[u8], now: Now) {
        let connection = self.hub.connection(key.index);
        let encoding = connection.encoding();
        let kind = myriad_hub::kind_of(format_of(connection.transport()));
        let window = encoding.window();
        let window = window.and_then(|window| window.worthwhile(message.len()));
        let compressed = window.and_then(|window| {
            encoding.compressed_frame(window, kind, message, self.hub.compressor_mut())
        });
        let frame = compressed.unwrap_or_else(|| encoding.frame(kind, message));
        let queued = self.begin_answer(key.index).and_then(|()| {
            self.hub
                .enqueue_alone(key.index, Chunk::Owned(frame.into()))
        });
        if let Err(overflow) = queued {
            self.close_stream(key, overflow.into(), now);
        }
    }

    /// Answers a command whose answer has come from elsewhere.
    fn answer(&mut self, key: Key, now: Now, write: impl FnOnce(&mut FrameWriter<'_>)) {
        self.reply(key, write);
        self.finish_replies(key, now);
    }

    /// A ticket for a question to elsewhere; an error if the session has as many open as it may.
    fn open_ticket(&mut self, key: Key, command: u32) -> Result<Ticket, Failure> {
        if self.hub.session(key.index).tickets_open >= TICKETS_MAX {
            return Err(ErrorCode::TooManyRequests.into());
        }
        Ok(self.open_own_ticket(key, command))
    }

    /// A ticket for a question that is not the client's: what it has open of its own does not count. A session has one such question
    /// for itself and one for each of its subscriptions.
    fn open_own_ticket(&mut self, key: Key, command: u32) -> Ticket {
        self.hub.session_mut(key.index).tickets_open += 1;
        Ticket {
            mark: 0,
            shard: u16::try_from(self.index).expect("at most 256 shards"),
            connection: key,
            command,
        }
    }

    /// Takes a ticket back; the connection that it is for, if that is still there and open.
    pub(crate) fn close_ticket(&mut self, ticket: Ticket) -> Option<Key> {
        let key = ticket.connection;
        if !self.hub.contains(key) {
            return None;
        }
        let is_open = self.hub.connection(key.index).phase == Phase::Open;
        if !self.hub.connection(key.index).has_session() {
            return None;
        }
        self.hub.session_mut(key.index).tickets_open -= 1;
        is_open.then_some(key)
    }

    /// The options of a channel that a client names in a command other than `subscribe`.
    fn options_of(&self, channel: &str) -> Result<Arc<ChannelOptions>, Failure> {
        Ok(Arc::clone(self.settings.namespaces.check_name(channel)?))
    }

    pub(crate) fn is_anonymous(&self, key: Key) -> bool {
        self.hub.session(key.index).user.is_none()
    }

    pub(crate) fn client_id(&self, key: Key) -> ClientId {
        let shard = u16::try_from(self.index).expect("at most 256 shards");
        self.sessions.ids.id_of(shard, key)
    }

    /// What other clients are told of a client in a channel.
    fn client_info(&self, key: Key, subscription: Option<SubscriptionId>) -> ClientInfo {
        let session = self.hub.session(key.index);
        let details = subscription.and_then(|subscription| self.hub.details(subscription));
        ClientInfo {
            user: session.user.clone().unwrap_or_else(|| "".into()),
            client: self.client_id(key),
            connection_info: session.info().cloned(),
            channel_info: details.and_then(|details| details.info.clone()),
        }
    }
}
