//! Quantities as people write them: `1m` connections, `50k` a second, `250ms`, `1MiB`.
//!
//! The same words everywhere, in flags and in the config file. Units are matched without regard to case, blanks may stand
//! around a number, `_` anywhere and `,` before three digits may group its digits.

use crate::truncate;
use std::fmt;
use std::time::Duration;

/// A quantity that could not be read: the text, the column (from 1) and what would have been right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuantityError {
    /// The text as given.
    pub text: String,
    /// Where reading stopped, in characters from 1.
    pub column: usize,
    /// What was found there.
    pub problem: Problem,
    /// Valid forms, for the message.
    pub expected: &'static str,
}

/// What is wrong with a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// There is no number where one should be.
    NoNumber,
    /// A number without the unit it needs.
    NoUnit,
    /// A unit nobody knows.
    UnknownUnit,
    /// The value does not fit.
    TooLarge,
    /// A whole number was needed.
    NotWhole,
    /// Zero, where at least something is needed.
    Zero,
    /// A share without its percent sign.
    NoPercent,
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problem = match self.problem {
            Problem::NoNumber => "a number is missing",
            Problem::NoUnit => "the unit is missing",
            Problem::UnknownUnit => "unknown unit",
            Problem::TooLarge => "the value is too large",
            Problem::NotWhole => "this must be a whole number",
            Problem::Zero => "this must be more than zero",
            Problem::NoPercent => "the percent sign is missing",
        };
        write!(
            f,
            "`{}`: {problem} at column {}; write {}",
            self.text, self.column, self.expected
        )
    }
}

impl std::error::Error for QuantityError {}

/// How a count is written.
pub const COUNT: &str = "a count such as 250, 50k or 1m";
/// How a duration is written.
pub const DURATION: &str = "a duration such as 250ms, 10s, 5m or 1h30m";
/// How a size is written.
pub const BYTES: &str = "a size such as 32, 16KiB or 1MiB";
/// How a share is written.
pub const SHARE: &str = "a share such as 0.1%, from 0% to 100%";
/// How the bandwidth of a network is written.
pub const BANDWIDTH: &str = "a bandwidth such as 500mbit or 10gbit";
const SHARE_RATE: &str = "a share and a time, at most 100% a second, such as 1%/m, 0.5%/s or 10%/h";
/// How a limit of a rate is written.
pub const ALLOWED_RATE: &str =
    "a whole rate such as 20/s, 300/m or 5k/h; a bare number is by second, and 0 is no limit";
const RATE: &str = "a rate such as 500, 50k or 50k/s";

/// Largest value accepted anywhere: whole numbers up to here are exact in an `f64`.
const VALUE_MAX: f64 = 9_007_199_254_740_992.0;

/// A count: `250`, `1_000`, `50k`, `1.5m`, `2g`.
///
/// # Errors
/// The text is not a whole number after its suffix is applied.
pub fn count(text: &str) -> Result<u64, QuantityError> {
    let text = text.trim();
    let error = refusal(text, COUNT);
    let (value, rest) = number(text).ok_or_else(|| error(1, Problem::NoNumber))?;
    let factor =
        decimal_factor(rest).ok_or_else(|| error(column_of(text, rest), Problem::UnknownUnit))?;
    whole(value * factor).map_err(|problem| error(1, problem))
}

/// A rate per second: `500`, `50k`, `50k/s`, `0.5`.
///
/// # Errors
/// The text is not a positive number with a known suffix.
pub fn rate(text: &str) -> Result<f64, QuantityError> {
    let text = text.trim();
    let error = refusal(text, RATE);
    let (value, rest) = number(text).ok_or_else(|| error(1, Problem::NoNumber))?;
    let factor = decimal_factor(rest.strip_suffix("/s").unwrap_or(rest))
        .ok_or_else(|| error(column_of(text, rest), Problem::UnknownUnit))?;
    if value == 0.0 {
        return Err(error(1, Problem::Zero));
    }
    Ok(value * factor)
}

