//! How messages are told apart in a byte stream, where clients speak plain TCP.
//!
//! It knows neither sockets nor terminals. What marks the frame (the delimiter, the length) is no part of the message, so what a
//! scenario says and what it hears have the same form. Frames of one size are the exception: the zeros that fill up a message are part
//! of what is heard, because nothing tells them from zeros of the message itself.

use memchr::memmem;
use myriad_wire::varint::{VarintError, push_varint, split_varint};
use std::borrow::Cow;
use std::fmt;

/// Bytes of a number of variable length, at most.
const VARINT_BYTES_MAX: usize = 10;

/// How messages are told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Framing {
    /// What marks them.
    pub mark: FrameMark,
    /// Largest message, in bytes.
    pub message_bytes_max: usize,
}

/// What marks a message in a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameMark {
    /// These bytes follow each message. They are at least one.
    Delimiter(Vec<u8>),
    /// Its length stands before it, or in its header.
    Length(LengthField),
    /// Each message has so many bytes. A shorter one that is sent is filled up with zeros.
    Size(usize),
}

/// Where a length stands, and what it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LengthField {
    /// Bytes of the message's header in front of it.
    pub at: usize,
    /// How it is written.
    pub form: LengthForm,
    /// What it counts.
    pub counts: LengthCounts,
}

/// How a length is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LengthForm {
    /// In so many bytes (1 to 8), the most significant first.
    BigEndian(usize),
    /// The same, the least significant first.
    LittleEndian(usize),
    /// In seven bits a byte, the least significant first, as protobuf writes lengths.
    Varint,
}

/// What a length counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LengthCounts {
    /// What follows it.
    #[default]
    Rest,
    /// Itself and what follows it.
    Itself,
    /// The header in front of it, itself, and what follows it.
    All,
}

/// A message that cannot be sent in its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It has more bytes than a frame has room for: how many, and the most.
    Large(usize, usize),
    /// The delimiter is in it.
    Delimiter,
    /// It is shorter than the header that a length stands behind: its bytes, and those of the header.
    Short(usize, usize),
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Large(bytes, most) => {
                write!(f, "a message of {bytes} bytes, and {most} fit its frame")
            }
            Self::Delimiter => f.write_str(
                "the delimiter is in the message; leave it out, because it is added behind each message",
            ),
            Self::Short(bytes, header) => write!(
                f,
                "a message of {bytes} bytes, and the length stands behind {header} bytes of it"
            ),
        }
    }
}

/// What lies at the front of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Front<'a> {
    /// A whole message, and the bytes of its frame.
    Message {
        message: Cow<'a, [u8]>,
        frame_bytes: usize,
    },
    /// More has to come. So many bytes need not be looked at again.
    Incomplete { looked_at: usize },
    /// A message of so many bytes, or of more, is to come: more than the limit.
    Large(u64),
    /// A length that counts less than itself.
    Wrong,
}

