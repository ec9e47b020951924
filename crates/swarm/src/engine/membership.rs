//! Who is counted for which publication, while terminals leave and join.
//!
//! Terminals leave and join while a publication is on its way. Its reach is exact only if each of them is known to be
//! before or after the publisher's roll call. [`World::enrol`] decides that at the end of a turn, under the lock of the
//! thread's account, which the roll call takes too. A terminal that was counted and left before the publication came is
//! not expected to receive it. A terminal that was not counted does not count as reached.

use crate::engine::crowd::World;
use crate::engine::plan::Plan;
use crate::engine::shared::Account;
use crate::measure::push::PushKey;
use myriad_reactor::Token;
use std::collections::HashMap;
use std::ops::RangeInclusive;

/// A roll call later than any: for terminals that joined in this turn and are not enrolled yet.
const NOT_ENROLLED: u64 = u64::MAX;

/// Who joined and left lately.
#[derive(Debug, Default)]
pub(super) struct Membership {
    /// Terminals that joined while publications were being measured, with the last roll call before they were
    /// counted in. Forgotten once those publications have been measured.
    joined: HashMap<u32, u64>,
    /// Those of `joined` that joined in this turn.
    fresh: Vec<u32>,
    /// Publications before this one have been measured, as of the last look.
    measured_from: u64,
    /// Terminals that left in this turn, with the last publication that they were not counted for because they had stalled.
    departed: Vec<(u32, u64)>,
    /// Terminals that stall or did, with the publications that they were not counted for because of it. The last is none that
    /// will be made while they stall.
    absences: HashMap<u32, RangeInclusive<u64>>,
    /// Terminals that stalled in this turn, and those that resumed.
    stalled: Vec<u32>,
    resumed: Vec<u32>,
}

impl Membership {
    /// None where nobody leaves.
    pub(super) fn new(plan: &Plan) -> Option<Self> {
        plan.is_changing().then(Self::default)
    }

    /// Notes that a terminal joined; it is counted from the next [`World::enrol`] on.
    pub(super) fn note_joined(&mut self, index: u32) {
        self.joined.insert(index, NOT_ENROLLED);
        self.fresh.push(index);
    }

    /// Notes that a terminal left on purpose.
    pub(super) fn note_departed(&mut self, index: usize) {
        let index = u32::try_from(index).expect("terminals are at most 2^32");
        // Its absence is forgotten with its connection, before the end of the turn.
        let absence = self.absences.get(&index);
        let absent_to = absence.map_or(0, |numbers| *numbers.end());
        self.departed.push((index, absent_to));
    }

    /// Notes that a terminal stalled: publications that have not come by the end of this turn are not expected there.
    pub(super) fn note_stalled(&mut self, index: usize) {
        let index = u32::try_from(index).expect("terminals are at most 2^32");
        match self.resumed.iter().position(|&resumed| resumed == index) {
            Some(at) => drop(self.resumed.swap_remove(at)),
            None => self.stalled.push(index),
        }
    }

    /// Notes that a terminal reads again; it is counted from the next [`World::enrol`] on.
    pub(super) fn note_resumed(&mut self, index: u32) {
        match self.stalled.iter().position(|&stalled| stalled == index) {
            Some(at) => drop(self.stalled.swap_remove(at)),
            None => self.resumed.push(index),
        }
    }

    /// Forgets that a terminal stalled, whose connection has ended.
    pub(super) fn forget_absence(&mut self, index: u32) {
        self.absences.remove(&index);
        self.stalled.retain(|&stalled| stalled != index);
        self.resumed.retain(|&resumed| resumed != index);
    }

    /// Gives those that resumed in this turn the last publication that they were not counted for.
    fn count_in_resumed(&mut self, called: u64) {
        for index in self.resumed.drain(..) {
            if let Some(absence) = self.absences.get_mut(&index) {
                *absence = *absence.start()..=called;
            }
        }
    }

    /// Whether a publication was made, or was on its way, while a terminal stalled.
    fn was_stalled_for(&self, index: u32, number: u64) -> bool {
        let absence = self.absences.get(&index);
        absence.is_some_and(|numbers| numbers.contains(&number))
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
    fn is_ahead_of(&self, index: u32, number: u64) -> bool {
        // Nearly always empty: it is filled only while a publication is under way.
        !self.joined.is_empty()
            && self
                .joined
                .get(&index)
                .is_some_and(|&called| number <= called)
    }

    /// Whether terminals joined or left since publications that are still being measured.
    pub(super) fn is_unsettled(&self) -> bool {
        let is_quiet = self.departed.is_empty()
            && self.joined.is_empty()
            && self.stalled.is_empty()
            && self.resumed.is_empty();
        !is_quiet
    }
}

impl World {
    /// Decides for those that joined and left in this turn which publications being measured count them.
    ///
    /// `measured_from` is the oldest of those publications or an older one. It was read before the account was locked.
    pub(super) fn enrol(&mut self, account: &mut Account, measured_from: u64) {
        let Some(mut membership) = self.membership.take() else {
            return;
        };
        let called = account.called;
        for (index, absent_to) in membership.departed.drain(..) {
            let joined = membership.joined.remove(&index).unwrap_or(0);
            let since = joined.max(absent_to);
            if since < called {
                self.strike(account, index, measured_from.max(since + 1)..=called);
            }
        }
        for index in std::mem::take(&mut membership.stalled) {
            let joined = membership.joined.remove(&index).unwrap_or(0);
            // What it has not read of an earlier stall is counted already.
            let earlier = membership.absences.remove(&index);
            let since = earlier.as_ref().map_or(joined, |it| joined.max(*it.end()));
            // One that joined in this turn has not been counted for anything.
            let since = since.min(called);
            let first = measured_from.max(since + 1);
            if since < called {
                account.stall_expected += self.strike(account, index, first..=called);
            }
            let first = earlier.map_or(first, |it| first.min(*it.start()));
            membership.absences.insert(index, first..=NOT_ENROLLED);
        }
        membership.count_in_resumed(called);
        membership.count_in(called, measured_from);
        self.membership = Some(membership);
    }

