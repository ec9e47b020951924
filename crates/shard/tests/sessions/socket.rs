//! A client's connection over the simulated network: a WebSocket, or a response over HTTP that goes on.

use myriad_reactor::sim::{PeerEnd, PeerId, SimNet};
use myriad_wire::centrifuge::Encoding;
use myriad_wire::http::ChunkedBody;
use std::cell::RefCell;

/// How a client's messages travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    WebSocket,
    HttpStream,
    Sse,
}

/// What came.
#[derive(Debug)]
pub(crate) enum Event {
    Message(Vec<u8>),
    Close(u16),
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Socket {
    peer: PeerId,
    encoding: Encoding,
    way: Way,
    received: Vec<u8>,
    is_upgraded: bool,
    pub(crate) is_stalled: bool,
    /// Over HTTP: whether the first message was sent, which is the request's body.
    has_sent: RefCell<bool>,
    /// Over HTTP: messages that go in requests of their own.
    apart: RefCell<Vec<Vec<u8>>>,
    chunks: ChunkedBody,
    /// Data of chunks that is no whole message yet.
    data: Vec<u8>,
}

impl Socket {
    pub(crate) fn open(net: &SimNet, encoding: Encoding, way: Way) -> Self {
        let peer = net.connect();
        if way == Way::WebSocket {
            Self::upgrade(net, peer, encoding);
        }
        Self {
            peer,
            encoding,
            way,
            received: Vec::new(),
            is_upgraded: false,
            is_stalled: false,
            has_sent: RefCell::new(false),
            apart: RefCell::default(),
            chunks: ChunkedBody::default(),
            data: Vec::new(),
        }
    }

    fn upgrade(net: &SimNet, peer: PeerId, encoding: Encoding) {
        let query = match encoding {
            Encoding::Json => "",
            Encoding::Protobuf => "?cf_protocol=protobuf",
        };
        let request = format!(
            "GET /connection/websocket{query} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        );
        net.write(peer, request.as_bytes());
    }

    /// Sends the first message as the body of the request, and keeps the others until somebody takes them to the server. A part of
    /// a request never arrives as commands.
    fn send_over_http(&self, net: &SimNet, encoding: Encoding, message: &[u8], bytes: usize) {
        if self.has_sent.replace(true) {
            if bytes >= message.len() {
                self.apart.borrow_mut().push(message.to_vec());
            }
            return;
        }
        let path = match self.way {
            Way::Sse => "sse",
            Way::HttpStream | Way::WebSocket => "http_stream",
        };
        let content_type = match encoding {
            Encoding::Json => "application/json",
            Encoding::Protobuf => "application/octet-stream",
        };
        let length = message.len();
        let head = format!(
            "POST /connection/{path} HTTP/1.1\r\nHost: x\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n"
        );
        net.write(self.peer, &[head.as_bytes(), message].concat());
    }

    /// The messages that go in requests of their own.
    pub(crate) fn take_apart(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.apart.borrow_mut())
    }

    /// Sends a message in a masked frame, or only its first `bytes`.
    pub(crate) fn send(&self, net: &SimNet, encoding: Encoding, message: &[u8], bytes: usize) {
        if self.way != Way::WebSocket {
            return self.send_over_http(net, encoding, message, bytes);
        }
        let opcode = match encoding {
            Encoding::Json => 0x81,
            Encoding::Protobuf => 0x82,
        };
        let mut frame = vec![opcode];
        match u16::try_from(message.len()).expect("short messages") {
            short @ 0..=125 => frame.push(0x80 | short.to_be_bytes()[1]),
            long => {
                frame.push(0x80 | 126);
                frame.extend_from_slice(&long.to_be_bytes());
            }
        }
        frame.extend_from_slice(&[0; 4]);
        frame.extend_from_slice(message);
        frame.truncate(bytes);
        net.write(self.peer, &frame);
    }

