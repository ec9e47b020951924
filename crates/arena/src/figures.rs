//! What is measured, by name and unit, and what becomes of it over several rounds.

use serde::Serialize;
use std::collections::BTreeMap;

/// A figure of one contestant in one round. Its key has the unit in its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Column {
    UserBytesPerConnection,
    UserBaseBytes,
    UserBytes,
    RssBytesPerConnection,
    RssBaseBytes,
    RssBytes,
    HeapBytesPerConnection,
    HeapBaseBytes,
    SetupPerS,
    IdleCpuShare,
    PushFirstMs,
    PushP50Ms,
    PushP99Ms,
    PushLastMs,
    CpuSecondsPerMillionDeliveries,
    CrowdDownS,
    EchoPerS,
    EchoP50Ms,
    EchoP99Ms,
    RequestPerS,
    RequestP50Ms,
    RequestP99Ms,
    Errors,
    ConnectionsHeld,
}

/// Which figure of a column is the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Best {
    Least,
    Most,
}

/// How a figure is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Bytes,
    Count,
    PerSecond,
    Milliseconds,
    Seconds,
    Share,
}

impl Column {
    pub(crate) const ALL: [Self; 24] = [
        Self::UserBytesPerConnection,
        Self::UserBaseBytes,
        Self::UserBytes,
        Self::RssBytesPerConnection,
        Self::RssBaseBytes,
        Self::RssBytes,
        Self::HeapBytesPerConnection,
        Self::HeapBaseBytes,
        Self::SetupPerS,
        Self::IdleCpuShare,
        Self::PushFirstMs,
        Self::PushP50Ms,
        Self::PushP99Ms,
        Self::PushLastMs,
        Self::CpuSecondsPerMillionDeliveries,
        Self::CrowdDownS,
        Self::EchoPerS,
        Self::EchoP50Ms,
        Self::EchoP99Ms,
        Self::RequestPerS,
        Self::RequestP50Ms,
        Self::RequestP99Ms,
        Self::Errors,
        Self::ConnectionsHeld,
    ];

    pub(crate) fn key(self) -> &'static str {
        self.facts().0
    }

    /// For people, without the unit: figures are written with theirs.
    pub(crate) fn title(self) -> &'static str {
        self.facts().1
    }

    pub(crate) fn unit(self) -> Unit {
        self.facts().2
    }

    /// Which end is good; none where neither is.
    pub(crate) fn best(self) -> Option<Best> {
        self.facts().3
    }

    fn facts(self) -> (&'static str, &'static str, Unit, Option<Best>) {
        use Best::{Least, Most};
        match self {
            Self::UserBytesPerConnection => (
                "user_bytes_per_connection",
                "a connection",
                Unit::Bytes,
                Some(Least),
            ),
            Self::UserBaseBytes => ("user_base_bytes", "base", Unit::Bytes, Some(Least)),
            Self::UserBytes => ("user_bytes", "in all", Unit::Bytes, Some(Least)),
            Self::RssBytesPerConnection => (
                "rss_bytes_per_connection",
                "RSS a connection",
                Unit::Bytes,
                Some(Least),
            ),
            Self::RssBaseBytes => ("rss_base_bytes", "RSS base", Unit::Bytes, Some(Least)),
            Self::RssBytes => ("rss_bytes", "RSS in all", Unit::Bytes, Some(Least)),
            Self::HeapBytesPerConnection => (
                "heap_bytes_per_connection",
                "heap a connection",
                Unit::Bytes,
                Some(Least),
            ),
            Self::HeapBaseBytes => ("heap_base_bytes", "heap base", Unit::Bytes, Some(Least)),
            Self::SetupPerS => ("setup_per_s", "setup", Unit::PerSecond, Some(Most)),
            Self::IdleCpuShare => ("idle_cpu_share", "idle CPU", Unit::Share, None),
            Self::PushFirstMs => ("push_first_ms", "first", Unit::Milliseconds, Some(Least)),
            Self::PushP50Ms => ("push_p50_ms", "p50", Unit::Milliseconds, Some(Least)),
            Self::PushP99Ms => ("push_p99_ms", "p99", Unit::Milliseconds, Some(Least)),
            Self::PushLastMs => ("push_last_ms", "last", Unit::Milliseconds, Some(Least)),
            Self::CpuSecondsPerMillionDeliveries => (
                "cpu_s_per_million_deliveries",
                "CPU a million",
                Unit::Seconds,
                Some(Least),
            ),
            Self::CrowdDownS => ("crowd_down_s", "crowd down", Unit::Seconds, None),
            Self::EchoPerS => ("echo_per_s", "answers", Unit::PerSecond, Some(Most)),
            Self::EchoP50Ms => ("echo_p50_ms", "p50", Unit::Milliseconds, Some(Least)),
            Self::EchoP99Ms => ("echo_p99_ms", "p99", Unit::Milliseconds, Some(Least)),
            Self::RequestPerS => ("request_per_s", "answers", Unit::PerSecond, Some(Most)),
            Self::RequestP50Ms => ("request_p50_ms", "p50", Unit::Milliseconds, Some(Least)),
            Self::RequestP99Ms => ("request_p99_ms", "p99", Unit::Milliseconds, Some(Least)),
            Self::Errors => ("errors", "errors", Unit::Count, None),
            Self::ConnectionsHeld => ("connections_held", "held", Unit::Count, Some(Most)),
        }
    }
}

