//! Figures of clients that come back, for thresholds.

use crate::measure::figures::float;
use crate::measure::threshold::LoadOption;
use myriad_report::{Report, StormReport, Unit};

/// A figure of clients that come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ComebackMetric {
    /// Time from the first client that a storm dropped to the last that was back, of the slowest storm.
    StormBack,
    /// Clients that storms dropped.
    StormDropped,
    /// Half of the clients were back after that time.
    P50,
    /// The same for 99% of them.
    P99,
    /// The slowest.
    Slowest,
    /// Clients that are back.
    Back,
    /// Clients that are not.
    Missing,
    /// Clients that gave up.
    GivenUp,
    /// Connections begun to come back.
    Attempts,
    /// Of these, those that failed.
    Errors,
    /// Publications that clients did not get because they were away.
    Missed,
}

impl ComebackMetric {
    /// By name.
    pub(super) const ALL: [(&'static str, Self); 11] = [
        ("storm:back", Self::StormBack),
        ("storm:dropped", Self::StormDropped),
        ("comeback:p50", Self::P50),
        ("comeback:p99", Self::P99),
        ("comeback:slowest", Self::Slowest),
        ("comeback:back", Self::Back),
        ("comeback:missing", Self::Missing),
        ("comeback:given-up", Self::GivenUp),
        ("comeback:attempts", Self::Attempts),
        ("comeback:errors", Self::Errors),
        ("comeback:missed", Self::Missed),
    ];

    pub(super) fn unit(self) -> Unit {
        match self {
            Self::StormBack | Self::P50 | Self::P99 | Self::Slowest => Unit::Milliseconds,
            _ => Unit::Count,
        }
    }

    /// The option without which this is never measured.
    pub(super) fn load(self) -> LoadOption {
        match self {
            Self::StormBack | Self::StormDropped => LoadOption::Storm,
            _ => LoadOption::Comeback,
        }
    }

    /// The figure in a report; none when it was never measured.
    pub(super) fn of(self, report: &Report) -> Option<f64> {
        let comeback = report.comeback.as_ref()?;
        let storms = &comeback.storms;
        match self {
            Self::StormBack => slowest(storms),
            Self::StormDropped => Some(float(storms.iter().map(|storm| storm.dropped).sum())),
            Self::P50 => comeback.p50_ms,
            Self::P99 => comeback.p99_ms,
            Self::Slowest => comeback.slowest_ms,
            Self::Back => Some(float(comeback.back)),
            Self::Missing => Some(float(comeback.gone.saturating_sub(comeback.back))),
            Self::GivenUp => Some(float(comeback.given_up)),
            Self::Attempts => Some(float(comeback.attempts)),
            Self::Errors => Some(float(comeback.errors.values().sum())),
            Self::Missed => Some(float(comeback.missed)),
        }
    }
}

/// The longest time until all of a storm were back; none where one never began.
fn slowest(storms: &[StormReport]) -> Option<f64> {
    let times = storms.iter().map(|storm| storm.all_back_ms);
    let times: Vec<f64> = times.collect::<Option<_>>()?;
    times.into_iter().reduce(f64::max)
}