    /// What has come since; true if anything did.
    pub(crate) fn receive(&mut self, net: &SimNet, events: &mut Vec<Event>) -> bool {
        if self.is_stalled {
            return false;
        }
        let bytes = net.read(self.peer);
        self.received.extend_from_slice(&bytes);
        if !self.is_upgraded {
            let head = self
                .received
                .windows(4)
                .position(|four| four == b"\r\n\r\n");
            let Some(end) = head else {
                return !bytes.is_empty();
            };
            let status = self.received.get(9..12).map(<[u8]>::to_vec);
            match (self.way, status.as_deref()) {
                (Way::WebSocket, Some(b"101")) | (Way::HttpStream | Way::Sse, Some(b"200")) => {}
                // Time may leap while the body is under way.
                (Way::HttpStream | Way::Sse, Some(b"408")) => {
                    events.push(Event::Close(408));
                    return true;
                }
                (way, status) => panic!("{way:?} is answered {status:?}"),
            }
            self.received.drain(..end + 4);
            self.is_upgraded = true;
        }
        if self.way != Way::WebSocket {
            self.read_chunks(events);
            return !bytes.is_empty();
        }
        while let Some((event, length)) = next_frame(&self.received) {
            self.received.drain(..length);
            events.push(event);
        }
        !bytes.is_empty()
    }

    /// Takes messages out of the chunks that have come.
    fn read_chunks(&mut self, events: &mut Vec<Event>) {
        let received = std::mem::take(&mut self.received);
        let taken = self.chunks.decode(&received, &mut self.data, usize::MAX);
        let taken = taken.expect("chunks").expect("without a limit");
        assert_eq!(taken, received.len(), "nothing comes behind the last chunk");
        while let Some((message, length)) = self.next_message() {
            self.data.drain(..length);
            if !message.is_empty() {
                events.push(Event::Message(message));
            }
        }
        assert!(
            !self.chunks.is_done() || self.data.is_empty(),
            "messages come whole"
        );
    }

    /// The first whole message and its length, with what stands behind it.
    fn next_message(&self) -> Option<(Vec<u8>, usize)> {
        if self.encoding == Encoding::Protobuf {
            // Protobuf: its length, then as many bytes.
            let mut length = 0;
            for (index, byte) in self.data.iter().enumerate() {
                length |= usize::from(byte & 0x7f) << (7 * index);
                if byte & 0x80 == 0 {
                    let end = index + 1 + length;
                    return Some((self.data.get(..end)?.to_vec(), end));
                }
            }
            return None;
        }
        let end = self.data.iter().position(|byte| *byte == b'\n')?;
        let line = self.data[..end].trim_ascii_end();
        let line = match self.way {
            Way::Sse if !line.is_empty() => line.strip_prefix(b"data: ").expect("data"),
            _ => line,
        };
        Some((line.to_vec(), end + 1))
    }

    pub(crate) fn end(&self, net: &SimNet) -> Option<PeerEnd> {
        if self.is_stalled {
            return None;
        }
        net.end(self.peer)
    }

    pub(crate) fn stall(&mut self, net: &SimNet) {
        self.is_stalled = true;
        net.stall(self.peer);
    }

    pub(crate) fn resume(&mut self, net: &SimNet) {
        self.is_stalled = false;
        net.resume(self.peer);
    }

    pub(crate) fn leave(&self, net: &SimNet, resets: bool) {
        if resets {
            net.reset(self.peer);
        } else {
            net.close(self.peer);
        }
    }
}

/// The first whole frame and its length. A server does not mask, and does not split what we read here.
fn next_frame(bytes: &[u8]) -> Option<(Event, usize)> {
    let (&first, &second) = (bytes.first()?, bytes.get(1)?);
    assert_eq!(first & 0xf0, 0x80, "a whole frame without extensions");
    let (start, length) = match second {
        length @ 0..=125 => (2, usize::from(length)),
        126 => {
            let bytes = bytes.get(2..4)?.try_into().expect("two bytes");
            (4, usize::from(u16::from_be_bytes(bytes)))
        }
        _ => {
            let bytes = bytes.get(2..10)?.try_into().expect("eight bytes");
            (
                10,
                usize::try_from(u64::from_be_bytes(bytes)).expect("small"),
            )
        }
    };
    let payload = bytes.get(start..start + length)?;
    let event = match first & 0x0f {
        1 | 2 => Event::Message(payload.to_vec()),
        8 => {
            let code = payload.get(..2).map_or(0, |code| {
                u16::from_be_bytes(code.try_into().expect("two bytes"))
            });
            Event::Close(code)
        }
        other => panic!("no frame of the kind {other} is sent to these clients"),
    };
    Some((event, start + length))
}
