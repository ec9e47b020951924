//! The page: one file that needs no network and no other file. The verdict comes first, then charts, then notes.

use crate::crowd::Arrival;
use crate::figures::{Best, Column, Unit};
use crate::format::{Table, date, figure, groups, largest, machine, method, notes, ratio, spread};
use crate::report::{Report, Row};
use myriad_charts::{
    Axis, Bar, Bars, Body, Chart, Curve, Curves, LOGARITHMIC, Mark, Point, Reading, Scale, Steps,
    document, escape, table,
};
use std::fmt::Write as _;

/// Columns that have no chart: in most runs they are the same for all contestants.
const NOT_DRAWN: [Column; 2] = [Column::ConnectionsHeld, Column::Errors];
/// The begin of the time axis. A logarithmic axis cannot show zero.
const MS_MIN: f64 = 0.01;
/// [`figure`] writes bytes in KiB, so round numbers are binary.
const BYTES_STEPS: Steps = Steps::Binary;

/// The whole page.
#[must_use]
pub fn html(report: &Report) -> String {
    let mut page = format!(
        "<h1>Myriad arena</h1>\n<p class=\"lead\">{}</p>\n<p>{}. {}.</p>\n",
        verdict(report),
        escape(&date(report)),
        escape(&machine(report)),
    );
    if report.interrupted {
        page.push_str("<p class=\"failed\">Interrupted: these are the figures so far.</p>\n");
    }
    page.push_str(&failed(report));
    for (title, columns) in groups(report) {
        page.push_str(&group(report, title, &columns));
        if columns.contains(&Column::PushLastMs) {
            page.push_str(&arrivals(report));
        }
    }
    page.push_str(&largest_crowds(report));
    page.push_str(&outcomes(report));
    page.push_str("<h2>How it was measured</h2>\n<ul>\n");
    for line in method(report) {
        let _ = writeln!(page, "<li>{}</li>", escape(&line));
    }
    let _ = writeln!(page, "</ul>\n<p>Myriad {}.</p>", escape(&report.version));
    document("Myriad arena", "", &page)
}

/// The sentence, with names in bold.
fn verdict(report: &Report) -> String {
    use crate::verdict::{Piece, verdict};
    let pieces = verdict(report).into_iter().map(|piece| match piece {
        Piece::Text(text) => escape(&text),
        Piece::Name(name) => format!("<b>{}</b>", escape(&name)),
    });
    pieces.collect()
}

/// Names those that failed, above the figures. The reasons come further down.
fn failed(report: &Report) -> String {
    let failed = report.contestants.iter().filter(|row| !row.ok);
    let names: Vec<String> = failed.map(|row| escape(&row.title)).collect();
    if names.is_empty() {
        return String::new();
    }
    format!("<p class=\"failed\">Failed: {}.</p>\n", names.join("; "))
}

/// A chart for each column that tells contestants apart.
fn group(report: &Report, title: &str, columns: &[Column]) -> String {
    let drawn = columns.iter().filter(|column| !NOT_DRAWN.contains(column));
    let charts: String = drawn
        .map(|column| myriad_charts::figure(&chart(report, *column)))
        .collect();
    if charts.is_empty() {
        return String::new();
    }
    format!(
        "<h2>{}</h2>\n<div class=\"charts\">\n{charts}</div>\n",
        escape(title)
    )
}

/// A bar for each contestant with a figure, the best first; then those whose crowd was too small.
fn chart(report: &Report, column: Column) -> Chart {
    let mut bars: Vec<Bar> = report
        .contestants
        .iter()
        .enumerate()
        .filter_map(|(index, row)| bar(index, row, column))
        .collect();
    let most_first = column.best() == Some(Best::Most);
    let rank = |bar: &Bar| match bar.value {
        Some(value) if most_first => -value,
        Some(value) => value,
        None => f64::INFINITY,
    };
    bars.sort_by(|a, b| rank(a).total_cmp(&rank(b)));
    let unit = column.unit();
    Chart {
        title: column.full_title().to_owned(),
        note: match column.best() {
            Some(Best::Most) => "more is better".to_owned(),
            Some(Best::Least) => "less is better".to_owned(),
            None => String::new(),
        },
        body: Body::Bars(Bars {
            axis: Axis {
                title: unit.quantity().to_owned(),
                scale: Scale::suiting(bars.iter().filter_map(|bar| bar.value)),
                logarithmic: LOGARITHMIC,
                steps: steps(unit),
                format: tick(unit),
            },
            bars,
        }),
    }
}

fn bar(index: usize, row: &Row, column: Column) -> Option<Bar> {
    let (label, mark) = (row.title.clone(), Mark::of(index));
    let Some(summary) = row.summary(column) else {
        return Some(Bar {
            label,
            mark,
            value: None,
            text: row.why_unmeasured(column)?.to_owned(),
            detail: String::new(),
        });
    };
    let parts = [Some(figure(column.unit(), summary.median)), ratio(summary)];
    Some(Bar {
        label,
        mark,
        value: Some(summary.median),
        text: parts.into_iter().flatten().collect::<Vec<_>>().join(" "),
        detail: spread(summary).unwrap_or_default(),
    })
}