    /// Notes that a terminal left. Those of these publications that it had not received are no longer expected there. Returns how many
    /// they are.
    fn strike(&mut self, account: &mut Account, index: u32, numbers: RangeInclusive<u64>) -> u64 {
        let mut struck = 0;
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
                struck += 1;
            }
        }
        struck
    }

    /// Whether a publication of this run was made, or was on its way, while a terminal stalled.
    pub(super) fn was_stalled_for(&self, token: Token, stream: u16, sequence: u32) -> bool {
        let membership = self.membership.as_ref();
        membership.is_some_and(|membership| {
            !membership.absences.is_empty()
                && membership.was_stalled_for(token.index, self.plan.number_of(stream, sequence))
        })
    }

    /// How many of the `count` publications of a stream right before this one a terminal has missed. Nobody misses those that were
    /// refused. What did not come to one that stalled is known from what was to come.
    pub(super) fn missing_before(
        &self,
        token: Token,
        stream: u16,
        sequence: u32,
        count: u32,
    ) -> u64 {
        let ledger = &self.shared.ledger;
        let membership = self.membership.as_ref();
        if membership.is_none_or(|membership| !membership.absences.contains_key(&token.index)) {
            let refused = ledger.refused_before(stream, sequence, count);
            return u64::from(count.saturating_sub(refused));
        }
        let is_missing = |before: &u32| {
            let is_refused = ledger.refused_before(stream, before + 1, 1) > 0;
            !is_refused && !self.was_stalled_for(token, stream, *before)
        };
        let before = sequence.saturating_sub(count).max(1)..sequence;
        before.filter(is_missing).count() as u64
    }

    /// Whether a publication of this run counts as received at a terminal: the terminal was there at the roll call. A
    /// terminal that connected later got it from the server's history.
    pub(super) fn was_called(&self, token: Token, stream: u16, sequence: u32) -> bool {
        let Some(membership) = &self.membership else {
            return true;
        };
        let number = self.plan.number_of(stream, sequence);
        let replaces = self.terminals[token.index as usize].attempts_before() > 0;
        // Who joined before what has been measured is forgotten: there, a client that replaces another has no claim.
        let is_past = self.is_replacing() && number < membership.measured_from;
        let is_later = membership.is_ahead_of(token.index, number) || (replaces && is_past);
        !is_later
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_joined_is_ahead_of_what_was_called_before() {
        let mut membership = Membership::default();
        assert!(!membership.is_ahead_of(4, 1) && !membership.is_unsettled());
        membership.note_joined(4);
        assert!(membership.is_ahead_of(4, 9), "not counted in yet");
        membership.count_in(7, 7);
        assert!(membership.is_ahead_of(4, 7) && !membership.is_ahead_of(4, 8));
        assert!(!membership.is_ahead_of(5, 7));
        membership.count_in(9, 8);
        assert!(!membership.is_unsettled(), "7 has been measured");
        membership.note_joined(5);
        membership.count_in(9, 10);
        assert!(!membership.is_unsettled(), "nothing is being measured");
    }

    #[test]
    fn who_stalls_is_counted_for_nothing_until_it_resumes() {
        let mut membership = Membership::default();
        membership.note_stalled(4);
        assert!(membership.is_unsettled());
        membership.stalled.clear();
        membership.absences.insert(4, 3..=NOT_ENROLLED);
        assert!(membership.was_stalled_for(4, 3) && membership.was_stalled_for(4, 99));
        assert!(!membership.was_stalled_for(4, 2) && !membership.was_stalled_for(5, 3));
        membership.note_resumed(4);
        membership.count_in_resumed(7);
        assert!(membership.was_stalled_for(4, 7) && !membership.was_stalled_for(4, 8));
        membership.note_departed(4);
        membership.forget_absence(4);
        assert_eq!(membership.departed, [(4, 7)], "never counted up to 7");
        membership.departed.clear();
        assert!(!membership.was_stalled_for(4, 7) && !membership.is_unsettled());
    }
}
