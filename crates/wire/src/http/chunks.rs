//! The chunked transfer coding (RFC 9112, section 7.1): where a body in chunks ends, and whether it is well-formed.

use super::body::LENGTH_MAX;
use super::chunk_extension::{Part, Step};
use super::headers::is_token_byte;
use std::fmt;

/// Limit of the bytes of chunk extensions and trailers in one body. Nothing reads them, so few are accepted.
const OVERHEAD_BYTES_MAX: u32 = 4096;
/// Digits of a chunk's size: 16 of them fill 64 bits.
const SIZE_DIGITS_MAX: u8 = 16;

/// Fields that a trailer must not have (RFC 9110, section 6.5.1): a reader that merges trailers into the head would see another
/// length, another host or another sender.
const FORBIDDEN_TRAILERS: [&[u8]; 17] = [
    b"authorization",
    b"connection",
    b"content-encoding",
    b"content-length",
    b"content-range",
    b"content-type",
    b"cookie",
    b"expect",
    b"forwarded",
    b"host",
    b"keep-alive",
    b"proxy-authorization",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
    b"x-forwarded-for",
];
/// Bytes of a trailer's name that are kept: one more than the longest of these.
const NAME_BYTES_KEPT: usize = 20;

/// Finds the end of a chunked body, and checks each byte that frames it. The data stays where it is.
///
/// Feed it the bytes after the head, in pieces of any size, until [`ChunkedBody::is_done`]: with [`ChunkedBody::advance`] to
/// pass over the body, or with [`ChunkedBody::next_data`] to read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkedBody {
    state: State,
    overhead_bytes: u32,
    /// The beginning of a trailer's name in small letters, and its length.
    name: [u8; NAME_BYTES_KEPT],
    name_bytes: u8,
}

/// A body whose framing breaks RFC 9112. The error is the client's. The begin of the next request is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChunkError {
    /// A size that is not a hexadecimal number of at most 16 digits, or is 2^63 or more.
    Size,
    /// A chunk's extension that is not of the form `;name=value`.
    Extension,
    /// No CR LF where a line or a chunk ends.
    LineEnd,
    /// A trailer that is not a header line.
    Trailer,
    /// A trailer with a field that only a head may have.
    ForbiddenTrailer,
    /// Extensions and trailers over 4096 bytes.
    TooLong,
}

impl ChunkError {
    /// What was wrong and what to do about it, for the body of the answer.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Size => {
                "A chunk's size is malformed: begin each chunk with its number of bytes in hexadecimal."
            }
            Self::Extension => {
                "A chunk's extension is malformed: send none, or ;NAME=VALUE without control characters."
            }
            Self::LineEnd => {
                "A chunk does not end where its size says, or without CR LF: send as many bytes as the size says, then CR LF."
            }
            Self::Trailer => {
                "A trailer is malformed: send none, or NAME: VALUE without control characters."
            }
            Self::ForbiddenTrailer => {
                "A trailer has a field that only a head may have, such as Content-Length or Host: send it in the head."
            }
            Self::TooLong => {
                "The chunk extensions and trailers are too long for this server: send none."
            }
        }
    }
}

impl fmt::Display for ChunkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

impl std::error::Error for ChunkError {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Size { digits: u8, size: u64 },
    Extension { size: u64, part: Part },
    SizeLineFeed { size: u64 },
    Data { remaining: u64 },
    DataCarriageReturn,
    DataLineFeed,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLineFeed,
    LastLineFeed,
    Done,
}

impl State {
    const NEXT_SIZE: Self = Self::Size { digits: 0, size: 0 };
}

impl Default for ChunkedBody {
    fn default() -> Self {
        Self {
            state: State::NEXT_SIZE,
            overhead_bytes: 0,
            name: [0; NAME_BYTES_KEPT],
            name_bytes: 0,
        }
    }
}

impl ChunkedBody {
    /// Whether the body is complete.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// The number of these bytes that belong to the body; fewer than all only at its end.
    ///
    /// # Errors
    /// The framing is broken. The error is final.
    pub fn advance(&mut self, bytes: &[u8]) -> Result<usize, ChunkError> {
        let mut position = 0;
        while position < bytes.len() && !self.is_done() {
            if let State::Data { remaining } = &mut self.state {
                let available = bytes.len() - position;
                let taken =
                    usize::try_from(*remaining).map_or(available, |most| most.min(available));
                position += taken;
                *remaining -= taken as u64;
                if *remaining == 0 {
                    self.state = State::DataCarriageReturn;
                }
            } else {
                self.state = self.next(bytes[position])?;
                position += 1;
            }
        }
        Ok(position)
    }

