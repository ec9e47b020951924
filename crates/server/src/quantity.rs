//! Quantities as people write them: `25s`, `1MiB`, `50k`. The same words work in flags and in the config file.

use serde::de::{Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use thiserror::Error;

/// Text that is not the quantity it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum QuantityError {
    /// The number is missing or is none.
    #[error("no number: {0}")]
    Number(&'static str),
    /// The unit is missing or unknown.
    #[error("{0}")]
    Unit(&'static str),
    /// More than can be counted.
    #[error("too large")]
    TooLarge,
}

/// A length of time: a number and one of `ms`, `s`, `m`, `h`. A bare `0` is allowed, it needs no unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// A number of bytes: a bare number, or one with `B`, `KB`, `MB`, `GB` (thousands) or `KiB`, `MiB`, `GiB` (1024s).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A number of things: a bare number, or one with `k` (thousand) or `m` (million). Commas and underscores may
/// group digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count(pub u64);

const SPAN_EXAMPLES: &str = "write a number and ms, s, m or h, such as 25s";
const SIZE_EXAMPLES: &str = "write a number and B, KB, MB, GB, KiB, MiB or GiB, such as 1MiB";
const COUNT_EXAMPLES: &str = "write a number, alone or with k or m, such as 50k or 1m";

const SPAN_UNITS_MS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

/// Neither `k` nor `m`: for some that is 1,000, and for others 1,024.
const SIZE_UNITS: [(&str, u64); 8] = [
    ("", 1),
    ("b", 1),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
];

const COUNT_UNITS: [(&str, u64); 3] = [("", 1), ("k", 1_000), ("m", 1_000_000)];

impl FromStr for Span {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        if text.trim() == "0" {
            return Ok(Self(Duration::ZERO));
        }
        parse(text, &SPAN_UNITS_MS, SPAN_EXAMPLES).map(|ms| Self(Duration::from_millis(ms)))
    }
}

impl FromStr for Size {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        parse(text, &SIZE_UNITS, SIZE_EXAMPLES).map(Self)
    }
}

impl FromStr for Count {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        parse(text, &COUNT_UNITS, COUNT_EXAMPLES).map(Self)
    }
}

/// A decimal number, perhaps with a fraction, times its unit; units are matched without regard to case.
///
/// Integers only: `1.5m` is 1,500,000 exactly, and nothing is rounded but what is smaller than one.
fn parse(text: &str, units: &[(&str, u64)], examples: &'static str) -> Result<u64, QuantityError> {
    let text = text.trim();
    let number_end = text
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | ',' | '_')))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(number_end);
    let unit = unit.trim().to_ascii_lowercase();
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: String = whole.chars().filter(|c| c.is_ascii_digit()).collect();
    if whole.is_empty() || !fraction.chars().all(|c| c.is_ascii_digit()) {
        return Err(QuantityError::Number(examples));
    }
    let (_, scale) = units
        .iter()
        .find(|(name, _)| *name == unit)
        .ok_or(QuantityError::Unit(examples))?;
    let whole: u64 = whole.parse().map_err(|_| QuantityError::TooLarge)?;
    let value = whole.checked_mul(*scale).ok_or(QuantityError::TooLarge)?;
    value
        .checked_add(fraction_of(*scale, fraction))
        .ok_or(QuantityError::TooLarge)
}

/// `digits` after the point, of `scale`, rounded down.
fn fraction_of(scale: u64, digits: &str) -> u64 {
    // Places beyond the eighteenth are below one in every scale there is.
    let (mut numerator, mut denominator) = (0_u128, 1_u128);
    for digit in digits.bytes().take(18) {
        numerator = numerator * 10 + u128::from(digit - b'0');
        denominator *= 10;
    }
    u64::try_from(u128::from(scale) * numerator / denominator).expect("less than the scale")
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_millis();
        for (unit, scale) in SPAN_UNITS_MS.iter().rev() {
            let scale = u128::from(*scale);
            if ms >= scale && ms.is_multiple_of(scale) {
                return write!(f, "{}{unit}", ms / scale);
            }
        }
        write!(f, "{ms}")
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, shift) in [("GiB", 30), ("MiB", 20), ("KiB", 10)] {
            if self.0 >= 1 << shift && self.0.is_multiple_of(1 << shift) {
                return write!(f, "{}{unit}", self.0 >> shift);
            }
        }
        write!(f, "{}B", self.0)
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&myriad_doctor::units::count(self.0))
    }
}

