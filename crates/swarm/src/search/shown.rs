//! A search for people: a line for each trial, the closing table, and a page.

use super::bisection::TRIALS_MAX;
use super::page::page;
use super::{Search, close};
use crate::report::output::{Destination, Output};
use crate::report::reporting::Language;
use crate::report::text::{count, counted, figure, time};
use crate::run::RunError;
use myriad_layout::{Cell, Column, Paint, Table, Tone, terminal_columns, wrapped};
use myriad_report::{Purpose, SearchOutcome, SearchReport, Trial, Verdict};
use std::io::{self, Write as _};

/// Fewest columns that lines are wrapped to.
const COLUMNS_MIN: usize = 40;

/// What was measured of a threshold, behind it.
fn verdict(verdict: &Verdict, language: Language) -> String {
    let measured = verdict.value.map_or_else(
        || language.of("nothing measured", "未测得").to_owned(),
        |measured| language.figure(measured, verdict.unit),
    );
    format!("{} ({measured})", verdict.expression)
}

/// What decided a trial: the thresholds that failed, or all of them. What went wrong is said in English.
pub(super) fn reason(trial: &Trial, language: Language) -> String {
    let decided = trial.thresholds.iter();
    let decided = decided.filter(|it| trial.held || !it.passed);
    let mut parts: Vec<String> = decided.map(|it| verdict(it, language)).collect();
    if trial.thresholds.is_empty() {
        parts.extend(trial.went_wrong.clone());
    }
    if !trial.saturated.is_empty() {
        let checks = trial.saturated.join(", ");
        parts.push(match language {
            Language::English => format!("the generator's {checks}"),
            Language::Chinese => format!("压测机：{checks}"),
        });
    }
    if trial.left_over > 0 {
        parts.push(match language {
            Language::English => {
                let left = counted(trial.left_over, "connection");
                format!("{left} of the trial before were still there")
            }
            Language::Chinese => {
                let left = count(trial.left_over);
                format!("上一轮仍有 {left} 个连接未断开")
            }
        });
    }
    parts.join(language.of("; ", "；"))
}

pub(super) fn word(held: bool, language: Language) -> &'static str {
    match held {
        true => language.of("held", "通过"),
        false => language.of("failed", "未通过"),
    }
}

pub(super) fn purpose(purpose: Purpose, language: Language) -> &'static str {
    match purpose {
        Purpose::Grow => language.of("grow", "增大"),
        Purpose::Shrink => language.of("shrink", "减小"),
        Purpose::Bisect => language.of("bisect", "二分"),
        Purpose::Repeat => language.of("repeat", "复测"),
    }
}

/// Says on standard error what came of a trial.
pub(super) fn progress(report: &SearchReport, trial: &Trial) {
    let number = report.trials.len() + 1;
    let line = format!(
        "trial {number:<3} {} {:<10} {:<6}  {}\n",
        report.key,
        figure(trial.value, report.unit),
        word(trial.held, Language::English),
        reason(trial, Language::English)
    );
    // Nobody who reads is no reason to end.
    let _ = io::stderr().lock().write_all(line.as_bytes());
}

/// The trials of a value.
fn trials_at(report: &SearchReport, value: f64) -> impl Iterator<Item = &Trial> {
    let trials = report.trials.iter();
    trials.filter(move |trial| close(trial.value, value))
}

/// How the search ended, as a sentence.
pub(super) fn summary(report: &SearchReport, language: Language) -> String {
    match language {
        Language::English => in_english(report),
        Language::Chinese => in_chinese(report),
    }
}

/// The trials of a value: how many held, of how many.
fn held_at(report: &SearchReport, value: f64) -> (usize, usize) {
    let held = trials_at(report, value).filter(|trial| trial.held);
    (held.count(), trials_at(report, value).count())
}

/// The checks of the generator that failed in the last trial.
fn saturated(report: &SearchReport) -> String {
    let last = report.trials.last();
    last.map_or_else(String::new, |trial| trial.saturated.join(", "))
}

/// What went wrong in the last trial.
fn said_last(report: &SearchReport) -> Option<&str> {
    report.trials.last()?.went_wrong.as_deref()
}

