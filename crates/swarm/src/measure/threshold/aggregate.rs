//! Figures in k6's words: `echo:p(95)`, `request:avg`, `errors:count`, `reach:rate`.
//!
//! What has a name of ours already is that figure (`echo:med` is `echo:p50`). Any other mean, least or percentile of times comes
//! from the histogram of all of them.

use super::{LoadOption, Metric, metrics};
use crate::measure::figures::micros_as_millis;
use hdrhistogram::Histogram;
use myriad_report::Unit;

/// What was timed, where a histogram has all of its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimeOf {
    /// From a client's first packet to its upgrade.
    Setup,
    /// From when a message was due until the server had sent it back.
    Echo,
    /// The same until the server's reply to what a client published.
    ClientPublish,
    /// The same until its deliveries.
    Delivery,
    /// The same until the answer to a request.
    Request,
    /// How long polls without a delivery were held.
    Held,
    /// From a client's ping to its answer.
    Ping,
}

const TIMES: [(&str, TimeOf); 7] = [
    ("setup", TimeOf::Setup),
    ("echo", TimeOf::Echo),
    ("client-publish", TimeOf::ClientPublish),
    ("delivery", TimeOf::Delivery),
    ("request", TimeOf::Request),
    ("held", TimeOf::Held),
    ("ping", TimeOf::Ping),
];

impl TimeOf {
    /// The load without which nothing of it is timed.
    pub(super) fn load(self) -> Option<LoadOption> {
        match self {
            Self::Setup => None,
            Self::Echo => Some(LoadOption::Echo),
            Self::ClientPublish | Self::Delivery => Some(LoadOption::ClientPublish),
            Self::Request => Some(LoadOption::Request),
            Self::Held => Some(LoadOption::Poll),
            Self::Ping => Some(LoadOption::Heartbeat),
        }
    }
}

/// One figure of many times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Aggregate {
    /// Their mean.
    Mean,
    /// The shortest.
    Min,
    /// The longest.
    Max,
    /// The time that so many of them took at most, in thousandths of a percent: 95,000 for `p(95)`.
    Percentile(u32),
}

impl Aggregate {
    /// The figure in milliseconds; none of no times.
    pub(crate) fn of(self, micros: &Histogram<u64>) -> Option<f64> {
        if micros.is_empty() {
            return None;
        }
        Some(match self {
            Self::Mean => micros.mean() / 1000.0,
            Self::Min => micros_as_millis(micros.min()),
            Self::Max => micros_as_millis(micros.max()),
            Self::Percentile(thousandths) => {
                let value = micros.value_at_quantile(f64::from(thousandths) / 100_000.0);
                micros_as_millis(value.min(micros.max()))
            }
        })
    }
}

/// The metric that a name in k6's words means; none if there is none.
pub(super) fn parse(name: &str) -> Option<Metric> {
    let (subject, word) = name.split_once(':')?;
    let (subject, word) = (subject.trim(), word.trim());
    let named = |figure: &str| metric_of(&format!("{subject}:{figure}"));
    let alone = |unit| metric_of(subject).filter(|metric| metric.unit() == unit);
    let (known, aggregate) = match word {
        "avg" => (named("mean"), Aggregate::Mean),
        "med" => (named("p50"), Aggregate::Percentile(50_000)),
        "min" => (named("first").or(named("shortest")), Aggregate::Min),
        "max" => (named("last").or(named("longest")), Aggregate::Max),
        "count" => return named("received").or(alone(Unit::Count)),
        "rate" => return alone(Unit::Ratio),
        _ => {
            let percent = word.strip_prefix("p(")?.strip_suffix(')')?.trim();
            let thousandths = thousandths(percent)?;
            let percent = f64::from(thousandths) / 1000.0;
            let known = named(&format!("p{percent}"));
            (known, Aggregate::Percentile(thousandths))
        }
    };
    let timed = || {
        let of = TIMES.into_iter().find(|(name, _)| *name == subject)?.1;
        Some(Metric::Time(of, aggregate))
    };
    known.or_else(timed)
}

fn metric_of(name: &str) -> Option<Metric> {
    metrics().find_map(|(known, metric)| (known == name).then_some(metric))
}

/// A percentage in thousandths of a percent: `99.9` is 99,900.
fn thousandths(percent: &str) -> Option<u32> {
    let (whole, fraction) = percent.split_once('.').unwrap_or((percent, ""));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_number = !whole.is_empty() && are_digits(whole) && are_digits(fraction);
    if !is_number || whole.len() > 3 || fraction.len() > 3 {
        return None;
    }
    let number = format!("{whole}{fraction:0<3}").parse().ok()?;
    (1..=100_000).contains(&number).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::figures::microseconds;
    use crate::measure::quantile::Quantile;
    use crate::measure::threshold::Trip;

    #[test]
    fn what_has_a_name_is_that_figure() {
        for (word, metric) in [
            ("echo:avg", Metric::Echo(Trip::Time(Quantile::Mean))),
            ("echo:med", Metric::Echo(Trip::Time(Quantile::P50))),
            (
                "request:p(99.90)",
                Metric::Request(Trip::Time(Quantile::P999)),
            ),
            ("request: p(90)", Metric::Request(Trip::Time(Quantile::P90))),
            ("delivery:count", Metric::Delivery(Trip::Received)),
            ("fanout:max", Metric::FanoutLast),
            ("fanout:min", Metric::FanoutFirst),
            ("errors:count", Metric::Errors),
            ("reach:rate", Metric::Reach),
        ] {
            assert_eq!(parse(word), Some(metric), "{word}");
        }
    }

    #[test]
    fn any_other_percentile_comes_from_the_histogram() {
        let p95 = Aggregate::Percentile(95_000);
        assert_eq!(parse("echo:p(95)"), Some(Metric::Time(TimeOf::Echo, p95)));
        assert_eq!(
            parse("ping:min"),
            Some(Metric::Time(TimeOf::Ping, Aggregate::Min))
        );
        let mut times = microseconds();
        assert_eq!(p95.of(&times), None);
        for millis in 1..=100 {
            times.record(millis * 1000).unwrap();
        }
        let near = |aggregate: Aggregate, wanted: f64| {
            let value = aggregate.of(&times).unwrap();
            assert!((value - wanted).abs() <= wanted * 0.001, "{aggregate:?}");
        };
        near(p95, 95.0);
        near(Aggregate::Min, 1.0);
        near(Aggregate::Max, 100.0);
        near(Aggregate::Mean, 50.5);
        near(Aggregate::Percentile(99_999), 100.0);
    }

    #[test]
    fn what_means_nothing_is_none() {
        for word in [
            "echo:p(0)",
            "echo:p(101)",
            "echo:p(-1)",
            "echo:p()",
            "echo:p(9.9999)",
            "errors:rate",
            "errors:avg",
            "fanout:p(95)",
            "nothing:avg",
            "avg",
        ] {
            assert_eq!(parse(word), None, "{word}");
        }
    }
}