    /// The next piece of data at the front of `input`, which is moved behind it and behind what frames it. `None` when
    /// the input is used up, or the body is complete.
    ///
    /// # Errors
    /// The framing is broken. The error is final.
    pub fn next_data<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<&'a [u8]>, ChunkError> {
        while !input.is_empty() && !self.is_done() {
            if let State::Data { remaining } = &mut self.state {
                let taken =
                    usize::try_from(*remaining).map_or(input.len(), |most| most.min(input.len()));
                let (data, rest) = input.split_at(taken);
                *input = rest;
                *remaining -= taken as u64;
                if *remaining == 0 {
                    self.state = State::DataCarriageReturn;
                }
                return Ok(Some(data));
            }
            self.state = self.next(input[0])?;
            *input = &input[1..];
        }
        Ok(None)
    }

    /// As [`ChunkedBody::advance`], and appends the data to `out`. None once it would have more than `bytes_max` bytes: that is final,
    /// as an error is.
    ///
    /// # Errors
    /// The framing is broken. The error is final.
    pub fn decode(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        bytes_max: usize,
    ) -> Result<Option<usize>, ChunkError> {
        let mut rest = bytes;
        while let Some(data) = self.next_data(&mut rest)? {
            if data.len() > bytes_max - out.len().min(bytes_max) {
                return Ok(None);
            }
            out.extend_from_slice(data);
        }
        Ok(Some(bytes.len() - rest.len()))
    }

    /// Whether the next byte begins a chunk. A fresh reader would read on from here in the same way, but for the limit of
    /// extensions.
    #[must_use]
    pub fn is_between_chunks(&self) -> bool {
        self.state == State::NEXT_SIZE
    }

    /// Counts extensions and trailers from zero again, for a body without end.
    pub(super) fn forget_overhead(&mut self) {
        self.overhead_bytes = 0;
    }

    fn next(&mut self, byte: u8) -> Result<State, ChunkError> {
        match self.state {
            State::Size { digits, size } => size_byte(byte, digits, size),
            State::Extension { size, part } => match part.next(byte) {
                Step::LineEnd => Ok(State::SizeLineFeed { size }),
                Step::Next(part) => self.count(State::Extension { size, part }),
                Step::Broken => Err(ChunkError::Extension),
            },
            State::SizeLineFeed { size } => line_feed(
                byte,
                match size {
                    0 => State::TrailerStart,
                    remaining => State::Data { remaining },
                },
            ),
            State::DataCarriageReturn if byte == b'\r' => Ok(State::DataLineFeed),
            State::DataCarriageReturn => Err(ChunkError::LineEnd),
            State::DataLineFeed => line_feed(byte, State::NEXT_SIZE),
            State::TrailerStart if byte == b'\r' => Ok(State::LastLineFeed),
            State::TrailerStart | State::TrailerName if is_token_byte(byte) => {
                self.note_name(byte);
                self.count(State::TrailerName)
            }
            State::TrailerName if byte == b':' => {
                self.check_name()?;
                self.count(State::TrailerValue)
            }
            State::TrailerStart | State::TrailerName => Err(ChunkError::Trailer),
            State::TrailerValue => match byte {
                b'\r' => Ok(State::TrailerLineFeed),
                _ if is_control(byte) => Err(ChunkError::Trailer),
                _ => self.count(State::TrailerValue),
            },
            State::TrailerLineFeed => line_feed(byte, State::TrailerStart),
            State::LastLineFeed => line_feed(byte, State::Done),
            State::Data { .. } | State::Done => unreachable!("the caller handles these"),
        }
    }

    fn note_name(&mut self, byte: u8) {
        if let Some(place) = self.name.get_mut(usize::from(self.name_bytes)) {
            *place = byte.to_ascii_lowercase();
            self.name_bytes += 1;
        }
    }

    /// Checks the name of a trailer, and forgets it.
    fn check_name(&mut self) -> Result<(), ChunkError> {
        let name_bytes = usize::from(std::mem::take(&mut self.name_bytes));
        if FORBIDDEN_TRAILERS.contains(&&self.name[..name_bytes]) {
            return Err(ChunkError::ForbiddenTrailer);
        }
        Ok(())
    }

    fn count(&mut self, next: State) -> Result<State, ChunkError> {
        self.overhead_bytes += 1;
        if self.overhead_bytes > OVERHEAD_BYTES_MAX {
            return Err(ChunkError::TooLong);
        }
        Ok(next)
    }
}

