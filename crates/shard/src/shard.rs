//! The shard's state, and its turn: it changes every group of the state, and hands each step of the turn to its file.

use crate::defects::Step;
use crate::drain::Drain;
use crate::durable::Durable;
use crate::events::ConnectionEvent;
use crate::input::Inputs;
use crate::inquiry::Inquiries;
use crate::marks::{Happening, hit, hit_in_phase};
use crate::mesh::{Mesh, Message};
use crate::metrics::Metrics;
use crate::new_names::NewNames;
use crate::reading::Reads;
use crate::session::Sessions;
use crate::settings::Settings;
use crate::surplus::Surplus;
use crate::traces::Traces;
use crate::transport::{Judged, Peer, Peers};
use myriad_hub::{CloseReason, Home, Hub, Lease, Now, Phase, TokenBucket, marks};
use myriad_reactor::{Close, Completion, Completions, Reactor, Socket, Token};
use myriad_wheel::{Key, TICK_MS};
use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// While deliveries are under way, a turn reads from few sockets: this part of the number that it sends to. Those who were reached may
/// ask for more at once, and handling that would delay the ones who are not reached yet.
const RECEIVES_DIVISOR: usize = 16;

/// The way from a shard to the control plane and back. None of its methods blocks.
pub trait HandOver<H> {
    /// Takes a connection with the bytes already read from it.
    ///
    /// # Errors
    /// It could not be passed on; the connection is closed by dropping the handle.
    fn hand_over(&mut self, handle: H, received: &[u8], origin: Origin) -> io::Result<()>;

    /// The next connection that the control plane hands back: one for each [`Mesh::hand_back`]. None if it was lost on the way.
    fn take_back(&mut self) -> Option<HandedBack<H>>;

    /// Tells the client of a connection why no shard serves it, and closes the connection.
    fn turn_away(&mut self, handle: H, why: TurnedAway);
}

/// Why a shard does not take a connection back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnedAway {
    /// It has no slot for one more.
    Full,
    /// Its drain is over.
    Draining,
}

impl TurnedAway {
    /// The sentence for the client, whose answer has the status 503.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Full => "The server is full: reconnect after a pause.",
            Self::Draining => "The server is shutting down: reconnect.",
        }
    }
}

/// A connection that the control plane hands back to a shard.
#[derive(Debug)]
pub struct HandedBack<H> {
    /// The connection.
    pub handle: H,
    /// What was read from it, and not answered.
    pub received: Vec<u8>,
    /// As it was handed over.
    pub origin: Origin,
}

/// What is known of the client of a connection that changes hands, beside what its socket says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The client's, if it is named or counted.
    pub address: Option<IpAddr>,
    /// A header of the PROXY protocol named the address. That header comes once in the life of a connection.
    pub is_named: bool,
    /// The connection has been counted against the rate of the address, which is for connections that begin.
    pub is_counted: bool,
    /// It has read a stream, and has been counted against the rate of all clients for that.
    pub has_read: bool,
    /// What it has left of [`Limits::reads`].
    ///
    /// [`Limits::reads`]: crate::Limits::reads
    pub reads: TokenBucket,
}

/// What a turn asks of its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Wait, then turn again.
    Continue,
    /// Drained: nothing is left to do.
    Finished,
}

/// One core's connections and their loop.
///
/// Its methods are in one file for each part of a turn. The documentation of a file, or of the module above it, says which of
/// these fields it changes.
pub struct Shard<R: Reactor> {
    /// Its number in the mesh.
    pub(crate) index: usize,
    pub(crate) settings: Settings,
    pub(crate) mesh: Mesh,
    pub(crate) reactor: R,
    /// The way to the control plane.
    pub(crate) hand_over: Box<dyn HandOver<R::Handle>>,
    /// Connections, their subscriptions, queues and timers.
    pub(crate) hub: Hub,
    /// The order of the channels at home here.
    pub(crate) home: Home,
    /// None where no history is on a disk.
    pub(crate) durable: Option<Durable>,
    pub(crate) inputs: Inputs,
    pub(crate) reads: Reads,
    pub(crate) new_names: NewNames,
    pub(crate) peers: Peers,
    pub(crate) sessions: Sessions,
    pub(crate) traces: Traces,
    /// What the control plane asks and takes more than a turn.
    pub(crate) inquiries: Inquiries,
    pub(crate) admission: Admission,
    pub(crate) messages: Messages,
    pub(crate) turn_end: TurnEnd,
    /// The step of the turn that is under way, for the line about a defect.
    pub(crate) step: Step,
    completions: Completions,
    /// When the turn began that [`Shard::wait`] has not recorded yet.
    turned_at: Option<Now>,
    /// When the reactor's last look at the sockets began, or before that.
    looked_at: Now,
}

