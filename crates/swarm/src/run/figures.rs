//! What the threads of a crowd have counted and timed, summed.

use crate::engine::comeback::ComebackFigures;
use crate::engine::flows::unstamped::Unstamped;
use crate::engine::shared::{Account, Closes, Fatal, Shared, Stage, Totals};
use crate::engine::tls::TlsFigures;
use crate::engine::unwell::UnwellFigures;
use crate::failure::{Failure, add_failures};
use crate::measure::deliveries::{self, Deliveries};
use crate::measure::figures::{add, microseconds};
use crate::measure::round_trip::{Counts, RoundTrips};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;

/// Most examples of what the server said.
const ANSWERS_MAX: usize = 256;

/// The figures of a crowd, or of an agent's part of it, summed over its threads.
#[derive(Debug)]
pub(crate) struct Figures {
    pub totals: Totals,
    pub failures: BTreeMap<Failure, u64>,
    pub closes: BTreeMap<Option<u16>, Closes>,
    /// The first bytes that the server answered, by the failure that this was.
    pub answers: BTreeMap<Failure, Vec<u8>>,
    /// A message in which no stamp of a flow was found.
    pub unstamped: Option<Unstamped>,
    pub answered: Counts,
    /// Each thread has ended its part of that schedule. Then it is final how many deliveries are to come.
    pub answered_ended: bool,
    pub deliveries: deliveries::Counts,
    /// Deliveries that would have come to terminals that stall.
    pub stall_expected: u64,
    /// The least advanced thread's.
    pub stage: Stage,
    pub fatal: Option<Fatal>,
}

impl Figures {
    /// Of no thread.
    pub(crate) fn none() -> Self {
        Self {
            totals: Totals::default(),
            failures: BTreeMap::new(),
            closes: BTreeMap::new(),
            answers: BTreeMap::new(),
            unstamped: None,
            answered: Counts::default(),
            answered_ended: true,
            deliveries: deliveries::Counts::default(),
            stall_expected: 0,
            stage: Stage::Gone,
            fatal: None,
        }
    }

    pub(super) fn sum(shared: &Shared) -> Self {
        let mut figures = Self::none();
        shared.accounts().for_each(|account| figures.add(&account));
        figures
    }

    /// With the times, each account's at one moment: a message that comes meanwhile is in both or in neither.
    pub(super) fn sum_with_times(shared: &Shared) -> (Self, Times) {
        let (mut figures, mut times) = (Self::none(), Times::none());
        shared.accounts().for_each(|account| {
            figures.add(&account);
            times.add(&account);
        });
        (figures, times)
    }

    /// Adds those of another thread.
    pub(crate) fn add(&mut self, account: &Account) {
        self.totals.merge(&account.totals);
        self.answered.merge(&account.answered.counts);
        self.answered_ended &= account.answered_ended;
        self.deliveries.merge(&account.deliveries.counts);
        self.stall_expected += account.stall_expected;
        for (failure, count) in &account.failures {
            add_failures(&mut self.failures, *failure, *count);
        }
        for (code, closes) in &account.closes {
            let sum = self.closes.entry(*code).or_default();
            sum.count += closes.count;
            if sum.reason.is_empty() {
                sum.reason.clone_from(&closes.reason);
            }
        }
        for (failure, answer) in &account.answers {
            let has_room = self.answers.len() < ANSWERS_MAX;
            if has_room || self.answers.contains_key(failure) {
                let first = self.answers.entry(*failure);
                first.or_insert_with(|| answer.clone());
            }
        }
        let example = self.unstamped.take();
        self.unstamped = Unstamped::better(example, account.unstamped.as_ref());
        self.stage = self.stage.min(account.stage);
        self.fatal = self.fatal.take().or_else(|| account.fatal.clone());
    }
}

/// What the threads measured of single connections, summed. Apart from [`Figures`], which are wanted at every tick.
#[derive(Debug)]
pub(crate) struct Times {
    pub setup: Histogram<u64>,
    pub pong: Histogram<u64>,
    pub held: Histogram<u64>,
    pub comebacks: ComebackFigures,
    pub unwell: UnwellFigures,
    pub tls: TlsFigures,
    /// With their counts.
    pub answered: RoundTrips,
    pub deliveries: Deliveries,
}

impl Times {
    /// Of no thread.
    pub(crate) fn none() -> Self {
        Self {
            setup: microseconds(),
            pong: microseconds(),
            held: microseconds(),
            comebacks: ComebackFigures::default(),
            unwell: UnwellFigures::default(),
            tls: TlsFigures::default(),
            answered: RoundTrips::default(),
            deliveries: Deliveries::default(),
        }
    }

    pub(super) fn sum(shared: &Shared) -> Self {
        let mut times = Self::none();
        shared.accounts().for_each(|account| times.add(&account));
        times
    }

    /// Adds those of another thread.
    pub(crate) fn add(&mut self, account: &Account) {
        add(&mut self.setup, &account.setup_times);
        add(&mut self.pong, &account.pong_times);
        add(&mut self.held, &account.held_times);
        self.comebacks.merge(&account.comebacks);
        self.unwell.merge(&account.unwell);
        self.tls.merge(&account.tls);
        self.answered.merge(&account.answered);
        self.deliveries.merge(&account.deliveries);
    }
}

/// Close frames by code.
pub(crate) fn closes(figures: &Figures) -> BTreeMap<String, u64> {
    let closes = figures.closes.iter();
    closes
        .map(|(&code, closes)| (name_of_close(code), closes.count))
        .collect()
}

/// `1001`, or `none`.
pub(crate) fn name_of_close(code: Option<u16>) -> String {
    code.map_or_else(|| "none".to_owned(), |code| code.to_string())
}
