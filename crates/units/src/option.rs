//! Quantities as options: `25s`, `1MiB`, `50k`. The same words work in flags and in the config file.

use crate::parse::{self, Problem, QuantityError};
use serde::de::{Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A length of time in whole milliseconds: `25s`, `250ms`, `1h30m`. A bare `0` is allowed, it needs no unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// A time, or a range of times: `30s`, `30s..90s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanRange {
    /// The shortest.
    pub min: Span,
    /// The longest; not less than the shortest.
    pub max: Span,
}

/// A number of bytes: a bare number, or one with `B`, `KB`, `MB`, `GB` (thousands) or `KiB`, `MiB`, `GiB` (1024s).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A number of things: a bare number, or one with `k` (thousand) or `m` (million).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count(pub u64);

/// So many in a time: `20/s`, `300/m`, `5k/h`. A bare number is by second, and 0 means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllowedRate {
    /// How many.
    pub count: u64,
    /// In which time.
    pub period: Duration,
}

/// A part of a whole, from 0 to 1: `0.1%`, or a bare `0`.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Share(pub f64);

/// Bits a second of a network: `500mbit`, `10gbit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bandwidth(pub u64);

/// The units that [`Span`] is shown in.
const SPAN_UNITS_MS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

impl FromStr for Span {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let duration = parse::duration(text)?;
        // Shorter ones would be shown as another, and the shortest as none at all.
        if duration.subsec_nanos().is_multiple_of(1_000_000) {
            return Ok(Self(duration));
        }
        Err(QuantityError {
            text: text.to_owned(),
            column: 1,
            problem: Problem::NotWhole,
            expected: "a whole number of milliseconds, such as 250ms or 1.5s",
        })
    }
}

impl FromStr for SpanRange {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let (min, max) = text.split_once("..").unwrap_or((text, text));
        let (min, max) = (min.trim().parse()?, max.trim().parse()?);
        if min <= max {
            return Ok(Self { min, max });
        }
        Err(QuantityError {
            text: text.to_owned(),
            column: 1,
            problem: Problem::NoNumber,
            expected: SPAN_RANGE,
        })
    }
}

/// What a [`SpanRange`] looks like.
const SPAN_RANGE: &str =
    "a time such as 30s, or a range with the shorter time first, such as 30s..90s";

impl FromStr for Size {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        parse::bytes(text).map(Self)
    }
}

impl FromStr for Count {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        parse::count(text).map(Self)
    }
}

impl FromStr for AllowedRate {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let (count, period) = parse::allowed_rate(text)?;
        Ok(Self { count, period })
    }
}

impl FromStr for Share {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        parse::share(text).map(Self)
    }
}

impl FromStr for Bandwidth {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        parse::bandwidth(text).map(Self)
    }
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

impl fmt::Display for SpanRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max {
            return self.min.fmt(f);
        }
        write!(f, "{}..{}", self.min, self.max)
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
        f.write_str(&crate::count(self.0))
    }
}

impl fmt::Display for AllowedRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.period.as_secs() {
            3600 => "h",
            60 => "m",
            _ => "s",
        };
        write!(f, "{}/{unit}", self.count)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", crate::significant(self.0 * 100.0))
    }
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, step) in [("gbit", 1_000_000_000), ("mbit", 1_000_000)] {
            if self.0 >= step && self.0.is_multiple_of(step) {
                return write!(f, "{}{unit}", self.0 / step);
            }
        }
        let (kilobits, bits) = (self.0 / 1_000, self.0 % 1_000);
        match bits {
            0 => write!(f, "{kilobits}kbit"),
            _ => write!(f, "{kilobits}.{bits:03}kbit"),
        }
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
        text.parse().map_err(|error| E::custom(error))
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
            examples: parse::DURATION,
            from_integer: zero_only,
        };
        deserializer.deserialize_any(visitor)
    }
}

impl<'de> Deserialize<'de> for SpanRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let visitor = QuantityVisitor {
            examples: SPAN_RANGE,
            from_integer: |_| None,
        };
        deserializer.deserialize_any(visitor)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let visitor = QuantityVisitor {
            examples: parse::BYTES,
            from_integer: |value| Some(Self(value)),
        };
        deserializer.deserialize_any(visitor)
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let visitor = QuantityVisitor {
            examples: parse::COUNT,
            from_integer: |value| Some(Self(value)),
        };
        deserializer.deserialize_any(visitor)
    }
}

impl<'de> Deserialize<'de> for AllowedRate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let visitor = QuantityVisitor {
            examples: parse::ALLOWED_RATE,
            from_integer: |count| {
                let period = Duration::from_secs(1);
                Some(Self { count, period })
            },
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
        let problem = |text: &str| text.parse::<Span>().unwrap_err().problem;
        assert_eq!(problem("25"), Problem::NoUnit);
        for text in ["s", "-1s", "1.2.3s"] {
            assert_eq!(problem(text), Problem::NoNumber, "{text}");
        }
        assert_eq!(problem("1.0005s"), Problem::NotWhole);
    }

    #[test]
    fn a_range_of_times_has_the_shorter_one_first() {
        for (text, shown) in [
            ("30s", "30s"),
            ("30s..90s", "30s..90s"),
            ("1s .. 1m", "1s..1m"),
        ] {
            let range: SpanRange = text.parse().unwrap();
            assert_eq!(range.to_string(), shown);
            assert_eq!(shown.parse(), Ok(range));
        }
        for text in ["90s..30s", "30s..", "..", "30..90s"] {
            assert!(text.parse::<SpanRange>().is_err(), "{text}");
        }
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
        for text in ["1TiB", "64k"] {
            let error = text.parse::<Size>().unwrap_err();
            assert_eq!(error.problem, Problem::UnknownUnit, "{text}");
        }
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
        let error = "1x".parse::<Count>().unwrap_err();
        assert_eq!(error.problem, Problem::UnknownUnit);
        assert_eq!(Count(1_000_000).to_string(), "1,000,000");
    }

    #[test]
    fn allowed_rates_name_their_time() {
        for (text, count, seconds, shown) in [
            ("20/s", 20, 1, "20/s"),
            ("20", 20, 1, "20/s"),
            ("300/m", 300, 60, "300/m"),
            ("1.5k / h", 1500, 3600, "1500/h"),
            ("1m", 1_000_000, 1, "1000000/s"),
            ("0", 0, 1, "0/s"),
        ] {
            let rate: AllowedRate = text.parse().unwrap();
            assert_eq!(
                (rate.count, rate.period.as_secs()),
                (count, seconds),
                "{text}"
            );
            assert_eq!(rate.to_string(), shown);
            assert_eq!(shown.parse(), Ok(rate));
        }
        let problem = |text: &str| text.parse::<AllowedRate>().unwrap_err().problem;
        assert_eq!(problem("20/d"), Problem::UnknownUnit);
        assert_eq!(problem("20x/s"), Problem::UnknownUnit);
        assert_eq!(problem("0.5/s"), Problem::NotWhole);
        assert_eq!(problem("/s"), Problem::NoNumber);
    }

    #[test]
    fn shares_and_bandwidths_are_shown_as_they_can_be_written() {
        for text in ["0.1%", "100%", "0%", "12.5%"] {
            let share: Share = text.parse().unwrap();
            assert_eq!(share.to_string(), text);
        }
        for text in ["10gbit", "500mbit", "1500mbit", "64kbit", "1.001kbit"] {
            let bandwidth: Bandwidth = text.parse().unwrap();
            assert_eq!(bandwidth.to_string(), text);
        }
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
        assert!(error.to_string().contains("such as 250ms"), "{error}");
    }
}
