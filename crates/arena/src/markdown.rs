//! The tables as Markdown, for a page of the documentation.

use crate::report::Report;
use crate::show::{cell, groups, machine, method};
use std::fmt::Write as _;

/// All tables, reasons and what holds for every figure.
#[must_use]
pub fn markdown(report: &Report) -> String {
    let mut text = String::new();
    for (title, columns) in groups(report) {
        let heads: Vec<&str> = columns.iter().map(|column| column.title()).collect();
        let _ = writeln!(
            text,
            "### {title}\n\n| contestant | version | {} |",
            heads.join(" | ")
        );
        let _ = writeln!(text, "| --- | --- |{}", " ---: |".repeat(columns.len()));
        for row in &report.contestants {
            let cells: Vec<String> = columns.iter().map(|column| cell(row, *column)).collect();
            let version = row.version.as_deref().unwrap_or("-");
            let title = if row.ok {
                plain(&row.title)
            } else {
                format!("{} (failed)", plain(&row.title))
            };
            let _ = writeln!(
                text,
                "| {title} | {} | {} |",
                plain(version),
                cells.join(" | ")
            );
        }
        text.push('\n');
    }
    for row in &report.contestants {
        if let Some(reason) = &row.reason {
            let _ = writeln!(text, "- {} failed: {}", plain(&row.title), plain(reason));
        }
        if let Some(stopped) = &row.largest_stopped_by {
            let _ = writeln!(
                text,
                "- {}, largest crowd: {}",
                plain(&row.title),
                plain(stopped)
            );
        }
        for note in &row.notes {
            let _ = writeln!(text, "- {}: {}", plain(&row.title), plain(note));
        }
    }
    let _ = writeln!(text, "\n{} {}.", method(report).join(" "), machine(report));
    text
}

/// Nothing in it is markup: what programs say goes into these rows.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '#' | '&' => {
                plain.push('\\');
                plain.push(character);
            }
            '\n' | '\r' => plain.push(' '),
            _ => plain.push(character),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example;

    #[test]
    fn rows_are_rows_whatever_programs_say() {
        let mut report = example();
        report.contestants[1].reason = Some("a | b\n# c <script>".to_owned());
        let text = markdown(&report);
        assert!(
            text.contains("- Slow failed: a \\| b \\# c \\<script\\>\n"),
            "{text}"
        );
        assert!(
            text.contains("| Quick | 1.2 | 100 B ×1.00 ±10% |"),
            "{text}"
        );
        for line in text.lines().filter(|line| line.starts_with("| ")) {
            let columns = line.matches(" |").count();
            assert!(columns >= 3, "{line}");
        }
    }
}
