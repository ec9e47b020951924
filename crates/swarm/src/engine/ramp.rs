//! When the next connection is due where a crowd grows along a curve: a ramp, or stages one after the other.
//!
//! The curve is that of the whole crowd. The threads' connections interleave on it: each begins every n-th of the whole.

use crate::clock::Nanos;
use crate::engine::pacing::{Pacing, Share};
use crate::engine::plan::{Part, Plan};
use myriad_units::truncate;
use std::sync::Arc;
use std::time::Duration;

/// Rounding error of a product of floats, in connections. It must not delay one.
const HAIR: f64 = 1e-6;

/// A point of the curve. Between two of them the crowd grows evenly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Knot {
    /// Since the beginning; never before the previous one.
    pub at: Duration,
    /// Connections begun by then; never fewer than before.
    pub count: f64,
}

/// The schedule of one thread's connections.
#[derive(Debug)]
pub(crate) enum Schedule {
    /// At one rate, or whenever the window has room.
    Even(Pacing),
    Curve(Ramp),
}

impl Schedule {
    pub(crate) fn new(plan: &Plan, part: Part, now: Nanos) -> Self {
        if let Some(knots) = &plan.arrival_curve {
            return Self::Curve(Ramp {
                knots: Arc::clone(knots),
                threads: u64::from(plan.threads),
                thread: u64::from(part.thread),
                started: now,
                issued: 0,
            });
        }
        Self::Even(match plan.connect_rate_per_s {
            Some(rate) => Share::of(rate, plan, part).pacing(now),
            None => Pacing::new(None, now),
        })
    }

    /// Whether connections have a time at which they are due.
    pub(crate) fn is_paced(&self) -> bool {
        match self {
            Self::Even(pacing) => pacing.is_paced(),
            Self::Curve(_) => true,
        }
    }

    /// How many may be opened now, if so many are left.
    pub(crate) fn due(&self, now: Nanos) -> u64 {
        match self {
            Self::Even(pacing) => pacing.due(now),
            Self::Curve(ramp) => ramp.due(now),
        }
    }

    pub(crate) fn issue(&mut self, count: u64) {
        match self {
            Self::Even(pacing) => pacing.issue(count),
            Self::Curve(ramp) => ramp.issued += count,
        }
    }

    /// How long until the next one is due; zero when one already is.
    pub(crate) fn wait(&self, now: Nanos) -> Duration {
        match self {
            Self::Even(pacing) => pacing.wait(now),
            Self::Curve(ramp) => ramp.next_at().since(now),
        }
    }

    /// How long the next one has been due.
    pub(crate) fn lateness(&self, now: Nanos) -> Duration {
        match self {
            Self::Even(pacing) => pacing.lateness(now),
            Self::Curve(ramp) => now.since(ramp.next_at()),
        }
    }
}

/// A thread's place on the curve.
#[derive(Debug)]
pub(crate) struct Ramp {
    knots: Arc<[Knot]>,
    threads: u64,
    thread: u64,
    started: Nanos,
    issued: u64,
}

impl Ramp {
    fn due(&self, now: Nanos) -> u64 {
        let begun = count_at(&self.knots, now.since(self.started));
        // The first is due at once, as with a rate.
        let whole = truncate(begun + HAIR) + 1;
        let own = whole
            .saturating_sub(self.thread)
            .div_ceil(self.threads.max(1));
        own.saturating_sub(self.issued)
    }

    fn next_at(&self) -> Nanos {
        let number = self.issued * self.threads + self.thread;
        self.started.plus(time_of(&self.knots, number))
    }
}

/// Connections that the curve has begun after so long.
fn count_at(knots: &[Knot], elapsed: Duration) -> f64 {
    let mut count = 0.0;
    for pair in knots.windows(2) {
        let [from, to] = [pair[0], pair[1]];
        if elapsed >= to.at {
            count = to.count;
            continue;
        }
        let part = (elapsed - from.at).as_secs_f64() / (to.at - from.at).as_secs_f64();
        return from.count + (to.count - from.count) * part;
    }
    count
}

/// When the connection with so many before it is due. What the curve never reaches is due at its end.
fn time_of(knots: &[Knot], number: u64) -> Duration {
    #[expect(clippy::cast_precision_loss, reason = "clients are at most 2^31")]
    let number = number as f64;
    for pair in knots.windows(2) {
        let [from, to] = [pair[0], pair[1]];
        if number < to.count && to.count > from.count {
            let part = ((number - from.count) / (to.count - from.count)).max(0.0);
            return from.at + (to.at - from.at).mul_f64(part);
        }
    }
    knots.last().map_or(Duration::ZERO, |last| last.at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ramp(points: &[(u64, f64)], threads: u64, thread: u64) -> Ramp {
        let knots = points.iter().map(|&(millis, count)| Knot {
            at: Duration::from_millis(millis),
            count,
        });
        Ramp {
            knots: knots.collect(),
            threads,
            thread,
            started: Nanos(5_000_000),
            issued: 0,
        }
    }

    fn at(millis: u64) -> Nanos {
        Nanos((millis + 5) * 1_000_000)
    }

    #[test]
    fn stages_follow_one_another() {
        // Slowly to 10, nothing for a second, then a jump to 100, then 200 more.
        let mut ramp = ramp(
            &[
                (0, 0.0),
                (1000, 10.0),
                (2000, 10.0),
                (2000, 100.0),
                (3000, 300.0),
            ],
            1,
            0,
        );
        assert_eq!(ramp.due(at(0)), 1, "the first is due at once");
        assert_eq!(ramp.due(at(550)), 6);
        ramp.issued = 10;
        assert_eq!((ramp.due(at(999)), ramp.next_at()), (0, at(2000)));
        ramp.issued = 11;
        assert_eq!((ramp.due(at(1999)), ramp.due(at(2000))), (0, 90));
        ramp.issued = 100;
        assert_eq!(ramp.next_at(), at(2000));
        ramp.issued = 200;
        assert_eq!(ramp.next_at(), at(2500));
        assert!(ramp.due(at(60_000)) >= 100);
    }

    #[test]
    fn threads_take_turns_on_one_curve() {
        let mut times = Vec::new();
        for thread in 0..3 {
            let mut ramp = ramp(&[(0, 0.0), (1000, 10.0)], 3, thread);
            for _ in 0..if thread == 0 { 4 } else { 3 } {
                let when = ramp.next_at();
                assert!(ramp.due(when) >= 1, "due when it says");
                assert!(when == at(0) || ramp.due(Nanos(when.0 - 100_000)) == 0);
                times.push(when);
                ramp.issued += 1;
            }
        }
        times.sort_unstable();
        let expected: Vec<Nanos> = (0..10).map(|n| at(n * 100)).collect();
        assert_eq!(times, expected);
    }
}
