//! What the threads of a crowd have counted and timed, summed.

use crate::engine::comeback::ComebackFigures;
use crate::engine::flows::unstamped::Unstamped;
use crate::engine::shared::{Closes, Fatal, Shared, Stage, Totals};
use crate::engine::tls::TlsFigures;
use crate::engine::unwell::UnwellFigures;
use crate::failure::Failure;
use crate::measure::deliveries::{self, Deliveries};
use crate::measure::push::microseconds;
use crate::measure::round_trip::{Counts, RoundTrips};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;

/// The crowd's figures, summed over its threads.
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
    pub(super) fn sum(shared: &Shared) -> Self {
        let mut figures = Self {
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
        };
        for account in shared.accounts() {
            figures.totals.merge(&account.totals);
            figures.answered.merge(&account.answered.counts);
            figures.answered_ended &= account.answered_ended;
            figures.deliveries.merge(&account.deliveries.counts);
            figures.stall_expected += account.stall_expected;
            for (failure, count) in &account.failures {
                *figures.failures.entry(*failure).or_default() += count;
            }
            for (code, closes) in &account.closes {
                let sum = figures.closes.entry(*code).or_default();
                sum.count += closes.count;
                if sum.reason.is_empty() {
                    sum.reason.clone_from(&closes.reason);
                }
            }
            for (failure, answer) in &account.answers {
                let first = figures.answers.entry(*failure);
                first.or_insert_with(|| answer.clone());
            }
            let example = figures.unstamped.take();
            figures.unstamped = Unstamped::better(example, account.unstamped.as_ref());
            figures.stage = figures.stage.min(account.stage);
            figures.fatal = figures.fatal.take().or_else(|| account.fatal.clone());
        }
        figures
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
    pub(super) fn sum(shared: &Shared) -> Self {
        let mut times = Self {
            setup: microseconds(),
            pong: microseconds(),
            held: microseconds(),
            comebacks: ComebackFigures::default(),
            unwell: UnwellFigures::default(),
            tls: TlsFigures::default(),
            answered: RoundTrips::default(),
            deliveries: Deliveries::default(),
        };
        let grows = "a histogram that grows takes any other of its precision";
        for account in shared.accounts() {
            times.setup.add(&account.setup_times).expect(grows);
            times.pong.add(&account.pong_times).expect(grows);
            times.held.add(&account.held_times).expect(grows);
            times.comebacks.merge(&account.comebacks);
            times.unwell.merge(&account.unwell);
            times.tls.merge(&account.tls);
            times.answered.merge(&account.answered);
            times.deliveries.merge(&account.deliveries);
        }
        times
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
