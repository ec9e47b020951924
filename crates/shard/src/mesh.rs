//! How shards, and the control plane, reach each other.

mod with_broker;

pub use with_broker::{BrokerTask, LogSettings};

use crate::asks::{Ask, AskAnswer, AskId, AskPlace, AskPools, Question};
use crate::defects::{DefectLines, DefectLog, NotedDefect};
use crate::events::{
    ConnectionEvent, ConnectionName, Event, EventKind, EventLog, Events, Refusals,
};
use crate::inquiry::{HistoryWish, Inquiry, InquiryAnswer, StreamWish};
use crate::limits::{Limit, Tallies};
use crate::metrics::Metrics;
use crate::notices::{Notice, Notices};
use crate::orders::{Deed, Instruction, ORDERS_MAX, Order, OrderRefused, Whose};
use crate::session::{MembersPage, MembersQuestion, OnlyConnection};
use crate::settings::{ProcessLimits, Settings};
use crate::traces::{Trace, TraceEnd};
use myriad_hub::{
    Asker, ClientId, ClientIds, Content, Delivery, Epoch, FromNode, HistoryAnswer, HomeSettings,
    LogEntry, Now, Payload, Permit, Pool, Position, PresenceEvent, Publication, RateLimit,
    ReadHistory, ReadStream, Recover, Recovered, RequestId, ShardSet, StreamAnswer, StreamCommand,
    StreamEntry, StreamRead, StreamRequest, Submission, Ticket, TooMany, name_hash,
};
use myriad_reactor::Waker;
use myriad_wheel::Key;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What shards tell the control plane. They call it on their own threads: it must not block.
pub trait ControlPlane: Send + Sync {
    /// A publication has its position, or will never have one. Called once for each id that
    /// [`Mesh::publish`] took, on the home shard's thread.
    fn published(&self, id: RequestId, position: Result<Position, NotPublished>);

    /// An inquiry is answered; none when its shard ended before. Called once for each id that [`Mesh::inquire`],
    /// [`Mesh::order`], [`Mesh::read_history`], [`Mesh::remove_history`], [`Mesh::ask_stream`] and [`Mesh::read_stream`] were
    /// given, on a shard's thread or on the caller's.
    fn answered(&self, id: RequestId, answer: Option<InquiryAnswer>);

    /// Something is to be done by the broker that orders channels: only a mesh of [`Mesh::with_broker`] calls this, on any thread.
    fn submit(&self, task: BrokerTask) {
        // Nobody would answer the publisher but its own deadline.
        debug_assert!(false, "a control plane without a broker was given {task:?}");
    }

    /// A client asks for a channel's members, and this node is one of several: [`Mesh::answer_members`] answers, once, for all other
    /// nodes. Only a mesh of [`Mesh::with_broker`] calls this, on the thread of the client's shard.
    fn ask_members(&self, question: MembersQuestion) {
        // The client is answered at the question's deadline.
        debug_assert!(
            false,
            "a control plane without other nodes was asked {question:?}"
        );
    }

    /// A client's command asks; [`Mesh::answer`] answers it. An ask that is dropped is answered at its deadline. Called on the
    /// thread of the client's shard, with the mesh that brings the answer back.
    fn ask(&self, mesh: &Mesh, ask: Ask);
}

/// What a publisher wishes for its publication.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishOptions {
    /// Names the publication in its channel: another one of the same name within five minutes is not published, and gets the
    /// position of the first.
    pub idempotency_key: Option<Box<str>>,
    /// It is offered as a delta to the publication before it.
    pub delta: bool,
    /// History does not keep it; it has no offset then.
    pub skip_history: bool,
    /// The version of what it describes; 0: none. A channel with history publishes only versions later than the one before, and
    /// answers the others with its last position.
    pub version: u64,
    /// Versions of different epochs are not compared. Empty: of the epoch of the version before it.
    pub version_epoch: Box<str>,
}

/// A batch of publications may take a quarter of a connection's outbound budget.
const BATCH_DIVISOR: usize = 4;

/// Clients leave half of the bytes of publications in flight to the application.
const APPLICATION_DIVISOR: u64 = 2;
/// The application leaves an eighth of them to what comes from a broker. Publications on their way there hold little, so that the
/// reader finds more than that as a rule.
const BROKER_DIVISOR: u64 = 8;

/// Why a publication was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishRefused {
    /// The channel's name is empty or longer than [`Mesh::CHANNEL_BYTES_MAX`].
    Channel,
    /// The data alone is over the process's limit of publication bytes.
    TooLarge,
    /// The limit of publication bytes in flight is reached; try again later.
    Busy,
    /// The server is draining, and nobody is left to hear it.
    Draining,
}

