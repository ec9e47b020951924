//! The figures, their names and units, and their summary over several rounds.

use serde::de::Error as _;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};

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
    PollAnswersPerS,
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

impl Unit {
    /// The title of an axis in this unit.
    pub(crate) fn quantity(self) -> &'static str {
        match self {
            Self::Bytes => "memory",
            Self::Count => "count",
            Self::PerSecond => "rate",
            Self::Milliseconds => "time",
            Self::Seconds => "time",
            Self::Share => "share of one core",
        }
    }
}

impl Column {
    pub(crate) const ALL: [Self; 25] = [
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
        Self::PollAnswersPerS,
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

    /// The column of a key; none for a key of another version.
    pub(crate) fn of_key(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|column| column.key() == key)
    }

    /// Whether the figure is a difference between two measurements. For a small crowd it can be zero or negative, and
    /// is then not shown.
    pub(crate) fn is_difference(self) -> bool {
        matches!(
            self,
            Self::UserBytesPerConnection
                | Self::RssBytesPerConnection
                | Self::HeapBytesPerConnection
                | Self::CpuSecondsPerMillionDeliveries
        )
    }

    /// False if the value only shows that the crowd was too small.
    pub(crate) fn is_measured(self, value: f64) -> bool {
        !self.is_difference() || value > 0.0
    }

    /// The short title, without the unit: figures carry theirs.
    pub(crate) fn title(self) -> &'static str {
        self.facts().1
    }

    /// The full title, for places without the group's title.
    pub(crate) fn full_title(self) -> &'static str {
        match self {
            Self::UserBytesPerConnection => "User space for each connection",
            Self::UserBaseBytes => "User space without a connection",
            Self::UserBytes => "User space with the whole crowd",
            Self::RssBytesPerConnection => "Resident memory for each connection",
            Self::RssBaseBytes => "Resident memory without a connection",
            Self::RssBytes => "Resident memory with the whole crowd",
            Self::HeapBytesPerConnection => "Heap for each connection",
            Self::HeapBaseBytes => "Heap without a connection",
            Self::SetupPerS => "Connections a second",
            Self::IdleCpuShare => "CPU while idle",
            Self::PushFirstMs => "Push: the first client has it",
            Self::PushP50Ms => "Push: half of the clients have it",
            Self::PushP99Ms => "Push: 99% of the clients have it",
            Self::PushLastMs => "Push: the last client has it",
            Self::CpuSecondsPerMillionDeliveries => "CPU for a million deliveries",
            Self::PollAnswersPerS => "Polls answered and asked again a second",
            Self::CrowdDownS => "All connections closed",
            Self::EchoPerS => "Echo: answers a second",
            Self::EchoP50Ms => "Echo: half of the answers",
            Self::EchoP99Ms => "Echo: 99% of the answers",
            Self::RequestPerS => "Requests: answers a second",
            Self::RequestP50Ms => "Requests: half of the answers",
            Self::RequestP99Ms => "Requests: 99% of the answers",
            Self::Errors => "Errors",
            Self::ConnectionsHeld => "Connections held",
        }
    }

    pub(crate) fn unit(self) -> Unit {
        self.facts().2
    }

    /// Whether more or less is better; none if neither is.
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
            Self::PollAnswersPerS => ("poll_answers_per_s", "answers", Unit::PerSecond, Some(Most)),
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

/// Shown when the crowd was too small for a difference to be measured.
pub(crate) const TOO_SMALL: &str = "crowd too small to measure";

/// A figure over all rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The middle one; the mean of both middle ones.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// Rounds that have it.
    pub rounds: usize,
    /// How many times worse than the best contestant's median; 1 is the best. None for a figure without better or
    /// worse.
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

    /// The larger distance to the median, as a share of it; none for one round, or if the median is 0.
    pub(crate) fn spread(&self) -> Option<f64> {
        let distance = (self.max - self.median).max(self.median - self.min);
        (self.rounds > 1 && self.median != 0.0).then(|| distance / self.median.abs())
    }
}

/// Figures of one contestant, by column.
pub(crate) type Summaries = BTreeMap<Column, Summary>;

/// All that was measured of one contestant, over all rounds.
///
/// In JSON: each median under its key, `null` if the crowd was too small; and `over_rounds`, the same with spread and
/// ratio to the best.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Measured {
    pub(crate) summaries: Summaries,
    /// Columns for which the crowd was too small.
    pub(crate) too_small: BTreeSet<Column>,
}

impl Measured {
    fn insert(&mut self, column: Column, summary: Summary) {
        if column.is_measured(summary.median) {
            self.summaries.insert(column, summary);
        } else {
            self.too_small.insert(column);
        }
    }
}

