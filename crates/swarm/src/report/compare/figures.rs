//! The figures of a report that are compared: which is better, and how each is shown.

use crate::report::{Report, float, text};
use myriad_report::{FanoutTimes, FlowReport, RoundTripReport, RoundTripTimes};

/// Which of two values is better.
#[derive(Clone, Copy, Debug)]
pub(super) enum Better {
    Higher,
    Lower,
    /// It says what the run was like.
    Neither,
}

/// How a value is shown.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    /// In milliseconds.
    Time,
    Count,
    Rate,
    Share,
    Bytes,
}

impl Form {
    pub(super) fn shown(self, value: Option<f64>) -> String {
        let Some(value) = value else {
            return "-".to_owned();
        };
        match self {
            Self::Time => text::time(value),
            Self::Count => text::count(myriad_units::whole(value)),
            Self::Rate => text::rate(value),
            Self::Share => text::percent(value),
            Self::Bytes => text::bytes(value),
        }
    }
}

/// One figure of a report, or of a part of it.
#[derive(Debug)]
pub(super) struct Figure<T: 'static> {
    pub name: &'static str,
    pub form: Form,
    pub better: Better,
    /// None where it was not measured.
    pub of: fn(&T) -> Option<f64>,
    /// What it rests on, where that may be too little.
    pub basis: Option<Basis<T>>,
}

/// What a figure rests on: times that were measured, pushes, or seconds.
#[derive(Debug)]
pub(super) struct Basis<T: 'static> {
    count: fn(&T) -> u64,
    /// Fewer of them say nothing.
    least: u64,
}

/// Times that lie beyond a quantile before it says something: with fewer, one of them moves it.
const BEYOND_MIN: u64 = 10;

/// Pushes before the first and the last arrivals of all say something.
const PUSHES_MIN: u64 = 10;

impl<T> Figure<T> {
    /// Whether it rests on too little to tell a change from chance.
    pub(super) fn is_chance(&self, report: &T) -> bool {
        let basis = self.basis.as_ref();
        basis.is_some_and(|it| (it.count)(report) < it.least)
    }

    const fn with_basis(self, count: fn(&T) -> u64, least: u64) -> Self {
        Self {
            basis: Some(Basis { count, least }),
            ..self
        }
    }
}

const fn lower<T>(name: &'static str, form: Form, of: fn(&T) -> Option<f64>) -> Figure<T> {
    Figure {
        name,
        form,
        better: Better::Lower,
        of,
        basis: None,
    }
}

/// A quantile beyond which one of so many samples lies.
const fn quantile<T>(
    name: &'static str,
    one_of: u64,
    of: fn(&T) -> Option<f64>,
    times: fn(&T) -> u64,
) -> Figure<T> {
    lower(name, Form::Time, of).with_basis(times, one_of * BEYOND_MIN)
}

const fn higher<T>(name: &'static str, form: Form, of: fn(&T) -> Option<f64>) -> Figure<T> {
    Figure {
        better: Better::Higher,
        ..lower(name, form, of)
    }
}

/// Shown, and not judged: the longest of many is chance.
const fn shown<T>(name: &'static str, form: Form, of: fn(&T) -> Option<f64>) -> Figure<T> {
    Figure {
        better: Better::Neither,
        ..lower(name, form, of)
    }
}

fn pushes(report: &Report) -> Option<&FanoutTimes> {
    report.fanout.as_ref().map(|fanout| &fanout.overall)
}

fn replies(report: &Report) -> Option<&RoundTripReport> {
    report.client_publish.as_ref().map(|it| &it.replies)
}

fn deliveries(report: &Report) -> Option<&RoundTripTimes> {
    let published = report.client_publish.as_ref();
    published.map(|it| &it.delivery.delivery_ms)
}

/// Most of the server's memory or processors over the run, where it was watched.
fn server(report: &Report, of: fn(&myriad_report::ServerSample) -> Option<f64>) -> Option<f64> {
    let samples = report.series.samples.iter();
    let watched = samples.filter_map(|sample| of(sample.server.as_ref()?));
    watched.reduce(f64::max)
}

/// Arrivals of pushes whose times were measured.
fn arrivals(report: &Report) -> u64 {
    report.pushes.iter().map(|push| push.received).sum()
}

fn pushes_made(report: &Report) -> u64 {
    report.fanout.as_ref().map_or(0, |fanout| fanout.pushes)
}

