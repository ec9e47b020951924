//! One of the times that a report has of many.

use myriad_report::RoundTripTimes;

/// Which of several times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Quantile {
    /// The mean.
    Mean,
    /// Half took at most that.
    P50,
    /// 90% did.
    P90,
    /// 99% did.
    P99,
    /// 99.9% did.
    P999,
    /// The longest.
    Max,
}

impl Quantile {
    /// The time of this name, in milliseconds; none if nothing was timed.
    pub(super) fn of(self, times: &RoundTripTimes) -> Option<f64> {
        match self {
            Self::Mean => times.mean,
            Self::P50 => times.p50,
            Self::P90 => times.p90,
            Self::P99 => times.p99,
            Self::P999 => times.p999,
            Self::Max => times.max,
        }
    }
}