/// Figures of one round.
pub(crate) type Figures = BTreeMap<Column, f64>;

/// A figure over all rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The middle one; the mean of both middle ones.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// Rounds that have it.
    pub rounds: usize,
    /// How many times worse than the best contestant's median; 1 is the best. None where there is no better or worse.
    pub ratio_to_best: Option<f64>,
}

impl Summary {
    fn of(mut values: Vec<f64>) -> Option<Self> {
        values.retain(|value| value.is_finite());
        values.sort_by(f64::total_cmp);
        let (&min, &max) = (values.first()?, values.last()?);
        let middle = values.len() / 2;
        let median = if values.len().is_multiple_of(2) {
            f64::midpoint(values[middle - 1], values[middle])
        } else {
            values[middle]
        };
        Some(Self {
            median,
            min,
            max,
            rounds: values.len(),
            ratio_to_best: None,
        })
    }

    /// The larger distance to the median, as a share of it; none for one round, or around nothing.
    pub(crate) fn spread(&self) -> Option<f64> {
        let distance = (self.max - self.median).max(self.median - self.min);
        (self.rounds > 1 && self.median != 0.0).then(|| distance / self.median.abs())
    }
}

/// All figures of one contestant.
pub(crate) type Summaries = BTreeMap<Column, Summary>;

/// Of several rounds.
pub(crate) fn summarize(rounds: &[Figures]) -> Summaries {
    Column::ALL
        .into_iter()
        .filter_map(|column| {
            let values = rounds
                .iter()
                .filter_map(|round| round.get(&column).copied());
            Some((column, Summary::of(values.collect())?))
        })
        .collect()
}

/// Fills in the ratio to the best of each column.
pub(crate) fn compare(everybody: &mut [&mut Summaries]) {
    for column in Column::ALL {
        let Some(direction) = column.best() else {
            continue;
        };
        // A slope of nothing or less says that the crowd was too small to measure one: it is no best.
        let medians = everybody
            .iter()
            .filter_map(|summaries| summaries.get(&column))
            .map(|summary| summary.median)
            .filter(|median| *median > 0.0);
        let best = match direction {
            Best::Least => medians.reduce(f64::min),
            Best::Most => medians.reduce(f64::max),
        };
        let Some(best) = best else { continue };
        for summaries in everybody.iter_mut() {
            if let Some(summary) = summaries.get_mut(&column)
                && summary.median > 0.0
            {
                summary.ratio_to_best = Some(match direction {
                    Best::Least => summary.median / best,
                    Best::Most => best / summary.median,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(column: Column, values: &[f64]) -> Vec<Figures> {
        let one = |value: &f64| Figures::from([(column, *value)]);
        values.iter().map(one).collect()
    }

    #[test]
    fn the_middle_and_the_extremes_of_all_rounds_are_kept() {
        let column = Column::SetupPerS;
        let odd = summarize(&rounds(column, &[30.0, 10.0, 20.0]))[&column];
        assert_eq!(
            (odd.min, odd.median, odd.max, odd.rounds),
            (10.0, 20.0, 30.0, 3)
        );
        assert_eq!(odd.spread(), Some(0.5));
        let even = summarize(&rounds(column, &[10.0, 20.0]))[&column];
        assert_eq!(even.median, 15.0);
        let one = summarize(&rounds(column, &[7.0]))[&column];
        assert_eq!((one.median, one.spread()), (7.0, None));
        assert!(summarize(&rounds(column, &[f64::NAN])).is_empty());
    }

    #[test]
    fn a_round_without_a_figure_does_not_count_for_it() {
        let mut all = rounds(Column::Errors, &[0.0, 2.0]);
        all[1].insert(Column::PushLastMs, 5.0);
        let summaries = summarize(&all);
        assert_eq!(summaries[&Column::PushLastMs].rounds, 1);
        assert_eq!(summaries[&Column::Errors].rounds, 2);
    }

    fn ratios(column: Column, medians: [f64; 3]) -> [Option<f64>; 3] {
        let mut all = medians.map(|median| summarize(&rounds(column, &[median])));
        let [a, b, c] = &mut all;
        compare(&mut [a, b, c]);
        all.map(|summaries| summaries[&column].ratio_to_best)
    }

    #[test]
    fn a_ratio_says_how_many_times_worse() {
        assert_eq!(
            ratios(Column::PushLastMs, [4.0, 2.0, 6.0]),
            [Some(2.0), Some(1.0), Some(3.0)]
        );
        assert_eq!(
            ratios(Column::SetupPerS, [50.0, 100.0, 25.0]),
            [Some(2.0), Some(1.0), Some(4.0)]
        );
    }

    #[test]
    fn nothing_is_no_best_and_errors_have_no_ratio() {
        assert_eq!(
            ratios(Column::UserBytesPerConnection, [-5.0, 100.0, 200.0]),
            [None, Some(1.0), Some(2.0)]
        );
        assert_eq!(ratios(Column::Errors, [1.0, 2.0, 3.0]), [None; 3]);
    }

    #[test]
    fn keys_are_unique() {
        let keys: std::collections::BTreeSet<_> = Column::ALL.map(Column::key).into();
        assert_eq!(keys.len(), Column::ALL.len());
    }
}