/// A limit of a rate: so many in a time. `20/s`, `300/m`, `5k/h`; a bare number is by second.
///
/// # Errors
/// The text is not a whole number, or the time is none of a second, a minute and an hour.
pub fn allowed_rate(text: &str) -> Result<(u64, Duration), QuantityError> {
    let text = text.trim();
    let error = refusal(text, ALLOWED_RATE);
    let (value, rest) = number(text).ok_or_else(|| error(1, Problem::NoNumber))?;
    let (suffix, seconds) = match rest.split_once('/') {
        None => (rest, Some(1)),
        Some((suffix, unit)) => {
            let seconds = match unit.trim().to_ascii_lowercase().as_str() {
                "s" => Some(1),
                "m" => Some(60),
                "h" => Some(3600),
                _ => None,
            };
            (suffix, seconds)
        }
    };
    let factor = decimal_factor(suffix.trim_end());
    let (Some(factor), Some(seconds)) = (factor, seconds) else {
        return Err(error(column_of(text, rest), Problem::UnknownUnit));
    };
    let count = whole(value * factor).map_err(|problem| error(1, problem))?;
    Ok((count, Duration::from_secs(seconds)))
}

/// A share as a fraction: `0.1%` is 0.001; at most `100%`. A bare `0` needs no percent sign.
///
/// # Errors
/// The percent sign is missing, or the share is more than everything.
pub fn share(text: &str) -> Result<f64, QuantityError> {
    let text = text.trim();
    let error = refusal(text, SHARE);
    let (percent, rest) = number(text).ok_or_else(|| error(1, Problem::NoNumber))?;
    match rest {
        "%" if percent > 100.0 => Err(error(1, Problem::TooLarge)),
        "%" => Ok(percent / 100.0),
        "" if text == "0" => Ok(0.0),
        "" => Err(error(column_of(text, rest), Problem::NoPercent)),
        _ => Err(error(column_of(text, rest), Problem::UnknownUnit)),
    }
}

/// The bandwidth of a network in bits a second: `500mbit`, `10gbit`. Prefixes are decimal, as everywhere in networks. A bare
/// number is refused, because it means bytes to some and megabits to others.
///
/// # Errors
/// The unit is missing or unknown, or the value is not a whole number of bits above zero.
pub fn bandwidth(text: &str) -> Result<u64, QuantityError> {
    let text = text.trim();
    let error = refusal(text, BANDWIDTH);
    let (value, rest) = number(text).ok_or_else(|| error(1, Problem::NoNumber))?;
    let factor = match rest.to_ascii_lowercase().as_str() {
        "kbit" => 1e3,
        "mbit" => 1e6,
        "gbit" => 1e9,
        "" => return Err(error(column_of(text, rest), Problem::NoUnit)),
        _ => return Err(error(column_of(text, rest), Problem::UnknownUnit)),
    };
    match whole(value * factor).map_err(|problem| error(1, problem))? {
        0 => Err(error(1, Problem::Zero)),
        bits_per_s => Ok(bits_per_s),
    }
}

/// A share that changes over a time, as a fraction a second: `1%/m`, `0.5%/s`, `10%/h`; at most `100%/s`.
///
/// # Errors
/// The percent sign or the time is missing or unknown, or the share is zero or more than everything a second.
pub fn share_rate(text: &str) -> Result<f64, QuantityError> {
    let text = text.trim();
    let error = refusal(text, SHARE_RATE);
    let (percent, rest) = number(text).ok_or_else(|| error(1, Problem::NoNumber))?;
    let time = rest
        .strip_prefix('%')
        .ok_or_else(|| error(column_of(text, rest), Problem::NoPercent))?;
    let seconds = match time {
        "/s" => 1.0,
        "/m" | "/min" => 60.0,
        "/h" => 3600.0,
        "" => return Err(error(column_of(text, time), Problem::NoUnit)),
        _ => return Err(error(column_of(text, time), Problem::UnknownUnit)),
    };
    let share_per_s = percent / (100.0 * seconds);
    if share_per_s == 0.0 {
        return Err(error(1, Problem::Zero));
    }
    if share_per_s > 1.0 {
        return Err(error(1, Problem::TooLarge));
    }
    Ok(share_per_s)
}

/// A size in bytes: `32`, `32B`, `10KB` (1,000), `16KiB` (1,024), `1MiB`. Not `10k`, which is 10,000 for some and 10,240 for
/// others. A fraction of a byte that a unit leaves, as in `0.1GiB`, is dropped.
///
/// # Errors
/// The text is not a number of bytes.
pub fn bytes(text: &str) -> Result<u64, QuantityError> {
    let text = text.trim();
    let error = refusal(text, BYTES);
    let (value, rest) = number(text).ok_or_else(|| error(1, Problem::NoNumber))?;
    let factor = match rest.to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "kib" => 1024.0,
        "mib" => 1024.0 * 1024.0,
        "gib" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(error(column_of(text, rest), Problem::UnknownUnit)),
    };
    let bytes = value * factor;
    let bytes = if factor > 1.0 { bytes.floor() } else { bytes };
    whole(bytes).map_err(|problem| error(1, problem))
}

