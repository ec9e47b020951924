//! What a NATS server sends, taken apart. No I/O: bytes in ([`Parser::room`], [`Parser::push`]), operations out ([`Parser::next_op`]).
//!
//! The words of a control line are separated by ASCII spaces and tabs and by nothing else, because a subject or a header may contain
//! every other character. async-nats also splits at Unicode spaces: there, one such name ends the connection of each node that hears it.

use super::{RawMessage, Sid};
use async_nats::Subject;
use bytes::buf::Limit;
use bytes::{BufMut as _, Bytes, BytesMut};
use std::mem;
use thiserror::Error;

/// Bytes of a control line. A server takes 4,096 from a publisher by default, and may be set to take more (`max_control_line`). The line that
/// introduces it lists the whole cluster.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Bytes of a message: the largest payload that a server can be set to, and headers.
const MESSAGE_BYTES_MAX: usize = (64 << 20) + (1 << 20);
/// Bytes that are read at once at most.
const READ_BYTES: usize = 64 << 10;
/// A smaller rest of the buffer is not worth a read.
const ROOM_BYTES_MIN: usize = 4 << 10;
const LINE_END: &[u8] = b"\r\n";

/// One thing that a server says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// The server introduces itself, in JSON.
    Info(Bytes),
    /// A message of a subscription.
    Message(RawMessage),
    /// The server wants a sign of life.
    Ping,
    /// The answer to our `PING`.
    Pong,
    /// Something was done.
    Ok,
    /// Something was not done, and why.
    Error(String),
}

/// Why the bytes of a server make no sense.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProtocolError {
    /// A control line has no end.
    #[error("a control line has more than {max} bytes")]
    LineTooLong {
        /// The most that it may have.
        max: usize,
    },
    /// A control line ends with a line feed alone.
    #[error("a control line ends without a carriage return")]
    LineEnd,
    /// A control line begins with no known word.
    #[error("a control line begins with {start:?}")]
    Unknown {
        /// Its beginning.
        start: String,
    },
    /// A message has more or fewer words in its control line than it should.
    #[error("a message has a wrong number of words in its control line")]
    Words,
    /// What should be a number is none.
    #[error("a message has {word:?} where a number should be")]
    Number {
        /// What is there, or its beginning.
        word: String,
    },
    /// A message is larger than any server lets it be.
    #[error("a message of {bytes} bytes is announced, more than {max}", max = MESSAGE_BYTES_MAX)]
    MessageTooLong {
        /// Its size.
        bytes: u64,
    },
    /// The headers of a message are larger than the whole.
    #[error("a message of {bytes} bytes is announced with headers of {headers} bytes")]
    Headers {
        /// Bytes of the headers.
        headers: usize,
        /// Bytes of headers and payload.
        bytes: usize,
    },
    /// A message does not end where it should.
    #[error("a message does not end where its control line says")]
    MessageEnd,
}

/// Takes the bytes of one connection apart.
///
/// After an error the rest of the connection has no meaning: the parser must not be asked again.
#[derive(Default)]
pub struct Parser {
    buffer: BytesMut,
    /// So many bytes of the buffer contain no end of a line.
    searched: usize,
    /// The message whose control line was read and whose body has not come whole.
    head: Option<Head>,
}

impl Parser {
    /// A parser that has read nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Where the next bytes are to be read to: at most 64 KiB.
    ///
    /// New memory is taken only when the old is nearly used up: a message that is kept keeps the whole piece that it came in.
    pub fn room(&mut self) -> Limit<&mut BytesMut> {
        if self.buffer.capacity() - self.buffer.len() < ROOM_BYTES_MIN {
            self.buffer.reserve(READ_BYTES);
        }
        (&mut self.buffer).limit(READ_BYTES)
    }

