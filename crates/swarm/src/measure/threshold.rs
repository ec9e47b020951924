//! Conditions that decide the exit code: `fanout:last<5s`, `reach>=1`, `errors<=0`, and in k6's words `echo:p(95)<200`.

mod aggregate;

pub use aggregate::{Aggregate, TimeOf};

use crate::measure::comeback_metric::ComebackMetric;
use crate::measure::flow_metric::{FlowMetric, Which};
use crate::measure::http_metric::HttpMetric;
use crate::report::float;
use myriad_report::{
    DeliveryReport, Report, RoundTripReport, RoundTripTimes, SessionReport, Unit, Verdict,
};
use myriad_units::parse::{self, QuantityError};
use std::fmt;

/// One condition, as given and as understood.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    /// The condition as given.
    pub expression: String,
    metric: Metric,
    /// Which flows a figure of flows is of; of any other metric it means nothing.
    flows: Which,
    comparison: Comparison,
    /// In the metric's unit.
    limit: f64,
}

/// A figure that a threshold can be held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Metric {
    /// Time from the publication to the first client, of the slowest push.
    FanoutFirst,
    /// The same to half of the clients.
    FanoutP50,
    /// The same to 90% of them.
    FanoutP90,
    /// The same to 99% of them.
    FanoutP99,
    /// The same to 99.9% of them.
    FanoutP999,
    /// The same to the last client.
    FanoutLast,
    /// Time from the publish request to its answer, of the slowest.
    Accepted,
    /// Received / expected, of the push that reached fewest.
    Reach,
    /// Clients connected and upgraded, per second, overall.
    SetupRate,
    /// The same in the best second.
    SetupPeak,
    /// Clients that were connected when connecting had finished.
    SetupConnected,
    /// Time from the first packet to the upgrade, for 99% of the clients.
    SetupP99,
    /// Failures of any kind.
    Errors,
    /// Close frames from the server.
    Closes,
    /// Clients that left on purpose.
    Churned,
    /// Open connections that the server or the network ended.
    Lost,
    /// Publications that clients should have got and did not.
    Missed,
    /// Publications missing before a later one.
    Gaps,
    /// Publications given to a client again.
    Duplicates,
    /// Publications missing before one with a higher offset.
    SessionGaps,
    /// Publications given to a client again, by their offset.
    SessionDuplicates,
    /// Subscriptions that got what they had missed.
    SessionRecovered,
    /// Subscriptions that did not get all of it.
    SessionUnrecovered,
    /// Data messages received.
    Messages,
    /// Data messages a second, overall.
    MessagesRate,
    /// A figure of messages that the server sends back.
    Echo(Trip),
    /// A figure of the replies to what clients published.
    ClientPublish(Trip),
    /// A figure of the deliveries of what clients published.
    Delivery(Trip),
    /// A figure of requests beside the crowd.
    Request(Trip),
    /// A figure of clients that speak HTTP.
    Http(HttpMetric),
    /// A figure of all times of a kind.
    Time(TimeOf, Aggregate),
    /// A figure of clients that come back.
    Comeback(ComebackMetric),
    /// A figure of flows.
    Flow(FlowMetric),
}

/// A figure of messages or requests that are to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trip {
    /// Mean time from when it was due to its answer.
    Mean,
    /// The same for half of the answers.
    P50,
    /// The same for 90%.
    P90,
    /// The same for 99%.
    P99,
    /// The same for 99.9%.
    P999,
    /// The slowest.
    Max,
    /// Answers a second.
    Rate,
    /// Answers.
    Received,
    /// Messages or requests without an answer.
    Lost,
    /// Wrong answers, and answers to nothing.
    Errors,
    /// Messages or requests that were never sent.
    Unsent,
    /// `Lost` as a share of what was to come.
    Failed,
}

impl Trip {
    /// The time of this name, in milliseconds; none if this is no time.
    fn of_times(self, times: &RoundTripTimes) -> Option<f64> {
        match self {
            Self::Mean => times.mean,
            Self::P50 => times.p50,
            Self::P90 => times.p90,
            Self::P99 => times.p99,
            Self::P999 => times.p999,
            Self::Max => times.max,
            Self::Rate
            | Self::Received
            | Self::Lost
            | Self::Errors
            | Self::Unsent
            | Self::Failed => None,
        }
    }

    /// The figure of this name; `Lost` is what did not come.
    fn of_deliveries(self, report: &DeliveryReport) -> Option<f64> {
        match self {
            Self::Rate => Some(report.received_per_s),
            Self::Received => Some(float(report.received)),
            Self::Lost => report.missed.map(float),
            Self::Failed => share(report.missed?, report.expected?),
            _ => self.of_times(&report.delivery_ms),
        }
    }

