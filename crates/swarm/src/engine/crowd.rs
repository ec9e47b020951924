//! One thread's part of the crowd: its terminals and the turn that drives them.
//!
//! A turn opens what is due, waits for the reactor, reads the clock once, handles what was received, and
//! sends the output of all terminals in one batch. It is generic over the reactor: two real
//! drivers and a simulated one run the same code.

use crate::clock::{Clock, Nanos};
use crate::engine::account::Notes;
use crate::engine::answered::AnsweredMessages;
use crate::engine::arrivals::{Arrivals, MessageScan};
use crate::engine::churn::Churn;
use crate::engine::closing::ClosingAll;
use crate::engine::comeback::{Comebacks, StormTally};
use crate::engine::flows::Flows;
use crate::engine::flows::changes::Changes;
use crate::engine::flows::ledger::MessageKey;
use crate::engine::heartbeat::Heartbeat;
use crate::engine::http::{Exchange, HttpTerminals};
use crate::engine::incidents::Incidents;
use crate::engine::membership::Membership;
use crate::engine::opening::Opening;
use crate::engine::outbox::{Broken, Outbox};
use crate::engine::plan::{Part, Plan, PlannedTarget};
use crate::engine::session::Sessions;
use crate::engine::shared::{Shared, Stage, Totals};
use crate::engine::stream::PartialFrame;
use crate::engine::terminal::{Phase, Terminal};
use crate::engine::tls::ABRUPT_END;
use crate::engine::unwell::{StallEnd, Unwell};
use crate::engine::upgrade::Refusals;
use crate::failure::Failure;
use crate::measure::push::{Base, PushKey};
use crate::measure::sequence::Sequence;
use crate::random::{Random, mix};
use myriad_reactor::{Close, Completion, Completions, Reactor, Token};
use myriad_wire::deflate::Inflater;
use myriad_wire::ws::Decoder;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Longest wait: an order is noticed after at most this time. Ten wakes a second cost less than a descriptor for waking
/// a thread.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// A thread's part of the crowd, on its reactor.
pub(crate) struct Crowd<R> {
    reactor: R,
    completions: Completions,
    world: World,
}

/// Everything but the reactor.
pub(super) struct World {
    pub(super) plan: Arc<Plan>,
    pub(super) part: Part,
    pub(super) shared: Arc<Shared>,
    /// One per terminal opened so far, in order. Never moved, because its capacity is the whole part.
    pub(super) terminals: Vec<Terminal>,
    /// What terminals have seen of their channels after the first, `more_sequences` each.
    more_sequences: Vec<Sequence>,
    /// Incomplete input, by terminal.
    pub(super) partials: HashMap<u32, Partial>,
    /// Bytes of its messages.
    pub(super) partial_bytes: usize,
    /// The sessions of terminals that have them.
    pub(super) sessions: Option<Box<Sessions>>,
    /// What terminals keep that speak HTTP.
    pub(super) http: Option<Box<HttpTerminals>>,
    pub(super) outbox: Outbox,
    pub(super) opening: Opening,
    /// Which refusals of the server have been kept, and by whom.
    pub(super) refusals: Refusals,
    pub(super) heartbeat: Option<Heartbeat>,
    pub(super) churn: Option<Churn>,
    /// Who joined and left lately; none where nobody does.
    pub(super) membership: Option<Membership>,
    pub(super) comebacks: Option<Box<Comebacks>>,
    pub(super) incidents: Option<Box<Incidents>>,
    /// Who stalled or vanished.
    pub(super) unwell: Option<Box<Unwell>>,
    /// By number of the incident.
    pub(super) storms: Vec<StormTally>,
    pub(super) answered: Option<Box<AnsweredMessages>>,
    pub(super) flows: Option<Box<Flows>>,
    /// Who of the groups is away; none where nobody leaves.
    pub(super) changes: Option<Box<Changes>>,
    /// Where terminals think between messages of flows: those that opened since the last turn, and the answers that came.
    pub(super) newcomers: Vec<Token>,
    pub(super) flow_answers: Vec<(u32, MessageKey)>,
    pub(super) arrivals: Arrivals,
    /// One inflater for all terminals, because no server may take context over.
    pub(super) inflater: Inflater,
    pub(super) bases: HashMap<PushKey, Base>,
    pub(super) totals: Totals,
    pub(super) notes: Notes,
    pub(super) random: Random,
    /// Terminals whose close frame went out, with its time; oldest first.
    pub(super) closing: VecDeque<(Nanos, Token)>,
    pub(super) closing_all: Option<ClosingAll>,
    broken: Vec<Broken>,
    /// When the thread's processor time was last noted.
    pub(super) cpu_noted: Nanos,
}

