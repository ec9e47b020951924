//! Lines about flows.

use super::{Page, since_due};
use crate::report::text;
use myriad_report::FlowReport;

/// What was sent of a flow, and what came of it.
pub(super) fn write(flow: &FlowReport, page: &mut Page) {
    let counts = format!(
        "{} sent, {} of {} received, missing {}, duplicated {}, out of order {}, unexpected {}, never sent {}",
        text::count(flow.sent),
        text::count(flow.received),
        text::count(flow.expected),
        text::count(flow.missing),
        text::count(flow.duplicated),
        text::count(flow.out_of_order),
        text::count(flow.unexpected),
        text::count(flow.unsent)
    );
    page.line(&flow.name, &counts);
    if flow.away + flow.replayed > 0 {
        let absent = format!(
            "{} not expected of clients that left, {} came to clients that were not there",
            text::count(flow.away),
            text::count(flow.replayed)
        );
        page.line("", &absent);
    }
    page.line("", &since_due(&flow.since_due_ms));
    if let Some(answers) = answers_of(flow) {
        page.line("", &answers);
    }
}

/// What came of the requests of a flow. Where the answer is all that is expected, its times are those of the deliveries, and stand
/// there already.
fn answers_of(flow: &FlowReport) -> Option<String> {
    let failures = format!(
        "refused {}, not answered {}",
        text::count(flow.refused),
        text::count(flow.unanswered)
    );
    if flow.answered_ms == flow.since_due_ms {
        return (flow.failed() > 0).then_some(failures);
    }
    let is_asked = flow.answered_ms.mean.is_some() || flow.failed() > 0;
    is_asked.then(|| format!("{failures}; answers {}", since_due(&flow.answered_ms)))
}

#[cfg(test)]
mod tests {
    use crate::report::table::render;
    use crate::report::tests::report;
    use myriad_report::{FlowReport, RoundTripTimes};

    #[test]
    fn answers_that_are_the_deliveries_have_their_times_once() {
        let times = |mean| RoundTripTimes {
            mean: Some(mean),
            ..RoundTripTimes::default()
        };
        let asked = FlowReport {
            name: "history".to_owned(),
            sent: 7,
            since_due_ms: times(2.0),
            answered_ms: times(2.0),
            ..FlowReport::default()
        };
        let with = |flow: &FlowReport| {
            let mut report = report();
            report.flows = vec![flow.clone()];
            render(&report, 200)
        };
        let table = with(&asked);
        assert_eq!(table.matches("since due").count(), 1, "{table}");
        assert!(!table.contains("refused"), "{table}");
        let refused = FlowReport {
            refused: 3,
            ..asked
        };
        let table = with(&refused);
        assert_eq!(table.matches("since due").count(), 1, "{table}");
        assert!(table.contains("refused 3, not answered 0\n"), "{table}");
        // The answer to who sends a message, and its deliveries to a group.
        let told = FlowReport {
            answered_ms: times(1.0),
            ..refused
        };
        let table = with(&told);
        let answers = "refused 3, not answered 0; answers since due: mean 1.00 ms";
        assert!(table.contains(answers), "{table}");
        assert_eq!(table.matches("since due").count(), 2, "{table}");
    }
}
