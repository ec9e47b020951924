//! Churn: open terminals that leave and are replaced, all the time.
//!
//! A terminal that leaves connects again in the same record, as another client would: from another port, with another
//! key, and with nothing seen yet. A walk chooses who leaves: it visits every terminal once before it visits one again.
//! Its steps are long, so neighbours in the server's tables do not leave together.
//!
//! Terminals leave and join while a publication is on its way. Its reach is exact only if each of them is known to be
//! before or after the publisher's roll call. [`World::enrol`] decides that at the end of a turn, under the lock of the
//! thread's account, which the roll call takes too. A terminal that was counted and left before the publication came is
//! not expected to receive it. A terminal that was not counted does not count as reached.

use crate::clock::Nanos;
use crate::engine::crowd::World;
use crate::engine::plan::{Part, Plan};
use crate::engine::shared::{Account, Ending, Order};
use crate::engine::terminal::Phase;
use crate::measure::push::PushKey;
use crate::random::mix;
use crate::report::float;
use myriad_reactor::{Close, Reactor, Token};
use myriad_units::truncate;
use std::collections::HashMap;
use std::time::Duration;

/// Terminals that leave in one turn. More wait for the next, so that receiving is never held up for long.
const PER_TURN_MAX: u64 = 256;

/// Sockets a thread needs beyond one per terminal: a closed socket is freed some turns later, when its terminal already
/// connects again.
pub(crate) const SOCKETS_SPARE: u32 = 1024;

/// Shortest wait for the next one to leave. Bursts every 10 ms are even enough, and cost few wakes.
const STEP: Duration = Duration::from_millis(10);

/// A roll call later than any: for terminals that joined in this turn and are not enrolled yet.
const NOT_ENROLLED: u64 = u64::MAX;

/// The walk of one thread, and who joined lately.
#[derive(Debug)]
pub(super) struct Churn {
    /// Terminals a second.
    rate_per_s: f64,
    /// When terminals were last told to leave; none until the whole crowd is connected.
    last: Option<Nanos>,
    /// Fractions of a terminal carried over between bursts.
    carried: f64,
    /// Terminals that were due and did not leave: after a stall, or because too many were still reconnecting.
    forgone: f64,
    count: u64,
    cursor: u64,
    /// Coprime to `count`, so that the walk visits everybody once.
    stride: u64,
    /// Terminals that joined while publications were being measured, with the last roll call before they were
    /// counted in. Forgotten once those publications have been measured.
    joined: HashMap<u32, u64>,
    /// Those of `joined` that joined in this turn.
    fresh: Vec<u32>,
    /// Publications before this one have been measured, as of the last look.
    measured_from: u64,
    /// Terminals that left in this turn.
    departed: Vec<u32>,
}

impl Churn {
    pub(super) fn new(plan: &Plan, part: Part) -> Option<Self> {
        let share_per_s = plan.churn_per_s?;
        let count = u64::from(part.count);
        let random = mix(plan.seed ^ !u64::from(part.thread));
        Some(Self {
            rate_per_s: share_per_s * f64::from(part.count),
            last: None,
            carried: 0.0,
            forgone: 0.0,
            count,
            cursor: random % count,
            stride: stride(count, mix(random)),
            joined: HashMap::new(),
            fresh: Vec::new(),
            measured_from: 0,
            departed: Vec::new(),
        })
    }

    /// Whether terminals have begun to leave. From then on each new connection replaces one.
    pub(super) fn is_begun(&self) -> bool {
        self.last.is_some()
    }

    /// How many are to leave now. The first call begins the walk.
    ///
    /// After a stall at most one turn's worth is made up for, and the rest is noted as forgone: a burst is not the rate
    /// that was asked for.
    fn due(&mut self, now: Nanos) -> u64 {
        let elapsed = self.last.map_or(Duration::ZERO, |last| now.since(last));
        self.last = Some(now);
        #[expect(clippy::cast_precision_loss, reason = "a small constant")]
        let most = PER_TURN_MAX as f64;
        let wanted = self.carried + elapsed.as_secs_f64() * self.rate_per_s;
        self.carried = wanted.min(most);
        self.forgone += wanted - self.carried;
        let due = truncate(self.carried);
        #[expect(clippy::cast_precision_loss, reason = "at most PER_TURN_MAX")]
        let taken = due as f64;
        self.carried -= taken;
        due
    }

    /// The next terminal of the walk.
    fn next(&mut self) -> usize {
        self.cursor = (self.cursor + self.stride) % self.count;
        usize::try_from(self.cursor).expect("terminals are at most 2^32")
    }

