//! How figures are written, and the columns in groups: the same for terminal, Markdown and page.

use crate::figures::{Column, Summary, TOO_SMALL, Unit};
use crate::held::{RATE_EVERY, RATE_FOR};
use crate::largest::Largest;
use crate::manifest::Transport;
use crate::report::{Report, Row, Settings};
use myriad_units::{bytes, count, counted, rate, time, whole};
use std::time::{Duration, UNIX_EPOCH};

/// The last second of the year 9999: later ones have no date.
const UNIX_S_MAX: u64 = 253_402_300_799;

/// Columns that are shown together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub(crate) title: &'static str,
    pub(crate) columns: &'static [Column],
}

/// All groups in the order in which they are shown.
const GROUPS: [Group; 6] = [
    Group {
        title: "User space (PSS of all processes)",
        columns: &[
            Column::UserBytesPerConnection,
            Column::UserBaseBytes,
            Column::UserBytes,
            Column::HeapBytesPerConnection,
            Column::HeapBaseBytes,
        ],
    },
    Group {
        title: "Crowd",
        columns: &[
            Column::SetupPerS,
            Column::IdleCpuShare,
            Column::CrowdDownS,
            Column::ConnectionsHeld,
            Column::Errors,
        ],
    },
    Group {
        title: "Push to everybody",
        columns: &[
            Column::PushFirstMs,
            Column::PushP50Ms,
            Column::PushP99Ms,
            Column::PushLastMs,
            Column::CpuSecondsPerMillionDeliveries,
        ],
    },
    Group {
        title: "Polls answered and asked again",
        columns: &[Column::PollAnswersPerS],
    },
    Group {
        title: "Echo",
        columns: &[Column::EchoPerS, Column::EchoP50Ms, Column::EchoP99Ms],
    },
    Group {
        title: "Requests",
        columns: &[
            Column::RequestPerS,
            Column::RequestP50Ms,
            Column::RequestP99Ms,
        ],
    },
];

/// Groups and columns with at least one figure.
pub(crate) fn groups(report: &Report) -> Vec<(&'static str, Vec<Column>)> {
    let measured = |column: &Column| {
        let mut rows = report.contestants.iter();
        rows.any(|row| row.summary(*column).is_some() || row.why_unmeasured(*column).is_some())
    };
    GROUPS
        .iter()
        .map(|group| {
            let columns = group.columns.iter().copied().filter(measured);
            (group.title, columns.collect::<Vec<_>>())
        })
        .filter(|(_, columns)| !columns.is_empty())
        .collect()
}

/// A table with a row for each contestant, without its name and version.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Table {
    pub(crate) title: &'static str,
    pub(crate) heads: Vec<&'static str>,
    /// As many as there are contestants, in their order.
    pub(crate) rows: Vec<Vec<String>>,
}

/// All groups, and the largest crowds if they were looked for.
pub(crate) fn tables(report: &Report) -> Vec<Table> {
    let of_group = |(title, columns): (&'static str, Vec<Column>)| Table {
        title,
        heads: columns.iter().map(|column| column.title()).collect(),
        rows: report
            .contestants
            .iter()
            .map(|row| columns.iter().map(|column| cell(row, *column)).collect())
            .collect(),
    };
    let groups = groups(report).into_iter().map(of_group);
    groups.chain(largest(report)).collect()
}

/// Crowds of different sizes are not compared: there are no ratios.
pub(crate) fn largest(report: &Report) -> Option<Table> {
    let searched = |row: &Row| row.largest.is_some();
    if !report.contestants.iter().any(searched) {
        return None;
    }
    let titles = Largest::COLUMNS.map(Column::title);
    let heads = ["held", "processes"].into_iter().chain(titles).collect();
    let rows = report.contestants.iter().map(|row| {
        let Some(largest) = &row.largest else {
            return vec![absent(); Largest::COLUMNS.len() + 2];
        };
        let processes = largest.processes.map(|count| count.to_string());
        let shown = |column: Column| {
            let value = *largest.figures.get(&column)?;
            Some(if column.is_measured(value) {
                figure(column.unit(), value)
            } else {
                TOO_SMALL.to_owned()
            })
        };
        [Some(count(largest.connections)), processes]
            .into_iter()
            .chain(Largest::COLUMNS.map(shown))
            .map(|text| text.unwrap_or_else(absent))
            .collect()
    });
    Some(Table {
        title: "Largest crowd",
        heads,
        rows: rows.collect(),
    })
}

/// What was not measured.
fn absent() -> String {
    "-".to_owned()
}

/// Notes on a row, a line each.
pub(crate) fn remarks(row: &Row) -> Vec<String> {
    let stopped = row.largest.iter().filter_map(|largest| {
        let why = largest.stopped_by.as_ref()?;
        Some(format!("a larger crowd: {why}"))
    });
    stopped.chain(row.notes.iter().cloned()).collect()
}

