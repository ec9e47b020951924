//! Saved reports and what is shown of them. `reports/100k.json` has the figures of docs/arena.md at 100,000 connections;
//! `reports/small.json` has a crowd that was too small and a contestant that failed.

use myriad_arena::{Report, html, markdown, text};

fn report(name: &str) -> Report {
    let path = format!("{}/tests/reports/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).expect("the report is in the repository");
    Report::from_json(&text).expect("it is a report")
}

#[test]
fn all_contestants_are_compared_in_one_sentence() {
    let text = text(&report("100k"), None);
    let verdict = text.lines().next().unwrap_or_default();
    assert_eq!(
        verdict,
        "Of 18 contestants with 100,000 connections each, Myriad, io_uring is best in connecting (60,440/s), \
         time to the last client (445 ms) and CPU (4.60 s a million deliveries); \
         Myriad, io_uring and Myriad, epoll are best in memory (93 B a connection)."
    );
}

#[test]
fn the_page_has_every_contestant_in_every_chart_under_one_name() {
    let report = report("100k");
    let page = html(&report);
    for row in &report.contestants {
        assert!(
            page.contains(&format!("\"label\":\"{}\"", row.title)),
            "{}",
            row.title
        );
    }
    assert!(page.contains("\"title\":\"time since the publish request, logarithmic\""));
    assert!(page.contains("\"title\":\"memory, logarithmic\""));
}

#[test]
fn a_crowd_too_small_is_no_figure_in_any_output() {
    let report = report("small");
    let json = serde_json::to_value(&report).expect("a report is JSON");
    let row = &json["contestants"][0];
    assert!(row["user_bytes_per_connection"].is_null(), "{row}");
    assert!(row["over_rounds"]["user_bytes_per_connection"].is_null());
    for shown in [text(&report, None), markdown(&report), html(&report)] {
        assert!(shown.contains("crowd too small to measure"), "{shown}");
        assert!(!shown.contains("-512"), "{shown}");
        // The only one whose memory could be measured is the best, whatever the others had.
        assert!(shown.contains("812 B ×1.00"), "{shown}");
    }
}

#[test]
fn tables_and_sentences_fit_a_terminal_of_80_columns() {
    for name in ["100k", "small"] {
        let text = text(&report(name), Some(80));
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(text.contains("myriad") || name == "small");
    }
}
