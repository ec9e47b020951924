//! Terminals that come back: their connection was dropped by a storm, or ended by the server, and they make another one.
//!
//! Each waits before each attempt, for a random time between zero and a limit that doubles with every failure (full jitter):
//! what dropped together does not come back together. A terminal keeps nothing for this while it is open. One that is away
//! has an entry here, and one that is back until it hears the next publication.

use crate::clock::Nanos;
use crate::config::Comeback;
use crate::engine::crowd::World;
use crate::engine::plan::Plan;
use crate::engine::terminal::Phase;
use crate::failure::Failure;
use crate::measure::figures::{add, microseconds};
use crate::random::Random;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

/// From these close codes on clients of the Centrifuge protocol do not come back: 3500 to 3999, and 4500 to 4999.
const TERMINAL_CODES: [std::ops::RangeInclusive<u16>; 2] = [3500..=3999, 4500..=4999];

/// Why a terminal is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// A storm of this number dropped it.
    Storm(usize),
    /// The server or the network ended its connection.
    Lost,
}

/// Terminals that were away; sums over threads are sums of fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ComebackTotals {
    /// Dropped by a storm, or lost and to come back.
    pub gone: u64,
    /// Open again.
    pub back: u64,
    /// Not, after all their attempts.
    pub given_up: u64,
    /// Connections begun for that.
    pub attempts: u64,
    /// Publications that they found missing when they were back.
    pub missed: u64,
}

impl ComebackTotals {
    /// Those that are on their way.
    pub(crate) fn away(&self) -> u64 {
        self.gone.saturating_sub(self.back + self.given_up)
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.gone += other.gone;
        self.back += other.back;
        self.given_up += other.given_up;
        self.attempts += other.attempts;
        self.missed += other.missed;
    }
}

/// What a storm did to the terminals of one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StormTally {
    pub dropped: u64,
    pub back: u64,
    /// When the first was dropped, and when the last was back.
    pub began: Option<Nanos>,
    pub last_back: Nanos,
}

impl StormTally {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.dropped += other.dropped;
        self.back += other.back;
        let began = [self.began, other.began].into_iter().flatten();
        self.began = began.min();
        self.last_back = self.last_back.max(other.last_back);
    }
}

/// Figures of a thread's terminals that come back.
#[derive(Clone, Debug)]
pub(crate) struct ComebackFigures {
    /// How long those were away that are back, in microseconds.
    pub times: Histogram<u64>,
    /// Why attempts to come back failed.
    pub failures: BTreeMap<Failure, u64>,
    /// By number of the incident; those that are no storm are empty.
    pub storms: Vec<StormTally>,
}

impl Default for ComebackFigures {
    fn default() -> Self {
        Self {
            times: microseconds(),
            failures: BTreeMap::new(),
            storms: Vec::new(),
        }
    }
}

impl ComebackFigures {
    /// Adds those of another thread.
    pub(crate) fn merge(&mut self, other: &Self) {
        add(&mut self.times, &other.times);
        for (failure, count) in &other.failures {
            *self.failures.entry(*failure).or_default() += count;
        }
        self.storms.resize_with(
            self.storms.len().max(other.storms.len()),
            StormTally::default,
        );
        for (sum, storm) in self.storms.iter_mut().zip(&other.storms) {
            sum.merge(storm);
        }
    }
}

/// A terminal that is away.
#[derive(Clone, Copy, Debug)]
struct Away {
    since: Nanos,
    /// Attempts that failed, in a row.
    failures: u32,
    cause: Cause,
}

/// The terminals of one thread that are away, or just back.
#[derive(Debug)]
pub(super) struct Comebacks {
    rule: Comeback,
    away: HashMap<u32, Away>,
    /// Back, and without a publication since.
    expectant: HashSet<u32>,
    /// Their server has closed for good.
    barred: HashSet<u32>,
    /// How many targets further than their own they are.
    moved: HashMap<u32, usize>,
}