fn delivered(report: &Report) -> u64 {
    let published = report.client_publish.as_ref();
    published.map_or(0, |it| it.delivery.received)
}

/// Requests and commands of a flow that were answered.
fn answered(flow: &FlowReport) -> u64 {
    flow.sent.saturating_sub(flow.unanswered)
}

/// Those of one flow, in the order of the table. Each is shown behind the name of its flow.
pub(super) const OF_FLOW: &[Figure<FlowReport>] = &[
    shown("sent", Form::Count, |it| Some(float(it.sent))),
    lower("unsent", Form::Count, |it| Some(float(it.unsent))),
    higher("deliveries a second", Form::Rate, |it| {
        Some(it.received_per_s)
    }),
    higher("reach", Form::Share, |it| {
        (it.expected > 0).then(|| float(it.received) / float(it.expected))
    }),
    lower("missing", Form::Count, |it| Some(float(it.missing))),
    shown("away", Form::Count, |it| Some(float(it.away))),
    shown("replayed", Form::Count, |it| Some(float(it.replayed))),
    lower("duplicated", Form::Count, |it| Some(float(it.duplicated))),
    lower("out of order", Form::Count, |it| {
        Some(float(it.out_of_order))
    }),
    lower("unexpected", Form::Count, |it| Some(float(it.unexpected))),
    lower("late", Form::Count, |it| Some(float(it.late))),
    lower("refused", Form::Count, |it| Some(float(it.refused))),
    lower("unanswered", Form::Count, |it| Some(float(it.unanswered))),
    quantile(
        "since due: p50",
        2,
        |it| it.since_due_ms.p50,
        |it| it.received,
    ),
    quantile(
        "since due: p99",
        100,
        |it| it.since_due_ms.p99,
        |it| it.received,
    ),
    quantile(
        "since due: p99.9",
        1000,
        |it| it.since_due_ms.p999,
        |it| it.received,
    ),
    shown("since due: max", Form::Time, |it| it.since_due_ms.max),
    quantile(
        "since sent: p50",
        2,
        |it| it.since_sent_ms.p50,
        |it| it.received,
    ),
    quantile(
        "since sent: p99",
        100,
        |it| it.since_sent_ms.p99,
        |it| it.received,
    ),
    quantile(
        "since sent: p99.9",
        1000,
        |it| it.since_sent_ms.p999,
        |it| it.received,
    ),
    shown("since sent: max", Form::Time, |it| it.since_sent_ms.max),
    quantile("to last: p50", 2, |it| it.to_last_ms.p50, |it| it.complete),
    quantile(
        "to last: p99",
        100,
        |it| it.to_last_ms.p99,
        |it| it.complete,
    ),
    quantile(
        "to last: p99.9",
        1000,
        |it| it.to_last_ms.p999,
        |it| it.complete,
    ),
    quantile("answered: p50", 2, |it| it.answered_ms.p50, answered),
    quantile("answered: p99", 100, |it| it.answered_ms.p99, answered),
    quantile("answered: p99.9", 1000, |it| it.answered_ms.p999, answered),
];