/// Why a publication that was taken got no position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotPublished {
    /// Its home shard ended before.
    Ended,
    /// The channel is a stream that is closed.
    Closed,
    /// The broker did not take it in time. It may have been published all the same, if the answer was lost.
    Unavailable,
    /// The broker will never take it, as where it has more bytes than its servers allow.
    Refused,
    /// The disk of the history has no room. It may have some later.
    DiskFull,
    /// The disk of the history has failed. It may have been kept all the same.
    DiskFailed,
}

/// A message from one shard, or the control plane, to a shard. Messages of one sender arrive in order.
pub(crate) enum Message {
    /// To the channel's home: give this an offset and deliver it.
    Publish(Box<Submission>),
    /// To a home: what a log says next.
    Log(Box<LogEntry>),
    /// To the channel's home: `shard` has its first subscriber.
    Join {
        channel: Arc<str>,
        shard: usize,
        serial: u64,
    },
    /// From the home, in answer: everything after `position` will be delivered.
    Joined {
        channel: Arc<str>,
        serial: u64,
        position: Position,
    },
    /// From the home, in answer: it has not read the channel's log up to its end in time.
    NotJoined { channel: Arc<str>, serial: u64 },
    /// To the channel's home: `shard` has lost its last subscriber.
    Leave { channel: Arc<str>, shard: usize },
    /// To the channel's home: a subscriber asks for what it missed.
    Recover(Box<Recover>),
    /// To the channel's home: somebody reads its history.
    ReadHistory(Box<ReadHistory>),
    /// To the channel's home: say when everything is delivered that came before.
    Fence { channel: Box<str>, ticket: Ticket },
    /// To the channel's home: somebody creates, changes or looks at it as a stream.
    Stream(Box<StreamRequest>),
    /// To the channel's home: somebody reads it as a stream.
    ReadStream(Box<ReadStream>),
    /// To the channel's home: a client has joined or left.
    PresenceEvent(Box<PresenceEvent>),
    /// To the channel's home, or to all: what another node says.
    FromNode(Box<FromNode>),
    /// To every home: say to other nodes which users are here.
    BeginRound(u64),
    /// To every shard: who are the members of a channel?
    Members(Box<MembersQuestion>),
    /// From a shard, in answer.
    MembersPage { gather: u64, page: Box<MembersPage> },
    /// From the control plane to a shard.
    Inquire {
        id: RequestId,
        inquiry: Box<Inquiry>,
    },
    /// From the control plane to the channel's home: forget what it keeps.
    RemoveHistory { channel: Box<str>, id: RequestId },
    /// To every shard: a user is to have this connection only.
    OnlyConnection(Box<OnlyConnection>),
    /// From the home: deliver this to your subscribers.
    Deliver(Delivery),
    /// From a home, or from the control plane: the answer to a client's command. Deliveries that it speaks of came before it.
    Answer { ticket: Ticket, answer: Box<Answer> },
    /// To every shard: other settings.
    Settings(Arc<Settings>),
    /// From the control plane: commands of a client of this shard.
    Emulated(Box<Emulated>),
    /// Note what this connection says and hears.
    Trace { connection: Key, trace: Arc<Trace> },
    /// Do something to some connections.
    Order { id: RequestId, order: Arc<Order> },
    /// From the disk: it has everything up to this ticket.
    Kept { ticket: u64 },
    /// From the disk: it has failed.
    DiskFailed,
    /// From the control plane: a connection waits to be taken back.
    HandedBack,
    /// To every shard: end all connections, evenly over this time.
    Drain { over: Duration },
}

impl Message {
    /// Publications that its home has to take at once.
    pub(crate) fn publications(&self) -> usize {
        match self {
            Self::Publish(_) | Self::Log(_) => 1,
            Self::Stream(request) => request.command.entries().len(),
            _ => 0,
        }
    }

    /// Whether it is for the home of a channel, by a shard that has clients.
    pub(crate) fn asks_home(&self) -> bool {
        matches!(
            self,
            Self::Publish(_)
                | Self::Join { .. }
                | Self::Leave { .. }
                | Self::Recover(_)
                | Self::ReadHistory(_)
                | Self::ReadStream(_)
                | Self::Fence { .. }
                | Self::PresenceEvent(_)
        )
    }
}

/// Commands that came in a request of their own.
#[derive(Debug)]
pub(crate) struct Emulated {
    pub(crate) connection: Key,
    /// A frame of the session's encoding.
    pub(crate) data: Box<[u8]>,
    pub(crate) _permit: Permit,
}

/// Bytes of commands that may be on their way to their shards. A turn takes them all, so that they are few unless a shard hangs.
const EMULATED_BYTES_MAX: u64 = 16 << 20;

/// What commands on their way hold beside their bytes.
const EMULATED_OVERHEAD_BYTES: u64 = 128;

/// Why commands that came in a request of their own are not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmulatedRefused {
    /// They are for another process, or for an earlier one.
    UnknownNode,
    /// As many as may be are on their way.
    Busy,
}

