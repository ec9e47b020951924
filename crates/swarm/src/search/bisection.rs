//! Which value a search tries next. It knows no clock and no crowd: what came of a trial is told to it.

use myriad_report::{Purpose, Unit};

/// Most trials of a search. From 1 to 2^32 by doubling, and back to 1% of it, takes some 40.
pub(super) const TRIALS_MAX: usize = 100;

/// How the value grows while everything holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Growth {
    /// By this factor, more than 1.
    Factor(f64),
    /// By this amount, more than 0.
    Step(f64),
}

/// The bounds of a search.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub unit: Unit,
    /// The first value.
    pub from: f64,
    /// The largest value.
    pub most: f64,
    pub growth: Growth,
    /// Largest distance between the knee and what failed, as a share of the knee.
    pub precision: f64,
    /// Times that the knee is repeated.
    pub repeats: u32,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Next {
    Try(f64, Purpose),
    /// This value held each time that it was tried, and what is larger failed, unless it is the largest.
    Knee(f64),
    /// The smallest value fails.
    NeverHeld,
    /// Too many trials.
    Unsettled,
}

/// A search under way.
#[derive(Debug)]
pub(super) struct Bisection {
    bounds: Bounds,
    /// Values that held, and never failed; rising.
    held: Vec<f64>,
    /// The smallest value that failed.
    failed: Option<f64>,
    /// Times that the largest value that held was tried.
    times: u32,
    trials: usize,
}

