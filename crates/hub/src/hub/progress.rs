//! Time-outs on progress: a client has to take what is queued for it.
//!
//! They run from when the kernel took something last, and not from when it was queued: a slow client gets all of a long answer.
//! Only a connection with a queue has them, and its queue remembers the time. An idle connection pays nothing.

use super::Hub;
use crate::marks::hit;
use crate::timers::{Due, after};
use crate::{Now, Phase};
use myriad_wheel::{Tick, Timed};

impl Hub {
    /// The socket of a connection is full. Something of its queue has to leave within the stall timeout.
    pub fn await_writable(&mut self, index: u32) {
        self.connections[index].set_awaits_writable(true);
        self.watch_progress(index);
    }

    /// Everything is written to a connection that ends. From now on its peer has the linger timeout to end its side; during a drain it
    /// has that from when the end began.
    pub fn begin_linger(&mut self, index: u32, now: Now) {
        debug_assert!(!self.connections[index].has_outbound());
        if !self.is_draining {
            self.arm_linger(index, now);
        }
    }

    /// Closing connections are not given more time while they take what is queued: the server ends.
    pub fn begin_drain(&mut self) {
        self.is_draining = true;
    }

    /// Arms the timer of a connection whose socket is full for the end of the stall timeout, unless it is due before that.
    pub(crate) fn watch_progress(&mut self, index: u32) {
        let Some(deadline) = self.stall_deadline(index) else {
            return;
        };
        let timer = self.connections[index].timer();
        if !timer.is_armed() || timer.deadline() > deadline {
            let deadline = deadline.max(after(self.turn_tick, 1));
            self.wheel.arm(&mut self.connections, index, deadline);
        }
    }

    /// When a connection is stalled if the kernel takes nothing more. None where nothing waits for the socket, or where another
    /// time-out bounds that: in the handshake, and at the end.
    pub(crate) fn stall_deadline(&self, index: u32) -> Option<Tick> {
        let connection = &self.connections[index];
        let is_watched = connection.phase == Phase::Open || connection.is_kept_alive();
        if self.timing.stall == 0 || !connection.awaits_writable() || !is_watched {
            return None;
        }
        let progressed_at = self.outbound(index)?.progressed_at();
        Some(after(progressed_at, self.timing.stall))
    }

    /// A connection that ends has lingered since something of its queue left, or since its end began.
    pub(crate) fn handle_closing_deadline(&mut self, index: u32, now: Tick) -> Option<Due> {
        if let Some(outbound) = self.outbound(index) {
            let deadline = after(outbound.progressed_at(), self.timing.linger);
            if deadline > now && !self.is_draining {
                hit!(LingerOfSlowPeer);
                self.wheel.arm(&mut self.connections, index, deadline);
                return None;
            }
        }
        hit!(LingerTimeout);
        Some(Due::LingerTimeout)
    }
}

#[cfg(test)]
mod tests {
    use super::{Hub, Now};
    use crate::{Chunk, Due, Lease, Pool, Timing, Transport};
    use std::time::Duration;

    const SECOND: u64 = 1_000_000_000;
    const STALL_S: u64 = 30;
    const LINGER_S: u64 = 5;

    fn hub(ping_s: u64, stall_s: u64) -> Hub {
        let s = Duration::from_secs;
        let timing = Timing::new(s(10), s(ping_s), s(10), s(0), s(LINGER_S), s(10));
        let buffered = Lease::new(Pool::new(1 << 20), 100);
        Hub::new(timing.with_stall(s(stall_s)), 1000, buffered, 7, Now(0))
    }

    /// A connection whose socket is full, with ten bytes queued.
    fn backpressured(hub: &mut Hub, transport: Transport) -> u32 {
        let index = hub.open(0, Now(0)).index;
        hub.connection_mut(index).set_transport(transport);
        hub.admit(index, Now(0));
        fill(hub, index);
        index
    }

    fn fill(hub: &mut Hub, index: u32) {
        let chunk = Chunk::Owned([7; 10].into());
        hub.enqueue(index, chunk).expect("room");
        hub.poll_flush(&mut Vec::new());
        hub.await_writable(index);
    }

