//! Timers: each connection has one, armed for the earliest of its deadlines.

use crate::connection::{Connection, Transport};
use crate::marks::hit;
use crate::time::ticks;
use crate::{Hub, NEVER, Now, Phase, SessionState};
use myriad_wheel::Tick;
use std::time::Duration;

/// The intervals of a shard's connections, in ticks; zero means never.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    pub(crate) handshake: u32,
    pub(crate) ping_interval: u32,
    pong: u32,
    idle: u32,
    pub(crate) linger: u32,
    stale: u32,
    pub(crate) stall: u32,
}

impl Timing {
    /// From durations, rounded up to ticks. `ping_interval` and `idle` may be zero: never. A pong is awaited until the
    /// next ping at the latest. A client has `stale` to send its connect command.
    #[must_use]
    pub fn new(
        handshake: Duration,
        ping_interval: Duration,
        pong: Duration,
        idle: Duration,
        linger: Duration,
        stale: Duration,
    ) -> Self {
        Self {
            handshake: ticks(handshake),
            ping_interval: ticks(ping_interval),
            pong: ticks(pong).clamp(1, ticks(ping_interval).max(1)),
            idle: ticks(idle),
            linger: ticks(linger).max(1),
            stale: ticks(stale).max(1),
            stall: 0,
        }
    }

    /// With the time in which the kernel must take something of what is queued for a client; zero means for ever.
    #[must_use]
    pub fn with_stall(self, stall: Duration) -> Self {
        Self {
            stall: ticks(stall),
            ..self
        }
    }
}

/// Connections that ping in the same tick: neighbours in the slab. Their records lie side by side, and so do most of their
/// sockets in the kernel. A million idle connections cost two thirds of the CPU that they cost when each pings at a time of
/// its own (`docs/adr/0012-neighbours-ping-together.md`).
const NEIGHBOURS: u32 = 256;

/// The part of an interval by which a connection whose ping was late comes back to its phase with each ping.
const CATCH_UP: u32 = 8;

/// 2^32 divided by the golden ratio.
pub(crate) const GOLDEN_SECTION: u32 = 0x9e37_79b9;

/// How long past its deadline a silent peer is kept while the shard has a backlog of unread input. Bounded, so that dead
/// peers are closed on a shard that never catches up, too.
const DOUBT_MAX: Duration = Duration::from_secs(30);

/// Whether a shard has read what its peers sent.
///
/// On a busy shard the pongs of thousands of clients may wait unread in the kernel. Judged by the clock alone, those clients
/// would be closed although only the shard is late.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InputBacklog {
    /// When the backlog began: what came earlier has been read. `None` while there is no backlog.
    since: Option<Tick>,
    /// The turn that found the backlog. The process may have been stopped for long between the two.
    found_at: Tick,
    /// When the last look at the sockets began.
    looked_at: Tick,
}

impl InputBacklog {
    pub(crate) fn new(now: Now) -> Self {
        Self {
            since: None,
            found_at: now.tick(),
            // Nobody is doubted before somebody has said when it looked.
            looked_at: NEVER,
        }
    }

    fn note(&mut self, has_unread: bool, looked_at: Tick, now: Tick) {
        if has_unread && self.since.is_none() {
            self.since = Some(self.looked_at.min(looked_at));
            self.found_at = now;
        } else if !has_unread {
            self.since = None;
        }
        self.looked_at = looked_at;
    }

    /// True if input that came before `deadline` may still be unread: because nobody has looked since, or because of a backlog that
    /// was found less than [`DOUBT_MAX`] ago, or less than that after `deadline`.
    ///
    /// A process that is stopped (SIGSTOP, a suspended machine) between its look at the sockets and its look at the clock finds
    /// deadlines over that it has heard nothing of.
    fn doubts(&self, deadline: Tick, now: Tick) -> bool {
        let doubted_until = after(deadline.max(self.found_at), ticks(DOUBT_MAX));
        self.looked_at < deadline
            || self.since.is_some_and(|since| since < deadline) && now < doubted_until
    }
}

/// What a connection's deadline asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// The request head did not come in time.
    HandshakeTimeout,
    /// The homes of its channels did not answer in time.
    JoinTimeout,
    /// Send a ping. The pong is awaited from now on.
    Ping,
    /// The ping was not answered.
    PongTimeout,
    /// Nothing came for the idle timeout.
    Idle,
    /// Bytes are queued for it, and the kernel took none of them for the stall timeout.
    Stalled,
    /// The peer did not end its side of a closed connection in time.
    LingerTimeout,
    /// A held request has waited for as long as it may: it is answered without data.
    PollOver,
    /// A stream of events has lasted for as long as it may.
    EventsOver,
    /// The token of a stream of events is over.
    EventsExpired,
    /// No other request came on a connection whose last one was answered.
    KeepAliveOver,
    /// The client did not send its connect command in time. Or it was refused, and has had the time to read that.
    Stale,
    /// The connection, or one of its subscriptions, has expired. It is due again in each tick until that is later.
    Expired,
}