/// Incomplete input of one terminal.
#[derive(Debug)]
pub(super) enum Partial {
    /// The beginning of the upgrade's answer.
    Head(Vec<u8>),
    /// An incomplete message.
    Message(Box<PartialMessage>),
    /// The same in a byte stream.
    Frame(PartialFrame),
    /// An incomplete answer, where terminals speak HTTP.
    Exchange(Box<Exchange>),
}

/// An incomplete message.
#[derive(Debug)]
pub(super) struct PartialMessage {
    pub(super) decoder: Decoder,
    pub(super) body: MessageBody,
}

/// The part of a message that was received so far.
#[derive(Debug, Default)]
pub(super) struct MessageBody {
    pub(super) scan: MessageScan,
    /// The DEFLATE data of a compressed one.
    pub(super) compressed: Vec<u8>,
    /// Any other message of a session, or of a run with flows. Otherwise its beginning, up to the length of an echo; empty in
    /// a run without echoes.
    pub(super) kept: Vec<u8>,
}

impl MessageBody {
    /// Bytes that are kept of it.
    fn bytes(&self) -> usize {
        self.compressed.len() + self.kept.len()
    }

    /// Takes the next piece of a message, where neither sessions nor flows are.
    pub(super) fn feed(&mut self, piece: &[u8], kept_bytes_max: usize) {
        self.scan.feed(piece);
        let room = kept_bytes_max.saturating_sub(self.kept.len());
        self.kept.extend_from_slice(&piece[..piece.len().min(room)]);
    }
}

/// Whether a thread has more to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turned {
    /// Call again.
    Running,
    /// Everything is closed.
    Done,
}

impl<R: Reactor> Crowd<R> {
    /// A part of the crowd with nothing opened yet.
    pub(crate) fn new(
        reactor: R,
        plan: Arc<Plan>,
        part: Part,
        shared: Arc<Shared>,
        now: Nanos,
    ) -> Self {
        let more = plan.more_sequences() * part.count as usize;
        let heartbeat = plan.heartbeat.map(|interval| Heartbeat::new(interval, now));
        let world = World {
            terminals: Vec::with_capacity(part.count as usize),
            more_sequences: vec![Sequence::NONE; more],
            partials: HashMap::new(),
            partial_bytes: 0,
            sessions: Sessions::new(&plan, part.count),
            http: HttpTerminals::new(&plan, part.count),
            outbox: Outbox::default(),
            opening: Opening::new(&plan, part, now),
            refusals: Refusals::default(),
            heartbeat,
            churn: Churn::new(&plan, part),
            membership: Membership::new(&plan),
            comebacks: Comebacks::new(&plan),
            incidents: Incidents::new(&plan, part),
            unwell: Unwell::new(&plan),
            storms: vec![StormTally::default(); plan.incidents.len()],
            answered: AnsweredMessages::new(&plan, part),
            flows: Flows::new(&plan, part),
            changes: Changes::new(&plan),
            newcomers: Vec::new(),
            flow_answers: Vec::new(),
            arrivals: Arrivals::new(plan.run),
            inflater: Inflater::default(),
            bases: HashMap::new(),
            totals: Totals::default(),
            notes: Notes {
                open_by_target: vec![0; plan.targets.len()],
                stalling_by_target: vec![0; plan.targets.len()],
                ..Notes::default()
            },
            random: Random::new(mix(plan.seed ^ u64::from(part.thread))),
            closing: VecDeque::new(),
            closing_all: None,
            broken: Vec::new(),
            cpu_noted: now,
            plan,
            part,
            shared,
        };
        Self {
            reactor,
            completions: Completions::new(),
            world,
        }
    }

