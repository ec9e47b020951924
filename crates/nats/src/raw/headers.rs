//! The headers of a message.

use async_nats::{HeaderMap, HeaderName, HeaderValue};
use std::borrow::Cow;

/// What stands around a value. Unicode spaces belong to it.
const BLANK: [char; 2] = [' ', '\t'];

/// Parses a block of headers: `NATS/1.0`, lines of a name and a value, all ended by CR LF, and an empty line.
///
/// None if it is no such block, or has a status. Lines end at CR LF only, never at a Unicode space. In all else the rules are those of
/// async-nats, because a node that reads the same message by that library must find the same headers: names are told apart by case,
/// empty lines are passed over, and a line that begins with a blank belongs to the value before it.
#[must_use]
pub fn parse_headers(block: &[u8]) -> Option<HeaderMap> {
    let text = std::str::from_utf8(block).ok()?;
    let mut lines = text.split("\r\n");
    let status = lines.next()?.strip_prefix("NATS/1.0")?;
    if !status.trim_matches(BLANK).is_empty() {
        return None;
    }
    let mut headers = HeaderMap::new();
    let mut lines = lines.filter(|line| !line.is_empty()).peekable();
    while let Some(line) = lines.next() {
        let (name, value) = line.split_once(':')?;
        let name: HeaderName = name.parse().ok()?;
        let mut value = Cow::from(value.trim_start_matches(BLANK));
        while let Some(more) = lines.next_if(|line| line.starts_with(BLANK)) {
            value.to_mut().push_str(more);
        }
        let value: HeaderValue = value.trim_end_matches(BLANK).parse().ok()?;
        headers.append(name, value);
    }
    Some(headers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use async_nats::header::{NATS_SEQUENCE, NATS_SUBJECT};

    fn parse(block: &str) -> Option<HeaderMap> {
        parse_headers(block.as_bytes())
    }

    fn value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
        headers.get(name).map(HeaderValue::as_str)
    }

    #[test]
    fn names_and_values() {
        let headers = parse(
            "NATS/1.0\r\nNats-Subject: my.h.a\r\nNats-Sequence:7\r\nA: b: c \t\r\na:\r\nA: d\r\n\r\n",
        );
        let headers = headers.unwrap();
        assert_eq!(headers.get(NATS_SUBJECT).unwrap().as_str(), "my.h.a");
        assert_eq!(headers.get(NATS_SEQUENCE).unwrap().as_str(), "7");
        let both: Vec<_> = headers.get_all("A").map(HeaderValue::as_str).collect();
        assert_eq!(both, ["b: c", "d"]);
        assert_eq!(value(&headers, "a"), Some(""));
        assert_eq!(value(&headers, "nats-subject"), None);
        assert_eq!(headers.len(), 4);
    }

    #[test]
    fn unicode_spaces_are_kept() {
        for space in [
            '\u{3000}', '\u{a0}', '\u{2028}', '\u{85}', '\u{b}', '\u{c}', '\u{1}',
        ] {
            let written = format!("{space}a{space}b{space}");
            let headers = parse(&format!("NATS/1.0\r\nNats-Subject: {written}\r\n\r\n")).unwrap();
            assert_eq!(value(&headers, "Nats-Subject"), Some(&*written));
        }
    }

    #[test]
    fn blocks_with_a_status_are_none_of_headers() {
        for first in [
            "NATS/1.0 503",
            "NATS/1.0 100 Idle Heartbeat",
            "NATS/1.0503",
            "NATS/1.0\u{3000}",
        ] {
            assert_eq!(parse(&format!("{first}\r\n\r\n")), None, "{first}");
            assert_eq!(parse(&format!("{first}\r\nA: b\r\n\r\n")), None, "{first}");
        }
        assert_eq!(parse("NATS/1.0 \r\n\r\n"), Some(HeaderMap::new()));
    }

    #[test]
    fn what_is_no_block_is_none() {
        for block in [
            "",
            "A: b\r\n\r\n",
            "NATS/1.0\nA: b\n\n",
            "NATS/1.0\r\nA\r\n\r\n",
            "NATS/1.0\r\nA b: c\r\n\r\n",
            "NATS/1.0\r\n\u{3000}: c\r\n\r\n",
            "NATS/1.0\r\nA: b\nc: d\r\n\r\n",
            "NATS/1.0\r\nA: b\rc\r\n\r\n",
        ] {
            assert_eq!(parse(block), None, "{block:?}");
        }
        assert_eq!(parse_headers(b"NATS/1.0\r\nA: \xff\r\n\r\n"), None);
    }

    #[test]
    fn a_value_may_go_on_in_the_next_line() {
        let headers = parse("NATS/1.0\r\nA: b\r\n c \r\n\td \r\nE: f\r\n\r\n").unwrap();
        assert_eq!(value(&headers, "A"), Some("b c \td"));
        assert_eq!(value(&headers, "E"), Some("f"));
        assert_eq!(parse("NATS/1.0\r\n c\r\n\r\n"), None);
    }

    #[test]
    fn an_end_that_is_missing_is_no_fault() {
        for end in ["", "\r\n", "\r\n\r\n"] {
            let headers = parse(&format!("NATS/1.0\r\nA: b{end}")).unwrap();
            assert_eq!(value(&headers, "A"), Some("b"));
        }
    }
}
