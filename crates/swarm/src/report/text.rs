//! Figures for people, as every command writes them, and lines of them.

use myriad_report::Unit;
use myriad_units::whole;
pub(crate) use myriad_units::{count, counted, percent, rate, share, time, time_or_dash};

/// A figure in its unit. What is not finite is a time of something that never came.
pub(crate) fn figure(value: f64, unit: Unit) -> String {
    if !value.is_finite() {
        return "never".to_owned();
    }
    match unit {
        Unit::Milliseconds => time(value),
        Unit::Count => count(whole(value)),
        Unit::PerSecond => rate(value),
        Unit::Ratio => percent(value),
    }
}

/// Microseconds with three significant digits: a message takes few of them.
pub(crate) fn micros(value: f64) -> String {
    format!("{} µs", myriad_units::significant(value))
}

/// `a`, `a and b`, `a, b and c`; none of nothing.
pub(crate) fn listed(items: &[String]) -> Option<String> {
    match items {
        [] => None,
        [one] => Some(one.clone()),
        [before @ .., last] => Some(format!("{} and {last}", before.join(", "))),
    }
}

/// A size in bytes that was worked out as a mean.
pub(crate) fn bytes(value: f64) -> String {
    myriad_units::bytes(whole(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_rounded_and_says_when_it_never_came() {
        assert_eq!(figure(1_999.6, Unit::Count), "2,000");
        assert_eq!(figure(23.12, Unit::Milliseconds), "23.1 ms");
        assert_eq!(figure(0.5, Unit::Ratio), "50.00%");
        assert_eq!(figure(24_012.0, Unit::PerSecond), "24,012/s");
        assert_eq!(
            (micros(3.214), micros(123.4)),
            ("3.21 µs".to_owned(), "123 µs".to_owned())
        );
        for unit in [Unit::Count, Unit::Milliseconds, Unit::PerSecond] {
            assert_eq!(figure(f64::INFINITY, unit), "never");
        }
    }
}
