//! Clients that came back: what the report says of them, and the lines of the closing table.

use super::compose::quantile;
use super::table::{Page, kinds};
use super::text;
use crate::config::{CrowdSize, What};
use crate::engine::comeback::{ComebackFigures, StormTally};
use crate::measure::figures::as_millis;
use crate::run::{Figures, Run};
use myriad_report::{ComebackReport, Report, StormReport};

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
    }
}