    /// The figure of this name.
    pub(crate) fn of(self, report: &RoundTripReport) -> Option<f64> {
        match self {
            Self::Mean | Self::P50 | Self::P90 | Self::P99 | Self::P999 | Self::Max => {
                self.of_times(&report.round_trip_ms)
            }
            Self::Rate => Some(report.received_per_s),
            Self::Received => Some(float(report.received)),
            Self::Lost => Some(float(report.lost)),
            Self::Errors => Some(float(report.errors)),
            Self::Unsent => Some(float(report.unsent)),
            Self::Failed => share(report.lost, report.sent),
        }
    }

    fn unit(self) -> Unit {
        match self {
            Self::Mean | Self::P50 | Self::P90 | Self::P99 | Self::P999 | Self::Max => {
                Unit::Milliseconds
            }
            Self::Rate => Unit::PerSecond,
            Self::Received | Self::Lost | Self::Errors | Self::Unsent => Unit::Count,
            Self::Failed => Unit::Ratio,
        }
    }
}

/// A part of a whole; none of nothing.
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| float(part) / float(whole))
}

/// Every metric by name; the names are part of the command line's interface.
const METRICS: [(&str, Metric); 71] = [
    ("echo:failed", Metric::Echo(Trip::Failed)),
    ("client-publish:failed", Metric::ClientPublish(Trip::Failed)),
    ("delivery:failed", Metric::Delivery(Trip::Failed)),
    ("request:failed", Metric::Request(Trip::Failed)),
    ("fanout:first", Metric::FanoutFirst),
    ("fanout:p50", Metric::FanoutP50),
    ("fanout:p90", Metric::FanoutP90),
    ("fanout:p99", Metric::FanoutP99),
    ("fanout:p99.9", Metric::FanoutP999),
    ("fanout:last", Metric::FanoutLast),
    ("accepted", Metric::Accepted),
    ("reach", Metric::Reach),
    ("setup:rate", Metric::SetupRate),
    ("setup:peak", Metric::SetupPeak),
    ("setup:connected", Metric::SetupConnected),
    ("setup:p99", Metric::SetupP99),
    ("errors", Metric::Errors),
    ("closes", Metric::Closes),
    ("churned", Metric::Churned),
    ("lost", Metric::Lost),
    ("missed", Metric::Missed),
    ("gaps", Metric::Gaps),
    ("duplicates", Metric::Duplicates),
    ("session:gaps", Metric::SessionGaps),
    ("session:duplicates", Metric::SessionDuplicates),
    ("session:recovered", Metric::SessionRecovered),
    ("session:unrecovered", Metric::SessionUnrecovered),
    ("messages", Metric::Messages),
    ("messages:rate", Metric::MessagesRate),
    ("echo:mean", Metric::Echo(Trip::Mean)),
    ("echo:p50", Metric::Echo(Trip::P50)),
    ("echo:p90", Metric::Echo(Trip::P90)),
    ("echo:p99", Metric::Echo(Trip::P99)),
    ("echo:p99.9", Metric::Echo(Trip::P999)),
    ("echo:max", Metric::Echo(Trip::Max)),
    ("echo:rate", Metric::Echo(Trip::Rate)),
    ("echo:received", Metric::Echo(Trip::Received)),
    ("echo:lost", Metric::Echo(Trip::Lost)),
    ("echo:errors", Metric::Echo(Trip::Errors)),
    ("echo:unsent", Metric::Echo(Trip::Unsent)),
    ("client-publish:mean", Metric::ClientPublish(Trip::Mean)),
    ("client-publish:p50", Metric::ClientPublish(Trip::P50)),
    ("client-publish:p90", Metric::ClientPublish(Trip::P90)),
    ("client-publish:p99", Metric::ClientPublish(Trip::P99)),
    ("client-publish:p99.9", Metric::ClientPublish(Trip::P999)),
    ("client-publish:max", Metric::ClientPublish(Trip::Max)),
    ("client-publish:rate", Metric::ClientPublish(Trip::Rate)),
    (
        "client-publish:received",
        Metric::ClientPublish(Trip::Received),
    ),
    ("client-publish:lost", Metric::ClientPublish(Trip::Lost)),
    ("client-publish:errors", Metric::ClientPublish(Trip::Errors)),
    ("client-publish:unsent", Metric::ClientPublish(Trip::Unsent)),
    ("delivery:mean", Metric::Delivery(Trip::Mean)),
    ("delivery:p50", Metric::Delivery(Trip::P50)),
    ("delivery:p90", Metric::Delivery(Trip::P90)),
    ("delivery:p99", Metric::Delivery(Trip::P99)),
    ("delivery:p99.9", Metric::Delivery(Trip::P999)),
    ("delivery:max", Metric::Delivery(Trip::Max)),
    ("delivery:rate", Metric::Delivery(Trip::Rate)),
    ("delivery:received", Metric::Delivery(Trip::Received)),
    ("delivery:missed", Metric::Delivery(Trip::Lost)),
    ("request:mean", Metric::Request(Trip::Mean)),
    ("request:p50", Metric::Request(Trip::P50)),
    ("request:p90", Metric::Request(Trip::P90)),
    ("request:p99", Metric::Request(Trip::P99)),
    ("request:p99.9", Metric::Request(Trip::P999)),
    ("request:max", Metric::Request(Trip::Max)),
    ("request:rate", Metric::Request(Trip::Rate)),
    ("request:received", Metric::Request(Trip::Received)),
    ("request:lost", Metric::Request(Trip::Lost)),
    ("request:errors", Metric::Request(Trip::Errors)),
    ("request:unsent", Metric::Request(Trip::Unsent)),
];

