//! Which publications that a client missed pass its filter by tags.
//!
//! A client may have missed hundreds, and to compare its filter with one of them may take as long as hundreds of deliveries. So a turn
//! compares as much as a slice of a delivery costs, and the rest later. By then the home's answer is old, because deliveries skip a waiting
//! subscription. So the shard asks the home once more, for what came meanwhile. Each waiting answer gets a part of a turn, so one client
//! holds up nobody for long.
//!
//! Changes `hub` and `sessions`; sends by `mesh`.

use super::granted::since;
use crate::mesh::Message;
use crate::shard::Shard;
use myriad_hub::{Kept, Now, Recover, Recovered, RecoveryMode, SubscriptionId};
use myriad_reactor::Reactor;
use std::collections::VecDeque;

/// Each waiting answer may have this part of a slice in a turn. So a small answer is compared whole, however many large ones wait. The cost
/// of recoveries under way bounds how many wait.
const PARTS_OF_A_SLICE: usize = 8;

/// What of earlier answers has passed.
#[derive(Debug, Default)]
pub(super) struct Sifted {
    passed: Vec<Kept>,
    /// Publications in those answers: the bound of a recovery counts them all.
    compared: u32,
}

/// An answer that is being compared.
#[derive(Debug)]
struct Sift {
    recovered: Recovered,
    /// The next publication of the answer.
    next: usize,
    passed: Vec<Kept>,
}

/// The answers of which a shard has compared a part.
#[derive(Debug, Default)]
pub(super) struct Sifting {
    waiting: VecDeque<Sift>,
    /// The cost that this turn has left, in members that could be delivered to.
    budget: usize,
}

impl Sifting {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }
}

impl<R: Reactor> Shard<R> {
    /// Goes on with what waits; once in a turn.
    pub(crate) fn sift_missed(&mut self, now: Now) {
        self.sessions.sifting.budget = self.settings.slice_max;
        for _ in 0..self.sessions.sifting.len() {
            if let Some(sift) = self.sessions.sifting.waiting.pop_front() {
                self.sift(sift, now);
            }
        }
    }

    /// The home has answered what a client missed.
    pub(crate) fn handle_recovered(&mut self, recovered: Recovered, now: Now) {
        let sift = Sift {
            recovered,
            next: 0,
            passed: Vec::new(),
        };
        self.sift(sift, now);
    }

    fn sift(&mut self, mut sift: Sift, now: Now) {
        let Some(subscription) = self.filtered(&sift.recovered) else {
            return self.end_recovery(sift.recovered, now);
        };
        let was_put_off = sift.next > 0;
        if !self.compare_some(&mut sift, subscription) {
            return self.sessions.sifting.waiting.push_back(sift);
        }
        let Some(pending) = self.sessions.pending.get_mut(&subscription) else {
            return self.end_recovery(sift.recovered, now);
        };
        let sifted = pending.sifted.get_or_insert_default();
        sifted.compared += u32::try_from(sift.next).unwrap_or(u32::MAX);
        sifted.passed.append(&mut sift.passed);
        if was_put_off {
            let compared = sifted.compared;
            return self.ask_what_came(&sift.recovered, compared);
        }
        let passed = std::mem::take(&mut sifted.passed);
        sift.recovered.publications = Ok(passed);
        self.end_recovery(sift.recovered, now);
    }

    /// The subscription that an answer is about, if it waits for that, and has a filter for something in it.
    fn filtered(&self, recovered: &Recovered) -> Option<SubscriptionId> {
        recovered.publications.as_ref().ok()?;
        let subscription = self.awaiting(recovered)?;
        self.hub.has_filter(subscription).then_some(subscription)
    }

    /// Compares as much of an answer as may be now; whether that was all of it.
    fn compare_some(&mut self, sift: &mut Sift, subscription: SubscriptionId) -> bool {
        let publications = sift.recovered.publications.as_deref();
        let missed = publications.unwrap_or_default();
        let part = (self.settings.slice_max / PARTS_OF_A_SLICE).max(1);
        let sifting = &mut self.sessions.sifting;
        let (had, mut left) = (sifting.budget, sifting.budget.max(part));
        while let Some(kept) = missed.get(sift.next)
            && left > 0
        {
            let (passes, cost) = self.hub.compare(subscription, &kept.content);
            left = left.saturating_sub(cost);
            sift.next += 1;
            if passes {
                sift.passed.push(kept.clone());
            }
        }
        sifting.budget = left.min(had);
        sift.next == missed.len()
    }

    /// Asks for what came while an answer was compared: its subscription has missed that, too.
    fn ask_what_came(&mut self, recovered: &Recovered, compared: u32) {
        let max = self.settings.client.recovery_max_publication_limit;
        let position = recovered.position;
        let recover = Recover {
            channel: recovered.channel.clone(),
            ticket: recovered.ticket,
            since: since(position.offset, position.epoch.as_str()),
            // Of a cache there is one publication, which is never put off.
            mode: RecoveryMode::Stream,
            is_asked: true,
            max: max.saturating_sub(compared),
        };
        let home = self.mesh.home_of(&recovered.channel);
        self.send_message(home, Message::Recover(Box::new(recover)));
    }
}
