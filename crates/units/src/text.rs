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

/// A count and its noun: `1 connection`, `2,000 connections`.
///
/// The plural of a noun that ends in s, x, o, ch or sh gets `es`; a consonant and `y` become `ies`.
#[must_use]
pub fn counted(value: u64, noun: &str) -> String {
    if value == 1 {
        return format!("1 {noun}");
    }
    let number = count(value);
    if ["s", "x", "o", "ch", "sh"]
        .iter()
        .any(|end| noun.ends_with(end))
    {
        return format!("{number} {noun}es");
    }
    match noun.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'i', 'o', 'u']) => format!("{number} {stem}ies"),
        _ => format!("{number} {noun}s"),
    }
}

/// Bytes with a binary prefix and three significant digits: `128 B`, `7.17 KiB`, `64 KiB`, `23.5 GiB`.
///
/// Whole multiples of a unit have no decimals, because most are settings.
#[must_use]
pub fn bytes(value: u64) -> String {
    const STEPS: [(&str, u32); 5] = [
        ("PiB", 50),
        ("TiB", 40),
        ("GiB", 30),
        ("MiB", 20),
        ("KiB", 10),
    ];
    for (name, shift) in STEPS {
        let step = 1_u64 << shift;
        // From here on the smaller unit would be rounded to 1,024.
        let shows_as_one = step - (step >> 11);
        if value >= step && value.is_multiple_of(step) {
            return format!("{} {name}", count(value >> shift));
        }
        if value >= shows_as_one {
            return format!("{} {name}", digits(ratio(value, step)));
        }
    }
    format!("{} B", count(value))
}

/// Milliseconds as a time with three significant digits: `250 µs`, `23.1 ms`, `6.21 s`; infinity is `never`.
#[must_use]
pub fn time(millis: f64) -> String {
    match millis {
        f64::INFINITY => "never".to_owned(),
        0.0 => "0 ms".to_owned(),
        ms if ms < 0.000_999_5 => format!("{} µs", digits(ms * 1_000.0)),
        ms if ms < 0.9995 => format!("{:.0} µs", ms * 1_000.0),
        ms if ms < 999.5 => format!("{} ms", digits(ms)),
        ms => format!("{} s", digits(ms / 1_000.0)),
    }
}

/// A time that may be absent.
#[must_use]
pub fn time_or_dash(millis: Option<f64>) -> String {
    millis.map_or_else(|| "-".to_owned(), time)
}

/// A rate per second: `0.25/s`, `2.5/s`, `24,012/s`. At most two decimals below ten, whole from ten on.
#[must_use]
pub fn rate(per_second: f64) -> String {
    if per_second < 9.995 {
        format!("{}/s", trimmed(format!("{per_second:.2}")))
    } else {
        format!("{}/s", count(whole(per_second)))
    }
}

/// Bits a second with a decimal prefix: `10 Gbit/s`.
#[must_use]
pub fn bits_per_second(value: f64) -> String {
    for (name, step) in [
        ("Tbit/s", 1e12),
        ("Gbit/s", 1e9),
        ("Mbit/s", 1e6),
        ("kbit/s", 1e3),
    ] {
        if value >= step {
            return format!("{} {name}", significant(value / step));
        }
    }
    format!("{} bit/s", significant(value))
}

/// Cores kept busy: `0.394 cores`, `1 core`.
#[must_use]
pub fn cores(value: f64) -> String {
    match significant(value) {
        one if one == "1" => "1 core".to_owned(),
        several => format!("{several} cores"),
    }
}

/// A share as a percentage that is `100.00%` only when it is everything.
#[must_use]
pub fn percent(share: f64) -> String {
    let text = format!("{:.2}%", share * 100.0);
    if share < 1.0 && text == "100.00%" {
        "99.99%".to_owned()
    } else {
        text
    }
}

