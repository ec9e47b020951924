//! A `myriad serve` as a process of its own, and requests to it.

#![allow(dead_code, reason = "each test binary uses its part")]

pub(crate) mod nats;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// A test that waits longer has failed.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) const SIGINT: i32 = 2;
pub(crate) const SIGTERM: i32 = 15;
pub(crate) const SIGCONT: i32 = 18;
pub(crate) const SIGSTOP: i32 = 19;

/// A server that everybody may connect to. It is killed at the end of the test.
pub(crate) struct Server {
    process: Child,
    pub(crate) address: String,
    /// What it wrote to standard error since it was ready. A thread reads that, so the pipe is never full.
    lines: Receiver<String>,
}

impl Server {
    /// Starts `myriad serve --dev` on a free port, with these options, and waits until it listens.
    pub(crate) fn start(options: &[&str]) -> Self {
        Self::start_with(myriad(&[]), options)
    }

    /// The same by a command that runs `myriad` with the arguments that are added to it.
    pub(crate) fn start_with(mut command: Command, options: &[&str]) -> Self {
        let mut process = command
            .args(["serve", "--dev", "--listen", "127.0.0.1:0"])
            .args(options)
            .stderr(Stdio::piped())
            .spawn()
            .expect("a program");
        let stderr = process.stderr.take().expect("piped");
        let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
        let address = lines
            .find_map(|line| {
                // As text, or as a line of JSON.
                let (_, rest) = line.split_once("listening on ")?;
                Some(rest.split_whitespace().next()?.to_owned())
            })
            .expect("the server says where it listens");
        let (sender, receiver) = std::sync::mpsc::channel();
        // The test may be over before the server's last line.
        std::thread::spawn(move || lines.try_for_each(|line| sender.send(line)));
        Self {
            process,
            address,
            lines: receiver,
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).expect("a listening server");
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("a socket option");
        stream
    }

    /// Asks for a WebSocket. The answer is its first 12 bytes, such as `HTTP/1.1 101`.
    pub(crate) fn upgrade(&self, target: &str) -> (TcpStream, String) {
        let mut stream = self.connect();
        let head = format!(
            "GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).expect("it is open");
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).expect("an answer");
        (stream, String::from_utf8_lossy(&answer).into_owned())
    }

    /// Posts JSON, and returns the answer's body.
    #[allow(dead_code, reason = "not every test publishes")]
    pub(crate) fn post(&self, target: &str, body: &str) -> String {
        let mut stream = self.connect();
        let request = format!(
            "POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).expect("it is open");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
        body.to_owned()
    }

    pub(crate) fn signal(&self, number: i32) {
        let status = Command::new("kill")
            .args([format!("-{number}"), self.id().to_string()])
            .status();
        assert!(status.expect("a program").success());
    }

    /// The state of its process, as `ps` shows it: `T` is stopped.
    pub(crate) fn state(&self) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id()));
        let stat = stat.expect("a process of ours");
        let (_, rest) = stat.rsplit_once(") ").expect("a name in parentheses");
        rest.chars().next().expect("a state")
    }

    /// The value of a metric, all its series together.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let mut stream = self.connect();
        let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).expect("it is open");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let values = answer.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            let (labels, value) = rest.rsplit_once(' ')?;
            let is_it = labels.is_empty() || labels.starts_with('{');
            is_it.then(|| value.parse::<f64>().expect("a number"))
        });
        values.sum()
    }

    pub(crate) fn wait_until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let begin = Instant::now();
        while !holds(self) {
            assert!(begin.elapsed() < PATIENCE, "{what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn wait_for_line(&self, words: &str) {
        let found = self.lines.iter().any(|line| line.contains(words));
        assert!(found, "the server says: {words}");
    }

    /// Waits for its end. Gives its status, and the lines that no call of `wait_for_line` has read.
    pub(crate) fn wait(mut self) -> (ExitStatus, Vec<String>) {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().expect("a child") {
                return (status, self.lines.iter().collect());
            }
            assert!(begin.elapsed() < PATIENCE, "the server does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// `myriad` with these arguments.
pub(crate) fn myriad(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_myriad"));
    command.args(arguments);
    command
}

/// A text frame of a client (RFC 6455, section 5.2), with a mask that changes nothing.
pub(crate) fn client_frame(payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).expect("a short frame");
    assert!(length < 126, "a short frame");
    let mut frame = vec![0x81, 0x80 | length, 0, 0, 0, 0];
    frame.extend(payload);
    frame
}
