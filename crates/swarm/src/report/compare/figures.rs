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
}

const fn lower<T>(name: &'static str, form: Form, of: fn(&T) -> Option<f64>) -> Figure<T> {
    Figure {
        name,
        form,
        better: Better::Lower,
        of,
    }
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
    lower("since due: p50", Form::Time, |it| it.since_due_ms.p50),
    lower("since due: p99", Form::Time, |it| it.since_due_ms.p99),
    lower("since due: p99.9", Form::Time, |it| it.since_due_ms.p999),
    shown("since due: max", Form::Time, |it| it.since_due_ms.max),
    lower("since sent: p50", Form::Time, |it| it.since_sent_ms.p50),
    lower("since sent: p99", Form::Time, |it| it.since_sent_ms.p99),
    lower("since sent: p99.9", Form::Time, |it| it.since_sent_ms.p999),
    shown("since sent: max", Form::Time, |it| it.since_sent_ms.max),
    lower("to last: p50", Form::Time, |it| it.to_last_ms.p50),
    lower("to last: p99", Form::Time, |it| it.to_last_ms.p99),
    lower("to last: p99.9", Form::Time, |it| it.to_last_ms.p999),
    lower("answered: p50", Form::Time, |it| it.answered_ms.p50),
    lower("answered: p99", Form::Time, |it| it.answered_ms.p99),
    lower("answered: p99.9", Form::Time, |it| it.answered_ms.p999),
];

/// Those of the whole report, in the order of the table.
pub(super) const ALL: &[Figure<Report>] = &[
    higher("clients connected", Form::Count, |it| {
        Some(float(it.setup.connected))
    }),
    higher("clients connected a second", Form::Rate, |it| {
        Some(it.setup.rate_per_s)
    }),
    lower("connecting: p99", Form::Time, |it| it.setup.p99_ms),
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
    lower("messages missed", Form::Count, |it| {
        Some(float(it.messages.missed))
    }),
    lower("gaps", Form::Count, |it| Some(float(it.messages.gaps))),
    lower("duplicates", Form::Count, |it| {
        Some(float(it.messages.duplicates))
    }),
    higher("reach", Form::Share, |it| it.fanout.as_ref()?.reach),
    lower("pushes: first client", Form::Time, |it| {
        pushes(it)?.first_ms
    }),
    lower("pushes: p50", Form::Time, |it| pushes(it)?.p50_ms),
    lower("pushes: p99", Form::Time, |it| pushes(it)?.p99_ms),
    lower("pushes: p99.9", Form::Time, |it| pushes(it)?.p999_ms),
    lower("pushes: last client", Form::Time, |it| pushes(it)?.last_ms),
    higher("echoes a second", Form::Rate, |it| {
        Some(it.echo?.received_per_s)
    }),
    lower("echoes lost", Form::Count, |it| Some(float(it.echo?.lost))),
    lower("echo: p50", Form::Time, |it| it.echo?.round_trip_ms.p50),
    lower("echo: p99", Form::Time, |it| it.echo?.round_trip_ms.p99),
    lower("echo: p99.9", Form::Time, |it| it.echo?.round_trip_ms.p999),
    shown("echo: max", Form::Time, |it| it.echo?.round_trip_ms.max),
    higher("publications a second", Form::Rate, |it| {
        Some(replies(it)?.received_per_s)
    }),
    lower("publications lost", Form::Count, |it| {
        Some(float(replies(it)?.lost))
    }),
    lower("publication: p50", Form::Time, |it| {
        replies(it)?.round_trip_ms.p50
    }),
    lower("publication: p99", Form::Time, |it| {
        replies(it)?.round_trip_ms.p99
    }),
    lower("deliveries missed", Form::Count, |it| {
        it.client_publish?.delivery.missed.map(float)
    }),
    lower("delivery: p50", Form::Time, |it| deliveries(it)?.p50),
    lower("delivery: p99", Form::Time, |it| deliveries(it)?.p99),
    lower("delivery: p99.9", Form::Time, |it| deliveries(it)?.p999),
    shown("delivery: max", Form::Time, |it| deliveries(it)?.max),
    higher("requests a second", Form::Rate, |it| {
        Some(it.request?.received_per_s)
    }),
    lower("requests lost", Form::Count, |it| {
        Some(float(it.request?.lost))
    }),
    lower("request: p50", Form::Time, |it| {
        it.request?.round_trip_ms.p50
    }),
    lower("request: p99", Form::Time, |it| {
        it.request?.round_trip_ms.p99
    }),
    lower("request: p99.9", Form::Time, |it| {
        it.request?.round_trip_ms.p999
    }),
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