    /// One pass: open, wait, handle, send, account.
    ///
    /// # Errors
    /// The reactor is unusable.
    pub(crate) fn turn(&mut self, clock: &impl Clock) -> io::Result<Turned> {
        let Self {
            reactor,
            completions,
            world,
        } = self;
        world.obey(clock.now());
        world.act(reactor, completions.input_pending, clock.now());
        world.send(reactor, clock.now());
        let timeout = world.timeout(clock.now());
        reactor.wait(Some(timeout), completions)?;

        // The arrival time of the whole batch: after it was received, before any of it is looked at.
        let arrived = clock.now();
        let Completions { list, buffer, .. } = completions;
        let busy = !list.is_empty();
        for completion in list.drain(..) {
            world.handle(reactor, completion, buffer, arrived);
        }
        if world.is_asking() && !busy {
            world.ask_again(arrived);
        }
        world.send(reactor, arrived);
        if busy {
            world.totals.turn_max = world.totals.turn_max.max(clock.now().since(arrived));
        }
        let done = world.is_done();
        world.settle_account(arrived, if done { Stage::Gone } else { world.stage() });
        Ok(if done { Turned::Done } else { Turned::Running })
    }

    /// How long the next turn would wait.
    #[cfg(test)]
    pub(crate) fn timeout(&self, clock: &impl Clock) -> Duration {
        self.world.timeout(clock.now())
    }
}

impl World {
    /// Does what is due by the clock. `has_unread_input`: the last look at the sockets left some unread.
    fn act<R: Reactor>(&mut self, reactor: &mut R, has_unread_input: bool, now: Nanos) {
        self.expire_closing(reactor, now);
        if self.closing_all.is_some() {
            self.close_some(reactor, now);
            return;
        }
        self.expire_attempts(reactor, now);
        self.open_due(reactor, has_unread_input, now);
        self.churn(reactor, now);
        self.suffer(reactor, now);
        self.settle_leaving();
        // First in the batch: behind a short send, what is too large to wait would be dropped.
        self.send_messages(now);
        self.sweep_requests(reactor, now);
        self.send_flows(now);
        self.send_heartbeats(now);
    }

    /// How long the reactor may wait.
    fn timeout(&self, now: Nanos) -> Duration {
        if let Some(all) = self.closing_all
            && all.next < self.terminals.len()
        {
            return Duration::ZERO;
        }
        if self.is_asking() {
            return Duration::ZERO;
        }
        // What was given up counts in the account before this thread sleeps: the run may end meanwhile, because nothing more is awaited.
        if !self.notes.failures.is_empty() {
            return Duration::ZERO;
        }
        let heartbeat = self.heartbeat.as_ref().map_or(WAIT_MAX, Heartbeat::step);
        self.opening
            .wait(self.part, now)
            .min(heartbeat)
            .min(self.churn.as_ref().map_or(WAIT_MAX, Churn::wait))
            .min(self.incidents.as_ref().map_or(WAIT_MAX, |incidents| {
                incidents.wait(self.shared.connected_at(), now)
            }))
            .min(
                self.answered
                    .as_ref()
                    .map_or(WAIT_MAX, |answered| answered.wait(now)),
            )
            .min(
                self.flows
                    .as_ref()
                    .map_or(WAIT_MAX, |flows| flows.wait(self.shared.schedule(), now)),
            )
            .min(WAIT_MAX)
    }

    fn handle<R: Reactor>(
        &mut self,
        reactor: &mut R,
        completion: Completion,
        buffer: &mut [u8],
        now: Nanos,
    ) {
        match completion {
            Completion::Received { token, range } => {
                self.handle_received(reactor, token, &mut buffer[range], now)
            }
            Completion::Connected { token } => self.handle_connected(reactor, token, now),
            Completion::ConnectFailed { token, errno } => {
                self.handle_connect_failed(token, errno, now)
            }
            Completion::Finished { token } => self.handle_finished(reactor, token, now),
            Completion::Failed { token, errno } => self.handle_failed(reactor, token, errno, now),
            Completion::Writable { token } => self.handle_writable(reactor, token, now),
            // Nothing is accepted or refused here, and waiting again is the answer to being woken.
            Completion::Woken
            | Completion::AcceptPaused { .. }
            | Completion::Accepted { .. }
            | Completion::Buffered { .. }
            | Completion::Refused { .. } => {}
        }
    }

    /// The index of the terminal a completion is about, unless it is about a previous attempt.
    pub(super) fn current(&self, token: Token) -> Option<usize> {
        let index = token.index as usize;
        let terminal = self.terminals.get(index)?;
        (terminal.attempt == token.generation && terminal.holds_socket()).then_some(index)
    }

