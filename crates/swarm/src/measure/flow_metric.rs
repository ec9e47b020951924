//! Figures of flows, for thresholds: `flow:NAME:p99` of one, `flows:missing` of all.

use crate::engine::flows::figures::FlowFigures;
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

    /// The figure of some flows; none when it was never measured. Each has its report and what was measured of it.
    pub(crate) fn of(self, flows: &[(&FlowReport, &FlowFigures)], which: &Which) -> Option<f64> {
        let is_meant = |flow: &FlowReport| match which {
            Which::Named(name) => flow.name == *name,
            Which::All => true,
        };
        let meant = flows.iter().filter(|(flow, _)| is_meant(flow));
        let figures = meant.filter_map(|(flow, measured)| {
            self.of_one(flow, measured).or_else(|| self.of_silent(flow))
        });
        match self {
            Self::Count(_) | Self::Rate => figures.reduce(|sum, more| sum + more),
            Self::Reach => figures.reduce(f64::min),
            Self::Delivery(_) | Self::ToLast(_) | Self::Answer(_) => figures.reduce(f64::max),
        }
    }

    /// Times are strict, as those of pushes: they are over all that was to come, and what did not come took forever.
    fn of_one(self, flow: &FlowReport, measured: &FlowFigures) -> Option<f64> {
        match self {
            Self::Delivery(quantile) => quantile.of_all(&measured.since_due, measured.missing),
            Self::ToLast(quantile) => quantile.of_all(&measured.to_last, measured.incomplete),
            Self::Answer(quantile) => {
                let failed = measured.refused + measured.unanswered;
                quantile.of_all(&measured.answered, failed)
            }
            Self::Rate => Some(flow.received_per_s),
            Self::Reach => share(flow.received, flow.expected),
            Self::Count(count) => Some(float(count.of(flow))),
        }
    }

    /// The figure of a flow of which the server took no message. Nobody expects such a message, so nothing is missing, and yet no figure
    /// may be worse. None where nothing was to come, or where it may still come.
    fn of_silent(self, flow: &FlowReport) -> Option<f64> {
        let is_untaken = flow.is_untaken();
        match self {
            Self::Delivery(_) | Self::ToLast(_) => is_untaken.then_some(f64::INFINITY),
            Self::Reach => is_untaken.then_some(0.0),
            Self::Answer(_) | Self::Rate | Self::Count(_) => None,
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
    use crate::measure::figures::record_count;
    use std::time::Duration;

    /// A flow with 100 deliveries expected, of which those that came took so many milliseconds. Up to two a histogram keeps exactly.
    fn flow(name: &str, missing: u64, millis: u64) -> (FlowReport, FlowFigures) {
        let report = FlowReport {
            name: name.to_owned(),
            expected: 100,
            received: 100 - missing,
            missing,
            ..FlowReport::default()
        };
        let mut measured = FlowFigures {
            missing,
            incomplete: missing,
            ..FlowFigures::default()
        };
        let (time, came) = (Duration::from_millis(millis), 100 - missing);
        record_count(&mut measured.since_due, time, came);
        record_count(&mut measured.to_last, time, came);
        (report, measured)
    }

    fn figure(text: &str, flows: &[(FlowReport, FlowFigures)]) -> Option<f64> {
        let (metric, which) = FlowMetric::parse(text).expect("a figure");
        let flows: Vec<_> = flows.iter().map(|(report, its)| (report, its)).collect();
        metric.of(&flows, &which)
    }

    #[test]
    fn a_figure_is_of_one_flow_or_of_all() {
        let flows = [flow("chat", 1, 2), flow("history", 3, 1)];
        assert_eq!(figure("flow:history:p50", &flows), Some(1.0));
        assert_eq!(figure("flows:p50", &flows), Some(2.0));
        assert_eq!(figure("flows:missing", &flows), Some(4.0));
        assert_eq!(figure("flows:reach", &flows), Some(0.97));
        assert_eq!(figure("flow:chat:answer:p99", &flows), None);
        assert_eq!(figure("flow:other:missing", &flows), None);
        assert_eq!(FlowMetric::parse("flow:chat:p98"), None);
        assert_eq!(FlowMetric::parse("flow:p99"), None);
    }

    #[test]
    fn deliveries_that_are_missing_fail_every_limit_on_their_time() {
        let flows = [flow("chat", 1, 2)];
        for time in ["p99", "last:p99"] {
            let name = format!("flow:chat:{time}");
            assert_eq!(figure(&name, &flows), Some(2.0), "one of a hundred");
        }
        for time in [
            "mean",
            "p99.9",
            "max",
            "last:mean",
            "last:p99.9",
            "last:max",
        ] {
            let name = format!("flow:chat:{time}");
            assert_eq!(figure(&name, &flows), Some(f64::INFINITY), "{time}");
        }
        let flows = [flow("chat", 2, 2)];
        assert_eq!(figure("flow:chat:p99", &flows), Some(f64::INFINITY));
        assert_eq!(figure("flow:chat:p90", &flows), Some(2.0));
    }

    #[test]
    fn requests_that_failed_were_never_answered() {
        let (report, mut measured) = flow("send", 0, 2);
        record_count(&mut measured.answered, Duration::from_millis(1), 98);
        (measured.refused, measured.unanswered) = (1, 1);
        let flows = [(report, measured)];
        assert_eq!(figure("flows:answer:p90", &flows), Some(1.0));
        assert_eq!(figure("flows:answer:p99", &flows), Some(f64::INFINITY));
    }

    #[test]
    fn a_flow_of_which_nothing_came_is_the_worst_of_all() {
        let figure = |text: &str, silent: &(FlowReport, FlowFigures)| {
            figure(text, &[flow("chat", 0, 2), silent.clone()])
        };
        let named = |name: &str, missing: u64, refused: u64| {
            let report = FlowReport {
                name: name.to_owned(),
                sent: 7,
                expected: missing,
                missing,
                refused,
                ..FlowReport::default()
            };
            let measured = FlowFigures {
                missing,
                incomplete: 7.min(missing),
                refused,
                ..FlowFigures::default()
            };
            (report, measured)
        };
        let (missed, refused) = (named("missed", 700, 0), named("refused", 0, 7));
        for text in ["flows:p99", "flows:max", "flows:last:p99"] {
            for silent in [&missed, &refused] {
                assert_eq!(figure(text, silent), Some(f64::INFINITY), "{text}");
            }
        }
        let never = Some(f64::INFINITY);
        assert_eq!(figure("flow:missed:p99", &missed), never);
        assert_eq!(figure("flow:refused:p99", &refused), never);
        assert_eq!(figure("flows:answer:p99", &refused), never);
        assert_eq!(figure("flows:answer:p99", &missed), None, "no requests");
        assert_eq!(figure("flows:reach", &refused), Some(0.0));
        // What was sent may still come, or go to nobody.
        let under_way = named("under way", 0, 0);
        assert_eq!(figure("flows:p99", &under_way), Some(2.0));
        let partly = named("for nobody", 0, 1);
        assert_eq!(figure("flows:p99", &partly), Some(2.0));
        assert_eq!(figure("flows:reach", &partly), Some(1.0));
    }
}
