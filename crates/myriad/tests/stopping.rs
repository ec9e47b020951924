//! What signals do to a server: the first drains it, the second ends it at once.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A test that waits longer has failed.
const PATIENCE: Duration = Duration::from_secs(30);

struct Server {
    process: Child,
    address: String,
    lines: Box<dyn Iterator<Item = String> + Send>,
}

impl Server {
    /// With a drain that no test can wait for.
    fn start() -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_myriad"))
            .args(["serve", "--dev", "--listen", "127.0.0.1:0", "--drain", "1h"])
            .stderr(Stdio::piped())
            .spawn()
            .expect("a program");
        let stderr = process.stderr.take().expect("piped");
        let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
        let address = lines
            .find_map(|line| {
                let rest = line.strip_prefix("listening on ")?;
                Some(rest.split_whitespace().next()?.to_owned())
            })
            .expect("the server says where it listens");
        Self {
            process,
            address,
            lines: Box::new(lines),
        }
    }

    fn websocket(&self) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).expect("a listening server");
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("a socket option");
        let head = "GET /raw?channel=c HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        stream
            .write_all(head.as_bytes())
            .expect("an open connection");
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, b"HTTP/1.1 101");
        stream
    }

    fn signal(&self, number: i32) {
        let status = Command::new("kill")
            .args([format!("-{number}"), self.process.id().to_string()])
            .status();
        assert!(status.expect("a program").success());
    }

    fn wait_for_line(&mut self, words: &str) {
        let found = self.lines.any(|line| line.contains(words));
        assert!(found, "the server says: {words}");
    }

    fn wait(mut self) -> ExitStatus {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().expect("a child") {
                return status;
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

const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;

#[test]
fn an_idle_server_stops_at_the_first_signal() {
    for signal in [SIGINT, SIGTERM] {
        let server = Server::start();
        server.signal(signal);
        let status = server.wait();
        assert_eq!((status.code(), status.signal()), (Some(0), None));
    }
}

#[test]
fn a_second_signal_ends_a_drain_at_once() {
    for signal in [SIGINT, SIGTERM] {
        let mut server = Server::start();
        let clients = [server.websocket(), server.websocket(), server.websocket()];
        server.signal(SIGINT);
        server.wait_for_line("another signal ends the server at once");
        server.signal(signal);
        let status = server.wait();
        assert_eq!((status.code(), status.signal()), (Some(1), None));
        drop(clients);
    }
}
