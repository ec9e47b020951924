//! A client's WebSocket over the simulated network.

use myriad_reactor::sim::{PeerEnd, PeerId, SimNet};
use myriad_wire::centrifuge::Encoding;

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
    received: Vec<u8>,
    is_upgraded: bool,
    pub(crate) is_stalled: bool,
}

impl Socket {
    pub(crate) fn open(net: &SimNet, encoding: Encoding) -> Self {
        let peer = net.connect();
        let query = match encoding {
            Encoding::Json => "",
            Encoding::Protobuf => "?cf_protocol=protobuf",
        };
        let request = format!(
            "GET /connection/websocket{query} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        );
        net.write(peer, request.as_bytes());
        Self {
            peer,
            received: Vec::new(),
            is_upgraded: false,
            is_stalled: false,
        }
    }

    /// Sends a message in a masked frame, or only its first `bytes`.
    pub(crate) fn send(&self, net: &SimNet, encoding: Encoding, message: &[u8], bytes: usize) {
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
            assert!(self.received.starts_with(b"HTTP/1.1 101 "), "upgraded");
            self.received.drain(..end + 4);
            self.is_upgraded = true;
        }
        while let Some((event, length)) = next_frame(&self.received) {
            self.received.drain(..length);
            events.push(event);
        }
        !bytes.is_empty()
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