pub(crate) fn after(tick: Tick, ticks: u32) -> Tick {
    Tick(tick.0.saturating_add(ticks))
}

/// When in an interval of `ticks` a connection pings: its phase, from 0 to just below `ticks`.
///
/// Each block of [`NEIGHBOURS`] shares one phase. The phases of two successive blocks are a golden section of the interval
/// apart, which spreads any number of blocks evenly.
fn ping_phase(spread_from: u32, index: u32, ticks: u32) -> u32 {
    let block = index / NEIGHBOURS;
    let phase = spread_from.wrapping_add(block.wrapping_mul(GOLDEN_SECTION));
    u32::try_from((u64::from(phase) * u64::from(ticks)) >> u32::BITS).expect("less than ticks")
}

impl Hub {
    /// Moves time forward and appends what is due, at most `max` connections; true when more are due now.
    pub fn poll_due(&mut self, now: Now, max: usize, due: &mut Vec<(u32, Due)>) -> bool {
        self.fired.clear();
        let more = self
            .wheel
            .advance(&mut self.connections, now.tick(), max, &mut self.fired);
        let fired = std::mem::take(&mut self.fired);
        for &index in &fired {
            if let Some(what) = self.handle_deadline(index, now.tick()) {
                due.push((index, what));
            } else {
                self.watch_progress(index);
            }
        }
        self.fired = fired;
        hit!(DueInSlices if more);
        more
    }

    /// Notes in each turn when the reactor's look at the sockets began, and whether it left some input unread. Only a look after a
    /// deadline that left nothing shows that a peer is late.
    pub fn note_input_backlog(&mut self, has_unread: bool, looked_at: Now, now: Now) {
        self.input_backlog
            .note(has_unread, looked_at.tick(), now.tick());
    }

    /// Whether the reactor has looked at the sockets since `deadline`. If not, the connection's timer is armed for the next tick.
    pub(crate) fn has_looked_since(&mut self, index: u32, deadline: Tick, now: Tick) -> bool {
        let looked = self.input_backlog.looked_at >= deadline;
        if !looked {
            hit!(LateUnheard);
            self.wheel.arm(&mut self.connections, index, after(now, 1));
        }
        looked
    }

    /// Gives a connection whose head is late the time for which its peer has waited for this side. False if that is over, too.
    #[must_use]
    pub fn extend_handshake(&mut self, index: u32, held_up: Duration, now: Now) -> bool {
        let connection = &self.connections[index];
        let deadline = after(connection.opened, self.timing.handshake);
        let deadline = after(deadline, ticks(held_up));
        let is_first = connection.phase == Phase::Handshake && !connection.is_kept_alive();
        let is_extended = is_first && deadline > now.tick();
        if is_extended {
            self.wheel.arm(&mut self.connections, index, deadline);
        }
        is_extended
    }

    /// Whether a peer is late that sent nothing we read by `deadline`. While a backlog leaves that open, its timer is armed
    /// for the next tick.
    pub(crate) fn is_late(&mut self, index: u32, deadline: Tick, now: Tick) -> bool {
        let doubted = self.input_backlog.doubts(deadline, now);
        if doubted {
            hit!(LateDoubted);
            self.wheel.arm(&mut self.connections, index, after(now, 1));
        } else {
            hit!(LateDespiteBacklog if self.input_backlog.since.is_some());
        }
        !doubted
    }