/// A duration: `250ms`, `10s`, `5m`, `1h30m`. A number alone is refused, because nobody knows its unit; only `0` needs none.
///
/// # Errors
/// A number or a unit is missing or unknown.
pub fn duration(text: &str) -> Result<Duration, QuantityError> {
    let text = text.trim();
    let error = refusal(text, DURATION);
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = text;
    let mut seconds = 0.0;
    loop {
        let column = column_of(text, rest);
        let (value, after) = number(rest).ok_or_else(|| error(column, Problem::NoNumber))?;
        let unit_len = after
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(after.len());
        let (unit, tail) = after.split_at(unit_len);
        let factor = match unit.trim_end().to_ascii_lowercase().as_str() {
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            "" => return Err(error(column_of(text, after), Problem::NoUnit)),
            _ => return Err(error(column_of(text, after), Problem::UnknownUnit)),
        };
        seconds += value * factor;
        rest = tail;
        if rest.is_empty() {
            break;
        }
    }
    if seconds > 1e9 {
        return Err(error(1, Problem::TooLarge));
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// What says where `text` went wrong, and how it should be written.
fn refusal(text: &str, expected: &'static str) -> impl Fn(usize, Problem) -> QuantityError {
    move |column, problem| QuantityError {
        text: text.to_owned(),
        column,
        problem,
        expected,
    }
}

/// Splits a leading decimal number and the blanks behind it off.
fn number(text: &str) -> Option<(f64, &str)> {
    let mut length = 0;
    while let Some(&byte) = text.as_bytes().get(length) {
        let after = &text.as_bytes()[length + 1..];
        // Not every comma: `1,5s` is one and a half to half of the world.
        let groups = byte == b',' && !text[..length].contains('.') && is_group(after);
        if !(byte.is_ascii_digit() || matches!(byte, b'.' | b'_') || groups) {
            break;
        }
        length += 1;
    }
    let (digits, rest) = text.split_at(length);
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let value = digits.replace(['_', ','], "").parse().ok()?;
    Some((value, rest.trim_start()))
}

/// Three digits and no fourth.
fn is_group(after: &[u8]) -> bool {
    after
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count()
        == 3
}

fn decimal_factor(suffix: &str) -> Option<f64> {
    match suffix.to_ascii_lowercase().as_str() {
        "" => Some(1.0),
        "k" => Some(1e3),
        "m" => Some(1e6),
        "g" => Some(1e9),
        _ => None,
    }
}

fn column_of(text: &str, rest: &str) -> usize {
    let start = text.len() - rest.len();
    text[..start].chars().count() + 1
}

/// A finite float as a whole number, exactly.
fn whole(value: f64) -> Result<u64, Problem> {
    if value > VALUE_MAX {
        return Err(Problem::TooLarge);
    }
    // `0.29 * 100` style products miss their integer by one part in 2^52; anything further off was a real fraction.
    let rounded = value.round();
    if (value - rounded).abs() > 1e-6 {
        return Err(Problem::NotWhole);
    }
    Ok(truncate(rounded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_take_suffixes_and_stay_exact() {
        assert_eq!(count("250"), Ok(250));
        assert_eq!(count("50k"), Ok(50_000));
        assert_eq!(count("1m"), Ok(1_000_000));
        assert_eq!(count("1.5m"), Ok(1_500_000));
        assert_eq!(count("1_000_000"), Ok(1_000_000));
        assert_eq!(count("0.3k"), Ok(300));
    }

    #[test]
    fn blanks_case_and_groups_of_digits_do_not_matter() {
        assert_eq!(count(" 1,000_000 "), Ok(1_000_000));
        assert_eq!(count("1,250 K"), Ok(1_250_000));
        assert_eq!(duration("250MS"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("1h 30 m"), Ok(Duration::from_secs(5400)));
        assert_eq!(bytes("64 kib"), Ok(64 << 10));
        // A comma that may be meant as a point is neither.
        for (text, column) in [("1,5s", 2), ("1,0000s", 2), ("1.5,000s", 4)] {
            let error = duration(text).unwrap_err();
            assert_eq!(
                (error.column, error.problem),
                (column, Problem::UnknownUnit)
            );
        }
    }

    #[test]
    fn a_bad_count_says_where() {
        let error = count("10x").unwrap_err();
        assert_eq!((error.column, error.problem), (3, Problem::UnknownUnit));
        assert_eq!(count("").unwrap_err().problem, Problem::NoNumber);
        assert_eq!(count("-1").unwrap_err().problem, Problem::NoNumber);
        assert_eq!(count("0.5").unwrap_err().problem, Problem::NotWhole);
        assert_eq!(count("99999999g").unwrap_err().problem, Problem::TooLarge);
        assert_eq!(
            error.to_string(),
            "`10x`: unknown unit at column 3; write a count such as 250, 50k or 1m"
        );
    }

    #[test]
    fn durations_need_a_unit_and_add_up() {
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        assert_eq!(duration("10").unwrap_err().problem, Problem::NoUnit);
        assert_eq!(duration("1h30").unwrap_err().column, 5);
        assert_eq!(duration("5 x").unwrap_err().column, 3);
    }

    #[test]
    fn sizes_know_both_kinds_of_kilo() {
        assert_eq!(bytes("32"), Ok(32));
        assert_eq!(bytes("1MiB"), Ok(1 << 20));
        assert_eq!(bytes("10KB"), Ok(10_000));
        assert_eq!(bytes("0.1GiB"), Ok(107_374_182));
        assert_eq!(bytes("0.5").unwrap_err().problem, Problem::NotWhole);
        assert_eq!(
            bytes("99999999999GiB").unwrap_err().problem,
            Problem::TooLarge
        );
        assert_eq!(bytes("1TiB").unwrap_err().problem, Problem::UnknownUnit);
        assert_eq!(bytes("64k").unwrap_err().problem, Problem::UnknownUnit);
    }

    #[test]
    fn shares_need_their_percent_sign_and_their_time() {
        assert_eq!(share_rate("6%/m"), Ok(0.001));
        assert_eq!(share_rate("100%/s"), Ok(1.0));
        assert_eq!(share_rate("36%/h"), Ok(0.0001));
        let problem = |text: &str| {
            let error = share_rate(text).unwrap_err();
            (error.column, error.problem)
        };
        assert_eq!(problem("1/m"), (2, Problem::NoPercent));
        assert_eq!(problem("1"), (2, Problem::NoPercent));
        assert_eq!(problem("1%"), (3, Problem::NoUnit));
        assert_eq!(problem("1%/d"), (3, Problem::UnknownUnit));
        assert_eq!(problem("0%/m"), (1, Problem::Zero));
        assert_eq!(problem("101%/s"), (1, Problem::TooLarge));
        assert_eq!(problem("%/m"), (1, Problem::NoNumber));
        assert_eq!(problem("-1%/m"), (1, Problem::NoNumber));
    }

    #[test]
    fn rates_are_per_second_with_or_without_saying_so() {
        assert_eq!(rate("50k"), Ok(50_000.0));
        assert_eq!(rate("50k/s"), Ok(50_000.0));
        assert_eq!(rate("0.5"), Ok(0.5));
        assert_eq!(rate("0").unwrap_err().problem, Problem::Zero);
    }

    #[test]
    fn shares_are_percent() {
        assert_eq!(share("0.1%"), Ok(0.001));
        assert_eq!(share("100%"), Ok(1.0));
        assert_eq!(share("0"), Ok(0.0));
        let problem = |text: &str| share(text).unwrap_err().problem;
        assert_eq!(problem("0.1"), Problem::NoPercent);
        assert_eq!(problem("101%"), Problem::TooLarge);
        assert_eq!(problem("5%/s"), Problem::UnknownUnit);
        for text in ["", "-1%", "NaN%", "inf%", "%"] {
            assert_eq!(problem(text), Problem::NoNumber, "{text}");
        }
    }

    #[test]
    fn bandwidths_are_decimal_and_say_bit() {
        assert_eq!(bandwidth("10gbit"), Ok(10_000_000_000));
        assert_eq!(bandwidth("1.5 Mbit"), Ok(1_500_000));
        let problem = |text: &str| {
            let error = bandwidth(text).unwrap_err();
            (error.column, error.problem)
        };
        assert_eq!(problem("10"), (3, Problem::NoUnit));
        assert_eq!(problem("10g"), (3, Problem::UnknownUnit));
        assert_eq!(problem("10bit"), (3, Problem::UnknownUnit));
        assert_eq!(problem("0gbit"), (1, Problem::Zero));
        assert_eq!(problem("0.0001kbit"), (1, Problem::NotWhole));
        assert_eq!(problem("gbit"), (1, Problem::NoNumber));
    }
}
