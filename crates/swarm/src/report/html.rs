//! The report as a page: self-contained, without scripts, for light and dark screens and for paper.
//!
//! It says first what a reader wants to know who reads nothing else: did it work, how many, how fast. Then come the verdicts,
//! the pictures over time, and at the end how the run was made.

mod load;
mod pictures;
mod tables;
mod ticks;

use crate::report::reporting::Language;
use crate::report::text::{count, percent, rate, time};
use crate::report::{Outcome, Report, float, summary};
use myriad_charts::{escape, static_document};
use myriad_report::{RoundTripReport, Unit};
pub(crate) use ticks::elapsed;

/// What the page has beside the styles that all pages share.
const STYLE: &str = include_str!("html/report.css");

/// The whole page.
pub(crate) fn page(report: &Report, language: Language) -> String {
    let kind = language.of("Load test report", "压力测试报告");
    let title = match &report.settings.scenario {
        Some(scenario) => format!("{scenario} \u{b7} {kind}"),
        None => kind.to_owned(),
    };
    let body = [
        head(report, language, kind),
        tiles(report, language),
        tables::thresholds(report, language),
        tables::figures(report, language),
        pictures::pictures(report, language),
        super::comeback::section(report, language),
        super::unwell::section(report, language),
        tables::errors(report, language),
        "<div class=\"columns\">\n<section>\n".to_owned(),
        tables::generator(report, language),
        "</section>\n<section>\n".to_owned(),
        tables::settings(report, language),
        "</section>\n</div>\n".to_owned(),
        foot(report, language),
    ];
    static_document(&title, language.tag(), STYLE, &body.concat())
}

/// The verdict, in a colour and in a word: paper may be grey.
fn head(report: &Report, language: Language, kind: &str) -> String {
    let failed = report.thresholds.iter().filter(|it| !it.passed).count();
    let (class, verdict) = match report.outcome {
        Outcome::ThresholdsFailed => ("fail", language.of("Failed", "未通过")),
        Outcome::NobodyConnected => ("fail", language.of("Nobody connected", "无连接成功")),
        Outcome::LoadFailed => ("fail", language.of("Load failed", "负载失败")),
        Outcome::Interrupted => ("warn", language.of("Interrupted", "已中断")),
        Outcome::Finished if report.thresholds.is_empty() => {
            ("plain", language.of("Finished", "已完成"))
        }
        Outcome::Finished => ("pass", language.of("Passed", "通过")),
    };
    let saturated = if report.generator.saturated {
        let text = language.of("generator saturated", "压测机已饱和");
        format!(" <span class=\"badge warn\">{text}</span>")
    } else {
        String::new()
    };
    let title = match &report.settings.scenario {
        Some(scenario) => scenario.clone(),
        None => targets(report),
    };
    let thresholds = match (report.thresholds.len(), language) {
        (0, _) => String::new(),
        (all, Language::English) => format!("{} of {all} thresholds hold. ", all - failed),
        (all, Language::Chinese) => format!("共 {all} 项阈值，{} 项通过。", all - failed),
    };
    let fine = match failed {
        0 => language.of(
            "Nothing went wrong that was counted.",
            "统计范围内未发现异常。",
        ),
        // The thresholds say what.
        _ => "",
    };
    let wrong = report.went_wrong.as_deref().unwrap_or(fine);
    let alone = summary::only_connected(report, language).map(|it| format!(" {}", escape(&it)));
    format!(
        "<header>\n<p class=\"kicker\">{kind}</p>\n<h1><span class=\"badge {class}\">{verdict}</span>{saturated} {}</h1>\n\
         {}<p class=\"lead\">{thresholds}{}{}</p>\n<p class=\"when\">{}</p>\n{}</header>\n",
        escape(&title),
        about(report, language),
        escape(wrong),
        alone.unwrap_or_default(),
        when(report, language),
        command(report)
    )
}

/// The first target, and how many more there are.
fn targets(report: &Report) -> String {
    match &report.settings.targets[..] {
        [] => String::new(),
        [one] => one.clone(),
        [first, more @ ..] => format!("{first} + {}", more.len()),
    }
}

