//! Figures of clients that speak HTTP, for thresholds.

use crate::measure::figures::float;
use crate::measure::threshold::LoadOption;
use myriad_report::{HeldReport, Report, Unit};

/// A figure of clients that speak HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HttpMetric {
    /// Polls that were answered, a second.
    AnswerRate,
    /// Polls that ended without a delivery.
    Timeouts,
    /// Connections that were replaced because the server ended them.
    Reopened,
    /// Clients that were between two such connections at the end.
    Reopening,
    /// The shortest time that a poll without a delivery was held.
    HeldShortest,
    /// The mean of these times.
    HeldMean,
    /// Half of the polls were held for at most that.
    HeldP50,
    /// The same for 99%.
    HeldP99,
    /// The longest.
    HeldLongest,
    /// Polls that were held for less than was expected.
    HeldEarly,
    /// Polls that were held for longer than was expected.
    HeldLate,
}

impl HttpMetric {
    /// By name.
    pub(super) const ALL: [(&'static str, Self); 11] = [
        ("polls:rate", Self::AnswerRate),
        ("polls:timeouts", Self::Timeouts),
        ("reopened", Self::Reopened),
        ("reopening", Self::Reopening),
        ("held:shortest", Self::HeldShortest),
        ("held:mean", Self::HeldMean),
        ("held:p50", Self::HeldP50),
        ("held:p99", Self::HeldP99),
        ("held:longest", Self::HeldLongest),
        ("held:early", Self::HeldEarly),
        ("held:late", Self::HeldLate),
    ];

    pub(super) fn unit(self) -> Unit {
        match self {
            Self::AnswerRate => Unit::PerSecond,
            Self::Timeouts
            | Self::Reopened
            | Self::Reopening
            | Self::HeldEarly
            | Self::HeldLate => Unit::Count,
            Self::HeldShortest
            | Self::HeldMean
            | Self::HeldP50
            | Self::HeldP99
            | Self::HeldLongest => Unit::Milliseconds,
        }
    }

    /// The option without which this is never measured.
    pub(super) fn load(self) -> LoadOption {
        match self {
            Self::Reopened | Self::Reopening => LoadOption::Http,
            Self::HeldEarly | Self::HeldLate => LoadOption::ExpectHeld,
            _ => LoadOption::Poll,
        }
    }

    /// The figure in a report; none when it was never measured.
    pub(super) fn of(self, report: &Report) -> Option<f64> {
        let http = report.http.as_ref()?;
        let held = |figure: fn(&HeldReport) -> Option<f64>| http.held.as_ref().and_then(figure);
        match self {
            Self::AnswerRate => Some(http.answers_per_s),
            Self::Timeouts => Some(float(http.timeouts)),
            Self::Reopened => Some(float(http.reopened)),
            Self::Reopening => Some(float(http.reopening)),
            Self::HeldShortest => held(|held| held.shortest_ms),
            Self::HeldMean => held(|held| held.mean_ms),
            Self::HeldP50 => held(|held| held.p50_ms),
            Self::HeldP99 => held(|held| held.p99_ms),
            Self::HeldLongest => held(|held| held.longest_ms),
            Self::HeldEarly => held(|held| held.early.map(float)),
            Self::HeldLate => held(|held| held.late.map(float)),
        }
    }
}