    /// Time until the next one must leave.
    pub(super) fn wait(&self) -> Duration {
        if !self.is_begun() {
            return Duration::MAX;
        }
        let seconds = (1.0 - self.carried).max(0.0) / self.rate_per_s;
        Duration::try_from_secs_f64(seconds)
            .unwrap_or(Duration::MAX)
            .max(STEP)
    }

    /// Notes that a terminal joined; it is counted from the next [`World::enrol`] on.
    pub(super) fn note_joined(&mut self, index: u32) {
        self.joined.insert(index, NOT_ENROLLED);
        self.fresh.push(index);
    }

    /// Gives those that joined in this turn their roll call, and forgets those whose publications have been measured.
    fn count_in(&mut self, called: u64, measured_from: u64) {
        for index in self.fresh.drain(..) {
            if called < measured_from {
                self.joined.remove(&index);
            } else if let Some(since) = self.joined.get_mut(&index) {
                *since = called;
            }
        }
        if measured_from > self.measured_from {
            self.measured_from = measured_from;
            self.joined.retain(|_, since| *since >= measured_from);
        }
    }

    /// Whether a publication's roll call came before this terminal joined.
    pub(super) fn is_ahead_of(&self, index: u32, number: u64) -> bool {
        // Nearly always empty: it is filled only while a publication is under way.
        !self.joined.is_empty()
            && self
                .joined
                .get(&index)
                .is_some_and(|&called| number <= called)
    }

    /// Whether terminals joined or left since publications that are still being measured.
    pub(super) fn is_unsettled(&self) -> bool {
        !self.departed.is_empty() || !self.joined.is_empty()
    }
}

impl World {
    /// Ends the terminals that are due to leave, once the whole crowd is connected.
    pub(super) fn churn<R: Reactor>(&mut self, reactor: &mut R, now: Nanos) {
        let Order::Churn(ending) = self.shared.order() else {
            return;
        };
        let Some(churn) = &mut self.churn else {
            return;
        };
        let due = churn.due(now);
        // A server that does not take the replacements must not be left by everybody else.
        let leaving = due.min(self.opening.room());
        churn.forgone += float(due - leaving);
        self.totals.churn_forgone = truncate(churn.forgone);
        for _ in 0..leaving {
            let churn = self.churn.as_mut().expect("it was there above");
            let index = churn.next();
            // One that is lost, given up, or on its way already is nobody who could leave.
            if self.terminals[index].phase == Phase::Open {
                churn
                    .departed
                    .push(u32::try_from(index).expect("terminals are at most 2^32"));
                self.totals.churned += 1;
                self.leave(reactor, index, ending, now);
            }
        }
    }

    /// Whether every new connection replaces one.
    pub(super) fn is_replacing(&self) -> bool {
        self.churn.as_ref().is_some_and(Churn::is_begun)
    }

    fn leave<R: Reactor>(&mut self, reactor: &mut R, index: usize, ending: Ending, now: Nanos) {
        match ending {
            // HTTP has no farewell.
            Ending::Orderly if self.http.is_some() => {
                self.replace(reactor, index, Close::Orderly, now);
            }
            Ending::Orderly => self.send_close(index, Phase::Leaving, now),
            Ending::Reset => self.replace(reactor, index, Close::Reset, now),
        }
    }

    /// Ends a terminal that left, and connects again in its record as another one.
    pub(super) fn replace<R: Reactor>(
        &mut self,
        reactor: &mut R,
        index: usize,
        how: Close,
        now: Nanos,
    ) {
        self.end(reactor, index, how);
        if !self.opening.is_stopped() {
            self.terminals[index].phase = Phase::Waiting;
            let index = u32::try_from(index).expect("terminals are at most 2^32");
            self.opening.open_again(index, now);
        }
    }

    /// Decides for those that joined and left in this turn which publications being measured count them.
    ///
    /// `measured_from` is the oldest of those publications or an older one. It was read before the account was locked.
    pub(super) fn enrol(&mut self, account: &mut Account, measured_from: u64) {
        let Some(mut churn) = self.churn.take() else {
            return;
        };
        let called = account.called;
        for index in churn.departed.drain(..) {
            let since = churn.joined.remove(&index).unwrap_or(0);
            if since < called {
                self.strike(account, index, measured_from.max(since + 1)..=called);
            }
        }
        churn.count_in(called, measured_from);
        self.churn = Some(churn);
    }