/// What the scenario shows, in its own words, and what the run did.
fn about(report: &Report, language: Language) -> String {
    let description = report.settings.description.as_deref();
    let description =
        description.map(|it| format!("<p class=\"lead\"><b>{}</b></p>\n", escape(it)));
    let load = load::parts(report, language).join(language.of("; ", "；"));
    let load = (!load.is_empty()).then(|| {
        let name = language.of("Load", "负载");
        let colon = language.of(": ", "：");
        format!("<p class=\"lead\">{name}{colon}{}</p>\n", escape(&load))
    });
    description.into_iter().chain(load).collect()
}

/// The command line, as a shell reads it.
fn command(report: &Report) -> String {
    let command = report.settings.command.as_deref();
    command.map_or_else(String::new, |command| {
        format!("<p class=\"when\"><code>{}</code></p>\n", escape(command))
    })
}

/// When the run began and how long it took.
fn when(report: &Report, language: Language) -> String {
    let began = myriad_wire::streams::timestamp(report.started_unix_s.saturating_mul(1000));
    // To the minute: `2026-01-31 09:30`.
    let began = began.get(..16).unwrap_or(&began).replace('T', " ");
    let took = time(report.elapsed_s * 1000.0);
    let clients = count(report.settings.connections);
    match language {
        Language::English => {
            format!("{began} UTC &middot; whole run {took} &middot; {clients} clients")
        }
        Language::Chinese => {
            format!("{began} UTC &middot; 全程用时 {took} &middot; {clients} 个客户端")
        }
    }
}

/// How an axis of a unit is labelled.
pub(crate) fn label_of(unit: Unit) -> fn(f64) -> String {
    match unit {
        Unit::Milliseconds => ticks::time,
        Unit::Ratio => ticks::share,
        Unit::PerSecond => rate,
        _ => |value| count(myriad_units::whole(value)),
    }
}

/// The few figures that one remembers.
fn tiles(report: &Report, language: Language) -> String {
    let setup = &report.setup;
    let mut tiles = vec![
        (
            language.of("connections", "连接数"),
            count(setup.connected),
            format!(
                "{} {}",
                language.of("of", "目标"),
                count(setup.connections_wanted)
            ),
        ),
        (
            language.of("connecting", "建连速率"),
            rate(setup.rate_per_s),
            setup
                .p99_ms
                .map_or_else(String::new, |p99| format!("p99 {}", language.time(p99))),
        ),
    ];
    if report.messages.count > 0 {
        tiles.push((
            language.of("messages received", "收到消息"),
            count(report.messages.count),
            rate(report.messages.mean_per_s),
        ));
    }
    if let Some(fanout) = &report.fanout {
        let reach = fanout.reach.map_or_else(|| "-".to_owned(), percent);
        let missed = count(report.messages.missed);
        let missing = language.of("missing", "缺失");
        tiles.push((
            language.of("reach", "到达率"),
            reach,
            format!("{missed} {missing}"),
        ));
        let last = language.time_or_dash(fanout.overall.last_ms);
        let p99 = fanout.overall.p99_ms;
        let p99 = p99.map_or_else(String::new, |p99| language.time(p99));
        tiles.push((
            language.of("last client reached", "最后一个客户端"),
            last,
            format!("p99 {p99}"),
        ));
    }
    tiles.extend(trip_tiles(report, language));
    tiles.extend(flow_tiles(report, language));
    tiles.push((
        language.of("connections lost", "断开连接"),
        count(report.churn.lost),
        format!(
            "{} {}",
            count(report.errors.values().sum()),
            language.of("errors", "个错误")
        ),
    ));
    let tiles: String = tiles
        .into_iter()
        .map(|(name, value, small)| {
            format!("<div class=\"tile\"><span>{name}</span><b>{value}</b><small>{small}</small></div>\n")
        })
        .collect();
    format!("<section class=\"tiles\">\n{tiles}</section>\n")
}