    /// The earliest tick at which [`Hub::poll_due`] or [`Hub::begin_deliveries`] may have something, or a tick before it.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Tick> {
        let deadlines = [
            self.wheel.next_deadline(),
            self.next_resumption(),
            self.next_linger_end(),
        ];
        deadlines.into_iter().flatten().min()
    }

    pub(crate) fn arm_handshake(&mut self, index: u32) {
        let deadline = after(self.connections[index].opened, self.timing.handshake);
        self.wheel.arm(&mut self.connections, index, deadline);
    }

    /// The request is whole and the homes of its channels are asked. They have as long to answer as the head had to arrive.
    pub fn begin_joining(&mut self, index: u32, now: Now) {
        self.connections[index].phase = Phase::Joining;
        let deadline = after(now.tick(), self.timing.handshake);
        self.wheel.arm(&mut self.connections, index, deadline);
    }

    pub(crate) fn arm_linger(&mut self, index: u32, now: Now) {
        self.wheel.arm(
            &mut self.connections,
            index,
            after(now.tick(), self.timing.linger),
        );
    }

    /// The next tick after `now` at which a connection's phase comes. Without pings (an interval of zero) it is `now`, and nobody uses it.
    ///
    /// Connections made together do not ping together. Neighbours in the slab do, whenever they were made.
    pub(crate) fn first_ping(&self, index: u32, now: Tick) -> Tick {
        let interval = self.timing.ping_interval;
        after(now, interval - self.past_phase(index, now))
    }

    /// When the ping after one at `pinged_at` is due: an interval later, or up to [`CATCH_UP`] of an interval sooner, so that a connection
    /// comes back to its phase.
    ///
    /// Pings that a busy shard sent late together would otherwise stay together in all later intervals. They do not come back at once: where
    /// pings alone keep a machine busy, their lateness is what lets it recover (`docs/adr/0012-neighbours-ping-together.md`).
    pub(crate) fn next_ping(&self, index: u32, pinged_at: Tick) -> Tick {
        let interval = self.timing.ping_interval;
        let late = self.past_phase(index, pinged_at);
        after(pinged_at, interval - late.min(interval / CATCH_UP))
    }

    /// As [`Hub::next_ping`], for a client that has answered.
    fn next_ping_behind_pong(&self, index: u32, pinged_at: Tick) -> Tick {
        // Where the pong may take nearly an interval, the next ping would come before it.
        let behind_pong = after(pinged_at, self.timing.pong + 1);
        self.next_ping(index, pinged_at).max(behind_pong)
    }

    /// Ticks since a connection's phase last came, fewer than an interval.
    fn past_phase(&self, index: u32, now: Tick) -> u32 {
        let interval = self.timing.ping_interval;
        if interval == 0 {
            return 0;
        }
        let phase = ping_phase(self.spread_from, index, interval);
        let past = now.0 % interval;
        match past.checked_sub(phase) {
            Some(late) => late,
            None => interval - (phase - past),
        }
    }

    /// Arms a connection that opens for its first ping.
    ///
    /// A client that has not connected yet gets no pings. It has the stale timeout to send its connect command.
    pub(crate) fn arm_open(&mut self, index: u32, now: Now) {
        if self.is_stranger(index) {
            let deadline = after(now.tick(), self.timing.stale);
            self.connections[index].ping_at = deadline;
            self.wheel.arm(&mut self.connections, index, deadline);
            return;
        }
        self.connections[index].ping_at = self.first_ping(index, now.tick());
        self.rearm_open(index, now.tick());
    }

    /// A client is refused: it has so long to read the answer and go.
    pub fn arm_refused(&mut self, index: u32, time: Duration, now: Now) {
        self.session_mut(index).state = SessionState::Refused;
        let deadline = now.tick_after(time);
        self.connections[index].ping_at = deadline;
        self.wheel.arm(&mut self.connections, index, deadline);
    }

    /// When a connection expires; [`NEVER`] for never. Its other deadlines stay.
    pub fn set_expiry(&mut self, index: u32, deadline: Tick, now: Now) {
        self.session_mut(index).expires_at = deadline;
        self.rearm_connected(index, now);
    }

    /// When the first of a connection's subscriptions expires, or a tick before; [`NEVER`] for never.
    pub fn set_subscription_expiry(&mut self, index: u32, deadline: Tick, now: Now) {
        self.session_mut(index).subscription_expires_at = deadline;
        self.rearm_connected(index, now);
    }

    /// A client that has not connected has one deadline, which is not to be moved.
    fn rearm_connected(&mut self, index: u32, now: Now) {
        if self.connections[index].phase == Phase::Open && !self.is_stranger(index) {
            self.rearm_open(index, now.tick());
        }
    }

    /// Arms an open connection for the earliest of its ping (or pong), its idle deadline and its expiry.
    fn rearm_open(&mut self, index: u32, now: Tick) {
        let timing = self.timing;
        let connection = &self.connections[index];
        if connection.transport() == Transport::Events {
            return self.rearm_events(index, now);
        }
        let ping = (timing.ping_interval > 0).then_some(connection.ping_at);
        let may_be_idle = timing.idle > 0 && connection.transport().answers_pings();
        let idle = may_be_idle.then(|| after(connection.last_input, timing.idle));
        let expiry = connection
            .session()
            .map(|session| self.sessions[session].next_expiry())
            .filter(|&expiry| expiry != NEVER);
        match ping.into_iter().chain(idle).chain(expiry).min() {
            Some(deadline) => {
                self.wheel
                    .arm(&mut self.connections, index, deadline.max(after(now, 1)))
            }
            None => self.wheel.disarm(&mut self.connections, index),
        }
        self.watch_progress(index);
    }

    fn handle_deadline(&mut self, index: u32, now: Tick) -> Option<Due> {
        if let Some(deadline) = self.stall_deadline(index)
            && deadline <= now
        {
            // Each look hears of all writable sockets. A backlog of input leaves no doubt about them.
            return self.has_looked_since(index, deadline, now).then(|| {
                hit!(Stalled);
                Due::Stalled
            });
        }
        match self.connections[index].phase {
            Phase::Handshake if self.connections[index].is_kept_alive() => {
                self.handle_kept_alive_deadline(index, now)
            }
            Phase::Handshake => {
                let deadline = after(self.connections[index].opened, self.timing.handshake);
                self.is_late(index, deadline, now).then(|| {
                    hit!(HandshakeTimeout);
                    Due::HandshakeTimeout
                })
            }
            Phase::Joining => {
                hit!(JoinTimeout);
                Some(Due::JoinTimeout)
            }
            Phase::Closing => self.handle_closing_deadline(index, now),
            Phase::Open => self.handle_open_deadline(index, now),
        }
    }

    /// Whether a connection has a session that has not connected.
    pub(crate) fn is_stranger(&self, index: u32) -> bool {
        let session = self.connections[index].session();
        session.is_some_and(|session| self.sessions[session].state != SessionState::Connected)
    }

    /// Input only notes its tick. Its effect on the deadlines is computed here, when the timer fires.
    fn handle_open_deadline(&mut self, index: u32, now: Tick) -> Option<Due> {
        if self.connections[index].transport().reads_streams() {
            return self.handle_reader_deadline(index, now);
        }
        if self.is_stranger(index) {
            let deadline = self.connections[index].ping_at;
            if deadline > now {
                self.wheel.arm(&mut self.connections, index, deadline);
                return None;
            }
            return self.is_late(index, deadline, now).then_some(Due::Stale);
        }
        let session = self.connections[index].session();
        if session.is_some_and(|session| self.sessions[session].next_expiry() <= now) {
            self.rearm_open(index, now);
            return Some(Due::Expired);
        }
        let timing = self.timing;
        let last_input = self.connections[index].last_input;
        let idle_at = after(last_input, timing.idle);
        let answers_pings = self.connections[index].transport().answers_pings();
        if answers_pings && timing.idle > 0 && idle_at <= now {
            return self.is_late(index, idle_at, now).then(|| {
                hit!(IdleTimeout);
                Due::Idle
            });
        }
        let mut due = None;
        let ping_at = self.connections[index].ping_at;
        if timing.ping_interval > 0 && ping_at <= now {
            if self.connections[index].is(Connection::AWAITS_PONG) {
                let pinged_at = Tick(ping_at.0.saturating_sub(timing.pong));
                if last_input < pinged_at {
                    return self.is_late(index, ping_at, now).then(|| {
                        hit!(PongTimeout);
                        Due::PongTimeout
                    });
                }
                hit!(PongInTime);
                let next = self.next_ping_behind_pong(index, pinged_at);
                let connection = &mut self.connections[index];
                connection.set(Connection::AWAITS_PONG, false);
                connection.ping_at = next;
            } else {
                let next = if answers_pings {
                    after(now, timing.pong)
                } else {
                    self.next_ping(index, now)
                };
                let connection = &mut self.connections[index];
                connection.set(Connection::AWAITS_PONG, answers_pings);
                connection.ping_at = next;
                hit!(Ping);
                due = Some(Due::Ping);
                self.note_ping(index);
            }
        }
        self.rearm_open(index, now);
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Over any number of blocks and from any beginning, no tenth of the interval has more than its share and three.
    #[test]
    fn blocks_of_neighbours_are_spread_evenly() {
        let interval = 500;
        for spread_from in [0, 1, 0x8000_0000, u32::MAX, 0x1234_5678] {
            let mut blocks_in_tenth = [0_u32; 10];
            for block in 0..4000 {
                let phase = ping_phase(spread_from, block * NEIGHBOURS, interval);
                let last = block * NEIGHBOURS + NEIGHBOURS - 1;
                assert_eq!(ping_phase(spread_from, last, interval), phase);
                blocks_in_tenth[(phase * 10 / interval) as usize] += 1;
                let most = blocks_in_tenth.iter().max().unwrap();
                assert!(
                    *most <= (block + 1) / 10 + 3,
                    "{block}: {blocks_in_tenth:?}"
                );
            }
        }
    }

    #[test]
    fn a_phase_is_within_the_interval() {
        for ticks in [1, 2, 20, u32::MAX] {
            for index in [0, NEIGHBOURS, u32::MAX] {
                assert!(ping_phase(u32::MAX, index, ticks) < ticks);
            }
        }
    }
}
