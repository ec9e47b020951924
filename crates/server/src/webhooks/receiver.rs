//! A receiver of webhooks for tests, which answers as it is told.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver as Channel, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A test that waits longer has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the receiver does with a request.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Answers with a status.
    Answer(u16),
    /// Answers with these bytes, and ends the connection.
    Bytes(&'static [u8]),
    /// Answers 200, and then with a body that has no end.
    Endless,
    /// Says nothing until the client has given up.
    Hang,
    /// Ends the connection.
    Close,
}

/// A request that came whole.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    head: String,
    pub(crate) body: serde_json::Value,
    pub(crate) bytes: Vec<u8>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let found = lines.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    }

    /// The method and the path.
    pub(crate) fn target(&self) -> &str {
        let line = self.head.lines().next().unwrap_or_default();
        line.trim_end_matches(" HTTP/1.1")
    }

    pub(crate) fn events(&self) -> &[serde_json::Value] {
        self.body["events"].as_array().map_or(&[], Vec::as_slice)
    }
}

/// A listening receiver. It ends with its process.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    requests: Channel<Request>,
    acts: Arc<Mutex<VecDeque<Act>>>,
}

impl Receiver {
    /// It answers 200 unless it is told otherwise.
    pub(crate) fn start() -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").expect("a free port"))
    }

    pub(crate) fn on(listener: TcpListener) -> Self {
        let address = listener.local_addr().expect("an address");
        let (sender, requests) = mpsc::channel();
        let acts = Arc::<Mutex<VecDeque<Act>>>::default();
        let script = Arc::clone(&acts);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (sender, script) = (sender.clone(), Arc::clone(&script));
                // What goes wrong with a connection is what the test is about.
                std::thread::spawn(move || drop(serve(stream, &sender, &script)));
            }
        });
        Self {
            address,
            requests,
            acts,
        }
    }

    /// What it does with the next requests, in their order. Then it answers 200 again.
    pub(crate) fn then(&self, acts: impl IntoIterator<Item = Act>) {
        self.acts.lock().expect("no panic inside").extend(acts);
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook?x=1", self.address)
    }

    /// The next request that came whole, whatever was answered.
    pub(crate) fn next(&self) -> Request {
        let request = self.requests.recv_timeout(PATIENCE);
        request.expect("a request")
    }

    /// The requests that have come and were not looked at.
    pub(crate) fn rest(&self) -> Vec<Request> {
        self.requests.try_iter().collect()
    }
}

fn serve(
    mut stream: TcpStream,
    requests: &Sender<Request>,
    acts: &Mutex<VecDeque<Act>>,
) -> io::Result<()> {
    while let Some(request) = read(&mut stream)? {
        let act = acts.lock().expect("no panic inside").pop_front();
        let _ = requests.send(request);
        match act.unwrap_or(Act::Answer(200)) {
            Act::Answer(status) => {
                let answer = format!("HTTP/1.1 {status} Told\r\ncontent-length: 2\r\n\r\nok");
                stream.write_all(answer.as_bytes())?;
            }
            Act::Bytes(bytes) => return stream.write_all(bytes),
            Act::Endless => {
                stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
                loop {
                    stream.write_all(b"4\r\nmore\r\n")?;
                }
            }
            Act::Hang => return stream.read(&mut [0]).map(drop),
            Act::Close => return Ok(()),
        }
    }
    Ok(())
}

/// A request; none when the client has ended.
fn read(stream: &mut TcpStream) -> io::Result<Option<Request>> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        let mut buffer = [0; 4096];
        match stream.read(&mut buffer)? {
            0 => return Ok(None),
            count => bytes.extend_from_slice(&buffer[..count]),
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut body = bytes.split_off(end);
    let length = head
        .lines()
        .filter_map(|line| line.split_once(": "))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.parse().ok())
        .unwrap_or(0);
    let come = body.len();
    body.resize(length, 0);
    stream.read_exact(&mut body[come..])?;
    Ok(Some(Request {
        head,
        body: serde_json::from_slice(&body).expect("a body of JSON"),
        bytes: body,
    }))
}
