//! A stream of events, as a client reads it.

use super::answer::{Answer, decode_base64, decode_chunks, numbers_in};
use myriad_shard::StreamOffset;
use myriad_wire::http::ChunkedBody;
use serde_json::Value;

/// What an event says.
#[derive(Debug)]
pub(super) enum Event {
    /// Publications, and where the reader is behind them.
    Part(Part),
    /// Nothing, to show that the stream is alive.
    Comment,
}

#[derive(Debug)]
pub(super) struct Part {
    pub(super) numbers: Vec<usize>,
    pub(super) next: StreamOffset,
    pub(super) cursor: Option<u64>,
    pub(super) is_up_to_date: bool,
    pub(super) is_closed: bool,
}

#[derive(Debug)]
pub(super) struct Events {
    /// None: the body lasts as long as its connection.
    chunks: Option<ChunkedBody>,
    is_base64: bool,
    text: Vec<u8>,
    /// Publications whose position has not come.
    numbers: Vec<usize>,
    /// The position that was told last.
    pub(super) at: Option<StreamOffset>,
    pub(super) is_closed: bool,
    pub(super) last_came_at: u64,
}

impl Events {
    pub(super) fn new(answer: &Answer, now: u64) -> Self {
        Self {
            chunks: answer.is_chunked.then(ChunkedBody::default),
            is_base64: answer.is_base64,
            text: Vec::new(),
            numbers: Vec::new(),
            at: None,
            is_closed: false,
            last_came_at: now,
        }
    }

    pub(super) fn is_base64(&self) -> bool {
        self.is_base64
    }

    /// Whether the body has come to its end, as far as it says so.
    pub(super) fn is_over(&self) -> bool {
        self.chunks.as_ref().is_some_and(ChunkedBody::is_done)
    }

    /// Nothing is left that is no whole event.
    pub(super) fn is_whole(&self) -> bool {
        self.text.is_empty() && self.numbers.is_empty()
    }

    /// Takes bytes of the body in.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        match &mut self.chunks {
            Some(chunks) => decode_chunks(chunks, bytes, &mut self.text),
            None => self.text.extend_from_slice(bytes),
        }
    }

    /// The next event.
    pub(super) fn next(&mut self) -> Option<Event> {
        loop {
            let end = self.text.windows(2).position(|two| two == b"\n\n")?;
            let event: Vec<u8> = self.text.drain(..end + 2).collect();
            let event = String::from_utf8(event).expect("text");
            let event = event.trim_end_matches('\n');
            if event == ":" {
                return Some(Event::Comment);
            }
            let lines = event.lines().filter_map(|line| line.split_once(':'));
            let of = |name: &'static str| {
                let named = lines.clone().filter(move |(known, _)| *known == name);
                named.map(|(_, value)| value.strip_prefix(' ').unwrap_or(value))
            };
            let data = of("data").collect::<Vec<_>>().join("\n");
            match of("event").next() {
                Some("data") => {
                    assert!(self.numbers.is_empty(), "a position follows data");
                    self.numbers = if self.is_base64 {
                        numbers_in(&decode_base64(data.as_bytes()))
                    } else {
                        numbers_in(data.as_bytes())
                    };
                    assert!(!self.numbers.is_empty(), "data of a publication");
                }
                Some("control") => {
                    let part = self.part(&data);
                    assert_eq!(
                        of("id").next(),
                        Some(&*part.next.to_string()),
                        "it is the id"
                    );
                    return Some(Event::Part(part));
                }
                other => panic!("an event of type {other:?}"),
            }
        }
    }

    fn part(&mut self, data: &str) -> Part {
        let control: Value = serde_json::from_str(data).expect("JSON");
        let text = |name: &str| control[name].as_str();
        let next = text("streamNextOffset").expect("a position");
        let is_closed = control["streamClosed"] == true;
        assert!(!self.is_closed, "nothing comes behind the end");
        Part {
            numbers: std::mem::take(&mut self.numbers),
            next: StreamOffset::parse(next).expect("a token of ours"),
            cursor: text("streamCursor").map(|cursor| cursor.parse().expect("a number")),
            is_up_to_date: control["upToDate"] == true,
            is_closed,
        }
    }
}
