//! One of the times that a report has of many.

use crate::measure::figures::{float, micros_as_millis};
use hdrhistogram::Histogram;
use myriad_report::RoundTripTimes;

/// How far the product of two floats may miss its whole number, which must not cost a rank.
const HAIR: f64 = 1e-6;

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

    /// The time of this name in milliseconds, over the times in a histogram of microseconds and over so many that never came: these took
    /// forever. None if nothing was to come.
    pub(super) fn of_all(self, times: &Histogram<u64>, never: u64) -> Option<f64> {
        let share = match self {
            Self::Mean => None,
            Self::P50 => Some(0.5),
            Self::P90 => Some(0.9),
            Self::P99 => Some(0.99),
            Self::P999 => Some(0.999),
            Self::Max => Some(1.0),
        };
        let all = times.len().saturating_add(never);
        if all == 0 {
            return None;
        }
        let Some(share) = share else {
            let is_whole = never == 0;
            return Some(if is_whole {
                times.mean() / 1000.0
            } else {
                f64::INFINITY
            });
        };
        let rank = (share * float(all) - HAIR).ceil().max(1.0);
        if rank > float(times.len()) {
            return Some(f64::INFINITY);
        }
        // The middle of the rank's share: at its end, the product with the count may round up to the next rank.
        let micros = times.value_at_quantile((rank - 0.5) / float(times.len()));
        Some(micros_as_millis(micros.min(times.max())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::figures::microseconds;

    #[test]
    fn what_never_came_took_forever() {
        let mut times = microseconds();
        (1..=900).for_each(|millis| times.record(millis * 1000).expect("a time"));
        let figure = |quantile: Quantile, never| quantile.of_all(&times, never);
        let is_near = |figure: Option<f64>, millis: f64| {
            let figure = figure.expect("something came");
            assert!((figure / millis - 1.0).abs() < 0.002, "{figure} {millis}");
        };
        is_near(figure(Quantile::P50, 0), 450.0);
        is_near(figure(Quantile::Max, 0), 900.0);
        is_near(figure(Quantile::Mean, 0), 450.5);
        is_near(figure(Quantile::P50, 100), 500.0);
        is_near(figure(Quantile::P90, 100), 900.0);
        for quantile in [Quantile::P99, Quantile::P999, Quantile::Max, Quantile::Mean] {
            assert_eq!(figure(quantile, 100), Some(f64::INFINITY), "{quantile:?}");
        }
        assert_eq!(figure(Quantile::P90, 101), Some(f64::INFINITY));
        let nothing = microseconds();
        assert_eq!(Quantile::P50.of_all(&nothing, 0), None);
        assert_eq!(Quantile::P50.of_all(&nothing, 1), Some(f64::INFINITY));
    }
}
