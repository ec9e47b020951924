//! Input that breaks rules or patience: its exact answer, its metric, its memory back, and nobody else the worse.

mod boundaries;
#[path = "../../../../../tests/hostile/cases.rs"]
mod cases;
mod corpus;
mod frames;
mod handshakes;
mod heads;
mod patience;
mod planes;
mod sockets;
mod verdicts;

use crate::support::{Running, head, metric, next_text, publish_ok, start, until, websocket};
use myriad_server::{Options, Span};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;
use tungstenite::WebSocket;

const PATIENCE: Duration = Duration::from_secs(30);
/// The deadline of requests that are to miss it. Longer than a busy machine pauses: the requests in front of them have to be in time.
const SHORT_TIMEOUT: Span = Span(Duration::from_secs(2));
const UPGRADE: &str = "Host: here\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const SWITCHING: &str = "HTTP/1.1 101 Switching Protocols\r\n";
const MASK: [u8; 4] = [0xa5, 0x00, 0x3c, 0xff];

/// A server, and a client on it that must not notice what the others do.
struct Scene {
    server: Running,
    bystander: WebSocket<TcpStream>,
    published: u64,
}

impl Scene {
    fn start(options: Options) -> Self {
        let server = start(options);
        let bystander = websocket(server.address(), "/raw?channel=bystander");
        Self {
            server,
            bystander,
            published: 0,
        }
    }

    /// A connection that has said nothing yet.
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.server.address()).expect("a listening server");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.set_write_timeout(Some(PATIENCE)).expect("a socket");
        stream
    }

    /// A connection that is a WebSocket at `path`.
    fn upgraded(&self, path: &str) -> TcpStream {
        let mut stream = self.connect();
        send(&mut stream, format!("GET {path} HTTP/1.1\r\n{UPGRADE}"));
        read_switching(&mut stream);
        stream
    }

    fn metric(&self, name: &str) -> u64 {
        metric(self.server.address(), name)
    }

    fn closes(&self, reason: &str) -> u64 {
        self.metric(&format!("myriad_closes_total{{reason=\"{reason}\"}}"))
    }

    fn refusals(&self, reason: &str) -> u64 {
        self.metric(&format!(
            "myriad_upgrades_refused_total{{reason=\"{reason}\"}}"
        ))
    }

    /// The bystander is given what is published now.
    fn check_bystander(&mut self) {
        self.published += 1;
        let body = format!(
            r#"{{"channel": "bystander", "data": "n{}"}}"#,
            self.published
        );
        publish_ok(self.server.address(), &body);
        assert_eq!(
            next_text(&mut self.bystander),
            format!("n{}", self.published)
        );
    }

    /// Only the bystander is left, and nothing is kept for anybody.
    fn check_settled(&mut self) {
        until("only the bystander is left", || {
            self.metric("myriad_connections") == 1 && self.metric("myriad_buffered_bytes") == 0
        });
        self.check_bystander();
    }
}

fn send(stream: &mut TcpStream, bytes: impl AsRef<[u8]>) {
    stream
        .write_all(bytes.as_ref())
        .expect("an open connection");
}

/// Everything until the server's FIN. A reset is a failure: it may have eaten an answer.
fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut received = Vec::new();
    stream
        .read_to_end(&mut received)
        .unwrap_or_else(|error| panic!("{error} behind {:?}", String::from_utf8_lossy(&received)));
    received
}

#[track_caller]
fn check_end(stream: &mut TcpStream, answer: impl AsRef<[u8]>) {
    let received = read_to_end(stream);
    assert_eq!(
        received.escape_ascii().to_string(),
        answer.as_ref().escape_ascii().to_string()
    );
}

#[track_caller]
fn check_next(stream: &mut TcpStream, bytes: &[u8]) {
    let mut received = vec![0; bytes.len()];
    stream.read_exact(&mut received).expect("an answer");
    assert_eq!(
        received.escape_ascii().to_string(),
        bytes.escape_ascii().to_string()
    );
}

/// The 101 with all its headers.
fn read_switching(stream: &mut TcpStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a response");
        head.extend(byte);
    }
    assert!(head.starts_with(SWITCHING.as_bytes()));
}

fn end_our_side(stream: &TcpStream) {
    stream
        .shutdown(Shutdown::Write)
        .expect("an open connection");
}

/// What is answered 200 in front of a request, and so decides who reads its head: a shard alone, a shard behind a request of its own,
/// or the control plane, which may hand the connection back.
fn fronts() -> [String; 3] {
    [
        String::new(),
        head("GET", "/v1/stream/s", ""),
        head("GET", "/healthz", ""),
    ]
}

/// What the server sends when it refuses a request.
fn refusal(status: &str, sentence: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-type: text/plain; charset=utf-8\r\n\
         content-length: {}\r\n\r\n{sentence}",
        sentence.len()
    )
}

/// What the server sends when it closes a WebSocket.
fn close_frame(code: u16, sentence: &str) -> Vec<u8> {
    let length = u8::try_from(sentence.len() + 2).expect("a control frame");
    [
        &[0x88, length],
        &code.to_be_bytes()[..],
        sentence.as_bytes(),
    ]
    .concat()
}

/// A frame as a client sends it; `first` is FIN, reserved bits and opcode.
fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match u16::try_from(payload.len()).expect("a small frame") {
        length @ 0..=125 => frame.push(0x80 | length.to_le_bytes()[0]),
        length => {
            frame.push(0x80 | 126);
            frame.extend(length.to_be_bytes());
        }
    }
    frame.extend(MASK);
    frame.extend(payload.iter().zip(MASK.iter().cycle()).map(|(a, b)| a ^ b));
    frame
}
