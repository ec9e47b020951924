//! Who was best in what, in one sentence.

use crate::figures::{Column, Summary};
use crate::format::figure;
use crate::report::{Report, Row};
use myriad_units::counted;

/// The columns that the sentence names, with its words for them.
const MAIN_FIGURES: [(Column, &str, &str); 4] = [
    (Column::UserBytesPerConnection, "memory", "a connection"),
    (Column::SetupPerS, "connecting", ""),
    (Column::PushLastMs, "time to the last client", ""),
    (
        Column::CpuSecondsPerMillionDeliveries,
        "CPU",
        "a million deliveries",
    ),
];
/// Two figures this close are called equal: repeated runs of one contestant differ by as much.
const RATIO_EQUAL: f64 = 1.03;
/// Names that are listed. The rest is counted.
const NAMES_MAX: usize = 3;

/// A piece of the sentence.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Piece {
    Text(String),
    /// A contestant's name, to be set off from the text: names contain commas.
    Name(String),
}

/// The sentence, to be joined as it is.
pub(crate) fn verdict(report: &Report) -> Vec<Piece> {
    let mut pieces = Vec::new();
    if report.interrupted {
        push(&mut pieces, "So far: ");
    }
    let found = if report.settings.rounds == 0 {
        of_largest(report, &mut pieces)
    } else {
        of_rounds(report, &mut pieces)
    };
    if !found {
        push(&mut pieces, "nothing could be compared");
    }
    let failed = report.contestants.iter().filter(|row| !row.ok).count();
    if failed > 0 {
        push(
            &mut pieces,
            &format!("; {failed} of {} failed", report.contestants.len()),
        );
    }
    push(&mut pieces, ".");
    capitalise(pieces)
}

/// The sentence as plain text, names quoted by `quote`.
pub(crate) fn sentence(report: &Report, quote: impl Fn(&str) -> String) -> String {
    let pieces = verdict(report).into_iter().map(|piece| match piece {
        Piece::Text(text) => text,
        Piece::Name(name) => quote(&name),
    });
    pieces.collect()
}

fn push(pieces: &mut Vec<Piece>, text: &str) {
    pieces.push(Piece::Text(text.to_owned()));
}

fn capitalise(mut pieces: Vec<Piece>) -> Vec<Piece> {
    if let Some(Piece::Text(text)) = pieces.first_mut()
        && let Some(first) = text.get(..1)
    {
        *text = format!("{}{}", first.to_uppercase(), &text[1..]);
    }
    pieces
}

/// The contestants with the best figures, in the order of the main figures.
fn of_rounds(report: &Report, pieces: &mut Vec<Piece>) -> bool {
    let mut groups: Vec<(Vec<&Row>, Vec<String>)> = Vec::new();
    for (column, subject, each) in MAIN_FIGURES {
        let Some((rows, best)) = best(report, column) else {
            continue;
        };
        let each = if each.is_empty() {
            String::new()
        } else {
            format!(" {each}")
        };
        let what = format!("{subject} ({}{each})", figure(column.unit(), best));
        let same = |group: &&mut (Vec<&Row>, Vec<String>)| {
            let names = |rows: &[&Row]| rows.iter().map(|row| row.name.clone()).collect::<Vec<_>>();
            names(&group.0) == names(&rows)
        };
        match groups.iter_mut().find(same) {
            Some((_, what_else)) => what_else.push(what),
            None => groups.push((rows, vec![what])),
        }
    }
    if groups.is_empty() {
        return false;
    }
    let contestants = report.contestants.len();
    push(
        pieces,
        &if contestants == 1 {
            format!(
                "with {}, ",
                connections(report, report.settings.connections)
            )
        } else {
            format!(
                "of {contestants} contestants with {} each, ",
                connections(report, report.settings.connections)
            )
        },
    );
    // The one with the most of the best figures comes first.
    groups.sort_by_key(|(_, what)| std::cmp::Reverse(what.len()));
    for (index, (rows, what)) in groups.iter().enumerate() {
        if index > 0 {
            push(pieces, "; ");
        }
        names(rows, pieces);
        let verb = match (contestants, rows.len()) {
            (1, _) => "had these figures:",
            (_, 1) => "is best in",
            _ => "are best in",
        };
        push(pieces, &format!(" {verb} {}", list(what)));
    }
    true
}

fn connections(report: &Report, count: u64) -> String {
    let what = if report.settings.tls {
        "TLS connection"
    } else {
        "connection"
    };
    counted(count, what)
}

/// The contestants whose median equals the best one, and that median. None if no contestant has a figure, or one of
/// several alone: it was compared with nobody.
fn best(report: &Report, column: Column) -> Option<(Vec<&Row>, f64)> {
    let ratio = |row: &Row| {
        row.summary(column)
            .and_then(|summary| summary.ratio_to_best)
    };
    let measured = report.contestants.iter().filter_map(ratio).count();
    if measured < report.contestants.len().min(2) {
        return None;
    }
    let best = report
        .contestants
        .iter()
        .filter_map(|row| Some((ratio(row)?, row.summary(column)?)))
        .min_by(|(a, _), (b, _)| a.total_cmp(b))?
        .1;
    let rows = report.contestants.iter().filter(|row| {
        let overlaps = |summary: &Summary| {
            summary.rounds > 1
                && best.rounds > 1
                && summary.min <= best.max
                && best.min <= summary.max
        };
        ratio(row).is_some_and(|ratio| ratio <= RATIO_EQUAL)
            || row.summary(column).is_some_and(overlaps)
    });
    Some((rows.collect(), best.median))
}