/// Who may connect.
#[derive(Debug)]
pub(crate) struct Admission {
    /// The shard's lease of the limit of connections.
    pub(crate) credits: Lease,
    /// Connections beyond the limit, held until they are answered 503.
    pub(crate) surplus: Surplus,
    pub(crate) drain: Option<Drain>,
}

/// Messages that the shard has to handle.
#[derive(Default)]
pub(crate) struct Messages {
    /// From ourselves, past the inbox: no lock, no wake.
    pub(crate) loopback: VecDeque<Message>,
    /// From the inbox. Empty between two turns; kept for its memory.
    pub(crate) received: Vec<Message>,
    /// From the inbox, and put off to the next turn because this one was long enough. Before them nothing new is received.
    pub(crate) put_off: VecDeque<Message>,
}

/// A request for the control plane.
#[derive(Debug)]
pub(crate) struct PendingHandover {
    pub(crate) key: Key,
    /// What was read of it, and of what comes behind.
    pub(crate) received: Vec<u8>,
    /// [`Origin::has_read`].
    pub(crate) has_read: bool,
}

/// What a turn collects, to be done at a later step of the same turn.
#[derive(Debug, Default)]
pub(crate) struct TurnEnd {
    /// Sockets to close at the end of the turn, so that no list under way meets a reused record.
    pub(crate) pending_closes: Vec<(Key, Close)>,
    /// Requests for the control plane found among this turn's completions.
    pub(crate) pending_handovers: Vec<PendingHandover>,
    /// Channels that lost their last member here in this turn.
    pub(crate) emptied_channels: Vec<Arc<str>>,
    /// When publications were accepted whose last delivery was submitted in this turn.
    pub(crate) completed: Vec<Now>,
    /// When the time of held requests was over that were answered for it in this turn.
    pub(crate) polls_over: Vec<Now>,
}

impl<R: Reactor> Shard<R> {
    /// Shard number `index` of `mesh`, accepting. `spread_from` is where in their interval its first connections
    /// ping, as the numerator of 2^32.
    pub fn new(
        index: usize,
        mut reactor: R,
        mesh: Mesh,
        settings: Settings,
        hand_over: Box<dyn HandOver<R::Handle>>,
        spread_from: u32,
        now: Now,
    ) -> Self {
        let buffered = Lease::new(mesh.buffered().clone(), mesh.buffered_portion());
        let number = u16::try_from(index).expect("at most 256 shards");
        reactor.accept(true);
        Self {
            index,
            hub: Hub::new(
                settings.timing(),
                settings.outbound_bytes_max,
                buffered,
                spread_from,
                now,
            )
            .of_shard(number)
            .with_unconnected(Lease::new(mesh.unconnected().clone(), 0))
            .with_user_seed(mesh.client_ids().user_seed(number))
            .with_namespaces(Arc::clone(&settings.namespaces))
            .with_readers(settings.readers),
            home: Home::new(mesh.home_settings(index, &settings), now)
                .with_nodes(mesh.has_broker()),
            durable: None,
            inputs: Inputs::new(),
            reads: Reads::default(),
            new_names: NewNames::default(),
            peers: Peers::default(),
            traces: Traces::default(),
            sessions: Sessions::new(mesh.client_ids()),
            inquiries: Inquiries::default(),
            admission: Admission {
                credits: Lease::new(mesh.connections().clone(), 0),
                surplus: Surplus::default(),
                drain: None,
            },
            messages: Messages::default(),
            turn_end: TurnEnd::default(),
            step: Step::default(),
            completions: Completions::new(),
            turned_at: None,
            looked_at: now,
            settings,
            mesh,
            reactor,
            hand_over,
        }
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.mesh.metrics()[self.index]
    }

    /// Waits for the next thing to do. `now` is the time at the end of the last turn.
    ///
    /// # Errors
    /// The reactor is unusable.
    pub fn wait(&mut self, now: Now) -> io::Result<()> {
        self.note_turn_end(now);
        self.looked_at = now;
        let timeout = self.timeout(now);
        self.completions.receives_max = match self.hub.is_delivering() {
            true => self.settings.slice_max.div_ceil(RECEIVES_DIVISOR),
            false => usize::MAX,
        };
        self.reactor.wait(timeout, &mut self.completions)
    }