impl Framing {
    /// The message at the front of a stream, of which `looked_at` bytes have been looked at before.
    pub(crate) fn front<'a>(&self, bytes: &'a [u8], looked_at: usize) -> Front<'a> {
        match &self.mark {
            FrameMark::Delimiter(delimiter) => self.delimited(bytes, delimiter, looked_at),
            FrameMark::Length(field) => self.counted(bytes, *field),
            FrameMark::Size(size) => match bytes.get(..*size) {
                Some(message) => Front::Message {
                    message: message.into(),
                    frame_bytes: *size,
                },
                None => Front::Incomplete { looked_at: 0 },
            },
        }
    }

    fn delimited<'a>(&self, bytes: &'a [u8], delimiter: &[u8], looked_at: usize) -> Front<'a> {
        let found = memmem::find(&bytes[looked_at..], delimiter).map(|at| looked_at + at);
        // A delimiter may have begun at the end.
        let without = bytes.len().saturating_sub(delimiter.len() - 1);
        let message_bytes = found.unwrap_or(without);
        if message_bytes > self.message_bytes_max {
            return Front::Large(message_bytes as u64);
        }
        match found {
            Some(end) => Front::Message {
                message: bytes[..end].into(),
                frame_bytes: end + delimiter.len(),
            },
            None => Front::Incomplete { looked_at: without },
        }
    }

    fn counted<'a>(&self, bytes: &'a [u8], field: LengthField) -> Front<'a> {
        let incomplete = Front::Incomplete { looked_at: 0 };
        let Some(from_field) = bytes.get(field.at..) else {
            return incomplete;
        };
        let (value, width) = match field.form.read(from_field) {
            Ok(Some(read)) => read,
            Ok(None) => return incomplete,
            Err(()) => return Front::Wrong,
        };
        let counted = match field.counts {
            LengthCounts::Rest => 0,
            LengthCounts::Itself => width,
            LengthCounts::All => field.at + width,
        };
        let Some(rest) = value.checked_sub(counted as u64) else {
            return Front::Wrong;
        };
        let message_bytes = rest.saturating_add(field.at as u64);
        if message_bytes > self.message_bytes_max as u64 {
            return Front::Large(message_bytes);
        }
        let rest = usize::try_from(rest).expect("it is within the limit");
        let rest_at = field.at + width;
        let Some(rest) = bytes.get(rest_at..rest_at + rest) else {
            return incomplete;
        };
        let message = match field.at {
            0 => Cow::Borrowed(rest),
            at => Cow::Owned([&bytes[..at], rest].concat()),
        };
        Front::Message {
            message,
            frame_bytes: rest_at + rest.len(),
        }
    }

    /// Appends a message in its frame, or nothing if it does not fit one.
    pub(crate) fn write(&self, out: &mut Vec<u8>, message: &[u8]) -> Result<(), Unfit> {
        let most = self.message_bytes_max;
        if message.len() > most {
            return Err(Unfit::Large(message.len(), most));
        }
        match &self.mark {
            FrameMark::Delimiter(delimiter) => {
                let start = out.len();
                out.extend_from_slice(message);
                out.extend_from_slice(delimiter);
                // Its end and the beginning of the delimiter may make one, too.
                if memmem::find(&out[start..], delimiter) != Some(message.len()) {
                    out.truncate(start);
                    return Err(Unfit::Delimiter);
                }
                Ok(())
            }
            FrameMark::Length(field) => field.write(out, message),
            FrameMark::Size(size) => {
                if message.len() > *size {
                    return Err(Unfit::Large(message.len(), *size));
                }
                out.extend_from_slice(message);
                out.resize(out.len() + size - message.len(), 0);
                Ok(())
            }
        }
    }
}

impl LengthField {
    fn write(self, out: &mut Vec<u8>, message: &[u8]) -> Result<(), Unfit> {
        let Some((header, rest)) = message.split_at_checked(self.at) else {
            return Err(Unfit::Short(message.len(), self.at));
        };
        let before = match self.counts {
            LengthCounts::Rest | LengthCounts::Itself => 0,
            LengthCounts::All => self.at,
        };
        let counts_itself = self.counts != LengthCounts::Rest;
        let value =
            |width: usize| (before + rest.len() + usize::from(counts_itself) * width) as u64;
        let (width, most) = match self.form {
            LengthForm::BigEndian(width) | LengthForm::LittleEndian(width) => {
                (width, u64::MAX >> (64 - 8 * width))
            }
            LengthForm::Varint => (varint_width(value), u64::MAX),
        };
        let value = value(width);
        if value > most {
            let surplus = usize::try_from(value - most).unwrap_or(usize::MAX);
            return Err(Unfit::Large(
                message.len(),
                message.len().saturating_sub(surplus),
            ));
        }
        out.extend_from_slice(header);
        match self.form {
            LengthForm::BigEndian(width) => {
                out.extend_from_slice(&value.to_be_bytes()[8 - width..]);
            }
            LengthForm::LittleEndian(width) => out.extend_from_slice(&value.to_le_bytes()[..width]),
            LengthForm::Varint => push_varint(out, value),
        }
        out.extend_from_slice(rest);
        Ok(())
    }
}

/// The width of a number that may count its own bytes.
fn varint_width(value: impl Fn(usize) -> u64) -> usize {
    let fits = |width: &usize| *width == VARINT_BYTES_MAX || value(*width) >> (7 * *width) == 0;
    let mut widths = 1..=VARINT_BYTES_MAX;
    widths.find(fits).expect("the widest holds every number")
}