impl Comebacks {
    /// None where nobody comes back.
    pub(super) fn new(plan: &Plan) -> Option<Box<Self>> {
        let has_storms = plan.incidents.iter().any(|one| one.what.is_storm());
        (has_storms || plan.comeback.when_lost).then(|| {
            Box::new(Self {
                rule: plan.comeback,
                away: HashMap::new(),
                expectant: HashSet::new(),
                barred: HashSet::new(),
                moved: HashMap::new(),
            })
        })
    }

    /// How many targets further than its own a terminal is.
    pub(super) fn moved_by(&self, index: u32) -> usize {
        self.moved.get(&index).copied().unwrap_or_default()
    }

    /// Terminals that are away.
    pub(super) fn away_count(&self) -> usize {
        self.away.len()
    }

    /// Time until the next attempt, after so many failures.
    fn wait(rule: &Comeback, failures: u32, random: &mut Random) -> Duration {
        let (first, most) = rule.backoff;
        let limit = first
            .saturating_mul(2_u32.saturating_pow(failures))
            .min(most);
        limit.mul_f64(random.part())
    }
}

impl World {
    /// Whether a terminal is away, or on its way back.
    pub(super) fn is_coming_back(&self, index: u32) -> bool {
        let comebacks = self.comebacks.as_ref();
        comebacks.is_some_and(|comebacks| comebacks.away.contains_key(&index))
    }

    /// Sends a terminal away whose connection has ended. It comes back by itself.
    pub(super) fn come_back(&mut self, index: usize, cause: Cause, now: Nanos) {
        let comebacks = self.comebacks.as_mut().expect("terminals come back");
        let number = u32::try_from(index).expect("terminals are at most 2^32");
        let away = Away {
            since: now,
            failures: 0,
            cause,
        };
        comebacks.expectant.remove(&number);
        comebacks.away.insert(number, away);
        let wait = Comebacks::wait(&comebacks.rule, 0, &mut self.random);
        self.totals.comeback.gone += 1;
        self.terminals[index].phase = Phase::Waiting;
        self.opening.open_at(number, now.plus(wait));
    }

    /// Whether a terminal that the server or the network has just ended comes back; it is on its way then.
    pub(super) fn come_back_if_lost(&mut self, index: usize, now: Nanos) -> bool {
        let Some(comebacks) = &mut self.comebacks else {
            return false;
        };
        let number = u32::try_from(index).expect("terminals are at most 2^32");
        let is_barred = comebacks.barred.remove(&number);
        // One that is just back has not arrived before it hears something.
        let comes = comebacks.rule.when_lost || comebacks.expectant.contains(&number);
        let comes = comes && !is_barred && !self.opening.is_stopped();
        if comes {
            if let Some(answered) = &mut self.answered {
                answered.note_lost(self.terminals[index].token(number));
            }
            self.come_back(index, Cause::Lost, now);
        }
        comes
    }

    /// Notes the code with which a server ends a terminal: after some of them clients do not come back.
    pub(super) fn heed_code(&mut self, index: u32, code: Option<u16>) {
        let has_sessions = self.sessions.is_some();
        if let (Some(comebacks), Some(code)) = (&mut self.comebacks, code)
            && has_sessions
            && is_final(code)
        {
            comebacks.barred.insert(index);
        }
    }

