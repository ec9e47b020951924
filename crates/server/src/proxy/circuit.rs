//! A circuit breaker: an application that fails again and again is left alone for a while.
//!
//! While the circuit is open, calls fail at once instead of each waiting for its timeout. After a back-off one call is let
//! through. If it succeeds the circuit closes; if not, the next back-off is twice as long.
//!
//! A failure may be the fault of what one client sent: the application takes too long for it, or breaks over it. So each client counts
//! once until the next success. A client whose probe has failed waits, and another client may probe before it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Failures in a row that open a circuit: of so many clients, but for those that no client can provoke. More than a restart behind a
/// load balancer makes, fewer than a second of a busy server.
const FAILURES_MAX: usize = 10;
/// The first back-off.
const BACKOFF_MIN: Duration = Duration::from_millis(500);
/// The longest back-off: how late an application's recovery is noticed at most.
const BACKOFF_MAX: Duration = Duration::from_secs(10);

/// Who makes a call: a number for each user, or for each client that has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Who(pub(super) u64);

/// What the end of a call says of the application as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    /// It is there.
    Well,
    /// It fails, if it is not what this client has sent.
    Doubtful,
    /// Nobody can connect to it.
    Down,
}

/// One application's circuit.
#[derive(Debug)]
pub(super) struct Circuit(Mutex<State>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// Calls go through.
    Closed(Row),
    /// Calls fail at once.
    Open(Open),
    /// One call is under way. Its end decides.
    Probing { who: Who, before: Open },
}

/// Failures since the last success. It holds no more than open a circuit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Row {
    clients: Vec<Who>,
    down: usize,
}

impl Row {
    fn add(&mut self, who: Who, sign: Sign) {
        match sign {
            Sign::Down => self.down += 1,
            Sign::Doubtful if !self.clients.contains(&who) => self.clients.push(who),
            Sign::Doubtful | Sign::Well => {}
        }
    }

    fn opens(&self) -> bool {
        self.clients.len() + self.down >= FAILURES_MAX
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Open {
    /// When a call may probe.
    until: Instant,
    backoff: Duration,
    /// Who failed as the last probe, and may be the next one only after this time.
    failed: Option<(Who, Instant)>,
}

impl Open {
    fn may_probe(&self, who: Who, now: Instant) -> bool {
        let is_barred =
            matches!(self.failed, Some((failed, until)) if failed == who && now < until);
        self.until <= now && !is_barred
    }

    /// The state behind a probe that has failed, and whether it is worth a log line.
    fn after(self, who: Who, sign: Sign, now: Instant) -> (Self, Option<Change>) {
        let backoff = (self.backoff * 2).min(BACKOFF_MAX);
        let until = now + backoff;
        let has_failed_before = matches!(self.failed, Some((failed, _)) if failed == who);
        if sign == Sign::Doubtful && has_failed_before {
            let others = Self {
                until: now,
                backoff: self.backoff,
                failed: Some((who, until)),
            };
            return (others, None);
        }
        let all = Self {
            until,
            backoff,
            failed: (sign == Sign::Doubtful).then_some((who, until)),
        };
        (all, Some(Change::Opened(backoff)))
    }
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
        Self(Mutex::new(State::Closed(Row::default())))
    }
}

impl Circuit {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a call of this client would be refused.
    pub(super) fn is_open(&self, who: Who, now: Instant) -> bool {
        match &*self.state() {
            State::Closed(_) => false,
            State::Open(open) => !open.may_probe(who, now),
            State::Probing { .. } => true,
        }
    }

    /// For the metric: 0 closed, 1 waiting for a probe's end, 2 open.
    pub(super) fn figure(&self) -> i64 {
        match *self.state() {
            State::Closed(_) => 0,
            State::Probing { .. } => 1,
            State::Open(_) => 2,
        }
    }

