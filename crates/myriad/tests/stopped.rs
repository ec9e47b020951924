//! A server whose process is stopped for longer than its time-outs, as by SIGSTOP or on a suspended machine: what came meanwhile came in
//! time. On both drivers.

mod support;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use support::{SIGCONT, SIGSTOP, Server, client_frame, myriad};

/// The time-outs of the server. The tests wait for longer while it is stopped: a deadline has to pass.
const TIMEOUT: Duration = Duration::from_secs(1);

const DRIVERS: [&str; 2] = ["io_uring", "epoll"];

fn start(driver: &str) -> Server {
    let mut command = myriad(&[]);
    command.env("MYRIAD_CLIENT_STALE_CLOSE_DELAY", "1s");
    let options = ["--driver", driver, "--handshake-timeout", "1s"];
    Server::start_with(command, &options)
}

/// What is sent while the server is stopped comes before it goes on.
fn while_stopped(server: &Server, send: impl FnOnce()) {
    server.signal(SIGSTOP);
    server.wait_until("it is stopped", |server| server.state() == 'T');
    send();
    let deadline = Instant::now() + 2 * TIMEOUT;
    while let Some(rest) = deadline.checked_duration_since(Instant::now()) {
        std::thread::sleep(rest);
    }
    server.signal(SIGCONT);
}

fn read(stream: &mut TcpStream, bytes: usize) -> String {
    let mut answer = vec![0; bytes];
    stream.read_exact(&mut answer).expect("an answer");
    String::from_utf8_lossy(&answer).into_owned()
}

fn answers_a_head_that_came_meanwhile(driver: &str) {
    let server = start(driver);
    let mut stream = server.connect();
    let head = "GET /raw?channel=x HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let (first, rest) = head.split_at(20);
    stream.write_all(first.as_bytes()).expect("it is open");
    server.wait_until("it keeps the beginning", |server| {
        server.metric("myriad_unconnected_buffered_bytes") > 0.0
    });
    while_stopped(&server, || {
        stream.write_all(rest.as_bytes()).expect("it is open")
    });
    assert_eq!(read(&mut stream, 12), "HTTP/1.1 101", "{driver}");
}

fn answers_a_connect_command_that_came_meanwhile(driver: &str) {
    let server = start(driver);
    let (mut stream, answer) = server.upgrade("/connection/websocket");
    assert_eq!(answer, "HTTP/1.1 101");
    let mut head = answer;
    while !head.ends_with("\r\n\r\n") {
        head.push_str(&read(&mut stream, 1));
    }
    let connect = client_frame(br#"{"id":1,"connect":{}}"#);
    while_stopped(&server, || stream.write_all(&connect).expect("it is open"));
    // The head of a text frame, and the beginning of the answer.
    let answer = read(&mut stream, 20);
    assert!(
        answer.contains(r#"{"id":1,"connect""#),
        "{driver}: {answer}"
    );
}

#[test]
fn a_stopped_server_answers_a_head_that_came_meanwhile() {
    for driver in DRIVERS {
        answers_a_head_that_came_meanwhile(driver);
    }
}

#[test]
fn a_stopped_server_answers_a_connect_command_that_came_meanwhile() {
    for driver in DRIVERS {
        answers_a_connect_command_that_came_meanwhile(driver);
    }
}
