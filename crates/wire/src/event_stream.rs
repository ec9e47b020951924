//! Server-sent events, as a client reads them (WHATWG HTML, "Server-sent events", section 9.2.6).

/// What a stream of events says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamItem<'a> {
    /// An event with data.
    Event {
        /// Its type; empty where it has the default one, `message`.
        kind: &'a [u8],
        /// Its data: the lines, with line feeds between them.
        data: &'a [u8],
    },
    /// From now on this is the id of the last event.
    Id(&'a [u8]),
    /// A comment, which servers send as a heartbeat.
    Comment,
    /// Milliseconds that the client is to wait before it connects again.
    Retry(u64),
}

/// Reads a stream of events in pieces of any size. It keeps the lines of an event until the event is complete.
///
/// An id without data counts as well, as in browsers: it is told when its event ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventStream {
    /// The beginning of a line.
    line: Vec<u8>,
    /// The last piece ended with CR: a LF at the beginning of the next one belongs to it.
    is_after_cr: bool,
    /// Of the event under way: its lines of data, each with a line feed behind it.
    data: Vec<u8>,
    kind: Vec<u8>,
    id: Option<Vec<u8>>,
}

impl EventStream {
    /// Whether nothing is incomplete: a fresh reader would read on from here in the same way.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        *self == Self::default()
    }

    /// Bytes that are kept of an incomplete event.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        let id = self.id.as_ref().map_or(0, Vec::len);
        self.line.len() + self.data.len() + self.kind.len() + id
    }

    /// Reads the next piece, and tells `hear` what it says.
    ///
    /// The byte order mark that may stand at the beginning of a stream is the caller's to skip.
    pub fn read(&mut self, piece: &[u8], mut hear: impl FnMut(StreamItem<'_>)) {
        let mut rest = piece;
        if self.is_after_cr && !rest.is_empty() {
            self.is_after_cr = false;
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        while let Some(end) = memchr::memchr2(b'\n', b'\r', rest) {
            let (line, after) = (&rest[..end], &rest[end + 1..]);
            if self.line.is_empty() {
                self.read_line(line, &mut hear);
            } else {
                let mut whole = std::mem::take(&mut self.line);
                whole.extend_from_slice(line);
                self.read_line(&whole, &mut hear);
            }
            let is_cr = rest[end] == b'\r';
            self.is_after_cr = is_cr && after.is_empty();
            rest = match after.strip_prefix(b"\n") {
                Some(after) if is_cr => after,
                _ => after,
            };
        }
        self.line.extend_from_slice(rest);
    }

    fn read_line(&mut self, line: &[u8], hear: &mut impl FnMut(StreamItem<'_>)) {
        if line.is_empty() {
            return self.end_event(hear);
        }
        let (field, value) = match memchr::memchr(b':', line) {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &b""[..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"" => hear(StreamItem::Comment),
            b"data" => {
                self.data.extend_from_slice(value);
                self.data.push(b'\n');
            }
            b"event" => self.kind = value.to_vec(),
            // An id with a NUL is to be ignored.
            b"id" if !value.contains(&0) => self.id = Some(value.to_vec()),
            b"retry" => {
                let digits = std::str::from_utf8(value).ok();
                let digits = digits.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
                if let Some(millis) = digits.and_then(|text| text.parse().ok()) {
                    hear(StreamItem::Retry(millis));
                }
            }
            _ => {}
        }
    }

    fn end_event(&mut self, hear: &mut impl FnMut(StreamItem<'_>)) {
        if let Some(id) = self.id.take() {
            hear(StreamItem::Id(&id));
        }
        if let Some((_, data)) = self.data.split_last() {
            let kind = &self.kind;
            hear(StreamItem::Event { kind, data });
        }
        self.data.clear();
        self.kind.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(pieces: &[&[u8]]) -> Vec<String> {
        let (mut stream, mut told) = (EventStream::default(), Vec::new());
        for piece in pieces {
            stream.read(piece, |item| {
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                told.push(match item {
                    StreamItem::Event { kind, data } => format!("{}={}", text(kind), text(data)),
                    StreamItem::Id(id) => format!("id {}", text(id)),
                    StreamItem::Comment => "comment".to_owned(),
                    StreamItem::Retry(millis) => format!("retry {millis}"),
                });
            });
        }
        assert!(stream.is_at_rest(), "{stream:?}");
        told
    }

    /// The same, whatever the pieces it comes in.
    fn told_of(text: &str) -> Vec<String> {
        let whole = told(&[text.as_bytes()]);
        for cut in 0..=text.len() {
            let (front, back) = text.as_bytes().split_at(cut);
            assert_eq!(told(&[front, back]), whole, "{text:?} cut at {cut}");
        }
        let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(told(&bytes), whole, "{text:?} in bytes");
        whole
    }

    #[test]
    fn the_examples_of_the_standard_are_read() {
        assert_eq!(
            told_of("data: YHOO\ndata: +2\ndata: 10\n\n"),
            ["=YHOO\n+2\n10"]
        );
        let stream = ": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n";
        assert_eq!(
            told_of(stream),
            [
                "comment",
                "id 1",
                "=first event",
                "id ",
                "=second event",
                "= third event"
            ]
        );
        // The last block has no blank line behind it, and is no event; here it gets one.
        assert_eq!(told_of("data\n\ndata\ndata\n\n"), ["=", "=\n"]);
    }

    #[test]
    fn lines_end_in_three_ways() {
        for end in ["\n", "\r\n", "\r"] {
            let text = "event: data|data: a|data: b||:|retry: 1500|id: 7||".replace('|', end);
            let mut expected = vec!["data=a\nb", "comment", "retry 1500", "id 7"];
            if end == "\r" {
                // Whether a LF follows is not known at the end.
                let text = format!("{text}data: c\n\n");
                expected.push("=c");
                assert_eq!(told_of(&text), expected);
            } else {
                assert_eq!(told_of(&text), expected);
            }
        }
    }

    #[test]
    fn what_means_nothing_is_passed_over() {
        let text = "retry: 1.5\nretry:\nid: a\0b\nunknown: x\nevent: x\n\n\n\n:\n";
        assert_eq!(told_of(text), ["comment"]);
    }

    #[test]
    fn an_incomplete_event_is_counted() {
        let mut stream = EventStream::default();
        stream.read(b"data: abc\nid: 1\nda", |item| panic!("{item:?}"));
        assert_eq!(stream.kept_bytes(), 4 + 1 + 2);
        assert!(!stream.is_at_rest());
    }
}