/// Notes, each with the titles of the contestants that it is about.
pub(crate) fn notes(report: &Report) -> Vec<(String, Vec<String>)> {
    let mut notes: Vec<(String, Vec<String>)> = Vec::new();
    for row in &report.contestants {
        for remark in remarks(row) {
            match notes.iter_mut().find(|(note, _)| *note == remark) {
                Some((_, titles)) => titles.push(row.title.clone()),
                None => notes.push((remark, vec![row.title.clone()])),
            }
        }
    }
    notes
}

/// When the run began.
pub(crate) fn date(report: &Report) -> String {
    let since = Duration::from_secs(report.started_unix_s.min(UNIX_S_MAX));
    httpdate::fmt_http_date(UNIX_EPOCH + since)
}

/// A figure with its unit.
pub(crate) fn figure(unit: Unit, value: f64) -> String {
    let sign = if value < 0.0 { "-" } else { "" };
    match unit {
        Unit::Bytes => format!("{sign}{}", bytes(whole(value.abs()))),
        Unit::Count => count(whole(value)),
        Unit::PerSecond => rate(value),
        Unit::Milliseconds => time(value),
        Unit::Seconds => time(value * 1_000.0),
        Unit::Share => format!("{:.1}%", value * 100.0),
    }
}

/// How many times worse than the best; none for a column without a best.
pub(crate) fn ratio(summary: &Summary) -> Option<String> {
    let ratio = summary.ratio_to_best?;
    Some(if ratio < 9.95 {
        format!("×{ratio:.2}")
    } else {
        format!("×{}", count(whole(ratio)))
    })
}

/// How far rounds were from the median.
pub(crate) fn spread(summary: &Summary) -> Option<String> {
    let percent = summary.spread()? * 100.0;
    Some(if percent < 1_000.0 {
        format!("±{percent:.0}%")
    } else {
        "±>999%".to_owned()
    })
}