/// The 99th percentiles of what was sent and answered.
fn trip_tiles(report: &Report, language: Language) -> Vec<(&'static str, String, String)> {
    let published = report.client_publish.as_ref();
    let trips = [
        (language.of("echo p99", "回显 p99"), report.echo.as_ref()),
        (
            language.of("request p99", "请求 p99"),
            report.request.as_ref(),
        ),
        (
            language.of("publication p99", "发布 p99"),
            published.map(|published| &published.replies),
        ),
    ];
    let tile = |(name, trips): (&'static str, Option<&RoundTripReport>)| {
        let trips = trips?;
        let p99 = language.time_or_dash(trips.round_trip_ms.p99);
        Some((name, p99, rate(trips.received_per_s)))
    };
    trips.into_iter().filter_map(tile).collect()
}

/// What came of all flows, and the one that is slowest.
fn flow_tiles(report: &Report, language: Language) -> Vec<(&'static str, String, String)> {
    let flows = &report.flows;
    let expected: u64 = flows.iter().map(|flow| flow.expected).sum();
    let received: u64 = flows.iter().map(|flow| flow.received).sum();
    if expected == 0 {
        return Vec::new();
    }
    let missing: u64 = flows.iter().map(|flow| flow.missing).sum();
    let reach = (
        language.of("reach of flows", "业务流到达率"),
        percent(float(received) / float(expected)),
        format!("{} {}", count(missing), language.of("missing", "缺失")),
    );
    let timed = flows
        .iter()
        .filter_map(|flow| Some((flow.since_due_ms.p99?, flow)));
    let slowest = timed.max_by(|one, other| one.0.total_cmp(&other.0));
    let slowest = slowest.map(|(p99, flow)| {
        let name = language.of("slowest flow, p99", "最慢业务流 p99");
        (name, language.time(p99), escape(&flow.name))
    });
    std::iter::once(reach).chain(slowest).collect()
}

