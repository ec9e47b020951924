//! Values as Centrifugo reads them, and as TOML of ours.
//!
//! Its parser takes a text for a number or a switch too, because variables of the environment have nothing else; so do we.

use crate::source::{Node, Value};
use crate::table::{Form, Zero};
use std::fmt::Write as _;

/// A value that its option cannot have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// What is written, as far as a message may show it.
    pub(crate) shown: String,
    /// What to do.
    pub(crate) advice: String,
}

/// A value as TOML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Literal {
    /// It.
    pub(crate) toml: String,
    /// What is different from what was written, if something is.
    pub(crate) change: Option<Change>,
}

/// How a value differs from what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It was more than we take.
    Most,
    /// It was less than we take.
    Least,
    /// Zero stood for the default, which is left out.
    Default,
    /// Zero stood for no limit, and here is the highest one.
    NoLimit,
}

impl Change {
    /// In words.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Most => "this is the most that can be written here",
            Self::Least => "this is the least that can be written here",
            Self::Default => "0 means the default there; it is left out, for the default here",
            Self::NoLimit => "0 means no limit there; this is the highest one here",
        }
    }
}

impl Literal {
    fn of(toml: impl Into<String>) -> Self {
        Self {
            toml: toml.into(),
            change: None,
        }
    }
}

/// A value in the form of its option.
pub(crate) fn literal(form: Form, node: &Node) -> Result<Literal, Refused> {
    let refused = |advice: &str| Refused {
        shown: shown(form, &node.value),
        advice: advice.to_owned(),
    };
    match form {
        Form::Flag => {
            let flag = flag(&node.value).ok_or_else(|| refused("write true or false"))?;
            Ok(Literal::of(flag.to_string()))
        }
        Form::Count { least, most, zero } => {
            let count = count(&node.value)
                .ok_or_else(|| refused("write a whole number that is not less than zero"))?;
            Ok(bounded(count, least, most, zero, |count| count.to_string()))
        }
        Form::Size { most, zero } => {
            let size = count(&node.value)
                .ok_or_else(|| refused("write a number of bytes, not less than zero"))?;
            Ok(bounded(size, 0, most, zero, |size| size.to_string()))
        }
        Form::Time { most_ms, zero } => {
            let time = time_ns(&node.value).filter(|time| *time >= 0);
            let time = time.ok_or_else(|| {
                refused("write a time such as 25s, 1m30s or 720h, not less than zero")
            })?;
            Ok(bounded(milliseconds(time), 0, most_ms, zero, |time| {
                text(&span(time))
            }))
        }
        Form::Text | Form::Secret => {
            let read = plain(&node.value).ok_or_else(|| refused("write one text"))?;
            Ok(Literal::of(text(&read)))
        }
        Form::Word(words) => {
            let read = plain(&node.value).filter(|read| words.contains(&&**read));
            let read = read.ok_or_else(|| refused(&format!("choose {}", quoted(words))))?;
            Ok(Literal::of(text(&read)))
        }
        Form::List => {
            let items = list(&node.value).ok_or_else(|| refused("write a list of texts"))?;
            Ok(Literal::of(text_list(&items)))
        }
        Form::Map => {
            let entries =
                map(&node.value).ok_or_else(|| refused("write a table of texts by name"))?;
            let entries = entries.into_iter();
            let table: toml::Table = entries
                .map(|(name, value)| (name, toml::Value::String(value)))
                .collect();
            Ok(Literal::of(toml::Value::Table(table).to_string()))
        }
        Form::Any => Ok(Literal::of(any(&node.value).to_string())),
    }
}

fn bounded(
    number: u64,
    least: u64,
    most: u64,
    zero: Zero,
    write: impl Fn(u64) -> String,
) -> Literal {
    let (number, change) = match (number, zero) {
        (0, Zero::Default) => (0, Some(Change::Default)),
        (0, Zero::NoLimit) => (most, Some(Change::NoLimit)),
        (number, _) if number > most => (most, Some(Change::Most)),
        (number, _) if number < least => (least, Some(Change::Least)),
        (number, _) => (number, None),
    };
    let toml = write(number);
    Literal { toml, change }
}

/// What a message may show of a value.
fn shown(form: Form, value: &Value) -> String {
    if form == Form::Secret {
        return "(hidden)".into();
    }
    let shown = match value {
        Value::Null => "nothing".into(),
        Value::List(_) => "a list".into(),
        Value::Table(_) => "a table".into(),
        value => plain(value).unwrap_or_default(),
    };
    let mut short: String = shown
        .chars()
        .take(60)
        .flat_map(char::escape_debug)
        .collect();
    if shown.chars().count() > 60 {
        short.push_str("...");
    }
    short
}

fn quoted(words: &[&str]) -> String {
    let words: Vec<_> = words.iter().map(|word| format!("\"{word}\"")).collect();
    words.join(", ")
}

/// A text in TOML, in one line: a comment sign before it has to hold for all of it.
pub(crate) fn text(text: &str) -> String {
    // The escapes of JSON are those of TOML, which forbids one sign more.
    let quoted = serde_json::Value::from(text).to_string();
    quoted.replace('\u{7f}', "\\u007f")
}