fn size_byte(byte: u8, digits: u8, size: u64) -> Result<State, ChunkError> {
    match char::from(byte).to_digit(16) {
        Some(digit) => {
            let size = size << 4 | u64::from(digit);
            if digits == SIZE_DIGITS_MAX || size > LENGTH_MAX {
                return Err(ChunkError::Size);
            }
            let digits = digits + 1;
            Ok(State::Size { digits, size })
        }
        None if digits == 0 => Err(ChunkError::Size),
        None => match byte {
            b'\r' => Ok(State::SizeLineFeed { size }),
            b';' | b' ' | b'\t' => match Part::Space.next(byte) {
                Step::Next(part) => Ok(State::Extension { size, part }),
                Step::LineEnd | Step::Broken => Err(ChunkError::Extension),
            },
            b'\n' => Err(ChunkError::LineEnd),
            _ => Err(ChunkError::Size),
        },
    }
}

fn line_feed(byte: u8, next: State) -> Result<State, ChunkError> {
    if byte == b'\n' {
        Ok(next)
    } else {
        Err(ChunkError::LineEnd)
    }
}

/// HTAB is space (RFC 9110, section 5.5).
fn is_control(byte: u8) -> bool {
    byte.is_ascii_control() && byte != b'\t'
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The body's bytes, whatever the pieces they come in; the input goes on behind it.
    fn length(body: &str) -> Result<Option<usize>, ChunkError> {
        let whole = measure(&[body.as_bytes()]);
        for cut in 0..=body.len() {
            let (front, back) = body.as_bytes().split_at(cut);
            assert_eq!(measure(&[front, back]), whole, "{body:?} cut at {cut}");
        }
        let bytes: Vec<&[u8]> = body.as_bytes().chunks(1).collect();
        assert_eq!(measure(&bytes), whole, "{body:?} in bytes");
        whole
    }

    fn measure(pieces: &[&[u8]]) -> Result<Option<usize>, ChunkError> {
        let (mut chunked, mut count) = (ChunkedBody::default(), 0);
        for piece in pieces {
            count += chunked.advance(piece)?;
        }
        Ok(chunked.is_done().then_some(count))
    }

    #[test]
    fn a_body_ends_after_its_trailers() {
        for body in [
            "0\r\n\r\n",
            "5\r\nhello\r\n0\r\n\r\n",
            "1;a\r\nx\r\n2;b=\"c d\"\r\n\r\n\r\n00\r\n\r\n",
            "a \t;x\r\n0123456789\r\n0;last\r\nX-Trailer: of any\tkind\r\nb:\r\n\r\n",
            "0000000000000001\r\nA\r\n0\r\n\r\n",
            "0\r\nhosts: a\r\nx-content-length: 1\r\nproxy-authorizations: b\r\n\r\n",
        ] {
            assert_eq!(length(body), Ok(Some(body.len())), "{body:?}");
            let followed = format!("{body}GET / HTTP/1.1\r\n");
            assert_eq!(length(&followed), Ok(Some(body.len())), "{body:?}");
            assert_eq!(length(&body[..body.len() - 1]), Ok(None), "{body:?}");
        }
    }

    #[test]
    fn what_two_readers_may_read_differently_is_refused() {
        for (body, error) in [
            ("\r\n", ChunkError::Size),
            ("x\r\n", ChunkError::Size),
            ("0x5\r\nhello", ChunkError::Size),
            ("-1\r\n", ChunkError::Size),
            ("+1\r\n", ChunkError::Size),
            ("10000000000000000\r\n", ChunkError::Size),
            ("00000000000000001\r\n", ChunkError::Size),
            ("8000000000000000\r\n", ChunkError::Size),
            ("5_0\r\n", ChunkError::Size),
            (" 5\r\nhello", ChunkError::Size),
            ("5 \r\nhello", ChunkError::Extension),
            ("5 5\r\nhello", ChunkError::Extension),
            ("5;\r\nhello", ChunkError::Extension),
            ("5;a=\"\r\nhello", ChunkError::Extension),
            ("5\nhello", ChunkError::LineEnd),
            ("5\rhello", ChunkError::LineEnd),
            ("5\r\nhello!\r\n", ChunkError::LineEnd),
            ("5\r\nhello\n0\r\n", ChunkError::LineEnd),
            ("5\r\nhello\r0\r\n", ChunkError::LineEnd),
            ("1;a\0\r\n", ChunkError::Extension),
            ("1;a\nb\r\n", ChunkError::Extension),
            ("0\r\n\n", ChunkError::Trailer),
            ("0\r\na b: c\r\n\r\n", ChunkError::Trailer),
            ("0\r\n: c\r\n\r\n", ChunkError::Trailer),
            ("0\r\na\r\n\r\n", ChunkError::Trailer),
            ("0\r\na: \0\r\n\r\n", ChunkError::Trailer),
            ("0\r\na: b\r\n c\r\n\r\n", ChunkError::Trailer),
            (
                "0\r\nContent-Length: 5\r\n\r\n",
                ChunkError::ForbiddenTrailer,
            ),
            ("0\r\na: b\r\nhost: c\r\n\r\n", ChunkError::ForbiddenTrailer),
            ("0\r\na: b\n\r\n", ChunkError::Trailer),
            ("0\r\n\rx", ChunkError::LineEnd),
        ] {
            assert_eq!(length(body), Err(error), "{body:?}");
            assert!(error.sentence().contains(": ") && error.sentence().ends_with('.'));
        }
    }

    /// The data of a body in these pieces, and how many bytes are left behind it.
    fn data(pieces: &[&[u8]]) -> (Vec<u8>, usize) {
        let (mut chunked, mut data, mut left) = (ChunkedBody::default(), Vec::new(), 0);
        for piece in pieces {
            let mut input = *piece;
            while let Some(piece) = chunked.next_data(&mut input).unwrap() {
                data.extend_from_slice(piece);
            }
            left += input.len();
        }
        assert!(chunked.is_done());
        (data, left)
    }

    #[test]
    fn data_is_read_however_the_body_is_cut() {
        let body = b"5\r\nhello\r\n1;a=b\r\n,\r\nc\r\n 0\r\n\r\n world\r\n0\r\na: b\r\n\r\nnext";
        let expected = (b"hello, 0\r\n\r\n world".to_vec(), 4);
        for cut in 0..=body.len() {
            let (front, back) = body.split_at(cut);
            assert_eq!(data(&[front, back]), expected, "cut at {cut}");
        }
        assert_eq!(data(&body.chunks(1).collect::<Vec<_>>()), expected);
    }

    #[test]
    fn between_chunks_a_fresh_reader_goes_on() {
        let mut chunked = ChunkedBody::default();
        assert!(chunked.is_between_chunks());
        let mut input = &b"1;x\r\na\r\n"[..];
        assert_eq!(chunked.next_data(&mut input), Ok(Some(&b"a"[..])));
        assert!(!chunked.is_between_chunks());
        assert_eq!(chunked.next_data(&mut input), Ok(None));
        assert!(chunked.is_between_chunks() && input.is_empty());
        assert_eq!(
            chunked.next_data(&mut &b"5\r\nab"[..]),
            Ok(Some(&b"ab"[..]))
        );
        assert!(!chunked.is_between_chunks());
    }

    #[test]
    fn extensions_and_trailers_are_bounded_together() {
        let extension = "x".repeat(3_000);
        let body = |trailer: usize| {
            let trailer = "y".repeat(trailer);
            format!("0;{extension}\r\na:{trailer}\r\n\r\n")
        };
        // The trailer's name and colon count too, the first semicolon does not.
        assert!(matches!(measure(&[body(1_094).as_bytes()]), Ok(Some(_))));
        assert_eq!(measure(&[body(1_095).as_bytes()]), Err(ChunkError::TooLong));
    }
}
