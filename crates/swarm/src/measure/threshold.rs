//! Conditions that decide the exit code: `fanout:last<5s`, `reach>=1`, `errors<=0`, and in k6's words `echo:p(95)<200`.

mod aggregate;
mod metric;

pub use aggregate::{Aggregate, TimeOf};
pub(crate) use metric::LoadOption;
pub use metric::{Metric, Trip};

use crate::measure::flow_metric::{FlowMetric, Which};
use metric::metrics;
use myriad_report::{Unit, Verdict};
use myriad_units::parse::{self, QuantityError};
use std::fmt;
use std::time::Duration;

/// One condition, as given and as understood.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    /// The condition as given.
    pub expression: String,
    metric: Metric,
    /// Which flows a figure of flows is of; of any other metric it means nothing.
    flows: Which,
    operator: Operator,
    /// In the metric's unit.
    limit: f64,
    /// Ends the run when it fails, this long after the end of connecting at the earliest.
    abort_after: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
}

/// Longer operators first, so that `<=` is not read as `<`.
const OPERATORS: [(&str, Operator); 7] = [
    ("<=", Operator::LessOrEqual),
    (">=", Operator::GreaterOrEqual),
    ("===", Operator::Equal),
    ("==", Operator::Equal),
    ("!=", Operator::NotEqual),
    ("<", Operator::Less),
    (">", Operator::Greater),
];

/// A threshold that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThresholdError {
    /// As given.
    pub expression: String,
    /// In characters, from 1.
    pub column: usize,
    /// What is wrong there.
    pub problem: ThresholdProblem,
}

/// What is wrong with a threshold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThresholdProblem {
    /// No such metric.
    Metric(String),
    /// No comparison after the metric.
    Comparison,
    /// The value cannot be read, or lacks its unit.
    Value(QuantityError),
    /// A share outside 0 to 100%.
    Ratio,
}