impl LengthForm {
    /// The length at the front of `bytes` and its width; none if it is incomplete. An error: it is no length.
    fn read(self, bytes: &[u8]) -> Result<Option<(u64, usize)>, ()> {
        match self {
            Self::BigEndian(width) => Ok(bytes.get(..width).map(|field| {
                let add = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
                (field.iter().fold(0, add), width)
            })),
            Self::LittleEndian(width) => Ok(bytes.get(..width).map(|field| {
                let add = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
                (field.iter().rev().fold(0, add), width)
            })),
            Self::Varint => match split_varint(bytes) {
                Ok((value, rest)) => Ok(Some((value, bytes.len() - rest.len()))),
                Err(VarintError::Truncated) => Ok(None),
                Err(_) => Err(()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framing(mark: FrameMark) -> Framing {
        Framing {
            mark,
            message_bytes_max: 1000,
        }
    }

    fn length(at: usize, form: LengthForm, counts: LengthCounts) -> FrameMark {
        FrameMark::Length(LengthField { at, form, counts })
    }

    /// Every way to mark messages of five bytes.
    fn marks() -> Vec<FrameMark> {
        let mut marks = vec![FrameMark::Size(5)];
        for delimiter in ["\n", "\r\n", "\0", "--end--"] {
            marks.push(FrameMark::Delimiter(delimiter.into()));
        }
        for counts in [LengthCounts::Rest, LengthCounts::Itself, LengthCounts::All] {
            for at in [0, 3] {
                for width in [1, 2, 4, 8] {
                    marks.push(length(at, LengthForm::BigEndian(width), counts));
                    marks.push(length(at, LengthForm::LittleEndian(width), counts));
                }
                marks.push(length(at, LengthForm::Varint, counts));
            }
        }
        marks
    }

    /// The messages of a stream that comes in these pieces, and what is left of it.
    fn read(framing: &Framing, pieces: &[&[u8]]) -> (Vec<Vec<u8>>, Vec<u8>) {
        let (mut messages, mut kept, mut before) = (Vec::new(), Vec::new(), 0);
        for piece in pieces {
            kept.extend_from_slice(piece);
            loop {
                match framing.front(&kept, before) {
                    Front::Message {
                        message,
                        frame_bytes,
                    } => {
                        messages.push(message.into_owned());
                        kept.drain(..frame_bytes);
                        before = 0;
                    }
                    Front::Incomplete { looked_at } => {
                        before = looked_at;
                        break;
                    }
                    wrong => panic!("{wrong:?}"),
                }
            }
        }
        (messages, kept)
    }

    #[test]
    fn what_is_written_is_read_however_it_is_cut() {
        for mark in marks() {
            let framing = framing(mark);
            let messages = [&b"hello"[..], b"a--en", b"\x01\x02\x03\x04\x05"];
            let mut bytes = Vec::new();
            for message in messages {
                framing.write(&mut bytes, message).expect("it fits");
            }
            for cut in 0..=bytes.len() {
                let (front, back) = bytes.split_at(cut);
                let (read, rest) = read(&framing, &[front, back]);
                assert_eq!(read, messages, "{framing:?} cut at {cut}");
                assert!(rest.is_empty());
            }
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            assert_eq!(read(&framing, &single).0, messages, "{framing:?}");
        }
    }

    #[test]
    fn lengths_are_written_as_they_are_asked_for() {
        let written = |mark: FrameMark, message: &[u8]| {
            let mut out = Vec::new();
            framing(mark).write(&mut out, message).expect("it fits");
            out
        };
        let (big, little) = (LengthForm::BigEndian, LengthForm::LittleEndian);
        let rest = LengthCounts::Rest;
        assert_eq!(written(length(0, big(4), rest), b"abc"), b"\0\0\0\x03abc");
        assert_eq!(written(length(0, little(2), rest), b"abc"), b"\x03\0abc");
        let itself = LengthCounts::Itself;
        assert_eq!(written(length(0, big(4), itself), b"abc"), b"\0\0\0\x07abc");
        assert_eq!(written(length(2, big(2), rest), b"HDabc"), b"HD\0\x03abc");
        assert_eq!(written(length(2, big(2), itself), b"HDabc"), b"HD\0\x05abc");
        let all = LengthCounts::All;
        assert_eq!(written(length(2, big(2), all), b"HDabc"), b"HD\0\x07abc");
        let long = written(length(0, LengthForm::Varint, rest), &[b'.'; 300]);
        assert_eq!(&long[..3], b"\xac\x02.");
        // 127 bytes and their own length take two bytes to count.
        let edge = written(length(0, LengthForm::Varint, itself), &[b'.'; 127]);
        assert_eq!((&edge[..2], edge.len()), (&b"\x81\x01"[..], 129));
    }

    #[test]
    fn what_does_not_fit_is_not_sent() {
        let unfit = |mark: FrameMark, message: &[u8]| {
            let mut out = b"before".to_vec();
            let unfit = framing(mark).write(&mut out, message).expect_err("unfit");
            assert_eq!(out, b"before");
            unfit
        };
        let newline = || FrameMark::Delimiter(b"\n".to_vec());
        assert_eq!(unfit(newline(), b"a\n"), Unfit::Delimiter);
        let hashes = FrameMark::Delimiter(b"##".to_vec());
        assert_eq!(unfit(hashes, b"a#"), Unfit::Delimiter, "with what follows");
        assert_eq!(unfit(newline(), &[b'.'; 1001]), Unfit::Large(1001, 1000));
        assert_eq!(unfit(FrameMark::Size(5), b"123456"), Unfit::Large(6, 5));
        let byte = |counts| length(0, LengthForm::BigEndian(1), counts);
        let large = [b'.'; 256];
        let at_most = |most| Unfit::Large(256, most);
        assert_eq!(unfit(byte(LengthCounts::Rest), &large), at_most(255));
        assert_eq!(unfit(byte(LengthCounts::Itself), &large), at_most(254));
        let behind = length(4, LengthForm::BigEndian(2), LengthCounts::Rest);
        assert_eq!(unfit(behind, b"abc"), Unfit::Short(3, 4));
    }

    #[test]
    fn a_short_message_is_filled_up_to_a_fixed_size() {
        let mut out = Vec::new();
        framing(FrameMark::Size(5))
            .write(&mut out, b"abc")
            .expect("it fits");
        assert_eq!(out, b"abc\0\0");
    }

    #[test]
    fn what_fills_a_message_up_is_heard_and_can_be_matched() {
        let framing = framing(FrameMark::Size(5));
        let Front::Message { message, .. } = framing.front(b"ok\0\0\0ok", 0) else {
            panic!("it is whole")
        };
        let matches = |regex: &str| regex::bytes::Regex::new(regex).unwrap().is_match(&message);
        assert!(matches(r"^ok\x00*$") && !matches("^ok$"));
    }

    #[test]
    fn a_message_over_the_limit_is_known_by_its_beginning() {
        let front = |mark: FrameMark, bytes: &[u8]| match framing(mark).front(bytes, 0) {
            Front::Large(bytes) => Some(bytes),
            Front::Wrong => None,
            other => panic!("{other:?}"),
        };
        let four = |counts| length(0, LengthForm::BigEndian(4), counts);
        let rest = LengthCounts::Rest;
        assert_eq!(front(four(rest), b"\0\0\x03\xe9"), Some(1001));
        assert_eq!(front(four(rest), b"HTTP/1.1 400"), Some(0x4854_5450));
        assert_eq!(front(four(LengthCounts::Itself), b"\0\0\0\x03"), None);
        let varint = length(0, LengthForm::Varint, rest);
        assert_eq!(front(varint, &[0xff; 11]), None, "no number");
        let lines = || FrameMark::Delimiter(b"\r\n".to_vec());
        assert_eq!(front(lines(), &[b'.'; 1002]), Some(1001));
        let whole = [&[b'.'; 1001][..], b"\r\n"].concat();
        assert_eq!(front(lines(), &whole), Some(1001));
        let fits = framing(lines());
        let incomplete = Front::Incomplete { looked_at: 1000 };
        assert_eq!(fits.front(&[b'.'; 1001], 0), incomplete);
    }
}
