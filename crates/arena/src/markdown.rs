//! The tables as Markdown, for a page of the documentation.

use crate::format::{date, machine, method, remarks, tables};
use crate::report::Report;
use crate::verdict::sentence;
use std::fmt::Write as _;

/// All tables, the reasons of failures, and how the figures were measured.
#[must_use]
pub fn markdown(report: &Report) -> String {
    let verdict = sentence(report, |name| format!("**{}**", plain(name)));
    let mut text = format!("{verdict} {}.\n\n", date(report));
    for table in tables(report) {
        let _ = writeln!(
            text,
            "### {}\n\n| contestant | version | {} |",
            table.title,
            table.heads.join(" | ")
        );
        let _ = writeln!(text, "| --- | --- |{}", " ---: |".repeat(table.heads.len()));
        for (row, cells) in report.contestants.iter().zip(&table.rows) {
            let mark = if row.ok { "" } else { " (failed)" };
            let _ = writeln!(
                text,
                "| {}{mark} | {} | {} |",
                plain(&row.title),
                plain(row.version.as_deref().unwrap_or("-")),
                cells.join(" | ")
            );
        }
        text.push('\n');
    }
    for row in &report.contestants {
        if let Some(reason) = &row.reason {
            let _ = writeln!(text, "- {} failed: {}", plain(&row.title), plain(reason));
        }
        for remark in remarks(row) {
            let _ = writeln!(text, "- {}: {}", plain(&row.title), plain(&remark));
        }
    }
    let _ = writeln!(text, "\n{} {}.", method(report).join(" "), machine(report));
    text
}

/// Escapes all markup, because these rows contain output of programs.
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