/// All metrics, by name.
fn metrics() -> impl Iterator<Item = (&'static str, Metric)> {
    let http = HttpMetric::ALL.into_iter();
    let http = http.map(|(name, metric)| (name, Metric::Http(metric)));
    let comebacks = ComebackMetric::ALL.into_iter();
    let comebacks = comebacks.map(|(name, metric)| (name, Metric::Comeback(metric)));
    METRICS.iter().copied().chain(http).chain(comebacks)
}

impl Metric {
    fn unit(self) -> Unit {
        match self {
            Self::FanoutFirst
            | Self::FanoutP50
            | Self::FanoutP90
            | Self::FanoutP99
            | Self::FanoutP999
            | Self::FanoutLast
            | Self::Accepted
            | Self::SetupP99
            | Self::Time(..) => Unit::Milliseconds,
            Self::Reach => Unit::Ratio,
            Self::SetupRate | Self::SetupPeak | Self::MessagesRate => Unit::PerSecond,
            Self::Echo(trip)
            | Self::ClientPublish(trip)
            | Self::Delivery(trip)
            | Self::Request(trip) => trip.unit(),
            Self::Http(metric) => metric.unit(),
            Self::Comeback(metric) => metric.unit(),
            Self::Flow(metric) => metric.unit(),
            Self::SetupConnected
            | Self::Errors
            | Self::Closes
            | Self::Churned
            | Self::Lost
            | Self::Missed
            | Self::Gaps
            | Self::Duplicates
            | Self::SessionGaps
            | Self::SessionDuplicates
            | Self::SessionRecovered
            | Self::SessionUnrecovered
            | Self::Messages => Unit::Count,
        }
    }
}

impl Metric {
    /// The load without which this is never measured; none if every run can measure it.
    fn load(self) -> Option<LoadOption> {
        match self {
            Self::Echo(_) => Some(LoadOption::Echo),
            Self::ClientPublish(_) | Self::Delivery(_) => Some(LoadOption::ClientPublish),
            Self::Request(_) => Some(LoadOption::Request),
            Self::Http(metric) => Some(metric.load()),
            Self::Time(of, _) => of.load(),
            Self::Comeback(metric) => Some(metric.load()),
            Self::Flow(_) => Some(LoadOption::Flow),
            // What others publish has a reach and times, but no publish request of this run.
            Self::Accepted => Some(LoadOption::Publish),
            Self::SessionGaps
            | Self::SessionDuplicates
            | Self::SessionRecovered
            | Self::SessionUnrecovered => Some(LoadOption::Session),
            _ => None,
        }
    }

    /// Whether a figure of a run under way may get better again: what is on its way counts as missing.
    fn is_provisional(self) -> bool {
        matches!(
            self,
            Self::Gaps
                | Self::SessionGaps
                | Self::Delivery(Trip::Lost | Trip::Failed)
                | Self::Flow(FlowMetric::Reach | FlowMetric::Rate)
        )
    }

