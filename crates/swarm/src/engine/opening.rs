//! Making connections: those due, those being established, and those that failed and are tried again.

use crate::clock::{Nanos, Ticks};
use crate::engine::churn::Churn;
use crate::engine::crowd::World;
use crate::engine::plan::{Part, Plan};
use crate::engine::ramp::Schedule;
use crate::engine::terminal::{Phase, Terminal};
use crate::engine::tls::TlsFailure;
use crate::engine::window::Window;
use crate::failure::Failure;
use myriad_reactor::{Close, Reactor, Token};
use myriad_wire::centrifuge::Encoding;
use myriad_wire::handshake::DEFLATE_OFFER;
use myriad_wire::ws::Extension;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

/// Connections begun in one turn, so that answers are handled in between.
const CONNECTS_PER_TURN: u32 = 256;

/// The same while the last look at the sockets left some unread. Those who are connected come first: a crowd that connects on while pongs
/// wait falls behind for good, and loses clients that a server gives up.
const CONNECTS_BESIDE_INPUT: u32 = 8;

/// The subprotocol that asks for protobuf. Clients that speak JSON offer none.
pub(super) const PROTOBUF_OFFER: (&str, &str) = ("sec-websocket-protocol", "centrifuge-protobuf");

/// Time until the first retry; doubles with each further one.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Shortest wait of a paced schedule: at 50,000 a second one is due every 20 microseconds, and a kernel entry each
/// would cost more than the connection.
const PACING_STEP: Duration = Duration::from_millis(1);

/// The connections of one thread that are not made yet.
#[derive(Debug)]
pub(crate) struct Opening {
    schedule: Schedule,
    /// Terminals opened at least once.
    begun: u32,
    /// Attempts under way.
    under_way: u32,
    /// How many may be.
    window: Window,
    /// Failed terminals, by the time of their retry. Terminals to replace are due at once.
    retries: BinaryHeap<Reverse<(Nanos, u32)>>,
    /// Terminals with failed attempts, until they succeed or are given up.
    failed: HashMap<u32, Failed>,
    /// Attempts in the order in which they began to wait. Finished ones are dropped when they reach the front.
    connecting: VecDeque<(Ticks, Token)>,
    upgrading: VecDeque<(Ticks, Token)>,
    /// Of the retries and the attempts under way, those of terminals that are open and go on over another connection.
    reopening: usize,
    stopped: bool,
}

/// What is remembered of a terminal whose attempts failed.
#[derive(Clone, Copy, Debug)]
struct Failed {
    /// When its first attempt began: its client has waited since then.
    since: Ticks,
    /// Attempts in a row.
    times: u8,
}

impl Opening {
    pub(crate) fn new(plan: &Plan, part: Part, now: Nanos) -> Self {
        Self {
            schedule: Schedule::new(plan, part, now),
            begun: 0,
            under_way: 0,
            window: Window::new(part.connecting_max),
            retries: BinaryHeap::new(),
            failed: HashMap::new(),
            connecting: VecDeque::new(),
            upgrading: VecDeque::new(),
            reopening: 0,
            stopped: false,
        }
    }