fn foot(report: &Report, language: Language) -> String {
    let warnings: String = report
        .warnings
        .iter()
        .map(|warning| format!("<li>{}</li>\n", escape(warning)))
        .collect();
    let warnings = if warnings.is_empty() {
        String::new()
    } else {
        let title = language.of(
            "What makes these figures less trustworthy",
            "影响数据可信度的因素",
        );
        format!("<h2>{title}</h2>\n<ul>\n{warnings}</ul>\n")
    };
    let how = language.of(
        "Times count from when a message was due, not from when it could be sent: a server that stalls is charged for everything that waited. What did not come counts as missing.",
        "延迟从消息计划发送的时刻算起，而不是实际发出的时刻：服务器停顿期间排队的消息同样计入。未到达的消息计为缺失。",
    );
    format!(
        "{warnings}<footer><p>{how}</p><p>{} {} &middot; {} {}</p></footer>\n",
        escape(&report.program),
        escape(&report.version),
        language.of("run", "运行编号"),
        escape(&report.run_id)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::generator::judge;
    use crate::report::tests::report;
    use myriad_report::{
        AgentReport, ArrivalCurve, ClientPublishReport, ComebackReport, CpuReport, FleetReport,
        FlowReport, HeatMap, RoundTripTimes, Sample, SampleTimes, Series, ServerSample,
        SessionReport, StallReport, StormReport, VanishReport, Verdict,
    };
    use std::collections::{BTreeMap, BTreeSet};

    /// Words of [`with_everything`] that are the same in every language: units, abbreviations, and what the run itself named.
    const NAMES: [&str; 17] = [
        "B", "CPU", "KiB", "Linux", "MiB", "UTC", "beef", "berlin", "chat", "fanout", "ms",
        "myriad", "s", "sse", "swarm", "toml", "ws",
    ];

    fn with_series() -> Report {
        let mut report = report();
        let sample = |second: u32| Sample {
            from_s: f64::from(second),
            to_s: f64::from(second + 1),
            connected: 1_000,
            messages_per_s: 50.0,
            times: BTreeMap::from([(
                "push".to_owned(),
                SampleTimes {
                    count: 5,
                    p50_ms: 1.0,
                    p99_ms: 2.0,
                    max_ms: 3.0,
                },
            )]),
            ..Sample::default()
        };
        report.series = Series {
            interval_s: 1.0,
            samples: (0..3).map(sample).collect(),
            heat: vec![HeatMap {
                of: "push".to_owned(),
                bounds_ms: vec![1.0, 1.26],
                counts: vec![vec![1, 0], vec![0, 4], vec![2, 2]],
            }],
            arrivals: vec![ArrivalCurve {
                of: "all".to_owned(),
                sequence: None,
                points: vec![(0.4, 0.0), (2.0, 1.0)],
            }],
        };
        report
    }

    /// A report with something in every part of the page; some of what was to come never did.
    fn with_everything() -> Report {
        let never = Some(f64::INFINITY);
        let mut report = with_pictures();
        let times = RoundTripTimes {
            p50: Some(1.0),
            p99: never,
            ..RoundTripTimes::default()
        };
        let trips = RoundTripReport {
            rate_per_s: 100.0,
            round_trip_ms: times,
            ..RoundTripReport::default()
        };
        (report.echo, report.request) = (Some(trips), Some(trips));
        report.client_publish = Some(ClientPublishReport {
            replies: trips,
            ..ClientPublishReport::default()
        });
        report.flows = vec![FlowReport {
            name: "chat".to_owned(),
            expected: 2,
            since_due_ms: times,
            ..FlowReport::default()
        }];
        let verdict = |value, passed| Verdict {
            expression: "fanout:p99<9ms".to_owned(),
            value,
            passed,
            ..Verdict::default()
        };
        report.thresholds = vec![
            verdict(Some(1.0), true),
            verdict(never, false),
            verdict(None, false),
        ];
        report.stall = Some(StallReport {
            ends: (0..40).map(|code| (format!("close_{code}"), 1)).collect(),
            ended_slowest_ms: never,
            ..StallReport::default()
        });
        report.vanish = Some(VanishReport::default());
        report.comeback = Some(with_storms());
        report.session = Some(SessionReport {
            recovered: 9,
            duplicates: 2,
            ..SessionReport::default()
        });
        report.cpu = Some(CpuReport {
            generator_cpu_us_per_message: Some(3.0),
            server_cpu_us_per_message: Some(4.0),
            ..CpuReport::default()
        });
        let agents = vec![AgentReport {
            name: "berlin".to_owned(),
            lost_s: Some(1.5),
            ..AgentReport::default()
        }];
        report.fleet = Some(FleetReport { agents });
        report.errors.insert("handshake_500".to_owned(), 1);
        report.closes.insert("3000".to_owned(), 1);
        report.warnings = vec!["chat".to_owned()];
        report
    }

    /// A storm of each end: nobody dropped, all back, some not.
    fn with_storms() -> ComebackReport {
        let never = Some(f64::INFINITY);
        let storm = |all_back_ms| StormReport {
            at_s: 10.0,
            share: 0.5,
            dropped: 50,
            back: 40,
            all_back_ms,
        };
        ComebackReport {
            storms: vec![storm(None), storm(Some(9.0)), storm(never)],
            slowest_ms: never,
            ..ComebackReport::default()
        }
    }

    /// A report with every picture, and settings.
    fn with_pictures() -> Report {
        let mut report = with_series();
        for sample in &mut report.series.samples {
            sample.server = Some(ServerSample {
                cpus: Some(0.5),
                rss_bytes: Some(1 << 20),
                connections: None,
            });
            (sample.sent_per_s, sample.answered_per_s) = (9.0, 5.0);
            (sample.opened_per_s, sample.errors, sample.lost) = (3.0, 1, 1);
            (sample.cpu_share, sample.machine_cpu_share) = (0.5, 0.9);
            sample.rss_anon_bytes = 1 << 20;
        }
        let heat = report.series.heat[0].clone();
        let kinds = [
            "push",
            "delivery",
            "echo",
            "client_publish",
            "request",
            "flow",
        ];
        let kinds = kinds.into_iter().chain(["ping"]).map(|of| HeatMap {
            of: of.to_owned(),
            ..heat.clone()
        });
        report.series.heat = kinds.collect();
        // Far enough apart for a logarithmic axis.
        let curve = |of: &str, sequence| ArrivalCurve {
            of: of.to_owned(),
            sequence,
            points: vec![(0.4, 0.0), (40.0, 1.0)],
        };
        report.series.arrivals = vec![
            curve("all", None),
            curve("fastest", Some(1)),
            curve("slowest", Some(2)),
        ];
        report.settings.targets = vec!["ws://127.0.0.1:8000/".to_owned()];
        report.settings.protocol = "sse".to_owned();
        report.settings.scenario = Some("chat".to_owned());
        report.settings.description = Some("chat <chat>".to_owned());
        report.settings.command = Some("myriad swarm chat.toml".to_owned());
        report.settings.kernel = "Linux 6.1".to_owned();
        report.settings.publish_every_s = Some(5.0);
        report.crowd.user_bytes_per_client = Some(100.0);
        report
    }

    /// What a reader of the page sees in Latin letters, without names that have digits or underscores.
    fn latin_words(page: &str) -> BTreeSet<&str> {
        let (_, body) = page.split_once("<body>").unwrap();
        let texts = body.split('<').filter_map(|it| Some(it.split_once('>')?.1));
        let words = texts.flat_map(|text| {
            text.split(|c: char| c != '_' && c != '&' && c != ';' && !c.is_ascii_alphanumeric())
        });
        let is_word =
            |word: &&str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphabetic());
        words.filter(is_word).collect()
    }

    #[test]
    fn a_page_in_chinese_has_no_english_word_of_ours() {
        let mut report = with_everything();
        let names = BTreeSet::from(NAMES);
        let english = |report: &Report| -> Vec<String> {
            let page = page(report, Language::Chinese);
            let words = latin_words(&page);
            words.difference(&names).map(ToString::to_string).collect()
        };
        let in_english = page(&report, Language::English);
        for word in ["logarithmic", "never", "more", "run"] {
            // Without it nothing is shown.
            assert!(latin_words(&in_english).contains(word), "{word}");
        }
        for outcome in [
            Outcome::Finished,
            Outcome::ThresholdsFailed,
            Outcome::Interrupted,
            Outcome::NobodyConnected,
            Outcome::LoadFailed,
        ] {
            report.outcome = outcome;
            for machine_cpu_share in [0.5, 1.0] {
                report.crowd.machine_cpu_share_max = machine_cpu_share;
                report.generator = judge(&report);
                assert_eq!(english(&report), [""; 0], "{outcome:?}");
                report.generator.saturated = true;
                assert_eq!(english(&report), [""; 0], "{outcome:?}");
            }
        }
        report.stall = Some(StallReport::default());
        assert_eq!(english(&report), [""; 0]);
        assert_eq!(english(&Report::default()), [""; 0]);
    }

    #[test]
    fn the_page_says_which_scenario_it_is_of_and_what_that_did() {
        let mut report = with_everything();
        let in_english = page(&report, Language::English);
        for wanted in [
            "<title>chat \u{b7} Load test report</title>",
            "</span> chat</h1>\n<p class=\"lead\"><b>chat &lt;chat&gt;</b></p>\n",
            "<p class=\"lead\">Load: pushes every 5.00 s; echoes 100/s",
            "; storm after 10.0 s: 50.00% of the clients drop; clients stall; clients vanish</p>",
            "<p class=\"when\"><code>myriad swarm chat.toml</code></p>",
        ] {
            assert!(in_english.contains(wanted), "{wanted}: {in_english}");
        }
        report.settings.scenario = None;
        let in_english = page(&report, Language::English);
        assert!(in_english.contains("</span> ws://127.0.0.1:8000/</h1>"));
        assert!(in_english.contains("<title>Load test report</title>"));
    }

    #[test]
    fn what_came_again_stands_in_the_table() {
        let mut report = with_everything();
        report.messages.duplicates = 21;
        report.flows[0].duplicated = 34;
        let page = page(&report, Language::English);
        for wanted in [
            ">repeated</th>",
            "data-head=\"repeated\">21</td>",
            "data-head=\"repeated\">34</td>",
        ] {
            assert!(page.contains(wanted), "{wanted}: {page}");
        }
    }

    #[test]
    fn a_page_needs_no_script_and_nothing_from_elsewhere() {
        for language in [Language::English, Language::Chinese] {
            let page = page(&with_series(), language);
            for reference in ["<script", "src=", "href=", "@import", "<link", "url("] {
                assert!(!page.contains(reference), "{reference}");
            }
            assert!(page.matches("<svg viewBox=\"0 0 640").count() >= 5);
        }
    }

    #[test]
    fn a_run_without_a_load_says_that_it_only_connected() {
        let mut report = report();
        let in_english = page(&report, Language::English);
        assert!(!in_english.contains("Only connecting"));
        report.messages.count = 0;
        let in_english = page(&report, Language::English);
        assert!(in_english.contains("was counted. Only connecting was measured, and"));
        assert!(page(&report, Language::Chinese).contains("只测量了建连"));
    }

    #[test]
    fn the_page_tells_the_hold_from_the_whole_run() {
        let mut report = report();
        report.elapsed_s = 8.78;
        report.settings.hold_s = Some(7.0);
        let in_english = page(&report, Language::English);
        for wanted in [
            "UTC &middot; whole run 8.78 s &middot; 1,000 clients",
            ">hold, from the end of connecting</th><td data-head=\"\">7.00 s</td>",
            ">whole run, with connecting and closing</th><td data-head=\"\">8.78 s</td>",
        ] {
            assert!(in_english.contains(wanted), "{wanted}: {in_english}");
        }
        report.settings.hold_s = None;
        assert!(page(&report, Language::English).contains("until the pushes were over"));
        assert!(page(&report, Language::Chinese).contains("全程用时 8.78 s"));
    }

    #[test]
    fn what_a_message_costs_both_ends_is_beside_the_checks_of_the_generator() {
        let mut report = report();
        report.generator = judge(&report);
        assert!(!page(&report, Language::English).contains("CPU per message"));
        report.cpu = Some(CpuReport {
            generator_cpu_us_per_message: Some(3.214),
            server_cpu_us_per_message: Some(4.5),
            ..CpuReport::default()
        });
        let in_english = page(&report, Language::English);
        for wanted in [
            ">generator CPU per message</th><td data-head=\"measured\">3.21 µs</td>",
            ">server CPU per message</th><td data-head=\"measured\">4.5 µs</td>",
        ] {
            assert!(in_english.contains(wanted), "{wanted}: {in_english}");
        }
        assert!(page(&report, Language::Chinese).contains("服务器每条消息 CPU"));
    }

    #[test]
    fn flows_are_among_the_figures_that_one_remembers() {
        let flow = |name: &str, p99| FlowReport {
            name: name.to_owned(),
            expected: 200,
            received: 199,
            missing: 1,
            since_due_ms: RoundTripTimes {
                p99: Some(p99),
                ..RoundTripTimes::default()
            },
            ..FlowReport::default()
        };
        let mut report = with_series();
        report.flows = vec![flow("chat", 5.0), flow("posts<", 7.0)];
        let page = page(&report, Language::English);
        let reach = "<span>reach of flows</span><b>99.50%</b><small>2 missing</small>";
        assert!(page.contains(reach), "{page}");
        let slowest = "<span>slowest flow, p99</span><b>7.00 ms</b><small>posts&lt;</small>";
        assert!(page.contains(slowest), "{page}");
    }

    #[test]
    fn what_a_server_says_is_text() {
        let mut report = with_series();
        report.errors.insert("handshake_500".to_owned(), 1);
        let hostile = "<img onerror=alert(1)>".to_owned();
        report
            .server_said
            .insert("handshake_500".to_owned(), hostile);
        let page = page(&report, Language::English);
        assert!(page.contains("&lt;img onerror") && !page.contains("<img"));
    }

    #[test]
    fn a_run_without_anybody_has_a_page_too() {
        let mut report = Report {
            outcome: Outcome::NobodyConnected,
            ..Report::default()
        };
        report.crowd.machine_cpu_share_max = 1.0;
        report.generator = judge(&report);
        let page = super::page(&report, Language::English);
        assert!(page.contains("no processor left") && page.contains(">full<"));
        assert!(!page.contains("Not saturated"), "that is no good news");
        assert!(!page.contains("the figures are the server's"));
        report.generator.saturated = true;
        let page = super::page(&report, Language::English);
        assert!(page.contains("Nobody connected") && page.contains("generator saturated"));
    }
}