impl Bisection {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            held: Vec::new(),
            failed: None,
            times: 0,
            trials: 0,
        }
    }

    /// The smallest value that failed.
    pub(super) fn failed(&self) -> Option<f64> {
        self.failed
    }

    /// The largest value that held each time.
    pub(super) fn held(&self) -> Option<f64> {
        self.held.last().copied()
    }

    pub(super) fn next(&self) -> Next {
        if self.trials >= TRIALS_MAX {
            return Next::Unsettled;
        }
        let least = self.round(self.bounds.from.min(1.0));
        let (value, purpose) = match (self.held(), self.failed) {
            (None, None) => (self.bounds.from, Purpose::Grow),
            (None, Some(failed)) if failed <= least => return Next::NeverHeld,
            (None, Some(failed)) => (self.shrunk(failed).max(least), Purpose::Shrink),
            (Some(held), None) if held >= self.bounds.most => return self.repeated(held),
            (Some(held), None) => (self.grown(held).min(self.bounds.most), Purpose::Grow),
            (Some(held), Some(failed)) => {
                let middle = self.round(f64::midpoint(held, failed));
                let is_near = failed - held <= self.bounds.precision * held;
                if is_near || middle <= held || middle >= failed {
                    return self.repeated(held);
                }
                (middle, Purpose::Bisect)
            }
        };
        Next::Try(self.round(value), purpose)
    }

    /// The knee, or another trial of it.
    fn repeated(&self, value: f64) -> Next {
        match self.times > self.bounds.repeats {
            true => Next::Knee(value),
            false => Next::Try(value, Purpose::Repeat),
        }
    }

    /// Takes what came of the last value.
    pub(super) fn note(&mut self, value: f64, held: bool) {
        self.trials += 1;
        if !held {
            self.held.retain(|it| *it < value);
            self.failed = Some(self.failed.map_or(value, |failed| failed.min(value)));
            // What is below was tried once, long ago.
            self.times = 1;
            return;
        }
        if self.held() == Some(value) {
            self.times += 1;
            return;
        }
        self.held.push(value);
        self.times = 1;
    }

    fn grown(&self, value: f64) -> f64 {
        match self.bounds.growth {
            Growth::Factor(factor) => value * factor,
            Growth::Step(step) => value + step,
        }
    }

    fn shrunk(&self, value: f64) -> f64 {
        match self.bounds.growth {
            Growth::Factor(factor) => value / factor,
            // By halves: a step may be larger than what is left.
            Growth::Step(step) if step < value => value - step,
            Growth::Step(_) => value / 2.0,
        }
    }

    /// A count is whole; a rate has four digits, so that people can repeat it.
    fn round(&self, value: f64) -> f64 {
        if self.bounds.unit == Unit::Count {
            return value.round().max(1.0);
        }
        let scale = 10_f64.powf(3.0 - value.abs().log10().floor());
        (value * scale).round() / scale
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds() -> Bounds {
        Bounds {
            unit: Unit::Count,
            from: 100.0,
            most: 1e6,
            growth: Growth::Factor(2.0),
            precision: 0.05,
            repeats: 3,
        }
    }

    /// Searches a server that carries what `holds` says of a value and of how many trials came before.
    fn search(bounds: Bounds, holds: impl Fn(f64, usize) -> bool) -> (Next, Vec<(f64, Purpose)>) {
        let mut bisection = Bisection::new(bounds);
        let mut tried = Vec::new();
        loop {
            let Next::Try(value, purpose) = bisection.next() else {
                return (bisection.next(), tried);
            };
            tried.push((value, purpose));
            bisection.note(value, holds(value, tried.len()));
        }
    }

    #[test]
    fn it_grows_until_a_trial_fails_and_comes_near_from_both_sides() {
        let (end, tried) = search(bounds(), |value, _| value <= 730.0);
        let values: Vec<f64> = tried.iter().map(|(value, _)| *value).collect();
        let expected = [
            100.0, 200.0, 400.0, 800.0, 600.0, 700.0, 750.0, 725.0, 725.0, 725.0, 725.0,
        ];
        assert_eq!(values, expected);
        assert_eq!(end, Next::Knee(725.0));
        assert_eq!(tried[10].1, Purpose::Repeat);
    }

    #[test]
    fn every_knee_is_found_to_the_precision() {
        for knee in 1..3_000_u32 {
            let knee = f64::from(knee);
            let exact = Bounds {
                repeats: 1,
                precision: 0.0,
                ..bounds()
            };
            let (end, _) = search(exact, |value, _| value <= knee);
            assert_eq!(end, Next::Knee(knee));
            let (end, _) = search(bounds(), |value, _| value <= knee);
            let Next::Knee(found) = end else {
                panic!("{knee}: {end:?}")
            };
            assert!(found <= knee && (knee + 1.0 - found) <= 1.0 + 0.06 * found);
        }
    }

    #[test]
    fn a_knee_that_does_not_hold_again_is_none() {
        // 725 fails its second repeat, and only then.
        let (end, tried) = search(bounds(), |value, number| value <= 730.0 && number != 10);
        let Next::Knee(knee) = end else {
            panic!("{end:?}")
        };
        assert!((700.0..725.0).contains(&knee), "{knee}: {tried:?}");
        let repeats = tried.iter().filter(|it| **it == (knee, Purpose::Repeat));
        assert_eq!(repeats.count(), 3);
    }

    #[test]
    fn what_always_holds_ends_at_the_largest_and_what_never_does_at_one() {
        let small = Bounds {
            most: 1_000.0,
            ..bounds()
        };
        let (end, tried) = search(small, |_, _| true);
        assert_eq!((end, tried.len()), (Next::Knee(1_000.0), 8));
        let (end, tried) = search(bounds(), |_, _| false);
        assert_eq!(
            (end, tried.last()),
            (Next::NeverHeld, Some(&(1.0, Purpose::Shrink)))
        );
    }

    #[test]
    fn steps_are_added_and_rates_have_four_digits() {
        let stepped = Bounds {
            growth: Growth::Step(300.0),
            ..bounds()
        };
        let (end, tried) = search(stepped, |value, _| value <= 900.0);
        assert_eq!(tried[3], (1_000.0, Purpose::Grow));
        assert_eq!(end, Next::Knee(888.0));
        let rate = Bounds {
            unit: Unit::PerSecond,
            from: 0.3,
            ..bounds()
        };
        let (end, _) = search(rate, |value, _| value <= 0.017);
        assert!(matches!(end, Next::NeverHeld));
        let (end, _) = search(rate, |value, _| value <= 1234.6);
        let Next::Knee(knee) = end else {
            panic!("{end:?}")
        };
        assert!(format!("{knee}").len() <= 6, "{knee}");
    }

    #[test]
    fn a_server_that_holds_by_chance_ends_the_search_too() {
        let (end, tried) = search(bounds(), |value, number| value < 50.0 && number % 2 == 0);
        assert_eq!((end, tried.len()), (Next::NeverHeld, 37));
    }

    #[test]
    fn trials_are_bounded() {
        let mut bisection = Bisection::new(bounds());
        for _ in 1..TRIALS_MAX {
            bisection.note(100.0, true);
        }
        assert_ne!(bisection.next(), Next::Unsettled);
        bisection.note(100.0, true);
        assert_eq!(bisection.next(), Next::Unsettled);
    }
}
