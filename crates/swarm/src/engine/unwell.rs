//! Terminals that are there and do not behave: those that stall, and those that vanish.
//!
//! One that stalls neither reads nor sends until it resumes. It belongs to no audience meanwhile, so that the reach of a
//! publication is that of the others; what it would have got is counted apart. One that vanishes lets nothing of its server
//! through any more but the end of the connection, and says nothing: its server has to find out.

use crate::clock::Nanos;
use crate::engine::crowd::World;
use crate::engine::plan::Plan;
use crate::engine::terminal::Phase;
use crate::failure::Failure;
use crate::measure::figures::{add, microseconds};
use hdrhistogram::Histogram;
use myriad_reactor::{Close, Reactor, Token};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

/// How long a terminal that reads again takes at most to read what was kept for it.
const CATCH_UP: Duration = Duration::from_secs(5);

/// Terminals that stalled or vanished; sums over threads are sums of fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UnwellTotals {
    /// Stopped reading; of them, those that read again, those whose connection has ended since, and those that stall now.
    pub stalled: u64,
    pub resumed: u64,
    pub ended: u64,
    pub stalling: u64,
    /// Publications of this run that came to terminals which stall or did, of those that were made meanwhile.
    pub received: u64,
    /// Answers that came to them after their messages were given up with the stall.
    pub late_answers: u64,
    /// Stopped answering anything; of them, those whose server has ended the connection.
    pub vanished: u64,
    pub noticed: u64,
    /// When the first vanished. Merged by minimum.
    pub vanished_from: Option<Nanos>,
}

impl UnwellTotals {
    /// Those that cannot be reached, and are so on purpose. One that was ended for it is still one of them.
    pub(crate) fn away(&self) -> u64 {
        self.stalled - self.resumed + self.vanished
    }

    /// Whether no more terminals resumed than stalled, and no count is above `most`, which is more than one machine can reach.
    pub(crate) fn are_sound(&self, most: u64) -> bool {
        self.resumed <= self.stalled && self.stalled <= most && self.vanished <= most
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.stalled += other.stalled;
        self.resumed += other.resumed;
        self.ended += other.ended;
        self.stalling += other.stalling;
        self.received += other.received;
        self.late_answers += other.late_answers;
        self.vanished += other.vanished;
        self.noticed += other.noticed;
        let from = [self.vanished_from, other.vanished_from];
        self.vanished_from = from.into_iter().flatten().min();
    }
}

/// How the connection of a terminal ended that stalls or did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StallEnd {
    /// By a close frame of the server, with this code.
    Closed(Option<u16>),
    /// Without one.
    Broken(Failure),
}

/// Figures of a thread's terminals that stalled or vanished.
#[derive(Clone, Debug)]
pub(crate) struct UnwellFigures {
    /// How the connections of those ended that stall or did.
    pub ends: BTreeMap<StallEnd, u64>,
    /// From when terminals stalled to the end of their connection, in microseconds.
    pub ended_after: Histogram<u64>,
    /// From when terminals vanished to the end of their connection, in microseconds.
    pub noticed_after: Histogram<u64>,
}

impl Default for UnwellFigures {
    fn default() -> Self {
        Self {
            ends: BTreeMap::new(),
            ended_after: microseconds(),
            noticed_after: microseconds(),
        }
    }
}

impl UnwellFigures {
    /// Adds those of another thread.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (end, count) in &other.ends {
            *self.ends.entry(*end).or_default() += count;
        }
        add(&mut self.ended_after, &other.ended_after);
        add(&mut self.noticed_after, &other.noticed_after);
    }
}

/// The terminals of one thread that stalled or vanished.
#[derive(Debug)]
pub(super) struct Unwell {
    /// Those that stall or did, and whose connection has not ended since.
    stalled: HashMap<u32, Stall>,
    /// Of them, those that are to read again, by number of the incident.
    resuming: HashMap<usize, Vec<Token>>,
    /// When those vanished whose server has not ended the connection yet.
    vanished: HashMap<u32, Nanos>,
    /// How long an answer may take.
    settle: Duration,
    /// What happened in this turn.
    pub(super) ends: Vec<(StallEnd, Duration)>,
    pub(super) noticed_after: Vec<Duration>,
}

/// A terminal that stalls or did.
#[derive(Debug)]
struct Stall {
    since: Nanos,
    /// When it began to read again.
    resumed: Option<Nanos>,
    /// Slots of its channels of which something came after it had caught up.
    caught_up: BTreeSet<usize>,
}