    /// Asks to make a call. Whoever may make it says by [`Attempt::end`] how it ended.
    pub(super) fn begin(&self, who: Who, now: Instant) -> Result<Attempt<'_>, IsOpen> {
        let mut state = self.state();
        let is_probe = match *state {
            State::Closed(_) => false,
            State::Open(before) if before.may_probe(who, now) => {
                *state = State::Probing { who, before };
                true
            }
            State::Open(_) | State::Probing { .. } => return Err(IsOpen),
        };
        Ok(Attempt {
            circuit: self,
            who,
            is_probe,
            has_ended: false,
        })
    }

    fn end(&self, attempt: &Attempt<'_>, sign: Sign, now: Instant) -> Option<Change> {
        let mut state = self.state();
        match &mut *state {
            State::Closed(row) if sign == Sign::Well => {
                *row = Row::default();
                None
            }
            State::Closed(row) => {
                row.add(attempt.who, sign);
                if !row.opens() {
                    return None;
                }
                *state = State::Open(Open {
                    until: now + BACKOFF_MIN,
                    backoff: BACKOFF_MIN,
                    failed: None,
                });
                Some(Change::Opened(BACKOFF_MIN))
            }
            State::Probing { .. } if attempt.is_probe && sign == Sign::Well => {
                *state = State::Closed(Row::default());
                Some(Change::Closed)
            }
            State::Probing { who, before } if attempt.is_probe => {
                let (open, change) = before.after(*who, sign, now);
                *state = State::Open(open);
                change
            }
            // A call that began before the circuit opened says nothing new.
            State::Probing { .. } | State::Open(_) => None,
        }
    }
}

/// A call under way. A call that is given up counts as failed.
#[derive(Debug)]
pub(super) struct Attempt<'a> {
    circuit: &'a Circuit,
    who: Who,
    is_probe: bool,
    has_ended: bool,
}