impl Serialize for Measured {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let over_rounds: BTreeMap<&str, &Summary> = self
            .summaries
            .iter()
            .map(|(column, summary)| (column.key(), summary))
            .collect();
        let medians = self
            .summaries
            .iter()
            .map(|(column, summary)| (column.key(), Some(summary.median)));
        let too_small = self.too_small.iter().map(|column| (column.key(), None));
        let medians: BTreeMap<&str, Option<f64>> = medians.chain(too_small).collect();
        let mut map = serializer.serialize_map(None)?;
        for (key, median) in &medians {
            map.serialize_entry(key, median)?;
        }
        map.serialize_entry("over_rounds", &over_rounds)?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for Measured {
    /// Keys that are no columns belong to the row, or to another version.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut fields = BTreeMap::<String, serde_json::Value>::deserialize(deserializer)?;
        let over_rounds = fields.remove("over_rounds").unwrap_or_default();
        let over_rounds: BTreeMap<String, Summary> = serde_json::from_value(over_rounds)
            .map_err(|error| D::Error::custom(format!("over_rounds: {error}")))?;
        let mut measured = Self::default();
        for (key, summary) in over_rounds {
            if let Some(column) = Column::of_key(&key) {
                measured.insert(column, summary);
            }
        }
        for (key, value) in fields {
            if let Some(column) = Column::of_key(&key)
                && column.is_difference()
                && value.is_null()
            {
                measured.too_small.insert(column);
            }
        }
        Ok(measured)
    }
}

/// Summarises the figures of several rounds.
pub(crate) fn summarize(rounds: &[Figures]) -> Measured {
    let mut measured = Measured::default();
    for column in Column::ALL {
        let values = rounds
            .iter()
            .filter_map(|round| round.get(&column).copied());
        if let Some(summary) = Summary::of(values.collect()) {
            measured.insert(column, summary);
        }
    }
    measured
}

/// Fills in the ratio to the best of each column.
pub(crate) fn compare(everybody: &mut [&mut Summaries]) {
    for column in Column::ALL {
        let Some(direction) = column.best() else {
            continue;
        };
        // A median of zero has no ratio.
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
        let odd = summarize(&rounds(column, &[30.0, 10.0, 20.0])).summaries[&column];
        assert_eq!(
            (odd.min, odd.median, odd.max, odd.rounds),
            (10.0, 20.0, 30.0, 3)
        );
        assert_eq!(odd.spread(), Some(0.5));
        let even = summarize(&rounds(column, &[10.0, 20.0])).summaries[&column];
        assert_eq!(even.median, 15.0);
        let one = summarize(&rounds(column, &[7.0])).summaries[&column];
        assert_eq!((one.median, one.spread()), (7.0, None));
        assert_eq!(summarize(&rounds(column, &[f64::NAN])), Measured::default());
    }

    #[test]
    fn a_round_without_a_figure_does_not_count_for_it() {
        let mut all = rounds(Column::Errors, &[0.0, 2.0]);
        all[1].insert(Column::PushLastMs, 5.0);
        let summaries = summarize(&all).summaries;
        assert_eq!(summaries[&Column::PushLastMs].rounds, 1);
        assert_eq!(summaries[&Column::Errors].rounds, 2);
    }

    fn ratios(column: Column, medians: [f64; 3]) -> [Option<f64>; 3] {
        let mut all = medians.map(|median| summarize(&rounds(column, &[median])).summaries);
        let [a, b, c] = &mut all;
        compare(&mut [a, b, c]);
        all.map(|summaries| summaries.get(&column)?.ratio_to_best)
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
    fn a_crowd_too_small_for_a_difference_leaves_no_figure_in_the_json() {
        for median in [-5.0, 0.0] {
            let measured = summarize(&rounds(Column::UserBytesPerConnection, &[median]));
            let json = serde_json::to_value(&measured).unwrap();
            assert_eq!(json["user_bytes_per_connection"], serde_json::Value::Null);
            assert_eq!(json["over_rounds"], serde_json::json!({}));
            assert_eq!(serde_json::from_value::<Measured>(json).unwrap(), measured);
        }
        // Other figures may be zero.
        let idle = summarize(&rounds(Column::IdleCpuShare, &[0.0]));
        assert!(idle.too_small.is_empty() && idle.summaries.len() == 1);
    }

    #[test]
    fn a_negative_figure_of_an_earlier_report_is_read_as_none() {
        let summary = r#"{"median":-5.0,"min":-5.0,"max":-5.0,"rounds":1,"ratio_to_best":null}"#;
        let text = format!(
            r#"{{"user_bytes_per_connection":-5.0,"later":1,"over_rounds":{{"later":{summary},"user_bytes_per_connection":{summary}}}}}"#
        );
        let measured: Measured = serde_json::from_str(&text).unwrap();
        assert!(measured.summaries.is_empty());
        assert!(measured.too_small.contains(&Column::UserBytesPerConnection));
    }

    #[test]
    fn keys_are_unique() {
        let keys: std::collections::BTreeSet<_> = Column::ALL.map(Column::key).into();
        assert_eq!(keys.len(), Column::ALL.len());
    }
}
