//! The tables in the terminal.

use crate::format::{machine, method, remarks, tables};
use crate::report::{Report, Row};
use crate::verdict::sentence;

const GAP: &str = "  ";

/// All tables, the rows that failed with their reasons, and what holds for every figure.
#[must_use]
pub fn text(report: &Report) -> String {
    let verdict = sentence(report, str::to_owned);
    let mut text = format!("{verdict}\n\n");
    for table in tables(report) {
        let head = ["contestant", "version"].into_iter().chain(table.heads);
        let mut rows: Vec<Vec<String>> = vec![head.map(str::to_owned).collect()];
        for (row, cells) in report.contestants.iter().zip(table.rows) {
            rows.push(named(row).into_iter().chain(cells).collect());
        }
        text.push_str(&format!("{}\n{}\n", table.title, aligned(&rows)));
    }
    text.push_str(&outcomes(report));
    for line in method(report) {
        text.push_str(&format!("{line}\n"));
    }
    text.push_str(&format!("{}.\n", machine(report)));
    text
}

fn named(row: &Row) -> [String; 2] {
    let mark = if row.ok { "" } else { " (failed)" };
    let version = row.version.as_deref().unwrap_or("-").to_owned();
    [format!("{}{mark}", row.name), version]
}

/// A line for every contestant that failed, and for each note.
fn outcomes(report: &Report) -> String {
    let mut text = String::new();
    for row in &report.contestants {
        if let Some(reason) = &row.reason {
            text.push_str(&format!("{} FAILED: {reason}\n", row.name));
        }
        for remark in remarks(row) {
            text.push_str(&format!("{}: {remark}\n", row.name));
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

/// The first two columns to the left, figures to the right.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            rows.iter()
                .map(|row| width(&row[column]))
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let blanks = " ".repeat(widths[column] - width(cell));
            if column < 2 {
                line.push_str(&format!("{cell}{blanks}{GAP}"));
            } else {
                line.push_str(&format!("{blanks}{cell}{GAP}"));
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Every character used here is one column wide.
fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example;

    #[test]
    fn every_contestant_has_a_row_and_every_failure_its_reason() {
        let text = text(&example());
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
        let text = text(&example());
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
        let text = text(&example());
        assert!(!text.contains("idle CPU"), "{text}");
        assert!(text.contains("last"), "{text}");
    }
}