fn in_english(report: &SearchReport) -> String {
    let key = &report.key;
    let of = |it: f64| figure(it, report.unit);
    let knee = report.knee.as_ref();
    let best = knee.map_or_else(
        || "No value held.".to_owned(),
        |knee| {
            let held = of(knee.value);
            format!(
                "The largest value that held until then is {held}; it was not searched further."
            )
        },
    );
    match (report.outcome, knee) {
        (SearchOutcome::Found, Some(knee)) => {
            let failed = knee.failed_at.map(|failed| {
                let at = of(failed);
                match held_at(report, failed) {
                    (0, _) => format!("; {at} failed"),
                    (held, tried) => format!("; {at} held {held} of {tried} times only"),
                }
            });
            format!(
                "{key} is at most {}: it held {} of {} times{}.",
                of(knee.value),
                knee.held,
                knee.trials,
                failed.unwrap_or_default()
            )
        }
        (SearchOutcome::Limit, Some(knee)) => format!(
            "Every threshold holds at {key} {}, which is --max: it held {} of {} times. The server's limit is higher.",
            of(knee.value),
            knee.held,
            knee.trials
        ),
        (SearchOutcome::GeneratorSaturated, _) => format!(
            "The generator, not the server, was at its limit ({}). {best} Use a larger machine for the crowd, or several.",
            saturated(report)
        ),
        (SearchOutcome::NobodyConnected, _) => {
            let said = said_last(report).map(|said| format!(" {said}"));
            format!("Nobody could connect.{}", said.unwrap_or_default())
        }
        (SearchOutcome::Unsettled, _) => format!(
            "Values held and failed by turns until trial {TRIALS_MAX}. {best} Give a longer --duration or a coarser --precision."
        ),
        (SearchOutcome::Interrupted, _) => format!("Interrupted. {best}"),
        (SearchOutcome::NeverHeld | SearchOutcome::Found | SearchOutcome::Limit, _) => {
            format!("A threshold fails at the smallest {key} too.")
        }
    }
}

fn in_chinese(report: &SearchReport) -> String {
    let key = &report.key;
    let of = |it: f64| figure(it, report.unit);
    let knee = report.knee.as_ref();
    let best = knee.map_or_else(
        || "没有任何取值通过。".to_owned(),
        |knee| {
            let held = of(knee.value);
            format!("此前通过的最大取值为 {held}，之后未继续搜索。")
        },
    );
    match (report.outcome, knee) {
        (SearchOutcome::Found, Some(knee)) => {
            let failed = knee.failed_at.map(|failed| {
                let at = of(failed);
                match held_at(report, failed) {
                    (0, _) => format!("；{at} 未通过"),
                    (held, tried) => format!("；{at} 在 {tried} 次中仅通过 {held} 次"),
                }
            });
            format!(
                "{key} 最大为 {}：{} 次中通过 {} 次{}。",
                of(knee.value),
                knee.trials,
                knee.held,
                failed.unwrap_or_default()
            )
        }
        (SearchOutcome::Limit, Some(knee)) => format!(
            "{key} 取 {}（即 --max）时所有阈值均通过：{} 次中通过 {} 次。服务器的上限更高。",
            of(knee.value),
            knee.trials,
            knee.held
        ),
        (SearchOutcome::GeneratorSaturated, _) => format!(
            "达到上限的是压测机，而不是服务器（{}）。{best}请使用更强的压测机，或多台压测机。",
            saturated(report)
        ),
        (SearchOutcome::NobodyConnected, _) => {
            format!(
                "没有客户端能够连接。{}",
                said_last(report).unwrap_or_default()
            )
        }
        (SearchOutcome::Unsettled, _) => format!(
            "同一取值时而通过、时而未通过，{TRIALS_MAX} 次后仍无定论。{best}请延长 --duration，或放宽 --precision。"
        ),
        (SearchOutcome::Interrupted, _) => format!("已中断。{best}"),
        (SearchOutcome::NeverHeld | SearchOutcome::Found | SearchOutcome::Limit, _) => {
            format!("{key} 取最小值时仍有阈值未通过。")
        }
    }
}

/// The table for people.
fn render(report: &SearchReport, columns: usize) -> String {
    let columns = columns.max(COLUMNS_MIN);
    let mut text = "\n".to_owned();
    for line in wrapped(&report.summary, columns - 2) {
        text.push_str(&format!("  {line}\n"));
    }
    let mut table = Table::new(&[
        Column::NUMBER,
        Column::NUMBER,
        Column::TEXT,
        Column::TEXT,
        Column::NUMBER,
        Column::NUMBER,
    ]);
    let key = &report.key;
    table.row(["trial", key, "why", "thresholds", "connected", "took"]);
    for (trial, number) in report.trials.iter().zip(1..) {
        let tone = match trial.held {
            true => Tone::Good,
            false => Tone::Bad,
        };
        table.row([
            Cell::from(format!("{number}")),
            Cell::from(figure(trial.value, report.unit)),
            Cell::from(purpose(trial.purpose, Language::English).to_owned()),
            Cell::toned(word(trial.held, Language::English), tone),
            Cell::from(count(trial.connected)),
            Cell::from(time(trial.elapsed_s * 1000.0)),
        ]);
    }
    text.push('\n');
    text.push_str(&table.draw(2, columns, Paint::Plain));
    text.push('\n');
    text
}

