//! What came of flows.

use crate::engine::flows::figures::FlowFigures;
use crate::engine::flows::plan::FlowPlan;
use crate::measure::figures::as_millis;
use crate::measure::flow_metric::{FlowMetric, Which};
use crate::measure::rates::per_scheduled_second;
use crate::measure::round_trip::times_of;
use crate::report::Report;
use crate::run::Run;
use myriad_report::FlowReport;
use std::time::Duration;

impl Run<'_> {
    /// Each flow, in the order of the scenario.
    pub(super) fn flows(&self) -> Vec<FlowReport> {
        let (Some(plan), Some(ledger)) = (&self.plan.flows, &self.shared.flows) else {
            return Vec::new();
        };
        let window = self.shared.schedule().unwrap_or_default();
        // What comes after the end took longer, and must not make the server look faster.
        let lasted = window
            .until
            .min(self.now())
            .max(ledger.heard())
            .since(window.from);
        let flows = plan.flows.iter().zip(ledger.sum()).enumerate();
        let reports = flows.map(|(index, (flow, mut figures))| {
            let mut callers = self.callers.iter();
            if let Some((_, requests)) = callers.find(|(flow, _)| *flow == index) {
                let counts = requests.progress().trips.counts;
                (figures.due, figures.behind) = (counts.due, counts.held);
            }
            report(flow, &figures, lasted)
        });
        reports.collect()
    }

    /// A figure of flows that a threshold is held against.
    pub(super) fn flow_figure(
        &self,
        metric: FlowMetric,
        which: &Which,
        report: &Report,
    ) -> Option<f64> {
        let measured = self.shared.flows.as_ref()?.sum();
        let flows: Vec<_> = report.flows.iter().zip(&measured).collect();
        metric.of(&flows, which)
    }
}

fn report(flow: &FlowPlan, figures: &FlowFigures, lasted: Duration) -> FlowReport {
    FlowReport {
        name: flow.name.clone(),
        rate_per_s: flow.pace.rate_per_s(),
        think: flow.pace.think().map(|think| think.to_string()),
        sent: figures.sent,
        unsent: figures.due.saturating_sub(figures.sent),
        complete: figures.complete,
        expected: figures.expected.saturating_sub(figures.away),
        received: figures.received,
        missing: figures.missing,
        away: figures.away,
        replayed: figures.replayed,
        duplicated: figures.duplicated,
        out_of_order: figures.out_of_order,
        unexpected: figures.unexpected,
        late: figures.late,
        refused: figures.refused,
        unanswered: figures.unanswered,
        received_per_s: per_scheduled_second(figures.received, lasted),
        since_due_ms: times_of(&figures.since_due),
        since_sent_ms: times_of(&figures.since_sent),
        to_last_ms: times_of(&figures.to_last),
        answered_ms: times_of(&figures.answered),
        behind_ms: as_millis(figures.behind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::flows::accounts::Accounts;
    use crate::engine::flows::mark::MarkPlace;
    use crate::engine::flows::plan::{Audience, Pace, Route};
    use crate::engine::flows::template::{Place, Template};

    #[test]
    fn a_flow_that_ended_at_once_has_no_more_a_second_than_came() {
        let template = Template::parse("${stamp}", Place::Flow, &Accounts::default());
        let flow = FlowPlan {
            name: "chat".to_owned(),
            pace: Pace::Rate(120.0),
            audience: Audience::Group,
            place: MarkPlace::Anywhere,
            route: Route::Socket {
                template: template.unwrap(),
                is_binary: false,
            },
        };
        let figures = FlowFigures {
            received: 83,
            ..FlowFigures::default()
        };
        let report = report(&flow, &figures, Duration::from_millis(8));
        assert_eq!(report.received_per_s, 83.0);
    }
}