    /// An attempt of a terminal failed. False if the terminal is none that comes back.
    pub(super) fn retry_comeback(&mut self, index: u32, failure: Failure, now: Nanos) -> bool {
        let Some(comebacks) = &mut self.comebacks else {
            return false;
        };
        let Some(away) = comebacks.away.get_mut(&index) else {
            return false;
        };
        away.failures = away.failures.saturating_add(1);
        self.notes.comeback_failures.push(failure);
        let most = comebacks.rule.attempts.unwrap_or(u32::MAX);
        let is_final = matches!(failure, Failure::SessionClosed(code) if is_final(code));
        if away.failures >= most || is_final || self.opening.is_stopped() {
            comebacks.away.remove(&index);
            self.totals.comeback.given_up += 1;
            self.terminals[index as usize].phase = Phase::Ended;
            return true;
        }
        if comebacks.rule.elsewhere {
            let targets = self.plan.targets.len();
            *comebacks.moved.entry(index).or_default() +=
                targets_to_skip(targets, &mut self.random);
        }
        let wait = Comebacks::wait(&comebacks.rule, away.failures, &mut self.random);
        self.terminals[index as usize].phase = Phase::Waiting;
        self.opening.open_at(index, now.plus(wait));
        true
    }

    /// Notes that a terminal is back. False if it was not away.
    pub(super) fn note_back(&mut self, index: u32, now: Nanos) -> bool {
        let Some(comebacks) = &mut self.comebacks else {
            return false;
        };
        let Some(away) = comebacks.away.remove(&index) else {
            return false;
        };
        comebacks.expectant.insert(index);
        self.totals.comeback.back += 1;
        self.notes.comeback_times.push(now.since(away.since));
        if let Cause::Storm(number) = away.cause {
            self.storms[number].back += 1;
            self.storms[number].last_back = now;
        }
        if let Some(membership) = &mut self.membership {
            membership.note_joined(index);
        }
        true
    }

    /// Whether what is missing right before a publication was published while its terminal was away. It is asked of each
    /// publication once.
    pub(super) fn take_absence(&mut self, index: u32) -> bool {
        let Some(comebacks) = &mut self.comebacks else {
            return false;
        };
        comebacks.away.contains_key(&index) || comebacks.expectant.remove(&index)
    }

    /// Terminals that are on their way back begin anew, where they are not to recover.
    pub(super) fn is_forgetful(&self, index: u32) -> bool {
        let comebacks = self.comebacks.as_ref();
        comebacks.is_some_and(|one| !one.rule.recovers && one.away.contains_key(&index))
    }
}

/// How many targets further the next attempt goes: to any other one. The next one alone would get all clients of a dead node, on too few
/// ports.
fn targets_to_skip(targets: usize, random: &mut Random) -> usize {
    let others = targets.saturating_sub(1).max(1) as u64;
    1 + usize::try_from(random.next() % others).expect("fewer than the targets")
}

/// Whether clients of the Centrifuge protocol stay away after this code.
fn is_final(code: u16) -> bool {
    TERMINAL_CODES.iter().any(|codes| codes.contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_of_a_node_that_died_are_dealt_out_to_all_others() {
        let mut random = Random::new(7);
        let mut counts = [0; 4];
        for _ in 0..3_000 {
            counts[targets_to_skip(4, &mut random) % 4] += 1;
        }
        assert_eq!(counts[0], 0, "nobody goes back to it");
        assert!(counts[1..].iter().all(|count| (900..1_100).contains(count)));
        assert_eq!(targets_to_skip(2, &mut random), 1);
    }

    #[test]
    fn waits_fill_the_whole_range_up_to_a_limit_that_doubles() {
        let rule = Comeback {
            backoff: (Duration::from_millis(500), Duration::from_secs(20)),
            ..Comeback::default()
        };
        let mut random = Random::new(7);
        for (failures, limit_ms) in [(0, 500), (1, 1000), (3, 4000), (6, 20_000), (4_000, 20_000)] {
            let waits = (0..4000).map(|_| Comebacks::wait(&rule, failures, &mut random));
            let waits: Vec<u128> = waits.map(|wait| wait.as_millis()).collect();
            assert!(waits.iter().all(|&wait| wait < limit_ms));
            let below = |part: u128| {
                let count = waits
                    .iter()
                    .filter(|&&wait| wait < limit_ms * part / 4)
                    .count();
                (900 * part..1100 * part).contains(&(count as u128))
            };
            assert!(below(1) && below(2) && below(3), "{failures}");
        }
    }
}