    /// Begins no more connections.
    pub(crate) fn stop(&mut self) {
        self.stopped = true;
        self.retries.clear();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Connects a terminal again at that time, or as soon after it as the window has room.
    pub(super) fn open_at(&mut self, index: u32, due: Nanos) {
        self.retries.push(Reverse((due, index)));
    }

    /// The same for a terminal that counts as open meanwhile.
    pub(super) fn reopen(&mut self, index: u32, due: Nanos) {
        self.reopening += 1;
        self.retries.push(Reverse((due, index)));
    }

    /// How many of these there are.
    pub(super) fn reopening(&self) -> usize {
        self.reopening
    }

    /// Notes that such a terminal has its connection.
    pub(super) fn note_reopened(&mut self, index: u32) {
        self.note_reopening_ended();
        self.note_ended();
        self.window.note_success();
        self.forget_failures(index);
    }

    /// Notes that such a terminal has its connection, or is given up.
    pub(super) fn note_reopening_ended(&mut self) {
        self.reopening -= 1;
    }

    /// A terminal's next failure is the first in a row.
    pub(super) fn forget_failures(&mut self, index: u32) {
        self.failed.remove(&index);
    }

    /// An attempt that has its connection waits for an answer from now on.
    pub(super) fn await_answer(&mut self, token: Token, now: Nanos) {
        self.upgrading.push_back((now.ticks(), token));
    }

    /// Connections that may begin beside those being established or waiting for a retry.
    pub(super) fn room(&self) -> u64 {
        let spoken_for = u64::from(self.under_way) + self.retries.len() as u64;
        u64::from(self.window.size()).saturating_sub(spoken_for)
    }

    /// How many attempts may be under way.
    pub(super) fn window(&self) -> Window {
        self.window
    }

    /// Attempts under way.
    pub(crate) fn under_way(&self) -> u32 {
        self.under_way
    }

    /// Notes that an attempt has ended, with or without success.
    pub(crate) fn note_ended(&mut self) {
        self.under_way -= 1;
    }

    /// Whether every terminal is open or has given up, but for so many that were open and come back.
    pub(crate) fn is_finished(&self, part: Part, away: usize) -> bool {
        let pending = self.under_way as usize + self.retries.len();
        self.begun == part.count && pending == self.reopening + away
    }

    /// Time until connecting needs attention.
    pub(crate) fn wait(&self, part: Part, now: Nanos) -> Duration {
        if self.stopped {
            return Duration::MAX;
        }
        let room = self.under_way < self.window.size();
        let fresh = if room && self.begun < part.count {
            let wait = self.schedule.wait(now);
            if self.schedule.is_paced() {
                wait.max(PACING_STEP)
            } else {
                wait
            }
        } else {
            Duration::MAX
        };
        let retry = match self.retries.peek() {
            Some(Reverse((due, _))) if room => due.since(now),
            _ => Duration::MAX,
        };
        fresh.min(retry)
    }
}

impl World {
    /// Begins the connections that are due and have room in the window, a few only where the last look at the sockets left some unread.
    pub(super) fn open_due<R: Reactor>(
        &mut self,
        reactor: &mut R,
        has_unread_input: bool,
        now: Nanos,
    ) {
        let room = self
            .opening
            .window
            .size()
            .saturating_sub(self.opening.under_way);
        let most = match has_unread_input {
            true => CONNECTS_BESIDE_INPUT,
            false => CONNECTS_PER_TURN,
        };
        let mut budget = room.min(most);
        while budget > 0
            && let Some(&Reverse((due, index))) = self.opening.retries.peek()
            && due <= now
        {
            self.opening.retries.pop();
            self.connect(reactor, index, now);
            budget -= 1;
        }
        let remaining = self.part.count - self.opening.begun;
        if remaining == 0 || self.opening.stopped {
            return;
        }
        let lateness = self.opening.schedule.lateness(now);
        let due = u32::try_from(self.opening.schedule.due(now)).unwrap_or(u32::MAX);
        // A window that opens now and then is as full as one that never does.
        if room < due.min(CONNECTS_PER_TURN) {
            self.totals.window_late = self.totals.window_late.max(lateness);
        } else {
            self.totals.schedule_late = self.totals.schedule_late.max(lateness);
        }
        for _ in 0..due.min(remaining).min(budget) {
            let index = self.opening.begun;
            self.terminals.push(Terminal::new());
            self.opening.begun += 1;
            self.opening.schedule.issue(1);
            self.connect(reactor, index, now);
        }
    }

