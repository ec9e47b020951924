//! Draining: connections are closed evenly over a window, so that clients do not reconnect all at once. A client that waits for the
//! answer to a command, such as the place of its publication, gets it first, also if it reads slowly, unless the window ends before.
//! It is closed in the turn that sends the last answer: no command is read in between, so none is carried out without an answer.
//! Changes `admission`; closes connections by the methods of `closing`.

use crate::marks::{Happening, hit};
use crate::shard::Shard;
use crate::transport::Refused;
use myriad_hub::{CloseReason, Hub, Now, Phase};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use std::collections::VecDeque;
use std::time::Duration;

/// How far a drain is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Connections are closed as their turn comes. Newcomers are answered 503.
    Window,
    /// One turn more, so that answers of the last one leave. Everybody is closed in it.
    LastAnswers,
    /// Nobody is accepted, and only those that are being closed are left. Since this time.
    Over(Now),
}

/// A drain under way.
#[derive(Debug)]
pub(crate) struct Drain {
    began: Now,
    over: Duration,
    /// [`Settings::drain_linger`].
    ///
    /// [`Settings::drain_linger`]: crate::Settings::drain_linger
    linger: Duration,
    /// Connections to close, as of the beginning; later ones are answered 503.
    indices: Vec<u32>,
    /// How many have had their turn: they are closed, or in one of the lists below.
    closed: usize,
    /// Clients whose turn has come, and who wait for answers, or have not taken those that are queued for them.
    waiting: VecDeque<Key>,
    /// Clients who wait for none any more. If the flush of this turn empties their queues, they are closed behind it. Empty between turns.
    answered: Vec<Key>,
    stage: Stage,
}

impl Drain {
    pub(crate) fn new(over: Duration, linger: Duration, now: Now, hub: &Hub) -> Self {
        Self {
            began: now,
            over,
            linger,
            indices: hub.connection_indices().collect(),
            closed: 0,
            waiting: VecDeque::new(),
            answered: Vec::new(),
            stage: Stage::Window,
        }
    }

    /// How many should have been closed by now.
    fn due(&self, now: Now) -> usize {
        let elapsed = u128::from(now.0.saturating_sub(self.began.0));
        let over = self.over.as_nanos().max(1);
        (self.indices.len() as u128 * elapsed.min(over)).div_ceil(over) as usize
    }

    /// True if more closes are due than the last turn could make, with so many connections left.
    pub(crate) fn is_overdue(&self, connections: usize, now: Now) -> bool {
        self.closed < self.due(now)
            || self.stage == Stage::LastAnswers
            || self.has_lingered(now) && connections > 0
    }

    /// True when the window is over, and only those that are being closed are left.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over(_))
    }

    /// True when those who are left have had their time to end their side.
    fn has_lingered(&self, now: Now) -> bool {
        matches!(self.stage, Stage::Over(since) if now >= later(since, self.linger))
    }

    /// True if clients whose turn has come may still have answers to take.
    fn is_awaited(&self) -> bool {
        !self.waiting.is_empty() || !self.answered.is_empty()
    }

    fn ends(&self) -> Now {
        later(self.began, self.over)
    }
}

fn later(now: Now, by: Duration) -> Now {
    let by_ns = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
    Now(now.0.saturating_add(by_ns))
}

impl<R: Reactor> Shard<R> {
    /// Closes what is due; true when the drain is over and nothing is left.
    pub(crate) fn poll_drain(&mut self, now: Now) -> bool {
        let Some(mut drain) = self.admission.drain.take() else {
            return false;
        };
        self.hub
            .end_lingering(now, true, &mut self.turn_end.emptied_channels);
        self.note_answered(&mut drain);
        self.drain_due(&mut drain, now);
        self.end_window_if_due(&mut drain, now);
        let is_over = drain.is_over();
        let has_lingered = drain.has_lingered(now);
        self.admission.drain = Some(drain);
        let is_empty = self.hub.connection_count() == 0;
        if has_lingered {
            self.reset_last(now);
            self.reactor.reset_others();
        }
        // Whose last bytes have not left hears of no end if the reactor ends now.
        let has_others = is_over && is_empty && self.reactor.has_others();
        hit!(DrainOthers if has_others);
        is_over && is_empty && !has_others
    }

    /// Resets some of those who neither read nor end their side: nobody may put off the end of the process.
    fn reset_last(&mut self, now: Now) {
        let indices = self.hub.connection_indices().take(self.settings.slice_max);
        let left: Vec<Key> = indices.filter_map(|index| self.hub.key_of(index)).collect();
        hit!(DrainReset if !left.is_empty());
        for key in left {
            self.reset(key, CloseReason::Drain, now);
        }
    }