impl Attempt<'_> {
    /// The call has ended.
    pub(super) fn end(mut self, sign: Sign, now: Instant) -> Option<Change> {
        self.has_ended = true;
        self.circuit.end(&self, sign, now)
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.circuit.end(self, Sign::Doubtful, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: Who = Who(1_000);
    const YOU: Who = Who(1_001);

    fn end(circuit: &Circuit, who: Who, sign: Sign, now: Instant) -> Option<Change> {
        circuit.begin(who, now).unwrap().end(sign, now)
    }

    /// A failure of one more client.
    fn fail(circuit: &Circuit, nth: usize, now: Instant) -> Option<Change> {
        end(circuit, Who(nth as u64), Sign::Doubtful, now)
    }

    fn opened(now: Instant) -> Circuit {
        let circuit = Circuit::default();
        for nth in 1..FAILURES_MAX {
            assert_eq!(fail(&circuit, nth, now), None);
        }
        assert_eq!(fail(&circuit, 0, now), Some(Change::Opened(BACKOFF_MIN)));
        circuit
    }

    #[test]
    fn failures_of_many_clients_in_a_row_open_it() {
        let now = Instant::now();
        let circuit = Circuit::default();
        for _ in 0..3 {
            for nth in 1..FAILURES_MAX {
                assert_eq!(fail(&circuit, nth, now), None);
            }
            assert_eq!(end(&circuit, ME, Sign::Well, now), None);
        }
        assert!(!circuit.is_open(ME, now));
        let circuit = opened(now);
        assert!(circuit.is_open(ME, now));
        assert_eq!(circuit.begin(ME, now).err(), Some(IsOpen));
        assert_eq!(circuit.figure(), 2);
    }

    #[test]
    fn one_client_does_not_open_it_alone() {
        let now = Instant::now();
        let circuit = Circuit::default();
        for _ in 0..1_000 {
            assert_eq!(end(&circuit, ME, Sign::Doubtful, now), None);
        }
        assert_eq!(circuit.figure(), 0);
        // But nobody needs others to know that nothing listens there.
        for _ in 2..FAILURES_MAX {
            assert_eq!(end(&circuit, ME, Sign::Down, now), None);
        }
        let change = end(&circuit, ME, Sign::Down, now);
        assert_eq!(change, Some(Change::Opened(BACKOFF_MIN)));
    }

    #[test]
    fn one_client_does_not_hold_it_open_alone() {
        let mut now = Instant::now();
        let circuit = opened(now);
        now += BACKOFF_MIN;
        let change = end(&circuit, ME, Sign::Doubtful, now);
        assert_eq!(change, Some(Change::Opened(2 * BACKOFF_MIN)));
        assert!(circuit.is_open(YOU, now));
        now += 2 * BACKOFF_MIN;
        assert_eq!(end(&circuit, ME, Sign::Doubtful, now), None);
        assert!(circuit.is_open(ME, now) && !circuit.is_open(YOU, now));
        assert_eq!(end(&circuit, YOU, Sign::Well, now), Some(Change::Closed));
        // A client that is alone may probe again after its time.
        let circuit = opened(now);
        for _ in 0..20 {
            now += BACKOFF_MAX;
            assert!(!circuit.is_open(ME, now));
            end(&circuit, ME, Sign::Doubtful, now);
            assert!(circuit.is_open(ME, now));
        }
    }

    #[test]
    fn one_call_probes_and_its_success_closes_it() {
        let now = Instant::now();
        let circuit = opened(now);
        let later = now + BACKOFF_MIN;
        let just_before = later - Duration::from_nanos(1);
        assert!(circuit.begin(ME, just_before).is_err());
        assert!(!circuit.is_open(ME, later));
        let probe = circuit.begin(ME, later).unwrap();
        assert_eq!(circuit.figure(), 1);
        assert!(circuit.begin(YOU, later).is_err() && circuit.is_open(YOU, later));
        assert_eq!(probe.end(Sign::Well, later), Some(Change::Closed));
        assert_eq!(circuit.figure(), 0);
        assert!(circuit.begin(ME, later).is_ok());
    }

    #[test]
    fn failing_probes_double_the_back_off_up_to_a_bound() {
        let mut now = Instant::now();
        let circuit = opened(now);
        let mut backoff = BACKOFF_MIN;
        for nth in 0..10 {
            now += backoff;
            backoff = (backoff * 2).min(BACKOFF_MAX);
            let change = fail(&circuit, nth, now);
            assert_eq!(change, Some(Change::Opened(backoff)));
        }
        assert_eq!(backoff, BACKOFF_MAX);
        // The next time it begins from the start.
        now += backoff;
        assert_eq!(end(&circuit, ME, Sign::Well, now), Some(Change::Closed));
        for nth in 1..FAILURES_MAX {
            assert_eq!(fail(&circuit, nth, now), None);
        }
        assert_eq!(fail(&circuit, 0, now), Some(Change::Opened(BACKOFF_MIN)));
    }

    #[test]
    fn a_call_from_before_says_nothing() {
        let now = Instant::now();
        let circuit = Circuit::default();
        let (old, older) = (
            circuit.begin(ME, now).unwrap(),
            circuit.begin(YOU, now).unwrap(),
        );
        for nth in 0..FAILURES_MAX {
            fail(&circuit, nth, now);
        }
        assert_eq!(old.end(Sign::Well, now), None);
        assert!(circuit.is_open(ME, now));
        let later = now + BACKOFF_MIN;
        let probe = circuit.begin(ME, later).unwrap();
        assert_eq!(older.end(Sign::Doubtful, later), None);
        assert_eq!(circuit.figure(), 1);
        assert!(probe.end(Sign::Well, later).is_some());
    }

    #[test]
    fn a_probe_that_is_given_up_has_failed() {
        let now = Instant::now();
        let circuit = opened(now);
        drop(circuit.begin(ME, now + BACKOFF_MIN).unwrap());
        assert_eq!(circuit.figure(), 2);
    }
}
