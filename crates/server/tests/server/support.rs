//! A server in this process, and plain clients for it.

use myriad_reactor::Driver;
use myriad_server::{DriverChoice, Machine, Options, Server, Span};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Deref;
use std::time::Duration;
use tungstenite::{Message, WebSocket};

/// A test that waits longer has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// Writes each function as two tests, one per driver. Where the kernel forbids io_uring, its half says so.
macro_rules! on_both_drivers {
    ($(fn $name:ident($driver:ident) $body:block)*) => {$(
        fn $name($driver: myriad_server::DriverChoice) $body

        mod $name {
            use myriad_server::DriverChoice;

            #[test]
            fn io_uring() {
                match myriad_reactor::Driver::probe_io_uring() {
                    Ok(()) => super::$name(DriverChoice::IoUring),
                    Err(reason) => eprintln!("not run: {reason:?}"),
                }
            }

            #[test]
            fn epoll() {
                super::$name(DriverChoice::Epoll);
            }
        }
    )*};
}
pub(crate) use on_both_drivers;

/// A server that is stopped when its test ends.
pub(crate) struct Running(Option<Server>);

impl Deref for Running {
    type Target = Server;

    fn deref(&self) -> &Server {
        self.0.as_ref().expect("running until dropped")
    }
}

impl Running {
    /// Drains it and waits.
    pub(crate) fn stop(mut self) {
        self.0
            .take()
            .expect("running until now")
            .stop()
            .expect("a drained server");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(server) = self.0.take() {
            let stopped = server.stop();
            if !std::thread::panicking() {
                stopped.expect("a drained server");
            }
        }
    }
}

/// What most tests run with: development, a port of the kernel's choice, no time to lose at the end.
/// Hosts that requests of these tests name. A development server answers to names of its own machine, and to listed ones.
const HOSTS: [&str; 8] = ["a", "anything", "b", "c", "he", "here", "smuggled", "x"];

pub(crate) fn options(driver: DriverChoice) -> Options {
    let listed = HOSTS.map(|host| format!("named://{host}:*").parse().expect("an origin"));
    Options {
        allowed_origins: Some(listed.into()),
        listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        driver: Some(driver),
        dev: Some(true),
        drain: Some(Span(Duration::ZERO)),
        // The first ping of a connection comes at any time within the interval. Tests that read so many bytes, and clients that
        // wait while others are tested, know nothing of it.
        ping_interval: Some(Span(Duration::ZERO)),
        max_connections: Some(myriad_server::Count(2_000)),
        ..Options::default()
    }
}

/// Options of a config file, over those of `base`.
pub(crate) fn with_file(text: &str, base: Options) -> Options {
    let file: Options = toml::from_str(text).expect("a config file");
    file.over(base)
}

/// Starts it, and checks that it runs on the driver asked for.
pub(crate) fn start(options: Options) -> Running {
    let wanted = options.driver;
    let config = options
        .resolve(&Machine::here())
        .expect("a good configuration");
    let server = Server::start(config).expect("a server");
    match wanted {
        Some(DriverChoice::IoUring) => assert_eq!(server.driver(), Driver::IoUring),
        Some(DriverChoice::Epoll) => assert_eq!(server.driver(), Driver::Epoll),
        _ => {}
    }
    Running(Some(server))
}

/// A WebSocket client whose reads end.
pub(crate) fn websocket(address: SocketAddr, path: &str) -> WebSocket<TcpStream> {
    let stream = TcpStream::connect(address).expect("a listening server");
    stream
        .set_read_timeout(Some(PATIENCE))
        .expect("a socket option");
    let (socket, response) =
        tungstenite::client(format!("ws://{address}{path}"), stream).expect("an upgrade");
    assert_eq!(response.status(), 101);
    socket
}

/// The next message that is no ping.
pub(crate) fn next(socket: &mut WebSocket<impl Read + Write>) -> Message {
    loop {
        match socket.read().expect("a message") {
            Message::Ping(_) => {}
            message => return message,
        }
    }
}

/// The next text.
pub(crate) fn next_text(socket: &mut WebSocket<impl Read + Write>) -> String {
    match next(socket) {
        Message::Text(text) => text.to_string(),
        other => panic!("text expected, not {other:?}"),
    }
}

/// An HTTP answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Answer {
    /// Reads one.
    pub(crate) fn read(reader: &mut impl BufRead) -> Self {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a status line");
        let status = line.split(' ').nth(1).and_then(|word| word.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status in {line:?}"));
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).expect("a header");
            let Some((name, value)) = line.trim_end().split_once(':') else {
                break;
            };
            headers.push((name.to_owned(), value.trim().to_owned()));
        }
        let mut answer = Self {
            status,
            headers,
            body: String::new(),
        };
        let length = answer
            .header("content-length")
            .map_or(0, |length| length.parse().expect("a length"));
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("the whole body");
        answer.body = String::from_utf8(body).expect("text");
        answer
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut found = self
            .headers
            .iter()
            .filter(|(known, _)| known.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value.as_str())
    }
}

