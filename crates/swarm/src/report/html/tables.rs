//! The tables of the page: verdicts, figures, errors, settings.

use crate::report::Report;
use crate::report::generator::{is_limit, is_machine_full};
use crate::report::reporting::Language;
use crate::report::text::{bytes, count, micros, time};
use myriad_charts::{escape, table};
use myriad_report::{FlowReport, RoundTripReport};

/// `pass` or `fail`, as a word and in its colour.
fn mark(passed: bool, language: Language) -> String {
    let (class, word) = if passed {
        ("pass", language.of("\u{2713} holds", "\u{2713} 通过"))
    } else {
        ("fail", language.of("\u{2717} failed", "\u{2717} 未通过"))
    };
    format!("<b class=\"{class}\">{word}</b>")
}

/// What the run was held against.
pub(super) fn thresholds(report: &Report, language: Language) -> String {
    if report.thresholds.is_empty() {
        return String::new();
    }
    let rows = report.thresholds.iter().map(|verdict| {
        let value = verdict.value.map_or_else(
            || language.of("not measured", "未测得").to_owned(),
            |value| language.figure(value, verdict.unit),
        );
        vec![
            format!("<code>{}</code>", escape(&verdict.expression)),
            value,
            mark(verdict.passed, language),
        ]
    });
    let heads = [
        language.of("threshold", "阈值"),
        language.of("measured", "实测"),
        language.of("verdict", "结论"),
    ];
    let title = language.of("Thresholds", "阈值");
    format!("<h2>{title}</h2>\n{}", table(&heads, rows))
}

fn check_name(of: &str, language: Language) -> &'static str {
    match of {
        "cpu" => language.of(
            "seconds without rest (CPU above 90%)",
            "CPU 超过 90% 的时间占比",
        ),
        "machine_cpu" => language.of(
            "CPU of the whole machine, busiest second",
            "整机 CPU（最忙的一秒）",
        ),
        "schedule" => language.of("lateness of the schedule", "发送计划的最大延误"),
        "turn" => language.of("longest batch of messages", "单批消息的最长处理时间"),
        "ports" => language.of("attempts without a source port", "源端口不足次数"),
        "descriptors" => language.of("attempts without a descriptor", "文件描述符不足次数"),
        _ => language.of("attempts without memory", "内存不足次数"),
    }
}

/// What a message took of the processors at both ends, where both are known. These have no limit: they are to be compared.
fn cpu_rows(report: &Report, language: Language) -> Vec<Vec<String>> {
    let known = report.cpu.and_then(|cpu| {
        let generator = cpu.generator_cpu_us_per_message?;
        Some((generator, cpu.server_cpu_us_per_message?))
    });
    let Some((generator, server)) = known else {
        return Vec::new();
    };
    let names = [
        language.of("generator CPU per message", "压测机每条消息 CPU"),
        language.of("server CPU per message", "服务器每条消息 CPU"),
    ];
    let rows = names.into_iter().zip([generator, server]);
    rows.map(|(name, value)| vec![name.to_owned(), micros(value), String::new(), String::new()])
        .collect()
}

/// Whether the crowd itself was the limit.
pub(super) fn generator(report: &Report, language: Language) -> String {
    let generator = &report.generator;
    if generator.checks.is_empty() {
        return String::new();
    }
    let rows = generator.checks.iter().map(|check| {
        let limit = format!("\u{2264} {}", language.figure(check.limit, check.unit));
        let verdict = if !check.passed && !is_limit(check) {
            format!("<b class=\"warn\">{}</b>", language.of("full", "已满"))
        } else {
            mark(check.passed, language)
        };
        vec![
            check_name(&check.of, language).to_owned(),
            language.figure(check.value, check.unit),
            limit,
            verdict,
        ]
    });
    let heads = [
        "",
        language.of("measured", "实测"),
        language.of("limit", "上限"),
        language.of("verdict", "结论"),
    ];
    let (class, words) = if generator.saturated {
        (
            "warn",
            language.of(
                "Saturated: the figures say less of the server",
                "压测机已饱和：数据不能完全反映服务器能力",
            ),
        )
    } else if is_machine_full(generator) {
        (
            "warn",
            language.of(
                "This machine had no processor left: if the server shares it, the figures are of both",
                "整机处理器已满：若服务器也在本机，数据同时反映两者",
            ),
        )
    } else {
        (
            "pass",
            language.of(
                "Not saturated: the figures are the server's",
                "压测机未饱和：数据反映服务器能力",
            ),
        )
    };
    let title = language.of("The generator itself", "压测机自检");
    format!(
        "<h2>{title}</h2>\n<p class=\"{class}\">{words}</p>\n{}",
        table(&heads, rows.chain(cpu_rows(report, language)))
    )
}

