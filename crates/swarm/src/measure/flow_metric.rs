//! Figures of flows, for thresholds: `flow:NAME:p99` of one, `flows:missing` of all.

use crate::measure::figures::{float, share};
use crate::measure::quantile::Quantile;
use myriad_report::{FlowReport, Unit};

/// A figure of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowMetric {
    /// A time from when a message was due to each of its deliveries.
    Delivery(Quantile),
    /// A time from when it was due to its last one, of complete messages.
    ToLast(Quantile),
    /// A time from when a request was due to its answer.
    Answer(Quantile),
    /// Deliveries a second.
    Rate,
    /// Deliveries that came, as a share of those that were expected.
    Reach,
    /// A number of messages or deliveries.
    Count(FlowCount),
}

/// What is counted of a flow; [`FlowReport`] says what each is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowCount {
    Sent,
    Unsent,
    Complete,
    Expected,
    Received,
    Missing,
    Away,
    Replayed,
    Duplicated,
    OutOfOrder,
    Unexpected,
    Late,
    Refused,
    Unanswered,
}

/// Which flows a figure is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// The one of this name.
    Named(String),
    /// All: a number is the sum, a time and a reach are those of the worst.
    All,
}

impl FlowMetric {
    /// By name.
    const ALL: [(&'static str, Self); 34] = [
        ("last:mean", Self::ToLast(Quantile::Mean)),
        ("last:p50", Self::ToLast(Quantile::P50)),
        ("last:p90", Self::ToLast(Quantile::P90)),
        ("last:p99", Self::ToLast(Quantile::P99)),
        ("last:p99.9", Self::ToLast(Quantile::P999)),
        ("last:max", Self::ToLast(Quantile::Max)),
        ("answer:mean", Self::Answer(Quantile::Mean)),
        ("answer:p50", Self::Answer(Quantile::P50)),
        ("answer:p90", Self::Answer(Quantile::P90)),
        ("answer:p99", Self::Answer(Quantile::P99)),
        ("answer:p99.9", Self::Answer(Quantile::P999)),
        ("answer:max", Self::Answer(Quantile::Max)),
        ("mean", Self::Delivery(Quantile::Mean)),
        ("p50", Self::Delivery(Quantile::P50)),
        ("p90", Self::Delivery(Quantile::P90)),
        ("p99", Self::Delivery(Quantile::P99)),
        ("p99.9", Self::Delivery(Quantile::P999)),
        ("max", Self::Delivery(Quantile::Max)),
        ("rate", Self::Rate),
        ("reach", Self::Reach),
        ("sent", Self::Count(FlowCount::Sent)),
        ("unsent", Self::Count(FlowCount::Unsent)),
        ("complete", Self::Count(FlowCount::Complete)),
        ("expected", Self::Count(FlowCount::Expected)),
        ("received", Self::Count(FlowCount::Received)),
        ("missing", Self::Count(FlowCount::Missing)),
        ("away", Self::Count(FlowCount::Away)),
        ("replayed", Self::Count(FlowCount::Replayed)),
        ("duplicated", Self::Count(FlowCount::Duplicated)),
        ("out-of-order", Self::Count(FlowCount::OutOfOrder)),
        ("unexpected", Self::Count(FlowCount::Unexpected)),
        ("late", Self::Count(FlowCount::Late)),
        ("refused", Self::Count(FlowCount::Refused)),
        ("unanswered", Self::Count(FlowCount::Unanswered)),
    ];

    /// Reads `flow:NAME:FIGURE` or `flows:FIGURE`.
    pub(super) fn parse(text: &str) -> Option<(Self, Which)> {
        let of_name = |figure: &str| {
            let mut all = Self::ALL.into_iter();
            all.find_map(|(known, metric)| (known == figure).then_some(metric))
        };
        if let Some(figure) = text.strip_prefix("flows:") {
            return Some((of_name(figure)?, Which::All));
        }
        let (name, figure) = text.strip_prefix("flow:")?.split_once(':')?;
        Some((of_name(figure)?, Which::Named(name.to_owned())))
    }

    /// The names, for those who wrote another one.
    pub(super) fn names() -> String {
        let figures: Vec<&str> = Self::ALL.iter().map(|(name, _)| *name).collect();
        format!("flow:NAME: and flows: with {}", figures.join(", "))
    }

    pub(super) fn unit(self) -> Unit {
        match self {
            Self::Delivery(_) | Self::ToLast(_) | Self::Answer(_) => Unit::Milliseconds,
            Self::Rate => Unit::PerSecond,
            Self::Reach => Unit::Ratio,
            Self::Count(_) => Unit::Count,
        }
    }

    /// The figure of some flows; none when it was never measured.
    pub(crate) fn of(self, flows: &[FlowReport], which: &Which) -> Option<f64> {
        let is_meant = |flow: &&FlowReport| match which {
            Which::Named(name) => flow.name == *name,
            Which::All => true,
        };
        let figures = flows
            .iter()
            .filter(is_meant)
            .filter_map(|flow| match which {
                Which::Named(_) => self.of_one(flow),
                Which::All => self.of_one(flow).or_else(|| self.of_silent(flow)),
            });
        match self {
            Self::Count(_) | Self::Rate => figures.reduce(|sum, more| sum + more),
            Self::Reach => figures.reduce(f64::min),
            Self::Delivery(_) | Self::ToLast(_) | Self::Answer(_) => figures.reduce(f64::max),
        }
    }

    fn of_one(self, flow: &FlowReport) -> Option<f64> {
        match self {
            Self::Delivery(quantile) => quantile.of(&flow.since_due_ms),
            Self::ToLast(quantile) => quantile.of(&flow.to_last_ms),
            Self::Answer(quantile) => quantile.of(&flow.answered_ms),
            Self::Rate => Some(flow.received_per_s),
            Self::Reach => share(flow.received, flow.expected),
            Self::Count(count) => Some(float(count.of(flow))),
        }
    }

    /// The figure of a flow that has none because nothing came of what was to come: it is worse than all others. None where nothing
    /// was to come, or where it may still come.
    fn of_silent(self, flow: &FlowReport) -> Option<f64> {
        let failed = flow.refused + flow.unanswered;
        // A message that the server did not take is not expected anywhere.
        let is_lost = flow.missing > 0 || (failed > 0 && failed >= flow.sent);
        match self {
            Self::Delivery(_) | Self::ToLast(_) => is_lost.then_some(f64::INFINITY),
            Self::Answer(_) => (failed > 0).then_some(f64::INFINITY),
            Self::Reach => is_lost.then_some(0.0),
            Self::Rate | Self::Count(_) => None,
        }
    }
}

impl FlowCount {
    fn of(self, flow: &FlowReport) -> u64 {
        match self {
            Self::Sent => flow.sent,
            Self::Unsent => flow.unsent,
            Self::Complete => flow.complete,
            Self::Expected => flow.expected,
            Self::Received => flow.received,
            Self::Missing => flow.missing,
            Self::Away => flow.away,
            Self::Replayed => flow.replayed,
            Self::Duplicated => flow.duplicated,
            Self::OutOfOrder => flow.out_of_order,
            Self::Unexpected => flow.unexpected,
            Self::Late => flow.late,
            Self::Refused => flow.refused,
            Self::Unanswered => flow.unanswered,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_report::RoundTripTimes;

    fn flow(name: &str, missing: u64, p99: f64) -> FlowReport {
        FlowReport {
            name: name.to_owned(),
            expected: 100,
            received: 100 - missing,
            missing,
            since_due_ms: RoundTripTimes {
                p99: Some(p99),
                ..RoundTripTimes::default()
            },
            ..FlowReport::default()
        }
    }

    #[test]
    fn a_figure_is_of_one_flow_or_of_all() {
        let flows = [flow("chat", 1, 20.0), flow("history", 3, 10.0)];
        let figure = |text: &str| {
            let (metric, which) = FlowMetric::parse(text).expect("a figure");
            metric.of(&flows, &which)
        };
        assert_eq!(figure("flow:history:p99"), Some(10.0));
        assert_eq!(figure("flows:p99"), Some(20.0));
        assert_eq!(figure("flows:missing"), Some(4.0));
        assert_eq!(figure("flows:reach"), Some(0.97));
        assert_eq!(figure("flow:chat:last:p99"), None);
        assert_eq!(figure("flow:other:missing"), None);
        assert_eq!(FlowMetric::parse("flow:chat:p98"), None);
        assert_eq!(FlowMetric::parse("flow:p99"), None);
    }

    #[test]
    fn a_flow_of_which_nothing_came_is_the_worst_of_all() {
        let figure = |text: &str, silent: &FlowReport| {
            let flows = [flow("chat", 0, 20.0), silent.clone()];
            let (metric, which) = FlowMetric::parse(text).expect("a figure");
            metric.of(&flows, &which)
        };
        let named = |name: &str| FlowReport {
            name: name.to_owned(),
            sent: 7,
            ..FlowReport::default()
        };
        let missed = FlowReport {
            expected: 700,
            missing: 700,
            ..named("missed")
        };
        let refused = FlowReport {
            refused: 7,
            ..named("refused")
        };
        for text in ["flows:p99", "flows:max", "flows:last:p99"] {
            for silent in [&missed, &refused] {
                assert_eq!(figure(text, silent), Some(f64::INFINITY), "{text}");
            }
        }
        assert_eq!(figure("flow:missed:p99", &missed), None);
        assert_eq!(figure("flows:answer:p99", &refused), Some(f64::INFINITY));
        assert_eq!(figure("flows:answer:p99", &missed), None, "no requests");
        assert_eq!(figure("flows:reach", &refused), Some(0.0));
        // What was sent may still come, or go to nobody.
        assert_eq!(figure("flows:p99", &named("under way")), Some(20.0));
        let partly = FlowReport {
            refused: 1,
            ..named("for nobody")
        };
        assert_eq!(figure("flows:p99", &partly), Some(20.0));
        assert_eq!(figure("flows:reach", &partly), Some(1.0));
    }
}