/// What a home, or the control plane, answers to a client's command.
#[derive(Debug)]
pub(crate) enum Answer {
    Published,
    NotPublished(NotPublished),
    /// The home keeps the question: its answer comes later.
    Held,
    Recovered(Recovered),
    History(HistoryAnswer),
    Stream(Box<StreamAnswer>),
    StreamRead(Box<StreamRead>),
    /// Everything that came to the channel's home before is delivered.
    Fenced(Box<str>),
    Asked(AskId, AskAnswer),
}

/// The way to every shard of the process. Cheap to clone.
#[derive(Clone)]
pub struct Mesh(Arc<Inner>);

struct Inner {
    inboxes: Box<[Inbox]>,
    metrics: Box<[Metrics]>,
    /// What happened to the connections of each shard.
    events: Box<[Mutex<EventLog>]>,
    /// Statements that did not hold, by the shard that noted them.
    defects: Box<[Mutex<DefectLog>]>,
    /// What an application may be told, by the shard that noted it.
    notices: Box<[Mutex<Notices>]>,
    limits: ProcessLimits,
    epoch: Epoch,
    client_ids: ClientIds,
    session_ids: ClientIds,
    node: String,
    emulated: Pool,
    connections: Pool,
    buffered: Pool,
    unconnected: Pool,
    publications: Pool,
    asks: AskPools,
    tallies: Tallies,
    orders: Pool,
    /// The logs of a broker that order channels; none without a broker.
    logs: Option<LogSettings>,
    /// Connect commands of users who are to have one connection only.
    connects: AtomicU64,
    draining: AtomicBool,
    control_plane: Box<dyn ControlPlane>,
}

/// Has no bound of its own, so a push never fails, and a shard never blocks on another. What it holds is bounded by its senders.
/// A publication holds a permit, a client's question a ticket, and the control plane's answer the question's place. A shard sends
/// a channel's home one join, and one leave for it. Connections that are handed back wait in a socket, which has a size. Clients
/// that come and go are announced as fast as shards read their commands.
struct Inbox {
    messages: Mutex<Messages>,
    /// True from a wake until the shard calls [`Mesh::receive`]: others need not wake it again.
    woken: AtomicBool,
    waker: Waker,
}