/// Times of what was sent and answered, in one table.
pub(super) fn figures(report: &Report, language: Language) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    if let Some(fanout) = &report.fanout {
        let times = &fanout.overall;
        rows.push(vec![
            language.of("pushes", "推送").to_owned(),
            count(fanout.pushes),
            count(report.messages.missed),
            count(repeated(report)),
            language.time_or_dash(times.p50_ms),
            language.time_or_dash(times.p90_ms),
            language.time_or_dash(times.p99_ms),
            language.time_or_dash(times.p999_ms),
            language.time_or_dash(times.last_ms),
        ]);
    }
    let trips = [
        (language.of("echoes", "回显"), report.echo.as_ref()),
        (language.of("requests", "请求"), report.request.as_ref()),
        (
            language.of("publications of clients", "客户端发布"),
            report
                .client_publish
                .as_ref()
                .map(|published| &published.replies),
        ),
    ];
    let trips = trips.into_iter();
    rows.extend(trips.filter_map(|(name, trips)| trips.map(|trips| trip(name, trips, language))));
    rows.extend(report.flows.iter().map(|it| flow(it, language)));
    if rows.is_empty() {
        return String::new();
    }
    let heads = [
        "",
        language.of("count", "数量"),
        language.of("missing", "缺失"),
        language.of("repeated", "重复"),
        "p50",
        "p90",
        "p99",
        "p99.9",
        language.of("max", "最大"),
    ];
    format!(
        "<h2>{}</h2>\n{}",
        language.of("Figures", "数据"),
        table(&heads, rows)
    )
}

/// Deliveries that came again: by the stamps of this run, or by the protocol's offsets, which know those of others too.
fn repeated(report: &Report) -> u64 {
    let of_session = report.session.as_ref().map_or(0, |it| it.duplicates);
    report.messages.duplicates.max(of_session)
}

fn trip(name: &str, trips: &RoundTripReport, language: Language) -> Vec<String> {
    let times = &trips.round_trip_ms;
    vec![
        name.to_owned(),
        count(trips.received),
        count(trips.lost),
        // The second answer to one message is an error, and stands there.
        String::new(),
        language.time_or_dash(times.p50),
        language.time_or_dash(times.p90),
        language.time_or_dash(times.p99),
        language.time_or_dash(times.p999),
        language.time_or_dash(times.max),
    ]
}

fn flow(flow: &FlowReport, language: Language) -> Vec<String> {
    let times = &flow.since_due_ms;
    vec![
        escape(&flow.name),
        count(flow.received),
        count(flow.missing),
        count(flow.duplicated),
        language.time_or_dash(times.p50),
        language.time_or_dash(times.p90),
        language.time_or_dash(times.p99),
        language.time_or_dash(times.p999),
        language.time_or_dash(times.max),
    ]
}

/// Errors by kind, each with what the server said first.
pub(super) fn errors(report: &Report, language: Language) -> String {
    let closes = report
        .closes
        .iter()
        .map(|(code, count)| (format!("close_{code}"), *count));
    let errors = report
        .errors
        .iter()
        .map(|(kind, count)| (kind.clone(), *count));
    let rows: Vec<Vec<String>> = errors
        .chain(closes)
        .map(|(kind, number)| {
            let said = report.server_said.get(&kind).map_or("", String::as_str);
            vec![
                format!("<code>{}</code>", escape(&kind)),
                count(number),
                format!("<pre>{}</pre>", escape(said)),
            ]
        })
        .collect();
    let title = language.of("Errors", "错误");
    if rows.is_empty() {
        return format!(
            "<h2>{title}</h2>\n<p class=\"pass\">{}</p>\n",
            language.of("None.", "无。")
        );
    }
    let heads = [
        language.of("kind", "类型"),
        language.of("count", "数量"),
        language.of("first example", "首个示例"),
    ];
    format!("<h2>{title}</h2>\n{}", table(&heads, rows))
}

/// How the run was made.
pub(super) fn settings(report: &Report, language: Language) -> String {
    let settings = &report.settings;
    let held = match settings.hold_s {
        Some(held_s) => time(held_s * 1000.0),
        None => language
            .of("until the pushes were over", "直到推送完成")
            .to_owned(),
    };
    let mut rows = vec![
        (
            language.of("targets", "目标"),
            settings
                .targets
                .iter()
                .take(5)
                .cloned()
                .collect::<Vec<_>>()
                .join(", "),
        ),
        (language.of("protocol", "协议"), settings.protocol.clone()),
        (
            language.of("connections", "连接数"),
            count(settings.connections),
        ),
        (
            language.of("hold, from the end of connecting", "保持时长（建连完成后）"),
            held,
        ),
        (
            language.of(
                "whole run, with connecting and closing",
                "全程时长（含建连与关闭）",
            ),
            time(report.elapsed_s * 1000.0),
        ),
        (
            language.of("threads, driver", "线程、驱动"),
            format!("{}, {}", settings.threads, settings.driver),
        ),
        (
            language.of("processors, kernel", "处理器、内核"),
            format!("{}, {}", settings.processors, settings.kernel),
        ),
        (
            language.of("memory per client", "每客户端内存"),
            report
                .crowd
                .user_bytes_per_client
                .map_or_else(|| "-".to_owned(), bytes),
        ),
    ];
    if let Some(every) = settings.publish_every_s {
        rows.push((
            language.of("a push every", "推送间隔"),
            time(every * 1000.0),
        ));
    }
    let rows = rows
        .into_iter()
        .map(|(name, value)| vec![name.to_owned(), escape(&value)]);
    let title = language.of("How the run was made", "测试设置");
    let own = format!("<h2>{title}</h2>\n{}", table(&["", ""], rows));
    own + &crate::report::fleet::section(report, language)
}