    /// What is due in these seconds, and in which.
    fn due_in(
        hub: &mut Hub,
        seconds: std::ops::Range<u64>,
        mut at: impl FnMut(&mut Hub, u64),
    ) -> Vec<(u64, Due)> {
        let mut seen = Vec::new();
        for second in seconds {
            let now = Now(second * SECOND);
            hub.begin_turn(now.tick());
            at(hub, second);
            let mut due = Vec::new();
            while hub.poll_due(now, 1, &mut due) {}
            seen.extend(due.into_iter().map(|(_, what)| (second, what)));
            hub.check();
        }
        seen
    }

    #[test]
    fn a_client_that_takes_nothing_is_stalled() {
        let mut hub = hub(0, STALL_S);
        backpressured(&mut hub, Transport::Raw);
        assert_eq!(
            due_in(&mut hub, 0..31, |_, _| {}),
            [(STALL_S, Due::Stalled)]
        );
    }

    #[test]
    fn pings_neither_delay_nor_are_delayed() {
        let mut hub = hub(25, STALL_S);
        backpressured(&mut hub, Transport::UniSse);
        let seen = due_in(&mut hub, 0..61, |_, _| {});
        let stalled: Vec<u64> = seen
            .iter()
            .filter(|(_, due)| *due == Due::Stalled)
            .map(|(second, _)| *second)
            .collect();
        assert_eq!(stalled, [STALL_S], "{seen:?}");
        assert!(seen.iter().any(|(_, due)| *due == Due::Ping), "{seen:?}");
    }

    #[test]
    fn each_byte_begins_the_time_anew_and_an_empty_queue_ends_it() {
        let mut hub = hub(0, STALL_S);
        let index = backpressured(&mut hub, Transport::Raw);
        let seen = due_in(&mut hub, 0..200, |hub, second| match second {
            20 | 40 => hub.advance_outbound(index, 4),
            60 => {
                hub.advance_outbound(index, 2);
                hub.connection_mut(index).set_awaits_writable(false);
            }
            100 => fill(hub, index),
            _ => {}
        });
        assert_eq!(seen, [(130, Due::Stalled)]);
    }

    #[test]
    fn without_a_timeout_nobody_is_stalled() {
        let mut hub = hub(0, 0);
        backpressured(&mut hub, Transport::Raw);
        assert_eq!(due_in(&mut hub, 0..500, |_, _| {}), []);
    }

    #[test]
    fn a_closing_connection_lingers_from_its_last_progress() {
        for (is_draining, ends_at) in [(false, 12), (true, 5)] {
            let mut hub = hub(0, STALL_S);
            let index = backpressured(&mut hub, Transport::Raw);
            hub.begin_closing(index, Now(0), &mut Vec::new());
            let seen = due_in(&mut hub, 0..20, |hub, second| {
                if [3, 7].contains(&second) {
                    hub.advance_outbound(index, 1);
                }
                if is_draining && second == 4 {
                    hub.begin_drain();
                }
            });
            assert_eq!(seen, [(ends_at, Due::LingerTimeout)]);
        }
    }

    #[test]
    fn the_peer_has_its_time_once_everything_is_written() {
        let mut hub = hub(0, STALL_S);
        let index = backpressured(&mut hub, Transport::Raw);
        hub.begin_closing(index, Now(0), &mut Vec::new());
        let seen = due_in(&mut hub, 0..20, |hub, second| {
            if second == 4 {
                hub.advance_outbound(index, 10);
                hub.begin_linger(index, Now(4 * SECOND));
            }
        });
        assert_eq!(seen, [(9, Due::LingerTimeout)]);
    }

    #[test]
    fn the_time_for_the_next_request_begins_when_the_answer_has_left() {
        let mut hub = hub(0, 0);
        let index = hub.open(0, Now(0)).index;
        hub.end_answer(index, Now(0));
        fill(&mut hub, index);
        let seen = due_in(&mut hub, 0..400, |hub, second| {
            if second == 200 {
                hub.advance_outbound(index, 10);
                hub.begin_keep_alive(index, Now(200 * SECOND));
            }
        });
        assert_eq!(seen, [(275, Due::KeepAliveOver)]);
    }

    #[test]
    fn whoever_does_not_read_his_answer_is_stalled() {
        let mut hub = hub(0, STALL_S);
        let index = hub.open(0, Now(0)).index;
        fill(&mut hub, index);
        hub.end_answer(index, Now(0));
        assert_eq!(
            due_in(&mut hub, 0..31, |_, _| {}),
            [(STALL_S, Due::Stalled)]
        );
    }
}
