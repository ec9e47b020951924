//! A search for people: a line for each trial, the closing table, and a page.

use super::hunt::TRIALS_MAX;
use super::{Search, close};
use crate::report::output::{Destination, Output};
use crate::report::reporting::Language;
use crate::report::text::{count, counted, rate, time};
use crate::run::RunError;
use myriad_charts::{escape, static_document, table};
use myriad_layout::{Cell, Column, Paint, Table, Tone, terminal_columns, wrapped};
use myriad_report::{Purpose, SearchOutcome, SearchReport, Trial, Unit, Verdict};
use myriad_units::{percent, whole};
use std::io::{self, Write as _};

/// The styles of a run's page.
const STYLE: &str = include_str!("../report/html/report.css");

/// Fewest columns that lines are wrapped to.
const COLUMNS_MIN: usize = 40;

/// A value of the key, with its unit.
fn value(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Milliseconds => time(value),
        Unit::Count => count(whole(value)),
        Unit::PerSecond => rate(value),
        Unit::Ratio => percent(value),
    }
}

/// What was measured of a threshold, behind it.
fn verdict(verdict: &Verdict) -> String {
    let measured = verdict.value.map_or_else(
        || "nothing measured".to_owned(),
        |measured| value(measured, verdict.unit),
    );
    format!("{} ({measured})", verdict.expression)
}

/// What decided a trial: the thresholds that failed, or all of them.
fn reason(trial: &Trial) -> String {
    let mut parts: Vec<String> = match trial.held {
        true => trial.thresholds.iter().map(verdict).collect(),
        false => {
            let failed = trial.thresholds.iter().filter(|it| !it.passed);
            failed.map(verdict).collect()
        }
    };
    if trial.thresholds.is_empty() {
        parts.extend(trial.went_wrong.clone());
    }
    if !trial.saturated.is_empty() {
        parts.push(format!("the generator's {}", trial.saturated.join(", ")));
    }
    if trial.left_over > 0 {
        let left = counted(trial.left_over, "connection");
        parts.push(format!("{left} of the trial before were still there"));
    }
    parts.join("; ")
}

fn word(held: bool, language: Language) -> &'static str {
    match held {
        true => language.of("held", "通过"),
        false => language.of("failed", "未通过"),
    }
}

fn purpose(purpose: Purpose, language: Language) -> &'static str {
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
        value(trial.value, report.unit),
        word(trial.held, Language::English),
        reason(trial)
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
pub(super) fn summary(report: &SearchReport) -> String {
    let key = &report.key;
    let of = |it: f64| value(it, report.unit);
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
                let at: Vec<&Trial> = trials_at(report, failed).collect();
                match at.iter().filter(|trial| trial.held).count() {
                    0 => format!("; {} failed", of(failed)),
                    held => format!("; {} held {held} of {} times only", of(failed), at.len()),
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
            report
                .trials
                .last()
                .map_or_else(String::new, |trial| trial.saturated.join(", "))
        ),
        (SearchOutcome::NobodyConnected, _) => {
            let said = report.trials.last().and_then(|it| it.went_wrong.clone());
            let said = said.map_or_else(String::new, |said| format!(" {said}"));
            format!("Nobody could connect.{said}")
        }
        (SearchOutcome::Unsettled, _) => format!(
            "Values held and failed by turns until trial {}. {best} Give a longer --duration or a coarser --precision.",
            TRIALS_MAX
        ),
        (SearchOutcome::Interrupted, _) => format!("Interrupted. {best}"),
        (SearchOutcome::NeverHeld | SearchOutcome::Found | SearchOutcome::Limit, _) => {
            format!("A threshold fails at the smallest {key} too.")
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
            Cell::from(value(trial.value, report.unit)),
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

/// The page: no network and no script.
fn page(report: &SearchReport, language: Language) -> String {
    let title = language.of("Capacity search", "容量搜索");
    let heads = [
        language.of("trial", "序号"),
        &report.key,
        language.of("why", "目的"),
        language.of("thresholds", "阈值"),
        language.of("connected", "连接数"),
        language.of("figures", "数据"),
    ];
    let rows = report.trials.iter().zip(1..).map(|(trial, number)| {
        vec![
            format!("{number}"),
            value(trial.value, report.unit),
            purpose(trial.purpose, language).to_owned(),
            word(trial.held, language).to_owned(),
            count(trial.connected),
            escape(&reason(trial)),
        ]
    });
    let found = report.knee.as_ref();
    let knee = found.map_or_else(|| "-".to_owned(), |knee| value(knee.value, report.unit));
    let body = format!(
        "<header>\n<p class=\"kicker\">{title}</p>\n<h1>{} {knee}</h1>\n<p class=\"lead\">{}</p>\n<p class=\"when\">{}</p>\n</header>\n<section>\n{}</section>\n",
        escape(&report.key),
        escape(&report.summary),
        escape(&report.thresholds.join(", ")),
        table(&heads, rows)
    );
    static_document(title, language.tag(), STYLE, &body)
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
    use myriad_report::Knee;

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
        report.summary = summary(&report);
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
            summary(&report),
            "terminals.count is at most 4,000: it held 2 of 2 times; 8,000 held 3 of 4 times only."
        );
    }

    #[test]
    fn a_crowd_at_its_limit_is_no_limit_of_the_server() {
        let mut report = report();
        report.outcome = SearchOutcome::GeneratorSaturated;
        report.trials[1].saturated = vec!["cpu".to_owned()];
        let said = summary(&report);
        assert!(said.starts_with("The generator, not the server, was at its limit (cpu)."));
        assert!(said.contains("4,000"), "{said}");
    }
}
