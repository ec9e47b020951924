//! A search as a page: what was searched, where and when; how the figures grew with the load; each trial.

use super::shown::{purpose, reason, summary, word};
use crate::report::html::{elapsed, label_of};
use crate::report::reporting::Language;
use crate::report::text::{count, figure, percent, time};
use myriad_charts::drawing::{Line, Plot, Shape, plot};
use myriad_charts::{Axis, LOGARITHMIC, Mark, Point, Scale, Steps, escape, static_document, table};
use myriad_report::{SearchReport, Trial, Unit, Verdict};

/// The styles of a run's page.
const STYLE: &str = include_str!("../report/html/report.css");

/// The page: no network and no script.
pub(super) fn page(report: &SearchReport, language: Language) -> String {
    let kind = language.of("Capacity search", "容量搜索");
    let name = std::path::Path::new(&report.scenario).file_stem();
    let name = name.map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let title = match name.is_empty() {
        true => kind.to_owned(),
        false => format!("{name} \u{b7} {kind}"),
    };
    let body = [
        head(report, &name, language),
        pictures(report, language),
        trials(report, language),
        settings(report, language),
    ];
    static_document(&title, language.tag(), STYLE, &body.concat())
}

fn head(report: &SearchReport, name: &str, language: Language) -> String {
    let knee = report.knee.as_ref();
    let knee = knee.map_or_else(|| "-".to_owned(), |knee| figure(knee.value, report.unit));
    let kind = language.of("Capacity search", "容量搜索");
    let line = |text: Option<&str>, before: &str, after: &str| {
        text.filter(|text| !text.is_empty())
            .map_or_else(String::new, |text| {
                format!("{before}{}{after}\n", escape(text))
            })
    };
    [
        format!("<header>\n<p class=\"kicker\">{kind}</p>\n"),
        format!("<h1>{} {} {knee}</h1>\n", escape(name), escape(&report.key)),
        line(
            report.description.as_deref(),
            "<p class=\"lead\"><b>",
            "</b></p>",
        ),
        line(
            Some(&summary(report, language)),
            "<p class=\"lead\">",
            "</p>",
        ),
        line(Some(&when(report, language)), "<p class=\"when\">", "</p>"),
        line(
            report.command.as_deref(),
            "<p class=\"when\"><code>",
            "</code></p>",
        ),
        "</header>\n".to_owned(),
    ]
    .concat()
}

/// When the search began, how long it took, and against what.
fn when(report: &SearchReport, language: Language) -> String {
    let began = myriad_wire::streams::timestamp(report.started_unix_s.saturating_mul(1000));
    // To the minute: `2026-01-31 09:30`.
    let began = began.get(..16).unwrap_or(&began).replace('T', " ");
    let took = time(report.elapsed_s * 1000.0);
    let trials = count(report.trials.len() as u64);
    let targets = match &report.targets[..] {
        [] => String::new(),
        [one] => one.clone(),
        [first, more @ ..] => format!("{first} + {}", more.len()),
    };
    match language {
        Language::English => {
            format!("{began} UTC \u{b7} {trials} trials in {took} \u{b7} {targets}")
        }
        Language::Chinese => {
            format!("{began} UTC \u{b7} {trials} 次测试，用时 {took} \u{b7} {targets}")
        }
    }
}

/// For each threshold, what was measured of it at each value; and how many connected.
fn pictures(report: &SearchReport, language: Language) -> String {
    let thresholds = report.thresholds.iter().enumerate();
    let mut pictures: String = thresholds
        .map(|(index, expression)| {
            picture(report, expression, language, |trial| {
                verdict_of(trial, index)
            })
        })
        .collect();
    let connected = language.of("clients that connected", "连接成功的客户端");
    pictures.push_str(&picture(report, connected, language, |trial| {
        Some((crate::report::float(trial.connected), Unit::Count))
    }));
    match pictures.is_empty() {
        true => pictures,
        false => {
            let title = language.of("How it grew with the load", "随负载的变化");
            format!("<h2>{title}</h2>\n<div class=\"charts\">\n{pictures}</div>\n")
        }
    }
}

/// What was measured of a threshold; none where nothing was, or what was to come never did.
fn verdict_of(trial: &Trial, index: usize) -> Option<(f64, Unit)> {
    let Verdict { value, unit, .. } = trial.thresholds.get(index)?;
    Some((value.filter(|value| value.is_finite())?, *unit))
}

fn picture(
    report: &SearchReport,
    title: &str,
    language: Language,
    of: impl Fn(&Trial) -> Option<(f64, Unit)>,
) -> String {
    let mut unit = Unit::Count;
    let mut points = |held: bool| -> Vec<Point> {
        let trials = report.trials.iter().filter(|trial| trial.held == held);
        let mut points: Vec<Point> = trials
            .filter_map(|trial| {
                let (y, its) = of(trial)?;
                unit = its;
                Some(Point { x: trial.value, y })
            })
            .collect();
        points.sort_by(|one, other| one.x.total_cmp(&other.x).then(one.y.total_cmp(&other.y)));
        points
    };
    let lines = [(true, points(true)), (false, points(false))];
    let lines: Vec<Line> = lines
        .into_iter()
        .enumerate()
        .filter(|(_, (_, points))| !points.is_empty())
        .map(|(index, (held, points))| Line {
            label: word(held, language).to_owned(),
            mark: Mark::of(index),
            shape: Shape::Line,
            points,
        })
        .collect();
    let values = || lines.iter().flat_map(|line| &line.points);
    if values().all(|point| point.y <= 0.0) {
        return String::new();
    }
    let axis = |title: &str, scale, format| Axis {
        title: title.to_owned(),
        scale,
        logarithmic: language.of(LOGARITHMIC, "（对数刻度）"),
        steps: Steps::Decimal,
        format,
    };
    plot(&Plot {
        title: title.to_owned(),
        note: String::new(),
        x: axis(&report.key, Scale::Linear, label_of(report.unit)),
        y: axis(
            "",
            Scale::suiting(values().map(|point| point.y)),
            label_of(unit),
        ),
        y_most: None,
        lines,
    })
}

