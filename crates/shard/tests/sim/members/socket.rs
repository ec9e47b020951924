//! A client's connection over the simulated network: a WebSocket, or a response over HTTP that goes on.

use crate::secured::Net;
use myriad_reactor::sim::{PeerEnd, PeerId};
use myriad_wire::centrifuge::Encoding;
use myriad_wire::http::ChunkedBody;
use std::cell::RefCell;

/// How a client's messages travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    WebSocket,
    HttpStream,
    Sse,
    UniWebSocket,
    UniHttpStream,
    UniSse,
}

impl Way {
    /// The client sends one request, and no commands.
    pub(crate) fn is_unidirectional(self) -> bool {
        matches!(
            self,
            Self::UniWebSocket | Self::UniHttpStream | Self::UniSse
        )
    }

    /// Commands go in requests of their own.
    pub(crate) fn is_emulated(self) -> bool {
        matches!(self, Self::HttpStream | Self::Sse)
    }

    fn is_websocket(self) -> bool {
        matches!(self, Self::WebSocket | Self::UniWebSocket)
    }

    fn path(self) -> &'static str {
        match self {
            Self::WebSocket => "/connection/websocket",
            Self::HttpStream => "/connection/http_stream",
            Self::Sse => "/connection/sse",
            Self::UniWebSocket => "/connection/uni_websocket",
            Self::UniHttpStream => "/connection/uni_http_stream",
            Self::UniSse => "/connection/uni_sse",
        }
    }
}

/// What came.
#[derive(Debug)]
pub(crate) enum Event {
    Message(Vec<u8>),
    /// An event is over whose id says where its channel stands.
    Place(String),
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
    /// The id of the event that comes.
    event_id: Option<String>,
    /// The id of the last event that the client had before, which its request says.
    pub(super) last_event_id: Option<String>,
}

impl Socket {
    pub(crate) fn open(net: &Net, encoding: Encoding, way: Way) -> Self {
        let peer = net.connect();
        if way.is_websocket() {
            Self::upgrade(net, peer, encoding, way);
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
            event_id: None,
            last_event_id: None,
        }
    }

    fn upgrade(net: &Net, peer: PeerId, encoding: Encoding, way: Way) {
        let path = way.path();
        let query = match encoding {
            Encoding::Json => "",
            Encoding::Protobuf => "?cf_protocol=protobuf",
        };
        let request = format!(
            "GET {path}{query} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        );
        net.write(peer, request.as_bytes());
    }

    /// Sends the first message as the body of the request, and keeps the others until somebody takes them to the server. A part of
    /// a request never arrives as commands.
    fn send_over_http(&self, net: &Net, encoding: Encoding, message: &[u8], bytes: usize) {
        if self.has_sent.replace(true) {
            if bytes >= message.len() {
                self.apart.borrow_mut().push(message.to_vec());
            }
            return;
        }
        let path = self.way.path();
        let content_type = match encoding {
            Encoding::Json => "application/json",
            Encoding::Protobuf => "application/octet-stream",
        };
        let length = message.len();
        let last = self.last_event_id.as_ref();
        let last = last.map_or_else(String::new, |id| format!("Last-Event-ID: {id}\r\n"));
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n{last}\r\n"
        );
        net.write(self.peer, &[head.as_bytes(), message].concat());
    }

    /// The messages that go in requests of their own.
    pub(crate) fn take_apart(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.apart.borrow_mut())
    }

    /// Sends a message in a masked frame, or only its first `bytes`.
    pub(crate) fn send(&self, net: &Net, encoding: Encoding, message: &[u8], bytes: usize) {
        if !self.way.is_websocket() {
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
    pub(crate) fn receive(&mut self, net: &Net, events: &mut Vec<Event>) -> bool {
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
                (way, Some(b"101")) if way.is_websocket() => {}
                (way, Some(b"200")) if !way.is_websocket() => {}
                // Time may leap while the request is under way, and there may be no room for it.
                (_, Some(status @ (b"408" | b"503"))) => {
                    let code = if status == b"408" { 408 } else { 503 };
                    events.push(Event::Close(code));
                    return true;
                }
                (way, status) => panic!("{way:?} is answered {status:?}"),
            }
            self.received.drain(..end + 4);
            self.is_upgraded = true;
        }
        if !self.way.is_websocket() {
            self.read_chunks(events);
            return !bytes.is_empty();
        }
        while let Some((event, length)) = next_frame(&self.received) {
            self.received.drain(..length);
            match event {
                Some(event) => events.push(event),
                // Clients without commands answer pings all the same.
                None => drop(net.write(self.peer, &[0x8a, 0x80, 0, 0, 0, 0])),
            }
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
            if let Some(id) = self.event_id_in(&message) {
                self.event_id = Some(id);
            } else if !message.is_empty() {
                events.push(Event::Message(message));
            } else if let Some(id) = self.event_id.take() {
                events.push(Event::Place(id));
            }
        }
        assert!(
            !self.chunks.is_done() || self.data.is_empty(),
            "messages come whole"
        );
    }

    /// The id of an event, if that is what the line says. Only clients without commands get ids.
    fn event_id_in(&self, line: &[u8]) -> Option<String> {
        let id = line
            .strip_prefix(b"id: ")
            .filter(|_| self.way == Way::UniSse)?;
        Some(String::from_utf8(id.to_vec()).expect("text"))
    }

    /// The first whole message and its length, with what stands behind it. Of events: a field, or the end of one.
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
            Way::UniSse if line.starts_with(b"id: ") => line,
            Way::Sse | Way::UniSse if !line.is_empty() => {
                line.strip_prefix(b"data: ").expect("data")
            }
            _ => line,
        };
        Some((line.to_vec(), end + 1))
    }

    pub(crate) fn end(&self, net: &Net) -> Option<PeerEnd> {
        if self.is_stalled {
            return None;
        }
        net.end(self.peer)
    }

    pub(crate) fn stall(&mut self, net: &Net) {
        self.is_stalled = true;
        net.stall(self.peer);
    }

    pub(crate) fn resume(&mut self, net: &Net) {
        self.is_stalled = false;
        net.resume(self.peer);
    }

    pub(crate) fn leave(&self, net: &Net, resets: bool) {
        if resets {
            net.reset(self.peer);
        } else {
            net.close(self.peer);
        }
    }
}

/// The first whole frame and its length; no event for a ping. A server does not mask, and does not split what we read here.
fn next_frame(bytes: &[u8]) -> Option<(Option<Event>, usize)> {
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
        1 | 2 => Some(Event::Message(payload.to_vec())),
        9 => None,
        8 => {
            let code = payload.get(..2).map_or(0, |code| {
                u16::from_be_bytes(code.try_into().expect("two bytes"))
            });
            Some(Event::Close(code))
        }
        other => panic!("no frame of the kind {other} is sent to these clients"),
    };
    Some((event, start + length))
}
