//! A number that says where it comes from.

use super::resource::whole;
use crate::units;
use serde::Serialize;

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Things: connections, slots, ports, nodes.
    Count,
    /// Bytes.
    Bytes,
    /// Bits a second, in one direction.
    BitsPerSecond,
    /// Cores kept busy.
    Cores,
    /// Seconds.
    Seconds,
    /// Things a second.
    PerSecond,
}

/// A number with its unit, how it was worked out and from what.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// What it is.
    pub name: &'static str,
    /// In the unit below.
    pub value: f64,
    /// Of the value.
    pub unit: Unit,
    /// The formula, its numbers filled in.
    pub formula: String,
    /// Where the constants in the formula come from.
    pub sources: Vec<&'static str>,
}

impl Figure {
    pub(crate) fn new(name: &'static str, value: f64, unit: Unit, formula: String) -> Self {
        Self {
            name,
            value,
            unit,
            formula,
            sources: Vec::new(),
        }
    }

    /// With the sources of its constants, each once.
    pub(crate) fn from(mut self, sources: &[&'static str]) -> Self {
        for source in sources {
            if !self.sources.contains(source) {
                self.sources.push(source);
            }
        }
        self
    }

    /// The value as a person reads it.
    #[must_use]
    pub fn shown(&self) -> String {
        self.unit.show(self.value)
    }
}

impl Unit {
    /// A value of this unit as a person reads it.
    #[must_use]
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Count => count(value),
            Self::Bytes => units::bytes(whole(value)),
            Self::BitsPerSecond => bits(value),
            Self::Cores => format!("{} cores", fine(value)),
            Self::Seconds => units::milliseconds(value * 1_000.0),
            Self::PerSecond => format!("{}/s", count(value)),
        }
    }
}

/// Three figures below a hundred, whole numbers above.
fn count(value: f64) -> String {
    if value >= 100.0 || value.fract() == 0.0 {
        units::count(whole(value.round()))
    } else {
        fine(value)
    }
}

fn bits(value: f64) -> String {
    for (name, step) in [
        ("Tbit/s", 1e12),
        ("Gbit/s", 1e9),
        ("Mbit/s", 1e6),
        ("kbit/s", 1e3),
    ] {
        if value >= step {
            return format!("{} {name}", fine(value / step));
        }
    }
    format!("{} bit/s", fine(value))
}

/// Three significant figures, without zeros that say nothing.
pub(crate) fn fine(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    // Values here lie between a millionth and some billions.
    let digits = (0..9)
        .find(|digits| value * 10_f64.powi(*digits) >= 99.95)
        .unwrap_or(9);
    let text = format!("{value:.*}", usize::try_from(digits).unwrap_or(0));
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        units::count(whole(value.round()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_that_say_something() {
        let shown = [0.0, 0.001, 0.03941, 0.5, 2.0, 12.345, 99.96, 1_234.5].map(fine);
        assert_eq!(
            shown,
            ["0", "0.001", "0.0394", "0.5", "2", "12.3", "100", "1,235"]
        );
    }

    #[test]
    fn each_unit_has_its_form() {
        let shown = [
            Unit::Count.show(1_000_000.0),
            Unit::Count.show(0.1),
            Unit::Bytes.show(3_456_000_000.0),
            Unit::BitsPerSecond.show(10e9),
            Unit::Cores.show(0.394),
            Unit::Seconds.show(4.06),
            Unit::PerSecond.show(40_000.0),
        ];
        assert_eq!(
            shown,
            [
                "1,000,000",
                "0.1",
                "3.46 GB",
                "10 Gbit/s",
                "0.394 cores",
                "4.06 s",
                "40,000/s"
            ]
        );
    }

    #[test]
    fn a_source_is_named_once() {
        let figure = Figure::new("x", 1.0, Unit::Count, String::new()).from(&["a", "b", "a"]);
        assert_eq!(figure.sources, ["a", "b"]);
    }
}