/// The figure, its ratio to the best, its spread; a dash if it was not measured.
pub(crate) fn cell(row: &Row, column: Column) -> String {
    let Some(summary) = row.summary(column) else {
        return row
            .why_unmeasured(column)
            .map_or_else(absent, str::to_owned);
    };
    let parts = [
        Some(figure(column.unit(), summary.median)),
        ratio(summary),
        spread(summary),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// How the figures were measured, in sentences.
pub(crate) fn method(report: &Report) -> Vec<String> {
    let settings = &report.settings;
    let mut lines = if settings.rounds == 0 {
        vec![
            "No rounds: only the largest crowds were looked for.".to_owned(),
            "User space is the proportional set size of all of a contestant's processes, read from /proc. It does not contain kernel memory.".to_owned(),
            "The clock of a push starts once, when its request is written, and stops at each connection. CPU is user and system time of the processes.".to_owned(),
        ]
    } else {
        of_rounds(settings)
    };
    let measured = |column| {
        let mut rows = report.contestants.iter();
        rows.any(|row| row.summary(column).is_some())
    };
    lines.extend(settings.held.map(of_held));
    if settings.tls {
        lines.push(OF_TLS.to_owned());
    }
    if measured(Column::PollAnswersPerS) {
        lines.push(format!(
            "Polls answered and asked again: a publication every {} for {}, so that a client that asks again is soon answered again. Answers that come while the crowd leaves are not counted.",
            figure(Unit::Milliseconds, RATE_EVERY.as_secs_f64() * 1_000.0),
            figure(Unit::Seconds, RATE_FOR.as_secs_f64())
        ));
    }
    if measured(Column::EchoPerS) {
        lines.push(format!(
            "Echo: the server is started again, and a crowd of {} sends it {} of 64 bytes for {}. The rate is fixed, and not the highest possible: \"answers\" is lower only if the server does not keep up. A time counts from when a message was due until its answer.",
            counted(settings.echo_connections, "connection"),
            rate(settings.echo_rate_per_s),
            figure(Unit::Seconds, settings.echo_duration_s)
        ));
    }
    if measured(Column::RequestPerS) {
        lines.push(format!(
            "Requests: after the pushes, while the server holds the whole crowd, {} with 64 bytes are posted for {}, over at most {} to each process, and answered with those bytes. The rate and the times mean the same as for the echo.",
            rate(settings.request_rate_per_s),
            figure(Unit::Seconds, settings.request_duration_s),
            counted(settings.request_connections, "connection")
        ));
    }
    if let Some(most) = settings.largest_max {
        lines.push(format!(
            "Largest crowd: the largest of the sizes up to {} in which one push reached all clients; a note says what stopped the next size. Its figures have \"a connection\" as the slope from no connection to all, and CPU with what an idle server uses. If no larger crowd than that of the rounds was held, they are those of the rounds. Sizes differ, so there are no ratios.",
            count(most)
        ));
    }
    lines
}

/// What is different in a run with TLS.
const OF_TLS: &str = "TLS: connections, publications and requests all go over TLS 1.3, with an ECDSA P-256 certificate that each client checks. No session is resumed, so setup has a full handshake for each connection. Memory and CPU are those of all processes, also of a proxy in front.";

/// What is different for clients that are held over HTTP.
fn of_held(transport: Transport) -> String {
    let clients = match transport {
        Transport::LongPoll => {
            "long polls: each is answered by a push, and asked again at once from where that ended. Setup ends when the server says that it holds all of them"
        }
        Transport::Sse => {
            "streams of server-sent events. Setup ends when the server says that it holds all of them"
        }
    };
    format!("Clients are {clients}. CPU contains the requests that they send meanwhile.")
}

/// How the figures of rounds were measured.
fn of_rounds(settings: &Settings) -> Vec<String> {
    vec![
        format!(
            "{}, {} with the order rotated, {} {} apart in each, after {} of idle time.",
            counted(settings.connections, "connection"),
            counted(u64::from(settings.rounds), "round"),
            counted(settings.pushes, "push"),
            figure(Unit::Seconds, settings.push_every_s),
            figure(Unit::Seconds, settings.idle_s)
        ),
        "A figure is the median over the rounds; × says how many times worse than the best of its column it is, ± the largest distance of a round from the median.".to_owned(),
        "User space is the proportional set size of all of a contestant's processes, read from /proc: \"base\" after its warm-up without a connection, \"a connection\" the slope from a quarter of the crowd to all of it. It does not contain kernel memory.".to_owned(),
        "The clock of a push starts once, when its request is written, and stops at each connection; times are medians over a round's pushes. CPU is user and system time of the processes during the pushes, less what an idle server uses.".to_owned(),
    ]
}

/// Where it ran, in a line.
pub(crate) fn machine(report: &Report) -> String {
    let machine = &report.machine;
    format!(
        "{} of {}, {} of memory, Linux {}, {} a process; server and crowd share them",
        counted(machine.cores as u64, "core"),
        if machine.processor.is_empty() {
            "an unnamed processor"
        } else {
            &machine.processor
        },
        bytes(whole(machine.memory_bytes)),
        machine.kernel,
        counted(machine.descriptors_max, "descriptor")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_their_units() {
        let shown = [
            figure(Unit::Bytes, 2_310.0),
            figure(Unit::Bytes, -12.4),
            figure(Unit::Count, 100_000.0),
            figure(Unit::PerSecond, 54_321.4),
            figure(Unit::Milliseconds, 1_250.0),
            figure(Unit::Seconds, 0.0042),
            figure(Unit::Share, 0.123),
        ];
        let expected = [
            "2.26 KiB", "-12 B", "100,000", "54,321/s", "1.25 s", "4.20 ms", "12.3%",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_ratio_and_a_spread_are_short() {
        let summary = |ratio, max| Summary {
            median: 10.0,
            min: 10.0,
            max,
            rounds: 3,
            ratio_to_best: ratio,
        };
        assert_eq!(ratio(&summary(Some(1.0), 10.0)).as_deref(), Some("×1.00"));
        assert_eq!(
            ratio(&summary(Some(1234.4), 10.0)).as_deref(),
            Some("×1,234")
        );
        assert_eq!(ratio(&summary(None, 10.0)), None);
        assert_eq!(spread(&summary(None, 12.0)).as_deref(), Some("±20%"));
        assert_eq!(spread(&summary(None, 10_000.0)).as_deref(), Some("±>999%"));
    }

    #[test]
    fn a_run_with_tls_says_so() {
        let mut report = crate::report::example();
        let says = |report: &Report| method(report).iter().any(|line| line.starts_with("TLS:"));
        assert!(!says(&report));
        report.settings.tls = true;
        assert!(says(&report));
        let verdict = crate::verdict::sentence(&report, str::to_owned);
        assert!(verdict.contains("with 8 TLS connections each"), "{verdict}");
    }

    #[test]
    fn echoes_and_requests_are_explained_where_there_are_any() {
        use crate::figures::{Figures, summarize};
        let mut report = crate::report::example();
        let explained =
            |report: &Report| method(report).iter().any(|line| line.starts_with("Echo:"));
        assert!(!explained(&report));
        let figures = Figures::from([(Column::EchoPerS, 199.5), (Column::EchoP99Ms, 2.0)]);
        report.contestants[0].figures = summarize(&[figures]);
        assert!(explained(&report));
        let text = method(&report).pop().unwrap();
        assert!(
            text.contains("a crowd of 8 connections sends it 200/s of 64 bytes for 5.00 s"),
            "{text}"
        );
        let (title, columns) = groups(&report).pop().unwrap();
        assert_eq!(
            (title, columns),
            ("Echo", vec![Column::EchoPerS, Column::EchoP99Ms])
        );
        let figures = Figures::from([(Column::RequestPerS, 99.5)]);
        report.contestants[0].figures = summarize(&[figures]);
        assert!(!explained(&report));
        let text = method(&report).pop().unwrap();
        assert!(
            text.contains("100/s with 64 bytes are posted for 5.00 s, over at most 64 connections"),
            "{text}"
        );
        let last = groups(&report).pop();
        assert_eq!(last, Some(("Requests", vec![Column::RequestPerS])));
        assert_eq!(
            (rate(0.5), rate(20_000.0)),
            ("0.5/s".to_owned(), "20,000/s".to_owned())
        );
    }
}
