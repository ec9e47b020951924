//! The mark in a message of a flow, by which whoever gets it knows which message it is.
//!
//! It is a number of 53 bits, which every JSON reader keeps: 13 for the run, 4 for the flow, 36 for the message. As a text it
//! is `mf` and 14 hexadecimal digits, of which the first four are the run.

use memchr::memmem;
use regex::bytes::Regex;

/// Bytes of a mark as a text.
pub(crate) const MARK_BYTES: usize = 16;

/// Flows that a mark can name.
pub(crate) const FLOWS_MAX: usize = 16;

const MESSAGE_BITS: u32 = 36;
const FLOW_BITS: u32 = 4;
const RUN_BITS: u32 = 13;

/// A message of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub run: u16,
    pub flow: u8,
    pub number: u64,
}

impl Mark {
    /// A message's mark. Of the run it keeps 13 bits.
    pub(crate) fn new(run: u16, flow: usize, number: u64) -> Self {
        assert!(flow < FLOWS_MAX && number >> MESSAGE_BITS == 0);
        Self {
            run: run & ((1 << RUN_BITS) - 1),
            flow: u8::try_from(flow).expect("checked"),
            number,
        }
    }

    /// As a number.
    pub(crate) fn value(self) -> u64 {
        u64::from(self.run) << (MESSAGE_BITS + FLOW_BITS)
            | u64::from(self.flow) << MESSAGE_BITS
            | self.number
    }

    /// As a text.
    pub(crate) fn text(self) -> String {
        format!("mf{:014x}", self.value())
    }

    fn of_value(value: u64) -> Option<Self> {
        let run = u16::try_from(value >> (MESSAGE_BITS + FLOW_BITS)).ok()?;
        (run >> RUN_BITS == 0).then_some(Self {
            run,
            flow: (value >> MESSAGE_BITS & 0xf) as u8,
            number: value & ((1 << MESSAGE_BITS) - 1),
        })
    }

    fn of_text(bytes: &[u8]) -> Option<Self> {
        let digits = bytes.get(..MARK_BYTES)?.strip_prefix(b"mf")?;
        let digits = std::str::from_utf8(digits).ok()?;
        Self::of_value(u64::from_str_radix(digits, 16).ok()?)
    }

    /// Of a text or a decimal number.
    fn of_any(bytes: &[u8]) -> Option<Self> {
        Self::of_text(bytes)
            .or_else(|| Self::of_value(std::str::from_utf8(bytes).ok()?.parse().ok()?))
    }
}

/// Where the mark is in what comes back.
#[derive(Clone, Debug)]
pub(crate) enum MarkPlace {
    /// As a text, anywhere.
    Anywhere,
    /// In this field, a text or a number.
    Json(String),
    /// What the first group matches, or else the whole match.
    Pattern(Box<Regex>),
    /// From this byte on: as a text, or eight bytes, the most significant first.
    Offset(usize),
}

