//! What an answer says, and the publications in a body.

use super::limited::Refusal;
use myriad_shard::StreamOffset;
use myriad_wire::http::{ChunkedBody, HeadLimits, parse_response};
use serde_json::Value;

/// The head of an answer; its body, if it has a length.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) next: Option<StreamOffset>,
    pub(super) is_up_to_date: bool,
    pub(super) is_closed: bool,
    pub(super) cursor: Option<u64>,
    pub(super) etag: Option<String>,
    pub(super) closes: bool,
    /// Seconds.
    pub(super) retry_after: Option<u64>,
    pub(super) is_chunked: bool,
    pub(super) is_base64: bool,
    pub(super) body: Vec<u8>,
}

impl Answer {
    /// The first answer in what was received, and its length; none until it is whole. A stream of events has no body here.
    pub(super) fn of(received: &[u8]) -> Option<(Self, usize)> {
        let head = parse_response(received, HeadLimits::default());
        let shown = || String::from_utf8_lossy(received);
        let head = head.unwrap_or_else(|error| panic!("{error:?}: {}", shown()))?;
        let header = |name: &str| {
            let value = head.header(name)?;
            Some(String::from_utf8(value.to_vec()).expect("text"))
        };
        let has = |name: &str, value: &str| header(name).is_some_and(|known| known == value);
        let length = header("content-length").map_or(0, |text| text.parse().expect("a length"));
        let end = head.head_bytes() + length;
        let body = received.get(head.head_bytes()..end)?.to_vec();
        let next = header("stream-next-offset");
        let next = next.map(|token| StreamOffset::parse(&token).expect("a token of ours"));
        let answer = Self {
            status: head.status(),
            next,
            is_up_to_date: has("stream-up-to-date", "true"),
            is_closed: has("stream-closed", "true"),
            cursor: header("stream-cursor").map(|text| text.parse().expect("a number")),
            etag: header("etag"),
            closes: has("connection", "close"),
            retry_after: header("retry-after").map(|text| text.parse().expect("seconds")),
            is_chunked: has("transfer-encoding", "chunked"),
            is_base64: has("stream-sse-data-encoding", "base64"),
            body,
        };
        Some((answer, end))
    }

    /// Whether it says that the channel's namespace is not configured.
    pub(super) fn misses_namespace(&self) -> bool {
        let said: &[u8] = b"not configured";
        self.body.windows(said.len()).any(|words| words == said)
    }

    /// Whether it refuses a request because the connection has sent too many.
    pub(super) fn refusal(&self) -> Refusal {
        let is_one = self.status == 429 && self.body.starts_with(br#"{"error":{"code":"reads""#);
        match (is_one, self.closes) {
            (false, _) => Refusal::None,
            (true, false) => Refusal::Once,
            (true, true) => Refusal::Last,
        }
    }
}

/// The numbers of the publications in a body, or in the data of an event.
pub(super) fn numbers_in(body: &[u8]) -> Vec<usize> {
    if body.first() == Some(&b'[') {
        let all: Vec<Value> = serde_json::from_slice(body).expect("a JSON array");
        let number = |value: &Value| value["n"].as_u64().expect("a number of ours");
        let numbers = all.iter().map(number);
        return numbers
            .map(|number| usize::try_from(number).expect("small"))
            .collect();
    }
    let text = str::from_utf8(body).expect("text");
    let mut entries: Vec<&str> = text.split(';').collect();
    assert_eq!(entries.pop(), Some(""), "publications are whole");
    let number = |entry: &&str| {
        let (number, filler) = entry.split_once('\n').expect("an end of its number");
        assert!(filler.bytes().all(|byte| byte == b'x'), "{entry}");
        number.parse().expect("a number")
    };
    entries.iter().map(number).collect()
}

/// Takes all of the bytes into a body in chunks, and puts its text behind `text`.
pub(super) fn decode_chunks(body: &mut ChunkedBody, bytes: &[u8], text: &mut Vec<u8>) {
    let taken = body.decode(bytes, text, usize::MAX);
    let taken = taken.expect("chunks").expect("without a limit");
    assert_eq!(taken, bytes.len(), "nothing comes behind the last chunk");
}

/// What a text in base64 stands for (RFC 4648, section 4).
pub(super) fn decode_base64(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for four in text.chunks(4) {
        let is_data = |byte: &&u8| **byte != b'=';
        let count = four.iter().filter(is_data).count();
        let value = |byte: &u8| match byte {
            b'A'..=b'Z' => u32::from(byte - b'A'),
            b'a'..=b'z' => u32::from(byte - b'a') + 26,
            b'0'..=b'9' => u32::from(byte - b'0') + 52,
            b'+' => 62,
            b'/' => 63,
            _ => 0,
        };
        assert_eq!(four.len(), 4, "whole groups");
        let bits = four.iter().fold(0, |bits, byte| bits << 6 | value(byte));
        bytes.extend_from_slice(&bits.to_be_bytes()[1..count]);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_read_back() {
        for (text, bytes) in [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo")] {
            assert_eq!(decode_base64(text.as_bytes()), bytes.as_bytes());
        }
        assert_eq!(decode_base64(b"+/8="), [0xfb, 0xff]);
    }
}