impl Stall {
    /// Whether it stalls, or resumed less than this long ago.
    fn is_recent(&self, within: Duration, now: Nanos) -> bool {
        self.resumed
            .is_none_or(|resumed| now.since(resumed) < within)
    }

    /// Whether publications may be missing before one that comes now: they may have been dropped during the stall. The first one
    /// after the terminal has caught up is the last that shows such a gap.
    fn excuses_gap(&mut self, slot: usize, now: Nanos) -> bool {
        self.is_recent(CATCH_UP, now) || self.caught_up.insert(slot)
    }
}

impl Unwell {
    /// None where nobody stalls or vanishes.
    pub(super) fn new(plan: &Plan) -> Option<Box<Self>> {
        let is_any = plan.incidents.iter().any(|one| one.what.is_unwell());
        is_any.then(|| {
            Box::new(Self {
                stalled: HashMap::new(),
                resuming: HashMap::new(),
                vanished: HashMap::new(),
                settle: plan
                    .answered
                    .map(|answered| answered.settle)
                    .or_else(|| plan.flows.as_ref().map(|flows| flows.settle))
                    .unwrap_or_default(),
                ends: Vec::new(),
                noticed_after: Vec::new(),
            })
        })
    }
}

impl World {
    fn unwell_mut(&mut self) -> &mut Unwell {
        self.unwell.as_mut().expect("terminals stall or vanish")
    }

    /// An open terminal stops reading and sending.
    pub(super) fn stall<R: Reactor>(
        &mut self,
        reactor: &mut R,
        index: usize,
        number: usize,
        now: Nanos,
    ) {
        let terminal = &mut self.terminals[index];
        assert_eq!(terminal.phase, Phase::Open);
        terminal.phase = Phase::Stalled;
        // The answer to a heartbeat that is under way says nothing of the server.
        terminal.waiting_since.0 = 0;
        let token = terminal.token(u32::try_from(index).expect("terminals are at most 2^32"));
        reactor.pause(terminal.socket(), token);
        self.note_open(token.index, false);
        self.note_stalling(token.index, true);
        self.totals.unwell.stalled += 1;
        let unwell = self.unwell_mut();
        let stall = Stall {
            since: now,
            resumed: None,
            caught_up: BTreeSet::new(),
        };
        unwell.stalled.insert(token.index, stall);
        unwell.resuming.entry(number).or_default().push(token);
        if let Some(membership) = &mut self.membership {
            membership.note_stalled(index);
        }
        if let Some(answered) = &mut self.answered {
            answered.sweep_soon();
        }
    }

    /// Lets up to so many terminals of an incident read again. Returns how many did; fewer: all have.
    pub(super) fn resume_some<R: Reactor>(
        &mut self,
        reactor: &mut R,
        number: usize,
        count: u64,
        now: Nanos,
    ) -> u64 {
        for done in 0..count {
            let resuming = self.unwell_mut().resuming.get_mut(&number);
            let Some(token) = resuming.and_then(Vec::pop) else {
                return done;
            };
            let Some(index) = self.current(token) else {
                continue;
            };
            if self.terminals[index].phase == Phase::Stalled {
                self.terminals[index].phase = Phase::Open;
                reactor.resume(self.terminals[index].socket(), token);
                self.note_stalling(token.index, false);
                self.note_open(token.index, true);
                self.note_newcomer(token.index);
                self.totals.unwell.resumed += 1;
                if let Some(stall) = self.unwell_mut().stalled.get_mut(&token.index) {
                    stall.resumed = Some(now);
                }
                if let Some(membership) = &mut self.membership {
                    membership.note_resumed(token.index);
                }
            }
        }
        count
    }

    /// An open terminal is gone without a word.
    pub(super) fn vanish<R: Reactor>(&mut self, reactor: &mut R, index: usize, now: Nanos) {
        let terminal = &mut self.terminals[index];
        assert_eq!(terminal.phase, Phase::Open);
        terminal.phase = Phase::Vanished;
        let number = u32::try_from(index).expect("terminals are at most 2^32");
        reactor.deafen(terminal.socket());
        self.note_open(number, false);
        self.totals.unwell.vanished += 1;
        self.totals.unwell.vanished_from.get_or_insert(now);
        self.unwell_mut().vanished.insert(number, now);
        if let Some(membership) = &mut self.membership {
            membership.note_departed(index);
        }
        if let Some(answered) = &mut self.answered {
            answered.sweep_soon();
        }
        // It keeps nothing, and what was not sent yet never is.
        self.leave_request(number);
        self.take_partial(number);
        self.outbox.forget(number);
    }