impl MarkPlace {
    /// Where it is looked for, as scenarios say it.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Anywhere => "anywhere".to_owned(),
            Self::Json(pointer) => format!("at stamp-json = \"{pointer}\""),
            Self::Pattern(pattern) => format!("with stamp-regex = '{pattern}'"),
            Self::Offset(offset) => format!("at stamp-offset = {offset}"),
        }
    }

    /// The mark in a message of the run; none where there is none.
    pub(crate) fn find(&self, message: &[u8], run: u16) -> Option<Mark> {
        let mark = match self {
            Self::Anywhere => return anywhere(message, run),
            Self::Json(pointer) => {
                let value: serde_json::Value = serde_json::from_slice(message).ok()?;
                match value.pointer(pointer)? {
                    serde_json::Value::String(text) => Mark::of_any(text.as_bytes()),
                    serde_json::Value::Number(number) => Mark::of_value(number.as_u64()?),
                    _ => None,
                }
            }
            Self::Pattern(pattern) => {
                let found = pattern.captures(message)?;
                Mark::of_any(found.get(1).or_else(|| found.get(0))?.as_bytes())
            }
            Self::Offset(offset) => {
                let bytes = message.get(*offset..)?;
                Mark::of_text(bytes).or_else(|| {
                    let value = bytes.get(..8)?.try_into().ok()?;
                    Mark::of_value(u64::from_be_bytes(value))
                })
            }
        };
        mark.filter(|mark| mark.run == run & ((1 << RUN_BITS) - 1))
    }

    /// The marks in bytes that may hold several messages of the run one behind the other. A message may say its own mark more
    /// than once, so one that follows itself counts once.
    pub(crate) fn find_all(&self, bytes: &[u8], run: u16) -> Vec<Mark> {
        let mut marks: Vec<Mark> = match self {
            Self::Anywhere => all_anywhere(bytes, run).collect(),
            Self::Pattern(pattern) => {
                let found = pattern.captures_iter(bytes);
                let texts = found.filter_map(|found| found.get(1).or_else(|| found.get(0)));
                let marks = texts.filter_map(|text| Mark::of_any(text.as_bytes()));
                marks
                    .filter(|mark| mark.run == run & ((1 << RUN_BITS) - 1))
                    .collect()
            }
            Self::Json(_) | Self::Offset(_) => self.find(bytes, run).into_iter().collect(),
        };
        marks.dedup();
        marks
    }
}

fn anywhere(message: &[u8], run: u16) -> Option<Mark> {
    all_anywhere(message, run).next()
}

fn all_anywhere(message: &[u8], run: u16) -> impl Iterator<Item = Mark> {
    let run = run & ((1 << RUN_BITS) - 1);
    let found = memmem::find_iter(message, b"mf").filter_map(|at| Mark::of_text(&message[at..]));
    found.filter(move |mark| mark.run == run)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: u16 = 0xbeef;

    #[test]
    fn a_mark_is_found_wherever_it_is_said_to_be() {
        let mark = Mark::new(RUN, 3, 0x1_2345_6789);
        let text = mark.text();
        assert_eq!(text.len(), MARK_BYTES);
        assert!(mark.value() < 1 << 53);
        let json = format!("{{\"a\":{{\"id\":\"{text}\",\"n\":{}}}}}", mark.value());
        let pattern =
            |text: &str| MarkPlace::Pattern(Box::new(Regex::new(text).expect("a pattern")));
        let bytes = [&[1, 2][..], &mark.value().to_be_bytes()].concat();
        for (place, message) in [
            (MarkPlace::Anywhere, json.as_bytes()),
            (MarkPlace::Json("/a/id".into()), json.as_bytes()),
            (MarkPlace::Json("/a/n".into()), json.as_bytes()),
            (pattern("\"n\":([0-9]+)"), json.as_bytes()),
            (pattern("mf[0-9a-f]+"), json.as_bytes()),
            (MarkPlace::Offset(12), json.as_bytes()),
            (MarkPlace::Offset(2), &bytes),
        ] {
            assert_eq!(place.find(message, RUN), Some(mark), "{place:?}");
            assert_eq!(place.find(message, RUN ^ 1), None, "{place:?}");
            assert_eq!(place.find(b"mf", RUN), None, "{place:?}");
        }
        let behind = format!("mfmf0 {text}");
        assert_eq!(MarkPlace::Anywhere.find(behind.as_bytes(), RUN), Some(mark));
    }

    #[test]
    fn several_messages_may_follow_each_other() {
        let marks = [1, 2, 1].map(|number| Mark::new(RUN, 3, number));
        let texts = marks.map(|mark| format!("<{0}|{0}>", mark.text()));
        let foreign = Mark::new(RUN ^ 1, 3, 9).text();
        let bytes = format!("{}{foreign}", texts.concat());
        let pattern = MarkPlace::Pattern(Box::new(Regex::new("<([^|]+)").expect("a pattern")));
        for place in [MarkPlace::Anywhere, pattern] {
            assert_eq!(place.find_all(bytes.as_bytes(), RUN), marks, "{place:?}");
        }
        let first = MarkPlace::Offset(1).find_all(bytes.as_bytes(), RUN);
        assert_eq!(first, marks[..1]);
    }
}
