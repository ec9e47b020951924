//! Clients that stalled or vanished: what the report says of them, and the lines of the closing table.

use super::compose::quantile;
use super::table::{Page, kinds, kinds_in};
use super::text;
use crate::clock::Nanos;
use crate::config::What;
use crate::engine::unwell::{StallEnd, UnwellFigures, UnwellTotals};
use crate::measure::figures::as_millis;
use crate::report::reporting::Language;
use crate::run::{Figures, Run, name_of_close};
use myriad_charts::{escape, table};
use myriad_report::{Report, StallReport, VanishReport};
use std::collections::BTreeMap;

/// What the server's own count of connections says of clients that vanished.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ServerCount {
    /// Connections that are none of this crowd's, as of the last count before anybody vanished.
    others: u64,
    /// Vanished clients that it still counts; none before the first count.
    held: Option<u64>,
    /// When it counted none of them for the first time.
    none_at: Option<Nanos>,
}

impl ServerCount {
    /// Takes a count, with what the crowd has at that time.
    pub(crate) fn take(&mut self, connections: u64, totals: &UnwellTotals, open: u64, now: Nanos) {
        let there = open + totals.stalling;
        if totals.vanished == 0 {
            self.others = connections.saturating_sub(there);
            return;
        }
        let held = connections.saturating_sub(there + self.others);
        let held = held.min(totals.vanished);
        self.held = Some(held);
        if held > 0 {
            self.none_at = None;
        } else {
            self.none_at.get_or_insert(now);
        }
    }

    fn all_noticed_ms(&self, totals: &UnwellTotals) -> Option<f64> {
        let from = totals.vanished_from?;
        self.held?;
        Some(
            self.none_at
                .map_or(f64::INFINITY, |at| as_millis(at.since(from))),
        )
    }
}

impl Run<'_> {
    /// None where nobody was to stall.
    pub(super) fn stall(&self, figures: &Figures, measured: &UnwellFigures) -> Option<StallReport> {
        let is_stall = |what| matches!(what, What::Stall(_));
        let totals = &figures.totals.unwell;
        let received = totals.received.min(figures.stall_expected);
        self.config.has_incident(is_stall).then(|| StallReport {
            stalled: totals.stalled,
            resumed: totals.resumed,
            ended: totals.ended,
            ends: ends(measured),
            ended_p50_ms: quantile(&measured.ended_after, 0.5),
            ended_slowest_ms: quantile(&measured.ended_after, 1.0),
            stalling: totals.stalling,
            expected: figures.stall_expected,
            received,
            missing: figures.stall_expected - received,
        })
    }

    /// None where nobody was to vanish.
    pub(super) fn vanish(
        &self,
        figures: &Figures,
        measured: &UnwellFigures,
    ) -> Option<VanishReport> {
        let totals = &figures.totals.unwell;
        let is_vanish = |what| what == What::Vanish;
        self.config.has_incident(is_vanish).then(|| VanishReport {
            vanished: totals.vanished,
            ends_seen: totals.noticed,
            ends_p50_ms: quantile(&measured.noticed_after, 0.5),
            ends_slowest_ms: quantile(&measured.noticed_after, 1.0),
            held_by_server: self.server_count.held,
            all_noticed_ms: self.server_count.all_noticed_ms(totals),
        })
    }
}

/// How connections of clients that stalled ended, by name.
fn ends(measured: &UnwellFigures) -> BTreeMap<String, u64> {
    let mut ends = BTreeMap::new();
    for (end, count) in &measured.ends {
        let name = match end {
            StallEnd::Closed(code) => format!("close_{}", name_of_close(*code)),
            StallEnd::Broken(failure) => {
                let name = failure.to_string();
                name.strip_prefix("lost_").unwrap_or(&name).to_owned()
            }
        };
        *ends.entry(name).or_default() += count;
    }
    ends
}

/// What became of those that stalled or vanished.
pub(super) fn write(report: &Report, page: &mut Page) {
    if let Some(stall) = &report.stall {
        let mut line = format!(
            "{} stalled, {} resumed; ended: {}",
            text::counted(stall.stalled, "client"),
            text::count(stall.resumed),
            kinds(&stall.ends)
        );
        if stall.ended > 0 {
            line.push_str(&format!(
                "; after p50 {}  slowest {}",
                text::time_or_dash(stall.ended_p50_ms),
                text::time_or_dash(stall.ended_slowest_ms)
            ));
        }
        page.line("stalled", &line);
        let line = format!(
            "{} of {} meanwhile came later (no part of the reach)",
            text::count(stall.received),
            text::counted(stall.expected, "delivery")
        );
        page.line("", &line);
    }
    if let Some(vanish) = &report.vanish {
        page.line("vanished", &vanished(vanish));
    }
}

fn vanished(vanish: &VanishReport) -> String {
    let mut line = format!(
        "{}, of which {} saw the end of their connection",
        text::counted(vanish.vanished, "client"),
        text::count(vanish.ends_seen)
    );
    if vanish.ends_seen > 0 {
        line.push_str(&format!(
            " (p50 {}  slowest {})",
            text::time_or_dash(vanish.ends_p50_ms),
            text::time_or_dash(vanish.ends_slowest_ms)
        ));
    }
    let known = match vanish.held_by_server {
        None if vanish.ends_seen < vanish.vanished => {
            "; whether the server found out about the others is not known without --server-metrics"
                .to_owned()
        }
        None => String::new(),
        Some(0) => format!(
            "; the server counted none of them after {}",
            text::time_or_dash(vanish.all_noticed_ms)
        ),
        Some(held) => format!("; the server still counts {}", text::count(held)),
    };
    line + &known
}

