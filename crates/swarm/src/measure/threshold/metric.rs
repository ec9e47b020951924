//! The figures that thresholds are about: their names, their units, and where a report has them.

use super::{Aggregate, TimeOf};
use crate::measure::comeback_metric::ComebackMetric;
use crate::measure::figures::{float, share};
use crate::measure::flow_metric::FlowMetric;
use crate::measure::http_metric::HttpMetric;
use crate::measure::quantile::Quantile;
use crate::measure::unwell_metric::UnwellMetric;
use myriad_report::{DeliveryReport, Report, RoundTripReport, SessionReport, Unit};

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
    /// Agents of a fleet that were lost; none of a run without a fleet, so that one scenario serves both.
    AgentsLost,
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
    /// A figure of clients that stall or vanish.
    Unwell(UnwellMetric),
    /// A figure of flows.
    Flow(FlowMetric),
}

/// A figure of messages or requests that are to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trip {
    /// A time from when it was due to its answer.
    Time(Quantile),
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
    /// The figure of this name; `Lost` is what did not come.
    fn of_deliveries(self, report: &DeliveryReport) -> Option<f64> {
        match self {
            Self::Time(quantile) => quantile.of(&report.delivery_ms),
            Self::Rate => Some(report.received_per_s),
            Self::Received => Some(float(report.received)),
            Self::Lost => report.missed.map(float),
            Self::Failed => share(report.missed?, report.expected?),
            Self::Errors | Self::Unsent => None,
        }
    }

    /// The figure of this name.
    pub(crate) fn of(self, report: &RoundTripReport) -> Option<f64> {
        match self {
            Self::Time(quantile) => quantile.of(&report.round_trip_ms),
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
            Self::Time(_) => Unit::Milliseconds,
            Self::Rate => Unit::PerSecond,
            Self::Received | Self::Lost | Self::Errors | Self::Unsent => Unit::Count,
            Self::Failed => Unit::Ratio,
        }
    }
}

/// Every metric by name; the names are part of the command line's interface.
const METRICS: [(&str, Metric); 72] = [
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
    ("agents:lost", Metric::AgentsLost),
    ("missed", Metric::Missed),
    ("gaps", Metric::Gaps),
    ("duplicates", Metric::Duplicates),
    ("session:gaps", Metric::SessionGaps),
    ("session:duplicates", Metric::SessionDuplicates),
    ("session:recovered", Metric::SessionRecovered),
    ("session:unrecovered", Metric::SessionUnrecovered),
    ("messages", Metric::Messages),
    ("messages:rate", Metric::MessagesRate),
    ("echo:mean", Metric::Echo(Trip::Time(Quantile::Mean))),
    ("echo:p50", Metric::Echo(Trip::Time(Quantile::P50))),
    ("echo:p90", Metric::Echo(Trip::Time(Quantile::P90))),
    ("echo:p99", Metric::Echo(Trip::Time(Quantile::P99))),
    ("echo:p99.9", Metric::Echo(Trip::Time(Quantile::P999))),
    ("echo:max", Metric::Echo(Trip::Time(Quantile::Max))),
    ("echo:rate", Metric::Echo(Trip::Rate)),
    ("echo:received", Metric::Echo(Trip::Received)),
    ("echo:lost", Metric::Echo(Trip::Lost)),
    ("echo:errors", Metric::Echo(Trip::Errors)),
    ("echo:unsent", Metric::Echo(Trip::Unsent)),
    (
        "client-publish:mean",
        Metric::ClientPublish(Trip::Time(Quantile::Mean)),
    ),
    (
        "client-publish:p50",
        Metric::ClientPublish(Trip::Time(Quantile::P50)),
    ),
    (
        "client-publish:p90",
        Metric::ClientPublish(Trip::Time(Quantile::P90)),
    ),
    (
        "client-publish:p99",
        Metric::ClientPublish(Trip::Time(Quantile::P99)),
    ),
    (
        "client-publish:p99.9",
        Metric::ClientPublish(Trip::Time(Quantile::P999)),
    ),
    (
        "client-publish:max",
        Metric::ClientPublish(Trip::Time(Quantile::Max)),
    ),
    ("client-publish:rate", Metric::ClientPublish(Trip::Rate)),
    (
        "client-publish:received",
        Metric::ClientPublish(Trip::Received),
    ),
    ("client-publish:lost", Metric::ClientPublish(Trip::Lost)),
    ("client-publish:errors", Metric::ClientPublish(Trip::Errors)),
    ("client-publish:unsent", Metric::ClientPublish(Trip::Unsent)),
    (
        "delivery:mean",
        Metric::Delivery(Trip::Time(Quantile::Mean)),
    ),
    ("delivery:p50", Metric::Delivery(Trip::Time(Quantile::P50))),
    ("delivery:p90", Metric::Delivery(Trip::Time(Quantile::P90))),
    ("delivery:p99", Metric::Delivery(Trip::Time(Quantile::P99))),
    (
        "delivery:p99.9",
        Metric::Delivery(Trip::Time(Quantile::P999)),
    ),
    ("delivery:max", Metric::Delivery(Trip::Time(Quantile::Max))),
    ("delivery:rate", Metric::Delivery(Trip::Rate)),
    ("delivery:received", Metric::Delivery(Trip::Received)),
    ("delivery:missed", Metric::Delivery(Trip::Lost)),
    ("request:mean", Metric::Request(Trip::Time(Quantile::Mean))),
    ("request:p50", Metric::Request(Trip::Time(Quantile::P50))),
    ("request:p90", Metric::Request(Trip::Time(Quantile::P90))),
    ("request:p99", Metric::Request(Trip::Time(Quantile::P99))),
    ("request:p99.9", Metric::Request(Trip::Time(Quantile::P999))),
    ("request:max", Metric::Request(Trip::Time(Quantile::Max))),
    ("request:rate", Metric::Request(Trip::Rate)),
    ("request:received", Metric::Request(Trip::Received)),
    ("request:lost", Metric::Request(Trip::Lost)),
    ("request:errors", Metric::Request(Trip::Errors)),
    ("request:unsent", Metric::Request(Trip::Unsent)),
];