    /// Whether the last [`Shard::wait`] found something for a turn, or left something for the next wait. Public for the simulator.
    #[must_use]
    pub fn has_completions(&self) -> bool {
        !self.completions.list.is_empty() || self.completions.input_pending
    }

    /// Records the turn's durations. Only here is its end known: a turn gets the time of its start and reads no clock.
    fn note_turn_end(&mut self, now: Now) {
        let metrics = &self.mesh.metrics()[self.index];
        if let Some(began) = self.turned_at.take() {
            metrics.turns.record(now.0.saturating_sub(began.0));
        }
        for published_at in self.turn_end.completed.drain(..) {
            metrics
                .publish_to_last_submit
                .record(now.0.saturating_sub(published_at.0));
        }
        for over_at in self.turn_end.polls_over.drain(..) {
            metrics
                .poll_lateness
                .record(now.0.saturating_sub(over_at.0));
        }
    }

    /// How long [`Shard::wait`] waits if nothing happens; `None` is without limit. Public for the simulator.
    #[must_use]
    pub fn timeout(&self, now: Now) -> Option<Duration> {
        let busy = !self.messages.loopback.is_empty()
            || !self.messages.put_off.is_empty()
            || self.hub.is_delivering()
            || self.hub.has_flush()
            || self
                .admission
                .drain
                .as_ref()
                .is_some_and(|drain| drain.is_overdue(self.hub.connection_count(), now))
            || self.sessions.has_questions()
            || self.sessions.has_orders()
            || self.is_reloading()
            || self.home.is_in_round()
            || self.inquiries.is_walking()
            || self.reads.has_next()
            || self.mesh.has_messages(self.index);
        if busy {
            return Some(Duration::ZERO);
        }
        let deadlines = [
            self.hub.next_deadline(),
            self.home.next_deadline(),
            self.next_ask_deadline(),
        ];
        let deadline = deadlines.into_iter().flatten().min();
        let timer = deadline.map(|tick| now.until(tick));
        let drain = self
            .admission
            .drain
            .is_some()
            .then(|| Duration::from_millis(u64::from(TICK_MS)));
        timer.into_iter().chain(drain).min()
    }

    /// One pass: completions, inbox, timers, deliveries, what they queued, closes.
    pub fn turn(&mut self, now: Now) -> Turn {
        self.turned_at = Some(now);
        self.step = Step::Completions;
        self.hub.begin_turn(now.tick());
        hit!(LoopbackAfterClose if !self.messages.loopback.is_empty());
        let empty = Completions {
            list: Vec::new(),
            buffer: Vec::new(),
            input_pending: false,
            receives_max: 0,
        };
        let mut completions = std::mem::replace(&mut self.completions, empty);
        self.note_arrivals(&completions.list);
        for completion in &completions.list {
            self.handle_completion(completion, &mut completions.buffer, now);
        }
        completions.list.clear();
        self.hub
            .note_input_backlog(completions.input_pending, self.looked_at, now);
        self.completions = completions;
        self.begin_next(now);
        self.run_pending_handovers();
        self.step = Step::Messages;
        self.handle_home_time(now);
        self.ask_questions();
        self.sift_missed(now);
        self.handle_messages(now);
        self.step = Step::Orders;
        self.run_orders(now);
        self.reload(now);
        self.say_round(now);
        self.walk();
        self.step = Step::Timers;
        self.handle_timers(now);
        self.handle_ask_deadlines(now);
        self.end_unconnected_in_need(now);
        self.step = Step::Deliveries;
        self.deliver(now);
        let drained = self.poll_drain(now);
        self.step = Step::Flush;
        self.flush(now);
        self.step = Step::End;
        self.close_answered(now);
        self.end_defective(now);
        self.run_pending_closes();
        self.send_leaves();
        self.note_gauges();
        if drained {
            self.home.handle_end();
            self.run_home_effects(now);
            Turn::Finished
        } else {
            Turn::Continue
        }
    }

