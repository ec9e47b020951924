//! Times as RFC 3339 writes them.

/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;

/// Reads a time (RFC 3339, section 5.6) as milliseconds since 1970, UTC. Digits behind the third of a second's fraction are
/// dropped. None if the text is no time, or one before 1970.
#[must_use]
pub fn parse_timestamp(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    if !text.is_ascii() || bytes.len() < 20 || bytes[4] != b'-' || bytes[7] != b'-' {
        return None;
    }
    let has_time =
        matches!(bytes[10], b'T' | b't' | b' ') && bytes[13] == b':' && bytes[16] == b':';
    let (year, month, day) = (
        number(&text[..4])?,
        number(&text[5..7])?,
        number(&text[8..10])?,
    );
    let (hour, minute, second) = (
        number(&text[11..13])?,
        number(&text[14..16])?,
        number(&text[17..19])?,
    );
    let is_day = (1..=12).contains(&month) && day >= 1 && day <= days_of_month(year, month);
    // A leap second is the last of its minute.
    if !has_time || !is_day || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let (fraction_ms, zone) = fraction(&text[19..])?;
    let offset_minutes = zone_minutes(zone)?;
    let minutes = hour * 60 + minute - offset_minutes;
    let ms = days_since_1970(year, month, day) * DAY_MS
        + (minutes * 60 + second.min(59)) * 1000
        + fraction_ms;
    u64::try_from(ms).ok()
}

/// Writes milliseconds since 1970 as a time in UTC.
#[must_use]
pub fn timestamp(ms: u64) -> String {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    let (year, month, day) = date(ms.div_euclid(DAY_MS));
    let of_day = ms.rem_euclid(DAY_MS);
    let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (second, milli) = (of_day / 1000 % 60, of_day % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// A number of digits alone.
fn number(digits: &str) -> Option<i64> {
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

/// The milliseconds of a fraction, if there is one, and what follows.
fn fraction(text: &str) -> Option<(i64, &str)> {
    let Some(rest) = text.strip_prefix('.') else {
        return Some((0, text));
    };
    let end = rest.find(|letter: char| !letter.is_ascii_digit())?;
    if end == 0 {
        return None;
    }
    let padded = format!("{:0<3}", &rest[..end]);
    Some((number(&padded[..3])?, &rest[end..]))
}

/// The minutes that a zone is ahead of UTC.
fn zone_minutes(zone: &str) -> Option<i64> {
    if zone == "Z" || zone == "z" {
        return Some(0);
    }
    let sign = match zone.as_bytes() {
        [b'+', _, _, b':', _, _] => 1,
        [b'-', _, _, b':', _, _] => -1,
        _ => return None,
    };
    let (hours, minutes) = (number(&zone[1..3])?, number(&zone[4..6])?);
    (hours <= 23 && minutes <= 59).then_some(sign * (hours * 60 + minutes))
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_of_month(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap(year) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days before a year, counted from the year 0.
fn days_before(year: i64) -> i64 {
    let last = year - 1;
    365 * year + last.div_euclid(4) - last.div_euclid(100) + last.div_euclid(400)
}

fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let months: i64 = (1..month).map(|month| days_of_month(year, month)).sum();
    days_before(year) - days_before(1970) + months + day - 1
}

/// Year, month and day of a day since 1970.
fn date(days: i64) -> (i64, i64, i64) {
    // The average year has 365.2425 days; a year more or less is put right.
    let mut year = 1970 + days * 10_000 / 3_652_425;
    while days_since_1970(year + 1, 1, 1) <= days {
        year += 1;
    }
    while days_since_1970(year, 1, 1) > days {
        year -= 1;
    }
    let mut rest = days - days_since_1970(year, 1, 1);
    let mut month = 1;
    while rest >= days_of_month(year, month) {
        rest -= days_of_month(year, month);
        month += 1;
    }
    (year, month, rest + 1)
}

#[cfg(test)]
mod tests {
    use super::{parse_timestamp, timestamp};
    use proptest::prelude::*;

    #[test]
    fn times_of_the_rfc_are_read() {
        for (text, ms) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1985-04-12T23:20:50.52Z", 482_196_050_520),
            ("1996-12-19T16:39:57-08:00", 851_042_397_000),
            ("1990-12-31T23:59:60Z", 662_687_999_000),
            ("2000-02-29T12:00:00+12:00", 951_782_400_000),
            ("2024-03-01t00:00:00z", 1_709_251_200_000),
            ("2024-03-01T00:00:00.1239Z", 1_709_251_200_123),
        ] {
            assert_eq!(parse_timestamp(text), Some(ms), "{text}");
        }
    }

    #[test]
    fn other_text_is_no_time() {
        for text in [
            "",
            "not-a-timestamp",
            "2024-02-30T00:00:00Z",
            "2023-02-29T00:00:00Z",
            "2024-13-01T00:00:00Z",
            "2024-01-01T24:00:00Z",
            "2024-01-01T00:60:00Z",
            "2024-01-01T00:00:00",
            "2024-01-01T00:00:00.Z",
            "2024-01-01T00:00:00.5",
            "2024-01-01T00:00:00+0100",
            "2024-01-01T00:00:00+24:00",
            "2024-01-01T00:00:00Zx",
            "+024-01-01T00:00:00Z",
            "1969-12-31T23:59:59Z",
            "2024-01-01T00:00:0éZ",
        ] {
            assert_eq!(parse_timestamp(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(ms in 0..253_402_300_800_000_u64) {
            prop_assert_eq!(parse_timestamp(&timestamp(ms)), Some(ms));
        }

        #[test]
        fn nothing_breaks_it(text in "[0-9TZ:.+ -]{0,32}") {
            let _ = parse_timestamp(&text);
        }
    }
}