#[derive(Default)]
struct Messages {
    waiting: Vec<Message>,
    /// The shard has ended: nothing sent to it would be received.
    closed: bool,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Messages> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Mesh {
    /// Bytes of a channel's name, UTF-8.
    pub const CHANNEL_BYTES_MAX: usize = 255;
    /// Shards of a process.
    pub const SHARDS_MAX: usize = ShardSet::SHARDS_MAX;

    /// The mesh of a node without a broker: as many shards as there are wakers. `epoch` is that of all channels, and must differ from those of earlier
    /// processes: offsets start again. `client_ids` names the clients of all shards, with a secret of the process.
    ///
    /// # Panics
    /// No waker, or more than [`Mesh::SHARDS_MAX`].
    #[must_use]
    pub fn new(
        wakers: Vec<Waker>,
        limits: ProcessLimits,
        epoch: Epoch,
        client_ids: ClientIds,
        control_plane: Box<dyn ControlPlane>,
    ) -> Self {
        Self::assemble(wakers, limits, epoch, client_ids, None, control_plane)
    }

    fn assemble(
        wakers: Vec<Waker>,
        limits: ProcessLimits,
        epoch: Epoch,
        client_ids: ClientIds,
        logs: Option<LogSettings>,
        control_plane: Box<dyn ControlPlane>,
    ) -> Self {
        assert!(!wakers.is_empty() && wakers.len() <= Self::SHARDS_MAX);
        let metrics = wakers.iter().map(|_| Metrics::default()).collect();
        let events = wakers.iter().map(|_| Mutex::default()).collect();
        let defects = wakers.iter().map(|_| Mutex::default()).collect();
        let notices = wakers.iter().map(|_| Mutex::default()).collect();
        let inbox = |waker| Inbox {
            messages: Mutex::default(),
            woken: AtomicBool::new(false),
            waker,
        };
        Self(Arc::new(Inner {
            inboxes: wakers.into_iter().map(inbox).collect(),
            metrics,
            events,
            defects,
            notices,
            limits,
            epoch,
            client_ids,
            session_ids: client_ids.of_sessions(),
            node: client_ids.node(),
            emulated: Pool::new(EMULATED_BYTES_MAX),
            connections: Pool::new(limits.connections_max),
            buffered: Pool::new(limits.buffered_bytes_max),
            unconnected: Pool::new(limits.unconnected_bytes_max.min(limits.buffered_bytes_max)),
            publications: Pool::new(limits.publication_bytes_max),
            asks: AskPools::new(&limits),
            tallies: Tallies::default(),
            orders: Pool::new(ORDERS_MAX),
            logs,
            connects: AtomicU64::new(0),
            draining: AtomicBool::new(false),
            control_plane,
        }))
    }

    /// Shards of this mesh.
    #[must_use]
    pub fn shard_count(&self) -> usize {
        self.0.inboxes.len()
    }

    /// Hands data to the channel's home shard, to be published. With an `id`, [`ControlPlane::published`] is called once it
    /// has its position.
    ///
    /// # Errors
    /// Nothing was published, and the id will not be answered.
    pub fn publish(
        &self,
        channel: &str,
        payload: Payload,
        id: Option<RequestId>,
    ) -> Result<(), PublishRefused> {
        let options = PublishOptions::default();
        self.publish_content(channel, Content::new(payload), options, id)
    }

    /// As [`Mesh::publish`], with tags and wishes.
    ///
    /// # Errors
    /// Nothing was published, and the id will not be answered.
    pub fn publish_content(
        &self,
        channel: &str,
        content: impl Into<Arc<Content>>,
        options: PublishOptions,
        id: Option<RequestId>,
    ) -> Result<(), PublishRefused> {
        let content = content.into();
        let asker = id.map(Asker::Control);
        let submission = self.submission(channel, content, options, asker, None)?;
        if self.has_broker() {
            self.submit_to_broker(submission);
            return Ok(());
        }
        let message = Message::Publish(Box::new(submission));
        // A shard ends only in a drain: this publisher has come a moment too late.
        self.try_send(self.home_of(channel), message)
            .map_err(|_| PublishRefused::Draining)
    }

    /// Gives a publication to the broker, which orders it.
    pub(crate) fn submit_to_broker(&self, submission: Submission) {
        self.0.control_plane.submit(BrokerTask::Publish(submission));
    }

    /// A publication with its share of the limit. `asker` is to get its position.
    ///
    /// # Errors
    /// It may not be published, and the asker will not be answered.
    pub(crate) fn submission(
        &self,
        channel: &str,
        content: Arc<Content>,
        options: PublishOptions,
        asker: Option<Asker>,
        sender: Option<Ticket>,
    ) -> Result<Submission, PublishRefused> {
        if channel.is_empty() || channel.len() > Self::CHANNEL_BYTES_MAX {
            return Err(PublishRefused::Channel);
        }
        let is_client = matches!(asker, Some(Asker::Session(_)));
        let permit = self.take_permit(&content, is_client)?;
        Ok(Submission {
            channel: channel.into(),
            content,
            permit,
            asker,
            sender,
            idempotency_key: options.idempotency_key,
            delta: options.delta,
            skip_history: options.skip_history,
            version: options.version,
            version_epoch: options.version_epoch,
        })
    }

    /// A publication's share of the limit of publication bytes.
    fn take_permit(&self, content: &Content, is_client: bool) -> Result<Permit, PublishRefused> {
        if !self.takes_publications() {
            return Err(PublishRefused::Draining);
        }
        let bytes = self.permit_bytes(content);
        let (size, reserve) = self.publication_room(is_client);
        if bytes > size - reserve {
            return Err(PublishRefused::TooLarge);
        }
        let held = if self.has_broker() {
            // Its frames are made when it comes back. `take_in` counts them then.
            content.bytes() as u64 + Publication::OVERHEAD_BYTES
        } else {
            bytes
        };
        Permit::take(&self.0.publications, held, reserve).ok_or(PublishRefused::Busy)
    }

    /// Whether publications are taken: until the node drains, and then as long as somebody is left here to hear them. In a cluster
    /// the others hear them, and NATS keeps them.
    fn takes_publications(&self) -> bool {
        !self.0.draining.load(Ordering::Relaxed) || self.has_broker() || self.is_heard()
    }

    /// Whether somebody has subscribed to something here.
    fn is_heard(&self) -> bool {
        let mut shards = self.0.metrics.iter();
        shards.any(|shard| shard.subscriptions.value() > 0)
    }

    fn permit_bytes(&self, content: &Content) -> u64 {
        let ProcessLimits {
            compression,
            http_streams,
            ..
        } = self.0.limits;
        Publication::bytes_max(content, compression, http_streams)
    }

    /// Bytes that all publications in flight may have, and how many of them are not for this publisher: clients leave a part to the
    /// application, and all leave a part to what comes from a broker. Otherwise those who publish would take each byte that comes free
    /// before the broker's reader has what its next entry needs.
    fn publication_room(&self, is_client: bool) -> (u64, u64) {
        let size = self.0.publications.size();
        let reserve = if is_client {
            size / APPLICATION_DIVISOR
        } else if self.has_broker() {
            size / BROKER_DIVISOR
        } else {
            0
        };
        (size, reserve)
    }

    /// Asks a shard. [`ControlPlane::answered`] is called once with the answer.
    pub fn inquire(&self, shard: usize, id: RequestId, inquiry: Inquiry) {
        let inquiry = Box::new(inquiry);
        self.send_or_drop(shard, Message::Inquire { id, inquiry });
    }

    /// Reads a channel's history. [`ControlPlane::answered`] is called once with the answer.
    pub fn read_history(&self, id: RequestId, wish: HistoryWish) {
        let HistoryWish {
            channel,
            limit,
            since,
            reverse,
        } = wish;
        let home = self.home_of(&channel);
        let read = Box::new(ReadHistory {
            channel,
            asker: Asker::Control(id),
            limit,
            since,
            reverse,
        });
        self.send_or_drop(home, Message::ReadHistory(read));
    }

    /// Has a channel's history removed. [`ControlPlane::answered`] is called once when that is done.
    pub fn remove_history(&self, id: RequestId, channel: &str) {
        if self.has_broker() {
            let channel = channel.into();
            let task = BrokerTask::RemoveHistory { channel, id };
            return self.0.control_plane.submit(task);
        }
        let home = self.home_of(channel);
        let channel = channel.into();
        self.send_or_drop(home, Message::RemoveHistory { channel, id });
    }

    /// Data on its way into a stream, with its shares of the limit of publication bytes: all or nothing. Clients leave a part of it
    /// to the application.
    ///
    /// # Errors
    /// The process has no room for it.
    pub fn stream_entries(
        &self,
        contents: Vec<Content>,
        is_client: bool,
    ) -> Result<Vec<StreamEntry>, PublishRefused> {
        let (size, reserve) = self.publication_room(is_client);
        let bytes = contents.iter().map(|content| self.permit_bytes(content));
        if bytes.sum::<u64>() > size - reserve {
            return Err(PublishRefused::TooLarge);
        }
        let entry = |content: Content| {
            let permit = self.take_permit(&content, is_client)?;
            let content = Arc::new(content);
            Ok(StreamEntry { content, permit })
        };
        contents.into_iter().map(entry).collect()
    }

    /// Takes so many of what clients may publish to a channel, by [`crate::Limits::publishes_per_channel`], all or none. For those
    /// only that have the right to: nobody else may use the channel's rate up.
    ///
    /// # Errors
    /// Clients may not publish so many now, or ever.
    pub fn take_client_publications(
        &self,
        channel: &str,
        count: u64,
        limit: RateLimit,
        now: Now,
    ) -> Result<(), TooMany> {
        let channels = &self.0.tallies.channels;
        let taken = channels.spend_many(&channel.into(), count, limit, now);
        if taken.is_err() {
            let metrics = &self.0.metrics[self.home_of(channel)];
            metrics.count_limited(Limit::PublishesPerChannel);
        }
        taken
    }

    /// Creates, changes or looks at a channel as a stream. [`ControlPlane::answered`] is called once with the answer.
    pub fn ask_stream(&self, id: RequestId, channel: &str, command: StreamCommand) {
        let home = self.home_of(channel);
        let request = Box::new(StreamRequest {
            channel: channel.into(),
            asker: Asker::Control(id),
            command,
        });
        self.send_or_drop(home, Message::Stream(request));
    }

    /// Reads a channel as a stream. [`ControlPlane::answered`] is called once with the answer.
    pub fn read_stream(&self, id: RequestId, wish: StreamWish) {
        let home = self.home_of(&wish.channel);
        let read = Box::new(ReadStream {
            channel: wish.channel,
            asker: Asker::Control(id),
            from: wish.from,
            bytes_max: wish.bytes_max,
            publications_max: wish.publications_max,
        });
        self.send_or_drop(home, Message::ReadStream(read));
    }

    /// Sends to a shard. Who waits for an answer of a shard that has ended is told so.
    fn send_or_drop(&self, shard: usize, message: Message) {
        if let Err(message) = self.try_send(shard, message) {
            self.drop_unhandled(message);
        }
    }

    /// Tells the control plane that there will be no answer.
    pub(crate) fn unanswered(&self, id: RequestId) {
        self.0.control_plane.answered(id, None);
    }

    /// Answers the control plane.
    pub(crate) fn answered(&self, id: RequestId, answer: InquiryAnswer) {
        self.0.control_plane.answered(id, Some(answer));
    }

    /// Tells a shard that the control plane has handed a connection back: [`HandOver::take_back`] gives it. A shard that has ended
    /// does not hear it.
    ///
    /// [`HandOver::take_back`]: crate::HandOver::take_back
    pub fn hand_back(&self, shard: usize) {
        self.send_or_drop(shard, Message::HandedBack);
    }

    /// Answers a client's command. The answer to a client that has gone, or after the deadline, is dropped.
    pub fn answer(&self, ask: Ask, answer: AskAnswer) {
        let answer = Box::new(Answer::Asked(ask.id, answer));
        let ticket = ask.ticket;
        self.send(ticket.shard.into(), Message::Answer { ticket, answer });
    }

    /// An order to give to shards.
    ///
    /// # Errors
    /// The process has no room for it.
    pub fn new_order(&self, whose: Whose, deed: Deed) -> Result<Arc<Order>, OrderRefused> {
        let place = Permit::take(&self.0.orders, 1, 0).ok_or(OrderRefused::Busy)?;
        Ok(Arc::new(Order {
            instruction: Arc::new(Instruction { whose, deed }),
            _place: place,
        }))
    }

    /// The number of a connect command, from 1: greater than those of all that came before it, on any shard.
    pub(crate) fn next_connect(&self) -> u64 {
        self.0.connects.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The shards that may have connections which an order is for.
    #[must_use]
    pub fn shards_of(&self, whose: &Whose) -> Range<usize> {
        match whose.client {
            None => 0..self.shard_count(),
            Some(client) => match self.0.client_ids.place_of(client) {
                Some((shard, _)) if usize::from(shard) < self.shard_count() => {
                    usize::from(shard)..usize::from(shard) + 1
                }
                _ => 0..0,
            },
        }
    }

    /// Names this process to clients that send commands apart from their connection.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.0.node
    }

    pub(crate) fn session_ids(&self) -> ClientIds {
        self.0.session_ids
    }

    /// Brings commands of a client to its shard. `node` and `session` are what the answer to its connect command named; `data` is a
    /// frame of the session's encoding. Commands of a session that has gone, or never was, are dropped without a word: who made a name
    /// up does not learn whether it exists.
    ///
    /// # Errors
    /// The commands go nowhere.
    pub fn emulate(&self, node: &str, session: &str, data: &[u8]) -> Result<(), EmulatedRefused> {
        if node != self.node() {
            return Err(EmulatedRefused::UnknownNode);
        }
        let place = ClientId::parse(session).and_then(|id| self.0.session_ids.place_of(id));
        let Some((shard, connection)) =
            place.filter(|(shard, _)| usize::from(*shard) < self.shard_count())
        else {
            return Ok(());
        };
        let bytes = data.len() as u64 + EMULATED_OVERHEAD_BYTES;
        let permit = Permit::take(&self.0.emulated, bytes, 0).ok_or(EmulatedRefused::Busy)?;
        let emulated = Emulated {
            connection,
            data: data.into(),
            _permit: permit,
        };
        self.send(shard.into(), Message::Emulated(Box::new(emulated)));
        Ok(())
    }

    /// Begins to note what a client says and hears. The trace goes on until it is dropped, or says that it has ended.
    #[must_use]
    pub fn trace(&self, client: ClientId) -> Arc<Trace> {
        let trace = Arc::<Trace>::default();
        let place = self.0.client_ids.place_of(client);
        match place.filter(|(shard, _)| usize::from(*shard) < self.shard_count()) {
            Some((shard, connection)) => {
                let message = Message::Trace {
                    connection,
                    trace: Arc::clone(&trace),
                };
                self.send_or_drop(shard.into(), message);
            }
            None => trace.end(TraceEnd::Gone),
        }
        trace
    }

    /// Gives an order to a shard. [`ControlPlane::answered`] is called once, when it is carried out.
    pub fn order(&self, shard: usize, id: RequestId, order: Arc<Order>) {
        self.send_or_drop(shard, Message::Order { id, order });
    }

    /// A place for one more question to the control plane; none if the process has no room for it.
    /// `text_bytes` is the size of the command, if it is kept beside the question.
    pub(crate) fn ask_place(&self, question: &Question, text_bytes: usize) -> Option<AskPlace> {
        let bytes = question.bytes() + text_bytes as u64;
        let of_all = AskPlace::take(self.0.asks.of(question), &self.0.buffered, bytes)?;
        match question.is_before_connect() {
            true => of_all.within(&self.0.unconnected),
            false => Some(of_all),
        }
    }

    /// How many commands of one connected client may wait for the control plane now.
    pub(crate) fn ask_share(&self) -> u64 {
        self.0.asks.share()
    }

    /// Asks the control plane.
    pub(crate) fn ask(&self, ask: Ask) {
        self.0.control_plane.ask(self, ask);
    }

    /// Begins draining: new streams get 503, connections are closed evenly over `over`, then each shard's turn
    /// answers [`crate::Turn::Finished`]. Publications are taken as long as somebody is subscribed.
    pub fn drain(&self, over: Duration) {
        self.0.draining.store(true, Ordering::Relaxed);
        for shard in 0..self.shard_count() {
            self.send(shard, Message::Drain { over });
        }
    }

    /// Gives every shard other settings. Each takes them on its own, between two messages; [`Settings::over`] says which of them
    /// stay as they were.
    pub fn reload(&self, settings: &Arc<Settings>) {
        for shard in 0..self.shard_count() {
            self.send(shard, Message::Settings(Arc::clone(settings)));
        }
    }

    /// Each shard's figures.
    #[must_use]
    pub fn metrics(&self) -> &[Metrics] {
        &self.0.metrics
    }

    /// Takes what happened to the connections of a shard since the last call; nothing unless [`crate::Settings::events`] is set.
    #[must_use]
    pub fn take_events(&self, shard: usize) -> Events {
        self.events(shard).take()
    }

    /// Takes the clients of a shard that were refused since the last call, while [`crate::Settings::events`] is not set: at most
    /// one a second for each reason.
    #[must_use]
    pub fn take_refusals(&self, shard: usize, now: Now) -> Refusals {
        self.events(shard).take_refusals(now)
    }

    pub(crate) fn may_note_refusal(&self, shard: usize, reason: EventKind, now: Now) -> bool {
        self.events(shard).may_note_refusal(reason, now)
    }

    pub(crate) fn note_refusal(
        &self,
        shard: usize,
        name: Option<ConnectionName>,
        event: ConnectionEvent,
    ) {
        self.events(shard).note_refusal(name, event);
    }

    pub(crate) fn note_event(&self, shard: usize, event: Event, now: Now) {
        self.events(shard).note(event, now);
    }

    /// Takes the lines about defects of a shard since the last call: at most one a second for each statement.
    #[must_use]
    pub fn take_defects(&self, shard: usize, now: Now) -> DefectLines {
        self.defects(shard).take(now)
    }

    /// Notes a defect for the log.
    pub fn note_defect(&self, shard: usize, defect: NotedDefect, now: Now) {
        self.defects(shard).note(defect, now);
    }

    fn defects(&self, shard: usize) -> MutexGuard<'_, DefectLog> {
        let defects = &self.0.defects[shard];
        defects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what a shard has noted for an application since the last call; nothing unless [`crate::Settings::notices`] asks for it.
    #[must_use]
    pub fn take_notices(&self, shard: usize) -> Notices {
        std::mem::take(&mut *self.notices(shard))
    }

    pub(crate) fn note_notice(&self, shard: usize, notice: Notice, now: Now) {
        self.notices(shard).note(notice, now);
    }

    fn notices(&self, shard: usize) -> MutexGuard<'_, Notices> {
        let notices = &self.0.notices[shard];
        notices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn events(&self, shard: usize) -> MutexGuard<'_, EventLog> {
        let events = &self.0.events[shard];
        events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of publications in flight: accepted, and not yet submitted to every subscriber.
    #[must_use]
    pub fn publication_bytes(&self) -> u64 {
        self.0.limits.publication_bytes_max - self.0.publications.available()
    }

    /// The limits of the process, as it got them at its start.
    #[must_use]
    pub fn limits(&self) -> &ProcessLimits {
        &self.0.limits
    }

    /// What of the limits nobody holds, for checks: all of it once every shard has been dropped.
    #[must_use]
    pub fn available(&self) -> ProcessLimits {
        ProcessLimits {
            connections_max: self.0.connections.available(),
            buffered_bytes_max: self.0.buffered.available(),
            // Where the share is larger than all of it, it bounds nothing more.
            unconnected_bytes_max: self.0.limits.unconnected_bytes_max
                - (self.0.unconnected.size() - self.0.unconnected.available()),
            publication_bytes_max: self.0.publications.available(),
            history_bytes_max: self.0.limits.history_bytes_max,
            asks_max: self.0.asks.commands.available(),
            connect_asks_max: self.0.asks.connects.available(),
            compression: self.0.limits.compression,
            http_streams: self.0.limits.http_streams,
        }
    }

    /// Addresses that are counted, and how many were forgotten too early because there were too many.
    #[must_use]
    pub fn counted_addresses(&self) -> (u64, u64) {
        self.0.tallies.addresses.sizes()
    }

    /// Users whose connections are counted.
    #[must_use]
    pub fn counted_users(&self) -> u64 {
        self.0.tallies.users.sizes().0
    }

    pub(crate) fn tallies(&self) -> &Tallies {
        &self.0.tallies
    }

    /// The epoch of all channels.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.0.epoch
    }

