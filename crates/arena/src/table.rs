//! The tables in the terminal.

use crate::format::{self, date, machine, method, remarks, tables};
use crate::report::{Report, Row};
use crate::verdict::sentence;
use myriad_layout::{Column, Paint, Table, wrapped};

const GAP: &str = "  ";

/// The verdict, all tables, the rows that failed with their reasons, and how the figures were measured.
///
/// With a `width`, no line has more columns than that: a table that is wider continues in a second one with the names
/// again, and sentences are wrapped.
#[must_use]
pub fn text(report: &Report, width: Option<usize>) -> String {
    let width = width.unwrap_or(usize::MAX);
    let mut text = folded(&sentence(report, str::to_owned), "", width);
    text.push('\n');
    for table in tables(report) {
        text.push_str(&drawn(report, table, width));
    }
    text.push_str(&outcomes(report, width));
    for line in method(report) {
        text.push_str(&folded(&line, "", width));
    }
    let place = format!("{}. {}.", date(report), machine(report));
    text.push_str(&folded(&place, "", width));
    text
}

/// A table, in as many parts as the width needs.
fn drawn(report: &Report, table: format::Table, width: usize) -> String {
    let format::Table { title, heads, rows } = table;
    let heads: Vec<&str> = ["contestant", "version"].into_iter().chain(heads).collect();
    let mut columns = vec![Column::NUMBER; heads.len()];
    columns[..2].fill(Column::TEXT);
    let mut whole = Table::new(&columns);
    whole.row(heads);
    for (row, cells) in report.contestants.iter().zip(rows) {
        whole.row(named(row).into_iter().chain(cells));
    }
    let widths: Vec<usize> = whole.natural_widths().collect();
    let parts = parts(&widths, width);
    let count = parts.len();
    let mut text = String::new();
    for (index, columns) in parts.into_iter().enumerate() {
        let part = if count > 1 {
            format!(" ({} of {count})", index + 1)
        } else {
            String::new()
        };
        let drawn = whole.only(&columns).draw(0, width, Paint::Plain);
        text.push_str(&format!("{title}{part}\n{drawn}\n"));
    }
    text
}

fn named(row: &Row) -> [String; 2] {
    let mark = if row.ok { "" } else { " (failed)" };
    let version = row.version.as_deref().unwrap_or("-").to_owned();
    [format!("{}{mark}", row.name), version]
}

/// A line for every contestant that failed, and for each note.
fn outcomes(report: &Report, width: usize) -> String {
    let mut text = String::new();
    for row in &report.contestants {
        if let Some(reason) = &row.reason {
            let line = format!("{} FAILED: {reason}", row.name);
            text.push_str(&folded(&line, GAP, width));
        }
        for remark in remarks(row) {
            let line = format!("{}: {remark}", row.name);
            text.push_str(&folded(&line, GAP, width));
        }
    }
    if report.interrupted {
        text.push_str("Interrupted: these are the figures so far.\n");
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

/// Which columns go into which part: the names into each, every other column into one. A column that is wider than the
/// width alone has a part of its own.
fn parts(widths: &[usize], width: usize) -> Vec<Vec<usize>> {
    let names = widths[0];
    let (mut parts, mut used) = (vec![vec![0]], names);
    for (column, wide) in widths.iter().enumerate().skip(1) {
        let more = GAP.len() + wide;
        let last = parts.last_mut().expect("there is a first part");
        if used.saturating_add(more) > width && last.len() > 1 {
            parts.push(vec![0, column]);
            used = names + more;
        } else {
            last.push(column);
            used += more;
        }
    }
    parts
}

/// A sentence in lines of at most this width; all but the first begin with `indent`.
fn folded(text: &str, indent: &str, width: usize) -> String {
    let lines = wrapped(text, width.saturating_sub(indent.len()));
    lines.join(&format!("\n{indent}")) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example;

    #[test]
    fn every_contestant_has_a_row_and_every_failure_its_reason() {
        let text = text(&example(), None);
        assert!(text.contains("quick"), "{text}");
        assert!(text.contains("slow (failed)"), "{text}");
        assert!(
            text.contains("slow FAILED: pushes: push 1 reached 7 of 8"),
            "{text}"
        );
        assert!(text.contains("broken FAILED: build"), "{text}");
    }

    #[test]
    fn figures_stand_under_their_heads() {
        let text = text(&example(), None);
        let table: Vec<&str> = text.lines().skip(3).take(3).collect();
        assert_eq!(
            table,
            [
                "contestant       version      a connection",
                "quick            1.2      100 B ×1.00 ±10%",
                "slow (failed)    -             250 B ×2.50",
            ]
        );
    }

    #[test]
    fn what_nobody_measured_is_no_column() {
        let text = text(&example(), None);
        assert!(!text.contains("idle CPU"), "{text}");
        assert!(text.contains("last"), "{text}");
    }

    #[test]
    fn columns_that_do_not_fit_go_into_a_further_part_with_the_names() {
        assert_eq!(parts(&[4, 3, 5], 16), [vec![0, 1, 2]]);
        assert_eq!(parts(&[4, 3, 5], 15), [vec![0, 1], vec![0, 2]]);
        assert_eq!(parts(&[4, 90, 5], 20), [vec![0, 1], vec![0, 2]]);
        assert_eq!(parts(&[4], 2), [vec![0]]);
    }

    #[test]
    fn further_lines_of_a_sentence_are_indented() {
        assert_eq!(folded("a bc def g", "  ", 6), "a bc\n  def\n  g\n");
    }
}