    fn handle_completion(&mut self, completion: &Completion, buffer: &mut [u8], now: Now) {
        match *completion {
            Completion::Accepted { socket, .. } => self.handle_accepted(socket, now),
            Completion::AcceptPaused { errno: _ } => {
                hit!(AcceptPaused);
                self.metrics().accept_pauses.add(1);
            }
            Completion::Received { token, ref range } => {
                if let Some(key) = self.find(token, Happening::Received) {
                    self.metrics().received_bytes.add(range.len() as u64);
                    self.handle_received(key, &mut buffer[range.clone()], now);
                }
            }
            Completion::Finished { token } => {
                if let Some(key) = self.find(token, Happening::Finished) {
                    self.handle_finished(key, now);
                }
            }
            Completion::Failed { token, errno: _ } => {
                if let Some(key) = self.find(token, Happening::Failed) {
                    self.handle_failed(key, now);
                }
            }
            Completion::Refused { token, ref why } => {
                if let Some(key) = self.find(token, Happening::Failed) {
                    if let Some(why) = why {
                        self.note_tls_refusal(key, why, now);
                    }
                    // What follows the answer that it was given is our FIN.
                    self.close_after_queue(key, CloseReason::Tls, now);
                }
            }
            Completion::Buffered { token, bytes } => {
                if let Some(key) = self.hub.find(token.index, token.generation) {
                    self.note_buffered_below(key, bytes, now);
                }
            }
            Completion::Writable { token } => {
                if let Some(key) = self.find(token, Happening::Writable) {
                    self.hub
                        .connection_mut(key.index)
                        .set_awaits_writable(false);
                    self.hub.list_for_flush(key.index);
                }
            }
            Completion::Connected { .. } | Completion::ConnectFailed { .. } | Completion::Woken => {
            }
        }
    }

    /// The live record a completion is for; late completions of ended connections find none.
    fn find(&self, token: Token, happening: Happening) -> Option<Key> {
        let found = self.hub.find(token.index, token.generation);
        if let Some(key) = found {
            self.note_happening(key.index, happening);
        }
        hit!(LateReceived if found.is_none() && happening == Happening::Received);
        hit!(LateFinished if found.is_none() && happening == Happening::Finished);
        hit!(LateFailed if found.is_none() && happening == Happening::Failed);
        hit!(LateWritable if found.is_none() && happening == Happening::Writable);
        found
    }

    pub(crate) fn note_happening(&self, index: u32, happening: Happening) {
        // Where nothing is noted, not even the record is looked at: this is done for each delivery.
        if marks::ENABLED {
            hit_in_phase(happening, self.hub.connection(index).phase);
        }
    }

    fn handle_accepted(&mut self, socket: Socket, now: Now) {
        self.metrics().accepts.add(1);
        let Judged::Kept(peer) = self.judge_arrival(now) else {
            return self.reset_unopened(socket, CloseReason::Refused, now);
        };
        if let Some(key) = self.open(socket, peer, now) {
            self.note_event(Some(key), now, |_| ConnectionEvent::Accepted);
        }
    }

    /// Gives a new connection a record; none if there are too many even for an answer.
    pub(crate) fn open(&mut self, socket: Socket, peer: Option<Peer>, now: Now) -> Option<Key> {
        // Whom a limit refuses takes no place of others.
        let is_refused = peer.is_some_and(|peer| peer.refusal().is_some());
        let surplus = is_refused || !self.admission.credits.spend(1);
        if surplus && !self.make_surplus_room(now) {
            hit!(SurplusReset);
            if let Some(peer) = peer {
                self.drop_peer(peer);
            }
            self.reset_unopened(socket, CloseReason::Full, now);
            return None;
        }
        let key = self.hub.open(socket.to_bits(), now);
        if let Some(peer) = peer {
            self.keep_peer(key, peer);
        }
        if surplus {
            hit!(Surplus);
            self.add_surplus(key);
        }
        self.reactor.register(socket, token_of(key));
        Some(key)
    }

    /// Resets a connection that gets no record.
    fn reset_unopened(&mut self, socket: Socket, reason: CloseReason, now: Now) {
        self.metrics().count_close(reason);
        self.note_event(None, now, |_| ConnectionEvent::Closed { reason, who: None });
        let nobody = Token {
            index: u32::MAX,
            generation: 0,
        };
        self.reactor.close(socket, nobody, Close::Reset);
    }

    pub(crate) fn handle_received(&mut self, key: Key, bytes: &mut [u8], now: Now) {
        self.hub.note_input(key.index, now);
        match self.hub.connection(key.index).phase {
            Phase::Handshake => self.handle_head_bytes(key, bytes, now),
            Phase::Joining => self.handle_early_bytes(key, bytes, now),
            Phase::Open => self.handle_input(key, bytes, now),
            // Our close frame or answer is queued: what the client sends now is ignored (RFC 6455, section 1.4).
            Phase::Closing => self.handle_closing_bytes(key, bytes),
        }
    }

