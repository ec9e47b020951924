//! A circuit breaker: an application that fails again and again is left alone for a while.
//!
//! While the circuit is open, calls fail at once instead of each waiting for its timeout. After a back-off one call is let
//! through. If it succeeds the circuit closes; if not, the next back-off is twice as long.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Failures in a row that open a circuit. More than a restart behind a load balancer makes, fewer than a second of a busy server.
const FAILURES_MAX: u32 = 10;
/// The first back-off.
const BACKOFF_MIN: Duration = Duration::from_millis(500);
/// The longest back-off: how late an application's recovery is noticed at most.
const BACKOFF_MAX: Duration = Duration::from_secs(10);

/// One application's circuit.
#[derive(Debug)]
pub(super) struct Circuit(Mutex<State>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Calls go through. So many have failed in a row.
    Closed { failures: u32 },
    /// Calls fail at once, until a time.
    Open { until: Instant, backoff: Duration },
    /// One call is under way. Its end decides.
    Probing { backoff: Duration },
}

/// What has become of a circuit; its log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It has opened, or the probe has failed. The next one comes after so long.
    Opened(Duration),
    /// The application answers again.
    Closed,
}

/// The circuit is open: the application is not called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IsOpen;

impl Default for Circuit {
    fn default() -> Self {
        Self(Mutex::new(State::Closed { failures: 0 }))
    }
}

impl Circuit {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a call would be refused.
    pub(super) fn is_open(&self, now: Instant) -> bool {
        match *self.state() {
            State::Closed { .. } => false,
            State::Open { until, .. } => now < until,
            State::Probing { .. } => true,
        }
    }

    /// For the metric: 0 closed, 1 waiting for a probe's end, 2 open.
    pub(super) fn figure(&self) -> i64 {
        match *self.state() {
            State::Closed { .. } => 0,
            State::Probing { .. } => 1,
            State::Open { .. } => 2,
        }
    }

    /// Asks to make a call. Whoever may make it says by [`Attempt::end`] how it ended.
    pub(super) fn begin(&self, now: Instant) -> Result<Attempt<'_>, IsOpen> {
        let mut state = self.state();
        let is_probe = match *state {
            State::Closed { .. } => false,
            State::Open { until, backoff } if until <= now => {
                *state = State::Probing { backoff };
                true
            }
            State::Open { .. } | State::Probing { .. } => return Err(IsOpen),
        };
        Ok(Attempt {
            circuit: self,
            is_probe,
            has_ended: false,
        })
    }

    fn end(&self, is_probe: bool, has_succeeded: bool, now: Instant) -> Option<Change> {
        let mut state = self.state();
        let backoff = match *state {
            State::Closed { .. } if has_succeeded => {
                *state = State::Closed { failures: 0 };
                return None;
            }
            State::Closed { failures } if failures + 1 < FAILURES_MAX => {
                *state = State::Closed {
                    failures: failures + 1,
                };
                return None;
            }
            State::Closed { .. } => BACKOFF_MIN,
            State::Probing { .. } if is_probe && has_succeeded => {
                *state = State::Closed { failures: 0 };
                return Some(Change::Closed);
            }
            State::Probing { backoff } if is_probe => (backoff * 2).min(BACKOFF_MAX),
            // A call that began before the circuit opened says nothing new.
            State::Probing { .. } | State::Open { .. } => return None,
        };
        *state = State::Open {
            until: now + backoff,
            backoff,
        };
        Some(Change::Opened(backoff))
    }
}

/// A call under way. A call that is given up counts as failed.
#[derive(Debug)]
pub(super) struct Attempt<'a> {
    circuit: &'a Circuit,
    is_probe: bool,
    has_ended: bool,
}

impl Attempt<'_> {
    /// The call has ended.
    pub(super) fn end(mut self, has_succeeded: bool, now: Instant) -> Option<Change> {
        self.has_ended = true;
        self.circuit.end(self.is_probe, has_succeeded, now)
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.circuit.end(self.is_probe, false, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail(circuit: &Circuit, now: Instant) -> Option<Change> {
        circuit.begin(now).unwrap().end(false, now)
    }

    fn opened(now: Instant) -> Circuit {
        let circuit = Circuit::default();
        for _ in 1..FAILURES_MAX {
            assert_eq!(fail(&circuit, now), None);
        }
        assert_eq!(fail(&circuit, now), Some(Change::Opened(BACKOFF_MIN)));
        circuit
    }

    #[test]
    fn failures_in_a_row_open_it() {
        let now = Instant::now();
        let circuit = Circuit::default();
        for _ in 0..3 {
            for _ in 1..FAILURES_MAX {
                assert_eq!(fail(&circuit, now), None);
            }
            assert_eq!(circuit.begin(now).unwrap().end(true, now), None);
        }
        assert!(!circuit.is_open(now));
        let circuit = opened(now);
        assert!(circuit.is_open(now));
        assert_eq!(circuit.begin(now).err(), Some(IsOpen));
        assert_eq!(circuit.figure(), 2);
    }

    #[test]
    fn one_call_probes_and_its_success_closes_it() {
        let now = Instant::now();
        let circuit = opened(now);
        let later = now + BACKOFF_MIN;
        assert!(circuit.begin(later - Duration::from_nanos(1)).is_err());
        assert!(!circuit.is_open(later));
        let probe = circuit.begin(later).unwrap();
        assert_eq!(circuit.figure(), 1);
        assert!(circuit.begin(later).is_err() && circuit.is_open(later));
        assert_eq!(probe.end(true, later), Some(Change::Closed));
        assert_eq!(circuit.figure(), 0);
        assert!(circuit.begin(later).is_ok());
    }

    #[test]
    fn failing_probes_double_the_back_off_up_to_a_bound() {
        let mut now = Instant::now();
        let circuit = opened(now);
        let mut backoff = BACKOFF_MIN;
        for _ in 0..10 {
            now += backoff;
            backoff = (backoff * 2).min(BACKOFF_MAX);
            assert_eq!(fail(&circuit, now), Some(Change::Opened(backoff)));
        }
        assert_eq!(backoff, BACKOFF_MAX);
        // The next time it begins from the start.
        let probe = circuit.begin(now + backoff).unwrap();
        assert_eq!(probe.end(true, now + backoff), Some(Change::Closed));
        for _ in 1..FAILURES_MAX {
            assert_eq!(fail(&circuit, now), None);
        }
        assert_eq!(fail(&circuit, now), Some(Change::Opened(BACKOFF_MIN)));
    }

    #[test]
    fn a_call_from_before_says_nothing() {
        let now = Instant::now();
        let circuit = Circuit::default();
        let (old, older) = (circuit.begin(now).unwrap(), circuit.begin(now).unwrap());
        for _ in 0..FAILURES_MAX {
            fail(&circuit, now);
        }
        assert_eq!(old.end(true, now), None);
        assert!(circuit.is_open(now));
        let probe = circuit.begin(now + BACKOFF_MIN).unwrap();
        assert_eq!(older.end(false, now + BACKOFF_MIN), None);
        assert_eq!(circuit.figure(), 1);
        assert!(probe.end(true, now + BACKOFF_MIN).is_some());
    }

    #[test]
    fn a_probe_that_is_given_up_has_failed() {
        let now = Instant::now();
        let circuit = opened(now);
        drop(circuit.begin(now + BACKOFF_MIN).unwrap());
        assert_eq!(circuit.figure(), 2);
    }
}