    /// Takes bytes that were read elsewhere.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// True if all that came was taken out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty() && self.head.is_none()
    }

    /// The next operation, or none before more bytes come.
    ///
    /// # Errors
    /// The bytes are none that a NATS server sends.
    pub fn next_op(&mut self) -> Result<Option<Op>, ProtocolError> {
        if let Some(head) = self.head.take() {
            return self.take_message(head);
        }
        let Some(line) = self.take_line()? else {
            return Ok(None);
        };
        match parse_line(&line)? {
            Line::Op(op) => Ok(Some(op)),
            Line::Head(head) => self.take_message(head),
        }
    }

    /// A whole line, without its end.
    fn take_line(&mut self) -> Result<Option<Bytes>, ProtocolError> {
        let found = memchr::memchr(b'\n', &self.buffer[self.searched..]);
        let end = found.map_or(self.buffer.len(), |at| self.searched + at);
        if end > LINE_BYTES_MAX {
            let max = LINE_BYTES_MAX;
            return Err(ProtocolError::LineTooLong { max });
        }
        if found.is_none() {
            self.searched = end;
            return Ok(None);
        }
        self.searched = 0;
        let mut line = self.buffer.split_to(end + 1).freeze();
        if !line.ends_with(LINE_END) {
            return Err(ProtocolError::LineEnd);
        }
        line.truncate(end - 1);
        Ok(Some(line))
    }

    /// The message of a control line, if it is there to its end.
    fn take_message(&mut self, head: Head) -> Result<Option<Op>, ProtocolError> {
        let bytes = head.bytes;
        if self.buffer.len() < bytes + LINE_END.len() {
            self.head = Some(head);
            return Ok(None);
        }
        let mut payload = self.buffer.split_to(bytes + LINE_END.len()).freeze();
        if bytes > READ_BYTES {
            self.leave_large_buffer();
        }
        if !payload.ends_with(LINE_END) {
            return Err(ProtocolError::MessageEnd);
        }
        payload.truncate(bytes);
        let headers = head.headers.map(|bytes| payload.split_to(bytes));
        Ok(Some(Op::Message(RawMessage {
            subject: head.subject,
            sid: head.sid,
            reply: head.reply,
            headers,
            payload,
        })))
    }

    /// Gives up a buffer that grew for one large message. Every small one behind it would keep the whole of it in memory.
    fn leave_large_buffer(&mut self) {
        let rest = mem::take(&mut self.buffer);
        self.buffer.reserve(READ_BYTES.max(rest.len()));
        self.buffer.extend_from_slice(&rest);
    }
}

/// What a control line says.
enum Line {
    Op(Op),
    /// A message follows.
    Head(Head),
}

/// The control line of a message.
struct Head {
    subject: Subject,
    sid: Sid,
    reply: Option<Subject>,
    /// Bytes of the headers, where there are some.
    headers: Option<usize>,
    /// Bytes of headers and payload.
    bytes: usize,
}

fn parse_line(line: &Bytes) -> Result<Line, ProtocolError> {
    let end = line.iter().position(is_blank).unwrap_or(line.len());
    let (verb, rest) = line.split_at(end);
    let is = |name: &[u8]| verb.eq_ignore_ascii_case(name);
    let has_headers = is(b"HMSG");
    if has_headers || is(b"MSG") {
        return parse_head(line, rest, has_headers).map(Line::Head);
    }
    Ok(Line::Op(if is(b"PING") {
        Op::Ping
    } else if is(b"PONG") {
        Op::Pong
    } else if is(b"+OK") {
        Op::Ok
    } else if is(b"INFO") {
        Op::Info(line.slice_ref(rest.trim_ascii()))
    } else if is(b"-ERR") {
        let text = String::from_utf8_lossy(rest);
        Op::Error(text.trim().trim_matches('\'').to_owned())
    } else {
        let start = beginning(verb);
        return Err(ProtocolError::Unknown { start });
    }))
}

/// Parses `subject sid [reply] [bytes of headers] bytes`.
fn parse_head(line: &Bytes, rest: &[u8], has_headers: bool) -> Result<Head, ProtocolError> {
    let mut words = rest.split(is_blank).filter(|word| !word.is_empty());
    let mut next = || words.next();
    let (Some(subject), Some(sid)) = (next(), next()) else {
        return Err(ProtocolError::Words);
    };
    let (reply, headers, bytes) = match (has_headers, [next(), next(), next(), next()]) {
        (false, [Some(bytes), None, ..]) => (None, None, bytes),
        (false, [reply, Some(bytes), None, _]) => (reply, None, bytes),
        (true, [headers, Some(bytes), None, _]) => (None, headers, bytes),
        (true, [reply, headers, Some(bytes), None]) => (reply, headers, bytes),
        _ => return Err(ProtocolError::Words),
    };
    let bytes = size(bytes)?;
    let headers = headers.map(size).transpose()?;
    if let Some(headers) = headers.filter(|headers| *headers > bytes) {
        return Err(ProtocolError::Headers { headers, bytes });
    }
    Ok(Head {
        subject: subject_of(line.slice_ref(subject)),
        sid: Sid(number(sid)?),
        reply: reply.map(|word| subject_of(line.slice_ref(word))),
        headers,
        bytes,
    })
}

