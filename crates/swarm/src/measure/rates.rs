//! Rates of a counter: overall, exponentially weighted over 1, 5 and 15 minutes, and the best second.

use crate::clock::Nanos;
use std::collections::VecDeque;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// How often the weighted rates move, as for the load average of Unix.
const STEP: Duration = Duration::from_secs(5);

/// Spans of the weighted rates, in minutes.
const SPANS_MIN: [u32; 3] = [1, 5, 15];

/// Mean and weighted rates of a counter that is sampled now and then.
#[derive(Clone, Debug)]
pub(crate) struct Rates {
    started: Nanos,
    started_count: u64,
    latest: (Nanos, u64),
    step: (Nanos, u64),
    /// Over [`SPANS_MIN`]; none before the first step, whose rate they begin with. They depend on this beginning until
    /// the span has passed, so they are not shown before that.
    weighted: Option<[f64; 3]>,
}

impl Rates {
    /// Counts from `count` at `now` on.
    pub(crate) fn start(now: Nanos, count: u64) -> Self {
        Self {
            started: now,
            started_count: count,
            latest: (now, count),
            step: (now, count),
            weighted: None,
        }
    }

    /// Takes a sample.
    pub(crate) fn sample(&mut self, now: Nanos, count: u64) {
        self.latest = (now, count);
        let (since, counted) = self.step;
        let elapsed = now.since(since);
        if elapsed < STEP {
            return;
        }
        let rate = per_second(count - counted, elapsed);
        let weighted = self.weighted.get_or_insert([rate; 3]);
        for (average, minutes) in weighted.iter_mut().zip(SPANS_MIN) {
            let keep = (-elapsed.as_secs_f64() / (f64::from(minutes) * 60.0)).exp();
            *average = *average * keep + rate * (1.0 - keep);
        }
        self.step = (now, count);
    }

    /// Per second, from the start to the latest sample.
    pub(crate) fn mean(&self) -> f64 {
        per_second(
            self.latest.1 - self.started_count,
            self.latest.0.since(self.started),
        )
    }

    /// Exponentially weighted rates per second over 1, 5 and 15 minutes; none of a span that is longer than the time
    /// from the start to the latest sample.
    pub(crate) fn weighted(&self) -> [Option<f64>; 3] {
        let Some(weighted) = self.weighted else {
            return [None; 3];
        };
        let elapsed = self.latest.0.since(self.started);
        std::array::from_fn(|span| {
            let has_passed = elapsed >= Duration::from_secs(u64::from(SPANS_MIN[span]) * 60);
            has_passed.then_some(weighted[span])
        })
    }
}

/// The best second of a counter that is sampled some times a second.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peak {
    samples: VecDeque<(Nanos, u64)>,
    best: f64,
    latest: f64,
}

impl Peak {
    /// Takes a sample.
    pub(crate) fn sample(&mut self, now: Nanos, count: u64) {
        self.samples.push_back((now, count));
        // The second begins with the newest sample that is at least a second old, and its true length divides.
        while self.samples.len() > 2 && now.since(self.samples[1].0) >= Duration::from_secs(1) {
            self.samples.pop_front();
        }
        let (since, counted) = self.samples[0];
        let elapsed = now.since(since);
        if elapsed >= Duration::from_secs(1) {
            // Polls that are refused are taken back from those that connected.
            self.latest = per_second(count.saturating_sub(counted), elapsed);
            self.best = self.best.max(self.latest);
        }
    }

    /// Per second in the best second so far; none before one second has passed.
    pub(crate) fn best(&self) -> Option<f64> {
        (self.best > 0.0).then_some(self.best)
    }

    /// Per second in the best second of a count that was reached in this time; none if the time is less than a second. It is never less than
    /// the mean: if half came at the first moment and half 1.3 s later, no single second saw both halves.
    pub(crate) fn best_within(&self, count: u64, lasted: Duration) -> Option<f64> {
        let mean = (lasted >= SECOND).then(|| per_second(count, lasted))?;
        Some(self.best.max(mean))
    }

    /// Per second in the last second.
    pub(crate) fn latest(&self) -> f64 {
        self.latest
    }
}

/// Events a second; zero when no time has passed.
pub(crate) fn per_second(count: u64, elapsed: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
    let count = count as f64;
    if elapsed.is_zero() {
        0.0
    } else {
        count / elapsed.as_secs_f64()
    }
}

/// The same for a load with a schedule: over one second at least. A schedule that was ended early may have lasted for a few milliseconds, and
/// what came in these does not show how much would come in a second.
pub(crate) fn per_scheduled_second(count: u64, lasted: Duration) -> f64 {
    per_second(count, lasted.max(SECOND))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Nanos {
        Nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn a_steady_rate_is_the_same_over_every_span() {
        let mut rates = Rates::start(at(10), 500);
        for second in 11..=910 {
            rates.sample(at(second), 500 + (second - 10) * 40);
        }
        assert_eq!(rates.mean(), 40.0);
        for rate in rates.weighted() {
            let rate = rate.unwrap();
            assert!((rate - 40.0).abs() < 1e-9, "{rate}");
        }
    }

    #[test]
    fn short_spans_forget_sooner() {
        let mut rates = Rates::start(at(0), 0);
        let mut count = 0;
        for second in 1..=840 {
            count += 100;
            rates.sample(at(second), count);
        }
        for second in 841..=900 {
            rates.sample(at(second), count);
        }
        let [one, five, fifteen] = rates.weighted().map(Option::unwrap);
        assert!((one - 100.0 * (-1.0_f64).exp()).abs() < 1e-6, "{one}");
        assert!(one < five && five < fifteen && fifteen < 100.0);
    }

    #[test]
    fn a_span_that_has_not_passed_has_no_rate() {
        let mut rates = Rates::start(at(10), 0);
        assert_eq!(rates.mean(), 0.0);
        let mut spans_known = |second: u64| {
            rates.sample(at(10 + second), second * 5);
            rates.weighted().map(|rate| rate.is_some())
        };
        assert_eq!(spans_known(2), [false, false, false]);
        assert_eq!(spans_known(59), [false, false, false]);
        assert_eq!(spans_known(60), [true, false, false]);
        assert_eq!(spans_known(300), [true, true, false]);
        assert_eq!(spans_known(900), [true, true, true]);
        assert_eq!(rates.mean(), 5.0);
    }

    #[test]
    fn the_best_second_is_found_between_slower_ones() {
        let mut peak = Peak::default();
        let mut count = 0;
        for tenth in 0..60_u64 {
            peak.sample(Nanos(tenth * 100_000_000), count);
            count += if (20..30).contains(&tenth) { 50 } else { 10 };
        }
        assert_eq!(peak.best(), Some(500.0));
        assert_eq!(peak.latest(), 100.0);
        let lasted = Duration::from_secs(6);
        assert_eq!(peak.best_within(1000, lasted), Some(500.0));
        assert_eq!(peak.best_within(1000, SECOND / 2), None);
    }

    #[test]
    fn the_best_second_is_no_slower_than_the_whole() {
        let mut peak = Peak::default();
        for twentieth in 0..60_u64 {
            let count = match twentieth {
                0 => 0,
                1..26 => 150,
                _ => 300,
            };
            peak.sample(Nanos(twentieth * 50_000_000), count);
        }
        assert_eq!(peak.best(), Some(150.0));
        let lasted = Duration::from_millis(1250);
        assert_eq!(peak.best_within(300, lasted), Some(240.0));
    }
}
