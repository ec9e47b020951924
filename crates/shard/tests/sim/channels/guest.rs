//! Clients whose response goes on: they send one request, and read what the server says until the response ends.

use super::answer::decode_chunks;
use super::facts::Facts;
use crate::secured::Net;
use myriad_reactor::sim::{PeerEnd, PeerId, Prng};
use myriad_wire::http::{ChunkedBody, HeadLimits, parse_response};

/// What a guest does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// The control plane cannot say whose its token is.
    Token,
    /// It sends something behind its request.
    Behind,
}

#[derive(Debug)]
pub(super) struct Guest {
    id: PeerId,
    fault: Fault,
    has_sent_behind: bool,
    received: Vec<u8>,
    /// The body of its response, once the head has come.
    body: Option<ChunkedBody>,
    text: Vec<u8>,
    came_at: u64,
    is_gone: bool,
}

impl Guest {
    /// Connects, and sends its request.
    pub(super) fn come(net: &Net, prng: &mut Prng, now: u64) -> Self {
        let id = net.connect();
        let fault = *prng.pick(&[Fault::None, Fault::Token, Fault::Behind]);
        let request = match fault {
            Fault::Token => r#"{"token":"later.1"}"#,
            Fault::None | Fault::Behind => "{}",
        };
        let path = *prng.pick(&["/connection/uni_http_stream", "/connection/uni_sse"]);
        let length = request.len();
        let text =
            format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{request}");
        net.write(id, text.as_bytes());
        Self {
            id,
            fault,
            has_sent_behind: false,
            received: Vec::new(),
            body: None,
            text: Vec::new(),
            came_at: now,
            is_gone: false,
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone
    }

    pub(super) fn act(&mut self, net: &Net, prng: &mut Prng) {
        match prng.below(8) {
            0 => self.leave(net, prng),
            1..4 if self.fault == Fault::Behind && self.body.is_some() => {
                net.write(self.id, b"GET / HTTP/1.1\r\n\r\n");
                self.has_sent_behind = true;
            }
            _ => {}
        }
    }

    pub(super) fn leave(&mut self, net: &Net, prng: &mut Prng) {
        if prng.one_in(2) {
            net.reset(self.id);
        } else {
            net.close(self.id);
        }
        self.is_gone = true;
    }

    /// Reads what has come; true if anything did.
    pub(super) fn receive(&mut self, net: &Net, facts: &mut Facts) -> bool {
        if self.is_gone {
            return false;
        }
        let mut bytes = net.read(self.id);
        let end = net.end(self.id);
        // The end may have come with more bytes.
        bytes.extend(net.read(self.id));
        self.received.extend_from_slice(&bytes);
        self.decode(facts);
        if let Some(how) = end {
            if net.is_heard(self.id) {
                self.check_end(how, facts);
            }

            net.close(self.id);
            self.is_gone = true;
        }
        !bytes.is_empty() || end.is_some()
    }

    fn decode(&mut self, facts: &Facts) {
        if self.body.is_none() && !self.received.is_empty() {
            let head = parse_response(&self.received, HeadLimits::default());
            let Some(head) = head.unwrap_or_else(|fault| {
                panic!("{fault}: {:?}", String::from_utf8_lossy(&self.received))
            }) else {
                return;
            };
            if head.status() != 200 {
                let is_unavailable = facts.may_end_strangers() || facts.is_draining;
                assert!(is_unavailable && head.status() == 503, "{}", head.status());
                return;
            }
            let head_bytes = head.head_bytes();
            self.received.drain(..head_bytes);
            self.body = Some(ChunkedBody::default());
        }
        if let Some(body) = &mut self.body {
            decode_chunks(body, &self.received, &mut self.text);
            self.received.clear();
        }
    }

    /// Why the server has ended its response follows from what it did, and the response is whole.
    fn check_end(&self, how: PeerEnd, facts: &mut Facts) {
        let has_lingered = how == PeerEnd::Reset && facts.may_have_lingered(self.came_at);
        if facts.is_draining || facts.may_end_strangers() || has_lingered {
            return;
        }
        let body = self.body.as_ref().expect("a response");
        assert!(body.is_done(), "a last chunk comes first");
        let text = String::from_utf8_lossy(&self.text);
        facts.note(match self.fault {
            Fault::Token => {
                // Or it is late for both.
                let is_told =
                    ["3004", "3502"].map(|code| text.contains(&format!("\"code\":{code}")));
                assert_ne!(is_told, [false; 2], "{text}");
                "readers: a guest's token cannot be verified"
            }
            Fault::Behind if self.has_sent_behind => "readers: a guest sends too much",
            _ => panic!("nothing ends a guest's response: {text}"),
        });
    }
}
