//! What `serve --log debug` says of single connections and publications.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

/// A test that waits longer has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// More connections than a second has lines for, even if they take several seconds.
const BURST: usize = 1_500;

struct Server {
    process: Child,
    address: String,
    /// Reads what it says, so that it never waits for us.
    reader: Option<JoinHandle<Vec<String>>>,
}

impl Server {
    fn start(level: &str) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_myriad"))
            .args(["serve", "--dev", "--listen", "127.0.0.1:0", "--drain", "0s"])
            .args(["--shards", "1", "--max-connections", "3k", "--log", level])
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
            reader: Some(std::thread::spawn(move || lines.collect())),
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).expect("a listening server");
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("a socket option");
        stream
    }

    /// The beginning of the answer to a request to upgrade.
    fn upgrade(&self, target: &str) -> (TcpStream, String) {
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

    fn publish(&self, body: &str) -> String {
        let mut stream = self.connect();
        let request = format!(
            "POST /api/publish HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).expect("it is open");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    /// Stops it, and gives what it said since it was ready.
    fn stop(mut self) -> Vec<String> {
        let status = Command::new("kill")
            .args(["-TERM", &self.process.id().to_string()])
            .status();
        assert!(status.expect("a program").success());
        assert!(self.process.wait().expect("a child").success());
        let reader = self.reader.take().expect("it is stopped once");
        reader.join().expect("a reader")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Reads until the peer has ended the connection too.
fn close(mut stream: TcpStream) {
    stream.shutdown(Shutdown::Write).expect("it is open");
    let _ = stream.read_to_end(&mut Vec::new());
}

fn talk(server: &Server) {
    let (stream, answer) = server.upgrade("/raw?channel=news&channel=odd%0Aname");
    assert!(answer.contains("101"), "{answer}");
    let answer = server.publish(r#"{"channel": "odd\nname", "data": "twelve bytes"}"#);
    assert!(answer.contains("200 OK"), "{answer}");
    close(stream);
    let (stream, answer) = server.upgrade("/raw");
    assert!(answer.contains("400"), "{answer}");
    close(stream);
}

#[test]
fn a_connection_shows_from_accept_to_close() {
    let server = Server::start("debug");
    talk(&server);
    let lines = server.stop();
    let upgraded = lines
        .iter()
        .find(|line| line.contains("upgraded: /raw, 2 channels, compression off"))
        .unwrap_or_else(|| panic!("{lines:#?}"));
    let name = upgraded
        .split_whitespace()
        .find(|word| word.starts_with("0:"))
        .expect("a connection has a name");
    for words in [
        format!("connection {name} accepted"),
        format!("connection {name} closed: client"),
        r#"published to "odd\nname": offset 1, 12 bytes"#.into(),
        "refused: 400 channel".into(),
        "closed: refused".into(),
        "closed: handed_over".into(),
    ] {
        let found = lines.iter().filter(|line| line.contains(&words)).count();
        assert_eq!(found, 1, "{words}: {lines:#?}");
    }
}

#[test]
fn without_debug_nothing_is_said() {
    let server = Server::start("info");
    talk(&server);
    for line in server.stop() {
        for words in ["connection 0:", "published", "suppressed"] {
            assert!(!line.contains(words), "{line}");
        }
    }
}

/// Each event has its line or is counted, however long the burst takes.
#[test]
fn what_a_burst_has_no_lines_for_is_counted() {
    let server = Server::start("debug");
    // With their ends, 2 events each.
    for _ in 0..BURST {
        drop(server.connect());
    }
    // The events of all of them have been noted when a later one is answered.
    talk(&server);
    let lines = server.stop();
    let shown = lines
        .iter()
        .filter(|line| line.ends_with(" accepted") && !line.contains("suppressed"))
        .count();
    let suppressed: usize = lines
        .iter()
        .filter_map(|line| {
            let (_, kinds) = line.split_once("suppressed: ")?;
            let kind = kinds.split(", ").find(|kind| kind.ends_with(" accepted"))?;
            let number = kind.split_whitespace().next()?.replace(',', "");
            number.parse::<usize>().ok()
        })
        .sum();
    // Those of `talk` are three.
    assert_eq!(shown + suppressed, BURST + 3, "{lines:#?}");
    assert!(suppressed > 0, "{lines:#?}");
}
