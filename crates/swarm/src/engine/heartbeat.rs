//! The schedule of heartbeats, without a timer per terminal.
//!
//! A cursor walks over the terminals once an interval. Each terminal is pinged exactly once an interval,
//! at a phase given by its index, so that a million terminals opened together do not ping together.

use crate::clock::Nanos;
use crate::engine::crowd::World;
use crate::engine::terminal::Phase;
use crate::failure::Failure;
use myriad_units::truncate;
use myriad_wire::ws::{Opcode, encode_frame};
use std::time::Duration;

/// Heartbeats are sent in bursts this far apart, or a tenth of the interval if that is shorter.
const STEP_MAX: Duration = Duration::from_millis(10);

/// Heartbeats of one turn. More wait for the next, so that receiving is never held up for long.
const PER_TURN_MAX: u64 = 1024;

/// The walk of one thread's cursor.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    interval: Duration,
    last: Nanos,
    /// Fractions of a terminal carried over between bursts.
    carried: f64,
    cursor: usize,
}

impl Heartbeat {
    pub(crate) fn new(interval: Duration, now: Nanos) -> Self {
        Self {
            interval,
            last: now,
            carried: 0.0,
            cursor: 0,
        }
    }

    /// How often to look.
    pub(crate) fn step(&self) -> Duration {
        STEP_MAX.min(self.interval / 10)
    }

    /// How many of `count` terminals are due since the last call.
    ///
    /// At most one full walk: after a stall longer than the interval, no terminal pings twice.
    pub(crate) fn due(&mut self, count: usize, now: Nanos) -> u64 {
        #[expect(
            clippy::cast_precision_loss,
            reason = "terminals are far fewer than 2^52"
        )]
        let count = count as f64;
        let walked = now.since(self.last).as_secs_f64() / self.interval.as_secs_f64() * count;
        self.last = now;
        self.carried = (self.carried + walked).min(count);
        let due = truncate(self.carried).min(PER_TURN_MAX);
        #[expect(clippy::cast_precision_loss, reason = "at most PER_TURN_MAX")]
        let taken = due as f64;
        self.carried -= taken;
        due
    }

    /// The next terminal of `count`, which is not zero.
    pub(crate) fn next(&mut self, count: usize) -> usize {
        let index = self.cursor % count;
        self.cursor = index + 1;
        index
    }
}

impl World {
    /// Queues heartbeats that are due.
    pub(super) fn send_heartbeats(&mut self, now: Nanos) {
        let Some(mut heartbeat) = self.heartbeat.take() else {
            return;
        };
        let count = self.terminals.len();
        for _ in 0..heartbeat.due(count, now) {
            let index = heartbeat.next(count);
            if self.terminals[index].phase == Phase::Open {
                self.send_heartbeat(index, now);
            }
        }
        self.heartbeat = Some(heartbeat);
    }

    /// Queues an open terminal's heartbeat: a ping, or what the scenario has in its place.
    fn send_heartbeat(&mut self, index: usize, now: Nanos) {
        let flows = self.plan.flows.as_ref();
        let said = flows.and_then(|flows| flows.heartbeat.as_ref());
        let is_answered = said.is_none_or(|said| said.answer.is_some());
        let is_message = said.is_some();
        let terminal = &mut self.terminals[index];
        let token = terminal.token(u32::try_from(index).expect("terminals are at most 2^32"));
        if is_answered {
            if terminal.waiting_since.0 != 0 {
                self.notes.failures.push(Failure::HeartbeatUnanswered);
            }
            terminal.waiting_since = now.ticks();
            // Zero stands for no heartbeat under way.
            terminal.waiting_since.0 = terminal.waiting_since.0.max(1);
        }
        self.totals.heartbeats_sent += 1;
        if is_message {
            return self.say_heartbeat(token);
        }
        let (stamp, mask) = (terminal.waiting_since.stamp(), self.random.mask());
        self.outbox.push(token.index, token.generation, |out| {
            encode_frame(out, Opcode::Ping, true, Some(mask), &stamp);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_terminal_is_pinged_once_an_interval_and_evenly() {
        let mut heartbeat = Heartbeat::new(Duration::from_secs(25), Nanos(0));
        let mut pings = vec![0; 100];
        let mut burst_max = 0;
        for step in 1..=2500_u64 {
            let due = heartbeat.due(100, Nanos(step * 10_000_000));
            burst_max = burst_max.max(due);
            for _ in 0..due {
                pings[heartbeat.next(100)] += 1;
            }
        }
        assert!(
            pings.iter().all(|&count| (1..=2).contains(&count)),
            "{pings:?}"
        );
        assert!((99..=100).contains(&pings.iter().sum::<u32>()), "{pings:?}");
        assert_eq!(burst_max, 1);
    }

    #[test]
    fn a_long_stall_is_not_made_up_for_twice() {
        let mut heartbeat = Heartbeat::new(Duration::from_secs(1), Nanos(0));
        assert_eq!(heartbeat.due(10, Nanos(60_000_000_000)), 10);
        assert_eq!(heartbeat.due(10, Nanos(60_000_000_000)), 0);
        assert_eq!(heartbeat.due(0, Nanos(90_000_000_000)), 0);
    }
}
