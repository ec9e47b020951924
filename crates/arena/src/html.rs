//! The page: one file that needs nothing else, with bars for each column and the curves of arrivals.

mod curves;

use crate::figures::{Best, Column};
use crate::format::{figure, groups, largest, machine, method, ratio, remarks, spread};
use crate::report::{Report, Row};
use std::fmt::Write as _;

const STYLE: &str = include_str!("html/page.css");

/// The whole page.
#[must_use]
pub fn html(report: &Report) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>Myriad arena</title>\n<style>\n{STYLE}</style>\n<h1>Arena</h1>\n<p>{}</p>\n",
        escape(&method(report)[0])
    );
    if report.interrupted {
        page.push_str("<p class=\"failed\">Interrupted: these are the figures so far.</p>\n");
    }
    page.push_str(&failed(report));
    page.push_str(&curves::section(report));
    for (title, columns) in groups(report) {
        let _ = writeln!(page, "<h2>{}</h2>\n<div class=\"charts\">", escape(title));
        for column in columns {
            page.push_str(&chart(report, column));
        }
        page.push_str("</div>\n");
    }
    page.push_str(&largest_crowds(report));
    page.push_str(&outcomes(report));
    page.push_str("<h2>How it was measured</h2>\n<ul>\n");
    for line in &method(report)[1..] {
        let _ = writeln!(page, "<li>{}</li>", escape(line));
    }
    let _ = writeln!(
        page,
        "<li>{}.</li>\n</ul>\n<p>Myriad {}, {} s after 1970-01-01 UTC.</p>\n</html>",
        escape(&machine(report)),
        escape(&report.version),
        report.started_unix_s
    );
    page
}

/// Who failed, before any figure; why is said further down.
fn failed(report: &Report) -> String {
    let failed = report.contestants.iter().filter(|row| !row.ok);
    let names: Vec<String> = failed.map(|row| escape(&row.title)).collect();
    if names.is_empty() {
        return String::new();
    }
    format!("<p class=\"failed\">Failed: {}.</p>\n", names.join(", "))
}

/// The table of it, where they were looked for.
fn largest_crowds(report: &Report) -> String {
    let Some(table) = largest(report) else {
        return String::new();
    };
    let heads: String = table
        .heads
        .iter()
        .map(|head| format!("<th>{}", escape(head)))
        .collect();
    let mut text = format!(
        "<h2>{}</h2>\n<table>\n<tr><th>contestant{heads}</tr>\n",
        escape(table.title)
    );
    for (row, cells) in report.contestants.iter().zip(&table.rows) {
        let cells: String = cells
            .iter()
            .map(|cell| format!("<td class=\"figure\">{}", escape(cell)))
            .collect();
        let _ = writeln!(text, "<tr><th>{}{cells}</tr>", escape(&row.title));
    }
    text.push_str("</table>\n");
    text
}

/// Versions, processes, and what became of everybody.
fn outcomes(report: &Report) -> String {
    let mut text = "<h2>Contestants</h2>\n<table>\n<tr><th>contestant<th>language<th>version<th>processes<th>rounds<th>outcome</tr>\n".to_owned();
    for row in &report.contestants {
        let outcome = row.reason.as_ref().map_or_else(
            || "ok".to_owned(),
            |reason| format!("<span class=\"failed\">failed: {}</span>", escape(reason)),
        );
        let notes: String = remarks(row)
            .iter()
            .map(|remark| format!("<br><small>{}</small>", escape(remark)))
            .collect();
        let processes = row
            .processes
            .map_or_else(|| "-".to_owned(), |count| count.to_string());
        let _ = writeln!(
            text,
            "<tr><th>{}<td>{}<td>{}<td>{processes}<td>{}<td>{outcome}{notes}</tr>",
            escape(&row.title),
            escape(&row.language),
            escape(row.version.as_deref().unwrap_or("-")),
            row.rounds
        );
    }
    text.push_str("</table>\n");
    text
}

/// A bar for everybody who has a figure, the best first.
fn chart(report: &Report, column: Column) -> String {
    let mut rows: Vec<(&Row, f64)> = report
        .contestants
        .iter()
        .filter_map(|row| Some((row, row.summary(column)?.median)))
        .collect();
    rows.sort_by(|(_, a), (_, b)| match column.best() {
        Some(Best::Most) => b.total_cmp(a),
        Some(Best::Least) | None => a.total_cmp(b),
    });
    let longest = rows.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let heading = match column.best() {
        Some(Best::Most) => format!("{}, more is better", column.title()),
        Some(Best::Least) => format!("{}, less is better", column.title()),
        None => column.title().to_owned(),
    };
    let mut text = format!(
        "<table class=\"bars\">\n<caption>{}</caption>\n",
        escape(&heading)
    );
    for (row, value) in rows {
        let share = if longest > 0.0 {
            (value / longest).clamp(0.0, 1.0) * 100.0
        } else {
            0.0
        };
        let summary = row.summary(column);
        let beside = [summary.and_then(ratio), summary.and_then(spread)];
        let _ = writeln!(
            text,
            "<tr><th>{}<td class=\"track\"><div class=\"bar\" style=\"width:{share:.1}%\"></div>\
             <td class=\"figure\">{} <small>{}</small></tr>",
            escape(&row.name),
            escape(&figure(column.unit(), value)),
            escape(&beside.into_iter().flatten().collect::<Vec<_>>().join(" "))
        );
    }
    text.push_str("</table>\n");
    text
}

/// Text as text, in an element or in a quoted attribute.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example;

    #[test]
    fn nothing_that_programs_say_becomes_markup() {
        let hostile = "<script>alert(\"1\")</script>&'";
        let mut report = example();
        report.version = hostile.to_owned();
        report.machine.kernel = hostile.to_owned();
        for row in &mut report.contestants {
            row.name = hostile.to_owned();
            row.title = hostile.to_owned();
            row.language = hostile.to_owned();
            row.version = Some(hostile.to_owned());
            row.reason = Some(hostile.to_owned());
            row.largest = Some(crate::Largest {
                stopped_by: Some(hostile.to_owned()),
                ..crate::Largest::default()
            });
            row.notes = vec![hostile.to_owned()];
        }
        let page = html(&report);
        assert!(!page.contains("<script"), "{page}");
        assert!(page.contains("&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;&#39;"));
    }

    #[test]
    fn a_page_needs_nothing_else() {
        let page = html(&example());
        for reference in ["http://", "https://", "src=", "url(", "@import", "<link"] {
            assert!(!page.contains(reference), "{reference}");
        }
    }

    #[test]
    fn the_best_has_the_first_bar_and_everybody_a_row() {
        let page = html(&example());
        let bars = &page[page.find("class=\"bars\"").unwrap()..];
        assert!(bars.find("quick").unwrap() < bars.find("slow").unwrap());
        assert!(bars.contains("width:40.0%"), "{bars}");
        assert!(page.contains("<tr><th>Broken<td>c"));
        assert!(page.contains("error: no rule"));
    }
}