    fn handle_finished<R: Reactor>(&mut self, reactor: &mut R, token: Token, now: Nanos) {
        let Some(index) = self.current(token) else {
            return;
        };
        match self.terminals[index].phase {
            Phase::Open if self.http.is_some() => {
                self.handle_http_end(reactor, index, Failure::LostEnd, now);
            }
            Phase::Open | Phase::Stalled => {
                self.lose(reactor, index, Failure::LostEnd, Close::Orderly, now);
            }
            Phase::Vanished => self.end_vanished(reactor, index, now),
            Phase::Closing | Phase::Leaving => {
                self.end_closing(reactor, index, Close::Orderly, now);
            }
            Phase::Joining => self.fail_attempt(reactor, index, Failure::SessionEnded, now),
            _ => self.fail_upgrade(reactor, index, Failure::HandshakeEnded, now),
        }
    }

    fn handle_failed<R: Reactor>(&mut self, reactor: &mut R, token: Token, errno: i32, now: Nanos) {
        let Some(index) = self.current(token) else {
            return;
        };
        // Many servers end TCP alone. That cuts nothing off, unless a message is incomplete. An answer that lasts until the end is
        // whole only behind a `close_notify` (RFC 9112, section 9.8).
        let is_cut = || match self.partials.get(&token.index) {
            Some(Partial::Message(_) | Partial::Frame(_)) => true,
            Some(Partial::Exchange(exchange)) => !exchange.is_fresh(),
            Some(Partial::Head(_)) | None => false,
        };
        if errno == ABRUPT_END && !is_cut() {
            return self.handle_finished(reactor, token, now);
        }
        match self.terminals[index].phase {
            Phase::Open if self.http.is_some() => {
                self.handle_http_end(reactor, index, Failure::of_open(errno), now);
            }
            Phase::Open | Phase::Stalled => {
                self.lose(reactor, index, Failure::of_open(errno), Close::Reset, now);
            }
            Phase::Vanished => self.end_vanished(reactor, index, now),
            Phase::Closing | Phase::Leaving => {
                self.end_closing(reactor, index, Close::Reset, now);
            }
            Phase::Joining => {
                self.fail_attempt(reactor, index, Failure::of_upgrade(errno), now);
            }
            _ => self.fail_upgrade(reactor, index, Failure::of_upgrade(errno), now),
        }
    }

    fn handle_writable<R: Reactor>(&mut self, reactor: &mut R, token: Token, now: Nanos) {
        let Some(index) = self.current(token) else {
            return;
        };
        if let Some(Broken { errno, .. }) =
            self.outbox
                .resume(reactor, token.index, &self.terminals[index])
        {
            self.handle_failed(reactor, token, errno, now);
        }
    }

    /// Sends what was queued, and ends terminals whose socket turned out broken.
    fn send<R: Reactor>(&mut self, reactor: &mut R, now: Nanos) {
        let mut broken = std::mem::take(&mut self.broken);
        self.outbox.flush(reactor, &self.terminals, &mut broken);
        for Broken { index, errno } in broken.drain(..) {
            self.note_unwritten(index);
            let token = self.terminals[index as usize].token(index);
            self.handle_failed(reactor, token, errno, now);
        }
        self.broken = broken;
    }

    /// Which target a terminal belongs to. Worked out each time, because a terminal has no room for it.
    pub(super) fn target_index(&self, index: u32) -> usize {
        let (target, _) = self.plan.target_of(self.plan.number(self.part, index));
        let comebacks = self.comebacks.as_ref();
        let moved = comebacks.map_or(0, |comebacks| comebacks.moved_by(index));
        (target + moved) % self.plan.targets.len()
    }

    /// The target that a terminal belongs to.
    pub(super) fn target(&self, index: u32) -> &PlannedTarget {
        &self.plan.targets[self.target_index(index)]
    }

    pub(super) fn note_failure(&mut self, failure: Failure) {
        self.notes.failures.push(failure);
    }

    /// Ends a terminal whose connection ended against our will. It may come back.
    pub(super) fn lose<R: Reactor>(
        &mut self,
        reactor: &mut R,
        index: usize,
        failure: Failure,
        how: Close,
        now: Nanos,
    ) {
        if !self.note_stall_end(index, StallEnd::Broken(failure), now) {
            self.totals.lost += 1;
            self.note_failure(failure);
        }
        self.end(reactor, index, how);
        self.come_back_if_lost(index, now);
    }

    /// Notes that a terminal became a WebSocket, or stopped being one.
    pub(super) fn note_open(&mut self, index: u32, opened: bool) {
        let target = self.target_index(index);
        let open = &mut self.notes.open_by_target[target];
        if opened {
            *open += 1;
            self.totals.open += 1;
        } else {
            *open -= 1;
            self.totals.open -= 1;
        }
        self.notes.open_changed = true;
        self.note_open_in_group(index, opened);
    }

