//! Axes: a title, a scale, and ticks with their texts.

use serde::Serialize;

/// From this ratio of the largest to the smallest figure on, a linear axis hides the small ones.
const RATIO_LOGARITHMIC: f64 = 30.0;
/// Ticks of a linear axis, about.
const LINEAR_TICKS: f64 = 5.0;
/// [`Axis::logarithmic`] on a page in English.
pub const LOGARITHMIC: &str = ", logarithmic";

/// How figures become lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// From zero, in equal steps.
    Linear,
    /// In powers of ten. Only for figures above zero; the axis says that it is logarithmic.
    Logarithmic,
}

impl Scale {
    /// The scale on which all of these figures can be seen: logarithmic if all are above zero and far apart.
    #[must_use]
    pub fn suiting(values: impl IntoIterator<Item = f64>) -> Self {
        let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
        for value in values {
            least = least.min(value);
            most = most.max(value);
        }
        if least > 0.0 && most / least >= RATIO_LOGARITHMIC {
            Self::Logarithmic
        } else {
            Self::Linear
        }
    }
}

/// Which numbers are round where figures have a unit with prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steps {
    /// Powers of ten, and 2 and 5 times those: for times and rates.
    Decimal,
    /// Powers of 16 on a logarithmic axis, multiples of a power of two on a linear one: for KiB.
    Binary,
}

/// One axis of a chart.
#[derive(Clone, Debug)]
pub struct Axis {
    /// What is measured.
    pub title: String,
    /// How figures become lengths.
    pub scale: Scale,
    /// What stands behind the title where the scale is logarithmic, in the page's language: [`LOGARITHMIC`] in English.
    pub logarithmic: &'static str,
    /// Where its ticks are.
    pub steps: Steps,
    /// A figure with its unit, as ticks and tables show it.
    pub format: fn(f64) -> String,
}

/// What the script needs of an axis.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Drawn {
    title: String,
    logarithmic: bool,
    min: f64,
    max: f64,
    ticks: Vec<Tick>,
    /// The largest value itself.
    #[serde(skip)]
    data_max: f64,
}

/// A place on an axis, and what stands there.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Tick {
    pub value: f64,
    pub label: String,
}

impl Drawn {
    /// With [`Axis::logarithmic`] on a logarithmic axis.
    pub(crate) fn title(&self) -> &str {
        &self.title
    }

    /// From the least to the largest.
    pub(crate) fn ticks(&self) -> &[Tick] {
        &self.ticks
    }

    /// The same axis without the room behind the largest value, on a linear scale: time needs no air.
    pub(crate) fn ending_at_data(mut self) -> Self {
        if !self.logarithmic && self.data_max > 0.0 {
            self.max = self.data_max;
            let max = self.max * (1.0 + 1e-9);
            self.ticks.retain(|tick| tick.value <= max);
        }
        self
    }

    /// Where a value is between the ends of the axis: 0 to 1.
    pub(crate) fn share(&self, value: f64) -> f64 {
        let place = |value: f64| {
            if self.logarithmic {
                value.max(self.min).log10()
            } else {
                value
            }
        };
        let (min, max) = (place(self.min), place(self.max));
        ((place(value) - min) / (max - min)).clamp(0.0, 1.0)
    }
}

impl Axis {
    /// The title, which says so on a logarithmic axis.
    pub(crate) fn full_title(&self) -> String {
        match self.scale {
            Scale::Linear => self.title.clone(),
            Scale::Logarithmic => format!("{}{}", self.title, self.logarithmic),
        }
    }

    /// Range and ticks that hold all values. Those that a logarithmic axis cannot show do not count.
    pub(crate) fn drawn(&self, values: impl IntoIterator<Item = f64>) -> Drawn {
        let finite = values.into_iter().filter(|value| value.is_finite());
        let mut data_max = 0.0_f64;
        let finite = finite.inspect(|value| data_max = data_max.max(*value));
        let ticks = match self.scale {
            Scale::Linear => linear_ticks(finite.fold(0.0, f64::max), self.steps),
            Scale::Logarithmic => powers(finite.filter(|value| *value > 0.0), self.steps),
        };
        let (min, max) = (ticks[0], ticks[ticks.len() - 1]);
        let tick = |value: f64| Tick {
            value,
            label: (self.format)(value),
        };
        Drawn {
            title: self.full_title(),
            logarithmic: self.scale == Scale::Logarithmic,
            min,
            max,
            ticks: ticks.into_iter().map(tick).collect(),
            data_max,
        }
    }
}

/// From zero to past the largest, in steps of 1, 2 or 5 times a power of ten, or of a power of two if steps are binary. At
/// least two ticks.
fn linear_ticks(most: f64, steps: Steps) -> Vec<f64> {
    if most <= 0.0 {
        return vec![0.0, 1.0];
    }
    let rough = most / LINEAR_TICKS;
    let step = match steps {
        Steps::Decimal => {
            let power = 10_f64.powf(rough.log10().floor());
            let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
            let step = steps.into_iter().find(|step| *step >= rough);
            step.unwrap_or(steps[3])
        }
        Steps::Binary => rough.max(1.0).log2().ceil().exp2(),
    };
    let mut ticks = vec![0.0];
    let mut index = 1.0;
    // A little tolerance: 0.3 is not three times 0.1.
    while (index - 1.0) * step < most * (1.0 - 1e-9) {
        ticks.push(index * step);
        index += 1.0;
    }
    ticks
}

