//! A number that says where it comes from.

use myriad_units::{self as units, significant, whole};
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
            Self::Bytes => units::bytes(units::truncate(value)),
            Self::BitsPerSecond => units::bits_per_second(value),
            Self::Cores => units::cores(value),
            Self::Seconds => units::time(value * 1_000.0),
            Self::PerSecond => format!("{}/s", count(value)),
        }
    }
}

/// Three figures below a hundred, whole numbers above.
fn count(value: f64) -> String {
    if value >= 100.0 || value.fract() == 0.0 {
        units::count(whole(value))
    } else {
        significant(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
                "3.22 GiB",
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