/// Accepts the quantity's own text, and plain integers where those mean something.
struct QuantityVisitor<T> {
    examples: &'static str,
    from_integer: fn(u64) -> Option<T>,
}

impl<T: FromStr<Err = QuantityError>> Visitor<'_> for QuantityVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.examples)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        text.parse()
            .map_err(|error| E::custom(format_args!("`{text}`: {error}")))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<T, E> {
        u64::try_from(value)
            .ok()
            .and_then(self.from_integer)
            .ok_or_else(|| E::invalid_value(Unexpected::Signed(value), &self))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<T, E> {
        (self.from_integer)(value)
            .ok_or_else(|| E::invalid_value(Unexpected::Unsigned(value), &self))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let zero_only = |value| (value == 0).then_some(Self(Duration::ZERO));
        let visitor = QuantityVisitor {
            examples: SPAN_EXAMPLES,
            from_integer: zero_only,
        };
        deserializer.deserialize_any(visitor)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let visitor = QuantityVisitor {
            examples: SIZE_EXAMPLES,
            from_integer: |value| Some(Self(value)),
        };
        deserializer.deserialize_any(visitor)
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let visitor = QuantityVisitor {
            examples: COUNT_EXAMPLES,
            from_integer: |value| Some(Self(value)),
        };
        deserializer.deserialize_any(visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_need_a_unit_and_show_the_largest_whole_one() {
        for (text, ms, shown) in [
            ("25s", 25_000, "25s"),
            ("1.5s", 1_500, "1500ms"),
            ("60s", 60_000, "1m"),
            ("2 h", 7_200_000, "2h"),
            ("250MS", 250, "250ms"),
            ("0", 0, "0"),
            ("0s", 0, "0"),
        ] {
            let span: Span = text.parse().unwrap();
            assert_eq!(span.0, Duration::from_millis(ms), "{text}");
            assert_eq!(span.to_string(), shown);
        }
        assert_eq!(
            "25".parse::<Span>(),
            Err(QuantityError::Unit(SPAN_EXAMPLES))
        );
        assert_eq!(
            "s".parse::<Span>(),
            Err(QuantityError::Number(SPAN_EXAMPLES))
        );
        assert_eq!(
            "-1s".parse::<Span>(),
            Err(QuantityError::Number(SPAN_EXAMPLES))
        );
        assert_eq!(
            "1.2.3s".parse::<Span>(),
            Err(QuantityError::Number(SPAN_EXAMPLES))
        );
    }

    #[test]
    fn sizes_know_thousands_and_1024s() {
        for (text, bytes, shown) in [
            ("1MiB", 1 << 20, "1MiB"),
            ("1mb", 1_000_000, "1000000B"),
            ("1500", 1500, "1500B"),
            ("0.5GiB", 512 << 20, "512MiB"),
        ] {
            let size: Size = text.parse().unwrap();
            assert_eq!(
                (size.0, size.to_string().as_str()),
                (bytes, shown),
                "{text}"
            );
        }
        for unit in ["1TiB", "64k"] {
            assert_eq!(
                unit.parse::<Size>(),
                Err(QuantityError::Unit(SIZE_EXAMPLES))
            );
        }
        assert_eq!(
            "99999999999GiB".parse::<Size>(),
            Err(QuantityError::TooLarge)
        );
    }

    #[test]
    fn counts_are_exact() {
        for (text, value) in [
            ("1m", 1_000_000),
            ("50k", 50_000),
            ("1.25m", 1_250_000),
            ("1,000_000", 1_000_000),
            ("7", 7),
        ] {
            assert_eq!(text.parse(), Ok(Count(value)), "{text}");
        }
        assert_eq!(
            "1x".parse::<Count>(),
            Err(QuantityError::Unit(COUNT_EXAMPLES))
        );
        assert_eq!(Count(1_000_000).to_string(), "1,000,000");
    }

    #[test]
    fn the_config_file_takes_text_and_integers() {
        #[derive(Deserialize)]
        struct Sample {
            count: Count,
            size: Size,
            span: Span,
        }
        let sample: Sample = toml::from_str("count = 5\nsize = \"2KiB\"\nspan = 0").unwrap();
        assert_eq!(
            (sample.count, sample.size, sample.span),
            (Count(5), Size(2048), Span(Duration::ZERO))
        );
        let error = toml::from_str::<Sample>("count = 1\nsize = 1\nspan = 5")
            .err()
            .unwrap();
        assert!(error.to_string().contains("such as 25s"), "{error}");
    }
}