    /// Comes to the connections whose turn it is: closes them, or notes that their clients have their answers first.
    fn drain_due(&mut self, drain: &mut Drain, now: Now) {
        let due = drain.due(now).min(drain.closed + self.settings.slice_max);
        for nth in drain.closed..due {
            let index = drain.indices[nth];
            // The index may name a later connection by now. It is closed too: the drain waits for all to end.
            let key = self.hub.key_of(index);
            if let Some(key) = key.filter(|key| self.hub.contains(*key)) {
                let is_later = self.hub.connection(index).opened > drain.began.tick();
                hit!(DrainReused if is_later);
                if self.waits_for_answer(key) {
                    drain.waiting.push_back(key);
                } else if self.hub.connection(index).has_session() {
                    drain.answered.push(key);
                } else {
                    self.drain_connection(index, now);
                }
            } else {
                hit!(DrainGone);
            }
        }
        hit!(DrainOverdue if due < drain.due(now));
        drain.closed = drain.closed.max(due);
    }

    /// Closes everybody who is left once the window is over, or once no shard has anybody.
    fn end_window_if_due(&mut self, drain: &mut Drain, now: Now) {
        if drain.is_over() {
            return;
        }
        let is_time_up = drain.closed == drain.indices.len() && now >= drain.ends();
        if !self.is_alone() {
            if !is_time_up {
                return;
            }
            if drain.stage == Stage::Window && drain.is_awaited() {
                // A close would drop answers that have come in this turn. One turn more lets them leave; no reader makes it two.
                hit!(DrainLastAnswers);
                drain.stage = Stage::LastAnswers;
                return;
            }
        }
        // Stop accepting last: until here new connections were answered 503.
        drain.stage = Stage::Over(now);
        drain.waiting.clear();
        drain.answered.clear();
        self.reactor.accept(false);
        let late: Vec<u32> = self.hub.connection_indices().collect();
        hit!(DrainLate if !late.is_empty());
        for index in late {
            self.drain_connection(index, now);
        }
    }

    /// Looks who of those that wait has been answered.
    fn note_answered(&self, drain: &mut Drain) {
        debug_assert!(drain.answered.is_empty(), "a turn comes to all of them");
        for _ in 0..drain.waiting.len().min(self.settings.slice_max) {
            let Some(key) = drain.waiting.pop_front() else {
                return;
            };
            if self.waits_for_answer(key) {
                drain.waiting.push_back(key);
            } else {
                drain.answered.push(key);
            }
        }
    }

    /// Behind the flush: closes clients who have taken all their answers. The others go on waiting.
    ///
    /// Before the flush, what came in this turn would look like a backlog, and a client that sends something in each turn would stay to
    /// the end of the window. In the next turn it would be too late: a client that has its answer may send a command at once, and that
    /// would be carried out before the close. The close frame leaves in the next turn. What the client sends meanwhile is ignored.
    pub(crate) fn close_answered(&mut self, now: Now) {
        let Some(mut drain) = self.admission.drain.take() else {
            return;
        };
        for key in drain.answered.drain(..) {
            if has_backlog(&self.hub, key) {
                hit!(DrainBacklog);
                drain.waiting.push_back(key);
            } else if self.hub.contains(key) {
                self.drain_connection(key.index, now);
            }
        }
        self.admission.drain = Some(drain);
    }

    /// Whether an open connection is that of a client with a command that is not answered.
    fn waits_for_answer(&self, key: Key) -> bool {
        if !self.hub.contains(key) {
            return false;
        }
        let connection = self.hub.connection(key.index);
        let is_open = connection.phase == Phase::Open;
        is_open && connection.has_session() && self.hub.session(key.index).tickets_open > 0
    }

    fn drain_connection(&mut self, index: u32, now: Now) {
        self.note_happening(index, Happening::Drained);
        match self.hub.connection(index).phase {
            Phase::Open => self.close_index(index, CloseReason::Drain, now),
            Phase::Handshake if self.is_between_requests(index) => {
                if let Some(key) = self.hub.key_of(index) {
                    self.close_after_queue(key, CloseReason::Drain, now);
                }
            }
            Phase::Handshake | Phase::Joining => {
                self.refuse_index(index, Refused::draining(), now);
            }
            Phase::Closing => {}
        }
    }

    /// Whether a connection has had its answer, and has not begun another request: there is nothing to answer.
    fn is_between_requests(&self, index: u32) -> bool {
        let connection = self.hub.connection(index);
        connection.is_kept_alive() && !connection.has_input()
    }

    /// True when no shard has a connection: there is nobody to wait for, and nobody to say 503 to.
    fn is_alone(&self) -> bool {
        let others = self.mesh.metrics().iter().enumerate();
        let mut others = others.filter(|(index, _)| *index != self.index);
        self.hub.connection_count() == 0 && others.all(|(_, shard)| shard.connections.value() == 0)
    }
}

/// Whether the kernel has not taken all that is queued for an open connection.
fn has_backlog(hub: &Hub, key: Key) -> bool {
    if !hub.contains(key) {
        return false;
    }
    let connection = hub.connection(key.index);
    connection.phase == Phase::Open && connection.has_outbound()
}
