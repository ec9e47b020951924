//! What the crowd's file says, as far as it is used here.

use myriad_demo::Push;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The report's fields that are used here. Later ones are skipped.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Report {
    pub(crate) setup: Setup,
    #[serde(default)]
    pub(crate) churn: Churn,
    #[serde(default)]
    pub(crate) errors: BTreeMap<String, u64>,
    #[serde(default)]
    pub(crate) messages: Messages,
    #[serde(default)]
    pub(crate) pushes: Vec<Push>,
    /// Nothing when no echoes were asked for.
    #[serde(default)]
    pub(crate) echo: Option<Answers>,
    /// Nothing when no requests were.
    #[serde(default)]
    pub(crate) request: Option<Answers>,
    #[serde(default)]
    pub(crate) warnings: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct Setup {
    pub(crate) connected: u64,
    pub(crate) rate_per_s: f64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct Churn {
    pub(crate) lost: u64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct Messages {
    pub(crate) gaps: u64,
    pub(crate) duplicates: u64,
}

/// What came back of echoes or requests. Wrong answers and those to nothing are among the report's errors already, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
pub(crate) struct Answers {
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) lost: u64,
    pub(crate) errors: u64,
    pub(crate) unsent: u64,
    pub(crate) received_per_s: f64,
    pub(crate) round_trip_ms: RoundTrip,
}

/// From when a message or a request was due to its answer; nothing when none came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
pub(crate) struct RoundTrip {
    pub(crate) p50: Option<f64>,
    pub(crate) p99: Option<f64>,
}

/// A point of the arrival curve: this share of all arrivals had come by then.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Arrival {
    /// From the clock of the push.
    pub ms: f64,
    /// Between 0 and 1.
    pub share: f64,
}

/// Reads HdrHistogram's percentile text, the columns value and percentile.
pub(super) fn arrivals(hgrm: &str) -> Vec<Arrival> {
    hgrm.lines()
        .filter_map(|line| {
            let mut columns = line.split_whitespace().map(str::parse::<f64>);
            let (ms, share) = (columns.next()?.ok()?, columns.next()?.ok()?);
            Some(Arrival { ms, share })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_read_from_percentile_text() {
        let text = "       Value     Percentile TotalCount 1/(1-Percentile)\n\n\
                    0.500 0.000000000000          1           1.00\n\
                    1.250 0.500000000000         50           2.00\n\
                    9.000 1.000000000000        100\n\
                    #[Mean    =        1.300, StdDeviation   =        0.100]\n";
        let points: Vec<_> = arrivals(text)
            .iter()
            .map(|point| (point.ms, point.share))
            .collect();
        assert_eq!(points, [(0.5, 0.0), (1.25, 0.5), (9.0, 1.0)]);
        assert_eq!(arrivals(""), []);
    }

    #[test]
    fn a_report_may_say_more_than_is_read() {
        let text = r#"{"program":"x","setup":{"connected":7,"rate_per_s":3.5,"new":1},"later":{}}"#;
        let report: Report = serde_json::from_str(text).unwrap();
        assert_eq!(report.setup.connected, 7);
        assert_eq!(report.echo, None);
    }

    #[test]
    fn echoes_of_which_none_came_back_have_no_times() {
        let text = r#"{"setup":{"connected":1,"rate_per_s":1.0},"echo":{"rate_per_s":50.0,"sent":5,"received":0,
            "lost":5,"errors":0,"unsent":2,"received_per_s":0.0,"round_trip_ms":{"mean":null,"p50":null,"p99":null}}}"#;
        let report: Report = serde_json::from_str(text).unwrap();
        let echo = report.echo.unwrap();
        assert_eq!((echo.sent, echo.lost, echo.unsent), (5, 5, 2));
        assert_eq!(echo.round_trip_ms, RoundTrip::default());
    }
}