    /// Notes that a terminal's server may count it in for nothing that is made from now on, or that it may again.
    fn note_stalling(&mut self, index: u32, stalls: bool) {
        let target = self.target_index(index);
        let stalling = &mut self.notes.stalling_by_target[target];
        if stalls {
            *stalling += 1;
            self.totals.unwell.stalling += 1;
        } else {
            *stalling -= 1;
            self.totals.unwell.stalling -= 1;
        }
        self.notes.open_changed = true;
    }

    /// A terminal that stalls gives its socket back, or waits for the server's end of it.
    pub(super) fn leave_stall(&mut self, index: u32) {
        assert_eq!(self.terminals[index as usize].phase, Phase::Stalled);
        self.note_stalling(index, false);
    }

    /// The connection of a terminal ends: the next one is that of another client.
    pub(super) fn forget_stall(&mut self, index: u32) {
        if let Some(unwell) = &mut self.unwell
            && unwell.stalled.remove(&index).is_some()
            && let Some(membership) = &mut self.membership
        {
            membership.forget_absence(index);
        }
    }

    /// Notes how the connection of a terminal ended, if the terminal stalls or did: that end is counted apart. False for any other.
    pub(super) fn note_stall_end(&mut self, index: usize, end: StallEnd, now: Nanos) -> bool {
        let number = u32::try_from(index).expect("terminals are at most 2^32");
        let unwell = self.unwell.as_mut();
        let stall = unwell.and_then(|unwell| Some((unwell.stalled.remove(&number)?, unwell)));
        let Some((stall, unwell)) = stall else {
            return false;
        };
        unwell.ends.push((end, now.since(stall.since)));
        self.totals.unwell.ended += 1;
        if let Some(membership) = &mut self.membership {
            membership.forget_absence(number);
        }
        true
    }

    /// Whether an answer that is not awaited may be one to what a terminal sent before it stalled.
    pub(super) fn excuses_answer(&self, index: u32, now: Nanos) -> bool {
        self.unwell.as_ref().is_some_and(|unwell| {
            let stall = unwell.stalled.get(&index);
            stall.is_some_and(|stall| stall.is_recent(unwell.settle, now))
        })
    }

    /// Whether what is missing before a publication that came to a terminal may have been dropped because it stalled. To be asked of
    /// every publication that has an offset.
    pub(super) fn excuses_gap(&mut self, index: u32, slot: usize, now: Nanos) -> bool {
        let unwell = self.unwell.as_mut();
        let stall = unwell.and_then(|unwell| unwell.stalled.get_mut(&index));
        stall.is_some_and(|stall| stall.excuses_gap(slot, now))
    }

    /// The end of a connection whose terminal has vanished came through: the server has found out.
    pub(super) fn end_vanished<R: Reactor>(&mut self, reactor: &mut R, index: usize, now: Nanos) {
        let number = u32::try_from(index).expect("terminals are at most 2^32");
        let unwell = self.unwell_mut();
        if let Some(since) = unwell.vanished.remove(&number) {
            unwell.noticed_after.push(now.since(since));
            self.totals.unwell.noticed += 1;
        }
        self.end(reactor, index, Close::Reset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_caught_up_is_excused_once_in_each_channel() {
        let at = |seconds: u64| Nanos(seconds * 1_000_000_000);
        let mut stall = Stall {
            since: at(1),
            resumed: None,
            caught_up: BTreeSet::new(),
        };
        assert!(stall.excuses_gap(0, at(100)) && stall.excuses_gap(0, at(100)));
        stall.resumed = Some(at(101));
        assert!(stall.excuses_gap(0, at(105)) && stall.excuses_gap(0, at(105)));
        // What is rare may show only now what was dropped.
        assert!(stall.excuses_gap(0, at(106)) && !stall.excuses_gap(0, at(106)));
        assert!(stall.excuses_gap(1, at(300)) && !stall.excuses_gap(1, at(300)));
        let settle = Duration::from_secs(30);
        assert!(stall.is_recent(settle, at(130)) && !stall.is_recent(settle, at(131)));
    }
}