    fn note_gauges(&self) {
        let metrics = self.metrics();
        metrics.connections.set(self.hub.connection_count() as u64);
        metrics
            .subscriptions
            .set(self.hub.subscription_count() as u64);
        metrics.buffered_bytes.set(self.hub.buffered_bytes());
        metrics.unconnected_bytes.set(self.hub.unconnected_bytes());
        let home = self.home.stats();
        metrics.channels.set(home.channels as u64);
        metrics.history_publications.set(home.publications as u64);
        metrics.history_bytes.set(home.bytes);
        metrics.history_evictions.set(home.evicted);
        metrics.asks_waiting.set(self.sessions.asks() as u64);
        metrics.deliveries.set(self.hub.delivery_count());
        metrics.parked_polls.set(self.hub.parked_count());
        metrics.event_streams.set(self.hub.events_count());
        let slow = self.hub.slow_consumer_stats();
        metrics.dropped_publications.set(slow.dropped);
        metrics
            .unreadable_publications
            .set(self.hub.unreadable_count());
        metrics.subscription_gaps.set(slow.gaps);
        metrics
            .dropped_announcements
            .set(self.hub.dropped_announcements());
        let (filters, comparisons) = self.hub.filter_stats();
        metrics.filters.set(filters as u64);
        metrics.filter_comparisons.set(comparisons);
        metrics
            .compressed_frames
            .set(self.hub.compressor().frames());
        metrics.compression_saved_bytes.set(self.hub.saved_bytes());
    }

    /// Connections with a record, for checks.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.hub.connection_count()
    }

    /// What the shard holds besides its connections, for checks: all zero once they have gone.
    #[must_use]
    pub fn holdings(&self) -> Holdings {
        Holdings {
            inputs: self.inputs.len(),
            reads: self.reads.len(),
            subscriptions: self.hub.subscription_count(),
            channels: self.hub.channel_count(),
            home_channels: self.home.len(),
            outbounds: self.hub.outbound_count(),
            buffered_bytes: self.hub.buffered_bytes(),
            buffered_below: self.inputs.buffered_below(),
            sessions: self.hub.session_count(),
            waiting_commands: self.sessions.waiting(),
            timers: self.hub.timer_count(),
            surplus: self.admission.surplus.len(),
            peers: self.peers.len(),
        }
    }

    /// Its reactor, for checks.
    #[must_use]
    pub fn reactor(&self) -> &R {
        &self.reactor
    }
}

impl<R: Reactor> Drop for Shard<R> {
    /// Publishers whose data the shard has not handled are told that it will not be.
    fn drop(&mut self) {
        for message in self
            .messages
            .received
            .drain(..)
            .chain(self.messages.put_off.drain(..))
            .chain(self.messages.loopback.drain(..))
        {
            self.mesh.drop_unhandled(message);
        }
        let orders = self.sessions.take_orders();
        for id in self.inquiries.waiting().chain(orders) {
            self.mesh.unanswered(id);
        }
        self.mesh.close(self.index);
    }
}

/// What a shard holds besides connection records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Partial inputs.
    pub inputs: usize,
    /// Requests that read streams and are not answered.
    pub reads: usize,
    /// Subscriptions.
    pub subscriptions: usize,
    /// Channels with members or deliveries here.
    pub channels: usize,
    /// Channels at home here with members anywhere, or with a history.
    pub home_channels: usize,
    /// Outbound queues.
    pub outbounds: usize,
    /// Bytes counted against the buffer budget.
    pub buffered_bytes: u64,
    /// Those of them that the reactor has.
    pub buffered_below: usize,
    /// Sessions.
    pub sessions: usize,
    /// Commands that wait for an answer from elsewhere, beside tickets.
    pub waiting_commands: usize,
    /// Armed timers.
    pub timers: usize,
    /// Connections beyond the limit, to be answered 503 or 429.
    pub surplus: usize,
    /// Connections whose address is kept.
    pub peers: usize,
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a token carries the low eight bits of the generation"
)]
pub(crate) fn token_of(key: Key) -> Token {
    Token {
        index: key.index,
        generation: key.generation as u8,
    }
}
