//! Clients that came back: what the report says of them, and the lines of the closing table.

use super::compose::quantile;
use super::table::{Page, kinds, kinds_in};
use super::text;
use crate::config::{CrowdSize, What};
use crate::engine::comeback::{ComebackFigures, StormTally};
use crate::measure::figures::as_millis;
use crate::report::reporting::Language;
use crate::run::{Figures, Run};
use myriad_charts::{escape, table};
use myriad_report::{ComebackReport, Report, SessionReport, StormReport};

impl Run<'_> {
    /// None where nobody was to come back.
    pub(super) fn comeback(
        &self,
        figures: &Figures,
        measured: &ComebackFigures,
    ) -> Option<ComebackReport> {
        let incidents = &self.config.incidents;
        if !self.config.has_incident(What::is_storm) && !self.config.comeback.when_lost {
            return None;
        }
        let totals = &figures.totals.comeback;
        let storms = incidents.iter().zip(&measured.storms);
        let storms = storms.filter(|(incident, _)| incident.what.is_storm());
        let whole = CrowdSize::Share(1.0).of(self.config.connections);
        let storms = storms.map(|(incident, tally)| StormReport {
            at_s: incident.at.as_secs_f64(),
            share: incident.size.of(self.config.connections) / whole,
            dropped: tally.dropped,
            back: tally.back,
            all_back_ms: all_back_ms(tally),
        });
        let failures = measured.failures.iter();
        Some(ComebackReport {
            gone: totals.gone,
            back: totals.back,
            given_up: totals.given_up,
            attempts: totals.attempts,
            errors: failures
                .map(|(failure, &count)| (failure.to_string(), count))
                .collect(),
            missed: totals.missed,
            p50_ms: quantile(&measured.times, 0.5),
            p99_ms: quantile(&measured.times, 0.99),
            slowest_ms: quantile(&measured.times, 1.0),
            storms: storms.collect(),
        })
    }
}

/// None where the storm never began, infinite where some are not back.
fn all_back_ms(tally: &StormTally) -> Option<f64> {
    let began = tally.began?;
    Some(if tally.back < tally.dropped {
        f64::INFINITY
    } else {
        as_millis(tally.last_back.since(began))
    })
}

/// What became of those that came back.
pub(super) fn write(report: &Report, page: &mut Page) {
    let Some(comeback) = &report.comeback else {
        return;
    };
    for storm in &comeback.storms {
        page.line("storm", &storm_line(storm));
    }
    let mut line = format!(
        "{} of {} back, p50 {}  p99 {}  slowest {}",
        text::count(comeback.back),
        text::count(comeback.gone),
        text::time_or_dash(comeback.p50_ms),
        text::time_or_dash(comeback.p99_ms),
        text::time_or_dash(comeback.slowest_ms)
    );
    if comeback.given_up > 0 {
        line.push_str(&format!(", {} gave up", text::count(comeback.given_up)));
    }
    page.line("came back", &line);
    let attempts = text::counted(comeback.attempts, "attempt");
    let mut line = format!("{attempts}, errors: {}", kinds(&comeback.errors));
    line.push_str(&format!(
        "; {} missing of those made while away",
        text::counted(comeback.missed, "publication")
    ));
    page.line("", &line);
}

/// What became of them, as a table of the page; nothing where nobody was to come back and nothing was recovered.
pub(super) fn section(report: &Report, language: Language) -> String {
    let storms = report.comeback.iter().flat_map(|comeback| &comeback.storms);
    let storms = storms.map(|storm| (storm_name(storm, language), storm_value(storm, language)));
    let rows = storms
        .chain(report.comeback.iter().flat_map(|it| rows(it, language)))
        .chain(recoveries(report, language));
    let rows: Vec<Vec<String>> = rows
        .map(|(name, value)| vec![escape(&name), escape(&value)])
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let title = language.of("Comebacks and recoveries", "重连与恢复");
    format!("<h2>{title}</h2>\n{}", table(&["", ""], rows))
}

/// When it was, and how large.
pub(super) fn storm_name(storm: &StormReport, language: Language) -> String {
    let (at, share) = (text::time(storm.at_s * 1000.0), text::percent(storm.share));
    match language {
        Language::English => format!("storm after {at}: {share} of the clients drop"),
        Language::Chinese => format!("断连风暴（{at} 后，{share} 的客户端断开）"),
    }
}

