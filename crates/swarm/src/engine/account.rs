//! The end of a turn: its figures go into the thread's account.

use crate::clock::Nanos;
use crate::engine::crowd::World;
use crate::engine::flows::unstamped::Examples;
use crate::engine::membership::Membership;
use crate::engine::session::Delivered;
use crate::engine::shared::{Account, Stage};
use crate::failure::{Failure, add_failures};
use crate::measure::figures::record;
use crate::measure::process::thread_time;
use crate::measure::push::{Base, PushKey, Tally};
use hdrhistogram::Histogram;
use std::sync::Arc;
use std::time::Duration;

/// Publications whose start time a thread remembers. For others it asks the ledger.
const BASES_MAX: usize = 1024;

/// How often a thread notes its processor time.
const CPU_NOTED_EVERY: Duration = Duration::from_millis(100);

/// Figures of one turn that the account keeps in maps.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) failures: Vec<Failure>,
    pub(super) answers: Vec<(Failure, Vec<u8>)>,
    /// Codes and reasons.
    pub(super) closes: Vec<(Option<u16>, String)>,
    pub(super) setup_times: Vec<Duration>,
    pub(super) pong_times: Vec<Duration>,
    pub(super) answer_times: Vec<Duration>,
    /// How long polls were held that ended without a delivery.
    pub(super) held_times: Vec<Duration>,
    /// How long terminals were away that are back, and why attempts to come back failed.
    pub(super) comeback_times: Vec<Duration>,
    pub(super) comeback_failures: Vec<Failure>,
    /// Deliveries of what terminals published, those that its replies promise, and those of what has no reply.
    pub(super) delivered: Vec<Delivered>,
    pub(super) deliveries_expected: u64,
    pub(super) deliveries_possible: u64,
    /// Messages in which no stamp was found.
    pub(super) unstamped: Examples,
    pub(super) open_by_target: Vec<u32>,
    /// Terminals that stall.
    pub(super) stalling_by_target: Vec<u32>,
    pub(super) open_changed: bool,
}

impl World {
    /// Brings the account up to date with this turn.
    pub(super) fn settle_account(&mut self, arrived: Nanos, stage: Stage) {
        self.totals.connecting = u64::from(self.opening.under_way());
        self.totals.http.reopening = self.reopening_count();
        let window = self.opening.window();
        self.totals.window = u64::from(window.size());
        self.totals.window_least = u64::from(window.least());
        self.look_up_bases(arrived);
        let shared = Arc::clone(&self.shared);
        let is_unsettled = self
            .membership
            .as_ref()
            .is_some_and(Membership::is_unsettled);
        let measured_from = is_unsettled.then(|| shared.ledger.measured_from());
        let mut account = shared.account(self.part.thread as usize);
        account.stage = stage;
        if let Some(measured_from) = measured_from {
            self.enrol(&mut account, measured_from);
        }
        // A system call, for turns alone in which publications came: how busy a fan-out keeps this thread.
        let processor_time = (!self.arrivals.counts_mut().is_empty()).then(thread_time);
        for (key, count) in self.arrivals.counts_mut().drain(..) {
            match self.bases.get(&key) {
                Some(&Base::Open(base)) => {
                    let tally = account
                        .tallies
                        .entry(key)
                        .or_insert_with(|| Tally::new(base));
                    tally.record(arrived, count);
                    if let Some(processor_time) = processor_time {
                        tally.note_processor_time(processor_time);
                    }
                }
                _ => self.totals.unmeasured += count,
            }
        }
        for failure in self.notes.failures.drain(..) {
            add_failures(&mut account.failures, failure, 1);
        }
        account.answers.extend(self.notes.answers.drain(..));
        if let Some(example) = self.notes.unstamped.take_new() {
            account.unstamped = Some(example);
        }
        for (code, reason) in self.notes.closes.drain(..) {
            let close = account.closes.entry(code).or_default();
            close.count += 1;
            if close.reason.is_empty() {
                close.reason = reason;
            }
        }
        record_all(&mut self.notes.setup_times, &mut account.setup_times);
        record_all(&mut self.notes.pong_times, &mut account.pong_times);
        record_all(&mut self.notes.held_times, &mut account.held_times);
        self.settle_answered(&mut account, arrived);
        self.settle_comebacks(&mut account);
        self.settle_unwell(&mut account);
        if std::mem::take(&mut self.notes.open_changed) {
            account
                .open_by_target
                .copy_from_slice(&self.notes.open_by_target);
            account
                .stalling_by_target
                .copy_from_slice(&self.notes.stalling_by_target);
        }
        account.totals = self.totals;
        // A system call, unlike the other clocks: once in a while is enough to see a thread saturated.
        if arrived.since(self.cpu_noted) >= CPU_NOTED_EVERY {
            self.cpu_noted = arrived;
            account.cpu_time = thread_time();
        }
    }

    /// What this turn brought of messages that the server answers.
    fn settle_answered(&mut self, account: &mut Account, arrived: Nanos) {
        let Some(answered) = &self.answered else {
            return;
        };
        (account.answered.counts, account.answered_ended) = answered.account();
        for time in self.notes.answer_times.drain(..) {
            account.answered.record(time);
        }
        let deliveries = &mut account.deliveries;
        deliveries.counts.expected += std::mem::take(&mut self.notes.deliveries_expected);
        deliveries.counts.possible += std::mem::take(&mut self.notes.deliveries_possible);
        for (time, count) in self.notes.delivered.drain(..) {
            deliveries.record(time, count, arrived);
        }
    }

    /// What this turn brought of terminals that come back.
    fn settle_comebacks(&mut self, account: &mut Account) {
        if self.comebacks.is_none() {
            return;
        }
        for failure in self.notes.comeback_failures.drain(..) {
            add_failures(&mut account.comebacks.failures, failure, 1);
        }
        record_all(&mut self.notes.comeback_times, &mut account.comebacks.times);
        account.comebacks.storms.clone_from(&self.storms);
    }

    /// What this turn brought of terminals that stall or vanish.
    fn settle_unwell(&mut self, account: &mut Account) {
        let Some(unwell) = &mut self.unwell else {
            return;
        };
        for (end, after) in unwell.ends.drain(..) {
            *account.unwell.ends.entry(end).or_default() += 1;
            record(&mut account.unwell.ended_after, after);
        }
        record_all(&mut unwell.noticed_after, &mut account.unwell.noticed_after);
    }

    /// Looks up the start times of publications that are new to this thread.
    fn look_up_bases(&mut self, arrived: Nanos) {
        if self.bases.len() > BASES_MAX {
            self.bases.clear();
        }
        for &(key, _) in self.arrivals.counts_mut().iter() {
            // A foreign message may return after its measurement has ended, so only the ledger knows.
            let foreign = matches!(key, PushKey::Foreign(_));
            if foreign || !self.bases.contains_key(&key) {
                self.bases
                    .insert(key, self.shared.ledger.base(key, arrived));
            }
        }
    }
}

fn record_all(times: &mut Vec<Duration>, histogram: &mut Histogram<u64>) {
    for time in times.drain(..) {
        record(histogram, time);
    }
}
