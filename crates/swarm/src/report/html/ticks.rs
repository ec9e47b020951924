//! Labels of axes: short, where figures in tables have their digits.

use crate::report::text;

/// Seconds since the start: `0`, `30 s`, `5 min`, `2 h`.
pub(crate) fn elapsed(seconds: f64) -> String {
    let (value, unit) = match seconds {
        0.0 => return "0".to_owned(),
        s if s < 1.0 => (s * 1000.0, "ms"),
        s if s < 120.0 => (s, "s"),
        s if s < 7_200.0 => (s / 60.0, "min"),
        s => (s / 3_600.0, "h"),
    };
    format!("{} {unit}", myriad_units::significant(value))
}

/// A time in milliseconds: `100 µs`, `10 ms`, `2 s`.
pub(super) fn time(millis: f64) -> String {
    let (value, unit) = match millis {
        0.0 => return "0".to_owned(),
        ms if ms < 0.9995 => (ms * 1000.0, "µs"),
        ms if ms < 999.5 => (ms, "ms"),
        ms => (ms / 1000.0, "s"),
    };
    format!("{} {unit}", myriad_units::significant(value))
}

/// A share: `80%`.
pub(super) fn share(share: f64) -> String {
    text::share(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_short() {
        assert_eq!(
            [0.0, 0.5, 30.0, 300.0, 7_200.0].map(elapsed),
            ["0", "500 ms", "30 s", "5 min", "2 h"]
        );
        assert_eq!(
            [0.1, 10.0, 2_000.0, 0.0].map(time),
            ["100 µs", "10 ms", "2 s", "0"]
        );
        assert_eq!(share(0.8), "80%");
    }
}
