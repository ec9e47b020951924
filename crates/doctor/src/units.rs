//! Figures as people read them.

/// A count with thousands separators: `1,000,000`.
#[must_use]
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes with a decimal prefix and three significant figures: `128 B`, `7.34 KB`, `6.61 GB`.
///
/// Decimal, because figures per connection are multiplied by round numbers of connections.
#[must_use]
pub fn bytes(value: u64) -> String {
    const STEPS: [(&str, u64); 4] = [
        ("TB", 1_000_000_000_000),
        ("GB", 1_000_000_000),
        ("MB", 1_000_000),
        ("KB", 1_000),
    ];
    for (name, step) in STEPS {
        if value >= step {
            return format!("{} {name}", significant(ratio(value, step)));
        }
    }
    format!("{value} B")
}

/// Milliseconds as a duration with three significant figures: `0.42 ms`, `23.1 ms`, `6.21 s`.
#[must_use]
pub fn milliseconds(value: f64) -> String {
    if value >= 1_000.0 {
        format!("{} s", significant(value / 1_000.0))
    } else {
        format!("{} ms", significant(value))
    }
}

/// The number with three significant figures, at least its whole part and at most two decimals.
fn significant(value: f64) -> String {
    if value >= 99.95 {
        format!("{value:.0}")
    } else if value >= 9.995 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "shown with three figures; an f64 holds fifteen"
)]
fn ratio(value: u64, step: u64) -> f64 {
    value as f64 / step as f64
}

/// A figure that is not negative, rounded.
#[must_use]
pub fn whole(value: f64) -> u64 {
    truncate(value.round())
}

/// The whole part of a figure that is not negative.
#[must_use]
pub fn truncate(value: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float cast saturates: negative ones become 0; the fraction is dropped on purpose"
    )]
    let whole = value as u64;
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped_by_three() {
        let shown: Vec<String> = [0, 7, 999, 1_000, 65_536, 1_000_000].map(count).into();
        assert_eq!(shown, ["0", "7", "999", "1,000", "65,536", "1,000,000"]);
    }

    #[test]
    fn bytes_have_three_figures() {
        let shown: Vec<String> = [0, 128, 999, 1_000, 7_340, 26_214_400, 6_614_000_000]
            .map(bytes)
            .into();
        assert_eq!(
            shown,
            [
                "0 B", "128 B", "999 B", "1.00 KB", "7.34 KB", "26.2 MB", "6.61 GB"
            ]
        );
    }

    #[test]
    fn figures_become_whole_and_never_negative() {
        assert_eq!([whole(2.5), whole(2.4), whole(-7.0)], [3, 2, 0]);
        assert_eq!([truncate(2.9), truncate(-0.5)], [2, 0]);
    }

    #[test]
    fn durations_switch_to_seconds_at_a_thousand() {
        let shown: Vec<String> = [0.42, 23.08, 99.96, 999.4, 1_000.0, 6_214.0]
            .map(milliseconds)
            .into();
        assert_eq!(
            shown,
            ["0.42 ms", "23.1 ms", "100 ms", "999 ms", "1.00 s", "6.21 s"]
        );
    }
}
