//! Requests that are slow, or never end, wherever they are read: by a shard on a new connection, by a shard behind a read, and by the
//! control plane.

use super::{SHORT_TIMEOUT, Scene, fronts, send};
use crate::support::{Answer, Http, head, on_both_drivers, options, publish_ok, until, with_file};
use myriad_server::{DriverChoice, Options, Span};
use std::io::{BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

const FIRST_MESSAGE: &str = "/connection/uni_http_stream";

/// `timeout` is the deadline of a request; `None` is the default.
fn scene(driver: DriverChoice, timeout: Option<Span>) -> Scene {
    let text = "[uni_http_stream]\nenabled = true\n[http_stream]\nenabled = true\n";
    let scene = Scene::start(Options {
        handshake_timeout: timeout,
        ..with_file(text, options(driver))
    });
    publish_ok(scene.server.address(), r#"{"channel": "s", "data": 1}"#);
    scene
}

/// A connection on which a request in front has been answered.
fn behind(address: SocketAddr, front: &str) -> TcpStream {
    let mut http = Http::connect(address);
    if !front.is_empty() {
        http.send(front.as_bytes());
        assert_eq!(http.answer().status, 200, "{front}");
    }
    http.sender()
}

/// Sends `beginning`, then `drip` for as long as the server says nothing. The answer, to the server's end.
fn drip(mut stream: TcpStream, beginning: &str, drip: &[u8]) -> Answer {
    send(&mut stream, beginning);
    // A short wait for an answer is the pause between two drips.
    let pause = Some(Duration::from_millis(20));
    stream.set_read_timeout(pause).expect("a socket");
    let mut received = Vec::new();
    let mut piece = [0; 1024];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return Answer::read(&mut &received[..]),
            Ok(count) => received.extend_from_slice(&piece[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                // The server's end may come between the two.
                let _ = stream.write_all(drip);
            }
            Err(error) => panic!("{beginning}: {error} behind {received:?}"),
        }
    }
}

/// Sends `beginning`, then `piece` again and again, and reads the answer meanwhile.
fn pour(stream: TcpStream, beginning: &str, piece: &[u8]) -> Answer {
    let mut sender = stream.try_clone().expect("a descriptor");
    send(&mut sender, beginning);
    std::thread::scope(|scope| {
        scope.spawn(move || while sender.write_all(piece).is_ok() {});
        let answer = Answer::read(&mut BufReader::new(&stream));
        // The server may have ended the connection meanwhile.
        let _ = stream.shutdown(Shutdown::Both);
        answer
    })
}

#[track_caller]
fn check_refused(answer: &Answer, status: u16, what: &str) {
    assert_eq!(answer.status, status, "{what}: {answer:?}");
    let connection = answer.header("connection");
    assert_eq!(connection, Some("close"), "{what}: {answer:?}");
}

fn posts(path: &str, framing: &str) -> String {
    head(
        "POST",
        path,
        &format!("Content-Type: application/json\r\n{framing}\r\n"),
    )
}

const BODIES: [&str; 4] = [FIRST_MESSAGE, "/emulation", "/api/publish", "/v1/stream/s"];

on_both_drivers! {
    fn slow_heads_have_one_deadline_wherever_they_are_read(driver) {
        let mut scene = scene(driver, Some(SHORT_TIMEOUT));
        let address = scene.server.address();
        std::thread::scope(|scope| {
            for (front, beginning) in fronts().into_iter().flat_map(|front| {
                ["GET /v1/stream/s HTTP/1.1\r\nHost: a\r\nX: ", "GET /raw HTTP/1.1\r\nHost: a\r\nX: ", "POST /api/publish HTTP/1.1\r\nX: "]
                    .map(|beginning| (front.clone(), beginning))
            }) {
                scope.spawn(move || {
                    let answer = drip(behind(address, &front), beginning, b"x");
                    check_refused(&answer, 408, &format!("{beginning:?} behind {front:?}"));
                });
            }
        });
        // A shard counts those that it reads.
        assert_eq!(scene.refusals("handshake_timeout"), 6);
        scene.check_settled();
    }

    fn slow_bodies_have_one_deadline_wherever_they_are_read(driver) {
        let mut scene = scene(driver, Some(SHORT_TIMEOUT));
        let address = scene.server.address();
        std::thread::scope(|scope| {
            for (path, front) in BODIES.iter().flat_map(|path| fronts().map(|front| (*path, front))) {
                for (framing, first, drop) in [
                    ("Content-Length: 9000", "[", &b" "[..]),
                    ("Transfer-Encoding: chunked", "1\r\n[\r\n", b"1\r\n \r\n"),
                    // In the middle of a chunk's extension.
                    ("Transfer-Encoding: chunked", "1;", b"a"),
                ] {
                    let front = front.clone();
                    scope.spawn(move || {
                        let beginning = posts(path, framing) + first;
                        let answer = drip(behind(address, &front), &beginning, drop);
                        check_refused(&answer, 408, &format!("{beginning:?} behind {front:?}"));
                    });
                }
            }
        });
        scene.check_settled();
    }

    fn endless_heads_are_refused_wherever_they_are_read(driver) {
        let mut scene = scene(driver, None);
        let address = scene.server.address();
        for front in fronts() {
            for beginning in ["GET /v1/stream/s HTTP/1.1\r\nHost: a\r\n", "POST /api/publish HTTP/1.1\r\nHost: a\r\n"] {
                for (first, piece) in [("X: ", "x".repeat(4096)), ("", "A: b\r\n".repeat(100)), ("A", "a".repeat(4096))] {
                    let beginning = format!("{beginning}{first}");
                    let answer = pour(behind(address, &front), &beginning, piece.as_bytes());
                    check_refused(&answer, 431, &format!("{beginning:?} behind {front:?}"));
                }
            }
            // Of the request line.
            let answer = pour(behind(address, &front), "GET /v1/stream/", &[b'x'; 4096]);
            check_refused(&answer, 431, &format!("a line behind {front:?}"));
        }
        scene.check_bystander();
        scene.check_settled();
    }

    fn endless_bodies_are_refused_wherever_they_are_read(driver) {
        let mut scene = scene(driver, None);
        let address = scene.server.address();
        for (path, front) in BODIES.iter().flat_map(|path| fronts().map(|front| (*path, front))) {
            for (framing, first, piece, status) in [
                ("Content-Length: 9223372036854775807", "[".into(), b" ".repeat(4096), 413),
                ("Transfer-Encoding: chunked", String::new(), [&b"1000\r\n"[..], &[b' '; 4096], b"\r\n"].concat(), 413),
                ("Transfer-Encoding: chunked", "7fffffffffffffff\r\n".into(), vec![b' '; 4096], 413),
                ("Transfer-Encoding: chunked", "1;a".into(), vec![b'a'; 4096], 400),
                ("Transfer-Encoding: chunked", "0\r\n".into(), b"a: b\r\n".repeat(1000), 400),
                ("Transfer-Encoding: chunked", "0".into(), vec![b'0'; 4096], 400),
            ] {
                let beginning = posts(path, framing) + &first;
                let answer = pour(behind(address, &front), &beginning, &piece);
                check_refused(&answer, status, &format!("{beginning:?} behind {front:?}"));
            }
        }
        until("nothing is kept", || scene.metric("myriad_buffered_bytes") == 0);
        scene.check_bystander();
        scene.check_settled();
    }
}