    /// Begins one attempt.
    fn connect<R: Reactor>(&mut self, reactor: &mut R, index: u32, now: Nanos) {
        let number = self.plan.number(self.part, index);
        let (_, ordinal) = self.plan.target_of(number);
        let target = self.target_index(index);
        let terminal = &mut self.terminals[index as usize];
        terminal.begin_attempt();
        let token = terminal.token(index);
        let destination = self.plan.targets[target].address;
        // Another attempt comes from another address: the port range of the first may be what failed it.
        let source = self
            .plan
            .sources
            .of(ordinal + u64::from(terminal.attempts_before()));
        self.totals.first_attempt.get_or_insert(now);
        if self.is_coming_back(index) {
            self.totals.comeback.attempts += 1;
        }
        match reactor.connect(token, source, destination) {
            Ok(socket) => {
                self.terminals[index as usize].begin_connecting(socket, now);
                self.opening.under_way += 1;
                self.opening.connecting.push_back((now.ticks(), token));
            }
            Err(error) => {
                let failure = error
                    .raw_os_error()
                    .map_or(Failure::System(0), Failure::of_connect);
                self.retry_or_give_up(index, failure, now);
            }
        }
    }

    pub(super) fn handle_connected<R: Reactor>(
        &mut self,
        reactor: &mut R,
        token: Token,
        now: Nanos,
    ) {
        let Some(index) = self.current(token) else {
            return;
        };
        if self.terminals[index].phase != Phase::Connecting {
            return;
        }
        if self.http.is_some() {
            return self.begin_exchange(reactor, token, now);
        }
        if self.plan.framing.is_some() {
            return self.begin_stream(reactor, token, now);
        }
        let number = self.plan.number(self.part, token.index);
        let key = self.plan.key(number, token.generation);
        let target = self.target_index(token.index);
        let terminal = &mut self.terminals[index];
        terminal.phase = Phase::Upgrading;
        self.totals.tcp_connected += 1;
        let plan = &self.plan;
        let path = plan.own_path(target, number);
        let target = &plan.targets[target];
        let offer = match plan.extension {
            Extension::None => None,
            Extension::Deflate => Some(DEFLATE_OFFER),
        };
        let encoding = plan.session.as_ref().map(|session| session.encoding);
        let subprotocol = (encoding == Some(Encoding::Protobuf)).then_some(PROTOBUF_OFFER);
        let own: Vec<_> = plan.own_headers(number).collect();
        let headers: Vec<(&str, &str)> = own
            .iter()
            .map(|(name, value)| (*name, &**value))
            .chain(offer)
            .chain(subprotocol)
            .collect();
        self.outbox.push(token.index, token.generation, |out| {
            myriad_wire::handshake::write_request(out, &target.host, &path, &key, &headers);
        });
        reactor.register(terminal.socket(), token);
        self.opening.await_answer(token, now);
    }

    pub(super) fn handle_connect_failed(&mut self, token: Token, errno: i32, now: Nanos) {
        let Some(index) = self.current(token) else {
            return;
        };
        if self.terminals[index].phase == Phase::Connecting {
            self.opening.note_ended();
            self.retry_or_give_up(token.index, Failure::of_connect(errno), now);
        }
    }

    /// Notes that an attempt succeeded: a terminal was upgraded, and has its session if there is to be one.
    pub(super) fn note_opened(&mut self, index: usize, now: Nanos) {
        self.begin_sequences(index);
        let terminal = &mut self.terminals[index];
        terminal.phase = Phase::Open;
        let last_attempt = std::mem::replace(&mut terminal.waiting_since, Ticks(0));
        let index = u32::try_from(index).expect("terminals are at most 2^32");
        self.opening.note_ended();
        self.opening.window.note_success();
        let failed = match self.is_polling() {
            // A poll is open before its server has answered: failures in a row go on until then.
            true => self.opening.failed.get(&index).copied(),
            false => self.opening.failed.remove(&index),
        };
        let since = failed.map_or(last_attempt, |failed| failed.since);
        let setup_time = now.ticks().since(since);
        self.note_open(index, true);
        self.note_newcomer(index);
        if self.note_back(index, now) {
            return;
        }
        if self.churn.as_ref().is_some_and(Churn::is_begun) {
            if let Some(membership) = &mut self.membership {
                membership.note_joined(index);
            }
            self.totals.reconnected += 1;
        } else {
            self.notes.setup_times.push(setup_time);
            self.totals.opened += 1;
            self.totals.last_opened = Some(now);
        }
    }