    /// The shard whose home a channel has, among as many shards as there are.
    #[must_use]
    pub fn home_shard(&self, channel: &str) -> usize {
        self.home_of(channel)
    }

    /// Tells a home that the disk has everything up to a ticket.
    pub fn kept(&self, shard: usize, ticket: u64) {
        self.send(shard, Message::Kept { ticket });
    }

    /// Tells all homes that the disk has failed: it keeps nothing more.
    pub fn disk_failed(&self) {
        for shard in 0..self.shard_count() {
            self.send(shard, Message::DiskFailed);
        }
    }

    /// What the home of a shard is told.
    pub(crate) fn home_settings(&self, shard: usize, settings: &Settings) -> HomeSettings {
        HomeSettings {
            epoch: self.0.epoch,
            epoch_seed: self.0.epoch.bits() + ((shard as u64) << u32::BITS),
            logs: self.0.logs.map_or(0, |logs| logs.count),
            by_channel: self.0.logs.is_some_and(|logs| logs.by_channel),
            namespaces: Arc::clone(&settings.namespaces),
            history_bytes_max: self.0.limits.history_bytes_max / self.shard_count() as u64,
            vacated_delay: settings.notices.vacated_delay,
            batch_bytes_max: (settings.outbound_bytes_max as usize / BATCH_DIVISOR).min(256 << 10),
        }
    }

