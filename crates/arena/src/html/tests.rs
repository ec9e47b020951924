//! The page of a report, as text. How it looks is for people: docs/arena.md says how to render one.

use super::*;
use crate::figures::summarize;
use crate::report::example;

/// The page without its scripts' code and style sheet.
fn body(report: &Report) -> String {
    let page = html(report);
    let (_, body) = page.split_once("<body>").unwrap();
    body.split("<script>").next().unwrap().to_owned()
}

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
    let page = body(&report);
    assert!(!page.contains("<script>"), "{page}");
    assert!(page.contains("&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;&#39;"));
}

#[test]
fn the_verdict_the_date_and_the_machine_come_before_any_chart() {
    let page = body(&example());
    let chart = page.find("<figure").unwrap();
    for first in [
        "<b>Quick</b> is best in memory",
        "Thu, 01 Jan 1970",
        "A &lt;processor&gt;",
    ] {
        assert!(
            page.find(first).is_some_and(|at| at < chart),
            "{first}: {page}"
        );
    }
    assert!(page.find("How it was measured").unwrap() > chart);
    assert!(page.contains("error: no rule"));
}

#[test]
fn a_contestant_has_one_mark_and_one_name_in_bars_curves_and_tables() {
    let page = body(&example());
    let mark = r#""label":"Quick","mark":{"colour":0,"pattern":0}"#;
    assert_eq!(page.matches(mark).count(), 3, "{page}");
    assert!(!page.contains(r#""label":"quick""#), "{page}");
}

#[test]
fn a_crowd_too_small_has_no_bar_and_comes_last() {
    let mut report = example();
    let figures = crate::figures::Figures::from([(Column::UserBytesPerConnection, -40.0)]);
    report.contestants[0].figures = summarize(&[figures]);
    let page = body(&report);
    let bars = &page[page.find("\"bars\":").unwrap()..];
    assert!(
        bars.find("Slow").unwrap() < bars.find("Quick").unwrap(),
        "{bars}"
    );
    assert!(
        page.contains(r#""value":null,"text":"crowd too small to measure""#),
        "{page}"
    );
    assert!(!page.contains("-40"), "{page}");
}

/// If this fails, `figure` writes bytes with other prefixes than `BYTES_STEPS` says.
#[test]
fn ticks_of_memory_are_round() {
    let mut report = example();
    for (row, bytes) in report.contestants.iter_mut().zip([93.0, 58e3, 7e6]) {
        let figures = crate::figures::Figures::from([(Column::UserBytesPerConnection, bytes)]);
        row.figures = summarize(&[figures]);
    }
    let page = body(&report);
    let (_, ticks) = page.split_once("\"ticks\":[").unwrap();
    let (ticks, _) = ticks.split_once(']').unwrap();
    let labels: Vec<&str> = ticks.split("\"label\":\"").skip(1).collect();
    assert!(labels.len() >= 4, "{ticks}");
    for label in labels {
        let number = label.split(' ').next().unwrap();
        let fraction = number.split_once('.').map_or("", |(_, fraction)| fraction);
        assert!(fraction.chars().all(|digit| digit == '0'), "{label}");
    }
}

#[test]
fn without_a_push_there_are_no_curves() {
    let mut report = example();
    for row in &mut report.contestants {
        row.arrivals.clear();
    }
    assert!(!body(&report).contains("\"curves\""));
}