/// A list of texts in TOML.
pub(crate) fn text_list(items: &[String]) -> String {
    let items = items.iter().map(|item| text(item));
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

/// A switch.
pub(crate) fn flag(value: &Value) -> Option<bool> {
    match value {
        Value::Flag(flag) => Some(*flag),
        Value::Integer(number) => Some(*number != 0),
        Value::Text(text) => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
            "" | "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

fn count(value: &Value) -> Option<u64> {
    match value {
        Value::Integer(number) => u64::try_from(*number).ok(),
        Value::Float(number) if number.fract() == 0.0 => format!("{number}").parse().ok(),
        Value::Text(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// A text, also if it is written as a number or a switch.
pub(crate) fn plain(value: &Value) -> Option<String> {
    match value {
        Value::Text(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Flag(flag) => Some(flag.to_string()),
        Value::Null | Value::List(_) | Value::Table(_) => None,
    }
}

/// Texts: a list, or one text with spaces between them, or with a list in JSON.
pub(crate) fn list(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::Null => Some(Vec::new()),
        Value::List(items) => items.iter().map(|item| plain(&item.value)).collect(),
        Value::Text(text) if text.trim_start().starts_with('[') => serde_json::from_str(text).ok(),
        Value::Text(text) => Some(text.split_whitespace().map(str::to_owned).collect()),
        _ => None,
    }
}

fn map(value: &Value) -> Option<Vec<(String, String)>> {
    match value {
        Value::Null => Some(Vec::new()),
        Value::Table(entries) => {
            let entries = entries.iter();
            entries
                .map(|(name, node)| Some((name.clone(), plain(&node.value)?)))
                .collect()
        }
        Value::Text(text) if text.trim().is_empty() => Some(Vec::new()),
        Value::Text(text) => {
            let read: std::collections::BTreeMap<String, String> =
                serde_json::from_str(text).ok()?;
            Some(read.into_iter().collect())
        }
        _ => None,
    }
}

/// Any value as it is; what is not set is left out.
pub(crate) fn any(value: &Value) -> toml::Value {
    match value {
        Value::Null => toml::Value::String(String::new()),
        Value::Flag(flag) => (*flag).into(),
        Value::Integer(number) => (*number).into(),
        Value::Float(number) => (*number).into(),
        Value::Text(text) => text.clone().into(),
        Value::List(items) => {
            toml::Value::Array(items.iter().map(|item| any(&item.value)).collect())
        }
        Value::Table(entries) => {
            let set = entries.iter().filter(|(_, node)| node.value != Value::Null);
            let table = set.map(|(name, node)| (name.clone(), any(&node.value)));
            toml::Value::Table(table.collect())
        }
    }
}

/// Nanoseconds, as Centrifugo reads a time: `1h2m3.5s`, or a number of nanoseconds.
pub(crate) fn time_ns(value: &Value) -> Option<i128> {
    match value {
        Value::Integer(number) => Some((*number).into()),
        Value::Text(text) => duration_ns(text.trim()),
        _ => None,
    }
}

fn duration_ns(text: &str) -> Option<i128> {
    let (sign, mut rest) = match text.as_bytes().first()? {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut sum = 0_i128;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, behind) = rest.split_at(end);
        let unit_end = behind.find(|c: char| c.is_ascii_digit() || c == '.');
        let (unit, next) = behind.split_at(unit_end.unwrap_or(behind.len()));
        let scale: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        sum = sum.checked_add(scaled(number, scale)?)?;
        rest = next;
    }
    // What Centrifugo can keep.
    (sum <= i64::MAX.into()).then_some(sign * sum)
}

/// A decimal number times a scale.
fn scaled(number: &str, scale: i128) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || whole.len() > 19 || fraction.len() > 18 {
        return None;
    }
    let digits = |text: &str| match text {
        "" => Some(0_i128),
        text => text.parse().ok(),
    };
    let parts = 10_i128.pow(u32::try_from(fraction.len()).ok()?);
    Some(digits(whole)? * scale + digits(fraction)? * scale / parts)
}

/// Milliseconds, at least one where there was something.
fn milliseconds(time_ns: i128) -> u64 {
    let whole = time_ns.div_euclid(1_000_000) + i128::from(time_ns.rem_euclid(1_000_000) > 0);
    u64::try_from(whole).unwrap_or(u64::MAX)
}

/// A time in our units: `720h`, `1m30s`, `250ms`.
pub(crate) fn span(time_ms: u64) -> String {
    if time_ms == 0 {
        return "0".into();
    }
    let mut span = String::new();
    let mut rest = time_ms;
    for (unit, scale) in [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)] {
        let many = rest / scale;
        if many > 0 {
            let _ = write!(span, "{many}{unit}");
            rest %= scale;
        }
    }
    span
}

/// What a text of certificates or keys is.
pub(crate) enum Pem {
    /// None.
    Nothing,
    /// The text itself.
    Text(String),
    /// The path of a file with it.
    File(String),
}

impl Pem {
    /// Centrifugo looks for the text, then for the text in base64, and then takes it for a path.
    pub(crate) fn of(text: &str) -> Self {
        use base64::Engine as _;
        let trimmed = text.trim();
        if trimmed.is_empty() {
            return Self::Nothing;
        }
        if trimmed.contains("-----BEGIN ") {
            return Self::Text(text.to_owned());
        }
        let decoded = base64::engine::general_purpose::STANDARD.decode(trimmed);
        let decoded = decoded.ok().and_then(|bytes| String::from_utf8(bytes).ok());
        match decoded.filter(|text| text.contains("-----BEGIN ")) {
            Some(text) => Self::Text(text),
            None => Self::File(trimmed.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_centrifugo() {
        let ns = |text: &str| time_ns(&Value::Text(text.into()));
        let second = 1_000_000_000;
        for (text, expected) in [
            ("25s", Some(25 * second)),
            ("1m0s", Some(60 * second)),
            ("720h0m0s", Some(720 * 3600 * second)),
            ("1.5s", Some(1_500_000_000)),
            (".5s", Some(500_000_000)),
            ("100ms", Some(100_000_000)),
            ("1µs", Some(1_000)),
            ("-1s", Some(-second)),
            ("0", Some(0)),
            ("60", None),
            ("", None),
            ("s", None),
            ("1x", None),
            ("1..5s", None),
            ("9999999999h", None),
            ("99999999999999999999s", None),
        ] {
            assert_eq!(ns(text), expected, "{text}");
        }
        assert_eq!(time_ns(&Value::Integer(25 * 1_000_000_000)), ns("25s"));
        for (ms, expected) in [
            (0, "0"),
            (250, "250ms"),
            (90_000, "1m30s"),
            (3_600_000, "1h"),
            (1_500, "1s500ms"),
        ] {
            assert_eq!(span(ms), expected);
        }
        assert_eq!(milliseconds(1), 1);
    }

    fn made(value: Value) -> Node {
        Node::made(value)
    }

    #[test]
    fn bounds_change_a_value_and_say_so() {
        let form = |zero| Form::Count {
            least: 1,
            most: 255,
            zero,
        };
        let read = |form, number| literal(form, &made(Value::Integer(number))).unwrap();
        for (zero, number, toml, change) in [
            (Zero::Default, 7, "7", None),
            (Zero::Default, 1000, "255", Some(Change::Most)),
            (Zero::Default, 0, "0", Some(Change::Default)),
            (Zero::NoLimit, 0, "255", Some(Change::NoLimit)),
            (Zero::Zero, 0, "1", Some(Change::Least)),
        ] {
            let found = read(form(zero), number);
            assert_eq!((&*found.toml, found.change), (toml, change));
        }
    }

    #[test]
    fn texts_are_one_line_of_toml() {
        for original in ["a\nb\"\\", "\u{7f}\u{1}\u{1f600}'''x", "-----BEGIN\n"] {
            let written = text(original);
            assert!(!written.contains(['\n', '\u{7f}']), "{written}");
            let read: toml::Table = toml::from_str(&format!("a = {written}")).unwrap();
            assert_eq!(read["a"].as_str(), Some(original));
        }
    }

    #[test]
    fn wrong_types_are_refused_and_secrets_are_not_shown() {
        let table = || made(Value::Table(vec![("a".into(), made(Value::Flag(true)))]));
        let forms = [
            Form::Flag,
            crate::table::Scope::Top
                .row("client.channel_limit")
                .unwrap()
                .form,
            crate::table::Scope::Top
                .row("client.ping_interval")
                .unwrap()
                .form,
            Form::Size {
                most: 9,
                zero: Zero::Zero,
            },
            Form::Text,
            Form::Word(&["a"]),
            Form::List,
            Form::Map,
        ];
        for form in forms {
            let node = match form {
                Form::Map => made(Value::List(Vec::new())),
                _ => table(),
            };
            assert!(literal(form, &node).is_err(), "{form:?}");
        }
        let refused = literal(Form::Secret, &table()).unwrap_err();
        assert_eq!(refused.shown, "(hidden)");
        let long = made(Value::Text("x".repeat(1 << 20)));
        let refused = literal(Form::Flag, &long).unwrap_err();
        assert!(refused.shown.len() < 80);
    }

    #[test]
    fn texts_are_numbers_and_lists_too() {
        let read =
            |form, text: &str| literal(form, &made(Value::Text(text.into()))).map(|read| read.toml);
        let list = Form::List;
        assert_eq!(read(list, "a b"), Ok("[\"a\", \"b\"]".into()));
        assert_eq!(
            read(list, "[\"a\", \"b c\"]"),
            Ok("[\"a\", \"b c\"]".into())
        );
        assert_eq!(read(Form::Flag, "true"), Ok("true".into()));
        assert_eq!(
            read(Form::Map, "{\"A\": \"b\"}"),
            Ok("{ A = \"b\" }".into())
        );
        assert!(read(Form::Map, "A").is_err());
        assert!(read(list, "[1").is_err());
    }
}