/// An HTTP connection, kept alive as long as the server likes.
pub(crate) struct Http {
    reader: BufReader<TcpStream>,
}

impl Http {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("a listening server");
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("a socket option");
        stream.set_nodelay(true).expect("a socket option");
        Self {
            reader: BufReader::new(stream),
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.reader
            .get_mut()
            .write_all(bytes)
            .expect("an open connection");
    }

    /// Sends as much as the server still takes.
    pub(crate) fn send_anyway(&mut self, bytes: &[u8]) {
        let _ = self.reader.get_mut().write_all(bytes);
    }

    pub(crate) fn answer(&mut self) -> Answer {
        Answer::read(&mut self.reader)
    }

    /// A second way to send, for another thread.
    pub(crate) fn sender(&self) -> TcpStream {
        self.reader.get_ref().try_clone().expect("a descriptor")
    }

    /// Everything until the server's end.
    pub(crate) fn all(&mut self) -> String {
        let mut text = String::new();
        let read = self.reader.read_to_string(&mut text);
        read.expect("an end, not a reset");
        text
    }

    /// The next bytes, so many.
    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.reader.read_exact(&mut bytes).expect("so many bytes");
        bytes
    }

    /// Opens a WebSocket on it; all answers must have been read.
    pub(crate) fn upgrade(self, path: &str) -> WebSocket<TcpStream> {
        assert!(self.reader.buffer().is_empty(), "an answer is unread");
        let stream = self.reader.into_inner();
        let address = stream.peer_addr().expect("an open connection");
        let (socket, response) =
            tungstenite::client(format!("ws://{address}{path}"), stream).expect("an upgrade");
        assert_eq!(response.status(), 101);
        socket
    }

    /// True when the server has ended its side, with nothing more to say.
    pub(crate) fn ended(&mut self) -> bool {
        self.reader
            .fill_buf()
            .expect("an end, not a reset")
            .is_empty()
    }
}

/// One request on a connection of its own. `headers` is whole lines.
pub(crate) fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> Answer {
    let mut http = Http::connect(address);
    http.send(
        head(
            method,
            path,
            &format!("Content-Length: {}\r\n{headers}", body.len()),
        )
        .as_bytes(),
    );
    http.send(body.as_bytes());
    http.answer()
}

/// A request head; `headers` is whole lines.
pub(crate) fn head(method: &str, path: &str, headers: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n")
}

pub(crate) fn get(address: SocketAddr, path: &str) -> Answer {
    request(address, "GET", path, "", "")
}

pub(crate) fn publish(address: SocketAddr, body: &str) -> Answer {
    request(address, "POST", "/api/publish", EXPLAINED, body)
}

/// Asks for everything that is wrong with a request.
pub(crate) const EXPLAINED: &str = "X-Myriad-Debug: true\r\n";

/// The error that a method of the API answers.
pub(crate) fn api_error(address: SocketAddr, method: &str, body: &str) -> serde_json::Value {
    let mut answer = api(address, method, body);
    let error = answer["error"].take();
    assert!(error.is_object(), "{body}: {answer}");
    error
}

/// What a method of the API answers.
pub(crate) fn api(address: SocketAddr, method: &str, body: &str) -> serde_json::Value {
    let answer = request(address, "POST", &format!("/api/{method}"), EXPLAINED, body);
    assert_eq!(answer.status, 200, "{method} {body}: {answer:?}");
    serde_json::from_str(&answer.body).expect("JSON")
}

/// Publishes and returns the offset.
pub(crate) fn publish_ok(address: SocketAddr, body: &str) -> u64 {
    publish_position(address, body).1
}

/// Publishes and returns epoch and offset.
pub(crate) fn publish_position(address: SocketAddr, body: &str) -> (String, u64) {
    let answer = publish(address, body);
    assert_eq!(answer.status, 200, "{answer:?}");
    let value: serde_json::Value = serde_json::from_str(&answer.body).expect("JSON");
    let value = &value["result"];
    let epoch = value["epoch"].as_str().expect("an epoch");
    (
        epoch.to_owned(),
        value["offset"].as_u64().expect("an offset"),
    )
}

/// The value of a metric; `name` with its labels.
pub(crate) fn metric(address: SocketAddr, name: &str) -> u64 {
    let text = get(address, "/metrics").body;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {text}"))
        .parse()
        .expect("a number")
}

/// Looks until it is so. For what another thread has been asked to do and tells nobody when it is done.
pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let begin = std::time::Instant::now();
    while !so() {
        assert!(begin.elapsed() < PATIENCE, "never: {what}");
        // A loop without a pause would take the processor from the threads that it waits for.
        std::thread::sleep(Duration::from_millis(5));
    }
}