/// Writes all forms. All of them are tried, the table first.
pub(super) fn write(
    report: &SearchReport,
    search: &Search,
    json: Option<Output>,
    html: Option<Output>,
) -> Result<(), RunError> {
    let is_error = search.json == Some(Destination::StandardOutput);
    let columns = match is_error {
        true => terminal_columns(io::stderr()),
        false => terminal_columns(io::stdout()),
    };
    let text = render(report, columns.unwrap_or(usize::MAX));
    let table = match is_error {
        true => io::stderr().lock().write_all(text.as_bytes()),
        false => io::stdout().lock().write_all(text.as_bytes()),
    };
    let table = match table {
        // A reader that has seen enough, such as `head`, is no failure.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(RunError::Write {
            path: "standard output".into(),
            error,
        }),
        _ => Ok(()),
    };
    let json = json.map_or(Ok(()), |mut output| {
        let text = serde_json::to_string_pretty(report).expect("reports have string keys");
        output.write((text + "\n").as_bytes())
    });
    let html = html.map_or(Ok(()), |mut output| {
        output.write(page(report, search.language).as_bytes())
    });
    table.and(json).and(html)
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_report::{Knee, Unit};
    use myriad_units::whole;

    fn report() -> SearchReport {
        let trial = |value: f64, held: bool| Trial {
            value,
            held,
            connected: whole(value),
            thresholds: vec![Verdict {
                expression: "echo:p99<50ms".to_owned(),
                value: Some(value / 100.0),
                unit: Unit::Milliseconds,
                passed: held,
                aborted: false,
            }],
            ..Trial::default()
        };
        SearchReport {
            key: "terminals.count".to_owned(),
            knee: Some(Knee {
                value: 4_000.0,
                failed_at: Some(8_000.0),
                trials: 2,
                held: 2,
                ..Knee::default()
            }),
            trials: vec![trial(4_000.0, true), trial(8_000.0, false)],
            ..SearchReport::default()
        }
    }

    #[test]
    fn a_table_and_a_page_say_where_the_knee_is() {
        let mut report = report();
        report.summary = summary(&report, Language::English);
        assert_eq!(
            report.summary,
            "terminals.count is at most 4,000: it held 2 of 2 times; 8,000 failed."
        );
        let text = render(&report, 100);
        assert!(text.contains("8,000") && text.contains("failed"), "{text}");
        let page = page(&report, Language::Chinese);
        assert!(
            page.contains("echo:p99&lt;50ms (80.0 ms)") && page.contains("容量搜索"),
            "{page}"
        );
        assert!(
            page.contains("最大为 4,000：2 次中通过 2 次；8,000 未通过。"),
            "{page}"
        );
        assert!(!page.contains(" is at most"), "{page}");
    }

    #[test]
    fn a_value_that_failed_a_repeat_is_told_with_those_that_it_held() {
        let mut report = report();
        let again = |held| Trial {
            held,
            purpose: Purpose::Repeat,
            ..report.trials[1].clone()
        };
        let more = [true, true, true].map(again);
        report.trials.extend(more);
        assert_eq!(
            summary(&report, Language::English),
            "terminals.count is at most 4,000: it held 2 of 2 times; 8,000 held 3 of 4 times only."
        );
    }

    #[test]
    fn every_end_is_told_in_either_language() {
        let mut report = report();
        report.trials[1].left_over = 1_200;
        report.trials[1].saturated = vec!["turn".to_owned()];
        let chinese = reason(&report.trials[1], Language::Chinese);
        let parts = "echo:p99<50ms (80.0 ms)；压测机：turn；上一轮仍有 1,200 个连接未断开";
        assert_eq!(chinese, parts);
        report.trials[1].thresholds[0].value = Some(f64::INFINITY);
        let chinese = reason(&report.trials[1], Language::Chinese);
        assert!(chinese.starts_with("echo:p99<50ms (从未)；"), "{chinese}");
        for outcome in [
            SearchOutcome::Found,
            SearchOutcome::Limit,
            SearchOutcome::NeverHeld,
            SearchOutcome::GeneratorSaturated,
            SearchOutcome::NobodyConnected,
            SearchOutcome::Unsettled,
            SearchOutcome::Interrupted,
        ] {
            report.outcome = outcome;
            let [english, chinese] =
                [Language::English, Language::Chinese].map(|it| summary(&report, it));
            assert!(english.is_ascii() && english.ends_with('.'), "{english}");
            assert!(chinese.ends_with('。'), "{chinese}");
        }
    }

    #[test]
    fn a_crowd_at_its_limit_is_no_limit_of_the_server() {
        let mut report = report();
        report.outcome = SearchOutcome::GeneratorSaturated;
        report.trials[1].saturated = vec!["cpu".to_owned()];
        let said = summary(&report, Language::English);
        assert!(said.starts_with("The generator, not the server, was at its limit (cpu)."));
        assert!(said.contains("4,000"), "{said}");
    }
}