/// All metrics, by name.
pub(super) fn metrics() -> impl Iterator<Item = (&'static str, Metric)> {
    let http = HttpMetric::ALL.into_iter();
    let http = http.map(|(name, metric)| (name, Metric::Http(metric)));
    let comebacks = ComebackMetric::ALL.into_iter();
    let comebacks = comebacks.map(|(name, metric)| (name, Metric::Comeback(metric)));
    let unwell = UnwellMetric::ALL.into_iter();
    let unwell = unwell.map(|(name, metric)| (name, Metric::Unwell(metric)));
    let named = METRICS.iter().copied();
    named.chain(http).chain(comebacks).chain(unwell)
}

impl Metric {
    pub(super) fn unit(self) -> Unit {
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
            Self::Unwell(metric) => metric.unit(),
            Self::Flow(metric) => metric.unit(),
            Self::SetupConnected
            | Self::Errors
            | Self::Closes
            | Self::Churned
            | Self::Lost
            | Self::AgentsLost
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

    /// The load without which this is never measured; none if every run can measure it.
    pub(super) fn load(self) -> Option<LoadOption> {
        match self {
            Self::Echo(_) => Some(LoadOption::Echo),
            Self::ClientPublish(_) | Self::Delivery(_) => Some(LoadOption::ClientPublish),
            Self::Request(_) => Some(LoadOption::Request),
            Self::Http(metric) => Some(metric.load()),
            Self::Time(of, _) => of.load(),
            Self::Comeback(metric) => Some(metric.load()),
            Self::Unwell(metric) => Some(metric.load()),
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
    pub(super) fn is_provisional(self) -> bool {
        if let Self::Unwell(metric) = self {
            return metric.is_provisional();
        }
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
            Self::AgentsLost => {
                let agents = report.fleet.iter().flat_map(|fleet| &fleet.agents);
                let lost = agents.filter(|agent| agent.lost_s.is_some());
                Some(float(lost.count() as u64))
            }
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
            Self::Unwell(metric) => metric.of(report),
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
    Stall,
    Vanish,
    /// Of clients that vanish, by the server's own count.
    VanishByServer,
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
            Self::Http => "--protocol long-poll, sse, http-stream or http",
            Self::Poll => "--protocol long-poll",
            Self::ExpectHeld => "--expect-held",
            Self::Heartbeat => "--heartbeat",
            Self::Storm => "--storm",
            Self::Comeback => "--storm or --reconnect",
            Self::Stall => "--stall",
            Self::Vanish => "--vanish",
            Self::VanishByServer => "--vanish and --server-metrics",
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