    /// Ends an attempt whose socket is still ours.
    pub(super) fn fail_attempt<R: Reactor>(
        &mut self,
        reactor: &mut R,
        index: usize,
        failure: Failure,
        now: Nanos,
    ) {
        self.release(reactor, index, Close::Reset);
        self.retry_or_give_up(
            u32::try_from(index).expect("terminals are at most 2^32"),
            failure,
            now,
        );
    }

    fn retry_or_give_up(&mut self, index: u32, failure: Failure, now: Nanos) {
        self.note_failure(failure);
        if self.retry_comeback(index, failure, now) {
            return;
        }
        let terminal = &mut self.terminals[index as usize];
        // One that never got a socket has not begun to wait.
        let since = match terminal.phase {
            Phase::Waiting => now.ticks(),
            _ => terminal.waiting_since,
        };
        let first = Failed { since, times: 0 };
        let failed = self.opening.failed.entry(index).or_insert(first);
        failed.times += 1;
        if failed.times > self.plan.retries || self.opening.stopped {
            terminal.phase = Phase::Ended;
            self.opening.failed.remove(&index);
            if self.give_up_reopening(index as usize) {
                self.totals.lost += 1;
                self.come_back_if_lost(index as usize, now);
            } else if self.is_replacing() {
                self.totals.replacements_given_up += 1;
            } else {
                self.totals.given_up += 1;
            }
            return;
        }
        terminal.phase = Phase::Waiting;
        let wait = RETRY_AFTER * (1 << (failed.times - 1).min(5));
        // Up to a quarter more, so that what failed together does not come back together.
        let jitter = wait.mul_f64(f64::from(self.random.mask()[0]) / 1024.0);
        self.opening
            .retries
            .push(Reverse((now.plus(wait + jitter), index)));
    }

    /// Ends attempts that have waited for too long.
    pub(super) fn expire_attempts<R: Reactor>(&mut self, reactor: &mut R, now: Nanos) {
        let (connect, handshake) = (self.plan.connect_timeout, self.plan.handshake_timeout);
        while let Some(&(since, token)) = self.opening.connecting.front() {
            let waiting = self.attempt_in(token, |phase| phase == Phase::Connecting);
            if waiting.is_some() && now.ticks().since(since) < connect {
                break;
            }
            self.opening.connecting.pop_front();
            if let Some(index) = waiting {
                let failure = if reactor.is_handshaking(self.terminals[index].socket()) {
                    let age = now.ticks().since(self.terminals[index].waiting_since);
                    self.opening.window.note_timeout(now, age);
                    Failure::Tls(TlsFailure::Timeout)
                } else {
                    // The window stays: the server has not seen these. TCP has its own way to send less often.
                    Failure::ConnectTimeout
                };
                self.fail_attempt(reactor, index, failure, now);
            }
        }
        while let Some(&(since, token)) = self.opening.upgrading.front() {
            let waiting = self.attempt_in(token, |phase| {
                matches!(phase, Phase::Upgrading | Phase::Joining)
            });
            if waiting.is_some() && now.ticks().since(since) < handshake {
                break;
            }
            self.opening.upgrading.pop_front();
            if let Some(index) = waiting {
                let age = now.ticks().since(self.terminals[index].waiting_since);
                self.opening.window.note_timeout(now, age);
                if self.terminals[index].phase == Phase::Joining {
                    let said = self.misheard(token.index);
                    self.keep_example(Failure::SessionTimeout, &said);
                    self.fail_attempt(reactor, index, Failure::SessionTimeout, now);
                } else {
                    self.fail_upgrade(reactor, index, Failure::HandshakeTimeout, now);
                }
            }
        }
    }

    fn attempt_in(&self, token: Token, wanted: impl Fn(Phase) -> bool) -> Option<usize> {
        self.current(token)
            .filter(|&index| wanted(self.terminals[index].phase))
    }
}
