//! The lines of the closing table about clients that speak HTTP.

use super::table::Page;
use super::text;
use crate::protocol::Protocol;
use myriad_report::{HeldReport, Report};

/// What clients asked, and how long the server held it.
pub(super) fn write(report: &Report, page: &mut Page) {
    let Some(http) = &report.http else {
        return;
    };
    let reopened = text::count(http.reopened);
    if report.settings.protocol == Protocol::Http.name() {
        let (requests, answers) = (text::count(http.requests), text::count(http.answers));
        let repeated = text::count(http.repeated);
        let line = format!(
            "{requests} sent, {repeated} of them again, {answers} answered, {reopened} connections replaced"
        );
        return page.line("requests", &line);
    }
    let Some(held) = &http.held else {
        let heartbeats = text::count(http.heartbeats);
        let mut streams = format!("{heartbeats} heartbeats, {reopened} opened again");
        if http.reopening > 0 {
            let reopening = text::count(http.reopening);
            streams.push_str(&format!(", {reopening} not open again at the end"));
        }
        return page.line("streams", &streams);
    };
    let mut polls = format!(
        "{} answered, {}",
        text::count(http.answers),
        text::rate(http.answers_per_s)
    );
    if let Some(peak) = http.peak_answers_per_s {
        polls.push_str(&format!(" (best second {})", text::rate(peak)));
    }
    polls.push_str(&format!(
        ", {} timed out, {reopened} connections replaced",
        text::count(http.timeouts)
    ));
    page.line("polls", &polls);
    if http.timeouts > 0 {
        page.line("held for", &held_for(held));
    }
}

fn held_for(held: &HeldReport) -> String {
    let mut line = format!(
        "shortest {}  mean {}  p50 {}  p99 {}  longest {}",
        text::time_or_dash(held.shortest_ms),
        text::time_or_dash(held.mean_ms),
        text::time_or_dash(held.p50_ms),
        text::time_or_dash(held.p99_ms),
        text::time_or_dash(held.longest_ms)
    );
    if let (Some((shortest, longest)), Some(early), Some(late)) =
        (held.expected_ms, held.early, held.late)
    {
        line.push_str(&format!(
            "; of {} to {} expected, early {}, late {}",
            text::time(shortest),
            text::time(longest),
            text::count(early),
            text::count(late)
        ));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::super::table::render;
    use super::super::tests::report;
    use super::*;
    use myriad_report::HttpReport;

    #[test]
    fn polls_streams_and_requests_have_their_own_lines() {
        let mut report = report();
        assert!(!render(&report, 200).contains("polls"));
        report.http = Some(HttpReport {
            answers: 2_000,
            answers_per_s: 33.3,
            timeouts: 1_000,
            held: Some(HeldReport {
                shortest_ms: Some(30_000.0),
                longest_ms: Some(90_050.0),
                expected_ms: Some((30_000.0, 90_000.0)),
                early: Some(0),
                late: Some(3),
                ..HeldReport::default()
            }),
            ..HttpReport::default()
        });
        let table = render(&report, 200);
        assert!(
            table.contains("2,000 answered, 33/s, 1,000 timed out"),
            "{table}"
        );
        assert!(table.contains("early 0, late 3"), "{table}");
        assert!(table.contains("opened in"), "{table}");
        report.http = Some(HttpReport {
            heartbeats: 7,
            reopened: 2,
            reopening: 1,
            ..HttpReport::default()
        });
        let table = render(&report, 200);
        let wanted = "7 heartbeats, 2 opened again, 1 not open again at the end";
        assert!(table.contains(wanted), "{table}");
        report.settings.protocol = "http".to_owned();
        report.http = Some(HttpReport {
            requests: 12,
            answers: 10,
            repeated: 1,
            ..HttpReport::default()
        });
        let table = render(&report, 200);
        let wanted = "12 sent, 1 of them again, 10 answered, 0 connections replaced";
        assert!(table.contains(wanted), "{table}");
    }
}