    /// Frees a terminal's socket, with its incomplete input and output.
    pub(super) fn release<R: Reactor>(&mut self, reactor: &mut R, index: usize, how: Close) {
        let terminal = &self.terminals[index];
        assert!(terminal.holds_socket());
        let token = terminal.token(u32::try_from(index).expect("terminals are at most 2^32"));
        reactor.close(terminal.socket(), token, how);
        match terminal.phase {
            Phase::Open => self.note_open(token.index, false),
            Phase::Connecting | Phase::Upgrading | Phase::Joining => self.opening.note_ended(),
            Phase::Stalled => self.leave_stall(token.index),
            Phase::Vanished | Phase::Closing | Phase::Leaving | Phase::Waiting | Phase::Ended => {}
        }
        self.take_partial(token.index);
        self.forget_stall(token.index);
        self.outbox.forget(token.index);
        if let Some(sessions) = &mut self.sessions {
            sessions.forget(token.index);
        }
        if let Some(http) = &mut self.http {
            http.forget_connection(index);
        }
        if let Some(flows) = &mut self.flows {
            flows.forget(token.index);
        }
    }

    /// A terminal's incomplete input, which is no longer kept.
    pub(super) fn take_partial(&mut self, index: u32) -> Option<Partial> {
        if self.partials.is_empty() {
            return None;
        }
        let partial = self.partials.remove(&index)?;
        self.partial_bytes -= match &partial {
            Partial::Message(message) => message.body.bytes(),
            Partial::Frame(frame) => frame.bytes.len(),
            Partial::Exchange(exchange) => exchange.bytes(),
            Partial::Head(_) => 0,
        };
        Some(partial)
    }

    /// Keeps a terminal's incomplete message. False if all of them are more than the thread may keep.
    pub(super) fn keep_message(&mut self, index: u32, message: Box<PartialMessage>) -> bool {
        self.partial_bytes += message.body.bytes();
        self.partials.insert(index, Partial::Message(message));
        self.partial_bytes <= self.plan.partial_bytes_max
    }

    /// Ends a terminal that was open, for good. It may be open without a connection.
    pub(super) fn end<R: Reactor>(&mut self, reactor: &mut R, index: usize, how: Close) {
        let number = u32::try_from(index).expect("terminals are at most 2^32");
        self.leave_request(number);
        if self.end_dormant(index) {
            return;
        }
        self.release(reactor, index, how);
        self.give_up_reopening(index);
        self.terminals[index].phase = Phase::Ended;
    }

    fn stage(&self) -> Stage {
        let comebacks = self.comebacks.as_ref();
        let away = comebacks.map_or(0, |comebacks| comebacks.away_count());
        if self.is_replacing() || self.opening.is_finished(self.part, away) {
            Stage::Holding
        } else {
            Stage::Connecting
        }
    }

    /// Begins a terminal's sequences: a new connection is a new subscriber. One with a session is so only where it has not
    /// recovered, which is known already.
    pub(super) fn begin_sequences(&mut self, index: usize) {
        // Of whoever replaces somebody it is not certain what its server had counted it in for.
        let first =
            !self.is_replacing() && self.shared.account(self.part.thread as usize).called == 0;
        let beginning = if first {
            Sequence::FROM_THE_FIRST
        } else {
            Sequence::NONE
        };
        let http = self.http.as_ref();
        let number = u32::try_from(index).expect("terminals are at most 2^32");
        // One that comes back knows what it has seen, so that what it missed meanwhile can be counted.
        let goes_on = self.sessions.is_some()
            || http.is_some_and(|http| http.has_position(index))
            || self.is_coming_back(number);
        let stride = self.more_sequences.len() / self.part.count as usize;
        let more = &mut self.more_sequences[index * stride..(index + 1) * stride];
        for sequence in std::iter::once(&mut self.terminals[index].sequence).chain(more) {
            if !goes_on || *sequence == Sequence::NONE {
                *sequence = beginning;
            }
        }
    }

    /// Where a terminal keeps what it has seen of the channel in one of its slots.
    pub(super) fn sequence_mut(&mut self, index: usize, slot: usize) -> &mut Sequence {
        match slot.checked_sub(1) {
            None => &mut self.terminals[index].sequence,
            Some(more) => {
                let stride = self.more_sequences.len() / self.part.count as usize;
                assert!(more < stride);
                &mut self.more_sequences[index * stride + more]
            }
        }
    }
}
