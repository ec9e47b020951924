//! Figures for people: `1,000,000`, `12.3 ms`, `46 B`.

use myriad_doctor::units::truncate;

/// A count with its digits in groups of three.
pub(crate) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A count and what is counted: `1 connection`, `2 connections`.
pub(crate) fn counted(value: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(value), if value == 1 { one } else { many })
}

/// `a`, `a and b`, `a, b and c`; none of nothing.
pub(crate) fn listed(items: &[String]) -> Option<String> {
    match items {
        [] => None,
        [one] => Some(one.clone()),
        [before @ .., last] => Some(format!("{} and {last}", before.join(", "))),
    }
}

/// Text in lines of at most `columns`, broken between words; a word that is longer stands alone.
pub(crate) fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            // Of several blanks those at the end of a line are dropped.
            Some(_) if word.is_empty() => {}
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A rate per second: whole from ten on.
pub(crate) fn rate(per_second: f64) -> String {
    if per_second < 10.0 {
        format!("{per_second:.1}/s")
    } else {
        format!("{}/s", count(truncate(per_second.round())))
    }
}

/// A time given in milliseconds, in the unit that suits it.
pub(crate) fn time(millis: f64) -> String {
    match millis {
        f64::INFINITY => "never".to_owned(),
        ms if ms < 0.9995 => format!("{:.0} us", ms * 1000.0),
        ms if ms < 9.995 => format!("{ms:.2} ms"),
        ms if ms < 99.95 => format!("{ms:.1} ms"),
        ms if ms < 999.5 => format!("{ms:.0} ms"),
        ms if ms < 99_950.0 => format!("{:.2} s", ms / 1000.0),
        ms => format!("{:.0} s", ms / 1000.0),
    }
}

/// A time that may be absent.
pub(crate) fn time_or_dash(millis: Option<f64>) -> String {
    millis.map_or_else(|| "-".to_owned(), time)
}

/// A share as a percentage that never rounds up to a whole it is not.
pub(crate) fn percent(share: f64) -> String {
    let text = format!("{:.2}%", share * 100.0);
    if share < 1.0 && text == "100.00%" {
        "99.99%".to_owned()
    } else {
        text
    }
}

/// A share of processors, as a whole percentage.
pub(crate) fn share(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// A size in bytes.
pub(crate) fn bytes(value: f64) -> String {
    const KIB: f64 = 1024.0;
    match value {
        v if v < 10.0 * KIB => format!("{} B", count(truncate(v.round()))),
        v if v < 10.0 * KIB * KIB => format!("{:.0} KiB", v / KIB),
        v if v < 10.0 * KIB * KIB * KIB => format!("{:.0} MiB", v / KIB / KIB),
        v => format!("{:.1} GiB", v / KIB / KIB / KIB),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_as_people_write_them() {
        assert_eq!(
            [count(0), count(999), count(1000), count(1_234_567)],
            ["0", "999", "1,000", "1,234,567"]
        );
        assert_eq!([rate(0.25), rate(49_999.6)], ["0.2/s", "50,000/s"]);
        assert_eq!(
            [
                time(0.25),
                time(1.5),
                time(12.34),
                time(999.4),
                time(4700.0)
            ],
            ["250 us", "1.50 ms", "12.3 ms", "999 ms", "4.70 s"]
        );
        let sizes = [bytes(46.2), bytes(5_898.0), bytes(20_480.0)];
        assert_eq!(sizes, ["46 B", "5,898 B", "20 KiB"]);
    }

    #[test]
    fn one_is_no_plural() {
        let connections = |value| counted(value, "connection", "connections");
        assert_eq!(
            [connections(0), connections(1), connections(1_000)],
            ["0 connections", "1 connection", "1,000 connections"]
        );
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrapped("one two  three", 9), ["one two ", "three"]);
        assert_eq!(wrapped("longer than five", 5), ["longer", "than", "five"]);
        assert_eq!(wrapped("", 5), [""]);
    }

    #[test]
    fn one_lost_in_a_million_is_not_everything() {
        assert_eq!(percent(1.0), "100.00%");
        assert_eq!(percent(0.999_999), "99.99%");
    }
}