    pub(crate) fn client_ids(&self) -> ClientIds {
        self.0.client_ids
    }

    pub(crate) fn connections(&self) -> &Pool {
        &self.0.connections
    }

    pub(crate) fn unconnected(&self) -> &Pool {
        &self.0.unconnected
    }

    pub(crate) fn buffered(&self) -> &Pool {
        &self.0.buffered
    }

    /// Bytes a shard leases of the buffer budget at a time: enough that shards seldom meet, and little enough that
    /// what idle shards hold does not starve a busy one.
    pub(crate) fn buffered_portion(&self) -> u64 {
        (self.0.limits.buffered_bytes_max / (16 * self.shard_count() as u64)).min(1 << 20)
    }

    /// The shard where a channel's order is made: FNV-1a of the name, the same in every process.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a remainder of the shard count"
    )]
    pub(crate) fn home_of(&self, channel: &str) -> usize {
        (name_hash(channel) % self.shard_count() as u64) as usize
    }

    /// Sends to a shard. A shard that has ended gets nothing: it has no members, and no home is needed any more.
    pub(crate) fn send(&self, shard: usize, message: Message) {
        let _ = self.try_send(shard, message);
    }

    /// Sends to a shard, unless it has ended: then the message comes back.
    pub(crate) fn try_send(&self, shard: usize, message: Message) -> Result<(), Message> {
        let inbox = &self.0.inboxes[shard];
        let mut messages = inbox.lock();
        if messages.closed {
            return Err(message);
        }
        messages.waiting.push(message);
        drop(messages);
        if !inbox.woken.swap(true, Ordering::AcqRel) {
            inbox.waker.wake();
        }
        Ok(())
    }

    /// Moves what has arrived for a shard into `messages`, which must be empty.
    pub(crate) fn receive(&self, shard: usize, messages: &mut Vec<Message>) {
        assert!(messages.is_empty());
        let inbox = &self.0.inboxes[shard];
        // Cleared before the queue is taken: a sender in between may wake once too often, never once too few.
        if inbox.woken.swap(false, Ordering::AcqRel) {
            std::mem::swap(&mut inbox.lock().waiting, messages);
        }
    }

    /// The shard ends: it receives nothing more. Publishers whose data it has not handled are told so.
    pub(crate) fn close(&self, shard: usize) {
        let mut messages = self.0.inboxes[shard].lock();
        messages.closed = true;
        let unhandled = std::mem::take(&mut messages.waiting);
        drop(messages);
        unhandled
            .into_iter()
            .for_each(|message| self.drop_unhandled(message));
    }

    /// Drops a message that its shard will not handle.
    pub(crate) fn drop_unhandled(&self, message: Message) {
        match message {
            Message::Publish(submission) => {
                if let Some(Asker::Control(id)) = submission.asker {
                    let ended = Err(NotPublished::Ended);
                    self.0.control_plane.published(id, ended);
                }
            }
            Message::ReadHistory(read) => self.drop_asker(read.asker),
            Message::Stream(request) => self.drop_asker(request.asker),
            Message::ReadStream(read) => self.drop_asker(read.asker),
            Message::Trace { trace, .. } => trace.end(TraceEnd::Gone),
            Message::Inquire { id, .. }
            | Message::RemoveHistory { id, .. }
            | Message::Order { id, .. } => {
                self.0.control_plane.answered(id, None);
            }
            _ => {}
        }
    }

    /// There will be no answer.
    fn drop_asker(&self, asker: Asker) {
        if let Asker::Control(id) = asker {
            self.0.control_plane.answered(id, None);
        }
    }

    /// Answers a publisher.
    pub(crate) fn published(&self, id: RequestId, position: Result<Position, NotPublished>) {
        self.0.control_plane.published(id, position);
    }

    /// Messages that wait in the shards' inboxes.
    #[must_use]
    pub fn waiting_messages(&self) -> usize {
        let inboxes = self.0.inboxes.iter();
        inboxes.map(|inbox| inbox.lock().waiting.len()).sum()
    }

    /// Whether a shard has messages to receive; the simulator's stand-in for the wake.
    #[must_use]
    pub fn has_messages(&self, shard: usize) -> bool {
        self.0.inboxes[shard].woken.load(Ordering::Acquire)
    }
}