/// A share, of processors for example, as a whole percentage.
#[must_use]
pub fn share(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// Three significant digits, without zeros at the end: `0.0394`, `12.3`, `1,235`.
#[must_use]
pub fn significant(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    // Values here lie between a millionth and some billions.
    let decimals = (0..9_u8)
        .find(|decimals| value * 10_f64.powi(i32::from(*decimals)) >= 99.95)
        .unwrap_or(9);
    if decimals == 0 {
        return count(whole(value));
    }
    trimmed(format!("{value:.*}", usize::from(decimals)))
}

/// Without the zeros at the end of a fraction.
fn trimmed(number: String) -> String {
    if number.contains('.') {
        number
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned()
    } else {
        number
    }
}

/// The number with three significant digits, at least its whole part and at most two decimals.
fn digits(value: f64) -> String {
    if value >= 99.95 {
        count(whole(value))
    } else if value >= 9.995 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "shown with three digits; an f64 holds fifteen"
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
    fn only_one_is_singular() {
        let shown = [0, 1, 2, 10_000].map(|value| counted(value, "connection"));
        assert_eq!(
            shown,
            [
                "0 connections",
                "1 connection",
                "2 connections",
                "10,000 connections"
            ]
        );
        let nouns = ["push", "address", "retry", "relay", "echo"].map(|noun| counted(2, noun));
        assert_eq!(
            nouns,
            [
                "2 pushes",
                "2 addresses",
                "2 retries",
                "2 relays",
                "2 echoes"
            ]
        );
    }

    #[test]
    fn bytes_have_three_digits_and_powers_of_two() {
        let shown: Vec<String> = [
            0,
            128,
            1_023,
            1_024,
            7_340,
            65_536,
            1_048_000,
            1_048_575,
            26_214_400,
            6_614_000_000,
            24 << 30,
            1 << 50,
        ]
        .map(bytes)
        .into();
        assert_eq!(
            shown,
            [
                "0 B",
                "128 B",
                "1,023 B",
                "1 KiB",
                "7.17 KiB",
                "64 KiB",
                "1,023 KiB",
                "1.00 MiB",
                "25 MiB",
                "6.16 GiB",
                "24 GiB",
                "1 PiB"
            ]
        );
    }

    #[test]
    fn figures_become_whole_and_never_negative() {
        assert_eq!([whole(2.5), whole(2.4), whole(-7.0)], [3, 2, 0]);
        assert_eq!([truncate(2.9), truncate(-0.5)], [2, 0]);
    }

    #[test]
    fn times_have_the_unit_that_suits_them() {
        let shown: Vec<String> = [
            0.0,
            0.000_2,
            0.25,
            0.999_6,
            1.5,
            23.08,
            99.96,
            999.4,
            999.6,
            6_214.0,
            120_000.0,
            f64::INFINITY,
        ]
        .map(time)
        .into();
        assert_eq!(
            shown,
            [
                "0 ms", "0.20 µs", "250 µs", "1.00 ms", "1.50 ms", "23.1 ms", "100 ms", "999 ms",
                "1.00 s", "6.21 s", "120 s", "never"
            ]
        );
        assert_eq!(time_or_dash(None), "-");
    }

    #[test]
    fn rates_have_digits_that_say_something() {
        let shown = [0.0, 0.25, 0.5, 2.0, 9.999, 49_999.6].map(rate);
        assert_eq!(shown, ["0/s", "0.25/s", "0.5/s", "2/s", "10/s", "50,000/s"]);
        let shown = [10e9, 1_234.5, 12.0].map(bits_per_second);
        assert_eq!(shown, ["10 Gbit/s", "1.23 kbit/s", "12 bit/s"]);
        assert_eq!([1.0, 0.394].map(cores), ["1 core", "0.394 cores"]);
    }

    #[test]
    fn significant_digits_end_without_zeros() {
        let shown = [0.0, 0.001, 0.03941, 0.5, 2.0, 12.345, 99.96, 1_234.5].map(significant);
        assert_eq!(
            shown,
            ["0", "0.001", "0.0394", "0.5", "2", "12.3", "100", "1,235"]
        );
    }

    #[test]
    fn one_lost_in_a_million_is_not_everything() {
        assert_eq!(percent(1.0), "100.00%");
        assert_eq!(percent(0.999_999), "99.99%");
        assert_eq!(share(0.876), "88%");
    }
}
