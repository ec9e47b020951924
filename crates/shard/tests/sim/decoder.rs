//! What a peer reads: HTTP responses and unmasked frames.
//!
//! A decoder of its own, written from RFC 9112 and RFC 6455 and stricter than a client need be, so that a mistake in
//! the server's codec cannot hide itself.

use crate::compression::inflate;

/// What `Sec-WebSocket-Accept` must be for the key that all peers send (RFC 6455, section 1.3).
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// Something whole that came from the server.
#[derive(Debug)]
pub(crate) enum Item {
    Upgraded {
        /// The value of `Sec-WebSocket-Extensions`.
        extension: Option<String>,
    },
    Response {
        status: u16,
        headers: Vec<(String, String)>,
        body: Vec<u8>,
    },
    Frame {
        opcode: u8,
        payload: Vec<u8>,
    },
}

#[derive(Debug)]
enum Stage {
    Head,
    Frames,
    /// After a response or a close frame nothing may come.
    Over,
}

#[derive(Debug)]
pub(crate) struct Decoder {
    bytes: Vec<u8>,
    total: u64,
    stage: Stage,
    /// The window agreed to for compressed messages.
    window: Option<u8>,
}

impl Decoder {
    pub(crate) fn new() -> Self {
        Self {
            bytes: Vec::new(),
            total: 0,
            stage: Stage::Head,
            window: None,
        }
    }

    /// Compressed messages may come from now on.
    pub(crate) fn agree(&mut self, window: Option<u8>) {
        self.window = window;
    }

    pub(crate) fn window(&self) -> Option<u8> {
        self.window
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        self.bytes.extend_from_slice(bytes);
    }

    /// Bytes that ever came.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Whether the server has stopped in the middle of something.
    pub(crate) fn is_partial(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// The next whole thing.
    pub(crate) fn next(&mut self) -> Option<Item> {
        match self.stage {
            Stage::Head => self.next_response(),
            Stage::Frames => self.next_frame(),
            Stage::Over => {
                assert!(
                    self.bytes.is_empty(),
                    "bytes after the final chunk: {:?}",
                    self.bytes
                );
                None
            }
        }
    }

    fn next_response(&mut self) -> Option<Item> {
        assert!(
            b"HTTP/1.1 ".starts_with(&self.bytes[..self.bytes.len().min(9)]),
            "no HTTP response: {:?}",
            self.bytes
        );
        let end = self.bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
        let head = str::from_utf8(&self.bytes[..end]).expect("a head of text");
        let mut lines = head.trim_end_matches("\r\n").split("\r\n");
        let status: u16 = lines.next().expect("a status line")[9..12]
            .parse()
            .expect("a status");
        let headers: Vec<(String, String)> = lines
            .map(|line| line.split_once(": ").expect("a header line"))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let header = |wanted: &str| {
            headers
                .iter()
                .find(|(name, _)| name == wanted)
                .map(|(_, value)| value.as_str())
        };
        if status == 101 {
            assert_eq!(header("sec-websocket-accept"), Some(ACCEPT));
            assert_eq!(header("upgrade"), Some("websocket"));
            let extension = header("sec-websocket-extensions").map(str::to_owned);
            self.bytes.drain(..end);
            self.stage = Stage::Frames;
            return Some(Item::Upgraded { extension });
        }
        let length: usize = header("content-length")
            .expect("a length")
            .parse()
            .expect("a number");
        if self.bytes.len() < end + length {
            return None;
        }
        let body = self.bytes.drain(..end + length).skip(end).collect();
        self.stage = Stage::Over;
        Some(Item::Response {
            status,
            headers,
            body,
        })
    }

    fn next_frame(&mut self) -> Option<Item> {
        let &[first, second, ..] = &self.bytes[..] else {
            return None;
        };
        let is_compressed = first & 0x40 != 0;
        assert_eq!(first & 0xb0, 0x80, "the server does not fragment");
        assert!(
            !is_compressed || self.window.is_some() && matches!(first & 0x0f, 1 | 2),
            "compressed though that was not agreed to"
        );
        assert_eq!(second & 0x80, 0, "the server does not mask");
        let number = |range: std::ops::Range<usize>| {
            let bytes = self.bytes.get(range)?;
            Some(
                bytes
                    .iter()
                    .fold(0u64, |sum, byte| sum << 8 | u64::from(*byte)),
            )
        };
        let (header, length) = match second {
            126 => (4, number(2..4)?),
            127 => (10, number(2..10)?),
            short => (2, u64::from(short)),
        };
        let shortest = match length {
            0..=125 => 2,
            126..=0xffff => 4,
            _ => 10,
        };
        assert_eq!(header, shortest, "a length takes its shortest form");
        let end = header + usize::try_from(length).expect("no frame is that large");
        if self.bytes.len() < end {
            return None;
        }
        let mut payload: Vec<u8> = self.bytes.drain(..end).skip(header).collect();
        if let Some(window) = self.window.filter(|_| is_compressed) {
            payload = inflate(&payload, window);
        }
        let opcode = first & 0x0f;
        match opcode {
            1 => assert!(str::from_utf8(&payload).is_ok(), "text is UTF-8"),
            2 => {}
            8..=10 => assert!(payload.len() <= 125, "control frames are short"),
            _ => panic!("opcode {opcode}"),
        }
        if opcode == 8 {
            self.stage = Stage::Over;
        }
        Some(Item::Frame { opcode, payload })
    }
}

/// The code and reason of a close frame.
pub(crate) fn close_of(payload: &[u8]) -> Option<(u16, String)> {
    match payload {
        [] => None,
        [high, low, reason @ ..] => Some((
            u16::from_be_bytes([*high, *low]),
            String::from_utf8(reason.to_vec()).expect("a reason is UTF-8"),
        )),
        [_] => panic!("a close frame of one byte"),
    }
}