/// Who held the largest crowd.
fn of_largest(report: &Report, pieces: &mut Vec<Piece>) -> bool {
    let held = |row: &Row| {
        row.largest
            .as_ref()
            .map_or(0, |largest| largest.connections)
    };
    let most = report.contestants.iter().map(held).max().unwrap_or(0);
    if most == 0 {
        return false;
    }
    let rows = report.contestants.iter().filter(|row| held(row) == most);
    push(
        pieces,
        &format!(
            "the largest crowd was {}, held by ",
            connections(report, most)
        ),
    );
    names(&rows.collect::<Vec<_>>(), pieces);
    true
}

fn names(rows: &[&Row], pieces: &mut Vec<Piece>) {
    let shown = if rows.len() > NAMES_MAX {
        NAMES_MAX - 1
    } else {
        rows.len()
    };
    for (index, row) in rows[..shown].iter().enumerate() {
        if index > 0 {
            let last = index + 1 == rows.len();
            push(pieces, if last { " and " } else { ", " });
        }
        pieces.push(Piece::Name(row.title.clone()));
    }
    if shown < rows.len() {
        push(pieces, &format!(" and {} others", rows.len() - shown));
    }
}

fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{Figures, summarize};
    use crate::report::example;

    fn said(report: &Report) -> String {
        sentence(report, |name| format!("<{name}>"))
    }

    /// The example, with these rounds of memory and time for its first two contestants.
    fn with(first: &[(f64, f64)], second: &[(f64, f64)]) -> Report {
        let mut report = example();
        report.contestants.truncate(2);
        let figures = |rounds: &[(f64, f64)]| {
            let rounds: Vec<Figures> = rounds
                .iter()
                .map(|(bytes, ms)| {
                    Figures::from([
                        (Column::UserBytesPerConnection, *bytes),
                        (Column::PushLastMs, *ms),
                    ])
                })
                .collect();
            summarize(&rounds)
        };
        for (row, rounds) in report.contestants.iter_mut().zip([first, second]) {
            row.ok = true;
            row.figures = figures(rounds);
        }
        report.compare();
        report
    }

    #[test]
    fn one_contestant_may_be_best_in_everything() {
        assert_eq!(
            said(&with(&[(90.0, 5.0)], &[(250.0, 50.0)])),
            "Of 2 contestants with 8 connections each, <Quick> is best in memory (90 B a connection) and \
             time to the last client (5.00 ms)."
        );
    }

    #[test]
    fn each_has_what_it_is_best_in_and_failures_are_told() {
        let mut report = with(&[(90.0, 50.0)], &[(250.0, 5.0)]);
        report.contestants[1].ok = false;
        assert_eq!(
            said(&report),
            "Of 2 contestants with 8 connections each, <Quick> is best in memory (90 B a connection); \
             <Slow> is best in time to the last client (5.00 ms); 1 of 2 failed."
        );
    }

    #[test]
    fn what_rounds_cannot_tell_apart_is_shared() {
        let report = with(&[(100.0, 5.0), (110.0, 5.0)], &[(104.0, 9.0), (120.0, 9.0)]);
        assert_eq!(
            said(&report),
            "Of 2 contestants with 8 connections each, <Quick> and <Slow> are best in memory (105 B a connection); \
             <Quick> is best in time to the last client (5.00 ms)."
        );
    }

    #[test]
    fn a_crowd_too_small_is_best_in_nothing() {
        let report = with(&[(-4.0, 5.0)], &[(0.0, 50.0)]);
        assert_eq!(
            said(&report),
            "Of 2 contestants with 8 connections each, <Quick> is best in time to the last client (5.00 ms)."
        );
    }

    #[test]
    fn who_was_measured_alone_is_best_in_nothing() {
        let report = with(&[(90.0, 50.0)], &[(-4.0, 5.0)]);
        assert_eq!(
            said(&report),
            "Of 2 contestants with 8 connections each, <Slow> is best in time to the last client (5.00 ms)."
        );
        assert_eq!(
            said(&with(&[(90.0, 5.0)], &[])),
            "Nothing could be compared."
        );
        let mut alone = with(&[(90.0, 5.0)], &[]);
        alone.contestants.truncate(1);
        assert_eq!(
            said(&alone),
            "With 8 connections, <Quick> had these figures: memory (90 B a connection) and \
             time to the last client (5.00 ms)."
        );
    }

    #[test]
    fn without_figures_nothing_is_compared() {
        let mut report = example();
        report.contestants.drain(..2);
        report.interrupted = true;
        assert_eq!(
            said(&report),
            "So far: nothing could be compared; 1 of 1 failed."
        );
    }

    #[test]
    fn without_rounds_the_largest_crowd_counts() {
        let mut report = with(&[], &[]);
        report.settings.rounds = 0;
        for row in &mut report.contestants {
            row.largest = Some(crate::Largest {
                connections: 20_000,
                ..crate::Largest::default()
            });
        }
        assert_eq!(
            said(&report),
            "The largest crowd was 20,000 connections, held by <Quick> and <Slow>."
        );
    }
}