    /// The figure in a report; none when it was never measured, or when a report does not have it.
    pub(crate) fn of(self, report: &Report) -> Option<f64> {
        let worst = report
            .fanout
            .as_ref()
            .map(|fanout| fanout.worst)
            .unwrap_or_default();
        match self {
            Self::FanoutFirst => worst.first_ms,
            Self::FanoutP50 => worst.p50_ms,
            Self::FanoutP90 => worst.p90_ms,
            Self::FanoutP99 => worst.p99_ms,
            Self::FanoutP999 => worst.p999_ms,
            Self::FanoutLast => worst.last_ms,
            Self::Accepted => report
                .fanout
                .as_ref()
                .and_then(|fanout| fanout.accepted_max_ms),
            Self::Reach => report.fanout.as_ref().and_then(|fanout| fanout.reach_min),
            Self::SetupRate => Some(report.setup.rate_per_s),
            Self::SetupPeak => report.setup.peak_rate_per_s,
            Self::SetupConnected => Some(float(report.setup.connected)),
            Self::SetupP99 => report.setup.p99_ms,
            Self::Errors => Some(float(report.errors.values().sum())),
            Self::Closes => Some(float(report.closes.values().sum())),
            Self::Churned => Some(float(report.churn.churned)),
            Self::Lost => Some(float(report.churn.lost)),
            Self::Missed => Some(float(report.messages.missed)),
            Self::Gaps => Some(float(report.messages.gaps)),
            Self::Duplicates => Some(float(report.messages.duplicates)),
            Self::SessionGaps => of_session(report, |session| session.gaps),
            Self::SessionDuplicates => of_session(report, |session| session.duplicates),
            Self::SessionRecovered => of_session(report, |session| session.recovered),
            Self::SessionUnrecovered => of_session(report, |session| session.unrecovered),
            Self::Messages => Some(float(report.messages.count)),
            Self::MessagesRate => Some(report.messages.mean_per_s),
            Self::Http(metric) => metric.of(report),
            Self::Time(..) | Self::Flow(_) => None,
            Self::Comeback(metric) => metric.of(report),
            Self::Request(trip) => report.request.as_ref().and_then(|trips| trip.of(trips)),
            Self::Echo(trip) => report.echo.as_ref().and_then(|trips| trip.of(trips)),
            Self::ClientPublish(trip) => {
                let published = report.client_publish.as_ref();
                published.and_then(|published| trip.of(&published.replies))
            }
            Self::Delivery(trip) => {
                let published = report.client_publish.as_ref();
                published.and_then(|published| trip.of_deliveries(&published.delivery))
            }
        }
    }
}

/// A load of a run, by its option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadOption {
    Publish,
    Echo,
    ClientPublish,
    Request,
    /// Of clients that speak a protocol.
    Session,
    /// Of clients that speak HTTP.
    Http,
    /// Of clients whose requests are held.
    Poll,
    ExpectHeld,
    /// Pings of clients.
    Heartbeat,
    Storm,
    /// Of clients that come back.
    Comeback,
    /// Of a scenario.
    Flow,
}

impl LoadOption {
    /// As on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Publish => "--publish",
            Self::Echo => "--echo",
            Self::ClientPublish => "--client-publish",
            Self::Request => "--request",
            Self::Session => "--protocol centrifuge-json or centrifuge-protobuf",
            Self::Http => "--protocol long-poll, sse or http-stream",
            Self::Poll => "--protocol long-poll",
            Self::ExpectHeld => "--expect-held",
            Self::Heartbeat => "--heartbeat",
            Self::Storm => "--storm",
            Self::Comeback => "--storm or --reconnect",
            Self::Flow => "[[flows]] of a scenario",
        }
    }
}

/// A figure of the sessions; none where clients have no sessions.
fn of_session(report: &Report, figure: impl Fn(&SessionReport) -> u64) -> Option<f64> {
    report
        .session
        .as_ref()
        .map(|session| float(figure(session)))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
}

/// Longer operators first, so that `<=` is not read as `<`.
const COMPARISONS: [(&str, Comparison); 7] = [
    ("<=", Comparison::LessOrEqual),
    (">=", Comparison::GreaterOrEqual),
    ("===", Comparison::Equal),
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
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
            ThresholdProblem::Metric(name) => {
                write!(f, "there is no metric `{name}`; known are ")?;
                let names: Vec<&str> = metrics().map(|(name, _)| name).collect();
                f.write_str(&names.join(", "))?;
                f.write_str("; and avg, min, med, max, p(95) and the like of setup, echo, client-publish, delivery, request, held and ping; ")?;
                f.write_str(&FlowMetric::names())
            }
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
        let (sign, comparison) = COMPARISONS
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
            comparison,
            limit,
        })
    }

    /// The flow that it is about, by its name.
    pub(crate) fn flow(&self) -> Option<&str> {
        match (&self.metric, &self.flows) {
            (Metric::Flow(_), Which::Named(name)) => Some(name),
            _ => None,
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
        match self.comparison {
            Comparison::Less => value < self.limit,
            Comparison::LessOrEqual => value <= self.limit,
            Comparison::Greater => value > self.limit,
            Comparison::GreaterOrEqual => value >= self.limit,
            Comparison::Equal => value == self.limit,
            Comparison::NotEqual => value != self.limit,
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
        let may_mend = match (self.metric.unit(), self.comparison) {
            _ if self.metric.is_provisional() => true,
            (Unit::Count, Comparison::Equal) => value < self.limit,
            (Unit::Count, Comparison::Less | Comparison::LessOrEqual) => false,
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
        let text = Threshold::parse("fanout:p98<5s").unwrap_err().to_string();
        assert!(
            text.contains("fanout:p99.9") && text.contains("gaps"),
            "{text}"
        );
    }
}