/// Both as a table of the page.
pub(super) fn section(report: &Report, language: Language) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut row = |name: &str, value: String| rows.push(vec![name.to_owned(), escape(&value)]);
    let listed = |times: [Option<f64>; 2]| times.map(|it| language.time_or_dash(it)).join(", ");
    if let Some(stall) = &report.stall {
        row(
            language.of("clients that stalled", "停止读取的客户端"),
            text::count(stall.stalled),
        );
        row(
            language.of("of them, read again", "其中恢复读取"),
            text::count(stall.resumed),
        );
        row(
            language.of("of them, ended, and how", "其中连接已结束（方式）"),
            format!(
                "{} ({})",
                text::count(stall.ended),
                kinds_in(&stall.ends, language)
            ),
        );
        row(
            language.of("until then: p50, slowest", "历时：p50、最长"),
            listed([stall.ended_p50_ms, stall.ended_slowest_ms]),
        );
        row(
            language.of(
                "their deliveries (no part of the reach)",
                "其应收消息（不计入到达率）",
            ),
            format!(
                "{} / {}",
                text::count(stall.received),
                text::count(stall.expected)
            ),
        );
    }
    if let Some(vanish) = &report.vanish {
        let unknown = language.of("not known", "未知");
        row(
            language.of("clients that vanished", "无声消失的客户端"),
            text::count(vanish.vanished),
        );
        row(
            language.of(
                "of them, ended by the server (seen)",
                "其中可见被服务器结束",
            ),
            text::count(vanish.ends_seen),
        );
        row(
            language.of("until then: p50, slowest", "历时：p50、最长"),
            listed([vanish.ends_p50_ms, vanish.ends_slowest_ms]),
        );
        row(
            language.of("still counted by the server", "服务器仍计为在线"),
            vanish
                .held_by_server
                .map_or_else(|| unknown.to_owned(), text::count),
        );
    }
    if rows.is_empty() {
        return String::new();
    }
    let title = language.of("Clients that stalled or vanished", "停止读取与消失的客户端");
    format!("<h2>{title}</h2>\n{}", table(&["", ""], rows))
}

#[cfg(test)]
mod tests {
    use super::super::table::render;
    use super::super::tests::report;
    use super::*;

    #[test]
    fn a_stall_says_how_its_connections_ended_and_what_came_later() {
        let mut report = report();
        assert!(section(&report, Language::English).is_empty());
        report.stall = Some(StallReport {
            stalled: 10,
            resumed: 3,
            ended: 7,
            ends: [("close_3008".to_owned(), 5), ("reset".to_owned(), 2)].into(),
            ended_p50_ms: Some(5_000.0),
            ended_slowest_ms: Some(9_000.0),
            expected: 40,
            received: 12,
            missing: 28,
            stalling: 0,
        });
        let table = render(&report, 200);
        let said = "10 clients stalled, 3 resumed; ended: close_3008 5, reset 2";
        assert!(table.contains(said), "{table}");
        assert!(table.contains("12 of 40 deliveries meanwhile"), "{table}");
        let chinese = section(&report, Language::Chinese);
        assert!(chinese.contains("停止读取的客户端"), "{chinese}");
    }

    #[test]
    fn who_vanished_is_known_by_what_was_seen_or_by_the_servers_count() {
        let unknown = VanishReport {
            vanished: 10,
            ends_seen: 4,
            ..VanishReport::default()
        };
        assert!(vanished(&unknown).contains("--server-metrics"));
        let held = VanishReport {
            held_by_server: Some(6),
            ..unknown.clone()
        };
        assert!(vanished(&held).ends_with("the server still counts 6"));
        let none = VanishReport {
            held_by_server: Some(0),
            all_noticed_ms: Some(40_000.0),
            ..unknown
        };
        assert!(
            vanished(&none).contains("none of them after 40"),
            "{none:?}"
        );
    }

    #[test]
    fn a_servers_count_leaves_out_who_is_none_of_the_crowd() {
        let mut count = ServerCount::default();
        let mut totals = UnwellTotals::default();
        let second = |second: u64| Nanos(second * 1_000_000_000);
        count.take(103, &totals, 100, second(1));
        assert_eq!((count.held, count.all_noticed_ms(&totals)), (None, None));
        totals.vanished = 10;
        totals.vanished_from = Some(second(2));
        count.take(103, &totals, 90, second(3));
        assert_eq!(count.held, Some(10));
        assert_eq!(count.all_noticed_ms(&totals), Some(f64::INFINITY));
        totals.stalling = 5;
        count.take(93, &totals, 85, second(7));
        assert_eq!(count.held, Some(0));
        count.take(93, &totals, 85, second(8));
        assert_eq!(count.all_noticed_ms(&totals), Some(5_000.0));
    }
}