/// The kind of ticks that [`figure`] writes as round numbers.
fn steps(unit: Unit) -> Steps {
    match unit {
        Unit::Bytes => BYTES_STEPS,
        _ => Steps::Decimal,
    }
}

/// How an axis writes figures of a unit.
fn tick(unit: Unit) -> fn(f64) -> String {
    match unit {
        Unit::Bytes => |value| figure(Unit::Bytes, value),
        Unit::Count => |value| figure(Unit::Count, value),
        Unit::PerSecond => |value| figure(Unit::PerSecond, value),
        Unit::Milliseconds => |value| figure(Unit::Milliseconds, value),
        Unit::Seconds => |value| figure(Unit::Seconds, value),
        Unit::Share => |value| figure(Unit::Share, value),
    }
}

/// The chart of arrivals over time; none if no contestant was pushed to.
fn arrivals(report: &Report) -> String {
    let rows = report.contestants.iter().enumerate();
    let curves: Vec<Curve> = rows
        .filter(|(_, row)| !row.arrivals.is_empty())
        .map(|(index, row)| Curve {
            label: row.title.clone(),
            mark: Mark::of(index),
            points: row.arrivals.iter().map(point).collect(),
        })
        .collect();
    if curves.is_empty() {
        return String::new();
    }
    let reading = |(title, y): (&str, f64)| Reading {
        title: title.to_owned(),
        y,
    };
    let readings = [
        ("10%", 0.1),
        ("50%", 0.5),
        ("90%", 0.9),
        ("99%", 0.99),
        ("all", 1.0),
    ];
    myriad_charts::figure(&Chart {
        title: "Arrival of a push".to_owned(),
        note: "all pushes of the last round; further left is better".to_owned(),
        body: Body::Curves(Curves {
            x: Axis {
                title: "time since the publish request".to_owned(),
                scale: Scale::Logarithmic,
                logarithmic: LOGARITHMIC,
                steps: Steps::Decimal,
                format: tick(Unit::Milliseconds),
            },
            y: Axis {
                title: "share of all deliveries".to_owned(),
                scale: Scale::Linear,
                logarithmic: LOGARITHMIC,
                steps: Steps::Decimal,
                format: |share| format!("{:.0}%", share * 100.0),
            },
            curves,
            readings: readings.map(reading).into(),
        }),
    })
}

fn point(arrival: &Arrival) -> Point {
    Point {
        x: arrival.ms.max(MS_MIN),
        y: arrival.share,
    }
}

/// The table of the largest crowds, if they were looked for.
fn largest_crowds(report: &Report) -> String {
    let Some(Table { title, heads, rows }) = largest(report) else {
        return String::new();
    };
    let rows = report.contestants.iter().zip(rows).map(|(row, cells)| {
        std::iter::once(escape(&row.title))
            .chain(cells.iter().map(|cell| escape(cell)))
            .collect()
    });
    let heads: Vec<&str> = std::iter::once("contestant").chain(heads).collect();
    format!("<h2>{}</h2>\n{}", escape(title), table(&heads, rows))
}

/// Versions, processes, and the outcome of each contestant.
fn outcomes(report: &Report) -> String {
    let heads = [
        "contestant",
        "language",
        "version",
        "processes",
        "rounds",
        "held",
        "errors",
        "outcome",
    ];
    let rows = report.contestants.iter().enumerate().map(|(index, row)| {
        let outcome = row.reason.as_ref().map_or_else(
            || "ok".to_owned(),
            |reason| format!("<span class=\"failed\">failed: {}</span>", escape(reason)),
        );
        let shown = |column: Column| {
            let summary = row.summary(column);
            summary.map_or_else(
                || "-".to_owned(),
                |summary| figure(column.unit(), summary.median),
            )
        };
        let processes = row
            .processes
            .map_or_else(|| "-".to_owned(), |count| count.to_string());
        vec![
            format!("{}{}", Mark::of(index).swatch(), escape(&row.title)),
            escape(&row.language),
            escape(row.version.as_deref().unwrap_or("-")),
            processes,
            row.rounds.to_string(),
            shown(Column::ConnectionsHeld),
            shown(Column::Errors),
            outcome,
        ]
    });
    let mut text = format!("<h2>Contestants</h2>\n{}", table(&heads, rows));
    let notes = notes(report);
    if !notes.is_empty() {
        text.push_str("<h2>Notes</h2>\n<ul>\n");
        for (note, titles) in notes {
            let _ = writeln!(
                text,
                "<li>{} <small>{}</small></li>",
                escape(&note),
                escape(&titles.join("; "))
            );
        }
        text.push_str("</ul>\n");
    }
    text
}

#[cfg(test)]
mod tests;
