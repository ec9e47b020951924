//! The headers of a message.

use std::fmt::Write as _;

/// What stands around a value. Unicode spaces belong to it.
const BLANK: [char; 2] = [' ', '\t'];
const LINE_END: &str = "\r\n";

/// The headers of a message, in their order. Names are told apart by case.
///
/// They are one text, which is searched: a message has few.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    /// A line for each, with LF between them: its name, a colon, its value with blanks around it.
    lines: Box<str>,
}

impl Headers {
    /// Parses a block of headers: `NATS/1.0`, lines of a name and a value, all ended by CR LF, and an empty line.
    ///
    /// None if it is no such block, or has a status. Lines end at CR LF only, never at a Unicode space. As in
    /// async-nats, by which publications without history are read, empty lines are passed over, and a line that begins with a blank belongs to
    /// the value before it.
    #[must_use]
    pub fn parse(block: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(block).ok()?;
        let (first, rest) = text.split_once(LINE_END).unwrap_or((text, ""));
        let status = first.strip_prefix("NATS/1.0")?;
        if !status.trim_matches(BLANK).is_empty() {
            return None;
        }
        let mut joined = String::with_capacity(rest.len());
        for line in rest.split_inclusive('\n') {
            let line = match line.strip_suffix('\n') {
                Some(line) => line.strip_suffix('\r')?,
                None => line,
            };
            if line.is_empty() {
                continue;
            }
            if line.contains('\r') {
                return None;
            }
            let goes_on = line.starts_with(BLANK) && !joined.is_empty();
            if !goes_on {
                let (name, _) = line.split_once(':')?;
                if !name.bytes().all(|byte| byte.is_ascii_graphic()) {
                    return None;
                }
                if !joined.is_empty() {
                    joined.push('\n');
                }
            }
            joined.push_str(line);
        }
        Some(Self {
            lines: joined.into(),
        })
    }

    /// The first value of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values(name).next()
    }

    /// The last value of this name.
    #[must_use]
    pub fn last(&self, name: &str) -> Option<&str> {
        self.values(name).last()
    }

    fn values(&self, name: &str) -> impl Iterator<Item = &str> {
        let named = self.iter().filter(move |(found, _)| *found == name);
        named.map(|(_, value)| value)
    }

    /// Bytes of memory that they take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.lines.len()
    }

    /// All names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let split = self.lines.lines().filter_map(|line| line.split_once(':'));
        split.map(|(name, value)| (name, value.trim_matches(BLANK)))
    }
}

impl<'h> FromIterator<(&'h str, &'h str)> for Headers {
    /// # Panics
    /// A name has a colon, or a name or a value has the end of a line.
    fn from_iter<I: IntoIterator<Item = (&'h str, &'h str)>>(headers: I) -> Self {
        let mut lines = String::new();
        for (name, value) in headers {
            let has_end = |text: &str| text.contains(['\r', '\n']);
            assert!(
                !name.contains(':') && !has_end(name) && !has_end(value),
                "{name} is one line"
            );
            let separator = if lines.is_empty() { "" } else { "\n" };
            write!(lines, "{separator}{name}:{value}").expect("memory takes what is written");
        }
        Self {
            lines: lines.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(block: &str) -> Option<Headers> {
        Headers::parse(block.as_bytes())
    }

    #[test]
    fn names_and_values() {
        let headers = parse(
            "NATS/1.0\r\nNats-Subject: my.h.a\r\nNats-Sequence:7\r\nA: b: c \t\r\na:\r\nA: d\r\n\r\n",
        );
        let headers = headers.unwrap();
        assert_eq!(headers.get("Nats-Subject"), Some("my.h.a"));
        assert_eq!(headers.get("Nats-Sequence"), Some("7"));
        let both: Vec<_> = headers.values("A").collect();
        assert_eq!(both, ["b: c", "d"]);
        assert_eq!(
            (headers.get("A"), headers.last("A")),
            (Some("b: c"), Some("d"))
        );
        assert_eq!(headers.get("a"), Some(""));
        assert_eq!(headers.get("nats-subject"), None);
        assert_eq!(headers.iter().count(), 5);
    }

    #[test]
    fn unicode_spaces_are_kept() {
        for space in [
            '\u{3000}', '\u{a0}', '\u{2028}', '\u{85}', '\u{b}', '\u{c}', '\u{1}',
        ] {
            let written = format!("{space}a{space}b{space}");
            let headers = parse(&format!("NATS/1.0\r\nNats-Subject: {written}\r\n\r\n")).unwrap();
            assert_eq!(headers.get("Nats-Subject"), Some(&*written));
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
        assert_eq!(parse("NATS/1.0 \r\n\r\n"), Some(Headers::default()));
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
        assert_eq!(Headers::parse(b"NATS/1.0\r\nA: \xff\r\n\r\n"), None);
    }

    #[test]
    fn a_value_may_go_on_in_the_next_line() {
        let headers = parse("NATS/1.0\r\nA: b\r\n c \r\n\td \r\nE: f\r\n\r\n").unwrap();
        assert_eq!(headers.get("A"), Some("b c \td"));
        let behind_nothing = parse("NATS/1.0\r\nA: \r\n b\r\n\r\n").unwrap();
        assert_eq!(behind_nothing.get("A"), Some("b"));
        assert_eq!(headers.get("E"), Some("f"));
        assert_eq!(parse("NATS/1.0\r\n c\r\n\r\n"), None);
    }

    #[test]
    fn an_end_that_is_missing_is_no_fault() {
        for end in ["", "\r\n", "\r\n\r\n"] {
            let headers = parse(&format!("NATS/1.0\r\nA: b{end}")).unwrap();
            assert_eq!(headers.get("A"), Some("b"));
        }
    }

    #[test]
    fn headers_are_made_of_names_and_values() {
        let all = [("A", "b: c"), ("a", ""), ("A", "\u{3000}d")];
        let headers = Headers::from_iter(all);
        assert!(headers.iter().eq(all));
    }
}