impl fmt::Display for ThresholdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`, column {}: ", self.expression, self.column)?;
        match &self.problem {
            ThresholdProblem::Metric(name) => write_known(name, f),
            ThresholdProblem::Comparison => f.write_str(
                "a comparison is missing; write METRIC<VALUE with <, <=, >, >=, == or !=",
            ),
            ThresholdProblem::Value(error) => write!(f, "{error}"),
            ThresholdProblem::Ratio => {
                f.write_str("a share lies between 0 and 100%; write 100%, 99.9% or 0.999")
            }
        }
    }
}

/// Says which metrics there are: those of the same family if a name begins as they do.
fn write_known(name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "there is no metric `{name}`; known are ")?;
    let family = name.split_once(':').map(|(family, _)| format!("{family}:"));
    if family.as_deref() == Some("flow:") {
        return f.write_str(&FlowMetric::names());
    }
    let names: Vec<&str> = metrics().map(|(name, _)| name).collect();
    let alike = |known: &&str| {
        family
            .as_deref()
            .is_some_and(|family| known.starts_with(family))
    };
    let of_family: Vec<&str> = names.iter().copied().filter(alike).collect();
    if !of_family.is_empty() {
        f.write_str(&of_family.join(", "))?;
        return f.write_str(", and avg, min, med, max, p(95) and the like of what has times");
    }
    f.write_str(&names.join(", "))?;
    f.write_str("; and avg, min, med, max, p(95) and the like of setup, echo, client-publish, delivery, request, held and ping; ")?;
    f.write_str(&FlowMetric::names())
}

impl std::error::Error for ThresholdError {}

impl Threshold {
    /// Reads `METRIC COMPARISON VALUE`; spaces between them are allowed.
    ///
    /// # Errors
    /// Anything in it is unknown or malformed.
    pub fn parse(expression: &str) -> Result<Self, ThresholdError> {
        let error = |at: usize, problem| ThresholdError {
            expression: expression.to_owned(),
            column: expression[..at].chars().count() + 1,
            problem,
        };
        let split = expression.find(['<', '>', '=', '!']);
        let name = expression[..split.unwrap_or(expression.len())].trim();
        let known = metrics().find_map(|(known, metric)| (known == name).then_some(metric));
        let known = known.or_else(|| aggregate::parse(name));
        let known = known.map(|metric| (metric, Which::All));
        let of_flow = || {
            let (metric, which) = FlowMetric::parse(name)?;
            Some((Metric::Flow(metric), which))
        };
        let (metric, flows) = known
            .or_else(of_flow)
            .ok_or_else(|| error(0, ThresholdProblem::Metric(name.to_owned())))?;
        let split = split.ok_or_else(|| error(expression.len(), ThresholdProblem::Comparison))?;
        let (sign, operator) = OPERATORS
            .into_iter()
            .find(|(sign, _)| expression[split..].starts_with(sign))
            .ok_or_else(|| error(split, ThresholdProblem::Comparison))?;
        let value_at = split + sign.len();
        let text = expression[value_at..].trim();
        let limit = read_limit(metric.unit(), text).map_err(|problem| error(value_at, problem))?;
        Ok(Self {
            expression: expression.to_owned(),
            metric,
            flows,
            operator,
            limit,
            abort_after: None,
        })
    }

    /// The same, and it ends the run when it fails, this long after the end of connecting at the earliest.
    #[must_use]
    pub fn aborting_after(self, delay: Duration) -> Self {
        Self {
            abort_after: Some(delay),
            ..self
        }
    }

    /// How long after the end of connecting it ends a run in which it fails. `all` is when thresholds do that say nothing of it.
    pub(crate) fn aborts_after(&self, all: Option<Duration>) -> Option<Duration> {
        self.abort_after.or(all)
    }

    /// The flow that it is about, by its name.
    pub(crate) fn flow(&self) -> Option<&str> {
        match (&self.metric, &self.flows) {
            (Metric::Flow(_), Which::Named(name)) => Some(name),
            _ => None,
        }
    }

    /// Whether a run with so many clients may hold it: whether it asks for no more connections than that.
    pub(crate) fn can_hold_with(&self, clients: u64) -> bool {
        if self.metric != Metric::SetupConnected {
            return true;
        }
        #[expect(clippy::cast_precision_loss, reason = "clients are at most 2^31")]
        let clients = clients as f64;
        match self.operator {
            Operator::Greater => clients > self.limit,
            Operator::GreaterOrEqual | Operator::Equal => clients >= self.limit,
            Operator::Less | Operator::LessOrEqual | Operator::NotEqual => true,
        }
    }

    /// The load without which its figure is never measured; none if every run can measure it.
    pub(crate) fn load(&self) -> Option<LoadOption> {
        self.metric.load()
    }

    /// Judges the run. A figure that was never measured fails: nobody wants a green light from an empty run.
    pub(crate) fn judge(&self, value_of: impl Fn(Metric, &Which) -> Option<f64>) -> Verdict {
        let value = value_of(self.metric, &self.flows);
        Verdict {
            expression: self.expression.clone(),
            value,
            unit: self.metric.unit(),
            passed: value.is_some_and(|value| self.holds(value)),
            aborted: false,
        }
    }

    #[expect(
        clippy::float_cmp,
        reason = "counts and ratios that should be equal are equal exactly"
    )]
    fn holds(&self, value: f64) -> bool {
        match self.operator {
            Operator::Less => value < self.limit,
            Operator::LessOrEqual => value <= self.limit,
            Operator::Greater => value > self.limit,
            Operator::GreaterOrEqual => value >= self.limit,
            Operator::Equal => value == self.limit,
            Operator::NotEqual => value != self.limit,
        }
    }

    /// The verdict on a run under way, if it fails: for reasons that time alone does not mend. A count that is to be reached may
    /// still be, and what was not measured yet may come.
    pub(crate) fn broken(
        &self,
        value_of: impl Fn(Metric, &Which) -> Option<f64>,
    ) -> Option<Verdict> {
        let verdict = self.judge(value_of);
        let value = verdict.value?;
        let may_mend = match (self.metric.unit(), self.operator) {
            _ if self.metric.is_provisional() => true,
            (Unit::Count, Operator::Equal) => value < self.limit,
            (Unit::Count, Operator::Less | Operator::LessOrEqual) => false,
            (Unit::Count, _) => true,
            _ => false,
        };
        (!verdict.passed && !may_mend).then_some(Verdict {
            aborted: true,
            ..verdict
        })
    }
}

fn read_limit(unit: Unit, text: &str) -> Result<f64, ThresholdProblem> {
    match unit {
        Unit::Milliseconds => {
            // A bare number is milliseconds, as in k6.
            if let Ok(millis) = text.parse::<f64>()
                && millis.is_finite()
                && millis >= 0.0
            {
                return Ok(millis);
            }
            let limit = parse::duration(text).map_err(ThresholdProblem::Value)?;
            Ok(limit.as_secs_f64() * 1000.0)
        }
        Unit::Count => {
            let limit = parse::count(text).map_err(ThresholdProblem::Value)?;
            #[expect(clippy::cast_precision_loss, reason = "a count is at most 2^53")]
            let limit = limit as f64;
            Ok(limit)
        }
        Unit::PerSecond => parse::rate(text).map_err(ThresholdProblem::Value),
        Unit::Ratio => {
            // Read as 99.9e-2, which is exactly 0.999, and not divided, which would miss it by a hair.
            let number = match text.strip_suffix('%') {
                Some(percent) => format!("{}e-2", percent.trim_end()),
                None => text.to_owned(),
            };
            let limit: f64 = number.parse().map_err(|_| ThresholdProblem::Ratio)?;
            if (0.0..=1.0).contains(&limit) {
                Ok(limit)
            } else {
                Err(ThresholdProblem::Ratio)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(expression: &str, value: Option<f64>) -> bool {
        Threshold::parse(expression)
            .unwrap()
            .judge(|_, _| value)
            .passed
    }

    #[test]
    fn thresholds_hold_or_fail_at_their_limit() {
        assert!(judge("fanout:last<5s", Some(4999.9)));
        assert!(!judge("fanout:last<5s", Some(5000.0)));
        assert!(judge("fanout:last<=5s", Some(5000.0)));
        assert!(judge("reach>=1", Some(1.0)));
        assert!(!judge("reach >= 1", Some(0.999_999)));
        assert!(judge("reach>=100%", Some(1.0)));
        assert!(!judge("reach>=100%", Some(0.999_999)));
        assert!(judge("reach>=99.9 %", Some(999.0 / 1000.0)));
        assert!(judge("reach==99.9%", Some(0.999)));
        assert!(!judge("missed==0", Some(3.0)));
        assert!(judge("setup:rate>=50k", Some(50_000.0)));
        assert!(judge("errors==0", Some(0.0)));
        assert!(!judge("errors<=0", Some(1.0)));
        assert!(
            !judge("reach>=0", None),
            "nothing measured is nothing proven"
        );
    }

    #[test]
    fn thresholds_may_be_in_the_words_of_k6() {
        assert!(judge("echo: p(95) < 200", Some(199.0)));
        assert!(!judge("request:p(95)<200", Some(200.0)));
        assert!(judge("request:avg<1.5", Some(1.4)));
        assert!(judge("errors:count===0", Some(0.0)));
        assert!(judge("reach:rate>0.99", Some(0.995)));
        assert!(judge("errors!=1", Some(0.0)));
        assert!(judge("echo:failed<1%", Some(0.009)));
    }

    #[test]
    fn a_run_under_way_breaks_what_time_does_not_mend() {
        let broken = |expression: &str, value: f64| {
            let threshold = Threshold::parse(expression).unwrap();
            threshold.broken(|_, _| Some(value)).is_some()
        };
        assert!(broken("echo:p99<10ms", 11.0) && !broken("echo:p99<10ms", 9.0));
        assert!(broken("lost==0", 1.0) && !broken("lost==0", 0.0));
        assert!(!broken("messages>=100", 7.0) && !broken("messages==100", 7.0));
        assert!(broken("reach>=100%", 0.9));
        assert!(
            !broken("delivery:missed==0", 3.0),
            "they may be on their way"
        );
        let unmeasured = Threshold::parse("echo:p99<10ms").unwrap();
        assert!(unmeasured.broken(|_, _| None).is_none());
    }

    #[test]
    fn every_metric_can_be_named() {
        for (name, metric) in metrics() {
            let value = match metric.unit() {
                Unit::Milliseconds => "1ms",
                _ => "1",
            };
            assert_eq!(
                Threshold::parse(&format!("{name}<{value}")).unwrap().metric,
                metric
            );
        }
    }

    #[test]
    fn what_cannot_be_read_says_where_and_what_is_known() {
        let problem = |expression: &str| {
            let error = Threshold::parse(expression).unwrap_err();
            (error.column, error.problem)
        };
        assert_eq!(
            problem("fanout:p98<5s"),
            (1, ThresholdProblem::Metric("fanout:p98".to_owned()))
        );
        assert_eq!(problem("reach"), (6, ThresholdProblem::Comparison));
        assert_eq!(problem("reach=1"), (6, ThresholdProblem::Comparison));
        assert_eq!(problem("reach>=2"), (8, ThresholdProblem::Ratio));
        assert_eq!(problem("reach>=101%"), (8, ThresholdProblem::Ratio));
        assert_eq!(problem("reach>=%"), (8, ThresholdProblem::Ratio));
        assert!(matches!(
            problem("fanout:p99<200q"),
            (12, ThresholdProblem::Value(_))
        ));
        assert!(matches!(
            problem("errors<="),
            (9, ThresholdProblem::Value(_))
        ));
        let said = |expression: &str| Threshold::parse(expression).unwrap_err().to_string();
        let family = said("fanout:p98<5s");
        assert!(
            family.contains("fanout:p99.9") && !family.contains("gaps"),
            "{family}"
        );
        let flow = said("flow:chat:p95<5s");
        assert!(flow.contains("flow:") && !flow.contains("fanout"), "{flow}");
        let all = said("fan:p99<5s");
        assert!(
            all.contains("fanout:p99.9") && all.contains("gaps"),
            "{all}"
        );
    }
}