fn storm_value(storm: &StormReport, language: Language) -> String {
    let dropped = text::count(storm.dropped);
    let missing = text::count(storm.dropped.saturating_sub(storm.back));
    match (storm.all_back_ms, language) {
        (None, _) => language.of("nothing dropped", "没有断开").to_owned(),
        (Some(time), _) if time.is_finite() => {
            let back = language.of("dropped, all back in", "个断开，全部重连用时");
            format!("{dropped} {back} {}", text::time(time))
        }
        (Some(_), Language::English) => format!("{dropped} dropped, {missing} not back"),
        (Some(_), Language::Chinese) => format!("{dropped} 个断开，{missing} 个未重连"),
    }
}

/// Each with its name.
type Rows = Vec<(String, String)>;

fn rows(comeback: &ComebackReport, language: Language) -> Rows {
    let times = [comeback.p50_ms, comeback.p99_ms, comeback.slowest_ms];
    let times = times.map(|time| language.time_or_dash(time)).join(", ");
    let named = [
        (
            language.of("connections that ended", "断开的连接"),
            text::count(comeback.gone),
        ),
        (
            language.of("of them, back", "其中已重连"),
            text::count(comeback.back),
        ),
        (
            language.of("of them, given up", "其中放弃重连"),
            text::count(comeback.given_up),
        ),
        (
            language.of("until back: p50, p99, slowest", "重连用时：p50、p99、最长"),
            times,
        ),
        (
            language.of("attempts", "重连尝试"),
            text::count(comeback.attempts),
        ),
        (
            language.of("attempts that failed, by kind", "失败的尝试（按类型）"),
            kinds_in(&comeback.errors, language),
        ),
        (
            language.of(
                "publications missing of those made while away",
                "离线期间缺失的消息",
            ),
            text::count(comeback.missed),
        ),
    ];
    named.map(|(name, value)| (name.to_owned(), value)).into()
}

/// What sessions recovered; nothing where none asked for that.
fn recoveries(report: &Report, language: Language) -> Rows {
    let asked = |it: &&SessionReport| it.recovered + it.unrecovered > 0;
    let Some(session) = report.session.as_ref().filter(asked) else {
        return Vec::new();
    };
    let named = [
        (
            language.of("subscriptions that recovered all", "完整恢复的订阅"),
            session.recovered,
        ),
        (
            language.of(
                "subscriptions told that something is lost",
                "被告知有丢失的订阅",
            ),
            session.unrecovered,
        ),
        (
            language.of("publications that came by recovery", "恢复得到的消息"),
            session.recovered_publications,
        ),
    ];
    let row = |(name, count): (&str, u64)| (name.to_owned(), text::count(count));
    named.map(row).into()
}

fn storm_line(storm: &StormReport) -> String {
    let begin = format!(
        "after {} {} of the clients dropped ({})",
        text::time(storm.at_s * 1000.0),
        text::percent(storm.share),
        text::count(storm.dropped)
    );
    match storm.all_back_ms {
        None => format!("after {} nothing dropped", text::time(storm.at_s * 1000.0)),
        Some(time) if time.is_finite() => format!("{begin}, all back in {}", text::time(time)),
        Some(_) => {
            let missing = storm.dropped.saturating_sub(storm.back);
            format!("{begin}, {} not back", text::count(missing))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::render;
    use super::super::tests::report;
    use super::*;

    #[test]
    fn a_storm_says_how_long_it_lasted_or_who_is_missing() {
        let mut report = report();
        assert!(!render(&report, 200).contains("storm"));
        let storm = StormReport {
            at_s: 10.0,
            share: 0.5,
            dropped: 500,
            back: 500,
            all_back_ms: Some(4_200.0),
        };
        let missing = StormReport {
            back: 480,
            all_back_ms: Some(f64::INFINITY),
            ..storm.clone()
        };
        report.comeback = Some(ComebackReport {
            gone: 1_000,
            back: 980,
            attempts: 1_300,
            missed: 1,
            storms: vec![storm, missing],
            ..ComebackReport::default()
        });
        let table = render(&report, 200);
        assert!(table.contains("(500), all back in 4.2"), "{table}");
        assert!(table.contains("(500), 20 not back"), "{table}");
        assert!(table.contains("980 of 1,000 back"), "{table}");
        assert!(
            table.contains("1,300 attempts, errors: none; 1 publication missing of those made"),
            "{table}"
        );
        report.session = Some(SessionReport {
            recovered: 970,
            unrecovered: 10,
            recovered_publications: 2_910,
            ..SessionReport::default()
        });
        let page = section(&report, Language::English);
        for wanted in [
            "storm after 10.0 s: 50.00% of the clients drop</th>",
            "500 dropped, all back in 4.20 s</td>",
            "500 dropped, 20 not back</td>",
            ">subscriptions that recovered all</th>",
            ">2,910</td>",
        ] {
            assert!(page.contains(wanted), "{wanted}: {page}");
        }
        assert_eq!(section(&Report::default(), Language::English), "");
    }
}