fn trials(report: &SearchReport, language: Language) -> String {
    let heads = [
        language.of("trial", "序号"),
        &report.key,
        language.of("why", "目的"),
        language.of("thresholds", "阈值"),
        language.of("connected", "连接数"),
        language.of("began after", "开始于"),
        language.of("took", "用时"),
        language.of("figures", "数据"),
    ];
    let rows = report.trials.iter().zip(1..).map(|(trial, number)| {
        vec![
            format!("{number}"),
            figure(trial.value, report.unit),
            purpose(trial.purpose, language).to_owned(),
            word(trial.held, language).to_owned(),
            count(trial.connected),
            elapsed(trial.began_s),
            time(trial.elapsed_s * 1000.0),
            escape(&reason(trial, language)),
        ]
    });
    let title = language.of("Trials", "各次测试");
    format!("<h2>{title}</h2>\n{}", table(&heads, rows))
}

/// What was searched, where, and how closely.
fn settings(report: &SearchReport, language: Language) -> String {
    let shown = report.targets.iter().take(5).cloned();
    let rows = [
        (language.of("scenario", "场景"), report.scenario.clone()),
        (language.of("searched", "搜索的参数"), report.key.clone()),
        (
            language.of("thresholds", "阈值"),
            report.thresholds.join(", "),
        ),
        (
            language.of("targets", "目标"),
            shown.collect::<Vec<_>>().join(", "),
        ),
        (language.of("precision", "精度"), percent(report.precision)),
        (
            language.of("repeats of the knee", "复测次数"),
            report.repeats.to_string(),
        ),
        (
            language.of("the crowd's processors, kernel", "压测机处理器、内核"),
            format!("{}, {}", report.processors, report.kernel),
        ),
        (
            language.of("program", "程序"),
            format!("{} {}", report.program, report.version),
        ),
    ];
    let rows = rows.map(|(name, value)| vec![name.to_owned(), escape(&value)]);
    let title = language.of("How the search was made", "搜索设置");
    format!("<h2>{title}</h2>\n{}", table(&["", ""], rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_report::Knee;

    fn report() -> SearchReport {
        let trial = |value: f64, held: bool| Trial {
            value,
            held,
            connected: 40,
            began_s: value,
            thresholds: vec![Verdict {
                expression: "echo:p99<50ms".to_owned(),
                value: Some(value / 10.0),
                unit: Unit::Milliseconds,
                passed: held,
                aborted: false,
            }],
            ..Trial::default()
        };
        SearchReport {
            scenario: "scenarios/chat<.toml".to_owned(),
            description: Some("What a room holds.".to_owned()),
            command: Some("myriad swarm find-max chat.toml".to_owned()),
            targets: vec!["ws://127.0.0.1:8000/".to_owned(), "ws://b/".to_owned()],
            started_unix_s: 1_700_000_000,
            elapsed_s: 61.0,
            key: "echo.rate".to_owned(),
            unit: Unit::PerSecond,
            thresholds: vec!["echo:p99<50ms".to_owned()],
            knee: Some(Knee {
                value: 400.0,
                ..Knee::default()
            }),
            trials: vec![trial(100.0, true), trial(900.0, false), trial(400.0, true)],
            ..SearchReport::default()
        }
    }

    #[test]
    fn the_page_says_what_was_searched_where_and_when() {
        let page = page(&report(), Language::English);
        for wanted in [
            "<title>chat&lt; \u{b7} Capacity search</title>",
            "<h1>chat&lt; echo.rate 400/s</h1>",
            "<b>What a room holds.</b>",
            "2023-11-14 22:13 UTC \u{b7} 3 trials in 61.0 s \u{b7} ws://127.0.0.1:8000/ + 1",
            "<code>myriad swarm find-max chat.toml</code>",
            ">ws://127.0.0.1:8000/, ws://b/</td>",
        ] {
            assert!(page.contains(wanted), "{wanted}: {page}");
        }
        for reference in ["<script", "src=", "href=", "url("] {
            assert!(!page.contains(reference), "{reference}");
        }
    }

    #[test]
    fn each_threshold_has_a_curve_over_the_load() {
        let mut report = report();
        let curves = |report: &SearchReport| {
            page(report, Language::Chinese)
                .matches("<svg viewBox")
                .count()
        };
        assert_eq!(curves(&report), 2, "the threshold and who connected");
        for trial in &mut report.trials {
            trial.thresholds[0].value = Some(f64::INFINITY);
            trial.connected = 0;
        }
        assert_eq!(curves(&report), 0, "nothing that could be drawn");
        assert_eq!(curves(&SearchReport::default()), 0);
    }
}