/// Those of the whole report, in the order of the table.
pub(super) const ALL: &[Figure<Report>] = &[
    higher("clients connected", Form::Count, |it| {
        Some(float(it.setup.connected))
    }),
    higher::<Report>("clients connected a second", Form::Rate, |it| {
        Some(it.setup.rate_per_s)
    })
    .with_basis(|it| myriad_units::whole(it.setup.elapsed_s), 1),
    quantile(
        "connecting: p99",
        100,
        |it| it.setup.p99_ms,
        |it| it.setup.connected,
    ),
    lower("connections lost", Form::Count, |it| {
        Some(float(it.churn.lost))
    }),
    lower("errors", Form::Count, |it| {
        Some(float(it.errors.values().sum()))
    }),
    shown("messages received", Form::Count, |it| {
        Some(float(it.messages.count))
    }),
    shown("messages a second", Form::Rate, |it| {
        Some(it.messages.mean_per_s)
    }),
    lower("messages missing", Form::Count, |it| {
        Some(float(it.messages.missed))
    }),
    lower("gaps", Form::Count, |it| Some(float(it.messages.gaps))),
    lower("duplicates", Form::Count, |it| {
        Some(float(it.messages.duplicates))
    }),
    higher("reach", Form::Share, |it| it.fanout.as_ref()?.reach),
    lower::<Report>("pushes: first client", Form::Time, |it| {
        pushes(it)?.first_ms
    })
    .with_basis(pushes_made, PUSHES_MIN),
    quantile("pushes: p50", 2, |it| pushes(it)?.p50_ms, arrivals),
    quantile("pushes: p99", 100, |it| pushes(it)?.p99_ms, arrivals),
    quantile("pushes: p99.9", 1000, |it| pushes(it)?.p999_ms, arrivals),
    lower::<Report>("pushes: last client", Form::Time, |it| pushes(it)?.last_ms)
        .with_basis(pushes_made, PUSHES_MIN),
    higher("echoes a second", Form::Rate, |it| {
        Some(it.echo?.received_per_s)
    }),
    lower("echoes lost", Form::Count, |it| Some(float(it.echo?.lost))),
    quantile(
        "echo: p50",
        2,
        |it| it.echo?.round_trip_ms.p50,
        |it| it.echo.map_or(0, |it| it.received),
    ),
    quantile(
        "echo: p99",
        100,
        |it| it.echo?.round_trip_ms.p99,
        |it| it.echo.map_or(0, |it| it.received),
    ),
    quantile(
        "echo: p99.9",
        1000,
        |it| it.echo?.round_trip_ms.p999,
        |it| it.echo.map_or(0, |it| it.received),
    ),
    shown("echo: max", Form::Time, |it| it.echo?.round_trip_ms.max),
    higher("publications a second", Form::Rate, |it| {
        Some(replies(it)?.received_per_s)
    }),
    lower("publications lost", Form::Count, |it| {
        Some(float(replies(it)?.lost))
    }),
    quantile(
        "publication: p50",
        2,
        |it| replies(it)?.round_trip_ms.p50,
        |it| replies(it).map_or(0, |it| it.received),
    ),
    quantile(
        "publication: p99",
        100,
        |it| replies(it)?.round_trip_ms.p99,
        |it| replies(it).map_or(0, |it| it.received),
    ),
    lower("deliveries missing", Form::Count, |it| {
        it.client_publish?.delivery.missed.map(float)
    }),
    quantile("delivery: p50", 2, |it| deliveries(it)?.p50, delivered),
    quantile("delivery: p99", 100, |it| deliveries(it)?.p99, delivered),
    quantile(
        "delivery: p99.9",
        1000,
        |it| deliveries(it)?.p999,
        delivered,
    ),
    shown("delivery: max", Form::Time, |it| deliveries(it)?.max),
    higher("requests a second", Form::Rate, |it| {
        Some(it.request?.received_per_s)
    }),
    lower("requests lost", Form::Count, |it| {
        Some(float(it.request?.lost))
    }),
    quantile(
        "request: p50",
        2,
        |it| it.request?.round_trip_ms.p50,
        |it| it.request.map_or(0, |it| it.received),
    ),
    quantile(
        "request: p99",
        100,
        |it| it.request?.round_trip_ms.p99,
        |it| it.request.map_or(0, |it| it.received),
    ),
    quantile(
        "request: p99.9",
        1000,
        |it| it.request?.round_trip_ms.p999,
        |it| it.request.map_or(0, |it| it.received),
    ),
    shown("request: max", Form::Time, |it| {
        it.request?.round_trip_ms.max
    }),
    higher("polls answered a second", Form::Rate, |it| {
        Some(it.http.as_ref()?.answers_per_s)
    }),
    lower("polls held too short", Form::Count, |it| {
        it.http.as_ref()?.held.as_ref()?.early.map(float)
    }),
    lower("polls held too long", Form::Count, |it| {
        it.http.as_ref()?.held.as_ref()?.late.map(float)
    }),
    lower("session: gaps", Form::Count, |it| {
        Some(float(it.session.as_ref()?.gaps))
    }),
    lower("session: unrecovered", Form::Count, |it| {
        Some(float(it.session.as_ref()?.unrecovered))
    }),
    lower("server: memory", Form::Bytes, |it| {
        server(it, |sample| sample.rss_bytes.map(float))
    }),
    shown("server: processors", Form::Share, |it| {
        server(it, |sample| sample.cpus)
    }),
    shown("crowd: processors", Form::Share, |it| {
        Some(it.crowd.cpu_share_max)
    }),
    shown("crowd: memory", Form::Bytes, |it| {
        Some(float(it.crowd.rss_anon_bytes))
    }),
];