    /// Notes that a terminal left. Those of these publications that it had not received are no longer expected there.
    fn strike(
        &mut self,
        account: &mut Account,
        index: u32,
        numbers: std::ops::RangeInclusive<u64>,
    ) {
        let target = self.target_index(index);
        let index = index as usize;
        for number in numbers {
            let PushKey::Own { stream, sequence } = self.plan.key_of_number(number) else {
                continue;
            };
            let Some(slot) = self.plan.targets[target].slot(stream) else {
                continue;
            };
            // One that was skipped although a later one came stays expected: that is a loss, not a leave.
            if sequence > self.sequence_mut(index, slot).newest() {
                *account.departed.entry(number).or_default() += 1;
            }
        }
    }

    /// Whether a publication of this run counts as received at a terminal: the terminal was there at the roll call. A
    /// terminal that connected later got it from the server's history.
    pub(super) fn was_called(&self, token: Token, stream: u16, sequence: u32) -> bool {
        let Some(churn) = &self.churn else {
            return true;
        };
        let number = self.plan.number_of(stream, sequence);
        let replaces = self.terminals[token.index as usize].attempts_before() > 0;
        // Who joined before what has been measured is forgotten: there, a client that replaces another has no claim.
        let is_past = churn.is_begun() && number < churn.measured_from;
        let is_later = churn.is_ahead_of(token.index, number) || (replaces && is_past);
        !is_later
    }
}

/// A step for a walk that visits each of `count` indices, near their golden section: consecutive visits are far apart.
fn stride(count: u64, random: u64) -> u64 {
    // Within an eighth of it, so that runs with different seeds walk differently.
    let golden = count * 618 / 1000 + random % (count / 8).max(1);
    (golden.max(1)..)
        .find(|&stride| greatest_common_divisor(stride, count) == 1)
        .expect("a prime above the count is among them")
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 {
        a
    } else {
        greatest_common_divisor(b, a % b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn churn(rate_per_s: f64, count: u64) -> Churn {
        Churn {
            rate_per_s,
            last: None,
            carried: 0.0,
            forgone: 0.0,
            count,
            cursor: 3 % count,
            stride: stride(count, 12345),
            joined: HashMap::new(),
            fresh: Vec::new(),
            measured_from: 0,
            departed: Vec::new(),
        }
    }

    #[test]
    fn everybody_leaves_once_before_anybody_leaves_twice() {
        for count in [1, 2, 3, 6, 97, 1000, 4096] {
            for random in 0..20 {
                let mut walk = churn(1.0, count);
                walk.stride = stride(count, mix(random));
                let mut left = vec![0; usize::try_from(count).unwrap()];
                for _ in 0..3 * count {
                    left[walk.next()] += 1;
                }
                assert!(left.iter().all(|&times| times == 3), "{count} {random}");
            }
        }
    }

    #[test]
    fn the_share_of_a_minute_leaves_in_a_minute_and_evenly() {
        // 1% of 50,000 a minute.
        let mut walk = churn(50_000.0 * 0.01 / 60.0, 50_000);
        assert_eq!(walk.due(Nanos(0)), 0, "the walk begins");
        let bursts: Vec<u64> = (1..=6000)
            .map(|step| walk.due(Nanos(step * 10_000_000)))
            .collect();
        assert!((499..=500).contains(&bursts.iter().sum::<u64>()));
        assert_eq!(bursts.iter().max(), Some(&1));
        assert!(walk.wait() >= STEP && walk.wait() <= Duration::from_millis(120));
    }

    #[test]
    fn a_stall_is_not_made_up_for() {
        let mut walk = churn(1000.0, 1_000_000);
        walk.due(Nanos(0));
        assert_eq!(walk.due(Nanos(60_000_000_000)), PER_TURN_MAX);
        assert_eq!(walk.due(Nanos(60_000_000_000)), 0);
        assert_eq!(truncate(walk.forgone), 60_000 - PER_TURN_MAX, "and noted");
    }

    #[test]
    fn who_joined_is_ahead_of_what_was_called_before() {
        let mut walk = churn(1.0, 10);
        assert!(!walk.is_ahead_of(4, 1) && !walk.is_unsettled());
        walk.note_joined(4);
        assert!(walk.is_ahead_of(4, 9), "not counted in yet");
        walk.count_in(7, 7);
        assert!(walk.is_ahead_of(4, 7) && !walk.is_ahead_of(4, 8) && !walk.is_ahead_of(5, 7));
        walk.count_in(9, 8);
        assert!(!walk.is_unsettled(), "7 has been measured");
        walk.note_joined(5);
        walk.count_in(9, 10);
        assert!(!walk.is_unsettled(), "nothing is being measured");
    }
}