/// Bytes that are no UTF-8 are replaced: NATS lets them into a subject, and they must not end the connection.
fn subject_of(word: Bytes) -> Subject {
    Subject::from_utf8(word.clone())
        .unwrap_or_else(|_| Subject::from(String::from_utf8_lossy(&word).into_owned()))
}

fn number(word: &[u8]) -> Result<u64, ProtocolError> {
    let is_number = word.iter().all(u8::is_ascii_digit);
    let text = is_number.then(|| std::str::from_utf8(word).ok()).flatten();
    let number = text.and_then(|text| text.parse().ok());
    number.ok_or_else(|| ProtocolError::Number {
        word: beginning(word),
    })
}

fn size(word: &[u8]) -> Result<usize, ProtocolError> {
    let bytes = number(word)?;
    let size = usize::try_from(bytes).ok();
    let size = size.filter(|size| *size <= MESSAGE_BYTES_MAX);
    size.ok_or(ProtocolError::MessageTooLong { bytes })
}

fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// As much of a word as an error shows.
fn beginning(word: &[u8]) -> String {
    String::from_utf8_lossy(&word[..word.len().min(40)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    type Parsed = (Vec<Op>, Option<ProtocolError>);

    fn parse_pieces<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Parsed {
        let (mut parser, mut ops) = (Parser::new(), Vec::new());
        for piece in pieces {
            parser.push(piece);
            loop {
                match parser.next_op() {
                    Ok(Some(op)) => ops.push(op),
                    Ok(None) => break,
                    Err(error) => return (ops, Some(error)),
                }
            }
        }
        (ops, None)
    }

    /// What the bytes mean, which is the same wherever they are split.
    fn parse(bytes: &[u8]) -> Parsed {
        let whole = parse_pieces([bytes]);
        for at in 0..bytes.len() {
            let (left, right) = bytes.split_at(at);
            assert_eq!(parse_pieces([left, right]), whole, "split at {at}");
        }
        assert_eq!(parse_pieces(bytes.chunks(1)), whole, "single bytes");
        whole
    }

    fn parse_all(bytes: &[u8]) -> Vec<Op> {
        let (ops, error) = parse(bytes);
        assert_eq!(error, None);
        ops
    }

    fn error(bytes: impl AsRef<[u8]>) -> ProtocolError {
        parse(bytes.as_ref()).1.expect("it is refused")
    }

    fn message(subject: &str, sid: u64, reply: Option<&str>, payload: &'static [u8]) -> RawMessage {
        RawMessage {
            subject: subject.into(),
            sid: Sid(sid),
            reply: reply.map(Subject::from),
            headers: None,
            payload: Bytes::from_static(payload),
        }
    }

    #[test]
    fn lines_without_a_body() {
        let ops = parse_all(
            b"INFO {\"a\": 1} \r\nPING\r\nPONG\r\n+OK\r\nping\r\n-ERR 'Stale Connection'\r\n-ERR\r\n",
        );
        let info = Bytes::from_static(b"{\"a\": 1}");
        let stale = Op::Error("Stale Connection".to_owned());
        let nothing = Op::Error(String::new());
        let expected = [
            Op::Info(info),
            Op::Ping,
            Op::Pong,
            Op::Ok,
            Op::Ping,
            stale,
            nothing,
        ];
        assert_eq!(ops, expected);
    }

    #[test]
    fn messages() {
        let ops = parse_all(
            b"MSG a.b 9 5\r\nhello\r\nMSG a\t18446744073709551615  _INBOX.1 4\r\n\r\n\r\n\r\nMSG c 1 0\r\n\r\nPING\r\n",
        );
        let expected = [
            Op::Message(message("a.b", 9, None, b"hello")),
            Op::Message(message("a", u64::MAX, Some("_INBOX.1"), b"\r\n\r\n")),
            Op::Message(message("c", 1, None, b"")),
            Op::Ping,
        ];
        assert_eq!(ops, expected);
    }

    #[test]
    fn messages_with_headers() {
        let ops = parse_all(
            b"HMSG a 1 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nhi\r\nHMSG a 1 r 16 16\r\nNATS/1.0 503\r\n\r\n\r\n",
        );
        let mut with = message("a", 1, None, b"hi");
        with.headers = Some(Bytes::from_static(b"NATS/1.0\r\nA: b\r\n\r\n"));
        let mut status = message("a", 1, Some("r"), b"");
        status.headers = Some(Bytes::from_static(b"NATS/1.0 503\r\n\r\n"));
        assert_eq!(ops, [Op::Message(with), Op::Message(status)]);
    }

    #[test]
    fn unicode_spaces_belong_to_a_subject() {
        let subject = "a.\u{3000}b\u{a0}\u{2028}\u{b}\u{c}";
        let ops = parse_all(format!("MSG {subject} 1 {subject} 2\r\nhi\r\n").as_bytes());
        let expected = message(subject, 1, Some(subject), b"hi");
        assert_eq!(ops, [Op::Message(expected)]);
    }

    #[test]
    fn a_subject_that_is_no_utf_8_is_no_error() {
        let ops = parse_all(b"MSG a.\xff 1 2\r\nhi\r\n");
        assert_eq!(ops, [Op::Message(message("a.\u{fffd}", 1, None, b"hi"))]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for line in ["MSG a 1\r\n", "MSG\r\n", "MSG a 1 r s 2\r\n"] {
            assert_eq!(error(line), ProtocolError::Words, "{line:?}");
        }
        for line in [
            "HMSG a 1 2\r\n",
            "HMSG a 1 r 2 3 4\r\n",
            "HMSG a 1 r 2 3 4 5\r\n",
        ] {
            assert_eq!(error(line), ProtocolError::Words, "{line:?}");
        }
        for (line, word) in [
            ("MSG a x 2\r\n", "x"),
            ("MSG a 1 +2\r\n", "+2"),
            ("HMSG a 1 -1 2\r\n", "-1"),
            ("MSG a 1 18446744073709551616\r\n", "18446744073709551616"),
        ] {
            let word = word.to_owned();
            assert_eq!(error(line), ProtocolError::Number { word }, "{line:?}");
        }
        assert_eq!(error("PING\n"), ProtocolError::LineEnd);
        assert_eq!(error("MSG a 1 2\r\nhix\r\n"), ProtocolError::MessageEnd);
        let (headers, bytes) = (3, 2);
        let expected = ProtocolError::Headers { headers, bytes };
        assert_eq!(error("HMSG a 1 3 2\r\n"), expected);
        let start = "HTTP/1.1".to_owned();
        let expected = ProtocolError::Unknown { start };
        assert_eq!(error("HTTP/1.1 400 Bad Request\r\n"), expected);
        assert!(matches!(error("\r\n"), ProtocolError::Unknown { .. }));
    }

    #[test]
    fn lines_and_messages_have_bounds() {
        let subject = "a".repeat(LINE_BYTES_MAX - "MSG  1 2\r".len());
        let line = |subject: &str| format!("MSG {subject} 1 2\r\nhi\r\n");
        let (ops, refused) = parse_pieces([line(&subject).as_bytes()]);
        assert_eq!((ops.len(), refused), (1, None));
        let max = LINE_BYTES_MAX;
        let too_long = Some(ProtocolError::LineTooLong { max });
        let longer = line(&format!("{subject}a"));
        assert_eq!(parse_pieces([longer.as_bytes()]).1, too_long);
        let endless = vec![b'a'; LINE_BYTES_MAX + 1];
        assert_eq!(parse_pieces(endless.chunks(1_000)).1, too_long);

        let bytes = MESSAGE_BYTES_MAX as u64 + 1;
        let refused = error(format!("MSG a 1 {bytes}\r\n"));
        assert_eq!(refused, ProtocolError::MessageTooLong { bytes });
        assert_eq!(error(format!("HMSG a 1 {bytes} 1\r\n")), refused);
    }

    #[test]
    fn a_large_message_comes_in_pieces_and_leaves_a_small_buffer() {
        let payload: Vec<u8> = (0..3_000_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        let mut sent = format!("MSG a 1 {}\r\n", payload.len()).into_bytes();
        sent.extend_from_slice(&payload);
        sent.extend_from_slice(b"\r\nMSG b 2 2\r\nhi\r\nPI");
        let (mut parser, mut ops) = (Parser::new(), Vec::new());
        for piece in sent.chunks(READ_BYTES) {
            parser.room().put_slice(piece);
            while let Some(op) = parser.next_op().unwrap() {
                ops.push(op);
            }
        }
        let [Op::Message(large), Op::Message(small)] = &ops[..] else {
            panic!("{} operations", ops.len());
        };
        assert!(large.payload == payload);
        assert_eq!(*small, message("b", 2, None, b"hi"));
        assert!(parser.buffer.capacity() <= 2 * READ_BYTES);
        assert!(!parser.is_empty());
        parser.push(b"NG\r\n");
        assert_eq!(parser.next_op(), Ok(Some(Op::Ping)));
        assert!(parser.is_empty());
    }
}