/// The powers of ten or sixteen around all values. At least two.
fn powers(values: impl Iterator<Item = f64>, steps: Steps) -> Vec<f64> {
    let base: f64 = match steps {
        Steps::Decimal => 10.0,
        Steps::Binary => 16.0,
    };
    let exponent = |value: f64| match steps {
        Steps::Decimal => value.log10(),
        Steps::Binary => value.log2() / 4.0,
    };
    let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
    for value in values {
        least = least.min(value);
        most = most.max(value);
    }
    if most == 0.0 {
        return vec![1.0, base];
    }
    // A bar of the smallest figure must have a length.
    let first = exponent(least * 0.8).floor();
    let last = exponent(most).ceil().max(first + 1.0);
    let mut powers = Vec::new();
    let mut power = first;
    while power <= last {
        powers.push(base.powf(power));
        power += 1.0;
    }
    powers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(scale: Scale) -> Axis {
        Axis {
            title: "time".to_owned(),
            scale,
            logarithmic: LOGARITHMIC,
            steps: Steps::Decimal,
            format: |value| format!("{value} ms"),
        }
    }

    fn ticks(scale: Scale, values: &[f64]) -> Vec<f64> {
        let drawn = axis(scale).drawn(values.iter().copied());
        drawn.ticks.iter().map(|tick| tick.value).collect()
    }

    #[test]
    fn linear_ticks_begin_at_zero_and_hold_the_largest() {
        assert_eq!(
            ticks(Scale::Linear, &[3.0, 47.0]),
            [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]
        );
        assert_eq!(
            ticks(Scale::Linear, &[1.0]),
            [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]
        );
        assert_eq!(ticks(Scale::Linear, &[0.0]), [0.0, 1.0]);
        assert_eq!(ticks(Scale::Linear, &[f64::NAN, f64::INFINITY]), [0.0, 1.0]);
        for most in [1e-9, 0.3, 7.0, 99.9, 100.0, 1e12] {
            let ticks = ticks(Scale::Linear, &[most]);
            assert!(
                ticks[ticks.len() - 1] >= most * (1.0 - 1e-9),
                "{most}: {ticks:?}"
            );
            assert!((2..=7).contains(&ticks.len()), "{most}: {ticks:?}");
        }
    }

    #[test]
    fn logarithmic_ticks_are_powers_of_ten_around_all_figures() {
        assert_eq!(
            ticks(Scale::Logarithmic, &[92.0, 58_000.0]),
            [10.0, 100.0, 1e3, 1e4, 1e5]
        );
        // The smallest figure has a length, and nothing at or below zero counts.
        assert_eq!(ticks(Scale::Logarithmic, &[10.0, 0.0, -5.0]), [1.0, 10.0]);
        assert_eq!(ticks(Scale::Logarithmic, &[]), [1.0, 10.0]);
    }

    #[test]
    fn binary_ticks_are_round_in_kibibytes() {
        let ticks = |scale, values: &[f64]| -> Vec<f64> {
            let axis = Axis {
                steps: Steps::Binary,
                ..axis(scale)
            };
            let drawn = axis.drawn(values.iter().copied());
            drawn.ticks.iter().map(|tick| tick.value).collect()
        };
        assert_eq!(
            ticks(Scale::Logarithmic, &[93.0, 58_000.0]),
            [16.0, 256.0, 4_096.0, 65_536.0]
        );
        let kib = |count: f64| count * 1_024.0;
        assert_eq!(
            ticks(Scale::Linear, &[kib(7.0)]),
            [0.0, 2.0, 4.0, 6.0, 8.0].map(kib)
        );
        assert_eq!(ticks(Scale::Linear, &[3.0]), [0.0, 1.0, 2.0, 3.0]);
        assert_eq!(
            ticks(Scale::Linear, &[kib(3_400.0)]),
            [0.0, 1_024.0, 2_048.0, 3_072.0, 4_096.0].map(kib)
        );
    }

    #[test]
    fn a_logarithmic_axis_says_so_in_its_language() {
        assert_eq!(axis(Scale::Logarithmic).full_title(), "time, logarithmic");
        let german = Axis {
            logarithmic: " (logarithmisch)",
            ..axis(Scale::Logarithmic)
        };
        assert_eq!(german.full_title(), "time (logarithmisch)");
        assert_eq!(axis(Scale::Linear).full_title(), "time");
    }

    #[test]
    fn figures_far_apart_need_a_logarithmic_axis() {
        assert_eq!(Scale::suiting([92.0, 58_000.0]), Scale::Logarithmic);
        assert_eq!(Scale::suiting([92.0, 900.0]), Scale::Linear);
        assert_eq!(Scale::suiting([0.0, 900.0]), Scale::Linear);
        assert_eq!(Scale::suiting([]), Scale::Linear);
    }
}
